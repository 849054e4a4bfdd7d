// A worker service: it sends the letters of the queue "letters", and counts them in "totals". A
// letter that was counted is done, and a letter whose sending failed is sent again later.
//
//	go run truce.invalid/truce/example/worker -store school.truce
//	go run truce.invalid/truce/example/worker -store mongodb://127.0.0.1/school
//	go run truce.invalid/truce/example/worker -store school.truce -add ada@example.org
//
// SIGTERM and Ctrl-C end it: it claims no further job, and the running ones end.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"truce.invalid/truce"
)

type letter struct {
	To string `bson:"to"`
}

func open(store string) (*truce.Database, error) {
	if strings.HasPrefix(store, "mongodb://") {
		return truce.Connect(store)
	}
	return truce.Open(store)
}

// send is the work: here, it takes a moment, and fails without an address.
func send(ctx context.Context, job *truce.Job) (any, error) {
	var l letter
	if err := job.Decode(&l); err != nil {
		return nil, err
	}
	if l.To == "" {
		return nil, job.Discard(ctx, fmt.Errorf("the letter has no address"))
	}
	for percent := 0; percent < 100; percent += 50 {
		if _, err := job.Heartbeat(ctx, bson.M{"percent": percent}); err != nil {
			return nil, err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done(): // the job was canceled
			return nil, ctx.Err()
		}
	}
	c := job.Commit(bson.M{"sent": true}) // the job is done and counted, or neither
	c.Update("totals", "letters", bson.M{"$inc": bson.M{"n": 1}})
	if err := c.Run(ctx); err != nil {
		return nil, err
	}
	slog.Info("sent", "to", l.To, "attempt", job.Attempt)
	return nil, nil
}

func run(store, add string, concurrency int) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	db, err := open(store)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if add != "" {
		_, err := db.Enqueue(ctx, "letters", truce.EnqueueOptions{Payload: letter{add}})
		return err
	}
	_, err = db.Collection("totals").UpdateOne(ctx, bson.M{"_id": "letters"},
		bson.M{"$inc": bson.M{"n": 0}}, truce.UpdateOptions{Upsert: true})
	if err != nil {
		return err
	}
	slog.Info("waiting for letters", "store", store)
	w := truce.Worker{DB: db, Queue: "letters", Handler: send, Concurrency: concurrency,
		StopTimeout: 20 * time.Second}
	if err := w.Run(ctx); err != nil {
		return err
	}
	slog.Info("ended")
	return nil
}

func main() {
	store := flag.String("store", "school.truce", "the file, or the URI of truce serve")
	add := flag.String("add", "", "add a letter to this address, and end")
	concurrency := flag.Int("concurrency", 4, "how many letters are sent at a time")
	flag.Parse()
	if err := run(*store, *add, *concurrency); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

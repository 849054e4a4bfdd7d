// One measurement of the Go module: measure STORE SECONDS prints nanoseconds for each call: of the
// clock, and of the processor.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"truce.invalid/truce"
)

func main() {
	ctx := context.Background()
	db, err := truce.Open(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	seconds, _ := strconv.ParseFloat(os.Args[2], 64)
	find := func(i int) {
		_, err := db.Collection("x").FindOne(ctx, bson.D{{Key: "_id", Value: int32(i)}}).Raw()
		if err != nil {
			log.Fatal(err)
		}
	}
	for i := range 1000 {
		find(i)
	}
	calls, began, used := 0, time.Now(), processor()
	for time.Since(began).Seconds() < seconds {
		for i := range 200 {
			find(i)
		}
		calls += 200
	}
	fmt.Println(time.Since(began).Nanoseconds()/int64(calls), (processor()-used)/int64(calls))
	_ = db.Close()
}

// processor returns the nanoseconds that the process has used.
func processor() int64 {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return usage.Utime.Nano() + usage.Stime.Nano()
}

package module

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"truce.invalid/truce"
)

// prompt fails if a call takes more than some seconds, whatever the load of the machine.
func prompt(t testing.TB, since time.Time) {
	t.Helper()
	if took := time.Since(since); took > 10*time.Second {
		t.Fatalf("it took %v", took)
	}
}

func TestAContextEndsACall(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, err := db.Queues(ended)
		fails(t, err, truce.ErrCanceled)
		same(t, errors.Is(err, context.Canceled), true)
		_, err = db.Collection("people").InsertOne(ended, M{"_id": 1})
		same(t, fails(t, err, truce.ErrCanceled).Message, `insert of "people": context canceled`)
		_, err = db.Enqueue(ended, "mail", truce.EnqueueOptions{Payload: M{}})
		same(t, fails(t, err, truce.ErrCanceled).Message, `Enqueue of "mail": context canceled`)

		// a claim that waits; nothing is claimed for a caller that has gone
		waiting, cancel := context.WithCancel(ctx)
		time.AfterFunc(100*time.Millisecond, cancel)
		began := time.Now()
		_, err = db.ClaimJobs(waiting, "mail", truce.ClaimOptions{Wait: 20 * time.Second})
		fails(t, err, truce.ErrCanceled)
		same(t, errors.Is(err, context.Canceled), true)
		prompt(t, began)
		_ = ok(db.Enqueue(ctx, "mail", truce.EnqueueOptions{Payload: M{}}))(t)
		eventually(t, "the job is ready again", func() bool {
			return len(ok(db.ClaimJobs(ctx, "mail", truce.ClaimOptions{}))(t)) == 1
		})

		waiting, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		_, err = db.Claim(waiting, "mail", truce.ClaimOptions{Wait: 20 * time.Second})
		fails(t, err, truce.ErrTimeout)
		same(t, errors.Is(err, context.DeadlineExceeded), true)

		// a long query
		numbers := make([]M, 2000)
		for i := range numbers {
			numbers[i] = M{"n": i}
		}
		_, err = db.Collection("numbers").InsertMany(ctx, numbers)
		must(t, err)
		square := []M{{"$lookup": M{"from": "numbers", "as": "x", "let": M{"n": "$n"}, "pipeline": []M{
			{"$match": M{"$expr": M{"$eq": []any{M{"$mod": []any{M{"$multiply": []any{"$n", "$$n"}}, 7919}}, -1}}}},
		}}}, {"$count": "n"}}
		limited, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		_, err = db.Collection("numbers").Aggregate(limited, square)
		fails(t, err, truce.ErrTimeout)
		same(t, errors.Is(err, context.DeadlineExceeded), true)
		limited, cancel = context.WithCancel(ctx)
		time.AfterFunc(200*time.Millisecond, cancel)
		_, err = db.Collection("numbers").Aggregate(limited, square)
		fails(t, err, truce.ErrCanceled)
		same(t, errors.Is(err, context.Canceled), true)
	})
}

func TestACanceledWriteIsWholeOrNothing(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		both := func(ctx context.Context, n int) error {
			c := db.Commit(truce.CommitOptions{})
			c.Insert("left", M{"_id": n})
			c.Insert("right", M{"_id": n})
			_, err := c.Run(ctx)
			return err
		}
		var done atomic.Int64
		for round := range 8 {
			canceled, cancel := context.WithCancel(ctx)
			var all sync.WaitGroup
			for n := range 20 {
				all.Go(func() {
					err := both(canceled, 100*round+n)
					if err == nil {
						done.Add(1)
					} else if !errors.Is(err, context.Canceled) || !errors.Is(err, truce.ErrOutcomeUnknown) && !errors.Is(err, truce.ErrCanceled) {
						t.Error(err) // ErrCanceled: it has not begun
					}
				})
			}
			time.Sleep(time.Duration(round) * time.Millisecond)
			cancel()
			all.Wait()
		}
		ids := func(side string) []any {
			cursor := ok(db.Collection(side).Find(ctx, M{}, truce.FindOptions{Sort: M{"_id": 1}}))(t)
			return list(t, cursor.Each(ctx), "_id")
		}
		eventually(t, "commits are whole", func() bool { return reflect.DeepEqual(ids("left"), ids("right")) })
		if found := int64(len(ids("left"))); found < done.Load() {
			t.Fatalf("%d commits were acknowledged, %d are stored", done.Load(), found)
		}
	})
}

func TestATransactionWhoseContextEndsHasNoEffect(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		count := func() int64 { return ok(db.Collection("people").CountDocuments(ctx, M{}))(t) }
		insert := func(ctx context.Context, tx *truce.Database) error {
			_, err := tx.Collection("people").InsertOne(ctx, M{})
			return err
		}

		// between the last call and the commit
		ended, cancel := context.WithCancel(ctx)
		err := db.Transact(ended, func(tx *truce.Database) error {
			defer cancel()
			return insert(ctx, tx)
		})
		same(t, fails(t, err, truce.ErrCanceled).Message, "the transaction: context canceled: the transaction has no effect")
		same(t, errors.Is(err, context.Canceled), true)
		same(t, count(), 0)

		// during a call, whatever the function does with its error
		for round := range 20 {
			ended, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Duration(round)*20*time.Microsecond, cancel)
			before, interrupted := count(), false
			err := db.Transact(ctx, func(tx *truce.Database) error {
				failed := insert(ended, tx)
				interrupted = failed != nil && strings.Contains(failed.Error(), ": the transaction has no effect")
				if failed != nil && errors.Is(failed, truce.ErrOutcomeUnknown) {
					t.Error(failed)
				}
				return nil
			})
			if interrupted {
				same(t, fails(t, err, truce.ErrCanceled).Message, `insert of "people": context canceled: the transaction has no effect`)
				same(t, count(), before)
			}
			cancel()
		}
		must(t, db.Transact(ctx, func(tx *truce.Database) error { return insert(ctx, tx) }))
	})
}

func TestADeadlineIsThatOfOneCall(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		_, err := db.Collection("numbers").InsertMany(ctx, []M{{"_id": 1}, {"_id": 2}, {"_id": 3}, {"_id": 4}, {"_id": 5}})
		must(t, err)
		limited, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		cursor, err := db.Collection("numbers").Find(limited, M{}, truce.FindOptions{BatchSize: 2})
		must(t, err)
		same(t, cursor.Next(limited), true)
		<-limited.Done()
		longer, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		same(t, len(list(t, cursor.Each(longer), "_id")), 4)
	})
	db := server(t)
	stream := ok(db.Watch(ctx, nil, truce.ChangeStreamOptions{MaxAwaitTime: 50 * time.Millisecond}))(t)
	limited, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	same(t, stream.Next(limited), false)
	same(t, errors.Is(stream.Err(), context.DeadlineExceeded), true)
}

func TestCloseEndsCalls(t *testing.T) {
	db := ok(truce.Open(filepath.Join(t.TempDir(), "s.truce")))(t)
	ended := make(chan error)
	go func() {
		_, err := db.Claim(ctx, "q", truce.ClaimOptions{Wait: 60 * time.Second})
		ended <- err
	}()
	time.Sleep(100 * time.Millisecond)
	began := time.Now()
	must(t, db.Close())
	prompt(t, began)
	if err := <-ended; err == nil {
		t.Fatal("the claim succeeded")
	}
}

func TestGoroutinesShareADatabase(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				limited, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				for range 20 {
					c := db.Commit(truce.CommitOptions{})
					c.Insert("things", M{"by": i})
					c.Enqueue("things", truce.EnqueueOptions{Payload: M{"by": i}})
					if _, err := c.Run(limited); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		same(t, ok(db.Collection("things").CountDocuments(ctx, M{}))(t), 320)
		same(t, len(list(t, db.IterateJobs(ctx, "things", truce.JobsOptions{}), "state")), 320)
	})
}

func TestTLSAtAServerWithoutIt(t *testing.T) {
	address := os.Getenv("TRUCE_TEST_CLIENT_URI")
	if address == "" {
		t.Skip("TRUCE_TEST_CLIENT_URI is not set")
	}
	plain := ok(truce.Connect(address + "&tls=true&serverSelectionTimeoutMS=3000"))(t).Use("school")
	_, err := plain.Queues(ctx)
	if e := fails(t, err, truce.ErrUnreachable); !strings.HasSuffix(e.Message, "does this server use TLS (truce serve --tls-certificate)?") {
		t.Fatal(e)
	}
	must(t, plain.Close())
}

// A call to a server that does not exist ends soon, with the cause, and without repeated tries.
func TestADeadServerIsReportedWithItsCause(t *testing.T) {
	listener := ok(net.Listen("tcp", "127.0.0.1:0"))(t)
	address := "mongodb://" + listener.Addr().String()
	must(t, listener.Close())
	refused := func(err error) {
		t.Helper()
		if e := fails(t, err, truce.ErrUnreachable); !strings.Contains(e.Message, "connection refused") ||
			!strings.Contains(e.Message, "nothing was sent") ||
			!strings.Contains(e.Message, "is truce serve running there") ||
			strings.Contains(e.Message, "topology") {
			t.Fatal(e)
		}
	}

	away := ok(truce.Connect(address + "/school?serverSelectionTimeoutMS=2000"))(t)
	began := time.Now()
	_, err := away.LedgerBalance(ctx, "bank", truce.LedgerBalanceOptions{Account: "cash"})
	refused(err)
	refused(away.Transact(ctx, func(tx *truce.Database) error {
		_, err := tx.Collection("a").InsertOne(ctx, M{})
		return err
	}))
	prompt(t, began)
	must(t, away.Close())

	away = ok(truce.Connect(address + "/school"))(t)
	limited, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	_, err = away.Queues(limited)
	refused(err)
	same(t, errors.Is(err, context.DeadlineExceeded), true)
	_, err = away.Collection("a").InsertOne(limited, M{})
	fails(t, err, truce.ErrTimeout) // the deadline passed before the call

	// A worker stops soon.
	waiting, cancel := context.WithCancel(ctx)
	time.AfterFunc(200*time.Millisecond, cancel)
	began = time.Now()
	worker := truce.Worker{DB: away, Queue: "q", Handler: func(context.Context, *truce.Job) (any, error) { return nil, nil }}
	must(t, worker.Run(waiting))
	must(t, away.Close())
	if took := time.Since(began); took > 8*time.Second {
		t.Fatalf("it took %v", took)
	}
}

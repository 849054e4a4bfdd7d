package module

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"truce.invalid/truce"
	"truce.invalid/truce/trucetest"
)

// A recorder is a test that may fail.
type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Helper() {}

func (r *recorder) Error(args ...any) { r.Fatal(args...) }

func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
	panic(r)
}

// failureOf returns the message of a test that must fail.
func failureOf(t *testing.T, test func(t testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	func() {
		defer func() {
			if caught := recover(); caught != nil && caught != any(r) {
				panic(caught)
			}
		}()
		test(r)
	}()
	if r.failure == "" {
		t.Fatal("the test did not fail")
	}
	return r.failure
}

func TestAssertEnqueued(t *testing.T) {
	db := trucetest.Open(t)
	enqueue(t, db, "mail", M{"to": M{"name": "ada"}, "n": 1}, M{"to": M{"name": "bob"}})
	_ = ok(db.Enqueue(ctx, "mail", truce.EnqueueOptions{Payload: M{"to": "cyd"}, Delay: time.Hour}))(t)
	same(t, len(trucetest.AssertEnqueued(t, db, "mail", M{"to": M{"name": "ada"}})), 1)
	same(t, len(trucetest.AssertEnqueued(t, db, "mail", M{"n": int64(1)}, 1)), 1)
	trucetest.AssertEnqueued(t, db, "mail", nil, 3)
	trucetest.AssertEnqueued(t, db, "none", nil, 0)
	said := failureOf(t, func(t testing.TB) { trucetest.AssertEnqueued(t, db, "mail", M{"to": "eve"}) })
	if !strings.Contains(said, "bob") || !strings.Contains(said, `"mail"`) {
		t.Fatal(said)
	}
	failureOf(t, func(t testing.TB) { trucetest.AssertEnqueued(t, db, "mail", nil, 2) })
	var seen []string
	same(t, trucetest.RunJobs(t, db, "mail", func(_ context.Context, job *truce.Job) (any, error) {
		seen = append(seen, job.Payload.Text("to", "name"))
		return M{"sent": true}, nil
	}), 2)
	same(t, seen, []string{"ada", "bob"})
	same(t, states(t, db, "mail"), map[string]int{"done": 2, "delayed": 1})
	same(t, trucetest.RunJobs(t, db, "mail", func(context.Context, *truce.Job) (any, error) {
		return nil, nil
	}, trucetest.RunOptions{Delayed: true}), 1)
	enqueue(t, db, "fails", M{})
	said = failureOf(t, func(t testing.TB) {
		trucetest.RunJobs(t, db, "fails", func(context.Context, *truce.Job) (any, error) { return nil, errors.New("no paper") })
	})
	if !strings.Contains(said, "no paper") {
		t.Fatal(said)
	}
	same(t, states(t, db, "fails"), map[string]int{"delayed": 1})
	enqueue(t, db, "sleeps", M{})
	same(t, trucetest.RunJobs(t, db, "sleeps", func(ctx context.Context, job *truce.Job) (any, error) {
		return nil, job.Sleep(ctx, "a day", 24*time.Hour)
	}), 0)
}

func TestInlineJobsRunAtOnce(t *testing.T) {
	plain := trucetest.OpenFile(t)
	var sent []int64
	var db *truce.Database
	db = trucetest.Inline(t, plain, map[string]trucetest.Handler{
		"now": func(ctx context.Context, job *truce.Job) (any, error) {
			n := job.Payload.Int("n")
			sent = append(sent, n)
			if n == 1 {
				enqueue(t, db, "later", M{"n": 2})
			}
			return nil, nil
		},
		"later": func(_ context.Context, job *truce.Job) (any, error) {
			sent = append(sent, job.Payload.Int("n"))
			return nil, nil
		},
	})
	enqueue(t, db, "now", M{"n": 1})
	same(t, sent, []int64{1, 2})
	c := db.Commit(truce.CommitOptions{})
	c.Enqueue("now", truce.EnqueueOptions{Payload: M{"n": 3}})
	_ = ok(c.Run(ctx))(t)
	must(t, db.Transact(ctx, func(tx *truce.Database) error {
		_, err := tx.Enqueue(ctx, "now", truce.EnqueueOptions{Payload: M{"n": 4}})
		return err
	}))
	same(t, sent, []int64{1, 2, 3, 4})
	_ = ok(db.Enqueue(ctx, "now", truce.EnqueueOptions{Payload: M{}, Delay: time.Hour}))(t)
	enqueue(t, plain, "now", M{"n": 5})
	same(t, states(t, plain, "now"), map[string]int{"done": 3, "delayed": 1, "ready": 1})
	said := failureOf(t, func(t testing.TB) {
		failing := trucetest.Inline(t, plain, map[string]trucetest.Handler{
			"bad": func(context.Context, *truce.Job) (any, error) { return nil, errors.New("no paper") },
		})
		enqueue(t, failing, "bad", M{})
	})
	if !strings.Contains(said, "no paper") {
		t.Fatal(said)
	}
}

func TestPrivateStores(t *testing.T) {
	for range 2 {
		t.Run("file", func(t *testing.T) {
			db := trucetest.OpenFile(t)
			same(t, ok(db.Collection("x").CountDocuments(ctx, M{}))(t), 0)
			_, err := db.Collection("x").InsertOne(ctx, M{})
			must(t, err)
		})
		t.Run("server", func(t *testing.T) {
			if os.Getenv("TRUCE_PROGRAM") == "" {
				t.Skip("TRUCE_PROGRAM is not set")
			}
			db := ok(truce.Connect(trucetest.StartServer(t)))(t)
			same(t, ok(db.Collection("x").CountDocuments(ctx, M{}))(t), 0)
			_, err := db.Collection("x").InsertOne(ctx, M{})
			must(t, err)
			must(t, db.Close())
		})
	}
	said := failureOf(t, func(t testing.TB) { trucetest.StartServer(t, trucetest.ServerOptions{Program: "no-such-truce"}) })
	if !strings.Contains(said, "no-such-truce") || !strings.Contains(said, "TRUCE_PROGRAM") {
		t.Fatal(said)
	}
	said = failureOf(t, func(t testing.TB) {
		trucetest.StartServer(t, trucetest.ServerOptions{Args: []string{"--no-such-option"}})
	})
	if !strings.Contains(said, "no-such-option") {
		t.Fatal(said)
	}
}

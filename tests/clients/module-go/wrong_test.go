package module

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"truce.invalid/truce"
)

type pointerError struct{ text string }

func (e *pointerError) Error() string { return e.text }

type panickingError struct{}

func (panickingError) Error() string { panic("no text") }

type panickingResult struct{}

func (panickingResult) MarshalBSON() ([]byte, error) { panic("no document") }

func TestAJobFailsWhateverItsHandlerReturns(t *testing.T) {
	var nothing *pointerError
	cases := []struct {
		result any
		err    error
		text   string
	}{
		{nil, nothing, "an error of the type *module.pointerError"},
		{nil, panickingError{}, "an error of the type module.panickingError, whose method Error panics: no text"},
		{nil, errors.New("zero\x00byte"), `zero\0byte`},
		{nil, errors.New("no\xffUTF-8"), "no\uFFFDUTF-8"},
		{nil, errors.New(strings.Repeat("x", 49000000)), "xxxxxxxxxx"},
		{nil, truce.ErrExpired, "expired"},
		{nil, truce.ErrSuspended, "the job is suspended"},
		{panickingResult{}, nil, "panic: no document"},
		{M{"text": strings.Repeat("x", 49000000)}, nil, "truce: "},
		{make(chan int), nil, "truce: field result: no encoder found"},
	}
	each(t, func(t *testing.T, db *truce.Database) {
		for n := range cases {
			_, err := db.Enqueue(ctx, "returned", truce.EnqueueOptions{Payload: M{"n": n}})
			must(t, err)
		}
		worker := truce.Worker{DB: db, Queue: "returned", UntilEmpty: true, Logger: slog.New(slog.DiscardHandler),
			Handler: func(_ context.Context, job *truce.Job) (any, error) {
				one := cases[truce.Reply(job.Payload).Int("n")]
				return one.result, one.err
			}}
		must(t, worker.Run(ctx))
		for row, err := range db.IterateJobs(ctx, "returned", truce.JobsOptions{}) {
			must(t, err)
			job := truce.Reply(row)
			one := cases[job.Int("payload", "n")]
			same(t, job.Text("state"), "delayed")
			if text := job.Text("errors", "0", "text"); !strings.HasPrefix(text, one.text) {
				t.Errorf("the error of a job is %q, expected %q", text, one.text)
			}
		}
	})
}

func TestACallAfterTheEndOfItsTransactionIsRefused(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		for _, used := range []bool{false, true} {
			var kept *truce.Database
			must(t, db.Transact(ctx, func(tx *truce.Database) error {
				kept = tx
				if !used {
					return nil
				}
				_, err := tx.Collection("kept").InsertOne(ctx, M{"_id": "first"})
				return err
			}))
			_, err := kept.Collection("kept").InsertOne(ctx, M{"_id": used})
			fails(t, err, truce.ErrInvalid)
		}
		same(t, ok(db.Collection("kept").CountDocuments(ctx, M{}))(t), 1)
		// A call that runs at the end: the transaction changes nothing, and the call is not lost silently.
		began, finish, ended := make(chan bool), make(chan bool), make(chan error)
		late := func(tx *truce.Database) error {
			go func() {
				_, err := tx.Collection("kept").UpdateOne(slowContext{ctx, began, finish}, M{"_id": "first"}, M{"$set": M{"late": true}})
				ended <- err
			}()
			<-began
			close(finish)
			return nil
		}
		if err := db.Transact(ctx, late); err == nil {
			must(t, <-ended) // it was just in time
		} else {
			fails(t, err, truce.ErrInvalid)
			<-ended
			same(t, field(t, db, "kept", "first", "late"), nil)
		}
		fails(t, db.Transact(ctx, nil), truce.ErrInvalid)
		fails(t, db.Transact(nil, func(*truce.Database) error { return nil }), truce.ErrInvalid) //nolint:staticcheck
	})
}

// slowContext is a context whose call waits once at its first look at Err.
type slowContext struct {
	context.Context
	began  chan<- bool
	finish <-chan bool
}

func (c slowContext) Err() error {
	select {
	case c.began <- true:
		<-c.finish
	default:
	}
	return c.Context.Err()
}

func TestATransactionBeginsAfterACanceledCall(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		tried := 0
		must(t, db.Transact(ctx, func(tx *truce.Database) error {
			tried++
			canceled, cancel := context.WithCancel(ctx)
			cancel()
			if err := tx.Collection("begun").FindOne(canceled, M{}).Err(); err == nil || tried > 1 {
				return errors.New("repeated")
			}
			_, err := tx.Collection("begun").InsertOne(ctx, M{"_id": 1})
			return err
		}))
		same(t, ok(db.Collection("begun").CountDocuments(ctx, M{}))(t), 1)
	})
}

func TestValuesThatWouldBeOthersAreRefused(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		wrong := db.Collection("wrong")
		for _, document := range []any{M{"a": errors.New("no")}, D{{Key: "a", Value: []any{errors.New("no")}}},
			struct{ A error }{errors.New("no")}} {
			_, err := wrong.InsertOne(ctx, document)
			fails(t, err, truce.ErrInvalid)
			_, err = wrong.UpdateOne(ctx, M{}, M{"$set": document})
			fails(t, err, truce.ErrInvalid)
		}
		_, err := wrong.InsertOne(ctx, struct{ A error }{})
		must(t, err)
		half := 500 * time.Millisecond
		_, err = wrong.CreateIndex(ctx, M{"at": 1}, truce.IndexOptions{ExpireAfter: &half})
		fails(t, err, truce.ErrInvalid)
		_, err = wrong.CreateIndex(ctx, map[string]int{"a": 1, "b": 1})
		fails(t, err, truce.ErrInvalid)
		_, err = wrong.Find(ctx, M{}, truce.FindOptions{Sort: M{"a": 1, "b": -1}})
		fails(t, err, truce.ErrInvalid)
		_, err = db.Enqueue(ctx, "long", truce.EnqueueOptions{Payload: M{}, Delay: math.MaxInt64})
		if e := fails(t, err, truce.ErrInvalid); !strings.Contains(e.Message, "9223372036855 ms") {
			t.Error(e)
		}
		if _, err := wrong.InsertOne(ctx, M{"text": strings.Repeat("x", 49000000)}); !errors.Is(err, truce.ErrLimit) {
			t.Errorf("a large document: %v", err)
		}
	})
}

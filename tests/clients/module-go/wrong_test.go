package module

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
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
				one := cases[job.Payload.Int("n")]
				return one.result, one.err
			}}
		must(t, worker.Run(ctx))
		for row, err := range db.IterateJobs(ctx, "returned", truce.JobsOptions{}) {
			must(t, err)
			job := row
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

func TestTypedNilFiltersAndShortDurationsAreRefused(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		kept := db.Collection("kept")
		_, err := kept.InsertMany(ctx, []any{M{"_id": 1}, M{"_id": 2}})
		must(t, err)
		for _, filter := range []any{nil, M(nil), D(nil), map[string]any(nil), (*M)(nil)} {
			_, err := kept.DeleteMany(ctx, filter)
			fails(t, err, truce.ErrInvalid)
			_, err = kept.UpdateMany(ctx, filter, M{"$set": M{"n": 1}})
			fails(t, err, truce.ErrInvalid)
			fails(t, kept.FindOneAndDelete(ctx, filter).Err(), truce.ErrInvalid)
			c := db.Commit(truce.CommitOptions{})
			c.Remove("kept", 1).If(filter)
			_, err = c.Run(ctx)
			fails(t, err, truce.ErrInvalid)
		}
		fails(t, kept.FindOne(ctx, (*M)(nil)).Err(), truce.ErrInvalid)
		same(t, ok(kept.CountDocuments(ctx, M(nil)))(t), 2) // an empty map, as for the driver
		for _, short := range []time.Duration{5, -5, time.Millisecond - 1} {
			_, err = db.Enqueue(ctx, "short", truce.EnqueueOptions{Payload: M{}, Delay: short})
			if e := fails(t, err, truce.ErrInvalid); !strings.Contains(e.Message, "Delay is "+short.String()) ||
				!strings.Contains(e.Message, "* time.Second") {
				t.Error(e)
			}
			c := db.Commit(truce.CommitOptions{})
			c.Enqueue("short", truce.EnqueueOptions{Payload: M{}, Keep: &short})
			_, err = c.Run(ctx)
			fails(t, err, truce.ErrInvalid)
			_, err = db.Watch(ctx, nil, truce.ChangeStreamOptions{MaxAwaitTime: short})
			fails(t, err, truce.ErrInvalid)
		}
		worker := truce.Worker{DB: db, Queue: "short", Lease: 30, UntilEmpty: true,
			Handler: func(context.Context, *truce.Job) (any, error) { return nil, nil }}
		same(t, fails(t, worker.Run(ctx), truce.ErrInvalid).Message,
			"Lease is 30ns, which is below one millisecond: write for example 30 * time.Second")
		_, err = truce.Open("memory:", truce.OpenOptions{Deadline: 5})
		fails(t, err, truce.ErrInvalid)
	})
}

func TestDurationsAndTimesInJobsOfAFlowAreConverted(t *testing.T) {
	later := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	each(t, func(t *testing.T, db *truce.Database) {
		named := map[string]any{"name": "d", "keepMS": 3000 * time.Hour, "after": []string{"a"}}
		jobs := []any{M{"name": "a", "delayMS": 90 * time.Second, "payload": M{"at": later}}, D{{Key: "name", Value: "b"}, {Key: "runAtMS", Value: later}},
			&M{"name": "c", "delayMS": int64(90000)}, named, struct{ Name string }{"e"}}
		_ = ok(db.Flow(ctx, "timed", truce.FlowOptions{Jobs: jobs}))(t)
		c := db.Commit(truce.CommitOptions{})
		c.Flow("timed", truce.FlowOptions{Jobs: jobs[:1]})
		_ = ok(c.Run(ctx))(t)
		_ = ok(db.CommitChanges(ctx, []M{{"enqueue": "timed", "with": M{}, "delay_ms": 5000 * time.Hour}}, truce.CommitChangesOptions{}))(t)
		stored := map[string]truce.Reply{}
		for row, err := range db.IterateJobs(ctx, "timed", truce.JobsOptions{}) {
			must(t, err)
			stored[row.Text("name")] = row
		}
		same(t, len(stored), 6)
		same(t, stored["a"].Lookup("payload", "at").Time().Equal(later), true)
		same(t, stored["b"].Text("state"), "delayed")
		same(t, stored["d"].Int("keep_ms"), 3000*3600*1000)
		for what, job := range map[string]any{
			"delayMS of Jobs[0] is 5ns, which is below one millisecond": M{"name": "x", "delayMS": time.Duration(5)},
			"DelayMS of Jobs[0] is a time.Duration in a struct": struct {
				DelayMS time.Duration `bson:"delayMS"`
			}{5},
		} {
			_, err := db.Flow(ctx, "timed", truce.FlowOptions{Jobs: []any{job}})
			if e := fails(t, err, truce.ErrInvalid); !strings.HasPrefix(e.Message, what) {
				t.Error(e)
			}
		}
	})
}

func TestDocumentsOfRepliesAreDocumentsOfCalls(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		saved := ok(db.Revision(ctx, "pages", truce.RevisionOptions{Save: M{"_id": 1, "tags": bson.A{M{"n": 1}, M{"n": 2}}}}))(t)
		page := saved.Document("document")
		same(t, page.String(), `{"_id":1,"tags":[{"n":1},{"n":2}],"version":1}`)
		kept := db.Collection("kept pages")
		tags := page.Documents("tags")
		for _, document := range []any{page, M{"_id": 2, "page": page, "tags": tags}, D{{Key: "_id", Value: 3}, {Key: "page", Value: page}, {Key: "tags", Value: tags}},
			struct {
				ID   int `bson:"_id"`
				Page truce.Reply
				Tags []truce.Reply
			}{4, page, tags}} {
			_ = ok(kept.InsertOne(ctx, document))(t)
		}
		rows := ok(kept.Find(ctx, M{"_id": M{"$gt": 1}, "page": page, "tags": tags}))(t)
		found := 0
		for row, err := range rows.Each(ctx) {
			must(t, err)
			same(t, truce.Reply(row).Int("page", "tags", "1", "n"), 2)
			found++
		}
		same(t, found, 3)
		same(t, ok(kept.CountDocuments(ctx, page))(t), 1)
		again := ok(db.Revision(ctx, "pages", truce.RevisionOptions{Save: page, Version: truce.Ptr[int64](1)}))(t)
		same(t, again.Int("version"), 1) // nothing differs
		// for the driver
		same(t, string(ok(bson.Marshal(page))(t)), string(page))
		same(t, ok(bson.MarshalExtJSON(M{"page": tags[0]}, false, false))(t), []byte(`{"page":{"n":1}}`))
		_ = ok(db.Enqueue(ctx, "printed", truce.EnqueueOptions{Payload: page}))(t)
		for job, err := range db.IterateJobs(ctx, "printed", truce.JobsOptions{}) {
			must(t, err)
			same(t, job.Document("payload").String(), page.String())
			same(t, job.Int("payload", "tags", "1", "n"), 2)
		}
		for _, job := range ok(db.ClaimJobs(ctx, "printed", truce.ClaimOptions{}))(t) {
			same(t, job.Payload.Int("tags", "0", "n"), 1)
			same(t, job.Document.Text("queue"), "printed")
		}
	})
}

func TestErrorsNameTheFieldsOfGo(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		says := func(err error, class truce.Class, text string) {
			t.Helper()
			if e := fails(t, err, class); !strings.Contains(e.Message, text) {
				t.Errorf("the message is %q, expected %q", e.Message, text)
			}
		}
		_, err := db.Claim(ctx, "q", truce.ClaimOptions{Lease: time.Millisecond})
		says(err, truce.ErrInvalid, "Lease must be from 100 to")
		_, err = db.LedgerOpen(ctx, "bank", truce.LedgerOpenOptions{Currency: "USD", Account: "cash"})
		says(err, truce.ErrInvalid, "declare the currency first with its Digits")
		key := truce.CommitOptions{Key: "named", KeyTime: time.Now()}
		for _, want := range []string{"", "repetitions compute other values needs Input"} {
			c := db.Commit(key)
			c.Insert("named", M{"_id": want})
			if _, err = c.Run(ctx); want == "" {
				must(t, err)
			} else {
				says(err, truce.ErrDuplicate, want)
			}
		}
		c := db.Commit(truce.CommitOptions{})
		c.Enqueue("q", truce.EnqueueOptions{Payload: M{}, Lane: "a", LaneRate: 3})
		_, err = c.Run(ctx)
		says(err, truce.ErrInvalid, "LaneRate and LanePer must be given together")
		posts := db.Collection("named posts")
		for n := range 2 {
			o := truce.RevisionOptions{Save: M{"_id": 1, "n": n}}
			if n > 0 {
				o.Version = truce.Ptr[int64](1)
			}
			_, err = db.Revision(ctx, posts.Name(), o)
			must(t, err)
		}
		_, err = posts.Merge(ctx, M{"_id": 1, "n": 5}, truce.MergeOptions{Version: 1})
		says(err, truce.ErrConflict, "to merge, give Base, or save with Keep")
		_, err = posts.Merge(ctx, M{"_id": 1, "n": 5}, truce.MergeOptions{})
		if e := fails(t, err, truce.ErrConflict); !strings.HasSuffix(e.Message, "give the version that you read") {
			t.Error(e)
		}
		_, err = posts.Merge(ctx, `{"_id":1,"title":`, truce.MergeOptions{Version: 1})
		says(err, truce.ErrInvalid, "unexpected end of JSON input at byte 17 of 17")
	})
}

func TestAURIWithoutADatabaseIsRefused(t *testing.T) {
	for _, uri := range []string{"mongodb://127.0.0.1:9", "mongodb://127.0.0.1:9/", "mongodb://127.0.0.1:9/?directConnection=true"} {
		db := ok(truce.Connect(uri))(t)
		_, err := db.Collection("x").CountDocuments(ctx, M{})
		if e := fails(t, err, truce.ErrInvalid); !strings.Contains(e.Message, "the URI names no database: expected mongodb://HOST/DATABASE") {
			t.Error(e)
		}
		same(t, db.Use("school").Name(), "school")
		must(t, db.Close())
	}
}

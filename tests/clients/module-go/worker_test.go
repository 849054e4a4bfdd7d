package module

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"truce.invalid/truce"
)

// states returns how many jobs are in each state.
func states(t testing.TB, db *truce.Database, queue string) map[string]int {
	t.Helper()
	found := map[string]int{}
	for _, state := range list(t, db.IterateJobs(ctx, queue, truce.JobsOptions{Limit: 3}), "state") {
		found[state.(string)]++
	}
	return found
}

func enqueue(t testing.TB, db *truce.Database, queue string, payloads ...M) {
	t.Helper()
	_ = ok(db.Enqueue(ctx, queue, truce.EnqueueOptions{Payloads: payloads}))(t)
}

func TestJobsEndOnce(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		id := bson.NewObjectID()
		same(t, ok(db.Enqueue(ctx, "mail", truce.EnqueueOptions{ID: id, Payload: M{"n": 0}}))(t).ID("id"), id)
		job := ok(db.ClaimJobs(ctx, "mail", truce.ClaimOptions{}))(t)[0]
		var payload struct{ N int }
		must(t, job.Decode(&payload))
		same(t, []any{job.ID, job.Attempt, payload.N}, []any{id, 1, 0})
		same(t, ok(job.Heartbeat(ctx, M{"percent": 50}))(t), 30*time.Second)
		must(t, job.Done(ctx, M{"sent": true}))
		fails(t, job.Done(ctx, nil), truce.ErrExpired)
		stored := truce.Reply(ok(db.Jobs(ctx, "mail", truce.JobsOptions{ID: id}))(t).Documents("jobs")[0])
		same(t, []any{stored.Text("state"), stored.Int("progress", "percent"), stored.Bool("result", "sent")}, []any{"done", 50, true})

		enqueue(t, db, "mail", M{}, M{}, M{}, M{})
		jobs := ok(db.ClaimJobs(ctx, "mail", truce.ClaimOptions{Most: 9}))(t)
		same(t, len(jobs), 4)
		must(t, jobs[0].Fail(ctx, errors.New("no")))
		must(t, jobs[1].Snooze(ctx, 0))
		must(t, jobs[2].Discard(ctx, errors.New("no")))
		must(t, db.Transact(ctx, func(tx *truce.Database) error { return jobs[3].Done(ctx, nil, tx) }))
		same(t, states(t, db, "mail"), map[string]int{"done": 2, "delayed": 1, "ready": 1, "discarded": 1})
		same(t, len(ok(db.ClaimJobs(ctx, "none", truce.ClaimOptions{}))(t)), 0)
	})
}

func TestAWorkerContinuesAfterFailures(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		enqueue(t, db, "mail", M{"n": 0}, M{"n": 1}, M{"n": 2}, M{"n": 3}, M{"n": 4}, M{"n": 5}, M{"n": 6})
		var log bytes.Buffer
		w := truce.Worker{DB: db, Queue: "mail", Concurrency: 2, UntilEmpty: true, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Handler: func(ctx context.Context, job *truce.Job) (any, error) {
				n := job.Payload.Int("n")
				switch n {
				case 1:
					c := job.Commit(M{"sent": true})
					c.Insert("letters", M{"_id": 1})
					return nil, c.Run(ctx)
				case 2:
					return nil, job.FailAfter(ctx, errors.New("no"), time.Hour)
				case 3:
					return nil, errors.New("a bad payload")
				case 4:
					panic("a bad pointer")
				case 5:
					runtime.Goexit()
				case 6:
					return "no document", nil
				}
				return M{"n": n}, nil
			}}
		must(t, w.Run(ctx))
		for row, err := range db.IterateJobs(ctx, "mail", truce.JobsOptions{}) {
			must(t, err)
			job := row
			expected := "delayed"
			if job.Int("payload", "n") < 2 {
				expected = "done"
			}
			same(t, job.Text("state"), expected)
		}
		same(t, field(t, db, "letters", 1, "_id"), 1)
		for _, text := range []string{"a bad payload", "a bad pointer", "worker_test.go", "runtime.Goexit"} {
			if !strings.Contains(log.String(), text) {
				t.Fatalf("the log has no %q: %s", text, log.String())
			}
		}
	})
}

func TestAWorkerRunsJobsConcurrently(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		enqueue(t, db, "many", M{}, M{}, M{}, M{})
		var together sync.WaitGroup
		together.Add(4)
		w := truce.Worker{DB: db, Queue: "many", Concurrency: 4, UntilEmpty: true,
			Handler: func(context.Context, *truce.Job) (any, error) {
				together.Done()
				together.Wait()
				return nil, nil
			}}
		must(t, w.Run(ctx))
		same(t, states(t, db, "many"), map[string]int{"done": 4})
	})
}

func TestAResultThatIsTooLargeFailsTheJob(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		enqueue(t, db, "large", M{})
		w := truce.Worker{DB: db, Queue: "large", UntilEmpty: true,
			Handler: func(context.Context, *truce.Job) (any, error) {
				return M{"text": strings.Repeat("x", 17000000)}, nil
			}}
		must(t, w.Run(ctx))
		same(t, states(t, db, "large"), map[string]int{"delayed": 1})
	})
}

func TestAJobFailsWhoseChangesWereNotRun(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		enqueue(t, db, "forgetful", M{"step": false}, M{"step": true})
		w := truce.Worker{DB: db, Queue: "forgetful", UntilEmpty: true,
			Handler: func(_ context.Context, job *truce.Job) (any, error) {
				if job.Payload.Bool("step") {
					job.Step("charge", nil).Insert("charges", M{"n": 1})
				} else {
					job.Commit(nil).Insert("charges", M{"n": 1})
				}
				return nil, nil
			}}
		must(t, w.Run(ctx))
		same(t, states(t, db, "forgetful"), map[string]int{"delayed": 2})
	})
}

func TestAWorkerStops(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		enqueue(t, db, "stopped", M{}, M{})
		began, goOn := make(chan bool), make(chan bool)
		stopping, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		w := truce.Worker{DB: db, Queue: "stopped", Wait: 50 * time.Millisecond, Handler: func(ctx context.Context, _ *truce.Job) (any, error) {
			began <- true
			<-goOn
			return nil, ctx.Err()
		}}
		go func() { ended <- w.Run(stopping) }()
		<-began
		stop()
		select {
		case <-ended:
			t.Fatal("a job was left")
		case <-time.After(100 * time.Millisecond):
		}
		goOn <- true
		must(t, <-ended)
		same(t, states(t, db, "stopped"), map[string]int{"done": 1, "ready": 1})

		// The handler learns that the worker waits no longer. Its job returns to the queue.
		stopping, stop = context.WithCancel(ctx)
		w.StopTimeout = 50 * time.Millisecond
		w.Handler = func(ctx context.Context, _ *truce.Job) (any, error) {
			stop()
			<-ctx.Done()
			return nil, ctx.Err()
		}
		must(t, w.Run(stopping))
		same(t, states(t, db, "stopped"), map[string]int{"done": 1, "ready": 1})
	})
}

func TestAWorkerSeesThatAJobIsCanceled(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		enqueue(t, db, "held", M{})
		other := -1
		w := truce.Worker{DB: db, Queue: "held", Lease: time.Second, UntilEmpty: true,
			Handler: func(ctx context.Context, job *truce.Job) (any, error) {
				time.Sleep(1500 * time.Millisecond) // the lease is extended in the meantime
				other = len(ok(db.ClaimJobs(context.Background(), "held", truce.ClaimOptions{}))(t))
				_ = ok(db.QueueAction(context.Background(), "held", truce.QueueActionOptions{Action: "cancel", ID: job.ID}))(t)
				<-ctx.Done()
				same(t, job.Lost(), true)
				return nil, ctx.Err()
			}}
		must(t, w.Run(ctx))
		same(t, other, 0)
		same(t, states(t, db, "held"), map[string]int{"cancelled": 1})
	})
}

func TestAJobReadsTheResultsOfEarlierJobs(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		_ = ok(db.Flow(ctx, "flows", truce.FlowOptions{Jobs: []M{{"name": "get"}, {"name": "mail", "after": bson.A{"get"}}}}))(t)
		var got int64
		w := truce.Worker{DB: db, Queue: "flows", UntilEmpty: true, Handler: func(ctx context.Context, job *truce.Job) (any, error) {
			results, err := db.JobResults(ctx, job.ID)
			for _, one := range results.Documents("jobs") {
				got = one.Int("result", "n")
			}
			return M{"n": 7}, err
		}}
		must(t, w.Run(ctx))
		same(t, got, 7)
		_, err := db.JobGraph(ctx, bson.NewObjectID())
		fails(t, err, truce.ErrNotFound)
	})
}

func TestASecondStepOfANameIsRefused(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		_ = ok(db.Enqueue(ctx, "named", truce.EnqueueOptions{Payload: M{}}))(t)
		var refused, missing error
		w := truce.Worker{DB: db, Queue: "named", UntilEmpty: true, Handler: func(ctx context.Context, job *truce.Job) (any, error) {
			mail := func(name string) error {
				step := job.Step(name, nil)
				step.Require("accounts of steps", 1)
				step.Insert("mailed", M{})
				return step.Run(ctx)
			}
			missing = mail("mail")
			if _, err := db.Collection("accounts of steps").InsertOne(ctx, M{"_id": 1}); err != nil {
				return nil, err
			}
			if err := mail("mail"); err != nil { // A step that failed may be repeated.
				return nil, err
			}
			refused = mail("mail")
			return nil, mail("mail 1")
		}}
		must(t, w.Run(ctx))
		same(t, states(t, db, "named"), map[string]int{"done": 1})
		fails(t, missing, truce.ErrNotFound)
		message := fails(t, refused, truce.ErrInvalid).Message
		same(t, strings.Contains(message, `the step "mail": give each step its own name`), true)
		same(t, ok(db.Collection("mailed").CountDocuments(ctx, M{}))(t), 2)
	})
}

func TestASecondSleepOrWaitOfANameIsRefused(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		id := ok(db.Enqueue(ctx, "moments", truce.EnqueueOptions{Payload: M{}}))(t).ID("id")
		_ = ok(db.Signal(ctx, "moments", truce.SignalOptions{ID: id, Name: "moment"}))(t)
		var negative, sleep, step, wait error
		w := truce.Worker{DB: db, Queue: "moments", UntilEmpty: true, Handler: func(ctx context.Context, job *truce.Job) (any, error) {
			negative = job.Sleep(ctx, "moment", -time.Second)
			if err := job.Sleep(ctx, "moment", 0); err != nil { // A call that failed may be repeated.
				return nil, err
			}
			sleep = job.Sleep(ctx, "moment", 0)
			step = job.Step("moment", nil).Run(ctx)
			if _, err := job.Wait(ctx, "moment", 0); err != nil {
				return nil, err
			}
			_, wait = job.Wait(ctx, "moment", 0)
			return nil, nil
		}}
		must(t, w.Run(ctx))
		same(t, states(t, db, "moments"), map[string]int{"done": 1})
		same(t, negative != nil, true)
		for text, err := range map[string]error{
			`the sleep "moment": give each sleep its own name`: sleep,
			`the sleep "moment": give each step its own name`:  step,
			`the wait "moment": give each wait its own name`:   wait,
		} {
			same(t, strings.Contains(fails(t, err, truce.ErrInvalid).Message, text), true)
		}
	})
}

func TestStepsHappenOnce(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		id := ok(db.Enqueue(ctx, "steps", truce.EnqueueOptions{Payload: M{}}))(t).ID("id")
		var attempts, earlier atomic.Int64
		stopping, stop := context.WithCancel(ctx)
		w := truce.Worker{DB: db, Queue: "steps", Wait: 50 * time.Millisecond, Handler: func(ctx context.Context, job *truce.Job) (any, error) {
			step := job.Step("charge", M{"n": attempts.Load()})
			step.Insert("charges", M{"n": 1})
			if err := step.Run(ctx); err != nil {
				return nil, err
			}
			if attempts.Add(1) > 1 && step.Earlier && truce.Reply(step.Result).Int("n") == 0 {
				earlier.Add(1)
			}
			if err := job.Sleep(ctx, "a moment", time.Millisecond); err != nil {
				return nil, err
			}
			event, err := job.Wait(ctx, "paid", 24*time.Hour)
			return event, err
		}}
		ended := make(chan error, 1)
		go func() { ended <- w.Run(stopping) }()
		stateOf := func() string {
			return truce.Reply(ok(db.Jobs(ctx, "steps", truce.JobsOptions{ID: id}))(t).Documents("jobs")[0]).Text("state")
		}
		eventually(t, "the job waits", func() bool { return attempts.Load() >= 2 && stateOf() != "running" })
		_ = ok(db.Signal(ctx, "steps", truce.SignalOptions{ID: id, Name: "paid", Event: M{"by": "ada"}}))(t)
		eventually(t, "the job is done", func() bool { return stateOf() == "done" })
		stop()
		must(t, <-ended)
		same(t, ok(db.Collection("charges").CountDocuments(ctx, M{}))(t), 1)
		same(t, earlier.Load(), attempts.Load()-1)
		missing := bson.NewObjectID()
		_, absent := db.Signal(ctx, "steps", truce.SignalOptions{ID: missing, Name: "paid"})
		same(t, fails(t, absent, truce.ErrNotFound).Code, 125)
		_, absent = db.QueueAction(ctx, "steps", truce.QueueActionOptions{Action: "cancel", ID: missing})
		same(t, fails(t, absent, truce.ErrNotFound).Code, 125)
		_, absent = db.Cron(ctx, "nope", truce.CronOptions{Action: "pause"})
		same(t, fails(t, absent, truce.ErrNotFound).Code, 125)
	})
}

func TestAWorkerRefusesWhatIsWrong(t *testing.T) {
	db := file(t)
	handler := func(context.Context, *truce.Job) (any, error) { return nil, nil }
	for _, w := range []truce.Worker{
		{}, {DB: db}, {DB: db, Queue: "q"}, {DB: db, Handler: handler},
		{DB: db, Queue: "q", Handler: handler, Concurrency: -1}, {DB: db, Queue: "q", Handler: handler, Wait: -1},
		{DB: db, Queue: "q", Handler: handler, Lease: time.Millisecond},
	} {
		fails(t, w.Run(ctx), truce.ErrInvalid)
	}
}

func TestAWorkerNamesOtherQueues(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		enqueue(t, db, "mail", M{"n": 0})
		var log bytes.Buffer
		w := truce.Worker{DB: db, Queue: "mial", UntilEmpty: true, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Handler: func(context.Context, *truce.Job) (any, error) { return nil, nil }}
		must(t, w.Run(ctx))
		same(t, strings.Count(log.String(), "level=WARN"), 1)
		found := strings.Contains(log.String(), `msg="truce: no job" queue=mial note="the queue \"mial\" has no jobs; these queues have: `)
		same(t, found, true)
		same(t, ok(db.Jobs(ctx, "mial", truce.JobsOptions{}))(t).Text("note"), `the queue "mial" has no jobs; these queues have: "mail"`)
		same(t, ok(db.Jobs(ctx, "mail", truce.JobsOptions{State: "dead"}))(t).Text("note"), "")
	})
}

func TestAWorkerLogs(t *testing.T) {
	db := file(t)
	enqueue(t, db, "logged", M{"n": 0}, M{"n": 1}, M{"n": 2}, M{"n": 3})
	var log bytes.Buffer
	plain := &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "job" || a.Key == "duration" {
			return slog.Attr{}
		}
		return a
	}}
	w := truce.Worker{DB: db, Queue: "logged", UntilEmpty: true, Name: "w1", Logger: slog.New(slog.NewTextHandler(&log, plain)),
		Handler: func(ctx context.Context, job *truce.Job) (any, error) {
			switch job.Payload.Int("n") {
			case 1:
				return nil, errors.New("a bad payload")
			case 2:
				return nil, job.FailAfter(ctx, errors.New("no paper"), time.Hour)
			case 3:
				return nil, job.Snooze(ctx, time.Hour)
			}
			return nil, nil
		}}
	must(t, w.Run(ctx))
	claimed := `level=DEBUG msg="truce: job claimed" queue=logged attempt=1`
	ended := ` msg="truce: job ended" queue=logged outcome=`
	expected := []string{
		`level=INFO msg="truce: worker started" queue=logged worker=w1 concurrency=1`,
		claimed, "level=INFO" + ended + "done attempt=1",
		claimed, "level=ERROR" + ended + `fail attempt=1 error="a bad payload"`,
		claimed, "level=ERROR" + ended + `fail attempt=1 error="no paper"`,
		claimed, "level=INFO" + ended + "snooze attempt=1",
		`level=INFO msg="truce: worker stops" queue=logged worker=w1 running=0`,
		`level=INFO msg="truce: worker ended" queue=logged worker=w1`, "",
	}
	if log.String() != strings.Join(expected, "\n") {
		t.Fatal(log.String())
	}

	// Without a logger, only problems are logged.
	before := slog.Default()
	defer slog.SetDefault(before)
	log.Reset()
	slog.SetDefault(w.Logger)
	w.Logger = nil
	enqueue(t, db, "logged", M{"n": 0}, M{"n": 1})
	must(t, w.Run(ctx))
	if said := log.String(); strings.Count(said, "\n") != 1 || !strings.HasPrefix(said, expected[4]) {
		t.Fatal(said)
	}
}

package truce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"time"
)

// A Worker claims the jobs of a queue and runs a handler for them:
//
//	w := truce.Worker{DB: db, Queue: "mail", Concurrency: 8, Handler: send}
//	err := w.Run(ctx)      // until ctx is canceled; then the running jobs end
//
// A job whose handler returns an error or panics fails, and is tried again later; the worker
// continues. The worker extends the leases of running jobs. If no server answers, it waits for one.
type Worker struct {
	DB    *Database
	Queue string
	// Handler works on a job. Its result, a document or nil, is stored in the job. The context is
	// canceled if the job is lost, or if the worker cannot wait any longer (StopTimeout). If it
	// returns ErrSuspended, or has ended the job itself, nothing more is reported.
	Handler func(ctx context.Context, job *Job) (result any, err error)
	// The number of jobs that run at the same time. 0 means 1.
	Concurrency int
	// The time for which a claim lasts if the process dies. 0 means 30 seconds.
	Lease time.Duration
	// How long one call waits for a job. The end of the worker may take this long. 0 means 1
	// second.
	Wait time.Duration
	// How long running jobs may take after the end of the context; then their contexts are
	// canceled, and unfinished jobs return to the queue. 0 means no limit.
	StopTimeout time.Duration
	// Run ends when no job is ready, which is useful in tests.
	UntilEmpty bool
	// The worker's name in the jobs. "" means the names of the machine and the process.
	Name string
	// Gets the start and the stop of the worker and the end of each job as Info, claims as Debug,
	// failed jobs as Error, and failed reports as Warn. Nil means slog.Default(), with
	// warnings and errors only.
	Logger *slog.Logger
}

const workerRetry = time.Second

var errStopped = errors.New("the worker stops")

// running is a worker that runs.
type running struct {
	Worker
	log *slog.Logger
	// Ends all handlers.
	jobs   context.Context
	cancel context.CancelCauseFunc
	mutex  sync.Mutex
	active map[*Job]bool
	ended  sync.WaitGroup
}

func (w *Worker) check(ctx context.Context) error {
	switch {
	case ctx == nil:
		return fail(ErrInvalid, 2, "the context is nil: use context.Background()")
	case w.DB == nil:
		return fail(ErrInvalid, 2, "the worker has no DB: set Worker.DB to the database of the queue")
	case w.DB.session != nil:
		return fail(ErrInvalid, 2,
			"Worker.DB is the database of a transaction: use the database of the connection")
	case w.Handler == nil:
		return fail(ErrInvalid, 2,
			"the worker has no Handler: set Worker.Handler to the function that runs a job")
	case w.Queue == "":
		return fail(ErrInvalid, 2, "the worker has no Queue: set Worker.Queue to the name of a queue")
	case w.Concurrency < 0 || w.Concurrency > 1000:
		return fail(ErrInvalid, 2,
			fmt.Sprintf("invalid Concurrency %d: expected 1 to 1000", w.Concurrency))
	case w.Wait < 0 || w.StopTimeout < 0 || w.Lease < 0:
		return fail(ErrInvalid, 2, "Wait, StopTimeout, and Lease of a worker must not be negative")
	}
	return cmp.Or(checkDuration("Wait", w.Wait), checkDuration("StopTimeout", w.StopTimeout),
		checkDuration("Lease", w.Lease))
}

// problems is a handler that passes on warnings and errors.
type problems struct{ slog.Handler }

func (p problems) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && p.Handler.Enabled(ctx, level)
}

func (p problems) WithAttrs(attrs []slog.Attr) slog.Handler {
	return problems{p.Handler.WithAttrs(attrs)}
}

func (p problems) WithGroup(name string) slog.Handler { return problems{p.Handler.WithGroup(name)} }

// Run claims and runs jobs until the context ends, and then waits for those that run. It returns
// nil, or the error of a claim, for example if a login lacks a role. Use signal.NotifyContext to
// stop at a signal.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.check(ctx); err != nil {
		return err
	}
	r := &running{Worker: *w, active: map[*Job]bool{}}
	// Run waits for its own claims: if they come too late, their jobs return to the queue.
	r.DB = r.DB.withOwnClaims()
	if r.Concurrency == 0 {
		r.Concurrency = 1
	}
	if r.Lease == 0 {
		r.Lease = 30 * time.Second
	}
	if r.Wait == 0 {
		r.Wait = time.Second
	}
	if r.UntilEmpty {
		r.Wait = 0
	}
	if r.Name == "" {
		host, _ := os.Hostname()
		r.Name = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	if r.Logger == nil {
		r.Logger = slog.New(problems{slog.Default().Handler()})
	}
	r.log = r.Logger.With("queue", r.Queue)
	r.jobs, r.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	defer r.cancel(errStopped)
	over := make(chan struct{})
	leases := make(chan struct{})
	go func() {
		defer close(leases)
		r.keepLeases(over)
	}()
	log := r.log.With("worker", r.Name)
	log.Info("truce: worker started", "concurrency", r.Concurrency)
	err := r.claim(ctx)
	r.mutex.Lock()
	count := len(r.active)
	r.mutex.Unlock()
	log.Info("truce: worker stops", "running", count)
	r.wait()
	r.DB.claims.Wait()
	close(over)
	<-leases
	if err != nil {
		log.Error("truce: worker ended", "error", err)
	} else {
		log.Info("truce: worker ended")
	}
	return err
}

// claim starts jobs until the worker stops.
func (r *running) claim(ctx context.Context) error {
	free := make(chan struct{}, r.Concurrency)
	for range r.Concurrency {
		free <- struct{}{}
	}
	for check := true; ; check = false {
		select {
		case <-ctx.Done():
			return nil
		case <-free:
		}
		count := 1
		for len(free) > 0 {
			<-free
			count++
		}
		jobs, note, err := r.DB.claimJobs(ctx, r.Queue, ClaimOptions{
			Most: int64(count), Wait: r.Wait, Lease: r.Lease, Worker: r.Name, Check: check,
		})
		if note != "" {
			r.log.Warn("truce: no job", "note", note)
		}
		for range count - len(jobs) {
			free <- struct{}{}
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case isTemporary(err):
			r.log.Warn("truce: no claim", "error", err)
			select {
			case <-time.After(workerRetry):
			case <-ctx.Done():
			}
		case err != nil:
			return err
		case len(jobs) == 0 && r.UntilEmpty:
			if len(free) == r.Concurrency {
				return nil
			}
			time.Sleep(time.Millisecond) // A running job may add jobs.
		}
		for _, job := range jobs {
			r.start(ctx, job, free)
		}
	}
}

// isTemporary returns whether the worker claims again after an error.
func isTemporary(err error) bool {
	return errors.Is(err, ErrUnreachable) || errors.Is(err, ErrLocked) ||
		errors.Is(err, ErrTimeout) || hasLabel(err, "RetryableWriteError")
}

// start runs a job in a goroutine of its own. A job that was claimed at the end returns to the
// queue.
func (r *running) start(ctx context.Context, job *Job, free chan<- struct{}) {
	if ctx.Err() != nil {
		r.requeue(ctx, job)
		return
	}
	inner, cancel := context.WithCancelCause(r.jobs)
	job.cancel = cancel
	job.log = r.log.With("job", job.ID.Hex())
	job.log.Debug("truce: job claimed", "attempt", job.Attempt)
	r.mutex.Lock()
	r.active[job] = true
	r.mutex.Unlock()
	r.ended.Add(1)
	go func() {
		defer r.ended.Done()
		defer func() {
			cancel(nil)
			r.mutex.Lock()
			delete(r.active, job)
			r.mutex.Unlock()
			free <- struct{}{}
		}()
		r.work(inner, job)
	}()
}

// handle calls the handler, and returns a panic as an error.
func (r *running) handle(ctx context.Context, job *Job) (result any, err error) {
	returned := false
	defer func() {
		if caught := recover(); caught != nil {
			err = fmt.Errorf("panic: %v", caught)
			job.log.Error("truce: a handler panicked", "panic", caught, "stack",
				string(debug.Stack()))
		} else if !returned {
			// runtime.Goexit: this goroutine ends after the deferred calls.
			ended := errors.New("the handler called runtime.Goexit: return from the handler instead")
			r.report(context.WithoutCancel(ctx), job, nil, ended)
		}
	}()
	result, err = r.Handler(ctx, job)
	returned = true
	return result, err
}

func (r *running) work(ctx context.Context, job *Job) {
	_ = job.Work(ctx, func(ctx context.Context) error {
		result, err := r.handle(ctx, job)
		if err != nil && !job.Ended() && !job.Lost() && errors.Is(context.Cause(ctx), errStopped) {
			r.requeue(ctx, job)
			return err
		}
		r.report(context.WithoutCancel(ctx), job, result, err)
		return err
	})
}

// report reports the end of a job, and logs what it cannot report: then the lease ends. The methods
// of a result and of an error may panic.
func (r *running) report(ctx context.Context, job *Job, result any, err error) {
	log := job.log
	defer func() {
		caught := recover()
		if caught == nil {
			return
		}
		log.Error("truce: the result of a handler panicked", "panic", caught, "stack",
			string(debug.Stack()))
		if failed := job.Fail(ctx, fmt.Errorf("panic: %v", caught)); failed != nil {
			log.Warn("truce: the failure of a job was not stored", "error", failed)
		}
	}()
	if errors.Is(err, ErrSuspended) && job.Ended() {
		return
	}
	if job.Lost() {
		log.Warn("truce: the job was canceled, or another worker has it", "error", err)
		return
	}
	if err == nil && !job.Ended() {
		err = job.forgotten()
	}
	var failed error
	switch {
	case err != nil && job.Ended():
		log.Error("truce: a handler failed after the end of its job", "error", err)
	case err != nil:
		failed = job.Fail(ctx, err)
	case !job.Ended():
		failed = job.Done(ctx, result)
	}
	if failed == nil {
		return
	}
	log.Warn("truce: the end of a job was not stored", "error", failed, "failure", err)
	// for example a result that is not a document
	if errors.Is(failed, ErrInvalid) || errors.Is(failed, ErrLimit) {
		if failed := job.Fail(ctx, failed); failed != nil {
			log.Warn("truce: the failure of a job was not stored", "error", failed)
		}
	}
}

func (r *running) requeue(ctx context.Context, job *Job) {
	if err := job.Snooze(context.WithoutCancel(ctx), 0); err != nil {
		r.log.Warn("truce: a job was not returned to the queue", "job", job.ID.Hex(), "error", err)
	}
}

// wait waits for the running jobs, and cancels them after StopTimeout.
func (r *running) wait() {
	if r.StopTimeout > 0 {
		timer := time.AfterFunc(r.StopTimeout, func() { r.cancel(errStopped) })
		defer timer.Stop()
	}
	r.ended.Wait()
}

func (r *running) keepLeases(over <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-over:
			cancel() // Cancels a running heartbeat.
		case <-ctx.Done():
		}
	}()
	ticker := time.NewTicker(max(r.Lease/3, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-over:
			return
		case <-ticker.C:
		}
		r.mutex.Lock()
		jobs := make([]*Job, 0, len(r.active))
		for job := range r.active {
			jobs = append(jobs, job)
		}
		r.mutex.Unlock()
		for _, job := range jobs {
			if job.Ended() || job.Lost() {
				continue
			}
			_, err := job.Heartbeat(ctx, nil)
			if err != nil && ctx.Err() == nil && !errors.Is(err, ErrExpired) {
				job.log.Warn("truce: no heartbeat", "error", err)
			}
		}
	}
}

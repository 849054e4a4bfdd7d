package truce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Job is a job that this process has claimed. Its payload is Payload, or Decode reads it.
type Job struct {
	ID      bson.ObjectID
	Queue   string
	Payload Reply
	// 1 for the first attempt.
	Attempt int64
	// The whole job: metadata, tags, errors, ...
	Document Reply
	// The Tracer of the database keeps its context of the claim here.
	Trace any

	db    *Database
	token bson.ObjectID
	mutex sync.Mutex
	ended bool
	lost  bool
	// The commits and steps that the handler began.
	changes []*Changes
	// The steps, sleeps, and waits that this attempt completes, has completed, or found complete.
	called map[jobCall]string
	// Cancels the context of the worker's handler.
	cancel context.CancelCauseFunc
	// The logger of the worker, or nil without a worker.
	log     *slog.Logger
	claimed time.Time
}

// ClaimJobs claims the next jobs. Without a worker, end each of them: Done, Fail, ...
func (db *Database) ClaimJobs(ctx context.Context, queue string, o ClaimOptions) ([]*Job, error) {
	jobs, _, err := db.claimJobs(ctx, queue, o)
	return jobs, err
}

// claimJobs returns also the note of the reply, "" if it has none.
func (db *Database) claimJobs(
	ctx context.Context, queue string, o ClaimOptions,
) (jobs []*Job, note string, err error) {
	began := time.Now()
	reply, err := db.Claim(ctx, queue, o)
	if errors.Is(err, ErrNotFound) {
		return nil, reply.Text("note"), nil
	}
	if err != nil {
		return nil, "", err
	}
	for _, found := range reply.Documents("jobs") {
		payload := found.Document("payload")
		if payload == nil {
			payload = emptyReply()
		}
		jobs = append(jobs, &Job{
			ID: found.ID("_id"), Queue: queue, Payload: payload, Document: found,
			Attempt: max(1, found.Int("attempt")), db: db, token: found.ID("token"),
			claimed: time.Now(),
		})
	}
	if db.tracer != nil && len(jobs) > 0 {
		db.tracer.Claimed(ctx, queue, began, jobs)
	}
	return jobs, "", nil
}

// Decode reads the payload into a struct or map.
func (j *Job) Decode(value any) error { return bson.Unmarshal(j.Payload, value) }

// Lost returns whether the job was canceled, or another worker has it.
func (j *Job) Lost() bool {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	return j.lost
}

// Ended returns whether this process has reported the end of the job.
func (j *Job) Ended() bool {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	return j.ended
}

// finish reports the end of the job, once.
func (j *Job) finish(
	ctx context.Context, operation string, report func(context.Context) error,
) error {
	if j.Ended() {
		return fail(ErrExpired, 125, fmt.Sprintf("job %s has already ended", j.ID.Hex()))
	}
	if err := j.span(ctx, operation, report); err != nil {
		return err
	}
	j.mutex.Lock()
	j.ended = true
	j.mutex.Unlock()
	if operation != "fail" { // The end by Fail is logged with its cause.
		j.logEnd(ctx, slog.LevelInfo, operation)
	}
	return nil
}

// logEnd logs the end of a job that a worker runs.
func (j *Job) logEnd(ctx context.Context, level slog.Level, outcome string, more ...any) {
	if j.log == nil {
		return
	}
	all := append([]any{"outcome", outcome, "attempt", j.Attempt, "duration",
		time.Since(j.claimed).Round(time.Microsecond)}, more...)
	j.log.Log(ctx, level, "truce: job ended", all...)
}

// in returns the database for a report: that of a transaction, if one is given.
func (j *Job) in(tx []*Database) (*Database, error) {
	if len(tx) == 0 {
		return j.db, nil
	}
	return only(tx)
}

// Done ends the job as done. The result is a document or nil. With the database of a transaction,
// the job is done if it commits.
func (j *Job) Done(ctx context.Context, result any, tx ...*Database) error {
	db, err := j.in(tx)
	if err != nil {
		return err
	}
	return j.finish(ctx, "done", func(ctx context.Context) error {
		_, err := db.Done(ctx, j.Queue, DoneOptions{ID: j.ID, Token: j.token, Result: result})
		return err
	})
}

// Fail reports a failure. The job is tried again later, or is dead after its last attempt.
func (j *Job) Fail(ctx context.Context, cause error) error { return j.fail(ctx, cause, nil) }

// FailAfter reports a failure. The next attempt begins after the delay.
func (j *Job) FailAfter(ctx context.Context, cause error, delay time.Duration) error {
	return j.fail(ctx, cause, &delay)
}

func (j *Job) fail(ctx context.Context, cause error, delay *time.Duration) error {
	err := j.finish(ctx, "fail", func(ctx context.Context) error {
		o := FailOptions{ID: j.ID, Token: j.token, Error: textOf(cause), Delay: delay}
		_, err := j.db.Fail(ctx, j.Queue, o)
		return err
	})
	if err == nil {
		j.logEnd(ctx, slog.LevelError, "fail", "error", textOf(cause))
	}
	return err
}

// The store keeps less of the text of an error.
const textMax = 65536

// textOf returns the text of an error, which may be a nil pointer, as the store accepts it.
func textOf(cause error) (text string) {
	defer func() {
		if caught := recover(); caught != nil {
			text = fmt.Sprintf("an error of the type %T, whose method Error panics: %v", cause, caught)
		}
	}()
	if cause == nil || cause.Error() == "" {
		return "failed"
	}
	text = cause.Error()
	text = strings.ToValidUTF8(text[:min(len(text), textMax)], "\uFFFD")
	return strings.ReplaceAll(text, "\x00", `\0`)
}

// Snooze requeues the job for later. The attempt does not count.
func (j *Job) Snooze(ctx context.Context, delay time.Duration) error {
	return j.finish(ctx, "snooze", func(ctx context.Context) error {
		_, err := j.db.Snooze(ctx, j.Queue, SnoozeOptions{ID: j.ID, Token: j.token, Delay: delay})
		return err
	})
}

// Discard ends the job as discarded: it is not tried again.
func (j *Job) Discard(ctx context.Context, cause error) error {
	return j.finish(ctx, "discard", func(ctx context.Context) error {
		o := DiscardOptions{ID: j.ID, Token: j.token, Error: textOf(cause)}
		_, err := j.db.Discard(ctx, j.Queue, o)
		return err
	})
}

// Heartbeat extends the lease, and returns its length. The progress, a document or nil, is stored
// in the job. If the job was canceled or another worker has it, it fails with ErrExpired, and the
// job is lost.
func (j *Job) Heartbeat(ctx context.Context, progress any) (time.Duration, error) {
	o := HeartbeatOptions{ID: j.ID, Token: j.token, Progress: progress}
	reply, err := j.db.Heartbeat(ctx, j.Queue, o)
	if err != nil {
		j.see(err)
		return 0, err
	}
	return time.Duration(reply.Int("leaseMS")) * time.Millisecond, nil
}

// see records that the job is lost if an error says so.
func (j *Job) see(err error) {
	e, is := err.(*Error)
	if !is || e.Class != ErrExpired {
		return
	}
	j.mutex.Lock()
	j.lost = !j.ended
	lost := j.lost
	j.mutex.Unlock()
	if lost && j.cancel != nil {
		j.cancel(err)
	}
}

// ---- changes with a job ------------------------------------------------------------------------

// A JobCommit has changes that take effect together with the end of a job, or not at all.
type JobCommit struct {
	Changes
	job    *Job
	result any
}

// Commit returns a commit that ends the job with a result, a document or nil.
func (j *Job) Commit(result any) *JobCommit {
	c := &JobCommit{job: j, result: result}
	j.begin(&c.Changes)
	return c
}

func (j *Job) begin(changes *Changes) {
	j.mutex.Lock()
	j.changes = append(j.changes, changes)
	j.mutex.Unlock()
}

// forgotten returns an error if the handler collected changes, and did not run them.
func (j *Job) forgotten() error {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	for _, changes := range j.changes {
		if len(changes.list) > 0 && !changes.ran {
			return fmt.Errorf("the handler collected changes of the job (%d), and did not run them: call Run",
				len(changes.list))
		}
	}
	return nil
}

// Run applies the changes, and ends the job.
func (c *JobCommit) Run(ctx context.Context) error {
	c.ran = true
	if len(c.list) == 0 {
		return c.job.Done(ctx, c.result)
	}
	return c.job.finish(ctx, "done", func(ctx context.Context) error {
		made := newCommand("truceJobCommit", true, true)
		made.putText("truceJobCommit", c.job.Queue)
		c.appendTo(&made.document, "changes")
		o := JobCommitOptions{ID: c.job.ID, Token: c.job.token, Result: c.result}
		made.options(&o)
		reply, err := c.job.db.run(ctx, made)
		c.assign(reply)
		return c.withNames(err, &o)
	})
}

// A JobStep has changes that take effect once in all attempts of a job.
type JobStep struct {
	Changes
	// Run found that an earlier attempt has completed the step, and changed nothing.
	Earlier bool
	// The result of the step: that of the attempt that completed it.
	Result Reply
	job    *Job
	name   string
	result any
}

// Step returns a step with a name and a result, a document or nil. The name is unique in the job, and
// has no "." and "$". Run of a second step of the same name in one attempt fails with ErrInvalid.
func (j *Job) Step(name string, result any) *JobStep {
	s := &JobStep{job: j, name: name, result: result}
	j.begin(&s.Changes)
	return s
}

// A jobCall is the name of a wait, or of a step or sleep, which share their names.
type jobCall struct {
	wait bool
	name string
}

// once makes a call of a kind and a name. It refuses the second call of a name, which would be
// skipped as if it were the first. A call that failed may be repeated.
func (j *Job) once(kind, name string, run func() error) error {
	call := jobCall{kind == "wait", name}
	j.mutex.Lock()
	earlier, known := j.called[call]
	if !known {
		if j.called == nil {
			j.called = map[jobCall]string{}
		}
		j.called[call] = kind
	}
	j.mutex.Unlock()
	if known {
		return fail(ErrInvalid, 2, fmt.Sprintf("this attempt of the job has already begun the %s %q: "+
			"give each %s its own name, for example with an index", earlier, name, kind))
	}
	err := run()
	if err != nil {
		j.mutex.Lock()
		delete(j.called, call)
		j.mutex.Unlock()
	}
	return err
}

// Run completes the step.
func (s *JobStep) Run(ctx context.Context) error {
	s.ran = true
	return s.job.once("step", s.name, func() error { return s.run(ctx) })
}

func (s *JobStep) run(ctx context.Context) error {
	made := newCommand("truceJobStep", true, true)
	made.putText("truceJobStep", s.job.Queue)
	if len(s.list) > 0 {
		s.appendTo(&made.document, "changes")
	}
	o := JobStepOptions{ID: s.job.ID, Token: s.job.token, Name: s.name, Result: s.result}
	made.options(&o)
	reply, err := s.job.db.run(ctx, made)
	if err != nil {
		s.job.see(err)
		return s.withNames(err, &o)
	}
	s.assign(reply)
	s.Earlier, s.Result = reply.Bool("earlier"), reply.Document("result")
	return nil
}

// suspended returns ErrSuspended for the error that says that this worker no longer has the job.
func (j *Job) suspended(ctx context.Context, err error) error {
	if !errors.Is(err, ErrNotFound) {
		j.see(err)
		return err
	}
	j.mutex.Lock()
	j.ended = true
	j.mutex.Unlock()
	j.logEnd(ctx, slog.LevelInfo, "suspend")
	return ErrSuspended
}

// Sleep suspends the job for a time, once for each name in all attempts. Until the time is over, it
// returns ErrSuspended: return it from the handler. A second sleep of the same name in one attempt
// fails with ErrInvalid.
func (j *Job) Sleep(ctx context.Context, name string, delay time.Duration) error {
	return j.once("sleep", name, func() error {
		o := JobSleepOptions{ID: j.ID, Token: j.token, Name: name, Delay: delay}
		_, err := j.db.JobSleep(ctx, j.Queue, o)
		return j.suspended(ctx, err)
	})
}

// Wait suspends the job until an event arrives (Signal), or, if the timeout is not zero, that time
// is over. Until then, it returns ErrSuspended: return it from the handler. After a timeout, the
// event is nil. A second wait of the same name in one attempt fails with ErrInvalid.
func (j *Job) Wait(ctx context.Context, name string, timeout time.Duration) (Reply, error) {
	o := JobWaitOptions{ID: j.ID, Token: j.token, Name: name}
	if timeout != 0 {
		o.Timeout = &timeout
	}
	var reply Reply
	err := j.once("wait", name, func() error {
		var err error
		reply, err = j.db.JobWait(ctx, j.Queue, o)
		return j.suspended(ctx, err)
	})
	if err != nil {
		return nil, err
	}
	if !reply.Bool("came") {
		return nil, nil
	}
	if event := reply.Document("event"); event != nil {
		return event, nil
	}
	return emptyReply(), nil
}

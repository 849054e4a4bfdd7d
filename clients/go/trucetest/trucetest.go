// Package trucetest has helpers for the tests of programs that use truce.
//
//	func TestWelcome(t *testing.T) {
//		db := trucetest.Open(t)                          // an empty database in memory
//		register(db, "ada@example.org")
//		trucetest.AssertEnqueued(t, db, "mail", bson.M{"to": "ada@example.org"})
//		trucetest.RunJobs(t, db, "mail", send)           // an error of send fails the test
//	}
package trucetest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"truce.invalid/truce"
	"truce.invalid/truce/internal/hook"
)

// ---- stores and servers ----

// Open returns an empty database in memory. It is closed at the end of the test.
func Open(t testing.TB) *truce.Database {
	t.Helper()
	return open(t, "memory:")
}

// OpenFile returns an empty database in a temporary file, which is removed at the end of the test.
func OpenFile(t testing.TB) *truce.Database {
	t.Helper()
	return open(t, filepath.Join(t.TempDir(), "test.truce"))
}

func open(t testing.TB, path string) *truce.Database {
	t.Helper()
	db, err := truce.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// ServerOptions are the options of StartServer.
type ServerOptions struct {
	// The path of the program. "" means that of TRUCE_PROGRAM, or "truce".
	Program string
	// The store. "" means an empty store in memory.
	File string
	// Further options of `truce serve`.
	Args []string
}

// StartServer starts a private `truce serve` on a Unix socket, and returns its URI, with the
// database. The server ends with the test.
func StartServer(t testing.TB, opts ...ServerOptions) string {
	t.Helper()
	o := ServerOptions{}
	if len(opts) > 0 {
		o = opts[0]
	}
	if o.Program == "" {
		o.Program = os.Getenv("TRUCE_PROGRAM")
	}
	if o.Program == "" {
		o.Program = "truce"
	}
	if o.File == "" {
		o.File = "memory:"
	}
	// The path of a socket has at most 107 bytes, and t.TempDir() contains the name of the test.
	folder, err := os.MkdirTemp("", "truce-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	args := []string{"serve", o.File, "--socket", filepath.Join(folder, "truce.sock"),
		"--parent", strconv.Itoa(os.Getpid()), "--json", "--quiet"}
	server := exec.Command(o.Program, append(args, o.Args...)...)
	var log bytes.Buffer
	server.Stderr = &log
	output, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		t.Fatalf("no program %q: install truce, or set TRUCE_PROGRAM to its path", o.Program)
	}
	if err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(output).ReadBytes('\n')
	var said struct{ Listening string }
	if err := json.Unmarshal(line, &said); err != nil || said.Listening == "" {
		_ = server.Process.Kill()
		_ = server.Wait()
		t.Fatalf("%q ended: %s", o.Program+" serve "+o.File, bytes.TrimSpace(log.Bytes()))
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGTERM)
		_ = server.Wait()
	})
	return withDatabase(said.Listening, o.Args)
}

// withDatabase adds the database to the URI of a server: that of --database, or test.
func withDatabase(uri string, args []string) string {
	name := "test"
	for i, arg := range args {
		if value, is := strings.CutPrefix(arg, "--database="); is {
			name = value
		} else if arg == "--database" && i+1 < len(args) {
			name = args[i+1]
		}
	}
	return strings.TrimSuffix(uri, "/") + "/" + name
}

// ---- queues ----

var notBegun = map[string]bool{"ready": true, "delayed": true, "waiting": true, "blocked": true}

// Enqueued returns the jobs of a queue that have not begun, whose payload has these fields. nil:
// all of them.
func Enqueued(t testing.TB, db *truce.Database, queue string, payload any) []truce.Reply {
	t.Helper()
	wanted := rawOf(t, payload)
	var found []truce.Reply
	for job, err := range db.IterateJobs(context.Background(), queue, truce.JobsOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if notBegun[job.Text("state")] && matches(bson.Raw(job.Document("payload")), wanted) {
			found = append(found, job)
		}
	}
	return found
}

// AssertEnqueued fails the test unless the queue has a job whose payload has these fields, or
// exactly `count` of them. It returns the jobs.
func AssertEnqueued(
	t testing.TB, db *truce.Database, queue string, payload any, count ...int,
) []truce.Reply {
	t.Helper()
	found := Enqueued(t, db, queue, payload)
	if len(count) == 0 && len(found) > 0 || len(count) > 0 && len(found) == count[0] {
		return found
	}
	wanted := "a job"
	if len(count) > 0 {
		wanted = fmt.Sprintf("%d jobs", count[0])
	}
	var others []string
	for _, job := range Enqueued(t, db, queue, nil) {
		others = append(others, job.Document("payload").String())
	}
	t.Fatalf("expected %s of queue %q with the payload %v, found %d; the payloads of its jobs: %v",
		wanted, queue, truce.Reply(rawOf(t, payload)), len(found), others)
	return nil
}

func rawOf(t testing.TB, document any) bson.Raw {
	t.Helper()
	if document == nil {
		document = bson.D{}
	}
	raw, err := bson.Marshal(document)
	if err != nil {
		t.Fatalf("invalid payload: %v", err)
	}
	return raw
}

// matches returns whether a document has the wanted fields with these values, at any depth.
func matches(document, wanted bson.Raw) bool {
	elements, _ := wanted.Elements()
	for _, element := range elements {
		stored, err := document.LookupErr(element.Key())
		if err != nil || !matchesValue(stored, element.Value()) {
			return false
		}
	}
	return true
}

func matchesValue(stored, wanted bson.RawValue) bool {
	if inner, is := wanted.DocumentOK(); is {
		document, is := stored.DocumentOK()
		return is && matches(document, inner)
	}
	if stored.IsNumber() && wanted.IsNumber() && stored.Type != wanted.Type {
		a, isA := stored.AsFloat64OK()
		b, isB := wanted.AsFloat64OK()
		return isA && isB && a == b // For example, int32 and int64.
	}
	return stored.Equal(wanted)
}

// A Handler works on a job, as in a worker.
type Handler = func(ctx context.Context, job *truce.Job) (result any, err error)

// RunOptions are the options of RunJobs.
type RunOptions struct {
	// Run delayed jobs, too, each once, as if their time had come.
	Delayed bool
}

// RunJobs runs the jobs that are ready, one after the other, in this goroutine, and returns their
// number. If the handler returns an error, the job fails, and so does the test.
func RunJobs(
	t testing.TB, db *truce.Database, queue string, handler Handler, opts ...RunOptions,
) int {
	t.Helper()
	total, due := 0, map[bson.ObjectID]bool{}
	for {
		count, err := runJobs(db, queue, handler)
		if err != nil {
			t.Fatal(err)
		}
		total += count
		if len(opts) == 0 || !opts[0].Delayed || !makeDue(t, db, queue, due) {
			return total
		}
	}
}

// makeDue makes the delayed jobs ready that are not in `due`, and adds them. It returns whether
// there are any.
func makeDue(t testing.TB, db *truce.Database, queue string, due map[bson.ObjectID]bool) bool {
	t.Helper()
	found := false
	for _, job := range Enqueued(t, db, queue, nil) {
		id := job.Lookup("_id").ObjectID()
		if truce.Reply(job).Text("state") != "delayed" || due[id] {
			continue
		}
		found, due[id] = true, true
		o := truce.QueueActionOptions{Action: "retry", ID: id}
		if _, err := db.QueueAction(context.Background(), queue, o); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// Inline returns the same database, whose jobs run as soon as they are enqueued: the call that
// enqueues a job returns after its handler. Jobs that are delayed stay in the queue. If a handler
// returns an error, the job fails, and so does the test.
//
//	db := trucetest.Inline(t, trucetest.Open(t), map[string]trucetest.Handler{"mail": send})
func Inline(t testing.TB, db *truce.Database, handlers map[string]Handler) *truce.Database {
	t.Helper()
	queues := slices.Sorted(maps.Keys(handlers))
	var running atomic.Bool
	after := func() {
		if running.Swap(true) {
			return // A handler has enqueued a job.
		}
		defer running.Store(false)
		for again := true; again; {
			again = false
			for _, queue := range queues {
				count, err := runJobs(db, queue, handlers[queue])
				if err != nil {
					t.Error(err)
				}
				again = again || count > 0 || err != nil
			}
		}
	}
	return hook.After(db, after).(*truce.Database)
}

func runJobs(db *truce.Database, queue string, handler Handler) (count int, err error) {
	for {
		jobs, err := db.ClaimJobs(context.Background(), queue, truce.ClaimOptions{})
		if err != nil || len(jobs) == 0 {
			return count, err
		}
		err = jobs[0].Work(context.Background(), func(ctx context.Context) error {
			return run(ctx, jobs[0], handler)
		})
		if errors.Is(err, truce.ErrSuspended) {
			continue
		}
		if err != nil {
			return count, fmt.Errorf("job %s of queue %q: %w", jobs[0].ID.Hex(), queue, err)
		}
		count++
	}
}

func run(ctx context.Context, job *truce.Job, handler Handler) error {
	result, err := handler(ctx, job)
	if errors.Is(err, truce.ErrSuspended) || err == nil && job.Ended() {
		return err
	}
	if err == nil {
		return job.Done(ctx, result)
	}
	if !job.Ended() {
		return errors.Join(err, job.Fail(ctx, err))
	}
	return err
}

// Package truce keeps documents consistent, in process or through a server.
//
//	db, err := truce.Open("school.truce")                  // a file, in this process
//	db, err := truce.Connect("mongodb://127.0.0.1/school") // the same, through truce serve
//
//	c := db.Commit(truce.CommitOptions{})                    // all changes, or none
//	c.Update("accounts", "a", bson.M{"$inc": bson.M{"n": -5}}).If(bson.M{"n": bson.M{"$gte": 5}})
//	c.Update("accounts", "b", bson.M{"$inc": bson.M{"n": 5}})
//	c.Enqueue("mail", truce.EnqueueOptions{Payload: bson.M{"to": "ada@example.org"}})
//	_, err = c.Run(ctx)
//
// A Database has a method for each operation of truce. Its options are a struct, and a field
// with Go's zero value is not sent. Documents are values that the package bson of MongoDB's driver
// can encode. The keys of maps are sorted, so that a repeated call has the same content.
//
// If the context of a call has a deadline, it is the operation's timeout. If the context is
// canceled, the call returns at once (ErrCanceled); an operation that changes something may then
// take effect or not (ErrOutcomeUnknown).
package truce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"truce.invalid/truce/internal/hook"
)

const (
	tries            = 4
	transactionLimit = 120 * time.Second
)

// A session is the session of a cursor, or a transaction. Nil means no session.
type session any

// A transport runs commands: in this process, or on a server.
type transport interface {
	command(
		ctx context.Context, database string, c *command, request bson.Raw, s session,
	) (bson.Raw, error)
	begin(ctx context.Context, transaction bool) (session, error)
	commit(ctx context.Context, s session) error
	end(ctx context.Context, s session)
	close(ctx context.Context) error
}

// A Database has the operations of truce, collections, commits, and transactions. Any number of
// goroutines may use it; the Database of a transaction is for one goroutine.
type Database struct {
	name      string
	transport transport
	session   session
	// The calls of a transaction, or nil outside of one.
	scope *scope
	// The claims that are running.
	claims *sync.WaitGroup
	// Runs after each operation and each transaction that succeeded, for tests. May be nil.
	after func()
	// May be nil.
	tracer Tracer
}

// OpenOptions are the options of Open.
type OpenOptions struct {
	// The database of the store. "" means the store's own.
	Database string
	// Every write fails; the file must exist.
	ReadOnly bool
	// Do not create the file.
	MustExist bool
	// Writes do not wait for the disk.
	Relaxed bool
	// The maximum time that a call waits for locks. 0 means 30 seconds.
	Deadline time.Duration
	// The maximum age of an open cursor while other clients write. 0 means 10 minutes.
	SnapshotAge time.Duration
	// Megabytes for documents and pages. 0 means a part of the machine's memory.
	CacheMB int
}

// Open opens a store in this process, and creates it if it does not exist. The path is a file, or
// "memory:". Several processes may open a file at the same time. There is at most one OpenOptions.
func Open(path string, opts ...OpenOptions) (*Database, error) {
	o, err := only(opts)
	if err != nil {
		return nil, err
	}
	if err := checkPath(path); err != nil {
		return nil, err
	}
	opened, err := openLibrary(path, o)
	if err != nil {
		return nil, err
	}
	return newDatabase(opened, o.Database), nil
}

// checkPath refuses a string that is not the path of a store.
func checkPath(path string) error {
	message := ""
	switch {
	case path == "" || strings.ContainsRune(path, 0):
		message = fmt.Sprintf("invalid path %q of a store", path)
	case path == "memory" || path == ":memory:":
		message = fmt.Sprintf("invalid path %q: use \"memory:\" for a store in memory, or %q for "+
			"a file of this name", path, "./"+path)
	case strings.HasPrefix(path, "mongodb:") || strings.HasPrefix(path, "mongodb+srv:"):
		message = "Open opens a file, and mongodb:// names a server: use truce.Connect"
	default:
		return nil
	}
	return fail(ErrInvalid, 2, message)
}

// Connect returns the database of `truce serve` that a URI names: mongodb://HOST/DATABASE. It is the
// name that --database gives the store, or test. If the URI names none, calls fail until Use names
// one. Another name is a new, empty database, as in MongoDB. The first call connects. If no server
// replies within 10 seconds (serverSelectionTimeoutMS in the URI), it fails with ErrUnreachable. Options are those of
// MongoDB's driver; do not set a timeout of operations there, because contexts have deadlines.
func Connect(uri string, opts ...*options.ClientOptions) (*Database, error) {
	opened, err := connectServer(uri, opts)
	if err != nil {
		return nil, err
	}
	return newDatabase(opened, databaseOf(uri)), nil
}

func init() {
	hook.After = func(database any, function func()) any {
		db := *database.(*Database)
		db.after = function
		return &db
	}
}

func newDatabase(t transport, name string) *Database {
	return &Database{name: name, transport: t, claims: &sync.WaitGroup{}}
}

// only returns the options that were given, or the defaults.
func only[T any](opts []T) (o T, err error) {
	if len(opts) > 1 {
		return o, fail(ErrInvalid, 2,
			fmt.Sprintf("%d values of %T were given: at most one is allowed", len(opts), o))
	}
	if len(opts) == 1 {
		o = opts[0]
	}
	return o, nil
}

// Name returns the name of the database; "" is the store's own.
func (db *Database) Name() string { return db.name }

// Use returns another database of the same store or server. Closing one of them closes all.
func (db *Database) Use(name string) *Database {
	other := *db
	other.name = name
	return &other
}

// withOwnClaims returns the same database, with a count of its own claims.
func (db *Database) withOwnClaims() *Database {
	other := *db
	other.claims = &sync.WaitGroup{}
	return &other
}

// Close closes the store, or the connections that Connect made. Calls that run end with an error.
// Those on a server may have taken effect.
func (db *Database) Close() error {
	if db.session != nil {
		return fail(ErrInvalid, 2,
			"cannot close the database of a transaction: close the database that began it")
	}
	err := db.transport.close(context.Background())
	db.claims.Wait()
	return err
}

// ---- commands ----

// Command runs a command document, whose first field is the name of the command. It is sent once.
func (db *Database) Command(ctx context.Context, request any) (Reply, error) {
	raw, err := marshal(request)
	if err != nil {
		return nil, fail(ErrInvalid, 2, fmt.Sprintf("the command: %v", err))
	}
	// run ends the document again.
	c := &command{document: document{buf: raw[:len(raw)-1]}, name: nameOf(raw), writes: true}
	return db.run(ctx, c)
}

// nameOf returns the first key of a document, which is the name of a command.
func nameOf(request bson.Raw) string {
	element, err := request.IndexErr(0)
	if err != nil {
		return "command"
	}
	return element.Key()
}

// run sends a command. If its reply is lost and it can be repeated, it is sent again.
func (db *Database) run(ctx context.Context, c *command) (Reply, error) {
	return db.runIn(ctx, c, db.session)
}

func (db *Database) runIn(ctx context.Context, c *command, s session) (Reply, error) {
	if ctx == nil {
		return nil, fail(ErrInvalid, 2, "the context is nil: use context.Background()")
	}
	if strings.ContainsRune(db.name, 0) {
		return nil, fail(ErrInvalid, 73,
			fmt.Sprintf("invalid name of a database %q: it contains a NUL character", db.name))
	}
	request, err := c.finish()
	if err != nil {
		return nil, err
	}
	if err := db.scope.begin(); err != nil {
		return nil, err
	}
	defer db.scope.end()
	request = db.traced(ctx, c.name, request)
	if c.name == "truceClaim" && ctx.Done() != nil && s == nil {
		return db.claim(ctx, c, request)
	}
	reply, err := db.send(ctx, c, request, s)
	if err != nil {
		return nil, db.scope.interrupted(ctx, c, err)
	}
	if !strings.HasPrefix(c.name, "truce") {
		return Reply(reply), nil
	}
	if Reply(reply).Text("outcome") == "conflict" {
		reason := cmp.Or(Reply(reply).Text("reason"), "another write conflicts with this one")
		e := fail(ErrConflict, 112, reason)
		e.Reply = reply
		return nil, e
	}
	if db.after != nil && s == nil {
		db.after()
	}
	return Reply(reply), nil
}

func (db *Database) send(
	ctx context.Context, c *command, request bson.Raw, s session,
) (bson.Raw, error) {
	for left := tries - 1; ; left-- {
		reply, err := db.transport.command(ctx, db.name, c, request, s)
		if err == nil {
			return reply, nil
		}
		err = withDeadline(ctx, err)
		lost := errors.Is(err, ErrUnreachable)
		repeats := c.again && s == nil && (lost || hasLabel(err, "RetryableWriteError"))
		if e, is := err.(*Error); is && e.noServer {
			repeats = false // The driver has tried to connect for its whole timeout.
		}
		if !repeats || left == 0 || ctx.Err() != nil {
			return nil, err
		}
		pause := 50 * time.Millisecond
		if !lost {
			pause = time.Duration(tries-left) * 100 * time.Millisecond
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// How long a claim on a server may take beyond its own waiting time after its context has ended.
const claimGrace = 2 * time.Second

// claim returns when the context ends. The claim itself then runs to its end in the background:
// otherwise, claimed jobs would wait for the end of their lease. Jobs that come too late are
// returned to the queue. If the server does not reply, the claim ends after claimGrace.
func (db *Database) claim(ctx context.Context, c *command, request bson.Raw) (Reply, error) {
	if ctx.Err() != nil {
		return nil, notBegun(ctx, c.call())
	}
	answers := make(chan answer) // Without a buffer, a reply is either received or late.
	db.claims.Add(1)
	go func() {
		defer db.claims.Done()
		inner, end := context.WithoutCancel(ctx), func() {}
		if _, is := db.transport.(*server); is {
			inner, end = afterEnd(ctx, claimGrace+
				time.Duration(Reply(request).Int("waitMS"))*time.Millisecond)
		}
		defer end()
		reply, err := db.send(inner, c, request, nil)
		select {
		case answers <- answer{reply, err}:
			return
		case <-ctx.Done():
		}
		for _, job := range Reply(reply).Documents("jobs") {
			found := Reply(job)
			// If this fails, the lease of the job ends.
			_, _ = db.Snooze(context.Background(), bson.Raw(request).Lookup(c.name).StringValue(),
				SnoozeOptions{ID: found.ID("_id"), Token: found.ID("token")})
		}
	}()
	select {
	case a := <-answers:
		return Reply(a.reply), a.err
	case <-ctx.Done():
		return nil, contextError(ctx, c.call(), false)
	}
}

// afterEnd returns a context that is canceled at this time after the end of another one.
func afterEnd(ctx context.Context, grace time.Duration) (context.Context, func()) {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(grace):
			cancel()
		case <-inner.Done():
		}
	})
	return inner, func() {
		stop()
		cancel()
	}
}

type answer struct {
	reply bson.Raw
	err   error
}

// deadlineOf returns the milliseconds that a context has left, or 0 for no deadline.
func deadlineOf(ctx context.Context) uint32 {
	end, has := ctx.Deadline()
	if !has {
		return 0
	}
	return uint32(max(1, min(milliseconds(time.Until(end)), math.MaxInt32)))
}

// ---- collections ----

// Collection returns a collection, which need not exist.
func (db *Database) Collection(name string) *Collection {
	return &Collection{db: db, name: name}
}

// ListCollectionNames returns the names of the collections.
func (db *Database) ListCollectionNames(ctx context.Context) ([]string, error) {
	c := newCommand("listCollections", false, false)
	c.putNumber("listCollections", 1)
	c.putFlag("nameOnly", true)
	c.end(c.begin(bson.TypeEmbeddedDocument, "cursor"))
	cursor, err := db.newCursor(ctx, c, 0)
	if err != nil {
		return nil, err
	}
	var names []string
	for document, err := range cursor.Each(ctx) {
		if err != nil {
			return nil, err
		}
		names = append(names, Reply(document).Text("name"))
	}
	return names, nil
}

// Drop drops the database with all its collections, queues, and other objects.
func (db *Database) Drop(ctx context.Context) error {
	c := newCommand("dropDatabase", true, false)
	c.putNumber("dropDatabase", 1)
	_, err := db.run(ctx, c)
	return err
}

// Watch returns the changes of all collections that follow, or those after a resume token.
func (db *Database) Watch(
	ctx context.Context, pipeline any, opts ...ChangeStreamOptions,
) (*ChangeStream, error) {
	return db.watch(ctx, "", pipeline, opts)
}

// ---- transactions ----

// Transact runs the calls of a function in one transaction: all take effect, or none if the
// function returns an error. After a conflict with other writes, the function runs again. Use only
// `tx` in it, and wait for each call: a call after the end of the function fails. If the context of
// a call or of the transaction ends before the commit is sent, nothing takes effect.
func (db *Database) Transact(ctx context.Context, work func(tx *Database) error) error {
	if db.session != nil {
		return fail(ErrInvalid, 2, "transactions cannot be nested: use the database that the "+
			"function of the outer transaction received")
	}
	if ctx == nil || work == nil {
		return fail(ErrInvalid, 2, "Transact needs a context and a function")
	}
	end := time.Now().Add(transactionLimit)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := db.transactOnce(ctx, work)
		if err == nil && db.after != nil {
			db.after()
		}
		if err == nil || !hasLabel(err, "TransientTransactionError") || time.Now().After(end) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

func (db *Database) transactOnce(ctx context.Context, work func(tx *Database) error) error {
	s, err := db.transport.begin(ctx, true)
	if err != nil {
		return err
	}
	tx := *db
	tx.session = s
	tx.scope = newScope()
	defer func() {
		tx.scope.close()
		db.transport.end(ctx, s)
	}()
	if err := work(&tx); err != nil {
		return err
	}
	if running := tx.scope.close(); running > 0 {
		return fail(ErrInvalid, 2, fmt.Sprintf("%d calls were still running at the end of the "+
			"transaction, which changed nothing: wait for each call in its function", running))
	}
	if tx.scope.lost != nil {
		return tx.scope.lost
	}
	if ctx.Err() != nil {
		return withoutEffect(ctx, "the transaction")
	}
	return db.transport.commit(ctx, s)
}

// A scope has the calls of one transaction. A call after the end of its function would begin another
// transaction, which no one commits. Without a transaction, it is nil.
type scope struct {
	mutex   sync.Mutex
	changed *sync.Cond
	running int
	closed  bool
	// The error of a write whose context ended before its reply came. It may be a part of the
	// transaction or not, so the transaction is not committed.
	lost error
}

func newScope() *scope {
	s := &scope{}
	s.changed = sync.NewCond(&s.mutex)
	return s
}

func (s *scope) begin() error {
	if s == nil {
		return nil
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.closed {
		return fail(ErrInvalid, 2, "the transaction has ended: wait for each call in its function")
	}
	s.running++
	return nil
}

// interrupted returns the error of a call. If its context has ended, a write would have an unknown
// outcome outside of a transaction; in one, it has no effect.
func (s *scope) interrupted(ctx context.Context, c *command, err error) error {
	if s == nil || !c.writes || ctx.Err() == nil || !errors.Is(err, ErrOutcomeUnknown) {
		return err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.lost = withoutEffect(ctx, c.call())
	return s.lost
}

func (s *scope) end() {
	if s == nil {
		return
	}
	s.mutex.Lock()
	s.running--
	s.changed.Broadcast()
	s.mutex.Unlock()
}

// close refuses further calls, waits for those that run, and returns how many did.
func (s *scope) close() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.closed = true
	running := s.running
	for s.running > 0 {
		s.changed.Wait()
	}
	return running
}

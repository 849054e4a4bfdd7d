package truce

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// The time that a call waits for a server to connect to, unless the URI or an option sets it.
const selectionTimeout = 10 * time.Second

// The largest request that a server accepts.
const requestMax = 48000000

// lastError finds the cause in an error of the driver that describes the whole topology.
var lastError = regexp.MustCompile(`Last error: (.*?) \}`)

// question returns the question that a user should ask after a failure to connect.
func question(cause string) string {
	switch {
	case strings.Contains(cause, "certificate"):
		return "does this client know the CA of the certificate (tlsCAFile)?"
	case strings.Contains(cause, "tls: "), cause == "EOF": // the server closed a TLS handshake
		return "does this server use TLS (truce serve --tls-certificate)?"
	case strings.Contains(cause, "reset by peer"):
		return "is truce serve running there, and does it require TLS (tls=true)?"
	}
	return "is truce serve running there?"
}

// server runs commands through MongoDB's driver.
type server struct {
	client *mongo.Client
	// The client was made by Connect.
	owned bool
}

func connectServer(uri string, opts []*options.ClientOptions) (transport, error) {
	if !strings.Contains(uri, "://") {
		message := fmt.Sprintf("invalid URI %q: expected mongodb://HOST/DATABASE; truce.Open opens "+
			"a file", uri)
		return nil, fail(ErrInvalid, 2, message)
	}
	base := options.Client().SetServerSelectionTimeout(selectionTimeout).ApplyURI(uri)
	all := append([]*options.ClientOptions{base}, opts...)
	client, err := mongo.Connect(all...)
	if err != nil {
		return nil, &Error{Class: ErrInvalid, Code: 2, Message: err.Error(), cause: err}
	}
	return &server{client, true}, nil
}

// FromClient returns a database of a client of MongoDB's driver. The client stays open when the
// database is closed.
func FromClient(client *mongo.Client, database string) *Database {
	return newDatabase(&server{client, false}, database)
}

// databaseOf returns the database that a URI names, or "".
func databaseOf(uri string) string {
	_, rest, _ := strings.Cut(uri, "://")
	_, rest, _ = strings.Cut(rest, "/")
	name, _, _ := strings.Cut(rest, "?")
	if plain, err := url.PathUnescape(name); err == nil {
		name = plain
	}
	return name
}

func (v *server) command(
	ctx context.Context, database string, c *command, request bson.Raw, s session,
) (bson.Raw, error) {
	if ctx.Err() != nil {
		return nil, notBegun(ctx, c.call())
	}
	if len(request) > requestMax { // the server would close the connection
		message := fmt.Sprintf("%s: the request has %d bytes, more than the maximum of %d",
			c.call(), len(request), requestMax)
		return nil, fail(ErrLimit, 10334, message)
	}
	if database == "" { // a name of its own would hide the mistake: it is an empty database
		return nil, fail(ErrInvalid, 73, c.call()+": the URI names no database: expected "+
			"mongodb://HOST/DATABASE (test, if truce serve has no --database), or call Use")
	}
	inner := ctx
	if c.name == "getMore" {
		inner = withoutDeadline{ctx}
	}
	if s != nil {
		inner = mongo.NewSessionContext(ctx, s.(*mongo.Session))
	}
	reply, err := v.client.Database(database).RunCommand(inner, request).Raw()
	var writes mongo.WriteException
	if errors.As(err, &writes) && writes.Raw != nil && writes.WriteConcernError == nil {
		reply, err = writes.Raw, nil // The reply lists the writes that failed.
	}
	if err != nil {
		return nil, serverError(ctx, err, c)
	}
	return withoutClock(reply), nil
}

// withoutDeadline is a context that only ends: the driver would send its deadline as the maxTimeMS
// of a getMore, where it is the time to wait for a change.
type withoutDeadline struct{ context.Context }

func (withoutDeadline) Deadline() (end time.Time, has bool) { return end, false }

// withoutClock removes the fields that only servers add.
func withoutClock(reply bson.Raw) bson.Raw {
	elements, err := reply.Elements()
	if err != nil {
		return reply
	}
	d := newDocument()
	for _, element := range elements {
		if key := element.Key(); key != "$clusterTime" && key != "operationTime" {
			d.buf = append(d.buf, element...)
		}
	}
	shorter, _ := d.finish()
	return shorter
}

// serverError returns the error for an error of the driver.
func serverError(ctx context.Context, err error, c *command) error {
	var failed mongo.CommandError
	if errors.As(err, &failed) && failed.Raw != nil {
		e := replyError(failed.Raw, c.name, "")
		e.Labels = failed.Labels
		e.cause = err
		return e
	}
	end, has := ctx.Deadline()
	if has && mongo.IsTimeout(err) && time.Until(end) < 50*time.Millisecond {
		<-ctx.Done() // The driver's own timer expired first.
	}
	if noServer := strings.Contains(err.Error(), "server selection error"); noServer {
		if errors.Is(ctx.Err(), context.Canceled) {
			return notBegun(ctx, c.call())
		}
		message := c.call() + ": nothing was sent: " + err.Error()
		if found := lastError.FindStringSubmatch(err.Error()); found != nil {
			message = fmt.Sprintf("%s: nothing was sent: no server is available (%s): %s",
				c.call(), found[1], question(found[1]))
		}
		cause := errors.Join(ctx.Err(), err)
		return &Error{Class: ErrUnreachable, Message: message, cause: cause, noServer: true}
	}
	if errors.Is(err, mongo.ErrClientDisconnected) {
		return &Error{Class: ErrInvalid, Code: 2, Message: c.call() + ": the database is closed", cause: err}
	}
	if ctx.Err() != nil {
		return contextError(ctx, c.call(), c.writes)
	}
	if strings.Contains(err.Error(), " wire version ") {
		message := "the server is not truce: " + err.Error()
		return &Error{Class: ErrWrongServer, Message: message, cause: err}
	}
	e := &Error{Class: ErrUnreachable, Message: c.call() + ": " + err.Error(), cause: err}
	e.Labels = failed.Labels
	if !mongo.IsNetworkError(err) && failed.Message == "" && !mongo.IsTimeout(err) {
		e.Class = ErrInvalid
	}
	return e
}

func (v *server) begin(_ context.Context, transaction bool) (session, error) {
	s, err := v.client.StartSession()
	if err == nil && transaction {
		err = s.StartTransaction()
	}
	if err != nil {
		return nil, serverError(context.Background(), err, newCommand("startSession", false, false))
	}
	return s, nil
}

func (v *server) commit(ctx context.Context, s session) error {
	if err := s.(*mongo.Session).CommitTransaction(ctx); err != nil {
		return serverError(ctx, err, newCommand("commitTransaction", true, false))
	}
	return nil
}

func (v *server) end(ctx context.Context, s session) {
	if s != nil {
		// Aborts a transaction that is open.
		s.(*mongo.Session).EndSession(context.WithoutCancel(ctx))
	}
}

func (v *server) close(ctx context.Context) error {
	if !v.owned {
		return nil
	}
	if err := v.client.Disconnect(ctx); err != nil && !errors.Is(err, mongo.ErrClientDisconnected) {
		return err
	}
	return nil
}

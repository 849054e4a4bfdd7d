package truce

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// A Class is a cause of errors: errors.Is(err, truce.ErrConflict).
type Class string

// The classes are the statuses of truce. The last four are those of the client.
const (
	// Another write changed a document that the call depends on. If a merge failed,
	// Error.Conflicts lists what both sides changed.
	ErrConflict Class = "conflict"
	// Another process, goroutine, or commit holds the resource. Try later.
	ErrLocked Class = "locked"
	// The call may have taken effect or not. Query the result before you send it again.
	ErrOutcomeUnknown Class = "outcome unknown"
	// A unique key exists, or a key or an id was used before with different content.
	ErrDuplicate Class = "duplicate"
	// A key, cursor, or version is too old, or the worker no longer holds the job.
	ErrExpired Class = "expired"
	// A document, a job, or an account does not exist.
	ErrNotFound Class = "not found"
	// A condition does not hold: a document does not match the condition of a commit, a transfer was
	// canceled or decided, or an edit of a tree cannot be published.
	ErrRefused Class = "refused"
	// The call or its input is wrong. Sending it again fails again.
	ErrInvalid Class = "invalid"
	// A maximum was reached, or an account has too little available.
	ErrLimit Class = "limit reached"
	// The deadline of the call passed. Nothing was changed.
	ErrTimeout Class = "timed out"
	// The disk or the network of the store failed.
	ErrStoreFailed Class = "input or output failed"
	// The file is damaged, is not a truce store, or is newer than this library.
	ErrCorrupt Class = "corrupt"
	// The user is not logged in, or lacks the role for this command.
	ErrUnauthorized Class = "not authorized"
	// The context of the call was canceled. Nothing was changed. The error is also context.Canceled.
	ErrCanceled Class = "canceled"
	// The server does not know the operation: it is not truce, or an older version.
	ErrWrongServer Class = "wrong server"
	// No server replied, or the connection was lost. If the connection was lost, the command may
	// have taken effect or not.
	ErrUnreachable Class = "unreachable"
	// libtruce is missing or too old.
	ErrLibrary Class = "library"
)

// ErrSuspended is returned by Job.Sleep and Job.Wait: the job is claimed again later. Return it
// from the handler of a worker.
var ErrSuspended = errors.New("the job is suspended")

func (c Class) Error() string { return string(c) }

// An Error is a command that failed. errors.Is finds its class, and errors.As also finds a
// mongo.CommandError, so that mongo.IsDuplicateKeyError and others work.
type Error struct {
	Class Class
	// MongoDB's error code: 112, 11000, ...
	Code    int32
	Message string
	// "TransientTransactionError" and others.
	Labels []string
	// The reply, with further fields. Nil if there is no reply.
	Reply bson.Raw
	cause error
	// The driver found no server, so nothing was sent.
	noServer bool
}

func (e *Error) Error() string { return "truce: " + e.Message }

// Is returns whether the error is of a class.
func (e *Error) Is(target error) bool {
	class, is := target.(Class)
	return is && class == e.Class
}

// Unwrap returns the error of the context or of the driver.
func (e *Error) Unwrap() error { return e.cause }

// As sets a mongo.CommandError or mongo.ServerError.
func (e *Error) As(target any) bool {
	made := mongo.CommandError{Code: e.Code, Message: e.Message, Labels: e.Labels, Raw: e.Reply}
	switch target := target.(type) {
	case *mongo.CommandError:
		*target = made
	case *mongo.ServerError:
		*target = made
	default:
		return false
	}
	return true
}

// HasErrorLabel returns whether the error has a label.
func (e *Error) HasErrorLabel(label string) bool { return slices.Contains(e.Labels, label) }

// Conflicts returns the conflicts of a merge: each {path, kind, ...}.
func (e *Error) Conflicts() []Reply {
	found := Reply(e.Reply).Documents("conflicts")
	if found == nil {
		if inner, is := Reply(e.Reply).Lookup("conflict").DocumentOK(); is {
			found = Reply(inner).Documents("conflicts")
		}
	}
	return found
}

func fail(class Class, code int32, message string) *Error {
	return &Error{Class: class, Code: code, Message: message}
}

// notFound returns the error of a reply with the status "not found". The code is that of the same
// status of a write: CommandFailed.
func notFound(name string, reply Reply) error {
	message := reply.Text("reason")
	if message == "" {
		message = name + ": not found"
	}
	return &Error{Class: ErrNotFound, Code: 125, Message: message, Reply: bson.Raw(reply)}
}

// contextError returns the error of a call whose context ended before its reply came: 11601 is
// MongoDB's Interrupted.
func contextError(ctx context.Context, name string, writes bool) error {
	cause := context.Cause(ctx)
	if !errors.Is(cause, ctx.Err()) {
		cause = errors.Join(ctx.Err(), cause)
	}
	if writes {
		message := fmt.Sprintf("%s: %v: it may take effect or not", name, ctx.Err())
		return &Error{Class: ErrOutcomeUnknown, Code: 8, Message: message, cause: cause}
	}
	message := fmt.Sprintf("%s: %v", name, ctx.Err())
	if errors.Is(ctx.Err(), context.Canceled) {
		return &Error{Class: ErrCanceled, Code: 11601, Message: message, cause: cause}
	}
	return &Error{Class: ErrTimeout, Code: 50, Message: message, cause: cause}
}

// withoutEffect returns the error of a transaction whose context ended before the commit was sent.
func withoutEffect(ctx context.Context, name string) error {
	err := contextError(ctx, name, false)
	if e, is := err.(*Error); is {
		e.Message += ": the transaction has no effect"
	}
	return err
}

// withDeadline adds the error of the context to a timeout that its deadline caused.
func withDeadline(ctx context.Context, err error) error {
	e, is := err.(*Error)
	_, has := ctx.Deadline()
	if is && has && (e.Class == ErrTimeout || e.Class == ErrLocked && ctx.Err() != nil) {
		e.cause = errors.Join(context.DeadlineExceeded, e.cause)
	}
	return err
}

// notBegun returns the error of a call whose context had ended before the call.
func notBegun(ctx context.Context, name string) error { return contextError(ctx, name, false) }

// classByCode has the classes of codes, for replies without a status: the table of docs/errors.md.
var classByCode = map[int32]Class{
	6: ErrOutcomeUnknown, 7: ErrOutcomeUnknown, 8: ErrOutcomeUnknown, 11: ErrNotFound,
	13: ErrUnauthorized, 15: ErrLimit, 18: ErrUnauthorized, 24: ErrLocked, 26: ErrNotFound,
	27: ErrNotFound, 43: ErrNotFound, 48: ErrDuplicate, 50: ErrTimeout, 64: ErrOutcomeUnknown,
	89: ErrOutcomeUnknown, 91: ErrOutcomeUnknown, 112: ErrConflict, 134: ErrStoreFailed,
	146: ErrLimit, 189: ErrOutcomeUnknown, 237: ErrExpired, 239: ErrExpired, 246: ErrExpired,
	251: ErrConflict, 262: ErrTimeout, 267: ErrConflict, 292: ErrLimit, 9001: ErrOutcomeUnknown,
	10107: ErrStoreFailed, 10334: ErrLimit, 11000: ErrDuplicate, 11600: ErrOutcomeUnknown,
	11601: ErrTimeout, 11602: ErrOutcomeUnknown, 13435: ErrStoreFailed, 13436: ErrStoreFailed,
	14031: ErrStoreFailed, 51003: ErrDuplicate,
}

// replyError returns the error that a reply reports. `status` is the class of truce_command, or "".
func replyError(reply bson.Raw, name string, status Class) *Error {
	r := Reply(reply)
	e := &Error{Class: status, Code: int32(r.Int("code")), Message: r.Text("errmsg"), Reply: reply}
	if class := Class(r.Text("status")); class != "" {
		e.Class = class
	}
	byCode := classByCode[e.Code]
	if byCode == ErrUnauthorized || e.Class == "" {
		e.Class = byCode
	}
	if e.Code == 59 && strings.HasPrefix(name, "truce") && e.Class == "" {
		e.Class = ErrWrongServer
		e.Message += ": this is not truce, or a version without " + name
	}
	if e.Class == "" {
		e.Class = ErrInvalid
	}
	if e.Message == "" {
		e.Message = name + " failed"
	}
	if labels, is := r.Lookup("errorLabels").ArrayOK(); is {
		values, _ := labels.Values()
		for _, value := range values {
			if label, is := value.StringValueOK(); is {
				e.Labels = append(e.Labels, label)
			}
		}
	}
	return e
}

// The names of operations in messages.
var operationName = regexp.MustCompile(`\btruce([A-Z]\w*)`)

// The names of fields in messages: 'leaseMS'.
var quotedName = regexp.MustCompile("['`]([a-z]\\w*)['`]")

// withNames replaces the names of operations in the message of an error by those of methods, and the
// names of fields by those of the structs of options: pointers to structs, or nil.
func withNames(err error, options ...any) error {
	e, is := err.(*Error)
	if !is {
		return err
	}
	if e.Class == ErrInvalid {
		e.Message = operationName.ReplaceAllString(e.Message, "$1")
	}
	e.Message = quotedName.ReplaceAllStringFunc(e.Message, func(quoted string) string {
		for _, one := range options {
			if shown := shownName(one, quoted[1:len(quoted)-1]); shown != "" {
				return shown
			}
		}
		return quoted
	})
	return err
}

// shownName returns the name of the field of a struct of options; "" if it has no such field.
func shownName(options any, name string) string {
	if options == nil {
		return ""
	}
	for _, field := range optionFieldsOf(reflect.TypeOf(options).Elem()) {
		if field.name == name {
			return field.shown
		}
	}
	return ""
}

// hasLabel returns whether the error is a command's error with the label.
func hasLabel(err error, label string) bool {
	var e *Error
	return errors.As(err, &e) && e.HasErrorLabel(label)
}

//go:build cgo

package truce

/*
#cgo pkg-config: truce
#cgo noescape truce_go_command
#cgo nocallback truce_go_command
#cgo nocallback bson_free

#include "library.h"
*/
import "C"

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"
	"unsafe"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The time that a call whose deadline has passed waits for the store's own reply, which says that
// nothing was changed.
const afterDeadline = 200 * time.Millisecond

// Replies of this size need no allocation by libbson, and no further call to free it.
const roomSize = 1024

// A quick command runs in the calling goroutine for this time at most.
const quickMS = 2

// LibraryVersion returns the version of libtruce.
func LibraryVersion() string { return C.GoString(C.truce_version()) }

// library runs commands in this process. A call enters itself into `calls` and then reads
// `closed`; close sets `closed` and then waits until `calls` is zero.
type library struct {
	store  *C.truce_store
	calls  atomic.Int64
	closed atomic.Bool
}

func checkLibrary() error {
	var first, second, third int
	version := LibraryVersion()
	_, err := fmt.Sscanf(version, "%d.%d.%d", &first, &second, &third)
	if err != nil || 10000*first+100*second+third < int(C.TRUCE_VERSION_NUMBER) {
		return fail(ErrLibrary, 0, fmt.Sprintf("libtruce %s is too old: this program was built "+
			"with version %s; install that one", version, C.TRUCE_VERSION))
	}
	return nil
}

func openLibrary(path string, o OpenOptions) (transport, error) {
	if err := checkLibrary(); err != nil {
		return nil, err
	}
	durations := map[string]time.Duration{"Deadline": o.Deadline, "SnapshotAge": o.SnapshotAge}
	for name, value := range durations {
		if value < 0 || milliseconds(value) > math.MaxUint32 {
			message := fmt.Sprintf("invalid %s %v: from 0 to 49 days", name, value)
			return nil, fail(ErrInvalid, 2, message)
		}
		if err := checkDuration(name, value); err != nil {
			return nil, err
		}
	}
	if o.CacheMB < 0 || o.CacheMB > math.MaxInt32 {
		return nil, fail(ErrInvalid, 2, fmt.Sprintf(
			"invalid CacheMB %d: expected 16 to 1048576, or 0 for the default", o.CacheMB))
	}
	uri := C.CString(path)
	defer C.free(unsafe.Pointer(uri))
	var failure C.bson_error_t
	options := C.truce_store_options{
		read_only: C.bool(o.ReadOnly), must_exist: C.bool(o.MustExist), relaxed: C.bool(o.Relaxed),
		deadline_ms:     C.uint32_t(milliseconds(o.Deadline)),
		snapshot_age_ms: C.uint32_t(milliseconds(o.SnapshotAge)), cache_mb: C.uint32_t(o.CacheMB),
	}
	lib := &library{}
	status := C.truce_store_open(uri, &options, &lib.store, &failure)
	if status != C.TRUCE_OK {
		class := Class(C.GoString(C.truce_status_name(status)))
		return nil, fail(class, int32(failure.code), C.GoString(&failure.message[0]))
	}
	return lib, nil
}

// call runs a command on this thread. `deadline` is in milliseconds. 0 means none.
func (l *library) call(database string, request bson.Raw, deadline uint32) (bson.Raw, error) {
	l.calls.Add(1)
	defer l.calls.Add(-1)
	if l.closed.Load() {
		return nil, fail(ErrInvalid, 2, "the store is closed")
	}
	var name *C.char
	if database != "" {
		terminated := append(make([]byte, 0, 64), database...)
		name = (*C.char)(unsafe.Pointer(unsafe.SliceData(append(terminated, 0))))
	}
	var (
		room   [roomSize]byte
		reply  *C.uint8_t
		length C.uint32_t
	)
	status := C.truce_go_command(l.store, name, (*C.uint8_t)(unsafe.SliceData(request)),
		C.size_t(len(request)), C.uint32_t(deadline), (*C.uint8_t)(&room[0]), roomSize,
		&reply, &length)
	var data bson.Raw
	if reply == nil {
		data = append(make(bson.Raw, 0, length), room[:length]...)
	} else {
		data = C.GoBytes(unsafe.Pointer(reply), C.int(length))
		C.bson_free(unsafe.Pointer(reply))
	}
	if status != C.TRUCE_OK {
		class := Class(C.GoString(C.truce_status_name(C.truce_status(status))))
		return nil, replyError(data, nameOf(request), class)
	}
	return data, nil
}

func (l *library) command(
	ctx context.Context, database string, c *command, request bson.Raw, s session,
) (bson.Raw, error) {
	if ctx.Err() != nil {
		return nil, notBegun(ctx, c.call())
	}
	if s != nil {
		request = s.(*libraryTransaction).extend(request)
	}
	if ctx.Done() == nil {
		return l.call(database, request, 0)
	}
	deadline := deadlineOf(ctx)
	if c.quick && s == nil && (deadline == 0 || deadline > quickMS) {
		reply, err := l.call(database, request, quickMS)
		if err == nil || !errors.Is(err, ErrTimeout) && !errors.Is(err, ErrLocked) {
			return reply, err
		}
		deadline = deadlineOf(ctx) // The command changed nothing, so it can run again.
	}
	// The call runs in a goroutine of its own, so that this one returns when the context ends.
	answers := make(chan answer, 1)
	go func() {
		reply, err := l.call(database, request, deadline)
		answers <- answer{reply, err}
	}()
	select {
	case a := <-answers:
		return a.reply, a.err
	case <-ctx.Done():
	}
	if context.Cause(ctx) == context.DeadlineExceeded {
		select {
		case a := <-answers:
			return a.reply, a.err
		case <-time.After(afterDeadline):
		}
	}
	return nil, contextError(ctx, c.call(), c.writes)
}

func (l *library) close(context.Context) error {
	if l.closed.Swap(true) {
		return nil
	}
	C.truce_interrupt(l.store)
	for l.calls.Load() > 0 {
		time.Sleep(100 * time.Microsecond)
	}
	C.truce_store_close(l.store)
	return nil
}

// A libraryTransaction is a transaction in process: the fields that its commands carry.
type libraryTransaction struct {
	id   bson.Binary
	used bool
	open bool
}

func (t *libraryTransaction) extend(request bson.Raw) bson.Raw {
	d := &document{buf: append(make([]byte, 0, len(request)+128), request[:len(request)-1]...)}
	id := d.begin(bson.TypeEmbeddedDocument, "lsid")
	d.value("id", t.id)
	d.end(id)
	d.putNumber("txnNumber", 1)
	d.putFlag("autocommit", false)
	if !t.used {
		d.putFlag("startTransaction", true)
		t.used = true
	}
	extended, _ := d.finish()
	return extended
}

func (l *library) begin(_ context.Context, transaction bool) (session, error) {
	if !transaction {
		return nil, nil
	}
	id := make([]byte, 16)
	_, _ = rand.Read(id) // It never fails.
	uuid := bson.Binary{Subtype: bson.TypeBinaryUUID, Data: id}
	return &libraryTransaction{id: uuid, open: true}, nil
}

func (l *library) finish(ctx context.Context, t *libraryTransaction, name string) error {
	t.open = false
	if !t.used {
		return nil
	}
	c := newCommand(name, name == "commitTransaction", false)
	c.putNumber(name, 1)
	request, _ := c.finish()
	_, err := l.command(ctx, "admin", c, request, t)
	return err
}

func (l *library) commit(ctx context.Context, s session) error {
	return l.finish(ctx, s.(*libraryTransaction), "commitTransaction")
}

func (l *library) end(ctx context.Context, s session) {
	if t, is := s.(*libraryTransaction); is && t.open {
		// A failure is ignored: an earlier error has ended the transaction then.
		_ = l.finish(context.WithoutCancel(ctx), t, "abortTransaction")
	}
}

package truce

import (
	"context"
	"errors"
	"io"
	"iter"
	"reflect"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Cursor returns the documents of a query, batch by batch:
//
//	defer cursor.Close(ctx)
//	for cursor.Next(ctx) {
//		err := cursor.Decode(&student)
//	}
//	err := cursor.Err()
//
// One goroutine uses it at a time. Close it unless it is read to its end; All and Each close it.
type Cursor struct {
	// The document that Next found.
	Current bson.Raw

	db      *Database
	session session
	id      int64
	name    string
	batch   []bson.Raw
	size    int64
	wait    time.Duration
	err     error
	closed  bool
}

func (db *Database) newCursor(ctx context.Context, c *command, size int64) (*Cursor, error) {
	cursor := &Cursor{db: db, session: db.session, size: size}
	if err := cursor.start(ctx, c); err != nil {
		return nil, err
	}
	return cursor, nil
}

func (c *Cursor) start(ctx context.Context, made *command) error {
	if ctx == nil {
		return fail(ErrInvalid, 2, "the context is nil: use context.Background()")
	}
	if c.session == nil { // A server finds a cursor only in its session.
		s, err := c.db.transport.begin(ctx, false)
		if err != nil {
			return err
		}
		c.session = s
	}
	reply, err := c.db.runIn(ctx, made, c.session)
	if err != nil {
		c.end(ctx)
		return err
	}
	_, c.name, _ = strings.Cut(reply.Text("cursor", "ns"), ".")
	c.take(ctx, reply, "firstBatch")
	return nil
}

func (c *Cursor) take(ctx context.Context, reply Reply, field string) {
	c.id = reply.Int("cursor", "id")
	batch, _ := reply.Lookup("cursor", field).ArrayOK()
	c.batch = documentsOf[bson.Raw](batch)
	if c.id == 0 {
		c.end(ctx)
	}
}

func (c *Cursor) end(ctx context.Context) {
	if c.session != nil && c.db.session == nil {
		c.db.transport.end(ctx, c.session)
	}
	c.session = nil
}

func (c *Cursor) getMore(ctx context.Context) error {
	made := newCommand("getMore", false, false)
	made.putNumber("getMore", c.id)
	made.putText("collection", c.name)
	made.number("batchSize", c.size)
	made.duration("maxTimeMS", c.wait)
	reply, err := c.db.runIn(ctx, made, c.session)
	if err != nil {
		return err
	}
	c.take(ctx, reply, "nextBatch")
	return nil
}

// Next finds the next document. It returns false at the end, and after an error, which Err returns.
func (c *Cursor) Next(ctx context.Context) bool {
	if c.err != nil || c.closed {
		return false
	}
	for len(c.batch) == 0 {
		if c.id == 0 {
			return false
		}
		if err := c.getMore(ctx); err != nil {
			c.err = err
			_ = c.Close(ctx)
			return false
		}
	}
	c.Current, c.batch = c.batch[0], c.batch[1:]
	return true
}

// Decode reads the current document into a struct or map.
func (c *Cursor) Decode(value any) error {
	if c.Current == nil {
		return io.EOF
	}
	return bson.Unmarshal(c.Current, value)
}

// Err returns the error that ended the cursor.
func (c *Cursor) Err() error { return c.err }

// Close releases the cursor. It can be called again.
func (c *Cursor) Close(ctx context.Context) error {
	if c.closed {
		return nil
	}
	c.closed = true
	c.batch = nil
	id := c.id
	c.id = 0
	if id == 0 {
		return nil
	}
	made := newCommand("killCursors", false, false)
	made.putText("killCursors", c.name)
	array := made.begin(bson.TypeArray, "cursors")
	made.putNumber("0", id)
	made.end(array)
	inner, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, err := c.db.runIn(inner, made, c.session)
	c.end(inner)
	return err
}

// All reads all further documents into a slice, and closes the cursor.
func (c *Cursor) All(ctx context.Context, slice any) error {
	defer func() { _ = c.Close(ctx) }()
	target := reflect.ValueOf(slice)
	if target.Kind() != reflect.Pointer || target.Elem().Kind() != reflect.Slice {
		return fail(ErrInvalid, 2, "the argument of All must be a pointer to a slice")
	}
	kind := target.Elem().Type()
	all := reflect.MakeSlice(kind, 0, len(c.batch))
	for c.Next(ctx) {
		one := reflect.New(kind.Elem())
		if err := c.Decode(one.Interface()); err != nil {
			return err
		}
		all = reflect.Append(all, one.Elem())
	}
	if c.err == nil {
		target.Elem().Set(all)
	}
	return c.err
}

// Each returns an iterator over all further documents. An error is its last element. The cursor is
// closed at the end of the loop.
func (c *Cursor) Each(ctx context.Context) iter.Seq2[bson.Raw, error] {
	return c.each(ctx, c.Next)
}

func (c *Cursor) each(
	ctx context.Context, next func(context.Context) bool,
) iter.Seq2[bson.Raw, error] {
	return func(yield func(bson.Raw, error) bool) {
		defer func() { _ = c.Close(ctx) }()
		for next(ctx) {
			if !yield(c.Current, nil) {
				return
			}
		}
		if c.err != nil {
			yield(nil, c.err)
		}
	}
}

// ---- change streams ----------------------------------------------------------------------------

// ChangeStreamOptions are the options of Watch.
type ChangeStreamOptions struct {
	// "updateLookup": changes have the current document, too.
	FullDocument string
	// The token of the change after which to continue.
	ResumeAfter any
	// The time that one request waits for a change. 0 means one second.
	MaxAwaitTime time.Duration
}

// A ChangeStream returns changes: {_id, operationType, documentKey, ...}. One goroutine uses it at
// a time.
type ChangeStream struct {
	Cursor
	token bson.Raw
}

func (db *Database) watch(
	ctx context.Context, collection string, pipeline any, opts []ChangeStreamOptions,
) (*ChangeStream, error) {
	o, err := only(opts)
	if err != nil {
		return nil, err
	}
	if err := checkDuration("MaxAwaitTime", o.MaxAwaitTime); err != nil {
		return nil, err
	}
	made := newCommand("aggregate", false, false)
	made.textOrOne("aggregate", collection)
	array := made.begin(bson.TypeArray, "pipeline")
	first := made.begin(bson.TypeEmbeddedDocument, "0")
	stage := made.begin(bson.TypeEmbeddedDocument, "$changeStream")
	made.text("fullDocument", o.FullDocument)
	made.value("resumeAfter", o.ResumeAfter)
	made.end(stage)
	made.end(first)
	if err := made.stages(pipeline); err != nil {
		return nil, err
	}
	made.end(array)
	made.end(made.begin(bson.TypeEmbeddedDocument, "cursor"))
	wait := o.MaxAwaitTime
	if wait <= 0 {
		wait = time.Second
	}
	stream := &ChangeStream{Cursor: Cursor{db: db, session: db.session, wait: wait}}
	if err := stream.start(ctx, made); err != nil {
		return nil, err
	}
	return stream, nil
}

// stages appends the stages of a pipeline after the first one.
func (d *document) stages(pipeline any) error {
	if pipeline == nil {
		return nil
	}
	wrong := fail(ErrInvalid, 2,
		"the pipeline must be a slice of stages, for example mongo.Pipeline{}")
	kind, data, err := marshalValue(pipeline)
	if err != nil || kind != bson.TypeArray {
		return wrong
	}
	values, err := bson.RawArray(data).Values()
	if err != nil {
		return wrong
	}
	for i, value := range values {
		d.value(decimal(i+1), value)
	}
	return nil
}

// Next waits for the next change. It returns false when the context ends, and after an error.
func (s *ChangeStream) Next(ctx context.Context) bool {
	for s.err == nil && !s.closed {
		if s.TryNext(ctx) {
			return true
		}
		if s.err == nil && s.id == 0 {
			return false
		}
	}
	return false
}

// TryNext returns whether a change comes within the stream's waiting time.
func (s *ChangeStream) TryNext(ctx context.Context) bool {
	if s.err != nil || s.closed {
		return false
	}
	if len(s.batch) == 0 && s.id != 0 {
		if err := s.getMore(ctx); err != nil {
			s.err = err
			if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
				_ = s.Close(ctx)
			}
			return false
		}
	}
	if len(s.batch) == 0 {
		return false
	}
	s.Current, s.batch = s.batch[0], s.batch[1:]
	s.token = bson.Raw(Reply(s.Current).Document("_id"))
	return true
}

// ResumeToken returns the token of the last change, for ResumeAfter of a new stream.
func (s *ChangeStream) ResumeToken() bson.Raw { return s.token }

// Each returns an iterator over the changes. It ends when the context ends, with its error.
func (s *ChangeStream) Each(ctx context.Context) iter.Seq2[bson.Raw, error] {
	return s.each(ctx, s.Next)
}

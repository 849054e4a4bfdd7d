package truce

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Changes is a list of changes: of documents, by the methods here, and operations, by their own
// names.
type Changes struct {
	list []*Change
	// Run was called; used for changes with a job.
	ran bool
}

// A Change is one of Changes.
type Change struct {
	d     *document
	reply Reply
	// The options of an operation, for the names in its errors.
	options any
}

// If adds a condition, a filter on the document. If the document does not match, the commit fails
// with ErrRefused and changes nothing. If it does not exist, the class is ErrNotFound.
func (c *Change) If(filter any) *Change {
	c.d.selection("if", filter)
	return c
}

// Reply returns the reply of an operation after the commit, or nil for a change of a document.
func (c *Change) Reply() Reply { return c.reply }

func (c *Changes) add(d *document) *Change {
	change := &Change{d: d}
	c.list = append(c.list, change)
	return change
}

// of appends a change of a document.
func (c *Changes) of(kind, collection string, id any) *Change {
	d := newDocument()
	d.putText(kind, collection)
	if id == nil {
		d.refuse(fmt.Sprintf("the id of %s in %q is nil", kind, collection))
	}
	d.value("id", id)
	return c.add(d)
}

// Insert inserts a document. If it has no _id, the commit returns the one that it got.
func (c *Changes) Insert(collection string, document any) *Change {
	d := newDocument()
	d.putText("insert", collection)
	if document == nil {
		d.refuse(fmt.Sprintf("the document of insert in %q is nil", collection))
	}
	d.value("with", document)
	return c.add(d)
}

// Update changes a document by update operators.
func (c *Changes) Update(collection string, id, operators any) *Change {
	change := c.of("update", collection, id)
	change.d.value("with", operators)
	return change
}

// Replace replaces a document.
func (c *Changes) Replace(collection string, id, document any) *Change {
	change := c.of("replace", collection, id)
	change.d.value("with", document)
	return change
}

// Remove removes a document.
func (c *Changes) Remove(collection string, id any) *Change {
	return c.of("remove", collection, id)
}

// Require checks that the document exists and matches the condition.
func (c *Changes) Require(collection string, id any) *Change {
	return c.of("require", collection, id)
}

// Hold checks the document as Require does, and that no other commit changes it.
func (c *Changes) Hold(collection string, id any) *Change { return c.of("hold", collection, id) }

// Missing checks that no document has this _id.
func (c *Changes) Missing(collection string, id any) *Change {
	return c.of("missing", collection, id)
}

// Alter changes fields from an old value to a new one: {"n": [9, 4]}.
func (c *Changes) Alter(collection string, id, oldAndNew any) *Change {
	change := c.of("change", collection, id)
	change.d.value("with", oldAndNew)
	return change
}

// appendTo appends the changes as an array.
func (c *Changes) appendTo(d *document, name string) {
	array := d.begin(bson.TypeArray, name)
	for i, change := range c.list {
		if change.d.err != nil {
			e := change.d.err.(*Error)
			d.err = fail(e.Class, e.Code, fmt.Sprintf("change %d: %s", i+1, e.Message))
			return
		}
		// The builder may be used again, so it is not finished.
		one := d.begin(bson.TypeEmbeddedDocument, decimal(i))
		d.buf = append(d.buf, change.d.buf[4:]...)
		d.end(one)
	}
	d.end(array)
}

// withNames replaces names in the message of an error (errors.go).
func (c *Changes) withNames(err error, options any) error {
	all := []any{options}
	for _, change := range c.list {
		all = append(all, change.options)
	}
	return withNames(err, all...)
}

// assign gives each operation its reply.
func (c *Changes) assign(reply Reply) {
	for _, one := range reply.Documents("results") {
		number := Reply(one).Int("change")
		if number >= 1 && number <= int64(len(c.list)) {
			c.list[number-1].reply = Reply(one)
		}
	}
}

// CommitOptions are the options of a commit.
type CommitOptions struct {
	// An idempotency key: the commit takes effect at most once under it. It needs KeyTime.
	Key string
	// Required with Key, and only then: when the request was made, the same time each time that the
	// commit is sent.
	KeyTime time.Time
	// With a key: what a later commit with the same key gets as Result.
	Leave any
	// Identifies the request, instead of the changes.
	Input any
	// Use the journal, even if the store has transactions.
	Journal bool
}

// A Commit changes several documents, all or none, when it runs.
type Commit struct {
	Changes
	db *Database
	o  CommitOptions
}

// A CommitResult is what a commit did.
type CommitResult struct {
	// The commit took effect before, under the same key.
	Earlier bool
	// The result that the earlier commit has attached.
	Result Reply
	// The _ids that were generated.
	Inserted []bson.RawValue
	// The replies of the operations, in the order of the changes. Each has the number of its change
	// as "change", from 1. Change.Reply returns the same.
	Results []Reply
}

// Commit returns a commit without changes.
func (db *Database) Commit(o CommitOptions) *Commit { return &Commit{db: db, o: o} }

// Run applies the changes. Without a key, each run applies all of them again. A commit with a key
// takes effect once, so it can run again in any case.
func (c *Commit) Run(ctx context.Context) (*CommitResult, error) {
	if c.o.Key != "" && c.o.KeyTime.IsZero() {
		return nil, fail(ErrInvalid, 2, "Key of a commit needs KeyTime: when the request was made, the same in each repetition")
	}
	if c.o.Key == "" && !c.o.KeyTime.IsZero() {
		return nil, fail(ErrInvalid, 2, "KeyTime of a commit needs Key")
	}
	if len(c.list) == 0 {
		return nil, fail(ErrInvalid, 2, "the commit has no changes")
	}
	made := newCommand("truceCommit", true, c.o.Key != "")
	c.appendTo(&made.document, "truceCommit")
	o := CommitChangesOptions(c.o)
	made.options(&o)
	reply, err := c.db.run(ctx, made)
	if err != nil {
		return nil, c.withNames(err, &o)
	}
	c.assign(reply)
	result := &CommitResult{Earlier: reply.Bool("earlier"), Result: reply.Document("result")}
	for _, one := range reply.Documents("results") {
		result.Results = append(result.Results, Reply(one))
	}
	if inserted, is := reply.Lookup("inserted").ArrayOK(); is {
		result.Inserted, err = inserted.Values()
	}
	return result, err
}

package truce

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// A Collection has the common methods of MongoDB's driver, with its names and results.
type Collection struct {
	db   *Database
	name string
}

// FindOptions are the options of Find.
type FindOptions struct {
	// The fields to return.
	Projection any
	// The order: use bson.D for several keys.
	Sort any
	Skip int64
	// The maximum number of documents. 0 means all.
	Limit int64
	// The number of documents in each batch. 0 means the store's default.
	BatchSize int64
	// The name or the keys of the index to use.
	Hint any
}

// FindOneOptions are the options of FindOne.
type FindOneOptions struct {
	Projection any
	Sort       any
	Skip       int64
	Hint       any
}

// AggregateOptions are the options of Aggregate.
type AggregateOptions struct {
	BatchSize int64
	Hint      any
}

// InsertManyOptions are the options of InsertMany.
type InsertManyOptions struct {
	// After an error, continue with the other documents.
	Unordered bool
}

// UpdateOptions are the options of UpdateOne, UpdateMany, and ReplaceOne.
type UpdateOptions struct {
	// If no document matches, insert one.
	Upsert bool
	// The conditions of $[name] in the update: a slice.
	ArrayFilters any
	Hint         any
}

// FindOneAndUpdateOptions are the options of FindOneAndUpdate and FindOneAndReplace.
type FindOneAndUpdateOptions struct {
	Projection   any
	Sort         any
	Upsert       bool
	ArrayFilters any
	// Return the document after the change instead of before it.
	ReturnAfter bool
}

// FindOneAndDeleteOptions are the options of FindOneAndDelete.
type FindOneAndDeleteOptions struct {
	Projection any
	Sort       any
}

// IndexOptions are the options of CreateIndex.
type IndexOptions struct {
	// "": made of the keys.
	Name   string
	Unique bool
	Sparse bool
	// Only documents that match are in the index.
	PartialFilter any
	// Documents are removed at this time after the date in the field. Nil means never.
	ExpireAfter *time.Duration
}

// A SingleResult is the document of FindOne and others. If no document matches, Decode returns
// mongo.ErrNoDocuments.
type SingleResult struct {
	raw bson.Raw
	err error
}

// Decode reads the document into a struct or map.
func (r *SingleResult) Decode(value any) error {
	if r.err != nil {
		return r.err
	}
	return bson.Unmarshal(r.raw, value)
}

// Raw returns the document as BSON.
func (r *SingleResult) Raw() (bson.Raw, error) { return r.raw, r.err }

// Err returns the error, mongo.ErrNoDocuments if there is no document.
func (r *SingleResult) Err() error { return r.err }

// Name returns the name of the collection.
func (c *Collection) Name() string { return c.name }

func (c *Collection) command(name string, writes bool) *command {
	made := newCommand(name, writes, false)
	made.putText(name, c.name)
	return made
}

// sort appends the order of the documents.
func (d *document) sort(sort any) {
	if many := reflect.ValueOf(sort); many.Kind() == reflect.Map && many.Len() > 1 {
		d.refuse(fmt.Sprintf("Sort must be a bson.D, because a %T of several keys has no order", sort))
		return
	}
	d.value("sort", sort)
}

// filter appends the filter of a read. Like the driver, it refuses nil: bson.D{} matches all documents.
// A nil map or slice is an empty one, as everywhere in Go.
func (d *document) filter(name string, filter any) {
	if value := reflect.ValueOf(filter); filter == nil || value.Kind() == reflect.Pointer && value.IsNil() {
		d.refuse("the filter is nil: bson.D{} matches all documents")
		return
	}
	d.value(name, filter)
}

// selection appends the filter of a write. It also refuses a nil map or slice, which is usually a
// variable without a value, and would select all documents.
func (d *document) selection(name string, filter any) {
	value := reflect.ValueOf(filter)
	if kind := value.Kind(); (kind == reflect.Map || kind == reflect.Slice) && value.IsNil() {
		d.refuse(fmt.Sprintf("the filter is a nil %T: bson.D{} matches all documents", filter))
		return
	}
	d.filter(name, filter)
}

// update appends operators or a pipeline, or a document to replace with.
func (d *document) update(name string, update any, replace bool) {
	if update == nil {
		d.refuse("the update is nil")
		return
	}
	kind, data, err := marshalValue(update)
	if err != nil {
		d.refuse(fmt.Sprintf("the update: %v", err))
		return
	}
	if kind == bson.TypeEmbeddedDocument {
		element, err := bson.Raw(data).IndexErr(0)
		operators := err == nil && strings.HasPrefix(element.Key(), "$")
		if replace && operators {
			d.refuse(fmt.Sprintf("the replacement must not have operators (%s)", element.Key()))
			return
		}
		if !replace && !operators {
			d.refuse("the update must have operators such as $set; ReplaceOne replaces a document")
			return
		}
	}
	d.key(kind, name)
	d.buf = append(d.buf, data...)
}

// write runs a command of writes. The first write that failed is the error.
func (c *Collection) write(ctx context.Context, made *command) (Reply, error) {
	reply, err := c.db.run(ctx, made)
	if err != nil {
		return nil, err
	}
	if failed := reply.Documents("writeErrors"); len(failed) > 0 {
		e := replyError(bson.Raw(failed[0]), made.name, "")
		e.Reply = bson.Raw(reply)
		return nil, e
	}
	return reply, nil
}

// ---- reading -----------------------------------------------------------------------------------

// Find returns the documents that match.
func (c *Collection) Find(ctx context.Context, filter any, opts ...FindOptions) (*Cursor, error) {
	o, err := only(opts)
	if err != nil {
		return nil, err
	}
	made := c.command("find", false)
	made.filter("filter", filter)
	made.value("projection", o.Projection)
	made.sort(o.Sort)
	made.number("skip", o.Skip)
	made.number("limit", o.Limit)
	made.number("batchSize", o.BatchSize)
	made.value("hint", o.Hint)
	return c.db.newCursor(ctx, made, o.BatchSize)
}

// FindOne returns the first document that matches.
func (c *Collection) FindOne(
	ctx context.Context, filter any, opts ...FindOneOptions,
) *SingleResult {
	o, err := only(opts)
	if err != nil {
		return &SingleResult{err: err}
	}
	made := c.command("find", false)
	made.again, made.quick = true, true
	made.filter("filter", filter)
	made.value("projection", o.Projection)
	made.sort(o.Sort)
	made.number("skip", o.Skip)
	made.value("hint", o.Hint)
	made.putNumber("limit", 1)
	made.putFlag("singleBatch", true)
	reply, err := c.db.run(ctx, made)
	if err != nil {
		return &SingleResult{err: err}
	}
	if found := reply.first(); found != nil {
		return &SingleResult{raw: bson.Raw(found)}
	}
	return &SingleResult{err: mongo.ErrNoDocuments}
}

// CountDocuments returns the number of documents that match.
func (c *Collection) CountDocuments(ctx context.Context, filter any) (int64, error) {
	made := c.command("count", false)
	made.again, made.quick = true, true
	made.filter("query", filter)
	reply, err := c.db.run(ctx, made)
	return reply.Int("n"), err
}

// Distinct returns the values of a field in the documents that match.
func (c *Collection) Distinct(
	ctx context.Context, field string, filter any,
) ([]bson.RawValue, error) {
	made := c.command("distinct", false)
	made.again, made.quick = true, true
	made.putText("key", field)
	made.filter("query", filter)
	reply, err := c.db.run(ctx, made)
	if err != nil {
		return nil, err
	}
	return reply.Lookup("values").Array().Values()
}

// Aggregate runs a pipeline of stages.
func (c *Collection) Aggregate(
	ctx context.Context, pipeline any, opts ...AggregateOptions,
) (*Cursor, error) {
	o, err := only(opts)
	if err != nil {
		return nil, err
	}
	made := c.command("aggregate", false)
	if pipeline == nil {
		pipeline = bson.A{}
	}
	made.value("pipeline", pipeline)
	cursor := made.begin(bson.TypeEmbeddedDocument, "cursor")
	made.number("batchSize", o.BatchSize)
	made.end(cursor)
	made.value("hint", o.Hint)
	return c.db.newCursor(ctx, made, o.BatchSize)
}

// Watch returns the changes of the collection that follow, or those after a resume token. The store
// needs a change feed (truce serve --feed-keep).
func (c *Collection) Watch(
	ctx context.Context, pipeline any, opts ...ChangeStreamOptions,
) (*ChangeStream, error) {
	return c.db.watch(ctx, c.name, pipeline, opts)
}

// ---- writing -----------------------------------------------------------------------------------

// insertion appends a document with an _id, and returns the _id.
func (d *document) insertion(key string, value any) any {
	raw, err := marshal(value)
	if err != nil {
		d.refuse(fmt.Sprintf("document %s: %v", key, err))
		return nil
	}
	id, err := bson.Raw(raw).LookupErr("_id")
	if err == nil {
		var decoded any
		if err := id.Unmarshal(&decoded); err != nil {
			d.refuse(fmt.Sprintf("the _id of document %s: %v", key, err))
		}
		d.putDocument(key, raw)
		return decoded
	}
	made := bson.NewObjectID()
	start := d.begin(bson.TypeEmbeddedDocument, key)
	d.putID("_id", made)
	d.buf = append(d.buf, raw[4:len(raw)-1]...)
	d.end(start)
	return made
}

// InsertOne inserts a document. If it has no _id, it gets an ObjectID.
func (c *Collection) InsertOne(ctx context.Context, document any) (*mongo.InsertOneResult, error) {
	made := c.command("insert", true)
	array := made.begin(bson.TypeArray, "documents")
	id := made.insertion("0", document)
	made.end(array)
	if _, err := c.write(ctx, made); err != nil {
		return nil, err
	}
	return &mongo.InsertOneResult{InsertedID: id, Acknowledged: true}, nil
}

// InsertMany inserts documents: a slice. If some of them fail, the error is that of the first; its
// Reply lists all of them (writeErrors).
func (c *Collection) InsertMany(
	ctx context.Context, documents any, opts ...InsertManyOptions,
) (*mongo.InsertManyResult, error) {
	o, err := only(opts)
	if err != nil {
		return nil, err
	}
	kind, data, err := marshalValue(documents)
	if err != nil || kind != bson.TypeArray {
		return nil, fail(ErrInvalid, 2,
			fmt.Sprintf("documents must be a slice of documents, not %T", documents))
	}
	values, err := bson.RawArray(data).Values()
	if err != nil {
		return nil, fail(ErrInvalid, 2, err.Error())
	}
	made := c.command("insert", true)
	array := made.begin(bson.TypeArray, "documents")
	ids := make([]any, len(values))
	for i, value := range values {
		one, is := value.DocumentOK()
		if !is {
			return nil, fail(ErrInvalid, 2,
				fmt.Sprintf("element %d of %d is not a document: expected a struct, "+
					"a bson.D, or a bson.M", i, len(values)))
		}
		ids[i] = made.insertion(fmt.Sprint(i), one)
	}
	made.end(array)
	made.putFlag("ordered", !o.Unordered)
	if _, err := c.write(ctx, made); err != nil {
		return nil, err
	}
	return &mongo.InsertManyResult{InsertedIDs: ids, Acknowledged: true}, nil
}

func (c *Collection) change(
	ctx context.Context, filter, update any, multi, replace bool, opts []UpdateOptions,
) (*mongo.UpdateResult, error) {
	o, err := only(opts)
	if err != nil {
		return nil, err
	}
	made := c.command("update", true)
	array := made.begin(bson.TypeArray, "updates")
	one := made.begin(bson.TypeEmbeddedDocument, "0")
	made.selection("q", filter)
	made.update("u", update, replace)
	made.flag("multi", multi)
	made.flag("upsert", o.Upsert)
	made.value("arrayFilters", o.ArrayFilters)
	made.value("hint", o.Hint)
	made.end(one)
	made.end(array)
	reply, err := c.write(ctx, made)
	if err != nil {
		return nil, err
	}
	result := &mongo.UpdateResult{
		MatchedCount: reply.Int("n"), ModifiedCount: reply.Int("nModified"), Acknowledged: true,
	}
	if upserted := reply.Documents("upserted"); len(upserted) > 0 {
		result.UpsertedCount = int64(len(upserted))
		result.MatchedCount -= result.UpsertedCount
		if err := upserted[0].Lookup("_id").Unmarshal(&result.UpsertedID); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// UpdateOne changes the first document that matches, by operators or a pipeline.
func (c *Collection) UpdateOne(
	ctx context.Context, filter, update any, opts ...UpdateOptions,
) (*mongo.UpdateResult, error) {
	return c.change(ctx, filter, update, false, false, opts)
}

// UpdateMany changes all documents that match.
func (c *Collection) UpdateMany(
	ctx context.Context, filter, update any, opts ...UpdateOptions,
) (*mongo.UpdateResult, error) {
	return c.change(ctx, filter, update, true, false, opts)
}

// ReplaceOne replaces the first document that matches.
func (c *Collection) ReplaceOne(
	ctx context.Context, filter, replacement any, opts ...UpdateOptions,
) (*mongo.UpdateResult, error) {
	return c.change(ctx, filter, replacement, false, true, opts)
}

func (c *Collection) remove(
	ctx context.Context, filter any, limit int64,
) (*mongo.DeleteResult, error) {
	made := c.command("delete", true)
	array := made.begin(bson.TypeArray, "deletes")
	one := made.begin(bson.TypeEmbeddedDocument, "0")
	made.selection("q", filter)
	made.putNumber("limit", limit)
	made.end(one)
	made.end(array)
	reply, err := c.write(ctx, made)
	if err != nil {
		return nil, err
	}
	return &mongo.DeleteResult{DeletedCount: reply.Int("n"), Acknowledged: true}, nil
}

// DeleteOne deletes the first document that matches.
func (c *Collection) DeleteOne(ctx context.Context, filter any) (*mongo.DeleteResult, error) {
	return c.remove(ctx, filter, 1)
}

// DeleteMany deletes all documents that match.
func (c *Collection) DeleteMany(ctx context.Context, filter any) (*mongo.DeleteResult, error) {
	return c.remove(ctx, filter, 0)
}

// modify runs findAndModify.
func (c *Collection) modify(ctx context.Context, made *command) *SingleResult {
	reply, err := c.db.run(ctx, made)
	if err != nil {
		return &SingleResult{err: err}
	}
	if found := reply.Document("value"); found != nil {
		return &SingleResult{raw: bson.Raw(found)}
	}
	return &SingleResult{err: mongo.ErrNoDocuments}
}

func (c *Collection) modifyWith(
	ctx context.Context, filter, update any, replace bool, opts []FindOneAndUpdateOptions,
) *SingleResult {
	o, err := only(opts)
	if err != nil {
		return &SingleResult{err: err}
	}
	made := c.command("findAndModify", true)
	made.selection("query", filter)
	made.update("update", update, replace)
	made.value("fields", o.Projection)
	made.sort(o.Sort)
	made.flag("upsert", o.Upsert)
	made.value("arrayFilters", o.ArrayFilters)
	made.flag("new", o.ReturnAfter)
	return c.modify(ctx, made)
}

// FindOneAndUpdate changes a document, and returns it as it was before, or after with ReturnAfter.
func (c *Collection) FindOneAndUpdate(
	ctx context.Context, filter, update any, opts ...FindOneAndUpdateOptions,
) *SingleResult {
	return c.modifyWith(ctx, filter, update, false, opts)
}

// FindOneAndReplace replaces a document, and returns it as it was before, or after with
// ReturnAfter.
func (c *Collection) FindOneAndReplace(
	ctx context.Context, filter, replacement any, opts ...FindOneAndUpdateOptions,
) *SingleResult {
	return c.modifyWith(ctx, filter, replacement, true, opts)
}

// FindOneAndDelete deletes a document, and returns it.
func (c *Collection) FindOneAndDelete(
	ctx context.Context, filter any, opts ...FindOneAndDeleteOptions,
) *SingleResult {
	o, err := only(opts)
	if err != nil {
		return &SingleResult{err: err}
	}
	made := c.command("findAndModify", true)
	made.selection("query", filter)
	made.putFlag("remove", true)
	made.value("fields", o.Projection)
	made.sort(o.Sort)
	return c.modify(ctx, made)
}

// ---- indexes -----------------------------------------------------------------------------------

// CreateIndex creates an index, and returns its name. Several keys need bson.D, which has an order.
func (c *Collection) CreateIndex(
	ctx context.Context, keys any, opts ...IndexOptions,
) (string, error) {
	o, err := only(opts)
	if err != nil {
		return "", err
	}
	if many := reflect.ValueOf(keys); many.Kind() == reflect.Map && many.Len() > 1 {
		return "", fail(ErrInvalid, 2,
			fmt.Sprintf("the keys of an index must be a bson.D, because a %T has no order", keys))
	}
	if o.ExpireAfter != nil && *o.ExpireAfter%time.Second != 0 {
		return "", fail(ErrInvalid, 2,
			fmt.Sprintf("invalid ExpireAfter %v: expected whole seconds", *o.ExpireAfter))
	}
	raw, err := marshal(keys)
	if err != nil {
		return "", fail(ErrInvalid, 2, fmt.Sprintf("the keys of an index: %v", err))
	}
	name := o.Name
	if name == "" {
		elements, err := bson.Raw(raw).Elements()
		if err != nil {
			return "", fail(ErrInvalid, 2, err.Error())
		}
		parts := make([]string, len(elements))
		for i, element := range elements {
			way, is := element.Value().StringValueOK()
			if !is {
				number, _ := element.Value().AsInt64OK()
				way = fmt.Sprint(number)
			}
			parts[i] = element.Key() + "_" + way
		}
		name = strings.Join(parts, "_")
	}
	made := c.command("createIndexes", true)
	array := made.begin(bson.TypeArray, "indexes")
	one := made.begin(bson.TypeEmbeddedDocument, "0")
	made.putDocument("key", raw)
	made.putText("name", name)
	made.flag("unique", o.Unique)
	made.flag("sparse", o.Sparse)
	made.value("partialFilterExpression", o.PartialFilter)
	if o.ExpireAfter != nil {
		made.putNumber("expireAfterSeconds", int64(*o.ExpireAfter/time.Second))
	}
	made.end(one)
	made.end(array)
	_, err = c.db.run(ctx, made)
	return name, err
}

// ListIndexes returns the indexes.
func (c *Collection) ListIndexes(ctx context.Context) (*Cursor, error) {
	made := c.command("listIndexes", false)
	made.end(made.begin(bson.TypeEmbeddedDocument, "cursor"))
	return c.db.newCursor(ctx, made, 0)
}

// DropIndex drops an index by its name.
func (c *Collection) DropIndex(ctx context.Context, name string) error {
	made := c.command("dropIndexes", true)
	made.putText("index", name)
	_, err := c.db.run(ctx, made)
	return err
}

// Drop drops the collection.
func (c *Collection) Drop(ctx context.Context) error {
	_, err := c.db.run(ctx, c.command("drop", true))
	if e, is := err.(*Error); is && e.Code == 26 { // The collection does not exist.
		return nil
	}
	return err
}

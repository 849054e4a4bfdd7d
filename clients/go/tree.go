package truce

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// EditOptions are the options of an edit, as those of TreePublish.
type EditOptions struct {
	Message string
	Author  string
	// With the first edit: the collection of the items, and the field with the parent of an item.
	Collection string
	Parent     string
	// Merge with edits that were published in the meantime.
	Merge  bool
	Prefer string
	Rules  any
}

// An Edit changes a tree. Publish makes all of its changes visible at once.
type Edit struct {
	// The outcome and the version that Publish made.
	Outcome string
	Version int64

	db   *Database
	tree string
	o    EditOptions
	base string
	list bson.A
}

// Edit begins an edit of the tree's current version.
func (db *Database) Edit(ctx context.Context, tree string, opts ...EditOptions) (*Edit, error) {
	o, err := only(opts)
	if err != nil {
		return nil, err
	}
	current, err := db.TreeRead(ctx, tree, TreeReadOptions{Limit: 1})
	base := current.Text("token")
	if errors.Is(err, ErrNotFound) {
		base = "new"
	} else if err != nil {
		return nil, err
	}
	return &Edit{db: db, tree: tree, o: o, base: base, list: bson.A{}}, nil
}

// Put adds or replaces an item: a whole one, with its itemId.
func (e *Edit) Put(item any) { e.list = append(e.list, bson.D{{Key: "put", Value: item}}) }

// Remove removes an item.
func (e *Edit) Remove(itemID any) {
	e.list = append(e.list, bson.D{{Key: "remove", Value: itemID}})
}

// Publish publishes the changes. If another edit was published in the meantime, it fails with
// ErrConflict, unless the edit merges.
func (e *Edit) Publish(ctx context.Context) error {
	if e.Outcome != "" {
		return fail(ErrInvalid, 2,
			fmt.Sprintf("the edit was published as version %d: begin another one", e.Version))
	}
	reply, err := e.db.TreePublish(ctx, e.tree, TreePublishOptions{
		Changes: e.list, Base: e.base, ID: bson.NewObjectID(), Message: e.o.Message,
		Author: e.o.Author, Collection: e.o.Collection, Parent: e.o.Parent, Merge: e.o.Merge,
		Prefer: e.o.Prefer, Rules: e.o.Rules,
	})
	if err != nil {
		return err
	}
	e.Outcome, e.Version = reply.Text("outcome"), reply.Int("version")
	return nil
}

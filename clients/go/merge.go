package truce

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// MergeOptions are the options of Collection.Merge.
type MergeOptions struct {
	// The number that the form showed, 0 if the stored document has none. A new document has no
	// number: use InsertOne, or Revision with Save and without Version.
	Version int64
	// The field with the number of the document. "" means "version".
	VersionField string
	// The document that the form showed. Nil means that only the number is compared, or the kept
	// version.
	Base any
	// The policies of merges: {views: "sum", tags: "union", body: "text"}.
	Rules any
	// Merge only fields that one side alone changed.
	Strict bool
	// Record conflicts that a merge cannot resolve.
	Inbox bool
	// The number of replaced versions that are kept for each document.
	Keep *int64
	// The maximum age of kept versions.
	KeepTime time.Duration
}

// Merge saves the document that a web form sent back, merged with other saves since. The document
// is JSON ([]byte, string, or json.RawMessage), or a value that package bson can encode.
//
// The JSON of the form is enough: where the stored document has an ObjectId, a date, or another
// type that JSON lacks, the field gets this type again. If both sides changed a field, the error is
// ErrConflict. The reply is that of Revision.
func (c *Collection) Merge(ctx context.Context, document any, o MergeOptions) (Reply, error) {
	sent, err := formOf(document)
	if err != nil {
		return nil, err
	}
	id, has := fieldOf(sent, "_id")
	if !has {
		return nil, fail(ErrInvalid, 2,
			"the document of Merge has no _id: expected the whole document with its _id")
	}
	stored, err := c.storedForm(ctx, id, o.VersionField)
	if err != nil {
		return nil, err
	}
	how := RevisionOptions{
		Merge: typedForm(sent, stored), Version: &o.Version, VersionField: o.VersionField,
		Base: o.Base, Rules: o.Rules, Strict: o.Strict, Inbox: o.Inbox, Keep: o.Keep,
		KeepTime: o.KeepTime,
	}
	return c.db.Revision(ctx, c.name, how)
}

// formOf returns the fields of a document, in order.
func formOf(document any) (bson.D, error) {
	var sent bson.D
	var err error
	switch document := document.(type) {
	case []byte:
		err = readJSON(document, &sent)
	case string:
		err = readJSON([]byte(document), &sent)
	case json.RawMessage:
		err = readJSON(document, &sent)
	case bson.D:
		return document, nil
	default:
		var raw bson.Raw
		if raw, err = marshal(document); err == nil {
			err = bson.Unmarshal(raw, &sent)
		}
	}
	if err != nil {
		return nil, fail(ErrInvalid, 2, fmt.Sprintf("the document of Merge: %v", err))
	}
	return sent, nil
}

// readJSON reads Extended JSON. The errors of package bson have no position.
func readJSON(text []byte, document *bson.D) error {
	var wrong *json.SyntaxError
	if err := json.Unmarshal(text, new(json.RawMessage)); errors.As(err, &wrong) {
		return fmt.Errorf("%w at byte %d of %d of the JSON", err, wrong.Offset, len(text))
	}
	return bson.UnmarshalExtJSON(text, false, document)
}

func fieldOf(d bson.D, name string) (any, bool) {
	for _, element := range d {
		if element.Key == name {
			return element.Value, true
		}
	}
	return nil, false
}

// storedForm returns the stored document. A string _id may be that of an ObjectId.
func (c *Collection) storedForm(ctx context.Context, id any, field string) (bson.D, error) {
	forms := []any{id}
	if text, is := id.(string); is {
		if other, err := bson.ObjectIDFromHex(text); err == nil {
			forms = append(forms, other)
		}
	}
	for _, form := range forms {
		reply, err := c.db.Revision(ctx, c.name, RevisionOptions{Get: form, VersionField: field})
		if err == nil {
			var stored bson.D
			err = bson.Unmarshal(reply.Document("document"), &stored)
			return stored, err
		}
		if !errors.Is(err, ErrNotFound) {
			return nil, err
		}
	}
	return nil, nil
}

// typedForm returns the sent document with the types of the stored one.
func typedForm(sent, stored bson.D) bson.D {
	made := make(bson.D, 0, len(sent))
	for _, element := range sent {
		known, _ := fieldOf(stored, element.Key)
		made = append(made, bson.E{Key: element.Key, Value: typedValue(element.Value, known)})
	}
	return made
}

func typedValue(sent, stored any) any {
	switch sent := sent.(type) {
	case string:
		if value, is := valueOfText(sent, stored); is {
			return value
		}
	case bson.D:
		known, _ := stored.(bson.D)
		return typedForm(sent, known)
	case bson.A:
		known, _ := stored.(bson.A)
		made := make(bson.A, 0, len(sent))
		for i, one := range sent {
			// An element that moved or was added has the type of the others.
			var like any
			if i < len(known) {
				like = known[i]
			} else if len(known) > 0 {
				like = known[0]
			}
			made = append(made, typedValue(one, like))
		}
		return made
	case int32:
		switch stored.(type) {
		case float64: // JavaScript writes 2.0 as 2
			return float64(sent)
		case int64:
			return int64(sent)
		}
	}
	return sent
}

// valueOfText returns the value of the stored type that a string means.
func valueOfText(sent string, stored any) (any, bool) {
	switch stored := stored.(type) {
	case bson.ObjectID:
		id, err := bson.ObjectIDFromHex(sent)
		return id, err == nil
	case bson.DateTime:
		when, err := time.Parse(time.RFC3339, sent)
		return bson.NewDateTimeFromTime(when), err == nil
	case bson.Decimal128:
		number, err := bson.ParseDecimal128(sent)
		return number, err == nil
	case bson.Binary:
		if stored.Subtype == bson.TypeBinaryUUID && len(sent) == 36 {
			data, err := hex.DecodeString(sent[:8] + sent[9:13] + sent[14:18] + sent[19:23] + sent[24:])
			return bson.Binary{Subtype: stored.Subtype, Data: data}, err == nil
		}
		data, err := base64.StdEncoding.DecodeString(sent)
		return bson.Binary{Subtype: stored.Subtype, Data: data}, err == nil
	}
	return nil, false
}

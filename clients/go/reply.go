package truce

import (
	"encoding/binary"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Reply is the document that an operation returns, or a document in it, as BSON.
type Reply bson.Raw

// MarshalBSON returns the reply, so that it can be a document of a call.
func (r Reply) MarshalBSON() ([]byte, error) { return r, nil }

func emptyReply() Reply { return Reply{5, 0, 0, 0, 0} }

// Decode reads the reply into a struct or map, as bson.Unmarshal does.
func (r Reply) Decode(value any) error { return bson.Unmarshal(r, value) }

// Lookup returns a field. Its Type is 0 if it does not exist.
func (r Reply) Lookup(path ...string) bson.RawValue {
	value, err := bson.Raw(r).LookupErr(path...)
	if err != nil {
		return bson.RawValue{}
	}
	return value
}

// Status is "ok"; with an error of the class ErrNotFound, it is "not found".
func (r Reply) Status() string { return r.Text("status") }

// Found returns whether the status is "ok", for replies of Command, which reports no ErrNotFound.
func (r Reply) Found() bool { return r.Status() == "ok" }

// Text returns a string, or "" if the field does not exist.
func (r Reply) Text(path ...string) string {
	text, _ := r.Lookup(path...).StringValueOK()
	return text
}

// Int returns a number, or 0 if the field does not exist.
func (r Reply) Int(path ...string) int64 {
	number, _ := r.Lookup(path...).AsInt64OK()
	return number
}

// Bool returns a boolean, or false if the field does not exist.
func (r Reply) Bool(path ...string) bool {
	flag, _ := r.Lookup(path...).BooleanOK()
	return flag
}

// ID returns an ObjectId, or the zero ObjectId if the field does not exist.
func (r Reply) ID(path ...string) bson.ObjectID {
	id, _ := r.Lookup(path...).ObjectIDOK()
	return id
}

// Document returns a document, or nil if the field does not exist.
func (r Reply) Document(path ...string) Reply {
	document, _ := r.Lookup(path...).DocumentOK()
	return Reply(document)
}

// The reply of a find in one batch begins with these bytes, except the lengths in it. The array
// follows.
const findReply = "\x00\x00\x00\x00\x03cursor\x00\x00\x00\x00\x00\x04firstBatch\x00\x00\x00\x00\x00"

// first returns the document in the reply of a find of at most one document, or nil.
func (r Reply) first() bson.Raw {
	const start = len(findReply)
	if len(r) < start+8 || string(r[4:12]) != findReply[4:12] ||
		string(r[16:start-4]) != findReply[16:start-4] || string(r[start:start+3]) != "\x030\x00" {
		return bson.Raw(r.Document("cursor", "firstBatch", "0"))
	}
	document := r[start+3:]
	size := binary.LittleEndian.Uint32(document)
	if size > uint32(len(document)) {
		return nil
	}
	return bson.Raw(document[:size:size])
}

// Documents returns an array of documents, or nil if the field does not exist.
func (r Reply) Documents(path ...string) []Reply {
	array, is := r.Lookup(path...).ArrayOK()
	if !is {
		return nil
	}
	return documentsOf[Reply](array)
}

func documentsOf[Document ~[]byte](array bson.RawArray) []Document {
	values, _ := array.Values()
	documents := make([]Document, 0, len(values))
	for _, value := range values {
		if document, is := value.DocumentOK(); is {
			documents = append(documents, Document(document))
		}
	}
	return documents
}

// String returns the reply as Extended JSON.
func (r Reply) String() string {
	if len(r) == 0 {
		return "no reply"
	}
	text, err := bson.MarshalExtJSON(bson.Raw(r), false, false)
	if err != nil {
		return fmt.Sprintf("invalid reply: %v", err)
	}
	return string(text)
}

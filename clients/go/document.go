package truce

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Forever is a duration without an end, for options that say so.
const Forever = -time.Millisecond

func decimal(n int) string { return strconv.Itoa(n) }

// Ptr returns a pointer to a value, for options whose zero differs from an absent value.
func Ptr[T any](value T) *T { return &value }

// A document is BSON that is being built: the fields of a command, in order. Each method omits an
// absent value; put... never does. finish returns the first error.
type document struct {
	buf []byte
	err error
}

func newDocument() *document {
	return &document{buf: make([]byte, 4, 256)}
}

// finish returns the document. It must not be changed after that.
func (d *document) finish() (bson.Raw, error) {
	if d.err != nil {
		return nil, d.err
	}
	if len(d.buf) > math.MaxInt32-1 {
		return nil, fail(ErrLimit, 10334, "the command has more than 2 GB")
	}
	d.buf = append(d.buf, 0)
	binary.LittleEndian.PutUint32(d.buf, uint32(len(d.buf)))
	return d.buf, nil
}

func (d *document) key(kind bson.Type, name string) {
	if strings.IndexByte(name, 0) >= 0 {
		d.fault(strconv.Quote(name), errors.New("the name has a null byte"))
	}
	d.buf = append(d.buf, byte(kind))
	d.buf = append(d.buf, name...)
	d.buf = append(d.buf, 0)
}

func (d *document) putText(name, text string) {
	d.key(bson.TypeString, name)
	d.buf = binary.LittleEndian.AppendUint32(d.buf, uint32(len(text)+1))
	d.buf = append(d.buf, text...)
	d.buf = append(d.buf, 0)
}

func (d *document) text(name, text string) {
	if text != "" {
		d.putText(name, text)
	}
}

func (d *document) textOrOne(name, text string) {
	if text == "" {
		d.putNumber(name, 1)
	} else {
		d.putText(name, text)
	}
}

func (d *document) putInt32(name string, number int32) {
	d.key(bson.TypeInt32, name)
	d.buf = binary.LittleEndian.AppendUint32(d.buf, uint32(number))
}

func (d *document) putNumber(name string, number int64) {
	d.key(bson.TypeInt64, name)
	d.buf = binary.LittleEndian.AppendUint64(d.buf, uint64(number))
}

func (d *document) number(name string, number int64) {
	if number != 0 {
		d.putNumber(name, number)
	}
}

func (d *document) putFlag(name string, flag bool) {
	d.key(bson.TypeBoolean, name)
	if flag {
		d.buf = append(d.buf, 1)
	} else {
		d.buf = append(d.buf, 0)
	}
}

func (d *document) flag(name string, flag bool) {
	if flag {
		d.putFlag(name, true)
	}
}

// checkDuration refuses a duration that is not zero and below one millisecond: it is usually a
// number that lacks its unit.
func checkDuration(name string, duration time.Duration) error {
	if duration == 0 || duration.Abs() >= time.Millisecond {
		return nil
	}
	return fail(ErrInvalid, 2, fmt.Sprintf(
		"%s is %v, which is below one millisecond: write for example %d * time.Second", name, duration,
		int64(duration.Abs())))
}

// milliseconds rounds up, so that a short duration does not become zero.
func milliseconds(duration time.Duration) int64 {
	rounded := duration.Milliseconds()
	if duration > 0 && duration%time.Millisecond > 0 {
		rounded++
	}
	return rounded
}

func (d *document) putDuration(name string, duration time.Duration) {
	d.putNumber(name, milliseconds(duration))
}

func (d *document) duration(name string, duration time.Duration) {
	if duration != 0 {
		d.putDuration(name, duration)
	}
}

func (d *document) putID(name string, id bson.ObjectID) {
	d.key(bson.TypeObjectID, name)
	d.buf = append(d.buf, id[:]...)
}

func (d *document) putDocument(name string, raw bson.Raw) {
	d.key(bson.TypeEmbeddedDocument, name)
	d.buf = append(d.buf, raw...)
}

func (d *document) putRaw(name string, value bson.RawValue) {
	d.key(value.Type, name)
	d.buf = append(d.buf, value.Value...)
}

// value appends any value that package bson can encode. It omits nil.
func (d *document) value(name string, value any) {
	if value != nil {
		d.putValue(name, value)
	}
}

// putValue encodes as package bson does, and sorts the keys of maps (marshal.go). The common types
// do not need its reflection.
func (d *document) putValue(name string, value any) {
	switch value := value.(type) {
	case nil:
		d.key(bson.TypeNull, name)
	case string:
		d.putText(name, value)
	case bool:
		d.putFlag(name, value)
	case int:
		if value == int(int32(value)) {
			d.putInt32(name, int32(value))
		} else {
			d.putNumber(name, int64(value))
		}
	case int32:
		d.putInt32(name, value)
	case int64:
		d.putNumber(name, value)
	case float64:
		d.key(bson.TypeDouble, name)
		d.buf = binary.LittleEndian.AppendUint64(d.buf, math.Float64bits(value))
	case bson.ObjectID:
		d.putID(name, value)
	case time.Time:
		d.key(bson.TypeDateTime, name)
		d.buf = binary.LittleEndian.AppendUint64(d.buf, uint64(value.UnixMilli()))
	case Reply:
		d.putValue(name, bson.Raw(value))
	case bson.Raw:
		if err := value.Validate(); err != nil {
			d.fault(name, err)
			return
		}
		d.putDocument(name, value)
	case bson.D:
		if value == nil {
			d.key(bson.TypeNull, name)
			return
		}
		start := d.begin(bson.TypeEmbeddedDocument, name)
		for _, element := range value {
			d.putValue(element.Key, element.Value)
		}
		d.end(start)
	case bson.M:
		if value == nil {
			d.key(bson.TypeNull, name)
			return
		}
		start := d.begin(bson.TypeEmbeddedDocument, name)
		for _, key := range slices.Sorted(maps.Keys(value)) {
			d.putValue(key, value[key])
		}
		d.end(start)
	case bson.A:
		putArray(d, name, value)
	case []bson.M:
		putArray(d, name, value)
	case []Reply:
		putArray(d, name, value)
	default:
		kind, data, err := marshalValue(value)
		if err != nil {
			d.fault(name, err)
			return
		}
		d.key(kind, name)
		d.buf = append(d.buf, data...)
	}
}

func putArray[T any](d *document, name string, values []T) {
	if values == nil {
		d.key(bson.TypeNull, name)
		return
	}
	start := d.begin(bson.TypeArray, name)
	for i, value := range values {
		d.putValue(decimal(i), value)
	}
	d.end(start)
}

func (d *document) fault(name string, err error) {
	d.refuse(fmt.Sprintf("field %s: %v", name, err))
}

func (d *document) refuse(message string) {
	if d.err == nil {
		d.err = fail(ErrInvalid, 2, message)
	}
}

// begin starts a document or array within; end closes it.
func (d *document) begin(kind bson.Type, name string) int {
	d.key(kind, name)
	d.buf = append(d.buf, 0, 0, 0, 0)
	return len(d.buf) - 4
}

func (d *document) end(start int) {
	d.buf = append(d.buf, 0)
	binary.LittleEndian.PutUint32(d.buf[start:], uint32(len(d.buf)-start))
}

// A command is a document whose first field is the name of the command.
type command struct {
	document
	name string
	// It changes something, so that its outcome is unknown if its reply is lost.
	writes bool
	// It can be sent again if its reply is lost.
	again bool
	// It only reads, and leaves no cursor, so that it can run again after a short deadline.
	quick bool
}

// call describes the call for errors: `insert of "students"`.
func (c *command) call() string {
	short := strings.TrimPrefix(c.name, "truce")
	value := 5 + len(c.name) + 1 // After the length, the type, and the name.
	if len(c.buf) < value+4 || bson.Type(c.buf[4]) != bson.TypeString {
		return short
	}
	end := value + 4 + int(binary.LittleEndian.Uint32(c.buf[value:])) - 1
	return fmt.Sprintf("%s of %q", short, c.buf[value+4:end])
}

func newCommand(name string, writes, again bool) *command {
	quick := again && !writes
	return &command{document{buf: make([]byte, 4, 256)}, name, writes, again, quick}
}

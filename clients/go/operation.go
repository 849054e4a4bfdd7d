package truce

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// An operation is a row of the table of operations.
type operation struct {
	name string
	// It changes something.
	writes bool
	// It can be sent again if its reply is lost.
	again bool
}

// operate runs an operation. The target is the value of its first field, and options a pointer to a
// struct, or nil. The status "not found" is an error, because the accessors of a Reply return zero
// for a field that it lacks.
func (db *Database) operate(
	ctx context.Context, o operation, target, options any,
) (Reply, error) {
	c := newCommand(o.name, o.writes, o.again)
	if o.name == "truceCommit" {
		c.putOptions(optionField{name: o.name, shown: "changes"}, target)
	} else {
		c.putValue(o.name, target)
	}
	c.options(options)
	reply, err := db.run(ctx, c)
	if note := reply.Text("note"); note != "" && o.name != "truceClaim" { // a worker logs that of its claim
		slog.Warn("truce: " + note)
	}
	if err == nil && reply.Status() == string(ErrNotFound) {
		err = notFound(o.name, reply)
	}
	return reply, withNames(err, options)
}

// operate adds an operation to the commit.
func (c *Changes) operate(name string, target, options any) *Change {
	d := newDocument()
	d.putValue(name, target)
	d.options(options)
	change := c.add(d)
	change.options = options
	return change
}

// orOne returns the target, or 1 for an empty one.
func orOne(target string) any {
	if target == "" {
		return 1
	}
	return target
}

// An optionField is a field of a struct of options. Its tag has the name of the field of the
// command: `truce:"leaseMS"`. A zero value is absent, unless the field is `truce:"seq,always"`. A field
// `truce:"jobs,options"` is a slice of documents, each with the options of a job or a transaction.
type optionField struct {
	name    string
	always  bool
	options bool
	// The name of the field of the struct.
	shown string
}

// The fields of a struct of options by its type.
var optionFields sync.Map

func optionFieldsOf(kind reflect.Type) []optionField {
	if found, is := optionFields.Load(kind); is {
		return found.([]optionField)
	}
	fields := make([]optionField, kind.NumField())
	for i := range fields {
		name, rest, _ := strings.Cut(kind.Field(i).Tag.Get("truce"), ",")
		fields[i] = optionField{name, rest == "always", rest == "options", kind.Field(i).Name}
	}
	optionFields.Store(kind, fields)
	return fields
}

// options appends the fields of a struct of options.
func (d *document) options(options any) {
	if options == nil {
		return
	}
	d.amounts(options)
	value := reflect.ValueOf(options).Elem()
	for i, field := range optionFieldsOf(value.Type()) {
		if given := value.Field(i); field.always || !given.IsZero() {
			d.option(field, given.Addr().Interface())
		}
	}
}

// option appends the value that a pointer has the address of.
func (d *document) option(field optionField, pointer any) {
	name := field.name
	switch value := pointer.(type) {
	case *string:
		d.putText(name, *value)
	case *bool:
		d.putFlag(name, *value)
	case *int64:
		d.putNumber(name, *value)
	case **int64:
		d.putNumber(name, **value)
	case *time.Duration:
		d.optionDuration(field, *value)
	case **time.Duration:
		d.optionDuration(field, **value)
	case *time.Time:
		if !value.IsZero() { // Compared by IsZero, because a zero time with a location is no zero struct.
			d.putNumber(name, value.UnixMilli())
		}
	case *bson.ObjectID:
		d.putID(name, *value)
	case *any:
		if field.options {
			d.putOptions(field, *value)
		} else {
			d.putValue(name, *value)
		}
	default:
		panic(fmt.Sprintf("%s: options of type %T", name, pointer))
	}
}

func (d *document) optionDuration(field optionField, duration time.Duration) {
	if err := checkDuration(field.shown, duration); err != nil && d.err == nil {
		d.err = err
	}
	d.putDuration(field.name, duration)
}

// putOptions appends a slice of documents with options. Their durations and points in time become the
// milliseconds of commands; package bson encodes a duration as nanoseconds, and a time as a date.
func (d *document) putOptions(field optionField, list any) {
	value := reflect.ValueOf(list)
	if value.Kind() != reflect.Slice || value.Type().Elem().Kind() == reflect.Uint8 || value.IsNil() {
		d.putValue(field.name, list)
		return
	}
	start := d.begin(bson.TypeArray, field.name)
	for i := range value.Len() {
		where := fmt.Sprintf("%s[%d]", field.shown, i)
		d.putValue(decimal(i), d.withMilliseconds(where, value.Index(i)))
	}
	d.end(start)
}

// withMilliseconds returns a document with converted options. It converts maps and a bson.D.
func (d *document) withMilliseconds(where string, given reflect.Value) any {
	value := given
	for (value.Kind() == reflect.Interface || value.Kind() == reflect.Pointer) && !value.IsNil() {
		value = value.Elem()
	}
	if value.IsValid() && value.Type() == reflect.TypeFor[bson.D]() {
		list := slices.Clone(value.Interface().(bson.D))
		for i, one := range list {
			list[i].Value = d.optionMilliseconds(where, one.Key, one.Value)
		}
		return list
	}
	switch {
	case value.Kind() == reflect.Map && value.Type().Key().Kind() == reflect.String && !value.IsNil():
		options := bson.M{}
		for name, one := range value.Seq2() {
			options[name.String()] = d.optionMilliseconds(where, name.String(), one.Interface())
		}
		return options
	case value.Kind() == reflect.Struct:
		for i := range value.NumField() {
			if field := value.Type().Field(i); field.Type == reflect.TypeFor[time.Duration]() {
				d.refuse(fmt.Sprintf("%s of %s is a time.Duration in a struct: expected a bson.M, or "+
					"milliseconds as an int64", field.Name, where))
			}
		}
	}
	return given.Interface()
}

func (d *document) optionMilliseconds(where, name string, value any) any {
	if !strings.HasSuffix(name, "MS") && !strings.HasSuffix(name, "_ms") {
		return value
	}
	switch value := value.(type) {
	case time.Duration:
		if err := checkDuration(name+" of "+where, value); err != nil && d.err == nil {
			d.err = err
		}
		return milliseconds(value)
	case time.Time:
		return value.UnixMilli()
	}
	return value
}

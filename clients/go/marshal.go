package truce

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Go iterates over a map in random order. The identity of a commit with a key, and of other
// repeated calls, is the BSON of their content, so maps are encoded with sorted keys. Package bson
// encodes a map that is inlined in a struct together with the struct, after its other fields.

var (
	mapEncoder     = encoderOf(bson.NewRegistry(), bson.M{})
	structEncoder  = encoderOf(bson.NewRegistry(), struct{}{})
	rawEncoder     = encoderOf(bson.NewRegistry(), bson.Raw{})
	sortedRegistry = makeSortedRegistry()
	// The index of the inlined map by the type of a struct, or -1.
	inlinedMaps sync.Map
)

func encoderOf(registry *bson.Registry, value any) bson.ValueEncoder {
	encoder, err := registry.LookupEncoder(reflect.TypeOf(value))
	if err != nil {
		panic(err) // The default registry has encoders of these types.
	}
	return encoder
}

func makeSortedRegistry() *bson.Registry {
	registry := bson.NewRegistry()
	registry.RegisterKindEncoder(reflect.Map, bson.ValueEncoderFunc(encodeMap))
	registry.RegisterKindEncoder(reflect.Struct, bson.ValueEncoderFunc(encodeStruct))
	registry.RegisterInterfaceEncoder(reflect.TypeFor[error](), bson.ValueEncoderFunc(refuseError))
	return registry
}

// refuseError encodes no error: most of them have no exported field, so package bson writes {}.
func refuseError(_ bson.EncodeContext, w bson.ValueWriter, value reflect.Value) error {
	kind := value.Kind()
	if (kind == reflect.Interface || kind == reflect.Pointer) && value.IsNil() {
		return w.WriteNull()
	}
	return fmt.Errorf("an error (%v) is not a value of BSON: store its text", value.Type())
}

// encodeMap encodes a map as package bson does, and sorts the fields.
func encodeMap(ec bson.EncodeContext, w bson.ValueWriter, value reflect.Value) error {
	return encodeSorted(mapEncoder, value.Len(), ec, w, value)
}

// encodeStruct encodes a struct as package bson does, and sorts the fields of an inlined map.
func encodeStruct(ec bson.EncodeContext, w bson.ValueWriter, value reflect.Value) error {
	count := 0
	if index := inlinedMap(value.Type()); index >= 0 {
		count = value.Field(index).Len()
	}
	return encodeSorted(structEncoder, count, ec, w, value)
}

// inlinedMap returns the index of the field that is a map and has the option "inline", or -1.
func inlinedMap(kind reflect.Type) int {
	if found, is := inlinedMaps.Load(kind); is {
		return found.(int)
	}
	found := -1
	for i := range kind.NumField() {
		field := kind.Field(i)
		tag, is := field.Tag.Lookup("bson")
		if !is && !strings.Contains(string(field.Tag), ":") {
			tag = string(field.Tag) // Package bson does the same.
		}
		inlined := slices.Contains(strings.Split(tag, ","), "inline")
		if inlined && field.IsExported() && field.Type.Kind() == reflect.Map {
			found = i
		}
	}
	inlinedMaps.Store(kind, found)
	return found
}

// encodeSorted encodes a value by an encoder, and sorts the last `count` fields.
func encodeSorted(
	encoder bson.ValueEncoder, count int, ec bson.EncodeContext, w bson.ValueWriter,
	value reflect.Value,
) error {
	if count < 2 {
		return encoder.EncodeValue(ec, w, value)
	}
	var unsorted bytes.Buffer
	if err := encoder.EncodeValue(ec, bson.NewDocumentWriter(&unsorted), value); err != nil {
		return err
	}
	elements, err := bson.Raw(unsorted.Bytes()).Elements()
	if err != nil {
		return err
	}
	slices.SortStableFunc(elements[len(elements)-count:], func(a, b bson.RawElement) int {
		return strings.Compare(a.Key(), b.Key())
	})
	d := &document{buf: make([]byte, 4, unsorted.Len())}
	for _, element := range elements {
		d.buf = append(d.buf, element...)
	}
	sorted, err := d.finish()
	if err != nil {
		return err
	}
	return rawEncoder.EncodeValue(ec, w, reflect.ValueOf(sorted))
}

// marshal encodes a document as bson.Marshal does, and sorts the keys of maps.
func marshal(value any) (bson.Raw, error) {
	var encoded bytes.Buffer
	encoder := bson.NewEncoder(bson.NewDocumentWriter(&encoded))
	encoder.SetRegistry(sortedRegistry)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return encoded.Bytes(), nil
}

// marshalValue encodes a value as bson.MarshalValue does, and sorts the keys of maps.
func marshalValue(value any) (bson.Type, []byte, error) {
	raw, err := marshal(bson.D{{Value: value}})
	if err != nil {
		return 0, nil, err
	}
	element := raw[4 : len(raw)-1] // The type, an empty name, and the value.
	return bson.Type(element[0]), element[2:], nil
}

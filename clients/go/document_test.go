package truce

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

type inner struct {
	N int `bson:"n"`
}

func TestFloatingPointAmountsAreRefused(t *testing.T) {
	type entry struct {
		Account string
		Value   float64
	}
	for _, one := range []struct {
		options any
		where   string
	}{
		{&LedgerPostOptions{ID: 1, Entries: []bson.M{{"value": -12}, {"value": 12.0}}}, "Entries[1] is the float64 12:"},
		{&LedgerPostOptions{ID: 1, Entries: []any{bson.D{{Key: "value", Value: 12.5}}}}, "Entries[0] is the float64 12.5:"},
		{&LedgerPostOptions{ID: 1, Entries: []entry{{"a", 12}}}, "Entries[0] is the float64 12:"},
		{&LedgerPostManyOptions{Transactions: []bson.M{{"id": 1}, {"entries": []bson.M{{"value": 3.0}}}}},
			"Transactions[1], entries[0] is the float64 3:"},
		{&LedgerPostOptions{ID: 1, Entries: []bson.M{{"value": int64(12)}, {"value": "12.50"}}, Meta: bson.M{"value": 1.5}}, ""},
		{&LedgerPostOptions{ID: 1, Of: 2, Kind: "settle"}, ""},
	} {
		d := newDocument()
		d.options(one.options)
		_, err := d.finish()
		if (err == nil) != (one.where == "") || (err != nil && !strings.Contains(err.Error(), one.where)) {
			t.Errorf("%v: error %v, not %q", one.options, err, one.where)
		}
	}
}

func TestValuesAreEncodedAsByPackageBSON(t *testing.T) {
	id := bson.NewObjectID()
	raw, _ := bson.Marshal(bson.D{{Key: "a", Value: 1}})
	for _, value := range []any{
		nil, "text", "", true, false, 0, -1,
		math.MaxInt32, math.MinInt32, math.MaxInt32 + 1, math.MinInt64,
		int32(7), int64(7), uint8(7), uint64(7), 1.5, math.Inf(1), id, &id, time.Now(), time.Time{},
		bson.Raw(raw), bson.D{}, bson.D(nil), bson.M{}, bson.M(nil), bson.A{}, bson.A(nil),
		[]int{1, 2}, []string(nil),
		bson.D{{Key: "a", Value: bson.A{1, "b", nil, bson.M{"c": bson.D{{Key: "d", Value: true}}}}}},
		inner{3}, &inner{3}, (*inner)(nil), map[string]int{"a": 1},
		bson.Regex{Pattern: "a", Options: "i"},
		bson.Null{}, bson.Binary{Data: []byte{1}}, []byte{1}, bson.DateTime(5), time.Second,
	} {
		expected, err := bson.Marshal(bson.D{{Key: "v", Value: value}})
		if err != nil {
			t.Fatal(err)
		}
		d := newDocument()
		d.putValue("v", value)
		got, err := d.finish()
		if err != nil || !bytes.Equal(got, expected) {
			t.Errorf("%T %v: got %v, not %v, error %v", value, value, got, bson.Raw(expected), err)
		}
	}
	for _, value := range []any{func() {}, make(chan int), bson.Raw{1}, bson.M{"a\x00b": 1}} {
		d := newDocument()
		d.putValue("v", value)
		if _, err := d.finish(); err == nil {
			t.Errorf("%T was accepted", value)
		}
	}
}

func TestMapsAreEncodedWithSortedKeys(t *testing.T) {
	type named map[string]int
	long := named{"c": 3, "a": 1, "b": 2}
	type inlined struct {
		Z    int   `bson:"z"`
		More named `bson:",inline"`
		Y    int   `bson:"y"`
	}
	type outer struct {
		More map[string]any `bson:",inline"`
	}
	sorted := `{"a":1,"b":2,"c":3}`
	for expected, value := range map[string]any{
		sorted:                             bson.M{"c": 3, "a": 1, "b": 2},
		sorted + " ":                       long,
		`{"v":` + sorted + `}`:             bson.M{"v": long},
		`{"v":[` + sorted + `]}`:           bson.D{{Key: "v", Value: []named{long}}},
		`{"v":[` + sorted + `,null]}`:      bson.D{{Key: "v", Value: []bson.M{{"c": 3, "a": 1, "b": 2}, nil}}},
		`{"n":` + sorted + `}`:             struct{ N any }{long},
		`{"z":1,"y":2,"a":1,"b":2,"c":3}`:  &inlined{1, long, 2},
		`{"z":1,"y":2}`:                    inlined{1, nil, 2},
		`{"v":{"z":{"a":1},"zz":2}}`:       bson.M{"v": outer{bson.M{"zz": 2, "z": bson.M{"a": 1}}}},
		`{"1":{"x":"1","y":"2"},"2":null}`: map[int]map[string]string{2: nil, 1: {"y": "2", "x": "1"}},
	} {
		for range 50 {
			d := newDocument()
			d.putValue("v", value)
			built, err := d.finish()
			if err != nil {
				t.Fatal(err)
			}
			raw, err := marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			got := Reply(raw).String()
			if got != strings.TrimSpace(expected) || !bytes.Equal(Reply(built).Document("v"), raw) {
				t.Fatalf("%T: got %s and %s, expected %s", value, got, Reply(built), expected)
			}
		}
	}
}

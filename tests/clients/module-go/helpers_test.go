// The Go package, as an application uses it: in process on a file, and through a server
// (TRUCE_TEST_CLIENT_URI) with the same tests.
package module

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"truce.invalid/truce"
)

type M = bson.M
type D = bson.D

var ctx = context.Background()

// each runs a test in process and through a server.
func each(t *testing.T, run func(t *testing.T, db *truce.Database)) {
	t.Run("in_process", func(t *testing.T) { run(t, file(t)) })
	t.Run("server", func(t *testing.T) { run(t, server(t)) })
}

func file(t testing.TB) *truce.Database {
	t.Helper()
	db, err := truce.Open(filepath.Join(t.TempDir(), "school.truce"), truce.OpenOptions{Database: "school"})
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	return db
}

func server(t testing.TB) *truce.Database {
	t.Helper()
	uri := os.Getenv("TRUCE_TEST_CLIENT_URI")
	if uri == "" {
		t.Skip("TRUCE_TEST_CLIENT_URI is not set")
	}
	db, err := truce.Connect(uri)
	must(t, err)
	own := db.Use("go_" + bson.NewObjectID().Hex())
	t.Cleanup(func() {
		must(t, own.Drop(ctx))
		must(t, db.Close())
	})
	return own
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ok returns the reply of a call that must succeed: ok(db.Jobs(...))(t).
func ok[T any](value T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return value
	}
}

func same(t testing.TB, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) && fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("got %v, expected %v", got, want)
	}
}

// fails checks the class of an error, and returns it.
func fails(t testing.TB, err error, class truce.Class) *truce.Error {
	t.Helper()
	var e *truce.Error
	if !errors.Is(err, class) || !errors.As(err, &e) {
		t.Fatalf("got the error %v, expected the class %q", err, class)
	}
	return e
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("%s: not within 20 seconds", what)
}

// list returns one field of all rows.
func list[Row ~[]byte](t testing.TB, rows func(func(Row, error) bool), field ...string) []any {
	t.Helper()
	var values []any
	for row, err := range rows {
		must(t, err)
		var value any
		must(t, truce.Reply(row).Lookup(field...).Unmarshal(&value))
		values = append(values, value)
	}
	return values
}

// field returns a field of a document by its _id.
func field(t testing.TB, db *truce.Database, collection string, id any, name string) any {
	t.Helper()
	var found M
	must(t, db.Collection(collection).FindOne(ctx, M{"_id": id}).Decode(&found))
	return found[name]
}

// Go's driver: what programs do with it, against the servers of tests/clients/run.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"runtime"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/version"
)

var (
	passed, failed int
	ctx            = context.Background()
)

func equal(what string, found, wanted any) {
	if reflect.DeepEqual(found, wanted) {
		passed++
		return
	}
	failed++
	fmt.Printf("FAILED: %s: %v, not %v\n", what, found, wanted)
}

func check(err error) {
	if err != nil {
		fmt.Println("FAILED: Go driver:", err)
		os.Exit(1)
	}
}

func code(err error) int {
	var server mongo.ServerError
	if errors.As(err, &server) && len(server.ErrorCodes()) > 0 {
		return server.ErrorCodes()[0]
	}
	return 0
}

func number(c *mongo.Collection, ctx context.Context, id any) int {
	var found struct{ N int }
	check(c.FindOne(ctx, bson.M{"_id": id}).Decode(&found))
	return found.N
}

func crud(db *mongo.Database) {
	c := db.Collection("crud")
	check(c.Drop(ctx))
	_, err := c.InsertMany(ctx, []any{bson.M{"_id": 1, "n": 1}, bson.M{"_id": 2, "n": 2}, bson.M{"_id": 3, "n": 3}})
	check(err)
	update, err := c.UpdateMany(ctx, bson.M{"n": bson.M{"$gt": 1}}, bson.M{"$inc": bson.M{"n": 10}})
	check(err)
	equal("UpdateMany", update.ModifiedCount, int64(2))
	update, err = c.UpdateOne(ctx, bson.M{"_id": 9}, bson.M{"$set": bson.M{"n": 9}}, options.UpdateOne().SetUpsert(true))
	check(err)
	equal("upsert", update.UpsertedCount, int64(1))
	var found struct{ N int }
	check(c.FindOneAndUpdate(ctx, bson.M{"_id": 1}, bson.M{"$inc": bson.M{"n": 1}}, options.FindOneAndUpdate().SetReturnDocument(options.After)).Decode(&found))
	equal("FindOneAndUpdate", found.N, 2)
	count, err := c.CountDocuments(ctx, bson.M{})
	check(err)
	equal("CountDocuments", count, int64(4))
	bulk, err := c.BulkWrite(ctx, []mongo.WriteModel{
		mongo.NewInsertOneModel().SetDocument(bson.M{"_id": 20}),
		mongo.NewUpdateOneModel().SetFilter(bson.M{"_id": 20}).SetUpdate(bson.M{"$set": bson.M{"n": 1}}),
		mongo.NewDeleteManyModel().SetFilter(bson.M{"_id": bson.M{"$in": bson.A{2, 3}}})})
	check(err)
	equal("BulkWrite", []int64{bulk.InsertedCount, bulk.ModifiedCount, bulk.DeletedCount}, []int64{1, 1, 2})
	_, err = c.InsertOne(ctx, bson.M{"_id": 20})
	equal("a key that is taken", []any{code(err), mongo.IsDuplicateKeyError(err)}, []any{11000, true})
	var ids []int
	check(c.Distinct(ctx, "_id", bson.M{}, options.Distinct()).Decode(&ids))
	equal("Distinct", ids, []int{1, 9, 20})
}

func cursors(db *mongo.Database) {
	c := db.Collection("cursors")
	check(c.Drop(ctx))
	documents := make([]any, 1000)
	for i := range documents {
		documents[i] = bson.M{"_id": i}
	}
	_, err := c.InsertMany(ctx, documents)
	check(err)
	cursor, err := c.Find(ctx, bson.M{}, options.Find().SetBatchSize(7).SetSort(bson.M{"_id": 1}))
	check(err)
	n := 0
	for cursor.Next(ctx) {
		n++
	}
	check(cursor.Err())
	equal("getMore", n, 1000)
	cursor, err = c.Find(ctx, bson.M{}, options.Find().SetBatchSize(2))
	check(err)
	cursor.Next(ctx)
	check(cursor.Close(ctx))
	cursor, err = c.Aggregate(ctx, bson.A{bson.M{"$group": bson.M{"_id": nil, "n": bson.M{"$sum": "$_id"}}}})
	check(err)
	var sums []struct{ N int }
	check(cursor.All(ctx, &sums))
	equal("Aggregate", sums[0].N, 499500)
}

func indexes(db *mongo.Database) {
	c := db.Collection("indexes")
	check(c.Drop(ctx))
	name, err := c.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.D{{Key: "email", Value: 1}}, Options: options.Index().SetUnique(true)})
	check(err)
	equal("CreateOne", name, "email_1")
	specifications, err := c.Indexes().ListSpecifications(ctx)
	check(err)
	equal("ListSpecifications", len(specifications), 2)
	_, err = c.InsertMany(ctx, []any{bson.M{"email": "a"}, bson.M{"email": "a"}})
	equal("a unique index", []any{code(err), strings.Contains(fmt.Sprint(err), "index: email_1")}, []any{11000, true})
	check(c.Indexes().DropOne(ctx, "email_1"))
}

func transactions(client *mongo.Client, db *mongo.Database) {
	c := db.Collection("accounts")
	check(c.Drop(ctx))
	_, err := c.InsertMany(ctx, []any{bson.M{"_id": "a", "n": 10}, bson.M{"_id": "b", "n": 0}})
	check(err)
	session, err := client.StartSession()
	check(err)
	defer session.EndSession(ctx)
	_, err = session.WithTransaction(ctx, func(inner context.Context) (any, error) {
		for id, by := range map[string]int{"a": -1, "b": 1} {
			if _, err := c.UpdateOne(inner, bson.M{"_id": id}, bson.M{"$inc": bson.M{"n": by}}); err != nil {
				return nil, err
			}
		}
		equal("its own writes", number(c, inner, "b"), 1)
		equal("another client's view", number(c, ctx, "b"), 0)
		return nil, nil
	})
	check(err)
	equal("committed", []int{number(c, ctx, "a"), number(c, ctx, "b")}, []int{9, 1})
	_, err = session.WithTransaction(ctx, func(inner context.Context) (any, error) {
		if _, err := c.DeleteMany(inner, bson.M{}); err != nil {
			return nil, err
		}
		return nil, errors.New("undone")
	})
	count, _ := c.CountDocuments(ctx, bson.M{})
	equal("undone", []any{fmt.Sprint(err), count}, []any{"undone", int64(2)})
}

func files(db *mongo.Database) {
	bucket := db.GridFSBucket(options.GridFSBucket().SetName("gofiles").SetChunkSizeBytes(100000))
	content := bytes.Repeat([]byte("truce "), 100000)
	id, err := bucket.UploadFromStream(ctx, "a.bin", bytes.NewReader(content))
	check(err)
	stream, err := bucket.OpenDownloadStream(ctx, id)
	check(err)
	back, err := io.ReadAll(stream)
	check(err)
	equal("GridFS", bytes.Equal(back, content), true)
	check(bucket.Delete(ctx, id))
}

func access() {
	uri := os.Getenv("TRUCE_TEST_CLIENT_AUTH_URI")
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	check(err)
	var who struct {
		AuthInfo struct{ AuthenticatedUsers []struct{ User string } }
	}
	check(client.Database("admin").RunCommand(ctx, bson.M{"connectionStatus": 1}).Decode(&who))
	equal("logged in by TLS", who.AuthInfo.AuthenticatedUsers[0].User, "truce")
	check(client.Disconnect(ctx))
	client, err = mongo.Connect(options.Client().ApplyURI(strings.Replace(uri, ":secret@", ":wrong@", 1)))
	check(err)
	err = client.Ping(ctx, nil)
	equal("a wrong password", strings.Contains(fmt.Sprint(err), "AuthenticationFailed"), true)
	check(client.Disconnect(ctx))
}

// sidecar tests what a sidecar passes on (python/sidecar.py).
func sidecar(uri string) {
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	check(err)
	db := client.Database("shop")
	transactions(client, db)
	c := db.Collection("watched")
	stream, err := c.Watch(ctx, mongo.Pipeline{})
	check(err)
	_, err = c.InsertOne(ctx, bson.M{"_id": 1})
	check(err)
	equal("an event", stream.Next(ctx) && stream.Current.Lookup("operationType").StringValue() == "insert", true)
	token := stream.ResumeToken()
	check(stream.Close(ctx))
	_, err = c.UpdateOne(ctx, bson.M{"_id": 1}, bson.M{"$set": bson.M{"n": 2}})
	check(err)
	stream, err = c.Watch(ctx, mongo.Pipeline{}, options.ChangeStream().SetResumeAfter(token))
	check(err)
	equal("the next event", stream.Next(ctx) && stream.Current.Lookup("operationType").StringValue() == "update", true)
	check(stream.Close(ctx))
	check(client.Disconnect(ctx))
	fmt.Printf("sidecar with the Go driver %s (%s): %d passed, %d failed\n", version.Driver, runtime.Version(), passed, failed)
}

func main() {
	if uri := os.Getenv("TRUCE_TEST_SIDECAR_URI"); uri != "" {
		sidecar(uri)
		os.Exit(min(failed, 1))
	}
	sent := map[string]bson.Raw{}
	client, err := mongo.Connect(options.Client().ApplyURI(os.Getenv("TRUCE_TEST_CLIENT_URI")).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) { sent[e.CommandName] = bytes.Clone(e.Command) }}))
	check(err)
	db := client.Database("go")
	crud(db)
	_, err = sent["findAndModify"].LookupErr("txnNumber")
	equal("numbered", err, nil)
	cursors(db)
	indexes(db)
	transactions(client, db)
	files(db)
	equal("an unknown command", code(db.RunCommand(ctx, bson.M{"frobnicate": 1}).Err()), 59)
	check(db.CreateCollection(ctx, "valid", options.CreateCollection().SetValidator(bson.M{"n": bson.M{"$type": "int"}})))
	_, err = db.Collection("valid").InsertOne(ctx, bson.M{"n": "text"})
	equal("a validator", code(err), 121)
	check(db.Drop(ctx))
	check(client.Disconnect(ctx))
	access()
	fmt.Printf("Go driver %s (%s): %d passed, %d failed\n", version.Driver, runtime.Version(), passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}

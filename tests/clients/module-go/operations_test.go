package module

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"truce.invalid/truce"
)

func TestCommitsChangeAllOrNone(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		_, err := db.Collection("accounts").InsertMany(ctx, []M{{"_id": "a", "n": 9}, {"_id": "b", "n": 0}})
		must(t, err)
		move := func() *truce.Commit {
			c := db.Commit(truce.CommitOptions{})
			c.Update("accounts", "b", M{"$inc": M{"n": 5}})
			c.Update("accounts", "a", M{"$inc": M{"n": -5}}).If(M{"n": M{"$gte": 5}})
			return c
		}
		same(t, ok(move().Run(ctx))(t).Earlier, false)
		_, err = move().Run(ctx)
		same(t, fails(t, err, truce.ErrRefused).Code, 20)
		missing := db.Commit(truce.CommitOptions{})
		missing.Update("accounts", "z", M{"$inc": M{"n": -5}}).If(M{"n": M{"$gte": 5}})
		_, err = missing.Run(ctx)
		same(t, fails(t, err, truce.ErrNotFound).Code, 125)
		same(t, field(t, db, "accounts", "b", "n"), 5)

		when := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for _, earlier := range []bool{false, true} {
			c := db.Commit(truce.CommitOptions{Key: "k", KeyTime: when, Leave: M{"receipt": 1}})
			c.Insert("receipts", M{"_id": 1})
			result := ok(c.Run(ctx))(t)
			same(t, result.Earlier, earlier)
			if earlier {
				same(t, result.Result.Int("receipt"), 1)
			}
		}
		same(t, ok(db.CommitResult(ctx, "k"))(t).Int("result", "receipt"), 1)
		_, err = db.CommitResult(ctx, "none")
		fails(t, err, truce.ErrNotFound)

		c := db.Commit(truce.CommitOptions{})
		job := c.Enqueue("from commits", truce.EnqueueOptions{Payload: M{"n": 1}, Delay: time.Hour})
		c.Insert("accounts", M{"n": 1})
		c.Missing("accounts", "z")
		c.Require("accounts", "a").If(M{"n": M{"$lt": 9}})
		c.Hold("accounts", "b")
		c.Alter("accounts", "a", M{"n": bson.A{4, 14}})
		result := ok(c.Run(ctx))(t)
		same(t, job.Reply().Text("added"), "new")
		same(t, len(result.Inserted), 1)
		same(t, len(result.Results), 1)
		same(t, []any{result.Results[0].Int("change"), result.Results[0].Text("added")}, []any{1, "new"})
		same(t, list(t, db.IterateJobs(ctx, "from commits", truce.JobsOptions{}), "state"), []any{"delayed"})

		c = db.Commit(truce.CommitOptions{Key: "k", KeyTime: when})
		c.Insert("receipts", M{"_id": 2})
		_, err = c.Run(ctx)
		fails(t, err, truce.ErrDuplicate)
		c = db.Commit(truce.CommitOptions{Key: "k"})
		c.Insert("receipts", M{"_id": 2})
		_, err = c.Run(ctx)
		same(t, strings.HasPrefix(fails(t, err, truce.ErrInvalid).Message, "Key of a commit needs KeyTime"), true)
		_, err = db.Commit(truce.CommitOptions{KeyTime: when}).Run(ctx)
		same(t, fails(t, err, truce.ErrInvalid).Message, "KeyTime of a commit needs Key")
		_, err = db.Commit(truce.CommitOptions{}).Run(ctx)
		fails(t, err, truce.ErrInvalid)
		c = db.Commit(truce.CommitOptions{})
		c.Update("accounts", nil, M{"$inc": M{"n": 1}})
		_, err = c.Run(ctx)
		same(t, fails(t, err, truce.ErrInvalid).Message, `change 1: the id of update in "accounts" is nil`)
		_, err = db.CommitChanges(ctx, []M{{"truceJobStep": "q"}}, truce.CommitChangesOptions{})
		same(t, fails(t, err, truce.ErrInvalid).Message, "change 1: JobStep cannot be part of a commit")
		c = db.Commit(truce.CommitOptions{})
		c.Replace("accounts", "a", M{"n": func() {}})
		_, err = c.Run(ctx)
		fails(t, err, truce.ErrInvalid)
		_, err = db.CommitChanges(ctx, []M{{"change": "accounts", "id": "a", "with": M{"n": bson.A{9, 1}}}}, truce.CommitChangesOptions{})
		fails(t, err, truce.ErrConflict)
		_, err = db.CommitChanges(ctx, []M{{"dance": 1}}, truce.CommitChangesOptions{})
		fails(t, err, truce.ErrInvalid)
		_, err = db.Command(ctx, D{{Key: "truceSequence", Value: "s"}, {Key: "steps", Value: 1}})
		fails(t, err, truce.ErrInvalid)
		_, err = db.Command(ctx, D{{Key: "truceNothing", Value: 1}})
		fails(t, err, truce.ErrInvalid)
	})
}

// Go's maps have no order, so the client must sort their keys.
func TestRepeatedCallsWithMapsHaveTheSameContent(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		when := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		content := func() M {
			return M{"a": 1, "b": M{"c": 1, "d": 2, "e": map[string]any{"f": 1, "g": 2, "h": 3}},
				"i": []M{{"j": 1, "k": 2, "l": 3}}, "m": struct {
					N map[int]string `bson:"n"`
				}{map[int]string{1: "x", 2: "y", 3: "z"}}, "o": bson.D{{Key: "p", Value: M{"q": 1, "r": 2}}}}
		}
		_ = ok(db.LedgerOpen(ctx, "bank", truce.LedgerOpenOptions{Currency: "EUR", Digits: truce.Ptr[int64](2)}))(t)
		for _, account := range []string{"cash", "sales"} {
			_ = ok(db.LedgerOpen(ctx, "bank", truce.LedgerOpenOptions{Currency: "EUR", Account: account}))(t)
		}
		for round := range 200 {
			c := db.Commit(truce.CommitOptions{Key: "k", KeyTime: when, Leave: content()})
			c.Insert("things", content())
			c.Update("counters", 1, M{"$inc": M{"n": 1, "count": 1}, "$set": content()}).If(M{"x": 1, "y": 2})
			c.Enqueue("mail", truce.EnqueueOptions{Payload: content(), Metadata: content()})
			if round == 0 {
				_ = ok(db.Collection("counters").InsertOne(ctx, M{"_id": 1, "x": 1, "y": 2}))(t)
			}
			same(t, ok(c.Run(ctx))(t).Earlier, round > 0)
			c = db.Commit(truce.CommitOptions{Key: "by input", KeyTime: when, Input: content()})
			c.Insert("things", M{"round": round})
			same(t, ok(c.Run(ctx))(t).Earlier, round > 0)
			_ = ok(db.LedgerPost(ctx, "bank", truce.LedgerPostOptions{ID: "sale", Meta: content(), Entries: []M{
				{"account": "cash", "value": -5}, {"account": "sales", "value": 5},
			}}))(t)
		}
		same(t, ok(db.Collection("things").CountDocuments(ctx, M{}))(t), 2)
		same(t, field(t, db, "counters", 1, "n"), 1)
	})
}

func TestTransactionsRunAgainAfterAConflict(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		accounts := db.Collection("accounts")
		_, err := accounts.InsertMany(ctx, []M{{"_id": "a", "n": 0}, {"_id": "b", "n": 0}})
		must(t, err)
		must(t, db.Transact(ctx, func(tx *truce.Database) error {
			if _, err := tx.Collection("accounts").UpdateOne(ctx, M{"_id": "a"}, M{"$inc": M{"n": 100}}); err != nil {
				return err
			}
			c := tx.Commit(truce.CommitOptions{})
			c.Update("accounts", "b", M{"$inc": M{"n": 100}})
			if _, err := c.Run(ctx); err != nil {
				return err
			}
			cursor, err := tx.Collection("accounts").Find(ctx, M{}, truce.FindOptions{BatchSize: 1})
			if err != nil {
				return err
			}
			same(t, list(t, cursor.Each(ctx), "n"), []any{100, 100})
			fails(t, tx.Transact(ctx, nil), truce.ErrInvalid)
			fails(t, tx.Close(), truce.ErrInvalid)
			return nil
		}))
		same(t, field(t, db, "accounts", "b", "n"), 100)
		no := errors.New("no")
		err = db.Transact(ctx, func(tx *truce.Database) error {
			_, err := tx.Collection("accounts").UpdateOne(ctx, M{"_id": "b"}, M{"$inc": M{"n": 1}})
			must(t, err)
			return no
		})
		same(t, err, no)
		same(t, field(t, db, "accounts", "b", "n"), 100)
		tried := 0
		must(t, db.Transact(ctx, func(tx *truce.Database) error {
			tried++
			own := tx.Collection("accounts")
			if err := own.FindOne(ctx, M{"_id": "a"}).Err(); err != nil {
				return err
			}
			if tried == 1 {
				_, err := accounts.UpdateOne(ctx, M{"_id": "a"}, M{"$inc": M{"n": 1000}})
				must(t, err)
			}
			_, err := own.UpdateOne(ctx, M{"_id": "a"}, M{"$inc": M{"n": 2}})
			return err
		}))
		same(t, tried, 2)
		same(t, field(t, db, "accounts", "a", "n"), 1102)
	})
}

func TestDocumentsAreThoseOfTheDriver(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		type person struct {
			ID   any    `bson:"_id,omitempty"`
			N    int    `bson:"n"`
			Name string `bson:"name,omitempty"`
		}
		people := db.Collection("people")
		var documents []person
		for i := range 250 {
			documents = append(documents, person{ID: i, N: i % 3})
		}
		same(t, len(ok(people.InsertMany(ctx, documents))(t).InsertedIDs), 250)
		added := ok(people.InsertOne(ctx, person{Name: "x"}))(t).InsertedID
		if _, is := added.(bson.ObjectID); !is {
			t.Fatalf("%T", added)
		}
		same(t, ok(people.DeleteOne(ctx, M{"_id": added}))(t).DeletedCount, 1)
		cursor := ok(people.Find(ctx, M{}, truce.FindOptions{Sort: M{"_id": 1}, BatchSize: 60}))(t)
		var read []person
		must(t, cursor.All(ctx, &read))
		same(t, len(read), 250)
		same(t, read[249].ID, 249)
		cursor = ok(people.Find(ctx, M{"n": 0}, truce.FindOptions{Projection: M{"n": 1}, Sort: M{"_id": -1}, Skip: 1, Limit: 2}))(t)
		same(t, list(t, cursor.Each(ctx), "_id"), []any{246, 243})
		same(t, ok(people.CountDocuments(ctx, M{"n": 1}))(t), 83)
		same(t, len(ok(people.Distinct(ctx, "n", M{}))(t)), 3)
		pipeline := mongo.Pipeline{
			{{Key: "$group", Value: M{"_id": "$n", "all": M{"$sum": 1}}}}, {{Key: "$sort", Value: M{"_id": 1}}},
		}
		same(t, list(t, ok(people.Aggregate(ctx, pipeline))(t).Each(ctx), "all"), []any{84, 83, 83})

		result := ok(people.UpdateOne(ctx, M{"_id": 1}, M{"$set": M{"name": "Ada"}}))(t)
		same(t, []int64{result.MatchedCount, result.ModifiedCount, result.UpsertedCount}, []int64{1, 1, 0})
		result = ok(people.UpdateOne(ctx, M{"_id": "new"}, M{"$set": M{"name": "Bob"}}, truce.UpdateOptions{Upsert: true}))(t)
		same(t, []any{result.MatchedCount, result.UpsertedCount, result.UpsertedID}, []any{0, 1, "new"})
		same(t, ok(people.UpdateMany(ctx, M{"n": 0}, M{"$inc": M{"n": 3}}))(t).ModifiedCount, 84)
		same(t, ok(people.ReplaceOne(ctx, M{"_id": 1}, M{"name": "Eve"}))(t).ModifiedCount, 1)
		var after M
		must(t, people.FindOneAndUpdate(ctx, M{"_id": 1}, M{"$set": M{"age": 3}},
			truce.FindOneAndUpdateOptions{ReturnAfter: true}).Decode(&after))
		same(t, []any{after["_id"], after["name"], after["age"]}, []any{1, "Eve", 3})
		must(t, people.FindOneAndDelete(ctx, M{"_id": 1}).Err())
		same(t, people.FindOne(ctx, M{"_id": 1}).Decode(&after), mongo.ErrNoDocuments)
		same(t, people.FindOneAndReplace(ctx, M{"_id": 1}, M{"n": 1}).Err(), mongo.ErrNoDocuments)
		same(t, ok(people.DeleteMany(ctx, M{"n": 3}))(t).DeletedCount, 84)

		same(t, ok(people.CreateIndex(ctx, D{{Key: "name", Value: 1}}, truce.IndexOptions{Unique: true, Sparse: true}))(t), "name_1")
		same(t, list(t, ok(people.ListIndexes(ctx))(t).Each(ctx), "name"), []any{"_id_", "name_1"})
		_, err := people.InsertOne(ctx, M{"name": "Bob"})
		fails(t, err, truce.ErrDuplicate)
		same(t, mongo.IsDuplicateKeyError(err), true)
		_, err = people.InsertMany(ctx, []M{{"name": "Bob"}, {"_id": "after"}}, truce.InsertManyOptions{Unordered: true})
		fails(t, err, truce.ErrDuplicate)
		same(t, ok(people.CountDocuments(ctx, M{"_id": "after"}))(t), 1)
		must(t, people.DropIndex(ctx, "name_1"))

		for _, err := range []error{
			people.FindOne(ctx, M{"$nothing": 1}).Err(),
			people.FindOne(ctx, nil).Err(),
			people.FindOne(ctx, M{}, truce.FindOneOptions{}, truce.FindOneOptions{}).Err(),
			second(people.ReplaceOne(ctx, M{}, M{"$set": M{}})),
			second(people.UpdateOne(ctx, M{}, M{"n": 1})),
			second(people.UpdateOne(ctx, M{}, nil)),
			second(people.InsertMany(ctx, M{"a": 1})),
			second(people.InsertOne(ctx, nil)),
			second(people.InsertOne(ctx, "text")),
			second(people.CreateIndex(ctx, M{"a": 1, "b": 1})),
			second(people.Aggregate(ctx, M{"$match": M{}})),
			second(people.Find(ctx, "text")),
			second(people.Find(nil, M{})), //nolint:staticcheck // a mistake of a caller
		} {
			fails(t, err, truce.ErrInvalid)
		}
		_, err = people.UpdateOne(ctx, nil, M{"$set": M{"n": 1}})
		same(t, fails(t, err, truce.ErrInvalid).Message, "the filter is nil: bson.D{} matches all documents")
		cursor = ok(people.Find(ctx, M{}, truce.FindOptions{BatchSize: 2}))(t)
		same(t, cursor.Next(ctx), true)
		must(t, cursor.Close(ctx))
		same(t, cursor.Next(ctx), false)
		must(t, cursor.Close(ctx))
		same(t, strings.Contains(strings.Join(ok(db.ListCollectionNames(ctx))(t), " "), "people"), true)
		must(t, people.Drop(ctx))
		must(t, people.Drop(ctx))
		same(t, people.FindOne(ctx, M{}).Err(), mongo.ErrNoDocuments)
	})
}

func second[T any](_ T, err error) error { return err }

func TestSmallPatterns(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		reply := ok(db.Sequence(ctx, "orders", truce.SequenceOptions{Take: 3}))(t)
		same(t, []int64{reply.Int("first"), reply.Int("last")}, []int64{1, 3})
		var numbers struct{ First, Last int64 }
		must(t, ok(db.Sequence(ctx, "orders", truce.SequenceOptions{Take: 1}))(t).Decode(&numbers))
		same(t, numbers.First, 4)
		_ = ok(db.Request(ctx, "mail 1", truce.RequestOptions{Name: "mail", Input: M{"to": "ada"}}))(t)
		same(t, ok(db.RequestState(ctx, "mail 1"))(t).Text("request", "state"), "waiting")
		_, absent := db.RequestState(ctx, "x")
		fails(t, absent, truce.ErrNotFound)
		same(t, ok(db.Help(ctx, "truceClaim"))(t).Text("group"), "")
		same(t, len(ok(db.Help(ctx, ""))(t).Documents("commands")) > 80, true)

		one := M{"student_id": 1}
		set := func(o truce.SetOptions) truce.Reply {
			o.Field, o.Name = "classes", "name"
			return ok(db.Set(ctx, "students", o))(t)
		}
		same(t, set(truce.SetOptions{Key: one, Add: M{"name": "CS"}, Seq: 2}).Text("outcome"), "applied")
		same(t, set(truce.SetOptions{Key: one, Remove: M{"name": "CS"}, Seq: 1}).Text("outcome"), "stale")
		same(t, len(set(truce.SetOptions{Key: one}).Documents("members")), 1)
		same(t, len(set(truce.SetOptions{Apply: []M{{"add": M{"name": "x"}, "key": M{"student_id": 2}, "seq": 5}}}).Documents("results")), 1)

		same(t, ok(db.Revision(ctx, "posts", truce.RevisionOptions{Save: M{"_id": 1, "title": "a", "n": 0}}))(t).Int("version"), 1)
		mine := ok(db.Revision(ctx, "posts", truce.RevisionOptions{Get: 1}))(t).Document("document")
		_ = ok(db.Revision(ctx, "posts", truce.RevisionOptions{Save: M{"_id": 1, "title": "b", "n": 0}, Version: truce.Ptr[int64](1), Base: mine}))(t)
		late := truce.RevisionOptions{Version: truce.Ptr[int64](1), Base: mine, Keep: truce.Ptr[int64](5)}
		late.Save = M{"_id": 1, "title": "c", "n": 0}
		_, err := db.Revision(ctx, "posts", late)
		same(t, truce.Reply(fails(t, err, truce.ErrConflict).Reply).Int("version"), 2)
		same(t, err.Error(), `truce: document 1 of "posts" has version 2, and this change is based on version 1: both sides changed "title"`)
		late.Inbox = true
		_, err = db.Revision(ctx, "posts", late)
		same(t, fails(t, err, truce.ErrInvalid).Message, "Inbox is allowed only with Merge: Save does not merge")
		late.Save, late.Merge = nil, M{"_id": 1, "title": "c", "n": 0}
		_, err = db.Revision(ctx, "posts", late)
		same(t, fails(t, err, truce.ErrConflict).Conflicts()[0].Text("path"), "title")
		part := db.Commit(truce.CommitOptions{})
		part.Revision("posts", late)
		_, err = part.Run(ctx)
		same(t, fails(t, err, truce.ErrConflict).Conflicts()[0].Text("path"), "title")
		late.Merge = M{"_id": 1, "title": "a", "n": 5}
		same(t, ok(db.Revision(ctx, "posts", late))(t).Text("outcome"), "merged")

		_ = ok(db.LedgerOpen(ctx, "bank", truce.LedgerOpenOptions{Currency: "EUR", Digits: truce.Ptr[int64](2)}))(t)
		_ = ok(db.LedgerOpen(ctx, "bank", truce.LedgerOpenOptions{Currency: "EUR", Account: "cash", Min: truce.Ptr[int64](0)}))(t)
		_ = ok(db.LedgerOpen(ctx, "bank", truce.LedgerOpenOptions{Currency: "EUR", Account: "world"}))(t)
		post := func(id any, value int) (truce.Reply, error) {
			return db.LedgerPost(ctx, "bank", truce.LedgerPostOptions{
				ID: id, Entries: []M{{"account": "world", "value": -value}, {"account": "cash", "value": value}},
			})
		}
		same(t, []bool{ok(post(1, 1000))(t).Bool("exists"), ok(post(1, 1000))(t).Bool("exists")}, []bool{false, true})
		_, err = post(2, -1001)
		fails(t, err, truce.ErrLimit)
		for i := range 5 {
			_ = ok(post(10+i, -1))(t)
		}
		statement := db.IterateStatement(ctx, "bank", truce.LedgerStatementOptions{Account: "cash", Limit: 2})
		for range 2 { // an iterator can be used again
			same(t, list(t, statement, "value"), []any{0, 1000, -1, -1, -1, -1, -1})
		}
		for _, ledger := range []string{"bank", "bnak"} {
			reply, err := db.LedgerBalance(ctx, ledger, truce.LedgerBalanceOptions{Account: "nobody"})
			same(t, fails(t, err, truce.ErrNotFound).Code, 125)
			same(t, reply.Lookup("balance").Type, bson.Type(0))
		}
		_, absent = db.Revision(ctx, "posts", truce.RevisionOptions{Get: 9})
		fails(t, absent, truce.ErrNotFound)
		_, absent = db.Claim(ctx, "empty", truce.ClaimOptions{})
		fails(t, absent, truce.ErrNotFound)
		same(t, len(ok(db.ClaimJobs(ctx, "empty", truce.ClaimOptions{}))(t)), 0)

		_, err = db.Collection("purses").InsertMany(ctx, []M{{"_id": "a", "balance": 5}, {"_id": "b", "balance": 0}})
		must(t, err)
		transfer := truce.TransferOptions{Accounts: "purses", Source: "a", Destination: "b", Amount: 5}
		for id, class := range []truce.Class{"", truce.ErrRefused} {
			transfer.ID = id
			time.Sleep(2 * time.Millisecond) // they are sorted by the time of their change
			if _, err := db.Transfer(ctx, "moves", transfer); class == "" {
				must(t, err)
			} else {
				fails(t, err, class)
			}
		}
		same(t, list(t, db.IterateTransfers(ctx, "moves", truce.TransfersOptions{Limit: 1}), "_id"), []any{1, 0})

		_ = ok(db.SyncDeclare(ctx, "author", truce.SyncDeclareOptions{Source: "users", Dependent: "comments",
			Reference: "user", Copies: M{"author": "name"}, Settle: time.Millisecond}))(t)
		_, err = db.Collection("users").InsertOne(ctx, M{"_id": 17, "name": "John"})
		must(t, err)
		_ = ok(db.SyncInsert(ctx, "comments", truce.SyncInsertOptions{Document: M{"_id": 1, "user": 17}}))(t)
		same(t, ok(db.SyncUpdate(ctx, "users", truce.SyncUpdateOptions{ID: 17, Update: M{"$set": M{"name": "J"}}}))(t).Int("copies"), 1)
		same(t, field(t, db, "comments", 1, "author"), "J")
	})
}

func TestTreesHaveVersions(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		_, absent := db.TreeRead(ctx, "site", truce.TreeReadOptions{})
		fails(t, absent, truce.ErrNotFound)
		edit := ok(db.Edit(ctx, "site", truce.EditOptions{Message: "the first pages", Collection: "pages", Parent: "up"}))(t)
		edit.Put(M{"itemId": "home"})
		for i := range 7 {
			edit.Put(M{"itemId": i, "up": "home", "n": i % 2})
		}
		must(t, edit.Publish(ctx))
		same(t, edit.Version, 1)
		fails(t, edit.Publish(ctx), truce.ErrInvalid)
		mine, theirs := ok(db.Edit(ctx, "site"))(t), ok(db.Edit(ctx, "site"))(t)
		mine.Put(M{"itemId": "home", "title": "mine"})
		theirs.Put(M{"itemId": "home", "title": "theirs"})
		theirs.Remove(3)
		must(t, theirs.Publish(ctx))
		fails(t, mine.Publish(ctx), truce.ErrConflict)
		items := db.IterateTree(ctx, "site", truce.TreeReadOptions{Version: 1, Limit: 3})
		same(t, list(t, items, "itemId"), []any{0, 1, 2, 3, 4, 5, 6, "home"})
		items = db.IterateTree(ctx, "site", truce.TreeReadOptions{Filter: M{"n": M{"$gte": 0}}, Sort: M{"n": -1}, Version: 1, Limit: 2})
		same(t, list(t, items, "itemId"), []any{1, 3, 5, 0, 2, 4, 6})
		same(t, list(t, db.IterateTreeLog(ctx, "site", truce.TreeLogOptions{Limit: 1}), "version"), []any{2, 1})
		same(t, list(t, db.IterateTreeDiff(ctx, "site", truce.TreeDiffOptions{From: 1, To: 2, Limit: 1}), "itemId"), []any{3, "home"})
	})
}

func TestWatchReturnsChanges(t *testing.T) {
	db := server(t)
	watched := db.Collection("watched")
	stream := ok(watched.Watch(ctx, nil, truce.ChangeStreamOptions{MaxAwaitTime: 200 * time.Millisecond}))(t)
	_, err := watched.InsertOne(ctx, M{"_id": 1})
	must(t, err)
	same(t, stream.Next(ctx), true)
	same(t, truce.Reply(stream.Current).Int("documentKey", "_id"), 1)
	same(t, stream.TryNext(ctx), false)
	must(t, stream.Err())
	_, err = watched.InsertOne(ctx, M{"_id": 2})
	must(t, err)
	only := mongo.Pipeline{{{Key: "$match", Value: M{"operationType": "insert"}}}}
	resumed := ok(watched.Watch(ctx, only, truce.ChangeStreamOptions{ResumeAfter: stream.ResumeToken()}))(t)
	for change, err := range resumed.Each(ctx) {
		must(t, err)
		same(t, truce.Reply(change).Int("documentKey", "_id"), 2)
		break
	}
	must(t, stream.Close(ctx))
}

func TestFormsAreMerged(t *testing.T) {
	each(t, func(t *testing.T, db *truce.Database) {
		id, author := bson.NewObjectID(), bson.NewObjectID()
		price, _ := bson.ParseDecimal128("1.10")
		at := time.Date(1970, 1, 2, 0, 0, 0, 0, time.UTC)
		keep := truce.Ptr[int64](5)
		stored := D{{Key: "_id", Value: id}, {Key: "author", Value: author}, {Key: "title", Value: "a"}, {Key: "price", Value: price},
			{Key: "at", Value: at}, {Key: "ratio", Value: 2.0}, {Key: "big", Value: int64(1) << 40}, {Key: "data", Value: []byte("ab")},
			{Key: "tags", Value: bson.A{"x"}}, {Key: "comments", Value: bson.A{M{"at": at}}}}
		_ = ok(db.Revision(ctx, "posts", truce.RevisionOptions{Save: stored, Keep: keep}))(t)
		form := func(title, tags, comments string) []byte {
			return []byte(`{"_id": "` + id.Hex() + `", "author": "` + author.Hex() + `", "title": "` + title + `", "price": "1.10",
				"at": "1970-01-02T00:00:00.000Z", "ratio": 2, "big": 1099511627776, "data": "YWI=", "version": 1,
				"tags": ` + tags + `, "comments": [{"at": "1970-01-02T00:00:00.000Z"}` + comments + `]}`)
		}
		posts := db.Collection("posts")
		_ = ok(posts.Merge(ctx, form("a", `["x", "y"]`, ""), truce.MergeOptions{Version: 1, Keep: keep}))(t) // another editor
		merged := ok(posts.Merge(ctx, form("b", `["x"]`, `, {"at": "2026-03-01T09:00:00Z"}`), truce.MergeOptions{Version: 1, Keep: keep}))(t)
		same(t, []any{merged.Text("outcome"), merged.Int("version"), merged.Text("document", "title"), merged.Text("document", "tags", "1")},
			[]any{"merged", 3, "b", "y"})
		found := merged.Document("document")
		for name, kind := range map[string]bson.Type{"_id": bson.TypeObjectID, "author": bson.TypeObjectID, "price": bson.TypeDecimal128,
			"at": bson.TypeDateTime, "ratio": bson.TypeDouble, "big": bson.TypeInt64, "data": bson.TypeBinary} {
			same(t, found.Lookup(name).Type, kind)
		}
		same(t, found.Lookup("comments", "1", "at").Type, bson.TypeDateTime)
		extended := []byte(strings.Replace(found.String(), `"title":"b"`, `"title":"c"`, 1))
		same(t, ok(posts.Merge(ctx, extended, truce.MergeOptions{Version: 3, Keep: keep}))(t).Text("document", "title"), "c")
		_, err := posts.Merge(ctx, form("d", `["x"]`, ""), truce.MergeOptions{Version: 1, Keep: keep})
		same(t, fails(t, err, truce.ErrConflict).Conflicts()[0].Text("path"), "title")
		for _, wrong := range []any{[]byte("{"), "{", M{"title": "b"}, `{"title": "b"}`, 5} {
			_, err := posts.Merge(ctx, wrong, truce.MergeOptions{Version: 1})
			fails(t, err, truce.ErrInvalid)
		}
	})
}

func TestOpenRefusesWhatIsWrong(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "s.truce")
	_, err := truce.Open(path, truce.OpenOptions{MustExist: true})
	fails(t, err, truce.ErrNotFound)
	db := ok(truce.Open(path))(t)
	_, err = db.Collection("a").InsertOne(ctx, M{"_id": 1})
	must(t, err)
	must(t, db.Close())
	must(t, db.Close())
	_, err = db.Queues(ctx)
	fails(t, err, truce.ErrInvalid)
	db = ok(truce.Open(path, truce.OpenOptions{ReadOnly: true, CacheMB: 16}))(t)
	must(t, db.Collection("a").FindOne(ctx, M{}).Err())
	if _, err := db.Collection("a").InsertOne(ctx, M{}); err == nil {
		t.Fatal("a write to a store that was opened to read")
	}
	must(t, db.Close())
	db = ok(truce.Open("memory:"))(t)
	_, err = db.Use("a b").Queues(ctx)
	fails(t, err, truce.ErrInvalid)
	_, err = db.Use("a\x00b").Queues(ctx)
	fails(t, err, truce.ErrInvalid)
	must(t, db.Close())
	other := filepath.Join(folder, "text")
	must(t, os.WriteFile(other, []byte(strings.Repeat("no store", 1000)), 0o600))
	_, err = truce.Open(other)
	fails(t, err, truce.ErrCorrupt)
	newer := filepath.Join(folder, "newer")
	image := ok(os.ReadFile(path))(t)
	image[63]++ // the number of the format
	must(t, os.WriteFile(newer, image, 0o600))
	_, err = truce.Open(newer)
	fails(t, err, truce.ErrCorrupt)
	for _, o := range []truce.OpenOptions{{Deadline: -1}, {Deadline: 100 * 24 * time.Hour}, {CacheMB: -1}, {CacheMB: 3}} {
		_, err = truce.Open(path, o)
		fails(t, err, truce.ErrInvalid)
	}
	for path, hint := range map[string]string{
		"memory": `"memory:"`, ":memory:": `"memory:"`, "mongodb://ada:secret@127.0.0.1/x": "truce.Connect",
	} {
		_, err = truce.Open(path)
		fails(t, err, truce.ErrInvalid)
		if !strings.Contains(err.Error(), hint) || strings.Contains(err.Error(), "secret") {
			t.Error(err)
		}
	}
	for _, uri := range []string{"x.truce", "memory:", path} {
		_, err = truce.Connect(uri)
		fails(t, err, truce.ErrInvalid)
		if !strings.Contains(err.Error(), "truce.Open") {
			t.Error(err)
		}
	}
	_, err = truce.Open("")
	fails(t, err, truce.ErrInvalid)
	_, err = truce.Connect("http://example.org")
	fails(t, err, truce.ErrInvalid)
	same(t, ok(truce.Connect("mongodb://127.0.0.1:9/school?directConnection=true"))(t).Name(), "school")
	away := ok(truce.Connect("mongodb://127.0.0.1:9/test?directConnection=true&serverSelectionTimeoutMS=50"))(t)
	_, err = away.Claim(ctx, "q", truce.ClaimOptions{})
	fails(t, err, truce.ErrUnreachable)
	fails(t, away.Collection("a").FindOne(ctx, M{}).Err(), truce.ErrUnreachable)
	must(t, away.Close())
	_, err = away.Queues(ctx)
	if e := fails(t, err, truce.ErrInvalid); !strings.Contains(e.Message, "is closed") {
		t.Error(e)
	}
}

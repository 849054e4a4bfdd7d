// Rust's driver: what programs do with it, against the servers of tests/clients/run.
use std::collections::HashMap;
use std::env;
use std::fmt::Debug;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use mongodb::bson::{doc, Bson, Document};
use mongodb::error::{Error, ErrorKind, Result, WriteFailure};
use mongodb::event::command::CommandEvent;
use mongodb::event::EventHandler;
use mongodb::options::{ClientOptions, GridFsBucketOptions, IndexOptions, ReturnDocument};
use mongodb::sync::{Client, ClientSession, Collection, Database};
use mongodb::IndexModel;

const VERSION: &str = "3.9.1";
static PASSED: AtomicUsize = AtomicUsize::new(0);
static FAILED: AtomicUsize = AtomicUsize::new(0);

fn equal<T: PartialEq + Debug>(what: &str, found: T, wanted: T) {
    if found == wanted {
        PASSED.fetch_add(1, Ordering::Relaxed);
    } else {
        FAILED.fetch_add(1, Ordering::Relaxed);
        println!("FAILED: {what}: {found:?}, not {wanted:?}");
    }
}

fn code(error: &Error) -> i32 {
    match error.kind.as_ref() {
        ErrorKind::Command(error) => error.code,
        ErrorKind::Write(WriteFailure::WriteError(error)) => error.code,
        ErrorKind::InsertMany(error) => {
            let all = error.write_errors.as_deref().unwrap_or_default();
            all.first().map_or(0, |error| error.code)
        }
        _ => 0,
    }
}

fn code_of<T>(result: Result<T>) -> i32 {
    result.err().map_or(0, |error| code(&error))
}

fn fresh(db: &Database, name: &str) -> Result<Collection<Document>> {
    let c = db.collection(name);
    c.drop().run()?;
    Ok(c)
}

fn number(found: Option<Document>) -> i64 {
    found.and_then(|d| d.get("n").and_then(as_number)).unwrap_or(-1)
}

fn as_number(value: &Bson) -> Option<i64> {
    value.as_i32().map(i64::from).or(value.as_i64())
}

fn crud(db: &Database) -> Result<()> {
    let c = fresh(db, "crud")?;
    let ids = c.insert_many([doc! {"_id": 1, "n": 1}, doc! {"_id": 2, "n": 2}, doc! {"_id": 3, "n": 3}]).run()?;
    equal("insert_many", ids.inserted_ids.len(), 3);
    let result = c.update_many(doc! {"n": {"$gt": 1}}, doc! {"$inc": {"n": 10}}).run()?;
    equal("update_many", result.modified_count, 2);
    let result = c.update_one(doc! {"_id": 9}, doc! {"$set": {"n": 9}}).upsert(true).run()?;
    equal("upsert", result.upserted_id, Some(Bson::Int32(9)));
    let result = c.replace_one(doc! {"_id": 9}, doc! {"n": 90}).run()?;
    equal("replace_one", result.modified_count, 1);
    let found = c.find_one_and_update(doc! {"_id": 1}, doc! {"$inc": {"n": 1}});
    equal("find_one_and_update", number(found.return_document(ReturnDocument::After).run()?), 2);
    equal("find_one_and_delete", number(c.find_one_and_delete(doc! {"_id": 9}).run()?), 90);
    equal("count_documents", c.count_documents(doc! {}).run()?, 3);
    equal("estimated_document_count", c.estimated_document_count().run()?, 3);
    equal("delete_many", c.delete_many(doc! {"_id": {"$in": [2, 3]}}).run()?.deleted_count, 2);
    equal("a key that is taken", code_of(c.insert_one(doc! {"_id": 1}).run()), 11000);
    let unordered = c.insert_many([doc! {"_id": 1}, doc! {"_id": 20}]).ordered(false).run();
    equal("unordered", code_of(unordered), 11000);
    equal("distinct", c.distinct("_id", doc! {}).run()?, vec![Bson::Int32(1), Bson::Int32(20)]);
    Ok(())
}

fn cursors(db: &Database) -> Result<()> {
    let c = fresh(db, "cursors")?;
    c.insert_many((0..1000).map(|i| doc! {"_id": i})).run()?;
    let all = c.find(doc! {}).sort(doc! {"_id": 1}).batch_size(7).run()?;
    equal("getMore", all.collect::<Result<Vec<_>>>()?.len(), 1000);
    let mut left = c.find(doc! {}).batch_size(2).run()?;
    equal("a cursor that is left", left.advance()?, true);
    drop(left);
    let mut sums = c.aggregate([doc! {"$group": {"_id": null, "n": {"$sum": "$_id"}}}]).run()?;
    equal("aggregate", number(sums.next().transpose()?), 499500);
    Ok(())
}

fn indexes(db: &Database) -> Result<()> {
    let c = fresh(db, "indexes")?;
    let unique = IndexOptions::builder().unique(true).build();
    let index = IndexModel::builder().keys(doc! {"email": 1}).options(unique).build();
    equal("create_index", c.create_index(index).run()?.index_name, "email_1".to_string());
    equal("list_index_names", c.list_index_names().run()?, vec!["_id_".to_string(), "email_1".to_string()]);
    let taken = c.insert_many([doc! {"email": "a"}, doc! {"email": "a"}]).run();
    let said = format!("{:?}", taken.as_ref().err());
    equal("a unique index", (code_of(taken), said.contains("index: email_1")), (11000, true));
    c.drop_index("email_1").run()
}

fn transactions(client: &Client, db: &Database) -> Result<()> {
    let c = fresh(db, "accounts")?;
    c.insert_many([doc! {"_id": "a", "n": 10}, doc! {"_id": "b", "n": 0}]).run()?;
    let mut session: ClientSession = client.start_session().run()?;
    session.start_transaction().and_run(|session| {
        for (id, by) in [("a", -1), ("b", 1)] {
            c.update_one(doc! {"_id": id}, doc! {"$inc": {"n": by}}).session(&mut *session).run()?;
        }
        let own = c.find_one(doc! {"_id": "b"}).session(&mut *session).run()?;
        equal("its own writes", number(own), 1);
        equal("another client's view", number(c.find_one(doc! {"_id": "b"}).run()?), 0);
        Ok(())
    })?;
    equal("committed", number(c.find_one(doc! {"_id": "a"}).run()?), 9);
    equal("committed", number(c.find_one(doc! {"_id": "b"}).run()?), 1);
    session.start_transaction().run()?;
    c.delete_many(doc! {}).session(&mut session).run()?;
    session.abort_transaction().run()?;
    equal("undone", c.count_documents(doc! {}).run()?, 2);
    Ok(())
}

fn files(db: &Database) -> Result<()> {
    let options = GridFsBucketOptions::builder();
    let bucket = db.gridfs_bucket(options.bucket_name("rustfiles".to_string()).chunk_size_bytes(100_000).build());
    let content = b"truce ".repeat(100_000);
    let mut up = bucket.open_upload_stream("a.bin").run()?;
    let id = up.id().clone();
    up.write_all(&content)?;
    up.close()?;
    let mut back = Vec::new();
    bucket.open_download_stream(id.clone()).run()?.read_to_end(&mut back)?;
    equal("GridFS", back == content, true);
    bucket.delete(id).run()
}

fn access() -> Result<()> {
    let uri = env::var("TRUCE_TEST_CLIENT_AUTH_URI").unwrap();
    let admin = Client::with_uri_str(&uri)?.database("admin");
    let who = admin.run_command(doc! {"connectionStatus": 1}).run()?;
    let users = who.get_document("authInfo").unwrap().get_array("authenticatedUsers").unwrap();
    let user = users[0].as_document().unwrap().get_str("user").unwrap();
    equal("logged in by TLS", user, "truce");
    let other = Client::with_uri_str(uri.replace(":secret@", ":wrong@"))?.database("admin");
    let refused = other.run_command(doc! {"ping": 1}).run();
    equal("a wrong password", format!("{:?}", refused.err()).contains("Authentication"), true);
    Ok(())
}

fn run() -> Result<()> {
    let sent = Arc::new(Mutex::new(HashMap::new()));
    let heard = sent.clone();
    let mut options = ClientOptions::parse(env::var("TRUCE_TEST_CLIENT_URI").unwrap() + "&compressors=zlib").run()?;
    options.command_event_handler = Some(EventHandler::callback(move |event| {
        if let CommandEvent::Started(event) = event {
            heard.lock().unwrap().insert(event.command_name, event.command);
        }
    }));
    let client = Client::with_options(options)?;
    let db = client.database("rust");
    crud(&db)?;
    let numbered = sent.lock().unwrap().get("findAndModify").map(|c| c.contains_key("txnNumber"));
    equal("numbered", numbered, Some(true));
    cursors(&db)?;
    indexes(&db)?;
    transactions(&client, &db)?;
    files(&db)?;
    equal("an unknown command", code_of(db.run_command(doc! {"frobnicate": 1}).run()), 59);
    db.create_collection("valid").validator(doc! {"n": {"$type": "int"}}).run()?;
    let refused = db.collection::<Document>("valid").insert_one(doc! {"n": "text"}).run();
    equal("a validator", code_of(refused), 121);
    db.drop().run()?;
    access()
}

fn main() {
    if let Err(error) = run() {
        println!("FAILED: Rust driver: {error}");
        std::process::exit(1);
    }
    let (passed, failed) = (PASSED.load(Ordering::Relaxed), FAILED.load(Ordering::Relaxed));
    println!("Rust driver {VERSION}: {passed} passed, {failed} failed");
    std::process::exit((failed > 0).into());
}

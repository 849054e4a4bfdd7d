// Java's driver: what programs do with it, against the servers of tests/clients/run.
import com.mongodb.ErrorCategory;
import com.mongodb.MongoException;
import com.mongodb.MongoWriteException;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.gridfs.GridFSBuckets;
import com.mongodb.client.model.CreateCollectionOptions;
import com.mongodb.client.model.DeleteOneModel;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.FindOneAndUpdateOptions;
import com.mongodb.client.model.IndexOptions;
import com.mongodb.client.model.InsertOneModel;
import com.mongodb.client.model.ReturnDocument;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.UpdateOptions;
import com.mongodb.client.model.Updates;
import com.mongodb.client.model.ValidationOptions;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicBoolean;
import org.bson.Document;

public class Driver {
    static int passed, failed;

    static void equal(String what, Object found, Object wanted) {
        if (Objects.equals(found, wanted)) {
            passed++;
        } else {
            failed++;
            System.out.println("FAILED: " + what + ": " + found + ", not " + wanted);
        }
    }

    static int code(Runnable call) {
        try {
            call.run();
            return 0;
        } catch (MongoException error) {
            return error.getCode();
        }
    }

    static Document id(Object id) {
        return new Document("_id", id);
    }

    static void crud(MongoDatabase db) {
        MongoCollection<Document> c = db.getCollection("crud");
        c.drop();
        c.insertOne(id(1).append("n", 1));
        c.insertMany(List.of(id(2).append("n", 2), id(3).append("n", 3)));
        equal("updateMany", c.updateMany(Filters.gt("n", 1), Updates.inc("n", 10)).getModifiedCount(), 2L);
        equal("upsert", c.updateOne(id(9), Updates.set("n", 9), new UpdateOptions().upsert(true)).getUpsertedId().asInt32().getValue(), 9);
        equal("findOneAndUpdate", c.findOneAndUpdate(id(1), Updates.inc("n", 1), new FindOneAndUpdateOptions().returnDocument(ReturnDocument.AFTER)).get("n"), 2);
        equal("countDocuments", c.countDocuments(), 4L);
        var bulk = c.bulkWrite(List.of(new InsertOneModel<>(id(20)), new UpdateOneModel<>(id(20), Updates.set("n", 1)), new DeleteOneModel<>(id(2))));
        equal("bulkWrite", List.of(bulk.getInsertedCount(), bulk.getModifiedCount(), bulk.getDeletedCount()), List.of(1, 1, 1));
        equal("distinct", c.distinct("_id", Integer.class).into(new ArrayList<>()).size(), 4);
        equal("aggregate", c.aggregate(List.of(new Document("$group", id(null).append("n", new Document("$sum", "$n"))))).first().get("n"), 25);
    }

    static void cursors(MongoDatabase db) {
        MongoCollection<Document> c = db.getCollection("cursors");
        c.drop();
        List<Document> documents = new ArrayList<>();
        for (int i = 0; i < 1000; i++)
            documents.add(id(i).append("text", "truce ".repeat(100)));
        c.insertMany(documents);
        equal("getMore", c.find().batchSize(7).sort(id(1)).into(new ArrayList<>()), documents);
    }

    static void indexes(MongoDatabase db) {
        MongoCollection<Document> c = db.getCollection("indexes");
        c.drop();
        equal("createIndex", c.createIndex(new Document("email", 1), new IndexOptions().unique(true)), "email_1");
        c.insertOne(new Document("email", "a"));
        try {
            c.insertOne(new Document("email", "a"));
            equal("a key that is taken", "no error", 11000);
        } catch (MongoWriteException error) {
            equal("a key that is taken", error.getError().getCategory(), ErrorCategory.DUPLICATE_KEY);
        }
        equal("listIndexes", c.listIndexes().into(new ArrayList<>()).size(), 2);
        c.dropIndex("email_1");
    }

    static void transactions(MongoClient client, MongoDatabase db) {
        MongoCollection<Document> c = db.getCollection("accounts");
        c.drop();
        c.insertMany(List.of(id("a").append("n", 10), id("b").append("n", 0)));
        try (ClientSession session = client.startSession()) {
            session.withTransaction(() -> {
                c.updateOne(session, id("a"), Updates.inc("n", -1));
                c.updateOne(session, id("b"), Updates.inc("n", 1));
                equal("its own writes", c.find(session, id("b")).first().get("n"), 1);
                equal("another client's view", c.find(id("b")).first().get("n"), 0);
                return null;
            });
            equal("committed", c.find(id("a")).first().get("n"), 9);
            session.startTransaction();
            c.deleteMany(session, new Document());
            session.abortTransaction();
            equal("undone", c.countDocuments(), 2L);
        }
    }

    static void files(MongoDatabase db) {
        var bucket = GridFSBuckets.create(db, "javafiles");
        byte[] content = "truce ".repeat(100000).getBytes();
        var number = bucket.uploadFromStream("a.bin", new ByteArrayInputStream(content));
        var back = new ByteArrayOutputStream();
        bucket.downloadToStream(number, back);
        equal("GridFS", Arrays.equals(back.toByteArray(), content), true);
        bucket.delete(number);
    }

    /** examples/Worker.java */
    static void worker(MongoDatabase db) throws InterruptedException {
        MongoCollection<Document> jobs = db.getCollection("truce_queue");
        AtomicBoolean stopping = new AtomicBoolean();
        Thread loop = new Thread(() -> {
            try {
                Worker.run(db, "mail", stopping);
            } catch (InterruptedException ended) {
            }
        });
        loop.start();
        db.runCommand(new Document("truceEnqueue", "mail").append("payload", new Document("to", "ada")));
        db.runCommand(new Document("truceEnqueue", "mail").append("payload", new Document("too", "ada")).append("attempts", 1));
        for (int i = 0; i < 600 && jobs.countDocuments(Filters.in("state", "done", "dead")) < 2; i++)
            Thread.sleep(50);
        stopping.set(true);
        // its last claim ends with this job
        db.runCommand(new Document("truceEnqueue", "mail").append("payload", new Document("to", "bob")));
        loop.join();
        equal("jobs that were done", db.getCollection("sent").distinct("to", String.class).into(new ArrayList<>()).contains("ada"), true);
        equal("the error of a job", jobs.find(Filters.eq("state", "dead")).first().getList("errors", Document.class).get(0).get("text"), "the payload has no \"to\"");
    }

    static void access() {
        // the trust store is given to the JVM; of the URI it reads all but tlsCAFile
        String uri = System.getenv("TRUCE_TEST_CLIENT_AUTH_URI").replaceAll("&tlsCAFile=[^&]*", "");
        try (MongoClient client = MongoClients.create(uri)) {
            Document who = client.getDatabase("admin").runCommand(new Document("connectionStatus", 1));
            equal("logged in by TLS", who.get("authInfo", Document.class).getList("authenticatedUsers", Document.class).get(0).get("user"), "truce");
        }
        try (MongoClient client = MongoClients.create(uri.replace(":secret@", ":wrong@"))) {
            equal("a wrong password", code(() -> client.getDatabase("admin").runCommand(new Document("ping", 1))), -4); // MongoSecurityException
        }
    }

    public static void main(String[] args) throws InterruptedException {
        String uri = System.getenv("TRUCE_TEST_CLIENT_URI");
        String version = com.mongodb.internal.build.MongoDriverVersion.VERSION;
        try (MongoClient client = MongoClients.create(uri)) {
            MongoDatabase db = client.getDatabase("java");
            crud(db);
            cursors(db);
            indexes(db);
            transactions(client, db);
            files(db);
            worker(db);
            equal("an unknown command", code(() -> db.runCommand(new Document("frobnicate", 1))), 59);
            db.createCollection("valid", new CreateCollectionOptions().validationOptions(new ValidationOptions().validator(Filters.exists("name"))));
            equal("a validator", code(() -> db.getCollection("valid").insertOne(id(1))), 121);
            db.drop();
        }
        try (MongoClient client = MongoClients.create(uri + "&compressors=zlib")) {
            cursors(client.getDatabase("java"));
        }
        access();
        System.out.println("Java driver " + version + " (Java " + System.getProperty("java.version") + "): " + passed + " passed, " + failed + " failed");
        System.exit(failed > 0 ? 1 : 0);
    }
}

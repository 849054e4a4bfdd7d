/*
 * A worker for a queue of `truce serve`, with the plain Java driver of MongoDB:
 *
 *     truce serve shop.truce
 *     java -cp 'jars/*' Worker.java mongodb://127.0.0.1:27017/shop mail
 *
 * The jars are those of org.mongodb:mongodb-driver-sync.
 */
import com.mongodb.ConnectionString;
import com.mongodb.MongoCommandException;
import com.mongodb.MongoException;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoDatabase;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.bson.BsonValue;
import org.bson.Document;

public class Worker {
    static final int LEASE_MS = 30_000, WAIT_MS = 10_000;

    /** Runs a job. Returns the changes that take effect together with its end. */
    static List<Document> work(Document job) {
        Document payload = job.get("payload", Document.class);
        if (payload.getString("to") == null)
            throw new IllegalArgumentException("the payload has no \"to\"");
        return List.of(new Document("insert", "sent").append("with", new Document("_id", job.get("_id")).append("to", payload.get("to"))));
    }

    /** Claims jobs and runs them, one after another, until `stopping` is true. */
    static void run(MongoDatabase db, String queue, AtomicBoolean stopping) throws InterruptedException {
        ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor();
        while (!stopping.get()) {
            try {
                // The name of the command must be the first field.
                Document claim = new Document("truceClaim", queue).append("leaseMS", LEASE_MS).append("waitMS", WAIT_MS);
                for (Document job : db.runCommand(claim).getList("jobs", Document.class))
                    runJob(db, queue, job, timer);
            } catch (MongoException error) {
                System.err.println("the queue " + queue + ": " + error.getMessage());
                Thread.sleep(1000); // for example, the server restarts
            }
        }
        timer.shutdown();
    }

    static void runJob(MongoDatabase db, String queue, Document job, ScheduledExecutorService timer) {
        // A third of the lease: two heartbeats may be lost. Each is sent on another connection of the driver's pool.
        var heartbeat = timer.scheduleAtFixedRate(() -> {
            try {
                db.runCommand(call("truceHeartbeat", queue, job));
            } catch (MongoException error) {
                System.err.println("heartbeat of " + job.get("_id") + ": " + error.getMessage());
            }
        }, LEASE_MS / 3, LEASE_MS / 3, TimeUnit.MILLISECONDS);
        try {
            List<Document> changes = work(job);
            end(db, call("truceJobCommit", queue, job).append("changes", changes));
        } catch (Exception error) {
            end(db, call("truceFail", queue, job).append("error", String.valueOf(error.getMessage())));
        } finally {
            heartbeat.cancel(false);
        }
    }

    static Document call(String name, String queue, Document job) {
        return new Document(name, queue).append("id", job.get("_id")).append("token", job.get("token"));
    }

    /** Sends the command that ends the job, and sends it again if its reply was lost. The token makes this safe. */
    static void end(MongoDatabase db, Document command) {
        for (int attempt = 1;; attempt++) {
            try {
                db.runCommand(command);
                return;
            } catch (MongoCommandException error) {
                // The claim has ended: an earlier attempt of this command took effect, another worker has the job, or it was cancelled.
                if (!"expired".equals(status(error)))
                    throw error;
                System.err.println(error.getErrorMessage());
                return;
            } catch (MongoException error) { // no reply
                if (attempt == 5)
                    throw error;
            }
        }
    }

    /** The field `status` of an error that the server replied. A program decides by it. */
    static String status(MongoCommandException error) {
        BsonValue status = error.getResponse().get("status");
        return status == null ? "" : status.asString().getValue();
    }

    public static void main(String[] arguments) {
        ConnectionString uri = new ConnectionString(arguments[0]);
        AtomicBoolean stopping = new AtomicBoolean();
        Thread loop = Thread.currentThread();
        // SIGTERM and Ctrl-C: the running job ends before the program does.
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping.set(true);
            try {
                loop.join(WAIT_MS + LEASE_MS);
            } catch (InterruptedException ended) {
            }
        }));
        try (MongoClient client = MongoClients.create(uri)) {
            run(client.getDatabase(uri.getDatabase()), arguments[1], stopping);
        } catch (InterruptedException ended) {
        }
    }
}

import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;

/** mongo-java-server in memory, on a port of the loopback interface, until it is killed. */
public class Server {
    public static void main(String[] arguments) throws InterruptedException {
        MongoServer server = new MongoServer(new MemoryBackend());
        server.bind("127.0.0.1", Integer.parseInt(arguments[0]));
        Thread.currentThread().join();
    }
}

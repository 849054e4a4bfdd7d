/*
 * Programs send commands to `truce serve mongodb://`, which executes them on a server behind the
 * network:
 *
 *     16 connections --> the sidecar --> the network --> the server
 *
 * Without a delay, the program measures a command by one caller in process, and through the sidecar
 * by one and by 16 callers. From these three rates and the number of messages follow the times of
 * the model. The rates at 1, 10, and 50 ms are predictions. Each caller changes documents of its
 * own.
 */
#include "bench/scale_sidecar.h"

#include <math.h>
#include <mongoc/mongoc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/scale_model.h"
#include "truce/command.h"
#include "truce/truce.h"

#define CALLERS      16
#define DATABASE     "scale_sidecar"
#define MESSAGES_MAX 40
/* The minimum number of operations of a caller in a measurement. */
#define OPERATIONS_LEAST 20

/* ---- the commands --------------------------------------------------------------------------- */

static bson_t *sidecar_add(int caller, int turn)
{
    return BCON_NEW("truceSet", "students", "key", "{", "student", BCON_INT32(caller), "}", "field",
                    "classes", "name", "name", "add", "{", "name", "CS 101", "room",
                    BCON_INT32(turn), "}", "seq", BCON_INT64(turn));
}

static bson_t *sidecar_next(int caller, int turn)
{
    char name[20];

    (void)turn;
    snprintf(name, sizeof name, "numbers %d", caller);
    return BCON_NEW("truceSequence", BCON_UTF8(name), "take", BCON_INT32(1));
}

static bson_t *sidecar_commit(int caller, int turn)
{
    (void)turn;
    return BCON_NEW("truceCommit", "[", "{", "update", "accounts", "id", BCON_INT32(2 * caller),
                    "with", "{", "$inc", "{", "n", BCON_INT32(1), "}", "}", "}", "{", "update",
                    "accounts", "id", BCON_INT32(2 * caller + 1), "with", "{", "$inc", "{", "n",
                    BCON_INT32(-1), "}", "}", "}", "]");
}

static bson_t *sidecar_enqueue(int caller, int turn)
{
    return BCON_NEW("truceEnqueue", "mail", "payload", "{", "to", BCON_INT32(caller), "turn",
                    BCON_INT32(turn), "}");
}

static bson_t *sidecar_post(int caller, int turn)
{
    char from[20], to[20];
    bson_oid_t id;

    (void)turn;
    bson_oid_init(&id, NULL);
    snprintf(from, sizeof from, "from %d", caller);
    snprintf(to, sizeof to, "to %d", caller);
    return BCON_NEW("truceLedgerPost", "book", "id", BCON_OID(&id), "entries", "[", "{", "account",
                    BCON_UTF8(from), "value", BCON_INT32(-1), "}", "{", "account", BCON_UTF8(to),
                    "value", BCON_INT32(1), "}", "]");
}

static bson_t *sidecar_transfer(int caller, int turn)
{
    bson_oid_t id;

    (void)turn;
    bson_oid_init(&id, NULL);
    return BCON_NEW("truceTransfer", "transfers", "id", BCON_OID(&id), "source",
                    BCON_INT32(2 * caller), "destination", BCON_INT32(2 * caller + 1), "amount",
                    BCON_INT32(1), "accounts", "accounts", "field", "n", "overdraft",
                    BCON_BOOL(true));
}

static const struct sidecar_operation {
    const char *name;
    bson_t *(*make)(int caller, int turn);
    /* Operations that wait at the same time are combined and share their messages. */
    bool folds;
} sidecar_operations[] = {
    {"ordered set: add", sidecar_add, false},
    {"sequence: next", sidecar_next, false},
    {"commit of 2 documents", sidecar_commit, false},
    {"job: add", sidecar_enqueue, false},
    {"ledger: post", sidecar_post, true},
    {"transfer", sidecar_transfer, false},
    {NULL, NULL, false},
};

/* ---- the callers ---------------------------------------------------------------------------- */

static struct {
    /* The server's database, in process. */
    truce_store *store;
    mongoc_client_t *clients[CALLERS];
    const struct sidecar_operation *operation;
    bool direct;
    uint64_t end_ns;
    /* turns[i]: the number of commands of caller i so far. */
    int turns[CALLERS];
} sidecar;

static void sidecar_send(int caller, bson_t *command)
{
    bson_error_t error = {0};
    bson_t reply;

    if (sidecar.direct)
        BENCH_MUST(truce_command(sidecar.store, NULL, command, &reply, &error), error);
    else
        BENCH_MUST(!mongoc_client_command_simple(sidecar.clients[caller], DATABASE, command, NULL,
                                                 &reply, &error),
                   error);
    bson_destroy(&reply);
    bson_destroy(command);
}

static void *sidecar_run(void *arg)
{
    int caller = (int)(intptr_t)arg;

    while (bench_now_ns() < sidecar.end_ns)
        sidecar_send(caller, sidecar.operation->make(caller, ++sidecar.turns[caller]));
    return NULL;
}

/* Returns the operations per second of that many callers. */
static double sidecar_rate(bool direct, int callers, double seconds)
{
    uint64_t begun = bench_now_ns();
    pthread_t threads[CALLERS];
    int64_t done = 0;

    sidecar.direct = direct;
    sidecar.end_ns = begun + (uint64_t)(seconds * 1e9);
    for (int i = 0; i < callers; i++)
        done -= sidecar.turns[i];
    for (int i = 0; i < callers; i++)
        BENCH_CHECK(pthread_create(&threads[i], NULL, sidecar_run, (void *)(intptr_t)i) == 0);
    for (int i = 0; i < callers; i++) {
        pthread_join(threads[i], NULL);
        done += sidecar.turns[i];
    }
    return (double)done * 1e9 / (double)(bench_now_ns() - begun);
}

/* ---- the place ------------------------------------------------------------------------------ */

/* Starts the sidecar on a free port, which it prints. */
static pid_t sidecar_start(const char *program, const char *uri, int *port)
{
    char line[400] = "";
    const char *printed;
    int ends[2];
    pid_t child;
    FILE *said;

    BENCH_CHECK(pipe(ends) == 0);
    child = fork();
    if (!child) {
        dup2(ends[1], 1);
        /* Discards the sidecar's log, which slow commands would fill. */
        (void)!freopen("/dev/null", "w", stderr);
        execl(program, program, "serve", uri, "--port", "0", "--quiet", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    said = fdopen(ends[0], "r");
    BENCH_CHECK(said && fgets(line, sizeof line, said));
    printed = strstr(line, "127.0.0.1:");
    BENCH_CHECK(printed);
    *port = atoi(printed + strlen("127.0.0.1:"));
    return child;
}

/* Empties the database, and inserts the documents and accounts of the operations. */
static void sidecar_fill(void)
{
    sidecar.direct = true;
    sidecar_send(0, BCON_NEW("dropDatabase", BCON_INT32(1)));
    sidecar_send(0, BCON_NEW("truceSetDefine", "students", "key", "student", "field", "classes",
                             "name", "name"));
    for (int i = 0; i < CALLERS; i++) {
        char from[20], to[20];

        snprintf(from, sizeof from, "from %d", i);
        snprintf(to, sizeof to, "to %d", i);
        sidecar_send(0, BCON_NEW("insert", "accounts", "documents", "[", "{", "_id",
                                 BCON_INT32(2 * i), "n", BCON_INT32(0), "}", "{", "_id",
                                 BCON_INT32(2 * i + 1), "n", BCON_INT32(0), "}", "]"));
        sidecar_send(0, BCON_NEW("truceLedgerOpen", "book", "currency", "EUR", "digits",
                                 BCON_INT32(2), "account", BCON_UTF8(from)));
        sidecar_send(
            0, BCON_NEW("truceLedgerOpen", "book", "currency", "EUR", "account", BCON_UTF8(to)));
    }
}

/* Returns the time of one message of one caller. */
static int64_t sidecar_ping_ns(struct scale_delay *network, int64_t trip_ns)
{
    bson_t filter = BSON_INITIALIZER, found;
    bson_error_t error = {0};
    uint64_t begun;
    int done = 0;

    scale_delay_set(network, trip_ns);
    for (begun = bench_now_ns(); bench_now_ns() < begun + UINT64_C(500000000); done++) {
        BENCH_MUST(truce_find_one(sidecar.store, "accounts", &filter, NULL, &found, &error), error);
        bson_destroy(&found);
    }
    begun = bench_now_ns() - begun;
    scale_delay_set(network, 0);
    bson_destroy(&filter);
    return (int64_t)begun / done;
}

/* ---- comparing ------------------------------------------------------------------------------ */

static const int trips_ms[] = {1, 10, 50};
static int64_t added_ns[3];

/* Sets the times of the model from rates without a delay: of one caller in process, and of one and
 * 16 callers of the sidecar. */
static struct scale_world sidecar_learn(double direct, double alone, double together, int messages)
{
    struct scale_world world = scale_world_of(1, 0);
    double message_ns = 1e9 / direct / messages, each_ns = 1e9 / together / messages;

    world.copy_ns = 0;
    world.workers = 1;
    world.read_ns = world.write_ns = (int64_t)(each_ns < message_ns ? each_ns : message_ns);
    world.trip_ns = (int64_t)message_ns - world.read_ns;
    world.front_ns = alone < direct ? (int64_t)(1e9 / alone - 1e9 / direct) : 0;
    world.in_process = CALLERS;
    world.turns = 50;
    return world;
}

/* Returns how long to measure, so that one caller makes several operations. */
static double sidecar_seconds(int messages, int trip_ms)
{
    double seconds = OPERATIONS_LEAST * messages * trip_ms / 1e3;

    return seconds > bench_seconds() ? seconds : bench_seconds();
}

/* Learns the costs of the operation without a delay. Then prints for each delay the rate by the
 * model, the measured rate, and the difference. */
static void sidecar_compare(struct scale_delay *network)
{
    static const int callers[] = {1, CALLERS};
    char steps[MESSAGES_MAX + 1] = "";
    const struct scale_operation operation = {
        .steps = steps, .turn = sidecar.operation->folds ? SCALE_FOLDS : SCALE_PASSES};
    double direct, alone, together;
    struct scale_world learnt;
    int64_t sent;
    int messages, done;

    sidecar_rate(true, 1, 0.2);
    sidecar_rate(false, CALLERS, 0.5);
    direct = sidecar_rate(true, 1, bench_seconds());
    sent = scale_delay_messages(network);
    done = sidecar.turns[0];
    alone = sidecar_rate(false, 1, bench_seconds());
    messages = (int)lround((double)(scale_delay_messages(network) - sent) /
                           (double)(sidecar.turns[0] - done));
    together = sidecar_rate(false, CALLERS, bench_seconds());
    BENCH_CHECK(messages > 0 && messages <= MESSAGES_MAX);
    memset(steps, 'w', (size_t)messages);
    learnt = sidecar_learn(direct, alone, together, messages);
    for (int t = 0; t < 3; t++) {
        for (int c = 0; c < 2; c++) {
            struct scale_world world = learnt;
            double measured, rate;

            scale_delay_set(network, trips_ms[t] * INT64_C(1000000));
            measured = sidecar_rate(false, callers[c], sidecar_seconds(messages, trips_ms[t]));
            scale_delay_set(network, 0);
            world.trip_ns += added_ns[t];
            world.callers = callers[c];
            world.hot_permille = sidecar.operation->folds ? 1000 : 0;
            rate = scale_simulate(&operation, &world).rate;
            printf("| %s | %d | %d ms | %d | %.0f | %.0f | %+.0f %% |\n", sidecar.operation->name,
                   messages, trips_ms[t], callers[c], rate, measured, 100 * (rate / measured - 1));
            fflush(stdout);
        }
    }
}

int scale_sidecar_compare(struct scale_delay *network, const char *program, int count, char **only)
{
    char uri[300];
    bson_error_t error = {0};
    pid_t child;
    int port;

    snprintf(uri, sizeof uri, "mongodb://127.0.0.1:%d/" DATABASE "?directConnection=true",
             scale_delay_port(network));
    mongoc_init();
    child = sidecar_start(program, uri, &port);
    BENCH_MUST(truce_store_open(uri, NULL, &sidecar.store, &error), error);
    snprintf(uri, sizeof uri, "mongodb://127.0.0.1:%d/?directConnection=true", port);
    for (int i = 0; i < CALLERS; i++)
        sidecar.clients[i] = mongoc_client_new(uri);
    sidecar_fill();
    for (int t = 0; t < 3; t++)
        added_ns[t] =
            sidecar_ping_ns(network, trips_ms[t] * INT64_C(1000000)) - sidecar_ping_ns(network, 0);
    printf("| command | messages | trip | callers | model, 1/s | sidecar, 1/s | |\n"
           "| --- | --- | --- | --- | --- | --- | --- |\n");
    for (sidecar.operation = sidecar_operations; sidecar.operation->name; sidecar.operation++) {
        bool wanted = !count;

        for (int i = 0; i < count; i++)
            wanted |= strstr(sidecar.operation->name, only[i]) != NULL;
        if (wanted)
            sidecar_compare(network);
    }
    sidecar.direct = true;
    sidecar_send(0, BCON_NEW("dropDatabase", BCON_INT32(1)));
    for (int i = 0; i < CALLERS; i++)
        mongoc_client_destroy(sidecar.clients[i]);
    truce_store_close(sidecar.store);
    kill(child, SIGTERM);
    waitpid(child, NULL, 0);
    return 0;
}

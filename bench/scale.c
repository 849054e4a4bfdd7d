/*
 * The model of docs/scale.md, which computes how a pattern scales beyond one machine, and its
 * checks.
 *
 *     bench_scale tables [PAGE]     the tables; into the page, between its two marks
 *     bench_scale count URI         messages and bytes of each operation, as a server sees them
 *     bench_scale compare URI       the model's and a server's figures, 1, 10 and 50 ms away
 *     bench_scale sidecar PROGRAM URI    the same of `truce serve mongodb://` in front of it
 *
 * The program measures the server's own speed first, without a network: an operation of one caller,
 * and of 16 callers. Then it delays the network. The model's only input from that phase is the
 * duration of a find by one caller.
 *
 * The program owns all data in the databases whose names are the URI's database and a number.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bench/bench.h"
#include "bench/operations.h"
#include "bench/operations_place.h"
#include "bench/scale_delay.h"
#include "bench/scale_model.h"
#include "bench/scale_sidecar.h"

#define CALLERS 16

/* ---- the page ------------------------------------------------------------------------------- */

#define BEGIN "<!-- begin scale -->\n"
#define END   "<!-- end scale -->"

static char *scale_read_page(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1 << 20);

    BENCH_CHECK(file && text);
    BENCH_CHECK(fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return text;
}

static int write_page(const char *path)
{
    char *text = scale_read_page(path), *begin = strstr(text, BEGIN), *end = strstr(text, END);
    FILE *file;

    BENCH_CHECK(begin && end && begin < end);
    file = fopen(path, "wb");
    BENCH_CHECK(file);
    fwrite(text, 1, (size_t)(begin - text) + strlen(BEGIN), file);
    fprintf(file, "\n");
    scale_write_tables(file);
    fprintf(file, "\n%s", end);
    BENCH_CHECK(fclose(file) == 0);
    free(text);
    return 0;
}

/* ---- a server, behind a network -------------------------------------------------------------- */

static struct scale_delay *network;
static const char *database = "scale";

/* Parses mongodb://HOST:PORT[/DATABASE][?OPTIONS], and replaces the port by that of the delayed
 * network. */
static void begin_network(const char *uri)
{
    const char *host = strstr(uri, "://"), *port = host ? strrchr(host + 3, ':') : NULL;

    BENCH_CHECK(port);
    network = scale_delay_start(atoi(port + 1));
}

static truce_store *open_database(int number)
{
    truce_store *store = NULL;
    bson_error_t error = {0};
    char uri[200];

    snprintf(uri, sizeof uri, "mongodb://127.0.0.1:%d/%s_%d?directConnection=true",
             scale_delay_port(network), database, number);
    BENCH_MUST(truce_store_open(uri, NULL, &store, &error), error);
    return store;
}

static void scale_drop_all(truce_store *store)
{
    bson_t collections;
    bson_iter_t iter, field;
    bson_error_t error;

    BENCH_MUST(truce_collection_list(store, NULL, &collections, &error), error);
    bson_iter_init(&iter, &collections);
    while (bson_iter_next(&iter))
        if (bson_iter_recurse(&iter, &field) && bson_iter_find(&field, "name"))
            BENCH_MUST(truce_collection_drop(store, bson_iter_utf8(&field, NULL), &error), error);
    bson_destroy(&collections);
}

static struct bench_place *open_place(int number)
{
    truce_store *store = open_database(number);
    struct bench_place *place;
    bson_error_t error = {0};

    scale_drop_all(store);
    place = bench_place_new(store, &error);
    BENCH_MUST(place == NULL, error);
    return place;
}

static void close_place(struct bench_place *place)
{
    truce_store *store = place->store;

    bench_place_free(place);
    scale_drop_all(store);
    truce_store_close(store);
}

static const struct bench_operation *counted(const char *name)
{
    for (const struct bench_operation *one = bench_operations; one->name; one++)
        if (name && !strcmp(one->name, name))
            return one;
    return NULL;
}

/* ---- counting ------------------------------------------------------------------------------- */

static void scale_count_one(struct bench_place *place, const struct scale_operation *one)
{
    enum { TURNS = 20 };
    const struct bench_operation *operation = counted(one->counted);
    bson_error_t error = {0};
    truce_store_counters before, after;
    int64_t bytes;
    int trips;

    if (!operation || !bench_operation_possible(place, operation)) {
        printf("    %-46s %10s\n", one->name, operation ? "cannot" : "composed");
        return;
    }
    for (int i = 0; i < TURNS && strstr(one->name, "claim"); i++)
        BENCH_MUST(bench_queue_add(place, operation, &error), error);
    if (bench_operation_trips(place, operation, &trips, &error)) {
        printf("    %-46s %10s   %.60s\n", one->name, "fails", error.message);
        return;
    }
    for (int i = 0; i < 2 * TURNS && strstr(one->name, "claim"); i++)
        BENCH_MUST(bench_queue_add(place, operation, &error), error);
    bytes = scale_delay_bytes(network);
    truce_store_count(place->store, &before);
    for (int i = 0; i < TURNS; i++) {
        place->turn++;
        BENCH_MUST(operation->run(place, operation, &error), error);
    }
    bytes = (scale_delay_bytes(network) - bytes) / TURNS;
    truce_store_count(place->store, &after);
    printf("    %-46s %10d %10.1f %10d %10lld%s\n", one->name, trips,
           (double)(after.round_trips - before.round_trips) / TURNS, (int)strlen(one->steps),
           (long long)bytes, trips != (int)strlen(one->steps) ? "   not the model's" : "");
}

static int scale_count_all(const char *uri)
{
    struct bench_place *place;

    begin_network(uri);
    place = open_place(0);
    printf("    %-46s %10s %10s %10s %10s\n", "operation", "median", "mean", "model", "bytes");
    for (const struct scale_operation *one = scale_operations; one->name; one++)
        scale_count_one(place, one);
    close_place(place);
    return 0;
}

/* ---- comparing ------------------------------------------------------------------------------ */

/* The callers of a measurement. Each has a database of its own, or all share one handle. */
struct crowd {
    /* The operation. NULL means adds to sets, on one handle. */
    const struct bench_operation *operation;
    struct bench_place *places[CALLERS];
    bool hot; /* All callers add to one set. */
    atomic_llong seq, done;
    uint64_t end_ns;
};

struct member {
    struct crowd *crowd;
    int number;
    int64_t done;
};

static void add_to_set(struct crowd *crowd, int number)
{
    bson_t *key = BCON_NEW("student_id", BCON_INT32(crowd->hot ? 0 : 100 + number));
    bson_t *element = BCON_NEW("name", BCON_UTF8("CS 101"), "room", BCON_INT32(number));
    truce_set_outcome outcome;
    bson_error_t error = {0};

    BENCH_MUST(truce_set_add(crowd->places[0]->set, NULL, key, element,
                             1000 + atomic_fetch_add(&crowd->seq, 1), &outcome, &error),
               error);
    bson_destroy(key);
    bson_destroy(element);
}

/* Repeats the operation of the crowd until its end, and counts. */
static void *run_member(void *arg)
{
    struct member *member = arg;
    struct crowd *crowd = member->crowd;
    bson_error_t error = {0};

    while (bench_now_ns() < crowd->end_ns) {
        if (!crowd->operation) {
            add_to_set(crowd, member->number);
        } else {
            struct bench_place *place = crowd->places[member->number];

            place->turn++;
            BENCH_MUST(crowd->operation->run(place, crowd->operation, &error), error);
        }
        member->done++;
    }
    return NULL;
}

static double scale_rate_of(struct crowd *crowd, int callers, double seconds)
{
    struct member members[CALLERS];
    pthread_t threads[CALLERS];
    uint64_t begun = bench_now_ns();
    int64_t done = 0;

    crowd->end_ns = begun + (uint64_t)(seconds * 1e9);
    for (int i = 0; i < callers; i++) {
        members[i] = (struct member){crowd, i, 0};
        BENCH_CHECK(pthread_create(&threads[i], NULL, run_member, &members[i]) == 0);
    }
    for (int i = 0; i < callers; i++) {
        pthread_join(threads[i], NULL);
        done += members[i].done;
    }
    return (double)done * 1e9 / (double)(bench_now_ns() - begun);
}

/* Derives the speed of a server without a network: the time of a message of one caller, and the
 * number of messages that it processes at a time. */
static struct scale_world scale_learn(const struct scale_operation *one, double alone,
                                      double together, int in_process)
{
    struct scale_world world = scale_world_of(1, 0);
    int messages = (int)strlen(one->steps);
    double message_ns = 1e9 / alone / messages, each_ns = 1e9 / together / messages;

    world.copy_ns = 0;
    world.workers = 1;
    world.read_ns = world.write_ns = (int64_t)(each_ns < message_ns ? each_ns : message_ns);
    world.trip_ns = (int64_t)message_ns - world.read_ns;
    world.in_process = in_process;
    world.turns = 50;
    return world;
}

/* Returns the time of one message of one caller: the network, and the server's read of a
 * document. */
static int64_t ping_ns(int64_t trip_ns)
{
    truce_store *store = open_database(0);
    bson_t filter = BSON_INITIALIZER;
    bson_error_t error = {0};
    int64_t count;
    uint64_t begun;
    int done = 0;

    scale_delay_set(network, trip_ns);
    BENCH_MUST(truce_count(store, "trips_accounts", &filter, NULL, &count, &error), error);
    begun = bench_now_ns();
    for (; bench_now_ns() < begun + UINT64_C(1000000000); done++) {
        bson_t one;

        BENCH_MUST(truce_find_one(store, "trips_accounts", &filter, NULL, &one, &error), error);
        bson_destroy(&one);
    }
    begun = bench_now_ns() - begun;
    scale_delay_set(network, 0);
    bson_destroy(&filter);
    truce_store_close(store);
    return (int64_t)begun / done;
}

static const int trips_ms[] = {1, 10, 50};
/* The time that the network really adds to a round trip with each of these delays. */
static int64_t added_ns[3];

/* Learns the costs of the operation without a delay. Then prints for each delay the rate by the
 * model, the measured rate, and the difference. */
static void compare_one(struct crowd *crowd, const struct scale_operation *one, const char *name)
{
    static const int callers[] = {1, CALLERS};
    double alone, together;
    struct scale_world learnt;

    scale_delay_set(network, 0);
    scale_rate_of(crowd, CALLERS, 0.3); /* Warms the caches. */
    alone = scale_rate_of(crowd, 1, bench_seconds());
    together = scale_rate_of(crowd, CALLERS, bench_seconds());
    if (crowd->hot)
        /* The model simulates the wait for the hot document itself. */
        together = alone;
    learnt = scale_learn(one, alone, together, crowd->operation ? 1 : CALLERS);
    for (int t = 0; t < 3; t++) {
        for (int c = 0; c < 2; c++) {
            struct scale_world world = learnt;
            struct scale_figure figure;
            double measured;

            scale_delay_set(network, trips_ms[t] * INT64_C(1000000));
            measured = scale_rate_of(crowd, callers[c], bench_seconds());
            world.trip_ns += added_ns[t];
            world.callers = callers[c];
            world.hot_permille = crowd->hot ? 1000 : 0;
            figure = scale_simulate(one, &world);
            printf("| %s | %d ms | %d | %.0f | %.0f | %+.0f %% |\n", name, trips_ms[t], callers[c],
                   figure.rate, measured, 100 * (figure.rate / measured - 1));
            fflush(stdout);
        }
    }
}

/* Returns whether the server supports the operation, with the number of messages that the model
 * assumes. */
static bool as_counted(struct bench_place *place, const struct bench_operation *operation,
                       const struct scale_operation *one)
{
    bson_error_t error = {0};
    int trips;

    return bench_operation_possible(place, operation) &&
           !bench_operation_trips(place, operation, &trips, &error) &&
           trips == (int)strlen(one->steps);
}

static int compare_all(const char *uri, int count, char **only)
{
    struct crowd crowd = {0};

    begin_network(uri);
    for (int i = 0; i < CALLERS; i++)
        crowd.places[i] = open_place(i);
    for (int t = 0; t < 3; t++)
        added_ns[t] = ping_ns(trips_ms[t] * INT64_C(1000000)) - ping_ns(0);
    printf("%.2f, %.2f and %.2f ms away\n\n", (double)added_ns[0] / 1e6, (double)added_ns[1] / 1e6,
           (double)added_ns[2] / 1e6);
    printf("| operation | trip | callers | model, 1/s | server, 1/s | |\n"
           "| --- | --- | --- | --- | --- | --- |\n");
    for (const struct scale_operation *one = scale_operations; one->name; one++) {
        bool wanted = !count;

        for (int i = 0; i < count; i++)
            wanted |= strstr(one->name, only[i]) != NULL;
        crowd.operation = counted(one->counted);
        if (!wanted || !crowd.operation || strstr(one->name, "claim") ||
            !as_counted(crowd.places[0], crowd.operation, one))
            continue;
        compare_one(&crowd, one, one->name);
        if (one != scale_operations)
            continue;
        crowd.operation = NULL;
        compare_one(&crowd, one, "the same, on one handle");
        crowd.hot = true;
        compare_one(&crowd, one, "the same, into one set");
        crowd.hot = false;
    }
    scale_delay_set(network, 0);
    for (int i = 0; i < CALLERS; i++)
        close_place(crowd.places[i]);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "tables")) {
        scale_write_tables(stdout);
        return 0;
    }
    if (argc == 3 && !strcmp(argv[1], "tables"))
        return write_page(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "count"))
        return scale_count_all(argv[2]);
    if (argc >= 3 && !strcmp(argv[1], "compare"))
        return compare_all(argv[2], argc - 3, argv + 3);
    if (argc >= 4 && !strcmp(argv[1], "sidecar")) {
        begin_network(argv[3]);
        return scale_sidecar_compare(network, argv[2], argc - 4, argv + 4);
    }
    fprintf(stderr, "usage: bench_scale tables [PAGE] | count URI | compare URI [OPERATION...] | "
                    "sidecar PROGRAM URI [OPERATION...]\n");
    return 2;
}

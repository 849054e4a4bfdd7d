#include "tests/brokers/broker_rates.h"

#include <libpq-fe.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/field.h"
#include "broker/broker.h"
#include "tests/support/broker_trial.h"
#include "tests/support/command.h"
#include "tests/support/test.h"

#define RATES_PREFETCH    200
#define RATES_WAIT_MS     250
#define RATES_EMPTY_TURNS 6
/* A group of Kafka may need some seconds to distribute the partitions again. */
#define RATES_TURNS_MAX  60
#define RATES_PARTITIONS 64
/* Truce applies more messages of a set, because its rate is more than ten times the usual one. */
#define RATES_SET_FACTOR  10
#define RATES_WORKERS_MAX 16
#define RATES_ROUNDS_MAX  9

#define RATES_SEEN        "WITH seen AS (INSERT INTO inbox VALUES ($1) ON CONFLICT DO NOTHING RETURNING 1)"
#define RATES_PAYLOAD     "jsonb_build_object('n', $2::jsonb->'sequence_number') FROM seen"
#define RATES_LINES                                                                                \
    "lines AS (SELECT key AS account, value::numeric AS amount FROM seen, "                        \
    "jsonb_each_text($2::jsonb->'entries'))"
#define RATES_ENTRIES                                                                              \
    "entry AS (INSERT INTO entries (post, account, amount) SELECT "                                \
    "($2::jsonb->>'sequence_number')::bigint, account, amount FROM lines)"

/* The effect of a message, for truce and for PostgreSQL. */
static const struct rates_work {
    const char *name, *into, *map;
    /* $1: the message's id; $2: its body. */
    const char *statement;
    /* The numbers of ids and effects. */
    const char *count;
    bool is_set;
} rates_works[] = {
    {.name = "set",
     .into = BROKER_TRIAL_SET,
     .map = BROKER_TRIAL_SET_MAP,
     .statement = RATES_SEEN
     " INSERT INTO enrolments SELECT (b->>'student_id')::int, b->>'class', "
     "(b->>'sequence_number')::bigint, b->>'operation' = 'insert' FROM seen, "
     "(SELECT $2::jsonb AS b) AS m ON CONFLICT (student, class) DO UPDATE SET seq = "
     "excluded.seq, enrolled = excluded.enrolled WHERE excluded.seq > enrolments.seq",
     .count = "SELECT count(*) FROM inbox",
     .is_set = true},
    {.name = "jobs",
     .into = "queue:mail",
     .map = "{with: {n: \"$body.sequence_number\"}}",
     .statement = RATES_SEEN " INSERT INTO jobs (payload) SELECT " RATES_PAYLOAD,
     .count = "SELECT count(*) FROM jobs"},
    {.name = "jobs and posts",
     .into = BROKER_TRIAL_POSTS,
     .map = BROKER_TRIAL_POSTS_MAP,
     .statement = RATES_SEEN
     ", " RATES_LINES ", job AS (INSERT INTO jobs (payload) SELECT " RATES_PAYLOAD
     "), " RATES_ENTRIES " INSERT INTO balances SELECT account, amount FROM lines ORDER BY account "
     "ON CONFLICT (account) DO UPDATE SET amount = balances.amount + excluded.amount",
     .count = "SELECT count(*) / 2 FROM entries"},
};
#define RATES_WORKS (sizeof rates_works / sizeof *rates_works)

static const char *const rates_tables[] = {
    "SET client_min_messages = warning",
    "DROP TABLE IF EXISTS inbox, enrolments, jobs, entries, balances",
    "CREATE TABLE inbox (id text PRIMARY KEY)",
    "CREATE TABLE enrolments (student int, class text, seq bigint, enrolled boolean, "
    "PRIMARY KEY (student, class)) WITH (fillfactor = 50)",
    "CREATE TABLE jobs (id bigserial PRIMARY KEY, payload jsonb, state text DEFAULT 'ready', "
    "created timestamptz DEFAULT now())",
    "CREATE INDEX ON jobs (state, id)",
    "CREATE TABLE entries (post bigint, account text, amount numeric, PRIMARY KEY (post, account))",
    "CREATE TABLE balances (account text PRIMARY KEY, amount numeric) WITH (fillfactor = 50)",
};

/* ---- the usual consumer ---------------------------------------------------------------------- */

/* The messages that all workers have received, and have to receive. */
static _Atomic int64_t rates_received, rates_total;
/* Where each partition of Kafka is read from, like the offsets of a group; -1: its start. */
static _Atomic int64_t rates_next[RATES_PARTITIONS];

struct rates_worker {
    const struct rates_work *work;
    const char *url;
    char consumer[40];
    int64_t last_ns;
    pthread_t thread;
};

static PGresult *rates_query(PGconn *connection, const char *text)
{
    PGresult *result = PQexec(connection, text);

    if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK)
        test_fail(__FILE__, __LINE__, "%s", PQerrorMessage(connection));
    return result;
}

static PGconn *rates_connect(void)
{
    PGconn *connection = PQconnectdb(getenv("TRUCE_TEST_POSTGRES"));

    if (PQstatus(connection) != CONNECTION_OK)
        test_fail(__FILE__, __LINE__, "%s", PQerrorMessage(connection));
    return connection;
}

/* The id is the property message_id, or that of the body. */
static void rates_id(const struct broker_message *message, char id[80])
{
    const char *given = truce__field_text(&message->facts, "id");
    const char *seq = memmem(message->body, message->size, "\"sequence_number\": ", 19);

    if (*given)
        snprintf(id, 80, "%s", given);
    else
        snprintf(id, 80, "%lld", seq ? strtoll(seq + 19, NULL, 10) : -1);
}

static bool rates_apply(PGconn *connection, const struct broker_message *message)
{
    char id[80];
    const char *values[2] = {id, (const char *)message->body};
    int lengths[2] = {0, (int)message->size}, formats[2] = {0, 0};
    char *body = bson_strndup(values[1], message->size);
    PGresult *result;
    bool good;

    rates_id(message, id);
    values[1] = body;
    result = PQexecPrepared(connection, "apply", 2, values, lengths, formats, 0);
    good = PQresultStatus(result) == PGRES_COMMAND_OK;
    if (!good)
        test_fail(__FILE__, __LINE__, "%s", PQerrorMessage(connection));
    PQclear(result);
    bson_free(body);
    return good;
}

static truce_status rates_find_position(void *arg, const char *stream, int32_t partition,
                                        int64_t *next, bson_error_t *error)
{
    (void)arg, (void)stream, (void)error;
    *next = partition < RATES_PARTITIONS ? rates_next[partition] : -1;
    return TRUCE_OK;
}

static truce_status rates_acknowledge(const struct broker_ops *ops, void *broker,
                                      struct broker_message *message, bson_error_t *error)
{
    const struct broker_position *position = &message->position;

    if (position->stream && position->partition < RATES_PARTITIONS)
        rates_next[position->partition] = position->offset + 1;
    return ops->acknowledge(broker, &message, 1, error);
}

static void rates_consume(struct rates_worker *worker, PGconn *connection,
                          const struct broker_ops *ops, void *broker)
{
    bson_error_t error = {0};
    truce_status status = TRUCE_OK;
    int empty = 0;

    while (!status && (empty < RATES_EMPTY_TURNS ||
                       (rates_received < rates_total && empty < RATES_TURNS_MAX))) {
        struct broker_message *message = NULL;

        status = ops->receive(broker, RATES_WAIT_MS, &message, &error);
        empty = message ? 0 : empty + 1;
        if (!status && message) {
            if (rates_apply(connection, message))
                status = rates_acknowledge(ops, broker, message, &error);
            rates_received++;
            worker->last_ns = truce__clock_monotonic_ns();
        }
        truce__broker_message_free(message);
    }
    CHECK_OK(status, error);
}

static void *rates_run_worker(void *arg)
{
    struct rates_worker *worker = arg;
    const struct broker_open_options open_options = {.consumer = worker->consumer,
                                                     .prefetch = RATES_PREFETCH,
                                                     .find_position = rates_find_position};
    char *url = bson_strdup(worker->url);
    PGconn *connection = rates_connect();
    const struct broker_ops *ops = NULL;
    struct broker_address address;
    bson_error_t error = {0};
    void *broker = NULL;
    bson_t query;

    PQclear(PQprepare(connection, "apply", worker->work->statement, 0, NULL));
    CHECK_OK(truce__broker_address_read(url, &query, &address, &error), error);
    CHECK_OK(truce__broker_find(address.scheme, &ops, &error), error);
    if (CHECK_OK(ops->open(&address, &open_options, &broker, &error), error))
        rates_consume(worker, connection, ops, broker);
    ops->close(broker);
    PQfinish(connection);
    bson_destroy(&query);
    bson_free(url);
    return NULL;
}

static void rates_check_postgres(const struct rates_work *work, int64_t count)
{
    PGconn *connection = rates_connect();
    PGresult *result = rates_query(connection, work->count);

    CHECK_INT(strtoll(PQgetvalue(result, 0, 0), NULL, 10), ==, count);
    PQclear(result);
    PQfinish(connection);
}

static double rates_postgres(const struct broker_rates *rates, const struct rates_work *work,
                             int workers, int64_t count, int round)
{
    struct rates_worker all[RATES_WORKERS_MAX] = {{0}};
    int64_t total, began_ns, last_ns = 0;
    char *url = rates->fill(count, &total);
    PGconn *connection = rates_connect();

    for (size_t i = 0; i < sizeof rates_tables / sizeof *rates_tables; i++)
        PQclear(rates_query(connection, rates_tables[i]));
    PQfinish(connection);
    rates_received = 0;
    rates_total = total;
    for (int i = 0; i < RATES_PARTITIONS; i++)
        rates_next[i] = -1;
    began_ns = truce__clock_monotonic_ns();
    for (int i = 0; i < workers; i++) {
        all[i] = (struct rates_worker){.work = work, .url = url};
        snprintf(all[i].consumer, sizeof all[i].consumer, "usual-%s-%d-%d", work->into, workers,
                 round);
        CHECK(!pthread_create(&all[i].thread, NULL, rates_run_worker, &all[i]));
    }
    for (int i = 0; i < workers; i++) {
        pthread_join(all[i].thread, NULL);
        last_ns = all[i].last_ns > last_ns ? all[i].last_ns : last_ns;
    }
    CHECK_INT(rates_received, >=, total);
    rates_check_postgres(work, count);
    bson_free(url);
    return (double)rates_received * 1e9 / (double)(last_ns - began_ns);
}

/* ---- truce ----------------------------------------------------------------------------------- */

static double rates_of(const struct command *command)
{
    bson_t *answer;
    int64_t messages;
    bson_iter_t at;
    double rate = 0;

    if (command->code || !*command->out)
        test_fail(__FILE__, __LINE__, "%d: %s%s", command->code, command->out, command->err);
    answer = test_bson(*command->out ? command->out : "{}");
    messages = truce__field_number(answer, "messages");
    if (bson_iter_init_find(&at, answer, "seconds"))
        rate = (double)messages / bson_iter_as_double(&at);
    bson_destroy(answer);
    return rate > 0 ? rate : 1;
}

static char *rates_store(int round)
{
    static int number;

    return bson_strdup_printf("%s/rates-%d-%d.truce", test_directory(), round, number++);
}

static void rates_remove(const char *store)
{
    static const char *const ends[] = {"", "-wal", "-shm", "-lock"};

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char *path = bson_strdup_printf("%s%s", store, ends[i]);

        (void)unlink(path);
        bson_free(path);
    }
}

static double rates_truce(const struct broker_rates *rates, const struct rates_work *work,
                          int workers, int64_t count, int round)
{
    char *store = rates_store(round), number[12];
    int64_t total;
    char *url = rates->fill(count, &total);
    double rate;

    broker_trial_prepare(&(struct broker_trial){.program = rates->program, .store = store});
    snprintf(number, sizeof number, "%d", workers);
    rate = rates_of(command_run(broker_trial_program(rates->program), store, NULL, "consume", url,
                                "--into", work->into, "--map", work->map, "--until-empty", "--json",
                                "--workers", number, rates->id ? "--id" : NULL, rates->id, NULL));
    if (work->is_set)
        broker_trial_check_set(store, count);
    else
        broker_trial_check_count(store, "truce_queue", count);
    rates_remove(store);
    bson_free(store);
    bson_free(url);
    return rate;
}

/* ---- a file ---------------------------------------------------------------------------------- */

/* Writes the messages as truce set apply takes them. */
static void rates_write_file(const char *path, int64_t count)
{
    int64_t total, *order = broker_trial_order(count, &total);
    FILE *file = fopen(path, "w");
    char body[250], id[32];

    REQUIRE(file != NULL);
    for (int64_t i = 0; i < total; i++) {
        const char *field;

        broker_trial_message(order[i], body, id);
        field = strstr(body, "\"class\"");
        if (!CHECK(field != NULL))
            break;
        /* {"class": "CS 1"} is {"element": "CS 1"} there */
        fprintf(file, "%.*s\"element\"%s\n", (int)(field - body), body,
                field + strlen("\"class\""));
    }
    fclose(file);
    bson_free(order);
}

static double rates_file(const struct broker_rates *rates, int64_t count, int round)
{
    char *store = rates_store(round), *path = bson_strdup_printf("%s.ndjson", store);
    double rate;

    rates_write_file(path, count);
    broker_trial_prepare(&(struct broker_trial){.program = rates->program, .store = store});
    rate = rates_of(command_run(broker_trial_program(rates->program), store, NULL, "set", "apply",
                                path, "students", "--list", "classes", "--key", "student_id",
                                "--name", "name", "--json", NULL));
    broker_trial_check_set(store, count);
    rates_remove(store);
    (void)unlink(path);
    bson_free(path);
    bson_free(store);
    return rate;
}

/* ---- the figures ----------------------------------------------------------------------------- */

static int rates_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double rates_median(const double *values, int count)
{
    double sorted[RATES_ROUNDS_MAX];

    memcpy(sorted, values, (size_t)count * sizeof *values);
    qsort(sorted, (size_t)count, sizeof *sorted, rates_compare);
    return sorted[count / 2];
}

/* Measures one work in turns. The ratios are the medians of the rounds' ratios. */
static void rates_measure(const struct broker_rates *rates, const struct rates_work *work,
                          int workers, int rounds, int64_t count)
{
    double truce[RATES_ROUNDS_MAX], usual[RATES_ROUNDS_MAX], apply[RATES_ROUNDS_MAX];
    double to_usual[RATES_ROUNDS_MAX], to_apply[RATES_ROUNDS_MAX];
    int64_t many = work->is_set ? count * RATES_SET_FACTOR : count;

    for (int i = 0; i < rounds; i++) {
        truce[i] = rates_truce(rates, work, workers, many, i);
        usual[i] = rates_postgres(rates, work, workers, count, i);
        apply[i] = work->is_set ? rates_file(rates, many, i) : 1;
        to_usual[i] = truce[i] / usual[i];
        to_apply[i] = truce[i] / apply[i];
    }
    fprintf(stderr,
            "    %-15s %2d workers: truce %8.0f/s   PostgreSQL %8.0f/s   truce/PostgreSQL %5.2f",
            work->name, workers, rates_median(truce, rounds), rates_median(usual, rounds),
            rates_median(to_usual, rounds));
    if (work->is_set)
        fprintf(stderr, "   set apply %8.0f/s   truce/set apply %5.2f", rates_median(apply, rounds),
                rates_median(to_apply, rounds));
    fprintf(stderr, "\n");
}

void broker_rates_run(const struct broker_rates *rates)
{
    int64_t count = test_scale("TRUCE_TEST_RATES_MESSAGES", 20000);
    int rounds = (int)test_scale("TRUCE_TEST_RATES_ROUNDS", 3);
    static const int workers[] = {1, 5};

    if (rounds > RATES_ROUNDS_MAX)
        rounds = RATES_ROUNDS_MAX;
    for (size_t i = 0; i < RATES_WORKS; i++)
        for (size_t k = 0; k < sizeof workers / sizeof *workers; k++)
            rates_measure(rates, &rates_works[i], workers[k], rounds, count);
}

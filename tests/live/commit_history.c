/* Processes, each with threads, commit to one file and are killed with -9 all the time. They record
 * their writes and reads, and the history must be strictly serializable. The test runs natively,
 * through the journal, and with both at once. With TEST_ON_SERVER, it runs on a server of MongoDB's
 * protocol.
 *
 * TRUCE_HISTORY_MS says how long each runs, TRUCE_HISTORY_KILL_MS how often a process is killed,
 * TRUCE_HISTORY_PROCESSES (8) and TRUCE_HISTORY_THREADS (4) how many there are. The histories are
 * stored in the folder TRUCE_TEST_HISTORIES, if it is set, for tests/judge/run. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "sim/verify.h"
#include "tests/support/bank.h"

/* A server takes longer to open, and for each step. */
#ifdef TEST_ON_SERVER
#define DURATION_MS 4000
#define KILL_MS     700
#define LEASE_MS    2000
#else
#define DURATION_MS 3000
#define KILL_MS     100
#define LEASE_MS    200
#endif
#define PROCESSES_MAX   64
#define THREADS_MAX     16
#define KEYS            5
#define CHILDREN_MAX    480
#define COMMITTED_LEAST 20
#define OPS             3

enum way { NATIVE, JOURNAL, BOTH };

struct place {
    char uri[700], directory[200];
};

struct writer {
    truce_store *store;
    FILE *file;
    pthread_mutex_t *lock;
    enum way way;
    int64_t process, next;
    struct random random;
    /* the transaction under way */
    int keys[OPS];
    bool appends[OPS];
    int64_t values[OPS];
    bson_t seen; /* ops */
};

/* ["append", key, value] */
static void note_append(bson_t *ops, int number, int key, int64_t value)
{
    char index[12], text[12];
    bson_t op;

    snprintf(index, sizeof index, "%d", number);
    snprintf(text, sizeof text, "k%d", key);
    bson_append_array_begin(ops, index, -1, &op);
    BSON_APPEND_UTF8(&op, "0", "append");
    BSON_APPEND_UTF8(&op, "1", text);
    BSON_APPEND_INT64(&op, "2", value);
    bson_append_array_end(ops, &op);
}

/* ["r", key, list or null] */
static void note_read(bson_t *ops, int number, int key, const bson_t *document)
{
    char index[12], text[12];
    bson_iter_t list;
    bson_t op;

    snprintf(index, sizeof index, "%d", number);
    snprintf(text, sizeof text, "k%d", key);
    bson_append_array_begin(ops, index, -1, &op);
    BSON_APPEND_UTF8(&op, "0", "r");
    BSON_APPEND_UTF8(&op, "1", text);
    if (bson_iter_init_find(&list, document, "l"))
        bson_append_iter(&op, "2", 1, &list);
    else
        BSON_APPEND_NULL(&op, "2");
    bson_append_array_end(ops, &op);
}

static truce_status one_op(struct writer *writer, truce_commit *commit, int i, bson_error_t *error)
{
    char text[12];
    bson_value_t id;
    truce_status status;

    snprintf(text, sizeof text, "k%d", writer->keys[i]);
    id = text_id(text);
    if (writer->appends[i]) {
        bson_t *push = BCON_NEW("$push", "{", "l", BCON_INT64(writer->values[i]), "}");

        status = truce_commit_update(commit, "lists", &id, NULL, push, error);
        note_append(&writer->seen, i, writer->keys[i], writer->values[i]);
        bson_destroy(push);
    } else {
        bson_t document;

        status = truce_commit_read(commit, "lists", &id, &document, error);
        note_read(&writer->seen, i, writer->keys[i], &document);
        bson_destroy(&document);
    }
    return status;
}

static truce_status work(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct writer *writer = arg;
    truce_status status = TRUCE_OK;

    bson_reinit(&writer->seen);
    for (int i = 0; !status && i < OPS; i++)
        status = one_op(writer, commit, i, error);
    return status;
}

/* {process, n, begin, ops: the appends that were meant}, then {process, n, end, status, ops} */
static void note(struct writer *writer, const char *moment, const char *status, const bson_t *ops)
{
    bson_t line = BSON_INITIALIZER;
    char *text;

    BSON_APPEND_INT64(&line, "process", writer->process);
    BSON_APPEND_INT64(&line, "n", writer->next);
    BSON_APPEND_INT64(&line, moment, truce__clock_monotonic_ns());
    if (status)
        BSON_APPEND_UTF8(&line, "status", status);
    BSON_APPEND_ARRAY(&line, "ops", ops);
    text = bson_as_canonical_extended_json(&line, NULL);
    pthread_mutex_lock(writer->lock);
    fprintf(writer->file, "%s\n", text);
    fflush(writer->file);
    pthread_mutex_unlock(writer->lock);
    bson_free(text);
    bson_destroy(&line);
}

static void plan(struct writer *writer, bson_t *meant)
{
    bson_init(meant);
    for (int i = 0, n = 0; i < OPS; i++) {
        writer->keys[i] = (int)truce__random_below(&writer->random, KEYS);
        writer->appends[i] = truce__random_below(&writer->random, 2);
        writer->values[i] = writer->process * 100000000 + writer->next * OPS + i;
        if (writer->appends[i])
            note_append(meant, n++, writer->keys[i], writer->values[i]);
    }
}

/* Returns whether the server was busy, or was killed. */
static bool unreached(truce_status status)
{
#ifdef TEST_ON_SERVER
    return status == TRUCE_IO || status == TRUCE_TIMEOUT;
#else
    (void)status;
    return false;
#endif
}

static void *write_for_ever(void *arg)
{
    struct writer *writer = arg;

    for (;; writer->next++) {
        truce_commit_options options = {.lease_ms = LEASE_MS, .tries_max = 1000};
        bson_error_t error = {0};
        truce_status status;
        bson_t meant;

        if (writer->way == JOURNAL ||
            (writer->way == BOTH && truce__random_below(&writer->random, 2)))
            options.mechanism = TRUCE_MECHANISM_JOURNAL;
        plan(writer, &meant);
        note(writer, "begin", NULL, &meant);
        status = truce_transact(writer->store, work, writer, &options, &error);
        if (!status)
            note(writer, "end", "ok", &writer->seen);
        else if (status == TRUCE_CONFLICT || status == TRUCE_LOCKED)
            note(writer, "end", "fail", &meant);
        else if (status != TRUCE_UNKNOWN && !unreached(status)) {
            fprintf(stderr, "a writer failed: %s\n", error.message);
            _exit(1);
        }
        bson_destroy(&meant);
    }
    return NULL;
}

static long scale(const char *variable, long otherwise, long most)
{
    long number = test_scale(variable, otherwise);

    return number < 1 ? 1 : number > most ? most : number;
}

static void child(const struct place *place, enum way way, int number)
{
    static struct writer writers[THREADS_MAX];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_t threads[THREADS_MAX];
    char path[300];
    bson_error_t error;
    truce_store *store = NULL;
    FILE *file;
    long threads_count = scale("TRUCE_HISTORY_THREADS", 4, THREADS_MAX);

    snprintf(path, sizeof path, "%s/history.%d", place->directory, number);
    file = fopen(path, "a");
    if (!file || truce_store_open(place->uri, NULL, &store, &error))
        _exit(1);
    for (long i = 0; i < threads_count; i++) {
        writers[i] = (struct writer){.store = store,
                                     .file = file,
                                     .lock = &lock,
                                     .way = way,
                                     .process = number * threads_count + i};
        bson_init(&writers[i].seen);
        truce__random_seed(&writers[i].random, truce__random_entropy());
        if (pthread_create(&threads[i], NULL, write_for_ever, &writers[i]))
            _exit(1);
    }
    pthread_join(threads[0], NULL);
    _exit(1);
}

/* ---- the history ---------------------------------------------------------------------------- */

struct history {
    struct verify *verify;
    FILE *file;         /* of TRUCE_TEST_HISTORIES, or NULL */
    bson_t *open[2000]; /* by process: begun, not ended */
    int ok, failed, unknown;
};

static int64_t number_of(const bson_t *line, const char *name)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, line, name) ? bson_iter_as_int64(&iter) : -1;
}

static void add(struct history *history, const bson_t *begin, const bson_t *end)
{
    const bson_t *source = end ? end : begin;
    bson_t txn = BSON_INITIALIZER;
    bson_error_t error = {0};
    bson_iter_t iter;
    const char *status = "unknown";

    BSON_APPEND_INT64(&txn, "process", number_of(begin, "process"));
    BSON_APPEND_INT64(&txn, "begin", number_of(begin, "begin"));
    if (end) {
        BSON_APPEND_INT64(&txn, "end", number_of(end, "end"));
        if (bson_iter_init_find(&iter, end, "status"))
            status = bson_iter_utf8(&iter, NULL);
    }
    BSON_APPEND_UTF8(&txn, "status", status);
    if (bson_iter_init_find(&iter, source, "ops"))
        bson_append_iter(&txn, "ops", 3, &iter);
    CHECK_OK(truce__verify_add(history->verify, &txn, &error), error);
    if (history->file) {
        char *text = bson_as_relaxed_extended_json(&txn, NULL);

        fprintf(history->file, "%s\n", text);
        bson_free(text);
    }
    history->ok += !strcmp(status, "ok");
    history->failed += !strcmp(status, "fail");
    history->unknown += !strcmp(status, "unknown");
    bson_destroy(&txn);
}

typedef void line_function(struct history *history, const char *text);

static void read_line(struct history *history, const char *text)
{
    bson_error_t error;
    bson_t *line = bson_new_from_json((const uint8_t *)text, -1, &error);
    int64_t process = line ? number_of(line, "process") : -1;

    if (!line || process < 0 || process >= 2000) { /* cut off by a kill */
        bson_destroy(line);
        return;
    }
    if (number_of(line, "begin") >= 0) {
        if (history->open[process]) /* its process was killed */
            add(history, history->open[process], NULL);
        bson_destroy(history->open[process]);
        history->open[process] = line;
        return;
    }
    if (history->open[process])
        add(history, history->open[process], line);
    bson_destroy(history->open[process]);
    history->open[process] = NULL;
    bson_destroy(line);
}

static void tell(const struct verify_anomaly *anomaly, void *arg)
{
    (void)arg;
    test_fail(__FILE__, __LINE__, "%s: %s", anomaly->name, anomaly->text);
}

static void each_line(const struct place *place, int children, line_function *function,
                      struct history *history)
{
    char path[300], *text = NULL;
    size_t room = 0;

    for (int i = 0; i < children; i++) {
        FILE *file;

        snprintf(path, sizeof path, "%s/history.%d", place->directory, i);
        file = fopen(path, "r");
        while (file && getline(&text, &room, file) > 0)
            function(history, text);
        if (file)
            fclose(file);
    }
    free(text);
}

static void count_line(struct history *history, const char *text)
{
    history->ok += strstr(text, "\"ok\"") != NULL;
}

static int count_committed(const struct place *place, int children)
{
    struct history history = {0};

    each_line(place, children, count_line, &history);
    return history.ok;
}

static FILE *history_file(void)
{
    const char *folder = getenv("TRUCE_TEST_HISTORIES");
    static int number;
    char path[4096];
    FILE *file = NULL;

    if (folder) {
        snprintf(path, sizeof path, "%s/commits.%d.ndjson", folder, ++number);
        file = fopen(path, "w");
        CHECK(file);
    }
    return file;
}

static void judge(const struct place *place, int children)
{
    struct history *history = bson_malloc0(sizeof *history);

    history->verify = truce__verify_new();
    history->file = history_file();
    each_line(place, children, read_line, history);
    for (int i = 0; i < 2000; i++) {
        if (history->open[i])
            add(history, history->open[i], NULL);
        bson_destroy(history->open[i]);
    }
    truce__verify_run(history->verify, tell, NULL);
    printf("%d committed, %d failed, %d unknown\n", history->ok, history->failed, history->unknown);
    CHECK_INT(history->ok, >, COMMITTED_LEAST);
    truce__verify_free(history->verify);
    if (history->file)
        fclose(history->file);
    bson_free(history);
}

/* ---- the runs ------------------------------------------------------------------------------- */

static void find_place(struct place *place)
{
#ifdef TEST_ON_SERVER
    truce_store_close(server_store()); /* emptied */
    server_release();                  /* no connection is open at a fork */
    server_uri(place->uri, sizeof place->uri, "");
#else
    snprintf(place->uri, sizeof place->uri, "file:%s/lists.truce", place->directory);
#endif
}

static bool prepare(struct place *place)
{
    bson_error_t error = {0};
    truce_store *store = NULL;

    snprintf(place->directory, sizeof place->directory, "%s", test_directory());
    find_place(place);
    if (!CHECK_OK(truce_store_open(place->uri, NULL, &store, &error), error))
        return false;
    for (int k = 0; k < KEYS; k++) {
        char json[60];

        snprintf(json, sizeof json, "{'_id': 'k%d', 'l': []}", k);
        insert_json(store, "lists", json);
    }
    truce_store_close(store);
    return true;
}

static void show_finding(const bson_t *finding, void *arg)
{
    char *text = bson_as_relaxed_extended_json(finding, NULL);

    fprintf(stderr, "    a finding: %s\n", text ? text : "");
    bson_free(text);
}

static void check_at_rest(const struct place *place)
{
    truce_sweep_options options = {.retention_ms = -1};
    truce_sweep_report swept;
    truce_check_report checked;
    bson_error_t error = {0};
    truce_store *store = NULL;

    if (!CHECK_OK(truce_store_open(place->uri, NULL, &store, &error), error))
        return;
    CHECK_OK(truce_sweep(store, &options, &swept, &error), error);
    truce__clock_sleep_ms(LEASE_MS + 50); /* past the leases */
    CHECK_OK(truce_sweep(store, &options, &swept, &error), error);
    CHECK_OK(truce_check(store, NULL, show_finding, NULL, &checked, &error), error);
    CHECK_INT(checked.findings, ==, 0);
    truce_store_close(store);
}

/* False: this store has no commits of its own, and the test is skipped. */
static bool possible(enum way way)
{
#ifdef TEST_ON_SERVER
    truce_store *store = server_store();
    bool can = store && store->capabilities & TRUCE_CAN_ATOMIC_BULK;

    if (!can && way != JOURNAL)
        test_skip("this server has no transactions");
    truce_store_close(store);
    return can || way == JOURNAL;
#else
    (void)way;
    return true;
#endif
}

/* On a slow machine it continues until the history has enough operations. */
static bool is_over(const struct place *place, int children, int64_t began_ns, int64_t duration_ms)
{
    int64_t ms = (truce__clock_monotonic_ns() - began_ns) / 1000000;

    return children >= CHILDREN_MAX ||
           (ms >= duration_ms &&
            (count_committed(place, children) > COMMITTED_LEAST || ms >= 20 * duration_ms));
}

static void run(enum way way)
{
    long duration_ms = test_scale("TRUCE_HISTORY_MS", DURATION_MS);
    long processes = scale("TRUCE_HISTORY_PROCESSES", 8, PROCESSES_MAX);
    long kill_ms = test_scale("TRUCE_HISTORY_KILL_MS", KILL_MS);
    int64_t began_ns = truce__clock_monotonic_ns();
    struct place place;
    pid_t pids[PROCESSES_MAX] = {0};
    int children = 0;
    struct random random;

    if (!possible(way) || !prepare(&place))
        return;
    truce__random_seed(&random, truce__random_entropy());
    while (!is_over(&place, children, began_ns, duration_ms)) {
        int slot = (int)truce__random_below(&random, (uint64_t)processes);

        for (int i = 0; i < processes; i++) {
            if (pids[i])
                continue;
            fflush(NULL);
            pids[i] = fork();
            if (!pids[i])
                child(&place, way, children);
            children++;
        }
        truce__clock_sleep_ms(kill_ms);
        kill(pids[slot], SIGKILL);
        waitpid(pids[slot], NULL, 0);
        pids[slot] = 0;
    }
    for (int i = 0; i < processes; i++) {
        int status = 0;

        if (!pids[i])
            continue;
        kill(pids[i], SIGKILL);
        waitpid(pids[i], &status, 0);
        CHECK(WIFSIGNALED(status)); /* it had not given up by itself */
    }
    check_at_rest(&place);
    judge(&place, children);
}

TEST(serializes_native_commits_of_dying_processes_strictly)
{
    run(NATIVE);
}

TEST(serializes_journal_commits_of_dying_processes_strictly)
{
    run(JOURNAL);
}

TEST(serializes_both_mechanisms_strictly_at_once)
{
    run(BOTH);
}

/*
 * A network that corrupts one message, for the operations of commits, sets, and sequences (those of
 * the other patterns are in network_patterns.c). The tests take every n, and each way in which the
 * n-th message of a direction can be lost, cut in half, or come late. The outcome is all or
 * nothing, and exactly once; acknowledged changes stay. Other tests kill the server, which comes
 * back.
 *
 * TRUCE_NETWORK_STEP (5): every fifth message in whichever way; 1 takes all.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/bank.h"
#include "tests/support/server.h"
#include "tests/support/tutorial.h"
#include "tests/support/wire.h"
#include "tests/support/wire_commits.h"
#include "truce/sequence.h"
#include "truce/set.h"

/* ---- sets and sequences --------------------------------------------------------------------- */

static void prepare_set(truce_store *store)
{
    static const char *const collections[] = {"students", "truce_progress", "truce_sequences"};

    for (size_t i = 0; i < sizeof(collections) / sizeof(collections[0]); i++)
        wire_clear(store, collections[i]);
}

static truce_status apply(truce_set *set, truce_set_verb verb, const char *name, int64_t seq,
                          bson_error_t *error)
{
    bson_t *key = test_bson("{'student_id': 1}"), *element = BCON_NEW("name", BCON_UTF8(name));
    truce_set_operation operation = {verb, key, element, seq, NULL};
    truce_set_result result;
    truce_status status = TRUCE_UNKNOWN;

    /* a message that is not acknowledged comes again */
    for (int i = 0; i < 5 && status; i++)
        status = truce_set_consume(set, "consumer", &operation, 1, &result, error);
    bson_destroy(key);
    bson_destroy(element);
    return status;
}

static truce_status change_set(truce_store *store, bson_error_t *error)
{
    truce_set *set = tutorial_set(store, NULL);
    truce_status status = apply(set, TRUCE_SET_ADD, "CS 101", 3, error);

    if (!status)
        status = apply(set, TRUCE_SET_REMOVE, "CS 102", 4, error);
    if (!status)
        status = apply(set, TRUCE_SET_ADD, "CS 102", 2, error);
    if (!status)
        status = apply(set, TRUCE_SET_REMOVE, "CS 101", 1, error);
    for (int i = 0; i < 5 && !status; i++) {
        status = truce_set_collect(set, NULL, error);
        if (status != TRUCE_IO && status != TRUCE_UNKNOWN)
            break;
        status = TRUCE_OK;
    }
    truce_set_free(set);
    return status;
}

static void check_set(truce_store *store, truce_status reported)
{
    bson_t *key = test_bson("{'student_id': 1}"), members;
    bson_error_t error = {0};
    truce_set *set = tutorial_set(store, NULL);
    bson_iter_t iter, name;
    int64_t watermark = 0;

    CHECK_INT(reported, ==, TRUCE_OK);
    CHECK_OK(truce_set_members(set, key, &members, &error), error);
    CHECK_INT(bson_count_keys(&members), ==, 1);
    CHECK(bson_iter_init(&iter, &members) && bson_iter_find_descendant(&iter, "0.name", &name) &&
          !strcmp(bson_iter_utf8(&name, NULL), "CS 101"));
    CHECK_OK(truce_set_watermark(set, &watermark, NULL, &error), error);
    CHECK_INT(watermark, ==, 4);
    CHECK_INT(count_json(store, "students", "{}"), ==, 1);
    truce_set_free(set);
    bson_destroy(&members);
    bson_destroy(key);
}

static int64_t numbers[3];

static truce_status take_numbers(truce_store *store, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (int i = 0; i < 3 && !status; i++) {
        status = TRUCE_UNKNOWN;
        for (int again = 0; again < 5 && status; again++)
            status = truce_sequence_next(store, "network", &numbers[i], error);
    }
    return status;
}

static void check_numbers(truce_store *store, truce_status reported)
{
    (void)store;
    CHECK_INT(reported, ==, TRUCE_OK);
    CHECK_INT(numbers[0], <, numbers[1]);
    CHECK_INT(numbers[1], <, numbers[2]);
}

TEST(a_commit_by_journal_is_whole_whatever_message_is_corrupted)
{
    wire_spoil_all(&wire_commits[WIRE_JOURNAL]);
}

TEST(a_native_commit_is_whole_whatever_message_is_corrupted)
{
    wire_spoil_all(&wire_commits[WIRE_NATIVE]);
}

TEST(applies_a_keyed_commit_once_at_any_corrupted_message)
{
    wire_spoil_all(&wire_commits[WIRE_KEY]);
}

TEST(applies_a_single_document_once_at_any_corrupted_message)
{
    wire_spoil_all(&wire_commits[WIRE_ONE]);
}

TEST(a_set_is_right_whatever_message_is_corrupted)
{
    wire_spoil_all(&(struct wire_operation){"set", 0, prepare_set, change_set, check_set});
}

TEST(a_sequence_rises_whatever_message_is_corrupted)
{
    wire_spoil_all(
        &(struct wire_operation){"sequence", 0, prepare_set, take_numbers, check_numbers});
}

/* ---- a server that dies --------------------------------------------------------------------- */

struct worker {
    truce_store *store;
    int64_t number, done, unknown;
    bool stop;
    pthread_mutex_t mutex;
};

static truce_status record(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct worker *worker = arg;
    bson_t *document = BCON_NEW("_id", BCON_INT64(worker->number));
    truce_status status = add_update(commit, "accounts", "a", NULL, "{'$inc': {'n': 1}}", error);

    if (!status)
        status = add_update(commit, "accounts", "b", NULL, "{'$inc': {'n': 1}}", error);
    if (!status)
        status = truce_commit_insert(commit, "records", document, error);
    bson_destroy(document);
    return status;
}

static bool going_on(struct worker *worker)
{
    bool stop;

    pthread_mutex_lock(&worker->mutex);
    stop = worker->stop;
    pthread_mutex_unlock(&worker->mutex);
    return !stop;
}

/* Makes commits under keys; an unknown outcome is requested again under the same key. */
static void *work(void *arg)
{
    struct worker *worker = arg;
    bson_error_t error;

    while (going_on(worker) || worker->unknown) {
        char key[40];
        truce_commit_options options = {
            .key = key, .key_time_ms = 1700000000000, .lease_ms = 300, .deadline_ms = 20000};
        truce_status status;

        snprintf(key, sizeof(key), "record %d", (int)worker->number);
        status = truce_transact(worker->store, record, worker, &options, &error);
        worker->unknown = status != TRUCE_OK;
        if (!status) {
            worker->done++;
            worker->number++;
        } else if (status != TRUCE_UNKNOWN && status != TRUCE_IO && status != TRUCE_LOCKED &&
                   status != TRUCE_CONFLICT) {
            CHECK_OK(status, error);
            break;
        }
    }
    return NULL;
}

static int64_t number_of(truce_store *store, const char *id)
{
    bson_value_t value = text_id(id);
    bson_t filter = BSON_INITIALIZER, document;
    bson_error_t error;
    bson_iter_t iter;
    int64_t number = -1;

    BSON_APPEND_VALUE(&filter, "_id", &value);
    if (CHECK_OK(truce_find_one(store, "accounts", &filter, NULL, &document, &error), error) &&
        bson_iter_init_find(&iter, &document, "n"))
        number = bson_iter_as_int64(&iter);
    bson_destroy(&document);
    bson_destroy(&filter);
    return number;
}

TEST(applies_everything_once_if_the_server_is_killed)
{
    struct worker worker = {.store = server_store(), .mutex = PTHREAD_MUTEX_INITIALIZER};
    int64_t a;
    pthread_t thread;

    REQUIRE(worker.store != NULL);
    if (!getenv("TRUCE_TEST_SERVER_KILL")) {
        test_skip("this server keeps nothing when it is killed, or is not ours to kill");
        return;
    }
    wire_commits[WIRE_NATIVE].prepare(worker.store);
    REQUIRE(pthread_create(&thread, NULL, work, &worker) == 0);
    for (int i = 0; i < test_scale("TRUCE_SERVER_KILLS", 2); i++) {
        truce__clock_sleep_ms(700);
        CHECK(server_kill());
    }
    truce__clock_sleep_ms(700);
    pthread_mutex_lock(&worker.mutex);
    worker.stop = true;
    pthread_mutex_unlock(&worker.mutex);
    pthread_join(thread, NULL);
    wire_sweep(worker.store);
    a = number_of(worker.store, "a");
    CHECK_INT(worker.done, >, 0);
    CHECK_INT(a, ==, 10 + worker.done);
    CHECK_INT(number_of(worker.store, "b"), ==, worker.done);
    CHECK_INT(count_json(worker.store, "records", "{}"), ==, worker.done);
    CHECK_INT(count_json(worker.store, "accounts", "{'_intent': {'$exists': true}}"), ==, 0);
    printf("%d commits under kills\n", (int)worker.done);
    truce_store_close(worker.store);
}

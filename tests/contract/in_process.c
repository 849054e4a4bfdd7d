/* truce_command: operations and MongoDB's data commands in process, on stores of each kind. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "tests/support/each_operation.h"
#include "tests/support/json_command.h"
#include "tests/support/test.h"
#include "truce/command.h"

static truce_store *open_store(const char *kind)
{
    char *uri = kind[0] == 'f' ? bson_strdup_printf("file:%s/in.truce", test_directory())
                               : bson_strdup(kind);
    truce_store *store = NULL;
    bson_error_t error;

    truce_assert(CHECK_OK(truce_store_open(uri, NULL, &store, &error), error));
    bson_free(uri);
    return store;
}

static void expect(truce_store *store, const char *database, const char *json, truce_status status,
                   const char *part)
{
    bson_error_t error = {0};
    bson_t reply;
    truce_status got = run_json_command(store, database, json, &reply, &error);
    char *text = bson_as_relaxed_extended_json(&reply, NULL);

    if (got != status || (part && !strstr(text, part)))
        test_fail(__FILE__, __LINE__, "%s: status %d, reply %s, not %d with %s", json, (int)got,
                  text, (int)status, part ? part : "anything");
    CHECK(!got || error.message[0]);
    bson_free(text);
    bson_destroy(&reply);
}

TEST(runs_the_example_of_every_operation)
{
    static const char *const kinds[] = {"memory:", "file"};

    for (size_t i = 0; i < 2; i++) {
        truce_store *store = open_store(kinds[i]);

        expect(store, "shop",
               "{insert: 'accounts', documents: [{_id: 'a', n: 9}, {_id: 'b', n: 0}]}", TRUCE_OK,
               NULL);
        expect(store, "shop",
               "{createIndexes: 'accounts', indexes: [{key: {email: 1, _id: 1}, name: 'e', unique: "
               "true}]}",
               TRUCE_OK, NULL);
        expect(store, "shop",
               "{truceLedgerOpen: 'bank', currency: 'EUR', digits: 2, account: 'sales'}", TRUCE_OK,
               NULL);
        expect(store, "shop",
               "{insert: 'transactions', documents: [{_id: 18, source: 'a', destination: 'b', "
               "value: 1, state: 'pending'}]}",
               TRUCE_OK, NULL);
        EACH_OPERATION(row)
        {
            bson_error_t error = {0};
            bson_t reply;
            truce_status status = run_json_command(store, "shop", row->example, &reply, &error);
            bool has_token = strstr(row->example, "token") != NULL;

            /* an example with a token names a job that is not claimed */
            if (status != (has_token ? TRUCE_EXPIRED : TRUCE_OK))
                test_fail(__FILE__, __LINE__, "%s: %d, %s", row->example, (int)status,
                          error.message);
            CHECK(bson_has_field(&reply, "ok"));
            bson_destroy(&reply);
        }
        truce_store_close(store);
    }
}

TEST(runs_data_commands_in_the_database_that_is_named)
{
    truce_store *store = open_store("memory:");

    expect(store, "shop", "{'insert': 'c', 'documents': [{'_id': 1}, {'_id': 2}, {'_id': 3}]}",
           TRUCE_OK, "\"n\" : 3");
    expect(store, "shop", "{'insert': 'c', 'documents': [{'_id': 1}]}", TRUCE_OK, "writeErrors");
    expect(store, "other", "{'count': 'c'}", TRUCE_OK, "\"n\" : 0");
    expect(store, "shop", "{'count': 'c'}", TRUCE_OK, "\"n\" : 3");
    expect(store, "shop", "{'find': 'c', 'batchSize': 2}", TRUCE_OK, "shop.c");
    expect(store, "shop", "{'aggregate': 'c', 'pipeline': [{'$count': 'n'}], 'cursor': {}}",
           TRUCE_OK, "\"n\" : 3");
    expect(store, "shop", "{'ping': 1}", TRUCE_OK, "ok");
    expect(store, NULL, "{'insert': 'own', 'documents': [{'_id': 1}]}", TRUCE_OK, "\"n\" : 1");
    expect(store, "test", "{'count': 'own'}", TRUCE_OK, "\"n\" : 1");
    truce_store_close(store); /* with an open cursor */
}

TEST(runs_commands_on_a_snapshot)
{
    static const char *const kinds[] = {"memory:", "file"};

    for (size_t i = 0; i < 2; i++) {
        truce_store *store = open_store(kinds[i]), *snapshot = NULL;
        bson_error_t error = {0};

        expect(store, "shop", "{'insert': 'c', 'documents': [{'_id': 1}, {'_id': 2}]}", TRUCE_OK,
               NULL);
        expect(store, "shop",
               "{'create': 'w', 'viewOn': 'c', 'pipeline': [{'$match': {'_id': 1}}]}", TRUCE_OK,
               NULL);
        CHECK_OK(truce_snapshot(store, NULL, &snapshot, &error), error);
        expect(store, "shop", "{'delete': 'c', 'deletes': [{'q': {}, 'limit': 0}]}", TRUCE_OK,
               NULL);
        expect(snapshot, "shop", "{'count': 'c'}", TRUCE_OK, "\"n\" : 2");
        expect(snapshot, "shop", "{'count': 'w'}", TRUCE_OK, "\"n\" : 1");
        expect(snapshot, "shop", "{'find': 'w'}", TRUCE_OK, "{ \"_id\" : 1 }");
        expect(snapshot, "shop", "{'insert': 'c', 'documents': [{'_id': 3}]}", TRUCE_INVALID, NULL);
        truce_store_close(snapshot);
        expect(store, "shop", "{'count': 'w'}", TRUCE_OK, "\"n\" : 0");
        expect(store, "shop", "{'create': 'w'}", TRUCE_DUPLICATE, "NamespaceExists");
        truce_store_close(store);
    }
}

TEST(refuses_requests_that_are_not_commands)
{
    truce_store *store = open_store("memory:");
    bson_error_t error = {0};
    bson_t reply, empty = BSON_INITIALIZER;

    expect(store, "shop", "{'nothing': 1}", TRUCE_INVALID, "CommandNotFound");
    expect(store, "shop", "{'shutdown': 1}", TRUCE_INVALID, "CommandNotFound");
    expect(store, "shop", "{'createUser': 'ada'}", TRUCE_INVALID, "CommandNotFound");
    expect(store, "shop", "{'find': 7}", TRUCE_INVALID, "errmsg");
    expect(store, "shop", "{'find': 'c', 'wrong': 1}", TRUCE_INVALID, "wrong");
    expect(store, "shop", "{'truceEnqueue': 'mail'}", TRUCE_INVALID, "payload");
    expect(store, "shop", "{'truceJobs': 'mail', 'id': {'$oid': '0123456789abcdef01234567'}}",
           TRUCE_OK, "\"jobs\" : [");
    CHECK_INT(truce_command(store, "shop", &empty, &reply, &error), ==, TRUCE_INVALID);
    bson_destroy(&reply);
    CHECK_INT(truce_command(store, "a.b", &empty, &reply, &error), ==, TRUCE_INVALID);
    bson_destroy(&reply);
    CHECK_INT(truce_command(store, "shop", NULL, &reply, &error), ==, TRUCE_INVALID);
    bson_destroy(&reply);
    CHECK_INT(truce_command(store, "shop", &empty, NULL, &error), ==, TRUCE_INVALID);
    truce_store_close(store);
}

#define SESSION                                                                                    \
    "'lsid': {'id': {'$uuid': '00000000-0000-4000-8000-000000000001'}}, 'txnNumber': {'$numberLong': '1'}, 'autocommit': false"

TEST(commits_and_aborts_transactions)
{
    truce_store *store = open_store("file");

    expect(store, "shop",
           "{'insert': 'c', 'documents': [{'_id': 1}], 'startTransaction': true, " SESSION "}",
           TRUCE_OK, "\"n\" : 1");
    expect(store, "shop", "{'truceEnqueue': 'mail', 'payload': {'n': 1}, " SESSION "}", TRUCE_OK,
           "new");
    expect(store, "shop", "{'count': 'c'}", TRUCE_OK, "\"n\" : 0");
    expect(store, "admin", "{'commitTransaction': 1, " SESSION "}", TRUCE_OK, "ok");
    expect(store, "shop", "{'count': 'c'}", TRUCE_OK, "\"n\" : 1");
    expect(store, "shop", "{'truceQueues': 1}", TRUCE_OK, "\"ready\" : 1");
    truce_store_close(store);
}

/* ---- threads --------------------------------------------------------------------------------- */

#define THREADS 4
#define TIMES   50

static truce_store *shared;
static atomic_int failed;

static void *enqueue_many(void *arg)
{
    (void)arg;
    for (int i = 0; i < TIMES; i++) {
        bson_error_t error;
        bson_t reply;

        if (run_json_command(shared, "shop", "{'truceEnqueue': 'mail', 'payload': {'n': 1}}",
                             &reply, &error))
            atomic_fetch_add(&failed, 1);
        bson_destroy(&reply);
    }
    return NULL;
}

TEST(serves_several_threads_from_the_first_call_on)
{
    pthread_t threads[THREADS];

    shared = open_store("file");
    for (int i = 0; i < THREADS; i++)
        truce_assert(!pthread_create(&threads[i], NULL, enqueue_many, NULL));
    for (int i = 0; i < THREADS; i++)
        truce_assert(!pthread_join(threads[i], NULL));
    CHECK_INT(atomic_load(&failed), ==, 0);
    expect(shared, "shop", "{'count': 'truce_queue'}", TRUCE_OK, "\"n\" : 200");
    truce_store_close(shared);
}

/* ---- forks ----------------------------------------------------------------------------------- */

static truce_status run_first_command(bson_error_t *error)
{
    truce_store *store = open_store("memory:");
    bson_t reply;
    truce_status status =
        run_json_command(store, "shop", "{insert: 'c', documents: [{}]}", &reply, error);

    bson_destroy(&reply);
    truce_store_close(store);
    return status;
}

static atomic_bool stop_running;

static void *run_first_commands(void *arg)
{
    while (!atomic_load(&stop_running))
        (void)run_first_command(arg);
    return NULL;
}

/* The first command of a store makes its state under a mutex. A child must not inherit the mutex
 * from a thread that does not exist there. */
TEST(serves_forked_children_of_a_process_that_begins_to_serve)
{
    bson_error_t errors[2];
    pthread_t threads[2];

    if (TEST_SANITIZED) {
        test_skip("sanitizers have locks of their own, which a child inherits");
        return;
    }
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_create(&threads[i], NULL, run_first_commands, &errors[i]));
    for (int i = 0; i < 100; i++) {
        int state;
        pid_t child;

        fflush(NULL);
        child = fork();
        if (!child) {
            bson_error_t error;

            alarm(20);
            _exit(run_first_command(&error) != TRUCE_OK);
        }
        CHECK(waitpid(child, &state, 0) == child && !state);
    }
    atomic_store(&stop_running, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

/* The mongodb:// store with a simulated server. The tests check the fields of every command, the
 * meaning of the answers, and the features of each deployment. */
#include "store/mongodb/mongo.h"

#include <dlfcn.h>

#include "base/clock.h"
#include "store/store.h"
#include "tests/support/bank.h"
#include "tests/support/stage.h"
#include "tests/support/tutorial.h"

/* ---- errors --------------------------------------------------------------------------------- */

/* of a read, a write, a statement of a transaction */
static const struct {
    uint32_t code;
    truce_status read, write, statement;
} meanings[] = {
    {1, TRUCE_IO, TRUCE_UNKNOWN, TRUCE_CONFLICT},
    {6, TRUCE_IO, TRUCE_UNKNOWN, TRUCE_CONFLICT},
    {7, TRUCE_IO, TRUCE_UNKNOWN, TRUCE_CONFLICT},
    {8, TRUCE_IO, TRUCE_UNKNOWN, TRUCE_CONFLICT},
    {64, TRUCE_IO, TRUCE_UNKNOWN, TRUCE_CONFLICT},
    {89, TRUCE_IO, TRUCE_UNKNOWN, TRUCE_CONFLICT},
    {91, TRUCE_IO, TRUCE_UNKNOWN, TRUCE_CONFLICT},
    {189, TRUCE_IO, TRUCE_UNKNOWN, TRUCE_CONFLICT},
    {262, TRUCE_IO, TRUCE_UNKNOWN, TRUCE_CONFLICT},
    {9001, TRUCE_IO, TRUCE_UNKNOWN, TRUCE_CONFLICT},
    {11600, TRUCE_IO, TRUCE_UNKNOWN, TRUCE_CONFLICT},
    {11601, TRUCE_IO, TRUCE_UNKNOWN, TRUCE_CONFLICT},
    {11602, TRUCE_IO, TRUCE_UNKNOWN, TRUCE_CONFLICT},
    {10107, TRUCE_IO, TRUCE_IO, TRUCE_CONFLICT},
    {13435, TRUCE_IO, TRUCE_IO, TRUCE_CONFLICT},
    {13436, TRUCE_IO, TRUCE_IO, TRUCE_CONFLICT},
    {10058, TRUCE_IO, TRUCE_IO, TRUCE_CONFLICT},
    {133, TRUCE_IO, TRUCE_IO, TRUCE_CONFLICT},
    {202, TRUCE_IO, TRUCE_UNKNOWN, TRUCE_CONFLICT},
    {407, TRUCE_IO, TRUCE_IO, TRUCE_CONFLICT},
    {272, TRUCE_CONFLICT, TRUCE_CONFLICT, TRUCE_CONFLICT},
    {365, TRUCE_CONFLICT, TRUCE_CONFLICT, TRUCE_CONFLICT},
    {338, TRUCE_CONFLICT, TRUCE_CONFLICT, TRUCE_CONFLICT},
    {285, TRUCE_CONFLICT, TRUCE_CONFLICT, TRUCE_CONFLICT},
    {257, TRUCE_LIMIT, TRUCE_LIMIT, TRUCE_LIMIT},
    {317, TRUCE_IO, TRUCE_IO, TRUCE_CONFLICT},
    {384, TRUCE_IO, TRUCE_IO, TRUCE_CONFLICT},
    {24, TRUCE_CONFLICT, TRUCE_CONFLICT, TRUCE_CONFLICT},
    {112, TRUCE_CONFLICT, TRUCE_CONFLICT, TRUCE_CONFLICT},
    {225, TRUCE_CONFLICT, TRUCE_CONFLICT, TRUCE_CONFLICT},
    {239, TRUCE_CONFLICT, TRUCE_CONFLICT, TRUCE_CONFLICT},
    {244, TRUCE_CONFLICT, TRUCE_CONFLICT, TRUCE_CONFLICT},
    {246, TRUCE_CONFLICT, TRUCE_CONFLICT, TRUCE_CONFLICT},
    {251, TRUCE_CONFLICT, TRUCE_CONFLICT, TRUCE_CONFLICT},
    {267, TRUCE_CONFLICT, TRUCE_CONFLICT, TRUCE_CONFLICT},
    {290, TRUCE_CONFLICT, TRUCE_CONFLICT, TRUCE_CONFLICT},
    {13388, TRUCE_CONFLICT, TRUCE_CONFLICT, TRUCE_CONFLICT},
    {117, TRUCE_CONFLICT, TRUCE_CONFLICT, TRUCE_CONFLICT},
    {175, TRUCE_CONFLICT, TRUCE_CONFLICT, TRUCE_CONFLICT},
    {237, TRUCE_CONFLICT, TRUCE_CONFLICT, TRUCE_CONFLICT},
    {276, TRUCE_CONFLICT, TRUCE_CONFLICT, TRUCE_CONFLICT},
    {277, TRUCE_CONFLICT, TRUCE_CONFLICT, TRUCE_CONFLICT},
    {12586, TRUCE_CONFLICT, TRUCE_CONFLICT, TRUCE_CONFLICT},
    {12587, TRUCE_CONFLICT, TRUCE_CONFLICT, TRUCE_CONFLICT},
    {10334, TRUCE_LIMIT, TRUCE_LIMIT, TRUCE_LIMIT},
    {17280, TRUCE_LIMIT, TRUCE_LIMIT, TRUCE_LIMIT},
    {17419, TRUCE_LIMIT, TRUCE_LIMIT, TRUCE_LIMIT},
    {17420, TRUCE_LIMIT, TRUCE_LIMIT, TRUCE_LIMIT},
    {14031, TRUCE_IO, TRUCE_IO, TRUCE_IO},
    {11000, TRUCE_DUPLICATE, TRUCE_DUPLICATE, TRUCE_DUPLICATE},
    {11001, TRUCE_DUPLICATE, TRUCE_DUPLICATE, TRUCE_DUPLICATE},
    {12582, TRUCE_DUPLICATE, TRUCE_DUPLICATE, TRUCE_DUPLICATE},
    {50, TRUCE_TIMEOUT, TRUCE_TIMEOUT, TRUCE_TIMEOUT},
    {26, TRUCE_NOT_FOUND, TRUCE_NOT_FOUND, TRUCE_NOT_FOUND},
    {13, TRUCE_INVALID, TRUCE_INVALID, TRUCE_INVALID}, /* Unauthorized */
    {18, TRUCE_INVALID, TRUCE_INVALID, TRUCE_INVALID}, /* AuthenticationFailed */
    {9, TRUCE_INVALID, TRUCE_INVALID, TRUCE_INVALID},
    {4242, TRUCE_INVALID, TRUCE_UNKNOWN, TRUCE_INVALID},   /* of a later version: unknown */
    {424242, TRUCE_INVALID, TRUCE_INVALID, TRUCE_INVALID}, /* an assertion */
    {50940, TRUCE_IO, TRUCE_UNKNOWN, TRUCE_CONFLICT},
    {82, TRUCE_IO, TRUCE_UNKNOWN, TRUCE_CONFLICT},
    {217, TRUCE_IO, TRUCE_UNKNOWN, TRUCE_CONFLICT},
    {279, TRUCE_IO, TRUCE_UNKNOWN, TRUCE_CONFLICT},
    {134, TRUCE_IO, TRUCE_IO, TRUCE_CONFLICT},
    {46, TRUCE_CONFLICT, TRUCE_CONFLICT, TRUCE_CONFLICT},
    {63, TRUCE_CONFLICT, TRUCE_CONFLICT, TRUCE_CONFLICT},
    {121, TRUCE_INVALID, TRUCE_INVALID, TRUCE_INVALID},
    {61, TRUCE_INVALID, TRUCE_INVALID, TRUCE_INVALID},
};

static const enum mongo_kind kinds[] = {MONGO_READ, MONGO_WRITE, MONGO_STATEMENT};

/* A conflict within a client's transaction has the code of a transient error: the server's, if
 * drivers know it as one. */
static uint32_t domain_of(enum mongo_kind kind, truce_status status, uint32_t code)
{
    static const uint32_t transient[] = {24, 112, 239, 246, 251, 267};

    if (kind != MONGO_STATEMENT || status != TRUCE_CONFLICT)
        return TRUCE_ERROR_SERVER;
    for (size_t i = 0; i < sizeof transient / sizeof *transient; i++) {
        if (transient[i] == code)
            return TRUCE_ERROR_SERVER;
    }
    return TRUCE_ERROR;
}

TEST(every_error_of_the_server_means_one_thing)
{
    bson_t none = BSON_INITIALIZER;

    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++) {
        truce_status wanted[] = {meanings[i].read, meanings[i].write, meanings[i].statement};

        for (int k = 0; k < 3; k++) {
            bson_error_t error = {0}, caught = {.domain = MONGOC_ERROR_SERVER,
                                                .code = meanings[i].code,
                                                .message = "it is so."};
            int before = test_failures();

            CHECK_STATUS(wanted[k],
                         truce__mongo_failed(kinds[k], "find in x", &none, &caught, &error), error);
            CHECK_TEXT("find in x: it is so", error.message);
            CHECK_INT(error.domain, ==, domain_of(kinds[k], wanted[k], meanings[i].code));
            CHECK_STATUS(wanted[k],
                         truce__mongo_refused(kinds[k], "x", meanings[i].code, "no", &error),
                         error);
            if (test_failures() > before)
                fprintf(stderr, "    (code %d, kind %d)\n", (int)meanings[i].code, k);
        }
    }
}

TEST(maps_codes_of_one_meaning_to_one_status)
{
    bson_error_t error;

    CHECK_STATUS(TRUCE_DUPLICATE, truce__mongo_refused(MONGO_WRITE, "x", 12582, "taken", &error),
                 error);
    CHECK_INT(error.code, ==, 11000);
    CHECK_STATUS(TRUCE_LIMIT, truce__mongo_refused(MONGO_WRITE, "x", 17419, "large", &error),
                 error);
    CHECK_INT(error.code, ==, 10334);
    CHECK_STATUS(TRUCE_INVALID, truce__mongo_refused(MONGO_WRITE, "x", 0, NULL, &error), error);
    CHECK_TEXT("x: no reason given", error.message);
}

TEST(distinguishes_unsent_writes_from_writes_without_a_reply)
{
    static const struct {
        uint32_t domain, code;
        truce_status read, write, statement;
    } cases[] = {
        {MONGOC_ERROR_SERVER_SELECTION, 13053, TRUCE_IO, TRUCE_IO, TRUCE_CONFLICT},
        {MONGOC_ERROR_STREAM, MONGOC_ERROR_STREAM_CONNECT, TRUCE_IO, TRUCE_IO, TRUCE_CONFLICT},
        {MONGOC_ERROR_STREAM, MONGOC_ERROR_STREAM_NAME_RESOLUTION, TRUCE_IO, TRUCE_IO,
         TRUCE_CONFLICT},
        {MONGOC_ERROR_STREAM, MONGOC_ERROR_STREAM_SOCKET, TRUCE_IO, TRUCE_UNKNOWN, TRUCE_CONFLICT},
        {MONGOC_ERROR_WRITE_CONCERN, 64, TRUCE_IO, TRUCE_UNKNOWN, TRUCE_CONFLICT},
        {MONGOC_ERROR_CLIENT, MONGOC_ERROR_CLIENT_AUTHENTICATE, TRUCE_INVALID, TRUCE_INVALID,
         TRUCE_INVALID},
        {MONGOC_ERROR_BSON, MONGOC_ERROR_PROTOCOL_INVALID_REPLY, TRUCE_IO, TRUCE_UNKNOWN,
         TRUCE_CONFLICT},
        {MONGOC_ERROR_COMMAND, MONGOC_ERROR_PROTOCOL_INVALID_REPLY, TRUCE_IO, TRUCE_UNKNOWN,
         TRUCE_CONFLICT},
        {MONGOC_ERROR_COMMAND, MONGOC_ERROR_COMMAND_INVALID_ARG, TRUCE_INVALID, TRUCE_INVALID,
         TRUCE_INVALID},
        {MONGOC_ERROR_PROTOCOL, 1, TRUCE_IO, TRUCE_UNKNOWN, TRUCE_CONFLICT},
    };
    bson_t none = BSON_INITIALIZER;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        truce_status wanted[] = {cases[i].read, cases[i].write, cases[i].statement};

        for (int k = 0; k < 3; k++) {
            bson_error_t error = {0}, caught = {.domain = cases[i].domain, .code = cases[i].code};

            if (!CHECK_STATUS(wanted[k], truce__mongo_failed(kinds[k], "x", &none, &caught, &error),
                              error))
                fprintf(stderr, "    (domain %d, code %d, kind %d)\n", (int)cases[i].domain,
                        (int)cases[i].code, k);
        }
    }
}

TEST(reports_unreachable_servers_in_its_own_words)
{
    static const struct {
        const char *theirs, *ours;
    } cases[] = {
        {"No suitable servers found: `serverSelectionTimeoutMS` expired",
         "x: no server accepts writes"},
        {"No suitable servers found: `serverSelectionTimeoutMS` expired: [Failed to connect to "
         "target host: [::1]:27017] [Failed to resolve a.b]",
         "x: no reply from [::1]:27017, unknown host a.b"},
        {"No suitable servers found (`serverSelectionTryOnce` set): [connection refused calling "
         "hello on 'h:1']",
         "x: no reply from 'h:1'"},
        {"y: [Failed to read 1347703876 bytes: socket error or timeout]",
         "x: the peer is not a MongoDB server, or stopped replying"},
        {"y: [TLS handshake failed.]", "x: TLS handshake failed"},
        {"y: [", "x: no server accepts writes"},
        {"y: [Failed to resolve ", "x: unknown host "},
    };
    bson_t none = BSON_INITIALIZER;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bson_error_t error, caught = {.domain = MONGOC_ERROR_SERVER_SELECTION, .code = 13053};

        bson_strncpy(caught.message, cases[i].theirs, sizeof caught.message);
        CHECK_STATUS(TRUCE_IO, truce__mongo_failed(MONGO_READ, "x", &none, &caught, &error), error);
        CHECK_TEXT(cases[i].ours, error.message);
    }
}

TEST(treats_a_transaction_aborted_by_the_server_as_a_conflict)
{
    bson_t *reply = test_bson("{'errorLabels': ['TransientTransactionError']}");
    bson_error_t error, caught = {.domain = MONGOC_ERROR_SERVER, .code = 4242};

    CHECK_STATUS(TRUCE_CONFLICT, truce__mongo_failed(MONGO_STATEMENT, "x", reply, &caught, &error),
                 error);
    CHECK_STATUS(TRUCE_UNKNOWN, truce__mongo_failed(MONGO_WRITE, "x", reply, &caught, &error),
                 error);
    bson_destroy(reply);
}

/* ---- the URI -------------------------------------------------------------------------------- */

TEST(refuses_a_uri_that_weakens_guarantees)
{
    static const char *const options[] = {
        "w=0",
        "w=1",
        "w=2",
        "w=tag",
        "journal=false",
        "readPreference=secondary",
        "readPreference=primaryPreferred",
        "readPreference=secondaryPreferred",
        "readPreference=nearest",
        "readConcernLevel=local",
        "readConcernLevel=available",
        "readConcernLevel=snapshot",
    };
    truce_store *store = NULL;
    bson_error_t error;
    char uri[200], name[64];

    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        snprintf(uri, sizeof uri, "mongodb://127.0.0.1:9/x?serverSelectionTimeoutMS=10&%s",
                 options[i]);
        CHECK_STATUS(TRUCE_INVALID, truce_store_open(uri, NULL, &store, &error), error);
        CHECK(store == NULL);
        snprintf(name, sizeof name, "%.*s=", (int)strcspn(options[i], "="), options[i]);
        CHECK(strstr(error.message, name) != NULL);
    }
}

/* Without a time in the URI or the options, the opening waits ten seconds, and not the thirty seconds
 * of a call. The limit leaves fifteen seconds for a busy machine. */
TEST(gives_up_an_opening_without_any_reply_after_ten_seconds)
{
    int64_t begun_ms = truce__clock_monotonic_ns() / 1000000;
    truce_store *store = NULL;
    bson_error_t error;

    CHECK_STATUS(TRUCE_IO, truce_store_open("mongodb://127.0.0.1:9/x", NULL, &store, &error),
                 error);
    CHECK(strstr(error.message, "127.0.0.1:9") != NULL);
    CHECK_INT(truce__clock_monotonic_ns() / 1000000 - begun_ms, >=, 9000);
    CHECK_INT(truce__clock_monotonic_ns() / 1000000 - begun_ms, <, 25000);
}

#define DURABLE "{ \"w\" : \"majority\", \"j\" : true, \"wtimeout\" : 30000 }"
#define RELAXED "{ \"w\" : \"majority\", \"j\" : false, \"wtimeout\" : 30000 }"

TEST(requests_majority_and_journal_with_every_write)
{
    bson_t *document = test_bson("{'_id': 1}"), *update = test_bson("{'$set': {'a': 1}}"), shown;
    bson_t *index = test_bson("{'key': {'a': 1}}"), *out = test_bson("[{'$out': 'x'}]");
    truce_write_options relaxed = {.relaxed = true};
    truce_modify_options modify_relaxed = {.relaxed = true};
    struct stage stage = {{0}};
    truce_cursor *cursor = NULL;
    bson_error_t error;

    if (!CHECK_OK(raise_stage(&stage, FAKE_REPLICA_SET, 21, "", &error), error))
        goto out;
    CHECK_OK(truce_insert(stage.store, "things", document, NULL, &error), error);
    CHECK_ASKED("insert", "writeConcern", DURABLE);
    CHECK_OK(truce_insert(stage.store, "things", document, &relaxed, &error), error);
    CHECK_ASKED("insert", "writeConcern", RELAXED);
    CHECK_OK(truce_update(stage.store, "things", document, update, NULL, NULL, &error), error);
    CHECK_ASKED("update", "writeConcern", DURABLE);
    CHECK_OK(truce_remove(stage.store, "things", document, NULL, NULL, &error), error);
    CHECK_ASKED("delete", "writeConcern", DURABLE);
    CHECK_STATUS(
        TRUCE_NOT_FOUND,
        truce_find_and_modify(stage.store, "things", document, update, NULL, &shown, NULL, &error),
        error);
    bson_destroy(&shown);
    CHECK_ASKED("findAndModify", "writeConcern", DURABLE);
    CHECK_STATUS(TRUCE_NOT_FOUND,
                 truce_find_and_modify(stage.store, "things", document, update, &modify_relaxed,
                                       &shown, NULL, &error),
                 error);
    bson_destroy(&shown);
    CHECK_ASKED("findAndModify", "writeConcern", RELAXED);
    CHECK_OK(truce_index_create(stage.store, "things", index, &error), error);
    CHECK_ASKED("createIndexes", "writeConcern", DURABLE);
    CHECK_OK(truce_aggregate(stage.store, "things", out, NULL, &cursor, &error), error);
    CHECK_ASKED("aggregate", "writeConcern", DURABLE);
    truce_cursor_close(cursor);
    CHECK_OK(truce_collection_create(stage.store, "things", &error), error);
    CHECK_ASKED("create", "writeConcern", DURABLE);
out:
    strike(&stage);
    bson_destroy(document);
    bson_destroy(update);
    bson_destroy(index);
    bson_destroy(out);
}

#define MAJORITY     "{ \"level\" : \"majority\" }"
#define LINEARIZABLE "{ \"level\" : \"linearizable\" }"

static void look(struct stage *stage, const char *filter_json, const truce_find_options *options,
                 const char *wanted, int line)
{
    bson_t *filter = test_bson(filter_json);
    truce_cursor *cursor = NULL;
    bson_error_t error;

    CHECK_OK(truce_find(stage->store, "things", filter, options, &cursor, &error), error);
    truce_cursor_close(cursor);
    check_asked(stage, "find", "readConcern", wanted, line);
    bson_destroy(filter);
}

TEST(reads_with_majority_and_decisions_with_linearizable)
{
    bson_t *pipeline = test_bson("[{'$match': {'a': 1}}]"), values;
    struct stage stage = {{0}}, alone = {{0}}, sharded = {{0}}, direct = {{0}};
    truce_cursor *cursor = NULL;
    bson_error_t error;
    int64_t count;

    if (CHECK_OK(raise_stage(&stage, FAKE_REPLICA_SET, 21, "", &error), error)) {
        look(&stage, "{'a': 1}", NULL, MAJORITY, __LINE__);
        look(&stage, "{'_id': 1}", NULL, MAJORITY, __LINE__);
        look(&stage, "{'_id': 1}", &truce__find_latest, LINEARIZABLE, __LINE__);
        look(&stage, "{'_id': {'$eq': 1}}", &truce__find_latest, LINEARIZABLE, __LINE__);
        look(&stage, "{'_id': {'$gt': 1}}", &truce__find_latest, MAJORITY, __LINE__);
        CHECK_OK(truce_count(stage.store, "things", NULL, NULL, &count, &error), error);
        CHECK_ASKED("aggregate", "readConcern", MAJORITY);
        CHECK_OK(truce_aggregate(stage.store, "things", pipeline, NULL, &cursor, &error), error);
        truce_cursor_close(cursor);
        CHECK_ASKED("aggregate", "readConcern", MAJORITY);
        (void)!truce_distinct(stage.store, "things", "a", NULL, &values, &error); /* no values */
        bson_destroy(&values);
        CHECK_ASKED("distinct", "readConcern", MAJORITY);
    }
    strike(&stage);
    if (CHECK_OK(raise_stage(&alone, FAKE_STANDALONE, 21, "", &error), error))
        look(&alone, "{'_id': 1}", &truce__find_latest, "", __LINE__); /* no other member */
    strike(&alone);
    if (CHECK_OK(raise_stage(&sharded, FAKE_SHARDED, 21, "", &error), error))
        look(&sharded, "{'_id': 1}", &truce__find_latest, LINEARIZABLE, __LINE__);
    strike(&sharded);
    if (CHECK_OK(raise_stage(&direct, FAKE_REPLICA_SET, 21, "directConnection=true", &error),
                 error))
        look(&direct, "{'_id': 1}", &truce__find_latest, MAJORITY, __LINE__);
    strike(&direct);
    bson_destroy(pipeline);
}

TEST(reads_one_snapshot_and_commits_to_the_majority)
{
    bson_t *document = test_bson("{'_id': 1}");
    truce_write writes[2] = {
        {.kind = TRUCE_WRITE_INSERT, .collection = "things", .document = document},
        {.kind = TRUCE_WRITE_INSERT, .collection = "others", .document = document}};
    truce_write_outcome outcomes[2];
    struct stage stage = {{0}};
    bson_error_t error;

    if (CHECK_OK(raise_stage(&stage, FAKE_REPLICA_SET, 21, "", &error), error) &&
        CHECK(stage.store->capabilities & TRUCE_CAN_ATOMIC_BULK)) {
        CHECK_OK(truce_bulk(stage.store, writes, 2, &(truce_bulk_options){.atomic = true}, outcomes,
                            &error),
                 error);
        CHECK_ASKED("commitTransaction", "writeConcern", DURABLE);
        writes[1].collection = "things"; /* one message, the first of the transaction */
        CHECK_OK(truce_bulk(stage.store, writes, 2, &(truce_bulk_options){.atomic = true}, outcomes,
                            &error),
                 error);
        CHECK_ASKED("insert", "readConcern", "{ \"level\" : \"snapshot\" }");
    }
    strike(&stage);
    bson_destroy(document);
}

/* ---- features of each deployment ------------------------------------------------------------- */

static void check_open(struct script script, enum fake_deployment deployment, int32_t wire,
                       truce_status wanted, const char *words, int line)
{
    struct stage stage = {script};
    bson_error_t error = {0};
    truce_status status = raise_stage(&stage, deployment, wire, "", &error);

    test_check_status((int)wanted, (int)status, &error, "open", __FILE__, line);
    if (wanted && !strstr(error.message, words))
        test_fail(__FILE__, line, "\"%s\"", error.message);
    strike(&stage);
}
TEST(reports_a_server_without_durable_writes_at_the_open)
{
    struct script script = {"delete", NULL, 9, 0};

    script.reply = "{'ok': 0, 'code': 2, 'errmsg': 'cannot use j without a journal'}";
    check_open(script, FAKE_STANDALONE, 21, TRUCE_INVALID, "no journal", __LINE__);
    check_open(script, FAKE_REPLICA_SET, 21, TRUCE_INVALID, "no journal", __LINE__);
    script.reply = "{'ok': 1, 'n': 0, 'writeConcernError': {'code': 100, 'errmsg': 'not enough "
                   "members'}}";
    check_open(script, FAKE_REPLICA_SET, 21, TRUCE_IO, "not enough members", __LINE__);
    script.reply = "{'ok': 0, 'code': 13, 'errmsg': 'not authorized'}";
    check_open(script, FAKE_REPLICA_SET, 21, TRUCE_INVALID, "not authorized", __LINE__);
}

static void check_can(struct script script, enum fake_deployment deployment, int32_t wire,
                      uint32_t can, int line)
{
    const uint32_t all = TRUCE_CAN_PIPELINE_UPDATE | TRUCE_CAN_ARRAY_FILTERS |
                         TRUCE_CAN_ATOMIC_BULK | TRUCE_CAN_SNAPSHOT_READ | TRUCE_CAN_WAIT |
                         TRUCE_CAN_WILDCARD_INDEX;
    struct stage stage = {script};
    bson_error_t error = {0};

    if (CHECK_OK(raise_stage(&stage, deployment, wire, "", &error), error))
        test_check_int(stage.store->capabilities & all, can,
                       (stage.store->capabilities & all) == can, "capabilities", __FILE__, line);
    strike(&stage);
}

TEST(derives_capabilities_from_the_servers_replies)
{
    const uint32_t updates = TRUCE_CAN_PIPELINE_UPDATE | TRUCE_CAN_ARRAY_FILTERS;
    const uint32_t transactions = TRUCE_CAN_ATOMIC_BULK | TRUCE_CAN_SNAPSHOT_READ;
    struct script refused = {"update", "{'ok': 0, 'code': 9, 'errmsg': 'not here'}", 9, 0};
    struct script no_transactions = {"commitTransaction", "{'ok': 0, 'code': 20, 'errmsg': 'no'}",
                                     9, 0};

    check_can((struct script){0}, FAKE_REPLICA_SET, 21,
              updates | transactions | TRUCE_CAN_WAIT | TRUCE_CAN_WILDCARD_INDEX, __LINE__);
    check_can((struct script){0}, FAKE_SHARDED, 8,
              updates | transactions | TRUCE_CAN_WAIT | TRUCE_CAN_WILDCARD_INDEX, __LINE__);
    check_can((struct script){0}, FAKE_STANDALONE, 21, updates | TRUCE_CAN_WILDCARD_INDEX,
              __LINE__);
    check_can((struct script){0}, FAKE_REPLICA_SET, 7,
              TRUCE_CAN_ARRAY_FILTERS | transactions | TRUCE_CAN_WAIT, __LINE__);
    check_can((struct script){0}, FAKE_SHARDED, 7, TRUCE_CAN_ARRAY_FILTERS | TRUCE_CAN_WAIT,
              __LINE__);
    check_can((struct script){0}, FAKE_REPLICA_SET, 6, TRUCE_CAN_ARRAY_FILTERS, __LINE__);
    check_can(refused, FAKE_STANDALONE, 21, TRUCE_CAN_WILDCARD_INDEX, __LINE__);
    check_can(no_transactions, FAKE_REPLICA_SET, 21,
              updates | TRUCE_CAN_WAIT | TRUCE_CAN_WILDCARD_INDEX, __LINE__);
}

/* ---- lost answers --------------------------------------------------------------------------- */

static void check_insert(struct script script, enum fake_deployment deployment, truce_status wanted,
                         int sent, int line)
{
    bson_t *document = test_bson("{'_id': 1}");
    struct stage stage = {{0}};
    bson_error_t error = {0};

    if (CHECK_OK(raise_stage(&stage, deployment, 21, "", &error), error)) {
        stage_script(&stage, script);
        test_check_status((int)wanted,
                          (int)truce_insert(stage.store, "things", document, NULL, &error), &error,
                          "insert", __FILE__, line);
        test_check_int(stage.script.seen, sent, stage.script.seen == sent, "messages", __FILE__,
                       line);
    }
    strike(&stage);
    bson_destroy(document);
}

TEST(resends_a_write_without_a_reply_only_as_a_retryable_one)
{
    struct script cut = {"insert", NULL, 1, 0}, gone = {"insert", NULL, 9, 0};

    check_insert(cut, FAKE_REPLICA_SET, TRUCE_OK, 2, __LINE__);
    check_insert(gone, FAKE_REPLICA_SET, TRUCE_UNKNOWN, 2, __LINE__);
    check_insert(cut, FAKE_STANDALONE, TRUCE_UNKNOWN, 1, __LINE__);
}

TEST(a_write_that_may_be_lost_again_is_not_acknowledged)
{
    struct script script = {"insert", NULL, 9, 0};

    script.reply = "{'ok': 1, 'n': 1, 'writeConcernError': {'code': 64, 'errmsg': 'timed out'}}";
    check_insert(script, FAKE_REPLICA_SET, TRUCE_UNKNOWN, 1, __LINE__);
    script.reply = "{'ok': 1, 'n': 0, 'writeErrors': [{'index': 0, 'code': 11000, 'errmsg': 'x'}]}";
    check_insert(script, FAKE_REPLICA_SET, TRUCE_DUPLICATE, 1, __LINE__);
}

TEST(a_write_conflict_of_one_write_is_tried_again)
{
    struct script script = {"insert", NULL, 2, 0};

    script.reply = "{'ok': 1, 'n': 0, 'writeErrors': [{'index': 0, 'code': 112, 'errmsg': 'x'}]}";
    check_insert(script, FAKE_REPLICA_SET, TRUCE_OK, 3, __LINE__);
}

/* ---- transactions ---------------------------------------------------------------------------- */

/* An atomic bulk of two inserts; the script is for the first commands of its name in it. */
static void check_atomic(struct script script, truce_status wanted, int least, int most, int line)
{
    bson_t *document = test_bson("{'_id': 1}");
    truce_write writes[2] = {
        {.kind = TRUCE_WRITE_INSERT, .collection = "things", .document = document},
        {.kind = TRUCE_WRITE_INSERT, .collection = "others", .document = document}};
    truce_bulk_options options = {.atomic = true, .deadline_ms = 300};
    truce_write_outcome outcomes[2];
    struct stage stage = {{0}};
    bson_error_t error = {0};

    if (CHECK_OK(raise_stage(&stage, FAKE_REPLICA_SET, 21, "", &error), error)) {
        stage_script(&stage, script);
        test_check_status((int)wanted,
                          (int)truce_bulk(stage.store, writes, 2, &options, outcomes, &error),
                          &error, "bulk", __FILE__, line);
        test_check_int(stage.script.seen, least,
                       stage.script.seen >= least && stage.script.seen <= most, "messages",
                       __FILE__, line);
    }
    strike(&stage);
    bson_destroy(document);
}

TEST(a_commit_whose_end_is_not_known_is_sent_again_until_it_is)
{
    struct script script = {"commitTransaction", NULL, 4, 0};

    script.reply = "{'ok': 0, 'code': 50, 'errmsg': 'late', 'errorLabels': "
                   "['UnknownTransactionCommitResult']}";
    check_atomic(script, TRUCE_OK, 5, 5, __LINE__);
    script.times = 1000000;
    check_atomic(script, TRUCE_UNKNOWN, 2, 1000000, __LINE__);
    script.reply = "{'ok': 1, 'writeConcernError': {'code': 64, 'errmsg': 'late'}, "
                   "'errorLabels': ['UnknownTransactionCommitResult']}";
    check_atomic(script, TRUCE_UNKNOWN, 2, 1000000, __LINE__);
}

TEST(a_transaction_that_failed_before_its_commit_left_nothing)
{
    struct script script = {"commitTransaction", NULL, 1, 0};

    script.reply = "{'ok': 0, 'code': 251, 'errmsg': 'gone', 'errorLabels': "
                   "['TransientTransactionError']}";
    check_atomic(script, TRUCE_CONFLICT, 1, 1, __LINE__);
    script = (struct script){"insert", NULL, 9, 0}; /* a statement is never sent again */
    check_atomic(script, TRUCE_CONFLICT, 1, 1, __LINE__);
    script.reply = "{'ok': 1, 'n': 0, 'writeErrors': [{'index': 0, 'code': 11000, 'errmsg': 'x'}]}";
    check_atomic(script, TRUCE_DUPLICATE, 1, 1, __LINE__);
}

/* ---- connections ---------------------------------------------------------------------------- */

TEST(waits_for_an_exhausted_pool_and_reports_it)
{
    struct stage stage = {.options = {.deadline_ms = 1000}};
    truce_cursor *cursor = NULL;
    bson_error_t error;
    int64_t count;

    if (CHECK_OK(raise_stage(&stage, FAKE_STANDALONE, 21, "maxPoolSize=1", &error), error)) {
        stage_script(
            &stage,
            (struct script){
                "find",
                "{'cursor': {'id': {'$numberLong': '7'}, 'ns': 'db.things', 'firstBatch': []}}", 1,
                0});
        CHECK_OK(truce_find(stage.store, "things", NULL, NULL, &cursor, &error), error);
        CHECK_STATUS(TRUCE_TIMEOUT, truce_count(stage.store, "things", NULL, NULL, &count, &error),
                     error);
        CHECK(strstr(error.message, "maxPoolSize") != NULL);
        truce_cursor_close(cursor);
        CHECK_OK(truce_count(stage.store, "things", NULL, NULL, &count, &error), error);
    }
    strike(&stage);
}

/* ---- views ----------------------------------------------------------------------------------- */

/* Answers each find with the document, and says that the collection has a unique index. */
static enum fake_act show_view(const bson_t *command, bson_t *reply, void *arg)
{
    static const char index[] = "{'v': 2, 'key': {'badges.type': 1}, 'name': 'b', 'unique': true}";
    bool finds = bson_has_field(command, "find");
    bson_t *said;
    char json[400];

    if (!finds && !bson_has_field(command, "listIndexes"))
        return FAKE_PASS;
    snprintf(json, sizeof json, "{'cursor': {'id': 0, 'ns': 'db.things', 'firstBatch': [%s]}}",
             finds ? (const char *)arg : index);
    said = test_bson(json);
    bson_concat(reply, said);
    bson_destroy(said);
    return FAKE_ANSWER;
}

static void check_no_id(truce_status status, const bson_error_t *error, int line)
{
    if (status != TRUCE_INVALID || !strstr(error->message, "has no _id"))
        test_fail(__FILE__, line, "%s: %s", truce_status_name(status), error->message);
}

/* A view may remove the _id, also from a document that a commit holds. */
TEST(refuses_documents_of_a_view_without_an_id)
{
    static const char *const documents[] = {
        "{'badges': [{'type': 1}]}",
        "{'badges': [{'type': 1}], '_intent': {'c': {'$oid': '5f0000000000000000000001'}}}"};

    for (size_t i = 0; i < sizeof documents / sizeof *documents; i++) {
        struct stage stage = {{0}};
        bson_t *filter = test_bson("{'a': 1}"), *thing = test_bson("{'type': 2}");
        bson_error_t error = {0};

        if (CHECK_OK(raise_stage(&stage, FAKE_STANDALONE, 21, "", &error), error)) {
            truce_item *item = tutorial_item(stage.store, NULL);
            const truce_unique_options options = {.settle_ms = 1};
            const truce_commit_options commit = {.mechanism = TRUCE_MECHANISM_JOURNAL};
            truce_unique_report report;
            truce_commit *begun;

            stage_script(&stage, (struct script){.own = show_view, .arg = (void *)documents[i]});
            check_no_id(truce_item_convert(item, TRUCE_ITEM_MAP, NULL, NULL, &error), &error,
                        __LINE__);
            check_no_id(truce_unique_declare(stage.store, "things", &options, &report, &error),
                        &error, __LINE__);
            CHECK_OK(truce_commit_begin(stage.store, &commit, &begun, &error), error);
            check_no_id(truce_item_add(item, begun, filter, thing, NULL, &error), &error, __LINE__);
            truce_commit_free(begun);
            truce_item_free(item);
        }
        strike(&stage);
        bson_destroy(thing);
        bson_destroy(filter);
    }
}

/* ---- libmongoc, loaded ---------------------------------------------------------------------- */

TEST(a_libmongoc_that_cannot_be_loaded_is_named)
{
    bson_error_t error = {0};

    CHECK_STATUS(TRUCE_INVALID, truce__mongoc_load("libmongoc-that-is-not-there.so", &error),
                 error);
    if (!strstr(error.message, "libmongoc-that-is-not-there.so") ||
        !strstr(error.message, "libmongoc-1.0-0"))
        test_fail(__FILE__, __LINE__, "%s", error.message);
    CHECK_STATUS(TRUCE_INVALID, truce__mongoc_load("libm.so.6", &error), error);
    if (!strstr(error.message, "libm.so.6 has no function mongoc_"))
        test_fail(__FILE__, __LINE__, "%s", error.message);
    CHECK_OK(truce__mongoc_load(NULL, &error), error);
}

static char heard[300];
static truce_log_level heard_level;

static void hear(truce_log_level level, const char *message, void *arg)
{
    heard_level = level;
    snprintf(heard, sizeof heard, "%s", message);
}

TEST(logs_messages_of_libmongoc_without_passwords)
{
    struct mongoc_audience first = {.log_hook = {hear, NULL}}, second = {.log_hook = {0}};
    void (*say)(mongoc_log_level_t level, const char *domain, const char *format, ...);
    bson_error_t error;
    void *library;

    REQUIRE(CHECK_OK(truce__mongoc_load(NULL, &error), error));
    library = dlopen("libmongoc-1.0.so.0", RTLD_NOW | RTLD_NOLOAD);
    REQUIRE(library != NULL);
    *(void **)&say = dlsym(library, "mongoc_log");
    REQUIRE(say != NULL);
    say(MONGOC_LOG_LEVEL_WARNING, "test", "no listener yet");
    truce__mongoc_listen(&first);
    truce__mongoc_listen(&second);
    CHECK_TEXT("", heard);
    say(MONGOC_LOG_LEVEL_WARNING, "test", "a word");
    if (!*heard) { /* so messages stay the program's */
        truce__mongoc_listen_end(&first);
        truce__mongoc_listen_end(&second);
        dlclose(library);
        test_skip("this build of the program had libmongoc before truce loaded it");
        return;
    }
    CHECK_TEXT("libmongoc (test): a word", heard);
    CHECK_INT(heard_level, ==, TRUCE_LOG_WARNING);
    say(MONGOC_LOG_LEVEL_ERROR, "test", "another");
    CHECK_TEXT("libmongoc (test): another", heard);
    CHECK_INT(heard_level, ==, TRUCE_LOG_ERROR);
    say(MONGOC_LOG_LEVEL_WARNING, "test", "mongodb://me:secret@host is wrong");
    say(MONGOC_LOG_LEVEL_DEBUG, "test", "chatter");
    CHECK_TEXT("libmongoc (test): another", heard);
    truce__mongoc_listen_end(&first);
    say(MONGOC_LOG_LEVEL_ERROR, "test", "no handler");
    CHECK_TEXT("libmongoc (test): another", heard);
    truce__mongoc_listen_end(&second);
    dlclose(library);
}

/*
 * A store on a server with corrupted answers: a field is missing, duplicated, or changed. Each call
 * returns, with any status; no answer crashes the client.
 */
#include "base/random.h"
#include "tests/support/changed_bson.h"
#include "tests/support/proxy.h"
#include "tests/support/served_story.h"
#include "truce/truce.h"

static truce_store *through;
static struct proxy *proxy;
static bson_t *one, *filter, *update, *pipeline;
static bson_error_t error;

/* ---- calls ----------------------------------------------------------------------------------- */

static void drain(truce_status status, truce_cursor *cursor)
{
    const bson_t *document = NULL;

    for (int i = 0; !status && i < 1000; i++) {
        status = truce_cursor_next(cursor, &document, &error);
        if (!document)
            break;
    }
    truce_cursor_close(cursor);
}

static void do_find(void)
{
    truce_cursor *cursor = NULL;
    truce_find_options options = {.limit = 300};
    truce_status status = truce_find(through, "things", filter, &options, &cursor, &error);

    drain(status, cursor);
}

static void do_aggregate(void)
{
    truce_cursor *cursor = NULL;
    truce_status status = truce_aggregate(through, "things", pipeline, NULL, &cursor, &error);

    drain(status, cursor);
}

static void do_insert(void)
{
    (void)!truce_insert(through, "things", one, NULL, &error);
}

static void do_update(void)
{
    truce_write_options options = {.upsert = true};
    truce_write_result result = {0};

    (void)!truce_update(through, "things", filter, update, &options, &result, &error);
    truce_write_result_release(&result);
}

static void do_remove(void)
{
    truce_write_result result = {0};

    (void)!truce_remove(through, "things", filter, NULL, &result, &error);
    truce_write_result_release(&result);
}

static void do_modify(void)
{
    truce_modify_options options = {.upsert = true, .return_new = true};
    bson_t found;

    (void)!truce_find_and_modify(through, "things", filter, update, &options, &found, NULL, &error);
    bson_destroy(&found);
}

static void do_bulk(void)
{
    truce_write writes[] = {
        {.kind = TRUCE_WRITE_INSERT, .collection = "things", .document = one},
        {.kind = TRUCE_WRITE_UPDATE, .collection = "things", .filter = filter, .document = update}};
    truce_write_outcome outcomes[2] = {{0}};

    (void)!truce_bulk(through, writes, 2, NULL, outcomes, &error);
    for (int i = 0; i < 2; i++)
        truce_write_result_release(&outcomes[i].result);
}

static void do_count(void)
{
    int64_t count;

    (void)!truce_count(through, "things", filter, NULL, &count, &error);
}

static void do_distinct(void)
{
    bson_t values;

    (void)!truce_distinct(through, "things", "n", filter, &values, &error);
    bson_destroy(&values);
}

static void do_indexes(void)
{
    bson_t indexes;

    (void)!truce_index_list(through, "things", &indexes, &error);
    bson_destroy(&indexes);
}

static void do_collections(void)
{
    bson_t collections;

    (void)!truce_collection_list(through, NULL, &collections, &error);
    bson_destroy(&collections);
}

static void commit_by(truce_mechanism mechanism)
{
    truce_commit_options options = {.mechanism = mechanism, .deadline_ms = 100};
    bson_value_t a = {.value_type = BSON_TYPE_INT32, .value.v_int32 = 1},
                 b = {.value_type = BSON_TYPE_INT32, .value.v_int32 = 2};
    truce_commit *commit = NULL;
    truce_status status = truce_commit_begin(through, &options, &commit, &error);

    if (!status)
        status = truce_commit_update(commit, "things", &a, NULL, update, &error);
    if (!status)
        status = truce_commit_update(commit, "things", &b, NULL, update, &error);
    if (!status)
        status = truce_commit_apply(commit, &error);
    truce_commit_free(commit);
}

static void do_native(void)
{
    commit_by(TRUCE_MECHANISM_NATIVE);
}

static void do_journal(void)
{
    commit_by(TRUCE_MECHANISM_JOURNAL);
}

static void do_sequence(void)
{
    int64_t number;

    (void)!truce_sequence_next(through, "orders", &number, &error);
}

static void do_doctor(void)
{
    truce_doctor_report report;

    (void)!truce_doctor(through, NULL, NULL, &report, &error);
    bson_destroy(&report.facts);
}

static const struct {
    const char *name;
    void (*call)(void);
} calls[] = {{"find", do_find},       {"aggregate", do_aggregate}, {"insert", do_insert},
             {"update", do_update},   {"remove", do_remove},       {"modify", do_modify},
             {"bulk", do_bulk},       {"count", do_count},         {"distinct", do_distinct},
             {"indexes", do_indexes}, {"list", do_collections},    {"native", do_native},
             {"journal", do_journal}, {"sequence", do_sequence},   {"doctor", do_doctor}};

/* ---- the changes ----------------------------------------------------------------------------- */

static void open_through(void)
{
    char uri[200];

    proxy = proxy_start(server_port(server));
    REQUIRE(proxy != NULL);
    snprintf(uri, sizeof uri,
             "mongodb://127.0.0.1:%d/test?socketTimeoutMS=2000&serverSelectionTimeoutMS=2000",
             proxy_port(proxy));
    CHECK_OK(truce_store_open(uri, NULL, &through, &error), error);
    one = test_bson("{'n': 1, 'text': 'x'}");
    filter = test_bson("{'n': {'$gte': 0}}");
    update = test_bson("{'$inc': {'n': 1}}");
    pipeline = test_bson("{'0': {'$match': {'n': {'$gte': 0}}}, '1': {'$limit': 200}}");
}

static void close_through(void)
{
    truce_store_close(through);
    proxy_stop(proxy);
    bson_destroy(one);
    bson_destroy(filter);
    bson_destroy(update);
    bson_destroy(pipeline);
}

static void fill(void)
{
    truce_write_options all = {.multi = true};
    bson_t none = BSON_INITIALIZER;
    bson_error_t ignored;

    (void)!truce_remove(store, "things", &none, &all, NULL, &ignored);
    for (int i = 1; i <= 3; i++) {
        bson_t *document = BCON_NEW("_id", BCON_INT32(i), "n", BCON_INT32(i));

        CHECK_OK(truce_insert(store, "things", document, NULL, &error), error);
        bson_destroy(document);
    }
}

/* The answers that the call gets, in one of which a field is changed. */
static void call_spoilt(void (*call)(void), struct random *random)
{
    uint64_t answers;

    fill();
    proxy_arm(proxy, PROXY_NOTHING, TO_CLIENT, 0);
    call();
    answers = proxy_count(proxy, TO_CLIENT);
    fill();
    proxy_change(proxy, (uint32_t)truce__random_below(random, 1000),
                 (uint32_t)truce__random_below(random, bson_changes));
    proxy_arm(proxy, PROXY_SAY_CHANGED, TO_CLIENT,
              1 + truce__random_below(random, answers ? answers : 1));
    call();
    proxy_arm(proxy, PROXY_NOTHING, TO_CLIENT, 0);
}

TEST(ends_each_call_whatever_the_server_replies)
{
    long rounds = test_scale("TRUCE_SPOILT_ANSWERS", 100);
    struct random random;

    begin();
    open_through();
    truce__random_seed(&random, rounds == 100 ? 100 : test_seed());
    for (long i = 0; i < rounds; i++)
        for (size_t each = 0; each < sizeof calls / sizeof *calls; each++)
            call_spoilt(calls[each].call, &random);
    /* and calls with intact answers succeed */
    do_find();
    CHECK_OK(truce_insert(through, "things", one, NULL, &error), error);
    close_through();
    end();
}

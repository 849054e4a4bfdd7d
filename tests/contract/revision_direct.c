/*
 * The usual save of a revision, which is one write. The tests show that it is one, that its filter
 * matters, and that lost answers are handled.
 */
#include "tests/support/test.h"
#include "tests/support/tutorial.h"
#include "truce/revision.h"
#include "truce/sys/decorate.h"

/* ---- a store that loses answers, and lets another client in ---------------------------------- */

enum loss { ANSWERED, LOST_DONE, LOST_UNDONE, OTHERS_FIRST };

static const truce_store_ops *plain_ops;
static truce_store_ops lossy_ops;
static enum loss losses[4]; /* of the next updates */
static int next_loss;
static bool other_saves; /* after a lost one */

static void save_for_another(truce_store *store)
{
    bson_t *filter = test_bson("{'_id': 1}");
    bson_t *update = test_bson("{'$set': {'a': 99, 'version': {'$numberLong': '9'}, '_rev': "
                               "{'$oid': '0123456789abcdef01234567'}}}");
    bson_error_t error = {0};

    other_saves = false;
    CHECK_OK(truce_update(store, "posts", filter, update, NULL, NULL, &error), error);
    bson_destroy(update);
    bson_destroy(filter);
}

static truce_status lossy_bulk(truce_store *store, const truce_write *writes, size_t count,
                               const truce_bulk_options *options, truce_write_outcome *outcomes,
                               bson_error_t *error)
{
    enum loss loss =
        writes[0].kind == TRUCE_WRITE_UPDATE && next_loss < 4 ? losses[next_loss++] : ANSWERED;
    truce_status status = TRUCE_OK;

    if (loss == OTHERS_FIRST)
        save_for_another(store);
    if (loss != LOST_UNDONE)
        status = plain_ops->bulk(store, writes, count, options, outcomes, error);
    if (loss == ANSWERED || loss == OTHERS_FIRST)
        return status;
    for (size_t i = 0; i < count; i++) {
        if (loss == LOST_DONE)
            truce_write_result_release(&outcomes[i].result);
        outcomes[i] = (truce_write_outcome){.status = TRUCE_UNKNOWN};
    }
    if (other_saves)
        save_for_another(store);
    bson_set_error(error, TRUCE_ERROR, TRUCE_UNKNOWN, "no answer");
    return TRUCE_UNKNOWN;
}

static truce_store *open_store(const enum loss *wanted)
{
    truce_store *store = NULL;
    bson_error_t error;

    CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error);
    memset(losses, 0, sizeof losses);
    if (wanted)
        memcpy(losses, wanted, sizeof losses);
    next_loss = 0;
    plain_ops = store->ops;
    lossy_ops = *plain_ops;
    lossy_ops.bulk = lossy_bulk;
    return store;
}

/* Saves {a: 2} over {_id: 1, a: 1} of number 2. */
static truce_status save_over(truce_store *store, const char *base_json, const char *mine_json,
                              truce_revision_outcome *outcome, bson_error_t *error)
{
    truce_revision *revision = tutorial_revision(store, NULL);
    bson_t *mine = test_bson(mine_json), *base = test_bson(base_json);
    truce_revision_result result;
    truce_status status = truce_revision_save(revision, NULL, mine, 2, base, &result, error);

    *outcome = status ? 0 : result.outcome;
    if (!status && result.outcome == TRUCE_REVISION_SAVED)
        CHECK_INT(result.version, ==, 3);
    truce_revision_result_release(&result);
    bson_destroy(base);
    bson_destroy(mine);
    truce_revision_free(revision);
    return status;
}

static truce_status save(truce_store *store, const char *mine_json, truce_revision_outcome *outcome,
                         bson_error_t *error)
{
    return save_over(store, "{'_id': 1, 'a': 1}", mine_json, outcome, error);
}

static void put(truce_store *store, const char *json)
{
    bson_t *document = test_bson(json);
    bson_error_t error;
    bson_oid_t rev;

    /* As a save leaves it: without a `_rev`, a commit makes the next save. */
    bson_oid_init_from_string(&rev, "0123456789abcdef01234567");
    if (!bson_has_field(document, "_rev"))
        BSON_APPEND_OID(document, "_rev", &rev);
    CHECK_OK(truce_insert(store, "posts", document, NULL, &error), error);
    bson_destroy(document);
}

/* Checks the stored document, without `_rev`. */
static void check_post(truce_store *store, const char *json)
{
    bson_t *filter = test_bson("{'_id': 1}"), *wanted = test_bson(json), found;
    bson_t plain = BSON_INITIALIZER;
    bson_error_t error;

    CHECK_OK(truce_find_one(store, "posts", filter, NULL, &found, &error), error);
    bson_copy_to_excluding_noinit(&found, &plain, "_rev", NULL);
    CHECK_BSON(wanted, &plain);
    bson_destroy(&plain);
    bson_destroy(&found);
    bson_destroy(wanted);
    bson_destroy(filter);
}

#define NUMBER(n) "'version': {'$numberLong': '" #n "'}"

static void check_losses(const enum loss wanted[4], bool other, truce_status reported)
{
    truce_store *store = open_store(wanted);
    truce_revision_outcome outcome;
    bson_error_t error = {0};

    put(store, "{'_id': 1, 'a': 1, " NUMBER(2) "}");
    store->ops = &lossy_ops;
    other_saves = other;
    CHECK_STATUS(reported, save(store, "{'_id': 1, 'a': 2}", &outcome, &error), error);
    if (!reported) {
        CHECK_INT(outcome, ==, TRUCE_REVISION_SAVED);
        check_post(store, "{'_id': 1, 'a': 2, " NUMBER(3) "}");
    }
    store->ops = plain_ops;
    truce_store_close(store);
}

TEST(saves_by_one_call_of_the_store)
{
    truce_store *store = open_store(NULL), *fault;
    truce_revision_outcome outcome;
    bson_error_t error = {0};

    put(store, "{'_id': 1, 'a': 1, " NUMBER(2) "}");
    fault = truce_fault_wrap(store, &(truce_fault_options){.writes_only = true});
    CHECK_OK(save(fault, "{'_id': 1, 'a': 2}", &outcome, &error), error);
    CHECK_INT(truce_fault_calls(fault), ==, 1);
    CHECK_INT(outcome, ==, TRUCE_REVISION_SAVED);
    truce_store_close(fault);
}

TEST(determines_the_outcome_of_a_lost_reply)
{
    check_losses((enum loss[4]){LOST_DONE}, false, TRUCE_OK);
    check_losses((enum loss[4]){LOST_UNDONE}, false, TRUCE_OK);
    check_losses((enum loss[4]){LOST_UNDONE, LOST_UNDONE, LOST_DONE}, false, TRUCE_OK);
}

TEST(reports_unknown_if_the_outcome_of_a_lost_reply_cannot_be_determined)
{
    check_losses((enum loss[4]){LOST_DONE}, true, TRUCE_UNKNOWN);
    check_losses((enum loss[4]){LOST_UNDONE}, true, TRUCE_UNKNOWN);
    check_losses((enum loss[4]){LOST_UNDONE, OTHERS_FIRST}, false, TRUCE_UNKNOWN);
}

TEST(reports_unknown_for_a_lost_reply_next_to_a_plain_write)
{
    truce_store *store = open_store((enum loss[4]){LOST_UNDONE});
    truce_revision_outcome outcome;
    bson_error_t error = {0};

    put(store, "{'_id': 1, 'a': 3, " NUMBER(2) "}");
    store->ops = &lossy_ops;
    CHECK_STATUS(TRUCE_UNKNOWN, save(store, "{'_id': 1, 'a': 2}", &outcome, &error), error);
    CHECK_INT(next_loss, ==, 1);
    store->ops = plain_ops;
    truce_store_close(store);
}

TEST(treats_a_document_under_another_number_as_stale)
{
    truce_store *store = open_store(NULL);
    truce_revision_outcome outcome;
    bson_error_t error = {0};

    put(store, "{'_id': 1, 'a': 1, " NUMBER(9) "}");
    CHECK_OK(save(store, "{'_id': 1, 'a': 2}", &outcome, &error), error);
    CHECK_INT(outcome, ==, TRUCE_REVISION_CONFLICT);
    check_post(store, "{'_id': 1, 'a': 1, " NUMBER(9) "}");
    truce_store_close(store);
}

/* Counts the writes of a save whose document is stored exactly as it was read, except for
 * truce's own fields. */
static int64_t calls_of(const char *content, truce_revision_outcome wanted)
{
    truce_store *store = open_store(NULL), *fault;
    char stands[500], mine[400], base[400];
    truce_revision_outcome outcome;
    bson_error_t error = {0};
    int64_t calls;

    snprintf(
        stands, sizeof stands,
        "{'_id': 1, %s, " NUMBER(2) ", '_rev': {'$oid': '0123456789abcdef01234567'}, 'tail': 1}",
        content);
    snprintf(base, sizeof base, "{%s, 'tail': 1, '_id': 1}", content);
    snprintf(mine, sizeof mine, "{'_id': 1, %s, 'tail': 2}", content);
    put(store, stands);
    fault = truce_fault_wrap(store, &(truce_fault_options){.writes_only = true});
    CHECK_OK(save_over(fault, base, mine, &outcome, &error), error);
    CHECK_INT(outcome, ==, wanted);
    calls = truce_fault_calls(fault);
    truce_store_close(fault);
    return calls;
}

TEST(documents_of_all_shapes_are_saved_by_one_write)
{
    static const char *const shapes[] = {
        "'a': 1",
        "'a': 'text', 'b': null, 'c': true",
        "'a': {'b': {'$numberLong': '5'}, 'c': {'d': 1.5}}",
        "'a': [1, 2.5, {'n': {'$numberLong': '5'}}, [3, [4]], 'x', {}], 'e': []",
        "'a': {'$numberDecimal': '1.50'}, 'b': {'$date': {'$numberLong': '5'}}",
        "'a': '$b', 'b': ['$a', {'c': '$$ROOT'}], 'x': {'$literal': 'no'}",
    };

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        CHECK_INT(calls_of(shapes[i], TRUCE_REVISION_SAVED), ==, 1);
}

TEST(a_document_that_a_filter_cannot_express_is_saved_by_a_commit)
{
    char many[400] = "'a': [";

    CHECK_INT(calls_of("'a': {'0': 5}", TRUCE_REVISION_SAVED), >=, 1);
    CHECK_INT(calls_of("'a.b': 5", TRUCE_REVISION_SAVED), >=, 1);
    CHECK_INT(calls_of("'': 5", TRUCE_REVISION_SAVED), >=, 1);
    CHECK_INT(calls_of("'a': {'$b': 5}", TRUCE_REVISION_SAVED), >=, 1);
    for (int i = 0; i < 150; i++)
        strcat(many, "1,");
    strcat(many, "1]");
    CHECK_INT(calls_of(many, TRUCE_REVISION_SAVED), ==, 1);
}

/* ---- saves that need a commit ---------------------------------------------------------------- */

static void check_refused(const char *stored, const char *mine, truce_status reported)
{
    truce_store *store = open_store(NULL);
    truce_revision_outcome outcome;
    bson_error_t error = {0};

    put(store, stored);
    CHECK_STATUS(reported, save(store, mine, &outcome, &error), error);
    if (reported)
        check_post(store, stored);
    truce_store_close(store);
}

TEST(a_field_that_is_not_a_number_or_revision_is_not_saved_over)
{
    check_refused("{'_id': 1, 'a': 1, 'version': [{'$numberLong': '2'}]}", "{'_id': 1, 'a': 2}",
                  TRUCE_INVALID);
    {
        truce_store *store = open_store(NULL);
        truce_revision_outcome outcome;
        bson_error_t error = {0};
        int64_t count = 0;
        bson_t *foreign = test_bson("{'_rev': 'theirs'}");

        put(store, "{'_id': 1, 'a': 1, " NUMBER(2) ", '_rev': 'theirs'}");
        CHECK_STATUS(TRUCE_INVALID, save(store, "{'_id': 1, 'a': 2}", &outcome, &error), error);
        CHECK_OK(truce_count(store, "posts", foreign, NULL, &count, &error), error);
        CHECK_INT(count, ==, 1);
        bson_destroy(foreign);
        truce_store_close(store);
    }
}

TEST(reads_a_document_that_a_commit_holds_when_the_commit_has_ended)
{
    truce_store *store = open_store(NULL);
    bson_t *commit =
        test_bson("{'_id': {'$oid': '0123456789abcdef01234567'}, 'state': 'committed', "
                  "'post': [{'ns': 'posts', 'id': 1, 'op': 'set', 'changes': "
                  "[{'p': 'a', 'v': 7}, {'p': 'version', 'v': {'$numberLong': '3'}}]}]}");
    truce_revision_outcome outcome;
    bson_error_t error = {0};

    put(store, "{'_id': 1, 'a': 1, " NUMBER(2) ", '_intent': {'c': {'$oid': "
                                               "'0123456789abcdef01234567'}}}");
    CHECK_OK(truce_insert(store, "truce_commits", commit, NULL, &error), error);
    CHECK_OK(save(store, "{'_id': 1, 'a': 2}", &outcome, &error), error);
    CHECK_INT(outcome, ==, TRUCE_REVISION_CONFLICT);
    check_post(store, "{'_id': 1, 'a': 7, " NUMBER(3) "}");
    bson_destroy(commit);
    truce_store_close(store);
}

TEST(a_save_preserves_declared_keys)
{
    truce_store *store = open_store(NULL);
    bson_t *index = test_bson("{'key': {'slug': 1}, 'unique': true}");
    bson_t *filter = test_bson("{'_keys': {'$elemMatch': {'v': 'new'}}}");
    truce_unique_options options = {.settle_ms = 1};
    truce_unique_report report;
    truce_revision_outcome outcome;
    bson_error_t error = {0};
    int64_t count = 0;

    put(store, "{'_id': 1, 'a': 1, 'slug': 'old', " NUMBER(2) "}");
    CHECK_OK(truce_index_create(store, "posts", index, &error), error);
    CHECK_OK(truce_unique_declare(store, "posts", &options, &report, &error), error);
    CHECK_OK(save_over(store, "{'_id': 1, 'a': 1, 'slug': 'old'}",
                       "{'_id': 1, 'a': 1, 'slug': 'new'}", &outcome, &error),
             error);
    CHECK_INT(outcome, ==, TRUCE_REVISION_SAVED);
    CHECK_OK(truce_count(store, "posts", filter, NULL, &count, &error), error);
    CHECK_INT(count, ==, 1);
    bson_destroy(filter);
    bson_destroy(index);
    truce_store_close(store);
}

TEST(a_field_that_begins_with_a_dollar_is_not_an_operator)
{
    check_refused("{'_id': 1, 'a': 1, " NUMBER(2) "}", "{'$set': {'a': 5}, '_id': 1, 'a': 2}",
                  TRUCE_INVALID);
}

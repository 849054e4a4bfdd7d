/* Commits on a server whose validator allows no field but its own: a transaction cannot guard
 * documents that it only reads. */
#include "tests/support/bank.h"

static const truce_store_ops *inner;
static int refused;

/* Refuses guards, as a validator refuses the field by which a server's transaction guards. */
static truce_status bulk(truce_store *store, const truce_write *writes, size_t count,
                         const truce_bulk_options *options, truce_write_outcome *outcomes,
                         bson_error_t *error)
{
    for (size_t i = 0; options->atomic && i < count; i++) {
        if (writes[i].kind != TRUCE_WRITE_REQUIRE)
            continue;
        refused++;
        for (size_t k = 0; k < count; k++)
            outcomes[k] = (truce_write_outcome){.status = TRUCE_CONFLICT};
        outcomes[i] = (truce_write_outcome){
            .status = TRUCE_INVALID,
            .error = {.domain = TRUCE_ERROR_SERVER, .code = 121, .message = "the validator"}};
        *error = outcomes[i].error;
        return TRUCE_INVALID;
    }
    return inner->bulk(store, writes, count, options, outcomes, error);
}

static truce_status look_and_change(truce_commit *commit, void *arg, bson_error_t *error)
{
    bson_value_t a = text_id("a");
    truce_status status;
    bson_t document;

    (void)arg;
    status = truce_commit_read(commit, "accounts", &a, &document, error);
    bson_destroy(&document);
    return status ? status : add_update(commit, "accounts", "b", NULL, "{'$inc': {'n': 1}}", error);
}

static void check(truce_mechanism mechanism, truce_status wanted, int n)
{
    truce_store *store = open_setting(&settings[0]);
    truce_commit_options options = {.mechanism = mechanism};
    truce_store_ops ops = *store->ops;
    bson_error_t error = {0};

    inner = store->ops;
    ops.bulk = bulk;
    store->ops = &ops;
    store->capabilities &= ~(uint32_t)TRUCE_CAN_COMPARE;
    refused = 0;
    insert_json(store, "accounts", "{'_id': 'a', 'n': 1}");
    insert_json(store, "accounts", "{'_id': 'b', 'n': 0}");
    CHECK_STATUS(wanted, truce_transact(store, look_and_change, NULL, &options, &error), error);
    CHECK_INT(refused, ==, 1);
    test_check_int(n, 1,
                   count_json(store, "accounts", n ? "{'n': 1, '_id': 'b'}" : "{'n': 0}") == 1,
                   "changed", __FILE__, __LINE__);
    CHECK_INT(count_json(store, "accounts", "{'_intent': {'$exists': true}}"), ==, 0);
    if (wanted)
        CHECK_TEXT("the validator", error.message);
    truce_store_close(store);
}

TEST(commits_by_the_journal_if_a_transaction_cannot_guard)
{
    check(TRUCE_MECHANISM_AUTO, TRUCE_OK, 1);
}

TEST(refuses_at_once_a_transaction_that_cannot_guard)
{
    check(TRUCE_MECHANISM_NATIVE, TRUCE_INVALID, 0);
}

/* ---- a validator that the store reports and does not enforce --------------------------------- */

static const char *rules;

static truce_status report_rules(truce_store *store, const char *collection, bson_t *validator,
                                 bson_error_t *error)
{
    bson_t *reported = test_bson(collection[0] == 'a' ? rules : "{}");

    (void)store;
    (void)error;
    bson_copy_to(reported, validator);
    bson_destroy(reported);
    return TRUCE_OK;
}

/* With a name it is added to both, with none only "b" is changed. */
static truce_status change(const char *reported, const char *name)
{
    truce_store *store = open_setting(&settings[0]);
    truce_commit_options options = {.mechanism = TRUCE_MECHANISM_JOURNAL};
    truce_store_ops ops = *store->ops;
    truce_commit *commit = NULL;
    bson_error_t error = {0};
    truce_status status;

    rules = reported;
    ops.validator = report_rules;
    store->ops = &ops;
    insert_json(store, "accounts", "{'_id': 'a', 'n': 1}");
    insert_json(store, "accounts", "{'_id': 'b', 'n': 'x'}");
    CHECK_OK(truce_commit_begin(store, &options, &commit, &error), error);
    if (name)
        CHECK_OK(add_update(commit, "accounts", "a", NULL, name, &error), error);
    CHECK_OK(add_update(commit, "accounts", "b", NULL, "{'$set': {'m': 1}}", &error), error);
    status = truce_commit_apply(commit, &error);
    CHECK_INT(count_json(store, "accounts", "{'m': 1}"), ==, status ? 0 : 1);
    truce_commit_free(commit);
    truce_store_close(store);
    return status;
}

TEST(changes_an_invalid_document_if_the_store_allows_it)
{
    CHECK_INT(change("{'n': {'$type': 'number'}}", NULL), ==, TRUCE_OK);
    CHECK_INT(change("{'n': {'$type': 'number'}}", "{'$set': {'n': 2}}"), ==, TRUCE_OK);
    CHECK_INT(change("{'n': {'$type': 'number'}}", "{'$set': {'n': 'y'}}"), ==, TRUCE_INVALID);
}

TEST(leaves_an_unknown_validator_to_the_store)
{
    CHECK_INT(change("{'n': {'$geoWithin': 1}}", "{'$set': {'n': 2}}"), ==, TRUCE_OK);
}

TEST(reports_a_validator_that_allows_no_revision_before_the_decision)
{
    CHECK_INT(change("{'_rev': {'$exists': false}}", "{'$set': {'n': 2}}"), ==, TRUCE_INVALID);
}

/* The contract: find-and-modify in all forms. */
#include "tests/support/contract.h"

#include "base/status.h"

const int contract_modify_cases = 1;

#define MODIFY(...) (&(truce_modify_options){__VA_ARGS__})
#define JOBS                                                                                       \
    "[{'_id': 1, 's': 'new', 'p': 2}, {'_id': 2, 's': 'new', 'p': 9}, {'_id': 3, 's': 'done'}]"

/* Runs one find-and-modify, and checks its status and the document that it returns. */
static void check_modify(struct contract *c, const char *filter, const char *update,
                         const truce_modify_options *options, const char *expected, int line)
{
    truce_write_result result;
    bson_t document;

    test_check_status(TRUCE_OK,
                      truce_find_and_modify(c->store, "jobs", J(filter), update ? J(update) : NULL,
                                            options, &document, &result, &c->error),
                      &c->error, "find-and-modify", __FILE__, line);
    test_bson_equal(J(expected), &document, __FILE__, line);
    truce_write_result_release(&result);
    bson_destroy(&document);
}
#define CHECK_MODIFY(filter, update, options, expected)                                            \
    check_modify(c, filter, update, options, expected, __LINE__)

CONTRACT(find_and_modify_returns_the_old_document_or_the_new)
{
    contract_fill(c, "jobs", JOBS);
    CHECK_MODIFY("{'_id': 1}", "{'$set': {'s': 'run'}}", NULL, "{'_id': 1, 's': 'new', 'p': 2}");
    CHECK_MODIFY("{'_id': 1}", "{'$inc': {'p': 1}}", MODIFY(.return_new = true),
                 "{'_id': 1, 's': 'run', 'p': 3}");
    CHECK_MODIFY("{'_id': 1}", "{'z': 1}", MODIFY(.return_new = true), "{'_id': 1, 'z': 1}");
}

CONTRACT(find_and_modify_takes_the_first_by_its_sort)
{
    contract_fill(c, "jobs", JOBS);
    CHECK_MODIFY("{'s': 'new'}", "{'$set': {'s': 'run'}}", MODIFY(.sort = J("{'p': -1}")),
                 "{'_id': 2, 's': 'new', 'p': 9}");
    CHECK_MODIFY("{}", NULL, MODIFY(.remove = true, .sort = J("{'_id': -1}")),
                 "{'_id': 3, 's': 'done'}");
    CHECK_HOLDS("jobs", "[{'_id': 1, 's': 'new', 'p': 2}, {'_id': 2, 's': 'run', 'p': 9}]");
}

CONTRACT(find_and_modify_projects_its_result)
{
    contract_fill(c, "jobs", JOBS);
    CHECK_MODIFY("{'_id': 1}", "{'$set': {'s': 'run'}}", MODIFY(.projection = J("{'p': 1}")),
                 "{'_id': 1, 'p': 2}");
    CHECK_MODIFY("{'_id': 1}", "{'$set': {'q': 1}}",
                 MODIFY(.projection = J("{'s': 1, '_id': 0}"), .return_new = true), "{'s': 'run'}");
    CHECK_MODIFY("{'_id': 2}", NULL, MODIFY(.remove = true, .projection = J("{'_id': 1}")),
                 "{'_id': 2}");
}

CONTRACT(find_and_modify_reports_its_effect)
{
    truce_write_result result;
    bson_t document;

    contract_fill(c, "jobs", JOBS);
    CHECK_DONE(truce_find_and_modify(c->store, "jobs", J("{'_id': 1}"), J("{'$set': {'p': 2}}"),
                                     NULL, &document, &result, &c->error));
    CHECK_INT(result.matched, ==, 1);
    if (c->store->capabilities & TRUCE_CAN_REPORT_MODIFIED)
        CHECK_INT(result.modified, ==, 0);
    bson_destroy(&document);
    CHECK_DONE(truce_find_and_modify(c->store, "jobs", J("{'_id': 1}"), NULL,
                                     MODIFY(.remove = true), &document, &result, &c->error));
    CHECK_INT(result.removed, ==, 1);
    bson_destroy(&document);
    CHECK_REFUSED(TRUCE_NOT_FOUND, 0,
                  truce_find_and_modify(c->store, "jobs", J("{'_id': 1}"), J("{'$set': {'p': 2}}"),
                                        NULL, &document, &result, &c->error));
    CHECK(bson_empty(&document));
    CHECK_INT(result.matched, ==, 0);
    bson_destroy(&document);
    CHECK_REFUSED(TRUCE_NOT_FOUND, 0,
                  truce_find_and_modify(c->store, "nothing", J("{}"), NULL, MODIFY(.remove = true),
                                        &document, NULL, &c->error));
    bson_destroy(&document);
}

CONTRACT(find_and_modify_upserts)
{
    truce_write_result result;
    bson_t document;

    CHECK_DONE(truce_find_and_modify(c->store, "jobs", J("{'_id': 5}"), J("{'$set': {'a': 1}}"),
                                     MODIFY(.upsert = true), &document, &result, &c->error));
    CHECK(result.upserted && result.upserted_id.value.v_int32 == 5);
    CHECK(bson_empty(&document));
    truce_write_result_release(&result);
    bson_destroy(&document);
    CHECK_MODIFY("{'_id': 6}", "{'$set': {'a': 2}}", MODIFY(.upsert = true, .return_new = true),
                 "{'_id': 6, 'a': 2}");
    CHECK_MODIFY("{'_id': 6}", "{'$inc': {'a': 1}}", MODIFY(.upsert = true, .return_new = true),
                 "{'_id': 6, 'a': 3}");
    CHECK_HOLDS("jobs", "[{'_id': 5, 'a': 1}, {'_id': 6, 'a': 3}]");
}

CONTRACT(find_and_modify_takes_pipelines_and_array_filters)
{
    if (!contract_needs(c, TRUCE_CAN_PIPELINE_UPDATE | TRUCE_CAN_ARRAY_FILTERS))
        return;
    contract_fill(c, "jobs", "[{'_id': 1, 'a': [1, 5, 9], 'b': 2}]");
    CHECK_MODIFY("{}", "[{'$set': {'b': {'$multiply': ['$b', 10]}}}]",
                 MODIFY(.pipeline = true, .return_new = true, .projection = J("{'b': 1}")),
                 "{'_id': 1, 'b': 20}");
    CHECK_MODIFY("{}", "{'$set': {'a.$[x]': 0}}",
                 MODIFY(.array_filters = J("[{'x': {'$gt': 4}}]"), .return_new = true),
                 "{'_id': 1, 'a': [1, 0, 0], 'b': 20}");
}

CONTRACT(refuses_an_invalid_find_and_modify_and_changes_nothing)
{
    const truce_modify_options refused[] = {
        {.remove = true},                      /* A removal with an update. */
        {.remove = true, .upsert = true},      /* The same as an upsert. */
        {.sort = J("{'a': 'up'}")},            /* An invalid sort. */
        {.projection = J("{'a': 1, 'b': 0}")}, /* An invalid projection. */
        {.array_filters = J("[{'x': 1}]")},    /* A filter that the update does not use. */
    };
    bson_t document;

    contract_fill(c, "jobs", JOBS);
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        CHECK_REFUSED(TRUCE_INVALID, 0,
                      truce_find_and_modify(c->store, "jobs", J("{}"), J("{'$set': {'s': 'x'}}"),
                                            &refused[i], &document, NULL, &c->error));
        CHECK(bson_empty(&document));
        bson_destroy(&document);
    }
    CHECK_REFUSED(
        TRUCE_INVALID, CODE_FAILED_TO_PARSE,
        truce_find_and_modify(c->store, "jobs", J("{}"), NULL, NULL, &document, NULL, &c->error));
    bson_destroy(&document);
    CHECK_REFUSED(TRUCE_INVALID, CODE_FAILED_TO_PARSE,
                  truce_find_and_modify(c->store, "jobs", J("{}"), NULL,
                                        MODIFY(.remove = true, .return_new = true), &document, NULL,
                                        &c->error));
    bson_destroy(&document);
    CHECK_HOLDS("jobs", JOBS);
}

CONTRACT(a_find_and_modify_with_a_duplicate_key_changes_nothing)
{
    truce_write_result result;
    bson_t document;

    contract_fill(c, "jobs", "[{'_id': 1, 'k': 1}, {'_id': 2, 'k': 2}]");
    CHECK_DONE(
        truce_index_create(c->store, "jobs", J("{'key': {'k': 1}, 'unique': true}"), &c->error));
    CHECK_REFUSED(TRUCE_DUPLICATE, CODE_DUPLICATE_KEY,
                  truce_find_and_modify(c->store, "jobs", J("{'_id': 1}"), J("{'$set': {'k': 2}}"),
                                        NULL, &document, &result, &c->error));
    CHECK_INT(result.matched, ==, 0);
    CHECK(bson_empty(&document));
    bson_destroy(&document);
    CHECK_REFUSED(TRUCE_DUPLICATE, CODE_DUPLICATE_KEY,
                  truce_find_and_modify(c->store, "jobs", J("{'_id': 3}"), J("{'$set': {'k': 2}}"),
                                        MODIFY(.upsert = true), &document, &result, &c->error));
    bson_destroy(&document);
    CHECK_HOLDS("jobs", "[{'_id': 1, 'k': 1}, {'_id': 2, 'k': 2}]");
}

#ifndef TRUCE_TESTS_SUPPORT_SYNC_RIG_H
#define TRUCE_TESTS_SUPPORT_SYNC_RIG_H

/* The common part of the tests of copies: users and their comments, and the expected state of
 * them. */
#include "base/clock.h"
#include "tests/support/bank.h"

static inline truce_sync *rig_sync(truce_store *store, truce_mechanism mechanism,
                                   uint32_t deadline_ms)
{
    return truce_sync_new(
        store,
        &(truce_sync_options){.batch = 2, .deadline_ms = deadline_ms, .mechanism = mechanism});
}

static inline truce_status rig_declare(truce_sync *sync, const char *name, const char *source,
                                       const char *dependent, const char *reference,
                                       const char *copies, bson_error_t *error)
{
    bson_t *document = test_bson(copies);
    truce_sync_rule rule = {.name = name,
                            .source = source,
                            .dependent = dependent,
                            .reference = reference,
                            .copies = document,
                            .resume_ms = 1,
                            .settle_ms = 1};
    truce_status status = truce_sync_declare(sync, &rule, error);

    bson_destroy(document);
    return status;
}

static inline void rig_author(truce_sync *sync)
{
    bson_error_t error = {0};

    CHECK_OK(rig_declare(sync, "author", "users", "comments", "user", "{'author': 'name'}", &error),
             error);
}

static inline truce_status rig_change(truce_sync *sync, const char *collection, const char *id,
                                      const char *update, truce_sync_result *result,
                                      bson_error_t *error)
{
    bson_value_t value = text_id(id);
    bson_t *operators = test_bson(update);
    truce_status status =
        truce_sync_update(sync, NULL, collection, &value, operators, result, error);

    bson_destroy(operators);
    return status;
}

static inline truce_status rig_insert(truce_sync *sync, const char *collection, const char *json,
                                      truce_sync_result *result, bson_error_t *error)
{
    bson_t *document = test_bson(json);
    truce_status status = truce_sync_insert(sync, NULL, collection, document, result, error);

    bson_destroy(document);
    return status;
}

/* Returns the string at a path of a document, or "" if it is missing. `text` has the result. */
static inline const char *rig_text(truce_store *store, const char *collection, const char *id,
                                   const char *path, char text[40])
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(id)), found;
    bson_iter_t iter, value;
    bson_error_t error;

    text[0] = 0;
    if (!truce_find_one(store, collection, filter, NULL, &found, &error) &&
        bson_iter_init(&iter, &found) && bson_iter_find_descendant(&iter, path, &value) &&
        BSON_ITER_HOLDS_UTF8(&value))
        snprintf(text, 40, "%s", bson_iter_utf8(&value, NULL));
    bson_destroy(&found);
    bson_destroy(filter);
    return text;
}

#define CHECK_FIELD(wanted, collection, id, path)                                                  \
    CHECK_TEXT(wanted, rig_text(store, collection, id, path, (char[40]){0}))

static inline void rig_sweep(truce_store *store)
{
    truce_sweep_report report;
    bson_error_t error = {0};

    truce__clock_sleep_ms(2);
    for (int i = 0; i < 3; i++)
        CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
}

/* Checks that no flag is left, and no copy differs. */
static inline void rig_in_step(truce_sync *sync, truce_store *store, const char *rule)
{
    truce_sync_report report;
    bson_error_t error = {0};

    CHECK_INT(count_json(store, "users", "{'syncing': {'$exists': true}}"), ==, 0);
    CHECK_INT(count_json(store, "comments", "{'unchecked': {'$exists': true}}"), ==, 0);
    CHECK_OK(truce_sync_walk(sync, rule, NULL, &report, &error), error);
    CHECK_INT(report.differ, ==, 0);
    CHECK_INT(report.under_way, ==, 0);
}

#endif

/*
 * Commits next to plain writers, at size limits, and with invalid calls. Each commit fails with an
 * error or is correct, and is never partly applied.
 */
#include "base/clock.h"
#include "base/limits.h"
#include "tests/support/bank.h"
#include "truce/sys/decorate.h"

static truce_commit *begin(truce_store *store, const struct setting *setting)
{
    truce_commit_options options = {.mechanism = setting->mechanism, .deadline_ms = 60000};
    truce_commit *commit = NULL;
    bson_error_t error = {0};

    CHECK_OK(truce_commit_begin(store, &options, &commit, &error), error);
    return commit;
}

static truce_status read_one(truce_commit *commit, const char *id, bson_error_t *error)
{
    bson_value_t value = text_id(id);
    bson_t document;
    truce_status status = truce_commit_read(commit, "things", &value, &document, error);

    bson_destroy(&document);
    return status;
}

static void plain(truce_store *store, const char *id, const char *update)
{
    bson_value_t value = text_id(id);
    bson_t filter = BSON_INITIALIZER, *change = test_bson(update);
    bson_error_t error = {0};

    BSON_APPEND_VALUE(&filter, "_id", &value);
    CHECK_OK(truce_update(store, "things", &filter, change, NULL, NULL, &error), error);
    bson_destroy(change);
    bson_destroy(&filter);
}

static void two_things(truce_store *store)
{
    insert_json(store, "things", "{'_id': 'a', 'n': 0, 's': 'x', 'l': [1]}");
    insert_json(store, "things", "{'_id': 'b', 'n': 0}");
}

/* By a commit, so that both have a revision. */
static void commit_both(truce_store *store, const struct setting *setting)
{
    truce_commit *commit = begin(store, setting);
    bson_error_t error = {0};

    CHECK_OK(add_update(commit, "things", "a", NULL, "{'$push': {'l': 2}}", &error), error);
    CHECK_OK(add_update(commit, "things", "b", NULL, "{'$inc': {'n': 1}}", &error), error);
    CHECK_OK(truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
}

/* ---- reads ----------------------------------------------------------------------------------- */

static void refused(truce_store *store, const struct setting *setting, bool other, bool require)
{
    truce_commit *commit = begin(store, setting);
    bson_error_t error = {0};

    CHECK_OK(read_one(commit, "a", &error), error);
    plain(store, "a", "{'$push': {'l': 3}}");
    if (!require)
        CHECK_OK(add_update(commit, "things", "a", NULL, "{'$push': {'l': 4}}", &error), error);
    if (other)
        CHECK_OK(add_update(commit, "things", "b", NULL, "{'$inc': {'n': 10}}", &error), error);
    CHECK_STATUS(TRUCE_CONFLICT, truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
}

static void plain_write_between(truce_store *store, const struct setting *setting)
{
    two_things(store);
    refused(store, setting, false, false); /* no revision yet */
    refused(store, setting, true, false);
    commit_both(store, setting);
    refused(store, setting, false, false);
    refused(store, setting, true, false);
    refused(store, setting, true, true);
    CHECK_DOCUMENT(store, "things", "a",
                   "{'_id': 'a', 'n': 0, 's': 'x', 'l': [1, 3, 3, 2, 3, 3, 3]}");
    CHECK_DOCUMENT(store, "things", "b", "{'_id': 'b', 'n': 1}");
}

TEST(refuses_a_commit_whose_reads_a_plain_write_changed)
{
    on_every_setting(plain_write_between);
}

static void changed_type(truce_store *store, const struct setting *setting)
{
    truce_commit *commit;
    bson_error_t error = {0};

    if (setting->lacks || !strncmp(setting->uri, "server:", 7))
        return; /* compared by value: 0.0 is 0 */
    two_things(store);
    commit_both(store, setting);
    commit = begin(store, setting);
    CHECK_OK(read_one(commit, "a", &error), error);
    plain(store, "a", "{'$set': {'n': {'$numberDouble': '0.0'}}}");
    CHECK_OK(add_update(commit, "things", "a", NULL, "{'$inc': {'n': 1}}", &error), error);
    CHECK_STATUS(TRUCE_CONFLICT, truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
}

TEST(another_type_of_the_same_number_is_another_document)
{
    on_every_setting(changed_type);
}

/* Documents of many megabytes; the test does not need the disk. */
static bool on_disk(const struct setting *setting)
{
    return !strcmp(setting->uri, "file:");
}

static void large_document(truce_store *store, const struct setting *setting)
{
    size_t length = 9 * 1024 * 1024;
    char *text = bson_malloc(length + 1);
    bson_t document = BSON_INITIALIZER;
    truce_commit *commit;
    bson_error_t error = {0};

    if (on_disk(setting)) {
        bson_free(text);
        return;
    }
    memset(text, 'x', length);
    text[length] = 0;
    BSON_APPEND_UTF8(&document, "_id", "a");
    BSON_APPEND_UTF8(&document, "text", text);
    CHECK_OK(truce_insert(store, "things", &document, NULL, &error), error);
    for (int changed = 0; changed <= 1; changed++) {
        commit = begin(store, setting);
        CHECK_OK(read_one(commit, "a", &error), error);
        if (changed)
            plain(store, "a", "{'$set': {'m': 1}}");
        CHECK_OK(add_update(commit, "things", "a", NULL, "{'$inc': {'n': 1}}", &error), error);
        CHECK_STATUS(changed ? TRUCE_CONFLICT : TRUCE_OK, truce_commit_apply(commit, &error),
                     error);
        truce_commit_free(commit);
    }
    commit = begin(store, setting);
    CHECK_OK(add_update(commit, "things", "a", NULL, "{'$inc': {'n': 1}}", &error), error);
    CHECK_OK(truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    CHECK_INT(count_json(store, "things", "{'n': 2, 'm': 1}"), ==, 1);
    insert_json(store, "things", "{'_id': 'b', 'n': 0}");
    commit = begin(store, setting); /* together with another document */
    CHECK_OK(read_one(commit, "a", &error), error);
    CHECK_OK(add_update(commit, "things", "a", NULL, "{'$inc': {'n': 1}}", &error), error);
    CHECK_OK(add_update(commit, "things", "b", NULL, "{'$inc': {'n': 1}}", &error), error);
    CHECK_OK(truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    if (setting->lacks) /* nothing was sent that is too large for a filter */
        CHECK_INT(count_json(store, "truce_commits", "{'state': 'done'}"), ==, 3);
    CHECK_INT(count_json(store, "truce_commits", "{'overwritten.0': {'$exists': true}}"), ==, 0);
    bson_destroy(&document);
    bson_free(text);
}

TEST(compares_values_that_are_too_large_for_a_filter)
{
    on_every_setting(large_document);
}

/* ---- a blind change, then a read ------------------------------------------------------------- */

static void fails_for_good(truce_store *store, const struct setting *setting, const char *id,
                           const char *guard, const char *update, truce_status expected)
{
    truce_commit *commit = begin(store, setting);
    bson_value_t b = text_id("b");
    bson_error_t error = {0};

    CHECK_OK(add_update(commit, "things", "b", NULL, "{'$inc': {'n': 5}}", &error), error);
    CHECK_OK(add_update(commit, "things", id, NULL, "{'$inc': {'n': 1}}", &error), error);
    CHECK_OK(add_update(commit, "things", id, guard, update, &error), error);
    CHECK_STATUS(expected, read_one(commit, id, &error), error);
    error.message[0] = 0;
    CHECK_STATUS(expected, truce_commit_remove(commit, "things", &b, NULL, &error), error);
    CHECK(strstr(error.message, id) != NULL || strstr(error.message, "'s'") != NULL);
    CHECK_STATUS(expected, truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    CHECK_DOCUMENT(store, "things", "a", "{'_id': 'a', 'n': 0, 's': 'x', 'l': [1]}");
    CHECK_DOCUMENT(store, "things", "b", "{'_id': 'b', 'n': 0}");
}

static void blind_then_read(truce_store *store, const struct setting *setting)
{
    two_things(store);
    fails_for_good(store, setting, "missing", NULL, "{'$inc': {'n': 1}}", TRUCE_NOT_FOUND);
    fails_for_good(store, setting, "a", "{'n': {'$gte': 5}}", "{'$inc': {'n': -5}}", TRUCE_REFUSED);
    fails_for_good(store, setting, "a", NULL, "{'$inc': {'s': 1}}", TRUCE_INVALID);
}

TEST(fails_a_read_after_an_impossible_write_of_its_commit)
{
    on_every_setting(blind_then_read);
}

static void guard_that_fails(truce_store *store, const struct setting *setting)
{
    truce_commit *commit = begin(store, setting);
    bson_value_t a = text_id("a"), missing = text_id("missing");
    bson_t *guard = test_bson("{'n': 7}");
    bson_error_t error = {0};

    two_things(store);
    CHECK_STATUS(TRUCE_REFUSED, truce_commit_require(commit, "things", &a, guard, &error), error);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_commit_require(commit, "things", &missing, guard, &error),
                 error);
    CHECK_OK(add_update(commit, "things", "b", NULL, "{'$inc': {'n': 1}}", &error), error);
    CHECK_OK(truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    CHECK_DOCUMENT(store, "things", "b", "{'_id': 'b', 'n': 1}");
    bson_destroy(guard);
}

TEST(excludes_a_failed_guard_from_the_commit)
{
    on_every_setting(guard_that_fails);
}

/* ---- calls as they should not be ------------------------------------------------------------- */

static void renames(truce_store *store, const struct setting *setting)
{
    static const char *const updates[] = {
        "{'$rename': {'n': '_intent'}}", "{'$rename': {'n': '_rev'}}",
        "{'$rename': {'n': '_intent.c'}}", "{'$rename': {'_rev': 'n'}}"};
    bson_error_t error = {0};

    two_things(store);
    for (size_t i = 0; i < sizeof updates / sizeof *updates; i++) {
        truce_commit *commit = begin(store, setting);

        CHECK_STATUS(TRUCE_INVALID, add_update(commit, "things", "a", NULL, updates[i], &error),
                     error);
        truce_commit_free(commit);
    }
    CHECK_DOCUMENT(store, "things", "a", "{'_id': 'a', 'n': 0, 's': 'x', 'l': [1]}");
}

TEST(no_operator_renames_a_field_to_one_of_truces)
{
    on_every_setting(renames);
}

static truce_status apply_and_complain(truce_commit *commit, void *arg, bson_error_t *error)
{
    truce_status status;

    ++*(int *)arg;
    status = add_update(commit, "things", "a", NULL, "{'$inc': {'n': 1}}", error);
    if (!status)
        status = truce_commit_apply(commit, error);
    return status ? status : TRUCE_CONFLICT;
}

static void applied_then_conflict(truce_store *store, const struct setting *setting)
{
    truce_commit_options options = {.mechanism = setting->mechanism};
    bson_error_t error = {0};
    int runs = 0;

    two_things(store);
    CHECK_STATUS(TRUCE_INVALID, truce_transact(store, apply_and_complain, &runs, &options, &error),
                 error);
    CHECK_INT(runs, ==, 1);
    CHECK_DOCUMENT(store, "things", "a", "{'_id': 'a', 'n': 1, 's': 'x', 'l': [1]}");
}

TEST(a_function_that_applied_its_commit_is_not_run_again)
{
    on_every_setting(applied_then_conflict);
}

static truce_status always_late(truce_commit *commit, void *arg, bson_error_t *error)
{
    truce_status status = read_one(commit, "a", error);

    plain(arg, "a", "{'$inc': {'n': 1}}");
    return status ? status : add_update(commit, "things", "a", NULL, "{'$inc': {'n': 1}}", error);
}

static void statuses(truce_store *store, const struct setting *setting)
{
    truce_commit_options options = {.mechanism = setting->mechanism, .tries_max = 2};
    bson_t *again = test_bson("{'_id': 'a', 'n': 9}");
    bson_error_t error = {0};
    truce_commit *commit;

    two_things(store);
    CHECK_STATUS(TRUCE_CONFLICT, truce_transact(store, always_late, store, &options, &error),
                 error);
    options.tries_max = 1000000;
    options.deadline_ms = 50;
    CHECK_STATUS(TRUCE_TIMEOUT, truce_transact(store, always_late, store, &options, &error), error);
    for (int others = 0; others <= 1; others++) { /* one document, and several */
        commit = begin(store, setting);
        CHECK_OK(truce_commit_insert(commit, "things", again, &error), error);
        if (others)
            CHECK_OK(add_update(commit, "things", "b", NULL, "{'$inc': {'n': 1}}", &error), error);
        CHECK_STATUS(TRUCE_DUPLICATE, truce_commit_apply(commit, &error), error);
        truce_commit_free(commit);
    }
    bson_destroy(again);
}

TEST(returns_the_statuses_of_the_header)
{
    on_every_setting(statuses);
}

static truce_status once_late(truce_commit *commit, void *arg, bson_error_t *error)
{
    truce_status status = read_one(commit, "a", error);

    if (!status && *(truce_store **)arg)
        plain(*(truce_store **)arg, "a", "{'$inc': {'n': 1}}");
    *(truce_store **)arg = NULL;
    return status ? status : add_update(commit, "things", "a", NULL, "{'$inc': {'n': 1}}", error);
}

static void error_untouched(truce_store *store, const struct setting *setting)
{
    truce_commit_options options = {.mechanism = setting->mechanism};
    bson_error_t error = {.code = 4711};
    truce_store *once = store;

    two_things(store);
    CHECK_OK(truce_transact(store, once_late, &once, &options, &error), error);
    CHECK_INT(error.code, ==, 4711);
    CHECK(error.message[0] == 0);
}

TEST(the_error_is_untouched_where_the_second_try_was_right)
{
    on_every_setting(error_untouched);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static void insert_of_size(truce_store *store, uint32_t size)
{
    bson_t document = BSON_INITIALIZER;
    bson_error_t error = {0};
    char *text;

    BSON_APPEND_UTF8(&document, "_id", "a");
    text = bson_malloc(size);
    memset(text, 'x', size);
    text[size - document.len - 8] = 0; /* type, "t", length, two NULs */
    BSON_APPEND_UTF8(&document, "t", text);
    CHECK_INT(document.len, ==, size);
    CHECK_OK(truce_insert(store, "things", &document, NULL, &error), error);
    bson_free(text);
    bson_destroy(&document);
}

static void at_the_limit(truce_store *store, const struct setting *setting)
{
    static const int below[] = {10, 25, 30, 40, 60};

    if (on_disk(setting))
        return;
    insert_json(store, "things", "{'_id': 'b', 'n': 0}");
    for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
        truce_commit *commit = begin(store, setting);
        bson_t *filter = test_bson("{'_id': 'a'}");
        bson_error_t error = {0};
        truce_status status;

        insert_of_size(store, TRUCE_DOCUMENT_BYTES_MAX - (uint32_t)below[i]);
        CHECK_OK(add_update(commit, "things", "a", NULL, "{'$set': {'v': 'aaaaaaaaaaaaaaaaaaaa'}}",
                            &error),
                 error);
        CHECK_OK(add_update(commit, "things", "b", NULL, "{'$inc': {'n': 1}}", &error), error);
        status = truce_commit_apply(commit, &error);
        if (status)
            CHECK_STATUS(TRUCE_LIMIT, status, error);
        truce_commit_free(commit);
        CHECK_INT(count_json(store, "things", "{'_intent': {'$exists': true}}"), ==, 0);
        CHECK_INT(count_json(store, "things", "{'v': {'$exists': true}}"), ==, !status);
        CHECK_OK(truce_remove(store, "things", filter, NULL, NULL, &error), error);
        bson_destroy(filter);
    }
}

TEST(reserves_space_for_the_revision_of_a_decided_commit)
{
    on_every_setting(at_the_limit);
}

/* ---- a plain write in the way of a decided commit -------------------------------------------- */

struct story {
    const char *set;              /* the commit's change of "a" */
    const char *plain;            /* the plain write, between the decision and the release */
    const char *left, *displaced; /* displaced NULL: nothing */
    const char *before;           /* a plain write before the commit; NULL: none */
};

static void sweep_all(truce_store *store)
{
    truce_sweep_report report;
    bson_error_t error = {0};

    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(report.failed, ==, 0);
}

/* The owner's calls fail once it has decided: insert, two prepares, decision. */
static void tell(truce_store *store, const struct setting *setting, const struct story *story)
{
    truce_fault_options none = {0};
    truce_fault_options fail = {
        .kind = TRUCE_FAULT_FAIL, .at = 5, .writes_only = true, .from_then_on = true};
    truce_commit *commit;
    bson_error_t error = {0};

    two_things(store);
    if (story->before)
        plain(store, "a", story->before);
    commit_both(store, setting); /* the indexes exist */
    commit = begin(store, setting);
    CHECK_OK(add_update(commit, "things", "a", NULL, story->set, &error), error);
    CHECK_OK(add_update(commit, "things", "b", NULL, "{'$inc': {'n': 1}}", &error), error);
    truce_fault_arm(store, &fail);
    CHECK_OK(truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    truce_fault_arm(store, &none);
    CHECK_INT(count_json(store, "things", "{'_intent': {'$exists': true}}"), ==, 2);
    plain(store, "a", story->plain);
    sweep_all(store);
    CHECK_INT(count_json(store, "things", "{'_intent': {'$exists': true}}"), ==, 0);
    CHECK_INT(count_json(store, "truce_commits", "{'state': 'done'}"), ==, 2);
    CHECK_INT(count_json(store, "truce_displaced", story->displaced ? story->displaced : "{}"), ==,
              story->displaced != NULL);
    CHECK_INT(count_json(store, "truce_commits", "{'overwritten': {'$exists': true}}"), ==, 0);
    CHECK_DOCUMENT(store, "things", "a", story->left);
    CHECK_DOCUMENT(store, "things", "b", "{'_id': 'b', 'n': 2}");
}

static void in_the_way(const struct story *story)
{
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        truce_store *store;

        if (settings[i].mechanism != TRUCE_MECHANISM_JOURNAL)
            continue;
        store = truce_fault_wrap(open_setting(&settings[i]), &(truce_fault_options){0});
        tell(store, &settings[i], story);
        truce_store_close(store);
    }
}

TEST(applies_a_decided_commit_over_plain_writes)
{
    in_the_way(&(struct story){
        .set = "{'$set': {'d.e': 1, 'd.f.g': 2}}",
        .plain = "{'$set': {'d': 5}}",
        .left = "{'_id': 'a', 'n': 0, 's': 'x', 'l': [1, 2], 'd': {'e': 1, 'f': {'g': 2}}}",
        .displaced = "{'reason': 'in the way', 'values': [{'p': 'd', 'v': 5}]}",
        .before = "{'$set': {'d': {'e': 0, 'f': {'g': 0}}}}",
    });
    in_the_way(&(struct story){
        .set = "{'$set': {'d.f.g': 2}, '$unset': {'d.e': 1}}",
        .plain = "{'$set': {'d.f': [1], 'd.x': 7}}",
        .left = "{'_id': 'a', 'n': 0, 's': 'x', 'l': [1, 2], 'd': {'f': {'g': 2}, 'x': 7}}",
        .displaced = "{'values': [{'p': 'd.f', 'v': [1]}]}",
        .before = "{'$set': {'d': {'e': 0, 'f': {'g': 0}}}}",
    });
}

TEST(merges_or_keeps_a_plain_write_of_the_same_field)
{
    static const struct story stories[] = {
        {"{'$set': {'n': 1}}", "{'$set': {'s': 'y'}}", "{'n': 1, 's': 'y', 'l': [1, 2]}", NULL},
        {"{'$set': {'n': 1}}", "{'$set': {'n': 1}}", "{'n': 1, 's': 'x', 'l': [1, 2]}", NULL},
        {"{'$set': {'n': 1}}", "{'$inc': {'n': 7}}", "{'n': 1, 's': 'x', 'l': [1, 2]}",
         "{'reason': 'same field', 'values': [{'p': 'n', 'v': 7}]}"},
        {"{'$set': {'n': 1}}", "{'$unset': {'n': 1}}", "{'s': 'x', 'l': [1, 2], 'n': 1}",
         "{'reason': 'same field', 'values': [{'p': 'n'}]}"},
        {"{'$unset': {'n': 1}}", "{'$inc': {'n': 7}}", "{'s': 'x', 'l': [1, 2]}",
         "{'reason': 'same field', 'values': [{'p': 'n', 'v': 7}]}"},
        /* operators */
        {"{'$inc': {'n': 1}}", "{'$inc': {'n': 1}}", "{'n': 2, 's': 'x', 'l': [1, 2]}", NULL},
        {"{'$inc': {'k': 1}}", "{'$inc': {'k': 2}}", "{'n': 0, 's': 'x', 'l': [1, 2], 'k': 3}",
         NULL},
        {"{'$max': {'n': 5}}", "{'$set': {'n': 9}}", "{'n': 9, 's': 'x', 'l': [1, 2]}", NULL},
        {"{'$mul': {'n': 5}, '$inc': {'k': 1}}", "{'$inc': {'n': 9, 'k': 9}}",
         "{'n': 9, 's': 'x', 'l': [1, 2], 'k': 10}", NULL},
        {"{'$inc': {'n': 1}}", "{'$set': {'n': 'y'}}", "{'n': 1, 's': 'x', 'l': [1, 2]}",
         "{'values': [{'p': 'n', 'v': 'y'}]}"},
        {"{'$rename': {'n': 'm'}}", "{'$inc': {'n': 1}}", "{'s': 'x', 'l': [1, 2], 'm': 0}",
         "{'values': [{'p': 'n', 'v': 1}]}"},
        /* lists: the element that a plain writer pushed comes last */
        {"{'$push': {'l': 3}}", "{'$push': {'l': 4}}", "{'n': 0, 's': 'x', 'l': [1, 2, 3, 4]}",
         NULL},
        {"{'$push': {'l': 3}}", "{'$push': {'l': 3}}", "{'n': 0, 's': 'x', 'l': [1, 2, 3, 3]}",
         NULL},
        {"{'$set': {'l': [9]}}", "{'$push': {'l': 4}}", "{'n': 0, 's': 'x', 'l': [9, 4]}", NULL},
        {"{'$set': {'l': [9]}}", "{'$set': {'l': [7, 8, 4]}}", "{'n': 0, 's': 'x', 'l': [9]}",
         "{'values': [{'p': 'l', 'v': [7, 8, 4]}]}"},
        {"{'$push': {'l': 3}}", "{'$pull': {'l': 1}}", "{'n': 0, 's': 'x', 'l': [2, 3]}", NULL},
        {"{'$push': {'l': {'$each': [3], '$position': 0}}}", "{'$pull': {'l': 1}}",
         "{'n': 0, 's': 'x', 'l': [3, 1, 2]}", "{'values': [{'p': 'l', 'v': [2]}]}"},
        {"{'$push': {'k': 3}}", "{'$push': {'k': 4}}",
         "{'n': 0, 's': 'x', 'l': [1, 2], 'k': [3, 4]}", NULL},
        {"{'$set': {'l': 5}}", "{'$push': {'l': 4}}", "{'n': 0, 's': 'x', 'l': 5}",
         "{'values': [{'p': 'l', 'v': [1, 2, 4]}]}"},
    };

    for (size_t i = 0; i < sizeof stories / sizeof *stories; i++) {
        struct story story = stories[i];
        char left[200];

        snprintf(left, sizeof left, "{'_id': 'a', %s", story.left + 1);
        story.left = left;
        in_the_way(&story);
    }
}

TEST(notices_a_plain_write_that_changes_a_decimal_by_less_than_a_double_shows)
{
    in_the_way(&(struct story){
        .before = "{'$set': {'n': {'$numberDecimal': '12345678901234567.01'}}}",
        .set = "{'$set': {'n': 1}}",
        .plain = "{'$inc': {'n': {'$numberDecimal': '0.01'}}}",
        .left = "{'_id': 'a', 'n': 1, 's': 'x', 'l': [1, 2]}",
        .displaced = "{'values': [{'p': 'n', 'v': {'$numberDecimal': '12345678901234567.02'}}]}",
    });
}

/* Lets a recovery pass write the discarded values, and then fail. */
static void sweep_fails_after_one_write(truce_store *store)
{
    truce_fault_options fail = {
        .kind = TRUCE_FAULT_FAIL, .at = 2, .writes_only = true, .from_then_on = true};
    truce_sweep_report report;
    bson_error_t error;

    truce_fault_arm(store, &fail);
    (void)!truce_sweep(store, NULL, &report, &error);
    truce_fault_arm(store, &(truce_fault_options){0});
}

/* A first process stores the plain writer's value of "o" and dies. The plain writer changes "o"
 * again, and a second process adds the new value to the record of the first one. */
static void two_records(truce_store *store, const struct setting *setting)
{
    truce_fault_options fail = {
        .kind = TRUCE_FAULT_FAIL, .at = 5, .writes_only = true, .from_then_on = true};
    truce_commit *commit;
    bson_error_t error = {0};

    two_things(store);
    commit_both(store, setting);
    commit = begin(store, setting);
    CHECK_OK(add_update(commit, "things", "a", NULL, "{'$set': {'o': 1}}", &error), error);
    CHECK_OK(add_update(commit, "things", "b", NULL, "{'$inc': {'n': 1}}", &error), error);
    truce_fault_arm(store, &fail);
    CHECK_OK(truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    truce_fault_arm(store, &(truce_fault_options){0});
    plain(store, "a", "{'$set': {'o': {'x.y': 1, '$z': [{'u.v': 1}]}}}");
    sweep_fails_after_one_write(store);
    plain(store, "a", "{'$set': {'o': {'x.y': 2, '$z': [{'u.v': 2}]}}}");
    sweep_fails_after_one_write(store);
    sweep_all(store);
    CHECK_INT(count_json(store, "things", "{'_id': 'a', 'o': 1}"), ==, 1);
    CHECK_INT(count_json(store, "truce_displaced",
                         "{'values': [{'p': 'o', 'v': {'x\uff0ey': 1, '\uff04z': [{'u\uff0ev': "
                         "1}]}}, {'p': 'o', 'v': {'x\uff0ey': 2, '\uff04z': [{'u\uff0ev': "
                         "2}]}}]}"),
              ==, 1);
}

TEST(keeps_values_with_any_names_of_two_plain_writes)
{
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        truce_store *store;

        if (settings[i].mechanism != TRUCE_MECHANISM_JOURNAL)
            continue;
        store = truce_fault_wrap(open_setting(&settings[i]), &(truce_fault_options){0});
        two_records(store, &settings[i]);
        truce_store_close(store);
    }
}

static void no_room(truce_store *store, const struct setting *setting)
{
    bson_t *committed =
        test_bson("{'_id': {'$oid': '00000000000000000000000a'}, 'state': 'committed',"
                  " 'post': [{'ns': 'things', 'id': 'a', 'op': 'set', 'changes': "
                  "[{'p': 'v', 'v': 'a value of some length, at least of fifty bytes'}]}]}");
    bson_t *intent =
        test_bson("{'$set': {'_intent': {'c': {'$oid': '00000000000000000000000a'}}}}");
    bson_t *filter = test_bson("{'_id': 'a'}");
    bson_error_t error = {0};

    (void)setting;
    insert_of_size(store, TRUCE_DOCUMENT_BYTES_MAX - 40);
    CHECK_OK(truce_insert(store, "truce_commits", committed, NULL, &error), error);
    CHECK_OK(truce_update(store, "things", filter, intent, NULL, NULL, &error), error);
    sweep_all(store);
    CHECK_INT(count_json(store, "things", "{'_intent': {'$exists': true}}"), ==, 0);
    CHECK_INT(count_json(store, "things",
                         "{'v': {'$exists': false}, '_rev': {'$oid': '00000000000000000000000a'}}"),
              ==, 1);
    CHECK_INT(count_json(store, "truce_displaced", "{'reason': 'no room', 'values.p': 'v'}"), ==,
              1);
    bson_destroy(filter);
    bson_destroy(intent);
    bson_destroy(committed);
}

TEST(keeps_a_change_that_no_longer_fits_separately)
{
    on_every_setting(no_room);
}

/* Releases two decided commits that an earlier version stored. `was` of "a" is the hash of
 * {_id: "a", n: 7}, and `h` the hash of 7. A plain writer has changed only "s" of "b", whose `was`
 * therefore differs. No value is discarded. */
static void stored_before(truce_store *store, const struct setting *setting)
{
    (void)setting;
    insert_json(store, "truce_commits",
                "{'_id': {'$oid': '0000000000000000000000c0'}, 'state': 'committed', 'post': "
                "[{'ns': 'things', 'id': 'a', 'op': 'remove', "
                "'was': {'$numberLong': '-4055782325950689229'}}]}");
    insert_json(store, "truce_commits",
                "{'_id': {'$oid': '0000000000000000000000c1'}, 'state': 'committed', 'post': "
                "[{'ns': 'things', 'id': 'b', 'op': 'set', 'changes': [{'p': 'n', 'v': 8, 'h': "
                "{'$numberLong': '5272981565096260088'}}], 'was': {'$numberLong': '1'}}]}");
    insert_json(store, "things",
                "{'_id': 'a', 'n': 7, '_intent': {'c': {'$oid': '0000000000000000000000c0'}}}");
    insert_json(store, "things",
                "{'_id': 'b', 'n': 7, 's': 'y', '_intent': {'c': {'$oid': "
                "'0000000000000000000000c1'}}}");
    sweep_all(store);
    CHECK_INT(count_json(store, "things", "{}"), ==, 1);
    CHECK_INT(count_json(store, "things", "{'n': 8, 's': 'y', '_intent': {'$exists': false}}"), ==,
              1);
    CHECK_INT(count_json(store, "truce_displaced", "{}"), ==, 0);
}

TEST(releases_a_commit_that_an_earlier_version_stored)
{
    on_every_setting(stored_before);
}

/* ---- a commit that cannot be repaired -------------------------------------------------------- */

static int failures, unchecked;

static void count_failure(const bson_t *finding, void *arg)
{
    (void)finding;
    (void)arg;
    failures++;
}

static void count_unchecked(const bson_t *finding, void *arg)
{
    bson_iter_t rule;

    (void)arg;
    CHECK(bson_iter_init_find(&rule, finding, "rule"));
    unchecked += !strcmp(bson_iter_utf8(&rule, NULL), "unchecked");
}

/* After each commit that cannot be repaired follows one that can. */
static void impossible(truce_store *store, const struct setting *setting)
{
    static const char *const commits[] = {
        /* an invalid target, an invalid state, no state, an unknown op */
        "{'_id': {'$oid': '0000000000000000000000a1'}, 'state': 'committed', 'post': [{'ns': 5}]}",
        "{'_id': {'$oid': '0000000000000000000000a2'}, 'state': 'aborted', 'writes': [{'ns': '', "
        "'id': 1, 'keyed': true}]}",
        "{'_id': {'$oid': '0000000000000000000000a3'}, 'state': 'on holiday'}",
        "{'_id': {'$oid': '0000000000000000000000a4'}}",
        "{'_id': 'no oid', 'state': 'committed', 'post': [{'ns': 'things', 'id': 'x'}]}",
        "{'_id': {'$oid': '0000000000000000000000a5'}, 'state': 'committed', 'post': [{'ns': "
        "'$bad', 'id': 'x', 'op': 'hold'}]}",
        /* and one that can be finished, one that can be undone */
        "{'_id': {'$oid': '0000000000000000000000b1'}, 'state': 'committed', 'post': [{'ns': "
        "'things', 'id': 'c', 'op': 'hold'}]}",
        "{'_id': {'$oid': '0000000000000000000000b2'}, 'state': 'aborted', 'writes': [{'ns': "
        "'things', 'id': 'd'}]}",
    };
    truce_sweep_options options = {.function = count_failure};
    truce_check_options repair = {.repair = true};
    truce_sweep_report report;
    truce_check_report found;
    bson_error_t error = {0};

    (void)setting;
    for (size_t i = 0; i < sizeof commits / sizeof *commits; i++)
        insert_json(store, "truce_commits", commits[i]);
    insert_json(store, "things", "{'_id': 'a', '_intent': 5}");
    insert_json(store, "things",
                "{'_id': 'c', '_intent': {'c': {'$oid': '0000000000000000000000b1'}}}");
    insert_json(store, "things",
                "{'_id': 'd', '_intent': {'c': {'$oid': '0000000000000000000000b2'}}}");
    insert_json(store, "things",
                "{'_id': 'e', '_intent': {'c': {'$oid': '0000000000000000000000b3'}}}");
    failures = unchecked = 0;
    CHECK_OK(truce_check(store, NULL, count_unchecked, NULL, &found, &error), error);
    CHECK_OK(truce_sweep(store, &options, &report, &error), error);
    CHECK_INT(report.failed, ==, failures);
    CHECK(failures >= 1);
    for (char id = 'c'; id <= 'e'; id++) {
        char name[2] = {id, 0}, json[40];

        snprintf(json, sizeof json, "{'_id': '%c'}", id);
        CHECK_DOCUMENT(store, "things", name, json);
    }
    CHECK_OK(truce_check(store, &repair, count_unchecked, NULL, &found, &error), error);
}

/* Five of each kind that cannot be repaired now, followed by one that can. */
static void in_front(truce_store *store, const struct setting *setting)
{
    truce_sweep_options options = {.batch = 2};
    truce_sweep_report report;
    bson_error_t error = {0};
    char json[300];

    (void)setting;
    for (int i = 0; i < 5; i++) {
        snprintf(json, sizeof json,
                 "{'_id': {'$oid': '0000000000000000000000a%d'}, 'state': 'committed', 'post': "
                 "[{'ns': 5}]}",
                 i);
        insert_json(store, "truce_commits", json);
        snprintf(json, sizeof json,
                 "{'_id': {'$oid': '0000000000000000000000b%d'}, 'state': 'pending', 'lease': "
                 "{'ms': 60000, 'until': {'$numberLong': '9999999999999'}}}",
                 i);
        insert_json(store, "truce_commits", json);
        snprintf(json, sizeof json, "{'_id': 'a%d', '_intent': 5}", i);
        insert_json(store, "things", json);
    }
    insert_json(store, "truce_commits",
                "{'_id': {'$oid': '0000000000000000000000c1'}, 'state': 'committed', 'post': "
                "[{'ns': 'things', 'id': 'c', 'op': 'hold'}]}");
    insert_json(store, "truce_commits",
                "{'_id': {'$oid': '0000000000000000000000c2'}, 'state': 'pending', 'lease': {'ms': "
                "1, 'until': 1}}");
    insert_json(store, "things",
                "{'_id': 'c', '_intent': {'c': {'$oid': '0000000000000000000000c1'}}}");
    insert_json(store, "things",
                "{'_id': 'd', '_intent': {'c': {'$oid': '0000000000000000000000c3'}}}");
    CHECK_OK(truce_sweep(store, &options, &report, &error), error);
    CHECK_INT(report.finished, ==, 1);
    CHECK_INT(report.undone, ==, 0); /* it was seen for the first time */
    CHECK_INT(report.stripped, ==, 1);
    CHECK_INT(report.failed, ==, 5);
    CHECK_INT(report.more, ==, false);
    truce__clock_sleep_ms(2);
    CHECK_OK(truce_sweep(store, &options, &report, &error), error);
    CHECK_INT(report.undone, ==, 1);
    CHECK_INT(count_json(store, "things", "{'_intent.c': {'$exists': true}}"), ==, 0);
}

TEST(continues_past_commits_that_cannot_be_repaired)
{
    on_every_setting(in_front);
}

TEST(continues_sweep_and_check_past_corrupted_documents)
{
    on_every_setting(impossible);
}

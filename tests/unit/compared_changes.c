/* Diffs {key: [old, new]}: made, compared and applied, on each store with each mechanism. */
#include "tests/support/bank.h"
#include "truce/sys/decorate.h"

#define CHECK_STATUS_NAMES(wanted, call, error, words)                                             \
    do {                                                                                           \
        CHECK_STATUS(wanted, call, error);                                                         \
        if (!strstr((error).message, words))                                                       \
            test_fail(__FILE__, __LINE__, "\"%s\" does not name %s", (error).message, words);      \
    } while (0)

/* ---- making --------------------------------------------------------------------------------- */

static void check_diff(const char *before, const char *after, const char *wanted)
{
    bson_t *from = test_bson(before), *to = test_bson(after), *expected = test_bson(wanted), diff;
    bson_error_t error = {0};

    CHECK_OK(truce_changes_diff(from, to, &diff, &error), error);
    CHECK_BSON(expected, &diff);
    bson_destroy(&diff);
    bson_destroy(from);
    bson_destroy(to);
    bson_destroy(expected);
}

static void check_no_diff(const char *before, const char *after)
{
    bson_t *from = test_bson(before), *to = test_bson(after), diff;
    bson_error_t error = {0};

    CHECK_STATUS(TRUCE_INVALID, truce_changes_diff(from, to, &diff, &error), error);
    CHECK(bson_empty(&diff));
    bson_destroy(&diff);
    bson_destroy(from);
    bson_destroy(to);
}

TEST(names_old_and_new_values_in_a_diff)
{
    check_diff("{'_id': 1, 'count': 3, 'keys': ['a'], 'c': 'red'}",
               "{'_id': 1, 'count': 4, 'keys': ['a', 'b'], 'c': 'red'}",
               "{'count': [3, 4], 'keys': [['a'], ['a', 'b']]}");
    check_diff("{'_id': 1, 'at': {'x': 1, 'y': 2}}", "{'_id': 1, 'at': {'x': 5, 'y': 2}}",
               "{'at.x': [1, 5]}");
    check_diff("{'_id': 1, 'a': 1}", "{'_id': 1, 'a': 1}", "{}");
    check_diff("{'_id': 1, 'a': null}", "{'_id': 1, 'a': 1}", "{'a': [null, 1]}");
}

TEST(a_missing_field_is_undefined_in_a_diff)
{
    check_diff("{'_id': 1, 'gone': 1}", "{'_id': 1, 'new': 2}",
               "{'new': [{'$undefined': true}, 2], 'gone': [1, {'$undefined': true}]}");
}

TEST(ignores_the_order_of_top_level_fields)
{
    check_diff("{'_id': 1, 'a': 1, 'b': 2}", "{'_id': 1, 'b': 2, 'a': 1}", "{}");
    check_diff("{'_id': 1, 'a': 1, 'b': 2, 'c': 3}", "{'_id': 1, 'd': 4, 'b': 5, 'a': 1}",
               "{'b': [2, 5], 'c': [3, {'$undefined': true}], 'd': [{'$undefined': true}, 4]}");
    check_diff("{'_id': 1, 'a': {'x': 1, 'y': 2}}", "{'_id': 1, 'a': {'y': 2, 'x': 1}}",
               "{'a': [{'x': 1, 'y': 2}, {'y': 2, 'x': 1}]}");
    check_diff("{'_id': 1, 'x.y': 1, 'a': 1}", "{'_id': 1, 'x.y': 1, 'a': 2}", "{'a': [1, 2]}");
}

TEST(truces_own_fields_are_in_no_diff)
{
    check_diff("{'_id': 1, 'a': 1, '_rev': 1}", "{'_id': 1, 'a': 2, '_rev': 2, '_intent': {}}",
               "{'a': [1, 2]}");
}

TEST(refuses_changes_that_keys_cannot_express)
{
    check_no_diff("{'_id': 1, 'a': 1}", "{'_id': 2, 'a': 1}");
    check_no_diff("{'_id': 1, 'a.b': 1}", "{'_id': 1, 'a.b': 2}");
    check_no_diff("{'_id': 1, 'a': {'$undefined': true}}", "{'_id': 1, 'a': 2}");
    check_no_diff("{'_id': 1, 'a': 2}", "{'_id': 1, 'a': {'$undefined': true}}");
    check_no_diff("{'_id': 1, 'a': {'x': {'$undefined': true}}}", "{'_id': 1, 'a': {'x': 2}}");
}

/* ---- applying ------------------------------------------------------------------------------- */

static truce_commit *begin(truce_store *store, const struct setting *setting)
{
    truce_commit_options options = {.mechanism = setting->mechanism, .deadline_ms = 2000};
    truce_commit *commit = NULL;
    bson_error_t error = {0};

    CHECK_OK(truce_commit_begin(store, &options, &commit, &error), error);
    return commit;
}

static truce_status add_diff(truce_commit *commit, const char *id, const char *json,
                             bson_error_t *error)
{
    bson_value_t value = text_id(id);
    bson_t *diff = test_bson(json);
    truce_status status = truce_commit_change(commit, "data", &value, diff, error);

    bson_destroy(diff);
    return status;
}

/* All `changes` as one commit, with two documents, so that it is no fast write. */
static truce_status apply_json(truce_store *store, const struct setting *setting, const char *json,
                               bson_error_t *error)
{
    truce_commit_options options = {.mechanism = setting->mechanism, .deadline_ms = 2000};
    bson_t *changes = test_bson(json);
    truce_status status = truce_changes_apply(store, "data", changes, &options, error);

    bson_destroy(changes);
    return status;
}

static void only_its_keys(truce_store *store, const struct setting *setting)
{
    bson_error_t error = {0};

    insert_json(store, "data", "{'_id': 'a', 'n': 1, 'm': 1, 'at': {'x': 1, 'y': 1}}");
    insert_json(store, "data", "{'_id': 'b', 'n': 5}");
    CHECK_OK(apply_json(store, setting,
                        "{'a': {'n': [1, 2], 'at.x': [1, {'$undefined': true}], 'new': "
                        "[{'$undefined': true}, [1]]}, 'b': {'n': [5, 6]}}",
                        &error),
             error);
    CHECK_DOCUMENT(store, "data", "a", "{'_id': 'a', 'n': 2, 'm': 1, 'at': {'y': 1}, 'new': [1]}");
    CHECK_DOCUMENT(store, "data", "b", "{'_id': 'b', 'n': 6}");
    CHECK_OK(apply_json(store, setting, "{'b': {'n': [6, 7]}}", &error), error); /* the fast path */
    CHECK_DOCUMENT(store, "data", "b", "{'_id': 'b', 'n': 7}");
}

TEST(a_diff_changes_its_keys_and_no_others)
{
    on_every_setting(only_its_keys);
}

static void other_keys_meanwhile(truce_store *store, const struct setting *setting)
{
    truce_commit *commit = begin(store, setting), *other = begin(store, setting);
    bson_error_t error = {0};

    insert_json(store, "data", "{'_id': 'a', 'n': 1, 'm': 1}");
    insert_json(store, "data", "{'_id': 'b', 'n': 1}");
    CHECK_OK(add_diff(commit, "a", "{'n': [1, 2]}", &error), error);
    CHECK_OK(add_diff(commit, "b", "{'n': [1, 2]}", &error), error);
    CHECK_OK(add_diff(other, "a", "{'m': [1, 9]}", &error), error);
    CHECK_OK(truce_commit_apply(other, &error), error);
    CHECK_OK(truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    truce_commit_free(other);
    CHECK_DOCUMENT(store, "data", "a", "{'_id': 'a', 'n': 2, 'm': 9}");
}

TEST(reports_no_conflict_for_a_change_of_another_key)
{
    on_every_setting(other_keys_meanwhile);
}

static void same_key_meanwhile(truce_store *store, const struct setting *setting)
{
    bson_error_t error = {0};

    insert_json(store, "data", "{'_id': 'a', 'n': 2, 'm': 1}");
    insert_json(store, "data", "{'_id': 'b', 'n': 1}");
    CHECK_STATUS_NAMES(
        TRUCE_CONFLICT,
        apply_json(store, setting, "{'a': {'n': [1, 2]}, 'b': {'n': [1, 2]}}", &error), error,
        "\"n\" is 2, not 1 as in the diff");
    CHECK_STATUS_NAMES(TRUCE_CONFLICT, apply_json(store, setting, "{'a': {'n': [1, 2]}}", &error),
                       error, "document \"a\" of \"data\"");
    CHECK_STATUS_NAMES(
        TRUCE_CONFLICT,
        apply_json(store, setting, "{'x': {'n': [1, 2]}, 'b': {'n': [1, 2]}}", &error), error,
        "\"x\" of \"data\" no longer exists");
    CHECK_STATUS_NAMES(TRUCE_CONFLICT, apply_json(store, setting, "{'a': {'m.x': [1, 2]}}", &error),
                       error, "\"m.x\" passes through");
    CHECK_DOCUMENT(store, "data", "a", "{'_id': 'a', 'n': 2, 'm': 1}");
    CHECK_DOCUMENT(store, "data", "b", "{'_id': 'b', 'n': 1}");
    CHECK_DOCUMENT(store, "data", "x", NULL);
}

TEST(reports_a_conflict_for_a_different_old_value)
{
    on_every_setting(same_key_meanwhile);
}

/* Values that are equal for a filter of MongoDB and not for a diff, and vice versa. */
static void exactly(truce_store *store, const struct setting *setting)
{
    static const struct {
        const char *stands, *old;
        bool same;
    } cases[] = {
        {"null", "null", true},
        {"null", "{'$undefined': true}", false},
        {"[1, 2]", "1", false},
        {"[1, 2]", "[1, 2]", true},
        {"[[1, 2], 3]", "[1, 2]", false},
        {"[1, 2]", "[2, 1]", false},
        {"{'a': 1, 'b': 2}", "{'a': 1, 'b': 2}", true},
        {"{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}", false},
        {"{'a': {'$numberDouble': 'NaN'}}", "{'a': {'$numberDouble': 'NaN'}}", true},
        {"{'$numberDouble': 'NaN'}", "{'$numberDouble': 'NaN'}", true},
        {"{'$numberLong': '3'}", "3", true},
        {"3", "{'$numberDouble': '3.5'}", false},
        {"'abc'", "{'$regularExpression': {'pattern': 'a', 'options': ''}}", false},
        {"{'$numberInt': '1'}", "{'$gt': 0}", false},
    };
    bson_error_t error = {0};

    insert_json(store, "data", "{'_id': 'other', 'n': 1}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char document[200], changes[300], after[200], id[20];
        truce_status status;

        snprintf(id, sizeof id, "%s%d", i % 2 ? "z" : "a", (int)i);
        snprintf(document, sizeof document, "{'_id': '%s', 'v': %s}", id, cases[i].stands);
        snprintf(changes, sizeof changes, "{'%s': {'v': [%s, 'new']}, 'other': {'n': [1, 1]}}", id,
                 cases[i].old);
        snprintf(after, sizeof after, "{'_id': '%s', 'v': 'new'}", id);
        insert_json(store, "data", document);
        status = apply_json(store, setting, changes, &error);
        if (status != (cases[i].same ? TRUCE_OK : TRUCE_CONFLICT))
            test_fail(__FILE__, __LINE__, "%s, compared with %s: %s", cases[i].stands, cases[i].old,
                      truce_status_name(status));
        CHECK_DOCUMENT(store, "data", id, cases[i].same ? after : document);
    }
}

TEST(old_values_are_compared_as_values_by_every_mechanism)
{
    on_every_setting(exactly);
}

static void own_changes(truce_store *store, const struct setting *setting)
{
    bson_value_t a = text_id("a");
    truce_commit *commit = begin(store, setting);
    bson_error_t error = {0};
    bson_t seen;

    insert_json(store, "data", "{'_id': 'a', 'n': 1, 'm': 1}");
    insert_json(store, "data", "{'_id': 'b', 'n': 1}");
    CHECK_OK(truce_commit_read(commit, "data", &a, &seen, &error), error);
    bson_destroy(&seen);
    CHECK_OK(add_diff(commit, "a", "{'n': [1, 2]}", &error), error);
    CHECK_OK(add_diff(commit, "a", "{'n': [2, 3]}", &error), error);
    CHECK_STATUS_NAMES(TRUCE_CONFLICT, add_diff(commit, "a", "{'n': [2, 3]}", &error), error,
                       "\"n\" is 3");
    CHECK_OK(add_diff(commit, "b", "{'n': [1, 2]}", &error), error);
    CHECK_OK(add_diff(commit, "b", "{'n': [2, 3]}", &error), error);
    CHECK_OK(truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    CHECK_DOCUMENT(store, "data", "a", "{'_id': 'a', 'n': 3, 'm': 1}");
    CHECK_DOCUMENT(store, "data", "b", "{'_id': 'b', 'n': 3}");
}

TEST(sees_earlier_changes_of_its_commit_in_a_diff)
{
    on_every_setting(own_changes);
}

/* ---- run again ------------------------------------------------------------------------------ */

/* Adds a key to a colour and to any, as the code of the description does; another writer comes
 * between the first making of the diff and its commit. */
struct keys {
    truce_store *store;
    const struct setting *setting;
    int runs;
};

static truce_status add_to(struct keys *keys, truce_commit *commit, const char *name,
                           bson_error_t *error)
{
    bson_value_t id = text_id(name);
    bson_t filter = BSON_INITIALIZER, before, after = BSON_INITIALIZER, diff;
    bson_iter_t iter;
    truce_status status;

    BSON_APPEND_VALUE(&filter, "_id", &id);
    status = truce_find_one(keys->store, "data", &filter, NULL, &before, error);
    bson_copy_to_excluding_noinit(&before, &after, "count", NULL);
    if (bson_iter_init_find(&iter, &before, "count"))
        BSON_APPEND_INT64(&after, "count", bson_iter_as_int64(&iter) + 1);
    bson_init(&diff);
    if (!status) {
        bson_destroy(&diff);
        status = truce_changes_diff(&before, &after, &diff, error);
    }
    if (!status)
        status = truce_commit_change(commit, "data", &id, &diff, error);
    bson_destroy(&diff);
    bson_destroy(&after);
    bson_destroy(&before);
    bson_destroy(&filter);
    return status;
}

static truce_status add_key(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct keys *keys = arg;
    truce_status status = add_to(keys, commit, "red", error);

    if (!status)
        status = add_to(keys, commit, "any", error);
    if (!status && keys->runs++ == 0) /* a concurrent commit is faster */
        status = apply_json(keys->store, keys->setting,
                            "{'any': {'count': [0, 7]}, 'green': {'count': [0, 7]}}", error);
    return status;
}

static void made_again(truce_store *store, const struct setting *setting)
{
    truce_commit_options options = {.mechanism = setting->mechanism};
    struct keys keys = {store, setting, 0};
    bson_error_t error = {0};

    insert_json(store, "data", "{'_id': 'red', 'count': 0}");
    insert_json(store, "data", "{'_id': 'green', 'count': 0}");
    insert_json(store, "data", "{'_id': 'any', 'count': 0}");
    CHECK_OK(truce_transact(store, add_key, &keys, &options, &error), error);
    CHECK_INT(keys.runs, ==, 2);
    CHECK_DOCUMENT(store, "data", "red", "{'_id': 'red', 'count': {'$numberLong': '1'}}");
    CHECK_DOCUMENT(store, "data", "any", "{'_id': 'any', 'count': {'$numberLong': '8'}}");
}

TEST(on_a_conflict_the_code_that_made_the_diff_runs_again)
{
    on_every_setting(made_again);
}

TEST(tries_unrepeatable_changes_once)
{
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        truce_store *store = open_setting(&settings[i]);
        truce_commit_counters before, after;
        bson_error_t error = {0};

        insert_json(store, "data", "{'_id': 'a', 'n': 2}");
        truce_commit_count(&before);
        CHECK_STATUS(TRUCE_CONFLICT,
                     apply_json(store, &settings[i], "{'a': {'n': [1, 2]}}", &error), error);
        truce_commit_count(&after);
        CHECK_INT(after.reruns, ==, before.reruns);
        truce_store_close(store);
    }
}

/* ---- ids and mistakes ----------------------------------------------------------------------- */

TEST(an_id_of_24_hexadecimal_digits_is_an_object_id)
{
    truce_store *store = open_setting(&settings[0]);
    bson_error_t error = {0};
    bson_t *filter = test_bson("{'_id': {'$oid': '6560f0c2a1b2c3d4e5f60718'}, 'n': 2}");
    int64_t count;

    insert_json(store, "data", "{'_id': {'$oid': '6560f0c2a1b2c3d4e5f60718'}, 'n': 1}");
    CHECK_OK(apply_json(store, &settings[0], "{'6560f0c2a1b2c3d4e5f60718': {'n': [1, 2]}}", &error),
             error);
    CHECK_OK(truce_count(store, "data", filter, NULL, &count, &error), error);
    CHECK_INT(count, ==, 1);
    bson_destroy(filter);
    truce_store_close(store);
}

TEST(refuses_an_invalid_diff_by_name)
{
    static const struct {
        const char *changes, *words;
    } cases[] = {
        {"{'a': 1}", "of document \"a\" are not a diff"},
        {"{'a': {'n': 1}}", "\"n\" of a diff needs a pair"},
        {"{'a': {'n': [1]}}", "\"n\" of a diff needs a pair"},
        {"{'a': {'n': [1, 2, 3]}}", "\"n\" of a diff needs a pair"},
        {"{'a': {'': [1, 2]}}", "\"\" is not a valid key"},
        {"{'a': {'b..c': [1, 2]}}", "\"b..c\" is not a valid key"},
        {"{'a': {'b.$': [1, 2]}}", "\"b.$\" is not a valid key"},
        {"{'a': {'$set': [1, 2]}}", "\"$set\" is not a valid key"},
        {"{'a': {'_id': [1, 2]}}", "\"_id\" cannot be changed"},
        {"{'a': {'_rev': [1, 2]}}", "\"_rev\" cannot be changed"},
        {"{'a': {'_intent.c': [1, 2]}}", "\"_intent.c\" cannot be changed"},
        {"{'a': {'n': [{'$undefined': true}, {'$undefined': true}]}}", "missing before and after"},
        {"{'a': {'n': [1, 2], 'n.m': [1, 2]}}", "n"},
    };
    truce_store *store = open_setting(&settings[0]);
    bson_error_t error = {0};

    insert_json(store, "data", "{'_id': 'a', 'n': 1}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_STATUS_NAMES(TRUCE_INVALID, apply_json(store, &settings[0], cases[i].changes, &error),
                           error, cases[i].words);
    CHECK_OK(apply_json(store, &settings[0], "{}", &error), error);
    CHECK_OK(apply_json(store, &settings[0], "{'nobody': {}}", &error), error);
    CHECK_DOCUMENT(store, "data", "a", "{'_id': 'a', 'n': 1}");
    truce_store_close(store);
}

/* ---- between the look and the write ---------------------------------------------------------- */

/* A plain write changes the documents after the first read of them. */
struct plain_writer {
    truce_store *inner;
    const char *update; /* NULL: no plain write, or it is already done */
};

static void come_between(const bson_t *event, void *arg)
{
    struct plain_writer *writer = arg;
    const char *update = writer->update;
    bson_t *filter, *change;
    bson_error_t error = {0};
    bson_iter_t verb;

    if (!update || !bson_iter_init_find(&verb, event, "verb") ||
        strncmp(bson_iter_utf8(&verb, NULL), "find", 4) != 0)
        return;
    writer->update = NULL;
    filter = test_bson("{}");
    change = test_bson(update);
    CHECK_OK(truce_update(writer->inner, "data", filter, change,
                          &(truce_write_options){.multi = true}, NULL, &error),
             error);
    bson_destroy(filter);
    bson_destroy(change);
}

static void check_between(const char *update, truce_status wanted, int line)
{
    struct plain_writer writer = {.inner = open_setting(&settings[0])};
    truce_store *store = truce_trace_wrap(
        writer.inner, &(truce_trace_options){.function = come_between, .arg = &writer});
    truce_commit_options options = {.mechanism = TRUCE_MECHANISM_NATIVE};
    bson_t *changes = test_bson("{'a': {'n': [0, 1]}, 'b': {'n': [0, 1]}}");
    truce_commit *commit = NULL;
    bson_error_t error = {0};

    insert_json(writer.inner, "data", "{'_id': 'a', 'n': 0, 'm': 0}");
    insert_json(writer.inner, "data", "{'_id': 'b', 'n': 0, 'm': 0}");
    CHECK_OK(truce_commit_begin(store, &options, &commit, &error), error);
    CHECK_OK(truce_commit_changes(commit, "data", changes, &error), error);
    writer.update = update;
    test_check_status(wanted, truce_commit_apply(commit, &error), &error, update, __FILE__, line);
    CHECK(!writer.update);
    CHECK_INT(count_json(writer.inner, "data", "{'n': 1, 'm': 5}"), ==, wanted ? 0 : 2);
    truce_commit_free(commit);
    truce_store_close(store);
    bson_destroy(changes);
}

TEST(allows_another_key_to_change_between_read_and_write)
{
    check_between("{'$set': {'m': 5}}", TRUCE_OK, __LINE__);
    check_between("{'$set': {'n': 5}}", TRUCE_CONFLICT, __LINE__);
    /* or an intent of a commit that no longer exists */
    check_between("{'$set': {'m': 5, '_intent': {'c': {'$oid': '00000000000000000000000a'}}}}",
                  TRUCE_OK, __LINE__);
}

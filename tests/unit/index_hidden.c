/* Changes of existing indexes: hidden from queries, and shown again; another time to expire. */
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "engine/documents/open_documents.h"
#include "store/file/file.h"
#include "tests/support/test.h"
#include "truce/copy.h"
#include "truce/salvage.h"
#include "truce/sweep.h"

static truce_store *store;
static bson_error_t error;
static char path[400];

static bool open_again(const char *uri)
{
    const truce_store_options options = {.relaxed = true};

    return CHECK_OK(truce_store_open(uri, &options, &store, &error), error);
}

static bool open_store(bool memory)
{
    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    return open_again(memory ? "memory:" : path);
}

static truce_status create(const char *json)
{
    bson_t *index = test_bson(json);
    truce_status status = truce_index_create(store, "c", index, &error);

    bson_destroy(index);
    return status;
}

static truce_status modify(const char *name, const char *json)
{
    bson_t *changes = test_bson(json);
    truce_status status = truce_index_modify(store, "c", name, changes, &error);

    bson_destroy(changes);
    return status;
}

static truce_status put(const char *json)
{
    bson_t *document = test_bson(json);
    truce_status status = truce_insert(store, "c", document, NULL, &error);

    bson_destroy(document);
    return status;
}

/* All indexes of c in that store. */
static void expect_indexes(truce_store *in, const char *json)
{
    bson_t *wanted = test_bson(json), indexes;

    CHECK_OK(truce_index_list(in, "c", &indexes, &error), error);
    CHECK_BSON(wanted, &indexes);
    bson_destroy(&indexes);
    bson_destroy(wanted);
}

/* The plan of {n: 5} has that word. */
static bool plans(const char *word, const char *hint)
{
    bson_t *filter = test_bson("{'n': 5}"), *by = hint ? test_bson(hint) : NULL, plan;
    const truce_find_options options = {.hint = by, .plan_only = true};
    bool found = false;
    char *shown;

    if (CHECK_OK(truce_explain(store, "c", filter, &options, &plan, &error), error)) {
        shown = bson_as_relaxed_extended_json(&plan, NULL);
        found = strstr(shown, word) != NULL;
        bson_free(shown);
    }
    bson_destroy(&plan);
    bson_destroy(filter);
    if (by)
        bson_destroy(by);
    return found;
}

static truce_status find_by(const char *hint)
{
    bson_t *by = test_bson(hint), document;
    const truce_find_options options = {.hint = by};
    truce_status status = truce_find_one(store, "c", NULL, &options, &document, &error);

    bson_destroy(&document);
    bson_destroy(by);
    return status;
}

static void expect_refused(truce_status status, truce_status wanted, uint32_t code)
{
    CHECK_STATUS(wanted, status, error);
    CHECK_INT(error.code, ==, code);
}

#define ID     "'0': {'v': 2, 'key': {'_id': 1}, 'name': '_id_'}"
#define N      "'v': 2, 'key': {'n': 1}, 'name': 'n_1'"
#define HIDDEN "'hidden': true"

static void hide_and_show(bool memory)
{
    REQUIRE(open_store(memory));
    CHECK_OK(create("{'key': {'n': 1}, 'unique': true}"), error);
    CHECK_OK(put("{'_id': 1, 'n': 5}"), error);
    CHECK_OK(modify("n_1", "{'hidden': true}"), error);
    expect_indexes(store, "{" ID ", '1': {" N ", 'unique': true, 'hidden': true}}");
    expect_refused(find_by("{'n': 1}"), TRUCE_INVALID, CODE_BAD_VALUE);
    expect_refused(find_by("{'': 'n_1'}"), TRUCE_INVALID, CODE_BAD_VALUE);
    expect_refused(put("{'n': 5}"), TRUCE_DUPLICATE, CODE_DUPLICATE_KEY);
    CHECK_OK(put("{'_id': 2, 'n': 6}"), error);
    expect_refused(create("{'key': {'n': 1}, 'unique': true}"), TRUCE_INVALID,
                   CODE_INDEX_OPTIONS_CONFLICT);
    CHECK_OK(create("{'key': {'n': 1}, 'unique': true, 'hidden': true}"), error);
    CHECK_OK(modify("n_1", "{'hidden': false}"), error);
    expect_indexes(store, "{" ID ", '1': {" N ", 'unique': true}}");
    CHECK_OK(find_by("{'n': 1}"), error);
    expect_refused(put("{'n': 6}"), TRUCE_DUPLICATE, CODE_DUPLICATE_KEY);
    expect_refused(create("{'key': {'n': 1}, 'unique': true, 'hidden': true}"), TRUCE_INVALID,
                   CODE_INDEX_OPTIONS_CONFLICT);
    truce_store_close(store);
}

TEST(keeps_a_hidden_index_unique_and_unused_by_queries)
{
    hide_and_show(true);
    hide_and_show(false);
}

TEST(no_plan_uses_a_hidden_index)
{
    REQUIRE(open_store(false));
    CHECK_OK(create("{'key': {'n': 1}, 'hidden': true}"), error);
    CHECK_OK(create("{'key': {'m': 1}}"), error);
    CHECK_OK(put("{'n': 5}"), error);
    CHECK(plans("COLLSCAN", NULL));
    CHECK_OK(modify("n_1", "{'hidden': false}"), error);
    CHECK(plans("IXSCAN", NULL));
    CHECK_OK(modify("n_1", "{'hidden': 1}"), error); /* a number is one of the two, too */
    CHECK(plans("COLLSCAN", NULL));
    CHECK(plans("IXSCAN", "{'m': 1}"));
    truce_store_close(store);
}

/* Another handle, and one that opens the file later. */
TEST(stores_the_hidden_flag_of_an_index_for_every_handle)
{
    truce_store *other;

    REQUIRE(open_store(false));
    CHECK_OK(create("{'key': {'n': 1}}"), error);
    CHECK_OK(truce_store_open(path, NULL, &other, &error), error);
    expect_indexes(other, "{" ID ", '1': {" N "}}");
    CHECK_OK(modify("n_1", "{'hidden': true}"), error);
    CHECK_OK(put("{'n': [1, 2]}"), error); /* rewrites its entry in the catalog */
    expect_indexes(other, "{" ID ", '1': {" N ", " HIDDEN "}}");
    truce_store_close(store);
    truce_store_close(other);
    REQUIRE(open_again(path));
    CHECK(plans("COLLSCAN", NULL));
    CHECK_OK(truce__engine_check(truce__file_engine(store), NULL, NULL, &error), error);
    truce_store_close(store);
}

/* Reads the row of c in the catalog, as a program without support for hidden indexes would. */
TEST(shows_older_programs_definitions_without_hidden_indexes)
{
    struct kv_cursor cursor = {0};
    uint32_t version;
    struct kv *kv;
    int found = 0;

    REQUIRE(open_store(false));
    CHECK_OK(create("{'key': {'n': 1}, 'hidden': true}"), error);
    kv = truce__file_engine(store)->kv;
    CHECK_OK(truce__kv_write_begin(kv, &version, &error), error);
    CHECK_OK(truce__kv_rows_seek(kv, 0, 1, false, &cursor, &error), error);
    while (!truce__kv_cursor_next(&cursor, &error)) {
        bson_iter_t at, definition, hidden;
        bson_t row;

        CHECK(bson_init_static(&row, cursor.body.data, cursor.body.size));
        if (bson_iter_init(&at, &row) &&
            bson_iter_find_descendant(&at, "indexes.1.definition", &definition)) {
            CHECK(bson_iter_recurse(&definition, &at) && !bson_iter_find(&at, "hidden"));
            found += bson_iter_init(&at, &row) &&
                     bson_iter_find_descendant(&at, "indexes.1.hidden", &hidden) &&
                     bson_iter_bool(&hidden);
        }
    }
    truce__kv_cursor_close(&cursor);
    truce__kv_write_rollback(kv);
    CHECK_INT(found, ==, 1);
    truce_store_close(store);
}

/* Renames a field of the first index of c in the catalog, as damage would. */
static void damage_definition(void)
{
    struct kv *kv = truce__file_engine(store)->kv;
    struct kv_cursor cursor = {0};
    uint8_t bytes[1000];
    uint32_t version;
    uint8_t *at = NULL;

    CHECK_OK(truce__kv_write_begin(kv, &version, &error), error);
    CHECK_OK(truce__kv_rows_seek(kv, 0, 1, false, &cursor, &error), error);
    while (!at && !truce__kv_cursor_next(&cursor, &error)) {
        if (cursor.body.size > sizeof bytes)
            continue;
        memcpy(bytes, cursor.body.data, cursor.body.size);
        at = memmem(bytes, cursor.body.size, "definition", 10);
    }
    if (CHECK(at)) {
        *at = 'D';
        CHECK_OK(truce__kv_row_update(kv, 0, cursor.row, (struct bytes){bytes, cursor.body.size},
                                      &error),
                 error);
    }
    truce__kv_cursor_close(&cursor);
    CHECK_OK(truce__kv_version_bump(kv, &error), error);
    CHECK_OK(truce__kv_write_commit(kv, &error), error);
}

TEST(names_the_collection_of_a_damaged_index)
{
    truce_status status;

    REQUIRE(open_store(false));
    CHECK_OK(create("{'key': {'n': 1}}"), error);
    damage_definition();
    truce_store_close(store);
    store = NULL;
    status = truce_store_open(path, NULL, &store, &error);
    if (!status)
        status = put("{'n': 5}");
    CHECK_STATUS(TRUCE_CORRUPT, status, error);
    CHECK(strstr(error.message, "collection \"c\": index 0 in the catalog is damaged"));
    CHECK(strstr(error.message, "no \"definition\""));
    CHECK(strstr(error.message, "truce salvage"));
    truce_store_close(store);
}

TEST(keeps_hidden_indexes_in_copies_and_salvaged_files)
{
    truce_copy_report copied;
    truce_salvage_report report;
    char other[500];
    truce_store *to;

    REQUIRE(open_store(false));
    CHECK_OK(create("{'key': {'n': 1}, 'hidden': true}"), error);
    CHECK_OK(create("{'key': {'m': 1}}"), error);
    CHECK_OK(put("{'n': 5}"), error);
    for (int i = 0; i < 2; i++) {
        snprintf(other, sizeof other, "%s.%d", path, i);
        REQUIRE(!truce_store_open(other, NULL, &to, &error));
        if (i == 0)
            CHECK_OK(truce_copy(store, to, NULL, &copied, &error), error);
        else
            CHECK_OK(truce_salvage(path, to, NULL, &report, &error), error);
        expect_indexes(to, "{" ID ", '1': {" N ", " HIDDEN "}, '2': {'v': 2, 'key': {'m': 1}, "
                           "'name': 'm_1'}}");
        truce_store_close(to);
        if (i == 0)
            truce_store_close(store);
    }
}

/* ---- expireAfterSeconds, and errors ---------------------------------------------------------- */

static void change_time(bool memory)
{
    truce_sweep_report report;
    bson_t *old = test_bson("{'_id': 1, 't': {'$date': '2020-01-01T00:00:00Z'}}");

    REQUIRE(open_store(memory));
    CHECK_OK(create("{'key': {'t': 1}}"), error);
    CHECK_OK(truce_insert(store, "c", old, NULL, &error), error);
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(report.expired, ==, 0);
    CHECK_OK(modify("t_1", "{'expireAfterSeconds': 7.5, 'hidden': true}"), error);
    expect_indexes(store, "{" ID ", '1': {'v': 2, 'key': {'t': 1}, 'name': 't_1', "
                          "'expireAfterSeconds': {'$numberLong': '7'}, 'hidden': true}}");
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(report.expired, ==, 1); /* hidden or not */
    truce_store_close(store);
    bson_destroy(old);
}

TEST(expires_documents_by_an_index_that_gets_the_option_later)
{
    change_time(true);
    change_time(false);
}

static void refuse(bool memory)
{
    static const struct {
        const char *name, *changes;
        truce_status status;
        uint32_t code;
    } cases[] = {
        {"n_1", "{}", TRUCE_INVALID, CODE_INVALID_OPTIONS},
        {"n_1", "{'unique': true}", TRUCE_INVALID, CODE_INVALID_OPTIONS},
        {"n_1", "{'hidden': true, 'unique': true}", TRUCE_INVALID, CODE_INVALID_OPTIONS},
        {"n_1", "{'hidden': 'yes'}", TRUCE_INVALID, CODE_TYPE_MISMATCH},
        {"n_1", "{'expireAfterSeconds': '5'}", TRUCE_INVALID, CODE_TYPE_MISMATCH},
        {"n_1", "{'hidden': true, 'expireAfterSeconds': -1}", TRUCE_INVALID, CODE_INVALID_OPTIONS},
        {"a_1_b_1", "{'expireAfterSeconds': 5}", TRUCE_INVALID, CODE_INVALID_OPTIONS},
        {"w.$**_1", "{'expireAfterSeconds': 5}", TRUCE_INVALID, CODE_INVALID_OPTIONS},
        {"_id_", "{'expireAfterSeconds': 5}", TRUCE_INVALID, CODE_INVALID_OPTIONS},
        {"_id_", "{'hidden': true}", TRUCE_INVALID, CODE_BAD_VALUE},
        {"none", "{'hidden': true}", TRUCE_NOT_FOUND, CODE_INDEX_NOT_FOUND},
    };
    bson_t *hide = test_bson("{'hidden': true}");

    REQUIRE(open_store(memory));
    CHECK_OK(create("{'key': {'n': 1}}"), error);
    CHECK_OK(create("{'key': {'a': 1, 'b': 1}}"), error);
    CHECK_OK(create("{'key': {'w.$**': 1}}"), error);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_refused(modify(cases[i].name, cases[i].changes), cases[i].status, cases[i].code);
    expect_refused(truce_index_modify(store, "d", "n_1", hide, &error), TRUCE_NOT_FOUND,
                   CODE_NAMESPACE_NOT_FOUND);
    expect_refused(create("{'key': {'_id': 1}, 'hidden': true}"), TRUCE_INVALID, 197);
    expect_indexes(store, "{" ID ", '1': {" N "}, '2': {'v': 2, 'key': {'a': 1, 'b': 1}, 'name': "
                          "'a_1_b_1'}, '3': {'v': 2, 'key': {'w.$**': 1}, 'name': 'w.$**_1'}}");
    CHECK_OK(modify("_id_", "{'hidden': false}"), error);
    truce_store_close(store);
    bson_destroy(hide);
}

TEST(refuses_impossible_index_changes_and_changes_nothing)
{
    refuse(true);
    refuse(false);
}

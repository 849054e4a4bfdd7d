/* Patterns and commits on a view: a document that a commit holds is shown as of the view's
 * snapshot. */
#include <string.h>

#include "base/field.h"
#include "base/status.h"
#include "commit/commit.h"
#include "tests/support/test.h"
#include "truce/sys/decorate.h"
#include "truce/truce.h"

static truce_store *inner, *store; /* the second store has injected faults */

static void open_stores(bool file)
{
    const truce_fault_options none = {.kind = TRUCE_FAULT_NONE};
    bson_error_t error;
    char uri[600];

    snprintf(uri, sizeof uri, "file:%s/views.truce", test_directory());
    CHECK_OK(truce_store_open(file ? uri : "memory:", NULL, &inner, &error), error);
    store = truce_fault_wrap(inner, &none);
}

static void put(int id, int n)
{
    bson_t *document = BCON_NEW("_id", BCON_INT32(id), "n", BCON_INT32(n));
    bson_error_t error;

    CHECK_OK(truce_insert(inner, "things", document, NULL, &error), error);
    bson_destroy(document);
}

static bson_value_t id_of(int number)
{
    return (bson_value_t){.value_type = BSON_TYPE_INT32, .value.v_int32 = number};
}

/* Returns n of the document, or -1. Reads it directly, in a commit, and with other documents, and
 * expects equal results. */
static int64_t see(truce_store *view, int number)
{
    bson_value_t id = id_of(number);
    truce_read_request look = {.collection = "things", .id = &id};
    truce_commit *commit = NULL;
    bson_t document;
    bson_error_t error;
    truce_status status;
    int64_t seen, again;

    CHECK_OK(truce_read_many(view, &look, 1, NULL, &error), error);
    seen = look.found ? truce__field_number(&look.document, "n") : -1;
    CHECK(!bson_has_field(&look.document, "_intent"));
    bson_destroy(&look.document);
    CHECK_OK(truce_commit_begin(view, NULL, &commit, &error), error);
    status = truce_commit_read(commit, "things", &id, &document, &error);
    CHECK(!status || status == TRUCE_NOT_FOUND);
    again = status ? -1 : truce__field_number(&document, "n");
    bson_destroy(&document);
    truce_commit_free(commit);
    CHECK_INT(seen, ==, again);
    return seen;
}

/* One commit that changes 1, removes 2 and inserts 3, cut off at its call number `at`; false: it
 * was through. */
static bool commit_cut_off(uint64_t at)
{
    const truce_fault_options fault = {
        .kind = TRUCE_FAULT_FAIL, .at = at, .from_then_on = true, .status = TRUCE_IO};
    truce_commit_options options = {.mechanism = TRUCE_MECHANISM_JOURNAL, .deadline_ms = 1};
    bson_value_t one = id_of(1), two = id_of(2);
    bson_t *update = BCON_NEW("$set", "{", "n", BCON_INT32(100), "}");
    bson_t *third = BCON_NEW("_id", BCON_INT32(3), "n", BCON_INT32(300));
    truce_commit *commit = NULL;
    bson_error_t error;
    bool hit;

    truce_fault_arm(store, &fault);
    if (!truce_commit_begin(store, &options, &commit, &error) &&
        !truce_commit_update(commit, "things", &one, NULL, update, &error) &&
        !truce_commit_remove(commit, "things", &two, NULL, &error) &&
        !truce_commit_insert(commit, "things", third, &error)) {
        truce_status ignored = truce_commit_apply(commit, &error);

        (void)ignored; /* cut off wherever it was */
    }
    hit = truce_fault_hits(store) > 0;
    truce_commit_free(commit);
    bson_destroy(update);
    bson_destroy(third);
    return hit;
}

/* Returns whether an undecided commit is stored; `*held`: it holds a document. */
static bool is_pending(truce_store *view, bool *held)
{
    bson_t *pending = test_bson("{'state': 'pending'}"),
           *by_it = test_bson("{'_intent': {'$exists': true}}");
    int64_t commits = 0, documents = 0;
    bson_error_t error;

    CHECK_OK(truce_count(view, "truce_commits", pending, NULL, &commits, &error), error);
    CHECK_OK(truce_count(inner, "things", by_it, NULL, &documents, &error), error);
    *held = documents;
    bson_destroy(pending);
    bson_destroy(by_it);
    return commits;
}

static void check_cuts(bool file)
{
    int before = 0, after = 0, undecided = 0;
    bool held;
    bool more = true;

    for (uint64_t at = 1; more && at < 200 && !test_failures(); at++) {
        truce_store *view = NULL;
        bson_error_t error;
        int64_t one;

        open_stores(file);
        put(1, 1);
        put(2, 2);
        more = commit_cut_off(at);
        CHECK_OK(truce_snapshot(inner, NULL, &view, &error), error);
        one = see(view, 1);
        CHECK(one == 1 || one == 100);
        CHECK_INT(see(view, 2), ==, one == 1 ? 2 : -1);
        CHECK_INT(see(view, 3), ==, one == 1 ? -1 : 300);
        *(one == 1 ? &before : &after) += 1;
        if (is_pending(view, &held)) {
            CHECK_INT(one, ==, 1);
            undecided += held;
        }
        truce_store_close(view);
        truce_store_close(store);
    }
    CHECK(!more);
    CHECK_INT(before, >, 3);
    CHECK_INT(after, >, 2); /* all are released by one call */
    CHECK_INT(undecided, >, 0);
}

TEST(shows_a_commit_completely_or_not_at_all_after_a_cut_at_any_offset)
{
    check_cuts(false);
}

TEST(shows_all_of_a_commit_or_nothing_in_a_view_of_a_file)
{
    check_cuts(true);
}

/* How many members the set of that key has. */
static uint32_t members_of(truce_store *from, const truce_set_options *options, const bson_t *key)
{
    truce_set *set = truce_set_new(from, options);
    bson_t members;
    bson_error_t error;
    uint32_t count;

    CHECK_OK(truce_set_members(set, key, &members, &error), error);
    count = bson_count_keys(&members);
    bson_destroy(&members);
    truce_set_free(set);
    return count;
}

TEST(patterns_read_on_a_view_and_write_nothing)
{
    const truce_set_options options = {
        .collection = "students", .key = "student", .field = "classes", .name = "name"};
    bson_t *key = BCON_NEW("student", BCON_INT32(1)), *first = BCON_NEW("name", "CS 101"),
           *second = BCON_NEW("name", "CS 102");
    truce_store *view = NULL;
    truce_set *set, *of_view;
    bson_error_t error;
    int64_t number = 0;

    open_stores(true);
    set = truce_set_new(inner, &options);
    CHECK_OK(truce_sequence_next(inner, "numbers", &number, &error), error);
    CHECK_OK(truce_set_add(set, NULL, key, first, 1, NULL, &error), error);
    CHECK_OK(truce_snapshot(inner, NULL, &view, &error), error);
    CHECK_OK(truce_sequence_next(inner, "numbers", &number, &error), error);
    CHECK_OK(truce_set_add(set, NULL, key, second, 2, NULL, &error), error);
    CHECK_OK(truce_sequence_last(view, "numbers", &number, &error), error);
    CHECK_INT(number, ==, 1);
    CHECK_INT(members_of(view, &options, key), ==, 1);
    CHECK_INT(members_of(inner, &options, key), ==, 2);
    CHECK_STATUS(TRUCE_INVALID, truce_sequence_next(view, "numbers", &number, &error), error);
    CHECK(strstr(error.message, "snapshot"));
    of_view = truce_set_new(view, &options);
    CHECK_STATUS(TRUCE_INVALID, truce_set_add(of_view, NULL, key, second, 3, NULL, &error), error);
    CHECK(strstr(error.message, "snapshot"));
    truce_set_free(of_view);
    truce_set_free(set);
    truce_store_close(view);
    truce_store_close(store);
    bson_destroy(key);
    bson_destroy(first);
    bson_destroy(second);
}

/* One is in the cache of documents, because it was read; of the others one is in the file, and one
 * nowhere. */
TEST(reads_uncached_documents_from_the_file)
{
    bson_value_t ids[3] = {id_of(1), id_of(9), id_of(2)};
    truce_read_request looks[3];
    bson_t *second = BCON_NEW("_id", BCON_INT32(2)), found;
    bson_error_t error;

    open_stores(true);
    put(1, 10);
    put(2, 20);
    CHECK_OK(truce_find_one(inner, "things", second, NULL, &found, &error), error);
    bson_destroy(&found);
    for (int i = 0; i < 3; i++)
        looks[i] = (truce_read_request){.collection = "things", .id = &ids[i]};
    for (int round = 0; round < 2; round++) {
        CHECK_OK(truce_read_many(inner, looks, 3, NULL, &error), error);
        CHECK(looks[0].found && !looks[1].found && looks[2].found);
        CHECK_INT(truce__field_number(&looks[0].document, "n"), ==, 10);
        CHECK_INT(truce__field_number(&looks[2].document, "n"), ==, 20);
        for (int i = 0; i < 3; i++)
            bson_destroy(&looks[i].document);
    }
    bson_destroy(second);
    truce_store_close(store);
}

static void count_on(truce_store *where, bool interrupted)
{
    bson_error_t error = {0};
    int64_t count = 0;

    CHECK_STATUS(interrupted ? TRUCE_TIMEOUT : TRUCE_OK,
                 truce_count(where, "things", NULL, NULL, &count, &error), error);
    if (interrupted)
        CHECK_INT(error.code, ==, CODE_INTERRUPTED);
    else
        CHECK_INT(count, ==, 1);
}

TEST(interrupts_calls_on_a_view_with_its_store)
{
    for (int file = 0; file < 2; file++) {
        truce_store *view = NULL;
        bson_error_t error;

        open_stores(file);
        put(1, 10);
        CHECK_OK(truce_snapshot(inner, NULL, &view, &error), error);
        count_on(view, false);
        truce_interrupt(inner);
        count_on(view, true);
        truce_resume(inner);
        count_on(view, false);
        truce_interrupt(view); /* and not the other way round */
        count_on(view, true);
        count_on(inner, false);
        truce_store_close(view);
        truce_store_close(store);
    }
}

/*
 * One call of a pattern, and one plain write that comes before its first call of the store, before
 * its second, and so on. The result is that of the two one after the other, in either order, or the
 * call was refused and only the plain write is stored. Only a journal commit that is decided
 * overwrites a plain write that comes then, and reports it (`truce check`). No part of a plain
 * write is ever lost silently.
 */
#include "base/assert.h"
#include "tests/support/hooked.h"
#include "tests/support/masked.h"
#include "tests/support/test.h"
#include "tests/support/tutorial.h"
#include "truce/sys/store.h"

/* ---- a store that lets another client in ----------------------------------------------------- */

struct plain {
    const char *collection, *filter, *update;
};

static const struct plain *intruder;
static int calls, enter_at; /* enter_at 0: at no call */
static bool inside;

/* Makes the plain write. It may be refused: a field of an item in a map is not a field of a
 * list. */
static void write_plain(truce_store *store, const struct plain *plain)
{
    bson_t *filter = test_bson(plain->filter), *update = test_bson(plain->update);
    bson_error_t error = {0};
    truce_status status =
        truce_update(store, plain->collection, filter, update, NULL, NULL, &error);

    CHECK(status == TRUCE_OK || status == TRUCE_INVALID);
    bson_destroy(update);
    bson_destroy(filter);
}

static void before_call(truce_store *store)
{
    if (inside || ++calls != enter_at)
        return;
    inside = true;
    write_plain(store, intruder);
    inside = false;
}

static truce_status hooked_rewrite(truce_store *store, truce_rewrite *rewrite, bson_error_t *error)
{
    before_call(store);
    return plain_ops->rewrite(store, rewrite, error);
}

/* The store as the pattern sees it; `*below` is under its capabilities. */
static truce_store *open_store(uint32_t lacks, truce_store **below)
{
    truce_store *store = NULL;
    bson_error_t error;

    CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error);
    hooked_make(store, before_call);
    hooked_ops.rewrite = plain_ops->rewrite ? hooked_rewrite : NULL;
    inside = true;
    enter_at = calls = 0;
    *below = store;
    store = masked_wrap(store, lacks);
    store->capabilities &= ~lacks;
    return store;
}

/* ---- the result ------------------------------------------------------------------------------ */

static const char *const collections[] = {"employees", "students", "students.classes", "posts"};

static void copy_post(const bson_t *document, bson_t *kept)
{
    static const char *const names[] = {"_id", "a", "b", "c", "d"};
    bson_iter_t iter;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (bson_iter_init_find(&iter, document, names[i]))
            BSON_APPEND_VALUE(kept, names[i], bson_iter_value(&iter));
    }
}

/* Returns all documents, without the fields that differ each time. */
static void dump(truce_store *store, bson_t *all)
{
    bson_init(all);
    for (size_t i = 0; i < sizeof collections / sizeof *collections; i++) {
        bson_t *sort = test_bson("{'name': 1, '_id': 1}"), list;
        truce_find_options options = {.sort = sort};
        truce_cursor *cursor = NULL;
        const bson_t *document;
        bson_error_t error;
        char key[12];

        CHECK_OK(truce_find(store, collections[i], NULL, &options, &cursor, &error), error);
        bson_append_array_begin(all, collections[i], -1, &list);
        for (int n = 0; !truce_cursor_next(cursor, &document, &error) && document; n++) {
            bson_t kept = BSON_INITIALIZER;
            bson_iter_t iter;
            bool made = bson_iter_init_find(&iter, document, "_id") && BSON_ITER_HOLDS_OID(&iter);

            if (!strcmp(collections[i], "posts")) /* a merge may put the fields in another order */
                copy_post(document, &kept);
            else
                bson_copy_to_excluding_noinit(document, &kept, "_rev", made ? "_id" : "_rev", NULL);
            snprintf(key, sizeof key, "%d", n);
            BSON_APPEND_DOCUMENT(&list, key, &kept);
            bson_destroy(&kept);
        }
        bson_append_array_end(all, &list);
        truce_cursor_close(cursor);
        bson_destroy(sort);
    }
}

/* ---- the calls ------------------------------------------------------------------------------- */

struct call {
    const char *name;
    truce_status (*run)(truce_store *store, const struct call *call, bson_error_t *error);
    uint32_t lacks;
    int form;
    bool in_commit, has_read; /* the base of the call was read before all */
    const char *verb, *first, *second;
};

struct step { /* a call, and the commit that it is part of or NULL */
    truce_store *store;
    const struct call *call;
};

static truce_status item_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct step *step = arg;
    const struct call *call = step->call;
    bool converts = !strncmp(call->verb, "to-", 3); /* in passes: it may raise the number twice */
    truce_item *item =
        tutorial_item(step->store, &(truce_item_options){.form = (truce_item_form)call->form,
                                                         .version = converts ? NULL : "v"});
    bson_t *filter = test_bson("{'_id': 1}"), *first = call->first ? test_bson(call->first) : NULL;
    bson_t *second = call->second ? test_bson(call->second) : NULL;
    truce_status status = TRUCE_INVALID;

    if (!strcmp(call->verb, "update"))
        status = truce_item_update(item, commit, filter, first, second, NULL, error);
    else if (!strcmp(call->verb, "add"))
        status = truce_item_add(item, commit, filter, first, NULL, error);
    else if (!strcmp(call->verb, "remove"))
        status = truce_item_remove(item, commit, filter, first, NULL, error);
    else if (!strcmp(call->verb, "replace"))
        status = truce_item_replace(item, commit, filter, first, second, NULL, error);
    else if (!strcmp(call->verb, "upsert"))
        status = truce_item_upsert(item, commit, filter, first, NULL, error);
    else if (!strcmp(call->verb, "to-map"))
        status = truce_item_convert(item, TRUCE_ITEM_MAP, NULL, NULL, error);
    else if (!strcmp(call->verb, "to-array"))
        status = truce_item_convert(item, TRUCE_ITEM_ARRAY, NULL, NULL, error);
    bson_destroy(second);
    bson_destroy(first);
    bson_destroy(filter);
    truce_item_free(item);
    return status;
}

static truce_status run_item(truce_store *store, const struct call *call, bson_error_t *error)
{
    struct step step = {store, call};

    return call->in_commit ? truce_transact(store, item_in, &step, NULL, error)
                           : item_in(NULL, &step, error);
}

/* `first`: an array of {verb, seq, name, room?}. */
static truce_status set_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct step *step = arg;
    const struct call *call = step->call;
    bool by_element = !strcmp(call->verb, "by-element");
    truce_set *set = tutorial_set(
        step->store,
        &(truce_set_options){.form = (truce_set_form)call->form,
                             .layout = by_element ? TRUCE_SET_BY_ELEMENT : TRUCE_SET_IN_DOCUMENT});
    bson_t *key = test_bson("{'student_id': 1}"), elements[4];
    bson_t *list = call->first ? test_bson(call->first) : NULL;
    truce_set_operation operations[4];
    truce_set_result results[4];
    truce_status status = TRUCE_OK;
    bson_iter_t iter, field;
    size_t count = 0;

    for (bool more = list && bson_iter_init(&iter, list); more && bson_iter_next(&iter); count++) {
        bson_t operation;
        const uint8_t *bytes;
        uint32_t length;

        bson_iter_document(&iter, &length, &bytes);
        truce_assert(count < 4 && bson_init_static(&operation, bytes, length));
        bson_init(&elements[count]);
        bson_copy_to_excluding_noinit(&operation, &elements[count], "verb", "seq", NULL);
        operations[count] = (truce_set_operation){.key = key, .element = &elements[count]};
        truce_assert(bson_iter_init_find(&field, &operation, "seq"));
        operations[count].seq = bson_iter_as_int64(&field);
        truce_assert(bson_iter_init_find(&field, &operation, "verb"));
        operations[count].verb =
            bson_iter_utf8(&field, NULL)[0] == 'a' ? TRUCE_SET_ADD : TRUCE_SET_REMOVE;
    }
    if (!strcmp(call->verb, "convert"))
        status = truce_set_convert(set, NULL, error);
    else if (!strcmp(call->verb, "collect"))
        status = truce_set_collect(set, NULL, error);
    else
        status = truce_set_apply(set, commit, operations, count, results, error);
    for (size_t i = 0; i < count; i++)
        bson_destroy(&elements[i]);
    bson_destroy(list);
    bson_destroy(key);
    truce_set_free(set);
    return status;
}

static truce_status run_set(truce_store *store, const struct call *call, bson_error_t *error)
{
    struct step step = {store, call};

    return call->in_commit ? truce_transact(store, set_in, &step, NULL, error)
                           : set_in(NULL, &step, error);
}

/* `first` was read; `second` is saved over it. A conflict is a refusal. */
static truce_status post_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct step *step = arg;
    const struct call *call = step->call;
    truce_revision *revision =
        tutorial_revision(step->store, &(truce_revision_options){.keep = (uint32_t)call->form});
    bson_t *base = test_bson(call->first), *mine = test_bson(call->second);
    truce_revision_result result;
    truce_status status =
        (!strcmp(call->verb, "save") ? truce_revision_save : truce_revision_merge)(
            revision, commit, mine, 4, base, &result, error);

    if (!status && result.outcome == TRUCE_REVISION_CONFLICT)
        status = TRUCE_CONFLICT;
    truce_revision_result_release(&result);
    bson_destroy(mine);
    bson_destroy(base);
    truce_revision_free(revision);
    return status;
}

static truce_status run_post(truce_store *store, const struct call *call, bson_error_t *error)
{
    struct step step = {store, call};
    /* a reported conflict is not a race: the function is not run again for it */
    truce_commit_options options = {.tries_max = 5};

    return call->in_commit ? truce_transact(store, post_in, &step, &options, error)
                           : post_in(NULL, &step, error);
}

/* ---- one call and one plain write ------------------------------------------------------------ */

struct stands {
    const char *collection, *document;
};

static void put(truce_store *store, const struct stands *stands)
{
    for (; stands->collection; stands++) {
        bson_t *document = test_bson(stands->document);
        bson_error_t error;

        CHECK_OK(truce_insert(store, stands->collection, document, NULL, &error), error);
        bson_destroy(document);
    }
}

/* Counts journal commits that report an overwritten plain write, and the kept values of these
 * writes. */
static int64_t count_reported(truce_store *store)
{
    bson_t *filter = test_bson("{'overwritten.0': {'$exists': true}}");
    bson_error_t error;
    int64_t count = 0, kept = 0;

    CHECK_OK(truce_count(store, "truce_commits", filter, NULL, &count, &error), error);
    CHECK_OK(truce_count(store, "truce_displaced", NULL, NULL, &kept, &error), error);
    bson_destroy(filter);
    return count + kept;
}

/* Makes the plain write at `at` (0: before all; INT_MAX: after all). The remaining documents go
 * to `all`. */
static truce_status play(const struct call *call, const struct stands *stands,
                         const struct plain *plain, int at, bson_t *all, bool *reported)
{
    truce_store *below, *store = open_store(call->lacks, &below);
    truce_status status;
    bson_error_t error = {0};

    if (!strcmp(call->verb, "by-element")) { /* its index, before another client is in the way */
        struct call first = *call;

        first.first = "[{'verb': 'remove', 'seq': 1, 'name': 'W'}]";
        first.in_commit = false;
        CHECK_OK(first.run(store, &first, &error), error);
    }
    put(below, stands);
    if (at == 0)
        write_plain(below, plain);
    below->ops = &hooked_ops;
    inside = false;
    intruder = plain;
    enter_at = at;
    status = call->run(store, call, &error);
    inside = true;
    below->ops = plain_ops;
    if (at == INT32_MAX)
        write_plain(below, plain);
    dump(below, all);
    if (reported)
        *reported = count_reported(below) > 0;
    truce_store_close(store);
    return status;
}

static void check_all(const struct call *call, const struct stands *stands,
                      const struct plain *plain)
{
    bson_t before, after, alone, left;
    static long turn;
    truce_status first, status;
    bool journal = call->lacks & TRUCE_CAN_ATOMIC_BULK, entered = true, reported;
    truce_store *below, *store;

    if (turn++ % test_scale("TRUCE_MIDST_EVERY", 1))
        return;
    first = play(call, stands, plain, 0, &before, NULL);
    store = open_store(0, &below);

    CHECK_INT(play(call, stands, plain, INT32_MAX, &after, NULL), ==, TRUCE_OK);
    put(below, stands);
    write_plain(below, plain);
    dump(below, &alone);
    truce_store_close(store);
    for (int at = 1; entered && at < 60; at++) {
        bool good;

        status = play(call, stands, plain, at, &left, &reported);
        entered = calls >= at;
        good =
            !entered || (status ? bson_equal(&left, &alone)
                                : bson_equal(&left, &after) ||
                                      (!first && !call->has_read && bson_equal(&left, &before)) ||
                                      (journal && reported));
        if (!good) {
            char *is = bson_as_relaxed_extended_json(&left, NULL);
            char *one = bson_as_relaxed_extended_json(&before, NULL);
            char *two = bson_as_relaxed_extended_json(&after, NULL);

            test_fail(__FILE__, __LINE__,
                      "%s %s %s next to %s at call %d (status %d) leaves\n%s\nneither\n%s\nnor\n%s",
                      call->name, call->verb, call->first ? call->first : "", plain->update, at,
                      status, is, one, two);
            bson_free(is);
            bson_free(one);
            bson_free(two);
        }
        bson_destroy(&left);
    }
    CHECK(!entered);
    bson_destroy(&alone);
    bson_destroy(&before);
    bson_destroy(&after);
}

/* ---- items ----------------------------------------------------------------------------------- */

#define NO_OPERATOR TRUCE_CAN_ITEM_UPDATE
#define NO_FILTERS  (TRUCE_CAN_ITEM_UPDATE | TRUCE_CAN_ARRAY_FILTERS)

static const struct call item_forms[] = {
    {.name = "operator", .run = run_item, .form = TRUCE_ITEM_FORM_OPERATOR},
    {.name = "filters", .run = run_item, .lacks = NO_OPERATOR, .form = TRUCE_ITEM_FORM_FILTERS},
    {.name = "positional",
     .run = run_item,
     .lacks = NO_FILTERS,
     .form = TRUCE_ITEM_FORM_POSITIONAL},
    {.name = "commit", .run = run_item, .in_commit = true},
    {.name = "values", .run = run_item, .lacks = TRUCE_CAN_COMPARE, .in_commit = true},
    {.name = "journal", .run = run_item, .lacks = TRUCE_CAN_ATOMIC_BULK, .in_commit = true},
};

static const char *const item_calls[][3] = {
    {"update", "{'type': 'B'}", "{'$inc': {'n': 1}}"},
    {"update", "{'n': {'$gte': 0}}", "{'$set': {'m': 1}}"},
    {"add", "{'type': 'D', 'n': 9}", NULL},
    {"remove", "{'type': 'B'}", NULL},
    {"replace", "{'type': 'B'}", "{'type': 'B', 'new': true}"},
    {"upsert", "{'type': 'B', 'up': 1}", NULL},
    {"upsert", "{'type': 'D', 'up': 1}", NULL},
    {"to-map", NULL, NULL},
    {"to-array", NULL, NULL},
};

static const struct stands item_list[] = {
    {"employees", "{'_id': 1, 'v': 1, 'badges': [{'type': 'A'}, {'type': 'B', 'n': 0}, {'type': "
                  "'C', 'n': 0}], 'x': 0}"},
    {0}};
static const struct stands item_table[] = {
    {"employees", "{'_id': 1, 'v': 1, 'badges': {'A': {'type': 'A'}, 'B': {'type': 'B', 'n': 0}, "
                  "'C': {'type': 'C', 'n': 0}}, 'x': 0}"},
    {0}};

#define ON_EMPLOYEE "employees", "{'_id': 1}"
static const struct plain item_plain_list[] = {
    {ON_EMPLOYEE, "{'$set': {'badges.1.note': 'by hand'}}"},
    {ON_EMPLOYEE, "{'$set': {'badges.0.note': 'by hand'}}"},
    {ON_EMPLOYEE, "{'$inc': {'badges.1.n': 5}}"},
    {ON_EMPLOYEE, "{'$push': {'badges': {'type': 'E'}}}"},
    {ON_EMPLOYEE, "{'$push': {'badges': {'type': 'D', 'hand': 1}}}"},
    {ON_EMPLOYEE, "{'$push': {'badges': {'$each': [{'type': 'E'}], '$position': 0}}}"},
    {ON_EMPLOYEE, "{'$pull': {'badges': {'type': 'A'}}}"},
    {ON_EMPLOYEE, "{'$pull': {'badges': {'type': 'B'}}}"},
    {ON_EMPLOYEE, "{'$set': {'x': 7}}"},
    {ON_EMPLOYEE, "{'$set': {'badges': [{'type': 'B', 'n': 3}]}}"},
    {ON_EMPLOYEE, "{'$unset': {'badges': 1}}"},
};
static const struct plain item_plain_table[] = {
    {ON_EMPLOYEE, "{'$set': {'badges.B.note': 'by hand'}}"},
    {ON_EMPLOYEE, "{'$inc': {'badges.B.n': 5}}"},
    {ON_EMPLOYEE, "{'$set': {'badges.E': {'type': 'E'}}}"},
    {ON_EMPLOYEE, "{'$set': {'badges.D': {'type': 'D', 'hand': 1}}}"},
    {ON_EMPLOYEE, "{'$unset': {'badges.A': 1}}"},
    {ON_EMPLOYEE, "{'$unset': {'badges.B': 1}}"},
    {ON_EMPLOYEE, "{'$set': {'badges': {'B': {'type': 'B', 'n': 3}}}}"},
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void all_items(const struct stands *stands, const struct plain *plains, size_t count)
{
    for (size_t f = 0; f < COUNT(item_forms); f++) {
        for (size_t c = 0; c < COUNT(item_calls); c++) {
            struct call call = item_forms[f];

            call.verb = item_calls[c][0];
            call.first = item_calls[c][1];
            call.second = item_calls[c][2];
            if (call.in_commit && !strncmp(call.verb, "to-", 3))
                continue; /* it is not available in commits */
            for (size_t p = 0; p < count; p++)
                check_all(&call, stands, &plains[p]);
        }
    }
}

TEST(keeps_a_plain_write_during_a_change_of_items_in_a_list)
{
    all_items(item_list, item_plain_list, COUNT(item_plain_list));
}

TEST(keeps_a_plain_write_during_a_change_of_items_in_a_map)
{
    all_items(item_table, item_plain_table, COUNT(item_plain_table));
}

/* ---- ordered sets ---------------------------------------------------------------------------- */

static const struct call set_forms[] = {
    {.name = "rewriting", .run = run_set},
    {.name = "pipeline", .run = run_set, .lacks = TRUCE_CAN_REWRITE},
    {.name = "classic",
     .run = run_set,
     .lacks = TRUCE_CAN_REWRITE | TRUCE_CAN_PIPELINE_UPDATE,
     .form = TRUCE_SET_FORM_CLASSIC},
    {.name = "commit", .run = run_set, .in_commit = true},
    {.name = "values",
     .run = run_set,
     .lacks = TRUCE_CAN_COMPARE | TRUCE_CAN_REWRITE,
     .in_commit = true},
    {.name = "journal",
     .run = run_set,
     .lacks = TRUCE_CAN_ATOMIC_BULK | TRUCE_CAN_REWRITE,
     .in_commit = true},
};

static const char *const set_calls[][2] = {
    {"apply", "[{'verb': 'add', 'seq': 20, 'name': 'A', 'room': 2}]"},
    {"apply", "[{'verb': 'add', 'seq': 20, 'name': 'N'}]"},
    {"apply", "[{'verb': 'remove', 'seq': 20, 'name': 'A'}]"},
    {"apply", "[{'verb': 'add', 'seq': 20, 'name': 'T'}]"},
    {"apply", "[{'verb': 'add', 'seq': 2, 'name': 'A', 'room': 9}]"},
    {"apply", "[{'verb': 'add', 'seq': 20, 'name': 'N'}, {'verb': 'remove', 'seq': 21, 'name': "
              "'A'}, {'verb': 'add', 'seq': 22, 'name': 'B', 'room': 5}]"},
    {"convert", NULL},
    {"collect", NULL},
};

static const struct stands set_numbered[] = {
    {"students",
     "{'_id': 1, 'student_id': 1, 'classes': [{'name': 'A', 'seq': {'$numberLong': '3'}, 'room': "
     "1}, {'name': 'B', 'seq': {'$numberLong': '4'}}], 'deleted_classes': [{'name': 'T', 'seq': "
     "{'$numberLong': '5'}}]}"},
    {0}};
static const struct stands set_bare[] = {
    {"students", "{'_id': 1, 'student_id': 1, 'classes': ['A', 'B', {'name': 'C', 'seq': "
                 "{'$numberLong': '4'}}]}"},
    {0}};

#define ON_STUDENT "students", "{'student_id': 1}"
static const struct plain set_plain[] = {
    {ON_STUDENT, "{'$set': {'x': 7}}"},
    {ON_STUDENT, "{'$push': {'classes': {'name': 'Z', 'seq': {'$numberLong': '6'}}}}"},
    {ON_STUDENT, "{'$pull': {'classes': {'name': 'B'}}}"},
    {ON_STUDENT, "{'$pull': {'classes': {'name': 'C'}}}"},
    {ON_STUDENT, "{'$set': {'deleted_classes': []}}"},
    {ON_STUDENT, "{'$set': {'_wm': {'$numberLong': '1'}}}"},
};
/* of lists with numbers only: such an index means an element */
static const struct plain set_plain_elements[] = {
    {ON_STUDENT, "{'$set': {'classes.0.room': 77}}"},
    {ON_STUDENT, "{'$set': {'classes.1.room': 77}}"},
    {ON_STUDENT, "{'$set': {'classes.1.room': {'$numberDecimal': '1'}}}"},
};

static void all_sets(const struct stands *stands, const struct plain *plains, size_t count)
{
    for (size_t f = 0; f < COUNT(set_forms); f++) {
        for (size_t c = 0; c < COUNT(set_calls); c++) {
            struct call call = set_forms[f];

            call.verb = set_calls[c][0];
            call.first = set_calls[c][1];
            if (call.in_commit && !call.first)
                continue;
            for (size_t p = 0; p < count; p++)
                check_all(&call, stands, &plains[p]);
        }
    }
}

TEST(a_plain_write_in_the_midst_of_an_operation_of_a_set_is_kept)
{
    all_sets(set_numbered, set_plain, COUNT(set_plain));
    all_sets(set_numbered, set_plain_elements, COUNT(set_plain_elements));
}

TEST(keeps_a_plain_write_during_an_operation_on_bare_names)
{
    all_sets(set_bare, set_plain, COUNT(set_plain));
}

static const struct stands set_elements[] = {
    {"students.classes", "{'_id': 1, 'student_id': 1, 'name': 'A', 'seq': {'$numberLong': '3'}, "
                         "'room': 1}"},
    {"students.classes", "{'_id': 2, 'student_id': 1, 'name': 'B', 'seq': {'$numberLong': '4'}}"},
    {"students.classes", "{'_id': 3, 'student_id': 1, 'name': 'T', 'seq': {'$numberLong': '5'}, "
                         "'removed': true}"},
    {0}};
#define ON_ELEMENT "students.classes", "{'name': 'B'}"
static const struct plain set_plain_documents[] = {
    {ON_ELEMENT, "{'$set': {'room': 77}}"},
    {"students.classes", "{'name': 'A'}", "{'$set': {'room': 77}}"},
    {ON_ELEMENT, "{'$set': {'seq': {'$numberLong': '30'}}}"},
};

TEST(keeps_a_plain_write_during_an_operation_by_element)
{
    for (size_t f = 0; f < COUNT(set_forms); f++) {
        for (size_t c = 0; c < COUNT(set_calls); c++) {
            struct call call = set_forms[f];

            call.verb = "by-element";
            call.first = set_calls[c][1];
            for (size_t p = 0; call.first && p < COUNT(set_plain_documents); p++)
                check_all(&call, set_elements, &set_plain_documents[p]);
        }
    }
}

/* ---- revisions ------------------------------------------------------------------------------- */

static const struct call post_forms[] = {
    {.name = "direct", .run = run_post},
    {.name = "keeping", .run = run_post, .form = 2},
    {.name = "journal", .run = run_post, .lacks = TRUCE_CAN_ATOMIC_BULK, .form = 2},
    {.name = "commit", .run = run_post, .in_commit = true},
    {.name = "values", .run = run_post, .lacks = TRUCE_CAN_COMPARE, .form = 2},
};

static const struct stands post[] = {
    {"posts", "{'_id': 1, 'a': 1, 'b': [1, {'c': 2}], 'version': {'$numberLong': '4'}}"}, {0}};

#define ON_POST "posts", "{'_id': 1}"
static const struct plain post_plain[] = {
    {ON_POST, "{'$set': {'b.1.c': 3}}"}, {ON_POST, "{'$push': {'b': 5}}"},
    {ON_POST, "{'$set': {'d': 1}}"},     {ON_POST, "{'$unset': {'b': 1}}"},
    {ON_POST, "{'$set': {'a': 9}}"},     {ON_POST, "{'$set': {'a': 9}, '$inc': {'version': 1}}"},
};

TEST(a_plain_write_in_the_midst_of_a_save_is_kept)
{
    for (size_t f = 0; f < COUNT(post_forms); f++) {
        for (int merges = 0; merges < 2; merges++) {
            struct call call = post_forms[f];

            call.has_read = true;
            call.verb = merges ? "merge" : "save";
            call.first = "{'_id': 1, 'a': 1, 'b': [1, {'c': 2}]}";
            call.second = "{'_id': 1, 'a': 2, 'b': [1, {'c': 2}]}";
            for (size_t p = 0; p < COUNT(post_plain); p++)
                check_all(&call, post, &post_plain[p]);
        }
    }
}

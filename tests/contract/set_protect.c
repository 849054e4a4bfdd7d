/* Programs that do not compare the watermark bring collected elements back. A protected set
 * refuses these elements and nothing else. The tests run in memory, in a file, and at a server. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/status.h"
#include "tests/support/no_sleep.h"
#include "tests/support/set_model.h"
#include "tests/support/set_place.h"
#include "truce/sweep.h"
#include "truce/sys/decorate.h"

/* An enrolment as a classic client sends it. */
static truce_status send_classic(struct place *place, const char *name, int seq,
                                 bson_error_t *error)
{
    static const truce_write_options options = {.upsert = true};
    char text[500];
    bson_t *filter, *update;
    truce_status status;

    snprintf(text, sizeof text,
             "{'student_id': 1, 'classes': {'$not': {'$elemMatch': {'name': '%s'}}}, '$or': ["
             "{'deleted_classes': {'$not': {'$elemMatch': {'name': '%s'}}}}, "
             "{'deleted_classes': {'$elemMatch': {'name': '%s', 'seq': {'$lt': %d}}}}]}",
             name, name, name, seq);
    filter = test_bson(text);
    snprintf(text, sizeof text,
             "{'$push': {'classes': {'name': '%s', 'seq': %d}}, '$pull': {'deleted_classes': "
             "{'name': '%s'}}}",
             name, seq, name);
    update = test_bson(text);
    status = truce_update(place->store, "students", filter, update, &options, NULL, error);
    bson_destroy(filter);
    bson_destroy(update);
    return status;
}

static void consume(struct place *place, bool add, const char *name, int seq)
{
    bson_t *element = BCON_NEW("name", BCON_UTF8(name));
    truce_set_operation operation = {.verb = add ? TRUCE_SET_ADD : TRUCE_SET_REMOVE,
                                     .key = place->key,
                                     .element = element,
                                     .seq = seq};
    truce_set_result result = {0};
    bson_error_t error;

    CHECK_OK(truce_set_consume(place->set, "c1", &operation, 1, &result, &error), error);
    CHECK_INT(result.outcome, ==, TRUCE_SET_APPLIED);
    bson_destroy(element);
}

static bool matches(struct place *place, const char *filter)
{
    bson_t *made = test_bson(filter);
    int64_t count = 0;
    bson_error_t error;

    CHECK_OK(truce_count(place->store, "students", made, NULL, &count, &error), error);
    bson_destroy(made);
    return count == 1;
}

static void protect(struct place *place, bool on)
{
    bson_error_t error;

    CHECK_OK(truce_set_protect(place->set, on, &error), error);
}

/* Returns the validator of the collection, empty for none; the caller frees it. */
static bson_t *validator(struct place *place)
{
    bson_t list, *found = bson_new();
    bson_iter_t iter, child;
    bson_error_t error;

    CHECK_OK(truce_collection_list(place->store, NULL, &list, &error), error);
    bson_iter_init(&iter, &list);
    while (bson_iter_next(&iter)) {
        const uint8_t *bytes;
        uint32_t size;
        bson_t view;

        if (!bson_iter_recurse(&iter, &child) || !bson_iter_find(&child, "name") ||
            strcmp(bson_iter_utf8(&child, NULL), "students") != 0)
            continue;
        if (bson_iter_recurse(&iter, &child) && bson_iter_find(&child, "validator")) {
            bson_iter_document(&child, &size, &bytes);
            CHECK(bson_init_static(&view, bytes, size));
            bson_concat(found, &view);
        }
    }
    bson_destroy(&list);
    return found;
}

static void check_validator(struct place *place, const bson_t *expected)
{
    bson_t *found = validator(place);

    CHECK_BSON(expected, found);
    bson_destroy(found);
}

/* ---- elements that come back ----------------------------------------------------------------- */

static void older(bool file, truce_set_form form, bool protected)
{
    struct place place;
    bson_error_t error = {0};
    truce_status status;

    place_open(&place, file, form);
    if (protected)
        protect(&place, true);
    if (file)
        place_reopen(&place);
    consume(&place, true, "CS 101", 1);
    consume(&place, false, "CS 101", 2);
    consume(&place, true, "CS 102", 3);
    CHECK_INT(collect(&place).tombstones, ==, 1);
    status = send_classic(&place, "CS 101", 1, &error);
    if (protected) {
        CHECK_INT(status, ==, TRUCE_INVALID);
        CHECK_INT(error.code, ==, CODE_DOCUMENT_VALIDATION_FAILURE);
    } else {
        CHECK_OK(status, error);
    }
    CHECK_INT(matches(&place, "{'classes.name': 'CS 101'}"), ==, !protected);
    /* new elements are refused for every program, and stored ones can be changed */
    if (protected) {
        CHECK_OK(send_classic(&place, "CS 103", 4, &error), error);
        consume(&place, false, "CS 102", 5);
        consume(&place, true, "CS 101", 6);
        CHECK(matches(&place, "{'classes.name': 'CS 101', 'deleted_classes.name': 'CS 102'}"));
        CHECK(!matches(&place, "{'classes.name': 'CS 102'}"));
        CHECK(matches(&place, "{'classes.name': 'CS 103'}"));
    }
    place_close(&place);
}

TEST(an_older_consumer_brings_collected_elements_back)
{
    older(false, TRUCE_SET_FORM_AUTO, false);
}

TEST(a_protected_set_refuses_collected_elements)
{
    older(false, TRUCE_SET_FORM_AUTO, true);
    older(false, TRUCE_SET_FORM_PIPELINE, true);
    older(false, TRUCE_SET_FORM_CLASSIC, true);
    if (has_files())
        older(true, TRUCE_SET_FORM_AUTO, true);
}

/* ---- calls that are never refused ------------------------------------------------------------ */

static void random_orders(truce_set_form form, uint64_t seed)
{
    enum { OPERATIONS = 40 };
    struct model_operation operations[OPERATIONS];
    struct place place;
    bson_error_t error;

    place_open(&place, false, form);
    protect(&place, true);
    for (int i = 0; i < OPERATIONS; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        operations[i] =
            (struct model_operation){(seed >> 40) % 5 > 1, i + 1, NULL, 1, (int)((seed >> 33) % 6)};
    }
    for (int from = 0; from < OPERATIONS; from += 8) { /* each eight in reverse order, and twice */
        for (int i = 15; i >= 0; i--) {
            truce_set_operation made;
            truce_set_result result = {0};
            bson_t key, element;

            model_operation_make(&operations[from + i / 2], &key, &element, &made);
            CHECK_OK(truce_set_consume(place.set, "c1", &made, 1, &result, &error), error);
            bson_destroy(&key);
            bson_destroy(&element);
        }
        CHECK_OK(truce_set_collect(place.set, NULL, &error), error);
    }
    model_check(place.set, operations, OPERATIONS, NULL, 1, 6, false, "protected");
    place_close(&place);
}

TEST(a_protected_set_refuses_nothing_else)
{
    for (uint64_t seed = 1; seed <= 5; seed++) {
        random_orders(TRUCE_SET_FORM_AUTO, seed);
        random_orders(TRUCE_SET_FORM_PIPELINE, seed);
        random_orders(TRUCE_SET_FORM_CLASSIC, seed);
    }
}

TEST(lists_of_plain_names_are_converted_in_a_protected_set)
{
    bson_t *document = test_bson("{'student_id': 1, 'classes': ['CS 101', {'name': 'CS 102'}]}");
    truce_set_converted converted;
    struct place place;
    bson_error_t error;

    place_open(&place, false, TRUCE_SET_FORM_AUTO);
    protect(&place, true);
    CHECK_OK(truce_insert(place.store, "students", document, NULL, &error), error);
    consume(&place, false, "CS 103", 1);
    collect(&place);
    CHECK_OK(truce_set_convert(place.set, &converted, &error), error);
    CHECK(matches(&place, "{'classes.name': 'CS 101', '_wm': 1}"));
    CHECK(matches(&place, "{'classes.name': 'CS 102'}"));
    protect(&place, true);
    consume(&place, false, "CS 102", 2);
    bson_destroy(document);
    place_close(&place);
}

/* ---- protection of stored elements ----------------------------------------------------------- */

TEST(marks_stored_elements_and_keeps_their_validator)
{
    bson_t *theirs = test_bson("{'student_id': {'$gte': 1}}"), *before, none = BSON_INITIALIZER;
    struct place place;
    truce_set *other;
    bson_error_t error;

    place_open(&place, false, TRUCE_SET_FORM_AUTO);
    consume(&place, true, "CS 101", 1);
    consume(&place, false, "CS 102", 2);
    collect(&place);
    CHECK_OK(truce_collection_validate(place.store, "students", theirs, &error), error);
    protect(&place, true);
    CHECK(matches(&place, "{'classes': {'$elemMatch': {'name': 'CS 101', '_proved': true}}}"));
    consume(&place, true, "CS 103", 3);
    CHECK_INT(send_classic(&place, "CS 102", 1, &error), ==, TRUCE_INVALID);

    before = validator(&place);
    protect(&place, true);
    check_validator(&place, before);
    other = tutorial_set(place.store, &(truce_set_options){.field = "clubs", .watermark = "_wm2"});
    CHECK_OK(truce_set_protect(other, true, &error), error);
    CHECK_INT(send_classic(&place, "CS 102", 1, &error), ==, TRUCE_INVALID);
    CHECK_OK(truce_set_protect(other, false, &error), error);
    check_validator(&place, before);
    protect(&place, false);
    check_validator(&place, theirs);
    CHECK_OK(send_classic(&place, "CS 102", 1, &error), error);
    protect(&place, true);
    CHECK_OK(truce_set_forget(place.set, true, &error), error);
    check_validator(&place, theirs);
    CHECK_OK(truce_collection_validate(place.store, "students", NULL, &error), error);
    protect(&place, true);
    protect(&place, false);
    check_validator(&place, &none);
    truce_set_free(other);
    bson_destroy(theirs);
    bson_destroy(before);
    place_close(&place);
}

/* A collector that does not mark, at the time when the validator is about to be installed. */
static void collect_unmarked(const bson_t *event, void *arg)
{
    struct place *place = arg;
    bson_t *filter, *update;
    bson_iter_t iter;
    bson_error_t error;

    if (bson_iter_init_find(&iter, event, "status") || !bson_iter_init_find(&iter, event, "verb") ||
        strcmp(bson_iter_utf8(&iter, NULL), "collection_validate") != 0)
        return;
    filter = test_bson("{'student_id': 1}");
    update = test_bson("{'$max': {'_wm': 1}, '$pull': {'deleted_classes': {'seq': {'$lte': 1}}}}");
    CHECK_OK(truce_update(place->store, "students", filter, update, NULL, NULL, &error), error);
    bson_destroy(filter);
    bson_destroy(update);
}

TEST(refuses_an_unmarked_collector_and_repairs_interrupted_ones)
{
    struct place place;
    truce_trace_options options = {.function = collect_unmarked, .arg = &place, .beginnings = true};
    truce_store *traced;
    truce_set *set;
    bson_t *filter, *update;
    bson_error_t error;

    place_open(&place, false, TRUCE_SET_FORM_AUTO);
    consume(&place, true, "CS 101", 1);
    traced = truce_trace_wrap(place.store, &options);
    set = tutorial_set(traced, NULL);
    CHECK_OK(truce_set_protect(set, true, &error), error);
    CHECK(matches(&place, "{'_wm': 1}"));
    consume(&place, true, "CS 102", 2);
    filter = test_bson("{'student_id': 1}");
    update = test_bson("{'$max': {'_wm': 2}}");
    CHECK_INT(truce_update(place.store, "students", filter, update, NULL, NULL, &error), ==,
              TRUCE_INVALID);
    bson_destroy(filter);
    bson_destroy(update);
    truce_set_free(set);
    truce_set_free(place.set);
    truce_store_close(traced);
    bson_destroy(place.key);
}

/* Runs a commit that adds "CS 9" to the set, and whose owner dies at its n-th call. True: it
 * holds the document. */
static bool die_holding(struct place *place, uint64_t at)
{
    truce_commit_options options = {.mechanism = TRUCE_MECHANISM_JOURNAL, .lease_ms = 1};
    bson_t *element = test_bson("{'name': 'CS 9'}"), *other = test_bson("{'_id': 1}");
    truce_commit *commit = NULL;
    bson_error_t error;

    CHECK_OK(truce_commit_begin(place->store, &options, &commit, &error), error);
    CHECK_OK(truce_set_add(place->set, commit, place->key, element, 90, NULL, &error), error);
    CHECK_OK(truce_commit_insert(commit, "other", other, &error), error);
    truce_fault_arm(place->store, &(truce_fault_options){
                                      .kind = TRUCE_FAULT_FAIL, .at = at, .from_then_on = true});
    (void)!truce_commit_apply(commit, &error); /* it dies, or has completed before */
    truce_fault_arm(place->store, &(truce_fault_options){0});
    truce_commit_free(commit);
    bson_destroy(element);
    bson_destroy(other);
    return matches(place, "{'_intent': {'$exists': true}}");
}

/* A document that a commit holds is unmarked in its next state; any client may release it first. */
TEST(releases_and_protects_a_document_held_by_a_dead_commit)
{
    truce_sweep_options options = {.retention_ms = -1};
    truce_sweep_report report;
    bson_error_t error;
    int met = 0;

    if (server_under_test())
        return;
    no_sleep_begin();
    for (uint64_t at = 1; at < 40; at++) {
        struct place place;

        place_open(&place, false, TRUCE_SET_FORM_AUTO);
        truce_set_free(place.set);
        place.store = truce_fault_wrap(place.store, &(truce_fault_options){0});
        place.set = tutorial_set(place.store, &(truce_set_options){0});
        consume(&place, true, "CS 101", 1);
        consume(&place, false, "CS 101", 2);
        consume(&place, true, "CS 102", 3);
        CHECK_INT(collect(&place).tombstones, ==, 1);
        if (die_holding(&place, at)) {
            met++;
            protect(&place, true);
            CHECK_OK(truce_sweep(place.store, &options, &report, &error), error);
            CHECK(matches(&place, "{'_intent': {'$exists': false}, 'classes.name': 'CS 102'}"));
            CHECK_INT(send_classic(&place, "CS 101", 1, &error), ==, TRUCE_INVALID);
            consume(&place, false, "CS 102", 100);
        }
        place_close(&place);
    }
    truce__environment_use(NULL);
    CHECK_INT(met, >=, 2);
}

/* A validator that came while a commit held its document, whose members are not marked yet,
 * blocks no release. */
TEST(completes_releases_despite_a_validator_that_was_added)
{
    truce_sweep_options options = {.retention_ms = -1};
    truce_sweep_report report;
    bson_error_t error;
    bson_t *rule = NULL;
    int met = 0;

    if (server_under_test())
        return;
    no_sleep_begin();
    for (uint64_t at = 0; at < 40; at++) {
        struct place place;
        truce_store *plain;

        place_open(&place, false, TRUCE_SET_FORM_AUTO);
        truce_set_free(place.set);
        plain = place.store;
        place.store = truce_fault_wrap(plain, &(truce_fault_options){0});
        place.set = tutorial_set(place.store, &(truce_set_options){0});
        consume(&place, true, "CS 101", 1);
        consume(&place, false, "CS 101", 2);
        consume(&place, true, "CS 102", 3);
        CHECK_INT(collect(&place).tombstones, ==, 1);
        if (!at) {
            protect(&place, true);
            rule = validator(&place);
        } else if (die_holding(&place, at)) {
            met++;
            CHECK_OK(truce_collection_validate(plain, "students", rule, &error), error);
            truce__clock_sleep_ms(3);
            protect(&place, true);
            CHECK_OK(truce_sweep(place.store, &options, &report, &error), error);
            CHECK(matches(&place, "{'_intent': {'$exists': false}, 'classes.name': 'CS 102'}"));
            CHECK_INT(send_classic(&place, "CS 101", 1, &error), ==, TRUCE_INVALID);
            consume(&place, false, "CS 102", 100);
        }
        place_close(&place);
    }
    truce__environment_use(NULL);
    CHECK_INT(met, >=, 2);
    bson_destroy(rule);
}

TEST(the_layout_by_element_cannot_be_protected)
{
    struct place place;
    truce_set *set;
    bson_error_t error;

    place_open(&place, false, TRUCE_SET_FORM_AUTO);
    set = tutorial_set(place.store,
                       &(truce_set_options){.field = "clubs", .layout = TRUCE_SET_BY_ELEMENT});
    CHECK_INT(truce_set_protect(set, true, &error), ==, TRUCE_INVALID);
    truce_set_free(set);
    place_close(&place);
}

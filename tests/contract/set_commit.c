/* Operations of ordered sets as part of commits, and concurrently with commits that hold their
 * documents: on each store with each mechanism, in each form and layout. */
#include "base/clock.h"
#include "tests/support/bank.h"
#include "tests/support/no_sleep.h"
#include "tests/support/set_model.h"
#include "tests/support/tutorial.h"
#include "truce/sys/decorate.h"

static const struct {
    const char *name;
    truce_set_options options;
} forms[] = {
    {"pipeline", {.form = TRUCE_SET_FORM_PIPELINE}},
    {"classic", {.form = TRUCE_SET_FORM_CLASSIC}},
    {"by element", {.layout = TRUCE_SET_BY_ELEMENT}},
    {"merged inside the store", {.form = TRUCE_SET_FORM_AUTO}},
};

struct place {
    truce_store *store;
    truce_set *set;
    const struct setting *setting;
    const truce_set_options *options;
};

typedef void place_function(const struct place *place);

/* A server may have no transactions, and no updates by pipelines. */
static bool can(truce_store *store, truce_mechanism mechanism, const truce_set_options *options)
{
    return (mechanism != TRUCE_MECHANISM_NATIVE || (store->capabilities & TRUCE_CAN_ATOMIC_BULK)) &&
           (options->form != TRUCE_SET_FORM_PIPELINE ||
            (store->capabilities & TRUCE_CAN_PIPELINE_UPDATE)) &&
           (options->form != TRUCE_SET_FORM_AUTO || options->layout == TRUCE_SET_BY_ELEMENT ||
            (store->capabilities & TRUCE_CAN_REWRITE));
}

static bool can_on(const struct setting *setting, const truce_set_options *options)
{
    truce_store *store = open_setting(setting);
    bool has = can(store, setting->mechanism, options);

    truce_store_close(store);
    return has;
}

static void everywhere(place_function *function)
{
    for (size_t s = 0; s < sizeof settings / sizeof *settings; s++) {
        for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
            int before = test_failures();
            struct place place = {.setting = &settings[s], .options = &forms[f].options};

            if (!can_on(&settings[s], &forms[f].options))
                continue;
            place.store = open_setting(&settings[s]);
            place.set = tutorial_set(place.store, &forms[f].options);
            insert_json(place.store, "data", "{'_id': 'e', 'n': 0}");
            function(&place);
            truce_set_free(place.set);
            truce_store_close(place.store);
            if (test_failures() > before)
                fprintf(stderr, "    (with %s, %s)\n", settings[s].name, forms[f].name);
        }
    }
}

static uint32_t lease_ms = 1;

static truce_commit *begin(truce_store *store, truce_mechanism mechanism)
{
    truce_commit_options options = {
        .mechanism = mechanism, .lease_ms = lease_ms, .deadline_ms = 2000};
    truce_commit *commit = NULL;
    bson_error_t error = {0};

    CHECK_OK(truce_commit_begin(store, &options, &commit, &error), error);
    return commit;
}

/* Adds (seq > 0) or removes "CS <name>" of student 1. */
static truce_status operate(truce_set *set, truce_commit *commit, int name, int64_t seq,
                            truce_set_outcome *outcome, bson_error_t *error)
{
    struct model_operation operation = {seq > 0, seq > 0 ? seq : -seq, NULL, 1, name};
    truce_set_operation made;
    bson_t key, element;
    truce_status status;

    model_operation_make(&operation, &key, &element, &made);
    status = made.verb == TRUCE_SET_ADD
                 ? truce_set_add(set, commit, &key, &element, made.seq, outcome, error)
                 : truce_set_remove(set, commit, &key, &element, made.seq, outcome, error);
    bson_destroy(&key);
    bson_destroy(&element);
    return status;
}

static void check_operate(const struct place *place, truce_commit *commit, int name, int64_t seq,
                          truce_set_outcome wanted, int line)
{
    truce_set_outcome outcome = 0;
    bson_error_t error = {0};
    truce_status status = operate(place->set, commit, name, seq, &outcome, &error);

    if (status || outcome != wanted)
        test_fail(__FILE__, line, "%s %s (%s)", truce_status_name(status),
                  truce_set_outcome_name(outcome), status ? error.message : "");
}
#define OPERATE(commit, name, seq, wanted)                                                         \
    check_operate(place, commit, name, seq, TRUCE_SET_##wanted, __LINE__)

/* "CS 0,CS 2": the members of student 1, in the order of their names; "none": no document ever
 * existed */
static void check_members(truce_set *set, const char *wanted, int line)
{
    bson_t *key = model_key(1), members;
    char text[200] = "";
    bson_error_t error = {0};
    truce_status status = truce_set_members(set, key, &members, &error);

    if (status == TRUCE_NOT_FOUND)
        snprintf(text, sizeof text, "none");
    for (int name = 0; !status && name < 10; name++) {
        bson_iter_t iter, field;
        char class[16];

        snprintf(class, sizeof class, "CS %d", name);
        for (bool more = bson_iter_init(&iter, &members); more && bson_iter_next(&iter);) {
            if (bson_iter_recurse(&iter, &field) && bson_iter_find(&field, "name") &&
                !strcmp(bson_iter_utf8(&field, NULL), class))
                snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s",
                         text[0] ? "," : "", class);
        }
    }
    test_check_text(wanted, text, __FILE__, line);
    bson_destroy(&members);
    bson_destroy(key);
}
#define CHECK_MEMBERS(wanted) check_members(place->set, wanted, __LINE__)

static const char *lists_of(const struct place *place)
{
    return place->options->layout == TRUCE_SET_BY_ELEMENT ? "students.classes" : "students";
}

/* ---- in a commit ---------------------------------------------------------------------------- */

static void with_the_rest(const struct place *place)
{
    truce_commit *commit = begin(place->store, place->setting->mechanism);
    bson_error_t error = {0};

    OPERATE(commit, 0, 2, APPLIED);
    CHECK_OK(add_update(commit, "data", "e", NULL, "{'$inc': {'n': 1}}", &error), error);
    CHECK_MEMBERS("none");
    CHECK_OK(truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    CHECK_MEMBERS("CS 0");
    CHECK_DOCUMENT(place->store, "data", "e", "{'_id': 'e', 'n': 1}");

    commit = begin(place->store, place->setting->mechanism);
    OPERATE(commit, 1, 3, APPLIED);
    OPERATE(commit, 0, -4, APPLIED);
    CHECK_OK(add_update(commit, "data", "e", "{'n': 7}", "{'$inc': {'n': 1}}", &error), error);
    CHECK_STATUS(TRUCE_REFUSED, truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    CHECK_MEMBERS("CS 0");
}

TEST(applies_an_operation_in_a_commit_with_the_rest_or_not)
{
    everywhere(with_the_rest);
}

static void sequence_rules(const struct place *place)
{
    truce_commit *commit;
    bson_error_t error = {0};

    OPERATE(NULL, 0, 5, APPLIED);
    OPERATE(NULL, 1, -6, APPLIED);
    commit = begin(place->store, place->setting->mechanism);
    OPERATE(commit, 0, -4, STALE);
    OPERATE(commit, 0, 5, DUPLICATE);
    OPERATE(commit, 1, 3, STALE);
    OPERATE(commit, 1, -6, DUPLICATE);
    OPERATE(commit, 2, -8, APPLIED);
    OPERATE(commit, 2, 7, STALE); /* the commit's own */
    OPERATE(commit, 2, -8, DUPLICATE);
    OPERATE(commit, 2, 9, APPLIED);
    CHECK_OK(add_update(commit, "data", "e", NULL, "{'$inc': {'n': 1}}", &error), error);
    CHECK_OK(truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    CHECK_MEMBERS("CS 0,CS 2");
    OPERATE(NULL, 2, 9, DUPLICATE);
    OPERATE(NULL, 2, -8, STALE);
}

TEST(the_rules_of_sequence_numbers_hold_in_a_commit)
{
    everywhere(sequence_rules);
}

static void one_document(const struct place *place)
{
    truce_commit *commit = begin(place->store, TRUCE_MECHANISM_AUTO);
    bson_error_t error = {0};

    OPERATE(commit, 0, 1, APPLIED);
    CHECK_OK(truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    commit = begin(place->store, TRUCE_MECHANISM_AUTO);
    OPERATE(commit, 0, -2, APPLIED);
    CHECK_OK(truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    CHECK_MEMBERS("");
}

TEST(a_commit_of_one_operation_alone_takes_the_fast_path)
{
    everywhere(one_document);
}

static void batch(const struct place *place)
{
    static const struct model_operation operations[] = {
        {true, 1, NULL, 1, 0}, {false, 2, NULL, 1, 0}, {true, 4, NULL, 1, 1},
        {true, 4, NULL, 1, 1}, {true, 3, NULL, 2, 1},
    };
    static const truce_set_outcome wanted[] = {TRUCE_SET_STALE, TRUCE_SET_APPLIED, 0, 0,
                                               TRUCE_SET_APPLIED};
    truce_commit *commit = begin(place->store, place->setting->mechanism);
    truce_set_operation made[5];
    truce_set_result results[5];
    bson_t parts[10];
    bson_error_t error = {0};

    for (int i = 0; i < 5; i++)
        model_operation_make(&operations[i], &parts[2 * i], &parts[2 * i + 1], &made[i]);
    CHECK_OK(truce_set_apply(place->set, commit, made, 5, results, &error), error);
    for (int i = 0; i < 5; i++) {
        CHECK_INT(results[i].status, ==, TRUCE_OK);
        if (wanted[i])
            CHECK_INT(results[i].outcome, ==, wanted[i]);
    }
    CHECK_INT(results[2].outcome + results[3].outcome, ==, TRUCE_SET_APPLIED + TRUCE_SET_DUPLICATE);
    CHECK_OK(truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    for (int key = 1; key <= 2; key++)
        model_check(place->set, operations, 5, NULL, key, 3, true, "after the batch");
    for (int i = 0; i < 10; i++)
        bson_destroy(&parts[i]);
}

TEST(a_batch_in_a_commit_is_folded_as_everywhere)
{
    everywhere(batch);
}

/* Another client changes the set between the operation in the commit and the commit. */
static void outrun(const struct place *place, bool committed_before)
{
    truce_commit *commit;
    bson_error_t error = {0};

    OPERATE(NULL, 0, 1, APPLIED);
    if (committed_before) {
        commit = begin(place->store, place->setting->mechanism);
        OPERATE(commit, 0, 2, APPLIED);
        CHECK_OK(truce_commit_apply(commit, &error), error);
        truce_commit_free(commit);
    }
    commit = begin(place->store, place->setting->mechanism);
    OPERATE(commit, 0, -4, APPLIED);
    CHECK_OK(add_update(commit, "data", "e", NULL, "{'$inc': {'n': 1}}", &error), error);
    OPERATE(NULL, 0, 5, APPLIED);
    CHECK_STATUS(TRUCE_CONFLICT, truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    CHECK_MEMBERS("CS 0");
    CHECK_DOCUMENT(place->store, "data", "e", "{'_id': 'e', 'n': 0}");
    /* a stale one is guarded, too */
    commit = begin(place->store, place->setting->mechanism);
    OPERATE(commit, 0, 3, STALE);
    CHECK_OK(add_update(commit, "data", "e", NULL, "{'$inc': {'n': 1}}", &error), error);
    OPERATE(NULL, 0, -6, APPLIED);
    CHECK_STATUS(TRUCE_CONFLICT, truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
}

static void outrun_at_first(const struct place *place)
{
    outrun(place, false);
}

static void outrun_later(const struct place *place)
{
    outrun(place, true);
}

TEST(reports_a_concurrent_operation_as_a_conflict_of_the_commit)
{
    everywhere(outrun_at_first);
    everywhere(outrun_later);
}

static void both_insert(const struct place *place)
{
    truce_commit *commit = begin(place->store, place->setting->mechanism);
    bson_error_t error = {0};
    int64_t count;

    OPERATE(commit, 0, 1, APPLIED);
    CHECK_OK(add_update(commit, "data", "e", NULL, "{'$inc': {'n': 1}}", &error), error);
    OPERATE(NULL, 0, 2, APPLIED);
    CHECK_STATUS(TRUCE_CONFLICT, truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    CHECK_OK(truce_count(place->store, lists_of(place), NULL, NULL, &count, &error), error);
    CHECK_INT(count, ==, 1);
    CHECK_MEMBERS("CS 0");
}

TEST(a_document_that_another_client_inserts_is_a_conflict)
{
    everywhere(both_insert);
}

#ifndef TEST_ON_SERVER /* nothing of it is the server's */
/* Loses the answer to call `at` of the commit's end. False: there is no such call. */
static bool insert_behind(const struct setting *setting, const truce_set_options *options,
                          uint64_t at)
{
    truce_fault_options none = {0},
                        fail = {.kind = TRUCE_FAULT_FAIL, .at = at, .status = TRUCE_UNKNOWN};
    truce_store *inner = open_setting(setting), *store = truce_fault_wrap(inner, &none);
    truce_set *set = tutorial_set(store, options), *other = tutorial_set(inner, options);
    truce_commit *commit = begin(store, setting->mechanism);
    truce_set_outcome outcome;
    bson_error_t error = {0};
    truce_status status;
    bool hit;

    CHECK_OK(operate(set, commit, 0, 1, &outcome, &error), error);
    CHECK_OK(operate(other, NULL, 0, 2, &outcome, &error), error);
    truce_fault_arm(store, &fail);
    status = truce_commit_apply(commit, &error);
    hit = truce_fault_hits(store) > 0;
    truce_fault_arm(store, &none);
    if (status != TRUCE_CONFLICT && (status != TRUCE_UNKNOWN || !hit))
        test_fail(__FILE__, __LINE__, "call %d: %s (%s)", (int)at, truce_status_name(status),
                  error.message);
    truce_commit_free(commit);
    truce_set_free(other);
    truce_set_free(set);
    truce_store_close(store);
    return hit;
}

TEST(reports_a_conflict_with_another_clients_insert)
{
    for (size_t s = 0; s < sizeof settings / sizeof *settings; s++) {
        for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
            uint64_t at = 1;

            if (!can_on(&settings[s], &forms[f].options))
                continue;
            while (insert_behind(&settings[s], &forms[f].options, at) && at < 40)
                at++;
            CHECK_INT(at, <, 40);
        }
    }
}
#endif

static void index_made_meanwhile(const struct place *place)
{
    truce_commit *commit = begin(place->store, place->setting->mechanism);
    bson_t *unrelated = test_bson("{'_id': 'u', 'student_id': 7, 'name': 'x', 'seq': 1}");
    bson_error_t error = {0};

    /* the indexes are cached after this; the set makes another one */
    CHECK_OK(truce_commit_insert(commit, lists_of(place), unrelated, &error), error);
    CHECK_OK(add_update(commit, "data", "e", NULL, "{'$inc': {'n': 1}}", &error), error);
    CHECK_OK(truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    commit = begin(place->store, place->setting->mechanism);
    OPERATE(commit, 0, 1, APPLIED);
    CHECK_OK(add_update(commit, "data", "e", NULL, "{'$inc': {'n': 1}}", &error), error);
    OPERATE(NULL, 0, 2, APPLIED);
    CHECK_STATUS(TRUCE_CONFLICT, truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    CHECK_MEMBERS("CS 0");
    bson_destroy(unrelated);
}

TEST(a_commit_uses_the_index_that_the_set_made)
{
    everywhere(index_made_meanwhile);
}

static void keyed_by_id(truce_store *store, const struct setting *setting)
{
    truce_set_options options = {.key = "_id"};
    bson_t *key = test_bson("{'_id': 'x'}"), *element = test_bson("{'name': 'CS 1'}");
    truce_set *set = tutorial_set(store, &options);
    bson_error_t error = {0};

    if (can(store, setting->mechanism, &options)) {
        truce_commit *commit = begin(store, setting->mechanism);

        insert_json(store, "data", "{'_id': 'e', 'n': 0}");
        CHECK_OK(truce_set_add(set, commit, key, element, 1, NULL, &error), error);
        CHECK_OK(add_update(commit, "data", "e", NULL, "{'$inc': {'n': 1}}", &error), error);
        CHECK_OK(truce_commit_apply(commit, &error), error);
        truce_commit_free(commit);
        CHECK_DOCUMENT(store, "students", "x",
                       "{'_id': 'x', 'classes': [{'name': 'CS 1', 'seq': {'$numberLong': '1'}}]}");
    }
    bson_destroy(key);
    bson_destroy(element);
    truce_set_free(set);
}

TEST(a_key_that_is_the_id_needs_no_other_index)
{
    on_every_setting(keyed_by_id);
}

/* ---- below the watermark -------------------------------------------------------------------- */

static void count_quarantined(const struct place *place, int64_t wanted, int line)
{
    bson_error_t error = {0};
    int64_t count;

    CHECK_OK(truce_count(place->store, "truce_quarantine", NULL, NULL, &count, &error), error);
    test_check_int(wanted, count, wanted == count, "quarantined", __FILE__, line);
}

static void below(const struct place *place)
{
    truce_commit *commit;
    bson_error_t error = {0};

    if (place->options->layout == TRUCE_SET_BY_ELEMENT)
        return; /* its tombstones stay */
    OPERATE(NULL, 0, -2, APPLIED);
    CHECK_OK(truce_set_void(place->set, NULL, 1, 2, &error), error);
    CHECK_OK(truce_set_collect(place->set, NULL, &error), error);
    commit = begin(place->store, place->setting->mechanism);
    OPERATE(commit, 0, 1, QUARANTINED);
    CHECK_OK(add_update(commit, "data", "e", "{'n': 7}", "{'$inc': {'n': 1}}", &error), error);
    CHECK_STATUS(TRUCE_REFUSED, truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    count_quarantined(place, 0, __LINE__);
    commit = begin(place->store, place->setting->mechanism);
    OPERATE(commit, 0, 1, QUARANTINED);
    CHECK_OK(add_update(commit, "data", "e", NULL, "{'$inc': {'n': 1}}", &error), error);
    CHECK_OK(truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    count_quarantined(place, 1, __LINE__);
    OPERATE(NULL, 0, 1, QUARANTINED);
    count_quarantined(place, 1, __LINE__);
    CHECK_MEMBERS("");
}

TEST(quarantines_a_late_operation_by_the_commit_or_not)
{
    everywhere(below);
}

/* ---- next to commits that hold the document -------------------------------------------------- */

enum death { PREPARED, DECIDED }; /* how far the commit came */

/* Runs a journal commit that adds "CS 5" and marks e, whose owner dies at its n-th call. True:
 * its document is held, and the commit has come as far as `death` says. */
static bool die_holding(const struct place *place, uint64_t at, enum death death)
{
    truce_fault_options none = {0};
    truce_fault_options fault = {.kind = TRUCE_FAULT_FAIL, .at = at, .from_then_on = true};
    bson_t *held = test_bson("{'_intent': {'$exists': true}}");
    bson_t *decided = test_bson("{'state': 'committed'}");
    truce_commit *commit = begin(place->store, TRUCE_MECHANISM_JOURNAL);
    bson_error_t error = {0};
    int64_t count = 0, committed = 0;

    CHECK_OK(operate(place->set, commit, 5, 50, NULL, &error), error);
    CHECK_OK(add_update(commit, "data", "e", NULL, "{'$inc': {'n': 1}}", &error), error);
    truce_fault_arm(place->store, &fault);
    (void)!truce_commit_apply(commit, &error); /* it dies, or has completed before */
    truce_fault_arm(place->store, &none);
    truce_commit_free(commit);
    CHECK_OK(truce_count(place->store, lists_of(place), held, NULL, &count, &error), error);
    CHECK_OK(truce_count(place->store, "truce_commits", decided, NULL, &committed, &error), error);
    bson_destroy(held);
    bson_destroy(decided);
    return count > 0 && (committed > 0) == (death == DECIDED);
}

/* Runs `function` on a store where the set's document is held, as far as `death`, for every call
 * at which the owner may have died. TRUCE_HELD_MOMENTS: for so many of those only; their
 * beginning is not searched again. */
typedef void held_function(const struct place *place, enum death death);

static void while_held(held_function *function, enum death death, bool exists)
{
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        static uint64_t begins[sizeof forms / sizeof *forms][2][2];
        uint64_t *known = &begins[f][death][exists];
        int met = 0, before = test_failures(), most = (int)test_scale("TRUCE_HELD_MOMENTS", 20);

        if (!can_on(&settings[1], &forms[f].options))
            continue;
        no_sleep_begin();
        for (uint64_t at = most < 20 && *known ? *known : 1; at < 20 && met < most; at++) {
            truce_fault_options none = {0};
            struct place place = {.setting = &settings[1], .options = &forms[f].options};

            place.store = truce_fault_wrap(open_setting(&settings[1]), &none);
            place.set = tutorial_set(place.store, place.options);
            insert_json(place.store, "data", "{'_id': 'e', 'n': 0}");
            if (exists)
                check_operate(&place, NULL, 5, -1, TRUCE_SET_APPLIED, __LINE__);
            if (die_holding(&place, at, death)) {
                function(&place, death);
                met++;
                *known = at;
            }
            truce_set_free(place.set);
            truce_store_close(place.store);
        }
        truce__environment_use(NULL);
        CHECK_INT(met, >, 0);
        if (test_failures() > before)
            fprintf(stderr, "    (with %s)\n", forms[f].name);
    }
}

static void check_marks(const struct place *place, int wanted)
{
    truce_sweep_options options = {.retention_ms = -1};
    truce_sweep_report report;
    bson_error_t error = {0};

    CHECK_OK(truce_sweep(place->store, &options, &report, &error), error);
    truce__clock_sleep_ms(3); /* past the lease */
    CHECK_OK(truce_sweep(place->store, &options, &report, &error), error);
    CHECK_DOCUMENT(place->store, "data", "e",
                   wanted ? "{'_id': 'e', 'n': 1}" : "{'_id': 'e', 'n': 0}");
}

/* "CS 5" at 50 is decided, or undone; later clients encounter that state. */
static void single_while_held(const struct place *place, enum death death)
{
    check_operate(place, NULL, 5, -40, death == DECIDED ? TRUCE_SET_STALE : TRUCE_SET_APPLIED,
                  __LINE__);
    CHECK_MEMBERS(death == DECIDED ? "CS 5" : "");
    OPERATE(NULL, 5, 60, APPLIED);
    CHECK_MEMBERS("CS 5");
    check_marks(place, death == DECIDED);
}

TEST(an_operation_encounters_the_commit_that_holds_its_document)
{
    while_held(single_while_held, DECIDED, true);
    while_held(single_while_held, PREPARED, true);
}

TEST(an_operation_encounters_the_stub_of_a_commit)
{
    while_held(single_while_held, DECIDED, false);
    while_held(single_while_held, PREPARED, false);
}

static void batch_while_held(const struct place *place, enum death death)
{
    static const struct model_operation operations[] = {
        {false, 40, NULL, 1, 5}, {true, 41, NULL, 1, 6}, {true, 42, NULL, 2, 6}};
    truce_set_result results[3];
    int chosen[] = {0, 1, 2};
    bson_error_t error = {0};

    CHECK_OK(model_apply_batch(place->set, operations, chosen, 3, results, &error), error);
    CHECK_INT(results[0].outcome, ==, death == DECIDED ? TRUCE_SET_STALE : TRUCE_SET_APPLIED);
    CHECK_INT(results[1].outcome, ==, TRUCE_SET_APPLIED);
    CHECK_INT(results[2].outcome, ==, TRUCE_SET_APPLIED);
    CHECK_MEMBERS(death == DECIDED ? "CS 5,CS 6" : "CS 6");
    check_marks(place, death == DECIDED);
}

TEST(completes_a_batch_that_encounters_another_commit)
{
    while_held(batch_while_held, DECIDED, true);
    while_held(batch_while_held, PREPARED, true);
    while_held(batch_while_held, DECIDED, false);
    while_held(batch_while_held, PREPARED, false);
}

static void collect_while_held(const struct place *place, enum death death)
{
    truce_set_collected collected;
    bson_error_t error = {0};

    if (place->options->layout == TRUCE_SET_BY_ELEMENT)
        return;
    CHECK_OK(truce_set_void(place->set, NULL, 1, 45, &error), error);
    CHECK_OK(truce_set_collect(place->set, &collected, &error), error);
    CHECK_INT(collected.tombstones, ==, death == DECIDED ? 0 : 1);
    check_operate(place, NULL, 5, -44, death == DECIDED ? TRUCE_SET_STALE : TRUCE_SET_QUARANTINED,
                  __LINE__);
    check_marks(place, death == DECIDED);
}

TEST(a_collector_encounters_the_commit_that_holds_a_document)
{
    while_held(collect_while_held, DECIDED, true);
    while_held(collect_while_held, PREPARED, true);
}

/* The owner may be alive, so no client may undo it yet: a client that needs its document waits,
 * and no other client does. */
static void others(const struct place *place, enum death death)
{
    struct model_operation operation = {true, 60, NULL, 2, 0};
    int64_t before_ms = truce__clock_wall_ms();
    truce_set_outcome outcome;
    bson_error_t error = {0};

    (void)death;
    CHECK_OK(model_apply(place->set, &operation, &outcome, &error), error);
    CHECK_INT(outcome, ==, TRUCE_SET_APPLIED);
    CHECK_INT(truce__clock_wall_ms(), ==, before_ms);
    OPERATE(NULL, 5, 60, APPLIED);
    CHECK_INT(truce__clock_wall_ms(), >=, before_ms + 1000);
}

TEST(other_documents_are_not_delayed)
{
    lease_ms = 10000; /* its owner may have waited for a part of it */
    while_held(others, PREPARED, true);
    lease_ms = 1;
}

/* ---- revisions ------------------------------------------------------------------------------ */

static void find_revision(const struct place *place, bson_oid_t *revision, bool *found)
{
    bson_error_t error = {0};
    bson_iter_t iter;
    bson_t document;

    CHECK_OK(truce_find_one(place->store, lists_of(place), NULL, NULL, &document, &error), error);
    *found = bson_iter_init_find(&iter, &document, "_rev") && BSON_ITER_HOLDS_OID(&iter);
    if (*found)
        bson_oid_copy(bson_iter_oid(&iter), revision);
    bson_destroy(&document);
}

static void revisions(const struct place *place)
{
    truce_commit *commit = begin(place->store, place->setting->mechanism);
    struct model_operation operations[] = {{true, 4, NULL, 1, 0}, {true, 5, NULL, 1, 0}};
    truce_set_result results[2];
    int chosen[] = {0, 1};
    bson_oid_t first, second, third;
    bson_error_t error = {0};
    bool found;

    OPERATE(NULL, 0, 1, APPLIED);
    OPERATE(NULL, 0, 2, APPLIED);
    find_revision(place, &first, &found);
    CHECK(!found);
    OPERATE(commit, 0, 3, APPLIED);
    CHECK_OK(truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    find_revision(place, &first, &found);
    CHECK(found);
    CHECK_OK(model_apply_batch(place->set, operations, chosen, 2, results, &error), error);
    find_revision(place, &second, &found);
    CHECK(found && !bson_oid_equal(&first, &second));
    OPERATE(NULL, 0, 6, APPLIED);
    find_revision(place, &third, &found);
    CHECK(found && !bson_oid_equal(&second, &third));
    OPERATE(NULL, 0, 5, STALE);
    find_revision(place, &first, &found);
    CHECK(found && bson_oid_equal(&first, &third));
    CHECK_MEMBERS("CS 0");
}

TEST(replaces_a_revision_with_every_change_and_never_creates_one)
{
    everywhere(revisions);
}

static void collected_revision(const struct place *place)
{
    truce_commit *commit = begin(place->store, place->setting->mechanism);
    truce_set_collected collected;
    bson_oid_t first, second;
    bson_error_t error = {0};
    bool found;

    if (place->options->layout == TRUCE_SET_IN_DOCUMENT) {
        OPERATE(commit, 0, -3, APPLIED);
        CHECK_OK(truce_commit_apply(commit, &error), error);
        find_revision(place, &first, &found);
        CHECK_OK(truce_set_void(place->set, NULL, 1, 3, &error), error);
        CHECK_OK(truce_set_collect(place->set, &collected, &error), error);
        CHECK_INT(collected.tombstones, ==, 1);
        find_revision(place, &second, &found);
        CHECK(found && !bson_oid_equal(&first, &second));
    }
    truce_commit_free(commit);
}

TEST(collecting_replaces_a_revision)
{
    everywhere(collected_revision);
}

/* ---- lists and refusals ---------------------------------------------------------------------- */

static void shown(const struct place *place, enum death death)
{
    bson_t *key = model_key(1), document;
    bson_error_t error = {0};

    (void)death;
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_set_show(place->set, key, &document, &error), error);
    bson_destroy(&document);
    check_marks(place, death == DECIDED);
    if (death == DECIDED) {
        CHECK_OK(truce_set_show(place->set, key, &document, &error), error);
        CHECK(!bson_has_field(&document, "_rev"));
        CHECK(!bson_has_field(&document, "_intent"));
        bson_destroy(&document);
    }
    bson_destroy(key);
}

TEST(hides_a_document_that_a_commit_may_insert)
{
    while_held(shown, PREPARED, false);
    while_held(shown, DECIDED, false);
}

TEST(a_commit_of_another_store_is_refused)
{
    truce_store *store = open_setting(&settings[0]), *other = NULL;
    truce_set *set = tutorial_set(store, NULL);
    truce_commit *commit;
    bson_error_t error = {0};

    CHECK_OK(truce_store_open("memory:", NULL, &other, &error), error);
    commit = begin(other, TRUCE_MECHANISM_AUTO);
    CHECK_STATUS(TRUCE_INVALID, operate(set, commit, 0, 1, NULL, &error), error);
    truce_commit_free(commit);
    truce_set_free(set);
    truce_store_close(store);
    truce_store_close(other);
}

TEST(collections_that_truce_changes_by_itself_are_in_no_commit)
{
    static const char *const names[] = {"truce_commits", "truce_sequences", "truce_sets",
                                        "truce_sources", "truce_progress"};
    truce_store *store = open_setting(&settings[0]);
    truce_commit *commit = begin(store, TRUCE_MECHANISM_AUTO);
    bson_error_t error = {0};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CHECK_STATUS(TRUCE_INVALID,
                     add_update(commit, names[i], "x", NULL, "{'$set': {'value': 1}}", &error),
                     error);
    truce_commit_free(commit);
    truce_store_close(store);
}

TEST(fields_of_truce_are_not_fields_of_a_set)
{
    static const truce_set_options wrong[] = {
        {.watermark = "_rev"}, {.field = "_intent"}, {.key = "_rev"}};
    truce_store *store = open_setting(&settings[0]);
    truce_set *by_element =
        tutorial_set(store, &(truce_set_options){.layout = TRUCE_SET_BY_ELEMENT});
    bson_t *key = model_key(1), *element = test_bson("{'name': 'CS 1', '_rev': 1}");
    bson_error_t error = {0};

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        truce_set *set = tutorial_set(store, &wrong[i]);

        CHECK_STATUS(TRUCE_INVALID, operate(set, NULL, 0, 1, NULL, &error), error);
        truce_set_free(set);
    }
    CHECK_STATUS(TRUCE_INVALID, truce_set_add(by_element, NULL, key, element, 1, NULL, &error),
                 error);
    truce_set_free(by_element);
    bson_destroy(key);
    bson_destroy(element);
    truce_store_close(store);
}

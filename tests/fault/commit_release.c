/*
 * A plain write comes before the n-th call of a commit, or of the recovery pass that finishes a
 * dead one, and a process dies at the m-th call. A value that a release overwrites is reported
 * anyway, or kept, and a value that it does not overwrite is not reported.
 *
 * TRUCE_RELEASE_STEP: the second plain write comes at every so many calls after the first. (The
 * default is 1, or 4 for a large document.)
 */
#include <malloc.h>

#include "base/clock.h"
#include "commit/commit_entry.h"
#include "tests/support/bank.h"
#include "tests/support/hooked.h"
#include "tests/support/no_sleep.h"
#include "truce/sys/decorate.h"

/* ---- a store that lets another client in ----------------------------------------------------- */

#define ENTRIES   2
#define EVERY     (-1) /* call, up to EVERY_MAX */
#define EVERY_MAX 500

static const char *entries[ENTRIES]; /* plain writes of "a" */
static int enter_at[ENTRIES];        /* before which call; 0: never */
static bool landed[ENTRIES];         /* there was a document */
static int calls;
static bool inside;
static truce_store *outermost; /* truce_fault_wrap; it counts more calls than `calls` */
static int entered;            /* the number of its call in which the last write landed */

static void before_call(truce_store *store)
{
    if (inside)
        return;
    calls++;
    for (int i = 0; i < ENTRIES; i++) {
        truce_write_result result;
        bson_t *filter, *update;
        bson_error_t error = {0};

        if (enter_at[i] == EVERY ? calls > EVERY_MAX : !enter_at[i] || enter_at[i] != calls)
            continue;
        filter = test_bson("{'_id': 'a'}");
        update = test_bson(entries[i]);
        inside = true;
        CHECK_OK(truce_update(store, "things", filter, update, NULL, &result, &error), error);
        inside = false;
        entered = (int)truce_fault_calls(outermost);
        landed[i] = result.matched > 0;
        truce_write_result_release(&result);
        bson_destroy(update);
        bson_destroy(filter);
    }
}

/* ---- one run --------------------------------------------------------------------------------- */

/* {_id: "a", n: 0, d: {e: 0}}; the commit reads it and changes it so: */
struct story {
    const char *change;       /* NULL: it removes the document */
    const char *plain[2];     /* NULL: one is enough */
    const char *left[2];      /* a filter that matches while the plain write is the current value */
    const char *displaced[2]; /* kept in truce_displaced so */
    bool merges;              /* all plain writes stay, and nothing is reported */
    bool large;               /* the document is too large for a comparison */
};

struct patient {
    truce_store *below, *inner, *store;
};

/* Commits others first, so that the indexes exist, and calls are the same ones each time. */
static void commit_others(truce_store *store)
{
    truce_commit_options options = {.mechanism = TRUCE_MECHANISM_JOURNAL};
    truce_commit *made = NULL;
    bson_error_t error = {0};

    insert_json(store, "things", "{'_id': 'b', 'n': 0}");
    insert_json(store, "things", "{'_id': 'c', 'n': 0}");
    CHECK_OK(truce_commit_begin(store, &options, &made, &error), error);
    CHECK_OK(add_update(made, "things", "b", NULL, "{'$inc': {'n': 1}}", &error), error);
    CHECK_OK(add_update(made, "things", "c", NULL, "{'$inc': {'n': 1}}", &error), error);
    CHECK_OK(truce_commit_apply(made, &error), error);
    truce_commit_free(made);
}

/* Inserts {_id: "a", n: 0, d: {e: 0}}, with a long field `text` if it must be large. */
static void insert_a(truce_store *store, bool large)
{
    bson_t *document = test_bson("{'_id': 'a', 'n': 0, 'd': {'e': 0}}");
    bson_error_t error = {0};

    if (large) { /* Freed memory is used again, because new pages take most of the time. */
        char *text = bson_malloc(VALUE_GUARD_BYTES_MAX);

        mallopt(M_MMAP_THRESHOLD, 1 << 28);
        mallopt(M_TRIM_THRESHOLD, 1 << 30);
        memset(text, 'x', VALUE_GUARD_BYTES_MAX);
        bson_append_utf8(document, "text", -1, text, (int)VALUE_GUARD_BYTES_MAX);
        bson_free(text);
    }
    CHECK_OK(truce_insert(store, "things", document, NULL, &error), error);
    bson_destroy(document);
}

static void open_patient(struct patient *patient, uint32_t lacks, bool large)
{
    bson_t *index = test_bson("{'key': {'_intent': 1}, 'sparse': true}");
    bson_error_t error = {0};

    no_sleep_begin();
    memset(enter_at, 0, sizeof enter_at);
    memset(landed, 0, sizeof landed);
    CHECK_OK(truce_store_open("memory:", NULL, &patient->below, &error), error);
    patient->below->capabilities &= ~(lacks | (uint32_t)TRUCE_CAN_ATOMIC_BULK);
    insert_a(patient->below, large);
    CHECK_OK(truce_index_create(patient->below, "things", index, &error), error);
    bson_destroy(index);
    hooked_make(patient->below, before_call);
    patient->below->ops = &hooked_ops;
    patient->inner = truce_fault_wrap(patient->below, &(truce_fault_options){0});
    patient->store = truce_fault_wrap(patient->inner, &(truce_fault_options){0});
    outermost = patient->store;
    commit_others(patient->store);
}

/* The process dies before a call, or after it. Or it lives, and the call fails, or its reply is
 * lost. */
enum death { BEFORE, AFTER, FAILED, LOST };

/* 0: the process lives. */
static void arm(struct patient *patient, int at, enum death death)
{
    bool lose = death == AFTER || death == LOST, fail = death != LOST;
    uint64_t first = (uint64_t)at + (death == AFTER);

    truce_fault_arm(patient->inner,
                    &(truce_fault_options){.kind = at && lose ? TRUCE_FAULT_LOSE : TRUCE_FAULT_NONE,
                                           .at = (uint64_t)at});
    truce_fault_arm(patient->store,
                    &(truce_fault_options){.kind = at && fail ? TRUCE_FAULT_FAIL : TRUCE_FAULT_NONE,
                                           .at = first,
                                           .from_then_on = death != FAILED});
    calls = 0;
}

static truce_status commit(truce_store *store, const struct story *story)
{
    truce_commit_options options = {
        .mechanism = TRUCE_MECHANISM_JOURNAL, .lease_ms = 20, .deadline_ms = 50};
    bson_value_t a = text_id("a");
    truce_commit *made = NULL;
    bson_error_t error = {0};
    bson_t read;
    truce_status status;

    CHECK_OK(truce_commit_begin(store, &options, &made, &error), error);
    status = truce_commit_read(made, "things", &a, &read, &error);
    if (!status)
        status = story->change ? add_update(made, "things", "a", NULL, story->change, &error)
                               : truce_commit_remove(made, "things", &a, NULL, &error);
    if (!status)
        status = add_update(made, "things", "b", NULL, "{'$inc': {'n': 1}}", &error);
    if (!status)
        status = truce_commit_apply(made, &error);
    bson_destroy(&read);
    truce_commit_free(made);
    return status;
}

static truce_status sweep(truce_store *store)
{
    truce_sweep_report report;
    bson_error_t error;

    truce__clock_sleep_ms(100);
    return truce_sweep(store, NULL, &report, &error);
}

/* b.n is 2 if the commit took effect. */
static void judge_merged(truce_store *store)
{
    int committed = (int)count_json(store, "things", "{'_id': 'b', 'n': 2}");
    int n = 3 * committed + 100 * landed[0] + 1000 * landed[1];
    char filter[200];

    snprintf(filter, sizeof filter, "{'_id': 'a', 'n': %d, 'd.e': %d, 'd.f': {'$exists': %s}}", n,
             committed, landed[0] ? "true" : "false");
    CHECK_INT(count_json(store, "things", filter), ==, 1);
    for (int i = 0; i < ENTRIES; i++) {
        snprintf(filter, sizeof filter, "{'_id': 'a', 'l': %d}", 3 + 2 * i);
        CHECK_INT(count_json(store, "things", filter), ==, landed[i]);
    }
    CHECK_INT(count_json(store, "things", "{'_id': 'a', 'l': 4}"), ==, committed);
    CHECK_INT(count_json(store, "truce_displaced", "{}"), ==, 0);
    CHECK_INT(count_json(store, "truce_commits", "{'overwritten': {'$exists': true}}"), ==, 0);
}

/* A large document may be noted instead. If no process dies (`m`), it is noted only after a loss. A
 * value in the way is read and kept before the write, so it is not noted then. */
static void judge_large(truce_store *store, const struct story *story, int last, bool first, int m)
{
    bool is_left = count_json(store, "things", story->left[last]) == 1;
    bool kept = count_json(store, "truce_displaced", story->displaced[last]) == 1;
    bool noted = count_json(store, "truce_commits", "{'overwritten.0': {'$exists': true}}") == 1;

    CHECK(is_left || kept || noted || !landed[last]);
    if (!m && first) {
        CHECK_INT(is_left + kept, ==, landed[last]);
        CHECK_INT(noted, ==, kept && !story->plain[1]);
    }
}

static void judge(truce_store *store, const struct story *story, const char *what, const int n[2],
                  int m)
{
    int last = n[1] ? 1 : 0, before = test_failures();
    bool is_left, reported;

    CHECK_INT(count_json(store, "things", "{'_intent': {'$exists': true}}"), ==, 0);
    CHECK_INT(count_json(store, "truce_commits", "{'state': {'$in': ['pending', 'committed']}}"),
              ==, 0);
    if (story->merges) {
        judge_merged(store);
    } else if (story->large) {
        judge_large(store, story, last, !n[1], m);
    } else {
        is_left = count_json(store, "things", story->left[last]) == 1;
        reported = count_json(store, "truce_displaced", story->displaced[last]) == 1;
        CHECK_INT(is_left + reported, ==, landed[last]);
    }
    if (test_failures() > before)
        fprintf(stderr, "    (%s: %s before calls %d and %d, death at %d)\n", what,
                story->plain[last], n[0], n[1], m);
}

/* Dies after its decision: insert, two prepares, decision. */
static void decide_and_die(struct patient *patient, const struct story *story)
{
    truce_status status;

    truce_fault_arm(patient->store, &(truce_fault_options){.kind = TRUCE_FAULT_FAIL,
                                                           .at = 5,
                                                           .writes_only = true,
                                                           .from_then_on = true});
    status = commit(patient->store, story);
    CHECK(!status || status == TRUCE_UNKNOWN);
    CHECK_INT(count_json(patient->below, "things", "{'_intent': {'$exists': true}}"), ==, 2);
}

/* False: past the last call. */
static bool run(const struct story *story, uint32_t lacks, bool swept, const int n[2], int m,
                enum death death)
{
    struct patient patient;
    bool reached;

    open_patient(&patient, lacks, story->large);
    inside = true;
    if (swept)
        decide_and_die(&patient, story);
    inside = false;
    arm(&patient, m, death);
    for (int i = 0; i < ENTRIES; i++) {
        entries[i] = story->plain[i];
        enter_at[i] = n[i];
    }
    if (swept)
        (void)!sweep(patient.store);
    else
        (void)!commit(patient.store, story);
    reached = calls >= n[n[1] ? 1 : 0];
    arm(&patient, 0, BEFORE);
    inside = true;
    for (int i = 0; i < 2; i++)
        CHECK_INT(sweep(patient.store), ==, TRUCE_OK);
    if (reached)
        judge(patient.store, story, swept ? "sweep" : "commit", n, m);
    truce_store_close(patient.store);
    return reached;
}

#define DEATHS       6 /* calls from that of the plain write on at which a process may die */
#define DEATHS_LARGE 4 /* the same for a large document: a note, the write, a kept value, the end */

static void all(const struct story *story, uint32_t lacks, bool swept)
{
    bool reached = true;
    int runs = 0; /* writes before the read are seen */
    int step = (int)test_scale("TRUCE_RELEASE_STEP", story->large ? 4 : 1);
    int deaths = story->large ? DEATHS_LARGE : DEATHS;

    for (int first = swept ? 1 : 2; reached; first++) {
        int seconds = story->plain[1] ? 6 : 0;

        for (int more = 0; more <= seconds; more += step) {
            int n[2] = {first, more ? first + more : 0};
            bool there = run(story, lacks, swept, n, 0, BEFORE);
            int from = entered;

            reached = more ? reached : there;
            for (int m = from; there && m < from + deaths; m++) {
                run(story, lacks, swept, n, m, BEFORE);
                run(story, lacks, swept, n, m, LOST);
                runs += 2;
                if (story->large) /* which takes longer */
                    continue;
                run(story, lacks, swept, n, m, AFTER);
                run(story, lacks, swept, n, m, FAILED);
            }
        }
    }
    CHECK_INT(runs, >, 30);
}

static void both_ways(const struct story *story)
{
    for (int values = 0; values < 2; values++) {
        all(story, values ? TRUCE_CAN_COMPARE : 0, false);
        all(story, values ? TRUCE_CAN_COMPARE : 0, true);
    }
}

TEST(reports_a_write_that_a_release_overwrites_whichever_process_dies)
{
    both_ways(&(struct story){.change = "{'$set': {'n': 1}}",
                              .plain = {"{'$set': {'n': 100}}"},
                              .left = {"{'_id': 'a', 'n': 100}"},
                              .displaced = {"{'values': {'p': 'n', 'v': 100}}"}});
}

TEST(keeps_a_write_merged_with_a_commit_whichever_process_dies)
{
    both_ways(
        &(struct story){.change = "{'$push': {'l': 4}, '$inc': {'n': 3}, '$set': {'d.e': 1}}",
                        .plain = {"{'$push': {'l': 3}, '$inc': {'n': 100}, '$set': {'d.f': 2}}",
                                  "{'$push': {'l': 5}, '$inc': {'n': 1000}}"},
                        .merges = true});
}

TEST(reports_writes_lost_to_the_release_of_a_removed_document)
{
    both_ways(
        &(struct story){.plain = {"{'$set': {'n': 100}}"},
                        .left = {"{'_id': 'a', 'n': 100}"},
                        .displaced = {"{'values.p': '', 'values.v._id': 'a', 'values.v.n': 100}"}});
}

TEST(keeps_an_entry_in_the_way_whichever_process_dies)
{
    both_ways(&(struct story){
        .change = "{'$set': {'d.e': 1}}",
        .plain = {"{'$set': {'d': 5}}", "{'$set': {'d': 6}}"},
        .left = {"{'_id': 'a', 'd': 5}", "{'_id': 'a', 'd': 6}"},
        .displaced = {"{'values': {'p': 'd', 'v': 5}}", "{'values': {'p': 'd', 'v': 6}}"}});
}

TEST(reports_a_lost_write_to_a_large_document_whichever_process_dies)
{
    struct story story = {.change = "{'$set': {'n': 1}}",
                          .plain = {"{'$set': {'n': 100}}"},
                          .left = {"{'_id': 'a', 'n': 100}"},
                          .displaced = {"{'values': {'p': 'n', 'v': 100}}"},
                          .large = true};

    all(&story, TRUCE_CAN_COMPARE, false);
    all(&story, TRUCE_CAN_COMPARE, true);
}

TEST(reports_a_lost_write_to_a_removed_large_document_whichever_process_dies)
{
    struct story story = {.plain = {"{'$set': {'n': 100}}"},
                          .left = {"{'_id': 'a', 'n': 100}"},
                          .displaced = {"{'values.p': '', 'values.v._id': 'a', 'values.v.n': 100}"},
                          .large = true};

    all(&story, TRUCE_CAN_COMPARE, true);
}

TEST(reports_entries_in_the_way_in_a_large_document_whichever_process_dies)
{
    struct story story = {
        .change = "{'$set': {'d.e': 1}}",
        .plain = {"{'$set': {'d': 5}}", "{'$set': {'d': 6}}"},
        .left = {"{'_id': 'a', 'd': 5}", "{'_id': 'a', 'd': 6}"},
        .displaced = {"{'values': {'p': 'd', 'v': 5}}", "{'values': {'p': 'd', 'v': 6}}"},
        .large = true};

    all(&story, TRUCE_CAN_COMPARE, true);
}

TEST(ends_a_release_before_which_the_document_always_changes)
{
    struct story story = {.change = "{'$set': {'n': 1}}"};
    struct patient patient;

    open_patient(&patient, 0, false);
    inside = true;
    decide_and_die(&patient, &story);
    inside = false;
    arm(&patient, 0, BEFORE);
    entries[0] = "{'$inc': {'m': 1}}";
    enter_at[0] = EVERY;
    CHECK_INT(sweep(patient.store), ==, TRUCE_OK);
    inside = true;
    CHECK_INT(calls, <, EVERY_MAX);
    CHECK_INT(count_json(patient.below, "things", "{'_intent': {'$exists': true}}"), ==, 0);
    CHECK_INT(count_json(patient.below, "things", "{'_id': 'a', 'n': 1, 'm': {'$gt': 30}}"), ==, 1);
    CHECK_INT(count_json(patient.below, "truce_commits", "{'overwritten.0.id': 'a'}"), ==, 1);
    truce_store_close(patient.store);
}

/*
 * A copy dies at every one of its calls to the store that it writes to, before or after the call's
 * effect, or only loses the answer. In further runs the source fails at every one of its calls. The
 * next run ends the copy: nothing is missing, nothing is there twice, nothing is different.
 */
#include "tests/support/copy_stores.h"
#include "tests/support/trouble.h"

struct rig {
    truce_store *from_inner, *from, *inner, *to;
};

static void rig_open(struct rig *rig)
{
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE};

    rig->from_inner = copy_store("memory:");
    copy_fill(rig->from_inner, 12);
    rig->from = truce_fault_wrap(rig->from_inner, &none);
    rig->inner = truce_fault_wrap(copy_store("memory:"), &none);
    rig->to = truce_fault_wrap(rig->inner, &none);
}

static void rig_close(struct rig *rig)
{
    truce_store_close(rig->from);
    truce_store_close(rig->to);
}

static truce_status copy(struct rig *rig, truce_copy_report *report, bson_error_t *error)
{
    return truce_copy(rig->from, rig->to, &(truce_copy_options){.name = "here", .batch = 5}, report,
                      error);
}

static void end_it(struct rig *rig, const char *what, uint64_t at)
{
    truce_copy_report report;
    bson_error_t error;

    trouble_arm(rig->inner, rig->to, NONE, 0);
    truce_fault_arm(rig->from, &(truce_fault_options){.kind = TRUCE_FAULT_NONE});
    CHECK_OK(copy(rig, &report, &error), error);
    CHECK_INT(report.differences, ==, 0);
    CHECK_INT(copy_count(rig->to, "truce_copies", "{'state': 'done'}"), ==, 5);
    if (!CHECK_SAME(rig->from_inner, rig->to))
        fprintf(stderr, "    %s at call %" PRIu64 "\n", what, at);
}

/* Makes one run with a fault at the call; false: it completed, there is no such call. */
static bool run_once(enum trouble trouble, uint64_t at, const char *what)
{
    truce_copy_report report;
    truce_status status;
    bson_error_t error;
    struct rig rig;

    rig_open(&rig);
    trouble_arm(rig.inner, rig.to, trouble, at);
    status = copy(&rig, &report, &error);
    if (!status)
        CHECK_INT(report.differences, ==, 0);
    end_it(&rig, what, at);
    rig_close(&rig);
    return status != TRUCE_OK;
}

static void run_all(enum trouble trouble, const char *what)
{
    uint64_t at = 1, passed = 0;

    for (; passed < 3 && !test_failures(); at++)
        passed = run_once(trouble, at, what) ? 0 : passed + 1;
    CHECK_INT(at, >, 50);
}

TEST(finishes_a_copy_that_crashed_before_any_call)
{
    run_all(DIE_BEFORE, "died before its effect");
}

TEST(finishes_a_copy_that_crashed_after_any_call)
{
    run_all(DIE_AFTER, "died after its effect");
}

TEST(finishes_a_copy_that_lost_any_reply)
{
    run_all(LOSE, "lost its answer");
}

/* A source without snapshots is read by calls of its own, each of which may fail. */
TEST(finishes_a_copy_whose_source_failed_at_any_call)
{
    truce_store_ops without_snapshots;
    truce_status status = TRUCE_IO;
    uint64_t at = 1;

    for (; status && !test_failures(); at++) {
        truce_copy_report report;
        bson_error_t error;
        struct rig rig;

        rig_open(&rig);
        without_snapshots = *rig.from_inner->ops;
        without_snapshots.snapshot = NULL;
        rig.from_inner->ops = &without_snapshots;
        truce_fault_arm(rig.from, &(truce_fault_options){.kind = TRUCE_FAULT_FAIL, .at = at});
        status = copy(&rig, &report, &error);
        end_it(&rig, "the source failed", at);
        rig_close(&rig);
    }
    CHECK_INT(at, >, 50);
}

/* The canary: a store that acknowledges writes and does not write is detected. */
TEST(detects_a_copy_write_that_was_reported_but_not_made)
{
    for (uint64_t at = 6; at < 10; at++) {
        truce_copy_report report;
        bson_error_t error;
        struct rig rig;

        rig_open(&rig);
        truce_fault_arm(rig.to, &(truce_fault_options){.kind = TRUCE_FAULT_LIE,
                                                       .at = at,
                                                       .from_then_on = true,
                                                       .writes_only = true});
        if (!copy(&rig, &report, &error))
            CHECK_INT(report.differences, >, 0);
        CHECK_INT(copy_count(rig.inner, "truce_copies", "{'state': 'done'}"), ==, 0);
        rig_close(&rig);
    }
}

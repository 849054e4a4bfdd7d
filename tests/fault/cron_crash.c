/*
 * The worker that fires a cron line dies at every one of its store calls, before or after the
 * call's effect, and again in its second life. In further runs every single answer is lost. At the
 * end each of the three times that were due gave one job.
 */
#include "tests/support/queue_rig.h"
#include "tests/support/trouble.h"
#include "truce/cron.h"

#define HOUR_MS   INT64_C(3600000)
#define TIMES     3
#define DOOMED_MS 15

struct rig {
    truce_store *inner, *store;
    truce_mechanism mechanism;
};

static truce_queue *open_queue(struct rig *rig, uint32_t deadline_ms)
{
    truce_queue_options options = {
        .queue = "mail", .lease_ms = 4, .deadline_ms = deadline_ms, .mechanism = rig->mechanism};

    return truce_queue_new(rig->store, &options);
}

static void rig_open(struct rig *rig, truce_mechanism mechanism)
{
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE};
    truce_cron_options all = {.missed = TRUCE_MISSED_ALL};
    bson_t *payload = test_bson("{'n': 1}"), *filter = test_bson("{'_id': 'line'}"), *past;
    truce_queue *queue;
    bson_error_t error;

    rig->inner = truce_fault_wrap(server_or_memory(), &none);
    rig->store = truce_fault_wrap(rig->inner, &none);
    rig->mechanism = mechanism;
    queue = open_queue(rig, 20000);
    CHECK_OK(truce_cron_set(queue, "line", "@every 1000h", payload, &all, &error), error);
    past =
        BCON_NEW("$set", "{", "next", BCON_DATE_TIME(truce__clock_wall_ms() - 2500 * HOUR_MS), "}");
    CHECK_OK(truce_update(rig->store, "truce_queue_crons", filter, past, NULL, NULL, &error),
             error);
    bson_destroy(payload);
    bson_destroy(filter);
    bson_destroy(past);
    truce_queue_free(queue);
}

/* Fires the lines as a worker does before it claims: a claim hides the errors of lines. */
static truce_status fire(struct rig *rig, uint32_t deadline_ms, bson_error_t *error)
{
    truce_queue *queue = open_queue(rig, deadline_ms);
    bson_t *due = truce__cron_due(), cron;
    truce_commit_options options = {
        .mechanism = rig->mechanism, .lease_ms = 4, .deadline_ms = deadline_ms};
    truce_status status = truce_find_one(rig->store, "truce_queue_crons", due, NULL, &cron, error);

    if (!status)
        status = truce__cron_fire_one(rig->store, &cron, &options, error);
    bson_destroy(&cron);
    bson_destroy(due);
    truce_queue_free(queue);
    return status;
}

static void finish(struct rig *rig, const char *what, uint64_t at)
{
    bson_error_t error;
    truce_status status = TRUCE_UNKNOWN;

    trouble_arm(rig->inner, rig->store, NONE, 0);
    for (int i = 0; i < 2000 && status != TRUCE_NOT_FOUND; i++) {
        truce_sweep_report swept;

        CHECK_OK(truce_sweep(rig->store, NULL, &swept, &error), error);
        status = fire(rig, 20000, &error);
        if (status != TRUCE_NOT_FOUND)
            truce__clock_sleep_ms(1);
    }
    CHECK_INT(status, ==, TRUCE_NOT_FOUND);
    if (!CHECK_INT(count_json(rig->store, "truce_queue", "{'cron.name': 'line'}"), ==, TIMES))
        fprintf(stderr, "    %s %d\n", what, (int)at);
    CHECK_INT(count_json(rig->store, "truce_queue_crons", "{'fired': 3}"), ==, 1);
}

/* True: the fault happened. */
static bool suffer(truce_mechanism mechanism, enum trouble first, uint64_t at, enum trouble second,
                   uint64_t then)
{
    struct rig rig;
    bson_error_t error;
    bool hit;

    rig_open(&rig, mechanism);
    trouble_arm(rig.inner, rig.store, first, at);
    (void)!fire(&rig, DOOMED_MS, &error);
    hit = truce_fault_hits(rig.store) + truce_fault_hits(rig.inner) > 0;
    if (second) {
        trouble_arm(rig.inner, rig.store, second, then);
        (void)!fire(&rig, DOOMED_MS, &error);
    }
    finish(&rig, first == LOSE ? "lost" : "died", at);
    truce_store_close(rig.store);
    return hit;
}

static uint64_t suffer_everywhere(truce_mechanism mechanism)
{
    uint64_t at;

    for (at = 1; suffer(mechanism, DIE_BEFORE, at, NONE, 0) && !test_failures() && at < 400; at++) {
        suffer(mechanism, DIE_AFTER, at, NONE, 0);
        suffer(mechanism, LOSE, at, NONE, 0);
        suffer(mechanism, DIE_AFTER, at, DIE_AFTER, 1 + at % 7);
    }
    return at;
}

TEST(adds_one_job_per_time_after_a_crash_by_the_journal)
{
    CHECK_INT(suffer_everywhere(TRUCE_MECHANISM_JOURNAL), >, 10);
}

TEST(adds_one_job_per_time_after_a_crash_by_native_commits)
{
    CHECK_INT(suffer_everywhere(TRUCE_MECHANISM_NATIVE), >, 2);
}

/*
 * Power cuts while workers add jobs, claim them, and end them, half of them in one commit with an
 * effect. The state that the disk could hold then is opened again, several times with different
 * luck:
 *
 *   at once     each acknowledged job is there; each acknowledged end has happened
 *   worked on   a later worker ends every job; each effect is there once; the check finds nothing
 *
 * Claims do not wait for the disk: one that is lost is claimed again.
 *
 * TRUCE_POWER_CUTS: how many cuts.
 */
#include <stdatomic.h>

#include "tests/support/life.h"
#include "tests/support/queue_rig.h"
#include "truce/truce.h"

enum { WORKERS = 3, LEASE_MS = 40 };

static struct run {
    truce_mechanism mechanism;
    bool forgetful; /* effects that do not wait for the disk: what must be noticed */
    atomic_int added, done, effects;
    int missed; /* of the acknowledged writes */
} run;

static truce_queue *open_queue(truce_store *store)
{
    truce_queue_options options = {.queue = "mail",
                                   .lease_ms = LEASE_MS,
                                   .attempts_max = 1000,
                                   .backoff_ms = 1,
                                   .backoff_max_ms = 1,
                                   .mechanism = run.mechanism,
                                   .deadline_ms = 500};

    return truce_queue_new(store, &options);
}

/* ---- before the cut -------------------------------------------------------------------------- */

static bool has_effect(const truce_job *job)
{
    return rig_number(truce_job_payload(job), "effect") == 1;
}

static truce_status do_job(truce_job *job, bson_error_t *error)
{
    truce_commit_options options = {.tries_max = 1000, .relaxed = run.forgetful};

    return has_effect(job) ? truce_job_commit(job, rig_effect, NULL, &options, error)
                           : truce_job_done(job, NULL, NULL, error);
}

enum answer { ADDED = 1, DONE = 2, EFFECT = 4 };

/* Adds one more job, and ends one. */
static int64_t step(truce_store *store, int worker, int number)
{
    truce_queue *queue = open_queue(store);
    bson_t *payload = test_bson(number % 2 ? "{'effect': 1}" : "{'effect': 0}");
    truce_job *job = NULL;
    int64_t answer = 0;
    bson_error_t error;

    (void)worker;
    if (!truce_queue_add(queue, NULL, payload, NULL, NULL, &error))
        answer |= ADDED;
    if (!truce_queue_claim(queue, &job, &error) && !do_job(job, &error))
        answer |= DONE | (has_effect(job) ? EFFECT : 0);
    truce_job_free(job);
    truce_queue_free(queue);
    bson_destroy(payload);
    return answer;
}

static void reported(int worker, int64_t answer)
{
    (void)worker;
    atomic_fetch_add(&run.added, (answer & ADDED) != 0);
    atomic_fetch_add(&run.done, (answer & DONE) != 0);
    atomic_fetch_add(&run.effects, (answer & EFFECT) != 0);
}

static bool begin(truce_store *store)
{
    insert_json(store, "effects", "{'_id': 'effect', 'n': 0}");
    atomic_store(&run.added, 0);
    atomic_store(&run.done, 0);
    atomic_store(&run.effects, 0);
    return true;
}

/* ---- after it -------------------------------------------------------------------------------- */

/* Counts the missing acknowledged writes. With the journal a plain reader may encounter
 * documents that are held: their commits are finished first. */
static int lost(truce_store *store)
{
    int count = 0;

    count += count_json(store, "truce_queue", "{}") < atomic_load(&run.added);
    count += count_json(store, "truce_queue", "{'state': 'done'}") < atomic_load(&run.done);
    count += rig_effects(store) < atomic_load(&run.effects);
    return count;
}

static void sweep_all(truce_store *store)
{
    truce_sweep_options options = {0};
    truce_sweep_report report;
    bson_error_t error;

    for (int i = 0; i < 1000 && count_json(store, "truce_commits", "{'state': 'pending'}"); i++) {
        CHECK_OK(truce_sweep(store, &options, &report, &error), error);
        truce__clock_sleep_ms(LEASE_MS / 4);
    }
    CHECK_OK(truce_sweep(store, &options, &report, &error), error);
}

static void work_to_the_end(truce_store *store)
{
    truce_queue *queue = open_queue(store);
    bson_error_t error;

    for (int i = 0; i < 6000 && count_json(store, "truce_queue", "{'state': {'$ne': 'done'}}");
         i++) {
        truce_job *job = NULL;

        if (truce_queue_claim(queue, &job, &error))
            truce__clock_sleep_ms(LEASE_MS / 4);
        else
            (void)!do_job(job, &error);
        truce_job_free(job);
    }
    truce_queue_free(queue);
}

static void judge(truce_store *store)
{
    truce_check_report report;
    truce_check_options options = {0};
    bson_error_t error;

    if (run.mechanism == TRUCE_MECHANISM_JOURNAL)
        sweep_all(store);
    run.missed += lost(store);
    work_to_the_end(store);
    CHECK_INT(count_json(store, "truce_queue", "{'state': {'$ne': 'done'}}"), ==, 0);
    CHECK_INT(count_json(store, "truce_queue", "{'payload.effect': 1}"), ==, rig_effects(store));
    CHECK_OK(truce_check(store, &options, NULL, NULL, &report, &error), error);
    CHECK_INT(report.findings, ==, 0);
}

static const struct life life = {WORKERS, begin, step, reported, judge};

__attribute__((constructor)) static void install(void)
{
    life_install();
}

TEST(jobs_survive_power_cuts)
{
    uint64_t seed = test_seed();
    struct random random;

    run.forgetful = false;
    run.missed = 0;
    truce__random_seed(&random, seed);
    for (long i = test_scale("TRUCE_POWER_CUTS", 8); i > 0 && !test_failures(); i--) {
        run.mechanism = i % 2 ? TRUCE_MECHANISM_AUTO : TRUCE_MECHANISM_JOURNAL;
        life_power_cut(&life, &random);
    }
    CHECK_INT(run.missed, ==, 0);
}

/* Relaxed effects may be lost, together with the end of their job. */
TEST(loses_a_job_with_relaxed_effects_completely_or_not_at_all)
{
    uint64_t seed = test_seed();
    struct random random;

    run.forgetful = true;
    run.missed = 0;
    run.mechanism = TRUCE_MECHANISM_AUTO;
    truce__random_seed(&random, seed);
    for (int i = 0; i < 200 && !run.missed && !test_failures(); i++) /* one cut in six is enough */
        life_power_cut(&life, &random);
    CHECK_INT(run.missed, >, 0);
}

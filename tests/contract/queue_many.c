/* The job queue: many jobs are claimed, and done, in one call, while other clients write between
 * the read and the write. */
#include "tests/support/queue_rig.h"

#define JOBS 6

/* ---- claims ---------------------------------------------------------------------------------- */

static void set_in(truce_store *store, const bson_oid_t *id, const char *json)
{
    bson_t *filter = BCON_NEW("_id", BCON_OID(id)), *update = test_bson(json);
    bson_error_t error;

    CHECK_OK(truce_update(store, "truce_queue", filter, update, NULL, NULL, &error), error);
    bson_destroy(update);
    bson_destroy(filter);
}

static void claims_stand(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_job *jobs[JOBS];
    bson_error_t error;
    size_t count;

    for (int i = 0; i < 3; i++)
        rig_add(queue, "{'n': 1}", NULL);
    CHECK_OK(truce_queue_claim_many(queue, JOBS, jobs, &count, &error), error);
    REQUIRE(count == 3);
    for (size_t i = 0; i < count; i++) {
        bson_t kept;

        CHECK_OK(truce_queue_get(queue, NULL, truce_job_id(jobs[i]), &kept, &error), error);
        CHECK_BSON(&kept, truce_job_document(jobs[i]));
        CHECK_TEXT("running", truce__job_state(&kept));
        CHECK_INT(rig_number(&kept, "epoch"), ==, 1);
        CHECK_INT(rig_number(&kept, "attempt"), ==, 1);
        CHECK_INT(rig_number(&kept, "lease.ms"), ==, 600000);
        CHECK(bson_has_field(&kept, "_rev") && bson_has_field(&kept, "lease.since"));
        bson_destroy(&kept);
    }
    /* again, after a first attempt */
    CHECK_OK(truce_job_snooze(jobs[0], NULL, 0, &error), error);
    CHECK_OK(truce_job_fail(jobs[1], NULL, "once more", 0, &error), error);
    set_in(store, truce_job_id(jobs[0]), "{'$set': {'lease': {'worker': 'somebody'}}}");
    truce_job_free(jobs[0]);
    truce_job_free(jobs[1]);
    CHECK_OK(truce_queue_claim_many(queue, JOBS, jobs, &count, &error), error);
    CHECK_INT(count, ==, 2);
    for (size_t i = 0; i < count; i++) {
        CHECK_INT(rig_number(truce_job_document(jobs[i]), "lease.ms"), ==, 600000);
        CHECK_INT(truce_job_epoch(jobs[i]), ==, 2);
        CHECK_OK(truce_job_done(jobs[i], NULL, NULL, &error), error);
        truce_job_free(jobs[i]);
    }
    truce_job_free(jobs[2]);
    truce_queue_free(queue);
}

TEST(jobs_that_are_claimed_together_are_stored)
{
    rig_everywhere(claims_stand);
}

/* ---- between the read and the write ---- */

static const truce_store_ops *plain;
static truce_store_ops midway;
static struct mischief {
    truce_queue *other;
    bson_oid_t ids[JOBS];
    truce_job *job; /* of the other one */
    int turns;
} mischief;

/* The first has another worker, the second is held by a commit, the third cancelled, the fourth
 * gone. */
static void do_mischief(truce_store *store)
{
    bson_t *filter;
    bson_error_t error;

    if (mischief.turns++)
        return;
    store->ops = plain;
    mischief.job = rig_claim(mischief.other);
    set_in(store, &mischief.ids[1],
           "{'$set': {'_intent.c': {'$oid': '0123456789abcdef01234567'}}}");
    CHECK_OK(truce_queue_cancel(mischief.other, NULL, &mischief.ids[2], &error), error);
    filter = BCON_NEW("_id", BCON_OID(&mischief.ids[3]));
    CHECK_OK(truce_remove(store, "truce_queue", filter, NULL, NULL, &error), error);
    bson_destroy(filter);
}

static truce_status bulk_midway(truce_store *store, const truce_write *writes, size_t count,
                                const truce_bulk_options *options, truce_write_outcome *outcomes,
                                bson_error_t *error)
{
    do_mischief(store);
    return plain->bulk(store, writes, count, options, outcomes, error);
}

static truce_status rewrite_midway(truce_store *store, truce_rewrite *rewrite, bson_error_t *error)
{
    do_mischief(store);
    return plain->rewrite(store, rewrite, error);
}

static void others_are_faster(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_job *jobs[JOBS];
    bson_error_t error;
    size_t count;

    mischief = (struct mischief){.other = rig_queue(store, setting, "mail")};
    for (int i = 0; i < JOBS; i++)
        mischief.ids[i] = rig_add(queue, "{'n': 1}", NULL);
    CHECK_OK(truce_queue_pause(queue, &error), error); /* a claim makes its one-time work now */
    rig_no_job(queue);
    CHECK_OK(truce_queue_resume(queue, &error), error);
    plain = store->ops;
    midway = *plain;
    midway.bulk = bulk_midway;
    midway.rewrite = rewrite_midway;
    store->ops = &midway;
    CHECK_OK(truce_queue_claim_many(queue, JOBS, jobs, &count, &error), error);
    store->ops = plain;
    CHECK_INT(mischief.turns, ==, 1);
    CHECK_INT(count, ==, 2);
    for (size_t i = 0; i < count; i++) {
        CHECK(bson_oid_equal(truce_job_id(jobs[i]), &mischief.ids[4 + i]));
        truce_job_free(jobs[i]);
    }
    CHECK_OK(truce_job_done(mischief.job, NULL, NULL, &error), error);
    truce_job_free(mischief.job);
    CHECK_STATE("cancelled", queue, &mischief.ids[2]);
    truce_queue_free(mischief.other);
    truce_queue_free(queue);
}

TEST(skips_a_job_that_another_worker_claimed_first)
{
    rig_everywhere(others_are_faster);
}

/* By guarded updates. */
static void others_are_faster_outside(truce_store *store, const struct setting *setting)
{
    store->capabilities &= ~(uint32_t)TRUCE_CAN_REWRITE;
    others_are_faster(store, setting);
}

TEST(skips_it_also_if_the_store_cannot_rewrite)
{
    rig_everywhere(others_are_faster_outside);
}

/* ---- the operations -------------------------------------------------------------------------- */

static void done_at_once(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    bson_t *result = test_bson("{'sent': true}");
    const bson_t *results[JOBS] = {result};
    truce_status statuses[JOBS];
    truce_job *jobs[JOBS];
    bson_oid_t plain_one, cancelled, first, second, before, behind;
    bson_error_t error;
    size_t count;
    bson_t kept;

    plain_one = rig_add(queue, "{'n': 0}", NULL);
    cancelled = rig_add(queue, "{'n': 1}", NULL);
    first = rig_add(queue, "{'n': 2}", &(truce_job_options){.lane = "ada"});
    second = rig_add(queue, "{'n': 3}", &(truce_job_options){.lane = "ada"});
    before = rig_add(queue, "{'n': 4}", NULL);
    behind = rig_add(queue, "{'n': 5}", &(truce_job_options){.after = &before, .after_count = 1});
    CHECK_OK(truce_queue_claim_many(queue, JOBS, jobs, &count, &error), error);
    REQUIRE(count == 4);
    CHECK_OK(truce_queue_cancel(queue, NULL, &cancelled, &error), error);
    CHECK_STATUS(TRUCE_EXPIRED,
                 truce_queue_done_many(queue, jobs, count, results, statuses, &error), error);
    CHECK_INT(statuses[0], ==, TRUCE_OK);
    CHECK_INT(statuses[1], ==, TRUCE_EXPIRED);
    CHECK_INT(statuses[2], ==, TRUCE_OK);
    CHECK_INT(statuses[3], ==, TRUCE_OK);
    CHECK_STATE("cancelled", queue, &cancelled);
    CHECK_STATE("done", queue, &first);
    CHECK_STATE("ready", queue, &second); /* it is next */
    CHECK_STATE("done", queue, &before);
    CHECK_STATE("ready", queue, &behind);
    CHECK_OK(truce_queue_get(queue, NULL, &plain_one, &kept, &error), error);
    CHECK_TEXT("done", truce__job_state(&kept));
    CHECK(!bson_has_field(&kept, "undone") && bson_has_field(&kept, "lease.token"));
    CHECK(bson_has_field(&kept, "ended") && bson_has_field(&kept, "expires"));
    CHECK_INT(rig_number(&kept, "result.sent"), ==, 1);
    CHECK_OK(truce_queue_done_many(queue, jobs, 1, results, NULL, &error), error); /* again */
    CHECK_INT(count_json(store, "truce_queue", "{'undone.state': 'running'}"), ==, 0);
    for (size_t i = 0; i < count; i++)
        truce_job_free(jobs[i]);
    bson_destroy(&kept);
    bson_destroy(result);
    truce_queue_free(queue);
}

TEST(many_jobs_are_done_at_once)
{
    rig_everywhere(done_at_once);
}

static void done_through_a_gate(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_job *jobs[JOBS];
    bson_error_t error;
    size_t count;

    CHECK_OK(truce_queue_limit(queue, &(truce_queue_limits){.running = 2}, &error), error);
    for (int i = 0; i < 4; i++)
        rig_add(queue, "{'n': 1}", NULL);
    for (int round = 0; round < 2; round++) {
        CHECK_OK(truce_queue_claim_many(queue, JOBS, jobs, &count, &error), error);
        REQUIRE(count == 2);
        CHECK_OK(truce_queue_done_many(queue, jobs, count, NULL, NULL, &error), error);
        truce_job_free(jobs[0]);
        truce_job_free(jobs[1]);
    }
    truce_queue_free(queue);
}

TEST(a_job_that_is_done_no_longer_counts_for_its_limit)
{
    rig_everywhere(done_through_a_gate);
}

/* A forgotten commit holds the job: it is undone first. */
static void done_while_held(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    bson_oid_t id = rig_add(queue, "{'n': 1}", NULL);
    truce_job *job = rig_claim(queue);
    bson_error_t error;

    REQUIRE(job);
    set_in(store, &id, "{'$set': {'_intent.c': {'$oid': '0123456789abcdef01234567'}}}");
    CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
    CHECK_INT(count_json(store, "truce_queue", "{'_intent': {'$exists': true}, 'state': 'done'}"),
              ==, 0);
    truce_job_free(job);
    truce_queue_free(queue);
}

TEST(a_job_that_a_commit_holds_is_not_done)
{
    rig_everywhere(done_while_held);
}

static void wrong_calls(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_queue *other = rig_queue(store, setting, "mail");
    bson_oid_t id = rig_add(queue, "{'n': 1}", NULL);
    truce_job *job = rig_claim(queue);
    bson_error_t error;

    REQUIRE(job);
    CHECK_STATUS(TRUCE_INVALID, truce_queue_done_many(other, &job, 1, NULL, NULL, &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce_queue_done_many(queue, &job, 1001, NULL, NULL, &error),
                 error);
    CHECK_STATE("running", queue, &id);
    CHECK_OK(truce_queue_done_many(queue, NULL, 0, NULL, NULL, &error), error);
    truce_job_free(job);
    truce_queue_free(other);
    truce_queue_free(queue);
}

TEST(jobs_of_another_handle_or_too_many_are_refused)
{
    rig_everywhere(wrong_calls);
}

/* ---- many threads ---------------------------------------------------------------------------- */

struct crowd {
    truce_queue *queue;
    atomic_int claimed;
};

/* Claims until no job is ready, and ends nothing: a job that two workers have would be counted
 * twice. */
static void *claim_all(void *arg)
{
    struct crowd *crowd = arg;
    bson_error_t error;
    truce_job *job;

    while (truce_queue_claim(crowd->queue, &job, &error) == TRUCE_OK) {
        atomic_fetch_add(&crowd->claimed, 1);
        truce_job_free(job);
    }
    return NULL;
}

static void crowds(truce_store *store, const struct setting *setting)
{
    struct crowd all[2] = {{rig_queue(store, setting, "mail")},
                           {rig_queue(store, setting, "mail")}};
    pthread_t threads[8];

    for (int i = 0; i < 60; i++)
        rig_add(all[0].queue, "{'n': 1}", NULL);
    for (int i = 0; i < 8; i++)
        REQUIRE(!pthread_create(&threads[i], NULL, claim_all, &all[i % 2]));
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    CHECK_INT(atomic_load(&all[0].claimed) + atomic_load(&all[1].claimed), ==, 60);
    CHECK_INT(count_json(store, "truce_queue", "{'state': 'running', 'epoch': 1}"), ==, 60);
    truce_queue_free(all[0].queue);
    truce_queue_free(all[1].queue);
}

TEST(many_threads_claim_each_job_once)
{
    rig_everywhere(crowds);
}

/* One claim of the store serves 64 jobs: the next claims serve the rest. */
static void large_crowd(truce_store *store, const struct setting *setting)
{
    enum { CROWD = 150, WORK = 600 };
    struct crowd crowd = {rig_queue(store, setting, "mail")};
    const bson_t *payloads[WORK];
    bson_t *payload = test_bson("{'n': 1}");
    pthread_t threads[CROWD];
    bson_error_t error;

    for (int i = 0; i < WORK; i++)
        payloads[i] = payload;
    CHECK_OK(truce_queue_add_many(crowd.queue, payloads, WORK, NULL, NULL, &error), error);
    for (int i = 0; i < CROWD; i++)
        REQUIRE(!pthread_create(&threads[i], NULL, claim_all, &crowd));
    for (int i = 0; i < CROWD; i++)
        pthread_join(threads[i], NULL);
    CHECK_INT(atomic_load(&crowd.claimed), ==, WORK);
    CHECK_INT(count_json(store, "truce_queue", "{'state': 'running', 'epoch': 1}"), ==, WORK);
    bson_destroy(payload);
    truce_queue_free(crowd.queue);
}

TEST(the_next_claim_serves_jobs_that_one_claim_cannot)
{
    static const struct setting file = {.name = "file", .uri = "file:"};
    truce_store *store;

    if (server_under_test()) {
        test_skip("no concurrent claims meet there");
        return;
    }
    store = open_setting(&file);
    large_crowd(store, &file);
    truce_store_close(store);
}

/* ---- several queues ---- */

static void several(truce_store *store, const struct setting *setting)
{
    truce_queue *often = rig_queue(store, setting, "often"),
                *rare = rig_queue(store, setting, "rare");
    truce_queue_source sources[] = {{.queue = rare}, {.queue = often, .weight = 1000}}, wrong;
    truce_job *jobs[50];
    size_t count, of_often = 0;
    bson_error_t error;

    for (int i = 0; i < 20; i++) {
        rig_add(often, "{'n': 1}", NULL);
        rig_add(rare, "{'n': 1}", NULL);
    }
    for (int i = 0; i < 20; i++) {
        CHECK_OK(truce_queue_claim_from(sources, 2, 1, jobs, &count, &error), error);
        REQUIRE(count == 1);
        of_often += truce_job_queue(jobs[0]) == often;
        truce_job_free(jobs[0]);
    }
    CHECK_INT(of_often, >=, 10); /* by chance at most once in 10^20 */
    CHECK_OK(truce_queue_claim_from(sources, 2, 50, jobs, &count, &error), error);
    CHECK_INT(count, ==, 20);
    for (size_t i = 0; i < count; i++)
        truce_job_free(jobs[i]);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_queue_claim_from(sources, 2, 1, jobs, &count, &error),
                 error);
    CHECK_STATUS(TRUCE_INVALID, truce_queue_claim_from(sources, 0, 1, jobs, &count, &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce_queue_claim_from(sources, 2, 0, jobs, &count, &error), error);
    wrong = (truce_queue_source){.queue = rare, .weight = 1001};
    CHECK_STATUS(TRUCE_INVALID, truce_queue_claim_from(&wrong, 1, 1, jobs, &count, &error), error);
    wrong = (truce_queue_source){.weight = 1};
    CHECK_STATUS(TRUCE_INVALID, truce_queue_claim_from(&wrong, 1, 1, jobs, &count, &error), error);
    truce_queue_free(rare);
    truce_queue_free(often);
}

TEST(jobs_of_several_queues_are_claimed_by_their_weights)
{
    rig_everywhere(several);
}

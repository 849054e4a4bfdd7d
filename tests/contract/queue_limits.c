/* Limits of queues: every call, by every mechanism, on every store. */
#include <pthread.h>
#include <string.h>

#include "tests/support/queue_rig.h"

static void limit(truce_queue *queue, uint32_t running, uint32_t rate, uint32_t per_ms,
                  const char *pool)
{
    truce_queue_limits limits = {.running = running, .rate = rate, .per_ms = per_ms, .pool = pool};
    bson_error_t error = {0};

    CHECK_OK(truce_queue_limit(queue, running || rate ? &limits : NULL, &error), error);
}

static void add_some(truce_queue *queue, int count)
{
    for (int i = 0; i < count; i++)
        rig_add(queue, "{'n': 1}", NULL);
}

static int64_t running_of(truce_store *store, const char *limiter)
{
    bson_t *filter = test_bson(limiter), found;
    bson_error_t error = {0};
    int64_t running;

    CHECK_OK(truce_find_one(store, "truce_queue_limiters", filter, NULL, &found, &error), error);
    running = rig_number(&found, "running");
    bson_destroy(&found);
    bson_destroy(filter);
    return running;
}

#define MAIL "{'_id': {'queue': 'mail'}}"

/* ---- limits ---- */

/* Whatever the end of a job is, another may begin. */
static void at_once(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_job *jobs[8], *job;
    bson_error_t error;
    bson_oid_t id;
    size_t count;

    limit(queue, 2, 0, 0, NULL);
    add_some(queue, 9);
    CHECK_OK(truce_queue_claim_many(queue, 8, jobs, &count, &error), error);
    CHECK_INT(count, ==, 2);
    REQUIRE(count == 2);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_queue_claim(queue, &job, &error), error);
    CHECK_INT(strstr(error.message, "limit") != NULL, ==, 1);
    CHECK_INT(running_of(store, MAIL), ==, 2);
    for (int way = 0; way < 7; way++) {
        truce_job *old = jobs[way % 2];

        bson_oid_copy(truce_job_id(old), &id);
        if (way == 0)
            CHECK_OK(truce_job_done(old, NULL, NULL, &error), error);
        if (way == 1)
            CHECK_OK(truce_job_fail(old, NULL, "no", 3600000, &error), error);
        if (way == 2)
            CHECK_OK(truce_job_snooze(old, NULL, 3600000, &error), error);
        if (way == 3)
            CHECK_OK(truce_job_discard(old, NULL, "no", &error), error);
        if (way == 4)
            CHECK_OK(truce_queue_cancel(queue, NULL, &id, &error), error);
        if (way == 5) {
            insert_json(store, "effects", "{'_id': 'effect', 'n': 0}");
            CHECK_OK(truce_job_commit(old, rig_effect, NULL, NULL, &error), error);
        }
        if (way == 6) { /* calls that leave it running */
            CHECK_OK(truce_job_extend(old, &error), error);
            rig_no_job(queue);
            CHECK_OK(truce_job_done(old, NULL, NULL, &error), error);
            CHECK_OK(truce_job_done(old, NULL, NULL, &error), error); /* the same again */
        }
        CHECK_INT(running_of(store, MAIL), ==, 1);
        truce_job_free(old);
        jobs[way % 2] = rig_claim(queue);
        REQUIRE(jobs[way % 2]);
        CHECK_INT(running_of(store, MAIL), ==, 2);
        rig_no_job(queue);
    }
    limit(queue, 0, 0, 0, NULL); /* a running job was counted, and is not any more */
    truce__clock_sleep_ms(1);
    CHECK_OK(truce_job_fail(jobs[0], NULL, "no", 0, &error), error);
    CHECK_OK(truce_job_done(jobs[1], NULL, NULL, &error), error);
    CHECK_INT(running_of(store, MAIL), ==, 0);
    truce_job_free(jobs[0]);
    truce_job_free(jobs[1]);
    for (int i = 0; i < 1; i++)
        truce_job_free(rig_claim(queue)); /* without a limiter */
    CHECK_INT(running_of(store, MAIL), ==, 0);
    truce_queue_free(queue);
}

TEST(a_queue_runs_at_most_its_limit_of_jobs)
{
    rig_everywhere(at_once);
}

/* The end of a worker makes room for others. */
static void gone(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_hasty(store, setting, "mail");
    bson_error_t error;
    truce_job *lost, *job;

    limit(queue, 1, 0, 0, NULL);
    add_some(queue, 1);
    lost = rig_claim(queue);
    REQUIRE(lost);
    job = rig_claim_later(queue);
    REQUIRE(job);
    CHECK_INT(running_of(store, MAIL), ==, 1);
    CHECK_STATUS(TRUCE_EXPIRED, truce_job_done(lost, NULL, NULL, &error), error);
    CHECK_INT(running_of(store, MAIL), ==, 1);
    truce_job_free(lost);
    truce_job_free(job);
    truce_queue_free(queue);
}

TEST(a_dead_worker_no_longer_counts_for_a_limit)
{
    rig_everywhere(gone);
}

static void pool(truce_store *store, const struct setting *setting)
{
    truce_queue *mail = rig_queue(store, setting, "mail"),
                *news = rig_queue(store, setting, "news");
    bson_error_t error;
    truce_job *job;

    limit(mail, 1, 0, 0, "smtp");
    limit(news, 1, 0, 0, "smtp");
    add_some(mail, 1);
    add_some(news, 2);
    job = rig_claim(mail);
    REQUIRE(job);
    rig_no_job(news);
    CHECK_INT(running_of(store, "{'_id': {'pool': 'smtp'}}"), ==, 1);
    CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
    truce_job_free(job);
    truce_job_free(rig_claim(news));
    truce_queue_free(news);
    truce_queue_free(mail);
}

TEST(queues_of_a_pool_share_its_limits)
{
    rig_everywhere(pool);
}

/* ---- rates ---- */

static void rate(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    bson_t *filter = test_bson(MAIL),
           *future = test_bson("{'$set': {'at': {'$date': 7258118400000}}}");
    truce_job *jobs[8] = {0};
    bson_error_t error;
    size_t count;

    limit(queue, 0, 3, 360000000, NULL);
    add_some(queue, 12);
    CHECK_OK(truce_queue_claim_many(queue, 8, jobs, &count, &error), error);
    CHECK_INT(count, ==, 3);
    for (size_t i = 0; i < count; i++) {
        CHECK_OK(truce_job_fail(jobs[i], NULL, "no", 0, &error), error); /* gives nothing back */
        truce_job_free(jobs[i]);
    }
    rig_no_job(queue);
    limit(queue, 0, 3, 360000000, NULL); /* limits that are set again are no new window */
    rig_no_job(queue);
    /* a clock was decades ahead: no job is blocked by that */
    CHECK_OK(truce_update(store, "truce_queue_limiters", filter, future, NULL, NULL, &error),
             error);
    truce_job_free(rig_claim(queue));
    limit(queue, 0, 1, 1, NULL);
    truce__clock_sleep_ms(5);
    truce_job_free(rig_claim_later(queue)); /* the window passes */
    bson_destroy(filter);
    bson_destroy(future);
    truce_queue_free(queue);
}

TEST(a_queue_begins_at_most_its_rate_of_jobs)
{
    rig_everywhere(rate);
}

/* ---- many at once ---- */

#define THREADS 6
#define JOBS    24
#define MOST    2

struct crowd {
    truce_store *store;
    const struct setting *setting;
    atomic_int running, most, done;
};

static void *work(void *arg)
{
    struct crowd *crowd = arg;
    truce_queue *queue = rig_queue(crowd->store, crowd->setting, "mail");

    for (int i = 0; i < 20000 && atomic_load(&crowd->done) < JOBS; i++) {
        bson_error_t error = {0};
        truce_job *job;
        truce_status status = truce_queue_claim(queue, &job, &error);
        int now, most;

        if (status) {
            CHECK_STATUS(TRUCE_NOT_FOUND, status, error);
            truce__clock_sleep_ms(1);
            continue;
        }
        now = atomic_fetch_add(&crowd->running, 1) + 1;
        for (most = atomic_load(&crowd->most);
             now > most && !atomic_compare_exchange_weak(&crowd->most, &most, now);)
            continue;
        truce__clock_sleep_ms(1);
        atomic_fetch_sub(&crowd->running, 1);
        CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
        atomic_fetch_add(&crowd->done, 1);
        truce_job_free(job);
    }
    truce_queue_free(queue);
    return NULL;
}

static void crowded(truce_store *store, const struct setting *setting)
{
    struct crowd crowd = {.store = store, .setting = setting};
    truce_queue *queue = rig_queue(store, setting, "mail");
    pthread_t threads[THREADS];

    limit(queue, MOST, 0, 0, NULL);
    add_some(queue, JOBS);
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, work, &crowd), ==, 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK_INT(atomic_load(&crowd.done), ==, JOBS);
    CHECK_INT(atomic_load(&crowd.most), <=, MOST);
    CHECK_INT(running_of(store, MAIL), ==, 0);
    truce_queue_free(queue);
}

TEST(a_limit_holds_however_many_workers_there_are)
{
    rig_everywhere(crowded);
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void miscounted(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    bson_t *filter = test_bson(MAIL), *wrong = test_bson("{'$set': {'running': 7}}");
    truce_check_report report;
    bson_error_t error;
    truce_job *job;

    limit(queue, 5, 0, 0, NULL);
    add_some(queue, 2);
    job = rig_claim(queue);
    CHECK_OK(truce_update(store, "truce_queue_limiters", filter, wrong, NULL, NULL, &error), error);
    rig_no_job(queue);
    for (int round = 0; round < 3; round++) {
        truce_check_options repair = {.repair = round == 1};
        struct rig_findings found = {"job-limiter", 0};

        CHECK_OK(truce_check(store, &repair, rig_count_finding, &found, &report, &error), error);
        CHECK_INT(found.count, ==, round < 2);
    }
    CHECK_INT(running_of(store, MAIL), ==, 1);
    CHECK_OK(truce_remove(store, "truce_queue_limiters", filter, NULL, NULL, &error), error);
    truce_job_free(rig_claim(queue)); /* a limiter that is gone blocks no job */
    CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
    truce_job_free(job);
    bson_destroy(filter);
    bson_destroy(wrong);
    truce_queue_free(queue);
}

TEST(a_miscounted_limiter_is_found_and_repaired)
{
    rig_everywhere(miscounted);
}

static void bad(truce_store *store, const struct setting *setting)
{
    static const truce_queue_limits limits[] = {{.running = 0x80000000u},
                                                {.rate = 0x80000000u, .per_ms = 1},
                                                {.rate = 5},
                                                {.per_ms = 5},
                                                {.running = 1, .pool = ""},
                                                {.running = 1, .pool = "\xff"},
                                                {.reserved = {1}}};
    truce_queue *queue = rig_queue(store, setting, "mail");
    bson_error_t error;

    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        CHECK_STATUS(TRUCE_INVALID, truce_queue_limit(queue, &limits[i], &error), error);
    CHECK_INT(count_json(store, "truce_queue_limiters", "{}"), ==, 0);
    truce_queue_free(queue);
}

TEST(refuses_invalid_limits)
{
    rig_everywhere(bad);
}

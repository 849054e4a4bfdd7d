/* Leases and times of the job queue where clocks differ, workers die by the thousand, and
 * several jobs have one claim. */
#include "tests/support/no_sleep.h"
#include "tests/support/queue_rig.h"

#define LEASE_MS 1000
#define HOUR_MS  INT64_C(3600000)

/* Ids are random, so the random numbers do not restart within a store. */
static void right_clocks(void)
{
    no_sleep_use();
    no_sleep_skew_ms = 0;
}

static truce_queue *queue_of(truce_store *store, const struct setting *setting, const char *name)
{
    truce_queue_options options = {.queue = name,
                                   .worker = "tester",
                                   .lease_ms = LEASE_MS,
                                   .backoff_ms = 1,
                                   .backoff_max_ms = 1,
                                   .mechanism = setting ? setting->mechanism : 0};

    return truce_queue_new(store, &options);
}

static void add_many(truce_queue *queue, size_t count)
{
    const bson_t **payloads = bson_malloc(count * sizeof *payloads);
    bson_t payload = BSON_INITIALIZER;
    bson_error_t error;

    for (size_t i = 0; i < count; i++)
        payloads[i] = &payload;
    CHECK_OK(truce_queue_add_many(queue, payloads, count, NULL, NULL, &error), error);
    bson_free(payloads);
}

/* Claims jobs until there are `count`, or the time is over. Their leases then expire. */
static size_t claim_all(truce_queue *queue, size_t most, size_t each, int64_t patience_ms)
{
    int64_t until_ms = no_sleep_ms + patience_ms;
    size_t total = 0;

    while (total < most && no_sleep_ms <= until_ms) {
        truce_job *jobs[1000];
        bson_error_t error = {0};
        size_t count;
        truce_status status = truce_queue_claim_many(queue, each, jobs, &count, &error);

        if (status)
            CHECK_STATUS(TRUCE_NOT_FOUND, status, error);
        for (size_t i = 0; i < count; i++)
            truce_job_free(jobs[i]);
        total += count;
        if (!count)
            truce__clock_sleep_ms(LEASE_MS / 4);
    }
    return total;
}

/* ---- one claim of several jobs ---- */

/* Each lease is extended at another time, so jobs of one claim end at different times. */
static void one_claim(truce_store *store, const struct setting *setting)
{
    truce_queue *dies = queue_of(store, setting, "mail"), *lives = queue_of(store, setting, "mail");
    truce_job *jobs[5];
    bson_error_t error;
    size_t count;

    right_clocks();
    add_many(dies, 5);
    CHECK_OK(truce_queue_claim_many(dies, 5, jobs, &count, &error), error);
    CHECK_INT(count, ==, 5);
    for (size_t i = 0; i < count; i++) {
        if (i < 4)
            CHECK_OK(truce_job_extend(jobs[i], &error), error);
        truce__clock_sleep_ms(20);
    }
    for (size_t i = 0; i < count; i++)
        truce_job_free(jobs[i]);
    CHECK_INT(claim_all(lives, 5, 1, 4 * LEASE_MS), ==, 5);
    truce__environment_use(NULL);
    truce_queue_free(lives);
    truce_queue_free(dies);
}

/* The wall clock of the worker does not move, so an extension has no later time of its own. */
static void worker_stands_still(truce_store *store, const struct setting *setting)
{
    truce_queue *works = queue_of(store, setting, "mail"),
                *other = queue_of(store, setting, "mail");
    truce_job *job, *taken = NULL;
    bson_error_t error = {0};

    right_clocks();
    add_many(works, 1);
    CHECK_OK(truce_queue_claim(works, &job, &error), error);
    for (int i = 0; i < 20 && !taken; i++) {
        int64_t skew_ms = no_sleep_skew_ms;

        no_sleep_skew_ms = HOUR_MS; /* the clock of the other process runs ahead */
        CHECK_STATUS(TRUCE_NOT_FOUND, truce_queue_claim(other, &taken, &error), error);
        truce__clock_sleep_ms(LEASE_MS / 4);
        no_sleep_skew_ms = skew_ms - LEASE_MS / 4;
        CHECK_OK(truce_job_extend(job, &error), error);
    }
    CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
    truce_job_free(job);
    truce__environment_use(NULL);
    truce_queue_free(other);
    truce_queue_free(works);
}

TEST(keeps_the_job_of_a_worker_whose_clock_has_stopped)
{
    rig_everywhere(worker_stands_still);
}

TEST(requeues_each_job_of_a_claim_of_several)
{
    rig_everywhere(one_claim);
}

/* One of the jobs of a claim is kept alive, the others are not. */
static void one_lives(truce_store *store, const struct setting *setting)
{
    truce_queue *dies = queue_of(store, setting, "mail"), *lives = queue_of(store, setting, "mail");
    truce_job *jobs[3], *taken[3];
    bson_error_t error;
    size_t count, got = 0;

    right_clocks();
    add_many(dies, 3);
    CHECK_OK(truce_queue_claim_many(dies, 3, jobs, &count, &error), error);
    CHECK_INT(count, ==, 3);
    for (int i = 0; i < 40 && count == 3; i++) {
        truce__clock_sleep_ms(LEASE_MS / 4);
        CHECK_OK(truce_job_extend(jobs[1], &error), error);
        while (got < 3 && !truce_queue_claim(lives, &taken[got], &error))
            CHECK_OK(truce_job_done(taken[got++], NULL, NULL, &error), error);
    }
    CHECK_INT(got, ==, 2);
    CHECK_OK(truce_job_done(jobs[1], NULL, NULL, &error), error);
    for (size_t i = 0; i < count; i++)
        truce_job_free(jobs[i]);
    for (size_t i = 0; i < got; i++)
        truce_job_free(taken[i]);
    truce__environment_use(NULL);
    truce_queue_free(lives);
    truce_queue_free(dies);
}

TEST(takes_no_live_job_of_a_claim_with_dead_ones)
{
    rig_everywhere(one_lives);
}

/* ---- many dead workers ---- */

#define QUEUES 400

TEST(requeues_jobs_of_dead_workers_in_many_queues)
{
    truce_store *store = open_setting(&settings[0]);
    truce_queue *queues[QUEUES];
    size_t back = 0;

    right_clocks();
    for (int i = 0; i < QUEUES; i++) {
        char name[16];

        snprintf(name, sizeof name, "q%d", i);
        queues[i] = queue_of(store, NULL, name);
        add_many(queues[i], 1);
        CHECK_INT(claim_all(queues[i], 1, 1, 0), ==, 1);
    }
    for (int round = 0; round < 12 && back < QUEUES; round++) {
        for (int i = 0; i < QUEUES; i++) {
            truce_job *job;
            bson_error_t error;

            if (!truce_queue_claim(queues[i], &job, &error)) {
                back++;
                CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
                truce_job_free(job);
            }
        }
        truce__clock_sleep_ms(LEASE_MS / 4);
    }
    CHECK_INT(back, ==, QUEUES);
    for (int i = 0; i < QUEUES; i++)
        truce_queue_free(queues[i]);
    truce__environment_use(NULL);
    truce_store_close(store);
}

#define DEAD 3000

/* More leases than one pass reads belong to live workers, whose clocks are behind. */
TEST(requeues_thousands_of_jobs_of_one_queue)
{
    truce_store *store = open_setting(&settings[0]);
    truce_queue *queue = queue_of(store, NULL, "mail"), *slow = rig_queue(store, NULL, "mail");
    truce_job *living[1000];
    bson_error_t error;
    size_t count, lives = 0;

    right_clocks();
    no_sleep_skew_ms = -5 * HOUR_MS;
    for (int i = 0; i < 2; i++) {
        add_many(slow, 1000);
        CHECK_OK(truce_queue_claim_many(slow, 1000, living, &count, &error), error);
        for (size_t k = 0; k < count; k++)
            truce_job_free(living[k]);
        lives += count;
    }
    no_sleep_skew_ms = 0;
    CHECK_INT(lives, ==, 2000);
    add_many(queue, DEAD);
    CHECK_INT(claim_all(queue, DEAD, 1000, 0), ==, DEAD);
    CHECK_INT(claim_all(queue, DEAD, 1000, 40 * LEASE_MS), ==, DEAD);
    truce__environment_use(NULL);
    truce_queue_free(queue);
    truce_queue_free(slow);
    truce_store_close(store);
}

/* ---- many jobs that become due at once ---- */

#define DUE 1500

/* The lowest priorities were added first, and jobs of a middle priority are ready. */
static void due_at_once(truce_store *store, size_t each)
{
    truce_queue *queue = rig_queue(store, NULL, "mail");
    int64_t last = JOB_PRIORITY_MAX, left = DUE;
    bson_t payload = BSON_INITIALIZER;
    bson_error_t error;

    right_clocks();
    for (int i = 0; i < DUE; i += 50) {
        truce_job_options options = {.priority = i / 250 - 5, .delay_ms = i % 500 ? 5000 : 0};
        const bson_t *payloads[50];

        for (int k = 0; k < 50; k++)
            payloads[k] = &payload;
        CHECK_OK(truce_queue_add_many(queue, payloads, 50, &options, NULL, &error), error);
    }
    truce__clock_sleep_ms(6000);
    while (left > 0) {
        truce_job *jobs[1000];
        size_t count;
        bool ordered = true;

        if (!CHECK_OK(truce_queue_claim_many(queue, each, jobs, &count, &error), error))
            break;
        for (size_t i = 0; i < count; i++) {
            int64_t priority = rig_number(truce_job_document(jobs[i]), "priority");

            ordered = ordered && priority <= last;
            last = priority;
            truce_job_free(jobs[i]);
        }
        left -= (int64_t)count;
        if (!CHECK(ordered))
            break;
    }
    CHECK_INT(left, ==, 0);
    truce__environment_use(NULL);
    truce_queue_free(queue);
}

TEST(keeps_priorities_when_thousands_become_due_together)
{
    static const size_t each[] = {3, 1000};

    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        truce_store *store = open_setting(&settings[0]);

        due_at_once(store, each[i]);
        truce_store_close(store);
    }
}

/* ---- wrong clocks ---- */

static const int64_t skews[] = {25 * HOUR_MS, -25 * HOUR_MS, 10 * LEASE_MS, -10 * LEASE_MS,
                                24 * 3650 * HOUR_MS};

/* The clock of one of them is wrong; the other is kept alive. */
static void alive(truce_store *store, const struct setting *setting)
{
    for (size_t i = 0; i < 2 * sizeof skews / sizeof *skews; i++) {
        truce_queue *worker = queue_of(store, setting, "mail"),
                    *other = queue_of(store, setting, "mail");
        int64_t skew = skews[i / 2];
        bson_error_t error;
        truce_job *job;

        right_clocks();
        rig_add(worker, "{'n': 1}", NULL);
        no_sleep_skew_ms = i % 2 ? skew : 0;
        job = rig_claim(worker);
        REQUIRE(job);
        for (int round = 0; round < 20; round++) {
            no_sleep_skew_ms = i % 2 ? 0 : skew;
            rig_no_job(other);
            truce__clock_sleep_ms(LEASE_MS / 3);
            no_sleep_skew_ms = i % 2 ? skew : 0;
            CHECK_OK(truce_job_extend(job, &error), error);
        }
        CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
        truce_job_free(job);
        truce__environment_use(NULL);
        truce_queue_free(other);
        truce_queue_free(worker);
    }
}

TEST(takes_no_job_of_a_live_worker_whatever_the_clocks_show)
{
    rig_everywhere(alive);
}

/* A dead worker's clock was wrong: its lease ends anyway, by the claimer's watch. */
static void dead(truce_store *store, const struct setting *setting)
{
    for (size_t i = 0; i < sizeof skews / sizeof *skews; i++) {
        truce_queue *worker = queue_of(store, setting, "mail"),
                    *other = queue_of(store, setting, "mail");
        bson_error_t error;
        truce_job *job;

        right_clocks();
        rig_add(worker, "{'n': 1}", NULL);
        no_sleep_skew_ms = skews[i];
        truce_job_free(rig_claim(worker));
        no_sleep_skew_ms = 0;
        for (int round = 0; round < 12; round++) {
            if (!truce_queue_claim(other, &job, &error))
                break;
            job = NULL;
            truce__clock_sleep_ms(LEASE_MS / 4);
        }
        if (CHECK(job != NULL))
            CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
        truce_job_free(job);
        truce__environment_use(NULL);
        truce_queue_free(other);
        truce_queue_free(worker);
    }
}

TEST(requeues_the_job_of_a_dead_worker_whose_clock_was_wrong)
{
    rig_everywhere(dead);
}

static void end_job(truce_job *job)
{
    bson_error_t error;

    if (CHECK(job != NULL))
        CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
    truce_job_free(job);
}

/* Jobs that wait for their turn, or for another job, were added by a process with a wrong clock. */
static void held(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = queue_of(store, setting, "mail");

    for (size_t i = 0; i < sizeof skews / sizeof *skews; i++) {
        bson_oid_t first, turn, after, late;
        truce_job *job;

        right_clocks();
        first = rig_add(queue, "{'n': 1}", &(truce_job_options){.lane = "x"});
        job = rig_claim(queue);
        no_sleep_skew_ms = skews[i];
        turn = rig_add(queue, "{'n': 2}", &(truce_job_options){.lane = "x"});
        after = rig_add(queue, "{'n': 3}",
                        &(truce_job_options){.after = &first, .after_count = 1, .priority = -1});
        no_sleep_skew_ms = 0;
        late = rig_add(queue, "{'n': 4}", &(truce_job_options){.lane = "x", .delay_ms = HOUR_MS});
        end_job(job);
        CHECK_STATE("ready", queue, &turn);
        CHECK_STATE("ready", queue, &after);
        end_job(rig_claim(queue));
        CHECK_STATE("delayed", queue, &late);
        end_job(rig_claim(queue));
        truce__clock_sleep_ms(HOUR_MS);
        end_job(rig_claim(queue));
    }
    truce__environment_use(NULL);
    truce_queue_free(queue);
}

TEST(starts_a_held_job_with_any_clock_of_the_process_that_added_it)
{
    rig_everywhere(held);
}

/* The recovery pass does the same, for queues without workers. */
TEST(sweeps_jobs_of_dead_workers_whose_clocks_were_wrong)
{
    truce_store *store = open_setting(&settings[0]);
    truce_sweep_report report;
    bson_error_t error;

    right_clocks();
    for (size_t i = 0; i < sizeof skews / sizeof *skews; i++) {
        truce_queue *queue = queue_of(store, NULL, i % 2 ? "mail" : "news");

        rig_add(queue, "{'n': 1}", NULL);
        no_sleep_skew_ms = skews[i];
        truce_job_free(rig_claim(queue));
        no_sleep_skew_ms = 0;
        truce_queue_free(queue);
    }
    for (int round = 0; round < 3; round++) {
        CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
        CHECK_INT(count_json(store, "truce_queue", "{'state': 'running'}"), >, round ? -1 : 4);
        /* the recovery pass does not know the lengths of leases */
        truce__clock_sleep_ms(20 * LEASE_MS);
    }
    CHECK_INT(count_json(store, "truce_queue", "{'state': 'running'}"), ==, 0);
    truce__environment_use(NULL);
    truce_store_close(store);
}

/* ---- sweeps of processes that end ---- */

static char alone_uri[400];

/* Runs a recovery pass as a process of its own, which remembers nothing of others. Returns how
 * many jobs run then. */
static int64_t sweep_alone(const char *clock)
{
    truce_sweep_report report;
    truce_store *store = NULL;
    bson_error_t error;
    int64_t running;

    no_sleep_clock = clock;
    CHECK_OK(truce_store_open(alone_uri, NULL, &store, &error), error);
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    running = count_json(store, "truce_queue", "{'state': 'running'}");
    truce_store_close(store);
    no_sleep_clock = NULL;
    return running;
}

/* Opens the store of sweep_alone with one job, which is claimed. */
static truce_store *claimed_alone(truce_queue **queue, truce_job **job)
{
    truce_store *store = NULL;
    bson_error_t error;

    right_clocks();
    snprintf(alone_uri, sizeof alone_uri, "file:%s/alone.truce", test_directory());
    CHECK_OK(truce_store_open(alone_uri, NULL, &store, &error), error);
    *queue = queue_of(store, NULL, "mail");
    rig_add(*queue, "{'n': 1}", NULL);
    *job = rig_claim(*queue);
    return store;
}

static void end_alone(truce_store *store, truce_queue *queue, truce_job *job)
{
    truce_job_free(job);
    truce_queue_free(queue);
    truce__environment_use(NULL);
    truce_store_close(store);
}

TEST(releases_the_job_of_a_dead_worker_by_sweeps_of_two_processes)
{
    truce_queue *queue;
    truce_job *job;
    truce_store *store = claimed_alone(&queue, &job);

    CHECK_INT(sweep_alone("boot1"), ==, 1);
    CHECK_INT(count_json(store, "truce_queue", "{'lease.seen': {'$exists': true}}"), ==, 0);
    truce__clock_sleep_ms(2 * LEASE_MS);
    CHECK_INT(sweep_alone("boot1"), ==, 1); /* sees for the first time that the lease may be over */
    truce__clock_sleep_ms(LEASE_MS - 1);
    CHECK_INT(sweep_alone("boot1"), ==, 1);
    truce__clock_sleep_ms(1);
    CHECK_INT(sweep_alone("boot1"), ==, 0);
    end_alone(store, queue, job);
}

TEST(keeps_a_job_that_is_extended_between_sweeps_of_two_processes)
{
    truce_queue *queue;
    truce_job *job;
    truce_store *store = claimed_alone(&queue, &job);
    bson_error_t error;

    for (int i = 0; i < 6; i++) {
        /* the clock of the recovery pass is ahead, so each lease looks expired */
        no_sleep_skew_ms = HOUR_MS;
        CHECK_INT(sweep_alone("boot1"), ==, 1);
        no_sleep_skew_ms = 0;
        truce__clock_sleep_ms(LEASE_MS);
        CHECK_OK(truce_job_extend(job, &error), error);
    }
    CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
    end_alone(store, queue, job);
}

TEST(continues_no_observation_of_another_clock)
{
    truce_queue *queue;
    truce_job *job;
    truce_store *store = claimed_alone(&queue, &job);

    truce__clock_sleep_ms(2 * LEASE_MS);
    for (int i = 0; i < 3; i++) {
        char clock[20];

        snprintf(clock, sizeof clock, "boot%d", i);
        CHECK_INT(sweep_alone(clock), ==, 1);
        CHECK_INT(sweep_alone(NULL), ==, 1); /* a clock without a name */
        truce__clock_sleep_ms(3 * LEASE_MS);
    }
    CHECK_INT(sweep_alone("boot1"), ==, 0); /* other computers did not disturb it */
    end_alone(store, queue, job);
}

TEST(ignores_an_observation_of_a_later_time)
{
    truce_queue *queue;
    truce_job *job;
    truce_store *store = claimed_alone(&queue, &job);

    truce__clock_sleep_ms(10 * LEASE_MS);
    CHECK_INT(sweep_alone("boot1"), ==, 1);
    no_sleep_ms -= 5 * LEASE_MS; /* a computer that was restored from a snapshot */
    CHECK_INT(sweep_alone("boot1"), ==, 1);
    truce__clock_sleep_ms(LEASE_MS / 2);
    CHECK_INT(sweep_alone("boot1"), ==, 1);
    truce__clock_sleep_ms(LEASE_MS / 2);
    CHECK_INT(sweep_alone("boot1"), ==, 0);
    end_alone(store, queue, job);
}

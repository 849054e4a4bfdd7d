/* Rates of queues, pools, and lanes: how many jobs begin in any window of real time, whatever
 * the clocks say. */
#include "patterns/queue/rate_limit.h"
#include "tests/support/no_sleep.h"
#include "tests/support/queue_rig.h"

#define RATE    5
#define PER_MS  2000
#define STEP_MS 50
#define STEPS   240 /* six windows */
#define JOBS    200
#define HOUR_MS INT64_C(3600000)

struct begins {
    int64_t at_ms[JOBS];
    int count;
};

/* Returns the most begins in one window of real time, of those after `from_ms`. */
static int most_in_window(const struct begins *begins, int64_t from_ms, int64_t per_ms)
{
    int most = 0;

    for (int i = 0; i < begins->count; i++) {
        int in = 0;

        for (int k = i; begins->at_ms[i] >= from_ms && k < begins->count; k++)
            in += begins->at_ms[k] - begins->at_ms[i] < per_ms;
        most = in > most ? in : most;
    }
    return most;
}

static void claim_some(truce_queue *queue, size_t most, struct begins *begins)
{
    truce_job *jobs[20];
    bson_error_t error = {0};
    size_t count;
    truce_status status = truce_queue_claim_many(queue, most, jobs, &count, &error);

    if (status)
        CHECK_STATUS(TRUCE_NOT_FOUND, status, error);
    for (size_t i = 0; i < count; i++) {
        if (begins->count < JOBS)
            begins->at_ms[begins->count++] = no_sleep_ms;
        truce_job_free(jobs[i]);
    }
}

static void limit_rate(truce_queue *queue, const char *pool)
{
    truce_queue_limits limits = {.rate = RATE, .per_ms = PER_MS, .pool = pool};
    bson_error_t error;

    CHECK_OK(truce_queue_limit(queue, &limits, &error), error);
}

enum kind { OF_QUEUE, OF_POOL, OF_LANE, OF_LANE_IN_LIMITED, KINDS };

static void fill(truce_queue *queue, enum kind kind)
{
    truce_job_options options = {.lane = kind >= OF_LANE ? "stripe" : NULL,
                                 .lane_width = kind >= OF_LANE ? JOBS : 0,
                                 .lane_rate = kind >= OF_LANE ? RATE : 0,
                                 .lane_per_ms = kind >= OF_LANE ? PER_MS : 0};
    truce_queue_limits wide = {.running = 10 * JOBS};
    bson_error_t error;

    if (kind == OF_QUEUE || kind == OF_POOL)
        limit_rate(queue, kind == OF_POOL ? "smtp" : NULL);
    if (kind == OF_LANE_IN_LIMITED)
        CHECK_OK(truce_queue_limit(queue, &wide, &error), error);
    for (int i = 0; i < JOBS / 4; i++)
        rig_add(queue, "{'n': 1}", &options);
}

/* ---- clocks that differ ---- */

static const int64_t skews[] = {
    0, 500, -500, PER_MS, 5 * HOUR_MS, -5 * HOUR_MS, 24 * 3650 * HOUR_MS};

/* Two processes claim in turn, and the clock of one is wrong. */
static void two_clocks(truce_store *store, enum kind kind, int64_t skew_ms)
{
    truce_queue *first = rig_queue(store, NULL, "mail"),
                *second = rig_queue(store, NULL, kind == OF_POOL ? "news" : "mail");
    struct begins begins = {.count = 0};
    int64_t from_ms;

    no_sleep_use();
    no_sleep_skew_ms = 0;
    fill(first, kind);
    if (kind == OF_POOL)
        fill(second, kind);
    from_ms = no_sleep_ms;
    for (int i = 0; i < STEPS; i++) {
        no_sleep_skew_ms = 0;
        claim_some(first, i % 3 + 1, &begins);
        no_sleep_skew_ms = skew_ms;
        claim_some(second, 3, &begins);
        truce__clock_sleep_ms(STEP_MS);
    }
    /* a clock that appears and is ahead of the others is one further window; both then advance
     * the time */
    CHECK_INT(most_in_window(&begins, 0, PER_MS), <=, skew_ms > 0 ? 2 * RATE : RATE);
    CHECK_INT(most_in_window(&begins, from_ms + PER_MS, PER_MS), <=, RATE);
    CHECK_INT(begins.count, >=, 3 * RATE); /* and it continues */
    no_sleep_skew_ms = 0;
    truce__environment_use(NULL);
    truce_queue_free(second);
    truce_queue_free(first);
}

TEST(begins_at_most_the_rate_in_any_window_with_any_clocks)
{
    for (int kind = 0; kind < KINDS; kind++) {
        for (size_t i = 0; i < sizeof skews / sizeof *skews; i++) {
            int before = test_failures();
            truce_store *store = open_setting(&settings[0]);

            two_clocks(store, (enum kind)kind, skews[i]);
            truce_store_close(store);
            if (test_failures() > before)
                fprintf(stderr, "    (kind %d, skew %lld ms)\n", kind, (long long)skews[i]);
        }
    }
}

/* The faster clock advances the time only now and then: at most one window for each clock. */
TEST(begins_at_most_one_rate_for_each_clock)
{
    for (size_t i = 0; i < sizeof skews / sizeof *skews; i++) {
        truce_store *store = open_setting(&settings[0]);
        truce_queue *first = rig_queue(store, NULL, "mail"),
                    *second = rig_queue(store, NULL, "mail");
        struct begins begins = {.count = 0};

        no_sleep_use();
        no_sleep_skew_ms = 0;
        fill(first, OF_QUEUE);
        for (int k = 0; k < 60; k++) {
            no_sleep_skew_ms = k % 7 % 2 ? skews[i] : 0;
            claim_some(k % 7 % 2 ? first : second, 20, &begins);
            truce__clock_sleep_ms(k % 3 * PER_MS / 2);
        }
        no_sleep_skew_ms = 0;
        CHECK_INT(most_in_window(&begins, 0, PER_MS), <=, skews[i] ? 2 * RATE : RATE);
        CHECK_INT(begins.count, >=, 5 * RATE);
        truce__environment_use(NULL);
        truce_queue_free(second);
        truce_queue_free(first);
        truce_store_close(store);
    }
}

/* The process whose clock is ahead is gone: the others do not wait until their clocks reach its
 * time. (Jobs of a lane that it delayed are delayed by its clock, as any job that it delays.) */
TEST(continues_after_the_clock_that_was_ahead_is_corrected)
{
    for (int kind = OF_QUEUE; kind <= OF_POOL; kind++) {
        truce_store *store = open_setting(&settings[0]);
        truce_queue *queue = rig_queue(store, NULL, "mail");
        struct begins begins = {.count = 0};

        no_sleep_use();
        no_sleep_skew_ms = 0;
        fill(queue, (enum kind)kind);
        no_sleep_skew_ms = 25 * HOUR_MS;
        claim_some(queue, 20, &begins);
        no_sleep_skew_ms = 0;
        CHECK_INT(begins.count, ==, RATE);
        for (int i = 0; i < 3 * PER_MS / STEP_MS; i++) {
            claim_some(queue, 20, &begins);
            truce__clock_sleep_ms(STEP_MS);
        }
        CHECK_INT(begins.count, >=, 3 * RATE);
        CHECK_INT(most_in_window(&begins, 0, PER_MS), <=, RATE);
        truce__environment_use(NULL);
        truce_queue_free(queue);
        truce_store_close(store);
    }
}

/* ---- counts ---------------------------------------------------------------------------------- */

/* No worker runs for long: a rate counts begins, so jobs that became ready in the meantime do
 * not begin at once. */
static void after_an_outage(truce_store *store, const struct setting *setting)
{
    for (int kind = 0; kind < KINDS; kind++) {
        truce_queue *queue = rig_queue(store, setting,
                                       kind == OF_POOL    ? "pool"
                                       : kind == OF_LANE  ? "lane"
                                       : kind == OF_QUEUE ? "queue"
                                                          : "both");
        struct begins begins = {.count = 0};

        no_sleep_use();
        fill(queue, (enum kind)kind);
        truce__clock_sleep_ms(JOBS * PER_MS);
        for (int i = 0; i < 10; i++) {
            claim_some(queue, 20, &begins);
            truce__clock_sleep_ms(PER_MS / 20);
        }
        CHECK_INT(begins.count, ==, RATE);
        for (int i = 0; i < JOBS && begins.count < JOBS / 4; i++) {
            claim_some(queue, 20, &begins);
            truce__clock_sleep_ms(PER_MS / 4);
        }
        CHECK_INT(begins.count, ==, JOBS / 4);
        CHECK_INT(most_in_window(&begins, 0, PER_MS), <=, RATE);
        truce__environment_use(NULL);
        truce_queue_free(queue);
    }
}

TEST(begins_no_burst_after_a_time_without_workers)
{
    rig_everywhere(after_an_outage);
}

/* A job that fails and begins again counts again; its attempts are those that began. */
static void again(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_job_options options = {.lane = "stripe", .lane_rate = 2, .lane_per_ms = PER_MS};
    struct begins begins = {.count = 0};
    bson_error_t error;

    no_sleep_use();
    rig_add(queue, "{'n': 1}", &options);
    for (int i = 0; i < 100; i++) {
        truce_job *job;

        if (!truce_queue_claim(queue, &job, &error)) {
            begins.at_ms[begins.count++] = no_sleep_ms;
            CHECK_INT(truce_job_attempt(job), ==, begins.count);
            CHECK_OK(truce_job_fail(job, NULL, "no", 0, &error), error);
            truce_job_free(job);
            if (begins.count == 8)
                break;
        }
        truce__clock_sleep_ms(PER_MS / 10);
    }
    CHECK_INT(begins.count, ==, 8);
    CHECK_INT(most_in_window(&begins, 0, PER_MS), ==, 2);
    truce__environment_use(NULL);
    truce_queue_free(queue);
}

TEST(counts_each_attempt_that_begins)
{
    rig_everywhere(again);
}

/* A lane that is delayed hides no job of another lane, or without a lane. */
static void others(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_job_options rated = {.lane = "stripe",
                               .lane_width = JOBS,
                               .lane_rate = 1,
                               .lane_per_ms = 3600000,
                               .priority = 5},
                      other = {.lane = "adyen"};
    struct begins begins = {.count = 0};

    no_sleep_use();
    for (int i = 0; i < 40; i++)
        rig_add(queue, "{'n': 1}", &rated);
    rig_add(queue, "{'n': 2}", &other);
    rig_add(queue, "{'n': 3}", NULL);
    truce__clock_sleep_ms(JOBS * HOUR_MS);
    for (int i = 0; i < 4; i++)
        claim_some(queue, 1, &begins);
    CHECK_INT(begins.count, ==, 3);
    truce__environment_use(NULL);
    truce_queue_free(queue);
}

TEST(skips_jobs_that_the_rate_of_their_lane_delays)
{
    rig_everywhere(others);
}

/* ---- the window ---- */

/* Large rates share entries, small ones are exact. */
TEST(counts_large_rates_in_a_few_entries)
{
    static const int64_t rates[] = {1, 3, 32, 33, 1000, 100000};

    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        struct queue_rate rate = {.rate = rates[i], .per_ms = 6000, .now_ms = 1000};
        int64_t *at_ms = bson_malloc(10 * (size_t)rates[i] * sizeof *at_ms), count = 0, first = 0;

        for (; rate.now_ms < 1000 + 60000; rate.now_ms += 1) {
            while (!truce__rate_wait_ms(&rate) && count < 10 * rates[i]) {
                truce__rate_begin(&rate);
                at_ms[count++] = rate.now_ms;
                for (; at_ms[first] <= rate.now_ms - rate.per_ms; first++)
                    continue;
                if (count - first > rates[i])
                    CHECK_INT(count - first, <=, rates[i]);
            }
            if (rate.count > RATE_ENTRIES)
                CHECK_INT(rate.count, <=, RATE_ENTRIES);
        }
        CHECK_INT(count * 100, >=, 9 * 97 * rates[i]);
        bson_free(at_ms);
    }
}

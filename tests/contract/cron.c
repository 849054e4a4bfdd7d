/* Jobs that are added by the clock: every call, by every mechanism, on every store. */
#include "truce/cron.h"

#include <pthread.h>
#include <string.h>

#include "tests/support/queue_rig.h"

#define HOUR_MS INT64_C(3600000)

static void set(truce_queue *queue, const char *name, const char *line,
                const truce_cron_options *options)
{
    bson_t *payload = test_bson("{'report': 'sales'}");
    bson_error_t error = {0};

    CHECK_OK(truce_cron_set(queue, name, line, payload, options, &error), error);
    bson_destroy(payload);
}

/* Returns the date in a field of a cron line; 0 if it has none. */
static int64_t cron_date(truce_store *store, const char *name, const char *field)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(name)), cron;
    bson_error_t error = {0};
    int64_t ms;

    CHECK_OK(truce_find_one(store, "truce_queue_crons", filter, NULL, &cron, &error), error);
    (void)truce__job_date(&cron, field, &ms);
    bson_destroy(&cron);
    bson_destroy(filter);
    return ms;
}

/* Sets the line back, as if no worker had looked at it since. */
static void back(truce_store *store, const char *name, int64_t next_ms)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(name)),
           *update = BCON_NEW("$set", "{", "next", BCON_DATE_TIME(next_ms), "}");
    bson_error_t error = {0};

    CHECK_OK(truce_update(store, "truce_queue_crons", filter, update, NULL, NULL, &error), error);
    bson_destroy(update);
    bson_destroy(filter);
}

static void sweep(truce_store *store)
{
    truce_sweep_report report;
    bson_error_t error = {0};

    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(report.failed, ==, 0);
}

#define CHECK_JOBS(store, count)                                                                   \
    CHECK_INT(count_json(store, "truce_queue", "{'queue': 'reports'}"), ==, count)

/* ---- one job for each time ---- */

static void fired(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "reports");
    const char *tags = "['nightly']";
    bson_t *array = test_bson(tags);
    truce_job_options job_options = {.priority = 3, .attempts_max = 2, .tags = array};
    truce_cron_options options = {.zone = "Europe/Berlin", .job = &job_options};
    int64_t now_ms = truce__clock_wall_ms(), due_ms;
    truce_job *job;
    int64_t at_ms;

    set(queue, "nightly", "@every 1000h", &options);
    CHECK_INT(cron_date(store, "nightly", "next"), >=, now_ms + 1000 * HOUR_MS);
    sweep(store);
    CHECK_JOBS(store, 0);
    due_ms = now_ms - 10;
    back(store, "nightly", due_ms);
    job = rig_claim_later(queue); /* the next worker of the queue fires it */
    REQUIRE(job);
    CHECK_INT(rig_number(truce_job_document(job), "priority"), ==, 3);
    CHECK_INT(rig_number(truce_job_document(job), "attempts_max"), ==, 2);
    CHECK_INT(rig_number(truce_job_document(job), "attempt"), ==, 1);
    CHECK(bson_has_field(truce_job_payload(job), "report"));
    CHECK(bson_has_field(truce_job_document(job), "tags.0"));
    CHECK(truce__job_date(truce_job_document(job), "cron.at", &at_ms));
    CHECK_INT(at_ms, ==, due_ms);
    CHECK_INT(cron_date(store, "nightly", "last"), ==, at_ms);
    CHECK_INT(cron_date(store, "nightly", "next"), >, now_ms);
    sweep(store);
    CHECK_JOBS(store, 1);
    back(store, "nightly", due_ms);
    sweep(store); /* the recovery pass does so, too */
    CHECK_JOBS(store, 2);
    CHECK_INT(count_json(store, "truce_queue_crons", "{'fired': 2}"), ==, 1);
    truce_job_free(job);
    bson_destroy(array);
    truce_queue_free(queue);
}

TEST(enqueues_one_job_for_each_time)
{
    rig_everywhere(fired);
}

static void missed(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "reports");
    truce_cron_options skip = {.missed = TRUCE_MISSED_SKIP},
                       all = {.missed = TRUCE_MISSED_ALL, .most = 5};
    int64_t hour_ms = truce__clock_wall_ms() / HOUR_MS * HOUR_MS, at_ms = 0;
    bson_error_t error;
    int64_t now_ms;

    set(queue, "once", "30 * * * *", NULL);
    back(store, "once", hour_ms - 48 * HOUR_MS + HOUR_MS / 2);
    sweep(store);
    CHECK_JOBS(store, 1);
    CHECK_INT(cron_date(store, "once", "last"), >=, hour_ms - HOUR_MS / 2);
    CHECK_OK(truce_cron_remove(store, "once", &error), error);
    set(queue, "skip", "@every 1000h", &skip);
    now_ms = truce__clock_wall_ms();
    back(store, "skip", now_ms - 4500 * HOUR_MS);
    sweep(store);
    CHECK_JOBS(store, 1);
    CHECK_INT(cron_date(store, "skip", "next"), ==, now_ms + 500 * HOUR_MS);
    set(queue, "all", "30 * * * *", &all);
    back(store, "all", hour_ms - 48 * HOUR_MS + HOUR_MS / 2);
    sweep(store);
    CHECK_OK(truce_cron_remove(store, "all", &error), error);
    CHECK_JOBS(store, 6);
    for (int i = 0; i < 6; i++) {
        truce_job *job = rig_claim(queue);
        int64_t one_ms;

        REQUIRE(job);
        CHECK(truce__job_date(truce_job_document(job), "cron.at", &one_ms));
        if (i > 1)
            CHECK_INT(one_ms, ==, at_ms + HOUR_MS);
        at_ms = one_ms;
        truce_job_free(job);
    }
    truce_queue_free(queue);
}

TEST(missed_times_make_one_job_or_no_job_or_one_each)
{
    rig_everywhere(missed);
}

static void in_time(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "reports");
    truce_cron_options skip = {.missed = TRUCE_MISSED_SKIP};

    set(queue, "skip", "@every 1000h", &skip);
    back(store, "skip", truce__clock_wall_ms() - 10);
    sweep(store);
    CHECK_INT(count_json(store, "truce_queue_crons", "{'fired': {'$gte': 0}}"), ==, 1);
    CHECK_JOBS(store, cron_date(store, "skip", "last") ? 1 : 0);
    truce_queue_free(queue);
}

TEST(does_not_miss_a_time_that_was_just_reached)
{
    rig_everywhere(in_time);
}

/* ---- the same line again ---- */

static void again(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "reports");
    truce_queue *other = rig_queue(store, setting, "other");
    int64_t past_ms = truce__clock_wall_ms() - 2 * HOUR_MS, next_ms;
    truce_cron_options zone = {.zone = "+05:30"};
    bson_error_t error;

    set(queue, "a", "30 * * * *", NULL);
    back(store, "a", past_ms);
    set(other, "a", "30 * * * *", NULL);
    CHECK_INT(cron_date(store, "a", "next"), ==,
              past_ms); /* a restart of the program does not fire the line again */
    CHECK_INT(count_json(store, "truce_queue_crons", "{'job.queue': 'other'}"), ==, 1);
    set(queue, "a", "31 * * * *", NULL);
    CHECK_INT(cron_date(store, "a", "next"), >, past_ms + 2 * HOUR_MS);
    back(store, "a", past_ms);
    set(queue, "a", "31 * * * *", &zone);
    CHECK_INT(cron_date(store, "a", "next"), >, past_ms + 2 * HOUR_MS);
    CHECK_OK(truce_cron_pause(store, "a", &error), error);
    CHECK_OK(truce_cron_pause(store, "a", &error), error);
    CHECK_INT(cron_date(store, "a", "next"), ==, 0);
    set(queue, "a", "32 * * * *", NULL); /* the pause stays */
    CHECK_INT(cron_date(store, "a", "next"), ==, 0);
    sweep(store);
    CHECK_JOBS(store, 0);
    CHECK_OK(truce_cron_resume(store, "a", &error), error);
    next_ms = cron_date(store, "a", "next");
    CHECK_INT(next_ms, >, past_ms + 2 * HOUR_MS);
    CHECK_OK(truce_cron_resume(store, "a", &error), error);
    CHECK_INT(cron_date(store, "a", "next"), ==, next_ms);
    CHECK_OK(truce_cron_remove(store, "a", &error), error);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_cron_remove(store, "a", &error), error);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_cron_pause(store, "a", &error), error);
    CHECK(strstr(error.message, "the cron line a does not exist"));
    truce_queue_free(other);
    truce_queue_free(queue);
}

TEST(a_replaced_cron_line_keeps_its_next_time_and_its_pause)
{
    rig_everywhere(again);
}

/* ---- many at once ---- */

#define THREADS 4
#define ROUNDS  5

static void *fire(void *arg)
{
    truce_store *store = arg;
    truce_queue_options options = {.queue = "reports", .lease_ms = 600000};
    truce_queue *queue = truce_queue_new(store, &options);
    bson_error_t error;
    truce_job *job = NULL;

    for (int i = 0; i < ROUNDS; i++) {
        truce_sweep_report report;

        truce_status claimed = truce_queue_claim(queue, &job, &error);

        CHECK(!claimed || claimed == TRUCE_NOT_FOUND);
        truce_job_free(job);
        CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    }
    truce_queue_free(queue);
    return NULL;
}

static void raced(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "reports");
    truce_cron_options all = {.missed = TRUCE_MISSED_ALL, .most = 3};
    int64_t past_ms = truce__clock_wall_ms() - 2500 * HOUR_MS;
    pthread_t threads[THREADS];

    set(queue, "a", "@every 1000h", &all);
    set(queue, "b", "@every 1000h", NULL);
    rig_add(queue, "{'n': 1}", NULL);
    back(store, "a", past_ms);
    back(store, "b", past_ms);
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, fire, store), ==, 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    sweep(store);
    CHECK_INT(count_json(store, "truce_queue", "{'cron.name': 'a'}"), ==, 3);
    CHECK_INT(count_json(store, "truce_queue", "{'cron.name': 'b'}"), ==, 1);
    truce_queue_free(queue);
}

TEST(enqueues_one_job_for_each_time_with_many_schedulers)
{
    rig_everywhere(raced);
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void broken(truce_store *store, const struct setting *setting)
{
    static const char *const updates[] = {
        "{'$set': {'line': 'at noon'}}", "{'$set': {'zone': 'Mars'}}",
        "{'$unset': {'job.payload': 1}}", "{'$unset': {'job': 1}}", "{'$unset': {'next': 1}}"};
    truce_queue *queue = rig_queue(store, setting, "reports");
    int64_t past_ms = truce__clock_wall_ms() - 2 * HOUR_MS;
    size_t count = sizeof updates / sizeof *updates;
    truce_check_report report;
    bson_error_t error;
    struct rig_findings found = {"cron", 0};
    char name[8];

    for (size_t i = 0; i < count; i++) {
        bson_t *update = test_bson(updates[i]), *filter;

        bson_snprintf(name, sizeof name, "%zu", i);
        filter = BCON_NEW("_id", BCON_UTF8(name));
        set(queue, name, "@hourly", NULL);
        back(store, name, past_ms);
        CHECK_OK(truce_update(store, "truce_queue_crons", filter, update, NULL, NULL, &error),
                 error);
        bson_destroy(update);
        bson_destroy(filter);
    }
    set(queue, "good", "@every 1000h", NULL);
    back(store, "good", past_ms);
    CHECK_OK(truce_check(store, NULL, rig_count_finding, &found, &report, &error), error);
    CHECK_INT(found.count, ==, (int)count);
    truce_job_free(rig_claim_later(queue)); /* a wrong line stops no other */
    CHECK_INT(count_json(store, "truce_queue", "{'cron.name': 'good'}"), ==, 1);
    CHECK_INT(
        count_json(store, "truce_queue", "{'queue': 'reports', 'payload': {'$exists': true}}"), ==,
        1);
    truce_queue_free(queue);
}

TEST(a_damaged_line_is_found_and_stops_no_other)
{
    rig_everywhere(broken);
}

static void refused(truce_queue *queue, const char *name, const char *line, const bson_t *payload,
                    const truce_cron_options *options, const char *part)
{
    bson_error_t error = {0};
    truce_status status = truce_cron_set(queue, name, line, payload, options, &error);

    CHECK(status == TRUCE_INVALID || status == TRUCE_LIMIT);
    CHECK_INT(strstr(error.message, part) != NULL, ==, 1);
    if (!strstr(error.message, part))
        CHECK_TEXT(part, error.message);
}

static void bad(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "reports"), *nameless;
    truce_job_options delayed = {.delay_ms = 5}, high = {.priority = 2000};
    truce_cron_options many = {.most = 501}, mars = {.zone = "Mars"}, job = {.job = &delayed},
                       priority = {.job = &high}, what = {.missed = (truce_cron_missed)7},
                       room = {.reserved = {1}};
    bson_t *payload = test_bson("{'n': 1}");
    int64_t next_ms;
    bson_error_t error;

    refused(queue, "a", "61 * * * *", payload, NULL, "invalid minute \"61\"");
    refused(queue, "a", "0 0 30 2 *", payload, NULL, "never fires");
    refused(queue, "a", NULL, payload, NULL, "the cron line is missing");
    refused(queue, "", "@daily", payload, NULL, "name");
    refused(queue, NULL, "@daily", payload, NULL, "name");
    refused(queue, "a", "@daily", NULL, NULL, "payload");
    refused(queue, "a", "@daily", payload, &many, "501");
    refused(queue, "a", "@daily", payload, &mars, "\"Mars\"");
    refused(queue, "a", "@daily", payload, &job, "cannot have a delay");
    refused(queue, "a", "@daily", payload, &priority, "priority");
    refused(queue, "a", "@daily", payload, &what, "TRUCE_MISSED_ONCE");
    refused(queue, "a", "@daily", payload, &room, "truce_cron_options");
    nameless = truce_queue_new(store, NULL);
    refused(nameless, "a", "@daily", payload, NULL, "\"queue\"");
    CHECK_INT(count_json(store, "truce_queue_crons", "{}"), ==, 0);
    CHECK_STATUS(TRUCE_INVALID, truce_cron_next("@daily", NULL, INT64_MAX, &next_ms, &error),
                 error);
    CHECK_OK(truce_cron_next("@daily", NULL, 0, &next_ms, &error), error);
    CHECK_INT(next_ms, ==, 24 * HOUR_MS);
    truce_queue_free(nameless);
    bson_destroy(payload);
    truce_queue_free(queue);
}

TEST(refuses_an_invalid_cron_line_and_sets_nothing)
{
    rig_everywhere(bad);
}

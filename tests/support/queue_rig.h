#ifndef TRUCE_TESTS_SUPPORT_QUEUE_RIG_H
#define TRUCE_TESTS_SUPPORT_QUEUE_RIG_H

/* The common part of the tests of the job queue. RIG_LEASE_MS is short, but no test fails if a
 * lease ends later. */
#include "base/clock.h"
#include "patterns/queue/queue.h"
#include "tests/support/bank.h"

#define RIG_LEASE_MS 30

static inline truce_queue *rig_queue(truce_store *store, const struct setting *setting,
                                     const char *name)
{
    truce_queue_options options = {.queue = name,
                                   .worker = "tester",
                                   .lease_ms = 600000,
                                   .mechanism = setting ? setting->mechanism : 0};

    return truce_queue_new(store, &options);
}

/* Returns a queue whose claims expire by themselves, and whose failed jobs are ready again at
 * once. */
static inline truce_queue *rig_hasty(truce_store *store, const struct setting *setting,
                                     const char *name)
{
    truce_queue_options options = {.queue = name,
                                   .worker = "hasty",
                                   .lease_ms = RIG_LEASE_MS,
                                   .attempts_max = 3,
                                   .backoff_ms = 1,
                                   .backoff_max_ms = 1,
                                   .mechanism = setting ? setting->mechanism : 0};

    return truce_queue_new(store, &options);
}

static inline bson_oid_t rig_add(truce_queue *queue, const char *payload,
                                 const truce_job_options *options)
{
    bson_t *document = test_bson(payload);
    truce_job_added added = {0};
    bson_error_t error = {0};

    CHECK_OK(truce_queue_add(queue, NULL, document, options, &added, &error), error);
    bson_destroy(document);
    return added.id;
}

static inline truce_job *rig_claim(truce_queue *queue)
{
    truce_job *job = NULL;
    bson_error_t error = {0};

    CHECK_OK(truce_queue_claim(queue, &job, &error), error);
    return job;
}

/* Claims a job that becomes ready later. Fails the test if this takes more than about a minute. */
static inline truce_job *rig_claim_later(truce_queue *queue)
{
    truce_job *job = NULL;
    bson_error_t error = {0};
    truce_status status = TRUCE_NOT_FOUND;

    for (int i = 0; i < 6000 && status == TRUCE_NOT_FOUND; i++) {
        status = truce_queue_claim(queue, &job, &error);
        if (status == TRUCE_NOT_FOUND)
            truce__clock_sleep_ms(10);
    }
    CHECK_OK(status, error);
    return job;
}

static inline void rig_no_job(truce_queue *queue)
{
    truce_job *job = NULL;
    bson_error_t error = {0};

    CHECK_STATUS(TRUCE_NOT_FOUND, truce_queue_claim(queue, &job, &error), error);
    truce_job_free(job);
}

/* Checks the state of a job. */
static inline void rig_state(truce_queue *queue, const bson_oid_t *id, const char *expected,
                             const char *file, int line)
{
    bson_t job;
    bson_error_t error = {0};

    if (test_check_status(0, truce_queue_get(queue, NULL, id, &job, &error), &error, "get", file,
                          line))
        test_check_text(expected, truce__job_state(&job), file, line);
    bson_destroy(&job);
}

#define CHECK_STATE(expected, queue, id) rig_state(queue, id, expected, __FILE__, __LINE__)

static inline int64_t rig_number(const bson_t *document, const char *path)
{
    bson_iter_t iter, found;

    return bson_iter_init(&iter, document) && bson_iter_find_descendant(&iter, path, &found)
               ? bson_iter_as_int64(&found)
               : -1;
}

/* Counts the findings of truce_check whose rule begins with `rule`. rig_count_finding adds each of
 * them to `count`. */
struct rig_findings {
    const char *rule;
    int count;
};

static inline void rig_count_finding(const bson_t *finding, void *arg)
{
    struct rig_findings *found = arg;
    bson_iter_t iter;

    if (bson_iter_init_find(&iter, finding, "rule") &&
        !strncmp(bson_iter_utf8(&iter, NULL), found->rule, strlen(found->rule)))
        found->count++;
}

/* The effect of the tests: {$inc: {n: 1}} of the document "effect" of "effects". */
static inline truce_status rig_effect(truce_commit *commit, void *arg, bson_error_t *error)
{
    (void)arg;
    return add_update(commit, "effects", "effect", NULL, "{'$inc': {'n': 1}}", error);
}

static inline int64_t rig_effects(truce_store *store)
{
    bson_t *filter = test_bson("{'_id': 'effect'}"), found;
    bson_error_t error = {0};
    int64_t n;

    CHECK_OK(truce_find_one(store, "effects", filter, NULL, &found, &error), error);
    n = rig_number(&found, "n");
    bson_destroy(&found);
    bson_destroy(filter);
    return n;
}

#endif

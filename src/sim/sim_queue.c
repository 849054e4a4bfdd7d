#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/field.h"
#include "sim/sim_run.h"

/*
 * The job queue in the simulator. Workers claim several jobs at once. They are slow, fail, extend
 * their leases, or crash and let the leases expire. Other clients add and cancel jobs. The effect
 * of a job is an entry {job, by: the call, epoch} in the list of one document. A job with an odd
 * number writes it in the commit that ends the job; a job with an even number writes it in a step.
 * After every write:
 *
 *     the effect of a job occurs at most once
 *
 * At the end, a worker without faults runs the remaining jobs. Then every job has ended. A job that
 * is done has its effect, a cancelled job has none, and a refused call has left no effect.
 */

/* The maximum number of waits of the last worker until every job has ended. */
#define WAITS_MAX 5000
/* The number of jobs that one claim takes. */
#define CLAIMED 2
/* The number of jobs at the start. The other jobs have the number 10 + call. */
#define JOBS 3

enum { WORK, WORK_SLOWLY, EXTEND, FAIL, ADD, CANCEL, CALLS };

static truce_queue *queue_on(truce_store *store)
{
    return truce_queue_new(store, &(truce_queue_options){.queue = "q",
                                                         .worker = "w",
                                                         .lease_ms = LEASE_MS,
                                                         .attempts_max = 1000,
                                                         .backoff_ms = 1,
                                                         .backoff_max_ms = 1,
                                                         .deadline_ms = DEADLINE_MS});
}

/* Makes the id of the job with this number. */
static bson_oid_t queue_id_of(int job)
{
    bson_oid_t id;
    uint8_t bytes[12] = {0};

    bytes[11] = (uint8_t)job;
    bson_oid_init_from_data(&id, bytes);
    return id;
}

static truce_status sim_queue_add_job(truce_queue *queue, int job, bson_error_t *error)
{
    bson_t *payload = BCON_NEW("job", BCON_INT32(job));
    const bson_oid_t id = queue_id_of(job);
    truce_status status =
        truce_queue_add(queue, NULL, payload, &(truce_job_options){.id = &id}, NULL, error);

    bson_destroy(payload);
    return status;
}

static void queue_begin_queue(struct run *run)
{
    truce_queue *queue = queue_on(run->inner);
    bson_error_t error;

    for (int job = 1; job <= JOBS; job++)
        truce_assert(!sim_queue_add_job(queue, job, &error));
    truce_queue_free(queue);
}

/* ---- calling --------------------------------------------------------------------------------- */

struct work {
    int job, txn;
    int64_t epoch;
};

/* Reads the plain writers' field and writes it back. */
static truce_status sim_queue_write_effect(truce_commit *commit, void *arg, bson_error_t *error)
{
    const bson_value_t id = {.value_type = BSON_TYPE_INT32, .value = {.v_int32 = 1}};
    const struct work *work = arg;
    bson_t *update = BCON_NEW("$push", "{", "done", "{", "job", BCON_INT32(work->job), "by",
                              BCON_INT32(work->txn), "epoch", BCON_INT64(work->epoch), "}", "}");
    bson_t read;
    truce_status status = truce_commit_read(commit, "effects", &id, &read, error);

    if (!status)
        BCON_APPEND(update, "$set", "{", "p", BCON_INT64(truce__field_number(&read, "p")), "}");
    if (!status)
        status = truce_commit_update(commit, "effects", &id, NULL, update, error);
    bson_destroy(&read);
    bson_destroy(update);
    return status;
}

static truce_status queue_step(truce_commit *commit, void *arg, bson_t *result, bson_error_t *error)
{
    (void)result;
    return sim_queue_write_effect(commit, arg, error);
}

static truce_status queue_nothing(truce_commit *commit, void *arg, bson_error_t *error)
{
    (void)commit;
    (void)arg;
    (void)error;
    return TRUCE_OK;
}

static truce_status queue_do_job(truce_job *job, int txn, bson_error_t *error)
{
    struct work work = {(int)truce__field_number(truce_job_payload(job), "job"), txn,
                        truce_job_epoch(job)};
    truce_status status = TRUCE_OK;
    bson_t result = BSON_INITIALIZER;

    if (work.job % 2)
        return truce_job_commit(job, sim_queue_write_effect, &work, NULL, error);
    bson_destroy(&result);
    status = truce_job_step(job, "effect", queue_step, &work, &result, error);
    bson_destroy(&result);
    return status ? status : truce_job_commit(job, queue_nothing, NULL, NULL, error);
}

/* Claims several jobs. Returns NOT_FOUND if there has been none for a while. */
static truce_status sim_queue_claim(truce_queue *queue, truce_job **jobs, size_t *count,
                                    bson_error_t *error)
{
    truce_status status = truce_queue_claim_many(queue, CLAIMED, jobs, count, error);

    for (int i = 0; status == TRUCE_NOT_FOUND && i < 3; i++) {
        truce__clock_sleep_ms(LEASE_MS + 1);
        status = truce_queue_claim_many(queue, CLAIMED, jobs, count, error);
    }
    return status;
}

/* Extends the jobs of a claim and abandons them, so that their leases expire. */
static void queue_abandon(truce_job **jobs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bson_error_t ignored;

        if (!truce_job_extend(jobs[i], &ignored))
            truce__clock_sleep_ms(1);
        truce_job_free(jobs[i]);
    }
}

/* Claims jobs, works on the first one, and abandons the others. A slow worker sleeps past its lease
 * before it ends the job. */
static truce_status queue_work(struct client *client, truce_queue *queue, int call, int txn,
                               bson_error_t *error)
{
    truce_job *jobs[CLAIMED] = {NULL}, *job;
    size_t count = 0;
    truce_status status = sim_queue_claim(queue, jobs, &count, error);

    if (status)
        return status;
    job = jobs[0];
    client->run->patterns.about[txn] = truce__field_number(truce_job_payload(job), "job");
    queue_abandon(jobs + 1, count - 1);
    if (call == WORK_SLOWLY || call == EXTEND)
        truce__clock_sleep_ms(3 * LEASE_MS);
    if (call == EXTEND)
        status = truce_job_extend(job, error);
    if (!status)
        status = call == FAIL ? truce_job_fail(job, NULL, "no", 0, error)
                              : queue_do_job(job, txn, error);
    truce_job_free(job);
    return status;
}

static truce_status call_queue(struct client *client, int call, int txn, bson_error_t *error)
{
    truce_queue *queue = queue_on(&client->store);
    const bson_oid_t cancelled = queue_id_of(1 + txn % JOBS);
    truce_status status;

    if (call == ADD)
        status = sim_queue_add_job(queue, 10 + txn, error);
    else if (call == CANCEL)
        status = truce_queue_cancel(queue, NULL, &cancelled, error);
    else
        status = queue_work(client, queue, call, txn, error);
    if (status == TRUCE_INVALID) /* INVALID means that the job has ended, which is allowed. */
        status = TRUCE_CONFLICT;
    truce_queue_free(queue);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Returns whether no other claim happened after the claim that ended the job. */
static bool is_by_the_last(const bson_t *document, int64_t job, int64_t epoch)
{
    struct value list = truce__value_field(truce__value_document(document), "done", 4);
    bool last = true;

    for (struct fields fields = truce__fields(list); truce__fields_next(&fields);) {
        bson_t entry;

        truce__value_bson(fields.value, &entry);
        if (truce__field_number(&entry, "job") == job)
            last = last && truce__field_number(&entry, "epoch") == epoch;
    }
    return last;
}

/* Counts the entries of a job by a call, or by any call if it is -1. */
static int effects_of(const bson_t *document, int64_t job, int64_t by)
{
    struct value list = truce__value_field(truce__value_document(document), "done", 4);
    int count = 0;

    for (struct fields fields = truce__fields(list); truce__fields_next(&fields);) {
        bson_t entry;

        truce__value_bson(fields.value, &entry);
        count += (job < 0 || truce__field_number(&entry, "job") == job) &&
                 (by < 0 || truce__field_number(&entry, "by") == by);
    }
    return count;
}

static void observe_effects(struct run *run, const bson_t *document)
{
    for (int job = 1; job < 10 + SIM_TXNS; job++) {
        if (effects_of(document, job, -1) > 1)
            truce__sim_fail(run, "the effect of a job occurs twice", document);
    }
}

static bool are_live(struct run *run)
{
    bson_t *filter = BCON_NEW("undone", "{", "$exists", BCON_BOOL(true), "}");
    bson_error_t error;
    int64_t count = 0;

    truce_assert(!truce_count(run->inner, "truce_queue", filter, NULL, &count, &error));
    bson_destroy(filter);
    return count > 0;
}

/* Runs a worker without faults. It waits for delayed jobs and for leases. */
static void work_off(struct run *run)
{
    truce_queue *queue = queue_on(run->inner);
    truce_job *job;
    bson_error_t error;

    for (int i = 0; i < WAITS_MAX && are_live(run); i++) {
        if (truce_queue_claim(queue, &job, &error)) {
            truce__clock_sleep_ms(LEASE_MS);
        } else {
            truce_assert(!queue_do_job(job, SIM_TXNS, &error));
            truce_job_free(job);
        }
    }
    truce_queue_free(queue);
}

/* Checks that a job has ended and that its effect agrees with its state. If `must`, the job has to
 * exist. */
static void sim_check_job(struct run *run, const bson_t *document, int job, bool must)
{
    const bson_oid_t id = queue_id_of(job);
    truce_queue *queue = queue_on(run->inner);
    bson_error_t error;
    bson_t found;
    truce_status status = truce_queue_get(queue, NULL, &id, &found, &error);
    const char *state = status ? "" : truce__field_text(&found, "state");
    int effects = effects_of(document, job, -1);

    if (status && (must || effects))
        truce__sim_fail(run, "a job is lost", document);
    else if (!strcmp(state, "done") ? effects != 1 : effects && strcmp(state, "cancelled") != 0)
        truce__sim_fail(run, "a job and its effect are not consistent", &found);
    else if (!status && job % 2 &&
             !is_by_the_last(document, job, truce__field_number(&found, "epoch")))
        truce__sim_fail(run, "a worker that lost its job ended it", &found);
    else if (!status && strcmp(state, "done") != 0 && strcmp(state, "cancelled") != 0)
        truce__sim_fail(run, "a job never ends", &found);
    else if (!strcmp(state, "cancelled") && job % 2 && effects)
        truce__sim_fail(run, "a cancelled job has an effect", &found);
    bson_destroy(&found);
    truce_queue_free(queue);
}

static void sim_check_call(struct run *run, const bson_t *document, int txn)
{
    const struct sim_patterns *patterns = &run->patterns;
    int call = run->history.txns[txn].script->call;
    int64_t job = patterns->about[txn];
    bool in = patterns->calls[txn].in;
    int left = effects_of(document, -1, txn);

    if (call == ADD)
        sim_check_job(run, document, 10 + txn, patterns->calls[txn].known && in);
    if (!patterns->calls[txn].known || call > EXTEND || !(job % 2))
        return;
    if (in != (left == 1))
        truce__sim_fail(run, in ? "an effect is lost" : "a refused worker has left an effect",
                        document);
}

/* Works off the queue, and checks the effects of all jobs and calls. Ignores `document`, which was
 * read before work_off. */
static void sim_check_queue(struct run *run, const bson_t *document)
{
    bson_t *filter = BCON_NEW("_id", BCON_INT32(1)), now;
    bson_error_t error;

    (void)document;
    work_off(run);
    truce_assert(!truce_find_one(run->inner, "effects", filter, NULL, &now, &error));
    for (int job = 1; job <= JOBS; job++)
        sim_check_job(run, &now, job, true);
    for (int t = 0; t < run->history.txns_count; t++) {
        if (run->patterns.calls[t].begun)
            sim_check_call(run, &now, t);
    }
    bson_destroy(&now);
    bson_destroy(filter);
}

const struct sim_pattern truce__sim_queue = {
    .collection = "effects",
    .document = "{\"_id\": 1, \"done\": []}",
    .calls = CALLS,
    .positions = 1,
    .begin = queue_begin_queue,
    .call = call_queue,
    .observe = observe_effects,
    .check = sim_check_queue,
};

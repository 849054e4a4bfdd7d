/*
 * Claiming: one job by one find-and-modify along the claims' index,
 *
 *     {undone.state: "ready", undone.queue, _intent: absent}, by undone.rank, undone.at
 *     -> running, undone: {state, rank: 0, at: the lease's end}, lease, epoch + 1, attempt + 1, _rev: fresh
 *
 * The sections below claim through a gate, claim several jobs at once, combine the claims of threads,
 * and promote delayed jobs and jobs of dead workers.
 *
 * A claim without an answer is looked for by its token, among the running jobs, which are few. If it is not
 * there it may land later: then its lease ends like that of a worker that died (models/queue.cpp, late claims).
 * It is never sent again under the same token.
 *
 * A job that waits for its time or for its worker's return is no concern of the index's order: delayed and running
 * ones stand apart, by undone.state. So a claim takes the first entry of a range, however many jobs there are.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/id.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/patience.h"
#include "bson/field_names.h"
#include "bson/value.h"
#include "commit/lease_watch.h"
#include "commit/metadata_cache.h"
#include "patterns/queue/queue.h"
#include "store/maintenance.h"
#include "store/store.h"

/* ---- claims through a gate ------------------------------------------------------------------- */

/*
 * Claiming through a gate (rate_limit.c): a look for the first jobs that are ready, then for one of them
 *
 *     a commit that read: the gate, which has room; the job, which is ready
 *     -> the gate counts it; the job is running, its lease names the gate
 *
 * Where the gate has no room nothing is begun: a full queue costs its workers two reads.
 */

#define LOOKED_AT 16
#define CLAIM_NS  INT64_C(5000000000) /* in which jobs that were missed are passed over */

struct entering {
    truce_queue *queue;
    const bson_value_t *gate;
    bson_value_t id;
    bson_oid_t token;
    bson_t job;   /* as it is then */
    bool missed;  /* it was not ready any more, or: */
    bool put_off; /* by the rate of its lane */
};

static void job_ready(const truce_queue *queue, bson_t *filter);
static bson_t *job_order(void);
static void job_append_lease(const truce_queue *queue, const bson_oid_t *token,
                             const bson_value_t *gate, int64_t now_ms, bson_t *set);
static void job_claims(const truce_queue *queue, const bson_oid_t *token, const bson_value_t *gate,
                       bson_t *update);
static truce_status job_check_found(const bson_t *document, bson_error_t *error);
static truce_status queue_claim_one(truce_queue *queue, truce_job **job, bson_error_t *error);

static bool is_ready(const truce_queue *queue, const bson_t *job)
{
    return !strcmp(truce__job_state(job), "ready") &&
           !strcmp(truce__field_text(job, "queue"), queue->name);
}

static truce_status gated_put_off(truce_commit *commit, const struct entering *entering,
                                  const bson_t *job, int64_t wait_ms, bson_error_t *error)
{
    int64_t now_ms = truce__clock_wall_ms();
    bson_t update = BSON_INITIALIZER, set;
    truce_status status;

    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    truce__job_waits(&set, entering->queue->name, (int32_t)truce__field_number(job, "priority"),
                     truce__job_date_after(now_ms, wait_ms), now_ms);
    bson_append_document_end(&update, &set);
    status = truce_commit_update(commit, QUEUE, &entering->id, NULL, &update, error);
    bson_destroy(&update);
    return status;
}

static truce_status enter_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct entering *entering = arg;
    int64_t wait_ms;
    bson_t job, update = BSON_INITIALIZER;
    truce_status status = truce_commit_read(commit, QUEUE, &entering->id, &job, error);

    entering->missed = status == TRUCE_NOT_FOUND || (!status && !is_ready(entering->queue, &job));
    if (entering->missed)
        status = truce__fail(TRUCE_NOT_FOUND, error, "the job is not ready any more");
    if (!status)
        status = truce__lane_begin(commit, &job, &wait_ms, error);
    entering->put_off = !status && wait_ms;
    if (entering->put_off) {
        status = gated_put_off(commit, entering, &job, wait_ms, error);
        goto out;
    }
    if (!status)
        status = truce__gate_enter(commit, entering->gate, error);
    if (!status) {
        job_claims(entering->queue, &entering->token, entering->gate, &update);
        status = truce_commit_update(commit, QUEUE, &entering->id, NULL, &update, error);
    }
    if (!status) {
        bson_destroy(&entering->job);
        status = truce_commit_read(commit, QUEUE, &entering->id, &entering->job, error);
    }
out:
    bson_destroy(&update);
    bson_destroy(&job);
    return status;
}

/* NOT_FOUND: there is no room, or (*missed) the job was not ready any more. */
static truce_status gated_enter(truce_queue *queue, const bson_value_t *gate,
                                const bson_value_t *id, truce_job **job, bool *missed,
                                bson_error_t *error)
{
    struct entering entering = {.queue = queue, .gate = gate, .id = *id, .job = BSON_INITIALIZER};
    truce_status status;

    truce__id_new(&entering.token);
    status = truce__queue_run(queue, NULL, enter_in, &entering, error);
    *missed = entering.missed || entering.put_off;
    if (!status && entering.put_off)
        status = TRUCE_NOT_FOUND;
    if (!status)
        *job = truce__job_new(queue, &entering.job, &entering.token);
    bson_destroy(&entering.job);
    return status;
}

/* The ids of the first jobs that are ready, as documents that the caller destroys. */
static truce_status gated_look(truce_queue *queue, bson_t **found, size_t *count,
                               bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, *sort = job_order(),
           *projection = BCON_NEW("_id", BCON_INT32(1));
    truce_find_options options = {
        .sort = sort, .projection = projection, .limit = LOOKED_AT, .early = true};
    truce_cursor *cursor = NULL;
    const bson_t *one = NULL;
    truce_status status;

    *count = 0;
    job_ready(queue, &filter);
    status = truce_find(queue->store, QUEUE, &filter, &options, &cursor, error);
    while (!status && *count < LOOKED_AT) {
        status = truce_cursor_next(cursor, &one, error);
        if (status || !one)
            break;
        found[(*count)++] = bson_copy(one);
    }
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    bson_destroy(projection);
    bson_destroy(sort);
    return status;
}

/* *again: all that were seen were missed, and there may be others. */
static truce_status gated_claim_some(truce_queue *queue, const bson_value_t *gate, size_t most,
                                     truce_job **jobs, size_t *count, bool *again,
                                     bson_error_t *error)
{
    bson_t *found[LOOKED_AT];
    size_t looked_at;
    truce_status status = gated_look(queue, found, &looked_at, error);
    bool full = false;

    *again = looked_at == LOOKED_AT;

    for (size_t i = 0; i < looked_at; i++) {
        bson_value_t id = truce__document_id(found[i]);
        bool missed = false;

        if (!status && !full && *count < most) {
            status = gated_enter(queue, gate, &id, &jobs[*count], &missed, error);
            *count += !status;
            full = status == TRUCE_NOT_FOUND && !missed;
            *again = *again && missed;
            if (status == TRUCE_NOT_FOUND)
                status = TRUCE_OK;
        }
        bson_destroy(found[i]);
    }
    return status;
}

/* As try_claim; *gated false: the queue has no limit. */
static truce_status queue_claim_gated(truce_queue *queue, size_t most, truce_job **jobs,
                                      size_t *count, bool *gated, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(queue->name)), settings, gate = BSON_INITIALIZER;
    truce_status status =
        truce_find_one(queue->store, QUEUE_SETTINGS, filter, NULL, &settings, error);
    int64_t until_ns = truce__clock_monotonic_ns() + CLAIM_NS;
    bson_iter_t iter;
    bool again;

    *gated = !status && bson_iter_init_find(&iter, &settings, "gate");
    if (*gated) {
        bson_reinit(filter);
        BSON_APPEND_VALUE(filter, "_id", bson_iter_value(&iter));
        bson_destroy(&gate);
        status = truce_find_one(queue->store, QUEUE_GATES, filter, NULL, &gate, error);
        *gated = status != TRUCE_NOT_FOUND;
    }
    again = !status && *gated && truce__gate_has_room(queue->store, &gate);
    while (!status && again && truce__clock_monotonic_ns() < until_ns)
        status = gated_claim_some(queue, bson_iter_value(&iter), most, jobs, count, &again, error);
    bson_destroy(&gate);
    bson_destroy(&settings);
    bson_destroy(filter);
    if (status == TRUCE_NOT_FOUND) /* there is no limit */
        status = TRUCE_OK;
    return status || *count || !*gated ? status : TRUCE_NOT_FOUND;
}

/* ---- several at once ------------------------------------------------------------------------- */

/*
 * Claiming several at once: a look for the first jobs that are ready, then
 *
 *     inside the store's write, where it can    each job that is ready still -> running (truce/sys/store.h, rewrite)
 *     elsewhere                                 one bulk of guarded updates, of which those that took are found by the token
 *
 * Both write what a single claim writes. A job that somebody else was faster with is passed over, and so is one
 * that a commit holds. Without an answer what took is looked for, as after the bulk.
 */

struct several {
    truce_queue *queue;
    bson_t *ids; /* {_id} of those that were seen */
    size_t seen;
    bson_oid_t token;
    truce_job **jobs;
    size_t count;
};

/* ---- looking ------------------------------------------------------------------------------------ */

static truce_status many_look(struct several *several, size_t most, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, *sort = job_order(),
           *projection = BCON_NEW("_id", BCON_INT32(1));
    truce_find_options options = {
        .sort = sort, .projection = projection, .limit = (int64_t)most, .early = true};
    truce_cursor *cursor = NULL;
    const bson_t *found = NULL;
    truce_status status;

    job_ready(several->queue, &filter);
    status = truce_find(several->queue->store, QUEUE, &filter, &options, &cursor, error);
    while (!status && several->seen < most) {
        status = truce_cursor_next(cursor, &found, error);
        if (status || !found)
            break;
        status = job_check_found(found, error);
        if (!status)
            bson_copy_to(found, &several->ids[several->seen++]);
    }
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    bson_destroy(projection);
    bson_destroy(sort);
    return status;
}

/* ---- inside the store's write --------------------------------------------------------------------- */

struct claiming {
    truce_rewrite base; /* first */
    const struct several *several;
    int64_t now_ms;
    bson_t *made;
    bool *took; /* made[i] is there */
};

static void many_drop(struct claiming *claiming, size_t number)
{
    if (claiming->took[number])
        bson_destroy(&claiming->made[number]);
    claiming->took[number] = false;
}

static void begin_claiming(truce_rewrite *rewrite)
{
    for (size_t i = 0; i < rewrite->count; i++)
        many_drop((struct claiming *)rewrite, i);
}

static bool is_whole_number(const bson_t *job, const char *field)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, job, field) &&
           (BSON_ITER_HOLDS_INT32(&iter) || BSON_ITER_HOLDS_INT64(&iter));
}

/* One that truce did not make is left to a claim of it alone. */
static bool can_be_claimed(const truce_queue *queue, const bson_t *job)
{
    bson_t undone;

    return truce__intent_absent(job) && !strcmp(truce__job_state(job), "ready") &&
           truce__value_subdocument(job, "undone", &undone) &&
           !strcmp(truce__field_text(&undone, "state"), "ready") &&
           !strcmp(truce__field_text(&undone, "queue"), queue->name) &&
           is_whole_number(job, "epoch") && is_whole_number(job, "attempt");
}

static void append_counted(bson_t *after, const bson_iter_t *field)
{
    if (BSON_ITER_HOLDS_INT32(field))
        BSON_APPEND_INT32(after, bson_iter_key(field), bson_iter_int32(field) + 1);
    else
        BSON_APPEND_INT64(after, bson_iter_key(field), bson_iter_as_int64(field) + 1);
}

/* As job_claims without a gate. */
static void many_append_claimed(const struct claiming *claiming, const bson_t *before,
                                bson_t *after)
{
    const truce_queue *queue = claiming->several->queue;
    bson_iter_t field;

    for (bool some = bson_iter_init(&field, before); some && bson_iter_next(&field);) {
        const char *key = bson_iter_key(&field);

        if (!strcmp(key, "state"))
            BSON_APPEND_UTF8(after, key, "running");
        else if (!strcmp(key, "undone"))
            BCON_APPEND(after, key, "{", "state", BCON_UTF8("running"), "queue",
                        BCON_UTF8(queue->name), "rank", BCON_INT32(0), "at",
                        BCON_DATE_TIME(claiming->now_ms + queue->lease_ms), "}");
        else if (!strcmp(key, "epoch") || !strcmp(key, "attempt"))
            append_counted(after, &field);
        else if (strcmp(key, "lease") != 0 && strcmp(key, "_rev") != 0)
            bson_append_iter(after, NULL, 0, &field);
    }
    BSON_APPEND_OID(after, "_rev", &claiming->several->token);
    job_append_lease(queue, &claiming->several->token, NULL, claiming->now_ms, after);
}

static bool make_claimed(truce_rewrite *rewrite, size_t number, const bson_t *before, bson_t *after)
{
    struct claiming *claiming = (struct claiming *)rewrite;

    if (!before || !can_be_claimed(claiming->several->queue, before))
        return false;
    many_append_claimed(claiming, before, after);
    bson_copy_to(after, &claiming->made[number]);
    claiming->took[number] = true;
    return true;
}

static void refuse_claimed(truce_rewrite *rewrite, size_t number, truce_status status,
                           const bson_error_t *error)
{
    (void)status, (void)error; /* a claim of this job alone says why */
    many_drop((struct claiming *)rewrite, number);
}

/* NOT_FOUND: the store cannot. */
static truce_status rewrite_all(struct several *several, bson_error_t *error)
{
    truce_store *store = several->queue->store;
    const bson_t **keys = bson_malloc(several->seen * sizeof *keys);
    struct claiming claiming = {
        .base = {.collection = QUEUE,
                 .keys = keys,
                 .count = several->seen,
                 .begin = begin_claiming,
                 .make = make_claimed,
                 .refuse = refuse_claimed,
                 .relaxed = (store->capabilities & TRUCE_CAN_KEEP_ORDER) != 0},
        .several = several,
        .now_ms = truce__clock_wall_ms()};
    truce_status status;

    claiming.made = bson_malloc(several->seen * sizeof *claiming.made);
    claiming.took = bson_malloc0(several->seen * sizeof *claiming.took);
    for (size_t i = 0; i < several->seen; i++)
        keys[i] = &several->ids[i];
    status = truce__store_rewrite(store, &claiming.base, error);
    for (size_t i = 0; i < several->seen; i++) {
        if (!status && claiming.took[i])
            several->jobs[several->count++] =
                truce__job_new(several->queue, &claiming.made[i], &several->token);
        many_drop(&claiming, i);
    }
    bson_free(claiming.took);
    bson_free(claiming.made);
    bson_free(keys);
    return status;
}

/* ---- by guarded updates --------------------------------------------------------------------------- */

static truce_status update_all(struct several *several, bson_error_t *error)
{
    truce_queue *queue = several->queue;
    truce_bulk_options options = {.unordered = true,
                                  .relaxed =
                                      (queue->store->capabilities & TRUCE_CAN_KEEP_ORDER) != 0,
                                  .deadline_ms = queue->deadline_ms};
    size_t count = several->seen;
    truce_write *writes = bson_malloc0(count * sizeof *writes);
    truce_write_outcome *outcomes = bson_malloc0(count * sizeof *outcomes);
    bson_t *filters = bson_malloc(count * sizeof *filters), update = BSON_INITIALIZER;
    truce_status status;

    job_claims(queue, &several->token, NULL, &update);
    for (size_t i = 0; i < count; i++) {
        bson_copy_to(&several->ids[i], &filters[i]);
        job_ready(queue, &filters[i]);
        writes[i] = (truce_write){TRUCE_WRITE_UPDATE, QUEUE, &filters[i], &update};
    }
    status = truce_bulk(queue->store, writes, count, &options, outcomes, error);
    for (size_t i = 0; i < count; i++) {
        truce_write_result_release(&outcomes[i].result);
        bson_destroy(&filters[i]);
    }
    bson_free(filters);
    bson_free(outcomes);
    bson_free(writes);
    bson_destroy(&update);
    return status;
}

static int by_place(const void *a, const void *b)
{
    const truce_job *left = *(truce_job *const *)a, *right = *(truce_job *const *)b;
    int64_t x = truce__field_number(&left->document, "priority");
    int64_t y = truce__field_number(&right->document, "priority");

    return x != y ? (x > y ? -1 : 1) : bson_oid_compare(&left->id, &right->id);
}

/* {_id: {$in: those that were seen}, state: "running", lease.token} */
static void claimed_filter(const struct several *several, bson_t *filter)
{
    bson_t id, in;

    BSON_APPEND_DOCUMENT_BEGIN(filter, "_id", &id);
    BSON_APPEND_ARRAY_BEGIN(&id, "$in", &in);
    for (size_t i = 0; i < several->seen; i++) {
        bson_value_t value = truce__document_id(&several->ids[i]);
        char text[16];
        const char *key;

        bson_uint32_to_string((uint32_t)i, &key, text, sizeof text);
        BSON_APPEND_VALUE(&in, key, &value);
    }
    bson_append_array_end(&id, &in);
    bson_append_document_end(filter, &id);
    BCON_APPEND(filter, "state", BCON_UTF8("running"), "lease.token", BCON_OID(&several->token));
}

static truce_status many_collect(struct several *several, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER;
    truce_find_options options = {.limit = (int64_t)several->seen, .early = true};
    truce_cursor *cursor = NULL;
    const bson_t *found = NULL;
    truce_status status;

    claimed_filter(several, &filter);
    status = truce_find(several->queue->store, QUEUE, &filter, &options, &cursor, error);
    while (!status && several->count < several->seen) {
        status = truce_cursor_next(cursor, &found, error);
        if (status || !found)
            break;
        several->jobs[several->count++] = truce__job_new(several->queue, found, &several->token);
    }
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    qsort(several->jobs, several->count, sizeof *several->jobs, by_place);
    return several->count ? TRUCE_OK : status;
}

/* ---- the claim ------------------------------------------------------------------------------------ */

static truce_status claim_all(struct several *several, bson_error_t *error)
{
    truce_status status = TRUCE_NOT_FOUND;
    bool told = false;

    truce__id_new(&several->token);
    if (several->queue->store->capabilities & TRUCE_CAN_REWRITE) {
        status = rewrite_all(several, error);
        told = !status;
    }
    if (status == TRUCE_NOT_FOUND)
        status = update_all(several, error);
    if (truce__unanswered(status)) /* what took is looked for */
        status = TRUCE_OK;
    return status || told ? status : many_collect(several, error);
}

/* NOT_FOUND: none is ready. OK with *count 0: others were faster. Not through a gate. */
static truce_status queue_claim_several(truce_queue *queue, size_t most, truce_job **jobs,
                                        size_t *count, bson_error_t *error)
{
    struct several several = {.queue = queue, .jobs = jobs};
    truce_status status;

    several.ids = bson_malloc(most * sizeof *several.ids);
    status = many_look(&several, most, error);
    if (!status && !several.seen)
        status = TRUCE_NOT_FOUND;
    if (!status)
        status = claim_all(&several, error);
    *count = several.count;
    for (size_t i = 0; i < several.seen; i++)
        bson_destroy(&several.ids[i]);
    bson_free(several.ids);
    return status;
}

/* ---- combined claims of threads -------------------------------------------------------------- */

/*
 * Threads of one handle that claim at once: one of them claims for all.
 *
 *     claim     waits in the line; the first in it leads, if nobody does
 *     leader    takes the line, and claims as many jobs as stand in it in one read and one write;
 *               wakes those that it claimed for, and the first of the rest, who leads next
 *
 * So a crowd does not look for the same first job, and its claims share what a write costs. Nobody waits for a line to
 * fill: who comes alone claims alone. Only where jobs are claimed inside the store's write; a server does
 * better with claims side by side. Safety owes nothing to this.
 *
 * A child of a fork has the line as it stood, and none of those who stand in it: it claims alone.
 */

#define MOST  64
#define TRIES 4

struct claimer {
    struct claimer *next;
    pthread_cond_t wake;
    truce_job *job;
    truce_status status;
    bson_error_t error;
    bool done;
};

void truce__crowd_begin(struct queue_crowd *crowd)
{
    *crowd = (struct queue_crowd){.process = getpid()};
    pthread_mutex_init(&crowd->mutex, NULL);
}

void truce__crowd_end(struct queue_crowd *crowd)
{
    pthread_mutex_destroy(&crowd->mutex);
}

static bool crowd_may_form(const truce_queue *queue)
{
    return (queue->store->capabilities & TRUCE_CAN_REWRITE) && queue->crowd.process == getpid();
}

/* Those that get none are told why. */
static void claim_for(truce_queue *queue, struct claimer *first, size_t count)
{
    truce_job *jobs[MOST];
    bson_error_t error = {0};
    truce_status status = TRUCE_OK;

    for (int i = 0; i < TRIES && count > 1 && !status; i++) {
        size_t claimed;

        status = queue_claim_several(queue, count, jobs, &claimed, &error);
        for (size_t k = 0; k < claimed; k++, first = first->next, count--)
            first->job = jobs[k];
    }
    for (; first; first = first->next) {
        if (!status)
            status = queue_claim_one(queue, &first->job, &error);
        first->status = status;
        first->error = error;
    }
}

/* With the mutex held; it is given up meanwhile. */
static void crowd_lead(truce_queue *queue)
{
    struct queue_crowd *crowd = &queue->crowd;
    struct claimer *first = crowd->first, *last = first, *next;
    size_t count = 1;

    for (; last->next && count < MOST; count++)
        last = last->next;
    crowd->first = last->next;
    if (!crowd->first)
        crowd->last = NULL;
    last->next = NULL;
    crowd->led = true;
    pthread_mutex_unlock(&crowd->mutex);
    claim_for(queue, first, count);
    pthread_mutex_lock(&crowd->mutex);
    crowd->led = false;
    for (; first; first = next) {
        next = first->next;
        first->done = true;
        pthread_cond_signal(&first->wake);
    }
    if (crowd->first)
        pthread_cond_signal(&crowd->first->wake);
}

/* As queue_claim_one, by whoever leads. */
static truce_status crowd_claim(truce_queue *queue, truce_job **job, bson_error_t *error)
{
    struct queue_crowd *crowd = &queue->crowd;
    struct claimer own = {0};

    pthread_cond_init(&own.wake, NULL);
    pthread_mutex_lock(&crowd->mutex);
    if (crowd->last)
        crowd->last->next = &own;
    else
        crowd->first = &own;
    crowd->last = &own;
    while (!own.done && (crowd->led || crowd->first != &own))
        pthread_cond_wait(&own.wake, &crowd->mutex);
    if (!own.done)
        crowd_lead(queue);
    pthread_mutex_unlock(&crowd->mutex);
    pthread_cond_destroy(&own.wake);
    *job = own.job;
    if (own.status && error)
        *error = own.error;
    return own.status;
}

/* ---- due jobs and ended leases --------------------------------------------------------------- */

/*
 * What stands between a job and its claim: its time, and a worker that is gone. Claimers do both on their way,
 * the sweep does it for queues that nobody claims from.
 *
 *     delayed, due        {_id, undone.state: "delayed", undone.at and priority as read, _intent: absent}
 *                         -> ready; undone.rank is -priority in both states
 *     lease over (L4)     a commit that read: running, token and undone.at as watched -> as after a failure
 *
 * Which leases are looked at: those that ended by this clock, and those that end later than a new one would. The latter are of
 * workers whose clocks are ahead. All others will be among the former in time. A pass looks at up to 1,000 of them, and the next
 * one continues there: leases of workers whose clocks are behind hide no others.
 *
 * Both may be done by any process, any number of times, at any time.
 *
 * Delayed jobs are promoted in the order of their priorities, a batch at a time, and a claim promotes as many as it takes
 * before it takes them. So if thousands become due at once, a claim takes the same jobs as if all were ready.
 */

#define BATCH              TRUCE__QUEUE_PROMOTED_MOST
#define RANK_BEFORE        (-JOB_PRIORITY_MAX - 1)
#define LEASES_SEEN        1000 /* in one pass */
#define PASS_MS            250  /* of a pass, at most: its caller wants a job */
#define DAY_MS             INT64_C(86400000)
#define NS_IN_MS           INT64_C(1000000)
#define RESCUE_DEADLINE_MS 50 /* a job that a commit holds is for the next time */

/* Appends what a query finds to the list, until it has a batch; the caller destroys each. */
static truce_status promote_gather(truce_store *store, const bson_t *filter, const bson_t *sort,
                                   bson_t **found, size_t *count, bson_error_t *error)
{
    truce_find_options options = {.limit = (int64_t)(BATCH - *count), .sort = sort};
    truce_cursor *cursor = NULL;
    const bson_t *job = NULL;
    truce_status status = truce_find(store, QUEUE, filter, &options, &cursor, error);

    while (!status && *count < BATCH) {
        status = truce_cursor_next(cursor, &job, error);
        if (status || !job)
            break;
        found[(*count)++] = bson_copy(job);
    }
    truce_cursor_close(cursor);
    return status;
}

/* ---- delayed jobs by their ranks ------------------------------------------------------------------ */

/* *rank: the next rank above it that a delayed job of the queue has, and the first time of such a job. NOT_FOUND: none. */
static truce_status next_rank(truce_store *store, const char *queue, int64_t *rank, int64_t *at_ms,
                              bson_error_t *error)
{
    bson_t *filter = BCON_NEW("undone.state", BCON_UTF8("delayed"), "undone.queue",
                              BCON_UTF8(queue), "undone.rank", "{", "$gt", BCON_INT64(*rank), "}"),
           *sort = job_order(), job, undone;
    const truce_find_options options = {.sort = sort, .early = true};
    truce_status status = truce_find_one(store, QUEUE, filter, &options, &job, error);

    if (!status && truce__value_subdocument(&job, "undone", &undone) &&
        truce__field_number(&undone, "rank") > *rank)
        *rank = truce__field_number(&undone, "rank");
    else if (!status)
        status = TRUCE_NOT_FOUND; /* it has changed since */
    if (!status && !truce__job_date(&job, "undone.at", at_ms))
        *at_ms = INT64_MAX;
    bson_destroy(&job);
    bson_destroy(sort);
    bson_destroy(filter);
    return status;
}

static bson_t *delayed_filter(const char *queue, int64_t rank, const char *compared, int64_t at_ms)
{
    return BCON_NEW("undone.state", BCON_UTF8("delayed"), "undone.queue", BCON_UTF8(queue),
                    "undone.rank", BCON_INT64(rank), "undone.at", "{", compared,
                    BCON_DATE_TIME(at_ms), "}");
}

/* The jobs of a queue that are due, in the order in which they would be claimed. */
static truce_status gather_due(truce_store *store, const char *queue, bson_t **found, size_t *count,
                               bson_error_t *error)
{
    int64_t now_ms = truce__clock_wall_ms(), rank = RANK_BEFORE, at_ms;
    bson_t *sort = job_order();
    truce_status status = TRUCE_OK;

    while (!status && *count < BATCH) {
        status = next_rank(store, queue, &rank, &at_ms, error);
        if (!status && at_ms <= now_ms) {
            bson_t *filter = delayed_filter(queue, rank, "$lte", now_ms);

            status = promote_gather(store, filter, sort, found, count, error);
            bson_destroy(filter);
        }
    }
    bson_destroy(sort);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Those of all queues, in any order. */
static truce_status gather_all_due(truce_store *store, bson_t **found, size_t *count,
                                   bson_error_t *error)
{
    bson_t *filter = BCON_NEW("undone.state", BCON_UTF8("delayed"), "undone.at", "{", "$lte",
                              BCON_DATE_TIME(truce__clock_wall_ms()), "}");
    truce_status status = promote_gather(store, filter, NULL, found, count, error);

    bson_destroy(filter);
    return status;
}

static void promote_release(bson_t **found, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bson_destroy(found[i]);
}

/* ---- time --------------------------------------------------------------------------------------- */

static void promotion(const bson_t *job, bson_t *filter, bson_t *update)
{
    bson_value_t id = truce__document_id(job);
    int32_t priority = (int32_t)truce__field_number(job, "priority");
    int64_t at_ms;
    bson_oid_t rev;

    (void)truce__job_date(job, "undone.at", &at_ms);
    truce__id_new(&rev);
    BSON_APPEND_VALUE(filter, "_id", &id);
    BCON_APPEND(filter, "undone.state", BCON_UTF8("delayed"), "undone.at", BCON_DATE_TIME(at_ms),
                "priority", BCON_INT32(priority), "_intent", "{", "$exists", BCON_BOOL(false), "}");
    BCON_APPEND(update, "$set", "{", "state", BCON_UTF8("ready"), "undone.state",
                BCON_UTF8("ready"), "undone.rank", BCON_INT32(-priority), "_rev", BCON_OID(&rev),
                "}");
}

static truce_status promote_all(truce_store *store, bson_t **found, size_t count,
                                bson_error_t *error)
{
    truce_bulk_options options = {.unordered = true};
    truce_write writes[BATCH] = {0};
    truce_write_outcome outcomes[BATCH];
    bson_t filters[BATCH], updates[BATCH];
    truce_status status;

    for (size_t i = 0; i < count; i++) {
        bson_init(&filters[i]);
        bson_init(&updates[i]);
        promotion(found[i], &filters[i], &updates[i]);
        writes[i] = (truce_write){TRUCE_WRITE_UPDATE, QUEUE, &filters[i], &updates[i]};
    }
    status = truce_bulk(store, writes, count, &options, outcomes, error);
    for (size_t i = 0; i < count; i++) {
        truce_write_result_release(&outcomes[i].result);
        bson_destroy(&filters[i]);
        bson_destroy(&updates[i]);
    }
    return status;
}

truce_status truce__queue_promote(truce_store *store, const char *queue, bool *more,
                                  bson_error_t *error)
{
    bson_t *found[BATCH];
    size_t count = 0;
    truce_status status = queue ? gather_due(store, queue, found, &count, error)
                                : gather_all_due(store, found, &count, error);

    if (!status && count)
        status = promote_all(store, found, count, error);
    *more = count == BATCH;
    promote_release(found, count);
    return status;
}

/* When the first job of that rank will be due; INT64_MAX: none. */
static truce_status next_due_of(truce_store *store, const char *queue, int64_t rank,
                                int64_t *due_ms, bson_error_t *error)
{
    bson_t *filter = delayed_filter(queue, rank, "$gt", truce__clock_wall_ms()),
           *sort = job_order(), job;
    const truce_find_options options = {.sort = sort, .early = true};
    truce_status status = truce_find_one(store, QUEUE, filter, &options, &job, error);

    if (status || !truce__job_date(&job, "undone.at", due_ms))
        *due_ms = INT64_MAX;
    bson_destroy(&job);
    bson_destroy(sort);
    bson_destroy(filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* When the next delayed job will be due; INT64_MAX: there is none. */
static truce_status queue_next_due(truce_store *store, const char *queue, int64_t *due_ms,
                                   bson_error_t *error)
{
    int64_t now_ms = truce__clock_wall_ms(), rank = RANK_BEFORE, at_ms;
    truce_status status = TRUCE_OK;

    *due_ms = INT64_MAX;
    while (!status) {
        status = next_rank(store, queue, &rank, &at_ms, error);
        if (!status && at_ms <= now_ms)
            status = next_due_of(store, queue, rank, &at_ms, error);
        if (!status && at_ms < *due_ms)
            *due_ms = at_ms;
    }
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* ---- workers that are gone ------------------------------------------------------------------------ */

struct rescue {
    const truce_queue *queue;
    bson_oid_t token;
    bson_value_t id;
    int64_t at_ms;
    bool rescued;
};

static char *promote_reason(const bson_t *job, int64_t now_ms)
{
    int64_t timeout_ms = truce__field_count(job, "timeout_ms"), since_ms;

    if (timeout_ms && truce__job_date(job, "lease.since", &since_ms) &&
        now_ms >= since_ms + timeout_ms)
        return bson_strdup_printf("timed out after %lld ms", (long long)timeout_ms);
    return bson_strdup("its worker gave no sign of life until its lease ended");
}

static truce_status rescue_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct rescue *rescue = arg;
    int64_t now_ms = truce__clock_wall_ms(), at_ms;
    bson_t job, update = BSON_INITIALIZER;
    bson_oid_t token;
    truce_status status = truce_commit_read(commit, QUEUE, &rescue->id, &job, error);

    rescue->rescued = !status && !strcmp(truce__job_state(&job), "running") &&
                      truce__job_token(&job, &token) && bson_oid_equal(&token, &rescue->token) &&
                      truce__job_date(&job, "undone.at", &at_ms) && at_ms == rescue->at_ms;
    if (rescue->rescued) {
        char *why = promote_reason(&job, now_ms);

        truce__job_fails(&update, rescue->queue, &job, why, -1, now_ms);
        status = truce__job_move(commit, &job, &update, error);
        bson_free(why);
    }
    bson_destroy(&job);
    bson_destroy(&update);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* The state that each sign of life of the worker changes. */
static uint64_t lease_state(const struct rescue *rescue)
{
    return truce__watch_hash((uint64_t)rescue->at_ms, &rescue->token, sizeof rescue->token);
}

/* L4 */
static bool lease_is_over(const truce_queue *queue, const bson_t *job, const struct rescue *rescue)
{
    const bson_oid_t *id = &rescue->id.value.v_oid;
    bson_iter_t iter, found;
    int64_t lease_ms = queue->lease_ms, since_ns;

    if (bson_iter_init(&iter, job) && bson_iter_find_descendant(&iter, "lease.ms", &found))
        lease_ms = bson_iter_as_int64(&found);
    if (lease_ms < 0 || lease_ms > DAY_MS)
        lease_ms = DAY_MS;
    since_ns = truce__memo_watch(queue->store, "job", id, sizeof *id, lease_state(rescue));
    return truce__clock_monotonic_ns() - since_ns >= lease_ms * NS_IN_MS;
}

truce_status truce__queue_rescue(const truce_queue *queue, const bson_t *job, bool *rescued,
                                 bson_error_t *error)
{
    struct rescue rescue = {.queue = queue, .id = truce__document_id(job)};
    truce_commit_options options = {.mechanism = queue->mechanism,
                                    .lease_ms = truce__queue_commit_lease(queue),
                                    .deadline_ms = RESCUE_DEADLINE_MS};
    truce_status status;

    *rescued = false;
    if (rescue.id.value_type != BSON_TYPE_OID || !truce__job_token(job, &rescue.token) ||
        !truce__job_date(job, "undone.at", &rescue.at_ms) || !lease_is_over(queue, job, &rescue))
        return TRUCE_OK;
    status = truce_transact(queue->store, rescue_in, &rescue, &options, error);
    *rescued = !status && rescue.rescued;
    return status;
}

/* ---- leases that are looked at ---------------------------------------------------------------- */

void truce__queue_append_suspects(int64_t lease_ms, bson_t *filter)
{
    int64_t now_ms = truce__clock_wall_ms();

    BCON_APPEND(filter, "undone.state", BCON_UTF8("running"), "$or", "[", "{", "undone.at", "{",
                "$lte", BCON_DATE_TIME(now_ms), "}", "}", "{", "undone.at", "{", "$gt",
                BCON_DATE_TIME(now_ms + lease_ms), "}", "}", "]");
}

/* The leases of a queue that end after `from_ms` and until `to_ms`, the first of them: {_id, lease, undone}. Those that end in
 * the same millisecond come together. The caller destroys each, and frees the list. */
static truce_status leases_between(const truce_queue *queue, int64_t from_ms, int64_t to_ms,
                                   bson_t ***found, size_t *count, bson_error_t *error)
{
    bson_t *filter =
               BCON_NEW("undone.state", BCON_UTF8("running"), "undone.queue",
                        BCON_UTF8(queue->name), "undone.rank", BCON_INT32(0), "undone.at", "{",
                        "$gt", BCON_DATE_TIME(from_ms), "$lte", BCON_DATE_TIME(to_ms), "}"),
           *sort = BCON_NEW("undone.rank", BCON_INT32(1), "undone.at", BCON_INT32(1)),
           *projection = BCON_NEW("lease", BCON_INT32(1), "undone", BCON_INT32(1));
    truce_find_options options = {.sort = sort, .projection = projection};
    truce_cursor *cursor = NULL;
    const bson_t *job = NULL;
    int64_t last_ms = from_ms, at_ms;
    truce_status status = truce_find(queue->store, QUEUE, filter, &options, &cursor, error);

    *count = 0;
    *found = NULL;
    while (!status) {
        status = truce_cursor_next(cursor, &job, error);
        if (status || !job)
            break;
        (void)truce__job_date(job, "undone.at", &at_ms);
        if (*count >= LEASES_SEEN && at_ms != last_ms)
            break;
        last_ms = at_ms;
        if (!(*count & (*count - 1)))
            *found = bson_realloc(*found, (2 * *count + 1) * sizeof **found);
        (*found)[(*count)++] = bson_copy(job);
    }
    truce_cursor_close(cursor);
    bson_destroy(filter);
    bson_destroy(projection);
    bson_destroy(sort);
    return status;
}

static int64_t lease_end(const bson_t *job)
{
    int64_t at_ms;

    (void)truce__job_date(job, "undone.at", &at_ms);
    return at_ms;
}

/* A pass over a part of the leases, which begins where the last one ended. */
static truce_status rescue_between(const truce_queue *queue, int64_t from_ms, int64_t to_ms,
                                   atomic_int_fast64_t *place, bson_error_t *error)
{
    int64_t until_ns = truce__clock_monotonic_ns() + PASS_MS * NS_IN_MS,
            begin_ms = atomic_load(place), next_ms = from_ms;
    bson_t **found;
    size_t count, i;
    truce_status status;

    if (begin_ms < from_ms || begin_ms > to_ms)
        begin_ms = from_ms;
    status = leases_between(queue, begin_ms, to_ms, &found, &count, error);
    for (i = 0; !status && i < count && (!i || truce__clock_monotonic_ns() < until_ns); i++) {
        bson_error_t ignored; /* a job that cannot be released does not stop the others */
        bool rescued;

        if (truce__queue_rescue(queue, found[i], &rescued, &ignored))
            continue;
    }
    if (!status && i < count)
        next_ms = lease_end(found[i]) - 1;
    else if (!status && count >= LEASES_SEEN)
        next_ms = lease_end(found[count - 1]);
    atomic_store(place, next_ms);
    for (i = 0; i < count; i++)
        bson_destroy(found[i]);
    bson_free(found);
    return status;
}

/* The first and the last date that each server can read: some refuse a year outside of 1 to 9999. */
#define YEAR_1_MS    INT64_C(-62135596800000)
#define YEAR_9999_MS INT64_C(253402300799999)

/* Looks at some running jobs of the queue, and releases those whose lease is over. */
static truce_status queue_rescue_some(truce_queue *queue, bson_error_t *error)
{
    int64_t now_ms = truce__clock_wall_ms();
    truce_status status = rescue_between(queue, YEAR_1_MS, now_ms, &queue->ended_at_ms, error);

    return status ? status
                  : rescue_between(queue, now_ms + queue->lease_ms, YEAR_9999_MS, &queue->far_at_ms,
                                   error);
}

/* ---- the claim ------------------------------------------------------------------------------- */

#define PROMOTE_MS  50   /* how often at most delayed jobs are looked for, while there are others */
#define RESCUE_MS   1000 /* workers that are gone; more often if leases are short */
#define FIRE_MS     500  /* cron lines */
#define SETTINGS_MS 500  /* whether the queue is paused */
#define WAIT_MS     1000 /* ended leases wake nobody, ... */
#define WAIT_MS_MIN 20
#define GATED_MS    250 /* ... nor does the time of a rate */
#define BULK_TRIES  4
#define CLAIM_MS    5000 /* in which a claim passes over jobs that their lanes put off */

/* ---- on the way --------------------------------------------------------------------------------- */

/* At most one thread in so many ms. */
static bool is_time(atomic_int_fast64_t *last_ns, int64_t every_ms)
{
    int64_t now_ns = truce__clock_monotonic_ns(), last = atomic_load(last_ns);

    return (!last || now_ns - last >= every_ms * NS_IN_MS) &&
           atomic_compare_exchange_strong(last_ns, &last, now_ns);
}

static truce_status ask_settings(truce_queue *queue, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(queue->name)), found;
    truce_status status = truce_find_one(queue->store, QUEUE_SETTINGS, filter, NULL, &found, error);
    bson_iter_t iter;

    if (!status || status == TRUCE_NOT_FOUND) {
        atomic_store(&queue->paused, !status && bson_iter_init_find(&iter, &found, "paused") &&
                                         bson_iter_as_bool(&iter));
        atomic_store(&queue->gated, !status && bson_has_field(&found, "gate"));
        status = TRUCE_OK;
    }
    bson_destroy(&found);
    bson_destroy(filter);
    return status;
}

/* A store of this process: a look costs less than a write that finds nothing, or an end of sleep. */
static bool looks_cost_little(const truce_queue *queue)
{
    return (queue->store->capabilities & TRUCE_CAN_REWRITE) != 0;
}

/* When there will be something to do although nobody wakes us. */
static truce_status ask_due(truce_queue *queue, bson_error_t *error)
{
    int64_t job_ms, cron_ms;
    truce_status status = queue_next_due(queue->store, queue->name, &job_ms, error);

    if (!status)
        status = truce__cron_next_due(queue, &cron_ms, error);
    if (!status)
        atomic_store(&queue->due_ms, job_ms < cron_ms ? job_ms : cron_ms);
    return status;
}

/* As many as a claim of so many may take. */
static truce_status promote(truce_queue *queue, size_t most, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bool more = true;

    for (size_t promoted = 0; !status && more && promoted < most;
         promoted += TRUCE__QUEUE_PROMOTED_MOST)
        status = truce__queue_promote(queue->store, queue->name, &more, error);
    atomic_store(&queue->due_more, more);
    return status;
}

static truce_status on_the_way(truce_queue *queue, size_t most, bool nothing_else,
                               bson_error_t *error)
{
    int64_t rescue_ms = queue->lease_ms / 4 < RESCUE_MS ? queue->lease_ms / 4 : RESCUE_MS;
    truce_status status = TRUCE_OK;

    if (is_time(&queue->asked_ns, SETTINGS_MS))
        status = ask_settings(queue, error);
    if (!status &&
        (is_time(&queue->promoted_ns, PROMOTE_MS) || nothing_else || atomic_load(&queue->due_more)))
        status = promote(queue, most, error);
    if (!status &&
        is_time(&queue->fired_ns, nothing_else && looks_cost_little(queue) ? WAIT_MS_MIN : FIRE_MS))
        status = truce__cron_fire(queue, error);
    if (!status && is_time(&queue->rescued_ns, rescue_ms))
        status = queue_rescue_some(queue, error);
    if (!status && nothing_else && looks_cost_little(queue))
        status = ask_due(queue, error);
    if (!status && nothing_else && is_time(&queue->went_on_ns, RESCUE_MS))
        status = truce__after_go_on_some(queue, error);
    return status;
}

/* ---- what a claim looks for, and what it does ------------------------------------------------------ */

static void job_ready(const truce_queue *queue, bson_t *filter)
{
    BCON_APPEND(filter, "undone.state", BCON_UTF8("ready"), "undone.queue", BCON_UTF8(queue->name),
                "_intent", "{", "$exists", BCON_BOOL(false), "}");
}

static void running_filter(const truce_queue *queue, const bson_oid_t *token, bson_t *filter)
{
    BCON_APPEND(filter, "undone.state", BCON_UTF8("running"), "undone.queue",
                BCON_UTF8(queue->name), "lease.token", BCON_OID(token));
}

static bson_t *job_order(void)
{
    return BCON_NEW("undone.rank", BCON_INT32(1), "undone.at", BCON_INT32(1));
}

/* Appends the lease of a claim; `gate` as there. */
static void job_append_lease(const truce_queue *queue, const bson_oid_t *token,
                             const bson_value_t *gate, int64_t now_ms, bson_t *set)
{
    bson_t lease;

    BSON_APPEND_DOCUMENT_BEGIN(set, "lease", &lease);
    BCON_APPEND(&lease, "worker", BCON_UTF8(queue->worker), "token", BCON_OID(token), "since",
                BCON_DATE_TIME(now_ms), "ms", BCON_INT64(queue->lease_ms));
    if (gate)
        BSON_APPEND_VALUE(&lease, "gate", gate);
    bson_append_document_end(set, &lease);
}

/* The end of a lease of at most the job's timeout is the extension's affair; the first one is short enough. */
static void job_claims(const truce_queue *queue, const bson_oid_t *token, const bson_value_t *gate,
                       bson_t *update)
{
    int64_t now_ms = truce__clock_wall_ms();
    bson_t set;

    BSON_APPEND_DOCUMENT_BEGIN(update, "$set", &set);
    BCON_APPEND(&set, "state", BCON_UTF8("running"), "undone.state", BCON_UTF8("running"),
                "undone.rank", BCON_INT32(0), "undone.at",
                BCON_DATE_TIME(now_ms + queue->lease_ms));
    job_append_lease(queue, token, gate, now_ms, &set);
    if (!gate) /* a single write makes it, no commit */
        BSON_APPEND_OID(&set, "_rev", token);
    bson_append_document_end(update, &set);
    BCON_APPEND(update, "$inc", "{", "epoch", BCON_INT64(1), "attempt", BCON_INT32(1), "}");
}

truce_job *truce__job_new(truce_queue *queue, const bson_t *document, const bson_oid_t *token)
{
    truce_job *job = bson_malloc0(sizeof *job);
    bson_value_t id = truce__document_id(document);
    bson_t steps;

    truce_assert(id.value_type == BSON_TYPE_OID);
    job->queue = queue;
    truce__names_restore(document, &job->document);
    if (!truce__value_subdocument(&job->document, "payload", &job->payload))
        bson_init(&job->payload);
    bson_oid_copy(&id.value.v_oid, &job->id);
    bson_oid_copy(token, &job->token);
    job->epoch = truce__field_number(document, "epoch");
    job->attempt = (uint32_t)truce__field_number(document, "attempt");
    job->timeout_ms = truce__field_count(document, "timeout_ms");
    (void)truce__job_date(document, "lease.since", &job->since_ms);
    bson_init(&job->steps);
    if (truce__value_subdocument(&job->document, "steps", &steps))
        bson_concat(&job->steps, &steps);
    atomic_store(&job->looked_ns, truce__clock_monotonic_ns());
    return job;
}

/* ---- one ---------------------------------------------------------------------------------------- */

static truce_status job_check_found(const bson_t *document, bson_error_t *error)
{
    if (truce__document_id(document).value_type == BSON_TYPE_OID)
        return TRUCE_OK;
    return truce__fail(TRUCE_CORRUPT, error,
                       "a job of " QUEUE " has an _id that truce did not make");
}

static truce_status claim_unanswered(truce_queue *queue, const bson_oid_t *token, bson_t *document)
{
    bson_t filter = BSON_INITIALIZER;
    truce_status status;

    running_filter(queue, token, &filter);
    bson_destroy(document);
    status = truce_find_one(queue->store, QUEUE, &filter, NULL, document, NULL);
    bson_destroy(&filter);
    return status;
}

/* One find-and-modify. NOT_FOUND: none is ready. */
static truce_status queue_claim_one(truce_queue *queue, truce_job **job, bson_error_t *error)
{
    bool keeps_order = (queue->store->capabilities & TRUCE_CAN_KEEP_ORDER) != 0;
    bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER, *sort = job_order(), document;
    truce_modify_options options = {.sort = sort,
                                    .return_new = true,
                                    .relaxed = keeps_order,
                                    .deadline_ms = queue->deadline_ms};
    bson_oid_t token;
    truce_status status;

    truce__id_new(&token);
    job_ready(queue, &filter);
    job_claims(queue, &token, NULL, &update);
    status = truce_find_and_modify(queue->store, QUEUE, &filter, &update, &options, &document, NULL,
                                   error);
    if (truce__unanswered(status) && !claim_unanswered(queue, &token, &document))
        status = TRUCE_OK;
    if (!status)
        status = job_check_found(&document, error);
    if (!status)
        *job = truce__job_new(queue, &document, &token);
    bson_destroy(&document);
    bson_destroy(&filter);
    bson_destroy(&update);
    bson_destroy(sort);
    return status;
}

/* ---- the calls ----------------------------------------------------------------------------------- */

/* Of those that were claimed the rate of a lane puts some off: the others stay. */
static truce_status begin_all(truce_job **jobs, size_t *count, bson_error_t *error)
{
    truce_status first = TRUCE_OK;
    size_t begun = 0;

    for (size_t i = 0; i < *count; i++) {
        truce_status status = truce__lane_begin_claimed(jobs[i], error);

        if (!status)
            jobs[begun++] = jobs[i];
        else
            truce_job_free(jobs[i]);
        if (status && status != TRUCE_NOT_FOUND)
            first = first ? first : status; /* its lease ends */
    }
    *count = begun;
    return begun ? TRUCE_OK : first;
}

static truce_status claim_ungated(truce_queue *queue, size_t most, truce_job **jobs, size_t *count,
                                  bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (int i = 0; most > 1 && i < BULK_TRIES && !status && !*count; i++)
        status = queue_claim_several(queue, most, jobs, count, error);
    if (status || *count)
        return status;
    status = most == 1 && crowd_may_form(queue) ? crowd_claim(queue, jobs, error)
                                                : queue_claim_one(queue, jobs, error);
    *count = status ? 0 : 1;
    return status;
}

static truce_status try_claim(truce_queue *queue, size_t most, truce_job **jobs, size_t *count,
                              bson_error_t *error)
{
    int64_t until_ns = truce__clock_monotonic_ns() + CLAIM_MS * NS_IN_MS;
    truce_status status = TRUCE_OK;
    bool gated = atomic_load(&queue->gated);

    if (gated)
        status = queue_claim_gated(queue, most, jobs, count, &gated, error);
    if (status || gated)
        return status;
    do {
        status = claim_ungated(queue, most, jobs, count, error);
        if (!status)
            status = begin_all(jobs, count, error);
    } while (!status && !*count && truce__clock_monotonic_ns() < until_ns);
    return status || *count ? status : TRUCE_NOT_FOUND;
}

/* Who waits idly takes no lock of the writers. */
static truce_status claim_if_any(truce_queue *queue, size_t most, truce_job **jobs, size_t *count,
                                 bson_error_t *error)
{
    const truce_find_options options = {.early = true};
    bson_t filter = BSON_INITIALIZER, found;
    truce_status status = TRUCE_OK;

    if (looks_cost_little(queue)) {
        job_ready(queue, &filter);
        status = truce_find_one(queue->store, QUEUE, &filter, &options, &found, error);
        bson_destroy(&found);
    }
    bson_destroy(&filter);
    return status ? status : try_claim(queue, most, jobs, count, error);
}

static truce_status claim_nothing(const truce_queue *queue, bson_error_t *error)
{
    const char *why = atomic_load(&queue->paused) ? "queue %s is paused"
                      : atomic_load(&queue->gated)
                          ? "queue %s has no job that is ready, or is at its limit"
                          : "queue %s has no job that is ready";

    return truce__fail(TRUCE_NOT_FOUND, error, why, queue->name);
}

truce_status truce_queue_claim_many(truce_queue *queue, size_t most, truce_job **jobs,
                                    size_t *count, bson_error_t *error)
{
    RETURN_IF_NULL(jobs, error);
    RETURN_IF_NULL(count, error);

    DEADLINE_SCOPE(queue->deadline_ms);
    PATIENCE_SCOPE();
    truce_status status = truce__queue_ready(queue, error);

    *count = 0;
    if (!status && (most < 1 || most > JOB_CLAIMS_MAX))
        status = truce__fail(TRUCE_INVALID, error, "%zu jobs at once, and may be 1 to %d", most,
                             JOB_CLAIMS_MAX);
    if (!status)
        status = on_the_way(queue, most, false, error);
    if (!status && !atomic_load(&queue->paused))
        status = atomic_load(&queue->quiet) ? claim_if_any(queue, most, jobs, count, error)
                                            : try_claim(queue, most, jobs, count, error);
    if (status == TRUCE_NOT_FOUND) {
        status = on_the_way(queue, most, true, error);
        if (!status && !atomic_load(&queue->paused))
            status = claim_if_any(queue, most, jobs, count, error);
    }
    if (!status && !*count)
        status = TRUCE_NOT_FOUND;
    atomic_store(&queue->quiet, status == TRUCE_NOT_FOUND);
    return status == TRUCE_NOT_FOUND ? claim_nothing(queue, error) : status;
}

truce_status truce_queue_claim(truce_queue *queue, truce_job **job, bson_error_t *error)
{
    RETURN_IF_NULL(job, error);

    DEADLINE_SCOPE(queue->deadline_ms);
    PATIENCE_SCOPE();
    size_t count;

    *job = NULL;
    return truce_queue_claim_many(queue, 1, job, &count, error);
}

int64_t truce__queue_pause_ms(const truce_queue *queue)
{
    int64_t due_ms = atomic_load(&queue->due_ms), left_ms;

    if (atomic_load(&queue->gated))
        return GATED_MS;
    left_ms = due_ms - truce__clock_wall_ms();
    if (!due_ms || left_ms > WAIT_MS)
        return WAIT_MS;
    return left_ms < WAIT_MS_MIN ? WAIT_MS_MIN : left_ms;
}

truce_status truce_queue_claim_wait(truce_queue *queue, uint32_t timeout_ms, truce_job **job,
                                    bson_error_t *error)
{
    RETURN_IF_NULL(job, error);

    int64_t deadline_ns = truce__clock_monotonic_ns() + timeout_ms * NS_IN_MS;
    bool waits = (queue->store->capabilities & TRUCE_CAN_WAIT) != 0;
    uint64_t token = 0;
    truce_status status = TRUCE_OK;
    int64_t pause_ms = 5;

    *job = NULL;
    if (waits) /* fills the token: what is added from here on wakes */
        status = truce_wait(queue->store, QUEUE, &token, 0, error);
    while (!status) {
        int64_t left_ms;

        status = truce_queue_claim(queue, job, error);
        left_ms = (deadline_ns - truce__clock_monotonic_ns()) / NS_IN_MS;
        if (status != TRUCE_NOT_FOUND || left_ms <= 0)
            return status;
        if (waits) {
            int64_t most_ms = truce__queue_pause_ms(queue);

            status = truce_wait(queue->store, QUEUE, &token,
                                (uint32_t)(left_ms < most_ms ? left_ms : most_ms), error);
        } else {
            truce__clock_sleep_ms(left_ms < pause_ms ? left_ms : pause_ms);
            pause_ms = pause_ms < WAIT_MS / 2 ? pause_ms * 2 : WAIT_MS;
            status = TRUCE_OK;
        }
        if (status == TRUCE_TIMEOUT &&
            !__atomic_load_n(&queue->store->interrupted, __ATOMIC_RELAXED))
            status = TRUCE_OK;
    }
    return status;
}

void truce_job_free(truce_job *job)
{
    if (!job)
        return;
    bson_destroy(&job->document);
    bson_destroy(&job->steps);
    if (job->result)
        bson_destroy(job->result);
    bson_free(job);
}

/*
 * The limits of a queue, or of a pool of queues. A limiter counts the running jobs, in
 * `truce_queue_limiters`:
 *
 *     {_id: {queue: "mail"}, running: 2, running_max: 5, rate: 100, per_ms: 60000, at: <date>,
 *      begun: [...]}
 *     {_id: {pool: "smtp"}, ...}
 *
 * Invariants:
 *
 *  QG1. `running` is the number of running jobs whose lease names this limiter. The commit that
 *       claims a job counts it. The commit that takes it out of "running", whatever its end is,
 *       stops counting it.
 *  QG2. A job is counted by the limiter that its lease names. If a limiter is created, changed, or
 *       removed while jobs run, no count is wrong.
 *  QG3. At most `rate` claims pass the limiter in any `per_ms` of the document's time. If clocks
 *       differ, more may pass in real time (QR2). A claim stays counted if its job fails. Claims in
 *       the window also stay counted if a rate is set again, unless limits without a rate were set
 *       in between.
 *
 * Every claim and every end writes the document of the limiter; this is the cost of a limit over
 * all processes.
 */
#include "patterns/queue/rate_limit.h"

#include <string.h>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/limits.h"
#include "base/reserved_fields.h"
#include "base/wait_limit.h"
#include "bson/value.h"
#include "commit/commit.h"
#include "commit/metadata_cache.h"
#include "patterns/queue/queue.h"
#include "store/maintenance.h"

/* ---- rates ----------------------------------------------------------------------------------- */

/* A rate above this divides its window into this many parts, each with one entry (QR4). */
#define RATE_SLOTS 32
#define DAY_MS     INT64_C(86400000)
#define NS_IN_MS   1000000

/* ---- the document ---------------------------------------------------------------------------- */

/* Reads the begins in the window. Ignores invalid entries. */
static void rate_read_begun(struct queue_rate *rate, const bson_t *document)
{
    struct value list = truce__value_field(truce__value_document(document), "begun", 5);

    if (list.type != BSON_TYPE_ARRAY)
        return;
    for (struct fields fields = truce__fields(list);
         rate->count < RATE_ENTRIES && truce__fields_next(&fields);) {
        int64_t at_ms, n;
        bson_t entry;

        if (fields.value.type != BSON_TYPE_DOCUMENT)
            continue;
        truce__value_bson(fields.value, &entry);
        n = truce__field_count(&entry, "n");
        if (!truce__job_date(&entry, "at", &at_ms) || n < 1 || at_ms > rate->now_ms)
            continue;
        rate->begun[rate->count].at_ms = at_ms;
        rate->begun[rate->count++].n = n;
    }
}

/* Returns the current time of the document (QR1, QR3). */
static int64_t rate_now_ms(truce_store *store, const bson_t *id, int64_t stored_ms)
{
    int64_t now_ms = truce__clock_wall_ms(), since_ns, seen_ms;

    since_ns =
        truce__metadata_watch(store, "rate", bson_get_data(id), id->len, (uint64_t)stored_ms);
    seen_ms = truce__date_after(stored_ms, (truce__clock_monotonic_ns() - since_ns) / NS_IN_MS);
    return seen_ms > now_ms ? seen_ms : now_ms;
}

void truce__rate_read(struct queue_rate *rate, truce_store *store, const bson_t *document,
                      const bson_t *id)
{
    int64_t stored_ms = 0;

    *rate = (struct queue_rate){.rate = truce__field_count(document, "rate"),
                                .per_ms = truce__field_count(document, "per_ms")};
    if (rate->rate < 1 || rate->per_ms < 1)
        rate->rate = rate->per_ms = 0;
    if (truce__job_date(document, "at", &stored_ms) && stored_ms > DATE_LAST_MS)
        stored_ms = 0;
    rate->now_ms = rate_now_ms(store, id, stored_ms);
    rate_read_begun(rate, document);
}

void truce__rate_append(const struct queue_rate *rate, bson_t *document)
{
    bson_t list;

    if (!rate->rate)
        return;
    BSON_APPEND_INT64(document, "rate", rate->rate);
    BSON_APPEND_INT64(document, "per_ms", rate->per_ms);
    BSON_APPEND_DATE_TIME(document, "at", rate->now_ms);
    BSON_APPEND_ARRAY_BEGIN(document, "begun", &list);
    for (size_t i = 0, kept = 0; i < rate->count; i++) {
        char text[16];
        const char *key;

        if (rate->now_ms - rate->begun[i].at_ms >= rate->per_ms)
            continue;
        bson_uint32_to_string((uint32_t)kept++, &key, text, sizeof text);
        BCON_APPEND(&list, key, "{", "at", BCON_DATE_TIME(rate->begun[i].at_ms), "n",
                    BCON_INT64(rate->begun[i].n), "}");
    }
    bson_append_array_end(document, &list);
}

/* ---- the window ------------------------------------------------------------------------------ */

int64_t truce__rate_wait_ms(const struct queue_rate *rate)
{
    int64_t in_window = 0;

    for (size_t i = rate->count; i-- > 0;) { /* From the newest begin to the oldest one. */
        int64_t left_ms = rate->begun[i].at_ms + rate->per_ms - rate->now_ms;

        in_window += rate->begun[i].n;
        if (in_window >= rate->rate)
            return rate->rate && left_ms > 0 ? left_ms : 0;
    }
    return 0;
}

int64_t truce__rate_left_ms(const struct queue_rate *rate)
{
    int64_t left_ms = rate->rate && rate->count
                          ? rate->begun[rate->count - 1].at_ms + rate->per_ms - rate->now_ms
                          : 0;

    return left_ms > 0 ? left_ms : 0;
}

static void rate_drop_old(struct queue_rate *rate)
{
    size_t kept = 0;

    for (size_t i = 0; i < rate->count; i++)
        if (rate->now_ms - rate->begun[i].at_ms < rate->per_ms)
            rate->begun[kept++] = rate->begun[i];
    rate->count = kept;
}

/* Returns true if the last entry also counts this begin (QR4). */
static bool rate_is_shared(const struct queue_rate *rate)
{
    int64_t slot_ms = (rate->per_ms + RATE_SLOTS - 1) / RATE_SLOTS;

    if (!rate->count || rate->count == RATE_ENTRIES)
        return rate->count == RATE_ENTRIES;
    return rate->rate > RATE_SLOTS &&
           rate->begun[rate->count - 1].at_ms / slot_ms == rate->now_ms / slot_ms;
}

void truce__rate_begin(struct queue_rate *rate)
{
    if (!rate->rate)
        return;
    rate_drop_old(rate);
    if (!rate_is_shared(rate))
        rate->begun[rate->count++].n = 0;
    rate->begun[rate->count - 1].at_ms = rate->now_ms;
    rate->begun[rate->count - 1].n++;
}

/* Moves the document's time and its begins back if the time is more than a day ahead of this
 * process's clock. */
static void rate_correct(struct queue_rate *rate)
{
    int64_t ahead_ms = rate->now_ms - truce__clock_wall_ms();

    if (ahead_ms <= DAY_MS)
        return;
    rate->now_ms -= ahead_ms;
    for (size_t i = 0; i < rate->count; i++)
        rate->begun[i].at_ms -= ahead_ms;
}

/* ---- the limits ------------------------------------------------------------------------------ */

/* Checks the limits: the name of the pool, a rate with both of its numbers, and the maximum
 * values. */
static truce_status limiter_check(const truce_queue_limits *limits, bson_error_t *error)
{
    truce_status status = ROOM_CHECK(limits, "truce_queue_limits", error);
    size_t pool = limits->pool ? strlen(limits->pool) : 1;

    if (status)
        return status;
    if (!pool || pool > QUEUE_NAME_BYTES_MAX ||
        (limits->pool && !bson_utf8_validate(limits->pool, pool, false)))
        return truce__fail(TRUCE_INVALID, error,
                           "invalid name of a pool \"%.60s\": expected 1 to %d bytes of UTF-8",
                           limits->pool, QUEUE_NAME_BYTES_MAX);
    if (!limits->rate != !limits->per_ms)
        return truce__fail(TRUCE_INVALID, error,
                           "a rate of %u jobs in %u ms is incomplete: give both numbers",
                           limits->rate, limits->per_ms);
    if (limits->running > INT32_MAX || limits->rate > INT32_MAX)
        return truce__fail(
            TRUCE_INVALID, error,
            "the limits %u (running) and %u (rate) are too large: expected at most %d",
            limits->running, limits->rate, INT32_MAX);
    return TRUCE_OK;
}

static void limiter_id(const truce_queue *queue, const truce_queue_limits *limits, bson_t *id)
{
    bson_init(id);
    BSON_APPEND_UTF8(id, limits->pool ? "pool" : "queue",
                     limits->pool ? limits->pool : queue->name);
}

struct limiting {
    const truce_queue_limits *limits;
    bson_t id_document;
    bson_value_t id;
};

/* Makes the limiter with these limits. Running jobs stay counted, and begins if the limits have a
 * rate. */
static void limiter_make(const struct limiting *limiting, truce_store *store, const bson_t *old,
                         bson_t *limiter)
{
    const truce_queue_limits *limits = limiting->limits;
    struct queue_rate rate;

    truce__rate_read(&rate, store, old, &limiting->id_document);
    rate_correct(&rate);
    rate.rate = limits->rate;
    rate.per_ms = limits->per_ms;
    BSON_APPEND_VALUE(limiter, "_id", &limiting->id);
    BSON_APPEND_INT64(limiter, "running", truce__field_number(old, "running"));
    if (limits->running)
        BSON_APPEND_INT64(limiter, "running_max", limits->running);
    truce__rate_append(&rate, limiter);
}

/* Inserts or replaces a limiter in a commit (a truce_commit_function). */
static truce_status limiter_set_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct limiting *limiting = arg;
    bson_t old, limiter = BSON_INITIALIZER;
    truce_status status = truce_commit_read(commit, QUEUE_LIMITERS, &limiting->id, &old, error);

    if (!status || status == TRUCE_NOT_FOUND)
        limiter_make(limiting, commit->store, &old, &limiter);
    if (!status)
        status = truce_commit_replace(commit, QUEUE_LIMITERS, &limiting->id, NULL, &limiter, error);
    else if (status == TRUCE_NOT_FOUND)
        status = truce_commit_insert(commit, QUEUE_LIMITERS, &limiter, error);
    bson_destroy(&limiter);
    bson_destroy(&old);
    return status;
}

truce_status truce_queue_limit(truce_queue *queue, const truce_queue_limits *limits,
                               bson_error_t *error)
{
    DEADLINE_SCOPE(truce__queue_deadline_ms(queue));
    WAIT_LIMIT_SCOPE();
    static const truce_queue_limits none;
    struct limiting limiting = {limits ? limits : &none};
    bool limited = limiting.limits->running || limiting.limits->rate;
    truce_status status = limiter_check(limiting.limits, error);

    if (!status)
        status = truce__queue_ready(queue, error);
    if (status)
        return status;
    limiter_id(queue, limiting.limits, &limiting.id_document);
    limiting.id = truce__queue_document_id(&limiting.id_document);
    if (limited)
        status = truce__queue_run(queue, NULL, limiter_set_in, &limiting, error);
    if (!status)
        status = truce__queue_set(queue, "limiter", limited ? &limiting.id : NULL, error);
    bson_destroy(&limiting.id_document);
    return status;
}

/* ---- entering -------------------------------------------------------------------------------- */

static bool limiter_rate(truce_store *store, const bson_t *limiter, struct queue_rate *rate)
{
    bson_t id;

    if (!truce__value_subdocument(limiter, "_id", &id))
        return false;
    truce__rate_read(rate, store, limiter, &id);
    return rate->rate > 0;
}

bool truce__limiter_has_capacity(truce_store *store, const bson_t *limiter)
{
    int64_t most = truce__field_number(limiter, "running_max");
    struct queue_rate rate;

    if (most && truce__field_number(limiter, "running") >= most)
        return false;
    return !limiter_rate(store, limiter, &rate) || !truce__rate_wait_ms(&rate);
}

/* Adds `by` (1 or -1) to the count of running jobs, in the commit. A job that begins also counts in
 * the rate (QG3). */
static truce_status limiter_count(truce_commit *commit, const bson_value_t *id,
                                  const bson_t *limiter, int64_t by, bson_error_t *error)
{
    struct queue_rate rate;
    bson_t update = BSON_INITIALIZER, set;
    truce_status status;

    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    BSON_APPEND_INT64(&set, "running", truce__field_number(limiter, "running") + by);
    if (by > 0 && limiter_rate(commit->store, limiter, &rate)) {
        truce__rate_begin(&rate);
        truce__rate_append(&rate, &set);
    }
    bson_append_document_end(&update, &set);
    status = truce_commit_update(commit, QUEUE_LIMITERS, id, NULL, &update, error);
    bson_destroy(&update);
    return status;
}

truce_status truce__limiter_enter(truce_commit *commit, const bson_value_t *id, bson_error_t *error)
{
    bson_t limiter;
    truce_status status = truce_commit_read(commit, QUEUE_LIMITERS, id, &limiter, error);

    if (!status && !truce__limiter_has_capacity(commit->store, &limiter))
        status = truce__fail(TRUCE_NOT_FOUND, error,
                             "the queue has reached its limit of running jobs or its rate");
    if (!status)
        status = limiter_count(commit, id, &limiter, 1, error);
    bson_destroy(&limiter);
    return status;
}

/* ---- leaving --------------------------------------------------------------------------------- */

truce_status truce__limiter_leave(truce_commit *commit, const bson_value_t *id, bson_error_t *error)
{
    bson_t limiter;
    truce_status status = truce_commit_read(commit, QUEUE_LIMITERS, id, &limiter, error);

    if (!status)
        status = limiter_count(commit, id, &limiter, -1, error);
    bson_destroy(&limiter);
    /* The limiter was removed, so nothing counts the job any more. */
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

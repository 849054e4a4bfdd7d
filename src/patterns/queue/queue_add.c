/* Adds jobs: one, many, and unique ones. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/fingerprint.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/object_id.h"
#include "base/reserved_fields.h"
#include "base/time_check.h"
#include "base/wait_limit.h"
#include "bson/field_name_escape.h"
#include "bson/key_encoding.h"
#include "bson/value.h"
#include "patterns/queue/queue.h"
#include "store/maintenance.h"

/* ---- unique jobs ----------------------------------------------------------------------------- */

/*
 * Unique jobs. `truce_queue_keys` records which job has a key:
 *
 *     {_id: {queue, key}, job: ObjectId}
 *
 * The commit that adds the job writes this document. It has read both the document and the job that
 * it names. If two jobs of a key are added at the same time, one commit finds the other's job.
 * The end of a job writes nothing here. The document of its key is stale then, and the next job of
 * that key takes it over (QJ7 of queue.c). A retried job takes its key back in the same way, or its
 * retry is refused. The sweep removes the document together with its job.
 */

/* ---- the key --------------------------------------------------------------------------------- */

/* Orders fields by name, so that a payload gives the same bytes whatever the order of its
 * fields. */
static int unique_by_name(const void *left, const void *right)
{
    const struct fields *a = left, *b = right;
    int order = strcmp(a->key, b->key);

    return order ? order : (a->at > b->at) - (a->at < b->at);
}

/* Appends the content of a payload for the comparison of unique jobs: independent of the order of
 * fields and of the types of numbers. */
static void unique_append_sorted(struct buffer *bytes, struct value container)
{
    struct fields each = truce__fields(container), *all = NULL;
    size_t count = 0;

    while (truce__fields_next(&each)) {
        if (!(count & (count - 1)))
            all = bson_realloc(all, (2 * count + 1) * sizeof *all);
        all[count++] = each;
    }
    if (count && container.type == BSON_TYPE_DOCUMENT)
        qsort(all, count, sizeof *all, unique_by_name);
    for (size_t i = 0; i < count; i++) {
        truce__buffer_append(bytes, all[i].key, all[i].key_length + 1);
        truce__buffer_append_byte(bytes, truce__value_is_container(all[i].value));
        if (truce__value_is_container(all[i].value))
            unique_append_sorted(bytes, all[i].value);
        else
            truce__key_append(bytes, all[i].value, false);
    }
    truce__buffer_append_byte(bytes, container.type);
    bson_free(all);
}

static void unique_key_id(const char *queue, const char *key, bson_t *document, bson_value_t *id)
{
    bson_init(document);
    BSON_APPEND_UTF8(document, "queue", queue);
    BSON_APPEND_UTF8(document, "key", key);
    *id = truce__queue_document_id(document);
}

/* Returns the key of a unique job; free it with bson_free. */
static char *unique_key(const bson_t *payload, const truce_job_options *options, int64_t now_ms)
{
    bson_string_t *key = bson_string_new(options->unique ? options->unique : "");
    struct fingerprint print = {0};
    struct buffer bytes = {0};
    char text[FINGERPRINT_TEXT];
    int64_t at_ms =
        options->run_at_ms ? options->run_at_ms : truce__date_after(now_ms, options->delay_ms);

    if (options->unique_payload) {
        unique_append_sorted(&bytes, truce__value_document(payload));
        truce__fingerprint_add(&print, bytes.bytes, bytes.size);
        truce__fingerprint_text(&print, text);
        truce__buffer_release(&bytes);
        bson_string_append_printf(key, "#%s", text);
    }
    if (options->unique_period_ms)
        bson_string_append_printf(key, "@%lld", (long long)(at_ms / options->unique_period_ms));
    return bson_string_free(key, false);
}

/* ---- the owner of a key ---------------------------------------------------------------------- */

static bool unique_counts(const bson_t *job, truce_unique_scope scope)
{
    return scope == TRUCE_UNIQUE_KEPT ||
           (truce__job_live(job) &&
            (scope == TRUCE_UNIQUE_LIVE || strcmp(truce__job_state(job), "running") != 0));
}

/* Takes the key from a running job, because another job gets it. */
static truce_status unique_take_from(truce_commit *commit, const bson_t *job, bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);
    bson_t *update = BCON_NEW("$unset", "{", "key", BCON_UTF8(""), "}");
    truce_status status = truce_commit_update(commit, QUEUE, &id, NULL, update, error);

    bson_destroy(update);
    return status;
}

/* Reads the job that the key's document names. Returns OK if the job counts, and NOT_FOUND if it
 * does not. */
static truce_status unique_read_owner(truce_commit *commit, const bson_t *holder,
                                      truce_unique_scope scope, bson_t *job, bson_error_t *error)
{
    bson_iter_t iter;
    truce_status status;

    if (!bson_iter_init_find(&iter, holder, "job") || !BSON_ITER_HOLDS_OID(&iter))
        return TRUCE_NOT_FOUND;
    bson_destroy(job);
    status = truce_commit_read(commit, QUEUE, bson_iter_value(&iter), job, error);
    if (status || unique_counts(job, scope))
        return status;
    if (truce__job_live(job))
        status = unique_take_from(commit, job, error);
    return status ? status : TRUCE_NOT_FOUND;
}

/* Reads the job that has the key, in a commit. Returns NOT_FOUND if no job counts; the commit then
 * gives the key to this job. `job` is always initialized. */
static truce_status unique_take(const char *queue, truce_commit *commit, const char *key,
                                truce_unique_scope scope, const bson_oid_t *id, bson_t *job,
                                bson_error_t *error)
{
    bson_t id_document, holder, made = BSON_INITIALIZER;
    bson_value_t key_value;
    truce_status status;
    bool found;

    bson_init(job);
    unique_key_id(queue, key, &id_document, &key_value);
    status = truce_commit_read(commit, QUEUE_KEYS, &key_value, &holder, error);
    found = status == TRUCE_OK;
    if (found)
        status = unique_read_owner(commit, &holder, scope, job, error);
    if (status == TRUCE_NOT_FOUND) {
        truce_status written;

        BSON_APPEND_VALUE(&made, "_id", &key_value);
        BSON_APPEND_OID(&made, "job", id);
        written = found ? truce_commit_replace(commit, QUEUE_KEYS, &key_value, NULL, &made, error)
                        : truce_commit_insert(commit, QUEUE_KEYS, &made, error);
        status = written ? written : TRUCE_NOT_FOUND;
    }
    bson_destroy(&holder);
    bson_destroy(&made);
    bson_destroy(&id_document);
    return status;
}

truce_status truce__queue_key_reclaim(truce_commit *commit, const bson_t *job, bson_error_t *error)
{
    const char *key = truce__field_text(job, "key");
    bson_value_t id = truce__document_id(job);
    char text[25];
    bson_t holder;
    truce_status status;

    if (!key[0])
        return TRUCE_OK;
    status = unique_take(truce__field_text(job, "queue"), commit, key, TRUCE_UNIQUE_LIVE,
                         &id.value.v_oid, &holder, error);
    if (!status) {
        bson_value_t other = truce__document_id(&holder);

        bson_oid_to_string(&other.value.v_oid, text);
        status = truce__fail(TRUCE_INVALID, error,
                             "cannot retry the job: the live job %s has its key \"%s\"", text, key);
    }
    bson_destroy(&holder);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* ---- the call -------------------------------------------------------------------------------- */

const char *truce_added_name(truce_added added)
{
    static const char *const names[] = {"", "new", "existing", "replaced", "rescheduled"};

    return added >= TRUCE_ADDED_NEW && added <= TRUCE_ADDED_RESCHEDULED ? names[added] : "";
}

/* ---- the checks before adding ---------------------------------------------------------------- */

/* Checks the tags of a new job. */
static truce_status job_check_tags(const bson_t *tags, bson_error_t *error)
{
    bson_iter_t iter;
    uint32_t count = 0;

    if (!tags)
        return TRUCE_OK;
    if (!bson_iter_init(&iter, tags))
        return truce__fail(TRUCE_INVALID, error, "`tags` must be an array of strings");
    while (bson_iter_next(&iter)) {
        if (!BSON_ITER_HOLDS_UTF8(&iter))
            return truce__fail(
                TRUCE_INVALID, error,
                "tag %u of the job is not a string: `tags` must be an array of strings", count + 1);
        if (++count > JOB_TAGS_MAX)
            return truce__fail(TRUCE_LIMIT, error,
                               "the job has %u tags or more, and the maximum is %d", count,
                               JOB_TAGS_MAX);
    }
    return TRUCE_OK;
}

/* Checks the delays, times, and retentions of a new job. */
static truce_status job_check_times(const truce_job_options *options, bson_error_t *error)
{
    if (options->delay_ms < 0 || options->run_at_ms < 0 || options->unique_period_ms < 0)
        return truce__fail(TRUCE_INVALID, error,
                           "`delay_ms` is %" PRId64 ", `run_at_ms` %" PRId64
                           ", and `unique_period_ms` %" PRId64 ": none may be negative",
                           options->delay_ms, options->run_at_ms, options->unique_period_ms);
    if (options->delay_ms && options->run_at_ms)
        return truce__fail(TRUCE_INVALID, error,
                           "a job cannot have both a delay and a time (%" PRId64 " ms, and %" PRId64
                           " ms since 1970): give one of them",
                           options->delay_ms, options->run_at_ms);
    if (truce__duration_check("delay_ms", options->delay_ms, error) ||
        truce__duration_check("unique_period_ms", options->unique_period_ms, error) ||
        (options->run_at_ms && truce__time_check("run_at_ms", options->run_at_ms, error)))
        return TRUCE_INVALID;
    if (options->keep_ms < -1 || options->keep_cancelled_ms < -1 ||
        options->keep_discarded_ms < -1 || options->keep_dead_ms < -1)
        return truce__fail(
            TRUCE_INVALID, error,
            "invalid retention of a job (%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
            " ms if done, cancelled, discarded, dead): expected -1 (forever), or 0 ms or more",
            options->keep_ms, options->keep_cancelled_ms, options->keep_discarded_ms,
            options->keep_dead_ms);
    return TRUCE_OK;
}

/* Checks the priority, key, lane, metadata, and times of a new job. */
static truce_status job_check_options(const truce_job_options *options, bson_error_t *error)
{
    size_t key = options->unique ? strlen(options->unique) : 1,
           lane = options->lane ? strlen(options->lane) : 1;

    if (options->priority < -JOB_PRIORITY_MAX || options->priority > JOB_PRIORITY_MAX)
        return truce__fail(TRUCE_INVALID, error, "the priority %d is not between -%d and %d",
                           options->priority, JOB_PRIORITY_MAX, JOB_PRIORITY_MAX);
    if (options->attempts_max > INT32_MAX || options->timeout_ms > INT32_MAX)
        return truce__fail(TRUCE_INVALID, error,
                           "`attempts_max` is %u and `timeout_ms` %u: expected at most %d",
                           options->attempts_max, options->timeout_ms, INT32_MAX);
    if (!key || key > JOB_KEY_BYTES_MAX ||
        (options->unique && !bson_utf8_validate(options->unique, key, false)))
        return truce__fail(TRUCE_INVALID, error,
                           "invalid unique key of %zu bytes: expected 1 to %d bytes of UTF-8", key,
                           JOB_KEY_BYTES_MAX);
    if ((options->unique_period_ms || options->unique_scope || options->on_conflict) &&
        !options->unique && !options->unique_payload)
        return truce__fail(TRUCE_INVALID, error,
                           "`%s` needs a unique key: set `unique` or `unique_payload`",
                           options->unique_period_ms ? "unique_period_ms"
                           : options->on_conflict    ? "on_conflict"
                                                     : "unique_scope");
    if ((unsigned)options->unique_scope > TRUCE_UNIQUE_UNCLAIMED ||
        (unsigned)options->on_conflict > TRUCE_ON_CONFLICT_REFUSE)
        return truce__fail(TRUCE_INVALID, error,
                           "unknown scope %d or conflict policy %d of a unique key: expected a "
                           "truce_unique_scope and a truce_conflict_policy",
                           (int)options->unique_scope, (int)options->on_conflict);
    if (lane > QUEUE_NAME_BYTES_MAX || !lane ||
        (options->lane && !bson_utf8_validate(options->lane, lane, false)))
        return truce__fail(TRUCE_INVALID, error,
                           "invalid name of a lane \"%.60s\": expected 1 to %d bytes of UTF-8",
                           options->lane, QUEUE_NAME_BYTES_MAX);
    if (options->lane_width > INT32_MAX || (options->lane_width && !options->lane))
        return truce__fail(TRUCE_INVALID, error,
                           "invalid `lane_width` %u: it needs a lane, and may be at most %d",
                           options->lane_width, INT32_MAX);
    if (!options->lane_rate != !options->lane_per_ms)
        return truce__fail(
            TRUCE_INVALID, error,
            "`lane_rate` and `lane_per_ms` must be given together: a number of jobs, "
            "and a period in milliseconds");
    if (options->lane_rate > INT32_MAX || (options->lane_rate && !options->lane))
        return truce__fail(TRUCE_INVALID, error,
                           "invalid `lane_rate` %u: it needs a lane, and may be at most %d",
                           options->lane_rate, INT32_MAX);
    if (options->metadata && options->metadata->len > JOB_METADATA_BYTES_MAX)
        return truce__fail(TRUCE_LIMIT, error,
                           "the metadata has %u bytes, more than the maximum of %d",
                           options->metadata->len, JOB_METADATA_BYTES_MAX);
    return job_check_times(options, error);
}

/* Checks the name of a new job and the options for jobs that it waits for. */
static truce_status job_check_after(const truce_job_options *options, bson_error_t *error)
{
    size_t name = options->name ? strlen(options->name) : 1;

    if (!name || name > JOB_KEY_BYTES_MAX ||
        (options->name && !bson_utf8_validate(options->name, name, false)))
        return truce__fail(TRUCE_INVALID, error,
                           "invalid name of a job \"%.60s\": expected 1 to %d bytes of UTF-8",
                           options->name, JOB_KEY_BYTES_MAX);
    if (options->after_count > JOB_AFTER_MAX)
        return truce__fail(TRUCE_LIMIT, error,
                           "a job cannot wait for %zu other jobs: the maximum is %d",
                           options->after_count, JOB_AFTER_MAX);
    if ((unsigned)options->failure > TRUCE_FAILURE_WAIT)
        return truce__fail(
            TRUCE_INVALID, error,
            "unknown value %d of `failure`: expected TRUCE_FAILURE_CANCEL, TRUCE_FAILURE_GO_ON, "
            "or TRUCE_FAILURE_WAIT",
            (int)options->failure);
    if (options->batch && options->after_count)
        return truce__fail(TRUCE_INVALID, error,
                           "a job of a batch cannot wait for others: add the jobs as a workflow");
    if (options->on_conflict == TRUCE_ON_CONFLICT_REPLACE &&
        (options->batch || options->after_count || options->open))
        return truce__fail(TRUCE_INVALID, error,
                           "a job that replaces another one cannot wait for jobs, and cannot join "
                           "or close a batch: the replaced job keeps the jobs that it waits for");
    return TRUCE_OK;
}

static truce_status job_check_payload(const bson_t *payload, bson_error_t *error)
{
    if (!payload)
        return truce__fail(TRUCE_INVALID, error,
                           "the job has no payload: give a document, {} if it needs no data");
    if (payload->len > JOB_PAYLOAD_BYTES_MAX)
        return truce__fail(TRUCE_LIMIT, error,
                           "the payload has %u bytes, more than the maximum of %d", payload->len,
                           JOB_PAYLOAD_BYTES_MAX);
    return truce__document_check(payload, "payload", error);
}

/* Checks the options of a new job, and creates the indexes that they need. */
static truce_status job_check(truce_queue *queue, const truce_job_options *options,
                              bson_error_t *error)
{
    truce_status status = ROOM_CHECK(options, "truce_job_options", error);

    if (!status && options->tags)
        status = truce__document_check(options->tags, "list of tags", error);
    if (!status)
        status = job_check_options(options, error);
    if (!status)
        status = job_check_after(options, error);
    if (!status)
        status = job_check_tags(options->tags, error);
    if (!status && options->metadata)
        status = truce__document_check(options->metadata, "metadata", error);
    if (!status)
        status = truce__queue_ready(queue, error);
    if (!status && options->lane)
        status = truce__lane_indexes(queue, error);
    if (!status && (options->after_count || options->batch || options->open))
        status = truce__workflow_indexes(queue, error);
    return status;
}

truce_status truce__job_check(truce_queue *queue, const bson_t *payload,
                              const truce_job_options *options, bson_error_t *error)
{
    truce_status status = job_check(queue, options, error);

    return status ? status : job_check_payload(payload, error);
}

/* ---- the document ---------------------------------------------------------------------------- */

static int64_t job_start_ms(const truce_job_options *options, int64_t now_ms)
{
    return options->run_at_ms ? options->run_at_ms : truce__date_after(now_ms, options->delay_ms);
}

static int64_t value_or_default(int64_t given, int64_t otherwise)
{
    return given ? given : otherwise;
}

/* Appends how long the job is kept in each state; default values are omitted. */
static void job_append_keep(const truce_queue *queue, const truce_job_options *options, bson_t *job)
{
    const struct {
        const char *state;
        int64_t ms;
    } states[] = {
        {"cancelled", value_or_default(options->keep_cancelled_ms, queue->keep_cancelled_ms)},
        {"discarded", value_or_default(options->keep_discarded_ms, queue->keep_discarded_ms)},
        {"dead", value_or_default(options->keep_dead_ms, queue->keep_dead_ms)},
    };
    int64_t keep_ms = value_or_default(options->keep_ms, queue->keep_ms);
    bson_t keep = BSON_INITIALIZER;

    if (keep_ms >= 0 && keep_ms < options->unique_period_ms)
        keep_ms = options->unique_period_ms;
    BSON_APPEND_INT64(job, "keep_ms", keep_ms);
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        if (states[i].ms)
            BSON_APPEND_INT64(&keep, states[i].state, states[i].ms);
    }
    if (!bson_empty(&keep))
        BSON_APPEND_DOCUMENT(job, "keep", &keep);
    bson_destroy(&keep);
}

/* Appends the fields that a replacement of the job replaces. */
static void job_append_content(const truce_queue *queue, const bson_t *payload,
                               const truce_job_options *options, bson_t *job)
{
    bson_t lane;

    if (options->name)
        BSON_APPEND_UTF8(job, "name", options->name);
    BSON_APPEND_INT32(job, "priority", options->priority);
    truce__names_append(job, "payload", payload);
    if (options->metadata)
        truce__names_append(job, "metadata", options->metadata);
    if (options->tags)
        BSON_APPEND_ARRAY(job, "tags", options->tags);
    BSON_APPEND_INT32(
        job, "attempts_max",
        (int32_t)(options->attempts_max ? options->attempts_max : queue->attempts_max));
    if (options->timeout_ms)
        BSON_APPEND_INT64(job, "timeout_ms", options->timeout_ms);
    job_append_keep(queue, options, job);
    if (options->lane) {
        BSON_APPEND_DOCUMENT_BEGIN(job, "lane", &lane);
        BSON_APPEND_UTF8(&lane, "name", options->lane);
        BSON_APPEND_INT64(&lane, "width", options->lane_width ? options->lane_width : 1);
        if (options->lane_rate) {
            BSON_APPEND_INT64(&lane, "rate", options->lane_rate);
            BSON_APPEND_INT64(&lane, "per_ms", options->lane_per_ms);
        }
        bson_append_document_end(job, &lane);
    }
}

/* Appends what a job and the template of a cron line have in common. */
static void job_append_template(const truce_queue *queue, const bson_t *payload,
                                const truce_job_options *options, bson_t *job)
{
    BSON_APPEND_UTF8(job, "queue", queue->name);
    job_append_content(queue, payload, options, job);
}

/* Appends the first fields of every job, apart from its template and its state. */
static void job_append_beginning(bson_t *job, int64_t now_ms)
{
    BSON_APPEND_DATE_TIME(job, "created", now_ms);
    BSON_APPEND_INT32(job, "attempt", 0);
    BSON_APPEND_INT64(job, "epoch", 0);
}

static void job_make(const truce_queue *queue, const bson_t *payload,
                     const truce_job_options *options, const char *key, const bson_oid_t *id,
                     bson_t *job)
{
    bson_init(job);
    BSON_APPEND_OID(job, "_id", id);
    job_append_template(queue, payload, options, job);
    if (key)
        BSON_APPEND_UTF8(job, "key", key);
}

/* Inserts a job in a commit. The job may have to wait for other jobs, or in its lane. */
static truce_status job_insert(truce_commit *commit, bson_t *job, const truce_job_options *options,
                               int64_t at_ms, int64_t now_ms, bson_error_t *error)
{
    int64_t left;
    truce_status status = truce__workflow_enter(commit, job, options, &left, error);

    job_append_beginning(job, now_ms);
    if (left) {
        char *queue = bson_strdup(truce__field_text(job, "queue"));

        truce__job_append_held(job, "blocked", queue, at_ms, now_ms);
        bson_free(queue);
    } else if (!status) {
        status = truce__job_append_started(commit, job, at_ms, now_ms, job, error);
    }
    return status ? status : truce_commit_insert(commit, QUEUE, job, error);
}

truce_status truce__job_add(truce_queue *queue, truce_commit *commit, const bson_t *payload,
                            const truce_job_options *options, const bson_oid_t *id,
                            bson_error_t *error)
{
    int64_t now_ms = truce__clock_wall_ms();
    bson_t job;
    truce_status status;

    job_make(queue, payload, options, NULL, id, &job);
    status = job_insert(commit, &job, options, job_start_ms(options, now_ms), now_ms, error);
    bson_destroy(&job);
    return status;
}

/* ---- from a template ------------------------------------------------------------------------- */

truce_status truce__job_template(truce_queue *queue, const bson_t *payload,
                                 const truce_job_options *options, bson_t *job, bson_error_t *error)
{
    static const truce_job_options defaults;
    truce_status status;

    options = options ? options : &defaults;
    status = truce__job_check(queue, payload, options, error);
    if (!status)
        job_append_template(queue, payload, options, job);
    return status;
}

truce_status truce__job_from_template(truce_commit *commit, const bson_t *template,
                                      const bson_t *more, bson_error_t *error)
{
    static const truce_job_options none;
    bson_t job = BSON_INITIALIZER;
    int64_t now_ms = truce__clock_wall_ms();
    bson_oid_t id;
    truce_status status;

    truce__id_new(&id);
    BSON_APPEND_OID(&job, "_id", &id);
    bson_concat(&job, template);
    bson_concat(&job, more);
    status = job_insert(commit, &job, &none, now_ms, now_ms, error);
    bson_destroy(&job);
    return status;
}

/* ---- one job --------------------------------------------------------------------------------- */

struct adding {
    truce_queue *queue;
    const bson_t *payload;
    const truce_job_options *options;
    /* The key of a unique job, or NULL. Owned. */
    char *key;
    truce_job_added *added;
    int64_t now_ms;
};

/* The fields that a replacement removes if the new job lacks them. The lane is not one of them. */
static const char *const optional_fields[] = {"name",       "metadata", "tags",
                                              "timeout_ms", "keep",     NULL};

/* Makes the update of a live job that has the unique key: its time and, if the policy is REPLACE,
 * its content. */
static void job_make_replacement(const struct adding *adding, const bson_t *old, bson_t *update)
{
    const truce_job_options *options = adding->options;
    bool all = options->on_conflict == TRUCE_ON_CONFLICT_REPLACE;
    int32_t priority = all ? options->priority : (int32_t)truce__field_number(old, "priority");
    int64_t at_ms = job_start_ms(options, adding->now_ms), current_ms;
    struct job_lane lane;
    bson_t set = BSON_INITIALIZER, unset = BSON_INITIALIZER;

    if (truce__job_lane(old, &lane) && lane.rate &&
        truce__job_date(old, "undone.at", &current_ms) && current_ms > at_ms)
        at_ms = current_ms; /* The rate of the lane has delayed the job until then. */

    if (all) {
        job_append_content(adding->queue, adding->payload, options, &set);
        for (const char *const *name = optional_fields; *name; name++)
            if (!bson_has_field(&set, *name))
                BSON_APPEND_UTF8(&unset, *name, "");
    }
    if (truce__job_is_held(old)) /* The job stays held, in its lane or blocked. */
        truce__job_append_held(&set, truce__job_state(old), adding->queue->name, at_ms,
                               adding->now_ms);
    else
        truce__job_append_queued(&set, adding->queue->name, priority, at_ms, adding->now_ms);
    BSON_APPEND_DOCUMENT(update, "$set", &set);
    if (!bson_empty(&unset))
        BSON_APPEND_DOCUMENT(update, "$unset", &unset);
    bson_destroy(&set);
    bson_destroy(&unset);
}

/* Fails with INVALID if the replacement has another lane than the existing job: the job has its
 * position in its lane. Otherwise, the lane gets the width and the rate of the replacement. */
static truce_status job_replace_lane(const struct adding *adding, truce_commit *commit,
                                     const bson_t *old, bson_error_t *error)
{
    const truce_job_options *options = adding->options;
    const struct job_lane wanted = {.name = options->lane,
                                    .width = options->lane_width ? options->lane_width : 1,
                                    .rate = options->lane_rate,
                                    .per_ms = options->lane_per_ms};
    struct job_lane current = {0};
    char id[25];

    if (options->on_conflict != TRUCE_ON_CONFLICT_REPLACE || !options->lane)
        return TRUCE_OK;
    if (truce__job_lane(old, &current) && !strcmp(current.name, options->lane))
        return truce__lane_adjust(commit, adding->queue->name, &wanted, error);
    bson_oid_to_string(&adding->added->id, id);
    return truce__fail(TRUCE_INVALID, error,
                       "the replacement is for the lane \"%.60s\", and job %s with the key "
                       "\"%.60s\" is in %s%.60s%s: a replaced job keeps its lane",
                       options->lane, id, adding->key, current.name ? "the lane \"" : "no lane",
                       current.name ? current.name : "", current.name ? "\"" : "");
}

/* Applies the conflict policy to the existing job of the key. */
static truce_status job_resolve_conflict(const struct adding *adding, truce_commit *commit,
                                         const bson_t *old, bson_error_t *error)
{
    truce_conflict_policy on_conflict = adding->options->on_conflict;
    bool waits = truce__job_live(old) && strcmp(truce__job_state(old), "running");
    bson_iter_t iter;
    bson_t update = BSON_INITIALIZER;
    truce_status status = TRUCE_OK;

    if (on_conflict == TRUCE_ON_CONFLICT_REFUSE)
        status = truce__fail(TRUCE_DUPLICATE, error,
                             "queue \"%s\" already has a job with the key \"%s\"",
                             adding->queue->name, adding->key);
    adding->added->added = TRUCE_ADDED_EXISTING;
    if (bson_iter_init_find(&iter, old, "_id") && BSON_ITER_HOLDS_OID(&iter))
        bson_oid_copy(bson_iter_oid(&iter), &adding->added->id);
    if (!status && waits && on_conflict != TRUCE_ON_CONFLICT_IGNORE) {
        bson_value_t id = truce_id_oid(&adding->added->id);

        job_make_replacement(adding, old, &update);
        status = job_replace_lane(adding, commit, old, error);
        if (!status)
            status = truce_commit_update(commit, QUEUE, &id, NULL, &update, error);
        adding->added->added = on_conflict == TRUCE_ON_CONFLICT_REPLACE ? TRUCE_ADDED_REPLACED
                                                                        : TRUCE_ADDED_RESCHEDULED;
    }
    bson_destroy(&update);
    return status;
}

/* Returns the scope of the key. With a period, a job counts even after its end, because the period
 * allows one job. */
static truce_unique_scope unique_scope(const truce_job_options *options)
{
    return options->unique_period_ms && options->unique_scope == TRUCE_UNIQUE_LIVE
               ? TRUCE_UNIQUE_KEPT
               : options->unique_scope;
}

/* Adds a job in a commit. If another job has its unique key, and the scope counts that job,
 * resolves the conflict by the policy instead. */
static truce_status job_add_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct adding *adding = arg;
    truce_job_added *added = adding->added;
    bson_oid_t id = added->id;
    bson_t old = BSON_INITIALIZER, job;
    truce_status status = TRUCE_NOT_FOUND;

    if (adding->key) {
        bson_destroy(&old);
        status = unique_take(adding->queue->name, commit, adding->key,
                             unique_scope(adding->options), &id, &old, error);
    }
    if (!status) {
        status = job_resolve_conflict(adding, commit, &old, error);
    } else if (status == TRUCE_NOT_FOUND) {
        job_make(adding->queue, adding->payload, adding->options, adding->key, &id, &job);
        status = job_insert(commit, &job, adding->options,
                            job_start_ms(adding->options, adding->now_ms), adding->now_ms, error);
        added->added = TRUCE_ADDED_NEW;
        bson_destroy(&job);
    }
    bson_destroy(&old);
    return status;
}

/* The id of the new job. Each attempt of the commit begins with it, because an earlier one may have
 * stored the id of an existing job. */
struct trying {
    const struct adding *adding;
    bson_oid_t id;
};

static truce_status job_try_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct trying *trying = arg;

    bson_oid_copy(&trying->id, &trying->adding->added->id);
    return job_add_in(commit, (void *)trying->adding, error);
}

truce_status truce_queue_add(truce_queue *queue, truce_commit *commit, const bson_t *payload,
                             const truce_job_options *options, truce_job_added *added,
                             bson_error_t *error)
{
    DEADLINE_SCOPE(truce__queue_deadline_ms(queue));
    WAIT_LIMIT_SCOPE();
    static const truce_job_options defaults;
    truce_job_added own;
    struct adding adding = {.queue = queue,
                            .payload = payload,
                            .options = options ? options : &defaults,
                            .added = added ? added : &own,
                            .now_ms = truce__clock_wall_ms()};
    struct trying trying = {.adding = &adding};
    truce_status status = truce__job_check(queue, payload, adding.options, error);

    memset(adding.added, 0, sizeof *adding.added);
    if (status)
        return status;
    if (adding.options->id)
        bson_oid_copy(adding.options->id, &trying.id);
    else
        truce__id_new(&trying.id);
    if (adding.options->unique || adding.options->unique_payload)
        adding.key = unique_key(payload, adding.options, adding.now_ms);
    status = truce__queue_run(queue, commit, job_try_in, &trying, error);
    bson_free(adding.key);
    return status;
}

/* ---- many jobs ------------------------------------------------------------------------------- */

/* Checks jobs that are added at once, and their total size. */
static truce_status jobs_check(truce_queue *queue, const bson_t *const *payloads, size_t count,
                               const truce_job_options *options, bson_error_t *error)
{
    truce_status status = job_check(queue, options, error);
    size_t bytes = 0;

    if (!status && (options->unique || options->unique_payload || options->id || options->lane ||
                    options->after_count || options->batch || options->open))
        status =
            truce__fail(TRUCE_INVALID, error,
                        "jobs that are added at once cannot have a unique key, a lane, or an id, "
                        "or wait for others");
    if (!status && count > JOB_BULK_MAX)
        status = truce__fail(TRUCE_LIMIT, error, "cannot add %zu jobs at once: the maximum is %d",
                             count, JOB_BULK_MAX);
    for (size_t i = 0; !status && i < count; i++) {
        status = job_check_payload(payloads[i], error);
        bytes += status ? 0 : payloads[i]->len + 1000;
    }
    if (!status && bytes > TRUCE_BULK_BYTES_MAX)
        status = truce__fail(TRUCE_LIMIT, error, "cannot add %zu bytes at once: the maximum is %d",
                             bytes, TRUCE_BULK_BYTES_MAX);
    return status;
}

/* Inserts jobs by one bulk, which is atomic if the store supports that. */
static truce_status jobs_add(truce_queue *queue, const bson_t *jobs, size_t count,
                             bson_error_t *error)
{
    truce_bulk_options options = {.atomic =
                                      (queue->store->capabilities & TRUCE_CAN_ATOMIC_BULK) != 0};
    truce_write *writes = bson_malloc0(count * sizeof *writes);
    truce_write_outcome *outcomes = bson_malloc0(count * sizeof *outcomes);
    truce_status status;

    for (size_t i = 0; i < count; i++)
        writes[i] = (truce_write){TRUCE_WRITE_INSERT, QUEUE, NULL, &jobs[i]};
    status = truce_bulk(queue->store, writes, count, &options, outcomes, error);
    for (size_t i = 0; i < count; i++)
        truce_write_result_release(&outcomes[i].result);
    bson_free(writes);
    bson_free(outcomes);
    return status;
}

truce_status truce_queue_add_many(truce_queue *queue, const bson_t *const *payloads, size_t count,
                                  const truce_job_options *options, bson_oid_t *ids,
                                  bson_error_t *error)
{
    if (count)
        RETURN_IF_NULL(payloads, error);

    DEADLINE_SCOPE(truce__queue_deadline_ms(queue));
    WAIT_LIMIT_SCOPE();
    static const truce_job_options defaults;
    int64_t now_ms = truce__clock_wall_ms();
    truce_status status;
    bson_t *jobs;

    options = options ? options : &defaults;
    status = jobs_check(queue, payloads, count, options, error);
    if (status || !count)
        return status;
    jobs = bson_malloc0(count * sizeof *jobs);
    for (size_t i = 0; i < count; i++) {
        bson_oid_t id;

        truce__id_new(&id);
        job_make(queue, payloads[i], options, NULL, &id, &jobs[i]);
        job_append_beginning(&jobs[i], now_ms);
        truce__job_append_queued(&jobs[i], queue->name, options->priority,
                                 job_start_ms(options, now_ms), now_ms);
        if (ids)
            bson_oid_copy(&id, &ids[i]);
    }
    status = jobs_add(queue, jobs, count, error);
    for (size_t i = 0; i < count; i++)
        bson_destroy(&jobs[i]);
    bson_free(jobs);
    return status;
}

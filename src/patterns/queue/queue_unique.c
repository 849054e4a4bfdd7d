/*
 * Unique jobs. Which job has a key stands in `truce_queue_keys`:
 *
 *     {_id: {queue, key}, job: ObjectId, at}
 *
 * It is written in the commit that adds the job, which read both the key's document and the job that it names;
 * so of two who add at once one meets the other's job. Nothing is written when a job ends: its key's document
 * is stale then, and the next one of that key takes it over (L7). It goes with its job, in the sweep.
 */
#include "patterns/queue/queue.h"

#include "base/fingerprint.h"

static void key_id(const char *queue, const char *key, bson_t *document, bson_value_t *id)
{
    bson_init(document);
    BSON_APPEND_UTF8(document, "queue", queue);
    BSON_APPEND_UTF8(document, "key", key);
    *id = truce__queue_document_id(document);
}

char *truce__queue_key_of(const bson_t *payload, const truce_job_options *options, int64_t now_ms)
{
    bson_string_t *key = bson_string_new(options->unique ? options->unique : "");
    struct fingerprint print = {0};
    char text[FINGERPRINT_TEXT];
    int64_t at_ms =
        options->run_at_ms ? options->run_at_ms : truce__job_date_after(now_ms, options->delay_ms);

    if (options->unique_payload) {
        truce__fingerprint_add(&print, bson_get_data(payload), payload->len);
        truce__fingerprint_text(&print, text);
        bson_string_append_printf(key, "#%s", text);
    }
    if (options->unique_period_ms)
        bson_string_append_printf(key, "@%lld", (long long)(at_ms / options->unique_period_ms));
    return bson_string_free(key, false);
}

/* OK: the job that the key's document names counts. NOT_FOUND: it does not. */
static truce_status look_at_holder(truce_commit *commit, const bson_t *holder,
                                   truce_unique_scope scope, bson_t *job, bson_error_t *error)
{
    bson_iter_t iter;
    truce_status status;

    if (!bson_iter_init_find(&iter, holder, "job") || !BSON_ITER_HOLDS_OID(&iter))
        return TRUCE_NOT_FOUND;
    bson_destroy(job);
    status = truce_commit_read(commit, QUEUE, bson_iter_value(&iter), job, error);
    if (!status && scope == TRUCE_UNIQUE_LIVE && !truce__job_live(job))
        return TRUCE_NOT_FOUND;
    return status;
}

truce_status truce__queue_key_take(truce_queue *queue, truce_commit *commit, const char *key,
                                   truce_unique_scope scope, const bson_oid_t *id, bson_t *job,
                                   bson_error_t *error)
{
    bson_t id_document, holder, made = BSON_INITIALIZER;
    bson_value_t key_value;
    truce_status status;
    bool stands;

    bson_init(job);
    key_id(queue->name, key, &id_document, &key_value);
    status = truce_commit_read(commit, QUEUE_KEYS, &key_value, &holder, error);
    stands = status == TRUCE_OK;
    if (stands)
        status = look_at_holder(commit, &holder, scope, job, error);
    if (status == TRUCE_NOT_FOUND) {
        truce_status written;

        BSON_APPEND_VALUE(&made, "_id", &key_value);
        BSON_APPEND_OID(&made, "job", id);
        written = stands ? truce_commit_replace(commit, QUEUE_KEYS, &key_value, NULL, &made, error)
                         : truce_commit_insert(commit, QUEUE_KEYS, &made, error);
        status = written ? written : TRUCE_NOT_FOUND;
    }
    bson_destroy(&holder);
    bson_destroy(&made);
    bson_destroy(&id_document);
    return status;
}

/*
 * Unique jobs. Which job has a key stands in `truce_queue_keys`:
 *
 *     {_id: {queue, key}, job: ObjectId, at}
 *
 * It is written in the commit that adds the job, which read both the key's document and the job that it names;
 * so of two who add at once one meets the other's job. Nothing is written when a job ends: its key's document
 * is stale then, and the next one of that key takes it over (L7). One that is retried takes it back in the same way, or is
 * refused. It goes with its job, in the sweep.
 */
#include "patterns/queue/queue.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/field.h"
#include "base/fingerprint.h"
#include "bson/keys.h"
#include "bson/value.h"
#include "store/maintenance.h"

/* ---- the key ------------------------------------------------------------------------------------ */

/* A payload as bytes that are the same for what people call the same: fields in the order of their names, numbers by
 * their values. */
static int unique_by_name(const void *left, const void *right)
{
    const struct fields *a = left, *b = right;
    int order = strcmp(a->key, b->key);

    return order ? order : (a->at > b->at) - (a->at < b->at);
}

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
    struct buffer bytes = {0};
    char text[FINGERPRINT_TEXT];
    int64_t at_ms =
        options->run_at_ms ? options->run_at_ms : truce__job_date_after(now_ms, options->delay_ms);

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

/* ---- who has it ---------------------------------------------------------------------------------- */

static bool unique_counts(const bson_t *job, truce_unique_scope scope)
{
    return scope == TRUCE_UNIQUE_KEPT ||
           (truce__job_live(job) &&
            (scope == TRUCE_UNIQUE_LIVE || strcmp(truce__job_state(job), "running") != 0));
}

/* It runs, and another job takes its key. */
static truce_status give_up_key(truce_commit *commit, const bson_t *job, bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);
    bson_t *update = BCON_NEW("$unset", "{", "key", BCON_UTF8(""), "}");
    truce_status status = truce_commit_update(commit, QUEUE, &id, NULL, update, error);

    bson_destroy(update);
    return status;
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
    if (status || unique_counts(job, scope))
        return status;
    if (truce__job_live(job))
        status = give_up_key(commit, job, error);
    return status ? status : TRUCE_NOT_FOUND;
}

truce_status truce__queue_key_take(const char *queue, truce_commit *commit, const char *key,
                                   truce_unique_scope scope, const bson_oid_t *id, bson_t *job,
                                   bson_error_t *error)
{
    bson_t id_document, holder, made = BSON_INITIALIZER;
    bson_value_t key_value;
    truce_status status;
    bool stands;

    bson_init(job);
    key_id(queue, key, &id_document, &key_value);
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

truce_status truce__queue_key_retake(truce_commit *commit, const bson_t *job, bson_error_t *error)
{
    const char *key = truce__field_text(job, "key");
    bson_value_t id = truce__document_id(job);
    char text[25];
    bson_t holder;
    truce_status status;

    if (!key[0])
        return TRUCE_OK;
    status = truce__queue_key_take(truce__field_text(job, "queue"), commit, key, TRUCE_UNIQUE_LIVE,
                                   &id.value.v_oid, &holder, error);
    if (!status) {
        bson_value_t other = truce__document_id(&holder);

        bson_oid_to_string(&other.value.v_oid, text);
        status =
            truce__fail(TRUCE_INVALID, error,
                        "the live job %s has its key, \"%s\": it cannot be retried", text, key);
    }
    bson_destroy(&holder);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/*
 * Retries: the outcome of an attempt that did not do the job (QJ6 of queue.c). Nothing here reads
 * or writes the store.
 *
 *     failed, attempts left    -> ready or delayed: the backoff, or the delay from the worker
 *     failed, no attempt left  -> dead: a dead letter, until an operator retries or discards it
 *     snoozed                  -> ready or delayed; the attempt does not count
 */
#include <string.h>

#include "base/field.h"
#include "base/limits.h"
#include "base/random.h"
#include "base/utf8.h"
#include "bson/value.h"
#include "patterns/queue/queue.h"

char *truce__job_error_text(const char *text)
{
    size_t length = text ? truce__text_whole(text, strnlen(text, JOB_ERROR_BYTES_MAX)) : 0;
    char *clipped = bson_strndup(text ? text : "", length);

    if (!bson_utf8_validate(clipped, length, false))
        for (char *at = clipped; *at; at++)
            *at = (unsigned char)*at < 0x80 ? *at : '?';
    return clipped;
}

static void retry_append_worker(bson_t *one, const bson_t *document)
{
    bson_iter_t lease, iter;

    if (bson_iter_init(&lease, document) &&
        bson_iter_find_descendant(&lease, "lease.worker", &iter) && BSON_ITER_HOLDS_UTF8(&iter))
        BSON_APPEND_UTF8(one, "worker", bson_iter_utf8(&iter, NULL));
}

void truce__job_update_error(bson_t *update, const bson_t *document, const char *text,
                             int64_t now_ms)
{
    char *clipped = truce__job_error_text(text);
    bson_t push, errors, each, one;

    BSON_APPEND_DOCUMENT_BEGIN(update, "$push", &push);
    BSON_APPEND_DOCUMENT_BEGIN(&push, "errors", &errors);
    BSON_APPEND_ARRAY_BEGIN(&errors, "$each", &each);
    BSON_APPEND_DOCUMENT_BEGIN(&each, "0", &one);
    BSON_APPEND_DATE_TIME(&one, "at", now_ms);
    BSON_APPEND_INT32(&one, "attempt", (int32_t)truce__field_number(document, "attempt"));
    BSON_APPEND_INT64(&one, "epoch", truce__field_number(document, "epoch"));
    retry_append_worker(&one, document);
    BSON_APPEND_UTF8(&one, "text", clipped);
    bson_append_document_end(&each, &one);
    bson_append_array_end(&errors, &each);
    BSON_APPEND_INT32(&errors, "$slice", -JOB_ERRORS_MAX);
    bson_append_document_end(&push, &errors);
    bson_append_document_end(update, &push);
    bson_free(clipped);
}

int64_t truce__job_backoff(truce_backoff backoff, int64_t wait_ms, int64_t most_ms,
                           uint32_t attempt)
{
    if (backoff == TRUCE_BACKOFF_EXPONENTIAL)
        for (uint32_t i = 1; i < attempt && wait_ms < most_ms; i++)
            wait_ms *= 2;
    if (wait_ms > most_ms)
        wait_ms = most_ms;
    return wait_ms - (int64_t)(truce__random_entropy() % (uint64_t)(wait_ms / 2 + 1));
}

static int64_t retry_delay_ms(const truce_queue *queue, uint32_t attempt)
{
    int64_t wait;

    if (!queue->backoff_function)
        return truce__job_backoff(queue->backoff, queue->backoff_ms, queue->backoff_max_ms,
                                  attempt);
    wait = queue->backoff_function(attempt, queue->backoff_arg);
    return wait < 0 ? 0 : wait;
}

void truce__job_update_fail(bson_t *update, const truce_queue *queue, const bson_t *document,
                            const char *text, int64_t delay_ms, int64_t now_ms)
{
    int64_t attempt = truce__field_number(document, "attempt");
    bson_t set, unset;

    /* Each release counts as an attempt, so a job that kills its workers ends (QJ6). */
    if (attempt >= truce__field_number(document, "attempts_max")) {
        truce__job_update_end(update, document, "dead", NULL, now_ms);
    } else {
        if (delay_ms < 0)
            delay_ms = retry_delay_ms(queue, (uint32_t)attempt);
        BSON_APPEND_DOCUMENT_BEGIN(update, "$set", &set);
        truce__job_append_queued(&set, truce__field_text(document, "queue"),
                                 (int32_t)truce__field_number(document, "priority"),
                                 truce__date_after(now_ms, delay_ms), now_ms);
        bson_append_document_end(update, &set);
        BSON_APPEND_DOCUMENT_BEGIN(update, "$unset", &unset);
        BSON_APPEND_UTF8(&unset, "lease", "");
        bson_append_document_end(update, &unset);
    }
    truce__job_update_error(update, document, text, now_ms);
}

void truce__job_update_snooze(bson_t *update, const bson_t *document, int64_t at_ms, int64_t now_ms)
{
    bson_t set, unset, inc;

    BSON_APPEND_DOCUMENT_BEGIN(update, "$set", &set);
    truce__job_append_queued(&set, truce__field_text(document, "queue"),
                             (int32_t)truce__field_number(document, "priority"), at_ms, now_ms);
    bson_append_document_end(update, &set);
    BSON_APPEND_DOCUMENT_BEGIN(update, "$unset", &unset);
    BSON_APPEND_UTF8(&unset, "lease", "");
    bson_append_document_end(update, &unset);
    BSON_APPEND_DOCUMENT_BEGIN(update, "$inc", &inc);
    BSON_APPEND_INT32(&inc, "attempt", -1);
    bson_append_document_end(update, &inc);
}

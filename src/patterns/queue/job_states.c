/* The document of a job: what it says, and the updates that change its state. Nothing here reads
 * or writes the store. */
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/field.h"
#include "bson/field_name_escape.h"
#include "bson/value.h"
#include "patterns/queue/queue.h"

const char *truce__job_state(const bson_t *document)
{
    return truce__field_text(document, "state");
}

bool truce__job_live(const bson_t *document)
{
    const char *state = truce__job_state(document);

    return !strcmp(state, "ready") || !strcmp(state, "delayed") || !strcmp(state, "running") ||
           truce__job_is_held(document);
}

bool truce__job_is_held(const bson_t *document)
{
    const char *state = truce__job_state(document);

    return !strcmp(state, "waiting") || !strcmp(state, "blocked");
}

bool truce__job_lane(const bson_t *document, struct job_lane *lane)
{
    bson_t field;

    if (!truce__value_subdocument(document, "lane", &field))
        return false;
    *lane = (struct job_lane){
        truce__field_text(&field, "name"), truce__field_number(&field, "width"),
        truce__field_number(&field, "rate"), truce__field_number(&field, "per_ms")};
    if (lane->rate < 1 || lane->per_ms < 1)
        lane->rate = 0;
    return *lane->name && lane->width > 0;
}

static bool queue_find_path(const bson_t *document, const char *path, bson_iter_t *found)
{
    bson_iter_t iter;

    return bson_iter_init(&iter, document) && bson_iter_find_descendant(&iter, path, found);
}

bool truce__job_date(const bson_t *document, const char *path, int64_t *ms)
{
    bson_iter_t iter;

    *ms = 0;
    if (!queue_find_path(document, path, &iter) || !BSON_ITER_HOLDS_DATE_TIME(&iter))
        return false;
    *ms = truce__iter_date(&iter);
    return true;
}

bool truce__job_token(const bson_t *document, bson_oid_t *token)
{
    bson_iter_t iter;

    if (!queue_find_path(document, "lease.token", &iter) || !BSON_ITER_HOLDS_OID(&iter))
        return false;
    bson_oid_copy(bson_iter_oid(&iter), token);
    return true;
}

/* Appends `state` and `undone`. If `later`, the job is held and must not begin before at_ms. */
static void queue_append_state(bson_t *set, const char *state, const char *queue, int32_t rank,
                               int64_t at_ms, bool later)
{
    bson_t undone;

    BSON_APPEND_UTF8(set, "state", state);
    BSON_APPEND_DOCUMENT_BEGIN(set, "undone", &undone);
    BSON_APPEND_UTF8(&undone, "state", state);
    BSON_APPEND_UTF8(&undone, "queue", queue);
    BSON_APPEND_INT32(&undone, "rank", rank);
    BSON_APPEND_DATE_TIME(&undone, "at", at_ms);
    if (later)
        BSON_APPEND_BOOL(&undone, "later", true);
    bson_append_document_end(set, &undone);
}

void truce__job_append_queued(bson_t *set, const char *queue, int32_t priority, int64_t at_ms,
                              int64_t now_ms)
{
    bool ready = at_ms <= now_ms;

    queue_append_state(set, ready ? "ready" : "delayed", queue, -priority, at_ms, false);
}

void truce__job_append_held(bson_t *set, const char *state, const char *queue, int64_t at_ms,
                            int64_t now_ms)
{
    queue_append_state(set, state, queue, 0, at_ms, at_ms > now_ms);
}

int64_t truce__job_held_start(const bson_t *job, int64_t now_ms)
{
    bson_iter_t later;
    int64_t at_ms;

    (void)truce__job_date(job, "undone.at", &at_ms);
    return at_ms > now_ms && !queue_find_path(job, "undone.later", &later) ? now_ms : at_ms;
}

/* Returns how long the job is kept in that state, or -1 for forever. */
static int64_t queue_keep_ms(const bson_t *document, const char *state)
{
    bson_t keep;

    if (truce__value_subdocument(document, "keep", &keep) && bson_has_field(&keep, state))
        return truce__field_number(&keep, state);
    return strcmp(state, "dead") ? truce__field_number(document, "keep_ms") : -1;
}

/* Appends the update that ends a job: its state, result, and time of removal. */
static void queue_append_end(bson_t *update, const bson_t *document, const char *state,
                             const bson_t *result, bool committed, int64_t now_ms)
{
    int64_t keep_ms = queue_keep_ms(document, state);
    bool dead = !strcmp(state, "dead");
    bson_t set, unset, letter;

    BSON_APPEND_DOCUMENT_BEGIN(update, "$set", &set);
    BSON_APPEND_UTF8(&set, "state", state);
    BSON_APPEND_DATE_TIME(&set, "ended", now_ms);
    if (dead) {
        BSON_APPEND_DOCUMENT_BEGIN(&set, "dead", &letter);
        BSON_APPEND_UTF8(&letter, "queue", truce__field_text(document, "queue"));
        BSON_APPEND_DATE_TIME(&letter, "at", now_ms);
        bson_append_document_end(&set, &letter);
    }
    if (keep_ms >= 0)
        BSON_APPEND_DATE_TIME(&set, "expires", truce__date_after(now_ms, keep_ms));
    if (result)
        truce__names_append(&set, "result", result);
    if (committed)
        BSON_APPEND_BOOL(&set, "lease.committed", true);
    bson_append_document_end(update, &set);
    BSON_APPEND_DOCUMENT_BEGIN(update, "$unset", &unset);
    BSON_APPEND_UTF8(&unset, "undone", "");
    if (!dead)
        BSON_APPEND_UTF8(&unset, "dead", "");
    if (strcmp(state, "done"))
        /* A done job keeps its lease, which names the worker. */
        BSON_APPEND_UTF8(&unset, "lease", "");
    bson_append_document_end(update, &unset);
}

void truce__job_update_end(bson_t *update, const bson_t *document, const char *state,
                           const bson_t *result, int64_t now_ms)
{
    queue_append_end(update, document, state, result, false, now_ms);
}

void truce__job_update_commit(bson_t *update, const bson_t *document, const bson_t *result,
                              int64_t now_ms)
{
    queue_append_end(update, document, "done", result, true, now_ms);
}

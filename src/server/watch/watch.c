/*
 * Change streams.
 *
 *     entries of the feed   ... 40 41 42 43 44 45 46
 *                                  ^at         ^reached
 *     queue                         42    44         of those in between, what the stream sees
 *
 * Invariants:
 *  1. `at` is the token of the last event that left the queue, told or filtered out by the stages; with an empty queue it is
 *     `reached`. So who goes on from there has lost nothing, and hears nothing twice.
 *  2. What is read of the feed is durable: nobody is told of a change that a power cut undoes.
 *  3. The queue has QUEUE_BYTES and one event more at most; one read looks at SCAN_MOST entries, so a snapshot is kept for
 *     a moment only.
 *  4. Behind the event that ends the stream comes "invalidate", and nothing else.
 *  5. An event leaves the server with the _id that it was made with: it is what clients come back with. One that is split
 *     stays the first of the queue until its last fragment was told.
 *
 * A crash of the server leaves nothing: the place is the client's.
 */
#include "server/watch/watch.h"

#include <string.h>

#include "base/assert.h"
#include "bson/value.h"
#include "engine/engine.h"
#include "query/aggregate/aggregate.h"
#include "store/file/file.h"

#define SCAN_MOST   1000
#define QUEUE_BYTES ((size_t)4 * 1024 * 1024)

struct event {
    struct event *next;
    bson_t *document;
    int64_t position;
    enum watch_place place;
    bool updates, whole; /* is it an update; or told by all of the document, or by its removal */
    bool no_before, no_after; /* wanted as it was, which was not kept */
    char *collection;         /* a place, of an update */
};

struct watch {
    truce_store *store;
    struct engine *engine;
    struct watch_scope scope;
    enum watch_document full, before;
    struct pipeline *pipeline; /* NULL: no stages */
    struct arena arena;
    struct watch_token at;
    int64_t reached, from;
    struct event *first, **end;
    size_t queued; /* bytes */
    bool ends;     /* what ends the stream is in the queue, or was told */

    bool splits; /* an event that is too large is told in fragments */
    bson_t *
        split; /* what the stages left of the first of the queue, if that is one; NULL: it is none */
    int fragment, fragments; /* of it: the next one, and all */
    int64_t skip_at;         /* of the event there ... */
    int skip;                /* ... so many fragments were told before; 0: of no event */
};

/* ---- the queue -------------------------------------------------------------------------------- */

/* Documents as they were, if they are asked for. */
static void watch_append_images(const struct watch *watch, const struct feed_entry *entry,
                                struct event *event)
{
    bool before = watch->before != WATCH_NONE && (event->updates || event->whole);
    bool after = event->updates && (watch->full == WATCH_IF_ANY || watch->full == WATCH_REQUIRED);

    event->no_after = after && bson_empty(&entry->after);
    event->no_before = before && bson_empty(&entry->before);
    if (after && !event->no_after)
        BSON_APPEND_DOCUMENT(event->document, "fullDocument", &entry->after);
    else if (after)
        BSON_APPEND_NULL(event->document, "fullDocument");
    if (before && !event->no_before)
        BSON_APPEND_DOCUMENT(event->document, "fullDocumentBeforeChange", &entry->before);
    else if (before)
        BSON_APPEND_NULL(event->document, "fullDocumentBeforeChange");
}

static void watch_push(struct watch *watch, bson_t *document, int64_t position,
                       enum watch_place place, const struct feed_entry *entry)
{
    struct event *event = bson_malloc0(sizeof *event);

    event->document = document;
    event->position = position;
    event->place = place;
    if (entry) {
        event->updates = entry->kind == FEED_UPDATE;
        event->whole = entry->kind == FEED_REPLACE || entry->kind == FEED_DELETE;
        event->collection = event->updates ? bson_strdup(entry->collection) : NULL;
        watch_append_images(watch, entry, event);
    }
    *watch->end = event;
    watch->end = &event->next;
    watch->queued += document->len;
}

static void free_event(struct event *event)
{
    bson_destroy(event->document);
    bson_free(event->collection);
    bson_free(event);
}

/* The first of the queue is done with. */
static void pop(struct watch *watch)
{
    struct event *event = watch->first;

    watch->at.position = event->position;
    watch->at.place = event->place;
    watch->queued -= event->document->len;
    watch->first = event->next;
    if (!watch->first)
        watch->end = &watch->first;
    free_event(event);
}

static void push_invalidate(struct watch *watch, const struct feed_entry *entry)
{
    watch_push(watch, watch_invalidate(&watch->at.feed, entry->position, entry->wall_ms),
               entry->position, WATCH_INVALIDATE, NULL);
    watch->ends = true;
}

static bool watch_take(void *arg, const struct feed_entry *entry)
{
    struct watch *watch = arg;
    bson_t *event;

    if (watch->ends)
        return false;
    if (entry->position < watch->from || !watch_sees(&watch->scope, entry))
        return true;
    if (watch->first && watch->queued > QUEUE_BYTES)
        return false;
    event = watch_event(&watch->scope, &watch->at.feed, entry);
    watch_push(watch, event, entry->position, WATCH_EVENT,
               watch_is_of_view(&watch->scope, entry) ? NULL : entry);
    if (watch_ends(&watch->scope, entry))
        push_invalidate(watch, entry);
    return true;
}

static truce_status watch_lost(bson_error_t *error)
{
    return truce__refuse(CODE_CHANGE_STREAM_HISTORY_LOST, error,
                         "Resume of change stream was not possible, as the resume point may no "
                         "longer be in the feed of changes");
}

static truce_status watch_explain(truce_status status, bson_error_t *error)
{
    if (status == TRUCE_EXPIRED)
        return watch_lost(error);
    if (status == TRUCE_INVALID)
        return truce__refuse(CODE_CHANGE_STREAM_FATAL, error,
                             "cannot resume stream; the resume token was not found");
    return status;
}

/* More entries, if the queue is empty and there are any: `*more`. */
static truce_status watch_fill(struct watch *watch, bool *more, bson_error_t *error)
{
    int64_t from = watch->reached;
    truce_status status;

    *more = false;
    if (watch->first || watch->ends)
        return TRUCE_OK;
    status = truce__engine_feed_read(watch->engine, &watch->at.feed, watch->reached, SCAN_MOST,
                                     watch_take, watch, &watch->reached, error);
    if (status)
        return watch_explain(status, error);
    if (!watch->first && watch->reached > watch->at.position) {
        watch->at.position = watch->reached;
        watch->at.place = WATCH_MARK;
    }
    *more = watch->reached > from;
    return TRUCE_OK;
}

/* ---- from an event to what is told --------------------------------------------------------------- */

static truce_status no_image(const char *which, const char *events, bson_error_t *error)
{
    return truce__refuse(CODE_NO_MATCHING_DOCUMENT, error,
                         "Change stream was configured to require a %s-image for all %s events, "
                         "but the %s-image was not found for event: it was not kept",
                         which, events, which);
}

/* The document as it is now, or null. */
static truce_status watch_look_up(struct watch *watch, const struct event *event,
                                  bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, key, equal, document;
    bson_iter_t id;
    truce_status status;

    if (!truce__value_subdocument(event->document, "documentKey", &key) ||
        !bson_iter_init_find(&id, &key, "_id"))
        return truce__fail(TRUCE_CORRUPT, error, "an update of the feed has no key");
    BSON_APPEND_DOCUMENT_BEGIN(&filter, "_id", &equal);
    BSON_APPEND_VALUE(&equal, "$eq", bson_iter_value(&id));
    bson_append_document_end(&filter, &equal);
    status = truce_find_one(watch->store, event->collection, &filter, NULL, &document, error);
    if (!status)
        BSON_APPEND_DOCUMENT(event->document, "fullDocument", &document);
    else if (status == TRUCE_NOT_FOUND)
        BSON_APPEND_NULL(event->document, "fullDocument");
    bson_destroy(&document);
    bson_destroy(&filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static truce_status watch_complete(struct watch *watch, struct event *event, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (event->no_after && watch->full == WATCH_REQUIRED)
        return no_image("post", "update", error);
    if (event->no_before && watch->before == WATCH_REQUIRED)
        return no_image("pre", "update, delete and replace", error);
    if (event->updates && watch->full == WATCH_LOOKUP)
        status = watch_look_up(watch, event, error);
    return status;
}

/* What the stages leave of an event is what has to fit. */
static truce_status check_size(const bson_t *told, bson_error_t *error)
{
    if (told->len <= EVENT_BYTES)
        return TRUCE_OK;
    return truce__refuse(CODE_BSON_OBJECT_TOO_LARGE, error,
                         "BSONObj size: %u (0x%X) is invalid. Size must be between 0 and %d(16MB)",
                         told->len, told->len, EVENT_BYTES);
}

static void append_told(bson_t *batch, uint32_t *count, const bson_t *document)
{
    char buffer[16];
    const char *key;

    bson_uint32_to_string((*count)++, &key, buffer, sizeof buffer);
    BSON_APPEND_DOCUMENT(batch, key, document);
}

/* ---- fragments (watch_stages.c) ------------------------------------------------------------------ */

static truce_status another_split(const char *how, bson_error_t *error)
{
    return truce__refuse(CODE_CHANGE_STREAM_FATAL, error,
                         "Attempted to resume from a split event%s", how);
}

/* The document is taken over. */
static truce_status begin_split(struct watch *watch, bson_t *document, bson_error_t *error)
{
    bool resumed = watch->skip && watch->first->position == watch->skip_at;
    truce_status status = watch_fragments(document, &watch->fragments, error);

    watch->split = document;
    watch->fragment = resumed ? watch->skip : 0;
    if (!status && watch->fragment > watch->fragments)
        status = another_split(", but the resumed stream produced a different split. Ensure that "
                               "the pipeline used to resume is the same as the original",
                               error);
    return status;
}

static void end_split(struct watch *watch)
{
    bson_destroy(watch->split);
    watch->split = NULL;
    pop(watch);
}

static void tell_fragment(struct watch *watch, bson_t *batch, uint32_t *count, bool *fits)
{
    const struct watch_token token = {watch->at.feed, watch->first->position, WATCH_FRAGMENT,
                                      watch->fragment};
    bson_t *fragment;

    if (watch->fragment == watch->fragments) {
        end_split(watch);
        return;
    }
    fragment = watch_fragment(watch->split, watch->fragments, &token);
    *fits = !*count || batch->len + fragment->len <= TRUCE_DOCUMENT_BYTES_MAX;
    if (*fits) {
        append_told(batch, count, fragment);
        watch->at = token;
        if (++watch->fragment == watch->fragments)
            end_split(watch);
    }
    bson_destroy(fragment);
}

/* What the stages have left of the first of the queue, which is taken over: told, or to be told in fragments. */
static truce_status tell_whole(struct watch *watch, bson_t *document, bson_t *batch,
                               uint32_t *count, bson_error_t *error)
{
    truce_status status;

    if (watch->splits && document->len > EVENT_BYTES)
        return begin_split(watch, document, error);
    if (watch->skip && watch->first->position == watch->skip_at)
        status =
            another_split(" fragment, but the event in the resumed stream was not large enough "
                          "to be split",
                          error);
    else
        status = check_size(document, error);
    if (!status) {
        append_told(batch, count, document);
        pop(watch);
    }
    bson_destroy(document);
    return status;
}

/* The first of the queue. `*fits` false: it stays for the next batch. */
static truce_status watch_tell(struct watch *watch, bson_t *batch, uint32_t *count, bool *fits,
                               bson_error_t *error)
{
    struct event *event = watch->first;
    bson_t *told = NULL;
    truce_status status = TRUCE_OK;

    if (watch->split) {
        tell_fragment(watch, batch, count, fits);
        return TRUCE_OK;
    }
    *fits = !*count || batch->len + event->document->len <= TRUCE_DOCUMENT_BYTES_MAX;
    if (!*fits)
        return TRUCE_OK;
    status = watch_complete(watch, event, error);
    if (!status && watch->pipeline)
        status = watch_stages_run(watch->pipeline, watch->engine, &watch->arena, event->document,
                                  &told, error);
    if (status) {
        if (told)
            bson_destroy(told);
        return status;
    }
    if (!told && watch->pipeline) {
        pop(watch);
        return TRUCE_OK;
    }
    return tell_whole(watch, told ? told : bson_copy(event->document), batch, count, error);
}

truce_status watch_read(struct watch *watch, int64_t most, bson_t *batch, uint32_t *count,
                        bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bool more = true, fits = true;

    *count = 0;
    while (!status && more && fits && (most < 0 || *count < most)) {
        status = watch_fill(watch, &more, error);
        more = more || watch->first;
        while (!status && fits && watch->first && (most < 0 || *count < most))
            status = watch_tell(watch, batch, count, &fits, error);
    }
    return status;
}

/* ---- beginning and end --------------------------------------------------------------------------- */

struct looking {
    const struct watch_scope *scope;
    int64_t position, wall_ms;
    bool found, ends;
};

static bool watch_take_place(void *arg, const struct feed_entry *entry)
{
    struct looking *looking = arg;

    looking->found = entry->position == looking->position;
    looking->ends = looking->found && watch_ends(looking->scope, entry);
    looking->wall_ms = entry->wall_ms;
    return true;
}

/* An event was told there: is it there, and did it end the stream? */
static truce_status look_at_event(struct watch *watch, const struct feed_state *state,
                                  bson_error_t *error)
{
    struct looking looking = {.scope = &watch->scope, .position = watch->at.position};
    int64_t reached;
    truce_status status;

    if (watch->at.position <= state->horizon) /* it is gone, and what comes behind it is not */
        return TRUCE_OK;
    status = truce__engine_feed_read(watch->engine, &watch->at.feed, watch->at.position - 1, 1,
                                     watch_take_place, &looking, &reached, error);
    if (!status && !looking.found)
        status = TRUCE_INVALID;
    if (!status && looking.ends)
        push_invalidate(watch, &(struct feed_entry){.position = watch->at.position,
                                                    .wall_ms = looking.wall_ms});
    return watch_explain(status, error);
}

/* Behind a fragment: its event is read again. */
static truce_status set_out_within(struct watch *watch, const struct feed_state *state,
                                   bson_error_t *error)
{
    if (!watch->splits)
        return another_split(" fragment, but the pipeline has no $changeStreamSplitLargeEvent",
                             error);
    if (watch->at.position <= state->horizon)
        return watch_lost(error);
    watch->skip_at = watch->at.position;
    watch->skip = watch->at.fragment + 1;
    watch->reached = watch->at.position - 1;
    return look_at_event(watch, state, error);
}

static truce_status set_out(struct watch *watch, const struct watch_options *options,
                            bson_error_t *error)
{
    struct feed_state state;
    truce_status status = truce__engine_feed_state(watch->engine, &state, error);

    if (!status && !state.spec.table)
        status = truce__refuse(40573, error,
                               "The $changeStream stage is only supported where there is a feed of "
                               "changes: start truce serve with --feed-hours 24");
    if (status)
        return status;
    watch->scope.file = state.file;
    watch->at = (struct watch_token){.feed = state.spec.id, .position = state.last};
    if (options->from) {
        watch->from = options->from;
        if (options->from <= state.horizon)
            return watch_lost(error);
        if (options->from <= state.last)
            watch->at.position = options->from - 1;
    }
    if (options->resume) {
        watch->at = *options->resume;
        if (!bson_oid_equal(&watch->at.feed, &state.spec.id) || watch->at.position < state.horizon)
            return watch_lost(error);
        if (watch->at.position > state.last)
            return watch_explain(TRUCE_INVALID, error);
    }
    watch->reached = watch->at.position;
    if (watch->at.place == WATCH_FRAGMENT)
        return set_out_within(watch, &state, error);
    return watch->at.place == WATCH_EVENT ? look_at_event(watch, &state, error) : TRUCE_OK;
}

struct engine *watch_engine(truce_store *store)
{
    return truce__file_engine_or_null(store);
}

int64_t watch_time(struct engine *engine, int64_t now_ms)
{
    return truce__feed_pass(&engine->writer,
                            truce__feed_position(now_ms / 1000 - WATCH_BEHIND_S, 0));
}

static truce_status compile_stages(struct watch *watch, const bson_t *stages, bson_error_t *error)
{
    bson_t rest;
    truce_status status = watch_stages_take(stages, &rest, &watch->splits, error);

    if (!status && !bson_empty(&rest)) {
        status = truce__pipeline_new(&rest, &watch->pipeline, error);
        if (!status)
            status = watch_stages_check(&rest, error);
    }
    bson_destroy(&rest);
    return status;
}

truce_status watch_new(truce_store *store, const struct watch_options *options,
                       struct watch **watch, bson_error_t *error)
{
    struct watch *made = bson_malloc0(sizeof *made);
    truce_status status = TRUCE_OK;

    made->store = store;
    made->engine = watch_engine(store);
    made->end = &made->first;
    made->full = options->full;
    made->before = options->before;
    made->scope.reach = options->reach;
    made->scope.expanded = options->expanded;
    snprintf(made->scope.own, sizeof made->scope.own, "%s", options->own);
    snprintf(made->scope.database, sizeof made->scope.database, "%s", options->database);
    snprintf(made->scope.place, sizeof made->scope.place, "%s",
             options->place ? options->place : "");
    if (options->stages)
        status = compile_stages(made, options->stages, error);
    if (!status && !made->engine)
        status = truce__refuse(40573, error,
                               "The $changeStream stage is only supported on a store that is a "
                               "file");
    if (!status)
        status = set_out(made, options, error);
    if (status) {
        watch_free(made);
        made = NULL;
    }
    *watch = made;
    return status;
}

void watch_free(struct watch *watch)
{
    if (!watch)
        return;
    while (watch->first)
        pop(watch);
    if (watch->split)
        bson_destroy(watch->split);
    truce__pipeline_free(watch->pipeline);
    truce__arena_release(&watch->arena);
    bson_free(watch);
}

bool watch_is_over(const struct watch *watch)
{
    return watch->ends && !watch->first;
}

struct watch_token watch_at(const struct watch *watch)
{
    return watch->at;
}

enum watch_reach watch_reach(const struct watch *watch)
{
    return watch->scope.reach;
}

void watch_wait(struct watch *watch, uint64_t *seen, uint32_t most_ms)
{
    bson_error_t ignored; /* whoever asks looks for what has come, and for the reasons to end */

    (void)!truce__engine_wait(watch->engine, FEED_WAKE, seen, most_ms, &ignored);
}

/*
 * The trace decorator: a store that tells every call (truce/sys/decorate.h has the shape).
 *
 * Each verb appends its arguments to a call's event, does the call, appends the answer. Events
 * leave under one mutex, so that the listener sees one at a time, in the order in which calls
 * returned; the times in them, taken outside of it, are what a checker of histories goes by.
 */
#include "truce/sys/decorate.h"

#include <pthread.h>

#include "base/assert.h"
#include "base/clock.h"
#include "bson/json.h"
#include "store/decorators/trace_show.h"
#include "store/store.h"

#define THREADS_MAX 1024

struct trace_store {
    truce_store base;
    truce_store *inner;
    truce_trace_options options;
    pthread_mutex_t mutex; /* over all below, and held while the listener runs */
    uint64_t calls, cursors;
    pthread_t threads[THREADS_MAX];
    int threads_count;
};

struct trace_cursor {
    truce_cursor base;
    struct trace_store *trace;
    truce_cursor *inner;
    char *collection;
    uint64_t number;
};

/* One call on its way. */
struct call {
    struct trace_store *trace;
    const char *verb, *collection;
    uint64_t number;
    int thread;
    int64_t begin_ns;
    bson_t arguments, answer;
};

/* ---- one call ------------------------------------------------------------------------------- */

/* The mutex is held. Threads beyond the maximum share the last number. */
static int thread_number(struct trace_store *trace)
{
    pthread_t self = pthread_self();

    for (int i = 0; i < trace->threads_count; i++)
        if (pthread_equal(trace->threads[i], self))
            return i;
    if (trace->threads_count == THREADS_MAX)
        return THREADS_MAX - 1;
    trace->threads[trace->threads_count] = self;
    return trace->threads_count++;
}

static void call_init(struct call *call, truce_store *base, const char *verb,
                      const char *collection)
{
    struct trace_store *trace = (struct trace_store *)base;

    *call = (struct call){.trace = trace, .verb = verb, .collection = collection};
    bson_init(&call->arguments);
    bson_init(&call->answer);
    pthread_mutex_lock(&trace->mutex);
    call->number = ++trace->calls;
    call->thread = thread_number(trace);
    pthread_mutex_unlock(&trace->mutex);
}

static void describe(const struct call *call, bson_t *event)
{
    BSON_APPEND_INT64(event, "n", (int64_t)call->number);
    BSON_APPEND_UTF8(event, "verb", call->verb);
    if (call->collection)
        BSON_APPEND_UTF8(event, "collection", call->collection);
    BSON_APPEND_INT32(event, "thread", call->thread);
    BSON_APPEND_INT64(event, "begin", call->begin_ns);
}

static void tell(struct trace_store *trace, const bson_t *event)
{
    pthread_mutex_lock(&trace->mutex);
    trace->options.function(event, trace->options.arg);
    pthread_mutex_unlock(&trace->mutex);
}

/* The arguments are complete: the call begins now. */
static void call_begin(struct call *call)
{
    bson_t event = BSON_INITIALIZER;

    call->begin_ns = truce__clock_monotonic_ns();
    if (call->trace->options.beginnings) {
        describe(call, &event);
        BSON_APPEND_DOCUMENT(&event, "arguments", &call->arguments);
        tell(call->trace, &event);
    }
    bson_destroy(&event);
}

static void append_error(bson_t *parent, const bson_error_t *error)
{
    bson_t child;

    BSON_APPEND_DOCUMENT_BEGIN(parent, "error", &child);
    BSON_APPEND_INT64(&child, "code", error->code);
    BSON_APPEND_UTF8(&child, "message", error->message);
    bson_append_document_end(parent, &child);
}

static truce_status call_end(struct call *call, truce_status status, const bson_error_t *error)
{
    int64_t end_ns = truce__clock_monotonic_ns();
    bson_t event = BSON_INITIALIZER;

    describe(call, &event);
    BSON_APPEND_INT64(&event, "end", end_ns);
    BSON_APPEND_DOCUMENT(&event, "arguments", &call->arguments);
    BSON_APPEND_UTF8(&event, "status", truce_status_name(status));
    if (status)
        append_error(&event, error);
    else
        BSON_APPEND_DOCUMENT(&event, "answer", &call->answer);
    tell(call->trace, &event);
    bson_destroy(&event);
    bson_destroy(&call->arguments);
    bson_destroy(&call->answer);
    return status;
}

/* ---- cursors -------------------------------------------------------------------------------- */

static truce_status cursor_next(truce_cursor *base, const bson_t **document, bson_error_t *error)
{
    struct trace_cursor *cursor = (struct trace_cursor *)base;
    struct call call;
    truce_status status;

    call_init(&call, &cursor->trace->base, "next", cursor->collection);
    truce__trace_add_number(&call.arguments, "cursor", (int64_t)cursor->number);
    call_begin(&call);
    status = truce_cursor_next(cursor->inner, document, error);
    if (!status && *document)
        BSON_APPEND_DOCUMENT(&call.answer, "document", *document);
    return call_end(&call, status, error);
}

static void cursor_close(truce_cursor *base)
{
    struct trace_cursor *cursor = (struct trace_cursor *)base;

    truce_cursor_close(cursor->inner);
    bson_free(cursor->collection);
    bson_free(cursor);
}

static const truce_cursor_ops cursor_ops = {cursor_next, cursor_close};

static void wrap_cursor(struct call *call, truce_cursor *inner, truce_cursor **cursor)
{
    struct trace_cursor *made = bson_malloc0(sizeof(*made));

    *made =
        (struct trace_cursor){{&cursor_ops}, call->trace, inner, bson_strdup(call->collection), 0};
    pthread_mutex_lock(&call->trace->mutex);
    made->number = ++call->trace->cursors;
    pthread_mutex_unlock(&call->trace->mutex);
    truce__trace_add_number(&call->answer, "cursor", (int64_t)made->number);
    *cursor = &made->base;
}

/* ---- reading -------------------------------------------------------------------------------- */

static truce_status find(truce_store *base, const char *collection, const bson_t *filter,
                         const truce_find_options *options, truce_cursor **cursor,
                         bson_error_t *error)
{
    truce_cursor *inner = NULL;
    struct call call;
    truce_status status;

    call_init(&call, base, "find", collection);
    BSON_APPEND_DOCUMENT(&call.arguments, "filter", filter);
    truce__trace_add_find_options(&call.arguments, options);
    call_begin(&call);
    status = truce_find(call.trace->inner, collection, filter, options, &inner, error);
    if (!status)
        wrap_cursor(&call, inner, cursor);
    return call_end(&call, status, error);
}

static truce_status count(truce_store *base, const char *collection, const bson_t *filter,
                          const truce_count_options *options, int64_t *number, bson_error_t *error)
{
    const truce_find_options as_find = truce__count_as_find(options);
    struct call call;
    truce_status status;

    call_init(&call, base, "count", collection);
    BSON_APPEND_DOCUMENT(&call.arguments, "filter", filter);
    truce__trace_add_find_options(&call.arguments, &as_find);
    call_begin(&call);
    status = truce_count(call.trace->inner, collection, filter, options, number, error);
    BSON_APPEND_INT64(&call.answer, "count", *number);
    return call_end(&call, status, error);
}

static truce_status distinct(truce_store *base, const char *collection, const char *path,
                             const bson_t *filter, bson_t *values, bson_error_t *error)
{
    struct call call;
    truce_status status;

    call_init(&call, base, "distinct", collection);
    BSON_APPEND_UTF8(&call.arguments, "path", path);
    BSON_APPEND_DOCUMENT(&call.arguments, "filter", filter);
    call_begin(&call);
    status = truce_distinct(call.trace->inner, collection, path, filter, values, error);
    truce__trace_add_array(&call.answer, "values", values);
    return call_end(&call, status, error);
}

static truce_status aggregate(truce_store *base, const char *collection, const bson_t *pipeline,
                              const truce_aggregate_options *options, truce_cursor **cursor,
                              bson_error_t *error)
{
    truce_cursor *inner = NULL;
    struct call call;
    truce_status status;

    call_init(&call, base, "aggregate", collection);
    truce__trace_add_array(&call.arguments, "pipeline", pipeline);
    truce__trace_add_document(&call.arguments, "hint", options->hint);
    truce__trace_add_number(&call.arguments, "deadline_ms", options->deadline_ms);
    call_begin(&call);
    status = truce_aggregate(call.trace->inner, collection, pipeline, options, &inner, error);
    if (!status)
        wrap_cursor(&call, inner, cursor);
    return call_end(&call, status, error);
}

static truce_status explain(truce_store *base, const char *collection, const bson_t *filter,
                            const truce_find_options *options, bool counts, bson_t *plan,
                            bson_error_t *error)
{
    struct call call;
    truce_status status;

    call_init(&call, base, "explain", collection);
    BSON_APPEND_DOCUMENT(&call.arguments, "filter", filter);
    truce__trace_add_find_options(&call.arguments, options);
    truce__trace_add_truth(&call.arguments, "count", counts);
    call_begin(&call);
    status =
        truce__store_explain(call.trace->inner, collection, filter, options, counts, plan, error);
    truce__trace_add_document(&call.answer, "plan", plan);
    return call_end(&call, status, error);
}

static void add_looks(struct call *call, const truce_look *looks, size_t number, bool answered)
{
    bson_t *parent = answered ? &call->answer : &call->arguments;
    bson_t array, child;

    BSON_APPEND_ARRAY_BEGIN(parent, "looks", &array);
    for (size_t i = 0; i < number; i++) {
        truce__trace_element_begin(&array, i, &child);
        BSON_APPEND_UTF8(&child, "collection", looks[i].collection);
        BSON_APPEND_VALUE(&child, "_id", looks[i].id);
        if (answered)
            truce__trace_add_document(&child, "document", &looks[i].document);
        bson_append_document_end(&array, &child);
    }
    bson_append_array_end(parent, &array);
}

static truce_status read_many(truce_store *base, truce_look *looks, size_t number,
                              bson_error_t *error)
{
    struct call call;
    truce_status status;

    call_init(&call, base, "read_many", NULL);
    add_looks(&call, looks, number, false);
    call_begin(&call);
    status = truce__store_look(call.trace->inner, looks, number, error);
    add_looks(&call, looks, number, true);
    return call_end(&call, status, error);
}

static truce_status take_snapshot(truce_store *base, const truce_snapshot_options *options,
                                  truce_store **view, bson_error_t *error)
{
    struct call call;

    call_init(&call, base, "snapshot", NULL);
    call_begin(&call);
    return call_end(&call, truce_snapshot(call.trace->inner, options, view, error), error);
}

/* ---- writing -------------------------------------------------------------------------------- */

static truce_status bulk(truce_store *base, const truce_write *writes, size_t number,
                         const truce_bulk_options *options, truce_write_outcome *outcomes,
                         bson_error_t *error)
{
    struct call call;
    truce_status status;

    call_init(&call, base, "bulk", number == 1 ? writes[0].collection : NULL);
    truce__trace_add_writes(&call.arguments, writes, number);
    truce__trace_add_truth(&call.arguments, "unordered", options->unordered);
    truce__trace_add_truth(&call.arguments, "atomic", options->atomic);
    truce__trace_add_truth(&call.arguments, "relaxed", options->relaxed);
    call_begin(&call);
    status = truce_bulk(call.trace->inner, writes, number, options, outcomes, error);
    truce__trace_add_outcomes(&call.answer, outcomes, number);
    return call_end(&call, status, error);
}

static truce_status rewrite_documents(truce_store *base, truce_rewrite *rewrite,
                                      bson_error_t *error)
{
    struct call call;

    call_init(&call, base, "rewrite", rewrite->collection);
    BSON_APPEND_INT64(&call.arguments, "documents", (int64_t)rewrite->count);
    call_begin(&call);
    return call_end(&call, truce__store_rewrite(call.trace->inner, rewrite, error), error);
}

static truce_status find_and_modify(truce_store *base, const char *collection, const bson_t *filter,
                                    const bson_t *update, const truce_modify_options *options,
                                    bson_t *document, truce_write_result *result,
                                    bson_error_t *error)
{
    struct call call;
    truce_status status;

    call_init(&call, base, "find_and_modify", collection);
    BSON_APPEND_DOCUMENT(&call.arguments, "filter", filter);
    truce__trace_add_update(&call.arguments, update, options->pipeline);
    truce__trace_add_document(&call.arguments, "sort", options->sort);
    truce__trace_add_document(&call.arguments, "projection", options->projection);
    truce__trace_add_truth(&call.arguments, "remove", options->remove);
    truce__trace_add_truth(&call.arguments, "new", options->return_new);
    truce__trace_add_truth(&call.arguments, "upsert", options->upsert);
    truce__trace_add_array(&call.arguments, "arrayFilters", options->array_filters);
    call_begin(&call);
    status = truce_find_and_modify(call.trace->inner, collection, filter, update, options, document,
                                   result, error);
    truce__trace_add_document(&call.answer, "document", document);
    truce__trace_add_result(&call.answer, result);
    return call_end(&call, status, error);
}

/* ---- indexes, collections, wake-up ---------------------------------------------------------- */

static truce_status index_create(truce_store *base, const char *collection, const bson_t *index,
                                 bson_error_t *error)
{
    struct call call;

    call_init(&call, base, "index_create", collection);
    BSON_APPEND_DOCUMENT(&call.arguments, "index", index);
    call_begin(&call);
    return call_end(&call, truce_index_create(call.trace->inner, collection, index, error), error);
}

static truce_status index_drop(truce_store *base, const char *collection, const char *name,
                               bson_error_t *error)
{
    struct call call;

    call_init(&call, base, "index_drop", collection);
    BSON_APPEND_UTF8(&call.arguments, "name", name);
    call_begin(&call);
    return call_end(&call, truce_index_drop(call.trace->inner, collection, name, error), error);
}

static truce_status index_list(truce_store *base, const char *collection, bson_t *indexes,
                               bson_error_t *error)
{
    struct call call;
    truce_status status;

    call_init(&call, base, "index_list", collection);
    call_begin(&call);
    status = truce_index_list(call.trace->inner, collection, indexes, error);
    truce__trace_add_array(&call.answer, "indexes", indexes);
    return call_end(&call, status, error);
}

static truce_status collection_create(truce_store *base, const char *collection,
                                      bson_error_t *error)
{
    struct call call;

    call_init(&call, base, "collection_create", collection);
    call_begin(&call);
    return call_end(&call, truce_collection_create(call.trace->inner, collection, error), error);
}

static truce_status collection_drop(truce_store *base, const char *collection, bson_error_t *error)
{
    struct call call;

    call_init(&call, base, "collection_drop", collection);
    call_begin(&call);
    return call_end(&call, truce_collection_drop(call.trace->inner, collection, error), error);
}

static truce_status collection_rename(truce_store *base, const char *from, const char *to,
                                      bool drop_target, bson_error_t *error)
{
    struct call call;

    call_init(&call, base, "collection_rename", from);
    BSON_APPEND_UTF8(&call.arguments, "to", to);
    truce__trace_add_truth(&call.arguments, "drop_target", drop_target);
    call_begin(&call);
    return call_end(&call, truce_collection_rename(call.trace->inner, from, to, drop_target, error),
                    error);
}

static truce_status collection_list(truce_store *base, bson_t *collections, bson_error_t *error)
{
    struct call call;
    truce_status status;

    call_init(&call, base, "collection_list", NULL);
    call_begin(&call);
    status = truce_collection_list(call.trace->inner, collections, error);
    truce__trace_add_array(&call.answer, "collections", collections);
    return call_end(&call, status, error);
}

static truce_status wait_for_change(truce_store *base, const char *collection, uint64_t *token,
                                    uint32_t timeout_ms, bson_error_t *error)
{
    struct call call;
    truce_status status;

    call_init(&call, base, "wait", collection);
    truce__trace_add_number(&call.arguments, "token", (int64_t)*token);
    truce__trace_add_number(&call.arguments, "timeout_ms", timeout_ms);
    call_begin(&call);
    status = truce_wait(call.trace->inner, collection, token, timeout_ms, error);
    truce__trace_add_number(&call.answer, "token", (int64_t)*token);
    return call_end(&call, status, error);
}

static truce_status settle(truce_store *base, bson_error_t *error)
{
    struct call call;

    call_init(&call, base, "settle", NULL);
    call_begin(&call);
    return call_end(&call, truce_settle(call.trace->inner, error), error);
}

static void close_store(truce_store *base)
{
    struct trace_store *trace = (struct trace_store *)base;

    truce_store_close(trace->inner);
    pthread_mutex_destroy(&trace->mutex);
    bson_free(trace);
}

static truce_status facts_of_inner(truce_store *base, bson_t *facts, bson_error_t *error)
{
    return truce__store_facts(((struct trace_store *)base)->inner, facts, error);
}

static truce_status examine_inner(truce_store *base, bool repair,
                                  void (*take)(const bson_t *finding, void *arg), void *arg,
                                  bson_error_t *error)
{
    truce_store *inner = ((struct trace_store *)base)->inner;

    return inner->ops->examine ? inner->ops->examine(inner, repair, take, arg, error) : TRUCE_OK;
}

static void counters_of_inner(truce_store *base, truce_store_counters *counters)
{
    truce_store_count(((struct trace_store *)base)->inner, counters);
}

static void interrupt_inner(truce_store *base, bool on)
{
    truce_store *inner = ((struct trace_store *)base)->inner;

    if (on)
        truce_interrupt(inner);
    else
        truce_resume(inner);
}

static const truce_store_ops trace_ops = {
    .scheme = "trace",
    .close = close_store,
    .find = find,
    .count = count,
    .distinct = distinct,
    .aggregate = aggregate,
    .explain = explain,
    .bulk = bulk,
    .find_and_modify = find_and_modify,
    .rewrite = rewrite_documents,
    .read_many = read_many,
    .index_create = index_create,
    .index_drop = index_drop,
    .index_list = index_list,
    .collection_create = collection_create,
    .collection_drop = collection_drop,
    .collection_rename = collection_rename,
    .collection_list = collection_list,
    .wait = wait_for_change,
    .settle = settle,
    .facts = facts_of_inner,
    .examine = examine_inner,
    .interrupt = interrupt_inner,
    .counters = counters_of_inner,
    .snapshot = take_snapshot,
};

/* ---- public --------------------------------------------------------------------------------- */

truce_store *truce_trace_wrap(truce_store *inner, const truce_trace_options *options)
{
    struct trace_store *trace = bson_malloc0(sizeof(*trace));

    truce_assert(options->function != NULL);
    trace->base = (truce_store){&trace_ops, inner->capabilities};
    trace->inner = inner;
    trace->options = *options;
    pthread_mutex_init(&trace->mutex, NULL);
    return &trace->base;
}

void truce_trace_to_file(const bson_t *event, void *file)
{
    struct buffer line = {0};

    truce__json_write(&line, event, false, JSON_CANONICAL);
    truce__buffer_append_byte(&line, '\n');
    /* A full disk loses lines of the trace, never the work that is traced. */
    (void)!fwrite(line.bytes, 1, line.size, file);
    truce__buffer_release(&line);
}

/*
 * The trace decorator is a store that reports every call (truce/sys/decorate.h has the format).
 *
 * Each call becomes an event: its arguments, then its result. One mutex serializes the events, so
 * the listener gets one at a time, in the order in which calls returned. The times in events are
 * taken outside of the mutex; a checker of histories relies on them.
 *
 * The first part of the file writes arguments and results as fields of an event. Default values are
 * omitted.
 */
#include "store/decorators/decorator.h"

#include <pthread.h>

#include "base/assert.h"
#include "base/clock.h"
#include "bson/json.h"
#include "store/store.h"
#include "truce/sys/decorate.h"

static void trace_show_add_document(bson_t *parent, const char *name, const bson_t *document)
{
    if (document && !bson_empty(document))
        BSON_APPEND_DOCUMENT(parent, name, document);
}

static void trace_show_add_array(bson_t *parent, const char *name, const bson_t *array)
{
    if (array)
        BSON_APPEND_ARRAY(parent, name, array);
}

static void trace_show_add_number(bson_t *parent, const char *name, int64_t number)
{
    if (number)
        BSON_APPEND_INT64(parent, name, number);
}

static void add_truth(bson_t *parent, const char *name, bool truth)
{
    if (truth)
        BSON_APPEND_BOOL(parent, name, true);
}

static void add_find_options(bson_t *parent, const truce_find_options *options)
{
    trace_show_add_document(parent, "projection", options->projection);
    trace_show_add_document(parent, "sort", options->sort);
    trace_show_add_document(parent, "hint", options->hint);
    trace_show_add_document(parent, "min", options->min);
    trace_show_add_document(parent, "max", options->max);
    add_truth(parent, "returnKey", options->return_key);
    add_truth(parent, "showRecordId", options->show_record_id);
    trace_show_add_number(parent, "skip", options->skip);
    trace_show_add_number(parent, "limit", options->limit);
    trace_show_add_number(parent, "deadline_ms", options->deadline_ms);
}

static void trace_show_add_update(bson_t *parent, const bson_t *update, bool pipeline)
{
    if (pipeline)
        trace_show_add_array(parent, "update", update);
    else if (update)
        BSON_APPEND_DOCUMENT(parent, "update", update);
}

static void trace_show_add_write(bson_t *parent, const truce_write *write)
{
    BSON_APPEND_UTF8(parent, "kind", truce__write_name(write->kind));
    BSON_APPEND_UTF8(parent, "collection", write->collection);
    if (write->kind != TRUCE_WRITE_INSERT)
        BSON_APPEND_DOCUMENT(parent, "filter", write->filter);
    if (write->kind == TRUCE_WRITE_INSERT)
        BSON_APPEND_DOCUMENT(parent, "document", write->document);
    if (write->kind == TRUCE_WRITE_UPDATE)
        trace_show_add_update(parent, write->document, write->options.pipeline);
    add_truth(parent, "upsert", write->options.upsert);
    add_truth(parent, "multi", write->options.multi);
    trace_show_add_array(parent, "arrayFilters", write->options.array_filters);
    trace_show_add_document(parent, "sort", write->options.sort);
}

static void add_result(bson_t *parent, const truce_write_result *result)
{
    trace_show_add_number(parent, "matched", result->matched);
    trace_show_add_number(parent, "modified", result->modified);
    trace_show_add_number(parent, "inserted", result->inserted);
    trace_show_add_number(parent, "removed", result->removed);
    if (result->upserted)
        BSON_APPEND_VALUE(parent, "upserted", &result->upserted_id);
}

static void element_begin(bson_t *array, size_t number, bson_t *child)
{
    char buffer[16];
    const char *key;

    bson_uint32_to_string((uint32_t)number, &key, buffer, sizeof(buffer));
    BSON_APPEND_DOCUMENT_BEGIN(array, key, child);
}

static void add_writes(bson_t *parent, const truce_write *writes, size_t count)
{
    bson_t array, child;

    BSON_APPEND_ARRAY_BEGIN(parent, "writes", &array);
    for (size_t i = 0; i < count; i++) {
        element_begin(&array, i, &child);
        trace_show_add_write(&child, &writes[i]);
        bson_append_document_end(&array, &child);
    }
    bson_append_array_end(parent, &array);
}

static void add_outcomes(bson_t *parent, const truce_write_outcome *outcomes, size_t count)
{
    bson_t array, child;

    BSON_APPEND_ARRAY_BEGIN(parent, "outcomes", &array);
    for (size_t i = 0; i < count; i++) {
        element_begin(&array, i, &child);
        BSON_APPEND_UTF8(&child, "status", truce_status_name(outcomes[i].status));
        add_result(&child, &outcomes[i].result);
        bson_append_document_end(&array, &child);
    }
    bson_append_array_end(parent, &array);
}

static void trace_add_requests(bson_t *parent, const struct decorated_call *call, bool answered)
{
    bson_t array, child;

    BSON_APPEND_ARRAY_BEGIN(parent, "looks", &array);
    for (size_t i = 0; i < call->number; i++) {
        element_begin(&array, i, &child);
        BSON_APPEND_UTF8(&child, "collection", call->requests[i].collection);
        BSON_APPEND_VALUE(&child, "_id", call->requests[i].id);
        if (answered)
            trace_show_add_document(&child, "document", &call->requests[i].document);
        bson_append_document_end(&array, &child);
    }
    bson_append_array_end(parent, &array);
}

/* ---- by verb -------------------------------------------------------------------------------- */

static void add_reading(bson_t *parent, const struct decorated_call *call)
{
    truce_find_options as_find;

    if (call->text)
        BSON_APPEND_UTF8(parent, "path", call->text);
    BSON_APPEND_DOCUMENT(parent, "filter", call->filter);
    if (call->verb == VERB_DISTINCT)
        return;
    as_find = call->verb == VERB_COUNT ? truce__count_as_find(call->how.count) : *call->how.find;
    add_find_options(parent, &as_find);
    add_truth(parent, "count", call->flag);
}

static void add_aggregation(bson_t *parent, const struct decorated_call *call)
{
    trace_show_add_array(parent, "pipeline", call->document);
    trace_show_add_document(parent, "hint", call->how.aggregate->hint);
    trace_show_add_number(parent, "deadline_ms", call->how.aggregate->deadline_ms);
}

static void trace_show_add_bulk(bson_t *parent, const struct decorated_call *call)
{
    add_writes(parent, call->writes, call->number);
    add_truth(parent, "unordered", call->how.bulk->unordered);
    add_truth(parent, "atomic", call->how.bulk->atomic);
    add_truth(parent, "relaxed", call->how.bulk->relaxed);
    add_truth(parent, "joined", call->how.bulk->joined);
}

static void add_modification(bson_t *parent, const struct decorated_call *call)
{
    const truce_modify_options *options = call->how.modify;

    BSON_APPEND_DOCUMENT(parent, "filter", call->filter);
    trace_show_add_update(parent, call->document, options->pipeline);
    trace_show_add_document(parent, "sort", options->sort);
    trace_show_add_document(parent, "projection", options->projection);
    add_truth(parent, "remove", options->remove);
    add_truth(parent, "new", options->return_new);
    add_truth(parent, "upsert", options->upsert);
    trace_show_add_array(parent, "arrayFilters", options->array_filters);
}

/* Appends the arguments of a call to its event. */
static void trace_add_arguments(bson_t *parent, const struct decorated_call *call)
{
    switch (call->verb) {
    case VERB_FIND:
    case VERB_COUNT:
    case VERB_DISTINCT:
    case VERB_EXPLAIN:
        add_reading(parent, call);
        break;
    case VERB_NEXT:
        trace_show_add_number(parent, "cursor", (int64_t)call->at->number);
        break;
    case VERB_AGGREGATE:
        add_aggregation(parent, call);
        break;
    case VERB_READ_MANY:
        trace_add_requests(parent, call, false);
        break;
    case VERB_BULK:
        trace_show_add_bulk(parent, call);
        break;
    case VERB_FIND_AND_MODIFY:
        add_modification(parent, call);
        break;
    case VERB_REWRITE:
        BSON_APPEND_INT64(parent, "documents", (int64_t)call->rewrite->count);
        break;
    case VERB_INDEX_CREATE:
        BSON_APPEND_DOCUMENT(parent, "index", call->document);
        break;
    case VERB_INDEX_DROP:
        BSON_APPEND_UTF8(parent, "name", call->text);
        break;
    case VERB_INDEX_MODIFY:
        BSON_APPEND_UTF8(parent, "name", call->text);
        BSON_APPEND_DOCUMENT(parent, "changes", call->document);
        break;
    case VERB_COLLECTION_VALIDATE:
        BSON_APPEND_DOCUMENT(parent, "validator", call->document);
        break;
    case VERB_COLLECTION_RENAME:
        BSON_APPEND_UTF8(parent, "to", call->text);
        add_truth(parent, "drop_target", call->flag);
        break;
    case VERB_WAIT:
        trace_show_add_number(parent, "token", (int64_t)*call->token);
        trace_show_add_number(parent, "timeout_ms", call->timeout_ms);
        break;
    default:
        break;
    }
}

/* Appends the result of a call that returned TRUCE_OK. */
static void trace_add_answer(bson_t *parent, const struct decorated_call *call)
{
    const bool lists = call->verb == VERB_INDEX_LIST || call->verb == VERB_COLLECTION_LIST;

    if (call->cursor)
        trace_show_add_number(parent, "cursor",
                              (int64_t)((const struct decorated_cursor *)*call->cursor)->number);
    if (call->next && *call->next)
        BSON_APPEND_DOCUMENT(parent, "document", *call->next);
    if (call->count)
        BSON_APPEND_INT64(parent, "count", *call->count);
    if (call->requests)
        trace_add_requests(parent, call, true);
    if (call->outcomes)
        add_outcomes(parent, call->outcomes, call->number);
    if (call->verb == VERB_DISTINCT)
        trace_show_add_array(parent, "values", call->answer);
    else if (call->verb == VERB_EXPLAIN)
        trace_show_add_document(parent, "plan", call->answer);
    else if (lists)
        trace_show_add_array(parent, call->verb == VERB_INDEX_LIST ? "indexes" : "collections",
                             call->answer);
    else if (call->answer)
        trace_show_add_document(parent, "document", call->answer);
    if (call->result)
        add_result(parent, call->result);
    if (call->token)
        trace_show_add_number(parent, "token", (int64_t)*call->token);
}

/* ---- the decorator --------------------------------------------------------------------------- */

/* The maximum number of threads that get numbers of their own. */
#define THREADS_MAX 1024

struct trace_store {
    /* Must be the first field. */
    struct decorator base;
    truce_trace_options options;
    /* Guards the fields below, and is held while the listener runs. */
    pthread_mutex_t mutex;
    /* The number of calls so far. */
    uint64_t calls;
    /* The threads that have made calls, in the order of their numbers. */
    pthread_t threads[THREADS_MAX];
    int threads_count;
};

/* The event of a call. */
struct call_event {
    /* The number of the call, and that of its thread. */
    uint64_t number;
    int thread;
    /* The monotonic times of the call. */
    int64_t begin_ns, end_ns;
    bson_t arguments;
};

/* ---- one call ------------------------------------------------------------------------------- */

/* Returns the number of this thread. Threads beyond the maximum share the last number. Called under
 * the mutex. */
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

static void number_call(struct trace_store *trace, struct call_event *call_event)
{
    pthread_mutex_lock(&trace->mutex);
    call_event->number = ++trace->calls;
    call_event->thread = thread_number(trace);
    pthread_mutex_unlock(&trace->mutex);
}

static void trace_describe(const struct decorated_call *call, const struct call_event *call_event,
                           bson_t *event)
{
    BSON_APPEND_INT64(event, "n", (int64_t)call_event->number);
    BSON_APPEND_UTF8(event, "verb", truce__decorated_name(call));
    if (call->collection)
        BSON_APPEND_UTF8(event, "collection", call->collection);
    BSON_APPEND_INT32(event, "thread", call_event->thread);
    BSON_APPEND_INT64(event, "begin", call_event->begin_ns);
    if (call_event->end_ns)
        BSON_APPEND_INT64(event, "end", call_event->end_ns);
    BSON_APPEND_DOCUMENT(event, "arguments", &call_event->arguments);
}

static void trace_report(struct trace_store *trace, const bson_t *event)
{
    pthread_mutex_lock(&trace->mutex);
    trace->options.function(event, trace->options.arg);
    pthread_mutex_unlock(&trace->mutex);
}

static void append_error(bson_t *parent, const bson_error_t *error)
{
    bson_t child;

    BSON_APPEND_DOCUMENT_BEGIN(parent, "error", &child);
    BSON_APPEND_INT64(&child, "code", error->code);
    BSON_APPEND_UTF8(&child, "message", error->message);
    bson_append_document_end(parent, &child);
}

static void trace_append_answer(bson_t *parent, const struct decorated_call *call)
{
    bson_t child;

    BSON_APPEND_DOCUMENT_BEGIN(parent, "answer", &child);
    trace_add_answer(&child, call);
    bson_append_document_end(parent, &child);
}

static void report_begin(struct trace_store *trace, const struct decorated_call *call,
                         const struct call_event *call_event)
{
    bson_t event = BSON_INITIALIZER;

    trace_describe(call, call_event, &event);
    trace_report(trace, &event);
    bson_destroy(&event);
}

/* Reports a call that has returned, with its result or its error. */
static void report_end(struct trace_store *trace, const struct decorated_call *call,
                       const struct call_event *call_event, truce_status status,
                       const bson_error_t *error)
{
    bson_t event = BSON_INITIALIZER;

    trace_describe(call, call_event, &event);
    BSON_APPEND_UTF8(&event, "status", truce_status_name(status));
    if (status)
        append_error(&event, error);
    else
        trace_append_answer(&event, call);
    trace_report(trace, &event);
    bson_destroy(&event);
}

/* Runs a call and reports it. The times are taken next to the call, outside of the mutex. */
static truce_status trace_on_call(struct decorator *decorator, const struct decorated_call *call,
                                  bson_error_t *error)
{
    struct trace_store *trace = (struct trace_store *)decorator;
    struct call_event call_event = {.arguments = BSON_INITIALIZER};
    truce_status status;

    number_call(trace, &call_event);
    trace_add_arguments(&call_event.arguments, call);
    call_event.begin_ns = truce__clock_monotonic_ns();
    if (trace->options.beginnings)
        report_begin(trace, call, &call_event);
    status = truce__decorated_run(decorator, call, error);
    call_event.end_ns = truce__clock_monotonic_ns();
    report_end(trace, call, &call_event, status, error);
    bson_destroy(&call_event.arguments);
    return status;
}

static void trace_release(struct decorator *decorator)
{
    pthread_mutex_destroy(&((struct trace_store *)decorator)->mutex);
}

static const struct decorator_kind trace_kind = {.call = trace_on_call, .release = trace_release};

/* ---- public --------------------------------------------------------------------------------- */

truce_store *truce_trace_wrap(truce_store *inner, const truce_trace_options *options)
{
    struct trace_store *trace = bson_malloc0(sizeof(*trace));

    truce_assert(options->function != NULL);
    truce__decorator_init(&trace->base, &trace_kind, inner);
    trace->options = *options;
    pthread_mutex_init(&trace->mutex, NULL);
    return &trace->base.base;
}

void truce_trace_to_file(const bson_t *event, void *file)
{
    struct buffer line = {0};

    truce__json_write(&line, event, false, JSON_CANONICAL);
    truce__buffer_append_byte(&line, '\n');
    /* If the disk is full, lines of the trace are lost. The traced calls are not affected. */
    (void)!fwrite(line.bytes, 1, line.size, file);
    truce__buffer_release(&line);
}

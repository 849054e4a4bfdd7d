/*
 * The trace decorator: a store that tells every call (truce/sys/decorate.h has the shape).
 *
 * Each call becomes an event: its arguments, then its answer. Events leave under one mutex, so that the
 * listener sees one at a time, in the order in which calls returned; the times in them, taken
 * outside of it, are what a checker of histories goes by.
 */
#include "truce/sys/decorate.h"

#include <pthread.h>

#include "base/assert.h"
#include "base/clock.h"
#include "bson/json.h"
#include "store/decorators/decorator.h"
#include "store/decorators/trace_show.h"

#define THREADS_MAX 1024

struct trace_store {
    struct decorator base; /* first */
    truce_trace_options options;
    pthread_mutex_t mutex; /* over all below, and held while the listener runs */
    uint64_t calls;
    pthread_t threads[THREADS_MAX];
    int threads_count;
};

/* What is told of a call. */
struct told {
    uint64_t number;
    int thread;
    int64_t begin_ns, end_ns;
    bson_t arguments;
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

static void number_call(struct trace_store *trace, struct told *told)
{
    pthread_mutex_lock(&trace->mutex);
    told->number = ++trace->calls;
    told->thread = thread_number(trace);
    pthread_mutex_unlock(&trace->mutex);
}

static void trace_describe(const struct decorated_call *call, const struct told *told,
                           bson_t *event)
{
    BSON_APPEND_INT64(event, "n", (int64_t)told->number);
    BSON_APPEND_UTF8(event, "verb", truce__decorated_name(call));
    if (call->collection)
        BSON_APPEND_UTF8(event, "collection", call->collection);
    BSON_APPEND_INT32(event, "thread", told->thread);
    BSON_APPEND_INT64(event, "begin", told->begin_ns);
    if (told->end_ns)
        BSON_APPEND_INT64(event, "end", told->end_ns);
    BSON_APPEND_DOCUMENT(event, "arguments", &told->arguments);
}

static void trace_tell(struct trace_store *trace, const bson_t *event)
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
    truce__trace_add_answer(&child, call);
    bson_append_document_end(parent, &child);
}

static void tell_begin(struct trace_store *trace, const struct decorated_call *call,
                       const struct told *told)
{
    bson_t event = BSON_INITIALIZER;

    trace_describe(call, told, &event);
    trace_tell(trace, &event);
    bson_destroy(&event);
}

static void tell_end(struct trace_store *trace, const struct decorated_call *call,
                     const struct told *told, truce_status status, const bson_error_t *error)
{
    bson_t event = BSON_INITIALIZER;

    trace_describe(call, told, &event);
    BSON_APPEND_UTF8(&event, "status", truce_status_name(status));
    if (status)
        append_error(&event, error);
    else
        trace_append_answer(&event, call);
    trace_tell(trace, &event);
    bson_destroy(&event);
}

static truce_status trace_on_call(struct decorator *decorator, const struct decorated_call *call,
                                  bson_error_t *error)
{
    struct trace_store *trace = (struct trace_store *)decorator;
    struct told told = {.arguments = BSON_INITIALIZER};
    truce_status status;

    number_call(trace, &told);
    truce__trace_add_arguments(&told.arguments, call);
    told.begin_ns = truce__clock_monotonic_ns();
    if (trace->options.beginnings)
        tell_begin(trace, call, &told);
    status = truce__decorated_run(decorator, call, error);
    told.end_ns = truce__clock_monotonic_ns();
    tell_end(trace, call, &told, status, error);
    bson_destroy(&told.arguments);
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
    /* A full disk loses lines of the trace, never the work that is traced. */
    (void)!fwrite(line.bytes, 1, line.size, file);
    truce__buffer_release(&line);
}

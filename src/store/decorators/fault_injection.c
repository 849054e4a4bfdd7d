/*
 * The fault decorator is a store that counts its calls and makes one of them fail.
 *
 *     call n     fault_begin()  counts; dies, if the death comes before the call
 *                inner          unless the call must fail
 *                fault_end()    dies, if the death comes after the call; drops a lost result
 *
 * A lost result has no data: a cursor that the inner store opened is closed, documents are empty,
 * and counts are zero.
 */
#include "truce/sys/decorate.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/status.h"
#include "store/decorators/decorator.h"

struct fault_store {
    /* Must be the first field. */
    struct decorator base;
    /* Guards the fields below. */
    pthread_mutex_t mutex;
    truce_fault_options options;
    /* The number of calls that count, and of those that failed. */
    uint64_t calls, hits;
};

/* ---- one call ------------------------------------------------------------------------------- */

_Noreturn static void fault_end_process(const truce_fault_options *options)
{
    if (options->die)
        options->die(options->arg);
    else
        kill(getpid(), SIGKILL);
    truce__assert_failed("fault_end_process() does not return", __FILE__, __LINE__, __func__);
}

/* Counts the call, and returns the fault that it gets. */
static truce_fault_kind fault_begin(struct fault_store *fault, bool writes)
{
    truce_fault_options options;
    bool hit = false;

    pthread_mutex_lock(&fault->mutex);
    options = fault->options;
    if (writes || !options.writes_only) {
        fault->calls++;
        hit = options.kind != TRUCE_FAULT_NONE && options.at > 0 &&
              (fault->calls == options.at || (options.from_then_on && fault->calls > options.at));
        if (hit)
            /* tools/coverage adds up the executions of this line. */
            fault->hits++;
    }
    pthread_mutex_unlock(&fault->mutex);
    if (hit && options.kind == TRUCE_FAULT_DIE_BEFORE)
        fault_end_process(&options);
    return hit ? options.kind : TRUCE_FAULT_NONE;
}

/* Returns the status after the fault: the given one, TRUCE_UNKNOWN for a lost result, or that of
 * the call if it was not hit. May end the process. */
static truce_status fault_end(struct fault_store *fault, truce_fault_kind kind, const char *verb,
                              truce_status status, bson_error_t *error)
{
    truce_fault_options options;

    if (kind == TRUCE_FAULT_NONE || kind == TRUCE_FAULT_LIE)
        return status;
    pthread_mutex_lock(&fault->mutex);
    options = fault->options;
    pthread_mutex_unlock(&fault->mutex);
    if (kind == TRUCE_FAULT_DIE_AFTER)
        fault_end_process(&options);
    if (kind == TRUCE_FAULT_FAIL)
        return truce__fail(options.status ? options.status : TRUCE_IO, error,
                           "%s failed: an injected fault", verb);
    return truce__fail(TRUCE_UNKNOWN, error, "the result of %s was lost: an injected fault", verb);
}

/* Returns whether the result is lost, although the inner store may have run the call. */
static bool fault_lost(truce_fault_kind kind)
{
    return kind == TRUCE_FAULT_FAIL || kind == TRUCE_FAULT_LOSE;
}

/* ---- lost results ---------------------------------------------------------------------------- */

static void forget_document(bool answered, bson_t *document)
{
    if (answered)
        bson_destroy(document);
    bson_init(document);
}

static void forget_outcomes(bool answered, const struct decorated_call *call)
{
    for (size_t i = 0; call->outcomes && i < call->number; i++) {
        if (answered)
            truce_write_result_release(&call->outcomes[i].result);
        call->outcomes[i] =
            (truce_write_outcome){.status = answered ? TRUCE_UNKNOWN : TRUCE_NOT_FOUND};
    }
}

static void forget_opened(bool answered, const struct decorated_call *call)
{
    if (call->cursor && answered && *call->cursor) {
        truce_cursor_close(*call->cursor);
        *call->cursor = NULL;
    }
    if (call->view && answered) {
        truce_store_close(*call->view);
        *call->view = NULL;
    }
}

/* Drops the result of a call. `answered` means that the inner store returned it. Otherwise nothing
 * of it is initialized. */
static void fault_forget(bool answered, const struct decorated_call *call)
{
    if (call->answer)
        forget_document(answered, call->answer);
    if (call->next)
        *call->next = NULL;
    if (call->count)
        *call->count = 0;
    if (call->result)
        truce_write_result_release(call->result);
    for (size_t i = 0; call->requests && i < call->number; i++) {
        forget_document(answered, &call->requests[i].document);
        call->requests[i].found = false;
    }
    forget_outcomes(answered, call);
    forget_opened(answered, call);
}

/* ---- lies ----------------------------------------------------------------------------------- */

/* Reports success falsely, as if every write had found its document. */
static void fault_report_success(const truce_write *writes, size_t number,
                                 truce_write_outcome *outcomes)
{
    for (size_t i = 0; i < number; i++) {
        truce_write_result *result = &outcomes[i].result;

        outcomes[i] = (truce_write_outcome){.status = TRUCE_OK};
        if (writes[i].kind == TRUCE_WRITE_INSERT)
            result->inserted = 1;
        else if (writes[i].kind != TRUCE_WRITE_REQUIRE_MISSING)
            result->matched = 1;
        if (writes[i].kind == TRUCE_WRITE_UPDATE)
            result->modified = 1;
        if (writes[i].kind == TRUCE_WRITE_REMOVE)
            result->removed = 1;
    }
}

/* A rewrite that computes all new documents and writes none. */
struct lying_rewrite {
    /* Must be the first field. */
    truce_rewrite base;
    truce_rewrite *original;
};

static void begin_lying(truce_rewrite *rewrite)
{
    truce_rewrite *original = ((struct lying_rewrite *)rewrite)->original;

    original->begin(original);
}

static bool make_lying(truce_rewrite *rewrite, size_t number, const bson_t *before, bson_t *after)
{
    truce_rewrite *original = ((struct lying_rewrite *)rewrite)->original;

    (void)original->make(original, number, before, after);
    return false;
}

static truce_status rewrite_in_vain(struct decorator *decorator, const struct decorated_call *call,
                                    bson_error_t *error)
{
    struct lying_rewrite lying = {.base = *call->rewrite, .original = call->rewrite};
    struct decorated_call changed = *call;

    lying.base.begin = begin_lying;
    lying.base.make = make_lying;
    changed.rewrite = &lying.base;
    return truce__decorated_run(decorator, &changed, error);
}

/* Reports success for a write without doing it. Other calls are run. */
static truce_status run_lying(struct decorator *decorator, const struct decorated_call *call,
                              bson_error_t *error)
{
    switch (call->verb) {
    case VERB_BULK:
        fault_report_success(call->writes, call->number, call->outcomes);
        return TRUCE_OK;
    case VERB_FIND_AND_MODIFY:
        bson_init(call->answer);
        *call->result = (truce_write_result){.matched = 1, .removed = call->how.modify->remove};
        return TRUCE_OK;
    case VERB_REWRITE:
        return rewrite_in_vain(decorator, call, error);
    default:
        return truce__decorated_run(decorator, call, error);
    }
}

/* ---- a whole call ---------------------------------------------------------------------------- */

static truce_status fault_run(struct decorator *decorator, const struct decorated_call *call,
                              truce_fault_kind kind, bson_error_t *error)
{
    if (kind == TRUCE_FAULT_LIE)
        return run_lying(decorator, call, error);
    if (kind != TRUCE_FAULT_FAIL)
        return truce__decorated_run(decorator, call, error);
    /* Everything is computed, and nothing is written. */
    return call->verb == VERB_REWRITE ? rewrite_in_vain(decorator, call, error) : TRUCE_OK;
}

/* Runs a call with the fault that it gets. A lost wait leaves the token as it was. */
static truce_status fault_on_call(struct decorator *decorator, const struct decorated_call *call,
                                  bson_error_t *error)
{
    struct fault_store *fault = (struct fault_store *)decorator;
    truce_fault_kind kind = fault_begin(fault, truce__decorated_writes(call));
    uint64_t token = call->token ? *call->token : 0;
    truce_status status = fault_run(decorator, call, kind, error);

    if (fault_lost(kind)) {
        fault_forget(kind == TRUCE_FAULT_LOSE, call);
        if (call->token)
            *call->token = token;
    }
    return fault_end(fault, kind, truce__decorated_name(call), status, error);
}

static void fault_release(struct decorator *decorator)
{
    pthread_mutex_destroy(&((struct fault_store *)decorator)->mutex);
}

static const struct decorator_kind fault_kind = {.call = fault_on_call, .release = fault_release};

/* ---- public --------------------------------------------------------------------------------- */

static struct fault_store *decorators_fault_of(const truce_store *store)
{
    truce_assert(((const struct decorator *)store)->kind == &fault_kind);
    return (struct fault_store *)store;
}

truce_store *truce_fault_wrap(truce_store *inner, const truce_fault_options *options)
{
    struct fault_store *fault = bson_malloc0(sizeof(*fault));

    truce__decorator_init(&fault->base, &fault_kind, inner);
    fault->options = *options;
    pthread_mutex_init(&fault->mutex, NULL);
    return &fault->base.base;
}

void truce_fault_arm(truce_store *store, const truce_fault_options *options)
{
    struct fault_store *fault = decorators_fault_of(store);

    pthread_mutex_lock(&fault->mutex);
    fault->options = *options;
    fault->calls = fault->hits = 0;
    pthread_mutex_unlock(&fault->mutex);
}

uint64_t truce_fault_calls(const truce_store *store)
{
    struct fault_store *fault = decorators_fault_of(store);
    uint64_t calls;

    pthread_mutex_lock(&fault->mutex);
    calls = fault->calls;
    pthread_mutex_unlock(&fault->mutex);
    return calls;
}

uint64_t truce_fault_hits(const truce_store *store)
{
    struct fault_store *fault = decorators_fault_of(store);
    uint64_t hits;

    pthread_mutex_lock(&fault->mutex);
    hits = fault->hits;
    pthread_mutex_unlock(&fault->mutex);
    return hits;
}

/*
 * The fault decorator: a store that counts its calls and makes one of them go wrong.
 *
 *     call n     begin()  counts; dies, if it is to die before
 *                inner    unless the call is to fail
 *                end()    dies, if it is to die after; forgets the answer, if that is to be lost
 *
 * A lost answer is one without data: a cursor that the inner store opened is closed, documents are
 * empty, results zero.
 */
#include "truce/sys/decorate.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/status.h"
#include "store/store.h"

struct fault_store {
    truce_store base;
    truce_store *inner;
    pthread_mutex_t mutex; /* over all below */
    truce_fault_options options;
    uint64_t calls, hits;
};

struct fault_cursor {
    truce_cursor base;
    struct fault_store *fault;
    truce_cursor *inner;
};

/* ---- one call ------------------------------------------------------------------------------- */

_Noreturn static void die(const truce_fault_options *options)
{
    if (options->die)
        options->die(options->arg);
    else
        kill(getpid(), SIGKILL);
    truce__assert_failed("die() does not return", __FILE__, __LINE__, __func__);
}

/* Counts the call; what is to happen to it. */
static truce_fault_kind begin(struct fault_store *fault, bool writes)
{
    truce_fault_options options;
    bool hit = false;

    pthread_mutex_lock(&fault->mutex);
    options = fault->options;
    if (writes || !options.writes_only) {
        fault->calls++;
        hit = options.kind != TRUCE_FAULT_NONE && options.at > 0 &&
              (fault->calls == options.at || (options.from_then_on && fault->calls > options.at));
        fault->hits += hit;
    }
    pthread_mutex_unlock(&fault->mutex);
    if (hit && options.kind == TRUCE_FAULT_DIE_BEFORE)
        die(&options);
    return hit ? options.kind : TRUCE_FAULT_NONE;
}

static truce_status end(struct fault_store *fault, truce_fault_kind kind, const char *verb,
                        truce_status status, bson_error_t *error)
{
    truce_fault_options options;

    if (kind == TRUCE_FAULT_NONE || kind == TRUCE_FAULT_LIE)
        return status;
    pthread_mutex_lock(&fault->mutex);
    options = fault->options;
    pthread_mutex_unlock(&fault->mutex);
    if (kind == TRUCE_FAULT_DIE_AFTER)
        die(&options);
    if (kind == TRUCE_FAULT_FAIL)
        return truce__fail(options.status ? options.status : TRUCE_IO, error,
                           "%s failed: an injected fault", verb);
    return truce__fail(TRUCE_UNKNOWN, error, "the answer of %s was lost: an injected fault", verb);
}

/* Is there no answer, although the inner store may have given one? */
static bool lost(truce_fault_kind kind)
{
    return kind == TRUCE_FAULT_FAIL || kind == TRUCE_FAULT_LOSE;
}

static void forget_document(truce_fault_kind kind, bson_t *document)
{
    if (kind == TRUCE_FAULT_FAIL) {
        bson_init(document);
    } else if (kind == TRUCE_FAULT_LOSE) {
        bson_destroy(document);
        bson_init(document);
    }
}

/* ---- cursors -------------------------------------------------------------------------------- */

static truce_status cursor_next(truce_cursor *base, const bson_t **document, bson_error_t *error)
{
    struct fault_cursor *cursor = (struct fault_cursor *)base;
    truce_fault_kind kind = begin(cursor->fault, false);
    truce_status status = TRUCE_OK;

    if (kind != TRUCE_FAULT_FAIL)
        status = truce_cursor_next(cursor->inner, document, error);
    if (lost(kind))
        *document = NULL;
    return end(cursor->fault, kind, "next", status, error);
}

static void cursor_close(truce_cursor *base)
{
    truce_cursor_close(((struct fault_cursor *)base)->inner);
    bson_free(base);
}

static const truce_cursor_ops cursor_ops = {cursor_next, cursor_close};

/* Gives the caller a cursor over the inner one, or closes that if its answer is lost. */
static void wrap_cursor(struct fault_store *fault, truce_fault_kind kind, truce_cursor *inner,
                        truce_cursor **cursor)
{
    struct fault_cursor *made;

    if (!inner)
        return;
    if (lost(kind)) {
        truce_cursor_close(inner);
        return;
    }
    made = bson_malloc0(sizeof(*made));
    *made = (struct fault_cursor){{&cursor_ops}, fault, inner};
    *cursor = &made->base;
}

/* ---- reading -------------------------------------------------------------------------------- */

static truce_status find(truce_store *base, const char *collection, const bson_t *filter,
                         const truce_find_options *options, truce_cursor **cursor,
                         bson_error_t *error)
{
    struct fault_store *fault = (struct fault_store *)base;
    truce_fault_kind kind = begin(fault, false);
    truce_cursor *inner = NULL;
    truce_status status = TRUCE_OK;

    if (kind != TRUCE_FAULT_FAIL)
        status = truce_find(fault->inner, collection, filter, options, &inner, error);
    wrap_cursor(fault, kind, inner, cursor);
    return end(fault, kind, "find", status, error);
}

static truce_status count(truce_store *base, const char *collection, const bson_t *filter,
                          const truce_count_options *options, int64_t *number, bson_error_t *error)
{
    struct fault_store *fault = (struct fault_store *)base;
    truce_fault_kind kind = begin(fault, false);
    truce_status status = TRUCE_OK;

    if (kind != TRUCE_FAULT_FAIL)
        status = truce_count(fault->inner, collection, filter, options, number, error);
    if (lost(kind))
        *number = 0;
    return end(fault, kind, "count", status, error);
}

static truce_status distinct(truce_store *base, const char *collection, const char *path,
                             const bson_t *filter, bson_t *values, bson_error_t *error)
{
    struct fault_store *fault = (struct fault_store *)base;
    truce_fault_kind kind = begin(fault, false);
    truce_status status = TRUCE_OK;

    if (kind != TRUCE_FAULT_FAIL)
        status = truce_distinct(fault->inner, collection, path, filter, values, error);
    forget_document(kind, values);
    return end(fault, kind, "distinct", status, error);
}

/* May write: $out and $merge. */
static truce_status aggregate(truce_store *base, const char *collection, const bson_t *pipeline,
                              const truce_aggregate_options *options, truce_cursor **cursor,
                              bson_error_t *error)
{
    struct fault_store *fault = (struct fault_store *)base;
    truce_fault_kind kind = begin(fault, true);
    truce_cursor *inner = NULL;
    truce_status status = TRUCE_OK;

    if (kind != TRUCE_FAULT_FAIL)
        status = truce_aggregate(fault->inner, collection, pipeline, options, &inner, error);
    wrap_cursor(fault, kind, inner, cursor);
    return end(fault, kind, "aggregate", status, error);
}

static truce_status explain(truce_store *base, const char *collection, const bson_t *filter,
                            const truce_find_options *options, bool counts, bson_t *plan,
                            bson_error_t *error)
{
    struct fault_store *fault = (struct fault_store *)base;
    truce_fault_kind kind = begin(fault, false);
    truce_status status = TRUCE_OK;

    if (kind != TRUCE_FAULT_FAIL)
        status =
            truce__store_explain(fault->inner, collection, filter, options, counts, plan, error);
    forget_document(kind, plan);
    return end(fault, kind, "explain", status, error);
}

static truce_status read_many(truce_store *base, truce_look *looks, size_t number,
                              bson_error_t *error)
{
    struct fault_store *fault = (struct fault_store *)base;
    truce_fault_kind kind = begin(fault, false);
    truce_status status = TRUCE_OK;

    if (kind != TRUCE_FAULT_FAIL)
        status = truce__store_look(fault->inner, looks, number, error);
    for (size_t i = 0; i < number && lost(kind); i++) {
        forget_document(kind, &looks[i].document);
        looks[i].found = false;
    }
    return end(fault, kind, "read_many", status, error);
}

/* ---- writing -------------------------------------------------------------------------------- */

/* Success, as it would look if everything had matched. */
static void lie(const truce_write *writes, size_t number, truce_write_outcome *outcomes)
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

static void forget_outcomes(truce_fault_kind kind, truce_write_outcome *outcomes, size_t number)
{
    for (size_t i = 0; i < number && lost(kind); i++) {
        if (kind == TRUCE_FAULT_LOSE)
            truce_write_result_release(&outcomes[i].result);
        outcomes[i] = (truce_write_outcome){.status = kind == TRUCE_FAULT_LOSE ? TRUCE_UNKNOWN
                                                                               : TRUCE_NOT_FOUND};
    }
}

static truce_status bulk(truce_store *base, const truce_write *writes, size_t number,
                         const truce_bulk_options *options, truce_write_outcome *outcomes,
                         bson_error_t *error)
{
    struct fault_store *fault = (struct fault_store *)base;
    truce_fault_kind kind = begin(fault, true);
    truce_status status = TRUCE_OK;

    if (kind == TRUCE_FAULT_LIE)
        lie(writes, number, outcomes);
    else if (kind != TRUCE_FAULT_FAIL)
        status = truce_bulk(fault->inner, writes, number, options, outcomes, error);
    forget_outcomes(kind, outcomes, number);
    return end(fault, kind, "bulk", status, error);
}

static truce_status find_and_modify(truce_store *base, const char *collection, const bson_t *filter,
                                    const bson_t *update, const truce_modify_options *options,
                                    bson_t *document, truce_write_result *result,
                                    bson_error_t *error)
{
    struct fault_store *fault = (struct fault_store *)base;
    truce_fault_kind kind = begin(fault, true);
    truce_status status = TRUCE_OK;

    if (kind == TRUCE_FAULT_LIE) {
        bson_init(document);
        *result = (truce_write_result){.matched = 1, .removed = options->remove};
    } else if (kind != TRUCE_FAULT_FAIL) {
        status = truce_find_and_modify(fault->inner, collection, filter, update, options, document,
                                       result, error);
    }
    forget_document(kind, document);
    if (lost(kind))
        truce_write_result_release(result);
    return end(fault, kind, "find_and_modify", status, error);
}

/* A rewriting of which nothing is written, whatever is made. */
struct lying_rewrite {
    truce_rewrite base; /* first */
    truce_rewrite *told;
};

static void begin_lying(truce_rewrite *rewrite)
{
    truce_rewrite *told = ((struct lying_rewrite *)rewrite)->told;

    told->begin(told);
}

static bool make_lying(truce_rewrite *rewrite, size_t number, const bson_t *before, bson_t *after)
{
    truce_rewrite *told = ((struct lying_rewrite *)rewrite)->told;

    (void)told->make(told, number, before, after);
    return false;
}

static truce_status rewrite_documents(truce_store *base, truce_rewrite *rewrite,
                                      bson_error_t *error)
{
    struct fault_store *fault = (struct fault_store *)base;
    truce_fault_kind kind = begin(fault, true);
    struct lying_rewrite lying = {.base = *rewrite, .told = rewrite};
    truce_status status = TRUCE_OK;

    lying.base.begin = begin_lying;
    lying.base.make = make_lying;
    if (kind == TRUCE_FAULT_LIE || kind == TRUCE_FAULT_FAIL) /* one may fail after all is made */
        status = truce__store_rewrite(fault->inner, &lying.base, error);
    else
        status = truce__store_rewrite(fault->inner, rewrite, error);
    return end(fault, kind, "rewrite", status, error);
}

/* ---- indexes, collections, wake-up ---------------------------------------------------------- */

static truce_status index_create(truce_store *base, const char *collection, const bson_t *index,
                                 bson_error_t *error)
{
    struct fault_store *fault = (struct fault_store *)base;
    truce_fault_kind kind = begin(fault, true);
    truce_status status = TRUCE_OK;

    if (kind != TRUCE_FAULT_FAIL)
        status = truce_index_create(fault->inner, collection, index, error);
    return end(fault, kind, "index_create", status, error);
}

static truce_status index_drop(truce_store *base, const char *collection, const char *name,
                               bson_error_t *error)
{
    struct fault_store *fault = (struct fault_store *)base;
    truce_fault_kind kind = begin(fault, true);
    truce_status status = TRUCE_OK;

    if (kind != TRUCE_FAULT_FAIL)
        status = truce_index_drop(fault->inner, collection, name, error);
    return end(fault, kind, "index_drop", status, error);
}

static truce_status index_list(truce_store *base, const char *collection, bson_t *indexes,
                               bson_error_t *error)
{
    struct fault_store *fault = (struct fault_store *)base;
    truce_fault_kind kind = begin(fault, false);
    truce_status status = TRUCE_OK;

    if (kind != TRUCE_FAULT_FAIL)
        status = truce_index_list(fault->inner, collection, indexes, error);
    forget_document(kind, indexes);
    return end(fault, kind, "index_list", status, error);
}

static truce_status collection_create(truce_store *base, const char *collection,
                                      bson_error_t *error)
{
    struct fault_store *fault = (struct fault_store *)base;
    truce_fault_kind kind = begin(fault, true);
    truce_status status = TRUCE_OK;

    if (kind != TRUCE_FAULT_FAIL)
        status = truce_collection_create(fault->inner, collection, error);
    return end(fault, kind, "collection_create", status, error);
}

static truce_status collection_drop(truce_store *base, const char *collection, bson_error_t *error)
{
    struct fault_store *fault = (struct fault_store *)base;
    truce_fault_kind kind = begin(fault, true);
    truce_status status = TRUCE_OK;

    if (kind != TRUCE_FAULT_FAIL)
        status = truce_collection_drop(fault->inner, collection, error);
    return end(fault, kind, "collection_drop", status, error);
}

static truce_status collection_rename(truce_store *base, const char *from, const char *to,
                                      bool drop_target, bson_error_t *error)
{
    struct fault_store *fault = (struct fault_store *)base;
    truce_fault_kind kind = begin(fault, true);
    truce_status status = TRUCE_OK;

    if (kind != TRUCE_FAULT_FAIL)
        status = truce_collection_rename(fault->inner, from, to, drop_target, error);
    return end(fault, kind, "collection_rename", status, error);
}

static truce_status collection_list(truce_store *base, bson_t *collections, bson_error_t *error)
{
    struct fault_store *fault = (struct fault_store *)base;
    truce_fault_kind kind = begin(fault, false);
    truce_status status = TRUCE_OK;

    if (kind != TRUCE_FAULT_FAIL)
        status = truce_collection_list(fault->inner, collections, error);
    forget_document(kind, collections);
    return end(fault, kind, "collection_list", status, error);
}

static truce_status wait_for_change(truce_store *base, const char *collection, uint64_t *token,
                                    uint32_t timeout_ms, bson_error_t *error)
{
    struct fault_store *fault = (struct fault_store *)base;
    truce_fault_kind kind = begin(fault, false);
    uint64_t before = *token;
    truce_status status = TRUCE_OK;

    if (kind != TRUCE_FAULT_FAIL)
        status = truce_wait(fault->inner, collection, token, timeout_ms, error);
    if (lost(kind))
        *token = before;
    return end(fault, kind, "wait", status, error);
}

static truce_status take_snapshot(truce_store *base, const truce_snapshot_options *options,
                                  truce_store **view, bson_error_t *error)
{
    struct fault_store *fault = (struct fault_store *)base;
    truce_fault_kind kind = begin(fault, false);
    truce_status status = TRUCE_OK;

    if (kind != TRUCE_FAULT_FAIL)
        status = truce_snapshot(fault->inner, options, view, error);
    if (lost(kind)) {
        truce_store_close(*view);
        *view = NULL;
    }
    return end(fault, kind, "snapshot", status, error);
}

/* Nothing is changed by it, and so nothing can be lost. */
static truce_status settle(truce_store *base, bson_error_t *error)
{
    return truce_settle(((struct fault_store *)base)->inner, error);
}

static void close_store(truce_store *base)
{
    struct fault_store *fault = (struct fault_store *)base;

    truce_store_close(fault->inner);
    pthread_mutex_destroy(&fault->mutex);
    bson_free(fault);
}

static truce_status facts_of_inner(truce_store *base, bson_t *facts, bson_error_t *error)
{
    return truce__store_facts(((struct fault_store *)base)->inner, facts, error);
}

static truce_status examine_inner(truce_store *base, bool repair,
                                  void (*tell)(const bson_t *finding, void *arg), void *arg,
                                  bson_error_t *error)
{
    truce_store *inner = ((struct fault_store *)base)->inner;

    return inner->ops->examine ? inner->ops->examine(inner, repair, tell, arg, error) : TRUCE_OK;
}

static void counters_of_inner(truce_store *base, truce_store_counters *counters)
{
    truce_store_count(((struct fault_store *)base)->inner, counters);
}

static void interrupt_inner(truce_store *base, bool on)
{
    truce_store *inner = ((struct fault_store *)base)->inner;

    if (on)
        truce_interrupt(inner);
    else
        truce_resume(inner);
}

static const truce_store_ops fault_ops = {
    .scheme = "fault",
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

static struct fault_store *fault_of(const truce_store *store)
{
    truce_assert(store->ops == &fault_ops);
    return (struct fault_store *)store;
}

truce_store *truce_fault_wrap(truce_store *inner, const truce_fault_options *options)
{
    struct fault_store *fault = bson_malloc0(sizeof(*fault));

    fault->base = (truce_store){&fault_ops, inner->capabilities};
    fault->inner = inner;
    fault->options = *options;
    pthread_mutex_init(&fault->mutex, NULL);
    return &fault->base;
}

void truce_fault_arm(truce_store *store, const truce_fault_options *options)
{
    struct fault_store *fault = fault_of(store);

    pthread_mutex_lock(&fault->mutex);
    fault->options = *options;
    fault->calls = fault->hits = 0;
    pthread_mutex_unlock(&fault->mutex);
}

uint64_t truce_fault_calls(const truce_store *store)
{
    struct fault_store *fault = fault_of(store);
    uint64_t calls;

    pthread_mutex_lock(&fault->mutex);
    calls = fault->calls;
    pthread_mutex_unlock(&fault->mutex);
    return calls;
}

uint64_t truce_fault_hits(const truce_store *store)
{
    struct fault_store *fault = fault_of(store);
    uint64_t hits;

    pthread_mutex_lock(&fault->mutex);
    hits = fault->hits;
    pthread_mutex_unlock(&fault->mutex);
    return hits;
}

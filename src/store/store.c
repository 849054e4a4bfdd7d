/*
 * The public functions of truce/store.h, over a backend's table of functions (truce/sys/store.h).
 * Opening is in open/store_open.c. Every call does three things here, so that backends need not:
 *
 *   1. It checks the arguments: names, numbers, and that documents are well-formed BSON within the
 *      limits.
 *   2. It replaces NULL options and filters by defaults.
 *   3. It asserts the contract of the backend's result: a cursor exactly on success, an error
 *      message on each failure except TRUCE_NOT_FOUND, plausible counts.
 */
#include "store/store.h"

#include <ctype.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/forks.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/reserved_fields.h"
#include "query/expression/expression.h"
#include "query/index/index_span.h"
#include "query/input_check.h"
#include "store/snapshot_view.h"

/* ---- forks ----------------------------------------------------------------------------------- */

truce_status truce__store_not_inherited(const truce_store *store, bson_error_t *error)
{
    if (!store->opened_after || store->opened_after == truce__forks() + 1)
        return TRUCE_OK;
    return truce__fail(TRUCE_INVALID, error,
                       "the store was opened before this process was forked and belongs to the "
                       "parent: fork first and then open the store in each process, or start a "
                       "program (exec)");
}

truce_status truce__handle_usable(const truce_store *store, bool refused,
                                  const bson_error_t *refusal, bson_error_t *error)
{
    if (!refused)
        return truce__store_not_inherited(store, error);
    if (error)
        *error = *refusal;
    return TRUCE_INVALID;
}

/* Checks the store and the name of the collection at the start of a call. */
static truce_status store_check_name(const truce_store *store, const char *collection,
                                     bson_error_t *error)
{
    truce_status status = truce__store_not_inherited(store, error);

    return status ? status : truce__collection_name_check(collection, error);
}

/* ---- closing --------------------------------------------------------------------------------- */

/* A store stays open until it and all of its cursors are closed. Short reads open and close cursors
 * millions of times a second. Threads therefore count cursors in separate slots, because a single
 * counter would move between the caches of the processors. After the store was closed, each slot
 * ends once: with the store if it counts nothing, else with the last of its cursors. The end of the
 * last slot closes the store. */

/* The number of slots that count cursors. */
#define HOLD_SLOTS 16
enum { HOLD_CLOSED = 1, HOLD_CURSOR = 2 };

struct truce_holds {
    struct {
        /* Twice the number of cursors of the slot, plus 1 once the store was closed. */
        uint32_t count;
        uint8_t apart[60];
    } slots[HOLD_SLOTS];
    /* The number of slots that have ended. */
    uint32_t ended;
    /* Whether the store was closed. */
    bool closed;
};

static void close_now(truce_store *store)
{
    if (store->cache)
        store->cache->free(store->cache);
    store->cache = NULL;
    bson_free(store->holds);
    store->holds = NULL;
    store->ops->close(store);
}

static void holds_end_slots(truce_store *store, uint32_t count)
{
    struct truce_holds *holds = __atomic_load_n(&store->holds, __ATOMIC_ACQUIRE);

    if (__atomic_add_fetch(&holds->ended, count, __ATOMIC_ACQ_REL) == HOLD_SLOTS)
        close_now(store);
}

void truce_store_close(truce_store *store)
{
    struct truce_holds *holds;
    uint32_t ended = 0;

    /* In a forked child, closing the parent's files and connections would disturb the parent. */
    if (!store || truce__store_not_inherited(store, NULL))
        return;
    if (store->commands)
        store->commands->free(store->commands);
    store->commands = NULL;
    holds = __atomic_load_n(&store->holds, __ATOMIC_ACQUIRE);
    if (!holds) {
        close_now(store);
        return;
    }
    truce_assert(!__atomic_exchange_n(&holds->closed, true, __ATOMIC_ACQ_REL));
    for (int i = 0; i < HOLD_SLOTS; i++)
        ended += !__atomic_fetch_or(&holds->slots[i].count, HOLD_CLOSED, __ATOMIC_ACQ_REL);
    if (ended)
        holds_end_slots(store, ended);
}

static struct truce_holds *holds_of(truce_store *store)
{
    struct truce_holds *holds = __atomic_load_n(&store->holds, __ATOMIC_ACQUIRE), *made;

    if (holds)
        return holds;
    made = bson_malloc0(sizeof *made);
    if (__atomic_compare_exchange_n(&store->holds, &holds, made, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
        return made;
    /* Another thread was first. */
    bson_free(made);
    return holds;
}

/* Keeps the store open for a new cursor, until store_release_slot is called for the cursor's slot
 * `hold`. */
static void store_hold(truce_store *store, truce_cursor *cursor)
{
    static uint32_t threads;
    /* The number of the thread's slot plus 1, or 0 before its first cursor. */
    static __thread uint32_t own;

    if (!own)
        own = 1 + __atomic_fetch_add(&threads, 1, __ATOMIC_RELAXED) % HOLD_SLOTS;
    cursor->store = store;
    cursor->hold = own - 1;
    (void)__atomic_add_fetch(&holds_of(store)->slots[own - 1].count, HOLD_CURSOR, __ATOMIC_ACQ_REL);
}

static void store_release_slot(truce_store *store, uint32_t slot)
{
    if (__atomic_sub_fetch(&holds_of(store)->slots[slot].count, HOLD_CURSOR, __ATOMIC_ACQ_REL) ==
        HOLD_CLOSED)
        holds_end_slots(store, 1);
}

/* Returns whether a store with open cursors was closed. */
static bool store_is_closed(const truce_store *store)
{
    const struct truce_holds *holds = __atomic_load_n(&store->holds, __ATOMIC_ACQUIRE);

    return __atomic_load_n(&holds->closed, __ATOMIC_ACQUIRE);
}

/* ---- indexes -------------------------------------------------------------------------------- */

truce_status truce_index_create(truce_store *store, const char *collection, const bson_t *index,
                                bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status = store_check_name(store, collection, error);

    if (!status)
        status = truce__check_required(index, "index", error);
    if (status)
        return status;
    if (truce__is_view(store))
        return truce__view_index(store, collection, index, error);
    status = store->ops->index_create(store, collection, index, &caught);
    return truce__pass_error(status, &caught, error);
}

truce_status truce__index_ensure(truce_store *store, const char *collection, const bson_t *index,
                                 bson_error_t *error)
{
    bson_error_t why = {0};
    bool there = false;
    bson_t indexes;
    truce_status status = truce_index_create(store, collection, index, &why);

    if (!status)
        return TRUCE_OK;
    if (why.domain == TRUCE_ERROR_SERVER && why.code == CODE_INDEX_OPTIONS_CONFLICT) {
        if (!truce_index_list(store, collection, &indexes, NULL))
            there = truce__index_is_known(&indexes, index);
        bson_destroy(&indexes);
    }
    if (!there && error)
        *error = why;
    return there ? TRUCE_OK : status;
}

truce_status truce_index_drop(truce_store *store, const char *collection, const char *name,
                              bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status = store_check_name(store, collection, error);

    if (!status)
        status = truce__view_guard(store, "drop an index of", collection, error);
    if (status)
        return status;
    status = store->ops->index_drop(store, collection, name, &caught);
    return truce__pass_error(status, &caught, error);
}

truce_status truce_index_modify(truce_store *store, const char *collection, const char *name,
                                const bson_t *changes, bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status = store_check_name(store, collection, error);

    if (!status)
        status = truce__check_required(changes, "changes of an index", error);
    if (!status)
        status = truce__view_guard(store, "change an index of", collection, error);
    if (status)
        return status;
    status = store->ops->index_modify(store, collection, name, changes, &caught);
    return truce__pass_error(status, &caught, error);
}

truce_status truce_index_list(truce_store *store, const char *collection, bson_t *indexes,
                              bson_error_t *error)
{
    RETURN_IF_NULL(indexes, error);

    bson_error_t caught = {0};
    truce_status status = store_check_name(store, collection, error);

    if (status) {
        bson_init(indexes);
        return status;
    }
    status = store->ops->index_list(store, collection, indexes, &caught);
    truce_assert(status || bson_has_field(indexes, "0.name"));
    return truce__pass_error(status, &caught, error);
}

/* ---- collections ---------------------------------------------------------------------------- */

truce_status truce_collection_create(truce_store *store, const char *collection,
                                     bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status = store_check_name(store, collection, error);

    if (!status)
        status = truce__view_guard(store, "create", collection, error);
    if (status)
        return status;
    status = store->ops->collection_create(store, collection, &caught);
    return truce__pass_error(status, &caught, error);
}

truce_status truce_collection_drop(truce_store *store, const char *collection, bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status = store_check_name(store, collection, error);

    if (!status)
        status = truce__view_guard(store, "drop", collection, error);
    if (status)
        return status;
    status = store->ops->collection_drop(store, collection, &caught);
    return truce__pass_error(status, &caught, error);
}

truce_status truce_collection_rename(truce_store *store, const char *from, const char *to,
                                     bool drop_target, bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status = store_check_name(store, from, error);

    if (!status)
        status = truce__collection_name_check(to, error);
    if (!status && !strcmp(from, to))
        status = truce__refuse(CODE_ILLEGAL_OPERATION, error,
                               "a collection cannot be renamed to its own name (%s)", from);
    if (!status)
        status = truce__view_guard(store, "rename", from, error);
    if (status)
        return status;
    status = store->ops->collection_rename(store, from, to, drop_target, &caught);
    return truce__pass_error(status, &caught, error);
}

truce_status truce_collection_validate(truce_store *store, const char *collection,
                                       const bson_t *validator, bson_error_t *error)
{
    static const bson_t none = BSON_INITIALIZER;
    bson_error_t caught = {0};
    truce_status status = store_check_name(store, collection, error);

    if (!validator)
        validator = &none;
    if (!status)
        status = truce__check_required(validator, "validator", error);
    if (!status)
        status = truce__view_guard(store, "set the validator of", collection, error);
    if (status)
        return status;
    status = store->ops->collection_validate(store, collection, validator, &caught);
    return truce__pass_error(status, &caught, error);
}

truce_status truce_collection_list(truce_store *store, const truce_list_options *options,
                                   bson_t *collections, bson_error_t *error)
{
    RETURN_IF_NULL(collections, error);

    static const truce_list_options defaults = {0};
    bson_error_t caught = {0};
    truce_status status = truce__store_not_inherited(store, error);

    if (!status)
        status = ROOM_CHECK(options, "truce_list_options", error);
    if (status) {
        bson_init(collections);
        return status;
    }
    status =
        store->ops->collection_list(store, options ? options : &defaults, collections, &caught);
    truce_assert(collections->len >= 5);
    return truce__pass_error(status, &caught, error);
}

truce_status truce_settle(truce_store *store, bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status = truce__store_not_inherited(store, &caught);

    if (!status && store->ops->settle)
        status = store->ops->settle(store, &caught);
    return truce__pass_error(status, &caught, error);
}

/* ---- checks --------------------------------------------------------------------------------- */

static void truce__check_answer(truce_status status, const bson_error_t *error)
{
    if (status == TRUCE_OK || status == TRUCE_NOT_FOUND)
        return;
    truce_assert(error->message[0] != '\0');
    truce_assert(error->domain == TRUCE_ERROR || error->domain == TRUCE_ERROR_SERVER);
    truce_assert(error->domain != TRUCE_ERROR || error->code == (uint32_t)status);
}

truce_status truce__pass_error(truce_status status, const bson_error_t *caught, bson_error_t *error)
{
    truce__check_answer(status, caught);
    if (status && error)
        *error = *caught;
    return status;
}

/* Returns {} if the caller gave no filter. */
static const bson_t *filter_or_empty(const bson_t *filter)
{
    static const bson_t empty = BSON_INITIALIZER;

    return filter ? filter : &empty;
}

const truce_find_options truce__find_latest = {.latest = true};

static const truce_find_options *find_options_or_default(const truce_find_options *options)
{
    static const truce_find_options defaults;

    return options ? options : &defaults;
}

static truce_status choose_count_options(const truce_count_options *options,
                                         truce_count_options *chosen, bson_error_t *error)
{
    *chosen = options ? *options : (truce_count_options){0};
    if (chosen->limit < 0)
        chosen->limit = chosen->limit == INT64_MIN ? INT64_MAX : -chosen->limit;
    return ROOM_CHECK(options, "truce_count_options", error);
}

truce_find_options truce__count_as_find(const truce_count_options *options)
{
    return (truce_find_options){.hint = options->hint,
                                .skip = options->skip,
                                .limit = options->limit,
                                .deadline_ms = options->deadline_ms};
}

static truce_status check_numbers(const truce_find_options *options, bson_error_t *error)
{
    if (options->skip < 0)
        return truce__refuse(51024, error, "skip is %" PRId64 ": expected 0 or more",
                             options->skip);
    if (options->limit < 0)
        return truce__refuse(51024, error, "limit is %" PRId64 ": expected 0 (no limit) or more",
                             options->limit);
    return TRUCE_OK;
}

static truce_status check_span(const truce_find_options *options, bson_error_t *error)
{
    truce_status status = truce__check_optional(options->min, "min", error);

    if (!status)
        status = truce__check_optional(options->max, "max", error);
    return status ? status
                  : truce__index_span_check(options->min, options->max, options->hint,
                                            options->sort, error);
}

/* Checks the arguments of a find or a count. `filter` may be NULL, `options` may not. */
static truce_status check_find(const truce_store *store, const char *collection,
                               const bson_t *filter, const truce_find_options *options,
                               bson_error_t *error)
{
    truce_status status = store_check_name(store, collection, error);

    if (!status)
        status = ROOM_CHECK(options, "truce_find_options", error);
    if (!status)
        status = truce__check_optional(filter, "filter", error);
    if (!status)
        status = truce__check_optional(options->projection, "projection", error);
    if (!status)
        status = truce__check_sort(options->sort, error);
    if (!status)
        status = truce__check_optional(options->hint, "hint", error);
    if (!status)
        status = check_span(options, error);
    if (!status)
        status = check_numbers(options, error);
    return status;
}

/* ---- interrupting calls ---------------------------------------------------------------------- */

static void set_interrupted(truce_store *store, bool on)
{
    if (truce__store_not_inherited(store, NULL))
        return;
    __atomic_store_n(&store->interrupted, on, __ATOMIC_SEQ_CST);
    if (store->ops->interrupt)
        store->ops->interrupt(store, on);
}

void truce_interrupt(truce_store *store)
{
    set_interrupted(store, true);
}

void truce_resume(truce_store *store)
{
    set_interrupted(store, false);
}

/* Checks for an interrupt. An interrupt of the store also ends calls on its views. */
truce_status truce__store_interrupted(const truce_store *store, bson_error_t *error)
{
    if (__atomic_load_n(&store->interrupted, __ATOMIC_RELAXED) ||
        (store->above && __atomic_load_n(store->above, __ATOMIC_RELAXED)))
        return truce__refuse(CODE_INTERRUPTED, error, "the call was interrupted");
    return TRUCE_OK;
}

/* Checks for an interrupt at the start of a call that may compile expressions. */
static truce_status store_begin(const truce_store *store, bson_error_t *error)
{
    truce_status status = truce__store_not_inherited(store, error);

    truce__expression_fold_again();
    return status ? status : truce__store_interrupted(store, error);
}

void truce__store_budget(const truce_store *store, uint32_t deadline_ms, struct budget *budget)
{
    int64_t deadline_ns =
        deadline_ms ? truce__clock_monotonic_ns() + deadline_ms * INT64_C(1000000) : 0;

    truce__budget_init(budget, truce__deadline_least(deadline_ns), &store->interrupted);
    budget->above = store->above;
}

int64_t truce_deadline_begin(uint32_t deadline_ms)
{
    return truce__deadline_narrow(deadline_ms);
}

void truce_deadline_end(int64_t before)
{
    (void)truce__deadline_set(before);
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Opens a cursor that does not keep the store open. The caller closes it before its call returns,
 * or calls store_hold. */
static truce_status store_open_cursor(truce_store *store, const char *collection,
                                      const bson_t *filter, const truce_find_options *options,
                                      truce_cursor **cursor, bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status;

    *cursor = NULL;
    options = find_options_or_default(options);
    status = check_find(store, collection, filter, options, error);
    if (!status)
        status = store_begin(store, error);
    if (status)
        return status;
    status = store->ops->find(store, collection, filter_or_empty(filter), options, cursor, &caught);
    truce_assert(!status == (*cursor != NULL));
    return truce__pass_error(status, &caught, error);
}

truce_status truce_find(truce_store *store, const char *collection, const bson_t *filter,
                        const truce_find_options *options, truce_cursor **cursor,
                        bson_error_t *error)
{
    RETURN_IF_NULL(cursor, error);

    truce_status status = store_open_cursor(store, collection, filter, options, cursor, error);

    if (!status)
        store_hold(store, *cursor);
    return status;
}

truce_status truce_cursor_next(truce_cursor *cursor, const bson_t **document, bson_error_t *error)
{
    RETURN_IF_NULL(document, error);

    bson_error_t caught = {0};
    truce_status status;

    *document = NULL;
    status = cursor->store ? truce__store_not_inherited(cursor->store, error) : TRUCE_OK;
    if (status)
        return status;
    if (cursor->store && store_is_closed(cursor->store))
        return truce__fail(TRUCE_INVALID, error, "the store of the cursor was closed");
    status = cursor->ops->next(cursor, document, &caught);
    truce_assert(!status || !*document);
    truce_assert(!*document || (*document)->len >= 5);
    return truce__pass_error(status, &caught, error);
}

void truce_cursor_close(truce_cursor *cursor)
{
    truce_store *store = cursor ? cursor->store : NULL;
    uint32_t slot = cursor ? cursor->hold : 0;

    if (!cursor || (store && truce__store_not_inherited(store, NULL)))
        return;
    cursor->ops->close(cursor);
    if (store)
        store_release_slot(store, slot);
}

truce_status truce_find_one(truce_store *store, const char *collection, const bson_t *filter,
                            const truce_find_options *options, bson_t *document,
                            bson_error_t *error)
{
    RETURN_IF_NULL(document, error);

    truce_find_options one = *find_options_or_default(options);
    truce_cursor *cursor = NULL;
    const bson_t *found = NULL;
    truce_status status;

    bson_init(document);
    one.limit = 1;
    status = store_open_cursor(store, collection, filter, &one, &cursor, error);
    if (!status)
        status = truce_cursor_next(cursor, &found, error);
    if (!status && !found)
        status =
            truce__fail(TRUCE_NOT_FOUND, error, "no document of %s matches the filter", collection);
    if (!status) {
        bson_destroy(document);
        bson_copy_to(found, document);
    }
    truce_cursor_close(cursor);
    return status;
}

truce_status truce_count(truce_store *store, const char *collection, const bson_t *filter,
                         const truce_count_options *options, int64_t *count, bson_error_t *error)
{
    RETURN_IF_NULL(count, error);

    truce_count_options chosen;
    bson_error_t caught = {0};
    truce_status status = choose_count_options(options, &chosen, error);
    truce_find_options as_find = truce__count_as_find(&chosen);

    *count = 0;
    if (!status)
        status = check_find(store, collection, filter, &as_find, error);
    if (!status)
        status = store_begin(store, error);
    if (status)
        return status;
    status = store->ops->count(store, collection, filter_or_empty(filter), &chosen, count, &caught);
    truce_assert(*count >= 0);
    return truce__pass_error(status, &caught, error);
}

truce_status truce_distinct(truce_store *store, const char *collection, const char *path,
                            const bson_t *filter, bson_t *values, bson_error_t *error)
{
    RETURN_IF_NULL(values, error);
    RETURN_EMPTY_IF_NULL(path, values, error);

    bson_error_t caught = {0};
    truce_status status = store_check_name(store, collection, error);

    if (!status)
        status = truce__check_optional(filter, "filter", error);
    if (!status && !bson_utf8_validate(path, strlen(path), false))
        status = truce__refuse(CODE_BAD_VALUE, error, "the path is not valid UTF-8");
    if (!status)
        status = store_begin(store, error);
    if (status) {
        bson_init(values);
        return status;
    }
    status =
        store->ops->distinct(store, collection, path, filter_or_empty(filter), values, &caught);
    truce_assert(values->len >= 5);
    return truce__pass_error(status, &caught, error);
}

truce_status truce_aggregate(truce_store *store, const char *collection, const bson_t *pipeline,
                             const truce_aggregate_options *options, truce_cursor **cursor,
                             bson_error_t *error)
{
    RETURN_IF_NULL(cursor, error);

    static const truce_aggregate_options defaults;
    bson_error_t caught = {0};
    truce_status status = store_check_name(store, collection, error);

    *cursor = NULL;
    options = options ? options : &defaults;
    if (!status)
        status = ROOM_CHECK(options, "truce_aggregate_options", error);
    if (!status)
        status = truce__check_optional(options->hint, "hint", error);
    if (!status)
        status = truce__check_required(pipeline, "pipeline", error);
    if (!status)
        status = store_begin(store, error);
    if (status)
        return status;
    status = truce__view_guard_pipeline(store, pipeline, collection, error);
    if (status)
        return status;
    status = store->ops->aggregate(store, collection, pipeline, options, cursor, &caught);
    truce_assert(!status == (*cursor != NULL));
    if (!status)
        store_hold(store, *cursor);
    return truce__pass_error(status, &caught, error);
}

truce_status truce__store_explain(truce_store *store, const char *collection, const bson_t *filter,
                                  const truce_find_options *options, bool count, bson_t *plan,
                                  bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status;

    status = check_find(store, collection, filter, options, error);
    if (!status)
        status = store_begin(store, error);
    if (status) {
        bson_init(plan);
        return status;
    }
    status = store->ops->explain(store, collection, filter_or_empty(filter), options, count, plan,
                                 &caught);
    truce_assert(status || bson_has_field(plan, "queryPlanner"));
    return truce__pass_error(status, &caught, error);
}

truce_status truce_explain(truce_store *store, const char *collection, const bson_t *filter,
                           const truce_find_options *options, bson_t *plan, bson_error_t *error)
{
    RETURN_IF_NULL(plan, error);

    return truce__store_explain(store, collection, filter, find_options_or_default(options), false,
                                plan, error);
}

truce_status truce_explain_count(truce_store *store, const char *collection, const bson_t *filter,
                                 const truce_count_options *options, bson_t *plan,
                                 bson_error_t *error)
{
    RETURN_IF_NULL(plan, error);

    truce_count_options chosen;
    truce_status status = choose_count_options(options, &chosen, error);
    truce_find_options as_find = truce__count_as_find(&chosen);

    if (status) {
        bson_init(plan);
        return status;
    }
    return truce__store_explain(store, collection, filter, &as_find, true, plan, error);
}

static void check_read_requests(const truce_read_request *requests, size_t count)
{
    for (size_t i = 0; i < count; i++)
        truce_assert(requests[i].found == !bson_empty(&requests[i].document));
}

truce_status truce__store_read_many(truce_store *store, truce_read_request *requests, size_t count,
                                    bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status = TRUCE_OK;

    if (!(store->capabilities & TRUCE_CAN_SNAPSHOT_READ))
        status = truce__fail(TRUCE_INVALID, error, "a store of the kind \"%s\" has no snapshots",
                             store->ops->scheme);
    for (size_t i = 0; i < count && !status; i++)
        status = truce__collection_name_check(requests[i].collection, error);
    if (!status)
        status = store_begin(store, error);
    if (status) {
        for (size_t i = 0; i < count; i++) {
            bson_init(&requests[i].document);
            requests[i].found = false;
        }
        return status;
    }
    status = store->ops->read_many(store, requests, count, &caught);
    check_read_requests(requests, count);
    return truce__pass_error(status, &caught, error);
}

/* ---- waiting for changes --------------------------------------------------------------------- */

truce_status truce_wait(truce_store *store, const char *collection, uint64_t *token,
                        uint32_t timeout_ms, bson_error_t *error)
{
    RETURN_IF_NULL(collection, error);
    RETURN_IF_NULL(token, error);

    bson_error_t caught = {0};
    uint64_t before = *token;
    truce_status status = store_check_name(store, collection, error);

    if (!status)
        status = truce__view_guard(store, "wait for changes of", collection, error);
    if (!status)
        status = truce__store_interrupted(store, error);
    if (status)
        return status;
    status = store->ops->wait(store, collection, token, timeout_ms, &caught);
    truce_assert(status == TRUCE_OK || *token == before);
    truce_assert(status != TRUCE_OK || *token != 0);
    return truce__pass_error(status, &caught, error);
}

truce_status truce__store_token(truce_store *store, const char *collection, uint64_t *token,
                                bson_error_t *error)
{
    truce_assert(store->capabilities & TRUCE_CAN_WAIT && !truce__is_view(store));
    *token = 0;
    return store->ops->wait(store, collection, token, 0, error);
}

uint64_t truce__store_structure(truce_store *store)
{
    return store->ops->structure && !truce__store_not_inherited(store, NULL)
               ? store->ops->structure(store)
               : 0;
}

uint64_t truce__store_version(truce_store *store)
{
    bson_error_t ignored;

    /* A call on an interrupted store fails. The number is therefore unknown, so that the caller
     * makes the call. */
    if (!store->ops->version || truce__store_not_inherited(store, NULL) ||
        truce__store_interrupted(store, &ignored))
        return 0;
    return store->ops->version(store);
}

bool truce__store_sees_drops(const truce_store *store)
{
    /* These stores are files or memory of this machine, which report each drop. */
    return store->capabilities & TRUCE_CAN_COMPARE;
}

/* ---- facts ---------------------------------------------------------------------------------- */

truce_status truce__store_facts(truce_store *store, bson_t *facts, bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status = truce__store_not_inherited(store, &caught);

    bson_init(facts);
    BSON_APPEND_UTF8(facts, "store", store->ops->scheme);
    if (!status && store->ops->facts)
        status = store->ops->facts(store, facts, &caught);
    return truce__pass_error(status, &caught, error);
}

truce_status truce__store_keep_images(truce_store *store, const char *collection, bool on,
                                      bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status = truce__store_not_inherited(store, &caught);

    if (!status && store->ops->keep_images)
        status = store->ops->keep_images(store, collection, on, &caught);
    return truce__pass_error(status, &caught, error);
}

/* ---- counters ------------------------------------------------------------------------------- */

void truce_store_count(truce_store *store, truce_store_counters *counters)
{
    if (!counters)
        return;
    *counters = (truce_store_counters){0};
    if (store->ops->counters && !truce__store_not_inherited(store, NULL))
        store->ops->counters(store, counters);
}

/* ---- writes (a single insert, update, or remove is a bulk of one) ---------------------------- */

void truce_write_result_release(truce_write_result *result)
{
    if (!result)
        return;
    if (result->upserted_id.value_type)
        bson_value_destroy(&result->upserted_id);
    *result = (truce_write_result){0};
}

/* ---- checks --------------------------------------------------------------------------------- */

static truce_status check_write_options(const truce_write_options *options, bson_error_t *error)
{
    truce_status status = ROOM_CHECK(options, "truce_write_options", error);

    if (!status)
        status = truce__check_optional(options->array_filters, "array of filters", error);
    if (!status)
        status = truce__check_optional(options->hint, "hint", error);
    return status;
}

/* Requires a filter, because a forgotten filter would mean every document. */
static truce_status store_check_filter(const bson_t *filter, bson_error_t *error)
{
    if (!filter)
        return truce__fail(TRUCE_INVALID, error,
                           "the filter is missing; use {} for every document");
    return truce__document_check(filter, "filter", error);
}

static truce_status store_check_guard(const truce_write *write, const truce_bulk_options *options,
                                      bson_error_t *error)
{
    if (!options->atomic)
        return truce__fail(TRUCE_INVALID, error,
                           "a guard (TRUCE_WRITE_REQUIRE, TRUCE_WRITE_REQUIRE_MISSING, "
                           "TRUCE_WRITE_REQUIRE_IN_SNAPSHOT) needs an atomic bulk: set `atomic`");
    return truce__check_optional(write->filter, "filter", error);
}

static truce_status check_sort(const truce_store *store, const truce_write *write,
                               bson_error_t *error)
{
    const bson_t *sort = write->options.sort;

    if (!sort || bson_empty(sort))
        return TRUCE_OK;
    if (write->kind != TRUCE_WRITE_UPDATE)
        return truce__fail(TRUCE_INVALID, error, "only an update can have the option `sort`");
    if (!(store->capabilities & TRUCE_CAN_SORT_UPDATE))
        return truce__refuse(CODE_COMMAND_NOT_SUPPORTED, error, "a %s: store cannot sort an update",
                             store->ops->scheme);
    return truce__check_update_sort(sort, write->options.multi, error);
}

/* Checks the document `exact`. Its bytes are only compared, so it may have any form. */
static truce_status check_exact(const truce_store *store, const truce_write *write,
                                bson_error_t *error)
{
    if (!write->exact)
        return TRUCE_OK;
    if (!(store->capabilities & TRUCE_CAN_COMPARE))
        return truce__fail(TRUCE_INVALID, error,
                           "a %s: store cannot compare whole documents: omit `exact`",
                           store->ops->scheme);
    if (write->kind == TRUCE_WRITE_INSERT || write->options.multi || write->options.upsert)
        return truce__fail(TRUCE_INVALID, error,
                           "a write with `exact` must update or remove one existing document; it "
                           "cannot be an insert, an upsert, or multi");
    return TRUCE_OK;
}

/* Checks one write of a bulk: its collection, options, and documents, and whether the store
 * supports it. */
static truce_status check_write(const truce_store *store, const truce_write *write,
                                const truce_bulk_options *options, bson_error_t *error)
{
    truce_status status;

    if (!write->collection)
        return truce__fail(TRUCE_INVALID, error, "`collection` of the write is NULL");
    status = truce__collection_name_check(write->collection, error);
    if (!status)
        status = check_write_options(&write->options, error);
    if (!status)
        status = ROOM_CHECK(write, "truce_write", error);
    if (!status)
        status = check_exact(store, write, error);
    if (!status)
        status = check_sort(store, write, error);
    if (status)
        return status;
    switch (write->kind) {
    case TRUCE_WRITE_INSERT:
        return truce__check_required(write->document, "document", error);
    case TRUCE_WRITE_UPDATE:
        status = store_check_filter(write->filter, error);
        return status ? status : truce__check_required(write->document, "update", error);
    case TRUCE_WRITE_REMOVE:
        return store_check_filter(write->filter, error);
    case TRUCE_WRITE_REQUIRE:
    case TRUCE_WRITE_REQUIRE_MISSING:
    case TRUCE_WRITE_REQUIRE_IN_SNAPSHOT:
        return store_check_guard(write, options, error);
    }
    return truce__fail(TRUCE_INVALID, error, "unknown kind of write %d", (int)write->kind);
}

static truce_status check_receipt(const truce_store *store, const truce_receipt *receipt,
                                  bson_error_t *error)
{
    truce_status status;

    if (!receipt)
        return TRUCE_OK;
    if (!(store->capabilities & TRUCE_CAN_RECEIPT))
        return truce__fail(TRUCE_INVALID, error, "a %s: store has no receipts", store->ops->scheme);
    status = truce__collection_name_check(receipt->collection, error);
    return status ? status : truce__check_required(receipt->key, "key of the receipt", error);
}

/* Checks the options of a bulk and its size. */
static truce_status check_sizes(const truce_store *store, const truce_write *writes, size_t count,
                                const truce_bulk_options *options, bson_error_t *error)
{
    uint64_t bytes = 0;
    truce_status status;

    if (options->atomic && options->unordered)
        return truce__fail(TRUCE_INVALID, error,
                           "a bulk cannot be both `atomic` and `unordered`: set one of them");
    if (options->checks && !(options->atomic && store->capabilities & TRUCE_CAN_CHECK))
        return options->atomic ? truce__fail(TRUCE_INVALID, error, "a %s: store cannot check reads",
                                             store->ops->scheme)
                               : truce__fail(TRUCE_INVALID, error,
                                             "`checks` need an atomic bulk: set `atomic`");
    if (options->receipt && options->atomic)
        return truce__fail(TRUCE_INVALID, error,
                           "`receipt` is not for an atomic bulk: omit one of them");
    status = check_receipt(store, options->receipt, error);
    if (status)
        return status;
    if (count > TRUCE_BULK_MAX)
        return truce__fail(TRUCE_LIMIT, error, "the bulk has %zu writes; the maximum is %d", count,
                           TRUCE_BULK_MAX);
    for (size_t i = 0; i < count; i++)
        bytes += writes[i].document ? writes[i].document->len : 0;
    if (bytes > TRUCE_BULK_BYTES_MAX)
        return truce__fail(TRUCE_LIMIT, error,
                           "the documents of the bulk have %" PRIu64 " bytes, the maximum is %d",
                           bytes, TRUCE_BULK_BYTES_MAX);
    return TRUCE_OK;
}

/* ---- preparing a bulk ------------------------------------------------------------------------ */

/* The maximum number of writes that need no allocation. */
#define PREPARED_FEW 8

/* The writes as the backend gets them, with filters, and with an _id in each document to insert.
 * Invalid writes are omitted. */
struct prepared {
    const truce_store *store;
    truce_write *writes;
    /* For each write, its number in the caller's list. */
    size_t *numbers;
    size_t count;
    /* The prepared documents, each at its number in the caller's list. */
    bson_t *documents;
    truce_write_outcome *outcomes;
    truce_write few_writes[PREPARED_FEW];
    size_t few_numbers[PREPARED_FEW];
    bson_t few_documents[PREPARED_FEW];
    truce_write_outcome few_outcomes[PREPARED_FEW];
};

/* Initializes only the used part, because the struct is large. */
static void prepared_init(struct prepared *prepared, const truce_store *store, size_t count)
{
    bool few = count <= PREPARED_FEW;

    prepared->store = store;
    prepared->count = 0;
    prepared->writes = few ? prepared->few_writes : bson_malloc(count * sizeof(truce_write));
    prepared->numbers = few ? prepared->few_numbers : bson_malloc(count * sizeof(size_t));
    prepared->documents = few ? prepared->few_documents
                              : bson_aligned_alloc(_Alignof(bson_t), count * sizeof(bson_t));
    prepared->outcomes =
        few ? prepared->few_outcomes : bson_malloc(count * sizeof(truce_write_outcome));
    for (size_t i = 0; i < count; i++)
        bson_init(&prepared->documents[i]);
    memset(prepared->outcomes, 0, count * sizeof *prepared->outcomes);
}

static void prepared_release(struct prepared *prepared, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bson_destroy(&prepared->documents[i]);
    if (prepared->writes == prepared->few_writes)
        return;
    bson_free(prepared->writes);
    bson_free(prepared->numbers);
    bson_free(prepared->documents);
    bson_free(prepared->outcomes);
}

/* Checks one write and adds it to the prepared ones. A document to insert is copied if it has no
 * _id in first position, or another form that must be changed. */
static truce_status store_prepare_write(struct prepared *prepared, const truce_write *write,
                                        size_t number, const truce_bulk_options *options,
                                        const struct query_context *context, bson_error_t *error)
{
    truce_write *added = &prepared->writes[prepared->count];
    bson_t *document = &prepared->documents[number];
    truce_status status = check_write(prepared->store, write, options, error);
    bool unprepared = !status && write->kind == TRUCE_WRITE_INSERT &&
                      !truce__document_is_prepared(write->document);

    if (unprepared) {
        bson_destroy(document);
        status = truce__document_prepare(write->document, context, document, error);
    }
    if (status)
        return status;
    *added = *write;
    added->filter = filter_or_empty(write->filter);
    if (unprepared)
        added->document = document;
    prepared->numbers[prepared->count++] = number;
    return TRUCE_OK;
}

/* Prepares all writes. Unless the bulk is unordered, ends at the first invalid write. Returns the
 * number of the first invalid write, or `count`. */
static size_t prepare_all(struct prepared *prepared, const truce_write *writes, size_t count,
                          const truce_bulk_options *options, truce_write_outcome *outcomes)
{
    struct query_context context = {.now_ms = truce__clock_wall_ms()};
    size_t wrong = count;

    for (size_t i = 0; i < count && (wrong == count || options->unordered); i++) {
        outcomes[i].status =
            store_prepare_write(prepared, &writes[i], i, options, &context, &outcomes[i].error);
        context.now_ordinal++;
        if (outcomes[i].status && wrong == count)
            wrong = i;
    }
    return wrong;
}

/* ---- the backend's result -------------------------------------------------------------------- */

/* Asserts that the counts of one outcome fit its write. */
static void check_outcome(const truce_write *write, const truce_write_outcome *outcome)
{
    const truce_write_result *result = &outcome->result;

    truce_assert(result->matched >= 0 && result->modified >= 0);
    truce_assert(result->inserted >= 0 && result->removed >= 0);
    truce_assert(result->modified <= result->matched);
    truce_assert(result->upserted == (result->upserted_id.value_type != 0));
    truce_assert(!result->upserted || result->matched == 0);
    truce_assert(write->kind == TRUCE_WRITE_UPDATE || !result->upserted);
    truce_assert(write->kind == TRUCE_WRITE_REMOVE || result->removed == 0);
    if (outcome->status != TRUCE_OK)
        return;
    if (write->kind == TRUCE_WRITE_INSERT)
        truce_assert(result->inserted == 1);
    if (write->kind == TRUCE_WRITE_REMOVE)
        truce_assert(result->removed == result->matched);
    if (!write->options.multi)
        truce_assert(result->matched <= 1);
}

/* Asserts that the first failure is returned, and that only an unordered bulk continues after
 * it. */
static void check_outcomes(const struct prepared *prepared, const truce_bulk_options *options,
                           truce_status status)
{
    truce_status first = TRUCE_OK;
    size_t failures = 0;

    for (size_t i = 0; i < prepared->count; i++) {
        const truce_write_outcome *outcome = &prepared->outcomes[i];

        check_outcome(&prepared->writes[i], outcome);
        if (outcome->status && outcome->error.message[0]) {
            truce__check_answer(outcome->status, &outcome->error);
            first = failures++ ? first : outcome->status;
        }
    }
    truce_assert(failures <= 1 || options->unordered);
    truce_assert(status != TRUCE_OK || failures == 0);
    truce_assert(failures == 0 || status == first);
}

/* Sets the outcomes of writes that were not reached. */
static void fill_outcomes(truce_write_outcome *outcomes, size_t count, bool atomic)
{
    for (size_t i = 0; i < count; i++)
        outcomes[i] = (truce_write_outcome){.status = atomic ? TRUCE_CONFLICT : TRUCE_NOT_FOUND};
}

/* ---- bulk ----------------------------------------------------------------------------------- */

/* The receipt that the backend gets. Its outcomes are those of the prepared writes; the caller's
 * receipt gets the outcomes of its whole list. */
struct passed_receipt {
    /* Must be the first field. */
    truce_receipt base;
    /* The caller's receipt. */
    truce_receipt *given;
    const struct prepared *prepared;
    /* The outcomes of the caller's list, and their number. */
    truce_write_outcome *outcomes;
    size_t count;
};

static bool pass_agrees(truce_receipt *base, const bson_t *before)
{
    truce_receipt *given = ((struct passed_receipt *)base)->given;

    return given->agrees(given, before);
}

static bool pass_make(truce_receipt *base, const truce_write_outcome *outcomes, size_t count,
                      const bson_t *document, bson_t *after)
{
    const struct passed_receipt *passed = (struct passed_receipt *)base;

    for (size_t i = 0; i < count; i++)
        passed->outcomes[passed->prepared->numbers[i]] = outcomes[i];
    return passed->given->make(passed->given, passed->outcomes, passed->count, document, after);
}

/* Passes the prepared writes to the backend, and copies the outcomes to the caller's list. */
static truce_status store_run_writes(truce_store *store, const struct prepared *prepared,
                                     size_t total, const truce_bulk_options *options,
                                     truce_write_outcome *outcomes, bson_error_t *error)
{
    struct passed_receipt passed = {
        .given = options->receipt, .prepared = prepared, .outcomes = outcomes, .count = total};
    truce_bulk_options how = *options;
    truce_status status;

    if (prepared->count == 0)
        return TRUCE_OK;
    if (options->receipt) {
        passed.base = (truce_receipt){options->receipt->collection, options->receipt->key,
                                      pass_agrees, pass_make};
        how.receipt = &passed.base;
    }
    status =
        store->ops->bulk(store, prepared->writes, prepared->count, &how, prepared->outcomes, error);
    truce__check_answer(status, error);
    check_outcomes(prepared, options, status);
    for (size_t i = 0; i < prepared->count; i++) {
        truce_write_outcome *outcome = &prepared->outcomes[i];

        /* A write that failed has changed nothing, except for a write with `multi` outside of an
         * atomic bulk: some of its documents may be changed. */
        if (outcome->status && (options->atomic || !prepared->writes[i].options.multi))
            truce_write_result_release(&outcome->result);
        outcomes[prepared->numbers[i]] = *outcome;
    }
    return status;
}

/* Returns the first failure in the caller's order. */
static truce_status first_failure(const truce_write_outcome *outcomes, size_t count,
                                  truce_status status, bson_error_t *error)
{
    for (size_t i = 0; i < count; i++) {
        if (outcomes[i].status == TRUCE_OK || !outcomes[i].error.message[0])
            continue;
        *error = outcomes[i].error;
        return outcomes[i].status;
    }
    return status;
}

/* Refuses writes on a view. The message names the first write. */
static truce_status store_refuse_view_write(const truce_store *store, const truce_write *write,
                                            bson_error_t *error)
{
    static const char *const names[] = {[TRUCE_WRITE_INSERT] = "insert into",
                                        [TRUCE_WRITE_UPDATE] = "update",
                                        [TRUCE_WRITE_REMOVE] = "remove from"};
    bool named = write->kind >= TRUCE_WRITE_INSERT && write->kind <= TRUCE_WRITE_REMOVE;

    return truce__view_guard(store, named ? names[write->kind] : "write to",
                             write->collection ? write->collection : "a collection", error);
}

truce_status truce_bulk(truce_store *store, const truce_write *writes, size_t count,
                        const truce_bulk_options *options, truce_write_outcome *outcomes,
                        bson_error_t *error)
{
    if (count)
        RETURN_IF_NULL(writes, error);
    if (count)
        RETURN_IF_NULL(outcomes, error);

    static const truce_bulk_options defaults;
    struct prepared prepared;
    bson_error_t caught = {0};
    truce_status status;
    size_t wrong;

    options = options ? options : &defaults;
    fill_outcomes(outcomes, count, options->atomic);
    status = ROOM_CHECK(options, "truce_bulk_options", error);
    if (!status)
        status = check_sizes(store, writes, count, options, error);
    if (!status && count)
        status = store_refuse_view_write(store, &writes[0], error);
    if (!status)
        status = store_begin(store, error);
    if (status)
        return status;
    prepared_init(&prepared, store, count);
    wrong = prepare_all(&prepared, writes, count, options, outcomes);
    if (wrong == count || !options->atomic)
        status = store_run_writes(store, &prepared, count, options, outcomes, &caught);
    else
        fill_outcomes(outcomes, wrong, true);
    /* The bulk ended before the invalid write. */
    if (status && wrong < count && !options->unordered)
        fill_outcomes(&outcomes[wrong], 1, false);
    if (wrong < count || status)
        status = first_failure(outcomes, count, status, &caught);
    prepared_release(&prepared, count);
    return truce__pass_error(status, &caught, error);
}

/* ---- rewriting ------------------------------------------------------------------------------ */

truce_status truce__store_rewrite(truce_store *store, truce_rewrite *rewrite, bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status = store_check_name(store, rewrite->collection, error);

    if (!status && !(store->capabilities & TRUCE_CAN_REWRITE))
        status = truce__fail(TRUCE_INVALID, error, "a %s: store does not support rewrites",
                             store->ops->scheme);
    if (!status)
        status = truce__view_guard(store, "write to", rewrite->collection, error);
    if (!status)
        status = store_begin(store, error);
    if (status || !rewrite->count)
        return status;
    status = store->ops->rewrite(store, rewrite, &caught);
    truce__check_answer(status, &caught);
    return truce__pass_error(status, &caught, error);
}

/* ---- single writes -------------------------------------------------------------------------- */

static truce_status store_write_one(truce_store *store, const truce_write *write,
                                    truce_write_result *result, bson_error_t *error)
{
    truce_bulk_options options = {.relaxed = write->options.relaxed,
                                  .deadline_ms = write->options.deadline_ms};
    truce_write_outcome outcome;
    truce_status status = truce_bulk(store, write, 1, &options, &outcome, error);

    if (result)
        *result = outcome.result;
    else
        truce_write_result_release(&outcome.result);
    return status;
}

truce_status truce_insert(truce_store *store, const char *collection, const bson_t *document,
                          const truce_write_options *options, bson_error_t *error)
{
    truce_write write = {TRUCE_WRITE_INSERT, collection, NULL, document,
                         options ? *options : (truce_write_options){0}};

    return store_write_one(store, &write, NULL, error);
}

truce_status truce_update(truce_store *store, const char *collection, const bson_t *filter,
                          const bson_t *update, const truce_write_options *options,
                          truce_write_result *result, bson_error_t *error)
{
    truce_write write = {TRUCE_WRITE_UPDATE, collection, filter, update,
                         options ? *options : (truce_write_options){0}};

    return store_write_one(store, &write, result, error);
}

truce_status truce_remove(truce_store *store, const char *collection, const bson_t *filter,
                          const truce_write_options *options, truce_write_result *result,
                          bson_error_t *error)
{
    truce_write write = {TRUCE_WRITE_REMOVE, collection, filter, NULL,
                         options ? *options : (truce_write_options){0}};

    return store_write_one(store, &write, result, error);
}

/* ---- find-and-modify ------------------------------------------------------------------------ */

/* Refuses combinations of options that MongoDB refuses, with its code. */
static truce_status check_combination(const bson_t *update, const truce_modify_options *options,
                                      bson_error_t *error)
{
    const char *wrong = NULL;

    if (options->remove && update)
        wrong = "both an update and remove are given";
    else if (!options->remove && !update)
        wrong = "neither an update nor remove is given";
    else if (options->remove && options->upsert)
        wrong = "remove and upsert exclude each other";
    else if (options->remove && options->return_new)
        wrong = "remove has no new document to return";
    else if (options->remove && options->array_filters)
        wrong = "remove takes no array filters";
    if (wrong)
        return truce__refuse(CODE_FAILED_TO_PARSE, error, "find-and-modify: %s", wrong);
    return TRUCE_OK;
}

/* Checks the arguments of a find-and-modify. */
static truce_status store_check_modify(const truce_store *store, const char *collection,
                                       const bson_t *filter, const bson_t *update,
                                       const truce_modify_options *options, bson_error_t *error)
{
    truce_status status = store_check_name(store, collection, error);

    if (!status)
        status = ROOM_CHECK(options, "truce_modify_options", error);
    if (!status)
        status = check_combination(update, options, error);
    if (!status)
        status = store_check_filter(filter, error);
    if (!status)
        status = truce__check_optional(update, "update", error);
    if (!status)
        status = truce__check_sort(options->sort, error);
    if (!status)
        status = truce__check_optional(options->projection, "projection", error);
    if (!status)
        status = truce__check_optional(options->hint, "hint", error);
    if (!status)
        status = truce__check_optional(options->array_filters, "array of filters", error);
    if (!status)
        status = check_receipt(store, options->receipt, error);
    return status;
}

static void store_check_modified(truce_status status, const truce_modify_options *options,
                                 const bson_t *document, const truce_write_result *result)
{
    truce_assert(document->len >= 5);
    truce_assert(result->matched + result->upserted == (status == TRUCE_OK));
    truce_assert(result->removed == (options->remove && status == TRUCE_OK));
    truce_assert(result->upserted == (result->upserted_id.value_type != 0));
    truce_assert(result->modified <= result->matched);
    truce_assert(!result->upserted || options->upsert);
}

truce_status truce_find_and_modify(truce_store *store, const char *collection, const bson_t *filter,
                                   const bson_t *update, const truce_modify_options *options,
                                   bson_t *document, truce_write_result *result,
                                   bson_error_t *error)
{
    RETURN_IF_NULL(document, error);

    static const truce_modify_options defaults;
    truce_write_result done = {0};
    bson_error_t caught = {0};
    truce_status status;

    options = options ? options : &defaults;
    if (result)
        *result = done;
    status = store_check_modify(store, collection, filter, update, options, error);
    if (!status)
        status = truce__view_guard(store, "find and modify in", collection, error);
    if (!status)
        status = store_begin(store, error);
    if (status) {
        bson_init(document);
        return status;
    }
    status = store->ops->find_and_modify(store, collection, filter, update, options, document,
                                         &done, &caught);
    store_check_modified(status, options, document, &done);
    if (result)
        *result = done;
    else
        truce_write_result_release(&done);
    if (status == TRUCE_NOT_FOUND && !caught.message[0])
        return truce__fail(status, error, "no document of %s matches the filter", collection);
    return truce__pass_error(status, &caught, error);
}

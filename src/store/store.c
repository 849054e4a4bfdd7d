/*
 * The public verbs (truce/store.h) over the table of a backend (truce/sys/store.h): opening by URI,
 * reading; indexes and collections; store_write.c has the writing. Every call does three
 * things here, so that no backend does them:
 *
 * 1. arguments are checked: names, numbers, that documents are well-formed BSON within the limits;
 * 2. NULL options and filters become the defaults, so a backend sees neither;
 * 3. what the backend answers is held against its contract by assertions: a cursor exactly on
 *    success, an error text exactly on failure, counts that can be.
 */
#include "store/store.h"

#include <ctype.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/reserved_fields.h"
#include "query/expression/expression.h"
#include "query/incoming.h"
#include "query/index/index_span.h"
#include "store/answer.h"
#include "store/decorators/database.h"
#include "store/decorators/slow.h"
#include "store/hold.h"
#include "store/view.h"

/* ---- indexes and collections ----------------------------------------------------------------- */

/* ---- indexes -------------------------------------------------------------------------------- */

truce_status truce_index_create(truce_store *store, const char *collection, const bson_t *index,
                                bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status = truce__collection_name_check(collection, error);

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
            there = truce__index_is_kept(&indexes, index);
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
    truce_status status = truce__collection_name_check(collection, error);

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
    truce_status status = truce__collection_name_check(collection, error);

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
    truce_status status = truce__collection_name_check(collection, error);

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
    truce_status status = truce__collection_name_check(collection, error);

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
    truce_status status = truce__collection_name_check(collection, error);

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
    truce_status status = truce__collection_name_check(from, error);

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
    truce_status status = truce__collection_name_check(collection, error);

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
    truce_status status = ROOM_CHECK(options, "truce_list_options", error);

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
    truce_status status = store->ops->settle ? store->ops->settle(store, &caught) : TRUCE_OK;

    return truce__pass_error(status, &caught, error);
}

/* ---- checks --------------------------------------------------------------------------------- */

void truce__check_answer(truce_status status, const bson_error_t *error)
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

const bson_t *truce__filter_or_empty(const bson_t *filter)
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
        return truce__refuse(51024, error, "skip is %" PRId64 ", it cannot be negative",
                             options->skip);
    if (options->limit < 0)
        return truce__refuse(51024, error, "limit is %" PRId64 ", it cannot be negative",
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

static truce_status check_find(const char *collection, const bson_t *filter,
                               const truce_find_options *options, bson_error_t *error)
{
    truce_status status = truce__collection_name_check(collection, error);

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

/* ---- open and close ------------------------------------------------------------------------- */

typedef truce_status open_function(const char *path, const truce_store_options *options,
                                   truce_store **store, bson_error_t *error);

#if !TRUCE_MONGODB
static truce_status not_built(const char *path, const truce_store_options *options,
                              truce_store **store, bson_error_t *error)
{
    return truce__fail(TRUCE_INVALID, error,
                       "this truce was built without mongodb:// (-DTRUCE_MONGODB=OFF)");
}
#endif

static const struct backend {
    const char *scheme;
    open_function *open;
} backends[] = {
    {"memory", truce__memory_open},
    {"file", truce__file_open},
#if TRUCE_MONGODB
    {"mongodb", truce__mongo_open},
    {"mongodb+srv", truce__mongo_srv_open},
#else
    {"mongodb", not_built},
    {"mongodb+srv", not_built},
#endif
};

/* Length of the scheme that the URI starts with; 0 for a bare path (also "C:..." and "./a:b"). */
static size_t scheme_length(const char *uri)
{
    size_t length = 0;

    while (isalnum((unsigned char)uri[length]) || (length > 0 && uri[length] == '+'))
        length++;
    return length > 1 && uri[length] == ':' ? length : 0;
}

/* user:password@host, without mongodb://: no sentence is to have it as the path of a file. */
static bool has_password(const char *path)
{
    size_t length = strcspn(path, "/:@");

    return path[length] == ':' && strchr(path + length, '@');
}

static const struct backend *find_backend(const char *scheme, size_t length)
{
    for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++)
        if (strlen(backends[i].scheme) == length && !memcmp(backends[i].scheme, scheme, length))
            return &backends[i];
    return NULL;
}

/* Its URI has the database. */
static bool store_is_server(const truce_store *store)
{
    return !strcmp(store->ops->scheme, "mongodb");
}

/* The store becomes the view of its database. */
static truce_status take_database(truce_store **store, const char *database, bson_error_t *error)
{
    char own[DATABASE_NAME_MAX + 1];
    truce_status status = truce__database_name_check(database, error);

    if (!status)
        status = truce__own_database(*store, own, error);
    if (status) {
        truce_store_close(*store);
        *store = NULL;
        return status;
    }
    *store = truce__database_wrap(*store, own, database);
    return TRUCE_OK;
}

truce_status truce_store_open(const char *uri, const truce_store_options *options,
                              truce_store **store, bson_error_t *error)
{
    RETURN_IF_NULL(store, error);

    static const truce_store_options defaults;
    size_t length = uri ? scheme_length(uri) : 0;
    const struct backend *backend = NULL;
    bson_error_t caught = {0};
    truce_status status;

    *store = NULL;
    if (!uri || !*uri)
        return truce__fail(TRUCE_INVALID, error, "the store's URI is empty");
    status = ROOM_CHECK(options, "truce_store_options", error);
    if (!status)
        status = ROOM_CHECK(options ? options->hooks : NULL, "truce_store_hooks", error);
    if (status)
        return status;
    if (!length && has_password(uri))
        return truce__fail(TRUCE_INVALID, error,
                           "the store's URI has a name and a password, but does not begin with "
                           "mongodb:// (a file of such a name is file:PATH)");
    backend = length ? find_backend(uri, length) : find_backend("file", 4);
    if (!backend)
        return truce__fail(
            TRUCE_INVALID, error,
            "no store of the kind \"%.*s\" (file:PATH, a path, mongodb://, or memory:)",
            length ? (int)length : 4, length ? uri : "file");
    status = backend->open(uri + (length ? length + 1 : 0), options ? options : &defaults, store,
                           &caught);
    truce_assert(!status == (*store != NULL));
    truce_assert(status ||
                 !strncmp((*store)->ops->scheme, backend->scheme, strlen((*store)->ops->scheme)));
    if (!status && options && options->read_only)
        (*store)->capabilities |= TRUCE_IS_READ_ONLY;
    if (!status && options && options->database && !store_is_server(*store))
        status = take_database(store, options->database, &caught);
    if (!status && options)
        (*store)->deadline_ms = options->deadline_ms;
    if (!status && options && options->hooks && options->hooks->slow)
        *store = truce__slow_wrap(*store, options->hooks);
    return truce__pass_error(status, &caught, error);
}

/* ---- ending calls --------------------------------------------------------------------------- */

static void set_interrupted(truce_store *store, bool on)
{
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

/* What works on a view ends with the store. */
truce_status truce__store_interrupted(const truce_store *store, bson_error_t *error)
{
    if (__atomic_load_n(&store->interrupted, __ATOMIC_RELAXED) ||
        (store->above && __atomic_load_n(store->above, __ATOMIC_RELAXED)))
        return truce__refuse(CODE_INTERRUPTED, error, "the call was interrupted");
    return TRUCE_OK;
}

truce_status truce__store_begin(const truce_store *store, bson_error_t *error)
{
    truce__expression_fold_anew();
    return truce__store_interrupted(store, error);
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

/* A cursor that ends before its call does, and holds nobody: all threads would write to the one count of
 * their store. */
static truce_status store_open_cursor(truce_store *store, const char *collection,
                                      const bson_t *filter, const truce_find_options *options,
                                      truce_cursor **cursor, bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status;

    *cursor = NULL;
    options = find_options_or_default(options);
    status = check_find(collection, filter, options, error);
    if (!status)
        status = truce__store_begin(store, error);
    if (status)
        return status;
    status = store->ops->find(store, collection, truce__filter_or_empty(filter), options, cursor,
                              &caught);
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
        truce__store_hold(store, *cursor);
    return status;
}

truce_status truce_cursor_next(truce_cursor *cursor, const bson_t **document, bson_error_t *error)
{
    RETURN_IF_NULL(document, error);

    bson_error_t caught = {0};
    truce_status status;

    *document = NULL;
    if (cursor->store && truce__store_is_closed(cursor->store))
        return truce__fail(TRUCE_INVALID, error, "the store of the cursor was closed");
    status = cursor->ops->next(cursor, document, &caught);
    truce_assert(!status || !*document);
    truce_assert(!*document || (*document)->len >= 5);
    return truce__pass_error(status, &caught, error);
}

void truce_cursor_close(truce_cursor *cursor)
{
    truce_store *store = cursor ? cursor->store : NULL;
    uint32_t place = cursor ? cursor->hold : 0;

    if (!cursor)
        return;
    cursor->ops->close(cursor);
    if (store)
        truce__store_let_go(store, place);
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
        status = truce__fail(TRUCE_NOT_FOUND, error, "no document of %s matches", collection);
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
        status = check_find(collection, filter, &as_find, error);
    if (!status)
        status = truce__store_begin(store, error);
    if (status)
        return status;
    status = store->ops->count(store, collection, truce__filter_or_empty(filter), &chosen, count,
                               &caught);
    truce_assert(*count >= 0);
    return truce__pass_error(status, &caught, error);
}

truce_status truce_distinct(truce_store *store, const char *collection, const char *path,
                            const bson_t *filter, bson_t *values, bson_error_t *error)
{
    RETURN_IF_NULL(values, error);
    RETURN_EMPTY_IF_NULL(path, values, error);

    bson_error_t caught = {0};
    truce_status status = truce__collection_name_check(collection, error);

    if (!status)
        status = truce__check_optional(filter, "filter", error);
    if (!status && !bson_utf8_validate(path, strlen(path), false))
        status = truce__refuse(CODE_BAD_VALUE, error, "the path is not valid UTF-8");
    if (!status)
        status = truce__store_begin(store, error);
    if (status) {
        bson_init(values);
        return status;
    }
    status = store->ops->distinct(store, collection, path, truce__filter_or_empty(filter), values,
                                  &caught);
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
    truce_status status = truce__collection_name_check(collection, error);

    *cursor = NULL;
    options = options ? options : &defaults;
    if (!status)
        status = ROOM_CHECK(options, "truce_aggregate_options", error);
    if (!status)
        status = truce__check_optional(options->hint, "hint", error);
    if (!status)
        status = truce__check_required(pipeline, "pipeline", error);
    if (!status)
        status = truce__store_begin(store, error);
    if (status)
        return status;
    status = truce__view_guard_pipeline(store, pipeline, collection, error);
    if (status)
        return status;
    status = store->ops->aggregate(store, collection, pipeline, options, cursor, &caught);
    truce_assert(!status == (*cursor != NULL));
    if (!status)
        truce__store_hold(store, *cursor);
    return truce__pass_error(status, &caught, error);
}

truce_status truce__store_explain(truce_store *store, const char *collection, const bson_t *filter,
                                  const truce_find_options *options, bool count, bson_t *plan,
                                  bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status;

    status = check_find(collection, filter, options, error);
    if (!status)
        status = truce__store_begin(store, error);
    if (status) {
        bson_init(plan);
        return status;
    }
    status = store->ops->explain(store, collection, truce__filter_or_empty(filter), options, count,
                                 plan, &caught);
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

static void check_looks(const truce_look *looks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        truce_assert(looks[i].found == !bson_empty(&looks[i].document));
}

truce_status truce__store_look(truce_store *store, truce_look *looks, size_t count,
                               bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status = TRUCE_OK;

    if (!(store->capabilities & TRUCE_CAN_SNAPSHOT_READ))
        status = truce__fail(TRUCE_INVALID, error, "a store of the kind \"%s\" has no snapshots",
                             store->ops->scheme);
    for (size_t i = 0; i < count && !status; i++)
        status = truce__collection_name_check(looks[i].collection, error);
    if (!status)
        status = truce__store_begin(store, error);
    if (status) {
        for (size_t i = 0; i < count; i++) {
            bson_init(&looks[i].document);
            looks[i].found = false;
        }
        return status;
    }
    status = store->ops->read_many(store, looks, count, &caught);
    check_looks(looks, count);
    return truce__pass_error(status, &caught, error);
}

/* ---- wake-up -------------------------------------------------------------------------------- */

truce_status truce_wait(truce_store *store, const char *collection, uint64_t *token,
                        uint32_t timeout_ms, bson_error_t *error)
{
    RETURN_IF_NULL(collection, error);
    RETURN_IF_NULL(token, error);

    bson_error_t caught = {0};
    uint64_t before = *token;
    truce_status status = truce__collection_name_check(collection, error);

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
    return store->ops->structure ? store->ops->structure(store) : 0;
}

/* ---- facts ---------------------------------------------------------------------------------- */

truce_status truce__store_facts(truce_store *store, bson_t *facts, bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status = TRUCE_OK;

    bson_init(facts);
    BSON_APPEND_UTF8(facts, "store", store->ops->scheme);
    if (store->ops->facts)
        status = store->ops->facts(store, facts, &caught);
    return truce__pass_error(status, &caught, error);
}

/* ---- counters ------------------------------------------------------------------------------- */

void truce_store_count(truce_store *store, truce_store_counters *counters)
{
    if (!counters)
        return;
    *counters = (truce_store_counters){0};
    if (store->ops->counters)
        store->ops->counters(store, counters);
}

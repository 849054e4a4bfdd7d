/* The base of the decorators (decorator.h). Each verb appears twice: as a function of the backend's
 * table, which writes its arguments into a call, and in `run`, which makes the call of the inner
 * store. */
#include "store/decorators/decorator.h"

#include <string.h>

#include "base/assert.h"
#include "store/snapshot_view.h"
#include "store/store.h"

/* ---- verbs ---------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    bool writes;
} verbs[] = {
    [VERB_FIND] = {"find", false},
    [VERB_NEXT] = {"next", false},
    [VERB_COUNT] = {"count", false},
    [VERB_DISTINCT] = {"distinct", false},
    /* $out and $merge write. */
    [VERB_AGGREGATE] = {"aggregate", true},
    [VERB_EXPLAIN] = {"explain", false},
    [VERB_READ_MANY] = {"read_many", false},
    [VERB_SNAPSHOT] = {"snapshot", false},
    [VERB_BULK] = {"bulk", true},
    [VERB_FIND_AND_MODIFY] = {"find_and_modify", true},
    [VERB_REWRITE] = {"rewrite", true},
    [VERB_INDEX_CREATE] = {"index_create", true},
    [VERB_INDEX_DROP] = {"index_drop", true},
    [VERB_INDEX_MODIFY] = {"index_modify", true},
    [VERB_INDEX_LIST] = {"index_list", false},
    [VERB_COLLECTION_CREATE] = {"collection_create", true},
    [VERB_COLLECTION_DROP] = {"collection_drop", true},
    [VERB_COLLECTION_RENAME] = {"collection_rename", true},
    [VERB_COLLECTION_VALIDATE] = {"collection_validate", true},
    [VERB_COLLECTION_LIST] = {"collection_list", false},
    [VERB_WAIT] = {"wait", false},
    [VERB_COMMAND] = {"command", true},
};

const char *truce__decorated_name(const struct decorated_call *call)
{
    return verbs[call->verb].name;
}

const char *truce__write_name(truce_write_kind kind)
{
    static const char *const names[] = {
        [TRUCE_WRITE_INSERT] = "insert",
        [TRUCE_WRITE_UPDATE] = "update",
        [TRUCE_WRITE_REMOVE] = "remove",
        [TRUCE_WRITE_REQUIRE] = "require",
        [TRUCE_WRITE_REQUIRE_MISSING] = "require_missing",
        [TRUCE_WRITE_REQUIRE_IN_SNAPSHOT] = "require_in_snapshot",
    };

    return names[kind];
}

bool truce__decorated_writes(const struct decorated_call *call)
{
    return verbs[call->verb].writes;
}

/* Passes a call on to the inner store. */
static truce_status decorator_run(truce_store *inner, const struct decorated_call *call,
                                  bson_error_t *error)
{
    switch (call->verb) {
    case VERB_FIND:
        return truce_find(inner, call->collection, call->filter, call->how.find, call->cursor,
                          error);
    case VERB_NEXT:
        return truce_cursor_next(call->at->inner, call->next, error);
    case VERB_COUNT:
        return truce_count(inner, call->collection, call->filter, call->how.count, call->count,
                           error);
    case VERB_DISTINCT:
        return truce_distinct(inner, call->collection, call->text, call->filter, call->answer,
                              error);
    case VERB_AGGREGATE:
        return truce_aggregate(inner, call->collection, call->document, call->how.aggregate,
                               call->cursor, error);
    case VERB_EXPLAIN:
        return truce__store_explain(inner, call->collection, call->filter, call->how.find,
                                    call->flag, call->answer, error);
    case VERB_READ_MANY:
        return truce__store_read_many(inner, call->requests, call->number, error);
    case VERB_SNAPSHOT:
        return truce__store_snapshot(inner, call->how.snapshot, call->view, error);
    case VERB_BULK:
        return truce_bulk(inner, call->writes, call->number, call->how.bulk, call->outcomes, error);
    case VERB_FIND_AND_MODIFY:
        return truce_find_and_modify(inner, call->collection, call->filter, call->document,
                                     call->how.modify, call->answer, call->result, error);
    case VERB_REWRITE:
        return truce__store_rewrite(inner, call->rewrite, error);
    case VERB_INDEX_CREATE:
        return truce_index_create(inner, call->collection, call->document, error);
    case VERB_INDEX_DROP:
        return truce_index_drop(inner, call->collection, call->text, error);
    case VERB_INDEX_MODIFY:
        return truce_index_modify(inner, call->collection, call->text, call->document, error);
    case VERB_INDEX_LIST:
        return truce_index_list(inner, call->collection, call->answer, error);
    case VERB_COLLECTION_CREATE:
        return truce_collection_create(inner, call->collection, error);
    case VERB_COLLECTION_DROP:
        return truce_collection_drop(inner, call->collection, error);
    case VERB_COLLECTION_RENAME:
        return truce_collection_rename(inner, call->collection, call->text, call->flag, error);
    case VERB_COLLECTION_VALIDATE:
        return truce_collection_validate(inner, call->collection, call->document, error);
    case VERB_COLLECTION_LIST:
        return truce_collection_list(inner, call->how.list, call->answer, error);
    case VERB_WAIT:
        return truce_wait(inner, call->collection, call->token, call->timeout_ms, error);
    case VERB_COMMAND:
        return inner->ops->command(inner, call->document, call->flag, call->answer, error);
    }
    return TRUCE_OK;
}

/* ---- cursors -------------------------------------------------------------------------------- */

static truce_status decorator_cursor_next(truce_cursor *base, const bson_t **document,
                                          bson_error_t *error)
{
    struct decorated_cursor *cursor = (struct decorated_cursor *)base;
    const struct decorated_call call = {
        .verb = VERB_NEXT, .collection = cursor->collection, .at = cursor, .next = document};

    return cursor->decorator->kind->call(cursor->decorator, &call, error);
}

static void decorator_cursor_close(truce_cursor *base)
{
    struct decorated_cursor *cursor = (struct decorated_cursor *)base;

    truce_cursor_close(cursor->inner);
    bson_free(cursor->collection);
    bson_free(cursor);
}

static const truce_cursor_ops cursor_ops = {decorator_cursor_next, decorator_cursor_close};

static void wrap_cursor(struct decorator *decorator, const struct decorated_call *call)
{
    struct decorated_cursor *made = bson_malloc0(sizeof *made);

    *made = (struct decorated_cursor){
        .base = {.ops = &cursor_ops},
        .decorator = decorator,
        .inner = *call->cursor,
        .collection = bson_strdup(call->collection),
        .number = __atomic_add_fetch(&decorator->cursors, 1, __ATOMIC_RELAXED),
    };
    *call->cursor = &made->base;
}

truce_status truce__decorated_run(struct decorator *decorator, const struct decorated_call *call,
                                  bson_error_t *error)
{
    truce_status status = decorator_run(decorator->inner, call, error);

    if (!status && call->cursor)
        wrap_cursor(decorator, call);
    if (!status && call->view && decorator->kind->wrap_view)
        *call->view = decorator->kind->wrap_view(decorator, *call->view);
    return status;
}

/* ---- the table ------------------------------------------------------------------------------ */

static struct decorator *decorator_of(truce_store *store)
{
    return (struct decorator *)store;
}

static truce_status decorator_pass(truce_store *store, const struct decorated_call *call,
                                   bson_error_t *error)
{
    return decorator_of(store)->kind->call(decorator_of(store), call, error);
}

#define PASS(...) decorator_pass(store, &(const struct decorated_call){__VA_ARGS__}, error)

static truce_status decorator_find(truce_store *store, const char *collection, const bson_t *filter,
                                   const truce_find_options *options, truce_cursor **cursor,
                                   bson_error_t *error)
{
    return PASS(VERB_FIND, collection, .filter = filter, .how.find = options, .cursor = cursor);
}

static truce_status decorator_count(truce_store *store, const char *collection,
                                    const bson_t *filter, const truce_count_options *options,
                                    int64_t *number, bson_error_t *error)
{
    return PASS(VERB_COUNT, collection, .filter = filter, .how.count = options, .count = number);
}

static truce_status decorator_distinct(truce_store *store, const char *collection, const char *path,
                                       const bson_t *filter, bson_t *values, bson_error_t *error)
{
    return PASS(VERB_DISTINCT, collection, path, .filter = filter, .answer = values);
}

static truce_status decorator_aggregate(truce_store *store, const char *collection,
                                        const bson_t *pipeline,
                                        const truce_aggregate_options *options,
                                        truce_cursor **cursor, bson_error_t *error)
{
    return PASS(VERB_AGGREGATE, collection, .document = pipeline, .how.aggregate = options,
                .cursor = cursor);
}

static truce_status decorator_explain(truce_store *store, const char *collection,
                                      const bson_t *filter, const truce_find_options *options,
                                      bool counts, bson_t *plan, bson_error_t *error)
{
    return PASS(VERB_EXPLAIN, collection, .filter = filter, .how.find = options, .flag = counts,
                .answer = plan);
}

static truce_status decorator_read_many(truce_store *store, truce_read_request *requests,
                                        size_t number, bson_error_t *error)
{
    return PASS(VERB_READ_MANY, .requests = requests, .number = number);
}

static truce_status decorator_snapshot(truce_store *store, const truce_snapshot_options *options,
                                       truce_store **view, bson_error_t *error)
{
    return PASS(VERB_SNAPSHOT, .how.snapshot = options, .view = view);
}

/* Returns the collection of all writes of a bulk, or NULL if there are several collections or no
 * writes. */
static const char *decorator_collection_of(const truce_write *writes, size_t number)
{
    for (size_t i = 1; i < number; i++)
        if (strcmp(writes[i].collection, writes[0].collection) != 0)
            return NULL;
    return number ? writes[0].collection : NULL;
}

static truce_status decorator_bulk(truce_store *store, const truce_write *writes, size_t number,
                                   const truce_bulk_options *options, truce_write_outcome *outcomes,
                                   bson_error_t *error)
{
    return PASS(VERB_BULK, decorator_collection_of(writes, number), .how.bulk = options,
                .writes = writes, .number = number, .outcomes = outcomes);
}

static truce_status decorator_find_and_modify(truce_store *store, const char *collection,
                                              const bson_t *filter, const bson_t *update,
                                              const truce_modify_options *options, bson_t *document,
                                              truce_write_result *result, bson_error_t *error)
{
    return PASS(VERB_FIND_AND_MODIFY, collection, .filter = filter, .document = update,
                .how.modify = options, .answer = document, .result = result);
}

static truce_status decorator_rewrite_documents(truce_store *store, truce_rewrite *rewrite,
                                                bson_error_t *error)
{
    return PASS(VERB_REWRITE, rewrite->collection, .rewrite = rewrite);
}

static truce_status decorator_index_create(truce_store *store, const char *collection,
                                           const bson_t *index, bson_error_t *error)
{
    return PASS(VERB_INDEX_CREATE, collection, .document = index);
}

static truce_status decorator_index_drop(truce_store *store, const char *collection,
                                         const char *name, bson_error_t *error)
{
    return PASS(VERB_INDEX_DROP, collection, name);
}

static truce_status decorator_index_modify(truce_store *store, const char *collection,
                                           const char *name, const bson_t *changes,
                                           bson_error_t *error)
{
    return PASS(VERB_INDEX_MODIFY, collection, name, .document = changes);
}

static truce_status decorator_index_list(truce_store *store, const char *collection,
                                         bson_t *indexes, bson_error_t *error)
{
    return PASS(VERB_INDEX_LIST, collection, .answer = indexes);
}

static truce_status decorator_collection_create(truce_store *store, const char *collection,
                                                bson_error_t *error)
{
    return PASS(VERB_COLLECTION_CREATE, collection);
}

static truce_status decorator_collection_drop(truce_store *store, const char *collection,
                                              bson_error_t *error)
{
    return PASS(VERB_COLLECTION_DROP, collection);
}

static truce_status decorator_collection_rename(truce_store *store, const char *from,
                                                const char *to, bool drop_target,
                                                bson_error_t *error)
{
    return PASS(VERB_COLLECTION_RENAME, from, to, .flag = drop_target);
}

static truce_status decorator_collection_validate(truce_store *store, const char *collection,
                                                  const bson_t *validator, bson_error_t *error)
{
    return PASS(VERB_COLLECTION_VALIDATE, collection, .document = validator);
}

static truce_status decorator_collection_list(truce_store *store, const truce_list_options *options,
                                              bson_t *collections, bson_error_t *error)
{
    return PASS(VERB_COLLECTION_LIST, options->collection, .how.list = options,
                .answer = collections);
}

static truce_status decorator_wait_for_change(truce_store *store, const char *collection,
                                              uint64_t *token, uint32_t timeout_ms,
                                              bson_error_t *error)
{
    return PASS(VERB_WAIT, collection, .token = token, .timeout_ms = timeout_ms);
}

static truce_status decorator_command(truce_store *store, const bson_t *request, bool writes,
                                      bson_t *reply, bson_error_t *error)
{
    return PASS(VERB_COMMAND, NULL, .document = request, .flag = writes, .answer = reply);
}

/* ---- calls that are forwarded directly ------------------------------------------------------- */

static void decorator_close_store(truce_store *store)
{
    struct decorator *decorator = decorator_of(store);

    truce_store_close(decorator->inner);
    if (decorator->kind->release)
        decorator->kind->release(decorator);
    bson_free(decorator);
}

static truce_status decorator_settle(truce_store *store, bson_error_t *error)
{
    return truce_settle(decorator_of(store)->inner, error);
}

static truce_status decorator_facts(truce_store *store, bson_t *facts, bson_error_t *error)
{
    truce_store *inner = decorator_of(store)->inner;

    return inner->ops->facts ? inner->ops->facts(inner, facts, error) : TRUCE_OK;
}

static truce_status decorator_validator(truce_store *store, const char *collection,
                                        bson_t *validator, bson_error_t *error)
{
    truce_store *inner = decorator_of(store)->inner;

    return inner->ops->validator(inner, collection, validator, error);
}

static truce_status decorator_examine(truce_store *store, const char *repair,
                                      void (*report)(const bson_t *finding, void *arg), void *arg,
                                      bson_error_t *error)
{
    truce_store *inner = decorator_of(store)->inner;

    return inner->ops->examine ? inner->ops->examine(inner, repair, report, arg, error) : TRUCE_OK;
}

static truce_status decorator_compact(truce_store *store, const truce_compact_options *options,
                                      truce_compact_report *report, bson_error_t *error)
{
    truce_store *inner = decorator_of(store)->inner;

    return inner->ops->compact(inner, options, report, error);
}

static void decorator_interrupt(truce_store *store, bool on)
{
    truce_store *inner = decorator_of(store)->inner;

    if (on)
        truce_interrupt(inner);
    else
        truce_resume(inner);
}

static void decorator_counters(truce_store *store, truce_store_counters *counters)
{
    truce_store_count(decorator_of(store)->inner, counters);
}

static const char *decorator_database(truce_store *store)
{
    truce_store *inner = decorator_of(store)->inner;

    return inner->ops->database ? inner->ops->database(inner) : NULL;
}

static uint64_t decorator_structure(truce_store *store)
{
    return truce__store_structure(decorator_of(store)->inner);
}

static uint64_t decorator_version(truce_store *store)
{
    return truce__store_version(decorator_of(store)->inner);
}

static void snapshot_state(truce_store *view, truce_snapshot_state *state)
{
    truce_store *inner = decorator_of(view)->inner;

    if (inner->ops->snapshot_state)
        inner->ops->snapshot_state(inner, state);
}

static truce_status decorator_keep_images(truce_store *store, const char *collection, bool on,
                                          bson_error_t *error)
{
    return truce__store_keep_images(decorator_of(store)->inner, collection, on, error);
}

static const truce_store_ops decorator_ops = {
    .close = decorator_close_store,
    .find = decorator_find,
    .count = decorator_count,
    .distinct = decorator_distinct,
    .aggregate = decorator_aggregate,
    .explain = decorator_explain,
    .bulk = decorator_bulk,
    .find_and_modify = decorator_find_and_modify,
    .rewrite = decorator_rewrite_documents,
    .read_many = decorator_read_many,
    .index_create = decorator_index_create,
    .index_drop = decorator_index_drop,
    .index_modify = decorator_index_modify,
    .index_list = decorator_index_list,
    .collection_create = decorator_collection_create,
    .collection_drop = decorator_collection_drop,
    .collection_rename = decorator_collection_rename,
    .collection_validate = decorator_collection_validate,
    .collection_list = decorator_collection_list,
    .wait = decorator_wait_for_change,
    .settle = decorator_settle,
    .facts = decorator_facts,
    .validator = decorator_validator,
    .examine = decorator_examine,
    .compact = decorator_compact,
    .interrupt = decorator_interrupt,
    .counters = decorator_counters,
    .snapshot = decorator_snapshot,
    .structure = decorator_structure,
    .version = decorator_version,
    .snapshot_state = snapshot_state,
    .keep_images = decorator_keep_images,
    .database = decorator_database,
    .command = decorator_command,
};

void truce__decorator_init(struct decorator *decorator, const struct decorator_kind *kind,
                           truce_store *inner)
{
    decorator->kind = kind;
    decorator->inner = inner;
    decorator->ops = decorator_ops;
    decorator->ops.scheme = inner->ops->scheme;
    if (!inner->ops->snapshot)
        decorator->ops.snapshot = NULL;
    if (!inner->ops->validator)
        decorator->ops.validator = NULL;
    if (!inner->ops->compact)
        decorator->ops.compact = NULL;
    decorator->base =
        (truce_store){.ops = &decorator->ops,
                      .capabilities = inner->capabilities & ~(uint32_t)TRUCE_CAN_CHECK,
                      .opened_after = inner->opened_after};
}

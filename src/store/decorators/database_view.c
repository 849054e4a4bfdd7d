/* The functions of a database view (database_view.h): each maps names and calls the same function
 * of the store's table. The wrappers of truce/store.h checked the arguments for the view, so the
 * store's wrappers are not called again. */
#include "store/decorators/database_view.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/field.h"
#include "base/status.h"
#include "bson/array.h"
#include "bson/value.h"
#include "store/reserved_names.h"
#include "store/snapshot_view.h"

struct database {
    /* Must be the first field. */
    truce_store base;
    truce_store_ops ops;
    truce_store *inner;
    /* Whether the view closes the inner store. */
    bool owns;
    /* The name of the store's own database, and the name of this database. */
    char own[DATABASE_NAME_MAX + 1], name[DATABASE_NAME_MAX + 1];
};

static struct database *database_of_store(truce_store *store)
{
    return (struct database *)store;
}

static truce_status map_name(const struct database *database, const char *collection,
                             char stored_name[STORED_NAME_MAX], bson_error_t *error)
{
    return truce__stored_name_of(database->own, database->name, collection, stored_name, error);
}

/* Replaces stored names in an error message by the caller's names: "@shop.students" becomes
 * "students". */
static truce_status database_translate_error(const struct database *database, truce_status status,
                                             bson_error_t *error)
{
    size_t length = strlen(database->name);
    char *at = status && error ? error->message : NULL;

    while (at && (at = strchr(at, '@')) != NULL) {
        if (!strncmp(at + 1, database->name, length) && at[1 + length] == '.')
            memmove(at, at + length + 2, strlen(at + length + 2) + 1);
        else
            at++;
    }
    return status;
}

/* ---- reading -------------------------------------------------------------------------------- */

static truce_status database_find(truce_store *store, const char *collection, const bson_t *filter,
                                  const truce_find_options *options, truce_cursor **cursor,
                                  bson_error_t *error)
{
    const struct database *database = database_of_store(store);
    char stored_name[STORED_NAME_MAX];
    truce_status status = map_name(database, collection, stored_name, error);

    if (!status)
        status = database->inner->ops->find(database->inner, stored_name, filter, options, cursor,
                                            error);
    return database_translate_error(database, status, error);
}

static truce_status database_count(truce_store *store, const char *collection, const bson_t *filter,
                                   const truce_count_options *options, int64_t *count,
                                   bson_error_t *error)
{
    const struct database *database = database_of_store(store);
    char stored_name[STORED_NAME_MAX];
    truce_status status = map_name(database, collection, stored_name, error);

    if (!status)
        status = database->inner->ops->count(database->inner, stored_name, filter, options, count,
                                             error);
    return database_translate_error(database, status, error);
}

static truce_status database_distinct(truce_store *store, const char *collection, const char *path,
                                      const bson_t *filter, bson_t *values, bson_error_t *error)
{
    const struct database *database = database_of_store(store);
    char stored_name[STORED_NAME_MAX];
    truce_status status = map_name(database, collection, stored_name, error);

    if (status)
        bson_init(values);
    else
        status = database->inner->ops->distinct(database->inner, stored_name, path, filter, values,
                                                error);
    return database_translate_error(database, status, error);
}

/* Maps the collection and those that the stages name. No guard restricts them: a program that uses
 * the store may read all of it. */
static truce_status database_aggregate(truce_store *store, const char *collection,
                                       const bson_t *pipeline,
                                       const truce_aggregate_options *options,
                                       truce_cursor **cursor, bson_error_t *error)
{
    const struct database *database = database_of_store(store);
    char stored_name[STORED_NAME_MAX];
    bson_t mapped;
    truce_status status =
        truce__map_pipeline(database->own, database->name, pipeline, NULL, &mapped, error);

    if (!status)
        status = map_name(database, collection, stored_name, error);
    if (!status)
        status = database->inner->ops->aggregate(database->inner, stored_name, &mapped, options,
                                                 cursor, error);
    bson_destroy(&mapped);
    return database_translate_error(database, status, error);
}

static truce_status database_explain(truce_store *store, const char *collection,
                                     const bson_t *filter, const truce_find_options *options,
                                     bool count, bson_t *plan, bson_error_t *error)
{
    const struct database *database = database_of_store(store);
    char stored_name[STORED_NAME_MAX];
    truce_status status = map_name(database, collection, stored_name, error);

    if (status)
        bson_init(plan);
    else
        status = database->inner->ops->explain(database->inner, stored_name, filter, options, count,
                                               plan, error);
    return database_translate_error(database, status, error);
}

/* Reads documents by _id from the stored names of the collections. Initializes each document, even
 * if it fails. */
static truce_status database_read_many(truce_store *store, truce_read_request *requests,
                                       size_t count, bson_error_t *error)
{
    const struct database *database = database_of_store(store);
    truce_read_request *mapped =
        bson_aligned_alloc0(_Alignof(truce_read_request), count * sizeof *mapped);
    char(*stored_names)[STORED_NAME_MAX] = bson_malloc(count * sizeof *stored_names);
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < count && !status; i++) {
        mapped[i] = (truce_read_request){.collection = stored_names[i], .id = requests[i].id};
        status = map_name(database, requests[i].collection, stored_names[i], error);
    }
    if (status)
        for (size_t i = 0; i < count; i++)
            bson_init(&mapped[i].document);
    else
        status = database->inner->ops->read_many(database->inner, mapped, count, error);
    for (size_t i = 0; i < count; i++) {
        bool moved = bson_steal(&requests[i].document, &mapped[i].document);

        truce_assert(moved);
        requests[i].found = mapped[i].found;
    }
    bson_free(stored_names);
    bson_free(mapped);
    return database_translate_error(database, status, error);
}

/* ---- writing -------------------------------------------------------------------------------- */

/* The checks of a bulk, with stored names instead of names. */
struct mapped_checks {
    struct truce_read_checks base;
    truce_read_check *all;
    truce_making *makings;
    char (*stored_names)[STORED_NAME_MAX];
    char absent[STORED_NAME_MAX];
};

/* Builds the checks of a bulk with stored names instead of names. The caller releases `mapped`,
 * even if this fails. */
static truce_status map_checks(const struct database *database,
                               const struct truce_read_checks *checks, struct mapped_checks *mapped,
                               bson_error_t *error)
{
    size_t count = checks->count + checks->makings_count;
    char(*stored_name)[STORED_NAME_MAX] = bson_malloc((count + 1) * sizeof *stored_name);
    truce_status status = TRUCE_OK;

    *mapped = (struct mapped_checks){.base = *checks, .stored_names = stored_name};
    mapped->base.view = checks->view ? truce__database_holder(checks->view) : NULL;
    mapped->all = bson_malloc0((checks->count + 1) * sizeof *mapped->all);
    mapped->makings = bson_malloc0((checks->makings_count + 1) * sizeof *mapped->makings);
    mapped->base.all = mapped->all;
    mapped->base.makings = mapped->makings;
    for (size_t i = 0; i < checks->count && !status; i++, stored_name++) {
        mapped->all[i] = checks->all[i];
        mapped->all[i].collection = *stored_name;
        status = map_name(database, checks->all[i].collection, *stored_name, error);
    }
    for (size_t i = 0; i < checks->makings_count && !status; i++, stored_name++) {
        mapped->makings[i] = checks->makings[i];
        mapped->makings[i].collection = *stored_name;
        status = map_name(database, checks->makings[i].collection, *stored_name, error);
    }
    if (!status && checks->absent) {
        mapped->base.absent = mapped->absent;
        status = map_name(database, checks->absent, mapped->absent, error);
    }
    return status;
}

static void release_checks(struct mapped_checks *mapped)
{
    bson_free(mapped->all);
    bson_free(mapped->makings);
    bson_free(mapped->stored_names);
}

/* The writes of a bulk, with stored names instead of names. Consecutive writes to one collection
 * share its stored name. */
struct mapped_writes {
    truce_write *all;
    char (*stored_names)[STORED_NAME_MAX];
};

/* Builds the writes of a bulk with stored names instead of names. */
static truce_status map_writes(const struct database *database, const truce_write *writes,
                               size_t count, struct mapped_writes *mapped,
                               truce_write_outcome *outcomes, bson_error_t *error)
{
    size_t used = 0;
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < count && !status; i++) {
        mapped->all[i] = writes[i];
        if (!i || strcmp(writes[i].collection, writes[i - 1].collection) != 0) {
            if (used && !(used & (used - 1)))
                mapped->stored_names =
                    bson_realloc(mapped->stored_names, 2 * used * sizeof *mapped->stored_names);
            status = map_name(database, writes[i].collection, mapped->stored_names[used++],
                              &outcomes[i].error);
            outcomes[i].status = status;
        }
        if (status && error)
            *error = outcomes[i].error;
    }
    used = 0;
    for (size_t i = 0; i < count && !status; i++) {
        used += !i || strcmp(writes[i].collection, writes[i - 1].collection) != 0;
        mapped->all[i].collection = mapped->stored_names[used - 1];
    }
    return status;
}

/* Runs a bulk with the stored names of the collections instead of their names. A receipt is part of
 * a struct that its functions know, so it is passed with a changed name instead of copied. */
static truce_status database_bulk(truce_store *store, const truce_write *writes, size_t count,
                                  const truce_bulk_options *options, truce_write_outcome *outcomes,
                                  bson_error_t *error)
{
    const struct database *database = database_of_store(store);
    struct mapped_writes mapped = {bson_malloc(count * sizeof *mapped.all),
                                   bson_malloc(sizeof *mapped.stored_names)};
    struct mapped_checks checks = {0};
    truce_bulk_options how = *options;
    const char *of_receipt = how.receipt ? how.receipt->collection : NULL;
    char stored_name[STORED_NAME_MAX];
    truce_status status = map_writes(database, writes, count, &mapped, outcomes, error);

    if (!status && of_receipt)
        status = map_name(database, of_receipt, stored_name, error);
    if (!status && options->checks) {
        status = map_checks(database, options->checks, &checks, error);
        how.checks = &checks.base;
    }
    for (size_t i = 0; i < count && status; i++)
        if (!outcomes[i].status)
            outcomes[i].status = how.atomic ? TRUCE_CONFLICT : TRUCE_NOT_FOUND;
    if (!status) {
        if (of_receipt)
            how.receipt->collection = stored_name;
        status =
            database->inner->ops->bulk(database->inner, mapped.all, count, &how, outcomes, error);
        if (of_receipt)
            how.receipt->collection = of_receipt;
    }
    for (size_t i = 0; i < count; i++)
        (void)database_translate_error(database, outcomes[i].status, &outcomes[i].error);
    release_checks(&checks);
    bson_free(mapped.stored_names);
    bson_free(mapped.all);
    return database_translate_error(database, status, error);
}

/* Runs a find-and-modify with the stored name. The receipt is passed with a changed name, as in a
 * bulk. */
static truce_status database_modify(truce_store *store, const char *collection,
                                    const bson_t *filter, const bson_t *update,
                                    const truce_modify_options *options, bson_t *document,
                                    truce_write_result *result, bson_error_t *error)
{
    const struct database *database = database_of_store(store);
    truce_receipt *receipt = options->receipt;
    const char *name = receipt ? receipt->collection : NULL;
    char stored_name[STORED_NAME_MAX], of_receipt[STORED_NAME_MAX];
    truce_status status = map_name(database, collection, stored_name, error);

    if (!status && receipt)
        status = map_name(database, name, of_receipt, error);
    if (status) {
        bson_init(document);
        return status;
    }
    if (receipt)
        receipt->collection = of_receipt;
    status = database->inner->ops->find_and_modify(database->inner, stored_name, filter, update,
                                                   options, document, result, error);
    if (receipt)
        receipt->collection = name;
    return database_translate_error(database, status, error);
}

static truce_status database_rewrite(truce_store *store, truce_rewrite *rewrite,
                                     bson_error_t *error)
{
    const struct database *database = database_of_store(store);
    const char *name = rewrite->collection;
    char stored_name[STORED_NAME_MAX];
    truce_status status = map_name(database, name, stored_name, error);

    if (status)
        return status;
    rewrite->collection = stored_name;
    status = database->inner->ops->rewrite(database->inner, rewrite, error);
    rewrite->collection = name;
    return database_translate_error(database, status, error);
}

/* ---- collections and indexes ----------------------------------------------------------------- */

static truce_status database_index_create(truce_store *store, const char *collection,
                                          const bson_t *index, bson_error_t *error)
{
    const struct database *database = database_of_store(store);
    char stored_name[STORED_NAME_MAX];
    truce_status status = map_name(database, collection, stored_name, error);

    if (!status)
        status = database->inner->ops->index_create(database->inner, stored_name, index, error);
    return database_translate_error(database, status, error);
}

static truce_status database_index_drop(truce_store *store, const char *collection,
                                        const char *name, bson_error_t *error)
{
    const struct database *database = database_of_store(store);
    char stored_name[STORED_NAME_MAX];
    truce_status status = map_name(database, collection, stored_name, error);

    if (!status)
        status = database->inner->ops->index_drop(database->inner, stored_name, name, error);
    return database_translate_error(database, status, error);
}

static truce_status database_index_modify(truce_store *store, const char *collection,
                                          const char *name, const bson_t *changes,
                                          bson_error_t *error)
{
    const struct database *database = database_of_store(store);
    char stored_name[STORED_NAME_MAX];
    truce_status status = map_name(database, collection, stored_name, error);

    if (!status)
        status =
            database->inner->ops->index_modify(database->inner, stored_name, name, changes, error);
    return database_translate_error(database, status, error);
}

static truce_status database_index_list(truce_store *store, const char *collection, bson_t *indexes,
                                        bson_error_t *error)
{
    const struct database *database = database_of_store(store);
    char stored_name[STORED_NAME_MAX];
    truce_status status = map_name(database, collection, stored_name, error);

    if (status)
        bson_init(indexes);
    else
        status = database->inner->ops->index_list(database->inner, stored_name, indexes, error);
    return database_translate_error(database, status, error);
}

static truce_status database_create(truce_store *store, const char *collection, bson_error_t *error)
{
    const struct database *database = database_of_store(store);
    char stored_name[STORED_NAME_MAX];
    truce_status status = map_name(database, collection, stored_name, error);

    if (!status)
        status = database->inner->ops->collection_create(database->inner, stored_name, error);
    return database_translate_error(database, status, error);
}

static truce_status database_drop(truce_store *store, const char *collection, bson_error_t *error)
{
    const struct database *database = database_of_store(store);
    char stored_name[STORED_NAME_MAX];
    truce_status status = map_name(database, collection, stored_name, error);

    if (!status)
        status = database->inner->ops->collection_drop(database->inner, stored_name, error);
    return database_translate_error(database, status, error);
}

static truce_status database_rename(truce_store *store, const char *from, const char *to,
                                    bool drop_target, bson_error_t *error)
{
    const struct database *database = database_of_store(store);
    char stored_name[STORED_NAME_MAX], target[STORED_NAME_MAX];
    truce_status status = map_name(database, from, stored_name, error);

    if (!status)
        status = map_name(database, to, target, error);
    if (!status)
        status = database->inner->ops->collection_rename(database->inner, stored_name, target,
                                                         drop_target, error);
    return database_translate_error(database, status, error);
}

static truce_status database_validate(truce_store *store, const char *collection,
                                      const bson_t *validator, bson_error_t *error)
{
    const struct database *database = database_of_store(store);
    char stored_name[STORED_NAME_MAX];
    truce_status status = map_name(database, collection, stored_name, error);

    if (!status)
        status = database->inner->ops->collection_validate(database->inner, stored_name, validator,
                                                           error);
    return database_translate_error(database, status, error);
}

static truce_status database_keep_images(truce_store *store, const char *collection, bool on,
                                         bson_error_t *error)
{
    const struct database *database = database_of_store(store);
    char stored_name[STORED_NAME_MAX];
    truce_status status = map_name(database, collection, stored_name, error);

    if (!status)
        status = database->inner->ops->keep_images(database->inner, stored_name, on, error);
    return database_translate_error(database, status, error);
}

static truce_status database_validator(truce_store *store, const char *collection,
                                       bson_t *validator, bson_error_t *error)
{
    const struct database *database = database_of_store(store);
    char stored_name[STORED_NAME_MAX];
    truce_status status = map_name(database, collection, stored_name, error);

    if (status)
        bson_init(validator);
    else
        status = database->inner->ops->validator(database->inner, stored_name, validator, error);
    return database_translate_error(database, status, error);
}

/* Appends the facts about a collection, with its name in the database first. */
static void append_facts(const bson_t *facts, const char *name, struct array *collections)
{
    bson_t named = BSON_INITIALIZER;

    BSON_APPEND_UTF8(&named, "name", name);
    bson_copy_to_excluding_noinit(facts, &named, "name", NULL);
    truce__array_add_document(collections, &named);
    bson_destroy(&named);
}

/* Lists the collections of the database, under their names in it. */
static truce_status database_list(truce_store *store, const truce_list_options *options,
                                  bson_t *collections, bson_error_t *error)
{
    const struct database *database = database_of_store(store);
    truce_list_options how = *options;
    char stored_name[STORED_NAME_MAX];
    bson_t all, facts;
    struct fields fields;
    struct array list = {.to = collections};
    truce_status status =
        how.collection ? map_name(database, how.collection, stored_name, error) : TRUCE_OK;

    bson_init(collections);
    if (status)
        return status;
    how.collection = how.collection ? stored_name : NULL;
    status = database->inner->ops->collection_list(database->inner, &how, &all, error);
    for (fields = truce__fields(truce__value_document(&all));
         !status && truce__fields_next(&fields);) {
        const char *name;

        truce__value_bson(fields.value, &facts);
        name = truce__stored_name_plain(database->own, database->name,
                                        truce__field_text(&facts, "name"));
        if (name && !truce__name_is_system(name))
            append_facts(&facts, name, &list);
    }
    bson_destroy(&all);
    return database_translate_error(database, status, error);
}

/* ---- other operations ------------------------------------------------------------------------ */

static truce_status database_wait(truce_store *store, const char *collection, uint64_t *token,
                                  uint32_t timeout_ms, bson_error_t *error)
{
    const struct database *database = database_of_store(store);
    char stored_name[STORED_NAME_MAX];
    truce_status status = map_name(database, collection, stored_name, error);

    if (!status)
        status = database->inner->ops->wait(database->inner, stored_name, token, timeout_ms, error);
    return database_translate_error(database, status, error);
}

static truce_status database_settle(truce_store *store, bson_error_t *error)
{
    return truce_settle(database_of_store(store)->inner, error);
}

static truce_status database_facts(truce_store *store, bson_t *facts, bson_error_t *error)
{
    truce_store *inner = database_of_store(store)->inner;

    return inner->ops->facts(inner, facts, error);
}

static truce_status database_examine(truce_store *store, const char *repair,
                                     void (*report)(const bson_t *finding, void *arg), void *arg,
                                     bson_error_t *error)
{
    truce_store *inner = database_of_store(store)->inner;

    return inner->ops->examine(inner, repair, report, arg, error);
}

static truce_status database_compact(truce_store *store, const truce_compact_options *options,
                                     truce_compact_report *report, bson_error_t *error)
{
    truce_store *inner = database_of_store(store)->inner;

    return inner->ops->compact(inner, options, report, error);
}

/* Interrupts calls on the view. If the view owns the store, interrupts the store, whose backend
 * checks for that. A borrowed store is not interrupted. */
static void database_interrupt(truce_store *store, bool on)
{
    struct database *database = database_of_store(store);

    if (!database->owns)
        return;
    if (on)
        truce_interrupt(database->inner);
    else
        truce_resume(database->inner);
}

static uint64_t database_structure(truce_store *store)
{
    truce_store *inner = database_of_store(store)->inner;

    return inner->ops->structure(inner);
}

static uint64_t database_version(truce_store *store)
{
    truce_store *inner = database_of_store(store)->inner;

    return inner->ops->version(inner);
}

static void database_counters(truce_store *store, truce_store_counters *counters)
{
    truce_store_count(database_of_store(store)->inner, counters);
}

static truce_status database_snapshot(truce_store *store, const truce_snapshot_options *options,
                                      truce_store **view, bson_error_t *error)
{
    const struct database *database = database_of_store(store);
    truce_store *inner = NULL;
    truce_status status = truce__store_snapshot(database->inner, options, &inner, error);

    if (status)
        return database_translate_error(database, status, error);
    *view = truce__database_wrap(inner, database->own, database->name);
    return TRUCE_OK;
}

static void database_snapshot_state(truce_store *view, truce_snapshot_state *state)
{
    truce_store *inner = database_of_store(view)->inner;

    inner->ops->snapshot_state(inner, state);
}

static void database_close(truce_store *store)
{
    struct database *database = database_of_store(store);

    if (database->owns)
        truce_store_close(database->inner);
    bson_free(database);
}

#define WHERE_GIVEN(name, function) .name = inner->ops->name ? function : NULL

/* Creates the store of one database. It has the functions that the inner store has. */
static truce_store *database_make_view(truce_store *inner, const char *own, const char *name,
                                       bool owns)
{
    struct database *made = bson_malloc0(sizeof *made);

    made->inner = inner;
    made->owns = owns;
    snprintf(made->own, sizeof made->own, "%s", own);
    snprintf(made->name, sizeof made->name, "%s", name);
    made->ops = (truce_store_ops){
        .scheme = inner->ops->scheme,
        .close = database_close,
        .find = database_find,
        .count = database_count,
        .distinct = database_distinct,
        .aggregate = database_aggregate,
        .bulk = database_bulk,
        .find_and_modify = database_modify,
        .index_list = database_index_list,
        .collection_list = database_list,
        .interrupt = database_interrupt,
        WHERE_GIVEN(explain, database_explain),
        WHERE_GIVEN(rewrite, database_rewrite),
        WHERE_GIVEN(read_many, database_read_many),
        WHERE_GIVEN(index_create, database_index_create),
        WHERE_GIVEN(index_drop, database_index_drop),
        WHERE_GIVEN(index_modify, database_index_modify),
        WHERE_GIVEN(collection_create, database_create),
        WHERE_GIVEN(collection_drop, database_drop),
        WHERE_GIVEN(collection_rename, database_rename),
        WHERE_GIVEN(collection_validate, database_validate),
        WHERE_GIVEN(wait, database_wait),
        WHERE_GIVEN(settle, database_settle),
        WHERE_GIVEN(facts, database_facts),
        WHERE_GIVEN(validator, database_validator),
        WHERE_GIVEN(examine, database_examine),
        WHERE_GIVEN(compact, database_compact),
        WHERE_GIVEN(structure, database_structure),
        WHERE_GIVEN(version, database_version),
        WHERE_GIVEN(counters, database_counters),
        WHERE_GIVEN(snapshot, database_snapshot),
        WHERE_GIVEN(snapshot_state, database_snapshot_state),
        WHERE_GIVEN(keep_images, database_keep_images),
    };
    made->base = (truce_store){.ops = &made->ops,
                               .capabilities = inner->capabilities,
                               .above = inner->above ? inner->above : &inner->interrupted,
                               .opened_after = inner->opened_after};
    return &made->base;
}

truce_store *truce__database_open(truce_store *store, const char *own, const char *database)
{
    return database_make_view(store, own, database, false);
}

truce_store *truce__database_wrap(truce_store *store, const char *own, const char *database)
{
    return database_make_view(store, own, database, true);
}

truce_store *truce__database_holder(truce_store *store)
{
    return store->ops->close == database_close ? database_of_store(store)->inner : store;
}

const char *truce__database_name(const truce_store *store)
{
    return store->ops->close == database_close ? ((const struct database *)store)->name : NULL;
}

/* ---- the own database ------------------------------------------------------------------------ */

truce_status truce__own_database(truce_store *store, char name[DATABASE_NAME_MAX + 1],
                                 bson_error_t *error)
{
    const char *of_server = store->ops->database ? store->ops->database(store) : NULL;
    bson_t *filter, record;
    truce_status status;

    if (of_server) {
        snprintf(name, DATABASE_NAME_MAX + 1, "%s", of_server);
        return TRUCE_OK;
    }
    filter = BCON_NEW("_id", BCON_UTF8("own"));
    status = truce_find_one(store, OWN_RECORDS, filter, NULL, &record, error);
    snprintf(name, DATABASE_NAME_MAX + 1, "%s",
             status ? OWN_DATABASE : truce__field_text(&record, "database"));
    bson_destroy(&record);
    bson_destroy(filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

truce_status truce__own_database_keep(truce_store *store, const char *name, bson_error_t *error)
{
    const truce_write_options options = {.upsert = true};
    char kept[DATABASE_NAME_MAX + 1];
    bson_t *filter, *update;
    truce_status status = truce__own_database(store, kept, error);

    if (status || !strcmp(kept, name))
        return status;
    filter = BCON_NEW("_id", BCON_UTF8("own"));
    update = BCON_NEW("$set", "{", "database", BCON_UTF8(name), "}");
    status = truce_update(store, OWN_RECORDS, filter, update, &options, NULL, error);
    bson_destroy(update);
    bson_destroy(filter);
    return status;
}

/* ---- all databases --------------------------------------------------------------------------- */

/* Builds {name: true} of the databases of all stored names, without the own database. */
static truce_status other_databases(truce_store *store, bson_t *names, bson_error_t *error)
{
    bson_t collections, facts;
    struct fields fields;
    char name[DATABASE_NAME_MAX + 1];
    truce_status status = truce_collection_list(store, &(truce_list_options){.unmeasured = true},
                                                &collections, error);

    for (fields = truce__fields(truce__value_document(&collections));
         !status && truce__fields_next(&fields);) {
        truce__value_bson(fields.value, &facts);
        truce__stored_name_database("", truce__field_text(&facts, "name"), name);
        if (name[0] && !bson_has_field(names, name))
            BSON_APPEND_BOOL(names, name, true);
    }
    bson_destroy(&collections);
    return status;
}

truce_status truce__each_database(truce_store *store, database_function *function, void *arg,
                                  bson_error_t *error)
{
    bson_t names = BSON_INITIALIZER;
    bson_iter_t at;
    truce_status listed = other_databases(store, &names, error);
    bool single = !listed && bson_empty(&names);
    truce_store *view = single ? store : truce__database_open(store, "", "");
    truce_status status = function(arg, view, "", listed ? NULL : error);

    (void)bson_iter_init(&at, &names);
    while (!status && !listed && bson_iter_next(&at)) {
        truce_store *other = truce__database_open(store, "", bson_iter_key(&at));

        status = function(arg, other, bson_iter_key(&at), error);
        truce_store_close(other);
    }
    if (!single)
        truce_store_close(view);
    bson_destroy(&names);
    return listed ? listed : status;
}

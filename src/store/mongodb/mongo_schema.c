/*
 * Indexes and collections. Definitions of indexes are checked here, by the rules of every store, and
 * sent as those rules say them; so one definition means the same everywhere, and is refused alike.
 * Indexes that somebody made with what truce does not know (text, hashed, a collation) are listed as
 * the server tells them.
 */
#include "store/mongodb/mongo.h"

#include <stdlib.h>
#include <string.h>

#include "base/field.h"
#include "bson/value.h"
#include "query/index/index_set.h"

static struct mongo_store *schema_of(truce_store *base)
{
    return (struct mongo_store *)base;
}

/* A command that changes the schema and answers nothing of interest; `reply` may be NULL. */
static truce_status schema_change(truce_store *base, const char *verb, const char *collection,
                                  const char *database, const bson_t *body, bson_t *reply,
                                  bson_error_t *error)
{
    struct mongo_store *store = schema_of(base);
    char text[200];
    struct mongo_command command = {
        .what = truce__mongo_what(text, sizeof text, verb, collection),
        .body = body,
        .database = database,
        .kind = MONGO_WRITE,
        .write_concern = true,
        .relaxed = store->relaxed,
    };
    truce_status status = truce__mongo_writable(store, error);
    bson_t answer;

    if (status) {
        if (reply)
            bson_init(reply);
        return status;
    }
    status = truce__mongo_run_alone(store, &command, &answer, error);
    if (reply)
        bson_copy_to(&answer, reply);
    bson_destroy(&answer);
    return status;
}

/* ---- indexes -------------------------------------------------------------------------------- */

truce_status truce__mongo_index_create(truce_store *base, const char *collection,
                                       const bson_t *index, bson_error_t *error)
{
    struct index_spec spec = {0};
    bson_t body = BSON_INITIALIZER, list, definition;
    truce_status status = truce__index_spec_parse(index, &spec, error);

    if (status) {
        bson_destroy(&body);
        return status;
    }
    truce__index_describe(&spec, &definition);
    BSON_APPEND_UTF8(&body, "createIndexes", collection);
    BSON_APPEND_ARRAY_BEGIN(&body, "indexes", &list);
    BSON_APPEND_DOCUMENT(&list, "0", &definition);
    bson_append_array_end(&body, &list);
    status = schema_change(base, "create an index of", collection, NULL, &body, NULL, error);
    bson_destroy(&definition);
    bson_destroy(&body);
    truce__index_spec_release(&spec);
    return status;
}

truce_status truce__mongo_index_drop(truce_store *base, const char *collection, const char *name,
                                     bson_error_t *error)
{
    bson_t body = BSON_INITIALIZER;
    truce_status status;

    BSON_APPEND_UTF8(&body, "dropIndexes", collection);
    BSON_APPEND_UTF8(&body, "index", name);
    status = schema_change(base, "drop an index of", collection, NULL, &body, NULL, error);
    bson_destroy(&body);
    return status;
}

truce_status truce__mongo_index_modify(truce_store *base, const char *collection, const char *name,
                                       const bson_t *changes, bson_error_t *error)
{
    bson_t body = BSON_INITIALIZER, index;
    truce_status status;

    BSON_APPEND_UTF8(&body, "collMod", collection);
    BSON_APPEND_DOCUMENT_BEGIN(&body, "index", &index);
    BSON_APPEND_UTF8(&index, "name", name);
    bson_concat(&index, changes);
    bson_append_document_end(&body, &index);
    status = schema_change(base, "change an index of", collection, NULL, &body, NULL, error);
    bson_destroy(&body);
    return status;
}

/* The server's definition as every store tells it, if it can be. */
static void schema_append_definition(bson_t *indexes, uint32_t number, const bson_t *told)
{
    struct index_spec spec = {0};
    bson_t known, definition;
    char buffer[16];
    const char *key;

    bson_uint32_to_string(number, &key, buffer, sizeof buffer);
    bson_init(&known);
    bson_copy_to_excluding_noinit(told, &known, "ns", "background", NULL);
    if (!truce__index_spec_parse(&known, &spec, NULL)) {
        truce__index_describe(&spec, &definition);
        BSON_APPEND_DOCUMENT(indexes, key, &definition);
        bson_destroy(&definition);
        truce__index_spec_release(&spec);
    } else {
        BSON_APPEND_DOCUMENT(indexes, key, &known);
    }
    bson_destroy(&known);
}

truce_status truce__mongo_index_list(truce_store *base, const char *collection, bson_t *indexes,
                                     bson_error_t *error)
{
    bson_t body = BSON_INITIALIZER;
    char text[200];
    struct mongo_command command = {
        .what = truce__mongo_what(text, sizeof text, "list the indexes of", collection),
        .body = &body,
    };
    truce_cursor *cursor = NULL;
    const bson_t *told = NULL;
    uint32_t count = 0;
    truce_status status;

    bson_init(indexes);
    BSON_APPEND_UTF8(&body, "listIndexes", collection);
    status = truce__mongo_cursor(schema_of(base), &command, &cursor, error);
    while (!status) {
        told = NULL;
        status = cursor->ops->next(cursor, &told, error);
        if (status || !told)
            break;
        if (*truce__field_text(told, "name"))
            schema_append_definition(indexes, count++, told);
        else
            status =
                truce__fail(TRUCE_IO, error, "%s: the server's answer has an index without a name",
                            command.what);
    }
    truce_cursor_close(cursor);
    bson_destroy(&body);
    if (!status && !count)
        status =
            truce__refuse(CODE_NAMESPACE_NOT_FOUND, error, "there is no collection %s", collection);
    if (status)
        bson_reinit(indexes);
    return status;
}

/* ---- collections ---------------------------------------------------------------------------- */

struct name {
    char *text;
    bson_t *validator; /* NULL: none, or nobody asked */
    bool refuses;
};

struct names {
    struct name *items;
    size_t count;
};

static void free_names(struct names *names)
{
    for (size_t i = 0; i < names->count; i++) {
        bson_free(names->items[i].text);
        bson_destroy(names->items[i].validator);
    }
    bson_free(names->items);
}

/* A collection of the user's: no view, none of the server's own. */
static const char *schema_name_of(const bson_t *told)
{
    bson_iter_t iter;
    const char *name;

    if (bson_iter_init_find(&iter, told, "type") && BSON_ITER_HOLDS_UTF8(&iter) &&
        strcmp(bson_iter_utf8(&iter, NULL), "collection") != 0)
        return NULL;
    if (!bson_iter_init_find(&iter, told, "name") || !BSON_ITER_HOLDS_UTF8(&iter))
        return NULL;
    name = bson_iter_utf8(&iter, NULL);
    return strncmp(name, "system.", 7) && strcmp(name, PROBE) ? name : NULL;
}

static bool schema_is_option(const bson_t *told, const char *path, const char *value)
{
    bson_iter_t iter, option;

    return bson_iter_init(&iter, told) && bson_iter_find_descendant(&iter, path, &option) &&
           BSON_ITER_HOLDS_UTF8(&option) && !strcmp(bson_iter_utf8(&option, NULL), value);
}

static bson_t *schema_validator_of(const bson_t *told)
{
    bson_iter_t iter, options;
    bson_t view;

    if (!bson_iter_init(&iter, told) ||
        !bson_iter_find_descendant(&iter, "options.validator", &options) ||
        !BSON_ITER_HOLDS_DOCUMENT(&options))
        return NULL;
    truce__value_bson(truce__value_of_iter(&options), &view);
    return bson_empty(&view) ? NULL : bson_copy(&view);
}

/* A validator may be there to warn. */
static bool refuses(const bson_t *told)
{
    return !schema_is_option(told, "options.validationAction", "warn") &&
           !schema_is_option(told, "options.validationLevel", "off");
}

/* All collections, or the one that is asked for, and with their validators unless by name only. */
static truce_status schema_read_names(struct mongo_store *store, const char *only, bool name_only,
                                      struct names *names, bson_error_t *error)
{
    bson_t body = BSON_INITIALIZER, filter;
    struct mongo_command command = {.what = "list the collections", .body = &body};
    truce_cursor *cursor = NULL;
    const bson_t *told = NULL;
    truce_status status;

    BSON_APPEND_INT32(&body, "listCollections", 1);
    if (only) {
        BSON_APPEND_DOCUMENT_BEGIN(&body, "filter", &filter);
        BSON_APPEND_UTF8(&filter, "name", only);
        bson_append_document_end(&body, &filter);
    }
    BSON_APPEND_BOOL(&body, "nameOnly", name_only);
    status = truce__mongo_cursor(store, &command, &cursor, error);
    while (!status) {
        const char *name;

        told = NULL;
        status = cursor->ops->next(cursor, &told, error);
        if (status || !told)
            break;
        name = schema_name_of(told);
        if (!name || (only && strcmp(name, only) != 0))
            continue;
        names->items = bson_realloc(names->items, (names->count + 1) * sizeof *names->items);
        names->items[names->count++] =
            (struct name){bson_strdup(name), schema_validator_of(told), refuses(told)};
    }
    truce_cursor_close(cursor);
    bson_destroy(&body);
    return status;
}

truce_status truce__mongo_collection_exists(struct mongo_store *store, const char *collection,
                                            bson_error_t *error)
{
    struct names names = {0};
    truce_status status = schema_read_names(store, collection, true, &names, error);

    if (!status && !names.count)
        status = truce__refuse(CODE_NAMESPACE_NOT_FOUND, error, "there is no collection %s",
                               collection ? collection : "at all");
    free_names(&names);
    return status;
}

truce_status truce__mongo_collection_create(truce_store *base, const char *collection,
                                            bson_error_t *error)
{
    bson_t body = BSON_INITIALIZER;
    bson_error_t ignored;
    /* MongoDB 7 says yes to what is there already */
    truce_status status = truce__mongo_collection_exists(schema_of(base), collection, &ignored);

    if (!status)
        status =
            truce__refuse(CODE_NAMESPACE_EXISTS, error, "the collection %s exists", collection);
    else if (status == TRUCE_NOT_FOUND)
        status = TRUCE_OK;
    else if (error)
        *error = ignored;
    BSON_APPEND_UTF8(&body, "create", collection);
    if (!status)
        status = schema_change(base, "create the collection", collection, NULL, &body, NULL, error);
    bson_destroy(&body);
    return status;
}

truce_status truce__mongo_collection_drop(truce_store *base, const char *collection,
                                          bson_error_t *error)
{
    bson_t body = BSON_INITIALIZER, reply;
    truce_status status;

    BSON_APPEND_UTF8(&body, "drop", collection);
    status = schema_change(base, "drop the collection", collection, NULL, &body, &reply, error);
    /* MongoDB 7 says yes to what is not there, but does not name it */
    if (!status && schema_of(base)->server.wire >= 21 && !bson_has_field(&reply, "ns") &&
        !bson_has_field(&reply, "nIndexesWas"))
        status =
            truce__refuse(CODE_NAMESPACE_NOT_FOUND, error, "there is no collection %s", collection);
    bson_destroy(&reply);
    bson_destroy(&body);
    return status;
}

static void append_namespace(bson_t *body, const char *key, const char *database,
                             const char *collection)
{
    char *text = bson_strdup_printf("%s.%s", database, collection);

    BSON_APPEND_UTF8(body, key, text);
    bson_free(text);
}

truce_status truce__mongo_collection_rename(truce_store *base, const char *from, const char *to,
                                            bool drop_target, bson_error_t *error)
{
    bson_t body = BSON_INITIALIZER;
    truce_status status;

    append_namespace(&body, "renameCollection", schema_of(base)->database, from);
    append_namespace(&body, "to", schema_of(base)->database, to);
    BSON_APPEND_BOOL(&body, "dropTarget", drop_target);
    status = schema_change(base, "rename the collection", from, "admin", &body, NULL, error);
    bson_destroy(&body);
    return status;
}

truce_status truce__mongo_collection_validate(truce_store *base, const char *collection,
                                              const bson_t *validator, bson_error_t *error)
{
    bson_t body = BSON_INITIALIZER;
    truce_status status;

    BSON_APPEND_UTF8(&body, "collMod", collection);
    BSON_APPEND_DOCUMENT(&body, "validator", validator);
    BSON_APPEND_UTF8(&body, "validationLevel", "strict");
    BSON_APPEND_UTF8(&body, "validationAction", "error");
    status = schema_change(base, "set the validator of", collection, NULL, &body, NULL, error);
    bson_destroy(&body);
    return status;
}

truce_status truce__mongo_validator(truce_store *base, const char *collection, bson_t *validator,
                                    bson_error_t *error)
{
    struct names names = {0};
    truce_status status = schema_read_names(schema_of(base), collection, false, &names, error);

    bson_init(validator);
    if (!status && names.count && names.items[0].validator && names.items[0].refuses)
        bson_concat(validator, names.items[0].validator);
    free_names(&names);
    return status;
}

static int schema_compare_names(const void *a, const void *b)
{
    return strcmp(((const struct name *)a)->text, ((const struct name *)b)->text);
}

static truce_status schema_describe(struct mongo_store *store, const char *name,
                                    bson_t *description, bson_error_t *error)
{
    static const bson_t everything = BSON_INITIALIZER;
    static const truce_count_options all = {0};
    bson_t body = BSON_INITIALIZER, reply;
    char text[200];
    struct mongo_command command = {
        .what = truce__mongo_what(text, sizeof text, "measure the collection", name),
        .body = &body,
    };
    int64_t documents;
    truce_status status;

    BSON_APPEND_UTF8(&body, "collStats", name);
    status = truce__mongo_run_alone(store, &command, &reply, error);
    documents = truce__mongo_number(&reply, "count", 0);
    if (!status && store->shards) /* the number counts what is on its way between shards twice */
        status =
            truce__mongo_count((truce_store *)store, name, &everything, &all, &documents, error);
    if (!status) {
        BSON_APPEND_UTF8(description, "name", name);
        BSON_APPEND_INT64(description, "documents", documents);
        BSON_APPEND_INT64(description, "bytes", truce__mongo_number(&reply, "size", 0));
        BSON_APPEND_INT32(description, "indexes",
                          (int32_t)truce__mongo_number(&reply, "nindexes", 0));
    }
    bson_destroy(&reply);
    bson_destroy(&body);
    return status;
}

truce_status truce__mongo_collection_list(truce_store *base, const truce_list_options *options,
                                          bson_t *collections, bson_error_t *error)
{
    struct names names = {0};
    uint32_t count = 0;
    truce_status status;

    bson_init(collections);
    status = schema_read_names(schema_of(base), options->collection, false, &names, error);
    if (names.count)
        qsort(names.items, names.count, sizeof *names.items, schema_compare_names);
    for (size_t i = 0; i < names.count && !status; i++) {
        bson_t description = BSON_INITIALIZER;
        char buffer[16];
        const char *key;

        if (options->unmeasured)
            BSON_APPEND_UTF8(&description, "name", names.items[i].text);
        else
            status = schema_describe(schema_of(base), names.items[i].text, &description, error);
        if (names.items[i].validator)
            BSON_APPEND_DOCUMENT(&description, "validator", names.items[i].validator);
        if (!status) {
            bson_uint32_to_string(count++, &key, buffer, sizeof buffer);
            BSON_APPEND_DOCUMENT(collections, key, &description);
        }
        if (status == TRUCE_NOT_FOUND) /* dropped meanwhile */
            status = TRUCE_OK;
        bson_destroy(&description);
    }
    free_names(&names);
    if (status)
        bson_reinit(collections);
    return status;
}

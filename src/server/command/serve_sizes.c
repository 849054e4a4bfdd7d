/* collStats and dbStats (collection_sizes.h). */
#include "server/command/collection_sizes.h"

#include <stdio.h>
#include <string.h>

#include "base/field.h"
#include "bson/value.h"
#include "server/command/handlers.h"

/* ---- adding up ------------------------------------------------------------------------------- */

/* Adds the sizes of a collection. `facts` describes a collection in the form of
 * truce_collection_list. */
static void sizes_add(struct sizes *sizes, const bson_t *facts)
{
    int64_t bytes = truce__field_number(facts, "bytes");
    bson_iter_t at, index;

    sizes->documents += truce__field_number(facts, "documents");
    sizes->bytes += bytes;
    sizes->collections++;
    sizes->indexes += truce__field_number(facts, "indexes");
    sizes->storage +=
        bson_has_field(facts, "storage") ? truce__field_number(facts, "storage") : bytes;
    sizes->unused += truce__field_number(facts, "unused");
    if (bson_iter_init_find(&at, facts, "indexBytes") && bson_iter_recurse(&at, &index))
        while (bson_iter_next(&index))
            sizes->index_bytes += bson_iter_as_int64(&index);
}

static struct database *sizes_database_of(struct databases *databases, const char *name)
{
    for (uint32_t i = 0; i < databases->count; i++)
        if (!strcmp(databases->all[i].name, name))
            return &databases->all[i];
    databases->all = bson_realloc(databases->all, (databases->count + 1) * sizeof *databases->all);
    databases->all[databases->count] = (struct database){0};
    snprintf(databases->all[databases->count].name, DATABASE_NAME_MAX + 1, "%s", name);
    return &databases->all[databases->count++];
}

truce_status databases_count(struct call *call, bool measured, struct databases *databases,
                             bson_error_t *error)
{
    const truce_list_options options = {.unmeasured = !measured, .pages = measured};
    bson_t list;
    truce_status status = truce_collection_list(call->store, &options, &list, error);
    struct fields fields = truce__fields(truce__value_document(&list));

    while (!status && truce__fields_next(&fields)) {
        char name[DATABASE_NAME_MAX + 1];
        bson_t facts;

        truce__value_bson(fields.value, &facts);
        truce__stored_name_database(call->server->database, truce__field_text(&facts, "name"),
                                    name);
        sizes_add(&sizes_database_of(databases, name)->sizes, &facts);
    }
    bson_destroy(&list);
    return status;
}

/* ---- scale ----------------------------------------------------------------------------------- */

struct scale {
    int64_t by; /* The number of bytes of the unit in the reply. */
    bool free_storage;
};

static const struct field scale_fields[] = {
    {"scale", FIELD_NUMBER, offsetof(struct scale, by)},
    {"freeStorage", FIELD_FLAG, offsetof(struct scale, free_storage)},
    {"verbose", FIELD_IGNORED, 0},
    {"numericOnly", FIELD_IGNORED, 0},
    {"waitForLock", FIELD_IGNORED, 0},
    {NULL, FIELD_IGNORED, 0}};

/* Reads the option `scale`. `stage_options` has the fields of a stage; NULL means those of the
 * command. */
static truce_status read_scale(struct call *call, const bson_t *stage_options, struct scale *scale,
                               bson_error_t *error)
{
    truce_status status;

    *scale = (struct scale){.by = 1};
    status = stage_options ? call_fields(call, stage_options, scale_fields, false, scale, error)
                           : call_own_fields(call, scale_fields, scale, error);
    if (!status && (scale->by < 1 || scale->by > INT32_MAX))
        status = truce__refuse(51024, error,
                               "BSON field 'scale' value must be >= 1, actual value '%lld'",
                               (long long)scale->by);
    return status;
}

/* ---- the commands ---------------------------------------------------------------------------- */

static void append_index_sizes(const bson_t *facts, int64_t by, bson_t *reply)
{
    bson_iter_t at, index;
    bson_t sizes;

    BSON_APPEND_DOCUMENT_BEGIN(reply, "indexSizes", &sizes);
    if (bson_iter_init_find(&at, facts, "indexBytes") && bson_iter_recurse(&at, &index))
        while (bson_iter_next(&index))
            BSON_APPEND_INT64(&sizes, bson_iter_key(&index), bson_iter_as_int64(&index) / by);
    bson_append_document_end(reply, &sizes);
}

truce_status serve_sizes(struct call *call, const bson_t *stage_options, bson_t *reply,
                         bson_error_t *error)
{
    char stored_name[STORED_NAME_MAX];
    struct sizes sizes = {0};
    struct scale scale;
    bool there;
    bson_t facts;
    truce_status status = read_scale(call, stage_options, &scale, error);

    if (!status)
        status = call_stored_name(call, stored_name, error);
    if (status)
        return status;
    status = serve_is_there(call, stored_name, &there, &facts, error);
    sizes_add(&sizes, &facts);
    if (!status) {
        BSON_APPEND_UTF8(reply, "ns", call_namespace(call, bson_iter_utf8(&call->value, NULL)));
        BCON_APPEND(
            reply, "count", BCON_INT64(sizes.documents), "size", BCON_INT64(sizes.bytes / scale.by),
            "avgObjSize", BCON_INT64(sizes.documents ? sizes.bytes / sizes.documents : 0),
            "storageSize", BCON_INT64(sizes.storage / scale.by), "freeStorageSize",
            BCON_INT64(sizes.unused / scale.by), "nindexes", BCON_INT32((int32_t)sizes.indexes),
            "totalIndexSize", BCON_INT64(sizes.index_bytes / scale.by), "totalSize",
            BCON_INT64((sizes.storage + sizes.index_bytes) / scale.by));
        append_index_sizes(&facts, scale.by, reply);
        BCON_APPEND(reply, "capped", BCON_BOOL(false), "scaleFactor",
                    BCON_INT32((int32_t)scale.by));
    }
    bson_destroy(&facts);
    return status;
}

truce_status serve_collection_stats(struct call *call, bson_t *reply, bson_error_t *error)
{
    return serve_sizes(call, NULL, reply, error);
}

/* Appends the fields of dbStats. Sizes are divided by the scale. */
static void append_database(const char *name, const struct sizes *sizes, uint32_t views,
                            const struct scale *scale, bson_t *reply)
{
    double by = (double)scale->by;

    BCON_APPEND(reply, "db", BCON_UTF8(name), "collections", BCON_INT64(sizes->collections),
                "views", BCON_INT64(views), "objects", BCON_INT64(sizes->documents), "avgObjSize",
                BCON_DOUBLE(sizes->documents ? (double)sizes->bytes / (double)sizes->documents : 0),
                "dataSize", BCON_DOUBLE((double)sizes->bytes / by), "storageSize",
                BCON_DOUBLE((double)sizes->storage / by));
    if (scale->free_storage)
        BSON_APPEND_DOUBLE(reply, "freeStorageSize", (double)sizes->unused / by);
    BCON_APPEND(reply, "indexes", BCON_INT64(sizes->indexes), "indexSize",
                BCON_DOUBLE((double)sizes->index_bytes / by), "totalSize",
                BCON_DOUBLE((double)(sizes->storage + sizes->index_bytes) / by), "scaleFactor",
                BCON_DOUBLE(by));
}

truce_status serve_database_stats(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct databases databases = {0};
    struct scale scale;
    const struct view *all;
    uint32_t views = 0;
    truce_status status = read_scale(call, NULL, &scale, error);

    if (!status)
        status = databases_count(call, true, &databases, error);
    if (!status)
        status = views_all(call->server->views, call->database, &call->arena, &all, &views, error);
    if (!status)
        append_database(call->database, &sizes_database_of(&databases, call->database)->sizes,
                        views, &scale, reply);
    bson_free(databases.all);
    return status;
}

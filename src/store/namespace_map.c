#include "store/namespace_map.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"

truce_status truce__text_check(const bson_iter_t *text, uint32_t code, bson_error_t *error)
{
    uint32_t length;
    const char *name = bson_iter_utf8(text, &length);

    if (strlen(name) == length)
        return TRUCE_OK;
    if (code == CODE_INVALID_NAMESPACE)
        return truce__refuse(
            code, error, "a name must not contain a zero byte, and has one after \"%.80s\"", name);
    return truce__refuse(code, error, "the field '%.80s' must not contain a zero byte",
                         bson_iter_key(text));
}

truce_status truce__database_name_check(const char *name, bson_error_t *error)
{
    size_t length = strlen(name);

    if (length && length <= DATABASE_NAME_MAX && !strpbrk(name, "/\\. \"$*<>:|?") &&
        bson_utf8_validate(name, length, false))
        return TRUCE_OK;
    return truce__refuse(CODE_INVALID_NAMESPACE, error,
                         "the database name \"%.80s\" is not valid: it must have 1 to %d bytes "
                         "without / \\ . \" $ * < > : | ? and space",
                         bson_utf8_validate(name, length, false) ? name : "", DATABASE_NAME_MAX);
}

truce_status truce__stored_name_of(const char *own, const char *database, const char *collection,
                                   char stored_name[STORED_NAME_MAX], bson_error_t *error)
{
    bool is_own = !strcmp(own, database) && strcmp(collection, VIEWS_COLLECTION) != 0;
    int length;

    if (is_own && collection[0] == '@')
        return truce__refuse(CODE_INVALID_NAMESPACE, error,
                             "the collection name \"%.80s\" begins with @, which marks other "
                             "databases in the store",
                             collection);
    if (strlen(database) + 1 + strlen(collection) > TRUCE_NAMESPACE_MAX)
        return truce__refuse(CODE_INVALID_NAMESPACE, error,
                             "the namespace \"%.63s.%.40s...\" has more than %d bytes", database,
                             collection, TRUCE_NAMESPACE_MAX);
    if (!collection[0])
        return truce__refuse(CODE_INVALID_NAMESPACE, error, "the collection name is empty");
    if (collection[0] == '.')
        return truce__refuse(CODE_INVALID_NAMESPACE, error,
                             "the collection name \"%.80s\" begins with a dot", collection);
    length = snprintf(stored_name, STORED_NAME_MAX, "%s%s%s%s", is_own ? "" : "@",
                      is_own ? "" : database, is_own ? "" : ".", collection);
    truce_assert(length < STORED_NAME_MAX);
    return TRUCE_OK;
}

const char *truce__stored_name_plain(const char *own, const char *database, const char *stored_name)
{
    size_t length = strlen(database);
    bool within = stored_name[0] == '@' && !strncmp(stored_name + 1, database, length) &&
                  stored_name[1 + length] == '.';
    const char *name = within ? stored_name + length + 2 : NULL;

    if (strcmp(own, database) != 0)
        return name;
    if (stored_name[0] == '@')
        return name && !strcmp(name, VIEWS_COLLECTION) ? name : NULL;
    return stored_name;
}

void truce__stored_name_database(const char *own, const char *stored_name,
                                 char database[DATABASE_NAME_MAX + 1])
{
    const char *dot = strchr(stored_name, '.');

    if (stored_name[0] == '@' && dot)
        snprintf(database, DATABASE_NAME_MAX + 1, "%.*s", (int)(dot - stored_name - 1),
                 stored_name + 1);
    else
        snprintf(database, DATABASE_NAME_MAX + 1, "%s", own);
}

/* ---- pipelines ------------------------------------------------------------------------------ */

struct naming {
    const char *own, *database;
    const struct name_guard *guard;
    bson_error_t *error;
};

/* Maps the names in all stages. `at` is the iterator before the first stage. */
static truce_status name_stages(const struct naming *naming, bson_iter_t at, bson_t *result);

/* Appends the stored name of a collection, if the guard allows the access. */
static truce_status map_append_name(const struct naming *naming, const char *database,
                                    const char *collection, bool writes, bson_t *to,
                                    const char *key)
{
    const struct name_guard *guard = naming->guard;
    char stored_name[STORED_NAME_MAX];
    truce_status status =
        truce__stored_name_of(naming->own, database, collection, stored_name, naming->error);

    if (!status && guard)
        status = guard->allow(guard->arg, database, collection, writes, naming->error);
    if (!status)
        BSON_APPEND_UTF8(to, key, stored_name);
    return status;
}

/* Maps "name", or {db: "school", coll: "name"}. An object of another form is refused: with a
 * misspelled database, $out would replace a collection of this one. Anything else is left for the
 * store to refuse. */
static truce_status append_target(const struct naming *naming, const bson_iter_t *value,
                                  bool writes, bson_t *to, const char *key)
{
    const char *database = naming->database, *collection = NULL;
    truce_status status = TRUCE_OK;
    bson_iter_t field;

    if (BSON_ITER_HOLDS_UTF8(value)) {
        status = truce__text_check(value, CODE_INVALID_NAMESPACE, naming->error);
        collection = bson_iter_utf8(value, NULL);
    } else if (BSON_ITER_HOLDS_DOCUMENT(value) && bson_iter_recurse(value, &field)) {
        while (!status && bson_iter_next(&field)) {
            bool is_database = !strcmp(bson_iter_key(&field), "db");

            if (!is_database && strcmp(bson_iter_key(&field), "coll") != 0)
                return truce__refuse(40415, naming->error,
                                     "unknown field '%.80s' of '%.20s': expected {db, coll}",
                                     bson_iter_key(&field), key);
            if (!BSON_ITER_HOLDS_UTF8(&field))
                return truce__refuse(CODE_TYPE_MISMATCH, naming->error,
                                     "the field '%s' of '%.20s' must be a string",
                                     bson_iter_key(&field), key);
            status = truce__text_check(&field, CODE_INVALID_NAMESPACE, naming->error);
            *(is_database ? &database : &collection) = bson_iter_utf8(&field, NULL);
        }
        if (!status && collection)
            status = truce__database_name_check(database, naming->error);
    }
    if (status)
        return status;
    if (collection)
        return map_append_name(naming, database, collection, writes, to, key);
    BSON_APPEND_VALUE(to, key, bson_iter_value((bson_iter_t *)value));
    return TRUCE_OK;
}

/* Maps the fields of a stage: `target` names a collection, and `pipeline`, if present, reads it. */
static truce_status map_append_fields(const struct naming *naming, const bson_iter_t *value,
                                      const char *target, bson_t *to)
{
    truce_status status = TRUCE_OK;
    bson_iter_t field, stages;

    if (!bson_iter_recurse(value, &field))
        return TRUCE_OK;
    while (!status && bson_iter_next(&field)) {
        const char *key = bson_iter_key(&field);
        bson_t inner;

        if (!strcmp(key, target)) {
            status = append_target(naming, &field, !strcmp(target, "into"), to, key);
        } else if (!strcmp(key, "pipeline") && BSON_ITER_HOLDS_ARRAY(&field) &&
                   bson_iter_recurse(&field, &stages)) {
            BSON_APPEND_ARRAY_BEGIN(to, key, &inner);
            status = name_stages(naming, stages, &inner);
            bson_append_array_end(to, &inner);
        } else {
            BSON_APPEND_VALUE(to, key, bson_iter_value(&field));
        }
    }
    return status;
}

/* Maps the names in the pipelines of a $facet. */
static truce_status append_facets(const struct naming *naming, const bson_iter_t *value, bson_t *to)
{
    truce_status status = TRUCE_OK;
    bson_iter_t facet, stages;
    bson_t inner;

    if (!bson_iter_recurse(value, &facet))
        return TRUCE_OK;
    while (!status && bson_iter_next(&facet)) {
        if (!BSON_ITER_HOLDS_ARRAY(&facet) || !bson_iter_recurse(&facet, &stages)) {
            BSON_APPEND_VALUE(to, bson_iter_key(&facet), bson_iter_value(&facet));
            continue;
        }
        BSON_APPEND_ARRAY_BEGIN(to, bson_iter_key(&facet), &inner);
        status = name_stages(naming, stages, &inner);
        bson_append_array_end(to, &inner);
    }
    return status;
}

/* Returns the field of a stage that names a collection, or NULL. */
static const char *map_target_of(const char *stage)
{
    static const char *const targets[][2] = {
        {"$lookup", "from"}, {"$graphLookup", "from"}, {"$unionWith", "coll"}, {"$merge", "into"}};

    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (!strcmp(stage, targets[i][0]))
            return targets[i][1];
    return NULL;
}

/* Appends one stage with mapped names. A stage that names no collection is copied. */
static truce_status map_append_stage(const struct naming *naming, const bson_iter_t *stage,
                                     bson_t *to)
{
    const char *name = bson_iter_key(stage), *target = map_target_of(name);
    bool is_document = BSON_ITER_HOLDS_DOCUMENT(stage);
    truce_status status;
    bson_t inner;

    if (!strcmp(name, "$out") || (target && BSON_ITER_HOLDS_UTF8(stage)))
        return append_target(naming, stage, !strcmp(name, "$out") || !strcmp(name, "$merge"), to,
                             name);
    if (!is_document || (!target && strcmp(name, "$facet") != 0)) {
        BSON_APPEND_VALUE(to, name, bson_iter_value((bson_iter_t *)stage));
        return TRUCE_OK;
    }
    BSON_APPEND_DOCUMENT_BEGIN(to, name, &inner);
    status = target ? map_append_fields(naming, stage, target, &inner)
                    : append_facets(naming, stage, &inner);
    bson_append_document_end(to, &inner);
    return status;
}

/* Appends the stages of a pipeline with mapped names; `at` is before the first stage. An element
 * that is not a document is copied. */
static truce_status name_stages(const struct naming *naming, bson_iter_t at, bson_t *result)
{
    truce_status status = TRUCE_OK;
    bson_iter_t field;
    bson_t inner;

    while (!status && bson_iter_next(&at)) {
        if (!BSON_ITER_HOLDS_DOCUMENT(&at) || !bson_iter_recurse(&at, &field)) {
            BSON_APPEND_VALUE(result, bson_iter_key(&at), bson_iter_value(&at));
            continue;
        }
        BSON_APPEND_DOCUMENT_BEGIN(result, bson_iter_key(&at), &inner);
        while (!status && bson_iter_next(&field))
            status = map_append_stage(naming, &field, &inner);
        bson_append_document_end(result, &inner);
    }
    return status;
}

truce_status truce__map_pipeline(const char *own, const char *database, const bson_t *pipeline,
                                 const struct name_guard *guard, bson_t *result,
                                 bson_error_t *error)
{
    struct naming naming = {own, database, guard, error};
    bson_iter_t stages;

    bson_init(result);
    return bson_iter_init(&stages, pipeline) ? name_stages(&naming, stages, result) : TRUCE_OK;
}

/* createIndexes, dropIndexes, listIndexes, and the index part of collMod. */
#include "bson/refuse_value.h"
#include "server/command/cursor_reply.h"
#include "server/command/handlers.h"
#include "server/command/read_request.h"

#include <string.h>

#include "bson/value.h"
#include "query/index/index.h"
#include "store/mongodb/mongo_session.h"

static int32_t count_indexes(struct call *call, const char *stored_name)
{
    bson_t indexes;
    truce_status status = truce_index_list(call->store, stored_name, &indexes, NULL);
    int32_t count = status ? 0 : (int32_t)bson_count_keys(&indexes);

    bson_destroy(&indexes);
    return count;
}

struct create_indexes {
    bool ignores_unknown;
};

static const struct field create_index_fields[] = {
    {"indexes", FIELD_IGNORED, 0},
    {"ignoreUnknownIndexOptions", FIELD_FLAG, offsetof(struct create_indexes, ignores_unknown)},
    {"commitQuorum", FIELD_IGNORED, 0},
    {"collectionUUID", FIELD_IGNORED, 0, true}, /* collection_uuid.h */
    {NULL, FIELD_IGNORED, 0}};

/* Copies an index without the options that no version of MongoDB has; options that truce refuses
 * are still refused. */
static void copy_known_options(const bson_t *given, bson_t *index)
{
    bson_iter_t at;

    bson_init(index);
    (void)bson_iter_init(&at, given);
    while (bson_iter_next(&at))
        if (truce__index_option_is_known(bson_iter_key(&at)))
            (void)bson_append_iter(index, NULL, -1, &at);
}

/* Reads the indexes of createIndexes, and checks all of them before one is made. Indexes of a
 * mongodb: store are checked by its server. */
static truce_status read_new_indexes(struct call *call, const struct create_indexes *given,
                                     struct documents *indexes, bson_error_t *error)
{
    truce_status status = call_documents(call, "indexes", indexes, error);

    for (uint32_t i = 0; !status && i < indexes->count; i++) {
        struct index_spec spec = {0};
        bson_t known;

        if (given->ignores_unknown) {
            copy_known_options(indexes->all[i], &known);
            indexes->all[i] = call_view(
                call, truce__arena_copy(&call->arena, bson_get_data(&known), known.len), known.len);
            bson_destroy(&known);
        }
        if (!truce__mongo_is(call->server->store))
            status = truce__index_spec_parse(indexes->all[i], &spec, error);
        truce__index_spec_release(&spec);
    }
    return status;
}

static bool index_is_named(const bson_t *indexes, const char *wanted)
{
    bson_iter_t at, name;

    (void)bson_iter_init(&at, indexes);
    while (bson_iter_next(&at))
        if (bson_iter_recurse(&at, &name) && bson_iter_find(&name, "name") &&
            !strcmp(bson_iter_utf8(&name, NULL), wanted))
            return true;
    return false;
}

/* Drops the first `count` indexes that did not exist before. A failure leaves them in place and is
 * ignored: the caller reports the error that it already has. */
static void drop_created(struct call *call, const char *stored_name,
                         const struct documents *indexes, uint32_t count, const bson_t *before)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; !status && i < count; i++) {
        bson_iter_t name;

        if (bson_iter_init_find(&name, indexes->all[i], "name") && BSON_ITER_HOLDS_UTF8(&name) &&
            !index_is_named(before, bson_iter_utf8(&name, NULL)))
            status = truce_index_drop(call->store, stored_name, bson_iter_utf8(&name, NULL), NULL);
    }
}

/* Creates all indexes or none: if one cannot be created, the ones before it are dropped. Sets
 * `*there_were` to the number of indexes before. */
static truce_status create_all(struct call *call, const char *stored_name,
                               const struct documents *indexes, int32_t *there_were,
                               bson_error_t *error)
{
    int64_t around = truce_deadline_begin(call->deadline_ms);
    bson_t before;
    uint32_t created = 0;
    truce_status status = truce_index_list(call->store, stored_name, &before, error);

    if (status == TRUCE_NOT_FOUND)
        status = TRUCE_OK;
    *there_were = (int32_t)bson_count_keys(&before);
    while (!status && created < indexes->count) {
        status = truce_index_create(call->store, stored_name, indexes->all[created], error);
        created += !status;
    }
    truce_deadline_end(around);
    if (status)
        drop_created(call, stored_name, indexes, created, &before);
    bson_destroy(&before);
    return status;
}

truce_status serve_create_indexes(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct create_indexes given = {0};
    struct documents indexes;
    char stored_name[STORED_NAME_MAX];
    bool there = false;
    int32_t before = 0, after;
    truce_status status = call_stored_name(call, stored_name, error);

    if (!status)
        status = call_own_fields(call, create_index_fields, &given, error);
    if (!status)
        status = read_new_indexes(call, &given, &indexes, error);
    if (!status)
        status = serve_is_there(call, stored_name, &there, NULL, error);
    if (!status)
        status = create_all(call, stored_name, &indexes, &before, error);
    if (status)
        return status;
    before = there ? before : 1;
    after = count_indexes(call, stored_name);
    BCON_APPEND(reply, "numIndexesBefore", BCON_INT32(before), "numIndexesAfter", BCON_INT32(after),
                "createdCollectionAutomatically", BCON_BOOL(!there));
    if (before == after)
        BSON_APPEND_UTF8(reply, "note", "all indexes already exist");
    return TRUCE_OK;
}

/* Returns the name of the index with this key pattern, or NULL. */
static const char *name_by_key(const bson_t *indexes, const bson_t *key)
{
    bson_iter_t at, field;

    (void)bson_iter_init(&at, indexes);
    while (bson_iter_next(&at)) {
        const uint8_t *bytes;
        const char *name = NULL;
        bool same = false;
        uint32_t size;

        if (!bson_iter_recurse(&at, &field))
            continue;
        while (bson_iter_next(&field)) {
            if (!strcmp(bson_iter_key(&field), "name"))
                name = bson_iter_utf8(&field, NULL);
            if (!strcmp(bson_iter_key(&field), "key") && BSON_ITER_HOLDS_DOCUMENT(&field)) {
                bson_t view;

                bson_iter_document(&field, &size, &bytes);
                same = bson_init_static(&view, bytes, size) &&
                       truce__value_compare(truce__value_document(&view),
                                            truce__value_document(key)) == 0;
            }
        }
        if (same)
            return name;
    }
    return NULL;
}

static truce_status index_drop_all(struct call *call, const char *stored_name,
                                   const bson_t *indexes, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_iter_t at, name;

    (void)bson_iter_init(&at, indexes);
    while (!status && bson_iter_next(&at))
        if (bson_iter_recurse(&at, &name) && bson_iter_find(&name, "name") &&
            strcmp(bson_iter_utf8(&name, NULL), "_id_") != 0)
            status = truce_index_drop(call->server->store, stored_name, bson_iter_utf8(&name, NULL),
                                      error);
    return status;
}

/* Checks that the array has names of indexes that can be dropped. */
static truce_status check_names(const bson_t *indexes, const bson_iter_t *names,
                                bson_error_t *error)
{
    bson_iter_t name;

    (void)bson_iter_recurse(names, &name);
    while (bson_iter_next(&name)) {
        if (!BSON_ITER_HOLDS_UTF8(&name))
            return truce__refuse_value(CODE_TYPE_MISMATCH, truce__value_of_iter(&name), error,
                                       "the names of indexes must be strings");
        if (!index_is_named(indexes, bson_iter_utf8(&name, NULL)))
            return truce__refuse(CODE_INDEX_NOT_FOUND, error, "the index \"%.200s\" does not exist",
                                 bson_iter_utf8(&name, NULL));
        if (!strcmp(bson_iter_utf8(&name, NULL), "_id_"))
            return truce__refuse(CODE_INVALID_OPTIONS, error, "cannot drop _id index");
    }
    return TRUCE_OK;
}

/* Drops the indexes that `which` names: "*", a name, a key pattern, or an array of names. A wrong
 * name drops no index. */
static truce_status drop_some(struct call *call, const char *stored_name, const bson_t *indexes,
                              const bson_iter_t *which, bson_error_t *error)
{
    const char *name = NULL;
    truce_status status = TRUCE_OK;
    bson_iter_t inner;

    if (BSON_ITER_HOLDS_ARRAY(which) && bson_iter_recurse(which, &inner)) {
        status = check_names(indexes, which, error);
        while (!status && bson_iter_next(&inner))
            status = truce_index_drop(call->server->store, stored_name,
                                      bson_iter_utf8(&inner, NULL), error);
        return status;
    }
    if (BSON_ITER_HOLDS_UTF8(which))
        name = bson_iter_utf8(which, NULL);
    else if (BSON_ITER_HOLDS_DOCUMENT(which))
        name = name_by_key(indexes, call_view_of(call, which));
    if (!name)
        return truce__refuse(CODE_INDEX_NOT_FOUND, error,
                             "can't find an index with the key that was given: listIndexes lists "
                             "the indexes");
    if (!strcmp(name, "*"))
        return index_drop_all(call, stored_name, indexes, error);
    return truce_index_drop(call->server->store, stored_name, name, error);
}

/* Returns the indexes of a collection. Fails with NamespaceNotFound (26) if it does not exist. The
 * caller has initialized `indexes`, and destroys it. */
static truce_status index_list_of(struct call *call, const char *stored_name, bson_t *indexes,
                                  bson_error_t *error)
{
    bool there = false;
    truce_status status = serve_is_there(call, stored_name, &there, NULL, error);

    if (!status && !there)
        status = serve_no_such_namespace(call, error);
    if (status)
        return status;
    bson_destroy(indexes);
    return truce_index_list(call->server->store, stored_name, indexes, error);
}

static const struct field drop_index_fields[] = {
    {"index", FIELD_IGNORED, 0},
    {"collectionUUID", FIELD_IGNORED, 0, true}, /* collection_uuid.h */
    {NULL, FIELD_IGNORED, 0}};

truce_status serve_drop_indexes(struct call *call, bson_t *reply, bson_error_t *error)
{
    bson_t indexes = BSON_INITIALIZER;
    char stored_name[STORED_NAME_MAX];
    bson_iter_t which;
    truce_status status = call_stored_name(call, stored_name, error);

    if (!status)
        status = call_own_fields(call, drop_index_fields, NULL, error);
    if (!status && !bson_iter_init_find(&which, &call->request->body, "index"))
        status = truce__refuse(
            40414, error, "dropIndexes needs 'index': a name, an array of names, or a key pattern");
    if (!status)
        status = index_list_of(call, stored_name, &indexes, error);
    if (!status) {
        BSON_APPEND_INT32(reply, "nIndexesWas", (int32_t)bson_count_keys(&indexes));
        status = drop_some(call, stored_name, &indexes, &which, error);
    }
    bson_destroy(&indexes);
    return status;
}

struct list {
    const bson_t *cursor;
};

static const struct field list_fields[] = {
    {"cursor", FIELD_DOCUMENT, offsetof(struct list, cursor)}, {NULL, FIELD_IGNORED, 0}};

truce_status serve_list_indexes(struct call *call, bson_t *reply, bson_error_t *error)
{
    bson_t indexes = BSON_INITIALIZER, versioned = BSON_INITIALIZER, element, view;
    struct list list = {0};
    char stored_name[STORED_NAME_MAX];
    int64_t most = INT64_MAX;
    bson_iter_t at;
    truce_status status = call_stored_name(call, stored_name, error);

    if (!status)
        status = call_own_fields(call, list_fields, &list, error);
    if (!status)
        status = request_batch(call, list.cursor, &most, error);
    if (!status && most < INT64_MAX)
        status = cursor_reply_room(call, error);
    if (!status)
        status = index_list_of(call, stored_name, &indexes, error);
    (void)bson_iter_init(&at, &indexes);
    while (!status && bson_iter_next(&at)) {
        const uint8_t *bytes;
        uint32_t size;

        bson_iter_document(&at, &size, &bytes);
        (void)bson_init_static(&view, bytes, size);
        BSON_APPEND_DOCUMENT_BEGIN(&versioned, bson_iter_key(&at), &element);
        if (!bson_has_field(&view, "v"))
            BSON_APPEND_INT32(&element, "v", 2);
        bson_concat(&element, &view);
        bson_append_document_end(&versioned, &element);
    }
    if (!status)
        status = cursor_reply_array(call, bson_copy(&versioned), bson_iter_utf8(&call->value, NULL),
                                    most, reply, error);
    bson_destroy(&versioned);
    bson_destroy(&indexes);
    return status;
}

/* ---- collMod --------------------------------------------------------------------------------- */

struct modified {
    const char *name;
    const bson_t *key;
};

static const struct field modify_index_fields[] = {
    {"name", FIELD_TEXT, offsetof(struct modified, name)},
    {"keyPattern", FIELD_DOCUMENT, offsetof(struct modified, key)},
    {"hidden", FIELD_IGNORED, 0}, /* The store checks the values. */
    {"expireAfterSeconds", FIELD_IGNORED, 0},
    {"unique", FIELD_PLAIN, 0},
    {"prepareUnique", FIELD_PLAIN, 0},
    {NULL, FIELD_IGNORED, 0}};

/* Returns whether the index has the requested name or key pattern. */
static bool is_meant(struct value definition, const struct modified *modified)
{
    struct value name = truce__value_field(definition, "name", 4);
    uint32_t length;

    if (modified->name)
        return name.type == BSON_TYPE_UTF8 &&
               !strcmp(truce__value_text(name, &length), modified->name);
    return !truce__value_compare(truce__value_field(definition, "key", 3),
                                 truce__value_document(modified->key));
}

/* Returns the definition of the only index that the command names. */
static truce_status find_modified(const bson_t *indexes, const struct modified *modified,
                                  struct value *definition, bson_error_t *error)
{
    struct fields fields = truce__fields(truce__value_document(indexes));
    uint32_t found = 0;

    while (truce__fields_next(&fields))
        if (is_meant(fields.value, modified)) {
            *definition = fields.value;
            found++;
        }
    if (found > 1)
        return truce__refuse(CODE_AMBIGUOUS_INDEX_KEY_PATTERN, error,
                             "%u indexes have the key pattern that was given: give the name of one",
                             found);
    return found
               ? TRUCE_OK
               : truce__refuse(CODE_INDEX_NOT_FOUND, error,
                               "cannot find an index with the name or key pattern that was given: "
                               "listIndexes lists the indexes");
}

static truce_status index_check_modified(const struct modified *modified, bson_error_t *error)
{
    if (modified->name && modified->key)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "Cannot specify both key pattern and name.");
    return modified->name || modified->key
               ? TRUCE_OK
               : truce__refuse(CODE_INVALID_OPTIONS, error,
                               "Must specify either index name or key pattern.");
}

/* Appends the changes as MongoDB does. If the index had no expiry, expireAfterSeconds_old is
 * omitted. */
static void index_append_modified(struct value old, const bson_t *changes, bson_t *reply)
{
    struct value new = truce__value_document(changes);
    struct value expires = truce__value_field(new, "expireAfterSeconds", 18),
                 expired = truce__value_field(old, "expireAfterSeconds", 18),
                 hides = truce__value_field(new, "hidden", 6);
    bool hidden = truce__value_truth(truce__value_field(old, "hidden", 6));

    if (expires.type && truce__value_compare(expires, expired)) {
        if (expired.type)
            truce__value_append(reply, "expireAfterSeconds_old", 22, expired);
        truce__value_append(reply, "expireAfterSeconds_new", 22, expires);
    }
    if (hides.type && truce__value_truth(hides) != hidden)
        BCON_APPEND(reply, "hidden_old", BCON_BOOL(hidden), "hidden_new", BCON_BOOL(!hidden));
}

truce_status serve_modified_index(struct call *call, const char *stored_name, const bson_t *index,
                                  struct modified_index *found, bson_error_t *error)
{
    bson_t indexes = BSON_INITIALIZER;
    struct modified modified = {0};
    truce_status status = call_fields(call, index, modify_index_fields, false, &modified, error);
    struct value was = truce__value_missing();
    uint32_t length;

    *found = (struct modified_index){0};
    bson_init(&found->changes);
    if (!status)
        status = index_check_modified(&modified, error);
    if (!status)
        status = index_list_of(call, stored_name, &indexes, error);
    if (!status)
        status = find_modified(&indexes, &modified, &was, error);
    if (!status) {
        found->was = call_view(call, truce__arena_copy(&call->arena, was.data, was.size), was.size);
        found->name = truce__value_text(
            truce__value_field(truce__value_document(found->was), "name", 4), &length);
        bson_copy_to_excluding_noinit(index, &found->changes, "name", "keyPattern", "unique",
                                      "prepareUnique", NULL);
    }
    bson_destroy(&indexes);
    return status;
}

void serve_append_modified(const struct modified_index *found, bson_t *reply)
{
    index_append_modified(truce__value_document(found->was), &found->changes, reply);
}

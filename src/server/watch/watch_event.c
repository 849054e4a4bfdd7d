/* Tokens and events of change streams (lease_watch.h). */
#include "server/watch/watch.h"

#include <stdio.h>
#include <string.h>

#include "bson/value.h"

/* ---- tokens ----------------------------------------------------------------------------------
 *
 *     01  position (8 bytes, the highest first)  place  id of the feed (12 bytes)
 *
 * place: of enum watch_place; of a fragment with its number added. In hexadecimal digits, so that tokens of a feed are in the order of what they stand for.
 */
#define TOKEN_BYTES   22
#define TOKEN_VERSION 1

void watch_token_append(const struct watch_token *token, bson_t *document)
{
    uint8_t bytes[TOKEN_BYTES] = {TOKEN_VERSION};
    char text[2 * TOKEN_BYTES + 1];

    for (int i = 0; i < 8; i++)
        bytes[1 + i] = (uint8_t)((uint64_t)token->position >> (56 - 8 * i));
    bytes[9] = (uint8_t)(token->place + (token->place == WATCH_FRAGMENT ? token->fragment : 0));
    memcpy(bytes + 10, token->feed.bytes, sizeof token->feed.bytes);
    for (int i = 0; i < TOKEN_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02X", bytes[i]);
    BSON_APPEND_UTF8(document, "_data", text);
}

static int digit(char c)
{
    static const char digits[] = "0123456789ABCDEF";
    const char *found = c ? strchr(digits, c >= 'a' && c <= 'f' ? c - 'a' + 'A' : c) : NULL;

    return found ? (int)(found - digits) : -1;
}

static truce_status read_bytes(const char *text, uint32_t length, uint8_t bytes[TOKEN_BYTES],
                               bson_error_t *error)
{
    for (uint32_t i = 0; i < length; i++)
        if (digit(text[i]) < 0 || length % 2)
            return truce__refuse(CODE_FAILED_TO_PARSE, error,
                                 "resume token string was not a valid hex string");
    if (length != 2 * TOKEN_BYTES)
        return truce__refuse(CODE_INVALID_RESUME_TOKEN, error,
                             "the resume token was not made by truce");
    for (int i = 0; i < TOKEN_BYTES; i++)
        bytes[i] = (uint8_t)(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
    return TRUCE_OK;
}

truce_status watch_token_read(const bson_t *document, struct watch_token *token,
                              bson_error_t *error)
{
    struct value data = truce__value_field(truce__value_document(document), "_data", 5);
    uint8_t bytes[TOKEN_BYTES];
    uint64_t position = 0;
    truce_status status;
    const char *text;
    uint32_t length;

    if (data.type != BSON_TYPE_UTF8)
        return truce__refuse(40647, error, "Bad resume token: _data of missing or of wrong type");
    text = truce__value_text(data, &length);
    status = read_bytes(text, length, bytes, error);
    if (status)
        return status;
    for (int i = 0; i < 8; i++)
        position = position << 8 | bytes[1 + i];
    if (bytes[0] != TOKEN_VERSION || position > INT64_MAX)
        return truce__refuse(CODE_INVALID_RESUME_TOKEN, error,
                             "the resume token was not made by truce");
    token->position = (int64_t)position;
    token->place = bytes[9] < WATCH_FRAGMENT ? (enum watch_place)bytes[9] : WATCH_FRAGMENT;
    token->fragment = bytes[9] < WATCH_FRAGMENT ? 0 : bytes[9] - WATCH_FRAGMENT;
    bson_oid_init_from_data(&token->feed, bytes + 10);
    return TRUCE_OK;
}

/* ---- who sees what ------------------------------------------------------------------------------ */

/* Of several collections: those of this database? */
static bool reaches(const struct watch_scope *scope, const char *database)
{
    if (scope->reach == WATCH_DATABASE)
        return !strcmp(database, scope->database);
    return strcmp(database, "admin") && strcmp(database, "config") && strcmp(database, "local");
}

static bool is_within(const struct watch_scope *scope, const char *place)
{
    char database[DATABASE_NAME_MAX + 1];
    const char *name;

    if (scope->reach == WATCH_COLLECTION)
        return !strcmp(place, scope->place);
    truce__place_database(scope->own, place, database);
    name = truce__place_name(scope->own, database, place);
    return name && !truce__place_is_system(name) && reaches(scope, database);
}

static bool is_expanded(enum feed_kind kind)
{
    return kind == FEED_CREATE || kind == FEED_MODIFY || kind == FEED_INDEX ||
           kind == FEED_INDEX_DROP;
}

bool watch_is_of_view(const struct watch_scope *scope, const struct feed_entry *entry)
{
    char database[DATABASE_NAME_MAX + 1];
    const char *name;

    if (!scope->expanded ||
        (entry->kind != FEED_INSERT && entry->kind != FEED_REPLACE && entry->kind != FEED_DELETE))
        return false;
    truce__place_database(scope->own, entry->collection, database);
    name = truce__place_name(scope->own, database, entry->collection);
    return name && !strcmp(name, VIEWS_COLLECTION);
}

/* The namespace that the document of a view has as its _id; NULL: it has none, since somebody else wrote it. */
static const char *namespace_of_view(const struct feed_entry *entry)
{
    struct value id = truce__value_field(truce__value_document(&entry->id), "_id", 3);
    uint32_t length;
    const char *text = id.type == BSON_TYPE_UTF8 ? truce__value_text(id, &length) : NULL;

    return text && strchr(text, '.') ? text : NULL;
}

static bool sees_view(const struct watch_scope *scope, const struct feed_entry *entry)
{
    char database[DATABASE_NAME_MAX + 1];

    truce__place_database(scope->own, entry->collection, database);
    return scope->reach != WATCH_COLLECTION && namespace_of_view(entry) && reaches(scope, database);
}

bool watch_sees(const struct watch_scope *scope, const struct feed_entry *entry)
{
    if (is_expanded(entry->kind) && !scope->expanded)
        return false;
    if (watch_is_of_view(scope, entry))
        return sees_view(scope, entry);
    if (entry->kind == FEED_DROP_DATABASE)
        return scope->reach == WATCH_ALL ||
               (scope->reach == WATCH_DATABASE && !strcmp(entry->collection, scope->database));
    return is_within(scope, entry->collection) || (entry->other && is_within(scope, entry->other));
}

bool watch_ends(const struct watch_scope *scope, const struct feed_entry *entry)
{
    if (entry->kind == FEED_DROP_DATABASE)
        return scope->reach == WATCH_DATABASE && watch_sees(scope, entry);
    return scope->reach == WATCH_COLLECTION && watch_sees(scope, entry) &&
           (entry->kind == FEED_DROP || entry->kind == FEED_RENAME);
}

/* ---- events --------------------------------------------------------------------------------------- */

static const char *event_name_of(enum feed_kind kind)
{
    switch (kind) {
    case FEED_INSERT:
        return "insert";
    case FEED_UPDATE:
        return "update";
    case FEED_REPLACE:
        return "replace";
    case FEED_DELETE:
        return "delete";
    case FEED_DROP:
        return "drop";
    case FEED_RENAME:
        return "rename";
    case FEED_CREATE:
        return "create";
    case FEED_MODIFY:
        return "modify";
    case FEED_INDEX:
        return "createIndexes";
    case FEED_INDEX_DROP:
        return "dropIndexes";
    case FEED_DROP_DATABASE:
        break;
    }
    return "dropDatabase";
}

static bson_t *begin_event(const bson_oid_t *feed, int64_t position, enum watch_place place,
                           const char *name, int64_t wall_ms)
{
    const struct watch_token token = {.feed = *feed, .position = position, .place = place};
    bson_t *event = bson_new(), id;

    BSON_APPEND_DOCUMENT_BEGIN(event, "_id", &id);
    watch_token_append(&token, &id);
    bson_append_document_end(event, &id);
    BSON_APPEND_UTF8(event, "operationType", name);
    BSON_APPEND_TIMESTAMP(event, "clusterTime", (uint32_t)(position >> FEED_SECOND_SHIFT),
                          (uint32_t)(position & (((int64_t)1 << FEED_SECOND_SHIFT) - 1)));
    BSON_APPEND_DATE_TIME(event, "wallTime", wall_ms);
    return event;
}

static void append_names(const struct watch_scope *scope, const char *key, const char *place,
                         bson_t *event)
{
    char database[DATABASE_NAME_MAX + 1];
    const char *name;
    bson_t ns;

    truce__place_database(scope->own, place, database);
    name = truce__place_name(scope->own, database, place);
    BSON_APPEND_DOCUMENT_BEGIN(event, key, &ns);
    BSON_APPEND_UTF8(&ns, "db", database);
    BSON_APPEND_UTF8(&ns, "coll", name ? name : place);
    bson_append_document_end(event, &ns);
}

/* ---- what expanded events have ------------------------------------------------------------------- */

static void event_append_uuid(const struct watch_scope *scope, int64_t number, const char *name,
                              bson_t *document)
{
    uint8_t uuid[UUID_BYTES];

    truce__catalog_uuid(&scope->file, number, uuid);
    BSON_APPEND_BINARY(document, name, BSON_SUBTYPE_UUID, uuid, sizeof uuid);
}

/* As create and collMod have them; `what`: {validator?, images?}. */
static void event_append_options(const bson_t *what, bool whole, bson_t *description)
{
    bson_t validator, images;
    bson_iter_t at;

    if (truce__value_subdocument(what, "validator", &validator))
        BSON_APPEND_DOCUMENT(description, "validator", &validator);
    if (whole && bson_has_field(what, "validator"))
        BCON_APPEND(description, "validationLevel", BCON_UTF8("strict"), "validationAction",
                    BCON_UTF8("error"));
    if (bson_iter_init_find(&at, what, "images") && BSON_ITER_HOLDS_BOOL(&at)) {
        BSON_APPEND_DOCUMENT_BEGIN(description, "changeStreamPreAndPostImages", &images);
        BSON_APPEND_BOOL(&images, "enabled", bson_iter_bool(&at));
        bson_append_document_end(description, &images);
    }
}

/* Of an index that was changed: {name, ...}, or as they were. */
static void event_append_index(const bson_t *what, const char *name, bson_t *to)
{
    bson_t index;

    if (truce__value_subdocument(what, "index", &index))
        BSON_APPEND_DOCUMENT(to, name, &index);
}

static void append_state_before(const struct watch_scope *scope, const struct feed_entry *entry,
                                bson_t *event)
{
    bson_t state, options;

    BSON_APPEND_DOCUMENT_BEGIN(event, "stateBeforeChange", &state);
    BSON_APPEND_DOCUMENT_BEGIN(&state, "collectionOptions", &options);
    event_append_uuid(scope, entry->number, "uuid", &options);
    event_append_options(&entry->had, true, &options);
    bson_append_document_end(&state, &options);
    event_append_index(&entry->had, "indexOptions", &state);
    bson_append_document_end(event, &state);
}

static void event_describe(const struct watch_scope *scope, const struct feed_entry *entry,
                           bson_t *description)
{
    bson_t indexes;

    if (entry->kind == FEED_RENAME) {
        append_names(scope, "to", entry->other, description);
        if (entry->dropped)
            event_append_uuid(scope, entry->dropped, "dropTarget", description);
    } else if (entry->kind == FEED_CREATE) {
        event_append_options(&entry->what, true, description);
        BCON_APPEND(description, "idIndex", "{", "v", BCON_INT32(2), "key", "{", "_id",
                    BCON_INT32(1), "}", "name", BCON_UTF8("_id_"), "}");
    } else if (entry->kind == FEED_MODIFY) {
        event_append_index(&entry->what, "index", description);
        event_append_options(&entry->what, false, description);
    } else {
        BSON_APPEND_ARRAY_BEGIN(description, "indexes", &indexes);
        BSON_APPEND_DOCUMENT(&indexes, "0", &entry->what);
        bson_append_array_end(description, &indexes);
    }
}

static void append_expanded(const struct watch_scope *scope, const struct feed_entry *entry,
                            bson_t *event)
{
    bson_t description;

    if (entry->number)
        event_append_uuid(scope, entry->number, "collectionUUID", event);
    if (!is_expanded(entry->kind) && entry->kind != FEED_RENAME)
        return;
    BSON_APPEND_DOCUMENT_BEGIN(event, "operationDescription", &description);
    event_describe(scope, entry, &description);
    bson_append_document_end(event, &description);
    if (entry->kind == FEED_MODIFY)
        append_state_before(scope, entry, event);
}

/* What paths there are that could be read otherwise is told to who asks, if there are none as well. */
static void append_difference(const struct watch_scope *scope, const bson_t *diff, bson_t *event)
{
    static const char name[] = "disambiguatedPaths";
    bool has = bson_has_field(diff, name);
    bson_t description, none = BSON_INITIALIZER;

    BSON_APPEND_DOCUMENT_BEGIN(event, "updateDescription", &description);
    if (has && !scope->expanded)
        bson_copy_to_excluding_noinit(diff, &description, name, NULL);
    else
        bson_concat(&description, diff);
    if (scope->expanded && !has)
        BSON_APPEND_DOCUMENT(&description, name, &none);
    bson_append_document_end(event, &description);
}

/* A view was made, changed or dropped: {operationType, ns, operationDescription: {viewOn, pipeline}}. */
static bson_t *view_event(const bson_oid_t *feed, const struct feed_entry *entry)
{
    const char *name = entry->kind == FEED_INSERT    ? "create"
                       : entry->kind == FEED_REPLACE ? "modify"
                                                     : "drop";
    bson_t *event = begin_event(feed, entry->position, WATCH_EVENT, name, entry->wall_ms);
    const char *ns = namespace_of_view(entry), *dot = strchr(ns, '.');
    bson_t names, description;

    BSON_APPEND_DOCUMENT_BEGIN(event, "ns", &names);
    bson_append_utf8(&names, "db", 2, ns, (int)(dot - ns));
    BSON_APPEND_UTF8(&names, "coll", dot + 1);
    bson_append_document_end(event, &names);
    if (entry->kind == FEED_DELETE)
        return event;
    bson_init(&description);
    bson_copy_to_excluding_noinit(&entry->document, &description, "_id", NULL);
    BSON_APPEND_DOCUMENT(event, "operationDescription", &description);
    bson_destroy(&description);
    return event;
}

/* ---- all of an event -------------------------------------------------------------------------------- */

bson_t *watch_event(const struct watch_scope *scope, const bson_oid_t *feed,
                    const struct feed_entry *entry)
{
    bson_t *event, ns;

    if (watch_is_of_view(scope, entry))
        return view_event(feed, entry);
    event =
        begin_event(feed, entry->position, WATCH_EVENT, event_name_of(entry->kind), entry->wall_ms);
    if (entry->kind == FEED_INSERT || entry->kind == FEED_REPLACE)
        BSON_APPEND_DOCUMENT(event, "fullDocument", &entry->document);
    if (entry->kind == FEED_DROP_DATABASE) {
        BSON_APPEND_DOCUMENT_BEGIN(event, "ns", &ns);
        BSON_APPEND_UTF8(&ns, "db", entry->collection);
        bson_append_document_end(event, &ns);
    } else {
        append_names(scope, "ns", entry->collection, event);
    }
    if (entry->other)
        append_names(scope, "to", entry->other, event);
    if (!bson_empty(&entry->id))
        BSON_APPEND_DOCUMENT(event, "documentKey", &entry->id);
    if (entry->kind == FEED_UPDATE)
        append_difference(scope, &entry->diff, event);
    if (scope->expanded)
        append_expanded(scope, entry, event);
    return event;
}

bson_t *watch_invalidate(const bson_oid_t *feed, int64_t position, int64_t wall_ms)
{
    return begin_event(feed, position, WATCH_INVALIDATE, "invalidate", wall_ms);
}

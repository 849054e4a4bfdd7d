/*
 * Change streams.
 *
 *     entries of the feed   ... 40 41 42 43 44 45 46
 *                                  ^at         ^reached
 *     queue                         42    44         the entries in between that the stream sees
 *
 * Invariants:
 *  1. `at` is the token of the last event that left the queue: sent, or filtered out by the
 *     stages. If the queue is empty, it is `reached`. So a client that resumes there misses no
 *     event and gets none twice.
 *  2. Only durable entries of the feed are read, so no client sees a change that a power cut
 *     undoes.
 *  3. The queue has at most QUEUE_BYTES and one more event. A read examines at most SCAN_MOST
 *     entries in one snapshot, so the snapshot ends soon.
 *  4. After the event that ends the stream comes "invalidate", and then nothing.
 *  5. An event is sent with the _id that it was created with, as clients resume by it. An event
 *     that is split stays first in the queue until its last fragment was sent.
 *
 * The server stores nothing for a stream: the client has the position.
 */
#include "server/session/change_stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/limits.h"
#include "bson/binary_text.h"
#include "bson/value.h"
#include "engine/documents/open_documents.h"
#include "query/aggregate/aggregate.h"
#include "store/file/file.h"
#include "store/mongodb/mongo_session.h"
#include "store/namespace_map.h"

/* ---- tokens ---------------------------------------------------------------------------------- */

/* engine/documents/change_feed.h has the format of a token. The byte after the position is an enum
 * change_stream_point; for a fragment, the number of the fragment is added to it. */

void change_stream_token_append(const struct change_stream_token *token, bson_t *document)
{
    int point = (int)token->point + (token->point == STREAM_FRAGMENT ? token->fragment : 0);
    char text[FEED_TOKEN_TEXT];

    truce__feed_token(&token->feed, token->position, (uint8_t)point, text);
    BSON_APPEND_UTF8(document, "_data", text);
}

static truce_status read_bytes(const char *text, uint32_t length, uint8_t bytes[FEED_TOKEN_BYTES],
                               bson_error_t *error)
{
    for (uint32_t i = 0; i < length; i++)
        if (truce__hex_digit(text[i]) < 0 || length % 2)
            return truce__refuse(CODE_FAILED_TO_PARSE, error,
                                 "resume token string was not a valid hex string");
    if (length != 2 * FEED_TOKEN_BYTES)
        return truce__refuse(CODE_INVALID_RESUME_TOKEN, error,
                             "the resume token is not one of truce: pass the _id of an event "
                             "unchanged");
    (void)truce__hex_read(text, length, bytes);
    return TRUCE_OK;
}

truce_status change_stream_token_read(const bson_t *document, struct change_stream_token *token,
                                      bson_error_t *error)
{
    struct value data = truce__value_field(truce__value_document(document), "_data", 5);
    uint8_t bytes[FEED_TOKEN_BYTES];
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
    if (bytes[0] != FEED_TOKEN_VERSION || position > INT64_MAX)
        return truce__refuse(CODE_INVALID_RESUME_TOKEN, error,
                             "the resume token was not made by truce");
    token->position = (int64_t)position;
    token->point =
        bytes[9] < STREAM_FRAGMENT ? (enum change_stream_point)bytes[9] : STREAM_FRAGMENT;
    token->fragment = bytes[9] < STREAM_FRAGMENT ? 0 : bytes[9] - STREAM_FRAGMENT;
    bson_oid_init_from_data(&token->feed, bytes + 10);
    return TRUCE_OK;
}

/* ---- visibility ------------------------------------------------------------------------------ */

/* Returns whether a scope of several collections includes those of the database. */
static bool stream_scope_includes(const struct change_stream_scope *scope, const char *database)
{
    if (scope->reach == STREAM_DATABASE)
        return !strcmp(database, scope->database);
    return !truce__database_is_system(database);
}

static bool is_within(const struct change_stream_scope *scope, const char *stored_name)
{
    char database[DATABASE_NAME_MAX + 1];
    const char *name;

    if (scope->reach == STREAM_COLLECTION)
        return !strcmp(stored_name, scope->stored_name);
    truce__stored_name_database(scope->own, stored_name, database);
    name = truce__stored_name_plain(scope->own, database, stored_name);
    return name && !truce__name_is_system(name) && stream_scope_includes(scope, database);
}

static bool is_expanded(enum feed_kind kind)
{
    return kind == FEED_CREATE || kind == FEED_MODIFY || kind == FEED_INDEX ||
           kind == FEED_INDEX_DROP;
}

/* Returns whether the entry creates, changes, or drops a view, for a stream with
 * showExpandedEvents. */
static bool change_stream_is_of_view(const struct change_stream_scope *scope,
                                     const struct feed_entry *entry)
{
    char database[DATABASE_NAME_MAX + 1];
    const char *name;

    if (!scope->expanded ||
        (entry->kind != FEED_INSERT && entry->kind != FEED_REPLACE && entry->kind != FEED_DELETE))
        return false;
    truce__stored_name_database(scope->own, entry->collection, database);
    name = truce__stored_name_plain(scope->own, database, entry->collection);
    return name && !strcmp(name, VIEWS_COLLECTION);
}

/* Returns the namespace in the _id of a view's document, or NULL if another program wrote the
 * document without one. */
static const char *namespace_of_view(const struct feed_entry *entry)
{
    struct value id = truce__value_field(truce__value_document(&entry->id), "_id", 3);
    uint32_t length;
    const char *text = id.type == BSON_TYPE_UTF8 ? truce__value_text(id, &length) : NULL;

    return text && strchr(text, '.') ? text : NULL;
}

static bool sees_view(const struct change_stream_scope *scope, const struct feed_entry *entry)
{
    char database[DATABASE_NAME_MAX + 1];

    truce__stored_name_database(scope->own, entry->collection, database);
    return scope->reach != STREAM_COLLECTION && namespace_of_view(entry) &&
           stream_scope_includes(scope, database);
}

/* Returns whether the stream has an event for the entry. */
static bool change_stream_sees(const struct change_stream_scope *scope,
                               const struct feed_entry *entry)
{
    if (is_expanded(entry->kind) && !scope->expanded)
        return false;
    if (change_stream_is_of_view(scope, entry))
        return sees_view(scope, entry);
    if (entry->kind == FEED_DROP_DATABASE)
        return scope->reach == STREAM_ALL ||
               (scope->reach == STREAM_DATABASE && !strcmp(entry->collection, scope->database));
    return is_within(scope, entry->collection) || (entry->other && is_within(scope, entry->other));
}

/* Returns whether the event of the entry ends the stream: a drop or rename of its collection, or
 * the drop of its database. */
static bool change_stream_ends(const struct change_stream_scope *scope,
                               const struct feed_entry *entry)
{
    if (entry->kind == FEED_DROP_DATABASE)
        return scope->reach == STREAM_DATABASE && change_stream_sees(scope, entry);
    return scope->reach == STREAM_COLLECTION && change_stream_sees(scope, entry) &&
           (entry->kind == FEED_DROP || entry->kind == FEED_RENAME);
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Returns MongoDB's operationType for a kind of entry. */
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

/* Begins an event that the caller completes and destroys: its _id is the token of the position. */
static bson_t *begin_event(const bson_oid_t *feed, int64_t position, enum change_stream_point point,
                           const char *name, int64_t wall_ms)
{
    const struct change_stream_token token = {.feed = *feed, .position = position, .point = point};
    bson_t *event = bson_new(), id;

    BSON_APPEND_DOCUMENT_BEGIN(event, "_id", &id);
    change_stream_token_append(&token, &id);
    bson_append_document_end(event, &id);
    BSON_APPEND_UTF8(event, "operationType", name);
    BSON_APPEND_TIMESTAMP(event, "clusterTime", (uint32_t)(position >> FEED_SECOND_SHIFT),
                          (uint32_t)(position & (((int64_t)1 << FEED_SECOND_SHIFT) - 1)));
    BSON_APPEND_DATE_TIME(event, "wallTime", wall_ms);
    return event;
}

static void append_names(const struct change_stream_scope *scope, const char *key,
                         const char *stored_name, bson_t *event)
{
    char database[DATABASE_NAME_MAX + 1];
    const char *name;
    bson_t ns;

    truce__stored_name_database(scope->own, stored_name, database);
    name = truce__stored_name_plain(scope->own, database, stored_name);
    BSON_APPEND_DOCUMENT_BEGIN(event, key, &ns);
    BSON_APPEND_UTF8(&ns, "db", database);
    BSON_APPEND_UTF8(&ns, "coll", name ? name : stored_name);
    bson_append_document_end(event, &ns);
}

/* ---- expanded events ------------------------------------------------------------------------- */

static void event_append_uuid(const struct change_stream_scope *scope, int64_t number,
                              const char *name, bson_t *document)
{
    uint8_t uuid[UUID_BYTES];

    truce__catalog_uuid(&scope->file, number, uuid);
    BSON_APPEND_BINARY(document, name, BSON_SUBTYPE_UUID, uuid, sizeof uuid);
}

/* Appends {validator?, images?} in the form of create and collMod. */
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

/* Appends the state of a changed index, {name, ...}, after or before the change. */
static void event_append_index(const bson_t *what, const char *name, bson_t *to)
{
    bson_t index;

    if (truce__value_subdocument(what, "index", &index))
        BSON_APPEND_DOCUMENT(to, name, &index);
}

static void append_state_before(const struct change_stream_scope *scope,
                                const struct feed_entry *entry, bson_t *event)
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

/* Appends the fields of `operationDescription` for a rename, a creation, a change, or an index. */
static void event_describe(const struct change_stream_scope *scope, const struct feed_entry *entry,
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

/* Appends the fields that an event has only with showExpandedEvents. */
static void append_expanded(const struct change_stream_scope *scope, const struct feed_entry *entry,
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

/* Appends the paths that are ambiguous because of dots or digits in names, if the client wants
 * them. */
static void append_difference(const struct change_stream_scope *scope, const bson_t *diff,
                              bson_t *event)
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

/* Returns the event of a view that was created, changed, or dropped: {operationType, ns,
 * operationDescription: {viewOn, pipeline}}. */
static bson_t *view_event(const bson_oid_t *feed, const struct feed_entry *entry)
{
    const char *name = entry->kind == FEED_INSERT    ? "create"
                       : entry->kind == FEED_REPLACE ? "modify"
                                                     : "drop";
    bson_t *event = begin_event(feed, entry->position, STREAM_EVENT, name, entry->wall_ms);
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

/* ---- whole events ---------------------------------------------------------------------------- */

/* Makes the event of an entry of the feed. The caller destroys it. */
static bson_t *change_stream_event(const struct change_stream_scope *scope, const bson_oid_t *feed,
                                   const struct feed_entry *entry)
{
    bson_t *event, ns;

    if (change_stream_is_of_view(scope, entry))
        return view_event(feed, entry);
    event = begin_event(feed, entry->position, STREAM_EVENT, event_name_of(entry->kind),
                        entry->wall_ms);
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

static bson_t *change_stream_invalidate(const bson_oid_t *feed, int64_t position, int64_t wall_ms)
{
    return begin_event(feed, position, STREAM_INVALIDATE, "invalidate", wall_ms);
}

/* ---- stages ---------------------------------------------------------------------------------- */

/*
 * The stages after $changeStream: the allowed ones, and the last of them,
 * $changeStreamSplitLargeEvent.
 *
 * An event larger than EVENT_BYTES is sent in fragments. Each fragment has some of the fields,
 * each field whole, and the number of fragments. Fields are taken in the order of their sizes, so
 * the first fragment has as many as fit.
 *
 *     {_id, splitEvent: {fragment: 1, of: 2}, operationType, ns, documentKey, fullDocument}
 *     {_id, splitEvent: {fragment: 2, of: 2}, fullDocumentBeforeChange}
 *
 * Invariants:
 *  1. An event is always split in the same way, so a stream can resume after any fragment.
 *  2. Each field of the event except `_id` is in exactly one fragment.
 */

#define SPLIT_STAGE    "$changeStreamSplitLargeEvent"
#define FRAGMENT_BYTES 256 /* The maximum size of a fragment without its fields. */

/* ---- allowed stages -------------------------------------------------------------------------- */

static truce_status check_split(const bson_iter_t *stage, bool last, bson_error_t *error)
{
    bson_iter_t inner;

    if (!BSON_ITER_HOLDS_DOCUMENT(stage) || !bson_iter_recurse(stage, &inner) ||
        bson_iter_next(&inner))
        return truce__refuse(7182800, error, SPLIT_STAGE " spec should be an empty object");
    if (!last)
        return truce__refuse(7182802, error, SPLIT_STAGE " must be the last stage in the pipeline");
    return TRUCE_OK;
}

/* Copies the stages without $changeStreamSplitLargeEvent to `rest`, which is always initialized.
 * Fails with 7182800 or 7182802. */
static truce_status change_stream_stages_take(const bson_t *stages, bson_t *rest, bool *splits,
                                              bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    uint32_t left = bson_count_keys(stages), count = 0;
    bson_iter_t at, stage;

    *splits = false;
    bson_init(rest);
    (void)bson_iter_init(&at, stages);
    while (!status && bson_iter_next(&at)) {
        left--;
        if (BSON_ITER_HOLDS_DOCUMENT(&at) && bson_iter_recurse(&at, &stage) &&
            bson_iter_next(&stage) && !strcmp(bson_iter_key(&stage), SPLIT_STAGE)) {
            status = check_split(&stage, !left, error);
            *splits = !status;
        } else {
            truce__value_append_element(rest, &count, truce__value_of_iter(&at));
        }
    }
    return status;
}

/* Checks compiled stages. Fails with 20 for a stage that change streams do not allow. */
static truce_status change_stream_stages_check(const bson_t *stages, bson_error_t *error)
{
    static const char *const allowed[] = {"$match", "$project",     "$addFields",   "$set",
                                          "$unset", "$replaceRoot", "$replaceWith", "$redact"};
    bson_iter_t at, stage;

    (void)bson_iter_init(&at, stages);
    while (bson_iter_next(&at)) {
        bool is_allowed = false;

        /* Cannot fail, because the compiler has checked the form. */
        (void)(bson_iter_recurse(&at, &stage) && bson_iter_next(&stage));
        for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
            is_allowed = is_allowed || !strcmp(bson_iter_key(&stage), allowed[i]);
        if (!is_allowed)
            return truce__refuse(CODE_ILLEGAL_OPERATION, error,
                                 "%s is not permitted in a $changeStream pipeline",
                                 bson_iter_key(&stage));
    }
    return TRUCE_OK;
}

/* ---- running them ---------------------------------------------------------------------------- */

struct one {
    /* Must be the first field: the pipeline reads the event through a pointer to it. */
    struct source base;
    const bson_t *document;
};

static truce_status next_of_one(struct source *base, const bson_t **document, bson_error_t *error)
{
    struct one *one = (struct one *)base;

    (void)error;
    *document = one->document;
    one->document = NULL;
    return TRUCE_OK;
}

static void free_one(struct source *base)
{
    bson_free(base);
}

static truce_status stages_check_id(const bson_t *event, const bson_t *shaped, bson_error_t *error)
{
    struct value before = truce__value_field(truce__value_document(event), "_id", 3);
    struct value after = truce__value_field(truce__value_document(shaped), "_id", 3);

    if (truce__value_identical(before, after))
        return TRUCE_OK;
    return truce__refuse(CODE_CHANGE_STREAM_FATAL, error,
                         "Encountered an event whose _id field, which contains the resume token, "
                         "was modified by the pipeline. Modifying the _id field of an event makes "
                         "it impossible to resume the stream from that point");
}

/* Runs the stages over an event. The caller destroys `*shaped`, which is NULL if the stages dropped
 * the event. */
static truce_status change_stream_stages_run(struct pipeline *pipeline, struct engine *engine,
                                             struct arena *arena, const bson_t *event,
                                             bson_t **shaped, bson_error_t *error)
{
    struct one *one = bson_malloc0(sizeof *one);
    struct query_context context = truce__engine_context(engine, arena);
    const bson_t *document = NULL;
    struct source *output;
    struct budget budget;
    truce_status status;

    *shaped = NULL;
    *one = (struct one){{.next = next_of_one, .free = free_one}, event};
    truce__engine_budget(engine, 0, &budget);
    context.budget = &budget;
    status = truce__pipeline_open(pipeline, 0, &one->base, NULL, &context, &output, error);
    if (status)
        return status;
    status = output->next(output, &document, error);
    if (!status && document)
        status = stages_check_id(event, document, error);
    if (!status && document)
        *shaped = bson_copy(document);
    output->free(output);
    return status;
}

/* ---- fragments ------------------------------------------------------------------------------- */

struct part {
    struct fields field;
    /* The size of the field in the document, with its type and name. */
    size_t size;
};

static int by_size(const void *a, const void *b)
{
    const struct part *left = a, *right = b;
    size_t common = left->field.key_length < right->field.key_length ? left->field.key_length
                                                                     : right->field.key_length;
    int order;

    if (left->size != right->size)
        return left->size < right->size ? -1 : 1;
    order = memcmp(left->field.key, right->field.key, common);
    return order ? order : (int)left->field.key_length - (int)right->field.key_length;
}

/* Returns all fields except _id, the smallest first. Free them with bson_free. */
static struct part *stages_parts_of(const bson_t *event, size_t *count)
{
    struct part *parts = bson_malloc0((bson_count_keys(event) + 1) * sizeof *parts);
    struct fields fields = truce__fields(truce__value_document(event));

    *count = 0;
    while (truce__fields_next(&fields)) {
        if (fields.key_length == 3 && !memcmp(fields.key, "_id", 3))
            continue;
        parts[*count].field = fields;
        parts[(*count)++].size = fields.key_length + 2 + fields.value.size;
    }
    qsort(parts, *count, sizeof *parts, by_size);
    return parts;
}

/* Returns the number of the first field after the fragment that begins with field `from`. */
static size_t stages_end_of(const struct part *parts, size_t count, size_t from)
{
    size_t size = FRAGMENT_BYTES, at = from;

    do
        size += parts[at++].size;
    while (at < count && size + parts[at].size <= EVENT_BYTES);
    return at;
}

/* Counts the fragments of an event that is too large. Fails with 7182500 or 7182502 if it cannot be
 * split. */
static truce_status change_stream_fragments(const bson_t *event, int *fragments,
                                            bson_error_t *error)
{
    size_t count;
    struct part *parts = stages_parts_of(event, &count);
    truce_status status = TRUCE_OK;

    *fragments = 0;
    for (size_t at = 0; at < count; at = stages_end_of(parts, count, at))
        ++*fragments;
    if (!count || *fragments > STREAM_FRAGMENTS_MAX)
        status =
            truce__refuse(7182502, error,
                          "the event is too large: it would be split into %d fragments, and the "
                          "maximum is %d",
                          *fragments, STREAM_FRAGMENTS_MAX);
    else if (parts[count - 1].size > EVENT_BYTES - FRAGMENT_BYTES)
        status = truce__refuse(7182500, error,
                               "Splitting change event failed: fragment size %zu is greater than "
                               "maximum allowed fragment size %d",
                               parts[count - 1].size + FRAGMENT_BYTES, EVENT_BYTES);
    bson_free(parts);
    return status;
}

/* Returns the fragment that the token names. Free it with bson_destroy. */
static bson_t *change_stream_fragment(const bson_t *event, int fragments,
                                      const struct change_stream_token *token)
{
    bson_t *fragment = bson_new(), inner;
    size_t count, at = 0, end;
    struct part *parts = stages_parts_of(event, &count);

    for (int i = 0; i < token->fragment; i++)
        at = stages_end_of(parts, count, at);
    BSON_APPEND_DOCUMENT_BEGIN(fragment, "_id", &inner);
    change_stream_token_append(token, &inner);
    bson_append_document_end(fragment, &inner);
    BSON_APPEND_DOCUMENT_BEGIN(fragment, "splitEvent", &inner);
    BSON_APPEND_INT32(&inner, "fragment", token->fragment + 1);
    BSON_APPEND_INT32(&inner, "of", fragments);
    bson_append_document_end(fragment, &inner);
    for (end = stages_end_of(parts, count, at); at < end; at++)
        truce__value_append(fragment, parts[at].field.key, parts[at].field.key_length,
                            parts[at].field.value);
    bson_free(parts);
    return fragment;
}

/* ---- streams --------------------------------------------------------------------------------- */

#define SCAN_MOST   1000
#define QUEUE_BYTES ((size_t)4 * 1024 * 1024)

/* An event in the queue, before its stages run. */
struct event {
    struct event *next;
    bson_t *document;
    /* The position in the feed of the entry from which the event was made. */
    int64_t position;
    enum change_stream_point point;
    /* `updates`: the event is an update. `whole`: it contains the whole document. */
    bool updates, whole;
    /* The stream requires the document before or after the change, but the feed has not stored
     * it. */
    bool no_before, no_after;
    /* For an update: the name of the collection in the store, where the current document is looked
     * up. */
    char *collection;
};

struct change_stream {
    /* A stream of a MongoDB server. The fields below except `scope` are unused then. */
    struct mongo_stream *passed;
    truce_store *store;
    struct engine *engine;
    struct change_stream_scope scope;
    enum change_stream_document full, before;
    /* The stages after $changeStream, or NULL. */
    struct pipeline *pipeline;
    struct arena arena;
    /* The token from which a client resumes (invariant 1). */
    struct change_stream_token at;
    /* The feed was read up to `reached`. Entries before `from` are skipped. */
    int64_t reached, from;
    /* The queue of events that were not sent yet. Owned. */
    struct event *first, **end;
    /* The size of the queue in bytes. */
    size_t queued;
    /* The event that ends the stream is queued or was sent. */
    bool ends;

    /* Events that are too large are sent in fragments. */
    bool splits;
    /* The event that is being sent in fragments, or NULL. */
    bson_t *split;
    /* The next fragment of this event, and the number of its fragments. */
    int fragment, fragments;
    /* For a stream that resumes after a fragment: the position of the event, and the number of its
     * fragments that the client has received. */
    int64_t skip_at;
    int skip;
};

/* ---- the queue ------------------------------------------------------------------------------- */

/* Appends the images of the document that the client requested. */
static void change_stream_append_images(const struct change_stream *watch,
                                        const struct feed_entry *entry, struct event *event)
{
    bool before = watch->before != STREAM_NONE && (event->updates || event->whole);
    bool after = event->updates && (watch->full == STREAM_IF_ANY || watch->full == STREAM_REQUIRED);

    event->no_after = after && bson_empty(&entry->after);
    event->no_before = before && bson_empty(&entry->before);
    if (after && !event->no_after)
        BSON_APPEND_DOCUMENT(event->document, "fullDocument", &entry->after);
    else if (after)
        BSON_APPEND_NULL(event->document, "fullDocument");
    if (before && !event->no_before)
        BSON_APPEND_DOCUMENT(event->document, "fullDocumentBeforeChange", &entry->before);
    else if (before)
        BSON_APPEND_NULL(event->document, "fullDocumentBeforeChange");
}

/* Appends an event to the queue, which takes over the document. If `entry` is not NULL, also
 * appends the images that the client requested, and remembers what change_stream_complete needs. */
static void change_stream_push(struct change_stream *watch, bson_t *document, int64_t position,
                               enum change_stream_point point, const struct feed_entry *entry)
{
    struct event *event = bson_malloc0(sizeof *event);

    event->document = document;
    event->position = position;
    event->point = point;
    if (entry) {
        event->updates = entry->kind == FEED_UPDATE;
        event->whole = entry->kind == FEED_REPLACE || entry->kind == FEED_DELETE;
        event->collection = event->updates ? bson_strdup(entry->collection) : NULL;
        change_stream_append_images(watch, entry, event);
    }
    *watch->end = event;
    watch->end = &event->next;
    watch->queued += document->len;
}

static void free_event(struct event *event)
{
    bson_destroy(event->document);
    bson_free(event->collection);
    bson_free(event);
}

/* Removes the first event of the queue, and sets the stream's token to it. */
static void stream_remove_first(struct change_stream *watch)
{
    struct event *event = watch->first;

    watch->at.position = event->position;
    watch->at.point = event->point;
    watch->queued -= event->document->len;
    watch->first = event->next;
    if (!watch->first)
        watch->end = &watch->first;
    free_event(event);
}

static void push_invalidate(struct change_stream *watch, const struct feed_entry *entry)
{
    change_stream_push(watch,
                       change_stream_invalidate(&watch->at.feed, entry->position, entry->wall_ms),
                       entry->position, STREAM_INVALIDATE, NULL);
    watch->ends = true;
}

/* Queues the event of an entry that the stream sees. Returns false, which ends the read of the
 * feed, if the stream has ended or the queue is full. */
static bool change_stream_take(void *arg, const struct feed_entry *entry)
{
    struct change_stream *watch = arg;
    bson_t *event;

    if (watch->ends)
        return false;
    if (entry->position < watch->from || !change_stream_sees(&watch->scope, entry))
        return true;
    if (watch->first && watch->queued > QUEUE_BYTES)
        return false;
    event = change_stream_event(&watch->scope, &watch->at.feed, entry);
    change_stream_push(watch, event, entry->position, STREAM_EVENT,
                       change_stream_is_of_view(&watch->scope, entry) ? NULL : entry);
    if (change_stream_ends(&watch->scope, entry))
        push_invalidate(watch, entry);
    return true;
}

static truce_status change_stream_lost(bson_error_t *error)
{
    return truce__refuse(CODE_CHANGE_STREAM_HISTORY_LOST, error,
                         "Resume of change stream was not possible, as the resume point may no "
                         "longer be in the feed of changes");
}

/* Converts failures of the feed: EXPIRED becomes 286, and INVALID becomes 280. */
static truce_status change_stream_explain(truce_status status, bson_error_t *error)
{
    if (status == TRUCE_EXPIRED)
        return change_stream_lost(error);
    if (status == TRUCE_INVALID)
        return truce__refuse(CODE_CHANGE_STREAM_FATAL, error,
                             "cannot resume stream; the resume token was not found");
    return status;
}

/* Reads more entries if the queue is empty. Sets *more to whether entries were read. */
static truce_status change_stream_fill(struct change_stream *watch, bool *more, bson_error_t *error)
{
    int64_t from = watch->reached;
    truce_status status;

    *more = false;
    if (watch->first || watch->ends)
        return TRUCE_OK;
    status = truce__engine_feed_read(watch->engine, &watch->at.feed, watch->reached, SCAN_MOST,
                                     change_stream_take, watch, &watch->reached, error);
    if (status)
        return change_stream_explain(status, error);
    if (!watch->first && watch->reached > watch->at.position) {
        watch->at.position = watch->reached;
        watch->at.point = STREAM_MARK;
    }
    *more = watch->reached > from;
    return TRUCE_OK;
}

/* ---- sending events -------------------------------------------------------------------------- */

static truce_status no_image(const char *which, const char *events, bson_error_t *error)
{
    return truce__refuse(CODE_NO_MATCHING_DOCUMENT, error,
                         "Change stream was configured to require a %s-image for all %s events, "
                         "but the %s-image was not found for event: it was not kept",
                         which, events, which);
}

/* Appends the current document, or null. */
static truce_status change_stream_look_up(struct change_stream *watch, const struct event *event,
                                          bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, key, equal, document;
    bson_iter_t id;
    truce_status status;

    if (!truce__value_subdocument(event->document, "documentKey", &key) ||
        !bson_iter_init_find(&id, &key, "_id"))
        return truce__fail(TRUCE_CORRUPT, error,
                           "the update at position %" PRId64
                           " of the feed has no documentKey._id: check the file with truce check",
                           event->position);
    BSON_APPEND_DOCUMENT_BEGIN(&filter, "_id", &equal);
    BSON_APPEND_VALUE(&equal, "$eq", bson_iter_value(&id));
    bson_append_document_end(&filter, &equal);
    status = truce_find_one(watch->store, event->collection, &filter, NULL, &document, error);
    if (!status)
        BSON_APPEND_DOCUMENT(event->document, "fullDocument", &document);
    else if (status == TRUCE_NOT_FOUND)
        BSON_APPEND_NULL(event->document, "fullDocument");
    bson_destroy(&document);
    bson_destroy(&filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static truce_status change_stream_complete(struct change_stream *watch, struct event *event,
                                           bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (event->no_after && watch->full == STREAM_REQUIRED)
        return no_image("post", "update", error);
    if (event->no_before && watch->before == STREAM_REQUIRED)
        return no_image("pre", "update, delete and replace", error);
    if (event->updates && watch->full == STREAM_LOOKUP)
        status = change_stream_look_up(watch, event, error);
    return status;
}

/* Checks the size of an event. The maximum applies to the event after the stages. */
static truce_status check_size(const bson_t *shaped, bson_error_t *error)
{
    if (shaped->len <= EVENT_BYTES)
        return TRUCE_OK;
    return truce__refuse(CODE_BSON_OBJECT_TOO_LARGE, error,
                         "BSONObj size: %u (0x%X) is invalid. Size must be between 0 and %d(16MB)",
                         shaped->len, shaped->len, EVENT_BYTES);
}

static void change_stream_append(bson_t *batch, uint32_t *count, const bson_t *document)
{
    char buffer[16];
    const char *key;

    bson_uint32_to_string((*count)++, &key, buffer, sizeof buffer);
    BSON_APPEND_DOCUMENT(batch, key, document);
}

/* ---- fragments ------------------------------------------------------------------------------- */

static truce_status another_split(const char *how, bson_error_t *error)
{
    return truce__refuse(CODE_CHANGE_STREAM_FATAL, error,
                         "Attempted to resume from a split event%s", how);
}

/* Begins to split an event, after the fragments that a resumed stream skips. The stream takes over
 * the document. */
static truce_status begin_split(struct change_stream *watch, bson_t *document, bson_error_t *error)
{
    bool resumed = watch->skip && watch->first->position == watch->skip_at;
    truce_status status = change_stream_fragments(document, &watch->fragments, error);

    watch->split = document;
    watch->fragment = resumed ? watch->skip : 0;
    if (!status && watch->fragment > watch->fragments)
        status = another_split(", but the resumed stream produced a different split. Ensure that "
                               "the pipeline used to resume is the same as the original",
                               error);
    return status;
}

static void end_split(struct change_stream *watch)
{
    bson_destroy(watch->split);
    watch->split = NULL;
    stream_remove_first(watch);
}

/* Appends the next fragment of the split event to the batch, and removes the event after its last
 * fragment. Sets `*fits` to false if the fragment stays for the next batch. */
static void change_stream_send_fragment(struct change_stream *watch, bson_t *batch, uint32_t *count,
                                        bool *fits)
{
    const struct change_stream_token token = {watch->at.feed, watch->first->position,
                                              STREAM_FRAGMENT, watch->fragment};
    bson_t *fragment;

    if (watch->fragment == watch->fragments) {
        end_split(watch);
        return;
    }
    fragment = change_stream_fragment(watch->split, watch->fragments, &token);
    *fits = !*count || batch->len + fragment->len <= TRUCE_DOCUMENT_BYTES_MAX;
    if (*fits) {
        change_stream_append(batch, count, fragment);
        watch->at = token;
        if (++watch->fragment == watch->fragments)
            end_split(watch);
    }
    bson_destroy(fragment);
}

/* Takes over the result of the stages for the first event of the queue, and sends it, whole or in
 * fragments. */
static truce_status change_stream_send(struct change_stream *watch, bson_t *document, bson_t *batch,
                                       uint32_t *count, bson_error_t *error)
{
    truce_status status;

    if (watch->splits && document->len > EVENT_BYTES)
        return begin_split(watch, document, error);
    if (watch->skip && watch->first->position == watch->skip_at)
        status =
            another_split(" fragment, but the event in the resumed stream was not large enough "
                          "to be split",
                          error);
    else
        status = check_size(document, error);
    if (!status) {
        change_stream_append(batch, count, document);
        stream_remove_first(watch);
    }
    bson_destroy(document);
    return status;
}

/* Appends the first event of the queue, or the next fragment of it, to the batch. Sets `*fits` to
 * false if it stays for the next batch. */
static truce_status change_stream_report(struct change_stream *watch, bson_t *batch,
                                         uint32_t *count, bool *fits, bson_error_t *error)
{
    struct event *event = watch->first;
    bson_t *shaped = NULL;
    truce_status status = TRUCE_OK;

    if (watch->split) {
        change_stream_send_fragment(watch, batch, count, fits);
        return TRUCE_OK;
    }
    *fits = !*count || batch->len + event->document->len <= TRUCE_DOCUMENT_BYTES_MAX;
    if (!*fits)
        return TRUCE_OK;
    status = change_stream_complete(watch, event, error);
    if (!status && watch->pipeline)
        status = change_stream_stages_run(watch->pipeline, watch->engine, &watch->arena,
                                          event->document, &shaped, error);
    if (status) {
        if (shaped)
            bson_destroy(shaped);
        return status;
    }
    if (!shaped && watch->pipeline) {
        stream_remove_first(watch);
        return TRUCE_OK;
    }
    return change_stream_send(watch, shaped ? shaped : bson_copy(event->document), batch, count,
                              error);
}

truce_status change_stream_read(struct change_stream *watch, int64_t most, bson_t *batch,
                                uint32_t *count, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bool more = true, fits = true;

    *count = 0;
    if (watch->passed)
        return truce__mongo_stream_take(watch->passed, batch, count, error);
    while (!status && more && fits && (most < 0 || *count < most)) {
        status = change_stream_fill(watch, &more, error);
        more = more || watch->first;
        while (!status && fits && watch->first && (most < 0 || *count < most))
            status = change_stream_report(watch, batch, count, &fits, error);
    }
    return status;
}

/* ---- opening and closing --------------------------------------------------------------------- */

struct entry_search {
    const struct change_stream_scope *scope;
    int64_t position, wall_ms;
    bool found, ends;
};

static bool change_stream_take_collection(void *arg, const struct feed_entry *entry)
{
    struct entry_search *search = arg;

    search->found = entry->position == search->position;
    search->ends = search->found && change_stream_ends(search->scope, entry);
    search->wall_ms = entry->wall_ms;
    return true;
}

/* Reads the entry of the token. If its event ended the stream, queues "invalidate". Fails with 280
 * if the feed has no such entry. */
static truce_status change_stream_find_event(struct change_stream *watch,
                                             const struct feed_state *state, bson_error_t *error)
{
    struct entry_search search = {.scope = &watch->scope, .position = watch->at.position};
    int64_t reached;
    truce_status status;

    /* The entry was pruned, and entries after it may have been pruned, too. */
    if (watch->at.position <= state->horizon)
        return TRUCE_OK;
    status = truce__engine_feed_read(watch->engine, &watch->at.feed, watch->at.position - 1, 1,
                                     change_stream_take_collection, &search, &reached, error);
    if (!status && !search.found)
        status = TRUCE_INVALID;
    if (!status && search.ends)
        push_invalidate(
            watch, &(struct feed_entry){.position = watch->at.position, .wall_ms = search.wall_ms});
    return change_stream_explain(status, error);
}

/* Positions a stream after a fragment. The event of the fragment is read again. */
static truce_status set_out_within(struct change_stream *watch, const struct feed_state *state,
                                   bson_error_t *error)
{
    if (!watch->splits)
        return another_split(" fragment, but the pipeline has no $changeStreamSplitLargeEvent",
                             error);
    if (watch->at.position <= state->horizon)
        return change_stream_lost(error);
    watch->skip_at = watch->at.position;
    watch->skip = watch->at.fragment + 1;
    watch->reached = watch->at.position - 1;
    return change_stream_find_event(watch, state, error);
}

/* Sets the position at which the stream starts. Fails if the feed has not kept the changes since
 * then. */
static truce_status set_out(struct change_stream *watch,
                            const struct change_stream_options *options, bson_error_t *error)
{
    struct feed_state state;
    truce_status status = truce__engine_feed_state(watch->engine, &state, error);

    if (!status && !state.spec.table)
        status = truce__refuse(40573, error,
                               "The $changeStream stage is only supported by a store in a file "
                               "that has a feed of changes: start truce serve with --feed-keep "
                               "24h");
    if (status)
        return status;
    watch->scope.file = state.file;
    watch->at = (struct change_stream_token){.feed = state.spec.id, .position = state.last};
    if (options->from) {
        watch->from = options->from;
        if (options->from <= state.horizon)
            return change_stream_lost(error);
        if (options->from <= state.last)
            watch->at.position = options->from - 1;
    }
    if (options->resume) {
        watch->at = *options->resume;
        if (!bson_oid_equal(&watch->at.feed, &state.spec.id) || watch->at.position < state.horizon)
            return change_stream_lost(error);
        if (watch->at.position > state.last)
            return change_stream_explain(TRUCE_INVALID, error);
    }
    watch->reached = watch->at.position;
    if (watch->at.point == STREAM_FRAGMENT)
        return set_out_within(watch, &state, error);
    return watch->at.point == STREAM_EVENT ? change_stream_find_event(watch, &state, error)
                                           : TRUCE_OK;
}

static truce_status compile_stages(struct change_stream *watch, const bson_t *stages,
                                   bson_error_t *error)
{
    bson_t rest;
    truce_status status = change_stream_stages_take(stages, &rest, &watch->splits, error);

    if (!status && !bson_empty(&rest)) {
        status = truce__pipeline_new(&rest, &watch->pipeline, error);
        if (!status)
            status = change_stream_stages_check(&rest, error);
    }
    bson_destroy(&rest);
    return status;
}

/* Makes the pipeline of a stream that is passed on. The store has the collections of other
 * databases as @DATABASE.NAME. A stream of its database does not show them. */
static void change_stream_pipeline(const struct change_stream_options *options, bson_t *pipeline)
{
    bson_t *first = BCON_NEW("$changeStream", BCON_DOCUMENT(options->stage));
    bson_t *own = BCON_NEW("$match", "{", "ns.coll", "{", "$not", BCON_REGEX("^@", ""), "}", "}");
    struct fields fields = truce__fields(truce__value_document(options->stages));
    uint32_t count = 0;

    bson_init(pipeline);
    truce__value_append_element(pipeline, &count, truce__value_document(first));
    if (options->reach == STREAM_DATABASE)
        truce__value_append_element(pipeline, &count, truce__value_document(own));
    while (truce__fields_next(&fields))
        truce__value_append_element(pipeline, &count, fields.value);
    bson_destroy(own);
    bson_destroy(first);
}

/* Opens a stream on the MongoDB server of the store, whose events are passed on. Fails with 72 for
 * another database, and for a stream of all databases. */
static truce_status change_stream_pass(truce_store *store,
                                       const struct change_stream_options *options,
                                       struct change_stream *watch, bson_error_t *error)
{
    truce_status status;
    bson_t pipeline;

    if (options->reach == STREAM_ALL || strcmp(options->database, options->own) != 0)
        return truce__refuse(
            CODE_INVALID_OPTIONS, error,
            "this server passes on the change streams of the database \"%s\" only: "
            "for other databases and the whole cluster, connect to MongoDB",
            options->own);
    change_stream_pipeline(options, &pipeline);
    status = truce__mongo_stream_open(
        store, options->reach == STREAM_COLLECTION ? options->stored_name : NULL, &pipeline,
        options->batch, &watch->passed, error);
    bson_destroy(&pipeline);
    return status;
}

truce_status change_stream_new(truce_store *store, const struct change_stream_options *options,
                               struct change_stream **watch, bson_error_t *error)
{
    struct change_stream *made = bson_malloc0(sizeof *made);
    truce_status status = TRUCE_OK;

    made->store = store;
    made->engine = truce__file_engine_or_null(store);
    made->end = &made->first;
    made->full = options->full;
    made->before = options->before;
    made->scope.reach = options->reach;
    made->scope.expanded = options->expanded;
    snprintf(made->scope.own, sizeof made->scope.own, "%s", options->own);
    snprintf(made->scope.database, sizeof made->scope.database, "%s", options->database);
    snprintf(made->scope.stored_name, sizeof made->scope.stored_name, "%s",
             options->stored_name ? options->stored_name : "");
    if (truce__mongo_is(store))
        status = change_stream_pass(store, options, made, error);
    else if (options->stages)
        status = compile_stages(made, options->stages, error);
    if (!status && !made->engine && !made->passed)
        status = truce__refuse(40573, error,
                               "The $changeStream stage is only supported by a store in a file "
                               "that has a feed of changes: start truce serve with --feed-keep "
                               "24h");
    if (!status && !made->passed)
        status = set_out(made, options, error);
    if (status) {
        change_stream_free(made);
        made = NULL;
    }
    *watch = made;
    return status;
}

void change_stream_free(struct change_stream *watch)
{
    if (!watch)
        return;
    truce__mongo_stream_close(watch->passed);
    while (watch->first)
        stream_remove_first(watch);
    if (watch->split)
        bson_destroy(watch->split);
    truce__pipeline_free(watch->pipeline);
    truce__arena_release(&watch->arena);
    bson_free(watch);
}

bool change_stream_is_over(const struct change_stream *watch)
{
    return watch->passed ? truce__mongo_stream_is_over(watch->passed)
                         : watch->ends && !watch->first;
}

void change_stream_append_token(const struct change_stream *watch, const char *name, bson_t *to)
{
    bson_t token = BSON_INITIALIZER;

    if (!watch->passed)
        change_stream_token_append(&watch->at, &token);
    if (!watch->passed || truce__mongo_stream_token(watch->passed, &token))
        bson_append_document(to, name, -1, &token);
    bson_destroy(&token);
}

enum change_stream_reach change_stream_reach(const struct change_stream *watch)
{
    return watch->scope.reach;
}

/* The interval between two checks whether a wait must end. For a stream of a MongoDB server, each
 * check costs a message. */
#define SLICE_MS        100
#define PASSED_SLICE_MS 500

truce_status change_stream_wait(struct change_stream *watch, uint64_t *seen, int64_t most,
                                int64_t left_ms, bson_error_t *error)
{
    int64_t slice_ms = watch->passed ? PASSED_SLICE_MS : SLICE_MS;
    /* After a failure, the caller checks for events and for reasons to end. */
    bson_error_t ignored;

    slice_ms = left_ms < slice_ms ? left_ms : slice_ms;
    if (watch->passed)
        return truce__mongo_stream_next(watch->passed, most, slice_ms > 1 ? (uint32_t)slice_ms : 1,
                                        error);
    (void)!truce__engine_wait(watch->engine, FEED_WAKE, seen, slice_ms > 0 ? (uint32_t)slice_ms : 0,
                              &ignored);
    return TRUCE_OK;
}

#include "broker/feed_events.h"

#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/field.h"
#include "base/status.h"
#include "bson/date.h"
#include "bson/json.h"
#include "engine/documents/open_documents.h"
#include "store/decorators/database_view.h"
#include "store/file/file.h"
#include "store/reserved_names.h"
#include "store/store.h"

/* The maximum number of entries of one read, which holds a snapshot. */
#define FEED_EVENTS_SCAN       1000
#define FEED_EVENTS_BYTES      ((size_t)8 * 1024 * 1024)
#define FEED_EVENTS_STORE_NS   INT64_C(10000000000)
#define FEED_EVENTS_FEED_BYTES (INT64_C(1) << 30)

struct feed_item {
    /* Must be the first field: callers get a pointer to the event. */
    struct feed_event event;
    /* The data of the event. They are moved into event.document when the event is complete. */
    bson_t data;
    bool complete;
};

/* A position in the feed. `operation` is the first entry of the operation at the position, and
 * `index` counts the events of the operation so far. */
struct feed_position {
    int64_t position, operation;
    int32_t index;
};

struct feed_events {
    truce_store *store;
    struct engine *engine;
    bson_oid_t feed;
    /* The name of the collection, as users and as the file know it. */
    char *collection, stored_name[STORED_NAME_MAX];
    /* The source of the events, the name of the position, and the URL of the broker; owned. */
    char *source, *publisher, *to;
    /* The position up to which the broker has confirmed all events, and the position at which
     * reading continues. */
    struct feed_position confirmed, reached;
    /* The stored position, and the time when it was stored (monotonic). */
    int64_t stored, stored_ns;
    uint64_t seen;
    /* The maximum and the current number of events of the batch, the elements allocated, and the
     * bytes of the events' data. */
    size_t most, count, room, bytes;
    struct feed_item *items;
    /* `full`: an entry did not fit into the batch. `full_continues`: this entry belongs to the
     * operation of the last event. */
    bool full, full_continues;
};

/* ---- events ---------------------------------------------------------------------------------- */

static const char *feed_event_type(enum feed_kind kind)
{
    switch (kind) {
    case FEED_INSERT:
        return "truce.insert";
    case FEED_UPDATE:
        return "truce.update";
    case FEED_REPLACE:
        return "truce.replace";
    case FEED_DELETE:
        return "truce.delete";
    case FEED_DROP:
        return "truce.drop";
    case FEED_RENAME:
        return "truce.rename";
    default:
        return NULL;
    }
}

/* Returns whether a string can be a key as it is. A string of CloudEvents has no control
 * characters. */
static bool feed_event_is_plain(const char *text, uint32_t length)
{
    for (uint32_t i = 0; i < length; i++)
        if ((uint8_t)text[i] < 0x20 || text[i] == 0x7f)
            return false;
    return length > 0;
}

/* Makes the key of a document: a string and an ObjectId as they are, and other values as JSON. */
static char *feed_event_make_key(const bson_t *id)
{
    struct buffer text = {0};
    const char *string;
    bson_iter_t at;
    uint32_t length = 0;
    char hex[25];

    if (!bson_iter_init_find(&at, id, "_id"))
        return NULL;
    if (BSON_ITER_HOLDS_OID(&at)) {
        bson_oid_to_string(bson_iter_oid(&at), hex);
        return bson_strdup(hex);
    }
    string = BSON_ITER_HOLDS_UTF8(&at) ? bson_iter_utf8(&at, &length) : NULL;
    if (string && feed_event_is_plain(string, length))
        return bson_strdup(string);
    truce__json_write_value(&text, &at, JSON_RELAXED);
    truce__buffer_append_byte(&text, 0);
    return (char *)text.bytes;
}

/* Appends {operationType, collection, documentKey?, fullDocument?, updateDescription?,
 * fullDocumentBeforeChange?, from?, to?}. Most names are those of MongoDB's change events. */
static void feed_event_append_data(bson_t *data, const struct feed_entry *entry,
                                   const struct feed_events *changes)
{
    BSON_APPEND_UTF8(data, "operationType", strchr(feed_event_type(entry->kind), '.') + 1);
    BSON_APPEND_UTF8(data, "collection", changes->collection);
    if (!bson_empty(&entry->id))
        BSON_APPEND_DOCUMENT(data, "documentKey", &entry->id);
    if (entry->kind == FEED_INSERT || entry->kind == FEED_REPLACE)
        BSON_APPEND_DOCUMENT(data, "fullDocument", &entry->document);
    if (entry->kind == FEED_UPDATE)
        BSON_APPEND_DOCUMENT(data, "updateDescription", &entry->diff);
    if (!bson_empty(&entry->before))
        BSON_APPEND_DOCUMENT(data, "fullDocumentBeforeChange", &entry->before);
    if (!bson_empty(&entry->after))
        BSON_APPEND_DOCUMENT(data, "fullDocument", &entry->after);
    if (entry->kind == FEED_RENAME) {
        BSON_APPEND_UTF8(data, "from", entry->collection);
        BSON_APPEND_UTF8(data, "to", entry->other);
    }
}

/* Appends the attributes of CloudEvents 1.0, with the extensions partitionkey and sequence of its
 * specification. */
static void feed_event_append_attributes(bson_t *to, const struct feed_entry *entry,
                                         const struct feed_events *changes,
                                         const struct feed_event *event)
{
    char time[DATE_TEXT_MAX], sequence[17], operation[FEED_TOKEN_TEXT];

    snprintf(sequence, sizeof sequence, "%016llx", (unsigned long long)entry->position);
    truce__feed_token(&changes->feed, changes->reached.operation, FEED_TOKEN_EVENT, operation);
    BSON_APPEND_UTF8(to, "specversion", "1.0");
    BSON_APPEND_UTF8(to, "id", event->id);
    BSON_APPEND_UTF8(to, "source", changes->source);
    BSON_APPEND_UTF8(to, "type", feed_event_type(entry->kind));
    if (event->key) {
        BSON_APPEND_UTF8(to, "subject", event->key);
        BSON_APPEND_UTF8(to, "partitionkey", event->key);
    }
    BSON_APPEND_UTF8(to, "time", truce__date_show(entry->wall_ms, time));
    BSON_APPEND_UTF8(to, "datacontenttype", "application/json");
    BSON_APPEND_UTF8(to, "sequence", sequence);
    BSON_APPEND_UTF8(to, "transaction", operation);
    BSON_APPEND_INT32(to, "transactionindex", changes->reached.index);
}

/* Adds the last parts of an event. `last` says whether it is the last event of its operation. */
static void feed_event_complete(struct feed_item *item, bool last)
{
    if (item->complete)
        return;
    item->complete = true;
    BSON_APPEND_BOOL(&item->event.document, "transactionlast", last);
    BSON_APPEND_DOCUMENT(&item->event.document, "data", &item->data);
    bson_destroy(&item->data);
}

/* Appends the event of an entry to the batch. feed_event_complete adds the data and
 * `transactionlast` when the next entry is known. */
static void feed_events_add(struct feed_events *changes, const struct feed_entry *entry)
{
    struct feed_item *item;

    if (changes->count == changes->room) {
        changes->room = changes->room ? 2 * changes->room : 64;
        changes->items = bson_realloc(changes->items, changes->room * sizeof *changes->items);
    }
    item = &changes->items[changes->count++];
    memset(item, 0, sizeof *item);
    changes->reached.index++;
    /* Invariant BF2: the id is the resume token, so a repetition has the same id. */
    truce__feed_token(&changes->feed, entry->position, FEED_TOKEN_EVENT, item->event.id);
    item->event.key = feed_event_make_key(&entry->id);
    bson_init(&item->event.document);
    bson_init(&item->data);
    feed_event_append_attributes(&item->event.document, entry, changes, &item->event);
    feed_event_append_data(&item->data, entry, changes);
    changes->bytes += item->data.len;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool feed_events_sees(const struct feed_events *changes, const struct feed_entry *entry)
{
    return feed_event_type(entry->kind) &&
           (!strcmp(entry->collection, changes->stored_name) ||
            (entry->kind == FEED_RENAME && !strcmp(entry->other, changes->stored_name)));
}

/* Appends the event of an entry of the feed, if the reader sees it (a feed_take function). Returns
 * false if there is no room for the event. */
static bool feed_events_take(void *arg, const struct feed_entry *entry)
{
    struct feed_events *changes = arg;
    bool sees = feed_events_sees(changes, entry);

    if (!entry->continues && changes->count)
        feed_event_complete(&changes->items[changes->count - 1], true);
    changes->full =
        sees && (changes->count == changes->most || changes->bytes >= FEED_EVENTS_BYTES);
    changes->full_continues = entry->continues;
    if (changes->full)
        return false;
    if (!entry->continues || !changes->reached.operation) {
        changes->reached.operation = entry->position;
        changes->reached.index = 0;
    }
    if (sees) {
        if (changes->count)
            feed_event_complete(&changes->items[changes->count - 1], false);
        feed_events_add(changes, entry);
    }
    return true;
}

static truce_status feed_events_lost(const struct feed_events *changes, bson_error_t *error)
{
    return truce__fail(TRUCE_EXPIRED, error,
                       "changes of %.80s after the position of the publisher \"%.80s\" were "
                       "removed from the feed: copy the collection to the receivers. Then "
                       "continue with --from latest, or with --from oldest to publish the rest",
                       changes->collection, changes->publisher);
}

truce_status truce__feed_events_fill(struct feed_events *changes, size_t most, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    int64_t from;
    bool more = true;

    changes->most = most;
    changes->full = false;
    /* Whether the last event ends its operation is known only after the next entry was read. */
    while (!status && more && !changes->full) {
        from = changes->reached.position;
        status =
            truce__engine_feed_read(changes->engine, &changes->feed, from, FEED_EVENTS_SCAN,
                                    feed_events_take, changes, &changes->reached.position, error);
        more = changes->reached.position > from;
    }
    if (!status && changes->count)
        feed_event_complete(&changes->items[changes->count - 1],
                            !changes->full || !changes->full_continues);
    /* Invariant BF4: entries after the position were removed: fails instead of skipping changes. */
    if (status == TRUCE_EXPIRED)
        status = feed_events_lost(changes, error);
    return status;
}

size_t truce__feed_events_count(const struct feed_events *changes)
{
    return changes->count;
}

const struct feed_event *truce__feed_events_event(const struct feed_events *changes, size_t i)
{
    return &changes->items[i].event;
}

static void feed_events_empty(struct feed_events *changes)
{
    for (size_t i = 0; i < changes->count; i++) {
        struct feed_item *item = &changes->items[i];

        bson_free(item->event.key);
        bson_destroy(&item->event.document);
        if (!item->complete)
            bson_destroy(&item->data);
    }
    changes->count = changes->bytes = 0;
}

void truce__feed_events_drop(struct feed_events *changes)
{
    feed_events_empty(changes);
    changes->reached = changes->confirmed;
}

void truce__feed_events_wait(struct feed_events *changes, uint32_t timeout_ms)
{
    bson_error_t ignored; /* The caller reads the feed next, and reports that failure. */

    (void)!truce__engine_wait(changes->engine, FEED_WAKE, &changes->seen, timeout_ms, &ignored);
}

/* ---- the position ---------------------------------------------------------------------------- */

static bson_t *feed_events_filter(const struct feed_events *changes)
{
    return BCON_NEW("_id", "{", "publisher", BCON_UTF8(changes->publisher), "}");
}

/* Stores the position that was reached. */
static truce_status feed_events_store(struct feed_events *changes, bson_error_t *error)
{
    const struct feed_position *position = &changes->reached;
    bson_t *filter = feed_events_filter(changes);
    bson_t *update = BCON_NEW(
        "$set", "{", "feed", BCON_OID(&changes->feed), "position", BCON_INT64(position->position),
        "operation", BCON_INT64(position->operation), "index", BCON_INT32(position->index), "to",
        BCON_UTF8(changes->to), "collection", BCON_UTF8(changes->collection), "time",
        BCON_DATE_TIME(truce__clock_wall_ms()), "}");
    truce_write_options options = {.upsert = true};
    truce_status status =
        truce_update(changes->store, BROKER_OUTBOX, filter, update, &options, NULL, error);

    if (!status) {
        changes->stored = position->position;
        changes->stored_ns = truce__clock_monotonic_ns();
    }
    bson_destroy(update);
    bson_destroy(filter);
    return status;
}

truce_status truce__feed_events_done(struct feed_events *changes, bool ends, bson_error_t *error)
{
    bool due = changes->count || ends ||
               truce__clock_monotonic_ns() - changes->stored_ns >= FEED_EVENTS_STORE_NS;
    truce_status status = TRUCE_OK;

    changes->confirmed = changes->reached;
    if (due && changes->reached.position > changes->stored)
        status = feed_events_store(changes, error);
    feed_events_empty(changes);
    return status;
}

/* Fails with INVALID if the stored position belongs to another collection, or to another broker
 * unless `from` is stored. */
static truce_status feed_events_check_record(const struct feed_events *changes,
                                             const bson_t *record, enum truce_publish_from from,
                                             bson_error_t *error)
{
    const char *to = truce__field_text(record, "to");
    const char *collection = truce__field_text(record, "collection");

    if (strcmp(collection, changes->collection) != 0)
        return truce__fail(
            TRUCE_INVALID, error,
            "the publisher \"%.80s\" publishes changes of %.80s: name another one for "
            "%.80s with --publisher",
            changes->publisher, collection, changes->collection);
    if (strcmp(to, changes->to) != 0 && from != TRUCE_PUBLISH_FROM_STORED)
        return truce__fail(
            TRUCE_INVALID, error,
            "the position of the publisher \"%.80s\" belongs to %.120s: name another "
            "publisher for %.120s with --publisher, or continue there with --from "
            "stored if the broker has moved",
            changes->publisher, to, changes->to);
    return TRUCE_OK;
}

/* Reads the stored position. Sets *found to whether there is one, and *lost to whether changes
 * after it were removed. */
static truce_status feed_events_load(struct feed_events *changes, const struct feed_state *state,
                                     enum truce_publish_from from, bool *found, bool *lost,
                                     bson_error_t *error)
{
    bson_t *filter = feed_events_filter(changes), record;
    truce_status status =
        truce_find_one(changes->store, BROKER_OUTBOX, filter, NULL, &record, error);
    bson_iter_t at;

    bson_destroy(filter);
    *found = !status;
    *lost = false;
    if (!status)
        status = feed_events_check_record(changes, &record, from, error);
    if (!status) {
        changes->stored = truce__field_number(&record, "position");
        changes->reached =
            (struct feed_position){changes->stored, truce__field_number(&record, "operation"),
                                   (int32_t)truce__field_number(&record, "index")};
        *lost = !bson_iter_init_find(&at, &record, "feed") || !BSON_ITER_HOLDS_OID(&at) ||
                !bson_oid_equal(bson_iter_oid(&at), &state->spec.id) ||
                changes->stored < state->horizon || changes->stored > state->last;
    }
    bson_destroy(&record);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* ---- beginning ------------------------------------------------------------------------------- */

static void feed_events_append_encoded(struct buffer *out, const char *text)
{
    for (; *text; text++) {
        char hex[4];

        if ((*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') ||
            (*text >= '0' && *text <= '9') || strchr("-._~", *text)) {
            truce__buffer_append_byte(out, (uint8_t)*text);
            continue;
        }
        snprintf(hex, sizeof hex, "%%%02X", (uint8_t)*text);
        truce__buffer_append_text(out, hex);
    }
}

/* Makes "truce://FEED/DATABASE/COLLECTION". Ids of events are unique in a source. */
static void feed_events_make_source(struct feed_events *changes, const char *database)
{
    struct buffer out = {0};
    char hex[25];

    bson_oid_to_string(&changes->feed, hex);
    truce__buffer_append_text(&out, "truce://");
    truce__buffer_append_text(&out, hex);
    truce__buffer_append_byte(&out, '/');
    if (database) {
        feed_events_append_encoded(&out, database);
        truce__buffer_append_byte(&out, '/');
    }
    feed_events_append_encoded(&out, changes->collection);
    truce__buffer_append_byte(&out, 0);
    changes->source = (char *)out.bytes;
}

/* Reads the state of the store's feed. If the store has none and `feed_ms` is not 0, switches it
 * on. */
static truce_status feed_events_find_feed(struct feed_events *changes, int64_t feed_ms,
                                          struct feed_state *state, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (!changes->engine)
        return truce__fail(TRUCE_INVALID, error,
                           "a change feed is supported only by a store in a file: publish on the "
                           "computer with the file, which truce serve may have open");
    status = truce__engine_feed_state(changes->engine, state, error);
    if (!status && !state->spec.table && feed_ms) {
        status = truce__engine_feed_keep(changes->engine, feed_ms, FEED_EVENTS_FEED_BYTES, error);
        if (!status)
            status = truce__engine_feed_state(changes->engine, state, error);
    }
    if (!status && !state->spec.table)
        status = truce__fail(TRUCE_INVALID, error,
                             "the store has no feed of changes: switch it on with --feed-keep 24h");
    return status;
}

/* Finds the name of the collection in the file. */
static truce_status feed_events_find_stored_name(struct feed_events *changes, const char **database,
                                                 bson_error_t *error)
{
    char own[DATABASE_NAME_MAX + 1];
    truce_status status;

    *database = truce__database_name(changes->store);
    if (truce__reserved(changes->collection))
        return truce__fail(TRUCE_INVALID, error,
                           "the feed omits %.80s, which is a collection of truce",
                           changes->collection);
    if (!*database) {
        snprintf(changes->stored_name, sizeof changes->stored_name, "%s", changes->collection);
        return TRUCE_OK;
    }
    status = truce__own_database(truce__database_holder(changes->store), own, error);
    return status ? status
                  : truce__stored_name_of(own, *database, changes->collection, changes->stored_name,
                                          error);
}

/* Begins without a usable position. */
static truce_status feed_events_begin_again(struct feed_events *changes,
                                            const struct feed_state *state,
                                            const truce_publish_options *options, bool lost,
                                            bson_error_t *error)
{
    bool oldest = options->from == TRUCE_PUBLISH_FROM_OLDEST;
    char text[300];

    if (lost && options->note) {
        snprintf(text, sizeof text,
                 "changes of %.80s after the position of the publisher \"%.80s\" were removed from "
                 "the feed: beginning with the %s one",
                 changes->collection, changes->publisher, oldest ? "oldest" : "next");
        options->note(text, options->arg);
    }
    /* The stored position is a lower bound: no change after it is missed. */
    changes->reached = (struct feed_position){.position = oldest ? state->horizon : state->last};
    return feed_events_store(changes, error);
}

/* Finds the feed, the collection, and the position to begin at. Stores a position if no usable one
 * exists. */
static truce_status feed_events_begin(struct feed_events *changes,
                                      const truce_publish_options *options, bson_error_t *error)
{
    struct feed_state state;
    const char *database = NULL;
    bool found = false, lost = false, may_skip;
    truce_status status = feed_events_find_feed(changes, options->feed_ms, &state, error);

    if (!status)
        status = feed_events_find_stored_name(changes, &database, error);
    if (status)
        return status;
    changes->feed = state.spec.id;
    feed_events_make_source(changes, database);
    status = feed_events_load(changes, &state, options->from, &found, &lost, error);
    may_skip =
        options->from == TRUCE_PUBLISH_FROM_OLDEST || options->from == TRUCE_PUBLISH_FROM_LATEST;
    if (!status && !found && options->from == TRUCE_PUBLISH_FROM_STORED)
        status = truce__fail(TRUCE_INVALID, error, "the publisher \"%.80s\" has no stored position",
                             changes->publisher);
    /* Invariant BF4: changes were lost, and the caller did not allow the publisher to skip them. */
    if (!status && lost && !may_skip)
        status = feed_events_lost(changes, error);
    if (!status && (lost || !found))
        status = feed_events_begin_again(changes, &state, options, lost, error);
    changes->confirmed = changes->reached;
    return status;
}

truce_status truce__feed_events_new(truce_store *store, struct engine *engine,
                                    const truce_publish_options *options,
                                    const struct broker_address *address, struct feed_events **made,
                                    bson_error_t *error)
{
    struct feed_events *changes = bson_malloc0(sizeof *changes);
    truce_status status;

    changes->store = store;
    changes->engine = engine ? engine : truce__file_engine_or_null(truce__database_holder(store));
    changes->collection = bson_strdup(options->changes);
    changes->publisher = bson_strdup(options->publisher ? options->publisher : options->changes);
    changes->to = truce__broker_address_show(address);
    changes->stored_ns = truce__clock_monotonic_ns();
    status = feed_events_begin(changes, options, error);
    if (status) {
        truce__feed_events_free(changes);
        changes = NULL;
    }
    *made = changes;
    return status;
}

void truce__feed_events_free(struct feed_events *changes)
{
    if (!changes)
        return;
    feed_events_empty(changes);
    bson_free(changes->items);
    bson_free(changes->collection);
    bson_free(changes->source);
    bson_free(changes->publisher);
    bson_free(changes->to);
    bson_free(changes);
}

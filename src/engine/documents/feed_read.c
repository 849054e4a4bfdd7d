/* The feed of changes: reading it, and its check (feed.c has the form of its entries). */
#include "base/assert.h"
#include "engine/documents/feed.h"
#include "engine/engine.h"

/* ---- entries ---------------------------------------------------------------------------------- */

static bool read_binary(const bson_iter_t *at, bson_t *document)
{
    const uint8_t *bytes;
    uint32_t size;

    if (!BSON_ITER_HOLDS_BINARY(at))
        return false;
    bson_iter_binary(at, NULL, &size, &bytes);
    return bson_init_static(document, bytes, size);
}

static const char *feed_read_read_text(const bson_iter_t *at)
{
    return BSON_ITER_HOLDS_UTF8(at) ? bson_iter_utf8(at, NULL) : NULL;
}

static int64_t feed_read_read_number(const bson_iter_t *at)
{
    return BSON_ITER_HOLDS_INT64(at) ? bson_iter_int64(at) : 0;
}

/* False: it is damaged. What is not known is passed over. */
static bool feed_read_read_field(const bson_iter_t *at, struct feed_entry *entry, int64_t *sum)
{
    const char *name = bson_iter_key(at), *text;

    if (name[0] && name[1])
        return true;
    switch (name[0]) {
    case 's':
        *sum = BSON_ITER_HOLDS_INT64(at) ? bson_iter_int64(at) : -1;
        return *sum >= 0;
    case 'w':
        entry->wall_ms = BSON_ITER_HOLDS_DATE_TIME(at) ? bson_iter_date_time(at) : 0;
        return BSON_ITER_HOLDS_DATE_TIME(at);
    case 'o':
        text = feed_read_read_text(at);
        entry->kind =
            text && text[0] && strchr("iurdcnbkmxy", text[0]) ? (enum feed_kind)text[0] : 0;
        return entry->kind;
    case 'c':
        return (entry->collection = feed_read_read_text(at)) != NULL;
    case 't':
        return (entry->other = feed_read_read_text(at)) != NULL;
    case 'k':
        return read_binary(at, &entry->id);
    case 'f':
        return read_binary(at, &entry->document);
    case 'u':
        return read_binary(at, &entry->diff);
    case 'b':
        return read_binary(at, &entry->before);
    case 'i':
        return (entry->number = feed_read_read_number(at)) > 0;
    case 'j':
        return (entry->dropped = feed_read_read_number(at)) > 0;
    case 'v':
        return read_binary(at, &entry->what);
    case 'p':
        return read_binary(at, &entry->had);
    case 'a':
        return read_binary(at, &entry->after);
    default:
        return true;
    }
}

/* Has it what its kind must have? */
static bool feed_read_is_whole(const struct feed_entry *entry)
{
    bool named = entry->kind && strchr("cbnkm", (char)entry->kind);

    if (!entry->kind || !entry->collection || (entry->kind == FEED_RENAME && !entry->other))
        return false;
    if (named)
        return true;
    if (entry->kind == FEED_INDEX || entry->kind == FEED_INDEX_DROP)
        return !bson_empty(&entry->what);
    if (!bson_has_field(&entry->id, "_id"))
        return false;
    if (entry->kind == FEED_UPDATE)
        return !bson_empty(&entry->diff);
    return entry->kind == FEED_DELETE || !bson_empty(&entry->document);
}

bool truce__feed_entry(int64_t position, struct bytes body, struct feed_entry *entry, int64_t *sum)
{
    bson_t document;
    bson_iter_t at;

    *entry = (struct feed_entry){.position = position};
    bson_init(&entry->id);
    bson_init(&entry->document);
    bson_init(&entry->diff);
    bson_init(&entry->before);
    bson_init(&entry->after);
    bson_init(&entry->what);
    bson_init(&entry->had);
    *sum = -1;
    if (!bson_init_static(&document, body.data, body.size) || !bson_iter_init(&at, &document))
        return false;
    while (bson_iter_next(&at))
        if (!feed_read_read_field(&at, entry, sum))
            return false;
    return *sum >= 0 && feed_read_is_whole(entry);
}

static truce_status bad_entry(int64_t position, bson_error_t *error)
{
    return truce__fail(TRUCE_CORRUPT, error, "the entry %lld of the feed of changes is damaged",
                       (long long)position);
}

/* ---- its ends --------------------------------------------------------------------------------- */

truce_status truce__feed_horizon(struct kv *kv, const struct feed_spec *feed, int64_t *horizon,
                                 bson_error_t *error)
{
    struct bytes body;
    truce_status status;
    bson_t header;
    bson_iter_t at;

    truce__kv_wide(kv, feed->table);
    status = truce__kv_row_get(kv, feed->table, FEED_HEADER, &body, error);
    *horizon = 0;
    if (status == TRUCE_NOT_FOUND)
        return bad_entry(FEED_HEADER, error);
    if (status)
        return status;
    if (!bson_init_static(&header, body.data, body.size) ||
        !bson_iter_init_find(&at, &header, "horizon") || !BSON_ITER_HOLDS_INT64(&at))
        return bad_entry(FEED_HEADER, error);
    *horizon = bson_iter_int64(&at);
    return TRUCE_OK;
}

struct end_row {
    int64_t row, sum, size, wall_ms; /* but for `row`, 0 of the header */
};

/* The first row in the direction, which may be the header. */
static truce_status end_row(struct kv *kv, const struct feed_spec *feed, bool last,
                            struct end_row *end, bson_error_t *error)
{
    struct kv_cursor cursor = {0};
    struct feed_entry entry;
    truce_status status;

    truce__kv_wide(kv, feed->table);
    status =
        truce__kv_rows_seek(kv, feed->table, last ? INT64_MAX : FEED_HEADER, last, &cursor, error);
    *end = (struct end_row){.row = FEED_HEADER};
    if (!status)
        status = truce__kv_cursor_next(&cursor, error);
    if (!status && cursor.row != FEED_HEADER) {
        end->row = cursor.row;
        end->size = (int64_t)cursor.body.size;
        if (!truce__feed_entry(cursor.row, cursor.body, &entry, &end->sum))
            status = bad_entry(cursor.row, error);
        end->wall_ms = entry.wall_ms;
    }
    truce__kv_cursor_close(&cursor);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

truce_status truce__feed_last(struct kv *kv, const struct feed_spec *feed, int64_t *last,
                              int64_t *sum, bson_error_t *error)
{
    struct end_row end;
    truce_status status = end_row(kv, feed, true, &end, error);

    *last = end.row;
    *sum = end.sum;
    if (!status && *last == FEED_HEADER)
        status = truce__feed_horizon(kv, feed, last, error);
    return status;
}

static truce_status feed_read_read_state(struct reader *reader, struct feed_state *state,
                                         bson_error_t *error)
{
    const struct feed_spec *feed = &reader->catalog->feed;
    struct end_row first;
    truce_status status;
    int64_t sum;

    *state = (struct feed_state){.spec = *feed};
    if (!feed->table)
        return TRUCE_OK;
    state->file = reader->catalog->id;
    status = truce__feed_horizon(reader->kv, feed, &state->horizon, error);
    if (!status)
        status = truce__feed_last(reader->kv, feed, &state->last, &sum, error);
    if (!status)
        status = end_row(reader->kv, feed, false, &first, error);
    if (!status) {
        state->bytes = sum - first.sum + first.size;
        state->oldest_ms = first.wall_ms;
    }
    return status;
}

truce_status truce__engine_feed_state(struct engine *engine, struct feed_state *state,
                                      bson_error_t *error)
{
    truce_status status = truce__engine_usable(engine, error);
    struct reader *reader;

    *state = (struct feed_state){0};
    if (!status)
        status = truce__engine_read_begin(engine, false, &reader, error);
    if (status)
        return status;
    status = feed_read_read_state(reader, state, error);
    truce__engine_read_end(engine, reader);
    return status;
}

truce_status truce__engine_feed_count(struct engine *engine, int64_t *entries, bson_error_t *error)
{
    truce_status status = truce__engine_usable(engine, error);
    struct reader *reader;
    int64_t table;

    *entries = 0;
    if (!status)
        status = truce__engine_read_begin(engine, false, &reader, error);
    if (status)
        return status;
    table = reader->catalog->feed.table;
    if (table)
        status = truce__kv_rows_count(reader->kv, table, entries, error);
    if (!status && table)
        *entries -= 1; /* the header */
    truce__engine_read_end(engine, reader);
    return status;
}

/* ---- reading ---------------------------------------------------------------------------------- */

struct reading {
    feed_take *take;
    void *arg;
    int64_t reached;
    int left;
    bool damaged, stopped;
};

static bool feed_read_take_row(void *arg, int64_t row, struct bytes body)
{
    struct reading *reading = arg;
    struct feed_entry entry;
    int64_t sum;

    if (!reading->left--) {
        reading->stopped = true;
        return false;
    }
    if (!truce__feed_entry(row, body, &entry, &sum)) {
        reading->damaged = true;
        reading->reached = row;
        return false;
    }
    reading->stopped = !reading->take(reading->arg, &entry);
    if (!reading->stopped)
        reading->reached = row;
    return !reading->stopped;
}

static truce_status feed_read_check_place(const struct feed_state *state, const bson_oid_t *id,
                                          int64_t after, bson_error_t *error)
{
    if (!state->spec.table || !bson_oid_equal(&state->spec.id, id) || after < state->horizon)
        return truce__fail(TRUCE_EXPIRED, error,
                           "the changes behind this place are not kept any more");
    if (after > state->last)
        return truce__fail(TRUCE_INVALID, error, "the feed of changes has no such place");
    return TRUCE_OK;
}

truce_status truce__engine_feed_read(struct engine *engine, const bson_oid_t *id, int64_t after,
                                     int most, feed_take *take, void *arg, int64_t *reached,
                                     bson_error_t *error)
{
    struct reading reading = {.take = take, .arg = arg, .reached = after, .left = most};
    truce_status status = truce__engine_usable(engine, error);
    struct feed_state state;
    struct reader *reader;

    *reached = after;
    if (!status)
        status = truce__engine_read_begin(engine, false, &reader, error);
    if (status)
        return status;
    status = feed_read_read_state(reader, &state, error);
    if (!status)
        status = feed_read_check_place(&state, id, after, error);
    if (!status)
        status = truce__kv_rows_each(reader->kv, state.spec.table, after, feed_read_take_row,
                                     &reading, error);
    truce__engine_read_end(engine, reader);
    if (status == TRUCE_NOT_FOUND)
        status = TRUCE_OK;
    if (!status && reading.damaged)
        status = bad_entry(reading.reached, error);
    *reached = status ? after : reading.reached;
    return status;
}

/* ---- the check -------------------------------------------------------------------------------- */

struct checking {
    int64_t last, sum, bad;
};

static bool check_row(void *arg, int64_t row, struct bytes body)
{
    struct checking *checking = arg;
    struct feed_entry entry;
    int64_t sum;

    if (!truce__feed_entry(row, body, &entry, &sum) || row <= checking->last ||
        (checking->sum && sum != checking->sum + (int64_t)body.size)) {
        checking->bad = row;
        return false;
    }
    checking->last = row;
    checking->sum = sum;
    return true;
}

truce_status truce__feed_check(struct kv *kv, const struct feed_spec *feed, bson_error_t *error)
{
    struct checking checking = {0};
    truce_status status;

    if (!feed->table)
        return TRUCE_OK;
    status = truce__feed_horizon(kv, feed, &checking.last, error);
    if (!status)
        status = truce__kv_rows_each(kv, feed->table, FEED_HEADER, check_row, &checking, error);
    if (status == TRUCE_NOT_FOUND)
        status = TRUCE_OK;
    return !status && checking.bad ? bad_entry(checking.bad, error) : status;
}

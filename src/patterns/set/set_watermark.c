/*
 * Sources, the numbers that consumers recorded, and the watermark that both give.
 *
 * A source gives out sequence numbers. `truce_sources` has one document for each set and source:
 *
 *     {_id: {set: "students.classes", source: "web"}, first: 1, floor: 0, proven: 812, archived: 0}
 *
 *     floor     no number at or below it will come: first - 1, raised by truce_set_source_idle
 *     proven    its watermark when a collector last computed it; the next computation starts there
 *     archived  blocks of 4,096 numbers below it are in the archive (set_tombstones.c)
 *
 * The watermark of a source is the end of the longest run without gaps of recorded and void numbers
 * above its floor, in the UNION of all consumers' records. The watermark of the set is the minimum
 * over its sources. The watermark of a source only increases, and so does the announced watermark
 * of the set. The computed watermark of the set falls when a source is added.
 * Records of dead consumers count. A number that a consumer
 * received and did not record is a gap until its message is delivered again.
 *
 * A source may start late. The collector reads the sources, announces the watermark that it is
 * about to use ($max in the set's definition), THEN reads the sources again, and starts over if
 * there is a new one. A new source inserts its document, THEN reads the announced watermark, and
 * begins above it. So either the collector sees the source, or the source sees the watermark. A
 * source document without `floor` (its starter died in between) holds the watermark at 0 until the
 * source is started again.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/field.h"
#include "base/null.h"
#include "commit/metadata_cache.h"
#include "patterns/set/set.h"
#include "store/known_names.h"
#include "store/store.h"

/* The numbers of a source are read in pieces of 2^18. */
#define LOAD_SHIFT 18

/* The sources that this handle has seen in the store. */
struct known_source {
    struct known_source *next;
    /* The shift of the block to which the last recorded number went, or 0 before the first one. */
    int shift;
    char name[];
};

static truce_status progress_load(truce_set *set, const char *source, int64_t number, int shift,
                                  struct progress *progress, bson_error_t *error);
static void progress_release(struct progress *progress);

void truce__sources_free(struct known_source *known)
{
    while (known) {
        struct known_source *next = known->next;

        bson_free(known);
        known = next;
    }
}

static void source_id(const truce_set *set, const char *source, bson_t *document)
{
    bson_t id;

    bson_append_document_begin(document, "_id", -1, &id);
    bson_append_utf8(&id, "set", -1, set->id, -1);
    if (source)
        bson_append_utf8(&id, "source", -1, source, -1);
    bson_append_document_end(document, &id);
}

/* Returns a source of the cache, or NULL. The caller holds the set's mutex. */
static struct known_source *source_find_known(const truce_set *set, const char *source)
{
    struct known_source *at = set->known;

    while (at && strcmp(at->name, source) != 0)
        at = at->next;
    return at;
}

static bool source_is_known(truce_set *set, const char *source)
{
    bool found;

    pthread_mutex_lock(&set->mutex);
    found = source_find_known(set, source);
    pthread_mutex_unlock(&set->mutex);
    return found;
}

/* Returns the width of the block that the source's last number went to, or 0 if none exists
 * yet. */
static int source_shift(truce_set *set, const char *source)
{
    const struct known_source *known;
    int shift;

    pthread_mutex_lock(&set->mutex);
    known = source_find_known(set, source);
    shift = known ? known->shift : 0;
    pthread_mutex_unlock(&set->mutex);
    return shift;
}

static void source_shift_keep(truce_set *set, const char *source, int shift)
{
    struct known_source *known;

    pthread_mutex_lock(&set->mutex);
    known = source_find_known(set, source);
    if (known)
        known->shift = shift;
    pthread_mutex_unlock(&set->mutex);
}

static void source_remember(truce_set *set, const char *source)
{
    size_t size = strlen(source) + 1;
    struct known_source *known = bson_malloc(sizeof *known + size);
    bson_t document = BSON_INITIALIZER;

    source_id(set, source, &document);
    truce__metadata_rely(set->store, SET_SOURCES, &document);
    bson_destroy(&document);
    memcpy(known->name, source, size);
    known->shift = 0;
    pthread_mutex_lock(&set->mutex);
    known->next = set->known;
    set->known = known;
    pthread_mutex_unlock(&set->mutex);
}

/* Inserts the document of a source. An insert that finds the document in place is a success. */
static truce_status insert_source(truce_set *set, const char *source, bool with_floor,
                                  bson_error_t *error)
{
    bson_t document = BSON_INITIALIZER;
    truce_status status = TRUCE_UNKNOWN;

    source_id(set, source, &document);
    if (with_floor) {
        bson_append_int64(&document, "first", -1, 1);
        bson_append_int64(&document, "floor", -1, 0);
    }
    for (int attempt = 0; attempt < SET_TRIES_MAX; attempt++) {
        truce__set_pause(attempt);
        status = truce_insert(set->store, SET_SOURCES, &document, NULL, error);
        if (!truce__store_repeatable(set->store, status))
            break;
    }
    bson_destroy(&document);
    return status == TRUCE_DUPLICATE ? TRUCE_OK : status;
}

/* Finds a source in the store, and remembers it. */
static truce_status source_find(truce_set *set, const char *source, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, document;
    truce_status status;

    if (source_is_known(set, source))
        return TRUCE_OK;
    source_id(set, source, &filter);
    status = truce_find_one(set->store, SET_SOURCES, &filter, NULL, &document, error);
    bson_destroy(&document);
    bson_destroy(&filter);
    if (!status)
        source_remember(set, source);
    return status;
}

/* Stores a source that the set does not have. */
static truce_status source_add(truce_set *set, const char *source, bson_error_t *error)
{
    truce_status status = insert_source(set, source, true, error);

    if (!status)
        source_remember(set, source);
    return status;
}

truce_status truce__source_known(truce_set *set, const char *source, bson_error_t *error)
{
    truce_status status = source_find(set, source, error);

    return status == TRUCE_NOT_FOUND ? source_add(set, source, error) : status;
}

/* ---- computing watermarks ---- */

/* Computes the watermark from source->floor or source->proven up to the first gap. */
static truce_status source_compute(truce_set *set, struct source_state *source, bson_error_t *error)
{
    int64_t at = source->floor > source->proven ? source->floor : source->proven;
    truce_status status = TRUCE_OK;
    bool gap = false;

    while (!gap && !status && at < INT64_MAX) {
        struct progress progress;
        /* The last number of the piece that is read. */
        int64_t end = (at + 1) | ((INT64_C(1) << LOAD_SHIFT) - 1);

        status = progress_load(set, source->name, at + 1, LOAD_SHIFT, &progress, error);
        for (size_t i = 0; i < progress.voided.count; i++)
            truce__ranges_append(&progress.recorded, progress.voided.at[i].from,
                                 progress.voided.at[i].to);
        truce__ranges_settle(&progress.recorded);
        if (!status)
            at = truce__ranges_end(&progress.recorded, at + 1);
        gap = at < end;
        progress_release(&progress);
    }
    source->watermark = at;
    return status;
}

static void source_add_source(struct source_list *list, const char *name, const bson_t *document)
{
    struct source_state *source;

    list->sources = bson_realloc(list->sources, (list->count + 1) * sizeof *list->sources);
    source = &list->sources[list->count++];
    *source = (struct source_state){.name = bson_strdup(name),
                                    .floor = truce__field_number(document, "floor"),
                                    .proven = truce__field_number(document, "proven"),
                                    .archived = truce__field_number(document, "archived")};
}

void truce__set_own(const truce_set *set, bson_t *filter)
{
    bson_t bounds, id;

    bson_append_document_begin(filter, "_id", -1, &bounds);
    bson_append_document_begin(&bounds, "$gte", -1, &id);
    bson_append_utf8(&id, "set", -1, set->id, -1);
    bson_append_document_end(&bounds, &id);
    bson_append_document_begin(&bounds, "$lt", -1, &id);
    bson_append_utf8(&id, "set", -1, set->id, -1);
    bson_append_maxkey(&id, "source", -1);
    bson_append_document_end(&bounds, &id);
    bson_append_document_end(filter, &bounds);
}

/* Reads all sources of the set, sorted by name. */
static truce_status list_sources(truce_set *set, struct source_list *list, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, sort = BSON_INITIALIZER;
    truce_find_options options = {.sort = &sort};
    truce_cursor *cursor = NULL;
    truce_status status;

    truce__set_own(set, &filter);
    bson_append_int32(&sort, "_id", -1, 1);
    status = truce_find(set->store, SET_SOURCES, &filter, &options, &cursor, error);
    while (!status) {
        const bson_t *document;
        bson_iter_t iter, name;

        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        if (bson_iter_init(&iter, document) &&
            bson_iter_find_descendant(&iter, "_id.source", &name) && BSON_ITER_HOLDS_UTF8(&name))
            source_add_source(list, bson_iter_utf8(&name, NULL), document);
    }
    if (cursor)
        truce_cursor_close(cursor);
    bson_destroy(&filter);
    bson_destroy(&sort);
    return status;
}

truce_status truce__sources_load(truce_set *set, struct source_list *list, bson_error_t *error)
{
    truce_status status;

    *list = (struct source_list){0};
    status = list_sources(set, list, error);
    for (size_t i = 0; !status && i < list->count; i++) {
        status = source_compute(set, &list->sources[i], error);
        if (!i || list->sources[i].watermark < list->watermark)
            list->watermark = list->sources[i].watermark;
    }
    return status;
}

void truce__sources_release(struct source_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        bson_free(list->sources[i].name);
    bson_free(list->sources);
    *list = (struct source_list){0};
}

truce_status truce_set_watermark(truce_set *set, int64_t *watermark, bson_t *report,
                                 bson_error_t *error)
{
    RETURN_IF_NULL(watermark, error);

    DEADLINE_SCOPE(set->deadline_ms);
    struct source_list list = {0};
    bson_t array, one;
    truce_status status = truce__handle_usable(set->store, set->refused, &set->refusal, error);

    if (report)
        bson_init(report);
    *watermark = 0;
    if (status)
        return status;
    status = truce__sources_load(set, &list, error);
    if (!status)
        *watermark = list.watermark;
    if (!status && report) {
        bson_append_utf8(report, "set", -1, set->id, -1);
        bson_append_int64(report, "watermark", -1, list.watermark);
        bson_append_array_begin(report, "sources", -1, &array);
        for (size_t i = 0; i < list.count; i++) {
            char text[16];
            const char *key;

            bson_uint32_to_string((uint32_t)i, &key, text, sizeof text);
            bson_append_document_begin(&array, key, -1, &one);
            bson_append_utf8(&one, "source", -1, list.sources[i].name, -1);
            bson_append_int64(&one, "watermark", -1, list.sources[i].watermark);
            bson_append_int64(&one, "floor", -1, list.sources[i].floor);
            bson_append_int64(&one, "missing", -1, truce__number_after(list.sources[i].watermark));
            bson_append_document_end(&array, &one);
        }
        bson_append_array_end(report, &array);
    }
    truce__sources_release(&list);
    return status;
}

/* ---- starting, idling, void numbers ---- */

static truce_status check_source(const truce_set *set, const char *source, bson_error_t *error)
{
    if (source && (!source[0] || strlen(source) > SET_CONSUMER_MAX))
        return truce__fail(TRUCE_INVALID, error,
                           "set \"%s\": invalid name of a source \"%.60s\": expected 1 to %d bytes",
                           set->id, source, SET_CONSUMER_MAX);
    return TRUCE_OK;
}

static truce_status source_refuse(const truce_set *set, const char *source,
                                  const struct source_list *list, bson_error_t *error)
{
    struct known_names names;

    truce__known_names_begin(&names);
    for (size_t i = 0; i < list->count && truce__known_names_add(&names, list->sources[i].name);
         i++)
        continue;
    (void)truce__fail(TRUCE_NOT_FOUND, error,
                      "set \"%.*s\" has no source \"%.*s\"%s%s; announce a new source first",
                      KNOWN_NAME_SHOWN, set->id, KNOWN_NAME_SHOWN, source,
                      names.count ? ": expected " : "", names.text->str);
    truce__known_names_end(&names);
    return TRUCE_NOT_FOUND;
}

/* Refuses a source that the set does not have: a misspelled one would hold the watermark back. The
 * numbers without a source need no announcement as long as there are no others. */
static truce_status source_check_known(truce_set *set, const char *source, bson_error_t *error)
{
    struct source_list list = {0};
    truce_status status = source_find(set, source, error);

    if (status != TRUCE_NOT_FOUND)
        return status;
    status = list_sources(set, &list, error);
    if (!status && (*source || list.count))
        status = source_refuse(set, source, &list, error);
    truce__sources_release(&list);
    return status ? status : source_add(set, source, error);
}

/* Reads the watermark that a collector announced last, or 0 if none exists yet. */
static truce_status read_announced(truce_set *set, int64_t *announced, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, document;
    truce_status status;

    bson_append_utf8(&filter, "_id", -1, set->id, -1);
    /* Reads the latest state, because the floor of a new source must be above the watermark that a
     * collector announced before. */
    status =
        truce_find_one(set->store, SET_DEFINITIONS, &filter, &truce__find_latest, &document, error);
    *announced = status ? 0 : truce__field_number(&document, "announced");
    bson_destroy(&document);
    bson_destroy(&filter);
    return status;
}

/* Sets `floor` and `first` of a source that has no floor. If several processes call it, the first
 * one decides; repeating the call is harmless. */
static truce_status set_floor(truce_set *set, const char *source, int64_t floor,
                              bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER, inner;
    truce_status status;

    source_id(set, source, &filter);
    bson_append_document_begin(&filter, "floor", -1, &inner);
    bson_append_bool(&inner, "$exists", -1, false);
    bson_append_document_end(&filter, &inner);
    bson_append_document_begin(&update, "$set", -1, &inner);
    bson_append_int64(&inner, "first", -1, truce__number_after(floor));
    bson_append_int64(&inner, "floor", -1, floor);
    bson_append_document_end(&update, &inner);
    status = truce__set_update_answered(set, SET_SOURCES, &filter, &update, NULL, error);
    bson_destroy(&filter);
    bson_destroy(&update);
    return status;
}

truce_status truce_set_source_start(truce_set *set, const char *source, int64_t *first,
                                    bson_error_t *error)
{
    RETURN_IF_NULL(first, error);

    DEADLINE_SCOPE(set->deadline_ms);
    const char *name = source ? source : "";
    bson_t filter = BSON_INITIALIZER, document = BSON_INITIALIZER;
    int64_t announced;
    truce_status status = truce__set_ready(set, error);

    *first = 0;
    if (!status)
        status = check_source(set, source, error);
    if (!status)
        status = insert_source(set, name, false, error);
    if (!status)
        status = read_announced(set, &announced, error);
    if (!status)
        status = set_floor(set, name, announced, error);
    if (!status) {
        source_id(set, name, &filter);
        bson_destroy(&document);
        /* Reads the latest state, because it returns the first number that the source may give
         * out. */
        status =
            truce_find_one(set->store, SET_SOURCES, &filter, &truce__find_latest, &document, error);
    }
    if (!status) {
        *first = truce__field_number(&document, "first");
        source_remember(set, name);
    }
    bson_destroy(&filter);
    bson_destroy(&document);
    return status;
}

truce_status truce__source_raise(truce_set *set, const char *source, const char *field,
                                 int64_t value, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER, inner;
    truce_status status;

    source_id(set, source, &filter);
    bson_append_document_begin(&update, "$max", -1, &inner);
    bson_append_int64(&inner, field, -1, value);
    bson_append_document_end(&update, &inner);
    status = truce__set_update_answered(set, SET_SOURCES, &filter, &update, NULL, error);
    bson_destroy(&filter);
    bson_destroy(&update);
    return status;
}

truce_status truce_set_source_idle(truce_set *set, const char *source, int64_t below,
                                   bson_error_t *error)
{
    DEADLINE_SCOPE(set->deadline_ms);
    truce_status status = truce__set_ready(set, error);

    if (!status)
        status = check_source(set, source, error);
    if (!status && below < 1)
        status = truce__fail(TRUCE_INVALID, error,
                             "the first number of the source is %lld, but must be at least 1",
                             (long long)below);
    if (!status)
        status = source_check_known(set, source ? source : "", error);
    if (!status)
        status = truce__source_raise(set, source ? source : "", "floor", below - 1, error);
    return status;
}

truce_status truce_set_void(truce_set *set, const char *source, int64_t from, int64_t to,
                            bson_error_t *error)
{
    DEADLINE_SCOPE(set->deadline_ms);
    truce_status status = truce__set_ready(set, error);

    if (!status)
        status = check_source(set, source, error);
    if (!status && (from < 1 || to < from))
        status =
            truce__fail(TRUCE_INVALID, error,
                        "void numbers %lld to %lld are not a valid range: expected 1 <= from <= to",
                        (long long)from, (long long)to);
    if (!status)
        status = source_check_known(set, source ? source : "", error);
    if (!status)
        status = truce__progress_add(set, source ? source : "", CONSUMER_VOID,
                                     &(struct ranges){&(struct range){from, to}, 1, 1}, error);
    return status;
}

/* ---- records --------------------------------------------------------------------------------- */

/*
 * The records of consumers are the proof by which tombstones are collected.
 *
 * A consumer applies an operation, THEN records its number here, THEN acknowledges the message. So
 * a recorded number is an applied one, and an unacknowledged message is delivered again.
 * `truce_progress` keeps the numbers in blocks, with one document for each consumer, source, and
 * block. Narrow blocks of 4,096 numbers have one bit for each number. Wide blocks of 2^18, 2^24,
 * ... 2^60 numbers have ranges:
 *
 *     {_id: {set: "students.classes", source: "web", block: 0, consumer: "c1"}, bits: Binary}
 *     {_id: {set: "students.classes", source: "web", shift: 18, block: 0, consumer: "c1"},
 *      ranges: Binary}
 *
 * A number goes to the widest block that has space for it. A wide block has space for RANGES_MAX
 * ranges, and for a number that only extends one. The size of the records therefore depends on what
 * was recorded, not on how large the numbers are or how far apart. Sparse numbers stay in wide
 * blocks; dense ones reach narrow blocks. A range that is longer than a block of the next smaller
 * width stays in its wide block, which has at most 64 of them.
 *
 * SP1. Every number in any document was recorded. It does not matter in how many documents or in
 *     which. So readers take the union of all widths and consumers.
 * SP2. A recorded number is never lost, in whatever order writes take effect. Each write only adds,
 *     and its guard is the content that was read, because a write of the same consumer may take
 *     effect late, and two processes may use one name by mistake. Only the archiver removes
 *     numbers, after they are in the archive (set_tombstones.c; models/set_progress.cpp).
 * SP3. A read is not a snapshot, and may miss numbers that the archiver moves concurrently. For the
 *     watermark this is safe, because the result is only too low. The lookup of a single number
 *     reads twice.
 *
 * Two consumer names are reserved: ":void" has the numbers that will never come, ":archive" the
 * numbers that the watermark has passed.
 *
 * Stores that were written before wide blocks existed have narrow ones only, which work unchanged.
 */

/* ---- documents of records -------------------------------------------------------------------- */

/* The maximum number of documents that one search near a number reads. */
#define NEAR_DOCUMENTS 250

void truce__progress_id(const truce_set *set, const char *source, int shift, int64_t block,
                        const char *consumer, const char *field, bson_t *document)
{
    bson_t id;

    bson_append_document_begin(document, field, -1, &id);
    bson_append_utf8(&id, "set", -1, set->id, -1);
    bson_append_utf8(&id, "source", -1, source, -1);
    if (shift != BLOCK_SHIFT)
        bson_append_int32(&id, "shift", -1, shift);
    bson_append_int64(&id, "block", -1, block);
    if (consumer)
        bson_append_utf8(&id, "consumer", -1, consumer, -1);
    bson_append_document_end(document, &id);
}

void truce__progress_store(int shift, int64_t block, const struct ranges *ranges, bson_t *document)
{
    if (shift == BLOCK_SHIFT)
        truce__block_store(ranges, block << shift, document, "bits");
    else
        truce__ranges_store(ranges, block << shift, document, "ranges");
}

static int64_t id_number(const bson_t *document, const char *part, int64_t otherwise)
{
    bson_iter_t iter, found;
    char path[32];

    snprintf(path, sizeof path, "_id.%s", part);
    if (!bson_iter_init(&iter, document) || !bson_iter_find_descendant(&iter, path, &found))
        return otherwise;
    return BSON_ITER_HOLDS_INT(&found) ? bson_iter_as_int64(&found) : -1;
}

static const char *id_text(const bson_t *document, const char *path)
{
    bson_iter_t iter, found;

    if (!bson_iter_init(&iter, document) || !bson_iter_find_descendant(&iter, path, &found) ||
        !BSON_ITER_HOLDS_UTF8(&found))
        return NULL;
    return bson_iter_utf8(&found, NULL);
}

/* Returns the next smaller width. */
static int progress_narrower(int shift)
{
    return shift == WIDE_SHIFT_MIN ? BLOCK_SHIFT : shift - WIDE_SHIFT_STEP;
}

static bool is_width(int64_t shift)
{
    return shift == BLOCK_SHIFT || (shift >= WIDE_SHIFT_MIN && shift <= WIDE_SHIFT_MAX &&
                                    (shift - WIDE_SHIFT_MIN) % WIDE_SHIFT_STEP == 0);
}

truce_status truce__progress_read(const bson_t *document, struct progress_block *block,
                                  bson_error_t *error)
{
    int64_t shift = id_number(document, "shift", BLOCK_SHIFT), base, end;
    bool valid;

    *block = (struct progress_block){.number = id_number(document, "block", -1),
                                     .source = id_text(document, "_id.source"),
                                     .consumer = id_text(document, "_id.consumer")};
    valid = block->source && block->consumer && is_width(shift) && block->number >= 0 &&
            block->number <= INT64_MAX >> shift;
    if (valid) {
        block->shift = (int)shift;
        base = block->number << shift;
        end = base + ((INT64_C(1) << shift) - 1);
        valid = shift == BLOCK_SHIFT
                    ? truce__block_read(document, "bits", base, &block->ranges)
                    : truce__ranges_read(document, "ranges", base, end, &block->ranges);
    }
    if (!valid) {
        char text[200];

        truce__ranges_release(&block->ranges);
        return truce__fail(
            TRUCE_CORRUPT, error, "%s: %s is not a record of a consumer", SET_PROGRESS,
            truce__value_show(truce__value_field(truce__value_document(document), "_id", 3), text,
                              sizeof text));
    }
    truce__ranges_settle(&block->ranges);
    return TRUCE_OK;
}

/* ---- reading the records ---- */

static void records_append_bounds(truce_set *set, const char *source, int shift, int64_t first,
                                  int64_t end, bson_t *array, uint32_t *count)
{
    bson_t branch, bounds;
    char text[16];
    const char *key;

    bson_uint32_to_string((*count)++, &key, text, sizeof text);
    bson_append_document_begin(array, key, -1, &branch);
    bson_append_document_begin(&branch, "_id", -1, &bounds);
    truce__progress_id(set, source, shift, first, NULL, "$gte", &bounds);
    truce__progress_id(set, source, shift, end, NULL, "$lt", &bounds);
    bson_append_document_end(&branch, &bounds);
    bson_append_document_end(array, &branch);
}

/* Adds the ranges of a document. Ignores a document that cannot be read, because it proves
 * nothing. */
static void take_ranges(const bson_t *document, struct progress *progress)
{
    struct progress_block block;
    struct ranges *to = &progress->recorded;

    if (truce__progress_read(document, &block, NULL))
        return;
    if (!progress->narrowest || block.shift < progress->narrowest)
        progress->narrowest = block.shift;
    if (!strcmp(block.consumer, CONSUMER_VOID))
        to = &progress->voided;
    for (size_t i = 0; i < block.ranges.count; i++)
        truce__ranges_append(to, block.ranges.at[i].from, block.ranges.at[i].to);
    truce__ranges_release(&block.ranges);
}

/* Reads the records that match the filter into `progress`, which is initialized in any case. The
 * caller releases it, also after a failure. */
static truce_status read_records(truce_set *set, const bson_t *filter,
                                 const truce_find_options *options, struct progress *progress,
                                 bson_error_t *error)
{
    truce_cursor *cursor = NULL;
    truce_status status = truce_find(set->store, SET_PROGRESS, filter, options, &cursor, error);

    *progress = (struct progress){0};
    while (!status) {
        const bson_t *document;

        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        take_ranges(document, progress);
    }
    if (cursor)
        truce_cursor_close(cursor);
    truce__ranges_settle(&progress->recorded);
    truce__ranges_settle(&progress->voided);
    return status;
}

/* Loads what all consumers recorded of the 2^shift numbers around `number`, and perhaps more. */
static truce_status progress_load(truce_set *set, const char *source, int64_t number, int shift,
                                  struct progress *progress, bson_error_t *error)
{
    int64_t first = number >> shift << shift, last = first + ((INT64_C(1) << shift) - 1);
    bson_t filter = BSON_INITIALIZER, any;
    uint32_t count = 0;
    truce_status status;

    bson_append_array_begin(&filter, "$or", -1, &any);
    for (int width = WIDE_SHIFT_MAX;; width = progress_narrower(width)) {
        records_append_bounds(set, source, width, first >> width, (last >> width) + 1, &any,
                              &count);
        if (width == BLOCK_SHIFT)
            break;
    }
    bson_append_array_end(&filter, &any);
    status = read_records(set, &filter, NULL, progress, error);
    bson_destroy(&filter);
    return status;
}

/* Loads some of the recorded numbers from `number` upward, or downward, from documents of only this
 * width. */
static truce_status progress_near(truce_set *set, const char *source, int64_t number, int shift,
                                  bool from, struct progress *progress, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, any, *sort = BCON_NEW("_id", BCON_INT32(from ? 1 : -1));
    int64_t block = number >> shift;
    const truce_find_options options = {.sort = sort, .limit = NEAR_DOCUMENTS};
    uint32_t count = 0;
    truce_status status;

    bson_append_array_begin(&filter, "$or", -1, &any);
    records_append_bounds(set, source, shift, from ? block : 0,
                          from ? (INT64_MAX >> shift) + 1 : block + 1, &any, &count);
    bson_append_array_end(&filter, &any);
    status = read_records(set, &filter, &options, progress, error);
    bson_destroy(&filter);
    bson_destroy(sort);
    return status;
}

static void progress_release(struct progress *progress)
{
    truce__ranges_release(&progress->recorded);
    truce__ranges_release(&progress->voided);
}

/* ---- the cache of recorded numbers ----------------------------------------------------------- */

/*
 * The cache of recorded numbers, for operations below the watermark. A recorded number stays
 * recorded, so the handle caches what a read of the records has shown. The next numbers are often
 * near: a file is applied again, or a queue delivers again. So a lookup that found the number in a
 * wide block also reads up to NEAR_DOCUMENTS records of that width on each side. It does not do so
 * for a block of the widest width, nor for a narrow block.
 *
 * SK1. Only recorded numbers are cached, never the absence of a number. The handle drops the cache
 *      when the structure number changes (set_forget in set.c), which happens at least once a
 *      minute on a server (store/mongodb/mongo_structure.c). It does not notice at once that
 *      another client removed single records, as the archiver does. The cached numbers were
 *      applied anyway.
 * SK2. The cache has at most RANGES_KEPT ranges over all sources; then it starts over.
 * SK3. Distant numbers fill many documents with a few numbers each. A consumer that repeats one of
 *     them usually repeats its neighbors, newest first, so the documents on both sides are read
 *     with it.
 */

/* The maximum number of cached ranges, 16 MiB. */
#define RANGES_KEPT  (1 << 20)
#define SOURCES_KEPT 64

/* The numbers that a handle knows to be recorded, by source (SK2). */
struct recorded {
    /* The number of cached sources, and the number of ranges of all of them. */
    size_t count, ranges;
    struct {
        char source[SET_CONSUMER_MAX + 1];
        struct ranges ranges;
    } of[SOURCES_KEPT];
};

static void recorded_forget(struct recorded *recorded)
{
    for (size_t i = 0; i < recorded->count; i++)
        truce__ranges_release(&recorded->of[i].ranges);
    recorded->count = recorded->ranges = 0;
}

void truce__recorded_free(struct recorded *recorded)
{
    if (recorded)
        recorded_forget(recorded);
    bson_free(recorded);
}

/* Returns the cached ranges of a source, or NULL if the source is not cached. */
static struct ranges *ranges_of(struct recorded *recorded, const char *source)
{
    for (size_t i = 0; recorded && i < recorded->count; i++) {
        if (!strcmp(recorded->of[i].source, source))
            return &recorded->of[i].ranges;
    }
    return NULL;
}

/* Returns the cached ranges of a source, and adds the source if it is missing. Empties the cache
 * first if it has no room for the source or for `more` ranges. The caller holds the set's mutex. */
static struct ranges *recorded_ranges_of(truce_set *set, const char *source, size_t more)
{
    struct recorded *recorded = set->recorded;
    struct ranges *ranges;

    if (!recorded)
        recorded = set->recorded = bson_malloc0(sizeof *recorded);
    if (recorded->ranges + more > RANGES_KEPT) /* The cache starts again when it is full (SK2). */
        recorded_forget(recorded);
    ranges = ranges_of(recorded, source);
    if (ranges)
        return ranges;
    if (recorded->count == SOURCES_KEPT)
        recorded_forget(recorded);
    memcpy(recorded->of[recorded->count].source, source, strlen(source) + 1);
    return &recorded->of[recorded->count++].ranges;
}

static void keep_recorded(truce_set *set, const char *source, const struct ranges *more)
{
    struct ranges *kept;
    size_t before;

    if (!more->count)
        return;
    pthread_mutex_lock(&set->mutex);
    kept = recorded_ranges_of(set, source, more->count);
    before = kept->count;
    truce__ranges_merge(kept, more);
    set->recorded->ranges += kept->count;
    set->recorded->ranges -= before;
    pthread_mutex_unlock(&set->mutex);
}

bool truce__number_recorded(truce_set *set, const char *source, int64_t seq)
{
    const struct ranges *kept;
    bool found;

    pthread_mutex_lock(&set->mutex);
    kept = ranges_of(set->recorded, source);
    found = kept && truce__ranges_has(kept, seq);
    pthread_mutex_unlock(&set->mutex);
    return found;
}

/* Reads the records around a number into the cache (SK3). Ignores errors: a number is read again
 * when it is needed. */
static void recorded_read_around(truce_set *set, const char *source, int64_t seq, int shift)
{
    for (int from = 0; from <= 1; from++) {
        struct progress progress;

        if (!progress_near(set, source, seq, shift, from, &progress, NULL))
            keep_recorded(set, source, &progress.recorded);
        progress_release(&progress);
    }
}

truce_status truce__number_outcome(truce_set *set, const char *source, int64_t seq,
                                   struct number_outcome *outcome, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, document;
    int narrowest = 0;
    truce_status status;

    *outcome = (struct number_outcome){0};
    source_id(set, source, &filter);
    /* Reads the latest state, because an operation whose number is not found goes to the
     * quarantine. */
    status =
        truce_find_one(set->store, SET_SOURCES, &filter, &truce__find_latest, &document, error);
    if (status == TRUCE_NOT_FOUND) {
        status = TRUCE_OK;
    } else if (!status) {
        outcome->known = true;
        outcome->floor = truce__field_number(&document, "floor");
    }
    bson_destroy(&document);
    bson_destroy(&filter);
    /* Two reads are necessary. While one read goes from page to page, the archiver may write a page
     * that was read already, and then remove a consumer's document before it is read. */
    for (int i = 0; i < 2 && !status && !outcome->recorded; i++) {
        struct progress progress;

        status = progress_load(set, source, seq, BLOCK_SHIFT, &progress, error);
        outcome->recorded = !status && truce__ranges_has(&progress.recorded, seq);
        outcome->voided = !status && truce__ranges_has(&progress.voided, seq);
        if (!status)
            keep_recorded(set, source, &progress.recorded);
        narrowest = progress.narrowest;
        progress_release(&progress);
    }
    if (outcome->recorded && narrowest > BLOCK_SHIFT && narrowest < WIDE_SHIFT_MAX)
        recorded_read_around(set, source, seq, narrowest);
    return status;
}

/* ---- records --------------------------------------------------------------------------------- */

/* The maximum number of pieces that are recorded together. */
#define WINDOW_PIECES 256
/* A wide block with this number of ranges takes only ranges that touch one of them, or that fit
 * into no narrower block (at most 64). */
#define RANGES_MAX 512
#define WIDTHS     ((WIDE_SHIFT_MAX - WIDE_SHIFT_MIN) / WIDE_SHIFT_STEP + 2)

/* ---- recording ---- */

/* A range to record, inside one block of the widest width. */
struct piece {
    const char *source;
    struct range range;
};

/* A document that may receive a piece, as it was read. It is identified by the source, the shift,
 * and the number of the block. */
struct recorded_block {
    const char *source;
    int shift;
    int64_t number;
    /* `exists`: the document is stored. `changed`: it must be written. */
    bool exists, changed;
    /* The field with the numbers as it was read. Initialized if the document exists. */
    bson_t content;
    struct ranges ranges;
};

struct recording {
    truce_set *set;
    const char *consumer;
    /* The pieces, sorted by source and number. Owned. */
    struct piece *pieces;
    size_t count;
    /* The documents, sorted by source, shift, and number. Owned. */
    struct recorded_block *blocks;
    size_t blocks_count;
    /* At least one write was acknowledged. */
    bool wrote;
};

/* Returns whether the range lies in one block of that width. */
static bool progress_is_inside(struct range range, int shift)
{
    return range.from >> shift == range.to >> shift;
}

static int progress_compare_blocks(const void *left, const void *right)
{
    const struct recorded_block *a = left, *b = right;
    int order = strcmp(a->source, b->source);

    if (!order)
        order = (a->shift > b->shift) - (a->shift < b->shift);
    return order ? order : (a->number > b->number) - (a->number < b->number);
}

static struct recorded_block *find_block(const struct recording *recording, const char *source,
                                         int shift, int64_t number)
{
    const struct recorded_block wanted = {.source = source, .shift = shift, .number = number};

    return recording->blocks_count ? bsearch(&wanted, recording->blocks, recording->blocks_count,
                                             sizeof wanted, progress_compare_blocks)
                                   : NULL;
}

/* Lists the blocks that the pieces may go to. If `hint`, lists only those of the width that the
 * source's last numbers went to. */
static void list_blocks(struct recording *recording, bool hint)
{
    size_t kept = 0;

    recording->blocks = bson_malloc(recording->count * WIDTHS * sizeof *recording->blocks);
    recording->blocks_count = 0;
    for (size_t i = 0; i < recording->count; i++) {
        const struct piece *piece = &recording->pieces[i];
        int only = hint ? source_shift(recording->set, piece->source) : 0;

        for (int shift = WIDE_SHIFT_MAX; progress_is_inside(piece->range, shift);
             shift = progress_narrower(shift)) {
            if (!hint || shift == only)
                recording->blocks[recording->blocks_count++] = (struct recorded_block){
                    .source = piece->source, .shift = shift, .number = piece->range.from >> shift};
            if (shift == BLOCK_SHIFT)
                break;
        }
    }
    if (recording->blocks_count)
        qsort(recording->blocks, recording->blocks_count, sizeof *recording->blocks,
              progress_compare_blocks);
    for (size_t i = 0; i < recording->blocks_count; i++) {
        if (!kept || progress_compare_blocks(&recording->blocks[kept - 1], &recording->blocks[i]))
            recording->blocks[kept++] = recording->blocks[i];
    }
    recording->blocks_count = kept;
}

static void release_blocks(struct recording *recording)
{
    for (size_t i = 0; i < recording->blocks_count; i++) {
        truce__ranges_release(&recording->blocks[i].ranges);
        if (recording->blocks[i].exists)
            bson_destroy(&recording->blocks[i].content);
    }
    bson_free(recording->blocks);
    recording->blocks = NULL;
    recording->blocks_count = 0;
}

/* Stores the ranges and the content of a document in its block. Returns TRUCE_CORRUPT if the
 * document is not a record. */
static truce_status progress_take_block(struct recording *recording, const bson_t *document,
                                        bson_error_t *error)
{
    struct progress_block block;
    struct recorded_block *recorded_block;
    truce_status status = truce__progress_read(document, &block, error);

    if (status)
        return status;
    recorded_block = find_block(recording, block.source, block.shift, block.number);
    if (!recorded_block || recorded_block->exists) {
        truce__ranges_release(&block.ranges);
        return TRUCE_OK;
    }
    recorded_block->exists = true;
    recorded_block->ranges = block.ranges;
    bson_init(&recorded_block->content);
    bson_copy_to_excluding_noinit(document, &recorded_block->content, "_id", NULL);
    return TRUCE_OK;
}

/* Reads the documents that this consumer has of the listed blocks. */
static truce_status recording_read_progress(struct recording *recording, bson_error_t *error)
{
    truce_set *set = recording->set;
    bson_t filter = BSON_INITIALIZER, in, list;
    truce_cursor *cursor = NULL;
    const bson_t *document;
    truce_status status;

    bson_append_document_begin(&filter, "_id", -1, &in);
    bson_append_array_begin(&in, "$in", -1, &list);
    for (size_t i = 0; i < recording->blocks_count; i++) {
        const struct recorded_block *recorded_block = &recording->blocks[i];
        char text[16];
        const char *key;

        bson_uint32_to_string((uint32_t)i, &key, text, sizeof text);
        truce__progress_id(set, recorded_block->source, recorded_block->shift,
                           recorded_block->number, recording->consumer, key, &list);
    }
    bson_append_array_end(&in, &list);
    bson_append_document_end(&filter, &in);
    status = truce_find(set->store, SET_PROGRESS, &filter, NULL, &cursor, error);
    while (!status) {
        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        status = progress_take_block(recording, document, error);
    }
    if (cursor)
        truce_cursor_close(cursor);
    bson_destroy(&filter);
    return status;
}

/* Returns the end of the run from `next` that one of the piece's documents has. */
static int64_t recorded_to(const struct recording *recording, const struct piece *piece,
                           int64_t next)
{
    int64_t end = next - 1;

    for (int shift = WIDE_SHIFT_MAX; progress_is_inside(piece->range, shift);
         shift = progress_narrower(shift)) {
        const struct recorded_block *recorded_block =
            find_block(recording, piece->source, shift, piece->range.from >> shift);
        int64_t its = recorded_block ? truce__ranges_end(&recorded_block->ranges, next) : next - 1;

        end = its > end ? its : end;
        if (shift == BLOCK_SHIFT)
            break;
    }
    return end;
}

/* Returns whether the documents that were read have all of the piece. */
static bool is_recorded(const struct recording *recording, const struct piece *piece)
{
    int64_t end = piece->range.from - 1, before;

    do {
        before = end;
        end = recorded_to(recording, piece, before + 1);
    } while (end > before && end < piece->range.to);
    return end >= piece->range.to;
}

/* Adds the piece to the widest block that has space. Returns false if none of those that were read
 * has. */
static bool progress_put(struct recording *recording, const struct piece *piece)
{
    struct range range = piece->range;

    for (int shift = WIDE_SHIFT_MAX; progress_is_inside(range, shift);
         shift = progress_narrower(shift)) {
        bool last = shift == BLOCK_SHIFT || !progress_is_inside(range, progress_narrower(shift));
        struct recorded_block *recorded_block =
            find_block(recording, piece->source, shift, range.from >> shift);

        if (recorded_block &&
            (last || recorded_block->ranges.count < RANGES_MAX ||
             truce__ranges_touch(&recorded_block->ranges, range.from, range.to))) {
            truce__ranges_add(&recorded_block->ranges, range.from, range.to);
            recorded_block->changed = true;
            source_shift_keep(recording->set, piece->source, shift);
            return true;
        }
        if (last)
            break;
    }
    return false;
}

/* Builds the write of a block: {_id, content: as read} -> {$set: {content: with the added
 * numbers}}, or an insert. */
static void progress_build(const struct recording *recording,
                           const struct recorded_block *recorded_block, bson_t *filter,
                           bson_t *document)
{
    bson_t change;

    bson_init(filter);
    bson_init(document);
    truce__progress_id(recording->set, recorded_block->source, recorded_block->shift,
                       recorded_block->number, recording->consumer, "_id",
                       recorded_block->exists ? filter : document);
    if (!recorded_block->exists) {
        truce__progress_store(recorded_block->shift, recorded_block->number,
                              &recorded_block->ranges, document);
        return;
    }
    bson_concat(filter, &recorded_block->content);
    bson_append_document_begin(document, "$set", -1, &change);
    truce__progress_store(recorded_block->shift, recorded_block->number, &recorded_block->ranges,
                          &change);
    bson_append_document_end(document, &change);
}

/* Writes the changed blocks. Clears *all if one of them was not written. Fails only with an error
 * that repeating does not help. */
static truce_status write_blocks(struct recording *recording, bool *all, bson_error_t *error)
{
    static const truce_bulk_options options = {.unordered = true};
    truce_write *writes = bson_malloc0(recording->blocks_count * sizeof *writes);
    truce_write_outcome *outcomes = bson_malloc0(recording->blocks_count * sizeof *outcomes);
    bson_t *documents = bson_malloc(recording->blocks_count * 2 * sizeof *documents);
    size_t count = 0;
    truce_status first = TRUCE_OK, status = TRUCE_OK;

    for (size_t i = 0; i < recording->blocks_count; i++) {
        const struct recorded_block *recorded_block = &recording->blocks[i];
        bson_t *filter = &documents[2 * count], *document = filter + 1;

        if (!recorded_block->changed)
            continue;
        progress_build(recording, recorded_block, filter, document);
        writes[count++] =
            (truce_write){.kind = recorded_block->exists ? TRUCE_WRITE_UPDATE : TRUCE_WRITE_INSERT,
                          .collection = SET_PROGRESS,
                          .filter = recorded_block->exists ? filter : NULL,
                          .document = document};
    }
    if (count)
        status = truce_bulk(recording->set->store, writes, count, &options, outcomes, error);
    for (size_t i = 0; i < count; i++) {
        truce_status own = outcomes[i].status == TRUCE_NOT_FOUND ? status : outcomes[i].status;

        if (own || (!outcomes[i].result.modified && !outcomes[i].result.inserted))
            *all = false;
        else
            recording->wrote = true;
        if (own && own != TRUCE_DUPLICATE && !truce__store_repeatable(recording->set->store, own) &&
            !first) {
            first = own;
            if (error && outcomes[i].status != TRUCE_NOT_FOUND)
                *error = outcomes[i].error;
        }
        truce_write_result_release(&outcomes[i].result);
        bson_destroy(&documents[2 * i]);
        bson_destroy(&documents[2 * i + 1]);
    }
    bson_free(writes);
    bson_free(outcomes);
    bson_free(documents);
    return first;
}

/* Makes one attempt: reads, distributes the pieces, and writes. Sets *done if nothing is left for
 * another attempt. */
static truce_status progress_attempt(struct recording *recording, bool hint, bool *done,
                                     bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    *done = true;
    list_blocks(recording, hint);
    if (recording->blocks_count)
        status = recording_read_progress(recording, error);
    for (size_t i = 0; !status && i < recording->count; i++) {
        if (!is_recorded(recording, &recording->pieces[i]))
            *done &= progress_put(recording, &recording->pieces[i]);
    }
    if (!status && recording->blocks_count)
        status = write_blocks(recording, done, error);
    release_blocks(recording);
    return status;
}

/* Records the pieces. Tries first only the blocks to which the last numbers went, because the next
 * numbers usually fit there. Returns CONFLICT if other processes write the same records in each of
 * SET_TRIES_MAX attempts. */
static truce_status progress_run(struct recording *recording, bson_error_t *error)
{
    bool done = false;
    truce_status status;

    if (recording->consumer[0] != ':') {
        status = progress_attempt(recording, true, &done, error);
        if (status ? !truce__store_repeatable(recording->set->store, status) : done)
            return status;
    }
    for (int attempt = 0; attempt < SET_TRIES_MAX; attempt++) {
        truce__set_pause(attempt);
        status = progress_attempt(recording, false, &done, error);
        if (status ? !truce__store_repeatable(recording->set->store, status) : done)
            return status;
    }
    return truce__fail(
        TRUCE_CONFLICT, error,
        "consumer \"%s\" of set \"%s\": another process writes the same records repeatedly: try "
        "again",
        recording->consumer, recording->set->id);
}

/* Adds the part of the range that lies in one block of the widest width, and advances range->from
 * to the rest. Returns whether there is space for another piece. */
static bool add_piece(struct recording *recording, const char *source, struct range *range)
{
    int64_t block = range->from >> WIDE_SHIFT_MAX;
    int64_t end = (block << WIDE_SHIFT_MAX) + ((INT64_C(1) << WIDE_SHIFT_MAX) - 1);
    int64_t to = range->to < end ? range->to : end;

    recording->pieces[recording->count++] = (struct piece){source, {range->from, to}};
    range->from = to < range->to ? to + 1 : to;
    return recording->count < WINDOW_PIECES;
}

truce_status truce__progress_add(truce_set *set, const char *source, const char *consumer,
                                 const struct ranges *ranges, bson_error_t *error)
{
    struct recording recording = {.set = set, .consumer = consumer};
    truce_status status = TRUCE_OK;

    recording.pieces = bson_malloc(WINDOW_PIECES * sizeof *recording.pieces);
    for (size_t i = 0; !status && i < ranges->count; i++) {
        struct range left = ranges->at[i];

        for (bool ended = false; !status && !ended;) {
            bool room = add_piece(&recording, source, &left);

            ended = recording.pieces[recording.count - 1].range.to == ranges->at[i].to;
            if (room && !(ended && i + 1 == ranges->count))
                continue;
            status = progress_run(&recording, error);
            recording.count = 0;
        }
    }
    bson_free(recording.pieces);
    return status;
}

/* ---- recording operations ---- */

static int by_source_and_number(const void *left, const void *right)
{
    const truce_set_operation *a = *(const truce_set_operation *const *)left;
    const truce_set_operation *b = *(const truce_set_operation *const *)right;
    int order = strcmp(a->source ? a->source : "", b->source ? b->source : "");

    return order ? order : (a->seq > b->seq) - (a->seq < b->seq);
}

/* Gathers the ranges of sorted operations, up to one window; returns the number of operations that
 * went in. */
static size_t progress_gather(struct recording *recording, const truce_set_operation *const *sorted,
                              size_t count)
{
    size_t i;

    recording->count = 0;
    for (i = 0; i < count; i++) {
        const char *source = sorted[i]->source ? sorted[i]->source : "";
        struct piece *last = recording->count ? &recording->pieces[recording->count - 1] : NULL;
        struct range range = {sorted[i]->seq, sorted[i]->seq};

        if (last && !strcmp(last->source, source) && range.from - last->range.to <= 1 &&
            progress_is_inside((struct range){last->range.from, range.to}, WIDE_SHIFT_MAX))
            last->range.to = range.to;
        else if (recording->count < WINDOW_PIECES)
            add_piece(recording, source, &range);
        else
            break;
    }
    return i;
}

truce_status truce__set_record_check(const truce_set *set, const char *consumer,
                                     const truce_set_operation *operations, size_t count,
                                     bson_error_t *error)
{
    if (!consumer || !consumer[0] || consumer[0] == ':' || strlen(consumer) > SET_CONSUMER_MAX)
        return truce__fail(
            TRUCE_INVALID, error,
            "set \"%s\": invalid name of a consumer \"%.60s\": expected 1 to %d bytes that do not "
            "begin with a colon",
            set->id, consumer ? consumer : "", SET_CONSUMER_MAX);
    for (size_t i = 0; i < count; i++) {
        if (operations[i].seq < 1)
            return truce__fail(TRUCE_INVALID, error,
                               "operation %zu: the sequence number is %lld: expected 1 or more",
                               i + 1, (long long)operations[i].seq);
    }
    return TRUCE_OK;
}

truce_status truce__set_record_all(truce_set *set, const char *consumer,
                                   const truce_set_operation *operations, size_t count, bool *wrote,
                                   bson_error_t *error)
{
    struct recording recording = {.set = set, .consumer = consumer};
    const truce_set_operation **sorted;
    truce_status status = truce__set_ready(set, error);

    *wrote = false;
    if (!status)
        status = truce__set_record_check(set, consumer, operations, count, error);
    if (status || !count)
        return status;
    sorted = bson_malloc(count * sizeof *sorted);
    recording.pieces = bson_malloc(WINDOW_PIECES * sizeof *recording.pieces);
    for (size_t i = 0; i < count; i++)
        sorted[i] = &operations[i];
    qsort(sorted, count, sizeof *sorted, by_source_and_number);
    for (size_t at = 0; !status && at < count;) {
        at += progress_gather(&recording, sorted + at, count - at);
        for (size_t i = 0; !status && i < recording.count; i++)
            status = truce__source_known(set, recording.pieces[i].source, error);
        if (!status)
            status = progress_run(&recording, error);
    }
    *wrote = recording.wrote;
    bson_free(recording.pieces);
    bson_free(sorted);
    return status;
}

truce_status truce_set_record(truce_set *set, const char *consumer,
                              const truce_set_operation *operations, size_t count,
                              bson_error_t *error)
{
    DEADLINE_SCOPE(set->deadline_ms);
    bool wrote;

    return truce__set_record_all(set, consumer, operations, count, &wrote, error);
}

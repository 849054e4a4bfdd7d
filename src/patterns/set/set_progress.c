/*
 * What consumers recorded: the proof by which tombstones are collected.
 *
 * A consumer applies an operation, THEN records its number here, THEN acknowledges the message. So
 * a recorded number is an applied one, and a message that is not acknowledged is delivered again.
 * Numbers are kept in blocks, in `truce_progress`, one document for each consumer, source and block. Narrow
 * blocks, of 4,096 numbers, have a bit for each; wide ones, of 2^18, 2^24, ... 2^60 numbers, have ranges:
 *
 *     {_id: {set: "students.classes", source: "web", block: 0, consumer: "c1"}, bits: Binary}
 *     {_id: {set: "students.classes", source: "web", shift: 18, block: 0, consumer: "c1"}, ranges: Binary}
 *
 * A number goes to the widest block that has room for it: RANGES_MAX ranges, or one that it only makes
 * longer. So records take the room of what was recorded, however large the numbers are and however far apart:
 * sparse numbers stand in wide blocks, and only where they are dense do they reach the narrow ones. A
 * range that is longer than a block of the next smaller width stays where it is; of such there are
 * at most 64 in a block.
 *
 * P1. What is in any document was recorded; in how many, and in which, means nothing. So whoever looks
 *     takes the union of all widths and consumers.
 * P2. What was recorded is never lost, in any order of landing: each write is guarded by the content that
 *     was read (a write of the consumer's own may land late, and two processes may use one name by
 *     mistake), and adds to it. Only the archiver takes out, what is in the archive already
 *     (set_collect.c; models/set_progress.cpp).
 * P3. A look is not of one moment, and may miss what the archiver moves meanwhile. Computing a watermark
 *     it is too low then, which is safe; who asks for one number looks twice.
 *
 * Two names are truce's own: ":void" holds the numbers that will never come, ":archive" what the
 * watermark has passed.
 *
 * Stores of before there were wide blocks have narrow ones only, which are read and written as they were.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/field.h"
#include "patterns/set/set.h"
#include "store/store.h"

/* ---- documents of records -------------------------------------------------------------------- */

/* The documents of what consumers recorded and looking through them. */

#define NEAR_DOCUMENTS 250

/* ---- the documents ---- */

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

/* the next smaller width */
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
    bool sound;

    *block = (struct progress_block){.number = id_number(document, "block", -1),
                                     .source = id_text(document, "_id.source"),
                                     .consumer = id_text(document, "_id.consumer")};
    sound = block->source && block->consumer && is_width(shift) && block->number >= 0 &&
            block->number <= INT64_MAX >> shift;
    if (sound) {
        block->shift = (int)shift;
        base = block->number << shift;
        end = base + ((INT64_C(1) << shift) - 1);
        sound = shift == BLOCK_SHIFT
                    ? truce__block_read(document, "bits", base, &block->ranges)
                    : truce__ranges_read(document, "ranges", base, end, &block->ranges);
    }
    if (!sound) {
        char text[200];

        truce__ranges_release(&block->ranges);
        return truce__fail(
            TRUCE_CORRUPT, error, "%s: %s is no record of a consumer", SET_PROGRESS,
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

/* What cannot be read proves nothing, and stops nobody. */
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

truce_status truce__progress_load(truce_set *set, const char *source, int64_t number, int shift,
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

/* Some of what was recorded from `number` on, or up to it, in documents of that width alone. */
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

void truce__progress_release(struct progress *progress)
{
    truce__ranges_release(&progress->recorded);
    truce__ranges_release(&progress->voided);
}

/* ---- numbers below the watermark ------------------------------------------------------------- */

/*
 * What became of a number that is below the watermark. What was recorded stays so; so whatever a look at the
 * records has shown is kept with the handle, for the numbers that come next are often near: a file that is
 * applied again, a queue that delivers again. A look shows all records that are as wide as the numbers are far
 * apart, some hundreds of numbers at least.
 *
 *   K1  Only what stands in a record is kept, never that a number is missing.
 *   K2  It takes at most RANGES_KEPT ranges of all sources together; then it begins anew.
 *   K3  Numbers that are far apart fill many documents with some each; who comes again with one brings those
 *       around it, newest first, so the documents on both sides are looked at with it.
 */

#define RANGES_KEPT  (1 << 20) /* 16 MiB: as many as lie between those of one worker among others */
#define SOURCES_KEPT 64

struct recorded {
    size_t count, ranges; /* sources; ranges of all of them */
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

/* NULL: nothing is known of the source. */
static struct ranges *ranges_of(struct recorded *recorded, const char *source)
{
    for (size_t i = 0; recorded && i < recorded->count; i++) {
        if (!strcmp(recorded->of[i].source, source))
            return &recorded->of[i].ranges;
    }
    return NULL;
}

/* With the set's mutex held. */
static struct ranges *recorded_room_for(truce_set *set, const char *source, size_t more)
{
    struct recorded *recorded = set->recorded;
    struct ranges *ranges;

    if (!recorded)
        recorded = set->recorded = bson_malloc0(sizeof *recorded);
    if (recorded->ranges + more > RANGES_KEPT) /* K2 */
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
    kept = recorded_room_for(set, source, more->count);
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

/* K3. What cannot be read is looked at when its turn comes. */
static void recorded_look_around(truce_set *set, const char *source, int64_t seq, int shift)
{
    for (int from = 0; from <= 1; from++) {
        struct progress progress;

        if (!progress_near(set, source, seq, shift, from, &progress, NULL))
            keep_recorded(set, source, &progress.recorded);
        truce__progress_release(&progress);
    }
}

truce_status truce__number_fate(truce_set *set, const char *source, int64_t seq,
                                struct number_fate *fate, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, document;
    int narrowest = 0;
    truce_status status;

    *fate = (struct number_fate){0};
    truce__source_id(set, source, &filter);
    /* latest: an operation whose number is not recorded goes to the quarantine, also if it is a repeat */
    status =
        truce_find_one(set->store, SET_SOURCES, &filter, &truce__find_latest, &document, error);
    if (status == TRUCE_NOT_FOUND) {
        status = TRUCE_OK;
    } else if (!status) {
        fate->known = true;
        fate->floor = truce__field_number(&document, "floor");
    }
    bson_destroy(&document);
    bson_destroy(&filter);
    /* two looks: between the pages of one, the archive may be written behind it and a consumer's
     * document removed before it */
    for (int i = 0; i < 2 && !status && !fate->recorded; i++) {
        struct progress progress;

        status = truce__progress_load(set, source, seq, BLOCK_SHIFT, &progress, error);
        fate->recorded = !status && truce__ranges_has(&progress.recorded, seq);
        fate->voided = !status && truce__ranges_has(&progress.voided, seq);
        if (!status)
            keep_recorded(set, source, &progress.recorded);
        narrowest = progress.narrowest;
        truce__progress_release(&progress);
    }
    if (fate->recorded && narrowest > BLOCK_SHIFT && narrowest < WIDE_SHIFT_MAX)
        recorded_look_around(set, source, seq, narrowest);
    return status;
}

/* ---- records --------------------------------------------------------------------------------- */

#define WINDOW_PIECES 256
#define RANGES_MAX    512 /* of a wide block */
#define WIDTHS        ((WIDE_SHIFT_MAX - WIDE_SHIFT_MIN) / WIDE_SHIFT_STEP + 2)

/* ---- recording ---- */

/* A range that is to be recorded, inside one block of the widest width. */
struct piece {
    const char *source;
    struct range range;
};

/* A document that it may go to, as it was read. */
struct place {
    const char *source;
    int shift;
    int64_t number;
    bool exists, changed;
    bson_t content; /* the field as it was read; initialised if it exists */
    struct ranges ranges;
};

struct recording {
    truce_set *set;
    const char *consumer;
    struct piece *pieces; /* by source and number */
    size_t count;
    struct place *places; /* by source, width and number */
    size_t places_count;
};

/* Does it lie in one block of that width? */
static bool progress_is_inside(struct range range, int shift)
{
    return range.from >> shift == range.to >> shift;
}

static int progress_compare_places(const void *left, const void *right)
{
    const struct place *a = left, *b = right;
    int order = strcmp(a->source, b->source);

    if (!order)
        order = (a->shift > b->shift) - (a->shift < b->shift);
    return order ? order : (a->number > b->number) - (a->number < b->number);
}

static struct place *find_place(const struct recording *recording, const char *source, int shift,
                                int64_t number)
{
    const struct place wanted = {.source = source, .shift = shift, .number = number};

    return recording->places_count ? bsearch(&wanted, recording->places, recording->places_count,
                                             sizeof wanted, progress_compare_places)
                                   : NULL;
}

/* Where the pieces may go; `hint`: only to the width that their source's numbers went to last. */
static void list_places(struct recording *recording, bool hint)
{
    size_t kept = 0;

    recording->places = bson_malloc(recording->count * WIDTHS * sizeof *recording->places);
    recording->places_count = 0;
    for (size_t i = 0; i < recording->count; i++) {
        const struct piece *piece = &recording->pieces[i];
        int only = hint ? truce__source_shift(recording->set, piece->source) : 0;

        for (int shift = WIDE_SHIFT_MAX; progress_is_inside(piece->range, shift);
             shift = progress_narrower(shift)) {
            if (!hint || shift == only)
                recording->places[recording->places_count++] = (struct place){
                    .source = piece->source, .shift = shift, .number = piece->range.from >> shift};
            if (shift == BLOCK_SHIFT)
                break;
        }
    }
    if (recording->places_count)
        qsort(recording->places, recording->places_count, sizeof *recording->places,
              progress_compare_places);
    for (size_t i = 0; i < recording->places_count; i++) {
        if (!kept || progress_compare_places(&recording->places[kept - 1], &recording->places[i]))
            recording->places[kept++] = recording->places[i];
    }
    recording->places_count = kept;
}

static void release_places(struct recording *recording)
{
    for (size_t i = 0; i < recording->places_count; i++) {
        truce__ranges_release(&recording->places[i].ranges);
        if (recording->places[i].exists)
            bson_destroy(&recording->places[i].content);
    }
    bson_free(recording->places);
    recording->places = NULL;
    recording->places_count = 0;
}

static truce_status progress_take_place(struct recording *recording, const bson_t *document,
                                        bson_error_t *error)
{
    struct progress_block block;
    struct place *place;
    truce_status status = truce__progress_read(document, &block, error);

    if (status)
        return status;
    place = find_place(recording, block.source, block.shift, block.number);
    if (!place || place->exists) {
        truce__ranges_release(&block.ranges);
        return TRUCE_OK;
    }
    place->exists = true;
    place->ranges = block.ranges;
    bson_init(&place->content);
    bson_copy_to_excluding_noinit(document, &place->content, "_id", NULL);
    return TRUCE_OK;
}

static truce_status progress_look(struct recording *recording, bson_error_t *error)
{
    truce_set *set = recording->set;
    bson_t filter = BSON_INITIALIZER, in, list;
    truce_cursor *cursor = NULL;
    const bson_t *document;
    truce_status status;

    bson_append_document_begin(&filter, "_id", -1, &in);
    bson_append_array_begin(&in, "$in", -1, &list);
    for (size_t i = 0; i < recording->places_count; i++) {
        const struct place *place = &recording->places[i];
        char text[16];
        const char *key;

        bson_uint32_to_string((uint32_t)i, &key, text, sizeof text);
        truce__progress_id(set, place->source, place->shift, place->number, recording->consumer,
                           key, &list);
    }
    bson_append_array_end(&in, &list);
    bson_append_document_end(&filter, &in);
    status = truce_find(set->store, SET_PROGRESS, &filter, NULL, &cursor, error);
    while (!status) {
        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        status = progress_take_place(recording, document, error);
    }
    if (cursor)
        truce_cursor_close(cursor);
    bson_destroy(&filter);
    return status;
}

/* The end of the numbers from `next` on that one of the documents for the piece has. */
static int64_t recorded_to(const struct recording *recording, const struct piece *piece,
                           int64_t next)
{
    int64_t end = next - 1;

    for (int shift = WIDE_SHIFT_MAX; progress_is_inside(piece->range, shift);
         shift = progress_narrower(shift)) {
        const struct place *place =
            find_place(recording, piece->source, shift, piece->range.from >> shift);
        int64_t its = place ? truce__ranges_end(&place->ranges, next) : next - 1;

        end = its > end ? its : end;
        if (shift == BLOCK_SHIFT)
            break;
    }
    return end;
}

/* Is all of it in what was read? */
static bool is_recorded(const struct recording *recording, const struct piece *piece)
{
    int64_t end = piece->range.from - 1, before;

    do {
        before = end;
        end = recorded_to(recording, piece, before + 1);
    } while (end > before && end < piece->range.to);
    return end >= piece->range.to;
}

/* To the widest block that has room; false: to none of those that were read. */
static bool progress_put(struct recording *recording, const struct piece *piece)
{
    struct range range = piece->range;

    for (int shift = WIDE_SHIFT_MAX; progress_is_inside(range, shift);
         shift = progress_narrower(shift)) {
        bool last = shift == BLOCK_SHIFT || !progress_is_inside(range, progress_narrower(shift));
        struct place *place = find_place(recording, piece->source, shift, range.from >> shift);

        if (place && (last || place->ranges.count < RANGES_MAX ||
                      truce__ranges_touch(&place->ranges, range.from, range.to))) {
            truce__ranges_add(&place->ranges, range.from, range.to);
            place->changed = true;
            truce__source_shift_keep(recording->set, piece->source, shift);
            return true;
        }
        if (last)
            break;
    }
    return false;
}

/* {_id, content: as read} -> {$set: {content: with what was added}}, or an insert */
static void progress_build(const struct recording *recording, const struct place *place,
                           bson_t *filter, bson_t *document)
{
    bson_t change;

    bson_init(filter);
    bson_init(document);
    truce__progress_id(recording->set, place->source, place->shift, place->number,
                       recording->consumer, "_id", place->exists ? filter : document);
    if (!place->exists) {
        truce__progress_store(place->shift, place->number, &place->ranges, document);
        return;
    }
    bson_concat(filter, &place->content);
    bson_append_document_begin(document, "$set", -1, &change);
    truce__progress_store(place->shift, place->number, &place->ranges, &change);
    bson_append_document_end(document, &change);
}

/* `all`: every place that changed is written now. */
static truce_status write_places(struct recording *recording, bool *all, bson_error_t *error)
{
    static const truce_bulk_options options = {.unordered = true};
    truce_write *writes = bson_malloc0(recording->places_count * sizeof *writes);
    truce_write_outcome *outcomes = bson_malloc0(recording->places_count * sizeof *outcomes);
    bson_t *documents = bson_malloc(recording->places_count * 2 * sizeof *documents);
    size_t count = 0;
    truce_status first = TRUCE_OK, status = TRUCE_OK;

    for (size_t i = 0; i < recording->places_count; i++) {
        const struct place *place = &recording->places[i];
        bson_t *filter = &documents[2 * count], *document = filter + 1;

        if (!place->changed)
            continue;
        progress_build(recording, place, filter, document);
        writes[count++] =
            (truce_write){.kind = place->exists ? TRUCE_WRITE_UPDATE : TRUCE_WRITE_INSERT,
                          .collection = SET_PROGRESS,
                          .filter = place->exists ? filter : NULL,
                          .document = document};
    }
    if (count)
        status = truce_bulk(recording->set->store, writes, count, &options, outcomes, error);
    for (size_t i = 0; i < count; i++) {
        truce_status own = outcomes[i].status == TRUCE_NOT_FOUND ? status : outcomes[i].status;

        if (own || (!outcomes[i].result.modified && !outcomes[i].result.inserted))
            *all = false;
        if (own && own != TRUCE_DUPLICATE && !truce__repeatable(own) && !first)
            first = own;
        truce_write_result_release(&outcomes[i].result);
        bson_destroy(&documents[2 * i]);
        bson_destroy(&documents[2 * i + 1]);
    }
    bson_free(writes);
    bson_free(outcomes);
    bson_free(documents);
    return first;
}

/* One look, and what it leads to. */
static truce_status progress_attempt(struct recording *recording, bool hint, bool *done,
                                     bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    *done = true;
    list_places(recording, hint);
    if (recording->places_count)
        status = progress_look(recording, error);
    for (size_t i = 0; !status && i < recording->count; i++) {
        if (!is_recorded(recording, &recording->pieces[i]))
            *done &= progress_put(recording, &recording->pieces[i]);
    }
    if (!status && recording->places_count)
        status = write_places(recording, done, error);
    release_places(recording);
    return status;
}

static truce_status progress_run(struct recording *recording, bson_error_t *error)
{
    bool done = false;
    truce_status status;

    if (recording->consumer[0] != ':') {
        status = progress_attempt(recording, true, &done, error);
        if (status ? !truce__repeatable(status) : done)
            return status;
    }
    for (int round = 0; round < SET_TRIES_MAX; round++) {
        truce__set_pause(round);
        status = progress_attempt(recording, false, &done, error);
        if (status ? !truce__repeatable(status) : done)
            return status;
    }
    return truce__fail(TRUCE_CONFLICT, error, "consumer %s of set %s: others write its records",
                       recording->consumer, recording->set->id);
}

/* A range that crosses blocks of the widest width is a piece in each of them. True: there is room for more. */
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

/* The ranges of sorted operations, up to a window of them; returns how many operations went in. */
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

static truce_status progress_check(const truce_set *set, const char *consumer,
                                   const truce_set_operation *operations, size_t count,
                                   bson_error_t *error)
{
    if (!consumer || !consumer[0] || consumer[0] == ':' || strlen(consumer) > SET_CONSUMER_MAX)
        return truce__fail(TRUCE_INVALID, error,
                           "set %s: a consumer's name has 1 to %d bytes and begins with no colon",
                           set->id, SET_CONSUMER_MAX);
    for (size_t i = 0; i < count; i++) {
        if (operations[i].seq < 1)
            return truce__fail(TRUCE_INVALID, error,
                               "operation %zu: the sequence number must be at least 1", i);
    }
    return TRUCE_OK;
}

truce_status truce_set_record(truce_set *set, const char *consumer,
                              const truce_set_operation *operations, size_t count,
                              bson_error_t *error)
{
    DEADLINE_SCOPE(set->deadline_ms);
    struct recording recording = {.set = set, .consumer = consumer};
    const truce_set_operation **sorted;
    truce_status status = truce__set_ready(set, error);

    if (!status)
        status = progress_check(set, consumer, operations, count, error);
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
    bson_free(recording.pieces);
    bson_free(sorted);
    return status;
}

truce_status truce_set_consume(truce_set *set, const char *consumer,
                               const truce_set_operation *operations, size_t count,
                               truce_set_result *results, bson_error_t *error)
{
    DEADLINE_SCOPE(set->deadline_ms);
    truce_set_operation *applied;
    size_t applied_count = 0;
    bson_error_t why;
    truce_status status = truce__set_ready(set, error), recorded;

    if (!status)
        status = progress_check(set, consumer, operations, count, error);
    for (size_t i = 0; !status && i < count; i++) {
        const char *source = operations[i].source ? operations[i].source : "";

        if (!i || strcmp(source, operations[i - 1].source ? operations[i - 1].source : ""))
            status = truce__source_known(set, source, error);
    }
    if (status)
        return status;
    status = truce_set_apply(set, NULL, operations, count, results, error);
    applied = bson_malloc((count + 1) * sizeof *applied);
    for (size_t i = 0; i < count; i++) {
        if (!results[i].status)
            applied[applied_count++] = operations[i];
    }
    recorded = truce_set_record(set, consumer, applied, applied_count, &why);
    if (recorded && !status) {
        status = recorded;
        if (error)
            *error = why;
    }
    bson_free(applied);
    return status;
}

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
 *     (set_archive.c; models/set_progress.cpp).
 * P3. A look is not of one moment, and may miss what the archiver moves meanwhile. Computing a watermark
 *     it is too low then, which is safe; who asks for one number looks twice.
 *
 * Two names are truce's own: ":void" holds the numbers that will never come, ":archive" what the
 * watermark has passed.
 *
 * Stores of before there were wide blocks have narrow ones only, which are read and written as they were.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "patterns/set/set.h"

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
             shift = truce__progress_narrower(shift)) {
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
         shift = truce__progress_narrower(shift)) {
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
         shift = truce__progress_narrower(shift)) {
        bool last =
            shift == BLOCK_SHIFT || !progress_is_inside(range, truce__progress_narrower(shift));
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

/* The documents of what consumers recorded (set_progress.c), and looking through them. */
#include "patterns/set/set.h"

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

int truce__progress_narrower(int shift)
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
    for (int width = WIDE_SHIFT_MAX;; width = truce__progress_narrower(width)) {
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

truce_status truce__progress_near(truce_set *set, const char *source, int64_t number, int shift,
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

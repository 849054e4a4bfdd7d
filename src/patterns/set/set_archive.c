/*
 * The archive: what consumers recorded and the watermark has passed, in documents of its own.
 *
 * The records of a consumer go on standing in its documents, a document for each consumer and block. Together
 * they say little: that all of it was recorded. So the union goes into the documents of ":archive" (where numbers are
 * dense, one range), and then out of the consumers' documents:
 *
 *     1. read documents of consumers, a window of them
 *     2. add what is at or below the watermark to the archive (set_progress.c)
 *     3. {_id, content: as read} -> without it; removed, if nothing is left
 *
 * A1. What is taken out is in the archive: 2 was answered. A crash leaves it in both.
 * A2. What a consumer adds meanwhile stays: 3 compares the content.
 * A3. Archiving goes on where it ended: blocks below `archived` are done, and what was taken out of
 *     others is not met again.
 *
 * The archive itself is only added to. It tells a repeat of what was collected from what comes too late.
 */
#include "base/assert.h"
#include "patterns/set/set.h"

#define WINDOW_DOCUMENTS 4096 /* of some kilobytes each */

struct archiving {
    truce_set *set;
    const char *source;
    int64_t watermark;
    bson_t **documents; /* of consumers, as they were read */
    size_t count;
};

/* What of a consumer's document is at or below the watermark, and the rest; of others, and of what
 * cannot be read, nothing. */
static void part(const struct archiving *archiving, const bson_t *document,
                 struct progress_block *block, struct ranges *low, struct ranges *rest)
{
    if (truce__progress_read(document, block, NULL) || block->consumer[0] == ':')
        return;
    for (size_t i = 0; i < block->ranges.count; i++) {
        struct range range = block->ranges.at[i];
        int64_t end = range.to < archiving->watermark ? range.to : archiving->watermark;

        if (range.from <= end)
            truce__ranges_append(low, range.from, end);
        if (range.to > end)
            truce__ranges_append(rest, range.from > end ? range.from : end + 1, range.to);
    }
}

static truce_status add_window(struct archiving *archiving, bson_error_t *error)
{
    struct ranges all = {0};
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < archiving->count; i++) {
        struct progress_block block;
        struct ranges rest = {0};

        part(archiving, archiving->documents[i], &block, &all, &rest);
        truce__ranges_release(&block.ranges);
        truce__ranges_release(&rest);
    }
    truce__ranges_settle(&all);
    if (all.count)
        status =
            truce__progress_add(archiving->set, archiving->source, CONSUMER_ARCHIVE, &all, error);
    truce__ranges_release(&all);
    return status;
}

/* {_id, content: as read}: nothing was added to it meanwhile */
static truce_status archive_cut(truce_set *set, const bson_t *document,
                                const struct progress_block *block, const struct ranges *rest,
                                bson_error_t *error)
{
    bson_t update = BSON_INITIALIZER, change;
    truce_status status;

    if (rest->count) {
        bson_append_document_begin(&update, "$set", -1, &change);
        truce__progress_store(block->shift, block->number, rest, &change);
        bson_append_document_end(&update, &change);
        status = truce_update(set->store, SET_PROGRESS, document, &update, NULL, NULL, error);
    } else {
        status = truce_remove(set->store, SET_PROGRESS, document, NULL, NULL, error);
    }
    bson_destroy(&update);
    return status;
}

/* Steps 2 and 3 for what was read so far. */
static truce_status archive_flush(struct archiving *archiving, bson_error_t *error)
{
    truce_status status = add_window(archiving, error);

    for (size_t i = 0; i < archiving->count; i++) {
        struct progress_block block;
        struct ranges low = {0}, rest = {0};

        part(archiving, archiving->documents[i], &block, &low, &rest);
        if (!status && low.count)
            status = archive_cut(archiving->set, archiving->documents[i], &block, &rest, error);
        truce__ranges_release(&block.ranges);
        truce__ranges_release(&low);
        truce__ranges_release(&rest);
        bson_destroy(archiving->documents[i]);
    }
    archiving->count = 0;
    return status;
}

static void archive_take(struct archiving *archiving, const bson_t *document)
{
    struct progress_block block;
    struct ranges low = {0}, rest = {0};

    part(archiving, document, &block, &low, &rest);
    if (low.count)
        archiving->documents[archiving->count++] = bson_copy(document);
    truce__ranges_release(&block.ranges);
    truce__ranges_release(&low);
    truce__ranges_release(&rest);
}

/* Blocks [from, end) of one width. */
static truce_status read_width(struct archiving *archiving, int shift, int64_t from, int64_t end,
                               bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, bounds;
    truce_cursor *cursor = NULL;
    truce_status status;

    bson_append_document_begin(&filter, "_id", -1, &bounds);
    truce__progress_id(archiving->set, archiving->source, shift, from, NULL, "$gte", &bounds);
    truce__progress_id(archiving->set, archiving->source, shift, end, NULL, "$lt", &bounds);
    bson_append_document_end(&filter, &bounds);
    status = truce_find(archiving->set->store, SET_PROGRESS, &filter, NULL, &cursor, error);
    while (!status) {
        const bson_t *document;

        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        archive_take(archiving, document);
        if (archiving->count == WINDOW_DOCUMENTS)
            status = archive_flush(archiving, error);
    }
    if (cursor)
        truce_cursor_close(cursor);
    bson_destroy(&filter);
    return status;
}

truce_status truce__progress_archive(truce_set *set, const char *source, int64_t from,
                                     int64_t watermark, bson_error_t *error)
{
    struct archiving archiving = {.set = set, .source = source, .watermark = watermark};
    int64_t low = from << BLOCK_SHIFT;
    truce_status status = TRUCE_OK, flushed;

    archiving.documents = bson_malloc(WINDOW_DOCUMENTS * sizeof *archiving.documents);
    for (int shift = WIDE_SHIFT_MAX; !status && shift >= WIDE_SHIFT_MIN; shift -= WIDE_SHIFT_STEP)
        status = read_width(&archiving, shift, low >> shift, (watermark >> shift) + 1, error);
    if (!status)
        status =
            read_width(&archiving, BLOCK_SHIFT, from, truce__progress_passed(watermark), error);
    flushed = status ? TRUCE_OK : archive_flush(&archiving, error);
    while (archiving.count)
        bson_destroy(archiving.documents[--archiving.count]);
    bson_free(archiving.documents);
    return status ? status : flushed;
}

/*
 * What consumers recorded: the proof by which tombstones are collected.
 *
 * A consumer applies an operation, THEN records its number here, THEN acknowledges the message. So
 * a recorded number is an applied one, and a message that is not acknowledged is delivered again.
 * Numbers are kept in blocks of 4,096, one document for each consumer, source and block, in
 * `truce_progress`:
 *
 *     {_id: {set: "students.classes", source: "web", block: 0, consumer: "c1"}, bits: Binary}
 *
 * Only the consumer writes its documents, but a write of its own may land late, and two processes
 * may use one name by mistake: so each write is guarded by the bits that were read, and bits are
 * only ever added. What was recorded is never lost, in any order of landing.
 *
 * Two names are truce's own: ":void" holds the numbers that will never come, ":archive" the union
 * of blocks that the watermark has passed. Archiving writes the union first and then removes the
 * consumers' documents, guarded by the bits that went into it; a crash between leaves both.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "patterns/set/set.h"

#define WINDOW_BLOCKS 256

void truce__progress_id(const truce_set *set, const char *source, int64_t block,
                        const char *consumer, const char *field, bson_t *document)
{
    bson_t id;

    bson_append_document_begin(document, field, -1, &id);
    bson_append_utf8(&id, "set", -1, set->id, -1);
    bson_append_utf8(&id, "source", -1, source, -1);
    if (block >= 0)
        bson_append_int64(&id, "block", -1, block);
    if (consumer)
        bson_append_utf8(&id, "consumer", -1, consumer, -1);
    bson_append_document_end(document, &id);
}

/* One block of one source, and what is to be added to it. */
struct addition {
    const char *source;
    int64_t number; /* of the block */
    struct block add, there;
    bool done, exists;
};

struct recording {
    truce_set *set;
    const char *consumer;
    struct addition *additions; /* sorted by source and number */
    size_t count;
};

static int compare_additions(const struct addition *a, const struct addition *b)
{
    int order = strcmp(a->source, b->source);

    return order ? order : (a->number > b->number) - (a->number < b->number);
}

static struct addition *find_addition(struct recording *recording, const char *source,
                                      int64_t number)
{
    struct addition wanted = {.source = source, .number = number};
    size_t low = 0, high = recording->count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (compare_additions(&recording->additions[middle], &wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < recording->count && !compare_additions(&recording->additions[low], &wanted))
        return &recording->additions[low];
    return NULL;
}

static truce_status look(struct recording *recording, bson_error_t *error)
{
    truce_set *set = recording->set;
    bson_t filter = BSON_INITIALIZER, in, list;
    truce_cursor *cursor = NULL;
    const bson_t *document;
    truce_status status;

    bson_append_document_begin(&filter, "_id", -1, &in);
    bson_append_array_begin(&in, "$in", -1, &list);
    for (size_t i = 0; i < recording->count; i++) {
        struct addition *addition = &recording->additions[i];
        char text[16];
        const char *key;

        bson_uint32_to_string((uint32_t)i, &key, text, sizeof text);
        if (!addition->done)
            truce__progress_id(set, addition->source, addition->number, recording->consumer, key,
                               &list);
        addition->exists = false;
        memset(&addition->there, 0, sizeof addition->there);
    }
    bson_append_array_end(&in, &list);
    bson_append_document_end(&filter, &in);
    status = truce_find(set->store, SET_PROGRESS, &filter, NULL, &cursor, error);
    while (!status) {
        struct addition *addition = NULL;
        bson_iter_t iter, block, source;

        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        if (bson_iter_init(&iter, document) &&
            bson_iter_find_descendant(&iter, "_id.block", &block) &&
            bson_iter_init(&iter, document) &&
            bson_iter_find_descendant(&iter, "_id.source", &source) &&
            BSON_ITER_HOLDS_UTF8(&source))
            addition =
                find_addition(recording, bson_iter_utf8(&source, NULL), bson_iter_as_int64(&block));
        if (addition) {
            addition->exists = true;
            truce__block_read(document, "bits", &addition->there);
        }
    }
    if (cursor)
        truce_cursor_close(cursor);
    bson_destroy(&filter);
    return status;
}

/* {_id, bits: as read} -> {$set: {bits: the union}}, or an insert */
static void build(const struct recording *recording, const struct addition *addition,
                  bson_t *filter, bson_t *document)
{
    struct block both = addition->there;
    bson_t change;

    truce__block_unite(&both, &addition->add);
    bson_init(filter);
    bson_init(document);
    if (!addition->exists) {
        truce__progress_id(recording->set, addition->source, addition->number, recording->consumer,
                           "_id", document);
        truce__block_append(&both, document, "bits");
        return;
    }
    truce__progress_id(recording->set, addition->source, addition->number, recording->consumer,
                       "_id", filter);
    truce__block_append(&addition->there, filter, "bits");
    bson_append_document_begin(document, "$set", -1, &change);
    truce__block_append(&both, &change, "bits");
    bson_append_document_end(document, &change);
}

static bool is_open(const struct addition *addition)
{
    struct block both = addition->there;

    return !addition->done && (!addition->exists || truce__block_unite(&both, &addition->add));
}

/* One round: what is not recorded yet is written; what another write changed meanwhile stays open.
 */
static truce_status write_open(struct recording *recording, bson_error_t *error)
{
    static const truce_bulk_options options = {.unordered = true};
    truce_write *writes = bson_malloc0(recording->count * sizeof *writes);
    truce_write_outcome *outcomes = bson_malloc0(recording->count * sizeof *outcomes);
    struct addition **of = bson_malloc(recording->count * sizeof *of);
    bson_t *documents = bson_malloc(recording->count * 2 * sizeof *documents);
    size_t count = 0;
    truce_status first = TRUCE_OK, status = TRUCE_OK;

    for (size_t i = 0; i < recording->count; i++) {
        struct addition *addition = &recording->additions[i];

        if (!is_open(addition)) {
            addition->done = true;
            continue;
        }
        of[count] = addition;
        build(recording, addition, &documents[2 * count], &documents[2 * count + 1]);
        writes[count] =
            (truce_write){.kind = addition->exists ? TRUCE_WRITE_UPDATE : TRUCE_WRITE_INSERT,
                          .collection = SET_PROGRESS,
                          .filter = addition->exists ? &documents[2 * count] : NULL,
                          .document = &documents[2 * count + 1]};
        count++;
    }
    if (count)
        status = truce_bulk(recording->set->store, writes, count, &options, outcomes, error);
    for (size_t i = 0; i < count; i++) {
        truce_status own = outcomes[i].status == TRUCE_NOT_FOUND ? status : outcomes[i].status;

        if (!own)
            of[i]->done = outcomes[i].result.modified || outcomes[i].result.inserted;
        else if (own != TRUCE_DUPLICATE && !truce__repeatable(own) && !first)
            first = own;
        truce_write_result_release(&outcomes[i].result);
        bson_destroy(&documents[2 * i]);
        bson_destroy(&documents[2 * i + 1]);
    }
    bson_free(writes);
    bson_free(outcomes);
    bson_free(of);
    bson_free(documents);
    return first;
}

static bool all_done(const struct recording *recording)
{
    for (size_t i = 0; i < recording->count; i++) {
        if (!recording->additions[i].done)
            return false;
    }
    return true;
}

static truce_status run(struct recording *recording, bson_error_t *error)
{
    for (int round = 0; round < SET_TRIES_MAX; round++) {
        truce_status status;

        truce__set_pause(round);
        status = look(recording, error);
        if (!status)
            status = write_open(recording, error);
        if (status && !truce__repeatable(status))
            return status;
        if (!status && all_done(recording))
            return TRUCE_OK;
    }
    return truce__fail(TRUCE_CONFLICT, error, "consumer %s of set %s: others write its records",
                       recording->consumer, recording->set->id);
}

truce_status truce__progress_add(truce_set *set, const char *source, int64_t number,
                                 const char *consumer, const struct block *block,
                                 bson_error_t *error)
{
    struct addition addition = {.source = source, .number = number, .add = *block};
    struct recording recording = {set, consumer, &addition, 1};

    return run(&recording, error);
}

/* ---- recording operations ---- */

static int by_source_and_number(const void *left, const void *right)
{
    const truce_set_operation *a = *(const truce_set_operation *const *)left;
    const truce_set_operation *b = *(const truce_set_operation *const *)right;
    int order = strcmp(a->source ? a->source : "", b->source ? b->source : "");

    return order ? order : (a->seq > b->seq) - (a->seq < b->seq);
}

/* The blocks of sorted operations, up to a window of them; returns how many operations went in. */
static size_t gather(struct recording *recording, const truce_set_operation *const *sorted,
                     size_t count)
{
    struct addition *last = NULL;
    size_t i;

    recording->count = 0;
    for (i = 0; i < count; i++) {
        const char *source = sorted[i]->source ? sorted[i]->source : "";
        int64_t number = sorted[i]->seq / BLOCK_NUMBERS;
        int bit = (int)(sorted[i]->seq % BLOCK_NUMBERS);

        if (!last || last->number != number || strcmp(last->source, source)) {
            if (recording->count == WINDOW_BLOCKS)
                break;
            last = &recording->additions[recording->count++];
            memset(last, 0, sizeof *last);
            last->source = source;
            last->number = number;
        }
        truce__block_add(&last->add, bit, bit);
    }
    return i;
}

static truce_status check(const truce_set *set, const char *consumer,
                          const truce_set_operation *operations, size_t count, bson_error_t *error)
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
    struct recording recording = {.set = set, .consumer = consumer};
    const truce_set_operation **sorted;
    truce_status status = truce__set_ready(set, error);

    if (!status)
        status = check(set, consumer, operations, count, error);
    if (status || !count)
        return status;
    sorted = bson_malloc(count * sizeof *sorted);
    recording.additions = bson_malloc(WINDOW_BLOCKS * sizeof *recording.additions);
    for (size_t i = 0; i < count; i++)
        sorted[i] = &operations[i];
    qsort(sorted, count, sizeof *sorted, by_source_and_number);
    for (size_t at = 0; !status && at < count;) {
        at += gather(&recording, sorted + at, count - at);
        for (size_t i = 0; !status && i < recording.count; i++)
            status = truce__source_known(set, recording.additions[i].source, error);
        if (!status)
            status = run(&recording, error);
    }
    bson_free(recording.additions);
    bson_free(sorted);
    return status;
}

truce_status truce_set_consume(truce_set *set, const char *consumer,
                               const truce_set_operation *operations, size_t count,
                               truce_set_result *results, bson_error_t *error)
{
    truce_set_operation *applied;
    size_t applied_count = 0;
    bson_error_t why;
    truce_status status = truce__set_ready(set, error), recorded;

    if (!status)
        status = check(set, consumer, operations, count, error);
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

/* ---- reading the records ---- */

static void take_block(const bson_t *document, int64_t first, int64_t count,
                       struct block_union *unions)
{
    bson_iter_t iter, block, consumer;
    struct block bits;
    int64_t number;
    bool is_void;

    if (!bson_iter_init(&iter, document) || !bson_iter_find_descendant(&iter, "_id.block", &block))
        return;
    if (!bson_iter_init(&iter, document) ||
        !bson_iter_find_descendant(&iter, "_id.consumer", &consumer) ||
        !BSON_ITER_HOLDS_UTF8(&consumer))
        return;
    number = bson_iter_as_int64(&block);
    if (number < first || number >= first + count)
        return;
    is_void = !strcmp(bson_iter_utf8(&consumer, NULL), CONSUMER_VOID);
    truce__block_read(document, "bits", &bits);
    truce__block_unite(is_void ? &unions[number - first].voided : &unions[number - first].recorded,
                       &bits);
}

/* {_id: {$gte: {set, source, block: first}, $lt: {set, source, block: end}}}, in the order of blocks */
static truce_status open_blocks(truce_set *set, const char *source, int64_t first, int64_t end,
                                truce_cursor **cursor, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, sort = BSON_INITIALIZER, bounds;
    const truce_find_options options = {.sort = &sort};
    truce_status status;

    bson_append_document_begin(&filter, "_id", -1, &bounds);
    truce__progress_id(set, source, first, NULL, "$gte", &bounds);
    truce__progress_id(set, source, end, NULL, "$lt", &bounds);
    bson_append_document_end(&filter, &bounds);
    bson_append_int32(&sort, "_id", 3, 1);
    status = truce_find(set->store, SET_PROGRESS, &filter, &options, cursor, error);
    bson_destroy(&filter);
    bson_destroy(&sort);
    return status;
}

truce_status truce__progress_load(truce_set *set, const char *source, int64_t first, int64_t count,
                                  struct block_union *unions, bson_error_t *error)
{
    truce_cursor *cursor = NULL;
    truce_status status;

    memset(unions, 0, (size_t)count * sizeof *unions);
    status = open_blocks(set, source, first, first + count, &cursor, error);
    while (!status) {
        const bson_t *document;

        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        take_block(document, first, count, unions);
    }
    if (cursor)
        truce_cursor_close(cursor);
    return status;
}

/* ---- the archive ---- */

/* {_id, bits: as read}: the consumer's document, if nothing was added to it meanwhile */
static truce_status remove_archived(truce_set *set, const bson_t *document, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER;
    struct fields fields = truce__fields(truce__value_document(document));
    truce_status status;

    while (truce__fields_next(&fields))
        truce__value_append(&filter, fields.key, fields.key_length, fields.value);
    status = truce_remove(set->store, SET_PROGRESS, &filter, NULL, NULL, error);
    bson_destroy(&filter);
    return status;
}

static bool is_archivable(const bson_t *document)
{
    bson_iter_t iter, consumer;

    return bson_iter_init(&iter, document) &&
           bson_iter_find_descendant(&iter, "_id.consumer", &consumer) &&
           BSON_ITER_HOLDS_UTF8(&consumer) && bson_iter_utf8(&consumer, NULL)[0] != ':';
}

static truce_status archive_block(truce_set *set, const char *source, int64_t number,
                                  bson_error_t *error)
{
    struct block_union both;
    struct block all = {{0}};
    bson_t *documents[64];
    size_t count = 0;
    truce_cursor *cursor = NULL;
    const bson_t *document;
    truce_status status = open_blocks(set, source, number, number + 1, &cursor, error);

    while (!status && count < sizeof documents / sizeof *documents) {
        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        memset(&both, 0, sizeof both);
        take_block(document, number, 1, &both);
        if (is_archivable(document)) {
            documents[count++] = bson_copy(document);
            truce__block_unite(&all, &both.recorded);
        }
    }
    if (cursor)
        truce_cursor_close(cursor);
    if (!status && count)
        status = truce__progress_add(set, source, number, CONSUMER_ARCHIVE, &all, error);
    for (size_t i = 0; i < count; i++) {
        if (!status)
            status = remove_archived(set, documents[i], error);
        bson_destroy(documents[i]);
    }
    return status;
}

/* The blocks of [from, to) that consumers still have documents of, up to a window of them, rising.
 * Numbers may be far apart, so what is walked is what was recorded, not the numbers. */
static truce_status list_blocks(truce_set *set, const char *source, int64_t from, int64_t to,
                                int64_t *blocks, size_t *count, bson_error_t *error)
{
    truce_cursor *cursor = NULL;
    const bson_t *document;
    truce_status status = open_blocks(set, source, from, to, &cursor, error);

    *count = 0;
    while (!status && *count < WINDOW_BLOCKS) {
        bson_iter_t iter, block;

        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        if (!is_archivable(document) || !bson_iter_init(&iter, document) ||
            !bson_iter_find_descendant(&iter, "_id.block", &block))
            continue;
        if (!*count || blocks[*count - 1] != bson_iter_as_int64(&block))
            blocks[(*count)++] = bson_iter_as_int64(&block);
    }
    if (cursor)
        truce_cursor_close(cursor);
    return status;
}

truce_status truce__progress_archive(truce_set *set, const char *source, int64_t from, int64_t to,
                                     bson_error_t *error)
{
    int64_t blocks[WINDOW_BLOCKS];
    size_t count = WINDOW_BLOCKS;
    truce_status status = TRUCE_OK;

    while (!status && count == WINDOW_BLOCKS) {
        status = list_blocks(set, source, from, to, blocks, &count, error);
        for (size_t i = 0; !status && i < count; i++)
            status = archive_block(set, source, blocks[i], error);
        if (!status && count) { /* what is done so far need not be looked through again */
            from = blocks[count - 1] + 1;
            status = truce__source_raise(set, source, "archived", from, error);
        }
    }
    return status;
}

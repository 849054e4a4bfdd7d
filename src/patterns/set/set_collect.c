/*
 * Tombstones collected by proof.
 *
 * One round of the collector:
 *
 *     1. read the sources and the records; compute the watermark W        (set_source.c)
 *     2. announce W; read the sources again; another one: begin anew
 *     3. for each document with a tombstone at or below W, in one update:
 *        {_id, _intent: absent} -> {$pull: {deleted_classes: {seq: {$lte: W}}}, $max: {_wm: W}}
 *     4. write down how far each source is proven; archive what is below
 *
 * The tombstone goes and `_wm` rises in the same update, and every apply compares `_wm` in its own
 * guard: an older add that is still under way finds one or the other. A crash anywhere leaves
 * documents with tombstones that the next round takes. Where the set is protected, the same update marks the
 * members that it passes (set_protect.c).
 */
#include "base/assert.h"
#include "base/field.h"
#include "patterns/set/set.h"
#include "patterns/set/set_protect.h"
#include "patterns/set/set_walk.h"

/* ---- the archive ----------------------------------------------------------------------------- */

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

/* What consumers recorded up to `watermark` goes into the archive; `from` is where the last time ended, in
 * blocks. */
static truce_status progress_archive(truce_set *set, const char *source, int64_t from,
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

/* ---- removal of a set ------------------------------------------------------------------------ */

/*
 * A set that is given up: its definition goes, what consumers recorded, and its sources. The lists in the
 * documents are the user's, and stay.
 *
 * The definition goes last, so that a call that was cut off can be made again. What is recorded goes
 * first: a definition without records collects nothing, which is safe.
 */

static bool is_list(const bson_t *document, const char *field)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, field) && BSON_ITER_HOLDS_ARRAY(&iter);
}

/* Does any document hold an element, or a tombstone? */
static truce_status forget_is_used(truce_set *set, bool *used, bson_error_t *error)
{
    bool by_element = set->layout == TRUCE_SET_BY_ELEMENT;
    bson_t *filter = by_element ? bson_new()
                                : BCON_NEW("$or", "[", "{", set->field, "{", "$exists",
                                           BCON_BOOL(true), "}", "}", "{", set->deleted, "{",
                                           "$exists", BCON_BOOL(true), "}", "}", "]");
    bson_t found;
    truce_status status = truce_find_one(set->store, by_element ? set->elements : set->collection,
                                         filter, NULL, &found, error);

    *used = !status && (by_element || is_list(&found, set->field) || is_list(&found, set->deleted));
    bson_destroy(&found);
    bson_destroy(filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static truce_status forget_remove_all(truce_set *set, const char *collection, const char *field,
                                      int64_t *removed, bson_error_t *error)
{
    bson_t *filter = BCON_NEW(field, BCON_UTF8(set->id));
    truce_write_options options = {.multi = true};
    truce_write_result result = {0};
    truce_status status = truce_remove(set->store, collection, filter, &options, &result, error);

    *removed = result.removed;
    truce_write_result_release(&result);
    bson_destroy(filter);
    return status;
}

truce_status truce_set_forget(truce_set *set, bool anyway, bson_error_t *error)
{
    DEADLINE_SCOPE(set->deadline_ms);
    int64_t removed = 0;
    bool used = false;
    truce_status status = TRUCE_OK;

    if (set->refused) {
        if (error)
            *error = set->refusal;
        return TRUCE_INVALID;
    }
    if (!anyway)
        status = forget_is_used(set, &used, error);
    if (!status && used)
        status = truce__fail(TRUCE_CONFLICT, error, "documents of %s hold the list \"%s\"",
                             set->collection, set->field);
    if (!status && set->layout == TRUCE_SET_IN_DOCUMENT)
        status = truce__set_unprotect(set, error);
    if (!status)
        status = forget_remove_all(set, SET_PROGRESS, "_id.set", &removed, error);
    if (!status)
        status = forget_remove_all(set, SET_SOURCES, "_id.set", &removed, error);
    if (!status)
        status = forget_remove_all(set, SET_DEFINITIONS, "_id", &removed, error);
    if (!status && !removed)
        status = truce__fail(TRUCE_NOT_FOUND, error, "there is no set %s", set->id);
    atomic_store_explicit(&set->structure, 0, memory_order_release);
    return status;
}

/* ---- the collector --------------------------------------------------------------------------- */

#define ROUNDS 20

/* ---- the watermark that may be used ---- */

static truce_status announce(truce_set *set, int64_t watermark, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER, inner;
    truce_status status;

    bson_append_utf8(&filter, "_id", -1, set->id, -1);
    bson_append_document_begin(&update, "$max", -1, &inner);
    bson_append_int64(&inner, "announced", -1, watermark);
    bson_append_document_end(&update, &inner);
    status = truce__set_update_answered(set, SET_DEFINITIONS, &filter, &update, NULL, error);
    bson_destroy(&filter);
    bson_destroy(&update);
    return status;
}

static bool same_sources(const struct source_list *a, const struct source_list *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        if (strcmp(a->sources[i].name, b->sources[i].name))
            return false;
    }
    return true;
}

/* `list` is of the last round, and released by the caller. */
static truce_status collect_prove(truce_set *set, struct source_list *list, bson_error_t *error)
{
    struct source_list again = {0};
    truce_status status = truce__sources_load(set, list, error);

    for (int round = 0; !status && round < ROUNDS; round++) {
        bool settled;

        status = announce(set, list->watermark, error);
        if (!status)
            status = truce__sources_load(set, &again, error);
        settled = !status && same_sources(list, &again);
        if (settled) {
            truce__sources_release(&again);
            return TRUCE_OK;
        }
        truce__sources_release(list);
        *list = again;
        again = (struct source_list){0};
    }
    return status ? status
                  : truce__fail(TRUCE_CONFLICT, error, "set %s: sources come and come", set->id);
}

/* ---- the documents ---- */

struct sweep {
    struct set_walk walk; /* first */
    int64_t watermark;
    bool marks;
};

/* {$pull: {deleted: {seq: {$lte: W}}}, $max: {_wm: W}, $set: {_rev: fresh}} */
static void build_update(const truce_set *set, int64_t watermark, const bson_t *document,
                         bool marks, struct set_change *change)
{
    bson_t outer, inner, condition;

    bson_append_document_begin(&change->update, "$pull", -1, &outer);
    bson_append_document_begin(&outer, set->deleted, -1, &inner);
    bson_append_document_begin(&inner, set->seq, -1, &condition);
    bson_append_int64(&condition, "$lte", -1, watermark);
    bson_append_document_end(&inner, &condition);
    bson_append_document_end(&outer, &inner);
    bson_append_document_end(&change->update, &outer);
    bson_append_document_begin(&change->update, "$max", -1, &outer);
    bson_append_int64(&outer, set->watermark, -1, watermark);
    bson_append_document_end(&change->update, &outer);
    truce__set_marks_append(set, document, marks ? watermark : 0, change);
}

static int64_t count_tombstones(const truce_set *set, const bson_t *document, int64_t watermark)
{
    struct value list =
        truce__value_field(truce__value_document(document), set->deleted, strlen(set->deleted));
    struct fields fields;
    int64_t count = 0;

    if (list.type != BSON_TYPE_ARRAY)
        return 0;
    fields = truce__fields(list);
    while (truce__fields_next(&fields)) {
        struct value name;
        struct set_rank rank;

        count += truce__set_entry_read(set, fields.value, false, &name, &rank) && rank.seq &&
                 rank.seq <= watermark;
    }
    return count;
}

static void collect_add_document(struct set_walk *walk, const bson_t *document)
{
    const struct sweep *sweep = (const struct sweep *)walk;
    int64_t own = truce__field_number(document, walk->set->watermark);
    int64_t watermark = own > sweep->watermark ? own : sweep->watermark;
    struct set_change *change = truce__set_walk_change(walk);

    truce__value_append(&change->filter, "_id", 3,
                        truce__value_field(truce__value_document(document), "_id", 3));
    truce__set_free_append(truce__set_has_revision(document), &change->filter);
    change->entries = count_tombstones(walk->set, document, watermark);
    build_update(walk->set, watermark, document, sweep->marks, change);
}

/* Documents with a tombstone at or below the watermark. */
static truce_status sweep_documents(truce_set *set, int64_t watermark,
                                    truce_set_collected *collected, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, projection = BSON_INITIALIZER, inner;
    struct sweep *sweep = bson_malloc0(sizeof *sweep);
    char *path = bson_strdup_printf("%s.%s", set->deleted, set->seq);
    truce_status status;

    bson_append_document_begin(&filter, path, -1, &inner);
    bson_append_int64(&inner, "$lte", -1, watermark);
    bson_append_document_end(&filter, &inner);
    *sweep =
        (struct sweep){.walk = {.set = set, .add = collect_add_document}, .watermark = watermark};
    status = truce__set_is_protected(set, &sweep->marks, error);
    truce__set_sight_append(set, sweep->marks, &projection);
    if (!status)
        status = truce__set_walk(&sweep->walk, &filter, &projection, error);
    collected->documents = sweep->walk.documents;
    collected->tombstones = sweep->walk.entries;
    /* what is held is left to the next round */
    if (!status && sweep->walk.first && sweep->walk.first != TRUCE_LOCKED) {
        status = sweep->walk.first;
        if (error)
            *error = sweep->walk.why;
    }
    bson_destroy(&filter);
    bson_destroy(&projection);
    bson_free(path);
    bson_free(sweep);
    return status;
}

static truce_status write_down(truce_set *set, const struct source_state *source,
                               bson_error_t *error)
{
    int64_t blocks = truce__progress_passed(source->watermark);
    truce_status status = TRUCE_OK;

    if (source->watermark > source->proven)
        status = truce__source_raise(set, source->name, "proven", source->watermark, error);
    if (!status && source->watermark)
        status = progress_archive(set, source->name, source->archived, source->watermark, error);
    if (status || blocks <= source->archived)
        return status;
    return status ? status : truce__source_raise(set, source->name, "archived", blocks, error);
}

truce_status truce_set_collect(truce_set *set, truce_set_collected *collected, bson_error_t *error)
{
    DEADLINE_SCOPE(set->deadline_ms);
    struct source_list list = {0};
    truce_set_collected unused;
    truce_status status = truce__set_ready(set, error), first = TRUCE_OK;

    if (!collected)
        collected = &unused;
    *collected = (truce_set_collected){0};
    if (!status)
        status = collect_prove(set, &list, error);
    if (!status && list.watermark && set->layout == TRUCE_SET_IN_DOCUMENT)
        status = sweep_documents(set, list.watermark, collected, error);
    if (!status && list.watermark && set->layout == TRUCE_SET_BY_ELEMENT)
        status = truce__set_element_collect(set, list.watermark, collected, error);
    collected->watermark = list.watermark;
    for (size_t i = 0; !status && i < list.count; i++) { /* one that fails stops no other */
        truce_status own = write_down(set, &list.sources[i], first ? NULL : error);

        first = first ? first : own;
    }
    truce__sources_release(&list);
    return status ? status : first;
}

/*
 * Collects tombstones by proof, archives records, protects a set by a validator, and removes a set.
 *
 * One collection:
 *
 *     1. read the sources and the records; compute the watermark W        (set_watermark.c)
 *     2. announce W; read the sources again; if there is a new one, start over
 *     3. for each document with a tombstone at or below W, in one update:
 *        {_id, _intent: absent} -> {$pull: {deleted_classes: {seq: {$lte: W}}}, $max: {_wm: W}}
 *     4. store how far each source is proven; archive the numbers below
 *
 * The same update removes the tombstone and raises `_wm`, and every operation compares `_wm` in its
 * guard. An older add that arrives later therefore encounters the tombstone or the raised `_wm`. A
 * crash leaves documents with tombstones, which the next collection handles. If the set is
 * protected, the same update marks the members at or below W (see the validator below).
 */
#include "patterns/set/set_walk.h"

#include "base/assert.h"
#include "base/field.h"
#include "patterns/set/set.h"
#include "store/store.h"

/* ---- the archive ----------------------------------------------------------------------------- */

/*
 * The archive has the numbers that consumers recorded and the watermark has passed, in documents of
 * its own.
 *
 * The records of a consumer would stay in its documents forever, one document for each consumer and
 * block. Together they only say that all numbers were recorded. So their union moves to the
 * documents of ":archive" (one range where numbers are dense):
 *
 *     1. read a window of documents of consumers
 *     2. add what is at or below the watermark to the archive (set_watermark.c)
 *     3. {_id, content: as read} -> without those numbers; removed if nothing is left
 *
 * SA1. Removed numbers are in the archive, because step 2 got a reply. A crash leaves them in
 * both.
 * SA2. Numbers that a consumer adds concurrently stay, because step 3 compares the content.
 * SA3. Archiving resumes where it ended: blocks below `archived` are done, and numbers that were
 *     removed from other blocks do not occur again.
 *
 * The archive only grows. It distinguishes a repeat of a collected operation from a late one.
 */

/* The maximum number of documents in a window. Each has some kilobytes. */
#define WINDOW_DOCUMENTS 4096

/* The transfer of the numbers of a source into its archive. */
struct archiving {
    truce_set *set;
    const char *source;
    int64_t watermark;
    /* The documents of consumers in the current window, as they were read. Owned. */
    bson_t **documents;
    size_t count;
};

static truce_status set_is_protected(truce_set *set, bool *is, bson_error_t *error);
static void tombstones_append_projection(const truce_set *set, bool members, bson_t *projection);
static int64_t set_marks_append(const truce_set *set, const bson_t *document, int64_t watermark,
                                struct set_change *change);
static truce_status set_unprotect(truce_set *set, bson_error_t *error);

/* Splits a consumer's document into the numbers at or below the watermark and the rest. Both are
 * empty for other documents and for unreadable ones. */
static void tombstones_split_ranges(const struct archiving *archiving, const bson_t *document,
                                    struct progress_block *block, struct ranges *low,
                                    struct ranges *rest)
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

/* Adds the numbers at or below the watermark from all documents of the window to the archive (step
 * 2). */
static truce_status add_window(struct archiving *archiving, bson_error_t *error)
{
    struct ranges all = {0};
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < archiving->count; i++) {
        struct progress_block block;
        struct ranges rest = {0};

        tombstones_split_ranges(archiving, archiving->documents[i], &block, &all, &rest);
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

/* Keeps only the numbers `rest` in a consumer's document, or removes the document if there are
 * none. The filter is the document as read: it matches unless numbers were added concurrently
 * (SA2). */
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

/* Executes steps 2 and 3 for the documents read so far, and frees them. */
static truce_status archive_flush(struct archiving *archiving, bson_error_t *error)
{
    truce_status status = add_window(archiving, error);

    for (size_t i = 0; i < archiving->count; i++) {
        struct progress_block block;
        struct ranges low = {0}, rest = {0};

        tombstones_split_ranges(archiving, archiving->documents[i], &block, &low, &rest);
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

static void archive_collect(struct archiving *archiving, const bson_t *document)
{
    struct progress_block block;
    struct ranges low = {0}, rest = {0};

    tombstones_split_ranges(archiving, document, &block, &low, &rest);
    if (low.count)
        archiving->documents[archiving->count++] = bson_copy(document);
    truce__ranges_release(&block.ranges);
    truce__ranges_release(&low);
    truce__ranges_release(&rest);
}

/* Reads blocks [from, end) of one width. */
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
        archive_collect(archiving, document);
        if (archiving->count == WINDOW_DOCUMENTS)
            status = archive_flush(archiving, error);
    }
    if (cursor)
        truce_cursor_close(cursor);
    bson_destroy(&filter);
    return status;
}

/* Archives what consumers recorded up to `watermark`, starting at block `from`, where the last call
 * ended. */
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
 * Removing a set removes the rule of its validator, its records, its sources, and its definition.
 * The lists in the documents are the user's, and stay; so do the documents of the quarantine.
 *
 * The definition goes last, so an interrupted call can be repeated. A definition without records
 * collects nothing, which is safe.
 */

static bool is_list(const bson_t *document, const char *field)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, field) && BSON_ITER_HOLDS_ARRAY(&iter);
}

/* Returns whether any document has an element or a tombstone. */
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
    truce_status status = truce__handle_usable(set->store, set->refused, &set->refusal, error);

    if (!status && !anyway)
        status = forget_is_used(set, &used, error);
    if (!status && used)
        status = truce__fail(
            TRUCE_CONFLICT, error,
            "documents of \"%s\" still contain the list \"%s\", so the definition of the set was not "
            "removed",
            set->collection, set->field);
    if (!status && set->layout == TRUCE_SET_IN_DOCUMENT)
        status = set_unprotect(set, error);
    if (!status)
        status = forget_remove_all(set, SET_PROGRESS, "_id.set", &removed, error);
    if (!status)
        status = forget_remove_all(set, SET_SOURCES, "_id.set", &removed, error);
    if (!status)
        status = forget_remove_all(set, SET_DEFINITIONS, "_id", &removed, error);
    if (!status && !removed)
        status = truce__fail(TRUCE_NOT_FOUND, error, "the set \"%s\" does not exist", set->id);
    atomic_store_explicit(&set->structure, 0, memory_order_release);
    return status;
}

/* ---- the collector --------------------------------------------------------------------------- */

/* How often a collection announces a watermark if a source starts each time. */
#define ATTEMPTS_MAX 20

/* ---- the watermark that may be used ---- */

static truce_status tombstones_announce(truce_set *set, int64_t watermark, bson_error_t *error)
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

/* Executes steps 1 and 2: announces the watermark of `list` until no source started in the
 * meantime. Returns CONFLICT if one started in each attempt. `list` belongs to the last attempt;
 * the caller releases it. */
static truce_status collect_prove(truce_set *set, struct source_list *list, bson_error_t *error)
{
    struct source_list again = {0};
    truce_status status = truce__sources_load(set, list, error);

    for (int attempt = 0; !status && attempt < ATTEMPTS_MAX; attempt++) {
        bool settled;

        status = tombstones_announce(set, list->watermark, error);
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
    return status
               ? status
               : truce__fail(TRUCE_CONFLICT, error,
                             "set \"%s\": a new source started in each attempt: collect it again",
                             set->id);
}

/* ---- the documents ---- */

/* A walk that removes tombstones up to the watermark. */
struct sweep {
    /* Must be the first field: walk functions get a pointer to it. */
    struct set_walk walk;
    int64_t watermark;
    bool marks;
};

/* Builds the update {$pull: {deleted: {seq: {$lte: W}}}, $max: {_wm: W}, $set: {_rev: fresh}}.
 * If `marks`, the update also marks the members at or below W. */
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
    set_marks_append(set, document, marks ? watermark : 0, change);
}

/* Returns the number of tombstones with a number from 1 to the watermark. The collection reports
 * it. */
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

/* Collects documents with a tombstone at or below the watermark. */
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
    status = set_is_protected(set, &sweep->marks, error);
    tombstones_append_projection(set, sweep->marks, &projection);
    if (!status)
        status = truce__set_walk(&sweep->walk, &filter, &projection, error);
    collected->documents = sweep->walk.documents;
    collected->tombstones = sweep->walk.entries;
    /* Documents that a commit holds are left to the next collection, so LOCKED is not a failure. */
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
    /* A source that fails must not stop the others. */
    for (size_t i = 0; !status && i < list.count; i++) {
        truce_status own = write_down(set, &list.sources[i], first ? NULL : error);

        first = first ? first : own;
    }
    truce__sources_release(&list);
    return status ? status : first;
}

/* ---- protection ------------------------------------------------------------------------------ */

/*
 * A validator protects a set against programs that do not compare the watermark: older consumers
 * that send two plain updates ($pull, then $push) themselves. Such a program could bring back a
 * member at or below `_wm`. But every member that is older than the last collection is at or below
 * `_wm`, too. So truce marks its own members, and the validator refuses a document with an unmarked
 * one:
 *
 *     {classes: [{name: "CS 101", seq: 1001, _proved: true}, {name: "CS 103", seq: 1203}],
 *      _wm: 1100}
 *
 * 1. Collecting raises `_wm` and marks the members up to it, in one update. All of them are real:
 *    every operation at or below the watermark was applied, and until this update a tombstone
 *    refused repeats.
 * 2. All other writes of truce are above `_wm`, or leave an entry unchanged, so the validator never
 *    refuses them.
 * 3. Protecting a set takes four steps. The definition tells collectors to mark. The members are
 *    marked, in each document up to its own `_wm`. The validator is installed. The members are
 *    marked again, because a collector that did not know the definition, or an older consumer, may
 *    have written in between. Until this last step such a document refuses writes.
 * 4. A commit that was prepared during step 3 may hold a document with an unmarked old entry. It
 *    ends nevertheless, because the end of a commit bypasses the validator
 *    (commit/schema_validators.h).
 *
 * A collector of a version that does not mark is refused by the validator, and collects nothing.
 * models/set_older.cpp has the steps.
 *
 * Deliberately not done: two concurrent calls on sets of one collection. The validator is read and
 * then written.
 */

#define MARK "_proved"

static truce_status set_is_protected(truce_set *set, bool *is, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, definition;
    truce_status status;

    bson_append_utf8(&filter, "_id", -1, set->id, -1);
    status = truce_find_one(set->store, SET_DEFINITIONS, &filter, NULL, &definition, error);
    *is = !status && truce__field_true(&definition, "protected");
    bson_destroy(&definition);
    bson_destroy(&filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* ---- marks ----------------------------------------------------------------------------------- */

/* Appends the fields that the collection of tombstones reads, with the members or without. */
static void tombstones_append_projection(const truce_set *set, bool members, bson_t *projection)
{
    bson_append_int32(projection, set->deleted, -1, 1);
    bson_append_int32(projection, set->watermark, -1, 1);
    bson_append_int32(projection, "_rev", 4, 1);
    bson_append_int32(projection, "_intent", 7, 1);
    if (members)
        bson_append_int32(projection, set->field, -1, 1);
}

/* Returns the number of members with a number from 1 to the watermark and without a mark. */
static int64_t count_unmarked(const truce_set *set, const bson_t *document, int64_t watermark)
{
    struct value list =
        truce__value_field(truce__value_document(document), set->field, strlen(set->field));
    struct fields fields;
    int64_t count = 0;

    if (list.type != BSON_TYPE_ARRAY)
        return 0;
    fields = truce__fields(list);
    while (truce__fields_next(&fields)) {
        struct value name;
        struct set_rank rank;

        count += truce__set_entry_read(set, fields.value, true, &name, &rank) && rank.seq > 0 &&
                 rank.seq <= watermark &&
                 truce__value_field(fields.value, MARK, strlen(MARK)).type == VALUE_MISSING;
    }
    return count;
}

/* Adds marks for unmarked members up to the watermark, and a new revision if the document has one,
 * to the change of a document. Returns the number of marks. */
static int64_t set_marks_append(const truce_set *set, const bson_t *document, int64_t watermark,
                                struct set_change *change)
{
    int64_t count = count_unmarked(set, document, watermark);
    bool has_revision = truce__set_has_revision(document);
    char *path = bson_strdup_printf("%s.$[m]." MARK, set->field);
    char *seq = bson_strdup_printf("m.%s", set->seq);
    bson_t outer, inner;

    if (count || has_revision) {
        bson_append_document_begin(&change->update, "$set", -1, &outer);
        if (has_revision)
            truce__set_revision_append(&outer);
        if (count)
            bson_append_bool(&outer, path, -1, true);
        bson_append_document_end(&change->update, &outer);
    }
    if (count) {
        bson_append_document_begin(&change->array_filters, "0", 1, &outer);
        bson_append_document_begin(&outer, seq, -1, &inner);
        bson_append_int64(&inner, "$gte", -1, 1);
        bson_append_int64(&inner, "$lte", -1, watermark);
        bson_append_document_end(&outer, &inner);
        bson_append_document_begin(&outer, "m." MARK, -1, &inner);
        bson_append_bool(&inner, "$exists", -1, false);
        bson_append_document_end(&outer, &inner);
        bson_append_document_end(&change->array_filters, &outer);
    }
    bson_free(path);
    bson_free(seq);
    return count;
}

/* Adds the marks of one document to the walk. */
static void protect_add_document(struct set_walk *walk, const bson_t *document)
{
    int64_t watermark = truce__field_number(document, walk->set->watermark);
    struct set_change *change;

    if (!count_unmarked(walk->set, document, watermark))
        return;
    change = truce__set_walk_change(walk);
    truce__value_append(&change->filter, "_id", 3,
                        truce__value_field(truce__value_document(document), "_id", 3));
    truce__set_free_append(truce__set_has_revision(document), &change->filter);
    change->entries = set_marks_append(walk->set, document, watermark, change);
}

/* Marks all members at or below the watermark of their documents. */
static truce_status mark_all(truce_set *set, bson_error_t *error)
{
    struct set_walk *walk = bson_malloc0(sizeof *walk);
    bson_t projection = BSON_INITIALIZER;
    bson_t *filter = BCON_NEW(set->watermark, "{", "$exists", BCON_BOOL(true), "}", set->field, "{",
                              "$elemMatch", "{", set->seq, "{", "$gte", BCON_INT32(1), "}", MARK,
                              "{", "$exists", BCON_BOOL(false), "}", "}", "}");
    truce_status status;

    walk->set = set;
    walk->add = protect_add_document;
    tombstones_append_projection(set, true, &projection);
    status = truce__set_walk(walk, filter, &projection, error);
    for (int attempt = 1; !status && walk->again && attempt < SET_TRIES_MAX; attempt++) {
        truce__set_pause(attempt);
        status = truce__set_walk(walk, filter, &projection, error);
    }
    if (!status && walk->first) {
        status = walk->first;
        if (error)
            *error = walk->why;
    }
    bson_destroy(&projection);
    bson_destroy(filter);
    bson_free(walk);
    return status;
}

/* ---- the validator --------------------------------------------------------------------------- */

/* Makes {$expr: {$not: [{$anyElementTrue: [members, {number from 1 to _wm, and no mark}]}]}}. */
static bson_t *make_rule(const truce_set *set)
{
    char *list = bson_strdup_printf("$%s", set->field);
    char *seq = bson_strdup_printf("$$m.%s", set->seq);
    char *watermark = bson_strdup_printf("$%s", set->watermark);
    bson_t *rule = BCON_NEW("$expr", "{", "$not", "[", "{", "$anyElementTrue", "[", "{", "$map",
                            "{", "input", "{", "$cond", "[", "{", "$isArray", "[", BCON_UTF8(list),
                            "]", "}", BCON_UTF8(list), "[", "]", "]", "}", "as", BCON_UTF8("m"),
                            "in", "{", "$and", "[", "{", "$gte", "[", BCON_UTF8(seq), BCON_INT32(1),
                            "]", "}", "{", "$lte", "[", BCON_UTF8(seq), BCON_UTF8(watermark), "]",
                            "}", "{", "$ne", "[", BCON_UTF8("$$m." MARK), BCON_BOOL(true), "]", "}",
                            "]", "}", "}", "}", "]", "}", "]", "}");

    bson_free(list);
    bson_free(seq);
    bson_free(watermark);
    return rule;
}

/* Adds `rule` to a validator, or removes it. The validator may have rules of others: {$and:
 * [theirs, ours]}. */
static void with_rule(const bson_t *validator, const bson_t *rule, bool in, bson_t *made)
{
    struct value list = truce__value_field(truce__value_document(validator), "$and", 4);
    bson_t rules = BSON_INITIALIZER, one;
    uint32_t count = 0;

    if (list.type == BSON_TYPE_ARRAY && bson_count_keys(validator) == 1) {
        struct fields fields = truce__fields(list);

        while (truce__fields_next(&fields)) {
            if (fields.value.type == BSON_TYPE_DOCUMENT)
                truce__value_bson(fields.value, &one);
            if (fields.value.type != BSON_TYPE_DOCUMENT || !bson_equal(&one, rule))
                truce__value_append_element(&rules, &count, fields.value);
        }
    } else if (!bson_empty(validator) && !bson_equal(validator, rule)) {
        truce__value_append_element(&rules, &count, truce__value_document(validator));
    }
    if (in)
        truce__value_append_element(&rules, &count, truce__value_document(rule));
    if (count == 1 && truce__value_subdocument(&rules, "0", &one))
        bson_concat(made, &one);
    else if (count)
        BSON_APPEND_ARRAY(made, "$and", &rules);
    bson_destroy(&rules);
}

/* Reads the validator of the collection. Returns TRUCE_NOT_FOUND if the collection does not
 * exist. */
static truce_status protect_read_validator(truce_set *set, bson_t *validator, bson_error_t *error)
{
    const truce_list_options wanted = {.collection = set->collection, .unmeasured = true};
    bson_t list, one, found;
    truce_status status = truce_collection_list(set->store, &wanted, &list, error);
    struct fields fields = truce__fields(truce__value_document(&list));
    bool there = !status && truce__fields_next(&fields);

    if (there) {
        truce__value_bson(fields.value, &one);
        if (truce__value_subdocument(&one, "validator", &found))
            bson_concat(validator, &found);
    }
    bson_destroy(&list);
    return status || there ? status : TRUCE_NOT_FOUND;
}

static truce_status put_rule(truce_set *set, bool in, bson_error_t *error)
{
    bson_t before = BSON_INITIALIZER, after = BSON_INITIALIZER, *rule = make_rule(set);
    truce_status status = protect_read_validator(set, &before, error);

    if (!status) {
        with_rule(&before, rule, in, &after);
        if (!bson_equal(&before, &after))
            status = truce_collection_validate(set->store, set->collection, &after, error);
    }
    bson_destroy(rule);
    bson_destroy(&before);
    bson_destroy(&after);
    return status;
}

/* ---- the call -------------------------------------------------------------------------------- */

static truce_status protect_report(truce_set *set, bool on, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(set->id));
    bson_t *update = BCON_NEW("$set", "{", "protected", BCON_BOOL(on), "}");
    truce_status status =
        truce__set_update_answered(set, SET_DEFINITIONS, filter, update, NULL, error);

    bson_destroy(filter);
    bson_destroy(update);
    return status;
}

static truce_status tombstones_protect(truce_set *set, bson_error_t *error)
{
    truce_status status = truce_collection_create(set->store, set->collection, error);

    status = status == TRUCE_DUPLICATE ? TRUCE_OK : status;
    if (!status)
        status = protect_report(set, true, error);
    if (!status)
        status = mark_all(set, error);
    if (!status)
        status = put_rule(set, true, error);
    return status ? status : mark_all(set, error);
}

/* Removes the rule of the set from the validator. */
static truce_status set_unprotect(truce_set *set, bson_error_t *error)
{
    bool is = false;
    truce_status status = set_is_protected(set, &is, error);

    if (status || !is)
        return status;
    status = put_rule(set, false, error);
    return status && status != TRUCE_NOT_FOUND ? status : protect_report(set, false, error);
}

truce_status truce_set_protect(truce_set *set, bool on, bson_error_t *error)
{
    DEADLINE_SCOPE(set->deadline_ms);
    truce_status status = truce__set_ready(set, error);

    if (status)
        return status;
    if (set->layout == TRUCE_SET_BY_ELEMENT ||
        !(set->store->capabilities & TRUCE_CAN_ARRAY_FILTERS))
        return truce__fail(TRUCE_INVALID, error, "set \"%s\" cannot be protected: %s", set->id,
                           set->layout == TRUCE_SET_BY_ELEMENT
                               ? "each of its elements is a separate document"
                               : "the store has no array filters");
    return on ? tombstones_protect(set, error) : set_unprotect(set, error);
}

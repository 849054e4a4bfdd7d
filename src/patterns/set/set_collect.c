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
 * documents with tombstones that the next round takes.
 */
#include "patterns/set/set.h"

#define WINDOW_DOCUMENTS 500
#define ROUNDS           20
#define HELD_MS          2000 /* how long one round waits for commits that hold documents */

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
static truce_status prove(truce_set *set, struct source_list *list, bson_error_t *error)
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
    truce_set *set;
    int64_t watermark;
    truce_set_collected *collected;
    struct worker worker;
    bson_t updates[2]; /* [1]: of documents that have a revision */
    bool has_revision[WINDOW_DOCUMENTS];
    bson_t filters[WINDOW_DOCUMENTS];
    int64_t tombstones[WINDOW_DOCUMENTS];
    size_t count;
};

/* {$pull: {deleted: {seq: {$lte: W}}}, $max: {_wm: W}, $set: {_rev: fresh}} */
static void build_update(const truce_set *set, int64_t watermark, bool has_revision, bson_t *update)
{
    bson_t outer, inner, condition;

    bson_init(update);
    if (has_revision) {
        bson_append_document_begin(update, "$set", -1, &outer);
        truce__set_revision_append(&outer);
        bson_append_document_end(update, &outer);
    }

    bson_append_document_begin(update, "$pull", -1, &outer);
    bson_append_document_begin(&outer, set->deleted, -1, &inner);
    bson_append_document_begin(&inner, set->seq, -1, &condition);
    bson_append_int64(&condition, "$lte", -1, watermark);
    bson_append_document_end(&inner, &condition);
    bson_append_document_end(&outer, &inner);
    bson_append_document_end(update, &outer);
    bson_append_document_begin(update, "$max", -1, &outer);
    bson_append_int64(&outer, set->watermark, -1, watermark);
    bson_append_document_end(update, &outer);
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

static truce_status flush(struct sweep *sweep, bson_error_t *error)
{
    static const truce_bulk_options options = {.unordered = true};
    truce_write writes[WINDOW_DOCUMENTS];
    truce_write_outcome *outcomes = bson_malloc0(WINDOW_DOCUMENTS * sizeof *outcomes);
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < sweep->count; i++)
        writes[i] = (truce_write){.kind = TRUCE_WRITE_UPDATE,
                                  .collection = sweep->set->collection,
                                  .filter = &sweep->filters[i],
                                  .document = &sweep->updates[sweep->has_revision[i]]};
    if (sweep->count)
        status = truce_bulk(sweep->set->store, writes, sweep->count, &options, outcomes, error);
    for (size_t i = 0; i < sweep->count; i++) {
        if (!outcomes[i].status && outcomes[i].result.modified) {
            sweep->collected->documents++;
            sweep->collected->tombstones += sweep->tombstones[i];
        }
        truce_write_result_release(&outcomes[i].result);
        bson_destroy(&sweep->filters[i]);
    }
    sweep->count = 0;
    bson_free(outcomes);
    return status;
}

/* Documents with a tombstone at or below the watermark. */
static truce_status open_documents(const struct sweep *sweep, truce_cursor **cursor,
                                   bson_error_t *error)
{
    const truce_set *set = sweep->set;
    bson_t filter = BSON_INITIALIZER, projection = BSON_INITIALIZER, inner;
    truce_find_options options = {.projection = &projection};
    char *path = bson_strdup_printf("%s.%s", set->deleted, set->seq);
    truce_status status;

    bson_append_document_begin(&filter, path, -1, &inner);
    bson_append_int64(&inner, "$lte", -1, sweep->watermark);
    bson_append_document_end(&filter, &inner);
    bson_append_int32(&projection, set->deleted, -1, 1);
    bson_append_int32(&projection, "_rev", 4, 1);
    bson_append_int32(&projection, "_intent", 7, 1);
    status = truce_find(set->store, set->collection, &filter, &options, cursor, error);
    bson_destroy(&filter);
    bson_destroy(&projection);
    bson_free(path);
    return status;
}

static void add_document(struct sweep *sweep, const bson_t *document)
{
    bson_t *filter = &sweep->filters[sweep->count];
    bool has_revision = truce__set_has_revision(document);

    bson_init(filter);
    truce__value_append(filter, "_id", 3,
                        truce__value_field(truce__value_document(document), "_id", 3));
    truce__set_free_append(has_revision, filter);
    sweep->tombstones[sweep->count] = count_tombstones(sweep->set, document, sweep->watermark);
    sweep->has_revision[sweep->count++] = has_revision;
}

/* A document that a commit holds, once it is free; left to the next round if it does not get so. */
static truce_status add_held(struct sweep *sweep, const bson_t *held, bson_error_t *error)
{
    bson_iter_t iter;
    bson_t document;
    truce_status status = TRUCE_OK;

    if (!bson_iter_init_find(&iter, held, "_id"))
        return TRUCE_OK;
    status = truce__journal_read(&sweep->worker, sweep->set->collection, bson_iter_value(&iter),
                                 &document, error);
    if (!status)
        add_document(sweep, &document);
    bson_destroy(&document);
    return status == TRUCE_LOCKED || status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static truce_status sweep_documents(struct sweep *sweep, bson_error_t *error)
{
    truce_cursor *cursor = NULL;
    truce_status status = open_documents(sweep, &cursor, error);

    while (!status) {
        const bson_t *document;

        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        if (truce__intent_absent(document))
            add_document(sweep, document);
        else
            status = add_held(sweep, document, error);
        if (!status && sweep->count == WINDOW_DOCUMENTS)
            status = flush(sweep, error);
    }
    if (!status)
        status = flush(sweep, error);
    for (size_t i = 0; i < sweep->count; i++)
        bson_destroy(&sweep->filters[i]);
    if (cursor)
        truce_cursor_close(cursor);
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
        status =
            truce__progress_archive(set, source->name, source->archived, source->watermark, error);
    if (status || blocks <= source->archived)
        return status;
    return status ? status : truce__source_raise(set, source->name, "archived", blocks, error);
}

truce_status truce_set_collect(truce_set *set, truce_set_collected *collected, bson_error_t *error)
{
    DEADLINE_SCOPE(set->deadline_ms);
    struct source_list list = {0};
    truce_set_collected unused;
    struct sweep *sweep;
    truce_status status = truce__set_ready(set, error), first = TRUCE_OK;

    if (!collected)
        collected = &unused;
    *collected = (truce_set_collected){0};
    if (!status)
        status = prove(set, &list, error);
    if (!status && list.watermark && set->layout == TRUCE_SET_IN_DOCUMENT) {
        sweep = bson_malloc0(sizeof *sweep);
        *sweep = (struct sweep){.set = set, .watermark = list.watermark, .collected = collected};
        truce__worker_init(&sweep->worker, set->store, HELD_MS);
        for (int i = 0; i < 2; i++)
            build_update(set, list.watermark, i == 1, &sweep->updates[i]);
        status = sweep_documents(sweep, error);
        for (int i = 0; i < 2; i++)
            bson_destroy(&sweep->updates[i]);
        bson_free(sweep);
    }
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

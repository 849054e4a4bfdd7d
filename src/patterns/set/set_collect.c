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
#include "base/field.h"
#include "patterns/set/set_protect.h"
#include "patterns/set/set_walk.h"

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

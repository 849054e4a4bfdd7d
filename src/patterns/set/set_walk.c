/*
 * Reads the documents of a set one after the other, and writes many at a time. Collecting,
 * converting, and protecting use it.
 *
 * 1. If a commit holds a document, the walk waits and reads the document again. It skips a document
 *    that stays held.
 * 2. A document that cannot be written is skipped and does not stop the walk. The walk reports the
 *    first reason at its end.
 * 3. A write whose filter matches nothing lost a race: `again`.
 */
#include "patterns/set/set_walk.h"

#include "base/assert.h"

/* A window is written when its changes have this size. */
#define WINDOW_BYTES (8 * 1024 * 1024)
/* The time that a walk waits for commits that hold documents. */
#define HELD_MS 2000

static void walk_leave(struct set_walk *walk, truce_status status, const bson_error_t *why)
{
    walk->left++;
    if (!walk->first)
        walk->why = *why;
    if (!walk->first)
        walk->first = status;
}

struct set_change *truce__set_walk_change(struct set_walk *walk)
{
    struct set_change *change = &walk->changes[walk->count++];

    truce_assert(walk->count <= SET_WALK_WINDOW);
    *change = (struct set_change){0};
    bson_init(&change->filter);
    bson_init(&change->update);
    bson_init(&change->array_filters);
    return change;
}

static truce_write walk_write_of(const struct set_walk *walk, const struct set_change *change)
{
    return (truce_write){.kind = TRUCE_WRITE_UPDATE,
                         .collection = walk->set->collection,
                         .filter = &change->filter,
                         .document = &change->update,
                         .options.array_filters =
                             bson_empty(&change->array_filters) ? NULL : &change->array_filters};
}

/* Sends the gathered changes as one bulk, and counts those that took effect. */
static void walk_flush(struct set_walk *walk)
{
    static const truce_bulk_options options = {.unordered = true};
    truce_write writes[SET_WALK_WINDOW];
    truce_write_outcome *outcomes = bson_malloc0(SET_WALK_WINDOW * sizeof *outcomes);
    truce_status status = TRUCE_OK;
    bson_error_t why = {0};

    for (size_t i = 0; i < walk->count; i++)
        writes[i] = walk_write_of(walk, &walk->changes[i]);
    if (walk->count)
        status = truce_bulk(walk->set->store, writes, walk->count, &options, outcomes, &why);
    for (size_t i = 0; i < walk->count; i++) {
        bool reached = outcomes[i].status != TRUCE_NOT_FOUND;
        truce_status own = reached ? outcomes[i].status : status;

        if (!own && outcomes[i].result.modified) {
            walk->documents++;
            walk->entries += walk->changes[i].entries;
        } else {
            walk->again = walk->again || !own || truce__store_repeatable(walk->set->store, own);
            if (own)
                walk_leave(walk, own, reached ? &outcomes[i].error : &why);
        }
        truce_write_result_release(&outcomes[i].result);
        bson_destroy(&walk->changes[i].filter);
        bson_destroy(&walk->changes[i].update);
        bson_destroy(&walk->changes[i].array_filters);
    }
    walk->count = 0;
    bson_free(outcomes);
}

static bool walk_is_full(const struct set_walk *walk)
{
    size_t bytes = 0;

    for (size_t i = 0; i < walk->count; i++)
        bytes += walk->changes[i].filter.len + walk->changes[i].update.len;
    return walk->count == SET_WALK_WINDOW || bytes >= WINDOW_BYTES;
}

/* Waits for the commit that holds a document, and then adds the document to the walk. A document
 * that is still held after HELD_MS is left; a removed one is ignored. */
static truce_status add_held(struct set_walk *walk, const bson_t *held, bson_error_t *error)
{
    bson_iter_t iter;
    bson_error_t why = {0};
    bson_t document;
    truce_status status;

    if (!bson_iter_init_find(&iter, held, "_id"))
        return TRUCE_OK;
    status = truce__journal_read(&walk->worker, walk->set->collection, bson_iter_value(&iter),
                                 &document, &why);
    if (!status)
        walk->add(walk, &document);
    bson_destroy(&document);
    if (status == TRUCE_LOCKED)
        walk_leave(walk, status, &why);
    else if (status && status != TRUCE_NOT_FOUND && error)
        *error = why;
    return status == TRUCE_LOCKED || status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

truce_status truce__set_walk(struct set_walk *walk, const bson_t *filter, const bson_t *projection,
                             bson_error_t *error)
{
    const truce_find_options options = {.projection = projection};
    truce_cursor *cursor = NULL;
    truce_status status =
        truce_find(walk->set->store, walk->set->collection, filter, &options, &cursor, error);

    truce__worker_init(&walk->worker, walk->set->store, HELD_MS);
    walk->again = false;
    walk->left = 0;
    walk->first = TRUCE_OK;
    while (!status) {
        const bson_t *document;

        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        if (truce__intent_absent(document))
            walk->add(walk, document);
        else
            status = add_held(walk, document, error);
        if (walk_is_full(walk))
            walk_flush(walk);
    }
    walk_flush(walk);
    truce_cursor_close(cursor);
    return status;
}

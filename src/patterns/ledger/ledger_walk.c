/*
 * Every transaction once, in an order in which the book could be posted anew: by the time of booking, and each behind
 * what stands before it on all its accounts.
 *
 *     1. a cut (ledger_cut.c) says up to which number of each account
 *     2. all transactions by their time; one that is not in the cut is left out
 *     3. one that stands behind another that was not told yet (of the same millisecond, or of others, whose times may be any)
 *        is held until that was told
 *
 * What is in a cut stands there for ever, so 2 meets all of it. If not, something was taken away, which is told.
 */
#include <inttypes.h>

#include "patterns/ledger/ledger.h"

struct walk {
    struct ledger_table cut;      /* next.number: the cut; state.number: what was told */
    struct ledger_documents held; /* items that were told are NULL */
    truce_ledger_document_function *function;
    void *arg;
    bool ended;
};

enum place { PLACE_OUTSIDE, PLACE_LATER, PLACE_NEXT };

static enum place walk_place_of(const struct walk *walk, const bson_t *document)
{
    struct fields at = truce__ledger_changes(document);
    enum place place = PLACE_OUTSIDE;
    struct ledger_change change;

    while (truce__fields_next(&at)) {
        const struct ledger_known *known = truce__ledger_change(at.value, &change)
                                               ? truce__ledger_find(&walk->cut, change.account)
                                               : NULL;

        if (!known || change.number > known->next.number)
            return PLACE_OUTSIDE;
        if (change.number == known->state.number + 1 && place == PLACE_OUTSIDE)
            place = PLACE_NEXT;
        else if (change.number > known->state.number + 1 &&
                 !truce__ledger_change_of(document, change.account, known->state.number + 1,
                                          &change))
            place = PLACE_LATER;
    }
    return place;
}

static void walk_tell(struct walk *walk, const bson_t *document)
{
    struct fields at = truce__ledger_changes(document);
    struct ledger_change change;

    while (truce__fields_next(&at)) {
        if (truce__ledger_change(at.value, &change)) {
            int64_t *told = &truce__ledger_find(&walk->cut, change.account)->state.number;

            *told = change.number > *told ? change.number : *told;
        }
    }
    walk->ended = !walk->function(document, walk->arg);
}

static void tell_held(struct walk *walk)
{
    uint32_t left = 0;

    for (bool more = true; more && !walk->ended;) {
        more = false;
        for (uint32_t i = 0; i < walk->held.count && !walk->ended; i++) {
            bson_t *document = walk->held.items[i];

            if (!document || walk_place_of(walk, document) != PLACE_NEXT)
                continue;
            walk_tell(walk, document);
            bson_destroy(document);
            walk->held.items[i] = NULL;
            more = true;
        }
    }
    for (uint32_t i = 0; i < walk->held.count; i++) {
        if (walk->held.items[i])
            walk->held.items[left++] = walk->held.items[i];
    }
    walk->held.count = left;
}

static void walk_take(struct walk *walk, const bson_t *document)
{
    switch (walk_place_of(walk, document)) {
    case PLACE_OUTSIDE:
        break;
    case PLACE_LATER:
        truce__ledger_keep(&walk->held, document);
        break;
    case PLACE_NEXT:
        walk_tell(walk, document);
        if (walk->held.count)
            tell_held(walk);
        break;
    }
}

static truce_status walk_look_at_all(struct walk *walk, const truce_ledger *ledger,
                                     bson_error_t *error)
{
    bson_t *sort = BCON_NEW("ts", BCON_INT32(1));
    truce_find_options options = {.sort = sort, .allow_disk_use = true};
    truce_cursor *cursor = NULL;
    const bson_t *found;
    truce_status status =
        truce_find(ledger->store, ledger->collection, NULL, &options, &cursor, error);

    while (!status && !walk->ended) {
        status = truce_cursor_next(cursor, &found, error);
        if (status || !found)
            break;
        walk_take(walk, found);
    }
    truce_cursor_close(cursor);
    bson_destroy(sort);
    return status;
}

/* L1: all numbers up to the cut were told. */
static truce_status check_whole(const struct walk *walk, bson_error_t *error)
{
    for (uint32_t i = 0; i < walk->cut.room && !walk->ended; i++) {
        const struct ledger_known *known = walk->cut.slots[i];

        if (known && known->state.number < known->next.number)
            return truce__fail(TRUCE_CORRUPT, error, "number %" PRId64 " of account %s is missing",
                               known->state.number + 1, known->account);
    }
    return TRUCE_OK;
}

truce_status truce_ledger_walk(truce_ledger *ledger, truce_ledger_document_function *function,
                               void *arg, bson_error_t *error)
{
    if (!function)
        return truce__fail(TRUCE_INVALID, error, "%s needs a function", __func__);
    struct walk walk = {.function = function, .arg = arg};
    struct ledger_look look;
    char **names = NULL;
    uint32_t count = 0;
    truce_status status;

    truce__ledger_look(&look, ledger);
    status = truce__ledger_cut(&look, &walk.cut, &names, &count, error);
    for (uint32_t i = 0; !status && i < count; i++)
        truce__ledger_find(&walk.cut, names[i])->state.number = 0;
    if (!status)
        status = walk_look_at_all(&walk, ledger, error);
    if (!status)
        status = check_whole(&walk, error);
    truce__ledger_documents_release(&walk.held);
    truce__ledger_names_free(names, count);
    truce__ledger_table_clear(&walk.cut);
    return status;
}

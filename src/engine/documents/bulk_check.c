/*
 * Checks of a bulk: validation of what a transaction has read, in the manner of Kung and Robinson, On Optimistic Methods
 * for Concurrency Control, 1981; reads that are made again instead of locks on ranges as in Larson et al.,
 * High-Performance Concurrency Control Mechanisms for Main-Memory Databases, 2011.
 *
 * For each collection a counter moves after every commit that touched it (change_notify.c). The counters were noted before the
 * view's moment began. So
 *
 *  1. Where the counter stands, and nobody of this group touched the collection before us, no document of it was
 *     changed since the view: whatever was read there holds.
 *  2. Where it moved, the find is made again, as this transaction sees the collection now. It holds if it gives the same
 *     documents, byte for byte: then it is as if it had been made now.
 *  3. A find that would look at more than TRUCE_CHECK_ENTRIES_MAX entries is not made again: nobody else writes meanwhile.
 *     It counts as one that does not hold.
 *
 * Counters are shared by hash, so 1 may say no where it could say yes, never the other way round.
 */
#include "engine/documents/bulk_check.h"

#include "base/fingerprint.h"
#include "engine/storage/change_notify.h"

static bool stands(const truce_read_check *check, const struct engine *view, struct writer *writer)
{
    uint32_t slot = truce__wake_slot(check->collection);

    return view->changes && !(writer->touched[slot / 64] >> slot % 64 & 1) &&
           truce__wake_unmoved(writer->lock, check->collection, view->changes);
}

static bool check_is_same(const truce_read_check *check, const struct gather *gather)
{
    struct fingerprint sum = {0};

    for (size_t i = 0; i < gather->count; i++)
        truce__fingerprint_add(&sum, bson_get_data(gather->items[i].document),
                               gather->items[i].document->len);
    return (int64_t)gather->count == check->count && sum.high == check->high &&
           sum.low == check->low;
}

/* One more than were found is as good as all. */
static int64_t enough(const truce_read_check *check)
{
    return check->limit || check->sort ? check->limit : check->count + 1;
}

static truce_status check_look_again(const truce_read_check *check, struct writer *writer,
                                     struct query_context *context, bool *same, bson_error_t *error)
{
    const struct collection *collection;
    struct selector selector;
    struct selection selection = {.selector = &selector,
                                  .sort = check->sort,
                                  .limit = enough(check),
                                  .examined_max = TRUCE_CHECK_ENTRIES_MAX,
                                  .keep = true};
    struct gather gather = {0};
    truce_status status = truce__writer_collection(writer, check->collection, &collection, error);

    *same = !check->count;
    if (status || !collection)
        return status;
    status = truce__selector_init(check->filter, false, &selector, error);
    if (!status)
        status = truce__select(&selection, writer, collection, context, &gather, error);
    *same = !status && check_is_same(check, &gather);
    truce__gather_release(&gather);
    truce__selector_release(&selector);
    return status == TRUCE_LIMIT ? TRUCE_OK : status;
}

static truce_status check_absent(const char *name, struct writer *writer, bson_error_t *error)
{
    const struct collection *collection = NULL;
    truce_status status =
        name ? truce__writer_collection(writer, name, &collection, error) : TRUCE_OK;

    return !collection
               ? status
               : truce__refuse(CODE_WRITE_CONFLICT, error, "%s was made by somebody else", name);
}

truce_status truce__bulk_check(const struct truce_read_checks *checks, const struct engine *view,
                               struct writer *writer, struct query_context *context,
                               bson_error_t *error)
{
    truce_status absent = check_absent(checks->absent, writer, error);

    if (absent)
        return absent;
    for (size_t i = 0; i < checks->count; i++) {
        const truce_read_check *check = &checks->all[i];
        bool same = stands(check, view, writer);
        truce_status status = TRUCE_OK;

        if (!same && check->count >= 0)
            status = check_look_again(check, writer, context, &same, error);
        if (status)
            return status;
        if (!same)
            return truce__refuse(CODE_WRITE_CONFLICT, error,
                                 "what was read in %s was changed by somebody else",
                                 check->collection);
    }
    return TRUCE_OK;
}

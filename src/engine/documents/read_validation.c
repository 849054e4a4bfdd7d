/*
 * Optimistic validation: checks at the commit of a transaction that its reads are still valid, as
 * in Kung and Robinson, On Optimistic Methods for Concurrency Control, 1981. Reads are repeated
 * instead of locking ranges, as in Larson et al., High-Performance Concurrency Control Mechanisms
 * for Main-Memory Databases, 2011.
 *
 * Each collection has a counter that changes after every commit that touched it (change_notify.c).
 * The counters were recorded before the view's snapshot began:
 *
 *  1. If the counter is unchanged, and no earlier operation of this group touched the collection,
 *     no document of it has changed since the view. Everything that was read there is valid.
 *  2. Otherwise the find is repeated in this transaction. The read is valid if it returns the same
 *     documents, byte for byte, because a read at this time would have had this result.
 *  3. A find that examines more than TRUCE_CHECK_ENTRIES_MAX entries is not repeated to its end and
 *     counts as invalid, because no other process can write in the meantime.
 *
 * Collections share counters by a hash, so rule 1 may miss a valid read, but never accepts an
 * invalid one.
 */
#include "engine/documents/read_validation.h"

#include "base/fingerprint.h"
#include "engine/documents/query.h"
#include "engine/storage/change_notify.h"

static bool validation_unchanged(const truce_read_check *check, const struct engine *view,
                                 struct writer *writer)
{
    uint32_t slot = truce__notify_slot(check->collection);

    return view->changes && !(writer->touched[slot / 64] >> slot % 64 & 1) &&
           truce__notify_unmoved(writer->lock, check->collection, view->changes);
}

static bool validation_is_same(const truce_read_check *check, const struct gather *gather)
{
    struct fingerprint sum = {0};

    for (size_t i = 0; i < gather->count; i++)
        truce__fingerprint_add(&sum, bson_get_data(gather->items[i].document),
                               gather->items[i].document->len);
    return (int64_t)gather->count == check->count && sum.high == check->high &&
           sum.low == check->low;
}

/* Returns the limit of the repeated read. One document more than was found proves a difference. */
static int64_t validation_limit(const truce_read_check *check)
{
    return check->limit || check->sort ? check->limit : check->count + 1;
}

/* Repeats a read of a transaction in the writer, and sets `*same` if it finds the same documents. A
 * read that would examine too many entries counts as changed. */
static truce_status validation_repeat(const truce_read_check *check, struct writer *writer,
                                      struct query_context *context, bool *same,
                                      bson_error_t *error)
{
    const struct collection *collection;
    struct selector selector;
    struct selection selection = {.selector = &selector,
                                  .sort = check->sort,
                                  .limit = validation_limit(check),
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
    *same = !status && validation_is_same(check, &gather);
    truce__gather_release(&gather);
    truce__selector_release(&selector);
    return status == TRUCE_LIMIT ? TRUCE_OK : status;
}

static truce_status validation_check_absent(const char *name, struct writer *writer,
                                            bson_error_t *error)
{
    const struct collection *collection = NULL;
    truce_status status =
        name ? truce__writer_collection(writer, name, &collection, error) : TRUCE_OK;

    return !collection ? status
                       : truce__refuse(CODE_WRITE_CONFLICT, error,
                                       "%s was created by another client", name);
}

truce_status truce__read_validate(const struct truce_read_checks *checks, const struct engine *view,
                                  struct writer *writer, struct query_context *context,
                                  bson_error_t *error)
{
    truce_status absent = validation_check_absent(checks->absent, writer, error);

    if (absent)
        return absent;
    for (size_t i = 0; i < checks->count; i++) {
        const truce_read_check *check = &checks->all[i];
        bool same = validation_unchanged(check, view, writer);
        truce_status status = TRUCE_OK;

        if (!same && check->count >= 0)
            status = validation_repeat(check, writer, context, &same, error);
        if (status)
            return status;
        if (!same)
            return truce__refuse(CODE_WRITE_CONFLICT, error,
                                 "another client has changed a document that was read in %s",
                                 check->collection);
    }
    return TRUCE_OK;
}

/*
 * All writes of a bulk or none, within a transaction: what the scratch had of the documents is kept, and put back where
 * one of the writes fails. What was brought into it besides stays: it is as the view has it.
 *
 * Nobody else writes between two of them, so each is looked at and then done. Where the old documents cannot be put
 * back (the deadline is over, for example) the transaction is spoiled, and cannot be committed.
 */
#include "bson/value.h"
#include "store/overlay/overlay_parts.h"

/* A document as the scratch had it. */
struct kept {
    struct collection_part *part;
    bson_t *document;   /* that stood there; NULL: one with the _id of ... */
    const bson_t *made; /* ... this one did not */
    bool replaced;      /* as its entry said */
};

static truce_status not_as_said(const truce_write *write, bool found, bson_error_t *error)
{
    char shown[200];

    return truce__fail(
        TRUCE_CONFLICT, error, "%s document of %s matches %s", found ? "a" : "no",
        write->collection,
        truce__value_show(truce__value_document(write->filter), shown, sizeof shown));
}

/* Does the write match what it says it does? `kept` gets the document that it is about to change. */
static truce_status atomic_look(struct overlay *overlay, const truce_write *write,
                                struct kept *kept, bson_error_t *error)
{
    bool wanted = write->kind != TRUCE_WRITE_REQUIRE_MISSING, found;
    bson_t document;
    truce_status status;

    if (write->options.multi || write->options.upsert)
        return truce__fail(TRUCE_INVALID, error,
                           "within a transaction an atomic write is of one document that is there");
    status =
        truce_find_one(&overlay->base, write->collection, write->filter, NULL, &document, error);
    found = !status;
    if (found && kept)
        kept->document = bson_copy(&document);
    bson_destroy(&document);
    if (status && status != TRUCE_NOT_FOUND)
        return status;
    return found == wanted ? TRUCE_OK : not_as_said(write, found, error);
}

/* What is under its _id before it is somebody else's, and stays. */
static truce_status look_before_insert(struct overlay *overlay, const truce_write *write,
                                       struct kept *kept, bson_error_t *error)
{
    bson_t filter, document;
    truce_status status;

    truce__overlay_id(write->document, &filter);
    status = truce_find_one(&overlay->base, write->collection, &filter, NULL, &document, error);
    if (status == TRUCE_NOT_FOUND)
        kept->made = write->document;
    bson_destroy(&document);
    bson_destroy(&filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static void keep_kind(struct kept *kept)
{
    const struct entry *entry =
        kept->document ? truce__overlay_entry(kept->part, kept->document) : NULL;

    kept->replaced = entry && entry->replaced;
}

static truce_status do_one(struct overlay *overlay, const truce_write *write, struct kept *kept,
                           truce_write_outcome *outcome, bson_error_t *error)
{
    bool changes = write->kind == TRUCE_WRITE_UPDATE || write->kind == TRUCE_WRITE_REMOVE;
    truce_status status;

    kept->part = truce__overlay_part(overlay, write->collection);
    status = write->kind == TRUCE_WRITE_INSERT
                 ? look_before_insert(overlay, write, kept, error)
                 : atomic_look(overlay, write, changes ? kept : NULL, error);
    keep_kind(kept);
    if (!status && (changes || write->kind == TRUCE_WRITE_INSERT))
        return truce__overlay_write(overlay, write, outcome, error);
    outcome->status = status;
    outcome->result.matched = !status && write->kind != TRUCE_WRITE_REQUIRE_MISSING;
    if (status)
        outcome->error = *error;
    return status;
}

/* ---- putting back ----------------------------------------------------------------------------- */

static truce_status atomic_put_back(struct overlay *overlay, const struct kept *kept)
{
    const bson_t *document = kept->document ? kept->document : kept->made;
    struct entry *entry = truce__overlay_entry(kept->part, document);
    truce_status status;
    bson_t filter;

    if (!entry)
        return TRUCE_OK; /* it did not come so far */
    truce__overlay_id(document, &filter);
    status = truce_remove(overlay->scratch, kept->part->name, &filter, NULL, NULL, NULL);
    if ((!status || status == TRUCE_NOT_FOUND) && kept->document)
        status = truce_insert(overlay->scratch, kept->part->name, kept->document, NULL, NULL);
    bson_destroy(&filter);
    truce__overlay_weigh(overlay, entry, kept->document ? kept->document->len : 0);
    entry->replaced = kept->replaced;
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static void atomic_undo(struct overlay *overlay, const struct kept *kept, size_t count)
{
    for (size_t i = count; i-- > 0;)
        if ((kept[i].document || kept[i].made) && atomic_put_back(overlay, &kept[i]))
            overlay->spoiled = true;
}

truce_status truce__overlay_atomic(struct overlay *overlay, const truce_write *writes, size_t count,
                                   truce_write_outcome *outcomes, bson_error_t *error)
{
    struct kept *kept = bson_malloc0((count + 1) * sizeof *kept);
    truce_status status = TRUCE_OK;
    size_t done = 0;

    for (; done < count && !status; done++)
        status = do_one(overlay, &writes[done], &kept[done], &outcomes[done], error);
    if (status) {
        atomic_undo(overlay, kept, done);
        for (size_t i = 0; i + 1 < done; i++) {
            truce_write_result_release(&outcomes[i].result);
            outcomes[i] = (truce_write_outcome){.status = TRUCE_CONFLICT};
        }
    }
    for (size_t i = 0; i < count; i++)
        if (kept[i].document)
            bson_destroy(kept[i].document);
    bson_free(kept);
    return status;
}

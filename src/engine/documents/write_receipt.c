#include "engine/documents/write_receipt.h"

#include "base/assert.h"
#include "engine/documents/indexed_documents.h"
#include "query/input_check.h"

truce_status truce__receipt_init(struct receipt *receipt, truce_receipt *given, bson_error_t *error)
{
    *receipt = (struct receipt){.given = given};
    return given ? truce__selector_init(given->key, false, &receipt->selector, error) : TRUCE_OK;
}

void truce__receipt_release(struct receipt *receipt)
{
    truce__gather_release(&receipt->found);
    if (receipt->given)
        truce__selector_release(&receipt->selector);
}

static const bson_t *receipt_first_document(const struct receipt *receipt)
{
    return receipt->found.count ? receipt->found.items[0].document : NULL;
}

truce_status truce__receipt_check(struct receipt *receipt, struct writer *writer,
                                  struct query_context *context, bson_error_t *error)
{
    const struct selection selection = {.selector = &receipt->selector, .limit = 1};
    truce_receipt *given = receipt->given;
    const struct collection *collection;
    truce_status status;

    if (!given)
        return TRUCE_OK;
    /* Releases what an earlier run of the operation has found. */
    truce__gather_release(&receipt->found);
    receipt->found = (struct gather){0};
    status = truce__writer_collection(writer, given->collection, &collection, error);
    if (!status && collection)
        status = truce__select(&selection, writer, collection, context, &receipt->found, error);
    if (status)
        return status;
    return given->agrees(given, receipt_first_document(receipt))
               ? TRUCE_OK
               : truce__fail(TRUCE_CONFLICT, error,
                             "the receipt in %s has changed since it was read", given->collection);
}

truce_status truce__receipt_put(struct receipt *receipt, struct writer *writer,
                                const truce_write_outcome *outcomes, size_t count,
                                const bson_t *document, bson_error_t *error)
{
    truce_receipt *given = receipt->given;
    const bson_t *before = receipt_first_document(receipt);
    truce_status status = TRUCE_OK;
    bson_t after = BSON_INITIALIZER;

    if (given && given->make(given, outcomes, count, document, &after)) {
        status = truce__document_check(&after, "receipt", error);
        /* A validator applies to the documents of users, not to a receipt. */
        writer->unvalidated = true;
        if (!status && before)
            status =
                truce__documents_replace(writer, given->collection, receipt->found.items[0].row,
                                         before, &after, true, error);
        else if (!status)
            status = truce__documents_insert(writer, given->collection, &after, error);
        writer->unvalidated = false;
    }
    bson_destroy(&after);
    return status;
}

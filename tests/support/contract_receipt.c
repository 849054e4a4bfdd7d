/* Receipts: a document that is written along with the result of the writes, or not at all. */
#include "tests/support/contract.h"

const int contract_receipt_cases = 1;

struct slip {
    /* The first member, so that the receipt can be cast. */
    truce_receipt base;
    struct contract *c;
    /* The expected document before the writes; NULL if there must be none. */
    const bson_t *expected;
    /* The document that the receipt makes; NULL if it makes none. */
    const bson_t *after;
    /* The sums of the results, and the number of outcomes, that the last call of `make` got. */
    int64_t inserted, modified, removed;
    size_t count;
    /* The store passed a document to `make`. */
    bool document;
};

static bool agrees(truce_receipt *receipt, const bson_t *before)
{
    const struct slip *slip = (const struct slip *)receipt;

    return before && slip->expected ? bson_equal(before, slip->expected)
                                    : !before && !slip->expected;
}

static bool make(truce_receipt *receipt, const truce_write_outcome *outcomes, size_t count,
                 const bson_t *document, bson_t *after)
{
    struct slip *slip = (struct slip *)receipt;

    slip->count = count;
    slip->inserted = slip->modified = slip->removed = 0;
    slip->document = document != NULL;
    for (size_t i = 0; i < count; i++) {
        slip->inserted += outcomes[i].result.inserted;
        slip->modified += outcomes[i].result.modified;
        slip->removed += outcomes[i].result.removed;
    }
    if (slip->after)
        bson_concat(after, slip->after);
    return slip->after != NULL;
}

static struct slip slip_of(struct contract *c, const char *expected, const char *after)
{
    return (struct slip){.base = {"slips", J("{'_id': 's'}"), agrees, make},
                         .c = c,
                         .expected = expected ? J(expected) : NULL,
                         .after = after ? J(after) : NULL};
}

static truce_status bulk(struct slip *slip, const truce_write *writes, size_t count, bool unordered)
{
    const truce_bulk_options options = {.unordered = unordered, .receipt = &slip->base};
    truce_write_outcome outcomes[4];
    truce_status status =
        truce_bulk(slip->c->store, writes, count, &options, outcomes, &slip->c->error);

    for (size_t i = 0; i < count; i++)
        truce_write_result_release(&outcomes[i].result);
    return status;
}

static truce_status modify(struct slip *slip, const char *filter, const char *update, bool new)
{
    const truce_modify_options options = {.return_new = new, .receipt = &slip->base};
    struct contract *c = slip->c;
    bson_t document;
    truce_status status = truce_find_and_modify(c->store, "things", J(filter), J(update), &options,
                                                &document, NULL, &c->error);

    bson_destroy(&document);
    return status;
}

#define INSERT(json)                                                                               \
    {                                                                                              \
        .kind = TRUCE_WRITE_INSERT, .collection = "things", .document = J(json)                    \
    }

CONTRACT(a_receipt_is_stored_with_its_writes)
{
    struct slip slip = slip_of(c, NULL, "{'_id': 's', 'n': 1}");
    const truce_write writes[] = {
        INSERT("{'_id': 1}"),
        INSERT("{'_id': 1}"),
        INSERT("{'_id': 2}"),
        {.kind = TRUCE_WRITE_REMOVE, .collection = "things", .filter = J("{'_id': 2}")}};

    if (!contract_needs(c, TRUCE_CAN_RECEIPT))
        return;
    CHECK_REFUSED(TRUCE_DUPLICATE, 11000, bulk(&slip, writes, 4, false));
    CHECK_INT(slip.inserted, ==, 1);
    CHECK_HOLDS("slips", "[{'_id': 's', 'n': 1}]");
    slip = slip_of(c, "{'_id': 's', 'n': 1}", "{'_id': 's', 'n': 2}");
    CHECK_REFUSED(TRUCE_DUPLICATE, 11000, bulk(&slip, writes, 4, true));
    CHECK_INT(slip.count, ==, 4);
    CHECK_INT(slip.inserted, ==, 1);
    CHECK_INT(slip.removed, ==, 1);
    CHECK_HOLDS("slips", "[{'_id': 's', 'n': 2}]");
    CHECK_HOLDS("things", "[{'_id': 1}]");
    slip = slip_of(c, "{'_id': 's', 'n': 2}", NULL);
    CHECK_DONE(bulk(&slip, writes + 2, 1, false));
    CHECK_HOLDS("slips", "[{'_id': 's', 'n': 2}]");
    CHECK_HOLDS("things", "[{'_id': 1}, {'_id': 2}]");
}

/* A malformed write never reaches the store; the others keep their numbers. */
CONTRACT(a_receipt_knows_the_writes_by_the_callers_numbers)
{
    struct slip slip = slip_of(c, NULL, "{'_id': 's'}");
    const truce_write writes[] = {{.kind = TRUCE_WRITE_REMOVE, .collection = "things"},
                                  INSERT("{'_id': 1}")};

    if (!contract_needs(c, TRUCE_CAN_RECEIPT))
        return;
    CHECK_REFUSED(TRUCE_INVALID, 0, bulk(&slip, writes, 2, true));
    CHECK_INT(slip.count, ==, 2);
    CHECK_INT(slip.inserted, ==, 1);
    CHECK_HOLDS("things", "[{'_id': 1}]");
}

CONTRACT(a_receipt_that_is_another_stops_the_writes)
{
    struct slip slip = slip_of(c, NULL, "{'_id': 's', 'n': 2}");
    const truce_write write = INSERT("{'_id': 1}");

    if (!contract_needs(c, TRUCE_CAN_RECEIPT))
        return;
    contract_fill(c, "slips", "[{'_id': 's', 'n': 1}]");
    contract_fill(c, "things", "[{'_id': 5, 'v': 1}]");
    CHECK_REFUSED(TRUCE_CONFLICT, 0, bulk(&slip, &write, 1, false));
    CHECK_REFUSED(TRUCE_CONFLICT, 0, modify(&slip, "{'_id': 5}", "{'$inc': {'v': 1}}", false));
    slip = slip_of(c, "{'_id': 's', 'n': 3}", "{'_id': 's', 'n': 2}");
    CHECK_REFUSED(TRUCE_CONFLICT, 0, bulk(&slip, &write, 1, true));
    CHECK_HOLDS("things", "[{'_id': 5, 'v': 1}]");
    CHECK_HOLDS("slips", "[{'_id': 's', 'n': 1}]");
}

/* A unique index on its collection refuses it: its writes are rolled back, too. */
CONTRACT(a_receipt_that_cannot_be_written_takes_the_writes_along)
{
    struct slip slip = slip_of(c, NULL, "{'_id': 's', 'k': 1}");
    const truce_write writes[] = {INSERT("{'_id': 1}"), INSERT("{'_id': 2}")};

    if (!contract_needs(c, TRUCE_CAN_RECEIPT))
        return;
    CHECK_DONE(
        truce_index_create(c->store, "slips", J("{'key': {'k': 1}, 'unique': true}"), &c->error));
    contract_fill(c, "slips", "[{'_id': 't', 'k': 1}]");
    contract_fill(c, "things", "[{'_id': 5, 'v': 1}]");
    CHECK_REFUSED(TRUCE_DUPLICATE, 11000, bulk(&slip, writes, 2, false));
    CHECK_REFUSED(TRUCE_DUPLICATE, 11000, modify(&slip, "{'_id': 5}", "{'$inc': {'v': 1}}", true));
    CHECK_HOLDS("things", "[{'_id': 5, 'v': 1}]");
    CHECK_HOLDS("slips", "[{'_id': 't', 'k': 1}]");
}

/* A validator is for the user's documents. */
CONTRACT(a_receipt_passes_by_a_validator)
{
    struct slip slip = slip_of(c, NULL, "{'_id': 's'}");

    if (!contract_needs(c, TRUCE_CAN_RECEIPT))
        return;
    contract_fill(c, "things", "[{'_id': 5, 'v': 1}]");
    CHECK_DONE(truce_collection_create(c->store, "slips", &c->error));
    CHECK_DONE(truce_collection_validate(c->store, "slips", J("{'must': 1}"), &c->error));
    CHECK_DONE(modify(&slip, "{'_id': 5}", "{'$inc': {'v': 1}}", false));
    CHECK_INT(slip.modified, ==, 1);
    CHECK(slip.document);
    CHECK_HOLDS("slips", "[{'_id': 's'}]");
    slip = slip_of(c, "{'_id': 's'}", "{'_id': 's', 'n': 1}");
    CHECK_REFUSED(TRUCE_NOT_FOUND, 0, modify(&slip, "{'_id': 6}", "{'$inc': {'v': 1}}", false));
    /* The writes had no effect. */
    CHECK_HOLDS("slips", "[{'_id': 's'}]");
}

CONTRACT(refuses_receipts_that_the_store_cannot_make)
{
    struct slip slip = slip_of(c, NULL, "{'_id': 's'}");
    const truce_write write = INSERT("{'_id': 1}");
    const truce_bulk_options atomic = {.atomic = true, .receipt = &slip.base};
    truce_write_outcome outcome;

    CHECK_REFUSED(TRUCE_INVALID, 0, truce_bulk(c->store, &write, 1, &atomic, &outcome, &c->error));
    if (c->store->capabilities & TRUCE_CAN_RECEIPT)
        return;
    CHECK_REFUSED(TRUCE_INVALID, 0, bulk(&slip, &write, 1, false));
    CHECK_REFUSED(TRUCE_INVALID, 0, modify(&slip, "{'_id': 5}", "{'$inc': {'v': 1}}", false));
}

/*
 * Bulks that another process carries out.
 *
 *     request   {a: atomic, d: deadline, w: [write, ...]}
 *     answer    {s: first failure, a: of which write, o: {"0": outcome, ...}}, what is zero left out
 */
#include "engine/documents/bulk.h"
#include "engine/documents/delegated.h"

#define WRITES_MAX 8 /* their outcomes, with one sentence, fit into an answer */

/* An _id that a pipeline has computed may be of any length. */
static bool bulk_is_small(const struct bulk *bulk)
{
    size_t bytes = 0;

    if (bulk->view || bulk->receipt.given || bulk->count > WRITES_MAX ||
        (bulk->count > 1 && bulk->options->unordered))
        return false;
    for (size_t i = 0; i < bulk->count; i++) {
        if (bulk->writes[i].options.upsert && bulk->writes[i].options.pipeline)
            return false;
        bytes += truce__carry_bytes(&bulk->writes[i]);
    }
    return bytes < RECORD_REQUEST_MAX;
}

static void begin_nth(bson_t *list, size_t number, bson_t *part)
{
    char room[16];
    const char *key;

    bson_uint32_to_string((uint32_t)number, &key, room, sizeof room);
    bson_append_document_begin(list, key, -1, part);
}

static bool bulk_pack(const struct write_op *op, struct buffer *request)
{
    const struct bulk *bulk = (const struct bulk *)op;
    bson_t packed = BSON_INITIALIZER, list, write;

    if (!bulk_is_small(bulk))
        return false;
    bson_append_bool(&packed, "a", 1, bulk->options->atomic);
    bson_append_int64(&packed, "d", 1, bulk->budget.deadline_ns);
    bson_append_array_begin(&packed, "w", 1, &list);
    for (size_t i = 0; i < bulk->count; i++) {
        begin_nth(&list, i, &write);
        truce__carry_pack_write(&write, &bulk->writes[i]);
        bson_append_document_end(&list, &write);
    }
    bson_append_array_end(&packed, &list);
    truce__carry_put(request, &packed);
    return true;
}

/* A bulk of another process. */
struct carried_bulk {
    struct bulk bulk; /* first */
    truce_bulk_options options;
    truce_write writes[WRITES_MAX];
    truce_write_outcome outcomes[WRITES_MAX];
    bson_t parts[WRITES_MAX][CARRY_PARTS];
};

static bool unpack_bulk(struct value request, struct carried_bulk *carried)
{
    struct value atomic = truce__value_field(request, "a", 1);
    struct value deadline = truce__value_field(request, "d", 1);
    struct value writes = truce__value_field(request, "w", 1);
    struct fields fields;
    size_t count = 0;

    if (atomic.type != BSON_TYPE_BOOL || deadline.type != BSON_TYPE_INT64 ||
        writes.type != BSON_TYPE_ARRAY)
        return false;
    carried->options.atomic = truce__value_bool(atomic);
    truce__carry_limit(&carried->bulk.budget, truce__value_int64(deadline));
    fields = truce__fields(writes);
    while (truce__fields_next(&fields)) {
        if (count == WRITES_MAX ||
            !truce__carry_unpack_write(fields.value, carried->options.atomic,
                                       &carried->writes[count], carried->parts[count]))
            return false;
        count++;
    }
    carried->bulk.count = count;
    return count;
}

static struct write_op *open_bulk(void *arg, struct bytes request)
{
    struct carried_bulk *carried;
    bson_t packed;

    if (!truce__document_borrow(request.data, request.size, &packed))
        return NULL;
    carried = bson_aligned_alloc0(_Alignof(struct carried_bulk), sizeof *carried);
    if (!unpack_bulk(truce__value_document(&packed), carried)) {
        bson_free(carried);
        return NULL;
    }
    carried->bulk.writes = carried->writes;
    carried->bulk.options = &carried->options;
    carried->bulk.outcomes = carried->outcomes;
    truce__bulk_init(&carried->bulk, arg);
    return &carried->bulk.base;
}

static void close_bulk(struct write_op *op)
{
    struct carried_bulk *carried = (struct carried_bulk *)op;

    for (size_t i = 0; i < carried->bulk.count; i++)
        truce__result_reset(&carried->outcomes[i].result);
    truce__bulk_release(&carried->bulk);
    bson_free(carried);
}

/* Is it over because it was to take long? Its own process can do it. */
static enum carried took_long(const struct bulk *bulk)
{
    if (bulk->budget.over != CODE_INTERRUPTED)
        return CARRIED;
    return bulk->first_at && !bulk->options->atomic ? CARRIED_HALF : CARRIED_NOT;
}

static enum carried answer_bulk(const struct write_op *op, struct buffer *answer)
{
    const struct bulk *bulk = (const struct bulk *)op;
    bson_t packed = BSON_INITIALIZER, list, outcome;
    enum carried carried = took_long(bulk);

    if (carried != CARRIED)
        return carried;
    truce__carry_pack_number(&packed, "s", bulk->first);
    truce__carry_pack_number(&packed, "a", (int64_t)bulk->first_at);
    bson_append_document_begin(&packed, "o", 1, &list);
    for (size_t i = 0; i < bulk->count; i++) {
        begin_nth(&list, i, &outcome);
        truce__carry_pack_outcome(&outcome, &bulk->outcomes[i]);
        bson_append_document_end(&list, &outcome);
    }
    bson_append_document_end(&packed, &list);
    truce__carry_put(answer, &packed);
    return CARRIED;
}

static bool bulk_has_failed(const truce_write_outcome *outcome)
{
    return outcome->status && outcome->error.message[0];
}

/* The first that failed is the one that is told, and there is none but that one. */
static bool unpack_outcomes(struct value list, struct bulk *bulk)
{
    struct fields fields = truce__fields(list);
    size_t count = 0, failures = 0;

    while (truce__fields_next(&fields)) {
        const truce_write_outcome *outcome = &bulk->outcomes[count];

        if (count == bulk->count || !truce__carry_unpack_outcome(fields.value, &bulk->writes[count],
                                                                 &bulk->outcomes[count]))
            return false;
        if (bulk_has_failed(outcome))
            failures++;
        count++;
    }
    if (count != bulk->count || bulk->first_at >= count)
        return false;
    return bulk->first ? failures == 1 && bulk_has_failed(&bulk->outcomes[bulk->first_at]) &&
                             bulk->outcomes[bulk->first_at].status == bulk->first
                       : !failures;
}

static bool bulk_unpack(struct write_op *op, struct bytes answer)
{
    struct bulk *bulk = (struct bulk *)op;
    struct value told, list;
    bson_t packed;

    op->reset(op);
    if (!truce__document_borrow(answer.data, answer.size, &packed))
        return false;
    told = truce__value_document(&packed);
    list = truce__value_field(told, "o", 1);
    bulk->first = (truce_status)truce__carry_told(told, "s");
    bulk->first_at = (size_t)truce__carry_told(told, "a");
    if (list.type == BSON_TYPE_DOCUMENT && unpack_outcomes(list, bulk))
        return true;
    op->reset(op);
    return false;
}

const struct carry truce__carry_bulk = {
    .letter = 'b',
    .pack = bulk_pack,
    .open = open_bulk,
    .answer = answer_bulk,
    .unpack = bulk_unpack,
    .close = close_bulk,
};

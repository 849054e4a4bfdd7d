/*
 * Find-and-modifies that another process carries out.
 *
 *     request   {w: write, p: projection, n: return_new, d: deadline}
 *     answer    outcome, and v: the document
 *
 * A document that is larger than an answer may be is not brought: then its own process does it all, and sends none for a while.
 */
#include "engine/documents/delegated.h"
#include "engine/documents/modify.h"

static truce_write modify_write_of(const struct modify *modify)
{
    const truce_modify_options *options = modify->options;

    return (truce_write){.kind = options->remove ? TRUCE_WRITE_REMOVE : TRUCE_WRITE_UPDATE,
                         .collection = modify->collection,
                         .filter = modify->filter,
                         .document = options->remove ? NULL : modify->update,
                         .options = {.upsert = options->upsert,
                                     .pipeline = options->pipeline,
                                     .unvalidated = options->unvalidated,
                                     .hint = options->hint,
                                     .sort = options->sort,
                                     .array_filters = options->array_filters}};
}

static bool modify_pack(const struct write_op *op, struct buffer *request)
{
    const struct modify *modify = (const struct modify *)op;
    const truce_write write = modify_write_of(modify);
    bson_t packed = BSON_INITIALIZER, part;

    if (modify->receipt.given || truce__carry_bytes(&write) > RECORD_REQUEST_MAX)
        return false;
    bson_append_document_begin(&packed, "w", 1, &part);
    truce__carry_pack_write(&part, &write);
    bson_append_document_end(&packed, &part);
    if (modify->options->projection)
        bson_append_document(&packed, "p", 1, modify->options->projection);
    bson_append_bool(&packed, "n", 1, modify->options->return_new);
    bson_append_int64(&packed, "d", 1, modify->budget.deadline_ns);
    truce__carry_put(request, &packed);
    return true;
}

/* One of another process. */
struct carried_modify {
    struct modify modify; /* first */
    truce_modify_options options;
    truce_write_result result;
    bson_t document, projection;
    bson_t parts[CARRY_PARTS];
};

static bool unpack_modify(struct value request, struct carried_modify *carried)
{
    struct value return_new = truce__value_field(request, "n", 1);
    struct value deadline = truce__value_field(request, "d", 1);
    truce_write write;

    if (return_new.type != BSON_TYPE_BOOL || deadline.type != BSON_TYPE_INT64 ||
        !truce__carry_unpack_write(truce__value_field(request, "w", 1), false, &write,
                                   carried->parts) ||
        (write.kind != TRUCE_WRITE_UPDATE && write.kind != TRUCE_WRITE_REMOVE))
        return false;
    carried->options =
        (truce_modify_options){.remove = write.kind == TRUCE_WRITE_REMOVE,
                               .return_new = truce__value_bool(return_new),
                               .upsert = write.options.upsert,
                               .pipeline = write.options.pipeline,
                               .unvalidated = write.options.unvalidated,
                               .hint = write.options.hint,
                               .sort = write.options.sort,
                               .array_filters = write.options.array_filters,
                               .projection = truce__carry_part(request, "p", &carried->projection)};
    carried->modify.collection = write.collection;
    carried->modify.filter = write.filter;
    carried->modify.update = write.document;
    truce__carry_limit(&carried->modify.budget, truce__value_int64(deadline));
    return !(carried->options.remove && (carried->options.upsert || carried->options.return_new ||
                                         carried->options.array_filters || write.document));
}

static void close_modify(struct write_op *op)
{
    struct carried_modify *carried = (struct carried_modify *)op;

    truce__result_reset(&carried->result);
    bson_destroy(&carried->document);
    truce__modify_release(&carried->modify);
    bson_free(carried);
}

/* What is refused before it runs its own process has refused already. */
static struct write_op *open_modify(void *arg, struct bytes request)
{
    struct carried_modify *carried;
    bson_error_t error;
    bson_t packed;

    if (!truce__document_borrow(request.data, request.size, &packed))
        return NULL;
    carried = bson_aligned_alloc0(_Alignof(struct carried_modify), sizeof *carried);
    if (!unpack_modify(truce__value_document(&packed), carried)) {
        bson_free(carried);
        return NULL;
    }
    bson_init(&carried->document);
    carried->modify.options = &carried->options;
    carried->modify.document = &carried->document;
    carried->modify.result = &carried->result;
    if (!truce__modify_init(&carried->modify, arg, &error))
        return &carried->modify.base;
    close_modify(&carried->modify.base);
    return NULL;
}

static enum carried answer_modify(const struct write_op *op, struct buffer *answer)
{
    const struct modify *modify = (const struct modify *)op;
    const truce_write_outcome outcome = {
        .status = modify->status, .result = *modify->result, .error = modify->error};
    bson_t packed = BSON_INITIALIZER;

    if (modify->budget.over == CODE_INTERRUPTED)
        return CARRIED_NOT;
    truce__carry_pack_outcome(&packed, &outcome);
    bson_append_document(&packed, "v", 1, modify->document);
    truce__carry_put(answer, &packed);
    return CARRIED;
}

static bool modify_is_possible(const struct modify *modify)
{
    const truce_write_result *result = modify->result;
    bool done = modify->status == TRUCE_OK;

    return result->matched + result->upserted == done &&
           result->removed == (modify->options->remove && done) &&
           (!result->upserted || modify->options->upsert);
}

static bool modify_unpack(struct write_op *op, struct bytes answer)
{
    struct modify *modify = (struct modify *)op;
    const truce_write write = modify_write_of(modify);
    truce_write_outcome outcome = {0};
    bson_t packed, document;
    bool possible;

    op->reset(op);
    if (!truce__document_borrow(answer.data, answer.size, &packed) ||
        !truce__value_subdocument(&packed, "v", &document))
        return false;
    possible = truce__carry_unpack_outcome(truce__value_document(&packed), &write, &outcome);
    *modify->result = outcome.result;
    modify->status = outcome.status;
    modify->error = outcome.error;
    if (!possible || !modify_is_possible(modify)) {
        op->reset(op);
        return false;
    }
    bson_destroy(modify->document);
    bson_copy_to(&document, modify->document);
    return true;
}

const struct carry truce__carry_modify = {
    .letter = 'm',
    .pack = modify_pack,
    .open = open_modify,
    .answer = answer_modify,
    .close = close_modify,
    .unpack = modify_unpack,
};

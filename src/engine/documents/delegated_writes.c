/*
 * Operations that another process executes for this one.
 *
 * They are small and short: a few writes that examine few documents. The outcomes of a bulk fit
 * into the answer. A write that would examine more documents stops there (its budget counts its
 * steps), has changed nothing, and is executed by its own process. Other processes therefore do not
 * wait for it, and a long call ends when its own process is interrupted or killed.
 */
#include "engine/documents/delegated_writes.h"

#include "engine/documents/bulk_write.h"
#include "engine/documents/find_and_modify.h"
#include "query/input_check.h"

const struct delegated_kind *const truce__delegated_kinds[] = {&truce__delegated_kind_bulk,
                                                               &truce__delegated_kind_modify, NULL};

/* Limits the number of examined documents: the budget is interrupted at its first check, which
 * comes after BUDGET_STEPS steps. */
static void delegated_limit(struct budget *budget, int64_t deadline_ns)
{
    /* The flag of an interrupt, which is always set. */
    static const int enough = 1;

    truce__budget_init(budget, deadline_ns, &enough);
}

/* Appends a document to the bytes and destroys it. */
static void delegated_put(struct buffer *bytes, bson_t *packed)
{
    truce__buffer_append(bytes, bson_get_data(packed), packed->len);
    bson_destroy(packed);
}

/* ---- writes --------------------------------------------------------------------------------- */

enum {
    MULTI = 1,
    UPSERT = 2,
    PIPELINE = 4,
    UNVALIDATED = 8,
    IN_PARTS = 16,
};

/* The names of the parts of a write that are documents. */
static const char *const part_names[] = {"q", "v", "x", "h", "s", "y"};

enum { FILTER, DOCUMENT, EXACT, HINT, SORT, ARRAY_FILTERS };

_Static_assert(sizeof part_names / sizeof *part_names == DELEGATED_PARTS, "each has a name");

static void delegated_parts_of(const truce_write *write, const bson_t *parts[DELEGATED_PARTS])
{
    parts[FILTER] = write->filter;
    parts[DOCUMENT] = write->document;
    parts[EXACT] = write->exact;
    parts[HINT] = write->options.hint;
    parts[SORT] = write->options.sort;
    parts[ARRAY_FILTERS] = write->options.array_filters;
}

static size_t delegated_bytes(const truce_write *write)
{
    const bson_t *parts[DELEGATED_PARTS];
    size_t bytes = 0;

    delegated_parts_of(write, parts);
    for (int part = 0; part < DELEGATED_PARTS; part++)
        bytes += parts[part] ? parts[part]->len : 0;
    return bytes;
}

static int flags_of(const truce_write *write)
{
    return (write->options.multi ? MULTI : 0) | (write->options.upsert ? UPSERT : 0) |
           (write->options.pipeline ? PIPELINE : 0) |
           (write->options.unvalidated ? UNVALIDATED : 0) | (write->in_parts ? IN_PARTS : 0);
}

/* Appends a write in the form that delegated_unpack_write reads. */
static void delegated_pack_write(bson_t *packed, const truce_write *write)
{
    const bson_t *parts[DELEGATED_PARTS];

    bson_append_int32(packed, "k", 1, (int32_t)write->kind);
    bson_append_int32(packed, "f", 1, flags_of(write));
    bson_append_utf8(packed, "c", 1, write->collection, -1);
    delegated_parts_of(write, parts);
    for (int part = 0; part < DELEGATED_PARTS; part++) {
        bool is_array = part == ARRAY_FILTERS || (part == DOCUMENT && write->options.pipeline);

        if (parts[part] && is_array)
            bson_append_array(packed, part_names[part], 1, parts[part]);
        else if (parts[part])
            bson_append_document(packed, part_names[part], 1, parts[part]);
    }
}

/* Returns a part of the write, or NULL if the write does not have it. */
static const bson_t *delegated_part(struct value packed, const char *name, bson_t *made)
{
    struct value value = truce__value_field(packed, name, 1);

    if (value.type != BSON_TYPE_DOCUMENT && value.type != BSON_TYPE_ARRAY)
        return NULL;
    truce__value_bson(value, made);
    return made;
}

static int32_t number_field(struct value document, const char *name)
{
    struct value value = truce__value_field(document, name, 1);

    return value.type == BSON_TYPE_INT32 ? truce__value_int32(value) : 0;
}

/* Checks the write as the store checks a write before it calls its backend. */
static bool delegated_is_valid(const truce_write *write, bool atomic)
{
    const truce_write_options *options = &write->options;

    if (truce__collection_name_check(write->collection, NULL) ||
        (write->exact && (options->multi || options->upsert)) ||
        (options->sort && truce__check_update_sort(options->sort, options->multi, NULL)))
        return false;
    switch (write->kind) {
    case TRUCE_WRITE_INSERT:
        return write->document && truce__document_is_prepared(write->document);
    case TRUCE_WRITE_UPDATE:
        return write->filter && write->document;
    case TRUCE_WRITE_REMOVE:
        return write->filter;
    case TRUCE_WRITE_REQUIRE:
    case TRUCE_WRITE_REQUIRE_MISSING:
    case TRUCE_WRITE_REQUIRE_IN_SNAPSHOT:
        return write->filter && atomic;
    }
    return false;
}

/* Reads a write. Returns false if the store would not pass it to its backend. */
static bool delegated_unpack_write(struct value packed, bool atomic, truce_write *write,
                                   bson_t parts[DELEGATED_PARTS])
{
    struct value collection;
    uint32_t length;
    int flags;

    if (packed.type != BSON_TYPE_DOCUMENT)
        return false;
    flags = number_field(packed, "f");
    collection = truce__value_field(packed, "c", 1);
    if (collection.type != BSON_TYPE_UTF8)
        return false;
    *write =
        (truce_write){.kind = (truce_write_kind)number_field(packed, "k"),
                      .collection = truce__value_text(collection, &length),
                      .filter = delegated_part(packed, part_names[FILTER], &parts[FILTER]),
                      .document = delegated_part(packed, part_names[DOCUMENT], &parts[DOCUMENT]),
                      .exact = delegated_part(packed, part_names[EXACT], &parts[EXACT]),
                      .in_parts = flags & IN_PARTS,
                      .options = {.multi = flags & MULTI,
                                  .upsert = flags & UPSERT,
                                  .pipeline = flags & PIPELINE,
                                  .unvalidated = flags & UNVALIDATED,
                                  .hint = delegated_part(packed, part_names[HINT], &parts[HINT]),
                                  .sort = delegated_part(packed, part_names[SORT], &parts[SORT]),
                                  .array_filters = delegated_part(packed, part_names[ARRAY_FILTERS],
                                                                  &parts[ARRAY_FILTERS])}};
    return delegated_is_valid(write, atomic);
}

/* ---- outcomes ------------------------------------------------------------------------------- */

static void delegated_pack_number(bson_t *packed, const char *name, int64_t number)
{
    if (number)
        bson_append_int64(packed, name, 1, number);
}

static void pack_error(bson_t *packed, const bson_error_t *error)
{
    bson_t reply;

    bson_append_document_begin(packed, "e", 1, &reply);
    delegated_pack_number(&reply, "d", error->domain);
    delegated_pack_number(&reply, "c", error->code);
    /* A message may end in the middle of a character, so it is not a valid string. */
    bson_append_binary(&reply, "m", 1, BSON_SUBTYPE_BINARY, (const uint8_t *)error->message,
                       (uint32_t)strlen(error->message));
    bson_append_document_end(packed, &reply);
}

static void delegated_pack_outcome(bson_t *packed, const truce_write_outcome *outcome)
{
    delegated_pack_number(packed, "s", outcome->status);
    delegated_pack_number(packed, "m", outcome->result.matched);
    delegated_pack_number(packed, "n", outcome->result.modified);
    delegated_pack_number(packed, "i", outcome->result.inserted);
    delegated_pack_number(packed, "r", outcome->result.removed);
    if (outcome->result.upserted)
        bson_append_value(packed, "u", 1, &outcome->result.upserted_id);
    if (outcome->error.message[0])
        pack_error(packed, &outcome->error);
}

static int64_t delegated_number(struct value document, const char *name)
{
    struct value value = truce__value_field(document, name, 1);

    return value.type == BSON_TYPE_INT64 ? truce__value_int64(value) : 0;
}

/* Reads the error of an outcome, if it has one. */
static void unpack_error(const bson_t *outcome, bson_error_t *error)
{
    const uint8_t *message = NULL;
    uint32_t length = 0;
    bson_iter_t iter;
    bson_t reply;

    if (!truce__value_subdocument(outcome, "e", &reply))
        return;
    if (bson_iter_init_find(&iter, &reply, "m") && BSON_ITER_HOLDS_BINARY(&iter))
        bson_iter_binary(&iter, NULL, &length, &message);
    bson_set_error(error, (uint32_t)delegated_number(truce__value_document(&reply), "d"),
                   (uint32_t)delegated_number(truce__value_document(&reply), "c"), "%.*s",
                   (int)length, message ? (const char *)message : "");
}

/* Checks whether a write of this kind can have the outcome. */
static bool delegated_is_possible(const truce_write *write, const truce_write_outcome *outcome)
{
    const truce_write_result *result = &outcome->result;
    bool done = outcome->status == TRUCE_OK;

    if (outcome->status < TRUCE_OK || outcome->status > TRUCE_REFUSED || result->modified < 0 ||
        result->modified > result->matched || result->inserted < 0 || result->removed < 0)
        return false;
    if (result->upserted && (write->kind != TRUCE_WRITE_UPDATE || result->matched))
        return false;
    if (write->kind == TRUCE_WRITE_REMOVE ? done && result->removed != result->matched
                                          : result->removed)
        return false;
    if (write->kind == TRUCE_WRITE_INSERT && done && result->inserted != 1)
        return false;
    return write->options.multi || result->matched <= 1;
}

/* Reads an outcome. Returns false if the write cannot have it. */
static bool delegated_unpack_outcome(struct value reply, const truce_write *write,
                                     truce_write_outcome *outcome)
{
    bson_t document;
    bson_iter_t iter;

    if (reply.type != BSON_TYPE_DOCUMENT)
        return false;
    truce__value_bson(reply, &document);
    outcome->status = (truce_status)delegated_number(reply, "s");
    outcome->result.matched = delegated_number(reply, "m");
    outcome->result.modified = delegated_number(reply, "n");
    outcome->result.inserted = delegated_number(reply, "i");
    outcome->result.removed = delegated_number(reply, "r");
    outcome->result.upserted = bson_iter_init_find(&iter, &document, "u");
    if (outcome->result.upserted)
        bson_value_copy(bson_iter_value(&iter), &outcome->result.upserted_id);
    unpack_error(&document, &outcome->error);
    if (outcome->error.domain != TRUCE_ERROR_SERVER) {
        outcome->error.domain = TRUCE_ERROR;
        outcome->error.code = (uint32_t)outcome->status;
    }
    return delegated_is_possible(write, outcome);
}

/* ---- bulks ---------------------------------------------------------------------------------- */

/*
 * Bulks that another process executes.
 *
 *     request   {a: atomic, d: deadline, w: [write, ...]}
 *     answer    {s: first failure, a: number of that write, o: {"0": outcome, ...}}
 *     (zeros are omitted)
 */

/* The maximum number of writes whose outcomes, with one message, fit into an answer. */
#define WRITES_MAX 8

/* Returns whether a record can contain the bulk and its results. A bulk that checks the reads of a
 * transaction, has a receipt, or has several unordered writes has no form in a record. An upsert
 * with a pipeline never fits, because its computed _id may have any length. */
static bool bulk_is_small(const struct bulk *bulk)
{
    size_t bytes = 0;

    if (bulk->view || bulk->receipt.given || bulk->count > WRITES_MAX ||
        (bulk->count > 1 && bulk->options->unordered))
        return false;
    for (size_t i = 0; i < bulk->count; i++) {
        if (bulk->writes[i].options.upsert && bulk->writes[i].options.pipeline)
            return false;
        bytes += delegated_bytes(&bulk->writes[i]);
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

/* Writes the request of a bulk. Returns false if no other process can execute it. */
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
        delegated_pack_write(&write, &bulk->writes[i]);
        bson_append_document_end(&list, &write);
    }
    bson_append_array_end(&packed, &list);
    delegated_put(request, &packed);
    return true;
}

/* A bulk that another process has published. */
struct delegated_bulk {
    /* Must be the first field. */
    struct bulk bulk;
    truce_bulk_options options;
    truce_write writes[WRITES_MAX];
    truce_write_outcome outcomes[WRITES_MAX];
    bson_t parts[WRITES_MAX][DELEGATED_PARTS];
};

/* Reads the bulk of another process from its record. Returns false if the request is damaged. */
static bool unpack_bulk(struct value request, struct delegated_bulk *delegated)
{
    struct value atomic = truce__value_field(request, "a", 1);
    struct value deadline = truce__value_field(request, "d", 1);
    struct value writes = truce__value_field(request, "w", 1);
    struct fields fields;
    size_t count = 0;

    if (atomic.type != BSON_TYPE_BOOL || deadline.type != BSON_TYPE_INT64 ||
        writes.type != BSON_TYPE_ARRAY)
        return false;
    delegated->options.atomic = truce__value_bool(atomic);
    delegated_limit(&delegated->bulk.budget, truce__value_int64(deadline));
    fields = truce__fields(writes);
    while (truce__fields_next(&fields)) {
        if (count == WRITES_MAX ||
            !delegated_unpack_write(fields.value, delegated->options.atomic,
                                    &delegated->writes[count], delegated->parts[count]))
            return false;
        count++;
    }
    delegated->bulk.count = count;
    return count;
}

/* Creates the bulk from the request of another process. Returns NULL if the request is damaged. */
static struct write_op *open_bulk(void *arg, struct bytes request)
{
    struct delegated_bulk *delegated;
    bson_t packed;

    if (!truce__document_borrow(request.data, request.size, &packed))
        return NULL;
    delegated = bson_aligned_alloc0(_Alignof(struct delegated_bulk), sizeof *delegated);
    if (!unpack_bulk(truce__value_document(&packed), delegated)) {
        bson_free(delegated);
        return NULL;
    }
    delegated->bulk.writes = delegated->writes;
    delegated->bulk.options = &delegated->options;
    delegated->bulk.outcomes = delegated->outcomes;
    truce__bulk_init(&delegated->bulk, arg);
    return &delegated->bulk.base;
}

static void close_bulk(struct write_op *op)
{
    struct delegated_bulk *delegated = (struct delegated_bulk *)op;

    for (size_t i = 0; i < delegated->bulk.count; i++)
        truce__result_reset(&delegated->outcomes[i].result);
    truce__bulk_release(&delegated->bulk);
    bson_free(delegated);
}

/* Returns DELEGATED_DONE unless the bulk ended because it would take too long. The process that
 * published it then executes it. */
static enum delegated took_long(const struct bulk *bulk)
{
    if (bulk->budget.over != CODE_INTERRUPTED)
        return DELEGATED_DONE;
    return bulk->first_at && !bulk->options->atomic ? DELEGATED_HALF : DELEGATED_NOT;
}

/* Appends the outcomes of a bulk to the answer, unless the bulk took so long that the process that
 * published it must run it. */
static enum delegated answer_bulk(const struct write_op *op, struct buffer *answer)
{
    const struct bulk *bulk = (const struct bulk *)op;
    bson_t packed = BSON_INITIALIZER, list, outcome;
    enum delegated delegated = took_long(bulk);

    if (delegated != DELEGATED_DONE)
        return delegated;
    delegated_pack_number(&packed, "s", bulk->first);
    delegated_pack_number(&packed, "a", (int64_t)bulk->first_at);
    bson_append_document_begin(&packed, "o", 1, &list);
    for (size_t i = 0; i < bulk->count; i++) {
        begin_nth(&list, i, &outcome);
        delegated_pack_outcome(&outcome, &bulk->outcomes[i]);
        bson_append_document_end(&list, &outcome);
    }
    bson_append_document_end(&packed, &list);
    delegated_put(answer, &packed);
    return DELEGATED_DONE;
}

static bool bulk_has_failed(const truce_write_outcome *outcome)
{
    return outcome->status && outcome->error.message[0];
}

/* Reads the outcomes of a bulk that another process executed. Returns false if they are damaged. A
 * bulk of several writes is ordered, so it stops at its first failure and has no other one. */
static bool unpack_outcomes(struct value list, struct bulk *bulk)
{
    struct fields fields = truce__fields(list);
    size_t count = 0, failures = 0;

    while (truce__fields_next(&fields)) {
        const truce_write_outcome *outcome = &bulk->outcomes[count];

        if (count == bulk->count ||
            !delegated_unpack_outcome(fields.value, &bulk->writes[count], &bulk->outcomes[count]))
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

/* Reads the answer to a bulk. Returns false, with the operation reset, if the answer is damaged. */
static bool bulk_unpack(struct write_op *op, struct bytes answer)
{
    struct bulk *bulk = (struct bulk *)op;
    struct value reply, list;
    bson_t packed;

    op->reset(op);
    if (!truce__document_borrow(answer.data, answer.size, &packed))
        return false;
    reply = truce__value_document(&packed);
    list = truce__value_field(reply, "o", 1);
    bulk->first = (truce_status)delegated_number(reply, "s");
    bulk->first_at = (size_t)delegated_number(reply, "a");
    if (list.type == BSON_TYPE_DOCUMENT && unpack_outcomes(list, bulk))
        return true;
    op->reset(op);
    return false;
}

const struct delegated_kind truce__delegated_kind_bulk = {
    .letter = 'b',
    .pack = bulk_pack,
    .open = open_bulk,
    .answer = answer_bulk,
    .unpack = bulk_unpack,
    .close = close_bulk,
};

/* ---- find-and-modify ------------------------------------------------------------------------ */

/*
 * Find-and-modify operations that another process executes.
 *
 *     request   {w: write, p: projection, n: return_new, d: deadline}
 *     answer    outcome, and v: the document
 *
 * If the document does not fit into an answer, the operation is returned. The process that
 * published it then executes it, and publishes no operations for a while.
 */

/* Returns the write that a find-and-modify corresponds to, for packing. It borrows from
 * `modify`. */
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

/* Writes the request of a find-and-modify. Returns false if no other process can execute it. */
static bool modify_pack(const struct write_op *op, struct buffer *request)
{
    const struct modify *modify = (const struct modify *)op;
    const truce_write write = modify_write_of(modify);
    bson_t packed = BSON_INITIALIZER, part;

    if (modify->receipt.given || delegated_bytes(&write) > RECORD_REQUEST_MAX)
        return false;
    bson_append_document_begin(&packed, "w", 1, &part);
    delegated_pack_write(&part, &write);
    bson_append_document_end(&packed, &part);
    if (modify->options->projection)
        bson_append_document(&packed, "p", 1, modify->options->projection);
    bson_append_bool(&packed, "n", 1, modify->options->return_new);
    bson_append_int64(&packed, "d", 1, modify->budget.deadline_ns);
    delegated_put(request, &packed);
    return true;
}

/* A find-and-modify that another process has published. */
struct delegated_modify {
    /* Must be the first field. */
    struct modify modify;
    truce_modify_options options;
    truce_write_result result;
    bson_t document, projection;
    bson_t parts[DELEGATED_PARTS];
};

/* Reads the find-and-modify of another process from its record. Returns false if the request is
 * damaged, or if its options exclude each other. */
static bool unpack_modify(struct value request, struct delegated_modify *delegated)
{
    struct value return_new = truce__value_field(request, "n", 1);
    struct value deadline = truce__value_field(request, "d", 1);
    truce_write write;

    if (return_new.type != BSON_TYPE_BOOL || deadline.type != BSON_TYPE_INT64 ||
        !delegated_unpack_write(truce__value_field(request, "w", 1), false, &write,
                                delegated->parts) ||
        (write.kind != TRUCE_WRITE_UPDATE && write.kind != TRUCE_WRITE_REMOVE))
        return false;
    delegated->options =
        (truce_modify_options){.remove = write.kind == TRUCE_WRITE_REMOVE,
                               .return_new = truce__value_bool(return_new),
                               .upsert = write.options.upsert,
                               .pipeline = write.options.pipeline,
                               .unvalidated = write.options.unvalidated,
                               .hint = write.options.hint,
                               .sort = write.options.sort,
                               .array_filters = write.options.array_filters,
                               .projection = delegated_part(request, "p", &delegated->projection)};
    delegated->modify.collection = write.collection;
    delegated->modify.filter = write.filter;
    delegated->modify.update = write.document;
    delegated_limit(&delegated->modify.budget, truce__value_int64(deadline));
    return !(delegated->options.remove &&
             (delegated->options.upsert || delegated->options.return_new ||
              delegated->options.array_filters || write.document));
}

static void close_modify(struct write_op *op)
{
    struct delegated_modify *delegated = (struct delegated_modify *)op;

    truce__result_reset(&delegated->result);
    bson_destroy(&delegated->document);
    truce__modify_release(&delegated->modify);
    bson_free(delegated);
}

/* Creates the operation from the request of another process. Returns NULL if the request is
 * damaged. The process that published the operation has already checked everything that can be
 * checked before it runs. */
static struct write_op *open_modify(void *arg, struct bytes request)
{
    struct delegated_modify *delegated;
    bson_error_t error;
    bson_t packed;

    if (!truce__document_borrow(request.data, request.size, &packed))
        return NULL;
    delegated = bson_aligned_alloc0(_Alignof(struct delegated_modify), sizeof *delegated);
    if (!unpack_modify(truce__value_document(&packed), delegated)) {
        bson_free(delegated);
        return NULL;
    }
    bson_init(&delegated->document);
    delegated->modify.options = &delegated->options;
    delegated->modify.document = &delegated->document;
    delegated->modify.result = &delegated->result;
    if (!truce__modify_init(&delegated->modify, arg, &error))
        return &delegated->modify.base;
    close_modify(&delegated->modify.base);
    return NULL;
}

/* Appends the outcome and the document to the answer. Returns DELEGATED_NOT if the operation would
 * take too long here; the process that published it then executes it. */
static enum delegated answer_modify(const struct write_op *op, struct buffer *answer)
{
    const struct modify *modify = (const struct modify *)op;
    const truce_write_outcome outcome = {
        .status = modify->status, .result = *modify->result, .error = modify->error};
    bson_t packed = BSON_INITIALIZER;

    if (modify->budget.over == CODE_INTERRUPTED)
        return DELEGATED_NOT;
    delegated_pack_outcome(&packed, &outcome);
    bson_append_document(&packed, "v", 1, modify->document);
    delegated_put(answer, &packed);
    return DELEGATED_DONE;
}

static bool modify_is_possible(const struct modify *modify)
{
    const truce_write_result *result = modify->result;
    bool done = modify->status == TRUCE_OK;

    return result->matched + result->upserted == done &&
           result->removed == (modify->options->remove && done) &&
           (!result->upserted || modify->options->upsert);
}

/* Reads the result of a find-and-modify that another process executed. Returns false, with the
 * operation reset, if the answer is damaged or impossible. */
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
    possible = delegated_unpack_outcome(truce__value_document(&packed), &write, &outcome);
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

const struct delegated_kind truce__delegated_kind_modify = {
    .letter = 'm',
    .pack = modify_pack,
    .open = open_modify,
    .answer = answer_modify,
    .close = close_modify,
    .unpack = modify_unpack,
};

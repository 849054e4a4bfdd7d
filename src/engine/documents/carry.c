/*
 * What is carried out by another process is small and short: a few writes, whose outcomes fit into the answer whatever they
 * are, and which look at few documents. A write that would look at more ends there (`STEPS` of query/ are counted by its budget), has
 * changed nothing, and its own process does it: others do not wait for it, and who is interrupted or killed takes his long
 * work with him.
 */
#include "engine/documents/carry.h"

#include "base/assert.h"
#include "bson/value.h"
#include "engine/documents/bulk.h"
#include "query/incoming.h"

#define WRITES_MAX 8 /* of a bulk: their outcomes, with one sentence, fit into an answer */

enum {
    MULTI = 1,
    UPSERT = 2,
    PIPELINE = 4,
    UNVALIDATED = 8,
    IN_PARTS = 16,
};

/* The parts of a write that are documents, by their names. */
static const char *const part_names[] = {"q", "v", "x", "h", "s", "y"};

enum { FILTER, DOCUMENT, EXACT, HINT, SORT, ARRAY_FILTERS, PARTS };

_Static_assert(sizeof part_names / sizeof *part_names == PARTS, "each has a name");

/* ---- requests ------------------------------------------------------------------------------------- */

static void parts_of(const truce_write *write, const bson_t *parts[PARTS])
{
    parts[FILTER] = write->filter;
    parts[DOCUMENT] = write->document;
    parts[EXACT] = write->exact;
    parts[HINT] = write->options.hint;
    parts[SORT] = write->options.sort;
    parts[ARRAY_FILTERS] = write->options.array_filters;
}

/* An _id that a pipeline has computed may be of any length. */
static bool is_small(const struct bulk *bulk)
{
    size_t bytes = 0;

    if (bulk->view || bulk->receipt.given || bulk->count > WRITES_MAX ||
        (bulk->count > 1 && bulk->options->unordered))
        return false;
    for (size_t i = 0; i < bulk->count; i++) {
        const bson_t *parts[PARTS];

        if (bulk->writes[i].options.upsert && bulk->writes[i].options.pipeline)
            return false;
        parts_of(&bulk->writes[i], parts);
        for (int part = 0; part < PARTS; part++)
            bytes += parts[part] ? parts[part]->len : 0;
    }
    return bytes < RECORD_REQUEST_MAX;
}

static int flags_of(const truce_write *write)
{
    return (write->options.multi ? MULTI : 0) | (write->options.upsert ? UPSERT : 0) |
           (write->options.pipeline ? PIPELINE : 0) |
           (write->options.unvalidated ? UNVALIDATED : 0) | (write->in_parts ? IN_PARTS : 0);
}

static void pack_write(bson_t *list, uint32_t number, const truce_write *write)
{
    const bson_t *parts[PARTS];
    char room[16];
    const char *key;
    bson_t packed;

    bson_uint32_to_string(number, &key, room, sizeof room);
    bson_append_document_begin(list, key, -1, &packed);
    bson_append_int32(&packed, "k", 1, (int32_t)write->kind);
    bson_append_int32(&packed, "f", 1, flags_of(write));
    bson_append_utf8(&packed, "c", 1, write->collection, -1);
    parts_of(write, parts);
    for (int part = 0; part < PARTS; part++) {
        bool is_array = part == ARRAY_FILTERS || (part == DOCUMENT && write->options.pipeline);

        if (parts[part] && is_array)
            bson_append_array(&packed, part_names[part], 1, parts[part]);
        else if (parts[part])
            bson_append_document(&packed, part_names[part], 1, parts[part]);
    }
    bson_append_document_end(list, &packed);
}

bool truce__carry_pack(const struct write_op *op, struct buffer *request)
{
    const struct bulk *bulk = (const struct bulk *)op;
    bson_t packed = BSON_INITIALIZER, list;

    if (!is_small(bulk))
        return false;
    bson_append_bool(&packed, "a", 1, bulk->options->atomic);
    bson_append_bool(&packed, "r", 1, bulk->base.relaxed);
    bson_append_int64(&packed, "d", 1, bulk->budget.deadline_ns);
    bson_append_array_begin(&packed, "w", 1, &list);
    for (size_t i = 0; i < bulk->count; i++)
        pack_write(&list, (uint32_t)i, &bulk->writes[i]);
    bson_append_array_end(&packed, &list);
    truce__buffer_append(request, bson_get_data(&packed), packed.len);
    bson_destroy(&packed);
    return true;
}

/* A bulk of another process. */
struct carried_bulk {
    struct bulk bulk; /* first */
    truce_bulk_options options;
    truce_write writes[WRITES_MAX];
    truce_write_outcome outcomes[WRITES_MAX];
    bson_t parts[WRITES_MAX][PARTS];
};

static const bson_t *unpack_part(struct value write, int part, bson_t *made)
{
    struct value value = truce__value_field(write, part_names[part], 1);

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

/* Is it as a store lets it through to its backend? */
static bool is_sound(const truce_write *write, bool atomic)
{
    const truce_write_options *options = &write->options;

    if (truce__collection_name_check(write->collection, NULL) ||
        (write->exact && (options->multi || options->upsert)) ||
        (options->sort && (write->kind != TRUCE_WRITE_UPDATE ||
                           truce__check_update_sort(options->sort, options->multi, NULL))))
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
    case TRUCE_WRITE_LOOK:
        return write->filter && atomic;
    }
    return false;
}

static bool unpack_write(struct value packed, bool atomic, truce_write *write, bson_t parts[PARTS])
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
    *write = (truce_write){
        .kind = (truce_write_kind)number_field(packed, "k"),
        .collection = truce__value_text(collection, &length),
        .filter = unpack_part(packed, FILTER, &parts[FILTER]),
        .document = unpack_part(packed, DOCUMENT, &parts[DOCUMENT]),
        .exact = unpack_part(packed, EXACT, &parts[EXACT]),
        .in_parts = flags & IN_PARTS,
        .options = {.multi = flags & MULTI,
                    .upsert = flags & UPSERT,
                    .pipeline = flags & PIPELINE,
                    .unvalidated = flags & UNVALIDATED,
                    .hint = unpack_part(packed, HINT, &parts[HINT]),
                    .sort = unpack_part(packed, SORT, &parts[SORT]),
                    .array_filters = unpack_part(packed, ARRAY_FILTERS, &parts[ARRAY_FILTERS])}};
    return is_sound(write, atomic);
}

static bool unpack_bulk(struct value request, struct carried_bulk *carried)
{
    struct value atomic = truce__value_field(request, "a", 1);
    struct value relaxed = truce__value_field(request, "r", 1);
    struct value deadline = truce__value_field(request, "d", 1);
    struct value writes = truce__value_field(request, "w", 1);
    struct fields fields;
    static const int enough = 1; /* the budget ends when it looks around for the first time */
    size_t count = 0;

    if (atomic.type != BSON_TYPE_BOOL || relaxed.type != BSON_TYPE_BOOL ||
        deadline.type != BSON_TYPE_INT64 || writes.type != BSON_TYPE_ARRAY)
        return false;
    carried->options.atomic = truce__value_bool(atomic);
    carried->options.relaxed = truce__value_bool(relaxed);
    truce__budget_init(&carried->bulk.budget, truce__value_int64(deadline), &enough);
    fields = truce__fields(writes);
    while (truce__fields_next(&fields)) {
        if (count == WRITES_MAX || !unpack_write(fields.value, carried->options.atomic,
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

    if (!truce__document_sound(request.data, request.size) ||
        !bson_init_static(&packed, request.data, request.size))
        return NULL;
    carried = bson_malloc0(sizeof *carried);
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

/* ---- answers -------------------------------------------------------------------------------------- */

static void pack_number(bson_t *packed, const char *name, int64_t number)
{
    if (number)
        bson_append_int64(packed, name, 1, number);
}

static void pack_error(bson_t *packed, const bson_error_t *error)
{
    bson_t told;

    bson_append_document_begin(packed, "e", 1, &told);
    pack_number(&told, "d", error->domain);
    pack_number(&told, "c", error->code);
    /* it may end amid a character */
    bson_append_binary(&told, "m", 1, BSON_SUBTYPE_BINARY, (const uint8_t *)error->message,
                       (uint32_t)strlen(error->message));
    bson_append_document_end(packed, &told);
}

static void pack_outcome(bson_t *list, uint32_t number, const truce_write_outcome *outcome)
{
    char room[16];
    const char *key;
    bson_t packed;

    bson_uint32_to_string(number, &key, room, sizeof room);
    bson_append_document_begin(list, key, -1, &packed);
    pack_number(&packed, "s", outcome->status);
    pack_number(&packed, "m", outcome->result.matched);
    pack_number(&packed, "n", outcome->result.modified);
    pack_number(&packed, "i", outcome->result.inserted);
    pack_number(&packed, "r", outcome->result.removed);
    if (outcome->result.upserted)
        bson_append_value(&packed, "u", 1, &outcome->result.upserted_id);
    if (outcome->error.message[0])
        pack_error(&packed, &outcome->error);
    bson_append_document_end(list, &packed);
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
    bson_t packed = BSON_INITIALIZER, list;
    enum carried carried = took_long(bulk);

    if (carried != CARRIED)
        return carried;
    pack_number(&packed, "s", bulk->first);
    pack_number(&packed, "a", (int64_t)bulk->first_at);
    bson_append_document_begin(&packed, "o", 1, &list);
    for (size_t i = 0; i < bulk->count; i++)
        pack_outcome(&list, (uint32_t)i, &bulk->outcomes[i]);
    bson_append_document_end(&packed, &list);
    truce__buffer_append(answer, bson_get_data(&packed), packed.len);
    bson_destroy(&packed);
    return CARRIED;
}

const struct carrier truce__carrier = {open_bulk, answer_bulk, close_bulk};

static int64_t told_number(struct value document, const char *name)
{
    struct value value = truce__value_field(document, name, 1);

    return value.type == BSON_TYPE_INT64 ? truce__value_int64(value) : 0;
}

static void unpack_error(const bson_t *outcome, bson_error_t *error)
{
    const uint8_t *message = NULL;
    uint32_t length = 0;
    bson_iter_t iter;
    bson_t told;

    if (!truce__value_subdocument(outcome, "e", &told))
        return;
    if (bson_iter_init_find(&iter, &told, "m") && BSON_ITER_HOLDS_BINARY(&iter))
        bson_iter_binary(&iter, NULL, &length, &message);
    bson_set_error(error, (uint32_t)told_number(truce__value_document(&told), "d"),
                   (uint32_t)told_number(truce__value_document(&told), "c"), "%.*s", (int)length,
                   message ? (const char *)message : "");
}

/* Is it one that such a write can have? */
static bool is_possible(const truce_write *write, const truce_write_outcome *outcome)
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

static bool has_failed(const truce_write_outcome *outcome)
{
    return outcome->status && outcome->error.message[0];
}

static bool unpack_outcome(struct value told, const truce_write *write,
                           truce_write_outcome *outcome)
{
    bson_t document;
    bson_iter_t iter;

    if (told.type != BSON_TYPE_DOCUMENT)
        return false;
    truce__value_bson(told, &document);
    outcome->status = (truce_status)told_number(told, "s");
    outcome->result.matched = told_number(told, "m");
    outcome->result.modified = told_number(told, "n");
    outcome->result.inserted = told_number(told, "i");
    outcome->result.removed = told_number(told, "r");
    outcome->result.upserted = bson_iter_init_find(&iter, &document, "u");
    if (outcome->result.upserted)
        bson_value_copy(bson_iter_value(&iter), &outcome->result.upserted_id);
    unpack_error(&document, &outcome->error);
    if (outcome->error.domain != TRUCE_ERROR_SERVER) {
        outcome->error.domain = TRUCE_ERROR;
        outcome->error.code = (uint32_t)outcome->status;
    }
    return is_possible(write, outcome);
}

/* The first that failed is the one that is told, and there is none but that one. */
static bool unpack_outcomes(struct value list, struct bulk *bulk)
{
    struct fields fields = truce__fields(list);
    size_t count = 0, failures = 0;

    while (truce__fields_next(&fields)) {
        const truce_write_outcome *outcome = &bulk->outcomes[count];

        if (count == bulk->count ||
            !unpack_outcome(fields.value, &bulk->writes[count], &bulk->outcomes[count]))
            return false;
        if (has_failed(outcome))
            failures++;
        count++;
    }
    if (count != bulk->count || bulk->first_at >= count)
        return false;
    return bulk->first ? failures == 1 && has_failed(&bulk->outcomes[bulk->first_at]) &&
                             bulk->outcomes[bulk->first_at].status == bulk->first
                       : !failures;
}

bool truce__carry_unpack(struct write_op *op, struct bytes answer)
{
    struct bulk *bulk = (struct bulk *)op;
    struct value told, list;
    bson_t packed;

    op->reset(op);
    if (!truce__document_sound(answer.data, answer.size) ||
        !bson_init_static(&packed, answer.data, answer.size))
        return false;
    told = truce__value_document(&packed);
    list = truce__value_field(told, "o", 1);
    bulk->first = (truce_status)told_number(told, "s");
    bulk->first_at = (size_t)told_number(told, "a");
    if (list.type == BSON_TYPE_DOCUMENT && unpack_outcomes(list, bulk))
        return true;
    op->reset(op);
    return false;
}

/*
 * What is carried out by another process is small and short: a few writes, whose outcomes fit into the answer whatever they
 * are, and which look at few documents. A write that would look at more ends there (`STEPS` of query/ are counted by its budget), has
 * changed nothing, and its own process does it: others do not wait for it, and who is interrupted or killed takes his long
 * work with him.
 */
#include "engine/documents/delegated.h"

#include "query/incoming.h"

const struct carry *const truce__carries[] = {&truce__carry_bulk, &truce__carry_modify, NULL};

void truce__carry_limit(struct budget *budget, int64_t deadline_ns)
{
    static const int enough = 1; /* the budget ends when it looks around for the first time */

    truce__budget_init(budget, deadline_ns, &enough);
}

void truce__carry_put(struct buffer *bytes, bson_t *packed)
{
    truce__buffer_append(bytes, bson_get_data(packed), packed->len);
    bson_destroy(packed);
}

/* ---- writes ----------------------------------------------------------------------------------------- */

enum {
    MULTI = 1,
    UPSERT = 2,
    PIPELINE = 4,
    UNVALIDATED = 8,
    IN_PARTS = 16,
};

/* The parts of a write that are documents, by their names. */
static const char *const part_names[] = {"q", "v", "x", "h", "s", "y"};

enum { FILTER, DOCUMENT, EXACT, HINT, SORT, ARRAY_FILTERS };

_Static_assert(sizeof part_names / sizeof *part_names == CARRY_PARTS, "each has a name");

static void carry_parts_of(const truce_write *write, const bson_t *parts[CARRY_PARTS])
{
    parts[FILTER] = write->filter;
    parts[DOCUMENT] = write->document;
    parts[EXACT] = write->exact;
    parts[HINT] = write->options.hint;
    parts[SORT] = write->options.sort;
    parts[ARRAY_FILTERS] = write->options.array_filters;
}

size_t truce__carry_bytes(const truce_write *write)
{
    const bson_t *parts[CARRY_PARTS];
    size_t bytes = 0;

    carry_parts_of(write, parts);
    for (int part = 0; part < CARRY_PARTS; part++)
        bytes += parts[part] ? parts[part]->len : 0;
    return bytes;
}

static int flags_of(const truce_write *write)
{
    return (write->options.multi ? MULTI : 0) | (write->options.upsert ? UPSERT : 0) |
           (write->options.pipeline ? PIPELINE : 0) |
           (write->options.unvalidated ? UNVALIDATED : 0) | (write->in_parts ? IN_PARTS : 0);
}

void truce__carry_pack_write(bson_t *packed, const truce_write *write)
{
    const bson_t *parts[CARRY_PARTS];

    bson_append_int32(packed, "k", 1, (int32_t)write->kind);
    bson_append_int32(packed, "f", 1, flags_of(write));
    bson_append_utf8(packed, "c", 1, write->collection, -1);
    carry_parts_of(write, parts);
    for (int part = 0; part < CARRY_PARTS; part++) {
        bool is_array = part == ARRAY_FILTERS || (part == DOCUMENT && write->options.pipeline);

        if (parts[part] && is_array)
            bson_append_array(packed, part_names[part], 1, parts[part]);
        else if (parts[part])
            bson_append_document(packed, part_names[part], 1, parts[part]);
    }
}

const bson_t *truce__carry_part(struct value packed, const char *name, bson_t *made)
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

/* Is it as a store lets it through to its backend? */
static bool carry_is_sound(const truce_write *write, bool atomic)
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
    case TRUCE_WRITE_LOOK:
        return write->filter && atomic;
    }
    return false;
}

bool truce__carry_unpack_write(struct value packed, bool atomic, truce_write *write,
                               bson_t parts[CARRY_PARTS])
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
                      .filter = truce__carry_part(packed, part_names[FILTER], &parts[FILTER]),
                      .document = truce__carry_part(packed, part_names[DOCUMENT], &parts[DOCUMENT]),
                      .exact = truce__carry_part(packed, part_names[EXACT], &parts[EXACT]),
                      .in_parts = flags & IN_PARTS,
                      .options = {.multi = flags & MULTI,
                                  .upsert = flags & UPSERT,
                                  .pipeline = flags & PIPELINE,
                                  .unvalidated = flags & UNVALIDATED,
                                  .hint = truce__carry_part(packed, part_names[HINT], &parts[HINT]),
                                  .sort = truce__carry_part(packed, part_names[SORT], &parts[SORT]),
                                  .array_filters = truce__carry_part(
                                      packed, part_names[ARRAY_FILTERS], &parts[ARRAY_FILTERS])}};
    return carry_is_sound(write, atomic);
}

/* ---- what came of them ------------------------------------------------------------------------------- */

void truce__carry_pack_number(bson_t *packed, const char *name, int64_t number)
{
    if (number)
        bson_append_int64(packed, name, 1, number);
}

static void pack_error(bson_t *packed, const bson_error_t *error)
{
    bson_t told;

    bson_append_document_begin(packed, "e", 1, &told);
    truce__carry_pack_number(&told, "d", error->domain);
    truce__carry_pack_number(&told, "c", error->code);
    /* it may end amid a character */
    bson_append_binary(&told, "m", 1, BSON_SUBTYPE_BINARY, (const uint8_t *)error->message,
                       (uint32_t)strlen(error->message));
    bson_append_document_end(packed, &told);
}

void truce__carry_pack_outcome(bson_t *packed, const truce_write_outcome *outcome)
{
    truce__carry_pack_number(packed, "s", outcome->status);
    truce__carry_pack_number(packed, "m", outcome->result.matched);
    truce__carry_pack_number(packed, "n", outcome->result.modified);
    truce__carry_pack_number(packed, "i", outcome->result.inserted);
    truce__carry_pack_number(packed, "r", outcome->result.removed);
    if (outcome->result.upserted)
        bson_append_value(packed, "u", 1, &outcome->result.upserted_id);
    if (outcome->error.message[0])
        pack_error(packed, &outcome->error);
}

int64_t truce__carry_told(struct value document, const char *name)
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
    bson_set_error(error, (uint32_t)truce__carry_told(truce__value_document(&told), "d"),
                   (uint32_t)truce__carry_told(truce__value_document(&told), "c"), "%.*s",
                   (int)length, message ? (const char *)message : "");
}

/* Is it one that such a write can have? */
static bool carry_is_possible(const truce_write *write, const truce_write_outcome *outcome)
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

bool truce__carry_unpack_outcome(struct value told, const truce_write *write,
                                 truce_write_outcome *outcome)
{
    bson_t document;
    bson_iter_t iter;

    if (told.type != BSON_TYPE_DOCUMENT)
        return false;
    truce__value_bson(told, &document);
    outcome->status = (truce_status)truce__carry_told(told, "s");
    outcome->result.matched = truce__carry_told(told, "m");
    outcome->result.modified = truce__carry_told(told, "n");
    outcome->result.inserted = truce__carry_told(told, "i");
    outcome->result.removed = truce__carry_told(told, "r");
    outcome->result.upserted = bson_iter_init_find(&iter, &document, "u");
    if (outcome->result.upserted)
        bson_value_copy(bson_iter_value(&iter), &outcome->result.upserted_id);
    unpack_error(&document, &outcome->error);
    if (outcome->error.domain != TRUCE_ERROR_SERVER) {
        outcome->error.domain = TRUCE_ERROR;
        outcome->error.code = (uint32_t)outcome->status;
    }
    return carry_is_possible(write, outcome);
}

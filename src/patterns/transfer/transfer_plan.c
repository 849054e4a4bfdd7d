/* The plan of a transfer: its document from a request, the read of the documents that take part,
 * and its entries. A transfer of MongoDB's two-phase commit recipe has no entries; the plan derives
 * them. */
#include <float.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/field.h"
#include "bson/field_name_escape.h"
#include "patterns/transfer/transfer.h"
#include "query/input_check.h"
#include "query/update/update.h"
#include "store/reserved_names.h"

/* ---- from a request to a document ------------------------------------------------------------ */

/* From a request to a transfer's document. Checks everything that can be checked without reading
 * the documents. */

struct building {
    const truce_transfers *transfers;
    const truce_transfer_entry *entry;
    /* The array of entries that is built. */
    bson_t *entries;
    /* The name of the entry's document for messages, or "" before it is needed. */
    char shown[200];
};

static bool transfer_each_field(const bson_t *update, transfer_field_function *function, void *arg);
static bool transfer_opposite(const bson_value_t *value, bson_value_t *opposite);

static const char *build_shown(struct building *building)
{
    const truce_transfer_entry *entry = building->entry;

    if (!building->shown[0])
        truce__transfer_show(entry->collection, entry->id, building->shown, sizeof building->shown);
    return building->shown;
}

/* ---- updates --------------------------------------------------------------------------------- */

static bool build_is_operator(const char *name)
{
    static const char *const names[] = {"$inc",   "$mul",    "$min",      "$max",        "$set",
                                        "$unset", "$push",   "$pull",     "$pullAll",    "$pop",
                                        "$bit",   "$rename", "$addToSet", "$currentDate"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strcmp(name, names[i]))
            return true;
    }
    return false;
}

static bool build_is_ours(const truce_transfers *transfers, const char *field, size_t length)
{
    const char *names[] = {
        "_id", "_rev", "_intent", "_keys", transfers->layout.marks, transfers->layout.fence};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strlen(names[i]) == length && !memcmp(names[i], field, length))
            return true;
    }
    return false;
}

static bool is_users(const char *field, size_t length, void *arg)
{
    return !build_is_ours(arg, field, length);
}

/* Checks that an effect or undo has operators only, and changes no field that transfers or commits
 * maintain. */
static truce_status check_update(struct building *building, const bson_t *update, const char *what,
                                 bson_error_t *error)
{
    struct update *compiled = NULL;
    struct fields fields;
    bson_error_t why = {0};
    truce_status status = truce__check_required(update, what, error);

    if (status)
        return status;
    fields = truce__fields(truce__value_document(update));
    while (truce__fields_next(&fields)) {
        if (!build_is_operator(fields.key) || fields.value.type != BSON_TYPE_DOCUMENT)
            return truce__fail(TRUCE_INVALID, error,
                               "the %s of %s: \"%.60s\" is not an update operator with its fields",
                               what, build_shown(building), fields.key);
    }
    status = truce__update_new(update, NULL, &compiled, &why);
    truce__update_free(compiled);
    if (status || bson_empty(update))
        return truce__fail(TRUCE_INVALID, error, "the %s of %s: %s", what, build_shown(building),
                           status ? why.message : "it has no operator");
    if (!transfer_each_field(update, is_users, (void *)building->transfers))
        return truce__fail(TRUCE_INVALID, error,
                           "the %s of %s changes a field that transfers or commits maintain", what,
                           build_shown(building));
    return TRUCE_OK;
}

/* ---- the undo -------------------------------------------------------------------------------- */

/* Appends the opposite of an effect that consists of $inc alone. Returns false if the effect has no
 * such opposite; `undo` is then incomplete. */
static bool transfer_make_undo(const bson_t *effect, bson_t *undo)
{
    bson_iter_t iter, amounts;
    bson_value_t opposite;
    bson_t made;
    bool good = true;

    if (bson_count_keys(effect) != 1 || !bson_iter_init_find(&iter, effect, "$inc") ||
        !bson_iter_recurse(&iter, &amounts))
        return false;
    BSON_APPEND_DOCUMENT_BEGIN(undo, "$inc", &made);
    while (good && bson_iter_next(&amounts)) {
        good = transfer_opposite(bson_iter_value(&amounts), &opposite);
        if (good)
            BSON_APPEND_VALUE(&made, bson_iter_key(&amounts), &opposite);
    }
    bson_append_document_end(undo, &made);
    return good;
}

/* Appends the undo of an entry: the given one, checked, or the opposite of its $inc. Returns
 * INVALID if neither exists. */
static truce_status append_undo(struct building *building, bson_t *one, bson_error_t *error)
{
    const truce_transfer_entry *entry = building->entry;
    bson_t made = BSON_INITIALIZER;
    truce_status status = TRUCE_OK;

    if (entry->undo)
        status = check_update(building, entry->undo, "undo", error);
    else if (!transfer_make_undo(entry->effect, &made))
        status =
            truce__fail(TRUCE_INVALID, error,
                        "the entry of %s needs an undo: truce derives one only if the effect is "
                        "$inc alone, of numbers that have an opposite",
                        build_shown(building));
    if (!status)
        truce__names_append(one, "undo", entry->undo ? entry->undo : &made);
    bson_destroy(&made);
    return status;
}

/* ---- entries --------------------------------------------------------------------------------- */

static truce_status build_check_guard(struct building *building, bson_error_t *error)
{
    struct match *match = NULL;
    bson_error_t why = {0};
    truce_status status = truce__check_optional(building->entry->guard, "guard", error);

    if (status || !building->entry->guard)
        return status;
    status = truce__match_new(building->entry->guard, &match, &why);
    truce__match_free(match);
    return status ? truce__fail(TRUCE_INVALID, error, "the guard of %s: %s", build_shown(building),
                                why.message)
                  : TRUCE_OK;
}

/* Checks the collection and the id of an entry. Collections of truce, and that of the transfers,
 * cannot take part. */
static truce_status build_check_field(struct building *building, bson_error_t *error)
{
    const truce_transfer_entry *entry = building->entry;
    const struct reserved *reserved;
    truce_status status = TRUCE_OK;

    if (!entry->collection)
        status = truce__fail(TRUCE_INVALID, error, "an entry of the transfer has no collection");
    if (!status)
        status = truce__collection_name_check(entry->collection, error);
    if (!status)
        status = truce__check_value(entry->id, "id of an entry", error);
    if (status)
        return status;
    building->shown[0] = '\0';
    reserved = truce__reserved(entry->collection);
    if (reserved || !strcmp(entry->collection, building->transfers->collection))
        return truce__fail(
            TRUCE_INVALID, error,
            "%s: this collection cannot take part in a transfer, because truce stores %s in it",
            build_shown(building), reserved ? "its own documents" : "the transfers");
    return TRUCE_OK;
}

/* Refuses a document that an earlier entry has. A mark belongs to one entry only, so a document may
 * occur once. */
static truce_status check_twice(struct building *building, const bson_t *one, bson_error_t *error)
{
    struct fields fields = truce__fields(truce__value_document(building->entries));
    struct value id = truce__value_field(truce__value_document(one), "id", 2);

    while (truce__fields_next(&fields)) {
        struct value ns = truce__value_field(fields.value, "ns", 2);
        uint32_t length;

        if (!strcmp(truce__value_text(ns, &length), building->entry->collection) &&
            truce__value_equal(truce__value_field(fields.value, "id", 2), id))
            return truce__fail(TRUCE_INVALID, error, "%s occurs twice in the transfer",
                               build_shown(building));
    }
    return TRUCE_OK;
}

/* Checks one entry and appends its parts. */
static truce_status append_parts(struct building *building, bson_t *one, bson_error_t *error)
{
    const truce_transfer_entry *entry = building->entry;
    truce_status status = build_check_field(building, error);

    if (status)
        return status;
    BSON_APPEND_UTF8(one, "ns", entry->collection);
    BSON_APPEND_VALUE(one, "id", entry->id);
    BSON_APPEND_UTF8(one, "when", entry->after ? "after" : "before");
    status = check_twice(building, one, error);
    if (!status && entry->after && (entry->guard || entry->undo))
        status = truce__fail(TRUCE_INVALID, error,
                             "the entry of %s is made after the decision, so its %s is not allowed",
                             build_shown(building), entry->guard ? "guard" : "undo");
    if (!status)
        status = build_check_guard(building, error);
    if (!status)
        status = check_update(building, entry->effect, "effect", error);
    if (!status && entry->guard)
        truce__names_append(one, "guard", entry->guard);
    if (!status)
        truce__names_append(one, "effect", entry->effect);
    return status || entry->after ? status : append_undo(building, one, error);
}

static truce_status build_append_entry(struct building *building, uint32_t index,
                                       bson_error_t *error)
{
    bson_t one = BSON_INITIALIZER;
    char buffer[16];
    const char *key;
    size_t length = bson_uint32_to_string(index, &key, buffer, sizeof buffer);
    truce_status status = append_parts(building, &one, error);

    if (!status)
        bson_append_document(building->entries, key, (int)length, &one);
    bson_destroy(&one);
    return status;
}

/* Checks the entries and appends them to the document as the array `entries`. */
static truce_status build_append_entries(const truce_transfers *transfers,
                                         const truce_transfer_entry *entries, uint32_t count,
                                         bson_t *document, bson_error_t *error)
{
    bson_t array;
    struct building building = {.transfers = transfers, .entries = &array};
    truce_status status = TRUCE_OK;

    if (!count || count > TRANSFER_ENTRIES_MAX)
        return truce__fail(count ? TRUCE_LIMIT : TRUCE_INVALID, error,
                           "a transfer must have 1 to %d entries, not %u", TRANSFER_ENTRIES_MAX,
                           count);
    BSON_APPEND_ARRAY_BEGIN(document, "entries", &array);
    for (uint32_t i = 0; i < count && !status; i++) {
        building.entry = &entries[i];
        status = build_append_entry(&building, i, error);
    }
    bson_append_array_end(document, &array);
    return status;
}

/* ---- from one account to another ------------------------------------------------------------- */

/* Returns whether the value is a finite number above 0. */
static bool is_amount(const bson_value_t *amount)
{
    bson_t *pair = BCON_NEW("0", BCON_INT32(0), "most", BCON_DOUBLE(DBL_MAX));
    struct value document, value;
    bool good;

    BSON_APPEND_VALUE(pair, "v", amount);
    document = truce__value_document(pair);
    value = truce__value_field(document, "v", 1);
    good = truce__value_is_number(value) &&
           truce__value_compare(value, truce__value_field(document, "0", 1)) > 0 &&
           truce__value_compare(value, truce__value_field(document, "most", 4)) <= 0;
    bson_destroy(pair);
    return good;
}

/* Checks a request with source, destination, and value. All of them must be given, and the book
 * must know the collection of the two accounts. The value must be above 0. */
static truce_status check_move(const truce_transfers *transfers, const truce_transfer *request,
                               bson_error_t *error)
{
    if (!request->source || !request->destination || !request->value)
        return truce__fail(TRUCE_INVALID, error,
                           "a transfer needs entries, or a source, a destination, and a value");
    if (!transfers->layout.accounts[0])
        return truce__fail(TRUCE_INVALID, error,
                           "transfer book \"%s\" has no collection of accounts yet: 'accounts' is "
                           "missing",
                           transfers->collection);
    if (truce__check_value(request->source, "source", error) ||
        truce__check_value(request->destination, "destination", error) ||
        truce__check_value(request->value, "value", error))
        return TRUCE_INVALID;
    return is_amount(request->value)
               ? TRUCE_OK
               : truce__fail(TRUCE_INVALID, error,
                             "the value of a transfer must be a number above 0");
}

/* Makes {outer: {inner: value}}. */
static bson_t *transfer_make_nested(const char *outer, const char *inner, const bson_value_t *value)
{
    bson_t *made = bson_new(), child;

    BSON_APPEND_DOCUMENT_BEGIN(made, outer, &child);
    BSON_APPEND_VALUE(&child, inner, value);
    bson_append_document_end(made, &child);
    return made;
}

/* Appends the two entries of a move: the debit of the source before the decision, and the credit
 * after it. */
static truce_status append_move(const truce_transfers *transfers, const truce_transfer *request,
                                bson_t *document, bson_error_t *error)
{
    const struct transfer_layout *layout = &transfers->layout;
    truce_status status = check_move(transfers, request, error);
    bson_t *guard, *debit, *credit;
    bson_value_t opposite;

    if (status)
        return status;
    (void)transfer_opposite(request->value, &opposite);
    BSON_APPEND_VALUE(document, "source", request->source);
    BSON_APPEND_VALUE(document, "destination", request->destination);
    BSON_APPEND_VALUE(document, "value", request->value);
    guard = transfer_make_nested(layout->field, "$gte", request->value);
    debit = transfer_make_nested("$inc", layout->field, &opposite);
    credit = transfer_make_nested("$inc", layout->field, request->value);
    status =
        build_append_entries(transfers,
                             (truce_transfer_entry[]){{.collection = layout->accounts,
                                                       .id = request->source,
                                                       .guard = request->overdraft ? NULL : guard,
                                                       .effect = debit},
                                                      {.collection = layout->accounts,
                                                       .id = request->destination,
                                                       .after = true,
                                                       .effect = credit}},
                             2, document, error);
    bson_destroy(guard);
    bson_destroy(debit);
    bson_destroy(credit);
    return status;
}

/* ---- the document ---------------------------------------------------------------------------- */

truce_status truce__transfer_build(const truce_transfers *transfers, const truce_transfer *request,
                                   bson_t *document, bson_error_t *error)
{
    truce_status status = truce__check_optional(request->meta, "meta", error);
    bool move = request->source || request->destination || request->value;

    bson_init(document);
    if (status)
        return status;
    BSON_APPEND_VALUE(document, "_id", request->id);
    if (request->meta && request->meta->len > TRANSFER_META_BYTES_MAX)
        return truce__fail(TRUCE_LIMIT, error,
                           "the meta of the transfer has %u bytes, more than the maximum of %d",
                           request->meta->len, TRANSFER_META_BYTES_MAX);
    if (request->meta)
        BSON_APPEND_DOCUMENT(document, "meta", request->meta);
    if (move && request->count)
        return truce__fail(
            TRUCE_INVALID, error,
            "a transfer has either entries, or a source, a destination, and a value; not "
            "both");
    status =
        move ? append_move(transfers, request, document, error)
             : build_append_entries(transfers, request->entries, request->count, document, error);
    if (!status && document->len > TRANSFER_BYTES_MAX)
        status = truce__fail(TRUCE_LIMIT, error, "a transfer must have at most %d bytes, not %u",
                             TRANSFER_BYTES_MAX, document->len);
    return status;
}

bool truce__transfer_same(const bson_t *built, const bson_t *kept)
{
    static const char *const fields[] = {"source", "destination", "value", "meta", "entries"};

    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        struct value a = truce__value_field(truce__value_document(built), fields[i],
                                            strlen(fields[i])),
                     b = truce__value_field(truce__value_document(kept), fields[i],
                                            strlen(fields[i]));

        if (!truce__value_identical(a, b))
            return false;
    }
    return true;
}

/* ---- the documents that take part ------------------------------------------------------------ */

/* Reads the documents that take part: one find for each collection, with the fields that matter. */

void truce__transfer_documents_release(struct transfer_document *documents, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        bson_destroy(&documents[i].document);
}

bson_value_t truce__transfer_fence(const truce_transfers *transfers, const bson_t *document)
{
    bson_value_t value = {.value_type = BSON_TYPE_EOD};
    bson_iter_t iter;

    if (bson_iter_init_find(&iter, document, transfers->layout.fence))
        value = *bson_iter_value(&iter);
    return value;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool plan_add_field(const char *field, size_t length, void *arg)
{
    bson_t *projection = arg;
    bson_iter_t iter;

    if (!bson_iter_init_find_w_len(&iter, projection, field, (int)length))
        bson_append_int32(projection, field, (int)length, 1);
    return true;
}

/* Appends {_id: {$in: [...]}} and the fields, for the entries in the collection of entry
 * `first`. */
static void plan_make_filter(const truce_transfers *transfers, const struct transfer_plan *plan,
                             uint32_t first, bson_t *filter, bson_t *projection)
{
    bson_t condition, ids;
    uint32_t index = 0;

    BSON_APPEND_INT32(projection, transfers->layout.marks, 1);
    BSON_APPEND_INT32(projection, transfers->layout.fence, 1);
    BSON_APPEND_DOCUMENT_BEGIN(filter, "_id", &condition);
    BSON_APPEND_ARRAY_BEGIN(&condition, "$in", &ids);
    for (uint32_t i = first; i < plan->count; i++) {
        const struct transfer_entry *entry = &plan->entries[i];
        char buffer[16];
        const char *key;
        size_t length;

        if (strcmp(entry->collection, plan->entries[first].collection))
            continue;
        length = bson_uint32_to_string(index++, &key, buffer, sizeof buffer);
        bson_append_value(&ids, key, (int)length, &entry->id);
        (void)transfer_each_field(&entry->effect, plan_add_field, projection);
        if (!entry->after)
            (void)transfer_each_field(&entry->undo, plan_add_field, projection);
    }
    bson_append_array_end(&condition, &ids);
    bson_append_document_end(filter, &condition);
}

static bool plan_same_id(const bson_value_t *id, const bson_t *document)
{
    bson_t *holder = BCON_NEW("x", BCON_INT32(0));
    bool same;

    BSON_APPEND_VALUE(holder, "_id", id);
    same = truce__value_equal(truce__value_field(truce__value_document(holder), "_id", 3),
                              truce__value_field(truce__value_document(document), "_id", 3));
    bson_destroy(holder);
    return same;
}

static void plan_document_at(const struct transfer_plan *plan, uint32_t first,
                             const bson_t *document, struct transfer_document *documents)
{
    for (uint32_t i = first; i < plan->count; i++) {
        if (strcmp(plan->entries[i].collection, plan->entries[first].collection) ||
            !plan_same_id(&plan->entries[i].id, document))
            continue;
        bson_destroy(&documents[i].document);
        bson_copy_to(document, &documents[i].document);
        documents[i].found = true;
    }
}

/* Reads the documents of all entries in the collection of entry `first`. Documents that do not
 * exist stay marked as not found. */
static truce_status plan_read_collection(truce_transfers *transfers,
                                         const struct transfer_plan *plan, uint32_t first,
                                         struct transfer_document *documents, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, projection = BSON_INITIALIZER;
    truce_find_options options = {.projection = &projection};
    truce_cursor *cursor = NULL;
    const bson_t *document;
    truce_status status;

    plan_make_filter(transfers, plan, first, &filter, &projection);
    status = truce_find(transfers->store, plan->entries[first].collection, &filter, &options,
                        &cursor, error);
    while (!status) {
        status = truce_cursor_next(cursor, &document, error);
        if (!status && !document)
            break;
        if (!status)
            plan_document_at(plan, first, document, documents);
    }
    truce_cursor_close(cursor);
    bson_destroy(&projection);
    bson_destroy(&filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static bool plan_is_first(const struct transfer_plan *plan, uint32_t at)
{
    for (uint32_t i = 0; i < at; i++) {
        if (!strcmp(plan->entries[i].collection, plan->entries[at].collection))
            return false;
    }
    return true;
}

truce_status truce__transfer_read_documents(truce_transfers *transfers,
                                            const struct transfer_plan *plan,
                                            struct transfer_document *documents,
                                            bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; i < plan->count; i++) {
        bson_init(&documents[i].document);
        documents[i].found = false;
    }
    for (uint32_t i = 0; i < plan->count && !status; i++) {
        if (plan_is_first(plan, i))
            status = plan_read_collection(transfers, plan, i, documents, error);
    }
    return status;
}

/* ---- can it come to its end? ----------------------------------------------------------------- */

/* Applies an update in memory. `after` is always initialized. */
static truce_status plan_apply_update(const bson_t *update, const bson_t *before, bson_t *after,
                                      bson_error_t *error)
{
    struct arena arena = ARENA_INIT;
    struct query_context context = {.now_ms = truce__clock_wall_ms(), .arena = &arena};
    struct update_result result;
    struct update *compiled = NULL;
    truce_status status = truce__update_new(update, NULL, &compiled, error);

    if (status)
        bson_init(after);
    else
        status = truce__update_apply(compiled, before, NULL, &context, after, &result, error);
    truce__update_free(compiled);
    truce__arena_release(&arena);
    return status;
}

/* Returns whether the undo is the opposite of the effect's $inc, so that nothing must be proved. */
static bool undo_is_plain(const struct transfer_entry *entry)
{
    bson_t made = BSON_INITIALIZER;
    bool plain =
        transfer_make_undo(&entry->effect, &made) &&
        truce__value_equal(truce__value_document(&made), truce__value_document(&entry->undo));

    bson_destroy(&made);
    return plain;
}

bool truce__transfer_needs_proof(const struct transfer_plan *plan)
{
    for (uint32_t i = 0; i < plan->count; i++) {
        if (!plan->entries[i].after && !undo_is_plain(&plan->entries[i]))
            return true;
    }
    return false;
}

/* Checks that the undo makes `after` equal to `before` again. Returns INVALID if it does not. */
static truce_status prove_undo(const struct transfer_entry *entry, const bson_t *before,
                               const bson_t *after, const char *text, bson_error_t *error)
{
    bson_error_t why = {0};
    bson_t back;
    truce_status status = plan_apply_update(&entry->undo, after, &back, &why);

    if (status)
        status = truce__fail(TRUCE_INVALID, error, "the undo of %s: %s", text, why.message);
    else if (!truce__value_equal(truce__value_document(&back), truce__value_document(before)))
        status = truce__fail(TRUCE_INVALID, error,
                             "the undo of %s does not revert its effect: the document as it "
                             "is stored would change",
                             text);
    bson_destroy(&back);
    return status;
}

/* Applies the effect of an entry in memory. Returns REFUSED if that fails, and INVALID if the undo
 * does not revert it. */
static truce_status prove_one(const struct transfer_entry *entry,
                              const struct transfer_document *document, bson_error_t *error)
{
    bson_error_t why = {0};
    bson_t after;
    char text[200];
    truce_status status = plan_apply_update(&entry->effect, &document->document, &after, &why);

    truce__transfer_show(entry->collection, &entry->id, text, sizeof text);
    if (status)
        status = truce__fail(TRUCE_REFUSED, error, "the effect on %s: %s", text, why.message);
    else if (!entry->after && !undo_is_plain(entry))
        status = prove_undo(entry, &document->document, &after, text, error);
    bson_destroy(&after);
    return status;
}

truce_status truce__transfer_prove(const struct transfer_plan *plan,
                                   const struct transfer_document *documents, bool credits,
                                   bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    char text[200];

    for (uint32_t i = 0; i < plan->count && !status; i++) {
        const struct transfer_entry *entry = &plan->entries[i];

        if (!documents[i].found)
            status =
                truce__fail(TRUCE_REFUSED, error, "%s does not exist",
                            truce__transfer_show(entry->collection, &entry->id, text, sizeof text));
        else if (!entry->after || credits)
            status = prove_one(entry, &documents[i], error);
    }
    return status;
}

/* ---- the entries ----------------------------------------------------------------------------- */

const char *truce__transfer_show(const char *collection, const bson_value_t *id, char *text,
                                 size_t size)
{
    bson_t holder = BSON_INITIALIZER;
    char shown[120];

    BSON_APPEND_VALUE(&holder, "_id", id);
    truce__value_show(truce__value_field(truce__value_document(&holder), "_id", 3), shown,
                      sizeof shown);
    bson_destroy(&holder);
    snprintf(text, size, "%.60s {_id: %s}", collection, shown);
    return text;
}

/* ---- paths ----------------------------------------------------------------------------------- */

static bool first_part(const char *path, size_t length, transfer_field_function *function,
                       void *arg)
{
    const char *dot = memchr(path, '.', length);

    return function(path, dot ? (size_t)(dot - path) : length, arg);
}

/* Calls the function for the first part of each path in the update, also of new names, until it
 * returns false. */
static bool transfer_each_field(const bson_t *update, transfer_field_function *function, void *arg)
{
    struct fields operators = truce__fields(truce__value_document(update));
    bool on = true;

    while (on && truce__fields_next(&operators)) {
        bool renames = !strcmp(operators.key, "$rename");
        struct fields paths;

        if (operators.value.type != BSON_TYPE_DOCUMENT)
            continue;
        paths = truce__fields(operators.value);
        while (on && truce__fields_next(&paths)) {
            uint32_t length;

            on = first_part(paths.key, paths.key_length, function, arg);
            if (on && renames && paths.value.type == BSON_TYPE_UTF8) {
                const char *to = truce__value_text(paths.value, &length);

                on = first_part(to, length, function, arg);
            }
        }
    }
    return on;
}

/* ---- entries --------------------------------------------------------------------------------- */

/* Appends {ns, id, when: "before", effect, undo}: the recipe's change of one of its two
 * documents. */
static void append_recipe(const struct transfer_layout *layout, const char *key,
                          const bson_value_t *id, const bson_value_t *gives,
                          const bson_value_t *takes, bson_t *entries)
{
    bson_t one, update, inner;

    BSON_APPEND_DOCUMENT_BEGIN(entries, key, &one);
    BSON_APPEND_UTF8(&one, "ns", layout->accounts);
    BSON_APPEND_VALUE(&one, "id", id);
    BSON_APPEND_UTF8(&one, "when", "before");
    BSON_APPEND_DOCUMENT_BEGIN(&one, "effect", &update);
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$inc", &inner);
    BSON_APPEND_VALUE(&inner, layout->field, gives);
    bson_append_document_end(&update, &inner);
    bson_append_document_end(&one, &update);
    BSON_APPEND_DOCUMENT_BEGIN(&one, "undo", &update);
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$inc", &inner);
    BSON_APPEND_VALUE(&inner, layout->field, takes);
    bson_append_document_end(&update, &inner);
    bson_append_document_end(&one, &update);
    bson_append_document_end(entries, &one);
}

/* Computes -value. Returns false if the value is not a number or has no opposite. */
static bool transfer_opposite(const bson_value_t *value, bson_value_t *opposite)
{
    *opposite = *value;
    switch (value->value_type) {
    case BSON_TYPE_INT32:
        opposite->value.v_int32 = (int32_t) - (int64_t)value->value.v_int32;
        return value->value.v_int32 != INT32_MIN;
    case BSON_TYPE_INT64:
        if (value->value.v_int64 == INT64_MIN)
            return false;
        opposite->value.v_int64 = -value->value.v_int64;
        return true;
    case BSON_TYPE_DOUBLE:
        opposite->value.v_double = -value->value.v_double;
        return true;
    case BSON_TYPE_DECIMAL128:
        opposite->value.v_decimal128.high ^= UINT64_C(1) << 63;
        return true;
    default:
        return false;
    }
}

static bool plan_field_of(const bson_t *document, const char *name, bson_value_t *value)
{
    bson_iter_t iter;

    if (!bson_iter_init_find(&iter, document, name))
        return false;
    *value = *bson_iter_value(&iter);
    return true;
}

/* Derives the two entries of a transfer of MongoDB's recipe. Returns false if its source,
 * destination, or value is missing or invalid, or if the collection of the accounts is unknown. */
static bool make_recipe(const truce_transfers *transfers, struct transfer_plan *plan)
{
    bson_value_t source, destination, value, opposite;
    bson_t array;

    if (!transfers->layout.accounts[0] || !plan_field_of(&plan->document, "source", &source) ||
        !plan_field_of(&plan->document, "destination", &destination) ||
        !plan_field_of(&plan->document, "value", &value) || !transfer_opposite(&value, &opposite))
        return false;
    BSON_APPEND_ARRAY_BEGIN(&plan->made, "entries", &array);
    append_recipe(&transfers->layout, "0", &source, &opposite, &value, &array);
    append_recipe(&transfers->layout, "1", &destination, &value, &opposite, &array);
    bson_append_array_end(&plan->made, &array);
    return true;
}

/* Reads one stored entry, which borrows from the value. Returns false if it is invalid. */
static bool plan_read_entry(struct value value, struct transfer_entry *entry)
{
    bson_t one;
    bson_value_t id;
    const char *when;

    if (value.type != BSON_TYPE_DOCUMENT)
        return false;
    truce__value_bson(value, &one);
    when = truce__field_text(&one, "when");
    entry->collection = truce__field_text(&one, "ns");
    entry->after = !strcmp(when, "after");
    entry->has_guard = truce__value_subdocument(&one, "guard", &entry->guard);
    if (!entry->collection[0] || !plan_field_of(&one, "id", &id) ||
        (!entry->after && strcmp(when, "before")) ||
        !truce__value_subdocument(&one, "effect", &entry->effect))
        return false;
    entry->id = id;
    return entry->after || truce__value_subdocument(&one, "undo", &entry->undo);
}

/* Reads the entries of a stored transfer. Returns false if they are invalid. */
static bool plan_read_entries(struct transfer_plan *plan)
{
    const bson_t *holder = bson_empty(&plan->made) ? &plan->document : &plan->made;
    struct value array;
    struct fields fields;
    bson_t borrowed;

    bson_destroy(&plan->restored);
    truce__names_restore(holder, &plan->restored);
    array = truce__value_field(truce__value_document(&plan->restored), "entries", 7);

    if (array.type != BSON_TYPE_ARRAY)
        return false;
    truce__value_bson(array, &borrowed);
    plan->count = bson_count_keys(&borrowed);
    if (!plan->count || plan->count > TRANSFER_ENTRIES_MAX)
        return false;
    plan->entries = bson_malloc0(plan->count * sizeof *plan->entries);
    fields = truce__fields(array);
    for (uint32_t i = 0; truce__fields_next(&fields); i++) {
        if (!plan_read_entry(fields.value, &plan->entries[i]))
            return false;
        plan->decides = plan->decides || plan->entries[i].after;
    }
    return true;
}

truce_status truce__transfer_plan(const truce_transfers *transfers, bson_t *document,
                                  struct transfer_plan *plan, bson_error_t *error)
{
    bson_iter_t iter;
    bson_value_t id;
    char text[200];

    *plan = (struct transfer_plan){0};
    bson_init(&plan->document);
    bson_init(&plan->made);
    bson_init(&plan->restored);
    bson_destroy(&plan->document);
    bson_steal(&plan->document, document);
    if ((bson_iter_init_find(&iter, &plan->document, "entries") || make_recipe(transfers, plan)) &&
        plan_read_entries(plan))
        return TRUCE_OK;
    id = truce__document_id(&plan->document);
    return truce__fail(
        TRUCE_INVALID, error,
        "%s is not a valid transfer: it has neither entries as truce writes them, nor source, "
        "destination, and value%s",
        truce__transfer_show(transfers->collection, &id, text, sizeof text),
        transfers->layout.accounts[0] ? "" : " (their collection is unknown)");
}

void truce__transfer_plan_release(struct transfer_plan *plan)
{
    bson_free(plan->entries);
    bson_destroy(&plan->document);
    bson_destroy(&plan->made);
    bson_destroy(&plan->restored);
}

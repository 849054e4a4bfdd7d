/* From a request to a transfer's document: everything in it is checked that can be without a look at the documents. */
#include <float.h>
#include <string.h>

#include "bson/field_names.h"
#include "patterns/transfer/transfer.h"
#include "query/incoming.h"
#include "query/update/update.h"
#include "store/reserved.h"

struct building {
    const truce_transfers *transfers;
    const truce_transfer_entry *entry;
    bson_t *entries; /* the array */
    char shown[200]; /* the document of the entry, for messages; empty: not made yet */
};

static const char *build_shown(struct building *building)
{
    const truce_transfer_entry *entry = building->entry;

    if (!building->shown[0])
        truce__transfer_show(entry->collection, entry->id, building->shown, sizeof building->shown);
    return building->shown;
}

/* ---- updates ---------------------------------------------------------------------------------- */

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
                               "%s of %s: \"%.60s\" is no update operator with its fields", what,
                               build_shown(building), fields.key);
    }
    status = truce__update_new(update, NULL, &compiled, &why);
    truce__update_free(compiled);
    if (status || bson_empty(update))
        return truce__fail(TRUCE_INVALID, error, "%s of %s: %s", what, build_shown(building),
                           status ? why.message : "it has no operator");
    if (!truce__transfer_each_field(update, is_users, (void *)building->transfers))
        return truce__fail(TRUCE_INVALID, error,
                           "%s of %s changes a field that is kept by transfers or commits", what,
                           build_shown(building));
    return TRUCE_OK;
}

/* ---- the undo --------------------------------------------------------------------------------- */

bool truce__transfer_make_undo(const bson_t *effect, bson_t *undo)
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
        good = truce__transfer_opposite(bson_iter_value(&amounts), &opposite);
        if (good)
            BSON_APPEND_VALUE(&made, bson_iter_key(&amounts), &opposite);
    }
    bson_append_document_end(undo, &made);
    return good;
}

static truce_status append_undo(struct building *building, bson_t *one, bson_error_t *error)
{
    const truce_transfer_entry *entry = building->entry;
    bson_t made = BSON_INITIALIZER;
    truce_status status = TRUCE_OK;

    if (entry->undo)
        status = check_update(building, entry->undo, "the undo", error);
    else if (!truce__transfer_make_undo(entry->effect, &made))
        status = truce__fail(TRUCE_INVALID, error,
                             "the entry of %s needs an undo: one is made only of an effect that is "
                             "$inc alone, of numbers that have an opposite",
                             build_shown(building));
    if (!status)
        truce__names_append(one, "undo", entry->undo ? entry->undo : &made);
    bson_destroy(&made);
    return status;
}

/* ---- entries ---------------------------------------------------------------------------------- */

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

static truce_status build_check_place(struct building *building, bson_error_t *error)
{
    const truce_transfer_entry *entry = building->entry;
    const struct reserved *reserved;
    truce_status status = TRUCE_OK;

    if (!entry->collection)
        status = truce__fail(TRUCE_INVALID, error, "an entry of a transfer has a collection");
    if (!status)
        status = truce__collection_name_check(entry->collection, error);
    if (!status)
        status = truce__check_value(entry->id, "id of an entry", error);
    if (status)
        return status;
    building->shown[0] = '\0';
    reserved = truce__reserved(entry->collection);
    if (reserved || !strcmp(entry->collection, building->transfers->collection))
        return truce__fail(TRUCE_INVALID, error, "%s: that collection takes part in no transfer",
                           build_shown(building));
    return TRUCE_OK;
}

/* A mark says "made" of one entry only. */
static truce_status check_twice(struct building *building, const bson_t *one, bson_error_t *error)
{
    struct fields fields = truce__fields(truce__value_document(building->entries));
    struct value id = truce__value_field(truce__value_document(one), "id", 2);

    while (truce__fields_next(&fields)) {
        struct value ns = truce__value_field(fields.value, "ns", 2);
        uint32_t length;

        if (!strcmp(truce__value_text(ns, &length), building->entry->collection) &&
            truce__value_equal(truce__value_field(fields.value, "id", 2), id))
            return truce__fail(TRUCE_INVALID, error, "%s stands twice in one transfer",
                               build_shown(building));
    }
    return TRUCE_OK;
}

static truce_status append_parts(struct building *building, bson_t *one, bson_error_t *error)
{
    const truce_transfer_entry *entry = building->entry;
    truce_status status = build_check_place(building, error);

    if (status)
        return status;
    BSON_APPEND_UTF8(one, "ns", entry->collection);
    BSON_APPEND_VALUE(one, "id", entry->id);
    BSON_APPEND_UTF8(one, "when", entry->after ? "after" : "before");
    status = check_twice(building, one, error);
    if (!status && entry->after && (entry->guard || entry->undo))
        status = truce__fail(TRUCE_INVALID, error,
                             "the entry of %s is made after the decision: it has no %s",
                             build_shown(building), entry->guard ? "guard" : "undo");
    if (!status)
        status = build_check_guard(building, error);
    if (!status)
        status = check_update(building, entry->effect, "the effect", error);
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

static truce_status build_append_entries(const truce_transfers *transfers,
                                         const truce_transfer_entry *entries, uint32_t count,
                                         bson_t *document, bson_error_t *error)
{
    bson_t array;
    struct building building = {.transfers = transfers, .entries = &array};
    truce_status status = TRUCE_OK;

    if (!count || count > TRANSFER_ENTRIES_MAX)
        return truce__fail(count ? TRUCE_LIMIT : TRUCE_INVALID, error,
                           "a transfer has 1 to %d entries, and this one has %u",
                           TRANSFER_ENTRIES_MAX, count);
    BSON_APPEND_ARRAY_BEGIN(document, "entries", &array);
    for (uint32_t i = 0; i < count && !status; i++) {
        building.entry = &entries[i];
        status = build_append_entry(&building, i, error);
    }
    bson_append_array_end(document, &array);
    return status;
}

/* ---- from one account to another -------------------------------------------------------------- */

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

static truce_status check_move(const truce_transfers *transfers, const truce_transfer *request,
                               bson_error_t *error)
{
    if (!request->source || !request->destination || !request->value)
        return truce__fail(TRUCE_INVALID, error,
                           "a transfer has entries, or a source, a destination and a value");
    if (!transfers->layout.accounts[0])
        return truce__fail(TRUCE_INVALID, error,
                           "transfer book \"%s\" does not know the collection of source and "
                           "destination: the option `accounts` was never given",
                           transfers->collection);
    if (truce__check_value(request->source, "source", error) ||
        truce__check_value(request->destination, "destination", error) ||
        truce__check_value(request->value, "value", error))
        return TRUCE_INVALID;
    return is_amount(request->value)
               ? TRUCE_OK
               : truce__fail(TRUCE_INVALID, error, "what a transfer moves is a number above 0");
}

/* {outer: {inner: value}} */
static bson_t *nest(const char *outer, const char *inner, const bson_value_t *value)
{
    bson_t *made = bson_new(), child;

    BSON_APPEND_DOCUMENT_BEGIN(made, outer, &child);
    BSON_APPEND_VALUE(&child, inner, value);
    bson_append_document_end(made, &child);
    return made;
}

static truce_status append_move(const truce_transfers *transfers, const truce_transfer *request,
                                bson_t *document, bson_error_t *error)
{
    const struct transfer_layout *layout = &transfers->layout;
    truce_status status = check_move(transfers, request, error);
    bson_t *guard, *debit, *credit;
    bson_value_t opposite;

    if (status)
        return status;
    (void)truce__transfer_opposite(request->value, &opposite);
    BSON_APPEND_VALUE(document, "source", request->source);
    BSON_APPEND_VALUE(document, "destination", request->destination);
    BSON_APPEND_VALUE(document, "value", request->value);
    guard = nest(layout->field, "$gte", request->value);
    debit = nest("$inc", layout->field, &opposite);
    credit = nest("$inc", layout->field, request->value);
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

/* ---- the document ----------------------------------------------------------------------------- */

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
        return truce__fail(TRUCE_LIMIT, error, "the meta of a transfer has up to %d bytes",
                           TRANSFER_META_BYTES_MAX);
    if (request->meta)
        BSON_APPEND_DOCUMENT(document, "meta", request->meta);
    if (move && request->count)
        return truce__fail(TRUCE_INVALID, error,
                           "a transfer has entries, or a source, a destination and a value; not "
                           "both");
    status =
        move ? append_move(transfers, request, document, error)
             : build_append_entries(transfers, request->entries, request->count, document, error);
    if (!status && document->len > TRANSFER_BYTES_MAX)
        status = truce__fail(TRUCE_LIMIT, error, "a transfer has up to %d bytes, this one has %u",
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

/*
 * A call as one write. For badges = [{type, date}] and a query of {type: "X"}:
 *
 *     update    $update       {badges: $elemMatch query} -> {$update: {badges: {$query, $set}}}
 *               filters       {badges: $elemMatch query} -> {$set: {"badges.$[i].date": ...}}
 *               positional    {badges: $elemMatch query} -> {$set: {"badges.$.date": ...}}
 *     replace   filters, positional: {$set: {"badges.$[i]": item}}
 *     add       {badges: no $elemMatch identity} -> {$push: {badges: item}}
 *     remove    {badges: $elemMatch query} -> {$pull: {badges: query}}
 *     in a map  {"badges.X": exists, or not} -> {$set or $unset: {"badges.X...": ...}}
 *
 * The positional operator refers to the first item that matched. So it is used only if the query is
 * one identity and the filter has no other condition on arrays. Calls that none of these forms can
 * express use the compared write:
 *
 *     {_id, badges: as read} -> {$set: {badges: as computed}}
 *
 * Every write is guarded so that it takes effect as a whole or not at all:
 *
 * IT1. No array index is computed outside of the write, because the item at badges.3 may be at
 *     badges.2 when the write takes effect.
 * IT2. The field has the layout that the write is for: "badges.0" is a name in a map and an index
 *     in an array.
 * IT3. No commit holds the document, and it gets a new `_rev`.
 */
#include "patterns/item/item.h"

#include <stdio.h>

#include "base/assert.h"
#include "query/update/update.h"

/* ---- conditions ------------------------------------------------------------------------------ */

/* The conditions of a filter; all of them must hold. */
struct conditions {
    bson_t *filter, list;
    uint32_t count;
};

static void form_begin(struct conditions *conditions, bson_t *filter)
{
    bson_init(filter);
    conditions->filter = filter;
    conditions->count = 0;
    bson_append_array_begin(filter, "$and", 4, &conditions->list);
}

static void form_end(struct conditions *conditions)
{
    bson_append_array_end(conditions->filter, &conditions->list);
}

static void form_add_document(struct conditions *conditions, const bson_t *condition)
{
    char text[16];
    const char *key;

    bson_uint32_to_string(conditions->count++, &key, text, sizeof text);
    bson_append_document(&conditions->list, key, -1, condition);
}

/* Adds a condition to the filter, and takes over the condition. */
static void form_add(struct conditions *conditions, bson_t *condition)
{
    form_add_document(conditions, condition);
    bson_destroy(condition);
}

static bson_t *form_make_exists(const char *path, bool there)
{
    return BCON_NEW(path, "{", "$exists", BCON_BOOL(there), "}");
}

static bson_t *is_array(const char *path)
{
    return BCON_NEW(path, "{", "$type", BCON_UTF8("array"), "}");
}

static bson_t *is_no_array(const char *path)
{
    return BCON_NEW(path, "{", "$not", "{", "$type", BCON_UTF8("array"), "}", "}");
}

/* Makes {path: {operator: operand}}. */
static bson_t *form_make_condition(const char *path, const char *operator_, const bson_t *operand)
{
    bson_t *condition = bson_new(), inner;

    bson_append_document_begin(condition, path, -1, &inner);
    bson_append_document(&inner, operator_, -1, operand);
    bson_append_document_end(condition, &inner);
    return condition;
}

/* Requires that no commit holds the document (IT3). A `_rev` that another program set is not
 * overwritten. */
static void add_free(struct conditions *conditions)
{
    form_add(conditions, form_make_exists("_intent", false));
    form_add(conditions,
             BCON_NEW("$or", "[", "{", "_rev", "{", "$exists", BCON_BOOL(false), "}", "}", "{",
                      "_rev", "{", "$type", BCON_UTF8("objectId"), "}", "}", "]"));
}

/* Requires the layout of the path above the field (IT2): where an array is required, and where none
 * is allowed. */
static void add_way(struct conditions *conditions, const truce_item *item)
{
    size_t owner = strlen(item->owner);
    char *path = bson_strdup(item->owner);

    for (size_t i = 0; i < owner; i++) {
        if (path[i] != '.')
            continue;
        path[i] = '\0';
        form_add(conditions, is_no_array(path));
        path[i] = '.';
    }
    if (item->nested)
        form_add(conditions, is_array(path));
    bson_free(path);
}

static void form_begin_filter(struct conditions *conditions, const struct item_call *call,
                              bson_t *filter)
{
    form_begin(conditions, filter);
    form_add_document(conditions, call->filter);
    add_free(conditions);
    add_way(conditions, call->item);
}

static void begin_write(struct item_write *write)
{
    bson_init(&write->filter);
    bson_init(&write->update);
    bson_init(&write->array_filters);
    write->has_filters = false;
}

void truce__item_write_release(struct item_write *write)
{
    bson_destroy(&write->filter);
    bson_destroy(&write->update);
    bson_destroy(&write->array_filters);
}

/* ---- operators ------------------------------------------------------------------------------- */

void truce__item_operator(const struct item_call *call, const bson_t *operators, bson_t *update)
{
    bson_t outer, inner, nothing;

    bson_append_document_begin(update, "$update", 7, &outer);
    bson_append_document_begin(&outer, call->item->field, -1, &inner);
    bson_append_document(&inner, "$query", 6, &call->query);
    if (operators) {
        bson_concat(&inner, operators);
    } else {
        bson_append_document_begin(&inner, "$setOnInsert", 12, &nothing);
        bson_append_int32(&nothing, "n", 1, 1);
        bson_append_document_end(&inner, &nothing);
    }
    bson_append_document_end(&outer, &inner);
    bson_append_document_end(update, &outer);
}

/* Appends one operator's fields, each with a prefix. */
static bool prefix_fields(const char *prefix, struct value operands, bson_t *to)
{
    struct fields fields = truce__fields(operands);

    while (truce__fields_next(&fields)) {
        char *path = bson_strdup_printf("%s.%s", prefix, fields.key);

        truce__value_append(to, path, strlen(path), fields.value);
        bson_free(path);
        if (!fields.key_length || strchr(fields.key, '$'))
            return false;
    }
    return true;
}

/* Appends the operators with a prefix for each field. Returns false if an operator has no such
 * form. */
static bool prefix_operators(const char *prefix, const bson_t *operators, bson_t *update)
{
    struct fields fields = truce__fields(truce__value_document(operators));
    bool good = true;

    while (good && truce__fields_next(&fields)) {
        bson_t inner;

        if (!strcmp(fields.key, "$setOnInsert"))
            continue;
        if (!strcmp(fields.key, "$rename") || !strcmp(fields.key, "$update") ||
            fields.value.type != BSON_TYPE_DOCUMENT)
            return false;
        bson_append_document_begin(update, fields.key, (int)fields.key_length, &inner);
        good = prefix_fields(prefix, fields.value, &inner);
        bson_append_document_end(update, &inner);
    }
    return good;
}

static void set_value(const char *path, struct value value, bson_t *update)
{
    bson_t set;

    bson_append_document_begin(update, "$set", 4, &set);
    truce__value_append(&set, path, strlen(path), value);
    bson_append_document_end(update, &set);
}

/* Appends the change of the item at `path`: the operators of an update, or the item of a
 * replace. */
static bool change_at(const struct item_call *call, const char *path, bson_t *update)
{
    if (call->verb == ITEM_UPDATE)
        return prefix_operators(path, call->change, update);
    set_value(path, truce__value_document(call->change), update);
    return true;
}

/* ---- array filters --------------------------------------------------------------------------- */

static void rename_query(struct value query, bson_t *to);

static void rename_list(struct value list, bson_t *to)
{
    struct fields fields = truce__fields(list);

    while (truce__fields_next(&fields)) {
        bson_t inner;

        if (fields.value.type != BSON_TYPE_DOCUMENT)
            continue;
        bson_append_document_begin(to, fields.key, (int)fields.key_length, &inner);
        rename_query(fields.value, &inner);
        bson_append_document_end(to, &inner);
    }
}

/* Adds the identifier of the array filter to a query: {type: "X", $or: [...]} becomes {"i.type":
 * "X", $or: [...]}. */
static void rename_query(struct value query, bson_t *to)
{
    struct fields fields = truce__fields(query);

    while (truce__fields_next(&fields)) {
        char *path;
        bson_t inner;

        if (fields.key[0] == '$' && fields.value.type == BSON_TYPE_ARRAY) {
            bson_append_array_begin(to, fields.key, (int)fields.key_length, &inner);
            rename_list(fields.value, &inner);
            bson_append_array_end(to, &inner);
            continue;
        }
        path =
            fields.key[0] == '$' ? bson_strdup(fields.key) : bson_strdup_printf("i.%s", fields.key);
        truce__value_append(to, path, strlen(path), fields.value);
        bson_free(path);
    }
}

/* Conditions on fields begin with a name, or combine such conditions. */
static bool form_is_about_fields(const bson_t *query)
{
    struct fields fields = truce__fields(truce__value_document(query));

    return !truce__fields_next(&fields) || fields.key[0] != '$' || !strcmp(fields.key, "$and") ||
           !strcmp(fields.key, "$or") || !strcmp(fields.key, "$nor");
}

static void append_array_filter(const struct item_call *call, bson_t *array_filters)
{
    bson_t filter;

    bson_append_document_begin(array_filters, "0", 1, &filter);
    if (form_is_about_fields(&call->query)) {
        BCON_APPEND(&filter, "i", "{", "$type", BCON_UTF8("object"), "$not", "{", "$type",
                    BCON_UTF8("array"), "}", "}");
        rename_query(truce__value_document(&call->query), &filter);
    } else {
        bson_append_document(&filter, "i", 1, &call->query);
    }
    bson_append_document_end(array_filters, &filter);
}

bool truce__item_filters(const struct item_call *call, bson_t *update, bson_t *array_filters)
{
    char *path = bson_strdup_printf("%s.$[i]", call->item->field);
    bool good = change_at(call, path, update);

    append_array_filter(call, array_filters);
    bson_free(path);
    return good;
}

/* ---- checking -------------------------------------------------------------------------------- */

static bool form_touches(const char *path, const char *identity)
{
    size_t length = strlen(identity);

    return !strncmp(path, identity, length) && (!path[length] || path[length] == '.');
}

static truce_status refuse_identity(const truce_item *item, const char *operator_,
                                    bson_error_t *error)
{
    return truce__fail(TRUCE_INVALID, error,
                       "%s cannot change \"%s\", which identifies an item; remove the "
                       "item and add another",
                       operator_, item->identity);
}

/* Refuses operators that change the identity of an item, or that rename a field to or from it. */
static truce_status check_identity(const struct item_call *call, bson_error_t *error)
{
    struct fields fields = truce__fields(truce__value_document(call->change));

    while (truce__fields_next(&fields)) {
        struct fields inner;

        if (fields.value.type != BSON_TYPE_DOCUMENT)
            continue;
        inner = truce__fields(fields.value);
        while (truce__fields_next(&inner)) {
            bool renamed = !strcmp(fields.key, "$rename") && inner.value.type == BSON_TYPE_UTF8;
            uint32_t length;

            if (form_touches(inner.key, call->item->identity) ||
                (renamed &&
                 form_touches(truce__value_text(inner.value, &length), call->item->identity)))
                return refuse_identity(call->item, fields.key, error);
        }
    }
    return TRUCE_OK;
}

truce_status truce__item_check(const struct item_call *call, bson_error_t *error)
{
    const bson_t *operators = call->verb == ITEM_UPDATE ? call->change : NULL;
    struct update *compiled = NULL;
    bson_t update = BSON_INITIALIZER;
    truce_status status = operators ? check_identity(call, error) : TRUCE_OK;

    if (!status && operators && bson_empty(operators))
        status = truce__fail(TRUCE_INVALID, error,
                             "the update is empty: expected operators such as {$set: {...}}");
    truce__item_operator(call, operators, &update);
    if (!status)
        status = truce__update_new(&update, NULL, &compiled, error);
    truce__update_free(compiled);
    bson_destroy(&update);
    return status;
}

/* ---- direct writes --------------------------------------------------------------------------- */

/* Appends all operands of one operator. */
static void append_operands(struct value update, const char *operator_, bson_t *to)
{
    struct value operands = truce__value_field(update, operator_, strlen(operator_));
    bson_t old;

    if (operands.type != BSON_TYPE_DOCUMENT)
        return;
    truce__value_bson(operands, &old);
    bson_concat(to, &old);
}

void truce__item_raise(const truce_item *item, bson_t *update)
{
    bson_t inc;

    if (!item->version)
        return;
    bson_append_document_begin(update, "$inc", 4, &inc);
    bson_append_int64(&inc, item->version, -1, 1);
    bson_append_document_end(update, &inc);
}

/* Copies the operators with `_rev: rev` in their $set, and with the version incremented. */
static void add_rev(const truce_item *item, bson_t *update, const bson_oid_t *rev)
{
    struct value given = truce__value_document(update);
    bson_t with = BSON_INITIALIZER, inner;

    bson_append_document_begin(&with, "$set", 4, &inner);
    bson_append_oid(&inner, "_rev", 4, rev);
    append_operands(given, "$set", &inner);
    bson_append_document_end(&with, &inner);
    if (item->version) {
        bson_append_document_begin(&with, "$inc", 4, &inner);
        bson_append_int64(&inner, item->version, -1, 1);
        append_operands(given, "$inc", &inner);
        bson_append_document_end(&with, &inner);
        bson_copy_to_excluding_noinit(update, &with, "$set", "$inc", NULL);
    } else {
        bson_copy_to_excluding_noinit(update, &with, "$set", NULL);
    }
    bson_destroy(update);
    bson_steal(update, &with);
}

/* Returns whether no other condition on an array can decide which item the positional operator
 * refers to. */
static bool names_by_id(const bson_t *filter)
{
    struct value id = truce__value_field(truce__value_document(filter), "_id", 3);

    return bson_count_keys(filter) == 1 && id.type && !truce__value_is_container(id);
}

static bool form_change_by_position(const struct item_call *call, bson_t *update)
{
    char *path;
    bool good;

    if (!call->identity.type || !names_by_id(call->filter))
        return false;
    path = bson_strdup_printf("%s.$", call->item->field);
    good = change_at(call, path, update);
    bson_free(path);
    return good;
}

/* Builds the update of an array. Returns false if one update cannot express the call. */
static bool change_in_list(const struct item_call *call, enum item_verb verb,
                           struct item_write *write)
{
    const truce_item *item = call->item;
    bson_t inner;

    if (verb == ITEM_ADD) {
        bson_append_document_begin(&write->update, "$push", 5, &inner);
        bson_append_document(&inner, item->field, -1, call->change);
        bson_append_document_end(&write->update, &inner);
        return true;
    }
    if (verb == ITEM_REMOVE) {
        bson_append_document_begin(&write->update, "$pull", 5, &inner);
        bson_append_document(&inner, item->field, -1, &call->query);
        bson_append_document_end(&write->update, &inner);
        return !item->nested || item->form != TRUCE_ITEM_FORM_POSITIONAL;
    }
    if (verb == ITEM_UPDATE && item->form == TRUCE_ITEM_FORM_OPERATOR) {
        truce__item_operator(call, call->change, &write->update);
        return true;
    }
    if (item->nested)
        return false;
    if (item->form == TRUCE_ITEM_FORM_POSITIONAL ||
        !(item->store->capabilities & TRUCE_CAN_ARRAY_FILTERS))
        return form_change_by_position(call, &write->update);
    write->has_filters = true;
    return truce__item_filters(call, &write->update, &write->array_filters);
}

static void guard_list(const struct item_call *call, enum item_verb verb,
                       struct conditions *conditions)
{
    const char *path = call->item->plain;
    bson_t *none, *inner;

    if (verb != ITEM_ADD) {
        form_add(conditions, form_make_condition(path, "$elemMatch", &call->query));
        return;
    }
    form_add(conditions, BCON_NEW("$or", "[", "{", path, "{", "$exists", BCON_BOOL(false), "}", "}",
                                  "{", path, "{", "$type", BCON_UTF8("array"), "}", "}", "]"));
    inner = BCON_NEW("$elemMatch", BCON_DOCUMENT(&call->query));
    none = form_make_condition(path, "$not", inner);
    form_add(conditions, none);
    bson_destroy(inner);
}

static bool change_in_map(const struct item_call *call, enum item_verb verb, const char *path,
                          struct item_write *write)
{
    bson_t inner;

    if (!call->key || (verb != ITEM_ADD && !call->exact))
        return false;
    if (verb == ITEM_REMOVE) {
        bson_append_document_begin(&write->update, "$unset", 6, &inner);
        bson_append_utf8(&inner, path, -1, "", 0);
        bson_append_document_end(&write->update, &inner);
        return true;
    }
    return change_at(call, path, &write->update);
}

static void guard_map(const struct item_call *call, enum item_verb verb, const char *path,
                      struct conditions *conditions)
{
    const char *field = call->item->plain;

    form_add(conditions, is_no_array(field));
    if (verb == ITEM_ADD)
        form_add(conditions,
                 BCON_NEW("$or", "[", "{", field, "{", "$exists", BCON_BOOL(false), "}", "}", "{",
                          field, "{", "$type", BCON_UTF8("object"), "}", "}", "]"));
    form_add(conditions, form_make_exists(path, verb != ITEM_ADD));
}

bool truce__item_direct(const struct item_call *call, enum item_verb verb, truce_item_layout layout,
                        const bson_oid_t *rev, struct item_write *write)
{
    char *path = bson_strdup_printf("%s.%s", call->item->plain, call->key ? call->key : "");
    struct conditions conditions;
    bool good;

    begin_write(write);
    form_begin_filter(&conditions, call, &write->filter);
    if (layout == TRUCE_ITEM_MAP) {
        good = change_in_map(call, verb, path, write);
        guard_map(call, verb, path, &conditions);
    } else {
        good = change_in_list(call, verb, write);
        guard_list(call, verb, &conditions);
    }
    form_end(&conditions);
    good = good && !bson_empty(&write->update);
    if (good)
        add_rev(call->item, &write->update, rev);
    bson_free(path);
    return good;
}

/* ---- the compared write ---------------------------------------------------------------------- */

static void item_as_read(const bson_t *document, const char *path, bson_t *filter)
{
    struct value value = truce__item_at(document, path);
    bson_t inner;

    bson_append_document_begin(filter, path, -1, &inner);
    if (value.type)
        truce__value_append(&inner, "$eq", 3, value);
    else
        bson_append_bool(&inner, "$exists", 7, false);
    bson_append_document_end(filter, &inner);
}

void truce__item_compared(const struct item_call *call, const bson_t *document,
                          const struct item_outcome *outcome, const bson_oid_t *rev,
                          struct item_write *write)
{
    struct value id = truce__value_field(truce__value_document(document), "_id", 3);
    struct conditions conditions;
    bson_t *same = bson_new(), *as_read = bson_new(), inner;

    begin_write(write);
    form_begin(&conditions, &write->filter);
    bson_append_document_begin(same, "_id", 3, &inner);
    truce__value_append(&inner, "$eq", 3, id);
    bson_append_document_end(same, &inner);
    form_add(&conditions, same);
    form_add_document(&conditions, call->filter);
    add_free(&conditions);
    add_way(&conditions, call->item);
    item_as_read(document, call->item->owner, as_read);
    form_add(&conditions, as_read);
    form_end(&conditions);
    set_value(call->item->owner, outcome->after, &write->update);
    add_rev(call->item, &write->update, rev);
}

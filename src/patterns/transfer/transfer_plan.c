/* The entries of a transfer's document; of one that MongoDB's recipe made, which has none, those that it stands for. */
#include <stdio.h>
#include <string.h>

#include "base/field.h"
#include "bson/field_names.h"
#include "patterns/transfer/transfer.h"

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

/* ---- paths ------------------------------------------------------------------------------------ */

static bool first_part(const char *path, size_t length, transfer_field_function *function,
                       void *arg)
{
    const char *dot = memchr(path, '.', length);

    return function(path, dot ? (size_t)(dot - path) : length, arg);
}

bool truce__transfer_each_field(const bson_t *update, transfer_field_function *function, void *arg)
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

/* ---- entries ---------------------------------------------------------------------------------- */

/* {ns, id, when: "before", effect, undo}: what the recipe does to one of its two documents */
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

bool truce__transfer_opposite(const bson_value_t *value, bson_value_t *opposite)
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

static bool make_recipe(const truce_transfers *transfers, struct transfer_plan *plan)
{
    bson_value_t source, destination, value, opposite;
    bson_t array;

    if (!transfers->layout.accounts[0] || !plan_field_of(&plan->document, "source", &source) ||
        !plan_field_of(&plan->document, "destination", &destination) ||
        !plan_field_of(&plan->document, "value", &value) ||
        !truce__transfer_opposite(&value, &opposite))
        return false;
    BSON_APPEND_ARRAY_BEGIN(&plan->made, "entries", &array);
    append_recipe(&transfers->layout, "0", &source, &opposite, &value, &array);
    append_recipe(&transfers->layout, "1", &destination, &value, &opposite, &array);
    bson_append_array_end(&plan->made, &array);
    return true;
}

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
        "%s is no transfer: it has neither entries as truce writes them, nor source, "
        "destination and value%s",
        truce__transfer_show(transfers->collection, &id, text, sizeof text),
        transfers->layout.accounts[0] ? "" : " (whose collection is not known)");
}

void truce__transfer_plan_release(struct transfer_plan *plan)
{
    bson_free(plan->entries);
    bson_destroy(&plan->document);
    bson_destroy(&plan->made);
    bson_destroy(&plan->restored);
}

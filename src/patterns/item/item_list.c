/*
 * What a call makes of a document, without a store: the items counted, and the list or map as it
 * will stand. The same operators that are sent to a store are run here by query/update/update.c, so what is
 * counted is what was done.
 *
 * A map is judged as the array of its items: the keys are taken from the items' identities again, and
 * since no call changes an identity, they come back as they were.
 *
 *     {TOP: {type: "TOP", n: 1}}  ->  [{type: "TOP", n: 1}]  -> change ->  {TOP: {type: "TOP", n: 2}}
 */
#include "patterns/item/item.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "bson/number.h"
#include "query/update/update.h"

/* ---- paths ----------------------------------------------------------------------------------- */

struct value truce__item_at(const bson_t *document, const char *path)
{
    struct value at = truce__value_document(document);

    for (;;) {
        size_t length = strcspn(path, ".");

        if (at.type != BSON_TYPE_DOCUMENT)
            return truce__value_missing();
        at = truce__value_field(at, path, length);
        if (!path[length])
            return at;
        path += length + 1;
    }
}

enum item_state truce__item_state(const truce_item *item, const bson_t *document)
{
    struct value value = truce__item_at(document, item->owner);

    switch (value.type) {
    case VALUE_MISSING:
        return ITEM_NONE;
    case BSON_TYPE_ARRAY:
        return ITEM_LIST;
    case BSON_TYPE_DOCUMENT:
        return item->nested ? ITEM_LIST : ITEM_TABLE;
    default:
        return ITEM_OTHER;
    }
}

/* ---- identities and keys ---------------------------------------------------------------------- */

bool truce__item_identifies(struct value value)
{
    return truce__value_identifies(value) && value.size <= ITEM_IDENTITY_MAX;
}

static char *key_of_text(struct value value)
{
    uint32_t length;
    const char *text = truce__value_text(value, &length);
    bson_string_t *key = bson_string_new(NULL);

    if (!length)
        bson_string_append_c(key, '%');
    for (uint32_t i = 0; i < length; i++) {
        if (text[i] == '%' || text[i] == '.' || text[i] == '$' || !text[i])
            bson_string_append_printf(key, "%%%02X", (unsigned)(unsigned char)text[i]);
        else
            bson_string_append_c(key, text[i]);
    }
    return bson_string_free(key, false);
}

/* Equal numbers have one key, whatever their types. */
static char *key_of_number(struct value value)
{
    char text[80];

    if (value.type == BSON_TYPE_DECIMAL128) {
        struct arena arena = ARENA_INIT;
        struct value as_double = truce__value_from_double(&arena, truce__number_to_double(value));
        bool same = truce__value_equal(value, as_double);
        bson_decimal128_t decimal = truce__value_decimal(value);
        char *key = NULL;

        if (same) {
            key = key_of_number(as_double);
        } else {
            bson_decimal128_to_string(&decimal, text);
            key = bson_strdup_printf("%%d%s", text);
            for (char *dot = strchr(key, '.'); dot; dot = strchr(dot, '.'))
                *dot = '_';
        }
        truce__arena_release(&arena);
        return key;
    }
    if (value.type == BSON_TYPE_DOUBLE) {
        double number = truce__value_double(value);

        if (!(number >= -9223372036854775808.0 && number < 9223372036854775808.0 &&
              (double)(int64_t)number == number)) {
            char *key = bson_strdup_printf("%%f%.17g", number);

            for (char *dot = strchr(key, '.'); dot; dot = strchr(dot, '.'))
                *dot = '_';
            return key;
        }
        return bson_strdup_printf("%%n%lld", (long long)number);
    }
    return bson_strdup_printf("%%n%lld", value.type == BSON_TYPE_INT32
                                             ? (long long)truce__value_int32(value)
                                             : (long long)truce__value_int64(value));
}

char *truce__item_key_of(struct value identity)
{
    static const char *const tags[256] = {[BSON_TYPE_OID] = "%o",
                                          [BSON_TYPE_DATE_TIME] = "%t",
                                          [BSON_TYPE_BOOL] = "%b",
                                          [BSON_TYPE_BINARY] = "%x"};
    bson_string_t *key;

    if (!truce__item_identifies(identity))
        return NULL;
    if (identity.type == BSON_TYPE_UTF8)
        return key_of_text(identity);
    if (truce__value_is_number(identity))
        return key_of_number(identity);
    key = bson_string_new(tags[identity.type]);
    for (uint32_t i = 0; i < identity.size; i++)
        bson_string_append_printf(key, "%02x", (unsigned)identity.data[i]);
    return bson_string_free(key, false);
}

/* two digits in capitals after "%"; -1: they are not */
static int escaped(const char *at)
{
    static const char digits[] = "0123456789ABCDEF";
    const char *high = at[0] ? strchr(digits, at[0]) : NULL;
    const char *low = high && at[1] ? strchr(digits, at[1]) : NULL;

    return low ? (int)(high - digits) * 16 + (int)(low - digits) : -1;
}

/* The text that a key stands for; its length. `text` has room for the key. */
static uint32_t text_of_key(const char *key, char *text)
{
    uint32_t length = 0;

    if (!strcmp(key, "%"))
        return 0;
    while (*key) {
        int byte = *key == '%' ? escaped(key + 1) : -1;

        text[length++] = byte < 0 ? *key : (char)byte;
        key += byte < 0 ? 1 : 3;
    }
    return length;
}

/* The identity of an item that has only its key: a number or a text; what is neither stays the text
 * of the key. */
static void append_identity(const truce_item *item, const char *key, bson_t *to)
{
    char *text, *end = NULL;
    long long number;

    if (!strncmp(key, "%n", 2)) {
        number = strtoll(key + 2, &end, 10);
        if (!*end && end > key + 2) {
            if (number >= INT32_MIN && number <= INT32_MAX)
                bson_append_int32(to, item->identity, -1, (int32_t)number);
            else
                bson_append_int64(to, item->identity, -1, number);
            return;
        }
    }
    text = bson_malloc(strlen(key) + 1);
    bson_append_utf8(to, item->identity, -1, text, (int)text_of_key(key, text));
    bson_free(text);
}

static struct value identity_of(const truce_item *item, struct value value)
{
    if (value.type != BSON_TYPE_DOCUMENT)
        return truce__value_missing();
    return truce__value_field(value, item->identity, strlen(item->identity));
}

/* ---- layouts ---------------------------------------------------------------------------------- */

truce_status truce__item_to_map(const truce_item *item, struct value items, bson_t *made,
                                bson_error_t *error)
{
    struct fields fields = truce__fields(items);
    truce_status status = TRUCE_OK;
    char text[120];
    bson_t map;

    bson_init(made);
    bson_append_document_begin(made, "v", 1, &map);
    while (!status && truce__fields_next(&fields)) {
        char *key = truce__item_key_of(identity_of(item, fields.value));

        if (!key)
            status =
                truce__fail(TRUCE_INVALID, error, "an item has no \"%s\" that names it: %s",
                            item->identity, truce__value_show(fields.value, text, sizeof text));
        else if (truce__value_field(truce__value_document(&map), key, strlen(key)).type)
            status =
                truce__fail(TRUCE_INVALID, error, "two items have the same \"%s\": %s",
                            item->identity, truce__value_show(fields.value, text, sizeof text));
        else
            truce__value_append(&map, key, strlen(key), fields.value);
        bson_free(key);
    }
    bson_append_document_end(made, &map);
    return status;
}

/* An item of a map as an item of an array: with its identity. */
static void list_append_item(const truce_item *item, const struct fields *field, bson_t *items,
                             uint32_t index)
{
    char text[16];
    const char *key;
    bson_t inner;

    bson_uint32_to_string(index, &key, text, sizeof text);
    if (field->value.type != BSON_TYPE_DOCUMENT || identity_of(item, field->value).type) {
        truce__value_append(items, key, strlen(key), field->value);
        return;
    }
    bson_append_document_begin(items, key, -1, &inner);
    append_identity(item, field->key, &inner);
    for (struct fields fields = truce__fields(field->value); truce__fields_next(&fields);)
        truce__value_append(&inner, fields.key, fields.key_length, fields.value);
    bson_append_document_end(items, &inner);
}

void truce__item_to_array(const truce_item *item, struct value map, bson_t *made)
{
    struct fields fields = truce__fields(map);
    bson_t items;

    bson_init(made);
    bson_append_array_begin(made, "v", 1, &items);
    for (uint32_t index = 0; truce__fields_next(&fields); index++)
        list_append_item(item, &fields, &items, index);
    bson_append_array_end(made, &items);
}

static struct value made_value(const bson_t *made)
{
    return truce__value_field(truce__value_document(made), "v", 1);
}

/* ---- judging ---------------------------------------------------------------------------------- */

static truce_status list_apply(const bson_t *update, const bson_t *array_filters,
                               const bson_t *before, bson_t *after, struct update_result *result,
                               bson_error_t *error)
{
    struct arena arena = ARENA_INIT;
    struct query_context context = {.now_ms = truce__clock_wall_ms(), .arena = &arena};
    struct update_options options = {.array_filters = array_filters};
    struct update *compiled = NULL;
    truce_status status = truce__update_new(update, &options, &compiled, error);

    if (status)
        bson_init(after);
    else
        status = truce__update_apply(compiled, before, NULL, &context, after, result, error);
    truce__update_free(compiled);
    truce__arena_release(&arena);
    return status;
}

/* What the change makes of a document whose items stand in an array, if any. */
static truce_status list_change(const struct item_call *call, bool matched, const bson_t *before,
                                bson_t *after, bson_error_t *error)
{
    bson_t update = BSON_INITIALIZER, filters = BSON_INITIALIZER, inner;
    struct update_result counted = {0};
    bool with_filters = false;
    truce_status status;

    if (call->verb == ITEM_REMOVE) {
        bson_append_document_begin(&update, "$pull", 5, &inner);
        bson_append_document(&inner, call->item->field, -1, &call->query);
        bson_append_document_end(&update, &inner);
    } else if (matched) {
        with_filters = truce__item_filters(call, &update, &filters);
        truce_assert(with_filters);
    } else {
        bson_append_document_begin(&update, "$push", 5, &inner);
        bson_append_document(&inner, call->item->field, -1, call->change);
        bson_append_document_end(&update, &inner);
    }
    status = list_apply(&update, with_filters ? &filters : NULL, before, after, &counted, error);
    bson_destroy(&update);
    bson_destroy(&filters);
    return status;
}

/* `before` has its items in an array, or none. */
static truce_status judge_list(const struct item_call *call, const bson_t *before, bson_t *after,
                               truce_item_result *result, bson_error_t *error)
{
    const bson_t *operators = call->verb == ITEM_UPDATE ? call->change : NULL;
    bool appends = call->verb == ITEM_ADD || call->verb == ITEM_UPSERT;
    struct update_result counted = {0};
    bson_t update = BSON_INITIALIZER;
    truce_status status;

    truce__item_operator(call, operators, &update);
    status = list_apply(&update, NULL, before, after, &counted, error);
    bson_destroy(&update);
    result->matched = counted.items_matched;
    result->modified = counted.items_modified;
    if (status || operators)
        return status;
    if ((counted.items_matched == 0 && !appends) ||
        (counted.items_matched > 0 && call->verb == ITEM_ADD))
        return TRUCE_OK;
    bson_destroy(after);
    status = list_change(call, counted.items_matched > 0, before, after, error);
    if (!status && !bson_equal(before, after))
        result->modified = counted.items_matched;
    result->added = !status && !counted.items_matched;
    return status;
}

/* The document with another value at the field. */
static truce_status with_items(const truce_item *item, const bson_t *document, struct value items,
                               bson_t *made, bson_error_t *error)
{
    bson_t update = BSON_INITIALIZER, set;
    struct update_result result = {0};
    truce_status status;

    bson_append_document_begin(&update, "$set", 4, &set);
    truce__value_append(&set, item->field, strlen(item->field), items);
    bson_append_document_end(&update, &set);
    status = list_apply(&update, NULL, document, made, &result, error);
    bson_destroy(&update);
    return status;
}

/* `list` is the document with an array; the result goes into the outcome in the wanted layout. */
static truce_status judge_in(const struct item_call *call, bool as_map, const bson_t *list,
                             struct item_outcome *outcome, bson_error_t *error)
{
    bson_t after;
    struct value value;
    truce_status status = judge_list(call, list, &after, &outcome->result, error);

    if (!status) {
        outcome->changed = outcome->result.modified > 0 || outcome->result.added;
        value = truce__item_at(&after, call->item->owner);
        bson_destroy(&outcome->memory);
        if (as_map && value.type == BSON_TYPE_ARRAY) {
            status = truce__item_to_map(call->item, value, &outcome->memory, error);
        } else {
            bson_init(&outcome->memory);
            truce__value_append(&outcome->memory, "v", 1, value);
        }
        outcome->after = made_value(&outcome->memory);
    }
    bson_destroy(&after);
    return status;
}

truce_status truce__item_judge(const struct item_call *call, truce_item_layout layout,
                               const bson_t *document, struct item_outcome *outcome,
                               bson_error_t *error)
{
    const truce_item *item = call->item;
    enum item_state state = truce__item_state(item, document);
    bool as_map = state == ITEM_TABLE || (state == ITEM_NONE && layout == TRUCE_ITEM_MAP);
    bson_t items, list;
    truce_status status;

    memset(outcome, 0, sizeof *outcome);
    bson_init(&outcome->memory);
    if (state == ITEM_OTHER)
        return truce__fail(
            TRUCE_INVALID, error, "the field \"%s\" of the document is %s, no array and no map",
            item->owner, truce__type_name(truce__item_at(document, item->owner).type));
    if (state != ITEM_TABLE)
        return judge_in(call, as_map, document, outcome, error);
    truce__item_to_array(item, truce__item_at(document, item->owner), &items);
    status = with_items(item, document, made_value(&items), &list, error);
    if (!status)
        status = judge_in(call, true, &list, outcome, error);
    bson_destroy(&items);
    bson_destroy(&list);
    return status;
}

void truce__item_outcome_release(struct item_outcome *outcome)
{
    bson_destroy(&outcome->memory);
}

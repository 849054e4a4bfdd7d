/*
 * One operation without the store: checks, keys, entries, and the order of operations in a batch.
 *
 * Keys and names are scalars that equal only themselves. Regular expressions are refused because a
 * filter would use them as patterns, and arrays because a filter would look inside. Documents and
 * NaN are refused, too.
 */
#include "base/assert.h"
#include "base/clock.h"
#include "base/object_id.h"
#include "base/random.h"
#include "base/reserved_fields.h"
#include "bson/field_name_escape.h"
#include "bson/number.h"
#include "patterns/set/set.h"
#include "store/store.h"

/* ---- operations ------------------------------------------------------------------------------ */

static struct value operation_field_of(const bson_t *document, const char *name)
{
    return truce__value_field(truce__value_document(document), name, strlen(name));
}

truce_status truce__set_key_check(const truce_set *set, const bson_t *key, bson_error_t *error)
{
    truce_status status;
    char text[120];

    if (!key)
        return truce__fail(TRUCE_INVALID, error,
                           "the operation has no key: expected a document with the field \"%s\"",
                           set->keys[0]);
    status = truce__document_check(key, "key", error);
    if (status)
        return status;
    for (uint32_t i = 0; i < set->keys_count; i++) {
        struct value value = operation_field_of(key, set->keys[i]);

        if (value.type == VALUE_MISSING)
            return truce__fail(
                TRUCE_INVALID, error,
                "the key has no field \"%s\", by which set \"%s\" finds its documents",
                set->keys[i], set->id);
        if (!truce__value_identifies(value) || value.size > SET_NAME_MAX)
            return truce__fail(TRUCE_INVALID, error,
                               "the key's field \"%s\" is %s, which cannot identify a document",
                               set->keys[i], truce__value_show(value, text, sizeof text));
    }
    if (bson_count_keys(key) != set->keys_count)
        return truce__fail(TRUCE_INVALID, error,
                           "the key has %u fields, and the key of set \"%s\" has %u",
                           bson_count_keys(key), set->id, (unsigned)set->keys_count);
    return TRUCE_OK;
}

/* Refuses an element that has a field that the set maintains itself. */
static truce_status operation_check_payload(const truce_set *set, const bson_t *element,
                                            bson_error_t *error)
{
    struct fields fields = truce__fields(truce__value_document(element));

    while (truce__fields_next(&fields)) {
        if (!strcmp(fields.key, set->seq) || !strcmp(fields.key, set->source) ||
            !strcmp(fields.key, "_id") || !strcmp(fields.key, "removed"))
            return truce__fail(
                TRUCE_INVALID, error,
                "the element must not have a field \"%s\": set \"%s\" stores its own value there",
                fields.key, set->id);
        if (set->layout == TRUCE_SET_BY_ELEMENT) {
            if (!strcmp(fields.key, "_rev") || !strcmp(fields.key, "_intent") ||
                !strcmp(fields.key, "_proved"))
                return truce__fail(
                    TRUCE_INVALID, error,
                    "the element must not have a field \"%s\": the name is reserved for truce",
                    fields.key);
            for (uint32_t i = 0; i < set->keys_count; i++) {
                if (!strcmp(fields.key, set->keys[i]))
                    return truce__fail(
                        TRUCE_INVALID, error,
                        "the element must not have a field \"%s\": it is a field of the key",
                        fields.key);
            }
        }
        if (fields.key[0] == '$')
            return truce__fail(TRUCE_INVALID, error,
                               "the element's field \"%s\" begins with a dollar sign", fields.key);
    }
    return TRUCE_OK;
}

truce_status truce__set_operation_check(const truce_set *set, const truce_set_operation *given,
                                        struct set_operation *operation, bson_error_t *error)
{
    char text[120];
    truce_status status = truce__handle_usable(set->store, set->refused, &set->refusal, error);

    if (!status)
        status = ROOM_CHECK(given, "truce_set_operation", error);
    if (!status)
        status = truce__set_key_check(set, given->key, error);
    if (status)
        return status;
    if (given->verb != TRUCE_SET_ADD && given->verb != TRUCE_SET_REMOVE)
        return truce__fail(
            TRUCE_INVALID, error,
            "unknown verb %d of an operation: expected TRUCE_SET_ADD or TRUCE_SET_REMOVE",
            (int)given->verb);
    if (!given->element)
        return truce__fail(
            TRUCE_INVALID, error,
            "the operation has no element: expected a document with the field \"%s\"", set->name);
    status = truce__document_check_inside(
        given->element, set->layout == TRUCE_SET_IN_DOCUMENT ? 2 : 0, "element", error);
    if (status)
        return status;
    if (given->seq < 1)
        return truce__fail(TRUCE_INVALID, error,
                           "the sequence number is %lld, but must be at least 1",
                           (long long)given->seq);
    if (given->source && (!given->source[0] || strlen(given->source) > SET_CONSUMER_MAX))
        return truce__fail(TRUCE_INVALID, error,
                           "the source's name is empty or longer than %d bytes", SET_CONSUMER_MAX);
    operation->given = given;
    operation->name = operation_field_of(given->element, set->name);
    if (operation->name.type == VALUE_MISSING)
        return truce__fail(
            TRUCE_INVALID, error,
            "the element has no field \"%s\", which names the elements of set \"%s\"", set->name,
            set->id);
    if (!truce__value_identifies(operation->name) || operation->name.size > SET_NAME_MAX)
        return truce__fail(TRUCE_INVALID, error,
                           "the element's field \"%s\" is %s, which cannot name an element",
                           set->name, truce__value_show(operation->name, text, sizeof text));
    operation->rank = (struct set_rank){given->seq, given->source ? given->source : "",
                                        given->verb == TRUCE_SET_ADD};
    operation->key_hash = truce__set_key_hash(set, given->key);
    operation->name_hash = truce__value_hash(operation->name);
    return operation_check_payload(set, given->element, error);
}

void truce__set_key_append(const truce_set *set, const bson_t *key, bson_t *filter)
{
    for (uint32_t i = 0; i < set->keys_count; i++)
        truce__value_append(filter, set->keys[i], strlen(set->keys[i]),
                            operation_field_of(key, set->keys[i]));
}

void truce__set_entry_append(const truce_set *set, const struct set_operation *operation,
                             bson_t *entry)
{
    struct fields fields;
    bson_t stored;

    truce__value_append(entry, set->name, strlen(set->name), operation->name);
    bson_append_int64(entry, set->seq, -1, operation->rank.seq);
    if (operation->rank.source[0])
        bson_append_utf8(entry, set->source, -1, operation->rank.source, -1);
    if (!operation->rank.add)
        return;
    truce__names_store(operation->given->element, &stored);
    fields = truce__fields(truce__value_document(&stored));
    while (truce__fields_next(&fields)) {
        if (strcmp(fields.key, set->name))
            truce__value_append(entry, fields.key, fields.key_length, fields.value);
    }
    bson_destroy(&stored);
}

bool truce__set_entry_read(const truce_set *set, struct value element, bool add, struct value *name,
                           struct set_rank *rank)
{
    struct fields fields;
    size_t left = 3;

    if (element.type != BSON_TYPE_DOCUMENT)
        return false;
    *name = truce__value_missing();
    *rank = (struct set_rank){0, "", add};
    fields = truce__fields(element);
    while (left && truce__fields_next(&fields)) {
        if (!strcmp(fields.key, set->name)) {
            *name = fields.value;
            left--;
        } else if (!strcmp(fields.key, set->seq)) {
            if (truce__value_is_number(fields.value) &&
                !truce__number_to_int64(fields.value, &rank->seq))
                rank->seq = 0;
            left--;
        } else if (!strcmp(fields.key, set->source)) {
            uint32_t length;

            if (fields.value.type == BSON_TYPE_UTF8)
                rank->source = truce__value_text(fields.value, &length);
            left--;
        }
    }
    return name->type != VALUE_MISSING;
}

/* Returns the name of an entry. Tries the first field first, because an entry that truce wrote
 * begins with its name. */
struct value truce__set_entry_name(const truce_set *set, struct value element)
{
    uint32_t length = set->name_length;
    const uint8_t *first, *data;

    if (element.type != BSON_TYPE_DOCUMENT)
        return truce__value_missing();
    first = element.data + 4;
    data = first + 1 + length + 1;
    if (element.size < 4 + 1 + length + 1 + 1 || memcmp(first + 1, set->name, length + 1) != 0)
        return truce__value_field(element, set->name, length);
    return (struct value){data, truce__value_size(*first, data), *first};
}

static void state_of_list(const truce_set *set, struct value list, bool add, struct value name,
                          struct set_state *state)
{
    struct fields fields;

    if (list.type != BSON_TYPE_ARRAY)
        return;
    fields = truce__fields(list);
    while (truce__fields_next(&fields)) {
        struct value found;
        struct set_rank rank;

        if (truce__set_entry_read(set, fields.value, add, &found, &rank) &&
            truce__value_equal(found, name) &&
            (!state->stored.seq || truce__set_rank_compare(&rank, &state->stored) > 0))
            state->stored = rank;
    }
}

int64_t truce__set_watermark_read(const truce_set *set, const bson_t *document)
{
    struct value value = operation_field_of(document, set->watermark);
    int64_t watermark = 0;

    /* A value of another type does not count as a watermark. */
    if (truce__value_is_number(value))
        (void)truce__number_to_int64(value, &watermark);
    return watermark;
}

void truce__set_state_read(const truce_set *set, const bson_t *document, struct value name,
                           struct set_state *state)
{
    *state = (struct set_state){{0, "", false}, truce__set_watermark_read(set, document)};
    state_of_list(set, operation_field_of(document, set->field), true, name, state);
    state_of_list(set, operation_field_of(document, set->deleted), false, name, state);
}

truce_status truce__set_read_document(truce_set *set, const bson_t *key, bson_t *document,
                                      bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, projection = BSON_INITIALIZER;
    truce_find_options options = {.projection = &projection};
    truce_status status;

    truce__set_key_append(set, key, &filter);
    for (uint32_t i = 0; i < set->keys_count; i++) {
        if (strcmp(set->keys[i], "_id"))
            bson_append_int32(&projection, set->keys[i], -1, 1);
    }
    bson_append_int32(&projection, set->field, -1, 1);
    bson_append_int32(&projection, set->deleted, -1, 1);
    bson_append_int32(&projection, set->watermark, -1, 1);
    bson_append_int32(&projection, "_rev", 4, 1);
    bson_append_int32(&projection, "_intent", 7, 1);
    status = truce_find_one(set->store, set->collection, &filter, &options, document, error);
    bson_destroy(&filter);
    bson_destroy(&projection);
    return status;
}

bool truce__set_has_revision(const bson_t *document)
{
    return operation_field_of(document, "_rev").type == BSON_TYPE_OID;
}

void truce__set_free_append(bool has_revision, bson_t *filter)
{
    bson_t condition, negation;

    bson_append_document_begin(filter, "_intent", 7, &condition);
    bson_append_bool(&condition, "$exists", 7, false);
    bson_append_document_end(filter, &condition);
    bson_append_document_begin(filter, "_rev", 4, &condition);
    if (has_revision) {
        bson_append_int32(&condition, "$type", 5, BSON_TYPE_OID);
    } else {
        bson_append_document_begin(&condition, "$not", 4, &negation);
        bson_append_int32(&negation, "$type", 5, BSON_TYPE_OID);
        bson_append_document_end(&condition, &negation);
    }
    bson_append_document_end(filter, &condition);
}

void truce__set_revision_append(bson_t *change)
{
    bson_oid_t fresh;

    truce__id_new(&fresh);
    bson_append_oid(change, "_rev", 4, &fresh);
}

static void operation_append_as_read(const bson_t *document, const char *field, bson_t *filter)
{
    struct value value = truce__value_field(truce__value_document(document), field, strlen(field));
    bson_t absent;

    if (value.type != VALUE_MISSING) {
        truce__value_append(filter, field, strlen(field), value);
        return;
    }
    bson_append_document_begin(filter, field, -1, &absent);
    bson_append_bool(&absent, "$exists", -1, false);
    bson_append_document_end(filter, &absent);
}

void truce__set_change_append(const bson_t *document, const bson_t *change, bson_t *update)
{
    bson_t set;

    if (!truce__set_has_revision(document)) {
        bson_append_document(update, "$set", -1, change);
        return;
    }
    bson_append_document_begin(update, "$set", -1, &set);
    bson_concat(&set, change);
    truce__set_revision_append(&set);
    bson_append_document_end(update, &set);
}

void truce__set_state_append(const truce_set *set, const bson_t *document, bson_t *filter)
{
    operation_append_as_read(document, "_id", filter);
    for (uint32_t i = 0; i < set->keys_count; i++) {
        if (strcmp(set->keys[i], "_id"))
            operation_append_as_read(document, set->keys[i], filter);
    }
    operation_append_as_read(document, set->field, filter);
    operation_append_as_read(document, set->deleted, filter);
    operation_append_as_read(document, set->watermark, filter);
    operation_append_as_read(document, "_rev", filter);
    operation_append_as_read(document, "_intent", filter);
}

truce_status truce__set_update_answered(truce_set *set, const char *collection,
                                        const bson_t *filter, const bson_t *update,
                                        const truce_write_options *options, bson_error_t *error)
{
    truce_status status = TRUCE_UNKNOWN;

    for (int attempt = 0; attempt < SET_TRIES_MAX; attempt++) {
        truce__set_pause(attempt);
        status = truce_update(set->store, collection, filter, update, options, NULL, error);
        /* DUPLICATE means that two upserts collided, so the update is sent again. */
        if (status != TRUCE_DUPLICATE && !truce__store_repeatable(set->store, status))
            break;
    }
    return status;
}

void truce__set_pause(int attempt)
{
    int64_t limit_ms = attempt < 8 ? 1 << attempt : 256;

    if (attempt > 1)
        truce__clock_sleep_ms((int64_t)(truce__random_entropy() % (uint64_t)limit_ms));
}

/* ---- the fold -------------------------------------------------------------------------------- */

/* The fold sorts a batch by (document, name, rank descending). So the first operation of each name
 * is the one that an in-order delivery of the batch would leave. */

static struct value key_field(const truce_set *set, const bson_t *key, uint32_t i)
{
    return truce__value_field(truce__value_document(key), set->keys[i], strlen(set->keys[i]));
}

uint64_t truce__set_key_hash(const truce_set *set, const bson_t *key)
{
    uint64_t hash = 0;

    for (uint32_t i = 0; i < set->keys_count; i++)
        hash = hash * 0x9e3779b97f4a7c15u + truce__value_hash(key_field(set, key, i));
    return hash;
}

bool truce__set_name_equal(struct value a, struct value b)
{
    if (a.type == b.type && a.type == BSON_TYPE_UTF8)
        return a.size == b.size && !memcmp(a.data, b.data, a.size);
    return truce__value_equal(a, b);
}

static int compare_keys(const truce_set *set, const bson_t *a, const bson_t *b)
{
    for (uint32_t i = 0; i < set->keys_count; i++) {
        int order = truce__value_compare(key_field(set, a, i), key_field(set, b, i));

        if (order)
            return order;
    }
    return 0;
}

bool truce__set_key_equal(const truce_set *set, const bson_t *a, const bson_t *b)
{
    return compare_keys(set, a, b) == 0;
}

static int fold_compare_numbers(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int fold_compare(const void *left, const void *right, void *arg)
{
    const struct set_operation *a = left, *b = right;
    int order = fold_compare_numbers(a->key_hash, b->key_hash);

    if (!order)
        order = compare_keys(arg, a->given->key, b->given->key);
    if (!order)
        order = fold_compare_numbers(a->name_hash, b->name_hash);
    if (!order)
        order = truce__value_compare(a->name, b->name);
    if (!order)
        order = truce__set_rank_compare(&b->rank, &a->rank);
    if (!order)
        order = fold_compare_numbers((uintptr_t)a->call, (uintptr_t)b->call);
    return order ? order : fold_compare_numbers(a->number, b->number);
}

void truce__set_fold(const truce_set *set, struct set_operation *operations, size_t count)
{
    qsort_r(operations, count, sizeof *operations, fold_compare, (void *)set);
}

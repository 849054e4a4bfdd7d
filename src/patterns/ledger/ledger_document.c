/* The document of a transaction: its fields, its changes, and the chain of hashes over them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/field.h"
#include "bson/number.h"
#include "patterns/ledger/ledger.h"

/* ---- fields ---------------------------------------------------------------------------------- */

struct fields truce__ledger_changes(const bson_t *document)
{
    static const uint8_t none[] = {5, 0, 0, 0, 0};
    struct value changes = truce__value_field(truce__value_document(document), "changes", 7);

    if (changes.type != BSON_TYPE_ARRAY)
        changes = (struct value){none, sizeof none, BSON_TYPE_ARRAY};
    return truce__fields(changes);
}

/* Reads a whole number of any numeric type: a shell writes doubles. */
static bool ledger_read_integer(struct value value, int64_t *number)
{
    return truce__value_is_number(value) && truce__number_to_int64(value, number);
}

static const char *document_text_of(struct value value)
{
    uint32_t length;
    const char *text;

    if (value.type != BSON_TYPE_UTF8)
        return NULL;
    text = truce__value_text(value, &length);
    return strlen(text) == length ? text : NULL;
}

static void take_hash(struct value value, struct ledger_change *change)
{
    /* A binary value begins with its length and its subtype (5 bytes). */
    if (value.type != BSON_TYPE_BINARY || value.size != 5 + SHA256_BYTES)
        return;
    change->hashed = true;
    memcpy(change->hash, value.data + 5, SHA256_BYTES);
}

/* Returns whether a field has the name, a literal: each change is compared with all names. */
#define FIELD_IS(field, name)                                                                      \
    ((field)->key_length == sizeof(name) - 1 && !memcmp((field)->key, name, sizeof(name)))

/* Reads one field of a change. A field of a wrong type counts as missing. */
static void document_take_field(const struct fields *field, struct ledger_change *change)
{
    struct value value = field->value;

    if (FIELD_IS(field, "account"))
        change->account = document_text_of(value);
    else if (FIELD_IS(field, "type"))
        change->type = document_text_of(value);
    else if (FIELD_IS(field, "currency"))
        change->currency = document_text_of(value);
    else if (FIELD_IS(field, "release"))
        (void)ledger_read_integer(value, &change->release);
    else if (FIELD_IS(field, "pendingOut"))
        (void)ledger_read_integer(value, &change->out);
    else if (FIELD_IS(field, "pendingIn"))
        (void)ledger_read_integer(value, &change->in);
    else if (FIELD_IS(field, "rules"))
        (void)ledger_read_integer(value, &change->rules_at);
    else if (FIELD_IS(field, "cachedBal"))
        change->cached = ledger_read_integer(value, &change->balance);
    else if (FIELD_IS(field, "hash"))
        take_hash(value, change);
    else if (FIELD_IS(field, "set") && value.type == BSON_TYPE_DOCUMENT) {
        change->sets = true;
        truce__value_bson(value, &change->set);
    }
}

bool truce__ledger_change(struct value value, struct ledger_change *change)
{
    struct fields fields;
    bool numbered = false, valued = false;

    *change = (struct ledger_change){0};
    if (value.type != BSON_TYPE_DOCUMENT)
        return false;
    for (fields = truce__fields(value); truce__fields_next(&fields);) {
        if (FIELD_IS(&fields, "seqId"))
            numbered = ledger_read_integer(fields.value, &change->number);
        else if (FIELD_IS(&fields, "value"))
            valued = ledger_read_integer(fields.value, &change->value);
        else
            document_take_field(&fields, change);
    }
    return numbered && valued && change->account && change->number > 0;
}

bool truce__ledger_change_of(const bson_t *document, const char *account, int64_t number,
                             struct ledger_change *change)
{
    struct ledger_change one;
    bool found = false;

    for (struct fields fields = truce__ledger_changes(document); truce__fields_next(&fields);) {
        if (!truce__ledger_change(fields.value, &one) || strcmp(one.account, account) != 0 ||
            (number ? one.number != number : found && one.number < change->number))
            continue;
        /* The change contains a bson_t, which cannot be copied by value, so it is read again. */
        found = truce__ledger_change(fields.value, change);
    }
    return found;
}

bool truce__ledger_is(const bson_t *document, const char *field, const char *text)
{
    return !strcmp(truce__field_text(document, field), text);
}

int64_t truce__ledger_date(const bson_t *document, const char *field)
{
    bson_iter_t iter;

    if (!bson_iter_init_find(&iter, document, field))
        return 0;
    if (BSON_ITER_HOLDS_TIMESTAMP(&iter)) {
        uint32_t seconds, increment;

        bson_iter_timestamp(&iter, &seconds, &increment);
        return INT64_C(1000) * seconds;
    }
    return BSON_ITER_HOLDS_DATE_TIME(&iter) ? truce__iter_date(&iter) : 0;
}

bson_value_t truce__ledger_value(const bson_t *document, const char *field)
{
    bson_value_t none = {.value_type = BSON_TYPE_EOD};
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, field) ? *bson_iter_value(&iter) : none;
}

/* ---- documents of several accounts ----------------------------------------------------------- */

void truce__ledger_keep(struct ledger_documents *documents, const bson_t *document)
{
    if (documents->count == documents->room) {
        documents->room = documents->room ? 2 * documents->room : 8;
        documents->items =
            bson_realloc(documents->items, documents->room * sizeof *documents->items);
    }
    documents->items[documents->count++] = bson_copy(document);
}

/* Documents by account and number: an index over the changes of the documents. It is sorted when it
 * is first used, and again after documents were added. */
struct ledger_slot {
    const char *account;
    int64_t number;
    uint32_t item;
};

static int positions_compare(const void *a, const void *b)
{
    const struct ledger_slot *x = a, *y = b;
    int order = strcmp(x->account, y->account);

    if (order)
        return order;
    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

static void positions_release(struct ledger_documents *documents)
{
    bson_free(documents->positions);
    documents->positions = NULL;
    documents->positions_count = documents->positions_of = 0;
}

/* Lists the changes of all documents, sorted by account and number, for the search by number. */
static void positions_sort(struct ledger_documents *documents)
{
    struct ledger_change change;
    uint32_t room = 0;

    positions_release(documents);
    documents->positions_of = documents->count;
    for (uint32_t i = 0; i < documents->count; i++) {
        for (struct fields at = truce__ledger_changes(documents->items[i]);
             truce__fields_next(&at);) {
            if (!truce__ledger_change(at.value, &change))
                continue;
            if (documents->positions_count == room) {
                room = room ? 2 * room : 2 * documents->count + 8;
                documents->positions =
                    bson_realloc(documents->positions, room * sizeof *documents->positions);
            }
            documents->positions[documents->positions_count++] =
                (struct ledger_slot){change.account, change.number, i};
        }
    }
    if (documents->positions_count)
        qsort(documents->positions, documents->positions_count, sizeof *documents->positions,
              positions_compare);
}

const bson_t *truce__ledger_numbered(struct ledger_documents *documents, const char *account,
                                     int64_t number)
{
    const struct ledger_slot wanted = {account, number, 0};
    uint32_t low = 0, high;

    if (documents->positions_of != documents->count)
        positions_sort(documents);
    high = documents->positions_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (positions_compare(&documents->positions[middle], &wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == documents->positions_count || documents->positions[low].number != number ||
        strcmp(documents->positions[low].account, account) != 0)
        return NULL;
    return documents->items[documents->positions[low].item];
}

void truce__ledger_documents_release(struct ledger_documents *documents)
{
    for (uint32_t i = 0; i < documents->count; i++)
        bson_destroy(documents->items[i]);
    bson_free(documents->items);
    positions_release(documents);
    *documents = (struct ledger_documents){0};
}

/* ---- rules ----------------------------------------------------------------------------------- */

void truce__ledger_rules_of(const bson_t *set, struct ledger_rules *rules)
{
    bson_iter_t iter;

    *rules = (struct ledger_rules){0};
    snprintf(rules->currency, sizeof rules->currency, "%s", truce__field_text(set, "currency"));
    rules->has_min = bson_iter_init_find(&iter, set, "min");
    rules->min = truce__field_number(set, "min");
    rules->has_max = bson_iter_init_find(&iter, set, "max");
    rules->max = truce__field_number(set, "max");
    rules->debit_only = bson_iter_init_find(&iter, set, "debitOnly");
    rules->credit_only = bson_iter_init_find(&iter, set, "creditOnly");
    rules->closed = bson_iter_init_find(&iter, set, "closed");
}

void truce__ledger_rules_append(const struct ledger_rules *rules, bson_t *set)
{
    BSON_APPEND_UTF8(set, "currency", rules->currency);
    if (rules->has_min)
        BSON_APPEND_INT64(set, "min", rules->min);
    if (rules->has_max)
        BSON_APPEND_INT64(set, "max", rules->max);
    if (rules->debit_only)
        BSON_APPEND_BOOL(set, "debitOnly", true);
    if (rules->credit_only)
        BSON_APPEND_BOOL(set, "creditOnly", true);
    if (rules->closed)
        BSON_APPEND_BOOL(set, "closed", true);
}

/* ---- the chain ------------------------------------------------------------------------------- */

/* Returns true for fields that truce or a commit writes later, and for those of the chain
 * itself. */
static bool is_mutable(const char *key, bool change)
{
    static const char *const fields[] = {"proc", "open", "_rev", "_intent", "_keys", NULL};
    static const char *const changes[] = {"cachedBal", "pendingOut", "pendingIn",
                                          "rules",     "hash",       NULL};

    for (const char *const *name = change ? changes : fields; *name; name++) {
        if (*key == **name && !strcmp(key, *name))
            return true;
    }
    return false;
}

static void document_add_changes(struct sha256 *sha, struct value changes);

static void document_add_field(struct sha256 *sha, const struct fields *field, bool change)
{
    truce__sha256_add(sha, &field->value.type, 1);
    truce__sha256_add(sha, field->key, field->key_length + 1);
    if (!change && !strcmp(field->key, "changes") && field->value.type == BSON_TYPE_ARRAY)
        document_add_changes(sha, field->value);
    else
        truce__sha256_add(sha, field->value.data, field->value.size);
}

static int compare_fields(const void *a, const void *b)
{
    return strcmp(((const struct fields *)a)->key, ((const struct fields *)b)->key);
}

/* Sorts the fields; few fields, the usual case, are sorted in place. */
static void sort_fields(struct fields *fields, uint32_t count)
{
    if (count > 32) {
        qsort(fields, count, sizeof *fields, compare_fields);
        return;
    }
    for (uint32_t i = 1; i < count; i++) {
        struct fields field = fields[i];
        uint32_t at = i;

        for (; at && strcmp(fields[at - 1].key, field.key) > 0; at--)
            fields[at] = fields[at - 1];
        fields[at] = field;
    }
}

/* Adds a document in the order of its names: an update by a server may leave them in another
 * order. */
static void document_add_document(struct sha256 *sha, struct value document, bool change)
{
    struct fields here[32], *sorted = here;
    uint32_t count = 0, room = 32;

    for (struct fields field = truce__fields(document); truce__fields_next(&field);) {
        if (is_mutable(field.key, change))
            continue;
        if (count == room) {
            sorted = bson_realloc(sorted == here ? NULL : sorted, 2 * room * sizeof *sorted);
            if (count == 32)
                memcpy(sorted, here, sizeof here);
            room *= 2;
        }
        sorted[count++] = field;
    }
    sort_fields(sorted, count);
    for (uint32_t i = 0; i < count; i++)
        document_add_field(sha, &sorted[i], change);
    truce__sha256_add(sha, "", 1);
    if (sorted != here)
        bson_free(sorted);
}

static void document_add_changes(struct sha256 *sha, struct value changes)
{
    for (struct fields at = truce__fields(changes); truce__fields_next(&at);) {
        if (at.value.type == BSON_TYPE_DOCUMENT)
            document_add_document(sha, at.value, true);
        else
            truce__sha256_add(sha, at.value.data, at.value.size);
    }
}

void truce__ledger_digest(const bson_t *document, uint8_t digest[SHA256_BYTES])
{
    struct sha256 sha;

    truce__sha256_begin(&sha);
    document_add_document(&sha, truce__value_document(document), false);
    truce__sha256_end(&sha, digest);
}

static void document_add_number(struct sha256 *sha, int64_t number)
{
    uint8_t bytes[8];

    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)((uint64_t)number >> 8 * i);
    truce__sha256_add(sha, bytes, sizeof bytes);
}

void truce__ledger_chain(const uint8_t digest[SHA256_BYTES], const char *account,
                         const uint8_t before[SHA256_BYTES], struct ledger_state *state)
{
    struct sha256 sha;

    truce__sha256_begin(&sha);
    truce__sha256_add(&sha, before, SHA256_BYTES);
    truce__sha256_add(&sha, digest, SHA256_BYTES);
    truce__sha256_add(&sha, account, strlen(account) + 1);
    document_add_number(&sha, state->number);
    document_add_number(&sha, state->balance);
    document_add_number(&sha, state->out);
    document_add_number(&sha, state->in);
    document_add_number(&sha, state->rules_at);
    truce__sha256_end(&sha, state->hash);
}

/* ---- sums ------------------------------------------------------------------------------------ */

static bool document_add(int64_t *sum, int64_t value)
{
    return !__builtin_add_overflow(*sum, value, sum);
}

/* Adds a change to the sums of a state (LG8 of ledger.c). */
truce_status truce__ledger_add(struct ledger_state *state, const struct ledger_change *change,
                               bool counts, bool pending, bson_error_t *error)
{
    struct ledger_state after = *state;
    bool fits = true;
    int64_t reached;

    after.number = change->number;
    if (counts)
        fits = document_add(&after.balance, change->value);
    if (pending && change->value < 0)
        fits = fits && !__builtin_sub_overflow(after.out, change->value, &after.out);
    else if (pending)
        fits = fits && document_add(&after.in, change->value);
    if (change->release < 0)
        fits = fits && document_add(&after.out, change->release);
    else
        fits = fits && !__builtin_sub_overflow(after.in, change->release, &after.in);
    fits = fits && !__builtin_sub_overflow(after.balance, after.out, &reached) &&
           !__builtin_add_overflow(after.balance, after.in, &reached);
    if (!fits)
        return truce__fail(TRUCE_LIMIT, error, "the balance of account \"%s\" would exceed 64 bits",
                           change->account);
    if (change->sets) {
        truce__ledger_rules_of(&change->set, &after.rules);
        after.rules_at = change->number;
    }
    *state = after;
    return TRUCE_OK;
}

bool truce__ledger_has(const bson_t *document, const char *field, const bson_value_t *value)
{
    bson_t one = BSON_INITIALIZER;
    struct value there = truce__value_field(truce__value_document(document), field, strlen(field));
    bool same;

    if (value)
        BSON_APPEND_VALUE(&one, "v", value);
    same = value ? there.type != VALUE_MISSING &&
                       truce__value_equal(there,
                                          truce__value_field(truce__value_document(&one), "v", 1))
                 : there.type == VALUE_MISSING;
    bson_destroy(&one);
    return same;
}

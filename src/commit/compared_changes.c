#include "commit/compared_changes.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/limits.h"
#include "base/null.h"
#include "merge/document_diff.h"
#include "query/input_check.h"
#include "query/update/update.h"
#include "truce/changes.h"

/*
 * Diffs {key: [old, new]} are made from two versions of a document, and compared and applied key by
 * key.
 *
 *     before {count: 3, keys: ["a"], at: {x: 1}}     after {count: 4, keys: ["a", "b"], at: {x: 2}}
 *     diff   {count: [3, 4], keys: [["a"], ["a", "b"]], "at.x": [1, 2]}
 *
 *  CD1  A diff is a kind of change in an entry (commit_entry.c). This process compares and applies
 *       it, in order with the entry's other changes, to the document that the entry has at that
 *       time. So a store's idea of equality (null equals missing, an array equals any of its
 *       elements) does not matter, and all mechanisms behave alike.
 *  CD2  The store changes exactly the document that was compared. The journal holds the document
 *       while it compares; the other mechanisms write only if the document is still the one that
 *       was compared, and otherwise read and compare again (native_transaction.c,
 *       single_document.c). So a change of another key is not a conflict, and a change of one of
 *       the diff's keys is always detected.
 *  CD3  Only the keys of the diff are written. Changes of other keys by other writers remain.
 *
 * If an old value differs, the commit fails with CONFLICT: the code that made the diff can make it
 * again, and truce_transact runs it again. If the diff cannot be made again (truce_changes_apply),
 * the conflict is final. The entry's flag `stale` distinguishes it from conflicts that a new try
 * resolves.
 */

/* ---- reading a diff ------------------------------------------------------------------------- */

/* The change of one field. */
struct pair {
    /* The old and the new value. An undefined value is stored here as VALUE_MISSING. */
    struct value before, after;
};

static struct value missing_if_undefined(struct value value)
{
    return value.type == BSON_TYPE_UNDEFINED ? truce__value_missing() : value;
}

/* Reads the pair [old, new] of a diff. Returns false if the value is not a pair. */
static bool read_pair(struct value value, struct pair *pair)
{
    struct fields fields;

    if (value.type != BSON_TYPE_ARRAY)
        return false;
    fields = truce__fields(value);
    if (!truce__fields_next(&fields))
        return false;
    pair->before = missing_if_undefined(fields.value);
    if (!truce__fields_next(&fields))
        return false;
    pair->after = missing_if_undefined(fields.value);
    return !truce__fields_next(&fields);
}

/* Returns whether the key is field names with dots between, none of them empty or with a leading
 * dollar sign. */
static bool is_path(const char *key)
{
    for (;;) {
        size_t length = strcspn(key, ".");

        if (!length || key[0] == '$')
            return false;
        if (!key[length])
            return true;
        key += length + 1;
    }
}

static bool changes_is_own(const char *key)
{
    size_t length = strcspn(key, ".");

    return (length == 3 && !memcmp(key, "_id", 3)) || (length == 4 && !memcmp(key, "_rev", 4)) ||
           (length == 7 && !memcmp(key, "_intent", 7));
}

/* Checks one key of a diff and its pair of values. */
static truce_status changes_check_key(const char *key, struct value value, bson_error_t *error)
{
    struct pair pair;

    if (!is_path(key))
        return truce__fail(TRUCE_INVALID, error,
                           "\"%s\" is not a valid key of a diff: expected a field name or a path",
                           key);
    if (changes_is_own(key))
        return truce__fail(TRUCE_INVALID, error, "the key \"%s\" cannot be changed by a diff", key);
    if (!read_pair(value, &pair))
        return truce__fail(TRUCE_INVALID, error,
                           "the key \"%s\" of a diff needs a pair of values: [old, new]", key);
    if (pair.before.type == VALUE_MISSING && pair.after.type == VALUE_MISSING)
        return truce__fail(TRUCE_INVALID, error,
                           "the key \"%s\" of a diff is missing before and after", key);
    return TRUCE_OK;
}

truce_status truce__changes_check(const bson_t *diff, bson_error_t *error)
{
    struct fields fields = truce__fields(truce__value_document(diff));
    struct update_options options = {.borrows = true};
    struct update *update = NULL;
    truce_status status = TRUCE_OK;
    bson_t operators;

    while (!status && truce__fields_next(&fields))
        status = changes_check_key(fields.key, fields.value, error);
    if (status || bson_empty(diff))
        return status;
    /* Fails if two keys conflict: one is a prefix of the other. */
    truce__changes_operators(diff, &operators);
    status = truce__update_new(&operators, &options, &update, error);
    truce__update_free(update);
    bson_destroy(&operators);
    return status;
}

/* ---- comparing and applying ----------------------------------------------------------------- */

/* Finds the value at the path. Returns false if a value on the path is not a document. */
static bool changes_find_value(const bson_t *document, const char *path, struct value *found)
{
    *found = truce__value_document(document);
    for (;;) {
        size_t length = strcspn(path, ".");

        if (found->type == VALUE_MISSING)
            return true;
        if (found->type != BSON_TYPE_DOCUMENT)
            return false;
        *found = truce__value_field(*found, path, length);
        if (!path[length])
            return true;
        path += length + 1;
    }
}

static const char *changes_show(struct value value, char *text, size_t size)
{
    if (value.type == VALUE_MISSING)
        return "missing";
    return truce__value_show(value, text, size);
}

/* Returns whether two values are equal. A missing field equals only a missing field, not a stored
 * value of type undefined. */
static bool changes_same(struct value found, struct value wanted)
{
    if (found.type == VALUE_MISSING || wanted.type == VALUE_MISSING)
        return found.type == wanted.type;
    return truce__value_equal(found, wanted);
}

bool truce__changes_hold(const bson_t *diff, const bson_t *document, char *why, size_t size)
{
    struct fields fields = truce__fields(truce__value_document(diff));
    char is[80], was[80];

    while (truce__fields_next(&fields)) {
        struct value found;
        struct pair pair;

        truce_assert(read_pair(fields.value, &pair));
        if (!changes_find_value(document, fields.key, &found)) {
            snprintf(why, size, "key \"%.100s\" passes through a value that is not a document",
                     fields.key);
            return false;
        }
        if (changes_same(found, pair.before))
            continue;
        snprintf(why, size, "key \"%.100s\" is %s, not %s as in the diff", fields.key,
                 changes_show(found, is, sizeof is), changes_show(pair.before, was, sizeof was));
        return false;
    }
    return true;
}

void truce__changes_operators(const bson_t *diff, bson_t *operators)
{
    struct fields fields = truce__fields(truce__value_document(diff));
    bson_t set = BSON_INITIALIZER, unset = BSON_INITIALIZER;

    bson_init(operators);
    while (truce__fields_next(&fields)) {
        struct pair pair;

        truce_assert(read_pair(fields.value, &pair));
        if (pair.after.type == VALUE_MISSING)
            bson_append_utf8(&unset, fields.key, (int)fields.key_length, "", 0);
        else
            truce__value_append(&set, fields.key, fields.key_length, pair.after);
    }
    if (!bson_empty(&set))
        BSON_APPEND_DOCUMENT(operators, "$set", &set);
    if (!bson_empty(&unset))
        BSON_APPEND_DOCUMENT(operators, "$unset", &unset);
    bson_destroy(&set);
    bson_destroy(&unset);
}

/* ---- making a diff -------------------------------------------------------------------------- */

static void append_half(bson_t *pair, const char *index, struct value value)
{
    if (value.type == VALUE_MISSING)
        bson_append_undefined(pair, index, 1);
    else
        truce__value_append(pair, index, 1, value);
}

static void append_pair(bson_t *diff, const struct fields *at, struct value before,
                        struct value after)
{
    bson_t pair;

    bson_append_array_begin(diff, at->key, (int)at->key_length, &pair);
    append_half(&pair, "0", before);
    append_half(&pair, "1", after);
    bson_append_array_end(diff, &pair);
}

static void changes_append_pairs(const struct diff *parts, bson_t *diff)
{
    struct fields fields = truce__fields(truce__value_document(&parts->set));
    struct value old = truce__value_document(&parts->old);

    while (truce__fields_next(&fields))
        append_pair(diff, &fields, truce__value_field(old, fields.key, fields.key_length),
                    fields.value);
    fields = truce__fields(truce__value_document(&parts->unset));
    while (truce__fields_next(&fields))
        append_pair(diff, &fields, fields.value, truce__value_missing());
}

/* Appends the changes field by field, in any order, for changes that paths cannot describe. Returns
 * false if the name of a changed field cannot be a key. */
static bool changes_append_fields(struct value before, struct value after, bson_t *diff)
{
    struct fields fields = truce__fields(before);

    while (truce__fields_next(&fields)) {
        struct value now = truce__value_field(after, fields.key, fields.key_length);

        if (truce__value_identical(fields.value, now))
            continue;
        if (!is_path(fields.key) || strchr(fields.key, '.'))
            return false;
        append_pair(diff, &fields, fields.value, now);
    }
    fields = truce__fields(after);
    while (truce__fields_next(&fields)) {
        if (truce__value_field(before, fields.key, fields.key_length).type != VALUE_MISSING)
            continue;
        if (!is_path(fields.key) || strchr(fields.key, '.'))
            return false;
        append_pair(diff, &fields, truce__value_missing(), fields.value);
    }
    return true;
}

static bool has_undefined(const bson_t *document)
{
    struct fields fields = truce__fields(truce__value_document(document));

    while (truce__fields_next(&fields)) {
        if (fields.value.type == BSON_TYPE_UNDEFINED)
            return true;
    }
    return false;
}

static void without_own_fields(const bson_t *document, bson_t *plain)
{
    bson_init(plain);
    truce__document_append_without(document, (const char *const[]){"_rev", "_intent", NULL}, plain);
}

static bool changes_same_id(const bson_t *a, const bson_t *b)
{
    return truce__value_identical(truce__value_field(truce__value_document(a), "_id", 3),
                                  truce__value_field(truce__value_document(b), "_id", 3));
}

truce_status truce_changes_diff(const bson_t *before, const bson_t *after, bson_t *diff,
                                bson_error_t *error)
{
    RETURN_IF_NULL(diff, error);

    bson_t old, new;
    struct diff parts;
    truce_status status = TRUCE_OK;
    bool expressed;

    bson_init(diff);
    status = truce__check_required(before, "document before", error);
    if (!status)
        status = truce__check_required(after, "document after", error);
    if (status)
        return status;
    if (!changes_same_id(before, after))
        return truce__fail(
            TRUCE_INVALID, error,
            "the two documents have different _ids: a diff needs two versions of one document");
    without_own_fields(before, &old);
    without_own_fields(after, &new);
    expressed = truce__diff(truce__value_document(&old), truce__value_document(&new), &parts);
    if (expressed)
        changes_append_pairs(&parts, diff);
    else
        expressed =
            changes_append_fields(truce__value_document(&old), truce__value_document(&new), diff);
    if (!expressed)
        status = truce__fail(
            TRUCE_INVALID, error,
            "a diff cannot name a changed field, because the name has a dot or begins with a "
            "dollar sign; replace the document");
    else if (has_undefined(&parts.set) || has_undefined(&parts.old) || has_undefined(&old) ||
             has_undefined(&new))
        status = truce__fail(TRUCE_INVALID, error,
                             "a value is undefined, which means a missing field in a diff");
    if (status)
        bson_reinit(diff);
    truce__diff_release(&parts);
    bson_destroy(&old);
    bson_destroy(&new);
    return status;
}

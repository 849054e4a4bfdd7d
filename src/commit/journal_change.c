#include "commit/journal_change.h"

#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/field.h"
#include "bson/field_names.h"
#include "query/update/update.h"

/*
 * One change of a decided commit: a path, and its new value. A plain writer may have written there between the
 * prepare and the release, so the change says, too, what it was made from:
 *
 *     {p: path, v: value (absent: unset), h: hash of the old value (absent: there was none),
 *      n: elements of the old list, a: [operators on the field "x", by stored names (bson/field_names.h)]}
 *
 *   D1  The commit was decided before the release, and what came later comes after it: what a plain writer
 *       pushed to the old list stands behind the new one.
 *   D2  Where the commit's own operators say what to do to any value ($inc, $push ...), they are done to what
 *       stands there: that is the one order or the other.
 *   D3  Of anything else only one of the two can stand: the commit's, which other documents may belong to. The
 *       other is kept (journal_force.c).
 */

#define OPERAND "x"

/* ---- operators ------------------------------------------------------------------------------ */

/* One path is the other, or stands above it. */
static bool change_touches(const char *a, const char *b)
{
    size_t length = strlen(a), other = strlen(b), shorter = length < other ? length : other;

    return !memcmp(a, b, shorter) &&
           (length == other || (length > other ? a[shorter] : b[shorter]) == '.');
}

static bool is_plain_push(const bson_iter_t *field)
{
    static const char *const modifiers[] = {"$position", "$slice", "$sort"};
    bson_iter_t below;

    for (size_t i = 0; i < sizeof modifiers / sizeof *modifiers; i++) {
        if (BSON_ITER_HOLDS_DOCUMENT(field) && bson_iter_recurse(field, &below) &&
            bson_iter_find(&below, modifiers[i]))
            return false;
    }
    return true;
}

/* It means the same to any value. */
static bool is_relative(const char *operator, const bson_iter_t * field)
{
    static const char *const names[] = {"$inc", "$addToSet", "$pull", "$max", "$min"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strcmp(operator, names[i]))
            return true;
    }
    return !strcmp(operator, "$push") && is_plain_push(field);
}

static void change_append_operator(bson_t *list, const char *operator, const bson_iter_t * field)
{
    bson_t one = BSON_INITIALIZER, fields;
    char key[16];

    bson_snprintf(key, sizeof key, "%u", bson_count_keys(list));
    bson_append_document_begin(&one, operator, - 1, &fields);
    bson_append_iter(&fields, OPERAND, 1, field);
    bson_append_document_end(&one, &fields);
    truce__names_append(list, key, &one);
    bson_destroy(&one);
}

/* Appends those of one update that have to do with the path. False: one of them is none of D2. */
static bool operators_in(const bson_t *update, const char *path, bson_t *list)
{
    bson_iter_t iter, field;

    truce_assert(bson_iter_init(&iter, update));
    while (bson_iter_next(&iter)) {
        truce_assert(bson_iter_recurse(&iter, &field));
        while (bson_iter_next(&field)) {
            bool renames = !strcmp(bson_iter_key(&iter), "$rename");

            if (renames && change_touches(bson_iter_utf8(&field, NULL), path))
                return false;
            if (!change_touches(bson_iter_key(&field), path))
                continue;
            if (strcmp(bson_iter_key(&field), path) != 0 ||
                !is_relative(bson_iter_key(&iter), &field))
                return false;
            change_append_operator(list, bson_iter_key(&iter), &field);
        }
    }
    return true;
}

static bool operators_of(const struct entry *entry, const char *path, bson_t *list)
{
    for (uint32_t i = 0; i < entry->changes_count; i++) {
        if (entry->changes[i].kind != CHANGE_UPDATE ||
            !operators_in(entry->changes[i].document, path, list))
            return false;
    }
    return !bson_empty(list);
}

/* ---- into the commit ------------------------------------------------------------------------ */

static uint32_t change_count_of(struct value array)
{
    struct fields fields = truce__fields(array);
    uint32_t count = 0;

    while (truce__fields_next(&fields))
        count++;
    return count;
}

static void change_append_change(bson_t *changes, const struct entry *entry, const char *path,
                                 struct value now, struct value old)
{
    bson_t change, operators = BSON_INITIALIZER;
    char key[16];

    bson_snprintf(key, sizeof key, "%u", bson_count_keys(changes));
    bson_append_document_begin(changes, key, -1, &change);
    BSON_APPEND_UTF8(&change, "p", path);
    truce__value_append(&change, "v", 1, now);
    if (old.type)
        BSON_APPEND_INT64(&change, "h", (int64_t)truce__value_hash(old));
    if (old.type == BSON_TYPE_ARRAY)
        BSON_APPEND_INT32(&change, "n", (int32_t)change_count_of(old));
    if (operators_of(entry, path, &operators))
        BSON_APPEND_ARRAY(&change, "a", &operators);
    bson_append_document_end(changes, &change);
    bson_destroy(&operators);
}

void truce__changes_append(bson_t *element, const struct entry *entry, const struct diff *diff)
{
    struct value old = truce__value_document(&diff->old);
    struct fields fields = truce__fields(truce__value_document(&diff->set));
    bson_t changes;

    bson_append_array_begin(element, "changes", 7, &changes);
    while (truce__fields_next(&fields))
        change_append_change(&changes, entry, fields.key, fields.value,
                             truce__value_field(old, fields.key, fields.key_length));
    fields = truce__fields(truce__value_document(&diff->unset));
    while (truce__fields_next(&fields)) {
        if (strcmp(fields.key, "_rev") != 0) /* a replacement has none yet: it is set, not gone */
            change_append_change(&changes, entry, fields.key, (struct value){.type = VALUE_MISSING},
                                 fields.value);
    }
    bson_append_array_end(element, &changes);
}

/* ---- out of it ------------------------------------------------------------------------------ */

static struct value change_field(const bson_t *change, const char *name)
{
    return truce__value_field(truce__value_document(change), name, strlen(name));
}

static bool has_hash(const bson_t *change, struct value value)
{
    bson_iter_t iter;

    if (!bson_iter_init_find(&iter, change, "h"))
        return !value.type;
    return value.type && bson_iter_as_int64(&iter) == (int64_t)truce__value_hash(value);
}

/* The elements of `from` behind the first `skip`, numbered from `at`. */
static void append_elements(bson_t *array, uint32_t at, struct value from, uint32_t skip,
                            uint32_t most)
{
    struct fields fields = truce__fields(from);
    char key[16];

    for (uint32_t i = 0; i < most && truce__fields_next(&fields); i++) {
        if (i < skip)
            continue;
        truce__value_append(array, key, (size_t)bson_snprintf(key, sizeof key, "%u", at++),
                            fields.value);
    }
}

static bool begins_with_old(const bson_t *change, struct value list, uint32_t count)
{
    bson_t holder = BSON_INITIALIZER, first;
    bool same;

    bson_append_array_begin(&holder, OPERAND, 1, &first);
    append_elements(&first, 0, list, 0, count);
    bson_append_array_end(&holder, &first);
    same = has_hash(change, truce__value_field(truce__value_document(&holder), OPERAND, 1));
    bson_destroy(&holder);
    return same;
}

/* D1 */
static bool merge_lists(const bson_t *change, struct value now, struct value there, bson_t *made)
{
    bson_iter_t iter;
    uint32_t count = 0;
    bson_t list;

    if (now.type != BSON_TYPE_ARRAY || there.type != BSON_TYPE_ARRAY)
        return false;
    if (bson_iter_init_find(&iter, change, "n"))
        count = (uint32_t)bson_iter_as_int64(&iter);
    else if (change_field(change, "h").type)
        return false;
    if (change_count_of(there) < count || (count && !begins_with_old(change, there, count)))
        return false;
    bson_append_array_begin(made, OPERAND, 1, &list);
    append_elements(&list, 0, now, 0, UINT32_MAX);
    append_elements(&list, change_count_of(now), there, count, UINT32_MAX);
    bson_append_array_end(made, &list);
    return true;
}

truce_status truce__change_apply(const bson_t *operators, bson_t *document, bson_error_t *error)
{
    struct arena arena = ARENA_INIT;
    struct query_context context = {.now_ms = truce__clock_wall_ms(), .arena = &arena};
    struct update_options options = {.borrows = true};
    struct update_result result;
    struct update *update = NULL;
    bson_t after = BSON_INITIALIZER;
    truce_status status = truce__update_new(operators, &options, &update, error);

    if (!status) {
        bson_destroy(&after);
        status = truce__update_apply(update, document, NULL, &context, &after, &result, error);
    }
    if (!status) {
        bson_destroy(document);
        bson_steal(document, &after);
    } else {
        bson_destroy(&after);
    }
    truce__update_free(update);
    truce__arena_release(&arena);
    return status;
}

/* D2 */
static bool merge_operators(const bson_t *change, struct value there, bson_t *made)
{
    struct value list = change_field(change, "a");
    struct fields operators;
    bson_error_t ignored;
    bool can = true;

    if (list.type != BSON_TYPE_ARRAY)
        return false;
    truce__value_append(made, OPERAND, 1, there);
    operators = truce__fields(list);
    while (can && truce__fields_next(&operators)) {
        bson_t stored, one;

        truce__value_bson(operators.value, &stored);
        truce__names_restore(&stored, &one);
        can = !truce__change_apply(&one, made, &ignored);
        bson_destroy(&one);
    }
    return can;
}

bool truce__change_merge(const bson_t *change, struct value there, bson_t *holder,
                         struct value *made)
{
    struct value now = change_field(change, "v");

    *made = now;
    if (has_hash(change, there))
        return true;
    bson_reinit(holder);
    if (!merge_lists(change, now, there, holder)) {
        bson_reinit(holder);
        if (!merge_operators(change, there, holder))
            return truce__value_identical(there, now);
    }
    *made = truce__value_field(truce__value_document(holder), OPERAND, 1);
    return true;
}

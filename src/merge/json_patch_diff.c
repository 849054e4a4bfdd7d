/*
 * Computes a JSON Patch from two values. Missing values are removed, new values are added, and a
 * change is a replacement at the deepest path that covers it.
 *
 *     before  {a: 1, l: [{id: 1, n: 1}, {id: 2, n: 2}]}
 *     after   {a: 1, l: [{id: 2, n: 9}]}
 *     patch   remove /l/0, replace /l/0/n 9
 *
 * Elements of arrays are matched by a common subsequence (lcs.c) of their identities, or of the
 * elements themselves if some have no identity. An element that was removed next to an added one is
 * treated as a changed element. If the changes inside a value need more bytes than the value, the
 * value is replaced as a whole, except the root.
 *
 * The time is linear in the documents, unless thousands of elements moved (lcs.h).
 */
#include <stdio.h>

#include "bson/array.h"
#include "bson/key_numbering.h"
#include "merge/json_patch.h"
#include "merge/lcs.h"

/* One operation of the patch that is built. */
struct step {
    /* The name of the operation: "add", "remove", or "replace". */
    const char *op;
    char *path;
    struct value value;
};

/* The patch that is built. */
struct steps {
    struct arena *arena;
    struct step *steps;
    uint32_t count, room;
    /* The approximate size of the patch in bytes. */
    size_t bytes;
    /* The pointer to the current value, its length, and the size of its memory. Owned. */
    char *path;
    size_t length, path_room;
};

/* ---- steps ----------------------------------------------------------------------------------- */

static void add_step(struct steps *steps, const char *op, struct value value)
{
    if (steps->count == steps->room) {
        steps->room = steps->room ? 2 * steps->room : 64;
        steps->steps = bson_realloc(steps->steps, steps->room * sizeof *steps->steps);
    }
    steps->steps[steps->count++] = (struct step){
        op, truce__arena_copy(steps->arena, steps->path ? steps->path : "", steps->length + 1),
        value};
    steps->bytes += 32 + steps->length + value.size;
}

/* Appends "/" and the escaped name to the path. Returns the old length of the path. */
static size_t patch_diff_enter(struct steps *steps, const char *name, size_t length)
{
    size_t before = steps->length;

    if (steps->path_room < before + 2 * length + 2) {
        steps->path_room = 2 * (before + 2 * length + 2);
        steps->path = bson_realloc(steps->path, steps->path_room);
    }
    steps->path[steps->length++] = '/';
    for (size_t i = 0; i < length; i++) {
        if (name[i] == '~' || name[i] == '/') {
            steps->path[steps->length++] = '~';
            steps->path[steps->length++] = name[i] == '~' ? '0' : '1';
        } else {
            steps->path[steps->length++] = name[i];
        }
    }
    steps->path[steps->length] = '\0';
    return before;
}

static void patch_diff_leave(struct steps *steps, size_t length)
{
    steps->length = length;
    steps->path[length] = '\0';
}

static void step_at(struct steps *steps, const char *name, size_t length, const char *op,
                    struct value value)
{
    size_t before = patch_diff_enter(steps, name, length);

    add_step(steps, op, value);
    patch_diff_leave(steps, before);
}

static void patch_diff_value(struct steps *steps, struct value before, struct value after);

static void diff_at(struct steps *steps, const char *name, size_t length, struct value before,
                    struct value after)
{
    size_t outer = patch_diff_enter(steps, name, length);

    patch_diff_value(steps, before, after);
    patch_diff_leave(steps, outer);
}

/* ---- documents ------------------------------------------------------------------------------- */

/* Adds the steps between two documents, field by field. */
static void patch_diff_documents(struct steps *steps, struct value before, struct value after)
{
    const struct value documents[] = {before, after};
    const struct aligned_side *old, *new;
    struct aligned aligned;

    truce__align_fields(steps->arena, documents, 2, &aligned);
    old = &aligned.sides[0];
    new = &aligned.sides[1];
    for (uint32_t i = 0; i < old->count; i++) {
        const struct fields *field = &old->fields[i];
        struct value now = truce__aligned_value(&aligned, 1, old->numbers[i]);

        if (!now.type)
            step_at(steps, field->key, field->key_length, "remove", now);
        else if (!truce__value_identical(field->value, now))
            diff_at(steps, field->key, field->key_length, field->value, now);
    }
    for (uint32_t i = 0; i < new->count; i++) {
        if (!truce__aligned_has(&aligned, 0, new->numbers[i]))
            step_at(steps, new->fields[i].key, new->fields[i].key_length, "add",
                    new->fields[i].value);
    }
}

/* ---- arrays ---------------------------------------------------------------------------------- */

struct elements {
    struct value *values;
    /* The numbers of the elements. Elements that are equal, or that have the same identity, have
     * the same number. */
    uint32_t *numbers;
    uint32_t count;
};

static void diff_read_elements(struct arena *arena, struct value array, struct elements *elements)
{
    struct fields fields = truce__fields(array);

    elements->count = 0;
    while (truce__fields_next(&fields))
        elements->count++;
    elements->values = truce__arena_take(arena, (elements->count + 1) * sizeof *elements->values);
    elements->numbers = truce__arena_take(arena, (elements->count + 1) * sizeof(uint32_t));
    fields = truce__fields(array);
    for (uint32_t i = 0; truce__fields_next(&fields); i++)
        elements->values[i] = fields.value;
}

/* Numbers the elements by the values of the field. Returns false if an element has no such field,
 * or if a value repeats in a list. */
static bool number_by(struct arena *arena, const char *name, struct elements *lists)
{
    struct numbering numbering;

    truce__numbering_begin(&numbering, arena, lists[0].count + lists[1].count, false);
    for (int list = 0; list < 2; list++) {
        uint8_t *taken = truce__arena_take(arena, lists[0].count + lists[1].count + 1);

        memset(taken, 0, lists[0].count + lists[1].count + 1);
        numbering.expected = 0;
        for (uint32_t i = 0; i < lists[list].count; i++) {
            struct value key = lists[list].values[i];
            uint32_t number;

            if (key.type == BSON_TYPE_DOCUMENT)
                key = truce__value_field(key, name, strlen(name));
            else
                key = truce__value_missing();
            if (!key.type)
                return false;
            number = truce__numbering_of(&numbering, key);
            if (taken[number]++)
                return false;
            lists[list].numbers[i] = number;
        }
    }
    return true;
}

static void number_elements(struct arena *arena, struct elements *lists)
{
    struct numbering numbering;

    if (number_by(arena, "_id", lists) || number_by(arena, "id", lists) ||
        number_by(arena, "name", lists))
        return;
    truce__numbering_begin(&numbering, arena, lists[0].count + lists[1].count, false);
    for (int list = 0; list < 2; list++) {
        numbering.expected = 0;
        for (uint32_t i = 0; i < lists[list].count; i++)
            lists[list].numbers[i] = truce__numbering_of(&numbering, lists[list].values[i]);
    }
}

/* Pairs old elements with new ones as changes; the rest is removed or added. `at` is the
 * position in the array after the previous steps. Returns the position after the last new
 * element. */
static uint32_t diff_run(struct steps *steps, const struct value *old, uint32_t old_count,
                         const struct value *new, uint32_t new_count, uint32_t at)
{
    uint32_t pairs = old_count < new_count ? old_count : new_count;
    char text[16];
    const char *key;

    for (uint32_t i = 0; i < old_count || i < new_count; i++) {
        size_t length = bson_uint32_to_string(at, &key, text, sizeof text);

        if (i < pairs)
            diff_at(steps, key, length, old[i], new[i]);
        else
            step_at(steps, key, length, i < old_count ? "remove" : "add",
                    i < new_count ? new[i] : truce__value_missing());
        at += i < new_count;
    }
    return at;
}

/* Adds the steps between two arrays, whose elements are aligned by a common subsequence (lcs.h). */
static void diff_arrays(struct steps *steps, struct value before, struct value after)
{
    struct elements lists[2];
    uint32_t *match, i = 0, k = 0, at = 0;

    diff_read_elements(steps->arena, before, &lists[0]);
    diff_read_elements(steps->arena, after, &lists[1]);
    number_elements(steps->arena, lists);
    match = truce__arena_take(steps->arena, (lists[0].count + 1) * sizeof *match);
    truce__lcs(steps->arena, lists[0].numbers, lists[0].count, lists[1].numbers, lists[1].count,
               lists[0].count + lists[1].count, match);
    while (i < lists[0].count || k < lists[1].count) {
        uint32_t next = i, matched;

        while (next < lists[0].count && match[next] == LCS_NONE)
            next++;
        matched = next < lists[0].count ? match[next] : lists[1].count;
        at = diff_run(steps, lists[0].values + i, next - i, lists[1].values + k, matched - k, at);
        i = next;
        k = matched;
        if (i < lists[0].count) {
            diff_run(steps, lists[0].values + i, 1, lists[1].values + k, 1, at);
            i++;
            k++;
            at++;
        }
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Adds the steps between two values at the current path. Takes the steps inside back, and replaces
 * the whole value, if that is shorter. */
static void patch_diff_value(struct steps *steps, struct value before, struct value after)
{
    uint32_t count = steps->count;
    size_t bytes = steps->bytes;

    if (truce__value_identical(before, after))
        return;
    if (before.type != after.type || !truce__value_is_container(before)) {
        add_step(steps, "replace", after);
        return;
    }
    if (before.type == BSON_TYPE_DOCUMENT)
        patch_diff_documents(steps, before, after);
    else
        diff_arrays(steps, before, after);
    if (steps->length && steps->bytes - bytes > after.size + steps->length + 32) {
        steps->count = count;
        steps->bytes = bytes;
        add_step(steps, "replace", after);
    }
}

void truce__patch_diff(struct value before, struct value after, bson_t *operations)
{
    struct arena arena = ARENA_INIT;
    struct steps steps = {.arena = &arena};
    struct array list = {.to = operations};

    bson_init(operations);
    patch_diff_value(&steps, before, after);
    for (uint32_t i = 0; i < steps.count; i++) {
        bson_t operation;

        truce__array_open_document(&list, &operation);
        bson_append_utf8(&operation, "op", 2, steps.steps[i].op, -1);
        bson_append_utf8(&operation, "path", 4, steps.steps[i].path, -1);
        truce__value_append(&operation, "value", 5, steps.steps[i].value);
        truce__array_close_document(&list, &operation);
    }
    bson_free(steps.steps);
    bson_free(steps.path);
    truce__arena_release(&arena);
}

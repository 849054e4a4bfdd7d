/*
 * What an update has changed, as change streams say it.
 *
 *     before {a: 1, b: {c: 2, d: 3}, e: [1, 2, 3], f: [1]}
 *     after  {a: 1, b: {c: 5}, e: [1, 7], f: [1, 9], g: 4}
 *
 *     {updatedFields: {"b.c": 5, "e.1": 7, "f.1": 9, g: 4}, removedFields: ["b.d"],
 *      truncatedArrays: [{field: "e", newSize: 2}]}
 *
 * A path with a field that is named like a place in an array, "a.0.1" for example, is said clearly, too:
 *
 *     disambiguatedPaths: {"a.0.1": ["a", 0, "1"]}
 *
 * Fields are compared in lockstep: those that both have must stand in the same order, and new ones behind them. A document or an
 * array within for which that is not so, or whose changed fields have names that a path cannot hold (empty, with a dot, with a
 * dollar first), is told whole; for the document itself there is no difference then.
 *
 * Invariants:
 *  1. Who does to `before` what is said has the fields and values of `after`.
 *  2. The work is bounded by the size of both: a field that is gone is looked for in all of `after`, so at most GONE_MAX of
 *     them are in one document; and a difference that is longer than both documents is none.
 */
#include "engine/documents/feed.h"

#include <stdio.h>

#include "base/buffer.h"
#include "bson/value.h"

#define GONE_MAX 256

struct walk {
    struct buffer path, marks; /* marks: of each name in the path, one byte */
    uint32_t numbers;          /* fields in the path whose names look like places in an array */
    bson_t *set, gone, cut, clear;
    uint32_t gone_count, cut_count;
    size_t most; /* bytes of the three */
    bool too_long;
};

static bool diff_plain_name(const struct fields *field)
{
    return field->key_length && field->key[0] != '$' && !memchr(field->key, '.', field->key_length);
}

static bool diff_same_name(const struct fields *a, const struct fields *b)
{
    return a->key_length == b->key_length && !memcmp(a->key, b->key, a->key_length);
}

/* Can it be said by paths what differs between the two documents, themselves? */
static bool diff_is_sayable(struct value before, struct value after)
{
    struct fields old = truce__fields(before), new = truce__fields(after);
    bool more = truce__fields_next(&new);
    int gone = 0;

    while (truce__fields_next(&old)) {
        if (more && diff_same_name(&old, &new)) {
            if (!diff_plain_name(&old) && !truce__value_identical(old.value, new.value))
                return false;
            more = truce__fields_next(&new);
            continue;
        }
        if (++gone > GONE_MAX || !diff_plain_name(&old) ||
            truce__value_field(after, old.key, old.key_length).type)
            return false;
    }
    for (; more; more = truce__fields_next(&new))
        if (!diff_plain_name(&new))
            return false;
    return true;
}

/* ---- what is said ------------------------------------------------------------------------------ */

enum mark { NAME, NUMBER, PLACE }; /* a field; one that looks like a place; a place in an array */

static bool looks_like_a_place(const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (name[i] < '0' || name[i] > '9')
            return false;
    return length && length < 10 && (name[0] != '0' || length == 1);
}

/* Appends a name to the path; the length that it had. */
static size_t diff_enter(struct walk *walk, const char *name, size_t length, bool place)
{
    size_t had = walk->path.size;
    /* a document is no array: of its own fields none looks like a place */
    enum mark mark = place ? PLACE : had && looks_like_a_place(name, length) ? NUMBER : NAME;

    truce__buffer_append_byte(&walk->marks, (uint8_t)mark);
    walk->numbers += mark == NUMBER;
    if (had)
        truce__buffer_append(&walk->path, ".", 1);
    truce__buffer_append(&walk->path, name, length);
    return had;
}

static void diff_leave(struct walk *walk, size_t had)
{
    walk->path.size = had;
    walk->numbers -= walk->marks.bytes[--walk->marks.size] == NUMBER;
}

static bool diff_has_room(struct walk *walk, size_t more)
{
    walk->too_long = walk->too_long || (size_t)walk->set->len + walk->gone.len + walk->cut.len +
                                               walk->clear.len + walk->path.size + more >
                                           walk->most;
    return !walk->too_long;
}

static int32_t diff_place_of(const char *digits, int length)
{
    int32_t place = 0;

    for (int i = 0; i < length; i++)
        place = 10 * place + (digits[i] - '0');
    return place;
}

/* [names and places] of a path that could be read otherwise. */
static void say_clearly(struct walk *walk)
{
    const char *path = (const char *)walk->path.bytes, *end = path + walk->path.size;
    bson_t names;

    if (!walk->numbers || !diff_has_room(walk, walk->path.size + 16 * walk->marks.size + 16))
        return;
    bson_append_array_begin(&walk->clear, path, (int)walk->path.size, &names);
    for (uint32_t i = 0; i < walk->marks.size; i++) {
        const char *dot = memchr(path, '.', (size_t)(end - path));
        int length = (int)((dot ? dot : end) - path);
        char buffer[16];
        const char *key;

        bson_uint32_to_string(i, &key, buffer, sizeof buffer);
        if (walk->marks.bytes[i] == PLACE)
            BSON_APPEND_INT32(&names, key, diff_place_of(path, length));
        else
            bson_append_utf8(&names, key, -1, path, length);
        path += length + 1;
    }
    bson_append_array_end(&walk->clear, &names);
}

static void say_set(struct walk *walk, struct value value)
{
    say_clearly(walk);
    if (diff_has_room(walk, value.size))
        truce__value_append(walk->set, (const char *)walk->path.bytes, walk->path.size, value);
}

static void say_gone(struct walk *walk)
{
    char buffer[16];
    const char *key;

    say_clearly(walk);
    if (!diff_has_room(walk, sizeof buffer))
        return;
    bson_uint32_to_string(walk->gone_count++, &key, buffer, sizeof buffer);
    bson_append_utf8(&walk->gone, key, -1, (const char *)walk->path.bytes, (int)walk->path.size);
}

static void say_cut(struct walk *walk, uint32_t size)
{
    char buffer[16];
    const char *key;
    bson_t cut;

    say_clearly(walk);
    if (!diff_has_room(walk, 64))
        return;
    bson_uint32_to_string(walk->cut_count++, &key, buffer, sizeof buffer);
    bson_append_document_begin(&walk->cut, key, -1, &cut);
    bson_append_utf8(&cut, "field", 5, (const char *)walk->path.bytes, (int)walk->path.size);
    BSON_APPEND_INT32(&cut, "newSize", (int32_t)size);
    bson_append_document_end(&walk->cut, &cut);
}

/* ---- arrays and documents ------------------------------------------------------------------------ */

static void feed_diff_diff_value(struct walk *walk, struct value before, struct value after);

/* Bytes of the elements of `after` that `before` has not got in their places; containers may differ in parts. */
static size_t differing(struct value before, struct value after)
{
    struct fields old = truce__fields(before), new = truce__fields(after);
    bool has_old = true;
    size_t bytes = 0;

    while (truce__fields_next(&new)) {
        has_old = has_old && truce__fields_next(&old);
        if (has_old && truce__value_identical(old.value, new.value))
            continue;
        bytes += 8;
        if (!has_old || old.value.type != new.value.type || !truce__value_is_container(new.value))
            bytes += new.value.size;
    }
    return bytes;
}

static void diff_array(struct walk *walk, struct value before, struct value after)
{
    struct fields old = truce__fields(before), new = truce__fields(after);
    bool has_old = true;
    uint32_t count = 0;

    for (; truce__fields_next(&new); count++) {
        char buffer[16];
        const char *key;
        size_t had, length = bson_uint32_to_string(count, &key, buffer, sizeof buffer);

        has_old = has_old && truce__fields_next(&old);
        if (has_old && truce__value_identical(old.value, new.value))
            continue;
        had = diff_enter(walk, key, length, true);
        if (has_old)
            feed_diff_diff_value(walk, old.value, new.value);
        else
            say_set(walk, new.value);
        diff_leave(walk, had);
    }
    if (has_old && truce__fields_next(&old))
        say_cut(walk, count);
}

static void diff_document(struct walk *walk, struct value before, struct value after)
{
    struct fields old = truce__fields(before), new = truce__fields(after);
    bool more = truce__fields_next(&new);
    size_t had;

    while (truce__fields_next(&old)) {
        bool both = more && diff_same_name(&old, &new);

        if (!both || !truce__value_identical(old.value, new.value)) {
            had = diff_enter(walk, old.key, old.key_length, false);
            if (both)
                feed_diff_diff_value(walk, old.value, new.value);
            else
                say_gone(walk);
            diff_leave(walk, had);
        }
        if (both)
            more = truce__fields_next(&new);
    }
    for (; more; more = truce__fields_next(&new)) {
        had = diff_enter(walk, new.key, new.key_length, false);
        say_set(walk, new.value);
        diff_leave(walk, had);
    }
}

static void feed_diff_diff_value(struct walk *walk, struct value before, struct value after)
{
    if (walk->too_long)
        return;
    if (before.type == BSON_TYPE_DOCUMENT && after.type == BSON_TYPE_DOCUMENT &&
        diff_is_sayable(before, after))
        diff_document(walk, before, after);
    else if (before.type == BSON_TYPE_ARRAY && after.type == BSON_TYPE_ARRAY &&
             differing(before, after) < after.size)
        diff_array(walk, before, after);
    else
        say_set(walk, after);
}

bool truce__feed_diff(const bson_t *before, const bson_t *after, bson_t *diff)
{
    struct value old = truce__value_document(before), new = truce__value_document(after);
    struct walk walk = {.gone = BSON_INITIALIZER,
                        .cut = BSON_INITIALIZER,
                        .clear = BSON_INITIALIZER,
                        .most = (size_t)before->len + after->len + 64};
    bool said = diff_is_sayable(old, new);
    bson_t set = BSON_INITIALIZER;

    walk.set = &set;
    if (said)
        diff_document(&walk, old, new);
    said = said && !walk.too_long;
    bson_init(diff);
    if (said) {
        BSON_APPEND_DOCUMENT(diff, "updatedFields", &set);
        BSON_APPEND_ARRAY(diff, "removedFields", &walk.gone);
        BSON_APPEND_ARRAY(diff, "truncatedArrays", &walk.cut);
        if (!bson_empty(&walk.clear))
            BSON_APPEND_DOCUMENT(diff, "disambiguatedPaths", &walk.clear);
    }
    said = said && diff->len <= TRUCE_DOCUMENT_BYTES_MAX - 64 * 1024;
    if (!said)
        bson_reinit(diff);
    bson_destroy(&set);
    bson_destroy(&walk.gone);
    bson_destroy(&walk.cut);
    bson_destroy(&walk.clear);
    truce__buffer_release(&walk.marks);
    truce__buffer_release(&walk.path);
    return said;
}

/*
 * The keys of a document in an index.
 *
 * A document without arrays on the index's paths has one key: for each field its value, null where
 * there is none. Where a path meets an array, the document has one key for each element:
 *
 *     index {a.b: 1, c: 1}     {a: [{b: 1}, {b: 2}, 7], c: "x"}     (1,"x") (2,"x") (null,"x")
 *     index {a: 1}             {a: [1, [2]]} has 1 and [2], {a: []} has undefined
 *     index {a.1: 1}           {a: [5, 6]} has 6: a number names an element of an array
 *
 * The walk follows every field as far as it goes without entering an array. If some stand before
 * an array (it must be the same one for all of them, "parallel arrays" are refused), the walk goes
 * on from each of its elements with what is left of the paths:
 *
 *     walk:  for each field that is not settled, follow its path from `object`
 *              nothing there                  settled: null
 *              a value at the end of the path settled: the value
 *              an array                       waits for the array to be expanded
 *            no array?  one key.   otherwise walk again from each element
 *
 * An element of an array may be named by its number (`a.1.b`), and at the same time the numbers may
 * be names of fields of the elements (`{a: [{"1": {b: 5}}]}`). A document in which both exist is
 * ambiguous and refused, as MongoDB does (16746).
 *
 * Invariants:
 *   1. Every key has one encoding for each field, in the order of the fields.
 *   2. A sparse index holds the document if at least one field was found; a null that is there
 *      counts as found.
 *   3. The result is sorted and without repeats, so that keys of two versions of a document can be
 *      compared by merging.
 *   4. Every step of the walk either settles a field or uses up a part of its path: it ends after
 *      at most as many levels as the longest path has parts, plus one.
 *
 * A wildcard index has one key for each leaf below its root: (path, value), where elements of an
 * array count as values of the array's path. Arrays directly inside of arrays, empty documents and
 * empty arrays (as undefined) are leaves. `_id` is left out if the root is the whole document.
 *
 * The rules are those of MongoDB's BtreeKeyGenerator and WildcardKeyGenerator.
 */
#include "base/assert.h"
#include "base/limits.h"
#include "query/index/index.h"
#include "query/match/match.h"

#define CODE_AMBIGUOUS_FIELD 16746

/* How far one field has come. */
struct progress {
    uint32_t at;            /* parts of the path that are used up; all of them: settled */
    struct value fixed;     /* the value, once it is settled */
    struct value by_number; /* the element of the array above that the next part names by number */
    struct value beyond;    /* what the path leads to from there, and ... */
    uint32_t beyond_at;     /* ... how far it got */
};

struct walk {
    const struct index_field *fields;
    uint32_t count;
    bool sparse;
    struct index_keys *keys;
    bson_error_t *error;
};

static const struct value undefined = {NULL, 0, BSON_TYPE_UNDEFINED};
static const uint8_t empty_bytes[] = {5, 0, 0, 0, 0};
static const struct value empty = {empty_bytes, sizeof empty_bytes, BSON_TYPE_DOCUMENT};

static truce_status end_key(struct index_keys *keys, bson_error_t *error)
{
    if (keys->bounded && keys->count == TRUCE_INDEX_KEYS_MAX)
        return truce__fail(TRUCE_LIMIT, error, "the document has more than %d keys in one index",
                           TRUCE_INDEX_KEYS_MAX);
    if (keys->bytes.size - (keys->count ? keys->ends[keys->count - 1] : 0) >
        TRUCE_INDEX_KEY_BYTES_MAX)
        return truce__fail(TRUCE_LIMIT, error, "a key of an index has more than %d bytes",
                           TRUCE_INDEX_KEY_BYTES_MAX);
    if (keys->count == keys->room) {
        keys->room = keys->room ? 2 * keys->room : 8;
        keys->ends = bson_realloc(keys->ends, keys->room * sizeof *keys->ends);
    }
    truce_assert(keys->bytes.size <= UINT32_MAX);
    keys->ends[keys->count++] = (uint32_t)keys->bytes.size;
    return TRUCE_OK;
}

/* Follows `path` from part *at on; stops at the first array, or at the end of the path. */
static struct value keys_follow(const struct path *path, uint32_t *at, struct value from)
{
    while (*at < path->count) {
        if (from.type != BSON_TYPE_DOCUMENT && !(from.type == BSON_TYPE_ARRAY))
            return truce__value_missing();
        from = truce__value_field(from, path->parts[*at].name, path->parts[*at].length);
        ++*at;
        if (from.type == BSON_TYPE_ARRAY || from.type == VALUE_MISSING)
            return from;
    }
    return from;
}

/* The next value of a field: from `object`, or from the element that its number names. */
static truce_status next_value(const struct walk *walk, uint32_t i, struct value object,
                               struct progress *progress, bool *nested, struct value *found)
{
    const struct path *path = &walk->fields[i].path;
    const struct path_part *part = &path->parts[progress->at];
    bool by_name = truce__value_field(object, part->name, part->length).type != VALUE_MISSING;
    bool by_number = progress->by_number.type != VALUE_MISSING;

    if (by_name && by_number)
        return truce__refuse(CODE_AMBIGUOUS_FIELD, walk->error,
                             "'%.*s' of the index path '%s' is both an array's element and a field "
                             "of one of its elements",
                             (int)part->length, part->name, path->text);
    *found = truce__value_missing();
    if (by_name) {
        *found = keys_follow(path, &progress->at, object);
    } else if (by_number) {
        *nested = *nested || progress->by_number.type == BSON_TYPE_ARRAY;
        *found = progress->beyond;
        progress->at = progress->beyond_at;
    }
    return TRUCE_OK;
}

static truce_status emit(const struct walk *walk, const struct progress *progress)
{
    for (uint32_t i = 0; i < walk->count; i++)
        truce__key_append(&walk->keys->bytes, progress[i].fixed, walk->fields[i].descending);
    return end_key(walk->keys, walk->error);
}

static bool settled(const struct walk *walk, const struct progress *progress, uint32_t i)
{
    return progress[i].at == walk->fields[i].path.count;
}

static truce_status keys_expand(const struct walk *walk, struct value array, uint32_t waiting,
                                bool unnested, const struct progress *before, uint32_t not_found);

/* `missing` of the fields were not found on the way here. */
static truce_status walk_object(const struct walk *walk, struct value object,
                                struct progress *progress, uint32_t missing)
{
    struct value array = truce__value_missing();
    uint32_t waiting = 0;
    bool nested = false;

    for (uint32_t i = 0; i < walk->count; i++) {
        struct value found;
        truce_status status;

        if (settled(walk, progress, i))
            continue;
        status = next_value(walk, i, object, &progress[i], &nested, &found);
        if (status)
            return status;
        if (found.type == BSON_TYPE_ARRAY) {
            if (array.type && array.data != found.data)
                return truce__refuse(CODE_CANNOT_INDEX_PARALLEL_ARRAYS, walk->error,
                                     "two fields of one key are arrays, the second at '%s'",
                                     walk->fields[i].path.text);
            array = found;
            waiting |= 1u << i;
            continue;
        }
        if (found.type == VALUE_MISSING) {
            found = truce__value_null();
            missing++;
        }
        progress[i].fixed = found;
        progress[i].at = walk->fields[i].path.count;
    }
    if (array.type)
        return keys_expand(walk, array, waiting, !nested, progress, missing);
    return walk->sparse && missing == walk->count ? TRUCE_OK : emit(walk, progress);
}

/* Looks up what the fields that wait name by number in the array, once for all elements. */
static void look_up_numbers(const struct walk *walk, struct value array, uint32_t waiting,
                            struct progress *progress)
{
    for (uint32_t i = 0; i < walk->count; i++) {
        const struct path *path = &walk->fields[i].path;

        progress[i].by_number = truce__value_missing();
        if (!(waiting & 1u << i) || settled(walk, progress, i))
            continue;
        progress[i].by_number = truce__value_field(array, path->parts[progress[i].at].name,
                                                   path->parts[progress[i].at].length);
        progress[i].beyond_at = progress[i].at;
        progress[i].beyond = keys_follow(path, &progress[i].beyond_at, array);
    }
}

static truce_status walk_element(const struct walk *walk, struct value element,
                                 struct value terminal, uint32_t waiting,
                                 const struct progress *before, uint32_t missing)
{
    struct progress progress[TRUCE_INDEX_FIELDS_MAX];

    memcpy(progress, before, walk->count * sizeof *progress);
    for (uint32_t i = 0; i < walk->count; i++) {
        if (waiting & 1u << i && settled(walk, progress, i))
            progress[i].fixed = terminal;
    }
    return walk_object(walk, element.type == BSON_TYPE_DOCUMENT ? element : empty, progress,
                       missing);
}

/* `unnested`: the array was not itself reached as a numbered element of an array; only then are
 * its elements values of the fields that end here, otherwise it is one value as a whole. */
static truce_status keys_expand(const struct walk *walk, struct value array, uint32_t waiting,
                                bool unnested, const struct progress *before, uint32_t missing)
{
    struct progress progress[TRUCE_INDEX_FIELDS_MAX];
    struct fields elements = truce__fields(array);
    bool any = false;
    truce_status status = TRUCE_OK;

    memcpy(progress, before, walk->count * sizeof *progress);
    walk->keys->multikey = true;
    walk->keys->multikey_fields |= waiting;
    look_up_numbers(walk, array, waiting, progress);
    while (!status && truce__fields_next(&elements)) {
        any = true;
        status = walk_element(walk, elements.value, unnested ? elements.value : array, waiting,
                              progress, missing);
    }
    if (!any)
        status = walk_element(walk, undefined, undefined, waiting, progress, missing);
    return status;
}

/* ---- wildcard ------------------------------------------------------------------------------- */

static truce_status wildcard_leaf(struct index_keys *keys, const struct buffer *path,
                                  struct value value, bson_error_t *error)
{
    truce__key_append_path(&keys->bytes, (const char *)path->bytes, path->size);
    truce__key_append(&keys->bytes, value, false);
    return end_key(keys, error);
}

static bool keys_is_empty(struct value container)
{
    return container.data[4] == 0;
}

static truce_status wildcard_below(struct index_keys *keys, struct value container, bool is_root,
                                   struct buffer *path, bson_error_t *error);

/* One field (or element, if `in_array`) whose path stands in `path` already. */
static truce_status wildcard_value(struct index_keys *keys, struct value value, bool in_array,
                                   struct buffer *path, bson_error_t *error)
{
    bool is_array = value.type == BSON_TYPE_ARRAY;

    if (!truce__value_is_container(value) || (is_array && in_array))
        return wildcard_leaf(keys, path, value, error);
    if (is_array) {
        keys->multikey = true;
        keys->multikey_fields = 1;
    }
    if (keys_is_empty(value))
        return wildcard_leaf(keys, path, is_array ? undefined : value, error);
    return wildcard_below(keys, value, false, path, error);
}

static truce_status wildcard_below(struct index_keys *keys, struct value container, bool is_root,
                                   struct buffer *path, bson_error_t *error)
{
    bool in_array = container.type == BSON_TYPE_ARRAY;
    struct fields fields = truce__fields(container);
    truce_status status = TRUCE_OK;

    while (!status && truce__fields_next(&fields)) {
        size_t before = path->size;

        if (memchr(fields.key, '.', fields.key_length) || (is_root && !strcmp(fields.key, "_id")))
            continue; /* no query can name a field with a dot */
        if (!in_array) {
            if (!is_root)
                truce__buffer_append_byte(path, '.');
            truce__buffer_append(path, fields.key, fields.key_length);
        }
        status = wildcard_value(keys, fields.value, in_array, path, error);
        path->size = before;
    }
    return status;
}

/* Goes down to the root of the wildcard, through arrays of documents on the way. */
static truce_status wildcard_root(const struct index_field *field, uint32_t at, struct value value,
                                  bool in_array, struct index_keys *keys, struct buffer *path,
                                  bson_error_t *error)
{
    struct fields elements;
    truce_status status = TRUCE_OK;

    if (at == field->path.count)
        return wildcard_value(keys, value, in_array, path, error);
    if (value.type == BSON_TYPE_DOCUMENT) {
        const struct path_part *part = &field->path.parts[at];
        struct value next = truce__value_field(value, part->name, part->length);
        return next.type ? wildcard_root(field, at + 1, next, false, keys, path, error) : TRUCE_OK;
    }
    if (value.type != BSON_TYPE_ARRAY || in_array)
        return TRUCE_OK;
    keys->multikey = true;
    keys->multikey_fields = 1;
    elements = truce__fields(value);
    while (!status && truce__fields_next(&elements))
        status = wildcard_root(field, at, elements.value, true, keys, path, error);
    return status;
}

static truce_status wildcard_keys(const struct index_field *field, struct value document,
                                  struct index_keys *keys, bson_error_t *error)
{
    struct buffer path = {0};
    truce_status status;

    if (field->path.count == 0) {
        status = wildcard_below(keys, document, true, &path, error);
    } else {
        truce__buffer_append(&path, field->path.text, field->path.length);
        status = wildcard_root(field, 0, document, false, keys, &path, error);
    }
    truce__buffer_release(&path);
    return status;
}

/* ---- sorted, without repeats ---------------------------------------------------------------- */

struct slice {
    const uint8_t *bytes;
    size_t size;
};

static int compare_slices(const void *left, const void *right)
{
    const struct slice *a = left, *b = right;

    return truce__bytes_compare(a->bytes, a->size, b->bytes, b->size);
}

static void sort_keys(struct index_keys *keys)
{
    struct slice *slices;
    struct buffer sorted = {0};
    uint32_t count = keys->count;

    if (count < 2)
        return;
    slices = bson_malloc(count * sizeof *slices);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t start = i ? keys->ends[i - 1] : 0;
        slices[i] = (struct slice){keys->bytes.bytes + start, keys->ends[i] - start};
    }
    qsort(slices, count, sizeof *slices, compare_slices);
    keys->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (i && !compare_slices(&slices[i - 1], &slices[i]))
            continue;
        truce__buffer_append(&sorted, slices[i].bytes, slices[i].size);
        keys->ends[keys->count++] = (uint32_t)sorted.size;
    }
    truce__buffer_release(&keys->bytes);
    keys->bytes = sorted;
    bson_free(slices);
}

static void empty_keys(struct index_keys *keys)
{
    keys->bytes.size = 0;
    keys->count = 0;
    keys->multikey = false;
    keys->multikey_fields = 0;
}

static truce_status walk_document(const struct walk *walk, struct value document)
{
    struct progress progress[TRUCE_INDEX_FIELDS_MAX];

    truce_assert(walk->count > 0 && walk->count <= TRUCE_INDEX_FIELDS_MAX);
    for (uint32_t i = 0; i < walk->count; i++) {
        progress[i].at = 0;
        progress[i].by_number = truce__value_missing();
    }
    empty_keys(walk->keys);
    return walk_object(walk, document, progress, 0);
}

bool truce__fields_are_id(const struct index_field *fields, uint32_t count)
{
    return count == 1 && fields[0].path.text && !strcmp(fields[0].path.text, "_id");
}

static truce_status id_key(const struct walk *walk, struct value document)
{
    struct progress progress = {.fixed = truce__value_field(document, "_id", 3)};

    empty_keys(walk->keys);
    if (progress.fixed.type == VALUE_MISSING) {
        if (walk->sparse)
            return TRUCE_OK;
        progress.fixed = truce__value_null();
    }
    return emit(walk, &progress);
}

truce_status truce__fields_keys(const struct index_field *fields, uint32_t count, bool sparse,
                                struct value document, struct index_keys *keys, bson_error_t *error)
{
    struct walk walk = {fields, count, sparse, keys, error};
    truce_status status;

    if (truce__fields_are_id(fields, count))
        return id_key(&walk, document);
    status = walk_document(&walk, document);
    if (!status)
        sort_keys(keys);
    return status;
}

truce_status truce__index_keys(const struct index_spec *spec, struct value document,
                               struct index_keys *keys, bson_error_t *error)
{
    keys->bounded = true;
    if (spec->partial) {
        struct match_result found;
        truce_status status = truce__match_test(spec->partial, document, NULL, &found, error);

        if (status)
            return status;
        if (!found.matched) {
            empty_keys(keys);
            return TRUCE_OK;
        }
    }
    if (spec->fields[0].wildcard) {
        truce_status status;

        empty_keys(keys);
        status = wildcard_keys(&spec->fields[0], document, keys, error);
        if (!status)
            sort_keys(keys);
        return status;
    }
    return truce__fields_keys(spec->fields, spec->count, spec->sparse, document, keys, error);
}

void truce__index_keys_release(struct index_keys *keys)
{
    truce__buffer_release(&keys->bytes);
    bson_free(keys->ends);
    *keys = (struct index_keys){0};
}

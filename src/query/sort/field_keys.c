/*
 * The keys of a document by the fields of an index or a sort.
 *
 * A document without arrays on the paths has one key: for each field its value, or null for a
 * missing field. If a path leads through an array, the document has one key for each element:
 *
 *     fields {a.b: 1, c: 1}    {a: [{b: 1}, {b: 2}, 7], c: "x"}     (1,"x") (2,"x") (null,"x")
 *     fields {a: 1}            {a: [1, [2]]} has 1 and [2], {a: []} has undefined
 *     fields {a.1: 1}          {a: [5, 6]} has 6: a number names an element of an array
 *
 * The walk follows each field as far as it goes without entering an array. The fields that end
 * before an array must all wait for the same one ("parallel arrays" are refused). The walk then
 * continues from each element of this array with the rest of their paths:
 *
 *     walk:  for each field that is not settled, follow its path from `object`
 *              no value                       settled: null
 *              a value at the end of the path settled: the value
 *              an array                       waits for the array to be expanded
 *            no array?  one key.   otherwise walk again from each element
 *
 * An element of an array may be named by its number (`a.1.b`). The numbers may also be names of
 * fields of the elements (`{a: [{"1": {b: 5}}]}`). If a document has both, the path is ambiguous
 * and the document is refused, as MongoDB does (16746).
 *
 * Invariants:
 *   1. Each key has one encoding for each field, in the order of the fields.
 *   2. With `sparse`, a document has keys if at least one field was found; a stored null counts as
 *      found.
 *   3. The result is sorted and without duplicates, so that the keys of two versions of a document
 *      can be compared by merging.
 *   4. Each step of the walk either settles a field or uses up a part of its path. The walk ends
 *      after at most as many levels as the longest path has parts, plus one.
 *
 * The rules are those of MongoDB's BtreeKeyGenerator.
 */
#include "query/sort/field_keys.h"

#include "base/assert.h"
#include "base/limits.h"

#define CODE_AMBIGUOUS_FIELD 16746

/* The progress of the walk for one field. */
struct progress {
    /* The number of consumed path parts. If it is the number of all parts, the key is settled. */
    uint32_t at;
    /* The value, once the field is settled. */
    struct value fixed;
    /* The element that the next part names by number, in the array that the walk is expanding. */
    struct value by_number;
    /* The value to which the path leads from that element. */
    struct value beyond;
    /* The number of path parts that are used up at `beyond`. */
    uint32_t beyond_at;
};

struct walk {
    const struct key_field *fields;
    uint32_t count;
    bool sparse;
    struct field_keys *keys;
    bson_error_t *error;
};

static const struct value undefined = {NULL, 0, BSON_TYPE_UNDEFINED};
static const uint8_t empty_bytes[] = {5, 0, 0, 0, 0};
static const struct value empty = {empty_bytes, sizeof empty_bytes, BSON_TYPE_DOCUMENT};

truce_status truce__field_keys_end(struct field_keys *keys, bson_error_t *error)
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

/* Returns the next value of a field: from `object`, or from the element that its number names. */
static truce_status next_value(const struct walk *walk, uint32_t i, struct value object,
                               struct progress *progress, bool *nested, struct value *found)
{
    const struct path *path = &walk->fields[i].path;
    const struct path_part *part = &path->parts[progress->at];
    bool by_name = truce__value_field(object, part->name, part->length).type != VALUE_MISSING;
    bool by_number = progress->by_number.type != VALUE_MISSING;

    if (by_name && by_number)
        return truce__refuse(CODE_AMBIGUOUS_FIELD, walk->error,
                             "'%.*s' in the index path '%s' is ambiguous: it is an element of an "
                             "array, and also a field of one of its elements",
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

static truce_status field_keys_emit(const struct walk *walk, const struct progress *progress)
{
    for (uint32_t i = 0; i < walk->count; i++)
        truce__key_append(&walk->keys->bytes, progress[i].fixed, walk->fields[i].descending);
    return truce__field_keys_end(walk->keys, walk->error);
}

static bool field_path_is_complete(const struct walk *walk, const struct progress *progress,
                                   uint32_t i)
{
    return progress[i].at == walk->fields[i].path.count;
}

static truce_status keys_expand(const struct walk *walk, struct value array, uint32_t waiting,
                                bool unnested, const struct progress *before, uint32_t not_found);

/* Walks from an object. `missing` fields were not found so far. */
static truce_status walk_object(const struct walk *walk, struct value object,
                                struct progress *progress, uint32_t missing)
{
    struct value array = truce__value_missing();
    uint32_t waiting = 0;
    bool nested = false;

    for (uint32_t i = 0; i < walk->count; i++) {
        struct value found;
        truce_status status;

        if (field_path_is_complete(walk, progress, i))
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
    return walk->sparse && missing == walk->count ? TRUCE_OK : field_keys_emit(walk, progress);
}

/* Looks up the elements that the waiting fields name by number, once for all elements of the
 * array. */
static void look_up_numbers(const struct walk *walk, struct value array, uint32_t waiting,
                            struct progress *progress)
{
    for (uint32_t i = 0; i < walk->count; i++) {
        const struct path *path = &walk->fields[i].path;

        progress[i].by_number = truce__value_missing();
        if (!(waiting & 1u << i) || field_path_is_complete(walk, progress, i))
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
        if (waiting & 1u << i && field_path_is_complete(walk, progress, i))
            progress[i].fixed = terminal;
    }
    return walk_object(walk, element.type == BSON_TYPE_DOCUMENT ? element : empty, progress,
                       missing);
}

/* Walks from each element of an array. `unnested` means that the array is not itself a numbered
 * element of an array. Only then its elements are values of the fields that end here; otherwise the
 * array is one value. */
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

void truce__field_keys_sort(struct field_keys *keys)
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

void truce__field_keys_clear(struct field_keys *keys)
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
    truce__field_keys_clear(walk->keys);
    return walk_object(walk, document, progress, 0);
}

bool truce__fields_are_id(const struct key_field *fields, uint32_t count)
{
    return count == 1 && fields[0].path.text && !strcmp(fields[0].path.text, "_id");
}

static truce_status id_key(const struct walk *walk, struct value document)
{
    struct progress progress = {.fixed = truce__value_field(document, "_id", 3)};

    truce__field_keys_clear(walk->keys);
    if (progress.fixed.type == VALUE_MISSING) {
        if (walk->sparse)
            return TRUCE_OK;
        progress.fixed = truce__value_null();
    }
    return field_keys_emit(walk, &progress);
}

truce_status truce__field_keys(const struct key_field *fields, uint32_t count, bool sparse,
                               struct value document, struct field_keys *keys, bson_error_t *error)
{
    struct walk walk = {fields, count, sparse, keys, error};
    truce_status status;

    if (truce__fields_are_id(fields, count))
        return id_key(&walk, document);
    status = walk_document(&walk, document);
    if (!status)
        truce__field_keys_sort(keys);
    return status;
}

void truce__field_keys_release(struct field_keys *keys)
{
    truce__buffer_release(&keys->bytes);
    bson_free(keys->ends);
    *keys = (struct field_keys){0};
}

/*
 * A join table.
 *
 *     documents   {k: 1, ...}  {k: [2, 1]}  {}           in the order in which they came
 *     entries     null -> 2   1 -> 0   1 -> 1   2 -> 1   by key, then by document
 *
 * The entries of a document are the keys that an index of the path would have for it
 * (bson/keys.h). A document in which the path equals a value has one of the keys of the value: its
 * own; for null undefined, too; for an array that of its first element, too, or undefined if there
 * is none. The other way round it need not be so, hence the filter is tested on what was found.
 */
#include "query/aggregate/join_table.h"

#include <stdlib.h>

#include "base/assert.h"
#include "query/match/match.h"

struct entry {
    const uint8_t *key;
    uint32_t size, document;
};

struct join_table {
    struct arena arena; /* documents and keys */
    struct value *documents;
    struct entry *entries;
    size_t documents_count, documents_room, entries_count, entries_room;
};

size_t truce__join_table_bytes(const struct join_table *table)
{
    return table->arena.bytes + table->documents_room * sizeof *table->documents +
           table->entries_room * sizeof *table->entries;
}

static int table_compare_entries(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    int order = truce__bytes_compare(a->key, a->size, b->key, b->size);

    return order ? order : (a->document > b->document) - (a->document < b->document);
}

/* ---- building ------------------------------------------------------------------------------- */

static void table_add_entry(struct join_table *table, const uint8_t *key, uint32_t size)
{
    if (table->entries_count == table->entries_room) {
        table->entries_room = table->entries_room ? 2 * table->entries_room : 64;
        table->entries = bson_realloc(table->entries, table->entries_room * sizeof *table->entries);
    }
    table->entries[table->entries_count++] = (struct entry){
        truce__arena_copy(&table->arena, key, size), size, (uint32_t)table->documents_count};
}

static void table_add_document(struct join_table *table, struct value document,
                               const struct index_keys *keys)
{
    for (uint32_t i = 0; i < keys->count; i++) {
        uint32_t start = i ? keys->ends[i - 1] : 0;

        table_add_entry(table, keys->bytes.bytes + start, keys->ends[i] - start);
    }
    if (table->documents_count == table->documents_room) {
        table->documents_room = table->documents_room ? 2 * table->documents_room : 64;
        table->documents =
            bson_realloc(table->documents, table->documents_room * sizeof *table->documents);
    }
    document.data = truce__arena_copy(&table->arena, document.data, document.size);
    table->documents[table->documents_count++] = document;
}

/* `*possible` false: there can be no table. */
static truce_status table_read_all(struct join_table *table, struct stream *foreign,
                                   const struct index_field *field, size_t memory_max,
                                   bool *possible, bson_error_t *error)
{
    struct index_keys keys = {0};
    truce_status status = TRUCE_OK;

    *possible = true;
    while (!status && *possible) {
        struct value document;

        status = foreign->next(foreign, &document, error);
        if (status || !truce__stream_is_document(document))
            break;
        status = truce__stream_spend(foreign, error);
        if (status)
            break;
        *possible = !truce__fields_keys(field, 1, false, document, &keys, NULL);
        if (*possible)
            table_add_document(table, document, &keys);
        *possible = *possible && truce__join_table_bytes(table) <= memory_max &&
                    table->documents_count < UINT32_MAX;
    }
    truce__index_keys_release(&keys);
    return status;
}

void truce__join_table_free(struct join_table *table)
{
    if (!table)
        return;
    truce__arena_release(&table->arena);
    bson_free(table->documents);
    bson_free(table->entries);
    bson_free(table);
}

truce_status truce__join_table_new(struct stream *foreign, const char *path, size_t memory_max,
                                   struct join_table **table, bson_error_t *error)
{
    struct join_table *made = bson_malloc0(sizeof *made);
    struct index_field field = {0};
    bool possible = false;
    truce_status status = truce__path_parse(path, strlen(path), &field.path, error);

    if (!status)
        status = table_read_all(made, foreign, &field, memory_max, &possible, error);
    truce__path_release(&field.path);
    if (status || !possible) {
        truce__join_table_free(made);
        made = NULL;
    } else if (made->entries_count) {
        qsort(made->entries, made->entries_count, sizeof *made->entries, table_compare_entries);
    }
    *table = made;
    return status;
}

/* ---- finding -------------------------------------------------------------------------------- */

struct join_stream {
    struct stream base;
    const struct join_table *table;
    struct match *match;
    uint32_t *found; /* numbers of documents, ascending */
    size_t count, room, at;
};

static void table_add_found(struct join_stream *stream, uint32_t document)
{
    if (stream->count == stream->room) {
        stream->room = stream->room ? 2 * stream->room : 8;
        stream->found = bson_realloc(stream->found, stream->room * sizeof *stream->found);
    }
    stream->found[stream->count++] = document;
}

static void find_key(struct join_stream *stream, struct value value)
{
    const struct join_table *table = stream->table;
    struct buffer key = {0};
    size_t low = 0, high = table->entries_count;

    truce__key_append(&key, value, false);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct entry *entry = &table->entries[middle];

        if (truce__bytes_compare(entry->key, entry->size, key.bytes, key.size) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    while (low < table->entries_count &&
           !truce__bytes_compare(table->entries[low].key, table->entries[low].size, key.bytes,
                                 key.size))
        table_add_found(stream, table->entries[low++].document);
    truce__buffer_release(&key);
}

static void table_find_value(struct join_stream *stream, struct value value)
{
    static const struct value undefined = {NULL, 0, BSON_TYPE_UNDEFINED};
    struct fields fields;

    find_key(stream, value);
    if (value.type == BSON_TYPE_NULL)
        find_key(stream, undefined);
    if (value.type != BSON_TYPE_ARRAY)
        return;
    fields = truce__fields(value);
    find_key(stream, truce__fields_next(&fields) ? fields.value : undefined);
}

static int table_compare_numbers(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

    return (a > b) - (a < b);
}

/* In the order in which they came, each once. */
static void table_arrange(struct join_stream *stream)
{
    size_t kept = 0;

    if (!stream->count)
        return;
    qsort(stream->found, stream->count, sizeof *stream->found, table_compare_numbers);
    for (size_t i = 1; i < stream->count; i++) {
        if (stream->found[i] != stream->found[kept])
            stream->found[++kept] = stream->found[i];
    }
    stream->count = kept + 1;
}

static truce_status join_next(struct stream *base, struct value *document, bson_error_t *error)
{
    struct join_stream *stream = (struct join_stream *)base;
    struct match_result result = {0};
    truce_status status = TRUCE_OK;

    *document = truce__value_missing();
    while (!status && !result.matched && stream->at < stream->count) {
        status = truce__stream_spend(base, error);
        if (status)
            break;
        *document = stream->table->documents[stream->found[stream->at++]];
        truce__arena_reset(&base->arena);
        status = truce__match_test(stream->match, *document, &base->context, &result, error);
    }
    if (!result.matched)
        *document = truce__value_missing();
    return status;
}

static void join_release(struct stream *base)
{
    struct join_stream *stream = (struct join_stream *)base;

    truce__match_free(stream->match);
    bson_free(stream->found);
}

truce_status truce__join_table_find(const struct stage_run *run, const struct join_table *table,
                                    const bson_t *values, const bson_t *filter,
                                    struct stream **stream, bson_error_t *error)
{
    struct fields fields = truce__fields(truce__value_document(values));
    struct match *match = NULL;
    struct join_stream *made;
    truce_status status = truce__match_new(filter, &match, error);

    if (status)
        return status;
    made = truce__stream_new(sizeof *made, run, NULL, join_next, join_release);
    made->table = table;
    made->match = match;
    while (truce__fields_next(&fields))
        table_find_value(made, fields.value);
    table_arrange(made);
    *stream = &made->base;
    return TRUCE_OK;
}

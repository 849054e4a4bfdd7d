/*
 * $lookup, in two forms, which may be combined:
 *
 *     {from, localField, foreignField, as}    one query for each document: foreignField equals one
 *                                             of the values at localField (none: null)
 *     {from, let, pipeline, as}               one run of a pipeline for each document; variables
 *                                             of `let` have values of the document
 *
 * The store applies the filter with which a pipeline starts, so that an index may serve it, unless
 * the filter uses variables. A pipeline that depends neither on the document nor on random numbers
 * has the same result for each document: it runs once, and its result is stored.
 *
 * A pipeline that begins with $documents reads no collection, and the stage has no `from`.
 *
 * Variables: a stage within a $lookup sees the variables of all $lookups around it, the outermost
 * first.
 *
 *     names    outer ... | let ...
 *     values   outer ... | let ..., evaluated for the current document
 */
#include "query/aggregate/aggregate_lookup.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/limits.h"
#include "bson/array.h"
#include "bson/builder.h"
#include "bson/field_path.h"
#include "bson/refuse_value.h"
#include "query/aggregate/stage.h"
#include "query/expression/expression.h"
#include "query/match/match.h"

/* ---- the table ------------------------------------------------------------------------------- */

/*
 * A join table.
 *
 *     documents   {k: 1, ...}  {k: [2, 1]}  {}           in the order in which they came
 *     entries     null -> 2   1 -> 0   1 -> 1   2 -> 1   by key, then by document
 *
 * The entries of a document are the keys that an index of the path would have for it
 * (bson/key_encoding.h). If the path of a document equals a value, the document has one of the keys
 * of the value. These are the value's own key; for null, also that of undefined; and for an array,
 * also that of its first element (of undefined if it is empty). The reverse need not be true, and
 * therefore the filter is tested on each document that was found.
 */

struct entry {
    const uint8_t *key;
    uint32_t size, document;
};

struct join_table {
    /* The memory of the documents and of the keys. */
    struct arena arena;
    struct value *documents;
    struct entry *entries;
    size_t documents_count, documents_room, entries_count, entries_room;
};

static size_t join_table_bytes(const struct join_table *table)
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

/* Copies a document into the table, and adds an entry for each of its keys. */
static void table_add_document(struct join_table *table, struct value document,
                               const struct field_keys *keys)
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

/* Reads the joined collection into a table. Sets *possible to false if there can be no table. */
static truce_status table_read_all(struct join_table *table, struct stream *foreign,
                                   const struct key_field *field, size_t memory_max, bool *possible,
                                   bson_error_t *error)
{
    struct field_keys keys = {0};
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
        *possible = !truce__field_keys(field, 1, false, document, &keys, NULL);
        if (*possible)
            table_add_document(table, document, &keys);
        *possible = *possible && join_table_bytes(table) <= memory_max &&
                    table->documents_count < UINT32_MAX;
    }
    truce__field_keys_release(&keys);
    return status;
}

/* Frees the table, which may be NULL. */
static void join_table_free(struct join_table *table)
{
    if (!table)
        return;
    truce__arena_release(&table->arena);
    bson_free(table->documents);
    bson_free(table->entries);
    bson_free(table);
}

/* Reads `foreign` to its end. *table is NULL with TRUCE_OK if there can be no table: the documents
 * have more than `memory_max` bytes, or one of them cannot be indexed by the path. No part of the
 * path may be a number, because it could name an element or a field. */
static truce_status join_table_new(struct stream *foreign, const char *path, size_t memory_max,
                                   struct join_table **table, bson_error_t *error)
{
    struct join_table *made = bson_malloc0(sizeof *made);
    struct key_field field = {0};
    bool possible = false;
    truce_status status = truce__path_parse(path, strlen(path), &field.path, error);

    if (!status)
        status = table_read_all(made, foreign, &field, memory_max, &possible, error);
    truce__path_release(&field.path);
    if (status || !possible) {
        join_table_free(made);
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
    /* The numbers of the documents that were found, ascending. */
    uint32_t *found;
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

/* Finds the documents that have the key of the value, by a binary search. */
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

/* Sorts the found documents into their input order and removes duplicates. */
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

/* Returns the next of the found documents that matches the filter. */
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

/* Opens a stream of the documents in which the path equals one of the list `values`, in their input
 * order. `filter` must say the same, and is tested on each document. The stream borrows the
 * table. */
static truce_status join_table_find(const struct stage_run *run, const struct join_table *table,
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

/* ---- finds ----------------------------------------------------------------------------------- */

/* The number of queries of the collection before a table is made. */
#define FINDS_FIRST 2

/* ---- values --------------------------------------------------------------------------------- */

void truce__join_add(struct join_values *values, struct value value)
{
    struct array list = {.to = &values->list, .count = values->count};

    truce__array_add(&list, value);
    values->count = list.count;
}

/* Collects the values at a path for a join, also those in arrays, as a filter with this path would
 * find them. */
static void find_collect(struct join_values *values, struct value value, const struct path *path,
                         uint32_t at)
{
    struct fields elements;

    if (value.type == BSON_TYPE_ARRAY) {
        if (at < path->count && path->parts[at].index >= 0) {
            struct value element =
                truce__value_field(value, path->parts[at].name, path->parts[at].length);

            if (element.type)
                find_collect(values, element, path, at + 1);
        }
        elements = truce__fields(value);
        while (truce__fields_next(&elements)) {
            if (at == path->count)
                truce__join_add(values, elements.value);
            else if (elements.value.type == BSON_TYPE_DOCUMENT)
                find_collect(values, elements.value, path, at);
        }
    } else if (at == path->count) {
        truce__join_add(values, value);
    } else if (value.type == BSON_TYPE_DOCUMENT) {
        value = truce__value_field(value, path->parts[at].name, path->parts[at].length);
        if (value.type)
            find_collect(values, value, path, at + 1);
    }
}

void truce__join_collect(struct join_values *values, struct value document, const struct path *path)
{
    find_collect(values, document, path, 0);
}

/* ---- the filter ----------------------------------------------------------------------------- */

/* Appends {path: {$eq: value}}. */
static void append_equality(bson_t *filter, const char *path, struct value value)
{
    bson_t condition;

    BSON_APPEND_DOCUMENT_BEGIN(filter, path, &condition);
    truce__value_append(&condition, "$eq", 3, value);
    bson_append_document_end(filter, &condition);
}

/* Appends {$or: [{path: {$eq: value}}, ...]}; not $in, which would use a regular expression as a
 * pattern. */
static void append_alternatives(bson_t *filter, const char *path, const bson_t *list)
{
    struct fields values = truce__fields(truce__value_document(list));
    bson_t alternatives, one;

    BSON_APPEND_ARRAY_BEGIN(filter, "$or", &alternatives);
    while (truce__fields_next(&values)) {
        bson_append_document_begin(&alternatives, values.key, (int)values.key_length, &one);
        append_equality(&one, path, values.value);
        bson_append_document_end(&alternatives, &one);
    }
    bson_append_array_end(filter, &alternatives);
}

static bool has_regex(const bson_t *list)
{
    struct fields values = truce__fields(truce__value_document(list));

    while (truce__fields_next(&values)) {
        if (values.value.type == BSON_TYPE_REGEX)
            return true;
    }
    return false;
}

/* Makes the filter for the documents in which the path equals one of the values. */
static void find_make_filter(const char *path, const struct join_values *values, bson_t *filter)
{
    bson_t condition;

    if (values->count == 1) {
        append_equality(filter, path,
                        truce__value_field(truce__value_document(&values->list), "0", 1));
    } else if (has_regex(&values->list)) {
        append_alternatives(filter, path, &values->list);
    } else {
        BSON_APPEND_DOCUMENT_BEGIN(filter, path, &condition);
        BSON_APPEND_ARRAY(&condition, "$in", &values->list);
        bson_append_document_end(filter, &condition);
    }
}

/* ---- finding -------------------------------------------------------------------------------- */

static bool wants_table(const struct join_finder *finder, const struct join_on *on,
                        const struct aggregate_environment *environment)
{
    return finder->finds == FINDS_FIRST && !on->is_numbered &&
           !(environment->indexed && environment->indexed(environment->arg, on->from, on->path));
}

static truce_status make_table(struct join_finder *finder, const struct join_on *on,
                               const struct stage_run *run, bson_error_t *error)
{
    struct stream *all = NULL;
    truce_status status = truce__stream_of_collection(run, on->from, NULL, &all, error);

    if (!status)
        status = join_table_new(all, on->path,
                                truce__stage_spill(run->environment, run->context).memory_max,
                                &finder->table, error);
    truce__stream_free(all);
    return status;
}

truce_status truce__join_find(struct join_finder *finder, const struct join_on *on,
                              const struct stage_run *run, const struct join_values *values,
                              struct stream **found, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER;
    truce_status status = TRUCE_OK;

    find_make_filter(on->path, values, &filter);
    if (wants_table(finder, on, run->environment))
        status = make_table(finder, on, run, error);
    finder->finds++;
    if (!status && finder->table)
        status = join_table_find(run, finder->table, &values->list, &filter, found, error);
    else if (!status)
        status = truce__stream_of_collection(run, on->from, &filter, found, error);
    bson_destroy(&filter);
    return status;
}

size_t truce__join_finder_bytes(const struct join_finder *finder)
{
    return finder->table ? join_table_bytes(finder->table) : 0;
}

void truce__join_finder_release(struct join_finder *finder)
{
    join_table_free(finder->table);
}

/* ---- compiled ------------------------------------------------------------------------------- */

/* Returns whether some part of the path consists of digits. */
static bool find_has_number(const char *path)
{
    for (; *path; path += strcspn(path, "."), path += *path == '.') {
        size_t length = strcspn(path, ".");

        if (length && strspn(path, "0123456789") >= length)
            return true;
    }
    return false;
}

truce_status truce__join_on_path(struct join_on *on, struct value path, bson_error_t *error)
{
    size_t length = 0;

    on->path = bson_strdup(truce__stage_text(path, &length));
    on->is_numbered = find_has_number(on->path);
    return truce__field_path_check(on->path, length, error);
}

void truce__join_on_release(struct join_on *on)
{
    bson_free(on->path);
    bson_free(on->from);
}

/* ---- $lookup --------------------------------------------------------------------------------- */

#define VARIABLES_MAX       100
#define CODE_TOO_MUCH_FOUND 4568
#define BYTES_OF_STEP       256

/* ---- compiled ------------------------------------------------------------------------------- */

struct lookup_stage {
    /* The collection and the fields of the join. `from` is "" if the pipeline has documents of its
     * own. The path is NULL if $lookup has no foreignField. */
    struct join_on on;
    struct path as, local;
    /* The number of variables of the surrounding pipelines, and that number with the variables of
     * `let`. */
    uint32_t outer, count;
    const char *names[VARIABLES_MAX + 1];
    struct expression *let[VARIABLES_MAX];
    /* Owns the bytes of `names`. */
    bson_t *let_source;
    /* The pipeline of the stage, or NULL. */
    struct pipeline *pipeline;
    /* The result is the same for each document, so it is computed once. */
    bool is_constant;
};

struct lookup_stream {
    struct stream base;
    const struct lookup_stage *stage;
    struct aggregate_environment environment;
    struct value values[VARIABLES_MAX];
    /* The result for all documents, an array in `keeping`, or VALUE_MISSING before it is
     * computed. */
    struct value kept;
    struct arena keeping;
    struct join_finder finder;
};

/* ---- running -------------------------------------------------------------------------------- */

bool truce__filter_uses_expression(struct value filter)
{
    struct fields fields = truce__fields(filter);

    while (truce__fields_next(&fields)) {
        if (!strcmp(fields.key, "$expr") || (truce__value_is_container(fields.value) &&
                                             truce__filter_uses_expression(fields.value)))
            return true;
    }
    return false;
}

/* Opens the documents whose foreign field equals a local value. */
static truce_status find_equal(struct lookup_stream *stream, const struct stage_run *run,
                               struct value document, struct stream **foreign, bson_error_t *error)
{
    const struct lookup_stage *stage = stream->stage;
    struct join_values values = JOIN_VALUES_NONE;
    truce_status status;

    truce__join_collect(&values, document, &stage->local);
    if (values.count == 0)
        truce__join_add(&values, truce__value_null());
    status = truce__join_find(&stream->finder, &stage->on, run, &values, foreign, error);
    bson_destroy(&values.list);
    return status;
}

/* Opens the documents that the current document is joined with. */
static truce_status open_foreign(struct lookup_stream *stream, struct value document,
                                 struct stream **foreign, bson_error_t *error)
{
    const struct lookup_stage *stage = stream->stage;
    struct query_context context = stream->base.context;
    struct stage_run run = {&stream->environment, &context, 0};
    const bson_t *first = stage->pipeline ? truce__pipeline_first_filter(stage->pipeline) : NULL;
    uint32_t skipped = 0;
    truce_status status;

    context.variables = stream->values;
    if (stage->on.path) {
        status = find_equal(stream, &run, document, foreign, error);
    } else {
        if (first && truce__filter_uses_expression(truce__value_document(first)))
            first = NULL;
        skipped = first ? 1 : 0;
        if (stage->on.from[0])
            status = truce__stream_of_collection(&run, stage->on.from, first, foreign, error);
        else
            status = TRUCE_OK;
    }
    if (!status && stage->pipeline)
        status = truce__pipeline_stack(stage->pipeline, skipped, &run, *foreign, foreign, error);
    return status;
}

static size_t held_by(const struct lookup_stream *stream)
{
    return stream->keeping.bytes + truce__join_finder_bytes(&stream->finder);
}

/* Reads all documents that match one document, into an array. Fails if they exceed the maximum. */
static truce_status join_read_all(struct lookup_stream *stream, struct stream *foreign,
                                  struct arena *arena, struct value *found, bson_error_t *error)
{
    struct builder builder;
    truce_status status;

    truce__builder_begin(&builder, arena, arena->bytes + 2 * (size_t)TRUCE_STAGE_MEMORY_MAX,
                         BSON_TYPE_ARRAY);
    for (;;) {
        struct value document;

        status = foreign->next(foreign, &document, error);
        if (status || document.type == VALUE_MISSING)
            break;
        truce__builder_element(&builder, document);
        status = truce__stream_hold(&stream->base, held_by(stream), error);
        if (status)
            break;
        if (builder.size > TRUCE_STAGE_MEMORY_MAX)
            return truce__refuse(CODE_TOO_MUCH_FOUND, error,
                                 "$lookup: the documents of '%s' that match one document have more "
                                 "than %d bytes",
                                 stream->stage->on.from, TRUCE_STAGE_MEMORY_MAX);
    }
    return status ? status : truce__builder_finish(&builder, found, error);
}

/* Evaluates the variables of `let` for a document. */
static truce_status join_evaluate_let(struct lookup_stream *stream, struct value document,
                                      bson_error_t *error)
{
    const struct lookup_stage *stage = stream->stage;
    struct query_context *context = &stream->base.context;

    for (uint32_t i = stage->outer; i < stage->count; i++) {
        truce_status status = truce__expression_evaluate(
            stage->let[i], document, context->variables, context, &stream->values[i], error);

        if (status)
            return status;
    }
    return TRUCE_OK;
}

/* Returns the array of documents that a document is joined with. If the result is the same for all
 * documents, computes it only once. */
static truce_status find_foreign(struct lookup_stream *stream, struct value document,
                                 struct value *found, bson_error_t *error)
{
    bool keep = stream->stage->is_constant;
    struct arena *arena = keep ? &stream->keeping : &stream->base.arena;
    struct stream *foreign = NULL;
    truce_status status;

    if (stream->kept.type) {
        *found = stream->kept;
        return TRUCE_OK;
    }
    status = join_evaluate_let(stream, document, error);
    if (!status)
        status = open_foreign(stream, document, &foreign, error);
    if (status)
        return status;
    status = join_read_all(stream, foreign, arena, found, error);
    truce__stream_free(foreign);
    if (!status && keep)
        stream->kept = *found;
    return status;
}

/* Returns the next document of the input, with the array of the documents that it is joined
 * with. */
static truce_status lookup_next(struct stream *base, struct value *document, bson_error_t *error)
{
    struct lookup_stream *stream = (struct lookup_stream *)base;
    struct value found;
    truce_status status = base->input->next(base->input, document, error);

    if (status || !truce__stream_is_document(*document))
        return status;
    truce__arena_reset(&base->arena);
    status = find_foreign(stream, *document, &found, error);
    if (!status)
        status = truce__budget_spend(base->context.budget,
                                     (document->size + found.size) / BYTES_OF_STEP, error);
    if (!status)
        status = truce__document_with(&base->arena, document, &stream->stage->as, found, error);
    return status ? status : truce__stream_hold(base, held_by(stream), error);
}

static void lookup_release(struct stream *base)
{
    struct lookup_stream *stream = (struct lookup_stream *)base;

    truce__join_finder_release(&stream->finder);
    truce__arena_release(&stream->keeping);
}

static truce_status lookup_open(const void *data, const struct stage_run *run, struct stream *input,
                                struct stream **stream, bson_error_t *error)
{
    const struct lookup_stage *stage = data;
    struct lookup_stream *made =
        truce__stream_new(sizeof *made, run, input, lookup_next, lookup_release);

    made->stage = stage;
    made->environment = *run->environment;
    if (stage->outer)
        memcpy(made->values, run->context->variables, stage->outer * sizeof *made->values);
    *stream = &made->base;
    return TRUCE_OK;
}

/* ---- parsing $lookup ------------------------------------------------------------------------ */

static void lookup_free(void *data)
{
    struct lookup_stage *stage = data;

    for (uint32_t i = stage->outer; i < stage->count; i++)
        truce__expression_free(stage->let[i]);
    truce__pipeline_free(stage->pipeline);
    truce__path_release(&stage->as);
    truce__path_release(&stage->local);
    bson_destroy(stage->let_source);
    truce__join_on_release(&stage->on);
    bson_free(stage);
}

static bool lookup_keeps(const void *data, const char *field, uint32_t length)
{
    return !truce__path_begins(&((const struct lookup_stage *)data)->as, field, length);
}

static const struct stage_kind lookup_kind = {
    .open = lookup_open, .free = lookup_free, .keeps = lookup_keeps};

struct lookup_options {
    struct value from, as, local, foreign, let, pipeline;
};

/* Reads the options of $lookup without checking them. */
static truce_status join_read_options(struct value argument, struct lookup_options *options,
                                      bson_error_t *error)
{
    const struct stage_option known[] = {
        {"from", &options->from},
        {"as", &options->as},
        {"localField", &options->local},
        {"foreignField", &options->foreign},
        {"let", &options->let},
        {"pipeline", &options->pipeline},
        {NULL, NULL},
    };

    return truce__stage_options("$lookup", CODE_FAILED_TO_PARSE, argument, known, error);
}

static truce_status join_check_text(const char *name, struct value value, bool needed,
                                    bson_error_t *error)
{
    size_t length = 0;

    if (!value.type && !needed)
        return TRUCE_OK;
    if (!truce__stage_text(value, &length) || length == 0)
        return truce__refuse_value(CODE_FAILED_TO_PARSE, value, error,
                                   "$lookup's '%s' must be a string that is not empty", name);
    return TRUCE_OK;
}

/* Checks the options of $lookup and which of them exclude each other. */
static truce_status join_check_options(const struct lookup_options *options, bson_error_t *error)
{
    bool fields = options->local.type || options->foreign.type || !options->pipeline.type, own;
    truce_status status =
        truce__stage_own_documents("$lookup", options->pipeline, options->from, &own, error);

    if (!status)
        status = join_check_text("from", options->from, !own, error);
    if (!status && own && fields)
        status =
            truce__refuse(CODE_COMMAND_NOT_SUPPORTED, error,
                          "$lookup: without 'from', localField and foreignField are not allowed: "
                          "use a $match with $expr");
    if (!status)
        status = join_check_text("as", options->as, true, error);
    if (!status)
        status = join_check_text("localField", options->local, fields, error);
    if (!status)
        status = join_check_text("foreignField", options->foreign, fields, error);
    if (!status && options->let.type && options->let.type != BSON_TYPE_DOCUMENT)
        status = truce__stage_refuse(CODE_FAILED_TO_PARSE, options->let,
                                     "$lookup's let must be a document", error);
    if (!status && options->let.type && !options->pipeline.type)
        status = truce__refuse(CODE_FAILED_TO_PARSE, error, "$lookup's let needs a pipeline");
    if (!status && options->pipeline.type && options->pipeline.type != BSON_TYPE_ARRAY)
        status = truce__stage_refuse(CODE_TYPE_MISMATCH, options->pipeline,
                                     "$lookup's pipeline must be an array", error);
    return status;
}

/* Compiles the variables of `let`, after those of the surrounding stages. */
static truce_status parse_let(struct lookup_stage *stage, const char *const *outer,
                              struct value let, bson_error_t *error)
{
    struct fields fields;

    while (outer && outer[stage->outer]) {
        stage->names[stage->outer] = outer[stage->outer];
        stage->outer++;
    }
    stage->count = stage->outer;
    if (!let.type)
        return TRUCE_OK;
    stage->let_source = truce__stage_copy(let);
    fields = truce__fields(truce__value_document(stage->let_source));
    while (truce__fields_next(&fields)) {
        truce_status status =
            truce__expression_variable_check(fields.key, fields.key_length, error);

        if (!status && stage->count == VARIABLES_MAX)
            status = truce__refuse(CODE_FAILED_TO_PARSE, error,
                                   "nested $lookup stages have at most %d variables together",
                                   VARIABLES_MAX);
        if (!status)
            status = truce__expression_new(fields.value, outer, &stage->let[stage->count], error);
        if (status)
            return status;
        stage->names[stage->count++] = fields.key;
    }
    return TRUCE_OK;
}

/* Returns whether an expression in the container depends on random numbers. */
static bool is_random(struct value container)
{
    struct fields fields = truce__fields(container);

    while (truce__fields_next(&fields)) {
        if (!strcmp(fields.key, "$sample") || !strcmp(fields.key, "$rand") ||
            (truce__value_is_container(fields.value) && is_random(fields.value)))
            return true;
    }
    return false;
}

/* Compiles the options into the stage. After a failure, the stage is incomplete and the caller
 * frees it. */
static truce_status parse_lookup(struct stage_parser *parser, const struct lookup_options *options,
                                 struct lookup_stage *stage, bson_error_t *error)
{
    size_t length;
    truce_status status = truce__stage_path(options->as, &stage->as, error);

    stage->on.from =
        bson_strdup(options->from.type ? truce__stage_text(options->from, &length) : "");
    if (!status && options->local.type)
        status = truce__stage_path(options->local, &stage->local, error);
    if (!status && options->foreign.type)
        status = truce__join_on_path(&stage->on, options->foreign, error);
    if (!status)
        status = parse_let(stage, parser->variables, options->let, error);
    if (status || !options->pipeline.type)
        return status;
    stage->is_constant =
        !stage->on.path && stage->count == stage->outer && !is_random(options->pipeline);
    return truce__pipeline_compile(parser, options->pipeline, stage->names, CONTEXT_LOOKUP,
                                   &stage->pipeline, error);
}

truce_status truce__stage_lookup(struct stage_parser *parser, struct value argument,
                                 bson_error_t *error)
{
    struct lookup_options options = {0};
    struct lookup_stage *stage;
    truce_status status;

    if (argument.type != BSON_TYPE_DOCUMENT)
        return truce__stage_refuse(CODE_FAILED_TO_PARSE, argument, "$lookup must be a document",
                                   error);
    status = join_read_options(argument, &options, error);
    if (!status)
        status = join_check_options(&options, error);
    if (status)
        return status;
    stage = bson_malloc0(sizeof *stage);
    status = parse_lookup(parser, &options, stage, error);
    if (status)
        lookup_free(stage);
    else
        truce__stage_push(parser, &lookup_kind, stage);
    return status;
}

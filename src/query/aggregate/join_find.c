#include "query/aggregate/join_find.h"

#include "bson/field_path.h"
#include "query/aggregate/join_table.h"

#define FINDS_FIRST 2 /* they look into the collection before a table is made */

/* ---- values --------------------------------------------------------------------------------- */

void truce__join_add(struct join_values *values, struct value value)
{
    truce__value_append_element(&values->list, &values->count, value);
}

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

/* {path: {$eq: value}} */
static void append_equality(bson_t *filter, const char *path, struct value value)
{
    bson_t condition;

    BSON_APPEND_DOCUMENT_BEGIN(filter, path, &condition);
    truce__value_append(&condition, "$eq", 3, value);
    bson_append_document_end(filter, &condition);
}

/* {$or: [{path: {$eq: value}}, ...]}: $in would take a regular expression for a pattern */
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
                        const struct aggregate_world *world)
{
    return finder->finds == FINDS_FIRST && !on->is_numbered &&
           !(world->indexed && world->indexed(world->arg, on->from, on->path));
}

static truce_status make_table(struct join_finder *finder, const struct join_on *on,
                               const struct stage_run *run, bson_error_t *error)
{
    struct stream *all = NULL;
    truce_status status = truce__stream_of_collection(run, on->from, NULL, &all, error);

    if (!status)
        status = truce__join_table_new(all, on->path,
                                       truce__stage_spill(run->world, run->context).memory_max,
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
    if (wants_table(finder, on, run->world))
        status = make_table(finder, on, run, error);
    finder->finds++;
    if (!status && finder->table)
        status = truce__join_table_find(run, finder->table, &values->list, &filter, found, error);
    else if (!status)
        status = truce__stream_of_collection(run, on->from, &filter, found, error);
    bson_destroy(&filter);
    return status;
}

size_t truce__join_finder_bytes(const struct join_finder *finder)
{
    return finder->table ? truce__join_table_bytes(finder->table) : 0;
}

void truce__join_finder_release(struct join_finder *finder)
{
    truce__join_table_free(finder->table);
}

/* ---- compiled ------------------------------------------------------------------------------- */

/* Is some part of the path made of digits? */
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

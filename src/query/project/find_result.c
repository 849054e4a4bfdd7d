/* The result of a find for one document (find_result.h). */
#include "query/project/find_result.h"

#include <string.h>

#include "query/index/index_set.h"

#define RECORD_ID "$recordId"

struct find_result {
    /* The projection, or NULL for the whole document. */
    struct project *project;
    bool key, record_id;
    /* Makes the key for the result, or NULL if the result has {} as the key. */
    struct keyer *keyer;
};

/* Returns whether the keys can be shown. Keys of a wildcard index cannot, because they begin with a
 * path. */
static bool has_keys(const struct find_result_options *options)
{
    return options->key && options->index && !options->index->fields[0].wildcard;
}

truce_status truce__find_result_new(const struct find_result_options *options,
                                    struct find_result **find, bson_error_t *error)
{
    bool projects = options->projection && !bson_empty(options->projection);
    struct find_result *made;
    truce_status status = TRUCE_OK;

    *find = NULL;
    if (!projects && !options->key && !options->record_id)
        return TRUCE_OK;
    made = bson_malloc0(sizeof *made);
    made->key = options->key;
    made->record_id = options->record_id;
    if (projects)
        status = truce__project_new(options->projection, options->match, &made->project, error);
    if (!status && has_keys(options))
        status = truce__keyer_new(options->index, options->min, options->max, &made->keyer, error);
    if (status)
        truce__find_result_free(made);
    else
        *find = made;
    return status;
}

void truce__find_result_free(struct find_result *find)
{
    if (!find)
        return;
    truce__project_free(find->project);
    truce__keyer_free(find->keyer);
    bson_free(find);
}

static truce_status find_result_make_key(struct keyer *keyer, struct value document, bson_t *result,
                                         bson_error_t *error)
{
    const uint8_t *key = NULL;
    size_t size = 0;
    truce_status status = keyer ? truce__keyer_key(keyer, document, &key, &size, error) : TRUCE_OK;

    if (!status && key)
        truce__index_key_show(&keyer->spec, document, key, size, result);
    else
        bson_init(result);
    return status;
}

/* Appends the number of the record to a document. It replaces a field of the document with that
 * name. */
static void append_record(bson_t *result, int64_t record)
{
    bson_t own;

    if (bson_has_field(result, RECORD_ID)) {
        bson_init(&own);
        bson_copy_to_excluding_noinit(result, &own, RECORD_ID, NULL);
        bson_destroy(result);
        bson_steal(result, &own);
    }
    BSON_APPEND_INT64(result, RECORD_ID, record);
}

truce_status truce__find_result_make(struct find_result *find, struct value document,
                                     const struct match_result *found, int64_t record,
                                     struct query_context *context, bson_t *result,
                                     bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_t whole;

    if (find->key)
        return find_result_make_key(find->keyer, document, result, error);
    if (find->project) {
        status = truce__project_apply(find->project, document, found, context, result, error);
    } else {
        truce__value_bson(document, &whole);
        bson_copy_to(&whole, result);
    }
    if (!status && find->record_id)
        append_record(result, record);
    return status;
}

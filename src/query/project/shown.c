/* The result of a find for one document (shown.h). */
#include "query/project/shown.h"

#include <string.h>

#include "query/index/index_set.h"

#define RECORD_ID "$recordId"

struct shown {
    /* NULL: the whole document */
    struct project *project;
    bool key, record_id;
    /* of `key`; NULL: the key is {} */
    struct keyer *keyer;
};

/* Returns whether the keys can be shown. Those of a wildcard cannot: they begin with a path. */
static bool has_keys(const struct shown_wanted *wanted)
{
    return wanted->key && wanted->index && !wanted->index->fields[0].wildcard;
}

truce_status truce__shown_new(const struct shown_wanted *wanted, struct shown **shown,
                              bson_error_t *error)
{
    bool projects = wanted->projection && !bson_empty(wanted->projection);
    struct shown *made;
    truce_status status = TRUCE_OK;

    *shown = NULL;
    if (!projects && !wanted->key && !wanted->record_id)
        return TRUCE_OK;
    made = bson_malloc0(sizeof *made);
    made->key = wanted->key;
    made->record_id = wanted->record_id;
    if (projects)
        status = truce__project_new(wanted->projection, wanted->match, &made->project, error);
    if (!status && has_keys(wanted))
        status = truce__keyer_new(wanted->index, wanted->min, wanted->max, &made->keyer, error);
    if (status)
        truce__shown_free(made);
    else
        *shown = made;
    return status;
}

void truce__shown_free(struct shown *shown)
{
    if (!shown)
        return;
    truce__project_free(shown->project);
    truce__keyer_free(shown->keyer);
    bson_free(shown);
}

static truce_status shown_make_key(struct keyer *keyer, struct value document, bson_t *result,
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

/* A field of that name in the document gives way to the number of the record. */
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

truce_status truce__shown_make(struct shown *shown, struct value document,
                               const struct match_result *found, int64_t record,
                               struct query_context *context, bson_t *result, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_t whole;

    if (shown->key)
        return shown_make_key(shown->keyer, document, result, error);
    if (shown->project) {
        status = truce__project_apply(shown->project, document, found, context, result, error);
    } else {
        truce__value_bson(document, &whole);
        bson_copy_to(&whole, result);
    }
    if (!status && shown->record_id)
        append_record(result, record);
    return status;
}

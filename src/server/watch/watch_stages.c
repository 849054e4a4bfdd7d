/*
 * The stages behind $changeStream: which there may be; and the last of them, $changeStreamSplitLargeEvent.
 *
 * An event that is larger than EVENT_BYTES is told in fragments: documents that have each some of its fields, whole, and say how many
 * there are. The fields are taken in the order of their sizes, so the first fragment has as many of them as go into one.
 *
 *     {_id, splitEvent: {fragment: 1, of: 2}, operationType, ns, documentKey, fullDocument}
 *     {_id, splitEvent: {fragment: 2, of: 2}, fullDocumentBeforeChange}
 *
 * Invariants:
 *  1. The same event is split in the same way, whoever reads it, and when: so a stream goes on behind any fragment.
 *  2. All fields of the event but `_id` stand in one fragment each.
 */
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "bson/value.h"
#include "engine/engine.h"
#include "query/aggregate/aggregate.h"
#include "server/watch/watch.h"

#define SPLIT_STAGE    "$changeStreamSplitLargeEvent"
#define FRAGMENT_BYTES 256 /* of a fragment without its fields, at most */

/* ---- which there may be ------------------------------------------------------------------------ */

static truce_status check_split(const bson_iter_t *stage, bool last, bson_error_t *error)
{
    bson_iter_t inner;

    if (!BSON_ITER_HOLDS_DOCUMENT(stage) || !bson_iter_recurse(stage, &inner) ||
        bson_iter_next(&inner))
        return truce__refuse(7182800, error, SPLIT_STAGE " spec should be an empty object");
    if (!last)
        return truce__refuse(7182802, error, SPLIT_STAGE " must be the last stage in the pipeline");
    return TRUCE_OK;
}

truce_status watch_stages_take(const bson_t *stages, bson_t *rest, bool *splits,
                               bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    uint32_t left = bson_count_keys(stages), count = 0;
    bson_iter_t at, stage;

    *splits = false;
    bson_init(rest);
    (void)bson_iter_init(&at, stages);
    while (!status && bson_iter_next(&at)) {
        left--;
        if (BSON_ITER_HOLDS_DOCUMENT(&at) && bson_iter_recurse(&at, &stage) &&
            bson_iter_next(&stage) && !strcmp(bson_iter_key(&stage), SPLIT_STAGE)) {
            status = check_split(&stage, !left, error);
            *splits = !status;
        } else {
            truce__value_append_element(rest, &count, truce__value_of_iter(&at));
        }
    }
    return status;
}

truce_status watch_stages_check(const bson_t *stages, bson_error_t *error)
{
    static const char *const allowed[] = {"$match", "$project",     "$addFields",   "$set",
                                          "$unset", "$replaceRoot", "$replaceWith", "$redact"};
    bson_iter_t at, stage;

    (void)bson_iter_init(&at, stages);
    while (bson_iter_next(&at)) {
        bool is_allowed = false;

        (void)(bson_iter_recurse(&at, &stage) && bson_iter_next(&stage)); /* it was compiled */
        for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
            is_allowed = is_allowed || !strcmp(bson_iter_key(&stage), allowed[i]);
        if (!is_allowed)
            return truce__refuse(CODE_ILLEGAL_OPERATION, error,
                                 "%s is not permitted in a $changeStream pipeline",
                                 bson_iter_key(&stage));
    }
    return TRUCE_OK;
}

/* ---- running them ----------------------------------------------------------------------------------- */

struct one {
    struct source base; /* first */
    const bson_t *document;
};

static truce_status next_of_one(struct source *base, const bson_t **document, bson_error_t *error)
{
    struct one *one = (struct one *)base;

    (void)error;
    *document = one->document;
    one->document = NULL;
    return TRUCE_OK;
}

static void free_one(struct source *base)
{
    bson_free(base);
}

static truce_status stages_check_id(const bson_t *event, const bson_t *told, bson_error_t *error)
{
    struct value before = truce__value_field(truce__value_document(event), "_id", 3);
    struct value after = truce__value_field(truce__value_document(told), "_id", 3);

    if (truce__value_identical(before, after))
        return TRUCE_OK;
    return truce__refuse(CODE_CHANGE_STREAM_FATAL, error,
                         "Encountered an event whose _id field, which contains the resume token, "
                         "was modified by the pipeline. Modifying the _id field of an event makes "
                         "it impossible to resume the stream from that point");
}

truce_status watch_stages_run(struct pipeline *pipeline, struct engine *engine, struct arena *arena,
                              const bson_t *event, bson_t **told, bson_error_t *error)
{
    struct one *one = bson_malloc0(sizeof *one);
    struct query_context context = truce__engine_context(engine, arena);
    const bson_t *document = NULL;
    struct source *output;
    struct budget budget;
    truce_status status;

    *told = NULL;
    *one = (struct one){{.next = next_of_one, .free = free_one}, event};
    truce__engine_budget(engine, 0, &budget);
    context.budget = &budget;
    status = truce__pipeline_open(pipeline, 0, &one->base, NULL, &context, &output, error);
    if (status)
        return status;
    status = output->next(output, &document, error);
    if (!status && document)
        status = stages_check_id(event, document, error);
    if (!status && document)
        *told = bson_copy(document);
    output->free(output);
    return status;
}

/* ---- fragments ------------------------------------------------------------------------------------ */

struct part {
    struct fields field;
    size_t size;
};

static int by_size(const void *a, const void *b)
{
    const struct part *left = a, *right = b;
    size_t common = left->field.key_length < right->field.key_length ? left->field.key_length
                                                                     : right->field.key_length;
    int order;

    if (left->size != right->size)
        return left->size < right->size ? -1 : 1;
    order = memcmp(left->field.key, right->field.key, common);
    return order ? order : (int)left->field.key_length - (int)right->field.key_length;
}

/* All fields but _id, the smallest first; bson_free. */
static struct part *stages_parts_of(const bson_t *event, size_t *count)
{
    struct part *parts = bson_malloc0((bson_count_keys(event) + 1) * sizeof *parts);
    struct fields fields = truce__fields(truce__value_document(event));

    *count = 0;
    while (truce__fields_next(&fields)) {
        if (fields.key_length == 3 && !memcmp(fields.key, "_id", 3))
            continue;
        parts[*count].field = fields;
        parts[(*count)++].size = fields.key_length + 2 + fields.value.size;
    }
    qsort(parts, *count, sizeof *parts, by_size);
    return parts;
}

/* The number of the first part behind the fragment that begins with `from`. */
static size_t stages_end_of(const struct part *parts, size_t count, size_t from)
{
    size_t size = FRAGMENT_BYTES, at = from;

    do
        size += parts[at++].size;
    while (at < count && size + parts[at].size <= EVENT_BYTES);
    return at;
}

truce_status watch_fragments(const bson_t *event, int *fragments, bson_error_t *error)
{
    size_t count;
    struct part *parts = stages_parts_of(event, &count);
    truce_status status = TRUCE_OK;

    *fragments = 0;
    for (size_t at = 0; at < count; at = stages_end_of(parts, count, at))
        ++*fragments;
    if (!count || *fragments > WATCH_FRAGMENTS_MAX)
        status = truce__refuse(7182502, error, "the event is too large, and cannot be split");
    else if (parts[count - 1].size > EVENT_BYTES - FRAGMENT_BYTES)
        status = truce__refuse(7182500, error,
                               "Splitting change event failed: fragment size %zu is greater than "
                               "maximum allowed fragment size %d",
                               parts[count - 1].size + FRAGMENT_BYTES, EVENT_BYTES);
    bson_free(parts);
    return status;
}

bson_t *watch_fragment(const bson_t *event, int fragments, const struct watch_token *token)
{
    bson_t *fragment = bson_new(), inner;
    size_t count, at = 0, end;
    struct part *parts = stages_parts_of(event, &count);

    for (int i = 0; i < token->fragment; i++)
        at = stages_end_of(parts, count, at);
    BSON_APPEND_DOCUMENT_BEGIN(fragment, "_id", &inner);
    watch_token_append(token, &inner);
    bson_append_document_end(fragment, &inner);
    BSON_APPEND_DOCUMENT_BEGIN(fragment, "splitEvent", &inner);
    BSON_APPEND_INT32(&inner, "fragment", token->fragment + 1);
    BSON_APPEND_INT32(&inner, "of", fragments);
    bson_append_document_end(fragment, &inner);
    for (end = stages_end_of(parts, count, at); at < end; at++)
        truce__value_append(fragment, parts[at].field.key, parts[at].field.key_length,
                            parts[at].field.value);
    bson_free(parts);
    return fragment;
}

/*
 * $sort over documents that come from an index in the order of a find's sort.
 *
 * A find sorts a missing field like null. The stage sorts missing fields and undefined before null,
 * and the index has undefined first. The order is therefore right already, except in stretches of
 * documents that agree in the first fields and have no value (missing, undefined, or null) in the
 * next field:
 *
 *     $sort {a: 1, b: 1}     {a: 1, b: 2}   {a: 2}   {a: 2, b: null}   {a: 2}   {a: 2, b: 7}
 *                                           \____________ sorted ___________/
 *
 *     PASSING   one document after the other, in input order
 *        | a document without a value in a field of the sort
 *     GATHERING all documents that agree with it, into a sorter; the first other one is held back
 *        |
 *     GIVING    the sorter's documents, then the one that was held back; then PASSING
 *
 * If each field has a value, nothing is gathered, so a $limit after the stage ends the reading
 * early.
 *
 * Invariant: documents that agree up to a field without a value are adjacent in the input, because
 * the keys of undefined and null are neighbors (bson/key_encoding.c).
 */
#include "base/assert.h"
#include "query/aggregate/stage.h"

struct ordered_stream {
    struct stream base;
    const struct sort *sort;
    struct spill_options spill;
    uint64_t limit;
    /* The sorter of the current stretch, while GATHERING and GIVING. */
    struct sorter *sorter;
    /* `stretch` encodes the fields in which the gathered documents agree. `other` is scratch
     * memory. */
    struct buffer stretch, other;
    /* The document that is held back, or empty. */
    struct buffer held;
};

static struct value ordered_value_at(const struct path *path, struct value value)
{
    for (uint32_t i = 0; i < path->count && value.type != VALUE_MISSING; i++)
        value = value.type == BSON_TYPE_DOCUMENT
                    ? truce__value_field(value, path->parts[i].name, path->parts[i].length)
                    : truce__value_missing();
    return value;
}

static bool ordered_is_nothing(struct value value)
{
    return value.type == VALUE_MISSING || value.type == BSON_TYPE_UNDEFINED ||
           value.type == BSON_TYPE_NULL;
}

/* Encodes the fields up to the first without a value. Returns false if all fields have a value. */
static bool find_stretch(const struct sort *sort, struct value document, struct buffer *stretch)
{
    stretch->size = 0;
    for (uint32_t i = 0; i < sort->count; i++) {
        struct value value = ordered_value_at(&sort->fields[i].path, document);

        if (ordered_is_nothing(value))
            return true;
        truce__key_append(stretch, value, false);
    }
    return false;
}

static bool ordered_is_same(const struct buffer *a, const struct buffer *b)
{
    return a->size == b->size && (!a->size || !memcmp(a->bytes, b->bytes, a->size));
}

static truce_status ordered_add(struct ordered_stream *stream, struct value document,
                                bson_error_t *error)
{
    return truce__sorter_add(stream->sorter, document, document.data, document.size, error);
}

/* Begins a stretch with `document` and gathers the whole stretch into the sorter. */
static truce_status ordered_gather(struct ordered_stream *stream, struct value document,
                                   bson_error_t *error)
{
    struct stream *input = stream->base.input;
    truce_status status;

    truce__sorter_new(stream->sort, stream->limit, &stream->spill, &stream->sorter);
    status = ordered_add(stream, document, error);
    stream->held.size = 0;
    while (!status) {
        status = input->next(input, &document, error);
        /* Only a stage of a $facet returns STREAM_PAUSED, and this input is a collection. */
        truce_assert(document.type != STREAM_PAUSED);
        if (status || document.type == VALUE_MISSING)
            break;
        if (!find_stretch(stream->sort, document, &stream->other) ||
            !ordered_is_same(&stream->stretch, &stream->other)) {
            truce__buffer_append(&stream->held, document.data, document.size);
            break;
        }
        status = ordered_add(stream, document, error);
    }
    return status ? status : truce__sorter_sort(stream->sorter, error);
}

/* Returns the next document of the sorter, or a missing value if there is no sorter or it is
 * empty. */
static truce_status ordered_give(struct ordered_stream *stream, struct value *document,
                                 bson_error_t *error)
{
    const void *payload = NULL;
    uint32_t size = 0;
    truce_status status = TRUCE_OK;

    if (stream->sorter)
        status = truce__sorter_next(stream->sorter, &payload, &size, error);
    *document =
        payload ? (struct value){payload, size, BSON_TYPE_DOCUMENT} : truce__value_missing();
    if (!status && !payload) {
        truce__sorter_free(stream->sorter);
        stream->sorter = NULL;
    }
    return status;
}

/* Returns the next document in the order of the whole sort. Gathers and sorts each stretch of
 * documents without a value in a field of the sort. */
static truce_status ordered_next(struct stream *base, struct value *document, bson_error_t *error)
{
    struct ordered_stream *stream = (struct ordered_stream *)base;
    truce_status status = ordered_give(stream, document, error);

    if (status || document->type != VALUE_MISSING)
        return status;
    if (stream->held.size) {
        /* Copies the document before `held` is reused: a stretch that begins with it may hold back
         * another one. */
        truce__arena_reset(&base->arena);
        *document =
            (struct value){truce__arena_copy(&base->arena, stream->held.bytes, stream->held.size),
                           (uint32_t)stream->held.size, BSON_TYPE_DOCUMENT};
        stream->held.size = 0;
    } else {
        status = base->input->next(base->input, document, error);
    }
    if (status || !truce__stream_is_document(*document) ||
        !find_stretch(stream->sort, *document, &stream->stretch))
        return status;
    status = ordered_gather(stream, *document, error);
    return status ? status : ordered_give(stream, document, error);
}

static void ordered_release(struct stream *base)
{
    struct ordered_stream *stream = (struct ordered_stream *)base;

    truce__sorter_free(stream->sorter);
    truce__buffer_release(&stream->stretch);
    truce__buffer_release(&stream->other);
    truce__buffer_release(&stream->held);
}

struct stream *truce__stream_sort_ordered(const struct stage_run *run, struct stream *input,
                                          const struct sort *sort)
{
    struct ordered_stream *stream =
        truce__stream_new(sizeof *stream, run, input, ordered_next, ordered_release);

    stream->sort = sort;
    stream->limit = run->limit_ahead;
    stream->spill = truce__stage_spill(run->environment, run->context);
    return &stream->base;
}

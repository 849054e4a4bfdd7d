/* Single writes of the documents that take part: F1 to F4, F7 of transfer.c. */
#include <string.h>

#include "base/id.h"
#include "patterns/transfer/transfer.h"
#include "truce/id.h"

/* ---- filters and updates ---------------------------------------------------------------------- */

static void append_condition(bson_t *filter, const char *field, const char *operator,
                             const bson_value_t * value)
{
    bson_t inner;

    BSON_APPEND_DOCUMENT_BEGIN(filter, field, &inner);
    BSON_APPEND_VALUE(&inner, operator, value);
    bson_append_document_end(filter, &inner);
}

/* {_id, marks: T or not T, _intent: absent} */
static void step_begin_filter(const struct transfer_step *step, bool marked, bson_t *filter)
{
    const char *marks = step->transfers->layout.marks;

    BSON_APPEND_VALUE(filter, "_id", &step->entry->id);
    if (marked)
        BSON_APPEND_VALUE(filter, marks, step->transfer);
    else
        append_condition(filter, marks, "$ne", step->transfer);
    truce__intent_append_absent(filter);
}

/* Appends an operator with the fields that it has in `update` (which may be NULL), and one more. */
static void step_append_operator(const bson_t *update, const char *operator, const char * field,
                                 const bson_value_t *value, bson_t *merged)
{
    bson_t inner, there;

    BSON_APPEND_DOCUMENT_BEGIN(merged, operator, & inner);
    if (update && truce__value_subdocument(update, operator, & there))
        bson_concat(&inner, &there);
    BSON_APPEND_VALUE(&inner, field, value);
    bson_append_document_end(merged, &inner);
}

struct addition {
    const char *operator, * field;
    const bson_value_t *value;
};

/* The update (NULL: none) with the additions, of different operators. */
static void step_merge(const bson_t *update, const struct addition *additions, size_t count,
                       bson_t *merged)
{
    struct fields fields;

    for (size_t i = 0; i < count; i++)
        step_append_operator(update, additions[i].operator, additions[i].field, additions[i].value,
                             merged);
    if (!update)
        return;
    fields = truce__fields(truce__value_document(update));
    while (truce__fields_next(&fields)) {
        if (!bson_has_field(merged, fields.key))
            truce__value_append(merged, fields.key, fields.key_length, fields.value);
    }
}

static truce_status step_write_one(const struct transfer_step *step, const bson_t *filter,
                                   const bson_t *update, const struct addition *additions,
                                   size_t count, bool *matched, bson_error_t *error)
{
    truce_write_result result = {0};
    bson_t merged = BSON_INITIALIZER;
    bson_oid_t rev;
    bson_value_t fresh;
    struct addition all[3];
    truce_status status;

    truce__id_new(&rev);
    fresh = truce_id_oid(&rev);
    memcpy(all, additions, count * sizeof *additions);
    all[count] = (struct addition){"$set", "_rev", &fresh};
    step_merge(update, all, count + 1, &merged);
    status = truce_update(step->transfers->store, step->entry->collection, filter, &merged, NULL,
                          &result, error);
    *matched = !status && result.matched;
    truce_write_result_release(&result);
    bson_destroy(&merged);
    return status;
}

/* ---- looks ------------------------------------------------------------------------------------ */

/* The document, when no commit holds it. OK with *there false: there is none. */
static truce_status step_look(const struct transfer_step *step, bson_t *document, bool *there,
                              bson_error_t *error)
{
    truce_status status = truce__journal_read(step->worker, step->entry->collection,
                                              &step->entry->id, document, error);

    *there = !status;
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static bool has_mark(const struct transfer_step *step, const bson_t *document)
{
    bson_t filter = BSON_INITIALIZER;
    bool marked;

    BSON_APPEND_VALUE(&filter, step->transfers->layout.marks, step->transfer);
    if (truce__guard_matches(&filter, document, &marked, NULL))
        marked = false;
    bson_destroy(&filter);
    return marked;
}

static bool fence_moved(const struct transfer_step *step, const bson_t *document)
{
    bson_value_t there = truce__transfer_fence(step->transfers, document);
    bson_t pair = BSON_INITIALIZER;
    struct value a, b;
    bool moved;

    if (there.value_type != BSON_TYPE_EOD)
        BSON_APPEND_VALUE(&pair, "a", &there);
    if (step->fence.value_type != BSON_TYPE_EOD)
        BSON_APPEND_VALUE(&pair, "b", &step->fence);
    a = truce__value_field(truce__value_document(&pair), "a", 1);
    b = truce__value_field(truce__value_document(&pair), "b", 1);
    moved = a.type != b.type ? !(a.type && b.type && truce__value_equal(a, b))
                             : a.type && !truce__value_equal(a, b);
    bson_destroy(&pair);
    return moved;
}

/* ---- forward ---------------------------------------------------------------------------------- */

static void step_refused(enum transfer_made *made, bson_error_t *error, const char *format,
                         const char *text)
{
    *made = TRANSFER_REFUSED;
    (void)truce__fail(TRUCE_REFUSED, error, format, text);
}

/* Why it matched nothing. *settled false: no reason stands there any more; again. */
static truce_status step_judge(const struct transfer_step *step, enum transfer_made *made,
                               bool *settled, bson_error_t *error)
{
    bool there, matches = true;
    bson_t document;
    char text[200];
    truce_status status = step_look(step, &document, &there, error);

    truce__transfer_show(step->entry->collection, &step->entry->id, text, sizeof text);
    *settled = !status;
    if (!status && !there) {
        step_refused(made, error, "%s does not exist", text);
    } else if (!status && has_mark(step, &document)) {
        *made = TRANSFER_MADE;
    } else if (!status && fence_moved(step, &document)) {
        *made = TRANSFER_MOVED;
    } else if (!status) {
        if (step->entry->has_guard)
            status = truce__guard_matches(&step->entry->guard, &document, &matches, error);
        *settled = !matches;
        if (!matches)
            step_refused(made, error, "%s does not match the guard", text);
    }
    bson_destroy(&document);
    return status;
}

static void step_make_filter(const struct transfer_step *step, bson_t *filter)
{
    const bson_value_t no = {.value_type = BSON_TYPE_BOOL};
    bson_t guards;

    step_begin_filter(step, false, filter);
    if (step->fence.value_type == BSON_TYPE_EOD)
        append_condition(filter, step->transfers->layout.fence, "$exists", &no);
    else
        BSON_APPEND_VALUE(filter, step->transfers->layout.fence, &step->fence);
    if (step->entry->has_guard) {
        BSON_APPEND_ARRAY_BEGIN(filter, "$and", &guards);
        BSON_APPEND_DOCUMENT(&guards, "0", &step->entry->guard);
        bson_append_array_end(filter, &guards);
    }
}

truce_status truce__transfer_make(const struct transfer_step *step, enum transfer_made *made,
                                  bson_error_t *error)
{
    const struct addition mark = {"$push", step->transfers->layout.marks, step->transfer};
    bson_t filter = BSON_INITIALIZER;
    bson_error_t why = {0};
    bool settled = false;
    truce_status status = TRUCE_OK;

    step_make_filter(step, &filter);
    for (int round = 0; !status && !settled; round++) {
        if (round > 1)
            status = truce__worker_wait(step->worker, "a document of a transfer", error);
        if (!status)
            status = step_write_one(step, &filter, &step->entry->effect, &mark, 1, &settled, &why);
        *made = TRANSFER_MADE;
        if (status == TRUCE_INVALID || status == TRUCE_LIMIT || status == TRUCE_DUPLICATE) {
            step_refused(made, error, "%s", why.message);
            bson_destroy(&filter);
            return TRUCE_OK;
        }
        if (truce__repeatable(status))
            status = TRUCE_OK; /* the mark tells */
        else if (status && error)
            *error = why;
        if (!status && !settled)
            status = step_judge(step, made, &settled, error);
    }
    bson_destroy(&filter);
    return status;
}

/* ---- marks and fences ------------------------------------------------------------------------- */

truce_status truce__transfer_unmark(const struct transfer_step *step, const bson_t *undo,
                                    bool *was_there, bson_error_t *error)
{
    const bson_value_t one = {.value_type = BSON_TYPE_INT64, .value.v_int64 = 1};
    const struct addition additions[] = {{"$pull", step->transfers->layout.marks, step->transfer},
                                         {"$inc", step->transfers->layout.fence, &one}};
    bson_t filter = BSON_INITIALIZER;
    truce_status status;

    step_begin_filter(step, true, &filter);
    status = step_write_one(step, &filter, undo, additions, 2, was_there, error);
    bson_destroy(&filter);
    return status;
}

truce_status truce__transfer_unmarked(const struct transfer_step *step, bool *settled,
                                      bson_error_t *error)
{
    bson_t document;
    bool there;
    truce_status status = step_look(step, &document, &there, error);

    *settled = !status && (!there || !has_mark(step, &document));
    bson_destroy(&document);
    return status;
}

truce_status truce__transfer_fence_off(const struct transfer_step *step, bool *fenced,
                                       bson_error_t *error)
{
    const bson_value_t one = {.value_type = BSON_TYPE_INT64, .value.v_int64 = 1};
    const struct addition fence = {"$inc", step->transfers->layout.fence, &one};
    bson_t filter = BSON_INITIALIZER, document;
    bool there;
    truce_status status;

    step_begin_filter(step, false, &filter);
    status = step_write_one(step, &filter, NULL, &fence, 1, fenced, error);
    if (!status && !*fenced) {
        status = step_look(step, &document, &there, error);
        *fenced = !status && !there; /* nothing can come to a document that is not there */
        bson_destroy(&document);
    }
    bson_destroy(&filter);
    return status;
}

/* Drives a transfer from its current state to its end: the single writes and their order. */
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/field.h"
#include "base/object_id.h"
#include "patterns/transfer/transfer.h"
#include "truce/id.h"

/* ---- single writes --------------------------------------------------------------------------- */

/* The writes of the documents that take part (TF1 to TF4 and TF7 of transfer.c). */

/* ---- filters and updates --------------------------------------------------------------------- */

static void append_condition(bson_t *filter, const char *field, const char *operator,
                             const bson_value_t * value)
{
    bson_t inner;

    BSON_APPEND_DOCUMENT_BEGIN(filter, field, &inner);
    BSON_APPEND_VALUE(&inner, operator, value);
    bson_append_document_end(filter, &inner);
}

/* Begins the filter {_id, marks: T or not T, _intent: absent}. */
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

/* Appends an operator with the fields that it has in `update` (which may be NULL) and one more. */
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

/* Merges the update (NULL for none) with the additions, which have different operators. */
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

/* Sends one update with the additions and a new _rev (TF7). `count` is at most 2. Sets *matched if
 * the document matched. */
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

/* ---- reads ----------------------------------------------------------------------------------- */

/* Reads the document when no commit holds it. If the document does not exist, the result is
 * TRUCE_OK with *there false. */
static truce_status step_read_document(const struct transfer_step *step, bson_t *document,
                                       bool *there, bson_error_t *error)
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

/* Returns whether the fence of the document differs from the one that was read. A missing fence
 * equals only a missing fence. */
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

/* ---- forward --------------------------------------------------------------------------------- */

static void step_refused(enum transfer_made *made, bson_error_t *error, const char *format,
                         const char *text)
{
    *made = TRANSFER_REFUSED;
    (void)truce__fail(TRUCE_REFUSED, error, format, text);
}

/* Finds out why the write matched nothing. Sets *settled to false if the reason is gone, so that
 * the write should be sent again. */
static truce_status step_check(const struct transfer_step *step, enum transfer_made *made,
                               bool *settled, bson_error_t *error)
{
    bool there, matches = true;
    bson_t document;
    char text[200];
    truce_status status = step_read_document(step, &document, &there, error);

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
            step_refused(made, error, "%s does not match its guard", text);
    }
    bson_destroy(&document);
    return status;
}

/* Makes the filter of an effect: the document without the mark, with the fence as read, and under
 * the guard (TF1, TF2). */
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

/* Makes one entry's effect and mark (TF1, TF2). A refusal returns TRUCE_OK and sets *made; `error`
 * then has the reason. */
static truce_status transfer_make(const struct transfer_step *step, enum transfer_made *made,
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
        /* The outcome is unknown, so the mark decides. */
        if (truce__repeatable(status))
            status = TRUCE_OK;
        else if (status && error)
            *error = why;
        if (!status && !settled)
            status = step_check(step, made, &settled, error);
    }
    bson_destroy(&filter);
    return status;
}

/* ---- marks and fences ------------------------------------------------------------------------ */

static truce_status transfer_unmark(const struct transfer_step *step, const bson_t *undo,
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

/* Looks for the mark of the transfer in the document. Sets `settled` if there is no mark, or no
 * document. */
static truce_status transfer_unmarked(const struct transfer_step *step, bool *settled,
                                      bson_error_t *error)
{
    bson_t document;
    bool there;
    truce_status status = step_read_document(step, &document, &there, error);

    *settled = !status && (!there || !has_mark(step, &document));
    bson_destroy(&document);
    return status;
}

/* Raises the fence of a document without the mark (TF4). Sets *fenced to false if the mark exists
 * now, or a commit held the document. */
static truce_status transfer_fence_off(const struct transfer_step *step, bool *fenced,
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
        status = step_read_document(step, &document, &there, error);
        /* A document that does not exist needs no fence. */
        *fenced = !status && !there;
        bson_destroy(&document);
    }
    bson_destroy(&filter);
    return status;
}

/* ---- the order of the steps ------------------------------------------------------------------ */

static const char *const state_names[] = {
    [TRANSFER_INITIAL] = "initial",     [TRANSFER_PENDING] = "pending",
    [TRANSFER_COMMITTED] = "committed", [TRANSFER_APPLIED] = "applied",
    [TRANSFER_DONE] = "done",           [TRANSFER_CANCELING] = "canceling",
    [TRANSFER_CANCELED] = "canceled",
};

struct drive {
    truce_transfers *transfers;
    const bson_value_t *id;
    struct worker worker;
    struct transfer_plan plan;
    /* The documents of the plan, or NULL before the plan is made. Owned. */
    struct transfer_document *documents;
    /* The transfer as it was last read or inserted. */
    bson_t current;
    /* The state of the transfer, which this caller may have changed since `current` was read. */
    enum transfer_state state;
    uint32_t rounds;
};

/* ---- states ---------------------------------------------------------------------------------- */

enum transfer_state truce__transfer_state(const bson_t *document)
{
    const char *text = truce__field_text(document, "state");

    for (size_t i = TRANSFER_INITIAL; i < sizeof state_names / sizeof *state_names; i++) {
        if (!strcmp(text, state_names[i]))
            return (enum transfer_state)i;
    }
    /* The recipe also spells the state with two l. */
    return !strcmp(text, "cancelled") ? TRANSFER_CANCELED : TRANSFER_NONE;
}

truce_status truce__transfer_other(const truce_transfers *transfers, const bson_value_t *id,
                                   bson_error_t *error)
{
    char text[200];

    return truce__fail(TRUCE_DUPLICATE, error, "%s already exists with other content",
                       truce__transfer_show(transfers->collection, id, text, sizeof text));
}

truce_status truce__transfer_answer(const truce_transfers *transfers, const bson_t *document,
                                    bson_error_t *error)
{
    const char *reason = truce__field_text(document, "reason");
    bson_value_t id = truce__document_id(document);
    char text[200];

    if (truce__transfer_state(document) == TRANSFER_DONE)
        return TRUCE_OK;
    return truce__fail(TRUCE_REFUSED, error, "%s is canceled: %s",
                       truce__transfer_show(transfers->collection, &id, text, sizeof text),
                       reason[0] ? reason : "it was canceled");
}

void truce__transfer_enters(const truce_transfers *transfers, enum transfer_state state,
                            const char *reason, bson_t *document)
{
    int64_t now_ms = truce__clock_wall_ms();

    BSON_APPEND_UTF8(document, "state", state_names[state]);
    BSON_APPEND_DATE_TIME(document, "lastModified", now_ms);
    if (reason)
        BSON_APPEND_UTF8(document, "reason", reason);
    if (state != TRANSFER_DONE && state != TRANSFER_CANCELED)
        return;
    BSON_APPEND_DATE_TIME(document, "ended", now_ms);
    if (transfers->layout.keep_ms >= 0)
        BSON_APPEND_DATE_TIME(document, "expires",
                              truce__date_after(now_ms, transfers->layout.keep_ms));
}

/* Changes the state by a write that compares the old one (TF6). Sets *changed to false if the
 * transfer is in another state, or the outcome is unknown. */
static truce_status drive_enter(struct drive *drive, enum transfer_state to, const char *reason,
                                bool *changed, bson_error_t *error)
{
    truce_transfers *transfers = drive->transfers;
    bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER, inner;
    truce_write_result result = {0};
    bson_oid_t rev;
    truce_status status;

    truce__id_new(&rev);
    BSON_APPEND_VALUE(&filter, "_id", drive->id);
    BSON_APPEND_UTF8(&filter, "state", state_names[drive->state]);
    truce__intent_append_absent(&filter);
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &inner);
    truce__transfer_enters(transfers, to, reason, &inner);
    BSON_APPEND_OID(&inner, "_rev", &rev);
    bson_append_document_end(&update, &inner);
    status = truce_update(transfers->store, transfers->collection, &filter, &update, NULL, &result,
                          error);
    *changed = !status && result.matched;
    if (*changed)
        drive->state = to;
    truce_write_result_release(&result);
    bson_destroy(&update);
    bson_destroy(&filter);
    return truce__repeatable(status) ? TRUCE_OK : status;
}

/* ---- reads ----------------------------------------------------------------------------------- */

/* Reads the transfer into `current`, and its state. Fails with NOT_FOUND if it does not exist, and
 * with INVALID if its state is not valid. */
static truce_status read_current(struct drive *drive, bson_error_t *error)
{
    char text[200];
    truce_status status;

    bson_destroy(&drive->current);
    status = truce__journal_read(&drive->worker, drive->transfers->collection, drive->id,
                                 &drive->current, error);
    drive->state = status ? TRANSFER_NONE : truce__transfer_state(&drive->current);
    truce__transfer_show(drive->transfers->collection, drive->id, text, sizeof text);
    if (status == TRUCE_NOT_FOUND)
        return truce__fail(status, error, "the transfer %s does not exist", text);
    if (!status && !drive->state)
        return truce__fail(TRUCE_INVALID, error, "%s has no valid state of a transfer", text);
    return status;
}

/* Makes the plan from a document, and takes over the document. */
static truce_status drive_make_plan(struct drive *drive, bson_t *document, bson_error_t *error)
{
    truce_status status = truce__transfer_plan(drive->transfers, document, &drive->plan, error);

    if (!status)
        drive->documents = bson_malloc0(drive->plan.count * sizeof *drive->documents);
    for (uint32_t i = 0; !status && i < drive->plan.count; i++)
        bson_init(&drive->documents[i].document);
    return status;
}

static truce_status read_fences(struct drive *drive, bson_error_t *error)
{
    truce__transfer_documents_release(drive->documents, drive->plan.count);
    return truce__transfer_read_documents(drive->transfers, &drive->plan, drive->documents, error);
}

/* Reads the fences and then the transfer (TF2). */
static truce_status drive_read_again(struct drive *drive, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_t copy;

    if (drive->rounds++ > 1)
        status = truce__worker_wait(&drive->worker, "a transfer", error);
    if (!status && !drive->documents) {
        status = read_current(drive, error);
        if (!status) {
            bson_copy_to(&drive->current, &copy);
            bson_destroy(&drive->plan.document);
            status = drive_make_plan(drive, &copy, error);
        }
    }
    if (!status)
        status = read_fences(drive, error);
    return status ? status : read_current(drive, error);
}

static struct transfer_step step_of(struct drive *drive, uint32_t at)
{
    return (struct transfer_step){
        .transfers = drive->transfers,
        .worker = &drive->worker,
        .transfer = drive->id,
        .entry = &drive->plan.entries[at],
        .fence = truce__transfer_fence(drive->transfers, &drive->documents[at].document),
    };
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Makes the entries before or after the decision, one after the other, until one fails. */
static truce_status make_entries(struct drive *drive, bool after, enum transfer_made *made,
                                 bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    *made = TRANSFER_MADE;
    for (uint32_t i = 0; i < drive->plan.count && !status && *made == TRANSFER_MADE; i++) {
        struct transfer_step step = step_of(drive, i);

        if (drive->plan.entries[i].after == after)
            status = transfer_make(&step, made, error);
    }
    return status;
}

/* Makes the entries before the decision, and then decides. Goes back if one was refused. Leaves
 * *changed false if a fence moved. */
static truce_status drive_pending(struct drive *drive, bool *changed, bson_error_t *error)
{
    bson_error_t why = {0};
    enum transfer_made made;
    truce_status status = make_entries(drive, false, &made, &why);

    if (status) {
        if (error)
            *error = why;
    } else if (made == TRANSFER_MADE) {
        status = drive_enter(drive, drive->plan.decides ? TRANSFER_COMMITTED : TRANSFER_APPLIED,
                             NULL, changed, error);
    } else if (made == TRANSFER_REFUSED) {
        status = drive_enter(drive, TRANSFER_CANCELING, why.message, changed, error);
    }
    return status;
}

/* Makes the entries after the decision. A refused one fails with INVALID: the transfer stays
 * committed until the cause is repaired. */
static truce_status drive_committed(struct drive *drive, bool *changed, bson_error_t *error)
{
    bson_error_t why = {0};
    enum transfer_made made;
    truce_status status = make_entries(drive, true, &made, &why);
    char text[200];

    if (!status && made == TRANSFER_MADE)
        return drive_enter(drive, TRANSFER_APPLIED, NULL, changed, error);
    if (!status && made == TRANSFER_REFUSED)
        return truce__fail(
            TRUCE_INVALID, error,
            "%s is decided, but cannot be completed: %s; repair the cause, and resume the transfer",
            truce__transfer_show(drive->transfers->collection, drive->id, text, sizeof text),
            why.message);
    if (status && error)
        *error = why;
    return status;
}

/* Removes the marks document by document, and repeats a write that got no reply. */
static truce_status drive_applied(struct drive *drive, bool *changed, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; i < drive->plan.count && !status; i++) {
        struct transfer_step step = step_of(drive, i);
        bool settled = false;

        for (int round = 0; !status && !settled; round++) {
            if (round > 1)
                status = truce__worker_wait(&drive->worker, "a document of a transfer", error);
            if (!status)
                status = transfer_unmark(&step, NULL, &settled, error);
            if (!status && !settled)
                status = transfer_unmarked(&step, &settled, error);
            if (truce__repeatable(status))
                status = TRUCE_OK;
        }
    }
    return status ? status : drive_enter(drive, TRANSFER_DONE, NULL, changed, error);
}

/* ---- back ------------------------------------------------------------------------------------ */

/* Undoes the effect of one entry: removes the mark, or raises the fence if the effect was not
 * made. */
static truce_status drive_take_back(struct drive *drive, uint32_t at, bson_error_t *error)
{
    struct transfer_step step = step_of(drive, at);
    bson_error_t why = {0};
    truce_status status = TRUCE_OK;
    bool settled = false;
    char text[200];

    for (int round = 0; !status && !settled; round++) {
        if (round > 1)
            status = truce__worker_wait(&drive->worker, "a document of a transfer", error);
        if (status)
            return status;
        status = transfer_unmark(&step, &step.entry->undo, &settled, &why);
        if (!status && !settled)
            status = transfer_fence_off(&step, &settled, &why);
        if (truce__repeatable(status))
            status = TRUCE_OK;
    }
    if (status)
        status = truce__fail(
            status, error, "%s: its part of a transfer cannot be undone: %s",
            truce__transfer_show(step.entry->collection, &step.entry->id, text, sizeof text),
            why.message);
    return status;
}

static truce_status drive_canceling(struct drive *drive, bool *changed, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; i < drive->plan.count && !status; i++) {
        if (!drive->plan.entries[i].after)
            status = drive_take_back(drive, i, error);
    }
    return status ? status : drive_enter(drive, TRANSFER_CANCELED, NULL, changed, error);
}

/* ---- completion ------------------------------------------------------------------------------ */

static bool drive_has_ended(const struct drive *drive)
{
    return drive->state == TRANSFER_DONE || drive->state == TRANSFER_CANCELED;
}

/* Executes the steps of the current state. Sets *changed if that entered the next state. */
static truce_status drive_step(struct drive *drive, bool *changed, bson_error_t *error)
{
    switch (drive->state) {
    case TRANSFER_INITIAL:
        return drive_enter(drive, TRANSFER_PENDING, NULL, changed, error);
    case TRANSFER_PENDING:
        return drive_pending(drive, changed, error);
    case TRANSFER_COMMITTED:
        return drive_committed(drive, changed, error);
    case TRANSFER_APPLIED:
        return drive_applied(drive, changed, error);
    default:
        truce_assert(drive->state == TRANSFER_CANCELING);
        return drive_canceling(drive, changed, error);
    }
}

/* Continues with the same fences from a state that this caller entered (TF2). */
static truce_status drive_run(struct drive *drive, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    while (!status && !drive_has_ended(drive)) {
        bool changed = false;

        status = drive_step(drive, &changed, error);
        if (!status && !changed)
            status = drive_read_again(drive, error);
    }
    /* The transfer is read again, because `current` does not have the reason yet. */
    if (!status && truce__transfer_state(&drive->current) != drive->state)
        status = read_current(drive, error);
    return status;
}

static void drive_begin(struct drive *drive, truce_transfers *transfers, const bson_value_t *id)
{
    *drive = (struct drive){.transfers = transfers, .id = id};
    truce__worker_init(&drive->worker, transfers->store, transfers->deadline_ms);
    bson_init(&drive->current);
    bson_init(&drive->plan.document);
    bson_init(&drive->plan.made);
    bson_init(&drive->plan.restored);
}

static void drive_end(struct drive *drive)
{
    if (drive->documents)
        truce__transfer_documents_release(drive->documents, drive->plan.count);
    bson_free(drive->documents);
    truce__transfer_plan_release(&drive->plan);
    bson_destroy(&drive->current);
}

/* Inserts the transfer, or reads the transfer that exists under this id. After TRUCE_OK, `drive`
 * has the stored transfer. Fails with TRUCE_DUPLICATE if that one has other content. */
static truce_status drive_insert(struct drive *drive, enum transfer_state state, const char *reason,
                                 bool *exists, bson_error_t *error)
{
    truce_transfers *transfers = drive->transfers;
    truce_status status = TRUCE_CONFLICT;

    bson_destroy(&drive->current);
    bson_copy_to(&drive->plan.document, &drive->current);
    truce__transfer_enters(transfers, state, reason, &drive->current);
    for (int round = 0; truce__repeatable(status); round++) {
        status = round > 1 ? truce__worker_wait(&drive->worker, "the store", error) : TRUCE_OK;
        if (!status)
            status =
                truce_insert(transfers->store, transfers->collection, &drive->current, NULL, error);
    }
    drive->state = state;
    *exists = status == TRUCE_DUPLICATE;
    /* The transfer is read after the fences (TF2). */
    if (*exists)
        status = read_current(drive, error);
    if (!status && *exists && !truce__transfer_same(&drive->plan.document, &drive->current))
        status = truce__transfer_other(transfers, drive->id, error);
    return status;
}

/* Checks whether the transfer exists after a failed check of its documents. A transfer that exists
 * may have changed them, so the check proves nothing then. */
static truce_status refuse_new(struct drive *drive, const bson_error_t *why, bool *exists,
                               bson_error_t *error)
{
    truce_status status = read_current(drive, error);

    *exists = !status;
    if (status == TRUCE_NOT_FOUND && error)
        *error = *why;
    if (status)
        return status == TRUCE_NOT_FOUND ? TRUCE_INVALID : status;
    return truce__transfer_same(&drive->plan.document, &drive->current)
               ? TRUCE_OK
               : truce__transfer_other(drive->transfers, drive->id, error);
}

/* Inserts the new transfer as pending. A transfer that cannot complete is stored as canceled, so
 * that it stays refused. A transfer with a wrong undo is not stored: the call fails with
 * INVALID. */
static truce_status drive_start(struct drive *drive, bool *exists, bson_error_t *error)
{
    bson_error_t why = {0};
    truce_status status = read_fences(drive, error);

    if (status)
        return status;
    status = truce__transfer_prove(&drive->plan, drive->documents, true, &why);
    if (status == TRUCE_INVALID)
        return refuse_new(drive, &why, exists, error);
    return drive_insert(drive, status ? TRANSFER_CANCELED : TRANSFER_PENDING,
                        status ? why.message : NULL, exists, error);
}

truce_status truce__transfer_drive(truce_transfers *transfers, const bson_value_t *id,
                                   bson_t *fresh, bool *exists, bson_error_t *error)
{
    struct drive drive;
    truce_status status;

    drive_begin(&drive, transfers, id);
    if (fresh) {
        status = drive_make_plan(&drive, fresh, error);
        if (!status)
            status = drive_start(&drive, exists, error);
    } else {
        *exists = true;
        status = drive_read_again(&drive, error);
    }
    if (!status)
        status = drive_run(&drive, error);
    if (!status)
        status = truce__transfer_answer(transfers, &drive.current, error);
    drive_end(&drive);
    return status;
}

/* Moves a transfer that is not decided to "canceling". Returns REFUSED if it is decided or done. */
static truce_status drive_undo(struct drive *drive, bson_error_t *error)
{
    char text[200];
    truce_status status = TRUCE_OK;

    while (!status && (drive->state == TRANSFER_PENDING || drive->state == TRANSFER_INITIAL)) {
        bool changed = false;

        status = drive_enter(drive, TRANSFER_CANCELING, "it was canceled", &changed, error);
        if (!status && !changed)
            status = drive_read_again(drive, error);
    }
    if (!status && drive->state != TRANSFER_CANCELING && drive->state != TRANSFER_CANCELED)
        status = truce__fail(
            TRUCE_REFUSED, error,
            "%s is %s and can no longer be canceled; to reverse it, start another "
            "transfer",
            truce__transfer_show(drive->transfers->collection, drive->id, text, sizeof text),
            state_names[drive->state]);
    return status;
}

truce_status truce__transfer_undo(truce_transfers *transfers, const bson_value_t *id,
                                  bson_error_t *error)
{
    struct drive drive;
    truce_status status;

    drive_begin(&drive, transfers, id);
    status = drive_read_again(&drive, error);
    if (!status)
        status = drive_undo(&drive, error);
    if (!status)
        status = drive_run(&drive, error);
    drive_end(&drive);
    return status;
}

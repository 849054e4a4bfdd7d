/*
 * The sweep completes transfers that were idle for resume_ms, and removes those that ended keep_ms
 * ago. A sweep makes a limited number of steps. It may run concurrently with any other call,
 * because it makes the same calls.
 *
 * The check finds invalid transfers, transfers that were idle for two days, and marks without a
 * transfer in progress.
 */
#include "patterns/transfer/transfer_maintenance.h"

#include <string.h>

#include "base/clock.h"
#include "base/field.h"
#include "patterns/transfer/transfer.h"

/* A check reports transfers that did not end and were not changed for this time (two days). */
#define STUCK_MS INT64_C(172800000)

/* Makes the filter of transfers that have not ended and were not changed since `since_ms`. */
static bson_t *maintenance_under_way(int64_t since_ms)
{
    return BCON_NEW("state", "{", "$in", "[", BCON_UTF8("pending"), BCON_UTF8("committed"),
                    BCON_UTF8("applied"), BCON_UTF8("canceling"), "]", "}", "lastModified", "{",
                    "$not", "{", "$gte", BCON_DATE_TIME(since_ms), "}", "}");
}

/* ---- the sweep ------------------------------------------------------------------------------- */

static truce_status maintenance_resume(struct sweep *sweep, const char *collection,
                                       const bson_t *document, void *arg, bson_error_t *error)
{
    bson_value_t id = truce__document_id(document);
    truce_status status = truce_transfer_resume(arg, &id, error);

    (void)collection;
    if (status && status != TRUCE_REFUSED && status != TRUCE_NOT_FOUND)
        return status;
    sweep->report->finished++;
    return TRUCE_OK;
}

/* Removes an ended transfer (a sweep_function), unless a commit holds it. */
static truce_status transfer_maintenance_prune(struct sweep *sweep, const char *collection,
                                               const bson_t *document, void *arg,
                                               bson_error_t *error)
{
    bson_value_t id = truce__document_id(document);
    bson_t filter = BSON_INITIALIZER;
    truce_write_result result = {0};
    truce_status status;

    (void)arg;
    BSON_APPEND_VALUE(&filter, "_id", &id);
    BCON_APPEND(&filter, "state", "{", "$in", "[", BCON_UTF8("done"), BCON_UTF8("canceled"), "]",
                "}");
    truce__intent_append_absent(&filter);
    status = truce_remove(sweep->store, collection, &filter, NULL, &result, error);
    sweep->report->expired += result.removed;
    truce_write_result_release(&result);
    bson_destroy(&filter);
    return status;
}

/* Sweeps one book (a sweep_function): resumes idle transfers, and then removes those past their
 * retention. */
static truce_status sweep_book(struct sweep *sweep, const char *collection, const bson_t *book,
                               void *arg, bson_error_t *error)
{
    truce_transfer_options options = {.collection = truce__field_text(book, "_id")};
    truce_transfers *transfers = truce_transfers_new(sweep->store, &options);
    int64_t now_ms = truce__clock_wall_ms();
    bson_t *still = maintenance_under_way(now_ms - truce__field_count(book, "resume_ms")),
           *old = BCON_NEW("expires", "{", "$lte", BCON_DATE_TIME(now_ms), "}");
    truce_status status =
        truce__sweep_each(sweep, options.collection, still, maintenance_resume, transfers, error);

    (void)collection, (void)arg;
    if (!status)
        status = truce__sweep_each(sweep, options.collection, old, transfer_maintenance_prune, NULL,
                                   error);
    bson_destroy(old);
    bson_destroy(still);
    truce_transfers_free(transfers);
    return status;
}

truce_status truce__transfer_sweep(struct sweep *sweep, bson_error_t *error)
{
    return truce__sweep_each(sweep, TRANSFERS, NULL, sweep_book, NULL, error);
}

/* ---- the check ------------------------------------------------------------------------------- */

struct transfer_check {
    struct check *check;
    truce_transfers *transfers;
};

/* Reports a stored transfer that is invalid. */
static truce_status maintenance_check_shape(struct check *check, const char *collection,
                                            const bson_t *document, void *arg, bson_error_t *error)
{
    const struct transfer_check *context = arg;
    bson_value_t id = truce__document_id(document);
    struct transfer_plan plan;
    bson_error_t why = {0};
    bson_t copy;
    truce_status status;

    (void)error;
    bson_copy_to(document, &copy);
    status = truce__transfer_plan(context->transfers, &copy, &plan, &why);
    if (!status && !truce__transfer_state(document))
        status = truce__fail(TRUCE_INVALID, &why, "it has no valid state of a transfer");
    truce__transfer_plan_release(&plan);
    if (status)
        truce__check_report(
            check,
            &(struct finding){.rule = "transfer-shape",
                              .collection = collection,
                              .id = &id,
                              .text = why.message,
                              .repair = "none: a program other than truce wrote it"},
            false);
    return TRUCE_OK;
}

/* Reports a transfer that was idle for STUCK_MS. It is not repaired here, because a resume may fail
 * again. */
static truce_status transfer_maintenance_check_stuck(struct check *check, const char *collection,
                                                     const bson_t *document, void *arg,
                                                     bson_error_t *error)
{
    bson_value_t id = truce__document_id(document);

    (void)arg, (void)error;
    truce__check_report(
        check,
        &(struct finding){.rule = "transfer-stuck",
                          .collection = collection,
                          .id = &id,
                          .text = "the transfer has been idle for two days",
                          .repair = "truce transfer resume, which reports the obstacle"},
        false);
    return TRUCE_OK;
}

/* Reads the state of a transfer. If the transfer does not exist, the state is TRANSFER_NONE, and
 * the result is TRUCE_OK. */
static truce_status find_transfer(const struct transfer_check *context, const bson_value_t *id,
                                  enum transfer_state *state, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, found;
    truce_status status;

    BSON_APPEND_VALUE(&filter, "_id", id);
    status = truce_find_one(context->transfers->store, context->transfers->collection, &filter,
                            NULL, &found, error);
    *state = status ? TRANSFER_NONE : truce__transfer_state(&found);
    bson_destroy(&found);
    bson_destroy(&filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Checks whether the document still has the mark. A mark exists until the transfer is done or
 * canceled, and the transfer may have ended since the document was read. */
static truce_status still_marked(const struct transfer_check *context, const char *collection,
                                 const bson_value_t *id, const bson_value_t *mark, bool *marked,
                                 bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER;
    int64_t count = 0;
    truce_status status;

    BSON_APPEND_VALUE(&filter, "_id", id);
    BSON_APPEND_VALUE(&filter, context->transfers->layout.marks, mark);
    status = truce_count(context->transfers->store, collection, &filter, NULL, &count, error);
    *marked = count > 0;
    bson_destroy(&filter);
    return status;
}

/* Reports a mark whose transfer is done, is canceled, or does not exist. */
static truce_status check_mark(const struct transfer_check *context, const char *collection,
                               const bson_value_t *id, const bson_value_t *mark,
                               bson_error_t *error)
{
    enum transfer_state state;
    char text[300], shown[200];
    bool marked = false;
    truce_status status = find_transfer(context, mark, &state, error);

    if (!status && (state == TRANSFER_NONE || state == TRANSFER_DONE || state == TRANSFER_CANCELED))
        status = still_marked(context, collection, id, mark, &marked, error);
    if (status || !marked)
        return status;
    snprintf(text, sizeof text, "it has a mark of %s, which %s",
             truce__transfer_show(context->transfers->collection, mark, shown, sizeof shown),
             state == TRANSFER_NONE   ? "does not exist"
             : state == TRANSFER_DONE ? "is done"
                                      : "is canceled");
    truce__check_report(
        context->check,
        &(struct finding){
            .rule = "transfer-mark",
            .collection = collection,
            .id = id,
            .text = text,
            .repair =
                "none: only the history of the document shows whether the effect was applied"},
        false);
    return TRUCE_OK;
}

/* Checks each mark of a suspect document. A field that is not an array has no marks. */
static truce_status check_marks(struct check *check, const char *collection, const bson_t *document,
                                void *arg, bson_error_t *error)
{
    const struct transfer_check *context = arg;
    bson_value_t id = truce__document_id(document);
    truce_status status = TRUCE_OK;
    bson_iter_t iter, marks;

    (void)check;
    if (!bson_iter_init_find(&iter, document, context->transfers->layout.marks) ||
        !BSON_ITER_HOLDS_ARRAY(&iter) || !bson_iter_recurse(&iter, &marks))
        return TRUCE_OK;
    while (!status && bson_iter_next(&marks))
        status = check_mark(context, collection, &id, bson_iter_value(&marks), error);
    return status;
}

/* Finds documents with a mark of a transfer that is not in progress. */
static truce_status suspect_marks(struct check *check, bson_t *const *documents, uint32_t count,
                                  bool *suspect, void *arg, bson_error_t *error)
{
    const struct transfer_check *context = arg;
    struct maintenance_links links = {.count = 0};
    bson_t *open =
        BCON_NEW("state", "{", "$nin", "[", BCON_UTF8("done"), BCON_UTF8("canceled"), "]", "}");
    bson_iter_t iter, marks;
    truce_status status;

    for (uint32_t i = 0; i < count; i++) {
        if (!bson_iter_init_find(&iter, documents[i], context->transfers->layout.marks) ||
            !BSON_ITER_HOLDS_ARRAY(&iter) || !bson_iter_recurse(&iter, &marks))
            continue;
        while (bson_iter_next(&marks))
            truce__maintenance_link(&links, bson_iter_value(&marks), i);
    }
    status = truce__maintenance_follow(check, context->transfers->collection, open, &links, suspect,
                                       error);
    bson_destroy(open);
    return status;
}

/* Checks the marks in one collection, except those of truce and of the book itself. */
static truce_status maintenance_check_collection(void *arg, const char *collection,
                                                 bson_error_t *error)
{
    const struct transfer_check *context = arg;
    bson_t *filter;
    char first[TRANSFER_NAME_MAX + 3];
    truce_status status;

    if (truce__reserved(collection) || !strcmp(collection, context->transfers->collection))
        return TRUCE_OK;
    snprintf(first, sizeof first, "%s.0", context->transfers->layout.marks);
    filter = BCON_NEW(first, "{", "$exists", BCON_BOOL(true), "}");
    status = truce__check_suspects(context->check, collection, filter, suspect_marks, check_marks,
                                   arg, error);
    bson_destroy(filter);
    return status;
}

/* Checks one book: its transfers, and the marks in all collections. */
static truce_status check_book(struct check *check, const char *collection, const bson_t *book,
                               void *arg, bson_error_t *error)
{
    truce_transfer_options options = {.collection = truce__field_text(book, "_id")};
    truce_transfers *transfers = truce_transfers_new(check->store, &options);
    struct transfer_check context = {check, transfers};
    bson_t *still = maintenance_under_way(truce__clock_wall_ms() - STUCK_MS);
    truce_status status = truce__transfers_layout(transfers, book, error);

    (void)collection, (void)arg;
    if (!status)
        status = truce__check_each(check, options.collection, NULL, maintenance_check_shape,
                                   &context, error);
    if (!status)
        status = truce__check_each(check, options.collection, still,
                                   transfer_maintenance_check_stuck, NULL, error);
    if (!status)
        status =
            truce__each_collection(check->store, maintenance_check_collection, &context, error);
    bson_destroy(still);
    truce_transfers_free(transfers);
    return status;
}

truce_status truce__transfer_check(struct check *check, bson_error_t *error)
{
    return truce__check_each(check, TRANSFERS, NULL, check_book, NULL, error);
}

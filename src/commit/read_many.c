#include "base/deadline.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/reserved_fields.h"
#include "commit/commit.h"
#include "store/snapshot_view.h"
#include "store/store.h"
#include "truce/sys/store.h"

/*
 * A consistent read of several documents. If the store has snapshots, the documents are read from
 * one, and intents in it are resolved. Without intents, every commit is either in all of the
 * documents or in none. Elsewhere:
 *
 *  CR1  All documents are read twice. If every document has no intent and the same revision both
 *       times, then all of them were so at one time between the two reads.
 *  CR2  A pending intent is never ignored: its commit may be decided before the reads end. The
 *       exception is the commit whose function reads: it is not decided before the function ends
 *       (journal.c, CT8).
 *  CR3  A missing document has no revision: it could have been inserted and removed in between. So
 *       it is read first in the second pass. If several are missing, all but one are held by the
 *       stubs of a commit that changes nothing.
 */

static void many_forget(truce_read_request *requests, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bson_reinit(&requests[i].document);
        requests[i].found = false;
    }
}

/* Reads all documents one by one, and counts those that are missing. */
static truce_status many_read_first(struct worker *worker, truce_read_request *requests,
                                    size_t count, size_t *missing, bson_error_t *error)
{
    *missing = 0;
    for (size_t i = 0; i < count; i++) {
        truce_status status;

        bson_destroy(&requests[i].document);
        status = truce__journal_read_unguarded(worker, requests[i].collection, requests[i].id,
                                               &requests[i].document, error);
        if (status && status != TRUCE_NOT_FOUND)
            return status;
        requests[i].found = !status;
        *missing += !requests[i].found;
    }
    return TRUCE_OK;
}

/* Reads a document again. Sets *same if it is unchanged and has no intent. */
static truce_status many_read_again(struct worker *worker, const truce_read_request *request,
                                    bool *same, bson_error_t *error)
{
    truce_status status;
    bson_t filter, document;

    truce__filter_id(request->id, &filter);
    /* Reads the latest state. The second read claims that all documents had this state at one time,
     * and no write compares them later. */
    status = truce_find_one(worker->store, request->collection, &filter, &truce__find_latest,
                            &document, error);
    bson_destroy(&filter);
    /* The own commit holds the document. It is read without the intent, as in the first read. */
    if (!status && truce__journal_at_work(&document))
        status = truce__intent_see(worker->store, request->collection, &document, error);
    /* A document that got an intent since the first read differs from it. */
    *same = status == TRUCE_NOT_FOUND
                ? !request->found
                : !status && request->found && bson_equal(&document, &request->document);
    bson_destroy(&document);
    return status == TRUCE_NOT_FOUND || status == TRUCE_UNKNOWN ? TRUCE_OK : status;
}

static truce_status many_read_second(struct worker *worker, const truce_read_request *requests,
                                     size_t count, bool *same, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    *same = true;
    for (int found = 0; found <= 1; found++) {
        for (size_t i = 0; !status && *same && i < count; i++) {
            if (requests[i].found == (found == 1))
                status = many_read_again(worker, &requests[i], same, error);
        }
    }
    return status;
}

/* Reads by a commit that changes nothing; the journal holds the missing documents (CR3). */
static truce_status many_read_held(struct worker *worker, truce_read_request *requests,
                                   size_t count, uint32_t lease_ms, bool *same, bson_error_t *error)
{
    truce_commit_options options = {.mechanism = TRUCE_MECHANISM_JOURNAL, .lease_ms = lease_ms};
    truce_commit *commit = NULL;
    truce_status status = truce_commit_begin(worker->store, &options, &commit, error);

    if (status)
        return status;
    commit->worker.deadline_ns = worker->deadline_ns;
    for (size_t i = 0; i < count; i++) {
        bson_destroy(&requests[i].document);
        status = truce_commit_read(commit, requests[i].collection, requests[i].id,
                                   &requests[i].document, error);
        if (status && status != TRUCE_NOT_FOUND)
            break;
        requests[i].found = !status;
        status = TRUCE_OK;
    }
    if (!status)
        status = truce_commit_apply(commit, error);
    *same = !status;
    truce_commit_free(commit);
    return status == TRUCE_CONFLICT ? TRUCE_OK : status;
}

static truce_status many_read_twice(struct worker *worker, truce_read_request *requests,
                                    size_t count, uint32_t lease_ms, bool *same,
                                    bson_error_t *error)
{
    size_t missing;
    truce_status status = many_read_first(worker, requests, count, &missing, error);

    if (status)
        return status;
    if (missing > 1)
        return many_read_held(worker, requests, count, lease_ms, same, error);
    return many_read_second(worker, requests, count, same, error);
}

/* Reads all documents from one snapshot of the store. Sets *same to false if one was held; its
 * intent is then resolved, and the caller reads again. */
static truce_status many_read_snapshot(struct worker *worker, truce_read_request *requests,
                                       size_t count, bool *same, bson_error_t *error)
{
    truce_status status;

    for (size_t i = 0; i < count; i++)
        bson_destroy(&requests[i].document);
    status = worker->store->ops->read_many(worker->store, requests, count, error);
    *same = true;
    for (size_t i = 0; !status && i < count; i++) {
        if (!requests[i].found || truce__intent_absent(&requests[i].document))
            continue;
        if (truce__is_only_read(worker->store) || truce__journal_at_work(&requests[i].document)) {
            status = truce__intent_see(worker->store, requests[i].collection, &requests[i].document,
                                       error);
            requests[i].found = !status;
            status = status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
            continue;
        }
        *same = false;
        status = truce__intent_complete_other(worker, requests[i].collection, &requests[i].document,
                                              error);
    }
    return status == TRUCE_UNKNOWN ? TRUCE_OK : status;
}

truce_status truce_read_many(truce_store *store, truce_read_request *requests, size_t count,
                             const truce_read_many_options *options, bson_error_t *error)
{
    if (count)
        RETURN_IF_NULL(requests, error);

    bool snapshot = store->capabilities & TRUCE_CAN_SNAPSHOT_READ;
    uint32_t lease_ms = options && options->lease_ms ? options->lease_ms : COMMIT_READ_LEASE_MS;
    truce_status status = ROOM_CHECK(options, "truce_read_many_options", error);
    struct worker worker;
    bson_error_t why;
    bool same = false;

    for (size_t i = 0; i < count; i++) {
        bson_init(&requests[i].document);
        requests[i].found = false;
        if (!status)
            status = ROOM_CHECK(&requests[i], "truce_read_request", error);
    }
    if (status)
        return status;
    DEADLINE_SCOPE(options && options->deadline_ms ? options->deadline_ms : COMMIT_DEADLINE_MS);
    truce__worker_init(&worker, store, options ? options->deadline_ms : 0);
    while (!status) {
        status = snapshot ? many_read_snapshot(&worker, requests, count, &same, &why)
                          : many_read_twice(&worker, requests, count, lease_ms, &same, &why);
        if (status || same)
            break;
        status = truce__worker_wait(&worker, "a consistent state of the documents", &why);
    }
    if (status)
        many_forget(requests, count);
    if (status && error)
        *error = why;
    return status;
}

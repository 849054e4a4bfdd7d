#include "truce/request.h"

#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/field.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/reserved_fields.h"
#include "bson/field_name_escape.h"
#include "bson/value.h"
#include "query/input_check.h"
#include "store/reserved_names.h"
#include "store/store.h"

/*
 * A request is a document of `truce_requests`:
 *
 *     {_id: key, name, input, state: "waiting", attempts: 0, created, due}
 *
 *  CQ1  The end of a request is part of the commit of its effects. The commit reads the request,
 *       which must be waiting, and sets it to done. If two processes run it at once, one of them
 *       gets a conflict, runs again, finds it done, and does nothing.
 *  CQ2  Requests are not claimed, so no claim must be returned: if a process dies, its request is
 *       still waiting.
 *  CQ3  A failing function delays only its own request: each retry comes later than the one before.
 *       After the last attempt the request is set aside.
 */

/* The maximum number of requests of one call that sets no limit. */
#define LIMIT 100
/* A request has failed after this number of attempts. */
#define ATTEMPTS_MAX 10
/* The wait after the first attempt is twice this time. Each further wait is twice as long. */
#define BACKOFF_MS INT64_C(500)

/* The argument of the commit that runs the handler of a request. */
struct request_run {
    const truce_request_handler *handler;
    const bson_t *request;
    bool ran;
};

/* ---- storing requests ------------------------------------------------------------------------ */

/* Compares a new request with the stored one (`theirs`) that has the key. */
static truce_status request_compare(const bson_t *theirs, const char *name, const bson_t *input,
                                    const char *key, bson_error_t *error)
{
    struct value a = truce__value_field(truce__value_document(theirs), "input", 5);

    if (!strcmp(truce__field_text(theirs, "name"), name) &&
        truce__value_identical(a, truce__value_document(input)))
        return TRUCE_OK;
    return truce__fail(TRUCE_DUPLICATE, error,
                       "the key \"%s\" belongs to another request; a new request needs a new key",
                       key);
}

truce_status truce_request_add(truce_store *store, const char *key, const char *name,
                               const bson_t *input, bson_error_t *error)
{
    int64_t now_ms = truce__clock_wall_ms();
    bson_t request = BSON_INITIALIZER, empty = BSON_INITIALIZER, stored;
    truce_status status;

    if (!key || !key[0] || !name || !name[0])
        return truce__fail(TRUCE_INVALID, error,
                           "a request needs a key and the name of a function");
    status = truce__check_optional(input, "input", error);
    if (status)
        return status;
    BSON_APPEND_UTF8(&request, "_id", key);
    BSON_APPEND_UTF8(&request, "name", name);
    truce__names_append(&request, "input", input ? input : &empty);
    BSON_APPEND_UTF8(&request, "state", "waiting");
    BSON_APPEND_INT32(&request, "attempts", 0);
    BSON_APPEND_DATE_TIME(&request, "created", now_ms);
    BSON_APPEND_DATE_TIME(&request, "due", now_ms);
    status = truce_insert(store, REQUESTS, &request, NULL, error);
    /* A request with this key may be stored already. The stored request decides about the
     * result. */
    if (status == TRUCE_DUPLICATE || status == TRUCE_UNKNOWN) {
        truce_status found = truce_request_state(store, key, &stored, error);

        if (!found)
            status = request_compare(&stored, name, input ? input : &empty, key, error);
        bson_destroy(&stored);
    }
    bson_destroy(&request);
    bson_destroy(&empty);
    return status;
}

truce_status truce_request_state(truce_store *store, const char *key, bson_t *document,
                                 bson_error_t *error)
{
    RETURN_IF_NULL(document, error);
    RETURN_EMPTY_IF_NULL(key, document, error);

    bson_t filter = BSON_INITIALIZER;
    truce_status status;

    BSON_APPEND_UTF8(&filter, "_id", key);
    status = truce_find_one(store, REQUESTS, &filter, NULL, document, error);
    if (status == TRUCE_NOT_FOUND)
        status = truce__fail(status, error, "the request \"%s\" does not exist", key);
    truce__names_restore_own(document);
    bson_destroy(&filter);
    return status;
}

/* ---- running -------------------------------------------------------------------------------- */

static bson_value_t request_id_of(const bson_t *request)
{
    bson_iter_t iter;

    truce_assert(bson_iter_init_find(&iter, request, "_id"));
    return *bson_iter_value(&iter);
}

/* Fails with INVALID for a request that another program stored. */
static truce_status request_refuse_input(const bson_t *request, bson_error_t *error)
{
    return truce__fail(TRUCE_INVALID, error,
                       "the field \"input\" of the request \"%.200s\" in " REQUESTS
                       " is not a document",
                       truce__field_text(request, "_id"));
}

/* Returns the number of the next attempt. A stored number that truce did not write counts as the
 * last one. */
static int request_attempt(const bson_t *request)
{
    int64_t attempts = truce__field_number(request, "attempts");

    return attempts < 0 || attempts >= ATTEMPTS_MAX ? ATTEMPTS_MAX : (int)attempts + 1;
}

/* Runs the function and ends the request in one commit (CQ1). */
static truce_status request_run(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct request_run *run = arg;
    bson_t request, input, *done;
    bson_value_t id = request_id_of(run->request);
    truce_status status = truce_commit_read(commit, REQUESTS, &id, &request, error);

    run->ran = !status && !strcmp(truce__field_text(&request, "state"), "waiting");
    if (status == TRUCE_NOT_FOUND)
        status = TRUCE_OK;
    if (run->ran) {
        truce__names_restore_own(&request);
        status = truce__value_subdocument(&request, "input", &input)
                     ? run->handler->function(commit, &input, run->handler->arg, error)
                     : request_refuse_input(&request, error);
        done = BCON_NEW("$set", "{", "state", BCON_UTF8("done"), "}");
        if (!status)
            status = truce_commit_update(commit, REQUESTS, &id, NULL, done, error);
        bson_destroy(done);
    }
    bson_destroy(&request);
    return status;
}

/* Delays the next attempt, or sets the request aside (CQ3). */
static truce_status request_put_off(truce_store *store, const bson_t *request, const char *why,
                                    bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, *update;
    bson_value_t id = request_id_of(request);
    int attempts = request_attempt(request);
    truce_status status;

    BSON_APPEND_VALUE(&filter, "_id", &id);
    BSON_APPEND_UTF8(&filter, "state", "waiting");
    BCON_APPEND(&filter, "_intent", "{", "$exists", BCON_BOOL(false), "}");
    update = BCON_NEW("$set", "{", "attempts", BCON_INT32(attempts), "error", BCON_UTF8(why),
                      "state", BCON_UTF8(attempts >= ATTEMPTS_MAX ? "failed" : "waiting"), "due",
                      BCON_DATE_TIME(truce__clock_wall_ms() + (BACKOFF_MS << attempts)), "}");
    status = truce_update(store, REQUESTS, &filter, update, NULL, NULL, error);
    bson_destroy(update);
    bson_destroy(&filter);
    return status;
}

static const truce_request_handler *handler_of(const bson_t *request,
                                               const truce_request_handler *handlers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!strcmp(handlers[i].name, truce__field_text(request, "name")))
            return &handlers[i];
    }
    return NULL;
}

/* Runs the handler of one stored request in a commit. If the handler fails, stores the reason and
 * the time of the next attempt. */
static truce_status request_execute(truce_store *store, const bson_t *request,
                                    const truce_request_handler *handlers, size_t count,
                                    const truce_commit_options *options,
                                    truce_request_report *report, bson_error_t *error)
{
    struct request_run run = {.handler = handler_of(request, handlers, count), .request = request};
    bson_error_t why = {0};
    truce_status status;

    if (!run.handler) {
        report->refused++;
        return TRUCE_OK;
    }
    status = truce_transact(store, request_run, &run, options, &why);
    if (!status) {
        report->done += run.ran;
        return TRUCE_OK;
    }
    report->failed++;
    /* The store failed, not the handler, so the attempt does not count. */
    if (status == TRUCE_IO || status == TRUCE_UNKNOWN) {
        if (error)
            *error = why;
        return status;
    }
    return request_put_off(store, request, why.message, error);
}

/* Reads the oldest requests that are due. They are collected first, because running a request
 * changes it. The clock of another process may have been ahead. A request without a try is
 * therefore due. So is a retry that is further away than the longest delay. */
static truce_status request_gather(truce_store *store, uint32_t limit, bson_t **requests,
                                   uint32_t *count, bson_error_t *error)
{
    int64_t now_ms = truce__clock_wall_ms();
    bson_t *filter =
        BCON_NEW("state", BCON_UTF8("waiting"), "$or", "[", "{", "due", "{", "$lte",
                 BCON_DATE_TIME(now_ms), "}", "}", "{", "attempts", BCON_INT32(0), "}", "{", "due",
                 "{", "$gt", BCON_DATE_TIME(now_ms + (BACKOFF_MS << ATTEMPTS_MAX)), "}", "}", "]");
    bson_t *sort = BCON_NEW("due", BCON_INT32(1), "_id", BCON_INT32(1));
    truce_find_options options = {.sort = sort, .limit = limit};
    truce_cursor *cursor = NULL;
    const bson_t *document;
    truce_status status = truce_find(store, REQUESTS, filter, &options, &cursor, error);

    while (!status && *count < limit) {
        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        requests[(*count)++] = bson_copy(document);
    }
    truce_cursor_close(cursor);
    bson_destroy(sort);
    bson_destroy(filter);
    return status;
}

static truce_status request_check_room(const truce_request_handler *handlers, size_t count,
                                       const truce_commit_options *options, bson_error_t *error)
{
    truce_status status = ROOM_CHECK(options, "truce_commit_options", error);

    for (size_t i = 0; i < count && !status; i++) {
        status = ROOM_CHECK(&handlers[i], "truce_request_handler", error);
        if (!status && (!handlers[i].name || !handlers[i].function))
            status = truce__fail(TRUCE_INVALID, error, "handler %zu has no name or no function", i);
    }
    return status;
}

truce_status truce_request_run(truce_store *store, const truce_request_handler *handlers,
                               size_t handlers_count, uint32_t limit,
                               const truce_commit_options *options, truce_request_report *report,
                               bson_error_t *error)
{
    RETURN_IF_NULL(report, error);
    if (handlers_count)
        RETURN_IF_NULL(handlers, error);

    uint32_t count = 0, room = limit ? limit : LIMIT;
    truce_status status = request_check_room(handlers, handlers_count, options, error);
    bson_t *index, **requests;

    memset(report, 0, sizeof *report);
    if (status)
        return status;
    index = BCON_NEW("key", "{", "state", BCON_INT32(1), "due", BCON_INT32(1), "}");
    status = truce__index_ensure(store, REQUESTS, index, error);
    bson_destroy(index);
    if (status)
        return status;
    requests = bson_malloc0(room * sizeof *requests);
    status = request_gather(store, room, requests, &count, error);
    for (uint32_t i = 0; i < count; i++) {
        if (!status)
            status = request_execute(store, requests[i], handlers, handlers_count, options, report,
                                     error);
        bson_destroy(requests[i]);
    }
    bson_free(requests);
    return status;
}

/*
 * truceCommit, reads by the key of a commit, requests, and sequences.
 *
 * The changes of truceCommit are documents: writes ({update: ..., with: ...}), and requests of
 * other operations that may be part of a commit (OPERATION_COMMITS). Such an operation adds its
 * changes to `call->commit`. Its result is in the reply of the commit.
 *
 * A key makes a commit repeatable: the second request returns the result of the first one.
 */
#include <string.h>

#include "bson/value.h"
#include "operations/operation.h"
#include "operations/reply_list.h"
#include "patterns/change_list/change_list.h"
#include "patterns/sequence/sequence.h"
#include "store/reserved_names.h"
#include "truce/request.h"
#include "truce/sweep.h"

/* ---- truceCommit ----------------------------------------------------------------------------- */

struct commit_given {
    const char *key;
    int64_t keyTime;
    const bson_t *leave, *input;
    bool journal;
};

static const struct operation_field commit_fields[] = {
    {GIVEN(commit_given, key, FIELD_TEXT),
     "an idempotency key of the database: the commit happens once under it. It needs `keyTime`"},
    {GIVEN(commit_given, keyTime, FIELD_TIME),
     "required with `key`, and only then: the time when the request was made, ms since 1970, the "
     "same in each repetition. It shows whether the store may have forgotten the key",
     TIME_LEAST_MS, DATE_LAST_MS},
    {GIVEN(commit_given, leave, FIELD_DOCUMENT),
     "with a key: the result that a repetition returns, at most 64 KiB"},
    {GIVEN(commit_given, input, FIELD_DOCUMENT),
     "stored with the commit (truceCommitShow). With a key, it identifies the request in place of "
     "the changes, so a time in them may differ in a repetition"},
    {GIVEN(commit_given, journal, FIELD_FLAG),
     "uses the journal, even if the store has transactions"},
    {{0}}};

/* ---- a list of changes ----------------------------------------------------------------------- */

static truce_status changes_allow(void *arg, const char *collection, bool reads,
                                  bson_error_t *error)
{
    const struct operation_changes *list = arg;

    return truce__operation_collection(list->call, collection, !reads, error);
}

/* Adds an operation of the list to the commit, with its result in `results`. Without a commit, only
 * checks it (change_list_guard.add_operation). */
static truce_status changes_add_operation(void *arg, int number, const bson_t *change,
                                          truce_commit *commit, bson_error_t *error)
{
    struct operation_changes *list = arg;
    bson_t result;
    char buffer[16];
    const char *key;
    truce_status status;

    if (!commit)
        return truce__operation_check_part(list->call, number, change, error);
    bson_uint32_to_string(bson_count_keys(&list->results), &key, buffer, sizeof buffer);
    BSON_APPEND_DOCUMENT_BEGIN(&list->results, key, &result);
    BSON_APPEND_INT32(&result, "change", number);
    status =
        truce__operation_add(list->call, number, change, commit, &list->cleanups, &result, error);
    bson_append_document_end(&list->results, &result);
    return status;
}

static struct change_list_guard changes_guard(struct operation_changes *list)
{
    return (struct change_list_guard){
        .allow = changes_allow, .add_operation = changes_add_operation, .arg = list};
}

truce_status truce__operation_changes_begin(struct operation_changes *list,
                                            struct operation_call *call, const bson_t *changes,
                                            bson_error_t *error)
{
    const struct change_list_guard guard = changes_guard(list);

    *list = (struct operation_changes){.call = call, .changes = changes};
    bson_init(&list->results);
    return truce__change_list_check(changes, &guard, error);
}

truce_status truce__operation_changes_add(struct operation_changes *list, truce_commit *commit,
                                          bson_error_t *error)
{
    const struct change_list_guard guard = changes_guard(list);

    bson_reinit(&list->results);
    *list->call->details = NULL; /* An earlier run of the commit may have set it. */
    truce_commit_changes_fixed(commit);
    return truce__change_list_add(list->changes, &guard, NULL, commit, error);
}

void truce__operation_changes_append(const struct operation_changes *list, bson_t *reply)
{
    if (!bson_empty(&list->results))
        BSON_APPEND_ARRAY(reply, "results", &list->results);
}

void truce__operation_changes_release(struct operation_changes *list)
{
    truce__operation_release(list->call, list->cleanups);
    bson_destroy(&list->results);
}

/* ---- the commit ------------------------------------------------------------------------------ */

struct committing {
    struct operation_changes list;
    const bson_t *leave;
    /* The _ids that were generated. */
    bson_t inserted;
};

static truce_status commit_changes(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct committing *committing = arg;
    truce_status status = truce__operation_changes_add(&committing->list, commit, error);

    if (!status && committing->leave)
        status = truce_commit_set_result(commit, committing->leave, error);
    bson_destroy(&committing->inserted);
    bson_copy_to(truce_commit_inserted(commit), &committing->inserted);
    return status;
}

/* Checks that the options fit together, and sets *changes to the array of changes. */
static truce_status commit_check_commit(struct operation_call *call,
                                        const struct commit_given *given, const bson_t **changes,
                                        bson_error_t *error)
{
    if (!BSON_ITER_HOLDS_ARRAY(&call->target))
        return truce__refuse(CODE_TYPE_MISMATCH, error,
                             "the changes of a commit must be an array, not %s",
                             truce__type_name((uint8_t)bson_iter_type(&call->target)));
    *changes = truce__field_view(call->arena, &call->target);
    if (given->key && !given->keyTime)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "'key' needs 'keyTime': the time when the request was made, in "
                             "milliseconds since 1970, the same in each repetition");
    if (given->keyTime && !given->key)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "'keyTime' needs 'key': it is the time of that key");
    if (given->leave && !given->key)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "'leave' needs 'key': a later call reads the result by its key");
    if (bson_empty(*changes))
        return truce__refuse(CODE_INVALID_LENGTH, error,
                             "the commit has no changes: add at least one, such as an insert");
    if (given->journal && call->transaction)
        return truce__refuse(
            CODE_INVALID_OPTIONS, error,
            "'journal' is not allowed in a transaction: the transaction commits the changes");
    return TRUCE_OK;
}

/* Appends the result of the earlier commit under the key. */
static void commit_append_left(struct operation_call *call, const char *key, bson_t *reply)
{
    static const char *const names[] = {"result", "inserted"};
    bson_t record;
    bson_iter_t iter;

    if (!truce_commit_record(call->store, key, &record, NULL)) {
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            if (bson_iter_init_find(&iter, &record, names[i]))
                bson_append_iter(reply, NULL, 0, &iter);
        }
    }
    bson_destroy(&record);
}

/* Runs truceCommit. Without `input`, the changes identify a commit with a key. If an earlier commit
 * took effect under the key, the reply has its result. */
static truce_status run_commit(struct operation_call *call, const void *arg, bson_t *reply,
                               bson_error_t *error)
{
    const struct commit_given *given = arg;
    struct committing committing = {.leave = given->leave, .inserted = BSON_INITIALIZER};
    bool earlier = false;
    truce_commit_options options = {.key = given->key,
                                    .key_time_ms = given->keyTime,
                                    .input = given->input,
                                    .deadline_ms = call->deadline_ms,
                                    .relaxed = call->relaxed,
                                    .mechanism = given->journal ? TRUCE_MECHANISM_JOURNAL
                                                                : TRUCE_MECHANISM_AUTO,
                                    .earlier = &earlier};
    bson_t input = BSON_INITIALIZER;
    const bson_t *changes = NULL;
    truce_status status = commit_check_commit(call, given, &changes, error);

    if (status)
        return status;
    status = truce__operation_changes_begin(&committing.list, call, changes, error);
    if (!status) {
        if (given->key && !given->input) {
            BSON_APPEND_ARRAY(&input, "changes", changes);
            options.input = &input;
        }
        status = truce_transact(call->store, commit_changes, &committing, &options, error);
    }
    if (!status)
        BSON_APPEND_BOOL(reply, "earlier", earlier);
    if (!status && earlier)
        commit_append_left(call, options.key, reply);
    else if (!status && !bson_empty(&committing.inserted))
        BSON_APPEND_ARRAY(reply, "inserted", &committing.inserted);
    if (!status && !earlier)
        truce__operation_changes_append(&committing.list, reply);
    truce__operation_changes_release(&committing.list);
    bson_destroy(&committing.inserted);
    bson_destroy(&input);
    return status;
}

static const struct operation_row commit_operation = {
    OPERATION("truceCommit", ROLE_WRITE, "changes several documents, all or none"),
    .target = "changes",
    .value = "an array of changes. Changes of documents: `{insert: COLLECTION, with: DOCUMENT}`, "
             "`{update: COLLECTION, id: ID, with: OPERATORS, if: FILTER}`, `{replace: COLLECTION, "
             "id: ID, with: DOCUMENT, if: FILTER}`, `{remove: COLLECTION, id: ID, if: FILTER}`, "
             "`{change: COLLECTION, id: ID, with: {KEY: [OLD, NEW]}}`. Conditions: `{require: "
             "COLLECTION, id: ID, if: FILTER}`, `{hold: COLLECTION, id: ID, if: FILTER}`, "
             "`{missing: COLLECTION, id: ID}`. `if` is optional. Any operation that may be part of "
             "a commit: `{truceSet: 'students', key: {...}, ...}`. Short forms of two operations: "
             "`{enqueue: QUEUE, with: PAYLOAD, delay_ms, priority, unique, lane}` and `{post: "
             "LEDGER, id: ID, with: {ACCOUNT: AMOUNT}, meta: DOCUMENT}`. An amount is a number in "
             "the smallest unit, or a string (\"12.50\"). A post cannot be in a transaction",
    .answer =
        "`earlier`: true if the commit happened before under the same key, and then "
        "`result`: the value of `leave`; `inserted`: the _ids of inserts without one; "
        "`results`: for each operation {change: N, ...} with its reply. A repetition has no "
        "`results`. After an error, "
        "nothing is changed. 125 (not found): a document is missing. 20 (refused): a "
        "document does not match its `if`. 112 (conflict): a value is not OLD. 11000 "
        "(duplicate): a document or a unique key exists, or the key was used for other "
        "changes. 146 (limit reached): the balance of an account would be below its minimum or above its maximum",
    .fields = commit_fields,
    .size = sizeof(struct commit_given),
    .run = run_commit,
    .ways = OPERATION_STRICT | OPERATION_TRANSACTS,
    .example = "{truceCommit: [{update: 'accounts', id: 'a', if: {n: {$gte: 5}}, with: {$inc: {n: "
               "-5}}}, {update: 'accounts', id: 'b', with: {$inc: {n: 5}}}], key: 'payment 17', "
               "keyTime: 1767225600000, leave: {receipt: 17}}",
};

/* ---- by its key ------------------------------------------------------------------------------ */

static truce_status run_result(struct operation_call *call, const void *given, bson_t *reply,
                               bson_error_t *error)
{
    const char *key;
    bson_t result;
    truce_status status = truce__operation_text(call, &key, error);

    (void)given;
    if (status)
        return status;
    status = truce_commit_result(call->store, key, &result, error);
    if (!status)
        BSON_APPEND_DOCUMENT(reply, "result", &result);
    bson_destroy(&result);
    return status;
}

static const struct operation_row result_operation = {
    OPERATION("truceCommitResult", ROLE_READ, "returns the result of the commit under a key"),
    .target = "key",
    .value = "the key",
    .answer =
        "`result`: empty if the commit had no result. \"not found\": no commit under the key took "
        "effect, or it was purged. An error: 24 (locked) a commit under the key is pending",
    .fields = truce__no_fields,
    .run = run_result,
    .ways = OPERATION_REPEATABLE | OPERATION_TRANSACTS,
    .example = "{truceCommitResult: 'payment 17'}",
};

typedef truce_status found_by_key(truce_store *store, const char *key, bson_t *document,
                                  bson_error_t *error);

/* Replies with the document that `find` returns for the target, as the field `name`. */
static truce_status commit_show(struct operation_call *call, found_by_key *find, const char *name,
                                bson_t *reply, bson_error_t *error)
{
    const char *key;
    bson_t document;
    truce_status status = truce__operation_text(call, &key, error);

    if (status)
        return status;
    status = find(call->store, key, &document, error);
    if (!status)
        BSON_APPEND_DOCUMENT(reply, name, &document);
    bson_destroy(&document);
    return status;
}

static truce_status commit_show_by_id(struct operation_call *call, bson_t *reply,
                                      bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_OID(bson_iter_oid(&call->target))), document;
    truce_status status = truce_find_one(call->store, COMMITS, filter, NULL, &document, error);

    if (!status)
        BSON_APPEND_DOCUMENT(reply, "commit", &document);
    bson_destroy(&document);
    bson_destroy(filter);
    return status;
}

static truce_status operation_commit_run_show(struct operation_call *call, const void *given,
                                              bson_t *reply, bson_error_t *error)
{
    (void)given;
    if (BSON_ITER_HOLDS_OID(&call->target))
        return commit_show_by_id(call, reply, error);
    return commit_show(call, truce_commit_record, "commit", reply, error);
}

static const struct operation_row show_operation = {
    OPERATION("truceCommitShow", ROLE_READ, "returns the recorded commit under a key"),
    .target = "key",
    .value = "the key, or the _id of the commit",
    .answer =
        "`commit`: {_id, key, key_time, state, input, result, created, ...}, where `state` is "
        "\"pending\", \"committed\", or \"done\". \"not found\": no commit exists, or it was "
        "undone",
    .fields = truce__no_fields,
    .run = operation_commit_run_show,
    .ways = OPERATION_REPEATABLE | OPERATION_TRANSACTS,
    .example = "{truceCommitShow: 'payment 17'}",
};

/* ---- truceCommits, truceCommitResolve -------------------------------------------------------- */

struct commits_given {
    const char *state, *keyPrefix;
    int64_t limit;
};

static const char *const commit_states[] = {"pending", "committed", "done", "aborted", NULL};

static const struct operation_field commits_fields[] = {
    {GIVEN(commits_given, state, FIELD_TEXT), "only commits in this state", .words = commit_states},
    {GIVEN(commits_given, keyPrefix, FIELD_TEXT), "only commits whose key begins with this string"},
    {GIVEN(commits_given, limit, FIELD_NUMBER), "the maximum number of commits; absent: 100", 1,
     REPLY_LIST_MAX},
    {{0}}};

static truce_status commit_run_list(struct operation_call *call, const void *arg, bson_t *reply,
                                    bson_error_t *error)
{
    const struct commits_given *given = arg;
    const truce_commit_list_options options = {.state = given->state,
                                               .key_prefix = given->keyPrefix};
    struct reply_list list;
    truce_cursor *cursor;
    truce_status status = truce_commit_list(call->store, &options, &cursor, error);

    truce__reply_list_begin(&list, given->limit);
    if (!status)
        status = truce__reply_list_read(&list, cursor, error);
    return truce__reply_list_end(&list, status, "commits", reply);
}

static const struct operation_row list_operation = {
    OPERATION("truceCommits", ROLE_READ, "lists recorded commits, newest first"),
    .value = "1",
    .answer = "`commits`: those of the journal, and those that had a key or an input, each as in "
              "truceCommitShow; and `more`: true if others match",
    .fields = commits_fields,
    .size = sizeof(struct commits_given),
    .run = commit_run_list,
    .ways = OPERATION_REPEATABLE | OPERATION_TRANSACTS,
    .example = "{truceCommits: 1, state: 'done', keyPrefix: 'payment', limit: 20}",
};

static truce_status commit_run_resolve(struct operation_call *call, const void *given,
                                       bson_t *reply, bson_error_t *error)
{
    const bson_oid_t *id;
    bson_t document;
    truce_status status = truce__operation_oid(call, &id, error);

    (void)given;
    if (status)
        return status;
    status = truce_commit_resolve(call->store, id, &document, error);
    if (!status)
        BSON_APPEND_DOCUMENT(reply, "commit", &document);
    bson_destroy(&document);
    return status;
}

static const struct operation_row resolve_operation = {
    OPERATION("truceCommitResolve", ROLE_WRITE,
              "completes a commit of the journal whose process died, or undoes it"),
    .target = "commit",
    .value = "the _id of the commit",
    .answer = "`commit`: the resulting commit. \"not found\": the commit never took effect, or was "
              "purged. An error: 24 (locked) its lease has not ended",
    .fields = truce__no_fields,
    .run = commit_run_resolve,
    .ways = OPERATION_REPEATABLE,
    .example = "{truceCommitResolve: {$oid: '0123456789abcdef01234567'}}",
};

/* ---- truceUnique ----------------------------------------------------------------------------- */

struct unique_given {
    int64_t settleMS;
};

static const struct operation_field unique_fields[] = {
    {GIVEN(unique_given, settleMS, FIELD_DURATION),
     "how long to wait for other processes, in milliseconds; absent: 6 s", 1, 60000},
    {{0}}};

static truce_status run_unique(struct operation_call *call, const void *arg, bson_t *reply,
                               bson_error_t *error)
{
    const struct unique_given *given = arg;
    const truce_unique_options options = {.settle_ms =
                                              given->settleMS ? (uint32_t)given->settleMS : 6000};
    truce_unique_report report;
    const char *collection;
    truce_status status = truce__operation_own_collection(call, true, &collection, error);

    if (!status)
        status = truce_unique_declare(call->store, collection, &options, &report, error);
    if (!status)
        BCON_APPEND(reply, "made", BCON_BOOL(report.made), "documents",
                    BCON_INT64(report.documents), "converted", BCON_INT64(report.converted));
    return status;
}

static const struct operation_row unique_operation = {
    OPERATION("truceUnique", ROLE_WRITE,
              "lets commits of the journal change values of the unique indexes of a collection"),
    .target = "collection",
    .value = "the collection",
    .answer = "`made`: the index on _keys is new; `documents` that were examined; and those that "
              "were `converted`. An error: 2 (invalid) the collection has no unique index",
    .fields = unique_fields,
    .size = sizeof(struct unique_given),
    .run = run_unique,
    .ways = OPERATION_REPEATABLE | OPERATION_STRICT,
    .example = "{truceUnique: 'accounts', settleMS: 1}",
};

/* ---- truceReadMany --------------------------------------------------------------------------- */

#define READ_MANY_MAX 1000

struct read_many_given {
    const bson_t *documents;
};

static const struct operation_field read_many_fields[] = {
    {GIVEN(read_many_given, documents, FIELD_ARRAY), "up to 1,000, each {collection, id}",
     .needed = true},
    {{0}}};

struct read_request_given {
    const char *collection;
    const bson_value_t *id;
};

static const struct operation_field read_request_fields[] = {
    {GIVEN(read_request_given, collection, FIELD_TEXT), "the collection", .needed = true},
    {GIVEN(read_request_given, id, FIELD_VALUE), "the _id", .needed = true},
    {{0}}};

/* Reads the elements {collection, id}, and checks that the caller may read each collection. */
static truce_status commit_read_requests(struct operation_call *call, const bson_t *array,
                                         truce_read_request *requests, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_iter_t at;

    (void)bson_iter_init(&at, array);
    for (size_t i = 0; !status && bson_iter_next(&at); i++) {
        struct read_request_given given = {0};

        if (!BSON_ITER_HOLDS_DOCUMENT(&at))
            return truce__element_wrong_type("documents", &at, "a document", error);
        status = truce__operation_nested(call, truce__field_view(call->arena, &at),
                                         read_request_fields, &given, error);
        if (!status)
            status = truce__operation_collection(call, given.collection, false, error);
        requests[i] = (truce_read_request){.collection = given.collection, .id = given.id};
    }
    return status;
}

/* Appends a document or null for each request. Fails with LIMIT if they exceed the size of a
 * reply. */
static truce_status commit_append_documents(truce_read_request *requests, uint32_t count,
                                            bson_t *reply, bson_error_t *error)
{
    bool fits = true;
    bson_t array;

    BSON_APPEND_ARRAY_BEGIN(reply, "documents", &array);
    for (uint32_t i = 0; i < count; i++) {
        char buffer[16];
        const char *key;

        bson_uint32_to_string(i, &key, buffer, sizeof buffer);
        fits = fits && array.len + requests[i].document.len < TRUCE_DOCUMENT_BYTES_MAX;
        if (fits && requests[i].found)
            BSON_APPEND_DOCUMENT(&array, key, &requests[i].document);
        else
            BSON_APPEND_NULL(&array, key);
    }
    bson_append_array_end(reply, &array);
    return fits ? TRUCE_OK
                : truce__fail(
                      TRUCE_LIMIT, error,
                      "the documents exceed the maximum size of a reply: read fewer at once");
}

static truce_status commit_run_read_many(struct operation_call *call, const void *arg,
                                         bson_t *reply, bson_error_t *error)
{
    const struct read_many_given *given = arg;
    uint32_t count = bson_count_keys(given->documents);
    truce_read_request *requests;
    truce_status status;

    if (!count || count > READ_MANY_MAX)
        return truce__refuse(CODE_INVALID_LENGTH, error,
                             "'documents' must have 1 to %d elements, and has %u", READ_MANY_MAX,
                             count);
    requests = truce__arena_take(call->arena, count * sizeof *requests);
    status = commit_read_requests(call, given->documents, requests, error);
    if (status)
        return status;
    status = truce_read_many(call->store, requests, count, NULL, error);
    if (!status)
        status = commit_append_documents(requests, count, reply, error);
    for (uint32_t i = 0; i < count; i++)
        bson_destroy(&requests[i].document);
    return status;
}

static const struct operation_row read_many_operation = {
    OPERATION("truceReadMany", ROLE_READ, "reads several documents from one snapshot"),
    .value = "1",
    .answer =
        "`documents`: for each element the document, or null if it does not exist. No document "
        "shows a part of a commit",
    .fields = read_many_fields,
    .size = sizeof(struct read_many_given),
    .run = commit_run_read_many,
    .ways = OPERATION_REPEATABLE,
    .example = "{truceReadMany: 1, documents: [{collection: 'accounts', id: 'a'}, {collection: "
               "'accounts', id: 'b'}]}",
};

/* ---- requests -------------------------------------------------------------------------------- */

struct request_given {
    const char *name;
    const bson_t *input;
};

static const struct operation_field request_fields[] = {
    {GIVEN(request_given, name, FIELD_TEXT), "the function that runs the request", .needed = true},
    {GIVEN(request_given, input, FIELD_DOCUMENT), "the input of the function; absent: empty"},
    {{0}}};

static truce_status run_request(struct operation_call *call, const void *arg, bson_t *reply,
                                bson_error_t *error)
{
    static const bson_t none = BSON_INITIALIZER;
    const struct request_given *given = arg;
    const char *key;
    truce_status status = truce__operation_text(call, &key, error);

    (void)reply;
    return status ? status
                  : truce_request_add(call->store, key, given->name,
                                      given->input ? given->input : &none, error);
}

static const struct operation_row request_operation = {
    OPERATION("truceRequest", ROLE_WRITE,
              "adds a request, which a program of the library or `truce request run` runs once"),
    .target = "key",
    .value = "the request's key",
    .answer = "nothing more. Sending it again has no effect. An error: 11000 (duplicate) the key "
              "was used for another request",
    .fields = request_fields,
    .size = sizeof(struct request_given),
    .run = run_request,
    .ways = OPERATION_REPEATABLE | OPERATION_TRANSACTS,
    .example = "{truceRequest: 'mail 17', name: 'mail', input: {to: 'ada@example.org'}}",
};

static truce_status run_request_state(struct operation_call *call, const void *given, bson_t *reply,
                                      bson_error_t *error)
{
    (void)given;
    return commit_show(call, truce_request_state, "request", reply, error);
}

static const struct operation_row request_state_operation = {
    OPERATION("truceRequestState", ROLE_READ, "returns the state of a request"),
    .target = "key",
    .value = "the request's key",
    .answer = "`request`: {_id, name, input, state, attempts, error, created, due}, where `state` "
              "is \"waiting\", \"done\", or \"failed\". \"not found\": no such request exists",
    .fields = truce__no_fields,
    .run = run_request_state,
    .ways = OPERATION_REPEATABLE | OPERATION_TRANSACTS,
    .example = "{truceRequestState: 'mail 17'}",
};

struct requests_given {
    const char *state;
    int64_t limit;
};

static const char *const request_states[] = {"waiting", "done", "failed", NULL};

static const struct operation_field requests_fields[] = {
    {GIVEN(requests_given, state, FIELD_TEXT), "only requests in this state",
     .words = request_states},
    {GIVEN(requests_given, limit, FIELD_NUMBER), "the maximum number of requests; absent: 100", 1,
     REPLY_LIST_MAX},
    {{0}}};

static truce_status run_requests(struct operation_call *call, const void *arg, bson_t *reply,
                                 bson_error_t *error)
{
    const struct requests_given *given = arg;
    bson_t filter = BSON_INITIALIZER, *sort = BCON_NEW("created", BCON_INT32(1));
    const truce_find_options options = {.sort = sort, .allow_disk_use = true};
    struct reply_list list;
    truce_cursor *cursor;
    truce_status status;

    if (given->state)
        BSON_APPEND_UTF8(&filter, "state", given->state);
    status = truce_find(call->store, REQUESTS, &filter, &options, &cursor, error);
    truce__reply_list_begin(&list, given->limit);
    if (!status)
        status = truce__reply_list_read(&list, cursor, error);
    bson_destroy(&filter);
    bson_destroy(sort);
    return truce__reply_list_end(&list, status, "requests", reply);
}

static const struct operation_row requests_operation = {
    OPERATION("truceRequests", ROLE_READ, "lists requests, the oldest first"),
    .value = "1",
    .answer = "`requests`: each as in truceRequestState; and `more`: true if others match",
    .fields = requests_fields,
    .size = sizeof(struct requests_given),
    .run = run_requests,
    .ways = OPERATION_REPEATABLE | OPERATION_TRANSACTS,
    .example = "{truceRequests: 1, state: 'waiting'}",
};

/* ---- sequences ------------------------------------------------------------------------------- */

struct sequence_given {
    int64_t take, raise;
};

static const struct operation_field sequence_fields[] = {
    {GIVEN(sequence_given, take, FIELD_NUMBER),
     "allocates this number of consecutive numbers for the caller", 1, 1000000},
    {GIVEN(sequence_given, raise, FIELD_NUMBER), "numbers up to this one are no longer allocated",
     1, INT64_MAX},
    {{0}}};

/* Allocates numbers (`take`), raises the sequence (`raise`), or reads its last number. The row
 * needs only the role to read, so the function checks the role to write itself. */
static truce_status run_sequence(struct operation_call *call, const void *arg, bson_t *reply,
                                 bson_error_t *error)
{
    const struct sequence_given *given = arg;
    int64_t first = 0, last = 0;
    const char *name;
    truce_status status = truce__operation_text(call, &name, error);

    if (!status && given->take && given->raise)
        status = truce__refuse(CODE_INVALID_OPTIONS, error,
                               "'take' and 'raise' exclude each other: send two commands");
    if (!status && (given->take || given->raise))
        status = call->host->check_role(call, ROLE_WRITE, error);
    if (!status && call->commit && !given->take)
        status = truce__refuse(CODE_INVALID_OPTIONS, error,
                               "in a commit, truceSequence needs the field 'take'");
    if (status)
        return status;
    if (given->take && call->commit)
        status = truce__sequence_take_in(call->commit, name, given->take, &first, error);
    else if (given->take)
        status = truce_sequence_take(call->store, name, given->take, &first, error);
    else if (given->raise)
        status = truce_sequence_raise(call->store, name, given->raise, error);
    if (!status && given->take)
        BSON_APPEND_INT64(reply, "first", first);
    if (!status && !given->take)
        status = truce_sequence_last(call->store, name, &last, error);
    if (!status)
        BSON_APPEND_INT64(reply, "last", given->take ? first + given->take - 1 : last);
    return status;
}

static const struct operation_row sequence_operation = {
    OPERATION("truceSequence", ROLE_READ,
              "allocates increasing numbers, each once; or returns the last of them"),
    .target = "sequence",
    .value = "the sequence's name",
    .answer = "with `take`, `first` and `last`: the allocated numbers; else `last`: the last "
              "number that was allocated, or 0. A part of a commit has `take`; its numbers are not "
              "allocated if the commit does not take effect. An error: 8 (outcome unknown) numbers "
              "may have been allocated",
    .fields = sequence_fields,
    .size = sizeof(struct sequence_given),
    .run = run_sequence,
    .ways = OPERATION_COMMITS | OPERATION_TRANSACTS | OPERATION_WRITES,
    .example = "{truceSequence: 'orders', take: 3}",
};

struct sequences_given {
    const char *after;
    int64_t limit;
};

static const struct operation_field sequences_fields[] = {
    {GIVEN(sequences_given, after, FIELD_TEXT), "only sequences after this name"},
    {GIVEN(sequences_given, limit, FIELD_NUMBER), "the maximum number of sequences; absent: 100", 1,
     REPLY_LIST_MAX},
    {{0}}};

static truce_status run_sequences(struct operation_call *call, const void *arg, bson_t *reply,
                                  bson_error_t *error)
{
    const struct sequences_given *given = arg;
    bson_t filter = BSON_INITIALIZER, *sort = BCON_NEW("_id", BCON_INT32(1)),
           *projection = BCON_NEW("value", BCON_INT32(1));
    const truce_find_options options = {.sort = sort, .projection = projection};
    struct reply_list list;
    truce_cursor *cursor;
    truce_status status;

    truce__reply_list_begin(&list, given->limit);
    if (given->after)
        BCON_APPEND(&filter, "_id", "{", "$gt", BCON_UTF8(given->after), "}");
    status = truce_find(call->store, SEQUENCES, &filter, &options, &cursor, error);
    if (!status)
        status = truce__reply_list_read(&list, cursor, error);
    bson_destroy(projection);
    bson_destroy(sort);
    bson_destroy(&filter);
    return truce__reply_list_end(&list, status, "sequences", reply);
}

static const struct operation_row sequences_operation = {
    OPERATION("truceSequences", ROLE_READ, "lists the sequences with their last numbers"),
    .value = "1",
    .answer = "`sequences`, by name: each {_id, value}; and `more`: continue with `after` the last "
              "_id",
    .fields = sequences_fields,
    .size = sizeof(struct sequences_given),
    .run = run_sequences,
    .ways = OPERATION_REPEATABLE | OPERATION_TRANSACTS,
    .example = "{truceSequences: 1}",
};

const struct operation_row *const commit_operations[] = {&commit_operation,
                                                         &result_operation,
                                                         &show_operation,
                                                         &list_operation,
                                                         &resolve_operation,
                                                         &unique_operation,
                                                         &read_many_operation,
                                                         &request_operation,
                                                         &request_state_operation,
                                                         &requests_operation,
                                                         &sequence_operation,
                                                         &sequences_operation,
                                                         NULL};

/*
 * Queues: the operations of workers. The job's _id and the token of the claim identify a claim,
 * from any connection and on any server of the store: the server stores no state of a claim.
 *
 * A claim that waits blocks the thread of its caller and no other. It regularly checks whether the
 * caller has disconnected, so that few jobs are claimed for a caller that has disconnected. Such a
 * job becomes ready again when its lease ends.
 */
#include <string.h>

#include "base/clock.h"
#include "base/field.h"
#include "operations/operation_queue.h"
#include "patterns/queue/queue.h"

#define CHECK_MS    500
#define WAIT_MS_MAX 600000
/* The bytes of a reply that are reserved for its other fields. */
#define REPLY_ROOM (64 * 1024)

/* ---- truceClaim ------------------------------------------------------------------------------ */

struct claim_given {
    int64_t most, waitMS, leaseMS;
    const char *worker;
    bool check;
};

static const struct operation_field claim_fields[] = {
    {GIVEN(claim_given, most, FIELD_NUMBER), "the maximum number of jobs; absent: 1", 1,
     JOB_CLAIMS_MAX},
    {GIVEN(claim_given, waitMS, FIELD_DURATION),
     "if no job is ready, the command waits this long for one, in milliseconds; during the wait, "
     "only this connection is blocked. It must be shorter than `maxTimeMS`, which some drivers set from "
     "their option timeoutMS",
     0, WAIT_MS_MAX},
    {GIVEN(claim_given, leaseMS, FIELD_DURATION),
     "the duration of the claim without truceHeartbeat, in milliseconds; absent: 30,000", 100,
     86400000},
    {GIVEN(claim_given, worker, FIELD_TEXT), "the name of the worker, for people"},
    {GIVEN(claim_given, check, FIELD_FLAG),
     "if no job came, check whether the queue has any jobs, including jobs that ended"},
    {{0}}};

/* Requeues a job that its claimer does not get. If this fails, the job is ready again when its
 * lease ends. */
static void operation_job_give_back(truce_job *job)
{
    bson_error_t ignored;

    if (truce_job_snooze(job, NULL, 0, &ignored))
        return;
}

static void operation_job_give_back_free(truce_job *job)
{
    operation_job_give_back(job);
    truce_job_free(job);
}

/* Claims up to given->most jobs, waiting up to given->waitMS for the first one. Fails with
 * NOT_FOUND if no job became ready. */
static truce_status operation_job_claim(struct operation_call *call, truce_queue *queue,
                                        const struct claim_given *given, truce_job **jobs,
                                        size_t *count, bson_error_t *error)
{
    int64_t now_ns = truce__clock_monotonic_ns(), until_ns = now_ns + given->waitMS * 1000000,
            left_ms;
    size_t most = given->most ? (size_t)given->most : 1, more = 0;
    truce_status status = truce_queue_claim_many(queue, most, jobs, count, error);

    while (status == TRUCE_NOT_FOUND &&
           (left_ms = (until_ns - (now_ns = truce__clock_monotonic_ns())) / 1000000) > 0 &&
           !call->host->is_gone(call)) {
        status = truce_queue_claim_wait(queue, (uint32_t)(left_ms < CHECK_MS ? left_ms : CHECK_MS),
                                        jobs, error);
        call->waited_ns += truce__clock_monotonic_ns() - now_ns;
        *count = status ? 0 : 1;
        if (!status && most > 1 && !truce_queue_claim_many(queue, most - 1, jobs + 1, &more, NULL))
            *count += more;
    }
    /* The caller may have ended since the last check, and the job would wait for its lease. */
    if (!status && given->waitMS && call->host->is_gone(call)) {
        while (*count)
            operation_job_give_back_free(jobs[--*count]);
        status = truce__fail(TRUCE_NOT_FOUND, error, "the client or the server has ended");
    }
    return status;
}

/* Appends the claimed jobs. Requeues those that do not fit into the reply. */
static void operation_job_append_claimed(truce_job **jobs, size_t count, bson_t *reply)
{
    bson_t array;
    size_t i = 0;

    BSON_APPEND_ARRAY_BEGIN(reply, "jobs", &array);
    for (; i < count; i++) {
        const bson_t *document = truce_job_document(jobs[i]);
        char buffer[16];
        const char *key;

        if (i && array.len + document->len + REPLY_ROOM > TRUCE_DOCUMENT_BYTES_MAX)
            break;
        bson_uint32_to_string((uint32_t)i, &key, buffer, sizeof buffer);
        truce__operation_append_job(document, &jobs[i]->token, key, &array);
    }
    bson_append_array_end(reply, &array);
    for (; i < count; i++)
        operation_job_give_back(jobs[i]);
}

/* Claims jobs, and appends them to the reply. If none is ready and `check` is set, appends a note
 * about an unknown queue. */
static truce_status run_claim(struct operation_call *call, const void *arg, bson_t *reply,
                              bson_error_t *error)
{
    const struct claim_given *given = arg;
    truce_job **jobs = truce__arena_take(call->arena, JOB_CLAIMS_MAX * sizeof *jobs);
    struct handle *handle;
    const char *name;
    size_t count = 0;
    truce_status status;

    if (call->deadline_ms && given->waitMS >= call->deadline_ms)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "'waitMS' is %lld, and 'maxTimeMS' is %lld: expected a shorter wait "
                             "(some drivers set maxTimeMS from their option timeoutMS)",
                             (long long)given->waitMS, (long long)call->deadline_ms);
    status = truce__operation_queue(call, given->worker, given->leaseMS, &handle, error);
    if (status)
        return status;
    status = operation_job_claim(call, handle->thing, given, jobs, &count, error);
    if (!status || status == TRUCE_NOT_FOUND)
        operation_job_append_claimed(jobs, count, reply);
    if (status == TRUCE_NOT_FOUND && given->check && !truce__operation_text(call, &name, NULL))
        (void)truce__operation_queue_is_known(call, name, reply);
    for (size_t i = 0; i < count; i++)
        truce_job_free(jobs[i]);
    truce__operation_return(call, handle);
    return status;
}

static const struct operation_row claim_operation = {
    OPERATION("truceClaim", ROLE_WRITE, "claims the next ready jobs, and can wait for one"),
    .target = "queue",
    .value = "the queue",
    .answer =
        "`jobs`: each the job's document with `token`, which together with `_id` identifies the "
        "claim, `attempt`, and `epoch`, a fencing token that increases with each claim. \"not "
        "found\": no job came, or the queue is paused; with `check`, a `note` if the queue has no "
        "jobs, as if its name is misspelled",
    .fields = claim_fields,
    .size = sizeof(struct claim_given),
    .run = run_claim,
    .example = "{truceClaim: 'mail', waitMS: 100, leaseMS: 30000}",
};

/* ---- a job by its claim ---------------------------------------------------------------------- */

/* The structs of the following operations begin with this one. */
struct job_given {
    const bson_oid_t *id, *token;
};

#define JOB_FIELDS                                                                                 \
    {GIVEN(job_given, id, FIELD_OID), "the job's _id", .needed = true},                            \
    {                                                                                              \
        GIVEN(job_given, token, FIELD_OID), "the claim's token", .needed = true                    \
    }

struct held_job {
    struct handle *handle;
    truce_job *job;
    /* This claim had ended the job as done before the call. */
    bool done;
};

static void free_job(void *job)
{
    truce_job_free(job);
}

static void release_job(struct operation_call *call, struct held_job *held)
{
    truce__operation_end(call, free_job, held->job);
    truce__operation_return(call, held->handle);
}

/* Returns the error for a job that the queue does not have. A job never changes its queue, so if
 * another queue has it, the request is wrong: a worker that ignores EXPIRED would never end a job. */
static truce_status job_fail_absent(const struct operation_call *call, const bson_oid_t *id,
                                    const char *queue, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_OID(id)), document;
    truce_status status = truce_find_one(call->store, QUEUE, filter, NULL, &document, NULL);
    char text[25];

    bson_oid_to_string(id, text);
    if (!status)
        status = truce__fail(TRUCE_INVALID, error, "job %s is in the queue \"%s\", not in \"%s\"",
                             text, truce__field_text(&document, "queue"), queue);
    else
        status = truce__fail(TRUCE_EXPIRED, error, "job %s is no longer in the queue", text);
    bson_destroy(&document);
    bson_destroy(filter);
    return status;
}

/* Finds the claimed job of the call. Fails with EXPIRED if the job does not exist, and
 * with INVALID if it is in another queue. The next call checks whether the claim is still valid. */
static truce_status operation_job_take_job(struct operation_call *call,
                                           const struct job_given *given, struct held_job *held,
                                           bson_error_t *error)
{
    int64_t lease_ms = 0;
    bson_t document, lease;
    bson_oid_t token;
    const char *name;
    truce_status status = truce__operation_queue(call, NULL, 0, &held->handle, error);

    held->job = NULL;
    held->done = false;
    if (status)
        return status;
    status = truce_queue_get(held->handle->thing, call->commit, given->id, &document, error);
    if (!status && truce__value_subdocument(&document, "lease", &lease))
        lease_ms = truce__field_number(&lease, "ms");
    if (!status && lease_ms > 0 && lease_ms <= UINT32_MAX && lease_ms != JOB_LEASE_MS) {
        /* The job is extended by the lease that it was claimed with. */
        truce__operation_return(call, held->handle);
        status = truce__operation_queue(call, NULL, lease_ms, &held->handle, error);
    }
    if (!status) {
        held->job = truce__job_new(held->handle->thing, &document, given->token);
        held->done = !strcmp(truce__job_state(&document), "done") &&
                     truce__job_token(&document, &token) && bson_oid_equal(&token, given->token);
    }
    bson_destroy(&document);
    if (status == TRUCE_NOT_FOUND && !truce__operation_text(call, &name, error))
        status = job_fail_absent(call, given->id, name, error);
    if (status)
        truce__operation_return(call, held->handle);
    return status;
}

/* ---- truceHeartbeat -------------------------------------------------------------------------- */

struct heartbeat_given {
    struct job_given job; /* Must be the first field: the table has offsets into it. */
    const bson_t *progress;
};

static const struct operation_field heartbeat_fields[] = {
    JOB_FIELDS,
    {GIVEN(heartbeat_given, progress, FIELD_DOCUMENT),
     "the progress, which is stored in the job for other processes to read"},
    {{0}}};

static truce_status run_heartbeat(struct operation_call *call, const void *arg, bson_t *reply,
                                  bson_error_t *error)
{
    const struct heartbeat_given *given = arg;
    struct held_job held;
    truce_status status = operation_job_take_job(call, &given->job, &held, error);

    if (status)
        return status;
    status = truce_job_extend(held.job, error);
    if (!status && given->progress)
        status = truce_job_progress(held.job, given->progress, error);
    if (!status)
        BSON_APPEND_INT64(reply, "leaseMS", truce_job_queue(held.job)->lease_ms);
    release_job(call, &held);
    return status;
}

#define LOST "An error: 125 (expired) this worker no longer has the job, or the job was cancelled"

static const struct operation_row heartbeat_operation = {
    OPERATION("truceHeartbeat", ROLE_WRITE, "renews the lease of a job"),
    .target = "queue",
    .value = "the queue",
    .answer = "`leaseMS`: the duration of the lease from now, in milliseconds. " LOST,
    .fields = heartbeat_fields,
    .size = sizeof(struct heartbeat_given),
    .run = run_heartbeat,
    .ways = OPERATION_REPEATABLE,
    .example = "{truceHeartbeat: 'mail', id: {$oid: '0123456789abcdef01234567'}, token: {$oid: "
               "'0123456789abcdef0123456a'}}",
};

/* ---- the ends -------------------------------------------------------------------------------- */

struct end_given {
    struct job_given job; /* Must be the first field: the table has offsets into it. */
    const bson_t *result, *changes;
    const char *error;
    int64_t delayMS;
};

static const struct operation_field done_fields[] = {
    JOB_FIELDS,
    {GIVEN(end_given, result, FIELD_DOCUMENT), "the result, which is stored in the job"},
    {{0}}};

static truce_status run_done(struct operation_call *call, const void *arg, bson_t *reply,
                             bson_error_t *error)
{
    const struct end_given *given = arg;
    struct held_job held;
    truce_status status = operation_job_take_job(call, &given->job, &held, error);

    if (status)
        return status;
    status = truce_job_done(held.job, call->commit, given->result, error);
    if (!status && held.done)
        BSON_APPEND_BOOL(reply, "earlier", true);
    release_job(call, &held);
    return status;
}

static const struct operation_row done_operation = {
    OPERATION("truceDone", ROLE_WRITE, "ends a job as done"),
    .target = "queue",
    .value = "the queue",
    .answer = "`earlier`, only as true: this claim has ended the job before, and its first result "
              "stays. " LOST,
    .fields = done_fields,
    .size = sizeof(struct end_given),
    .run = run_done,
    .ways = OPERATION_COMMITS | OPERATION_REPEATABLE | OPERATION_TRANSACTS,
    .example = "{truceDone: 'mail', id: {$oid: '0123456789abcdef01234567'}, token: {$oid: "
               "'0123456789abcdef0123456a'}, result: {sent: true}}",
};

static const struct operation_field fail_fields[] = {
    JOB_FIELDS,
    {GIVEN(end_given, error, FIELD_TEXT), "the reason; its first 2,000 bytes are recorded",
     .needed = true},
    {GIVEN(end_given, delayMS, FIELD_DURATION),
     "the delay of the next attempt in milliseconds; absent: 1 s, and twice as long each time", 0,
     DURATION_MAX_MS},
    {{0}}};

static truce_status run_fail(struct operation_call *call, const void *arg, bson_t *reply,
                             bson_error_t *error)
{
    const struct end_given *given = arg;
    struct held_job held;
    truce_status status = operation_job_take_job(call, &given->job, &held, error);

    (void)reply;
    if (status)
        return status;
    status = truce_job_fail(held.job, call->commit, given->error,
                            truce__operation_given(call, "delayMS") ? given->delayMS : -1, error);
    release_job(call, &held);
    return status;
}

static const struct operation_row fail_operation = {
    OPERATION("truceFail", ROLE_WRITE,
              "ends an attempt as failed: the job is retried, or is dead after its last attempt"),
    .target = "queue",
    .value = "the queue",
    .answer = "nothing more. " LOST,
    .fields = fail_fields,
    .size = sizeof(struct end_given),
    .run = run_fail,
    .ways = OPERATION_COMMITS | OPERATION_TRANSACTS,
    .example = "{truceFail: 'mail', id: {$oid: '0123456789abcdef01234567'}, token: {$oid: "
               "'0123456789abcdef0123456a'}, error: 'no answer', delayMS: 60000}",
};

static const struct operation_field discard_fields[] = {
    JOB_FIELDS,
    {GIVEN(end_given, error, FIELD_TEXT), "the reason; its first 2,000 bytes are recorded",
     .needed = true},
    {{0}}};

static truce_status run_discard(struct operation_call *call, const void *arg, bson_t *reply,
                                bson_error_t *error)
{
    const struct end_given *given = arg;
    struct held_job held;
    truce_status status = operation_job_take_job(call, &given->job, &held, error);

    (void)reply;
    if (status)
        return status;
    status = truce_job_discard(held.job, call->commit, given->error, error);
    release_job(call, &held);
    return status;
}

static const struct operation_row discard_operation = {
    OPERATION("truceDiscard", ROLE_WRITE,
              "ends a job as discarded: it is not retried, and is not a dead letter"),
    .target = "queue",
    .value = "the queue",
    .answer = "nothing more. " LOST,
    .fields = discard_fields,
    .size = sizeof(struct end_given),
    .run = run_discard,
    .ways = OPERATION_COMMITS | OPERATION_TRANSACTS,
    .example = "{truceDiscard: 'mail', id: {$oid: '0123456789abcdef01234567'}, token: {$oid: "
               "'0123456789abcdef0123456a'}, error: 'no such address'}",
};

static const struct operation_field snooze_fields[] = {
    JOB_FIELDS,
    {GIVEN(end_given, delayMS, FIELD_DURATION),
     "the delay in milliseconds; 0: any worker may claim it at once", 0, DURATION_MAX_MS,
     .needed = true},
    {{0}}};

static truce_status run_snooze(struct operation_call *call, const void *arg, bson_t *reply,
                               bson_error_t *error)
{
    const struct end_given *given = arg;
    struct held_job held;
    truce_status status = operation_job_take_job(call, &given->job, &held, error);

    (void)reply;
    if (status)
        return status;
    status = truce_job_snooze(held.job, call->commit, given->delayMS, error);
    release_job(call, &held);
    return status;
}

static const struct operation_row snooze_operation = {
    OPERATION("truceSnooze", ROLE_WRITE, "postpones a job; the attempt does not count"),
    .target = "queue",
    .value = "the queue",
    .answer = "nothing more. " LOST,
    .fields = snooze_fields,
    .size = sizeof(struct end_given),
    .run = run_snooze,
    .ways = OPERATION_COMMITS | OPERATION_TRANSACTS,
    .example = "{truceSnooze: 'mail', id: {$oid: '0123456789abcdef01234567'}, token: {$oid: "
               "'0123456789abcdef0123456a'}, delayMS: 60000}",
};

/* ---- truceJobCommit -------------------------------------------------------------------------- */

static const struct operation_field job_commit_fields[] = {
    JOB_FIELDS,
    {GIVEN(end_given, changes, FIELD_ARRAY), "the changes, as in truceCommit", .needed = true},
    {GIVEN(end_given, result, FIELD_DOCUMENT), "the result, which is stored in the job"},
    {{0}}};

/* Adds the changes of the request to the commit that ends the job (truce_commit_function). */
static truce_status add_effects(truce_commit *commit, void *arg, bson_error_t *error)
{
    return truce__operation_changes_add(arg, commit, error);
}

static truce_status run_job_commit(struct operation_call *call, const void *arg, bson_t *reply,
                                   bson_error_t *error)
{
    const struct end_given *given = arg;
    bool earlier = false;
    const truce_commit_options options = {.deadline_ms = call->deadline_ms, .earlier = &earlier};
    struct operation_changes list;
    struct held_job held;
    truce_status status = truce__operation_changes_begin(&list, call, given->changes, error);

    if (!status)
        status = operation_job_take_job(call, &given->job, &held, error);
    if (!status) {
        truce_job_result(held.job, given->result);
        status = truce_job_commit(held.job, add_effects, &list, &options, error);
        release_job(call, &held);
    }
    if (!status)
        BSON_APPEND_BOOL(reply, "earlier", earlier);
    if (!status && !earlier)
        truce__operation_changes_append(&list, reply);
    truce__operation_changes_release(&list);
    return status;
}

static const struct operation_row job_commit_operation = {
    OPERATION("truceJobCommit", ROLE_WRITE,
              "changes documents and ends the job as done: both or neither, fenced by the claim"),
    .target = "queue",
    .value = "the queue",
    .answer =
        "`earlier`: true if this claim has made its commit before, and nothing was changed now, "
        "whatever the changes are. `results`: for each operation among the changes {change: N, "
        "...} with its reply; a repetition has none. The errors are those of truceCommit; nothing "
        "is changed then. " LOST,
    .fields = job_commit_fields,
    .size = sizeof(struct end_given),
    .run = run_job_commit,
    .ways = OPERATION_REPEATABLE | OPERATION_STRICT,
    .example =
        "{truceJobCommit: 'mail', id: {$oid: '0123456789abcdef01234567'}, token: {$oid: "
        "'0123456789abcdef0123456a'}, changes: [{update: 'accounts', id: 'a', with: {$inc: {mails: "
        "1}}}]}",
};

/* ---- truceJobStep ---------------------------------------------------------------------------- */

struct step_given {
    struct job_given job; /* Must be the first field: the table has offsets into it. */
    const char *name;
    const bson_t *changes, *result;
};

static const struct operation_field step_fields[] = {
    JOB_FIELDS,
    {GIVEN(step_given, name, FIELD_TEXT),
     "the name of the step, unique in the job, without \".\" and \"$\"", .needed = true},
    {GIVEN(step_given, changes, FIELD_ARRAY), "the changes, as in truceCommit; absent: none"},
    {GIVEN(step_given, result, FIELD_DOCUMENT),
     "the result of the step, which is stored in the job"},
    {{0}}};

struct job_stepping {
    const struct step_given *given;
    struct operation_changes list;
    bool ran;
};

static truce_status job_step(truce_commit *commit, void *arg, bson_t *result, bson_error_t *error)
{
    struct job_stepping *stepping = arg;

    stepping->ran = true;
    if (stepping->given->result)
        bson_concat(result, stepping->given->result);
    return stepping->given->changes ? truce__operation_changes_add(&stepping->list, commit, error)
                                    : TRUCE_OK;
}

/* Completes a step. If an earlier attempt has completed it, changes nothing and returns the stored
 * result. */
static truce_status job_run_step(struct operation_call *call, const void *arg, bson_t *reply,
                                 bson_error_t *error)
{
    static const bson_t none = BSON_INITIALIZER;
    struct job_stepping stepping = {.given = arg};
    const bson_t *changes = stepping.given->changes;
    bson_t result = BSON_INITIALIZER;
    struct held_job held;
    truce_status status =
        truce__operation_changes_begin(&stepping.list, call, changes ? changes : &none, error);

    if (!status)
        status = operation_job_take_job(call, &stepping.given->job, &held, error);
    if (!status) {
        bson_destroy(&result);
        status =
            truce_job_step(held.job, stepping.given->name, job_step, &stepping, &result, error);
        release_job(call, &held);
    }
    if (!status) {
        BSON_APPEND_BOOL(reply, "earlier", !stepping.ran);
        BSON_APPEND_DOCUMENT(reply, "result", &result);
        if (stepping.ran)
            truce__operation_changes_append(&stepping.list, reply);
    }
    bson_destroy(&result);
    truce__operation_changes_release(&stepping.list);
    return status;
}

static const struct operation_row step_operation = {
    OPERATION("truceJobStep", ROLE_WRITE,
              "completes a step of a job with its changes, once in all attempts"),
    .target = "queue",
    .value = "the queue",
    .answer =
        "`earlier`: true if this attempt or an earlier one has completed the step, and nothing "
        "was changed now. `result`: the stored result. `results`: for each operation among the "
        "changes {change: N, ...} with its reply. The errors are those of truceCommit; nothing is "
        "changed then. " LOST,
    .fields = step_fields,
    .size = sizeof(struct step_given),
    .run = job_run_step,
    .ways = OPERATION_REPEATABLE | OPERATION_STRICT,
    .example =
        "{truceJobStep: 'mail', id: {$oid: '0123456789abcdef01234567'}, token: {$oid: "
        "'0123456789abcdef0123456a'}, name: 'book', changes: [{update: 'accounts', id: 'a', with: "
        "{$inc: {mails: 1}}}], result: {booked: true}}",
};

/* ---- truceJobSleep, truceJobWait ------------------------------------------------------------- */

struct suspend_given {
    struct job_given job; /* Must be the first field: the table has offsets into it. */
    const char *name;
    int64_t delayMS, timeoutMS;
};

#define JOB_SUSPENDED                                                                              \
    "\"not found\": the job is suspended, and this worker no longer has it. When the time comes, " \
    "it is claimed again, no attempt is counted, and the same command answers \"ok\". "

static const struct operation_field sleep_fields[] = {
    JOB_FIELDS,
    {GIVEN(suspend_given, name, FIELD_TEXT), "the name of the sleep", .needed = true},
    {GIVEN(suspend_given, delayMS, FIELD_DURATION), "the duration in milliseconds", 0,
     DURATION_MAX_MS, .needed = true},
    {{0}}};

static truce_status job_run_sleep(struct operation_call *call, const void *arg, bson_t *reply,
                                  bson_error_t *error)
{
    const struct suspend_given *given = arg;
    struct held_job held;
    truce_status status = operation_job_take_job(call, &given->job, &held, error);

    (void)reply;
    if (status)
        return status;
    status = truce_job_sleep(held.job, given->name, given->delayMS, error);
    release_job(call, &held);
    return status;
}

static const struct operation_row sleep_operation = {
    OPERATION("truceJobSleep", ROLE_WRITE,
              "suspends a job for a time, once for each name in all attempts"),
    .target = "queue",
    .value = "the queue",
    .answer = "\"ok\": the sleep is over. " JOB_SUSPENDED LOST,
    .fields = sleep_fields,
    .size = sizeof(struct suspend_given),
    .run = job_run_sleep,
    .example = "{truceJobSleep: 'mail', id: {$oid: '0123456789abcdef01234567'}, token: {$oid: "
               "'0123456789abcdef0123456a'}, name: 'a day', delayMS: 86400000}",
};

static const struct operation_field wait_fields[] = {
    JOB_FIELDS,
    {GIVEN(suspend_given, name, FIELD_TEXT), "the name of the event (truceSignal)", .needed = true},
    {GIVEN(suspend_given, timeoutMS, FIELD_DURATION),
     "the maximum time in milliseconds from the first call with this name; absent: forever", 0,
     DURATION_MAX_MS},
    {{0}}};

/* Waits for an event, by default without a limit. If the wait has not ended, fails with NOT_FOUND:
 * the job is suspended. */
static truce_status job_run_wait(struct operation_call *call, const void *arg, bson_t *reply,
                                 bson_error_t *error)
{
    const struct suspend_given *given = arg;
    int64_t timeout_ms = truce__operation_given(call, "timeoutMS") ? given->timeoutMS : -1;
    bool came = false;
    struct held_job held;
    bson_t event;
    truce_status status = operation_job_take_job(call, &given->job, &held, error);

    if (status)
        return status;
    status = truce_job_wait(held.job, given->name, timeout_ms, &event, &came, error);
    release_job(call, &held);
    if (!status)
        BSON_APPEND_BOOL(reply, "came", came);
    if (!status && came)
        BSON_APPEND_DOCUMENT(reply, "event", &event);
    bson_destroy(&event);
    return status;
}

static const struct operation_row wait_operation = {
    OPERATION("truceJobWait", ROLE_WRITE, "suspends a job until an event arrives (truceSignal)"),
    .target = "queue",
    .value = "the queue",
    .answer = "`came`: false if the time is over; else true, and `event`. " JOB_SUSPENDED LOST,
    .fields = wait_fields,
    .size = sizeof(struct suspend_given),
    .run = job_run_wait,
    .example = "{truceJobWait: 'mail', id: {$oid: '0123456789abcdef01234567'}, token: {$oid: "
               "'0123456789abcdef0123456a'}, name: 'approved', timeoutMS: 86400000}",
};

const struct operation_row *const job_operations[] = {&claim_operation,
                                                      &heartbeat_operation,
                                                      &done_operation,
                                                      &job_commit_operation,
                                                      &fail_operation,
                                                      &snooze_operation,
                                                      &discard_operation,
                                                      &step_operation,
                                                      &sleep_operation,
                                                      &wait_operation,
                                                      NULL};

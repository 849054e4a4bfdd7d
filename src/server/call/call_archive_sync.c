/*
 * --archive-sync: a reply waits until the archive has the commits that it depends on. The archive
 * is the sync target (struct server_sync_target of server.h).
 *
 * The access that a call needs says whether it may write. An operation that needs more access for
 * a write than for a read requests it before it writes.
 *
 * A call that may write waits twice: before its handler until the target works, and after it until
 * the target has all commits so far. The second wait is also for calls that failed or changed
 * nothing, because their replies depend on what is stored: a duplicate key, or a commit key that
 * was used. A read with readConcern majority or linearizable waits after its handler. Other reads
 * do not wait, and a call that requested not to wait for the disk does not either. The statements
 * of a transaction wait at its commit.
 *
 * If the second wait fails, the write is on the disk but its outcome is unknown, as with a write
 * concern of a replica set. MongoDB's writes get {ok: 1, writeConcernError: {code: 64}}. Operations
 * of the patterns, and calls over HTTP, fail with UNKNOWN, because their clients do not look for
 * this field.
 */
#include <string.h>

#include "base/clock.h"
#include "query/aggregate/aggregate.h"
#include "server/call/call.h"

#define CODE_WRITE_CONCERN_TIMEOUT 64

static bool archive_sync_pipeline_writes(const bson_t *command)
{
    const uint8_t *bytes;
    bson_iter_t pipeline;
    uint32_t size;
    bson_t stages;

    if (!bson_iter_init_find(&pipeline, command, "pipeline") || !BSON_ITER_HOLDS_ARRAY(&pipeline))
        return false;
    bson_iter_array(&pipeline, &size, &bytes);
    return bson_init_static(&stages, bytes, size) && truce__pipeline_writes(&stages);
}

/* Returns whether the call may write, according to the traits of its command and the access that it
 * needs. Returns false if the call does not wait for the disk, and for statements of a transaction
 * except its commit. */
static bool archive_sync_writes(const struct call *call)
{
    const uint32_t reads = ACTION_FIND | ACTION_STATS | ACTION_LIST | ACTION_LIST_DATABASES;
    const struct command *command = call->command;

    if (call->relaxed || command->traits & COMMAND_KEEPS_DOCUMENTS)
        return false;
    if (call->session.transaction)
        return !strcmp(command->name, "commitTransaction");
    if (command->traits & (COMMAND_RETRIES | COMMAND_CHANGES_NAMES))
        return true;
    switch (command->need.kind) {
    case NEED_COLLECTION:
    case NEED_DATABASE:
        return command->need.actions & ~reads ||
               (!strcmp(command->name, "aggregate") &&
                archive_sync_pipeline_writes(&call->request->body));
    case NEED_SERVER:
        return command->append_error && command->need.actions & ACTION_KILL;
    default:
        return false;
    }
}

/* Returns the time at which the client stops waiting (monotonic), or INT64_MAX if it waits without
 * a limit. */
static int64_t archive_sync_until_ns(const struct call *call)
{
    int64_t ms = call->concern_ms;

    if (call->deadline_ms && (!ms || call->deadline_ms < ms))
        ms = call->deadline_ms;
    if (!ms || ms > INT32_MAX)
        return INT64_MAX;
    return truce__clock_monotonic_ns() + ms * 1000000;
}

truce_status call_archive_sync_write(struct call *call, bson_error_t *error)
{
    const struct server_sync_target *sync_target = call->server->sync_target;
    truce_status status;

    /* Invariant 5 of server.h: these calls do not wait, or already wait for the target. */
    if (!sync_target || call->relaxed || call->session.transaction || call->awaits_sync_target)
        return TRUCE_OK;
    status = sync_target->ready(sync_target->arg, archive_sync_until_ns(call), error);
    call->awaits_sync_target = !status;
    return status;
}

truce_status call_archive_sync_ready(struct call *call, bson_error_t *error)
{
    const struct server_sync_target *sync_target = call->server->sync_target;

    /* Invariant 5 of server.h: only a call that may write waits before it begins. */
    if (!sync_target || !archive_sync_writes(call))
        return TRUCE_OK;
    call->awaits_sync_target = true;
    return sync_target->ready(sync_target->arg, archive_sync_until_ns(call), error);
}

static void archive_sync_keep_concern(struct call *call, const bson_error_t *error)
{
    bson_t *concern =
        BCON_NEW("code", BCON_INT32(CODE_WRITE_CONCERN_TIMEOUT), "codeName",
                 BCON_UTF8("WriteConcernTimeout"), "errmsg", BCON_UTF8(error->message), "errInfo",
                 "{", "wtimeout", BCON_BOOL(true), "}");

    call->concern = call_view(
        call, truce__arena_copy(&call->arena, bson_get_data(concern), concern->len), concern->len);
    bson_destroy(concern);
}

truce_status call_archive_sync_wait(struct call *call, truce_status status, bson_error_t *error)
{
    const struct server_sync_target *sync_target = call->server->sync_target;
    bool writes = call->awaits_sync_target;
    bson_error_t late;
    truce_status waited;

    /* Invariant 5 of server.h: a read waits only if its readConcern demands it. */
    if (!sync_target || (!writes && !call->majority))
        return status;
    waited = sync_target->wait(sync_target->arg, archive_sync_until_ns(call), &late);
    if (!waited)
        return status;
    if (writes && !call->command->append_error && !call->connection->borrowed) {
        archive_sync_keep_concern(call, &late);
        return status;
    }
    *error = late;
    return writes ? waited : TRUCE_TIMEOUT;
}

#include "server/command/cursor_reply.h"

#include "base/limits.h"
#include "server/call/call.h"

void cursor_reply_append_time(const struct registered_snapshot *snapshot, bson_t *to)
{
    BSON_APPEND_TIMESTAMP(to, "atClusterTime", (uint32_t)(snapshot->time >> 32),
                          (uint32_t)snapshot->time);
}

truce_status cursor_reply(struct call *call, struct cursor_entry *entry, const char *name,
                          int64_t most, bool one_batch, bson_t *reply, bson_error_t *error)
{
    bool end = false;
    truce_status status;
    bson_t cursor, batch;
    int64_t id = 0;

    BSON_APPEND_DOCUMENT_BEGIN(reply, "cursor", &cursor);
    BSON_APPEND_ARRAY_BEGIN(&cursor, name, &batch);
    status = cursor_entry_read(entry, most, &batch, &end, error);
    bson_append_array_end(&cursor, &batch);
    BSON_APPEND_UTF8(&cursor, "ns", entry->ns);
    if (entry->snapshot) {
        cursor_reply_append_time(entry->snapshot, &cursor);
        status = snapshot_registry_status(status, error);
    }
    if (status || end || one_batch) {
        cursor_entry_close(entry);
    } else {
        status = cursors_add(call->server->cursors, entry, error);
        id = status ? 0 : entry->id;
    }
    BSON_APPEND_INT64(&cursor, "id", id);
    bson_append_document_end(reply, &cursor);
    return status;
}

static struct cursor_entry *reply_entry(const struct call *call, const char *ns)
{
    struct cursor_entry *entry = bson_malloc0(sizeof *entry);

    entry->owner = call->owner;
    entry->user = bson_strdup(call->connection->login.tag);
    entry->ns = bson_strdup(ns);
    entry->snapshots = call->server->snapshots;
    entry->snapshot = call->read_snapshot;
    if (entry->snapshot)
        snapshot_registry_hold(entry->snapshots, entry->snapshot);
    return entry;
}

truce_status cursor_reply_first(struct call *call, truce_cursor *cursor, const char *ns,
                                int64_t most, bool one_batch, bson_t *reply, bson_error_t *error)
{
    struct cursor_entry *entry = reply_entry(call, ns);

    entry->cursor = cursor;
    return cursor_reply(call, entry, "firstBatch", most, one_batch, reply, error);
}

truce_status cursor_reply_room(const struct call *call, bson_error_t *error)
{
    int64_t bytes = cursors_bytes(call->server->cursors);

    return bytes > TRUCE_SERVER_REPLIES_BYTES
               ? truce__refuse(
                     CODE_EXCEEDED_MEMORY_LIMIT, error,
                     "the open cursors hold %lld bytes of results, and the maximum is %d: "
                     "read cursors to their end, or close them",
                     (long long)bytes, TRUCE_SERVER_REPLIES_BYTES)
               : TRUCE_OK;
}

truce_status cursor_reply_array(struct call *call, bson_t *array, const char *ns, int64_t most,
                                bson_t *reply, bson_error_t *error)
{
    struct cursor_entry *entry = reply_entry(call, call_namespace(call, ns));

    entry->array = array;
    (void)bson_iter_init(&entry->at, array);
    return cursor_reply(call, entry, "firstBatch", most, false, reply, error);
}

#include "server/admin/slow_command_log.h"

#include "base/clock.h"

/* After a failure of the store was logged, further ones are only counted for this time. */
#define TROUBLE_LOG_NS 1000000000

/* Logs the name and the collection of the command, and nothing else of it, as other fields may
 * contain secrets. */
static void command_log_write(const struct call *call, truce_log_level level, enum log_part part,
                              const char *message, const bson_t *more)
{
    const struct connection *connection = call->connection;
    const char *collection =
        BSON_ITER_HOLDS_UTF8(&call->value) ? bson_iter_utf8(&call->value, NULL) : "$cmd";
    bson_t *fields = BCON_NEW("command", BCON_UTF8(call->command->name), "db",
                              BCON_UTF8(call->database), "collection", BCON_UTF8(collection));

    bson_concat(fields, more);
    if (connection->login.user)
        BSON_APPEND_UTF8(fields, "user", connection->login.tag);
    if (connection->app[0])
        BSON_APPEND_UTF8(fields, "app", connection->app);
    log_write(call->server->log, level, part, connection->number, message, fields);
    bson_destroy(fields);
}

void command_log_slow(const struct call *call, int64_t ms, const bson_t *reply)
{
    bson_t *more = BCON_NEW("ms", BCON_INT64(ms), "replyBytes", BCON_INT64(reply->len));
    bson_iter_t code;

    if (bson_iter_init_find(&code, reply, "code") && BSON_ITER_HOLDS_INT32(&code))
        BSON_APPEND_INT32(more, "code", bson_iter_int32(&code));
    command_log_write(call, TRUCE_LOG_INFO, LOG_COMMAND, "slow command", more);
    bson_destroy(more);
}

void command_log_failure(const struct call *call, const bson_error_t *error)
{
    struct server *server = call->server;
    long long now = truce__clock_monotonic_ns(), last = atomic_load(&server->trouble_ns);
    bson_t *more;

    if ((last && now - last < TROUBLE_LOG_NS) ||
        !atomic_compare_exchange_strong(&server->trouble_ns, &last, now)) {
        atomic_fetch_add(&server->trouble_suppressed, 1);
        return;
    }
    more = BCON_NEW("text", BCON_UTF8(error->message));
    if (atomic_load(&server->trouble_suppressed))
        BSON_APPEND_INT64(more, "suppressed", atomic_exchange(&server->trouble_suppressed, 0));
    command_log_write(call, TRUCE_LOG_ERROR, LOG_STORE, "command failed in the store", more);
    bson_destroy(more);
}

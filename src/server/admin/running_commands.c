#include "server/admin/running_commands.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/budget.h"
#include "base/clock.h"
#include "server/call/call.h"

/* Returns whether killOp may end the command: a read, an explain, or a getMore. An aggregate with a
 * writing stage ends the watch by itself (truce__budget_watch) before it writes. */
static bool may_be_killed(const struct call *call)
{
    return (call->command->need.kind == NEED_COLLECTION &&
            call->command->need.actions == ACTION_FIND) ||
           call->command->need.kind == NEED_INNER || call->command->counted == COUNTED_GETMORE;
}

void operation_begin(struct call *call)
{
    struct operation *operation = &call->connection->operation;

    pthread_mutex_lock(&operation->mutex);
    operation->call = call;
    memcpy(operation->user, call->connection->login.tag, sizeof operation->user);
    operation->number = atomic_fetch_add(&call->server->operations, 1) + 1;
    operation->started_ns = truce__clock_monotonic_ns();
    __atomic_store_n(&operation->killed, 0, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&operation->mutex);
    if (may_be_killed(call))
        truce__budget_watch(&operation->killed);
}

int64_t operation_end(struct call *call)
{
    struct operation *operation = &call->connection->operation;
    int64_t ns = truce__clock_monotonic_ns() - operation->started_ns;

    truce__budget_watch(NULL);
    metrics_ran(call->server->metrics, call->command, ns);
    pthread_mutex_lock(&operation->mutex);
    operation->call = NULL;
    pthread_mutex_unlock(&operation->mutex);
    return ns;
}

/* ---- the list -------------------------------------------------------------------------------- */

static const char *running_kind_of(const struct call *call)
{
    static const char *const kinds[COUNTED_KINDS] = {"insert", "query",   "update",
                                                     "remove", "getmore", "command"};

    return kinds[call->command->counted];
}

/* Appends {find: "students", $db: "school"}, and no other fields, which may contain secrets. */
static void append_command(const struct call *call, bson_t *out)
{
    char ns[STORED_NAME_MAX + DATABASE_NAME_MAX];
    bson_t command;
    bool named = BSON_ITER_HOLDS_UTF8(&call->value);

    snprintf(ns, sizeof ns, "%s.%s", call->database,
             named ? bson_iter_utf8(&call->value, NULL) : "$cmd");
    BSON_APPEND_UTF8(out, "op", running_kind_of(call));
    BSON_APPEND_UTF8(out, "ns", ns);
    BSON_APPEND_DOCUMENT_BEGIN(out, "command", &command);
    if (named)
        BSON_APPEND_UTF8(&command, call->command->name, bson_iter_utf8(&call->value, NULL));
    else
        BSON_APPEND_INT32(&command, call->command->name, 1);
    BSON_APPEND_UTF8(&command, "$db", call->database);
    bson_append_document_end(out, &command);
}

/* Appends the fields of a connection, and those of its call if it has one. The mutex of its
 * operation must be held. */
static void append_one(const struct connection *connection, const char *host, bson_t *out)
{
    const struct operation *operation = &connection->operation;
    int64_t us = (truce__clock_monotonic_ns() - operation->started_ns) / 1000;
    char name[32];

    snprintf(name, sizeof name, "conn%d", connection->number);
    BCON_APPEND(out, "type", BCON_UTF8("op"), "host", BCON_UTF8(host), "desc", BCON_UTF8(name),
                "connectionId", BCON_INT32(connection->number), "client",
                BCON_UTF8(connection->peer), "active", BCON_BOOL(operation->call != NULL));
    if (!operation->call)
        return;
    BCON_APPEND(out, "opid", BCON_INT64(operation->number), "secs_running",
                BCON_INT64(us / 1000000), "microsecs_running", BCON_INT64(us));
    append_command(operation->call, out);
    if (__atomic_load_n(&operation->killed, __ATOMIC_RELAXED))
        BSON_APPEND_BOOL(out, "killPending", true);
}

void operations_list(struct call *call, bool idle, bool own, bson_t *array)
{
    const char *tag = call->connection->login.tag;
    char host[256] = "", key[16];
    uint32_t count = 0;
    const char *at;
    bson_t one;

    (void)gethostname(host, sizeof host - 1);
    pthread_mutex_lock(&call->server->mutex);
    for (struct connection *c = call->server->connections; c; c = c->next) {
        pthread_mutex_lock(&c->operation.mutex);
        if ((idle || c->operation.call) &&
            (!own || (c->operation.call && !strcmp(c->operation.user, tag)))) {
            bson_uint32_to_string(count++, &at, key, sizeof key);
            bson_append_document_begin(array, at, -1, &one);
            append_one(c, host, &one);
            bson_append_document_end(array, &one);
        }
        pthread_mutex_unlock(&c->operation.mutex);
    }
    pthread_mutex_unlock(&call->server->mutex);
}

bool operations_kill(struct server *server, int64_t number)
{
    bool found = false;

    pthread_mutex_lock(&server->mutex);
    for (struct connection *c = server->connections; c && !found; c = c->next) {
        pthread_mutex_lock(&c->operation.mutex);
        found = c->operation.call && c->operation.number == number;
        if (found)
            __atomic_store_n(&c->operation.killed, 1, __ATOMIC_RELAXED);
        pthread_mutex_unlock(&c->operation.mutex);
    }
    pthread_mutex_unlock(&server->mutex);
    return found;
}

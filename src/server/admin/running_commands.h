#ifndef TRUCE_SERVER_ADMIN_RUNNING_COMMANDS_H
#define TRUCE_SERVER_ADMIN_RUNNING_COMMANDS_H

/*
 * The running command of each connection, for currentOp and killOp.
 *
 * A connection publishes its call while the call runs. A thread that lists the calls holds the
 * connection's mutex, so the call does not end in the meantime. killOp interrupts a reading call
 * where it checks its deadline (base/budget.h). It does not interrupt writes and waits.
 */
#include <pthread.h>

#include "base/status.h"
#include "server/auth/login.h"

struct call;
struct connection;
struct server;

struct operation {
    pthread_mutex_t mutex;
    struct call *call; /* NULL if the connection waits for its next request. */
    int64_t number, started_ns;
    char user[LOGIN_TAG_MAX]; /* The user of the call. */
    int killed;               /* The thread of the call reads it. */
};

void operation_begin(struct call *call);
/* Ends the operation and returns its duration in ns. */
int64_t operation_end(struct call *call);

/* Appends {opid, op, ns, ...} of each call that runs, and with `idle` of the connections without
 * one. With `own` only those of the caller's user. */
void operations_list(struct call *call, bool idle, bool own, bson_t *array);
/* Returns false if no call has this number. */
bool operations_kill(struct server *server, int64_t number);

#endif

#ifndef TRUCE_SERVER_ADMIN_RUNNING_COMMANDS_H
#define TRUCE_SERVER_ADMIN_RUNNING_COMMANDS_H

/*
 * The running command of each connection, for currentOp and killOp.
 *
 * A connection publishes its call while the call runs. A thread that lists the calls holds the
 * connection's mutex, so the call does not end in the meantime. killOp interrupts a reading call
 * where it checks its deadline (base/budget.h). It also interrupts the waits of change streams and
 * of fail points, but no writes and no other waits.
 */
#include <pthread.h>

#include "base/status.h"
#include "server/auth/login.h"

struct call;
struct connection;
struct server;

struct operation {
    /* Guards the fields below, except `killed`. Only the connection's own thread writes them, and
     * reads them without the mutex. */
    pthread_mutex_t mutex;
    /* NULL while the connection waits for its next request. */
    struct call *call;
    /* The number of the command since the start of the server, and when it began (monotonic). */
    int64_t number, started_ns;
    /* The user of the call (struct login). */
    char user[LOGIN_TAG_MAX];
    /* Set by killOp, and read by the thread of the call without the mutex (atomic). */
    int killed;
};

void operation_begin(struct call *call);
/* Ends the operation and returns its duration in ns. */
int64_t operation_end(struct call *call);

/* Appends {opid, op, ns, ...} for each call that runs and, with `idle`, for each connection without
 * a call. With `own`, lists only those of the caller's user. */
void operations_list(struct call *call, bool idle, bool own, bson_t *array);
/* Interrupts the call with this number if it only reads. Returns false if no call has the
 * number. */
bool operations_kill(struct server *server, int64_t number);

#endif

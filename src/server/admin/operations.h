#ifndef TRUCE_SERVER_ADMIN_OPERATIONS_H
#define TRUCE_SERVER_ADMIN_OPERATIONS_H

/*
 * What each connection does just now, for currentOp and killOp.
 *
 * A connection lends its call while it runs; who lists them holds the connection's mutex meanwhile, so that the call does not
 * end under them. What a call reads is ended by killOp where it looks for its deadline (base/budget.h); a write, or a
 * wait, is not.
 */
#include <pthread.h>

#include "base/status.h"
#include "server/auth/login.h"

struct call;
struct connection;
struct server;

struct operation {
    pthread_mutex_t mutex;
    struct call *call; /* NULL: the connection waits for its next request */
    int64_t number, started_ns;
    char user[LOGIN_TAG_MAX]; /* who called */
    int killed;               /* looked at by the call's own thread */
};

void operation_begin(struct call *call);
/* So long it took. */
int64_t operation_end(struct call *call);

/* Appends {opid, op, ns, ...} of each call that runs, and with `idle` of the connections without one. With `own` only those of
 * the caller's user. */
void operations_list(struct call *call, bool idle, bool own, bson_t *array);
/* False: there is none of this number any more. */
bool operations_kill(struct server *server, int64_t number);

#endif

#ifndef TRUCE_SERVER_DISPATCH_H
#define TRUCE_SERVER_DISPATCH_H

#include "server/call/shared_state.h"

/* Runs the command of a request and fills its reply, which is always initialized. */
truce_status server_dispatch(struct connection *connection, const struct wire_request *request,
                             bson_t *reply);

#endif

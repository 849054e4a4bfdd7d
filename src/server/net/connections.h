#ifndef TRUCE_SERVER_NET_CONNECTIONS_H
#define TRUCE_SERVER_NET_CONNECTIONS_H

/* The list of a server's connections: those of the wire protocol and those of HTTP. */
#include <sys/socket.h>

#include "server/call/shared_state.h"

/* Prepares a connection of the socket and adds it to the server. `from` may be NULL. Returns
 * false if the server has too many, or is stopping; the caller then frees the connection. */
bool connection_join(struct server *server, struct connection *connection,
                     const struct sockaddr *from);
/* Ends a connection. The server frees it later. */
void connection_leave(struct connection *connection);
/* Frees the connections that have ended, and joins their threads. */
void connections_join_ended(struct server *server);

#endif

#ifndef TRUCE_BROKER_PLUGINS_PEER_H
#define TRUCE_BROKER_PLUGINS_PEER_H

/* Finds out which protocol a server speaks, for the error of a handshake that failed. */

enum peer { PEER_UNKNOWN, PEER_AMQP, PEER_KAFKA, PEER_TLS, PEER_HTTP };

/* Asks the server by up to three short connections. PEER_UNKNOWN: no server answers there within a
 * few seconds, or it speaks another protocol. */
enum peer peer_find(const char *host, int port);

/* Returns the name of the protocol. */
const char *peer_name(enum peer peer);

#endif

#ifndef TRUCE_BROKER_PLUGINS_PROTOCOL_PROBE_H
#define TRUCE_BROKER_PLUGINS_PROTOCOL_PROBE_H

/* Finds out which protocol a server speaks, for the error of a handshake that failed. */

enum protocol { PROTOCOL_UNKNOWN, PROTOCOL_AMQP, PROTOCOL_KAFKA, PROTOCOL_TLS, PROTOCOL_HTTP };

/* Asks the server by up to three short connections. Returns PROTOCOL_UNKNOWN if no server replies
 * within a few seconds, or it uses another protocol. */
enum protocol protocol_probe(const char *host, int port);

/* Returns the name of the protocol. */
const char *protocol_name(enum protocol protocol);

#endif

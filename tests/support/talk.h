#ifndef TRUCE_TESTS_SUPPORT_TALK_H
#define TRUCE_TESTS_SUPPORT_TALK_H

/* A server in this process, and a client that talks to it by raw sockets, a message at a time. */
#include <sys/types.h>

#include "base/buffer.h"
#include "server/server.h"

#define OP_QUERY 2004
#define OP_MSG   2013

/* begun and ended by the test */
extern truce_store *store;
extern struct server *server;

int dial(void);          /* to the server */
int dial_port(int port); /* -1: the server ended; no reply comes */

void put_uint32(struct buffer *out, uint32_t number);
/* Makes a message of a command; `flags`: 1 has a checksum, 2 wants no answer. */
struct buffer message_of(const bson_t *command, uint32_t flags);
bool send_all(int end, const uint8_t *bytes, size_t size);
/* Reads one message, as it comes; false: the connection was ended. */
bool receive_message(int end, struct buffer *message);
/* Reads the reply of an OP_MSG or OP_QUERY, which may be compressed; NULL: the connection was
 * ended. */
bson_t *receive_reply(int end);

/* Sends one command on a connection of its own, or on `end`. */
bson_t *ask_on(int end, const char *json, uint32_t flags);
bson_t *ask(const char *json);

/* The number at the path; -1: the path is missing. */
int64_t reply_number(const bson_t *reply, const char *path);

/* Checks the code of the reply to the command, 0 for ok. */
void expect_code(const char *json, int64_t code);

/* Starts a server of that file in a child of this process, which has no threads yet; *port -1:
 * it could not start. */
pid_t serve_child(const char *path, int *port);

struct killing {
    pid_t child;
    uint32_t after_ms;
};

/* A thread that kills the child by SIGKILL when its time has come. */
void *kill_served(void *killing);

#endif

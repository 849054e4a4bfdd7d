#ifndef TRUCE_TESTS_SUPPORT_TALK_H
#define TRUCE_TESTS_SUPPORT_TALK_H

/* A server in this process, and a client that talks to it by raw sockets, a message at a time. */
#include <sys/types.h>

#include "base/buffer.h"
#include "server/server.h"

#define OP_QUERY 2004
#define OP_MSG   2013

/* The test opens and closes both. */
extern truce_store *store;
extern struct server *server;

/* Connects to the server. */
int dial(void);
/* Connects to a port of this machine. Returns -1 if the connection fails. */
int dial_port(int port);

void put_uint32(struct buffer *out, uint32_t number);
/* Makes a message of a command. `flags`: 1 means a checksum, 2 means that no reply is wanted. */
struct buffer message_of(const bson_t *command, uint32_t flags);
bool send_all(int end, const uint8_t *bytes, size_t size);
/* Reads one message. Returns false if the server ended the connection. */
bool receive_message(int end, struct buffer *message);
/* Reads the reply of an OP_MSG or OP_QUERY, which may be compressed. Returns NULL if the server
 * ended the connection. */
bson_t *receive_reply(int end);

/* Sends one command, on `end` or on a new connection. The caller destroys the reply. */
bson_t *ask_on(int end, const char *json, uint32_t flags);
bson_t *ask(const char *json);

/* Returns the number at the path, or -1 if it is missing. */
int64_t reply_number(const bson_t *reply, const char *path);

/* Checks the code of the reply to the command; 0 means success. */
void expect_code(const char *json, int64_t code);

/* Starts a server of that file in a child process. This process must have no threads yet. *port is
 * -1 if the server could not start. */
pid_t serve_child(const char *path, int *port);

struct killing {
    pid_t child;
    uint32_t after_ms;
};

/* Kills the child with SIGKILL after `after_ms`. The function of a thread. */
void *kill_served(void *killing);

#endif

#ifndef TRUCE_SERVER_SERVER_STATE_H
#define TRUCE_SERVER_SERVER_STATE_H

/* The state that commands need, with or without clients: of truce serve (server.c), and of
 * truce_command (in_process_commands.c). */
#include "server/call/call.h"
#include "server/session/sessions.h"

struct server_state_options {
    const struct command_table *commands;
    struct session_options sessions;
    /* The time for which a snapshot can be read by its cluster time. 0 means
     * TRUCE_SERVER_SNAPSHOT_MS. */
    int64_t snapshot_ms;
    /* 0 means that the server does not sweep by itself. */
    int64_t sweep_every_ms;
};

/* Initializes a server that is zeroed. The store is borrowed. */
void server_state_begin(struct server *server, truce_store *store, const char *database,
                        const struct server_state_options *options);
/* Aborts transactions, closes cursors, and frees the rest of the state. No call may be running. */
void server_state_end(struct server *server);

#endif

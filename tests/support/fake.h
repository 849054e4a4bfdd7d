#ifndef TRUCE_TESTS_SUPPORT_FAKE_H
#define TRUCE_TESTS_SUPPORT_FAKE_H

/*
 * A server of MongoDB's protocol that has no data. It remembers the commands, and sends the replies
 * that the test gives: for example, replies that a real server seldom sends. It replies to
 * handshakes by itself.
 */
#include <bson/bson.h>
#include <stdbool.h>

enum fake_deployment { FAKE_STANDALONE, FAKE_REPLICA_SET, FAKE_SHARDED };

enum fake_act {
    /* Ends the connection without a reply. */
    FAKE_CUT,
    /* Sends `reply`. */
    FAKE_ANSWER,
    /* Sends no reply; the connection stays open. */
    FAKE_SILENT,
    /* The script of the stage decides (stage.h). A fake_answer of fake_start must not return it. */
    FAKE_PASS,
    /* Sends the reply of the upstream server (fake_upstream). */
    FAKE_UPSTREAM,
};

/* Fills `reply`; without `ok`, it gets {ok: 1}. Called under the mutex of the server, so by one
 * thread at a time. `command` includes the documents of the other sections of the message. */
typedef enum fake_act fake_answer(const bson_t *command, bson_t *reply, void *arg);

struct fake;

/* Starts the server. `wire` is its maxWireVersion. */
struct fake *fake_start(enum fake_deployment deployment, int32_t wire, fake_answer *answer,
                        void *arg);
/* Sets the port of 127.0.0.1 to which FAKE_UPSTREAM sends commands. Called before the first client
 * connects. */
void fake_upstream(struct fake *fake, int port);
/* Returns "mongodb://127.0.0.1:PORT/db" with the options. */
const char *fake_uri(const struct fake *fake, const char *options);
/* Returns a copy of the last command of that name since the last call, or NULL if no such command
 * arrived. The caller destroys it. */
bson_t *fake_last(struct fake *fake, const char *name);
/* If `frozen` is true, behaves like a stopped server (SIGSTOP): accepts connections, and sends no
 * replies. Messages that arrive in this time never get a reply. */
void fake_freeze(struct fake *fake, bool frozen);
/* If `dead` is true, behaves like a server that died: connections end, and new ones fail. If `dead`
 * is false, the server works again. */
void fake_die(struct fake *fake, bool dead);
/* Stops the server. All clients must be closed before. */
void fake_stop(struct fake *fake);

#endif

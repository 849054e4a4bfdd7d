#ifndef TRUCE_TESTS_SUPPORT_FAKE_H
#define TRUCE_TESTS_SUPPORT_FAKE_H

/*
 * A server of MongoDB's protocol that has no data: it remembers each command and sends the answer
 * that the test gives. So tests cover answers that a real server seldom gives, or that no server at
 * hand gives. It answers handshakes by itself.
 */
#include <bson/bson.h>
#include <stdbool.h>

enum fake_deployment { FAKE_STANDALONE, FAKE_REPLICA_SET, FAKE_SHARDED };

enum fake_act {
    FAKE_CUT,      /* the connection ends instead */
    FAKE_ANSWER,   /* `reply` */
    FAKE_SILENT,   /* no answer comes, and the connection stays */
    FAKE_PASS,     /* the next rule answers (stage.h) */
    FAKE_UPSTREAM, /* the answer of the upstream server (fake_upstream) */
};

/* Fills `reply` (with "ok", or it gets {ok: 1}). Called by one thread at a time. `command`
 * contains documents that came after it, as if they had come within it. */
typedef enum fake_act fake_answer(const bson_t *command, bson_t *reply, void *arg);

struct fake;

/* `wire` is its maxWireVersion. */
struct fake *fake_start(enum fake_deployment deployment, int32_t wire, fake_answer *answer,
                        void *arg);
/* FAKE_UPSTREAM asks the server at this port of 127.0.0.1; call it before the first client comes. */
void fake_upstream(struct fake *fake, int port);
/* "mongodb://127.0.0.1:PORT/db" and the options, which are borrowed */
const char *fake_uri(const struct fake *fake, const char *options);
/* Returns a copy of the last command of that name since the last call; NULL: no such command
 * arrived. The caller destroys it. */
bson_t *fake_last(struct fake *fake, const char *name);
/* Behaves like a stopped server (SIGSTOP): connections are made, and nothing is answered, until
 * it is released. Messages that arrive in the meantime are never answered. */
void fake_freeze(struct fake *fake, bool frozen);
/* Behaves like a server that died: connections end, and new ones are refused; or it comes back. */
void fake_die(struct fake *fake, bool dead);
/* Every client must be gone before this call. */
void fake_stop(struct fake *fake);

#endif

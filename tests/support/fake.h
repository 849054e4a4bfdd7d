#ifndef TRUCE_TESTS_SUPPORT_FAKE_H
#define TRUCE_TESTS_SUPPORT_FAKE_H

/*
 * A server of MongoDB's protocol that has no data: it remembers each command and answers what the test
 * says, so that what a real one seldom answers (or none of those at hand can) is seen to be understood.
 * Handshakes it answers by itself.
 */
#include <bson/bson.h>
#include <stdbool.h>

enum fake_deployment { FAKE_STANDALONE, FAKE_REPLICA_SET, FAKE_SHARDED };

enum fake_act {
    FAKE_CUT,    /* the connection ends instead */
    FAKE_ANSWER, /* `reply` */
    FAKE_SILENT, /* nothing comes, and the connection stays */
    FAKE_PASS,   /* not ours to say (stage.h) */
    FAKE_BEHIND, /* what the server behind it answers (fake_behind) */
};

/* Fills `reply` (with "ok", or it gets {ok: 1}). Called by one thread at a time. Documents that came behind the command
 * stand in it, as if they had come within. */
typedef enum fake_act fake_answer(const bson_t *command, bson_t *reply, void *arg);

struct fake;

/* `wire` is its maxWireVersion. */
struct fake *fake_start(enum fake_deployment deployment, int32_t wire, fake_answer *answer,
                        void *arg);
/* FAKE_BEHIND asks the server at this port of 127.0.0.1; before the first client comes. */
void fake_behind(struct fake *fake, int port);
/* "mongodb://127.0.0.1:PORT/db" and the options, which are borrowed */
const char *fake_uri(const struct fake *fake, const char *options);
/* A copy of the last command of that name since it was asked for; NULL: there was none. bson_destroy it. */
bson_t *fake_last(struct fake *fake, const char *name);
/* As a server that stands still (SIGSTOP): connections are made, and nothing is answered, until it is let go
 * on; what was sent meanwhile is never answered. */
void fake_freeze(struct fake *fake, bool frozen);
/* As a server that died: connections end, and new ones are refused; or it comes back. */
void fake_die(struct fake *fake, bool dead);
/* Every client must be gone. */
void fake_stop(struct fake *fake);

#endif

#ifndef TRUCE_TESTS_SUPPORT_PROXY_H
#define TRUCE_TESTS_SUPPORT_PROXY_H

/*
 * A proxy between a client and a server of MongoDB's protocol that corrupts one message. Messages
 * are counted in each direction, over all connections, from 1; handshakes and heartbeats are passed
 * on and not counted.
 */
#include <bson/bson.h>
#include <stdbool.h>
#include <stdint.h>

enum proxy_direction { TO_SERVER, TO_CLIENT };

enum proxy_fault {
    PROXY_NOTHING,
    PROXY_CUT,   /* the connection ends instead of the message */
    PROXY_HALF,  /* half of the message, then the connection ends */
    PROXY_AFTER, /* the connection ends after the message */
    PROXY_HOLD,  /* the message waits for proxy_let_go */
    /* the client gets an answer of the proxy's own: the request is not passed on, or the server's
     * answer is thrown away (proxy_script) */
    PROXY_SAY,
    /* like PROXY_SAY, but the answer is the server's with the change of proxy_change */
    PROXY_SAY_CHANGED,
    /* the message comes PROXY_DELAY_MS later, also if no client waits for its answer */
    PROXY_DELAY,
};
#define PROXY_DELAY_MS 700

struct proxy;

/* Listens on a port of its own; NULL: it cannot. */
struct proxy *proxy_start(int server_port);
int proxy_port(const struct proxy *proxy);

/* Counts from 0 again; message `at` gets the fault. */
void proxy_arm(struct proxy *proxy, enum proxy_fault fault, enum proxy_direction direction,
               uint64_t at);
/* Called before proxy_arm: sets the answer of PROXY_SAY, and the answer to the next
 * commitTransaction after the fault, which is not passed on then (NULL: is passed on). Only
 * messages of requests that have the field `only` are counted (NULL: all). All are borrowed
 * until the next call. */
void proxy_script(struct proxy *proxy, const bson_t *say, const bson_t *then, const char *only);
/* Before proxy_arm of PROXY_SAY_CHANGED, in the direction TO_CLIENT: which field of the answer
 * is changed in which way (changed_bson.h). A number beyond its fields starts again from the
 * first. */
void proxy_change(struct proxy *proxy, uint32_t place, uint32_t change);
bool proxy_hit(struct proxy *proxy);
/* Returns the number of messages since it was armed. */
uint64_t proxy_count(struct proxy *proxy, enum proxy_direction direction);
/* True if PROXY_HOLD holds a message; proxy_let_go passes it on. */
bool proxy_holds(struct proxy *proxy);
void proxy_let_go(struct proxy *proxy);
/* Waits until no message is held back. */
void proxy_settle(struct proxy *proxy);
/* Every client of it must be gone before this call. */
void proxy_stop(struct proxy *proxy);

#endif

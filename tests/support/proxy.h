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
    /* The connection ends; the message is not passed on. */
    PROXY_CUT,
    /* Half of the message is passed on, then the connection ends. */
    PROXY_HALF,
    /* The message is passed on, then the connection ends. */
    PROXY_AFTER,
    /* The message waits for proxy_let_go. */
    PROXY_HOLD,
    /* The client gets a reply of the proxy (proxy_script). The request is not passed on, or the
     * server's reply is discarded. */
    PROXY_SAY,
    /* The client gets the server's reply with the change of proxy_change. */
    PROXY_SAY_CHANGED,
    /* The message is passed on PROXY_DELAY_MS later, even if no client waits for the reply. */
    PROXY_DELAY,
};
#define PROXY_DELAY_MS 700

struct proxy;

/* Starts a proxy on a free port. Returns NULL if this fails. */
struct proxy *proxy_start(int server_port);
int proxy_port(const struct proxy *proxy);

/* Resets the counts. Message number `at` in this direction gets the fault. */
void proxy_arm(struct proxy *proxy, enum proxy_fault fault, enum proxy_direction direction,
               uint64_t at);
/* Called before proxy_arm. Sets the reply of PROXY_SAY, and the reply `then` to each
 * commitTransaction after the fault, which is not passed on; NULL passes it on. Only requests that
 * have the field `only`, and their replies, are counted; NULL counts all. All arguments are
 * borrowed until the next call. */
void proxy_script(struct proxy *proxy, const bson_t *say, const bson_t *then, const char *only);
/* Called before proxy_arm with PROXY_SAY_CHANGED and TO_CLIENT. Sets the field of the reply and the
 * change (changed_bson.h). A number that is too high starts again with the first field. */
void proxy_change(struct proxy *proxy, uint32_t place, uint32_t change);
bool proxy_hit(struct proxy *proxy);
/* Returns the number of messages since proxy_arm. */
uint64_t proxy_count(struct proxy *proxy, enum proxy_direction direction);
/* Returns whether a message waits because of PROXY_HOLD. proxy_let_go passes it on. */
bool proxy_holds(struct proxy *proxy);
void proxy_let_go(struct proxy *proxy);
/* Waits until no message is delayed. */
void proxy_settle(struct proxy *proxy);
/* Stops the proxy. All of its clients must be closed before. */
void proxy_stop(struct proxy *proxy);

#endif

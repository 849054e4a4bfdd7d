#ifndef TRUCE_TESTS_SUPPORT_PROXY_H
#define TRUCE_TESTS_SUPPORT_PROXY_H

/*
 * A proxy between a client and a server of MongoDB's protocol that spoils one message. Messages are
 * counted in each direction, over all connections, from 1; handshakes and heartbeats are passed on and
 * not counted.
 */
#include <stdbool.h>
#include <stdint.h>

enum proxy_direction { TO_SERVER, TO_CLIENT };

enum proxy_fault {
    PROXY_NOTHING,
    PROXY_CUT,   /* the connection ends instead of the message */
    PROXY_HALF,  /* half of the message, then the connection ends */
    PROXY_AFTER, /* the connection ends after the message */
    PROXY_HOLD,  /* the message waits for proxy_let_go */
    PROXY_DELAY, /* the message comes PROXY_DELAY_MS later, also if nobody waits for its answer */
};
#define PROXY_DELAY_MS 700

struct proxy;

/* Listens on a port of its own; NULL: it cannot. */
struct proxy *proxy_start(int server_port);
int proxy_port(const struct proxy *proxy);

/* Counts from 0 again; message `at` meets the fault. */
void proxy_arm(struct proxy *proxy, enum proxy_fault fault, enum proxy_direction direction,
               uint64_t at);
bool proxy_hit(struct proxy *proxy);
/* Messages since it was armed. */
uint64_t proxy_count(struct proxy *proxy, enum proxy_direction direction);
/* Is a message held by PROXY_HOLD? proxy_let_go passes it on. */
bool proxy_holds(struct proxy *proxy);
void proxy_let_go(struct proxy *proxy);
/* Until no message is held back. */
void proxy_settle(struct proxy *proxy);
/* Every client of it must be gone. */
void proxy_stop(struct proxy *proxy);

#endif

#ifndef TRUCE_TESTS_SUPPORT_WIRE_H
#define TRUCE_TESTS_SUPPORT_WIRE_H

/* A store on the server under test, and the same through a proxy that corrupts messages. */
#include "tests/support/proxy.h"
#include "truce/store.h"

struct wire {
    struct proxy *proxy;
    /* The store on the server. */
    truce_store *direct;
    /* The same store, opened through the proxy. */
    truce_store *through;
    /* The number of messages that the last operation sent. */
    uint64_t messages;
};

/* Opens both stores. Calls through the proxy time out before a late message arrives. Returns false
 * if a check has failed, or the test is skipped because the URI names several servers. Call
 * wire_close in any case. */
bool wire_open(struct wire *wire);
void wire_close(struct wire *wire);

/* An operation, and the checks that hold after any fault of its messages. */
struct wire_operation {
    const char *name;
    /* The capabilities that the store must have; otherwise the test is skipped. */
    uint32_t needs;
    /* `prepare` and `check` get the direct store, and `run` the store through the proxy. */
    void (*prepare)(truce_store *store);
    truce_status (*run)(truce_store *store, bson_error_t *error);
    /* `reported` is the result of `run`. */
    void (*check)(truce_store *store, truce_status reported);
};

/* A way in which a message is corrupted. */
struct wire_way {
    const char *name;
    enum proxy_fault fault;
    enum proxy_direction direction;
    /* The arguments of proxy_script; `say` and `then` are JSON. NULL means none. */
    const char *say, *then, *only;
};

/* Corrupts messages of the operation in each way: every n-th combination of message and way. n is
 * TRUCE_NETWORK_STEP, or 5 if it is not set. */
void wire_spoil_all(const struct wire_operation *operation);
/* Does the same for `ways`. Takes every n-th combination, where n is the environment variable
 * `scale`, or `step` if it is not set. A way with `only` is run for each of its messages. */
void wire_spoil_in(const struct wire_operation *operation, const struct wire_way *ways,
                   size_t count, const char *scale, long step);

/* Removes all documents except the horizon of keys, which a handle whose messages are corrupted
 * expects to exist. */
void wire_clear(truce_store *store, const char *collection);

#endif

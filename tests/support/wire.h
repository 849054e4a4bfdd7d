#ifndef TRUCE_TESTS_SUPPORT_WIRE_H
#define TRUCE_TESTS_SUPPORT_WIRE_H

/* A store on the server under test, and the same through a proxy that corrupts messages. */
#include "tests/support/proxy.h"
#include "truce/store.h"

struct wire {
    struct proxy *proxy;
    truce_store *direct;  /* to the server */
    truce_store *through; /* the proxy */
    uint64_t messages;    /* that the last operation sent */
};

/* Calls through the proxy time out before a late message has come. False: a check has failed. */
bool wire_open(struct wire *wire);
void wire_close(struct wire *wire);

/* An operation, and the checks that hold whatever became of its messages. */
struct wire_operation {
    const char *name;
    uint32_t needs; /* capabilities */
    void (*prepare)(truce_store *store);
    truce_status (*run)(truce_store *store, bson_error_t *error);
    void (*check)(truce_store *store, truce_status reported);
};

/* A way in which a message is corrupted. */
struct wire_way {
    const char *name;
    enum proxy_fault fault;
    enum proxy_direction direction;
    const char *say, *then, *only; /* as proxy_script takes them; the first two as JSON */
};

/* Corrupts each message of the operation in each way, or with TRUCE_NETWORK_STEP n every n-th of
 * these. */
void wire_spoil_all(const struct wire_operation *operation);
/* Does the same in other ways, of which `scale` names every how many-th is taken, if not every
 * `step`-th. */
void wire_spoil_in(const struct wire_operation *operation, const struct wire_way *ways,
                   size_t count, const char *scale, long step);

/* Removes all documents except the horizon of keys, which a handle whose messages are corrupted
 * expects to exist. */
void wire_clear(truce_store *store, const char *collection);

#endif

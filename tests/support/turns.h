#ifndef TRUCE_TESTS_SUPPORT_TURNS_H
#define TRUCE_TESTS_SUPPORT_TURNS_H

/*
 * Clients that take turns at every store call, on one memory store, so that all interleavings can
 * be run one after the other. A choice names the client whose call happens next. It also decides
 * whether the caller dies before or after the call, whether the reply is lost, or whether the call
 * takes effect later, without a reply to its caller.
 */
#include "tests/support/test.h"
#include "truce/sys/store.h"

#define TURNS_CLIENTS_MAX 4

typedef void turns_client_function(truce_store *store, int client, void *arg);

/* The maximum numbers of faults in one run: clients that die, replies that are lost, and writes
 * that take effect late. */
struct turns_budget {
    int crashes, losses, lates;
};

struct turns_run {
    /* The number of clients. Each runs `client` in a thread of its own. */
    int clients;
    turns_client_function *client;
    /* Called on the plain store before the clients run, and after they have ended. At the end, no
     * late call is pending. `crashed[i]` means that client i died. */
    void (*begin)(truce_store *store, void *arg);
    void (*end)(truce_store *store, const bool *crashed, void *arg);
    void *arg;
    struct turns_budget budget;
    /* The number of calls that are run in every order. After them the clients run in bursts, so
     * that no two clients wait for each other forever. 0 means all calls. */
    int branch_max;
};

/* Runs every sequence of choices, up to `runs_max`; or, with `seed` not 0, runs_max random ones.
 * Stops at the first run in which a check fails, and prints its choices. Returns the number of
 * runs. Sets `*complete`, which may be NULL, if these are all. */
long turns_explore(const struct turns_run *run, long runs_max, uint64_t seed, bool *complete);

/* Returns whether the client of this store has died. All of its calls fail then, and its function
 * must return. */
bool turns_is_dead(const truce_store *store);

#endif

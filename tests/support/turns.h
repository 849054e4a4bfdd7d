#ifndef TRUCE_TESTS_SUPPORT_TURNS_H
#define TRUCE_TESTS_SUPPORT_TURNS_H

/*
 * Clients that take turns at every store call, on one memory store, so that all interleavings can
 * be run one after the other. A choice names the client whose call happens next. It also says
 * whether the caller dies before or after the call, whether the answer is lost, or whether the call
 * lands later, without an answer to its caller.
 */
#include "tests/support/test.h"
#include "truce/sys/store.h"

#define TURNS_CLIENTS_MAX 4

typedef void turns_client_function(truce_store *store, int client, void *arg);

struct turns_budget {
    int crashes, losses, lates;
};

struct turns_run {
    int clients;
    turns_client_function *client;
    /* before the clients, on the plain store; and after them, when every late call has landed that
     * will ever land. `crashed[i]`: client i died. */
    void (*begin)(truce_store *store, void *arg);
    void (*end)(truce_store *store, const bool *crashed, void *arg);
    void *arg;
    struct turns_budget budget;
    /* so many calls are tried in every order; after them the clients take turns in bursts, so
     * that no two keep each other waiting forever. 0: all calls */
    int branch_max;
};

/* Runs every sequence of choices, up to `runs_max`; or, with `seed` not 0, runs_max random ones.
 * Stops at the first run in which a check fails, and prints its choices. Returns how many ran;
 * `*complete` (may be NULL): all. */
long turns_explore(const struct turns_run *run, long runs_max, uint64_t seed, bool *complete);

/* Every call of a dead client fails; a client that sees this returns. */
bool turns_is_dead(const truce_store *store);

#endif

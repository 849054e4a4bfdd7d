#ifndef TRUCE_SIM_SIM_RUN_H
#define TRUCE_SIM_SIM_RUN_H

/* The state of one run, which its parts share: the environment and the scheduler (sim_scheduler.c),
 * the clients' stores (sim_store.c), and the clients' scripts (sim_clients.c). */
#include "bson/value.h"
#include "sim/fiber.h"
#include "sim/history_checker.h"
#include "truce/sys/store.h"

/* The lease of commits and jobs. */
#define LEASE_MS 1000
/* The length of a jump in time, which is longer than a lease. */
#define JUMP_MS INT64_C(5000)
/* A deadline that no call reaches. */
#define DEADLINE_MS 1000000000u
/* A run with more steps is reported as a livelock. */
#define STEPS_MAX 5000

struct run;

/* The state of a run of a pattern: the calls, their results, and the observed states of the
 * document. */
struct sim_patterns {
    struct {
        /* `begun`: the call began. `known`: its result is known. `in`: it took effect. */
        bool begun, known, in;
    } calls[SIM_TXNS];
    /* The first violation that the pattern found, or NULL. `detail` describes it. */
    const char *wrong;
    char detail[400];
    /* For items: the count of B. For edits: the last version. */
    int64_t number;
    /* For sets: the rank of the current entry of each name. */
    int64_t ranks[2];
    /* The subject of each call, for the pattern's own check. */
    int64_t about[SIM_TXNS];
    /* For edits: the digest of each version. */
    uint64_t contents[SIM_VERSIONS];
};

/* The number of plain writes of one position. */
struct sim_plain {
    int count;
};

/* A write that takes effect late: when the chooser says so, or at the end of the run. It never
 * takes effect if the chooser ends the run. */
struct late_call {
    /* `used`: the slot has a call. `is_modify`: the call is `modify`; otherwise it is `write`. */
    bool used, is_modify;
    /* The number of the transaction that made the call. */
    int txn;
    /* The write, whose documents are copies. */
    truce_write write;
    truce_modify_options modify;
};

/* A client of the simulation, which is also the store that it uses. */
struct client {
    /* Must be the first field: the functions of the decorator get a pointer to it. */
    truce_store store;
    struct run *run;
    int number;
    struct fiber *fiber;
    const struct sim_client_script *script;
    /* `ended`: all transactions of the client have ended. `dead`: it has crashed, so its calls
     * fail. `sleeping`: it waits for a write of another client or a jump in time. */
    bool ended, dead, sleeping;
    /* The pending call is of a kind that can take effect late. */
    bool may_be_late;
    /* run->changes when the client fell asleep. */
    uint64_t slept_at;
    /* The number of the current transaction. */
    int txn;
    /* The number of ids that the client has drawn. */
    uint64_t ids;
    /* A hash of all replies to the client, which determines its state. */
    uint64_t local;
    /* The scheduler's decision about the pending call. */
    enum sim_action action;
};

/* A run of the simulation. */
struct run {
    const struct sim_scenario *scenario;
    struct sim_chooser *chooser;
    struct sim_result *result;
    FILE *trace;
    /* The memory store that all clients share. */
    truce_store *inner;
    struct client clients[SIM_CLIENTS];
    /* The client that runs, or NULL. */
    struct client *current;
    struct late_call late[SIM_LATE_MAX];
    struct sim_history history;
    struct sim_patterns patterns;
    struct sim_plain plain[SIM_DOCUMENTS];
    /* The first violation that concerns a plain write, or NULL. */
    const char *plain_wrong;
    /* The simulated time. */
    int64_t now_ms;
    /* The number of ids that were drawn outside of clients. */
    uint64_t ids;
    /* The number of writes that reached the store, and of jumps in time. */
    uint64_t changes;
    /* Calls are not scheduled, because the run is being set up or checked. */
    bool free_running;
};

extern const char *const truce__sim_action_names[];

/* ---- sim_store.c ---- */

extern const truce_store_ops truce__sim_store_ops;
/* Returns an unused slot for a late call, or NULL. */
struct late_call *truce__sim_free_late(const struct run *run);
/* Makes a late call, whose reply reaches no client. */
void truce__sim_land(struct run *run, struct late_call *late);
void truce__sim_drop_late(struct late_call *late);

/* ---- sim_clients.c ---- */

/* Runs a client of the simulation. This is the function of a fiber; `client` is a struct client. */
void truce__sim_client(void *client);
/* Runs a transaction as one commit, and sets the id of the commit in `txn`. */
truce_status truce__sim_commit(struct client *client, struct sim_txn *txn, bson_error_t *error);

/* ---- sim_patterns.c ---- */

/* A pattern in the simulator: calls on one document, and the checks of that document. */
struct sim_pattern {
    /* The collection, and its document at the start, in JSON. */
    const char *collection, *document;
    /* The name of another collection, which has {_id: 1, n: 0}, or NULL. */
    const char *other;
    /* The number of different calls. The field `call` of a script is below it. */
    int calls;
    /* The number of positions to which plain writers may write. */
    int positions;
    /* Creates further documents before the run, or NULL. */
    void (*begin)(struct run *run);
    /* Makes call number `call`. */
    truce_status (*call)(struct client *client, int call, int txn, bson_error_t *error);
    /* Checks the document after each write. */
    void (*observe)(struct run *run, const bson_t *document);
    /* Checks the document after the run. */
    void (*check)(struct run *run, const bson_t *document);
};

extern const struct sim_pattern truce__sim_set;      /* sim_sets.c */
extern const struct sim_pattern truce__sim_queue;    /* sim_queue.c */
extern const struct sim_pattern truce__sim_ledger;   /* sim_ledger.c */
extern const struct sim_pattern truce__sim_transfer; /* sim_transfer.c */
extern const struct sim_pattern truce__sim_tree;     /* sim_tree.c */
extern const struct sim_pattern truce__sim_sync;     /* sim_sync.c */

/* Returns the pattern of the run, or NULL for commits. */
const struct sim_pattern *truce__sim_pattern(enum sim_subject subject);
/* Records a violation. Only the first one counts. */
void truce__sim_fail(struct run *run, const char *what, const bson_t *document);
void truce__patterns_begin(struct run *run);
/* Makes a call of the pattern, and records whether its result is known. */
truce_status truce__patterns_call(struct client *client, const struct sim_script *script, int txn,
                                  bson_error_t *error);
/* Checks the document of the pattern after a write to `collection`. Writes to other collections
 * than that of the pattern are not checked. */
void truce__patterns_observe(struct run *run, const char *collection);
/* Checks the state after all clients have ended. Returns NULL or the violation. */
const char *truce__patterns_check(struct run *run, char *detail, size_t size);

/* ---- sim_plain.c ---- */

/* Returns the number of positions to which a plain writer may write now, or 0 after enough
 * writes. */
int truce__sim_plains(const struct run *run);
/* Makes a plain write to a position: increments the field `p`. */
void truce__sim_plain(struct run *run, int position);
/* Checks the plain writes after each write that reached the store. */
void truce__sim_plain_observe(struct run *run);

/* ---- hashes ---- */

static inline uint64_t truce__sim_mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2))) * 0xff51afd7ed558ccdu;

    return x ^ (x >> 32);
}

static inline uint64_t truce__sim_digest(const bson_t *document)
{
    return document->len > 5 ? truce__value_hash(truce__value_document(document)) : 0;
}

#endif

#ifndef TRUCE_SIM_SIM_RUN_H
#define TRUCE_SIM_SIM_RUN_H

/* The state of one run, which its parts share: the environment and the scheduler (sim_scheduler.c),
 * the clients' stores (sim_store.c), and the clients' scripts (sim_clients.c). */
#include "bson/value.h"
#include "sim/fiber.h"
#include "sim/history_checker.h"
#include "truce/sys/store.h"

#define LEASE_MS    1000
#define JUMP_MS     INT64_C(5000)
#define DEADLINE_MS 1000000000u
#define STEPS_MAX   5000

struct run;

/* For patterns: the calls, their results, and the observed states of the document. */
struct sim_patterns {
    struct {
        /* `in` is true if the call took effect. */
        bool begun, known, in;
    } calls[SIM_TXNS];
    const char *wrong;
    char detail[400];
    /* Items: the count of B. Edits: the version. */
    int64_t number;
    /* Sets: the rank of each name's current entry. */
    int64_t ranks[2];
    /* The subject of each call, for the pattern's own check. */
    int64_t about[SIM_TXNS];
    /* Edits: the digest of each version. */
    uint64_t contents[SIM_VERSIONS];
};

/* The number of plain writes of one place. */
struct sim_plain {
    int count;
};

struct late_call {
    bool used, is_modify;
    int txn;
    /* Its documents are copies. */
    truce_write write;
    truce_modify_options modify;
};

struct client {
    /* The decorator; must be first. */
    truce_store store;
    struct run *run;
    int number;
    struct fiber *fiber;
    const struct sim_client_script *script;
    bool ended, dead, sleeping;
    /* The pending call is of a kind that can be late. */
    bool may_be_late;
    /* The store's version when the client fell asleep. */
    uint64_t slept_at;
    /* The current transaction. */
    int txn;
    /* The number of ids drawn. */
    uint64_t ids;
    /* The hash of all answers to the client. */
    uint64_t local;
    enum sim_action verdict;
};

struct run {
    const struct sim_scenario *scenario;
    struct sim_chooser *chooser;
    struct sim_result *result;
    FILE *trace;
    truce_store *inner;
    struct client clients[SIM_CLIENTS];
    struct client *current;
    struct late_call late[SIM_LATE_MAX];
    struct sim_history history;
    struct sim_patterns patterns;
    struct sim_plain plain[SIM_DOCUMENTS];
    const char *plain_wrong;
    int64_t now_ms;
    /* The number of ids drawn outside of clients. */
    uint64_t ids;
    /* The number of writes that reached the store, and of jumps in time. */
    uint64_t changes;
    /* Calls are not scheduled: during the setup and at the end. */
    bool free_running;
};

extern const char *const truce__sim_action_names[];

/* ---- sim_store.c ---- */

extern const truce_store_ops truce__sim_store_ops;
/* Returns an unused slot for a late call, or NULL. */
struct late_call *truce__sim_free_late(const struct run *run);
/* Makes a late call, whose answer reaches no client. */
void truce__sim_land(struct run *run, struct late_call *late);
void truce__sim_drop_late(struct late_call *late);

/* ---- sim_clients.c ---- */

/* Runs a client of the simulation: the function of a fiber; `client` is a struct client. */
void truce__sim_client(void *client);
truce_status truce__sim_commit(struct client *client, struct sim_txn *txn, bson_error_t *error);

/* ---- sim_patterns.c ---- */

/* A pattern in the simulator: calls on one document, and the checks of that document. */
struct sim_pattern {
    /* The document at the start, in JSON. */
    const char *collection, *document;
    /* A collection with {_id: 1, n: 0}, or NULL. */
    const char *other;
    /* A script's `call` is below this number. */
    int calls;
    /* The number of places of plain writers. */
    int places;
    /* Creates other documents. May be NULL. */
    void (*begin)(struct run *run);
    truce_status (*call)(struct client *client, int call, int txn, bson_error_t *error);
    void (*observe)(struct run *run, const bson_t *document);
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
truce_status truce__patterns_call(struct client *client, const struct sim_script *script, int txn,
                                  bson_error_t *error);
/* Checks the state that a reader would see after each write that reached the store. */
void truce__patterns_observe(struct run *run, const char *collection);
/* Checks the state after all clients have ended. Returns NULL or the violation. */
const char *truce__patterns_check(struct run *run, char *detail, size_t size);

/* ---- sim_plain.c ---- */

/* Returns the number of places to which a plain writer may write now; 0 after enough writes. */
int truce__sim_plains(const struct run *run);
void truce__sim_plain(struct run *run, int place);
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

#ifndef TRUCE_SIM_RUN_H
#define TRUCE_SIM_RUN_H

/* One run, as its parts share it: the world and the scheduler (environment.c), the clients' stores (calls.c),
 * what the clients do (clients.c). */
#include "bson/value.h"
#include "sim/fiber.h"
#include "sim/history.h"
#include "truce/sys/store.h"

#define LEASE_MS    1000
#define JUMP_MS     INT64_C(5000)
#define DEADLINE_MS 1000000000u
#define STEPS_MAX   5000

struct run;

/* Of items and edits: what was begun, what is known of it, and what was seen of the document. */
struct sim_patterns {
    struct {
        bool begun, known, in; /* in: it took effect */
    } calls[SIM_TXNS];
    const char *wrong;
    char detail[400];
    int64_t number;                  /* items: the count of B; edits: the version */
    int64_t ranks[2];                /* sets: of what stands for each name */
    int64_t about[SIM_TXNS];         /* what a call of sim_queue.c ... is about, for its judge */
    uint64_t contents[SIM_VERSIONS]; /* edits: digest of what stood under each number */
};

/* Plain writes of one place: how many are in. */
struct sim_plain {
    int count;
};

struct late_call {
    bool used, is_modify;
    int txn;
    truce_write write; /* documents are copies */
    truce_modify_options modify;
};

struct client {
    truce_store store; /* first: the decorator */
    struct run *run;
    int number;
    struct fiber *fiber;
    const struct sim_client_script *script;
    bool ended, dead, sleeping;
    bool may_be_late;  /* the call before which it stopped is of a kind that can be late */
    uint64_t slept_at; /* store version when it went to sleep */
    int txn;           /* at work on */
    uint64_t ids;      /* drawn so far */
    uint64_t local;    /* hash of everything it was answered */
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
    uint64_t ids;      /* that were drawn outside of clients */
    uint64_t changes;  /* writes that reached the store */
    bool free_running; /* no scheduling: setup and the end */
};

extern const char *const truce__sim_action_names[];

/* ---- calls.c ---- */

extern const truce_store_ops truce__sim_store_ops;
/* Returns an unused slot for a late call, or NULL. */
struct late_call *truce__sim_free_late(const struct run *run);
/* Makes a late call, whose answer reaches no client. */
void truce__sim_land(struct run *run, struct late_call *late);
void truce__sim_drop_late(struct late_call *late);

/* ---- clients.c ---- */

/* A fiber's function; `client` is a struct client. */
void truce__sim_client(void *client);
truce_status truce__sim_commit(struct client *client, struct sim_txn *txn, bson_error_t *error);

/* ---- patterns.c ---- */

/* A pattern in the simulator: calls on one document, and what must be so of it. */
struct sim_pattern {
    const char *collection, *document; /* as it is at the start, in JSON */
    const char *other;                 /* NULL, or a collection with {_id: 1, n: 0} */
    int calls;                         /* what a script's `call` can be */
    int places;                        /* where plain writers write */
    void (*begin)(struct run *run);    /* what is there besides; NULL: nothing */
    truce_status (*call)(struct client *client, int call, int txn, bson_error_t *error);
    void (*observe)(struct run *run, const bson_t *document);
    void (*judge)(struct run *run, const bson_t *document);
};

extern const struct sim_pattern truce__sim_set;      /* sim_sets.c */
extern const struct sim_pattern truce__sim_queue;    /* sim_queue.c */
extern const struct sim_pattern truce__sim_ledger;   /* sim_ledger.c */
extern const struct sim_pattern truce__sim_transfer; /* sim_transfer.c */
extern const struct sim_pattern truce__sim_tree;     /* sim_tree.c */
extern const struct sim_pattern truce__sim_sync;     /* sim_sync.c */

/* NULL for commits. */
const struct sim_pattern *truce__sim_pattern(enum sim_subject subject);
/* The first one counts. */
void truce__patterns_wrong(struct run *run, const char *what, const bson_t *document);
void truce__patterns_begin(struct run *run);
truce_status truce__patterns_call(struct client *client, const struct sim_script *script, int txn,
                                  bson_error_t *error);
/* After each write that reached the store: whoever looked now would see this. */
void truce__patterns_observe(struct run *run, const char *collection);
/* When all is at rest. NULL, or what is wrong. */
const char *truce__patterns_judge(struct run *run, char *detail, size_t size);

/* ---- sim_plain.c ---- */

/* How many places a plain writer may write to now; 0: there is none, or he has written enough. */
int truce__sim_plains(const struct run *run);
void truce__sim_plain(struct run *run, int place);
/* After each write that reached the store. */
void truce__sim_plain_observe(struct run *run);

/* ---- environment.c ---- */

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

#ifndef TRUCE_SIM_SIM_H
#define TRUCE_SIM_SIM_H

/*
 * The simulator: logical clients on one memory store, in one thread, that take turns at every store
 * call. Who goes next, who dies, which answer is lost, which call lands late: all of it is drawn
 * from a chooser, so that a run is a function of its choices: of a seed, or of a path through the
 * tree of all choices. The essay is in environment.c.
 */
#include "base/random.h"
#include "truce/truce.h"

#define SIM_DOCUMENTS 3
#define SIM_CLIENTS   8
#define SIM_VERSIONS  128
#define SIM_TXNS      64
#define SIM_LATE_MAX  4

/* ---- scripts: what the clients do ----------------------------------------------------------- */

/* What a transaction does with one document (as in the models of the protocol). */
enum sim_op {
    SIM_NONE,
    SIM_REQUIRE, /* read, and require what was read: present or missing */
    SIM_READ_WRITE,
    SIM_BLIND_WRITE,
    SIM_INSERT,
    SIM_REMOVE, /* read, then remove */
    SIM_BLIND_REMOVE,
    SIM_SET_ZERO, /* blind, to a value that may have been there before */
    SIM_SET_ONE,
    SIM_HOLD,
    SIM_REPLACE, /* read, then replace whole */
};

enum sim_kind {
    SIM_COMMIT,   /* a commit by the scenario's mechanism */
    SIM_JOURNAL,  /* a commit through the journal */
    SIM_NATIVE,   /* a commit of the store's own */
    SIM_SNAPSHOT, /* truce_read_many of the documents that are not SIM_NONE */
    SIM_SWEEP,    /* truce_sweep, keeping nothing */
    SIM_PATTERN, /* one call of the pattern that the run is about: `call` says which (patterns.c) */
};

/* What a run is about. */
enum sim_subject {
    SIM_COMMITS,
    SIM_ITEMS,
    SIM_REVISIONS,
    SIM_SETS,
    SIM_QUEUE,
    SIM_LEDGER,
    SIM_TRANSFER,
    SIM_TREE,
    SIM_SYNC,
    SIM_SUBJECTS
};

extern const char *const truce__sim_subjects[SIM_SUBJECTS]; /* "commits", "items" ... */

struct sim_script {
    enum sim_kind kind;
    enum sim_op ops[SIM_DOCUMENTS];
    int keys[SIM_DOCUMENTS]; /* keyed scenarios: the unique value that the write sets; 0: none */
    int key;                 /* 0: none; transactions with one key are one request */
    int call;                /* of a pattern */
    int tries;               /* runs again after a conflict, at most so often in all; 0: 1 */
};

struct sim_client_script {
    const struct sim_script *scripts;
    int count;
    bool journal; /* patterns: the store has no commits of its own */
    bool values;  /* the store compares no bytes */
    int form;     /* items: a truce_item_form; sets: even or odd */
    bool keeps;   /* edits: replaced versions are kept */
};

struct sim_scenario {
    const char *name;
    enum sim_subject subject;
    bool missing[SIM_DOCUMENTS]; /* not there at the start */
    /* Documents have a field `u` under a unique index, and the collection has declared keys. At the
     * start: these values of u (0: none), and those that are bare have no `_keys` yet. */
    bool keyed;
    int keys[SIM_DOCUMENTS];
    bool bare[SIM_DOCUMENTS];
    struct sim_client_script clients[SIM_CLIENTS];
    int clients_count;
    int crashes, losses, lates, jumps; /* how many of each at most */
    int plains;                        /* writes of programs that know nothing of truce */
};

/* ---- choosing ------------------------------------------------------------------------------- */

enum sim_action {
    SIM_STEP,
    SIM_CRASH_BEFORE,
    SIM_CRASH_AFTER,
    SIM_LOSE,
    SIM_LATE,
    SIM_LAND,
    SIM_JUMP,
    SIM_PLAIN
};

struct sim_choice {
    enum sim_action action;
    int who; /* client, number of the late call, or place of the plain write */
};

struct sim_chooser {
    /* one of choices[0..count); `state` tells the whole state of the run apart. Negative: end the
     * run here (everybody dies). */
    int (*choose)(struct sim_chooser *chooser, const struct sim_choice *choices, int count,
                  uint64_t state);
    bool wants_state; /* at the next choice: else `state` is 0 */
};

/* ---- one run -------------------------------------------------------------------------------- */

struct sim_txn {
    const struct sim_script *script;
    int client;
    bson_oid_t id;
    truce_status status;
    bool ended;
    int began_at, ended_at;   /* order of events, for real time */
    int read[SIM_DOCUMENTS];  /* version number that was read; -1: none */
    int plain[SIM_DOCUMENTS]; /* of the field `p` that was read */
};

/* A removed version carries no revision: then it is the commit whose release took it, or the
 * transaction whose own write did. */
struct sim_version {
    bool present;
    bool has_rev;
    bson_oid_t rev;
    int txn; /* of a removed one without rev */
    int key; /* its value of u; 0: none */
    int at;  /* when it was first seen, in events */
};

struct sim_result {
    const char *violation; /* NULL: none */
    char detail[512];
    int steps;
    int committed, conflicts, unknown; /* transactions */
    int crashes, losses, lates, jumps; /* injected */
    int plains;
    bool cut; /* the chooser ended it */
};

/* `trace` (or NULL) gets a line for each event. */
void truce__sim_run(const struct sim_scenario *scenario, struct sim_chooser *chooser, FILE *trace,
                    struct sim_result *result);

/* ---- ways to choose ------------------------------------------------------------------------- */

/* From a seed: a scenario of its own and random choices; replays bit for bit. */
void truce__sim_seed(enum sim_subject subject, uint64_t seed, FILE *trace,
                     struct sim_result *result);

/* Of a seed that fails: runs with fewer clients, transactions and faults, as long as some choices still fail; the
 * smallest is printed to `trace`. */
void truce__sim_shrink(enum sim_subject subject, uint64_t seed, FILE *trace,
                       struct sim_result *result);

/* A given scenario, `runs` times, with choices from the seeds `seed`, seed + 1 ...; `result` is that of the first
 * violation, or of the last run. */
void truce__sim_walks(const struct sim_scenario *scenario, uint64_t seed, uint64_t runs,
                      FILE *trace, struct sim_result *result);

struct sim_search {
    uint64_t runs, states, steps;
    bool complete;            /* everything within the budgets was seen */
    struct sim_result result; /* of the first run with a violation, else of the last */
};

/* All choices, each state once, until a violation or `runs_max` runs. A violation is printed to
 * `trace`. */
void truce__sim_search(const struct sim_scenario *scenario, uint64_t runs_max, FILE *trace,
                       struct sim_search *search);

#endif

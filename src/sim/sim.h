#ifndef TRUCE_SIM_SIM_H
#define TRUCE_SIM_SIM_H

/*
 * The simulator. Logical clients share one memory store in one thread and alternate at every call
 * of the store. A chooser decides which client runs next, which one crashes, which reply is lost,
 * and which call takes effect late. A run is therefore a function of its choices, which come from a
 * seed or from a search of all choices. sim_scheduler.c has the essay.
 */
#include "base/random.h"
#include "truce/truce.h"

/* The maximum numbers of documents, clients (the last of which is the sweeper at the end of a run),
 * versions of a document, transactions in a run, and late calls at the same time. */
#define SIM_DOCUMENTS 3
#define SIM_CLIENTS   8
#define SIM_VERSIONS  128
#define SIM_TXNS      64
#define SIM_LATE_MAX  4

/* ---- scripts: what the clients do ----------------------------------------------------------- */

/* The operation of a transaction on one document, as in the models of the protocol. */
enum sim_op {
    SIM_NONE,
    SIM_REQUIRE, /* Read, and require that state: present or missing. */
    SIM_READ_WRITE,
    SIM_BLIND_WRITE,
    SIM_INSERT,
    SIM_REMOVE, /* Read, then remove. */
    SIM_BLIND_REMOVE,
    SIM_SET_ZERO, /* Without reading, to a value that may have existed before. */
    SIM_SET_ONE,
    SIM_HOLD,
    SIM_REPLACE, /* Read, then replace the document. */
};

enum sim_kind {
    SIM_COMMIT,   /* A commit by the scenario's mechanism. */
    SIM_JOURNAL,  /* A commit through the journal. */
    SIM_NATIVE,   /* A transaction of the store. */
    SIM_SNAPSHOT, /* truce_read_many of all documents whose operation is not SIM_NONE. */
    SIM_SWEEP,    /* A truce_sweep that keeps ended commits for 1 ms. */
    SIM_PATTERN,  /* The call number `call` of the run's pattern (sim_patterns.c). */
};

/* The subject of a run. */
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

/* The names of the subjects: "commits", "items", and so on. */
extern const char *const truce__sim_subjects[SIM_SUBJECTS];

/* One transaction or call of a client. */
struct sim_script {
    enum sim_kind kind;
    /* ops[d]: what the transaction does with document d. */
    enum sim_op ops[SIM_DOCUMENTS];
    /* In keyed scenarios, the unique value that the write sets, or 0 to set none. */
    int keys[SIM_DOCUMENTS];
    /* The idempotency key, or 0 for a transaction without a key. */
    int key;
    /* The number of the call, for SIM_PATTERN. */
    int call;
    /* The maximum number of runs after conflicts; 0 means 1. */
    int tries;
};

/* The transactions or calls of a client, and its settings. */
struct sim_client_script {
    const struct sim_script *scripts;
    int count;
    /* For patterns: the store has no transactions, so commits use the journal. */
    bool journal;
    /* The store does not compare the bytes of documents. */
    bool values;
    /* For items: a truce_item_form. For sets: an even or an odd number selects the form. */
    int form;
    /* For edits: replaced versions are kept. */
    bool keeps;
};

/* The inputs of a run, except for the choices. */
struct sim_scenario {
    const char *name;
    enum sim_subject subject;
    /* missing[d]: document d does not exist at the start. */
    bool missing[SIM_DOCUMENTS];
    /* Documents have a field `u` under a unique index, and the collection has declared keys. At the
     * start, document d has the value keys[d] (0 for none), and no `_keys` if bare[d]. */
    bool keyed;
    int keys[SIM_DOCUMENTS];
    bool bare[SIM_DOCUMENTS];
    struct sim_client_script clients[SIM_CLIENTS];
    int clients_count;
    /* The maximum numbers of injected faults. */
    int crashes, losses, lates, jumps;
    /* The maximum number of writes by programs that do not use truce. */
    int plains;
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

/* An event that can happen next. */
struct sim_choice {
    enum sim_action action;
    /* The number of the client, of the late call, or of the position of the plain write. */
    int index;
};

/* Decides what happens next. */
struct sim_chooser {
    /* Returns one of choices[0..count), or a negative number to end the run, in which case all
     * clients die. `state` is a hash of the whole state of the run. */
    int (*choose)(struct sim_chooser *chooser, const struct sim_choice *choices, int count,
                  uint64_t state);
    /* The next choice needs `state`. Otherwise `state` is 0, which saves its computation. */
    bool wants_state;
};

/* ---- one run -------------------------------------------------------------------------------- */

/* A transaction as its client saw it. */
struct sim_txn {
    const struct sim_script *script;
    /* The number of the client. */
    int client;
    bson_oid_t id;
    truce_status status;
    /* The call has returned, with `status`. */
    bool ended;
    /* The events at which the transaction began and ended, for the order in real time. */
    int began_at, ended_at;
    /* read[d]: the number of the version of document d that was read, or -1 if none was. */
    int read[SIM_DOCUMENTS];
    /* plain[d]: the value of the field `p` of document d that was read. */
    int plain[SIM_DOCUMENTS];
};

/* A version of a document. If the document was removed, `rev` is the commit whose release removed
 * it, or, without a revision, `txn` is the transaction that removed it directly. */
struct sim_version {
    /* The document exists. */
    bool present;
    bool has_rev;
    bson_oid_t rev;
    /* For a removed version without a revision: the transaction that removed the document. */
    int txn;
    /* The value of the field `u`, or 0 if the document has no such field. */
    int key;
    /* The event at which the version was first observed. */
    int at;
};

/* The result of a run. */
struct sim_result {
    /* The violation, or NULL if the run was correct. `detail` describes it. */
    const char *violation;
    char detail[512];
    /* The number of choices. */
    int steps;
    /* The numbers of transactions with these outcomes. */
    int committed, conflicts, unknown;
    /* The numbers of injected faults. */
    int crashes, losses, lates, jumps;
    /* The number of plain writes. */
    int plains;
    /* The chooser ended the run before its end. */
    bool cut;
};

/* Runs a scenario. `trace` may be NULL; otherwise it gets a line for each event. */
void truce__sim_run(const struct sim_scenario *scenario, struct sim_chooser *chooser, FILE *trace,
                    struct sim_result *result);

/* ---- ways to choose ------------------------------------------------------------------------- */

/* Runs the scenario and the choices of a seed. The run can be repeated exactly. */
void truce__sim_seed(enum sim_subject subject, uint64_t seed, FILE *trace,
                     struct sim_result *result);

/* Shrinks the scenario of a failing seed. It removes clients, transactions, and faults as long
 * as some choices still fail, and prints the smallest scenario to `trace`. */
void truce__sim_shrink(enum sim_subject subject, uint64_t seed, FILE *trace,
                       struct sim_result *result);

/* Runs a scenario `runs` times with choices from the seeds `seed`, `seed` + 1, ... `result`
 * belongs to the first run with a violation, or to the last run. */
void truce__sim_walks(const struct sim_scenario *scenario, uint64_t seed, uint64_t runs,
                      FILE *trace, struct sim_result *result);

/* The result of a search, with the numbers of runs, of different states, and of choices. */
struct sim_search {
    uint64_t runs, states, steps;
    /* All choices within the limits were explored. */
    bool complete;
    /* The result of the first run with a violation, or of the last run. */
    struct sim_result result;
};

/* Explores all choices, each state once, until a violation or `runs_max` runs. Prints a
 * violation to `trace`. */
void truce__sim_search(const struct sim_scenario *scenario, uint64_t runs_max, FILE *trace,
                       struct sim_search *search);

#endif

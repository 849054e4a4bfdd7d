#ifndef TRUCE_BENCH_HARNESS_H
#define TRUCE_BENCH_HARNESS_H

/*
 * The scoreboard: truce and its alternatives do the same work.
 *
 *     workload   a file of bench/workloads: the work, and its code for each target
 *     target     truce (a store URI), or a peer: postgresql, sqlite, redis
 *     form       how one target does one workload, if there is more than one way: "rows", "journal"
 *     side       a workload, by one form, on one target: a process of its own, with a thread for
 *                each caller, or (--processes) a process for each
 *     figure     a side at one number of callers
 *
 * Every target acknowledges a write only when it is on disk. The harness reads the settings back
 * from the target. A figure counts if the side's check, after its last round, finds exactly the
 * acknowledged writes in the data.
 */
#include <stdatomic.h>

#include "base/histogram.h"
#include "bench/bench.h"
#include "bench/usage.h"
#include "truce/truce.h"

#define BENCH_CALLERS_MAX 64
#define BENCH_ROUNDS_MAX  32

/* The data is a tenth as large, for runs that only check the correctness. */
extern bool bench_small;
/* Callers are processes with their own connections (or stores), not threads. */
extern bool bench_processes;

struct bench_side;

/* A call of a caller, which is a thread with a connection of its own. */
struct bench_call {
    struct bench_side *side;
    int caller;       /* The number of the caller, from 0. */
    int64_t turn;     /* The number of the call in its round, from 0. */
    void *connection; /* A truce_store, a struct sql, or a struct redis. */
};

/* Executes operations, and returns their number. A failure calls bench_fail, which voids the
 * figures of the side. */
typedef int64_t bench_function(struct bench_call *call);

struct bench_form {
    /* The kind of target: "truce", "postgresql", "sqlite", "redis", or "mongodb". */
    const char *target;
    const char *name; /* The name of the form, or NULL if the target has only one. */
    void (*setup)(struct bench_side *side);
    bench_function *operate;
    void (*check)(struct bench_side *side);
    const void *arg; /* An argument for functions that several forms share. */
    /* Makes side->local. Called in each process that executes operations, before the first one. May
     * be NULL. */
    void (*join)(struct bench_side *side);
};

struct bench_workload {
    const char *name;  /* The name in options and JSON, such as "point_read". */
    const char *title; /* The title in tables. */
    const char *unit;  /* The unit of the figure, for example "reads". */
    size_t state_size; /* The size of side->state. */
    /* The number of documents whose counter each operation increments. */
    int changes;
    int inserts;     /* The number of documents that each operation inserts. */
    bool on_servers; /* The workload also runs against servers, which are slow. */
    /* The workload writes nothing, so the speed of the disk does not matter. */
    bool reads;
    /* Each round runs on a new target, without a warm-up. */
    bool fresh;
    /* The aim for truce's rate divided by PostgreSQL's, at 32 callers. 0 means no aim. */
    double aim;
    double aim_jsonb; /* The same, compared with PostgreSQL's form "jsonb". */
    /* The aim in operations per second at 32 callers. 0 means no aim. */
    double aim_rate;
    double aim_serve; /* The same as aim_rate, for the target truce-serve. */
    /* The forms. One without a target ends the list. */
    struct bench_form forms[9];
};

extern const struct bench_workload *const bench_workloads[]; /* Ends with NULL. */

/* ---- targets (target_*.c) -------------------------------------------------------------------- */

/* A target of this run. */
struct bench_target {
    const struct target_kind *kind;
    /* The name in the figures: that of the kind or of the server, or the URI of a store. */
    const char *name;
    char reason[300]; /* The reason why the target is omitted, or "". */
    char version[100];
    /* The settings that durability depends on, as the target reports them. */
    char settings[300];
    /* Acknowledged writes may be lost. Each figure of the target says so. */
    bool not_durable;
    char address[200];
    pid_t server; /* The process of the server, or 0. */
    /* The setup takes minutes, and the server may stall, so the data is a tenth as large. */
    bool server_is_slow;
};

/* Counters of an embedded store: operations in transactions, syncs of its log, and the time for
 * which its lock was held. */
struct bench_writes {
    int64_t operations, groups, syncs, held_us;
};

struct target_kind {
    const char *name;
    /* The maximum number of rounds of a target that is much slower than the others. 0 means no
     * maximum. */
    int rounds_max;
    /* Starts the server in its own directory, or fills `reason`. Called in the harness. NULL if the
     * target has no server. */
    void (*start)(struct bench_target *target);
    void (*stop)(struct bench_target *target);
    /* Called in the side: opens side->connections for all callers, and fills `version` and
     * `settings`. */
    void (*open)(struct bench_side *side);
    void (*close)(struct bench_side *side);
    /* Deletes a document (row, key) of each collection, to test that the check detects the loss. */
    void (*spoil)(struct bench_side *side);
    /* Reports the counts so far. NULL if the target does not count. */
    void (*count)(struct bench_side *side, struct bench_writes *writes);
    /* Reports the bytes of the data and of the log on disk. NULL if the target cannot measure
     * them. */
    void (*size)(struct bench_side *side, int64_t *data, int64_t *log);
};

extern const struct target_kind target_truce, target_postgres, target_sqlite, target_redis,
    target_mongo;

/* ---- sides (side.c) -------------------------------------------------------------------------- */

/* The state of a side, in its process. */
struct bench_side {
    const struct bench_workload *workload;
    const struct bench_form *form;
    struct bench_target *target;
    int number; /* The number of the side, for names of files and databases. */
    /* The process is that of one caller, and the data already exists. */
    bool joined;
    int callers_max;
    void **connections; /* The connections, callers_max of them. */
    /* The state of the workload, zeroed. All processes of the side share it. */
    void *state;
    void *local; /* The state of the form, in this process. */
    /* The number of acknowledged operations, including the warm-up, for the check. */
    int64_t operations;
    /* The numbers of changes and inserts that these operations made. */
    int64_t changed, inserted;
    int64_t set_up; /* The number of documents that the setup created (documents.h). */
};

/* Ends the side, because the target does not support the workload. This is not a failure. */
_Noreturn void side_cannot(const char *why);
#define SIDE_CANNOT "cannot: " /* The prefix of such a reason. */

/* The result of a round, in memory that the harness shares. */
struct bench_round {
    int64_t operations;
    double seconds;
    struct usage used; /* The costs of the round. The memory is measured at its end. */
    struct bench_writes writes;
    struct histogram latencies;
    char why[300]; /* The reason of a failure, or "". */
};

struct side_process; /* A side, as the harness sees it. */

/* Starts the process and sets up the workload. On failure, returns false and the reason in
 * `why`. */
bool side_start(const struct bench_workload *workload, const struct bench_form *form,
                struct bench_target *target, int callers_max, struct side_process **side, char *why,
                size_t size);
/* Runs a round of `seconds`. *round is borrowed until the next call. */
bool side_run(struct side_process *side, int callers, double seconds,
              const struct bench_round **round);
/* Continues with another workload on the same data. */
void side_use(struct side_process *side, const struct bench_workload *workload,
              const struct bench_form *form);
/* Checks the data. Returns false and the reason in `why` if the figures are void. */
bool side_check(struct side_process *side, char *why, size_t size);
/* Deletes data (target_kind). */
bool side_spoil(struct side_process *side);
bool side_size(struct side_process *side, int64_t *data, int64_t *log);
int side_number(const struct side_process *side);
/* Begins a round, and kills the side in the middle of it. */
void side_kill(struct side_process *side, int callers, double seconds);
void side_end(struct side_process *side); /* NULL is allowed. */

#endif

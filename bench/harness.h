#ifndef TRUCE_BENCH_HARNESS_H
#define TRUCE_BENCH_HARNESS_H

/*
 * The scoreboard: the same work, done by truce and by what a user would pick instead.
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

/* The data is a tenth as large: for runs that are after its correctness only. */
extern bool bench_small;
/* Callers are processes, each with a connection (or store) of its own, not threads. */
extern bool bench_processes;

struct bench_side;

/* One call of one caller: a thread with a connection of its own. */
struct bench_call {
    struct bench_side *side;
    int caller;       /* from 0 */
    int64_t turn;     /* from 0 in each round */
    void *connection; /* truce_store *, struct sql *, struct redis * */
};

/* Returns how many operations it executed. A failure calls bench_fail, which voids the side's
 * figures. */
typedef int64_t bench_function(struct bench_call *call);

struct bench_form {
    const char *target; /* "truce", "postgresql", "sqlite", "redis", "mongodb" */
    const char *name;   /* NULL: the only one */
    void (*setup)(struct bench_side *side);
    bench_function *operate;
    void (*check)(struct bench_side *side);
    const void *arg; /* for forms that share functions */
    /* In each process that operates, before it does: makes side->local. NULL: nothing. */
    void (*join)(struct bench_side *side);
};

struct bench_workload {
    const char *name;  /* "point_read": for options and JSON */
    const char *title; /* for people */
    const char *unit;  /* The unit of the figure, for example "reads". */
    size_t state_size; /* The size of side->state. */
    /* The number of documents whose counter each operation increments. */
    int changes;
    int inserts;                /* documents that each operation adds */
    bool on_servers;            /* The workload also runs against servers, which are slow. */
    bool reads;                 /* nothing is written: the disk plays no part */
    bool fresh;                 /* each round on a target that was just made, without warm-up */
    double aim;                 /* how many times postgresql's rate at 32 callers; 0: none */
    double aim_jsonb;           /* the same, of postgresql's form "jsonb" */
    double aim_rate;            /* operations per second at 32 callers; 0: none */
    double aim_serve;           /* the same, of the target truce-serve */
    struct bench_form forms[9]; /* up to one without a target */
};

extern const struct bench_workload *const bench_workloads[]; /* up to NULL */

/* ---- targets (target_*.c) -------------------------------------------------------------------- */

/* One target of this run. */
struct bench_target {
    const struct target_kind *kind;
    const char *name; /* The name in the figures: the kind's, the server's, or a store URI. */
    char reason[300]; /* why it is left out; empty: it takes part */
    char version[100];
    char settings[300]; /* those that durability depends on, as the target reports them */
    bool not_durable;   /* acknowledged writes may be lost; each of its figures says so */
    char address[200];
    pid_t server; /* 0: it has none */
    /* Its setup takes minutes, and it may stall: its data is a tenth as large. */
    bool server_is_slow;
};

/* Counters of an embedded store: operations in transactions, syncs of its log, and the time for
 * which its lock was held. */
struct bench_writes {
    int64_t operations, groups, syncs, held_us;
};

struct target_kind {
    const char *name;
    int rounds_max; /* for targets that are far from the others; 0: as many as the others */
    /* Starts the server in its own directory, or fills `reason`. Called in the harness. NULL: the
     * target has no server. */
    void (*start)(struct bench_target *target);
    void (*stop)(struct bench_target *target);
    /* In the side: side->connections for all callers, and fills `version` and `settings`. */
    void (*open)(struct bench_side *side);
    void (*close)(struct bench_side *side);
    /* A document (row, key) of each collection gets lost: to see whether the check notices. */
    void (*spoil)(struct bench_side *side);
    /* Reports the counts so far. NULL: the target does not count. */
    void (*count)(struct bench_side *side, struct bench_writes *writes);
    /* Reports the bytes on disk of the data and of the log. NULL: the target cannot measure
     * them. */
    void (*size)(struct bench_side *side, int64_t *data, int64_t *log);
};

extern const struct target_kind target_truce, target_postgres, target_sqlite, target_redis,
    target_mongo;

/* ---- sides (side.c) -------------------------------------------------------------------------- */

/* In the side's process. */
struct bench_side {
    const struct bench_workload *workload;
    const struct bench_form *form;
    struct bench_target *target;
    int number;  /* its own: for names of files and databases */
    bool joined; /* a process of one caller: everything is set up already */
    int callers_max;
    void **connections;        /* callers_max connections. */
    void *state;               /* the workload's own, zeroed; shared by the processes */
    void *local;               /* the form's own, of this process */
    int64_t operations;        /* acknowledged so far, including the warm-up; the check uses it */
    int64_t changed, inserted; /* the same, as the workloads' `changes` and `inserts` */
    int64_t set_up;            /* documents that the setup made (documents.h) */
};

/* In a side: this target cannot do this workload, which is no failure. */
_Noreturn void side_cannot(const char *why);
#define SIDE_CANNOT "cannot: " /* how such reasons begin */

/* The result of a round, in memory that the harness shares. */
struct bench_round {
    int64_t operations;
    double seconds;
    struct usage used; /* in the round; memory: at its end */
    struct bench_writes writes;
    struct histogram latencies;
    char why[300]; /* The reason of a failure; "": none. */
};

struct side_process; /* the harness's end */

/* Starts the process and sets the workload up. If it fails, it returns false and the reason in
 * `why`. */
bool side_start(const struct bench_workload *workload, const struct bench_form *form,
                struct bench_target *target, int callers_max, struct side_process **side, char *why,
                size_t size);
/* Runs for so long; `*round` is borrowed until the next call. */
bool side_run(struct side_process *side, int callers, double seconds,
              const struct bench_round **round);
/* Continues with another workload on the same data. */
void side_use(struct side_process *side, const struct bench_workload *workload,
              const struct bench_form *form);
/* Checks the data. Returns false and the reason in `why` if the figures are void. */
bool side_check(struct side_process *side, char *why, size_t size);
/* Loses data (target_kind). */
bool side_spoil(struct side_process *side);
bool side_size(struct side_process *side, int64_t *data, int64_t *log);
int side_number(const struct side_process *side);
/* Begins a round, which is killed half-way. */
void side_kill(struct side_process *side, int callers, double seconds);
void side_end(struct side_process *side); /* NULL is allowed */

#endif

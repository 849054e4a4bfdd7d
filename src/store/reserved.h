#ifndef TRUCE_STORE_RESERVED_H
#define TRUCE_STORE_RESERVED_H

/*
 * The names that truce keeps for itself. Each is said here once; all other names, `truce_mine` too, are
 * the user's. docs/limits.md lists them for users.
 *
 * A new pattern that keeps documents of its own adds a name here and a line to the table in
 * reserved.c.
 */
#include <stdbool.h>

/* collections */
#define COMMITS         "truce_commits"
#define REQUESTS        "truce_requests"
#define DISPLACED       "truce_displaced" /* what decided commits had to displace */
#define SEQUENCES       "truce_sequences"
#define SET_DEFINITIONS "truce_sets"
#define SET_SOURCES     "truce_sources"
#define SET_PROGRESS    "truce_progress"
#define SET_QUARANTINE  "truce_quarantine"
#define CONFLICTS       "truce_conflicts"
#define COPY_RECORDS    "truce_copies"
#define IMPORTS         "truce_imports"
#define SET_JOBS        "truce_jobs" /* of `truce set apply` */
#define QUEUE           "truce_queue"
#define QUEUE_KEYS      "truce_queue_keys"
#define QUEUE_SETTINGS  "truce_queues"
#define QUEUE_CRONS     "truce_queue_crons"
#define QUEUE_GATES     "truce_queue_gates"
#define QUEUE_LANES     "truce_queue_lanes"
#define LEDGERS         "truce_ledgers" /* the ledgers of the store, and their currencies */
#define LEDGER_SUMS                                                                                \
    "truce_ledger_sums" /* of their accounts by value date; may be dropped at any time */
#define TRANSFERS  "truce_transfers"  /* the books of transfers, and where things stand in them */
#define SYNC_RULES "truce_sync"       /* the rules of copies */
#define TREES      "truce_trees"      /* the masters of trees of versions */
#define TREE_EDITS "truce_tree_edits" /* their edits, which are their log */
#define TREE_HOLDS "truce_tree_holds" /* what readers and tags hold of them */
#define PROBE      "truce_probe"
/* of a server, in the database config: what the sessions of its clients did last */
#define SESSION_RECORDS "@config.transactions"
/* up to which time servers have reserved times for snapshots */
#define CLUSTER_TIME "@config.cluster_time"
/* of a server, in the database admin: who may log in, and what they may do */
#define USER_RECORDS "@admin.system.users"

/* {_id: "own", database}: the name of the store's own database, where it is not OWN_DATABASE */
#define OWN_RECORDS  "@admin.system.version"
#define OWN_DATABASE "test"

/* earlier versions of the documents of X stand in "X.revisions" */
#define REVISIONS_SUFFIX ".revisions"
/* the guards of an ordered set in the layout by element, whose elements stand in X */
#define GUARDS_SUFFIX ".guards"

enum shard_need {
    SHARD_FREE,  /* any key, or none */
    SHARD_BY_ID, /* its documents are made once and found by their _id */
    SHARD_NEVER, /* a unique index has to span all of it */
};

struct reserved {
    const char *name;
    enum shard_need shards;
    /* Its documents must not expire by age: truce removes them, when nothing rests on them. */
    bool remembers;
    /* Truce changes its documents one by one, without regard to the intents of commits; so no
     * commit may hold one. */
    bool outside_commits;
};

/* `collection` is a name in a database, or the place of it in a store of several ("@school.truce_queue"). NULL: the name is
 * the user's. */
const struct reserved *truce__reserved(const char *collection);

/* Returns whether truce keeps the place for itself, a server's own records included. Change streams do not report it. */
bool truce__reserved_place(const char *place);

/* What the shard key of a collection must be for truce's own use of it, "X.revisions" and
 * "X.guards" too. */
enum shard_need truce__reserved_shards(const char *collection);

#endif

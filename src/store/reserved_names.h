#ifndef TRUCE_STORE_RESERVED_NAMES_H
#define TRUCE_STORE_RESERVED_NAMES_H

/*
 * The names that truce reserves. All other names, including `truce_mine`, are the user's.
 * docs/limits.md lists the reserved names for users.
 *
 * To reserve a name for a new pattern, add it here and to the table in reserved_names.c.
 */
#include <stdbool.h>

#include <bson/bson.h>

/* Collections. */
#define COMMITS         "truce_commits"
#define REQUESTS        "truce_requests"
#define DISPLACED       "truce_displaced" /* Values that decided commits discarded. */
#define SEQUENCES       "truce_sequences"
#define SET_DEFINITIONS "truce_sets"
#define SET_SOURCES     "truce_sources"
#define SET_PROGRESS    "truce_progress"
#define SET_QUARANTINE  "truce_quarantine"
#define CONFLICTS       "truce_conflicts"
#define COPY_RECORDS    "truce_copies"
#define IMPORTS         "truce_imports"
#define SET_JOBS        "truce_jobs" /* The jobs of `truce set apply`. */
#define QUEUE           "truce_queue"
#define QUEUE_KEYS      "truce_queue_keys"
#define QUEUE_SETTINGS  "truce_queues"
#define QUEUE_CRONS     "truce_queue_crons"
#define QUEUE_LIMITERS  "truce_queue_limiters"
#define QUEUE_LANES     "truce_queue_lanes"
/* Ledgers with their currencies. */
#define LEDGERS "truce_ledgers"
/* Sums of accounts by value date. The collection may be dropped at any time. */
#define LEDGER_SUMS "truce_ledger_sums"
/* Books of transfers, and the current places of things. */
#define TRANSFERS  "truce_transfers"
#define SYNC_RULES "truce_sync"       /* The rules of copies. */
#define TREES      "truce_trees"      /* The masters of trees. */
#define TREE_EDITS "truce_tree_edits" /* The log of their edits. */
#define TREE_HOLDS "truce_tree_holds" /* Holds of readers and tags. */
/* Messages of brokers that were applied, and positions in their logs; messages that could not be
 * applied. */
#define BROKER_INBOX   "truce_inbox"
#define BROKER_REJECTS "truce_rejects"
/* The positions of publishers of changes. */
#define BROKER_OUTBOX "truce_outbox"
/* The consumers of all processes, with their counts. */
#define BROKER_CONSUMERS "truce_consumers"
#define PROBE            "truce_probe"
/* The id of the store in its archives. */
#define ARCHIVE_RECORDS "truce_archive"
/* The last write of each client session of a server, in the database config. */
#define SESSION_RECORDS "@config.transactions"
/* The same of a server in front of MongoDB, in its database. */
#define PASSED_RECORDS "truce_transactions"
/* The time up to which servers have reserved snapshot times. */
#define CLUSTER_TIME "@config.cluster_time"
/* The users of a server and their roles, in the database admin. */
#define USER_RECORDS "@admin.system.users"

/* {_id: "own", database}: the name of the store's own database, if it is not OWN_DATABASE. */
#define OWN_RECORDS  "@admin.system.version"
#define OWN_DATABASE "test"

/* Earlier versions of the documents of X are in "X.revisions". */
#define REVISIONS_SUFFIX ".revisions"
/* The guards of an ordered set in the layout by element, whose elements are in X. */
#define GUARDS_SUFFIX ".guards"

enum shard_need {
    /* Any key, or none. */
    SHARD_FREE,
    /* Its documents are inserted once and found by _id. */
    SHARD_BY_ID,
    /* A unique index must span the whole collection. */
    SHARD_NEVER,
};

struct reserved {
    const char *name;
    enum shard_need shards;
    /* Its documents must not expire by age. Truce removes them when nothing depends on them. */
    bool remembers;
    /* Truce changes its documents one by one and ignores intents, so no commit may hold one. */
    bool outside_commits;
};

/* Finds a reserved collection. `collection` is a name in a database, or a place in a store with
 * several ("@school.truce_queue"). Returns NULL if the name is the user's. */
const struct reserved *truce__reserved(const char *collection);

/* Returns whether truce reserves the place, including a server's own records. Change streams do not
 * report such places. */
bool truce__reserved_place(const char *place);

/* Returns the shard key that truce needs for a collection, also for "X.revisions" and
 * "X.guards". */
enum shard_need truce__reserved_shards(const char *collection);

/* Returns whether a command, or a change of a list, is an operation: its first field begins with
 * "truce". */
bool truce__is_operation(const bson_t *command);

#endif

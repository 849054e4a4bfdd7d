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
#define COMMITS  "truce_commits"
#define REQUESTS "truce_requests"
/* Values that decided commits discarded. */
#define DISPLACED       "truce_displaced"
#define SEQUENCES       "truce_sequences"
#define SET_DEFINITIONS "truce_sets"
#define SET_SOURCES     "truce_sources"
#define SET_PROGRESS    "truce_progress"
#define SET_QUARANTINE  "truce_quarantine"
#define CONFLICTS       "truce_conflicts"
#define COPY_RECORDS    "truce_copies"
#define IMPORTS         "truce_imports"
/* The jobs of `truce set apply`. */
#define SET_JOBS       "truce_jobs"
#define QUEUE          "truce_queue"
#define QUEUE_KEYS     "truce_queue_keys"
#define QUEUE_SETTINGS "truce_queues"
#define QUEUE_CRONS    "truce_queue_crons"
#define QUEUE_LIMITERS "truce_queue_limiters"
#define QUEUE_LANES    "truce_queue_lanes"
/* The ledgers, with their currencies. */
#define LEDGERS "truce_ledgers"
/* The sums of accounts by value date. The collection may be dropped at any time. */
#define LEDGER_SUMS "truce_ledger_sums"
/* The books of transfers, and where the transferred things are now. */
#define TRANSFERS "truce_transfers"
/* The rules of denormalized copies. */
#define SYNC_RULES "truce_sync"
/* One master document for each tree. */
#define TREES "truce_trees"
/* The log of the edits of trees. */
#define TREE_EDITS "truce_tree_edits"
/* The holds by which readers and tags keep old versions of trees. */
#define TREE_HOLDS "truce_tree_holds"
/* The messages of brokers that were applied and the positions in the brokers' logs, and the
 * messages that could not be applied. */
#define BROKER_INBOX   "truce_inbox"
#define BROKER_REJECTS "truce_rejects"
/* The positions of the publishers of changes. */
#define BROKER_OUTBOX "truce_outbox"
/* The consumers of all processes, with their counters. */
#define BROKER_CONSUMERS "truce_consumers"
/* The collection that probes of a server name. No probe writes to it, but some servers create
 * it. */
#define PROBE "truce_probe"
/* The id of the store in its archives. */
#define ARCHIVE_RECORDS "truce_archive"
/* The last write of each client session of a server, in the database config. */
#define SESSION_RECORDS "@config.transactions"
/* The same for a server in front of MongoDB, in the database of the store. */
#define PASSED_RECORDS "truce_transactions"
/* The time up to which servers have reserved times of snapshots. */
#define CLUSTER_TIME "@config.cluster_time"
/* The users of a server and their roles, in the database admin. */
#define USER_RECORDS "@admin.system.users"

/* {_id: "own", database}: the name of the store's own database, if it is not OWN_DATABASE. */
#define OWN_RECORDS  "@admin.system.version"
#define OWN_DATABASE "test"

/* The collection X.revisions has earlier versions of the documents of X. */
#define REVISIONS_SUFFIX ".revisions"
/* The collection X.guards has the guards of an ordered set whose elements are in X. */
#define GUARDS_SUFFIX ".guards"

enum shard_need {
    /* The collection may have any shard key. */
    SHARD_FREE,
    /* The collection must be sharded by _id or not at all: documents are inserted once and found by
     * _id. */
    SHARD_BY_ID,
    /* The collection must not be sharded: a unique index must span all of it. */
    SHARD_NEVER,
};

struct reserved {
    const char *name;
    enum shard_need shards;
    /* Documents of the collection must not expire by age. truce removes them when nothing depends
     * on them. */
    bool remembers;
    /* truce changes documents of the collection one by one and ignores intents, so no commit may
     * write to it. */
    bool outside_commits;
};

/* Finds a reserved collection. `collection` is a name in a database, or a stored name in a store
 * with several databases ("@school.truce_queue", namespace_map.h). Returns NULL if the name is
 * available to users. */
const struct reserved *truce__reserved(const char *collection);

/* Returns whether truce reserves the stored name, including a server's own records. Change streams
 * do not report such stored names. */
bool truce__reserved_stored_name(const char *stored_name);

/* Returns the shard key that truce needs for a collection, also for "X.revisions" and
 * "X.guards". */
enum shard_need truce__reserved_shards(const char *collection);

/* Returns whether a command, or an element of a list of changes, is an operation of truce: its
 * first field begins with "truce". */
bool truce__is_operation(const bson_t *command);

#endif

#ifndef TRUCE_BASE_LIMITS_H
#define TRUCE_BASE_LIMITS_H

/*
 * All maxima and defaults of truce. Input from a peer, a file, or a user never causes an allocation
 * beyond them. Test builds define TRUCE_SMALL_LIMITS, which makes some of them small enough to
 * reach.
 */
#define TRUCE_DOCUMENT_BYTES_MAX (16 * 1024 * 1024)
/* A row of the file. The largest one is an entry of the change feed: the _id, the difference,
 * and the document before and after the change. */
#define TRUCE_ROW_BYTES_MAX         (3 * TRUCE_DOCUMENT_BYTES_MAX + 4 * 1024 * 1024)
#define TRUCE_DOCUMENT_DEPTH_MAX    100         /* nested documents and arrays, as MongoDB */
#define TRUCE_INTERNAL_BYTES_EXTRA  (16 * 1024) /* room that MongoDB leaves for internal fields */
#define TRUCE_NAMESPACE_MAX         255         /* "DATABASE.COLLECTION", as MongoDB */
#define TRUCE_COLLECTION_NAME_MAX   253         /* bytes, if the database has one letter */
#define TRUCE_PLACE_NAME_MAX        256         /* a namespace with @ in front of it */
#define TRUCE_INDEX_NAME_MAX        127         /* bytes */
#define TRUCE_INDEXES_MAX           64          /* per collection, the _id index included */
#define TRUCE_INDEX_FIELDS_MAX      32          /* fields of a compound index */
#define TRUCE_INDEX_KEY_BYTES_MAX   (16 * 1024 * 1024) /* a zero byte of a string takes two */
#define TRUCE_INDEX_KEYS_MAX        100000   /* keys of one document in one multikey index */
#define TRUCE_REGEX_BYTES_MAX       32764    /* as MongoDB */
#define TRUCE_REGEX_MATCH_MAX       1000000  /* PCRE2's match limit at one position */
#define TRUCE_REGEX_STEPS_MAX       10000000 /* items tried in one search, 32 more for each byte */
#define TRUCE_REGEX_MEMORY_MAX      (64 * 1024 * 1024) /* backtracking points of one search */
#define TRUCE_MATCH_FORKS_MAX       16000000           /* paths through arrays of one document */
#define TRUCE_ARRAY_FILL_MAX        1500000            /* nulls that $set of a.N adds, as MongoDB */
#define TRUCE_LOG_BYTES_KEPT        (64 * 1024 * 1024) /* of a log that grew; the rest is freed */
#define TRUCE_CACHE_MB_MIN          16 /* memory for documents and pages of an open file */
#define TRUCE_CACHE_MB_MAX          (1024 * 1024)
#define TRUCE_CACHE_MB_LEAST        64  /* the smallest default */
#define TRUCE_CACHE_MB_MOST         256 /* the largest default */
#define TRUCE_CACHE_PART            64  /* default: the memory, divided by this */
#define TRUCE_PIPELINE_STAGES_MAX   1000
#define TRUCE_STAGE_MEMORY_MAX      (100 * 1024 * 1024) /* $sort, $group: spill or fail beyond it */
#define TRUCE_PIPELINE_MEMORY_MAX   (256 * 1024 * 1024) /* of all stages together */
#define TRUCE_BULK_MAX              100000              /* writes in one bulk call */
#define TRUCE_BULK_BYTES_MAX        (80 * 1024 * 1024)  /* of a transaction and its metadata */

#define TRUCE_MESSAGE_BYTES_MAX     (48 * 1024 * 1024 + 16 * 1024) /* of the wire, as MongoDB */
#define TRUCE_MESSAGE_DEPTH_EXTRA   10     /* levels of a command around the documents in it */
#define TRUCE_CONNECTIONS_MAX       1000   /* default: of a server */
#define TRUCE_SERVER_CURSORS_MAX    1000   /* open in a server, of all clients */
#define TRUCE_SERVER_CURSOR_IDLE_MS 600000 /* after which a cursor is closed */

/* Index entries that checking one read of a transaction may visit. */
#define TRUCE_CHECK_ENTRIES_MAX 10000
/* The bytes of the documents that a transaction writes, before and after. */
#define TRUCE_TRANSACTION_BYTES_MAX (64 * 1024 * 1024)
/* The documents that a transaction writes; each is one or two writes of a bulk. */
#define TRUCE_TRANSACTION_DOCUMENTS_MAX 50000
/* Reads, and documents of a read, that are checked one by one. */
#define TRUCE_TRANSACTION_READS_MAX   1000

#define TRUCE_SERVER_SESSIONS_MAX     10000   /* with transaction numbers, in memory */
#define TRUCE_SERVER_SESSION_MS       1800000 /* idle time after which a session ends */
#define TRUCE_SERVER_RECORD_BYTES     1024    /* of a session's record, in memory */
#define TRUCE_SERVER_SWEEP_BATCH      1000    /* records that one step reads */
#define TRUCE_SERVER_HANDLES_MAX      256     /* of sets and queues, cached by name */
#define TRUCE_SERVER_HANDLE_BYTES     2000    /* of the name of a cached handle */
#define TRUCE_SERVER_TRANSACTIONS_MAX 100     /* open in a server */
/* The bytes of the documents that all open transactions write together. */
#define TRUCE_SERVER_TRANSACTIONS_BYTES (256 * 1024 * 1024)
#define TRUCE_SERVER_TRANSACTION_MS     60000 /* default lifetime */

#define TRUCE_SERVER_PASTS_MAX          32     /* historical snapshots */
#define TRUCE_SERVER_PAST_MS            300000 /* default lifetime of a historical snapshot */

#define TRUCE_VIEW_DEPTH_MAX            20                /* of views on views, as MongoDB */
#define TRUCE_VIEWS_MAX                 1000              /* of one database */
#define TRUCE_VIEWS_BYTES_MAX           (4 * 1024 * 1024) /* of their definitions */
#define TRUCE_SERVER_VIEW_LISTS         64                /* databases whose views are cached */

#define TRUCE_SERVER_SLOW_MS            100    /* default: slower commands are logged */
#define TRUCE_SERVER_BLOCK_MS_MAX       600000 /* of a fail point */
/* The bytes of the error messages of one command; further errors have only a code. */
#define TRUCE_SERVER_SENTENCES_BYTES (1024 * 1024)
/* The bytes of replies to bulkWrite, and of lists, that clients have not read yet. */
#define TRUCE_SERVER_ANSWERS_BYTES (64 * 1024 * 1024)
#define TRUCE_SERVER_FINDINGS_MAX  1000   /* that one validate reports */
#define TRUCE_HANDSHAKE_MS         10000  /* default, of TLS */
#define TRUCE_MESSAGE_MS           20000  /* default, for 64 KiB of a message */
#define TRUCE_SEND_MS              120000 /* without progress, while a client reads a reply */
/* Default idle time of a connection that has not logged in. */
#define TRUCE_STRANGER_MS             300000
#define TRUCE_STRANGER_FRESH_MS       2000        /* younger ones are never evicted */
#define TRUCE_LOGIN_MESSAGE_BYTES_MAX (64 * 1024) /* of a client before it logs in */
#define TRUCE_LOGIN_DELAY_MS          500         /* default delay of a failed login */
#define TRUCE_LOGIN_DELAYED_MAX       100         /* logins that are delayed at a time */
#define TRUCE_LOGIN_FRESH_MS          1000        /* age at which a user's roles are read again */
#define TRUCE_PASSWORD_MAX            65536       /* bytes */
#define TRUCE_USER_ROLES_MAX          100         /* of one user */
#define TRUCE_USER_TOKENS_MAX         100
#define TRUCE_USERS_LISTED_MAX        10000 /* that usersInfo returns */

#define TRUCE_SNAPSHOTS_MAX           128    /* cursors and snapshots of a store */
#define TRUCE_SNAPSHOT_AGE_MS         600000 /* default maximum of their age */
#define TRUCE_SNAPSHOT_LOG_BYTES                                                                   \
    (UINT64_C(1) << 30) /* default maximum of the log since they began */

#define TRUCE_CSV_COLUMNS_MAX      1000

#define TRUCE_COPY_BATCH_MAX       10000 /* documents in memory at a time */
#define TRUCE_COPY_DIFFERENCES_MAX 10000 /* reported, with up to 1,000 bytes each */

#define TRUCE_SALVAGE_PAGES_MAX    (1 << 30) /* of a damaged file: 4 TiB */
#define TRUCE_SALVAGE_GAPS_MAX     10000     /* unreachable places that are listed */
#define TRUCE_SALVAGE_TABLES_MAX   10000     /* collections */

#define TRUCE_COMMIT_DOCUMENTS_MAX 1000   /* documents of one commit */
#define COMMIT_RESULT_BYTES_MAX    65536  /* that a commit stores under its key */
#define COMMIT_LEASE_MS            10000  /* default lease of a journal commit */
#define COMMIT_LEASE_MS_LEAST      1000   /* minimum, with any deadline */
#define COMMIT_LOOK_LEASE_MS       1000   /* of the locks of truce_read_many */
#define COMMIT_LEASE_MS_MAX        600000 /* the longest time one commit can block others */
#define COMMIT_DEADLINE_MS         30000  /* default deadline */
#define COMMIT_TRIES               100    /* default: runs of the function of truce_transact */
#define COMMIT_TRIES_FREE          3      /* optimistic runs before a commit locks first */
#define COMMIT_TAKE_MS             100    /* the time that these runs take at least */
#define COMMIT_TURN_MS             100    /* wait for the lock of a contended document */
#define COMMIT_INDEXES_FRESH_MS    5000   /* age at which a list of indexes is read again */

#define REVISION_NUMBERS_MAX       256 /* in a document that is saved by one write */

/* 9999-12-31. Clients in some languages cannot read later dates. */
#define DATE_LAST_MS             INT64_C(253402300799999)

#define WORK_LINE_BYTES_MAX      (16 * 1024 * 1024) /* of a program of truce work --keep-open */
#define WORK_PROGRAMS_MAX        64
#define WORK_AT_ONCE_MAX         1000 /* jobs of one program */
#define POOL_THREADS_MAX         256
#define JOB_PAYLOAD_BYTES_MAX    (8 * 1024 * 1024) /* the worker's fields need room, too */
#define JOB_METADATA_BYTES_MAX   (64 * 1024)
#define JOB_TAGS_MAX             100
#define JOB_PRIORITY_MAX         1000
#define JOB_ERRORS_MAX           10    /* that a job keeps */
#define JOB_ERROR_BYTES_MAX      2000  /* of each message */
#define JOB_CLAIMS_MAX           1000  /* jobs claimed at once */
#define JOB_BULK_MAX             10000 /* jobs added at once */
#define JOB_KEY_BYTES_MAX        200
#define JOB_LEASE_MS             30000              /* default */
#define JOB_ATTEMPTS             10                 /* default */
#define JOB_KEEP_MS              INT64_C(604800000) /* default */
#define QUEUE_SOURCES_MAX        100                /* of one claim */
#define QUEUE_WEIGHT_MAX         1000               /* of one source */
#define JOB_EVENTS_MAX           100  /* sent to a job, each of JOB_METADATA_BYTES_MAX */
#define JOB_AFTER_MAX            500  /* jobs that a new job waits for */
#define JOB_THEN_MAX             1000 /* jobs that wait for one */
#define REVIVED_MAX              400  /* jobs that one retry revives */
#define FLOW_JOBS_MAX            500  /* jobs of a workflow added at once */
#define FLOW_EDGES_MAX           5000 /* dependencies between these jobs */
#define GRAPH_JOBS_MAX           1000 /* in one drawing */
#define QUEUE_NAME_BYTES_MAX     200
#define CRON_MISSED              100  /* default */
#define CRON_MISSED_MAX          500  /* times of a cron line fired at once */
#define LEDGER_ENTRIES_MAX       1000 /* of a transaction of a ledger */
#define LEDGER_SLOTS_ENTRIES_MAX 997 /* the same, where numbers are documents: a commit has 1,000 */
#define LEDGER_BATCH_MAX         10000 /* transactions of one call */
#define LEDGER_BULK              1000  /* imported or expired at a time */
#define LEDGER_BATCH_ENTRIES_MAX 10000 /* of all callers, in one batch */
#define LEDGER_KNOWN_MAX         50000 /* accounts that a handle caches */
#define LEDGER_SEAL_ACCOUNTS     1000  /* of a part of a seal */
#define LEDGER_CSV_RULES_MAX     1000  /* of one import */
#define LEDGER_NAME_MAX          200   /* bytes of an account's name */

#define TRANSFER_ENTRIES_MAX     100
#define TRANSFER_BYTES_MAX       (4 * 1024 * 1024) /* of a transfer's document */
#define TRANSFER_META_BYTES_MAX  (64 * 1024)
#define TRANSFER_NAME_MAX        100                 /* bytes of the name of a field */
#define TRANSFER_RESUME_MS       1800000             /* default */
#define TRANSFER_KEEP_MS         INT64_C(2592000000) /* default */

#define SWEEP_PASSED_BYTES       (4 * 1024 * 1024) /* _ids that one step of a sweep skips */

#define SYNC_RULES_MAX           100 /* of a store */
#define SYNC_COPIES_MAX          32  /* fields of a rule */
#define SYNC_NAME_MAX            100 /* bytes of a rule's name */
#define SYNC_PATH_BYTES_MAX      500
#define SYNC_BATCH               1000          /* default */
#define SYNC_BATCH_MAX           10000         /* copies written at once */
#define SYNC_BATCH_BYTES         (1024 * 1024) /* of their _ids */
#define SYNC_RESUME_MS           60000         /* default */
#define SYNC_FRESH_MS            2000          /* age at which a handle reads the rules again */
#define SYNC_SETTLE_MS           5000          /* default: longer than SYNC_FRESH_MS */

#define TREE_NAME_MAX            200               /* bytes of a tree's name, of a tag */
#define TREE_TEXT_MAX            4096              /* bytes of a message or an author */
#define TREE_BATCH               1000              /* items written or read at once */
#define TREE_BATCH_BYTES         (8 * 1024 * 1024) /* of them */
#define TREE_ITEM_ROOM           1024              /* bytes of an item for truce's own fields */
#define TREE_DEPTH_MAX           10000             /* of a tree whose parents are checked */
#define TREE_UNSETTLED           64                /* versions; with more, publishing settles one */
#define TREE_SETTLE_ROUND        1000              /* versions settled in one pass of the sweep */
/* Items removed in one pass, which ends with the version that exceeds it. */
#define TREE_COLLECT_ROUND 100000
#define TREE_LEASE_MS      600000
#define TREE_EDIT_MS       86400000 /* idle time after which an edit is abandoned */

#endif

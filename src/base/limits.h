#ifndef TRUCE_BASE_LIMITS_H
#define TRUCE_BASE_LIMITS_H

/*
 * Every maximum of truce. Nothing that a peer, a file or a user sends decides an allocation beyond
 * these. With TRUCE_SMALL_LIMITS (test builds) those that a test could not reach are small.
 */
#define TRUCE_DOCUMENT_BYTES_MAX (16 * 1024 * 1024)
/* of the file: a document, a catalog entry with all its indexes; the most is an entry of the feed, with _id, difference, and
 * the document before and after the change */
#define TRUCE_ROW_BYTES_MAX         (3 * TRUCE_DOCUMENT_BYTES_MAX + 4 * 1024 * 1024)
#define TRUCE_DOCUMENT_DEPTH_MAX    100 /* nested documents and arrays, MongoDB's own maximum */
#define TRUCE_INTERNAL_BYTES_EXTRA  (16 * 1024) /* room that MongoDB leaves for internal fields */
#define TRUCE_NAMESPACE_MAX         255         /* "DATABASE.COLLECTION", as MongoDB */
#define TRUCE_COLLECTION_NAME_MAX   253         /* bytes: what a database of one letter leaves */
#define TRUCE_PLACE_NAME_MAX        256         /* a namespace with @ in front of it */
#define TRUCE_INDEX_NAME_MAX        127         /* bytes */
#define TRUCE_INDEXES_MAX           64          /* per collection, the _id index included */
#define TRUCE_INDEX_FIELDS_MAX      32          /* fields of a compound index */
#define TRUCE_INDEX_KEY_BYTES_MAX   (16 * 1024 * 1024) /* a zero byte of a text takes two */
#define TRUCE_INDEX_KEYS_MAX        100000   /* keys of one document in one multikey index */
#define TRUCE_REGEX_BYTES_MAX       32764    /* as MongoDB */
#define TRUCE_REGEX_MATCH_MAX       1000000  /* PCRE2's match limit: at one place of the text */
#define TRUCE_REGEX_STEPS_MAX       10000000 /* items tried in one search, 32 more for each byte */
#define TRUCE_REGEX_MEMORY_MAX      (64 * 1024 * 1024) /* backtracking points of one search */
#define TRUCE_MATCH_FORKS_MAX       16000000 /* ways of numeric paths through one document */
#define TRUCE_ARRAY_FILL_MAX        1500000 /* as MongoDB: $set of a.N beyond the end pads with null */
#define TRUCE_LOG_BYTES_KEPT        (64 * 1024 * 1024) /* of a log that grew; the rest is given back */
#define TRUCE_CACHE_MB_MIN          16 /* memory for documents and pages of an open file */
#define TRUCE_CACHE_MB_MAX          (1024 * 1024)
#define TRUCE_CACHE_MB_LEAST        64 /* where nobody says how much: a part of the machine's, ... */
#define TRUCE_CACHE_MB_MOST         256 /* ... not less and not more */
#define TRUCE_CACHE_PART            64
#define TRUCE_PIPELINE_STAGES_MAX   1000
#define TRUCE_STAGE_MEMORY_MAX      (100 * 1024 * 1024) /* $sort, $group: spill or fail beyond it */
#define TRUCE_PIPELINE_MEMORY_MAX   (256 * 1024 * 1024) /* all stages of one together */
#define TRUCE_BULK_MAX              100000              /* writes in one bulk call */
#define TRUCE_BULK_BYTES_MAX        (80 * 1024 * 1024)  /* a transaction, and what goes with it */

#define TRUCE_MESSAGE_BYTES_MAX     (48 * 1024 * 1024 + 16 * 1024) /* of the wire, as MongoDB */
#define TRUCE_MESSAGE_DEPTH_EXTRA   10     /* levels of a command around the documents in it */
#define TRUCE_CONNECTIONS_MAX       1000   /* default: of a server */
#define TRUCE_SERVER_CURSORS_MAX    1000   /* that are open in a server, of all its clients */
#define TRUCE_SERVER_CURSOR_IDLE_MS 600000 /* then nobody will ask for more */

#define TRUCE_CHECK_ENTRIES_MAX                                                                    \
    10000 /* looked at, for a read of a transaction that is made again */
#define TRUCE_TRANSACTION_BYTES_MAX                                                                \
    (64 * 1024 * 1024) /* of documents that one writes, before and after */
#define TRUCE_TRANSACTION_DOCUMENTS_MAX                                                            \
    50000                                  /* that it writes: each is one write of a bulk, or two */
#define TRUCE_TRANSACTION_READS_MAX   1000 /* that are checked one by one; of a read, its documents */

#define TRUCE_SERVER_SESSIONS_MAX     10000 /* that a server remembers, of those with numbers */
#define TRUCE_SERVER_SESSION_MS       1800000 /* idle for so long they are forgotten, as clients know */
#define TRUCE_SERVER_RECORD_BYTES     1024 /* of a session's record that stay in memory */
#define TRUCE_SERVER_SWEEP_BATCH      1000 /* records that are looked at in one step */
#define TRUCE_SERVER_HANDLES_MAX      256  /* sets and queues that a server keeps ready, ... */
#define TRUCE_SERVER_HANDLE_BYTES     2000 /* ... by their names, of at most so many bytes */
#define TRUCE_SERVER_TRANSACTIONS_MAX 100  /* that are open in it */
#define TRUCE_SERVER_TRANSACTIONS_BYTES                                                            \
    (256 * 1024 * 1024)                   /* of documents that all of these write together */
#define TRUCE_SERVER_TRANSACTION_MS 60000 /* default: so long one may be */

#define TRUCE_SERVER_PASTS_MAX      32 /* moments that clients may read again by their time ... */
#define TRUCE_SERVER_PAST_MS        300000 /* ... and default: for so long */

#define TRUCE_VIEW_DEPTH_MAX        20                /* views on views on views ..., as MongoDB */
#define TRUCE_VIEWS_MAX             1000              /* of one database, ... */
#define TRUCE_VIEWS_BYTES_MAX       (4 * 1024 * 1024) /* ... with definitions of so many bytes */
#define TRUCE_SERVER_VIEW_LISTS     64 /* databases whose views a server keeps in memory */

#define TRUCE_SERVER_SLOW_MS        100 /* default: commands that take as long are told in the log */
#define TRUCE_SERVER_BLOCK_MS_MAX   600000 /* that a command waits by a fail point */
#define TRUCE_SERVER_SENTENCES_BYTES                                                               \
    (1024 * 1024) /* of the errors of one command; further ones have a code alone */
#define TRUCE_SERVER_ANSWERS_BYTES                                                                 \
    (64 * 1024 * 1024) /* of answers to bulkWrite, and of lists, that clients have not read yet */
#define TRUCE_SERVER_FINDINGS_MAX 1000   /* that one validate tells */
#define TRUCE_HANDSHAKE_MS        10000  /* default: so long one of TLS may take */
#define TRUCE_MESSAGE_MS          20000  /* default: so long 64 KiB of a message may take */
#define TRUCE_SEND_MS             120000 /* so long a client may read nothing of its answer */
#define TRUCE_STRANGER_MS                                                                          \
    300000 /* default: so long a connection that has not logged in may send nothing */
#define TRUCE_STRANGER_FRESH_MS       2000        /* younger ones do not make room for others */
#define TRUCE_LOGIN_MESSAGE_BYTES_MAX (64 * 1024) /* of one who has to log in first */
#define TRUCE_LOGIN_DELAY_MS          500 /* default: so late a login that failed is answered, ... */
#define TRUCE_LOGIN_DELAYED_MAX       100   /* ... of so many at a time; others are not answered */
#define TRUCE_LOGIN_FRESH_MS          1000  /* the roles of one who logged in are read again */
#define TRUCE_PASSWORD_MAX            65536 /* bytes */
#define TRUCE_USER_ROLES_MAX          100   /* that one has */
#define TRUCE_USERS_LISTED_MAX        10000 /* that usersInfo tells */

#define TRUCE_SNAPSHOTS_MAX           128 /* cursors and snapshots of an open store that keep a moment */
#define TRUCE_SNAPSHOT_AGE_MS         600000 /* default: how old one of them may be, ... */
#define TRUCE_SNAPSHOT_LOG_BYTES      (UINT64_C(1) << 30) /* ... and what may be written meanwhile */

#define TRUCE_CSV_COLUMNS_MAX         1000

#define TRUCE_COPY_BATCH_MAX          10000 /* documents that a copy holds at a time */
#define TRUCE_COPY_DIFFERENCES_MAX    10000 /* that it tells, each with values of up to 1,000 bytes */

#define TRUCE_SALVAGE_PAGES_MAX       (1 << 30) /* of a damaged file: 4 TiB */
#define TRUCE_SALVAGE_GAPS_MAX        10000 /* places that cannot be reached; then whole collections are */
#define TRUCE_SALVAGE_TABLES_MAX      10000 /* collections */

#define TRUCE_COMMIT_DOCUMENTS_MAX    1000   /* documents of one commit */
#define COMMIT_RESULT_BYTES_MAX       65536  /* what a commit leaves under its key */
#define COMMIT_LEASE_MS               10000  /* default lease of a journal commit */
#define COMMIT_LEASE_MS_LEAST         1000   /* the same, whatever the deadline */
#define COMMIT_LOOK_LEASE_MS          1000   /* the same of what truce_read_many holds */
#define COMMIT_LEASE_MS_MAX           600000 /* nobody can block others for longer */
#define COMMIT_DEADLINE_MS            30000  /* default deadline */
#define COMMIT_TRIES                  100 /* default: how often truce_transact runs its function */
#define COMMIT_TRIES_FREE             3   /* so often it only compares; then, and after ... */
#define COMMIT_TAKE_MS                100 /* ... so long, a commit takes its documents first */
#define COMMIT_TURN_MS                100 /* so long a commit waits for its turn at a hot document */
#define COMMIT_INDEXES_FRESH_MS       5000 /* for so long a list of indexes is taken for what is there */

#define REVISION_NUMBERS_MAX          256 /* in what was read, for a save that is one write */

#define DATE_LAST_MS                                                                               \
    INT64_C(253402300799999) /* 9999-12-31: clients of some languages read no later one */

#define WORK_LINE_BYTES_MAX      (16 * 1024 * 1024) /* that a program of truce work --keep-open writes */
#define WORK_PROGRAMS_MAX        64
#define WORK_AT_ONCE_MAX         1000 /* jobs that one program has */
#define POOL_THREADS_MAX         256
#define JOB_PAYLOAD_BYTES_MAX    (8 * 1024 * 1024) /* what the worker adds has to fit, too */
#define JOB_METADATA_BYTES_MAX   (64 * 1024)
#define JOB_TAGS_MAX             100
#define JOB_PRIORITY_MAX         1000
#define JOB_ERRORS_MAX           10    /* of a job are kept, ... */
#define JOB_ERROR_BYTES_MAX      2000  /* ... each with so much text */
#define JOB_CLAIMS_MAX           1000  /* jobs claimed at once */
#define JOB_BULK_MAX             10000 /* jobs added at once */
#define JOB_KEY_BYTES_MAX        200
#define JOB_LEASE_MS             30000              /* default */
#define JOB_ATTEMPTS             10                 /* default */
#define JOB_KEEP_MS              INT64_C(604800000) /* default */
#define QUEUE_SOURCES_MAX        100                /* queues that are claimed from at once, ... */
#define QUEUE_WEIGHT_MAX         1000               /* ... and the weight of one */
#define JOB_EVENTS_MAX           100  /* that a job is told, each of JOB_METADATA_BYTES_MAX */
#define JOB_AFTER_MAX            500  /* jobs that one is told to wait for, when it is added */
#define JOB_THEN_MAX             1000 /* jobs that wait for one */
#define REVIVED_MAX              400  /* jobs that live again with one that is retried */
#define FLOW_JOBS_MAX            500  /* jobs of a workflow added at once, ... */
#define FLOW_EDGES_MAX           5000 /* ... and how often one of them waits for another */
#define GRAPH_JOBS_MAX           1000 /* of a drawing */
#define QUEUE_NAME_BYTES_MAX     200
#define CRON_MISSED              100  /* default */
#define CRON_MISSED_MAX          500  /* times of a cron line fired at once */
#define LEDGER_ENTRIES_MAX       1000 /* of a transaction of a ledger */
#define LEDGER_SLOTS_ENTRIES_MAX 997 /* the same, where numbers are documents: a commit has 1,000 */
#define LEDGER_BATCH_MAX         10000 /* transactions of one call */
#define LEDGER_BULK              1000  /* of them, those that are imported, or expire, at a time */
#define LEDGER_TRAVEL            10000 /* of all callers, those that are written at a time */
#define LEDGER_KNOWN_MAX         50000 /* accounts that a handle remembers */
#define LEDGER_SEAL_ACCOUNTS     1000  /* of a part of a seal */
#define LEDGER_CSV_RULES_MAX     1000  /* of one import */
#define LEDGER_NAME_MAX          200   /* bytes of an account's name */

#define TRANSFER_ENTRIES_MAX     100
#define TRANSFER_BYTES_MAX       (4 * 1024 * 1024) /* of a transfer's document */
#define TRANSFER_META_BYTES_MAX  (64 * 1024)
#define TRANSFER_NAME_MAX        100                 /* bytes of the name of a field */
#define TRANSFER_RESUME_MS       1800000             /* default */
#define TRANSFER_KEEP_MS         INT64_C(2592000000) /* default */

#define SWEEP_PASSED_BYTES       (4 * 1024 * 1024) /* _ids that one step of a round passes over */

#define SYNC_RULES_MAX           100 /* of a store */
#define SYNC_COPIES_MAX          32  /* fields of a rule */
#define SYNC_NAME_MAX            100 /* bytes of a rule's name */
#define SYNC_PATH_BYTES_MAX      500
#define SYNC_BATCH               1000          /* default */
#define SYNC_BATCH_MAX           10000         /* copies written at once */
#define SYNC_BATCH_BYTES         (1024 * 1024) /* and of their _ids */
#define SYNC_RESUME_MS           60000         /* default */
#define SYNC_FRESH_MS            2000 /* a handle reads the rules again when they are as old */
#define SYNC_SETTLE_MS           5000 /* default: longer than SYNC_FRESH_MS */

#define TREE_NAME_MAX            200               /* bytes of a tree's name, of a tag */
#define TREE_TEXT_MAX            4096              /* bytes of a message, of an author */
#define TREE_BATCH               1000              /* items written, or read, at once */
#define TREE_BATCH_BYTES         (8 * 1024 * 1024) /* and of them */
#define TREE_ITEM_ROOM           1024              /* bytes of an item for truce's own fields */
#define TREE_DEPTH_MAX           10000             /* of a tree whose parents are looked at */
#define TREE_UNSETTLED           64   /* versions; who publishes more than these settles one, too */
#define TREE_SETTLE_ROUND        1000 /* versions settled in a round of the sweep */
#define TREE_COLLECT_ROUND                                                                         \
    100000 /* items removed in a round, and those of the version where it ends */
#define TREE_LEASE_MS 600000
#define TREE_EDIT_MS  86400000 /* an edit that was silent for so long is given up */

#endif

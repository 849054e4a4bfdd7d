#ifndef TRUCE_BASE_LIMITS_H
#define TRUCE_BASE_LIMITS_H

/*
 * All maxima and defaults of truce. Input from a peer, a file, or a user never causes an allocation
 * beyond them. The comment above a number says what it limits. Times are in milliseconds.
 */
#define TRUCE_DOCUMENT_BYTES_MAX (16 * 1024 * 1024)
/* A row of the file. The largest one is an entry of the change feed: the _id, the difference,
 * and the document before and after the change. */
#define TRUCE_ROW_BYTES_MAX (3 * TRUCE_DOCUMENT_BYTES_MAX + 4 * 1024 * 1024)
/* Nested documents and arrays, as in MongoDB. */
#define TRUCE_DOCUMENT_DEPTH_MAX 100
/* The bytes beyond TRUCE_DOCUMENT_BYTES_MAX that MongoDB leaves for internal fields. */
#define TRUCE_INTERNAL_BYTES_EXTRA (16 * 1024)
/* The bytes of "DATABASE.COLLECTION", as in MongoDB. */
#define TRUCE_NAMESPACE_MAX 255
/* The bytes of a name of a collection, if the name of the database has one letter. */
#define TRUCE_COLLECTION_NAME_MAX 253
/* The bytes of a namespace with "@" in front of it. */
#define TRUCE_PLACE_NAME_MAX 256
/* Bytes. */
#define TRUCE_INDEX_NAME_MAX 127
/* The indexes of one collection, including the _id index. */
#define TRUCE_INDEXES_MAX 64
/* The fields of a compound index. */
#define TRUCE_INDEX_FIELDS_MAX 32
/* A zero byte of a string takes two bytes. */
#define TRUCE_INDEX_KEY_BYTES_MAX (16 * 1024 * 1024)
/* The keys of one document in one multikey index. */
#define TRUCE_INDEX_KEYS_MAX 100000
/* As in MongoDB. */
#define TRUCE_REGEX_BYTES_MAX 32764
/* The match limit of PCRE2 at one position. */
#define TRUCE_REGEX_MATCH_MAX 1000000
/* The items that one search tries. Each byte of the text adds 32. */
#define TRUCE_REGEX_STEPS_MAX 10000000
/* The backtracking points of one search, in bytes. */
#define TRUCE_REGEX_MEMORY_MAX (64 * 1024 * 1024)
/* The paths through the arrays of one document. */
#define TRUCE_MATCH_FORKS_MAX 16000000
/* The null elements that $set of `a.N` adds, as in MongoDB. */
#define TRUCE_ARRAY_FILL_MAX 1500000
/* The size to which a log that grew is truncated. */
#define TRUCE_LOG_BYTES_KEPT (64 * 1024 * 1024)
/* The range of the memory for documents and pages of an open file. */
#define TRUCE_CACHE_MB_MIN 16
#define TRUCE_CACHE_MB_MAX (1024 * 1024)
/* The smallest default. */
#define TRUCE_CACHE_MB_LEAST 64
/* The largest default. */
#define TRUCE_CACHE_MB_MOST 256
/* The default is the memory of the machine, divided by this number. */
#define TRUCE_CACHE_PART          64
#define TRUCE_PIPELINE_STAGES_MAX 1000
/* The memory of one $sort or $group. A stage that needs more spills to disk or fails. */
#define TRUCE_STAGE_MEMORY_MAX (100 * 1024 * 1024)
/* The memory of all stages of a pipeline together. */
#define TRUCE_PIPELINE_MEMORY_MAX (256 * 1024 * 1024)
/* The writes of one bulk call. */
#define TRUCE_BULK_MAX 100000
/* The bytes of one bulk call: a transaction (TRUCE_TRANSACTION_BYTES_MAX) and its metadata. */
#define TRUCE_BULK_BYTES_MAX (80 * 1024 * 1024)

/* The bytes of a message of the wire protocol, as in MongoDB. */
#define TRUCE_MESSAGE_BYTES_MAX (48 * 1024 * 1024 + 16 * 1024)
/* The levels of a command around the documents in it. */
#define TRUCE_MESSAGE_DEPTH_EXTRA 10
/* The default maximum of connections to a server. */
#define TRUCE_CONNECTIONS_MAX 1000
/* The open cursors of all clients of a server. */
#define TRUCE_SERVER_CURSORS_MAX 1000
/* A cursor that is idle for longer is closed. */
#define TRUCE_SERVER_CURSOR_IDLE_MS 600000

/* Index entries that checking one read of a transaction may visit. */
#define TRUCE_CHECK_ENTRIES_MAX 10000
/* The bytes of the documents that a transaction writes, before and after. */
#define TRUCE_TRANSACTION_BYTES_MAX (64 * 1024 * 1024)
/* The documents that a transaction writes; each is one or two writes of a bulk. */
#define TRUCE_TRANSACTION_DOCUMENTS_MAX 50000
/* Reads, and documents of a read, that are checked one by one. */
#define TRUCE_TRANSACTION_READS_MAX 1000

/* The sessions with transaction numbers that a server keeps in memory. */
#define TRUCE_SERVER_SESSIONS_MAX 10000
/* A session that is idle for longer ends. */
#define TRUCE_SERVER_SESSION_MS 1800000
/* The bytes of the record of a session in memory. */
#define TRUCE_SERVER_RECORD_BYTES 1024
/* The records that one step reads. */
#define TRUCE_SERVER_SWEEP_BATCH 1000
/* The handles of sets and queues that are cached by name. */
#define TRUCE_SERVER_HANDLES_MAX 256
/* The bytes of the name under which a handle is cached. */
#define TRUCE_SERVER_HANDLE_BYTES 2000
/* The open transactions of a server. */
#define TRUCE_SERVER_TRANSACTIONS_MAX 100
/* The bytes of the documents that all open transactions write together. */
#define TRUCE_SERVER_TRANSACTIONS_BYTES (256 * 1024 * 1024)
/* The default lifetime of a transaction. */
#define TRUCE_SERVER_TRANSACTION_MS 60000

/* The historical snapshots of a server. */
#define TRUCE_SERVER_PASTS_MAX 32
/* The default lifetime of a historical snapshot. */
#define TRUCE_SERVER_PAST_MS 300000

/* The depth of views on views, as in MongoDB. */
#define TRUCE_VIEW_DEPTH_MAX 20
/* The views of one database. */
#define TRUCE_VIEWS_MAX 1000
/* The bytes of the definitions of these views. */
#define TRUCE_VIEWS_BYTES_MAX (4 * 1024 * 1024)
/* The databases whose views a server caches. */
#define TRUCE_SERVER_VIEW_LISTS 64

/* The default time after which a command is logged as slow. */
#define TRUCE_SERVER_SLOW_MS 100
/* The longest time for which a fail point blocks a command. */
#define TRUCE_SERVER_BLOCK_MS_MAX 600000
/* The bytes of the error messages of one command; further errors have only a code. */
#define TRUCE_SERVER_SENTENCES_BYTES (1024 * 1024)
/* The bytes of replies to bulkWrite, and of lists, that clients have not read yet. */
#define TRUCE_SERVER_ANSWERS_BYTES (64 * 1024 * 1024)
/* The findings that one validate command reports. */
#define TRUCE_SERVER_FINDINGS_MAX 1000
/* The default time for a TLS handshake. */
#define TRUCE_HANDSHAKE_MS 10000
/* The default time for each 64 KiB of a message. */
#define TRUCE_MESSAGE_MS 20000
/* By default, a client that reads nothing of a reply for this time is disconnected. */
#define TRUCE_SEND_MS 120000
/* Default idle time of a connection that has not logged in. */
#define TRUCE_STRANGER_MS 300000
/* Connections without a login that are younger are never evicted. */
#define TRUCE_STRANGER_FRESH_MS 2000
/* The bytes of a message that a client sends before it logs in. */
#define TRUCE_LOGIN_MESSAGE_BYTES_MAX (64 * 1024)
/* The default delay of a failed login. */
#define TRUCE_LOGIN_DELAY_MS 500
/* The logins that are delayed at the same time. */
#define TRUCE_LOGIN_DELAYED_MAX 100
/* If the roles of a user were read longer ago, they are read again. */
#define TRUCE_LOGIN_FRESH_MS 1000
/* Bytes. */
#define TRUCE_PASSWORD_MAX 65536
/* The roles and the tokens of one user. */
#define TRUCE_USER_ROLES_MAX  100
#define TRUCE_USER_TOKENS_MAX 100
/* The users that one usersInfo command returns. */
#define TRUCE_USERS_LISTED_MAX 10000

/* The cursors and snapshots of a store that can pin the log. */
#define TRUCE_SNAPSHOTS_MAX 128
/* The default maximum of their age. */
#define TRUCE_SNAPSHOT_AGE_MS 600000
/* The default maximum of the log since they began. */
#define TRUCE_SNAPSHOT_LOG_BYTES (UINT64_C(1) << 30)

#define TRUCE_CSV_COLUMNS_MAX    1000

/* The documents that a copy has in memory at the same time. */
#define TRUCE_COPY_BATCH_MAX 10000
/* The differences that a comparison reports, with up to 1,000 bytes each. */
#define TRUCE_COPY_DIFFERENCES_MAX 10000

/* The pages of a damaged file: 4 TiB. */
#define TRUCE_SALVAGE_PAGES_MAX (1 << 30)
/* The unreachable ranges that a salvage lists. */
#define TRUCE_SALVAGE_GAPS_MAX 10000
/* The collections of a damaged file. */
#define TRUCE_SALVAGE_TABLES_MAX 10000

/* The documents of one commit. */
#define TRUCE_COMMIT_DOCUMENTS_MAX 1000
/* The bytes of the result that a commit stores under its key. */
#define COMMIT_RESULT_BYTES_MAX 65536
/* The default lease of a journal commit. */
#define COMMIT_LEASE_MS 10000
/* The minimum of a lease, with any deadline. */
#define COMMIT_LEASE_MS_LEAST 1000
/* The lease of the locks of truce_read_many. */
#define COMMIT_LOOK_LEASE_MS 1000
/* The longest time for which one commit can block others. */
#define COMMIT_LEASE_MS_MAX 600000
/* The default deadline of a commit. */
#define COMMIT_DEADLINE_MS 30000
/* By default, truce_transact runs its function at most this many times. */
#define COMMIT_TRIES 100
/* The optimistic runs before a commit locks its documents first. */
#define COMMIT_TRIES_FREE 3
/* The time for which the optimistic runs continue at least. */
#define COMMIT_TAKE_MS 100
/* The wait for the per-key lock of a contended document. */
#define COMMIT_TURN_MS 100
/* A list of indexes that is older is read again. */
#define COMMIT_INDEXES_FRESH_MS 5000

/* The numbers in a document that is saved by one write. */
#define REVISION_NUMBERS_MAX 256

/* 9999-12-31. Clients in some languages cannot read later dates. */
#define DATE_LAST_MS INT64_C(253402300799999)

/* The bytes of one line of a program of `truce work --keep-open`. */
#define WORK_LINE_BYTES_MAX (16 * 1024 * 1024)
#define WORK_PROGRAMS_MAX   64
/* The jobs that one program has at the same time. */
#define WORK_AT_ONCE_MAX 1000
#define POOL_THREADS_MAX 256
/* The fields of the worker need space in the same document. */
#define JOB_PAYLOAD_BYTES_MAX  (8 * 1024 * 1024)
#define JOB_METADATA_BYTES_MAX (64 * 1024)
#define JOB_TAGS_MAX           100
#define JOB_PRIORITY_MAX       1000
/* The errors that a job stores. */
#define JOB_ERRORS_MAX 10
/* The bytes of each of these messages. */
#define JOB_ERROR_BYTES_MAX 2000
/* The jobs of one claim. */
#define JOB_CLAIMS_MAX 1000
/* The jobs that one call adds. */
#define JOB_BULK_MAX      10000
#define JOB_KEY_BYTES_MAX 200
/* The defaults of a job: its lease, its attempts, and the time for which it is stored after its
 * end. */
#define JOB_LEASE_MS 30000
#define JOB_ATTEMPTS 10
#define JOB_KEEP_MS  INT64_C(604800000)
/* The sources of one claim, and the weight of one source. */
#define QUEUE_SOURCES_MAX 100
#define QUEUE_WEIGHT_MAX  1000
/* The events sent to one job, each of up to JOB_METADATA_BYTES_MAX. */
#define JOB_EVENTS_MAX 100
/* The jobs that a new job waits for. */
#define JOB_AFTER_MAX 500
/* The jobs that wait for one job. */
#define JOB_THEN_MAX 1000
/* The jobs that one retry revives. */
#define REVIVED_MAX 400
/* The jobs of a workflow that one call adds. */
#define FLOW_JOBS_MAX 500
/* The dependencies between these jobs. */
#define FLOW_EDGES_MAX 5000
/* The jobs in one drawing. */
#define GRAPH_JOBS_MAX       1000
#define QUEUE_NAME_BYTES_MAX 200
/* The default and the maximum of the missed times for which a cron line adds jobs at once. */
#define CRON_MISSED     100
#define CRON_MISSED_MAX 500
/* The entries of a ledger transaction. */
#define LEDGER_ENTRIES_MAX 1000
/* The entries of a ledger transaction whose numbers are documents, which are part of its commit. */
#define LEDGER_SLOTS_ENTRIES_MAX 997
/* The transactions of one call. */
#define LEDGER_BATCH_MAX 10000
/* The transactions that are imported or expired at the same time. */
#define LEDGER_BULK 1000
/* The entries of all callers in one batch. */
#define LEDGER_BATCH_ENTRIES_MAX 10000
/* The accounts that a handle caches. */
#define LEDGER_KNOWN_MAX 50000
/* The accounts of one part of a seal. */
#define LEDGER_SEAL_ACCOUNTS 1000
/* The rules of one import. */
#define LEDGER_CSV_RULES_MAX 1000
/* The bytes of the name of an account. */
#define LEDGER_NAME_MAX      200

#define TRANSFER_ENTRIES_MAX 100
/* The bytes of the document of a transfer. */
#define TRANSFER_BYTES_MAX      (4 * 1024 * 1024)
#define TRANSFER_META_BYTES_MAX (64 * 1024)
/* The bytes of the name of a field. */
#define TRANSFER_NAME_MAX 100
/* The default times after which a sweep resumes a transfer, and removes a finished one. */
#define TRANSFER_RESUME_MS 1800000
#define TRANSFER_KEEP_MS   INT64_C(2592000000)

/* The bytes of the _ids that one step of a sweep skips. */
#define SWEEP_PASSED_BYTES (4 * 1024 * 1024)

/* The rules of a store. */
#define SYNC_RULES_MAX 100
/* The fields of a rule. */
#define SYNC_COPIES_MAX 32
/* The bytes of the name of a rule. */
#define SYNC_NAME_MAX       100
#define SYNC_PATH_BYTES_MAX 500
/* The default and the maximum of the copies that are written at the same time. */
#define SYNC_BATCH     1000
#define SYNC_BATCH_MAX 10000
/* The bytes of their _ids. */
#define SYNC_BATCH_BYTES (1024 * 1024)
/* The default of the resume time of a rule. */
#define SYNC_RESUME_MS 60000
/* If a handle read the rules longer ago, it reads them again. */
#define SYNC_FRESH_MS 2000
/* The default, which is longer than SYNC_FRESH_MS. */
#define SYNC_SETTLE_MS 5000

/* The bytes of the name of a tree, and of a tag. */
#define TREE_NAME_MAX 200
/* The bytes of a message, and of an author. */
#define TREE_TEXT_MAX 4096
/* The items that are written or read at the same time. */
#define TREE_BATCH 1000
/* The bytes of these items. */
#define TREE_BATCH_BYTES (8 * 1024 * 1024)
/* The bytes of an item that truce reserves for its own fields. */
#define TREE_ITEM_ROOM 1024
/* The depth of a tree whose parents are checked. */
#define TREE_DEPTH_MAX 10000
/* If there are more unsettled versions, publishing settles one. */
#define TREE_UNSETTLED 64
/* The versions that one pass of the sweep settles. */
#define TREE_SETTLE_ROUND 1000
/* Items removed in one pass, which ends with the version that exceeds it. */
#define TREE_COLLECT_ROUND 100000
#define TREE_LEASE_MS      600000
/* An edit that is idle for longer is abandoned. */
#define TREE_EDIT_MS 86400000

#endif

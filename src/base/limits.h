#ifndef TRUCE_BASE_LIMITS_H
#define TRUCE_BASE_LIMITS_H

/*
 * Maxima and defaults that several files use, or that users see. Files define others next to their
 * use. The comment above a number says what it limits. Times are in milliseconds.
 */

/* The bytes of one document, as in MongoDB. */
#define TRUCE_DOCUMENT_BYTES_MAX (16 * 1024 * 1024)
/* The bytes of a row of the file. The largest row is an entry of the change feed: the _id, the
 * difference, and the document before and after the change. */
#define TRUCE_ROW_BYTES_MAX (3 * TRUCE_DOCUMENT_BYTES_MAX + 4 * 1024 * 1024)
/* The levels of nested documents and arrays, as in MongoDB. */
#define TRUCE_DOCUMENT_DEPTH_MAX 100
/* The bytes beyond TRUCE_DOCUMENT_BYTES_MAX that MongoDB leaves for internal fields. */
#define TRUCE_INTERNAL_BYTES_EXTRA (16 * 1024)
/* The bytes of "DATABASE.COLLECTION", as in MongoDB. */
#define TRUCE_NAMESPACE_MAX 255
/* The bytes of the name of a collection, if the name of the database has one letter. */
#define TRUCE_COLLECTION_NAME_MAX 253
/* The bytes of a stored name (store/namespace_map.h): a namespace with "@" in front of it. */
#define TRUCE_STORED_NAME_MAX 256
/* The bytes of the name of an index. */
#define TRUCE_INDEX_NAME_MAX 127
/* The indexes of one collection, including the _id index. */
#define TRUCE_INDEXES_MAX 64
/* The fields of a compound index. */
#define TRUCE_INDEX_FIELDS_MAX 32
/* The bytes of one key of an index. A zero byte of a string takes two bytes. */
#define TRUCE_INDEX_KEY_BYTES_MAX (16 * 1024 * 1024)
/* The keys of one document in one multikey index. */
#define TRUCE_INDEX_KEYS_MAX 100000
/* The bytes of a regular expression, as in MongoDB. */
#define TRUCE_REGEX_BYTES_MAX 32764
/* The match limit of PCRE2 at one position of a text. */
#define TRUCE_REGEX_MATCH_MAX 1000000
/* The items that one search of a regular expression tries. Each byte of the text adds 32. */
#define TRUCE_REGEX_STEPS_MAX 10000000
/* The backtracking points of one search, in bytes. */
#define TRUCE_REGEX_MEMORY_MAX (64 * 1024 * 1024)
/* The paths through the arrays of one document that a condition may follow. */
#define TRUCE_MATCH_FORKS_MAX 16000000
/* The null elements that a $set of `a.N` may add, as in MongoDB. */
#define TRUCE_ARRAY_FILL_MAX 1500000
/* A log that is longer than this number of bytes is truncated to it when it restarts. */
#define TRUCE_LOG_BYTES_KEPT (64 * 1024 * 1024)
/* The range of the memory for documents and pages of an open file, in MiB. */
#define TRUCE_CACHE_MB_MIN 16
#define TRUCE_CACHE_MB_MAX (1024 * 1024)
/* The smallest default of this memory. */
#define TRUCE_CACHE_MB_LEAST 64
/* The largest default of this memory. */
#define TRUCE_CACHE_MB_MOST 256
/* The default is the memory of the machine divided by this number, within these two bounds. */
#define TRUCE_CACHE_PART 64
/* The stages of a pipeline. */
#define TRUCE_PIPELINE_STAGES_MAX 1000
/* The bytes of memory of one $sort or $group. A stage that needs more spills to disk or fails. */
#define TRUCE_STAGE_MEMORY_MAX (100 * 1024 * 1024)
/* The bytes of memory of all stages of a pipeline together. */
#define TRUCE_PIPELINE_MEMORY_MAX (256 * 1024 * 1024)
/* The writes of one bulk call. */
#define TRUCE_BULK_MAX 100000
/* The bytes of one bulk call: a transaction (TRUCE_TRANSACTION_BYTES_MAX) and its metadata. */
#define TRUCE_BULK_BYTES_MAX (80 * 1024 * 1024)

/* The bytes of a message of the wire protocol, as in MongoDB. */
#define TRUCE_MESSAGE_BYTES_MAX (48 * 1024 * 1024 + 16 * 1024)
/* The levels of nesting that a command may have around the documents in it. */
#define TRUCE_MESSAGE_DEPTH_EXTRA 10
/* The default maximum of the connections to a server. */
#define TRUCE_CONNECTIONS_MAX 1000
/* The open cursors of all clients of a server. */
#define TRUCE_SERVER_CURSORS_MAX 1000
/* A cursor that is idle for longer is closed. */
#define TRUCE_SERVER_CURSOR_IDLE_MS 600000

/* The index entries that the check of one read of a transaction may visit. */
#define TRUCE_CHECK_ENTRIES_MAX 10000
/* The bytes of the documents that a transaction writes, before and after their changes. */
#define TRUCE_TRANSACTION_BYTES_MAX (64 * 1024 * 1024)
/* The documents that a transaction writes; each is one or two writes of a bulk. */
#define TRUCE_TRANSACTION_DOCUMENTS_MAX 50000
/* The reads of a transaction that are checked one by one, and the documents of one read. */
#define TRUCE_TRANSACTION_READS_MAX 1000

/* The sessions with transaction numbers that a server has in memory. */
#define TRUCE_SERVER_SESSIONS_MAX 10000
/* A session that is idle for longer ends. */
#define TRUCE_SERVER_SESSION_MS 1800000
/* The bytes of the record of a session in memory. */
#define TRUCE_SERVER_RECORD_BYTES 1024
/* The session records that one step of a sweep reads. */
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

/* The historical snapshots that a server stores. It evicts the least recently used one. */
#define TRUCE_SERVER_SNAPSHOTS_MAX 32
/* The default lifetime of a historical snapshot. */
#define TRUCE_SERVER_SNAPSHOT_MS 300000

/* The depth of views that are defined on other views, as in MongoDB. */
#define TRUCE_VIEW_DEPTH_MAX 20
/* The views of one database. */
#define TRUCE_VIEWS_MAX 1000
/* The bytes of the definitions of these views. */
#define TRUCE_VIEWS_BYTES_MAX (4 * 1024 * 1024)
/* The databases whose views a server caches. */
#define TRUCE_SERVER_VIEW_LISTS 64

/* The default of the time after which a command is logged as slow. */
#define TRUCE_SERVER_SLOW_MS 100
/* The longest time for which a fail point can block a command. */
#define TRUCE_SERVER_BLOCK_MS_MAX 600000
/* The bytes of the error messages of one command. Further errors have only a code. */
#define TRUCE_SERVER_ERRORS_BYTES (1024 * 1024)
/* The bytes of replies to bulkWrite, and of lists, that clients have not read yet. */
#define TRUCE_SERVER_REPLIES_BYTES (64 * 1024 * 1024)
/* The findings that one validate command reports. */
#define TRUCE_SERVER_FINDINGS_MAX 1000
/* The default of the time for a TLS handshake. */
#define TRUCE_HANDSHAKE_MS 10000
/* The default of the time for each 64 KiB of a message. */
#define TRUCE_MESSAGE_MS 20000
/* The default of the time after which a client that reads nothing of a reply is disconnected. */
#define TRUCE_SEND_MS 120000
/* The default of the time after which an idle connection that has not logged in is closed. */
#define TRUCE_UNAUTHENTICATED_MS 300000
/* A connection that has not logged in is not evicted before this time. */
#define TRUCE_UNAUTHENTICATED_FRESH_MS 2000
/* The bytes of a message that a client sends before it logs in. */
#define TRUCE_LOGIN_MESSAGE_BYTES_MAX (64 * 1024)
/* The default of the delay after a failed login. */
#define TRUCE_LOGIN_DELAY_MS 500
/* The logins that are delayed at the same time. */
#define TRUCE_LOGIN_DELAYED_MAX 100
/* The roles of a user are read again after this time. */
#define TRUCE_LOGIN_FRESH_MS 1000
/* The bytes of a password. */
#define TRUCE_PASSWORD_MAX 65536
/* The roles and the tokens of one user. */
#define TRUCE_USER_ROLES_MAX  100
#define TRUCE_USER_TOKENS_MAX 100
/* The users that one usersInfo command returns. */
#define TRUCE_USERS_LISTED_MAX 10000

/* The cursors of one store that can pin the log: an eighth of the files that the process may open,
 * within these two bounds. A cursor uses two files. */
#define TRUCE_CURSORS_LEAST 128
#define TRUCE_CURSORS_MOST  1200
/* A cursor that was used within this time is not ended for another one. */
#define TRUCE_CURSOR_USED_MS 10000
/* The snapshots of one store, including those of the server's transactions and snapshot sessions. */
#define TRUCE_SNAPSHOTS_MAX 160
/* The default of their maximum age. */
#define TRUCE_SNAPSHOT_AGE_MS 600000
/* The default of the maximum bytes that are written to the log since they began. */
#define TRUCE_SNAPSHOT_LOG_BYTES (UINT64_C(1) << 30)

/* The columns of a CSV file. */
#define TRUCE_CSV_COLUMNS_MAX 1000

/* The documents that a copy has in memory at the same time. */
#define TRUCE_COPY_BATCH_MAX 10000
/* The differences that a comparison reports, with up to 1,000 bytes each. */
#define TRUCE_COPY_DIFFERENCES_MAX 10000

/* The pages of a damaged file, 4 TiB in all. */
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
/* The minimum of the lease of a commit, whatever its deadline is. */
#define COMMIT_LEASE_MS_LEAST 1000
/* The default of the lease of the locks of truce_read_many. */
#define COMMIT_READ_LEASE_MS 1000
/* The longest time for which one commit can block others. */
#define COMMIT_LEASE_MS_MAX 600000
/* The default deadline of a commit. */
#define COMMIT_DEADLINE_MS 30000
/* The default of the maximum number of runs of the function of truce_transact. */
#define COMMIT_TRIES 100
/* After this number of optimistic runs, and after COMMIT_OPTIMISTIC_MS, a commit locks its
 * documents before it runs again. */
#define COMMIT_TRIES_FREE    3
#define COMMIT_OPTIMISTIC_MS 100
/* The time for which a commit waits for the per-key lock of a contended document. */
#define COMMIT_LOCK_WAIT_MS 100
/* A list of indexes is read again after this time. */
#define COMMIT_INDEXES_FRESH_MS 5000

/* The numbers in a document that one write saves (patterns/revision/revision.c). */
#define REVISION_NUMBERS_MAX 256

/* The last millisecond of the year 9999. Clients in some languages cannot read later dates. */
#define DATE_LAST_MS INT64_C(253402300799999)

/* The bytes of one line of a program of `truce work --keep-open`. */
#define WORK_LINE_BYTES_MAX (16 * 1024 * 1024)
/* The programs of one `truce work`. */
#define WORK_PROGRAMS_MAX 64
/* The jobs that one program has at the same time. */
#define WORK_AT_ONCE_MAX 1000
/* The threads of a pool of workers. */
#define POOL_THREADS_MAX 256
/* The bytes of the payload of a job. The fields of the worker need space in the same document. */
#define JOB_PAYLOAD_BYTES_MAX (8 * 1024 * 1024)
/* The bytes of the metadata of a job, and the number of its tags. */
#define JOB_METADATA_BYTES_MAX (64 * 1024)
#define JOB_TAGS_MAX           100
/* The highest priority of a job. The lowest one is -JOB_PRIORITY_MAX. */
#define JOB_PRIORITY_MAX 1000
/* The errors that a job stores. */
#define JOB_ERRORS_MAX 10
/* The bytes of each of these error messages. */
#define JOB_ERROR_BYTES_MAX 2000
/* The jobs of one claim. */
#define JOB_CLAIMS_MAX 1000
/* The jobs that one call adds. */
#define JOB_BULK_MAX 10000
/* The bytes of the key and of the name of a job, and of the name of a step. */
#define JOB_KEY_BYTES_MAX 200
/* The defaults of a job: its lease, its attempts, and the time for which it is stored after it has
 * ended. */
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
/* The jobs in one graph of `truce queue`. */
#define GRAPH_JOBS_MAX 1000
/* The bytes of the name of a queue. */
#define QUEUE_NAME_BYTES_MAX 200
/* The default and the maximum of the missed times for which a cron entry adds jobs at once. */
#define CRON_MISSED     100
#define CRON_MISSED_MAX 500
/* The entries of a ledger transaction. */
#define LEDGER_ENTRIES_MAX 1000
/* The entries of a ledger transaction whose numbers are documents. The commit has one document for
 * each of these numbers, and must not exceed TRUCE_COMMIT_DOCUMENTS_MAX. */
#define LEDGER_SLOTS_ENTRIES_MAX 997
/* The transactions of one call. */
#define LEDGER_BATCH_MAX 10000
/* The transactions that are imported or expired in one call. */
#define LEDGER_BULK 1000
/* The transactions of all callers in one batch. */
#define LEDGER_BATCH_TRANSACTIONS_MAX 10000
/* The accounts that a handle caches. */
#define LEDGER_KNOWN_MAX 50000
/* The accounts of one part of a seal. */
#define LEDGER_SEAL_ACCOUNTS 1000
/* The rules of one CSV import. */
#define LEDGER_CSV_RULES_MAX 1000
/* The bytes of the name of an account. */
#define LEDGER_NAME_MAX 200

/* The entries of a transfer. */
#define TRANSFER_ENTRIES_MAX 100
/* The bytes of the document of a transfer. */
#define TRANSFER_BYTES_MAX (4 * 1024 * 1024)
/* The bytes of the metadata of a transfer. */
#define TRANSFER_META_BYTES_MAX (64 * 1024)
/* The bytes of the name of a field. */
#define TRANSFER_NAME_MAX 100
/* The default of the time after which a sweep resumes a transfer, and of the time after which it
 * removes a finished one. */
#define TRANSFER_RESUME_MS 1800000
#define TRANSFER_KEEP_MS   INT64_C(2592000000)

/* The bytes of the _ids of documents that one step of a sweep skips. */
#define SWEEP_PASSED_BYTES (4 * 1024 * 1024)

/* The rules of denormalized copies in one store. */
#define SYNC_RULES_MAX 100
/* The fields that one rule copies. */
#define SYNC_COPIES_MAX 32
/* The bytes of the name of a rule. */
#define SYNC_NAME_MAX 100
/* The bytes of a path in a rule. */
#define SYNC_PATH_BYTES_MAX 500
/* The default and the maximum of the copies that are written at the same time. */
#define SYNC_BATCH     1000
#define SYNC_BATCH_MAX 10000
/* The bytes of the _ids of these copies. */
#define SYNC_BATCH_BYTES (1024 * 1024)
/* The default of the time after which a sweep resumes the work of a rule. */
#define SYNC_RESUME_MS 60000
/* A handle reads the rules again after this time. */
#define SYNC_FRESH_MS 2000
/* The default of the wait after a rule is declared. It is longer than SYNC_FRESH_MS, so that every
 * handle has read the rule. */
#define SYNC_SETTLE_MS 5000

/* The bytes of the name of a tree or of a tag. */
#define TREE_NAME_MAX 200
/* The bytes of a message or of the name of an author. */
#define TREE_TEXT_MAX 4096
/* The items that are written or read at the same time. */
#define TREE_BATCH 1000
/* The bytes of these items. */
#define TREE_BATCH_BYTES (8 * 1024 * 1024)
/* The bytes of an item that truce reserves for its own fields. */
#define TREE_ITEM_ROOM 1024
/* The levels of a tree up to which the parents of an item are checked. */
#define TREE_DEPTH_MAX 10000
/* If a tree has more than this number of versions that are not settled (patterns/tree/README.md),
 * publishing settles one. */
#define TREE_UNSETTLED 64
/* The versions that one pass of the sweep settles. */
#define TREE_SETTLE_BATCH 1000
/* The items that one pass of the sweep removes. The pass ends with the version that reaches this
 * number. */
#define TREE_COLLECT_BATCH 100000
/* The lease of a hold on a tree. */
#define TREE_LEASE_MS 600000
/* An edit that is idle for longer is abandoned. */
#define TREE_EDIT_MS 86400000

#endif

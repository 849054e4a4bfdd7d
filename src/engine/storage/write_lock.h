#ifndef TRUCE_ENGINE_STORAGE_WRITE_LOCK_H
#define TRUCE_ENGINE_STORAGE_WRITE_LOCK_H

/*
 * The lock file next to the database: the processes that have the store open, the process that may
 * write, and a page of memory that all processes share.
 *
 * Only the kernel knows which processes are there and which one holds the lock (open file
 * description locks). It releases the locks of a process that dies. The shared page says which
 * process to wake, which process an error names, and which commits are not on disk yet. Whatever
 * the page contains, no process writes without the kernel's lock.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/storage/file_id.h"
#include "engine/storage/file_identity.h"

#define NOTIFY_SLOTS 512

/* The claim of the process that makes a checkpoint. Smaller numbers are indexes that are being
 * built (catalog.c). */
#define LOCK_CHECKPOINT (INT64_C(1) << 48)
/* The first of PIN_HOMES numbers (snapshot_pins.c). */
#define LOCK_PINS (LOCK_CHECKPOINT + 1)

#define PIN_HOMES 64

/* The first of RECORDS numbers (published_records.c). */
#define LOCK_RECORDS (LOCK_PINS + PIN_HOMES)
/* The claim of the process that archives the store (log_archive.c). */
#define LOCK_ARCHIVE (LOCK_RECORDS + 64)

/* The facts that one open store publishes about its long reads. */
struct lock_pin {
    atomic_int process;
    atomic_uint count, unlimited;
    atomic_llong since_ms;
    atomic_ullong log_at;
};

/* For each hash of a document, the last commit that changed such a document, so that a reader knows
 * which commit must be on disk (document_cache.c). */
#define PROMISES 4096
struct lock_promises {
    /* The seed of the hashes. */
    uint64_t seed;
    /* The last commit that changed an unknown number of documents. */
    atomic_ullong all;
    atomic_ullong of[PROMISES];
};

/* The facts that archiver, writers, and checkpoints share (log_archive.c). */
#define COMMIT_TIMES 1024
struct lock_archive {
    atomic_int process;
    /* The archiver pins the log after the place in the next two fields. */
    atomic_bool pins;
    /* The log is archived up to this place: the generation, and its number of frames. */
    atomic_ullong salts;
    atomic_uint frames;
    /* Futex: changes when a checkpoint waits for the archiver. */
    atomic_uint calls;
    /* A checkpoint waits until this time (monotonic nanoseconds). */
    atomic_llong wanted_until_ns;
    /* Futex: changes when the place has changed. */
    atomic_uint places;
    /* All commits up to this number are archived (durable.c). */
    atomic_ullong durable;
    /* The duration of a call to the target, milliseconds. */
    atomic_uint call_ms;
    /* The time at which everything was archived last, monotonic nanoseconds. */
    atomic_llong whole_ns;
    /* Since when calls to the target fail, monotonic nanoseconds; 0 if the last one
     * succeeded. */
    atomic_llong failing_since_ns;
    /* The last archived commit, the generation, and bytes of the log that are not archived. */
    atomic_ullong commit, generation, behind;
    /* The wall clock times of the last commits: salts and frame, and time. */
    atomic_uint times_next;
    struct {
        atomic_ullong salts;
        atomic_uint frame;
        atomic_llong time_ms;
    } times[COMMIT_TIMES];
};

/* The bytes "truclock". */
#define LOCK_MAGIC UINT64_C(0x6b636f6c63757274)
/* The version of the layout of the page. */
#define LOCK_VERSION 9

/* The files that another program has changed while the store was open. */
enum { LOCK_FOREIGN_NONE, LOCK_FOREIGN_FILE, LOCK_FOREIGN_LOG };

/* The shared page, at the start of the lock file. */
struct lock_page {
    /* LOCK_MAGIC. */
    atomic_ullong magic;
    uint32_t version, size;
    /* The identity of the lock file itself. In a copied file it does not match. */
    struct file_id self;
    /* The identities of these files when they were last opened. */
    struct file_id database, log, index;
    /* The identities of log and index are known (file_identity.c). */
    atomic_bool log_known;
    /* The generation of the log. */
    atomic_ullong log_salts;
    /* The log has at least this many frames of its generation. */
    atomic_uint log_least;
    /* A process is in its turn, or died in it. If false, the next field is valid. */
    atomic_bool log_writing;
    /* When the last turn ended (wall clock): the log was not modified later. */
    atomic_llong log_turn_end_ns;
    /* How often the time of the log differed while its content was the same. */
    atomic_uint log_times_wrong;
    /* Counts every release of the lock. Waiters sleep on it. */
    atomic_uint turn;
    /* A thread may sleep on one of `changes` until this time (change_notify.c). */
    atomic_uint watched_until;
    /* A thread may sleep on `turn` until this time (monotonic nanoseconds). */
    atomic_llong waited_until;
    /* The process that holds the lock, or 0 if none exists. */
    atomic_int holder;
    /* Wall clock, milliseconds. */
    atomic_llong held_since;
    /* Counts the commits that may have changed something. */
    atomic_uint begun;
    /* Counts the commits whose collections were announced (change_notify.c). */
    atomic_uint announced;
    /* Commits that wait for the disk have numbers (durable.c). The last one that began. */
    atomic_ullong promised;
    /* The last one that is in the log. */
    atomic_ullong written;
    /* The last one that is on disk. */
    atomic_ullong durable;
    /* The disk refused a write. */
    atomic_bool broken;
    /* One of LOCK_FOREIGN_... */
    atomic_uint foreign;
    /* A frame of the log differs from what was written. */
    atomic_bool log_damaged;
    /* Odd while truce writes into the database (file_identity.c). Size, time, and boot are from
     * after the last such write. */
    atomic_uint moving;
    atomic_llong file_size;
    atomic_llong file_ns;
    atomic_ullong file_boot;
    /* Counts the commits that changed a collection of the slot. */
    atomic_uint changes[NOTIFY_SLOTS];
    /* The number of pages in the WAL after the last commit. */
    atomic_uint log_pages;
    /* The number of pages that were ever written to the WAL. */
    atomic_ullong log_written;
    struct lock_pin pins[PIN_HOMES];
    /* A bit for each record in which a write waits for the holder of the lock. */
    atomic_ullong published;
    /* A bit for each record that the holder has taken (published_records.c). */
    atomic_ullong taken;
    struct lock_promises promises;
    struct lock_archive archive;
    /* The last field: LOCK_MAGIC. Differs once the file was cut. */
    atomic_ullong whole;
};

/* The records are after the page, from the first write on that waits for another process
 * (published_records.c). The offset suits the page size of any machine. */
#define LOCK_RECORDS_AT    65536
#define LOCK_RECORDS_BYTES (64 * 16384)
#define LOCK_FILE_BYTES    (LOCK_RECORDS_AT + LOCK_RECORDS_BYTES)

struct lock {
    /* Paths. */
    char *path, *database, *log, *index;
    int file;
    /* A descriptor of the path alone (O_PATH); -1 if it could not be opened. */
    int database_file;
    /* The process that opened the lock. A forked child does not use it. */
    int process;
    struct file_id id;
    /* The lookups of the lock file and of the database. Used by the thread that holds the lock or
     * acquires it. */
    struct path_identity path_identity, database_identity;
    struct lock_page *page;
    atomic_bool held;
    /* Set to 1 to interrupt all waiting threads; may be NULL. */
    const int *interrupted;
    atomic_bool no_read_only;
    /* No other process has the store open. Valid while this process holds the entry lock. */
    bool alone;
    /* The page belongs to this file. Otherwise it must be adopted before it is used. */
    bool known;
};

/* ---- entering and leaving (lock_file.c) ----------------------------------------------------- */

/* Opens the file, creates it if it is missing, and registers this process as present. `path` is the
 * path of the database. On success the process holds the entry lock until truce__lock_admit: no
 * other process enters or leaves. Fails with LOCKED after the deadline (monotonic nanoseconds).
 * Fails with CORRUPT if the file is not the lock file of this store, or if other processes use
 * another lock file for it. Sets `*denied` if the file may not be written or created. */
truce_status truce__lock_enter(const char *path, int64_t deadline_ns, struct lock *lock,
                               bool *denied, bson_error_t *error);

/* Makes the page that of this file, if it was not. The caller is alone, and SQLite has confirmed
 * it. */
void truce__lock_adopt(struct lock *lock);

/* Records the identity of the database and of the log, and releases the entry lock. Fails with IO
 * if the files cannot be read; the entry lock is then kept. */
truce_status truce__lock_admit(struct lock *lock, const char *path, bson_error_t *error);

/* Fails with CORRUPT if the log next to the database belongs to another file or to other content,
 * or if other processes have another database open under this path. The caller holds the entry
 * lock, and the page is adopted. */
truce_status truce__lock_match(struct lock *lock, const char *path, bson_error_t *error);

/* Extends the file and maps the records. Returns NULL if there is no space. */
void *truce__lock_map_records(const struct lock *lock);
void truce__lock_unmap_records(void *records);

/* Returns whether no process reads the file without its log. Called before pages of the file itself
 * change. Returns false while a process reads the file without its log. Once true, it stays true
 * while this process has the store open. */
bool truce__lock_no_read_only(struct lock *lock);

/* Acquires the entry lock to leave. Returns true if no other process is present; then none enters
 * before the lock is closed. Returns false if others are present, or if this is unknown at the
 * deadline. */
bool truce__lock_leave(struct lock *lock, int64_t deadline_ns);

/* Returns whether another process has the store open now. */
bool truce__lock_is_shared(const struct lock *lock);

void truce__lock_close(struct lock *lock);

/* Fails with CORRUPT if another program has cut the file or written into the database
 * (file_identity.h). */
truce_status truce__lock_usable(const struct lock *lock, bson_error_t *error);
/* Fails with CORRUPT if the log is damaged: nothing may be written any more. */
truce_status truce__lock_log_usable(const struct lock *lock, bson_error_t *error);
/* Does the same as truce__lock_usable, and checks that the file is the one that other processes
 * find under its name. The caller acquires the lock or holds the entry lock. */
truce_status truce__lock_check(struct lock *lock, bson_error_t *error);

/* ---- the lock (write_lock.c) ----------------------------------------------------------------- */

bool truce__lock_interrupted(const struct lock *lock);

/* Acquires the lock in turn with other processes. One thread at a time. Fails with LOCKED at the
 * deadline (the error names the holder), with TIMEOUT if interrupted, and with CORRUPT as
 * truce__lock_check does. */
truce_status truce__lock_acquire(struct lock *lock, int64_t deadline_ns, bson_error_t *error);
/* Acquires the lock if it is free and no process is in the turnstile. Fails with LOCKED otherwise,
 * and with CORRUPT as truce__lock_check does. */
truce_status truce__lock_try(struct lock *lock);
void truce__lock_release(struct lock *lock);

/* Returns whether any process holds the lock, this one included. */
bool truce__lock_is_held(const struct lock *lock);

/* Returns the process that holds the lock, and for how long it has held it, or 0 if none exists. */
int truce__lock_holder(const struct lock *lock, int64_t *held_ms);

/* Fails with LOCKED, naming the holder, if another process holds the lock now. */
truce_status truce__lock_blame(const struct lock *lock, bson_error_t *error);

/* Claims a number > 0 until truce__lock_disclaim or until the process dies. Each claim opens the
 * file again, so claims of one process also exclude each other. Returns a descriptor, or -1 if the
 * number is claimed or the file cannot be opened. */
int truce__lock_claim(const struct lock *lock, int64_t number);
/* -1 is allowed. */
void truce__lock_disclaim(int claim);
bool truce__lock_is_claimed(const struct lock *lock, int64_t number);

#endif

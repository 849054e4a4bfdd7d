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

/* The number of counters of changes. A collection uses the counter of its hash
 * (change_notify.h). */
#define NOTIFY_SLOTS 512

/* The claim of the process that makes a checkpoint. Smaller numbers belong to indexes that are
 * being built (catalog.c). */
#define LOCK_CHECKPOINT (INT64_C(1) << 48)
/* The first of the PIN_SLOTS claims of stores with long reads (snapshot_pins.c). */
#define LOCK_PINS (LOCK_CHECKPOINT + 1)

#define PIN_SLOTS 64

/* The first of the RECORDS claims of records (published_records.c). */
#define LOCK_RECORDS (LOCK_PINS + PIN_SLOTS)
/* The claim of the process that archives the store (log_archive.c). */
#define LOCK_ARCHIVE (LOCK_RECORDS + 64)

/* The facts that one open store publishes about its long reads. */
struct lock_pin {
    /* The fields of struct pin_facts (snapshot_pins.h). */
    atomic_int process;
    atomic_uint count, unlimited;
    atomic_llong since_ms;
    atomic_ullong log_at;
};

/* For each hash of a document, the number of the last promised commit that changed such a document.
 * A reader learns from it which commit must be on disk (document_cache.c). */
#define PROMISES 4096
struct lock_promises {
    /* The seed of the hashes, which all processes share. */
    uint64_t seed;
    /* The number of the last commit that changed more documents than the cache records. */
    atomic_ullong all;
    atomic_ullong of[PROMISES];
};

/* The number of entries for the times of commits. Commits of one millisecond share an entry. */
#define COMMIT_TIMES 1024
struct lock_archive {
    /* The process that archives the store, or 0 if none does. */
    atomic_int process;
    /* Whether the archiver pins the log after the position in the next two fields. */
    atomic_bool pins;
    /* The position up to which the log is archived: the generation, and the number of its
     * frames. */
    atomic_ullong salts;
    atomic_uint frames;
    /* The number of requests that the archiver works now, of checkpoints and other callers: a
     * futex. */
    atomic_uint calls;
    /* The monotonic time in nanoseconds until which the archiver works without a pause, because a
     * checkpoint waits. */
    atomic_llong wanted_until_ns;
    /* A futex that changes after the position has changed. */
    atomic_uint positions;
    /* All commits up to this number are archived (durable.c). */
    atomic_ullong durable;
    /* The milliseconds that a call to the target takes. */
    atomic_uint call_ms;
    /* The monotonic time in nanoseconds at which everything was last archived. */
    atomic_llong whole_ns;
    /* The monotonic time in nanoseconds since which calls to the target fail, or 0 if the last one
     * succeeded. */
    atomic_llong failing_since_ns;
    /* The last archived commit, its generation, and the number of bytes of the log that are not
     * archived. */
    atomic_ullong commit, generation, behind;
    /* The last commits, each with the salts and the number of its frame and with its wall clock
     * time in milliseconds. `times_next` is the number of the next one. */
    atomic_uint times_next;
    struct {
        atomic_ullong salts;
        atomic_uint frame;
        atomic_llong time_ms;
    } times[COMMIT_TIMES];
};

/* LOCK_MAGIC is the string "truclock". */
#define LOCK_MAGIC UINT64_C(0x6b636f6c63757274)
/* The version of the layout of the page. */
#define LOCK_VERSION 9

/* The files that another program has changed while the store was open. */
enum { LOCK_FOREIGN_NONE, LOCK_FOREIGN_FILE, LOCK_FOREIGN_LOG };

/* The shared page, at the start of the lock file. */
struct lock_page {
    /* LOCK_MAGIC in a page that is complete. */
    atomic_ullong magic;
    uint32_t version, size;
    /* The identity of the lock file itself. In a copied file the identity does not match. */
    struct file_id self;
    /* The identities of the database, the log, and its index when they were last opened. */
    struct file_id database, log, index;
    /* Whether the identities of the log and the index are known (file_identity.c). */
    atomic_bool log_known;
    /* The generation of the log. */
    atomic_ullong log_salts;
    /* The number of frames of that generation that the log has at least. */
    atomic_uint log_least;
    /* Whether a process may be writing into the log, or died while it was. If false, the next field
     * is valid. */
    atomic_bool log_writing;
    /* The wall clock time in nanoseconds at which a writer last released the lock. The log was not
     * modified later. */
    atomic_llong log_released_ns;
    /* The number of times that the log's time of modification was wrong while its content was
     * right. */
    atomic_uint log_times_wrong;
    /* The number of times that the lock was released: a futex on which waiting threads sleep. */
    atomic_uint releases;
    /* The time until which a thread may sleep on one of `changes` (change_notify.c). */
    atomic_uint watched_until;
    /* The monotonic time in nanoseconds until which a thread may sleep on `releases`. */
    atomic_llong waited_until;
    /* The process that holds the lock, or 0. */
    atomic_int holder;
    /* The wall clock time in milliseconds at which the holder acquired the lock. */
    atomic_llong held_since;
    /* The number of commits that may have changed something. */
    atomic_uint begun;
    /* The number of commits whose collections were announced (change_notify.c). */
    atomic_uint announced;
    /* Commits that wait for the disk have numbers (durable.c). This is the number of the last one
     * that began. */
    atomic_ullong promised;
    /* The number of the last one that is in the log. */
    atomic_ullong written;
    /* The number of the last one that is on disk. */
    atomic_ullong durable;
    /* Whether the disk has refused a write. */
    atomic_bool broken;
    /* One of LOCK_FOREIGN_... */
    atomic_uint foreign;
    /* Whether a frame of the log differs from what was written. */
    atomic_bool log_damaged;
    /* Odd while truce writes into the database (file_identity.c). The size, the time, and the boot
     * below are from after the last such write. */
    atomic_uint moving;
    atomic_llong file_size;
    atomic_llong file_ns;
    atomic_ullong file_boot;
    /* For each slot, the number of commits that changed a collection of the slot: a futex. */
    atomic_uint changes[NOTIFY_SLOTS];
    /* The number of pages in the WAL after the last commit. */
    atomic_uint log_pages;
    /* The number of pages that were ever written to the WAL. */
    atomic_ullong log_written;
    struct lock_pin pins[PIN_SLOTS];
    /* A bit for each record whose write waits for the holder of the lock. */
    atomic_ullong published;
    /* A bit for each record that the holder of the lock has taken (published_records.c). */
    atomic_ullong taken;
    struct lock_promises promises;
    struct lock_archive archive;
    /* LOCK_MAGIC in the last field, which reads as 0 after the file was truncated. */
    atomic_ullong whole;
};

/* The records follow the page. They exist once a write has waited for another process
 * (published_records.c). The offset is a multiple of the page size of any machine. */
#define LOCK_RECORDS_AT    65536
#define LOCK_RECORDS_BYTES (64 * 16384)
#define LOCK_FILE_BYTES    (LOCK_RECORDS_AT + LOCK_RECORDS_BYTES)

struct lock {
    /* The paths of the lock file, the database, the log, and its index. */
    char *path, *database, *log, *index;
    /* The descriptor of the lock file. */
    int file;
    /* A descriptor of the path of the database (O_PATH), or -1 if it could not be opened. */
    int database_file;
    /* The process that opened the lock file. A forked child does not use the lock. */
    int process;
    struct file_id id;
    /* The last lookups of the lock file and of the database. Used by the thread that holds the lock
     * or acquires it. */
    struct path_identity path_identity, database_identity;
    /* The shared page, or NULL if the lock file has none (on read-only media). */
    struct lock_page *page;
    /* Whether this process holds the write lock. */
    atomic_bool held;
    /* A flag that is set to 1 to interrupt all waiting threads, or NULL. */
    const int *interrupted;
    /* Set once no process reads the file alone. Readers that start later find this process
     * present. */
    atomic_bool no_read_only;
    /* Whether no other process has the store open. Valid while this process holds the entry
     * lock. */
    bool alone;
    /* Whether the page belongs to this lock file. Otherwise it must be adopted before it is
     * used. */
    bool known;
};

/* ---- entering and leaving (lock_file.c) ----------------------------------------------------- */

/* Opens the file, creates it if it is missing, and registers this process as present. `path` is the
 * path of the database. On success the process holds the entry lock until truce__lock_admit: no
 * other process enters or leaves. Fails with LOCKED after the deadline (monotonic nanoseconds), or
 * if another version of truce uses the file. Fails with CORRUPT if the file is not a lock file of
 * truce, or if it was damaged while other processes use it. Sets `*denied` if the file may not be
 * written or created. */
truce_status truce__lock_enter(const char *path, int64_t deadline_ns, struct lock *lock,
                               bool *denied, bson_error_t *error);

/* Makes the page that of this file, if it was not (lock->known). The caller is then alone, and
 * SQLite has confirmed this unless the database is empty. Otherwise, if the caller is alone, resets
 * what belonged to processes that have ended. */
void truce__lock_adopt(struct lock *lock);

/* Records the identity of the database and of the log, and releases the entry lock. Fails with IO
 * if the files cannot be read; the entry lock is then kept. */
truce_status truce__lock_admit(struct lock *lock, const char *path, bson_error_t *error);

/* Fails with CORRUPT if the log next to the database belongs to another file or to other content,
 * or if other processes have another database open under this path. The caller holds the entry
 * lock, and the page is adopted. */
truce_status truce__lock_match(struct lock *lock, const char *path, bson_error_t *error);

/* Extends the file and maps the records. Returns NULL if there is no space, or if the file cannot
 * be mapped. */
void *truce__lock_map_records(const struct lock *lock);
void truce__lock_unmap_records(void *records);

/* Returns whether no process reads the file without its log. Called before pages of the file itself
 * change. Returns false while a process reads the file without its log. Once true, it stays true
 * while this process has the store open. */
bool truce__lock_no_read_only(struct lock *lock);

/* Acquires the entry lock to leave. Returns true if no other process is present; then none enters
 * before the lock is closed. Returns false if others are present, if this is unknown at the
 * deadline, or if the lock file was truncated or lost its name. */
bool truce__lock_leave(struct lock *lock, int64_t deadline_ns);

/* Returns whether another process has the store open now. */
bool truce__lock_is_shared(const struct lock *lock);

/* Unmaps the page, closes the file, and so releases every lock on it except the claims. Called when
 * the write lock is not held. */
void truce__lock_close(struct lock *lock);

/* Fails with CORRUPT if another program has truncated the lock file, written into the database, or
 * replaced its log (file_identity.h). */
truce_status truce__lock_usable(const struct lock *lock, bson_error_t *error);
/* Fails with CORRUPT if the log is damaged: nothing may be written any more. */
truce_status truce__lock_log_usable(const struct lock *lock, bson_error_t *error);
/* Does the same as truce__lock_usable, and checks that the file is the one that other processes
 * find under its name. The caller acquires the lock or holds the entry lock. */
truce_status truce__lock_check(struct lock *lock, bson_error_t *error);

/* ---- the lock (write_lock.c) ----------------------------------------------------------------- */

/* Returns whether the flag is set that interrupts all waiting threads of the store. */
bool truce__lock_interrupted(const struct lock *lock);

/* Acquires the lock, alternating with other processes (write_lock.c). One thread at a time. Fails
 * with LOCKED at the deadline (the error names the holder), with TIMEOUT if interrupted, and with
 * CORRUPT as truce__lock_check does. */
truce_status truce__lock_acquire(struct lock *lock, int64_t deadline_ns, bson_error_t *error);
/* Acquires the lock if it is free and no process is in the turnstile. Fails with LOCKED otherwise,
 * and with CORRUPT as truce__lock_check does. */
truce_status truce__lock_try(struct lock *lock);
void truce__lock_release(struct lock *lock);

/* Returns whether any process holds the lock, this one included. */
bool truce__lock_is_held(const struct lock *lock);

/* Returns the process that holds the lock, or 0 if no process does. Sets `*held_ms` to the
 * milliseconds for which it has held the lock. */
int truce__lock_holder(const struct lock *lock, int64_t *held_ms);

/* Fails with LOCKED, naming the holder, if another process holds the lock now. */
truce_status truce__lock_blame(const struct lock *lock, bson_error_t *error);

/* Claims a number > 0 until truce__lock_disclaim or until the process dies. Each claim opens the
 * file again, so claims of one process also exclude each other. Returns a descriptor, or -1 if the
 * number is claimed or the file cannot be opened. */
int truce__lock_claim(const struct lock *lock, int64_t number);
/* Releases the claim. -1 is allowed. */
void truce__lock_disclaim(int claim);
/* Returns whether any process, this one included, has claimed the number. */
bool truce__lock_is_claimed(const struct lock *lock, int64_t number);

#endif

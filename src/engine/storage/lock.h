#ifndef TRUCE_ENGINE_STORAGE_LOCK_H
#define TRUCE_ENGINE_STORAGE_LOCK_H

/*
 * The lock file beside the database: who has it open, who may write, across processes, and a page of
 * memory that all of them share.
 *
 * Who is there and who holds the lock is known to the kernel alone (open file description locks), which
 * lets go of it when its holder dies. The shared page says whom to wake, whom to name, and which commits
 * are not on the disk yet; whatever stands in it, nobody writes without the kernel's lock.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/storage/file_identity.h"
#include "engine/storage/process.h"

#define NOTIFY_SLOTS 512

/* a number to claim: who has it makes a checkpoint; others are numbers of indexes (catalog.c) */
#define LOCK_CHECKPOINT (INT64_C(1) << 48)
#define LOCK_PINS       (LOCK_CHECKPOINT + 1) /* and PIN_HOMES - 1 numbers more (snapshot_pins.c) */

#define PIN_HOMES       64

#define LOCK_RECORDS    (LOCK_PINS + PIN_HOMES) /* and RECORDS - 1 numbers more (records.c) */

/* What a store that is open in some process says of its reads that last. */
struct lock_pin {
    atomic_int process;
    atomic_uint count, unlimited;
    atomic_llong since_ms;
    atomic_ullong log_at;
};

/* Which commits have to be on the disk for a document to be (cache.c): of each hash the last that changed one. */
#define PROMISES 4096
struct lock_promises {
    uint64_t seed;     /* of the hashes */
    atomic_ullong all; /* the last that changed nobody knows how many */
    atomic_ullong of[PROMISES];
};

#define LOCK_MAGIC   UINT64_C(0x6b636f6c63757274) /* "truclock" */
#define LOCK_VERSION 6                            /* of the page's layout */

/* What another program has changed while the store was open. */
enum { LOCK_FOREIGN_NONE, LOCK_FOREIGN_FILE, LOCK_FOREIGN_LOG };

/* The shared page, at the start of the lock file. */
struct lock_page {
    atomic_ullong magic; /* LOCK_MAGIC */
    uint32_t version, size;
    struct file_id self;                 /* the lock file itself: in a copy it is another */
    struct file_id database, log, index; /* when they were last opened */
    atomic_bool log_known;               /* the last two are (file_identity.c), ... */
    atomic_ullong log_salts;             /* ... and of this generation the log has ... */
    atomic_uint log_least;               /* ... so many frames at least */
    atomic_bool log_writing;             /* a process has its turn, or died in it; else ... */
    atomic_llong log_bytes, log_ns;      /* ... the log is as the last turn left it */
    atomic_uint log_times_wrong;         /* that its time was another, and its content the same */
    atomic_uint turn;                    /* counts every release; waiters sleep on it */
    atomic_uint
        watched_until; /* somebody may sleep on one of `changes`, until then (change_notify.c) */
    atomic_llong waited_until; /* somebody may sleep on it, until then (monotonic nanoseconds) */
    atomic_int holder;         /* process id of who holds the lock; 0: nobody */
    atomic_llong held_since;   /* wall clock, milliseconds */
    atomic_uint begun;         /* commits that may have changed something ... */
    atomic_uint announced;     /* ... and those whose collections were woken (change_notify.c) */
    atomic_ullong promised;    /* commits that wait for the disk: begun, ... */
    atomic_ullong written;     /* ... ended, and ... */
    atomic_ullong durable;     /* ... on the disk (durable.c) */
    atomic_bool broken;        /* the disk refused what was written */
    atomic_uint foreign;       /* LOCK_FOREIGN_... */
    atomic_bool log_damaged;   /* a frame of the log is not what was written */
    atomic_uint moving;        /* odd: truce writes into the database, ... */
    atomic_llong file_size;    /* ... which left it so (file_identity.c) */
    atomic_llong file_ns;
    atomic_ullong file_boot;
    atomic_uint changes[NOTIFY_SLOTS]; /* for each slot of collection names: counts commits */
    atomic_uint log_pages;             /* in the WAL, as the last commit left it ... */
    atomic_ullong log_written;         /* ... and those ever written to it */
    struct lock_pin pins[PIN_HOMES];
    atomic_ullong published; /* records in which a write waits for whoever has the lock, ... */
    atomic_ullong taken;     /* ... and of which he has taken it: a bit for each (records.c) */
    struct lock_promises promises;
    atomic_ullong whole; /* the last: LOCK_MAGIC; not, once somebody has cut the file */
};

/* Behind the page, from the first write that waits for another process on (records.c); where pages of memory may be
 * as large as on any machine. */
#define LOCK_RECORDS_AT    65536
#define LOCK_RECORDS_BYTES (64 * 16384)
#define LOCK_FILE_BYTES    (LOCK_RECORDS_AT + LOCK_RECORDS_BYTES)

struct lock {
    char *path, *database, *log, *index; /* names */
    int file;
    int database_file; /* stands for the name alone (O_PATH); -1: it could not be had */
    int process;       /* this one: a child that is forked uses none of it */
    struct file_id id;
    struct path_identity path_identity, database_identity; /* of who takes the lock, and has it */
    struct lock_page *page;
    atomic_bool held;
    const int *interrupted; /* set to 1: nobody waits any more; may be NULL */
    atomic_bool no_read_only;
    bool alone; /* while the door is shut: nobody else has the store open */
    bool known; /* the page is that of this file; else it is not to be used before it is adopted */
};

/* ---- being there (lock_file.c) --------------------------------------------------------------- */

/* Opens the file, makes it if there is none, and is there from now on. `path` is the database's. The
 * door is shut behind: until truce__lock_admit nobody else comes or goes. LOCKED: not before the
 * deadline (monotonic nanoseconds). CORRUPT: it is not the lock file of this store, or somebody who has
 * the store open uses another. `*denied`: it may not be written, or made. */
truce_status truce__lock_enter(const char *path, int64_t deadline_ns, struct lock *lock,
                               bool *denied, bson_error_t *error);

/* The page becomes that of this file, if it was not: who is alone, and knows it from elsewhere too. */
void truce__lock_adopt(struct lock *lock);

/* Records what the database and the log are, and opens the door. IO: they cannot be looked at; the door stays shut. */
truce_status truce__lock_admit(struct lock *lock, const char *path, bson_error_t *error);

/* CORRUPT: the log beside the database is that of another file or of another content, or others have another
 * database open under this name. While the door is shut; adopted. */
truce_status truce__lock_match(struct lock *lock, const char *path, bson_error_t *error);

/* Makes the file as long as that, and maps the records; NULL: there is no room. */
void *truce__lock_map_records(const struct lock *lock);
void truce__lock_unmap_records(void *records);

/* Before pages of the file itself change. False: somebody reads it without a look at the log, for a
 * moment. True stays true as long as we are there. */
bool truce__lock_no_read_only(struct lock *lock);

/* Shuts the door again, to go. True: nobody else is there, and nobody comes before the lock is
 * closed. False: others are there, or it is not known before the deadline. */
bool truce__lock_leave(struct lock *lock, int64_t deadline_ns);

void truce__lock_close(struct lock *lock);

/* CORRUPT: somebody has cut the file, or written into the database (file_identity.h). */
truce_status truce__lock_usable(const struct lock *lock, bson_error_t *error);
/* CORRUPT: nothing may be written any more, since the log is damaged. */
truce_status truce__lock_log_usable(const struct lock *lock, bson_error_t *error);
/* As truce__lock_usable, and the file is still the one that others find under its name. By who takes the lock, or
 * while the door is shut. */
truce_status truce__lock_check(struct lock *lock, bson_error_t *error);

/* ---- the lock (lock.c) ------------------------------------------------------------------------ */

bool truce__lock_interrupted(const struct lock *lock);

/* One thread at a time. In turn with other processes. LOCKED: not before the deadline; the error names
 * the holder. TIMEOUT: interrupted. CORRUPT: as truce__lock_check. */
truce_status truce__lock_acquire(struct lock *lock, int64_t deadline_ns, bson_error_t *error);
/* Takes it if it is free, and nobody waits in the turnstile; LOCKED: not so. CORRUPT: as truce__lock_check. */
truce_status truce__lock_try(struct lock *lock);
void truce__lock_release(struct lock *lock);

/* Is it held by anybody, this process included? */
bool truce__lock_is_held(const struct lock *lock);

/* LOCKED, and the error names the holder, if another process holds it now. */
truce_status truce__lock_blame(const struct lock *lock, bson_error_t *error);

/* A claim on a number, > 0: lasts until it is given back or its process dies. Each is an opening of
 * the file of its own, so claims of one process exclude each other, too. Returns a descriptor; -1:
 * somebody has it, or the file cannot be opened. */
int truce__lock_claim(const struct lock *lock, int64_t number);
void truce__lock_disclaim(int claim); /* -1 is allowed */
bool truce__lock_is_claimed(const struct lock *lock, int64_t number);

#endif

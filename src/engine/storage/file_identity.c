/*
 * The stamp of the file.
 *
 * A database file can be written over in its place: by `cp BACKUP STORE`, by an SQLite program that makes a
 * checkpoint. It has the same name and the same number then, and nothing that SQLite looks at tells: pages that are
 * in memory stay as they were, the others come from the new content, and the log of the old one is moved over it.
 *
 *     moving    even: the file is as `stamp` says;  odd: truce is writing into it, or died while it did
 *     stamp     size, time of the last change
 *     boot      which start of the machine that was: after a power cut page and file are of different times
 *
 *     change    moving := odd; write; stamp := what is there; moving := even       alone, or with the claim of
 *                                                                                  a checkpoint
 *     look      even? stat; is it the stamp? still the same number?                anybody, at any time
 *
 * Invariants:
 *  1. `moving` is odd from before the first write into the file until after the last one's stamp.
 *     (A stat that fails leaves the number odd: nothing is known then.)
 *  2. Who finds the same even number before and after his stat has seen the file between two changes of truce's.
 *  3. What was found once stays so (`foreign`) until one who is alone opens the store.
 *
 * A writer looks in each turn, by a descriptor of his own (path_identity.c), a reader every now and then, whoever moves pages before he does, and who opens
 * the store. One who is alone compares, too, if there is a log: what is in it belongs to the
 * content that was there before.
 *
 * Deliberately not done: telling what did it. A file that was only touched is refused as well, until the store was
 * closed by everybody; no data is lost by that. Two changes within one tick of the kernel's clock (some
 * milliseconds) may have the same time.
 */
#include "engine/storage/file_identity.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/clock.h"
#include "engine/storage/log_identity.h"

#define LOOK_MS 50

struct stamp {
    int64_t size, time_ns;
};

static struct stamp stamp_of(const struct stat *found)
{
    return (struct stamp){found->st_size,
                          found->st_mtim.tv_sec * INT64_C(1000000000) + found->st_mtim.tv_nsec};
}

static bool stamp_look(const struct lock *lock, struct stamp *stamp)
{
    struct stat found;

    if (stat(lock->database, &found))
        return false;
    *stamp = stamp_of(&found);
    return true;
}

/* 0: nobody knows. */
static uint64_t read_boot_number(void)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    char text[40] = "";
    uint64_t number = 0;

    if (!file)
        return 0;
    if (fgets(text, sizeof text, file)) {
        for (const char *at = text; *at; at++)
            number = (number + (uint8_t)*at) * UINT64_C(0x100000001b3);
    }
    fclose(file);
    return number;
}

static uint64_t boot_number(void)
{
    static atomic_ullong number;
    uint64_t known = atomic_load(&number);

    if (!known) {
        known = read_boot_number();
        atomic_store(&number, known);
    }
    return known;
}

/* ---- who changes the file -------------------------------------------------------------------- */

void truce__stamp_begin(struct lock *lock)
{
    atomic_fetch_or(&lock->page->moving, 1);
}

void truce__stamp_end(struct lock *lock)
{
    struct lock_page *page = lock->page;
    struct stamp stamp;

    if (!stamp_look(lock, &stamp))
        return;
    atomic_store(&page->stamp_size, stamp.size);
    atomic_store(&page->stamp_ns, stamp.time_ns);
    atomic_store(&page->stamp_boot, boot_number());
    atomic_store(&page->moving, (atomic_load(&page->moving) | 1) + 1);
}

/* ---- who looks ------------------------------------------------------------------------------- */

/* What was found since `moving` was read. False only if nobody of truce's was writing meanwhile. */
static bool is_stamp(const struct lock *lock, unsigned moving, const struct stamp *now)
{
    struct lock_page *page = lock->page;
    bool same =
        now->size == atomic_load(&page->stamp_size) && now->time_ns == atomic_load(&page->stamp_ns);

    return same || moving % 2 || atomic_load(&page->moving) != moving;
}

static bool is_stamped(const struct lock *lock)
{
    unsigned moving = atomic_load(&lock->page->moving);
    struct stamp now;

    return moving % 2 || !stamp_look(lock, &now) || is_stamp(lock, moving, &now);
}

static truce_status stamp_conclude(struct lock *lock, bool stamped, bson_error_t *error)
{
    if (!stamped && !truce__lock_usable(lock, NULL))
        atomic_store(&lock->page->foreign, LOCK_FOREIGN_FILE);
    return truce__lock_usable(lock, error);
}

truce_status truce__stamp_check(struct lock *lock, bson_error_t *error)
{
    truce_status status = stamp_conclude(lock, is_stamped(lock), error);

    return status ? status : truce__log_identity_check(lock, error);
}

truce_status truce__stamp_check_in_turn(struct lock *lock, struct kv *kv, bson_error_t *error)
{
    unsigned moving = atomic_load(&lock->page->moving);
    truce_status status = TRUCE_OK;
    struct stat found;
    struct stamp now;
    bool same;

    if (lock->database_file < 0 || fstat(lock->database_file, &found)) {
        status = truce__kv_in_place(kv, error);
        if (!status)
            status = truce__stamp_check(lock, error);
        return status ? status : truce__log_identity_check_in_turn(lock, kv, error);
    }
    same = truce__sight_same(&lock->database_sight, &found);
    if (!same)
        status = truce__kv_in_place(kv, error);
    if (status)
        return status;
    if (!same)
        truce__sight_keep(&lock->database_sight, &found);
    now = stamp_of(&found);
    status = stamp_conclude(lock, is_stamp(lock, moving, &now), error);
    return status ? status : truce__log_identity_check_in_turn(lock, kv, error);
}

truce_status truce__stamp_check_sometimes(struct lock *lock, atomic_llong *last_ms,
                                          bson_error_t *error)
{
    struct timespec now;
    int64_t now_ms;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    now_ms = now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
    if (now_ms - atomic_load_explicit(last_ms, memory_order_relaxed) < LOOK_MS)
        return TRUCE_OK;
    atomic_store_explicit(last_ms, now_ms, memory_order_relaxed);
    return truce__stamp_check(lock, error);
}

bool truce__stamp_fits(const struct lock *lock)
{
    uint64_t boot = atomic_load(&lock->page->stamp_boot);

    return !boot || boot != boot_number() || is_stamped(lock);
}

bool truce__stamp_is_left(const struct lock *lock)
{
    uint64_t boot = atomic_load(&lock->page->stamp_boot);

    return boot && boot == boot_number() && is_stamped(lock);
}

/*
 * An embedded store: the file, its disk and its file system.
 *
 * Locks between processes and fsync are what its promises rest on. On what is reached by a network they
 * are another machine's, and may be missing or come late.
 */
#include <string.h>

#include "maintenance/doctor.h"

#define MEGABYTE     INT64_C(1048576)
#define SPACE_LEAST  (64 * MEGABYTE)
#define HOUR_MS      3600000
#define FEED_LATE_MS (10 * 60000)     /* servers and writers are so late at most */
#define WAL_MOST     (256 * MEGABYTE) /* sixteen times what checkpoints keep it at */

static void judge_filesystem(struct doctor *doctor, const char *path)
{
    const char *name = truce__doctor_text(doctor->facts, "filesystem.name", NULL);

    if (!truce__doctor_number(doctor->facts, "filesystem.type", 0))
        return;
    if (!name)
        truce__doctor_tell(doctor, DOCTOR_NOTE, "file-system", path,
                           "make sure that its locks hold between processes, and that fsync "
                           "reaches the disk",
                           "the file system is of a kind that truce does not know (0x%llx)",
                           (long long)truce__doctor_number(doctor->facts, "filesystem.type", 0));
    else if (!truce__doctor_flag(doctor->facts, "filesystem.local", true))
        truce__doctor_tell(doctor, DOCTOR_ERROR, "file-system", path,
                           "put the file on a disk of this machine, or use a server (mongodb://) "
                           "if several machines share the store",
                           "the file lies on %s: locks and fsync there are not this machine's, and "
                           "shared memory does not reach other machines",
                           name);
    else if (!strcmp(name, "tmpfs") || !strcmp(name, "ramfs"))
        truce__doctor_tell(doctor, DOCTOR_WARNING, "file-system", path,
                           "put the file on a disk, unless it may go with the machine's memory",
                           "the file lies on %s: in memory; nothing survives a restart", name);
    else if (!strcmp(name, "overlay"))
        truce__doctor_tell(doctor, DOCTOR_NOTE, "file-system", path, "put the file on a volume",
                           "the file lies on a container's own layer, which goes with it");
}

static void judge_space(struct doctor *doctor, const char *path)
{
    int64_t free = truce__doctor_number(doctor->facts, "space.free", -1);
    int64_t total = truce__doctor_number(doctor->facts, "space.total", 0);
    int64_t bytes = truce__doctor_number(doctor->facts, "file.bytes", 0);

    if (free < 0 || total <= 0)
        return;
    if (free < SPACE_LEAST)
        truce__doctor_tell(doctor, DOCTOR_ERROR, "disk-space", path, "make room on the disk",
                           "%lld MB are free: writes will fail soon", (long long)(free / MEGABYTE));
    else if (free < total / 20 && free < bytes)
        truce__doctor_tell(doctor, DOCTOR_WARNING, "disk-space", path, "make room on the disk",
                           "%lld MB are free, less than a twentieth of the disk and less than the "
                           "file has",
                           (long long)(free / MEGABYTE));
}

static void judge_files(struct doctor *doctor, const char *path)
{
    int64_t mode = truce__doctor_number(doctor->facts, "file.mode", 0);
    int64_t wal = truce__doctor_number(doctor->facts, "wal.bytes", 0);
    bson_iter_t found;

    if (wal > WAL_MOST)
        truce__doctor_tell(doctor, DOCTOR_WARNING, "wal", path,
                           "look for a process that reads for long, or that was stopped; the log "
                           "is written over once nobody reads its beginning",
                           "the write-ahead log has %lld MB", (long long)(wal / MEGABYTE));
    if (mode & 002)
        truce__doctor_tell(doctor, DOCTOR_WARNING, "permissions", path,
                           "chmod o-w the file and what stands beside it (-wal, -shm, -lock)",
                           "everybody on this machine may write to the file");
    if (!truce__doctor_flag(doctor->facts, "file.writable", true))
        truce__doctor_tell(doctor, DOCTOR_WARNING, "permissions", path,
                           "give this user the right to write, if it should",
                           "this user may not write to the file");
    else if (!truce__doctor_flag(doctor->facts, "directory.writable", true))
        truce__doctor_tell(doctor, DOCTOR_WARNING, "permissions", path,
                           "give this user the right to write to the directory",
                           "this user may not write to the directory, where -wal, -shm and -lock "
                           "are made");
    if (truce__doctor_fact(doctor->facts, "file", &found) &&
        !truce__doctor_fact(doctor->facts, "lock", &found) &&
        !truce__doctor_flag(doctor->facts, "read_only", false))
        truce__doctor_tell(doctor, DOCTOR_ERROR, "lock-file", path,
                           "close the store in every program, and open it again; never delete "
                           "the -lock file of a store in use",
                           "the lock file beside it is gone while the store is open: writes, and "
                           "whoever opens the store anew, are refused");
}

/* Reads that are open and keep the log from being written over. */
static void judge_pins(struct doctor *doctor)
{
    bson_iter_t iter, pin;
    bson_t document;

    if (!truce__doctor_fact(doctor->facts, "pins", &iter) || !bson_iter_recurse(&iter, &pin))
        return;
    while (bson_iter_next(&pin)) {
        const uint8_t *data;
        int64_t bytes;
        uint32_t size;
        char subject[40];

        bson_iter_document(&pin, &size, &data);
        if (!bson_init_static(&document, data, size))
            continue;
        bytes = truce__doctor_number(&document, "bytes", 0);
        snprintf(subject, sizeof subject, "process %lld",
                 (long long)truce__doctor_number(&document, "process", 0));
        truce__doctor_tell(doctor, bytes > WAL_MOST ? DOCTOR_WARNING : DOCTOR_NOTE, "pinned",
                           subject,
                           "let it end, or end it: the log is written over once nobody reads its "
                           "beginning",
                           "%lld cursors and snapshots are open (%lld of them without a maximum), "
                           "the oldest for %lld s: %lld MB were written since and are kept",
                           (long long)truce__doctor_number(&document, "reads", 0),
                           (long long)truce__doctor_number(&document, "unlimited", 0),
                           (long long)(truce__doctor_number(&document, "age_ms", 0) / 1000),
                           (long long)(bytes / MEGABYTE));
    }
}

/* What is kept for who watches. One that nobody writes to, serves or sweeps is kept beyond its time. */
static void judge_feed(struct doctor *doctor, const char *path)
{
    int64_t entries = truce__doctor_number(doctor->facts, "feed.entries", -1);
    int64_t bytes = truce__doctor_number(doctor->facts, "feed.bytes", 0);
    int64_t age_ms = truce__doctor_number(doctor->facts, "feed.age_ms", 0);
    int64_t keep_ms = truce__doctor_number(doctor->facts, "feed.keep_ms", 0);
    bool late = entries > 1 && age_ms > keep_ms + FEED_LATE_MS;

    if (entries < 0)
        return;
    truce__doctor_tell(doctor, late ? DOCTOR_WARNING : DOCTOR_NOTE, "changes", path,
                       late ? "truce sweep, again and again, as long as nobody serves the file"
                            : "nothing; truce serve --feed-hours 0 ends it, if nobody watches any "
                              "more",
                       "%lld changes are kept for change streams, %lld kB, the oldest for %.1f of "
                       "%.1f hours",
                       (long long)entries, (long long)(bytes / 1024), (double)age_ms / HOUR_MS,
                       (double)keep_ms / HOUR_MS);
}

void truce__doctor_file(struct doctor *doctor)
{
    const char *path = truce__doctor_text(doctor->facts, "path", "the file");

    if (strcmp(truce__doctor_text(doctor->facts, "store", ""), "file") != 0)
        return;
    judge_filesystem(doctor, path);
    judge_space(doctor, path);
    judge_files(doctor, path);
    judge_pins(doctor);
    judge_feed(doctor, path);
}

/*
 * What the file of an embedded store stands on, for truce_doctor:
 *
 *     {path, file: {bytes, mode, writable}, wal: {bytes}, shm: {bytes}, lock: {bytes},
 *      directory: {writable}, space: {free, total}, filesystem: {type, name, local},
 *      sqlite: "3.40.1", read_only, pins: [{process, reads, unlimited, age_ms, bytes}],
 *      writes: {operations, groups, carried, sent, syncs, held_us, log_bytes}}
 *
 * The writes are those of this open store since it was opened: how many operations were made in how many transactions,
 * the syncs of the log that were for them, how long its lock was held, and (by everybody) the bytes of the log.
 *
 * `local` is whether locks and fsync are the kernel's own: on what is reached by a network, or by a
 * program of the user's, nobody can tell.
 */
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/documents/feed.h"
#include "engine/engine.h"
#include "store/file/file.h"

/* Numbers of statfs(2), and of the file systems' own headers. */
static const struct {
    uint64_t type;
    const char *name;
    bool local;
} filesystems[] = {
    {0xEF53, "ext4", true},        {0x58465342, "xfs", true},     {0x9123683E, "btrfs", true},
    {0x2FC12FC1, "zfs", true},     {0x01021994, "tmpfs", true},   {0x858458F6, "ramfs", true},
    {0x794C7630, "overlay", true}, {0xF2F52010, "f2fs", true},    {0xCA451A4E, "bcachefs", true},
    {0x6969, "nfs", false},        {0xFF534D42, "cifs", false},   {0xFE534D42, "smb2", false},
    {0x517B, "smb", false},        {0x65735546, "fuse", false},   {0x01021997, "9p", false},
    {0x00C36400, "ceph", false},   {0x5346414F, "afs", false},    {0x47504653, "gpfs", false},
    {0x0BD00BD0, "lustre", false}, {0x786F4256, "vboxsf", false}, {0x4D44, "vfat", true},
    {0x2011BAB0, "exfat", true},
};

static void put_file(bson_t *facts, const char *name, const char *path)
{
    struct stat found;
    bson_t child;

    if (stat(path, &found) != 0)
        return;
    BSON_APPEND_DOCUMENT_BEGIN(facts, name, &child);
    BSON_APPEND_INT64(&child, "bytes", found.st_size);
    BSON_APPEND_INT32(&child, "mode", (int32_t)(found.st_mode & 07777));
    BSON_APPEND_BOOL(&child, "writable", access(path, W_OK) == 0);
    bson_append_document_end(facts, &child);
}

static void put_beside(bson_t *facts, const char *name, const char *path, const char *suffix)
{
    char *beside = bson_strdup_printf("%s%s", path, suffix);

    put_file(facts, name, beside);
    bson_free(beside);
}

static void put_filesystem(bson_t *facts, const char *path)
{
    struct statfs found;
    bson_t child;
    size_t i = 0;

    if (statfs(path, &found) != 0)
        return;
    while (i < sizeof filesystems / sizeof *filesystems &&
           filesystems[i].type != (uint32_t)found.f_type)
        i++;
    BSON_APPEND_DOCUMENT_BEGIN(facts, "filesystem", &child);
    BSON_APPEND_INT64(&child, "type", (int64_t)(uint32_t)found.f_type);
    if (i < sizeof filesystems / sizeof *filesystems) {
        BSON_APPEND_UTF8(&child, "name", filesystems[i].name);
        BSON_APPEND_BOOL(&child, "local", filesystems[i].local);
    }
    bson_append_document_end(facts, &child);
}

static void put_space(bson_t *facts, const char *path)
{
    struct statvfs found;
    bson_t child;

    if (statvfs(path, &found) != 0)
        return;
    BSON_APPEND_DOCUMENT_BEGIN(facts, "space", &child);
    BSON_APPEND_INT64(&child, "free", (int64_t)found.f_bavail * (int64_t)found.f_frsize);
    BSON_APPEND_INT64(&child, "total", (int64_t)found.f_blocks * (int64_t)found.f_frsize);
    bson_append_document_end(facts, &child);
}

static void put_directory(bson_t *facts, const char *path)
{
    char *copy = bson_strdup(path), *slash = strrchr(copy, '/');
    bson_t child;

    if (slash)
        slash[slash == copy] = '\0';
    BSON_APPEND_DOCUMENT_BEGIN(facts, "directory", &child);
    BSON_APPEND_BOOL(&child, "writable", access(slash ? copy : ".", W_OK) == 0);
    bson_append_document_end(facts, &child);
    bson_free(copy);
}

/* Who pins the log: reads that are open, and what was written since the oldest of them began. */
static void put_pins(bson_t *facts, const struct lock *lock)
{
    struct pin_facts pins[PIN_HOMES];
    size_t count = truce__pins_list(lock, pins, PIN_HOMES);
    bson_t list, pin;
    char key[24];

    BSON_APPEND_ARRAY_BEGIN(facts, "pins", &list);
    for (size_t i = 0; i < count; i++) {
        snprintf(key, sizeof key, "%zu", i);
        BSON_APPEND_DOCUMENT_BEGIN(&list, key, &pin);
        BSON_APPEND_INT32(&pin, "process", pins[i].process);
        BSON_APPEND_INT32(&pin, "reads", (int32_t)pins[i].count);
        BSON_APPEND_INT32(&pin, "unlimited", (int32_t)pins[i].unlimited);
        BSON_APPEND_INT64(&pin, "age_ms", truce__clock_wall_ms() - pins[i].since_ms);
        BSON_APPEND_INT64(&pin, "bytes", (int64_t)pins[i].log_behind);
        bson_append_document_end(&list, &pin);
    }
    bson_append_array_end(facts, &list);
}

static void put_writes(bson_t *facts, struct engine *engine)
{
    const struct writer *writer = &engine->writer;
    bson_t writes;

    if (engine->read_only)
        return;
    BSON_APPEND_DOCUMENT_BEGIN(facts, "writes", &writes);
    BSON_APPEND_INT64(&writes, "operations", (int64_t)atomic_load(&writer->operations));
    BSON_APPEND_INT64(&writes, "groups", (int64_t)atomic_load(&writer->groups));
    BSON_APPEND_INT64(&writes, "carried", (int64_t)atomic_load(&writer->combine.carried));
    BSON_APPEND_INT64(&writes, "sent", (int64_t)atomic_load(&writer->combine.sent));
    BSON_APPEND_INT64(&writes, "syncs", (int64_t)truce__durable_syncs(&engine->durable));
    BSON_APPEND_INT64(&writes, "held_us", (int64_t)(atomic_load(&writer->held_ns) / 1000));
    BSON_APPEND_INT64(&writes, "log_bytes", (int64_t)truce__pins_log(&engine->lock));
    bson_append_document_end(facts, &writes);
}

/* What is kept for change streams, if anything is. */
static void facts_put_feed(bson_t *facts, struct engine *engine)
{
    struct feed_state state;
    bson_error_t ignored; /* it is the check that says what is wrong with it */
    int64_t entries;
    bson_t feed;

    if (truce__engine_feed_state(engine, &state, &ignored) || !state.spec.table ||
        truce__engine_feed_count(engine, &entries, &ignored))
        return;
    BSON_APPEND_DOCUMENT_BEGIN(facts, "feed", &feed);
    BSON_APPEND_INT64(&feed, "entries", entries);
    BSON_APPEND_INT64(&feed, "bytes", state.bytes);
    BSON_APPEND_INT64(&feed, "age_ms",
                      state.oldest_ms ? truce__clock_wall_ms() - state.oldest_ms : 0);
    BSON_APPEND_INT64(&feed, "keep_ms", state.spec.keep_ms);
    BSON_APPEND_INT64(&feed, "keep_bytes", state.spec.keep_bytes);
    bson_append_document_end(facts, &feed);
}

void truce__file_facts(struct engine *engine, bson_t *facts)
{
    BSON_APPEND_UTF8(facts, "path", engine->path);
    put_file(facts, "file", engine->path);
    put_beside(facts, "wal", engine->path, "-wal");
    put_beside(facts, "shm", engine->path, "-shm");
    put_beside(facts, "lock", engine->path, "-lock");
    put_directory(facts, engine->path);
    put_space(facts, engine->path);
    put_filesystem(facts, engine->path);
    BSON_APPEND_UTF8(facts, "sqlite", sqlite3_libversion());
    BSON_APPEND_BOOL(facts, "read_only", engine->read_only);
    put_pins(facts, &engine->lock);
    put_writes(facts, engine);
    facts_put_feed(facts, engine);
}

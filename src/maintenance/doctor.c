/*
 * The doctor examines the environment of a store: its server or file, its indexes, and the state of
 * the patterns.
 *
 *     the store's facts   a server's replies (doctor_server.c), or a file and its disk
 *       of a mongos       sharded collections and their shard keys
 *     each collection     its indexes; documents that a commit holds and no index finds
 *     truce_commits       commits that have not ended
 *     truce_queue ...     jobs and cron entries that no process works on
 *     truce_sync, truce_transfers, truce_trees      the indexes and states that these patterns need
 *
 * The facts are documents, and each check is a function of them. Tests can therefore check recorded
 * facts of deployments that the test machine does not have.
 *
 * Levels: an error means that a guarantee of truce does not hold here (a write can be lost, a key
 * can be used twice); a warning predicts a problem; a note is information. If the user lacks the
 * right to read a fact, the doctor reports a note and does not check the fact.
 *
 * Deliberately not done: repair. The findings say what to do. `truce sweep` completes or undoes
 * unfinished work of truce.
 */
#include "maintenance/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/plural.h"
#include "bson/value.h"
#include "commit/journal.h"
#include "store/decorators/database_view.h"
#include "store/maintenance.h"
#include "store/reserved_names.h"
#include "store/store.h"
#include "truce/queue.h"
#include "truce/store.h"

/* ---- indexes --------------------------------------------------------------------------------- */

/*
 * Indexes: those that truce's protocols need, and indexes of the user that conflict with them.
 *
 *     _intent                      sparse; otherwise every document has an entry
 *     key of truce_commits         unique and sparse: a caller's key counts once
 *     _keys                        unique and sparse (truce_unique_declare)
 *     expireAfterSeconds           not on data that truce must remember and removes itself
 *     unique, not sparse           has room for one document without its fields; the guard of a
 *                                  missing document inserts one for a short time.
 */

struct seen {
    /* The name of the index. */
    const char *name;
    /* The first field of its key. */
    const char *first;
    /* Whether the key has no other field. */
    bool single;
    bool unique, sparse, partial, expires;
    /* Whether the index is that of tree items, with its fields. */
    bool items;
};

static bool doctor_has_index(const bson_t *indexes, const char *field);

/* Reads the facts about an index that the checks need. */
static struct seen doctor_read_index(const bson_iter_t *iter)
{
    struct seen seen = {.name = "?", .first = ""};
    bson_iter_t index, key;

    if (!bson_iter_recurse(iter, &index))
        return seen;
    while (bson_iter_next(&index)) {
        const char *field = bson_iter_key(&index);

        if (!strcmp(field, "name") && BSON_ITER_HOLDS_UTF8(&index))
            seen.name = bson_iter_utf8(&index, NULL);
        else if (!strcmp(field, "unique"))
            seen.unique = bson_iter_as_bool(&index);
        else if (!strcmp(field, "sparse"))
            seen.sparse = bson_iter_as_bool(&index);
        else if (!strcmp(field, "partialFilterExpression"))
            seen.partial = true;
        else if (!strcmp(field, "expireAfterSeconds"))
            seen.expires = true;
        else if (!strcmp(field, "key") && bson_iter_recurse(&index, &key) && bson_iter_next(&key)) {
            seen.first = bson_iter_key(&key);
            seen.single = !bson_iter_next(&key);
            seen.items = !strcmp(seen.first, "tree") && !seen.single &&
                         !strcmp(bson_iter_key(&key), "itemId");
        }
    }
    return seen;
}

/* Examines an index on a field of truce, and an index by which documents of truce expire. */
static void doctor_check_own_index(struct doctor *doctor, const char *collection,
                                   const struct seen *seen)
{
    const struct reserved *reserved = truce__reserved(collection);

    if (!strcmp(seen->first, "_intent") && seen->single && !seen->sparse)
        truce__doctor_report(doctor, DOCTOR_WARNING, "intent-index", collection,
                             "drop the index and create it again with sparse: true",
                             "the index %s on _intent is not sparse: it has an entry for each "
                             "document, not only for documents that a commit holds",
                             seen->name);
    if (!strcmp(seen->first, "_keys") && seen->single && !(seen->unique && seen->sparse))
        truce__doctor_report(
            doctor, DOCTOR_ERROR, "keys-index", collection,
            "drop the index and run truce commit unique for the collection",
            "the index %s on _keys is not unique and sparse: values that commits reserve "
            "can be used by other documents",
            seen->name);
    if (seen->expires && reserved && reserved->remembers)
        truce__doctor_report(doctor, DOCTOR_ERROR, "expiry", collection,
                             "drop the index; truce sweep removes old documents",
                             "the index %s lets documents expire by age, which truce must remember",
                             seen->name);
}

/* Returns whether the index is that of a ledger. All documents of a ledger have its fields. */
static bool is_of_ledger(const struct seen *seen)
{
    return !strcmp(seen->name, "changes.account_1_changes.seqId_1");
}

/* Examines the indexes of one collection. */
static void truce__doctor_indexes(struct doctor *doctor, const char *collection,
                                  const bson_t *indexes)
{
    bool commits = !strcmp(collection, COMMITS), keyed = false;
    bson_iter_t iter;

    if (bson_iter_init(&iter, indexes))
        while (bson_iter_next(&iter)) {
            struct seen seen = doctor_read_index(&iter);

            doctor_check_own_index(doctor, collection, &seen);
            keyed = keyed || (!strcmp(seen.first, "key") && seen.single && seen.unique &&
                              (seen.sparse || seen.partial));
            if (seen.unique && !seen.sparse && !seen.partial && strcmp(seen.first, "_id") != 0 &&
                !is_of_ledger(&seen) && !seen.items)
                truce__doctor_report(
                    doctor, DOCTOR_NOTE, "unique-index", collection,
                    "make it sparse or partial if commits require that documents of "
                    "this collection are missing",
                    "the unique index %s allows only one document without its fields", seen.name);
        }
    if (commits && !keyed)
        truce__doctor_report(doctor, DOCTOR_ERROR, "key-index", collection,
                             "create the index {key: 1} with unique: true and sparse: true",
                             "no unique, sparse index on \"key\" ensures that an idempotency key "
                             "counts once");
}

/* ---- shard keys ------------------------------------------------------------------------------ */

/*
 * The shard key that each layout needs.
 *
 *     truce_commits, truce_sets,           none: idempotency keys, definitions of sets, and jobs
 *     truce_queue                          need a unique index over all documents
 *     truce_sequences,                     {_id: 1} or {_id: "hashed"}: their documents are found
 *     truce_sources, truce_progress,       by _id, and must exist once
 *     truce_quarantine, truce_requests,
 *     truce_conflicts, X.revisions
 *     documents changed by commits,        the same: an _id is unique over all shards only if it is
 *     items, revisions                     the shard key, and a find-and-modify needs that key
 *     ordered sets, one document a key     the first fields of the set's key, in their order
 *     ordered sets, one per element        the same
 *
 * A sharded cluster finds the document of an update by its _id without the shard key, but not that
 * of a find-and-modify, which the journal and the items use. Transactions do not use it.
 */

static bool shards_is_id_alone(const bson_t *key)
{
    return bson_has_field(key, "_id") && bson_count_keys(key) == 1;
}

/* Returns whether the array has exactly one element. */
static bool is_key_alone(const bson_iter_t *fields)
{
    bson_iter_t iter;

    return bson_iter_recurse(fields, &iter) && bson_iter_next(&iter) && !bson_iter_next(&iter);
}

/* Returns whether the set's documents stay complete and unique. Its key must begin with the fields
 * of the shard key, in their order and not hashed: the unique index on the key then holds over all
 * shards. Or its only field is the hashed shard key: equal values are then on one shard. */
static bool fits_set(const bson_t *definition, const bson_t *key, bool by_element)
{
    bson_iter_t shard, field, keys;

    if (!bson_iter_init(&shard, key) || !bson_iter_init_find(&field, definition, "key") ||
        !bson_iter_recurse(&field, &keys))
        return false;
    while (bson_iter_next(&shard)) {
        const char *wanted = bson_iter_key(&shard);

        if (!BSON_ITER_HOLDS_NUMBER(&shard) &&
            (by_element || bson_count_keys(key) > 1 || !is_key_alone(&field)))
            /* The shard key is hashed. */
            return false;
        if (bson_iter_next(&keys)) {
            if (!BSON_ITER_HOLDS_UTF8(&keys) || strcmp(bson_iter_utf8(&keys, NULL), wanted) != 0)
                return false;
        } else if (!by_element || strcmp(truce__doctor_text(definition, "name", ""), wanted) != 0) {
            return false;
        } else {
            /* The name may be the last field only. */
            by_element = false;
        }
    }
    return true;
}

/* Returns whether the collection belongs to an ordered set and is sharded as its layout needs. */
static bool is_of_set(const struct doctor *doctor, const char *collection, const bson_t *key)
{
    bson_iter_t list, iter;

    if (!truce__doctor_fact(doctor->facts, "sets", &list) || !bson_iter_recurse(&list, &iter))
        return false;
    while (bson_iter_next(&iter)) {
        const uint8_t *bytes;
        uint32_t length;
        bson_t definition;
        const char *id;
        bool by_element;

        if (!BSON_ITER_HOLDS_DOCUMENT(&iter))
            continue;
        bson_iter_document(&iter, &length, &bytes);
        if (!bson_init_static(&definition, bytes, length))
            continue;
        /* The _id is "<collection>.<field>". */
        id = truce__doctor_text(&definition, "_id", "");
        by_element = !strcmp(truce__doctor_text(&definition, "layout", ""), "element");
        length = (uint32_t)strlen(collection);
        if ((by_element ? strcmp(id, collection)
                        : strncmp(id, collection, length) != 0 || id[length] != '.') == 0 &&
            fits_set(&definition, key, by_element))
            return true;
    }
    return false;
}

/* Reports a shard key that does not suit the collection: that of a reserved collection, or of one
 * that commits, sets, or items may use. */
static void diagnose_key(struct doctor *doctor, const char *collection, const bson_t *key)
{
    char *shown = bson_as_relaxed_extended_json(key, NULL);
    const char *text = shown ? shown : "{}";

    switch (truce__reserved_shards(collection)) {
    case SHARD_NEVER:
        truce__doctor_report(
            doctor, DOCTOR_ERROR, "shard-key", collection,
            "leave this collection unsharded: copy it to a database of its own "
            "primary shard, or unshardCollection (MongoDB 8.0)",
            "it is sharded by %s: no unique index over all shards can ensure that a key "
            "or a name of truce is used once",
            text);
        break;
    case SHARD_BY_ID:
        if (!shards_is_id_alone(key))
            truce__doctor_report(
                doctor, DOCTOR_ERROR, "shard-key", collection,
                "reshard it by {_id: \"hashed\"}, or leave it unsharded",
                "it is sharded by %s, but its documents are created once and found by "
                "their _id",
                text);
        break;
    case SHARD_FREE:
        if (!shards_is_id_alone(key) && !is_of_set(doctor, collection, key))
            truce__doctor_report(
                doctor, DOCTOR_WARNING, "shard-key", collection,
                "right for an ordered set whose key begins with these fields; reshard "
                "collections that commits, items, or revisions change by {_id: \"hashed\"}",
                "it is sharded by %s. An _id is then unique within one shard only, and a "
                "find-and-modify by _id, which the journal and items need, may be "
                "refused",
                text);
        break;
    }
    bson_free(shown);
}

/* Examines the shard key of a collection. `skip` is the length of the name of the database with its
 * dot. */
static void diagnose_collection(struct doctor *doctor, const bson_iter_t *iter, size_t skip)
{
    const char *name = NULL;
    const uint8_t *bytes;
    uint32_t length;
    bson_iter_t field;
    bson_t key = BSON_INITIALIZER;

    if (!bson_iter_recurse(iter, &field))
        return;
    while (bson_iter_next(&field)) {
        if (!strcmp(bson_iter_key(&field), "_id") && BSON_ITER_HOLDS_UTF8(&field)) {
            name = bson_iter_utf8(&field, NULL);
        } else if (!strcmp(bson_iter_key(&field), "key") && BSON_ITER_HOLDS_DOCUMENT(&field)) {
            bson_iter_document(&field, &length, &bytes);
            if (!bson_init_static(&key, bytes, length))
                return;
        }
    }
    if (name && strlen(name) > skip)
        diagnose_key(doctor, name + skip, &key);
}

void truce__doctor_shards(struct doctor *doctor)
{
    size_t skip = strlen(truce__doctor_text(doctor->facts, "database", "")) + 1;
    bson_iter_t list, iter;
    int count = 0;

    if (!truce__doctor_fact(doctor->facts, "sharded", &list) || !BSON_ITER_HOLDS_ARRAY(&list) ||
        !bson_iter_recurse(&list, &iter))
        return;
    for (; bson_iter_next(&iter); count++)
        diagnose_collection(doctor, &iter, skip);
    if (!count)
        truce__doctor_report(doctor, DOCTOR_NOTE, "shard-key",
                             truce__doctor_text(doctor->facts, "database", "the database"),
                             "shard the collections that outgrow one shard (docs/mongodb.md)",
                             "none of its collections is sharded: all data is on one shard");
}

/* ---- files ----------------------------------------------------------------------------------- */

/*
 * An embedded store: the file, its disk, and its file system.
 *
 * truce's guarantees need locks between processes and fsync. On a network file system, another
 * machine provides them, and they may be missing or late.
 */

#define MEGABYTE INT64_C(1048576)
/* Less free space on the disk is reported. */
#define SPACE_LEAST (64 * MEGABYTE)
#define HOUR_MS     INT64_C(3600000)
/* Servers and writers prune the feed at least once in this many milliseconds. */
#define FEED_LATE_MS (10 * 60000)
/* A process that holds the write lock for longer is reported. */
#define WRITER_LATE_MS 10000
/* An archive that lags behind the commits for longer is reported. */
#define ARCHIVE_LATE_MS 10000
/* A longer log is reported. It is sixteen times the size at which a checkpoint begins. */
#define WAL_MOST (256 * MEGABYTE)

/* Examines the type of the file system: whether its locks and fsync are reliable, and whether it
 * survives a restart. */
static void diagnose_filesystem(struct doctor *doctor, const char *path)
{
    const char *name = truce__doctor_text(doctor->facts, "filesystem.name", NULL);

    if (!truce__doctor_number(doctor->facts, "filesystem.type", 0))
        return;
    if (!name)
        truce__doctor_report(doctor, DOCTOR_NOTE, "file-system", path,
                             "make sure that its locks hold between processes, and that fsync "
                             "reaches the disk",
                             "the type of the file system is unknown (0x%llx)",
                             (long long)truce__doctor_number(doctor->facts, "filesystem.type", 0));
    else if (!truce__doctor_flag(doctor->facts, "filesystem.local", true))
        truce__doctor_report(
            doctor, DOCTOR_ERROR, "file-system", path,
            "put the file on a disk of this machine, or use a server (mongodb://) "
            "if several machines share the store",
            "the file is on %s: its locks and fsync depend on another machine, and "
            "shared memory does not reach other machines",
            name);
    else if (!strcmp(name, "tmpfs") || !strcmp(name, "ramfs"))
        truce__doctor_report(doctor, DOCTOR_WARNING, "file-system", path,
                             "put the file on a disk, unless the data may be lost at a restart",
                             "the file is on %s, in memory; nothing survives a restart", name);
    else if (!strcmp(name, "overlay"))
        truce__doctor_report(doctor, DOCTOR_NOTE, "file-system", path, "put the file on a volume",
                             "the file is on a container's own layer, which is removed with it");
}

/* Examines the free space of the disk. Too little for further writes is an error. Less than 5
 * percent of the disk, and less than the size of the file, is a warning. */
static void diagnose_space(struct doctor *doctor, const char *path)
{
    int64_t free = truce__doctor_number(doctor->facts, "space.free", -1);
    int64_t total = truce__doctor_number(doctor->facts, "space.total", 0);
    int64_t bytes = truce__doctor_number(doctor->facts, "file.bytes", 0);

    if (free < 0 || total <= 0)
        return;
    if (free < SPACE_LEAST)
        truce__doctor_report(doctor, DOCTOR_ERROR, "disk-space", path, "free space on the disk",
                             "%lld MB are free: writes will fail soon",
                             (long long)(free / MEGABYTE));
    else if (free < total / 20 && free < bytes)
        truce__doctor_report(
            doctor, DOCTOR_WARNING, "disk-space", path, "free space on the disk",
            "%lld MB are free, less than 5 %% of the disk and less than the size of the file",
            (long long)(free / MEGABYTE));
}

/* Examines the size of the log, the permissions of the file and its directory, and whether the lock
 * file exists. */
static void diagnose_files(struct doctor *doctor, const char *path)
{
    int64_t mode = truce__doctor_number(doctor->facts, "file.mode", 0);
    int64_t wal = truce__doctor_number(doctor->facts, "wal.bytes", 0);
    bson_iter_t found;

    if (wal > WAL_MOST)
        truce__doctor_report(
            doctor, DOCTOR_WARNING, "wal", path,
            "find a process with a long read, or one that is stopped: the log is reused when no "
            "process reads its beginning",
            "the write-ahead log has grown to %lld MB", (long long)(wal / MEGABYTE));
    if (mode & 002)
        truce__doctor_report(doctor, DOCTOR_WARNING, "permissions", path,
                             "chmod o-w the file and its side files (-wal, -shm, -lock)",
                             "every user of this machine may write to the file");
    if (!truce__doctor_flag(doctor->facts, "file.writable", true))
        truce__doctor_report(doctor, DOCTOR_WARNING, "permissions", path,
                             "give this user write permission, if it has to write",
                             "this user may not write to the file");
    else if (!truce__doctor_flag(doctor->facts, "directory.writable", true))
        truce__doctor_report(
            doctor, DOCTOR_WARNING, "permissions", path,
            "give this user write permission for the directory",
            "this user may not write to the directory, in which the files -wal, -shm, and -lock "
            "are created");
    if (truce__doctor_fact(doctor->facts, "file", &found) &&
        !truce__doctor_fact(doctor->facts, "lock", &found) &&
        !truce__doctor_flag(doctor->facts, "read_only", false))
        truce__doctor_report(doctor, DOCTOR_ERROR, "lock-file", path,
                             "close the store in every program, and open it again; never delete "
                             "the -lock file of a store in use",
                             "the lock file was removed while the store is open: writes, and "
                             "processes that open the store, are refused");
}

/* The size of the text "process N". */
#define PROCESS_BYTES 40

/* Writes the subject of a finding about a process. */
static const char *doctor_process(int64_t process, char subject[PROCESS_BYTES])
{
    snprintf(subject, PROCESS_BYTES, "process %lld", (long long)process);
    return subject;
}

/* Examines open reads that pin the log. */
static void diagnose_pins(struct doctor *doctor)
{
    bson_iter_t iter, pin;
    bson_t document;

    if (!truce__doctor_fact(doctor->facts, "pins", &iter) || !bson_iter_recurse(&iter, &pin))
        return;
    while (bson_iter_next(&pin)) {
        const uint8_t *data;
        int64_t bytes;
        uint32_t size;
        char subject[PROCESS_BYTES];

        bson_iter_document(&pin, &size, &data);
        if (!bson_init_static(&document, data, size))
            continue;
        bytes = truce__doctor_number(&document, "bytes", 0);
        truce__doctor_report(
            doctor, bytes > WAL_MOST ? DOCTOR_WARNING : DOCTOR_NOTE, "pinned",
            doctor_process(truce__doctor_number(&document, "process", 0), subject),
            "wait until the process ends, or end it: the log is reused when no process reads its "
            "beginning",
            "%s open (%lld of them without a maximum), the oldest for %lld s; %lld MB were written "
            "since then and are kept",
            PLURAL(truce__doctor_number(&document, "reads", 0), "cursor or snapshot is",
                   "cursors and snapshots are"),
            (long long)truce__doctor_number(&document, "unlimited", 0),
            (long long)(truce__doctor_number(&document, "age_ms", 0) / 1000),
            (long long)(bytes / MEGABYTE));
    }
}

/* Examines how long a process has held the lock to write. */
static void diagnose_writer(struct doctor *doctor)
{
    int64_t held_ms = truce__doctor_number(doctor->facts, "writer.held_ms", 0);
    int64_t process = truce__doctor_number(doctor->facts, "writer.process", 0);
    char subject[PROCESS_BYTES];

    if (held_ms < WRITER_LATE_MS)
        return;
    truce__doctor_report(doctor, DOCTOR_WARNING, "long-write", doctor_process(process, subject),
                         "wait until the process ends, or end it: its write is then undone",
                         "it has held the lock of the file for %lld s: no other process can write",
                         (long long)(held_ms / 1000));
}

/* Examines the change feed. If no process writes to, serves, or sweeps a file, its entries are
 * stored for too long. */
static void diagnose_feed(struct doctor *doctor, const char *path)
{
    int64_t entries = truce__doctor_number(doctor->facts, "feed.entries", -1);
    int64_t bytes = truce__doctor_number(doctor->facts, "feed.bytes", 0);
    int64_t age_ms = truce__doctor_number(doctor->facts, "feed.age_ms", 0);
    int64_t keep_ms = truce__doctor_number(doctor->facts, "feed.keep_ms", 0);
    bool late = entries > 1 && age_ms > keep_ms + FEED_LATE_MS;

    if (entries < 0)
        return;
    truce__doctor_report(doctor, late ? DOCTOR_WARNING : DOCTOR_NOTE, "changes", path,
                         late ? "run truce sweep regularly while no server serves the file"
                              : "none; truce serve --feed-keep 0 ends it, if no client watches any "
                                "more",
                         "%s kept for change streams, %lld kB, the oldest for %.1f of %.1f hours",
                         PLURAL(entries, "change is", "changes are"), (long long)(bytes / 1024),
                         (double)age_ms / HOUR_MS, (double)keep_ms / HOUR_MS);
}

/* Examines how much of the log an archiver has not archived yet. */
static void diagnose_archive(struct doctor *doctor)
{
    int64_t process = truce__doctor_number(doctor->facts, "archive.process", -1);
    int64_t behind_ms = truce__doctor_number(doctor->facts, "archive.behind_ms", 0);
    int64_t failing_ms = truce__doctor_number(doctor->facts, "archive.failing_ms", 0);
    bool pins = truce__doctor_flag(doctor->facts, "archive.pins", true);
    bool late = failing_ms || behind_ms > ARCHIVE_LATE_MS || !pins;
    char subject[PROCESS_BYTES];

    if (process < 0)
        return;
    truce__doctor_report(
        doctor, late ? DOCTOR_WARNING : DOCTOR_NOTE, "archive",
        process ? doctor_process(process, subject) : "no process",
        !process ? "start the archiver again"
        : late   ? "see the output of truce archive, and repair the target"
                 : "none; run truce archive verify regularly",
        "the archive has commit %lld of generation %lld and is %.1f s and %lld kB "
        "behind%s%s%s",
        (long long)truce__doctor_number(doctor->facts, "archive.commit", 0),
        (long long)truce__doctor_number(doctor->facts, "archive.generation", 0),
        (double)behind_ms / 1000,
        (long long)(truce__doctor_number(doctor->facts, "archive.behind_bytes", 0) / 1024),
        failing_ms ? "; its target fails" : "", pins ? "" : "; the log is not kept for it",
        process ? "" : "; the archiver died");
}

void truce__doctor_file(struct doctor *doctor)
{
    const char *path = truce__doctor_text(doctor->facts, "path", "the file");

    if (strcmp(truce__doctor_text(doctor->facts, "store", ""), "file") != 0)
        return;
    diagnose_filesystem(doctor, path);
    diagnose_space(doctor, path);
    diagnose_files(doctor, path);
    diagnose_pins(doctor);
    diagnose_archive(doctor);
    diagnose_writer(doctor);
    diagnose_feed(doctor, path);
}

/* ---- patterns -------------------------------------------------------------------------------- */

/*
 * The requirements of copies, transfers, and trees.
 *
 *     truce_sync        the indexes that the declaration of a rule created exist: dependents are
 *                       found by their reference, and flags by sweeps; the source collection exists
 *     truce_transfers   a book finds stalled transfers by its index; none is stalled for too long
 *     truce_trees       a unique index refuses an item that is put twice; versions are completed;
 *                       a branch has its origin; drops end
 */

/* Work that another process should have done is reported this long after it was due. */
#define LATE_MS INT64_C(60000)

/* Checks that the collection has the index. Sets `*there` to false if the collection does not
 * exist. */
static truce_status need_index(struct doctor *doctor, truce_store *store, const char *collection,
                               const char *field, const char *why, bool *there, bson_error_t *error)
{
    bson_t indexes;
    truce_status status = truce_index_list(store, collection, &indexes, error);
    char change[300];

    *there = status != TRUCE_NOT_FOUND;
    if (!status && !doctor_has_index(&indexes, field)) {
        snprintf(change, sizeof change, "create the index {%.200s: 1}", field);
        truce__doctor_report(doctor, DOCTOR_WARNING, "pattern-index", collection, change,
                             "no index begins with \"%s\", by which %s", field, why);
    }
    bson_destroy(&indexes);
    return status == TRUCE_NOT_FOUND || status == TRUCE_INVALID ? TRUCE_OK : status;
}

/* Looks for a flag that a running process clears at its end. Reports a note only, because such a
 * process may be running now. */
static truce_status doctor_check_flag(struct doctor *doctor, truce_store *store,
                                      const char *collection, const char *flag, const char *one,
                                      const char *many, bson_error_t *error)
{
    bson_t *filter = BCON_NEW(flag, "{", "$exists", BCON_BOOL(true), "}");
    int64_t count = 0;
    truce_status status = truce_count(store, collection, filter, NULL, &count, error);

    if (!status && count)
        truce__doctor_report(doctor, DOCTOR_NOTE, "unfinished-copies", collection,
                             "run truce sweep", "%s", PLURAL(count, one, many));
    bson_destroy(filter);
    return status;
}

/* Looks for requests that are due and that no process executes. */
static truce_status doctor_check_requests(struct doctor *doctor, truce_store *store,
                                          bson_error_t *error)
{
    bson_t *filter = BCON_NEW("state", BCON_UTF8("waiting"), "due", "{", "$lt",
                              BCON_DATE_TIME(truce__clock_wall_ms() - LATE_MS), "}");
    int64_t count = 0;
    truce_status status = truce_count(store, REQUESTS, filter, NULL, &count, error);

    if (!status && count)
        truce__doctor_report(doctor, DOCTOR_WARNING, "late-requests", REQUESTS,
                             "run the program that handles them (truce_request_run, truce request "
                             "run)",
                             "%s overdue by more than a minute: no process runs %s",
                             PLURAL(count, "request is", "requests are"),
                             count == 1 ? "it" : "them");
    bson_destroy(filter);
    return status;
}

/* Examines one rule of copies: its source collection, the indexes that it needs, and documents
 * whose copies are not up to date. */
static truce_status doctor_check_rule(struct doctor *doctor, truce_store *store, const bson_t *rule,
                                      bson_error_t *error)
{
    const char *source = truce__field_text(rule, "source"),
               *dependent = truce__field_text(rule, "dependent"),
               *reference = truce__field_text(rule, "reference");
    bool there;
    truce_status status = need_index(doctor, store, source, "syncing",
                                     "a sweep finds interrupted changes", &there, error);

    if (!status && !there)
        truce__doctor_report(doctor, DOCTOR_WARNING, "copies-source", source,
                             "drop the rule (truce sync drop), or restore the collection",
                             "the rule %s copies from this collection, which does not exist",
                             truce__field_text(rule, "_id"));
    if (!status)
        status = need_index(doctor, store, dependent, "unchecked",
                            "a sweep finds copies that were not compared", &there, error);
    if (!status && there && strcmp(reference, "_id") != 0)
        status = need_index(doctor, store, dependent, reference,
                            "each change of a source finds its copies", &there, error);
    if (!status)
        status = doctor_check_flag(doctor, store, source, "syncing",
                                   "document has changed, and not all copies are updated",
                                   "documents have changed, and not all copies are updated", error);
    if (!status)
        status = doctor_check_flag(doctor, store, dependent, "unchecked",
                                   "document has copies that were not compared",
                                   "documents have copies that were not compared", error);
    return status;
}

/* Examines one book of transfers: its index, and transfers that a sweep should have resumed. */
static truce_status doctor_check_book(struct doctor *doctor, truce_store *store, const bson_t *book,
                                      bson_error_t *error)
{
    const char *name = truce__field_text(book, "_id");
    int64_t before_ms = truce__clock_wall_ms() - truce__field_count(book, "resume_ms") - LATE_MS,
            still = 0;
    bson_t *filter = BCON_NEW("state", "{", "$in", "[", BCON_UTF8("pending"),
                              BCON_UTF8("committed"), BCON_UTF8("applied"), BCON_UTF8("canceling"),
                              "]", "}", "lastModified", "{", "$lt", BCON_DATE_TIME(before_ms), "}");
    bool there;
    truce_status status = need_index(doctor, store, name, "state",
                                     "a sweep finds interrupted transfers", &there, error);

    if (!status)
        status = truce_count(store, name, filter, NULL, &still, error);
    if (!status && still)
        truce__doctor_report(doctor, DOCTOR_WARNING, "unfinished-transfers", name,
                             "run truce sweep", "%s interrupted for longer than the book allows",
                             PLURAL(still, "transfer is", "transfers are"));
    bson_destroy(filter);
    return status;
}

/* Returns whether this is the unique index of the items of a tree. */
static bool is_item_index(bson_iter_t index)
{
    static const char *const fields[] = {"tree", "itemId", "version", "token"};
    bson_iter_t key;
    bool unique = false, right = false;

    while (bson_iter_next(&index)) {
        if (!strcmp(bson_iter_key(&index), "unique"))
            unique = bson_iter_as_bool(&index);
        if (strcmp(bson_iter_key(&index), "key") != 0 || !bson_iter_recurse(&index, &key))
            continue;
        right = true;
        for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
            right = right && bson_iter_next(&key) && !strcmp(bson_iter_key(&key), fields[i]);
        right = right && !bson_iter_next(&key);
    }
    return unique && right;
}

/* Reports an error if the collection of a tree lacks the unique index of its items. */
static truce_status need_item_index(struct doctor *doctor, truce_store *store,
                                    const char *collection, bson_error_t *error)
{
    bson_t indexes;
    bson_iter_t iter, index;
    bool kept = false;
    truce_status status = truce_index_list(store, collection, &indexes, error);

    if (!status && bson_iter_init(&iter, &indexes)) {
        while (bson_iter_next(&iter))
            kept = kept || (bson_iter_recurse(&iter, &index) && is_item_index(index));
    }
    if (!status && !kept)
        truce__doctor_report(
            doctor, DOCTOR_ERROR, "tree-index", collection,
            "create the unique index {tree: 1, itemId: 1, version: 1, token: 1}",
            "the unique index is missing, so one version can contain an item twice");
    bson_destroy(&indexes);
    return status == TRUCE_NOT_FOUND || status == TRUCE_INVALID ? TRUCE_OK : status;
}

/* Reports a branch whose origin does not exist. */
static truce_status need_origin(struct doctor *doctor, truce_store *store, const bson_t *tree,
                                bson_error_t *error)
{
    bson_t from, found, *filter;
    truce_status status;

    if (!truce__value_subdocument(tree, "from", &from))
        return TRUCE_OK;
    filter = BCON_NEW("_id", BCON_UTF8(truce__field_text(&from, "tree")));
    status = truce_find_one(store, TREES, filter, NULL, &found, error);
    if (status == TRUCE_NOT_FOUND)
        truce__doctor_report(doctor, DOCTOR_WARNING, "tree-origin", TREES,
                             "restore the origin, or continue without merging",
                             "the tree \"%s\" is a branch of %s, which does not exist",
                             truce__field_text(tree, "_id"), truce__field_text(&from, "tree"));
    bson_destroy(&found);
    bson_destroy(filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Examines one tree: an unfinished drop, versions that are not completed, its index, and its
 * origin. */
static truce_status doctor_check_tree(struct doctor *doctor, truce_store *store, const bson_t *tree,
                                      bson_error_t *error)
{
    int64_t unsettled = truce__field_count(tree, "current") - truce__field_count(tree, "settled");
    truce_status status;

    if (bson_has_field(tree, "dropped")) {
        truce__doctor_report(doctor, DOCTOR_WARNING, "tree-dropped", TREES, "run truce sweep",
                             "the tree \"%s\" was dropped, but parts of it remain",
                             truce__field_text(tree, "_id"));
        return TRUCE_OK;
    }
    if (unsettled > 2 * TREE_UNSETTLED)
        truce__doctor_report(
            doctor, DOCTOR_WARNING, "unsettled-versions", TREES, "run truce sweep",
            "%s not completed in the tree \"%s\": each read of its master carries their tokens",
            PLURAL(unsettled, "version is", "versions are"), truce__field_text(tree, "_id"));
    status = need_item_index(doctor, store, truce__field_text(tree, "collection"), error);
    return status ? status : need_origin(doctor, store, tree, error);
}

typedef truce_status doctor_check_function(struct doctor *doctor, truce_store *store,
                                           const bson_t *document, bson_error_t *error);

/* Calls the function for each document of a collection, until one call fails. */
static truce_status doctor_check_each(struct doctor *doctor, truce_store *store,
                                      const char *collection, doctor_check_function *check,
                                      bson_error_t *error)
{
    static const bson_t everything = BSON_INITIALIZER;
    truce_cursor *cursor = NULL;
    const bson_t *document;
    truce_status status = truce_find(store, collection, &everything, NULL, &cursor, error);

    while (!status) {
        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        status = check(doctor, store, document, error);
    }
    if (cursor)
        truce_cursor_close(cursor);
    return status;
}

/* Examines copies, transfers, and trees. */
static truce_status truce__doctor_patterns(struct doctor *doctor, truce_store *store,
                                           bson_error_t *error)
{
    truce_status status = doctor_check_requests(doctor, store, error);

    if (!status)
        status = doctor_check_each(doctor, store, SYNC_RULES, doctor_check_rule, error);
    if (!status)
        status = doctor_check_each(doctor, store, TRANSFERS, doctor_check_book, error);
    return status ? status : doctor_check_each(doctor, store, TREES, doctor_check_tree, error);
}

/* ---- queues ---------------------------------------------------------------------------------- */

/*
 * Job queues: jobs, leases, and cron entries that no process works on. Claims and sweeps normally
 * handle them, so a job that is late by a minute means that no process claims from its queue and
 * none sweeps.
 *
 *     ready jobs without a worker, pauses, dead letters     the figures of all queues
 *     leases that ended, jobs that are due or blocked       counted by the index of live jobs
 *     lanes and workflows that stopped halfway              their flag
 *     cron entries that are late or paused                  the entries themselves
 *     a rate whose time is far ahead                        the rate limiters
 *     the index of live jobs                                that of the collection
 *
 * A queue is active if the lease of a running job has not ended more than LATE_MS ago, or if a job
 * ended within RECENT_MS.
 */

/* A queue is active for this long after a job has ended. */
#define RECENT_MS INT64_C(300000)
#define DAY_MS    INT64_C(86400000)
/* The deadline of one read of the jobs, in milliseconds. */
#define SCAN_MS 5000
/* The maximum number of late cron entries that are reported. */
#define CRONS_REPORTED 100

/* ---- figures --------------------------------------------------------------------------------- */

static bool queues_is_there(truce_store *store, bson_t *filter)
{
    const truce_find_options options = {.deadline_ms = SCAN_MS};
    bson_t found;
    truce_status status = truce_find_one(store, QUEUE, filter, &options, &found, NULL);

    bson_destroy(&found);
    bson_destroy(filter);
    return !status;
}

static bool is_at_work(truce_store *store, const char *queue)
{
    int64_t now_ms = truce__clock_wall_ms();

    return queues_is_there(store, BCON_NEW("undone.state", BCON_UTF8("running"), "undone.queue",
                                           BCON_UTF8(queue), "undone.at", "{", "$gt",
                                           BCON_DATE_TIME(now_ms - LATE_MS), "}")) ||
           queues_is_there(store, BCON_NEW("queue", BCON_UTF8(queue), "ended", "{", "$gt",
                                           BCON_DATE_TIME(now_ms - RECENT_MS), "}"));
}

/* Returns the name as advice shows it: a name that a shell would split or expand is QUEUE. */
static const char *queues_shown(const char *queue)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:";

    return *queue && !queue[strspn(queue, plain)] ? queue : "QUEUE";
}

/* Examines one queue: dead letters, a pause, and ready jobs without a worker. */
static void queues_check_queue(struct doctor *doctor, truce_store *store, const bson_t *figures)
{
    const char *queue = truce__doctor_text(figures, "queue", "");
    int64_t dead = truce__doctor_number(figures, "dead", 0),
            ready = truce__doctor_number(figures, "ready", 0),
            others = truce__doctor_number(figures, "delayed", 0) +
                     truce__doctor_number(figures, "waiting", 0) +
                     truce__doctor_number(figures, "blocked", 0),
            waited_ms = truce__doctor_number(figures, "oldest_ms", 0);
    const char *shown = queues_shown(queue);
    char advice[200 + 2 * QUEUE_NAME_BYTES_MAX];

    if (dead) {
        snprintf(
            advice, sizeof advice,
            "find the reason (truce queue list %s --state dead), then truce queue redrive %s, or "
            "truce queue discard ID",
            shown, shown);
        truce__doctor_report(doctor, DOCTOR_WARNING, "dead-letters", queue, advice, "%s",
                             PLURAL(dead, "job is a dead letter", "jobs are dead letters"));
    }
    if (truce__doctor_flag(figures, "paused", false) && ready + others) {
        snprintf(advice, sizeof advice, "truce queue resume %s", shown);
        truce__doctor_report(doctor, DOCTOR_NOTE, "paused-queue", queue, advice,
                             "the queue is paused, and %s ready, %lld delayed, waiting or blocked",
                             PLURAL(ready, "job is", "jobs are"), (long long)others);
    } else if (ready && waited_ms > LATE_MS && !is_at_work(store, queue)) {
        snprintf(advice, sizeof advice, "start a worker (truce work --queue %s)", shown);
        truce__doctor_report(
            doctor, DOCTOR_WARNING, "idle-queue", queue, advice,
            "%s ready, the oldest for %s. None is running, and none has ended in the "
            "last %s",
            PLURAL(ready, "job is", "jobs are"), PLURAL(waited_ms / 60000, "minute", "minutes"),
            PLURAL(RECENT_MS / 60000, "minute", "minutes"));
    }
}

/* Examines the figures of each queue. */
static truce_status doctor_check_queues(struct doctor *doctor, truce_store *store,
                                        bson_error_t *error)
{
    bson_iter_t iter;
    bson_t stats;
    truce_status status = truce_queue_stats(store, &stats, error);

    if (!status && bson_iter_init(&iter, &stats)) {
        while (bson_iter_next(&iter)) {
            const uint8_t *data;
            uint32_t size;
            bson_t figures;

            bson_iter_document(&iter, &size, &data);
            if (bson_init_static(&figures, data, size))
                queues_check_queue(doctor, store, &figures);
        }
    }
    bson_destroy(&stats);
    return status;
}

/* ---- late work ------------------------------------------------------------------------------- */

/* Returns a filter for the live jobs in `state` whose time is `compared` to `at_ms` ("$lt", for
 * example). */
static bson_t *jobs_by_time(const char *state, const char *compared, int64_t at_ms)
{
    return BCON_NEW("undone.state", BCON_UTF8(state), "undone.at", "{", compared,
                    BCON_DATE_TIME(at_ms), "}");
}

struct late {
    const char *rule, *collection;
    enum doctor_level level;
    /* The filter of the documents that are counted. */
    bson_t *filter;
    const char *change;
    /* The parts of the finding: "1 job is" or "2 jobs are", and then the rest. */
    const char *one, *many, *rest;
};

/* Reports one finding if documents match. Destroys the filter. */
static truce_status doctor_check_late(struct doctor *doctor, truce_store *store,
                                      const struct late *late, bson_error_t *error)
{
    int64_t count = 0;
    truce_status status = truce_count(store, late->collection, late->filter, NULL, &count, error);

    if (!status && count)
        truce__doctor_report(doctor, late->level, late->rule, late->collection, late->change,
                             "%s%s", PLURAL(count, late->one, late->many), late->rest);
    bson_destroy(late->filter);
    return status;
}

#define SWEEPS "start a worker of their queue, or run truce sweep regularly (truce sweep --loop)"

/* Counts the jobs, lanes, limits, and cron entries that no process works on, one count for each
 * rule. */
static truce_status doctor_check_jobs(struct doctor *doctor, truce_store *store,
                                      bson_error_t *error)
{
    int64_t now_ms = truce__clock_wall_ms();
    const struct late all[] = {
        {"ended-leases", QUEUE, DOCTOR_WARNING, jobs_by_time("running", "$lt", now_ms - LATE_MS),
         SWEEPS, "job is", "jobs are",
         " running with a lease that ended over a minute ago: the worker died, and no process "
         "releases its jobs"},
        {"far-leases", QUEUE, DOCTOR_NOTE, jobs_by_time("running", "$gt", now_ms + 2 * DAY_MS),
         "set the clocks of the workers", "job is", "jobs are",
         " running with a lease of more than two days: a worker's clock is ahead"},
        {"late-jobs", QUEUE, DOCTOR_WARNING, jobs_by_time("delayed", "$lt", now_ms - LATE_MS),
         SWEEPS, "delayed job is", "delayed jobs are",
         " overdue by a minute: no process works on the queue, and none sweeps"},
        {"blocked-jobs", QUEUE, DOCTOR_NOTE, jobs_by_time("blocked", "$lt", now_ms - HOUR_MS),
         "find the jobs they wait for (truce queue list --state blocked, truce queue graph ID); "
         "close batches (truce queue close)",
         "job is", "jobs are",
         " blocked for more than an hour by unfinished jobs, or by a batch that is open"},
        {"stalled-flows", QUEUE, DOCTOR_WARNING, BCON_NEW("stalled", BCON_BOOL(true)), SWEEPS,
         "job has", "jobs have", " ended, but not all waiting jobs were released"},
        {"stalled-lanes", QUEUE_LANES, DOCTOR_WARNING, BCON_NEW("stalled", BCON_BOOL(true)), SWEEPS,
         "lane has", "lanes have", " capacity, but jobs still wait"},
        {"rate-ahead", QUEUE_LIMITERS, DOCTOR_WARNING,
         BCON_NEW("at", "{", "$gt", BCON_DATE_TIME(now_ms + DAY_MS), "}"),
         "set the clocks of the workers, then set the limits again (truce queue limit)",
         "limit has", "limits have",
         " a time that is a day ahead: a worker's clock was wrong, and workers that claim once and "
         "end get no job"},
        {"cron-ahead", QUEUE_CRONS, DOCTOR_WARNING,
         BCON_NEW("last", "{", "$gt", BCON_DATE_TIME(now_ms + DAY_MS), "}"),
         "set the clocks of the workers, then truce cron pause NAME and truce cron resume NAME",
         "cron line has", "cron lines have",
         " fired for a time that is more than a day ahead: a worker's clock was wrong, and the "
         "next job comes after that time"},
        {"paused-cron", QUEUE_CRONS, DOCTOR_NOTE, BCON_NEW("paused", BCON_BOOL(true)),
         "truce cron resume NAME", "cron line is", "cron lines are", " paused"},
    };
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!status)
            status = doctor_check_late(doctor, store, &all[i], error);
        else
            bson_destroy(all[i].filter);
    }
    return status;
}

static void diagnose_cron(struct doctor *doctor, const bson_t *cron)
{
    int64_t late_ms = truce__clock_wall_ms() - truce__doctor_number(cron, "next", 0);

    truce__doctor_report(
        doctor, DOCTOR_WARNING, "late-cron", truce__doctor_text(cron, "_id", "?"),
        "start a worker of the queue, or run truce sweep regularly (truce sweep "
        "--loop)",
        "the cron line is late by %lld s: no worker claims from its queue \"%s\", and no process "
        "runs truce sweep",
        (long long)(late_ms / 1000), truce__doctor_text(cron, "job.queue", "?"));
}

/* Reports cron entries that are late, at most CRONS_REPORTED of them. */
static truce_status doctor_check_crons(struct doctor *doctor, truce_store *store,
                                       bson_error_t *error)
{
    bson_t *filter =
               BCON_NEW("next", "{", "$lt", BCON_DATE_TIME(truce__clock_wall_ms() - LATE_MS), "}"),
           *sort = BCON_NEW("_id", BCON_INT32(1));
    truce_find_options options = {.sort = sort, .limit = CRONS_REPORTED};
    truce_cursor *cursor = NULL;
    const bson_t *cron = NULL;
    truce_status status = truce_find(store, QUEUE_CRONS, filter, &options, &cursor, error);

    while (!status && !(status = truce_cursor_next(cursor, &cron, error)) && cron)
        diagnose_cron(doctor, cron);
    truce_cursor_close(cursor);
    bson_destroy(sort);
    bson_destroy(filter);
    return status;
}

/* ---- the index ------------------------------------------------------------------------------- */

static bool is_of_live_jobs(bson_iter_t *index)
{
    static const char *const fields[] = {"undone.state", "undone.queue", "undone.rank",
                                         "undone.at"};
    bson_iter_t field, key;

    if (!bson_iter_recurse(index, &field) || !bson_iter_find(&field, "key") ||
        !bson_iter_recurse(&field, &key))
        return false;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!bson_iter_next(&key) || strcmp(bson_iter_key(&key), fields[i]) != 0)
            return false;
    return true;
}

/* Reports that the index of live jobs is missing. */
static truce_status doctor_check_index(struct doctor *doctor, truce_store *store,
                                       bson_error_t *error)
{
    bson_iter_t iter;
    bson_t indexes;
    bool found = false;
    truce_status status = truce_index_list(store, QUEUE, &indexes, error);

    for (bool some = !status && bson_iter_init(&iter, &indexes); some && bson_iter_next(&iter);)
        found |= is_of_live_jobs(&iter);
    if (!status && !found)
        truce__doctor_report(
            doctor, DOCTOR_WARNING, "job-index", QUEUE,
            "start any worker, or run truce sweep: both create it",
            "the index of live jobs is missing: each claim reads all jobs, including jobs "
            "that have ended");
    bson_destroy(&indexes);
    return status;
}

/* Examines the job queues. */
static truce_status truce__doctor_queues(struct doctor *doctor, truce_store *store,
                                         bson_error_t *error)
{
    bson_t job;
    truce_status status = truce_find_one(store, QUEUE, NULL, NULL, &job, error);

    bson_destroy(&job);
    if (!status)
        status = doctor_check_index(doctor, store, error);
    if (!status)
        status = doctor_check_queues(doctor, store, error);
    if (status && status != TRUCE_NOT_FOUND)
        return status;
    /* Cron entries may exist before any job. */
    status = doctor_check_jobs(doctor, store, error);
    return status ? status : doctor_check_crons(doctor, store, error);
}

/* ---- the doctor ------------------------------------------------------------------------------ */

/* One day more than truce sweep keeps commits. */
#define OLD_MS (INT64_C(8) * 86400000)

void truce__doctor_report(struct doctor *doctor, enum doctor_level level, const char *rule,
                          const char *subject, const char *change, const char *format, ...)
{
    static const char *const names[] = {"note", "warning", "error"};
    int64_t *const counts[] = {&doctor->report->notes, &doctor->report->warnings,
                               &doctor->report->errors};
    bson_t finding = BSON_INITIALIZER;
    char text[700];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    BSON_APPEND_UTF8(&finding, "level", names[level]);
    BSON_APPEND_UTF8(&finding, "rule", rule);
    BSON_APPEND_UTF8(&finding, "subject", subject);
    BSON_APPEND_UTF8(&finding, "text", text);
    BSON_APPEND_UTF8(&finding, "change", change);
    ++*counts[level];
    if (doctor->function)
        doctor->function(&finding, doctor->arg);
    bson_destroy(&finding);
}

/* ---- facts ---------------------------------------------------------------------------------- */

bool truce__doctor_fact(const bson_t *facts, const char *path, bson_iter_t *found)
{
    bson_iter_t iter;

    return bson_iter_init(&iter, facts) && bson_iter_find_descendant(&iter, path, found);
}

const char *truce__doctor_text(const bson_t *facts, const char *path, const char *otherwise)
{
    bson_iter_t found;

    return truce__doctor_fact(facts, path, &found) && BSON_ITER_HOLDS_UTF8(&found)
               ? bson_iter_utf8(&found, NULL)
               : otherwise;
}

int64_t truce__doctor_number(const bson_t *facts, const char *path, int64_t otherwise)
{
    bson_iter_t found;

    if (!truce__doctor_fact(facts, path, &found))
        return otherwise;
    if (BSON_ITER_HOLDS_DOUBLE(&found)) {
        double number = bson_iter_double(&found);

        return number > -9e15 && number < 9e15 ? (int64_t)number : otherwise;
    }
    if (BSON_ITER_HOLDS_DATE_TIME(&found))
        return truce__iter_date(&found);
    return BSON_ITER_HOLDS_INT(&found) ? bson_iter_as_int64(&found) : otherwise;
}

bool truce__doctor_flag(const bson_t *facts, const char *path, bool otherwise)
{
    bson_iter_t found;

    return truce__doctor_fact(facts, path, &found) ? bson_iter_as_bool(&found) : otherwise;
}

/* ---- collections ---------------------------------------------------------------------------- */

static bool doctor_has_index(const bson_t *indexes, const char *field)
{
    bson_iter_t iter, index, key;

    if (!bson_iter_init(&iter, indexes))
        return false;
    while (bson_iter_next(&iter)) {
        if (bson_iter_recurse(&iter, &index) && bson_iter_find(&index, "key") &&
            bson_iter_recurse(&index, &key) && bson_iter_next(&key) &&
            !strcmp(bson_iter_key(&key), field))
            return true;
    }
    return false;
}

/* Checks the index by which sweeps find intents. */
static truce_status doctor_check_intents(struct doctor *doctor, truce_store *store,
                                         const char *name, bson_error_t *error)
{
    truce_find_options options = {.deadline_ms = SCAN_MS};
    bson_t *held = BCON_NEW("_intent", "{", "$exists", BCON_BOOL(true), "}");
    bson_t document;
    bson_error_t caught = {0};
    truce_status status = truce_find_one(store, name, held, &options, &document, &caught);

    if (!status)
        truce__doctor_report(
            doctor, DOCTOR_ERROR, "intent-index", name,
            "create the index {_intent: 1} with sparse: true, then run truce sweep",
            "documents are locked by commits, and no index on _intent lets a sweep "
            "find them");
    else if (status == TRUCE_TIMEOUT)
        truce__doctor_report(
            doctor, DOCTOR_NOTE, "intent-index", name,
            "create the index {_intent: 1} with sparse: true if commits of the "
            "journal change this collection",
            "it has no index on _intent, and is too large to examine whether it needs "
            "one");
    bson_destroy(&document);
    bson_destroy(held);
    if (status && status != TRUCE_NOT_FOUND && status != TRUCE_TIMEOUT) {
        if (error)
            *error = caught;
        return status;
    }
    return TRUCE_OK;
}

/* Examines the indexes of one collection, and whether sweeps can find its intents. A view is
 * skipped. */
static truce_status doctor_check_collection(struct doctor *doctor, truce_store *store,
                                            const char *name, bson_error_t *error)
{
    truce_status status;
    bson_t indexes;

    status = truce_index_list(store, name, &indexes, error);
    /* The collection was dropped, or it is a view. */
    if (status == TRUCE_NOT_FOUND || status == TRUCE_INVALID) {
        bson_destroy(&indexes);
        return TRUCE_OK;
    }
    if (!status)
        truce__doctor_indexes(doctor, name, &indexes);
    if (!strcmp(name, ARCHIVE_RECORDS) &&
        truce__doctor_number(doctor->facts, "archive.process", -1) < 0)
        truce__doctor_report(doctor, DOCTOR_NOTE, "archive", name,
                             "run truce archive, unless this store is a copy",
                             "no process archives the store: later commits are not in its archive");
    if (!status && strncmp(name, "system.", 7) != 0 && !doctor_has_index(&indexes, "_intent"))
        status = doctor_check_intents(doctor, store, name, error);
    bson_destroy(&indexes);
    return status;
}

/* Examines each collection of the database. */
static truce_status doctor_check_collections(struct doctor *doctor, truce_store *store,
                                             bson_error_t *error)
{
    bson_t collections;
    bson_iter_t iter, field;
    truce_status status = truce_collection_list(store, &(truce_list_options){.unmeasured = true},
                                                &collections, error);

    if (!status && bson_iter_init(&iter, &collections))
        while (!status && bson_iter_next(&iter))
            if (bson_iter_recurse(&iter, &field) && bson_iter_find(&field, "name") &&
                BSON_ITER_HOLDS_UTF8(&field))
                status =
                    doctor_check_collection(doctor, store, bson_iter_utf8(&field, NULL), error);
    bson_destroy(&collections);
    return status;
}

/* ---- commits -------------------------------------------------------------------------------- */

static truce_status count_commits(truce_store *store, const bson_t *filter, int64_t *count,
                                  bson_error_t *error)
{
    *count = 0;
    return truce_count(store, COMMITS, filter, NULL, count, error);
}

/* Counts the commits that a sweep should have completed, undone, or purged. */
static truce_status doctor_check_commits(struct doctor *doctor, truce_store *store,
                                         bson_error_t *error)
{
    int64_t now_ms = truce__clock_wall_ms(), late, owed, old;
    bson_t *pending = BCON_NEW("state", BCON_UTF8("pending"), "lease.until", "{", "$lt",
                               BCON_INT64(now_ms - LATE_MS), "}");
    bson_t *committed = BCON_NEW("state", BCON_UTF8("committed"), "created", "{", "$lt",
                                 BCON_DATE_TIME(now_ms - LATE_MS), "}");
    bson_t *ended = BCON_NEW("state", "{", "$in", "[", BCON_UTF8("done"), BCON_UTF8("aborted"), "]",
                             "}", "created", "{", "$lt", BCON_DATE_TIME(now_ms - OLD_MS), "}");
    truce_status status = count_commits(store, pending, &late, error);

    if (!status)
        status = count_commits(store, committed, &owed, error);
    if (!status)
        status = count_commits(store, ended, &old, error);
    if (!status && late)
        truce__doctor_report(
            doctor, DOCTOR_WARNING, "expired-commits", COMMITS, "run truce sweep",
            "%s after the end of the lease: processes that encounter the documents must undo "
            "%s first",
            PLURAL(late, "commit is pending", "commits are pending"), late == 1 ? "it" : "them");
    if (!status && owed)
        truce__doctor_report(doctor, DOCTOR_WARNING, "unfinished-commits", COMMITS,
                             "run truce sweep", "%s decided, but not applied to all documents",
                             PLURAL(owed, "commit was", "commits were"));
    if (!status && old)
        truce__doctor_report(doctor, DOCTOR_NOTE, "old-commits", COMMITS,
                             "run truce sweep regularly (truce sweep --loop)",
                             "%s older than a week: no process sweeps here",
                             PLURAL(old, "ended commit is", "ended commits are"));
    bson_destroy(pending);
    bson_destroy(committed);
    bson_destroy(ended);
    return status;
}

/* ---- sets, for their shard keys ---- */

/* Appends facts.sets, the definitions of all sets, if collections are sharded. */
static truce_status gather_sets(truce_store *store, bson_t *facts, bson_error_t *error)
{
    static const bson_t everything = BSON_INITIALIZER;
    truce_cursor *cursor = NULL;
    const bson_t *definition;
    uint32_t count = 0;
    bson_t list;
    truce_status status;

    if (!bson_has_field(facts, "sharded"))
        return TRUCE_OK;
    status = truce_find(store, SET_DEFINITIONS, &everything, NULL, &cursor, error);
    BSON_APPEND_ARRAY_BEGIN(facts, "sets", &list);
    while (!status) {
        char text[16];
        const char *key;

        status = truce_cursor_next(cursor, &definition, error);
        if (status || !definition)
            break;
        bson_uint32_to_string(count++, &key, text, sizeof text);
        bson_append_document(&list, key, -1, definition);
    }
    bson_append_array_end(facts, &list);
    if (cursor)
        truce_cursor_close(cursor);
    return status;
}

/* ---- all ------------------------------------------------------------------------------------ */

/* Examines one database: its collections, and the data of its patterns. */
static truce_status doctor_check_database(void *arg, truce_store *view, const char *name,
                                          bson_error_t *error)
{
    const struct doctor *whole = arg;
    struct maintenance_reporter reporter = {whole->function, whole->arg, name, "subject"};
    struct doctor doctor = *whole;
    truce_status status;

    doctor.function = truce__maintenance_report;
    doctor.arg = &reporter;
    status = doctor_check_collections(&doctor, view, error);
    if (!status)
        status = doctor_check_commits(&doctor, view, error);
    if (!status)
        status = truce__doctor_queues(&doctor, view, error);
    return status ? status : truce__doctor_patterns(&doctor, view, error);
}

truce_status truce_doctor(truce_store *store, truce_doctor_function *function, void *arg,
                          truce_doctor_report *report, bson_error_t *error)
{
    RETURN_IF_NULL(report, error);

    struct doctor doctor = {.function = function, .arg = arg, .report = report};
    truce_status status;

    memset(report, 0, sizeof *report);
    status = truce__store_facts(store, &report->facts, error);
    doctor.facts = &report->facts;
    if (!status)
        status = gather_sets(store, &report->facts, error);
    if (status)
        return status;
    truce__doctor_server(&doctor);
    truce__doctor_shards(&doctor);
    truce__doctor_file(&doctor);
    return truce__each_database(store, doctor_check_database, &doctor, error);
}

/*
 * The embedded store: the table of functions over engine/, and the facts about its file for
 * truce_doctor:
 *
 *     {path, file: {bytes, mode, writable}, wal, shm, lock: the same fields as file,
 *      directory: {writable}, space: {free, total}, filesystem: {type, name, local},
 *      sqlite: "3.40.1", read_only, pins: [{process, reads, unlimited, age_ms, bytes}],
 *      archive: {process, pins, generation, commit, behind_bytes, behind_ms, failing_ms},
 *      writer: {process, held_ms},
 *      writes: {operations, groups, carried, sent, syncs, held_us, log_bytes},
 *      feed: {entries, bytes, age_ms, keep_ms, keep_bytes}}
 *
 * `writes` counts since this process opened the store: operations, groups (the transactions that
 * committed them), carried (records of other processes that this one committed), sent (its records
 * that other processes committed), syncs of the log, and the time that it held the write lock.
 * `log_bytes` counts for all processes. A read-only store has no `writes`.
 *
 * `writer` is missing if no process holds the write lock, `feed` if nothing is stored for change
 * streams.
 *
 * `archive` is missing if no process archives the file and the last archiver ended by itself. If
 * the archiver died, `process` is 0. `behind_ms` is the age of the state that the archive has, if
 * something is missing in it.
 *
 * `local` is true if the kernel itself implements locks and fsync, and false for network file
 * systems and FUSE. `name` and `local` are missing for a type that is not in the table below.
 */
#include "store/file/file.h"
#include "store/store_kinds.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <sqlite3.h>

#include "base/assert.h"
#include "base/clock.h"
#include "engine/documents/change_feed.h"
#include "engine/documents/integrity_check.h"
#include "engine/documents/open_documents.h"
#include "engine/storage/log_archive.h"
#include "query/evaluation_context.h"
#include "store/pipeline.h"
#include "store/reserved_names.h"
#include "store/snapshot_view.h"
#include "store/store.h"

/* File systems by their numbers in statfs(2), which the headers of the kernel define. */
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

static void put_neighbour(bson_t *facts, const char *name, const char *path, const char *suffix)
{
    char *beside = bson_strdup_printf("%s%s", path, suffix);

    put_file(facts, name, beside);
    bson_free(beside);
}

/* Appends the type of the file system, and its name if the table has it. */
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

/* Appends the readers that pin the log, and the bytes written since the oldest of them began. */
static void append_pins(bson_t *facts, const struct lock *lock)
{
    struct pin_facts pins[PIN_SLOTS];
    size_t count = truce__pins_list(lock, pins, PIN_SLOTS);
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

/* Appends the state of the archiver, if there is one or the last one died. */
static void put_archive(bson_t *facts, const struct lock *lock)
{
    struct archive_facts archive;
    bson_t child;

    if (!truce__archive_facts(lock, &archive))
        return;
    BSON_APPEND_DOCUMENT_BEGIN(facts, "archive", &child);
    BSON_APPEND_INT32(&child, "process", archive.process);
    BSON_APPEND_BOOL(&child, "pins", archive.pins);
    BSON_APPEND_INT64(&child, "generation", (int64_t)archive.generation);
    BSON_APPEND_INT64(&child, "commit", (int64_t)archive.commit);
    BSON_APPEND_INT64(&child, "behind_bytes", (int64_t)archive.behind_bytes);
    BSON_APPEND_INT64(&child, "behind_ms", archive.behind_ms);
    BSON_APPEND_INT64(&child, "failing_ms", archive.failing_ms);
    bson_append_document_end(facts, &child);
}

/* Appends the process that holds the lock at this time, if there is one. */
static void put_writer(bson_t *facts, const struct lock *lock)
{
    int64_t held_ms;
    int process = truce__lock_holder(lock, &held_ms);
    bson_t child;

    if (!process)
        return;
    BSON_APPEND_DOCUMENT_BEGIN(facts, "writer", &child);
    BSON_APPEND_INT32(&child, "process", process);
    BSON_APPEND_INT64(&child, "held_ms", held_ms);
    bson_append_document_end(facts, &child);
}

/* Appends the counters of writes. A read-only store has none. */
static void put_writes(bson_t *facts, struct engine *engine)
{
    const struct writer *writer = &engine->writer;
    bson_t writes;

    if (engine->read_only)
        return;
    BSON_APPEND_DOCUMENT_BEGIN(facts, "writes", &writes);
    BSON_APPEND_INT64(&writes, "operations", (int64_t)atomic_load(&writer->operations));
    BSON_APPEND_INT64(&writes, "groups", (int64_t)atomic_load(&writer->groups));
    BSON_APPEND_INT64(&writes, "carried", (int64_t)atomic_load(&writer->combine.delegated));
    BSON_APPEND_INT64(&writes, "sent", (int64_t)atomic_load(&writer->combine.sent));
    BSON_APPEND_INT64(&writes, "syncs", (int64_t)truce__durable_syncs(&engine->durable));
    BSON_APPEND_INT64(&writes, "held_us", (int64_t)(atomic_load(&writer->held_ns) / 1000));
    BSON_APPEND_INT64(&writes, "log_bytes", (int64_t)truce__pins_log(&engine->lock));
    bson_append_document_end(facts, &writes);
}

/* Appends what is stored for change streams, if anything. */
static void facts_put_feed(bson_t *facts, struct engine *engine)
{
    struct feed_state state;
    /* The check of the store reports errors of the feed. */
    bson_error_t ignored;
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

/* Makes the facts about the file and its surroundings. */
static void truce__file_facts(struct engine *engine, bson_t *facts)
{
    BSON_APPEND_UTF8(facts, "path", engine->path);
    put_file(facts, "file", engine->path);
    put_neighbour(facts, "wal", engine->path, "-wal");
    put_neighbour(facts, "shm", engine->path, "-shm");
    put_neighbour(facts, "lock", engine->path, "-lock");
    put_directory(facts, engine->path);
    put_space(facts, engine->path);
    put_filesystem(facts, engine->path);
    BSON_APPEND_UTF8(facts, "sqlite", sqlite3_libversion());
    BSON_APPEND_BOOL(facts, "read_only", engine->read_only);
    append_pins(facts, &engine->lock);
    put_archive(facts, &engine->lock);
    put_writer(facts, &engine->lock);
    put_writes(facts, engine);
    facts_put_feed(facts, engine);
}

/* ---- the store ------------------------------------------------------------------------------- */

struct file_store {
    /* Must be the first field. */
    truce_store base;
    struct engine *engine;
};

static struct engine *file_engine_of(truce_store *store)
{
    return ((struct file_store *)store)->engine;
}

struct engine *truce__file_engine(truce_store *store)
{
    return file_engine_of(store);
}

static void file_close_store(truce_store *store)
{
    truce__engine_close(file_engine_of(store));
    bson_free(store);
}

static truce_status file_find(truce_store *store, const char *collection, const bson_t *filter,
                              const truce_find_options *options, truce_cursor **cursor,
                              bson_error_t *error)
{
    return truce__engine_find(file_engine_of(store), collection, filter, options, cursor, error);
}

static truce_status file_count(truce_store *store, const char *collection, const bson_t *filter,
                               const truce_count_options *options, int64_t *found,
                               bson_error_t *error)
{
    const truce_find_options as_find = truce__count_as_find(options);

    return truce__engine_count(file_engine_of(store), collection, filter, &as_find, found, error);
}

static truce_status file_distinct(truce_store *store, const char *collection, const char *path,
                                  const bson_t *filter, bson_t *values, bson_error_t *error)
{
    return truce__engine_distinct(file_engine_of(store), collection, path, filter, values, error);
}

static truce_status file_explain(truce_store *store, const char *collection, const bson_t *filter,
                                 const truce_find_options *options, bool counts, bson_t *plan,
                                 bson_error_t *error)
{
    return truce__engine_explain(file_engine_of(store), collection, filter, options, counts, plan,
                                 error);
}

static truce_status file_bulk(truce_store *store, const truce_write *writes, size_t number,
                              const truce_bulk_options *options, truce_write_outcome *outcomes,
                              bson_error_t *error)
{
    const struct engine *view = options->checks ? file_engine_of(options->checks->view) : NULL;

    return truce__engine_checked_bulk(file_engine_of(store), view, writes, number, options,
                                      outcomes, error);
}

static truce_status file_find_and_modify(truce_store *store, const char *collection,
                                         const bson_t *filter, const bson_t *update,
                                         const truce_modify_options *options, bson_t *document,
                                         truce_write_result *result, bson_error_t *error)
{
    return truce__engine_find_and_modify(file_engine_of(store), collection, filter, update, options,
                                         document, result, error);
}

static truce_status file_rewrite_documents(truce_store *store, truce_rewrite *rewrite,
                                           bson_error_t *error)
{
    return truce__engine_rewrite(file_engine_of(store), rewrite, error);
}

static truce_status file_read_many(truce_store *store, truce_read_request *requests, size_t number,
                                   bson_error_t *error)
{
    return truce__engine_read_many(file_engine_of(store), requests, number, error);
}

/* ---- aggregation ----------------------------------------------------------------------------- */

struct cursor_source {
    /* Must be the first field. */
    struct source base;
    truce_cursor *cursor;
};

static truce_status next_of_cursor(struct source *base, const bson_t **document,
                                   bson_error_t *error)
{
    truce_cursor *cursor = ((struct cursor_source *)base)->cursor;

    return cursor->ops->next(cursor, document, error);
}

static truce_status each_of_cursor(struct source *base, document_take *take, void *arg,
                                   bson_error_t *error)
{
    return truce__engine_each(((struct cursor_source *)base)->cursor, take, arg, error);
}

static void file_free_source(struct source *base)
{
    truce_cursor *cursor = ((struct cursor_source *)base)->cursor;

    cursor->ops->close(cursor);
    bson_free(base);
}

/* Opens the documents that the pipeline starts from. If a find sorts as the stage does
 * (`same_sort`), they have the order of the $sort. Otherwise they have it only if an index gives
 * it. */
static truce_status file_open_head(truce_store *reads, const char *collection,
                                   const struct pipeline_head *head,
                                   const truce_aggregate_options *options,
                                   struct cursor_source *source, bson_error_t *error)
{
    static const bson_t all = BSON_INITIALIZER;
    const bson_t *filter = head->filter ? head->filter : &all;
    truce_find_options how = {.hint = options->hint,
                              .deadline_ms = options->deadline_ms,
                              .allow_disk_use = options->allow_disk_use,
                              .sort = head->sort,
                              .limit = head->limit};

    if (head->sort && !head->same_sort)
        return truce__engine_find_if_sorted(file_engine_of(reads), collection, filter, &how,
                                            &source->cursor, &source->base.ordered, error);
    return truce__engine_find(file_engine_of(reads), collection, filter, &how, &source->cursor,
                              error);
}

/* Opens the cursor of an aggregate. The engine runs the head of the pipeline, and a stage that
 * reads other collections reads them in the same snapshot. */
static truce_status file_aggregate(truce_store *store, const char *collection,
                                   const bson_t *pipeline, const truce_aggregate_options *options,
                                   truce_cursor **cursor, bson_error_t *error)
{
    struct cursor_source *source;
    struct pipeline_head head = {0};
    struct pipeline *compiled = NULL;
    truce_store *reads = NULL;
    truce_status status = truce__pipeline_new(pipeline, &compiled, error);

    *cursor = NULL;
    if (!status)
        status = truce__view_for_pipeline(store, pipeline, &reads, error);
    if (status) {
        truce__pipeline_free(compiled);
        return status;
    }
    truce__pipeline_head(compiled, &head);
    source = bson_malloc0(sizeof *source);
    source->base = (struct source){next_of_cursor, file_free_source, each_of_cursor};
    status = file_open_head(reads ? reads : store, collection, &head, options, source, error);
    if (status) {
        bson_free(source);
        truce__pipeline_free(compiled);
        truce_store_close(reads);
        return status;
    }
    return truce__store_pipeline_cursor(store, reads, compiled, head.stages_taken, &source->base,
                                        options, cursor, error);
}

/* ---- indexes and collections ---------------------------------------------------------------- */

static truce_status file_index_create(truce_store *store, const char *collection,
                                      const bson_t *index, bson_error_t *error)
{
    return truce__engine_index_create(file_engine_of(store), collection, index, error);
}

static truce_status file_index_drop(truce_store *store, const char *collection, const char *name,
                                    bson_error_t *error)
{
    return truce__engine_index_drop(file_engine_of(store), collection, name, error);
}

static truce_status file_index_modify(truce_store *store, const char *collection, const char *name,
                                      const bson_t *changes, bson_error_t *error)
{
    return truce__engine_index_modify(file_engine_of(store), collection, name, changes, error);
}

static truce_status file_index_list(truce_store *store, const char *collection, bson_t *indexes,
                                    bson_error_t *error)
{
    return truce__engine_index_list(file_engine_of(store), collection, indexes, error);
}

static truce_status file_collection_create(truce_store *store, const char *collection,
                                           bson_error_t *error)
{
    return truce__engine_collection_create(file_engine_of(store), collection,
                                           &(struct collection_options){0}, error);
}

static truce_status file_collection_drop(truce_store *store, const char *collection,
                                         bson_error_t *error)
{
    return truce__engine_collection_drop(file_engine_of(store), collection, error);
}

static truce_status file_collection_rename(truce_store *store, const char *from, const char *to,
                                           bool drop_target, bson_error_t *error)
{
    return truce__engine_collection_rename(file_engine_of(store), from, to, drop_target, error);
}

static truce_status file_collection_validate(truce_store *store, const char *collection,
                                             const bson_t *validator, bson_error_t *error)
{
    return truce__engine_collection_modify(file_engine_of(store), collection,
                                           &(struct collection_options){.validator = validator},
                                           error);
}

static truce_status file_collection_list(truce_store *store, const truce_list_options *options,
                                         bson_t *collections, bson_error_t *error)
{
    return truce__engine_collection_list(file_engine_of(store), options, collections, error);
}

static truce_status file_validator_of(truce_store *store, const char *collection, bson_t *validator,
                                      bson_error_t *error)
{
    return truce__engine_validator(file_engine_of(store), collection, validator, error);
}

static uint64_t file_structure_of(truce_store *store)
{
    return truce__engine_structure(file_engine_of(store));
}

static uint64_t file_version(truce_store *store)
{
    return truce__engine_version(file_engine_of(store));
}

static truce_status file_wait_for_change(truce_store *store, const char *collection,
                                         uint64_t *token, uint32_t timeout_ms, bson_error_t *error)
{
    return truce__engine_wait(file_engine_of(store), collection, token, timeout_ms, error);
}

static truce_status file_settle(truce_store *store, bson_error_t *error)
{
    return truce__engine_settle(file_engine_of(store), error);
}

struct examining {
    void (*report)(const bson_t *finding, void *arg);
    void *arg;
};

static void file_report_fault(const struct examine_fault *fault, void *arg)
{
    struct examining *examining = arg;
    bson_t finding = BSON_INITIALIZER;

    BSON_APPEND_UTF8(&finding, "rule", fault->rule);
    BSON_APPEND_UTF8(&finding, "ns", fault->collection);
    BSON_APPEND_UTF8(&finding, "text", fault->text);
    BSON_APPEND_UTF8(&finding, "repair", fault->change);
    BSON_APPEND_BOOL(&finding, "repaired", fault->repaired);
    examining->report(&finding, examining->arg);
    bson_destroy(&finding);
}

static truce_status file_examine(truce_store *store, const char *repair,
                                 void (*report)(const bson_t *finding, void *arg), void *arg,
                                 bson_error_t *error)
{
    struct examining examining = {report, arg};

    return truce__engine_examine(file_engine_of(store), repair, file_report_fault, &examining,
                                 error);
}

static truce_status file_compact(truce_store *store, const truce_compact_options *options,
                                 truce_compact_report *report, bson_error_t *error)
{
    return truce__engine_compact(file_engine_of(store), options, report, error);
}

static truce_status facts_of_file(truce_store *store, bson_t *facts, bson_error_t *error)
{
    (void)error;
    truce__file_facts(file_engine_of(store), facts);
    return TRUCE_OK;
}

static void count_work(truce_store *store, truce_store_counters *counters)
{
    struct engine *engine = file_engine_of(store);

    if (engine->read_only)
        return;
    counters->writes = atomic_load(&engine->writer.operations);
    counters->syncs = truce__durable_syncs(&engine->durable);
    counters->log_bytes = truce__pins_log_length(&engine->lock);
}

/* ---- views ----------------------------------------------------------------------------------- */

static truce_status file_take_snapshot(truce_store *store, const truce_snapshot_options *options,
                                       truce_store **view, bson_error_t *error);

static void state_of_view(truce_store *view, truce_snapshot_state *state)
{
    struct snapshot_facts known;

    truce__snapshot_check(file_engine_of(view)->snapshot, &known);
    *state = (truce_snapshot_state){
        .age_ms = known.age_ms, .log_bytes = known.log, .ended = known.ended};
}

static truce_status file_keep_images(truce_store *store, const char *collection, bool on,
                                     bson_error_t *error)
{
    const struct collection_options options = {.images = &on};

    return truce__engine_collection_modify(file_engine_of(store), collection, &options, error);
}

static const truce_store_ops file_ops = {
    .scheme = "file",
    .close = file_close_store,
    .find = file_find,
    .count = file_count,
    .distinct = file_distinct,
    .aggregate = file_aggregate,
    .explain = file_explain,
    .bulk = file_bulk,
    .find_and_modify = file_find_and_modify,
    .rewrite = file_rewrite_documents,
    .read_many = file_read_many,
    .index_create = file_index_create,
    .index_drop = file_index_drop,
    .index_modify = file_index_modify,
    .index_list = file_index_list,
    .collection_create = file_collection_create,
    .collection_drop = file_collection_drop,
    .collection_rename = file_collection_rename,
    .collection_validate = file_collection_validate,
    .collection_list = file_collection_list,
    .validator = file_validator_of,
    .wait = file_wait_for_change,
    .structure = file_structure_of,
    .version = file_version,
    .settle = file_settle,
    .facts = facts_of_file,
    .counters = count_work,
    .examine = file_examine,
    .compact = file_compact,
    .snapshot = file_take_snapshot,
    .snapshot_state = state_of_view,
    .keep_images = file_keep_images,
};

struct engine *truce__file_engine_or_null(truce_store *store)
{
    return store->ops == &file_ops ? file_engine_of(store) : NULL;
}

static truce_store *file_new_store(struct engine *engine, uint32_t capabilities)
{
    struct file_store *made = bson_malloc0(sizeof *made);

    made->base.ops = &file_ops;
    made->base.capabilities = capabilities;
    made->engine = engine;
    engine->interrupted = &made->base.interrupted;
    engine->lock.interrupted = engine->interrupted;
    return &made->base;
}

static truce_status file_take_snapshot(truce_store *store, const truce_snapshot_options *options,
                                       truce_store **view, bson_error_t *error)
{
    const struct snapshot_limits limits = {
        .age_ms = options->age_ms, .log = options->log_bytes, .unlimited = options->unlimited};
    struct engine *engine;
    truce_status status = truce__engine_view(file_engine_of(store), &limits, &engine, error);

    if (!status)
        *view = file_new_store(engine, store->capabilities | TRUCE_IS_VIEW);
    return status;
}

static truce_status open_spill(void *arg, struct spill **spill, bson_error_t *error)
{
    (void)arg;
    return truce__store_spill(spill, error);
}

truce_status truce__file_open(const char *path, const truce_store_options *options,
                              truce_store **store, bson_error_t *error)
{
    struct engine *engine;
    truce_status status = truce__engine_open(path, options, &engine, error);

    *store = NULL;
    if (status)
        return status;
    engine->spill = open_spill;
    engine->writer.suppressed = truce__reserved_stored_name;
    *store = file_new_store(
        engine, TRUCE_CAN_PIPELINE_UPDATE | TRUCE_CAN_ARRAY_FILTERS | TRUCE_CAN_ITEM_UPDATE |
                    TRUCE_CAN_ATOMIC_BULK | TRUCE_CAN_PARTIAL_INDEX | TRUCE_CAN_WILDCARD_INDEX |
                    TRUCE_CAN_WAIT | TRUCE_CAN_DURABLE | TRUCE_CAN_SNAPSHOT_READ |
                    TRUCE_CAN_REPORT_MODIFIED | TRUCE_CAN_KEEP_ORDER | TRUCE_CAN_REWRITE |
                    TRUCE_CAN_COMPARE | TRUCE_CAN_CHECK | TRUCE_CAN_RECEIPT |
                    TRUCE_CAN_SORT_UPDATE);
    return TRUCE_OK;
}

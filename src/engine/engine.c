/*
 * Opening and closing.
 *
 * An engine is four things: the lock file, one connection that writes with its queue (writer.c),
 * a pool of connections that read (readers.c), and a thread for checkpoints that is started when
 * there is something to do (checkpoint.c). Reads that last have left the pool with their connection
 * (moments.c); a view is an engine that has nothing but one of them.
 *
 * Open: the lock file, then the writer's connection. The first statement on it recovers the WAL if
 * the last user died: SQLite rebuilds the index of the WAL, at most some 16,000 pages, and nothing
 * of the file itself is read, so opening takes as long for 1 GB as for 1 MB. A file without content
 * is made a store under the lock; that is the only write.
 *
 * Close: under the lock if it can be had soon, because the last connection to close checkpoints and
 * removes the WAL. If it cannot be had, the connection closes without a checkpoint, and the next
 * opener finds a WAL.
 *
 * Lock order: writer (leadership) > lock file > reader gate > a reader's slot. A thread that has a
 * reader never waits for the writer.
 *
 * A forked child has the parent's memory but not its locks. Its calls are refused, and closing an
 * engine there frees nothing: the connections belong to the parent.
 */
#include "engine/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "engine/documents/index_build.h"
#include "engine/storage/wake.h"

#define DEADLINE_MS   30000
#define CLOSE_MS      2000
#define OPEN_AGAIN_MS 5
#define SWEEP_MS      200

/* ---- for the parts -------------------------------------------------------------------------- */

truce_status truce__engine_usable(const struct engine *engine, bson_error_t *error)
{
    if (engine->generation != truce__lock_generation())
        return truce__fail(TRUCE_INVALID, error,
                           "the store \"%s\" was opened before this process was forked: a child "
                           "must open its own",
                           engine->path);
    return TRUCE_OK;
}

truce_status truce__engine_writable(const struct engine *engine, bson_error_t *error)
{
    if (engine->read_only)
        return truce__fail(TRUCE_INVALID, error, "the store \"%s\" was opened read-only",
                           engine->path);
    return truce__engine_usable(engine, error);
}

int64_t truce__engine_deadline(const struct engine *engine, uint32_t deadline_ms)
{
    uint32_t chosen = deadline_ms ? deadline_ms : engine->deadline_ms;

    return truce__clock_monotonic_ns() + chosen * INT64_C(1000000);
}

truce_status truce__engine_read_begin(struct engine *engine, bool early, struct reader **reader,
                                      bson_error_t *error)
{
    if (engine->moment)
        return truce__moment_enter(engine->moment, reader, error);
    return truce__readers_begin(&engine->readers, early, reader, error);
}

void truce__engine_read_end(struct engine *engine, struct reader *reader)
{
    if (engine->moment)
        truce__moment_leave(engine->moment);
    else
        truce__readers_end(&engine->readers, reader);
}

void truce__engine_budget(const struct engine *engine, uint32_t deadline_ms, struct budget *budget)
{
    truce__budget_init(budget, deadline_ms ? truce__engine_deadline(engine, deadline_ms) : 0,
                       engine->interrupted);
    budget->above = engine->above;
}

struct query_context truce__engine_context(struct engine *engine, struct arena *arena)
{
    return (struct query_context){
        .now_ms = truce__clock_wall_ms(),
        .now_ordinal = atomic_fetch_add_explicit(&engine->ordinal, 1, memory_order_relaxed),
        .arena = arena};
}

truce_status truce__engine_wait(struct engine *engine, const char *collection, uint64_t *token,
                                uint32_t timeout_ms, bson_error_t *error)
{
    truce_status status = truce__engine_usable(engine, error);

    if (!status && !engine->locked)
        status = truce__fail(TRUCE_INVALID, error, "\"%s\" is on read-only media: it cannot change",
                             engine->path);
    return status ? status : truce__wake_wait(&engine->lock, collection, token, timeout_ms, error);
}

static void after_commit(void *arg, int wal_pages)
{
    struct engine *engine = arg;

    truce__checkpointer_note(&engine->checkpointer, wal_pages);
}

/* ---- open ----------------------------------------------------------------------------------- */

/* The path without symbolic links, so that everybody who means one file takes one lock file beside
 * it, and so that it stays right when the process changes its directory. A file that shall be made
 * is made here, empty. */
static truce_status find_path(const char *path, bool create, char **real, bson_error_t *error)
{
    int file = create ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644) : -1;
    int why = errno;
    char *found = realpath(path, NULL);
    truce_status status = TRUCE_OK;

    if (!found)
        status = truce__fail(TRUCE_IO, error, "cannot open \"%s\": %s", path,
                             strerror(create && file < 0 ? why : errno));
    *real = bson_strdup(found);
    free(found);
    if (file >= 0)
        close(file);
    return status;
}

static truce_status check_exists(const char *path, bool must_exist, bson_error_t *error)
{
    struct stat stat_of_it;

    if (stat(path, &stat_of_it)) {
        if (errno != ENOENT)
            return truce__fail(TRUCE_IO, error, "cannot open \"%s\": %s", path, strerror(errno));
        return must_exist ? truce__fail(TRUCE_NOT_FOUND, error, "there is no store \"%s\"", path)
                          : TRUCE_OK;
    }
    if (!S_ISREG(stat_of_it.st_mode))
        return truce__fail(TRUCE_CORRUPT, error, "\"%s\" is not a regular file", path);
    return TRUCE_OK;
}

static truce_status create(struct engine *engine, bson_error_t *error)
{
    truce_status status =
        truce__lock_acquire(&engine->lock, truce__engine_deadline(engine, 0), error);
    bool fresh;

    if (status)
        return status;
    /* somebody else may have been faster */
    status = truce__kv_format_check(engine->kv, &fresh, error);
    if (!status && fresh)
        status = truce__kv_format_create(engine->kv, error);
    truce__lock_release(&engine->lock);
    return status;
}

/* The writer's connection, and whether the file has content. Where others die and recover at the same
 * moment, SQLite can answer "locked" without having waited: then once more, until the deadline. */
static truce_status open_connection(struct engine *engine, bool *fresh, bson_error_t *error)
{
    const struct kv_watch watch = {truce__durable_break, &engine->durable};
    int64_t deadline_ns = truce__engine_deadline(engine, 0);

    for (;;) {
        truce_status status = truce__kv_open(engine->path, KV_WRITER, &engine->kv, error);

        if (!status)
            truce__kv_watch(engine->kv, &watch);
        if (!status)
            status = truce__kv_format_check(engine->kv, fresh, error);
        if (status != TRUCE_LOCKED || truce__clock_monotonic_ns() >= deadline_ns)
            return status;
        if (engine->kv)
            truce__kv_close(engine->kv);
        engine->kv = NULL;
        truce__clock_sleep_ms(OPEN_AGAIN_MS);
    }
}

/* The disk has refused what was written. Nobody is to have the store open any more; then the log is
 * written again, and what is whole of it counts. */
static truce_status recover(struct engine *engine, bson_error_t *error)
{
    truce_status status =
        truce__lock_acquire(&engine->lock, truce__engine_deadline(engine, 0), error);

    if (status)
        return status;
    if (truce__durable_usable(&engine->durable, NULL))
        status = truce__kv_recover(engine->path, error);
    if (!status)
        atomic_store(&engine->lock.page->broken, false);
    else if (status == TRUCE_LOCKED)
        status = truce__durable_usable(&engine->durable, error);
    truce__lock_release(&engine->lock);
    return status;
}

static truce_status open_writable(struct engine *engine, bson_error_t *error)
{
    struct kv *mover;
    truce_status status;
    bool fresh = false;

    status = truce__lock_open(engine->path, &engine->lock, error);
    if (status)
        return status;
    engine->locked = true;
    if (truce__durable_usable(&engine->durable, NULL))
        status = recover(engine, error);
    if (!status)
        status = open_connection(engine, &fresh, error);
    if (!status && fresh)
        status = create(engine, error);
    /* whoever syncs must have it open before anything is written (durable.c) */
    if (!status)
        status = truce__durable_open(&engine->durable, error);
    if (!status)
        status = truce__checkpointer_open(engine->path, &engine->durable, &mover, error);
    if (status)
        return status;
    engine->cache = truce__cache_new(&engine->lock.page->begun);
    truce__writer_init(&engine->writer, engine->kv, &engine->lock, &engine->durable, engine->cache);
    truce__readers_init(&engine->readers, engine->path, 0, &engine->durable);
    truce__checkpointer_init(&engine->checkpointer, &engine->writer, &engine->readers, mover);
    engine->writer.after_commit = after_commit;
    engine->writer.arg = engine;
    return TRUCE_OK;
}

/* With the flags, is there a store that can be read? */
static truce_status try_read(const struct engine *engine, unsigned flags, bson_error_t *error)
{
    truce_status status;
    struct kv *kv;
    bool fresh;

    status = truce__kv_open(engine->path, flags, &kv, error);
    if (status)
        return status;
    status = truce__kv_format_check(kv, &fresh, error);
    if (!status && fresh)
        status = truce__fail(TRUCE_CORRUPT, error, "\"%s\" is not a truce store: it is empty",
                             engine->path);
    truce__kv_close(kv);
    return status;
}

/* On read-only media a file can be read alone, without the files beside it, if its last user has
 * closed it: then there is no WAL. */
static bool has_no_wal(const struct engine *engine)
{
    char *path = bson_strdup_printf("%s-wal", engine->path);
    struct stat stat_of_it;
    bool none = stat(path, &stat_of_it) || stat_of_it.st_size == 0;

    bson_free(path);
    return none;
}

static truce_status open_read_only(struct engine *engine, bson_error_t *error)
{
    unsigned flags = KV_READ_ONLY;
    truce_status status = try_read(engine, flags, error);
    bson_error_t ignored;

    if (status == TRUCE_IO && has_no_wal(engine)) {
        flags = KV_READ_ONLY | KV_IMMUTABLE;
        status = try_read(engine, flags, error);
    }
    if (status)
        return status;
    truce__readers_init(&engine->readers, engine->path, flags, &engine->durable);
    /* without the lock file there is no waiting, for changes or for the disk */
    engine->locked = !truce__lock_open(engine->path, &engine->lock, &ignored);
    if (engine->locked && !(flags & KV_IMMUTABLE)) /* else the first sync opens it */
        (void)truce__durable_open(&engine->durable, &ignored);
    return TRUCE_OK;
}

static void free_engine(struct engine *engine)
{
    bson_free(engine->path);
    bson_free(engine);
}

truce_status truce__engine_open(const char *path, const truce_store_options *options,
                                struct engine **engine, bson_error_t *error)
{
    const struct moment_limits limits = {.age_ms = options->snapshot_age_ms,
                                         .log = options->snapshot_log_bytes};
    struct engine *made;
    bson_error_t ignored;
    truce_status status;
    char *real = NULL;

    *engine = NULL;
    if (!*path)
        return truce__fail(TRUCE_INVALID, error, "the path of the store is empty");
    status = check_exists(path, options->must_exist || options->read_only, error);
    if (status)
        return status;
    status = find_path(path, !options->must_exist && !options->read_only, &real, error);
    if (status)
        return status;
    made = bson_malloc0(sizeof *made);
    made->path = real;
    made->read_only = options->read_only;
    made->relaxed = options->relaxed;
    made->deadline_ms = options->deadline_ms ? options->deadline_ms : DEADLINE_MS;
    made->lock.file = -1;
    truce__durable_init(&made->durable, made->path, &made->lock);
    status = made->read_only ? open_read_only(made, error) : open_writable(made, error);
    made->generation = truce__lock_generation();
    if (!status) {
        truce__moments_init(&made->moments, &made->readers, &made->lock, &limits);
        /* what cannot be swept now is swept later */
        if (!made->read_only)
            (void)truce__index_build_sweep(made, SWEEP_MS, &ignored);
        *engine = made;
        return TRUCE_OK;
    }
    if (made->kv)
        truce__kv_close(made->kv);
    truce__durable_release(&made->durable);
    if (made->locked)
        truce__lock_close(&made->lock);
    free_engine(made);
    return status;
}

/* ---- views ---------------------------------------------------------------------------------- */

static struct engine *new_view(const struct engine *engine, struct moment *moment)
{
    struct engine *view = bson_malloc0(sizeof *view);

    view->path = bson_strdup(engine->path);
    view->read_only = true;
    view->deadline_ms = engine->deadline_ms;
    view->generation = engine->generation;
    view->lock.file = -1;
    view->spill = engine->spill;
    view->above = engine->above ? engine->above : engine->interrupted;
    view->moment = moment;
    return view;
}

truce_status truce__engine_view(struct engine *engine, const struct moment_limits *limits,
                                struct engine **view, bson_error_t *error)
{
    struct moment *moment = NULL;
    struct reader *reader;
    truce_status status = truce__engine_usable(engine, error);

    *view = NULL;
    if (!status && engine->moment) {
        *view = new_view(engine, truce__moment_hold(engine->moment));
        return TRUCE_OK;
    }
    if (!status)
        status = truce__readers_begin(&engine->readers, false, &reader, error);
    if (status)
        return status;
    status = truce__moment_keep(&engine->moments, reader, limits, &moment, error);
    if (status)
        truce__readers_end(&engine->readers, reader);
    else
        *view = new_view(engine, moment);
    return status;
}

/* ---- close ---------------------------------------------------------------------------------- */

static void close_writer(struct engine *engine)
{
    int64_t deadline = truce__clock_monotonic_ns() + CLOSE_MS * INT64_C(1000000);
    bool locked = !truce__lock_acquire(&engine->lock, deadline, NULL);

    truce__kv_checkpoint_on_close(engine->kv,
                                  locked && !truce__durable_usable(&engine->durable, NULL));
    truce__kv_close(engine->kv);
    if (locked)
        truce__lock_release(&engine->lock);
}

/* In a forked child the snapshot is the parent's. */
static void close_view(struct engine *view)
{
    if (view->generation == truce__lock_generation())
        truce__moment_release(view->moment);
    free_engine(view);
}

void truce__engine_close(struct engine *engine)
{
    if (engine->moment) {
        close_view(engine);
        return;
    }
    if (engine->generation != truce__lock_generation())
        return;
    truce__moments_release(&engine->moments);
    if (!engine->read_only) {
        truce__checkpointer_release(&engine->checkpointer);
        truce__writer_release(&engine->writer);
    }
    truce__cache_free(engine->cache);
    truce__readers_release(&engine->readers);
    truce__durable_release(&engine->durable);
    if (engine->kv)
        close_writer(engine);
    if (engine->locked)
        truce__lock_close(&engine->lock);
    free_engine(engine);
}

/*
 * Opening and closing a file.
 *
 * An engine has four parts: the lock file, a connection that writes, with its queue (writer.c), a
 * pool of connections that read (reader_pool.c), and a thread for checkpoints (checkpoint.c). Long
 * reads take their connection out of the pool (snapshots.c). A view is an engine that has nothing
 * but one of these snapshots.
 *
 * Opening acquires the entry lock of the lock file (lock_file.c), checks the neighboring files
 * (open_checks.c), and opens the writer's connection. The first statement on it recovers the WAL if
 * the last process died. SQLite then reads the WAL to rebuild its index, and reads nothing of the
 * file itself. The WAL has at most about 16,000 pages, unless long reads or an archive have kept it
 * from restarting. Opening therefore takes as long for 1 GB as for 1 MB. An empty file becomes a
 * store. Then the entry lock is released.
 *
 * Closing acquires the entry lock again. A process that is alone makes a checkpoint and removes the
 * WAL. SQLite would do so in the connection that it considers the last one, so truce disables this
 * for all other connections. If the entry lock is not available soon, the connection closes without
 * a checkpoint, and the next process finds a WAL.
 *
 * Only SQLite opens, locks, and closes the file. No other code may have a descriptor of it, since
 * closing the descriptor would drop SQLite's locks. A descriptor of the path alone (O_PATH,
 * file_identity.c) has no such effect.
 *
 * The order of the locks is in ARCHITECTURE.md. A thread that has a reader never waits for the
 * writer.
 *
 * A forked child has the parent's memory but not its locks. Its calls are refused. Closing an
 * engine there frees nothing, because the connections belong to the parent, and the child does not
 * open the same file again (fork_guard.c).
 */
#include "engine/engine.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/forks.h"
#include "base/wait_limit.h"
#include "engine/document_cache.h"
#include "engine/open_checks.h"
#include "engine/storage/body_fingerprints.h"
#include "engine/storage/change_notify.h"
#include "engine/storage/file_identity.h"
#include "engine/storage/fork_guard.h"
#include "engine/storage/log_archive.h"
#include "engine/storage/page_cache.h"

/* The default time limit of a call, in milliseconds. */
#define DEADLINE_MS 30000
/* The maximum milliseconds that closing waits until the log can be moved into the file. */
#define CLOSE_MS 2000
/* The milliseconds between two attempts to open a file that is locked. */
#define OPEN_AGAIN_MS 5
/* The pages that the reading connections share get one part in PAGES_PART of the cache. */
#define PAGES_PART 8

/* ---- for the other files of the engine ------------------------------------------------------ */

truce_status truce__engine_usable(const struct engine *engine, bson_error_t *error)
{
    if (engine->forks != truce__forks())
        return truce__fail(
            TRUCE_INVALID, error,
            "the store \"%s\" was opened before this process was forked and belongs to "
            "the parent: open it again after an exec",
            engine->path);
    return engine->locked ? truce__lock_usable(&engine->lock, error) : TRUCE_OK;
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
    int64_t now_ns = truce__clock_monotonic_ns(), around_ns = truce__deadline();
    int64_t until_ns = now_ns + chosen * INT64_C(1000000);

    if (truce__wait_limit_reached())
        return now_ns + 1;
    if (!around_ns || around_ns >= until_ns)
        return until_ns;
    return around_ns > now_ns + DEADLINE_LEAST_NS ? around_ns : now_ns + DEADLINE_LEAST_NS;
}

truce_status truce__engine_read_begin(struct engine *engine, bool early, struct reader **reader,
                                      bson_error_t *error)
{
    if (engine->snapshot)
        return truce__snapshot_enter(engine->snapshot, reader, error);
    return truce__readers_begin(&engine->readers, early, reader, error);
}

void truce__engine_read_end(struct engine *engine, struct reader *reader)
{
    if (engine->snapshot)
        truce__snapshot_leave(engine->snapshot);
    else if (truce__readers_rest(&engine->readers, reader))
        truce__snapshots_wake(&engine->snapshots);
}

void truce__engine_budget(const struct engine *engine, uint32_t deadline_ms, struct budget *budget)
{
    int64_t deadline_ns =
        deadline_ms ? truce__clock_monotonic_ns() + deadline_ms * INT64_C(1000000) : 0;

    truce__budget_init(budget, truce__deadline_least(deadline_ns), engine->interrupted);
    budget->above = engine->above;
}

struct query_context truce__engine_context(struct engine *engine, struct arena *arena)
{
    return (struct query_context){
        .now_ms = truce__clock_wall_ms(),
        .now_ordinal = atomic_fetch_add_explicit(&engine->ordinal, 1, memory_order_relaxed),
        .arena = arena};
}

uint64_t truce__engine_structure(struct engine *engine)
{
    /* If the call is made in a forked child, the caller's own call reports that. */
    bson_error_t ignored;

    if (!engine->locked || truce__engine_usable(engine, &ignored))
        return 0;
    return truce__notify_count(&engine->lock, NOTIFY_STRUCTURE);
}

/* Returns a number that changes with each commit, or 0 if it is unknown. It is unknown for a
 * read-only store and for a view, and after a failed sync. If a check finds that the files were
 * replaced, the result is 0, and the read that follows checks them again and fails. */
uint64_t truce__engine_version(struct engine *engine)
{
    bson_error_t ignored;

    if (!engine->cache || engine->snapshot || truce__engine_usable(engine, &ignored) ||
        truce__durable_usable(&engine->durable, NULL))
        return 0;
    if (truce__file_identity_check_sometimes(&engine->lock, &engine->readers.checked_ms, &ignored))
        return 0;
    return truce__kv_data_version(engine->kv);
}

truce_status truce__engine_wait(struct engine *engine, const char *collection, uint64_t *token,
                                uint32_t timeout_ms, bson_error_t *error)
{
    truce_status status = truce__engine_usable(engine, error);

    if (!status && !engine->locked)
        status = truce__fail(TRUCE_INVALID, error,
                             "cannot wait for changes of \"%s\": its lock file is not writable",
                             engine->path);
    return status ? status
                  : truce__notify_wait(&engine->lock, collection, token, timeout_ms, error);
}

static void after_commit(void *arg, int wal_pages)
{
    struct engine *engine = arg;

    truce__checkpointer_note(&engine->checkpointer, wal_pages);
}

/* ---- open ----------------------------------------------------------------------------------- */

/* Creates the format in a new file, unless another process has created it in the meantime. */
static truce_status engine_create(struct engine *engine, bson_error_t *error)
{
    truce_status status =
        truce__lock_acquire(&engine->lock, truce__engine_deadline(engine, 0), error);
    bool fresh;

    if (status)
        return status;
    /* Another process may have been faster. */
    status = truce__kv_format_check(engine->kv, &fresh, error);
    if (!status && fresh)
        status = truce__kv_format_create(engine->kv, error);
    truce__lock_release(&engine->lock);
    return status;
}

static truce_status try_connection(struct engine *engine, unsigned flags, int64_t deadline_ns,
                                   bool *fresh, bson_error_t *error)
{
    const struct kv_watch watch = {truce__durable_break, &engine->durable};
    int64_t left_ms = (deadline_ns - truce__clock_monotonic_ns()) / 1000000;
    truce_status status = truce__kv_open(engine->path, flags, left_ms, &engine->kv, error);

    if (!status)
        truce__kv_watch(engine->kv, &watch);
    if (!status)
        status = truce__kv_format_check(engine->kv, fresh, error);
    return status;
}

/* Opens the writer's connection, and finds out whether the file has content. If several processes
 * die and recover at the same time, SQLite can answer "locked" without waiting; the call is then
 * repeated until the deadline. */
static truce_status open_connection(struct engine *engine, unsigned flags, bool *fresh,
                                    bson_error_t *error)
{
    int64_t deadline_ns = truce__engine_deadline(engine, 0);

    for (;;) {
        truce_status status = try_connection(engine, flags, deadline_ns, fresh, error);

        if (status != TRUCE_LOCKED || truce__clock_monotonic_ns() >= deadline_ns)
            return status;
        if (engine->kv)
            truce__kv_close(engine->kv);
        engine->kv = NULL;
        truce__clock_sleep_ms(OPEN_AGAIN_MS);
    }
}

/* Recovers after the disk refused a write. No other process may have the store open. Writes the log
 * again and moves its valid frames into the file. */
static truce_status engine_recover(struct engine *engine, bson_error_t *error)
{
    truce_status status =
        truce__lock_acquire(&engine->lock, truce__engine_deadline(engine, 0), error);

    if (status)
        return status;
    if (truce__durable_usable(&engine->durable, NULL))
        status = truce__lock_no_read_only(&engine->lock) ? truce__kv_recover(engine->path, error)
                                                         : TRUCE_LOCKED;
    if (!status) {
        atomic_store(&engine->lock.page->broken, false);
        truce__log_emit(&engine->durable.log_hook, TRUCE_LOG_WARNING,
                        "recovered \"%s\" after the disk had refused a write: the log was "
                        "rewritten up to its last valid commit",
                        engine->path);
    } else if (status == TRUCE_LOCKED)
        status = truce__durable_usable(&engine->durable, error);
    truce__lock_release(&engine->lock);
    return status;
}

/* Opens the store for writing. The entry lock is held, so exactly one process makes a new
 * file a store. */
static truce_status open_writable(struct engine *engine, bool create_file, bson_error_t *error)
{
    unsigned flags = KV_WRITER | (create_file ? KV_CREATE : 0);
    struct kv *mover;
    bool fresh = false, denied;
    truce_status status = truce__open_checks_kind(engine->path, true, error);

    if (!status)
        status = truce__open_checks_begin(engine->path, truce__engine_deadline(engine, 0),
                                          &engine->lock, &denied, error);
    if (status)
        return status;
    engine->locked = true;
    if (truce__durable_usable(&engine->durable, NULL))
        status = engine_recover(engine, error);
    if (!status)
        status = open_connection(engine, flags, &fresh, error);
    if (!status)
        status = truce__log_identity_recovered(&engine->lock, engine->kv, error);
    /* If the connection could not read the whole log, it must not remove the log. */
    if (status && engine->kv)
        truce__kv_checkpoint_on_close(engine->kv, false);
    if (!status && fresh)
        status = engine_create(engine, error);
    /* Half of the cache is for pages, the other half for documents. */
    if (!status)
        status = truce__kv_cache(engine->kv,
                                 engine->cache_bytes / 2 - engine->cache_bytes / PAGES_PART, error);
    /* The descriptors that sync must be open before any write (durable.c). */
    if (!status)
        status = truce__durable_open(&engine->durable, error);
    if (!status)
        status = truce__checkpointer_open(engine->path, engine->deadline_ms, &engine->durable,
                                          &mover, error);
    if (status)
        return status;
    status = truce__lock_admit(&engine->lock, engine->path, error);
    if (status) {
        truce__kv_close(mover);
        return status;
    }
    engine->cache = truce__cache_new(&engine->lock.page->begun, &engine->lock.page->promises,
                                     truce__kv_commits(engine->kv), engine->cache_bytes / 2);
    truce__writer_init(&engine->writer, engine->kv, &engine->lock, &engine->durable, engine->cache,
                       engine->hints, engine->seen);
    truce__readers_init(&engine->readers, engine->path, 0, engine->deadline_ms, &engine->durable,
                        engine->seen, engine->pages, NULL);
    truce__checkpointer_init(&engine->checkpointer, &engine->writer, &engine->readers, mover);
    engine->writer.combine.kinds = engine->kinds;
    engine->writer.combine.arg = engine;
    engine->writer.after_commit = after_commit;
    engine->writer.arg = engine;
    return TRUCE_OK;
}

/* Finds out whether the file is a store that can be read. Returns the connection in `*kept`; if
 * `kept` is NULL, closes it. Sets `*wrong` if SQLite read the log wrongly, so that the file alone
 * is not all of the store. */
static truce_status try_read(struct engine *engine, struct kv **kept, bool *wrong,
                             bson_error_t *error)
{
    struct read_only_pass pass = {.flags = KV_READ_ONLY};
    truce_status status = TRUCE_OK;
    struct kv *kv;
    bool fresh;

    if (engine->read_only_reader)
        status = truce__read_only_begin(engine->read_only_reader, &pass, error);
    if (status)
        return status;
    status = truce__kv_open(engine->path, pass.flags, engine->deadline_ms, &kv, error);
    *wrong = false;
    if (!status) {
        if (!engine->read_only_reader)
            status = truce__log_identity_recovered(&engine->lock, kv, error);
        *wrong = status != TRUCE_OK;
        if (!status)
            status = truce__kv_format_check(kv, &fresh, error);
        if (!status && fresh)
            status = truce__fail(TRUCE_CORRUPT, error,
                                 "\"%s\" is not a truce store yet: its creation has not ended, "
                                 "and the next write completes it",
                                 engine->path);
        if (!status && kept)
            *kept = kv;
        else
            truce__kv_close(kv);
    }
    if (engine->read_only_reader)
        truce__read_only_end(engine->read_only_reader, &pass);
    return status;
}

/* Opens the store for reading next to other processes: enters the lock file, recovers after a
 * failed sync, and takes a first snapshot. Leaves everything again if this fails. */
static truce_status read_with_the_others(struct engine *engine, bool *wrong, bson_error_t *error)
{
    bson_error_t ignored;
    bool denied;
    truce_status status = truce__open_checks_kind(engine->path, false, error);

    if (!status)
        status = truce__open_checks_begin(engine->path, truce__engine_deadline(engine, 0),
                                          &engine->lock, &denied, error);
    if (status)
        return status;
    engine->locked = true;
    /* If the recovery fails, the store stays broken, and each call reports that the disk refused a
     * write. */
    if (truce__durable_usable(&engine->durable, NULL))
        (void)engine_recover(engine, &ignored);
    status = try_read(engine, &engine->anchor, wrong, error);
    if (!status)
        status = truce__lock_admit(&engine->lock, engine->path, error);
    if (!status) {
        /* If this fails, the first sync opens the log. */
        (void)truce__durable_open(&engine->durable, &ignored);
        return TRUCE_OK;
    }
    if (engine->anchor)
        truce__kv_close(engine->anchor);
    engine->anchor = NULL;
    engine->locked = false;
    truce__lock_close(&engine->lock);
    return status;
}

/* Opens a store read-only. A process that may not write the files next to the store becomes a
 * read-only reader. */
static truce_status open_read_only(struct engine *engine, bson_error_t *error)
{
    bool wrong = false;
    truce_status status = read_with_the_others(engine, &wrong, error);

    if (status == TRUCE_IO && !wrong) {
        engine->read_only_reader = truce__read_only_new(engine->path);
        status = try_read(engine, NULL, &wrong, error);
        if (!status)
            truce__log_emit(&engine->durable.log_hook, TRUCE_LOG_INFO,
                            "the lock file or the log of \"%s\" is not writable: reads may return "
                            "commits that are not on disk yet",
                            engine->path);
    }
    if (!status)
        truce__readers_init(&engine->readers, engine->path, KV_READ_ONLY, engine->deadline_ms,
                            &engine->durable, engine->seen,
                            engine->read_only_reader ? NULL : engine->pages,
                            engine->read_only_reader);
    return status;
}

static void free_engine(struct engine *engine)
{
    if (!engine->snapshot) {
        truce__hints_free(engine->hints);
        truce__seen_free(engine->seen);
        truce__page_cache_free(engine->pages);
        truce__helpers_free(engine->helpers);
    }
    truce__read_only_free(engine->read_only_reader);
    bson_free(engine->changes);
    bson_free(engine->path);
    bson_free(engine);
}

/* Opens the file, and registers it with the guard of forks. */
static truce_status engine_open_file(struct engine *engine, bool must_exist, bson_error_t *error)
{
    struct file_id id = {0};
    truce_status status;

    truce__fork_guard_opening();
    status = engine->read_only ? open_read_only(engine, error)
                               : open_writable(engine, !must_exist, error);
    if (!status && !truce__file_id(engine->path, &id))
        status =
            truce__fail(TRUCE_IO, error, "cannot stat \"%s\": %s", engine->path, strerror(errno));
    engine->forks = truce__forks();
    engine->file = id;
    if (!status)
        truce__fork_guard_opened(&id);
    return status;
}

truce_status truce__engine_start(const char *path, const truce_store_options *options,
                                 const struct delegated_kind *const *kinds, struct engine **engine,
                                 bson_error_t *error)
{
    const struct snapshot_limits limits = {.age_ms = options->snapshot_age_ms,
                                           .log = options->snapshot_log_bytes};
    bool must_exist = options->must_exist || options->read_only;
    uint64_t cache_bytes;
    int helpers;
    struct engine *made;
    const struct log_hook log_hook = truce__log_hook_of(options->hooks);
    truce_status status;
    char *real;

    *engine = NULL;
    if (!*path)
        return truce__fail(
            TRUCE_INVALID, error,
            "the path of the store is empty: expected a file, for example shop.truce");
    status = truce__cache_size(options->cache_mb, &cache_bytes, error);
    if (!status)
        status = truce__helpers_number(&helpers, error);
    if (!status)
        status = truce__open_checks_path(path, must_exist, &real, error);
    if (status)
        return status;
    made = bson_malloc0(sizeof *made);
    made->path = real;
    made->read_only = options->read_only;
    made->relaxed = options->relaxed;
    made->cache_bytes = cache_bytes;
    made->deadline_ms = options->deadline_ms ? options->deadline_ms : DEADLINE_MS;
    made->lock.file = -1;
    made->kinds = kinds;
    made->hints = truce__hints_new();
    made->seen = truce__seen_new();
    made->pages = truce__page_cache_new(cache_bytes / PAGES_PART);
    made->helpers = truce__helpers_new(helpers);
    truce__durable_init(&made->durable, made->path, &made->lock, &log_hook);
    status = engine_open_file(made, must_exist, error);
    if (!status) {
        truce__snapshots_init(&made->snapshots, &made->readers, &made->lock, &limits);
        *engine = made;
        return TRUCE_OK;
    }
    if (made->kv)
        truce__kv_close(made->kv);
    if (made->anchor)
        truce__kv_close(made->anchor);
    truce__durable_release(&made->durable);
    if (made->locked)
        truce__lock_close(&made->lock);
    truce__fork_guard_open_failed();
    free_engine(made);
    return status;
}

/* ---- views ---------------------------------------------------------------------------------- */

/* Creates the engine of a view: it reads one snapshot, and shares the caches and helpers of its
 * engine. */
static struct engine *engine_new_view(const struct engine *engine, uint64_t cache_snapshot,
                                      struct snapshot *snapshot)
{
    struct engine *view = bson_malloc0(sizeof *view);

    view->path = bson_strdup(engine->path);
    view->read_only = true;
    view->deadline_ms = engine->deadline_ms;
    view->forks = engine->forks;
    view->lock.file = -1;
    view->spill = engine->spill;
    view->above = engine->above ? engine->above : engine->interrupted;
    view->snapshot = snapshot;
    view->hints = engine->hints;
    view->helpers = engine->helpers;
    view->cache = engine->cache;
    view->cache_snapshot = cache_snapshot;
    return view;
}

truce_status truce__engine_view(struct engine *engine, const struct snapshot_limits *limits,
                                struct engine **view, bson_error_t *error)
{
    struct snapshot *snapshot = NULL;
    struct reader *reader;
    unsigned *changes = NULL;
    uint64_t cache_snapshot = engine->cache_snapshot;
    truce_status status = truce__engine_usable(engine, error);

    *view = NULL;
    if (!status && engine->snapshot) {
        *view = engine_new_view(engine, cache_snapshot, truce__snapshot_hold(engine->snapshot));
        return TRUCE_OK;
    }
    if (!status) {
        cache_snapshot = engine->cache ? truce__cache_snapshot(engine->cache) : 0;
        changes = engine->locked ? truce__notify_counters(&engine->lock) : NULL;
        status = truce__readers_begin(&engine->readers, false, &reader, error);
    }
    if (status) {
        bson_free(changes);
        return status;
    }
    status = truce__snapshot_register(&engine->snapshots, reader, limits, &snapshot, error);
    if (status) {
        truce__readers_end(&engine->readers, reader);
        bson_free(changes);
        return status;
    }
    *view = engine_new_view(engine, cache_snapshot, snapshot);
    (*view)->changes = changes;
    return TRUCE_OK;
}

/* ---- close ---------------------------------------------------------------------------------- */

/* Acquires the entry lock to leave, and returns whether this process may move the log into the
 * file. Only a process that is alone does. Waits for CLOSE_MS at most. */
static bool may_move_log(struct engine *engine)
{
    int64_t deadline = truce__clock_monotonic_ns() + CLOSE_MS * INT64_C(1000000);

    if (!truce__lock_leave(&engine->lock, deadline))
        return false;
    return !truce__durable_usable(&engine->durable, NULL) &&
           truce__lock_no_read_only(&engine->lock) && !truce__kv_check_path(engine->kv, NULL) &&
           !truce__lock_log_usable(&engine->lock, NULL);
}

/* Closes the writer's connection. A log that an archive continues stays (log_archive.c). A log that
 * lost its name while it was open is also moved if this process still has all of it. In this case
 * no name is removed, because another file may have it. */
static void close_writer(struct engine *engine)
{
    bool moves = may_move_log(engine);
    bool removes = moves && !truce__file_identity_check(&engine->lock, NULL);
    bool keeps = removes && truce__archive_keeps_log(&engine->lock, engine->kv);
    int pages, moved;

    if (moves && !removes)
        moves = truce__log_identity_lost_name(&engine->lock, engine->kv);
    if (moves && truce__checkpoint_move(&engine->lock, engine->kv, false, 0, &pages, &moved, NULL))
        moves = removes = false;
    removes = removes && !keeps;
    truce__kv_checkpoint_on_close(engine->kv, removes);
    if (moves && !keeps)
        truce__log_identity_forget(&engine->lock);
    if (removes)
        truce__file_identity_begin_change(&engine->lock);
    truce__kv_close(engine->kv);
    if (removes)
        truce__file_identity_end_change(&engine->lock);
}

/* Closes a view of one snapshot. In a forked child the snapshot belongs to the parent. */
static void engine_close_view(struct engine *view)
{
    if (view->forks == truce__forks())
        truce__snapshot_release(view->snapshot);
    free_engine(view);
}

void truce__engine_close(struct engine *engine)
{
    if (engine->snapshot) {
        engine_close_view(engine);
        return;
    }
    if (engine->forks != truce__forks())
        return;
    truce__helpers_free(engine->helpers);
    engine->helpers = NULL;
    truce__snapshots_release(&engine->snapshots);
    if (!engine->read_only) {
        truce__checkpointer_release(&engine->checkpointer);
        truce__writer_release(&engine->writer);
    }
    truce__cache_free(engine->cache);
    truce__readers_release(&engine->readers);
    truce__durable_release(&engine->durable);
    if (engine->kv)
        close_writer(engine);
    if (engine->anchor)
        truce__kv_close(engine->anchor);
    if (engine->locked)
        truce__lock_close(&engine->lock);
    truce__fork_guard_closed(&engine->file);
    free_engine(engine);
}

/* The archiver of truce serve. If it ends with an error, the server logs it and starts it again. */
#include "cli/server/serve_archive.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "cli/maintenance/archive.h"
#include "engine/engine.h"
#include "store/file/file.h"

#define SYNC_TIMEOUT_MS 10000
#define AGAIN_MS        10000
#define CHECK_MS        100

struct serve_archive {
    char *path;
    uint8_t id[SEGMENT_STORE_BYTES];
    struct target *target;
    struct archive_options options;
    atomic_int stop;
    struct log *log;
    pthread_t thread;
    /* With --archive-sync: the durable commits of the store (engine/storage/durable.h). Otherwise
     * NULL. */
    const struct durable *durable;
    struct archive_sync sync;
    struct server_sync_target sync_target;
};

/* ---- replies that wait ---------------------------------------------------------------------- */

static truce_status serve_archive_ready(void *arg, int64_t until_ns, bson_error_t *error)
{
    struct serve_archive *archive = arg;

    return truce__archive_sync_ready(&archive->sync, until_ns, error);
}

static truce_status serve_archive_wait(void *arg, int64_t until_ns, bson_error_t *error)
{
    struct serve_archive *archive = arg;

    return truce__archive_sync_wait(&archive->sync, archive->durable, until_ns, error);
}

const struct server_sync_target *serve_archive_sync_target(const struct serve_archive *archive)
{
    return archive && archive->options.sync ? &archive->sync_target : NULL;
}

/* Reads --archive-sync and --archive-sync-timeout. `store` is NULL if they are only checked. */
static bool serve_archive_read_sync(const struct cli *cli, truce_store *store,
                                    struct serve_archive *archive)
{
    struct engine *engine = store ? truce__file_engine_or_null(store) : NULL;
    int64_t timeout_ms;

    if (!cli_duration(cli, "archive-sync-timeout", 1, 3600000, SYNC_TIMEOUT_MS, &timeout_ms))
        return false;
    if (!cli_flag(cli, "archive-sync")) {
        if (cli_text(cli, "archive-sync-timeout"))
            cli_usage(cli, "--archive-sync-timeout needs --archive-sync");
        return !cli_text(cli, "archive-sync-timeout");
    }
    truce__archive_sync_init(&archive->sync, timeout_ms);
    archive->durable = engine ? &engine->durable : NULL;
    archive->options.sync = &archive->sync;
    archive->sync_target =
        (struct server_sync_target){serve_archive_ready, serve_archive_wait, archive};
    return true;
}

/* ---- the archiver --------------------------------------------------------------------------- */

static void serve_archive_report(enum archive_event event, const struct segment_head *head,
                                 const char *text, void *arg)
{
    struct serve_archive *archive = arg;
    bool bad = event == ARCHIVE_FAILS || event == ARCHIVE_LIMIT;
    char line[CLI_ARCHIVE_LINE], message[CLI_ARCHIVE_LINE + 16];

    cli_archive_line(event, head, text, line);
    snprintf(message, sizeof message, "archive: %s", line);
    log_write_store(bad ? TRUCE_LOG_WARNING : TRUCE_LOG_INFO, message, archive->log);
}

/* Runs the archiver until the server ends. After a failure, logs it and starts the archiver
 * again. */
static void *serve_archive_run(void *arg)
{
    struct serve_archive *archive = arg;
    const atomic_int *stop = &archive->stop;
    char message[CLI_ARCHIVE_LINE];
    bson_error_t error;

    for (;;) {
        if (!truce__archive_run(archive->path, archive->id, archive->target, &archive->options,
                                &error))
            break;
        snprintf(message, sizeof message, "the archiver stopped: %s", error.message);
        log_write_store(TRUCE_LOG_WARNING, message, archive->log);
        for (int ms = 0; ms < AGAIN_MS && !atomic_load(stop); ms += CHECK_MS)
            truce__clock_sleep_ms(CHECK_MS);
        if (atomic_load(stop))
            break;
    }
    return NULL;
}

static void serve_archive_free(struct serve_archive *archive)
{
    truce__target_close(archive->target);
    if (archive->options.sync)
        truce__archive_sync_release(&archive->sync);
    bson_free(archive->path);
    bson_free(archive);
}

/* Reads the options, and opens the target. Without --archive, `*archive` is NULL. */
static int serve_archive_open(struct cli *cli, truce_store *store, const char *uri,
                              struct serve_archive **archive)
{
    const char *name = cli_text(cli, "archive"), *path = cli_store_path(uri);
    struct serve_archive *made;
    int code;

    *archive = NULL;
    if (!name && (cli_flag(cli, "archive-sync") || cli_text(cli, "archive-sync-timeout")))
        return cli_usage(cli, "--archive-sync needs --archive TARGET");
    if (!name)
        return CLI_DONE;
    if (!path)
        return cli_usage(cli, "--archive needs a store in a file, not \"%s\"", uri);
    made = bson_malloc0(sizeof *made);
    made->path = bson_strdup(path);
    made->options =
        (struct archive_options){.stop = &made->stop, .event = serve_archive_report, .arg = made};
    code = cli_archive_options(cli, "archive-", &made->options) &&
                   serve_archive_read_sync(cli, store, made)
               ? cli_target_open(cli, name, true, &made->target)
               : CLI_USAGE;
    if (code)
        serve_archive_free(made);
    else
        *archive = made;
    return code;
}

int serve_archive_check(struct cli *cli, const char *uri)
{
    struct serve_archive *archive;
    int code = serve_archive_open(cli, NULL, uri, &archive);

    if (archive)
        serve_archive_free(archive);
    return code;
}

int serve_archive_begin(struct cli *cli, truce_store *store, const char *uri, struct log *log,
                        struct serve_archive **archive)
{
    struct serve_archive *made;
    bson_error_t error;
    truce_status status;
    int code = serve_archive_open(cli, store, uri, &made);

    *archive = NULL;
    if (!made)
        return code;
    made->log = log;
    status = truce__archive_store_id(store, made->id, &error);
    if (status)
        code = cli_error(cli, "--archive", status, &error);
    if (!code && pthread_create(&made->thread, NULL, serve_archive_run, made))
        code = cli_message(
            cli, CLI_FAILED,
            "cannot start a thread for --archive: the system has no memory or no threads left");
    if (code)
        serve_archive_free(made);
    else
        *archive = made;
    return code;
}

void serve_archive_end(struct serve_archive *archive)
{
    if (!archive)
        return;
    atomic_store(&archive->stop, 1);
    pthread_join(archive->thread, NULL);
    serve_archive_free(archive);
}

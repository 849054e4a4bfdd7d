/* The archiver of truce serve. If it ends with an error, the server logs it and starts it again. */
#include "cli/server/serve_archive.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "cli/maintenance/archive.h"

#define AGAIN_MS 10000
#define LOOK_MS  100

struct serve_archive {
    char *path;
    uint8_t id[SEGMENT_STORE_BYTES];
    struct target *target;
    struct archive_options options;
    atomic_int stop;
    struct log *log;
    pthread_t thread;
};

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
        snprintf(message, sizeof message, "the archiver ended: %s", error.message);
        log_write_store(TRUCE_LOG_WARNING, message, archive->log);
        for (int ms = 0; ms < AGAIN_MS && !atomic_load(stop); ms += LOOK_MS)
            truce__clock_sleep_ms(LOOK_MS);
        if (atomic_load(stop))
            break;
    }
    return NULL;
}

static void serve_archive_free(struct serve_archive *archive)
{
    truce__target_close(archive->target);
    bson_free(archive->path);
    bson_free(archive);
}

int serve_archive_begin(struct cli *cli, truce_store *store, const char *uri, struct log *log,
                        struct serve_archive **archive)
{
    const char *name = cli_text(cli, "archive"), *path = cli_store_path(uri);
    struct serve_archive *made;
    bson_error_t error;
    truce_status status;
    int code;

    *archive = NULL;
    if (!name)
        return CLI_DONE;
    if (!path)
        return cli_usage(cli, "--archive needs a store in a file, not \"%s\"", uri);
    made = bson_malloc0(sizeof *made);
    made->path = bson_strdup(path);
    made->log = log;
    made->options =
        (struct archive_options){.stop = &made->stop, .event = serve_archive_report, .arg = made};
    code = cli_archive_options(cli, "archive-", &made->options)
               ? cli_target_open(cli, name, true, &made->target)
               : CLI_USAGE;
    status = code ? TRUCE_OK : truce__archive_store_id(store, made->id, &error);
    if (status)
        code = cli_error(cli, "--archive", status, &error);
    if (!code && pthread_create(&made->thread, NULL, serve_archive_run, made))
        code = cli_say(cli, CLI_FAILED, "cannot start a thread for --archive");
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

/*
 * The consumers of truce serve. Each file of --consume has the options of one truce consume. Each
 * of its workers is a thread of the server. If a worker ends with an error, the server logs it and
 * starts the worker again, because the queue or the certificate may be repaired in the meantime.
 */
#include "cli/server/serve_consume.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "cli/broker/consume_options.h"
#include "cli/core/config.h"
#include "store/decorators/database_view.h"

#define SERVE_CONSUME_FILES_MAX 32
#define SERVE_CONSUME_AGAIN_MS  10000
#define SERVE_CONSUME_CHECK_MS  100

struct serve_consumer {
    /* The call with the options of the file. */
    struct cli *cli;
    struct consume_call call;
    truce_store *store;
    /* `store` is a view of a database, and is owned. */
    bool is_view;
};

struct serve_consume_thread {
    struct serve_consume *consume;
    struct serve_consumer *consumer;
    uint32_t slot;
    pthread_t thread;
};

struct serve_consume {
    struct log *log;
    atomic_bool stop;
    struct serve_consumer consumers[SERVE_CONSUME_FILES_MAX];
    size_t count;
    struct serve_consume_thread *threads;
    size_t started;
};

/* ---- the threads ----------------------------------------------------------------------------- */

static bool serve_consume_stops(const truce_consume_counts *counts, void *arg)
{
    const struct serve_consume_thread *thread = arg;

    (void)counts;
    return atomic_load(&thread->consume->stop);
}

static void serve_consume_note(const char *text, void *arg)
{
    const struct serve_consume_thread *thread = arg;
    char *message =
        bson_strdup_printf("consumer of %s: %s", thread->consumer->call.options.into, text);

    log_write_store(TRUCE_LOG_WARNING, message, thread->consume->log);
    bson_free(message);
}

/* Runs a worker until the server ends, and starts it again after SERVE_CONSUME_AGAIN_MS. */
static void *serve_consume_run(void *arg)
{
    struct serve_consume_thread *thread = arg;
    truce_consume_options options = thread->consumer->call.options;

    options.slot = thread->slot;
    options.stop = serve_consume_stops;
    options.note = serve_consume_note;
    options.arg = thread;
    while (!atomic_load(&thread->consume->stop)) {
        bson_error_t error = {0};

        if (truce_consume(thread->consumer->store, &options, NULL, &error))
            serve_consume_note(error.message, thread);
        for (int ms = 0; ms < SERVE_CONSUME_AGAIN_MS && !atomic_load(&thread->consume->stop);
             ms += SERVE_CONSUME_CHECK_MS)
            truce__clock_sleep_ms(SERVE_CONSUME_CHECK_MS);
    }
    return NULL;
}

/* Starts a thread for each worker of each file. */
static int serve_consume_start(const struct cli *cli, struct serve_consume *consume)
{
    size_t threads = 0;

    for (size_t i = 0; i < consume->count; i++)
        threads += (size_t)consume->consumers[i].call.workers;
    consume->threads = bson_malloc0(threads * sizeof *consume->threads);
    for (size_t i = 0; i < consume->count; i++)
        for (int slot = 0; slot < consume->consumers[i].call.workers; slot++) {
            struct serve_consume_thread *thread = &consume->threads[consume->started];

            *thread = (struct serve_consume_thread){
                .consume = consume, .consumer = &consume->consumers[i], .slot = (uint32_t)slot};
            if (pthread_create(&thread->thread, NULL, serve_consume_run, thread))
                return cli_message(
                    cli, CLI_FAILED,
                    "cannot start a thread for --consume: the system has no memory or no threads "
                    "left");
            consume->started++;
        }
    return CLI_DONE;
}

/* ---- the files ------------------------------------------------------------------------------- */

static const struct cli_command *serve_consume_command(void)
{
    const struct cli_command *const *at = cli_commands;

    while (*at && strcmp((*at)->noun, "consume") != 0)
        at++;
    return *at;
}

/* Refuses options of truce consume that a server cannot have. */
static int serve_consume_allow(const struct cli *cli)
{
    static const char *const allowed[] = {"url",         "into",       "map",      "id",
                                          "consumer",    "workers",    "batch",    "linger",
                                          "dead-letter", "inbox-keep", "database", NULL};

    for (int i = 0; i < cli->given_count; i++) {
        const char *name = cli->given[i].option->name;
        int k = 0;

        while (allowed[k] && strcmp(allowed[k], name) != 0)
            k++;
        if (!allowed[k])
            return cli_usage(cli,
                             "%s line %d: a consumer of truce serve cannot have the option \"%s\"",
                             cli->config_path, cli->given[i].line, name);
    }
    return CLI_DONE;
}

/* Reads the options of one file, and opens a view if the file names a database. */
static int serve_consume_read(const struct cli *cli, const char *path, const char *own,
                              struct serve_consumer *consumer)
{
    struct cli *file = consumer->cli = bson_malloc0(sizeof *consumer->cli);
    const char *database;
    int code;

    file->program = cli->program;
    file->command = serve_consume_command();
    file->json = cli->json;
    bson_init(&consumer->call.map);
    code = cli_config_read(file, path);
    if (!code)
        code = serve_consume_allow(file);
    if (!code && !consume_options_read(file, &consumer->call))
        code = cli_message(
            cli, CLI_USAGE,
            "%s is not a valid file of options for truce consume: the error is printed above",
            path);
    database = code ? NULL : cli_text(file, "database");
    if (database) {
        bson_error_t error;
        truce_status status = truce__database_name_check(database, &error);

        if (status)
            return cli_error(file, path, status, &error);
        consumer->is_view = consumer->store != NULL;
        if (consumer->store)
            consumer->store = truce__database_open(consumer->store, own, database);
    }
    return code;
}

/* Reads the files of --consume. `store` is NULL if they are only checked. Without files, `*consume`
 * is NULL. */
static int serve_consume_open(const struct cli *cli, truce_store *store, const char *own,
                              struct serve_consume **consume)
{
    struct serve_consume *made;
    const char *path;
    int code = CLI_DONE;

    *consume = NULL;
    if (!cli_text(cli, "consume"))
        return CLI_DONE;
    if (cli_flag(cli, "archive-sync"))
        return cli_usage(cli, "--consume and --archive-sync exclude each other: messages would be "
                              "acknowledged before they are archived");
    made = bson_malloc0(sizeof *made);
    for (int i = 0; !code && (path = cli_texts(cli, "consume", i)); i++) {
        if (i == SERVE_CONSUME_FILES_MAX) {
            code = cli_usage(cli, "--consume is given more than %d times, which is the maximum",
                             SERVE_CONSUME_FILES_MAX);
            break;
        }
        made->consumers[made->count].store = store;
        code = serve_consume_read(cli, path, own, &made->consumers[made->count++]);
    }
    if (code)
        serve_consume_end(made);
    else
        *consume = made;
    return code;
}

int serve_consume_check(const struct cli *cli, const char *own)
{
    struct serve_consume *consume;
    int code = serve_consume_open(cli, NULL, own, &consume);

    serve_consume_end(consume);
    return code;
}

int serve_consume_begin(const struct cli *cli, truce_store *store, const char *own, struct log *log,
                        struct serve_consume **consume)
{
    struct serve_consume *made;
    int code = serve_consume_open(cli, store, own, &made);

    *consume = NULL;
    if (!made)
        return code;
    made->log = log;
    code = serve_consume_start(cli, made);
    if (code)
        serve_consume_end(made);
    else
        *consume = made;
    return code;
}

void serve_consume_end(struct serve_consume *consume)
{
    if (!consume)
        return;
    atomic_store(&consume->stop, true);
    for (size_t i = 0; i < consume->started; i++)
        pthread_join(consume->threads[i].thread, NULL);
    for (size_t i = 0; i < consume->count; i++) {
        struct serve_consumer *consumer = &consume->consumers[i];

        consume_options_release(&consumer->call);
        if (consumer->is_view)
            truce_store_close(consumer->store);
        bson_free(consumer->cli->config_text);
        bson_free(consumer->cli);
    }
    bson_free(consume->threads);
    bson_free(consume);
}

/* truce serve: serves the store to clients of MongoDB until SIGTERM or Ctrl-C. */
#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/core/config.h"
#include "cli/server/serve_archive.h"
#include "cli/server/serve_consume.h"
#include "server/server.h"
#include "server/systemd_notify.h"
#include "store/decorators/database_view.h"
#include "store/namespace_map.h"
#include "store/reserved_names.h"

#define DAY_MS          INT64_C(86400000)
#define DRAIN_MS        10000
#define FEED_MB         1024
#define SWEEP_MS        60000

#define SOCKET_PATH_MAX 8192

/* Blocks the signals that sigwait waits for. Threads that start later inherit the mask. */
static void hold_signals(sigset_t *ends)
{
    sigemptyset(ends);
    sigaddset(ends, SIGTERM);
    sigaddset(ends, SIGINT);
    sigaddset(ends, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, ends, NULL);
}

/* Allows the process to open as many files as the system permits. A connection needs one file, and
 * an open cursor two, while the usual limit is 1,024 (engine/snapshots.c). */
static void raise_file_limit(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur >= files.rlim_max)
        return;
    files.rlim_cur = files.rlim_max;
    /* A failure leaves the old limit. */
    (void)setrlimit(RLIMIT_NOFILE, &files);
}

/* Returns the address for drivers, "mongodb://127.0.0.1:27017" or "mongodb://%2Ftmp%2Ft.sock". The
 * caller frees it. */
static char *serve_uri(const struct server_options *options, int port)
{
    const char *address = options->address ? options->address : "127.0.0.1";
    bool is_six = strchr(address, ':') != NULL;
    bson_string_t *uri;

    if (port)
        return bson_strdup_printf("mongodb://%s%s%s:%d%s", is_six ? "[" : "", address,
                                  is_six ? "]" : "", port,
                                  options->tls.certificate ? "/?tls=true" : "");
    uri = bson_string_new("mongodb://");
    for (const char *at = options->socket; *at; at++)
        if (isalnum((unsigned char)*at) || strchr("-._~", *at))
            bson_string_append_printf(uri, "%c", *at);
        else
            bson_string_append_printf(uri, "%%%02X", (unsigned char)*at);
    return bson_string_free(uri, false);
}

/* Prints the addresses on which the server listens. Returns false if this fails. */
static bool serve_report(const struct cli *cli, const struct server_options *options,
                         const struct server *server)
{
    const char *metrics = server_metrics(server), *http = server_http(server);
    int port = server_port(server);
    char *uri = serve_uri(options, port);
    bool both = port && options->socket, printed;
    bson_t *document = BCON_NEW("listening", BCON_UTF8(uri));

    if (port)
        BSON_APPEND_INT32(document, "port", port);
    if (options->socket)
        BSON_APPEND_UTF8(document, "socket", options->socket);
    if (http)
        BSON_APPEND_UTF8(document, "http", http);
    if (metrics)
        BSON_APPEND_UTF8(document, "metrics", metrics);
    printed =
        cli_answer(cli, document, "listening on %s%s%s%s%s%s%s (Ctrl-C ends it)", uri,
                   both ? ", socket " : "", both ? options->socket : "", http ? ", HTTP at " : "",
                   http ? http : "", metrics ? ", metrics at " : "", metrics ? metrics : "");
    bson_destroy(document);
    bson_free(uri);
    /* The process that started the server waits for this line. */
    return printed && !fflush(stdout);
}

/* Waits for a signal that ends the server. SIGUSR1 rotates the log in the meantime. */
static void wait_for_end(const sigset_t *ends, struct log *log)
{
    int received;

    while (!sigwait(ends, &received) && received == SIGUSR1)
        /* A failure is ignored here, because log_rotate reports it in the log. */
        (void)!log_rotate(log, NULL);
}

/* Sends the signal that sigwait waits for. */
static void end_by_command(void *arg)
{
    (void)arg;
    kill(getpid(), SIGTERM);
}

/* ---- the parent ------------------------------------------------------------------------------ */

#define PARENT_CHECK_MS 500

/* The process that the server must not outlive. */
struct serve_parent {
    pid_t id;
    /* A descriptor that becomes readable when the process ends, or -1 if the system does not
     * support such descriptors. */
    int file;
};

/* Waits for the end of the parent process, and then ends the server: the function of a thread that
 * ends with the process. */
static void *serve_watch_parent(void *arg)
{
    const struct serve_parent *parent = arg;
    struct pollfd polled = {.fd = parent->file, .events = POLLIN};

    if (parent->file >= 0)
        while (poll(&polled, 1, -1) < 0 && errno == EINTR)
            continue;
    else
        while (!kill(parent->id, 0) || errno != ESRCH)
            (void)poll(NULL, 0, PARENT_CHECK_MS);
    end_by_command(NULL);
    return NULL;
}

/* Starts to watch the process of --parent. Returns an exit code. */
static int serve_parent_begin(const struct cli *cli, struct serve_parent *parent)
{
    int64_t id;
    pthread_t thread;

    if (!cli_number(cli, "parent", 1, INT32_MAX, 0, &id))
        return CLI_USAGE;
    if (!id)
        return CLI_DONE;
    *parent = (struct serve_parent){(pid_t)id, -1};
#ifdef SYS_pidfd_open
    parent->file = (int)syscall(SYS_pidfd_open, parent->id, 0);
#endif
    if (parent->file < 0 && kill(parent->id, 0) && errno == ESRCH)
        return cli_usage(cli, "--parent %d: the process does not exist", (int)parent->id);
    if (pthread_create(&thread, NULL, serve_watch_parent, parent))
        return cli_message(
            cli, CLI_FAILED,
            "cannot start a thread for --parent: the system has no memory or no threads left");
    pthread_detach(thread);
    return CLI_DONE;
}

/* ---- serving --------------------------------------------------------------------------------- */

struct serve_log {
    struct log *log;
    /* The path of the store if the server has created it, for a note: the name may be
     * misspelled. */
    const char *created;
    /* The store has failed, and no call succeeds until it is opened again. */
    atomic_bool broken;
};

/* Ends the server if the store is broken. The parent starts it again, as systemd does with
 * Restart=on-failure. */
static void serve_log_store(truce_log_level level, const char *message, void *arg)
{
    struct serve_log *serve_log = arg;

    log_write_store(level, message, serve_log->log);
    if (level == TRUCE_LOG_ERROR) {
        atomic_store(&serve_log->broken, true);
        end_by_command(NULL);
    }
}

static int serve_refused(const struct cli *cli, truce_status status, const bson_error_t *error)
{
    char position[CLI_LABEL_MAX];

    return cli_error(cli, cli_config_position(cli, error->message, position, sizeof position),
                     status, error);
}

/* Starts the server, waits for a signal, and drains it. Returns CLI_FAILED if the store has
 * failed. */
static int serve_serve(struct cli *cli, truce_store *store, const struct server_options *options,
                       const sigset_t *ends, struct serve_log *serve_log)
{
    struct server *server;
    bson_error_t error;
    truce_status status = server_start(store, options, &server, &error);

    if (status)
        return serve_refused(cli, status, &error);
    if (options->auth && !options->tls.certificate && options->address && server_port(server) &&
        strncmp(options->address, "127.", 4) != 0 && strcmp(options->address, "::1") != 0)
        cli_note(
            cli,
            "the data of clients crosses the network without encryption: use --tls-certificate");
    if (!serve_report(cli, options, server)) {
        server_stop(server, 0);
        return CLI_FAILED;
    }
    if (serve_log->created) {
        char message[500];

        snprintf(message, sizeof message, "created a new store at %s: no file existed there",
                 serve_log->created);
        log_write_store(TRUCE_LOG_INFO, message, serve_log->log);
    }
    server_notify("READY=1");
    wait_for_end(ends, options->log);
    server_notify("STOPPING=1");
    server_stop(server, DRAIN_MS);
    return atomic_load(&serve_log->broken) ? CLI_FAILED : CLI_DONE;
}

/* Opens the file of --log-file; --log-rotate is rename or reopen. */
static int open_log_file(struct cli *cli, const char *store, struct log *log)
{
    const char *path = cli_text(cli, "log-file"), *how = cli_text(cli, "log-rotate");
    char label[CLI_LABEL_MAX];
    bson_error_t error;
    truce_status status;

    cli_option_label(cli, "log-rotate", label, sizeof label);
    if (how && strcmp(how, "rename") != 0 && strcmp(how, "reopen") != 0)
        return cli_usage(cli, "%s must be rename or reopen, not \"%s\"", label, how);
    if (how && !path)
        return cli_usage(cli, "%s needs --log-file", label);
    if (!path)
        return CLI_DONE;
    status = cli_output_check(cli, path, store, &error);
    if (!status)
        status = log_to_file(log, path, !how || !strcmp(how, "rename"), &error);
    return status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
}

/* Opens the log in the form of --log, text or json. --json also means json, so that both outputs
 * are JSON. */
static int serve_open_log(struct cli *cli, const char *store, struct log **log)
{
    const char *form = cli_text(cli, "log");
    char label[CLI_LABEL_MAX];

    cli_option_label(cli, "log", label, sizeof label);
    if (form && strcmp(form, "text") != 0 && strcmp(form, "json") != 0)
        return cli_usage(cli, "%s must be text or json, not \"%s\"", label, form);
    cli->json = cli->json || (form && !strcmp(form, "json"));
    *log = log_new(&(struct log_options){.file = STDERR_FILENO,
                                         .json = form ? !strcmp(form, "json") : cli->json,
                                         .quiet = cli->quiet});
    return open_log_file(cli, store, *log);
}

/* Reads --socket-mode, an octal number such as 0660. */
static bool serve_socket_mode(const struct cli *cli, unsigned *mode)
{
    const char *text = cli_text(cli, "socket-mode");
    char label[CLI_LABEL_MAX], *end;

    *mode = 0;
    if (!text)
        return true;
    cli_option_label(cli, "socket-mode", label, sizeof label);
    *mode = (unsigned)strtoul(text, &end, 8);
    if (*text < '0' || *text > '7' || *end || !*mode || *mode > 0777)
        cli_usage(cli, "%s must be an octal number from 1 to 777, for example 0660, not \"%s\"",
                  label, text);
    else if (!cli_text(cli, "socket"))
        cli_usage(cli, "%s needs --socket", label);
    else
        return true;
    return false;
}

/* Makes the path of the socket absolute, because drivers recognize a socket by its slashes. */
static const char *serve_socket_path(const char *path, char absolute[SOCKET_PATH_MAX])
{
    char folder[SOCKET_PATH_MAX / 2];

    /* A path that does not fit is longer than a socket's path may be, which the server reports. */
    if (!path || !*path || *path == '/' || !getcwd(folder, sizeof folder))
        return path;
    snprintf(absolute, SOCKET_PATH_MAX, "%s/%s", folder, path);
    return absolute;
}

/* If the store is a MongoDB server, uses the database of its URL as the server's own database, and
 * writes its name to `own`. */
static int serve_own_database(struct cli *cli, truce_store *store, struct server_options *options,
                              char own[DATABASE_NAME_MAX + 1])
{
    bson_error_t error;
    truce_status status;

    if (strcmp(store->ops->scheme, "mongodb") != 0)
        return CLI_DONE;
    status = truce__own_database(store, own, &error);
    if (status)
        return cli_error(cli, NULL, status, &error);
    if (options->database && strcmp(options->database, own) != 0)
        return cli_usage(cli, "--database is \"%s\", but the database of the URL is \"%s\"",
                         options->database, own);
    options->database = own;
    return CLI_DONE;
}

/* Opens the store, and starts the archiver, the consumers, and the server. If the file does not
 * exist, checks the options first, so that a refused call creates no file. */
static int serve_store(struct cli *cli, const char *uri, struct server_options *options,
                       const sigset_t *ends)
{
    struct serve_log serve_log = {.log = options->log};
    truce_store_hooks hooks = {.log = serve_log_store, .arg = &serve_log};
    truce_store_options store_options = {.deadline_ms = cli->deadline_ms, .hooks = &hooks};
    char socket[SOCKET_PATH_MAX], own[DATABASE_NAME_MAX + 1];
    struct serve_archive *archive = NULL;
    struct serve_consume *consume = NULL;
    truce_store *store;
    bson_error_t error;
    truce_status status;
    int code = CLI_DONE;

    /* A file has several databases, which the server selects, so the file is opened as a whole. */
    if (!strncmp(uri, "mongodb", 7))
        store_options.database = options->database;
    options->socket = serve_socket_path(options->socket, socket);
    if (cli_store_path(uri) && access(cli_store_path(uri), F_OK)) {
        serve_log.created = cli_store_path(uri);
        /* Checks the options first, so that a refused call creates no file. */
        status = server_check_new(options, &error);
        if (status)
            return serve_refused(cli, status, &error);
        code = serve_consume_check(cli, options->database ? options->database : OWN_DATABASE);
        if (!code)
            code = serve_archive_check(cli, uri);
        if (code)
            return code;
    }
    status = truce_store_open(uri, &store_options, &store, &error);
    if (status)
        return cli_error(cli, NULL, status, &error);
    code = serve_own_database(cli, store, options, own);
    if (!code)
        code = serve_archive_begin(cli, store, uri, options->log, &archive);
    options->sync_target = serve_archive_sync_target(archive);
    if (!code)
        code = serve_consume_begin(cli, store, options->database ? options->database : OWN_DATABASE,
                                   options->log, &consume);
    if (!code)
        code = serve_serve(cli, store, options, ends, &serve_log);
    serve_consume_end(consume);
    truce_store_close(store);
    serve_archive_end(archive);
    return code;
}

static int serve_run(struct cli *cli)
{
    /* Static, because the thread uses it until the process ends. */
    static struct serve_parent parent;
    struct server_options options = {.address = cli_text(cli, "bind"),
                                     .database = cli_text(cli, "database"),
                                     .replica_set = cli_text(cli, "replica-set"),
                                     .advertise = cli_text(cli, "advertise"),
                                     .socket = cli_text(cli, "socket"),
                                     .auth = cli_flag(cli, "auth"),
                                     .tls = {.certificate = cli_text(cli, "tls-certificate"),
                                             .key = cli_text(cli, "tls-key"),
                                             .client_ca = cli_text(cli, "tls-client-ca")},
                                     .test_commands = cli_flag(cli, "test-commands"),
                                     .metrics = cli_text(cli, "metrics"),
                                     .http = cli_text(cli, "http"),
                                     .http_hosts = cli_text(cli, "http-host"),
                                     .slow_ms = cli->slow_ms,
                                     .shutdown = end_by_command};
    const char *uri = cli->arguments[0] ? cli->arguments[0] : cli->uri;
    const char *isolation = cli_text(cli, "isolation");
    int64_t port, most, feed_ms, megabytes;
    struct server_feed feed;
    sigset_t ends;
    char label[CLI_LABEL_MAX];
    int code;

    if (!cli_number(cli, "port", 0, 65535, 27017, &port) ||
        !cli_number(cli, "connections", 1, 100000, 0, &most) ||
        !cli_duration(cli, "transaction-timeout", 1000, DAY_MS, 0, &options.transaction_ms) ||
        !cli_duration(cli, "feed-keep", 0, 366 * DAY_MS, -1, &feed_ms) ||
        !cli_number(cli, "feed-mb", 1, 1000000, FEED_MB, &megabytes) ||
        !cli_duration(cli, "sweep-every", 0, 86400000, SWEEP_MS, &options.sweep_every_ms))
        return CLI_USAGE;
    if (feed_ms < 0 && cli_text(cli, "feed-mb"))
        return cli_usage(cli, "--feed-mb needs --feed-keep");
    if (options.http_hosts && !options.http)
        return cli_usage(cli, "--http-host needs --http");
    feed = (struct server_feed){feed_ms, megabytes << 20};
    if (feed_ms >= 0)
        options.feed = &feed;
    if (!uri)
        return cli_usage(cli, "no store is given: truce serve PATH");
    if (!uri[strspn(uri, "0123456789")] && access(uri, F_OK))
        return cli_usage(cli, "%s looks like a port, not a store: use --port %s", uri, uri);
    cli_option_label(cli, "isolation", label, sizeof label);
    if (isolation && strcmp(isolation, "serializable") != 0 && strcmp(isolation, "snapshot") != 0)
        return cli_usage(cli, "%s must be serializable or snapshot, not \"%s\"", label, isolation);
    if (isolation && !strcmp(isolation, "serializable") && !strncmp(uri, "mongodb", 7))
        return cli_usage(
            cli,
            "%s serializable is not supported by a store at mongodb://: its transactions are those "
            "of MongoDB, which have snapshot isolation",
            label);
    options.snapshot_isolation = isolation && !strcmp(isolation, "snapshot");
    options.port = options.socket && !cli_text(cli, "port") ? SERVER_NO_PORT : (int)port;
    if (!serve_socket_mode(cli, &options.socket_mode))
        return CLI_USAGE;
    if (options.address && options.port == SERVER_NO_PORT)
        return cli_usage(
            cli,
            "--bind needs --port if --socket is given: without --port, the server listens on the "
            "socket only");
    options.connections_max = (int)most;
    code = serve_open_log(cli, uri, &options.log);
    hold_signals(&ends);
    raise_file_limit();
    if (!code)
        code = serve_parent_begin(cli, &parent);
    if (!code)
        code = serve_store(cli, uri, &options, &ends);
    log_free(options.log);
    return code;
}

static const struct cli_command cli_serve = {
    .noun = "serve",
    .arguments = "[PATH]",
    .summary = "serve a store to MongoDB drivers and mongosh",
    .help =
        "Clients connect to mongodb://127.0.0.1:27017. The store's own collections belong to\n"
        "the database of --database. Collections of other databases are in the store\n"
        "as @DATABASE.NAME. Other processes may use the file at the same time.\n"
        "\n"
        "A write is on disk before it is acknowledged, unless the client asks for {w: 0} or\n"
        "{j: false}. The server behaves like a standalone MongoDB 8.0, or, with\n"
        "--replica-set, like a replica set of one. Collations are refused with an error.\n"
        "\n"
        "With --feed-keep, clients can watch collections (change streams), and resume within\n"
        "that time, even after a restart. The changes are stored in the file. Every process that\n"
        "writes to it stores them, until --feed-keep 0 ends it.\n"
        "\n"
        "Transactions of several documents are serializable, with any driver. If a transaction\n"
        "cannot be serialized, its commit fails with error 112, and drivers run it again.\n"
        "\n"
        "With --replica-set, drivers retry a write whose reply was lost. It is executed once,\n"
        "even if the server is killed in between.\n"
        "\n"
        "By default, the server listens on 127.0.0.1. An address that is not loopback (--bind\n"
        "0.0.0.0 for all) requires --auth. Clients then log in with SCRAM-SHA-256 or\n"
        "SCRAM-SHA-1, as users with roles. truce user add creates the first user.\n"
        "\n"
        "With --socket PATH, the server listens on a Unix socket instead of a port, or in\n"
        "addition to the one of --port. Only the server's user can connect (--socket-mode). With\n"
        "--parent PID, the server ends when that process ends.\n"
        "\n"
        "With --tls-certificate, every connection uses TLS 1.2 or later. With --tls-client-ca,\n"
        "clients also need a certificate of that CA, in addition to their login.\n"
        "\n"
        "With --metrics PORT, http://127.0.0.1:PORT/metrics has metrics for\n"
        "Prometheus: commands, their times, failures,\n"
        "connections, commits, and the activity of the store.\n"
        "\n"
        "With --archive, the server archives the file as truce archive does; --archive-keep,\n"
        "--archive-log-limit, and --archive-interval are its options. With --archive-sync, an\n"
        "acknowledged write is in the archive, too. While the archive fails for longer than\n"
        "--archive-sync-timeout, writes are refused.\n"
        "\n"
        "With --consume FILE, the server consumes the messages of a broker. FILE has the options\n"
        "of truce consume, as for its --config; several files are several consumers.\n"
        "\n"
        "Every minute the server sweeps: it removes documents that expired by an index with\n"
        "expireAfterSeconds, and completes or undoes commits of dead processes.\n"
        "\n"
        "The log goes to standard error: a line for each connection, login, and command that took\n"
        "--slow DURATION or longer (100ms). --quiet omits connections. With --log-file it goes\n"
        "to a file, which SIGUSR1 rotates.\n"
        "\n"
        "If the disk fails to sync, no call succeeds until the file is opened again: the\n"
        "server exits with 3, so that its supervisor starts it again.\n"
        "\n"
        "--config FILE has any of these options as lines, without the dashes. A flag is yes or\n"
        "no. A line that begins with # is a comment. Options of the call take precedence.\n"
        "\n"
        "    # truce.conf\n"
        "    store = /var/lib/truce/store.truce\n"
        "    port = 27018\n"
        "    auth = yes",
    .example = "truce serve school.truce --port 0 &\n"
               "sleep 1; kill %1",
    .options =
        (const struct cli_option[]){
            {"port", 'p', "N", "the port; 0: a free one, which is printed (default: 27017)", false},
            {"bind", 0, "ADDRESS",
             "the address to listen on; requires --auth if it is not loopback (default: 127.0.0.1)",
             false},
            {"socket", 0, "PATH", "listen on this Unix socket, and on a port only with --port",
             false},
            {"socket-mode", 0, "MODE", "mode of the socket's file (default: 0600)", false},
            {"parent", 0, "PID", "exit when the process with this id ends", false},
            {"auth", 0, NULL, "require a login; roles decide what clients may do", false},
            {"tls-certificate", 0, "FILE", "PEM: use TLS with this certificate", false},
            {"tls-key", 0, "FILE", "PEM: its key (default: in the same file)", false},
            {"tls-client-ca", 0, "FILE", "PEM: require client certificates of this CA", false},
            {"archive", 0, "TARGET", "archive the file to a directory or s3://BUCKET/PREFIX",
             false},
            {"archive-keep", 0, "DURATION", "restore up to this age: 30d, 12h (default: forever)",
             false},
            {"archive-log-limit", 0, "MB", "maximum log that is not archived (default: 1000)",
             false},
            {"archive-interval", 0, "DURATION",
             "pause between two reads of the log (default: 250ms)", false},
            {"archive-sync", 0, NULL, "acknowledge writes after they are archived", false},
            {"archive-sync-timeout", 0, "DURATION", "maximum wait for the archive (default: 10s)",
             false},
            {"consume", 0, "FILE", "consume a broker's messages; a file of truce consume's options",
             true},
            {"database", 0, "NAME", "the database of the file's own collections (default: test)",
             false},
            {"connections", 0, "N", "maximum number of clients (default: 1000)", false},
            {"replica-set", 0, "NAME", "behave like the primary of this replica set", false},
            {"advertise", 0, "HOST:PORT", "the address of that primary (default: where it listens)",
             false},
            {"isolation", 0, "LEVEL", "isolation of transactions: serializable, or snapshot",
             false},
            {"test-commands", 0, NULL, "allow configureFailPoint, for tests", false},
            {"metrics", 0, "[ADDRESS:]PORT",
             "serve metrics for Prometheus at /metrics on the loopback", false},
            {"http", 0, "[ADDRESS:]PORT",
             "serve POST /v1/DATABASE/OPERATION; needs --auth beyond the loopback", false},
            {"http-host", 0, "NAMES", "further names for the Host header, separated by commas",
             false},
            {"feed-keep", 0, "DURATION",
             "keep changes for change streams; 0: none (default: as the file)", false},
            {"feed-mb", 0, "N", "maximum size of these changes in MB (default: 1024)", false},
            {"sweep-every", 0, "DURATION", "time between sweeps; 0: never (default: 60s)", false},
            {"log", 0, "FORM", "form of the log: text or json (default: text)", false},
            {"log-file", 0, "FILE", "append the log to this file (default: standard error)", false},
            {"log-rotate", 0, "HOW", "on SIGUSR1 and logRotate: rename or reopen (default: rename)",
             false},
            {"transaction-timeout", 0, "DURATION", "maximum time of a transaction (default: 60s)",
             false},
            {"config", 0, "FILE", "a file of options, as lines: name = value", false},
            {0}},
    .store = CLI_STORE_NONE,
    .run = serve_run,
};

cli_command_list cli_serve_commands = {&cli_serve, NULL};

/* truce ui: serves a store to the browser of this machine until Ctrl-C. */
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "server/server.h"
#include "store/decorators/database_view.h"
#include "store/namespace_map.h"

#define UI_DRAIN_MS    3000
#define UI_ADDRESS_MAX 32

/* Starts the browser. Discards its output. */
static bool ui_open(const char *address)
{
    static char program[] = "xdg-open";
    char *const call[] = {program, (char *)(uintptr_t)address, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none;
    pid_t child;
    bool started;

    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attributes);
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    started = !posix_spawnp(&child, call[0], &files, &attributes, call, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return started;
}

static bool ui_print(const struct cli *cli, const char *address)
{
    bson_t *document = BCON_NEW("screen", BCON_UTF8(address));
    bool printed = cli_answer(cli, document, "the screen is at %s (Ctrl-C ends it)", address);

    bson_destroy(document);
    return printed && !fflush(stdout);
}

/* Serves the screen until one of the signals `ends`. `shown` is the database that the screen shows
 * first. If it is NULL, the screen shows the store's own database. */
static int ui_serve(struct cli *cli, const struct server_options *options, const char *shown,
                    const sigset_t *ends)
{
    struct server *server;
    bson_error_t error;
    truce_status status = server_start(cli->store, options, &server, &error);
    int received, code = CLI_DONE;
    char *address;

    if (status)
        return cli_error(cli, NULL, status, &error);
    address = bson_strdup_printf("%s/ui/%s%s", server_http(server), shown ? "#/" : "",
                                 shown ? shown : "");
    if (!ui_print(cli, address))
        code = CLI_FAILED;
    else if (!cli_flag(cli, "no-open") && !ui_open(address))
        cli_note(cli, "cannot open a browser, because xdg-open is not installed: open %s yourself",
                 address);
    bson_free(address);
    while (!code && sigwait(ends, &received))
        continue;
    server_stop(server, UI_DRAIN_MS);
    return code;
}

static int ui_run(struct cli *cli)
{
    char http[UI_ADDRESS_MAX];
    struct server_options options = {.http = http};
    const char *shown = cli->database;
    char own[DATABASE_NAME_MAX + 1];
    bson_error_t error;
    truce_status status;
    sigset_t ends;
    int64_t port;
    int code;

    if (!cli_number(cli, "port", 0, 65535, 0, &port))
        return CLI_USAGE;
    if (cli->arguments[0])
        cli->uri = cli->arguments[0];
    if (!cli->uri)
        return cli_usage(cli, "no store is given: truce ui PATH");
    snprintf(http, sizeof http, "%d", (int)port);
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    /* All threads, which start later, inherit the mask. */
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    cli->database = NULL; /* The server needs the whole store. */
    code = cli_store_open(cli, CLI_STORE_CHANGE, &cli->store);
    if (code)
        return code;
    status = shown ? truce__database_name_check(shown, &error) : TRUCE_OK;
    if (!status)
        status = truce__own_database(cli->store, own, &error);
    if (status)
        return cli_error(cli, NULL, status, &error);
    options.database = own;
    options.log =
        log_new(&(struct log_options){.file = STDERR_FILENO, .json = cli->json, .quiet = true});
    code = ui_serve(cli, &options, shown, &ends);
    log_free(options.log);
    return code;
}

static const struct cli_command cli_ui = {
    .noun = "ui",
    .arguments = "[PATH]",
    .summary = "show a store in the browser",
    .help =
        "Starts a server for the screen on a free port of this machine, and opens the browser.\n"
        "The screen shows queues, jobs, ledgers, conflicts, commits, and documents, and\n"
        "repairs them. Other processes may use the store at the same time.\n"
        "\n"
        "The log goes to standard error: a line for each action of the screen.\n"
        "\n"
        "Any program of this machine can connect to the port, as with truce serve. For a\n"
        "screen with logins, or for other machines, run truce serve --http PORT --auth.",
    .example = "truce insert people '{_id: 1}' --store school.truce\n"
               "truce ui school.truce --no-open &\n"
               "sleep 1; kill %1",
    .options = (const struct cli_option[]){{"port", 'p', "N",
                                            "the port; 0: a free one (default: 0)", false},
                                           {"no-open", 0, NULL, "do not open the browser", false},
                                           {0}},
    .store = CLI_STORE_NONE,
    .run = ui_run,
};

cli_command_list cli_ui_commands = {&cli_ui, NULL};

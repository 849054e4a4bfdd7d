/*
 * truce request add, show, list, run.
 *
 * `run` is a handler for the shell: a program reads the input of a request and prints changes, in
 * the form of `truce commit apply`. The changes and the end of the request are one commit. A
 * request therefore takes effect once, even if its program runs several times or processes die.
 */
#include <errno.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "bson/json.h"
#include "cli/commands.h"
#include "cli/core/ndjson.h"
#include "cli/core/operation_row.h"
#include "cli/document/commit.h"
#include "patterns/change_list/change_list.h"
#include "store/reserved_names.h"

/* ---- add, show, list ------------------------------------------------------------------------ */

static const struct cli_command cli_request_add = {
    .noun = "request",
    .verb = "add",
    .arguments = "KEY NAME [INPUT]",
    .summary = "add a request that is handled exactly once",
    .help = "You choose KEY: the same key with the same name and input adds nothing. NAME selects\n"
            "the handler (truce request run NAME, or a handler in C). INPUT is a document.",
    .example = "truce request add order-17 ship '{order: 17}'",
    .store = CLI_STORE_WRITE,
    .row = &(const struct cli_row){.name = "truceRequest", .format = "added {key}"},
    .run = cli_row_run,
};

static const struct cli_command cli_request_show = {
    .noun = "request",
    .verb = "show",
    .arguments = "KEY",
    .summary = "show the state of a request",
    .example = "truce request add order-17 ship '{order: 17}'\n"
               "truce request show order-17",
    .store = CLI_STORE_READ,
    .row = &(const struct cli_row){.name = "truceRequestState", .show = "request"},
    .run = cli_row_run,
};

static const struct cli_command cli_request_list = {
    .noun = "request",
    .verb = "list",
    .summary = "list requests, oldest first",
    .example = "truce request add order-17 ship '{order: 17}'\n"
               "truce request list --state waiting",
    .store = CLI_STORE_READ,
    .row = &(const struct cli_row){.name = "truceRequests", .list = "requests"},
    .run = cli_row_run,
};

/* ---- run ------------------------------------------------------------------------------------ */

/* Runs the program with the file `in` as its standard input and the file `out` as its standard
 * output. Returns INVALID if it cannot be started or does not succeed. */
static truce_status run_program(const struct cli *cli, int in, int out, bson_error_t *error)
{
    char **words = (char **)(uintptr_t)(cli->arguments + 1);
    posix_spawn_file_actions_t actions;
    int failed, state = 0;
    pid_t child;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    failed = posix_spawnp(&child, words[0], &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed)
        return truce__fail(TRUCE_INVALID, error, "cannot run %s: %s", words[0], strerror(failed));
    while (waitpid(child, &state, 0) < 0 && errno == EINTR)
        continue;
    if (WIFEXITED(state) && !WEXITSTATUS(state))
        return TRUCE_OK;
    if (WIFEXITED(state))
        return truce__fail(TRUCE_INVALID, error, "%s ended with exit code %d", words[0],
                           WEXITSTATUS(state));
    return truce__fail(TRUCE_INVALID, error, "%s was killed: %s", words[0],
                       strsignal(WTERMSIG(state)));
}

/* Returns the descriptor of a file in memory with the input as a line of JSON, or -1. */
static int file_of(const bson_t *input)
{
    int file = memfd_create("input", MFD_CLOEXEC);
    struct buffer text = {0};
    bool good = file >= 0;

    truce__json_write(&text, input, false, JSON_RELAXED);
    truce__buffer_append_byte(&text, '\n');
    good = good && write(file, text.bytes, text.size) == (ssize_t)text.size &&
           !lseek(file, 0, SEEK_SET);
    truce__buffer_release(&text);
    if (!good && file >= 0)
        close(file);
    return good ? file : -1;
}

/* Adds the program's output to the commit, as changes. Empty output means no changes. */
static truce_status take_changes(const struct cli *cli, int out, truce_commit *commit,
                                 bson_error_t *error)
{
    char path[40], *text = NULL;
    struct json_reader reader = {.typed = true};
    bool is_array = false;
    bson_error_t why;
    bson_t changes;
    truce_status status;

    snprintf(path, sizeof path, "/proc/self/fd/%d", out);
    status = cli_text_file(path, &text, error);
    if (!status && text[strspn(text, " \t\r\n")]) {
        status = truce__json_read(&reader, text, strlen(text), &changes, &is_array, &why);
        if (status)
            truce__fail(status, error, "the output of %s is not an array of changes: %s",
                        cli->arguments[1], why.message);
        if (!status && (!is_array || cli_parts_check(cli, &changes)))
            status = truce__fail(
                TRUCE_INVALID, error,
                "the output of %s is not an array of changes: expected [{\"insert\": COLLECTION, "
                "\"with\": DOCUMENT}, ...], as for truce commit apply",
                cli->arguments[1]);
        if (!status)
            status = truce__change_list_add(&changes, NULL, NULL, commit, error);
        truce__json_reader_release(&reader);
    }
    bson_free(text);
    return status;
}

static truce_status request_run_program(truce_commit *commit, const bson_t *input, void *arg,
                                        bson_error_t *error)
{
    const struct cli *cli = arg;
    int in = file_of(input), out = memfd_create("output", MFD_CLOEXEC);
    truce_status status;

    if (in < 0 || out < 0)
        status = truce__fail(TRUCE_IO, error,
                             "cannot create temporary files for the program's input and output: %s",
                             strerror(errno));
    else
        status = run_program(cli, in, out, error);
    if (!status)
        status = take_changes(cli, out, commit, error);
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    return status;
}

static int request_report(const struct cli *cli, const truce_request_report *report)
{
    bson_t answer = BSON_INITIALIZER;

    BSON_APPEND_INT64(&answer, "done", report->done);
    BSON_APPEND_INT64(&answer, "failed", report->failed);
    cli_answer(cli, &answer, "%" PRId64 " done, %" PRId64 " failed", report->done, report->failed);
    bson_destroy(&answer);
    return cli_output_end(report->failed ? CLI_NO : CLI_DONE);
}

/* Runs the requests that wait, with --loop until a failure. */
static int request_run_run(struct cli *cli)
{
    const truce_request_handler handler = {
        .name = cli->arguments[0], .function = request_run_program, .arg = cli};
    const truce_commit_options options = {.deadline_ms = cli->deadline_ms};
    truce_request_report report;
    bson_error_t error;
    int64_t limit;
    uint64_t token = 0;
    int code = CLI_DONE;

    if (!cli_number(cli, "limit", 1, 100000, 100, &limit))
        return CLI_USAGE;
    for (;;) {
        truce_status status =
            truce_request_run(cli->store, &handler, 1, (uint32_t)limit, &options, &report, &error);

        if (status)
            return cli_error(cli, NULL, status, &error);
        if (report.done || report.failed || !cli_flag(cli, "loop"))
            code = request_report(cli, &report);
        if (!cli_flag(cli, "loop") || code == CLI_FAILED)
            return code;
        if (report.done + report.failed < limit) {
            status = truce_wait(cli->store, REQUESTS, &token, 1000, &error);
            if (status && status != TRUCE_TIMEOUT)
                truce__clock_sleep_ms(1000);
        }
    }
}

static const struct cli_command cli_request_run = {
    .noun = "request",
    .verb = "run",
    .arguments = "NAME PROGRAM [WORD...]",
    .summary = "handle requests by a program, each in one commit",
    .help =
        "PROGRAM reads the request's input from standard input and prints an array of changes,\n"
        "as truce commit apply takes them, or nothing. The changes and the end of the request\n"
        "are one commit: they take effect once, even if PROGRAM runs again. If it fails, the\n"
        "request is retried with growing delays, and fails after 10 attempts. Put -- before\n"
        "the program's own options. The exit code is 1 if an attempt failed.",
    .example = "truce request add order-17 ship '{_id: 17}'\n"
               "truce request run ship -- sh -c 'echo \"[{insert: \\\"mail\\\", with: $(cat)}]\"'\n"
               "truce find mail",
    .options = (const struct cli_option[]){{"limit", 'n', "N", "requests in a batch (default: 100)",
                                            false},
                                           {"loop", 0, NULL, "continue until killed", false},
                                           {0}},
    .store = CLI_STORE_CHANGE,
    .run = request_run_run,
};

cli_command_list cli_request_commands = {&cli_request_add, &cli_request_show, &cli_request_list,
                                         &cli_request_run, NULL};

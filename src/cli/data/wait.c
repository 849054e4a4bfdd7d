/*
 * truce wait: waits until a document matches, or until something is written.
 *
 * The token is taken before the collection is read, so no write is missed between a read and the
 * wait.
 */
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/core/interrupt.h"
#include "cli/data/query.h"

#define SLICE_MS   60000
#define LONGEST_MS (INT64_C(1) << 40)

/* Looks for a match. Fails with NOT_FOUND if no document matches yet. */
static truce_status wait_find_match(const struct cli *cli, const bson_t *filter, bson_t *found,
                                    bson_error_t *error)
{
    truce_find_options options = {.limit = 1};

    return truce_find_one(cli->store, cli->arguments[0], filter, &options, found, error);
}

/* Waits for one write, until `until_ns`, or until Ctrl-C. */
static truce_status wait_once(const struct cli *cli, uint64_t *token, int64_t until_ns,
                              bson_error_t *error)
{
    for (;;) {
        int64_t left_ms = (until_ns - truce__clock_monotonic_ns()) / 1000000;
        truce_status status;

        if (left_ms <= 0)
            return TRUCE_TIMEOUT;
        status = truce_wait(cli->store, cli->arguments[0], token,
                            (uint32_t)(left_ms < SLICE_MS ? left_ms : SLICE_MS), error);
        if (status != TRUCE_TIMEOUT || cli_interrupt_code(CLI_DONE))
            return status;
    }
}

static int wait_report(const struct cli *cli, truce_status status, const bson_t *found,
                       const bson_error_t *error)
{
    if (status == TRUCE_TIMEOUT && !cli_interrupt_code(CLI_DONE)) {
        cli_note(cli, "nothing changed before the timeout");
        return CLI_NO;
    }
    if (status)
        return cli_error(cli, NULL, status, error);
    if (found)
        cli_print(found, JSON_RELAXED);
    return CLI_DONE;
}

/* Waits for a change of the collection, or for a document that matches the filter. */
static int wait_run(struct cli *cli)
{
    bool for_match = cli->arguments[1] != NULL;
    bson_t filter, found = BSON_INITIALIZER;
    uint64_t token = 0;
    int64_t longest_ms, until_ns;
    bson_error_t error;
    truce_status status;
    int code = CLI_USAGE;

    if (!cli_document(cli, cli->arguments[1], "FILTER", &filter) ||
        !cli_duration(cli, "timeout", 0, LONGEST_MS, LONGEST_MS, &longest_ms))
        goto out;
    if (cli->deadline_ms && cli->deadline_ms < longest_ms)
        longest_ms = cli->deadline_ms;
    until_ns = truce__clock_monotonic_ns() + longest_ms * 1000000;
    /* The first call returns at once and fills the token. */
    status = truce_wait(cli->store, cli->arguments[0], &token, 0, &error);
    while (!status || status == TRUCE_TIMEOUT) {
        if (for_match) {
            bson_destroy(&found);
            status = wait_find_match(cli, &filter, &found, &error);
            if (status != TRUCE_NOT_FOUND)
                break;
        }
        status = wait_once(cli, &token, until_ns, &error);
        if (status || !for_match)
            break;
    }
    code = wait_report(cli, status, for_match ? &found : NULL, &error);
out:
    bson_destroy(&filter);
    bson_destroy(&found);
    return code;
}

static const struct cli_command cli_wait = {
    .noun = "wait",
    .arguments = "COLLECTION [FILTER]",
    .summary = "wait for a matching document or for the next write",
    .help = "With FILTER, the command waits until a document matches, and prints it.\n"
            "Without FILTER, it waits for the next write to the collection by any process.\n"
            "Exit code 1: the time of --timeout or --deadline has passed.",
    .example = "truce insert jobs '{_id: 1, state: \"done\"}'\n"
               "truce wait jobs '{_id: 1, state: \"done\"}' --timeout 10s",
    .options =
        (const struct cli_option[]){
            {"timeout", 't', "DURATION", "at most this long (default: no maximum)", false}, {0}},
    .store = CLI_STORE_CHANGE,
    .run = wait_run,
};

cli_command_list cli_wait_commands = {&cli_wait, NULL};

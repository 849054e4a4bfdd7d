/* truce cron: jobs on a schedule. */
#include <string.h>

#include "bson/date.h"
#include "cli/commands.h"
#include "cli/core/operation_row.h"

/* Prints the next time of a cron line. */
static bool cron_print_next(struct cli *cli, const bson_t *reply)
{
    char text[DATE_TEXT_MAX];
    bson_iter_t next;

    if (bson_iter_init_find(&next, reply, "next") && BSON_ITER_HOLDS_DATE_TIME(&next))
        return cli_put("%s: next at %s\n", cli->arguments[0],
                       truce__date_show(bson_iter_date_time(&next), text));
    return cli_put("%s: paused\n", cli->arguments[0]);
}

static const struct cli_command cli_cron_set = {
    .noun = "cron",
    .verb = "set",
    .arguments = "CRON QUEUE LINE PAYLOAD",
    .summary = "add jobs to a queue on a schedule",
    .help =
        "CRON is the name of the line. LINE is \"minute hour day month weekday\", or six fields\n"
        "that begin with the second, or @hourly, @daily, @weekly, @monthly, @yearly, or\n"
        "\"@every 90s\" (s, m, h, d). The workers of the queue fire it, and so does `truce "
        "sweep`.\n"
        "Each time adds one job, for any number of workers. Setting the same line again keeps its\n"
        "next time.",
    .example =
        "truce cron set nightly reports '0 3 * * *' '{report: \"sales\"}' --zone Europe/Berlin\n"
        "truce cron set pulse mail '@every 30s' '{}' --missed skip",
    .store = CLI_STORE_WRITE,
    .row = &(const struct cli_row){.name = "truceCronSet", .print = cron_print_next},
    .run = cli_row_run,
};

static const struct cli_command cli_cron_list = {
    .noun = "cron",
    .verb = "list",
    .summary = "list cron lines with their next times",
    .example = "truce cron set nightly reports '0 3 * * *' '{report: \"sales\"}'\n"
               "truce cron list",
    .store = CLI_STORE_READ,
    .row = &(const struct cli_row){.name = "truceCrons", .list = "crons", .next = "_id"},
    .run = cli_row_run,
};

/* Runs the operation on a store in memory, because it reads no document. */
static int cron_run_times(struct cli *cli)
{
    bson_error_t error;
    truce_status status = truce_store_open("memory:", NULL, &cli->store, &error);

    return status ? cli_error(cli, NULL, status, &error) : cli_row_run(cli);
}

static const struct cli_command cli_cron_next = {
    .noun = "cron",
    .verb = "next",
    .arguments = "LINE",
    .summary = "print the next times of a cron line, in UTC",
    .example = "truce cron next '30 2 * * *' --zone Europe/Berlin --after 2026-03-28T12:00:00Z\n"
               "truce cron next '0 9 * * MON-FRI' -n 3",
    .store = CLI_STORE_NONE,
    .row = &(const struct cli_row){.name = "truceCronNext", .list = "times", .format = "{time}"},
    .run = cron_run_times,
};

#define CRON_ACTION(action, done)                                                                  \
    &(const struct cli_row)                                                                        \
    {                                                                                              \
        .name = "truceCron", .set = "{action: '" action "'}", .format = done " {cron}"             \
    }

static const struct cli_command cli_cron_pause = {
    .noun = "cron",
    .verb = "pause",
    .arguments = "CRON...",
    .summary = "pause cron lines",
    .help = "Times in the meantime do not count as missed: `truce cron resume` continues with the\n"
            "next time.",
    .example = "truce cron set nightly reports @daily '{}'\n"
               "truce cron pause nightly",
    .store = CLI_STORE_CHANGE,
    .row = CRON_ACTION("pause", "paused"),
    .run = cli_row_run,
};

static const struct cli_command cli_cron_resume = {
    .noun = "cron",
    .verb = "resume",
    .arguments = "CRON...",
    .summary = "resume cron lines with their next time",
    .example = "truce cron set nightly reports @daily '{}'\n"
               "truce cron pause nightly\n"
               "truce cron resume nightly",
    .store = CLI_STORE_CHANGE,
    .row = CRON_ACTION("resume", "resumed"),
    .run = cli_row_run,
};

static const struct cli_command cli_cron_remove = {
    .noun = "cron",
    .verb = "remove",
    .arguments = "CRON...",
    .summary = "remove cron lines; jobs that were added stay",
    .example = "truce cron set nightly reports @daily '{}'\n"
               "truce cron remove nightly",
    .store = CLI_STORE_CHANGE,
    .row = CRON_ACTION("remove", "removed"),
    .run = cli_row_run,
};

cli_command_list cli_cron_commands = {&cli_cron_set,
                                      &cli_cron_list,
                                      &cli_cron_next,
                                      &cli_cron_pause,
                                      &cli_cron_resume,
                                      &cli_cron_remove,
                                      NULL};

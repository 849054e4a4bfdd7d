/* truce cron set, list, next, pause, resume, remove. */
#include <string.h>

#include "base/clock.h"
#include "bson/date.h"
#include "cli/commands.h"
#include "cli/queue/queue_options.h"
#include "store/reserved.h"
#include "store/restored.h"

/* ---- set ------------------------------------------------------------------------------------- */

static bool read_missed(const struct cli *cli, truce_cron_missed *missed)
{
    static const char *const names[] = {"once", "skip", "all"};
    const char *text = cli_text(cli, "missed");

    *missed = TRUCE_MISSED_ONCE;
    for (size_t i = 0; text && i < sizeof names / sizeof *names; i++) {
        if (!strcmp(text, names[i])) {
            *missed = (truce_cron_missed)i;
            return true;
        }
    }
    if (text)
        cli_usage(cli, "--missed must be once, skip, or all, not \"%s\"", text);
    return !text;
}

/* Prints the next time of a cron line. */
static int tell_next(struct cli *cli, const char *name)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(name)), cron, answer = BSON_INITIALIZER;
    char text[DATE_TEXT_MAX];
    bson_error_t error;
    bson_iter_t iter;
    truce_status status = truce_find_one(cli->store, QUEUE_CRONS, filter, NULL, &cron, &error);

    BSON_APPEND_UTF8(&answer, "cron", name);
    if (!status && bson_iter_init_find(&iter, &cron, "next") && BSON_ITER_HOLDS_DATE_TIME(&iter)) {
        BSON_APPEND_DATE_TIME(&answer, "next", bson_iter_date_time(&iter));
        cli_answer(cli, &answer, "%s: next at %s", name,
                   truce__date_show(bson_iter_date_time(&iter), text));
    } else if (!status) {
        BSON_APPEND_BOOL(&answer, "paused", true);
        cli_answer(cli, &answer, "%s: paused", name);
    }
    bson_destroy(&answer);
    bson_destroy(&cron);
    bson_destroy(filter);
    return status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
}

static int set_cron(struct cli *cli, const truce_cron_options *options)
{
    truce_queue_options queue_options = {.queue = cli->arguments[1],
                                         .deadline_ms = cli->deadline_ms};
    truce_queue *queue = truce_queue_new(cli->store, &queue_options);
    int code = CLI_USAGE;
    bson_t payload;

    if (cli_document(cli, cli->arguments[3], "PAYLOAD", &payload)) {
        bson_error_t error;
        truce_status status =
            truce_cron_set(queue, cli->arguments[0], cli->arguments[2], &payload, options, &error);

        code = status ? cli_error(cli, NULL, status, &error) : tell_next(cli, cli->arguments[0]);
    }
    bson_destroy(&payload);
    truce_queue_free(queue);
    return code;
}

static int cron_print_set(struct cli *cli)
{
    truce_job_options job = {0};
    truce_cron_options options = {.zone = cli_text(cli, "zone"), .job = &job};
    bson_t metadata, tags = BSON_INITIALIZER;
    int64_t most;
    bool good = cli_job_options(cli, &job, &metadata, &tags);
    int code;

    good = cli_number(cli, "most", 1, INT32_MAX, 0, &most) && good;
    good = good && read_missed(cli, &options.missed);
    options.most = (uint32_t)most;
    code = good ? set_cron(cli, &options) : CLI_USAGE;
    bson_destroy(&metadata);
    bson_destroy(&tags);
    return code;
}

const struct cli_command cli_cron_set = {
    .noun = "cron",
    .verb = "set",
    .arguments = "NAME QUEUE LINE PAYLOAD",
    .summary = "add jobs to a queue on a schedule",
    .help =
        "LINE is \"minute hour day month weekday\", or six fields that begin with the second,\n"
        "or @hourly, @daily, @weekly, @monthly, @yearly, or \"@every 90s\" (s, m, h, d). The\n"
        "workers of the queue fire it, and so does `truce sweep`. Each time adds one job, for any\n"
        "number of workers. Times that were missed without a worker add one job (--missed once),\n"
        "none (skip), or one each (all). Setting the same line again keeps its next time.",
    .example =
        "truce cron set nightly reports '0 3 * * *' '{report: \"sales\"}' --zone Europe/Berlin\n"
        "truce cron set pulse mail '@every 30s' '{}' --missed skip",
    .options =
        (const struct cli_option[]){
            {"zone", 0, "ZONE", "time zone: Europe/Berlin, +02:00 (default: UTC)", false},
            {"missed", 0, "WHAT", "once, skip, all (default: once)", false},
            {"most", 0, "N", "with --missed all: the newest N times (default: 100)", false},
            {"priority", 0, "NUMBER", "priority of the jobs, -1000 to 1000 (default: 0)", false},
            {"attempts", 0, "NUMBER", "failures until a job is dead (default: 10)", false},
            {"timeout", 0, "MS", "maximum time of one attempt (default: none)", false},
            {"keep", 0, "MS", "time to keep a done job; -1: forever (default: 7 days)", false},
            {"keep-cancelled", 0, "MS", "time to keep a cancelled job (default: --keep)", false},
            {"keep-discarded", 0, "MS", "time to keep a discarded job (default: --keep)", false},
            {"keep-dead", 0, "MS", "time to keep a dead letter (default: forever)", false},
            {"metadata", 0, "DOCUMENT", "metadata of the jobs", false},
            {"tag", 0, "TEXT", "a tag of the jobs (may be repeated)", true},
            {0}},
    .store = CLI_STORE_WRITE,
    .run = cron_print_set,
};

/* ---- looking --------------------------------------------------------------------------------- */

static int cron_print_list(struct cli *cli)
{
    bson_t *sort = BCON_NEW("_id", BCON_INT32(1)), *projection = BCON_NEW("_rev", BCON_INT32(0));
    truce_find_options options = {
        .sort = sort, .projection = projection, .deadline_ms = cli->deadline_ms};
    truce_cursor *cursor = NULL;
    bson_error_t error;
    truce_status status = truce_find(cli->store, QUEUE_CRONS, NULL, &options, &cursor, &error);
    int code;

    if (!status)
        cursor = truce__restored_cursor(cursor);
    code = cli_print_documents(cli, status, cursor, &error);
    bson_destroy(projection);
    bson_destroy(sort);
    return code;
}

const struct cli_command cli_cron_list = {
    .noun = "cron",
    .verb = "list",
    .summary = "list cron lines with their next times",
    .example = "truce cron set nightly reports '0 3 * * *' '{report: \"sales\"}'\n"
               "truce cron list",
    .store = CLI_STORE_READ,
    .run = cron_print_list,
};

static int cron_print_next(struct cli *cli)
{
    const char *zone = cli_text(cli, "zone"), *after = cli_text(cli, "after");
    int64_t at_ms = truce__clock_wall_ms(), count;
    bson_error_t error;
    truce_status status = TRUCE_OK;

    if (!cli_number(cli, "count", 1, 10000, 5, &count))
        return CLI_USAGE;
    if (after && truce__date_parse(after, strlen(after), NULL, &at_ms, &error))
        return cli_usage(
            cli,
            "--after: invalid date \"%s\": expected RFC 3339, for example 2026-03-29T00:00:00Z",
            after);
    for (int64_t i = 0; i < count && !status; i++) {
        bson_t answer = BSON_INITIALIZER;
        char text[DATE_TEXT_MAX];

        status = truce_cron_next(cli->arguments[0], zone, at_ms, &at_ms, &error);
        if (!status) {
            BSON_APPEND_DATE_TIME(&answer, "at", at_ms);
            cli_answer(cli, &answer, "%s", truce__date_show(at_ms, text));
        }
        bson_destroy(&answer);
    }
    return status ? cli_error(cli, NULL, status, &error) : cli_output_end(CLI_DONE);
}

const struct cli_command cli_cron_next = {
    .noun = "cron",
    .verb = "next",
    .arguments = "LINE",
    .summary = "print the next times of a cron line, in UTC",
    .example = "truce cron next '30 2 * * *' --zone Europe/Berlin --after 2026-03-28T12:00:00Z\n"
               "truce cron next '0 9 * * MON-FRI' -c 3",
    .options =
        (const struct cli_option[]){
            {"zone", 0, "ZONE", "time zone: Europe/Berlin, +02:00 (default: UTC)", false},
            {"after", 0, "TIME", "first time to consider (default: now)", false},
            {"count", 'c', "N", "number of times (default: 5)", false},
            {0}},
    .store = CLI_STORE_NONE,
    .run = cron_print_next,
};

/* ---- by name --------------------------------------------------------------------------------- */

typedef truce_status cron_function(truce_store *store, const char *name, bson_error_t *error);

static int each_cron(struct cli *cli, cron_function *function, const char *done)
{
    int worst = CLI_DONE;

    for (int i = 0; i < cli->count; i++) {
        const char *name = cli->arguments[i];
        bson_t answer = BSON_INITIALIZER;
        bson_error_t error;
        truce_status status = function(cli->store, name, &error);
        int code = status ? cli_error(cli, NULL, status, &error) : CLI_DONE;

        BSON_APPEND_UTF8(&answer, done, name);
        if (!status)
            cli_answer(cli, &answer, "%s %s", done, name);
        worst = code > worst ? code : worst;
        bson_destroy(&answer);
    }
    return cli_output_end(worst);
}

static int cron_run_pause(struct cli *cli)
{
    return each_cron(cli, truce_cron_pause, "paused");
}

static int cron_run_resume(struct cli *cli)
{
    return each_cron(cli, truce_cron_resume, "resumed");
}

static int cron_run_remove(struct cli *cli)
{
    return each_cron(cli, truce_cron_remove, "removed");
}

const struct cli_command cli_cron_pause = {
    .noun = "cron",
    .verb = "pause",
    .arguments = "NAME...",
    .summary = "pause cron lines",
    .help = "Times in the meantime do not count as missed: `truce cron resume` continues with the\n"
            "next time.",
    .example = "truce cron set nightly reports @daily '{}'\n"
               "truce cron pause nightly",
    .store = CLI_STORE_CHANGE,
    .run = cron_run_pause,
};

const struct cli_command cli_cron_resume = {
    .noun = "cron",
    .verb = "resume",
    .arguments = "NAME...",
    .summary = "resume cron lines with their next time",
    .example = "truce cron set nightly reports @daily '{}'\n"
               "truce cron pause nightly\n"
               "truce cron resume nightly",
    .store = CLI_STORE_CHANGE,
    .run = cron_run_resume,
};

const struct cli_command cli_cron_remove = {
    .noun = "cron",
    .verb = "remove",
    .arguments = "NAME...",
    .summary = "remove cron lines; jobs that were added stay",
    .example = "truce cron set nightly reports @daily '{}'\n"
               "truce cron remove nightly",
    .store = CLI_STORE_CHANGE,
    .run = cron_run_remove,
};

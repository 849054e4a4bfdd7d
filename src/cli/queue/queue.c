/* truce queue: jobs and queues. `truce work` is in work.c. */
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/field.h"
#include "cli/commands.h"
#include "cli/core/interrupt.h"
#include "cli/core/operation_row.h"
#include "cli/queue/work.h"

static const struct cli_command cli_queue_add = {
    .noun = "queue",
    .verb = "add",
    .arguments = "QUEUE PAYLOAD...",
    .summary = "add jobs to a queue",
    .help =
        "PAYLOAD is a document. With --unique, if a live job has the key, nothing is\n"
        "added, or --on-conflict applies. With --unique-scope kept, the key stays in use as long\n"
        "as its job is stored, even if it is done, so the command can safely be repeated. Prints\n"
        "the id of the job.",
    .example = "truce queue add people '{command: \"ADD_FRIEND\", users: [1, 2]}'\n"
               "truce queue add mail '{to: \"ada@x.org\"}' --unique ada --delay 60s",
    .store = CLI_STORE_WRITE,
    .row = &(const struct cli_row){.name = "truceEnqueue",
                                   .fields = "!payloads id",
                                   .format = "{added} {id}"},
    .run = cli_row_run,
};

/* ---- top ------------------------------------------------------------------------------------- */

/* truce queue top shows the figures of all queues until it is interrupted. */

#define SLICE_MS 50

static const char *const columns[] = {"ready", "delayed", "waiting", "blocked", "running", "dead"};
#define COLUMNS (sizeof columns / sizeof *columns)

/* Writes "12s", "3m", "5h", or "2d". */
static void say_time(int64_t ms, char *text, size_t size)
{
    int64_t s = ms / 1000;

    if (s < 100)
        bson_snprintf(text, size, "%ds", (int)(s < 0 ? 0 : s));
    else if (s < 6000)
        bson_snprintf(text, size, "%dm", (int)(s / 60));
    else if (s < 360000)
        bson_snprintf(text, size, "%dh", (int)(s / 3600));
    else
        bson_snprintf(text, size, "%lldd", (long long)(s / 86400));
}

static bool put_line(struct cli *cli, const bson_t *one)
{
    char oldest[24];
    bool good;

    good = cli_put("%-24.24s", truce__field_text(one, "queue"));
    for (size_t i = 0; good && i < COLUMNS; i++)
        good = cli_put("%9lld", (long long)truce__field_number(one, columns[i]));
    (void)cli;
    say_time(truce__field_number(one, "oldest_ms"), oldest, sizeof oldest);
    return good && cli_put("%8s%s\n", oldest, truce__field_true(one, "paused") ? "  paused" : "");
}

static bool put_head(void)
{
    bool good = cli_put("%-24s", "queue");

    for (size_t i = 0; good && i < COLUMNS; i++)
        good = cli_put("%9s", columns[i]);
    return good && cli_put("%8s\n", "oldest");
}

static int show_once(struct cli *cli)
{
    static const struct cli_row figures = {
        .name = "truceQueues", .list = "queues", .print = put_line};

    if (!cli->json && !put_head())
        return cli_output_end(CLI_DONE);
    return cli_row_run_with(cli, &figures, NULL);
}

/* Prints the queues, on a terminal again and again until Ctrl-C. */
static int run_top(struct cli *cli)
{
    int64_t every_ms;
    bool live = !cli->json && isatty(STDOUT_FILENO);
    int code;

    if (!cli_duration(cli, "every", 100, 3600000, 1000, &every_ms))
        return CLI_USAGE;
    if (live)
        /* Ctrl-C kills the command at once, because it writes nothing. */
        cli_interrupt_forget();
    do {
        if (live)
            cli_paint("\033[H\033[2J");
        code = show_once(cli);
        for (int64_t left = every_ms; live && !code && left > 0; left -= SLICE_MS)
            truce__clock_sleep_ms(left < SLICE_MS ? left : SLICE_MS);
    } while (live && !code);
    return code;
}

static const struct cli_command cli_queue_top = {
    .noun = "queue",
    .verb = "top",
    .summary = "watch the statistics of all queues",
    .help = "On a terminal, updates the statistics every second until Ctrl-C. Otherwise, or with\n"
            "--json, prints them once. The column oldest is the age of the oldest ready job.",
    .example = "truce queue add mail '{to: \"ada@x.org\"}'\n"
               "truce queue top --json",
    .options =
        (const struct cli_option[]){
            {"every", 0, "DURATION", "time between updates (default: 1s)", false}, {0}},
    .store = CLI_STORE_READ,
    .run = run_top,
};

/* ---- reading --------------------------------------------------------------------------------- */

#define QUEUES_SHOWN 10

/* Returns whether the queue has a job in any state. Returns true if the store fails. */
static bool queue_has_jobs(struct cli *cli, const char *queue)
{
    bson_t *request = BCON_NEW("truceJobs", BCON_UTF8(queue), "limit", BCON_INT64(1)), reply;
    bson_error_t ignored;
    bson_iter_t at, jobs;
    bool has = true;

    if (!cli_row_call(cli, request, &reply, &ignored) && bson_iter_init_find(&at, &reply, "jobs") &&
        bson_iter_recurse(&at, &jobs))
        has = bson_iter_next(&jobs);
    bson_destroy(&reply);
    bson_destroy(request);
    return has;
}

/* Appends the names of the queues in the reply of truceQueues: `"cron", "mail"`. */
static void queue_append_names(const bson_t *reply, bson_string_t *names)
{
    bson_iter_t at, queues, name;
    int count = 0;

    if (!bson_iter_init_find(&at, reply, "queues") || !bson_iter_recurse(&at, &queues))
        return;
    while (count < QUEUES_SHOWN && bson_iter_next(&queues)) {
        if (bson_iter_recurse(&queues, &name) && bson_iter_find(&name, "queue") &&
            BSON_ITER_HOLDS_UTF8(&name))
            bson_string_append_printf(names, "%s\"%s\"", count++ ? ", " : "",
                                      bson_iter_utf8(&name, NULL));
    }
}

void queue_note_unknown(struct cli *cli, const char *queue, bool always)
{
    bson_t *request = BCON_NEW("truceQueues", BCON_INT32(1)), reply;
    bson_string_t *names = bson_string_new("");
    bson_error_t ignored;

    if (queue && !queue_has_jobs(cli, queue)) {
        if (!cli_row_call(cli, request, &reply, &ignored))
            queue_append_names(&reply, names);
        bson_destroy(&reply);
        if (*names->str)
            cli_note(cli, "the queue \"%s\" has no jobs; these queues have: %s", queue, names->str);
        else if (always)
            cli_note(cli, "the queue \"%s\" has no jobs", queue);
    }
    bson_string_free(names, true);
    bson_destroy(request);
}

static int queue_run_list(struct cli *cli)
{
    int code = cli_row_run(cli);

    if (!code)
        queue_note_unknown(cli, cli->arguments[0], true);
    return code;
}

static const struct cli_command cli_queue_list = {
    .noun = "queue",
    .verb = "list",
    .arguments = "[QUEUE]",
    .summary = "list jobs, oldest first",
    .example = "truce queue add mail '{to: \"ada@x.org\"}'\n"
               "truce queue list mail --state ready",
    .store = CLI_STORE_READ,
    .row =
        &(const struct cli_row){
            .name = "truceJobs", .fields = "state tag after limit", .list = "jobs", .next = "_id"},
    .run = queue_run_list,
};

/* Prints the statistics of a queue, unless the call names another one. */
static bool queue_print_stats(struct cli *cli, const bson_t *stats)
{
    const char *wanted = cli->arguments[0];

    return (wanted && strcmp(wanted, truce__field_text(stats, "queue")) != 0) ||
           cli_print(stats, JSON_RELAXED);
}

static int queue_run_stats(struct cli *cli)
{
    static const struct cli_row stats = {
        .name = "truceQueues", .list = "queues", .print = queue_print_stats, .prints_json = true};
    int code = cli_row_run_with(cli, &stats, NULL);

    if (!code)
        queue_note_unknown(cli, cli->arguments[0], true);
    return code;
}

static const struct cli_command cli_queue_stats = {
    .noun = "queue",
    .verb = "stats",
    .arguments = "[QUEUE]",
    .summary = "count the jobs of queues by state",
    .help = "oldest_ms: the age of the oldest ready job.",
    .example = "truce queue add mail '{to: \"ada@x.org\"}'\n"
               "truce queue stats --table\n"
               "truce queue stats mail",
    .store = CLI_STORE_READ,
    .run = queue_run_stats,
};

static const struct cli_command cli_queue_show = {
    .noun = "queue",
    .verb = "show",
    .arguments = "ID",
    .summary = "show a job with its errors, steps, and result",
    .example = "truce queue show $(truce queue add mail '{to: \"ada@x.org\"}' | cut -d' ' -f2)",
    .store = CLI_STORE_CHANGE,
    .row = &(const struct cli_row){.name = "truceJobs",
                                   .fields = "",
                                   .list = "jobs",
                                   .needed = true,
                                   .none = "the job {id} does not exist"},
    .run = cli_row_run,
};

/* ---- jobs by their ids ----------------------------------------------------------------------- */

#define JOB_ACTION(action, done)                                                                   \
    &(const struct cli_row)                                                                        \
    {                                                                                              \
        .name = "truceQueue", .set = "{action: '" action "'}", .fields = "",                       \
        .format = done " {id}", .refuses = true                                                    \
    }

static const struct cli_command cli_queue_cancel = {
    .noun = "queue",
    .verb = "cancel",
    .arguments = "ID...",
    .summary = "cancel live jobs, including running ones",
    .help = "The job's worker is notified, on any machine, and its changes are refused.",
    .example = "truce queue cancel $(truce queue add mail '{to: \"ada@x.org\"}' | cut -d' ' -f2)",
    .store = CLI_STORE_CHANGE,
    .row = JOB_ACTION("cancel", "cancelled"),
    .run = cli_row_run,
};

static const struct cli_command cli_queue_retry = {
    .noun = "queue",
    .verb = "retry",
    .arguments = "ID...",
    .summary = "retry delayed, dead, cancelled, or discarded jobs",
    .example = "truce queue retry $(truce queue add mail '{}' --delay 60s | cut -d' ' -f2)",
    .store = CLI_STORE_CHANGE,
    .row = JOB_ACTION("retry", "retried"),
    .run = cli_row_run,
};

static const struct cli_command cli_queue_discard = {
    .noun = "queue",
    .verb = "discard",
    .arguments = "ID...",
    .summary = "discard jobs that are not running and not done",
    .example = "truce queue discard $(truce queue add mail '{}' | cut -d' ' -f2)",
    .store = CLI_STORE_CHANGE,
    .row = JOB_ACTION("discard", "discarded"),
    .run = cli_row_run,
};

static const struct cli_command cli_queue_close = {
    .noun = "queue",
    .verb = "close",
    .arguments = "ID...",
    .summary = "close a batch so that its last job can run",
    .help =
        "ID is that of a job that was added with --open. It runs after the jobs that were added\n"
        "with --batch ID.",
    .example = "id=$(truce queue add mail '{report: 1}' --open | cut -d' ' -f2)\n"
               "truce queue add mail '{to: \"ada@x.org\"}' --batch $id\n"
               "truce queue close $id",
    .store = CLI_STORE_CHANGE,
    .row = JOB_ACTION("close", "closed"),
    .run = cli_row_run,
};

/* ---- queues ---------------------------------------------------------------------------------- */

/* Repeats the request until the reply has no `more`, and prints the number of retried jobs. */
static int run_redrive(struct cli *cli)
{
    bson_t *request =
               BCON_NEW("truceQueue", BCON_UTF8(cli->arguments[0]), "action", BCON_UTF8("redrive")),
           answer = BSON_INITIALIZER, reply;
    int64_t count = 0;
    bool more;
    int code;

    do {
        code = cli_row_send(cli, request, &reply);
        count += truce__field_number(&reply, "count");
        more = !code && truce__field_true(&reply, "more");
        bson_destroy(&reply);
    } while (more);
    BSON_APPEND_INT64(&answer, "retried", count);
    if (!code)
        cli_answer(cli, &answer, "%lld retried", (long long)count);
    if (!code && !count)
        queue_note_unknown(cli, cli->arguments[0], true);
    bson_destroy(&answer);
    bson_destroy(request);
    return code;
}

static const struct cli_command cli_queue_redrive = {
    .noun = "queue",
    .verb = "redrive",
    .arguments = "QUEUE",
    .summary = "retry all dead letters of a queue",
    .example = "truce queue add mail '{}'\n"
               "truce queue redrive mail",
    .store = CLI_STORE_CHANGE,
    .run = run_redrive,
};

/* Changes settings of a queue, which may have no jobs yet. */
static int queue_run_settings(struct cli *cli)
{
    int code = cli_row_run(cli);

    if (!code)
        queue_note_unknown(cli, cli->arguments[0], false);
    return code;
}

static const struct cli_command cli_queue_pause = {
    .noun = "queue",
    .verb = "pause",
    .arguments = "QUEUE",
    .summary = "pause a queue: workers claim no more of its jobs",
    .help = "Running jobs continue, and the queue accepts new jobs. Every worker sees it within a\n"
            "second.",
    .example = "truce queue pause mail",
    .store = CLI_STORE_WRITE,
    .row = &(const struct cli_row){.name = "truceQueue",
                                   .set = "{action: 'pause'}",
                                   .fields = "",
                                   .format = "paused {queue}"},
    .run = queue_run_settings,
};

static const struct cli_command cli_queue_resume = {
    .noun = "queue",
    .verb = "resume",
    .arguments = "QUEUE",
    .summary = "resume a paused queue",
    .example = "truce queue resume mail",
    .store = CLI_STORE_WRITE,
    .row = &(const struct cli_row){.name = "truceQueue",
                                   .set = "{action: 'resume'}",
                                   .fields = "",
                                   .format = "resumed {queue}"},
    .run = queue_run_settings,
};

static const struct cli_command cli_queue_limit = {
    .noun = "queue",
    .verb = "limit",
    .arguments = "QUEUE",
    .summary = "limit the running jobs or the rate of a queue",
    .help =
        "Limits apply to all processes together. Without options, removes the limits. Queues of\n"
        "one --pool share its limits. Every worker sees a change within a second.",
    .example = "truce queue limit mail --running 5 --rate 100 --per 1m\n"
               "truce queue limit mail --running 2 --pool smtp",
    .store = CLI_STORE_WRITE,
    .row = &(const struct cli_row){.name = "truceQueueLimit", .format = "limited {queue}"},
    .run = queue_run_settings,
};

cli_command_list cli_queue_commands = {&cli_queue_add,     &cli_queue_close,
                                       &cli_queue_list,    &cli_queue_show,
                                       &cli_queue_stats,   &cli_queue_top,
                                       &cli_queue_cancel,  &cli_queue_retry,
                                       &cli_queue_discard, &cli_queue_redrive,
                                       &cli_queue_pause,   &cli_queue_resume,
                                       &cli_queue_limit,   NULL};

/* truce queue add, top, list, show, stats, cancel, retry, discard, redrive, pause, resume, limit.
 * `truce work` is in work.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/field.h"
#include "bson/field_names.h"
#include "cli/commands.h"
#include "cli/core/interrupt.h"
#include "cli/queue/queue_options.h"
#include "store/reserved.h"
#include "store/restored.h"

/* ---- add ------------------------------------------------------------------------------------- */

/* truce queue add, and the options that all commands for new jobs share. */

static bool cli_job_id(const struct cli *cli, const char *text, bson_oid_t *id);

static bool read_conflict_policy(const struct cli *cli, truce_conflict_policy *on_conflict)
{
    static const char *const names[] = {"ignore", "replace", "reschedule", "refuse"};
    const char *text = cli_text(cli, "on-conflict");

    *on_conflict = TRUCE_ON_CONFLICT_IGNORE;
    for (size_t i = 0; text && i < sizeof names / sizeof *names; i++) {
        if (!strcmp(text, names[i])) {
            *on_conflict = (truce_conflict_policy)i;
            return true;
        }
    }
    if (text)
        cli_usage(cli, "--on-conflict must be ignore, replace, reschedule, or refuse, not \"%s\"",
                  text);
    return !text;
}

bool cli_job_failure(const struct cli *cli, const char *text, truce_job_failure *failure)
{
    static const char *const names[] = {"cancel", "go-on", "wait"};

    *failure = TRUCE_FAILURE_CANCEL;
    for (size_t i = 0; text && *text && i < sizeof names / sizeof *names; i++) {
        *failure = (truce_job_failure)i;
        if (!strcmp(text, names[i]))
            return true;
    }
    if (text && *text)
        cli_usage(cli, "--failure must be cancel, go-on, or wait, not \"%s\"", text);
    return !text || !*text;
}

/* The ids of other jobs, which the options borrow. */
struct others {
    bson_oid_t after[CLI_OPTIONS_MAX], batch;
};

static bool read_others(const struct cli *cli, truce_job_options *options, struct others *others)
{
    bool good = cli_job_failure(cli, cli_text(cli, "failure"), &options->failure);

    if (good && cli_text(cli, "failure") && !cli_texts(cli, "after", 0) && !cli_flag(cli, "open")) {
        cli_usage(cli, "--failure needs --after, or --open for a batch");
        good = false;
    }
    for (const char *text; good && (text = cli_texts(cli, "after", (int)options->after_count));)
        good = cli_job_id(cli, text, &others->after[options->after_count++]);
    if (good && cli_text(cli, "batch"))
        good = cli_job_id(cli, cli_text(cli, "batch"), &others->batch);
    options->after = others->after;
    options->batch = cli_text(cli, "batch") ? &others->batch : NULL;
    options->open = cli_flag(cli, "open");
    options->name = cli_text(cli, "name");
    return good;
}

bool cli_job_options(const struct cli *cli, truce_job_options *options, bson_t *metadata,
                     bson_t *tags)
{
    int64_t priority, attempts, timeout;
    bool given, good = cli_number(cli, "priority", -1000, 1000, 0, &priority);
    int count = 0;

    good &= cli_number(cli, "attempts", 1, INT32_MAX, 0, &attempts);
    good &= cli_number(cli, "timeout", 1, INT32_MAX, 0, &timeout);
    good &= cli_number(cli, "keep", -1, INT64_C(1) << 48, 0, &options->keep_ms);
    good &= cli_number(cli, "keep-cancelled", -1, INT64_C(1) << 48, 0, &options->keep_cancelled_ms);
    good &= cli_number(cli, "keep-discarded", -1, INT64_C(1) << 48, 0, &options->keep_discarded_ms);
    good &= cli_number(cli, "keep-dead", -1, INT64_C(1) << 48, 0, &options->keep_dead_ms);
    good &= cli_option_document(cli, "metadata", metadata, &given);
    for (const char *tag; (tag = cli_texts(cli, "tag", count)); count++) {
        char key[12];

        bson_snprintf(key, sizeof key, "%d", count);
        BSON_APPEND_UTF8(tags, key, tag);
    }
    options->priority = (int32_t)priority;
    options->attempts_max = (uint32_t)attempts;
    options->timeout_ms = (uint32_t)timeout;
    options->metadata = given ? metadata : NULL;
    options->tags = count ? tags : NULL;
    return good;
}

bool cli_rate(const struct cli *cli, const char *text, uint32_t *jobs, uint32_t *per_ms)
{
    static const struct {
        const char *unit;
        uint32_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};
    unsigned long long rate, period = 1;
    char unit[4] = "";

    *jobs = *per_ms = 0;
    if (!text)
        return true;
    if (sscanf(text, "%9llu/%9llu%3s", &rate, &period, unit) < 3 &&
        sscanf(text, "%9llu/%3s", &rate, unit) < 2)
        rate = 0;
    for (size_t i = 0; rate && i < sizeof units / sizeof *units; i++) {
        if (!strcmp(unit, units[i].unit) && period && period <= UINT32_MAX / units[i].ms) {
            *jobs = (uint32_t)rate;
            *per_ms = (uint32_t)period * units[i].ms;
            return true;
        }
    }
    cli_usage(cli, "invalid rate \"%s\": expected jobs/time, for example 100/1m (ms, s, m, h)",
              text);
    return false;
}

/* Reads the options of a new job. */
static bool queue_add_read_options(const struct cli *cli, truce_job_options *options,
                                   bson_t *metadata, bson_t *tags)
{
    bool good = cli_job_options(cli, options, metadata, tags);
    int64_t width = 0;

    good &= cli_number(cli, "delay", 0, INT64_C(1) << 48, 0, &options->delay_ms);
    good = good && cli_date(cli, "at", &options->run_at_ms);
    good &= cli_number(cli, "period", 1, INT64_C(1) << 48, 0, &options->unique_period_ms);
    good = good && read_conflict_policy(cli, &options->on_conflict);
    good = good && cli_number(cli, "width", 1, INT32_MAX, 0, &width);
    good = good && cli_rate(cli, cli_text(cli, "rate"), &options->lane_rate, &options->lane_per_ms);
    options->lane = cli_text(cli, "lane");
    options->lane_width = good ? (uint32_t)width : 0;
    options->unique = cli_text(cli, "unique");
    options->unique_payload = cli_flag(cli, "unique-payload");
    options->unique_scope = cli_flag(cli, "once")        ? TRUCE_UNIQUE_KEPT
                            : cli_flag(cli, "unclaimed") ? TRUCE_UNIQUE_UNCLAIMED
                                                         : TRUCE_UNIQUE_LIVE;
    if (good && cli_flag(cli, "once") && cli_flag(cli, "unclaimed")) {
        cli_usage(cli, "--once and --unclaimed exclude each other");
        return false;
    }
    return good;
}

static int queue_add_add_one(struct cli *cli, truce_queue *queue, const bson_t *payload,
                             const truce_job_options *options)
{
    bson_t answer = BSON_INITIALIZER;
    truce_job_added added;
    bson_error_t error;
    char id[25];
    truce_status status = truce_queue_add(queue, NULL, payload, options, &added, &error);

    bson_oid_to_string(&added.id, id);
    BSON_APPEND_OID(&answer, "job", &added.id);
    BSON_APPEND_UTF8(&answer, "added", truce_added_name(added.added));
    if (!status)
        cli_answer(cli, &answer, "%s %s", truce_added_name(added.added), id);
    bson_destroy(&answer);
    return status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
}

static int queue_add_run_add(struct cli *cli)
{
    truce_queue *queue = cli_queue_open(cli, cli->arguments[0]);
    truce_job_options options = {0};
    bson_t metadata, tags = BSON_INITIALIZER;
    struct others others;
    int code = queue_add_read_options(cli, &options, &metadata, &tags) ? CLI_DONE : CLI_USAGE;

    if (!code && !read_others(cli, &options, &others))
        code = CLI_USAGE;

    for (int i = 1; i < cli->count && !code; i++) {
        bson_t payload;

        code = cli_document(cli, cli->arguments[i], "PAYLOAD", &payload)
                   ? queue_add_add_one(cli, queue, &payload, &options)
                   : CLI_USAGE;
        bson_destroy(&payload);
    }
    bson_destroy(&metadata);
    bson_destroy(&tags);
    truce_queue_free(queue);
    return code;
}

const struct cli_command cli_queue_add = {
    .noun = "queue",
    .verb = "add",
    .arguments = "QUEUE PAYLOAD...",
    .summary = "add jobs to a queue",
    .help =
        "PAYLOAD is a document. With --unique, if a live job has the key, the call adds\n"
        "nothing, or follows --on-conflict: ignore, replace, reschedule, refuse. With --once,\n"
        "the key is taken as long as its job is stored, done or not: repeat such an add safely.\n"
        "With --unclaimed, a job releases its key when it starts: a later add runs once more.\n"
        "Prints the job's id.",
    .example = "truce queue add people '{command: \"ADD_FRIEND\", users: [1, 2]}'\n"
               "truce queue add mail '{to: \"ada@x.org\"}' --unique ada --delay 60000",
    .options =
        (const struct cli_option[]){
            {"delay", 0, "MS", "delay of the job", false},
            {"at", 0, "TIME", "time of the job (2026-12-24T18:00:00Z)", false},
            {"priority", 0, "NUMBER", "-1000 to 1000, the highest first (default: 0)", false},
            {"attempts", 0, "NUMBER", "failures until the job is dead (default: 10)", false},
            {"timeout", 0, "MS", "maximum time of one attempt (default: none)", false},
            {"keep", 0, "MS", "time to keep it when done; -1: forever (default: 7 days)", false},
            {"keep-cancelled", 0, "MS", "time to keep it when cancelled (default: --keep)", false},
            {"keep-discarded", 0, "MS", "time to keep it when discarded (default: --keep)", false},
            {"keep-dead", 0, "MS", "time to keep it as a dead letter (default: forever)", false},
            {"metadata", 0, "DOCUMENT", "metadata of the job", false},
            {"tag", 0, "TEXT", "a tag of the job (may be repeated)", true},
            {"name", 0, "NAME", "a name for people, such as a step of a workflow", false},
            {"after", 0, "ID", "run after this job has ended (may be repeated)", true},
            {"failure", 0, "WHAT", "if one of these fails: cancel, go-on, wait (default: cancel)",
             false},
            {"open", 0, NULL, "open a batch; the job runs after truce queue close", false},
            {"batch", 0, "ID", "add the job to the batch of this --open job", false},
            {"lane", 0, "NAME", "a lane: its jobs run one after the other", false},
            {"width", 0, "N", "jobs of the lane that run at a time (default: 1)", false},
            {"rate", 0, "N/TIME", "jobs of the lane that start in a time: 10/1m", false},
            {"unique", 0, "KEY", "the key of a unique job", false},
            {"unique-payload", 0, NULL, "use the payload as the key", false},
            {"period", 0, "MS", "allow one job of the key in each period", false},
            {"once", 0, NULL, "keep the key while the job is stored", false},
            {"unclaimed", 0, NULL, "release the key when the job starts", false},
            {"on-conflict", 0, "POLICY", "ignore, replace, reschedule, refuse (default: ignore)",
             false},
            {0}},
    .store = CLI_STORE_WRITE,
    .run = queue_add_run_add,
};

/* ---- top ------------------------------------------------------------------------------------- */

/* truce queue top: shows the figures of all queues until it is interrupted. */

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

static bool put_line(const bson_t *one)
{
    char oldest[24];
    bool good;
    bson_iter_t iter;
    bool paused = bson_iter_init_find(&iter, one, "paused") && bson_iter_as_bool(&iter);

    good = cli_put("%-24.24s", truce__field_text(one, "queue"));
    for (size_t i = 0; good && i < COLUMNS; i++)
        good = cli_put("%9lld", (long long)truce__field_number(one, columns[i]));
    say_time(truce__field_number(one, "oldest_ms"), oldest, sizeof oldest);
    return good && cli_put("%8s%s\n", oldest, paused ? "  paused" : "");
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
    bson_t stats;
    bson_error_t error;
    bson_iter_t iter;
    truce_status status = truce_queue_stats(cli->store, &stats, &error);
    bool good = !status && (cli->json || put_head());

    for (bson_iter_init(&iter, &stats); good && bson_iter_next(&iter);) {
        const uint8_t *bytes;
        uint32_t size;
        bson_t one;

        bson_iter_document(&iter, &size, &bytes);
        good = bson_init_static(&one, bytes, size) &&
               (cli->json ? cli_print(&one, JSON_RELAXED) : put_line(&one));
    }
    bson_destroy(&stats);
    return status ? cli_error(cli, NULL, status, &error) : cli_output_end(CLI_DONE);
}

static int run_top(struct cli *cli)
{
    int64_t every_ms;
    bool live = !cli->json && isatty(STDOUT_FILENO) && !cli->rehearsal;
    int code;

    if (!cli_number(cli, "every", 100, 3600000, 1000, &every_ms))
        return CLI_USAGE;
    if (live)
        cli_interrupt_forget(); /* Ctrl-C ends the command at once, because it writes nothing */
    do {
        if (live)
            cli_paint("\033[H\033[2J");
        code = show_once(cli);
        for (int64_t left = every_ms; live && !code && left > 0; left -= SLICE_MS)
            truce__clock_sleep_ms(left < SLICE_MS ? left : SLICE_MS);
    } while (live && !code);
    return code;
}

const struct cli_command cli_queue_top = {
    .noun = "queue",
    .verb = "top",
    .summary = "watch the figures of all queues",
    .help = "On a terminal, updates the figures every second until Ctrl-C. Else, and with --json,\n"
            "prints them once. oldest: the age of the oldest ready job.",
    .example = "truce queue add mail '{to: \"ada@x.org\"}'\n"
               "truce queue top --json",
    .options =
        (const struct cli_option[]){
            {"every", 0, "MS", "time between updates (default: 1000)", false}, {0}},
    .store = CLI_STORE_READ,
    .run = run_top,
};

/* ---- queue ------------------------------------------------------------------------------- */

truce_queue *cli_queue_open(const struct cli *cli, const char *name)
{
    return truce_queue_new(cli->store,
                           &(truce_queue_options){.queue = name, .deadline_ms = cli->deadline_ms});
}

/* ---- looking --------------------------------------------------------------------------------- */

static bool cli_job_id(const struct cli *cli, const char *text, bson_oid_t *id)
{
    bool good = bson_oid_is_valid(text, strlen(text));

    if (good)
        bson_oid_init_from_string(id, text);
    else
        cli_usage(cli, "invalid id of a job \"%s\": expected 24 hexadecimal digits", text);
    return good;
}

static int print_found(struct cli *cli, const bson_t *filter, int64_t limit)
{
    bson_t *sort = BCON_NEW("_id", BCON_INT32(1)), *projection = BCON_NEW("_rev", BCON_INT32(0));
    truce_find_options options = {.sort = sort,
                                  .projection = projection,
                                  .limit = limit + 1,
                                  .deadline_ms = cli->deadline_ms};
    truce_cursor *cursor = NULL;
    bson_error_t error;
    truce_status status = truce_find(cli->store, QUEUE, filter, &options, &cursor, &error);
    int code;

    if (!status)
        cursor = truce__restored_cursor(cursor);
    code = cli_print_page(cli, status, cursor, limit, &error);
    bson_destroy(projection);
    bson_destroy(sort);
    return code;
}

static bool queue_check_state(const struct cli *cli, const char *state)
{
    static const char *const states[] = {"ready", "delayed", "waiting",   "blocked",  "running",
                                         "done",  "dead",    "cancelled", "discarded"};

    for (size_t i = 0; state && i < sizeof states / sizeof *states; i++) {
        if (!strcmp(state, states[i]))
            return true;
    }
    if (state)
        cli_usage(
            cli,
            "invalid state \"%s\": expected ready, delayed, waiting, blocked, running, done, dead, "
            "cancelled, or discarded",
            state);
    return !state;
}

static int queue_run_list(struct cli *cli)
{
    const char *state = cli_text(cli, "state"), *tag = cli_text(cli, "tag");
    bson_t filter = BSON_INITIALIZER;
    int64_t limit;
    int code = CLI_USAGE;

    if (cli->count)
        BSON_APPEND_UTF8(&filter, "queue", cli->arguments[0]);
    if (state)
        BSON_APPEND_UTF8(&filter, "state", state);
    if (tag)
        BSON_APPEND_UTF8(&filter, "tags", tag);
    if (queue_check_state(cli, state) && cli_number(cli, "limit", 1, INT32_MAX, 100, &limit))
        code = print_found(cli, &filter, limit);
    bson_destroy(&filter);
    return code;
}

const struct cli_command cli_queue_list = {
    .noun = "queue",
    .verb = "list",
    .arguments = "[QUEUE]",
    .summary = "list jobs, oldest first",
    .example = "truce queue add mail '{to: \"ada@x.org\"}'\n"
               "truce queue list mail --state ready",
    .options =
        (const struct cli_option[]){{"state", 0, "STATE", "only jobs in this state", false},
                                    {"tag", 0, "TEXT", "only jobs with this tag", false},
                                    {"limit", 'n', "N", "at most this many (default: 100)", false},
                                    {0}},
    .store = CLI_STORE_READ,
    .run = queue_run_list,
};

static int run_stats(struct cli *cli)
{
    bson_t stats;
    bson_error_t error;
    bson_iter_t iter;
    truce_status status = truce_queue_stats(cli->store, &stats, &error);

    for (bson_iter_init(&iter, &stats); !status && bson_iter_next(&iter);) {
        const uint8_t *bytes;
        uint32_t size;
        bson_t one;

        bson_iter_document(&iter, &size, &bytes);
        if (bson_init_static(&one, bytes, size) && !cli_print(&one, JSON_RELAXED))
            break;
    }
    bson_destroy(&stats);
    return status ? cli_error(cli, NULL, status, &error) : cli_output_end(CLI_DONE);
}

const struct cli_command cli_queue_stats = {
    .noun = "queue",
    .verb = "stats",
    .summary = "count the jobs of each queue by state",
    .help = "oldest_ms: the age of the oldest ready job.",
    .example = "truce queue add mail '{to: \"ada@x.org\"}'\n"
               "truce queue stats --table",
    .store = CLI_STORE_READ,
    .run = run_stats,
};

/* ---- jobs by their ids ----------------------------------------------------------------------- */

int cli_find_job(struct cli *cli, const char *text, bson_oid_t *id, bson_t *job)
{
    bson_t *filter;
    bson_error_t error;
    truce_status status;

    bson_init(job);
    if (!cli_job_id(cli, text, id))
        return CLI_USAGE;
    filter = BCON_NEW("_id", BCON_OID(id));
    bson_destroy(job);
    status = truce_find_one(cli->store, QUEUE, filter, NULL, job, &error);
    truce__names_restore_own(job);
    bson_destroy(filter);
    if (status == TRUCE_NOT_FOUND)
        return cli_say(cli, CLI_NO, "there is no job %s", text);
    return status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
}

int cli_each_job(struct cli *cli, job_function *function, const char *done)
{
    int worst = CLI_DONE;

    for (int i = 0; i < cli->count; i++) {
        const char *text = cli->arguments[i];
        bson_t job, answer = BSON_INITIALIZER;
        bson_oid_t id;
        int code = cli_find_job(cli, text, &id, &job);

        if (!code) {
            truce_queue *queue = cli_queue_open(cli, truce__field_text(&job, "queue"));
            bson_error_t error;
            truce_status status = function(queue, NULL, &id, &error);

            truce_queue_free(queue);
            BSON_APPEND_UTF8(&answer, done, text);
            if (status)
                code = cli_error(cli, text, status, &error);
            else
                cli_answer(cli, &answer, "%s %s", done, text);
            if (status == TRUCE_INVALID)
                code = CLI_NO; /* the call is valid, but the job's state does not allow it */
        }
        worst = code > worst ? code : worst;
        bson_destroy(&answer);
        bson_destroy(&job);
    }
    return cli_output_end(worst);
}

static int queue_run_show(struct cli *cli)
{
    bson_t job;
    bson_oid_t id;
    int code = cli_find_job(cli, cli->arguments[0], &id, &job);

    if (!code)
        cli_print(&job, JSON_RELAXED);
    bson_destroy(&job);
    return code ? code : cli_output_end(CLI_DONE);
}

const struct cli_command cli_queue_show = {
    .noun = "queue",
    .verb = "show",
    .arguments = "ID",
    .summary = "show a job with its errors, steps, and result",
    .example = "truce queue show $(truce queue add mail '{to: \"ada@x.org\"}' | cut -d' ' -f2)",
    .store = CLI_STORE_CHANGE,
    .run = queue_run_show,
};

static int queue_run_cancel(struct cli *cli)
{
    return cli_each_job(cli, truce_queue_cancel, "cancelled");
}

const struct cli_command cli_queue_cancel = {
    .noun = "queue",
    .verb = "cancel",
    .arguments = "ID...",
    .summary = "cancel live jobs, including running ones",
    .help = "The job's worker is notified, on any machine, and its changes are refused.",
    .example = "truce queue cancel $(truce queue add mail '{to: \"ada@x.org\"}' | cut -d' ' -f2)",
    .store = CLI_STORE_CHANGE,
    .run = queue_run_cancel,
};

static int run_retry(struct cli *cli)
{
    return cli_each_job(cli, truce_queue_retry, "retried");
}

const struct cli_command cli_queue_retry = {
    .noun = "queue",
    .verb = "retry",
    .arguments = "ID...",
    .summary = "retry delayed, dead, cancelled, or discarded jobs",
    .example = "truce queue retry $(truce queue add mail '{}' --delay 60000 | cut -d' ' -f2)",
    .store = CLI_STORE_CHANGE,
    .run = run_retry,
};

static int queue_run_discard(struct cli *cli)
{
    return cli_each_job(cli, truce_queue_discard, "discarded");
}

const struct cli_command cli_queue_discard = {
    .noun = "queue",
    .verb = "discard",
    .arguments = "ID...",
    .summary = "discard jobs that are not running and not done",
    .example = "truce queue discard $(truce queue add mail '{}' | cut -d' ' -f2)",
    .store = CLI_STORE_CHANGE,
    .run = queue_run_discard,
};

/* ---- queues ---------------------------------------------------------------------------------- */

static int run_redrive(struct cli *cli)
{
    truce_queue *queue = cli_queue_open(cli, cli->arguments[0]);
    bson_t answer = BSON_INITIALIZER;
    uint32_t count = 0, some = 0;
    bson_error_t error;
    truce_status status;

    do {
        status = truce_queue_redrive(queue, 0, &some, &error);
        count += some;
    } while (!status && some);
    BSON_APPEND_INT64(&answer, "retried", count);
    if (!status)
        cli_answer(cli, &answer, "%u retried", count);
    bson_destroy(&answer);
    truce_queue_free(queue);
    return status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
}

const struct cli_command cli_queue_redrive = {
    .noun = "queue",
    .verb = "redrive",
    .arguments = "QUEUE",
    .summary = "retry all dead letters of a queue",
    .example = "truce queue add mail '{}'\n"
               "truce queue redrive mail",
    .store = CLI_STORE_CHANGE,
    .run = run_redrive,
};

static int queue_set_paused(struct cli *cli, bool paused)
{
    truce_queue *queue = cli_queue_open(cli, cli->arguments[0]);
    bson_t answer = BSON_INITIALIZER;
    bson_error_t error;
    truce_status status =
        paused ? truce_queue_pause(queue, &error) : truce_queue_resume(queue, &error);

    BSON_APPEND_UTF8(&answer, paused ? "paused" : "resumed", cli->arguments[0]);
    if (!status)
        cli_answer(cli, &answer, "%s %s", paused ? "paused" : "resumed", cli->arguments[0]);
    bson_destroy(&answer);
    truce_queue_free(queue);
    return status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
}

static int queue_run_pause(struct cli *cli)
{
    return queue_set_paused(cli, true);
}

static int queue_run_resume(struct cli *cli)
{
    return queue_set_paused(cli, false);
}

const struct cli_command cli_queue_pause = {
    .noun = "queue",
    .verb = "pause",
    .arguments = "QUEUE",
    .summary = "stop handing out jobs of a queue",
    .help = "Running jobs continue, and the queue accepts new jobs. Every worker sees it within a\n"
            "second.",
    .example = "truce queue pause mail",
    .store = CLI_STORE_WRITE,
    .run = queue_run_pause,
};

const struct cli_command cli_queue_resume = {
    .noun = "queue",
    .verb = "resume",
    .arguments = "QUEUE",
    .summary = "resume a paused queue",
    .example = "truce queue resume mail",
    .store = CLI_STORE_WRITE,
    .run = queue_run_resume,
};

static int queue_run_limit(struct cli *cli)
{
    truce_queue *queue = cli_queue_open(cli, cli->arguments[0]);
    truce_queue_limits limits = {.pool = cli_text(cli, "pool")};
    bson_t answer = BSON_INITIALIZER;
    bson_error_t error;
    int64_t running;
    int code = CLI_USAGE;

    if (cli_number(cli, "running", 1, INT32_MAX, 0, &running) &&
        cli_rate(cli, cli_text(cli, "rate"), &limits.rate, &limits.per_ms)) {
        bool limited = running || limits.rate;
        truce_status status;

        limits.running = (uint32_t)running;
        if (limits.pool && !limited) {
            truce_queue_free(queue);
            return cli_usage(cli, "--pool needs --running or --rate: the limits of the pool");
        }
        status = truce_queue_limit(queue, &limits, &error);
        code = status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
        BSON_APPEND_UTF8(&answer, limited ? "limited" : "unlimited", cli->arguments[0]);
        if (!status)
            cli_answer(cli, &answer, "%s %s", limited ? "limited" : "unlimited", cli->arguments[0]);
    }
    bson_destroy(&answer);
    truce_queue_free(queue);
    return code;
}

const struct cli_command cli_queue_limit = {
    .noun = "queue",
    .verb = "limit",
    .arguments = "QUEUE",
    .summary = "limit the running jobs or the rate of a queue",
    .help =
        "Limits apply to all processes together. Without options, removes the limits. Queues of\n"
        "one --pool share its limits. Every worker sees a change within a second.",
    .example = "truce queue limit mail --running 5 --rate 100/1m\n"
               "truce queue limit mail --running 2 --pool smtp",
    .options =
        (const struct cli_option[]){
            {"running", 0, "N", "maximum number of running jobs", false},
            {"rate", 0, "N/TIME", "maximum rate of started jobs: 100/1m", false},
            {"pool", 0, "NAME", "the pool that has these limits", false},
            {0}},
    .store = CLI_STORE_WRITE,
    .run = queue_run_limit,
};

/* truce queue list, show, stats, cancel, retry, discard, redrive, pause, resume, limit. `truce work` is in work.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/field.h"
#include "bson/field_names.h"
#include "cli/commands.h"
#include "cli/queue/queue_options.h"
#include "store/reserved.h"
#include "store/restored.h"

truce_queue *cli_queue_open(const struct cli *cli, const char *name)
{
    return truce_queue_new(cli->store,
                           &(truce_queue_options){.queue = name, .deadline_ms = cli->deadline_ms});
}

/* ---- looking ------------------------------------------------------------------------------------ */

bool cli_job_id(const struct cli *cli, const char *text, bson_oid_t *id)
{
    bool good = bson_oid_is_valid(text, strlen(text));

    if (good)
        bson_oid_init_from_string(id, text);
    else
        cli_usage(cli, "\"%s\" is no job's id: it has 24 hexadecimal digits", text);
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
            "there is no state \"%s\" of jobs: ready, delayed, waiting, blocked, running, done, dead, "
            "cancelled, discarded",
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
    .summary = "print jobs, the oldest first, to the second",
    .example = "truce queue add mail '{to: \"ada@x.org\"}'\n"
               "truce queue list mail --state ready",
    .options = (const struct cli_option[]){{"state", 0, "STATE", "only jobs in that state", false},
                                           {"tag", 0, "TEXT", "only jobs with that tag", false},
                                           {"limit", 'n', "N", "at most so many (100)", false},
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
    .summary =
        "print how many jobs of each queue are ready, delayed, waiting, blocked, running and dead",
    .help = "oldest_ms: how long the oldest ready job has been waiting.",
    .example = "truce queue add mail '{to: \"ada@x.org\"}'\n"
               "truce queue stats --table",
    .store = CLI_STORE_READ,
    .run = run_stats,
};

/* ---- jobs by their ids -------------------------------------------------------------------------- */

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
                code = CLI_NO; /* the call is right, and its state says no */
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
    .summary = "print one job, with its errors, its steps and its result",
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
    .summary = "cancel live jobs, also while they run",
    .help = "A worker that has the job is told, on whatever machine, and its effects are refused.",
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
    .summary = "make delayed, dead, cancelled or discarded jobs ready again",
    .example = "truce queue retry $(truce queue add mail '{}' --delay 60000 | cut -d' ' -f2)",
    .store = CLI_STORE_CHANGE,
    .run = run_retry,
};

static int run_discard(struct cli *cli)
{
    return cli_each_job(cli, truce_queue_discard, "discarded");
}

const struct cli_command cli_queue_discard = {
    .noun = "queue",
    .verb = "discard",
    .arguments = "ID...",
    .summary = "give up jobs that are not running and not done",
    .example = "truce queue discard $(truce queue add mail '{}' | cut -d' ' -f2)",
    .store = CLI_STORE_CHANGE,
    .run = run_discard,
};

/* ---- queues ------------------------------------------------------------------------------------- */

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
    .summary = "give out no jobs of a queue; it still takes them",
    .help = "Jobs that run go on. Every worker knows it within a second.",
    .example = "truce queue pause mail",
    .store = CLI_STORE_WRITE,
    .run = queue_run_pause,
};

const struct cli_command cli_queue_resume = {
    .noun = "queue",
    .verb = "resume",
    .arguments = "QUEUE",
    .summary = "give out the jobs of a paused queue again",
    .example = "truce queue resume mail",
    .store = CLI_STORE_WRITE,
    .run = queue_run_resume,
};

static int run_limit(struct cli *cli)
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
            return cli_usage(cli,
                             "--pool goes with --running or --rate: what the pool's limits are");
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
    .summary = "let only so many jobs of a queue run at once, or in a time",
    .help =
        "Over all processes. Without options the queue has no limits any more. Queues of one --pool\n"
        "share one count. Every worker knows it within a second.",
    .example = "truce queue limit mail --running 5 --rate 100/1m\n"
               "truce queue limit mail --running 2 --pool smtp",
    .options =
        (const struct cli_option[]){{"running", 0, "N", "jobs that run at once", false},
                                    {"rate", 0, "N/TIME", "jobs begun in a time: 100/1m", false},
                                    {"pool", 0, "NAME", "the limits are this pool's", false},
                                    {0}},
    .store = CLI_STORE_WRITE,
    .run = run_limit,
};

/*
 * truce work: does the jobs of queues, each by a program.
 *
 *     the payload     on the program's standard input, one line of JSON
 *     TRUCE_QUEUE, TRUCE_JOB, TRUCE_JOB_ATTEMPT, TRUCE_JOB_EPOCH     in its environment
 *     exit code 0     done; what it printed is the result: a document, or {output: its text}
 *                     with --commit: an array of changes, which are one commit with the job's end
 *     75              later (EX_TEMPFAIL), and this attempt does not count
 *     any other, or a signal     failed; the end of what it printed to standard error is the reason
 *
 * While the program runs the lease is kept alive. If the job is cancelled, or is not this worker's any more, or its
 * time is over, the program's process group gets SIGTERM, and SIGKILL after the grace; then nothing that it printed
 * counts. SIGTERM or Ctrl-C to the worker itself: no job is begun any more; the one at work may end within the grace, and
 * is given back otherwise, with its id said. A second signal kills the worker.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/work.h"

#define OUTPUT_MAX (1024 * 1024) /* of a result */

atomic_bool work_ending;

static void on_end(int number)
{
    atomic_store(&work_ending, true);
}

/* SA_RESETHAND: the second one kills. No SA_RESTART: whoever sleeps wakes. */
static void hear_signals(void)
{
    struct sigaction action = {.sa_handler = on_end, .sa_flags = (int)SA_RESETHAND};

    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
}

/* ---- the call ------------------------------------------------------------------------------------- */

/* "mail" or "mail=3" */
static bool add_source(struct work *work, const char *text, int64_t backoff_ms)
{
    const char *equals = strrchr(text, '=');
    struct work_source *source = &work->sources[work->count];
    char *end = NULL;

    source->weight = equals ? strtoll(equals + 1, &end, 10) : 1;
    if ((equals && (*end || end == equals + 1)) || source->weight < 1 || source->weight > 1000) {
        cli_usage(work->cli, "--queue %s: a queue's name, and = with a weight of 1 to 1000", text);
        return false;
    }
    source->name = equals ? bson_strndup(text, (size_t)(equals - text)) : bson_strdup(text);
    source->queue = truce_queue_new(work->cli->store,
                                    &(truce_queue_options){.queue = source->name,
                                                           .lease_ms = (uint32_t)work->lease_ms,
                                                           .backoff_ms = (uint32_t)backoff_ms,
                                                           .deadline_ms = work->cli->deadline_ms});
    work->count++;
    return true;
}

static bool read_call(struct work *work)
{
    struct cli *cli = work->cli;
    int64_t backoff_ms;
    bool good = cli_number(cli, "lease", 100, 86400000, 30000, &work->lease_ms);

    good = good && cli_number(cli, "grace", 0, 86400000, 10000, &work->grace_ms) &&
           cli_number(cli, "later", 0, INT64_C(1) << 40, 60000, &work->later_ms) &&
           cli_number(cli, "backoff", 1, 86400000, 1000, &backoff_ms) &&
           cli_number(cli, "limit", 1, INT32_MAX, 0, &work->limit) &&
           cli_number(cli, "output", 0, OUTPUT_MAX, 65536, &work->output_max);
    work->commits = cli_flag(cli, "commit");
    work->drains = cli_flag(cli, "drain");
    if (good && !cli_text(cli, "exec")) {
        cli_usage(cli, "--exec PROGRAM is missing: what does the jobs");
        return false;
    }
    if (good && !cli_texts(cli, "queue", 0)) {
        cli_usage(cli, "--queue QUEUE is missing: whose jobs are done");
        return false;
    }
    for (const char *text; good && (text = cli_texts(cli, "queue", work->count));) {
        good = work->count < WORK_QUEUES_MAX;
        good = good && add_source(work, text, backoff_ms);
    }
    return good;
}

static int run(struct cli *cli)
{
    struct work work = {.cli = cli, .answers = PTHREAD_MUTEX_INITIALIZER};
    int code = CLI_USAGE;

    if (read_call(&work)) {
        code = CLI_DONE;
        if (!cli->rehearsal) { /* it would wait for jobs for ever */
            cli_interrupt_forget();
            hear_signals();
            work_by_programs(&work);
            code = atomic_load(&work.code);
            code = code ? code : cli_output_end(atomic_load(&work.failed) ? CLI_NO : CLI_DONE);
        }
    }
    for (int i = 0; i < work.count; i++) {
        truce_queue_free(work.sources[i].queue);
        bson_free(work.sources[i].name);
    }
    return code;
}

const struct cli_command cli_work = {
    .noun = "work",
    .arguments = "[WORD...]",
    .summary = "do the jobs of queues, each by a program",
    .help =
        "The program gets a job's payload on its standard input, and TRUCE_JOB, TRUCE_QUEUE,\n"
        "TRUCE_JOB_ATTEMPT and TRUCE_JOB_EPOCH in its environment; WORDs are its arguments (put --\n"
        "in front). Exit code 0: done, and what it printed is the result, a document or any text.\n"
        "75: later, which counts as no attempt. Another one, or a signal: failed, with the end of\n"
        "its standard error as the reason, and tried again after a time that doubles.\n"
        "\n"
        "With --commit it prints an array of changes as truce commit apply takes them. They and\n"
        "the end of the job are one commit: they are made once, and not at all by a worker that\n"
        "lost the job meanwhile. The lease is kept alive while the program runs. If the job is\n"
        "cancelled, lost or out of time, the program gets SIGTERM, and SIGKILL after the grace.\n"
        "SIGTERM or Ctrl-C to the worker: the job at work may end within the grace, or is given\n"
        "back. Exit code 1: an attempt failed.",
    .example = "truce queue add mail '{_id: 1, to: \"ada@x.org\"}'\n"
               "truce work --queue mail --drain --commit --exec sh -- \\\n"
               "    -c 'echo \"[{insert: \\\"sent\\\", with: $(cat)}]\"'\n"
               "truce find sent",
    .options =
        (const struct cli_option[]){
            {"queue", 0, "QUEUE", "whose jobs; NAME=3: three times as often (many)", true},
            {"exec", 0, "PROGRAM", "what does them", false},
            {"commit", 0, NULL, "it prints changes, which are one with the job's end", false},
            {"drain", 0, NULL, "end when there is no job that is ready", false},
            {"limit", 'n', "N", "end after so many jobs", false},
            {"lease", 0, "MS", "others have the job so long after it died (30000)", false},
            {"grace", 0, "MS", "between SIGTERM and SIGKILL (10000)", false},
            {"later", 0, "MS", "how much later exit code 75 is (60000)", false},
            {"backoff", 0, "MS", "how long after the first failure (1000)", false},
            {"output", 0, "BYTES", "of what it prints are kept (65536)", false},
            {0}},
    .store = CLI_STORE_WRITE,
    .run = run,
};

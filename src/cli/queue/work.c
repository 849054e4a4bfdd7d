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
 *
 *     the next job, its lease    work_claim.c       a program for each job    work_program.c
 *     its end                    work_end.c         one that stays            work_open.c, work_child.c, work_answer.c
 *
 * Each of --workers is a thread that has one program; they share the store, so that their commits share its disk.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "cli/commands.h"
#include "cli/core/interrupt.h"
#include "cli/queue/work.h"

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

static void *work_on(void *arg)
{
    struct work *work = arg;

    if (work->keeps_open)
        work_keeping_open(work);
    else
        work_by_programs(work);
    return NULL;
}

static int work_all(struct work *work)
{
    pthread_t threads[WORK_PROGRAMS_MAX];
    int count = 1, code; /* this thread is the first */

    while (count < work->workers && !pthread_create(&threads[count], NULL, work_on, work))
        count++;
    if (count < work->workers)
        cli_remark(work->cli, "only %d of %d programs at once", count, (int)work->workers);
    work_on(work);
    for (int i = 1; i < count; i++)
        pthread_join(threads[i], NULL);
    code = atomic_load(&work->code);
    return code ? code : cli_output_end(atomic_load(&work->failed) ? CLI_NO : CLI_DONE);
}

/* ---- the call ------------------------------------------------------------------------------------- */

/* "mail" or "mail=3" */
static bool work_add_source(struct work *work, const char *text, int64_t backoff_ms,
                            int64_t backoff_max_ms)
{
    const char *equals = strrchr(text, '=');
    struct work_source *source = &work->sources[work->count];
    char *end = NULL;
    long long weight = equals ? strtoll(equals + 1, &end, 10) : 1;

    if ((equals && (*end || end == equals + 1)) || weight < 1 || weight > QUEUE_WEIGHT_MAX) {
        cli_usage(work->cli, "--queue %s: a queue's name, and = with a weight of 1 to 1000", text);
        return false;
    }
    source->weight = (uint32_t)weight;
    source->name = equals ? bson_strndup(text, (size_t)(equals - text)) : bson_strdup(text);
    source->queue = truce_queue_new(
        work->cli->store,
        &(truce_queue_options){.queue = source->name,
                               .lease_ms = (uint32_t)work->lease_ms,
                               .backoff = cli_flag(work->cli, "fixed") ? TRUCE_BACKOFF_FIXED
                                                                       : TRUCE_BACKOFF_EXPONENTIAL,
                               .backoff_ms = (uint32_t)backoff_ms,
                               .backoff_max_ms = (uint32_t)backoff_max_ms,
                               .deadline_ms = work->cli->deadline_ms});
    work->count++;
    return true;
}

static bool work_read_call(struct work *work)
{
    struct cli *cli = work->cli;
    int64_t backoff_ms, backoff_max_ms;
    bool good = cli_number(cli, "lease", 100, 86400000, 30000, &work->lease_ms);

    good = good && cli_number(cli, "grace", 0, 86400000, 10000, &work->grace_ms) &&
           cli_number(cli, "later", 0, INT64_C(1) << 40, 60000, &work->later_ms) &&
           cli_number(cli, "backoff", 1, 86400000, 1000, &backoff_ms) &&
           cli_number(cli, "backoff-max", 1, 86400000, 3600000, &backoff_max_ms) &&
           cli_number(cli, "limit", 1, INT32_MAX, 0, &work->limit) &&
           cli_number(cli, "output", 0, OUTPUT_MAX, 65536, &work->output_max);
    work->commits = cli_flag(cli, "commit");
    work->drains = cli_flag(cli, "drain");
    work->keeps_open = cli_flag(cli, "keep-open");
    good = good && cli_number(cli, "workers", 1, WORK_PROGRAMS_MAX, 1, &work->workers) &&
           cli_number(cli, "at-once", 1, WORK_AT_ONCE_MAX, 1, &work->at_once);
    if (good && !work->keeps_open && cli_text(cli, "at-once")) {
        cli_usage(cli, "--at-once is for --keep-open: another program has one job");
        return false;
    }
    if (good && work->keeps_open && (work->commits || cli_text(cli, "output"))) {
        cli_usage(cli, "--commit and --output are not for --keep-open: an answer has its own "
                       "\"changes\" and \"result\"");
        return false;
    }
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
        if (!good)
            cli_usage(cli, "more than %d queues", WORK_QUEUES_MAX);
        good = good && work_add_source(work, text, backoff_ms, backoff_max_ms);
    }
    return good;
}

static int work_run(struct cli *cli)
{
    struct work work = {.cli = cli, .answers = PTHREAD_MUTEX_INITIALIZER};
    int code = CLI_USAGE;

    if (work_read_call(&work)) {
        code = CLI_DONE;
        if (!cli->rehearsal) { /* it would wait for jobs for ever */
            cli_interrupt_forget();
            hear_signals();
            code = work_all(&work);
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
        "back. Exit code 1: an attempt failed.\n"
        "\n"
        "With --keep-open the program stays. It reads a job a line, and answers it by a line:\n"
        "  {\"job\": ID, \"epoch\": 1, \"queue\": \"mail\", \"attempt\": 1, \"payload\": {...}}\n"
        "  {\"done\": ID, \"epoch\": 1, \"result\": {...}, \"changes\": [...]}\n"
        "  {\"fail\": ID, \"epoch\": 1, \"error\": \"...\", \"delay_ms\": 1000}\n"
        "  {\"snooze\": ID, \"epoch\": 1, \"delay_ms\": 1000}\n"
        "  {\"discard\": ID, \"epoch\": 1, \"error\": \"...\"}\n"
        "  {\"progress\": ID, \"epoch\": 1, \"result\": {...}}\n"
        "Result, changes, delay_ms, and the error of a discard, may be missing. A job that ends\n"
        "otherwise is told, {\"cancel\": ID, \"epoch\": 1, \"reason\": \"lost\"}, and is to be\n"
        "answered within the grace all the same. A line that is no answer ends the program; its\n"
        "jobs fail with the reason, and it is started anew. So do they when it ends by itself.\n"
        "The end of its input says that there are no more jobs.",
    .example = "truce queue add mail '{_id: 1, to: \"ada@x.org\"}'\n"
               "truce work --queue mail --drain --commit --exec sh -- \\\n"
               "    -c 'echo \"[{insert: \\\"sent\\\", with: $(cat)}]\"'\n"
               "truce find sent",
    .options =
        (const struct cli_option[]){
            {"queue", 0, "QUEUE", "whose jobs; NAME=3: three times as often (many)", true},
            {"exec", 0, "PROGRAM", "what does them", false},
            {"commit", 0, NULL, "it prints changes, which are one with the job's end", false},
            {"keep-open", 0, NULL, "one program stays, with a job and an answer a line", false},
            {"workers", 0, "N", "so many programs at once, up to 64 (1)", false},
            {"at-once", 0, "N", "--keep-open: each has so many jobs, up to 1000 (1)", false},
            {"drain", 0, NULL, "end when there is no job that is ready", false},
            {"limit", 'n', "N", "end after so many jobs", false},
            {"lease", 0, "MS", "others have the job so long after it died (30000)", false},
            {"grace", 0, "MS", "between SIGTERM and SIGKILL (10000)", false},
            {"later", 0, "MS", "how much later exit code 75 is (60000)", false},
            {"backoff", 0, "MS", "how long after the first failure (1000)", false},
            {"backoff-max", 0, "MS", "how long at most (3600000)", false},
            {"fixed", 0, NULL, "as long after each failure", false},
            {"output", 0, "BYTES", "of what it prints are kept (65536)", false},
            {0}},
    .store = CLI_STORE_WRITE,
    .run = work_run,
};

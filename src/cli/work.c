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
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/random.h"
#include "bson/json.h"
#include "cli/commands.h"
#include "cli/commit_parts.h"
#include "cli/interrupt.h"

#define QUEUES_MAX  64
#define OUTPUT_MAX  (1024 * 1024) /* of a result */
#define CHANGES_MAX (16 * 1024 * 1024)
#define REASON_MAX  1900
#define LATER       75
#define SLICE_MS    250
#define NS_IN_MS    INT64_C(1000000)

struct source {
    char *name;
    truce_queue *queue;
    int64_t weight;
};

struct work {
    struct cli *cli;
    struct source sources[QUEUES_MAX];
    int count;
    int64_t lease_ms, grace_ms, later_ms, limit, output_max;
    bool commits;
    int64_t done, failed;
};

/* One program at work on one job. */
struct attempt {
    struct work *work;
    const struct source *source;
    truce_job *job;
    pid_t child;
    int in, out, err;                       /* files in memory */
    int state;                              /* as waitpid says it */
    int64_t begun_ns, extended_ns, told_ns; /* told: SIGTERM was sent */
    bool lost, timed_out, abandoned;
};

static volatile sig_atomic_t ending;

static void on_end(int number)
{
    ending = 1;
}

/* SA_RESETHAND: the second one kills. No SA_RESTART: whoever sleeps wakes. */
static void hear_signals(void)
{
    struct sigaction action = {.sa_handler = on_end, .sa_flags = (int)SA_RESETHAND};

    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
}

/* ---- the program ---------------------------------------------------------------------------------- */

static bool open_files(struct attempt *attempt)
{
    char *text = bson_as_relaxed_extended_json(truce_job_payload(attempt->job), NULL);
    size_t length = text ? strlen(text) : 0;
    bool good;

    attempt->in = memfd_create("payload", MFD_CLOEXEC);
    attempt->out = memfd_create("output", MFD_CLOEXEC);
    attempt->err = memfd_create("errors", MFD_CLOEXEC);
    if (text)
        text[length] = '\n';
    good = text && attempt->in >= 0 && attempt->out >= 0 && attempt->err >= 0 &&
           write(attempt->in, text, length + 1) == (ssize_t)length + 1 &&
           !lseek(attempt->in, 0, SEEK_SET);
    bson_free(text);
    return good;
}

static void close_files(struct attempt *attempt)
{
    const int files[] = {attempt->in, attempt->out, attempt->err};

    for (int i = 0; i < 3; i++) {
        if (files[i] >= 0)
            close(files[i]);
    }
}

static void say_job(const struct attempt *attempt)
{
    char text[32];

    bson_oid_to_string(truce_job_id(attempt->job), text);
    setenv("TRUCE_JOB", text, 1);
    setenv("TRUCE_QUEUE", attempt->source->name, 1);
    snprintf(text, sizeof text, "%u", truce_job_attempt(attempt->job));
    setenv("TRUCE_JOB_ATTEMPT", text, 1);
    snprintf(text, sizeof text, "%" PRId64, truce_job_epoch(attempt->job));
    setenv("TRUCE_JOB_EPOCH", text, 1);
}

/* In a process group of its own, with the signals as they usually are. 0, or errno. */
static int start(struct attempt *attempt)
{
    const struct cli *cli = attempt->work->cli;
    char *words[CLI_ARGUMENTS_MAX + 2] = {(char *)(uintptr_t)cli_text(cli, "exec")};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t usual;
    int failed;

    memcpy(words + 1, cli->arguments, (size_t)cli->count * sizeof *words);
    say_job(attempt);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, attempt->in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, attempt->out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, attempt->err, STDERR_FILENO);
    posix_spawnattr_init(&attributes);
    sigemptyset(&usual);
    sigaddset(&usual, SIGTERM);
    sigaddset(&usual, SIGINT);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
    failed = posix_spawnp(&attempt->child, words[0], &actions, &attributes, words, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

/* ---- while it runs -------------------------------------------------------------------------------- */

static bool is_over(int64_t since_ns, int64_t ms)
{
    return truce__clock_monotonic_ns() - since_ns >= ms * NS_IN_MS;
}

static void tell(struct attempt *attempt, int number)
{
    kill(-attempt->child, number);
}

static void keep_lease(struct attempt *attempt)
{
    bson_error_t error;

    if (!is_over(attempt->extended_ns, attempt->work->lease_ms / 3))
        return;
    attempt->extended_ns = truce__clock_monotonic_ns();
    if (truce_job_extend(attempt->job, &error) == TRUCE_EXPIRED)
        attempt->lost = true; /* what else fails is tried again, and the lease ends if it goes on */
}

static void look_after(struct attempt *attempt)
{
    int64_t timeout_ms = truce__field_number(truce_job_document(attempt->job), "timeout_ms");

    if (!attempt->lost)
        keep_lease(attempt);
    attempt->lost = attempt->lost || truce_job_cancelled(attempt->job);
    attempt->timed_out =
        attempt->timed_out || (timeout_ms && is_over(attempt->begun_ns, timeout_ms));
    attempt->abandoned = attempt->abandoned || ending; /* it may end by itself, within the grace */
}

/* One slice of waiting. True: it has ended. */
static bool has_ended(struct attempt *attempt, int64_t slice_ms)
{
    pid_t found = waitpid(attempt->child, &attempt->state, WNOHANG);

    if (found == attempt->child || (found < 0 && errno == ECHILD))
        return true;
    truce__clock_sleep_ms(slice_ms);
    return false;
}

static void wait_for_it(struct attempt *attempt)
{
    int64_t slice_ms = 1, grace_ns = 0;
    bool killed = false;

    while (!has_ended(attempt, slice_ms)) {
        look_after(attempt);
        if (attempt->abandoned && !grace_ns)
            grace_ns = truce__clock_monotonic_ns();
        if (!attempt->told_ns && (attempt->lost || attempt->timed_out ||
                                  (grace_ns && is_over(grace_ns, attempt->work->grace_ms)))) {
            attempt->told_ns = truce__clock_monotonic_ns();
            tell(attempt, SIGTERM);
        } else if (attempt->told_ns && !killed &&
                   is_over(attempt->told_ns, attempt->work->grace_ms)) {
            killed = true;
            tell(attempt, SIGKILL);
        }
        slice_ms = slice_ms < 50 ? slice_ms * 2 : 50;
    }
    tell(attempt, SIGKILL); /* what it left behind in its group */
}

/* ---- what became of it ---------------------------------------------------------------------------- */

/* The first, or the last, bytes of a file; bson_free it. */
static char *text_of(int file, size_t most, bool end)
{
    off_t size = lseek(file, 0, SEEK_END),
          from = end && size > (off_t)most ? size - (off_t)most : 0;
    size_t length = size < 0 ? 0 : (size_t)(size - from) < most ? (size_t)(size - from) : most;
    char *text = bson_malloc(length + 1);
    ssize_t got = pread(file, text, length, from);

    text[got > 0 ? got : 0] = '\0';
    return text;
}

/* What it printed, as a document or an array; NULL: it is neither, or nothing. bson_destroy it. */
static bson_t *read_output(const char *text, bool *is_array, bson_error_t *error)
{
    struct json_reader reader = {.typed = true};
    bson_t borrowed, *own = NULL; /* from the reader */

    if (!truce__json_read(&reader, text, strlen(text), &borrowed, is_array, error))
        own = bson_copy(&borrowed);
    truce__json_reader_release(&reader);
    return own;
}

static bool is_blank(const char *text)
{
    return !text[strspn(text, " \t\r\n")];
}

/* A document if it printed one, else {output: text}. */
static bson_t *result_of(const struct attempt *attempt)
{
    char *text = text_of(attempt->out, (size_t)attempt->work->output_max, false);
    bool is_array = false;
    bson_t *result = is_blank(text) ? bson_new() : read_output(text, &is_array, NULL);

    if (result && is_array) {
        bson_destroy(result);
        result = NULL;
    }
    if (!result) {
        result = bson_new();
        if (bson_utf8_validate(text, strlen(text), false))
            BSON_APPEND_UTF8(result, "output", text);
    }
    bson_free(text);
    return result;
}

struct changes {
    const struct cli *cli;
    const bson_t *list;
};

static truce_status add_changes(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct changes *changes = arg;

    return cli_parts_add(changes->cli, changes->list, commit, error);
}

/* --commit: what it printed, and the end of the job, are one commit. */
static truce_status commit_changes(struct attempt *attempt, bson_error_t *error)
{
    char *text = text_of(attempt->out, CHANGES_MAX, false);
    bool is_array = is_blank(text);
    bson_t *list = is_array ? bson_new() : read_output(text, &is_array, error);
    struct changes changes = {attempt->work->cli, list};
    truce_status status;

    if (!list || !is_array || cli_parts_check(attempt->work->cli, list))
        status = truce__fail(TRUCE_INVALID, error, "the program printed no array of changes");
    else
        status = truce_job_commit(attempt->job, add_changes, &changes, NULL, error);
    if (list)
        bson_destroy(list);
    bson_free(text);
    return status;
}

static truce_status end_well(struct attempt *attempt, bson_error_t *error)
{
    bson_t *result;
    truce_status status;

    if (attempt->work->commits)
        return commit_changes(attempt, error);
    result = result_of(attempt);
    status = truce_job_done(attempt->job, NULL, result, error);
    bson_destroy(result);
    return status;
}

static char *reason_of(const struct attempt *attempt)
{
    char *errors = text_of(attempt->err, REASON_MAX, true), *reason;
    size_t length = strlen(errors);

    while (length && strchr(" \r\n", errors[length - 1]))
        errors[--length] = '\0';
    if (attempt->timed_out)
        reason = bson_strdup_printf("timed out: %s", errors);
    else if (WIFSIGNALED(attempt->state))
        reason = bson_strdup_printf("killed by signal %d: %s", WTERMSIG(attempt->state), errors);
    else
        reason = bson_strdup_printf("exit code %d: %s", WEXITSTATUS(attempt->state), errors);
    bson_free(errors);
    return reason;
}

/* What is said of it; the job's new state is in the store. */
static const char *conclude(struct attempt *attempt, truce_status *status, bson_error_t *error)
{
    bool good = WIFEXITED(attempt->state) && !WEXITSTATUS(attempt->state);
    char *reason;

    if (attempt->lost) {
        *status = TRUCE_EXPIRED;
        (void)truce__fail(*status, error, "it was cancelled, or is not this worker's any more");
        return "lost";
    }
    if (attempt->abandoned && attempt->told_ns && !good) {
        *status = truce_job_snooze(attempt->job, NULL, 0, error);
        return "abandoned";
    }
    if (good && !attempt->timed_out) {
        *status = end_well(attempt, error);
        if (!*status)
            return "done";
        if (*status == TRUCE_EXPIRED)
            return "lost";
        reason = bson_strdup(error->message);
    } else if (!attempt->timed_out && WIFEXITED(attempt->state) &&
               WEXITSTATUS(attempt->state) == LATER) {
        *status = truce_job_snooze(attempt->job, NULL, attempt->work->later_ms, error);
        return "later";
    } else {
        reason = reason_of(attempt);
    }
    *status = truce_job_fail(attempt->job, NULL, reason, -1, error);
    if (!*status)
        cli_remark(attempt->work->cli, "%s", reason);
    bson_free(reason);
    return *status == TRUCE_EXPIRED ? "lost" : "failed";
}

/* ---- one job -------------------------------------------------------------------------------------- */

/* A store that fails ends the worker; a job that is lost does not. */
static int report(struct attempt *attempt, const char *word, truce_status status,
                  const bson_error_t *error)
{
    struct work *work = attempt->work;
    bson_t answer = BSON_INITIALIZER;
    char id[25];

    bson_oid_to_string(truce_job_id(attempt->job), id);
    BSON_APPEND_OID(&answer, "job", truce_job_id(attempt->job));
    BSON_APPEND_UTF8(&answer, "queue", attempt->source->name);
    BSON_APPEND_UTF8(&answer, "ended", word);
    work->done += !strcmp(word, "done");
    work->failed += !strcmp(word, "failed");
    cli_answer(work->cli, &answer, "%s %s", id, word);
    fflush(stdout);
    bson_destroy(&answer);
    return status && status != TRUCE_EXPIRED ? cli_error(work->cli, id, status, error) : CLI_DONE;
}

static int do_job(struct work *work, const struct source *source, truce_job *job)
{
    struct attempt attempt = {
        .work = work, .source = source, .job = job, .in = -1, .out = -1, .err = -1};
    bson_error_t error = {0}, ignored;
    truce_status status = TRUCE_OK;
    int failed, code;

    attempt.begun_ns = attempt.extended_ns = truce__clock_monotonic_ns();
    failed = open_files(&attempt) ? start(&attempt) : ENOMEM;
    if (failed) { /* no job's fault: it is given back, and the worker ends */
        if (truce_job_snooze(job, NULL, 0, &ignored))
            cli_remark(work->cli, "the job is given back when its lease ends: %s", ignored.message);
        code = cli_say(work->cli, CLI_USAGE, "%s cannot be run: %s", cli_text(work->cli, "exec"),
                       strerror(failed));
    } else {
        const char *word;

        wait_for_it(&attempt);
        word = conclude(&attempt, &status, &error);
        code = report(&attempt, word, status, &error);
    }
    close_files(&attempt);
    return code;
}

/* ---- jobs, one after the other --------------------------------------------------------------------- */

/* The queues in an order that is drawn by their weights: the first that has a job gives it. */
static truce_status claim(struct work *work, truce_job **job, const struct source **source,
                          bson_error_t *error)
{
    bool tried[QUEUES_MAX] = {false};
    truce_status status = TRUCE_NOT_FOUND;

    for (int round = 0; round < work->count && status == TRUCE_NOT_FOUND; round++) {
        int64_t total = 0, drawn;
        int i = 0;

        for (int k = 0; k < work->count; k++)
            total += tried[k] ? 0 : work->sources[k].weight;
        drawn = (int64_t)(truce__random_entropy() % (uint64_t)total);
        while (tried[i] || drawn >= work->sources[i].weight) {
            drawn -= tried[i] ? 0 : work->sources[i].weight;
            i++;
        }
        tried[i] = true;
        *source = &work->sources[i];
        status = truce_queue_claim((*source)->queue, job, error);
    }
    return status;
}

/* A moment, or until somebody writes to the jobs. */
static truce_status pause_for_jobs(struct work *work, uint64_t *token, bson_error_t *error)
{
    truce_status status = truce_wait(work->cli->store, "truce_queue", token, SLICE_MS, error);

    return status == TRUCE_TIMEOUT ? TRUCE_OK : status;
}

static int loop(struct work *work)
{
    bool drain = cli_flag(work->cli, "drain");
    uint64_t token = 0;
    int64_t count = 0;
    int code = CLI_DONE;

    while (!ending && !code && (!work->limit || count < work->limit)) {
        const struct source *source = NULL;
        truce_job *job = NULL;
        bson_error_t error;
        truce_status status = claim(work, &job, &source, &error);

        if (!status) {
            code = do_job(work, source, job);
            count++;
        } else if (status == TRUCE_NOT_FOUND && !drain) {
            status = pause_for_jobs(work, &token, &error);
            code = status ? cli_error(work->cli, NULL, status, &error) : CLI_DONE;
        } else if (status == TRUCE_NOT_FOUND) {
            break;
        } else {
            code = cli_error(work->cli, NULL, status, &error);
        }
        truce_job_free(job);
    }
    return code ? code : cli_output_end(work->failed ? CLI_NO : CLI_DONE);
}

/* ---- the call ------------------------------------------------------------------------------------- */

/* "mail" or "mail=3" */
static bool add_source(struct work *work, const char *text, int64_t backoff_ms)
{
    const char *equals = strrchr(text, '=');
    struct source *source = &work->sources[work->count];
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
    if (good && !cli_text(cli, "exec")) {
        cli_usage(cli, "--exec PROGRAM is missing: what does the jobs");
        return false;
    }
    if (good && !cli_texts(cli, "queue", 0)) {
        cli_usage(cli, "--queue QUEUE is missing: whose jobs are done");
        return false;
    }
    for (const char *text; good && (text = cli_texts(cli, "queue", work->count));) {
        good = work->count < QUEUES_MAX;
        good = good && add_source(work, text, backoff_ms);
    }
    return good;
}

static int run(struct cli *cli)
{
    struct work work = {.cli = cli};
    int code = CLI_USAGE;

    if (read_call(&work)) {
        code = CLI_DONE;
        if (!cli->rehearsal) { /* it would wait for jobs for ever */
            cli_interrupt_forget();
            hear_signals();
            code = loop(&work);
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

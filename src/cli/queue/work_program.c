/* truce work: a program for each job, from its start to its end. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bson/json.h"
#include "cli/queue/work.h"

#define CHANGES_MAX   (16 * 1024 * 1024)
#define LATER         75
#define VARIABLES     4
#define VARIABLE_SIZE 256

/* One program at work on one job. */
struct attempt {
    struct work *work;
    struct work_job at;
    pid_t child;
    int in, out, err; /* files in memory */
    int state;        /* as waitpid says it */
    int64_t told_ns;  /* SIGTERM was sent */
    bool abandoned;
};

/* ---- the program ---------------------------------------------------------------------------------- */

void work_words(const struct work *work, char *words[CLI_ARGUMENTS_MAX + 2])
{
    const struct cli *cli = work->cli;

    words[0] = (char *)(uintptr_t)cli_text(cli, "exec");
    memcpy(words + 1, cli->arguments, (size_t)cli->count * sizeof *words);
    words[cli->count + 1] = NULL;
}

int work_spawn(pid_t *child, char **words, char **environment, const int files[3])
{
    static const int usual_ones[] = {SIGTERM, SIGINT, SIGPIPE};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t usual;
    int failed;

    posix_spawn_file_actions_init(&actions);
    for (int i = 0; i < 3; i++)
        posix_spawn_file_actions_adddup2(&actions, files[i], i);
    posix_spawnattr_init(&attributes);
    sigemptyset(&usual);
    for (size_t i = 0; i < sizeof usual_ones / sizeof *usual_ones; i++)
        sigaddset(&usual, usual_ones[i]);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
    failed = posix_spawnp(child, words[0], &actions, &attributes, words, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

static bool open_files(struct attempt *attempt)
{
    char *text = bson_as_relaxed_extended_json(truce_job_payload(attempt->at.job), NULL);
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

static void say_job(const struct work_job *at, char variables[VARIABLES][VARIABLE_SIZE])
{
    char id[25];

    bson_oid_to_string(truce_job_id(at->job), id);
    snprintf(variables[0], VARIABLE_SIZE, "TRUCE_JOB=%s", id);
    snprintf(variables[1], VARIABLE_SIZE, "TRUCE_QUEUE=%s", at->source->name);
    snprintf(variables[2], VARIABLE_SIZE, "TRUCE_JOB_ATTEMPT=%u", truce_job_attempt(at->job));
    snprintf(variables[3], VARIABLE_SIZE, "TRUCE_JOB_EPOCH=%" PRId64, truce_job_epoch(at->job));
}

static bool is_replaced(const char *variable, char variables[VARIABLES][VARIABLE_SIZE])
{
    for (int i = 0; i < VARIABLES; i++) {
        if (!strncmp(variable, variables[i], strcspn(variables[i], "=") + 1))
            return true;
    }
    return false;
}

/* This process's environment is that of all its threads: each program gets one of its own. 0, or errno. */
static int program_start(struct attempt *attempt)
{
    char variables[VARIABLES][VARIABLE_SIZE], *words[CLI_ARGUMENTS_MAX + 2], **environment;
    size_t count = 0, given = 0;
    int failed;

    while (environ[count])
        count++;
    environment = bson_malloc0((count + VARIABLES + 1) * sizeof *environment);
    say_job(&attempt->at, variables);
    for (size_t i = 0; i < count; i++) {
        if (!is_replaced(environ[i], variables))
            environment[given++] = environ[i];
    }
    for (int i = 0; i < VARIABLES; i++)
        environment[given++] = variables[i];
    work_words(attempt->work, words);
    failed = work_spawn(&attempt->child, words, environment,
                        (const int[]){attempt->in, attempt->out, attempt->err});
    bson_free(environment);
    return failed;
}

/* ---- while it runs -------------------------------------------------------------------------------- */

static void program_tell(struct attempt *attempt, int number)
{
    kill(-attempt->child, number);
}

/* One slice of waiting. True: it has ended. */
static bool program_has_ended(struct attempt *attempt, int64_t slice_ms)
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

    while (!program_has_ended(attempt, slice_ms)) {
        work_look_after(attempt->work, &attempt->at);
        attempt->abandoned = attempt->abandoned || atomic_load(&work_ending);
        if (attempt->abandoned && !grace_ns) /* it may end by itself, within the grace */
            grace_ns = truce__clock_monotonic_ns();
        if (!attempt->told_ns && (attempt->at.lost || attempt->at.timed_out ||
                                  (grace_ns && work_is_over(grace_ns, attempt->work->grace_ms)))) {
            attempt->told_ns = truce__clock_monotonic_ns();
            program_tell(attempt, SIGTERM);
        } else if (attempt->told_ns && !killed &&
                   work_is_over(attempt->told_ns, attempt->work->grace_ms)) {
            killed = true;
            program_tell(attempt, SIGKILL);
        }
        slice_ms = slice_ms < 50 ? slice_ms * 2 : 50;
    }
    program_tell(attempt, SIGKILL); /* what it left behind in its group */
}

/* ---- what became of it ---------------------------------------------------------------------------- */

/* The first, or the last, bytes of a file; bson_free it. */
static char *program_text_of(int file, size_t most, bool end)
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

static bool program_is_blank(const char *text)
{
    return !text[strspn(text, " \t\r\n")];
}

/* A document if it printed one, else {output: text}. */
static bson_t *program_result_of(const struct attempt *attempt)
{
    char *text = program_text_of(attempt->out, (size_t)attempt->work->output_max, false);
    bool is_array = false;
    bson_t *result = program_is_blank(text) ? bson_new() : read_output(text, &is_array, NULL);

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

/* --commit: what it printed, and the end of the job, are one commit. */
static void end_with_changes(struct attempt *attempt)
{
    char *text = program_text_of(attempt->out, CHANGES_MAX, false);
    bool is_array = program_is_blank(text);
    bson_t *list = is_array ? bson_new() : read_output(text, &is_array, NULL);

    if (list && is_array)
        work_done(attempt->work, &attempt->at, NULL, list);
    else
        work_failed(attempt->work, &attempt->at, "the program printed no array of changes", -1);
    if (list)
        bson_destroy(list);
    bson_free(text);
}

static void end_well(struct attempt *attempt)
{
    bson_t *result;

    if (attempt->work->commits) {
        end_with_changes(attempt);
        return;
    }
    result = program_result_of(attempt);
    work_done(attempt->work, &attempt->at, result, NULL);
    bson_destroy(result);
}

static char *last_words(int file)
{
    char *text = program_text_of(file, WORK_REASON_MAX, true);
    size_t length = strlen(text);

    while (length && strchr(" \r\n", text[length - 1]))
        text[--length] = '\0';
    return text;
}

static char *program_reason_of(const struct attempt *attempt)
{
    char *errors = last_words(attempt->err), *reason;
    const char *colon;

    if (!*errors && !attempt->work->commits &&
        attempt->work->output_max) { /* some programs complain on their standard output */
        bson_free(errors);
        errors = last_words(attempt->out);
    }
    colon = *errors ? ": " : "";
    if (attempt->at.timed_out)
        reason = bson_strdup_printf("timed out%s%s", colon, errors);
    else if (WIFSIGNALED(attempt->state))
        reason =
            bson_strdup_printf("killed by signal %d%s%s", WTERMSIG(attempt->state), colon, errors);
    else
        reason = bson_strdup_printf("exit code %d%s%s", WEXITSTATUS(attempt->state), colon, errors);
    bson_free(errors);
    return reason;
}

static void program_conclude(struct attempt *attempt)
{
    struct work_job *at = &attempt->at;
    bool good = WIFEXITED(attempt->state) && !WEXITSTATUS(attempt->state);
    char *reason;

    if (at->lost) {
        work_lost(attempt->work, at);
    } else if (attempt->abandoned && attempt->told_ns && !good) {
        work_later(attempt->work, at, 0, "abandoned");
    } else if (good && !at->timed_out) {
        end_well(attempt);
    } else if (!at->timed_out && WIFEXITED(attempt->state) &&
               WEXITSTATUS(attempt->state) == LATER) {
        work_later(attempt->work, at, attempt->work->later_ms, "later");
    } else {
        reason = program_reason_of(attempt);
        work_failed(attempt->work, at, reason, -1);
        bson_free(reason);
    }
}

/* ---- jobs, one after the other -------------------------------------------------------------------- */

static void program_do_job(struct work *work, const struct work_job *at)
{
    struct attempt attempt = {.work = work, .at = *at, .in = -1, .out = -1, .err = -1};
    bson_error_t ignored;
    int failed = open_files(&attempt) ? program_start(&attempt) : ENOMEM;

    if (failed) { /* no job's fault: it is given back, and the worker ends */
        if (truce_job_snooze(at->job, NULL, 0, &ignored))
            cli_remark(work->cli, "the job is given back when its lease ends: %s", ignored.message);
        work_stop(work, cli_say(work->cli, CLI_USAGE, "%s cannot be run: %s",
                                cli_text(work->cli, "exec"), strerror(failed)));
        truce_job_free(at->job);
    } else {
        wait_for_it(&attempt);
        program_conclude(&attempt);
    }
    close_files(&attempt);
}

void work_by_programs(struct work *work)
{
    uint64_t token = 0;

    while (!atomic_load(&work_ending) && !atomic_load(&work->code) && !work_begun_all(work)) {
        struct work_job at;
        bson_error_t error;
        truce_status status = work_claim(work, &at, &error);

        if (!status)
            program_do_job(work, &at);
        else if (status == TRUCE_NOT_FOUND && work->drains)
            break;
        else if (status == TRUCE_NOT_FOUND)
            status = work_rest(work, &token, &error);
        if (status && status != TRUCE_NOT_FOUND)
            work_stop(work, cli_error(work->cli, NULL, status, &error));
    }
}

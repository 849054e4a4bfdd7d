/* truce work: child processes, their answers, and the run of a program for each job. */
#include "cli/queue/work_program.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/limits.h"
#include "bson/json.h"
#include "cli/queue/work.h"

/* ---- answers --------------------------------------------------------------------------------- */

/*
 * An answer is one document on one line: its kind with the job's id, the epoch that the job was
 * sent with, and further fields.
 *
 *     {"done": ID, "epoch": 1, "result": {...}, "changes": [...]}     the last two are optional
 *     {"fail": ID, "epoch": 1, "error": "...", "delay_ms": 1000}      default: --backoff
 *     {"snooze": ID, "epoch": 1, "delay_ms": 1000}                    default: --later
 *     {"discard": ID, "epoch": 1, "error": "..."}
 *     {"progress": ID, "epoch": 1, "result": {...}}
 *
 * A line with any other field is refused: the field is probably misspelled, and its value would be
 * lost.
 */

static const char *const kinds[] = {"done", "fail", "snooze", "discard", "progress"};

enum field { EPOCH, RESULT, CHANGES, ERROR, DELAY };
static const char *const fields[] = {"epoch", "result", "changes", "error", "delay_ms"};

/* One bit for each field that an answer of this kind may have. */
static const unsigned allowed[] = {
    [ANSWER_DONE] = 1U << EPOCH | 1U << RESULT | 1U << CHANGES,
    [ANSWER_FAIL] = 1U << EPOCH | 1U << ERROR | 1U << DELAY,
    [ANSWER_SNOOZE] = 1U << EPOCH | 1U << DELAY,
    [ANSWER_DISCARD] = 1U << EPOCH | 1U << ERROR,
    [ANSWER_PROGRESS] = 1U << EPOCH | 1U << RESULT,
};

static void work_words(const struct work *work, char *words[CLI_ARGUMENTS_MAX + 2]);
static int work_spawn(pid_t *child, char **words, char **environment, const int files[3]);

static int answer_index_of(const char *word, const char *const *words, int count)
{
    for (int i = 0; i < count; i++) {
        if (!strcmp(word, words[i]))
            return i;
    }
    return -1;
}

static bool take_bytes(const bson_iter_t *iter, bool array, bson_t *taken)
{
    const uint8_t *bytes;
    uint32_t length;

    if (array ? !BSON_ITER_HOLDS_ARRAY(iter) : !BSON_ITER_HOLDS_DOCUMENT(iter))
        return false;
    if (array)
        bson_iter_array(iter, &length, &bytes);
    else
        bson_iter_document(iter, &length, &bytes);
    return bson_init_static(taken, bytes, length);
}

static bool answer_take_number(const bson_iter_t *iter, int64_t *number)
{
    *number = BSON_ITER_HOLDS_NUMBER(iter) ? bson_iter_as_int64(iter) : -1;
    return *number >= 0;
}

/* Takes a further field of an answer. Returns false if its type is wrong. */
static bool answer_take_field(enum field field, const bson_iter_t *iter, struct answer *answer)
{
    switch (field) {
    case EPOCH:
        return answer_take_number(iter, &answer->epoch);
    case RESULT:
        return take_bytes(iter, false, &answer->result);
    case CHANGES:
        return take_bytes(iter, true, &answer->changes);
    case ERROR:
        answer->error = BSON_ITER_HOLDS_UTF8(iter) ? bson_iter_utf8(iter, NULL) : NULL;
        return answer->error != NULL;
    case DELAY:
        return answer_take_number(iter, &answer->delay_ms);
    }
    return false;
}

static bool answer_take_job(const bson_iter_t *iter, struct answer *answer)
{
    const char *text = BSON_ITER_HOLDS_UTF8(iter) ? bson_iter_utf8(iter, NULL) : "";

    if (!bson_oid_is_valid(text, strlen(text)))
        return false;
    bson_oid_init_from_string(&answer->job, text);
    return true;
}

/* Finds the kind and the job. The field of the kind may have any position. */
static truce_status answer_find_kind(const bson_t *document, struct answer *answer,
                                     bson_error_t *error)
{
    bson_iter_t iter;
    int found = -1;

    for (bson_iter_init(&iter, document); bson_iter_next(&iter);) {
        int kind = answer_index_of(bson_iter_key(&iter), kinds, sizeof kinds / sizeof *kinds);

        if (kind < 0)
            continue;
        if (found >= 0)
            return truce__fail(TRUCE_INVALID, error,
                               "the line has both \"%s\" and \"%s\": expected one of them",
                               kinds[found], kinds[kind]);
        if (!answer_take_job(&iter, answer))
            return truce__fail(
                TRUCE_INVALID, error,
                "the value of \"%s\" is not the id of a job: expected 24 hexadecimal digits",
                kinds[kind]);
        found = kind;
    }
    if (found < 0)
        return truce__fail(
            TRUCE_INVALID, error,
            "the line has no \"done\", \"fail\", \"snooze\", \"discard\", or \"progress\" with the "
            "id of a job");
    answer->kind = (enum answer_kind)found;
    return TRUCE_OK;
}

/* Reads the fields besides the kind. Refuses a field that is unknown, repeated, or of a wrong type.
 * *seen gets a bit for each field. */
static truce_status answer_take_all(const bson_t *document, struct answer *answer, unsigned *seen,
                                    bson_error_t *error)
{
    bson_iter_t iter;

    for (bson_iter_init(&iter, document); bson_iter_next(&iter);) {
        const char *name = bson_iter_key(&iter);
        int field = answer_index_of(name, fields, sizeof fields / sizeof *fields);

        if (answer_index_of(name, kinds, sizeof kinds / sizeof *kinds) >= 0)
            continue;
        if (field < 0 || !(allowed[answer->kind] & 1U << field))
            return truce__fail(TRUCE_INVALID, error,
                               "a reply with \"%s\" has no field \"%s\": see truce help work",
                               kinds[answer->kind], name);
        if (*seen & 1U << field)
            return truce__fail(TRUCE_INVALID, error, "the field \"%s\" occurs twice", name);
        if (!answer_take_field((enum field)field, &iter, answer))
            return truce__fail(TRUCE_INVALID, error, "the field \"%s\" has a wrong type", name);
        *seen |= 1U << field;
    }
    return TRUCE_OK;
}

truce_status work_answer_read(struct json_reader *reader, const char *line, size_t size,
                              struct answer *answer, bson_error_t *error)
{
    unsigned seen = 0;
    bson_t document;
    truce_status status = truce__json_read(reader, line, size, &document, NULL, error);

    *answer = (struct answer){.delay_ms = -1};
    bson_init(&answer->result);
    bson_init(&answer->changes);
    if (!status)
        status = answer_find_kind(&document, answer, error);
    if (!status)
        status = answer_take_all(&document, answer, &seen, error);
    if (!status && !(seen & 1U << EPOCH))
        status = truce__fail(TRUCE_INVALID, error,
                             "the field \"epoch\" is missing: repeat the epoch of the job");
    if (!status && answer->kind == ANSWER_FAIL && !answer->error)
        status = truce__fail(
            TRUCE_INVALID, error,
            "the field \"error\" is missing: expected the reason of the failure, a string");
    return status;
}

/* ---- child programs -------------------------------------------------------------------------- */

/*
 * A program that handles many jobs (--keep-open). The worker waits for its pipes only in poll(), so
 * a program that does not read, does not write, or writes without end delays only its own jobs.
 *
 * The worker copies the program's standard error to its own, and keeps the last bytes as the reason
 * of failed jobs.
 */

#define READ_SIZE 65536

/* ---- start and end of the program ------------------------------------------------------------ */

static void close_one(int *file)
{
    if (*file >= 0)
        close(*file);
    *file = -1;
}

static bool make_pipes(int ends[3][2])
{
    for (int i = 0; i < 3; i++)
        ends[i][0] = ends[i][1] = -1;
    for (int i = 0; i < 3; i++) {
        if (pipe2(ends[i], O_CLOEXEC))
            return false;
    }
    return true;
}

int work_child_start(struct work_child *child, const struct work *work)
{
    char *words[CLI_ARGUMENTS_MAX + 2];
    int ends[3][2], failed;

    *child = (struct work_child){.in = -1, .out = -1, .err = -1};
    work_words(work, words);
    failed = make_pipes(ends) ? 0 : errno;
    if (!failed)
        failed = work_spawn(&child->pid, words, environ,
                            (const int[]){ends[0][0], ends[1][1], ends[2][1]});
    close_one(&ends[0][0]);
    close_one(&ends[1][1]);
    close_one(&ends[2][1]);
    child->in = ends[0][1];
    child->out = ends[1][0];
    child->err = ends[2][0];
    if (failed) {
        child->pid = 0;
        work_child_forget(child);
        return failed;
    }
    truce__buffer_reserve(&child->unread, READ_SIZE);
    fcntl(child->in, F_SETFL, O_NONBLOCK);
    fcntl(child->out, F_SETFL, O_NONBLOCK);
    fcntl(child->err, F_SETFL, O_NONBLOCK);
    return 0;
}

void work_child_signal(struct work_child *child, int64_t grace_ms)
{
    if (!child->notified_ns) {
        child->notified_ns = truce__clock_monotonic_ns();
        kill(-child->pid, SIGTERM);
    } else if (!child->killed && work_is_over(child->notified_ns, grace_ms)) {
        child->killed = true;
        kill(-child->pid, SIGKILL);
    }
}

char *work_child_end(const struct work_child *child)
{
    const char *where = child->unread.size > child->taken ? " in the middle of a line" : "";
    size_t length = child->errors_length;

    while (length && strchr(" \r\n", child->errors[length - 1]))
        length--;
    if (WIFSIGNALED(child->state))
        return bson_strdup_printf("the program was killed%s by signal %d: %.*s", where,
                                  WTERMSIG(child->state), (int)length, child->errors);
    return bson_strdup_printf("the program ended%s, exit code %d: %.*s", where,
                              WEXITSTATUS(child->state), (int)length, child->errors);
}

void work_child_forget(struct work_child *child)
{
    close_one(&child->in);
    close_one(&child->out);
    close_one(&child->err);
    truce__buffer_release(&child->unsent);
    truce__buffer_release(&child->unread);
    child->pid = 0;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Moves the bytes that are not used yet to the start of the buffer. */
static void child_pack(struct buffer *buffer, size_t *over)
{
    if (!*over)
        return;
    memmove(buffer->bytes, buffer->bytes + *over, buffer->size - *over);
    buffer->size -= *over;
    *over = 0;
}

static void fall_silent(struct work_child *child, int *file)
{
    close_one(file);
    if (!child->silent_ns)
        child->silent_ns = truce__clock_monotonic_ns();
}

void work_child_send(struct work_child *child, const struct buffer *text)
{
    child_pack(&child->unsent, &child->sent);
    truce__buffer_append(&child->unsent, text->bytes, text->size);
}

void work_child_close_in(struct work_child *child)
{
    close_one(&child->in);
}

static void child_write_some(struct work_child *child)
{
    while (child->in >= 0 && child->sent < child->unsent.size) {
        ssize_t put =
            write(child->in, child->unsent.bytes + child->sent, child->unsent.size - child->sent);

        if (put < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (put < 0)
            fall_silent(child, &child->in);
        else
            child->sent += (size_t)put;
    }
}

static void read_out(struct work_child *child)
{
    ssize_t got;

    child_pack(&child->unread, &child->taken);
    if (child->unread.size > WORK_LINE_BYTES_MAX)
        return; /* No more bytes are read, because the line is already too long. */
    truce__buffer_reserve(&child->unread, READ_SIZE);
    got = read(child->out, child->unread.bytes + child->unread.size, READ_SIZE);
    if (got > 0)
        child->unread.size += (size_t)got;
    else if (!got || (errno != EAGAIN && errno != EINTR))
        fall_silent(child, &child->out);
}

/* Appends to the end of the standard error that is stored: the last WORK_REASON_MAX bytes. */
static void keep_errors(struct work_child *child, const char *text, size_t size)
{
    size_t kept = child->errors_length;

    if (size > WORK_REASON_MAX) {
        text += size - WORK_REASON_MAX;
        size = WORK_REASON_MAX;
    }
    if (kept > WORK_REASON_MAX - size) {
        size_t over = kept - (WORK_REASON_MAX - size);

        memmove(child->errors, child->errors + over, kept - over);
        kept -= over;
    }
    memcpy(child->errors + kept, text, size);
    child->errors_length = kept + size;
}

static void read_err(struct work_child *child)
{
    char text[4096];
    ssize_t got = read(child->err, text, sizeof text);

    if (got > 0) {
        keep_errors(child, text, (size_t)got);
        fwrite(text, 1, (size_t)got, stderr);
    } else if (!got || (errno != EAGAIN && errno != EINTR)) {
        close_one(&child->err);
    }
}

bool work_child_move(struct work_child *child, int timeout_ms)
{
    bool has_more = child->in >= 0 && child->sent < child->unsent.size;
    struct pollfd files[] = {
        /* Polled also without data to write, to detect that the program has closed its input. */
        {.fd = child->in, .events = has_more ? POLLOUT : 0},
        {.fd = child->unread.size - child->taken > WORK_LINE_BYTES_MAX ? -1 : child->out,
         .events = POLLIN},
        {.fd = child->err, .events = POLLIN},
    };

    if (poll(files, 3, timeout_ms) < 1)
        return false;
    if (files[0].revents & POLLERR)
        fall_silent(child, &child->in);
    else if (files[0].revents)
        child_write_some(child);
    if (files[1].revents)
        read_out(child);
    if (files[2].revents)
        read_err(child);
    return true;
}

bool work_child_line(struct work_child *child, const char **line, size_t *size, bool *too_long)
{
    const char *from = (const char *)child->unread.bytes + child->taken;
    size_t left = child->unread.size - child->taken;
    const char *end = left ? memchr(from, '\n', left) : NULL;

    *line = from;
    *size = end ? (size_t)(end - from) : left;
    *too_long = *size > WORK_LINE_BYTES_MAX;
    if (*too_long || !end)
        return false;
    child->taken += *size + 1;
    return true;
}

bool work_child_has_ended(struct work_child *child)
{
    pid_t found = waitpid(child->pid, &child->state, WNOHANG);

    if (found != child->pid && !(found < 0 && errno == ECHILD))
        return false;
    kill(-child->pid, SIGKILL); /* Ends processes that the program left in its group. */
    return true;
}

/* ---- programs -------------------------------------------------------------------------------- */

#define CHANGES_MAX   (16 * 1024 * 1024)
#define LATER         75
#define VARIABLES     4
#define VARIABLE_SIZE 256

/* A program that works on one job. */
struct attempt {
    struct work *work;
    struct work_job at;
    pid_t child;
    /* Files in memory: the standard input, output, and error of the program. */
    int in, out, err;
    /* The state that waitpid returned. */
    int state;
    /* The time when SIGTERM was sent (monotonic), or 0. */
    int64_t notified_ns;
    /* The worker ends. The program has the grace time to end by itself; after it, SIGTERM is
     * sent. */
    bool abandoned;
};

/* ---- the program ----------------------------------------------------------------------------- */

static void work_words(const struct work *work, char *words[CLI_ARGUMENTS_MAX + 2])
{
    const struct cli *cli = work->cli;

    words[0] = (char *)(uintptr_t)cli_text(cli, "exec");
    memcpy(words + 1, cli->arguments, (size_t)cli->count * sizeof *words);
    words[cli->count + 1] = NULL;
}

static int program_check_file(const char *path)
{
    struct stat about;

    if (stat(path, &about))
        return errno;
    return S_ISREG(about.st_mode) && !access(path, X_OK) ? 0 : EACCES;
}

int work_program_check(const char *program)
{
    const char *path = getenv("PATH");
    int failed = ENOENT;
    size_t size;

    if (strchr(program, '/'))
        return program_check_file(program);
    for (path = path ? path : "/bin:/usr/bin"; *program && failed && path; path += size + 1) {
        char *file;
        int why;

        size = strcspn(path, ":");
        file = bson_strdup_printf("%.*s/%s", size ? (int)size : 1, size ? path : ".", program);
        why = program_check_file(file);
        bson_free(file);
        if (why == 0 || why == EACCES)
            failed = why;
        if (!path[size])
            break;
    }
    return failed;
}

/* Starts a program in a process group of its own, with default signals. `files` become 0, 1, and 2.
 * Returns 0 or errno. */
static int work_spawn(pid_t *child, char **words, char **environment, const int files[3])
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

/* Creates the files in memory, and writes the payload as one line into the first. Returns false on
 * failure. */
static bool open_files(struct attempt *attempt)
{
    bson_t payload;
    char *text;
    size_t length;
    bool good;

    work_payload(&attempt->at, &payload);
    text = bson_as_relaxed_extended_json(&payload, NULL);
    length = text ? strlen(text) : 0;
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

    bson_oid_to_string(&at->id, id);
    snprintf(variables[0], VARIABLE_SIZE, "TRUCE_JOB=%s", id);
    snprintf(variables[1], VARIABLE_SIZE, "TRUCE_QUEUE=%s", at->source->name);
    snprintf(variables[2], VARIABLE_SIZE, "TRUCE_JOB_ATTEMPT=%" PRId64, at->attempt);
    snprintf(variables[3], VARIABLE_SIZE, "TRUCE_JOB_EPOCH=%" PRId64, at->epoch);
}

static bool is_replaced(const char *variable, char variables[VARIABLES][VARIABLE_SIZE])
{
    for (int i = 0; i < VARIABLES; i++) {
        if (!strncmp(variable, variables[i], strcspn(variables[i], "=") + 1))
            return true;
    }
    return false;
}

/* Starts the program with an environment of its own, because all threads share this process's.
 * Returns 0 or errno. */
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

/* ---- while it runs --------------------------------------------------------------------------- */

static void program_signal(struct attempt *attempt, int number)
{
    kill(-attempt->child, number);
}

/* Waits for a slice of time. Returns true if the program has ended. */
static bool program_has_ended(struct attempt *attempt, int64_t slice_ms)
{
    pid_t found = waitpid(attempt->child, &attempt->state, WNOHANG);

    if (found == attempt->child || (found < 0 && errno == ECHILD))
        return true;
    truce__clock_sleep_ms(slice_ms);
    return false;
}

/* Waits for the end of the program, and extends the lease in the meantime. Sends SIGTERM if the job
 * is lost or timed out, or if the worker stops and the grace time is over; SIGKILL follows after
 * the grace time. */
static void wait_for_it(struct attempt *attempt)
{
    int64_t slice_ms = 1, grace_ns = 0;
    bool killed = false;

    while (!program_has_ended(attempt, slice_ms)) {
        work_keep_job(attempt->work, &attempt->at);
        attempt->abandoned = attempt->abandoned || atomic_load(attempt->work->stop);
        /* The program may end by itself within the grace time. */
        if (attempt->abandoned && !grace_ns)
            grace_ns = truce__clock_monotonic_ns();
        if (!attempt->notified_ns &&
            (attempt->at.lost || attempt->at.timed_out ||
             (grace_ns && work_is_over(grace_ns, attempt->work->grace_ms)))) {
            attempt->notified_ns = truce__clock_monotonic_ns();
            program_signal(attempt, SIGTERM);
        } else if (attempt->notified_ns && !killed &&
                   work_is_over(attempt->notified_ns, attempt->work->grace_ms)) {
            killed = true;
            program_signal(attempt, SIGKILL);
        }
        slice_ms = slice_ms < 50 ? slice_ms * 2 : 50;
    }
    program_signal(attempt, SIGKILL); /* Ends processes that the program left in its group. */
}

/* ---- result of a job ------------------------------------------------------------------------- */

/* Returns the first or the last bytes of a file. The caller frees them with bson_free. */
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

/* Parses the output as a document or an array. Returns NULL if it is neither, or empty. The caller
 * destroys it. */
static bson_t *read_output(const char *text, bool *is_array, bson_error_t *error)
{
    struct json_reader reader = {.typed = true};
    /* `borrowed` borrows from the reader. */
    bson_t borrowed, *own = NULL;

    if (!truce__json_read(&reader, text, strlen(text), &borrowed, is_array, error))
        own = bson_copy(&borrowed);
    truce__json_reader_release(&reader);
    return own;
}

static bool program_is_blank(const char *text)
{
    return !text[strspn(text, " \t\r\n")];
}

/* Returns the document that the program printed. If the output is another UTF-8 text, returns
 * {output: text}. If it is blank or not UTF-8, returns {}. The caller destroys the document. */
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

/* Commits the output and the end of the job together (--commit). */
static void end_with_changes(struct attempt *attempt)
{
    char *text = program_text_of(attempt->out, CHANGES_MAX, false);
    bool is_array = program_is_blank(text);
    bson_t *list = is_array ? bson_new() : read_output(text, &is_array, NULL);

    if (list && is_array)
        work_done(attempt->work, &attempt->at, NULL, list);
    else
        work_failed(attempt->work, &attempt->at,
                    "the output of the program is not an array of changes: expected [{\"insert\": "
                    "COLLECTION, \"with\": DOCUMENT}, ...], as for truce commit apply",
                    -1);
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

static char *last_output(int file)
{
    char *text = program_text_of(file, WORK_REASON_MAX, true);
    size_t length = strlen(text);

    while (length && strchr(" \r\n", text[length - 1]))
        text[--length] = '\0';
    return text;
}

/* Returns how the program ended, with the last bytes of its error output. The caller frees it with
 * bson_free. */
static char *program_reason_of(const struct attempt *attempt)
{
    char *errors = last_output(attempt->err), *reason;
    const char *colon;

    /* Some programs write their errors to standard output, so it may be the reason, too. */
    if (!*errors && !attempt->work->commits && attempt->work->output_max) {
        bson_free(errors);
        errors = last_output(attempt->out);
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

/* Ends the job by the exit code, or as lost, timed out, or abandoned. */
static void program_conclude(struct attempt *attempt)
{
    struct work_job *at = &attempt->at;
    bool good = WIFEXITED(attempt->state) && !WEXITSTATUS(attempt->state);
    char *reason;

    if (at->lost) {
        work_lost(attempt->work, at);
    } else if (attempt->abandoned && attempt->notified_ns && !good) {
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

/* ---- jobs, one after the other --------------------------------------------------------------- */

/* Runs a program for the claimed job. If it cannot be started, releases the job and ends the
 * worker. */
static void program_do_job(struct work *work, const struct work_job *at)
{
    struct attempt attempt = {.work = work, .at = *at, .in = -1, .out = -1, .err = -1};
    bson_error_t ignored;
    int failed = open_files(&attempt) ? program_start(&attempt) : ENOMEM;

    /* The program could not be started. The job is released, and the worker ends. */
    if (failed) {
        if (work_snooze(work, at, 0, &ignored))
            cli_note(work->cli, "the job is released when its lease ends: %s", ignored.message);
        work_stop(work, cli_message(work->cli, CLI_USAGE, "cannot run %s: %s",
                                    cli_text(work->cli, "exec"), strerror(failed)));
        bson_destroy(at->job);
    } else {
        wait_for_it(&attempt);
        program_conclude(&attempt);
    }
    close_files(&attempt);
}

void work_by_programs(struct work *work)
{
    uint64_t token = 0;

    while (!atomic_load(work->stop) && !atomic_load(&work->code) && !work_begun_all(work)) {
        struct work_job at;
        bson_error_t error;
        truce_status status = work_claim(work, &at, true, &error);

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

/*
 * A program that stays. Nothing here waits for it but a poll: a program that does not read, does not write, or writes
 * without an end holds up nobody but its own jobs.
 *
 * Its standard error goes on to ours as it comes; the end of it is kept, for the reason of its jobs.
 */
#include "cli/queue/work_child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/limits.h"

#define READ_SIZE 65536

/* ---- its start and its end ------------------------------------------------------------------------ */

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

void work_child_tell(struct work_child *child, int64_t grace_ms)
{
    if (!child->told_ns) {
        child->told_ns = truce__clock_monotonic_ns();
        kill(-child->pid, SIGTERM);
    } else if (!child->killed && work_is_over(child->told_ns, grace_ms)) {
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

/* ---- lines ---------------------------------------------------------------------------------------- */

/* What is over makes room. */
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
        return; /* it is too long already */
    truce__buffer_reserve(&child->unread, READ_SIZE);
    got = read(child->out, child->unread.bytes + child->unread.size, READ_SIZE);
    if (got > 0)
        child->unread.size += (size_t)got;
    else if (!got || (errno != EAGAIN && errno != EINTR))
        fall_silent(child, &child->out);
}

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
        {.fd = child->in, .events = has_more ? POLLOUT : 0}, /* also: nobody reads it any more */
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
    kill(-child->pid, SIGKILL); /* what it left behind in its group */
    return true;
}

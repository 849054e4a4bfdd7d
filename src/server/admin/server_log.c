#include "server/admin/server_log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "bson/date.h"
#include "bson/json.h"

#define UNKNOWN "\xef\xbf\xbd" /* U+FFFD, which replaces a byte that is not valid UTF-8. */
#define PLAIN                                                                                      \
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"                               \
    "._:/@+$-"

struct log {
    struct log_options options;
    /* Guards the fields below. */
    pthread_mutex_t mutex;
    int file;
    /* The path of a log file; NULL means that the log writes to the descriptor of the options. */
    char *path;
    bool renames;
    struct buffer line;
    /* The number of lines that could not be written since the last successful one, and of all
     * lines. */
    int64_t lost, all;
    /* The last lines: line n is at n % LOG_KEPT_MAX. */
    char *kept[LOG_KEPT_MAX];
};

struct log *log_new(const struct log_options *options)
{
    struct log *log = bson_malloc0(sizeof *log);

    log->options = *options;
    log->file = options->file;
    pthread_mutex_init(&log->mutex, NULL);
    return log;
}

void log_free(struct log *log)
{
    if (!log)
        return;
    for (int i = 0; i < LOG_KEPT_MAX; i++)
        bson_free(log->kept[i]);
    truce__buffer_release(&log->line);
    pthread_mutex_destroy(&log->mutex);
    if (log->path)
        close(log->file);
    bson_free(log->path);
    bson_free(log);
}

/* ---- a file of its own ----------------------------------------------------------------------- */

static bool log_file_is_text(int file)
{
    char start[512];
    ssize_t size = pread(file, start, sizeof start, 0);

    return size >= 0 && !memchr(start, 0, (size_t)size);
}

/* Opens or creates the file of the log for appending. Refuses files that could be something else,
 * such as a store. */
static truce_status log_file_open(const char *path, int *file, bson_error_t *error)
{
    int made = open(
        path, O_RDWR | O_APPEND | O_CREAT | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC, 0600);
    struct stat facts;
    const char *wrong = NULL;

    *file = -1;
    if (made < 0 && errno == ELOOP)
        return truce__refuse(CODE_FILE_NOT_OPEN, error,
                             "the log %s is a symbolic link: name the file itself", path);
    if (made < 0)
        return truce__refuse(CODE_FILE_NOT_OPEN, error, "the log %s cannot be opened: %m", path);
    if (fstat(made, &facts) || !S_ISREG(facts.st_mode))
        wrong = "is not a regular file";
    else if (facts.st_nlink > 1)
        wrong = "has several names (hard links)";
    else if (!log_file_is_text(made))
        wrong = "is not a log: it has zero bytes";
    if (wrong) {
        close(made);
        return truce__refuse(CODE_FILE_NOT_OPEN, error, "the log %s %s", path, wrong);
    }
    *file = made;
    return TRUCE_OK;
}

/* Renames the log to PATH.DATE, with the date and time in UTC. Fails if a file of that name exists.
 * A log that does not exist is not an error. */
static truce_status log_file_move(const char *path, int64_t now_ms, bson_error_t *error)
{
    time_t now = (time_t)(now_ms / 1000);
    char stamp[32], *target;
    truce_status status = TRUCE_OK;
    struct tm date;

    gmtime_r(&now, &date);
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H-%M-%S", &date);
    target = bson_strdup_printf("%s.%s", path, stamp);
    if (!access(target, F_OK))
        status = truce__refuse(CODE_FILE_RENAME_FAILED, error, "cannot rename the log: %s exists",
                               target);
    else if (rename(path, target) && errno != ENOENT)
        status = truce__refuse(CODE_FILE_RENAME_FAILED, error, "cannot rename the log to %s: %m",
                               target);
    bson_free(target);
    return status;
}

truce_status log_to_file(struct log *log, const char *path, bool renames, bson_error_t *error)
{
    int file;
    truce_status status = log_file_open(path, &file, error);

    if (status)
        return status;
    pthread_mutex_lock(&log->mutex);
    truce_assert(!log->path);
    log->file = file;
    log->path = bson_strdup(path);
    log->renames = renames;
    pthread_mutex_unlock(&log->mutex);
    return TRUCE_OK;
}

truce_status log_rotate(struct log *log, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    int file;

    if (!log || !log->path)
        return TRUCE_OK;
    pthread_mutex_lock(&log->mutex);
    if (log->renames)
        status = log_file_move(log->path, truce__clock_wall_ms(), error);
    if (!status)
        status = log_file_open(log->path, &file, error);
    if (!status) {
        close(log->file);
        log->file = file;
    }
    pthread_mutex_unlock(&log->mutex);
    if (status)
        log_write(log, TRUCE_LOG_ERROR, LOG_SERVER, 0, "log rotation failed", NULL);
    else
        log_write(log, TRUCE_LOG_INFO, LOG_SERVER, 0, "log rotated", NULL);
    return status;
}

/* ---- values ---------------------------------------------------------------------------------- */

static void log_put(struct buffer *out, const char *text)
{
    truce__buffer_append(out, text, strlen(text));
}

/* Returns the size of the first character. Sets *good to false and returns 1 if its bytes are
 * invalid. */
static size_t log_character_size(const char *text, size_t left, bool *good)
{
    for (size_t size = 1; size <= 4 && size <= left; size++)
        if (truce__utf8_check(text, size) == size) {
            *good = true;
            return size;
        }
    *good = false;
    return 1;
}

/* Appends the text in quotes, cut to the maximum. */
static void put_quoted(struct buffer *out, const char *text, size_t length)
{
    struct buffer one = {0};
    size_t begin = out->size;

    log_put(out, "\"");
    for (size_t at = 0, size; at < length; at += size) {
        bool good;

        size = log_character_size(text + at, length - at, &good);
        one.size = 0;
        truce__json_write_text(&one, good ? text + at : UNKNOWN, good ? size : strlen(UNKNOWN));
        if (out->size - begin + one.size - 2 > LOG_TEXT_MAX) {
            log_put(out, "...");
            break;
        }
        /* The JSON string without its quotes. */
        truce__buffer_append(out, one.bytes + 1, one.size - 2);
    }
    log_put(out, "\"");
    truce__buffer_release(&one);
}

/* Appends the value of a field. In a text line, a short string of plain characters has no
 * quotes. */
static void put_value(struct buffer *out, const bson_iter_t *at, bool json)
{
    uint32_t length;
    const char *text;

    if (!BSON_ITER_HOLDS_UTF8(at)) {
        truce__json_write_value(out, at, JSON_RELAXED);
        return;
    }
    text = bson_iter_utf8(at, &length);
    if (json || !length || length > LOG_TEXT_MAX || strspn(text, PLAIN) != length)
        put_quoted(out, text, length);
    else
        log_put(out, text);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static const char *const levels[] = {
    [TRUCE_LOG_ERROR] = "error", [TRUCE_LOG_WARNING] = "warning", [TRUCE_LOG_INFO] = "info"};
static const char *const parts[] = {
    [LOG_SERVER] = "server",   [LOG_NETWORK] = "network", [LOG_ACCESS] = "access",
    [LOG_COMMAND] = "command", [LOG_SWEEP] = "sweep",     [LOG_STORE] = "store"};

struct event {
    truce_log_level level;
    enum log_part part;
    int32_t connection;
    const char *message;
    const bson_t *fields;
};

/* Writes an event as a line of JSON. */
static void log_write_json(struct buffer *out, const char *time, const struct event *event)
{
    char head[200];
    bson_iter_t at;
    bool first = true;

    snprintf(head, sizeof head, "{\"time\": \"%s\", \"level\": \"%s\", \"component\": \"%s\", ",
             time, levels[event->level], parts[event->part]);
    log_put(out, head);
    if (event->connection) {
        snprintf(head, sizeof head, "\"connection\": %d, ", event->connection);
        log_put(out, head);
    }
    log_put(out, "\"message\": \"");
    log_put(out, event->message);
    log_put(out, "\", \"fields\": {");
    for (bool more = event->fields && bson_iter_init(&at, event->fields) && bson_iter_next(&at);
         more; more = bson_iter_next(&at), first = false) {
        log_put(out, first ? "\"" : ", \"");
        log_put(out, bson_iter_key(&at));
        log_put(out, "\": ");
        put_value(out, &at, true);
    }
    log_put(out, "}}\n");
}

/* Writes an event as a line of text. */
static void log_write_text(struct buffer *out, const char *time, const struct event *event)
{
    char head[200];
    bson_iter_t at;

    snprintf(head, sizeof head, "%s %s %s ", time, levels[event->level], parts[event->part]);
    log_put(out, head);
    if (event->connection) {
        snprintf(head, sizeof head, "conn%d ", event->connection);
        log_put(out, head);
    }
    log_put(out, event->message);
    for (bool more = event->fields && bson_iter_init(&at, event->fields) && bson_iter_next(&at);
         more; more = bson_iter_next(&at)) {
        log_put(out, " ");
        log_put(out, bson_iter_key(&at));
        log_put(out, "=");
        put_value(out, &at, false);
    }
    log_put(out, "\n");
}

static void log_keep_line(struct log *log)
{
    char **slot = &log->kept[log->all++ % LOG_KEPT_MAX];

    bson_free(*slot);
    *slot = bson_strndup((const char *)log->line.bytes, log->line.size - 1);
}

void log_append(struct log *log, bson_t *array, int64_t *all)
{
    char buffer[16];
    const char *key;

    *all = 0;
    if (!log)
        return;
    pthread_mutex_lock(&log->mutex);
    *all = log->all;
    for (int64_t first = *all > LOG_KEPT_MAX ? *all - LOG_KEPT_MAX : 0, i = first; i < *all; i++) {
        bson_uint32_to_string((uint32_t)(i - first), &key, buffer, sizeof buffer);
        BSON_APPEND_UTF8(array, key, log->kept[i % LOG_KEPT_MAX]);
    }
    pthread_mutex_unlock(&log->mutex);
}

/* Writes a line without waiting. Returns false if it cannot be written now. With `keeps`, the line
 * is also kept for getLog. */
static bool write_out(struct log *log, const struct event *event, bool keeps)
{
    struct pollfd polled = {.fd = log->file, .events = POLLOUT};
    char time[DATE_TEXT_MAX];
    ssize_t written;

    truce__date_show(truce__clock_wall_ms(), time);
    log->line.size = 0;
    (log->options.json ? log_write_json : log_write_text)(&log->line, time, event);
    truce_assert(log->line.size <= LOG_LINE_MAX);
    if (keeps)
        log_keep_line(log);
    if (poll(&polled, 1, 0) != 1 || !(polled.revents & POLLOUT))
        return false;
    do
        written = write(log->file, log->line.bytes, log->line.size);
    while (written < 0 && errno == EINTR);
    return written == (ssize_t)log->line.size;
}

static void log_write_lost(struct log *log)
{
    bson_t *count = BCON_NEW("lines", BCON_INT64(log->lost));
    const struct event lost = {TRUCE_LOG_WARNING, LOG_SERVER, 0, "lines of this log were lost",
                               count};

    /* The line that cannot be written stays in memory for getLog. */
    if (write_out(log, &lost, false))
        log->lost = 0;
    bson_destroy(count);
}

void log_write(struct log *log, truce_log_level level, enum log_part part, int32_t connection,
               const char *message, const bson_t *fields)
{
    const struct event event = {level, part, connection, message, fields};

    if (!log || (log->options.quiet && part == LOG_NETWORK && level == TRUCE_LOG_INFO))
        return;
    pthread_mutex_lock(&log->mutex);
    if (log->lost)
        log_write_lost(log);
    if (!write_out(log, &event, true))
        log->lost++;
    pthread_mutex_unlock(&log->mutex);
}

void log_write_store(truce_log_level level, const char *message, void *log)
{
    bson_t *fields = BCON_NEW("text", BCON_UTF8(message));

    log_write(log, level, LOG_STORE, 0, "store event", fields);
    bson_destroy(fields);
}

/* The reject file (ndjson.h). */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/core/ndjson.h"

/* The first bytes of a reject file. */
#define FIRST "{\"line\": "

static bool is_reject_file(const char *path)
{
    char begin[sizeof FIRST] = "";
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t got = file < 0 ? -1 : read(file, begin, sizeof FIRST - 1);

    if (file >= 0)
        close(file);
    return !got || (got > 0 && !strcmp(begin, FIRST));
}

/* Checks that the folder of the file exists. Otherwise the import would fail at its first rejected
 * line. */
static truce_status check_folder(const char *path, bson_error_t *error)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? bson_strndup(path, (size_t)(slash - path + 1)) : bson_strdup(".");
    bool there = *path && !access(folder, F_OK);

    bson_free(folder);
    return there
               ? TRUCE_OK
               : truce__fail(TRUCE_INVALID, error,
                             "the reject file \"%s\" cannot be created: its folder does not exist; "
                             "name another with --rejects",
                             path);
}

truce_status cli_rejects_check(const struct rejects *rejects, bson_error_t *error)
{
    struct stat about;

    if (!strcmp(rejects->path, "-"))
        return truce__fail(
            TRUCE_INVALID, error,
            "rejected lines cannot go to \"-\" (standard output): name a file with --rejects");
    if (stat(rejects->path, &about))
        return check_folder(rejects->path, error);
    if (S_ISDIR(about.st_mode))
        return truce__fail(TRUCE_INVALID, error,
                           "%s is a directory: name a file for rejected lines with --rejects",
                           rejects->path);
    if (S_ISREG(about.st_mode) && !is_reject_file(rejects->path))
        return truce__fail(TRUCE_INVALID, error,
                           "%s exists and is not a file of rejected lines: name another with "
                           "--rejects",
                           rejects->path);
    return TRUCE_OK;
}

/* Removes the reject file of an earlier import. A device or a pipe stays, because it has no earlier
 * lines. */
void cli_rejects_begin(const struct rejects *rejects)
{
    struct stat about;

    if (!stat(rejects->path, &about) && S_ISREG(about.st_mode))
        (void)unlink(rejects->path);
}

static truce_status open_rejects(struct rejects *rejects, bson_error_t *error)
{
    if (rejects->file >= 0)
        return TRUCE_OK;
    rejects->file = open(rejects->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (rejects->file < 0)
        return truce__fail(TRUCE_IO, error, "cannot write the reject file %s: %s", rejects->path,
                           strerror(errno));
    return TRUCE_OK;
}

/* Returns the length of the text cut to NDJSON_TEXT_MAX bytes, not inside a character. */
static size_t cut_length(const char *text, size_t size)
{
    size_t length = NDJSON_TEXT_MAX;

    if (size <= length)
        return size;
    while (length > NDJSON_TEXT_MAX - 4 && ((unsigned char)text[length] & 0xc0) == 0x80)
        length--;
    return length;
}

/* Makes the line of the reject file: the text, or its bytes if they are not UTF-8, cut to the
 * maximum length. */
static void rejects_describe(bson_t *document, int64_t line, const char *reason, const char *text,
                             size_t size)
{
    size_t length = cut_length(text, size);

    BSON_APPEND_INT64(document, "line", line);
    BSON_APPEND_UTF8(document, "reason", reason);
    if (truce__utf8_check(text, length) == length)
        bson_append_utf8(document, "text", -1, text, (int)length);
    else
        BSON_APPEND_BINARY(document, "bytes", BSON_SUBTYPE_BINARY, (const uint8_t *)text,
                           (uint32_t)length);
    if (length < size)
        BSON_APPEND_BOOL(document, "cut", true);
}

truce_status cli_reject(struct rejects *rejects, int64_t line, const char *reason, const char *text,
                        size_t size, bson_error_t *error)
{
    bson_t document = BSON_INITIALIZER;
    struct buffer out = {0};
    truce_status status = open_rejects(rejects, error);

    rejects->count++;
    if (!status) {
        rejects_describe(&document, line, reason, text, size);
        truce__json_write(&out, &document, false, JSON_RELAXED);
        truce__buffer_append_byte(&out, '\n');
        if (write(rejects->file, out.bytes, out.size) != (ssize_t)out.size)
            status = truce__fail(TRUCE_IO, error, "cannot write the reject file %s: %s",
                                 rejects->path, strerror(errno));
    }
    truce__buffer_release(&out);
    bson_destroy(&document);
    return status;
}

truce_status cli_rejects_close(struct rejects *rejects, bson_error_t *error)
{
    int file = rejects->file;

    rejects->file = -1;
    if (file >= 0 && close(file) != 0)
        return truce__fail(TRUCE_IO, error, "cannot write the reject file %s: %s", rejects->path,
                           strerror(errno));
    return TRUCE_OK;
}

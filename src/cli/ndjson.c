/*
 * NDJSON in. A window of the input is held in one buffer:
 *
 *     | used up | the line that was returned | read, not looked at yet | room |
 *               ^ line                       ^ next                    ^ filled
 *
 * The used part is given up when room is needed, so memory is a chunk, or the longest line if that
 * is more. A line over the maximum is cut, and its rest is read and thrown away.
 */
#include "cli/ndjson.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"

#define CHUNK         (256 * 1024)
#define REASON_LENGTH 600

struct ndjson {
    int file;
    char *path;
    int64_t size;   /* of a regular file, else 0 */
    int64_t offset; /* in the input, of bytes[next] */
    int64_t number; /* of the line that was returned last */
    struct buffer window;
    size_t next, filled;
    bool at_end;
    struct json_reader reader;
    char reason[REASON_LENGTH];
};

struct ndjson *cli_ndjson_open(const char *path, bson_error_t *error)
{
    bool standard = !strcmp(path, "-");
    int file = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    struct ndjson *input;
    struct stat about;

    if (file < 0 || fstat(file, &about) != 0) {
        (void)truce__fail(TRUCE_IO, error, "%s cannot be read: %s", path, strerror(errno));
        return NULL;
    }
    if (S_ISDIR(about.st_mode)) {
        (void)truce__fail(TRUCE_IO, error, "%s is a directory, not a file of NDJSON", path);
        if (!standard)
            close(file);
        return NULL;
    }
    input = bson_malloc0(sizeof *input);
    truce__buffer_reserve(&input->window, CHUNK);
    input->file = file;
    input->path = bson_strdup(standard ? "standard input" : path);
    input->size = S_ISREG(about.st_mode) && !standard ? (int64_t)about.st_size : 0;
    return input;
}

void cli_ndjson_close(struct ndjson *input)
{
    if (!input)
        return;
    if (input->file != STDIN_FILENO)
        close(input->file);
    truce__buffer_release(&input->window);
    truce__json_reader_release(&input->reader);
    bson_free(input->path);
    bson_free(input);
}

int64_t cli_ndjson_size(const struct ndjson *input)
{
    return input->size;
}

truce_status cli_ndjson_seek(struct ndjson *input, int64_t offset, int64_t number,
                             bson_error_t *error)
{
    if (offset < 0 || offset > input->size || lseek(input->file, (off_t)offset, SEEK_SET) < 0)
        return truce__fail(TRUCE_IO, error, "%s has no byte %" PRId64 " to go on at", input->path,
                           offset);
    input->offset = offset;
    input->number = number - 1;
    input->next = input->filled = 0;
    input->at_end = false;
    return TRUCE_OK;
}

/* Reads one chunk more behind what is there; sets at_end if there is none. */
static truce_status fill(struct ndjson *input, bson_error_t *error)
{
    ssize_t got;

    if (input->next > 0) {
        memmove(input->window.bytes, input->window.bytes + input->next,
                input->filled - input->next);
        input->filled -= input->next;
        input->next = 0;
    }
    input->window.size = input->filled;
    truce__buffer_reserve(&input->window, CHUNK);
    do {
        got = read(input->file, input->window.bytes + input->filled, CHUNK);
    } while (got < 0 && errno == EINTR);
    if (got < 0)
        return truce__fail(TRUCE_IO, error, "%s cannot be read: %s", input->path, strerror(errno));
    input->at_end = got == 0;
    input->filled += (size_t)got;
    return TRUCE_OK;
}

truce_status cli_text_file(const char *path, char **text, bson_error_t *error)
{
    struct ndjson *input = cli_ndjson_open(path, error);
    truce_status status = input ? TRUCE_OK : TRUCE_IO;

    *text = NULL;
    while (!status && !input->at_end && input->filled <= NDJSON_LINE_MAX)
        status = fill(input, error);
    if (!status && !input->at_end)
        status = truce__fail(TRUCE_LIMIT, error, "%s is longer than %d bytes", input->path,
                             NDJSON_LINE_MAX);
    if (!status && memchr(input->window.bytes, '\0', input->filled))
        status = truce__fail(TRUCE_INVALID, error, "%s is no text: it has a NUL byte", input->path);
    if (!status)
        *text = bson_strndup((const char *)input->window.bytes, input->filled);
    cli_ndjson_close(input);
    return status;
}

/* Finds the end of the line that starts at `next`: how much of it is in the window, how long it is,
 * and whether a newline ends it. Of a line over the maximum only the start and the end are kept. */
static truce_status find_end(struct ndjson *input, size_t *length, int64_t *whole, bool *newline,
                             bson_error_t *error)
{
    size_t looked = 0;
    int64_t dropped = 0;
    truce_status status;

    for (;;) {
        const uint8_t *start = input->window.bytes + input->next;
        size_t have = input->filled - input->next;
        const uint8_t *found = have > looked ? memchr(start + looked, '\n', have - looked) : NULL;

        if (found || input->at_end) {
            *length = found ? (size_t)(found - start) : have;
            *whole = dropped + (int64_t)*length;
            *newline = found != NULL;
            return TRUCE_OK;
        }
        looked = have;
        if (have > NDJSON_LINE_MAX) {
            dropped += (int64_t)(have - NDJSON_TEXT_MAX);
            input->filled -= have - NDJSON_TEXT_MAX;
            looked = NDJSON_TEXT_MAX;
        }
        status = fill(input, error);
        if (status)
            return status;
    }
}

static bool is_blank(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r')
            return false;
    }
    return true;
}

static const char *check_text(struct ndjson *input, const struct ndjson_line *line, int64_t whole)
{
    size_t good;

    if (whole > NDJSON_LINE_MAX) {
        snprintf(input->reason, sizeof input->reason,
                 "the line is %" PRId64 " bytes long, more than %d", whole, NDJSON_LINE_MAX);
        return input->reason;
    }
    good = truce__utf8_check(line->text, line->size);
    if (good == line->size)
        return NULL;
    snprintf(input->reason, sizeof input->reason, "column %zu: byte 0x%02x is not UTF-8", good + 1,
             (unsigned)(unsigned char)line->text[good]);
    return input->reason;
}

truce_status cli_ndjson_next(struct ndjson *input, struct ndjson_line *line, bson_error_t *error)
{
    *line = (struct ndjson_line){0};
    for (;;) {
        size_t length, had;
        int64_t whole;
        bool newline;
        truce_status status = find_end(input, &length, &whole, &newline, error);

        if (status)
            return status;
        had = input->filled - input->next;
        if (!had && !newline)
            return TRUCE_OK;
        line->number = ++input->number;
        line->offset = input->offset;
        line->text = (const char *)input->window.bytes + input->next;
        line->size = whole > NDJSON_LINE_MAX ? NDJSON_TEXT_MAX : length;
        input->offset += whole + newline;
        line->end = input->offset;
        input->next += length + newline;
        if (line->number == 1 && line->size >= 3 && !memcmp(line->text, "\xef\xbb\xbf", 3)) {
            line->text += 3; /* a byte order mark */
            line->size -= 3;
        }
        if (is_blank(line->text, line->size) && whole <= NDJSON_LINE_MAX)
            continue;
        line->wrong = check_text(input, line, whole);
        return TRUCE_OK;
    }
}

const char *cli_ndjson_document(struct ndjson *input, const struct ndjson_line *line,
                                bson_t *document)
{
    bson_error_t error;

    truce_assert(line->text != NULL);
    if (line->wrong) {
        bson_init(document);
        return line->wrong;
    }
    if (!truce__json_read(&input->reader, line->text, line->size, document, NULL, &error))
        return NULL;
    snprintf(input->reason, sizeof input->reason, "%s", error.message);
    return input->reason;
}

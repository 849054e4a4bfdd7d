/*
 * Reads documents. A window of the input is held in one buffer:
 *
 *     | used up | the line that was returned | read, not examined yet | room |
 *               ^ line                       ^ next                   ^ filled
 *
 * The used part is overwritten when room is needed. Memory is therefore one chunk, or the longest
 * line if that is longer. A line over the maximum is cut, and its rest is read and discarded. An
 * array element or a CSV record over the maximum ends the reading: most likely, a quote or a
 * bracket is not closed. The start of the next element is then unknown.
 */
#include "cli/core/ndjson.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "cli/core/csv.h"

#define CHUNK         (256 * 1024)
#define REASON_LENGTH 600

struct ndjson {
    int file;
    char *path;
    /* The size of a regular file, otherwise 0. */
    int64_t size;
    /* The offset of bytes[next] in the input. */
    int64_t offset;
    /* The number of the line that was returned last. */
    int64_t number;
    /* The row of bytes[next]. Only for arrays and CSV. */
    int64_t row;
    enum ndjson_form form;
    /* For an array: its "[" was read, an element was read, its "]" was read. */
    bool opened, between, closed;
    /* The rest of the input cannot be read. */
    bool ended;
    struct csv *csv;
    /* For CSV: the separator, or 0 before it is known. */
    char separator;
    /* For CSV: the offset and the row after the header. */
    int64_t body, body_row;
    /* The window, as in the picture above. */
    struct buffer window;
    size_t next, filled;
    /* read(2) has reported the end of the input. */
    bool at_end;
    struct json_reader reader;
    /* The fault of the last line, if line->wrong points to it. */
    char reason[REASON_LENGTH];
};

struct ndjson *cli_ndjson_open(const char *path, bson_error_t *error)
{
    bool standard = !strcmp(path, "-");
    int file = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    struct ndjson *input;
    struct stat about;

    if (file < 0 || fstat(file, &about) != 0) {
        (void)truce__fail(TRUCE_IO, error, "cannot read %s: %s", path, strerror(errno));
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
    cli_csv_free(input->csv);
    bson_free(input->path);
    bson_free(input);
}

int64_t cli_ndjson_size(const struct ndjson *input)
{
    return input->size;
}

truce_status cli_ndjson_seek(struct ndjson *input, int64_t offset, int64_t number, int64_t row,
                             bson_error_t *error)
{
    if (!offset && input->form == NDJSON_CSV) {
        offset = input->body;
        row = input->body_row;
    }
    if (offset < 0 || offset > input->size || lseek(input->file, (off_t)offset, SEEK_SET) < 0)
        return truce__fail(TRUCE_IO, error,
                           "cannot resume %s at byte %" PRId64
                           ": the file has become shorter; --again starts at its first line",
                           input->path, offset);
    input->offset = offset;
    input->number = number - 1;
    input->row = row;
    input->opened = input->between = offset > 0;
    input->closed = offset == input->size;
    input->ended = false;
    input->next = input->filled = 0;
    input->at_end = false;
    return TRUCE_OK;
}

/* Reads one more chunk. Sets at_end at the end of the input. */
static truce_status ndjson_fill(struct ndjson *input, bson_error_t *error)
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
        return truce__fail(TRUCE_IO, error, "cannot read %s: %s", input->path, strerror(errno));
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
        status = ndjson_fill(input, error);
    if (!status && !input->at_end)
        status = truce__fail(TRUCE_LIMIT, error, "%s is longer than %d bytes", input->path,
                             NDJSON_LINE_MAX);
    if (!status && memchr(input->window.bytes, '\0', input->filled))
        status =
            truce__fail(TRUCE_INVALID, error, "%s is not text: it has a NUL byte", input->path);
    if (!status)
        *text = bson_strndup((const char *)input->window.bytes, input->filled);
    cli_ndjson_close(input);
    return status;
}

/* Finds the end of the line that starts at `next`: its length in the window, its whole length, and
 * whether a newline ends it. If a line exceeds the maximum, only its start and end are kept. */
static truce_status ndjson_find_end(struct ndjson *input, size_t *length, int64_t *whole,
                                    bool *newline, bson_error_t *error)
{
    size_t scanned = 0;
    int64_t dropped = 0;
    truce_status status;

    for (;;) {
        const uint8_t *start = input->window.bytes + input->next;
        size_t have = input->filled - input->next;
        const uint8_t *found =
            have > scanned ? memchr(start + scanned, '\n', have - scanned) : NULL;

        if (found || input->at_end) {
            *length = found ? (size_t)(found - start) : have;
            *whole = dropped + (int64_t)*length;
            *newline = found != NULL;
            return TRUCE_OK;
        }
        scanned = have;
        if (have > NDJSON_LINE_MAX) {
            dropped += (int64_t)(have - NDJSON_TEXT_MAX);
            input->filled -= have - NDJSON_TEXT_MAX;
            scanned = NDJSON_TEXT_MAX;
        }
        status = ndjson_fill(input, error);
        if (status)
            return status;
    }
}

static bool ndjson_is_blank(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r')
            return false;
    }
    return true;
}

/* Returns NULL, or the fault of the line: it is too long, or not UTF-8. The text is in
 * input->reason. */
static const char *ndjson_check_text(struct ndjson *input, const struct ndjson_line *line,
                                     int64_t whole)
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

/* Returns the next line that is not blank, with its fault if it is too long or not UTF-8. At the
 * end, line->text stays NULL. */
static truce_status next_line(struct ndjson *input, struct ndjson_line *line, bson_error_t *error)
{
    for (;;) {
        size_t length, had;
        int64_t whole;
        bool newline;
        truce_status status = ndjson_find_end(input, &length, &whole, &newline, error);

        if (status)
            return status;
        had = input->filled - input->next;
        if (!had && !newline) {
            line->text = NULL; /* A blank line may have set it. */
            return TRUCE_OK;
        }
        line->number = line->row = ++input->number;
        line->row_end = line->number + 1;
        line->offset = input->offset;
        line->text = (const char *)input->window.bytes + input->next;
        line->size = whole > NDJSON_LINE_MAX ? NDJSON_TEXT_MAX : length;
        input->offset += whole + newline;
        line->end = input->offset;
        line->unfinished = !newline;
        input->next += length + newline;
        if (line->number == 1 && line->size >= 3 && !memcmp(line->text, "\xef\xbb\xbf", 3)) {
            line->text += 3; /* The line begins with a byte order mark. */
            line->size -= 3;
        }
        if (ndjson_is_blank(line->text, line->size) && whole <= NDJSON_LINE_MAX)
            continue;
        line->wrong = ndjson_check_text(input, line, whole);
        return TRUCE_OK;
    }
}

/* ---- arrays and records --------------------------------------------------------------------- */

/* Advances `next` over bytes of the window. */
static void ndjson_consume(struct ndjson *input, size_t size)
{
    const uint8_t *at = input->window.bytes + input->next, *end = at + size;

    input->next += size;
    input->offset += (int64_t)size;
    for (; at < end; at++) /* Counts rows. A CR ends a row unless an LF follows. */
        input->row += *at == '\n' || (*at == '\r' && at + 1 < end && at[1] != '\n') ||
                      (*at == '\r' && at + 1 == end && input->form == NDJSON_CSV);
}

/* Makes sure that there is a byte at `next`, unless the input ends. */
static truce_status need_byte(struct ndjson *input, bool *there, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    while (!status && input->next == input->filled && !input->at_end)
        status = ndjson_fill(input, error);
    *there = !status && input->next < input->filled;
    return status;
}

/* Finds the next byte that is not white space; 0 at the end of the input. */
static truce_status ndjson_skip_space(struct ndjson *input, char *found, bson_error_t *error)
{
    bool there;
    truce_status status;

    *found = '\0';
    for (;;) {
        status = need_byte(input, &there, error);
        if (status || !there)
            return status;
        *found = (char)input->window.bytes[input->next];
        if (*found != ' ' && *found != '\t' && *found != '\r' && *found != '\n')
            return TRUCE_OK;
        ndjson_consume(input, 1);
    }
}

static truce_status skip_mark(struct ndjson *input, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    while (!status && input->filled < 3 && !input->at_end)
        status = ndjson_fill(input, error);
    if (!status && !input->offset && input->filled >= 3 &&
        !memcmp(input->window.bytes, "\xef\xbb\xbf", 3))
        ndjson_consume(input, 3);
    return status;
}

/* Returns the `size` bytes at `next` as the line. */
static void ndjson_take(struct ndjson *input, struct ndjson_line *line, size_t size)
{
    line->text = (const char *)input->window.bytes + input->next;
    line->size = size;
    line->number = ++input->number;
    line->row = input->row;
    line->offset = input->offset;
    ndjson_consume(input, size);
    line->row_end = input->row;
    line->end = input->offset;
}

static truce_status too_long(const struct ndjson *input, const char *what, const char *why,
                             bson_error_t *error)
{
    return truce__fail(TRUCE_LIMIT, error,
                       "%s: the %s that begins on line %" PRId64
                       " is longer than %d bytes; perhaps %s is not closed",
                       input->path, what, input->row, NDJSON_LINE_MAX, why);
}

struct element_scan {
    /* The number of bytes of the element that were examined, and the number of brackets that are
     * open after them. */
    size_t scanned;
    int64_t depth;
    /* The scan is in a string, or after a backslash in it. */
    bool text, escaped;
};

/* Returns true if the element ends within the text, at a comma or a bracket. scan->scanned is then
 * its length. */
static bool find_element_end(const uint8_t *text, size_t size, struct element_scan *scan)
{
    for (; scan->scanned < size; scan->scanned++) {
        uint8_t c = text[scan->scanned];

        if (scan->text) {
            scan->text = c != '"' || scan->escaped;
            scan->escaped = c == '\\' && !scan->escaped;
        } else if (!scan->depth && (c == ',' || c == ']')) {
            return true;
        } else {
            scan->text = c == '"';
            scan->depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        }
    }
    return false;
}

/* Returns the element that begins at `next`, after reading until its end is in the window. */
static truce_status ndjson_take_element(struct ndjson *input, struct ndjson_line *line,
                                        bson_error_t *error)
{
    struct element_scan scan = {0};

    while (
        !find_element_end(input->window.bytes + input->next, input->filled - input->next, &scan) &&
        !input->at_end) {
        truce_status status = scan.scanned > NDJSON_LINE_MAX
                                  ? too_long(input, "document", "a quote or a bracket", error)
                                  : ndjson_fill(input, error);

        if (status)
            return status;
    }
    input->between = true;
    ndjson_take(input, line, scan.scanned);
    input->ended = input->next == input->filled && (scan.text || scan.depth);
    if (input->ended)
        line->wrong = "the text ends before the array does";
    else if (ndjson_is_blank(line->text, line->size))
        line->wrong = "a document is missing next to a comma";
    else
        line->wrong = ndjson_check_text(input, line, (int64_t)line->size);
    return TRUCE_OK;
}

/* Checks that nothing follows the array. */
static truce_status end_of_array(struct ndjson *input, struct ndjson_line *line,
                                 bson_error_t *error)
{
    char next;
    truce_status status = ndjson_skip_space(input, &next, error);

    if (status || input->next == input->filled)
        return status;
    ndjson_take(input, line, input->filled - input->next);
    line->wrong = "unexpected text after the array";
    input->ended = true;
    return TRUCE_OK;
}

/* Returns the next element. A fault of the array itself, such as a missing ], is returned once, as
 * a wrong line. */
static truce_status ndjson_next_element(struct ndjson *input, struct ndjson_line *line,
                                        bson_error_t *error)
{
    bool first = !input->opened;
    truce_status status = TRUCE_OK;
    char next;

    if (input->ended)
        return TRUCE_OK;
    if (first) {
        status = skip_mark(input, error);
        if (!status)
            status = ndjson_skip_space(input, &next, error);
        if (status)
            return status;
        ndjson_consume(input, 1); /* Skips the "[" that cli_ndjson_detect has found. */
        input->opened = true;
    }
    if (!input->closed) {
        status = ndjson_skip_space(input, &next, error);
        if (status)
            return status;
        if (input->next == input->filled) {
            ndjson_take(input, line, 0);
            line->wrong = "the array is not closed by ]";
            input->ended = true;
            return TRUCE_OK;
        }
        input->closed = next == ']' && (first || input->between);
        if (input->closed || input->between)
            ndjson_consume(input, 1);
    }
    if (input->closed)
        return end_of_array(input, line, error);
    input->between = false;
    status = ndjson_skip_space(input, &next, error);
    return status ? status : ndjson_take_element(input, line, error);
}

/* Returns the next record that is not empty. */
static truce_status next_record(struct ndjson *input, struct ndjson_line *line, bson_error_t *error)
{
    struct csv_scan scan = {.separator = input->separator};
    truce_status status = input->offset ? TRUCE_OK : skip_mark(input, error);

    while (!status) {
        const char *text = (const char *)input->window.bytes + input->next;
        bool ended = cli_csv_end(text, input->filled - input->next, &scan);

        if (!ended && !input->at_end) {
            status = scan.scanned > NDJSON_LINE_MAX ? too_long(input, "record", "a quote", error)
                                                    : ndjson_fill(input, error);
            continue;
        }
        if (!scan.scanned)
            return TRUCE_OK;
        if (scan.scanned <= 2 && ndjson_is_blank(text, scan.scanned - ended)) {
            ndjson_consume(input, scan.scanned);
            scan = (struct csv_scan){.separator = input->separator};
            continue;
        }
        ndjson_take(input, line, scan.scanned);
        line->wrong = ndjson_check_text(input, line, (int64_t)line->size);
        line->size -= ended;
        line->unfinished = !ended;
        line->size -= line->size && line->text[line->size - 1] == '\r';
        return TRUCE_OK;
    }
    return status;
}

/* ---- files of any format -------------------------------------------------------------------- */

truce_status cli_ndjson_detect(struct ndjson *input, enum ndjson_form *form, bson_error_t *error)
{
    truce_status status = skip_mark(input, error);
    char first = '\0';

    for (size_t at = 0; !status; at++) {
        while (!status && input->next + at == input->filled && !input->at_end && at < CHUNK)
            status = ndjson_fill(input, error);
        if (status || input->next + at == input->filled)
            break;
        first = (char)input->window.bytes[input->next + at];
        if (first != ' ' && first != '\t' && first != '\r' && first != '\n')
            break;
    }
    input->form = first == '[' ? NDJSON_ARRAY : NDJSON_LINES;
    input->row = 1;
    *form = input->form;
    return status;
}

/* Returns the separator of the line "sep=;", which Excel writes before the header, or 0. */
static char separator_line(const struct ndjson_line *line)
{
    char text[] = {0, 0}, separator = 0;
    size_t size = line->text ? line->size : 0;

    while (size && (line->text[size - 1] == '\n' || line->text[size - 1] == '\r'))
        size--;
    if (size != 5 || strncasecmp(line->text, "sep=", 4) != 0)
        return 0;
    text[0] = line->text[4];
    return cli_csv_separator_of(text, &separator) ? separator : 0;
}

truce_status cli_ndjson_csv(struct ndjson *input, char separator, const char *types,
                            bson_error_t *error)
{
    struct ndjson_line line = {0};
    bson_error_t why;
    truce_status status;

    input->form = NDJSON_CSV;
    input->row = 1;
    status = next_record(input, &line, error);
    if (!status && separator_line(&line)) {
        separator = separator ? separator : separator_line(&line);
        status = next_record(input, &line, error);
    }
    if (status)
        return status;
    if (!line.text)
        return truce__fail(TRUCE_INVALID, error, "%s is empty: the first record names the columns",
                           input->path);
    if (line.wrong)
        return truce__fail(TRUCE_INVALID, error, "%s: the header: %s", input->path, line.wrong);
    input->separator = separator ? separator : cli_csv_separator(line.text, line.size);
    input->csv = cli_csv_new(line.text, line.size, input->separator, types, &why);
    if (!input->csv)
        return truce__fail(TRUCE_INVALID, error, "%s: %s", input->path, why.message);
    input->number = 0;
    input->body = input->offset;
    input->body_row = input->row;
    return TRUCE_OK;
}

truce_status cli_ndjson_next(struct ndjson *input, struct ndjson_line *line, bson_error_t *error)
{
    truce_status status;

    *line = (struct ndjson_line){0};
    if (input->form == NDJSON_ARRAY)
        status = ndjson_next_element(input, line, error);
    else if (input->form == NDJSON_CSV)
        status = next_record(input, line, error);
    else
        status = next_line(input, line, error);
    if (!status && !line->text) {
        line->number = input->number;
        line->row_end = input->row;
        line->end = input->form == NDJSON_ARRAY && input->size ? input->size : input->offset;
    }
    return status;
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
    if (input->csv)
        return cli_csv_document(input->csv, line->text, line->size, document);
    if (!truce__json_read(&input->reader, line->text, line->size, document, NULL, &error))
        return NULL;
    snprintf(input->reason, sizeof input->reason, "%s", error.message);
    return input->reason;
}

#ifndef TRUCE_CLI_CORE_NDJSON_H
#define TRUCE_CLI_CORE_NDJSON_H

/*
 * Reads documents from a file or a pipe of any length, in constant memory; writes rejected lines to
 * a file.
 *
 *     NDJSON_LINES   one document of Extended JSON a line
 *     NDJSON_ARRAY   one array of such documents
 *     NDJSON_CSV     one document a record (csv.h).
 */
#include "bson/json.h"

struct ndjson;

/* The maximum size of a line in bytes. A document of 16 MB may need that many. */
#define NDJSON_LINE_MAX (100 * 1024 * 1024)

/* The number of bytes that are stored of a longer or rejected line. */
#define NDJSON_TEXT_MAX (64 * 1024)

enum ndjson_form { NDJSON_LINES, NDJSON_ARRAY, NDJSON_CSV };

/* A line, an element of an array, or a record. */
struct ndjson_line {
    /* The number of the line, element, or record, from 1. */
    int64_t number;
    /* The line of the file, from 1, on which it starts, and the line on which the next one may
     * start. */
    int64_t row, row_end;
    /* The offset of its first byte in the input. */
    int64_t offset;
    /* The offset after it, where the next line or the bytes before it begin. */
    int64_t end;
    /* The text without the line end. Borrowed until the next call. */
    const char *text;
    /* The size of `text`. A line of more than NDJSON_LINE_MAX bytes is cut to NDJSON_TEXT_MAX
     * bytes. */
    size_t size;
    /* The reason why the line is wrong (for example, it is too long or not UTF-8), or NULL.
     * Borrowed until the next call. */
    const char *wrong;
    /* The input ends before the end of the line or of the record. */
    bool unfinished;
};

/* Opens a file; "-" is standard input. Returns NULL and fills `error` on failure. */
struct ndjson *cli_ndjson_open(const char *path, bson_error_t *error);
void cli_ndjson_close(struct ndjson *input);

/* Detects the form before anything is read. An input that begins with [ is an array, any other is
 * lines. */
truce_status cli_ndjson_detect(struct ndjson *input, enum ndjson_form *form, bson_error_t *error);
/* Declares the input as CSV. `types` is as in cli_csv_new. `separator` 0 means that of the header.
 * Returns INVALID if the header is not valid. */
truce_status cli_ndjson_csv(struct ndjson *input, char separator, const char *types,
                            bson_error_t *error);

/* Returns the next line that is not empty. At the end, `line->text` is NULL, and `number` and `end`
 * are those of the end. Fails with IO if reading failed, and with LIMIT if an element or a record
 * is too long, so that the rest of the input cannot be read. */
truce_status cli_ndjson_next(struct ndjson *input, struct ndjson_line *line, bson_error_t *error);

/* Parses the document of a line. It is borrowed until the next call, and empty after a fault.
 * Returns NULL, or the fault: `line->wrong`, or the fault of the JSON with its column and field.
 * The fault is borrowed until the next call. */
const char *cli_ndjson_document(struct ndjson *input, const struct ndjson_line *line,
                                bson_t *document);

/* Returns the size of a regular file (for progress), else 0. cli_ndjson_seek needs a regular
 * file. */
int64_t cli_ndjson_size(const struct ndjson *input);

/* Continues at the start of a line, or after an element, with the given number and row. Only for
 * regular files. */
truce_status cli_ndjson_seek(struct ndjson *input, int64_t offset, int64_t number, int64_t row,
                             bson_error_t *error);

/* Reads a file as one string that the caller frees; "-" is standard input. Fails with INVALID if it
 * has a NUL byte, with LIMIT if it is longer than NDJSON_LINE_MAX, and with IO if it cannot be
 * read. */
truce_status cli_text_file(const char *path, char **text, bson_error_t *error);

/* ---- rejected lines ------------------------------------------------------------------------ */

/*
 * The reject file is created when the first line is rejected. Each of its lines is one document.
 * One write(2) appends it to the file, so several processes may share the file:
 *
 *     {"line": 17, "reason": "column 12, field class: ...", "text": "{\"operation\": ..."}
 *
 * `text` is the line itself, or `bytes` (binary) if it is not UTF-8. After 64 kB the line is cut,
 * and `cut` is true.
 */
struct rejects {
    const char *path;
    /* -1 before the first rejected line. */
    int file;
    int64_t count;
};

#define REJECTS_INIT(where)                                                                        \
    {                                                                                              \
        .path = where, .file = -1                                                                  \
    }

/* Checks the path before any line is read. Fails with INVALID if it is "-" or a directory, or if
 * its folder does not exist. Also fails if it is a file that is not a reject file, because the
 * import would remove it. */
truce_status cli_rejects_check(const struct rejects *rejects, bson_error_t *error);
/* Removes the reject file of an earlier import. A device or a pipe stays. */
void cli_rejects_begin(const struct rejects *rejects);
truce_status cli_reject(struct rejects *rejects, int64_t line, const char *reason, const char *text,
                        size_t size, bson_error_t *error);
/* Closes the reject file. Fails with IO if the file could not be written completely. */
truce_status cli_rejects_close(struct rejects *rejects, bson_error_t *error);

#endif

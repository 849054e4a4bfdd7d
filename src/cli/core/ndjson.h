#ifndef TRUCE_CLI_CORE_NDJSON_H
#define TRUCE_CLI_CORE_NDJSON_H

/*
 * Documents in, from a file or a pipe of any length, in flat memory; and the reject file for what is none:
 *
 *     NDJSON_LINES   one document of Extended JSON a line
 *     NDJSON_ARRAY   one array of such documents
 *     NDJSON_CSV     one document a record (csv.h)
 */
#include "bson/json.h"

struct ndjson;

#define NDJSON_LINE_MAX (100 * 1024 * 1024) /* bytes; a document of 16 MB may need that many */

#define NDJSON_TEXT_MAX (64 * 1024) /* what is kept of a line that is longer, or rejected */

enum ndjson_form { NDJSON_LINES, NDJSON_ARRAY, NDJSON_CSV };

/* A line; or an element of the array, or a record. */
struct ndjson_line {
    int64_t number;       /* from 1 */
    int64_t row, row_end; /* the lines, from 1, on which it starts and the next one may */
    int64_t offset;       /* where it starts, bytes from the start of the input */
    int64_t end;          /* where the next one starts, or what stands between them */
    const char *text;     /* without the line end; borrowed until the next call */
    size_t size;          /* of text; cut at NDJSON_LINE_MAX if the line is longer */
    const char *wrong;    /* NULL, or why the line is no line of text: longer than the maximum, not
                          UTF-8; a constant or borrowed until the next call */
};

/* `path` "-" is standard input. NULL: `error` says why. */
struct ndjson *cli_ndjson_open(const char *path, bson_error_t *error);
void cli_ndjson_close(struct ndjson *input);

/* Before anything is read. An input that begins with [ is an array, any other is lines. */
truce_status cli_ndjson_detect(struct ndjson *input, enum ndjson_form *form, bson_error_t *error);
/* The input is CSV; `types` as cli_csv_new takes them; `separator` 0: that of the header. INVALID: its header is none. */
truce_status cli_ndjson_csv(struct ndjson *input, char separator, const char *types,
                            bson_error_t *error);

/* The next line that is not empty; at the end `line->text` is NULL, and `number` and `end` are those of the end.
 * IO: reading failed; LIMIT: an element or a record is too long, and nothing behind it can be found. */
truce_status cli_ndjson_next(struct ndjson *input, struct ndjson_line *line, bson_error_t *error);

/* The document of a line; borrowed until the next call, empty if there is none. Returns NULL, or
 * what is wrong: `line->wrong`, or what is wrong with the JSON, with column and field; borrowed
 * until the next call. */
const char *cli_ndjson_document(struct ndjson *input, const struct ndjson_line *line,
                                bson_t *document);

/* Bytes of the input if it is a regular file (for progress), else 0; and whether cli_ndjson_seek
 * can work. */
int64_t cli_ndjson_size(const struct ndjson *input);

/* Goes on at the start of a line, or behind an element, whose number and row the caller knows. Regular files
 * only. */
truce_status cli_ndjson_seek(struct ndjson *input, int64_t offset, int64_t number, int64_t row,
                             bson_error_t *error);

/* A file as one text that the caller frees; `path` "-" is standard input. INVALID: there is a NUL
 * byte in it. LIMIT: longer than NDJSON_LINE_MAX. IO: it cannot be read. */
truce_status cli_text_file(const char *path, char **text, bson_error_t *error);

/* ---- rejected lines ------------------------------------------------------------------------ */

/* The reject file is made when the first line is rejected. Each of its lines is one document, and
 * written by one write(2) at the end of the file, so that several processes may share it:
 *
 *     {"line": 17, "reason": "column 12, field class: ...", "text": "{\"operation\": ..."}
 *
 * `text` is the line itself, "bytes" (binary) if it is not UTF-8; what is longer than 64 kB is cut,
 * and "cut" is true. */
struct rejects {
    const char *path;
    int file; /* -1 before the first line */
    int64_t count;
};

#define REJECTS_INIT(where)                                                                        \
    {                                                                                              \
        .path = where, .file = -1                                                                  \
    }

truce_status cli_reject(struct rejects *rejects, int64_t line, const char *reason, const char *text,
                        size_t size, bson_error_t *error);
/* IO: the file could not be written whole */
truce_status cli_rejects_close(struct rejects *rejects, bson_error_t *error);

#endif

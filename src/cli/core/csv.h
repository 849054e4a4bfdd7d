#ifndef TRUCE_CLI_CORE_CSV_H
#define TRUCE_CLI_CORE_CSV_H

/*
 * CSV (RFC 4180): records of cells, and their meaning as documents.
 *
 * The first record names the columns. A name with dots is a path: "address.city". A cell becomes
 *
 *     nothing                     its field is omitted
 *     1, 2.5, true, false, null   that JSON value, unless the cell is quoted or the number is an
 *                                 integer of more than 64 bits
 *     anything else               a string; "" is an empty one
 *
 * unless its column has a type:
 *
 *     string
 *     date        2024-01-31, 2024-01-31T12:00:00Z
 *     objectId    24 hexadecimal digits
 *     json        Extended JSON, any value
 *
 * Spaces around a cell that is not quoted are ignored. The writer quotes strings that would be read
 * as something else, writes dates and ObjectIds as above, and writes all other values as Extended
 * JSON.
 */
#include "bson/json.h"

/* A reader of records. */
struct csv;

/* Creates a reader; the record at text[0..size) is the header. `separator` separates cells. `types`
 * is "born=date,zip=string", "*=string" for all columns, or NULL. Returns NULL and fills `error` if
 * the header or the types are wrong. */
struct csv *cli_csv_new(const char *text, size_t size, char separator, const char *types,
                        bson_error_t *error);
/* Creates a reader for the file of another program. All cells are strings, and each column is a
 * field at the top, which cli_csv_field names. A column without a name is omitted. The next columns
 * of the same name are "NAME 2", "NAME 3", and so on. A record may end in additional cells that are
 * empty. */
struct csv *cli_csv_new_flat(const char *text, size_t size, char separator, bson_error_t *error);
/* Returns the name with each dot as U+2024, because filters take dots for paths. The caller frees
 * it. */
char *cli_csv_field(const char *name);
/* Returns the name of the column whose field is given. The caller frees it. */
char *cli_csv_column(const char *field);
/* Returns the most frequent separator of the header: a comma, a semicolon, a tab, or a bar. */
char cli_csv_separator(const char *header, size_t size);
/* Reads a separator of an option or a rule: one character, or "tab". Returns false for anything
 * else. */
bool cli_csv_separator_of(const char *text, char *separator);
void cli_csv_free(struct csv *csv);
/* Returns true if the header has a column of that name. A flat reader expects the field's name. */
bool cli_csv_has(const struct csv *csv, const char *name);

/* Reads a record into a document that is borrowed until the next call. A faulty record gives an
 * empty document. Returns NULL, or the fault, also borrowed until the next call. */
const char *cli_csv_document(struct csv *csv, const char *text, size_t size, bson_t *document);

/* Finds the end of the record that begins at text[0]. Returns true if the text has it;
 * scan->scanned is then the length of the record with its line end. Zero the struct before the
 * first call for a record. A later call with more bytes continues where the last one ended. */
struct csv_scan {
    size_t scanned;
    /* The scan is in quotes, directly after quotes, or in a cell that has begun. */
    bool quoted, closed, inside;
    /* The scan is directly after a CR, which ends a record with or without an LF. */
    bool returned;
    /* The separator of cells. 0 means a comma. */
    char separator;
};
bool cli_csv_end(const char *text, size_t size, struct csv_scan *scan);

/* Appends one cell, without a separator. */
void cli_csv_write(struct buffer *out, const bson_iter_t *value);
/* Appends a name, quoted if needed. */
void cli_csv_write_text(struct buffer *out, const char *text, size_t size);

#endif

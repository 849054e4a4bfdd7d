#ifndef TRUCE_CLI_CORE_CSV_H
#define TRUCE_CLI_CORE_CSV_H

/*
 * CSV (RFC 4180): records of cells, and what they mean as documents.
 *
 * The first record names the columns; a name with dots is a path: "address.city". A cell becomes
 *
 *     nothing                     its field is left out
 *     1, 2.5, true, false, null   that, as in JSON, unless it stands in quotes
 *     anything else               a string; "" is an empty one
 *
 * unless its column has a type: `string`, `date` (2024-01-31, or 2024-01-31T12:00:00Z, and what $dateFromString reads), `objectId` (24 hexadecimal digits), `json` (Extended
 * JSON, any value). The other way round, strings that would be read as something else are put in quotes, dates
 * and ObjectIds are written as for those types, and everything that has no form of its own as Extended JSON.
 */
#include "bson/json.h"

/* What a record is read by. */
struct csv;

/* The record at text[0..size) is the header. `separator` between cells is ',' or what others write. `types` "born=date,zip=string",
 * "*=string" for all, or NULL. NULL: `error` says what is wrong with them. */
struct csv *cli_csv_new(const char *text, size_t size, char separator, const char *types,
                        bson_error_t *error);
/* The separator that the header has most of: a comma, a semicolon, a tab, or a bar. */
char cli_csv_separator(const char *header, size_t size);
/* As an option or a rule names it: one character, or tab. False: it is not a separator. */
bool cli_csv_separator_of(const char *text, char *separator);
void cli_csv_free(struct csv *csv);
/* Whether the header has a column of that name. */
bool cli_csv_has(const struct csv *csv, const char *name);

/* The document of a record, borrowed until the next call; empty if there is none. NULL, or what is wrong,
 * borrowed as well. */
const char *cli_csv_document(struct csv *csv, const char *text, size_t size, bson_t *document);

/* Is there the end of the record that begins at text[0]? Then its length, line end included, is scan->looked. Zeroed
 * before the first call for a record; what was looked at is not looked at again when there is more. */
struct csv_scan {
    size_t looked;
    bool quoted, closed, inside; /* in quotes; right behind them; in a cell that has begun */
    bool returned;               /* right behind a CR, which ends a record with or without a LF */
    char separator;              /* 0: a comma */
};
bool cli_csv_end(const char *text, size_t size, struct csv_scan *scan);

/* Appends one cell, without a comma. */
void cli_csv_write(struct buffer *out, const bson_iter_t *value);
/* A name, quoted where that is needed. */
void cli_csv_write_text(struct buffer *out, const char *text, size_t size);

#endif

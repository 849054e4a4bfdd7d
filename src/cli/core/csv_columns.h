#ifndef TRUCE_CLI_CORE_CSV_COLUMNS_H
#define TRUCE_CLI_CORE_CSV_COLUMNS_H

/*
 * The columns of CSV output: the paths that the caller names, or else the fields of all documents,
 * in the order in which they first appear.
 */
#include "bson/json.h"

struct columns;

/* Creates the columns. `fields` is "name,address.city", or NULL to learn them. Returns NULL and
 * fills `error` with INVALID if a path is empty, and with LIMIT if there are more than
 * TRUCE_CSV_COLUMNS_MAX. */
struct columns *cli_columns_new(const char *fields, bson_error_t *error);
void cli_columns_free(struct columns *columns);
bool cli_columns_are_named(const struct columns *columns);

/* Adds the fields of the document to the columns. Fails with LIMIT if there are more than
 * TRUCE_CSV_COLUMNS_MAX, and with INVALID if a name would be read as a path. */
truce_status cli_columns_learn(struct columns *columns, const bson_t *document,
                               bson_error_t *error);

/* These functions append the header, or a record, with its line end. A record fails with INVALID if
 * the columns were learned and the document has a field without a column. Named columns omit such a
 * field. With a single column, a document without its value has no record. */
void cli_columns_header(const struct columns *columns, struct buffer *out);
truce_status cli_columns_row(struct columns *columns, const bson_t *document, struct buffer *out,
                             bson_error_t *error);

#endif

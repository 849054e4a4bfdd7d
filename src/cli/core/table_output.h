#ifndef TRUCE_CLI_CORE_TABLE_OUTPUT_H
#define TRUCE_CLI_CORE_TABLE_OUTPUT_H

/* Prints documents as an aligned table: a column for each field, in the order of their first
 * appearance. The first TABLE_ROWS rows are buffered. They determine the columns and their widths.
 * Later rows are printed at once. */
#include <stdbool.h>
#include <stdio.h>

#include "bson/json.h"

#define TABLE_ROWS    1000
#define TABLE_COLUMNS 100
/* The maximum width of a cell in characters. A longer value is cut and ends in "...". */
#define TABLE_CELL 60

struct table;

struct table *cli_table_new(FILE *file);
/* Adds a row. Returns false if the file cannot be written. */
bool cli_table_add(struct table *table, const bson_t *document, enum json_form form);
/* Prints the buffered rows and frees the table. Sets `*left_out` to the number of values without a
 * column. */
void cli_table_end(struct table *table, int *left_out);

#endif

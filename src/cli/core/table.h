#ifndef TRUCE_CLI_CORE_TABLE_H
#define TRUCE_CLI_CORE_TABLE_H

/*
 * Documents as a table whose columns line up: a column for each field, in the order in which they turn up.
 * The first TABLE_ROWS rows are held back, and decide what columns there are and how wide they are; later
 * ones are printed as they come.
 */
#include <stdbool.h>
#include <stdio.h>

#include "bson/json.h"

#define TABLE_ROWS    1000
#define TABLE_COLUMNS 100
#define TABLE_CELL    60 /* characters; what is longer is cut, with ... at its end */

struct table;

struct table *cli_table_new(FILE *file);
/* False: the file cannot be written. */
bool cli_table_add(struct table *table, const bson_t *document, enum json_form form);
/* Prints what is held back, and frees the table. `*left_out`: fields that had no column any more. */
void cli_table_end(struct table *table, int *left_out);

#endif

#ifndef TRUCE_CLI_CORE_OPERATION_ROW_OPTIONS_H
#define TRUCE_CLI_CORE_OPERATION_ROW_OPTIONS_H

/* The names of fields on the command line (operation_row_options.c). */
#include "cli/core/operation_row.h"
#include "operations/operation.h"

#define ROW_NAME_MAX 64

enum row_unit {
    ROW_PLAIN,
    /* A FIELD_DURATION. */
    ROW_DURATION,
    /* A FIELD_TIME. */
    ROW_DATE,
};

enum row_unit cli_row_unit(const struct operation_field *field);
/* Writes the name of the field's option: "keepDeadMS" is "keep-dead", the array "tags" is "tag". */
void cli_row_option(const struct cli_row *row, const struct operation_field *field,
                    char name[ROW_NAME_MAX]);
/* Returns whether an argument ("QUEUE", "LANE-WIDTH") is the field of that name. */
bool cli_row_is_argument(const struct cli_row *row, const char *argument, size_t size,
                         const char *field);
/* Returns the index of the argument that is the field, or -1. Sets *word to the argument's
 * placeholder, without "[". */
int cli_row_find_argument(const struct cli_command *command, const struct cli_row *row,
                          const char *field, const char **word);
/* Returns the row of a command's operation. */
const struct operation_row *cli_row_find(const struct cli_row *row);
/* Returns whether the field is an option of the command. */
bool cli_row_has_option(const struct cli_command *command, const struct cli_row *row,
                        const struct operation_field *field);

#endif

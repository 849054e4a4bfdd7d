#ifndef TRUCE_CLI_CORE_PRETTY_OUTPUT_H
#define TRUCE_CLI_CORE_PRETTY_OUTPUT_H

/* Prints a document over several lines, for people. The output is still Extended JSON. */
#include "bson/json.h"

/* Appends the document and a newline: on one line if it fits, else one line for each field. */
void cli_pretty(struct buffer *out, const bson_t *document, bool is_array, enum json_form form);

#endif

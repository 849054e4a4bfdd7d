#ifndef TRUCE_CLI_CORE_PRETTY_H
#define TRUCE_CLI_CORE_PRETTY_H

/* A document over several lines, for people; still Extended JSON. */
#include "bson/json.h"

/* Appends it with a newline at the end: on one line if it fits, else a line for each field. */
void cli_pretty(struct buffer *out, const bson_t *document, bool is_array, enum json_form form);

#endif

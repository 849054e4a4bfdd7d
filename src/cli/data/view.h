#ifndef TRUCE_CLI_DATA_VIEW_H
#define TRUCE_CLI_DATA_VIEW_H

/*
 * Reads of a view of a file. The store does not know views, so these reads are commands in process
 * (truce_command), which resolve the view as a server does.
 */
#include "cli/data/query.h"

/* Appends the filter, under `name`, and the options of the query to a command. The command has those
 * options that its read knows, and refuses the others. */
void cli_view_append_query(const struct cli *cli, const struct cli_query *query, const char *name,
                           bson_t *request);

/* Runs a command in the database of the call. `store` is that of the call, or a snapshot of the file.
 * `reply` is always initialized. */
truce_status cli_view_call(const struct cli *cli, truce_store *store, const bson_t *request,
                           bson_t *reply, bson_error_t *error);

/* Does the same for find and aggregate, and opens a cursor over the documents, which the caller
 * closes. */
truce_status cli_view_open(const struct cli *cli, truce_store *store, const bson_t *request,
                           truce_cursor **cursor, bson_error_t *error);
/* Takes a snapshot as cli_snapshot_take does, for reads of a view. */
int cli_view_snapshot(const struct cli *cli, truce_store **snapshot);

#endif

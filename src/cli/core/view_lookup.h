#ifndef TRUCE_CLI_CORE_VIEW_LOOKUP_H
#define TRUCE_CLI_CORE_VIEW_LOOKUP_H

/* Finds views. The store does not know them: those of a file are documents of system.views
 * (server/command/view_cache.h), and a server resolves its own. */
#include "truce/store.h"

/* Returns whether the database of the store has a view of this name. Returns false if this cannot be
 * found out. */
bool cli_view_is(truce_store *store, const char *name);
/* Returns false if the database of the server has neither a collection nor a view of this name. Returns
 * true if this cannot be found out. */
bool cli_view_may_be_on_server(truce_store *store, const char *name);
/* Returns whether a stage of the pipeline reads or writes a view. */
bool cli_view_in_pipeline(truce_store *store, const bson_t *pipeline);

#endif

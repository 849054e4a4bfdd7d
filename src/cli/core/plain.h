#ifndef TRUCE_CLI_CORE_PLAIN_H
#define TRUCE_CLI_CORE_PLAIN_H

/* --plain: documents and lists of collections as if truce kept nothing of its own in the store. */
#include "cli/core/cli.h"

#define CLI_PLAIN_OPTION                                                                           \
    {                                                                                              \
        "plain", 0, NULL, "without what truce keeps for itself", false                             \
    }

struct plain;

/* The sets of the collection are asked for. NULL: the command has no --plain, or it was not given, or
 * the store does not answer (the next call will say so). */
struct plain *cli_plain_new(const struct cli *cli, const char *collection);
void cli_plain_free(struct plain *plain);

/* The document without truce's own fields: _rev, _intent and _keys; of a set its tombstones, its watermark,
 * and the number and source of each element. `result` is initialised. */
void cli_plain(const struct plain *plain, const bson_t *document, bson_t *result);

/* Is the collection one of truce's own? */
bool cli_plain_hides(const char *collection);

#endif

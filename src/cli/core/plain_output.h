#ifndef TRUCE_CLI_CORE_PLAIN_OUTPUT_H
#define TRUCE_CLI_CORE_PLAIN_OUTPUT_H

/* --plain: hides truce's own fields and collections. */
#include "cli/core/cli.h"

#define CLI_PLAIN_OPTION                                                                           \
    {                                                                                              \
        "plain", 0, NULL, "without truce's own fields and collections", false                      \
    }

struct plain;

/* Reads which sets the collection has. Returns NULL if the command has no --plain, or if it was not
 * given. If the store does not reply, the result has no sets, and the next call to the store
 * reports the error. */
struct plain *cli_plain_new(const struct cli *cli, const char *collection);
void cli_plain_free(struct plain *plain);

/* Copies the document without truce's own fields: _rev, _intent, and _keys; in a set also its
 * tombstones, its watermark, and the number and source of each element. `result` is initialized. */
void cli_plain(const struct plain *plain, const bson_t *document, bson_t *result);

/* Returns true for a collection of truce's own, and for the old versions of a collection. */
bool cli_plain_hides(const char *collection);

#endif

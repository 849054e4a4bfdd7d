#ifndef TRUCE_CLI_DOCUMENT_DOC_EDIT_H
#define TRUCE_CLI_DOCUMENT_DOC_EDIT_H

/* Documents as people edit them. */
#include "cli/core/cli.h"

/* Relaxed Extended JSON does not tell int64 from int32, and many writers of JSON write 5 for 5.0: whole
 * numbers of `document` that are equal to the int64 or double at the same place in `like` get its type
 * back. A type that is said ({"$numberDecimal": "5"}, 5.0) stays. */
void cli_keep_types(const bson_t *like, bson_t *document);

/* Starts $EDITOR on the document, field by field on lines of their own, below `head`, lines that
 * begin with "#" and are taken away again. CLI_DONE: `edited` is initialised and to be destroyed, with
 * the types that `document` has; otherwise the error was printed. */
int cli_edit(struct cli *cli, const bson_t *document, const char *head, bson_t *edited);

#endif

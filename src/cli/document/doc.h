#ifndef TRUCE_CLI_DOCUMENT_DOC_H
#define TRUCE_CLI_DOCUMENT_DOC_H

/* What the commands of `truce doc` share. */
#include "cli/core/cli.h"

#define DOC_OPTIONS                                                                                \
    {"version-field", 0, "FIELD", "the field with the number (version)", false},                   \
        {"rules", 'r', "DOCUMENT", "policies of merges: {\"views\": \"sum\"}", false},             \
        {"keep", 'k', "N", "how many replaced versions are kept (10)", false},                     \
        {"keep-days", 0, "DAYS", "and how long: truce sweep removes older ones", false},           \
    {                                                                                              \
        "strict", 0, NULL, "merge only what one side alone changed", false                         \
    }

/* ID as Extended JSON, 24 hexadecimal digits, or a word as it stands; `holder` has it as "v". */
bool cli_doc_id(const struct cli *cli, const char *text, bson_t *holder);
bson_value_t cli_doc_id_in(const bson_t *holder);

/* Documents as people edit them. */

#endif

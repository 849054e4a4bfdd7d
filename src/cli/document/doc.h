#ifndef TRUCE_CLI_DOCUMENT_DOC_H
#define TRUCE_CLI_DOCUMENT_DOC_H

/* Options and ids that the commands of `truce doc` share. */
#include "cli/core/cli.h"

#define DOC_OPTIONS                                                                                \
    {"version-field", 0, "FIELD", "the field with the number (version)", false},                   \
        {"rules", 'r', "DOCUMENT", "policies of merges: {\"views\": \"sum\"}", false},             \
        {"keep", 'k', "N", "how many earlier versions to store (default: 10)", false},             \
        {"keep-days", 0, "DAYS", "how long to store them: truce sweep removes older ones", false}, \
    {                                                                                              \
        "strict", 0, NULL, "merge only paths that one side alone changed", false                   \
    }

/* Reads an ID: Extended JSON, 24 hexadecimal digits, or a word. `holder` stores it as the field
 * "v". */
bool cli_doc_id(const struct cli *cli, const char *text, bson_t *holder);
bson_value_t cli_doc_id_in(const bson_t *holder);

#endif

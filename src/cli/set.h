#ifndef TRUCE_CLI_SET_H
#define TRUCE_CLI_SET_H

/* What the commands of `truce set` share. */
#include "cli/cli.h"

/* The options that say which set of a collection is meant; a set that is in the store already needs
 * none but --list. */
#define CLI_SET_OPTIONS                                                                            \
    {"list", 0, "FIELD", "the list in the document (classes)", false},                             \
        {"key", 0, "FIELDS", "the fields that name a document (student_id)", false},               \
        {"deleted", 0, "FIELD", "the list of what was removed (deleted_<list>)", false},           \
        {"name", 0, "FIELD", "the element's field that names it (name)", false},                   \
        {"seq-field", 0, "FIELD", "the element's field with its number (seq)", false},             \
        {"source-field", 0, "FIELD", "the element's field with its source (src)", false},          \
        {"watermark-field", 0, "FIELD", "the document's field with the watermark (_wm)", false},   \
    {                                                                                              \
        "by-element", 0, NULL, "one document for each element, for very large sets", false         \
    }

#define CLI_SET_SOURCE_OPTION                                                                      \
    {                                                                                              \
        "source", 0, "NAME", "the source that gave out the number", false                          \
    }

/* The set of the options, with the definition kept in the store for what they do not say; the
 * caller frees it. CLI_DONE, or the exit code with the error printed. */
int cli_set_open(const struct cli *cli, truce_store *store, const char *collection,
                 truce_set **set);

/* The key's fields (comma between) and the name's field of that set; bson_free both. */
void cli_set_names(const struct cli *cli, truce_store *store, const char *collection, char **keys,
                   char **name);

#endif

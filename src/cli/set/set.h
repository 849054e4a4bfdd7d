#ifndef TRUCE_CLI_SET_SET_H
#define TRUCE_CLI_SET_SET_H

/* What the commands of `truce set` share. */
#include "cli/core/cli.h"

/* The options that say which set of a collection is meant; the only set of a collection needs none once
 * it is in the store, one of several needs --list. */
#define CLI_SET_OPTIONS                                                                            \
    {"list", 0, "FIELD", "the list in the documents", false},                                      \
        {"key", 0, "FIELDS", "the fields that tell the documents apart", false},                   \
        {"deleted", 0, "FIELD", "the list of what was removed (deleted_<list>)", false},           \
        {"name", 0, "FIELD", "the field that tells the elements apart", false},                    \
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

/* What the options and the definition in the store say of a set. */
struct cli_set {
    truce_set *set;
    char *list, *keys, *name; /* keys: comma between */
};

/* CLI_DONE, or the exit code with the error printed: CLI_USAGE where something is missing that no
 * definition says. To be released in both cases. */
int cli_set_find(const struct cli *cli, truce_store *store, const char *collection,
                 struct cli_set *set);
void cli_set_release(struct cli_set *set);

/* Only the set; the caller frees it. NULL on failure. */
int cli_set_open(const struct cli *cli, truce_store *store, const char *collection,
                 truce_set **set);

#endif

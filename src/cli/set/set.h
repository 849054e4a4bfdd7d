#ifndef TRUCE_CLI_SET_SET_H
#define TRUCE_CLI_SET_SET_H

/* Options and definitions that the commands of `truce set` share. */
#include "cli/core/cli.h"

/* The options that select a set of a collection. The only set of a collection needs none once it is
 * defined; one of several needs --list. */
#define CLI_SET_OPTIONS                                                                            \
    {"list", 0, "FIELD", "the field with the list", false},                                        \
        {"key", 0, "FIELDS", "the fields that identify a document", false},                        \
        {"deleted", 0, "FIELD", "the list of removed elements (default: deleted_<list>)", false},  \
        {"name", 0, "FIELD", "the field that identifies an element", false},                       \
        {"seq-field", 0, "FIELD", "the element's field with its number (default: seq)", false},    \
        {"source-field", 0, "FIELD", "the element's field with its source (default: src)", false}, \
        {"watermark-field", 0, "FIELD", "the document's field with the watermark (default: _wm)",  \
         false},                                                                                   \
    {                                                                                              \
        "by-element", 0, NULL, "one document for each element, for very large sets", false         \
    }

#define CLI_SET_SOURCE_OPTION                                                                      \
    {                                                                                              \
        "source", 0, "NAME", "the source that assigned the number", false                          \
    }

/* The set that the options and the definition in the store describe. */
struct cli_set {
    truce_set *set;
    char *list, *keys, *name; /* `keys` is separated by commas */
};

/* Finds and opens the set. Returns CLI_DONE, or the exit code after printing the error: CLI_USAGE
 * if an option is missing that no definition replaces. Release in both cases. */
int cli_set_find(const struct cli *cli, truce_store *store, const char *collection,
                 struct cli_set *set);
void cli_set_release(struct cli_set *set);

/* Opens only the set. The caller frees it; NULL on failure. */
int cli_set_open(const struct cli *cli, truce_store *store, const char *collection,
                 truce_set **set);

#endif

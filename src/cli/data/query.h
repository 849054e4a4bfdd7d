#ifndef TRUCE_CLI_DATA_QUERY_H
#define TRUCE_CLI_DATA_QUERY_H

/* Filters and find options that find, explain, count, export, and aggregate share. */
#include "cli/core/cli.h"

#define CLI_SORT_OPTION                                                                            \
    {                                                                                              \
        "sort", 0, "DOCUMENT", "the order: {\"a\": 1, \"b\": -1}", false                           \
    }
#define CLI_PROJECTION_OPTION                                                                      \
    {                                                                                              \
        "projection", 'p', "DOCUMENT", "the fields to show: {\"a\": 1}", false                     \
    }
#define CLI_SKIP_OPTION                                                                            \
    {                                                                                              \
        "skip", 0, "N", "skip the first N", false                                                  \
    }
#define CLI_LIMIT_OPTION                                                                           \
    {                                                                                              \
        "limit", 'n', "N", "at most N", false                                                      \
    }
#define CLI_HINT_OPTION                                                                            \
    {                                                                                              \
        "hint", 0, "INDEX", "use this index: its name or its key", false                           \
    }
/* The options for bounds of the index that --hint names. */
#define CLI_MIN_OPTION                                                                             \
    {                                                                                              \
        "min", 0, "DOCUMENT", "first key of the index of --hint: {\"a\": 1}", false                \
    }
#define CLI_MAX_OPTION                                                                             \
    {                                                                                              \
        "max", 0, "DOCUMENT", "key of the index of --hint before which to stop", false             \
    }
#define CLI_REPLACE_OPTION                                                                         \
    {                                                                                              \
        "replace", 0, NULL, "UPDATE is a whole document that replaces the old one", false          \
    }
/* The options that cli_query_read reads. */
#define CLI_FIND_OPTIONS                                                                           \
    CLI_SORT_OPTION, CLI_PROJECTION_OPTION, CLI_SKIP_OPTION, CLI_LIMIT_OPTION, CLI_HINT_OPTION,    \
        CLI_MIN_OPTION, CLI_MAX_OPTION
#define CLI_CANONICAL_OPTION                                                                       \
    {                                                                                              \
        "canonical", 0, NULL, "print every number with its type", false                            \
    }

struct cli_query {
    bson_t filter, projection, sort, hint, min, max;
    truce_find_options options;   /* The options of the find. They borrow from the fields above. */
    truce_count_options counting; /* The same for a count. */
};

/* Reads those of the options above that the command has. Returns CLI_DONE, or CLI_USAGE after
 * printing the error. The caller releases the query in both cases. A `filter` of NULL matches all
 * documents. */
int cli_query_read(const struct cli *cli, const char *filter, struct cli_query *query);
void cli_query_release(struct cli_query *query);

/* Reads --hint, an index name or a key pattern. `hint` is initialized, and empty if the option was
 * not given. */
bool cli_hint_read(const struct cli *cli, bson_t *hint);

/* Checks that UPDATE is a whole document with --replace, and otherwise consists of operators or
 * stages, so that a forgotten $set does not remove the other fields. Prints the error. Returns
 * CLI_DONE or CLI_USAGE. */
int cli_update_check(const struct cli *cli, const bson_t *update, bool is_pipeline);

/* Opens a cursor over the documents of the query in the collection or view of the call. `store` is
 * that of the call, or a snapshot of it. */
truce_status cli_query_find(const struct cli *cli, truce_store *store,
                            const struct cli_query *query, truce_cursor **cursor,
                            bson_error_t *error);

/* Prints a note if the collection of the call does not exist, with the nearest name that does. A
 * command calls it only after it has found no document, so that others pay nothing for it. With
 * --json, or for a collection of truce, prints nothing. */
void cli_note_missing_collection(const struct cli *cli);

/* Returns the form that --canonical asks for. */
enum json_form cli_form(const struct cli *cli);

/* Prints the rest of a cursor and closes it. Prints an error, too. Sets *any to whether it printed a
 * document; `any` may be NULL. Returns the exit code. */
int cli_print_cursor(const struct cli *cli, truce_cursor *cursor, bool *any);

#endif

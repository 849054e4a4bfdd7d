#ifndef TRUCE_CLI_CORE_OPERATION_ROW_H
#define TRUCE_CLI_CORE_OPERATION_ROW_H

/*
 * Operations of the table (operations/operation.h) as commands.
 *
 * A command names the row of its operation. Its arguments and options are fields of the row: the
 * argument QUEUE is the field `queue`, the option --keep-dead is the field `keepDeadMS`. Types,
 * bounds, words, and help come from the row. truce_command runs the request: in this process, or on
 * a truce server.
 *
 *     field            option
 *     laneWidth        --lane-width N
 *     keepDeadMS       --keep-dead DURATION     500ms, 90s, 5m, 24h, 7d
 *     runAtMS          --run-at TIME            2026-12-24T18:00:00Z
 *     tags (array)     --tag TAG                may be repeated; or one array: --tag '["a", "b"]'
 *
 * An argument "ID..." runs the operation once for each value.
 */
#include "cli/core/cli.h"

struct cli_row {
    /* The name of the operation, such as "truceCron". */
    const char *name;
    /* The fields that the command sets unless the call gives them, such as "{action: 'pause'}", or
     * NULL. */
    const char *set;
    /* Arguments and options whose names differ from those of their fields, such as "BOOK collection
     * --list field", or NULL. */
    const char *named;
    /* The fields that are options, such as "limit pool", or with "!", all fields except these. NULL
     * means all fields that are neither arguments nor set, and "" means none. */
    const char *fields;
    /* The line for people, in which {field} is a field of the reply, or else of the request, and
     * {versions version versions} a count of the reply with its noun. For a list, it is the line of
     * an element, and {time} is an element of `times` that is not a document. NULL means JSON, and
     * "" means no output. */
    const char *format;
    /* The message for "not found". NULL means the reason in the reply. */
    const char *none;
    /* The document of the reply that the command prints. NULL means the reply. */
    const char *show;
    /* The array of the reply that the command lists. */
    const char *list;
    /* An empty list counts as "not found". */
    bool needed;
    /* A list with elements is a negative result (exit code 1). For an empty list, the note `none`
     * is printed. */
    bool findings;
    /* The field of the last element that becomes `after` of the next page, "" if the reply has a
     * field `after`, or NULL for a list without pages. */
    const char *next;
    /* The maximum number of elements of a page. 0 means 1,000. */
    int64_t page;
    /* Without --limit, all pages are printed. */
    bool all;
    /* The status "limit reached" is a negative result (exit code 1). */
    bool limits;
    /* An error of an invalid call is a negative result (exit code 1): the arguments were checked, so
     * the state of a document does not allow the operation. */
    bool refuses;
    /* Returns whether the reply is a negative result (exit code 1). "Not found" always is. */
    bool (*negative)(const bson_t *reply);
    /* Prints the reply, or an element of the list, for people. NULL means that `format` is used. */
    bool (*print)(struct cli *cli, const bson_t *reply);
    /* `print` is also used with --json. */
    bool prints_json;
};

/* Runs the operation of a command. It is the `run` of each command with a row. */
int cli_row_run(struct cli *cli);
/* Runs a row as cli_row_run does, with the options of the call, and with further fields (NULL means
 * none). An argument whose field is among them is not read. */
int cli_row_run_with(struct cli *cli, const struct cli_row *row, const bson_t *more);
/* Reads the request of the command from its arguments and options. Returns CLI_DONE, or CLI_USAGE
 * after printing the error. `request` is always initialized. */
int cli_row_request(struct cli *cli, bson_t *request);
/* Runs an operation, or a command of MongoDB, within --deadline. `reply` is always initialized. */
truce_status cli_row_call(const struct cli *cli, const bson_t *request, bson_t *reply,
                          bson_error_t *error);
/* Runs an operation, or a command of MongoDB. Returns the exit code after printing the error.
 * `reply` is always initialized. */
int cli_row_send(struct cli *cli, const bson_t *request, bson_t *reply);
/* Runs an operation as cli_row_send does. If it finds nothing, prints the reason and returns
 * CLI_NO. */
int cli_row_send_found(struct cli *cli, const bson_t *request, bson_t *reply);
/* Prints the error of a call, with the names of options for those of fields, and returns the exit
 * code. */
int cli_row_error(const struct cli *cli, truce_status status, bson_error_t *error);

/* Records of a request that come from lines of a file: record N, from 1, is from line lines[N - 1].
 */
struct cli_row_lines {
    /* The word for a record in errors, such as "record" in "record 17: ...". */
    const char *what;
    int64_t *lines;
    int64_t count, room;
};

void cli_row_lines_add(struct cli_row_lines *lines, int64_t line);
/* Returns the line of a record, or 0. */
int64_t cli_row_line_of(const struct cli_row_lines *lines, int64_t record);
/* Runs an operation as cli_row_send does. Its errors name lines and not records. */
int cli_row_send_lines(struct cli *cli, const bson_t *request, const struct cli_row_lines *lines,
                       bson_t *reply);

/* Returns all options of a command: its own, and those of its row. They live as long as the
 * process. */
const struct cli_option *cli_command_options(const struct cli_command *command);
/* Returns the words that the value of an option may be: "a", "b", NULL. Returns NULL if any value
 * is allowed. */
const char *const *cli_row_words(const struct cli_command *command, const char *name);

/* Appends a value: Extended JSON, 24 hexadecimal digits, or a word. If the text is bad, prints the
 * error and returns false. `label` names it. */
bool cli_row_append_value(const struct cli *cli, const char *label, const char *text,
                          const char *key, bson_t *to);

#endif

#ifndef TRUCE_CLI_CORE_CLI_H
#define TRUCE_CLI_CORE_CLI_H

/*
 * The command line: `truce NOUN VERB ARGUMENTS --options`.
 *
 * A command is one constant of struct cli_command. Each file ends with the list of its commands,
 * and the table in commands.c joins these lists. The help, the man page, the shell completion, and
 * the check of the arguments are made from the constant, so that none of them can go stale:
 *
 *     static int run(struct cli *cli)
 *     {
 *         const char *collection = cli->arguments[0];
 *         ...
 *         return CLI_DONE;
 *     }
 *
 *     static const struct cli_command cli_collections_drop = {
 *         .noun = "collections", .verb = "drop", .arguments = "COLLECTION",
 *         .summary = "delete a collection with everything in it",
 *         .help = "...", .example = "truce collections drop old --store school.truce",
 *         .options = (const struct cli_option[]){{"force", 0, NULL, "do not ask"}, {0}},
 *         .store = CLI_STORE_WRITE, .run = run,
 *     };
 *
 *     cli_command_list cli_collections_commands = {&cli_collections_drop, NULL};
 *
 * No function calls exit(): a command returns its exit code, and main() frees everything. Errors go
 * to standard error as "truce: message"; results go to standard output.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "bson/json.h"
#include "cli/core/exit_codes.h"
#include "truce/truce.h"

#define CLI_ARGUMENTS_MAX 1000
#define CLI_OPTIONS_MAX   64
#define CLI_LABEL_MAX     4200
#define CLI_DURATION_MAX  24

struct cli_option {
    /* The name without "--". NULL ends a table. */
    const char *name;
    /* A short form, or 0. */
    char letter;
    /* The placeholder of its value, such as "FILE", or NULL for a flag. */
    const char *value;
    const char *help;
    /* The option may be given several times (cli_texts). */
    bool many;
};

enum cli_store_use {
    /* The command opens no store, or opens it itself (cli_store_open). */
    CLI_STORE_NONE,
    /* The store must exist and is opened read-only. */
    CLI_STORE_READ,
    /* The store must exist. If this process may not write its file, it is opened read-only. */
    CLI_STORE_MAY_CHANGE,
    /* The store must exist. */
    CLI_STORE_CHANGE,
    /* The store is created if it does not exist and the call is not refused. */
    CLI_STORE_WRITE,
    /* As CLI_STORE_WRITE with --upsert, and otherwise as CLI_STORE_CHANGE. */
    CLI_STORE_UPSERT,
    /* As CLI_STORE_WRITE, for a command that has already read its input. */
    CLI_STORE_INPUT,
    /* As CLI_STORE_READ. If the file does not exist, an empty store in memory takes its place. */
    CLI_STORE_DRY_RUN,
};

struct cli;
struct cli_row;

struct cli_command {
    /* The words of the command. `verb` is NULL for a command without one, such as `truce find`. */
    const char *noun, *verb;
    /* The arguments, such as "COLLECTION [FILTER]" or "COLLECTION [DOCUMENT...]". Their number is
     * checked. */
    const char *arguments;
    /* A verb phrase of at most 60 characters, in lower case, without a full stop. */
    const char *summary;
    /* Paragraphs, in lines of up to 80 columns, or NULL if the summary is sufficient. */
    const char *help;
    /* Lines that a user can paste into a shell. */
    const char *example;
    /* The options besides the common ones, or NULL. */
    const struct cli_option *options;
    /* The operation of the table that the command runs (operation_row.h), or NULL. The operation
     * adds options: cli_command_options returns all of them. */
    const struct cli_row *row;
    enum cli_store_use store;
    /* The command writes documents of the collection in its first argument, so truce's own
     * collections are refused. */
    bool writes_documents;
    /* The collection in its first argument may be a view of a file (struct cli). */
    bool reads_views;
    /* The help omits the command, because only the program itself uses it. */
    bool hidden;
    int (*run)(struct cli *cli);
};

/* The commands of a file, followed by NULL. */
typedef const struct cli_command *const cli_command_list[];
/* The table of all commands, followed by NULL. main() sets it before the first call into cli/core,
 * so that cli/core depends on no command. */
extern const struct cli_command *const *cli_commands;
/* --store, --database, --json, --pretty, --table, --deadline, --slow, --quiet, --help: the options
 * of every command. */
extern const struct cli_option cli_common_options[];
/* Returns true if the option is a common one, and not an option of the command with the same
 * name. */
bool cli_is_common(const struct cli_option *option);

struct cli {
    /* argv[0]. */
    const char *program;
    const struct cli_command *command;
    /* The arguments, followed by NULL. */
    const char *arguments[CLI_ARGUMENTS_MAX + 1];
    int count;
    /* --store or TRUCE_STORE, or NULL. */
    const char *uri;
    /* --store gave the URI. */
    bool uri_given;
    /* --database; NULL means the database of the store, or of its URI. */
    const char *database;
    /* The store, opened as command->store says. main() closes it. */
    truce_store *store;
    /* The file of the store did not exist before the call. */
    bool creates_store;
    /* The call reads a view of a file, which the store does not know (cli/data/view.h). */
    bool is_view;
    /* --json: every result is a document. */
    bool json;
    /* --quiet: print no progress and no notes. */
    bool quiet;
    /* The process is a child that only finds out whether the call is refused (cli_store_open). */
    bool rehearsal;
    /* --deadline, for every call to the store. 0 means the default of the call. */
    uint32_t deadline_ms;
    /* --slow or TRUCE_SLOW, or 0. */
    uint32_t slow_ms;
    struct cli_given {
        const struct cli_option *option;
        const char *value;
        /* The line in the file of --config, or 0 if the call gave the option. */
        int line;
    } given[CLI_OPTIONS_MAX];
    int given_count;
    /* See config.h; may be NULL. */
    const char *config_path;
    /* The text of the file. Values of `given` point into it. */
    char *config_text;
};

/* ---- files that a call writes ---------------------------------------------------------------- */

/* Returns the path of a store that is a file, or NULL. */
const char *cli_store_path(const char *uri);
bool cli_store_is_server(const char *uri);
/* Fails with INVALID if the file to be written belongs to the store (a URI, or NULL), or is a file
 * that the call reads. */
truce_status cli_output_check(const struct cli *cli, const char *path, const char *store,
                              bson_error_t *error);

/* ---- options (the name must be in the command's table) ------------------------------------- */

bool cli_flag(const struct cli *cli, const char *name);
/* Returns the option's value, or NULL. A call may give another value only for an option with
 * `many`, and the last one counts. A value in the call overrides one in the file of --config. */
const char *cli_text(const struct cli *cli, const char *name);
/* Returns the i-th value of an option with `many`, or NULL. */
const char *cli_texts(const struct cli *cli, const char *name, int i);
/* Reads a number, or `otherwise` if the option was not given. If the value is not a number from
 * `least` to `most`, prints the error and returns false; the caller returns CLI_USAGE. */
bool cli_number(const struct cli *cli, const char *name, int64_t least, int64_t most,
                int64_t otherwise, int64_t *number);
/* The longest time of --deadline and --slow, which 32 bits hold in milliseconds: 49 days. */
#define CLI_WAIT_MAX_MS (INT64_C(49) * 86400000)
/* Does the same for a duration: "500ms", "90s", "5m", "24h", "7d". */
bool cli_duration(const struct cli *cli, const char *name, int64_t least_ms, int64_t most_ms,
                  int64_t otherwise_ms, int64_t *ms);
/* Reads "500ms", "90s", "5m", "24h", "7d", "0", or "-1". */
bool cli_duration_read(const char *text, int64_t *ms);
/* Writes a duration as cli_duration_read reads it, in the largest unit that fits. Returns
 * `text`. */
const char *cli_duration_show(int64_t ms, char text[CLI_DURATION_MAX]);
/* Writes the place of the option, for an error: "--port", or "truce.conf line 3: port". */
void cli_option_label(const struct cli *cli, const char *name, char *label, size_t size);

/* Reads a date, or 0 if the option was not given. If the value is not a date, prints the error and
 * returns false. */
bool cli_date(const struct cli *cli, const char *name, int64_t *date_ms);

/* ---- documents ----------------------------------------------------------------------------- */

/* Refuses --database for a command that works on a whole file. Prints the error and returns the
 * exit code. */
int cli_refuse_database(const struct cli *cli);
/* The same for a command that works on the whole of a file, but on one database of a server. */
int cli_refuse_database_of_file(const struct cli *cli);

/* Parses Extended JSON into a document that the caller destroys. `what` names it in the error
 * ("FILTER", "--sort"). NULL as text gives an empty document. If the text is bad, prints the error
 * and returns false; the caller returns CLI_USAGE. */
bool cli_document(const struct cli *cli, const char *text, const char *what, bson_t *document);
/* Does the same where an array may be given instead of a document. */
bool cli_document_or_array(const struct cli *cli, const char *text, const char *what,
                           bson_t *document, bool *is_array);
/* Parses the document of an option. If the option was not given, sets *given to false, and the
 * document is empty. */
bool cli_option_document(const struct cli *cli, const char *name, bson_t *document, bool *given);

/* Prints one line to standard output, or the form of --pretty or --table. Returns false if the
 * output cannot be written, for example with EPIPE. The caller then stops and returns
 * cli_output_end(). */
bool cli_print(const bson_t *document, enum json_form form);
/* Sets the form of all later documents: one a line, over several lines, or a table that
 * cli_output_end prints. */
enum cli_shape { CLI_LINES, CLI_PRETTY, CLI_TABLE };
void cli_print_as(enum cli_shape shape);
/* Prints the remaining documents and closes the cursor, which may be NULL. `status` is the result
 * of opening it. Returns the exit code. */
int cli_print_documents(const struct cli *cli, truce_status status, truce_cursor *cursor,
                        bson_error_t *error);
/* Prints an array of documents and destroys it. `print` NULL prints as cli_print does. */
int cli_print_array(const struct cli *cli, truce_status status, bson_t *array,
                    bool (*print)(const struct cli *cli, const bson_t *document),
                    const bson_error_t *error);
/* Prints a result: the document with --json or --table, otherwise the formatted string and a
 * newline. */
TRUCE_PRINTF(3, 4)
bool cli_answer(const struct cli *cli, const bson_t *document, const char *format, ...);
/* Writes bytes unchanged, for output that consists of documents. Returns false as cli_print
 * does. */
bool cli_write(const void *bytes, size_t size);
/* Prints a string for people. It may contain strings of the store, so control characters are
 * escaped. */
TRUCE_PRINTF(1, 2)
bool cli_put(const char *format, ...);
/* Prints the escape sequence of a color for the text that follows. Prints nothing if the output is
 * not a terminal, the terminal is dumb, or NO_COLOR is set. */
void cli_paint(const char *sequence);
/* Flushes the output. Returns `code`, or CLI_FAILED if standard output could not be written. A full
 * disk is reported; a reader that closed the pipe (`| head`) is not. */
int cli_output_end(int code);

/* ---- errors -------------------------------------------------------------------------------- */

/* Prints "truce: message" (a document with --json) to standard error and returns CLI_USAGE. */
TRUCE_PRINTF(2, 3) int cli_usage(const struct cli *cli, const char *format, ...);
/* Does the same with another exit code. */
TRUCE_PRINTF(3, 4) int cli_message(const struct cli *cli, int code, const char *format, ...);
/* Prints a note for people, unless --quiet is given: "truce: resumes at line 17". */
TRUCE_PRINTF(2, 3) void cli_note(const struct cli *cli, const char *format, ...);
/* Prints the document with --json, else the formatted string ("truce: ..."), to standard error. */
TRUCE_PRINTF(3, 4)
void cli_report(const struct cli *cli, const bson_t *document, const char *format, ...);
/* Prints the error of a call and returns the exit code of its status. `what` ("line 17") is put in
 * front of the message and may be NULL. */
int cli_error(const struct cli *cli, const char *what, truce_status status,
              const bson_error_t *error);

/* ---- the store ----------------------------------------------------------------------------- */

/* Chooses the store of the call: `option` (the value of --store), or that of TRUCE_STORE if it is
 * NULL. */
void cli_store_choose(struct cli *cli, const char *option);

/*
 * Opens the URI of --store or TRUCE_STORE. Returns CLI_DONE, or the exit code after printing the
 * error. A process that forked opens a store of its own.
 *
 * CLI_STORE_WRITE may return a second time, in a child with `rehearsal`. The child runs the rest of
 * the command on an empty store in memory, to find out whether the call would be refused. Call it
 * before anything is read from standard input or written anywhere.
 */
int cli_store_open(struct cli *cli, enum cli_store_use use, truce_store **store);
/* Returns the exit code of a child with `rehearsal`. main() calls it. */
int cli_rehearsal_end(struct cli *cli, int code);

#endif

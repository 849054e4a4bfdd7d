#ifndef TRUCE_CLI_CORE_CLI_H
#define TRUCE_CLI_CORE_CLI_H

/*
 * The command line: `truce NOUN VERB ARGUMENTS --options`.
 *
 * A command is one constant of struct cli_command, in the file that is named after it; the table in
 * commands.c lists them all. Its help, the man page and the shell completion are made from that
 * constant, and so is the check of its arguments, so that none of them can go stale:
 *
 *     static int run(struct cli *cli)
 *     {
 *         const char *collection = cli->arguments[0];
 *         ...
 *         return CLI_DONE;
 *     }
 *
 *     const struct cli_command cli_collections_drop = {
 *         .noun = "collections", .verb = "drop", .arguments = "COLLECTION",
 *         .summary = "delete a collection with everything in it",
 *         .help = "...", .example = "truce collections drop old --store school.truce",
 *         .options = (const struct cli_option[]){{"force", 0, NULL, "do not ask"}, {0}},
 *         .store = CLI_STORE_WRITE, .run = run,
 *     };
 *
 * Everything here exits by returning: a command returns its exit code, and main() releases.
 * Errors go to standard error as "truce: sentence"; answers go to standard output.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "bson/json.h"
#include "truce/truce.h"

enum cli_exit {
    CLI_DONE = 0,
    CLI_NO = 1,     /* answered "no": not found, a conflict, findings, bad lines among good ones */
    CLI_USAGE = 2,  /* the call or its input is wrong */
    CLI_FAILED = 3, /* the store, the disk or the network failed */
};

#define CLI_ARGUMENTS_MAX 1000
#define CLI_OPTIONS_MAX   64
#define CLI_SAID_MAX      4200

struct cli_option {
    const char *name;  /* without "--"; NULL ends a table */
    char letter;       /* a short form, or 0 */
    const char *value; /* what follows it, in capitals: "FILE"; NULL: nothing, it is a flag */
    const char *help;
    bool many; /* may be given several times: cli_texts */
};

enum cli_store_use {
    CLI_STORE_NONE,   /* the command opens no store, or does it itself (cli_store_open) */
    CLI_STORE_READ,   /* it must exist, and is opened read-only */
    CLI_STORE_CHANGE, /* it must exist */
    CLI_STORE_WRITE,  /* it is created if it does not exist, and the call is not refused */
    CLI_STORE_INPUT,  /* ... if it does not exist: for a command that has read its input by then */
};

struct cli;

struct cli_command {
    const char *noun, *verb; /* verb NULL: `truce find` */
    const char *arguments;   /* "COLLECTION [FILTER]", "COLLECTION [DOCUMENT...]"; checked */
    const char *summary;     /* one line, lower case, no full stop */
    const char *help;        /* paragraphs, lines of up to 80 columns; NULL: the summary is all */
    const char *example;     /* lines that can be pasted */
    const struct cli_option *options; /* besides the common ones; NULL: none */
    enum cli_store_use store;
    bool hidden; /* not listed: for the program's own use */
    int (*run)(struct cli *cli);
};

/* commands.c: NULL at the end; commands of one noun stand together, in the order of the help */
extern const struct cli_command *const cli_commands[];
/* --store, --json, --pretty, --table, --deadline, --slow, --quiet, --help: every command has them */
extern const struct cli_option cli_common_options[];
/* Is it one of them, and not an option of the command that has its name? */
bool cli_is_common(const struct cli_option *option);

struct cli {
    const char *program; /* argv[0] */
    const struct cli_command *command;
    const char *arguments[CLI_ARGUMENTS_MAX + 1]; /* NULL after the last */
    int count;
    const char *uri;      /* --store or TRUCE_STORE; NULL: neither */
    bool uri_given;       /* it is that of --store */
    const char *database; /* --database of every command; NULL: the store's own, or its URI's */
    truce_store *store;   /* open where the command asked for it; main closes it */
    bool json;            /* --json: every answer is a document */
    bool quiet;           /* --quiet: no progress, no remarks */
    bool rehearsal;       /* this process only finds out whether the call is refused */
    uint32_t deadline_ms; /* --deadline: of every call to the store; 0: its own */
    uint32_t slow_ms;     /* --slow or TRUCE_SLOW_MS; 0: neither */
    struct cli_given {
        const struct cli_option *option;
        const char *value;
        int line; /* of the file of --config; 0: the call says it */
    } given[CLI_OPTIONS_MAX];
    int given_count;
    const char *config_path; /* config.h; NULL: none */
    char *config_text;       /* values of `given` stand in it */
};

/* ---- files that a call writes ---------------------------------------------------------------- */

/* The path of a store that is a file, or NULL. */
const char *cli_store_path(const char *uri);
/* INVALID: the file that is to be written is part of the store (a URI; NULL: none), or a file that the call reads. */
truce_status cli_output_check(const struct cli *cli, const char *path, const char *store,
                              bson_error_t *error);

/* ---- options (the name must be in the command's table) ------------------------------------- */

bool cli_flag(const struct cli *cli, const char *name);
/* the value, or NULL; the last if it was given several times */
const char *cli_text(const struct cli *cli, const char *name);
/* the i-th value of an option with `many`, or NULL */
const char *cli_texts(const struct cli *cli, const char *name, int i);
/* `*number` is `otherwise` if the option was not given. False: not a number from `least` to `most`;
 * the error was printed, return CLI_USAGE. */
bool cli_number(const struct cli *cli, const char *name, int64_t least, int64_t most,
                int64_t otherwise, int64_t *number);
/* Who said it, for an error: "--port", or "truce.conf line 3: port". */
void cli_option_said(const struct cli *cli, const char *name, char *said, size_t size);

/* A date of an option; 0: it was not given. False: it is none, which was said. */
bool cli_date(const struct cli *cli, const char *name, int64_t *date_ms);

/* The i-th argument as a number; false: it is none, and that was said. */
bool cli_argument_number(const struct cli *cli, int i, const char *what, int64_t least,
                         int64_t most, int64_t *number);

/* ---- documents ----------------------------------------------------------------------------- */

/* Extended JSON to a document that the caller destroys. `what` names it in the error ("FILTER",
 * "--sort"). False: bad; the error was printed, return CLI_USAGE. NULL as text: an empty one. */
bool cli_document(const struct cli *cli, const char *text, const char *what, bson_t *document);
/* The same where an array may stand as well as a document. */
bool cli_document_or_array(const struct cli *cli, const char *text, const char *what,
                           bson_t *document, bool *is_array);
/* The document of an option; `*given` is false, and the document empty, if it was not given. */
bool cli_option_document(const struct cli *cli, const char *name, bson_t *document, bool *given);

/* One line to standard output, or what --pretty and --table make of it. False: it could not be written (say EPIPE); stop, and return
 * cli_output_end(). */
bool cli_print(const bson_t *document, enum json_form form);
/* From now on documents are printed so: one a line, over several lines, or as a table that
 * cli_output_end prints. */
enum cli_shape { CLI_LINES, CLI_PRETTY, CLI_TABLE };
void cli_print_as(enum cli_shape shape);
/* Prints the documents that are left, and closes the cursor, which may be NULL. `status` is that of its opening.
 * The exit code. */
int cli_print_documents(const struct cli *cli, truce_status status, truce_cursor *cursor,
                        bson_error_t *error);
/* The same for at most `limit` documents, of a cursor that may have one more: if it has, and --limit was not given, a remark
 * says that there are more. */
int cli_print_page(const struct cli *cli, truce_status status, truce_cursor *cursor, int64_t limit,
                   bson_error_t *error);
/* The same for an array of documents, which is destroyed. `print` NULL: as cli_print prints. */
int cli_print_array(const struct cli *cli, truce_status status, bson_t *array,
                    bool (*print)(const struct cli *cli, const bson_t *document),
                    const bson_error_t *error);
/* An answer: the document with --json or --table, else the text of the format and a newline. */
TRUCE_PRINTF(3, 4)
bool cli_answer(const struct cli *cli, const bson_t *document, const char *format, ...);
/* Bytes as they are; what documents are made of. False as for cli_print. */
bool cli_write(const void *bytes, size_t size);
/* Text for people, which may have words of the store in it: without what a terminal would obey. */
TRUCE_PRINTF(1, 2)
bool cli_put(const char *format, ...);
/* The escape sequence of a colour, which holds from here on; nothing where there are none: not on a terminal, on a
 * dumb one, or NO_COLOR is set. */
void cli_paint(const char *sequence);
/* Flushes; `code`, or, whatever that is, CLI_FAILED if standard output could not be written: a disk that is full, or, without
 * a word, a reader that closed the pipe (`| head`). */
int cli_output_end(int code);

/* ---- errors -------------------------------------------------------------------------------- */

/* "truce: sentence" (with --json a document) to standard error; return CLI_USAGE with it. */
TRUCE_PRINTF(2, 3) int cli_usage(const struct cli *cli, const char *format, ...);
/* The same for any exit code. */
TRUCE_PRINTF(3, 4) int cli_say(const struct cli *cli, int code, const char *format, ...);
/* A remark for people, not with --quiet: "truce: goes on at line 17" */
TRUCE_PRINTF(2, 3) void cli_remark(const struct cli *cli, const char *format, ...);
/* The document with --json, else the text of the format ("truce: ..."), to standard error. */
TRUCE_PRINTF(3, 4)
void cli_tell(const struct cli *cli, const bson_t *document, const char *format, ...);
/* Prints the error of a call and gives the exit code that belongs to its status. `what` is put in
 * front ("line 17") or NULL. */
int cli_error(const struct cli *cli, const char *what, truce_status status,
              const bson_error_t *error);

/* ---- the store ----------------------------------------------------------------------------- */

/* Opens the URI of --store or TRUCE_STORE; CLI_DONE, or the exit code with the error printed. A
 * process that forked opens its own.
 *
 * CLI_STORE_WRITE may return a second time, in a child that runs the rest of the command on an empty store
 * in memory (`rehearsal`), to find out whether it would be refused: so it comes before anything is read
 * from standard input or written anywhere. */
int cli_store_open(struct cli *cli, enum cli_store_use use, truce_store **store);
/* The exit code of a child with `rehearsal`; main calls it. */
int cli_rehearsal_end(struct cli *cli, int code);

#endif

/* Prints the output of a command: results, errors, and notes. */
#include "cli/core/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/core/pretty_output.h"
#include "cli/core/table_output.h"

/* ---- writing -------------------------------------------------------------------------------- */

static int output_errno; /* The errno of the first write that failed, or 0. */

static bool output_note_error(bool good)
{
    if (!good && !output_errno)
        output_errno = errno ? errno : EIO;
    return good;
}

/* Prints a string with escapes for characters that a terminal obeys or a reader cannot see. */
static void put_clean(FILE *file, const char *text)
{
    size_t room = 10 * strlen(text) + 1;
    char *clean = bson_malloc(room);

    memcpy(clean, text, strlen(text) + 1);
    truce__message_clean(clean, room);
    fputs(clean, file);
    bson_free(clean);
}

TRUCE_PRINTF(2, 0)
static void put_clean_format(FILE *file, const char *format, va_list arguments)
{
    char *text = bson_strdupv_printf(format, arguments);

    put_clean(file, text);
    bson_free(text);
}

bool cli_write(const void *bytes, size_t size)
{
    return output_note_error(fwrite(bytes, 1, size, stdout) == size);
}

bool cli_put(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    put_clean_format(stdout, format, arguments);
    va_end(arguments);
    return output_note_error(!ferror(stdout));
}

/* ---- results ------------------------------------------------------------------------------- */

static bool output_write_line(FILE *file, const bson_t *document, enum json_form form)
{
    /* Reused for each document. Only one thread prints. */
    static struct buffer line;
    bool good;

    line.size = 0;
    truce__json_write(&line, document, false, form);
    truce__buffer_append_byte(&line, '\n');
    good = output_note_error(fwrite(line.bytes, 1, line.size, file) == line.size);
    if (line.room > 1 << 20)
        truce__buffer_release(&line);
    return good;
}

static enum cli_shape shape;
/* With CLI_TABLE: the table of the documents printed so far. */
static struct table *table;

void cli_print_as(enum cli_shape wanted)
{
    shape = wanted;
}

static bool print_pretty(const bson_t *document, enum json_form form)
{
    struct buffer text = {0};
    bool good;

    cli_pretty(&text, document, false, form);
    good = cli_write(text.bytes, text.size);
    truce__buffer_release(&text);
    return good;
}

bool cli_print(const bson_t *document, enum json_form form)
{
    if (shape == CLI_PRETTY)
        return print_pretty(document, form);
    if (shape == CLI_LINES)
        return output_write_line(stdout, document, form);
    if (!table)
        table = cli_table_new(stdout);
    return cli_table_add(table, document, form);
}

/* Prints the rest of the table, and a note if values had no column. */
static void end_table(void)
{
    int left_out = 0;

    if (!table)
        return;
    cli_table_end(table, &left_out);
    table = NULL;
    if (left_out)
        fprintf(
            stderr,
            "truce: the table omits %d values: it has at most %d columns, made from the first %d "
            "documents; without --table, all values are printed\n",
            left_out, TABLE_COLUMNS, TABLE_ROWS);
}

bool cli_answer(const struct cli *cli, const bson_t *document, const char *format, ...)
{
    va_list arguments;

    if (cli->json || shape == CLI_TABLE)
        return cli_print(document, JSON_RELAXED);
    va_start(arguments, format);
    put_clean_format(stdout, format, arguments);
    va_end(arguments);
    return output_note_error(putchar('\n') != EOF && !ferror(stdout));
}

void cli_paint(const char *sequence)
{
    const char *none = getenv("NO_COLOR"), *terminal = getenv("TERM");
    bool plain =
        !isatty(STDOUT_FILENO) || (none && *none) || (terminal && !strcmp(terminal, "dumb"));

    if (!plain)
        fputs(sequence, stdout);
}

int cli_output_end(int code)
{
    /* Reports a failure only once, because a command may call the function before main() does. */
    static bool reported;

    end_table();
    errno = 0;
    if (output_note_error(fflush(stdout) == 0) && !ferror(stdout))
        return code;
    if (output_errno != EPIPE && !reported)
        fprintf(stderr, "truce: cannot write standard output: %s\n",
                strerror(output_errno ? output_errno : EIO));
    reported = true;
    return CLI_FAILED;
}

/* ---- errors -------------------------------------------------------------------------------- */

static const char *output_kind_of(int code)
{
    return code == CLI_USAGE ? "invalid" : code == CLI_NO ? "no" : "failed";
}

/* Prints an error to standard error: as text, or as a document with --json. */
static void print_error(const struct cli *cli, const char *status, const bson_error_t *error,
                        const char *message)
{
    bson_t document = BSON_INITIALIZER;

    fflush(stdout);
    if (!cli->json) {
        fputs("truce: ", stderr);
        put_clean(stderr, message);
        putc('\n', stderr);
        bson_destroy(&document);
        return;
    }
    BSON_APPEND_UTF8(&document, "error", message);
    BSON_APPEND_UTF8(&document, "status", status);
    if (error && error->domain == TRUCE_ERROR_SERVER) {
        BSON_APPEND_INT32(&document, "code", (int32_t)error->code);
        BSON_APPEND_UTF8(&document, "codeName", truce_error_name(error->code));
    }
    output_write_line(stderr, &document, JSON_RELAXED);
    bson_destroy(&document);
}

static void output_message(const struct cli *cli, int code, const char *format, va_list arguments)
{
    char message[2000];

    vsnprintf(message, sizeof message, format, arguments);
    print_error(cli, output_kind_of(code), NULL, message);
}

int cli_usage(const struct cli *cli, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    output_message(cli, CLI_USAGE, format, arguments);
    va_end(arguments);
    return CLI_USAGE;
}

int cli_message(const struct cli *cli, int code, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    output_message(cli, code, format, arguments);
    va_end(arguments);
    return code;
}

void cli_note(const struct cli *cli, const char *format, ...)
{
    va_list arguments;

    if (cli->quiet)
        return;
    fflush(stdout);
    fputs("truce: ", stderr);
    va_start(arguments, format);
    put_clean_format(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

void cli_report(const struct cli *cli, const bson_t *document, const char *format, ...)
{
    va_list arguments;

    fflush(stdout);
    if (cli->json) {
        output_write_line(stderr, document, JSON_RELAXED);
        return;
    }
    flockfile(stderr);
    fputs("truce: ", stderr);
    va_start(arguments, format);
    put_clean_format(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    funlockfile(stderr);
}

/* Returns the exit code: CLI_NO for a result that the caller can expect, CLI_USAGE for a wrong
 * call, and CLI_FAILED for a failure of the store. */
static int cli_exit_of(truce_status status)
{
    switch (status) {
    case TRUCE_OK:
        return CLI_DONE;
    case TRUCE_NOT_FOUND:
    case TRUCE_CONFLICT:
    case TRUCE_DUPLICATE:
    case TRUCE_EXPIRED:
    case TRUCE_REFUSED:
        return CLI_NO;
    case TRUCE_INVALID:
    case TRUCE_LIMIT:
        return CLI_USAGE;
    case TRUCE_LOCKED:
    case TRUCE_UNKNOWN:
    case TRUCE_IO:
    case TRUCE_CORRUPT:
    case TRUCE_TIMEOUT:
        return CLI_FAILED;
    }
    return CLI_FAILED;
}

/* Returns the ways out of a damaged file, or "" if the message names one. */
static const char *output_remedy(truce_status status, const char *message)
{
    return status == TRUCE_CORRUPT && !strstr(message, "salvage") &&
                   (strstr(message, "of the file is damaged") ||
                    strstr(message, "of the log is damaged"))
               ? "; restore a backup or an archive, or rescue what is readable with truce salvage"
               : "";
}

int cli_error(const struct cli *cli, const char *what, truce_status status,
              const bson_error_t *error)
{
    char message[2000];

    snprintf(message, sizeof message, "%s%s%s%s", what ? what : "", what ? ": " : "",
             error->message, output_remedy(status, error->message));
    print_error(cli, truce_status_name(status), error, message);
    return cli_exit_of(status);
}

int cli_print_documents(const struct cli *cli, truce_status status, truce_cursor *cursor,
                        bson_error_t *error)
{
    const bson_t *document;

    while (!status) {
        status = truce_cursor_next(cursor, &document, error);
        if (status || !document || !cli_print(document, JSON_RELAXED))
            break;
    }
    truce_cursor_close(cursor);
    return status ? cli_error(cli, NULL, status, error) : CLI_DONE;
}

int cli_print_array(const struct cli *cli, truce_status status, bson_t *array,
                    bool (*print)(const struct cli *cli, const bson_t *document),
                    const bson_error_t *error)
{
    bson_iter_t iter;
    bool good = !status && bson_iter_init(&iter, array);

    while (good && bson_iter_next(&iter)) {
        const uint8_t *bytes;
        uint32_t size;
        bson_t document;

        bson_iter_document(&iter, &size, &bytes);
        good = bson_init_static(&document, bytes, size) &&
               (print ? print(cli, &document) : cli_print(&document, JSON_RELAXED));
    }
    bson_destroy(array);
    return status ? cli_error(cli, NULL, status, error) : CLI_DONE;
}

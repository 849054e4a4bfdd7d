#ifndef TRUCE_CLI_BOOK_BOOK_H
#define TRUCE_CLI_BOOK_BOOK_H

/*
 * Books of a ledger as files. In every form, a book is a list of records, in the order in which
 * they are posted:
 *
 *     {currency: "EUR", digits: 2}
 *     {open: "customers:ada", currency: "EUR", min: "0.00", ...}     an account with its rules
 *     {rules: "customers:ada", min: "-500.00", ...}                  other rules from here on
 *     {id, kind, of, part, date, expires, entries: [{account, amount, currency, type}], meta}
 *
 *     BOOK_NDJSON      one record for each line
 *     BOOK_CSV         one line for each entry; a line without a kind continues the record above it
 *     BOOK_HLEDGER     a journal of hledger, which computes the same balances; comments
 *                      ("; truce: {...}") carry the data that hledger has no syntax for
 *     BOOK_BEANCOUNT   the same for beancount, with account names derived from truce's
 *
 * Amounts ("-12.50") and dates are strings. `date` is the value date.
 */
#include "base/buffer.h"
#include "cli/core/cli.h"
#include "cli/core/file_sink.h"

enum book_form { BOOK_NDJSON, BOOK_CSV, BOOK_HLEDGER, BOOK_BEANCOUNT };

#define CLI_BOOK_FORM_OPTION                                                                       \
    {                                                                                              \
        "form", 0, "FORM", "ndjson, csv, hledger, beancount (default: by the file's name)", false  \
    }

/* Chooses the form by --form, or else by the name of the file. Returns CLI_DONE, or CLI_USAGE after
 * printing the error. */
int cli_book_form(const struct cli *cli, const char *path, enum book_form *form);

/* ---- out (book_export.c, book_export_journal.c) ---------------------------------------------- */

struct book_names; /* The names that accounts have in beancount. */

struct book_writer {
    enum book_form form;
    struct sink *sink;
    /* For CSV: the line with the names of the columns was written. */
    bool begun;
    /* The file could not be written. cli_sink_close or cli_output_end reports the error. */
    bool broken;
    /* For beancount: the names of the accounts so far, or NULL before the first one. Owned. */
    struct book_names *names;
};

/* Appends the text to the sink. */
truce_status book_put(struct book_writer *writer, const struct buffer *out, bson_error_t *error);
/* Writes a record. Fails with INVALID if this form cannot express it, and with IO if it could not
 * be written. */
truce_status cli_book_write(struct book_writer *writer, const bson_t *record, bson_error_t *error);
void cli_book_writer_release(struct book_writer *writer);

/* ---- in (book_import.c, book_import_journal.c, book_import_amount.c, book_import_csv.c) ------ */

typedef truce_status book_function(void *arg, int64_t line, const bson_t *record,
                                   bson_error_t *error);

struct book_source {
    enum book_form form;
    /* The text of the file. Borrowed; ends with a NUL. */
    const char *text;
    /* The rules of a CSV file in another form, or NULL. */
    const bson_t *rules;
    /* The number of the current line. After a failure, that of the line that failed. */
    int64_t line;
    book_function *function;
    void *arg;
};

/* Calls the function for each record until it fails. Fails with INVALID if a line is wrong; the
 * message says why. */
truce_status cli_book_read(struct book_source *source, bson_error_t *error);

/* ---- private to book_*.c -------------------------------------------------------------------- */

truce_status book_write_journal(struct book_writer *writer, const bson_t *record,
                                bson_error_t *error);
truce_status book_read_journal(struct book_source *source, bson_error_t *error);
truce_status book_read_csv(struct book_source *source, bson_error_t *error);
/* Reads the amount at the start of the text, with its currency if it has one. Sets *rest to what
 * follows. */
truce_status book_read_amount(enum book_form form, const char *text, char **amount, char **currency,
                              const char **rest, bson_error_t *error);
/* Ids for the records of a file without ids. An id is derived from the content, and from the number
 * of earlier records with the same content. */
struct book_ids;
struct book_ids *book_ids_new(void);
void book_ids_free(struct book_ids *ids);
void book_make_id(struct book_ids *ids, const char *prefix, const char *content, size_t size,
                  bson_t *record);

#endif

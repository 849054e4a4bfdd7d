#ifndef TRUCE_CLI_BOOK_BOOK_H
#define TRUCE_CLI_BOOK_BOOK_H

/*
 * Books as files. In all forms a book is a list of records, in the order in which they can be posted:
 *
 *     {currency: "EUR", digits: 2}
 *     {open: "customers:ada", currency: "EUR", min: "0.00", ...}     an account with its rules
 *     {rules: "customers:ada", min: "-500.00", ...}                  other rules from here on
 *     {id, kind, of, part, date, expires, entries: [{account, amount, currency, type}], meta}
 *
 *     BOOK_NDJSON      a record a line
 *     BOOK_CSV         a line for each entry; a line without a kind belongs to the record above it
 *     BOOK_HLEDGER     a journal of hledger, which agrees on every balance; what it has no words for stands in comments
 *     BOOK_BEANCOUNT   ("; truce: {...}"). The same of beancount, whose names of accounts are made of ours
 *
 * Amounts are texts ("-12.50"), and so are dates. `date` is the value date.
 */
#include "base/buffer.h"
#include "cli/core/sink.h"
#include "truce/truce.h"

enum book_form { BOOK_NDJSON, BOOK_CSV, BOOK_HLEDGER, BOOK_BEANCOUNT };

/* By its name (NULL: not given), else by that of the file; false: by neither. */
bool cli_book_form(const char *name, const char *path, enum book_form *form);

/* ---- out (book_out.c, book_out_journal.c) --------------------------------------------------- */

struct book_names; /* of accounts, as beancount has them */

struct book_writer {
    enum book_form form;
    struct sink *sink;
    bool begun;
    bool broken; /* it could not be written, which cli_sink_close or cli_output_end tells */
    struct book_names *names;
};

/* Appends it to the sink. */
truce_status book_put(struct book_writer *writer, const struct buffer *out, bson_error_t *error);
/* INVALID: it cannot be said in this form. IO: it could not be written. */
truce_status cli_book_write(struct book_writer *writer, const bson_t *record, bson_error_t *error);
void cli_book_writer_release(struct book_writer *writer);

/* ---- in (book_in.c, book_in_journal.c, book_in_amount.c, book_in_csv.c) ---------------------- */

typedef truce_status book_function(void *arg, int64_t line, const bson_t *record,
                                   bson_error_t *error);

struct book_source {
    enum book_form form;
    const char *text;
    const bson_t *rules; /* of CSV that has another form; NULL: none */
    int64_t line;        /* of what is read; where it was when it failed */
    book_function *function;
    void *arg;
};

/* Calls the function for each record, as long as it returns OK. INVALID: a line is wrong, and why. */
truce_status cli_book_read(struct book_source *source, bson_error_t *error);

/* ---- private to book_*.c -------------------------------------------------------------------- */

truce_status book_write_journal(struct book_writer *writer, const bson_t *record,
                                bson_error_t *error);
truce_status book_read_journal(struct book_source *source, bson_error_t *error);
truce_status book_read_csv(struct book_source *source, bson_error_t *error);
/* What of the text is an amount, with its currency if one stands there; *rest behind it. */
truce_status book_read_amount(enum book_form form, const char *text, char **amount, char **currency,
                              const char **rest, bson_error_t *error);
/* What a file without ids gives its entries: made of the content, and of how often it came before. */
struct book_ids;
struct book_ids *book_ids_new(void);
void book_ids_free(struct book_ids *ids);
void book_make_id(struct book_ids *ids, const char *prefix, const char *content, size_t size,
                  bson_t *record);

#endif

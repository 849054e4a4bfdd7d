/* Writes books: records as NDJSON and as CSV. */
#include <string.h>

#include "base/field.h"
#include "cli/book/book.h"
#include "cli/core/csv.h"

static bool book_export_has(const bson_t *document, const char *field)
{
    return bson_has_field(document, field);
}

truce_status book_put(struct book_writer *writer, const struct buffer *out, bson_error_t *error)
{
    writer->broken = !cli_sink_write(writer->sink, out->bytes, out->size);
    return writer->broken ? truce__fail(TRUCE_IO, error, "cannot write the book") : TRUCE_OK;
}

static truce_status book_export_put(struct book_writer *writer, struct buffer *out,
                                    bson_error_t *error)
{
    truce_status status = book_put(writer, out, error);

    truce__buffer_release(out);
    return status;
}

/* Returns whether the record needs its entries. One that settles or reverses another completely
 * needs none. */
static bool entries_matter(const bson_t *record)
{
    return !book_export_has(record, "of") || book_export_has(record, "part");
}

/* Writes a record as a line of NDJSON, without entries that the record implies (entries_matter). */
static truce_status book_export_write_line(struct book_writer *writer, const bson_t *record,
                                           bson_error_t *error)
{
    struct buffer out = {0};
    bson_t shown = BSON_INITIALIZER;

    if (entries_matter(record))
        bson_concat(&shown, record);
    else
        bson_copy_to_excluding_noinit(record, &shown, "entries", NULL);
    truce__json_write(&out, &shown, false, JSON_CANONICAL);
    truce__buffer_append_byte(&out, '\n');
    bson_destroy(&shown);
    return book_export_put(writer, &out, error);
}

/* ---- CSV ------------------------------------------------------------------------------------ */

static const char *const columns[] = {"id",      "kind",   "of",       "part", "date", "expires",
                                      "account", "amount", "currency", "type", "meta"};

/* Writes one cell of a line. `record` is NULL for the second and later lines of a record. `entry`
 * may be NULL. */
static void write_cell(const char *column, const bson_t *record, const bson_t *entry,
                       struct buffer *out)
{
    bson_iter_t iter;

    if (record && !strcmp(column, "meta") && bson_iter_init_find(&iter, record, column)) {
        struct buffer text = {0};

        /* In the canonical form, numbers keep their types. */
        truce__json_write_value(&text, &iter, JSON_CANONICAL);
        cli_csv_write_text(out, (const char *)text.bytes, text.size);
        truce__buffer_release(&text);
    } else if (record && bson_iter_init_find(&iter, record, column) &&
               strcmp(column, "currency") != 0)
        cli_csv_write(out, &iter);
    else if (entry && bson_iter_init_find(&iter, entry, column))
        cli_csv_write(out, &iter);
}

static void book_export_write_row(const bson_t *record, const bson_t *entry, struct buffer *out)
{
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        if (i)
            truce__buffer_append_byte(out, ',');
        write_cell(columns[i], record, entry, out);
    }
    truce__buffer_append(out, "\r\n", 2);
}

/* Writes {kind: "open", account, currency, meta: the rules} for an account, or {kind: "currency",
 * currency, meta: {digits}} for a currency. */
static void write_other(const bson_t *record, struct buffer *out)
{
    bson_t row = BSON_INITIALIZER, entry = BSON_INITIALIZER, meta;
    const char *kind = book_export_has(record, "open")    ? "open"
                       : book_export_has(record, "rules") ? "rules"
                                                          : "currency";

    BSON_APPEND_UTF8(&row, "kind", kind);
    if (strcmp(kind, "currency") != 0)
        BSON_APPEND_UTF8(&entry, "account", truce__field_text(record, kind));
    if (book_export_has(record, "currency"))
        BSON_APPEND_UTF8(&entry, "currency", truce__field_text(record, "currency"));
    bson_append_document_begin(&row, "meta", 4, &meta);
    bson_copy_to_excluding_noinit(record, &meta, "open", "rules", "currency", NULL);
    bson_append_document_end(&row, &meta);
    book_export_write_row(&row, &entry, out);
    bson_destroy(&entry);
    bson_destroy(&row);
}

/* Writes a transaction: one row for each entry, the first one with the fields of the transaction. A
 * transaction without entries of its own has one row. */
static void write_rows(const bson_t *record, struct buffer *out)
{
    bson_iter_t iter, entries;
    bool first = true;

    if (entries_matter(record) && bson_iter_init_find(&iter, record, "entries") &&
        bson_iter_recurse(&iter, &entries)) {
        while (bson_iter_next(&entries)) {
            uint32_t length;
            const uint8_t *data;
            bson_t entry;

            bson_iter_document(&entries, &length, &data);
            bson_init_static(&entry, data, length);
            book_export_write_row(first ? record : NULL, &entry, out);
            first = false;
        }
    }
    if (first)
        book_export_write_row(record, NULL, out);
}

/* Writes a record as CSV, and the names of the columns before the first one. */
static truce_status book_export_write_csv(struct book_writer *writer, const bson_t *record,
                                          bson_error_t *error)
{
    struct buffer out = {0};

    if (!writer->begun) {
        for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
            if (i)
                truce__buffer_append_byte(&out, ',');
            cli_csv_write_text(&out, columns[i], strlen(columns[i]));
        }
        truce__buffer_append(&out, "\r\n", 2);
    }
    writer->begun = true;
    if (book_export_has(record, "id"))
        write_rows(record, &out);
    else
        write_other(record, &out);
    return book_export_put(writer, &out, error);
}

/* ---- all forms ------------------------------------------------------------------------------ */

int cli_book_form(const struct cli *cli, const char *path, enum book_form *form)
{
    static const struct {
        const char *name;
        enum book_form form;
    } names[] = {{"ndjson", BOOK_NDJSON},       {"csv", BOOK_CSV},        {"hledger", BOOK_HLEDGER},
                 {"beancount", BOOK_BEANCOUNT}, {"jsonl", BOOK_NDJSON},   {"journal", BOOK_HLEDGER},
                 {"j", BOOK_HLEDGER},           {"ledger", BOOK_HLEDGER}, {"bean", BOOK_BEANCOUNT}};
    const char *name = cli_text(cli, "form"), *dot = path ? strrchr(path, '.') : NULL;
    const char *wanted = name ? name : dot ? dot + 1 : "";
    size_t count = name ? 4 : sizeof names / sizeof *names;

    for (size_t i = 0; i < count; i++) {
        if (!strcmp(names[i].name, wanted)) {
            *form = names[i].form;
            return CLI_DONE;
        }
    }
    if (!name)
        return cli_usage(
            cli,
            "the ending of the file name is not one of the known formats: give --form ndjson, csv, "
            "hledger, or beancount");
    return cli_usage(cli, "--form must be ndjson, csv, hledger, or beancount, not \"%s\"", name);
}

truce_status cli_book_write(struct book_writer *writer, const bson_t *record, bson_error_t *error)
{
    switch (writer->form) {
    case BOOK_NDJSON:
        return book_export_write_line(writer, record, error);
    case BOOK_CSV:
        return book_export_write_csv(writer, record, error);
    case BOOK_HLEDGER:
    case BOOK_BEANCOUNT:
        break;
    }
    return book_write_journal(writer, record, error);
}

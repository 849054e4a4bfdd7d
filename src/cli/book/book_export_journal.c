/*
 * Writes journals of hledger and of beancount. Their programs add up the postings. Data that they
 * have no syntax for (rules, pending entries, ids of any type) is written into comments, which
 * truce reads back.
 *
 *     2024-01-31 * (order 17)                     2024-01-31 * "order 17"
 *         ; truce: {"id": "order 17", ...}            ; truce: {"id": "order 17", ...}
 *         customers:ada    EUR -12.50                 Assets:Customers:Ada  -12.50 EUR
 *         shop:sales    EUR 12.50                     Assets:Shop:Sales  12.50 EUR
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/field.h"
#include "bson/json.h"
#include "cli/book/book.h"

static void journal_add(struct buffer *out, const char *text)
{
    truce__buffer_append(out, text, strlen(text));
}

/* Appends "; truce: {...}" and the end of the line. */
static void add_remark(struct buffer *out, const char *indent, const bson_t *record)
{
    journal_add(out, indent);
    journal_add(out, "; truce: ");
    truce__json_write(out, record, false, JSON_CANONICAL);
    journal_add(out, "\n");
}

/* ---- names ---------------------------------------------------------------------------------- */

struct book_names {
    /* ours[i], theirs[i]: the name of account i in truce and in beancount. Owned. */
    char **ours, **theirs;
    uint32_t count;
};

void cli_book_writer_release(struct book_writer *writer)
{
    struct book_names *names = writer->names;

    for (uint32_t i = 0; names && i < names->count; i++) {
        bson_free(names->ours[i]);
        bson_free(names->theirs[i]);
    }
    if (names) {
        bson_free(names->ours);
        bson_free(names->theirs);
        bson_free(names);
    }
    writer->names = NULL;
}

static bool is_root(const char *account)
{
    static const char *const roots[] = {"Assets", "Liabilities", "Equity", "Income", "Expenses"};
    size_t length = strcspn(account, ":");

    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
        if (strlen(roots[i]) == length && !memcmp(roots[i], account, length) && account[length])
            return true;
    }
    return false;
}

static bool is_taken(const struct book_names *names, const char *theirs)
{
    for (uint32_t i = 0; i < names->count; i++) {
        if (!strcmp(names->theirs[i], theirs))
            return true;
    }
    return false;
}

/* Makes a name for beancount. Each part of it begins with a capital letter or a digit, followed by
 * letters, digits, and "-". */
static char *make_name(const struct book_names *names, const char *account)
{
    char *made = bson_strdup_printf("%s%s", is_root(account) ? "" : "Assets:", account), *numbered;
    bool first = true;

    for (char *at = made; *at; at++) {
        if (*at != ':' && !isalnum((unsigned char)*at))
            *at = first ? 'X' : '-';
        else if (first)
            *at = (char)toupper((unsigned char)*at);
        first = *at == ':';
    }
    numbered = bson_strdup(made);
    for (int i = 2; is_taken(names, numbered); i++) {
        bson_free(numbered);
        numbered = bson_strdup_printf("%s-%d", made, i);
    }
    bson_free(made);
    return numbered;
}

/* Returns the name of the account in the journal. beancount accepts fewer characters, so its names
 * are made once and stored. */
static const char *journal_name_of(struct book_writer *writer, const char *account)
{
    struct book_names *names = writer->names;
    uint32_t at = 0;

    if (writer->form == BOOK_HLEDGER)
        return account;
    if (!names)
        names = writer->names = bson_malloc0(sizeof *names);
    while (at < names->count && strcmp(names->ours[at], account) != 0)
        at++;
    if (at == names->count) {
        names->ours = bson_realloc(names->ours, (at + 1) * sizeof *names->ours);
        names->theirs = bson_realloc(names->theirs, (at + 1) * sizeof *names->theirs);
        names->theirs[at] = make_name(names, account);
        names->ours[at] = bson_strdup(account);
        names->count++;
    }
    return names->theirs[at];
}

static truce_status check_account(const struct book_writer *writer, const char *account,
                                  bson_error_t *error)
{
    if (writer->form == BOOK_BEANCOUNT)
        return TRUCE_OK;
    if (strchr("([;*!#%~=\" ", account[0]) || strpbrk(account, ";\t") || strstr(account, "  ") ||
        account[strlen(account) - 1] == ' ')
        return truce__fail(TRUCE_INVALID, error,
                           "hledger cannot read the account name \"%s\": it has spaces at an "
                           "end, two spaces in a row, or one of ([;*!#%%~=\" at the start",
                           account);
    return TRUCE_OK;
}

/* Checks that beancount accepts the name: capital letters, digits, "_", and "-". */
static truce_status check_currency(const struct book_writer *writer, const char *currency,
                                   bson_error_t *error)
{
    size_t length = strlen(currency);

    if (writer->form == BOOK_HLEDGER)
        return TRUCE_OK;
    for (size_t i = 0; i < length; i++) {
        bool end = i == 0 || i == length - 1;

        if (isupper((unsigned char)currency[i]) ||
            (i > 0 && (isdigit((unsigned char)currency[i]) || (!end && strchr("_-", currency[i])))))
            continue;
        length = 0;
    }
    return length
               ? TRUCE_OK
               : truce__fail(TRUCE_INVALID, error,
                             "invalid currency \"%s\" for beancount: expected capital letters, and "
                             "digits, - and _ after the first",
                             currency);
}

/* Appends a currency. hledger needs quotes around a name that has other characters than letters. */
static void journal_add_currency(struct buffer *out, enum book_form form, const char *currency)
{
    bool plain = form == BOOK_BEANCOUNT;

    if (!plain) {
        plain = true;
        for (const char *at = currency; *at; at++)
            plain = plain && isalpha((unsigned char)*at);
    }
    journal_add(out, plain ? "" : "\"");
    journal_add(out, currency);
    journal_add(out, plain ? "" : "\"");
}

/* ---- records -------------------------------------------------------------------------------- */

/* Declares a currency. hledger's sample amount shows the digits; beancount has no syntax for them,
 * so the record follows as a comment. */
static void write_currency(struct buffer *out, enum book_form form, const bson_t *record)
{
    int digits = (int)truce__field_number(record, "digits");

    if (form == BOOK_HLEDGER) {
        journal_add(out, "commodity ");
        journal_add_currency(out, form, truce__field_text(record, "currency"));
        journal_add(out, " 1000.");
        for (int i = 0; i < digits; i++)
            journal_add(out, "0");
        journal_add(out, "\n");
        return;
    }
    journal_add(out, "1700-01-01 commodity ");
    journal_add(out, truce__field_text(record, "currency"));
    journal_add(out, "\n");
    add_remark(out, "  ", record);
}

/* Declares an account, with its rules in a comment. beancount needs a date, so the account is
 * opened long before any transaction. */
static void journal_write_open(struct book_writer *writer, struct buffer *out, const bson_t *record)
{
    const char *account = truce__field_text(record, "open");

    if (writer->form == BOOK_HLEDGER) {
        journal_add(out, "account ");
        journal_add(out, account);
        journal_add(out, "\n");
    } else {
        journal_add(out, "1700-01-01 open ");
        journal_add(out, journal_name_of(writer, account));
        journal_add(out, " ");
        journal_add(out, truce__field_text(record, "currency"));
        journal_add(out, "\n");
    }
    add_remark(out, "    ", record);
}

/* Appends a string of a user on one line, without the characters that would end it. */
static void add_plain(struct buffer *out, const char *text, const char *without)
{
    for (; *text; text++)
        truce__buffer_append_byte(
            out, (uint8_t)*text < ' ' || strchr(without, *text) ? ' ' : (uint8_t)*text);
}

/* Writes the first line of a transaction, and the rest of the record as a comment. */
static void write_head(struct buffer *out, enum book_form form, const bson_t *record)
{
    bson_t without = BSON_INITIALIZER, meta;
    const char *description = "";
    bson_iter_t iter;

    if (bson_iter_init_find(&iter, record, "meta") && BSON_ITER_HOLDS_DOCUMENT(&iter)) {
        const uint8_t *data;
        uint32_t length;

        bson_iter_document(&iter, &length, &data);
        bson_init_static(&meta, data, length);
        description = truce__field_text(&meta, "description");
    }
    truce__buffer_append(out, truce__field_text(record, "date"), 10);
    journal_add(out, form == BOOK_HLEDGER ? " * (" : " * \"");
    add_plain(out, truce__field_text(record, "id"), "()\"\\");
    journal_add(out, form == BOOK_HLEDGER ? ") " : "\" \"");
    add_plain(out, description, "\"\\;|");
    journal_add(out, form == BOOK_HLEDGER ? "\n" : "\"\n");
    bson_copy_to_excluding_noinit(record, &without, "entries", NULL);
    add_remark(out, "    ", &without);
    bson_destroy(&without);
}

/* Writes an entry. hledger has the currency before the amount, beancount after it. */
static truce_status write_posting(struct book_writer *writer, struct buffer *out,
                                  const bson_t *entry, bson_error_t *error)
{
    const char *account = truce__field_text(entry, "account"),
               *currency = truce__field_text(entry, "currency");
    truce_status status = check_account(writer, account, error);
    bson_iter_t type;

    if (!status)
        status = check_currency(writer, currency, error);
    journal_add(out, "    ");
    journal_add(out, journal_name_of(writer, account));
    journal_add(out, "    ");
    if (writer->form == BOOK_HLEDGER) {
        journal_add_currency(out, writer->form, currency);
        journal_add(out, " ");
    }
    journal_add(out, truce__field_text(entry, "amount"));
    if (writer->form == BOOK_BEANCOUNT) {
        journal_add(out, " ");
        journal_add(out, currency);
    }
    if (bson_iter_init_find(&type, entry, "type")) {
        journal_add(out, "  ; truce: ");
        truce__json_write_value(out, &type, JSON_CANONICAL);
    }
    journal_add(out, "\n");
    return status;
}

/* Writes the entries of a transaction as postings, one a line. */
static truce_status write_postings(struct book_writer *writer, struct buffer *out,
                                   const bson_t *record, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_iter_t iter, entries;

    if (!bson_iter_init_find(&iter, record, "entries") || !bson_iter_recurse(&iter, &entries))
        return status;
    while (!status && bson_iter_next(&entries)) {
        uint32_t length;
        const uint8_t *data;
        bson_t entry;

        bson_iter_document(&entries, &length, &data);
        bson_init_static(&entry, data, length);
        status = write_posting(writer, out, &entry, error);
    }
    return status;
}

static truce_status check_date(const bson_t *record, bson_error_t *error)
{
    const char *date = truce__field_text(record, "date");

    if (strlen(date) < 10 || date[4] != '-' || strncmp(date, "1700-01-01", 10) < 0 ||
        strncmp(date, "2100-01-01", 10) >= 0)
        return truce__fail(TRUCE_INVALID, error,
                           "the day \"%s\" is out of range: a journal has days from 1700 to 2099",
                           date);
    return TRUCE_OK;
}

truce_status book_write_journal(struct book_writer *writer, const bson_t *record,
                                bson_error_t *error)
{
    const char *kind = truce__field_text(record, "kind");
    struct buffer out = {0};
    truce_status status = TRUCE_OK;

    if (!strcmp(kind, "pending") || !strcmp(kind, "void") || bson_has_field(record, "rules")) {
        add_remark(&out, "", record);
    } else if (bson_has_field(record, "open")) {
        status = check_account(writer, truce__field_text(record, "open"), error);
        journal_write_open(writer, &out, record);
    } else if (bson_has_field(record, "digits")) {
        status = check_currency(writer, truce__field_text(record, "currency"), error);
        write_currency(&out, writer->form, record);
    } else {
        status = check_date(record, error);
        journal_add(&out, "\n");
        if (!status)
            write_head(&out, writer->form, record);
        if (!status)
            status = write_postings(writer, &out, record, error);
    }
    if (!status)
        status = book_put(writer, &out, error);
    truce__buffer_release(&out);
    return status;
}

/*
 * Reads journals of hledger and beancount, line by line. A line that is not understood is refused:
 * a book that differs from its file would be worse than no book.
 *
 *     at the margin   the head of a transaction, a directive, a comment
 *     indented        a posting, a comment, or "key: value" of the head above
 *     an empty line   ends a transaction.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/field.h"
#include "bson/json.h"
#include "cli/book/book.h"

#define DATE_ROOM 40

struct posting {
    char *account, *amount,
        *currency; /* Both are NULL if the amount is the rest of the other amounts. */
    bson_t type;   /* {type}, or empty. */
};

struct journal {
    struct book_source *source;
    int64_t line;
    /* Between "comment" and "end comment". */
    bool block;
    /* Indented lines belong to a directive. */
    bool below;
    /* The currency of amounts that name none, from "D 1000.00 EUR"; NULL means that such amounts
     * are refused. */
    char *currency;
    /* The transaction that is being read. `begun` is the line on which it begins, or 0 outside of a
     * transaction. */
    int64_t begun;
    char date[DATE_ROOM];
    char *description, *payee;
    struct posting *postings;
    uint32_t count, room;
    /* The record that truce wrote into a comment, or empty. */
    bson_t ours;
    /* The text of the transaction, from which its id is made. */
    struct buffer content;
    struct book_ids *ids;
    /* Account names, as beancount has them. */
    char *named;
    /* {their name: truce's name} */
    bson_t names;
};

static truce_status journal_refuse(bson_error_t *error, const char *why)
{
    return truce__fail(TRUCE_INVALID, error, "%s", why);
}

static bool journal_is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static size_t journal_trimmed_size(const char *text, size_t size)
{
    while (size && (journal_is_blank(text[size - 1]) || text[size - 1] == '\r'))
        size--;
    return size;
}

static const char *journal_skip_blanks(const char *text)
{
    while (journal_is_blank(*text))
        text++;
    return text;
}

/* Returns true if the text begins with this whole word. `*rest` is then what follows. */
static bool journal_skip_word(const char *text, const char *wanted, const char **rest)
{
    size_t length = strlen(wanted);

    if (strncmp(text, wanted, length) || (text[length] && !journal_is_blank(text[length])))
        return false;
    *rest = journal_skip_blanks(text + length);
    return true;
}

/* ---- a transaction -------------------------------------------------------------------------- */

/* Frees the parts of the current transaction, so that the next one can begin. */
static void journal_forget(struct journal *journal)
{
    for (uint32_t i = 0; i < journal->count; i++) {
        bson_free(journal->postings[i].account);
        bson_free(journal->postings[i].amount);
        bson_free(journal->postings[i].currency);
        bson_destroy(&journal->postings[i].type);
    }
    bson_free(journal->description);
    bson_free(journal->payee);
    journal->description = journal->payee = NULL;
    bson_reinit(&journal->ours);
    journal->count = 0;
    journal->begun = 0;
    journal->content.size = 0;
}

/* Appends truce's record from a comment, or else an id made of the content, the date, the payee,
 * and the description. */
static void journal_append_head(struct journal *journal, bson_t *record)
{
    bson_t meta;

    if (!bson_empty(&journal->ours)) {
        bson_concat(record, &journal->ours);
        return;
    }
    book_make_id(journal->ids, journal->date, (const char *)journal->content.bytes,
                 journal->content.size, record);
    BSON_APPEND_UTF8(record, "date", journal->date);
    if (!journal->description && !journal->payee)
        return;
    bson_append_document_begin(record, "meta", 4, &meta);
    if (journal->payee && *journal->payee)
        BSON_APPEND_UTF8(&meta, "payee", journal->payee);
    if (journal->description && *journal->description)
        BSON_APPEND_UTF8(&meta, "description", journal->description);
    bson_append_document_end(record, &meta);
}

/* Passes the transaction that was read on, and forgets it. */
static truce_status journal_end_transaction(struct journal *journal, bson_error_t *error)
{
    bson_t record = BSON_INITIALIZER, entries, entry;
    int64_t begun = journal->begun;
    truce_status status;

    if (!begun)
        return TRUCE_OK;
    journal_append_head(journal, &record);
    bson_append_array_begin(&record, "entries", 7, &entries);
    for (uint32_t i = 0; i < journal->count; i++) {
        const struct posting *posting = &journal->postings[i];
        char key[16];

        snprintf(key, sizeof key, "%u", i);
        bson_append_document_begin(&entries, key, -1, &entry);
        BSON_APPEND_UTF8(&entry, "account", posting->account);
        if (posting->amount)
            BSON_APPEND_UTF8(&entry, "amount", posting->amount);
        if (posting->currency)
            BSON_APPEND_UTF8(&entry, "currency", posting->currency);
        bson_concat(&entry, &posting->type);
        bson_append_document_end(&entries, &entry);
    }
    bson_append_array_end(&record, &entries);
    journal->source->line = begun;
    status =
        journal->count
            ? journal->source->function(journal->source->arg, begun, &record, error)
            : journal_refuse(
                  error,
                  "the transaction has no postings: expected indented lines below it, each with an "
                  "account and an amount");
    bson_destroy(&record);
    journal_forget(journal);
    return status;
}

/* Reads "2024-01-31", and for hledger also 2024/1/31 and 2024.1.31. Sets *rest to what follows. */
static truce_status journal_read_date(struct journal *journal, const char *text, const char **rest,
                                      bson_error_t *error)
{
    static const int days[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year, month, day, used = 0;
    bool leap;

    if (sscanf(text, "%4d%*1[-/.]%2d%*1[-/.]%2d%n", &year, &month, &day, &used) != 3 || !used)
        return truce__fail(TRUCE_INVALID, error, "invalid date \"%.20s\": expected 2024-01-31",
                           text);
    leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if (year < 1 || month < 1 || month > 12 || day < 1 || day > days[month - 1] ||
        (month == 2 && day == 29 && !leap))
        return truce__fail(TRUCE_INVALID, error, "the day %.10s does not exist", text);
    snprintf(journal->date, sizeof journal->date, "%04d-%02d-%02d", year % 10000, month % 100,
             day % 100);
    *rest = text + used;
    return TRUCE_OK;
}

/* Reads a string in quotes, which the caller frees, and moves *text past it and the following
 * blanks. A backslash escapes a character. */
static truce_status journal_read_string(const char **text, char **made, bson_error_t *error)
{
    struct buffer out = {0};

    for ((*text)++; **text && **text != '"'; (*text)++) {
        if (**text == '\\' && (*text)[1])
            (*text)++;
        truce__buffer_append_byte(&out, (uint8_t) * *text);
    }
    if (**text == '"') {
        truce__buffer_append_byte(&out, '\0');
        *made = bson_strdup((const char *)out.bytes);
        *text = journal_skip_blanks(*text + 1);
    }
    truce__buffer_release(&out);
    return *made ? TRUCE_OK : journal_refuse(error, "the string has no closing \" on its line");
}

/* Reads "Payee" "Narration" #tag ^link */
static truce_status read_strings(struct journal *journal, const char *text, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (*text == '"')
        status = journal_read_string(&text, &journal->description, error);
    if (!status && *text == '"') {
        journal->payee = journal->description;
        journal->description = NULL;
        status = journal_read_string(&text, &journal->description, error);
    }
    if (!status && *text && !strchr("#^;", *text))
        return truce__fail(
            TRUCE_INVALID, error,
            "unexpected \"%.40s\" after the payee and the narration: expected a tag (#), a link "
            "(^), or a comment (;)",
            text);
    return status;
}

/* Reads [=DATE] [!|*] [(CODE)] DESCRIPTION [; COMMENT] */
static truce_status read_head(struct journal *journal, const char *text, bson_error_t *error)
{
    size_t size;

    if (*text == '=')
        text += strcspn(text, " \t");
    text = journal_skip_blanks(text);
    if (*text == '!' || *text == '*')
        text = journal_skip_blanks(text + 1);
    if (*text == '(') {
        if (!strchr(text, ')'))
            return journal_refuse(error, "the code of the transaction has no closing )");
        text = journal_skip_blanks(strchr(text, ')') + 1);
    }
    size = journal_trimmed_size(text, strcspn(text, ";"));
    if (size)
        journal->description = bson_strndup(text, size);
    return TRUCE_OK;
}

/* Returns the record in "; truce: ...", or NULL. */
static const char *ours_in(const char *comment)
{
    const char *at = journal_skip_blanks(comment + strspn(comment, ";"));

    return !strncmp(at, "truce: ", 7) ? at + 7 : NULL;
}

static truce_status read_ours(const char *text, bson_t *document, bson_error_t *error)
{
    struct json_reader reader = {0};
    bson_t found;
    truce_status status = truce__json_read(&reader, text, strlen(text), &found, NULL, error);

    bson_reinit(document);
    if (!status)
        bson_concat(document, &found);
    truce__json_reader_release(&reader);
    return status;
}

/* Reads the type of an entry, a JSON string after "; truce:". */
static truce_status read_type(struct posting *posting, const char *comment, bson_error_t *error)
{
    const char *text = *comment == ';' ? ours_in(comment) : NULL;
    char *json;
    truce_status status;

    if (!text)
        return TRUCE_OK;
    json = bson_strdup_printf("{\"type\": %s}", text);
    status = read_ours(json, &posting->type, error);
    bson_free(json);
    return status;
}

static size_t account_size(const struct journal *journal, const char *text)
{
    size_t size = 0;

    if (journal->source->form == BOOK_BEANCOUNT)
        return strcspn(text, " \t;");
    while (text[size] && text[size] != '\t' && text[size] != ';' &&
           !(text[size] == ' ' && (journal_is_blank(text[size + 1]) || text[size + 1] == ';')))
        size++;
    return journal_trimmed_size(text, size);
}

/* Returns truce's name of an account, which the caller frees. A beancount name that no comment has
 * explained stays as it is. */
static char *journal_account_of(const struct journal *journal, const char *text, size_t size)
{
    char *name = bson_strndup(text, size);
    bson_iter_t iter;

    if (!bson_empty(&journal->names) && bson_iter_init(&iter, &journal->names)) {
        while (bson_iter_next(&iter)) {
            if (!strcmp(bson_iter_key(&iter), name)) {
                bson_free(name);
                return bson_strdup(bson_iter_utf8(&iter, NULL));
            }
        }
    }
    return name;
}

/* Gives an amount without a currency the default one. hledger and ledger treat such an amount as a
 * currency of its own; beancount refuses it. */
static truce_status take_default(const struct journal *journal, struct posting *posting,
                                 bson_error_t *error)
{
    if (!journal->currency)
        return truce__fail(
            TRUCE_INVALID, error, "the amount %.60s has no currency: write it after the amount%s",
            posting->amount,
            journal->source->form == BOOK_BEANCOUNT
                ? ""
                : ", or write a line such as D 1000.00 EUR above, for all such amounts");
    posting->currency = bson_strdup(journal->currency);
    return TRUCE_OK;
}

/* Reads ACCOUNT [AMOUNT] [; COMMENT]. */
static truce_status read_posting(struct journal *journal, const char *text, bson_error_t *error)
{
    struct posting *posting;
    truce_status status = TRUCE_OK;
    size_t size;

    if (*text == '!' || *text == '*')
        text = journal_skip_blanks(text + 1);
    if (*text == '(' || *text == '[')
        return journal_refuse(error, "virtual postings are not supported: they need not balance");
    size = account_size(journal, text);
    if (!size)
        return journal_refuse(error,
                              "the posting has no account: expected ACCOUNT  AMOUNT CURRENCY");
    if (journal->count == journal->room) {
        journal->room = journal->room ? 2 * journal->room : 16;
        journal->postings =
            bson_realloc(journal->postings, journal->room * sizeof *journal->postings);
    }
    posting = &journal->postings[journal->count++];
    *posting = (struct posting){.account = journal_account_of(journal, text, size)};
    bson_init(&posting->type);
    text = journal_skip_blanks(text + size);
    if (*text && *text != ';')
        status = book_read_amount(journal->source->form, text, &posting->amount, &posting->currency,
                                  &text, error);
    if (!status && posting->amount && !posting->currency)
        status = take_default(journal, posting, error);
    return status ? status : read_type(posting, text, error);
}

/* ---- lines ---------------------------------------------------------------------------------- */

/* Reads truce's record in a comment. The record of an account gives truce's name of it. */
static truce_status read_comment(struct journal *journal, const char *comment, bson_error_t *error)
{
    const char *text = ours_in(comment);
    bson_t record = BSON_INITIALIZER;
    truce_status status;

    if (!text) {
        bson_destroy(&record);
        return TRUCE_OK;
    }
    if (journal->begun) {
        bson_destroy(&record);
        return read_ours(text, &journal->ours, error);
    }
    status = read_ours(text, &record, error);
    if (!status && journal->named && bson_has_field(&record, "open"))
        BSON_APPEND_UTF8(&journal->names, journal->named, truce__field_text(&record, "open"));
    if (!status)
        status = journal->source->function(journal->source->arg, journal->line, &record, error);
    bson_destroy(&record);
    return status;
}

static bool is_metadata(const char *text)
{
    size_t size = strcspn(text, ": \t");

    return islower((unsigned char)*text) && text[size] == ':' &&
           strchr(" \t\"", text[size + 1]); /* Or nothing follows. */
}

/* Reads an indented line: a comment, a posting of the current transaction, or a part of a
 * directive, which is ignored. */
static truce_status read_indented(struct journal *journal, const char *text, bson_error_t *error)
{
    bool beancount = journal->source->form == BOOK_BEANCOUNT;

    if (*text == ';')
        return read_comment(journal, text, error);
    if (journal->begun && !(beancount && is_metadata(text)))
        return read_posting(journal, text, error);
    if (journal->begun || journal->below)
        return TRUCE_OK;
    return journal_refuse(
        error,
        "the indented line follows no transaction or directive: a transaction begins with a date "
        "in the first column");
}

/* Reads "commodity EUR 1000.00": {currency, digits} */
static truce_status read_commodity(struct journal *journal, const char *text, bson_error_t *error)
{
    struct posting sample = {0};
    bson_t record = BSON_INITIALIZER;
    const char *point;
    truce_status status = TRUCE_OK;

    if (text[strcspn(text, "0123456789;")] && strpbrk(text, "0123456789")) {
        status = book_read_amount(journal->source->form, text, &sample.amount, &sample.currency,
                                  &text, error);
        point = sample.amount ? strchr(sample.amount, '.') : NULL;
        if (!status && sample.currency) {
            BSON_APPEND_UTF8(&record, "currency", sample.currency);
            BSON_APPEND_INT32(&record, "digits", point ? (int)strlen(point + 1) : 0);
            status = journal->source->function(journal->source->arg, journal->line, &record, error);
        }
        bson_free(sample.amount);
        bson_free(sample.currency);
    }
    bson_destroy(&record);
    return status;
}

/* Reads "D 1000.00 EUR": the currency of amounts without one. */
static truce_status read_default(struct journal *journal, const char *text, bson_error_t *error)
{
    char *amount = NULL;
    truce_status status;

    bson_free(journal->currency);
    journal->currency = NULL;
    status =
        book_read_amount(journal->source->form, text, &amount, &journal->currency, &text, error);
    bson_free(amount);
    return status;
}

/* Reads a directive without a date. Ignores those that do not affect balances, and refuses unknown
 * ones. */
static truce_status read_directive(struct journal *journal, const char *text, bson_error_t *error)
{
    static const char *const ignored[] = {"P",      "tag",     "payee",  "note", "option",
                                          "plugin", "pushtag", "poptag", NULL};
    const char *rest;

    journal->below = true;
    if (journal_skip_word(text, "account", &rest))
        return TRUCE_OK;
    if (journal_skip_word(text, "commodity", &rest))
        return read_commodity(journal, rest, error);
    if (journal_skip_word(text, "D", &rest))
        return read_default(journal, rest, error);
    if (journal_skip_word(text, "comment", &rest)) {
        journal->block = true;
        return TRUCE_OK;
    }
    if (journal_skip_word(text, "decimal-mark", &rest) && *rest == '.')
        return TRUCE_OK;
    for (const char *const *name = ignored; *name; name++) {
        if (journal_skip_word(text, *name, &rest))
            return TRUCE_OK;
    }
    return truce__fail(
        TRUCE_INVALID, error,
        "unexpected \"%.40s\": expected a date or a directive at the beginning of the line", text);
}

/* Reads a directive of beancount after its date. */
static truce_status read_dated(struct journal *journal, const char *text, bson_error_t *error)
{
    static const char *const ignored[] = {"close", "commodity", "note",   "document", "price",
                                          "event", "query",     "custom", NULL};
    const char *rest;

    if (journal_skip_word(text, "open", &rest)) {
        journal->below = true;
        bson_free(journal->named);
        journal->named = bson_strndup(rest, strcspn(rest, " \t;"));
        return TRUCE_OK;
    }
    for (const char *const *name = ignored; *name; name++) {
        if (journal_skip_word(text, *name, &rest)) {
            journal->below = true;
            return TRUCE_OK;
        }
    }
    if (!journal_skip_word(text, "*", &rest) && !journal_skip_word(text, "!", &rest) &&
        !journal_skip_word(text, "txn", &rest))
        return truce__fail(
            TRUCE_INVALID, error,
            "unexpected \"%.40s\" after the date: expected *, !, txn, or a directive of beancount",
            text);
    journal->begun = journal->line;
    return read_strings(journal, rest, error);
}

/* Reads a line at the margin, which ends the transaction above it. */
static truce_status read_margin(struct journal *journal, const char *text, bson_error_t *error)
{
    truce_status status = journal_end_transaction(journal, error);

    journal->source->line = journal->line;
    journal->below = false;
    bson_free(journal->named);
    journal->named = NULL;
    if (status || strchr("#*", *text))
        return status;
    if (*text == ';')
        return read_comment(journal, text, error);
    if (!isdigit((unsigned char)*text))
        return read_directive(journal, text, error);
    status = journal_read_date(journal, text, &text, error);
    if (status)
        return status;
    if (*text && !journal_is_blank(*text) && *text != '=')
        return truce__fail(TRUCE_INVALID, error,
                           "unexpected \"%.20s\" after the date: expected a space", text);
    if (journal->source->form == BOOK_BEANCOUNT)
        return read_dated(journal, journal_skip_blanks(text), error);
    journal->begun = journal->line;
    return read_head(journal, text, error);
}

/* Reads a line of the journal. A blank line ends the current transaction. */
static truce_status journal_read_line(struct journal *journal, const char *text,
                                      bson_error_t *error)
{
    const char *rest;
    truce_status status;

    journal->source->line = journal->line;
    if (journal->block) {
        journal->block = !journal_skip_word(text, "end", &rest) || strncmp(rest, "comment", 7) != 0;
        return TRUCE_OK;
    }
    if (!*journal_skip_blanks(text)) {
        journal->below = false;
        return journal_end_transaction(journal, error);
    }
    status = journal_is_blank(*text) ? read_indented(journal, journal_skip_blanks(text), error)
                                     : read_margin(journal, text, error);
    if (journal->begun)
        truce__buffer_append(&journal->content, text, strlen(text));
    return status;
}

truce_status book_read_journal(struct book_source *source, bson_error_t *error)
{
    struct journal journal = {.source = source, .ids = book_ids_new()};
    truce_status status = TRUCE_OK;

    bson_init(&journal.ours);
    bson_init(&journal.names);
    for (const char *at = source->text; !status && *at;) {
        size_t size = strcspn(at, "\r\n");
        char *line = bson_strndup(at, journal_trimmed_size(at, size));

        journal.line++;
        status = journal_read_line(&journal, line, error);
        bson_free(line);
        at += size + (at[size] == '\r' && at[size + 1] == '\n') + (at[size] != '\0');
    }
    if (!status)
        status = journal_end_transaction(&journal, error);
    if (!status && journal.block)
        status = journal_refuse(
            error,
            "the block that begins with \"comment\" has no end: expected a line \"end comment\"");
    journal_forget(&journal);
    bson_free(journal.postings);
    bson_free(journal.named);
    bson_free(journal.currency);
    bson_destroy(&journal.ours);
    bson_destroy(&journal.names);
    truce__buffer_release(&journal.content);
    book_ids_free(journal.ids);
    return status;
}

/*
 * Reads books as CSV: truce's own form (book_export.c), or, with rules, the CSV file of a bank:
 *
 *     {account: "assets:bank", date: "$Booked", dateFormat: "%d.%m.%Y", amount: "$Amount",
 *      decimal: ",", currency: "EUR", id: "$Reference", description: "$Text",
 *      skip: {Status: "pending"},
 *      other: [{if: {Text: {$regex: "RENT"}}, account: "expenses:rent"}],
 *      otherwise: "expenses:unknown", separator: ";"}
 *
 * "$Name" is the cell of that column, without spaces around it. `if` and `skip` are filters on the
 * line; all its cells are strings. `amount` goes to `account` and comes from the first rule of
 * `other` that matches. Without `id`, the id is derived from the line's content.
 *
 *     amountIn, amountOut      two columns in place of `amount`: incoming and outgoing money
 *     headerLines, footerLines the number of lines above the header and below the last record
 *     separator                default: the most frequent one of the header: , ; | or a tab.
 *
 * Names of columns are not paths. In the rows and in a copy of the rules, a dot is another
 * character (cli_csv_field), so that filters find "Kto.-Nr.".
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/limits.h"
#include "bson/date.h"
#include "bson/value.h"
#include "cli/book/book.h"
#include "cli/core/csv.h"
#include "query/match/match.h"

struct records {
    struct book_source *source;
    struct csv *csv;
    char separator;
    /* The text of the current record, without its line end. */
    const char *text;
    size_t size;
    int64_t line;
    /* For truce's own form: the record whose lines are being collected. `begun` is the line on
     * which it begins, or 0 outside of a record. */
    int64_t begun;
    bson_t record, entries;
    uint32_t count;
    /* The rules for the form of a bank. */
    bson_t rules;
    /* accounts[i] is the other account of a line that others[i] matches. Lines that `skip` matches
     * are left out; it may be NULL. */
    struct match *others[LEDGER_CSV_RULES_MAX], *skip;
    const char *accounts[LEDGER_CSV_RULES_MAX];
    uint32_t others_count;
    struct book_ids *ids;
};

typedef truce_status row_function(struct records *records, const bson_t *row, bson_error_t *error);

static truce_status book_import_csv_refuse(bson_error_t *error, const char *why)
{
    return truce__fail(TRUCE_INVALID, error, "%s", why);
}

static bool is_line_end(const char *text, size_t at)
{
    return text[at] == '\n' || (text[at] == '\r' && text[at + 1] != '\n');
}

/* Returns the rest of the text after the first `wanted` lines. Sets *lines to the number of lines
 * that were skipped, at most `wanted`. */
static const char *csv_skip_lines(const char *text, int64_t wanted, int64_t *lines)
{
    for (*lines = 0; *text && *lines < wanted; text++)
        *lines += is_line_end(text, 0) || !text[1];
    return text;
}

/* Returns the number of empty lines at the end of the text. */
static int64_t empty_lines_at_end(const char *text)
{
    size_t size = strlen(text), left = size;
    int64_t lines = 0;

    while (left && strchr("\r\n", text[left - 1]))
        left--;
    for (size_t i = left; i < size; i++)
        lines += is_line_end(text, i);
    return lines ? lines - 1 : 0;
}

/* Cuts the text to the lines between those of `headerLines` and `footerLines`. Empty lines at the
 * end do not count. */
static truce_status cut_lines(const struct records *records, const char **text, size_t *size,
                              bson_error_t *error)
{
    int64_t header = truce__field_count(&records->rules, "headerLines"),
            footer = truce__field_count(&records->rules, "footerLines"), all, skipped;
    const char *from = csv_skip_lines(*text, header, &skipped);

    (void)csv_skip_lines(*text, INT64_MAX, &all);
    if (footer)
        all -= empty_lines_at_end(*text);
    if (all <= header + footer)
        return truce__fail(
            TRUCE_INVALID, error,
            "rules: `headerLines` and `footerLines` skip all %lld lines of the file: expected at "
            "least one line of data",
            (long long)all);
    *size = (size_t)(csv_skip_lines(*text, all - footer, &skipped) - from);
    *text = from;
    return TRUCE_OK;
}

static size_t record_size(const struct records *records, const char *text, size_t left)
{
    struct csv_scan scan = {.separator = records->separator};

    return cli_csv_end(text, left, &scan) ? scan.scanned : left;
}

static int64_t lines_in(const char *text, size_t size)
{
    int64_t lines = 0;

    for (size_t i = 0; i < size; i++)
        lines += is_line_end(text, i);
    return lines;
}

/* Returns the size of the record without its line end. An id that is derived from the record must
 * not depend on it: the last line of a file may have none, and gets one when lines follow. */
static size_t without_line_end(const char *text, size_t size)
{
    size -= size && text[size - 1] == '\n';
    return size - (size && text[size - 1] == '\r');
}

/* Fails if the header does not have the column that a rule names. */
static truce_status check_column(const struct records *records, const char *rule, const char *field,
                                 bson_error_t *error)
{
    truce_status status;
    char *name;

    if (cli_csv_has(records->csv, field))
        return TRUCE_OK;
    name = cli_csv_column(field);
    status = truce__fail(TRUCE_INVALID, error,
                         "rules: `%s` names the column \"%.60s\", which the header does not have",
                         rule, name);
    bson_free(name);
    return status;
}

/* Checks that the header has all columns that a filter names, also inside of $and and $or. */
static truce_status book_import_csv_check_filter(const struct records *records, const char *rule,
                                                 const bson_iter_t *filter, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_iter_t field, list;

    if (!BSON_ITER_HOLDS_DOCUMENT(filter) || !bson_iter_recurse(filter, &field))
        return TRUCE_OK;
    while (!status && bson_iter_next(&field)) {
        if (*bson_iter_key(&field) != '$')
            status = check_column(records, rule, bson_iter_key(&field), error);
        /* An operator with a list of filters, such as $or. */
        else if (BSON_ITER_HOLDS_ARRAY(&field) && bson_iter_recurse(&field, &list))
            while (!status && bson_iter_next(&list))
                status = book_import_csv_check_filter(records, rule, &list, error);
    }
    return status;
}

/* Checks that the rules name existing columns. Otherwise a misspelled name would be an empty cell
 * in every line. */
static truce_status check_columns(const struct records *records, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_iter_t iter, list, rule;

    if (!records->source->rules || !bson_iter_init(&iter, &records->rules))
        return TRUCE_OK;
    while (!status && bson_iter_next(&iter)) {
        const char *name = bson_iter_key(&iter),
                   *text = BSON_ITER_HOLDS_UTF8(&iter) ? bson_iter_utf8(&iter, NULL) : "";

        if (*text == '$')
            status = check_column(records, name, text + 1, error);
        else if (!strcmp(name, "skip"))
            status = book_import_csv_check_filter(records, name, &iter, error);
        else if (!strcmp(name, "other") && bson_iter_recurse(&iter, &list)) {
            while (!status && bson_iter_next(&list)) {
                if (bson_iter_recurse(&list, &rule) && bson_iter_find(&rule, "if"))
                    status = book_import_csv_check_filter(records, "other", &rule, error);
            }
        }
    }
    return status;
}

/* Reads the header, whose size becomes *size, and determines the separator: that of the rules, the
 * most frequent one, or a comma for a file of truce. */
static truce_status book_import_csv_read_header(struct records *records, const char *text,
                                                size_t left, size_t *size, const char *types,
                                                bson_error_t *error)
{
    const char *rule =
        records->source->rules ? truce__field_text(&records->rules, "separator") : ",";

    records->separator = ',';
    *size = record_size(records, text, left);
    if (!*rule)
        records->separator = cli_csv_separator(text, *size);
    else
        (void)cli_csv_separator_of(rule, &records->separator);
    *size = record_size(records, text, left);
    records->csv = records->source->rules
                       ? cli_csv_new_flat(text, *size, records->separator, error)
                       : cli_csv_new(text, *size, records->separator, types, error);
    return records->csv ? check_columns(records, error) : TRUCE_INVALID;
}

/* Reads the header, and calls the function for each record after it. */
static truce_status book_import_csv_read_rows(struct records *records, const char *types,
                                              row_function *function, bson_error_t *error)
{
    const char *at = records->source->text;
    size_t left = strlen(at), size = 0;
    truce_status status = TRUCE_OK;

    if (records->source->rules)
        status = cut_lines(records, &at, &left, error);
    records->line = 1 + lines_in(records->source->text, (size_t)(at - records->source->text));
    records->source->line = records->line;
    if (!status)
        status = book_import_csv_read_header(records, at, left, &size, types, error);
    while (!status) {
        const char *wrong;
        bson_t row;

        records->line += lines_in(at, size);
        at += size;
        left -= size;
        size = record_size(records, at, left);
        if (!left)
            break;
        records->source->line = records->line;
        if (strspn(at, "\r\n") >= size)
            continue;
        records->text = at;
        records->size = without_line_end(at, size);
        wrong = cli_csv_document(records->csv, at, size, &row);
        status = wrong ? book_import_csv_refuse(error, wrong) : function(records, &row, error);
    }
    return status;
}

/* ---- the own form --------------------------------------------------------------------------- */

/* Passes the collected record to the source's function, with the line on which it begins, and
 * forgets it. Does nothing if no record was begun. */
static truce_status end_record(struct records *records, bson_error_t *error)
{
    truce_status status;

    if (!records->begun)
        return TRUCE_OK;
    if (records->count)
        BSON_APPEND_ARRAY(&records->record, "entries", &records->entries);
    records->source->line = records->begun;
    status =
        records->source->function(records->source->arg, records->begun, &records->record, error);
    bson_reinit(&records->record);
    bson_reinit(&records->entries);
    records->count = 0;
    records->begun = 0;
    return status;
}

static void book_import_csv_add_entry(struct records *records, const bson_t *row)
{
    bson_t entry;
    char key[16];

    if (!bson_has_field(row, "account"))
        return;
    snprintf(key, sizeof key, "%u", records->count++);
    bson_append_document_begin(&records->entries, key, -1, &entry);
    bson_copy_to_excluding_noinit(row, &entry, "id", "kind", "of", "part", "date", "expires",
                                  "meta", NULL);
    bson_append_document_end(&records->entries, &entry);
}

/* Adds a currency, an account, or its rules. */
static void add_other(struct records *records, const char *kind, const bson_t *row)
{
    bson_iter_t iter, meta;

    if (strcmp(kind, "currency") != 0)
        BSON_APPEND_UTF8(&records->record, kind, truce__field_text(row, "account"));
    if (bson_has_field(row, "currency"))
        BSON_APPEND_UTF8(&records->record, "currency", truce__field_text(row, "currency"));
    if (bson_iter_init_find(&iter, row, "meta") && BSON_ITER_HOLDS_DOCUMENT(&iter) &&
        bson_iter_recurse(&iter, &meta)) {
        while (bson_iter_next(&meta))
            bson_append_iter(&records->record, NULL, 0, &meta);
    }
}

/* Collects the lines of a record in truce's own form. A line with a kind begins a new record. */
static truce_status book_import_csv_take_own(struct records *records, const bson_t *row,
                                             bson_error_t *error)
{
    const char *kind = truce__field_text(row, "kind");
    truce_status status;

    if (!*kind && !records->begun)
        return book_import_csv_refuse(
            error,
            "the line has no `kind`, and no line above it has one: a record begins with a line "
            "that has a kind");
    if (*kind) {
        status = end_record(records, error);
        if (status)
            return status;
        records->begun = records->source->line = records->line;
    }
    if (!strcmp(kind, "currency") || !strcmp(kind, "open") || !strcmp(kind, "rules")) {
        add_other(records, kind, row);
        return TRUCE_OK;
    }
    if (*kind)
        bson_copy_to_excluding_noinit(row, &records->record, "account", "amount", "currency",
                                      "type", NULL);
    book_import_csv_add_entry(records, row);
    return TRUCE_OK;
}

/* Reads a CSV file in truce's own form, whose records may have several lines. */
static truce_status read_own(struct records *records, bson_error_t *error)
{
    truce_status status = book_import_csv_read_rows(
        records,
        "kind=string,date=string,expires=string,account=string,amount=string,"
        "currency=string,type=string,meta=json",
        book_import_csv_take_own, error);

    if (!records->csv)
        return book_import_csv_refuse(
            error,
            "invalid header: expected the columns id, kind, of, part, date, expires, account, "
            "amount, currency, type, and meta; for a CSV file with other columns, use "
            "--rules FILE");
    return status ? status : end_record(records, error);
}

/* ---- by rules ------------------------------------------------------------------------------- */

/* Returns the cell that the rule names, or the rule itself; "" if the row has no such cell. */
static const char *book_import_csv_cell_of(const struct records *records, const bson_t *row,
                                           const char *rule)
{
    const char *text = truce__field_text(&records->rules, rule);

    return *text == '$' ? truce__field_text(row, text + 1) : text;
}

/* ---- dates ----------------------------------------------------------------------------------- */

/* Reads a number of at most `most` digits at *text. Skips spaces before it, because %e pads with
 * one. */
static bool book_import_csv_take_number(const char **text, int most, int *number)
{
    int digits = 0;

    *text += strspn(*text, " ");
    for (*number = 0; digits < most && **text >= '0' && **text <= '9'; digits++)
        *number = *number * 10 + *(*text)++ - '0';
    return digits > 0;
}

/* Takes the English name of a month, in full or its first three letters. */
static bool take_month(const char **text, int *month)
{
    static const char *const names[] = {"January",   "February", "March",    "April",
                                        "May",       "June",     "July",     "August",
                                        "September", "October",  "November", "December"};

    for (int i = 0; i < 12; i++) {
        size_t size = strlen(names[i]);

        size = strncasecmp(*text, names[i], size) ? 3 : size;
        if (strncasecmp(*text, names[i], size))
            continue;
        *text += size;
        *month = i + 1;
        return true;
    }
    return false;
}

struct day {
    int year, month, day;
    /* The seconds since the beginning of the day. */
    int64_t in_day_s;
};

/* Reads one specifier. Returns false if the text does not match it. */
static bool take_specifier(char specifier, const char **text, struct day *day)
{
    int number;

    switch (specifier) {
    case 'Y': /* %Y needs four digits, because "24" would be a year of the first century. */
        return strspn(*text, "0123456789") >= 4 &&
               book_import_csv_take_number(text, 4, &day->year) && day->year > 0;
    case 'y': /* POSIX defines the century: 69 to 99 are in the twentieth. */
        if (!book_import_csv_take_number(text, 2, &number))
            return false;
        day->year = number + (number < 69 ? 2000 : 1900);
        return true;
    case 'm':
        return book_import_csv_take_number(text, 2, &day->month);
    case 'b':
    case 'B':
    case 'h':
        return take_month(text, &day->month);
    case 'd':
    case 'e':
        return book_import_csv_take_number(text, 2, &day->day);
    case 'H':
    case 'M':
    case 'S':
        if (!book_import_csv_take_number(text, 2, &number) || number > (specifier == 'H' ? 23 : 59))
            return false;
        day->in_day_s += (int64_t)number * (specifier == 'H' ? 3600 : specifier == 'M' ? 60 : 1);
        return true;
    default:
        return **text == specifier && (*text)++; /* A "%" in the text, for "%%". */
    }
}

/* Reads a date as strptime does. *unknown is set to a specifier that is not known. */
static bool take_day(const char *text, const char *format, struct day *day, char *unknown)
{
    bool good = true;

    *unknown = '\0';
    for (; *format; format++) {
        if (*format != '%') {
            good = good && (*format == ' ' ? (text += strspn(text, " "), true)
                                           : *text && *text++ == *format);
            continue;
        }
        format += format[1] == '-' || format[1] == 'E' || format[1] == 'O' ? 2 : 1;
        if (!*format || !strchr("YymbBhdeHMS%", *format)) {
            *unknown = *format ? *format : '%';
            return false;
        }
        good = good && take_specifier(*format, &text, day);
    }
    return good && !text[strspn(text, " ")];
}

static truce_status refuse_day(const char *text, const char *format, bson_error_t *error)
{
    return truce__fail(TRUCE_INVALID, error, "\"%.40s\" is not a date of the form \"%s\"", text,
                       *format ? format : "2024-01-31");
}

/* Appends the date of a row, read by `dateFormat`, or without it as RFC 3339. */
static truce_status read_day(const struct records *records, const bson_t *row, bson_t *record,
                             bson_error_t *error)
{
    const char *text = book_import_csv_cell_of(records, row, "date"),
               *format = truce__field_text(&records->rules, "dateFormat");
    char shown[DATE_TEXT_MAX], plain[40], unknown = '\0';
    struct day day = {0};
    int64_t date_ms;

    if (*format && !take_day(text, format, &day, &unknown)) {
        if (!unknown)
            return refuse_day(text, format, error);
        /* Tries the specifiers of MongoDB's $dateFromString that strptime does not have. */
        if (truce__date_parse_format(text, strlen(text), format, strlen(format), NULL, &date_ms,
                                     error))
            return truce__fail(
                TRUCE_INVALID, error,
                "\"%.40s\" is not a date of the form \"%s\": the specifiers are %%Y %%y %%m "
                "%%b %%B %%d %%e %%H %%M %%S and those of $dateFromString, not %%%c",
                text, format, unknown);
    } else if (*format && !day.year) {
        return truce__fail(TRUCE_INVALID, error, "rules: the `dateFormat` \"%.40s\" has no year",
                           format);
    } else if (*format) {
        snprintf(plain, sizeof plain, "%04d-%02d-%02d", day.year % 10000, day.month % 100,
                 day.day % 100);
        if (truce__date_parse(plain, strlen(plain), NULL, &date_ms, error))
            return truce__fail(TRUCE_INVALID, error, "\"%.40s\": the day %s does not exist", text,
                               plain);
        date_ms += 1000 * day.in_day_s;
    } else if (truce__date_parse_typed(text, strlen(text), &date_ms, error)) {
        return refuse_day(text, format, error);
    }
    BSON_APPEND_UTF8(record, "date", truce__date_show(date_ms, shown));
    return TRUCE_OK;
}

/* ---- amounts --------------------------------------------------------------------------------- */

static bool book_import_csv_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Returns true if a thousands separator is followed by three digits, and then by a separator, the
 * decimal point, or the end. Without this check, "1.50" would be read as 150 where the comma is the
 * decimal point. */
static bool is_group(const char *at, char point)
{
    return book_import_csv_is_digit(at[1]) && book_import_csv_is_digit(at[2]) &&
           book_import_csv_is_digit(at[3]) && !book_import_csv_is_digit(at[4]) &&
           (!at[4] || at[4] == at[0] || at[4] == point || at[4] == ' ');
}

static truce_status book_import_csv_refuse_amount(const char *text, char point, bson_error_t *error)
{
    return truce__fail(TRUCE_INVALID, error,
                       "invalid amount \"%.40s\": the decimal point is \"%c\"", text, point);
}

/* Reads the sign of an amount: "-5", "5-", and "(5)" are negative. Cuts the text to the digits. */
static bool take_sign(const char **from, const char **end)
{
    const char *at = *from, *stop = *end;
    bool minus = false;

    if (stop - at >= 2 && *at == '(' && stop[-1] == ')') {
        minus = true;
        at++;
        stop--;
    } else if (stop > at && stop[-1] == '-') {
        minus = true;
        stop--;
    } else if (stop > at && (*at == '-' || *at == '+')) {
        minus = *at == '-';
        at++;
    }
    while (at < stop && *at == ' ')
        at++;
    while (stop > at && stop[-1] == ' ')
        stop--;
    *from = at;
    *end = stop;
    return minus;
}

/* Writes the amount with "." before its last digits and without other separators. `sign` -1 negates
 * it. `outgoing` marks a column of outgoing money, in which some banks write negative numbers. */
static truce_status book_import_csv_read_amount(const struct records *records, const char *text,
                                                int sign, bool outgoing,
                                                char amount[TRUCE_LEDGER_AMOUNT],
                                                bson_error_t *error)
{
    const char *at = text, *end = text + strlen(text),
               *decimal = truce__field_text(&records->rules, "decimal");
    char point = *decimal ? *decimal : '.', group = point == '.' ? ',' : '.';
    size_t length = 0;
    bool minus = take_sign(&at, &end) || outgoing, pointed = false, grouped = false;

    if (at == end)
        return truce__fail(TRUCE_INVALID, error,
                           "the cell of the amount is empty: expected a number such as 12.50");
    for (; at < end; at++) {
        bool separates = *at == group || *at == '\'' || *at == ' ';

        if (separates ? pointed || !length || (!grouped && length > 3) || !is_group(at, point)
                      : !book_import_csv_is_digit(*at) && (*at != point || pointed))
            return book_import_csv_refuse_amount(text, point, error);
        if (length >= TRUCE_LEDGER_AMOUNT - 3)
            return truce__fail(TRUCE_LIMIT, error,
                               "\"%.60s\" has too many digits: an amount has at most 64 bits of "
                               "the smallest unit",
                               text);
        pointed = pointed || *at == point;
        grouped = grouped || separates;
        if (!separates)
            amount[1 + length++] = *at == point ? '.' : *at;
    }
    amount[0] = minus == (sign > 0) ? '-' : '+';
    amount[1 + length] = '\0';
    return TRUCE_OK;
}

static bool book_import_csv_is_nothing(const char *text)
{
    return !text[strspn(text, "0.,- ")];
}

/* Finds the cell with the amount. Sets *outgoing to whether it is in the column of outgoing
 * money. */
static truce_status find_amount(const struct records *records, const bson_t *row, bool *outgoing,
                                const char **text, bson_error_t *error)
{
    const char *in, *out;

    *outgoing = false;
    *text = book_import_csv_cell_of(records, row, "amount");
    if (*truce__field_text(&records->rules, "amount"))
        return TRUCE_OK;
    in = book_import_csv_cell_of(records, row, "amountIn");
    out = book_import_csv_cell_of(records, row, "amountOut");
    if (book_import_csv_is_nothing(in) == book_import_csv_is_nothing(out))
        return truce__fail(TRUCE_INVALID, error,
                           book_import_csv_is_nothing(in)
                               ? "the amount is missing: both columns are empty or 0"
                               : "both columns have an amount: \"%.30s\" and \"%.30s\"",
                           in, out);
    *outgoing = book_import_csv_is_nothing(in);
    *text = *outgoing ? out : in;
    return TRUCE_OK;
}

static truce_status book_import_csv_matches(const struct match *match, const bson_t *row,
                                            bool *matches, bson_error_t *error)
{
    struct arena arena = ARENA_INIT;
    struct query_context context = {.now_ms = truce__clock_wall_ms(), .arena = &arena};
    struct match_result result = {0};
    truce_status status = TRUCE_OK;

    if (match)
        status = truce__match_test(match, truce__value_document(row), &context, &result, error);
    *matches = !status && result.matched;
    truce__arena_release(&arena);
    return status;
}

/* Finds the other account of a row. The result is "" if the rules name no account. */
static truce_status other_of(const struct records *records, const bson_t *row, const char **other,
                             bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bool matches = false;

    *other = truce__field_text(&records->rules, "otherwise");
    for (uint32_t i = 0; !status && !matches && i < records->others_count; i++) {
        status = book_import_csv_matches(records->others[i], row, &matches, error);
        if (matches)
            *other = records->accounts[i];
    }
    return status;
}

/* Appends an entry with the amount of the row; `sign` -1 negates it. */
static truce_status book_import_csv_append_side(const struct records *records, const bson_t *row,
                                                const char *account, int sign, bson_t *entries,
                                                bson_error_t *error)
{
    const char *currency = book_import_csv_cell_of(records, row, "currency");
    char amount[TRUCE_LEDGER_AMOUNT];
    const char *text, *key = sign > 0 ? "0" : "1";
    bool outgoing;
    truce_status status = find_amount(records, row, &outgoing, &text, error);
    bson_t entry;

    if (!status)
        status = book_import_csv_read_amount(records, text, sign, outgoing, amount, error);
    bson_append_document_begin(entries, key, 1, &entry);
    BSON_APPEND_UTF8(&entry, "account", account);
    if (!status)
        BSON_APPEND_UTF8(&entry, "amount", amount);
    if (*currency)
        BSON_APPEND_UTF8(&entry, "currency", currency);
    bson_append_document_end(entries, &entry);
    return status;
}

/* Makes the record of a row: id, date, description, and two entries. */
static truce_status book_import_csv_make_record(struct records *records, const bson_t *row,
                                                const char *other, bson_t *record,
                                                bson_error_t *error)
{
    const char *id = book_import_csv_cell_of(records, row, "id"),
               *description = book_import_csv_cell_of(records, row, "description");
    bson_t entries, meta;
    truce_status status;

    if (*id)
        BSON_APPEND_UTF8(record, "id", id);
    else
        book_make_id(records->ids, "csv", records->text, records->size, record);
    status = read_day(records, row, record, error);
    if (*description) {
        bson_append_document_begin(record, "meta", 4, &meta);
        BSON_APPEND_UTF8(&meta, "description", description);
        bson_append_document_end(record, &meta);
    }
    bson_append_array_begin(record, "entries", 7, &entries);
    if (!status)
        status = book_import_csv_append_side(
            records, row, truce__field_text(&records->rules, "account"), 1, &entries, error);
    if (!status)
        status = book_import_csv_append_side(records, row, other, -1, &entries, error);
    bson_append_array_end(record, &entries);
    return status;
}

/* Returns the number of bytes of white space at the start of the text. No-break spaces (U+00A0,
 * U+202F) count. */
static size_t space_at(const char *text)
{
    if (*text == ' ' || *text == '\t')
        return 1;
    return !strncmp(text, "\xc2\xa0", 2) ? 2 : !strncmp(text, "\xe2\x80\xaf", 3) ? 3 : 0;
}

/* Copies the row with plain spaces, and without spaces around its cells. */
static void normalize_row(const bson_t *row, bson_t *tidy)
{
    bson_iter_t iter;

    (void)!bson_iter_init(&iter, row);
    while (bson_iter_next(&iter)) {
        const char *text = bson_iter_utf8(&iter, NULL);
        struct buffer cell = {0};

        for (size_t space; *text; text += space ? space : 1) {
            space = space_at(text);
            if (!space || cell.size)
                truce__buffer_append_byte(&cell, space ? ' ' : (uint8_t)*text);
        }
        while (cell.size && cell.bytes[cell.size - 1] == ' ')
            cell.size--;
        bson_append_utf8(tidy, bson_iter_key(&iter), -1, cell.size ? (const char *)cell.bytes : "",
                         (int)cell.size);
        truce__buffer_release(&cell);
    }
}

/* Passes the record of a row on, unless `skip` matches it. */
static truce_status take_tidy(struct records *records, const bson_t *row, bson_error_t *error)
{
    const char *other;
    bson_t record = BSON_INITIALIZER;
    bool skips;
    truce_status status = book_import_csv_matches(records->skip, row, &skips, error);

    if (!status && !skips)
        status = other_of(records, row, &other, error);
    if (status || skips)
        goto out;
    status =
        *other
            ? book_import_csv_make_record(records, row, other, &record, error)
            : book_import_csv_refuse(
                  error,
                  "no rule of `other` matches this line: add a rule, or `otherwise`, the account "
                  "of all other lines");
    if (!status)
        status = records->source->function(records->source->arg, records->line, &record, error);
out:
    bson_destroy(&record);
    return status;
}

static truce_status take_by_rules(struct records *records, const bson_t *row, bson_error_t *error)
{
    bson_t tidy = BSON_INITIALIZER;
    truce_status status;

    normalize_row(row, &tidy);
    status = take_tidy(records, &tidy, error);
    bson_destroy(&tidy);
    return status;
}

static truce_status book_import_csv_compile(const bson_iter_t *filter, struct match **match,
                                            bson_error_t *error)
{
    const uint8_t *data;
    uint32_t length;
    bson_t document;

    if (!BSON_ITER_HOLDS_DOCUMENT(filter))
        return book_import_csv_refuse(
            error, "rules: `if` and `skip` must be filters, for example {Text: \"RENT\"}");
    bson_iter_document(filter, &length, &data);
    bson_init_static(&document, data, length);
    return truce__match_new(&document, match, error);
}

/* Compiles a rule {if, account} of `other`. */
static truce_status compile_other(struct records *records, const bson_iter_t *rule,
                                  bson_error_t *error)
{
    struct match **match = &records->others[records->others_count];
    bson_iter_t condition, account, field;

    if (BSON_ITER_HOLDS_DOCUMENT(rule) && bson_iter_recurse(rule, &field))
        while (bson_iter_next(&field))
            if (strcmp(bson_iter_key(&field), "if") && strcmp(bson_iter_key(&field), "account"))
                return truce__fail(TRUCE_INVALID, error,
                                   "rules: `%.60s` is not a field of a rule of `other`: expected "
                                   "`if` and `account`",
                                   bson_iter_key(&field));
    if (records->others_count == LEDGER_CSV_RULES_MAX)
        return truce__fail(TRUCE_LIMIT, error, "rules: `other` may have at most %d rules",
                           LEDGER_CSV_RULES_MAX);
    if (!BSON_ITER_HOLDS_DOCUMENT(rule) || !bson_iter_recurse(rule, &condition) ||
        !bson_iter_find(&condition, "if") || !bson_iter_recurse(rule, &account) ||
        !bson_iter_find(&account, "account") || !BSON_ITER_HOLDS_UTF8(&account))
        return book_import_csv_refuse(
            error, "rules: each rule of `other` must be {if: FILTER, account: NAME}");
    records->accounts[records->others_count++] = bson_iter_utf8(&account, NULL);
    return book_import_csv_compile(&condition, match, error);
}

/* Copies rules, or a part of them, with the fields of columns in place of their names: of "$Name"
 * at the top, and of the names in filters. */
static void name_fields(const bson_t *rules, bool top, bson_t *to)
{
    bson_iter_t iter;

    (void)!bson_iter_init(&iter, rules);
    while (bson_iter_next(&iter)) {
        const char *text = BSON_ITER_HOLDS_UTF8(&iter) ? bson_iter_utf8(&iter, NULL) : "";
        char *name = cli_csv_field(bson_iter_key(&iter)), *field = cli_csv_field(text);
        struct value value = truce__value_of_iter(&iter);
        bson_t inner, made = BSON_INITIALIZER;

        if (truce__value_is_container(value)) {
            truce__value_bson(value, &inner);
            name_fields(&inner, false, &made);
        }
        if (value.type == BSON_TYPE_ARRAY)
            bson_append_array(to, name, -1, &made);
        else if (value.type == BSON_TYPE_DOCUMENT)
            bson_append_document(to, name, -1, &made);
        else if (top && *text == '$')
            bson_append_utf8(to, name, -1, field, -1);
        else
            bson_append_iter(to, name, -1, &iter);
        bson_destroy(&made);
        bson_free(field);
        bson_free(name);
    }
}

/* Refuses rules that give each line the same amount or id, and an unknown decimal mark. */
static truce_status check_texts(const bson_t *rules, bson_error_t *error)
{
    static const char *const columns[] = {"amount", "amountIn", "amountOut", "id"};
    const char *decimal = truce__field_text(rules, "decimal");

    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        const char *text = truce__field_text(rules, columns[i]);

        if (bson_has_field(rules, columns[i]) && *text != '$')
            return truce__fail(TRUCE_INVALID, error,
                               "rules: `%s` must name a column, for example \"$%.60s\"", columns[i],
                               *text ? text : "Amount");
    }
    if (bson_has_field(rules, "decimal") && strcmp(decimal, ".") && strcmp(decimal, ","))
        return truce__fail(TRUCE_INVALID, error,
                           "rules: `decimal` must be \".\" or \",\", not \"%.20s\"", decimal);
    return TRUCE_OK;
}

/* Checks the rules, and compiles `skip` and `other`. */
static truce_status book_import_csv_read_rules(struct records *records, bson_error_t *error)
{
    static const char *const texts[] = {"account",  "date",        "dateFormat", "amount",
                                        "amountIn", "amountOut",   "decimal",    "currency",
                                        "id",       "description", "otherwise",  "separator"};
    static const char *const needed[] = {"account", "date"};
    const bson_t *rules = &records->rules;
    bool two = *truce__field_text(rules, "amountIn") && *truce__field_text(rules, "amountOut");
    truce_status status = TRUCE_OK;
    bson_iter_t iter, list;
    char separator;

    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        if (!*truce__field_text(rules, needed[i]))
            return truce__fail(TRUCE_INVALID, error, "rules: `%s` is missing", needed[i]);
    }
    if (two == (*truce__field_text(rules, "amount") != 0))
        return book_import_csv_refuse(
            error, "rules: give one column, `amount`, or two columns, `amountIn` and "
                   "`amountOut`");
    if (bson_iter_init_find(&iter, rules, "separator") &&
        (!BSON_ITER_HOLDS_UTF8(&iter) ||
         !cli_csv_separator_of(bson_iter_utf8(&iter, NULL), &separator)))
        return book_import_csv_refuse(
            error, "rules: `separator` must be one character, for example \";\"");
    status = check_texts(rules, error);
    (void)!bson_iter_init(&iter, &records->rules);
    while (!status && bson_iter_next(&iter)) {
        const char *name = bson_iter_key(&iter);
        bool known = false;

        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
            known = known || (!strcmp(texts[i], name) && BSON_ITER_HOLDS_UTF8(&iter));
        known = known || ((!strcmp(name, "headerLines") || !strcmp(name, "footerLines")) &&
                          BSON_ITER_HOLDS_INT(&iter) && bson_iter_as_int64(&iter) >= 0);
        if (!strcmp(name, "skip")) {
            status = book_import_csv_compile(&iter, &records->skip, error);
        } else if (!strcmp(name, "other") && BSON_ITER_HOLDS_ARRAY(&iter) &&
                   bson_iter_recurse(&iter, &list)) {
            while (!status && bson_iter_next(&list))
                status = compile_other(records, &list, error);
        } else if (!known) {
            status = truce__fail(
                TRUCE_INVALID, error,
                "rules: `%s` is unknown, or its value has the wrong type: truce help ledger import "
                "shows the rules",
                name);
        }
    }
    return status;
}

truce_status book_read_csv(struct book_source *source, bson_error_t *error)
{
    struct records *records = bson_malloc0(sizeof *records);
    truce_status status;

    records->source = source;
    records->ids = book_ids_new();
    bson_init(&records->record);
    bson_init(&records->entries);
    bson_init(&records->rules);
    if (source->rules)
        name_fields(source->rules, true, &records->rules);
    status = source->rules ? book_import_csv_read_rules(records, error) : TRUCE_OK;
    if (!status)
        status = source->rules
                     ? book_import_csv_read_rows(records, "*=string", take_by_rules, error)
                     : read_own(records, error);
    for (uint32_t i = 0; i < records->others_count; i++)
        truce__match_free(records->others[i]);
    truce__match_free(records->skip);
    cli_csv_free(records->csv);
    book_ids_free(records->ids);
    bson_destroy(&records->record);
    bson_destroy(&records->entries);
    bson_destroy(&records->rules);
    bson_free(records);
    return status;
}

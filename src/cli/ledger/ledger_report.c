/* truce ledger report: shows the changes of accounts in each period, or for each value of the
 * metadata. */
#include "cli/ledger/ledger_report.h"

#include <stdlib.h>
#include <string.h>

#include "base/field.h"
#include "bson/date.h"
#include "cli/commands.h"
#include "cli/core/csv.h"

/* ---- adding up ------------------------------------------------------------------------------ */

static uint32_t report_hash_of(const char *group, const char *account, size_t length,
                               const char *currency)
{
    uint32_t hash = 2166136261U;

    for (; *group; group++)
        hash = (hash ^ (uint8_t)*group) * 16777619U;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (uint8_t)account[i]) * 16777619U;
    for (; *currency; currency++)
        hash = (hash ^ (uint8_t)*currency) * 16777619U;
    return hash ^ hash >> 15;
}

static uint32_t *report_place(const struct report *report, const char *group, const char *account,
                              size_t length, const char *currency)
{
    uint32_t at = report_hash_of(group, account, length, currency) & (report->room - 1);

    for (; report->slots[at]; at = (at + 1) & (report->room - 1)) {
        const struct report_cell *cell = &report->cells[report->slots[at] - 1];

        if (!strcmp(cell->group, group) && strlen(cell->account) == length &&
            !memcmp(cell->account, account, length) && !strcmp(cell->currency, currency))
            break;
    }
    return &report->slots[at];
}

static void report_grow(struct report *report)
{
    report->room = report->room ? 2 * report->room : 256;
    bson_free(report->slots);
    report->slots = bson_malloc0(report->room * sizeof *report->slots);
    report->cells = bson_realloc(report->cells, report->room / 2 * sizeof *report->cells);
    for (uint32_t i = 0; i < report->count; i++) {
        const struct report_cell *cell = &report->cells[i];

        *report_place(report, cell->group, cell->account, strlen(cell->account), cell->currency) =
            i + 1;
    }
}

static struct report_cell *report_cell_of(struct report *report, const char *group,
                                          const char *account, size_t length, const char *currency)
{
    uint32_t *slot;

    if (report->count >= report->room / 2)
        report_grow(report);
    slot = report_place(report, group, account, length, currency);
    if (!*slot) {
        report->cells[report->count++] =
            (struct report_cell){.group = bson_strdup(group),
                                 .account = bson_strndup(account, length),
                                 .currency = bson_strdup(currency)};
        *slot = report->count;
    }
    return &report->cells[*slot - 1];
}

/* Returns the length of the account's first `depth` parts. */
static size_t length_at(const char *account, int64_t depth)
{
    size_t length = 0;

    if (!depth)
        return strlen(account);
    for (;; length++) {
        length += strcspn(account + length, ":");
        if (!account[length] || !--depth)
            return length;
    }
}

static bool report_is_below(const char *account, const char *prefix)
{
    size_t length = prefix ? strlen(prefix) : 0;

    return !length ||
           (!strncmp(account, prefix, length) && (!account[length] || account[length] == ':'));
}

static bool report_add_change(struct report *report, const char *group, const bson_t *change)
{
    const char *account = truce__field_text(change, "account"),
               *currency = truce__field_text(change, "currency");
    int64_t value = truce__field_number(change, "value");
    size_t length = length_at(account, report->depth);
    truce_ledger_balance balance;
    struct report_cell *cell;

    if (!value || !report_is_below(account, report->cli->arguments[1]))
        return true;
    if (!*currency) { /* inserted by other programs */
        report->status =
            truce_ledger_balance_of(report->ledger, account, NULL, &balance, &report->error);
        currency = balance.currency;
    }
    cell = report_cell_of(report, group, account, length, currency);
    if (!report->status && __builtin_add_overflow(cell->change, value, &cell->change))
        report->status = truce__fail(TRUCE_LIMIT, &report->error, "the sum of %s exceeds 64 bits",
                                     cell->account);
    return !report->status;
}

static void name_period(const struct report *report, int64_t date_ms, char name[DATE_TEXT_MAX])
{
    struct date_parts parts;

    truce__date_split(date_ms, &(struct date_zone){0}, &parts);
    if (!strcmp(report->by, "year"))
        snprintf(name, DATE_TEXT_MAX, "%04d", (int)parts.year);
    else if (!strcmp(report->by, "quarter"))
        snprintf(name, DATE_TEXT_MAX, "%04d-Q%d", (int)parts.year, (parts.month + 2) / 3);
    else if (!strcmp(report->by, "month"))
        snprintf(name, DATE_TEXT_MAX, "%04d-%02d", (int)parts.year, parts.month);
    else
        snprintf(name, DATE_TEXT_MAX, "%04d-%02d-%02d", (int)parts.year, parts.month, parts.day);
}

/* Returns the document's group. The caller frees it. */
static char *report_group_of(const struct report *report, const bson_t *document)
{
    bson_iter_t iter, found;
    char name[DATE_TEXT_MAX];
    struct buffer text = {0};
    char *made;

    if (!report->path) {
        if (!bson_iter_init_find(&iter, document, "effective"))
            (void)!bson_iter_init_find(&iter, document, "ts");
        name_period(report, BSON_ITER_HOLDS_DATE_TIME(&iter) ? bson_iter_date_time(&iter) : 0,
                    name);
        return bson_strdup(name);
    }
    if (!bson_iter_init(&iter, document) || !bson_iter_find_descendant(&iter, report->path, &found))
        return bson_strdup("");
    if (BSON_ITER_HOLDS_UTF8(&found))
        return bson_strdup(bson_iter_utf8(&found, NULL));
    truce__json_write_value(&text, &found, JSON_RELAXED);
    made = bson_strndup((const char *)text.bytes, text.size);
    truce__buffer_release(&text);
    return made;
}

static bool report_add_transaction(const bson_t *document, void *arg)
{
    struct report *report = arg;
    bson_iter_t iter, changes;
    bool more = true;
    char *group;

    if (strcmp(truce__field_text(document, "state"), "VALID") != 0 ||
        !bson_iter_init_find(&iter, document, "changes") || !bson_iter_recurse(&iter, &changes))
        return true;
    group = report_group_of(report, document);
    while (more && bson_iter_next(&changes)) {
        const uint8_t *data;
        uint32_t length;
        bson_t change;

        bson_iter_document(&changes, &length, &data);
        bson_init_static(&change, data, length);
        more = report_add_change(report, group, &change);
    }
    bson_free(group);
    return more;
}

/* ---- in order ------------------------------------------------------------------------------- */

static int report_compare_places(const struct report_cell *one, const struct report_cell *other)
{
    int order = strcmp(one->account, other->account);

    return order ? order : strcmp(one->currency, other->currency);
}

static int compare_by_account(const void *a, const void *b)
{
    const struct report_cell *one = a, *other = b;
    int order = report_compare_places(one, other);

    return order ? order : strcmp(one->group, other->group);
}

static int compare_by_group(const void *a, const void *b)
{
    const struct report_cell *one = a, *other = b;
    int order = strcmp(one->group, other->group);

    return order ? order : report_compare_places(one, other);
}

static truce_status report_add_up(struct report *report, bson_error_t *error)
{
    struct report_cell *cells = report->cells;

    if (!report->count)
        return TRUCE_OK;
    qsort(cells, report->count, sizeof *cells, compare_by_account);
    for (uint32_t i = 0; i < report->count; i++) {
        bool follows = i && !report_compare_places(&cells[i - 1], &cells[i]);

        if (__builtin_add_overflow(follows ? cells[i - 1].balance : 0, cells[i].change,
                                   &cells[i].balance))
            return truce__fail(TRUCE_LIMIT, error, "the sum of %s exceeds 64 bits",
                               cells[i].account);
    }
    qsort(cells, report->count, sizeof *cells, compare_by_group);
    return TRUCE_OK;
}

/* ---- as text -------------------------------------------------------------------------------- */

static truce_status print_rows(const struct report *report, bson_error_t *error)
{
    bool more = true;

    cli_ledger_table(report->cli);
    for (uint32_t i = 0; more && i < report->count; i++) {
        const struct report_cell *cell = &report->cells[i];
        bson_t row = BSON_INITIALIZER;
        int digits = 0;
        truce_status status = truce_ledger_digits(report->ledger, cell->currency, &digits, error);

        if (status) {
            bson_destroy(&row);
            return status;
        }
        BSON_APPEND_UTF8(&row, report->path ? report->path : report->by, cell->group);
        BSON_APPEND_UTF8(&row, "account", cell->account);
        cli_ledger_amount(report->cli, "change", cell->change, digits, &row);
        if (!report->path)
            cli_ledger_amount(report->cli, "balance", cell->balance, digits, &row);
        BSON_APPEND_UTF8(&row, "currency", cell->currency);
        more = cli_print(&row, JSON_RELAXED);
        bson_destroy(&row);
    }
    return TRUCE_OK;
}

static void add_cell(struct buffer *out, const char *text, char end)
{
    cli_csv_write_text(out, text, strlen(text));
    truce__buffer_append_byte(out, (uint8_t)end);
}

static truce_status report_write_csv(const struct report *report, struct buffer *out,
                                     bson_error_t *error)
{
    static const char *const names[] = {"account", "change", "balance", "currency"};
    truce_status status = TRUCE_OK;

    add_cell(out, report->path ? report->path : report->by, ',');
    for (size_t i = 0; i < 4; i++) {
        if (i != 2 || !report->path)
            add_cell(out, names[i], i == 3 ? '\n' : ',');
    }
    for (uint32_t i = 0; !status && i < report->count; i++) {
        const struct report_cell *cell = &report->cells[i];
        char amount[TRUCE_LEDGER_AMOUNT];
        int digits = 0;

        status = truce_ledger_digits(report->ledger, cell->currency, &digits, error);
        add_cell(out, cell->group, ',');
        add_cell(out, cell->account, ',');
        add_cell(out, truce_ledger_show(cell->change, digits, amount), ',');
        if (!report->path)
            add_cell(out, truce_ledger_show(cell->balance, digits, amount), ',');
        add_cell(out, cell->currency, '\n');
    }
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static truce_status report_print_report(const struct report *report, const char *form,
                                        bson_error_t *error)
{
    struct buffer out = {0};
    truce_status status;

    if (!strcmp(form, "text"))
        return print_rows(report, error);
    status = !strcmp(form, "csv") ? report_write_csv(report, &out, error)
                                  : report_draw(report, &out, error);
    if (!status)
        (void)cli_write(out.bytes, out.size); /* cli_output_end reports a failure */
    truce__buffer_release(&out);
    return status;
}

/* Returns the option's value if it is one of these words, or `otherwise` if it was not given. For
 * another word, prints the error and returns NULL. */
static const char *report_word_of(const struct cli *cli, const char *option, const char *otherwise,
                                  const char *const *words)
{
    const char *given = cli_text(cli, option);

    if (!given)
        return otherwise;
    for (; *words; words++) {
        if (!strcmp(*words, given))
            return given;
    }
    return NULL;
}

static int report_make(struct report *report, const char *form)
{
    bson_error_t error;
    truce_status status = truce_ledger_walk(report->ledger, report_add_transaction, report, &error);

    if (!status && report->status) {
        status = report->status;
        error = report->error;
    }
    if (!status)
        status = report_add_up(report, &error);
    if (!status)
        status = report_print_report(report, form, &error);
    return status ? cli_error(report->cli, NULL, status, &error) : CLI_DONE;
}

static int report_run(struct cli *cli)
{
    static const char *const periods[] = {"day", "month", "quarter", "year", NULL};
    static const char *const forms[] = {"text", "csv", "svg", NULL};
    const char *by = cli_text(cli, "by"), *form = report_word_of(cli, "form", "text", forms);
    bool meta = by && !strncmp(by, "meta.", 5) && by[5];
    struct report report = {.cli = cli,
                            .by = meta ? by : report_word_of(cli, "by", "month", periods),
                            .path = meta ? by : NULL};
    int code;

    if (!report.by)
        return cli_usage(cli,
                         "--by must be day, month, quarter, year, or a field such as meta.order");
    if (!form)
        return cli_usage(cli, "--form must be text, csv, or svg");
    if (!cli_number(cli, "depth", 1, 100, 0, &report.depth))
        return CLI_USAGE;
    report.ledger = cli_ledger_new(cli);
    code = report_make(&report, form);
    for (uint32_t i = 0; i < report.count; i++) {
        bson_free(report.cells[i].group);
        bson_free(report.cells[i].account);
        bson_free(report.cells[i].currency);
    }
    bson_free(report.cells);
    bson_free(report.slots);
    truce_ledger_free(report.ledger);
    return code;
}

static const struct cli_command cli_ledger_report = {
    .noun = "ledger",
    .verb = "report",
    .arguments = "LEDGER [PREFIX]",
    .summary = "report changes by period or metadata",
    .help = "Reports a snapshot, by value dates. PREFIX is an account, or the first parts of\n"
            "some (assets). --depth 1 combines all accounts with the same first part. --form svg\n"
            "draws a picture: lines of the balances, or bars for values of the metadata.",
    .example = "truce ledger currency book EUR 2\n"
               "truce ledger open book external:bank --currency EUR\n"
               "truce ledger open book customers:ada --currency EUR --min 0\n"
               "truce ledger post book external:bank customers:ada 20.00 --id 'payment 1' \\\n"
               "    --effective 2024-01-31\n"
               "truce ledger report book customers --by month\n"
               "truce ledger report book --form svg > book.svg",
    .options =
        (const struct cli_option[]){
            {"by", 0, "GROUP", "day, month, quarter, year, or meta.FIELD (default: month)", false},
            {"depth", 0, "N", "parts of the accounts' names (default: all)", false},
            {"form", 0, "FORM", "text, csv, or svg (default: text)", false},
            {0}},
    .store = CLI_STORE_READ,
    .run = report_run,
};

cli_command_list cli_ledger_report_commands = {&cli_ledger_report, NULL};

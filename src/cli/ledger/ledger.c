/* truce ledger currency, open, rules, post, settle, void, reverse. */
#include "cli/ledger/ledger.h"

#include <string.h>

#include "base/field.h"
#include "cli/commands.h"
#include "cli/core/operation_row.h"

/* ---- shared --------------------------------------------------------------------------------- */

/* Reads the digits in the reply of an operation that names an account or a currency. */
static int ledger_read_digits(struct cli *cli, const char *operation, const char *field,
                              const char *name, char currency[25], int *digits)
{
    bson_t request = BSON_INITIALIZER, reply;
    int code;

    BSON_APPEND_UTF8(&request, operation, cli->arguments[0]);
    BSON_APPEND_UTF8(&request, field, name);
    code = cli_row_send_found(cli, &request, &reply);
    *digits = (int)truce__field_number(&reply, "digits");
    if (currency)
        snprintf(currency, 25, "%s", truce__field_text(&reply, "currency"));
    bson_destroy(&request);
    bson_destroy(&reply);
    return code;
}

int cli_ledger_digits(struct cli *cli, const char *account, int *digits)
{
    return cli_ledger_account_digits(cli, account, NULL, digits);
}

int cli_ledger_account_digits(struct cli *cli, const char *account, char currency[25], int *digits)
{
    return ledger_read_digits(cli, "truceLedgerBalance", "account", account, currency, digits);
}

int cli_ledger_currency_digits(struct cli *cli, const char *currency, int *digits)
{
    return ledger_read_digits(cli, "truceLedgerCurrency", "currency", currency, NULL, digits);
}

void cli_ledger_amount(const struct cli *cli, const char *field, int64_t value, int digits,
                       bson_t *document)
{
    char text[TRUCE_LEDGER_AMOUNT], wide[TRUCE_LEDGER_AMOUNT + LEDGER_AMOUNT_WIDTH];

    truce_ledger_show(value, digits, text);
    snprintf(wide, sizeof wide, "%*s", cli->json ? 0 : LEDGER_AMOUNT_WIDTH, text);
    bson_append_utf8(document, field, -1, wide, -1);
}

void cli_ledger_table(const struct cli *cli)
{
    if (!cli->json)
        cli_print_as(CLI_TABLE);
}

/* ---- currencies and accounts ---------------------------------------------------------------- */

static const struct cli_command cli_ledger_currency = {
    .noun = "ledger",
    .verb = "currency",
    .arguments = "LEDGER CODE DIGITS",
    .summary = "declare the decimal digits of a currency",
    .help = "LEDGER is a collection. The digits cannot be changed. With --slots (for a sharded\n"
            "cluster, in the first command of a ledger), the numbers of accounts are documents of\n"
            "that collection and need no unique index.",
    .example = "truce ledger currency book EUR 2",
    .store = CLI_STORE_WRITE,
    .row =
        &(const struct cli_row){
            .name = "truceLedgerOpen", .named = "CODE currency", .fields = "slots", .format = ""},
    .run = cli_row_run,
};

static int ledger_read_amount(const struct cli *cli, const char *what, const char *text, int digits,
                              int64_t *value)
{
    bson_error_t error;
    truce_status status = truce_ledger_read(text, digits, value, &error);

    return status ? cli_error(cli, what, status, &error) : CLI_DONE;
}

/* Runs an operation that sets the rules of an account. */
static int ledger_set_rules(struct cli *cli, int digits)
{
    static const char *const bounds[] = {"min", "max"};
    bson_t more = BSON_INITIALIZER;
    int code = CLI_DONE;

    for (size_t i = 0; !code && i < 2; i++) {
        int64_t value;

        if (!cli_text(cli, bounds[i]))
            continue;
        code = ledger_read_amount(cli, bounds[i], cli_text(cli, bounds[i]), digits, &value);
        if (!code)
            BSON_APPEND_INT64(&more, bounds[i], value);
    }
    if (!code)
        code = cli_row_run_with(cli, cli->command->row, &more);
    bson_destroy(&more);
    return code;
}

static int ledger_run_open(struct cli *cli)
{
    const char *currency = cli_text(cli, "currency");
    bson_t request = BSON_INITIALIZER, reply;
    int code;

    if (!currency)
        return cli_usage(cli, "--currency CODE is missing: the currency of account \"%s\"",
                         cli->arguments[1]);
    BSON_APPEND_UTF8(&request, "truceLedgerCurrency", cli->arguments[0]);
    BSON_APPEND_UTF8(&request, "currency", currency);
    code = cli_row_send(cli, &request, &reply);
    if (!code && !strcmp(truce__field_text(&reply, "status"), "not found")) {
        const char *reason = truce__field_text(&reply, "reason"), *remedy = strstr(reason, ": ");

        code = cli_message(cli, CLI_NO,
                           "%.*s; first declare the currency: truce ledger currency %s %s DIGITS",
                           (int)(remedy ? (size_t)(remedy - reason) : strlen(reason)), reason,
                           cli->arguments[0], currency);
    }
    if (!code)
        code = ledger_set_rules(cli, (int)truce__field_number(&reply, "digits"));
    bson_destroy(&request);
    bson_destroy(&reply);
    return code;
}

/* The options for amounts, which are decimals on the command line. */
static const struct cli_option rules_options[] = {
    {"min", 0, "AMOUNT", "minimum available amount (0: no overdraft)", false},
    {"max", 0, "AMOUNT", "maximum balance", false},
    {0}};

static const struct cli_command cli_ledger_open = {
    .noun = "ledger",
    .verb = "open",
    .arguments = "LEDGER ACCOUNT",
    .summary = "open an account with its rules",
    .help =
        "ACCOUNT is a name with \":\" between its parts (assets:cash). Opening it again with the\n"
        "same rules changes nothing.",
    .example = "truce ledger currency book EUR 2\n"
               "truce ledger open book customers:ada --currency EUR --min 0",
    .options = rules_options,
    .store = CLI_STORE_WRITE,
    .row = &(const struct cli_row){.name = "truceLedgerOpen",
                                   .fields = "currency debitOnly creditOnly",
                                   .format = ""},
    .run = ledger_run_open,
};

static int rules_run(struct cli *cli)
{
    int digits, code = cli_ledger_digits(cli, cli->arguments[1], &digits);

    return code ? code : ledger_set_rules(cli, digits);
}

static const struct cli_command cli_ledger_rules = {
    .noun = "ledger",
    .verb = "rules",
    .arguments = "LEDGER ACCOUNT",
    .summary = "replace the rules of an account",
    .help = "Replaces all rules, from the next entry on. A rule that is not given is removed.",
    .example = "truce ledger currency book EUR 2\n"
               "truce ledger open book customers:ada --currency EUR --min 0\n"
               "truce ledger rules book customers:ada --min -500.00",
    .options = rules_options,
    .store = CLI_STORE_CHANGE,
    .row = &(const struct cli_row){.name = "truceLedgerRules",
                                   .fields = "debitOnly creditOnly closed",
                                   .format = ""},
    .run = rules_run,
};

/* ---- posting -------------------------------------------------------------------------------- */

static bool ledger_print_posted(struct cli *cli, const bson_t *reply)
{
    (void)cli;
    return cli_put("%s\n", truce__field_true(reply, "exists") ? "exists" : "posted");
}

/* The entries of a transaction on the command line. */
struct entries {
    struct {
        const char *account;
        size_t length;
        int64_t value;
    } entries[CLI_OPTIONS_MAX + 2];
    uint32_t count;
};

static void ledger_add_entry(struct entries *entries, const char *account, size_t length,
                             int64_t value)
{
    entries->entries[entries->count].account = account;
    entries->entries[entries->count].length = length;
    entries->entries[entries->count++].value = value;
}

/* Appends the array `entries` of {account, value} to the request. */
static void ledger_append_entries(const struct entries *entries, bson_t *more)
{
    bson_t array, one;

    BSON_APPEND_ARRAY_BEGIN(more, "entries", &array);
    for (uint32_t i = 0; i < entries->count; i++) {
        char key[12];

        snprintf(key, sizeof key, "%u", i);
        BSON_APPEND_DOCUMENT_BEGIN(&array, key, &one);
        bson_append_utf8(&one, "account", -1, entries->entries[i].account,
                         (int)entries->entries[i].length);
        BSON_APPEND_INT64(&one, "value", entries->entries[i].value);
        bson_append_document_end(&array, &one);
    }
    bson_append_array_end(more, &array);
}

/* Posts a transaction. `of` is the transaction that it settles, voids, or reverses. Ids are
 * strings. */
static int ledger_post(struct cli *cli, const struct entries *entries, const char *of)
{
    bson_t more = BSON_INITIALIZER;
    int code;

    if (!cli_text(cli, "id"))
        return cli_usage(cli, "--id ID is missing: an id that you choose, the same in every retry");
    BSON_APPEND_UTF8(&more, "id", cli_text(cli, "id"));
    if (of)
        BSON_APPEND_UTF8(&more, "of", of);
    else if (cli_flag(cli, "pending"))
        BSON_APPEND_UTF8(&more, "kind", "pending");
    if (entries->count)
        ledger_append_entries(entries, &more);
    code = cli_row_run_with(cli, cli->command->row, &more);
    bson_destroy(&more);
    return code;
}

/* Checks ACCOUNT=AMOUNT of an option. *length is the length of the account's name. */
static int split_entry(const struct cli *cli, const char *option, const char *text, size_t *length)
{
    const char *equals = strrchr(text, '=');

    if (!equals || equals == text)
        return cli_usage(cli,
                         "invalid --%s \"%s\": expected ACCOUNT=AMOUNT, for example shop=10.00",
                         option, text);
    *length = (size_t)(equals - text);
    return CLI_DONE;
}

/* Reads --also, an amount that goes from the first account to another one. */
static int read_also(const struct cli *cli, const char *text, int digits, struct entries *entries)
{
    int64_t value = 0;
    size_t length = 0;
    int code = split_entry(cli, "also", text, &length);

    if (!code)
        code = ledger_read_amount(cli, "--also", text + length + 1, digits, &value);
    if (!code && value <= 0)
        return cli_usage(
            cli, "the amount of --also must be more than 0: it moves from FROM to that account");
    if (!code)
        ledger_add_entry(entries, text, length, value);
    return code;
}

/* Reads FROM TO AMOUNT and --also. The first entry pays what all others receive. */
static int read_payment(struct cli *cli, struct entries *entries)
{
    const char *from = cli->arguments[1], *to = cli->arguments[2];
    int64_t value = 0;
    int digits, code;

    if (!strcmp(from, to))
        return cli_usage(cli, "FROM and TO are the same account, %s: nothing would be moved", from);
    code = cli_ledger_digits(cli, from, &digits);
    if (!code)
        code = ledger_read_amount(cli, "AMOUNT", cli->arguments[3], digits, &value);
    if (!code && value <= 0)
        code = cli_usage(
            cli, "AMOUNT must be more than 0: it moves from FROM to TO (to reverse the direction, "
                 "exchange them)");
    ledger_add_entry(entries, from, strlen(from), 0);
    ledger_add_entry(entries, to, strlen(to), value);
    for (int i = 0; !code && cli_texts(cli, "also", i); i++)
        code = read_also(cli, cli_texts(cli, "also", i), digits, entries);
    for (uint32_t i = 1; !code && i < entries->count; i++) {
        if (__builtin_sub_overflow(entries->entries[0].value, entries->entries[i].value,
                                   &entries->entries[0].value))
            code = cli_usage(cli, "the sum of the amounts does not fit into 64 bits");
    }
    return code;
}

/* Reads --entry, in the currency of its account. */
static int ledger_read_entry(struct cli *cli, const char *text, struct entries *entries)
{
    int64_t value = 0;
    size_t length = 0;
    int digits, code = split_entry(cli, "entry", text, &length);
    char *account;

    if (code)
        return code;
    account = bson_strndup(text, length);
    code = cli_ledger_digits(cli, account, &digits);
    bson_free(account);
    if (!code)
        code = ledger_read_amount(cli, "--entry", text + length + 1, digits, &value);
    if (!code)
        ledger_add_entry(entries, text, length, value);
    return code;
}

static int ledger_read_entries(struct cli *cli, struct entries *entries)
{
    int code = CLI_DONE;

    for (int i = 0; !code && cli_texts(cli, "entry", i); i++)
        code = ledger_read_entry(cli, cli_texts(cli, "entry", i), entries);
    return code;
}

static int ledger_run_post(struct cli *cli)
{
    bool listed = cli_texts(cli, "entry", 0);
    struct entries entries = {.count = 0};
    int code;

    if (cli->count != (listed ? 1 : 4))
        return cli_usage(cli, "give FROM TO AMOUNT, or --entry ACCOUNT=AMOUNT for every entry");
    if (listed && cli_texts(cli, "also", 0))
        return cli_usage(cli, "--also needs FROM TO AMOUNT, not --entry");
    code = listed ? ledger_read_entries(cli, &entries) : read_payment(cli, &entries);
    return code ? code : ledger_post(cli, &entries, NULL);
}

static int ledger_run_resolve(struct cli *cli)
{
    struct entries entries = {.count = 0};
    int code = ledger_read_entries(cli, &entries);

    return code ? code : ledger_post(cli, &entries, cli->arguments[1]);
}

#define POST_ROW(set_, fields_)                                                                    \
    &(const struct cli_row)                                                                        \
    {                                                                                              \
        .name = "truceLedgerPost", .set = set_,                                                    \
        .named = "TRANSACTION of FROM entries TO entries AMOUNT entries",                          \
        .fields = "meta effectiveMS" fields_, .limits = true, .print = ledger_print_posted         \
    }
#define ID_OPTION                                                                                  \
    {                                                                                              \
        "id", 'i', "ID", "your id of the transaction, the same in every retry", false              \
    }
#define ENTRY_OPTION(help)                                                                         \
    {                                                                                              \
        "entry", 0, "ACCOUNT=AMOUNT", help, true                                                   \
    }

static const struct cli_command cli_ledger_post = {
    .noun = "ledger",
    .verb = "post",
    .arguments = "LEDGER [FROM] [TO] [AMOUNT]",
    .summary = "move an amount between accounts exactly once",
    .help =
        "Repeating the call with the same --id prints \"exists\" and changes nothing. The same id\n"
        "with other content is refused. With --pending, the amount is only reserved: settle or\n"
        "void it, or it becomes available again at --expires.\n"
        "\n"
        "For several payers or currencies, give the entries instead of FROM,\n"
        "TO, and AMOUNT: --entry ada=-5.00 --entry ben=-5.00 --entry shop=10.00. They must sum to\n"
        "zero in each currency.",
    .example = "truce ledger currency book EUR 2\n"
               "truce ledger open book external:bank --currency EUR\n"
               "truce ledger open book customers:ada --currency EUR --min 0\n"
               "truce ledger post book external:bank customers:ada 20.00 --id 'payment 1'",
    .options =
        (const struct cli_option[]){
            ID_OPTION,
            {"also", 0, "ACCOUNT=AMOUNT", "another amount from the first account (may be repeated)",
             true},
            ENTRY_OPTION("an entry; negative: the account pays (may be repeated)"),
            {"pending", 'p', NULL, "only reserve the amount", false},
            {0}},
    .store = CLI_STORE_WRITE,
    .row = POST_ROW(NULL, " expiresMS"),
    .run = ledger_run_post,
};

static const struct cli_option resolve_options[] = {
    ID_OPTION, ENTRY_OPTION("a part: this amount of that account (may be repeated)"), {0}};

#define EXAMPLE_PENDING                                                                            \
    "truce ledger currency book EUR 2\n"                                                           \
    "truce ledger open book external:bank --currency EUR\n"                                        \
    "truce ledger open book customers:ada --currency EUR --min 0\n"                                \
    "truce ledger post book external:bank customers:ada 20.00 --id 'payment 1' --pending\n"

static const struct cli_command cli_ledger_settle = {
    .noun = "ledger",
    .verb = "settle",
    .arguments = "LEDGER TRANSACTION",
    .summary = "post a pending transaction",
    .help =
        "Posts the whole transaction, or only the amounts of --entry, which are negative if the\n"
        "account pays (--entry ada=-5.00 --entry shop=5.00). The rest becomes available again.",
    .example = EXAMPLE_PENDING "truce ledger settle book 'payment 1' --id 'payment 1 came'",
    .options = resolve_options,
    .store = CLI_STORE_CHANGE,
    .row = POST_ROW("{kind: 'settle'}", ""),
    .run = ledger_run_resolve,
};

static const struct cli_command cli_ledger_void = {
    .noun = "ledger",
    .verb = "void",
    .arguments = "LEDGER TRANSACTION",
    .summary = "void a pending transaction",
    .example = EXAMPLE_PENDING "truce ledger void book 'payment 1' --id 'payment 1 failed'",
    .options = resolve_options,
    .store = CLI_STORE_CHANGE,
    .row = POST_ROW("{kind: 'void'}", ""),
    .run = ledger_run_resolve,
};

static const struct cli_command cli_ledger_reverse = {
    .noun = "ledger",
    .verb = "reverse",
    .arguments = "LEDGER TRANSACTION",
    .summary = "reverse a transaction once",
    .help =
        "Reverses the whole transaction, or only the amounts of --entry, which are negative if\n"
        "the account returns money (--entry shop=-5.00 --entry ada=5.00).",
    .example = "truce ledger currency book EUR 2\n"
               "truce ledger open book external:bank --currency EUR\n"
               "truce ledger open book customers:ada --currency EUR --min 0\n"
               "truce ledger post book external:bank customers:ada 20.00 --id 'payment 1'\n"
               "truce ledger reverse book 'payment 1' --id 'payment 1 bounced'",
    .options = resolve_options,
    .store = CLI_STORE_CHANGE,
    .row = POST_ROW("{kind: 'reverse'}", ""),
    .run = ledger_run_resolve,
};

cli_command_list cli_ledger_commands = {
    &cli_ledger_currency, &cli_ledger_open, &cli_ledger_rules,   &cli_ledger_post,
    &cli_ledger_settle,   &cli_ledger_void, &cli_ledger_reverse, NULL};

/* truce ledger currency, open, rules, post, settle, void, reverse. */
#include "cli/ledger/ledger.h"

#include <inttypes.h>
#include <string.h>

#include "base/limits.h"
#include "cli/commands.h"

/* ---- shared --------------------------------------------------------------------------------- */

truce_ledger *cli_ledger_new(const struct cli *cli)
{
    return truce_ledger_new(cli->store, &(truce_ledger_options){.collection = cli->arguments[0],
                                                                .deadline_ms = cli->deadline_ms});
}

int cli_ledger_digits(const struct cli *cli, truce_ledger *ledger, const char *account, int *digits)
{
    truce_ledger_balance balance;
    bson_error_t error;
    truce_status status = truce_ledger_balance_of(ledger, account, NULL, &balance, &error);

    *digits = 0;
    if (!status && balance.currency[0])
        status = truce_ledger_digits(ledger, balance.currency, digits, &error);
    return status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
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

static int run_currency(struct cli *cli)
{
    truce_ledger *ledger;
    bson_error_t error;
    truce_status status;
    int64_t digits;

    if (!cli_argument_number(cli, 2, "DIGITS", 0, 18, &digits))
        return CLI_USAGE;
    ledger = truce_ledger_new(cli->store, &(truce_ledger_options){.collection = cli->arguments[0],
                                                                  .slots = cli_text(cli, "slots"),
                                                                  .deadline_ms = cli->deadline_ms});
    status = truce_ledger_currency(ledger, cli->arguments[1], (int)digits, &error);
    truce_ledger_free(ledger);
    return status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
}

const struct cli_command cli_ledger_currency = {
    .noun = "ledger",
    .verb = "currency",
    .arguments = "LEDGER CODE DIGITS",
    .summary = "declare the decimal digits of a currency",
    .help = "LEDGER is a collection. The digits cannot be changed. With --slots (for a sharded\n"
            "cluster, in the first command of a ledger), the numbers of accounts are documents of\n"
            "that collection and need no unique index.",
    .example = "truce ledger currency book EUR 2",
    .options =
        (const struct cli_option[]){{"slots", 0, "COLLECTION",
                                     "the collection of the accounts' numbers (default: an index)",
                                     false},
                                    {0}},
    .store = CLI_STORE_WRITE,
    .run = run_currency,
};

/* Reads an amount of an option, in the currency of that name. */
static int option_amount(const struct cli *cli, const char *option, int digits, bool *given,
                         int64_t *value)
{
    const char *text = cli_text(cli, option);
    bson_error_t error;
    truce_status status;

    *given = text;
    if (!text)
        return CLI_DONE;
    status = truce_ledger_read(text, digits, value, &error);
    return status ? cli_error(cli, option, status, &error) : CLI_DONE;
}

typedef truce_status rules_function(truce_ledger *ledger, truce_commit *commit,
                                    const truce_ledger_account *account, bson_error_t *error);

static int ledger_set_rules(struct cli *cli, truce_ledger *ledger, const char *currency, int digits,
                            rules_function *function)
{
    truce_ledger_account account = {.account = cli->arguments[1],
                                    .currency = currency,
                                    .debit_only = cli_flag(cli, "debit-only"),
                                    .credit_only = cli_flag(cli, "credit-only")};
    bson_error_t error;
    truce_status status;
    int code = option_amount(cli, "min", digits, &account.has_min, &account.min);

    if (!code)
        code = option_amount(cli, "max", digits, &account.has_max, &account.max);
    if (code)
        return code;
    if (function == truce_ledger_rules)
        account.closed = cli_flag(cli, "closed");
    status = function(ledger, NULL, &account, &error);
    return status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
}

static int ledger_run_open(struct cli *cli)
{
    truce_ledger *ledger;
    bson_error_t error;
    truce_status status;
    int digits, code;

    if (!cli_text(cli, "currency"))
        return cli_usage(cli, "--currency CODE is missing: the currency of account %s",
                         cli->arguments[1]);
    ledger = cli_ledger_new(cli);
    status = truce_ledger_digits(ledger, cli_text(cli, "currency"), &digits, &error);
    code = status ? cli_error(cli, NULL, status, &error)
                  : ledger_set_rules(cli, ledger, cli_text(cli, "currency"), digits,
                                     truce_ledger_open);
    truce_ledger_free(ledger);
    return code;
}

#define RULES_OPTIONS                                                                              \
    {"min", 0, "AMOUNT", "minimum available amount (0: no overdraft)", false},                     \
        {"max", 0, "AMOUNT", "maximum balance", false},                                            \
        {"debit-only", 0, NULL, "refuse incoming amounts", false},                                 \
    {                                                                                              \
        "credit-only", 0, NULL, "refuse outgoing amounts", false                                   \
    }

const struct cli_command cli_ledger_open = {
    .noun = "ledger",
    .verb = "open",
    .arguments = "LEDGER ACCOUNT",
    .summary = "open an account with its rules",
    .help =
        "ACCOUNT is a name with \":\" between its parts (assets:cash). Opening it again with the\n"
        "same rules changes nothing.",
    .example = "truce ledger currency book EUR 2\n"
               "truce ledger open book customers:ada --currency EUR --min 0",
    .options =
        (const struct cli_option[]){
            {"currency", 'c', "CODE", "the account's currency", false}, RULES_OPTIONS, {0}},
    .store = CLI_STORE_CHANGE,
    .run = ledger_run_open,
};

static int ledger_print_rules(struct cli *cli)
{
    truce_ledger *ledger = cli_ledger_new(cli);
    int digits, code = cli_ledger_digits(cli, ledger, cli->arguments[1], &digits);

    if (!code)
        code = ledger_set_rules(cli, ledger, NULL, digits, truce_ledger_rules);
    truce_ledger_free(ledger);
    return code;
}

const struct cli_command cli_ledger_rules = {
    .noun = "ledger",
    .verb = "rules",
    .arguments = "LEDGER ACCOUNT",
    .summary = "replace the rules of an account",
    .help = "Replaces all rules, from the next entry on. A rule that is not given is removed.",
    .example = "truce ledger currency book EUR 2\n"
               "truce ledger open book customers:ada --currency EUR --min 0\n"
               "truce ledger rules book customers:ada --min -500.00",
    .options = (const struct cli_option[]){{"closed", 0, NULL, "refuse all entries", false},
                                           RULES_OPTIONS,
                                           {0}},
    .store = CLI_STORE_CHANGE,
    .run = ledger_print_rules,
};

/* ---- posting -------------------------------------------------------------------------------- */

static int ledger_answer(const struct cli *cli, const truce_ledger_result *result)
{
    bson_t document = BSON_INITIALIZER;

    BSON_APPEND_BOOL(&document, "exists", result->exists);
    BSON_APPEND_DATE_TIME(&document, "booked", result->booked_ms);
    cli_answer(cli, &document, "%s", result->exists ? "exists" : "posted");
    bson_destroy(&document);
    return CLI_DONE;
}

static int run_ledger_post(struct cli *cli, truce_ledger *ledger,
                           truce_ledger_transaction *transaction)
{
    truce_ledger_result result;
    bson_error_t error;
    truce_status status;
    bson_value_t id;
    bson_t meta;
    bool given;
    int code = CLI_USAGE;

    if (!cli_text(cli, "id"))
        return cli_usage(cli, "--id ID is missing: an id that you choose, the same in every retry");
    id = truce_id_utf8(cli_text(cli, "id"));
    transaction->id = &id;
    if (!cli_option_document(cli, "meta", &meta, &given))
        goto out;
    transaction->meta = given ? &meta : NULL;
    if (!cli_date(cli, "effective", &transaction->effective_ms))
        goto out;
    status = truce_ledger_post(ledger, NULL, transaction, &result, &error);
    code = status ? cli_error(cli, NULL, status, &error) : ledger_answer(cli, &result);
    if (status == TRUCE_LIMIT) /* a rule of an account forbids it */
        code = CLI_NO;
out:
    bson_destroy(&meta);
    return code;
}

/* ---- entries of the command line ------------------------------------------------------------ */

struct entries {
    truce_ledger_entry *entries; /* room for LEDGER_ENTRIES_MAX; the names are owned */
    uint32_t count;
};

static int ledger_add_entry(const struct cli *cli, struct entries *entries, const char *account,
                            size_t length, int64_t value)
{
    if (entries->count == LEDGER_ENTRIES_MAX)
        return cli_usage(cli, "a transaction has at most %d entries", LEDGER_ENTRIES_MAX);
    entries->entries[entries->count++] =
        (truce_ledger_entry){.account = bson_strndup(account, length), .value = value};
    return CLI_DONE;
}

static void ledger_release_entries(struct entries *entries)
{
    for (uint32_t i = 0; i < entries->count; i++)
        bson_free((char *)entries->entries[i].account);
    bson_free(entries->entries);
}

/* Checks ACCOUNT=AMOUNT of an option. *length is the length of the account's name. */
static int split_entry(const struct cli *cli, const char *option, const char *text, size_t *length)
{
    const char *equals = strrchr(text, '=');

    if (!equals || equals == text)
        return cli_usage(cli, "--%s: \"%s\" is not ACCOUNT=AMOUNT", option, text);
    *length = (size_t)(equals - text);
    return CLI_DONE;
}

static int ledger_read_amount(const struct cli *cli, const char *what, const char *text, int digits,
                              int64_t *value)
{
    bson_error_t error;
    truce_status status = truce_ledger_read(text, digits, value, &error);

    return status ? cli_error(cli, what, status, &error) : CLI_DONE;
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
        return cli_usage(cli,
                         "--also: the amount must be more than 0: it goes from the first account");
    return code ? code : ledger_add_entry(cli, entries, text, length, value);
}

/* Reads FROM TO AMOUNT and --also. The first entry pays what all others receive. */
static int read_payment(const struct cli *cli, truce_ledger *ledger, struct entries *entries)
{
    const char *from = cli->arguments[1], *to = cli->arguments[2];
    int64_t value = 0;
    int digits, code = cli_ledger_digits(cli, ledger, from, &digits);

    if (!code)
        code = ledger_read_amount(cli, "AMOUNT", cli->arguments[3], digits, &value);
    if (!code && value <= 0)
        code = cli_usage(
            cli, "AMOUNT must be more than 0: it goes from the first account to the second");
    if (!code)
        code = ledger_add_entry(cli, entries, from, strlen(from), 0);
    if (!code)
        code = ledger_add_entry(cli, entries, to, strlen(to), value);
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
static int ledger_read_entry(const struct cli *cli, truce_ledger *ledger, const char *text,
                             struct entries *entries)
{
    int64_t value = 0;
    size_t length = 0;
    int digits, code = split_entry(cli, "entry", text, &length);
    char *account;

    if (code)
        return code;
    account = bson_strndup(text, length);
    code = cli_ledger_digits(cli, ledger, account, &digits);
    bson_free(account);
    if (!code)
        code = ledger_read_amount(cli, "--entry", text + length + 1, digits, &value);
    return code ? code : ledger_add_entry(cli, entries, text, length, value);
}

static int ledger_read_entries(const struct cli *cli, truce_ledger *ledger, struct entries *entries)
{
    int code = CLI_DONE;

    entries->entries = bson_malloc0(LEDGER_ENTRIES_MAX * sizeof *entries->entries);
    for (int i = 0; !code && cli_texts(cli, "entry", i); i++)
        code = ledger_read_entry(cli, ledger, cli_texts(cli, "entry", i), entries);
    return code;
}

/* ---- post ----------------------------------------------------------------------------------- */

static int read_post(const struct cli *cli, truce_ledger *ledger, struct entries *entries)
{
    bool listed = cli_texts(cli, "entry", 0);
    int code;

    if (cli->count != (listed ? 1 : 4))
        return cli_usage(cli, "give FROM TO AMOUNT, or --entry ACCOUNT=AMOUNT for every entry");
    if (listed && cli_texts(cli, "also", 0))
        return cli_usage(cli, "--also needs FROM TO AMOUNT, not --entry");
    code = ledger_read_entries(cli, ledger, entries);
    return code || listed ? code : read_payment(cli, ledger, entries);
}

static int ledger_run_post(struct cli *cli)
{
    truce_ledger *ledger = cli_ledger_new(cli);
    struct entries entries = {0};
    truce_ledger_transaction transaction = {0};
    int code = read_post(cli, ledger, &entries);

    transaction.entries = entries.entries;
    transaction.count = entries.count;
    if (!code && !cli_date(cli, "expires", &transaction.expires_ms))
        code = CLI_USAGE;
    if (!code) {
        if (cli_flag(cli, "pending"))
            transaction.kind = TRUCE_LEDGER_PENDING;
        code = run_ledger_post(cli, ledger, &transaction);
    }
    ledger_release_entries(&entries);
    truce_ledger_free(ledger);
    return code;
}

#define ID_OPTION                                                                                  \
    {                                                                                              \
        "id", 'i', "ID", "your id of the transaction, the same in every retry", false              \
    }
#define META_OPTION                                                                                \
    {                                                                                              \
        "meta", 0, "DOCUMENT", "metadata: {order: 17}", false                                      \
    }
#define DATE_OPTION                                                                                \
    {                                                                                              \
        "effective", 0, "DATE", "the value date (default: now)", false                             \
    }

const struct cli_command cli_ledger_post = {
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
            META_OPTION,
            DATE_OPTION,
            {"also", 0, "ACCOUNT=AMOUNT", "another amount from the first account (may be repeated)",
             true},
            {"entry", 0, "ACCOUNT=AMOUNT", "an entry; negative: the account pays (may be repeated)",
             true},
            {"pending", 'p', NULL, "only reserve the amount", false},
            {"expires", 0, "DATE", "end of the reservation", false},
            {0}},
    .store = CLI_STORE_CHANGE,
    .run = ledger_run_post,
};

static int ledger_resolve(struct cli *cli, truce_ledger_kind kind)
{
    truce_ledger *ledger = cli_ledger_new(cli);
    bson_value_t of = truce_id_utf8(cli->arguments[1]);
    struct entries entries = {0};
    truce_ledger_transaction transaction = {.kind = kind, .of = &of};
    int code = CLI_DONE;

    if (kind != TRUCE_LEDGER_VOID)
        code = ledger_read_entries(cli, ledger, &entries);
    transaction.entries = entries.entries;
    transaction.count = entries.count;
    if (!code)
        code = run_ledger_post(cli, ledger, &transaction);
    ledger_release_entries(&entries);
    truce_ledger_free(ledger);
    return code;
}

static int ledger_run_settle(struct cli *cli)
{
    return ledger_resolve(cli, TRUCE_LEDGER_SETTLE);
}

static int ledger_run_void(struct cli *cli)
{
    return ledger_resolve(cli, TRUCE_LEDGER_VOID);
}

static int run_reverse(struct cli *cli)
{
    return ledger_resolve(cli, TRUCE_LEDGER_REVERSE);
}

static const struct cli_option void_options[] = {ID_OPTION, META_OPTION, DATE_OPTION, {0}};
static const struct cli_option resolve_options[] = {
    ID_OPTION,
    META_OPTION,
    DATE_OPTION,
    {"entry", 0, "ACCOUNT=AMOUNT", "a part: this amount of that account (may be repeated)", true},
    {0}};

#define EXAMPLE_PENDING                                                                            \
    "truce ledger currency book EUR 2\n"                                                           \
    "truce ledger open book external:bank --currency EUR\n"                                        \
    "truce ledger open book customers:ada --currency EUR --min 0\n"                                \
    "truce ledger post book external:bank customers:ada 20.00 --id 'payment 1' --pending\n"

const struct cli_command cli_ledger_settle = {
    .noun = "ledger",
    .verb = "settle",
    .arguments = "LEDGER TRANSACTION",
    .summary = "post a pending transaction",
    .help = "Posts the whole, or the amounts of --entry, which are negative if the account\n"
            "pays (--entry ada=-5.00 --entry shop=5.00). The rest becomes available again.",
    .example = EXAMPLE_PENDING "truce ledger settle book 'payment 1' --id 'payment 1 came'",
    .options = resolve_options,
    .store = CLI_STORE_CHANGE,
    .run = ledger_run_settle,
};

const struct cli_command cli_ledger_void = {
    .noun = "ledger",
    .verb = "void",
    .arguments = "LEDGER TRANSACTION",
    .summary = "void a pending transaction",
    .example = EXAMPLE_PENDING "truce ledger void book 'payment 1' --id 'payment 1 failed'",
    .options = void_options,
    .store = CLI_STORE_CHANGE,
    .run = ledger_run_void,
};

const struct cli_command cli_ledger_reverse = {
    .noun = "ledger",
    .verb = "reverse",
    .arguments = "LEDGER TRANSACTION",
    .summary = "reverse a transaction once",
    .help = "Posts the whole, or the amounts of --entry, which are negative if the account\n"
            "returns money (--entry shop=-5.00 --entry ada=5.00).",
    .example = "truce ledger currency book EUR 2\n"
               "truce ledger open book external:bank --currency EUR\n"
               "truce ledger open book customers:ada --currency EUR --min 0\n"
               "truce ledger post book external:bank customers:ada 20.00 --id 'payment 1'\n"
               "truce ledger reverse book 'payment 1' --id 'payment 1 bounced'",
    .options = resolve_options,
    .store = CLI_STORE_CHANGE,
    .run = run_reverse,
};

/*
 * Ledgers: accounts, posting, balances, and statements.
 *
 * Amounts are integers in the smallest unit of the currency (cents). Books with decimal amounts are
 * in operation_ledger_book.c, reports in operation_ledger_report.c.
 *
 * A statement has a maximum number of lines and of bytes. It ends early if it reaches one of them,
 * and the next request continues after its last number.
 */
#include <string.h>

#include "bson/value.h"
#include "operations/operation_ledger.h"
#include "patterns/ledger/ledger.h"

/* The maximum number of lines, and of bytes, of a statement in one reply. */
#define LINES_MAX     1000
#define STATEMENT_MAX (8 * 1024 * 1024)

#define POST_ENTRIES  1000
#define POSTS_MAX     1000

static void *make_ledger(void *arg)
{
    const void *const *made = arg;

    return truce_ledger_new((truce_store *)made[0], made[1]);
}

static void free_ledger(void *ledger)
{
    truce_ledger_free(ledger);
}

/* Returns the shared handle of the ledger that the call names, with the collection of numbers in
 * `slots` or NULL. Checks the access to the collection. */
static truce_status ledger_take(struct operation_call *call, bool writes, const char *slots,
                                struct handle **handle, bson_error_t *error)
{
    truce_ledger_options options = {.slots = slots};
    const void *made[2] = {call->store, &options};
    char *text;
    truce_status status = truce__operation_own_collection(call, writes, &options.collection, error);

    if (status)
        return status;
    text = truce__operation_key("ledger", (const char *const[]){options.collection, slots}, 2);
    *handle = truce__operation_handle(call, text, make_ledger, made, free_ledger);
    bson_free(text);
    return TRUCE_OK;
}

truce_status truce__operation_ledger(struct operation_call *call, bool writes,
                                     struct handle **handle, bson_error_t *error)
{
    return ledger_take(call, writes, NULL, handle, error);
}

truce_status truce__operation_ledger_read(struct operation_call *call, struct handle **handle,
                                          bson_error_t *error)
{
    truce_status status = ledger_take(call, false, NULL, handle, error);

    if (status)
        return status;
    status = truce__ledger_must_exist((*handle)->thing, error);
    if (status)
        truce__operation_return(call, *handle);
    return status;
}

/* ---- truceLedgerOpen ------------------------------------------------------------------------- */

/* The rules of an account. */
struct rules_given {
    const char *account;
    int64_t min, max;
    bool debitOnly, creditOnly, closed;
};

#define RULE_FIELDS                                                                                \
    {GIVEN(rules_given, min, FIELD_NUMBER),                                                        \
     "the minimum of the available balance after each transaction; 0: no overdraft. A new "        \
     "account has the balance 0, even below its minimum"},                                         \
        {GIVEN(rules_given, max, FIELD_NUMBER),                                                    \
         "the maximum of the balance plus pending credits"},                                       \
        {GIVEN(rules_given, debitOnly, FIELD_FLAG), "the account accepts no credits"},             \
        {GIVEN(rules_given, creditOnly, FIELD_FLAG), "the account accepts no debits"},             \
    {                                                                                              \
        GIVEN(rules_given, closed, FIELD_FLAG), "the account accepts no transactions"              \
    }

struct open_given {
    struct rules_given rules; /* Must be the first field: the table has offsets into it. */
    const char *currency, *slots;
    int64_t digits;
};

static const struct operation_field open_fields[] = {
    {GIVEN(open_given, currency, FIELD_TEXT), "the code of the currency: \"EUR\"", .needed = true},
    {GIVEN(open_given, digits, FIELD_NUMBER),
     "declares the currency with this number of decimal digits; needed once for each currency", 0,
     LEDGER_DIGITS_MAX},
    {GIVEN(rules_given, account, FIELD_TEXT),
     "the account to open: \"assets:cash\"; absent: only the currency is declared"},
    {GIVEN(open_given, slots, FIELD_TEXT),
     "the collection of the accounts' numbers, for a sharded cluster, in the first operation of a "
     "ledger; absent: an index"},
    RULE_FIELDS,
    {{0}}};

static truce_ledger_account ledger_account(const struct operation_call *call,
                                           const struct rules_given *given, const char *currency)
{
    return (truce_ledger_account){.account = given->account,
                                  .currency = currency,
                                  .has_min = truce__operation_given(call, "min"),
                                  .has_max = truce__operation_given(call, "max"),
                                  .min = given->min,
                                  .max = given->max,
                                  .debit_only = given->debitOnly,
                                  .credit_only = given->creditOnly,
                                  .closed = given->closed};
}

static truce_status ledger_open_account(struct operation_call *call, truce_ledger *ledger,
                                        const struct open_given *given, bson_error_t *error)
{
    const truce_ledger_account account = ledger_account(call, &given->rules, given->currency);
    truce_status status = TRUCE_OK;

    if (truce__operation_given(call, "digits"))
        status = truce_ledger_currency(ledger, given->currency, (int)given->digits, error);
    if (!status && given->rules.account)
        status = truce_ledger_open(ledger, call->commit, &account, error);
    return status;
}

static truce_status operation_ledger_run_open(struct operation_call *call, const void *arg,
                                              bson_t *reply, bson_error_t *error)
{
    static const char *const rules[] = {"min", "max", "debitOnly", "creditOnly", "closed", NULL};
    const struct open_given *given = arg;
    struct handle *handle;
    truce_status status;

    (void)reply;
    if (!truce__operation_given(call, "account") && !truce__operation_given(call, "digits"))
        return truce__refuse(
            CODE_INVALID_OPTIONS, error,
            "give 'digits' to declare the currency, 'account' to open an account, or both");
    for (const char *const *rule = rules; !given->rules.account && *rule; rule++)
        if (truce__operation_given(call, *rule))
            return truce__refuse(CODE_INVALID_OPTIONS, error,
                                 "'%s' needs 'account': it is a rule of an account", *rule);
    status = ledger_take(call, true, given->slots, &handle, error);
    if (status)
        return status;
    status = ledger_open_account(call, handle->thing, given, error);
    truce__operation_return(call, handle);
    return status;
}

static const struct operation_row open_operation = {
    OPERATION("truceLedgerOpen", ROLE_WRITE,
              "declares a currency, and opens an account with its rules"),
    .target = "ledger",
    .value = "the collection of the ledger",
    .answer = "nothing more, also if the account is open with these rules. An error: 11000 "
              "(duplicate) it is open with other rules, or the currency has other digits",
    .fields = open_fields,
    .size = sizeof(struct open_given),
    .run = operation_ledger_run_open,
    .ways = OPERATION_COMMITS | OPERATION_REPEATABLE | OPERATION_STRICT,
    .example = "{truceLedgerOpen: 'bank', currency: 'EUR', digits: 2, account: 'cash'}",
};

/* ---- truceLedgerRules ------------------------------------------------------------------------ */

static const struct operation_field rules_fields[] = {
    {GIVEN(rules_given, account, FIELD_TEXT), "the account", .needed = true}, RULE_FIELDS, {{0}}};

static truce_status ledger_run_rules(struct operation_call *call, const void *arg, bson_t *reply,
                                     bson_error_t *error)
{
    const truce_ledger_account account = ledger_account(call, arg, NULL);
    struct handle *handle;
    truce_status status = truce__operation_ledger(call, true, &handle, error);

    (void)reply;
    if (status)
        return status;
    status = truce_ledger_rules(handle->thing, call->commit, &account, error);
    truce__operation_return(call, handle);
    return status;
}

static const struct operation_row rules_operation = {
    OPERATION("truceLedgerRules", ROLE_WRITE, "replaces all rules of an account"),
    .target = "ledger",
    .value = "the collection of the ledger",
    .answer =
        "nothing more. The rules apply from the next transaction. Omitting a field removes its "
        "rule. An error: 125 (not found) the account is not open; 2 (invalid) an account with "
        "pending transactions cannot be closed",
    .fields = rules_fields,
    .size = sizeof(struct rules_given),
    .run = ledger_run_rules,
    .ways = OPERATION_COMMITS | OPERATION_REPEATABLE | OPERATION_STRICT,
    .example = "{truceLedgerRules: 'bank', account: 'cash', min: -50000}",
};

/* ---- truceLedgerPost ------------------------------------------------------------------------- */

struct post_given {
    const bson_value_t *id, *of;
    const char *kind;
    const bson_t *entries, *meta;
    int64_t effectiveMS, expiresMS;
};

const char *const truce__ledger_kinds[] = {"transfer", "pending", "settle",
                                           "void",     "reverse", NULL};

static const struct operation_field post_fields[] = {
    {GIVEN(post_given, id, FIELD_VALUE), "the caller's id; posting it again has no effect",
     .needed = true},
    {GIVEN(post_given, entries, FIELD_ARRAY),
     "each {account, value, type}: `value` is the change of the balance, negative for outgoing "
     "money; the values sum to 0 in each currency. `type` is a word for people, which no rule "
     "reads; absent: \"withdraw\" or \"deposit\", by the sign. A repeated call lists them in the "
     "same order"},
    {GIVEN(post_given, kind, FIELD_TEXT), "the kind of transaction; absent: \"transfer\"",
     .words = truce__ledger_kinds},
    {GIVEN(post_given, of, FIELD_VALUE),
     "the id of the transaction that is settled, voided, or reversed"},
    {GIVEN(post_given, effectiveMS, FIELD_TIME),
     "the value date, ms since 1970; absent: the time of booking", TIME_LEAST_MS, DATE_LAST_MS},
    {GIVEN(post_given, expiresMS, FIELD_TIME),
     "of a pending transaction: the time after which it cannot be settled, in the future, ms since "
     "1970",
     TIME_LEAST_MS, DATE_LAST_MS},
    {GIVEN(post_given, meta, FIELD_DOCUMENT), "metadata that is stored with the transaction"},
    {{0}}};

struct entry_given {
    const char *account, *type;
    int64_t value;
};

static const struct field entry_fields[] = {GIVEN(entry_given, account, FIELD_TEXT),
                                            GIVEN(entry_given, type, FIELD_TEXT),
                                            GIVEN(entry_given, value, FIELD_WHOLE),
                                            {0}};

/* Checks that an amount is an integer. The error for 12.50 or "12.50" names the smallest unit,
 * which the general check of a field does not know. */
static truce_status operation_ledger_check_amount(const bson_t *entry, bson_error_t *error)
{
    bson_iter_t at;
    int64_t whole;
    char text[60];

    if (!bson_iter_init_find(&at, entry, "value") || BSON_ITER_HOLDS_NULL(&at) ||
        truce__field_to_whole(&at, &whole))
        return TRUCE_OK;
    return truce__refuse(truce__field_is_number(&at) ? CODE_BAD_VALUE : CODE_TYPE_MISMATCH, error,
                         "'value' must be a whole number of the currency's smallest unit, such as "
                         "1250 for 12.50, not %s",
                         truce__value_show(truce__value_of_iter(&at), text, sizeof text));
}

/* Reads an entry {account, value, type}. The entry borrows from the memory of the call. */
static truce_status operation_ledger_read_entry(struct operation_call *call, const bson_iter_t *at,
                                                truce_ledger_entry *entry, bson_error_t *error)
{
    struct entry_given given = {0};
    const bson_t *document;
    truce_status status;

    if (!BSON_ITER_HOLDS_DOCUMENT(at))
        return truce__element_wrong_type("entries", at, "a document", error);
    document = truce__field_view(call->arena, at);
    status = operation_ledger_check_amount(document, error);
    if (!status)
        status = truce__operation_fields(call, document, entry_fields, &given, error);
    if (!status && !given.account)
        status = truce__refuse(
            40414, error, "an entry has no 'account': expected {account: NAME, value: AMOUNT}");
    if (!status && given.type && !*given.type)
        status = truce__refuse(CODE_BAD_VALUE, error,
                               "the 'type' of the entry of account \"%.200s\" is empty: omit it "
                               "for the type of the amount's sign",
                               given.account);
    *entry = (truce_ledger_entry){given.account, given.value, given.type};
    return status;
}

/* Reads the entries of a transaction into the arena. Without entries (settle, void, reverse),
 * `transaction` stays as it is. */
static truce_status operation_ledger_read_entries(struct operation_call *call, const bson_t *array,
                                                  truce_ledger_transaction *transaction,
                                                  bson_error_t *error)
{
    uint32_t count = array ? bson_count_keys(array) : 0;
    truce_ledger_entry *entries;
    truce_status status = TRUCE_OK;
    bson_iter_t at;

    if (count > POST_ENTRIES)
        return truce__refuse(CODE_BAD_VALUE, error,
                             "a transaction has at most %d entries, and this one has %u",
                             POST_ENTRIES, count);
    if (!count)
        return TRUCE_OK;
    entries = truce__arena_take(call->arena, count * sizeof *entries);
    (void)bson_iter_init(&at, array);
    while (!status && bson_iter_next(&at))
        status = operation_ledger_read_entry(call, &at, &entries[transaction->count++], error);
    transaction->entries = entries;
    return status;
}

static truce_status ledger_read_post(struct operation_call *call, const struct post_given *given,
                                     truce_ledger_transaction *transaction, bson_error_t *error)
{
    *transaction = (truce_ledger_transaction){.id = given->id,
                                              .of = given->of,
                                              .effective_ms = given->effectiveMS,
                                              .expires_ms = given->expiresMS,
                                              .meta = given->meta};
    transaction->kind =
        (truce_ledger_kind)truce__operation_choice(given->kind, truce__ledger_kinds);
    return operation_ledger_read_entries(call, given->entries, transaction, error);
}

static truce_status operation_ledger_run_post(struct operation_call *call, const void *arg,
                                              bson_t *reply, bson_error_t *error)
{
    truce_ledger_transaction transaction;
    truce_ledger_result result = {0};
    struct handle *handle;
    truce_status status = ledger_read_post(call, arg, &transaction, error);

    if (!status)
        status = truce__operation_ledger(call, true, &handle, error);
    if (status)
        return status;
    status = truce_ledger_post(handle->thing, call->commit, &transaction, &result, error);
    truce__operation_return(call, handle);
    if (!status)
        BCON_APPEND(reply, "exists", BCON_BOOL(result.exists), "bookedMS",
                    BCON_INT64(result.booked_ms));
    return status;
}

static const struct operation_row post_operation = {
    OPERATION(
        "truceLedgerPost", ROLE_WRITE,
        "posts a transaction of several accounts, completely or not at all, once under its id"),
    .target = "ledger",
    .value = "the collection of the ledger",
    .answer =
        "`exists`: it was posted before, and nothing happened now; `bookedMS`: the time of "
        "booking. After an error, nothing is booked. 146 (limit reached): a balance "
        "would be below its minimum or above its maximum. 125 (not found): an account is not "
        "open, or `of` does not exist. 11000 (duplicate): the id was used with different "
        "content. 2 (invalid): the entries do not balance, or an account is closed or does "
        "not accept the direction. 125 (expired): the pending transaction, or the one that is "
        "settled, has expired",
    .fields = post_fields,
    .size = sizeof(struct post_given),
    .run = operation_ledger_run_post,
    .ways = OPERATION_COMMITS | OPERATION_REPEATABLE | OPERATION_STRICT,
    .example =
        "{truceLedgerPost: 'bank', id: 'sale 17', entries: [{account: 'cash', value: -1250}, "
        "{account: 'sales', value: 1250}]}",
};

/* ---- truceLedgerPostMany --------------------------------------------------------------------- */

struct post_many_given {
    const bson_t *transactions;
};

static const struct operation_field post_many_fields[] = {
    {GIVEN(post_many_given, transactions, FIELD_ARRAY),
     "up to 1,000 transactions, each with the fields of truceLedgerPost", .needed = true},
    {{0}}};

/* Reads the elements of `transactions`, for which the caller has allocated the array. Fails at the
 * first one that is wrong. */
static truce_status ledger_read_posts(struct operation_call *call, const bson_t *array,
                                      truce_ledger_transaction *transactions, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_iter_t at;

    (void)bson_iter_init(&at, array);
    for (size_t i = 0; !status && bson_iter_next(&at); i++) {
        struct post_given given = {0};

        if (!BSON_ITER_HOLDS_DOCUMENT(&at))
            return truce__element_wrong_type("transactions", &at, "a document", error);
        status = truce__operation_nested(call, truce__field_view(call->arena, &at), post_fields,
                                         &given, error);
        if (!status)
            status = ledger_read_post(call, &given, &transactions[i], error);
    }
    return status;
}

/* Appends `results`: for each transaction its status, with `exists` and `bookedMS`, or with the
 * `failure`. */
static void ledger_append_posted(struct operation_call *call, const truce_ledger_result *results,
                                 uint32_t count, bson_t *reply)
{
    bson_t array, one;

    BSON_APPEND_ARRAY_BEGIN(reply, "results", &array);
    for (uint32_t i = 0; i < count; i++) {
        const truce_ledger_result *result = &results[i];
        char buffer[16];
        const char *key;

        bson_uint32_to_string(i, &key, buffer, sizeof buffer);
        BSON_APPEND_DOCUMENT_BEGIN(&array, key, &one);
        BSON_APPEND_UTF8(&one, "status", truce_status_name(result->status));
        if (result->status)
            BSON_APPEND_UTF8(&one, "failure", call->host->message(call, result->error.message));
        else
            BCON_APPEND(&one, "exists", BCON_BOOL(result->exists), "bookedMS",
                        BCON_INT64(result->booked_ms));
        bson_append_document_end(&array, &one);
    }
    bson_append_array_end(reply, &array);
}

static truce_status ledger_run_post_many(struct operation_call *call, const void *arg,
                                         bson_t *reply, bson_error_t *error)
{
    const struct post_many_given *given = arg;
    uint32_t count = bson_count_keys(given->transactions);
    truce_ledger_transaction *transactions;
    truce_ledger_result *results;
    struct handle *handle;
    truce_status status;

    if (!count || count > POSTS_MAX)
        return truce__refuse(CODE_INVALID_LENGTH, error,
                             "'transactions' must have 1 to %d elements, and has %u", POSTS_MAX,
                             count);
    transactions = truce__arena_take(call->arena, count * sizeof *transactions);
    status = ledger_read_posts(call, given->transactions, transactions, error);
    if (!status)
        status = truce__operation_ledger(call, true, &handle, error);
    if (status)
        return status;
    results = bson_malloc0(count * sizeof *results);
    status = truce_ledger_post_many(handle->thing, transactions, count, results, error);
    truce__operation_return(call, handle);
    if (!status)
        ledger_append_posted(call, results, count, reply);
    bson_free(results);
    return status;
}

static const struct operation_row post_many_operation = {
    OPERATION("truceLedgerPostMany", ROLE_WRITE,
              "posts many transactions, in order, each by itself"),
    .target = "ledger",
    .value = "the collection of the ledger",
    .answer =
        "`results`: for each transaction {status, exists, bookedMS}, or {status, failure}. A "
        "refused transaction is not booked, and does not stop the others. To post all or none, "
        "use truceCommit with operations of truceLedgerPost",
    .fields = post_many_fields,
    .size = sizeof(struct post_many_given),
    .run = ledger_run_post_many,
    .ways = OPERATION_REPEATABLE | OPERATION_STRICT,
    .example = "{truceLedgerPostMany: 'bank', transactions: [{id: 'sale 18', entries: [{account: "
               "'cash', value: -5}, {account: 'sales', value: 5}]}]}",
};

/* ---- truceLedgerBalance ---------------------------------------------------------------------- */

struct balance_given {
    const char *account;
    int64_t number, bookedMS, effectiveMS;
};

static const struct operation_field balance_fields[] = {
    {GIVEN(balance_given, account, FIELD_TEXT), "the account", .needed = true},
    {GIVEN(balance_given, number, FIELD_NUMBER), "the state after this number of the account", 1,
     INT64_MAX},
    {GIVEN(balance_given, bookedMS, FIELD_TIME),
     "the state with all that was booked until this time, ms since 1970", TIME_LEAST_MS,
     DATE_LAST_MS},
    {GIVEN(balance_given, effectiveMS, FIELD_TIME),
     "the sum of the entries with a value date until this time, ms since 1970; with `bookedMS`, "
     "as it was known then",
     TIME_LEAST_MS, DATE_LAST_MS},
    {{0}}};

static truce_status ledger_run_balance(struct operation_call *call, const void *arg, bson_t *reply,
                                       bson_error_t *error)
{
    const struct balance_given *given = arg;
    const truce_ledger_moment as_of = {
        .number = given->number, .booked_ms = given->bookedMS, .effective_ms = given->effectiveMS};
    truce_ledger_balance balance;
    struct handle *handle;
    int digits = 0;
    truce_status status = truce__operation_ledger(call, false, &handle, error);

    if (status)
        return status;
    status = truce_ledger_balance_of(handle->thing, given->account, &as_of, &balance, error);
    if (!status && balance.currency[0])
        status = truce_ledger_digits(handle->thing, balance.currency, &digits, error);
    truce__operation_return(call, handle);
    if (!status)
        BCON_APPEND(reply, "currency", BCON_UTF8(balance.currency), "digits", BCON_INT32(digits),
                    "number", BCON_INT64(balance.number), "balance", BCON_INT64(balance.balance),
                    "out", BCON_INT64(balance.out), "in", BCON_INT64(balance.in), "available",
                    BCON_INT64(balance.available), "bookedMS", BCON_INT64(balance.booked_ms));
    return status;
}

static const struct operation_row balance_operation = {
    OPERATION("truceLedgerBalance", ROLE_READ,
              "returns the balance of an account, now or at an earlier state"),
    .target = "ledger",
    .value = "the collection of the ledger",
    .answer = "`currency` with its decimal `digits`, `number` (the last one that it includes), "
              "`balance` (posted), `out` and `in` (pending), `available`, `bookedMS`. \"not "
              "found\": the account or the number does not exist",
    .fields = balance_fields,
    .size = sizeof(struct balance_given),
    .run = ledger_run_balance,
    .ways = OPERATION_REPEATABLE,
    .example = "{truceLedgerBalance: 'bank', account: 'cash'}",
};

/* ---- truceLedgerStatement -------------------------------------------------------------------- */

struct statement_given {
    const char *account;
    int64_t after, limit, last;
};

static const struct operation_field statement_fields[] = {
    {GIVEN(statement_given, account, FIELD_TEXT), "the account", .needed = true},
    {GIVEN(statement_given, after, FIELD_NUMBER), "only lines after this number", 0, INT64_MAX},
    {GIVEN(statement_given, limit, FIELD_NUMBER), "the maximum number of lines; absent: 100", 1,
     LINES_MAX},
    {GIVEN(statement_given, last, FIELD_NUMBER), "no line after this number", 1, INT64_MAX},
    {{0}}};

/* The lines of a statement in a reply. */
struct lines {
    bson_t array;
    /* The number of lines, and its maximum. */
    uint32_t count;
    int64_t limit;
    /* The statement has a further line. */
    bool more;
};

/* Appends a line of the statement. Returns false, which ends the statement, if the reply is
 * full. */
static bool add_line(const truce_ledger_line *line, void *arg)
{
    struct lines *lines = arg;
    char buffer[16];
    const char *key;
    bson_t one;

    lines->more =
        lines->count == lines->limit || (lines->count && lines->array.len > STATEMENT_MAX);
    if (lines->more)
        return false;
    bson_uint32_to_string(lines->count++, &key, buffer, sizeof buffer);
    BSON_APPEND_DOCUMENT_BEGIN(&lines->array, key, &one);
    BSON_APPEND_VALUE(&one, "id", line->id);
    BCON_APPEND(&one, "type", BCON_UTF8(line->type), "state", BCON_UTF8(line->state), "number",
                BCON_INT64(line->number), "value", BCON_INT64(line->value), "balance",
                BCON_INT64(line->balance), "available", BCON_INT64(line->available), "bookedMS",
                BCON_INT64(line->booked_ms), "effectiveMS", BCON_INT64(line->effective_ms));
    bson_append_document_end(&lines->array, &one);
    return true;
}

static truce_status ledger_run_statement(struct operation_call *call, const void *arg,
                                         bson_t *reply, bson_error_t *error)
{
    const struct statement_given *given = arg;
    int64_t limit = given->limit ? given->limit : 100;
    const truce_ledger_page page = {.after = given->after, .limit = limit + 1, .last = given->last};
    struct lines lines = {BSON_INITIALIZER, .limit = limit};
    struct handle *handle;
    truce_status status = truce__operation_ledger(call, false, &handle, error);

    if (!status) {
        status =
            truce_ledger_statement(handle->thing, given->account, &page, add_line, &lines, error);
        truce__operation_return(call, handle);
    }
    if (!status)
        BSON_APPEND_ARRAY(reply, "lines", &lines.array);
    if (!status)
        BSON_APPEND_BOOL(reply, "more", lines.more);
    bson_destroy(&lines.array);
    return status;
}

static const struct operation_row statement_operation = {
    OPERATION("truceLedgerStatement", ROLE_READ, "returns a page of the history of an account"),
    .target = "ledger",
    .value = "the collection of the ledger",
    .answer = "`lines`: each {id, type, state, number, value, balance, available, bookedMS, "
              "effectiveMS}; and `more`: continue with `after` the last `number`. \"not found\": "
              "the account does not exist",
    .fields = statement_fields,
    .size = sizeof(struct statement_given),
    .run = ledger_run_statement,
    .ways = OPERATION_REPEATABLE,
    .example = "{truceLedgerStatement: 'bank', account: 'cash', limit: 50}",
};

const struct operation_row *const ledger_operations[] = {&open_operation,
                                                         &rules_operation,
                                                         &post_operation,
                                                         &post_many_operation,
                                                         &balance_operation,
                                                         &statement_operation,
                                                         &truce__ledger_accounts_operation,
                                                         &truce__ledger_search_operation,
                                                         &truce__ledger_report_operation,
                                                         &truce__ledger_pending_operation,
                                                         &truce__ledger_currency_operation,
                                                         &truce__ledger_verify_operation,
                                                         &truce__ledger_seal_operation,
                                                         &truce__ledger_import_operation,
                                                         &truce__ledger_export_operation,
                                                         NULL};

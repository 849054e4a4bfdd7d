/* Ledgers: currencies and accounts, posting, balances, statements. Amounts are in the smallest unit. */
#include <string.h>

#include "bson/value.h"
#include "operations/operation.h"
#include "truce/ledger.h"

#define LINES_MAX     1000 /* of a statement in one reply, ... */
#define STATEMENT_MAX (8 * 1024 * 1024)
#define POST_ENTRIES  1000

static void *make_ledger(void *arg)
{
    const void *const *made = arg;

    return truce_ledger_new((truce_store *)made[0], made[1]);
}

static void free_ledger(void *ledger)
{
    truce_ledger_free(ledger);
}

static truce_status take_ledger(struct operation_call *call, bool writes, struct handle **handle,
                                bson_error_t *error)
{
    truce_ledger_options options = {0};
    const void *made[2] = {call->store, &options};
    char *text;
    truce_status status = truce__operation_own_collection(call, writes, &options.collection, error);

    if (status)
        return status;
    text = bson_strdup_printf("ledger\n%s", options.collection);
    *handle = truce__operation_handle(call, text, make_ledger, made, free_ledger);
    bson_free(text);
    return TRUCE_OK;
}

/* ---- truceLedgerOpen -------------------------------------------------------------------------- */

struct open_given {
    const char *currency, *account;
    int64_t digits, min, max;
    bool debitOnly, creditOnly;
};

static const struct operation_field open_fields[] = {
    {GIVEN(open_given, currency, FIELD_TEXT), "its code: \"EUR\"", .needed = true},
    {GIVEN(open_given, digits, FIELD_NUMBER),
     "behind the point; has to be said once of each currency", 0, 18},
    {GIVEN(open_given, account, FIELD_TEXT),
     "opens this account in it: \"assets:cash\"; absent: says the currency alone"},
    {GIVEN(open_given, min, FIELD_NUMBER), "what is available may not fall below; 0: no overdraft"},
    {GIVEN(open_given, max, FIELD_NUMBER), "the balance may not rise above"},
    {GIVEN(open_given, debitOnly, FIELD_FLAG), "nothing comes in"},
    {GIVEN(open_given, creditOnly, FIELD_FLAG), "nothing goes out"},
    {{0}}};

static truce_status ledger_open_account(struct operation_call *call, truce_ledger *ledger,
                                        const struct open_given *given, bson_error_t *error)
{
    const truce_ledger_account account = {.account = given->account,
                                          .currency = given->currency,
                                          .has_min = truce__operation_given(call, "min"),
                                          .has_max = truce__operation_given(call, "max"),
                                          .min = given->min,
                                          .max = given->max,
                                          .debit_only = given->debitOnly,
                                          .credit_only = given->creditOnly};
    truce_status status = TRUCE_OK;

    if (truce__operation_given(call, "digits"))
        status = truce_ledger_currency(ledger, given->currency, (int)given->digits, error);
    if (!status && given->account)
        status = truce_ledger_open(ledger, call->commit, &account, error);
    return status;
}

static truce_status operation_ledger_run_open(struct operation_call *call, const void *arg,
                                              bson_t *reply, bson_error_t *error)
{
    struct handle *handle;
    truce_status status;

    (void)reply;
    if (!truce__operation_given(call, "account") && !truce__operation_given(call, "digits"))
        return truce__refuse(CODE_INVALID_OPTIONS, error, "'digits' or 'account' must be given");
    status = take_ledger(call, true, &handle, error);
    if (status)
        return status;
    status = ledger_open_account(call, handle->thing, arg, error);
    truce__operation_give(call, handle);
    return status;
}

static const struct operation_row open_operation = {
    OPERATION("truceLedgerOpen", ROLE_WRITE,
              "says a currency, and opens an account with its rules"),
    .target = "ledger",
    .value = "the collection of the ledger",
    .answer =
        "nothing more, also if it is open with these rules. An error: 11000 (duplicate) it is "
        "open with others, or the currency has other digits",
    .fields = open_fields,
    .size = sizeof(struct open_given),
    .run = operation_ledger_run_open,
    .ways = OPERATION_COMMITS | OPERATION_AGAIN | OPERATION_STRICT,
    .example = "{truceLedgerOpen: 'bank', currency: 'EUR', digits: 2, account: 'cash'}",
};

/* ---- truceLedgerPost -------------------------------------------------------------------------- */

struct post_given {
    const bson_value_t *id, *of;
    const char *kind;
    const bson_t *entries, *meta;
    int64_t effectiveMS, expiresMS;
};

/* In the order of truce_ledger_kind. */
static const char *const kinds[] = {"transfer", "pending", "settle", "void", "reverse", NULL};

static const struct operation_field post_fields[] = {
    {GIVEN(post_given, id, FIELD_VALUE), "the caller's; posted again, nothing happens",
     .needed = true},
    {GIVEN(post_given, entries, FIELD_ARRAY),
     "each {account, value, type}: what the balance rises by, below zero what goes out; they sum to "
     "0 in each currency"},
    {GIVEN(post_given, kind, FIELD_TEXT), "the kind of transaction; absent: \"transfer\"",
     .words = kinds},
    {GIVEN(post_given, of, FIELD_VALUE), "the id of what is settled, given up or reversed"},
    {GIVEN(post_given, effectiveMS, FIELD_NUMBER), "the value date, ms since 1970", 1,
     INT64_C(1) << 48},
    {GIVEN(post_given, expiresMS, FIELD_NUMBER), "of a pending one: settled no later", 1,
     INT64_C(1) << 48},
    {GIVEN(post_given, meta, FIELD_DOCUMENT), "kept with it"},
    {{0}}};

struct entry_given {
    const char *account, *type;
    int64_t value;
};

static const struct field entry_fields[] = {GIVEN(entry_given, account, FIELD_TEXT),
                                            GIVEN(entry_given, type, FIELD_TEXT),
                                            GIVEN(entry_given, value, FIELD_WHOLE),
                                            {0}};

static truce_status operation_ledger_read_entry(struct operation_call *call, const bson_iter_t *at,
                                                truce_ledger_entry *entry, bson_error_t *error)
{
    struct entry_given given = {0};
    const bson_t *document;
    truce_status status;

    if (!BSON_ITER_HOLDS_DOCUMENT(at))
        return truce__refuse(CODE_TYPE_MISMATCH, error, "an entry must be a document");
    document = truce__field_view(call->arena, at);
    status = truce__operation_fields(call, document, entry_fields, &given, error);
    if (!status && !given.account)
        status = truce__refuse(40414, error, "an entry needs an 'account'");
    *entry = (truce_ledger_entry){given.account, given.value, given.type};
    return status;
}

static truce_status operation_ledger_read_entries(struct operation_call *call, const bson_t *array,
                                                  truce_ledger_transaction *transaction,
                                                  bson_error_t *error)
{
    uint32_t count = array ? bson_count_keys(array) : 0;
    truce_ledger_entry *entries;
    truce_status status = TRUCE_OK;
    bson_iter_t at;

    if (count > POST_ENTRIES)
        return truce__refuse(CODE_BAD_VALUE, error, "a transaction has at most %d entries",
                             POST_ENTRIES);
    if (!count)
        return TRUCE_OK;
    entries = truce__arena_take(call->arena, count * sizeof *entries);
    (void)bson_iter_init(&at, array);
    while (!status && bson_iter_next(&at))
        status = operation_ledger_read_entry(call, &at, &entries[transaction->count++], error);
    transaction->entries = entries;
    return status;
}

static truce_status operation_ledger_run_post(struct operation_call *call, const void *arg,
                                              bson_t *reply, bson_error_t *error)
{
    const struct post_given *given = arg;
    truce_ledger_transaction transaction = {.id = given->id,
                                            .of = given->of,
                                            .effective_ms = given->effectiveMS,
                                            .expires_ms = given->expiresMS,
                                            .meta = given->meta};
    truce_ledger_result result = {0};
    struct handle *handle;
    truce_status status;

    transaction.kind = (truce_ledger_kind)truce__operation_word(given->kind, kinds);
    status = operation_ledger_read_entries(call, given->entries, &transaction, error);
    if (!status)
        status = take_ledger(call, true, &handle, error);
    if (status)
        return status;
    status = truce_ledger_post(handle->thing, call->commit, &transaction, &result, error);
    truce__operation_give(call, handle);
    if (!status)
        BCON_APPEND(reply, "exists", BCON_BOOL(result.exists), "bookedMS",
                    BCON_INT64(result.booked_ms));
    return status;
}

static const struct operation_row post_operation = {
    OPERATION("truceLedgerPost", ROLE_WRITE,
              "posts a transaction of several accounts, whole or not at all, once under its id"),
    .target = "ledger",
    .value = "the collection of the ledger",
    .answer =
        "`exists`: it was posted before, and nothing happened now; `bookedMS`. An error, with "
        "nothing booked: 146 (limit reached) too little is available, or a rule; 125 (not found) an "
        "account is not open, or there is no `of`; 11000 (duplicate) the id stands for "
        "another; 2 (invalid) it does not balance",
    .fields = post_fields,
    .size = sizeof(struct post_given),
    .run = operation_ledger_run_post,
    .ways = OPERATION_COMMITS | OPERATION_AGAIN | OPERATION_STRICT,
    .example =
        "{truceLedgerPost: 'bank', id: 'sale 17', entries: [{account: 'cash', value: -1250}, "
        "{account: 'sales', value: 1250}]}",
};

/* ---- truceLedgerBalance ----------------------------------------------------------------------- */

struct balance_given {
    const char *account;
    int64_t number, bookedMS, effectiveMS;
};

static const struct operation_field balance_fields[] = {
    {GIVEN(balance_given, account, FIELD_TEXT), "the account", .needed = true},
    {GIVEN(balance_given, number, FIELD_NUMBER), "after that number of the account", 1, INT64_MAX},
    {GIVEN(balance_given, bookedMS, FIELD_NUMBER), "with all that was booked until then", 1,
     INT64_C(1) << 48},
    {GIVEN(balance_given, effectiveMS, FIELD_NUMBER), "with all whose value date is not later", 1,
     INT64_C(1) << 48},
    {{0}}};

static truce_status ledger_run_balance(struct operation_call *call, const void *arg, bson_t *reply,
                                       bson_error_t *error)
{
    const struct balance_given *given = arg;
    const truce_ledger_moment moment = {
        .number = given->number, .booked_ms = given->bookedMS, .effective_ms = given->effectiveMS};
    truce_ledger_balance balance;
    struct handle *handle;
    truce_status status = take_ledger(call, false, &handle, error);

    if (status)
        return status;
    status = truce_ledger_balance_of(handle->thing, given->account, &moment, &balance, error);
    truce__operation_give(call, handle);
    if (!status)
        BCON_APPEND(reply, "currency", BCON_UTF8(balance.currency), "number",
                    BCON_INT64(balance.number), "balance", BCON_INT64(balance.balance), "out",
                    BCON_INT64(balance.out), "in", BCON_INT64(balance.in), "available",
                    BCON_INT64(balance.available), "bookedMS", BCON_INT64(balance.booked_ms));
    return status;
}

static const struct operation_row balance_operation = {
    OPERATION("truceLedgerBalance", ROLE_READ, "the balance of an account, now or at one moment"),
    .target = "ledger",
    .value = "the collection of the ledger",
    .answer = "`currency`, `number` (the last that is in it), `balance` (posted), `out` and `in` "
              "(pending), `available`, `bookedMS`. \"not found\": no such account, or number",
    .fields = balance_fields,
    .size = sizeof(struct balance_given),
    .run = ledger_run_balance,
    .ways = OPERATION_AGAIN,
    .example = "{truceLedgerBalance: 'bank', account: 'cash'}",
};

/* ---- truceLedgerStatement --------------------------------------------------------------------- */

struct statement_given {
    const char *account;
    int64_t after, limit, last;
};

static const struct operation_field statement_fields[] = {
    {GIVEN(statement_given, account, FIELD_TEXT), "the account", .needed = true},
    {GIVEN(statement_given, after, FIELD_NUMBER), "lines behind this number", 0, INT64_MAX},
    {GIVEN(statement_given, limit, FIELD_NUMBER), "at most so many; absent: 100", 1, LINES_MAX},
    {GIVEN(statement_given, last, FIELD_NUMBER), "none behind this number", 0, INT64_MAX},
    {{0}}};

struct lines {
    bson_t array;
    uint32_t count;
    int64_t limit;
    bool more;
};

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
    truce_status status = take_ledger(call, false, &handle, error);

    if (!status) {
        status =
            truce_ledger_statement(handle->thing, given->account, &page, add_line, &lines, error);
        truce__operation_give(call, handle);
    }
    if (!status)
        BSON_APPEND_ARRAY(reply, "lines", &lines.array);
    if (!status)
        BSON_APPEND_BOOL(reply, "more", lines.more);
    bson_destroy(&lines.array);
    return status;
}

static const struct operation_row statement_operation = {
    OPERATION("truceLedgerStatement", ROLE_READ, "the history of an account, a page of it"),
    .target = "ledger",
    .value = "the collection of the ledger",
    .answer =
        "`lines`: each {id, type, state, number, value, balance, available, bookedMS, "
        "effectiveMS}; and `more`: continue with `after` the last `number`. \"not found\": no such "
        "account",
    .fields = statement_fields,
    .size = sizeof(struct statement_given),
    .run = ledger_run_statement,
    .ways = OPERATION_AGAIN,
    .example = "{truceLedgerStatement: 'bank', account: 'cash', limit: 50}",
};

const struct operation_row *const ledger_operations[] = {
    &open_operation, &post_operation, &balance_operation, &statement_operation, NULL};

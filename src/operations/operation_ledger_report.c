/* Ledgers: currencies, accounts, searches, pending transactions, verification, and seals. */
#include <string.h>

#include "operations/operation_ledger.h"
#include "operations/reply_list.h"

/* ---- truceLedgerCurrency ---------------------------------------------------------------------- */

struct currency_given {
    const char *currency;
};

static const struct operation_field currency_fields[] = {
    {GIVEN(currency_given, currency, FIELD_TEXT), "the code of the currency: \"EUR\"",
     .needed = true},
    {{0}}};

static truce_status ledger_run_currency(struct operation_call *call, const void *arg, bson_t *reply,
                                        bson_error_t *error)
{
    const struct currency_given *given = arg;
    struct handle *handle;
    int digits;
    truce_status status = truce__operation_ledger(call, false, &handle, error);

    if (status)
        return status;
    status = truce_ledger_digits(handle->thing, given->currency, &digits, error);
    truce__operation_give(call, handle);
    if (!status)
        BSON_APPEND_INT32(reply, "digits", digits);
    return status;
}

const struct operation_row truce__ledger_currency_operation = {
    OPERATION("truceLedgerCurrency", ROLE_READ,
              "returns the number of decimal digits of a currency"),
    .target = "ledger",
    .value = "the collection of the ledger",
    .answer = "`digits`. \"not found\": the currency is not declared",
    .fields = currency_fields,
    .size = sizeof(struct currency_given),
    .run = ledger_run_currency,
    .ways = OPERATION_AGAIN,
    .example = "{truceLedgerCurrency: 'bank', currency: 'EUR'}",
};

/* ---- truceLedgerAccounts ---------------------------------------------------------------------- */

struct accounts_given {
    const char *prefix, *after;
    int64_t limit;
};

static const struct operation_field accounts_fields[] = {
    {GIVEN(accounts_given, prefix, FIELD_TEXT),
     "only this account and the accounts below it: \"assets\" includes \"assets:cash\""},
    {GIVEN(accounts_given, after, FIELD_TEXT), "only accounts after this name"},
    {GIVEN(accounts_given, limit, FIELD_NUMBER), "the maximum number of accounts; absent: 100", 1,
     REPLY_LIST_MAX},
    {{0}}};

struct ledger_accounts {
    struct reply_list list;
    const char *after;
};

static bool ledger_add_account(const truce_ledger_account *account,
                               const truce_ledger_balance *balance, void *arg)
{
    struct ledger_accounts *accounts = arg;
    bson_t one = BSON_INITIALIZER;
    bool goes_on;

    if (accounts->after && strcmp(account->account, accounts->after) <= 0)
        return true;
    BCON_APPEND(&one, "account", BCON_UTF8(account->account), "currency",
                BCON_UTF8(balance->currency), "number", BCON_INT64(balance->number), "balance",
                BCON_INT64(balance->balance), "out", BCON_INT64(balance->out), "in",
                BCON_INT64(balance->in), "available", BCON_INT64(balance->available));
    if (account->has_min)
        BSON_APPEND_INT64(&one, "min", account->min);
    if (account->has_max)
        BSON_APPEND_INT64(&one, "max", account->max);
    if (account->debit_only)
        BSON_APPEND_BOOL(&one, "debitOnly", true);
    if (account->credit_only)
        BSON_APPEND_BOOL(&one, "creditOnly", true);
    if (account->closed)
        BSON_APPEND_BOOL(&one, "closed", true);
    goes_on = truce__reply_list_add(&accounts->list, &one);
    bson_destroy(&one);
    return goes_on;
}

static truce_status ledger_run_accounts(struct operation_call *call, const void *arg, bson_t *reply,
                                        bson_error_t *error)
{
    const struct accounts_given *given = arg;
    struct ledger_accounts accounts = {.after = given->after};
    struct handle *handle;
    truce_status status = truce__operation_ledger(call, false, &handle, error);

    if (status)
        return status;
    truce__reply_list_begin(&accounts.list, given->limit);
    status =
        truce_ledger_balances(handle->thing, given->prefix, ledger_add_account, &accounts, error);
    truce__operation_give(call, handle);
    return truce__reply_list_end(&accounts.list, status, "accounts", reply);
}

const struct operation_row truce__ledger_accounts_operation = {
    OPERATION("truceLedgerAccounts", ROLE_READ, "lists accounts with their rules and balances"),
    .target = "ledger",
    .value = "the collection of the ledger",
    .answer =
        "`accounts`, by name: each {account, currency, number, balance, out, in, available, "
        "min, max, debitOnly, creditOnly, closed}; and `more`: continue with `after` the last "
        "name. The balances of one reply are of one snapshot",
    .fields = accounts_fields,
    .size = sizeof(struct accounts_given),
    .run = ledger_run_accounts,
    .ways = OPERATION_AGAIN,
    .example = "{truceLedgerAccounts: 'bank', limit: 50}",
};

/* ---- truceLedgerSearch, truceLedgerPending ---------------------------------------------------- */

struct search_given {
    const bson_t *meta;
    const char *account;
    int64_t fromMS, beforeMS, limit;
};

static const struct operation_field search_fields[] = {
    {GIVEN(search_given, meta, FIELD_DOCUMENT),
     "a filter for fields of the metadata: {order: 17, till: {$gt: 5}}"},
    {GIVEN(search_given, account, FIELD_TEXT), "only transactions of this account"},
    {GIVEN(search_given, fromMS, FIELD_NUMBER),
     "only those booked at or after this time, ms since 1970", 1, INT64_C(1) << 48},
    {GIVEN(search_given, beforeMS, FIELD_NUMBER),
     "only those booked before this time, ms since 1970", 1, INT64_C(1) << 48},
    {GIVEN(search_given, limit, FIELD_NUMBER), "the maximum number of transactions; absent: 100", 1,
     REPLY_LIST_MAX},
    {{0}}};

static bool ledger_add_document(const bson_t *document, void *arg)
{
    return truce__reply_list_add(arg, document);
}

static truce_status ledger_run_search(struct operation_call *call, const void *arg, bson_t *reply,
                                      bson_error_t *error)
{
    const struct search_given *given = arg;
    const truce_ledger_search search = {.meta = given->meta,
                                        .account = given->account,
                                        .from_ms = given->fromMS,
                                        .before_ms = given->beforeMS};
    struct reply_list list;
    struct handle *handle;
    truce_status status = truce__operation_ledger(call, false, &handle, error);

    if (status)
        return status;
    truce__reply_list_begin(&list, given->limit);
    status = truce_ledger_find(handle->thing, &search, ledger_add_document, &list, error);
    truce__operation_give(call, handle);
    return truce__reply_list_end(&list, status, "transactions", reply);
}

const struct operation_row truce__ledger_search_operation = {
    OPERATION("truceLedgerSearch", ROLE_READ,
              "finds transactions by metadata, account, or time of booking"),
    .target = "ledger",
    .value = "the collection of the ledger",
    .answer = "`transactions`, as stored, in the order of booking: each {_id, ts, state, meta, "
              "changes, ...}; and `more`: true if others match. To continue, set `fromMS` to the "
              "time of the last one, which is returned again",
    .fields = search_fields,
    .size = sizeof(struct search_given),
    .run = ledger_run_search,
    .ways = OPERATION_AGAIN,
    .example = "{truceLedgerSearch: 'bank', account: 'cash', meta: {order: 17}}",
};

struct pending_given {
    const char *account;
    int64_t limit;
};

static const struct operation_field pending_fields[] = {
    {GIVEN(pending_given, account, FIELD_TEXT), "only transactions of this account"},
    {GIVEN(pending_given, limit, FIELD_NUMBER), "the maximum number of transactions; absent: 100",
     1, REPLY_LIST_MAX},
    {{0}}};

static truce_status ledger_run_pending(struct operation_call *call, const void *arg, bson_t *reply,
                                       bson_error_t *error)
{
    const struct pending_given *given = arg;
    struct reply_list list;
    struct handle *handle;
    truce_status status = truce__operation_ledger(call, false, &handle, error);

    if (status)
        return status;
    truce__reply_list_begin(&list, given->limit);
    status = truce_ledger_pending(handle->thing, given->account, ledger_add_document, &list, error);
    truce__operation_give(call, handle);
    return truce__reply_list_end(&list, status, "transactions", reply);
}

const struct operation_row truce__ledger_pending_operation = {
    OPERATION("truceLedgerPending", ROLE_READ, "lists pending transactions, by their expiry"),
    .target = "ledger",
    .value = "the collection of the ledger",
    .answer =
        "`transactions`, as stored; settled and voided ones are not pending; and `more`: true "
        "if others exist",
    .fields = pending_fields,
    .size = sizeof(struct pending_given),
    .run = ledger_run_pending,
    .ways = OPERATION_AGAIN,
    .example = "{truceLedgerPending: 'bank', account: 'cash'}",
};

/* ---- truceLedgerSeal, truceLedgerVerify ------------------------------------------------------- */

static truce_status ledger_run_seal(struct operation_call *call, const void *given, bson_t *reply,
                                    bson_error_t *error)
{
    struct reply_list list;
    struct handle *handle;
    truce_status status = truce__operation_ledger(call, false, &handle, error);

    (void)given;
    if (status)
        return status;
    truce__reply_list_begin(&list, INT32_MAX);
    status = truce_ledger_seal(handle->thing, ledger_add_document, &list, error);
    truce__operation_give(call, handle);
    if (!status && list.more)
        status = truce__fail(TRUCE_LIMIT, error, "the seal exceeds %d MiB: use `truce ledger seal`",
                             REPLY_LIST_BYTES / (1024 * 1024));
    if (!status)
        BSON_APPEND_ARRAY(reply, "parts", &list.array);
    bson_destroy(&list.array);
    return status;
}

const struct operation_row truce__ledger_seal_operation = {
    OPERATION("truceLedgerSeal", ROLE_READ, "returns a seal of the current book"),
    .target = "ledger",
    .value = "the collection of the ledger",
    .answer = "`parts`: each {ledger, time, part, before, accounts: [{account, number, balance, "
              "hash}], last, hash}. Store them elsewhere: truceLedgerVerify compares the book with "
              "them. An error: 146 (limit reached) the seal exceeds 8 MiB; use the CLI",
    .fields = truce__no_fields,
    .run = ledger_run_seal,
    .ways = OPERATION_AGAIN,
    .example = "{truceLedgerSeal: 'bank'}",
};

struct verify_given {
    const char *account;
    const bson_t *seal;
};

static const struct operation_field verify_fields[] = {
    {GIVEN(verify_given, account, FIELD_TEXT), "only this account"},
    {GIVEN(verify_given, seal, FIELD_ARRAY),
     "the parts of a seal, as truceLedgerSeal returned them"},
    {{0}}};

/* The parts of the seal of a request. */
struct ledger_parts {
    bson_iter_t at;
    struct operation_call *call;
};

/* Drivers and JSON do not keep the types of integers, and the hash of a part depends on them. This restores the types. */
static void ledger_restore_fields(const bson_iter_t *document, bson_t *restored, bool is_part)
{
    bson_iter_t at, entry;
    int64_t number;
    bson_t child;

    for (at = *document; bson_iter_next(&at);) {
        const char *key = bson_iter_key(&at);

        if (!truce__field_to_number(&at, &number)) {
            if (BSON_ITER_HOLDS_ARRAY(&at) && is_part && bson_iter_recurse(&at, &entry)) {
                BSON_APPEND_ARRAY_BEGIN(restored, key, &child);
                ledger_restore_fields(&entry, &child, false);
                bson_append_array_end(restored, &child);
            } else if (BSON_ITER_HOLDS_DOCUMENT(&at) && !is_part &&
                       bson_iter_recurse(&at, &entry)) {
                BSON_APPEND_DOCUMENT_BEGIN(restored, key, &child);
                ledger_restore_fields(&entry, &child, false);
                bson_append_document_end(restored, &child);
            } else {
                bson_append_iter(restored, key, -1, &at);
            }
        } else if (is_part) {
            BSON_APPEND_INT32(restored, key, (int32_t)number);
        } else {
            BSON_APPEND_INT64(restored, key, number);
        }
    }
}

static truce_status ledger_next_part(const bson_t **part, void *arg, bson_error_t *error)
{
    struct ledger_parts *parts = arg;
    bson_iter_t fields;
    bson_t restored = BSON_INITIALIZER;

    *part = NULL;
    if (!bson_iter_next(&parts->at))
        return TRUCE_OK;
    if (!BSON_ITER_HOLDS_DOCUMENT(&parts->at))
        return truce__refuse(CODE_TYPE_MISMATCH, error, "a part of a seal must be a document");
    if (bson_iter_recurse(&parts->at, &fields))
        ledger_restore_fields(&fields, &restored, true);
    *part = truce__bytes_view(
        parts->call->arena,
        truce__arena_copy(parts->call->arena, bson_get_data(&restored), restored.len),
        restored.len);
    bson_destroy(&restored);
    return TRUCE_OK;
}

/* The report counts the findings that do not fit into the reply. */
static void ledger_add_finding(const bson_t *finding, void *arg)
{
    (void)truce__reply_list_add(arg, finding);
}

static truce_status ledger_run_verify(struct operation_call *call, const void *arg, bson_t *reply,
                                      bson_error_t *error)
{
    const struct verify_given *given = arg;
    struct ledger_parts parts = {.call = call};
    const truce_ledger_seal_source source = {.next = ledger_next_part, .arg = &parts};
    truce_ledger_report report = {0};
    struct reply_list list;
    struct handle *handle;
    truce_status status = truce__operation_ledger(call, false, &handle, error);

    if (status)
        return status;
    if (given->seal)
        (void)bson_iter_init(&parts.at, given->seal);
    truce__reply_list_begin(&list, REPLY_LIST_MAX);
    status = truce_ledger_verify(handle->thing, given->account, given->seal ? &source : NULL,
                                 ledger_add_finding, &list, &report, error);
    truce__operation_give(call, handle);
    if (!status)
        BCON_APPEND(reply, "accounts", BCON_INT64(report.accounts), "entries",
                    BCON_INT64(report.entries), "found", BCON_INT64(report.findings));
    return truce__reply_list_end(&list, status, "findings", reply);
}

const struct operation_row truce__ledger_verify_operation = {
    OPERATION("truceLedgerVerify", ROLE_READ,
              "verifies every entry of a ledger, also against a seal"),
    .target = "ledger",
    .value = "the collection of the ledger",
    .answer =
        "counts: `accounts`, `entries`, `found`; `findings`: the first fault of each account, "
        "{rule, account, number, id, text}; and `more`: true if others exist. An error: 2 "
        "(invalid) the seal is damaged, incomplete, or of another ledger",
    .fields = verify_fields,
    .size = sizeof(struct verify_given),
    .run = ledger_run_verify,
    .ways = OPERATION_AGAIN,
    .example = "{truceLedgerVerify: 'bank'}",
};

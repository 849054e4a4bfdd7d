/* Ledgers: currencies, accounts, searches, pending transactions, seals, verification, reports. */
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/field.h"
#include "base/hash_table.h"
#include "bson/date.h"
#include "bson/json.h"
#include "bson/value.h"

#include "operations/operation_ledger.h"
#include "operations/reply_list.h"
#include "patterns/ledger/ledger.h"

/* ---- truceLedgerCurrency --------------------------------------------------------------------- */

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
    truce_status status = truce__operation_ledger_read(call, &handle, error);

    if (status)
        return status;
    status = truce_ledger_digits(handle->thing, given->currency, &digits, error);
    truce__operation_return(call, handle);
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
    .ways = OPERATION_REPEATABLE,
    .example = "{truceLedgerCurrency: 'bank', currency: 'EUR'}",
};

#define ACCOUNTS_MAX 100000

/* ---- truceLedgerAccounts --------------------------------------------------------------------- */

struct accounts_given {
    const char *prefix, *after;
    int64_t limit;
};

static const struct operation_field accounts_fields[] = {
    {GIVEN(accounts_given, prefix, FIELD_TEXT),
     "only this account and the accounts below it: \"assets\" includes \"assets:cash\""},
    {GIVEN(accounts_given, after, FIELD_TEXT), "only accounts after this name"},
    {GIVEN(accounts_given, limit, FIELD_NUMBER), "the maximum number of accounts; absent: 100", 1,
     ACCOUNTS_MAX},
    {{0}}};

struct ledger_accounts {
    truce_ledger *ledger;
    struct reply_list list;
    truce_status status;
    bson_error_t error;
};

/* Appends an account with its balance to the list. Returns false, which ends the walk, if the list
 * is full or the digits of the currency cannot be read. */
static bool ledger_add_account(const truce_ledger_account *account,
                               const truce_ledger_balance *balance, void *arg)
{
    struct ledger_accounts *accounts = arg;
    bson_t one = BSON_INITIALIZER;
    int digits = 0;
    bool continues;

    accounts->status =
        truce_ledger_digits(accounts->ledger, balance->currency, &digits, &accounts->error);
    BCON_APPEND(&one, "account", BCON_UTF8(account->account), "currency",
                BCON_UTF8(balance->currency), "digits", BCON_INT32(digits), "number",
                BCON_INT64(balance->number), "balance", BCON_INT64(balance->balance), "out",
                BCON_INT64(balance->out), "in", BCON_INT64(balance->in), "available",
                BCON_INT64(balance->available));
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
    continues = !accounts->status && truce__reply_list_add(&accounts->list, &one);
    bson_destroy(&one);
    return continues;
}

/* Ends the walk at the first account. */
static bool ledger_find_account(const truce_ledger_account *account,
                                const truce_ledger_balance *balance, void *arg)
{
    (void)account, (void)balance;
    *(bool *)arg = true;
    return false;
}

/* Appends a note to an empty reply if no account has the prefix, as if it is misspelled. */
static void ledger_note_prefix(struct operation_call *call, truce_ledger *ledger,
                               const char *prefix, bson_t *reply)
{
    bool found = false;
    char *note;

    if (!prefix ||
        truce__ledger_balances_after(ledger, prefix, NULL, ledger_find_account, &found, NULL) ||
        found)
        return;
    note = bson_strdup_printf("no account of \"%.100s\" is \"%.200s\" or below it",
                              bson_iter_utf8(&call->target, NULL), prefix);
    BSON_APPEND_UTF8(reply, "note", call->host->message(call, note));
    bson_free(note);
}

static truce_status ledger_run_accounts(struct operation_call *call, const void *arg, bson_t *reply,
                                        bson_error_t *error)
{
    const struct accounts_given *given = arg;
    struct ledger_accounts accounts = {.ledger = NULL};
    struct handle *handle;
    truce_status status = truce__operation_ledger_read(call, &handle, error);

    if (status)
        return status;
    accounts.ledger = handle->thing;
    truce__reply_list_begin(&accounts.list, given->limit);
    status = truce__ledger_balances_after(handle->thing, given->prefix, given->after,
                                          ledger_add_account, &accounts, error);
    if (!status && accounts.status) {
        status = accounts.status;
        *error = accounts.error;
    }
    if (!status && !accounts.list.count)
        ledger_note_prefix(call, handle->thing, given->prefix, reply);
    truce__operation_return(call, handle);
    return truce__reply_list_end(&accounts.list, status, "accounts", reply);
}

const struct operation_row truce__ledger_accounts_operation = {
    OPERATION("truceLedgerAccounts", ROLE_READ, "lists accounts with their rules and balances"),
    .target = "ledger",
    .value = "the collection of the ledger",
    .answer =
        "`accounts`, by name: each {account, currency, digits, number, balance, out, in, "
        "available, min, max, debitOnly, creditOnly, closed}; and `more`: continue with "
        "`after` the last name. The balances of one reply are of one snapshot. A `note` says if no account has the `prefix`",
    .fields = accounts_fields,
    .size = sizeof(struct accounts_given),
    .run = ledger_run_accounts,
    .ways = OPERATION_REPEATABLE,
    .example = "{truceLedgerAccounts: 'bank', limit: 50}",
};

/* ---- truceLedgerSearch, truceLedgerPending --------------------------------------------------- */

struct search_given {
    const bson_t *meta;
    const char *account;
    const bson_value_t *after;
    int64_t fromMS, beforeMS, limit;
};

static const struct operation_field search_fields[] = {
    {GIVEN(search_given, meta, FIELD_DOCUMENT),
     "a filter for fields of the metadata: {order: 17, till: {$gt: 5}}"},
    {GIVEN(search_given, account, FIELD_TEXT), "only transactions of this account"},
    {GIVEN(search_given, fromMS, FIELD_TIME),
     "only those booked at or after this time, ms since 1970", TIME_LEAST_MS, DATE_LAST_MS},
    {GIVEN(search_given, beforeMS, FIELD_TIME), "only those booked before this time, ms since 1970",
     TIME_LEAST_MS, DATE_LAST_MS},
    {GIVEN(search_given, after, FIELD_VALUE),
     "only transactions that follow the one with this id, in the order of the reply"},
    {GIVEN(search_given, limit, FIELD_NUMBER), "the maximum number of transactions; absent: 100", 1,
     REPLY_LIST_MAX},
    {{0}}};

/* Returns the ledger of a search. Fails with NOT_FOUND if the ledger or the account does not exist,
 * as if the name is misspelled. `account` may be NULL. */
static truce_status ledger_read_of_account(struct operation_call *call, const char *account,
                                           struct handle **handle, bson_error_t *error)
{
    truce_ledger_balance balance;
    truce_status status = truce__operation_ledger_read(call, handle, error);

    if (status || !account)
        return status;
    status = truce_ledger_balance_of((*handle)->thing, account, NULL, &balance, error);
    if (status)
        truce__operation_return(call, *handle);
    return status;
}

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
                                        .before_ms = given->beforeMS,
                                        .after = given->after,
                                        .limit = (given->limit ? given->limit : 100) + 1};
    struct reply_list list;
    struct handle *handle;
    truce_status status = TRUCE_OK;

    if (given->fromMS && given->beforeMS && given->fromMS >= given->beforeMS)
        return truce__refuse(CODE_BAD_VALUE, error,
                             "'fromMS' (%lld) must be before 'beforeMS' (%lld)",
                             (long long)given->fromMS, (long long)given->beforeMS);
    status = ledger_read_of_account(call, given->account, &handle, error);
    if (status)
        return status;
    truce__reply_list_begin(&list, given->limit);
    status = truce_ledger_find(handle->thing, &search, ledger_add_document, &list, error);
    truce__operation_return(call, handle);
    return truce__reply_list_end(&list, status, "transactions", reply);
}

const struct operation_row truce__ledger_search_operation = {
    OPERATION("truceLedgerSearch", ROLE_READ,
              "finds transactions by metadata, account, or time of booking"),
    .target = "ledger",
    .value = "the collection of the ledger",
    .answer = "`transactions`, as stored, in the order of booking: each {_id, ts, state, meta, "
              "changes, ...}; and `more`: continue with `after` the last `_id`. \"not found\": no "
              "transaction has the id of `after`",
    .fields = search_fields,
    .size = sizeof(struct search_given),
    .run = ledger_run_search,
    .ways = OPERATION_REPEATABLE,
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
    truce_status status = ledger_read_of_account(call, given->account, &handle, error);

    if (status)
        return status;
    truce__reply_list_begin(&list, given->limit);
    status = truce_ledger_pending(handle->thing, given->account, ledger_add_document, &list, error);
    truce__operation_return(call, handle);
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
    .ways = OPERATION_REPEATABLE,
    .example = "{truceLedgerPending: 'bank', account: 'cash'}",
};

/* ---- truceLedgerSeal, truceLedgerVerify ------------------------------------------------------ */

#define SEAL_PARTS_MAX 1000

struct seal_given {
    const bson_t *after;
    int64_t limit;
};

static const struct operation_field seal_fields[] = {
    {GIVEN(seal_given, after, FIELD_DOCUMENT),
     "the field `after` of the preceding reply; absent: the beginning"},
    {GIVEN(seal_given, limit, FIELD_NUMBER),
     "the maximum number of parts; absent: as many as 8 MiB have", 1, SEAL_PARTS_MAX},
    {{0}}};

struct seal_after {
    int64_t part;
    const char *account;
    const bson_value_t *hash;
};

static const struct operation_field seal_after_fields[] = {
    {GIVEN(seal_after, part, FIELD_NUMBER), "the last part", 1, INT32_MAX - 1, .needed = true},
    {GIVEN(seal_after, account, FIELD_TEXT), "its last account", .needed = true},
    {GIVEN(seal_after, hash, FIELD_VALUE), "its hash", .needed = true},
    {{0}}};

/* Reads {part, account, hash}, after which the seal continues. */
static truce_status seal_read_after(struct operation_call *call, const bson_t *document,
                                    struct ledger_sealed *sealed, bson_error_t *error)
{
    struct seal_after after = {0};
    truce_status status = truce__operation_nested(call, document, seal_after_fields, &after, error);

    if (status)
        return status;
    if (after.hash->value_type != BSON_TYPE_BINARY ||
        after.hash->value.v_binary.data_len != SHA256_BYTES)
        return truce__refuse(CODE_BAD_VALUE, error,
                             "the 'hash' of 'after' must be a binary of %d bytes, not %s",
                             SHA256_BYTES,
                             after.hash->value_type == BSON_TYPE_BINARY
                                 ? "shorter or longer"
                                 : truce__type_name((uint8_t)after.hash->value_type));
    sealed->part = (int32_t)after.part;
    sealed->account = after.account;
    memcpy(sealed->hash, after.hash->value.v_binary.data, SHA256_BYTES);
    return TRUCE_OK;
}

/* Appends `after`: {part, account, hash} of the last part in the list. */
static void seal_append_after(const bson_t *parts, bson_t *reply)
{
    struct value part = truce__value_missing(), account = truce__value_missing();
    struct fields at = truce__fields(truce__value_array(parts));
    bson_t after;

    while (truce__fields_next(&at))
        part = at.value;
    at = truce__fields(truce__value_field(part, "accounts", 8));
    while (truce__fields_next(&at))
        account = truce__value_field(at.value, "account", 7);
    BSON_APPEND_DOCUMENT_BEGIN(reply, "after", &after);
    truce__value_append(&after, "part", 4, truce__value_field(part, "part", 4));
    truce__value_append(&after, "account", 7, account);
    truce__value_append(&after, "hash", 4, truce__value_field(part, "hash", 4));
    bson_append_document_end(reply, &after);
}

static truce_status ledger_run_seal(struct operation_call *call, const void *arg, bson_t *reply,
                                    bson_error_t *error)
{
    const struct seal_given *given = arg;
    struct ledger_sealed sealed = {0};
    struct reply_list list;
    struct handle *handle;
    truce_status status =
        given->after ? seal_read_after(call, given->after, &sealed, error) : TRUCE_OK;

    if (!status)
        status = truce__operation_ledger_read(call, &handle, error);
    if (status)
        return status;
    truce__reply_list_begin(&list, given->limit ? given->limit : SEAL_PARTS_MAX);
    status = truce__ledger_seal_after(handle->thing, given->after ? &sealed : NULL,
                                      ledger_add_document, &list, error);
    truce__operation_return(call, handle);
    if (!status && list.more)
        seal_append_after(&list.array, reply);
    return truce__reply_list_end(&list, status, "parts", reply);
}

const struct operation_row truce__ledger_seal_operation = {
    OPERATION("truceLedgerSeal", ROLE_READ, "returns a seal of the current book"),
    .target = "ledger",
    .value = "the collection of the ledger",
    .answer =
        "`parts`: each {ledger, time, part, before, accounts: [{account, number, balance, hash}], "
        "last, hash}; and `more`: continue with the reply's `after`. The accounts of a reply are "
        "of a snapshot. Store the parts elsewhere: truceLedgerVerify compares the book with them",
    .fields = seal_fields,
    .size = sizeof(struct seal_given),
    .run = ledger_run_seal,
    .ways = OPERATION_REPEATABLE,
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

/* Restores the types of integers, which drivers and JSON lose and the hash of a part needs. */
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

/* Returns the next part of the seal in the request, or NULL after the last one. */
static truce_status ledger_next_part(const bson_t **part, void *arg, bson_error_t *error)
{
    struct ledger_parts *parts = arg;
    bson_iter_t fields;
    bson_t restored = BSON_INITIALIZER;

    *part = NULL;
    if (!bson_iter_next(&parts->at))
        return TRUCE_OK;
    if (!BSON_ITER_HOLDS_DOCUMENT(&parts->at))
        return truce__refuse(CODE_TYPE_MISMATCH, error,
                             "a part of a seal must be a document, not %s",
                             truce__type_name((uint8_t)bson_iter_type(&parts->at)));
    if (bson_iter_recurse(&parts->at, &fields))
        ledger_restore_fields(&fields, &restored, true);
    *part = truce__bytes_view(
        parts->call->arena,
        truce__arena_copy(parts->call->arena, bson_get_data(&restored), restored.len),
        restored.len);
    bson_destroy(&restored);
    return TRUCE_OK;
}

/* Adds a finding to the reply. The report counts the findings that do not fit into the reply. */
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
    truce_status status = truce__operation_ledger_read(call, &handle, error);

    if (status)
        return status;
    if (given->seal)
        (void)bson_iter_init(&parts.at, given->seal);
    truce__reply_list_begin(&list, REPLY_LIST_MAX);
    status = truce_ledger_verify(handle->thing, given->account, given->seal ? &source : NULL,
                                 ledger_add_finding, &list, &report, error);
    truce__operation_return(call, handle);
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
    .ways = OPERATION_REPEATABLE,
    .example = "{truceLedgerVerify: 'bank'}",
};

/* ---- truceLedgerReport ----------------------------------------------------------------------- */

#define REPORT_CELLS_MAX 100000
#define REPORT_DEPTH_MAX 100

struct report_given {
    const char *by, *prefix;
    int64_t depth;
};

static const struct operation_field report_fields[] = {
    {GIVEN(report_given, prefix, FIELD_TEXT),
     "only this account and the accounts below it: \"assets\" includes \"assets:cash\""},
    {GIVEN(report_given, by, FIELD_TEXT), "the groups: day, month, quarter, year, or a field of "
                                          "the metadata such as meta.order; absent: month"},
    {GIVEN(report_given, depth, FIELD_NUMBER),
     "combines accounts with the same first parts of the name; absent: all parts", 1,
     REPORT_DEPTH_MAX},
    {{0}}};

/* The change of an account, or of all accounts below a name, in one group and one currency. */
struct report_cell {
    char *group, *account, *currency;
    /* The change in this group, and the balance at its end. */
    int64_t change, balance;
};

struct ledger_report {
    truce_ledger *ledger;
    /* The options. `path` is the field of the metadata, or NULL if `by` is a period. */
    const char *by, *path, *prefix;
    int64_t depth;
    /* The cells, sorted at the end by group, account, and currency. */
    struct report_cell *cells;
    uint32_t count, room;
    /* Finds cells while they are added. */
    struct hash_table table;
    truce_status status;
    bson_error_t error;
};

/* Returns the cell, and adds it if it is missing. The pointer is valid until the next call, which
 * may move the cells. */
static struct report_cell *report_cell_of(struct ledger_report *report, const char *group,
                                          const char *account, size_t length, const char *currency)
{
    uint64_t hash = truce__hash_mix(
        truce__hash_mix(truce__hash_text(group), truce__hash_bytes(account, length)),
        truce__hash_text(currency));
    struct report_cell *cell;

    for (struct hash_probe probe = truce__hash_probe(&report->table, hash);
         truce__hash_next(&probe);) {
        cell = &report->cells[probe.number];
        if (!strcmp(cell->group, group) && strlen(cell->account) == length &&
            !memcmp(cell->account, account, length) && !strcmp(cell->currency, currency))
            return cell;
    }
    if (report->count == report->room) {
        report->room = report->room ? 2 * report->room : 128;
        report->cells = bson_realloc(report->cells, report->room * sizeof *report->cells);
    }
    truce__hash_add(&report->table, hash, report->count);
    cell = &report->cells[report->count++];
    *cell = (struct report_cell){.group = bson_strdup(group),
                                 .account = bson_strndup(account, length),
                                 .currency = bson_strdup(currency)};
    return cell;
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

/* Adds a change to its cell. After a failure, sets report->status and returns false. */
static bool report_add_change(struct ledger_report *report, const char *group, const bson_t *change)
{
    const char *account = truce__field_text(change, "account"),
               *currency = truce__field_text(change, "currency");
    int64_t value = truce__field_number(change, "value");
    size_t length = length_at(account, report->depth);
    truce_ledger_balance balance;
    struct report_cell *cell;

    if (!value || !truce__ledger_is_below(account, report->prefix))
        return true;
    if (!*currency) { /* A change without a currency was inserted by another program. */
        report->status =
            truce_ledger_balance_of(report->ledger, account, NULL, &balance, &report->error);
        currency = balance.currency;
    }
    if (!report->status && report->count == REPORT_CELLS_MAX)
        report->status =
            truce__fail(TRUCE_LIMIT, &report->error,
                        "the report has more than %d rows: give a 'prefix', or a smaller 'depth'",
                        REPORT_CELLS_MAX);
    if (report->status)
        return false;
    cell = report_cell_of(report, group, account, length, currency);
    if (__builtin_add_overflow(cell->change, value, &cell->change))
        report->status = truce__fail(TRUCE_LIMIT, &report->error, "the sum of %s exceeds 64 bits",
                                     cell->account);
    return !report->status;
}

/* Writes the name of the period of a date in UTC: "2024", "2024-Q1", "2024-01", or "2024-01-31".
 * Names of one kind sort by time. */
static void name_period(const struct ledger_report *report, int64_t date_ms,
                        char name[DATE_TEXT_MAX])
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
static char *report_group_of(const struct ledger_report *report, const bson_t *document)
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

/* Adds the changes of a transaction in the state VALID to their cells. Returns false after a
 * failure, which ends the walk. */
static bool report_add_transaction(const bson_t *document, void *arg)
{
    struct ledger_report *report = arg;
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

static int report_compare_positions(const struct report_cell *one, const struct report_cell *other)
{
    int order = strcmp(one->account, other->account);

    return order ? order : strcmp(one->currency, other->currency);
}

static int compare_by_account(const void *a, const void *b)
{
    const struct report_cell *one = a, *other = b;
    int order = report_compare_positions(one, other);

    return order ? order : strcmp(one->group, other->group);
}

static int compare_by_group(const void *a, const void *b)
{
    const struct report_cell *one = a, *other = b;
    int order = strcmp(one->group, other->group);

    return order ? order : report_compare_positions(one, other);
}

/* Computes the balance of each cell: the sum of the changes of its account and currency up to its
 * group. Sorts the cells by group. Fails with LIMIT if a sum exceeds 64 bits. */
static truce_status report_add_up(struct ledger_report *report, bson_error_t *error)
{
    struct report_cell *cells = report->cells;

    if (!report->count)
        return TRUCE_OK;
    qsort(cells, report->count, sizeof *cells, compare_by_account);
    for (uint32_t i = 0; i < report->count; i++) {
        bool follows = i && !report_compare_positions(&cells[i - 1], &cells[i]);

        if (__builtin_add_overflow(follows ? cells[i - 1].balance : 0, cells[i].change,
                                   &cells[i].balance))
            return truce__fail(TRUCE_LIMIT, error, "the sum of %s exceeds 64 bits",
                               cells[i].account);
    }
    qsort(cells, report->count, sizeof *cells, compare_by_group);
    return TRUCE_OK;
}

/* Appends `rows`. Fails with LIMIT if they exceed the size of a reply. A report by a field of the
 * metadata has no balances. */
static truce_status report_append_cells(const struct ledger_report *report, bson_t *reply,
                                        bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    struct reply_list list;

    truce__reply_list_begin(&list, REPORT_CELLS_MAX);
    for (uint32_t i = 0; !status && i < report->count; i++) {
        const struct report_cell *cell = &report->cells[i];
        bson_t row = BSON_INITIALIZER;
        int digits = 0;

        status = truce_ledger_digits(report->ledger, cell->currency, &digits, error);
        BCON_APPEND(&row, "group", BCON_UTF8(cell->group), "account", BCON_UTF8(cell->account),
                    "currency", BCON_UTF8(cell->currency), "digits", BCON_INT32(digits), "change",
                    BCON_INT64(cell->change));
        if (!report->path)
            BSON_APPEND_INT64(&row, "balance", cell->balance);
        if (!status && !truce__reply_list_add(&list, &row))
            status = truce__fail(TRUCE_LIMIT, error,
                                 "the report exceeds %d MiB: give a 'prefix', or a smaller 'depth'",
                                 REPLY_LIST_BYTES / (1024 * 1024));
        bson_destroy(&row);
    }
    if (!status)
        BSON_APPEND_ARRAY(reply, "rows", &list.array);
    bson_destroy(&list.array);
    return status;
}

static void report_release(struct ledger_report *report)
{
    for (uint32_t i = 0; i < report->count; i++) {
        bson_free(report->cells[i].group);
        bson_free(report->cells[i].account);
        bson_free(report->cells[i].currency);
    }
    bson_free(report->cells);
    truce__hash_release(&report->table);
}

/* Reads the option `by`: a period, or a field of the metadata, whose path is then in
 * report->path. */
static truce_status report_read_group(const struct report_given *given,
                                      struct ledger_report *report, bson_error_t *error)
{
    static const char *const periods[] = {"day", "month", "quarter", "year", NULL};

    report->by = given->by ? given->by : "month";
    if (!strncmp(report->by, "meta.", 5) && report->by[5])
        report->path = report->by;
    else if (truce__operation_choice(report->by, periods) < 0)
        return truce__refuse(CODE_BAD_VALUE, error,
                             "the field 'by' must be day, month, quarter, year, or a field such as "
                             "meta.order, not \"%.80s\"",
                             report->by);
    return TRUCE_OK;
}

static truce_status ledger_run_report(struct operation_call *call, const void *arg, bson_t *reply,
                                      bson_error_t *error)
{
    const struct report_given *given = arg;
    struct ledger_report report = {.prefix = given->prefix, .depth = given->depth};
    struct handle *handle;
    truce_status status = report_read_group(given, &report, error);

    if (!status)
        status = truce__operation_ledger_read(call, &handle, error);
    if (status)
        return status;
    report.ledger = handle->thing;
    status = truce_ledger_walk(report.ledger, report_add_transaction, &report, error);
    if (!status && report.status) {
        status = report.status;
        *error = report.error;
    }
    if (!status)
        status = report_add_up(&report, error);
    if (!status)
        status = report_append_cells(&report, reply, error);
    if (!status && !report.count)
        ledger_note_prefix(call, report.ledger, given->prefix, reply);
    report_release(&report);
    truce__operation_return(call, handle);
    return status;
}

const struct operation_row truce__ledger_report_operation = {
    OPERATION("truceLedgerReport", ROLE_READ,
              "returns the changes of accounts by period, or by a field of the metadata"),
    .target = "ledger",
    .value = "the collection of the ledger",
    .answer =
        "`rows` of a snapshot, by group, account, and currency: each {group, account, currency, "
        "digits, change, balance}, where `balance` includes all earlier periods. Value dates "
        "count. A `note` says if no account has the `prefix`. An error: 146 (limit reached) the "
        "report has too many rows, or a sum exceeds 64 bits",
    .fields = report_fields,
    .size = sizeof(struct report_given),
    .run = ledger_run_report,
    .ways = OPERATION_REPEATABLE,
    .example = "{truceLedgerReport: 'bank', by: 'month', depth: 1}",
};

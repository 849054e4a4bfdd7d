/*
 * truceLedgerImport and truceLedgerExport: a book as a list of records.
 *
 *     {currency: "EUR", digits: 2}
 *     {open: "customers:ada", currency: "EUR", min: "0.00", ...}     an account with its rules
 *     {rules: "customers:ada", min: "-500.00", ...}                  other rules from here on
 *     {id, kind, of, part, date, expires, entries: [{account, amount, currency, type}], meta}
 *
 * Amounts ("-12.50") and dates are strings. The records of an export, in their order, are those of
 * an import.
 *
 * An import reads the records twice. The first pass checks all that needs no balance: the fields,
 * currencies, accounts, amounts, sums. One wrong record refuses the whole list with its number and
 * the reason, and nothing is posted. The second pass posts many transactions at a time. A
 * transaction that a rule of an account forbids is reported and skipped. Posting an id again
 * changes nothing. Importing the same records again therefore posts only what is missing.
 */
#include <inttypes.h>
#include <string.h>

#include "base/field.h"
#include "base/hash_table.h"
#include "base/limits.h"
#include "base/plural.h"
#include "bson/date.h"
#include "bson/value.h"
#include "operations/operation_ledger.h"
#include "operations/reply_list.h"
#include "patterns/ledger/ledger.h"

/* The maximum number of refused records, and of records, in one reply. */
#define REFUSALS_MAX 100000
#define EXPORT_MAX   100000

/* ---- accounts and currencies ----------------------------------------------------------------- */

/* A currency or an account that the ledger has, that the records open, or that the option `open`
 * allows to open. */
struct import_name {
    char *name;
    /* The currency of an account, once it is known. NULL for a currency. */
    char *currency;
    /* The number of digits of a currency. For a currency to be opened: the greatest number that an
     * amount has. */
    int digits;
    bool opens;
    /* The number of changes of the rules of an account, in the ledger, and by the records so
     * far. */
    int64_t changes, changed;
};

/* The names of accounts, or of currencies. */
struct import_names {
    struct hash_table table;
    /* The names, in the order in which the records use them. The pointers stay valid. */
    struct import_name **items;
    uint32_t count, room;
};

/* ---- a transaction --------------------------------------------------------------------------- */

struct import_item {
    int64_t number;
    bson_t record, meta;
    bson_value_t id, of;
    truce_ledger_entry *entries;
    /* The number of entries of a transaction that settles or reverses another one as a whole. They
     * are only compared with it, and not posted. */
    size_t whole;
    truce_ledger_transaction transaction;
};

struct importing {
    struct operation_call *call;
    const char *collection;
    truce_ledger *ledger;
    struct import_names accounts, currencies;
    bool opens;
    struct import_item *items;
    truce_ledger_transaction *transactions;
    truce_ledger_result *results;
    size_t count;
    int64_t posted, existed, refused;
    /* The refused records, {record, reason}. */
    struct reply_list refusals;
};

/* ---- the table of names ---------------------------------------------------------------------- */

/* Returns the entry of the name, or NULL. */
static struct import_name *import_find(const struct import_names *names, const char *name)
{
    for (struct hash_probe probe = truce__hash_probe(&names->table, truce__hash_text(name));
         truce__hash_next(&probe);)
        if (!strcmp(names->items[probe.number]->name, name))
            return names->items[probe.number];
    return NULL;
}

/* Returns the entry of the name. Adds it if it is missing. */
static struct import_name *import_add(struct import_names *names, const char *name)
{
    struct import_name *known = import_find(names, name);

    if (known)
        return known;
    if (names->count == names->room) {
        names->room = names->room ? 2 * names->room : 32;
        names->items = bson_realloc(names->items, names->room * sizeof *names->items);
    }
    known = bson_malloc0(sizeof *known);
    known->name = bson_strdup(name);
    truce__hash_add(&names->table, truce__hash_text(name), names->count);
    names->items[names->count++] = known;
    return known;
}

static void import_names_release(struct import_names *names)
{
    for (uint32_t i = 0; i < names->count; i++) {
        bson_free(names->items[i]->name);
        bson_free(names->items[i]->currency);
        bson_free(names->items[i]);
    }
    bson_free(names->items);
    truce__hash_release(&names->table);
}

/* ---- fields of a record ---------------------------------------------------------------------- */

struct import_field {
    const char *name;
    bson_type_t type; /* BSON_TYPE_EOD means any type. */
};

/* Refuses unknown fields, because one may be a misspelled known one. */
static truce_status items_check_fields(const bson_t *record, const struct import_field *fields,
                                       const char *what, bson_error_t *error)
{
    bson_iter_t iter;

    (void)!bson_iter_init(&iter, record);
    while (bson_iter_next(&iter)) {
        const struct import_field *field = fields;

        while (field->name && strcmp(field->name, bson_iter_key(&iter)) != 0)
            field++;
        if (!field->name)
            return truce__fail(TRUCE_INVALID, error, "%s: unknown field `%.60s`", what,
                               bson_iter_key(&iter));
        if (field->type != BSON_TYPE_EOD && field->type != bson_iter_type(&iter))
            return truce__fail(TRUCE_INVALID, error, "the field `%s` must be %s", field->name,
                               field->type == BSON_TYPE_BOOL    ? "true or false"
                               : field->type == BSON_TYPE_ARRAY ? "an array"
                               : field->type == BSON_TYPE_UTF8  ? "a string"
                                                                : "a document");
    }
    return TRUCE_OK;
}

/* ---- currencies and accounts of a record ----------------------------------------------------- */

/* Finds the currency. If neither the ledger nor the records have it, adds it to those to be opened,
 * or fails with INVALID if the option `open` was not given. */
static truce_status import_currency(struct importing *importing, const char *code,
                                    struct import_name **currency, bson_error_t *error)
{
    int digits;
    truce_status status;

    *currency = import_find(&importing->currencies, code);
    if (*currency)
        return TRUCE_OK;
    status = truce_ledger_digits(importing->ledger, code, &digits, error);
    if (status == TRUCE_NOT_FOUND && !importing->opens)
        return truce__fail(TRUCE_INVALID, error,
                           "the currency \"%.40s\" does not exist: declare it, or set 'open'",
                           code);
    if (status && status != TRUCE_NOT_FOUND)
        return status;
    *currency = import_add(&importing->currencies, code);
    (*currency)->opens = status == TRUCE_NOT_FOUND;
    (*currency)->digits = status ? 0 : digits;
    return TRUCE_OK;
}

/* Finds the account. If neither the ledger nor the records have it, adds it to the accounts to be
 * opened, or fails with INVALID if the option `open` was not given. */
static truce_status import_account(struct importing *importing, const char *name,
                                   struct import_name **account, bson_error_t *error)
{
    truce_ledger_balance balance;
    truce_status status;

    *account = import_find(&importing->accounts, name);
    if (*account)
        return TRUCE_OK;
    status = truce_ledger_balance_of(importing->ledger, name, NULL, &balance, error);
    if (status == TRUCE_NOT_FOUND && !importing->opens)
        return truce__fail(TRUCE_INVALID, error,
                           "the account \"%.200s\" does not exist: open it, or set 'open'", name);
    if (status && status != TRUCE_NOT_FOUND)
        return status;
    *account = import_add(&importing->accounts, name);
    (*account)->opens = status == TRUCE_NOT_FOUND;
    (*account)->currency = status ? NULL : bson_strdup(balance.currency);
    return TRUCE_OK;
}

static truce_status import_other_currency(const struct import_name *account, const char *code,
                                          bson_error_t *error)
{
    return truce__fail(TRUCE_INVALID, error, "account \"%.200s\" is in %s, not in %.40s",
                       account->name, account->currency, code);
}

/* ---- rules of accounts ---------------------------------------------------------------------- */

static truce_status items_read_limit(const bson_t *record, const char *name, int digits, bool *has,
                                     int64_t *limit, bson_error_t *error)
{
    *has = bson_has_field(record, name);
    return *has ? truce_ledger_read(truce__field_text(record, name), digits, limit, error)
                : TRUCE_OK;
}

/* Reads {open: ...} or {rules: ...}. */
static truce_status import_rules(struct importing *importing, const bson_t *record,
                                 truce_ledger_account *account, bson_error_t *error)
{
    static const struct import_field fields[] = {
        {"open", BSON_TYPE_UTF8},       {"rules", BSON_TYPE_UTF8},  {"currency", BSON_TYPE_UTF8},
        {"min", BSON_TYPE_UTF8},        {"max", BSON_TYPE_UTF8},    {"debitOnly", BSON_TYPE_BOOL},
        {"creditOnly", BSON_TYPE_BOOL}, {"closed", BSON_TYPE_BOOL}, {NULL, BSON_TYPE_EOD}};
    bool opens = bson_has_field(record, "open");
    const char *name = truce__field_text(record, opens ? "open" : "rules"),
               *code = truce__field_text(record, "currency");
    struct import_name *known, *currency;
    truce_status status = items_check_fields(record, fields, "an account", error);

    if (!status && opens && bson_has_field(record, "rules"))
        status = truce__fail(TRUCE_INVALID, error,
                             "an account has `open` or `rules`, and this record has both");
    if (!status && !opens)
        status = import_account(importing, name, &known, error);
    if (!status && !opens && *code && known->currency && strcmp(code, known->currency) != 0)
        status = import_other_currency(known, code, error);
    if (!status && !*code && !opens && known->currency)
        code = known->currency;
    if (!status)
        status = import_currency(importing, code, &currency, error);
    if (status)
        return status;
    *account = (truce_ledger_account){.account = name,
                                      .currency = currency->name,
                                      .debit_only = truce__field_true(record, "debitOnly"),
                                      .credit_only = truce__field_true(record, "creditOnly"),
                                      .closed = truce__field_true(record, "closed")};
    if (opens) {
        known = import_add(&importing->accounts, name);
        if (!known->currency)
            known->currency = bson_strdup(code);
    }
    status =
        items_read_limit(record, "min", currency->digits, &account->has_min, &account->min, error);
    return status ? status
                  : items_read_limit(record, "max", currency->digits, &account->has_max,
                                     &account->max, error);
}

/* ---- entries -------------------------------------------------------------------------------- */

static int items_digits_of(const char *amount)
{
    const char *point = strchr(amount, '.');

    return point ? (int)strlen(point + 1) : 0;
}

/* Finds the currency of an entry: that of its account. An entry sets the currency of an account
 * that has none yet. */
static truce_status currency_of(struct importing *importing, const bson_t *entry,
                                struct import_name **currency, bson_error_t *error)
{
    const char *name = truce__field_text(entry, "account"),
               *code = truce__field_text(entry, "currency");
    struct import_name *account;
    truce_status status;

    if (!*name)
        return truce__fail(TRUCE_INVALID, error,
                           "an entry has no `account`: expected {account, amount, currency}");
    status = import_account(importing, name, &account, error);
    if (status)
        return status;
    if (!*code && !account->currency)
        return truce__fail(TRUCE_INVALID, error, "the amount of account \"%.200s\" has no currency",
                           name);
    if (*code && account->currency && strcmp(code, account->currency) != 0)
        return import_other_currency(account, code, error);
    if (!account->currency)
        account->currency = bson_strdup(code);
    return import_currency(importing, account->currency, currency, error);
}

/* Reads an explicit amount. *of is set to its currency. */
static truce_status items_read_entry(struct importing *importing, const bson_t *entry,
                                     truce_ledger_entry *made, struct import_name **of,
                                     bson_error_t *error)
{
    const char *amount = truce__field_text(entry, "amount");
    truce_status status = currency_of(importing, entry, of, error);
    bson_iter_t iter;

    if (status)
        return status;
    if (bson_iter_init_find(&iter, entry, "amount") && !BSON_ITER_HOLDS_UTF8(&iter))
        return truce__fail(
            TRUCE_INVALID, error,
            "`amount` must be a string with the currency's digits (\"12.50\"), not a number: "
            "doubles and decimals are not accepted");
    made->account = truce__field_text(entry, "account");
    if (bson_has_field(entry, "type"))
        made->type = truce__field_text(entry, "type");
    if (made->type && !*made->type)
        return truce__fail(TRUCE_INVALID, error,
                           "the `type` of the entry of account \"%.200s\" is empty: omit it for "
                           "the type of the amount's sign",
                           made->account);
    if ((*of)->opens && items_digits_of(amount) > (*of)->digits)
        (*of)->digits = BSON_MIN(items_digits_of(amount), LEDGER_DIGITS_MAX);
    status = truce_ledger_read(amount, (*of)->digits, &made->value, error);
    if (!status && !made->value)
        status =
            truce__fail(TRUCE_INVALID, error,
                        "the amount of account \"%.200s\" is 0: an entry must change the balance",
                        made->account);
    return status;
}

struct import_sum {
    struct import_name *currency;
    __int128 value;
    /* The number of decimal digits of `value`. */
    int digits;
};

/* Adds with a common number of digits. The digits of a currency that is opened grow while the
 * records are read. */
static void items_add_to(struct import_sum *sums, uint32_t *count, struct import_name *currency,
                         int64_t value)
{
    uint32_t at = 0;

    while (at < *count && sums[at].currency != currency)
        at++;
    if (at == *count)
        sums[(*count)++] = (struct import_sum){.currency = currency, .digits = currency->digits};
    for (; sums[at].digits < currency->digits; sums[at].digits++)
        sums[at].value *= 10;
    sums[at].value += value;
}

/* Checks that the entries balance in each currency. `left` is the entry without an amount, or NULL;
 * it gets the amount that balances its currency. */
static truce_status import_balance(struct import_sum *sums, uint32_t count,
                                   truce_ledger_entry *left, const struct import_name *left_in,
                                   bson_error_t *error)
{
    for (uint32_t i = 0; i < count; i++) {
        if (left && (!left_in || sums[i].currency == left_in)) {
            if (left->value)
                return truce__fail(
                    TRUCE_INVALID, error,
                    "an entry without an amount is allowed only if all entries have the same "
                    "currency");
            if (sums[i].value < -INT64_MAX || sums[i].value > INT64_MAX)
                return truce__fail(TRUCE_LIMIT, error,
                                   "the amount of the entry without one exceeds 64 bits: the other "
                                   "amounts in %s are too large",
                                   sums[i].currency->name);
            left->value = -(int64_t)sums[i].value;
        } else if (sums[i].value) {
            char text[TRUCE_LEDGER_AMOUNT] = "more than 64 bits";

            if (sums[i].value >= INT64_MIN && sums[i].value <= INT64_MAX)
                truce_ledger_show((int64_t)sums[i].value, sums[i].digits, text);
            return truce__fail(TRUCE_INVALID, error,
                               "the transaction does not balance: its amounts in %s sum to %s "
                               "instead of zero",
                               sums[i].currency->name, text);
        }
    }
    return TRUCE_OK;
}

/* Sets the amount of the entry that has none, so that the transaction balances. Its currency is
 * that of the account, or that of the other entries. */
static truce_status items_leave(struct importing *importing, struct import_item *item,
                                const bson_t *entry, struct import_sum *sums, uint32_t count,
                                bson_error_t *error)
{
    truce_ledger_entry *left = &item->entries[item->transaction.count - 1];
    struct import_name *account, *currency = NULL;
    truce_status status =
        import_account(importing, truce__field_text(entry, "account"), &account, error);

    if (status)
        return status;
    if (account->currency)
        status = import_currency(importing, account->currency, &currency, error);
    else if (count == 1)
        account->currency = bson_strdup(sums[0].currency->name);
    if (!status)
        status = import_balance(sums, count, left, currency, error);
    /* The other entries already balance, so the entry is dropped. */
    if (!status && !left->value && --item->transaction.count == 0)
        status = truce__fail(
            TRUCE_INVALID, error,
            "the only entry of the transaction has no amount, and no other entry gives it");
    return status;
}

/* Reads all entries and checks their sums. At most one entry has no amount; its amount follows from
 * the others. */
static truce_status take_entries(struct importing *importing, struct import_item *item,
                                 bson_iter_t *entries, struct import_sum *sums, bson_error_t *error)
{
    static const struct import_field fields[] = {{"account", BSON_TYPE_UTF8},
                                                 {"amount", BSON_TYPE_EOD},
                                                 {"currency", BSON_TYPE_UTF8},
                                                 {"type", BSON_TYPE_UTF8},
                                                 {NULL, BSON_TYPE_EOD}};
    truce_ledger_transaction *transaction = &item->transaction;
    bson_t entry, without = BSON_INITIALIZER;
    truce_status status = TRUCE_OK;
    uint32_t count = 0;
    bool elided = false;

    while (!status && bson_iter_next(entries)) {
        struct import_name *currency;
        const uint8_t *data;
        uint32_t length;

        if (!BSON_ITER_HOLDS_DOCUMENT(entries))
            return truce__fail(TRUCE_INVALID, error,
                               "entry %s is %s: expected a document {account, amount, currency}",
                               bson_iter_key(entries),
                               truce__type_name((uint8_t)bson_iter_type(entries)));
        bson_iter_document(entries, &length, &data);
        bson_init_static(&entry, data, length);
        status = items_check_fields(&entry, fields, "an entry", error);
        if (status)
            return status;
        if (!bson_has_field(&entry, "amount")) {
            if (elided)
                return truce__fail(TRUCE_INVALID, error,
                                   "two entries have no amount: only one can be derived from the "
                                   "others");
            elided = true;
            bson_init_static(&without, data, length);
            continue;
        }
        status = items_read_entry(importing, &entry, &item->entries[transaction->count], &currency,
                                  error);
        if (!status)
            items_add_to(sums, &count, currency, item->entries[transaction->count++].value);
    }
    if (status || !elided)
        return status ? status : import_balance(sums, count, NULL, NULL, error);
    item->entries[transaction->count++].account = truce__field_text(&without, "account");
    return items_leave(importing, item, &without, sums, count, error);
}

/* Reads the entries of a transaction, which the item owns. Checks that they balance in each
 * currency, or derives the one amount that is left out. */
static truce_status items_read_entries(struct importing *importing, struct import_item *item,
                                       bson_error_t *error)
{
    bson_iter_t iter, entries;
    struct import_sum *sums;
    uint32_t count = 0;
    truce_status status;

    if (bson_iter_init_find(&iter, &item->record, "entries") && BSON_ITER_HOLDS_ARRAY(&iter) &&
        bson_iter_recurse(&iter, &entries))
        for (bson_iter_t at = entries; bson_iter_next(&at);)
            count++;
    if (!count)
        return truce__fail(
            TRUCE_INVALID, error,
            "`entries` is missing or empty: expected [{account, amount, currency}, ...]");
    item->entries = bson_malloc0(count * sizeof *item->entries);
    item->transaction.entries = item->entries;
    sums = bson_malloc0(count * sizeof *sums);
    status = take_entries(importing, item, &entries, sums, error);
    bson_free(sums);
    return status;
}

/* ---- dates and kinds ------------------------------------------------------------------------- */

/* Reads a date of the record in ms since 1970, or 0 if the record has none. The date 1970-01-01 is
 * refused, because 0 means that there is no date. */
static truce_status items_read_date(const bson_t *record, const char *name, int64_t *date_ms,
                                    bson_error_t *error)
{
    const char *text = truce__field_text(record, name);

    *date_ms = 0;
    if (!bson_has_field(record, name))
        return TRUCE_OK;
    if (truce__date_parse_typed(text, strlen(text), date_ms, NULL))
        return truce__fail(TRUCE_INVALID, error,
                           "`%s`: invalid date \"%.40s\": expected 2024-01-31", name, text);
    if (!*date_ms)
        return truce__fail(TRUCE_INVALID, error,
                           "`%s` must not be 1970-01-01T00:00:00Z, which means \"no date\"", name);
    return TRUCE_OK;
}

/* Reads the kind of the transaction. Without `kind`, it is a transfer. */
static truce_status items_read_kind(const bson_t *record, truce_ledger_kind *kind,
                                    bson_error_t *error)
{
    const char *name = truce__field_text(record, "kind");
    int found =
        bson_has_field(record, "kind") ? truce__operation_choice(name, truce__ledger_kinds) : 0;

    if (found < 0)
        return truce__fail(
            TRUCE_INVALID, error,
            "unknown kind \"%.40s\" of a transaction: expected transfer, pending, settle, void, or "
            "reverse",
            name);
    *kind = (truce_ledger_kind)found;
    return TRUCE_OK;
}

/* Lets the fields of the transaction point into the record, which the item owns. */
static void point_at(struct import_item *item)
{
    bson_iter_t iter;

    if (bson_iter_init_find(&iter, &item->record, "id")) {
        item->id = *bson_iter_value(&iter);
        item->transaction.id = &item->id;
    }
    if (bson_iter_init_find(&iter, &item->record, "of")) {
        item->of = *bson_iter_value(&iter);
        item->transaction.of = &item->of;
    }
    if (truce__value_subdocument(&item->record, "meta", &item->meta))
        item->transaction.meta = &item->meta;
}

/* Checks that the record has no fields that its kind does not use. */
static truce_status import_check_kind(const struct import_item *item, bson_error_t *error)
{
    truce_ledger_kind kind = item->transaction.kind;

    if (kind == TRUCE_LEDGER_VOID && bson_has_field(&item->record, "entries"))
        return truce__fail(TRUCE_INVALID, error,
                           "a void has no `entries`: it voids the whole transaction");
    if (truce__field_true(&item->record, "part") && kind != TRUCE_LEDGER_SETTLE &&
        kind != TRUCE_LEDGER_REVERSE)
        return truce__fail(TRUCE_INVALID, error,
                           "`part` is allowed only if the kind is settle or reverse");
    return TRUCE_OK;
}

/* Fills `item`, which is zeroed. Release frees it, even after an error. Fails with INVALID if the
 * record is wrong; the message says why. */
static truce_status import_item(struct importing *importing, int64_t number, const bson_t *record,
                                struct import_item *item, bson_error_t *error)
{
    static const struct import_field fields[] = {
        {"id", BSON_TYPE_EOD},        {"kind", BSON_TYPE_UTF8},     {"of", BSON_TYPE_EOD},
        {"part", BSON_TYPE_BOOL},     {"date", BSON_TYPE_UTF8},     {"expires", BSON_TYPE_UTF8},
        {"entries", BSON_TYPE_ARRAY}, {"meta", BSON_TYPE_DOCUMENT}, {NULL, BSON_TYPE_EOD}};
    truce_ledger_transaction *transaction = &item->transaction;
    bool resolves, whole;
    truce_status status;

    item->number = number;
    bson_copy_to(record, &item->record);
    point_at(item);
    if (!transaction->id)
        return truce__fail(TRUCE_INVALID, error,
                           "the record has no `id`, `currency`, `open`, or `rules`");
    status = items_check_fields(record, fields, "a transaction", error);
    if (!status)
        status = items_read_kind(record, &transaction->kind, error);
    if (!status)
        status = items_read_date(record, "date", &transaction->effective_ms, error);
    if (!status)
        status = items_read_date(record, "expires", &transaction->expires_ms, error);
    if (!status)
        status = import_check_kind(item, error);
    if (status || transaction->kind == TRUCE_LEDGER_VOID)
        return status;
    resolves =
        transaction->kind == TRUCE_LEDGER_SETTLE || transaction->kind == TRUCE_LEDGER_REVERSE;
    whole = resolves && transaction->of && !truce__field_true(record, "part");
    if (!whole || bson_has_field(record, "entries"))
        status = items_read_entries(importing, item, error);
    if (!status && whole) {
        item->whole = transaction->count;
        transaction->entries = NULL;
        transaction->count = 0;
    }
    return status;
}

static void import_item_release(struct import_item *item)
{
    if (!item->number)
        return;
    bson_free(item->entries);
    bson_destroy(&item->record);
    *item = (struct import_item){0};
}

/* ---- the first pass -------------------------------------------------------------------------- */

/* Checks {currency, digits} against the ledger and the earlier records. */
static truce_status import_check_currency(struct importing *importing, const bson_t *record,
                                          bson_error_t *error)
{
    static const struct import_field fields[] = {
        {"currency", BSON_TYPE_UTF8}, {"digits", BSON_TYPE_EOD}, {NULL, BSON_TYPE_EOD}};
    const char *code = truce__field_text(record, "currency");
    struct import_name *known = import_find(&importing->currencies, code);
    int64_t digits = -1;
    int there = 0;
    truce_status status = items_check_fields(record, fields, "a currency", error);

    if (!status)
        status = truce_ledger_digits(importing->ledger, code, &there, error);
    if (status && status != TRUCE_NOT_FOUND)
        return status;
    if (!truce__field_whole(record, "digits", &digits) || digits < 0 || digits > LEDGER_DIGITS_MAX)
        return truce__fail(TRUCE_INVALID, error,
                           "currency %.40s has an invalid number of digits (%" PRId64
                           "): expected 0 to %d",
                           code, digits, LEDGER_DIGITS_MAX);
    if ((!status && there != digits) || (known && !known->opens && known->digits != digits))
        return truce__fail(TRUCE_INVALID, error, "currency %.40s has %s, not %d", code,
                           PLURAL(status ? known->digits : there, "digit", "digits"), (int)digits);
    known = import_add(&importing->currencies, code);
    known->digits = (int)digits;
    known->opens = false;
    return TRUCE_OK;
}

/* Checks a record, in the first pass over all of them. It posts nothing, but remembers the
 * currencies and accounts that the record opens. */
static truce_status import_check(struct importing *importing, int64_t number, const bson_t *record,
                                 bson_error_t *error)
{
    struct import_item item = {0};
    truce_ledger_account account;
    truce_status status;

    if (bson_has_field(record, "digits"))
        return import_check_currency(importing, record, error);
    if (bson_has_field(record, "open") || bson_has_field(record, "rules"))
        return import_rules(importing, record, &account, error);
    status = import_item(importing, number, record, &item, error);
    import_item_release(&item);
    return status;
}

/* Opens the currencies and accounts that `open` allows. Currencies come first, because accounts
 * need them. */
static truce_status open_missing(struct importing *importing, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; !status && i < importing->currencies.count; i++) {
        const struct import_name *currency = importing->currencies.items[i];

        status = truce_ledger_currency(importing->ledger, currency->name, currency->digits, error);
    }
    for (uint32_t i = 0; !status && i < importing->accounts.count; i++) {
        const struct import_name *account = importing->accounts.items[i];

        if (account->opens && account->currency)
            status = truce_ledger_open(
                importing->ledger, NULL,
                &(truce_ledger_account){.account = account->name, .currency = account->currency},
                error);
    }
    return status;
}

/* ---- the second pass ------------------------------------------------------------------------- */

static void import_refuse(struct importing *importing, int64_t number, const bson_error_t *error)
{
    bson_t one = BSON_INITIALIZER;

    importing->refused++;
    BCON_APPEND(&one, "record", BCON_INT64(number), "reason",
                BCON_UTF8(importing->call->host->message(importing->call, error->message)));
    (void)truce__reply_list_add(&importing->refusals, &one);
    bson_destroy(&one);
}

/* Returns true if the book is imported where it was exported. A transaction without a value date
 * was exported with its time of booking, and one that was settled in time without an expiry. *own
 * is then posted again unchanged. */
static bool is_its_own(struct importing *importing, const struct import_item *item,
                       truce_ledger_transaction *own)
{
    bson_t filter = BSON_INITIALIZER, found;
    bson_iter_t iter;
    bool same;

    *own = item->transaction;
    BSON_APPEND_VALUE(&filter, "_id", &item->id);
    same =
        !truce_find_one(importing->call->store, importing->collection, &filter, NULL, &found, NULL);
    if (same && !bson_has_field(&found, "effective")) {
        same = bson_iter_init_find(&iter, &found, "ts") && BSON_ITER_HOLDS_DATE_TIME(&iter) &&
               bson_iter_date_time(&iter) == own->effective_ms;
        own->effective_ms = 0;
    }
    if (same && !own->expires_ms && bson_iter_init_find(&iter, &found, "expires") &&
        BSON_ITER_HOLDS_DATE_TIME(&iter))
        own->expires_ms = bson_iter_date_time(&iter);
    bson_destroy(&found);
    bson_destroy(&filter);
    return same;
}

static void take_result(struct importing *importing, const struct import_item *item,
                        truce_ledger_result *result)
{
    truce_ledger_transaction own;

    if (result->status == TRUCE_DUPLICATE && is_its_own(importing, item, &own))
        result->status = truce_ledger_post(importing->ledger, NULL, &own, result, &result->error);
    if (result->status)
        import_refuse(importing, item->number, &result->error);
    else if (result->exists)
        importing->existed++;
    else
        importing->posted++;
}

/* Posts the gathered transactions together, counts their results, and empties the batch. */
static truce_status ledger_import_flush(struct importing *importing, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < importing->count; i++)
        importing->transactions[i] = importing->items[i].transaction;
    if (importing->count)
        status = truce__ledger_post_history(importing->ledger, importing->transactions,
                                            importing->count, importing->results, error);
    for (size_t i = 0; i < importing->count; i++) {
        if (!status)
            take_result(importing, &importing->items[i], &importing->results[i]);
        import_item_release(&importing->items[i]);
    }
    importing->count = 0;
    return status;
}

/* ---- a whole transaction ---- */

/* Adds a value of an account to the sums by account. */
static void whole_add(struct import_names *accounts, const char *name, int64_t value)
{
    struct import_name *account = import_add(accounts, name);

    account->changes = (int64_t)((uint64_t)account->changes + (uint64_t)value);
}

/* Returns the gathered transaction with the id, or NULL. */
static const truce_ledger_transaction *whole_gathered(const struct importing *importing,
                                                      const bson_value_t *id)
{
    const truce_ledger_transaction *found = NULL;
    bson_t wanted = BSON_INITIALIZER, other = BSON_INITIALIZER;

    BSON_APPEND_VALUE(&wanted, "_id", id);
    for (size_t i = 0; i < importing->count && !found; i++) {
        const truce_ledger_transaction *transaction = &importing->items[i].transaction;

        bson_reinit(&other);
        BSON_APPEND_VALUE(&other, "_id", transaction->id);
        if (truce__value_equal(truce__value_field(truce__value_document(&other), "_id", 3),
                               truce__value_field(truce__value_document(&wanted), "_id", 3)))
            found = transaction;
    }
    bson_destroy(&wanted);
    bson_destroy(&other);
    return found;
}

/* Adds the values of the transaction `of` to the sums, each times `sign`. It is a record before
 * this one, or in the ledger. Returns NOT_FOUND if it is neither, or has no entries of its own. */
static truce_status whole_add_original(struct importing *importing, const bson_value_t *of,
                                       int64_t sign, struct import_names *accounts,
                                       bson_error_t *error)
{
    const truce_ledger_transaction *gathered = whole_gathered(importing, of);
    bson_t filter = BSON_INITIALIZER, found, change;
    bson_iter_t iter, changes;
    truce_status status;

    for (size_t i = 0; gathered && i < gathered->count; i++)
        whole_add(accounts, gathered->entries[i].account, sign * gathered->entries[i].value);
    if (gathered) {
        bson_destroy(&filter);
        return gathered->count ? TRUCE_OK : TRUCE_NOT_FOUND;
    }
    BSON_APPEND_VALUE(&filter, "_id", of);
    status =
        truce_find_one(importing->call->store, importing->collection, &filter, NULL, &found, error);
    if (!status && bson_iter_init_find(&iter, &found, "changes") &&
        bson_iter_recurse(&iter, &changes))
        while (bson_iter_next(&changes)) {
            truce__value_bson(truce__value_of_iter(&changes), &change);
            whole_add(accounts, truce__field_text(&change, "account"),
                      sign * truce__field_number(&change, "value"));
        }
    bson_destroy(&found);
    bson_destroy(&filter);
    return status;
}

/* Checks that the entries of a record that settles or reverses a transaction as a whole are those
 * of the transaction. Otherwise their amounts would be ignored. */
static truce_status whole_check(struct importing *importing, const struct import_item *item,
                                bson_error_t *error)
{
    bool reverses = item->transaction.kind == TRUCE_LEDGER_REVERSE;
    struct import_names accounts = {0};
    char shown[120];
    bool same = true;
    bson_iter_t of;
    truce_status status =
        whole_add_original(importing, item->transaction.of, reverses ? -1 : 1, &accounts, error);

    for (size_t i = 0; !status && i < item->whole; i++)
        whole_add(&accounts, item->entries[i].account,
                  (int64_t)(0 - (uint64_t)item->entries[i].value));
    for (uint32_t i = 0; !status && i < accounts.count; i++)
        same = same && !accounts.items[i]->changes;
    import_names_release(&accounts);
    if (status || same) /* The post reports a transaction that does not exist. */
        return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
    (void)bson_iter_init_find(&of, &item->record, "of");
    return truce__fail(TRUCE_INVALID, error,
                       "the entries are not those of the transaction %s, which is %s as a whole: "
                       "omit the entries, or set `part`",
                       truce__value_show(truce__value_of_iter(&of), shown, sizeof shown),
                       reverses ? "reversed" : "settled");
}

static bool is_answer(truce_status status)
{
    return status == TRUCE_DUPLICATE || status == TRUCE_INVALID || status == TRUCE_LIMIT ||
           status == TRUCE_NOT_FOUND;
}

static truce_status count_changes(struct importing *importing, struct import_name *account,
                                  bson_error_t *error)
{
    bson_t *filter =
        BCON_NEW("kind", BCON_UTF8("rules"), "changes.account", BCON_UTF8(account->name));
    truce_status status = truce_count(importing->call->store, importing->collection, filter, NULL,
                                      &account->changes, error);

    bson_destroy(filter);
    return status;
}

/* Sets *there if an earlier run opened the account, or changed its rules that often. */
static truce_status import_was_set(struct importing *importing, const bson_t *record, bool *there,
                                   bson_error_t *error)
{
    bool opens = bson_has_field(record, "open");
    const char *name = truce__field_text(record, opens ? "open" : "rules");
    struct import_name *account = import_add(&importing->accounts, name);
    truce_ledger_balance balance;
    truce_status status;

    *there = false;
    if (opens) {
        status = truce_ledger_balance_of(importing->ledger, name, NULL, &balance, error);
        *there = !status && account->currency && !strcmp(balance.currency, account->currency);
        return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
    }
    status = account->changed ? TRUCE_OK : count_changes(importing, account, error);
    *there = !status && ++account->changed <= account->changes;
    return status;
}

static bool import_same_limit(const bson_t *set, const char *name, bool has, int64_t limit)
{
    return bson_has_field(set, name) == has && (!has || truce__field_number(set, name) == limit);
}

/* Refuses a record {open: ...} of an account that is open already, and was opened with other rules:
 * those of the record would be ignored. */
static truce_status import_compare_opening(struct importing *importing, int64_t number,
                                           const bson_t *record, bson_error_t *error)
{
    truce_ledger_account account;
    bson_t *filter, found, set;
    bson_iter_t at, change;
    truce_status status = import_rules(importing, record, &account, error);

    if (status)
        return status;
    filter = BCON_NEW("_id", "{", "opens", BCON_UTF8(account.account), "}");
    status =
        truce_find_one(importing->call->store, importing->collection, filter, NULL, &found, error);
    if (!status && bson_iter_init(&at, &found) &&
        bson_iter_find_descendant(&at, "changes.0.set", &change) &&
        BSON_ITER_HOLDS_DOCUMENT(&change)) {
        truce__value_bson(truce__value_of_iter(&change), &set);
        if (!import_same_limit(&set, "min", account.has_min, account.min) ||
            !import_same_limit(&set, "max", account.has_max, account.max) ||
            truce__field_true(&set, "debitOnly") != account.debit_only ||
            truce__field_true(&set, "creditOnly") != account.credit_only ||
            truce__field_true(&set, "closed") != account.closed) {
            (void)truce__fail(TRUCE_DUPLICATE, error,
                              "account \"%.200s\" was opened with other rules: a record {rules: "
                              "...} changes them",
                              account.account);
            import_refuse(importing, number, error);
        }
    }
    bson_destroy(&found);
    bson_destroy(filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Opens an account or changes its rules, unless an earlier run did. Posts the collected
 * transactions first, because the rules apply from here on. Reports a refusal by the ledger instead
 * of returning it. */
static truce_status import_set_rules(struct importing *importing, int64_t number,
                                     const bson_t *record, bson_error_t *error)
{
    truce_ledger_account account;
    truce_status status = ledger_import_flush(importing, error);
    bool there = false;

    if (!status)
        status = import_was_set(importing, record, &there, error);
    if (!status && there)
        return bson_has_field(record, "open")
                   ? import_compare_opening(importing, number, record, error)
                   : TRUCE_OK;
    if (!status)
        status = import_rules(importing, record, &account, error);
    if (!status)
        status = bson_has_field(record, "open")
                     ? truce_ledger_open(importing->ledger, NULL, &account, error)
                     : truce_ledger_rules(importing->ledger, NULL, &account, error);
    if (!is_answer(status))
        return status;
    import_refuse(importing, number, error);
    return TRUCE_OK;
}

/* Books a record, in the second pass. Transactions are gathered and posted LEDGER_BULK at a
 * time. */
static truce_status import_book(struct importing *importing, int64_t number, const bson_t *record,
                                bson_error_t *error)
{
    struct import_item *item;
    truce_status status;

    if (bson_has_field(record, "digits"))
        return truce_ledger_currency(importing->ledger, truce__field_text(record, "currency"),
                                     (int)truce__field_number(record, "digits"), error);
    if (bson_has_field(record, "open") || bson_has_field(record, "rules"))
        return import_set_rules(importing, number, record, error);
    item = &importing->items[importing->count];
    status = import_item(importing, number, record, item, error);
    if (!status && item->whole) {
        status = whole_check(importing, item, error);
        if (status == TRUCE_INVALID) {
            import_refuse(importing, number, error);
            import_item_release(item);
            return TRUCE_OK;
        }
    }
    if (!status && ++importing->count == LEDGER_BULK)
        status = ledger_import_flush(importing, error);
    return status;
}

/* ---- truceLedgerImport ----------------------------------------------------------------------- */

struct import_given {
    const bson_t *records;
    bool open, check;
};

static const struct operation_field import_fields[] = {
    {GIVEN(import_given, records, FIELD_ARRAY),
     "records as truceLedgerExport returns them; an id may be any value, and `date` is the value "
     "date",
     .needed = true, .each = FIELD_DOCUMENT},
    {GIVEN(import_given, open, FIELD_FLAG), "opens missing accounts and currencies"},
    {GIVEN(import_given, check, FIELD_FLAG), "only checks the records"},
    {{0}}};

typedef truce_status import_pass(struct importing *importing, int64_t number, const bson_t *record,
                                 bson_error_t *error);

/* Calls the function for each record. The records are numbered from 1. */
static truce_status import_each(struct importing *importing, const bson_t *records,
                                import_pass *pass, bson_error_t *error)
{
    struct fields at = truce__fields(truce__value_array(records));
    truce_status status = TRUCE_OK;

    for (int64_t number = 1; !status && truce__fields_next(&at); number++) {
        bson_t record;

        if (at.value.type == BSON_TYPE_DOCUMENT) {
            truce__value_bson(at.value, &record);
            status = pass(importing, number, &record, error);
        } else {
            status = truce__fail(TRUCE_INVALID, error, "must be a document, not %s",
                                 truce__type_name(at.value.type));
        }
        if (status)
            (void)truce__operation_element(status, "record", number, error);
    }
    return status;
}

static truce_status import_all(struct importing *importing, const struct import_given *given,
                               bson_error_t *error)
{
    truce_status status = import_each(importing, given->records, import_check, error);

    if (status || given->check)
        return status;
    status = open_missing(importing, error);
    if (!status)
        status = import_each(importing, given->records, import_book, error);
    return status ? status : ledger_import_flush(importing, error);
}

static truce_status ledger_run_import(struct operation_call *call, const void *arg, bson_t *reply,
                                      bson_error_t *error)
{
    const struct import_given *given = arg;
    struct importing importing = {.call = call, .opens = given->open};
    struct handle *handle;
    truce_status status = truce__operation_ledger(call, true, &handle, error);

    if (status)
        return status;
    importing.ledger = handle->thing;
    importing.collection = bson_iter_utf8(&call->target, NULL);
    importing.items = bson_malloc0((LEDGER_BULK + 1) * sizeof *importing.items);
    importing.transactions = bson_malloc0(LEDGER_BULK * sizeof *importing.transactions);
    importing.results = bson_malloc0(LEDGER_BULK * sizeof *importing.results);
    truce__reply_list_begin(&importing.refusals, REFUSALS_MAX);
    status = import_all(&importing, given, error);
    for (size_t i = 0; i <= importing.count; i++)
        import_item_release(&importing.items[i]);
    if (!status)
        BCON_APPEND(reply, "records", BCON_INT64(bson_count_keys(given->records)), "posted",
                    BCON_INT64(importing.posted), "existed", BCON_INT64(importing.existed),
                    "refused", BCON_INT64(importing.refused));
    import_names_release(&importing.accounts);
    import_names_release(&importing.currencies);
    bson_free(importing.items);
    bson_free(importing.transactions);
    bson_free(importing.results);
    truce__operation_return(call, handle);
    return truce__reply_list_end(&importing.refusals, status, "refusals", reply);
}

const struct operation_row truce__ledger_import_operation = {
    OPERATION("truceLedgerImport", ROLE_WRITE,
              "posts the records of a book: currencies, accounts with their rules, transactions"),
    .target = "ledger",
    .value = "the collection of the ledger",
    .answer =
        "counts: `records`, `posted`, `existed` (posted before), `refused` (a rule of an account "
        "forbids it, or the id was used with different content); `refusals`: {record, reason}; and "
        "`more`: true if others were refused. Repeat an interrupted import: it posts what is "
        "missing. An error: 2 (invalid) a record is wrong, the message has its number from 1, and "
        "nothing was posted",
    .fields = import_fields,
    .size = sizeof(struct import_given),
    .run = ledger_run_import,
    .ways = OPERATION_REPEATABLE | OPERATION_STRICT,
    .example =
        "{truceLedgerImport: 'bank', records: [{currency: 'EUR', digits: 2}, {id: 'sale 20', "
        "date: '2026-03-01', entries: [{account: 'cash', amount: '-7.50', currency: 'EUR'}, "
        "{account: 'sales', amount: '7.50', currency: 'EUR'}]}], open: true}",
};

/* ---- the export ------------------------------------------------------------------------------ */

struct exporting {
    truce_store *store;
    const char *collection;
    truce_ledger *ledger;
    ledger_record_function *function;
    void *arg;
    /* The currencies whose records were written. */
    bson_t currencies;
    /* The function of the export has returned false. */
    bool ended;
    truce_status status;
    bson_error_t error;
};

static bool export_fails(struct exporting *exporting, truce_status status)
{
    exporting->status = status;
    return status != TRUCE_OK;
}

/* Passes a record to the function of the export. If it returns false, the export ends, but only
 * after all records of the transaction. */
static void export_write_record(struct exporting *exporting, const bson_t *record)
{
    if (!exporting->function(record, exporting->arg))
        exporting->ended = true;
}

/* Returns the digits of a currency. A record of it is written before its first use. */
static truce_status export_digits_of(struct exporting *exporting, const char *currency, int *digits)
{
    bson_t record = BSON_INITIALIZER;
    truce_status status =
        truce_ledger_digits(exporting->ledger, currency, digits, &exporting->error);

    if (!status && !bson_has_field(&exporting->currencies, currency)) {
        BSON_APPEND_BOOL(&exporting->currencies, currency, true);
        BSON_APPEND_UTF8(&record, "currency", currency);
        BSON_APPEND_INT32(&record, "digits", *digits);
        export_write_record(exporting, &record);
    }
    bson_destroy(&record);
    return status;
}

static void append_date(const bson_t *document, const char *field, const char *name, bson_t *record)
{
    char text[DATE_TEXT_MAX];
    bson_iter_t iter;

    if (bson_iter_init_find(&iter, document, field) && BSON_ITER_HOLDS_DATE_TIME(&iter))
        BSON_APPEND_UTF8(record, name, truce__date_show(bson_iter_date_time(&iter), text));
}

static void append_amount(bson_t *record, const char *name, int64_t value, int digits)
{
    char text[TRUCE_LEDGER_AMOUNT];

    bson_append_utf8(record, name, -1, truce_ledger_show(value, digits, text), -1);
}

/* ---- accounts ------------------------------------------------------------------------------- */

/* Writes the record {open: ...} or {rules: ...} of a change of rules. */
static truce_status export_rules(struct exporting *exporting, const char *kind,
                                 const bson_t *change)
{
    bson_t record = BSON_INITIALIZER, set;
    const char *currency;
    int digits = 0;
    truce_status status;

    if (!truce__value_subdocument(change, "set", &set))
        return truce__fail(TRUCE_CORRUPT, &exporting->error,
                           "the record of an account has no rules");
    currency = truce__field_text(&set, "currency");
    status = export_digits_of(exporting, currency, &digits);
    BSON_APPEND_UTF8(&record, kind, truce__field_text(change, "account"));
    BSON_APPEND_UTF8(&record, "currency", currency);
    for (const char *const *name = (const char *const[]){"min", "max", NULL}; *name; name++) {
        if (bson_has_field(&set, *name))
            append_amount(&record, *name, truce__field_number(&set, *name), digits);
    }
    for (const char *const *name = (const char *const[]){"debitOnly", "creditOnly", "closed", NULL};
         *name; name++) {
        if (bson_has_field(&set, *name))
            bson_append_bool(&record, *name, -1, true);
    }
    if (!status)
        export_write_record(exporting, &record);
    bson_destroy(&record);
    return status;
}

/* ---- transactions --------------------------------------------------------------------------- */

/* Appends an entry of a record: the amount as a string in the currency's digits, and the type
 * unless the sign of the amount implies it. */
static truce_status export_append_entry(struct exporting *exporting, const bson_t *change,
                                        bson_t *entry)
{
    const char *account = truce__field_text(change, "account"),
               *currency = truce__field_text(change, "currency"),
               *type = truce__field_text(change, "type");
    int64_t value = truce__field_number(change, "value");
    truce_ledger_balance balance = {{0}};
    truce_status status = TRUCE_OK;
    int digits = 0;

    if (!*currency) { /* A change without a currency was inserted by another program. */
        status =
            truce_ledger_balance_of(exporting->ledger, account, NULL, &balance, &exporting->error);
        currency = balance.currency;
    }
    if (!status)
        status = export_digits_of(exporting, currency, &digits);
    BSON_APPEND_UTF8(entry, "account", account);
    append_amount(entry, "amount", value, digits);
    BSON_APPEND_UTF8(entry, "currency", currency);
    if (*type && strcmp(type, value < 0 ? "withdraw" : "deposit") != 0)
        BSON_APPEND_UTF8(entry, "type", type);
    return status;
}

/* Appends `entries`: the changes whose value is not 0. */
static truce_status export_append_entries(struct exporting *exporting, const bson_t *document,
                                          bson_t *record)
{
    bson_iter_t iter, changes;
    bson_t entries, entry;
    uint32_t count = 0;
    truce_status status = TRUCE_OK;

    bson_append_array_begin(record, "entries", 7, &entries);
    if (bson_iter_init_find(&iter, document, "changes") && bson_iter_recurse(&iter, &changes)) {
        while (!status && bson_iter_next(&changes)) {
            const uint8_t *data;
            uint32_t length;
            bson_t change;
            char key[16];

            bson_iter_document(&changes, &length, &data);
            bson_init_static(&change, data, length);
            if (!truce__field_number(&change, "value"))
                continue;
            snprintf(key, sizeof key, "%u", count++);
            bson_append_document_begin(&entries, key, -1, &entry);
            status = export_append_entry(exporting, &change, &entry);
            bson_append_document_end(&entries, &entry);
        }
    }
    bson_append_array_end(record, &entries);
    return status;
}

static void export_append_as(const bson_t *document, const char *field, const char *name,
                             bson_t *record)
{
    bson_iter_t iter;

    if (bson_iter_init_find(&iter, document, field))
        bson_append_iter(record, name, -1, &iter);
}

/* Returns true if the transaction is still pending. One that was settled in time would be too late
 * in an import. */
static bool export_is_open(struct exporting *exporting, const bson_t *document)
{
    bson_t filter = BSON_INITIALIZER, found;
    bson_iter_t iter;
    truce_status status;

    if (!bson_has_field(document, "open") || !bson_iter_init_find(&iter, document, "_id")) {
        bson_destroy(&filter);
        return false;
    }
    bson_append_iter(&filter, "resolves", -1, &iter);
    status = truce_find_one(exporting->store, exporting->collection, &filter, NULL, &found, NULL);
    bson_destroy(&found);
    bson_destroy(&filter);
    return status == TRUCE_NOT_FOUND;
}

static const char *export_kind_of(const bson_t *document)
{
    const char *kind = truce__field_text(document, "kind");

    if (!strcmp(kind, "expire"))
        return "void";
    if (*kind)
        return kind;
    return strcmp(truce__field_text(document, "state"), "PENDING") ? "transfer" : "pending";
}

/* Writes the record of a transaction. A void needs no entries. */
static truce_status export_transaction(struct exporting *exporting, const bson_t *document)
{
    bool dated = bson_has_field(document, "effective");
    bson_t record = BSON_INITIALIZER;
    truce_status status = TRUCE_OK;

    export_append_as(document, "_id", "id", &record);
    BSON_APPEND_UTF8(&record, "kind", export_kind_of(document));
    export_append_as(document, "resolves", "of", &record);
    export_append_as(document, "part", "part", &record);
    append_date(document, dated ? "effective" : "ts", "date", &record);
    if (export_is_open(exporting, document))
        append_date(document, "expires", "expires", &record);
    if (strcmp(truce__field_text(&record, "kind"), "void") != 0)
        status = export_append_entries(exporting, document, &record);
    export_append_as(document, "meta", "meta", &record);
    if (!status)
        export_write_record(exporting, &record);
    bson_destroy(&record);
    return status;
}

/* Writes the records of a document of the ledger. Returns false, which ends the walk, after a
 * failure or at the end of the export. */
static bool export_take(const bson_t *document, void *arg)
{
    struct exporting *exporting = arg;
    const char *kind = truce__field_text(document, "kind"),
               *state = truce__field_text(document, "state");
    bson_iter_t iter, change;

    if (!strcmp(kind, "open") || !strcmp(kind, "rules")) {
        const uint8_t *data = NULL;
        uint32_t length = 0;
        bson_t first;

        if (bson_iter_init_find(&iter, document, "changes") && bson_iter_recurse(&iter, &change) &&
            bson_iter_next(&change))
            bson_iter_document(&change, &length, &data);
        return data && bson_init_static(&first, data, length) &&
               !export_fails(exporting, export_rules(exporting, kind, &first)) && !exporting->ended;
    }
    /* A transaction in any other state has no effect, and only another program can have written
     * it. */
    if (strcmp(state, "VALID") != 0 && strcmp(state, "PENDING") != 0 &&
        (strcmp(state, "VOID") != 0 || !*kind))
        return true;
    return !export_fails(exporting, export_transaction(exporting, document)) && !exporting->ended;
}

truce_status truce__ledger_records(truce_store *store, const char *collection, truce_ledger *ledger,
                                   const bson_t *after, ledger_record_function *function, void *arg,
                                   bson_t *reached, bson_error_t *error)
{
    struct exporting exporting = {.store = store,
                                  .collection = collection,
                                  .ledger = ledger,
                                  .function = function,
                                  .arg = arg,
                                  .currencies = BSON_INITIALIZER};
    truce_status status = truce__ledger_must_exist(ledger, error);

    if (!status)
        status = truce__ledger_walk_after(ledger, after, export_take, &exporting, reached, error);
    if (!status && exporting.status) {
        status = exporting.status;
        *error = exporting.error;
    }
    bson_destroy(&exporting.currencies);
    return status;
}

/* ---- truceLedgerExport ----------------------------------------------------------------------- */

struct export_given {
    const bson_t *after;
    int64_t limit;
};

static const struct operation_field export_fields[] = {
    {GIVEN(export_given, after, FIELD_ARRAY),
     "the field `after` of the preceding reply; absent: the beginning", .each = FIELD_DOCUMENT},
    {GIVEN(export_given, limit, FIELD_NUMBER),
     "the number of records after which the reply ends; absent: 1,000", 1, EXPORT_MAX},
    {{0}}};

/* Appends a record, and returns whether another one may follow. The records of a transaction are in
 * one reply, so its last ones may exceed the limit. */
static bool export_add_record(const bson_t *record, void *arg)
{
    struct reply_list *list = arg;
    char buffer[16];
    const char *key;

    bson_uint32_to_string(list->count++, &key, buffer, sizeof buffer);
    BSON_APPEND_DOCUMENT(&list->array, key, record);
    list->more = list->count >= list->limit || list->array.len > REPLY_LIST_BYTES;
    return !list->more;
}

static truce_status ledger_run_export(struct operation_call *call, const void *arg, bson_t *reply,
                                      bson_error_t *error)
{
    const struct export_given *given = arg;
    bson_t reached = BSON_INITIALIZER;
    struct reply_list list;
    struct handle *handle;
    truce_status status = truce__operation_ledger(call, false, &handle, error);

    if (status)
        return status;
    truce__reply_list_begin(&list, given->limit ? given->limit : 1000);
    status = truce__ledger_records(call->store, bson_iter_utf8(&call->target, NULL), handle->thing,
                                   given->after, export_add_record, &list, &reached, error);
    truce__operation_return(call, handle);
    if (!status && list.more && reached.len > REPLY_LIST_BYTES / 2)
        status = truce__fail(TRUCE_LIMIT, error,
                             "the position in the book exceeds %d MiB, because the ledger has too "
                             "many accounts: use `truce ledger export`",
                             REPLY_LIST_BYTES / 2 / (1024 * 1024));
    if (!status && list.more)
        BSON_APPEND_ARRAY(reply, "after", &reached);
    bson_destroy(&reached);
    return truce__reply_list_end(&list, status, "records", reply);
}

const struct operation_row truce__ledger_export_operation = {
    OPERATION("truceLedgerExport", ROLE_READ,
              "returns a book as records, in an order in which they can be posted again"),
    .target = "ledger",
    .value = "the collection of the ledger",
    .answer =
        "`records`: {currency, digits}, {open: ACCOUNT, currency, min, ...}, {rules: ACCOUNT, "
        "...}, and transactions {id, kind, of, part, date, expires, entries: [{account, amount, "
        "currency, type}], meta}; and `more`: continue with the reply's `after`. Each reply is of "
        "a snapshot, and a record of a currency may occur again. An error: 146 (limit reached) the "
        "ledger has too many accounts; use the CLI",
    .fields = export_fields,
    .size = sizeof(struct export_given),
    .run = ledger_run_export,
    .ways = OPERATION_REPEATABLE,
    .example = "{truceLedgerExport: 'bank', limit: 100}",
};

/* From the records of a file (book.h) to transactions: what is wrong with one is found here, before anything is booked. */
#include <string.h>

#include "base/field.h"
#include "bson/date.h"
#include "cli/ledger/ledger_import.h"

/* ---- fields --------------------------------------------------------------------------------- */

struct field {
    const char *name;
    bson_type_t type; /* EOD: any */
};

/* One that is not known may be a known one with a slip of the pen. */
static truce_status items_check_fields(const bson_t *record, const struct field *fields,
                                       const char *what, bson_error_t *error)
{
    bson_iter_t iter;

    (void)!bson_iter_init(&iter, record);
    while (bson_iter_next(&iter)) {
        const struct field *field = fields;

        while (field->name && strcmp(field->name, bson_iter_key(&iter)) != 0)
            field++;
        if (!field->name)
            return truce__fail(TRUCE_INVALID, error, "%s has no field `%.60s`", what,
                               bson_iter_key(&iter));
        if (field->type != BSON_TYPE_EOD && field->type != bson_iter_type(&iter))
            return truce__fail(TRUCE_INVALID, error, "`%s` is %s", field->name,
                               field->type == BSON_TYPE_BOOL    ? "true or false"
                               : field->type == BSON_TYPE_ARRAY ? "an array"
                               : field->type == BSON_TYPE_UTF8  ? "a text"
                                                                : "a document");
    }
    return TRUCE_OK;
}

static bool is_true(const bson_t *record, const char *name)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, record, name) && bson_iter_as_bool(&iter);
}

/* ---- names ---------------------------------------------------------------------------------- */

truce_status import_currency(struct importing *importing, const char *code,
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
                           "there is no currency %.40s (truce ledger currency, or --open)", code);
    if (status && status != TRUCE_NOT_FOUND)
        return status;
    *currency = import_add(&importing->currencies, code);
    (*currency)->opens = status == TRUCE_NOT_FOUND;
    (*currency)->digits = status ? 0 : digits;
    return TRUCE_OK;
}

truce_status import_account(struct importing *importing, const char *name,
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
                           "there is no account %.200s (truce ledger open, or --open)", name);
    if (status && status != TRUCE_NOT_FOUND)
        return status;
    *account = import_add(&importing->accounts, name);
    (*account)->opens = status == TRUCE_NOT_FOUND;
    (*account)->currency = status ? NULL : bson_strdup(balance.currency);
    return TRUCE_OK;
}

/* ---- rules of accounts ---------------------------------------------------------------------- */

static truce_status items_read_limit(const bson_t *record, const char *name, int digits, bool *has,
                                     int64_t *limit, bson_error_t *error)
{
    *has = bson_has_field(record, name);
    return *has ? truce_ledger_read(truce__field_text(record, name), digits, limit, error)
                : TRUCE_OK;
}

truce_status import_rules(struct importing *importing, const bson_t *record,
                          truce_ledger_account *account, bson_error_t *error)
{
    static const struct field fields[] = {
        {"open", BSON_TYPE_UTF8},       {"rules", BSON_TYPE_UTF8},  {"currency", BSON_TYPE_UTF8},
        {"min", BSON_TYPE_UTF8},        {"max", BSON_TYPE_UTF8},    {"debitOnly", BSON_TYPE_BOOL},
        {"creditOnly", BSON_TYPE_BOOL}, {"closed", BSON_TYPE_BOOL}, {NULL, BSON_TYPE_EOD}};
    bool opens = bson_has_field(record, "open");
    const char *name = truce__field_text(record, opens ? "open" : "rules"),
               *code = truce__field_text(record, "currency");
    struct import_name *known, *currency;
    truce_status status = items_check_fields(record, fields, "an account", error);

    if (!status && !opens)
        status = import_account(importing, name, &known, error);
    if (!status && !*code && !opens && known->currency)
        code = known->currency;
    if (!status)
        status = import_currency(importing, code, &currency, error);
    if (status)
        return status;
    *account = (truce_ledger_account){.account = name,
                                      .currency = currency->name,
                                      .debit_only = is_true(record, "debitOnly"),
                                      .credit_only = is_true(record, "creditOnly"),
                                      .closed = is_true(record, "closed")};
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

static truce_status currency_of(struct importing *importing, const bson_t *entry,
                                struct import_name **currency, bson_error_t *error)
{
    const char *name = truce__field_text(entry, "account"),
               *code = truce__field_text(entry, "currency");
    struct import_name *account;
    truce_status status;

    if (!*name)
        return truce__fail(TRUCE_INVALID, error, "an entry without an account");
    status = import_account(importing, name, &account, error);
    if (status)
        return status;
    if (!*code && !account->currency)
        return truce__fail(TRUCE_INVALID, error, "an amount of %.200s without a currency", name);
    if (*code && account->currency && strcmp(code, account->currency) != 0)
        return truce__fail(TRUCE_INVALID, error, "account %.200s is in %s, and not in %.40s", name,
                           account->currency, code);
    if (!account->currency)
        account->currency = bson_strdup(code);
    return import_currency(importing, account->currency, currency, error);
}

/* An amount that stands there. *of: what it is in. */
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
            "`amount` is a text with the currency's digits (\"12.50\"), and no number: "
            "doubles and decimals are not booked");
    made->account = truce__field_text(entry, "account");
    if (bson_has_field(entry, "type"))
        made->type = truce__field_text(entry, "type");
    if ((*of)->opens && items_digits_of(amount) > (*of)->digits)
        (*of)->digits = items_digits_of(amount) > 18 ? 18 : items_digits_of(amount);
    status = truce_ledger_read(amount, (*of)->digits, &made->value, error);
    if (!status && !made->value)
        status =
            truce__fail(TRUCE_INVALID, error, "an amount of 0 (account %.200s)", made->account);
    return status;
}

struct sum {
    struct import_name *currency;
    __int128 value;
    int digits; /* that `value` has */
};

/* To a common number of digits: that of a currency to be opened grows while the file is read. */
static void items_add_to(struct sum *sums, uint32_t *count, struct import_name *currency,
                         int64_t value)
{
    uint32_t at = 0;

    while (at < *count && sums[at].currency != currency)
        at++;
    if (at == *count)
        sums[(*count)++] = (struct sum){.currency = currency, .digits = currency->digits};
    for (; sums[at].digits < currency->digits; sums[at].digits++)
        sums[at].value *= 10;
    sums[at].value += value;
}

static truce_status balance(struct sum *sums, uint32_t count, truce_ledger_entry *left,
                            const struct import_name *left_in, bson_error_t *error)
{
    for (uint32_t i = 0; i < count; i++) {
        if (left && (!left_in || sums[i].currency == left_in)) {
            if (left->value)
                return truce__fail(TRUCE_INVALID, error,
                                   "an entry without an amount, and more than one currency");
            if (sums[i].value < -INT64_MAX || sums[i].value > INT64_MAX)
                return truce__fail(TRUCE_LIMIT, error,
                                   "the entry without an amount would leave 64 bits: the other "
                                   "amounts in %s are too large",
                                   sums[i].currency->name);
            left->value = -(int64_t)sums[i].value;
        } else if (sums[i].value) {
            char text[TRUCE_LEDGER_AMOUNT] = "more than 64 bits hold";

            if (sums[i].value >= INT64_MIN && sums[i].value <= INT64_MAX)
                truce_ledger_show((int64_t)sums[i].value, sums[i].digits, text);
            return truce__fail(TRUCE_INVALID, error,
                               "it does not balance: the amounts in %s sum to %s, and not to zero",
                               sums[i].currency->name, text);
        }
    }
    return TRUCE_OK;
}

static uint32_t items_count_entries(const bson_t *record)
{
    bson_iter_t iter, entries;
    uint32_t count = 0;

    if (bson_iter_init_find(&iter, record, "entries") && BSON_ITER_HOLDS_ARRAY(&iter) &&
        bson_iter_recurse(&iter, &entries)) {
        while (bson_iter_next(&entries))
            count++;
    }
    return count;
}

/* The one without an amount takes what the others leave; without a currency it is the account's, or theirs. */
static truce_status items_leave(struct importing *importing, struct import_item *item,
                                const bson_t *entry, struct sum *sums, uint32_t count,
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
        status = balance(sums, count, left, currency, error);
    if (!status && !left->value && --item->transaction.count == 0) /* nothing is left */
        status = truce__fail(TRUCE_INVALID, error, "a transaction without an amount");
    return status;
}

static truce_status take_entries(struct importing *importing, struct import_item *item,
                                 bson_iter_t *entries, struct sum *sums, bson_error_t *error)
{
    static const struct field fields[] = {{"account", BSON_TYPE_UTF8},
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
            return truce__fail(TRUCE_INVALID, error, "an entry is {account, amount, currency}");
        bson_iter_document(entries, &length, &data);
        bson_init_static(&entry, data, length);
        status = items_check_fields(&entry, fields, "an entry", error);
        if (status)
            return status;
        if (!bson_has_field(&entry, "amount")) {
            if (elided)
                return truce__fail(TRUCE_INVALID, error, "two entries without an amount");
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
        return status ? status : balance(sums, count, NULL, NULL, error);
    item->entries[transaction->count++].account = truce__field_text(&without, "account");
    return items_leave(importing, item, &without, sums, count, error);
}

static truce_status items_read_entries(struct importing *importing, struct import_item *item,
                                       bson_error_t *error)
{
    uint32_t count = items_count_entries(&item->record);
    bson_iter_t iter, entries;
    struct sum *sums;
    truce_status status;

    if (!count)
        return truce__fail(TRUCE_INVALID, error, "a transaction without entries");
    item->entries = bson_malloc0(count * sizeof *item->entries);
    item->transaction.entries = item->entries;
    sums = bson_malloc0(count * sizeof *sums);
    (void)!(bson_iter_init_find(&iter, &item->record, "entries") &&
            bson_iter_recurse(&iter, &entries));
    status = take_entries(importing, item, &entries, sums, error);
    bson_free(sums);
    return status;
}

/* ---- the rest of it ------------------------------------------------------------------------- */

static truce_status items_read_date(const bson_t *record, const char *name, int64_t *date_ms,
                                    bson_error_t *error)
{
    const char *text = truce__field_text(record, name);

    *date_ms = 0;
    if (!bson_has_field(record, name))
        return TRUCE_OK;
    if (truce__date_parse(text, strlen(text), NULL, date_ms, NULL))
        return truce__fail(TRUCE_INVALID, error, "`%s`: \"%.40s\" is no date (2024-01-31)", name,
                           text);
    if (!*date_ms)
        return truce__fail(TRUCE_INVALID, error,
                           "`%s` is the first moment of 1970, which stands for no date", name);
    return TRUCE_OK;
}

static truce_status items_read_kind(const bson_t *record, truce_ledger_kind *kind,
                                    bson_error_t *error)
{
    static const char *const kinds[] = {"transfer", "pending", "settle", "void", "reverse"};
    const char *name = truce__field_text(record, "kind");

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!strcmp(name, kinds[i]) || (!i && !bson_has_field(record, "kind"))) {
            *kind = (truce_ledger_kind)i;
            return TRUCE_OK;
        }
    }
    return truce__fail(TRUCE_INVALID, error, "\"%.40s\" is no kind of transaction", name);
}

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
    if (bson_iter_init_find(&iter, &item->record, "meta") && BSON_ITER_HOLDS_DOCUMENT(&iter)) {
        const uint8_t *data;
        uint32_t length;

        bson_iter_document(&iter, &length, &data);
        bson_init_static(&item->meta, data, length);
        item->transaction.meta = &item->meta;
    }
}

truce_status import_item(struct importing *importing, int64_t line, const bson_t *record,
                         struct import_item *item, bson_error_t *error)
{
    static const struct field fields[] = {
        {"id", BSON_TYPE_EOD},        {"kind", BSON_TYPE_UTF8},     {"of", BSON_TYPE_EOD},
        {"part", BSON_TYPE_BOOL},     {"date", BSON_TYPE_UTF8},     {"expires", BSON_TYPE_UTF8},
        {"entries", BSON_TYPE_ARRAY}, {"meta", BSON_TYPE_DOCUMENT}, {NULL, BSON_TYPE_EOD}};
    truce_ledger_transaction *transaction = &item->transaction;
    truce_status status;

    item->line = line;
    bson_copy_to(record, &item->record);
    point_at(item);
    if (!transaction->id)
        return truce__fail(TRUCE_INVALID, error,
                           "it has no `id`, and is neither {currency} nor {open} nor {rules}");
    status = items_check_fields(record, fields, "a transaction", error);
    if (!status)
        status = items_read_kind(record, &transaction->kind, error);
    if (!status)
        status = items_read_date(record, "date", &transaction->effective_ms, error);
    if (!status)
        status = items_read_date(record, "expires", &transaction->expires_ms, error);
    if (!status && transaction->kind == TRUCE_LEDGER_VOID)
        return TRUCE_OK;
    if (!status && (!transaction->of || is_true(record, "part")))
        status = items_read_entries(importing, item, error);
    return status;
}

void import_item_release(struct import_item *item)
{
    if (!item->line)
        return;
    bson_free(item->entries);
    bson_destroy(&item->record);
    *item = (struct import_item){0};
}

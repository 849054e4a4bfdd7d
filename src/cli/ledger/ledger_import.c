/*
 * truce ledger import: posts the records of a file (book.h) to a book.
 *
 * The file is read twice. The first pass checks all that needs no balance: the form, currencies,
 * accounts, amounts, sums. One wrong line refuses the whole file with its number and the reason,
 * and nothing is posted. The second pass posts many transactions at a time. A transaction that a
 * rule of an account forbids is reported and skipped. Each transaction has an id of its own, or one
 * made of its content. Importing the same file again therefore posts only what is missing.
 */
#include <inttypes.h>
#include <string.h>

#include "base/field.h"
#include "base/limits.h"
#include "bson/date.h"
#include "cli/book/book.h"
#include "cli/commands.h"
#include "cli/core/ndjson.h"
#include "cli/core/progress.h"
#include "cli/ledger/ledger.h"

/* ---- what accounts and currencies there are -------------------------------------------------- */

/* A name of the ledger, of the file, or (--open) one to be opened. */
struct import_name {
    char *name, *currency; /* `currency` is NULL for a currency. */
    int digits;            /* of a currency; if it is opened: the most that an amount has. */
    bool opens;
    int64_t changes, changed; /* of an account: how often the file has changed its rules so far. */
};

struct import_names {
    struct import_name **slots;
    uint32_t count, room;
};

/* ---- a transaction --------------------------------------------------------------------------- */

struct import_item {
    int64_t line;
    bson_t record, meta;
    bson_value_t id, of;
    truce_ledger_entry *entries;
    truce_ledger_transaction transaction;
};

struct importing {
    struct cli *cli;
    truce_ledger *ledger;
    struct book_source source;
    struct import_names accounts, currencies;
    bool opens;
    struct import_item *items;
    truce_ledger_transaction *transactions;
    truce_ledger_result *results;
    size_t count;
    int64_t records, posted, existed, refused;
    struct cli_progress shown;
};

/* Fills `item`, which is zeroed. Release frees it, even after an error. INVALID: the record is
 * wrong; the message says why. */
truce_status import_item(struct importing *importing, int64_t line, const bson_t *record,
                         struct import_item *item, bson_error_t *error);

/* ---- names ----------------------------------------------------------------------------------- */

/* Names of accounts and currencies in an import: open addressing over pointers, which stay
 * valid. */

static uint32_t names_hash_of(const char *name)
{
    uint32_t hash = 2166136261U;

    for (; *name; name++)
        hash = (hash ^ (uint8_t)*name) * 16777619U;
    return hash ^ hash >> 15;
}

static struct import_name **names_place(const struct import_names *names, const char *name)
{
    uint32_t at = names_hash_of(name) & (names->room - 1);

    while (names->slots[at] && strcmp(names->slots[at]->name, name) != 0)
        at = (at + 1) & (names->room - 1);
    return &names->slots[at];
}

/* Returns the name, or NULL. */
static struct import_name *import_find(const struct import_names *names, const char *name)
{
    return names->room ? *names_place(names, name) : NULL;
}

static void names_grow(struct import_names *names)
{
    struct import_names larger = {.count = names->count,
                                  .room = names->room ? 2 * names->room : 64};

    larger.slots = bson_malloc0(larger.room * sizeof *larger.slots);
    for (uint32_t i = 0; i < names->room; i++) {
        if (names->slots[i])
            *names_place(&larger, names->slots[i]->name) = names->slots[i];
    }
    bson_free(names->slots);
    *names = larger;
}

static struct import_name *import_add(struct import_names *names, const char *name)
{
    struct import_name **slot;

    if (2 * (names->count + 1) > names->room)
        names_grow(names);
    slot = names_place(names, name);
    if (!*slot) {
        *slot = bson_malloc0(sizeof **slot);
        (*slot)->name = bson_strdup(name);
        names->count++;
    }
    return *slot;
}

static void import_names_release(struct import_names *names)
{
    for (uint32_t i = 0; i < names->room; i++) {
        if (names->slots[i]) {
            bson_free(names->slots[i]->name);
            bson_free(names->slots[i]->currency);
            bson_free(names->slots[i]);
        }
    }
    bson_free(names->slots);
}

/* ---- records to transactions ----------------------------------------------------------------- */

/* Converts the records of a file (book.h) to transactions, and checks them before anything is
 * posted. */

/* ---- fields --------------------------------------------------------------------------------- */

struct field {
    const char *name;
    bson_type_t type; /* EOD allows any type */
};

/* Refuses unknown fields, because one may be a misspelt known one. */
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
            return truce__fail(TRUCE_INVALID, error, "%s: unknown field `%.60s`", what,
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

/* ---- names ---------------------------------------------------------------------------------- */

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
                           "there is no currency %.40s (truce ledger currency, or --open)", code);
    if (status && status != TRUCE_NOT_FOUND)
        return status;
    *currency = import_add(&importing->currencies, code);
    (*currency)->opens = status == TRUCE_NOT_FOUND;
    (*currency)->digits = status ? 0 : digits;
    return TRUCE_OK;
}

/* Finds the account. NOT_FOUND: neither the ledger nor the file has it. */
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

/* Reads {open: ...} or {rules: ...}. */
static truce_status import_rules(struct importing *importing, const bson_t *record,
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

static truce_status currency_of(struct importing *importing, const bson_t *entry,
                                struct import_name **currency, bson_error_t *error)
{
    const char *name = truce__field_text(entry, "account"),
               *code = truce__field_text(entry, "currency");
    struct import_name *account;
    truce_status status;

    if (!*name)
        return truce__fail(TRUCE_INVALID, error, "an entry has no account");
    status = import_account(importing, name, &account, error);
    if (status)
        return status;
    if (!*code && !account->currency)
        return truce__fail(TRUCE_INVALID, error, "an amount of %.200s has no currency", name);
    if (*code && account->currency && strcmp(code, account->currency) != 0)
        return truce__fail(TRUCE_INVALID, error, "account %.200s is in %s, not in %.40s", name,
                           account->currency, code);
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
    int digits; /* the number of digits of `value` */
};

/* Adds with a common number of digits. The digits of a currency that is opened grow while the file
 * is read. */
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
                                   "an entry without an amount needs a single currency");
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
                               "it does not balance: the amounts in %s sum to %s, not to zero",
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

/* Gives the entry without an amount the rest of the others. Its currency is the account's, or
 * theirs. */
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
        status = truce__fail(TRUCE_INVALID, error, "the transaction has no amount");
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
            return truce__fail(TRUCE_INVALID, error,
                               "an entry must be {account, amount, currency}");
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
        return truce__fail(TRUCE_INVALID, error, "the transaction has no entries");
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
        return truce__fail(TRUCE_INVALID, error,
                           "`%s`: invalid date \"%.40s\": expected 2024-01-31", name, text);
    if (!*date_ms)
        return truce__fail(TRUCE_INVALID, error,
                           "`%s` must not be 1970-01-01T00:00:00Z, which means \"no date\"", name);
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
    return truce__fail(TRUCE_INVALID, error, "\"%.40s\" is not a kind of transaction", name);
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
                           "the record has no `id`, `currency`, `open`, or `rules`");
    status = items_check_fields(record, fields, "a transaction", error);
    if (!status)
        status = items_read_kind(record, &transaction->kind, error);
    if (!status)
        status = items_read_date(record, "date", &transaction->effective_ms, error);
    if (!status)
        status = items_read_date(record, "expires", &transaction->expires_ms, error);
    if (!status && transaction->kind == TRUCE_LEDGER_VOID)
        return TRUCE_OK;
    if (!status && (!transaction->of || truce__field_true(record, "part")))
        status = items_read_entries(importing, item, error);
    return status;
}

static void import_item_release(struct import_item *item)
{
    if (!item->line)
        return;
    bson_free(item->entries);
    bson_destroy(&item->record);
    *item = (struct import_item){0};
}

/* ---- the import ------------------------------------------------------------------------------ */

#define BATCH LEDGER_BULK

/* ---- the first time ------------------------------------------------------------------------- */

static truce_status judge_currency(struct importing *importing, const bson_t *record,
                                   bson_error_t *error)
{
    const char *code = truce__field_text(record, "currency");
    int64_t digits = truce__field_number(record, "digits");
    struct import_name *known = import_find(&importing->currencies, code);
    int there;
    truce_status status = truce_ledger_digits(importing->ledger, code, &there, error);

    if (status && status != TRUCE_NOT_FOUND)
        return status;
    if (digits < 0 || digits > 18)
        return truce__fail(TRUCE_INVALID, error, "a currency must have 0 to 18 digits");
    if ((!status && there != digits) || (known && !known->opens && known->digits != digits))
        return truce__fail(TRUCE_INVALID, error, "currency %.40s has %d digits, not %d", code,
                           status ? known->digits : there, (int)digits);
    known = import_add(&importing->currencies, code);
    known->digits = (int)digits;
    known->opens = false;
    return TRUCE_OK;
}

static truce_status import_judge(void *arg, int64_t line, const bson_t *record, bson_error_t *error)
{
    struct importing *importing = arg;
    struct import_item item = {0};
    truce_ledger_account account;
    truce_status status;

    importing->records++;
    if (bson_has_field(record, "digits"))
        return judge_currency(importing, record, error);
    if (bson_has_field(record, "open") || bson_has_field(record, "rules"))
        return import_rules(importing, record, &account, error);
    status = import_item(importing, line, record, &item, error);
    import_item_release(&item);
    return status;
}

/* Opens what --open allows. The file's own currencies come first, because accounts need them. */
static truce_status open_missing(struct importing *importing, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; !status && i < importing->currencies.room; i++) {
        struct import_name *currency = importing->currencies.slots[i];

        if (currency)
            status =
                truce_ledger_currency(importing->ledger, currency->name, currency->digits, error);
    }
    for (uint32_t i = 0; !status && i < importing->accounts.room; i++) {
        struct import_name *account = importing->accounts.slots[i];

        if (account && account->opens && account->currency)
            status = truce_ledger_open(
                importing->ledger, NULL,
                &(truce_ledger_account){.account = account->name, .currency = account->currency},
                error);
    }
    return status;
}

/* ---- the second time ------------------------------------------------------------------------ */

static void import_refuse(struct importing *importing, int64_t line, const bson_error_t *error)
{
    bson_t document = BSON_INITIALIZER;

    importing->refused++;
    BSON_APPEND_INT64(&document, "line", line);
    BSON_APPEND_UTF8(&document, "reason", error->message);
    cli_progress_end(&importing->shown);
    cli_tell(importing->cli, &document, "line %" PRId64 ": %s", line, error->message);
    bson_destroy(&document);
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
    same = !truce_find_one(importing->cli->store, importing->cli->arguments[0], &filter, NULL,
                           &found, NULL);
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
        import_refuse(importing, item->line, &result->error);
    else if (result->exists)
        importing->existed++;
    else
        importing->posted++;
}

static truce_status ledger_import_flush(struct importing *importing, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < importing->count; i++)
        importing->transactions[i] = importing->items[i].transaction;
    if (importing->count)
        status = truce_ledger_post_many(importing->ledger, importing->transactions,
                                        importing->count, importing->results, error);
    for (size_t i = 0; i < importing->count; i++) {
        if (!status)
            take_result(importing, &importing->items[i], &importing->results[i]);
        import_item_release(&importing->items[i]);
    }
    importing->count = 0;
    return status;
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
    truce_status status = truce_count(importing->cli->store, importing->cli->arguments[0], filter,
                                      NULL, &account->changes, error);

    bson_destroy(filter);
    return status;
}

/* Sets *there if an earlier run opened the account, or changed its rules that often. */
static truce_status was_set(struct importing *importing, const bson_t *record, bool *there,
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

static truce_status import_set_rules(struct importing *importing, int64_t line,
                                     const bson_t *record, bson_error_t *error)
{
    truce_ledger_account account;
    truce_status status = ledger_import_flush(importing, error);
    bool there = false;

    if (!status)
        status = was_set(importing, record, &there, error);
    if (!status && there)
        return TRUCE_OK;
    if (!status)
        status = import_rules(importing, record, &account, error);
    if (!status)
        status = bson_has_field(record, "open")
                     ? truce_ledger_open(importing->ledger, NULL, &account, error)
                     : truce_ledger_rules(importing->ledger, NULL, &account, error);
    if (!is_answer(status))
        return status;
    import_refuse(importing, line, error);
    return TRUCE_OK;
}

static truce_status book(void *arg, int64_t line, const bson_t *record, bson_error_t *error)
{
    struct importing *importing = arg;
    truce_status status;

    cli_progress(&importing->shown, importing->posted + importing->existed, importing->records);
    if (bson_has_field(record, "digits"))
        return truce_ledger_currency(importing->ledger, truce__field_text(record, "currency"),
                                     (int)truce__field_number(record, "digits"), error);
    if (bson_has_field(record, "open") || bson_has_field(record, "rules"))
        return import_set_rules(importing, line, record, error);
    status = import_item(importing, line, record, &importing->items[importing->count], error);
    if (!status && ++importing->count == BATCH)
        status = ledger_import_flush(importing, error);
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static int import_wrong(const struct importing *importing, truce_status status,
                        const bson_error_t *error)
{
    char line[40];

    snprintf(line, sizeof line, "line %" PRId64, importing->source.line);
    return cli_error(importing->cli, line, status, error);
}

static int ledger_import_finish(const struct importing *importing)
{
    bson_t answer = BSON_INITIALIZER;

    BSON_APPEND_INT64(&answer, "posted", importing->posted);
    BSON_APPEND_INT64(&answer, "existed", importing->existed);
    BSON_APPEND_INT64(&answer, "refused", importing->refused);
    cli_answer(importing->cli, &answer, "posted %" PRId64 ", existed %" PRId64 ", refused %" PRId64,
               importing->posted, importing->existed, importing->refused);
    bson_destroy(&answer);
    return importing->refused ? CLI_NO : CLI_DONE;
}

static int ledger_import_import_all(struct importing *importing)
{
    bson_error_t error;
    truce_status status;

    importing->source.arg = importing;
    importing->source.function = import_judge;
    status = cli_book_read(&importing->source, &error);
    if (status)
        return import_wrong(importing, status, &error);
    if (cli_flag(importing->cli, "dry-run")) {
        cli_answer(importing->cli, &(bson_t)BSON_INITIALIZER, "%" PRId64 " records, nothing wrong",
                   importing->records);
        return CLI_DONE;
    }
    status = open_missing(importing, &error);
    if (status)
        return cli_error(importing->cli, NULL, status, &error);
    cli_progress_begin(importing->cli, &importing->shown, "booked");
    importing->source.function = book;
    status = cli_book_read(&importing->source, &error);
    if (!status)
        status = ledger_import_flush(importing, &error);
    cli_progress_end(&importing->shown);
    return status ? import_wrong(importing, status, &error) : ledger_import_finish(importing);
}

static int import_read_rules(struct cli *cli, bson_t *rules, bool *given)
{
    const char *path = cli_text(cli, "rules");
    bson_error_t error;
    char *text;
    truce_status status;
    int code;

    bson_init(rules);
    *given = path;
    if (!path)
        return CLI_DONE;
    status = cli_text_file(path, &text, &error);
    if (status)
        return cli_error(cli, "--rules", status, &error);
    bson_destroy(rules);
    code = cli_document(cli, text, "--rules", rules) ? CLI_DONE : CLI_USAGE;
    bson_free(text);
    return code;
}

static int import_text(struct importing *importing, const char *path)
{
    bson_error_t error;
    char *text;
    truce_status status = cli_text_file(path, &text, &error);
    int code;

    if (status)
        return cli_error(importing->cli, NULL, status == TRUCE_IO ? TRUCE_INVALID : status, &error);
    /* some programs write a byte order mark */
    importing->source.text = strncmp(text, "\xef\xbb\xbf", 3) ? text : text + 3;
    code = cli_store_open(importing->cli, CLI_STORE_CHANGE, &importing->cli->store);
    if (!code) {
        importing->ledger = cli_ledger_new(importing->cli);
        code = ledger_import_import_all(importing);
        truce_ledger_free(importing->ledger);
    }
    bson_free(text);
    return code;
}

static int ledger_import_run(struct cli *cli)
{
    const char *path = cli->arguments[1] ? cli->arguments[1] : "-", *form = cli_text(cli, "form");
    struct importing importing = {.cli = cli, .opens = cli_flag(cli, "open")};
    bool by_rules;
    bson_t rules;
    int code;

    if (!cli_book_form(form, path, &importing.source.form))
        return cli_usage(cli, "--form is ndjson, csv, hledger or beancount%s",
                         form ? "" : ", where the name of the file does not say it");
    if (cli_text(cli, "rules") && importing.source.form != BOOK_CSV)
        return cli_usage(cli, "--rules needs the form csv");
    code = import_read_rules(cli, &rules, &by_rules);
    importing.source.rules = by_rules ? &rules : NULL;
    importing.items = bson_malloc0((BATCH + 1) * sizeof *importing.items);
    importing.transactions = bson_malloc0(BATCH * sizeof *importing.transactions);
    importing.results = bson_malloc0(BATCH * sizeof *importing.results);
    if (!code)
        code = import_text(&importing, path);
    for (size_t i = 0; i <= importing.count; i++)
        import_item_release(&importing.items[i]);
    import_names_release(&importing.accounts);
    import_names_release(&importing.currencies);
    bson_free(importing.items);
    bson_free(importing.transactions);
    bson_free(importing.results);
    bson_destroy(&rules);
    return code;
}

static const struct cli_command cli_ledger_import = {
    .noun = "ledger",
    .verb = "import",
    .arguments = "LEDGER [FILE]",
    .summary = "import transactions from a file",
    .help =
        "The name of the file (.ndjson, .csv, .journal, .beancount) or --form selects the form.\n"
        "A wrong line (a syntax error, too many digits, an unbalanced transaction, an unknown\n"
        "account or currency) refuses the whole file, and nothing is posted. A transaction that a\n"
        "rule of an account forbids is printed and skipped (exit code 1). Importing the same file\n"
        "again posts what is missing. A date becomes the value date.\n"
        "\n"
        "--rules FILE describes how to read another CSV file:\n"
        "  {account: 'assets:bank', date: '$Booked', dateFormat: '%d.%m.%Y', amount: '$Amount',\n"
        "   decimal: ',', separator: ';', currency: 'EUR', id: '$Reference', description: '$Text',\n"
        "   skip: {Status: 'pending'}, otherwise: 'expenses:unknown',\n"
        "   other: [{if: {Text: {$regex: 'RENT'}}, account: 'expenses:rent'}]}",
    .example =
        "truce ledger currency book EUR 2\n"
        "printf '%s\\n' '2024-01-31 rent' '    expenses:rent  500.00 EUR' '    assets:bank' \\\n"
        "    > january.journal\n"
        "truce ledger import book january.journal --open",
    .options =
        (const struct cli_option[]){
            {"form", 0, "FORM", "ndjson, csv, hledger, beancount", false},
            {"open", 0, NULL, "open missing accounts and currencies", false},
            {"rules", 0, "FILE", "how to read the lines of a CSV file", false},
            {"dry-run", 'n', NULL, "only check the file", false},
            {0}},
    .store = CLI_STORE_NONE, /* the store is opened after the file */
    .run = ledger_import_run,
};

cli_command_list cli_ledger_import_commands = {&cli_ledger_import, NULL};

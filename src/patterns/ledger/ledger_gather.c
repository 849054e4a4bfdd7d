/* Gathers the changes of a transaction: from its entries, or from the transaction that it settles,
 * voids, or reverses. */
#include <inttypes.h>
#include <string.h>

#include "base/time_check.h"
#include "bson/date.h"
#include "commit/commit.h"
#include "patterns/ledger/ledger_draft.h"
#include "query/input_check.h"

static struct planned *ledger_gather_add(struct draft *draft)
{
    struct planned *planned = &draft->planned[draft->count++];

    *planned = (struct planned){0};
    return planned;
}

/* Makes one change for each entry of the request. */
static truce_status gather_entries(struct draft *draft, bson_error_t *error)
{
    const truce_ledger_transaction *given = draft->request->transaction;

    for (uint32_t i = 0; i < given->count; i++) {
        struct planned *planned = ledger_gather_add(draft);

        if (!given->entries[i].value)
            return truce__fail(
                TRUCE_INVALID, error,
                "the amount of account \"%s\" is 0: an entry must change the balance",
                given->entries[i].account ? given->entries[i].account : "");
        planned->change.account = given->entries[i].account;
        planned->change.value = given->entries[i].value;
        planned->change.type = given->entries[i].type;
    }
    return TRUCE_OK;
}

const truce_ledger_entry *truce__ledger_entry(const truce_ledger_transaction *given,
                                              const char *account)
{
    for (uint32_t i = 0; i < given->count; i++) {
        if (given->entries[i].account && !strcmp(given->entries[i].account, account))
            return &given->entries[i];
    }
    return NULL;
}

static struct planned *gather_copy_of(struct draft *draft, const struct ledger_change *change)
{
    struct planned *planned = ledger_gather_add(draft);

    planned->owned = bson_strdup(change->account);
    planned->change.account = planned->owned;
    return planned;
}

static bool gather_is_part(int64_t value, int64_t whole)
{
    return whole < 0 ? value < 0 && value >= whole : value > 0 && value <= whole;
}

/* The number of bytes of an id in a message, with the end of the string. */
#define GATHER_ID_MAX 200

/* Writes the id of the transaction that the request settles, voids, or reverses. Returns `text`. */
static const char *gather_show_id(const struct draft *draft, char text[GATHER_ID_MAX])
{
    bson_t shown = BSON_INITIALIZER;

    BSON_APPEND_VALUE(&shown, "_id", draft->of);
    truce__value_show(truce__value_field(truce__value_document(&shown), "_id", 3), text,
                      GATHER_ID_MAX);
    bson_destroy(&shown);
    return text;
}

static truce_status gather_refuse_damaged(const struct draft *draft, bson_error_t *error)
{
    char id[GATHER_ID_MAX];

    return truce__fail(TRUCE_CORRUPT, error, "transaction %s is damaged: run truce ledger verify",
                       gather_show_id(draft, id));
}

/* Refuses an entry of a part: the transaction has no entry for the account, or the amount exceeds
 * that of the transaction or has the opposite sign. */
static truce_status gather_refuse_part(const struct draft *draft, const truce_ledger_entry *entry,
                                       bson_error_t *error)
{
    char amount[TRUCE_LEDGER_AMOUNT], id[GATHER_ID_MAX];
    struct ledger_change change;
    int digits = 0;

    if (!entry->account || !truce__ledger_change_of(&draft->settled, entry->account, 0, &change))
        return truce__fail(TRUCE_INVALID, error,
                           "account \"%s\" has no entry in transaction %s: a part of a transaction "
                           "cannot add an account",
                           entry->account ? entry->account : "", gather_show_id(draft, id));
    if (truce_ledger_digits(draft->plan->ledger, change.currency, &digits, NULL))
        digits = 0;
    return truce__fail(
        TRUCE_INVALID, error,
        "the entry of %s %s for account \"%s\" exceeds the amount of that account in the "
        "transaction, or has the opposite sign",
        truce_ledger_show(entry->value, digits, amount), change.currency, entry->account);
}

/* Checks that each given entry is of an account of the transaction, and each account occurs
 * once. */
static truce_status gather_check_parts(const struct draft *draft, bson_error_t *error)
{
    const truce_ledger_transaction *given = draft->request->transaction;
    struct ledger_change change;

    for (uint32_t i = 0; i < given->count; i++) {
        const truce_ledger_entry *entry = &given->entries[i];

        if (!entry->account ||
            !truce__ledger_change_of(&draft->settled, entry->account, 0, &change))
            return gather_refuse_part(draft, entry, error);
        if (truce__ledger_entry(given, entry->account) != entry)
            return truce__fail(TRUCE_INVALID, error, "account \"%s\" occurs twice in the entries",
                               entry->account);
    }
    return TRUCE_OK;
}

/* Makes the changes of SETTLE, VOID, and an expiry: one for each pending change. */
static truce_status gather_released(struct draft *draft, bool settles, bson_error_t *error)
{
    const truce_ledger_transaction *given = draft->request->transaction;
    struct ledger_change change;
    char id[GATHER_ID_MAX];

    if (!truce__ledger_is(&draft->settled, "state", "PENDING"))
        return truce__fail(
            TRUCE_INVALID, error,
            "transaction %s is not pending: only a pending transaction can be settled or voided",
            gather_show_id(draft, id));
    for (struct fields at = truce__ledger_changes(&draft->settled); truce__fields_next(&at);) {
        const truce_ledger_entry *entry = NULL;
        struct planned *planned;

        if (!truce__ledger_change(at.value, &change))
            return gather_refuse_damaged(draft, error);
        planned = gather_copy_of(draft, &change);
        planned->change.release = change.value;
        planned->change.type = settles ? NULL : draft->kind;
        if (settles && draft->part)
            entry = truce__ledger_entry(given, change.account);
        if (settles && !draft->part)
            planned->change.value = change.value;
        else if (entry && !gather_is_part(entry->value, change.value))
            return gather_refuse_part(draft, entry, error);
        else if (entry)
            planned->change.value = entry->value;
        if (entry)
            planned->change.type = entry->type;
    }
    return TRUCE_OK;
}

static truce_status gather_total(const bson_t *document, const char *account, int64_t *total,
                                 bson_error_t *error)
{
    struct ledger_change change;

    *total = 0;
    for (struct fields at = truce__ledger_changes(document); truce__fields_next(&at);) {
        if (truce__ledger_change(at.value, &change) && !strcmp(change.account, account) &&
            __builtin_add_overflow(*total, change.value, total))
            return truce__fail(TRUCE_LIMIT, error, "the sum of account \"%s\" exceeds 64 bits",
                               account);
    }
    return TRUCE_OK;
}

static truce_status gather_part_reversed(struct draft *draft, bson_error_t *error)
{
    const truce_ledger_transaction *given = draft->request->transaction;
    truce_status status = gather_entries(draft, error);

    for (uint32_t i = 0; !status && i < given->count; i++) {
        int64_t total;

        status = gather_total(&draft->settled, given->entries[i].account, &total, error);
        if (!status && (total == INT64_MIN || !gather_is_part(given->entries[i].value, -total)))
            status = gather_refuse_part(draft, &given->entries[i], error);
    }
    return status;
}

/* Reverses the order of the changes. Several changes of one account are undone from the last to the
 * first, so each leaves a balance that existed. */
static void gather_reverse_order(struct draft *draft)
{
    for (uint32_t i = 0; i + i + 1 < draft->count; i++) {
        struct planned one = draft->planned[i];

        draft->planned[i] = draft->planned[draft->count - 1 - i];
        draft->planned[draft->count - 1 - i] = one;
    }
}

static bool gather_has_account_twice(const struct draft *draft)
{
    for (uint32_t i = 0; i < draft->count; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (!strcmp(draft->planned[i].change.account, draft->planned[j].change.account))
                return true;
        }
    }
    return false;
}

/* Makes the changes of a REVERSE: the negated values of the transaction, in reverse order if an
 * account occurs twice. */
static truce_status gather_reversed(struct draft *draft, bson_error_t *error)
{
    struct ledger_change change;
    char id[GATHER_ID_MAX];

    if (!truce__ledger_is(&draft->settled, "state", "VALID") ||
        truce__ledger_is(&draft->settled, "kind", "open") ||
        truce__ledger_is(&draft->settled, "kind", "rules"))
        return truce__fail(TRUCE_INVALID, error,
                           "transaction %s is not posted: only posted transactions can be reversed",
                           gather_show_id(draft, id));
    if (draft->part)
        return gather_part_reversed(draft, error);
    for (struct fields at = truce__ledger_changes(&draft->settled); truce__fields_next(&at);) {
        struct planned *planned;

        if (!truce__ledger_change(at.value, &change))
            return gather_refuse_damaged(draft, error);
        if (!change.value)
            continue;
        planned = gather_copy_of(draft, &change);
        if (__builtin_sub_overflow((int64_t)0, change.value, &planned->change.value))
            return truce__fail(TRUCE_LIMIT, error, "the reversed amount exceeds 64 bits");
    }
    if (gather_has_account_twice(draft))
        gather_reverse_order(draft);
    return TRUCE_OK;
}

/* Reads the transaction that the request settles, voids, or reverses. */
static truce_status gather_load_settled(struct draft *draft, bson_error_t *error)
{
    struct ledger_plan *plan = draft->plan;
    truce_status status;
    char id[GATHER_ID_MAX];

    bson_destroy(&draft->settled);
    if (plan->commit)
        status = truce_commit_read(plan->commit, plan->ledger->collection, draft->of,
                                   &draft->settled, error);
    else
        status = truce__ledger_transaction(&plan->reader, draft->of, &draft->settled, error);
    if (status == TRUCE_NOT_FOUND)
        status =
            truce__fail(status, error, "no transaction has the id %s", gather_show_id(draft, id));
    return status;
}

static truce_status gather_check_time(const struct draft *draft, bson_error_t *error)
{
    int64_t expires_ms = truce__ledger_date(&draft->settled, "expires");
    char text[DATE_TEXT_MAX];

    return expires_ms && expires_ms <= draft->plan->now_ms
               ? truce__fail(TRUCE_EXPIRED, error,
                             "the pending transaction expired at %s, and its amounts are available "
                             "again",
                             truce__date_show(expires_ms, text))
               : TRUCE_OK;
}

/* Refuses a new pending transaction that has already expired, because it would reserve nothing. A
 * repetition of a stored one is found by its id, even if the plan refuses it. */
static truce_status gather_check_expiry(const struct draft *draft, bson_error_t *error)
{
    int64_t expires_ms = draft->request->transaction->expires_ms, now_ms = draft->plan->now_ms;
    char expires[DATE_TEXT_MAX], now[DATE_TEXT_MAX];

    if (!expires_ms || expires_ms > now_ms || draft->request->history)
        return TRUCE_OK;
    return truce__fail(TRUCE_EXPIRED, error,
                       "the pending transaction would reserve nothing: it expires at %s, and it is "
                       "%s on the computer that posts it",
                       truce__date_show(expires_ms, expires), truce__date_show(now_ms, now));
}

/* Makes the changes of a request that settles, voids, or reverses a transaction. */
static truce_status gather_of(struct draft *draft, bson_error_t *error)
{
    truce_status status = gather_load_settled(draft, error);
    uint32_t count = draft->part ? draft->request->transaction->count : 0;

    for (struct fields at = truce__ledger_changes(&draft->settled); truce__fields_next(&at);)
        count++;
    draft->planned = bson_malloc0((count + 1) * sizeof *draft->planned);
    if (!status && draft->part)
        status = gather_check_parts(draft, error);
    if (status)
        return status;
    if (!strcmp(draft->kind, "reverse"))
        return gather_reversed(draft, error);
    status = gather_released(draft, !strcmp(draft->kind, "settle"), error);
    return status || strcmp(draft->kind, "settle") ? status : gather_check_time(draft, error);
}

static truce_status gather_rules(struct draft *draft, bson_error_t *error)
{
    struct planned *planned;

    draft->planned = bson_malloc0(sizeof *draft->planned);
    draft->inner = true;
    planned = ledger_gather_add(draft);
    planned->change.account = draft->request->account;
    planned->change.type = draft->kind;
    planned->change.sets = true;
    bson_init(&planned->change.set); /* The rules are appended when the account is known. */
    (void)error;
    return TRUCE_OK;
}

truce_status truce__ledger_check_given(const truce_ledger_transaction *given, bson_error_t *error)
{
    bool entries = given->kind == TRUCE_LEDGER_TRANSFER || given->kind == TRUCE_LEDGER_PENDING;
    truce_status status;

    if ((unsigned)given->kind > TRUCE_LEDGER_REVERSE)
        return truce__fail(
            TRUCE_INVALID, error,
            "unknown kind %d of a transaction: expected a value of truce_ledger_kind",
            (int)given->kind);
    if (given->count && !given->entries)
        return truce__fail(TRUCE_INVALID, error,
                           "transaction.entries is NULL, but transaction.count is %u",
                           given->count);
    if (!given->id || given->id->value_type == BSON_TYPE_EOD ||
        given->id->value_type == BSON_TYPE_ARRAY || given->id->value_type == BSON_TYPE_REGEX ||
        given->id->value_type == BSON_TYPE_UNDEFINED)
        return truce__fail(
            TRUCE_INVALID, error,
            "the transaction needs an id of any type except array, regular expression, "
            "and undefined");
    /* A program passes an empty id if it did not set its variable. Different transactions would
     * then have the same id. */
    if (given->id->value_type == BSON_TYPE_UTF8 && !given->id->value.v_utf8.len)
        return truce__fail(
            TRUCE_INVALID, error,
            "the id of the transaction is an empty string: set an id of your own, the same in "
            "every retry");
    status = truce__check_value(given->id, "id", error);
    if (!status && given->of)
        status = truce__check_value(given->of, "of", error);
    if (status)
        return status;
    if (entries && !given->count)
        return truce__fail(
            TRUCE_INVALID, error,
            "the transaction has no entries: expected entries that sum to zero in each currency");
    if (given->count > LEDGER_ENTRIES_MAX)
        return truce__fail(TRUCE_LIMIT, error,
                           "the transaction has %u entries, and the maximum is %d", given->count,
                           LEDGER_ENTRIES_MAX);
    if (entries == (given->of != NULL))
        return truce__fail(
            TRUCE_INVALID, error, "%s",
            entries ? "`of` is allowed only for settling, voiding, and reversing a transaction"
                    : "`of` is missing: the transaction to settle, void, or reverse");
    if (given->kind == TRUCE_LEDGER_VOID && given->count)
        return truce__fail(TRUCE_INVALID, error,
                           "a pending transaction is always voided as a whole: omit the entries");
    if (given->expires_ms && given->kind != TRUCE_LEDGER_PENDING)
        return truce__fail(TRUCE_INVALID, error, "only a pending transaction can expire");
    if ((given->expires_ms && truce__time_check("expires_ms", given->expires_ms, error)) ||
        (given->effective_ms > 0 && truce__time_check("effective_ms", given->effective_ms, error)))
        return TRUCE_INVALID;
    return given->meta ? truce__document_check(given->meta, "meta", error) : TRUCE_OK;
}

truce_status truce__ledger_gather(struct draft *draft, bson_error_t *error)
{
    static const struct {
        const char *kind, *state;
        bool counts, pending;
    } kinds[] = {{"transfer", "VALID", true, false},
                 {"pending", "PENDING", false, true},
                 {"settle", "VALID", true, false},
                 {"void", "VOID", false, false},
                 {"reverse", "VALID", true, false}};
    const truce_ledger_transaction *given = draft->request->transaction;
    truce_status status;

    draft->state = "VALID";
    switch (draft->request->verb) {
    case LEDGER_OPEN:
        draft->kind = "open";
        return gather_rules(draft, error);
    case LEDGER_RULES:
        draft->kind = "rules";
        return gather_rules(draft, error);
    case LEDGER_EXPIRE:
        draft->kind = "expire";
        draft->state = "VOID";
        draft->of = draft->request->of;
        return gather_of(draft, error);
    case LEDGER_POST:
        break;
    }
    draft->kind = kinds[given->kind].kind;
    draft->state = kinds[given->kind].state;
    draft->counts = kinds[given->kind].counts;
    draft->pending = kinds[given->kind].pending;
    draft->of = given->of;
    draft->part = given->of && given->count;
    if (given->of)
        return gather_of(draft, error);
    draft->planned = bson_malloc0(given->count * sizeof *draft->planned);
    status = gather_entries(draft, error);
    return status ? status : gather_check_expiry(draft, error);
}

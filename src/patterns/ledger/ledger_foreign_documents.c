/*
 * Documents that other programs insert, as the description of the pattern says: UNCOMMITTED, with
 * numbers of their own, and without balances. Each is committed, or it is refused and reported.
 * None stays before the next number of an account, so none can block one.
 *
 *     UNCOMMITTED --(its shape and the rules of its accounts allow it)--> COMMITTED
 *         |           the change gets the account's next number, its balance, and its hash
 *         |
 *         +--------(otherwise)--> REFUSED
 *                     {proc: "REFUSED", refused: {reason, at, changes, ...},
 *                      changes: [{account: {refused: _id}, seqId: 0}]}
 *
 * A REFUSED document keeps its content in `refused` and releases its numbers. Its `changes` have a
 * key that no other document has, because the index over them is unique. The check reports the
 * document until it is corrected (proc UNCOMMITTED and `changes` again) or deleted.
 *
 * Invariants:
 *
 *  LF1. A document is imported only if no other uncommitted document has a smaller number on one
 *       of its accounts.
 *  LF2. Its changes get the next numbers of their accounts. This closes skipped numbers: committed
 *       numbers have no gaps (LG1 of ledger.c). If a post takes that number first, the unique index
 *       refuses the write, and the document is examined again.
 *  LF3. The write compares every field from which it was made, so it never overwrites a concurrent
 *       change.
 *  LF4. The booking time is the document's own time, moved into the range from the booking time of
 *       the entries before it to now (LG10). The original of a moved time is kept as the value date
 *       (`effective`).
 *  LF5. A document whose changes have a hash was written by truce. If it is not COMMITTED, it is
 *       damaged, and the verification reports it.
 *
 * Documents that wait for each other (numbers from counters) form a cycle. The waiting document
 * with the greatest _id then moves to the end: it gets numbers after the greatest of each of its
 * accounts. If this is not enough, the document with the next smaller _id follows. Each moves at
 * most once, so this ends.
 *
 * A crash between two of these writes leaves each document in one of the states above.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/field.h"
#include "bson/number.h"
#include "commit/commit.h"
#include "patterns/ledger/ledger_draft.h"

enum outcome { FOREIGN_DONE, FOREIGN_WAITS, FOREIGN_STUCK, FOREIGN_RACED };

struct foreign {
    struct ledger_reader *reader;
    struct ledger_takeup *call;
    struct ledger_plan plan;
    /* The documents that are not handled yet, or that wait for other ones. A handled one is NULL.
     * Owned. */
    struct ledger_documents documents;
    /* The last document that was moved to the end of its accounts, or NULL. Owned. */
    bson_t *moved;
};

static struct value foreign_id(const bson_t *document)
{
    return truce__value_field(truce__value_document(document), "_id", 3);
}

static bool foreign_is_field(const bson_t *document, const char *name)
{
    return truce__value_field(truce__value_document(document), name, strlen(name)).type !=
           VALUE_MISSING;
}

/* ---- writes ---------------------------------------------------------------------------------- */

/* Appends a filter of the whole document (LF3). A filter cannot name every field: `a.b` is a path,
 * `$a` is an operator, and no value equals undefined. */
static void filter_exactly(const bson_t *document, bson_t *filter)
{
    bson_iter_t iter;
    bson_t equals;

    (void)!bson_iter_init(&iter, document);
    while (bson_iter_next(&iter)) {
        const char *key = bson_iter_key(&iter);

        if (!strcmp(key, "_id"))
            BSON_APPEND_VALUE(filter, key, bson_iter_value(&iter));
        if (!strcmp(key, "_id") || !*key || *key == '$' || strchr(key, '.') ||
            !strcmp(key, "_intent") || bson_iter_type(&iter) == BSON_TYPE_UNDEFINED)
            continue;
        bson_append_document_begin(filter, key, -1, &equals);
        BSON_APPEND_VALUE(&equals, "$eq", bson_iter_value(&iter));
        bson_append_document_end(filter, &equals);
    }
    truce__intent_append_absent(filter);
}

/* Writes a document if the store still has it as it was read. Sets *outcome to FOREIGN_RACED if the
 * document changed or one of its numbers was taken. */
static truce_status write_exactly(struct foreign *run, const bson_t *document, const bson_t *update,
                                  enum outcome *outcome, bson_error_t *error)
{
    const truce_ledger *ledger = run->reader->ledger;
    bson_t filter = BSON_INITIALIZER;
    truce_write_result result = {0};
    truce_status status;

    filter_exactly(document, &filter);
    status = truce_update(ledger->store, ledger->collection, &filter, update, NULL, &result, error);
    *outcome = !status && result.matched ? FOREIGN_DONE : FOREIGN_RACED;
    truce_write_result_release(&result);
    bson_destroy(&filter);
    if (*outcome == FOREIGN_RACED)
        truce__ledger_table_clear(&run->plan.book);
    return status == TRUCE_DUPLICATE || truce__repeatable(status) ? TRUCE_OK : status;
}

/* Appends the fields of a refused document. Its changes and references move to `refused`, so that
 * they no longer block numbers or unique values. */
static void foreign_append_refused(const bson_t *document, const char *reason, bson_t *set)
{
    static const char *const moved[] = {"changes", "resolves", "opens", "open"};
    bson_t refused, changes, one, account;
    bson_iter_t iter;

    BSON_APPEND_UTF8(set, "proc", "REFUSED");
    bson_append_document_begin(set, "refused", -1, &refused);
    BSON_APPEND_UTF8(&refused, "reason", reason);
    BSON_APPEND_DATE_TIME(&refused, "at", truce__clock_wall_ms());
    for (size_t i = 0; i < sizeof moved / sizeof *moved; i++) {
        if (bson_iter_init_find(&iter, document, moved[i]))
            BSON_APPEND_VALUE(&refused, moved[i], bson_iter_value(&iter));
    }
    bson_append_document_end(set, &refused);
    bson_append_array_begin(set, "changes", -1, &changes);
    bson_append_document_begin(&changes, "0", 1, &one);
    bson_append_document_begin(&one, "account", -1, &account);
    (void)!bson_iter_init_find(&iter, document, "_id");
    BSON_APPEND_VALUE(&account, "refused", bson_iter_value(&iter));
    bson_append_document_end(&one, &account);
    BSON_APPEND_INT64(&one, "seqId", 0);
    bson_append_document_end(&changes, &one);
    bson_append_array_end(set, &changes);
}

/* Marks a document of another program as REFUSED, if it has not changed, and reports it. */
static truce_status foreign_refuse(struct foreign *run, const bson_t *document,
                                   const bson_error_t *why, enum outcome *outcome,
                                   bson_error_t *error)
{
    bson_t update = BSON_INITIALIZER, inner;
    truce_status status;

    bson_append_document_begin(&update, "$set", 4, &inner);
    foreign_append_refused(document, why->message, &inner);
    bson_append_document_end(&update, &inner);
    bson_append_document_begin(&update, "$unset", 6, &inner);
    BSON_APPEND_INT32(&inner, "resolves", 1);
    BSON_APPEND_INT32(&inner, "opens", 1);
    BSON_APPEND_INT32(&inner, "open", 1);
    bson_append_document_end(&update, &inner);
    status = write_exactly(run, document, &update, outcome, error);
    bson_destroy(&update);
    if (!status && *outcome == FOREIGN_DONE) {
        bson_value_t id = truce__ledger_value(document, "_id");

        run->call->refusals++;
        if (run->call->refused)
            run->call->refused(&id, why, run->call->arg);
    }
    return status;
}

/* ---- the shape of a document ----------------------------------------------------------------- */

/* Checks one change of a document of another program. */
static truce_status check_change(struct value value, uint32_t index, bson_error_t *error)
{
    struct ledger_change change;
    struct value currency;
    char text[200];
    int64_t number;

    if (value.type != BSON_TYPE_DOCUMENT)
        return truce__fail(TRUCE_INVALID, error, "changes.%u is %s: a change is a document", index,
                           truce__value_show(value, text, sizeof text));
    if (!truce__ledger_change(value, &change)) {
        static const char *const names[] = {"account", "value", "seqId"},
                                 *const expected[] = {
                                     "the account's name, a string",
                                     "a whole number of the currency's smallest unit",
                                     "a whole number above 0"};
        int i = !change.account ? 0 : 1;
        struct value field;

        field = truce__value_field(value, "value", 5);
        if (i && truce__value_is_number(field) && truce__number_to_int64(field, &number))
            i = 2;
        field = truce__value_field(value, names[i], strlen(names[i]));
        return truce__fail(
            TRUCE_INVALID, error, "changes.%u.%s is %s: expected %s", index, names[i],
            field.type == VALUE_MISSING ? "missing" : truce__value_show(field, text, sizeof text),
            expected[i]);
    }
    currency = truce__value_field(value, "currency", 8);
    if (currency.type != VALUE_MISSING && currency.type != BSON_TYPE_NULL && !change.currency)
        return truce__fail(TRUCE_INVALID, error,
                           "changes.%u.currency is %s: expected a string, the account's currency",
                           index, truce__value_show(currency, text, sizeof text));
    if (change.sets || change.release)
        return truce__fail(TRUCE_INVALID, error,
                           "changes.%u has `set` or `release`: only truce sets rules and releases "
                           "pending amounts",
                           index);
    return truce__ledger_account_name(change.account, error);
}

/* Checks whether the document could be a transaction, whatever the book contains. */
static truce_status foreign_check_shape(const struct foreign *run, const bson_t *document,
                                        bson_error_t *error)
{
    static const char *const own[] = {"resolves", "opens", "part"};
    struct value all = truce__value_document(document), ts = truce__value_field(all, "ts", 2),
                 state = truce__value_field(all, "state", 5),
                 changes = truce__value_field(all, "changes", 7);
    truce_status status = TRUCE_OK;
    uint32_t count = 0;
    char text[200];

    if (run->reader->ledger->slots)
        return truce__fail(
            TRUCE_INVALID, error,
            "the numbers of this ledger are documents of %s, which only truce can assign: post "
            "the transaction with truce",
            run->reader->ledger->slots);
    if (!truce__ledger_is(document, "proc", "UNCOMMITTED") &&
        !truce__ledger_is(document, "proc", "COMMITTED"))
        return truce__fail(TRUCE_INVALID, error, "proc is not UNCOMMITTED");
    if (ts.type != VALUE_MISSING && ts.type != BSON_TYPE_DATE_TIME &&
        ts.type != BSON_TYPE_TIMESTAMP)
        return truce__fail(TRUCE_INVALID, error, "ts is %s: expected a date",
                           truce__value_show(ts, text, sizeof text));
    if (state.type != BSON_TYPE_UTF8)
        return truce__fail(
            TRUCE_INVALID, error, "state is %s: expected a string, VALID if the values count",
            state.type == VALUE_MISSING ? "missing" : truce__value_show(state, text, sizeof text));
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (foreign_is_field(document, own[i]))
            return truce__fail(TRUCE_INVALID, error,
                               "the document has the field %s, which only truce writes", own[i]);
    }
    if (changes.type != BSON_TYPE_ARRAY)
        return truce__fail(TRUCE_INVALID, error, "changes is %s: expected an array",
                           changes.type == VALUE_MISSING
                               ? "missing"
                               : truce__value_show(changes, text, sizeof text));
    for (struct fields at = truce__fields(changes); !status && truce__fields_next(&at);)
        status = check_change(at.value, count++, error);
    if (!status && !count)
        status = truce__fail(TRUCE_INVALID, error, "changes is empty");
    if (!status && count > LEDGER_ENTRIES_MAX)
        status = truce__fail(TRUCE_LIMIT, error, "the document has %u changes: the maximum is %d",
                             count, LEDGER_ENTRIES_MAX);
    return status;
}

/* ---- the position of a document -------------------------------------------------------------- */

static bool is_damaged(const bson_t *document)
{
    struct ledger_change change;

    for (struct fields at = truce__ledger_changes(document); truce__fields_next(&at);) {
        (void)!truce__ledger_change(at.value, &change);
        if (change.hashed)
            return true;
    }
    return false;
}

static bool is_kept(const struct foreign *run, const bson_t *document)
{
    for (uint32_t i = 0; i < run->documents.count; i++) {
        const bson_t *one = run->documents.items[i];

        if (one && truce__value_equal(foreign_id(one), foreign_id(document)))
            return true;
    }
    return false;
}

static truce_status load_account(struct foreign *run, const char *account,
                                 struct ledger_known **known, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    *known = truce__ledger_at(&run->plan.book, account);
    if (!(*known)->loaded)
        status = truce__ledger_head(run->reader, account, &(*known)->state, error);
    (*known)->loaded = (*known)->fresh = !status;
    return status;
}

/* Finds whether another document precedes it on that account (LF1). */
static truce_status ledger_find_earlier(struct foreign *run, const bson_t *document,
                                        const struct ledger_change *change, enum outcome *outcome,
                                        bson_error_t *error)
{
    bson_t condition = BSON_INITIALIZER;
    struct ledger_documents found = {0};
    struct ledger_known *known;
    truce_status status = load_account(run, change->account, &known, error);

    BSON_APPEND_INT64(&condition, "$gt", known->state.number);
    BSON_APPEND_INT64(&condition, "$lt", change->number);
    if (!status && change->number > known->state.number + 1)
        status = truce__ledger_fetch(run->reader, change->account, &condition, 2, &found, error);
    for (uint32_t i = 0; !status && i < found.count; i++) {
        const bson_t *other = found.items[i];
        struct ledger_change there;

        if (truce__value_equal(foreign_id(other), foreign_id(document)))
            continue;
        if (truce__ledger_change_of(other, change->account, 0, &there) &&
            truce__ledger_is_anchor(other, &there)) {
            truce__ledger_table_clear(&run->plan.book);
            *outcome = FOREIGN_RACED;
        } else {
            *outcome = is_damaged(other) ? FOREIGN_STUCK : FOREIGN_WAITS;
            if (!is_kept(run, other)) {
                truce__ledger_keep(&run->documents, other);
                /* Another document precedes this one and must be handled first. */
                *outcome = FOREIGN_RACED;
            }
        }
        break;
    }
    truce__ledger_documents_release(&found);
    bson_destroy(&condition);
    return status;
}

/* ---- the commit ------------------------------------------------------------------------------ */

static int foreign_compare_numbers(const void *a, const void *b)
{
    const struct planned *x = a, *y = b;

    if (x->change.number != y->change.number)
        return x->change.number < y->change.number ? -1 : 1;
    return x->position < y->position ? -1 : x->position > y->position;
}

static int foreign_compare_positions(const void *a, const void *b)
{
    const struct planned *x = a, *y = b;

    return x->position < y->position ? -1 : x->position > y->position;
}

/* Gathers the changes of the document into the draft, in the order of their numbers. *outcome stays
 * FOREIGN_DONE if no other document precedes it on any of its accounts. */
static truce_status gather_changes(struct foreign *run, const bson_t *document, struct draft *draft,
                                   enum outcome *outcome, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    uint32_t count = 0;

    for (struct fields at = truce__ledger_changes(document); truce__fields_next(&at);)
        count++;
    draft->planned = bson_malloc0(count * sizeof *draft->planned);
    for (struct fields at = truce__ledger_changes(document);
         !status && *outcome == FOREIGN_DONE && truce__fields_next(&at);) {
        struct planned *planned = &draft->planned[draft->count];

        (void)!truce__ledger_change(at.value, &planned->change);
        planned->source = at.value;
        planned->position = draft->count++;
        status = ledger_find_earlier(run, document, &planned->change, outcome, error);
    }
    qsort(draft->planned, draft->count, sizeof *draft->planned, foreign_compare_numbers);
    return status;
}

/* Refuses a document whose currency differs from that of its account: it does not mean this
 * account. */
static truce_status check_accounts(struct foreign *run, struct draft *draft, bson_error_t *error)
{
    draft->unopened = true;
    for (uint32_t i = 0; i < draft->count; i++) {
        const struct ledger_change *change = &draft->planned[i].change;
        const char *currency =
            truce__ledger_find(&run->plan.book, change->account)->state.rules.currency;

        draft->unopened = draft->unopened && !currency[0];
        if (change->currency && currency[0] && strcmp(change->currency, currency) != 0)
            return truce__fail(TRUCE_INVALID, error,
                               "changes.%u.currency is \"%.40s\", and account \"%s\" is in %s",
                               draft->planned[i].position, change->currency, change->account,
                               currency);
    }
    return TRUCE_OK;
}

/* Finds the booking time (LF4). Sets *moved if it is not the document's own time. */
static int64_t booking_time(const struct foreign *run, const struct draft *draft,
                            const bson_t *document, bool *moved)
{
    int64_t own = truce__ledger_date(document, "ts"), booked = own, now = run->plan.now_ms;

    if (!foreign_is_field(document, "ts") || booked > now)
        booked = now;
    for (uint32_t i = 0; i < draft->count; i++) {
        const struct ledger_state *state = &draft->planned[i].known->state;

        if (state->booked_ms > booked)
            booked = state->booked_ms;
    }
    *moved = booked != own;
    return booked;
}

/* Appends the changes with their numbers and balances. Other fields of the program stay. */
static void append_taken_changes(const struct draft *draft, bool hashes, bson_t *document)
{
    bson_t changes, one, source;

    bson_append_array_begin(document, "changes", 7, &changes);
    for (uint32_t i = 0; i < draft->count; i++) {
        const struct planned *planned = &draft->planned[i];
        char buffer[16];
        const char *key;
        size_t length = bson_uint32_to_string(i, &key, buffer, sizeof buffer);

        truce__value_bson(planned->source, &source);
        bson_append_document_begin(&changes, key, (int)length, &one);
        bson_copy_to_excluding_noinit(&source, &one, "value", "seqId", "currency", "release",
                                      "cachedBal", "pendingOut", "pendingIn", "rules", "hash",
                                      NULL);
        BSON_APPEND_INT64(&one, "value", planned->change.value);
        if (planned->after.rules.currency[0])
            BSON_APPEND_UTF8(&one, "currency", planned->after.rules.currency);
        BSON_APPEND_INT64(&one, "seqId", planned->change.number);
        truce__ledger_append_state(&planned->after, hashes, &one);
        bson_append_document_end(&changes, &one);
    }
    bson_append_array_end(document, &changes);
}

/* Appends the new fields of the document, except the changes. */
static void append_taken(const struct draft *draft, const bson_t *document, bool moved, bson_t *set)
{
    int64_t own = truce__ledger_date(document, "ts"),
            expires = truce__ledger_date(document, "expires");

    if (moved)
        BSON_APPEND_DATE_TIME(set, "ts", draft->booked_ms);
    if (moved && own && !foreign_is_field(document, "effective"))
        BSON_APPEND_DATE_TIME(set, "effective", own);
    if (draft->pending)
        BSON_APPEND_DATE_TIME(set, "open", expires ? expires : LEDGER_NEVER_MS);
}

/* Makes the document as it will be, without the fields that its hashes do not cover. */
static void link_taken(struct draft *draft, const bson_t *document, const bson_t *set)
{
    bson_t whole = BSON_INITIALIZER;

    bson_copy_to_excluding_noinit(document, &whole, "changes", "refused",
                                  foreign_is_field(set, "ts") ? "ts" : "changes", NULL);
    bson_concat(&whole, set);
    qsort(draft->planned, draft->count, sizeof *draft->planned, foreign_compare_positions);
    append_taken_changes(draft, false, &whole);
    qsort(draft->planned, draft->count, sizeof *draft->planned, foreign_compare_numbers);
    truce__ledger_link(draft, &whole);
    qsort(draft->planned, draft->count, sizeof *draft->planned, foreign_compare_positions);
    bson_destroy(&whole);
}

/* Commits a checked document of another program with its numbers, balances, and hashes. */
static truce_status commit_taken(struct foreign *run, const bson_t *document, struct draft *draft,
                                 enum outcome *outcome, bson_error_t *error)
{
    bson_t update = BSON_INITIALIZER, set = BSON_INITIALIZER, inner;
    truce_status status;
    bool moved;

    draft->booked_ms = booking_time(run, draft, document, &moved);
    append_taken(draft, document, moved, &set);
    link_taken(draft, document, &set);
    BSON_APPEND_UTF8(&set, "proc", "COMMITTED");
    append_taken_changes(draft, true, &set);
    BSON_APPEND_DOCUMENT(&update, "$set", &set);
    bson_append_document_begin(&update, "$unset", 6, &inner);
    BSON_APPEND_INT32(&inner, "refused", 1);
    bson_append_document_end(&update, &inner);
    status = write_exactly(run, document, &update, outcome, error);
    run->call->committed += !status && *outcome == FOREIGN_DONE;
    bson_destroy(&set);
    bson_destroy(&update);
    return status;
}

static bool foreign_is_refusal(truce_status status)
{
    return status == TRUCE_INVALID || status == TRUCE_LIMIT || status == TRUCE_NOT_FOUND;
}

/* Commits or refuses one document of another program. Sets *outcome to whether it is done, waits
 * for another document, is damaged, or was changed concurrently. */
static truce_status foreign_take_one(struct foreign *run, const bson_t *document,
                                     enum outcome *outcome, bson_error_t *error)
{
    struct draft draft = {.plan = &run->plan,
                          .kind = "transfer",
                          .state = "VALID",
                          .counts = truce__ledger_is(document, "state", "VALID"),
                          .pending = truce__ledger_is(document, "state", "PENDING"),
                          .settled = BSON_INITIALIZER};
    bson_error_t why = {0};
    bool nothing = false;
    truce_status status;

    *outcome = FOREIGN_DONE;
    if (is_damaged(document)) {
        *outcome = FOREIGN_STUCK;
        return TRUCE_OK;
    }
    draft.idle = !draft.counts && !draft.pending;
    status = foreign_check_shape(run, document, &why);
    if (!status) {
        status = gather_changes(run, document, &draft, outcome, error);
        if (status || *outcome != FOREIGN_DONE) {
            truce__ledger_draft_close(&draft, false);
            return status;
        }
        status = check_accounts(run, &draft, &why);
    }
    if (!status)
        status = truce__ledger_check_entry(&draft, &nothing, &why);
    if (!status)
        status = commit_taken(run, document, &draft, outcome, &why);
    truce__ledger_draft_close(&draft, !status && *outcome == FOREIGN_DONE);
    if (foreign_is_refusal(status))
        return foreign_refuse(run, document, &why, outcome, error);
    if (status && error)
        *error = why;
    return status;
}

/* ---- cycles ---------------------------------------------------------------------------------- */

/* Finds the greatest number of the account, plus one. */
static truce_status number_at_end(struct foreign *run, const char *account, int64_t *number,
                                  bson_error_t *error)
{
    bson_t condition = BSON_INITIALIZER;
    struct ledger_documents found = {0};
    struct ledger_known *known;
    struct ledger_change change;
    truce_status status = load_account(run, account, &known, error);

    *number = known->state.number;
    BSON_APPEND_INT64(&condition, "$gt", known->state.number);
    if (!status)
        status = truce__ledger_fetch(run->reader, account, &condition, 0, &found, error);
    for (uint32_t i = 0; i < found.count; i++) {
        if (truce__ledger_change_of(found.items[i], account, 0, &change) && change.number > *number)
            *number = change.number;
    }
    ++*number;
    truce__ledger_documents_release(&found);
    bson_destroy(&condition);
    return status;
}

/* Gives the changes of a document new numbers at the ends of their accounts. */
static truce_status move_to_end(struct foreign *run, const bson_t *document, enum outcome *outcome,
                                bson_error_t *error)
{
    bson_t update = BSON_INITIALIZER, set, changes, one, source;
    struct ledger_change change;
    truce_status status = TRUCE_OK;
    int64_t number, moved = 0;

    bson_append_document_begin(&update, "$set", 4, &set);
    bson_append_array_begin(&set, "changes", -1, &changes);
    for (struct fields at = truce__ledger_changes(document); !status && truce__fields_next(&at);) {
        (void)!truce__ledger_change(at.value, &change);
        status = number_at_end(run, change.account, &number, error);
        truce__value_bson(at.value, &source);
        bson_append_document_begin(&changes, at.key, -1, &one);
        bson_copy_to_excluding_noinit(&source, &one, "seqId", NULL);
        BSON_APPEND_INT64(&one, "seqId", number + moved++);
        bson_append_document_end(&changes, &one);
    }
    bson_append_array_end(&set, &changes);
    bson_append_document_end(&update, &set);
    if (!status)
        status = write_exactly(run, document, &update, outcome, error);
    bson_destroy(&update);
    return status;
}

/* ---- passes ---------------------------------------------------------------------------------- */

static int64_t foreign_first_number(const bson_t *document)
{
    struct ledger_change change;
    int64_t first = INT64_MAX;

    for (struct fields at = truce__ledger_changes(document); truce__fields_next(&at);) {
        if (truce__ledger_change(at.value, &change) && change.number < first)
            first = change.number;
    }
    return first;
}

static int compare_first(const void *a, const void *b)
{
    int64_t x = foreign_first_number(*(bson_t *const *)a),
            y = foreign_first_number(*(bson_t *const *)b);

    return x < y ? -1 : x > y;
}

static void keep_uncommitted(struct foreign *run, const struct ledger_documents *found)
{
    for (uint32_t i = 0; i < found->count; i++) {
        const bson_t *document = found->items[i];
        struct ledger_change change;

        if (!truce__ledger_is(document, "proc", "UNCOMMITTED") &&
            !(truce__ledger_change_of(document, run->call->account, 0, &change) &&
              truce__ledger_is_anchor(document, &change)))
            truce__ledger_keep(&run->documents, document);
    }
}

/* Reads the documents that have numbers of the account after the last committed one, and are not
 * UNCOMMITTED. A `changes` that is a document and not an array takes a number, too; only a filter
 * that reads the whole account finds it. */
static truce_status gather_in_front(struct foreign *run, bson_error_t *error)
{
    const char *account = run->call->account;
    struct ledger_documents found = {0};
    bson_t condition = BSON_INITIALIZER, filter = BSON_INITIALIZER;
    struct ledger_known *known;
    truce_status status = load_account(run, account, &known, error);

    if (!status && known->state.behind) {
        BSON_APPEND_INT64(&condition, "$gt", known->state.number);
        status = truce__ledger_fetch(run->reader, account, &condition, 0, &found, error);
    }
    if (!status && run->call->thorough) {
        BSON_APPEND_UTF8(&filter, "changes.account", account);
        BSON_APPEND_INT64(&filter, "changes.seqId", known->state.number + 1);
        status = truce__ledger_fetch_filter(run->reader, &filter, NULL, 0, &found, error);
    }
    if (!status)
        keep_uncommitted(run, &found);
    truce__ledger_documents_release(&found);
    bson_destroy(&filter);
    bson_destroy(&condition);
    return status;
}

/* Reads the documents that are not committed, in the order of their first numbers. */
static truce_status gather_documents(struct foreign *run, bson_error_t *error)
{
    const struct ledger_takeup *call = run->call;
    bson_t filter = BSON_INITIALIZER;
    truce_status status;

    BSON_APPEND_UTF8(&filter, "proc", "UNCOMMITTED");
    status =
        truce__ledger_fetch_filter(run->reader, &filter, NULL, call->limit, &run->documents, error);
    if (!status && call->account)
        status = gather_in_front(run, error);
    if (!status && run->documents.count)
        qsort(run->documents.items, run->documents.count, sizeof(bson_t *), compare_first);
    bson_destroy(&filter);
    return status;
}

static bool moves_before(const struct foreign *run, const bson_t *document, const bson_t *last)
{
    if (run->moved && truce__value_compare(foreign_id(document), foreign_id(run->moved)) >= 0)
        return false;
    return !last || truce__value_compare(foreign_id(document), foreign_id(last)) > 0;
}

/* Tries to take over each document once, and removes those that are done from the list. Sets
 * *progress if one was done, or documents were added. Sets *last to the waiting document that moves
 * next to break a cycle, or NULL if none exists. */
static truce_status foreign_take_each(struct foreign *run, bool *progress, const bson_t **last,
                                      bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    *last = NULL;
    *progress = false;
    for (uint32_t i = 0; !status && i < run->documents.count; i++) {
        bson_t *document = run->documents.items[i];
        uint32_t count = run->documents.count;
        enum outcome outcome;

        if (!document)
            continue;
        status = foreign_take_one(run, document, &outcome, error);
        *progress = *progress || count < run->documents.count;
        if (!status && outcome == FOREIGN_DONE) {
            *progress = true;
            bson_destroy(document);
            run->documents.items[i] = NULL;
        } else if (outcome == FOREIGN_WAITS && moves_before(run, document, *last)) {
            *last = document;
        }
    }
    return status;
}

/* The maximum number of passes over the documents of one call. */
#define ROUNDS_MAX 1000

truce_status truce__ledger_take_up(struct ledger_reader *reader, struct ledger_takeup *call,
                                   bson_error_t *error)
{
    struct foreign run = {.reader = reader, .call = call};
    truce_status status;
    bool progress = true;

    truce__ledger_plan_begin(&run.plan, reader->ledger, NULL);
    run.plan.discounts = true;
    status = truce__ledger_layout(reader->ledger, error);
    if (!status || status == TRUCE_NOT_FOUND)
        status = gather_documents(&run, error);
    for (int i = 0; !status && progress && i < ROUNDS_MAX; i++) {
        const bson_t *last;
        enum outcome outcome;

        status = foreign_take_each(&run, &progress, &last, error);
        if (status || progress || !last)
            continue;
        status = move_to_end(&run, last, &outcome, error);
        progress = !status && outcome == FOREIGN_DONE;
        bson_destroy(run.moved);
        run.moved = bson_copy(last);
        truce__ledger_documents_release(&run.documents);
        if (!status)
            status = gather_documents(&run, error);
    }
    bson_destroy(run.moved);
    truce__ledger_documents_release(&run.documents);
    truce__ledger_plan_release(&run.plan);
    return status;
}

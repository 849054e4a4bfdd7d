/*
 * The plan: from a request to a document. It determines the changes, checks that the accounts allow
 * them, and gives them the numbers, balances, and hashes that follow the current state.
 *
 *     entries, or those of `of`   the changes                           ledger_gather.c
 *     the book                    each account after its last number    plan_find_account
 *     rules, sums                 refused, or states after it           truce__ledger_judge
 *     the document                with the chain over it                ledger_build.c
 *
 * The book belongs to one call. A planned transaction enters it, so that the next one is checked
 * against the states after it. The book is right as long as the planned transactions take effect;
 * if not, the caller begins a new one.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/field.h"
#include "commit/commit.h"
#include "patterns/ledger/ledger_draft.h"

void truce__ledger_plan_begin(struct ledger_plan *plan, truce_ledger *ledger, truce_commit *commit)
{
    *plan = (struct ledger_plan){.ledger = ledger, .commit = commit};
    truce__ledger_look(&plan->look, ledger);
    plan->look.early = true;
    plan->discounts = commit != NULL;
    plan->now_ms = truce__clock_wall_ms();
}

void truce__ledger_plan_release(struct ledger_plan *plan)
{
    truce__ledger_table_clear(&plan->book);
}

/* ---- states of accounts ---------------------------------------------------------------------- */

/* Adds the transactions that the commit itself has inserted; they follow the stored ones. */
static truce_status plan_add_own(struct ledger_plan *plan, const char *account,
                                 struct ledger_state *state, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (bool more = true; !status && more;) {
        more = false;
        for (uint32_t i = 0; !status && i < plan->commit->count; i++) {
            const struct entry *entry = plan->commit->entries[i];
            struct ledger_change change;

            if (strcmp(entry->collection, plan->ledger->collection) != 0 || !entry->known ||
                entry->token.found || !entry->after_found ||
                !truce__ledger_change_of(&entry->after, account, state->number + 1, &change) ||
                !truce__ledger_change_of(&entry->after, account, 0, &change))
                continue;
            status = truce__ledger_state_of(&plan->look, &entry->after, account, change.number,
                                            state, error);
            more = true;
        }
    }
    return status;
}

/* Takes up documents of other programs before the account's next number. Documents that remain are
 * damaged, and only the verification describes them. */
static truce_status plan_take_up(struct ledger_plan *plan, const char *account,
                                 struct ledger_state *state, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (int i = 0; !status && state->behind && i < 10; i++) {
        struct ledger_takeup takeup = {.account = account};

        status = truce__ledger_take_up(&plan->look, &takeup, error);
        if (!status)
            status = truce__ledger_head(&plan->look, account, state, error);
        if (!status && state->behind)
            status = truce__worker_wait(&plan->look.worker, "a document of another program", error);
    }
    if (!status && state->behind)
        status = truce__fail(TRUCE_CORRUPT, error,
                             "a damaged document follows number %" PRId64
                             " of account %s: truce ledger verify names it",
                             state->number, account);
    return status;
}

static truce_status plan_load(struct ledger_plan *plan, struct ledger_known *known, bool fresh,
                              bson_error_t *error)
{
    bool recalled = truce__ledger_recall(plan->ledger, known->account, &known->state);
    truce_status status = TRUCE_OK;

    known->fresh = !recalled || fresh;
    if (known->fresh)
        status = truce__ledger_head(&plan->look, known->account, &known->state, error);
    if (!status && known->fresh && known->state.behind)
        status = plan_take_up(plan, known->account, &known->state, error);
    if (!status && known->fresh)
        truce__ledger_remember(&plan->look, known->account, &known->state);
    if (!status && plan->commit)
        status = plan_add_own(plan, known->account, &known->state, error);
    known->loaded = !status;
    return status;
}

static truce_status plan_find_account(struct draft *draft, struct planned *planned,
                                      bson_error_t *error)
{
    truce_status status = truce__ledger_account_name(planned->change.account, error);

    if (status)
        return status;
    planned->known = truce__ledger_at(&draft->plan->book, planned->change.account);
    if (!planned->known->loaded)
        status = plan_load(draft->plan, planned->known, draft->plan->fresh || draft->plan->commit,
                           error);
    if (status)
        return status;
    draft->stale = draft->stale || (!planned->known->fresh && !planned->known->planned);
    if (!planned->known->touched)
        planned->known->next = planned->known->state;
    planned->known->touched = true;
    return TRUCE_OK;
}

truce_status truce__ledger_plan_refresh(struct ledger_plan *plan,
                                        const struct ledger_request *request, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; !status && i < request->transaction->count; i++) {
        const char *account = request->transaction->entries[i].account;
        struct ledger_known *known = account ? truce__ledger_find(&plan->book, account) : NULL;

        if (known && known->loaded && !known->fresh && !known->planned)
            status = plan_load(plan, known, true, error);
    }
    return status;
}

bool truce__ledger_plan_pending(const struct ledger_plan *plan,
                                const struct ledger_request *request)
{
    for (uint32_t i = 0; i < request->transaction->count; i++) {
        const struct ledger_known *known =
            truce__ledger_find(&plan->book, request->transaction->entries[i].account);

        if (known && (known->state.out || known->state.in))
            return true;
    }
    return false;
}

/* ---- rules of the accounts ------------------------------------------------------------------- */

static truce_status plan_check_direction(const struct draft *draft, const struct planned *planned,
                                         bson_error_t *error)
{
    const struct ledger_rules *rules = &planned->known->next.rules;
    const char *account = planned->change.account;
    int64_t value = planned->change.value;
    bool given = !strcmp(draft->kind, "transfer") || draft->pending;

    if (!rules->currency[0] && !draft->unopened)
        return truce__fail(TRUCE_NOT_FOUND, error, "account %s is not open", account);
    if (rules->closed && value)
        return truce__fail(TRUCE_INVALID, error, "account %s is closed", account);
    if (given && rules->debit_only && value > 0)
        return truce__fail(TRUCE_INVALID, error, "account %s is for debits only", account);
    if (given && rules->credit_only && value < 0)
        return truce__fail(TRUCE_INVALID, error, "account %s is for credits only", account);
    return TRUCE_OK;
}

static truce_status plan_refuse_amount(const struct draft *draft, const struct ledger_known *known,
                                       const char *what, const char *than, int64_t bound,
                                       __int128 reached, bson_error_t *error)
{
    char limit[TRUCE_LEDGER_AMOUNT], would[TRUCE_LEDGER_AMOUNT] = "too much";
    const char *currency = known->next.rules.currency;
    int digits = 0;

    if (truce_ledger_digits(draft->plan->ledger, currency, &digits, NULL))
        digits = 0;
    if (reached >= INT64_MIN && reached <= INT64_MAX)
        truce_ledger_show((int64_t)reached, digits, would);
    return truce__fail(TRUCE_LIMIT, error, "account %s: %s would be %s %s, %s than %s",
                       known->account, what, would, currency, than,
                       truce_ledger_show(bound, digits, limit));
}

/* Finds the expired amounts of the account after its last entry. A transaction that cannot book
 * their release first may use them. */
static truce_status plan_find_overdue(const struct draft *draft, struct ledger_known *known,
                                      bson_error_t *error)
{
    struct ledger_state free = known->state;
    truce_status status = TRUCE_OK;

    if (!known->overdue_known && (known->state.out || known->state.in))
        status = truce__ledger_free_overdue(&draft->plan->look, known->account, &free, error);
    if (!status && !known->overdue_known) {
        known->overdue_out = known->state.out - free.out;
        known->overdue_in = known->state.in - free.in;
        known->overdue_known = true;
    }
    return status;
}

/* Checks the limits of an account (L5). A change that improves the state before the transaction is
 * allowed, even beyond a limit. Each of several changes of one account is checked, because each
 * leaves a balance. */
static truce_status plan_check_limits(const struct draft *draft, const struct planned *planned,
                                      bson_error_t *error)
{
    const struct ledger_known *known = planned->known;
    const struct ledger_state *before = &known->state, *after = &planned->after;
    const struct ledger_rules *rules = &after->rules;
    int64_t out = known->overdue_out, in = known->overdue_in;
    __int128 free_before = (__int128)before->balance - before->out + out,
             free_after = (__int128)after->balance - after->out + out,
             full_before = (__int128)before->balance + before->in - in,
             full_after = (__int128)after->balance + after->in - in;

    if (rules->has_min && free_after < rules->min && free_after < free_before)
        return plan_refuse_amount(draft, known, "what is available", "less", rules->min, free_after,
                                  error);
    if (rules->has_max && full_after > rules->max && full_after > full_before)
        return plan_refuse_amount(draft, known, "the balance", "more", rules->max, full_after,
                                  error);
    return TRUCE_OK;
}

static truce_status plan_check_all_limits(const struct draft *draft, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; !status && i < draft->count; i++) {
        struct planned *planned = &draft->planned[i];

        status = plan_check_limits(draft, planned, error);
        if (status != TRUCE_LIMIT || !draft->plan->discounts || planned->known->overdue_known)
            continue;
        status = plan_find_overdue(draft, planned->known, error);
        if (!status)
            status = plan_check_limits(draft, planned, error);
    }
    return status;
}

static truce_status plan_refuse_sum(const struct draft *draft, const char *currency, __int128 sum,
                                    bson_error_t *error)
{
    char text[TRUCE_LEDGER_AMOUNT] = "more than 64 bits hold";
    int digits = 0;

    if (truce_ledger_digits(draft->plan->ledger, currency, &digits, NULL))
        digits = 0;
    if (sum >= INT64_MIN && sum <= INT64_MAX)
        truce_ledger_show((int64_t)sum, digits, text);
    return truce__fail(TRUCE_INVALID, error,
                       "the transaction does not balance: its amounts in %s sum to %s instead of "
                       "zero",
                       currency, text);
}

static truce_status plan_check_balance(const struct draft *draft, bson_error_t *error)
{
    for (uint32_t i = 0; i < draft->count; i++) {
        const char *currency = draft->planned[i].known->next.rules.currency;
        __int128 sum = 0;

        for (uint32_t j = 0; j < i; j++) {
            if (!strcmp(draft->planned[j].known->next.rules.currency, currency)) {
                currency = NULL; /* the currency was summed before */
                break;
            }
        }
        for (uint32_t j = i; currency && j < draft->count; j++) {
            if (!strcmp(draft->planned[j].known->next.rules.currency, currency))
                sum += draft->planned[j].change.value;
        }
        if (sum)
            return plan_refuse_sum(draft, currency, sum, error);
    }
    return TRUCE_OK;
}

static bool plan_same_rules(const struct ledger_rules *a, const struct ledger_rules *b)
{
    return !strcmp(a->currency, b->currency) && a->has_min == b->has_min &&
           a->has_max == b->has_max && (!a->has_min || a->min == b->min) &&
           (!a->has_max || a->max == b->max) && a->debit_only == b->debit_only &&
           a->credit_only == b->credit_only && a->closed == b->closed;
}

/* *nothing: the rules are the same already. */
static truce_status plan_check_rules(struct draft *draft, bool *nothing, bson_error_t *error)
{
    struct planned *planned = &draft->planned[0];
    const struct ledger_state *state = &planned->known->state;
    struct ledger_rules rules = draft->request->rules;
    const char *account = planned->change.account;
    bool open = state->rules.currency[0];

    if (draft->request->verb == LEDGER_RULES && !open)
        return truce__fail(TRUCE_NOT_FOUND, error, "account %s is not open", account);
    if (!rules.currency[0])
        memcpy(rules.currency, state->rules.currency, sizeof rules.currency);
    *nothing = open && plan_same_rules(&rules, &state->rules);
    if (*nothing)
        return TRUCE_OK;
    if (open && draft->request->verb == LEDGER_OPEN)
        return truce__fail(TRUCE_DUPLICATE, error, "account %s is already open with other rules",
                           account);
    if (open && strcmp(rules.currency, state->rules.currency) != 0)
        return truce__fail(TRUCE_INVALID, error,
                           "the currency of account %s is %s and cannot change", account,
                           state->rules.currency);
    if (rules.closed && (state->out || state->in)) {
        truce_status status = plan_find_overdue(draft, planned->known, error);

        if (status)
            return status;
    }
    if (rules.closed &&
        (state->out != planned->known->overdue_out || state->in != planned->known->overdue_in))
        return truce__fail(TRUCE_INVALID, error,
                           "account %s has pending transactions: settle or void them first",
                           account);
    truce__ledger_rules_append(&rules, &planned->change.set);
    return TRUCE_OK;
}

static truce_status plan_add_up(struct draft *draft, bson_error_t *error)
{
    for (uint32_t i = 0; i < draft->count; i++) {
        struct planned *planned = &draft->planned[i];
        truce_status status;

        if (!draft->inner && !draft->idle) {
            status = plan_check_direction(draft, planned, error);
            if (status)
                return status;
        }
        planned->change.number = planned->known->next.number + 1;
        status = truce__ledger_add(&planned->known->next, &planned->change, draft->counts,
                                   draft->pending, error);
        if (status)
            return status;
        planned->after = planned->known->next;
    }
    return TRUCE_OK;
}

/* Refuses an account that occurs twice: its reserved amount is released as a whole. */
static truce_status plan_check_once(const struct draft *draft, bson_error_t *error)
{
    for (uint32_t i = 0; draft->pending && i < draft->count; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (!strcmp(draft->planned[i].change.account, draft->planned[j].change.account))
                return truce__fail(TRUCE_INVALID, error,
                                   "account %s occurs twice in a pending transaction",
                                   draft->planned[i].change.account);
        }
    }
    return TRUCE_OK;
}

truce_status truce__ledger_judge(struct draft *draft, bool *nothing, bson_error_t *error)
{
    truce_status status = plan_check_once(draft, error);

    for (uint32_t i = 0; !status && i < draft->count; i++)
        status = plan_find_account(draft, &draft->planned[i], error);
    if (!status && draft->inner)
        status = plan_check_rules(draft, nothing, error);
    if (status || *nothing)
        return status;
    status = plan_add_up(draft, error);
    if (draft->inner || draft->idle)
        return status;
    if (!status)
        status = plan_check_balance(draft, error);
    if (!status)
        status = plan_check_all_limits(draft, error);
    return status;
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* Moves the book on to the planned states, or leaves it unchanged. */
void truce__ledger_draft_close(struct draft *draft, bool planned)
{
    for (uint32_t i = 0; i < draft->count; i++) {
        struct ledger_known *known = draft->planned[i].known;

        if (known && known->touched && planned) {
            known->state = known->next;
            known->state.booked_ms = draft->booked_ms;
            known->planned = true;
        }
        if (known)
            known->touched = false;
        if (draft->planned[i].change.sets)
            bson_destroy(&draft->planned[i].change.set);
        bson_free(draft->planned[i].owned);
    }
    bson_free(draft->planned);
    bson_destroy(&draft->settled);
}

truce_status truce__ledger_plan(struct ledger_plan *plan, const struct ledger_request *request,
                                bson_t *document, bool *stale, bson_error_t *error)
{
    struct draft draft = {.plan = plan, .request = request, .settled = BSON_INITIALIZER};
    bool nothing = false;
    truce_status status = truce__ledger_gather(&draft, error);

    bson_init(document);
    if (!status)
        status = truce__ledger_judge(&draft, &nothing, error);
    if (!status && !nothing)
        status = truce__ledger_build(&draft, document, error);
    *stale = draft.stale;
    truce__ledger_draft_close(&draft, !status && !nothing);
    return status;
}

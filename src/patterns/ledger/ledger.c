/*
 * The ledger: the handle, and what all of it rests on.
 *
 *     transaction   {_id: the caller's, ts, proc, state, resolves?, part?, effective?, expires?, open?, meta?,
 *                    changes: [{account, type, value, currency, seqId, release?, set?,
 *                               cachedBal, pendingOut?, pendingIn?, rules, hash}]}
 *
 *     proc       COMMITTED    it has its numbers, balances and hashes
 *                UNCOMMITTED  another program inserted it, and it is not taken up yet (ledger_takeup.c)
 *                REFUSED      another program inserted it, and it cannot be a transaction
 *     state      VALID     its values count
 *                PENDING   they are reserved; for ever: what becomes of it is another transaction's matter
 *                VOID      it only releases what a pending one had reserved
 *     resolves   the _id of the pending transaction that it settles or gives up, or of the one that it reverses
 *     open       when a pending one expires; gone when it is settled: a hint for those who look for such
 *     changes    `release`: what of a pending change is free again. `set`: the account's rules from here on
 *
 * Posting: read the last number of each account and what stands there; insert with the next numbers. A number that is
 * taken: read again. Nothing else is written, ever.
 *
 * Invariants:
 *
 *   L1  (account, seqId) is given once, by the unique index (or by documents); an insert takes numbers that follow one that is there.
 *       So an account's numbers have no gaps and one order, and an insert that lands late takes the next number of that
 *       moment or none.
 *   L2  A transaction never changes. What looks like a change of it (settled, given up, reversed) is another one.
 *   L3  A transaction is inserted COMMITTED, with the balances after it, behind the last committed number of each of
 *       its accounts: what they were made of cannot change any more. A document of another program is taken up by one
 *       write that compares every field it used (T1 to T5, ledger_takeup.c). So `cachedBal` is right or absent.
 *   L4  The balance after a number is the one that its change has. Only committed numbers count.
 *   L5  A rule is judged on what stands before the number that is taken: no other transaction gets in between. Each of
 *       several changes of one account is judged: each leaves a balance. Rules themselves take
 *       a number, so that of a change of rules and a transaction one is before the other.
 *   L6  `resolves` is unique: of settling, giving up, expiring and reversing one takes place. Clocks only suggest it.
 *   L7  An id is posted once: sent again, with whatever numbers, it meets itself.
 *   L8  A sum that leaves 64 bits is refused before anything is written.
 *   L9  Transactions of one call or one process that travel together are sent in the order in which they took their
 *       numbers, and what follows one that failed is not reached. So none stands on a number that is not there.
 *   L10 The time of booking never falls from one number of an account to the next.
 *   L11 A cut is consistent if each transaction is in it with all its changes or with none (ledger_cut.c).
 *
 * Its model is models/ledger.cpp. A crash leaves a transaction there or not there; the hint `open` may stay, and the
 * sweep takes it.
 *
 *     ledger_plan.c      from a request to a document; ledger_gather.c, ledger_build.c: its ends
 *     ledger_post.c      alone, many, in commits: the calls
 *     ledger_round.c     many together, as one bulk
 *     ledger_commit.c    in a commit
 *     ledger_slots.c     numbers as documents, where no index can be unique
 *     ledger_head.c      accounts by their numbers
 *     ledger_read.c      balances, statements
 *     ledger_sums.c      balances at a value date
 *     ledger_cut.c       all accounts in one cut; seals
 *     ledger_walk.c      all transactions, in order
 *     ledger_verify.c    the proof
 *     ledger_takeup.c    documents of other programs
 *     ledger_due.c       pending transactions whose time is over
 *     ledger_maintenance.c      sweep and check
 *     ledger_places.c    documents by the numbers of an account
 *
 * Tampering. Each account is a chain of hashes, and a link covers the whole transaction, so what is changed breaks the
 * chains of all its accounts. There is no chain over the book: its last link would be one document that every post
 * reads and takes, so all posts would meet there, as they do on a hot account, and two that have no account in common
 * would wait for each other. What such a chain would show beyond those of the accounts, a seal shows: it has the last
 * hash of every account in one consistent cut, under one hash. Who makes seals regularly, and keeps them elsewhere,
 * knows between which two of them the book was written anew.
 *
 * Deliberately not done: the description's state CANCELLED (a flag under which balances that were told were never so).
 * Values in decimal128: sums of it round at 34 digits, and one value has several forms (1.0 and 1.00), which compare as
 * equal and hash differently. Whole numbers of the smallest unit are exact, $inc and $sum of any MongoDB tool add them, and
 * the digits are the currency's: 18 of them still leave 9 units, 8 (of a coin) leave 92,000,000,000.
 */
#include "patterns/ledger/ledger.h"

#include <string.h>

#include "base/assert.h"
#include "base/field.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/reserved_fields.h"
#include "store/reserved.h"
#include "store/store.h"
#include "store/view.h"

/* ---- the handle ------------------------------------------------------------------------------- */

truce_ledger *truce_ledger_new(truce_store *store, const truce_ledger_options *options)
{
    truce_ledger *ledger = bson_malloc0(sizeof *ledger);
    const char *collection = options ? options->collection : NULL;

    ledger->store = store;
    ledger->collection = bson_strdup(collection ? collection : "");
    ledger->slots = options && options->slots ? bson_strdup(options->slots) : NULL;
    ledger->deadline_ms = options ? options->deadline_ms : 0;
    pthread_mutex_init(&ledger->mutex, NULL);
    bson_init(&ledger->currencies);
    if (ROOM_CHECK(options, "truce_ledger_options", &ledger->refusal)) {
        ledger->refused = true;
    } else if (!collection || !collection[0]) {
        ledger->refused = true;
        (void)truce__fail(TRUCE_INVALID, &ledger->refusal,
                          "a ledger has a collection: the option `collection` is missing");
    } else if (truce__reserved(collection) || (ledger->slots && truce__reserved(ledger->slots))) {
        ledger->refused = true;
        (void)truce__fail(TRUCE_INVALID, &ledger->refusal,
                          "the collection \"%.100s\" is truce's own",
                          truce__reserved(collection) ? collection : ledger->slots);
    } else if (ledger->slots && (!ledger->slots[0] || !strcmp(ledger->slots, collection))) {
        ledger->refused = true;
        (void)truce__fail(TRUCE_INVALID, &ledger->refusal,
                          "the option `slots` is a collection of its own");
    }
    return ledger;
}

void truce_ledger_free(truce_ledger *ledger)
{
    if (!ledger)
        return;
    truce_assert(!ledger->first && !ledger->leaders);
    truce__ledger_table_clear(&ledger->known);
    bson_destroy(&ledger->currencies);
    pthread_mutex_destroy(&ledger->mutex);
    bson_free(ledger->collection);
    bson_free(ledger->slots);
    bson_free(ledger);
}

truce_status truce__ledger_usable(const truce_ledger *ledger, bson_error_t *error)
{
    if (!ledger->refused)
        return TRUCE_OK;
    if (error)
        *error = ledger->refusal;
    return TRUCE_INVALID;
}

static truce_status ledger_refuse_name(const char *account, const char *why, bson_error_t *error)
{
    return truce__fail(TRUCE_INVALID, error, "\"%.60s\" is no name of an account: %s", account,
                       why);
}

truce_status truce__ledger_account_name(const char *account, bson_error_t *error)
{
    size_t length;

    if (!account)
        return truce__fail(TRUCE_INVALID, error, "an account has a name");
    length = strlen(account);
    if (!length || length > LEDGER_NAME_MAX)
        return ledger_refuse_name(account, "it has 1 to 200 bytes", error);
    if (!bson_utf8_validate(account, length, false))
        return ledger_refuse_name(account, "it is not UTF-8", error);
    if (account[0] == ':' || account[length - 1] == ':' || strstr(account, "::"))
        return ledger_refuse_name(account, "one of the parts between \":\" is empty", error);
    for (const char *at = account; *at; at++) {
        if ((uint8_t)*at < ' ' || *at == 127)
            return ledger_refuse_name(account, "it has a control character", error);
    }
    return TRUCE_OK;
}

/* ---- what is known of accounts ---------------------------------------------------------------- */

/* With the mutex held: forgets what was remembered of collections that may be others now. */
static void ledger_follow(truce_ledger *ledger)
{
    uint64_t structure = truce__store_structure(ledger->store) + 1;

    if (ledger->structure == structure)
        return;
    truce__ledger_table_clear(&ledger->known);
    bson_reinit(&ledger->currencies);
    ledger->ready = false;
    ledger->structure = structure;
}

bool truce__ledger_recall(truce_ledger *ledger, const char *account, struct ledger_state *state)
{
    const struct ledger_known *known;
    bool found;

    pthread_mutex_lock(&ledger->mutex);
    ledger_follow(ledger);
    known = truce__ledger_find(&ledger->known, account);
    found = known && known->loaded;
    if (found)
        *state = known->state;
    pthread_mutex_unlock(&ledger->mutex);
    return found;
}

void truce__ledger_remember(struct ledger_look *look, const char *account,
                            const struct ledger_state *state)
{
    truce_ledger *ledger = look->ledger;
    struct ledger_known *known;
    int64_t before;

    pthread_mutex_lock(&ledger->mutex);
    ledger_follow(ledger);
    if (ledger->known.count >= LEDGER_KNOWN_MAX && !truce__ledger_find(&ledger->known, account))
        truce__ledger_table_clear(&ledger->known);
    known = truce__ledger_at(&ledger->known, account);
    before = known->loaded ? known->state.number : -1;
    if (before < state->number)
        known->state = *state;
    known->loaded = true;
    pthread_mutex_unlock(&ledger->mutex);
    truce__ledger_sums_complete(look, account, before, state->number);
}

/* ---- indexes and definition ------------------------------------------------------------------- */

static truce_status ledger_make_index(truce_ledger *ledger, bson_t *index, bson_error_t *error)
{
    struct worker worker;
    truce_status status;

    truce__worker_init(&worker, ledger->store, ledger->deadline_ms);
    do
        status = truce__index_ensure(ledger->store, ledger->collection, index, error);
    while (truce__repeatable(status) && !truce__worker_wait(&worker, "the store", NULL));
    bson_destroy(index);
    return status;
}

/* Unique, unless documents of the numbers are: then nothing but _id need be. */
static bson_t *with_unique(const truce_ledger *ledger, bson_t *index)
{
    if (!ledger->slots)
        BSON_APPEND_BOOL(index, "unique", true);
    return index;
}

static truce_status ledger_make_indexes(truce_ledger *ledger, bson_error_t *error)
{
    bson_t *uncommitted =
        BCON_NEW("key", "{", "proc", BCON_INT32(1), "}", "name", BCON_UTF8("uncommitted"));
    truce_status status =
        ledger_make_index(ledger,
                          with_unique(ledger, BCON_NEW("key", "{", "changes.account", BCON_INT32(1),
                                                       "changes.seqId", BCON_INT32(1), "}")),
                          error);

    if (!status)
        status =
            ledger_make_index(ledger,
                              with_unique(ledger, BCON_NEW("key", "{", "resolves", BCON_INT32(1),
                                                           "}", "sparse", BCON_BOOL(true))),
                              error);
    if (!status)
        status = ledger_make_index(
            ledger, BCON_NEW("key", "{", "opens", BCON_INT32(1), "}", "sparse", BCON_BOOL(true)),
            error);
    if (!status)
        status = ledger_make_index(
            ledger, BCON_NEW("key", "{", "open", BCON_INT32(1), "}", "sparse", BCON_BOOL(true)),
            error);
    if (ledger->store->capabilities & TRUCE_CAN_PARTIAL_INDEX)
        BCON_APPEND(uncommitted, "partialFilterExpression", "{", "proc", BCON_UTF8("UNCOMMITTED"),
                    "}");
    return status ? (bson_destroy(uncommitted), status)
                  : ledger_make_index(ledger, uncommitted, error);
}

/* What the definition says holds; the option must not say another thing. */
static truce_status ledger_take_layout(truce_ledger *ledger, const bson_t *definition,
                                       bson_error_t *error)
{
    const char *slots = truce__field_text(definition, "slots");
    truce_status status = TRUCE_OK;

    pthread_mutex_lock(&ledger->mutex);
    if (ledger->slots && strcmp(ledger->slots, slots) != 0)
        status = truce__fail(TRUCE_INVALID, error,
                             "ledger %s was made with its numbers in %s, and not in \"%.100s\"",
                             ledger->collection, *slots ? slots : "an index", ledger->slots);
    else if (*slots && !ledger->slots)
        ledger->slots = bson_strdup(slots);
    pthread_mutex_unlock(&ledger->mutex);
    return status;
}

truce_status truce__ledger_layout(truce_ledger *ledger, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, found;
    truce_status status;

    BSON_APPEND_UTF8(&filter, "_id", ledger->collection);
    status = truce_find_one(ledger->store, LEDGERS, &filter, NULL, &found, error);
    if (!status)
        status = ledger_take_layout(ledger, &found, error);
    bson_destroy(&found);
    bson_destroy(&filter);
    return status;
}

static truce_status ledger_define_once(truce_ledger *ledger, bson_error_t *error)
{
    bson_t document = BSON_INITIALIZER, currencies;
    truce_status status = truce__ledger_layout(ledger, error);

    BSON_APPEND_UTF8(&document, "_id", ledger->collection);
    if (status == TRUCE_NOT_FOUND) {
        if (ledger->slots)
            BSON_APPEND_UTF8(&document, "slots", ledger->slots);
        bson_append_document_begin(&document, "currencies", -1, &currencies);
        bson_append_document_end(&document, &currencies);
        status = truce_insert(ledger->store, LEDGERS, &document, NULL, error);
    }
    bson_destroy(&document);
    return status == TRUCE_DUPLICATE ? truce__ledger_layout(ledger, error) : status;
}

/* {_id: collection} in LEDGERS, there from now on */
static truce_status ledger_define(truce_ledger *ledger, bson_error_t *error)
{
    struct worker worker;
    truce_status status;

    truce__worker_init(&worker, ledger->store, ledger->deadline_ms);
    do
        status = ledger_define_once(ledger, error);
    while (truce__repeatable(status) && !truce__worker_wait(&worker, "the store", NULL));
    return status;
}

truce_status truce__ledger_ready(truce_ledger *ledger, bson_error_t *error)
{
    truce_status status = truce__ledger_usable(ledger, error);
    uint64_t structure;
    bool ready;

    pthread_mutex_lock(&ledger->mutex);
    ledger_follow(ledger);
    ready = ledger->ready;
    structure = ledger->structure;
    pthread_mutex_unlock(&ledger->mutex);
    if (status || ready)
        return status;
    status = truce__view_guard(ledger->store, "post", ledger->collection, error);
    if (!status)
        status = ledger_define(ledger, error);
    if (!status)
        status = ledger_make_indexes(ledger, error);
    if (!status)
        status = truce__ledger_sums_clean(ledger, error);
    if (!status) {
        pthread_mutex_lock(&ledger->mutex);
        ledger->ready = ledger->structure == structure;
        pthread_mutex_unlock(&ledger->mutex);
    }
    return status;
}

/* ---- currencies ------------------------------------------------------------------------------- */

static truce_status ledger_check_code(const char *code, bson_error_t *error)
{
    size_t length = code ? strlen(code) : 0;

    if (length >= 1 && length <= 24 &&
        strspn(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") == length)
        return TRUCE_OK;
    return truce__fail(TRUCE_INVALID, error,
                       "\"%.60s\" is no currency: 1 to 24 letters, digits, \"-\" and \"_\"",
                       code ? code : "");
}

static bool digits_in(const bson_t *currencies, const char *code, int *digits)
{
    bson_iter_t iter;

    if (!bson_iter_init_find(&iter, currencies, code))
        return false;
    *digits = (int)bson_iter_as_int64(&iter);
    return true;
}

static truce_status load_currencies(truce_ledger *ledger, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, found, currencies;
    truce_status status;

    BSON_APPEND_UTF8(&filter, "_id", ledger->collection);
    status = truce_find_one(ledger->store, LEDGERS, &filter, NULL, &found, error);
    if (!status && truce__value_subdocument(&found, "currencies", &currencies)) {
        pthread_mutex_lock(&ledger->mutex);
        bson_destroy(&ledger->currencies);
        bson_copy_to(&currencies, &ledger->currencies);
        pthread_mutex_unlock(&ledger->mutex);
    }
    bson_destroy(&found);
    bson_destroy(&filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

truce_status truce_ledger_digits(truce_ledger *ledger, const char *code, int *digits,
                                 bson_error_t *error)
{
    RETURN_IF_NULL(digits, error);

    truce_status status = truce__ledger_usable(ledger, error);
    bool found = false;

    *digits = 0;
    if (!status)
        status = ledger_check_code(code, error);
    for (int look = 0; !status && !found && look < 2; look++) {
        if (look)
            status = load_currencies(ledger, error);
        pthread_mutex_lock(&ledger->mutex);
        ledger_follow(ledger);
        found = digits_in(&ledger->currencies, code, digits);
        pthread_mutex_unlock(&ledger->mutex);
    }
    return status || found ? status
                           : truce__fail(TRUCE_NOT_FOUND, error, "unknown currency \"%s\"", code);
}

/* {_id, currencies.CODE: absent} -> set: sent as often as need be */
static truce_status ledger_add_currency(truce_ledger *ledger, const char *code, int digits,
                                        bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER, inner;
    struct worker worker;
    truce_status status;
    char path[40];

    truce__worker_init(&worker, ledger->store, ledger->deadline_ms);
    snprintf(path, sizeof path, "currencies.%s", code);
    BSON_APPEND_UTF8(&filter, "_id", ledger->collection);
    bson_append_document_begin(&filter, path, -1, &inner);
    BSON_APPEND_BOOL(&inner, "$exists", false);
    bson_append_document_end(&filter, &inner);
    bson_append_document_begin(&update, "$set", 4, &inner);
    BSON_APPEND_INT32(&inner, path, digits);
    bson_append_document_end(&update, &inner);
    do
        status = truce_update(ledger->store, LEDGERS, &filter, &update, NULL, NULL, error);
    while (truce__repeatable(status) && !truce__worker_wait(&worker, "the store", NULL));
    bson_destroy(&update);
    bson_destroy(&filter);
    return status;
}

truce_status truce_ledger_currency(truce_ledger *ledger, const char *code, int digits,
                                   bson_error_t *error)
{
    int there;
    truce_status status = truce__ledger_usable(ledger, error);

    if (!status)
        status = ledger_check_code(code, error);
    if (!status && (digits < 0 || digits > 18))
        status = truce__fail(TRUCE_INVALID, error, "a currency has 0 to 18 digits, not %d", digits);
    if (!status)
        status = truce__ledger_ready(ledger, error);
    if (!status)
        status = truce_ledger_digits(ledger, code, &there, error);
    if (status == TRUCE_NOT_FOUND) {
        status = ledger_add_currency(ledger, code, digits, error);
        if (!status)
            status = load_currencies(ledger, error);
        if (!status)
            status = truce_ledger_digits(ledger, code, &there, error);
    }
    if (!status && there != digits)
        status = truce__fail(TRUCE_DUPLICATE, error, "the currency %s has %d digits, not %d", code,
                             there, digits);
    return status;
}

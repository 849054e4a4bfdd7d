/*
 * The ledger: the handle, the documents, and the invariants.
 *
 *     transaction   {_id: the caller's, ts, kind, proc, state, opens?, resolves?, part?,
 *                    effective?, expires?, open?, meta?, refused?,
 *                    changes: [{account, type, value, currency, seqId, release?, set?,
 *                               cachedBal, pendingOut?, pendingIn?, rules, hash}]}
 *
 *     proc       COMMITTED    the document has its numbers, balances, and hashes
 *                UNCOMMITTED  another program inserted it, and truce has neither committed nor
 *                             refused it yet (ledger_foreign_documents.c)
 *                REFUSED      another program inserted it, and it cannot be a transaction
 *     state      VALID     its values count
 *                PENDING   its values are reserved. It stays PENDING; another transaction decides
 *                VOID      it only releases the reserved amounts of a pending transaction
 *     resolves   the _id of the pending transaction that it settles, voids, or releases after its
 *                expiry, or of the transaction that it reverses
 *     open       the expiry of a pending transaction: a hint for queries; removed when it is
 *                settled
 *     changes    `release`: the part of a pending change that is free again
 *                `set`: the account's rules from here on
 *
 * A post reads the last number and the state of each account, and inserts the document with the
 * next numbers. If a number is taken, it reads again. Nothing changes a committed transaction
 * afterward, except that the hint `open` is removed.
 *
 * Invariants:
 *
 *  LG1.  The unique index (or documents of numbers) gives each (account, seqId) once. An insert
 *        takes numbers that follow an existing one. The numbers of an account therefore have no
 *        gaps and one order. An insert that takes effect late takes the number that is next at that
 *        time, or none.
 *  LG2.  A transaction never changes. Settling, voiding, or reversing it is another transaction.
 *  LG3.  A transaction is inserted COMMITTED, with the balances after it, after the last committed
 *        number of each of its accounts. The entries that made these balances can no longer change.
 *        A document of another program is taken up by one write that compares every field it used
 *        (LF1 to LF5, ledger_foreign_documents.c). `cachedBal` is therefore right or absent.
 *  LG4.  The balance after a number is the one in its change. Only committed numbers count.
 *  LG5.  A rule is checked against the state before the number that is taken, so no other
 *        transaction comes in between. Each of several changes of one account is checked, because
 *        each leaves a balance. A change of rules takes a number, too, so it is ordered among the
 *        transactions.
 *  LG6.  `resolves` is unique: only one of settling, voiding, expiring, and reversing takes place.
 *        Clocks only suggest it.
 *  LG7.  An id is posted once. If a post is sent again, with any numbers, the unique `_id` refuses
 *        it, and the post finds the stored transaction.
 *  LG8.  A sum that exceeds 64 bits is refused before anything is written.
 *  LG9.  Transactions of one batch are sent in the order of their numbers. If one fails, the
 *        following ones are not executed. No transaction therefore follows a missing number.
 *  LG10. The booking time never decreases from one number of an account to the next.
 *  LG11. A cut is consistent if it contains each transaction with all its changes or with none
 *        (ledger_snapshot.c).
 *  LG12. The cached state of an account is returned without a read only while the store still has
 *        the version that it had before that state was last read.
 *
 * The model is models/ledger.cpp. A crash leaves a transaction stored or not stored. The hint
 * `open` may remain; the sweep removes it.
 *
 *     ledger_plan.c          from a request to a document (ledger_gather.c to ledger_build.c)
 *     ledger_foreign_documents.c   documents of other programs
 *     ledger_post.c          the calls: one post, many, posts in commits
 *     ledger_expiry.c        pending transactions that have expired
 *     ledger_batch.c         many posts together, as one bulk
 *     ledger_commit.c        posts in a commit
 *     ledger_slots.c         numbers as documents, where no index can be unique
 *     ledger_account_head.c  accounts by their numbers
 *     ledger_statement.c     balances, statements
 *     ledger_value_date.c    balances at a value date
 *     ledger_snapshot.c      all accounts in one cut; seals
 *     ledger_walk.c          all transactions, in order
 *     ledger_verify.c        the verification
 *     ledger_account_list.c  a sorted list of accounts that need not fit into memory
 *     ledger_maintenance.c   sweep and check
 *
 * Tampering. Each account is a chain of hashes. A link covers the whole transaction, so a changed
 * transaction breaks the chains of all its accounts. There is no chain over the book: its last link
 * would be one document that every post reads and writes, so posts of different accounts would wait
 * for each other. A seal shows what such a chain would show in addition: it has the last hash of
 * every account in one consistent cut, under one hash. If you make seals regularly and keep them
 * elsewhere, you know between which two seals the book was rewritten.
 *
 * Deliberately not done: the state CANCELLED of the pattern's description, a flag under which
 * reported balances were never valid. Values in decimal128: their sums round at 34 digits, and one
 * value has several forms (1.0 and 1.00), which compare as equal and hash differently. Whole
 * numbers of the smallest unit are exact, and $inc and $sum of any MongoDB tool add them. The
 * currency has the digits: with 18 digits an amount can reach 9 units, with 8 digits (of a coin)
 * 92,000,000,000.
 */
#include "patterns/ledger/ledger.h"

#include <string.h>

#include "base/assert.h"
#include "base/field.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/plural.h"
#include "base/reserved_fields.h"
#include "commit/metadata_cache.h"
#include "store/known_names.h"
#include "store/reserved_names.h"
#include "store/snapshot_view.h"
#include "store/store.h"

/* ---- the handle ------------------------------------------------------------------------------ */

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
                          "the option `collection` of the ledger is missing");
    } else if (truce__reserved(collection) || (ledger->slots && truce__reserved(ledger->slots))) {
        ledger->refused = true;
        (void)truce__fail(
            TRUCE_INVALID, &ledger->refusal,
            "the collection \"%.100s\" is reserved for truce: name another one for the ledger",
            truce__reserved(collection) ? collection : ledger->slots);
    } else if (ledger->slots && (!ledger->slots[0] || !strcmp(ledger->slots, collection))) {
        ledger->refused = true;
        (void)truce__fail(
            TRUCE_INVALID, &ledger->refusal,
            "the option `slots` is \"%.100s\": expected a collection other than that of the ledger",
            ledger->slots);
    }
    return ledger;
}

/* Frees what a handle caches: of its plan, only the states of accounts. */
void truce__ledger_plan_cache_free(struct ledger_plan_cache *kept)
{
    if (kept)
        truce__ledger_table_clear(&kept->plan.book);
    bson_free(kept);
}

void truce_ledger_free(truce_ledger *ledger)
{
    if (!ledger)
        return;
    /* In a forked child, the threads of a call that was running do not exist. */
    truce_assert(truce__store_not_inherited(ledger->store, NULL) ||
                 (!ledger->first && !ledger->leaders));
    truce__ledger_table_clear(&ledger->known);
    truce__ledger_plan_cache_free(ledger->kept);
    bson_destroy(&ledger->currencies);
    pthread_mutex_destroy(&ledger->mutex);
    bson_free(ledger->collection);
    bson_free(ledger->slots);
    bson_free(ledger);
}

truce_status truce__ledger_usable(const truce_ledger *ledger, bson_error_t *error)
{
    return truce__handle_usable(ledger->store, ledger->refused, &ledger->refusal, error);
}

static truce_status ledger_refuse_name(const char *account, const char *why, bson_error_t *error)
{
    return truce__fail(TRUCE_INVALID, error, "\"%.60s\" is not a valid name of an account: %s",
                       account, why);
}

truce_status truce__ledger_account_name(const char *account, bson_error_t *error)
{
    size_t length;

    if (!account)
        return truce__fail(TRUCE_INVALID, error, "the name of the account is missing");
    length = strlen(account);
    if (!length || length > LEDGER_NAME_MAX)
        return ledger_refuse_name(account, "expected 1 to 200 bytes", error);
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

/* ---- remembered accounts --------------------------------------------------------------------- */

/* The maximum number of values in the tails of all accounts of a handle: 12 MB. */
#define TAILS_MAX 500000

/* Forgets the states of all accounts. The caller holds the mutex. */
static void ledger_forget_accounts(truce_ledger *ledger)
{
    truce__ledger_table_clear(&ledger->known);
    ledger->tails = 0;
}

/* Forgets everything that was remembered of collections that may have been replaced since. The
 * caller holds the mutex. */
static void ledger_follow(truce_ledger *ledger)
{
    uint64_t structure = truce__metadata_structure(ledger->store) + 1;

    if (ledger->structure == structure)
        return;
    ledger_forget_accounts(ledger);
    bson_reinit(&ledger->currencies);
    ledger->ready = false;
    ledger->structure = structure;
}

void truce__ledger_forget(truce_ledger *ledger)
{
    pthread_mutex_lock(&ledger->mutex);
    ledger->structure = 0;
    ledger_follow(ledger);
    pthread_mutex_unlock(&ledger->mutex);
}

truce_status truce__ledger_begin_again(truce_ledger *ledger, bson_error_t *error)
{
    bson_t *id_only, found;
    truce_find_options options = {0};
    truce_status status = truce__ledger_usable(ledger, error);

    if (status || truce__store_sees_drops(ledger->store))
        return status;
    options.projection = id_only = BCON_NEW("_id", BCON_INT32(1));
    status = truce_find_one(ledger->store, ledger->collection, NULL, &options, &found, error);
    if (status == TRUCE_NOT_FOUND)
        truce__ledger_forget(ledger);
    bson_destroy(&found);
    bson_destroy(id_only);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
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

/* Remembers the state unless a later one is remembered. *before is the number that was remembered,
 * or -1. The caller holds the mutex. */
static struct ledger_known *ledger_remember_state(truce_ledger *ledger, const char *account,
                                                  const struct ledger_state *state,
                                                  uint64_t version, int64_t *before)
{
    struct ledger_known *known;

    ledger_follow(ledger);
    if (ledger->known.count >= LEDGER_KNOWN_MAX && !truce__ledger_find(&ledger->known, account))
        ledger_forget_accounts(ledger);
    known = truce__ledger_at(&ledger->known, account);
    *before = known->loaded ? known->state.number : -1;
    /* Invariant LG12: a later state is not replaced by an earlier one. */
    if (*before <= state->number) {
        known->state = *state;
        known->version = version;
    }
    known->loaded = true;
    return known;
}

void truce__ledger_remember(struct ledger_reader *reader, const char *account,
                            const struct ledger_state *state, uint64_t version)
{
    truce_ledger *ledger = reader->ledger;
    int64_t before;

    pthread_mutex_lock(&ledger->mutex);
    (void)ledger_remember_state(ledger, account, state, version, &before);
    pthread_mutex_unlock(&ledger->mutex);
    truce__ledger_sums_complete(reader, account, before, state->number);
}

void truce__ledger_remember_posted(struct ledger_reader *reader, const struct ledger_known *posted,
                                   struct ledger_runs *runs)
{
    truce_ledger *ledger = reader->ledger;
    struct ledger_known *known;
    int64_t before, begun;

    if (!posted->tail.count) {
        truce__ledger_remember(reader, posted->account, &posted->state, 0);
        return;
    }
    pthread_mutex_lock(&ledger->mutex);
    known = ledger_remember_state(ledger, posted->account, &posted->state, 0, &before);
    ledger->tails -= known->tail.count;
    begun = truce__ledger_tail_join(&known->tail, posted, runs);
    if (ledger->tails + known->tail.count > TAILS_MAX)
        truce__ledger_tail_release(&known->tail);
    ledger->tails += known->tail.count;
    pthread_mutex_unlock(&ledger->mutex);
    if (before < 0)
        before = posted->tail.after;
    truce__ledger_sums_complete(reader, posted->account, before, begun);
}

bool truce__ledger_recall_last(truce_ledger *ledger, const char *account, uint64_t version,
                               struct ledger_state *state)
{
    const struct ledger_known *known;
    bool found;

    pthread_mutex_lock(&ledger->mutex);
    ledger_follow(ledger);
    known = truce__ledger_find(&ledger->known, account);
    /* Invariant LG12: the state is the last one only if the store has not changed since the
     * read. */
    found = known && version && known->version == version;
    if (found)
        *state = known->state;
    pthread_mutex_unlock(&ledger->mutex);
    return found;
}

/* ---- indexes and definition ------------------------------------------------------------------ */

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

/* Adds `unique`, unless numbers are documents: then only _id has to be unique. */
static bson_t *ledger_with_unique(const truce_ledger *ledger, bson_t *index)
{
    if (!ledger->slots)
        BSON_APPEND_BOOL(index, "unique", true);
    return index;
}

/* Adds to the server's reason that a ledger can do without the index. */
static void ledger_hint_slots(bson_error_t *error)
{
    size_t length = strlen(error->message);

    snprintf(error->message + length, sizeof error->message - length,
             "; a ledger whose numbers are documents needs no such index: `truce ledger currency "
             "LEDGER CODE DIGITS --slots COLLECTION`");
}

/* Creates the indexes of the ledger. If the store cannot make the numbers unique, the error names
 * the option `slots`. */
static truce_status ledger_make_indexes(truce_ledger *ledger, bson_error_t *error)
{
    bson_t *uncommitted =
        BCON_NEW("key", "{", "proc", BCON_INT32(1), "}", "name", BCON_UTF8("uncommitted"));
    truce_status status = ledger_make_index(
        ledger,
        ledger_with_unique(ledger, BCON_NEW("key", "{", "changes.account", BCON_INT32(1),
                                            "changes.seqId", BCON_INT32(1), "}")),
        error);

    if (status == TRUCE_INVALID && !ledger->slots && error && error->domain == TRUCE_ERROR_SERVER)
        ledger_hint_slots(error);
    if (!status)
        status = ledger_make_index(
            ledger,
            ledger_with_unique(ledger, BCON_NEW("key", "{", "resolves", BCON_INT32(1), "}",
                                                "sparse", BCON_BOOL(true))),
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

/* Takes the layout of the stored definition; the option must not contradict it. */
static truce_status ledger_take_layout(truce_ledger *ledger, const bson_t *definition,
                                       bson_error_t *error)
{
    const char *slots = truce__field_text(definition, "slots");
    truce_status status = TRUCE_OK;

    pthread_mutex_lock(&ledger->mutex);
    if (ledger->slots && strcmp(ledger->slots, slots) != 0)
        status = truce__fail(TRUCE_INVALID, error,
                             "ledger \"%s\" was made with its numbers in %s, not in \"%.100s\"",
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

/* Checks a ledger without a definition: it exists if another program has stored documents. */
static truce_status ledger_has_documents(truce_ledger *ledger, bson_error_t *error)
{
    bson_t any = BSON_INITIALIZER, found;
    truce_status status =
        truce_find_one(ledger->store, ledger->collection, &any, NULL, &found, error);

    if (status == TRUCE_NOT_FOUND)
        status = truce__fail_unknown(ledger->store, LEDGERS, "ledger", ledger->collection, error);
    bson_destroy(&found);
    bson_destroy(&any);
    return status;
}

truce_status truce__ledger_must_exist(truce_ledger *ledger, bson_error_t *error)
{
    truce_status status = truce__ledger_usable(ledger, error);

    if (!status)
        status = truce__ledger_layout(ledger, error);
    return status == TRUCE_NOT_FOUND ? ledger_has_documents(ledger, error) : status;
}

truce_status truce__ledger_not_open(truce_ledger *ledger, const char *account, bson_error_t *error)
{
    if (truce__ledger_must_exist(ledger, error) == TRUCE_NOT_FOUND)
        return TRUCE_NOT_FOUND;
    return truce__fail(TRUCE_NOT_FOUND, error, "account \"%s\" is not open in \"%s\"", account,
                       ledger->collection);
}

/* Reads the definition of the ledger, or stores it if the ledger is new. Without `creates`, a new
 * ledger must already have documents. */
static truce_status ledger_define_once(truce_ledger *ledger, bool creates, bson_error_t *error)
{
    bson_t document = BSON_INITIALIZER, currencies;
    truce_status status = truce__ledger_layout(ledger, error);
    bool defined = status != TRUCE_NOT_FOUND;

    BSON_APPEND_UTF8(&document, "_id", ledger->collection);
    if (!defined)
        status = creates ? TRUCE_OK : ledger_has_documents(ledger, error);
    if (!status && !defined) {
        if (ledger->slots)
            BSON_APPEND_UTF8(&document, "slots", ledger->slots);
        bson_append_document_begin(&document, "currencies", -1, &currencies);
        bson_append_document_end(&document, &currencies);
        status = truce_insert(ledger->store, LEDGERS, &document, NULL, error);
    }
    if (status == TRUCE_DUPLICATE)
        status = truce__ledger_layout(ledger, error);
    if (!status)
        truce__metadata_rely(ledger->store, LEDGERS, &document);
    bson_destroy(&document);
    return status;
}

/* Ensures that LEDGERS has {_id: collection}. */
static truce_status ledger_define(truce_ledger *ledger, bool creates, bson_error_t *error)
{
    struct worker worker;
    truce_status status;

    truce__worker_init(&worker, ledger->store, ledger->deadline_ms);
    do
        status = ledger_define_once(ledger, creates, error);
    while (truce__repeatable(status) && !truce__worker_wait(&worker, "the store", NULL));
    return status;
}

truce_status truce__ledger_ready(truce_ledger *ledger, bool creates, bson_error_t *error)
{
    truce_status status = truce__ledger_usable(ledger, error);
    uint64_t structure;
    bool ready;

    if (status)
        return status;
    pthread_mutex_lock(&ledger->mutex);
    ledger_follow(ledger);
    ready = ledger->ready;
    structure = ledger->structure;
    pthread_mutex_unlock(&ledger->mutex);
    if (ready)
        return TRUCE_OK;
    status = truce__view_guard(ledger->store, "post", ledger->collection, error);
    if (!status)
        status = ledger_define(ledger, creates, error);
    if (!status)
        status = ledger_make_indexes(ledger, error);
    if (!status) {
        /* A failure is ignored: runs of an earlier book do no harm, and the sweep removes them,
         * too. */
        bson_error_t ignored;

        (void)!truce__ledger_sums_clean(ledger, &ignored);
        pthread_mutex_lock(&ledger->mutex);
        ledger->ready = ledger->structure == structure;
        pthread_mutex_unlock(&ledger->mutex);
    }
    return status;
}

/* ---- currencies ------------------------------------------------------------------------------ */

static truce_status ledger_check_code(const char *code, bson_error_t *error)
{
    size_t length = code ? strlen(code) : 0;

    if (length >= 1 && length <= LEDGER_CURRENCY_MAX &&
        strspn(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") == length)
        return TRUCE_OK;
    return truce__fail(
        TRUCE_INVALID, error,
        "\"%.60s\" is not a valid currency: expected 1 to %d letters, digits, \"-\", and \"_\"",
        code ? code : "", LEDGER_CURRENCY_MAX);
}

static bool ledger_find_digits(const bson_t *currencies, const char *code, int *digits)
{
    bson_iter_t iter;

    if (!bson_iter_init_find(&iter, currencies, code))
        return false;
    *digits = (int)bson_iter_as_int64(&iter);
    return true;
}

/* Reads the currencies of the ledger into the handle, and looks one of them up. The result is that of
 * this read, also if another thread makes the handle forget the currencies at the same time. */
static truce_status ledger_load_currencies(truce_ledger *ledger, const char *code, bool *known,
                                           int *digits, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, found, currencies;
    truce_status status;

    *known = false;
    BSON_APPEND_UTF8(&filter, "_id", ledger->collection);
    status = truce_find_one(ledger->store, LEDGERS, &filter, NULL, &found, error);
    if (!status && truce__value_subdocument(&found, "currencies", &currencies)) {
        *known = ledger_find_digits(&currencies, code, digits);
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
    if (!status) {
        pthread_mutex_lock(&ledger->mutex);
        ledger_follow(ledger);
        found = ledger_find_digits(&ledger->currencies, code, digits);
        pthread_mutex_unlock(&ledger->mutex);
    }
    if (!status && !found)
        status = ledger_load_currencies(ledger, code, &found, digits, error);
    if (status || found)
        return status;
    return truce__fail(
        TRUCE_NOT_FOUND, error,
        "unknown currency \"%s\": declare the currency first with its 'digits', the number of "
        "decimals of its amounts",
        code);
}

/* Sets the digits if {_id, currencies.CODE: absent}. It can be sent any number of times. */
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
    if (!status && (digits < 0 || digits > LEDGER_DIGITS_MAX))
        status =
            truce__fail(TRUCE_INVALID, error, "invalid number of digits %d: a currency has 0 to %d",
                        digits, LEDGER_DIGITS_MAX);
    if (!status)
        status = truce__ledger_begin_again(ledger, error);
    if (!status)
        status = truce__ledger_ready(ledger, true, error);
    if (!status)
        status = truce_ledger_digits(ledger, code, &there, error);
    if (status == TRUCE_NOT_FOUND) {
        bool known;

        status = ledger_add_currency(ledger, code, digits, error);
        if (!status)
            status = ledger_load_currencies(ledger, code, &known, &there, error);
        /* The ledger was dropped at the same time. */
        if (!status && !known)
            status = truce_ledger_digits(ledger, code, &there, error);
    }
    if (!status && there != digits)
        status = truce__fail(TRUCE_DUPLICATE, error, "the currency %s has %s, not %d", code,
                             PLURAL(there, "digit", "digits"), digits);
    return status;
}

/*
 * Reading accounts: transactions by an account's numbers, and its last committed number.
 *
 * A sort by "changes.seqId" would use the greatest number of any account of the document;
 * docs/ledger.md explains this query of the pattern's description. The committed numbers of an
 * account have no gaps, so the last one can be searched for. The search reads the numbers 1, 2, 4,
 * 16, 64 ... after the known one, then numbers between the last committed one and the first one
 * that is not.
 *
 *     known 801, nothing after it               one query, which returns nothing
 *     nothing known, a million entries          5 queries of up to 16 numbers; a store that can
 *                                               read an index from its end returns the last
 *                                               number at once
 *
 * An anchor is a COMMITTED change with its balance and its hash. Only anchors count. Documents that
 * other programs inserted, and that are not taken up yet, may skip numbers or have any content;
 * they are not part of the account. The head reports that there are such documents (`behind`);
 * ledger_plan.c handles them.
 *
 * A stub of a commit in flight is resolved first, so a document that was found is final.
 */
#include "base/assert.h"
#include "base/field.h"
#include "patterns/ledger/ledger.h"
#include "store/snapshot_view.h"
#include "store/store.h"

void truce__ledger_reader_init(struct ledger_reader *reader, truce_ledger *ledger)
{
    *reader = (struct ledger_reader){.ledger = ledger};
    truce__worker_init(&reader->worker, ledger->store, ledger->deadline_ms);
}

/* ---- several transactions -------------------------------------------------------------------- */

/* Returns whether the document is a stub of a commit. An intent that is not a stub is on a stored
 * document, whose content is valid. */
bool truce__ledger_is_stub(const bson_t *document)
{
    bson_iter_t iter, inner;

    return bson_iter_init_find(&iter, document, "_intent") &&
           (!BSON_ITER_HOLDS_DOCUMENT(&iter) || !bson_iter_recurse(&iter, &inner) ||
            bson_iter_find(&inner, "new"));
}

/* Keeps a document that was found. Sets *again if it was a stub, which is resolved now. */
static truce_status head_collect(struct ledger_reader *reader, const char *collection,
                                 const bson_t *found, struct ledger_documents *documents,
                                 bool *again, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_t copy;

    if (!truce__ledger_is_stub(found)) {
        truce__ledger_keep(documents, found);
        return TRUCE_OK;
    }
    bson_copy_to(found, &copy);
    if (truce__is_only_read(reader->ledger->store)) {
        status = truce__intent_see(reader->ledger->store, collection, &copy, error);
        if (!status)
            truce__ledger_keep(documents, &copy);
    } else {
        status = truce__intent_complete_other(&reader->worker, collection, &copy, error);
        *again = true;
    }
    bson_destroy(&copy);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Reads the matching documents once. Sets *again if one was a stub, which is resolved now. */
static truce_status head_find_once(struct ledger_reader *reader, const char *collection,
                                   const bson_t *filter, const truce_find_options *options,
                                   struct ledger_documents *documents, bool *again,
                                   bson_error_t *error)
{
    truce_cursor *cursor = NULL;
    const bson_t *found = NULL;
    truce_status status =
        truce_find(reader->ledger->store, collection, filter, options, &cursor, error);

    while (!status && !*again) {
        status = truce_cursor_next(cursor, &found, error);
        if (status || !found)
            break;
        status = head_collect(reader, collection, found, documents, again, error);
    }
    truce_cursor_close(cursor);
    return status;
}

/* Reads the matching documents, and repeats the read until none is a stub. Appends them to
 * `documents`. */
static truce_status head_fetch(struct ledger_reader *reader, const char *collection,
                               const bson_t *filter, const truce_find_options *options,
                               struct ledger_documents *documents, bson_error_t *error)
{
    reader->worker.waits = 0;
    for (;;) {
        struct ledger_documents found = {0};
        bool again = false;
        truce_status status =
            head_find_once(reader, collection, filter, options, &found, &again, error);

        if (status == TRUCE_UNKNOWN) {
            status = truce__worker_wait(&reader->worker, "the store", error);
            again = true;
        }
        if (!status && !again) {
            for (uint32_t i = 0; i < found.count; i++)
                truce__ledger_keep(documents, found.items[i]);
        }
        truce__ledger_documents_release(&found);
        if (status || !again)
            return status;
    }
}

truce_status truce__ledger_fetch_filter(struct ledger_reader *reader, const bson_t *filter,
                                        const bson_t *sort, int64_t limit,
                                        struct ledger_documents *documents, bson_error_t *error)
{
    truce_find_options options = {.sort = sort, .limit = limit, .early = reader->early};

    return head_fetch(reader, reader->ledger->collection, filter, &options, documents, error);
}

truce_status truce__ledger_fetch_in(struct ledger_reader *reader, const char *collection,
                                    const bson_t *filter, struct ledger_documents *documents,
                                    bson_error_t *error)
{
    truce_find_options options = {.early = reader->early};

    return head_fetch(reader, collection, filter, &options, documents, error);
}

static void head_filter_numbers(const char *account, const bson_t *condition, bson_t *filter)
{
    bson_t changes, element;

    bson_append_document_begin(filter, "changes", 7, &changes);
    bson_append_document_begin(&changes, "$elemMatch", 10, &element);
    BSON_APPEND_UTF8(&element, "account", account);
    BSON_APPEND_DOCUMENT(&element, "seqId", condition);
    bson_append_document_end(&changes, &element);
    bson_append_document_end(filter, &changes);
}

truce_status truce__ledger_fetch(struct ledger_reader *reader, const char *account,
                                 const bson_t *condition, int64_t limit,
                                 struct ledger_documents *documents, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER;
    truce_status status;

    head_filter_numbers(account, condition, &filter);
    status = truce__ledger_fetch_filter(reader, &filter, NULL, limit, documents, error);
    bson_destroy(&filter);
    return status;
}

truce_status truce__ledger_fetch_accounts(struct ledger_reader *reader, const bson_t *accounts,
                                          struct ledger_documents *documents, bson_error_t *error)
{
    bson_t *filter =
        BCON_NEW("changes", "{", "$elemMatch", "{", "account", "{", "$in", BCON_ARRAY(accounts),
                 "}", "seqId", "{", "$gt", BCON_INT64(0), "}", "}", "}");
    truce_status status = truce__ledger_fetch_filter(reader, filter, NULL, 0, documents, error);

    bson_destroy(filter);
    return status;
}

truce_status truce__ledger_fetch_numbers(struct ledger_reader *reader, const char *account,
                                         const int64_t *numbers, uint32_t count,
                                         struct ledger_documents *documents, bson_error_t *error)
{
    bson_t condition = BSON_INITIALIZER, list;
    truce_status status;

    bson_append_array_begin(&condition, "$in", 3, &list);
    for (uint32_t i = 0; i < count; i++) {
        char buffer[16];
        const char *key;
        size_t length = bson_uint32_to_string(i, &key, buffer, sizeof buffer);

        bson_append_int64(&list, key, (int)length, numbers[i]);
    }
    bson_append_array_end(&condition, &list);
    status = truce__ledger_fetch(reader, account, &condition, 0, documents, error);
    bson_destroy(&condition);
    return status;
}

truce_status truce__ledger_fetch_range(struct ledger_reader *reader, const char *account,
                                       int64_t from, int64_t to, struct ledger_documents *documents,
                                       bson_error_t *error)
{
    int64_t numbers[LEDGER_WINDOW];
    truce_status status = TRUCE_OK;

    while (!status && from <= to) {
        uint32_t count = 0;

        while (count < LEDGER_WINDOW && from <= to)
            numbers[count++] = from++;
        status = truce__ledger_fetch_numbers(reader, account, numbers, count, documents, error);
    }
    return status;
}

bool truce__ledger_is_anchor(const bson_t *document, const struct ledger_change *change)
{
    return change->cached && change->hashed && truce__ledger_is(document, "proc", "COMMITTED");
}

/* ---- the last number ------------------------------------------------------------------------- */

/* The search for the last number. `low` is committed, or 0 if no number is known. `high` is not
 * committed, or 0 if no such number is known. `document` has the number `low`, or is NULL if it was
 * not read. */
struct search {
    int64_t low, high;
    bson_t *document;
};

static void head_replace_document(struct search *search, const bson_t *document)
{
    bson_destroy(search->document);
    search->document = bson_copy(document);
}

/* Chooses up to 16 numbers to read next: at growing distances above `low` while `high` is unknown,
 * and evenly between the two otherwise. Returns their count. */
static uint32_t head_spread(const struct search *search, int64_t numbers[16])
{
    static const int64_t steps[] = {1,       2,       4,       16,        64,        256,      1024,
                                    1 << 14, 1 << 18, 1 << 22, 1LL << 28, 1LL << 34, 1LL << 42};
    uint32_t count = 0;

    if (!search->high) {
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
            numbers[count++] = search->low + steps[i];
        return count;
    }
    for (int i = 1; i <= 16; i++) {
        int64_t number = search->low + (search->high - search->low) / 17 * i +
                         (search->high - search->low) % 17 * i / 17;

        if (number > search->low && number < search->high &&
            (!count || number > numbers[count - 1]))
            numbers[count++] = number;
    }
    return count;
}

static bool head_is_anchor(const bson_t *document, const char *account, int64_t number)
{
    struct ledger_change change;

    return document && truce__ledger_change_of(document, account, number, &change) &&
           truce__ledger_is_anchor(document, &change);
}

/* Narrows the search by the numbers that were read: the last committed one, and the first one after
 * it that is not. */
static void head_narrow(struct search *search, const char *account, const int64_t *numbers,
                        uint32_t count, struct ledger_documents *found)
{
    uint32_t last = count;

    for (uint32_t i = count; i-- > 0;) {
        const bson_t *document = truce__ledger_numbered(found, account, numbers[i]);

        if (head_is_anchor(document, account, numbers[i])) {
            search->low = numbers[i];
            head_replace_document(search, document);
            break;
        }
        last = i;
    }
    if (last < count)
        search->high = numbers[last];
}

/* Searches for the last number of the account, up to 16 numbers at a time. */
static truce_status head_search(struct ledger_reader *reader, const char *account,
                                struct search *search, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    while (!status && (!search->high || search->high > search->low + 1)) {
        struct ledger_documents found = {0};
        int64_t numbers[16];
        uint32_t count = head_spread(search, numbers);

        status = truce__ledger_fetch_numbers(reader, account, numbers, count, &found, error);
        if (!status)
            head_narrow(search, account, numbers, count, &found);
        truce__ledger_documents_release(&found);
    }
    return status;
}

/* Finds the last anchor among the account's changes of these documents. Returns false if it is not
 * after `low`. */
static bool head_last_anchor(const struct ledger_documents *found, const char *account,
                             struct search *search)
{
    bool moved = false;

    for (uint32_t i = 0; i < found->count; i++) {
        struct ledger_change change;

        for (struct fields at = truce__ledger_changes(found->items[i]); truce__fields_next(&at);) {
            if (!truce__ledger_change(at.value, &change) || strcmp(change.account, account) != 0 ||
                change.number <= search->low || !truce__ledger_is_anchor(found->items[i], &change))
                continue;
            search->low = change.number;
            head_replace_document(search, found->items[i]);
            moved = true;
        }
    }
    return moved;
}

static bool head_has_anchor(const bson_t *document, const char *account)
{
    struct ledger_change change;

    for (struct fields at = truce__ledger_changes(document); truce__fields_next(&at);) {
        if (truce__ledger_change(at.value, &change) && !strcmp(change.account, account) &&
            truce__ledger_is_anchor(document, &change))
            return true;
    }
    return false;
}

/* Reads up to `limit` documents after `low`, and moves `low` to the last anchor among them. Sets
 * *more if there may be others. Sets *behind if one of them is not committed. Sets *gone, unless it
 * is NULL, if `low` itself is no longer stored. */
static truce_status head_read_after(struct ledger_reader *reader, const char *account,
                                    struct search *search, uint32_t limit, bool *more, bool *behind,
                                    bool *gone, bson_error_t *error)
{
    bson_t condition = BSON_INITIALIZER;
    struct ledger_documents found = {0};
    truce_status status;
    bool moved;

    limit += gone != NULL;
    BSON_APPEND_INT64(&condition, gone ? "$gte" : "$gt", search->low);
    status = truce__ledger_fetch(reader, account, &condition, limit, &found, error);
    if (gone)
        *gone = !status && !head_is_anchor(truce__ledger_numbered(&found, account, search->low),
                                           account, search->low);
    moved = !status && head_last_anchor(&found, account, search);
    *more = found.count == limit && moved;
    *behind = false;
    for (uint32_t i = 0; i < found.count && !*behind; i++)
        *behind = !head_has_anchor(found.items[i], account);
    truce__ledger_documents_release(&found);
    bson_destroy(&condition);
    return status;
}

/* ---- states ---------------------------------------------------------------------------------- */

/* Reads the rules of an account from the change with that number. Clears them if the number is
 * 0. */
static truce_status head_load_rules(struct ledger_reader *reader, const char *account,
                                    int64_t number, struct ledger_state *state, bson_error_t *error)
{
    struct ledger_documents found = {0};
    struct ledger_change change;
    truce_status status;

    if (!number) {
        state->rules = (struct ledger_rules){0};
        state->rules_at = 0;
        return TRUCE_OK;
    }
    status = truce__ledger_fetch_numbers(reader, account, &number, 1, &found, error);
    if (!status &&
        (!found.count || !truce__ledger_change_of(found.items[0], account, number, &change) ||
         !change.sets))
        status = truce__fail(
            TRUCE_CORRUPT, error,
            "number %lld of account \"%s\" is damaged, because it has no rules: run truce ledger "
            "verify",
            (long long)number, account);
    if (!status) {
        truce__ledger_rules_of(&change.set, &state->rules);
        state->rules_at = number;
    }
    truce__ledger_documents_release(&found);
    return status;
}

/* Makes the state of the account after a change. Reads its rules if they are not known. */
static truce_status head_state(struct ledger_reader *reader, const bson_t *document,
                               const char *account, const struct ledger_change *change,
                               struct ledger_state *state, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (change->sets) {
        truce__ledger_rules_of(&change->set, &state->rules);
        state->rules_at = change->number;
    } else if (change->rules_at != state->rules_at) {
        status = head_load_rules(reader, account, change->rules_at, state, error);
    }
    state->number = change->number;
    state->balance = change->balance;
    state->out = change->out;
    state->in = change->in;
    state->booked_ms = truce__ledger_date(document, "ts");
    memcpy(state->hash, change->hash, sizeof state->hash);
    return status;
}

static truce_status head_missing(const char *account, int64_t number, bson_error_t *error)
{
    return truce__fail(
        TRUCE_CORRUPT, error,
        "number %lld of account \"%s\" is missing, or has no balance or hash: run truce ledger "
        "verify",
        (long long)number, account);
}

truce_status truce__ledger_state_of(struct ledger_reader *reader, const bson_t *document,
                                    const char *account, int64_t number, struct ledger_state *state,
                                    bson_error_t *error)
{
    struct ledger_change change;

    if (!truce__ledger_change_of(document, account, number, &change) ||
        !truce__ledger_is_anchor(document, &change))
        return head_missing(account, number, error);
    return head_state(reader, document, account, &change, state, error);
}

/* Reads the last number of the account, if the store reads an index from its end. Other stores
 * return any number, so the result counts only if it is an anchor. */
static truce_status head_guess_last(struct ledger_reader *reader, const char *account,
                                    struct search *search, bson_error_t *error)
{
    truce_find_options options = {.limit = 1, .early = reader->early, .backward = true};
    bson_t filter = BSON_INITIALIZER, condition = BSON_INITIALIZER;
    struct ledger_documents found = {0};
    truce_status status;

    BSON_APPEND_INT64(&condition, "$gt", 0);
    head_filter_numbers(account, &condition, &filter);
    status = head_fetch(reader, reader->ledger->collection, &filter, &options, &found, error);
    if (!status)
        (void)head_last_anchor(&found, account, search);
    truce__ledger_documents_release(&found);
    bson_destroy(&condition);
    bson_destroy(&filter);
    return status;
}

/* The maximum number of documents after the last known number that one message reads. */
#define HEAD_AFTER_MAX 100

/* Finds the last number of an account, from `state` (in and out) on. Usually nothing follows a
 * known number, or one transaction. A damaged account may have anchors after a gap: these count,
 * and the verification reports the gap. */
truce_status truce__ledger_head(struct ledger_reader *reader, const char *account,
                                struct ledger_state *state, bson_error_t *error)
{
    struct search search = {.low = state->number};
    bool more = true, behind = true, gone = false;
    /* A remembered number may have been removed, and this store would not report that. */
    bool doubts = search.low && !truce__store_sees_drops(reader->ledger->store);
    truce_status status = TRUCE_OK;

    if (!search.low && (reader->ledger->store->capabilities & TRUCE_CAN_REWRITE))
        status = head_guess_last(reader, account, &search, error);
    if (!status && search.low)
        status = head_read_after(reader, account, &search, 2, &more, &behind, doubts ? &gone : NULL,
                                 error);
    /* Several transactions follow, so the end of the index is read. If that finds nothing later,
     * the store does not read the index from its end, and the search continues. */
    if (!status && more && !behind && !gone &&
        (reader->ledger->store->capabilities & TRUCE_CAN_REWRITE)) {
        int64_t before = search.low;

        status = head_guess_last(reader, account, &search, error);
        if (!status && search.low > before)
            status = head_read_after(reader, account, &search, 2, &more, &behind, NULL, error);
    }
    if (gone) {
        truce__ledger_forget(reader->ledger);
        *state = (struct ledger_state){0};
        if (search.document)
            bson_destroy(search.document);
        search = (struct search){0};
        more = behind = true;
    }
    if (!status && (more || behind))
        status = head_search(reader, account, &search, error);
    more = more || behind;
    while (!status && more)
        status =
            head_read_after(reader, account, &search, HEAD_AFTER_MAX, &more, &behind, NULL, error);
    if (!status && search.document)
        status = truce__ledger_state_of(reader, search.document, account, search.low, state, error);
    state->behind = behind;
    if (search.document)
        bson_destroy(search.document);
    return status;
}

/* ---- several accounts ------------------------------------------------------------------------ */

/*
 * A post in a commit needs the last states of its accounts, and whether its id was posted before.
 * On a server, each of these reads is a message, while other commits wait for the accounts. So one
 * message reads all, from the remembered numbers on:
 *
 *     {$or: [{_id: id}, the remembered number and all later ones of the first account, ...]}
 *
 * Its reply is used only if nothing is unusual: no transaction has the id, each remembered number
 * is still stored, everything found is committed, and there is nothing else. Otherwise the accounts
 * and the id are read one by one.
 */

/* The maximum number of documents of each account that one message reads. */
#define HEAD_TOGETHER_MAX 3

/* Makes the filter for the transaction with the id and for the last changes of the accounts. */
static void head_filter_together(const bson_value_t *id, struct ledger_known *const *accounts,
                                 uint32_t count, bson_t *filter)
{
    bson_t any, one, condition = BSON_INITIALIZER;
    char buffer[16];
    const char *key;

    bson_append_array_begin(filter, "$or", 3, &any);
    truce__filter_id(id, &one);
    BSON_APPEND_DOCUMENT(&any, "0", &one);
    bson_destroy(&one);
    for (uint32_t i = 0; i < count; i++) {
        size_t length = bson_uint32_to_string(i + 1, &key, buffer, sizeof buffer);

        bson_reinit(&condition);
        BSON_APPEND_INT64(&condition, "$gte", accounts[i]->state.number);
        bson_append_document_begin(&any, key, (int)length, &one);
        head_filter_numbers(accounts[i]->account, &condition, &one);
        bson_append_document_end(&any, &one);
    }
    bson_append_array_end(filter, &any);
    bson_destroy(&condition);
}

/* Returns whether the document is a committed transaction with another id. */
static bool head_is_usual(const bson_t *document, const bson_value_t *id)
{
    bson_t holder = BSON_INITIALIZER;
    bool usual;

    BSON_APPEND_VALUE(&holder, "_id", id);
    usual = !truce__value_equal(truce__value_field(truce__value_document(document), "_id", 3),
                                truce__value_field(truce__value_document(&holder), "_id", 3));
    bson_destroy(&holder);
    for (struct fields at = truce__ledger_changes(document); usual && truce__fields_next(&at);) {
        struct ledger_change change;

        usual =
            truce__ledger_change(at.value, &change) && truce__ledger_is_anchor(document, &change);
    }
    return usual;
}

/* Returns whether the documents show that the id is free and that the remembered states are the
 * last ones. */
static bool head_are_usual(struct ledger_documents *found, const bson_value_t *id,
                           struct ledger_known *const *accounts, uint32_t count)
{
    if (found->count > HEAD_TOGETHER_MAX * count)
        return false;
    for (uint32_t i = 0; i < found->count; i++) {
        if (!head_is_usual(found->items[i], id))
            return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        int64_t number = accounts[i]->state.number;

        if (!head_is_anchor(truce__ledger_numbered(found, accounts[i]->account, number),
                            accounts[i]->account, number))
            return false;
    }
    return true;
}

/* Moves the state to the account's last number among the documents. */
static truce_status head_advance(struct ledger_reader *reader, const struct ledger_documents *found,
                                 const char *account, struct ledger_state *state,
                                 bson_error_t *error)
{
    struct search search = {.low = state->number};
    truce_status status = TRUCE_OK;

    if (head_last_anchor(found, account, &search))
        status = truce__ledger_state_of(reader, search.document, account, search.low, state, error);
    if (search.document)
        bson_destroy(search.document);
    state->behind = false;
    return status;
}

truce_status truce__ledger_heads(struct ledger_reader *reader, const bson_value_t *id,
                                 struct ledger_known *const *accounts, uint32_t count, bool *usual,
                                 bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER;
    struct ledger_documents found = {0};
    truce_status status;

    head_filter_together(id, accounts, count, &filter);
    status = truce__ledger_fetch_filter(reader, &filter, NULL, HEAD_TOGETHER_MAX * count + 1,
                                        &found, error);
    *usual = !status && head_are_usual(&found, id, accounts, count);
    for (uint32_t i = 0; *usual && !status && i < count; i++)
        status = head_advance(reader, &found, accounts[i]->account, &accounts[i]->state, error);
    truce__ledger_documents_release(&found);
    bson_destroy(&filter);
    return status;
}

/* ---- a state before the last one ------------------------------------------------------------- */

truce_status truce__ledger_state_at(struct ledger_reader *reader, const char *account,
                                    int64_t number, struct ledger_state *state, bson_error_t *error)
{
    struct ledger_documents found = {0};
    truce_status status = truce__ledger_fetch_numbers(reader, account, &number, 1, &found, error);

    if (!status && !found.count)
        status =
            truce__fail(TRUCE_NOT_FOUND, error, "account \"%s\" has no entry with the number %lld",
                        account, (long long)number);
    if (!status)
        status = truce__ledger_state_of(reader, found.items[0], account, number, state, error);
    truce__ledger_documents_release(&found);
    return status;
}

/* ---- one transaction ------------------------------------------------------------------------- */

truce_status truce__ledger_transaction(struct ledger_reader *reader, const bson_value_t *id,
                                       bson_t *document, bson_error_t *error)
{
    reader->worker.waits = 0;
    return truce__journal_read_unguarded(&reader->worker, reader->ledger->collection, id, document,
                                         error);
}

truce_status truce__ledger_settled(struct ledger_reader *reader, const bson_value_t *of,
                                   bson_t *document, bson_error_t *error)
{
    struct ledger_documents found = {0};
    bson_t filter = BSON_INITIALIZER;
    truce_status status;

    BSON_APPEND_VALUE(&filter, "resolves", of);
    status = truce__ledger_fetch_filter(reader, &filter, NULL, 1, &found, error);
    if (!status && found.count) {
        bson_copy_to(found.items[0], document);
    } else {
        bson_init(document);
        status = status ? status
                        : truce__fail(TRUCE_NOT_FOUND, error,
                                      "no transaction settles the pending transaction");
    }
    truce__ledger_documents_release(&found);
    bson_destroy(&filter);
    return status;
}

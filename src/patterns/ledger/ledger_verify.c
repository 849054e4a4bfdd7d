/*
 * The verification of a book.
 *
 *     book       Reads every document of the collection once. This lists the accounts
 *                (ledger_account_list.c): an account is verified because a document names it, even
 *                if its opening was removed.
 *     accounts   Reads every entry of an account again from the first. Each entry follows from
 *                those before it, so the first wrong entry is the changed one, or the one after a
 *                missing entry. One message reads the entries of many small accounts, or a window
 *                of the numbers of a large one.
 *     settings   Checks the ledger's line in LEDGERS, the currencies, the indexes.
 *     sums       Makes each stored run of sums by value date (ledger_value_date.c) again while its
 *                entries are read. A run that is not stored is not a fault: a reader builds it.
 *     seal       Accounts and seal are in the order of names, so each part of the seal is read
 *                when the accounts before it are verified.
 *
 * The last transaction of all its accounts can be removed together with every trace of it. Only an
 * earlier seal shows this.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/field.h"
#include "base/null.h"
#include "base/reserved_fields.h"
#include "patterns/ledger/ledger.h"
#include "store/reserved_names.h"

/* The count of numbers that one message reads. */
#define VERIFY_WINDOW 1000
/* The maximum number of accounts that are read together. */
#define VERIFY_ACCOUNTS 500
/* The number of pending transactions whose settlement one message searches. */
#define VERIFY_OPEN 200

/* A seal that is read part after part, and in each part account after account. */
struct seal {
    /* The source of the parts, or NULL if there is no seal to compare with. */
    const truce_ledger_seal_source *source;
    /* The current part, or NULL after the last one. */
    const bson_t *part;
    int64_t part_number;
    bool last;
    /* The hash of the current part, which the next part must name. */
    uint8_t before[SHA256_BYTES];
    struct fields at;
    /* The next account of the seal, or NULL after the last one. `number` and `hash` are its last
     * number and its hash. Owned. */
    char *account;
    int64_t number;
    uint8_t hash[SHA256_BYTES];
};

/* The state of a verification. */
struct proof {
    struct ledger_reader *reader;
    truce_ledger_finding_function *function;
    void *arg;
    truce_ledger_report *report;
    const char *account;
    /* The state of the account after the entries that were verified. */
    struct ledger_state state;
    struct seal seal;
    /* The document of the ledger in LEDGERS, or an empty document if it is missing. */
    bson_t settings;
    /* A fault of this account was reported, so further ones are not. */
    bool found;
    /* The remaining entries of the account are not committed, so they have no chain and only their
     * sums are checked. */
    bool sums_only;
    /* The transaction of the last entry, for which `balances` and `digest` are valid, or NULL. A
     * transaction may have many numbers of the account. */
    const bson_t *document;
    bool balances;
    uint8_t digest[SHA256_BYTES];
    /* The entries and the documents of numbers that were read together, of several small accounts
     * or of a part of one. */
    struct ledger_documents entries, slots;
    /* Pending transactions without `open`, as {_id}, whose settlement must be searched. */
    struct ledger_documents unsettled;
    /* The values of the numbers since the last complete run. */
    struct ledger_dated dated[LEDGER_SUMS_RUN];
    uint32_t dated_count;
};

/* Reports a finding to the caller. */
static void verify_report(struct proof *proof, const char *rule, int64_t number,
                          const bson_t *document, const char *text)
{
    bson_t finding = BSON_INITIALIZER;
    bson_value_t id = {.value_type = BSON_TYPE_EOD};

    if (document)
        id = truce__ledger_value(document, "_id");
    BSON_APPEND_UTF8(&finding, "rule", rule);
    BSON_APPEND_UTF8(&finding, "account", proof->account);
    BSON_APPEND_INT64(&finding, "number", number);
    if (id.value_type != BSON_TYPE_EOD)
        BSON_APPEND_VALUE(&finding, "id", &id);
    BSON_APPEND_UTF8(&finding, "text", text);
    proof->found = true;
    proof->report->findings++;
    if (proof->function)
        proof->function(&finding, proof->arg);
    bson_destroy(&finding);
}

/* ---- one entry ------------------------------------------------------------------------------- */

struct sums {
    struct {
        const char *currency;
        __int128 sum;
    } * items;
    uint32_t count;
};

static __int128 *verify_sum_of(struct sums *sums, const char *currency)
{
    uint32_t i = 0;

    while (i < sums->count && strcmp(sums->items[i].currency, currency) != 0)
        i++;
    if (i == sums->count) {
        sums->items = bson_realloc(sums->items, ++sums->count * sizeof *sums->items);
        sums->items[i].currency = currency;
        sums->items[i].sum = 0;
    }
    return &sums->items[i].sum;
}

/* Returns true if the values of each currency sum to zero. */
static bool verify_balances(const bson_t *document)
{
    struct sums sums = {0};
    struct ledger_change change;
    bool zero = true;

    for (struct fields at = truce__ledger_changes(document); zero && truce__fields_next(&at);) {
        zero = truce__ledger_change(at.value, &change);
        if (zero)
            *verify_sum_of(&sums, change.currency ? change.currency : "") += change.value;
    }
    for (uint32_t i = 0; i < sums.count; i++)
        zero = zero && !sums.items[i].sum;
    bson_free(sums.items);
    return zero;
}

static bool verify_same_sums(const struct ledger_change *change, const struct ledger_state *state)
{
    return change->balance == state->balance && change->out == state->out &&
           change->in == state->in && change->rules_at == state->rules_at;
}

/* Checks the balance and the hash of a change against the state after it. */
static void verify_cached(struct proof *proof, const bson_t *document,
                          const struct ledger_change *change)
{
    uint8_t before[SHA256_BYTES];

    if (!change->cached) {
        verify_report(proof, "balance", change->number, document,
                      "it is COMMITTED but has no balance");
        return;
    }
    if (!verify_same_sums(change, &proof->state)) {
        verify_report(proof, "balance", change->number, document,
                      "its balance is not the sum of the entries before it");
        return;
    }
    memcpy(before, proof->state.hash, sizeof before);
    truce__ledger_chain(proof->digest, change->account, before, &proof->state);
    if (!change->hashed || memcmp(change->hash, proof->state.hash, SHA256_BYTES) != 0)
        verify_report(
            proof, "hash", change->number, document,
            "its hash does not match its content: it, or an earlier entry of the account, "
            "was changed");
}

/* Computes what is the same for all numbers of a transaction. */
static void verify_digest(struct proof *proof, const bson_t *document)
{
    if (proof->document == document)
        return;
    proof->document = document;
    proof->balances = verify_balances(document);
    truce__ledger_digest(document, proof->digest);
}

/* Verifies one entry of an account against the state after the previous one, and reports the first
 * fault. */
static void verify_entry(struct proof *proof, const bson_t *document, int64_t number)
{
    bool committed = document && truce__ledger_is(document, "proc", "COMMITTED");
    struct ledger_change change;
    int64_t booked_ms;

    if (!document || !truce__ledger_change_of(document, proof->account, number, &change)) {
        verify_report(proof, "missing", number, NULL, "there is no entry with that number");
        return;
    }
    proof->report->entries++;
    verify_digest(proof, document);
    booked_ms = truce__ledger_date(document, "ts");
    if (!proof->balances)
        verify_report(proof, "sum", number, document, "its values do not sum to zero");
    else if (booked_ms < proof->state.booked_ms && !proof->sums_only)
        verify_report(proof, "time", number, document,
                      "its booking time is before that of the previous entry");
    else if (truce__ledger_add(&proof->state, &change, truce__ledger_is(document, "state", "VALID"),
                               truce__ledger_is(document, "state", "PENDING"), NULL))
        verify_report(proof, "balance", number, document, "the balance exceeds 64 bits");
    else if (committed && proof->sums_only)
        verify_report(proof, "order", number, document,
                      "it is COMMITTED, but an earlier entry is not");
    else if (committed)
        verify_cached(proof, document, &change);
    proof->sums_only = proof->sums_only || !committed;
    proof->state.booked_ms = booked_ms;
    if (truce__ledger_is(document, "state", "VALID"))
        proof->dated[proof->dated_count++] =
            (struct ledger_dated){truce__ledger_value_date(document), change.value};
}

/* Checks the stored sums by value date of the runs that end with that number. */
static truce_status verify_stored_sums(struct proof *proof, int64_t number, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bool wrong = false;

    if (number % LEDGER_SUMS_RUN)
        return TRUCE_OK;
    if (!proof->found && !proof->sums_only)
        status = truce__ledger_sums_prove(proof->reader, proof->account, number, proof->state.hash,
                                          proof->dated, proof->dated_count, &wrong, error);
    if (wrong)
        verify_report(proof, "stored-sums", number, NULL,
                      "its sums by value date in " LEDGER_SUMS
                      " do not match its entries: remove the documents with its hash, or drop the "
                      "collection");
    proof->dated_count = 0;
    return status;
}

/* ---- a seal ---------------------------------------------------------------------------------- */

static bool verify_read_hash(const bson_t *document, const char *field, uint8_t hash[SHA256_BYTES])
{
    const uint8_t *bytes = NULL;
    bson_subtype_t subtype;
    uint32_t length = 0;
    bson_iter_t iter;

    if (bson_iter_init_find(&iter, document, field) && BSON_ITER_HOLDS_BINARY(&iter))
        bson_iter_binary(&iter, &subtype, &length, &bytes);
    if (length == SHA256_BYTES)
        memcpy(hash, bytes, SHA256_BYTES);
    return length == SHA256_BYTES;
}

/* Returns true if the part's hash, its last field, is the hash of all before it. */
static bool verify_part_is_complete(const bson_t *part)
{
    uint8_t digest[SHA256_BYTES], hash[SHA256_BYTES];
    bson_t plain = BSON_INITIALIZER;

    bson_copy_to_excluding_noinit(part, &plain, "hash", NULL);
    truce__ledger_seal_hash(&plain, digest);
    bson_destroy(&plain);
    return verify_read_hash(part, "hash", hash) && !memcmp(hash, digest, SHA256_BYTES);
}

/* Checks that a part of the seal is intact, belongs to this ledger, and follows the part before
 * it. */
static truce_status verify_check_part(const struct proof *proof, bson_error_t *error)
{
    const struct seal *seal = &proof->seal;
    const char *ledger = proof->reader->ledger->collection;
    int64_t number = truce__field_number(seal->part, "part");
    uint8_t before[SHA256_BYTES];
    truce_status status = truce__document_check(seal->part, "seal", error);

    if (status)
        return status;
    if (!verify_part_is_complete(seal->part))
        return truce__fail(TRUCE_INVALID, error,
                           "the seal is damaged: its hash does not match its content");
    if (!truce__ledger_is(seal->part, "ledger", ledger))
        return truce__fail(TRUCE_INVALID, error,
                           "the seal belongs to ledger \"%.100s\", not \"%s\"",
                           truce__field_text(seal->part, "ledger"), ledger);
    if (seal->last || number != seal->part_number + 1 ||
        (number > 1 && (!verify_read_hash(seal->part, "before", before) ||
                        memcmp(before, seal->before, SHA256_BYTES) != 0)))
        return truce__fail(TRUCE_INVALID, error,
                           "part %" PRId64 " of the seal does not follow part %" PRId64
                           " of the same seal",
                           number, seal->part_number);
    return TRUCE_OK;
}

/* Reads the next part of the seal. After the last part, seal->part is NULL. */
static truce_status verify_load_part(struct proof *proof, bson_error_t *error)
{
    struct seal *seal = &proof->seal;
    struct value list;
    truce_status status = seal->source->next(&seal->part, seal->source->arg, error);

    if (status)
        return status;
    if (!seal->part && !seal->last)
        return truce__fail(TRUCE_INVALID, error,
                           "the seal is incomplete: part %" PRId64 " is missing",
                           seal->part_number + 1);
    if (!seal->part)
        return TRUCE_OK;
    status = verify_check_part(proof, error);
    if (status)
        return status;
    seal->part_number++;
    seal->last = bson_has_field(seal->part, "last") &&
                 truce__field_number(seal->part, "last"); /* A bool counts as 0 or 1. */
    (void)!verify_read_hash(seal->part, "hash", seal->before);
    list = truce__value_field(truce__value_document(seal->part), "accounts", 8);
    if (list.type != BSON_TYPE_ARRAY)
        return truce__fail(TRUCE_INVALID, error,
                           "the seal is damaged: the accounts of part %" PRId64 " are missing",
                           seal->part_number);
    seal->at = truce__fields(list);
    return TRUCE_OK;
}

/* Moves on to the next account of the seal. */
static truce_status verify_next_sealed(struct proof *proof, bson_error_t *error)
{
    struct seal *seal = &proof->seal;
    truce_status status = TRUCE_OK;
    char *before = seal->account;
    bson_t one;

    seal->account = NULL;
    while (!status && seal->part && !truce__fields_next(&seal->at))
        status = verify_load_part(proof, error);
    if (!status && seal->part && seal->at.value.type != BSON_TYPE_DOCUMENT)
        status = truce__fail(TRUCE_INVALID, error, "the seal is damaged: an account is missing");
    if (!status && seal->part) {
        truce__value_bson(seal->at.value, &one);
        seal->account = bson_strdup(truce__field_text(&one, "account"));
        seal->number = truce__field_number(&one, "number");
        if (!verify_read_hash(&one, "hash", seal->hash))
            seal->number = 0;
        if (before && strcmp(before, seal->account) >= 0)
            status = truce__fail(TRUCE_INVALID, error,
                                 "the seal is damaged: its accounts are not in the order of names");
    }
    bson_free(before);
    return status;
}

static truce_status verify_begin_seal(struct proof *proof, bson_error_t *error)
{
    truce_status status;

    if (!proof->seal.source)
        return TRUCE_OK;
    status = verify_load_part(proof, error);
    return status ? status : verify_next_sealed(proof, error);
}

/* ---- one account ----------------------------------------------------------------------------- */

/* Appends the _ids of the numbers `from` to `to` of the account, if numbers are documents. */
static void verify_append_slots(const struct proof *proof, const char *account, int64_t from,
                                int64_t to, bson_t *ids, uint32_t *count)
{
    for (int64_t number = from; proof->reader->ledger->slots && number <= to; number++)
        truce__ledger_slot_append(account, number, ids, count);
}

/* Returns true if a transaction has the number by now: it was posted after the entries were
 * read. */
static bool verify_was_posted(struct proof *proof, int64_t number)
{
    struct ledger_documents found = {0};
    bool posted =
        !truce__ledger_fetch_numbers(proof->reader, proof->account, &number, 1, &found, NULL) &&
        found.count;

    truce__ledger_documents_release(&found);
    return posted;
}

/* Checks the document of a number: it names the transaction that has the number. The number after
 * the last one (`document` NULL) is free. */
static void verify_slot(struct proof *proof, const bson_t *document, int64_t number)
{
    bson_value_t id = {.value_type = BSON_TYPE_EOD};
    const bson_t *slot = truce__ledger_slot(&proof->slots, proof->account, number);

    if (document)
        id = truce__ledger_value(document, "_id");
    if (document && !slot)
        verify_report(proof, "slot", number, document, "the document of its number is missing");
    else if (!document && slot && !verify_was_posted(proof, number))
        verify_report(proof, "slot", number, NULL,
                      "the number is taken, but no transaction has it");
    else if (document && !truce__ledger_has(slot, "tx", &id))
        verify_report(proof, "slot", number, document,
                      "the document of its number names another transaction");
}

/* Verifies the numbers `from` to `to`, whose documents were read. */
static truce_status verify_numbers(struct proof *proof, int64_t from, int64_t to,
                                   int64_t seal_number, const uint8_t seal_hash[SHA256_BYTES],
                                   bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    proof->document = NULL;
    for (int64_t at = from; !status && !proof->found && at <= to; at++) {
        const bson_t *document = truce__ledger_numbered(&proof->entries, proof->account, at);

        verify_entry(proof, document, at);
        if (!proof->found && proof->reader->ledger->slots)
            verify_slot(proof, document, at);
        if (!proof->found && at == seal_number &&
            memcmp(seal_hash, proof->state.hash, SHA256_BYTES) != 0)
            verify_report(proof, "seal", at, document,
                          "the account up to here differs from the seal: it was rewritten since");
        status = verify_stored_sums(proof, at, error);
    }
    return status;
}

static void verify_release_documents(struct proof *proof)
{
    truce__ledger_documents_release(&proof->entries);
    truce__ledger_documents_release(&proof->slots);
}

static truce_status verify_fetch_slots(struct proof *proof, const bson_t *ids, bson_error_t *error)
{
    return proof->reader->ledger->slots
               ? truce__ledger_fetch_slots(proof->reader, ids, &proof->slots, error)
               : TRUCE_OK;
}

/* Reads a window of numbers, and the documents of these numbers and of the next one. The filter
 * names each number: in an index over an array, a range has one bound only, and each window would
 * read the rest of the account. */
static truce_status verify_fetch_window(struct proof *proof, int64_t from, int64_t to,
                                        bson_error_t *error)
{
    bson_t ids = BSON_INITIALIZER;
    int64_t numbers[VERIFY_WINDOW];
    uint32_t slots = 0, count = 0;
    truce_status status;

    verify_release_documents(proof);
    verify_append_slots(proof, proof->account, from, to + 1, &ids, &slots);
    for (int64_t number = from; number <= to; number++)
        numbers[count++] = number;
    status = truce__ledger_fetch_numbers(proof->reader, proof->account, numbers, count,
                                         &proof->entries, error);
    if (!status)
        status = verify_fetch_slots(proof, &ids, error);
    bson_destroy(&ids);
    return status;
}

/* Checks that the account has an opening, and a currency that the settings know. */
static void verify_opening(struct proof *proof)
{
    const struct ledger_state *state = &proof->state;
    bson_t currencies;
    bson_iter_t iter;
    char text[120];

    if (!state->rules_at)
        verify_report(proof, "opening", state->number ? 1 : 0, NULL,
                      state->number ? "its opening is missing: it has entries but was never opened"
                                    : "its opening is missing: it has no entries");
    else if (!truce__value_subdocument(&proof->settings, "currencies", &currencies) ||
             !bson_iter_init_find(&iter, &currencies, state->rules.currency)) {
        snprintf(text, sizeof text, "its currency %s is missing from the settings of the ledger",
                 state->rules.currency);
        verify_report(proof, "currency", state->rules_at, NULL, text);
    }
}

/* Finds the last number: `least`, or a later one that was read. If the book was not scanned
 * (`least` 0), searches for it from the first number; memory of earlier calls does not count. */
static truce_status verify_find_last(struct proof *proof, int64_t least, int64_t *last,
                                     bson_error_t *error)
{
    struct ledger_state state = {0};
    truce_status status;

    *last = least;
    if (least)
        return TRUCE_OK;
    status = truce__ledger_head(proof->reader, proof->account, &state, error);
    *last = state.number;
    if (status == TRUCE_CORRUPT) {
        verify_report(proof, "missing", state.number, NULL,
                      error ? error->message : "an entry is missing");
        status = TRUCE_OK;
    }
    return status;
}

static truce_status verify_windows(struct proof *proof, int64_t last, int64_t seal_number,
                                   bson_error_t *error)
{
    truce_status status = last ? TRUCE_OK : verify_fetch_window(proof, 1, 0, error);

    for (int64_t from = 1; !status && !proof->found && from <= last; from += VERIFY_WINDOW) {
        int64_t to = last - from >= VERIFY_WINDOW ? from + VERIFY_WINDOW - 1 : last;

        status = verify_fetch_window(proof, from, to, error);
        if (!status)
            status = verify_numbers(proof, from, to, seal_number, proof->seal.hash, error);
    }
    return status;
}

/* Verifies an account. `least` is a number that the account has, as far as the book shows. `read`
 * is true if all of its entries were read, and `sealed` if it is the next account of the seal. */
static truce_status verify_account(struct proof *proof, const char *account, int64_t least,
                                   bool read, bool sealed, bson_error_t *error)
{
    int64_t number = sealed ? proof->seal.number : 0, last = 0;
    truce_status status;

    proof->account = account;
    proof->state = (struct ledger_state){0};
    proof->found = proof->sums_only = false;
    proof->report->accounts++;
    proof->dated_count = 0;
    status = verify_find_last(proof, least, &last, error);
    if (!status && !proof->found)
        status = read ? verify_numbers(proof, 1, last, number, proof->seal.hash, error)
                      : verify_windows(proof, last, number, error);
    if (!status && !proof->found && proof->reader->ledger->slots)
        verify_slot(proof, NULL, last + 1);
    if (!status && !proof->found && number > last)
        verify_report(proof, "seal", number, NULL, "it was sealed but is missing");
    if (!status && !proof->found)
        verify_opening(proof);
    return status;
}

/* ---- the book -------------------------------------------------------------------------------- */

struct book {
    struct proof *proof;
    /* The accounts that the documents name. */
    struct ledger_list accounts;
};

/* Counts the changes of a document, those with a hash, and those that are invalid. */
static void verify_count_hashes(const bson_t *document, uint32_t *count, uint32_t *hashed,
                                uint32_t *malformed)
{
    struct ledger_change change;

    *count = *hashed = *malformed = 0;
    for (struct fields at = truce__ledger_changes(document); truce__fields_next(&at);) {
        ++*count;
        *malformed += !truce__ledger_change(at.value, &change);
        *hashed += change.hashed;
    }
}

static truce_status verify_note_accounts(struct book *book, const bson_t *document,
                                         bson_error_t *error)
{
    struct ledger_change change;
    truce_status status = TRUCE_OK;

    for (struct fields at = truce__ledger_changes(document); !status && truce__fields_next(&at);) {
        if (truce__ledger_change(at.value, &change))
            status = truce__ledger_list_add(&book->accounts, change.account, change.number, error);
    }
    return status;
}

/* Looks for the transactions that settle the pending ones without `open`. A pending transaction
 * that is neither settled nor has `open` never expires, and no list has it. */
static truce_status verify_unsettled(struct proof *proof, bson_error_t *error)
{
    struct ledger_documents found = {0};
    bson_t ids = BSON_INITIALIZER, *filter;
    truce_status status;

    if (!proof->unsettled.count)
        return TRUCE_OK;
    for (uint32_t i = 0; i < proof->unsettled.count; i++) {
        bson_value_t id = truce__ledger_value(proof->unsettled.items[i], "_id");
        char text[16];
        const char *key;

        bson_uint32_to_string(i, &key, text, sizeof text);
        BSON_APPEND_VALUE(&ids, key, &id);
    }
    filter = BCON_NEW("resolves", "{", "$in", BCON_ARRAY(&ids), "}");
    status = truce__ledger_fetch_filter(proof->reader, filter, NULL, 0, &found, error);
    for (uint32_t i = 0; !status && i < proof->unsettled.count; i++) {
        bson_value_t id = truce__ledger_value(proof->unsettled.items[i], "_id");
        bool settled = false;

        for (uint32_t k = 0; !settled && k < found.count; k++)
            settled = truce__ledger_has(found.items[k], "resolves", &id);
        if (!settled)
            verify_report(proof, "open", 0, proof->unsettled.items[i],
                          "it is pending, and its field `open` is missing: it would never expire");
    }
    truce__ledger_documents_release(&proof->unsettled);
    truce__ledger_documents_release(&found);
    bson_destroy(filter);
    bson_destroy(&ids);
    return status;
}

static truce_status verify_open(struct proof *proof, const bson_t *document, bson_error_t *error)
{
    bson_value_t id = truce__ledger_value(document, "_id");
    bson_t holder = BSON_INITIALIZER;

    if (!truce__ledger_is(document, "state", "PENDING") || truce__ledger_date(document, "open"))
        return TRUCE_OK;
    BSON_APPEND_VALUE(&holder, "_id", &id);
    truce__ledger_keep(&proof->unsettled, &holder);
    bson_destroy(&holder);
    return proof->unsettled.count < VERIFY_OPEN ? TRUCE_OK : verify_unsettled(proof, error);
}

/* Verifies a document by itself: its state, its changes, and whether its hashes exist. Reports one
 * that was refused. */
static truce_status verify_document(struct book *book, const bson_t *document, bson_error_t *error)
{
    struct proof *proof = book->proof;
    uint32_t count, hashed, malformed;
    truce_status status;
    bson_t refused;

    proof->account = "";
    if (truce__ledger_is(document, "proc", "REFUSED")) {
        bool has = truce__value_subdocument(document, "refused", &refused);

        verify_report(proof, "refused", 0, document,
                      has ? truce__field_text(&refused, "reason")
                          : "its field `refused` is missing");
        return TRUCE_OK;
    }
    verify_count_hashes(document, &count, &hashed, &malformed);
    status = hashed ? verify_note_accounts(book, document, error) : TRUCE_OK;
    if (status)
        return status;
    if (truce__ledger_is(document, "proc", "UNCOMMITTED")) {
        if (hashed)
            verify_report(proof, "proc", 0, document,
                          "it was COMMITTED, but its field proc was changed");
        return TRUCE_OK;
    }
    if (!truce__ledger_is(document, "proc", "COMMITTED"))
        verify_report(proof, "proc", 0, document,
                      "its field proc is not UNCOMMITTED, COMMITTED, or REFUSED");
    else if (!count || malformed)
        verify_report(proof, "changes", 0, document,
                      "its changes are missing, or one of them has no account, value, or number");
    else if (!hashed)
        verify_report(
            proof, "hash", 0, document,
            "it is COMMITTED but has no hash: another program committed it, or its hashes were "
            "removed");
    else
        return verify_open(proof, document, error);
    return TRUCE_OK;
}

/* Verifies each document of the book by itself, and lists the accounts. */
static truce_status verify_scan_book(struct book *book, bson_error_t *error)
{
    const truce_ledger *ledger = book->proof->reader->ledger;
    truce_cursor *cursor = NULL;
    const bson_t *found;
    truce_status status = truce_find(ledger->store, ledger->collection, NULL, NULL, &cursor, error);

    while (!status) {
        status = truce_cursor_next(cursor, &found, error);
        if (status || !found)
            break;
        if (!truce__ledger_is_stub(found))
            status = verify_document(book, found, error);
    }
    truce_cursor_close(cursor);
    return status ? status : verify_unsettled(book->proof, error);
}

/* ---- settings -------------------------------------------------------------------------------- */

static truce_status verify_has_hashes(const truce_ledger *ledger, bool *has, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("changes.hash", "{", "$exists", BCON_BOOL(true), "}"), found;
    truce_status status =
        truce_find_one(ledger->store, ledger->collection, filter, NULL, &found, error);

    *has = !status;
    bson_destroy(&found);
    bson_destroy(filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Reads the document of the ledger. Reports if it is missing although the book has committed
 * documents. */
static truce_status verify_load_settings(struct proof *proof, bson_error_t *error)
{
    const truce_ledger *ledger = proof->reader->ledger;
    bson_t filter = BSON_INITIALIZER;
    truce_status status;
    bool has = false;

    BSON_APPEND_UTF8(&filter, "_id", ledger->collection);
    bson_destroy(&proof->settings);
    status = truce_find_one(ledger->store, LEDGERS, &filter, NULL, &proof->settings, error);
    bson_destroy(&filter);
    if (status != TRUCE_NOT_FOUND)
        return status;
    status = verify_has_hashes(ledger, &has, error);
    if (!status && has)
        verify_report(proof, "settings", 0, NULL,
                      "the document of the ledger in " LEDGERS
                      " is missing: it has the currencies and the place of the numbers");
    return status;
}

/* Returns true if there is an index with these keys (ledger.c makes them). */
static bool verify_has_index(const bson_t *indexes, const char *first, const char *second,
                             bool unique)
{
    for (struct fields at = truce__fields(truce__value_array(indexes)); truce__fields_next(&at);) {
        struct value key, one;
        struct fields field;

        if (at.value.type != BSON_TYPE_DOCUMENT)
            continue;
        key = truce__value_field(at.value, "key", 3);
        one = truce__value_field(at.value, "unique", 6);
        if (key.type != BSON_TYPE_DOCUMENT ||
            (unique && !(one.type == BSON_TYPE_BOOL && one.data[0])))
            continue;
        field = truce__fields(key);
        if (!truce__fields_next(&field) || strcmp(field.key, first) != 0)
            continue;
        if (truce__fields_next(&field) ? second && !strcmp(field.key, second) : !second)
            return true;
    }
    return false;
}

bool truce__ledger_has_indexes(truce_store *store, const char *collection)
{
    bson_error_t ignored;
    bson_t indexes;
    bool has = !truce_index_list(store, collection, &indexes, &ignored) &&
               verify_has_index(&indexes, "changes.account", "changes.seqId", false);

    bson_destroy(&indexes);
    return has;
}

/* Reports each index of the ledger that is missing. */
static truce_status verify_indexes(struct proof *proof, bson_error_t *error)
{
    static const struct {
        const char *first, *second;
        bool unique;
    } needed[] = {{"changes.account", "changes.seqId", true},
                  {"resolves", NULL, true},
                  {"opens", NULL, false},
                  {"open", NULL, false},
                  {"proc", NULL, false}};
    const truce_ledger *ledger = proof->reader->ledger;
    bson_t indexes;
    truce_status status = truce_index_list(ledger->store, ledger->collection, &indexes, error);

    proof->account = "";
    for (size_t i = 0; !status && i < sizeof needed / sizeof *needed; i++) {
        bool unique = needed[i].unique && !ledger->slots;
        char text[160];

        if (verify_has_index(&indexes, needed[i].first, needed[i].second, unique))
            continue;
        snprintf(text, sizeof text, "the %sindex on %s%s%s is missing: the next post creates it",
                 unique ? "unique " : "", needed[i].first, needed[i].second ? ", " : "",
                 needed[i].second ? needed[i].second : "");
        verify_report(proof, "index", 0, NULL, text);
    }
    bson_destroy(&indexes);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* ---- the whole book -------------------------------------------------------------------------- */

/* Verifies the accounts of the seal whose names are before this one (NULL for all that are left).
 * No document of the book has them. */
static truce_status verify_sealed_only(struct proof *proof, const char *account,
                                       bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    while (!status && proof->seal.account &&
           (!account || strcmp(proof->seal.account, account) < 0)) {
        struct ledger_documents entries = proof->entries, slots = proof->slots;

        proof->entries = proof->slots = (struct ledger_documents){0};
        status = verify_account(proof, proof->seal.account, 0, false, true, error);
        verify_release_documents(proof);
        proof->entries = entries;
        proof->slots = slots;
        if (!status)
            status = verify_next_sealed(proof, error);
    }
    proof->account = "";
    return status;
}

/* Verifies an account against the seal, which then moves on to the account after it. */
static truce_status verify_with_seal(struct proof *proof, const char *account, int64_t least,
                                     bool read, bson_error_t *error)
{
    bool sealed;
    truce_status status = verify_sealed_only(proof, account, error);

    if (status)
        return status;
    sealed = proof->seal.account && !strcmp(proof->seal.account, account);
    status = verify_account(proof, account, least, read, sealed, error);

    return status || !sealed ? status : verify_next_sealed(proof, error);
}

static truce_status verify_one(struct proof *proof, const char *account, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    while (!status && proof->seal.account && strcmp(proof->seal.account, account) < 0)
        status = verify_next_sealed(proof, error);
    if (!status)
        status = verify_with_seal(proof, account, 0, false, error);
    while (!status && proof->seal.account)
        status = verify_next_sealed(proof, error);
    return status;
}

/* Accounts that are verified together: some small ones, or one large one. */
struct verify_batch {
    char *accounts[VERIFY_ACCOUNTS];
    /* lasts[i]: the greatest number of account i. */
    int64_t lasts[VERIFY_ACCOUNTS];
    uint32_t count;
    /* The sum of the greatest numbers. */
    int64_t numbers;
};

/* Moves the next accounts of the list into the batch. */
static truce_status verify_gather_batch(struct ledger_list *list, struct verify_batch *batch,
                                        bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    batch->count = 0;
    batch->numbers = 0;
    while (!status && list->account && batch->count < VERIFY_ACCOUNTS &&
           (!batch->count || list->number <= VERIFY_WINDOW - batch->numbers)) {
        batch->accounts[batch->count] = bson_strdup(list->account);
        batch->lasts[batch->count++] = list->number;
        batch->numbers += list->number;
        status = truce__ledger_list_next(list, error);
    }
    return status;
}

/* Reads all entries of the accounts of the batch. */
static truce_status verify_fetch_batch(struct proof *proof, const struct verify_batch *batch,
                                       bson_error_t *error)
{
    bson_t names = BSON_INITIALIZER, ids = BSON_INITIALIZER;
    uint32_t slots = 0;
    truce_status status;

    verify_release_documents(proof);
    for (uint32_t i = 0; i < batch->count; i++) {
        char text[16];
        const char *key;

        verify_append_slots(proof, batch->accounts[i], 1, batch->lasts[i] + 1, &ids, &slots);
        bson_uint32_to_string(i, &key, text, sizeof text);
        BSON_APPEND_UTF8(&names, key, batch->accounts[i]);
    }
    status = truce__ledger_fetch_accounts(proof->reader, &names, &proof->entries, error);
    if (!status)
        status = verify_fetch_slots(proof, &ids, error);
    bson_destroy(&ids);
    bson_destroy(&names);
    return status;
}

static truce_status verify_batch(struct proof *proof, const struct verify_batch *batch,
                                 bson_error_t *error)
{
    bool small = batch->numbers <= VERIFY_WINDOW;
    truce_status status = small ? verify_fetch_batch(proof, batch, error) : TRUCE_OK;

    for (uint32_t i = 0; !status && i < batch->count; i++)
        status = verify_with_seal(proof, batch->accounts[i], batch->lasts[i], small, error);
    return status;
}

/* Verifies the accounts of the book by name. Accounts that only the seal has come in between. */
static truce_status verify_accounts(struct book *book, bson_error_t *error)
{
    struct verify_batch *batch = bson_malloc(sizeof *batch);
    truce_status status = TRUCE_OK;

    while (!status && book->accounts.account) {
        status = verify_gather_batch(&book->accounts, batch, error);
        if (!status)
            status = verify_batch(book->proof, batch, error);
        for (uint32_t i = 0; i < batch->count; i++)
            bson_free(batch->accounts[i]);
    }
    bson_free(batch);
    return status;
}

/* Verifies the book: its documents, its accounts, its indexes, and the accounts that only the seal
 * has. */
static truce_status verify_all(struct proof *proof, bson_error_t *error)
{
    struct book book = {.proof = proof};
    truce_status status = verify_scan_book(&book, error);
    bool used;

    if (!status)
        status = truce__ledger_list_sort(&book.accounts, error);
    used = book.accounts.account;
    if (!status)
        status = verify_accounts(&book, error);
    if (!status && used)
        status = verify_indexes(proof, error);
    if (!status)
        status = verify_sealed_only(proof, NULL, error);
    truce__ledger_list_release(&book.accounts);
    return status;
}

truce_status truce_ledger_verify(truce_ledger *ledger, const char *account,
                                 const truce_ledger_seal_source *seal,
                                 truce_ledger_finding_function *function, void *arg,
                                 truce_ledger_report *report, bson_error_t *error)
{
    truce_ledger_report own;
    struct ledger_reader reader;
    struct proof proof = {.reader = &reader,
                          .function = function,
                          .arg = arg,
                          .report = report ? report : &own,
                          .account = "",
                          .seal.source = seal,
                          .settings = BSON_INITIALIZER};
    truce_status status = truce__ledger_usable(ledger, error);

    *proof.report = (truce_ledger_report){0};
    if (!status)
        status = truce__ledger_layout(ledger, error);
    if (status == TRUCE_NOT_FOUND)
        status = TRUCE_OK; /* A ledger that does not exist has no faults. */
    truce__ledger_reader_init(&reader, ledger);
    if (!status && seal)
        status = ROOM_CHECK(seal, "truce_ledger_seal_source", error);
    if (!status && seal && !seal->next)
        status = REFUSE_NULL(seal->next, error);
    if (!status)
        status = verify_begin_seal(&proof, error);
    if (!status && account)
        status = truce__ledger_account_name(account, error);
    if (!status)
        status = verify_load_settings(&proof, error);
    if (!status)
        status = account ? verify_one(&proof, account, error) : verify_all(&proof, error);
    verify_release_documents(&proof);
    truce__ledger_documents_release(&proof.unsettled);
    bson_free(proof.seal.account);
    bson_destroy(&proof.settings);
    return status;
}

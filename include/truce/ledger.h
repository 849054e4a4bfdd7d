#ifndef TRUCE_LEDGER_H
#define TRUCE_LEDGER_H

/*
 * A ledger: an append-only book of transactions between accounts.
 *
 * One document contains a transaction together with its account changes:
 *
 *     {_id: "order 17", ts: Date, proc: "COMMITTED", state: "VALID", meta: {...},
 *      changes: [{account: "customers:ada", type: "withdraw", value: -1250, currency: "EUR",
 *                 seqId: 801, cachedBal: 48750, rules: 1, hash: ...},
 *                {account: "shop:sales", type: "deposit", value: 1250, ..., seqId: 203, ...}]}
 *
 * A unique index {changes.account: 1, changes.seqId: 1} gives each number of an account exactly
 * once, without gaps. Therefore an account is one history in one order, and its rules (no
 * overdraft) hold exactly, whatever other processes write. `cachedBal` is the balance after that
 * number: it is correct, or absent.
 *
 *   - Double entry: the values of a transaction sum to zero for each currency. Money from outside
 *     comes from an account that represents the outside ("external:bank").
 *   - Values are integers in the smallest unit (cents); each currency has a number of digits. A sum
 *     that exceeds 64 bits is refused. Doubles and decimals are not accepted, because they round.
 *   - A transaction is posted under the caller's id. Posting it again has no effect and sets
 *     `exists`; the same id with different content is refused. After a lost reply, a caller posts
 *     the transaction again.
 *   - Every call that writes may be part of a commit (truce/commit.h): move the money and mark the
 *     order as paid.
 *   - Each change contains a hash over itself and the previous change of its account.
 *     truce_ledger_verify names the first entry that was tampered with.
 *
 * The idea and the documents come from "How to Implement Robust and Scalable Transactions Across
 * Documents with MongoDB" (A. Girbal; solution 4, log reconciliation). docs/ledger.md describes how
 * its pitfalls are avoided. Pending and linked transactions work as in TigerBeetle.
 *
 * Threads: any number of threads may use a handle. Concurrent posts are combined into batches.
 */
#include "truce/commit.h"
#include "truce/store.h"

TRUCE_BEGIN_DECLS

typedef struct truce_ledger truce_ledger;

typedef struct truce_ledger_options {
    /* Required. */
    const char *collection;
    /* A collection of truce's own that stores the numbers as documents, so that the ledger can be
     * sharded. The first writer sets it permanently. NULL means the value that was set then;
     * without one, a unique index allocates the numbers. */
    const char *slots;
    /* The maximum time that a call waits and retries. 0 means the deadline_ms of the store, by
     * default 30,000. */
    uint32_t deadline_ms;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_ledger_options;

/* Returns a handle, never NULL. If the options are wrong, every call fails and names the fault. The
 * options are copied; the store must outlive the ledger. The first call that writes creates the
 * indexes. */
TRUCE_EXPORT truce_ledger *truce_ledger_new(truce_store *store,
                                            const truce_ledger_options *options);
/* Frees the handle. */
TRUCE_EXPORT void truce_ledger_free(truce_ledger *ledger);

/* ---- currencies and accounts -------------------------------------------------------------- */

/* Declares a currency with its number of decimal digits (EUR 2, JPY 0): 0 to 18. It cannot change
 * later. Declaring it again with the same digits returns TRUCE_OK; with other digits, the call
 * fails with TRUCE_DUPLICATE. A code is 1 to 24 letters, digits, "-", and "_". */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_ledger_currency(truce_ledger *ledger,
                                                               const char *code, int digits,
                                                               bson_error_t *error);
/* Returns the number of decimal digits of a currency. If it is not declared, the call fails with
 * TRUCE_NOT_FOUND. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_ledger_digits(truce_ledger *ledger, const char *code,
                                                             int *digits, bson_error_t *error);

/* An account and its rules. A name is a string of 1 to 200 bytes; ":" separates its parts
 * ("assets:cash"). */
typedef struct truce_ledger_account {
    const char *account;
    /* The currency of the account. It cannot change later. */
    const char *currency;
    /* After every entry, the available balance is at least `min`, and the balance plus pending
     * credits is at most `max`. Expired amounts do not count, even if the entry that releases them
     * follows later. A limit takes effect with its flag; a limit other than 0 without its flag
     * fails with TRUCE_INVALID. */
    bool has_min, has_max;
    /* A `min` of 0 allows no overdraft; -50000 allows an overdraft of 500.00. */
    int64_t min, max;
    /* The account accepts no credits. */
    bool debit_only;
    /* The account accepts no debits. */
    bool credit_only;
    /* The account accepts neither. An account with pending transactions cannot be closed. */
    bool closed;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_ledger_account;

/* Opens an account. If it is open with these rules, the call returns TRUCE_OK. If it is open with
 * other rules, the call fails with TRUCE_DUPLICATE. If the currency is unknown, it fails with
 * TRUCE_INVALID. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_ledger_open(truce_ledger *ledger,
                                                           truce_commit *commit,
                                                           const truce_ledger_account *account,
                                                           bson_error_t *error);
/* Replaces all rules of an account, from the next transaction on. `currency` may be NULL. The
 * change of the rules gets a number of the account, so each transaction is checked against the
 * rules that were valid at its own number. If the account is not open, the call fails with
 * TRUCE_NOT_FOUND. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_ledger_rules(truce_ledger *ledger,
                                                            truce_commit *commit,
                                                            const truce_ledger_account *account,
                                                            bson_error_t *error);

/* ---- posting ------------------------------------------------------------------------------ */

typedef enum truce_ledger_kind {
    /* Posts the entries now. */
    TRUCE_LEDGER_TRANSFER = 0,
    /* Reserves the entries: outgoing amounts are no longer available. */
    TRUCE_LEDGER_PENDING,
    /* Posts a pending transaction (`of`), completely or, with entries, in part. The remainder
     * becomes available again. */
    TRUCE_LEDGER_SETTLE,
    /* Cancels a pending transaction. */
    TRUCE_LEDGER_VOID,
    /* Posts the opposite of a posted transaction, completely or, with entries, in part; once. */
    TRUCE_LEDGER_REVERSE,
} truce_ledger_kind;

typedef struct truce_ledger_entry {
    const char *account;
    /* The change of the balance; negative for outgoing money. Not 0. */
    int64_t value;
    /* A word for people, which no rule reads. NULL means "withdraw" or "deposit", by the sign of
     * `value`. */
    const char *type;
} truce_ledger_entry;

typedef struct truce_ledger_transaction {
    /* The caller's id. */
    const bson_value_t *id;
    truce_ledger_kind kind;
    /* At most 1,000. Several entries of one account take effect in order, and each must leave the
     * account within its rules. A pending transaction has at most one entry for each account. */
    const truce_ledger_entry *entries;
    uint32_t count;
    /* The transaction that is settled, voided, or reversed. */
    const bson_value_t *of;
    /* The value date, ms since 1970. 0 means the time of booking. A date from 1 to 9,999,999,999,
     * which is probably in seconds, fails with TRUCE_INVALID. */
    int64_t effective_ms;
    /* For a pending transaction: the time after which it cannot be settled and its amounts are
     * available again, ms since 1970. A time that has passed fails with TRUCE_EXPIRED, unless the
     * transaction was posted before. A time before 1970-04-26T17:46:40Z (10,000,000,000 ms) is
     * probably in seconds and fails with TRUCE_INVALID. 0 means never. */
    int64_t expires_ms;
    /* Metadata that is stored with the transaction. NULL means none. */
    const bson_t *meta;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_ledger_transaction;

typedef struct truce_ledger_result {
    /* The status of this transaction, which truce_ledger_post also returns. */
    truce_status status;
    bson_error_t error;
    /* The transaction was posted before; nothing happened now. */
    bool exists;
    /* The time of booking. In an account, it never decreases. */
    int64_t booked_ms;
    uint64_t reserved[4];
} truce_ledger_result;

/*
 * Posts a transaction, now and by itself if `commit` is NULL. `result` may be NULL. No failure
 * leaves a part of a transaction booked.
 *
 *     TRUCE_LIMIT       a rule of an account forbids the amount, or a sum exceeds 64 bits
 *     TRUCE_INVALID     the entries do not balance, or a currency is wrong, or an account is
 *                       closed or does not accept the direction
 *     TRUCE_NOT_FOUND   an account is not open, or `of` does not exist
 *     TRUCE_DUPLICATE   the id was used with different content, or `of` was settled, voided, or
 *                       reversed before
 *     TRUCE_EXPIRED     the pending transaction that is settled has expired; or `expires_ms` of a
 *                       new one has passed, by the clock of this process
 *     TRUCE_UNKNOWN     the store did not reply; post the transaction again
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_ledger_post(
    truce_ledger *ledger, truce_commit *commit, const truce_ledger_transaction *transaction,
    truce_ledger_result *result, bson_error_t *error);

/* Posts each transaction by itself, in order, with a result for each. A refused transaction is not
 * booked, and the following ones are checked without it. Returns TRUCE_OK if every transaction was
 * checked. If the store fails, the transactions that were not checked have the status of the
 * failure. `count` is at most 10,000. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status
truce_ledger_post_many(truce_ledger *ledger, const truce_ledger_transaction *transactions,
                       size_t count, truce_ledger_result *results, bson_error_t *error);

/* Posts all transactions in one commit, or none. Returns the status of the first that is refused;
 * `*refused` (may be NULL) is its index. The commit has at most 1,000 documents: one for each
 * transaction, and one for each that is settled, voided, or reversed. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status
truce_ledger_post_linked(truce_ledger *ledger, const truce_ledger_transaction *transactions,
                         size_t count, size_t *refused, bson_error_t *error);

/* ---- balances ----------------------------------------------------------------------------- */

typedef struct truce_ledger_balance {
    char currency[25];
    /* The last number that the balance includes; at a value date, the last number of the
     * account. */
    int64_t number;
    /* The posted balance. */
    int64_t balance;
    /* Pending amounts that leave the account (positive), and that enter it. */
    int64_t out, in;
    /* balance - out. */
    int64_t available;
    /* The time of booking of `number`. */
    int64_t booked_ms;
    uint64_t reserved[4];
} truce_ledger_balance;

/* The state that a balance is read from; without any field, it is the current state. A number and a
 * booking time exclude each other. A value date may come with one of them. */
typedef struct truce_ledger_moment {
    /* The state after this number of the account. */
    int64_t number;
    /* The state including everything booked until then. */
    int64_t booked_ms;
    /* A value date. The balance is then the sum of all entries of that state whose value date is
     * not later; `out` and `in` are 0. Without a number and a booking time, this includes late
     * bookings. With a booking time, it is the balance by value date as it was known at that time.
     * The number of documents that it reads does not grow with the account's entries, but by one
     * stored sum for each 500,000 of them. */
    int64_t effective_ms;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_ledger_moment;

/* Returns the balance of an account. It is exact for the number that it reports, whatever other
 * writers do. If `as_of` is NULL, it is the current balance. If the account or the number does not
 * exist, the call fails with TRUCE_NOT_FOUND. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_ledger_balance_of(truce_ledger *ledger,
                                                                 const char *account,
                                                                 const truce_ledger_moment *as_of,
                                                                 truce_ledger_balance *balance,
                                                                 bson_error_t *error);

/* Receives an account and its balance; the arguments are borrowed for the call. Returning false
 * ends the walk. */
typedef bool truce_ledger_balance_function(const truce_ledger_account *account,
                                           const truce_ledger_balance *balance, void *arg);

/* Calls `function` for every account whose name is `prefix` or begins with it and ":" (NULL means
 * all), in the order of names. The balances come from one consistent snapshot: it contains each
 * transaction with all its changes or with none, and everything posted before the call. The
 * balances of all accounts of a currency therefore sum to zero, also during writes. The accounts
 * are read one after the other, so that the memory does not grow with their number; on a store
 * without snapshots, all of them are in memory. If the snapshot is open for too long
 * (truce/snapshot.h), the call fails with TRUCE_EXPIRED. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status
truce_ledger_balances(truce_ledger *ledger, const char *prefix,
                      truce_ledger_balance_function *function, void *arg, bson_error_t *error);

/* ---- statements --------------------------------------------------------------------------- */

typedef struct truce_ledger_line {
    /* The id of the transaction. */
    const bson_value_t *id;
    /* The type of the account's change ("" if it has none), and the state of the transaction. */
    const char *type, *state;
    /* The number of the change in the account, its amount, and the balances after it. */
    int64_t number, value, balance, available;
    /* The time of the booking and the value date, in ms since 1970. */
    int64_t booked_ms, effective_ms;
    /* The whole transaction. */
    const bson_t *document;
    uint64_t reserved[4];
} truce_ledger_line;

typedef struct truce_ledger_page {
    /* Return lines after this number. 0 means from the beginning. */
    int64_t after;
    /* The maximum number of lines. 0 means all. */
    int64_t limit;
    /* Return no line after this number, for example the number of the balance on the first page. 0
     * means no bound. */
    int64_t last;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_ledger_page;

/* Receives a line. Returning false ends the walk. */
typedef bool truce_ledger_line_function(const truce_ledger_line *line, void *arg);

/* Calls `function` for the history of an account in order, with the balance after each line. A page
 * never changes: the next one begins after the last number of this one. If the account does not
 * exist, the call fails with TRUCE_NOT_FOUND. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status
truce_ledger_statement(truce_ledger *ledger, const char *account, const truce_ledger_page *page,
                       truce_ledger_line_function *function, void *arg, bson_error_t *error);

/* Receives a transaction. Returning false ends the walk. */
typedef bool truce_ledger_document_function(const bson_t *document, void *arg);

/* Calls `function` for the pending transactions of one account, or (NULL) of all, in the order of
 * expiry. Transactions that were settled or voided, or that have expired, are not passed. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status
truce_ledger_pending(truce_ledger *ledger, const char *account,
                     truce_ledger_document_function *function, void *arg, bson_error_t *error);

/* Conditions of a search; a transaction must meet all of them. */
typedef struct truce_ledger_search {
    /* A filter for fields of the metadata: {order: 17, "shop.town": "Bonn"}. Operators are allowed
     * inside fields: {till: {$gt: 5}}. NULL means any. */
    const bson_t *meta;
    /* A change of this account. NULL means any. */
    const char *account;
    /* Booked at or after `from_ms`, and before `before_ms`. 0 means no bound. */
    int64_t from_ms, before_ms;
    /* The maximum number of transactions. 0 means all. */
    int64_t limit;
    /* Only transactions that follow the one with this id, in the order of the search. NULL means
     * all. */
    const bson_value_t *after;
    /* Must be zero. */
    uint64_t reserved[3];
} truce_ledger_search;

/* Calls `function` for the matching transactions, as stored, in the order of booking; transactions
 * of the same millisecond are in the order of their ids. If you search metadata often, create an
 * index ({"meta.order": 1}: truce_index_create). If `meta` has an operator instead of a field, the
 * call fails with TRUCE_INVALID. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_ledger_find(truce_ledger *ledger,
                                                           const truce_ledger_search *search,
                                                           truce_ledger_document_function *function,
                                                           void *arg, bson_error_t *error);

/* Calls `function` once for every transaction of one consistent snapshot (as in
 * truce_ledger_balances), as stored. The order is that of booking, and each transaction follows
 * its predecessors on all its accounts. Posting the transactions in this order creates the same
 * book, except that a pending transaction that has expired in the meantime is refused. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_ledger_walk(truce_ledger *ledger,
                                                           truce_ledger_document_function *function,
                                                           void *arg, bson_error_t *error);

/* ---- verification ------------------------------------------------------------------------- */

typedef struct truce_ledger_report {
    int64_t accounts, entries, findings;
    uint64_t reserved[4];
} truce_ledger_report;

/* Receives a finding: {rule, account, number, id?, text}. */
typedef void truce_ledger_finding_function(const bson_t *finding, void *arg);

/* Takes a part of a seal; returns false to end the seal. */
typedef bool truce_ledger_seal_function(const bson_t *part, void *arg);

/* Seals the current book, from one consistent snapshot. Calls `function` with the parts of the
 * seal, in their order, each with at most 1,000 accounts in the order of names:
 *
 *     {ledger, time, part: 1, before?, accounts: [{account, number, balance, hash}], last: false,
 *     hash}
 *
 * `hash` is over the part, and `before` is the hash of the preceding part. Store the parts
 * elsewhere: an attacker who rewrites the book from an old entry on cannot rewrite them. An
 * interrupted seal has no last part, and cannot be resumed, because its snapshot is gone: make
 * another one. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_ledger_seal(truce_ledger *ledger,
                                                           truce_ledger_seal_function *function,
                                                           void *arg, bson_error_t *error);

/* Sets *part to the next part of a seal, which stays valid until the next call; NULL means that
 * there are no more parts. */
typedef truce_status truce_ledger_seal_next(const bson_t **part, void *arg, bson_error_t *error);

/* The parts of a seal, in their order. */
typedef struct truce_ledger_seal_source {
    truce_ledger_seal_next *next;
    void *arg;
    uint64_t reserved[4]; /* Must be zero. */
} truce_ledger_seal_source;

/*
 * Verifies every entry of one account, or of all if it is NULL. Reports the first fault of each
 * account:
 *   - a number is missing;
 *   - a balance is not the sum of the preceding changes;
 *   - a transaction does not balance;
 *   - a hash does not match its content: the entry was changed after booking;
 *   - the stored sums by value date are not those of the entries;
 *   - with a seal (NULL means none): the account differs from its sealed state.
 *
 * The call returns TRUCE_OK also with findings. If the seal is damaged, is of another ledger, or
 * has no last part, the call fails with TRUCE_INVALID.
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status
truce_ledger_verify(truce_ledger *ledger, const char *account, const truce_ledger_seal_source *seal,
                    truce_ledger_finding_function *function, void *arg, truce_ledger_report *report,
                    bson_error_t *error);

/* ---- amounts as strings ------------------------------------------------------------------- */

/* The buffer size in bytes for any amount as a string. */
#define TRUCE_LEDGER_AMOUNT 48

/* Formats an amount: -1250 with 2 digits becomes "-12.50". Returns `text`. */
TRUCE_EXPORT const char *truce_ledger_show(int64_t value, int digits,
                                           char text[TRUCE_LEDGER_AMOUNT]);
/* Parses an amount: "12.5", "12.50", "-0.07", "+3". If the string is not an amount, or has more
 * digits than the currency, the call fails with TRUCE_INVALID. If the amount exceeds 64 bits, it
 * fails with TRUCE_LIMIT. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_ledger_read(const char *text, int digits,
                                                           int64_t *value, bson_error_t *error);

TRUCE_END_DECLS

#endif

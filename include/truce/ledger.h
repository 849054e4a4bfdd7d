#ifndef TRUCE_LEDGER_H
#define TRUCE_LEDGER_H

/*
 * A ledger: a book of transactions between accounts, in which nothing is ever changed. One document holds a
 * transaction together with its account changes:
 *
 *     {_id: "order 17", ts: Date, proc: "COMMITTED", state: "VALID", meta: {...},
 *      changes: [{account: "customers:ada", type: "withdraw", value: -1250, currency: "EUR",
 *                 seqId: 801, cachedBal: 48750, rules: 1, hash: ...},
 *                {account: "shop:sales", type: "deposit", value: 1250, ..., seqId: 203, ...}]}
 *
 * under a unique index {changes.account: 1, changes.seqId: 1}: each number of an account is given once, and
 * they have no gaps. So an account is one history in one order, a rule of it (no overdraft) is exact whoever
 * else writes, and `cachedBal` is the balance after that number: right, or absent.
 *
 *   - Double entry: the values of a transaction sum to zero for each currency. What comes in from outside comes
 *     from an account that stands for the outside ("external:bank").
 *   - Values are whole numbers of the smallest unit (cents): a currency says how many digits it has. A sum that
 *     leaves 64 bits is refused. Doubles and decimals are not booked: they round.
 *   - A transaction is posted under the caller's id. Posted again it says so (`exists`), and nothing happens;
 *     the same id with other content is refused. So whoever had no answer posts it again.
 *   - Every call that writes may be a part of a commit (truce/commit.h): move the money, mark the order paid.
 *   - Each change carries a hash over itself and the change before it on its account: truce_ledger_verify names
 *     the first entry that was tampered with.
 *
 * The idea and the documents are those of A. Girbal, How to Implement Robust and Scalable Transactions Across
 * Documents with MongoDB (solution 4, log reconciliation), with its traps closed: docs/ledger.md. Pending
 * transactions and linked ones are as in TigerBeetle.
 *
 * Threads: a handle may be used from any number of threads; posts of several threads travel together.
 */
#include "truce/commit.h"
#include "truce/store.h"

TRUCE_BEGIN_DECLS

typedef struct truce_ledger truce_ledger;

typedef struct truce_ledger_options {
    const char *collection; /* must be said */
    /* A collection of truce's own for the numbers, as documents, so that the ledger can be sharded: said once, by the first
     * who writes. NULL: as it was said then; if it was not, a unique index has them. */
    const char *slots;
    uint32_t deadline_ms; /* how long a call waits for others and tries; 0: 30,000 */
    uint64_t reserved[4]; /* zeros */
} truce_ledger_options;

/* Never NULL; what is wrong with the options is refused by every call, by name. The options are copied; the
 * store must outlive the ledger. Indexes are made by the first call that writes. */
TRUCE_EXPORT truce_ledger *truce_ledger_new(truce_store *store,
                                            const truce_ledger_options *options);
TRUCE_EXPORT void truce_ledger_free(truce_ledger *ledger);

/* ---- currencies and accounts --------------------------------------------------------------- */

/* Says that the currency has so many digits behind the point (EUR 2, JPY 0): 0 to 18, for ever. OK: also if it
 * was said before. DUPLICATE: with other digits. A code is 1 to 24 letters, digits, "-" and "_". */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_ledger_currency(truce_ledger *ledger,
                                                               const char *code, int digits,
                                                               bson_error_t *error);
/* NOT_FOUND: no such currency. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_ledger_digits(truce_ledger *ledger, const char *code,
                                                             int *digits, bson_error_t *error);

/* An account and its rules. Names are texts of 1 to 200 bytes, parts with ":" between ("assets:cash"). */
typedef struct truce_ledger_account {
    const char *account;
    const char *currency; /* it has one, and keeps it */
    /* Available money may not fall below min, nor the balance with what is pending rise above max, after any entry. */
    bool has_min, has_max;
    int64_t min, max;     /* min 0: no overdraft; min -50000: 500.00 of it */
    bool debit_only;      /* nothing comes in */
    bool credit_only;     /* nothing goes out */
    bool closed;          /* neither; an account with pending transactions cannot be closed */
    uint64_t reserved[4]; /* zeros */
} truce_ledger_account;

/* OK: also if it is open with these rules. DUPLICATE: it is open with others. INVALID: an unknown currency. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_ledger_open(truce_ledger *ledger,
                                                           truce_commit *commit,
                                                           const truce_ledger_account *account,
                                                           bson_error_t *error);
/* From the next transaction on these rules hold, all of them; `currency` may be NULL. They take a number of the
 * account, so each transaction was judged by the rules of its moment. NOT_FOUND: it is not open. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_ledger_rules(truce_ledger *ledger,
                                                            truce_commit *commit,
                                                            const truce_ledger_account *account,
                                                            bson_error_t *error);

/* ---- posting ------------------------------------------------------------------------------- */

typedef enum truce_ledger_kind {
    TRUCE_LEDGER_TRANSFER = 0, /* the entries, now */
    TRUCE_LEDGER_PENDING,      /* reserved: what would go out is not available any more */
    TRUCE_LEDGER_SETTLE, /* posts a pending one (`of`), whole or, with entries, a part of it; the rest
                                  is free again */
    TRUCE_LEDGER_VOID,   /* gives a pending one up */
    TRUCE_LEDGER_REVERSE, /* the opposite of a posted one, whole or, with entries, a part; once */
} truce_ledger_kind;

typedef struct truce_ledger_entry {
    const char *account;
    int64_t value;    /* what the balance rises by: below zero, what goes out. Not 0 */
    const char *type; /* NULL: "withdraw" or "deposit" */
} truce_ledger_entry;

typedef struct truce_ledger_transaction {
    const bson_value_t *id; /* the caller's */
    truce_ledger_kind kind;
    /* At most 1,000. Several of one account take effect in their order, and each must leave the account within its
     * rules. A pending transaction has one of each account. */
    const truce_ledger_entry *entries;
    uint32_t count;
    const bson_value_t *of; /* what is settled, given up or reversed */
    int64_t effective_ms;   /* since 1970, the value date; 0: when it is booked */
    /* Of a pending one: from then on it cannot be settled, and its amounts are free; 0: never. */
    int64_t expires_ms;
    const bson_t *meta;   /* NULL: none */
    uint64_t reserved[4]; /* zeros */
} truce_ledger_transaction;

typedef struct truce_ledger_result {
    truce_status status; /* of truce_ledger_post_many */
    bson_error_t error;
    bool exists;       /* it was posted before: nothing happened now */
    int64_t booked_ms; /* when it was booked; of an account later than, or as, all before it */
    uint64_t reserved[4];
} truce_ledger_result;

/* `commit` NULL: alone, now. `result` may be NULL.
 *
 * LIMIT: a rule of an account forbids the amount (too little is available), or a sum leaves 64 bits. INVALID: it does
 * not balance, a currency, a closed account or one of one direction; sending it again will not help. NOT_FOUND: an
 * account is not open, or there is no `of`. DUPLICATE: the id was used with other content, or `of` was settled,
 * given up or reversed before. EXPIRED: the pending one's time is over. UNKNOWN: no answer; post it again. Nothing is
 * booked by half, whatever happens. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_ledger_post(
    truce_ledger *ledger, truce_commit *commit, const truce_ledger_transaction *transaction,
    truce_ledger_result *result, bson_error_t *error);

/* Each by itself, in this order, each with its own result: one that is refused is not booked, and the next one is
 * judged without it. OK: every one was judged; else (the store failed) those that were not have the status. At most
 * 10,000 at a time. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status
truce_ledger_post_many(truce_ledger *ledger, const truce_ledger_transaction *transactions,
                       size_t count, truce_ledger_result *results, bson_error_t *error);

/* All or none, in one commit: the status of the first that is refused, and `*refused` (may be NULL) its place. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status
truce_ledger_post_linked(truce_ledger *ledger, const truce_ledger_transaction *transactions,
                         size_t count, size_t *refused, bson_error_t *error);

/* ---- balances ------------------------------------------------------------------------------ */

typedef struct truce_ledger_balance {
    char currency[25];
    int64_t number;    /* the last one that is in it */
    int64_t balance;   /* posted */
    int64_t out, in;   /* pending */
    int64_t available; /* balance - out */
    int64_t booked_ms; /* of that number */
    uint64_t reserved[4];
} truce_ledger_balance;

/* At most one of them; none: now. */
typedef struct truce_ledger_moment {
    int64_t number;       /* after that number of the account */
    int64_t booked_ms;    /* with all that was booked until then */
    int64_t effective_ms; /* with all whose value date is not later; `out` and `in` are 0 then */
    uint64_t reserved[4]; /* zeros */
} truce_ledger_moment;

/* Right for the number that it tells, whatever goes on. `moment` NULL: now. NOT_FOUND: no such account, or number. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_ledger_balance_of(truce_ledger *ledger,
                                                                 const char *account,
                                                                 const truce_ledger_moment *moment,
                                                                 truce_ledger_balance *balance,
                                                                 bson_error_t *error);

/* False ends the walk. What is pointed to is borrowed for the call. */
typedef bool truce_ledger_balance_function(const truce_ledger_account *account,
                                           const truce_ledger_balance *balance, void *arg);

/* Every account whose name is `prefix` or begins with it and ":" (NULL: all), in the order of names, as they stood
 * in one consistent cut: each transaction is in it with all its changes or with none, and what was posted before the
 * call is in. So the balances of all accounts of a currency sum to zero, whoever writes meanwhile. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status
truce_ledger_balances(truce_ledger *ledger, const char *prefix,
                      truce_ledger_balance_function *function, void *arg, bson_error_t *error);

/* ---- statements ---------------------------------------------------------------------------- */

typedef struct truce_ledger_line {
    const bson_value_t *id; /* of the transaction */
    const char *type, *state;
    int64_t number, value, balance, available;
    int64_t booked_ms, effective_ms;
    const bson_t *document; /* the whole transaction */
    uint64_t reserved[4];
} truce_ledger_line;

typedef struct truce_ledger_page {
    int64_t after; /* lines behind this number; 0: from the beginning */
    int64_t limit; /* lines; 0: all */
    int64_t last;  /* none behind this number: what a first page's balance said; 0: all there are */
    uint64_t reserved[4]; /* zeros */
} truce_ledger_page;

typedef bool truce_ledger_line_function(const truce_ledger_line *line, void *arg);

/* The account's history in order, with the balance after each line. A page never changes: the next one begins after
 * the last number of this one. NOT_FOUND: no such account. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status
truce_ledger_statement(truce_ledger *ledger, const char *account, const truce_ledger_page *page,
                       truce_ledger_line_function *function, void *arg, bson_error_t *error);

typedef bool truce_ledger_document_function(const bson_t *document, void *arg);

/* The pending transactions that nobody has settled or given up yet, the one that expires first first; of one account,
 * or (NULL) of all. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status
truce_ledger_pending(truce_ledger *ledger, const char *account,
                     truce_ledger_document_function *function, void *arg, bson_error_t *error);

/* All that is said has to be met. */
typedef struct truce_ledger_search {
    const bson_t *
        meta; /* a filter for fields of the metadata: {order: 17, "shop.town": "Bonn"}; operators stand inside
                         * of fields ({till: {$gt: 5}}). NULL: any */
    const char *account;        /* with a change of that account; NULL: any */
    int64_t from_ms, before_ms; /* booked from then on, and before then; 0: always */
    int64_t limit;              /* so many; 0: all */
    uint64_t reserved[4];       /* zeros */
} truce_ledger_search;

/* The transactions that meet it, as they are stored, in the order of booking. Metadata that is searched often wants an index
 * ({"meta.order": 1}: truce_index_create). INVALID: an operator instead of a field. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_ledger_find(truce_ledger *ledger,
                                                           const truce_ledger_search *search,
                                                           truce_ledger_document_function *function,
                                                           void *arg, bson_error_t *error);

/* Every transaction of one consistent cut (as truce_ledger_balances has it), as it is stored, once: in the order of booking,
 * and each behind all that stands before it on its accounts. So whoever posts them in this order has the same book. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_ledger_walk(truce_ledger *ledger,
                                                           truce_ledger_document_function *function,
                                                           void *arg, bson_error_t *error);

/* ---- proof --------------------------------------------------------------------------------- */

typedef struct truce_ledger_report {
    int64_t accounts, entries, findings;
    uint64_t reserved[4];
} truce_ledger_report;

/* A finding: {rule, account, number, id?, text}. */
typedef void truce_ledger_finding_function(const bson_t *finding, void *arg);

/* Walks over every entry (of one account, or NULL: of all) and tells, for each account, the first that is wrong: a number
 * is missing, a balance is not the sum of what stands before it, a transaction does not balance, or a hash is not
 * that of what it stands for: somebody changed what must not be changed. With a seal also if the account is no longer
 * what was sealed. OK, also with findings. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status
truce_ledger_verify(truce_ledger *ledger, const char *account, const bson_t *seal,
                    truce_ledger_finding_function *function, void *arg, truce_ledger_report *report,
                    bson_error_t *error);

/* A seal over the book as it stands, in one consistent cut: {ledger, time, accounts: [{account, number, balance,
 * hash}], hash}. Keep it elsewhere: whoever rewrites the book from an old entry on cannot rewrite the seal. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_ledger_seal(truce_ledger *ledger, bson_t *seal,
                                                           bson_error_t *error);

/* ---- amounts as texts ---------------------------------------------------------------------- */

#define TRUCE_LEDGER_AMOUNT 48 /* bytes that any amount's text fits in */

/* -1250 with 2 digits is "-12.50"; returns `text`. */
TRUCE_EXPORT const char *truce_ledger_show(int64_t value, int digits,
                                           char text[TRUCE_LEDGER_AMOUNT]);
/* "12.5", "12.50", "-0.07", "+3": the whole text. INVALID: it is no amount, or has more digits than the currency;
 * LIMIT: it does not fit. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_ledger_read(const char *text, int digits,
                                                           int64_t *value, bson_error_t *error);

TRUCE_END_DECLS

#endif

#ifndef TRUCE_PATTERNS_LEDGER_LEDGER_H
#define TRUCE_PATTERNS_LEDGER_LEDGER_H

/* Declarations that the files of the ledger share. The invariants (LG1 ...) are in ledger.c. */
#include <pthread.h>
#include <stdatomic.h>

#include "base/buffer.h"
#include "base/limits.h"
#include "base/sha256.h"
#include "base/status.h"
#include "bson/value.h"
#include "commit/journal.h"
#include "truce/ledger.h"

/* The maximum count of digits of a currency after the decimal point. */
#define LEDGER_DIGITS_MAX 18
/* The maximum length of the code of a currency, in bytes. */
#define LEDGER_CURRENCY_MAX 24
/* The end of the year 9999 in ms since 1970. */
#define LEDGER_NEVER_MS INT64_C(253402300799000)
/* The maximum count of numbers that one message of truce__ledger_fetch_range reads. */
#define LEDGER_WINDOW 200

/* The rules of an account. */
struct ledger_rules {
    /* The code of the currency, or "" if the account is not open. */
    char currency[25];
    bool has_min, has_max, debit_only, credit_only, closed;
    /* The limits of the balance with pending amounts, in the smallest unit of the currency. Valid
     * if `has_min`, or `has_max`. */
    int64_t min, max;
};

/* The state of an account after one of its numbers. */
struct ledger_state {
    /* The number, the balance after it, and the pending amounts: `out` of debits and `in` of
     * credits, both positive. */
    int64_t number, balance, out, in;
    /* The booking time of the number. */
    int64_t booked_ms;
    /* The number that set the rules, or 0 if no number has set rules. */
    int64_t rules_at;
    struct ledger_rules rules;
    /* Documents that are not committed yet have later numbers of the account. */
    bool behind;
    /* The hash of the account after the number. */
    uint8_t hash[SHA256_BYTES];
};

/* A change of a document; its strings are borrowed from the document. */
struct ledger_change {
    const char *account, *type, *currency;
    /* `value` changes the balance, or reserves an amount. `release` is the part of a pending change
     * that becomes free. */
    int64_t number, value, release;
    /* The change has `cachedBal`, so `balance`, `out`, `in`, and `rules_at` are valid. */
    bool cached;
    int64_t balance, out, in, rules_at;
    /* The change has a hash, which is in `hash`: that of the account after the change. */
    bool hashed;
    uint8_t hash[SHA256_BYTES];
    /* The change sets the rules of the account, which are in `set`; borrowed. */
    bool sets;
    bson_t set;
};

/* ---- the last numbers of an account (ledger_value_date.c) ------------------------------------ */

#define LEDGER_SUMS_RUN 128 /* The count of numbers that a run of level 0 covers. */

/* A number of an account: its value by value date, if it counts. */
struct ledger_tail_value {
    /* The value date in ms since 1970, and the change of the balance. */
    int64_t date, value;
    bool counts;
};

/* Some numbers of an account, from which runs of stored sums are built without reading. */
struct ledger_tail {
    /* The first value belongs to the number after this one. Owned, as `hashes`. */
    int64_t after;
    struct ledger_tail_value *values;
    uint32_t count, room;
    /* The hashes of the account after those of these numbers that end a run. */
    uint8_t (*hashes)[SHA256_BYTES];
    uint32_t hashes_count;
    /* In a batch: the hash of the account before the first of these numbers. In the handle: the
     * hash of the account after its remembered state. */
    uint8_t hash[SHA256_BYTES];
};

/* Adds the number that follows the last one. `hash` is that of the account after it. */
void truce__ledger_tail_add(struct ledger_tail *tail, int64_t number,
                            const struct ledger_tail_value *value,
                            const uint8_t hash[SHA256_BYTES]);
void truce__ledger_tail_release(struct ledger_tail *tail);

/* ---- accounts by name (ledger_account_table.c) ----------------------------------------------- */

/* The known facts of an account, in a batch or in a handle. */
struct ledger_known {
    /* The name. Owned. */
    char *account;
    /* In a batch: the numbers that the batch posts. In the handle: the numbers since the last
     * complete run, or an empty tail. */
    struct ledger_tail tail;
    /* The last number of the account before this call planned anything, from the cache or from a
     * read. */
    int64_t root;
    /* The version of the store (truce__store_version) in which `state` was the last one, or 0 if no
     * such version is known. */
    uint64_t version;
    /* The last state, and the state after the transaction that is being planned. */
    struct ledger_state state, next;
    /* `loaded`: `state` is valid. `fresh`: it was read in this call. `touched`: `next` is valid. */
    bool loaded, fresh, touched;
    /* A transaction of this batch was planned after the state that was known. */
    bool planned;
    /* The next two fields are valid: the pending amounts of the account that have expired. */
    bool overdue_known;
    int64_t overdue_out, overdue_in;
};

/* Accounts by name. */
struct ledger_table {
    struct ledger_known **slots;
    /* The number of accounts, and the size of `slots`, which is a power of two, or 0. */
    uint32_t count, room;
};

/* Returns the hash of a name, by which accounts are stored in a table and assigned to lanes. */
uint64_t truce__ledger_hash(const char *account);
/* Returns the account, or NULL if the table does not have it. */
struct ledger_known *truce__ledger_find(const struct ledger_table *table, const char *account);
/* Returns the account; creates it if necessary. It stays at its address until the table is
 * cleared. */
struct ledger_known *truce__ledger_at(struct ledger_table *table, const char *account);
void truce__ledger_table_clear(struct ledger_table *table);

/* ---- a sorted list of accounts (ledger_account_list.c) --------------------------------------- */

struct sorter;

/* Initialize it with zeros; truce__ledger_list_release frees it. */
struct ledger_list {
    /* The current account and its greatest number; NULL after the last account. */
    const char *account;
    int64_t number;
    /* Accounts that are not in the sorter yet, by their greatest number (state.number). */
    struct ledger_table table;
    /* The rows of the accounts that left the table, or NULL before any has left it. Owned. */
    struct sorter *sorter;
    /* The bytes of the name of the current account. */
    struct buffer row;
    /* The next row of the sorter after those of the current account, or NULL if there are no more
     * rows. */
    const void *ahead;
    /* The first row of the sorter was read. */
    bool begun;
};

/* Adds a number of an account. */
truce_status truce__ledger_list_add(struct ledger_list *list, const char *account, int64_t number,
                                    bson_error_t *error);
/* Ends the adding. Makes the first account, in the order of names, the current one. */
truce_status truce__ledger_list_sort(struct ledger_list *list, bson_error_t *error);
/* Makes the next account the current one. */
truce_status truce__ledger_list_next(struct ledger_list *list, bson_error_t *error);
void truce__ledger_list_release(struct ledger_list *list);

/* ---- the handle (ledger.c) ------------------------------------------------------------------- */

struct ledger_waiting;
struct ledger_plan_cache;

#define LEDGER_LEADERS 2 /* The maximum number of batches in flight at the same time. */
/* The number of lanes. A lane has the accounts with the same hash of their names. */
#define LEDGER_LANES 4096

/* A handle for a ledger. Threads may share it. */
struct truce_ledger {
    truce_store *store;
    char *collection;
    uint32_t deadline_ms;
    /* The options are invalid; every call fails with `refusal`. */
    bool refused;
    bson_error_t refusal;
    /* Protects the fields below, except `came`. */
    pthread_mutex_t mutex;
    /* The indexes and the ledger's line in LEDGERS exist. */
    bool ready;
    /* The structure number of the store for which the remembered states are valid, or 0 if none are
     * remembered. */
    uint64_t structure;
    /* The collection of the documents of numbers, or NULL if an index makes the numbers unique.
     * Owned. */
    char *slots;
    /* The queue of waiting posts. Each element is on the stack of its waiting thread. */
    struct ledger_waiting *first, *last;
    /* The number of batches in flight. */
    uint32_t leaders;
    /* The number of waiting posts, and the number for which a leader waits (post_expect). */
    uint32_t waiting, expected;
    /* A leader waits until `expected` posts wait. */
    bool gathering;
    /* A futex that each new post increments. */
    atomic_uint came;
    /* For each lane, the number of entries in batches in flight. */
    uint32_t lanes[LEDGER_LANES];
    /* For each lane, the number of entries of posts that cannot start yet. All zero while
     * post_take_group does not run. */
    uint32_t left[LEDGER_LANES];
    /* The remembered states. Each was right after its number, which need not be the last one any
     * more. */
    struct ledger_table known;
    /* The number of values in the tails of the accounts in `known`. */
    uint64_t tails;
    /* The plan of the last post in a commit (ledger_commit.c), or NULL. Owned. */
    struct ledger_plan_cache *kept;
    /* The currencies as they were last read: {code: number of decimal digits}. */
    bson_t currencies;
};

struct ledger_reader;

/* Fails if the options of the handle are invalid, or if the store was inherited by a fork. */
truce_status truce__ledger_usable(const truce_ledger *ledger, bson_error_t *error);
/* Ensures the indexes and the ledger's line in LEDGERS. Without `creates`, a ledger that does not
 * exist fails as truce__ledger_must_exist does: only a currency or an account creates a ledger. */
truce_status truce__ledger_ready(truce_ledger *ledger, bool creates, bson_error_t *error);
/* Checks the name of an account. `error` may be NULL. */
truce_status truce__ledger_account_name(const char *account, bson_error_t *error);

/* Forgets what the handle remembers: another client dropped or emptied the collection. */
void truce__ledger_forget(truce_ledger *ledger);
/* Forgets what the handle remembers if the collection is empty and the store does not report drops.
 * Does nothing on a store that reports them. */
truce_status truce__ledger_begin_again(truce_ledger *ledger, bson_error_t *error);
/* Returns a remembered state, which may not be the last one any more. Returns false if no state of
 * the account is remembered. */
bool truce__ledger_recall(truce_ledger *ledger, const char *account, struct ledger_state *state);
/* Remembers the state, and builds the runs of stored sums that the account has completed since the
 * state that was remembered before. If the state was read as the last one, `version` is the version
 * of the store from before the read; otherwise it is 0. */
void truce__ledger_remember(struct ledger_reader *reader, const char *account,
                            const struct ledger_state *state, uint64_t version);
/* Does what truce__ledger_remember does, for an account of a batch that was posted. Adds the runs
 * that its tail completes to `runs`. */
struct ledger_runs;
void truce__ledger_remember_posted(struct ledger_reader *reader, const struct ledger_known *posted,
                                   struct ledger_runs *runs);
/* Returns the remembered state if it is the account's last one in this version of the store. */
bool truce__ledger_recall_last(truce_ledger *ledger, const char *account, uint64_t version,
                               struct ledger_state *state);

/* ---- documents (ledger_document.c) ----------------------------------------------------------- */

struct ledger_slot;

/* A list of documents. */
struct ledger_documents {
    bson_t **items;
    uint32_t count, room;
    /* The changes of the first `positions_of` items, sorted by account and number. Owned. */
    struct ledger_slot *positions;
    uint32_t positions_count, positions_of;
};

/* Appends a copy of the document. */
void truce__ledger_keep(struct ledger_documents *documents, const bson_t *document);
void truce__ledger_documents_release(struct ledger_documents *documents);
/* Returns the document with the account's change of that number, or NULL if none exists. */
const bson_t *truce__ledger_numbered(struct ledger_documents *documents, const char *account,
                                     int64_t number);

struct fields truce__ledger_changes(const bson_t *document);
/* Reads a change. Returns false if it cannot be a change of a ledger. */
bool truce__ledger_change(struct value value, struct ledger_change *change);
/* Finds the account's change with that number (0 for its last one). Returns false if none
 * exists. */
bool truce__ledger_change_of(const bson_t *document, const char *account, int64_t number,
                             struct ledger_change *change);
/* Returns true for a COMMITTED change with its balance and its hash: a committed number of its
 * account. */
bool truce__ledger_is_anchor(const bson_t *document, const struct ledger_change *change);
/* Returns whether the field is this string. */
bool truce__ledger_is(const bson_t *document, const char *field, const char *text);
/* Returns a date or timestamp in ms since 1970, or 0 if the field is neither. */
int64_t truce__ledger_date(const bson_t *document, const char *field);
/* Returns a field, borrowed, or a value of the type EOD if it is missing. */
bson_value_t truce__ledger_value(const bson_t *document, const char *field);

/* Returns true if the document has the field with that value; a NULL value means no such field. */
bool truce__ledger_has(const bson_t *document, const char *field, const bson_value_t *value);

/* Reads the rules from the field `set` of a change. The next function appends rules to such a
 * field. */
void truce__ledger_rules_of(const bson_t *set, struct ledger_rules *rules);
void truce__ledger_rules_append(const struct ledger_rules *rules, bson_t *set);

/* Hashes all immutable content of a document except the fields of the chain. */
void truce__ledger_digest(const bson_t *document, uint8_t digest[SHA256_BYTES]);
/* Computes the hash of `state`, which is after the change, as the link after `before`. */
void truce__ledger_chain(const uint8_t digest[SHA256_BYTES], const char *account,
                         const uint8_t before[SHA256_BYTES], struct ledger_state *state);

/* Adds the change to the state. Returns LIMIT if a sum exceeds 64 bits. `counts` is true if its
 * transaction is VALID, and `pending` if it is PENDING. */
truce_status truce__ledger_add(struct ledger_state *state, const struct ledger_change *change,
                               bool counts, bool pending, bson_error_t *error);

/* ---- reading (ledger_account_head.c) --------------------------------------------------------- */

struct ledger_reader {
    truce_ledger *ledger;
    struct worker worker;
    /* The caller writes after its reads, so the reads may return data that is not durable yet. */
    bool early;
};

void truce__ledger_reader_init(struct ledger_reader *reader, truce_ledger *ledger);

/* Returns true for a document that a commit in flight will insert. */
bool truce__ledger_is_stub(const bson_t *document);
/* Reads all transactions with a change of the account whose number meets `condition`, in no order,
 * free of intents. A limit of 0 reads all of them. */
truce_status truce__ledger_fetch(struct ledger_reader *reader, const char *account,
                                 const bson_t *condition, int64_t limit,
                                 struct ledger_documents *documents, bson_error_t *error);
/* Reads all transactions with changes of these accounts (an array of names), free of intents. */
truce_status truce__ledger_fetch_accounts(struct ledger_reader *reader, const bson_t *accounts,
                                          struct ledger_documents *documents, bson_error_t *error);
/* Reads these numbers, which should be few. */
truce_status truce__ledger_fetch_numbers(struct ledger_reader *reader, const char *account,
                                         const int64_t *numbers, uint32_t count,
                                         struct ledger_documents *documents, bson_error_t *error);
/* Reads the numbers `from` to `to`. */
truce_status truce__ledger_fetch_range(struct ledger_reader *reader, const char *account,
                                       int64_t from, int64_t to, struct ledger_documents *documents,
                                       bson_error_t *error);
/* Reads by any filter, free of intents. */
truce_status truce__ledger_fetch_filter(struct ledger_reader *reader, const bson_t *filter,
                                        const bson_t *sort, int64_t limit,
                                        struct ledger_documents *documents, bson_error_t *error);
/* Does what truce__ledger_fetch_filter does, in another collection. */
truce_status truce__ledger_fetch_in(struct ledger_reader *reader, const char *collection,
                                    const bson_t *filter, struct ledger_documents *documents,
                                    bson_error_t *error);
/* Finds the state of the account after its last committed number. On entry, `state` is the known
 * state, or zeros if no state is known. */
truce_status truce__ledger_head(struct ledger_reader *reader, const char *account,
                                struct ledger_state *state, bson_error_t *error);
/* Reads by one message whether a transaction has the id, and moves the states of the accounts,
 * which were remembered, to their last numbers. Sets *usual if no transaction has the id, and the
 * states are the last ones. Otherwise the states may be wrong: read them one by one. */
truce_status truce__ledger_heads(struct ledger_reader *reader, const bson_value_t *id,
                                 struct ledger_known *const *accounts, uint32_t count, bool *usual,
                                 bson_error_t *error);
/* Finds the state after that number. Returns NOT_FOUND if the account has no such number. */
truce_status truce__ledger_state_at(struct ledger_reader *reader, const char *account,
                                    int64_t number, struct ledger_state *state,
                                    bson_error_t *error);
/* Finds the state in a document that has the number; `state` is what is known, for its rules. */
truce_status truce__ledger_state_of(struct ledger_reader *reader, const bson_t *document,
                                    const char *account, int64_t number, struct ledger_state *state,
                                    bson_error_t *error);
/* Reads a transaction by its _id. Returns NOT_FOUND if none exists. */
truce_status truce__ledger_transaction(struct ledger_reader *reader, const bson_value_t *id,
                                       bson_t *document, bson_error_t *error);
/* Reads the transaction that settles, voids, or reverses another one. Returns NOT_FOUND if none
 * exists. */
truce_status truce__ledger_settled(struct ledger_reader *reader, const bson_value_t *of,
                                   bson_t *document, bson_error_t *error);

/* ---- sums by value date (ledger_value_date.c) ------------------------------------------------ */

/* A value by its value date. */
struct ledger_dated {
    /* The value date in ms since 1970, and the change of the balance. */
    int64_t date, value;
};

/* Returns the value date of a transaction: its own, or the booking time. */
int64_t truce__ledger_value_date(const bson_t *document);
/* Sums the values among the account's numbers up to `last` whose value date is not later than
 * `until_ms`. */
truce_status truce__ledger_sum_until(struct ledger_reader *reader, const char *account,
                                     int64_t last, int64_t until_ms, int64_t *sum,
                                     bson_error_t *error);
/* Builds the runs that end after the number `before` (or, if it is -1, with `number` itself) and up
 * to `number`, which is committed. Does nothing on a view. */
void truce__ledger_sums_complete(struct ledger_reader *reader, const char *account, int64_t before,
                                 int64_t number);
/* Runs of the smallest size that were made from tails. */
struct ledger_runs {
    struct ledger_reader *reader;
    struct ledger_documents documents;
};
/* Adds the numbers of a batch to the tail of the handle, and the runs that are complete to `runs`.
 * Returns the number after which the runs are made from the tail: earlier ones have to be read. */
int64_t truce__ledger_tail_join(struct ledger_tail *tail, const struct ledger_known *posted,
                                struct ledger_runs *runs);
/* Stores the runs, and those of further levels that end with a number of the tails of these
 * accounts. */
void truce__ledger_runs_store(struct ledger_runs *runs, const struct ledger_table *accounts);
/* Removes the stored runs of the ledger if its book is empty, for example because it was
 * dropped. */
truce_status truce__ledger_sums_clean(const truce_ledger *ledger, bson_error_t *error);
/* Compares the stored runs that end with the number `to` with their entries. `dated` has the values
 * of the last LEDGER_SUMS_RUN numbers; it is sorted. Sets *wrong if a run differs, or one of its
 * pages is missing. */
truce_status truce__ledger_sums_prove(struct ledger_reader *reader, const char *account, int64_t to,
                                      const uint8_t hash[SHA256_BYTES], struct ledger_dated *dated,
                                      uint32_t count, bool *wrong, bson_error_t *error);

/* ---- planning (ledger_plan.c) ---------------------------------------------------------------- */

enum ledger_verb { LEDGER_POST, LEDGER_OPEN, LEDGER_RULES, LEDGER_EXPIRE };

/* A call that posts one transaction. */
struct ledger_request {
    enum ledger_verb verb;
    /* The transaction to post, for LEDGER_POST. */
    const truce_ledger_transaction *transaction;
    /* The transaction comes from another book and may have expired, for LEDGER_POST. */
    bool history;
    /* The account and its rules, for LEDGER_OPEN and LEDGER_RULES. */
    const char *account;
    struct ledger_rules rules;
    /* The _id of the pending transaction whose release is booked, for LEDGER_EXPIRE. */
    const bson_value_t *of;
    truce_ledger_result *result;
    /* The result has its final status. */
    bool settled;
    /* The transaction was sent without a reply, so it may be stored. */
    bool sent;
};

/* Checks what a request gives, independently of the book: for example, that it has an id. */
truce_status truce__ledger_check_given(const truce_ledger_transaction *given, bson_error_t *error);

/* The inputs of a plan. */
struct ledger_plan {
    truce_ledger *ledger;
    struct ledger_reader reader;
    /* The commit to which the posts belong, or NULL for posts without a commit. */
    truce_commit *commit;
    /* The commit had no transactions of its own when the plan began. */
    bool alone;
    /* The states of the accounts, which move on with each planned transaction. */
    struct ledger_table book;
    /* Accounts are read, and their remembered states are not used. */
    bool fresh;
    /* Expired amounts count as free, because this plan cannot book their release first. */
    bool discounts;
    /* The time of the plan in ms since 1970, by the wall clock. It decides what has expired. */
    int64_t now_ms;
};

/* Begins a plan for a commit, or for posts without a commit if `commit` is NULL. */
void truce__ledger_plan_begin(struct ledger_plan *plan, truce_ledger *ledger, truce_commit *commit);
void truce__ledger_plan_release(struct ledger_plan *plan);

/* The plan of a try of a commit knows all transactions that it has planned, so the next post of the
 * try needs no reads of the same accounts. If anything else has added a transaction to the commit,
 * a new plan begins. */
struct ledger_plan_cache {
    struct ledger_plan plan;
    /* The id of the commit for which the plan was made. The id changes with each try. */
    bson_oid_t of;
    /* The number of entries of the commit, from the first one, that have no transaction which the
     * plan does not know. */
    uint32_t seen;
};

/* Frees a plan that a handle keeps. NULL is allowed. */
void truce__ledger_plan_cache_free(struct ledger_plan_cache *kept);

/* Makes the document of the request, checked against the states of the book, which then move on to
 * those after it. If the status is not OK, the request is refused and the book does not change.
 * Sets *stale if the states were remembered, so the refusal may be wrong. */
truce_status truce__ledger_plan(struct ledger_plan *plan, const struct ledger_request *request,
                                bson_t *document, bool *stale, bson_error_t *error);
/* Reads the accounts of a post in a commit, and whether its id was posted before, by one message,
 * if this saves messages. Sets *absent if no transaction has the id. */
truce_status truce__ledger_plan_together(struct ledger_plan *plan,
                                         const struct ledger_request *request, bool *absent,
                                         bson_error_t *error);
/* Reads the request's accounts whose states were remembered, unless a planned transaction follows
 * the remembered state; its insert shows whether that state was right. */
truce_status truce__ledger_plan_refresh(struct ledger_plan *plan,
                                        const struct ledger_request *request, bson_error_t *error);
/* Returns true if one of the request's accounts has a pending amount. */
bool truce__ledger_plan_pending(const struct ledger_plan *plan,
                                const struct ledger_request *request);
/* Appends the _id of the request's document. */
void truce__ledger_request_id(const struct ledger_request *request, bson_t *holder);
/* Compares a document with what the request would make. Returns DUPLICATE if they differ. */
truce_status truce__ledger_same(const struct ledger_request *request, const bson_t *document,
                                bson_error_t *error);

/* ---- numbers as documents (ledger_slots.c) --------------------------------------------------- */

/* Reads the layout of the ledger, unless it is known. */
truce_status truce__ledger_layout(truce_ledger *ledger, bson_error_t *error);
/* Fails with NOT_FOUND if the ledger was never used: it has neither a definition nor documents. The
 * message lists the ledgers of the store. */
truce_status truce__ledger_must_exist(truce_ledger *ledger, bson_error_t *error);
/* Fails with NOT_FOUND: the message says that the ledger or that the account does not exist. */
truce_status truce__ledger_not_open(truce_ledger *ledger, const char *account, bson_error_t *error);
/* Inserts the transaction with the documents of its numbers. */
truce_status truce__ledger_insert_slots(truce_commit *commit, const truce_ledger *ledger,
                                        const bson_t *document, bson_error_t *error);
/* Reads the documents of these _ids among the numbers, free of stubs, and sorts them. */
truce_status truce__ledger_fetch_slots(struct ledger_reader *reader, const bson_t *ids,
                                       struct ledger_documents *documents, bson_error_t *error);
/* Appends the _id of a number's document to a list of _ids. */
void truce__ledger_slot_append(const char *account, int64_t number, bson_t *ids, uint32_t *count);
/* Returns the document of a number among those that were read: {tx: the transaction's _id}, or NULL
 * if none exists. */
const bson_t *truce__ledger_slot(const struct ledger_documents *documents, const char *account,
                                 int64_t number);

/* ---- posting (ledger_post.c) ----------------------------------------------------------------- */

/* Posts the requests that are not settled, each on its own; fills the results. */
truce_status truce__ledger_post_all(truce_ledger *ledger, struct ledger_request *requests,
                                    size_t count, bson_error_t *error);
/* Posts one request, in the commit if it is not NULL. Creates the ledger if the request opens an
 * account. Returns the status of the request. */
truce_status truce__ledger_post_one(truce_ledger *ledger, truce_commit *commit,
                                    struct ledger_request *request, bson_error_t *error);

/* ---- balances (ledger_statement.c) ----------------------------------------------------------- */

void truce__ledger_balance_from(const struct ledger_state *state, truce_ledger_balance *balance);

/* ---- a consistent cut (ledger_snapshot.c) ---------------------------------------------------- */

/* Finds the state of each account that was opened in one consistent cut: `next` of its entry in
 * `cut`. `names` are sorted; the caller frees them with truce__ledger_names_free. */
truce_status truce__ledger_cut(struct ledger_reader *reader, struct ledger_table *cut,
                               char ***names, uint32_t *count, bson_error_t *error);
void truce__ledger_names_free(char **names, uint32_t count);
/* Returns whether the account has the name, or is below it: "assets" includes "assets:cash". Every
 * account is below NULL and "". */
bool truce__ledger_is_below(const char *account, const char *prefix);
/* Reports balances as truce_ledger_balances does, but only of accounts after a name (NULL for all).
 * On a store with snapshots, a page costs the same wherever it begins. */
truce_status truce__ledger_balances_after(truce_ledger *ledger, const char *prefix,
                                          const char *after,
                                          truce_ledger_balance_function *function, void *arg,
                                          bson_error_t *error);
/* Reports transactions as truce_ledger_walk does, but only those that an earlier walk did not
 * report. `after` (NULL for a first walk) has its `reached`: [{account, number}], the last number
 * of each account that was reported. Transactions that were posted since are in the new snapshot.
 * `reached` may be NULL. */
truce_status truce__ledger_walk_after(truce_ledger *ledger, const bson_t *after,
                                      truce_ledger_document_function *function, void *arg,
                                      bson_t *reached, bson_error_t *error);
/* The last part of a seal that an earlier call returned. */
struct ledger_sealed {
    int32_t part;
    /* The last account of the part; borrowed. */
    const char *account;
    uint8_t hash[SHA256_BYTES];
};

/* Continues a seal after a part, or begins one if the part is NULL. The accounts of the further
 * parts are those of another snapshot. */
truce_status truce__ledger_seal_after(truce_ledger *ledger, const struct ledger_sealed *after,
                                      truce_ledger_seal_function *function, void *arg,
                                      bson_error_t *error);
/* Hashes a part of a seal, without its field `hash`. */
void truce__ledger_seal_hash(const bson_t *part, uint8_t digest[SHA256_BYTES]);

/* ---- the proof (ledger_verify.c) ------------------------------------------------------------- */

/* Returns true if the collection has the index of a ledger over accounts and numbers. */
bool truce__ledger_has_indexes(truce_store *store, const char *collection);

/* ---- documents of other programs (ledger_foreign_documents.c) -------------------------------- */

/* Receives each document that is refused, with the reason. */
typedef void ledger_refused_function(const bson_value_t *id, const bson_error_t *why, void *arg);

/* The inputs and results of an import of documents of other programs. */
struct ledger_takeup {
    /* An account, or NULL. Documents with later numbers of the account than its last committed one
     * are taken up, too, whatever their `proc`. */
    const char *account;
    /* Reads the whole account if a document may be found only in this way. */
    bool thorough;
    /* The maximum number of UNCOMMITTED documents of one call, or 0 for all. */
    int64_t limit;
    /* Receives each refused document, or NULL. */
    ledger_refused_function *refused;
    void *arg;
    /* Result: the number of documents that were committed. */
    int64_t committed;
    /* Result: the number of documents that were refused. */
    int64_t refusals;
};

/* Commits or refuses the documents that other programs inserted. */
truce_status truce__ledger_take_up(struct ledger_reader *reader, struct ledger_takeup *takeup,
                                   bson_error_t *error);

/* ---- another book's transactions (ledger_post.c) --------------------------------------------- */

/* Does what truce_ledger_post_many does, and also posts pending transactions that have expired:
 * those of an imported book. */
truce_status truce__ledger_post_history(truce_ledger *ledger,
                                        const truce_ledger_transaction *transactions, size_t count,
                                        truce_ledger_result *results, bson_error_t *error);

/* ---- expired transactions (ledger_expiry.c; booking in ledger_post.c) ----------------------- */

/* Subtracts the expired amounts from the pending amounts in a state of the account. */
truce_status truce__ledger_free_overdue(struct ledger_reader *reader, const char *account,
                                        struct ledger_state *state, bson_error_t *error);
/* Does what truce__ledger_free_overdue does, for many accounts. `state_of` returns the state of an
 * account, or NULL to skip the account. */
typedef struct ledger_state *ledger_state_function(void *arg, const char *account);
truce_status truce__ledger_release_overdue(struct ledger_reader *reader, const char *account,
                                           ledger_state_function *state_of, void *arg,
                                           bson_error_t *error);
/* Books the release of expired pending transactions of one account, or of all if it is NULL. */
truce_status truce__ledger_expire(truce_ledger *ledger, const char *account, int64_t limit,
                                  int64_t *expired, bson_error_t *error);

#endif

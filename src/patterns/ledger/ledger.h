#ifndef TRUCE_PATTERNS_LEDGER_LEDGER_H
#define TRUCE_PATTERNS_LEDGER_LEDGER_H

/* The ledger as its parts share it. The invariants (L1 ...) are in ledger.c. */
#include <pthread.h>
#include <stdatomic.h>

#include "base/limits.h"
#include "base/sha256.h"
#include "base/status.h"
#include "bson/value.h"
#include "commit/journal.h"
#include "truce/ledger.h"

#define LEDGER_NEVER_MS INT64_C(253402300799000) /* the end of the year 9999 */
#define LEDGER_WINDOW   200                      /* numbers that are read at a time */

struct ledger_rules {
    char currency[25]; /* "": it is not open */
    bool has_min, has_max, debit_only, credit_only, closed;
    int64_t min, max;
};

/* An account after one of its numbers. */
struct ledger_state {
    int64_t number, balance, out, in;
    int64_t booked_ms;
    int64_t rules_at; /* the number that set the rules; 0: none did */
    struct ledger_rules rules;
    /* documents that are not committed have later numbers of the account */
    bool behind;
    uint8_t hash[SHA256_BYTES];
};

/* A change as it stands in a document; texts are borrowed from that. */
struct ledger_change {
    const char *account, *type, *currency;
    int64_t number, value, release;
    bool cached; /* cachedBal is a number; then the next ones are right: */
    int64_t balance, out, in, rules_at;
    bool hashed;
    uint8_t hash[SHA256_BYTES];
    bool sets; /* it sets the account's rules: `set`, borrowed */
    bson_t set;
};

/* ---- accounts by name (ledger_table.c) ---- */

struct ledger_known {
    char *account;
    struct ledger_state state, next; /* next: of the transaction that is being planned */
    bool loaded, fresh, touched;     /* fresh: read in this call */
    bool planned;                    /* a transaction of this round stands behind what was known */
    bool overdue_known;              /* the next two are known: pending amounts that have expired */
    int64_t overdue_out, overdue_in;
};

struct ledger_table {
    struct ledger_known **slots;
    uint32_t count, room; /* room: a power of two, or 0 */
};

uint64_t truce__ledger_hash(const char *account);
struct ledger_known *truce__ledger_find(const struct ledger_table *table, const char *account);
/* Makes it where there is none; it stays where it is until the table is cleared. */
struct ledger_known *truce__ledger_at(struct ledger_table *table, const char *account);
void truce__ledger_table_clear(struct ledger_table *table);

/* ---- the handle (ledger.c) ---- */

struct ledger_waiting;

#define LEDGER_LEADERS 2    /* groups that travel at once */
#define LEDGER_LANES   4096 /* accounts by the hash of their names */

struct truce_ledger {
    truce_store *store;
    char *collection;
    uint32_t deadline_ms;
    bool refused;
    bson_error_t refusal;
    pthread_mutex_t mutex; /* of what follows */
    bool ready;
    uint64_t
        structure; /* of the store, of which what is remembered was true; 0: nothing is remembered */
    char *slots;   /* of documents for the numbers; NULL: the index has them */
    struct ledger_waiting *first, *last; /* posts that wait to travel */
    uint32_t leaders;                    /* groups that travel */
    uint32_t waiting, expected;          /* how many there are, and were the last time */
    bool gathering;                      /* one waits for as many, to lead */
    atomic_uint came;                    /* raised by each who comes */
    uint32_t lanes[LEDGER_LANES];        /* how many of their entries are in that lane */
    uint32_t left[LEDGER_LANES];         /* the same of those who cannot travel yet; else zeros */
    struct ledger_table known; /* true of the numbers that they tell, perhaps not the last */
    bson_t currencies;
};

struct ledger_look;

truce_status truce__ledger_usable(const truce_ledger *ledger, bson_error_t *error);
/* Indexes, and the ledger's line in LEDGERS. */
truce_status truce__ledger_ready(truce_ledger *ledger, bson_error_t *error);
truce_status truce__ledger_account_name(const char *account, bson_error_t *error);

bool truce__ledger_recall(truce_ledger *ledger, const char *account, struct ledger_state *state);
/* Remembers the state, and builds the runs of stored sums that the account has completed since the state that was
 * remembered before. */
void truce__ledger_remember(struct ledger_look *look, const char *account,
                            const struct ledger_state *state);

/* ---- documents (ledger_document.c) ---- */

struct ledger_place;

struct ledger_documents {
    bson_t **items;
    uint32_t count, room;
    /* The changes of `places_of` items, by account and number. */
    struct ledger_place *places;
    uint32_t places_count, places_of;
};

void truce__ledger_keep(struct ledger_documents *documents, const bson_t *document);
void truce__ledger_documents_release(struct ledger_documents *documents);
/* Returns the document with the account's change of that number; NULL: none. */
const bson_t *truce__ledger_numbered(struct ledger_documents *documents, const char *account,
                                     int64_t number);

struct fields truce__ledger_changes(const bson_t *document);
/* False: it is none that a ledger can have. */
bool truce__ledger_change(struct value value, struct ledger_change *change);
/* The account's change with that number (0: its last one); false: there is none. */
bool truce__ledger_change_of(const bson_t *document, const char *account, int64_t number,
                             struct ledger_change *change);
/* A COMMITTED change with its balance and its hash: a committed number of its account. */
bool truce__ledger_is_anchor(const bson_t *document, const struct ledger_change *change);
bool truce__ledger_is(const bson_t *document, const char *field, const char *text);
int64_t truce__ledger_date(const bson_t *document, const char *field);
bson_value_t truce__ledger_value(const bson_t *document, const char *field);

/* Whether the document has that field with that value; NULL: whether it has none of it. */
bool truce__ledger_has(const bson_t *document, const char *field, const bson_value_t *value);

void truce__ledger_rules_of(const bson_t *set, struct ledger_rules *rules);
void truce__ledger_rules_append(const struct ledger_rules *rules, bson_t *set);

/* Of all that is immutable in a document but what the chain has itself. */
void truce__ledger_digest(const bson_t *document, uint8_t digest[SHA256_BYTES]);
/* `state` is after the change; its hash becomes the link behind `before`. */
void truce__ledger_chain(const uint8_t digest[SHA256_BYTES], const char *account,
                         const uint8_t before[SHA256_BYTES], struct ledger_state *state);

/* Adds the change to the state: LIMIT if a sum leaves 64 bits. `counts`: its transaction is VALID; `pending`: it is
 * PENDING. */
truce_status truce__ledger_add(struct ledger_state *state, const struct ledger_change *change,
                               bool counts, bool pending, bson_error_t *error);

/* ---- reading (ledger_head.c) ---- */

struct ledger_look {
    truce_ledger *ledger;
    struct worker worker;
    bool early; /* a write follows */
};

void truce__ledger_look(struct ledger_look *look, truce_ledger *ledger);

/* Whether it is a document that a commit in flight will insert. */
bool truce__ledger_is_stub(const bson_t *document);
/* All transactions with a change of the account whose number meets `condition`, in no order, free of intents;
 * `limit` 0: all. */
truce_status truce__ledger_fetch(struct ledger_look *look, const char *account,
                                 const bson_t *condition, int64_t limit,
                                 struct ledger_documents *documents, bson_error_t *error);
/* Reads all transactions with changes of these accounts (an array of names), free of intents. */
truce_status truce__ledger_fetch_accounts(struct ledger_look *look, const bson_t *accounts,
                                          struct ledger_documents *documents, bson_error_t *error);
/* Those numbers, at most LEDGER_WINDOW. */
truce_status truce__ledger_fetch_numbers(struct ledger_look *look, const char *account,
                                         const int64_t *numbers, uint32_t count,
                                         struct ledger_documents *documents, bson_error_t *error);
/* Those numbers `from` to `to`. */
truce_status truce__ledger_fetch_range(struct ledger_look *look, const char *account, int64_t from,
                                       int64_t to, struct ledger_documents *documents,
                                       bson_error_t *error);
/* By any filter, free of intents. */
truce_status truce__ledger_fetch_filter(struct ledger_look *look, const bson_t *filter,
                                        const bson_t *sort, int64_t limit,
                                        struct ledger_documents *documents, bson_error_t *error);
/* Does the same in another collection. */
truce_status truce__ledger_fetch_in(struct ledger_look *look, const char *collection,
                                    const bson_t *filter, struct ledger_documents *documents,
                                    bson_error_t *error);
/* The state of the account after its last committed number. `state` is what is known of it (zeros: nothing). */
truce_status truce__ledger_head(struct ledger_look *look, const char *account,
                                struct ledger_state *state, bson_error_t *error);
/* After that number. NOT_FOUND: there is none. */
truce_status truce__ledger_state_at(struct ledger_look *look, const char *account, int64_t number,
                                    struct ledger_state *state, bson_error_t *error);
/* The same, of a document that has it; `state` is what is known (for its rules). */
truce_status truce__ledger_state_of(struct ledger_look *look, const bson_t *document,
                                    const char *account, int64_t number, struct ledger_state *state,
                                    bson_error_t *error);
/* A transaction by its _id. NOT_FOUND */
truce_status truce__ledger_transaction(struct ledger_look *look, const bson_value_t *id,
                                       bson_t *document, bson_error_t *error);
/* The one that settles, gives up or reverses it. NOT_FOUND */
truce_status truce__ledger_settled(struct ledger_look *look, const bson_value_t *of,
                                   bson_t *document, bson_error_t *error);

/* ---- sums by value date (ledger_sums.c) ---- */

#define LEDGER_SUMS_RUN 128 /* numbers of the smallest run of stored sums */

struct ledger_dated {
    int64_t date, value;
};

/* The value date of a transaction: its own, or the time of booking. */
int64_t truce__ledger_value_date(const bson_t *document);
/* The sum of the values among the account's numbers up to `last` whose value date is not later. */
truce_status truce__ledger_sum_until(struct ledger_look *look, const char *account, int64_t last,
                                     int64_t until_ms, int64_t *sum, bson_error_t *error);
/* Builds the runs that end after the number `before` (-1: with `number` itself) and up to `number`, which is
 * committed. Does nothing on a view. */
void truce__ledger_sums_complete(struct ledger_look *look, const char *account, int64_t before,
                                 int64_t number);
/* Removes the stored runs of the ledger if its book is empty, for example because it was dropped. */
truce_status truce__ledger_sums_clean(const truce_ledger *ledger, bson_error_t *error);
/* Compares the stored runs that end with the number `to` with what they are made of. `dated`: the values of the last
 * LEDGER_SUMS_RUN numbers, which are sorted. *wrong: one differs, or a page of it is missing. */
truce_status truce__ledger_sums_prove(struct ledger_look *look, const char *account, int64_t to,
                                      const uint8_t hash[SHA256_BYTES], struct ledger_dated *dated,
                                      uint32_t count, bool *wrong, bson_error_t *error);

/* ---- planning (ledger_plan.c) ---- */

enum ledger_verb { LEDGER_POST, LEDGER_OPEN, LEDGER_RULES, LEDGER_EXPIRE };

struct ledger_request {
    enum ledger_verb verb;
    const truce_ledger_transaction *transaction; /* of LEDGER_POST */
    const char *account;                         /* of LEDGER_OPEN and LEDGER_RULES */
    struct ledger_rules rules;
    const bson_value_t *of; /* of LEDGER_EXPIRE */
    truce_ledger_result *result;
    bool settled; /* the result is known */
    bool sent;    /* it was sent, perhaps without an answer */
};

/* INVALID, LIMIT: whatever stands in the book, it is no transaction: it has no id, say. Those of requests are checked. */
truce_status truce__ledger_check_given(const truce_ledger_transaction *given, bson_error_t *error);

/* Where a plan gets what it needs. */
struct ledger_plan {
    truce_ledger *ledger;
    struct ledger_look look;
    truce_commit *commit; /* NULL: alone */
    struct ledger_table book;
    bool fresh; /* what is remembered is not taken */
    bool
        discounts; /* amounts that have expired count as free: their release cannot be booked first */
    int64_t now_ms;
};

void truce__ledger_plan_begin(struct ledger_plan *plan, truce_ledger *ledger, truce_commit *commit);
void truce__ledger_plan_release(struct ledger_plan *plan);

/* The document that the request would be, judged by the states of the book, which go on to those after it. Any
 * status but OK: refused, and the book is as it was. *stale: the states were remembered, so it may not be so. */
truce_status truce__ledger_plan(struct ledger_plan *plan, const struct ledger_request *request,
                                bson_t *document, bool *stale, bson_error_t *error);
/* Looks at the request's accounts that were remembered, unless something is planned behind what was: then its insert
 * tells whether that was so. */
truce_status truce__ledger_plan_refresh(struct ledger_plan *plan,
                                        const struct ledger_request *request, bson_error_t *error);
/* Whether something is pending on one of its accounts. */
bool truce__ledger_plan_pending(const struct ledger_plan *plan,
                                const struct ledger_request *request);
/* The _id of its document. */
void truce__ledger_request_id(const struct ledger_request *request, bson_t *holder);
/* OK: the document is what the request would make. DUPLICATE: it is another. */
truce_status truce__ledger_same(const struct ledger_request *request, const bson_t *document,
                                bson_error_t *error);

/* ---- numbers as documents (ledger_slots.c) ---- */

/* Reads whether they are, unless it is known. */
truce_status truce__ledger_layout(truce_ledger *ledger, bson_error_t *error);
/* Inserts the transaction with the documents of its numbers. */
truce_status truce__ledger_insert_slots(truce_commit *commit, const truce_ledger *ledger,
                                        const bson_t *document, bson_error_t *error);
/* Reads the documents of these _ids among the numbers, free of stubs, and sorts them. */
truce_status truce__ledger_fetch_slots(struct ledger_look *look, const bson_t *ids,
                                       struct ledger_documents *documents, bson_error_t *error);
/* Appends the _id of a number's document to a list of _ids. */
void truce__ledger_slot_append(const char *account, int64_t number, bson_t *ids, uint32_t *count);
/* Returns the document of a number among those that were read: {tx: the transaction's _id}; NULL: none. */
const bson_t *truce__ledger_slot(const struct ledger_documents *documents, const char *account,
                                 int64_t number);

/* ---- posting (ledger_post.c) ---- */

/* Posts those that are not settled, each by itself; results are filled. */
truce_status truce__ledger_post_all(truce_ledger *ledger, struct ledger_request *requests,
                                    size_t count, bson_error_t *error);
truce_status truce__ledger_post_one(truce_ledger *ledger, truce_commit *commit,
                                    struct ledger_request *request, bson_error_t *error);

/* ---- balances (ledger_read.c) ---- */

void truce__ledger_balance_from(const struct ledger_state *state, truce_ledger_balance *balance);

/* ---- a consistent cut (ledger_cut.c) ---- */

/* Every account that is open, as it stood in one cut. */
truce_status truce__ledger_cut(struct ledger_look *look, struct ledger_table *cut, char ***names,
                               uint32_t *count, bson_error_t *error);
void truce__ledger_names_free(char **names, uint32_t count);
/* Of a part of a seal, without its field `hash`. */
void truce__ledger_seal_hash(const bson_t *part, uint8_t digest[SHA256_BYTES]);

/* ---- the proof (ledger_verify.c) ---- */

/* The collection has the index of a ledger over accounts and numbers. */
bool truce__ledger_has_indexes(truce_store *store, const char *collection);

/* ---- documents of other programs (ledger_takeup.c) ---- */

/* Calls with each document that is refused, and why. */
typedef void ledger_refused_function(const bson_value_t *id, const bson_error_t *why, void *arg);

struct ledger_takeup {
    const char *account; /* those in front of the account's next number, too; NULL: none */
    bool thorough;       /* even if it has to read the whole account */
    int64_t limit;       /* UNCOMMITTED documents at a time; 0: all */
    ledger_refused_function *refused; /* NULL: none */
    void *arg;
    int64_t committed; /* how many were committed */
    int64_t refusals;  /* how many were refused */
};

/* Commits or refuses what other programs inserted. */
truce_status truce__ledger_take_up(struct ledger_look *look, struct ledger_takeup *takeup,
                                   bson_error_t *error);

/* ---- what is due (ledger_due.c) ---- */

/* Subtracts what has expired from the amounts that are pending in a state of the account. */
truce_status truce__ledger_free_overdue(struct ledger_look *look, const char *account,
                                        struct ledger_state *state, bson_error_t *error);
/* The same for many: `state_of` returns the state of an account, or NULL if there is nothing to subtract from. */
typedef struct ledger_state *ledger_state_function(void *arg, const char *account);
truce_status truce__ledger_release_overdue(struct ledger_look *look, const char *account,
                                           ledger_state_function *state_of, void *arg,
                                           bson_error_t *error);
/* Books the release of pending transactions that have expired; of one account, or NULL: of all. */
truce_status truce__ledger_expire(truce_ledger *ledger, const char *account, int64_t limit,
                                  int64_t *expired, bson_error_t *error);

#endif

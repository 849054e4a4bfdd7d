#ifndef TRUCE_PATTERNS_SET_SET_H
#define TRUCE_PATTERNS_SET_SET_H

/* Declarations that the files of the ordered set share. truce/set.h has the contract; set.c has the
 * essay. */
#include <pthread.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/deadline.h"
#include "base/status.h"
#include "bson/value.h"
#include "commit/commit.h"
#include "store/repeatable_call.h"
#include "store/reserved_names.h"
#include "truce/set.h"
#include "truce/sys/store.h"

/* The maximum number of fields in a key. */
#define SET_KEYS_MAX 4
/* The number of tries after which an operation fails. */
#define SET_TRIES_MAX    100
#define SET_NAME_MAX     1024
#define SET_CONSUMER_MAX 120

struct known_source;
struct recorded;

/* The maximum number of batches that the queue applies concurrently (set_queue.c): on a store that
 * merges in its own write, and on a store that is reached by messages. */
#define SET_BATCHES_MAX        2
#define SET_BATCHES_CONCURRENT 64
/* The number of counters of documents in concurrent batches. A document has the counter of its
 * hash. */
#define SET_BUSY 4096

/* A handle for a set. Threads may share it. */
struct truce_set {
    truce_store *store;
    char *collection, *field, *deleted, *name, *seq, *source, *watermark;
    /* The collection of the elements in the layout by element. Owned, as all names here. */
    char *elements;
    /* The collection of the guards in the layout by element (set_layout_by_element.c). */
    char *guards;
    /* The name of the set in truce's own collections, for example "students.classes". */
    char *id;
    /* The length of `name` in bytes. */
    uint32_t name_length;
    char *keys[SET_KEYS_MAX];
    uint32_t keys_count;
    truce_set_layout layout;
    /* The form of single writes. AUTO was resolved when the handle was opened. */
    truce_set_form form;
    uint32_t deadline_ms;
    /* The store merges operations inside its own write. In all other cases, writes have the form
     * `form`. */
    bool rewrites;
    bson_error_t refusal;
    /* The options are invalid; every call fails with `refusal`. */
    bool refused;
    /* The store's structure number plus one when the set became ready and the caches `known` and
     * `recorded` began, or 0 if the set is not ready. */
    atomic_uint_fast64_t structure;
    /* The same for truce__set_agrees. */
    atomic_uint_fast64_t agreed;
    /* Protects `known` and `recorded`. It is also held while the set becomes ready. */
    pthread_mutex_t mutex;
    /* The list of the sources that this handle has seen in the store. Owned. */
    struct known_source *known;
    /* The numbers that this handle knows to be recorded, or NULL before the first one. Owned. */
    struct recorded *recorded;
    /* Protects the fields below: the queue of waiting calls and the batches. */
    pthread_mutex_t queue_mutex;
    struct set_call *queue_first, *queue_last;
    /* The number of batches that are being applied. */
    unsigned batches;
    /* A batch with more than SMALL_BATCH operations is being applied, so no other one may run. */
    bool large;
    /* A batch has only calls that share documents with its first call. */
    bool by_document;
    /* busy[i]: the number of operations in concurrent batches whose documents have the hash i. */
    uint16_t busy[SET_BUSY];
};

/* Completes the options of a set from its definition in the store (set.c): that of `field`, or of
 * the collection's only set. Options that are given stay; the strings are in the arena. `key` has
 * the fields of the key of a set without a definition; NULL means that they are unknown. Fails with
 * INVALID if `field`, `key`, or `name` is still missing. If none was missing, the store is not
 * read. */
truce_status truce__set_complete(truce_store *store, struct arena *arena, const char *key,
                                 truce_set_options *options, bson_error_t *error);

/* ---- ranks (set_decision.c) ---- */

/* The rank of an operation, or of a stored entry, among those on its name. */
struct set_rank {
    /* The sequence number, or 0 if no entry is stored. */
    int64_t seq;
    /* The name of the source; "" sorts before all others. */
    const char *source;
    /* The operation adds the name; otherwise it removes it. */
    bool add;
};

/* Compares by sequence number, then by source; a remove ranks below an add. */
int truce__set_rank_compare(const struct set_rank *a, const struct set_rank *b);

/* The stored state of one name in a document. */
struct set_state {
    /* The rank of the stored entry. */
    struct set_rank stored;
    /* The watermark of the document, or 0 if it has none. */
    int64_t watermark;
};

enum set_decision {
    /* The operation must be applied. */
    SET_OPEN = 0,
    /* An operation of a higher rank is stored. */
    SET_STALE,
    /* The same operation is stored. */
    SET_DUPLICATE,
    /* The number is at or below the watermark, and no stored entry decides the operation. */
    SET_BELOW,
    /* The operation is open, but the document has no space for it. */
    SET_FULL,
};

/* Decides an operation by the stored state of its name (set.c has the table). */
enum set_decision truce__set_decide(const struct set_state *state, const struct set_rank *rank);

/* ---- operations (set_operation.c) ---- */

/* One call of truce_set_apply, from its first check to its results. */
struct set_call {
    /* The next call in the queue or in its batch. */
    struct set_call *next;
    struct set_operation *operations;
    /* The number of operations that passed the check. */
    size_t count;
    /* The number of results, one for each operation of the caller. */
    size_t given;
    truce_set_result *results;
    /* The first failure of an operation. */
    truce_status status;
    bson_error_t error;
    /* Some results are SET_OUTCOME_HELD. */
    bool held;
    /* The store need not wait for the disk, because a later write of the caller does. */
    bool relaxed;
    /* Protects the fields below. If the queue's mutex is needed, too, it is acquired first. */
    pthread_mutex_t mutex;
    /* Signaled when `woken` becomes true. */
    pthread_cond_t wake;
    /* The thread of the call must wake up: the call is done, or may lead the next batch. */
    bool woken;
    /* The call is done. Its owner may free it as soon as it sees this. */
    bool done;
};

/* The outcome of an operation whose document is held by a commit: its caller waits for the commit,
 * not the batch. */
#define SET_OUTCOME_HELD ((truce_set_outcome)100)

/* A checked operation. All pointers borrow from the caller's operation. */
struct set_operation {
    const truce_set_operation *given;
    struct value name;
    struct set_rank rank;
    /* The call that contains the operation. */
    struct set_call *call;
    /* The operation's number in its call. */
    size_t number;
    /* The hashes by which operations are sorted into documents and names. */
    uint64_t key_hash, name_hash;
};

/* Checks an operation of the caller, and fills `operation`, which borrows from it. */
truce_status truce__set_operation_check(const truce_set *set, const truce_set_operation *given,
                                        struct set_operation *operation, bson_error_t *error);

/* Checks the fields of a key. The next function appends them as equalities to `filter`, which is
 * initialized. */
truce_status truce__set_key_check(const truce_set *set, const bson_t *key, bson_error_t *error);
void truce__set_key_append(const truce_set *set, const bson_t *key, bson_t *filter);

/* Appends {name, seq, src, ...payload} to `entry`; a remove has no payload. */
void truce__set_entry_append(const truce_set *set, const struct set_operation *operation,
                             bson_t *entry);

/* Reads the name and rank of an element of one of the lists. Returns false if the element is not an
 * entry of a set. */
bool truce__set_entry_read(const truce_set *set, struct value element, bool add, struct value *name,
                           struct set_rank *rank);

/* Returns the name of an entry, without a check of its other fields. The result is missing if the
 * element is not an entry. */
struct value truce__set_entry_name(const truce_set *set, struct value element);

/* Reads the stored state of `name` in `document`. */
void truce__set_state_read(const truce_set *set, const bson_t *document, struct value name,
                           struct set_state *state);
/* Returns the watermark of a document, or 0 if none exists. */
int64_t truce__set_watermark_read(const truce_set *set, const bson_t *document);

/* Reads the document of a key: only its _id, key, lists, watermark, revision, and intent. Returns
 * TRUCE_NOT_FOUND if there is no document. */
truce_status truce__set_read_document(truce_set *set, const bson_t *key, bson_t *document,
                                      bson_error_t *error);

/* Sleeps a random time of up to 256 ms before try number `attempt`. Does nothing before the first
 * two tries, 0 and 1. */
void truce__set_pause(int attempt);

/* Returns whether the document has a revision. If so, each write must replace it (the rule of
 * single writes, set.c). */
bool truce__set_has_revision(const bson_t *document);
/* Appends {_rev: {$type: ObjectId}} or {_rev: {$not: ...}}, and {_intent: absent}. */
void truce__set_free_append(bool has_revision, bson_t *filter);
/* Appends a new revision to a $set. */
void truce__set_revision_append(bson_t *change);

/* Creates the unique index and the definition before the first write. */
truce_status truce__set_ready(truce_set *set, bson_error_t *error);
/* Compares the options of the handle with the definition, if the set is defined. A read with other
 * options would find nothing. Fails with INVALID if they differ. */
truce_status truce__set_agrees(truce_set *set, bson_error_t *error);

/* ---- applying ---- */

/* Applies one operation to the lists of a document (set_write_form.c). `worker` waits for a commit
 * that holds the document; if it is NULL, the outcome is SET_OUTCOME_HELD. */
truce_status truce__set_apply_one(truce_set *set, const struct set_operation *operation,
                                  struct worker *worker, truce_set_outcome *outcome,
                                  bson_error_t *error);
/* Applies one operation to a document of its own (set_layout_by_element.c). */
truce_status truce__set_element_apply(truce_set *set, const struct set_operation *operation,
                                      struct worker *worker, truce_set_outcome *outcome,
                                      bson_error_t *error);
/* Reads the stored state of a document of the layout by element. */
void truce__set_element_read(const truce_set *set, const bson_t *document, struct set_state *state);
/* Appends {key, name}, and the whole document that an operation leaves, without _id. */
void truce__set_element_identity(const truce_set *set, const struct set_operation *operation,
                                 bson_t *document);
void truce__set_element_document(const truce_set *set, const struct set_operation *operation,
                                 bson_t *document);

/* Applies a call together with other calls that wait on this handle (set_queue.c). */
void truce__set_submit(truce_set *set, struct set_call *call);
/* Sorts the operations, applies them, and fills the results of their calls (set_apply.c). */
void truce__set_apply_batch(truce_set *set, struct set_operation *operations, size_t count);
/* Records the failure of operation `number` unless the call already has one. */
void truce__set_call_fail(struct set_call *call, size_t number, truce_status status,
                          const bson_error_t *why);

/* Applies operations as part of a commit (set_commit.c), and sorts them. */
truce_status truce__set_apply_committed(truce_set *set, truce_commit *commit,
                                        struct set_operation *operations, size_t count,
                                        truce_set_result *results, bson_error_t *error);

/* Applies an operation by its own number. If that number is at or below the watermark and no stored
 * entry decides the operation, applies it by the new number of `renewed`. Returns TRUCE_INVALID if
 * the new number is at or below the watermark, too. */
truce_status truce__set_replay_committed(truce_set *set, truce_commit *commit,
                                         const struct set_operation *own,
                                         const struct set_operation *renewed,
                                         truce_set_outcome *outcome, bson_error_t *error);

/* Makes the document of a key from its elements, as the layout in one document would have it. */
truce_status truce__set_element_show(truce_set *set, const bson_t *key, bson_t *document,
                                     bson_error_t *error);
/* Applies many winners at once; `results[i]` belongs to `winners[i]`. */
truce_status truce__set_element_batch(truce_set *set, const struct set_operation *const *winners,
                                      size_t count, truce_set_result *results, bson_error_t *error);

/* Sorts operations by (document, name, rank descending), so that the first operation of each name
 * is its winner. */
void truce__set_fold(const truce_set *set, struct set_operation *operations, size_t count);
uint64_t truce__set_key_hash(const truce_set *set, const bson_t *key);
bool truce__set_key_equal(const truce_set *set, const bson_t *a, const bson_t *b);
bool truce__set_name_equal(struct value a, struct value b);

/* Memory that successive merges reuse. Initialize it with zeros. */
struct set_scratch {
    struct arena arena;
    struct buffer hits, list;
};
void truce__set_scratch_release(struct set_scratch *scratch);

/* A merge of the winners of one document with its stored lists (set_merge.c). */
struct set_merge {
    struct set_scratch *scratch;
    /* The winners, which have different names. */
    const struct set_operation *const *winners;
    size_t count;
    /* `document` contains all stored fields, so the size of the result is known. Winners that do
     * not fit are left out, and the operations that they had superseded are tried instead. */
    bool whole;
    /* The end of the array of winners. Each winner is followed by the operations that it
     * supersedes. */
    const struct set_operation *end;
    /* Result: one decision for each winner. */
    enum set_decision *decisions;
    /* Result: for each winner, the number of operations that do not fit; the decision belongs to
     * the next one. `decisions` and `passed` are both NULL if only winners count. */
    uint32_t *passed;
    /* Result: the lists differ from the stored ones, and `change` has the new lists. */
    bool changed;
    /* Result: {list: new, ...}, with only the lists that differ. Always initialized. */
    bson_t change;
};

/* Merges. `document` may be empty if none is stored. Returns TRUCE_CORRUPT if a list is not an
 * array, and TRUCE_LIMIT if a list would be larger than any document. */
truce_status truce__set_merge(const truce_set *set, const bson_t *document, struct set_merge *merge,
                              bson_error_t *error);

/* ---- the guards of the layout by element (set_layout_by_element.c) ---- */

/* Appends the guard's _id, {key}, as `field`. */
void truce__set_guard_id(const truce_set *set, const bson_t *key, const char *field,
                         bson_t *document);
/* Returns whether a collector has proved the element. */
bool truce__set_element_is_proved(const bson_t *document);
truce_status truce__set_element_collect(truce_set *set, int64_t watermark,
                                        truce_set_collected *collected, bson_error_t *error);

/* Repeats an idempotent update until the store replies, at most SET_TRIES_MAX times. */
truce_status truce__set_update_answered(truce_set *set, const char *collection,
                                        const bson_t *filter, const bson_t *update,
                                        const truce_write_options *options, bson_error_t *error);

/* ---- lists without numbers (set_merge.c) ---- */

/* Returns whether one of the two lists has elements without numbers. */
bool truce__set_has_bare(const truce_set *set, const bson_t *document);
/* Appends the BSON types of bare elements, as numbers or by the names that an aggregation uses. */
void truce__set_bare_types_append(bool by_name, bson_t *array);
/* Appends {list: [...], deleted: [...]}: the existing lists with a number for each entry. Returns
 * the number of elements that differ. */
int64_t truce__set_converted(const truce_set *set, const bson_t *document, bson_t *lists);
/* Copies `document` with those lists in place of its own. */
void truce__set_with_lists(const bson_t *document, const bson_t *lists, bson_t *to);

/* Appends the document's state as it was read, as a filter: _id, key, lists, watermark, revision,
 * and intent. */
void truce__set_state_append(const truce_set *set, const bson_t *document, bson_t *filter);
/* Appends {$set: change}, with a new revision if the document has one. */
void truce__set_change_append(const bson_t *document, const bson_t *change, bson_t *update);

/* ---- sets of numbers (set_ranges.c) ---- */

/* A range of numbers. */
struct range {
    /* The first and the last number of the range. */
    int64_t from, to;
};

/* Returns the next number, or INT64_MAX for INT64_MAX itself. */
static inline int64_t truce__number_after(int64_t number)
{
    return number < INT64_MAX ? number + 1 : number;
}

/* Ranges in ascending order, no two of which touch. Initialize it with zeros. */
struct ranges {
    struct range *at;
    size_t count, room;
};

void truce__ranges_release(struct ranges *ranges);
void truce__ranges_add(struct ranges *ranges, int64_t from, int64_t to);
/* Returns whether the range overlaps one of the ranges or is adjacent to one. */
bool truce__ranges_touch(const struct ranges *ranges, int64_t from, int64_t to);
bool truce__ranges_has(const struct ranges *ranges, int64_t number);
/* Returns the last number of the run that begins at `from`, or `from` - 1 if `from` is not in the
 * ranges. */
int64_t truce__ranges_end(const struct ranges *ranges, int64_t from);
/* Adds many ranges in any order: call truce__ranges_append for each, then truce__ranges_settle
 * once. */
void truce__ranges_append(struct ranges *ranges, int64_t from, int64_t to);
/* Sorts appended ranges, and joins those that overlap or are adjacent. */
void truce__ranges_settle(struct ranges *ranges);
/* Adds all ranges of `more`, in one pass. */
void truce__ranges_merge(struct ranges *ranges, const struct ranges *more);

/* Stores ranges as a binary value, with numbers relative to `base`, and reads them back. Reading
 * appends to `ranges`, which the caller then settles; it returns false if the value is malformed or
 * contains numbers above `end`. */
void truce__ranges_store(const struct ranges *ranges, int64_t base, bson_t *document,
                         const char *field);
bool truce__ranges_read(const bson_t *document, const char *field, int64_t base, int64_t end,
                        struct ranges *ranges);

/* The numbers of a block, with one bit for each number. */
#define BLOCK_SHIFT   12
#define BLOCK_NUMBERS (1 << BLOCK_SHIFT)
#define BLOCK_BYTES   (BLOCK_NUMBERS / 8)

struct block {
    uint8_t bits[BLOCK_BYTES];
};

/* Adds a range of numbers to the block, both ends included. */
void truce__block_add(struct block *block, int from, int to);
/* Adds the numbers of `ranges` that lie in the block that begins at `base`. */
void truce__block_take(struct block *block, int64_t base, const struct ranges *ranges);
/* Stores the numbers of the block that begins at `base` as bits, without trailing zero bytes. The
 * next function appends them to `ranges`, and returns false if the value is malformed. */
void truce__block_store(const struct ranges *ranges, int64_t base, bson_t *document,
                        const char *field);
bool truce__block_read(const bson_t *document, const char *field, int64_t base,
                       struct ranges *ranges);

/* ---- records of consumers (set_watermark.c) ---- */

/* The consumer of numbers that will never come. */
#define CONSUMER_VOID ":void"
/* The consumer of numbers that the watermark has passed. */
#define CONSUMER_ARCHIVE ":archive"

/* A wide block covers 2^18, 2^24, ..., or 2^60 numbers. */
#define WIDE_SHIFT_STEP 6
#define WIDE_SHIFT_MIN  18
#define WIDE_SHIFT_MAX  60

/* One document of truce_progress. */
struct progress_block {
    /* The block covers 2^shift numbers. */
    int shift;
    int64_t number;
    /* The source and the consumer; both borrow from the document. */
    const char *source, *consumer;
    struct ranges ranges;
};

/* Returns TRUCE_CORRUPT if the document is not a progress record. */
truce_status truce__progress_read(const bson_t *document, struct progress_block *block,
                                  bson_error_t *error);
/* Appends {set, source, shift, block, consumer}, or a prefix of it: `consumer` NULL is left out. */
void truce__progress_id(const truce_set *set, const char *source, int shift, int64_t block,
                        const char *consumer, const char *field, bson_t *document);
/* Appends `ranges` as the content of such a document. */
void truce__progress_store(int shift, int64_t block, const struct ranges *ranges, bson_t *document);

struct progress {
    struct ranges recorded, voided;
    /* The shift of the narrowest document that was read, or 0 if no document was read. */
    int narrowest;
};

/* Records operations as truce_set_record does. Sets *wrote if numbers were written, and are on
 * disk. */
truce_status truce__set_record_all(truce_set *set, const char *consumer,
                                   const truce_set_operation *operations, size_t count, bool *wrote,
                                   bson_error_t *error);
/* Checks the consumer's name and the numbers of a call that records. */
truce_status truce__set_record_check(const truce_set *set, const char *consumer,
                                     const truce_set_operation *operations, size_t count,
                                     bson_error_t *error);
/* Adds numbers to the consumer's records. */
truce_status truce__progress_add(truce_set *set, const char *source, const char *consumer,
                                 const struct ranges *ranges, bson_error_t *error);

/* Returns the number of leading blocks of BLOCK_NUMBERS that lie entirely at or below the
 * watermark. */
static inline int64_t truce__progress_passed(int64_t watermark)
{
    return watermark / BLOCK_NUMBERS + (watermark % BLOCK_NUMBERS == BLOCK_NUMBERS - 1);
}

/* ---- sources (set_watermark.c) ---- */

/* Appends a filter for the documents of this set in a collection whose _ids begin with the set. */
void truce__set_own(const truce_set *set, bson_t *filter);

/* Announces a source that this handle has not seen, before its first operation is applied. */
truce_status truce__source_known(truce_set *set, const char *source, bson_error_t *error);
void truce__sources_free(struct known_source *known);

/* A source as it is stored, and its watermark. */
struct source_state {
    char *name;
    /* No number at or below this one will come. */
    int64_t floor;
    /* The watermark as it was last stored. */
    int64_t proven;
    /* The number of blocks of BLOCK_NUMBERS numbers, from the first one, whose records are in the
     * archive. */
    int64_t archived;
    int64_t watermark;
};

struct source_list {
    /* The sources, sorted by name. Owned. */
    struct source_state *sources;
    size_t count;
    /* The minimum of the watermarks of all sources, or 0 without sources. */
    int64_t watermark;
};

/* Reads sources and records, and computes the watermarks. */
truce_status truce__sources_load(truce_set *set, struct source_list *list, bson_error_t *error);
void truce__sources_release(struct source_list *list);

/* Updates the source: {_id} -> {$max: {field: value}}. */
truce_status truce__source_raise(truce_set *set, const char *source, const char *field,
                                 int64_t value, bson_error_t *error);

/* ---- the outcome of a number (set_watermark.c) ---- */

/* Returns whether this handle knows that the number was recorded. A recorded number stays
 * recorded. */
bool truce__number_recorded(truce_set *set, const char *source, int64_t seq);

/* Frees the cache. NULL is allowed. */
void truce__recorded_free(struct recorded *recorded);

/* The known facts of a number of a source. */
struct number_outcome {
    bool recorded, voided;
    /* The floor of the source: no number at or below it will come. */
    int64_t floor;
    /* The source exists. */
    bool known;
};
/* Reads what is known of a number: whether it was recorded or declared void, and the floor of its
 * source. */
truce_status truce__number_outcome(truce_set *set, const char *source, int64_t seq,
                                   struct number_outcome *outcome, bson_error_t *error);

/* ---- late operations (set_quarantine.c) ---- */

/* Appends the _id of a quarantined operation. The next function appends its whole document. */
void truce__set_quarantine_id(const truce_set *set, const struct set_operation *operation,
                              bson_t *id);
void truce__set_quarantine_document(const truce_set *set, const struct set_operation *operation,
                                    const struct number_outcome *outcome, bson_t *document);

/* Decides an operation at or below the watermark: it is a duplicate, or goes to the quarantine. */
truce_status truce__set_below(truce_set *set, const struct set_operation *operation,
                              truce_set_outcome *outcome, bson_error_t *error);

#endif

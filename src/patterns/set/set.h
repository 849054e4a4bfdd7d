#ifndef TRUCE_PATTERNS_SET_SET_H
#define TRUCE_PATTERNS_SET_SET_H

/* What the files of the ordered set share. The contract is in truce/set.h; the essay in set.c. */
#include <pthread.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/deadline.h"
#include "base/status.h"
#include "bson/value.h"
#include "commit/commit.h"
#include "store/reserved.h"
#include "truce/set.h"
#include "truce/sys/store.h"

#define SET_KEYS_MAX     4
#define SET_TRIES_MAX    100 /* rounds of one operation before it gives up */
#define SET_NAME_MAX     1024
#define SET_CONSUMER_MAX 120

struct known_source;
struct recorded;

/* rounds of the queue at a time (set_queue.c) */
#define SET_ROUNDS_MAX    2
#define SET_ROUNDS_BESIDE 64   /* of a store that is asked by messages */
#define SET_BUSY          4096 /* places of documents, by hash */

struct truce_set {
    truce_store *store;
    char *collection, *field, *deleted, *name, *seq, *source, *watermark;
    char *elements; /* collection of the layout by element */
    char *guards;   /* and of its guards (set_guard.c) */
    char *id;       /* "students.classes": names the set in truce's own collections */
    uint32_t name_length;
    char *keys[SET_KEYS_MAX];
    uint32_t keys_count;
    truce_set_layout layout;
    truce_set_form form; /* never AUTO */
    uint32_t deadline_ms;
    bool rewrites; /* operations are merged inside the store, which can; `form` is for the rest */
    bson_error_t refusal;
    bool refused; /* the options were wrong, `refusal` says why */
    /* Of the store, when the set was made ready and `known` and `recorded` began; 0: it is not ready. */
    atomic_uint_fast64_t structure;
    pthread_mutex_t mutex; /* making ready; `known` */
    struct known_source *known;
    struct recorded *recorded;   /* numbers that are known to be recorded; NULL: none yet */
    pthread_mutex_t queue_mutex; /* the calls that wait, and who leads */
    struct set_call *queue_first, *queue_last;
    unsigned rounds;         /* that are being applied */
    bool large;              /* one of them is, and no other may be beside it */
    bool beside;             /* what is of different documents is in different rounds */
    uint16_t busy[SET_BUSY]; /* operations of the rounds */
};

/* ---- ranks (set_operation.c) ---- */

struct set_rank {
    int64_t seq;        /* 0: there is none */
    const char *source; /* "" without one: less than every other */
    bool add;
};

/* The order of operations: number, source, removes below adds. */
int truce__set_rank_compare(const struct set_rank *a, const struct set_rank *b);

/* What stands in a document for one name. */
struct set_state {
    struct set_rank standing;
    int64_t watermark; /* 0: none */
};

enum set_verdict {
    SET_OPEN = 0,  /* the operation is to be applied */
    SET_STALE,     /* a higher rank stands */
    SET_DUPLICATE, /* this very rank stands */
    SET_BELOW,     /* at or below the watermark, and nothing stands that settles it */
    SET_FULL,      /* open, and the document has no room for it */
};

enum set_verdict truce__set_verdict(const struct set_state *state, const struct set_rank *rank);

/* ---- operations (set_operation.c) ---- */

/* One call of truce_set_apply, from its first check to its results. */
struct set_call {
    struct set_call *next; /* in the queue */
    struct set_operation *operations;
    size_t count; /* of operations: those that can be applied */
    size_t given; /* and of results */
    truce_set_result *results;
    truce_status status; /* the first failure, and its sentence */
    bson_error_t error;
    bool held;             /* some of its results are SET_OUTCOME_HELD */
    pthread_mutex_t mutex; /* what follows; taken after the queue's, if that is held too */
    pthread_cond_t wake;
    bool turn; /* something is new: it is done, or the first in the queue */
    bool done; /* the call is gone when its owner sees it */
};

/* The operation of this number failed: what the call answers, if none did before. */
void truce__set_call_fail(struct set_call *call, size_t number, truce_status status,
                          const bson_error_t *why);

/* Of an operation that met a document held by a commit: its caller waits, not the round. */
#define SET_OUTCOME_HELD ((truce_set_outcome)100)

/* A checked operation; everything but `entry` is borrowed from what the caller gave. */
struct set_operation {
    const truce_set_operation *given;
    struct value name;
    struct set_rank rank;
    struct set_call *call; /* whose it is */
    size_t number;         /* in its call */
    uint64_t key_hash, name_hash;
};

truce_status truce__set_operation_check(const truce_set *set, const truce_set_operation *given,
                                        struct set_operation *operation, bson_error_t *error);

/* The fields of the key, by equality; `filter` is initialised by the caller. */
truce_status truce__set_key_check(const truce_set *set, const bson_t *key, bson_error_t *error);
void truce__set_key_append(const truce_set *set, const bson_t *key, bson_t *filter);

/* {name, seq, src, ...payload}, without payload for a remove; appended to `entry`. */
void truce__set_entry_append(const truce_set *set, const struct set_operation *operation,
                             bson_t *entry);

/* Name and rank of an element of one of the lists; false: it is no entry of a set. */
bool truce__set_entry_read(const truce_set *set, struct value element, bool add, struct value *name,
                           struct set_rank *rank);

/* The name alone, as quickly as can be; missing: it is no entry. */
struct value truce__set_entry_name(const truce_set *set, struct value element);

/* What stands in `document` for `name`. */
void truce__set_state_read(const truce_set *set, const bson_t *document, struct value name,
                           struct set_state *state);
/* the watermark of a document; 0: none */
int64_t truce__set_watermark_read(const truce_set *set, const bson_t *document);

/* The document of a key: its lists, watermark, revision and intent only. TRUCE_NOT_FOUND: there is
 * none. */
truce_status truce__set_look(truce_set *set, const bson_t *key, bson_t *document,
                             bson_error_t *error);

/* A pause before try number `round`, with jitter; none before the first. */
void truce__set_pause(int round);

/* What truce's own field tells of a document under the rule of single writes (set.c): it has a
 * revision, which the write has to replace. */
bool truce__set_has_revision(const bson_t *document);
/* {_rev: {$type: ObjectId}} or {_rev: {$not: ...}}, and {_intent: absent} */
void truce__set_free_append(bool has_revision, bson_t *filter);
/* `_rev: fresh`, to a $set */
void truce__set_revision_append(bson_t *change);

/* The unique index and the definition, before the first write. */
truce_status truce__set_ready(truce_set *set, bson_error_t *error);

/* ---- applying ---- */

/* set_form.c: one operation on the lists of a document. A commit that holds the document is waited
 * for with `worker`; NULL: the outcome is SET_OUTCOME_HELD. */
truce_status truce__set_apply_one(truce_set *set, const struct set_operation *operation,
                                  struct worker *worker, truce_set_outcome *outcome,
                                  bson_error_t *error);
/* set_operation.c: one operation on a document of its own */
truce_status truce__set_element_apply(truce_set *set, const struct set_operation *operation,
                                      struct worker *worker, truce_set_outcome *outcome,
                                      bson_error_t *error);
/* Reads what stands in a document of the layout by element. */
void truce__set_element_read(const truce_set *set, const bson_t *document, struct set_state *state);
/* {key, name}, and the whole document that an operation leaves, without _id */
void truce__set_element_identity(const truce_set *set, const struct set_operation *operation,
                                 bson_t *document);
void truce__set_element_document(const truce_set *set, const struct set_operation *operation,
                                 bson_t *document);

/* set_commit.c: operations as part of a commit; sorts them */
truce_status truce__set_apply_committed(truce_set *set, truce_commit *commit,
                                        struct set_operation *operations, size_t count,
                                        truce_set_result *results, bson_error_t *error);

/* An operation by its own number, or, where that is below the watermark and nothing stands that settles it,
 * by another. INVALID: that is below it, too. */
truce_status truce__set_replay_committed(truce_set *set, truce_commit *commit,
                                         const struct set_operation *own,
                                         const struct set_operation *renewed,
                                         truce_set_outcome *outcome, bson_error_t *error);

truce_status truce__set_element_show(truce_set *set, const bson_t *key, bson_t *document,
                                     bson_error_t *error);
/* many winners at once; `results[i]` is of winners[i] */
truce_status truce__set_element_batch(truce_set *set, const struct set_operation *const *winners,
                                      size_t count, truce_set_result *results, bson_error_t *error);

/* set_batch.c: sorts into the order of (document, name, rank falling): the first of each name is its
 * winner. */
void truce__set_fold(const truce_set *set, struct set_operation *operations, size_t count);
uint64_t truce__set_key_hash(const truce_set *set, const bson_t *key);
bool truce__set_key_equal(const truce_set *set, const bson_t *a, const bson_t *b);
bool truce__set_name_equal(struct value a, struct value b);

/* What merges use one after the other; zero-initialise. */
struct set_scratch {
    struct arena arena;
    struct buffer hits, list;
};
void truce__set_scratch_release(struct set_scratch *scratch);

/* set_merge.c: the winners of one document against what stands in it */
struct set_merge {
    struct set_scratch *scratch;
    const struct set_operation *const *winners; /* of different names */
    size_t count;
    bool
        whole; /* the document is all that stands there: what it has no room for is left out, and what
                   that beat takes its place */
    const struct set_operation
        *end;                   /* of the array that the winners stand in, each with those that it
                                        beat behind it */
    enum set_verdict *verdicts; /* out, one for each winner */
    uint32_t *
        passed; /* out, one for each winner: so many have no room, the next has the verdict. Both are
                         NULL where only winners count */
    bool changed;  /* out: the lists are different now, and `change` says how */
    bson_t change; /* out: {list: new, ...}, the lists that are different; initialised */
};

/* `document` may be empty (it does not exist yet). CORRUPT: one of the lists is no array. LIMIT: one
 * would be larger than any document. */
truce_status truce__set_merge(const truce_set *set, const bson_t *document, struct set_merge *merge,
                              bson_error_t *error);

/* ---- the guards of the layout by element (set_guard.c) ---- */

/* field: {key} */
void truce__set_guard_id(const truce_set *set, const bson_t *key, const char *field,
                         bson_t *document);
truce_status truce__set_guard_read(truce_set *set, const bson_t *key, int64_t *watermark,
                                   bson_error_t *error);
bool truce__set_element_is_proved(const bson_t *document);
/* Removes an element that is not there by its guard, as it was read. */
truce_status truce__set_element_withdraw(truce_set *set, const bson_t *document,
                                         bson_error_t *error);
/* Operations in the order of their keys whose elements were inserted: what that comes to. */
void truce__set_element_inserted(truce_set *set, const struct set_operation *const *operations,
                                 size_t count, truce_set_result **results, bson_error_t *errors);
truce_status truce__set_element_collect(truce_set *set, int64_t watermark,
                                        truce_set_collected *collected, bson_error_t *error);

/* An update that may be made again, until it is answered. (set_operation.c) */
truce_status truce__set_update_answered(truce_set *set, const char *collection,
                                        const bson_t *filter, const bson_t *update,
                                        const truce_write_options *options, bson_error_t *error);

/* ---- lists without numbers (set_convert.c) ---- */

/* An element that is a name and nothing else. */
bool truce__set_is_bare(struct value element);
bool truce__set_has_bare(const truce_set *set, const bson_t *document);
/* the types of bare elements, as numbers or as an aggregation names them */
void truce__set_bare_types_append(bool by_name, bson_t *array);
/* {list: [...], deleted: [...]}: those of the lists that are there, with a number for every entry;
 * returns how many elements are different. */
int64_t truce__set_converted(const truce_set *set, const bson_t *document, bson_t *lists);
/* `document` with those lists in the place of its own */
void truce__set_with_lists(const bson_t *document, const bson_t *lists, bson_t *to);

/* The document as it was read, as a filter: _id, key, lists, watermark, revision, intent. */
void truce__set_state_append(const truce_set *set, const bson_t *document, bson_t *filter);
/* {$set: change}, with another revision if the document has one */
void truce__set_change_append(const bson_t *document, const bson_t *change, bson_t *update);

/* set_batch.c: sorts them; fills the results of their calls */
void truce__set_apply_batch(truce_set *set, struct set_operation *operations, size_t count);

/* set_queue.c: applies a call, together with those that wait on this handle */
void truce__set_submit(truce_set *set, struct set_call *call);

/* ---- sets of numbers (set_ranges.c) ---- */

struct range {
    int64_t from, to; /* both included */
};

/* The next number; of the last one itself. */
static inline int64_t truce__number_behind(int64_t number)
{
    return number < INT64_MAX ? number + 1 : number;
}

/* Rising, and no two of them touch. Zero-initialise. */
struct ranges {
    struct range *at;
    size_t count, room;
};

void truce__ranges_release(struct ranges *ranges);
void truce__ranges_add(struct ranges *ranges, int64_t from, int64_t to);
/* Does it overlap one of them, or stand right beside it? */
bool truce__ranges_touch(const struct ranges *ranges, int64_t from, int64_t to);
bool truce__ranges_has(const struct ranges *ranges, int64_t number);
/* the last of the numbers from `from` on that are all in it; from - 1: `from` is not */
int64_t truce__ranges_end(const struct ranges *ranges, int64_t from);
/* Many at once, in any order: append, append, settle. */
void truce__ranges_append(struct ranges *ranges, int64_t from, int64_t to);
void truce__ranges_settle(struct ranges *ranges);
/* Adds all of `more`, in one pass. */
void truce__ranges_merge(struct ranges *ranges, const struct ranges *more);

/* As a binary value, the numbers counted from `base` on, and back: appends to `ranges`, which is to be
 * settled. False: it is no such value, or has numbers beyond `end`. */
void truce__ranges_store(const struct ranges *ranges, int64_t base, bson_t *document,
                         const char *field);
bool truce__ranges_read(const bson_t *document, const char *field, int64_t base, int64_t end,
                        struct ranges *ranges);

/* The same for the numbers of a block, with a bit for each. */
#define BLOCK_SHIFT   12
#define BLOCK_NUMBERS (1 << BLOCK_SHIFT)
#define BLOCK_BYTES   (BLOCK_NUMBERS / 8)

struct block {
    uint8_t bits[BLOCK_BYTES];
};

void truce__block_add(struct block *block, int from, int to); /* both included */
/* those of `ranges` that are in the block from `base` on */
void truce__block_take(struct block *block, int64_t base, const struct ranges *ranges);
/* without the zeros at its end */
void truce__block_store(const struct ranges *ranges, int64_t base, bson_t *document,
                        const char *field);
bool truce__block_read(const bson_t *document, const char *field, int64_t base,
                       struct ranges *ranges);

/* ---- what consumers recorded (set_progress.c) ---- */

#define CONSUMER_VOID    ":void"    /* numbers that will never come */
#define CONSUMER_ARCHIVE ":archive" /* of what the watermark has passed */

#define WIDE_SHIFT_STEP  6
#define WIDE_SHIFT_MIN   18
#define WIDE_SHIFT_MAX   60

/* One document of truce_progress. */
struct progress_block {
    int shift; /* it is for 2^shift numbers */
    int64_t number;
    const char *source, *consumer; /* of the document */
    struct ranges ranges;
};

/* CORRUPT: it is none of ours. */
truce_status truce__progress_read(const bson_t *document, struct progress_block *block,
                                  bson_error_t *error);
/* {set, source, shift, block, consumer}, or the start of it: consumer NULL leaves it out */
void truce__progress_id(const truce_set *set, const char *source, int shift, int64_t block,
                        const char *consumer, const char *field, bson_t *document);
/* `ranges` as the content of such a document */
void truce__progress_store(int shift, int64_t block, const struct ranges *ranges, bson_t *document);

struct progress {
    struct ranges recorded, voided;
    int narrowest; /* the least width of the documents; 0: there was none */
};

/* What all consumers recorded of the 2^shift numbers around `number`, and perhaps more. */
truce_status truce__progress_load(truce_set *set, const char *source, int64_t number, int shift,
                                  struct progress *progress, bson_error_t *error);
void truce__progress_release(struct progress *progress);

/* Adds to what the consumer recorded. */
truce_status truce__progress_add(truce_set *set, const char *source, const char *consumer,
                                 const struct ranges *ranges, bson_error_t *error);

/* Blocks of BLOCK_NUMBERS that the watermark has passed, from the first on. */
static inline int64_t truce__progress_passed(int64_t watermark)
{
    return watermark / BLOCK_NUMBERS + (watermark % BLOCK_NUMBERS == BLOCK_NUMBERS - 1);
}

/* ---- sources (set_source.c) ---- */

/* Appends: of this set, by _id, in a collection whose _ids begin with the set. */
void truce__set_own(const truce_set *set, bson_t *filter);

/* A source that is new here is announced before its first operation is applied. */
truce_status truce__source_known(truce_set *set, const char *source, bson_error_t *error);
/* How wide the block was that a number of the source went to last; 0: none yet. */
int truce__source_shift(truce_set *set, const char *source);
void truce__source_shift_keep(truce_set *set, const char *source, int shift);
void truce__sources_free(struct known_source *known);

struct source_state {
    char *name;
    int64_t floor;    /* nothing at or below it is to come */
    int64_t proven;   /* the watermark when it was last written down */
    int64_t archived; /* blocks of BLOCK_NUMBERS below it are in the archive */
    int64_t watermark;
};

struct source_list {
    struct source_state *sources; /* by name */
    size_t count;
    int64_t watermark; /* the least of theirs; 0 without sources */
};

/* Reads sources and records, and computes the watermarks. */
truce_status truce__sources_load(truce_set *set, struct source_list *list, bson_error_t *error);
void truce__sources_release(struct source_list *list);
void truce__source_id(const truce_set *set, const char *source, bson_t *document);

/* {_id} -> {$max: {field: value}} */
truce_status truce__source_raise(truce_set *set, const char *source, const char *field,
                                 int64_t value, bson_error_t *error);

/* ---- what became of a number (set_progress.c) ---- */

/* Is it known here that the number was recorded? Then it is for good. */
bool truce__number_recorded(truce_set *set, const char *source, int64_t seq);

void truce__recorded_free(struct recorded *recorded); /* NULL is allowed */

struct number_fate {
    bool recorded, voided;
    int64_t floor; /* of its source */
    bool known;    /* the source is */
};
truce_status truce__number_fate(truce_set *set, const char *source, int64_t seq,
                                struct number_fate *fate, bson_error_t *error);

/* ---- set_quarantine.c ---- */

/* The document of the quarantine, and its _id alone. */
void truce__set_quarantine_id(const truce_set *set, const struct set_operation *operation,
                              bson_t *id);
void truce__set_quarantine_document(const truce_set *set, const struct set_operation *operation,
                                    const struct number_fate *fate, bson_t *document);

/* An operation that met a watermark at or above its number: a repeat, or for the quarantine. */
truce_status truce__set_below(truce_set *set, const struct set_operation *operation,
                              truce_set_outcome *outcome, bson_error_t *error);

#endif

#ifndef TRUCE_SET_H
#define TRUCE_SET_H

/*
 * Ordered sets: adds and removes in any order, any number of times.
 *
 * The operations come through any number of consumers that may crash. The set still ends as if
 * every operation had been applied once and in order. It needs no locks: each operation is one
 * guarded update of one document. As part of a commit, it takes effect with the other changes of
 * the commit.
 *
 * A set is a list inside a document, with a second list of removed elements (the tombstones). The
 * names are those of the original description:
 *
 *     {_id, student_id: 1, ...,
 *      classes:         [{name: "CS 101", seq: 1001, ...payload}],
 *      deleted_classes: [{name: "CS 102", seq: 1002}],
 *      _wm: 900}
 *
 * Every operation has a sequence number of at least 1, which its publisher assigns
 * (truce/sequence.h, or its own numbers). The rank of an operation is (number, source, adds before
 * removes). For each name, the operation of the highest rank wins, whenever it arrives; if an add
 * and a remove tie exactly, the add wins. With several publishers, each has a source id and its own
 * numbers. This is a last-writer-wins element set (Shapiro, Preguica, Baquero, Zawirski 2011;
 * SoundCloud's Roshi).
 *
 * Documents without numbers are supported. An element without a number, also a bare name (classes:
 * ["CS 101"]), is older than every operation. The first operation that is applied to a document
 * converts its lists, and truce_set_convert converts all. Readers see such lists converted, with
 * the number 0.
 *
 * Tombstones are removed once it is certain that no older operation can arrive (truce_set_collect).
 * Therefore consumers first apply operations, then record the numbers, then acknowledge their
 * messages. A source must give each number to one operation only, and leave no gaps except those
 * that it declares void.
 *
 * Threads: any number of threads may share a set. Free the set before you close its store.
 */
#include "truce/commit.h"
#include "truce/store.h"

TRUCE_BEGIN_DECLS

typedef struct truce_set truce_set;

/* The layout of a set. */
typedef enum truce_set_layout {
    /* Two lists in the document of the key. */
    TRUCE_SET_IN_DOCUMENT = 0,
    /* One document for each element, for sets that outgrow a document. The collection
     * "<collection>.<field>" contains {key, name, seq, removed?, ...payload}. An element with
     * `_proved` existed when tombstones were collected. An element without it whose number is at or
     * below `_wm` of "<collection>.<field>.guards" does not exist. */
    TRUCE_SET_BY_ELEMENT,
} truce_set_layout;

/* The form in which an operation is applied. All forms produce the same documents. */
typedef enum truce_set_form {
    /* The best form that the store supports: a merge inside its write (truce/sys/store.h:
     * TRUCE_CAN_REWRITE), otherwise one of the following. */
    TRUCE_SET_FORM_AUTO = 0,
    /* One update with an aggregation pipeline. */
    TRUCE_SET_FORM_PIPELINE,
    /* A loop of two guarded updates with classic operators. */
    TRUCE_SET_FORM_CLASSIC,
} truce_set_form;

/* Options of a set. Zero means the default. `collection`, `key`, `field`, and `name` are required;
 * if one is missing, calls fail with TRUCE_INVALID and name it. Strings are copied. Two sets of one
 * collection need different `watermark` fields. */
typedef struct truce_set_options {
    /* For example "students". */
    const char *collection;
    /* The fields that identify the document, separated by commas: "student_id". */
    const char *key;
    /* The list: "classes". */
    const char *field;
    /* The field of an element that names it: "name". */
    const char *name;
    /* The list of tombstones. NULL means "deleted_<field>". */
    const char *deleted;
    /* The field of an element with its number. NULL means "seq". */
    const char *seq;
    /* The field of an element with its source. NULL means "src". */
    const char *source;
    /* The field of the document with the watermark. NULL means "_wm". */
    const char *watermark;
    truce_set_layout layout;
    truce_set_form form;
    /* The deadline of each call, past which it fails with TRUCE_TIMEOUT or TRUCE_LOCKED. 0 means
     * that the call waits at most 30,000 ms for other writers, with no limit on its own work. If a
     * batch fails this way, repeat every call in it. */
    uint32_t deadline_ms;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_set_options;

/* Returns a handle. The call never fails and does not access the store. If the options are wrong,
 * the first call on the handle fails. The first write creates a unique index on the key; without
 * it, two consumers could create two documents. */
TRUCE_EXPORT truce_set *truce_set_new(truce_store *store, const truce_set_options *options);
/* Frees the handle. NULL is allowed. */
TRUCE_EXPORT void truce_set_free(truce_set *set);

/* ---- applying operations ------------------------------------------------------------------ */

typedef enum truce_set_outcome {
    /* The set, or a tombstone, changed. */
    TRUCE_SET_APPLIED = 1,
    /* A newer operation on that name was applied before. */
    TRUCE_SET_STALE,
    /* The same operation was applied before. */
    TRUCE_SET_DUPLICATE,
    /* The number was declared void before the operation arrived. The operation is recorded in
     * `truce_quarantine` and not applied. */
    TRUCE_SET_QUARANTINED,
} truce_set_outcome;

/* Returns "applied", "stale", "duplicate", or "quarantined". */
TRUCE_EXPORT const char *truce_set_outcome_name(truce_set_outcome outcome);

/*
 * Adds an element. `key` contains the fields of the key: {student_id: 1}. `element` contains the
 * name and any payload: {name: "CS 101", room: 4}. A newer add replaces the payload. Names and keys
 * are numbers, strings, ObjectIds, dates, booleans, or binary values. `outcome` may be NULL.
 *
 * If `commit` is NULL, the operation takes effect now. If a commit holds the document for more than
 * 30 s, the call fails with TRUCE_LOCKED; repeat it. With a commit of the same store, the operation
 * is a part of it. The outcome is returned immediately, and the commit depends on it. If another
 * write changes the document before the commit takes effect, that is a conflict, and the function
 * of the commit runs again. If this call fails, the commit cannot be applied.
 *
 *     TRUCE_INVALID    the operation can never be applied
 *     TRUCE_LIMIT      the document would be too large
 *     TRUCE_IO, TRUCE_UNKNOWN, TRUCE_TIMEOUT, TRUCE_LOCKED
 *                      repeat the call; repeating is harmless
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_add(truce_set *set, truce_commit *commit,
                                                       const bson_t *key, const bson_t *element,
                                                       int64_t seq, truce_set_outcome *outcome,
                                                       bson_error_t *error);
/* Removes an element, like truce_set_add. `element` needs only the name. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_remove(truce_set *set, truce_commit *commit,
                                                          const bson_t *key, const bson_t *element,
                                                          int64_t seq, truce_set_outcome *outcome,
                                                          bson_error_t *error);

typedef enum truce_set_verb { TRUCE_SET_ADD = 1, TRUCE_SET_REMOVE } truce_set_verb;

/* An operation of a batch. */
typedef struct truce_set_operation {
    truce_set_verb verb;
    const bson_t *key, *element;
    int64_t seq;
    /* The sender that numbers the messages. NULL means that the numbers have no source. */
    const char *source;
    /* Must be zero. */
    uint64_t reserved[2];
} truce_set_operation;

typedef struct truce_set_result {
    /* `outcome` is valid if this is TRUCE_OK. */
    truce_status status;
    truce_set_outcome outcome;
    /* Must be zero. */
    uint64_t reserved[2];
} truce_set_result;

/* Applies many operations, in any order, of any documents. The call first finds the winner of each
 * name, then writes each document once, some hundreds of documents in one call to the store. An
 * operation that lost to another one of the batch is stale. `results` has room for `count`
 * elements. Returns the status of the first operation that failed; the message has its number. The
 * other operations are applied anyway. In a commit, none is applied, and the commit must be
 * abandoned. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_apply(truce_set *set, truce_commit *commit,
                                                         const truce_set_operation *operations,
                                                         size_t count, truce_set_result *results,
                                                         bson_error_t *error);

/* Checks whether the operation can be applied at all. If not, the call fails with TRUCE_INVALID and
 * the reason. It does not access the store. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_check(truce_set *set,
                                                         const truce_set_operation *operation,
                                                         bson_error_t *error);

/* ---- reading ------------------------------------------------------------------------------ */

/* Returns the elements as an array of {name, seq, ...payload}. If no operation was ever applied to
 * the key, the call fails with TRUCE_NOT_FOUND. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_members(truce_set *set, const bson_t *key,
                                                           bson_t *members, bson_error_t *error);

/* Returns the elements with the data of the set: {key, <field>: [...], <deleted>: [...],
 * <watermark>}. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_show(truce_set *set, const bson_t *key,
                                                        bson_t *document, bson_error_t *error);

/* ---- consumers: apply, THEN record, THEN acknowledge -------------------------------------- */

/* Records that `consumer` has applied these operations. `consumer` is the consumer's own name,
 * which it keeps after a restart. After TRUCE_OK, their messages may be acknowledged. Recording
 * twice is harmless. Recording an operation that was not applied loses it. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_record(truce_set *set, const char *consumer,
                                                          const truce_set_operation *operations,
                                                          size_t count, bson_error_t *error);

/* Applies operations, and records those that were applied. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_consume(truce_set *set, const char *consumer,
                                                           const truce_set_operation *operations,
                                                           size_t count, truce_set_result *results,
                                                           bson_error_t *error);

/* ---- sources, the watermark, collecting --------------------------------------------------- */

/* Announces a source before it publishes. Its numbers begin at *first, above the collected ones.
 * For a known source, *first is its first number. The first record of an unknown source announces
 * it, beginning at 1. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_source_start(truce_set *set, const char *source,
                                                                int64_t *first,
                                                                bson_error_t *error);

/* Declares for a source that every number below `below` has been recorded or will never be
 * published. Gaps below it are void, however long. A source must call this from time to time if it
 * is idle, or if its numbers are not dense (timestamps, database ids, log offsets). Otherwise
 * nothing can be collected. Fails with NOT_FOUND, and names the sources of the set, if the set does
 * not have the source. NULL is also allowed for a set without sources. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_source_idle(truce_set *set, const char *source,
                                                               int64_t below, bson_error_t *error);

/* Declares that numbers `from` to `to` of a source were never published, or are given up; any
 * number of them. After the watermark has passed them, an operation that arrives with such a number
 * is quarantined. Fails with NOT_FOUND as truce_set_source_idle. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_void(truce_set *set, const char *source,
                                                        int64_t from, int64_t to,
                                                        bson_error_t *error);

/* Returns the number up to which all operations have been applied: the least of the sources'
 * watermarks, or 0 without sources. `report` (may be NULL) receives {set, watermark, sources:
 * [{source, watermark, floor, missing}]}; `missing` is the first number that holds the source
 * back. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_watermark(truce_set *set, int64_t *watermark,
                                                             bson_t *report, bson_error_t *error);

typedef struct truce_set_collected {
    /* The watermark that was used. */
    int64_t watermark;
    /* Documents that lost tombstones. */
    int64_t documents;
    /* Tombstones that were removed. */
    int64_t tombstones;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_set_collected;

/* Removes the tombstones at or below the watermark. Any number of processes may call it at any
 * time. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_collect(truce_set *set,
                                                           truce_set_collected *collected,
                                                           bson_error_t *error);

/*
 * Lets the store refuse elements that a program without watermarks would bring back: two plain
 * updates ($pull, then $push), sent by an older consumer.
 *
 * After this, collecting marks the elements that it passes (`_proved: true`, which readers see). A
 * rule in the collection's validator (truce_collection_validate), in addition to its other rules,
 * refuses an unmarked element at or below the watermark: code 121. If `on` is false, the call
 * removes the rule. It may be repeated, and called while the set is in use, but not at the same
 * time for another set of the collection. Versions of truce that do not mark elements cannot
 * collect after this.
 *
 * If a commit holds a document, the call fails with TRUCE_LOCKED: repeat it. In the layout by
 * element, and on a store without array filters, it fails with TRUCE_INVALID.
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_protect(truce_set *set, bool on,
                                                           bson_error_t *error);

typedef struct truce_set_converted {
    /* Documents that were written. */
    int64_t documents;
    /* Elements that got a number, or contained no information and were removed. */
    int64_t elements;
    /* Documents that could not be written, or have a value other than a list. */
    int64_t left;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_set_converted;

/* Gives every element without a number (see above) the number 0. The call may run at any time,
 * concurrently with other calls. If it is interrupted, call it again to continue. It skips
 * documents that cannot be written and reports the reason at the end. If some documents have a
 * value other than a list, it fails with TRUCE_INVALID. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_convert(truce_set *set,
                                                           truce_set_converted *converted,
                                                           bson_error_t *error);

/* Lists the quarantined operations: {_id: {set, source, seq, verb, key, name}, element, reason,
 * time}. The caller closes the cursor. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_quarantine(truce_set *set, truce_cursor **cursor,
                                                              bson_error_t *error);

/*
 * Applies a quarantined operation and removes it from the quarantine, in one commit. `quarantined`
 * is its document as listed; the _id identifies it. If a newer operation than its own number is
 * stored for the name, the outcome is stale or duplicate, and nothing changes. Otherwise the
 * operation is applied under `seq`, a new number of its source, as if it were published now. In
 * both cases `seq` is used up and is recorded for `consumer` (NULL means that it is not recorded).
 *
 * If `seq` is not above the collected numbers, the call fails with TRUCE_INVALID and the operation
 * stays quarantined. If the operation is not, or no longer, in the quarantine, it fails with
 * TRUCE_NOT_FOUND. After TRUCE_UNKNOWN, the call may be repeated.
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_replay(truce_set *set, const bson_t *quarantined,
                                                          int64_t seq, const char *consumer,
                                                          truce_set_outcome *outcome,
                                                          bson_error_t *error);

/* Removes the set's definition from the store, with its sources and the records of consumers. The
 * lists in the documents and the unique index on the key stay. No process may use the set during
 * the call. If a document contains one of its lists and `anyway` is false, the call fails with
 * TRUCE_CONFLICT. If no such set exists, it fails with TRUCE_NOT_FOUND. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_forget(truce_set *set, bool anyway,
                                                          bson_error_t *error);

TRUCE_END_DECLS

#endif

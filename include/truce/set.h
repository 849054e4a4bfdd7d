#ifndef TRUCE_SET_H
#define TRUCE_SET_H

/*
 * Ordered sets: adds and removes that arrive out of order, again and again, through any number of
 * consumers that may crash, and the set still ends as if every operation had been applied once and
 * in order. No locks: each operation is one guarded update of one document; as part of a commit it
 * is one with the commit's other changes.
 *
 * A set is a list inside a document, with a second list of what was removed (the tombstones). With
 * the names of the description that this comes from:
 *
 *     {_id, student_id: 1, ...,
 *      classes:         [{name: "CS 101", seq: 1001, ...payload}],
 *      deleted_classes: [{name: "CS 102", seq: 1002}],
 *      _wm: 900}
 *
 * Every operation carries a sequence number, given out by whoever publishes it (truce/sequence.h,
 * or the caller's own numbers), 1 or greater. Its rank is (number, source, adds before removes):
 * for each name the operation of the highest rank wins, whenever it arrives; on an exact tie of an
 * add and a remove the add wins. With several publishers each has a source id, and its own numbers.
 * This is a last-writer-wins element set (Shapiro, Preguica, Baquero, Zawirski 2011; SoundCloud's
 * Roshi).
 *
 * Documents from before there were numbers are understood: an element without one, be it a bare name
 * (classes: ["CS 101"]), is older than every operation. The first operation that is applied to a
 * document converts its lists, truce_set_convert all of them; readers are shown them converted, with the
 * number 0.
 *
 * Tombstones go when it is proved that nothing older can arrive (truce_set_collect): consumers
 * apply, THEN record the numbers, THEN acknowledge their messages. For that, a source gives each
 * number to one operation only, and leaves no gaps but such as it declares void.
 *
 * Threads: a set may be used from any number of threads at once. It must be freed before its store
 * is closed.
 */
#include "truce/commit.h"
#include "truce/store.h"

TRUCE_BEGIN_DECLS

typedef struct truce_set truce_set;

typedef enum truce_set_layout {
    TRUCE_SET_IN_DOCUMENT = 0, /* two lists in the document of the key */
    TRUCE_SET_BY_ELEMENT,      /* one document for each element, in the collection
                                  "<collection>.<field>": {key, name, seq, removed?, ...payload}; for
                                  sets that outgrow a document. An element with `_proved` was there
                                  when tombstones were collected; one without whose number is at or
                                  below `_wm` of "<collection>.<field>.guards" is not there */
} truce_set_layout;

/* How one operation is applied; all give the same documents. */
typedef enum truce_set_form {
    TRUCE_SET_FORM_AUTO =
        0, /* what the store can do best: merging inside its write (truce/sys/store.h:
                                TRUCE_CAN_REWRITE), else one of these: */
    TRUCE_SET_FORM_PIPELINE, /* one update with an aggregation pipeline */
    TRUCE_SET_FORM_CLASSIC,  /* a loop of two guarded updates with classic operators */
} truce_set_form;

/* Zero means default; collection, key, field and name have to be said (INVALID names the one
 * that is missing). Texts are copied. Two sets in one collection need different `watermark`s. */
typedef struct truce_set_options {
    const char *collection; /* for example "students" */
    const char *key;        /* fields that name the document, comma between: "student_id" */
    const char *field;      /* the list: "classes" */
    const char *name;       /* the field of an element that names it: "name" */
    const char *deleted;    /* the list of tombstones; NULL: "deleted_<field>" */
    const char *seq;        /* the field of an element with its number; NULL: "seq" */
    const char *source;     /* the field of an element with its source; NULL: "src" */
    const char *watermark;  /* the field of the document with the watermark; NULL: "_wm" */
    truce_set_layout layout;
    truce_set_form form;
    uint32_t
        deadline_ms; /* of each call: TIMEOUT, or LOCKED; 0: waits 30,000 for others, and works as long
                             as it takes. Calls of other threads that are applied together with one that
                             ends so are to be sent again, too */
    uint64_t reserved[4]; /* zeros */
} truce_set_options;

/* Never fails and asks the store nothing; wrong options are refused by the first call. The first
 * write makes a unique index on the key, without which two consumers could make two documents. */
TRUCE_EXPORT truce_set *truce_set_new(truce_store *store, const truce_set_options *options);
/* NULL is allowed. */
TRUCE_EXPORT void truce_set_free(truce_set *set);

/* ---- applying operations ------------------------------------------------------------------- */

typedef enum truce_set_outcome {
    TRUCE_SET_APPLIED = 1, /* the set is different now, or its tombstone is */
    TRUCE_SET_STALE,       /* a newer operation on that name stands */
    TRUCE_SET_DUPLICATE,   /* this very operation was applied before */
    TRUCE_SET_QUARANTINED, /* it came after its number had been declared void: kept in
                              `truce_quarantine`, not applied */
} truce_set_outcome;

/* "applied", "stale", "duplicate", "quarantined" */
TRUCE_EXPORT const char *truce_set_outcome_name(truce_set_outcome outcome);

/* `key` has the key's fields: {student_id: 1}. `element` has the name, and for an add any payload:
 * {name: "CS 101", room: 4}; a newer add replaces it. Names and keys are numbers, strings,
 * ObjectIds, dates, booleans or binary. `outcome` may be NULL.
 *
 * `commit` NULL: alone, now. A document that a commit holds is waited for (LOCKED: for longer than
 * 30 s; send it again). Else as part of the commit: with everything else in it, or not at all. The
 * outcome is told at once, and is what the commit depends on: if somebody changes the document before
 * it takes effect, it is a CONFLICT, and its function runs again. A failure here is the end of the
 * commit. The set and the commit are of one store.
 *
 * INVALID: the operation cannot be applied, ever. LIMIT: the document would be too large. IO, UNKNOWN,
 * TIMEOUT, LOCKED: send it again; it does no harm. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_add(truce_set *set, truce_commit *commit,
                                                       const bson_t *key, const bson_t *element,
                                                       int64_t seq, truce_set_outcome *outcome,
                                                       bson_error_t *error);
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_remove(truce_set *set, truce_commit *commit,
                                                          const bson_t *key, const bson_t *element,
                                                          int64_t seq, truce_set_outcome *outcome,
                                                          bson_error_t *error);

typedef enum truce_set_verb { TRUCE_SET_ADD = 1, TRUCE_SET_REMOVE } truce_set_verb;

typedef struct truce_set_operation {
    truce_set_verb verb;
    const bson_t *key, *element;
    int64_t seq;
    const char *source;   /* NULL: numbers without a source */
    uint64_t reserved[2]; /* zeros */
} truce_set_operation;

typedef struct truce_set_result {
    truce_status status; /* OK: `outcome` counts */
    truce_set_outcome outcome;
    uint64_t reserved[2]; /* zeros */
} truce_set_result;

/* Many operations, in any order, of any documents: for each name the winner is found first, then
 * each document is written once, in one call for some hundreds of documents. An operation that
 * lost to another of the batch is STALE. `results` has room for `count`. Returns the status of the
 * first operation that failed, whose number is in the sentence; the others are applied all the
 * same (in a commit: none is, and the commit has to be abandoned).
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_apply(truce_set *set, truce_commit *commit,
                                                         const truce_set_operation *operations,
                                                         size_t count, truce_set_result *results,
                                                         bson_error_t *error);

/* Whether the operation could be applied at all: INVALID with the reason. Asks the store nothing.
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_check(truce_set *set,
                                                         const truce_set_operation *operation,
                                                         bson_error_t *error);

/* ---- reading ------------------------------------------------------------------------------- */

/* The elements: an array of {name, seq, ...payload}. NOT_FOUND: nothing was ever applied there. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_members(truce_set *set, const bson_t *key,
                                                           bson_t *members, bson_error_t *error);

/* The same with what is behind it: {key, <field>: [...], <deleted>: [...], <watermark>}. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_show(truce_set *set, const bson_t *key,
                                                        bson_t *document, bson_error_t *error);

/* ---- consumers: apply, THEN record, THEN acknowledge ---------------------------------------- */

/* Records that `consumer` (its own name, the same when it comes back) has applied these operations.
 * When this returns OK, their messages may be acknowledged. Recording twice does no harm; recording
 * what was not applied loses it. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_record(truce_set *set, const char *consumer,
                                                          const truce_set_operation *operations,
                                                          size_t count, bson_error_t *error);

/* apply and, for those that were, record. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_consume(truce_set *set, const char *consumer,
                                                           const truce_set_operation *operations,
                                                           size_t count, truce_set_result *results,
                                                           bson_error_t *error);

/* ---- sources, the watermark, collecting ------------------------------------------------------ */

/* Announces a source before it publishes: its numbers begin at *first, above what has been
 * collected so far. (An unknown source is announced by the first record of one of its numbers,
 * beginning at 1.) A source that is known already: its first number. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_source_start(truce_set *set, const char *source,
                                                                int64_t *first,
                                                                bson_error_t *error);

/* The source says: every number below `below` has been recorded or will never be published; gaps below it are
 * void, however long. An idle source says so from time to time, and so does one whose numbers are not dense
 * (timestamps, ids of a database, offsets of a log), or nothing can be collected. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_source_idle(truce_set *set, const char *source,
                                                               int64_t below, bson_error_t *error);

/* Numbers `from` to `to` of a source were never published (or are given up), however many. What
 * still arrives with one of them, after the watermark has passed, is quarantined. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_void(truce_set *set, const char *source,
                                                        int64_t from, int64_t to,
                                                        bson_error_t *error);

/* Up to where everything has been applied: the least of the sources' watermarks; 0 if there is no
 * source. `report` (may be NULL): {set, watermark, sources: [{source, watermark, floor, missing}]},
 * `missing` being the first number that holds the source back. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_watermark(truce_set *set, int64_t *watermark,
                                                             bson_t *report, bson_error_t *error);

typedef struct truce_set_collected {
    int64_t watermark;    /* that was used */
    int64_t documents;    /* that lost tombstones */
    int64_t tombstones;   /* that are gone */
    uint64_t reserved[4]; /* zeros */
} truce_set_collected;

/* Removes the tombstones at or below the watermark. Any number of processes may do so at any time.
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_collect(truce_set *set,
                                                           truce_set_collected *collected,
                                                           bson_error_t *error);

/* Has the store refuse what a program that does not compare the watermark would bring back: the updates of the
 * classic description, sent by an older consumer. From then on collecting marks the elements that it passes
 * (`_proved: true`, which readers see), and a validator of the collection (truce_collection_validate), beside what validator
 * it has, refuses an element at or below the watermark without a mark: code 121. `on` false takes the rule out again.
 * May be called again, and while the set is in use; not at the same time for another set of the collection. LOCKED: a commit
 * holds a document; call it again. INVALID: not in the layout by element, nor where a store has no array filters.
 * Programs of versions that do not mark cannot collect then. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_protect(truce_set *set, bool on,
                                                           bson_error_t *error);

typedef struct truce_set_converted {
    int64_t documents; /* that were written */
    int64_t elements;  /* that got a number, or said nothing and are gone */
    int64_t left; /* documents that could not be written, or have no list where one should be */
    uint64_t reserved[4]; /* zeros */
} truce_set_converted;

/* Gives a number to every element that has none (see above): 0. May run at any time, beside everybody
 * else; stopped and called again, it goes on. A document that cannot be written is left, and its reason
 * is told at the end. INVALID: in some documents there is something else than a list. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_convert(truce_set *set,
                                                           truce_set_converted *converted,
                                                           bson_error_t *error);

/* What was quarantined: {_id: {set, source, seq, verb, key, name}, element, reason, time}. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_quarantine(truce_set *set, truce_cursor **cursor,
                                                              bson_error_t *error);

/* Applies a quarantined operation (its document, as listed; its _id counts) and takes it out of the quarantine,
 * as one commit. If something newer than its own number stands for the name, it is STALE or a DUPLICATE, and
 * nothing changes; else it is applied under `seq`, a new number of its source, as if it were published now. Then
 * `seq` is recorded for `consumer` (NULL: it is not), since it is used up. INVALID: `seq` is not above what was
 * collected, and the operation stays quarantined. NOT_FOUND: it is not there (any more). After UNKNOWN it may be
 * called again. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_replay(truce_set *set, const bson_t *quarantined,
                                                          int64_t seq, const char *consumer,
                                                          truce_set_outcome *outcome,
                                                          bson_error_t *error);

/* Takes the set's definition out of the store again, with its sources and what consumers recorded. The lists
 * in the documents stay, and so does the unique index on the key. Nobody may be working with the set.
 * CONFLICT: a document holds one of its lists, and `anyway` is false. NOT_FOUND: there is no such set. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_set_forget(truce_set *set, bool anyway,
                                                          bson_error_t *error);

TRUCE_END_DECLS

#endif

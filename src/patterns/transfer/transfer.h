#ifndef TRUCE_PATTERNS_TRANSFER_TRANSFER_H
#define TRUCE_PATTERNS_TRANSFER_TRANSFER_H

/* What the files of transfers share. The contract is in truce/transfer.h; the essay in transfer.c. */
#include <pthread.h>

#include "base/limits.h"
#include "base/status.h"
#include "bson/value.h"
#include "commit/journal.h"
#include "store/maintenance.h"
#include "truce/transfer.h"

/* Where things stand in the documents; "" is not known. */
struct transfer_layout {
    char *accounts, *field, *marks, *fence;
    int64_t resume_ms, keep_ms;
};

struct truce_transfers {
    truce_store *store;
    char *collection;
    uint32_t deadline_ms;
    truce_mechanism mechanism;
    bool refused;
    bson_error_t refusal;
    struct transfer_layout wanted; /* by the options; NULL and 0: as it is kept */
    pthread_mutex_t mutex;         /* of what follows */
    uint64_t structure;            /* of the store, when the book was ready; 0: it is not */
    struct transfer_layout layout;
    struct transfer_layout
        *retired; /* of books that were replaced: other threads may still read them */
    uint32_t retired_count;
};

/* Of a book as it was read, for who writes nothing. INVALID: it is none. */
truce_status truce__transfers_layout(truce_transfers *transfers, const bson_t *book,
                                     bson_error_t *error);

/* ---- transfer_plan.c: from a request to a document ---- */

/* {_id, source?, destination?, value?, meta?, entries}; all of it checked but what needs the documents. `document` is always
 * initialised. */
truce_status truce__transfer_build(const truce_transfers *transfers, const truce_transfer *request,
                                   bson_t *document, bson_error_t *error);
/* What was made of the same request. */
bool truce__transfer_same(const bson_t *built, const bson_t *kept);

/* ---- transfer_plan.c: a document's entries ---- */

struct transfer_entry {
    const char *collection;
    bson_value_t id;
    bool after, has_guard;
    bson_t guard, effect, undo; /* `undo` of those before */
};

struct transfer_plan {
    bson_t document; /* the transfer */
    bson_t made;     /* the entries of one that has none */
    bson_t
        restored; /* one of the two with the names of before (bson/field_names.h); the entries borrow from it */
    struct transfer_entry *entries;
    uint32_t count;
    bool decides; /* it has entries after the decision */
};

/* Takes the document over. INVALID: it is no transfer. Release it in any case. */
truce_status truce__transfer_plan(const truce_transfers *transfers, bson_t *document,
                                  struct transfer_plan *plan, bson_error_t *error);
void truce__transfer_plan_release(struct transfer_plan *plan);
/* "C {_id: 17}", for messages */
const char *truce__transfer_show(const char *collection, const bson_value_t *id, char *text,
                                 size_t size);
/* Calls for the first part of each path that an update changes, until one returns false: then false. */
typedef bool transfer_field_function(const char *field, size_t length, void *arg);

/* ---- transfer_drive.c: step by step ---- */

/* A transfer of that id, brought to its end. `fresh`: a new one, which is inserted first; it is taken over. NULL: it is there. */
truce_status truce__transfer_drive(truce_transfers *transfers, const bson_value_t *id,
                                   bson_t *fresh, bool *exists, bson_error_t *error);
/* If it is not decided, on the way back, and to its end. */
truce_status truce__transfer_undo(truce_transfers *transfers, const bson_value_t *id,
                                  bson_error_t *error);

enum transfer_state {
    TRANSFER_NONE,    /* no state that a transfer can have */
    TRANSFER_INITIAL, /* the recipe's own: before pending */
    TRANSFER_PENDING,
    TRANSFER_COMMITTED,
    TRANSFER_APPLIED,
    TRANSFER_DONE,
    TRANSFER_CANCELING,
    TRANSFER_CANCELED,
};

enum transfer_state truce__transfer_state(const bson_t *document);
/* OK of one that is done, REFUSED (and why) of one that is canceled. */
truce_status truce__transfer_answer(const truce_transfers *transfers, const bson_t *document,
                                    bson_error_t *error);
/* DUPLICATE. */
truce_status truce__transfer_other(const truce_transfers *transfers, const bson_value_t *id,
                                   bson_error_t *error);
/* Appends {state, lastModified, reason?, ended?, expires?}: `reason` may be NULL. */
void truce__transfer_enters(const truce_transfers *transfers, enum transfer_state state,
                            const char *reason, bson_t *document);

/* ---- transfer_drive.c: single writes of documents that take part ---- */

struct transfer_step {
    truce_transfers *transfers;
    struct worker *worker;
    const bson_value_t *transfer;
    const struct transfer_entry *entry;
    bson_value_t fence; /* as it was read; EOD: there was none */
};

enum transfer_made { TRANSFER_MADE, TRANSFER_MOVED /* the fence */, TRANSFER_REFUSED };

/* ---- transfer_plan.c: the documents that take part ---- */

/* What an entry needs to know of its document: fence, marks, and what the effect and the undo change. */
struct transfer_look {
    bool found;
    bson_t document;
};

/* One for each entry; release them in any case. */
truce_status truce__transfer_look(truce_transfers *transfers, const struct transfer_plan *plan,
                                  struct transfer_look *looks, bson_error_t *error);
void truce__transfer_looks_release(struct transfer_look *looks, uint32_t count);
/* EOD: there is none. Borrowed. */
bson_value_t truce__transfer_fence(const truce_transfers *transfers, const bson_t *document);
/* It has an undo that is not the opposite of its $inc. */
bool truce__transfer_needs_proof(const struct transfer_plan *plan);
/* Can it come to its end? REFUSED: a document is not there, or an effect cannot be made of what stands there (`credits`:
 * of one after the decision). INVALID: an undo does not take its effect back. */
truce_status truce__transfer_prove(const struct transfer_plan *plan,
                                   const struct transfer_look *looks, bool credits,
                                   bson_error_t *error);

/* A transfer in one step: all of it is one commit. */

#endif

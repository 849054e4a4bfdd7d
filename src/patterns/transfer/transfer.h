#ifndef TRUCE_PATTERNS_TRANSFER_TRANSFER_H
#define TRUCE_PATTERNS_TRANSFER_TRANSFER_H

/* Declarations that the files of transfers share. truce/transfer.h has the contract; transfer.c has
 * the essay. */
#include <pthread.h>

#include "base/limits.h"
#include "base/status.h"
#include "bson/value.h"
#include "commit/journal.h"
#include "store/maintenance.h"
#include "truce/transfer.h"

/* The names of the fields and of the collection of accounts, and the times in ms. Owned. The names
 * are NULL before the layout is read. */
struct transfer_layout {
    char *accounts, *field, *marks, *fence;
    int64_t resume_ms, keep_ms;
};

/* A handle for the transfers of a book. Threads may share it. */
struct truce_transfers {
    truce_store *store;
    char *collection;
    uint32_t deadline_ms;
    truce_mechanism mechanism;
    /* The options are invalid; every call fails with `refusal`. */
    bool refused;
    bson_error_t refusal;
    /* The layout of the options. If a field is NULL or 0, the stored value applies. */
    struct transfer_layout wanted;
    /* Protects the fields below. */
    pthread_mutex_t mutex;
    /* The store's structure number plus one when the book was ready, or 0 if it is not. */
    uint64_t structure;
    /* The layout of the stored book. Valid once the book was ready. */
    struct transfer_layout layout;
    /* The layouts of replaced books, which other threads may still read. Owned. */
    struct transfer_layout *retired;
    uint32_t retired_count;
};

/* Sets the layout of a book that was read, for calls that write nothing. Returns TRUCE_INVALID if
 * it is not a book. */
truce_status truce__transfers_layout(truce_transfers *transfers, const bson_t *book,
                                     bson_error_t *error);

/* ---- transfer_plan.c: from a request to a document ---- */

/* Builds {_id, source?, destination?, value?, meta?, entries}, checked as far as possible without
 * the documents. Always initializes `document`. */
truce_status truce__transfer_build(const truce_transfers *transfers, const truce_transfer *request,
                                   bson_t *document, bson_error_t *error);
/* Returns whether both were built from the same request. */
bool truce__transfer_same(const bson_t *built, const bson_t *kept);

/* ---- transfer_plan.c: a document's entries ---- */

/* An entry of a transfer: a change of one document. */
struct transfer_entry {
    const char *collection;
    bson_value_t id;
    /* `after`: the entry is made after the decision. */
    bool after, has_guard;
    /* If `has_guard`, `guard` is the guard. `undo` is the undo of an entry before the decision. All
     * borrow from the plan. */
    bson_t guard, effect, undo;
};

/* A transfer with its parsed entries. */
struct transfer_plan {
    /* The document of the transfer. Owned. */
    bson_t document;
    /* The derived entries of a transfer of MongoDB's recipe, which has none. Owned. */
    bson_t made;
    /* `document` or `made` with the user's original field names (bson/field_name_escape.h). The
     * entries borrow from it. */
    bson_t restored;
    struct transfer_entry *entries;
    uint32_t count;
    /* At least one entry comes after the decision. */
    bool decides;
};

/* Builds the plan, and takes over the document. Returns TRUCE_INVALID if the document is not a
 * transfer. The caller releases the plan in any case. */
truce_status truce__transfer_plan(const truce_transfers *transfers, bson_t *document,
                                  struct transfer_plan *plan, bson_error_t *error);
void truce__transfer_plan_release(struct transfer_plan *plan);
/* Writes "C {_id: 17}" for messages. */
const char *truce__transfer_show(const char *collection, const bson_value_t *id, char *text,
                                 size_t size);
/* Receives the first part of each path that an update changes. If it returns false, the walk stops
 * and returns false. */
typedef bool transfer_field_function(const char *field, size_t length, void *arg);

/* ---- transfer_protocol.c: step by step ---- */

/* Drives the transfer of that id to its end. `fresh` is a new transfer, which is inserted first and
 * which the call takes over, or NULL if the transfer exists. Sets *exists if the transfer was
 * stored before. Returns what truce__transfer_answer returns, or why the transfer could not be
 * completed. */
truce_status truce__transfer_drive(truce_transfers *transfers, const bson_value_t *id,
                                   bson_t *fresh, bool *exists, bson_error_t *error);
/* Cancels an undecided transfer, and drives it to its end. */
truce_status truce__transfer_undo(truce_transfers *transfers, const bson_value_t *id,
                                  bson_error_t *error);

enum transfer_state {
    /* The stored state is not valid, or no transfer exists. */
    TRANSFER_NONE,
    /* The recipe's state before pending. */
    TRANSFER_INITIAL,
    TRANSFER_PENDING,
    TRANSFER_COMMITTED,
    TRANSFER_APPLIED,
    TRANSFER_DONE,
    TRANSFER_CANCELING,
    TRANSFER_CANCELED,
};

/* Reads the state of a stored transfer. */
enum transfer_state truce__transfer_state(const bson_t *document);
/* Returns TRUCE_OK for a transfer that is done, and TRUCE_REFUSED with the reason for a canceled
 * one. */
truce_status truce__transfer_answer(const truce_transfers *transfers, const bson_t *document,
                                    bson_error_t *error);
/* Fails with TRUCE_DUPLICATE: another transfer has the id. */
truce_status truce__transfer_other(const truce_transfers *transfers, const bson_value_t *id,
                                   bson_error_t *error);
/* Appends {state, lastModified, reason?, ended?, expires?}. `reason` may be NULL. */
void truce__transfer_enters(const truce_transfers *transfers, enum transfer_state state,
                            const char *reason, bson_t *document);

/* ---- transfer_protocol.c: single writes of documents that take part ---- */

/* The state of one write to a document that takes part. */
struct transfer_step {
    truce_transfers *transfers;
    struct worker *worker;
    const bson_value_t *transfer;
    const struct transfer_entry *entry;
    /* The fence as it was read, or a value of the type EOD if the document has no fence. */
    bson_value_t fence;
};

/* The result of making an entry. TRANSFER_MOVED: the fence has another value than the one that was
 * read. */
enum transfer_made { TRANSFER_MADE, TRANSFER_MOVED, TRANSFER_REFUSED };

/* ---- transfer_plan.c: the documents that take part ---- */

/* The part of a document that an entry needs: fence, marks, and the fields that the effect and the
 * undo change. */
struct transfer_document {
    bool found;
    bson_t document;
};

/* Reads the document of each entry. The caller releases the documents in any case. */
truce_status truce__transfer_read_documents(truce_transfers *transfers,
                                            const struct transfer_plan *plan,
                                            struct transfer_document *documents,
                                            bson_error_t *error);
void truce__transfer_documents_release(struct transfer_document *documents, uint32_t count);
/* Returns the fence, borrowed from the document, or a value of the type EOD if there is no
 * fence. */
bson_value_t truce__transfer_fence(const truce_transfers *transfers, const bson_t *document);
/* Returns whether an entry has another undo than the opposite of its $inc. */
bool truce__transfer_needs_proof(const struct transfer_plan *plan);
/* Checks whether the transfer can complete. Returns TRUCE_REFUSED if a document does not exist, or
 * if an effect is impossible with its values. Effects of entries after the decision are checked
 * only if `credits`. Returns TRUCE_INVALID if an undo does not revert its effect. */
truce_status truce__transfer_prove(const struct transfer_plan *plan,
                                   const struct transfer_document *documents, bool credits,
                                   bson_error_t *error);

#endif

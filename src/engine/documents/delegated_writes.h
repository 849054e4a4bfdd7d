#ifndef TRUCE_ENGINE_DOCUMENTS_DELEGATED_WRITES_H
#define TRUCE_ENGINE_DOCUMENTS_DELEGATED_WRITES_H

/*
 * Writes and their outcomes as bytes, so that another process can execute them
 * (engine/cross_process_commit.h).
 *
 *     write     {k: kind, f: flags, c: collection, q: filter, v: document, ...}
 *     outcome   {s: status, m: matched, n: modified, i: inserted, r: removed, u: upserted _id,
 *                e: {d, c, m}}; zeros are omitted
 */
#include "bson/value.h"
#include "engine/documents/open_documents.h"

/* The number of parts of a write that are documents. */
#define DELEGATED_PARTS 6

extern const struct delegated_kind truce__delegated_kind_bulk, truce__delegated_kind_modify;
/* All kinds of operations, with NULL at the end. */
extern const struct delegated_kind *const truce__delegated_kinds[];

#endif

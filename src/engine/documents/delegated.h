#ifndef TRUCE_ENGINE_DOCUMENTS_DELEGATED_H
#define TRUCE_ENGINE_DOCUMENTS_DELEGATED_H

/*
 * Writes as bytes, and their outcomes, so that another process can carry them out (engine/cross_process.h).
 *
 *     write     {k: kind, f: flags, c: collection, q: filter, v: document, ...}
 *     outcome   {s: status, m: matched, n: modified, i: inserted, r: removed, u: upserted _id, e: {d, c, m}}, what is zero left out
 */
#include "bson/value.h"
#include "engine/documents/document_store.h"

#define DELEGATED_PARTS 6 /* of a write, which are documents */

extern const struct delegated_kind truce__delegated_kind_bulk, truce__delegated_kind_modify;
extern const struct delegated_kind *const truce__delegated_kinds[]; /* all, and NULL */

#endif

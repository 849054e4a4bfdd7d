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

#define CARRY_PARTS 6 /* of a write, which are documents */

extern const struct carry truce__carry_bulk, truce__carry_modify;
extern const struct carry *const truce__carries[]; /* all, and NULL */

#endif

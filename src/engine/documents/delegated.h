#ifndef TRUCE_ENGINE_DOCUMENTS_DELEGATED_H
#define TRUCE_ENGINE_DOCUMENTS_DELEGATED_H

/*
 * Writes as bytes, and their outcomes, so that another process can carry them out (engine/cross_process.h).
 *
 *     write     {k: kind, f: flags, c: collection, q: filter, v: document, ...}
 *     outcome   {s: status, m: matched, n: modified, i: inserted, r: removed, u: upserted _id, e: {d, c, m}}, what is zero left out
 */
#include "bson/value.h"
#include "engine/engine.h"

#define CARRY_PARTS 6 /* of a write, which are documents */

extern const struct carry truce__carry_bulk, truce__carry_modify;
extern const struct carry *const truce__carries[]; /* all, and NULL */

/* So many documents, and no more. */
void truce__carry_limit(struct budget *budget, int64_t deadline_ns);

/* What was packed goes to the end of the bytes, and is destroyed. */
void truce__carry_put(struct buffer *bytes, bson_t *packed);

size_t truce__carry_bytes(const truce_write *write);
void truce__carry_pack_write(bson_t *packed, const truce_write *write);
/* False: it is none that a store would let through to its backend. */
bool truce__carry_unpack_write(struct value packed, bool atomic, truce_write *write,
                               bson_t parts[CARRY_PARTS]);
/* NULL: there is none */
const bson_t *truce__carry_part(struct value packed, const char *name, bson_t *made);

void truce__carry_pack_number(bson_t *packed, const char *name, int64_t number);
void truce__carry_pack_outcome(bson_t *packed, const truce_write_outcome *outcome);
/* False: it is none that such a write can have. */
bool truce__carry_unpack_outcome(struct value told, const truce_write *write,
                                 truce_write_outcome *outcome);
int64_t truce__carry_told(struct value told, const char *name);

#endif

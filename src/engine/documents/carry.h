#ifndef TRUCE_ENGINE_DOCUMENTS_CARRY_H
#define TRUCE_ENGINE_DOCUMENTS_CARRY_H

/*
 * Bulks as bytes, and their outcomes, so that another process can carry them out (engine/combine.h).
 *
 *     request   {a: atomic, r: relaxed, d: deadline, w: [{k: kind, f: flags, c: collection, q: filter, v: document, ...}]}
 *     answer    {s: first failure, a: of which write, o: {"0": {s, m, n, i, r, u, e: {d, c, m}}, ...}}, what is zero left out
 */
#include "engine/writer.h"

/* `arg` is the engine */
extern const struct carrier truce__carrier;

/* Of a struct bulk. */
bool truce__carry_pack(const struct write_op *op, struct buffer *request);
bool truce__carry_unpack(struct write_op *op, struct bytes answer);

#endif

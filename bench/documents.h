#ifndef TRUCE_BENCH_DOCUMENTS_H
#define TRUCE_BENCH_DOCUMENTS_H

/* The documents of all benchmarks: about 300 bytes.
 *
 *     {_id: 17, counter: 0, group: 17, owner: "person 17", text: "..."}   group: _id % 1000
 */
#include <bson/bson.h>

void document_make(int64_t id, bson_t *document);
int64_t document_counter(const bson_t *document);

#endif

#ifndef TRUCE_BENCH_DOCUMENT_H
#define TRUCE_BENCH_DOCUMENT_H

/* The documents of all benchmarks: about 300 bytes.
 *
 *     {_id: 17, counter: 0, group: 17, owner: "person 17", text: "..."}
 *
 * `group` is _id % document_groups.
 */
#include <bson/bson.h>

extern int64_t document_groups; /* The number of groups, 1,000 by default. */

void document_make(int64_t id, bson_t *document);
int64_t document_counter(const bson_t *document);
/* Make the filter {_id: id} and the update {$inc: {counter: by}}. */
void document_filter(int64_t id, bson_t *filter);
void document_increment(int64_t by, bson_t *update);
/* Makes only the strings, for peers. */
void document_texts(int64_t id, char owner[40], char text[200]);
bson_value_t document_id(int64_t id);

#endif

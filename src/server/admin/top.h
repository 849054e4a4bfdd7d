#ifndef TRUCE_SERVER_ADMIN_TOP_H
#define TRUCE_SERVER_ADMIN_TOP_H

/*
 * What commands did with each collection, and how long it took: for `top`, as MongoDB has it.
 *
 * Collections are known by the names of commands that were done, TOP_COLLECTIONS_MAX of them; a new one takes the place of the one that
 * was used least recently. One that is dropped is forgotten.
 *
 * Invariant: to count waits for nobody but who counts, and looks at few places: a table by hash, half empty.
 */
#include "server/call/call.h"

#define TOP_COLLECTIONS_MAX 1000

struct top;

struct top *top_new(void);
void top_free(struct top *top);

/* The call was done, and took so long. */
void top_ran(struct top *top, const struct call *call, int64_t ns);
/* {note, "school.students": {total: {time, count}, readLock, writeLock, queries, getmore, insert, update, remove, commands} ...};
 * times are microseconds. */
void top_append(struct top *top, bson_t *totals);

#endif

#ifndef TRUCE_SERVER_ADMIN_TOP_H
#define TRUCE_SERVER_ADMIN_TOP_H

/*
 * The number and the duration of operations for each collection, for the command `top`.
 *
 * At most TOP_COLLECTIONS_MAX collections are counted, by the names in successful commands. A new
 * one replaces the least recently used one. A dropped collection is removed.
 *
 * Invariant: counting waits only for other threads that count or list the totals, and reads few
 * slots, because the hash table is at most half full.
 */
#include "server/call/call.h"

#define TOP_COLLECTIONS_MAX 1000

struct top;

struct top *top_new(void);
void top_free(struct top *top);

/* Counts a finished call and its duration in ns. */
void top_ran(struct top *top, const struct call *call, int64_t ns);
/* Appends the totals of the command `top`: {note, "school.students": {total: {time, count},
 * readLock, writeLock, queries, getmore, insert, update, remove, commands} ...}; times are
 * microseconds. */
void top_append(struct top *top, bson_t *totals);

#endif

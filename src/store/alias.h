#ifndef TRUCE_STORE_ALIAS_H
#define TRUCE_STORE_ALIAS_H

/*
 * Names that are no collections, for the stages that read others ($lookup, $unionWith): what is read instead is a pipeline over
 * a collection. So the views of a server reach the stages without the stages' knowing of them.
 *
 *     "@school.adults"   ->   "@school.people", [{$match: {age: {$gte: 18}}}]
 *
 * Whoever opens pipelines says which there are (truce__aliases_use, of a thread); each cursor of a pipeline keeps them as long as
 * it is open, on whatever thread it is read. They do not change once a cursor has them.
 */
#include "truce/store.h"

struct alias {
    struct alias *next;
    char *name, *on;
    bson_t *stages;
};

struct aliases;

struct aliases *truce__aliases_new(void);
struct aliases *truce__aliases_hold(struct aliases *aliases); /* NULL is allowed */
void truce__aliases_release(struct aliases *aliases);         /* NULL is allowed */
/* All are copied. */
void truce__aliases_add(struct aliases *aliases, const char *name, const char *on,
                        const bson_t *stages);
/* NULL: it is a collection's name. `aliases` may be NULL. */
const struct alias *truce__aliases_find(const struct aliases *aliases, const char *name);

/* For the pipelines that this thread opens from here on; NULL: none. They stay the caller's. Gives what was in use before. */
struct aliases *truce__aliases_use(struct aliases *aliases);
struct aliases *truce__aliases_used(void);

/* The path in the collection by which it is asked, if what the stages give is asked for what is equal at `path`: where the filter
 * goes in front of all of them (query/aggregate/aggregate_match.c), and they read no other collection. NULL: it does not. bson_free
 * it. */
char *truce__alias_path(const struct alias *alias, const char *path);

/* The stages, and behind them `filter` (NULL: none). Initialises the array. */
void truce__alias_pipeline(const struct alias *alias, const bson_t *filter, bson_t *stages);

#endif

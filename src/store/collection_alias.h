#ifndef TRUCE_STORE_COLLECTION_ALIAS_H
#define TRUCE_STORE_COLLECTION_ALIAS_H

/*
 * Aliases are names for pipelines over a collection. Stages that read other collections ($lookup,
 * $unionWith) may use them like collections. The server's views reach these stages as aliases, so
 * the stages need not know about views.
 *
 *     "@school.adults"   ->   "@school.people", [{$match: {age: {$gte: 18}}}]
 *
 * A thread sets the aliases for the pipelines that it opens (truce__aliases_use). Each pipeline's
 * cursor keeps them while it is open, whichever thread reads it. They do not change once a cursor
 * has them.
 */
#include "truce/store.h"

struct alias {
    struct alias *next;
    char *name, *on;
    bson_t *stages;
};

struct aliases;

struct aliases *truce__aliases_new(void);
struct aliases *truce__aliases_hold(struct aliases *aliases);
/* Releases a reference. NULL is allowed. */
void truce__aliases_release(struct aliases *aliases);
/* Adds an alias. All arguments are copied. */
void truce__aliases_add(struct aliases *aliases, const char *name, const char *on,
                        const bson_t *stages);
/* Finds an alias. Returns NULL if the name is that of a collection. `aliases` may be NULL. */
const struct alias *truce__aliases_find(const struct aliases *aliases, const char *name);

/* Sets the aliases of the pipelines that this thread opens after this call. NULL means that the
 * pipelines have none. The caller keeps its reference. Returns the previous aliases. */
struct aliases *truce__aliases_use(struct aliases *aliases);
struct aliases *truce__aliases_used(void);

/* Returns the path in the collection to which an equality at `path` of the alias's result
 * corresponds, or NULL if no path does. A path corresponds if its filter moves before all stages
 * (query/aggregate/aggregate_match.c), and no stage reads another collection. The caller frees it
 * with bson_free. */
char *truce__alias_path(const struct alias *alias, const char *path);

/* Builds the stages of the alias, followed by a $match of `filter` unless it is NULL. Always
 * initializes the array. */
void truce__alias_pipeline(const struct alias *alias, const bson_t *filter, bson_t *stages);

#endif

#ifndef TRUCE_COMMIT_WRITTEN_H
#define TRUCE_COMMIT_WRITTEN_H

/*
 * Changes of a commit as people and clients write them down: an array of
 *
 *     {insert: COLLECTION, with: DOCUMENT}              {remove: COLLECTION, id: ID, if: FILTER}
 *     {update: COLLECTION, id: ID, with: OPERATORS, if: FILTER}
 *     {replace: COLLECTION, id: ID, with: DOCUMENT, if: FILTER}
 *     {require: COLLECTION, id: ID, if: FILTER}         {missing: COLLECTION, id: ID}
 *     {hold: COLLECTION, id: ID, if: FILTER}            {change: COLLECTION, id: ID, with: {KEY: [OLD, NEW]}}
 *
 * where "if" may be left out.
 */
#include "base/status.h"
#include "truce/changes.h"

/* Where the collections of the changes stand. `reads`: the change writes nothing to it. The place is to live until the
 * changes were added. NULL instead of it: the names are places. */
struct written_places {
    truce_status (*place)(void *arg, const char *collection, bool reads, const char **place,
                          bson_error_t *error);
    void *arg;
};

/* INVALID: what is wrong with which change, by its number from 1. An array without a change is sound. */
truce_status truce__written_check(const bson_t *changes, bson_error_t *error);

/* Adds changes that were checked. */
truce_status truce__written_add(const bson_t *changes, const struct written_places *places,
                                truce_commit *commit, bson_error_t *error);

#endif

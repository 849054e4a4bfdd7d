#ifndef TRUCE_TESTS_SUPPORT_ITEM_RIG_H
#define TRUCE_TESTS_SUPPORT_ITEM_RIG_H

/* Array items in the tests: every form on every store, calls written as text. */
#include "tests/support/test.h"
#include "truce/item.h"
#include "truce/sys/store.h"

/* A way in which items are changed. */
struct item_way {
    const char *name;
    /* "memory" or "file". */
    const char *scheme;
    /* The capabilities that are removed from the store. */
    uint32_t lacks;
    bool in_commit;
    /* The layout of the items in the stored document at the beginning. */
    truce_item_layout layout;
};

/* All ways of this program's stores. At a server, those that its exceptions (item_way_NAME) do
 * not exclude. */
extern struct item_way item_ways[];
extern int item_ways_count;
/* Returns the way of this name, also an excluded one. Aborts if no way has it. */
const struct item_way *item_way_named(const char *name);

/* Returns whether the call can run here. Returns false if it combines conditions on an item by $or
 * or $nor, and the server under test has an exception for that. */
bool item_call_here(const char *text);

truce_store *item_rig_open(const struct item_way *way);

/* Makes one call: "update {query} {operators}", "add {item}", "replace {item}", "upsert {item}",
 * "remove {query}", of the document {_id: 1}. ' replaces ". */
truce_status item_rig_call(truce_item *item, const struct item_way *way, truce_store *store,
                           const char *text, truce_item_result *result, bson_error_t *error);

/* Returns the document {_id: 1} without `_rev`, its items as an array whatever their layout; the
 * caller destroys it. */
bson_t *item_rig_read(truce_store *store, const char *collection, const char *field);

#endif

#ifndef TRUCE_PATTERNS_ITEM_ITEM_H
#define TRUCE_PATTERNS_ITEM_ITEM_H

/* Declarations that the files of array items share. truce/item.h has the contract; item.c has the
 * essay. */
#include "base/status.h"
#include "bson/value.h"
#include "truce/item.h"
#include "truce/sys/store.h"

/* The maximum size of an identity in bytes. */
#define ITEM_IDENTITY_MAX 1024

/* A handle for the items in one array or map of a collection. */
struct truce_item {
    truce_store *store;
    char *collection, *field, *identity;
    /* The field without `$[]`, for filters. Owned, as the other strings. */
    char *plain;
    /* The field that every change increments, or NULL. */
    char *version;
    /* The field that is written as a whole: the field itself or, if nested, its path before the
     * first `$[]`. */
    char *owner;
    /* The field lies below arrays: its path contains `$[]`. */
    bool nested;
    truce_item_layout layout;
    /* The form of writes. AUTO was resolved when the handle was opened. */
    truce_item_form form;
    uint32_t deadline_ms;
    bool relaxed;
    bson_error_t refusal;
    /* The options are invalid; every call fails with `refusal`. */
    bool refused;
};

enum item_verb { ITEM_UPDATE = 1, ITEM_ADD, ITEM_REPLACE, ITEM_UPSERT, ITEM_REMOVE };

/* A checked public call. */
struct item_call {
    const truce_item *item;
    enum item_verb verb;
    /* The filter that selects the document; borrowed. */
    const bson_t *filter;
    /* The operators or the new item, or NULL for a removal; borrowed. */
    const bson_t *change;
    /* The whole condition on the items. Owned. */
    bson_t query;
    /* The identity of the item, or a missing value if the query may match several items. */
    struct value identity;
    /* The query has no other condition than the identity. */
    bool exact;
    /* The key of the identity in a map, or NULL if the query has no identity. Owned. */
    char *key;
};

/* The value at the field of a document. */
enum item_state { ITEM_NONE, ITEM_LIST, ITEM_TABLE, ITEM_OTHER };

/* ---- item.c: pure functions on documents ----------------------------------------------------- */

/* The effect of a call on a document. */
struct item_outcome {
    truce_item_result result;
    bool changed;
    /* If `changed`, the new value of the field `owner` of the item; borrows from `memory`. */
    struct value after;
    bson_t memory;
};

/* Returns the layout of the items that a document has at the owner of the field. */
enum item_state truce__item_state(const truce_item *item, const bson_t *document);
/* Finds the value at a path that does not lead through arrays. */
struct value truce__item_at(const bson_t *document, const char *path);

/* Returns the key of an identity in a map, or NULL if the identity is not valid. Free it with
 * bson_free. */
char *truce__item_key_of(struct value identity);

/* These functions build {v: the items in the other layout}. An item of a map without an identity
 * gets that of its key. truce__item_to_map returns TRUCE_INVALID if an item has no identity, or if
 * two items have the same one. */
truce_status truce__item_to_map(const truce_item *item, struct value items, bson_t *made,
                                bson_error_t *error);
void truce__item_to_array(const truce_item *item, struct value map, bson_t *made);

/* ---- item_write_form.c: the write ------------------------------------------------------------ */

/* The update that makes a call as one write. */
struct item_write {
    bson_t filter, update, array_filters;
    bool has_filters;
};

/* Checks the query and the operators, independent of their later form. */
truce_status truce__item_check(const struct item_call *call, bson_error_t *error);

/* Appends {$update: {field: {$query, operators}}}. If `operators` is NULL, {$setOnInsert} takes
 * their place, so that the update only counts the items. */
void truce__item_operator(const struct item_call *call, const bson_t *operators, bson_t *update);
/* Appends {$set: {"field.$[i].date": ...}} and its array filter. Returns false if an operator has
 * no such form. */
bool truce__item_filters(const struct item_call *call, bson_t *update, bson_t *array_filters);

/* Builds a single write that needs no read. Returns false if this call has none for documents of
 * this layout. The caller releases `write` in any case. An upsert is tried as REPLACE, then as
 * ADD. */
bool truce__item_direct(const struct item_call *call, enum item_verb verb, truce_item_layout layout,
                        const bson_oid_t *rev, struct item_write *write);
/* Builds the write that replaces the items of `document` by the outcome, if its items are still as
 * they were read. */
void truce__item_compared(const struct item_call *call, const bson_t *document,
                          const struct item_outcome *outcome, const bson_oid_t *rev,
                          struct item_write *write);
void truce__item_write_release(struct item_write *write);
/* Adds {$inc: {version: 1}}, if there is a version field, to an update without another $inc. */
void truce__item_raise(const truce_item *item, bson_t *update);

#endif

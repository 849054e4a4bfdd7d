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

struct truce_item {
    truce_store *store;
    char *collection, *field, *identity;
    /* The field without $[], for filters. */
    char *plain;
    /* The field that every change increments, or NULL if none exists. */
    char *version;
    /* The field that is written as a whole: the field itself or, if nested, its first name. */
    char *owner;
    /* The field leads through arrays. */
    bool nested;
    truce_item_layout layout;
    /* Never AUTO. */
    truce_item_form form;
    uint32_t deadline_ms;
    bool relaxed;
    bson_error_t refusal;
    /* The options are invalid; `refusal` says why. */
    bool refused;
};

enum item_verb { ITEM_UPDATE = 1, ITEM_ADD, ITEM_REPLACE, ITEM_UPSERT, ITEM_REMOVE };

/* A checked public call. */
struct item_call {
    const truce_item *item;
    enum item_verb verb;
    /* Selects the document; borrowed. */
    const bson_t *filter;
    /* The operators, or the item; borrowed. NULL for a removal. */
    const bson_t *change;
    /* The whole condition on items. */
    bson_t query;
    /* The identity of the single item that is meant; missing: the query may match several. */
    struct value identity;
    /* The query is exactly this identity. */
    bool exact;
    /* The key of the identity in a map; NULL without an identity. */
    char *key;
};

/* The value at the field of a document. */
enum item_state { ITEM_NONE, ITEM_LIST, ITEM_TABLE, ITEM_OTHER };

/* ---- item.c: pure functions on documents ----------------------------------------------------- */

/* The effect of a call on a document. */
struct item_outcome {
    truce_item_result result;
    bool changed;
    /* The new value at `owner` if `changed`; points into `memory`. */
    struct value after;
    bson_t memory;
};

enum item_state truce__item_state(const truce_item *item, const bson_t *document);
struct value truce__item_at(const bson_t *document,
                            const char *path); /* Without arrays on the path. */

char *truce__item_key_of(struct value identity); /* NULL if the identity is not valid */

/* Build {v: the items in the other layout}. An item of a map without its identity gets that of its
 * key. Return TRUCE_INVALID if an item has no identity, or two have the same. */
truce_status truce__item_to_map(const truce_item *item, struct value items, bson_t *made,
                                bson_error_t *error);
void truce__item_to_array(const truce_item *item, struct value map, bson_t *made);

/* ---- item_write_form.c: the write ------------------------------------------------------------ */

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

/* Builds a single write that needs no read, if this call has one for documents of this layout. An
 * upsert is tried as REPLACE, then as ADD. */
bool truce__item_direct(const struct item_call *call, enum item_verb verb, truce_item_layout layout,
                        const bson_oid_t *rev, struct item_write *write);
/* Builds the write that brings `document` to the outcome if its items are still as they were read.
 */
void truce__item_compared(const struct item_call *call, const bson_t *document,
                          const struct item_outcome *outcome, const bson_oid_t *rev,
                          struct item_write *write);
void truce__item_write_release(struct item_write *write);
/* Adds {$inc: {version: 1}}, if there is a version field, to an update without another $inc. */
void truce__item_raise(const truce_item *item, bson_t *update);

#endif

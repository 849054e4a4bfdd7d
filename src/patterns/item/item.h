#ifndef TRUCE_PATTERNS_ITEM_ITEM_H
#define TRUCE_PATTERNS_ITEM_ITEM_H

/* What the files of array items share. The contract is in truce/item.h; the essay in item.c. */
#include "base/status.h"
#include "bson/value.h"
#include "truce/item.h"
#include "truce/sys/store.h"

#define ITEM_IDENTITY_MAX 1024 /* bytes of a value that identifies an item */

struct truce_item {
    truce_store *store;
    char *collection, *field, *identity;
    char *plain;   /* the field without $[]: for filters */
    char *version; /* raised by every change; NULL: none */
    char *owner;   /* what is written as a whole: the field, or (nested) its first name */
    bool nested;   /* the field leads through arrays */
    truce_item_layout layout;
    truce_item_form form; /* never AUTO */
    uint32_t deadline_ms;
    bool relaxed;
    bson_error_t refusal;
    bool refused; /* the options were wrong, `refusal` says why */
};

enum item_verb { ITEM_UPDATE = 1, ITEM_ADD, ITEM_REPLACE, ITEM_UPSERT, ITEM_REMOVE };

/* One public call, checked. */
struct item_call {
    const truce_item *item;
    enum item_verb verb;
    const bson_t *filter;  /* names the document; borrowed */
    const bson_t *change;  /* operators, or the item; borrowed; NULL: remove */
    bson_t query;          /* the whole condition on items */
    struct value identity; /* the one item that is meant; MISSING: the query may mean several */
    bool exact;            /* the query is this identity and nothing else */
    char *key;             /* of the identity in a map; NULL without one */
};

/* What stands at the field of a document. */
enum item_state { ITEM_NONE, ITEM_LIST, ITEM_TABLE, ITEM_OTHER };

/* ---- item_list.c: pure functions on documents ------------------------------------------------ */

/* What a call makes of a document. */
struct item_outcome {
    truce_item_result result;
    bool changed;
    struct value after; /* if changed: what stands at `owner` afterwards; in `memory` */
    bson_t memory;
};

enum item_state truce__item_state(const truce_item *item, const bson_t *document);
struct value truce__item_at(const bson_t *document,
                            const char *path); /* without arrays on the way */

char *truce__item_key_of(struct value identity); /* NULL: it does not identify */

/* {v: the items in the other layout}. An item of a map that does not carry its identity gets that of
 * its key. INVALID: an item has no identity, or two have the same. */
truce_status truce__item_to_map(const truce_item *item, struct value items, bson_t *made,
                                bson_error_t *error);
void truce__item_to_array(const truce_item *item, struct value map, bson_t *made);

/* ---- item_form.c: the write ------------------------------------------------------------------ */

struct item_write {
    bson_t filter, update, array_filters;
    bool has_filters;
};

/* The query and the operators themselves, whatever form they take afterwards. */
truce_status truce__item_check(const struct item_call *call, bson_error_t *error);

/* {$update: {field: {$query, operators}}}, or {$setOnInsert} in their place: counts the items. */
void truce__item_operator(const struct item_call *call, const bson_t *operators, bson_t *update);
/* {$set: {"field.$[i].date": ...}} and its array filter; false: some operator cannot be said so */
bool truce__item_filters(const struct item_call *call, bson_t *update, bson_t *array_filters);

/* One write that needs no look before, where there is one for this call in a document of this
 * layout. An upsert is asked for as what it may be: REPLACE, then ADD. */
bool truce__item_direct(const struct item_call *call, enum item_verb verb, truce_item_layout layout,
                        const bson_oid_t *rev, struct item_write *write);
/* The write that brings `document`, if its items are as they were read, to the outcome. */
void truce__item_compared(const struct item_call *call, const bson_t *document,
                          const struct item_outcome *outcome, const bson_oid_t *rev,
                          struct item_write *write);
void truce__item_write_release(struct item_write *write);
/* {$inc: {version: 1}}, where there is one, for an update that has no other $inc */
void truce__item_raise(const truce_item *item, bson_t *update);

#endif

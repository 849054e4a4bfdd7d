#ifndef TRUCE_COMMIT_ENTRY_H
#define TRUCE_COMMIT_ENTRY_H

/*
 * An entry: all that one commit knows of one document, and wants of it.
 *
 *     base    the document as the store has it; known after a read, else only when it is prepared
 *     after   base with the commit's own changes: what the commit itself reads
 *
 * A document is either KNOWN (it was read, or the commit began with its insert: changes are applied
 * at once, errors come at once, and the commit insists that it is still as it was) or BLIND
 * (changes are kept, and applied to whatever stands there when the commit takes it).
 */
#include "bson/filter.h"
#include "bson/value.h"
#include "query/update/update.h"
#include "truce/commit.h"

enum change_kind { CHANGE_INSERT = 1, CHANGE_UPDATE, CHANGE_REPLACE, CHANGE_REMOVE, CHANGE_DIFF };

struct change {
    enum change_kind kind;
    bson_t *document; /* the document, the operators, the diff, or NULL (remove) */
};

/* Which version of a document: compared for equality only. */
struct token {
    bool found;   /* there is a document */
    bool has_rev; /* and it has a _rev, which is */
    bson_oid_t rev;
};

/* What all of an entry's changes come to. */
enum net { NET_NOTHING, NET_INSERT, NET_UPDATE, NET_REMOVE };

struct entry {
    char *collection;
    bson_value_t id;
    bool known;         /* base and token are as read, and guarded */
    bool read;          /* the caller saw the base (a known insert did not look) */
    bool hold;          /* locked until the decision even if nothing changes */
    bool must_exist;    /* a blind change or hold that insists on a document */
    bool keyed;         /* its collection has declared keys: `after` carries `_keys` (unique.c) */
    bool stale;         /* an old value of a diff did not stand in the document */
    struct token token; /* of base */
    bson_t base;        /* empty if missing; valid when known or prepared */
    bson_t after;       /* empty if missing; valid when base is */
    bool after_found;
    bson_t *guards; /* array of filters that base must match; NULL: none */
    bson_t *key;    /* an insert of what a look by this unique key did not find; NULL: none */
    bson_t *shows;  /* paths of fields that its stub has, too: {path: 1}; NULL: none */
    struct change *changes;
    uint32_t changes_count, changes_room;
    uint32_t shown; /* how many of them the commit's queries see (commit.c) */

    /* while the journal applies it */
    bool sent;     /* the prepare was sent: it may have taken the document */
    bool prepared; /* base is held by our intent */
    bool stub;     /* what we hold is a stub that we inserted */
    bool reserved; /* the prepare reserves new keys */
    int32_t keys;  /* then: how many there were before; else -1 */
};

struct entry *truce__entry_new(const char *collection, const bson_value_t *id);
void truce__entry_free(struct entry *entry);

/* order of (collection, id): the order in which documents are taken, the same for everybody */
int truce__entry_compare(const struct entry *a, const struct entry *b);
/* of (collection, id) */
uint64_t truce__entry_hash(const struct entry *entry);

/* `base` (NULL: missing) becomes the known base; the guards are tested, the kept changes applied.
 */
truce_status truce__entry_know(struct entry *entry, const bson_t *base, bool read,
                               bson_error_t *error);

/* Whether a document at hand matches a filter. */
truce_status truce__guard_matches(const bson_t *guard, const bson_t *document, bool *matches,
                                  bson_error_t *error);

/* Adds a guard. Tested at once if the base is known: NOT_FOUND if it does not hold. */
truce_status truce__entry_guard(struct entry *entry, const bson_t *guard, bson_error_t *error);

/* Adds a change (`document` is copied); applied at once if the base is known. `compiled`: of an update whose caller
 * has it so, else NULL. */
truce_status truce__entry_change(struct entry *entry, enum change_kind kind, const bson_t *document,
                                 const struct update *compiled, bson_error_t *error);

/* Base, `after` and token as the store's document says, for a blind entry that was just taken:
 * tests the guards, applies the changes, without making it known. */
truce_status truce__entry_take(struct entry *entry, const bson_t *base, bson_error_t *error);

/* What the changes come to; base must be there. */
enum net truce__entry_net(const struct entry *entry);

/* The entry writes something (for a blind one: it has changes). */
bool truce__entry_writes(const struct entry *entry);

/* One of its changes is a diff, which only this process can compare. */
bool truce__entry_has_diff(const struct entry *entry);

/* CONFLICT about an entry, with a sentence: `why` goes behind the document's name. */
truce_status truce__entry_conflict(const struct entry *entry, const char *why, bson_error_t *error);

/* Compares a document that was just read (NULL: missing) with a known entry: OK, or CONFLICT. */
truce_status truce__entry_same(const struct entry *entry, const bson_t *document,
                               bson_error_t *error);

/* Why a blind entry's write found nothing in `document` (NULL: missing): NOT_FOUND (missing, or a
 * guard does not hold), or OK: now it would. */
truce_status truce__entry_blame(struct entry *entry, const bson_t *document, bson_error_t *error);

/* DUPLICATE: the entry inserts a document that exists. */
truce_status truce__entry_exists(const struct entry *entry, bson_error_t *error);

/* The same from what stands there now. */
void truce__entry_update_over(const bson_t *now, const struct entry *entry, const bson_oid_t *rev,
                              bson_t *update, bool *replacement);

/* The write that brings a known or taken entry's document from base to after, with `_rev: rev`:
 * operators (*replacement false) or the whole document. */
void truce__entry_update(const struct entry *entry, const bson_oid_t *rev, bson_t *update,
                         bool *replacement);
/* `after` of the entry with `_rev: rev` at its end */
void truce__entry_document(const struct entry *entry, const bson_oid_t *rev, bson_t *document);

/* The token of a document as it stands in the store (NULL: missing). INVALID: its _rev is not ours.
 */
truce_status truce__token_of(const bson_t *document, struct token *token, bson_error_t *error);

/* A filter is a document, too, and has its limits. */
#define VALUE_GUARD_BYTES_MAX (8u * 1024 * 1024)

/* {_id, _rev as in the token, _intent absent, $and: guards}: the entry's document, as it must be.
 * With `any_rev` the revision is not compared. */
void truce__filter_entry(const struct entry *entry, bool any_rev, bson_t *filter);
/* The filter of a write of a base that this process looked at, with everything that was read in it or in
 * what is returned: the write's `exact` (E1). */
const bson_t *truce__filter_base(const truce_store *store, const struct entry *entry,
                                 bson_t *filter);
/* The same for a document as a whole, with whatever it has of truce's fields, as far as it fits into a
 * filter. */
const bson_t *truce__filter_whole(const truce_store *store, const bson_value_t *id,
                                  const bson_t *document, bson_t *filter);
/* The same, held by this commit. */
const bson_t *truce__filter_held(const truce_store *store, const bson_value_t *id,
                                 const bson_t *document, const bson_oid_t *commit, bson_t *filter);
/* False: its base is too large for a filter, and the store compares no bytes. */
bool truce__entry_comparable(const truce_store *store, const struct entry *entry);

/* "students {"_id": 1}" for messages; returns `text` */
const char *truce__entry_show(const struct entry *entry, char *text, size_t size);

#endif

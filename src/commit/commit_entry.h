#ifndef TRUCE_COMMIT_COMMIT_ENTRY_H
#define TRUCE_COMMIT_COMMIT_ENTRY_H

/*
 * An entry holds everything that one commit knows about one document, and its changes to it.
 *
 *     base    the stored document; known after a read, otherwise only once the document is prepared
 *     after   base with the commit's own changes, as the commit itself reads it
 *
 * A document is KNOWN or BLIND:
 *
 *   - KNOWN: it was read, or the commit began with its insert. Changes are applied and fail at
 *     once. The commit requires that the document is still as it was.
 *   - BLIND: the changes are collected. They are applied to the document that is stored when the
 *     commit takes it.
 */
#include "bson/id_filter.h"
#include "bson/value.h"
#include "query/update/update.h"
#include "truce/commit.h"

enum change_kind { CHANGE_INSERT = 1, CHANGE_UPDATE, CHANGE_REPLACE, CHANGE_REMOVE, CHANGE_DIFF };

/* A collected change of one document. */
struct change {
    enum change_kind kind;
    /* The new document, the operators, or the diff; NULL for a removal. Owned. */
    bson_t *document;
};

/* The version of a document. Tokens are only compared for equality. */
struct token {
    /* The document exists. */
    bool found;
    /* The document has a `_rev`, which is in `rev`. */
    bool has_rev;
    bson_oid_t rev;
};

/* The net effect of all changes of an entry. */
enum net { NET_NOTHING, NET_INSERT, NET_UPDATE, NET_REMOVE };

/* A document of a commit, and all that the commit does with it. */
struct entry {
    char *collection;
    bson_value_t id;
    /* The base and the token are as read. The commit guards them. */
    bool known;
    /* The caller saw the base. If a commit begins with the insert of a document, the base is known
     * to be missing without a read. */
    bool read;
    /* The document is locked until the decision even if the commit does not change it. */
    bool hold;
    /* A blind change or hold fails if the document is missing. */
    bool must_exist;
    /* The collection has declared keys, so `after` has `_keys` (unique_keys.c). */
    bool keyed;
    /* A diff did not apply: the document was missing, or an old value of the diff differed from the
     * value in the document. */
    bool stale;
    /* The token of `base`. */
    struct token token;
    /* The document before the commit's changes; empty if it is missing. Valid if `known` or
     * `prepared`. */
    bson_t base;
    /* The document after the commit's changes; empty if `after_found` is false. Valid if `base`
     * is. */
    bson_t after;
    bool after_found;
    /* An array of filters that `base` must match, or NULL. Owned. */
    bson_t *guards;
    /* The unique key under which no document was found before this insert, or NULL. Owned. */
    bson_t *key;
    /* The paths of further fields that the stub must have, {path: 1}, or NULL. Owned. */
    bson_t *shows;
    /* The collected changes, in the order in which they were added. Owned. */
    struct change *changes;
    uint32_t changes_count, changes_room;
    /* The number of changes that the queries of the commit already see (commit.c). */
    uint32_t shown;

    /* The following fields are the state of the current attempt of the journal. `sent`: the prepare
     * was sent, so it may have acquired the document. */
    bool sent;
    /* The stored document has this commit's intent, and `base` is the document that the prepare
     * returned. */
    bool prepared;
    /* The document is a stub that this commit inserted. */
    bool stub;
    /* The prepare adds elements to `_keys`. */
    bool reserved;
    /* The number of elements of `_keys` before the prepare added some, or -1 if it adds none. */
    int32_t keys;
};

/* Makes a blind entry without changes. Copies the name of the collection and the id. */
struct entry *truce__entry_new(const char *collection, const bson_value_t *id);
void truce__entry_free(struct entry *entry);

/* Orders entries by (collection, id). Every commit takes its documents in this order. */
int truce__entry_compare(const struct entry *a, const struct entry *b);
/* Hashes (collection, id). */
uint64_t truce__entry_hash(const struct entry *entry);

/* Makes `base` (NULL if it is missing) the known base, tests the guards, and applies the collected
 * changes. */
truce_status truce__entry_know(struct entry *entry, const bson_t *base, bool read,
                               bson_error_t *error);

/* Sets *matches: whether the document matches a filter. */
truce_status truce__guard_matches(const bson_t *guard, const bson_t *document, bool *matches,
                                  bson_error_t *error);

/* Adds a guard. If the base is known, the guard is tested at once: REFUSED if it does not match,
 * NOT_FOUND if the document does not exist. */
truce_status truce__entry_guard(struct entry *entry, const bson_t *guard, bson_error_t *error);

/* Adds a change (`document` is copied). If the base is known, the change is applied at once.
 * `compiled` is the compiled update if the caller has it, and NULL otherwise. */
truce_status truce__entry_change(struct entry *entry, enum change_kind kind, const bson_t *document,
                                 const struct update *compiled, bson_error_t *error);

/* Sets base, `after`, and token from the stored document of a blind entry that was just taken.
 * Tests the guards and applies the changes. The entry stays blind. */
truce_status truce__entry_take(struct entry *entry, const bson_t *base, bson_error_t *error);

/* Returns the net effect of the changes. Base must be valid. */
enum net truce__entry_net(const struct entry *entry);

/* Returns whether the entry writes. A blind entry writes if it has changes. */
bool truce__entry_writes(const struct entry *entry);

/* Returns whether a change is a diff, which only this process can compare. */
bool truce__entry_has_diff(const struct entry *entry);

/* Fails with CONFLICT. The message is the document's name followed by `why`. */
truce_status truce__entry_conflict(const struct entry *entry, const char *why, bson_error_t *error);

/* Compares a document that was just read (NULL if it is missing) with a known entry. Returns OK,
 * CONFLICT, or INVALID if its _rev is not an ObjectId of truce. */
truce_status truce__entry_same(const struct entry *entry, const bson_t *document,
                               bson_error_t *error);

/* Explains why the write of a blind entry found nothing in `document` (NULL if it is missing), and
 * makes `document` its base, as truce__entry_take does. Returns NOT_FOUND if the document is
 * missing. Returns REFUSED if a guard does not match. Returns OK if the write would succeed now. */
truce_status truce__entry_blame(struct entry *entry, const bson_t *document, bson_error_t *error);

/* Fails with DUPLICATE: the entry inserts a document that exists. */
truce_status truce__entry_exists(const struct entry *entry, bson_error_t *error);

/* Does what truce__entry_update does, from the stored document `now` instead of the base. */
void truce__entry_update_over(const bson_t *now, const struct entry *entry, const bson_oid_t *rev,
                              bson_t *update, bool *replacement);

/* Makes the write that changes the document of a known or taken entry from base to `after`, with
 * `_rev: rev`: operators (*replacement false), or the whole document. */
void truce__entry_update(const struct entry *entry, const bson_oid_t *rev, bson_t *update,
                         bool *replacement);
/* Makes `after` of the entry, with `_rev: rev` at the end. */
void truce__entry_document(const struct entry *entry, const bson_oid_t *rev, bson_t *document);

/* Reads the token of a stored document (NULL if it is missing). Returns INVALID if its _rev is not
 * an ObjectId of truce. */
truce_status truce__token_of(const bson_t *document, struct token *token, bson_error_t *error);

/* A larger base is not compared in a filter, because a filter is a document with a maximum size
 * too. */
#define VALUE_GUARD_BYTES_MAX (8u * 1024 * 1024)

/* Makes {_id, _rev as in the token, _intent absent, $and: guards}, which matches the document as it
 * must be. With `any_rev`, the revision is not compared. */
void truce__filter_entry(const struct entry *entry, bool any_rev, bson_t *filter);
/* Makes the filter of a write that compares the base, with every field that was read. Returns the
 * base if the store compares it as the write's `exact` (CE1), else NULL. */
const bson_t *truce__filter_base(const truce_store *store, const struct entry *entry,
                                 bson_t *filter);
/* Does what truce__filter_base does, for a whole document including truce's own fields, as far as
 * it fits into a filter. */
const bson_t *truce__filter_whole(const truce_store *store, const bson_value_t *id,
                                  const bson_t *document, bson_t *filter);
/* Does what truce__filter_whole does, for a document with this commit's intent. */
const bson_t *truce__filter_held(const truce_store *store, const bson_value_t *id,
                                 const bson_t *document, const bson_oid_t *commit, bson_t *filter);
/* Returns false if the base is too large for a filter and the store cannot compare whole
 * documents. */
bool truce__entry_comparable(const truce_store *store, const struct entry *entry);

/* Writes the document's name into `text` for messages: students {"_id": 1}. Returns `text`. */
const char *truce__entry_show(const struct entry *entry, char *text, size_t size);
/* Fails with NOT_FOUND: the document does not exist. */
truce_status truce__entry_missing(const struct entry *entry, bson_error_t *error);

#endif

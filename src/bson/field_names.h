#ifndef TRUCE_BSON_FIELD_NAMES_H
#define TRUCE_BSON_FIELD_NAMES_H

/*
 * Names of fields that every server stores. MongoDB before 5.0 refuses stored documents with a field whose name
 * begins with a dollar sign, and a path cannot reach a name with a dot. Patterns embed documents of their users in
 * their own: operators, filters, payloads, results. They write these names by the full-width characters that
 * MongoDB's manual recommends, at any depth:
 *
 *     {$inc: {"a.b": 1}}   is stored as   {"＄inc": {"a．b": 1}}
 *
 *     $ at the beginning -> ＄      .  -> ．      ＄ at the beginning, ． and ＼ -> ＼ in front
 *
 * Names without these characters stay as they are. restore(store(x)) is x, and what has only plain names is its own
 * form, so a whole document of a pattern can be restored at once.
 */
#include <bson/bson.h>
#include <stdbool.h>

/* `document` has no name that is written otherwise. */
bool truce__names_plain(const bson_t *document);
/* Appends the document as it is stored. */
void truce__names_append(bson_t *to, const char *key, const bson_t *document);
/* The same of a whole document; `stored` is always initialised. */
void truce__names_store(const bson_t *document, bson_t *stored);
/* The document with the names of before; `restored` is always initialised. */
void truce__names_restore(const bson_t *stored, bson_t *restored);
/* The same in place. */
void truce__names_restore_own(bson_t *document);

#endif

#ifndef TRUCE_BSON_FIELD_NAME_ESCAPE_H
#define TRUCE_BSON_FIELD_NAME_ESCAPE_H

/*
 * Escapes field names so that every server can store them. MongoDB before 5.0 refuses to store a
 * field whose name begins with a dollar sign, and a path cannot reach a name with a dot. Patterns
 * store documents of their users inside their own: operators, filters, payloads, results. At any
 * depth, they replace these characters by the full-width ones that MongoDB's manual recommends:
 *
 *     {$inc: {"a.b": 1}}   is stored as   {"＄inc": {"a．b": 1}}
 *
 *     $ at the beginning -> ＄      .  -> ．      ＄ at the beginning, ． and ＼ -> ＼ in front
 *
 * Names without these characters do not change, and restore(store(x)) is x. A document of a pattern
 * can therefore be restored as a whole, although only parts of it were escaped.
 */
#include <bson/bson.h>
#include <stdbool.h>

/* Returns whether no name in the document needs an escape. */
bool truce__names_plain(const bson_t *document);
/* Appends the document with escaped names. */
void truce__names_append(bson_t *to, const char *key, const bson_t *document);
/* Copies the document with escaped names. `stored` is always initialized. */
void truce__names_store(const bson_t *document, bson_t *stored);
/* Copies the document with the original names. `restored` is always initialized. */
void truce__names_restore(const bson_t *stored, bson_t *restored);
/* Restores the original names in place. */
void truce__names_restore_own(bson_t *document);

#endif

#ifndef TRUCE_BSON_FIELD_PATH_H
#define TRUCE_BSON_FIELD_PATH_H

/* Paths of fields as aggregation has them ("a.b", without the `$`): stricter than those of filters.
 */
#include "base/hash_table.h"
#include "bson/builder.h"
#include "bson/path.h"
#include "bson/value.h"

/* Empty (40352), ending in a dot (40353), an empty part (15998), a part that begins with `$`
 * (16410; but for $id, $ref and $db), a NUL (16411), too many parts (CODE_OVERFLOW). */
truce_status truce__field_path_check(const char *text, size_t length, bson_error_t *error);

/* One name alone, without a dot (16412). */
truce_status truce__field_name_check(const char *name, size_t length, bson_error_t *error);

/*
 * The fields of a document under construction, in order, found by name: what merging documents
 * needs. Setting a field that is there keeps its place. All memory is an arena's; keys and values
 * are borrowed. Linear while small, hashed above that, so that large documents stay linear in time.
 */

struct field_entry {
    const char *key;
    uint32_t key_length;
    struct value value;
};

struct field_table {
    struct arena *arena;
    size_t bytes_max; /* of the arena */
    struct field_entry *entries;
    uint32_t count, room;
    /* Finds the entries by the hashes of their keys, once the table is large. */
    struct hash_table names;
};

void truce__field_table_begin(struct field_table *table, struct arena *arena, size_t bytes_max);
/* NULL if there is none */
struct field_entry *truce__field_table_find(const struct field_table *table, const char *key,
                                            uint32_t key_length);
/* false when the arena has no room left */
bool truce__field_table_set(struct field_table *table, const char *key, uint32_t key_length,
                            struct value value);
/* all fields, in order; missing values are left out */
void truce__field_table_write(const struct field_table *table, struct builder *builder);

/*
 * Fields by name, in documents that are asked again and again. A document that is large and is asked
 * often gets a table of its names, so that n names of a document of n fields are found in n steps,
 * not in n * n.
 *
 * Documents are known by where they stand: while a finder is in use none of those it was asked
 * about may change or go. One thread at a time.
 */

#define FIELD_FINDER_BYTES 2048 /* what is smaller is looked through */

struct field_finder {
    struct field_finder_tables *tables; /* NULL until a large document was asked about */
};

/* `steps` grows by the work that it was, about one for 1 kB or for each name. */
struct value truce__field_finder_find_large(struct field_finder *finder, struct value document,
                                            const char *name, uint32_t length, uint32_t *steps);
void truce__field_finder_release_tables(struct field_finder *finder);

/* As truce__value_field. `finder` may be NULL. */
static inline struct value truce__field_finder_find(struct field_finder *finder,
                                                    struct value document, const char *name,
                                                    uint32_t length, uint32_t *steps)
{
    if (finder && document.size >= FIELD_FINDER_BYTES)
        return truce__field_finder_find_large(finder, document, name, length, steps);
    *steps += document.size / 1024;
    return truce__value_field(document, name, length);
}

static inline void truce__field_finder_release(struct field_finder *finder)
{
    if (finder->tables)
        truce__field_finder_release_tables(finder);
}

#endif

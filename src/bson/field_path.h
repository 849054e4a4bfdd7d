#ifndef TRUCE_BSON_FIELD_PATH_H
#define TRUCE_BSON_FIELD_PATH_H

/* Field paths of aggregation ("a.b", without the `$`), which are stricter than paths of filters;
 * and tables of fields by name. */
#include "base/hash_table.h"
#include "bson/builder.h"
#include "bson/dotted_path.h"
#include "bson/value.h"

/* Checks a field path. The errors have MongoDB's codes: empty path (40352), dot at the end
 * (40353), empty part (15998), part that begins with `$`, except $id, $ref, and $db (16410), NUL
 * (16411), and too many parts (CODE_OVERFLOW). */
truce_status truce__field_path_check(const char *text, size_t length, bson_error_t *error);

/* Checks a single name, which must not contain a dot (16412). */
truce_status truce__field_name_check(const char *name, size_t length, bson_error_t *error);

/*
 * The fields of a document under construction, in order and found by name. Merging documents needs
 * this. Setting an existing field keeps its position. All memory comes from an arena; keys and
 * values are borrowed. A small table is searched, a larger one is hashed.
 */

struct field_entry {
    const char *key;
    uint32_t key_length;
    struct value value;
};

struct field_table {
    struct arena *arena;
    /* The maximum size of the arena. */
    size_t bytes_max;
    struct field_entry *entries;
    uint32_t count, room;
    /* Finds the entries by the hashes of their keys, once the table is large. */
    struct hash_table names;
};

void truce__field_table_begin(struct field_table *table, struct arena *arena, size_t bytes_max);
/* Returns the field with the name, or NULL. */
struct field_entry *truce__field_table_find(const struct field_table *table, const char *key,
                                            uint32_t key_length);
/* Sets a field. Returns false if the arena is full. */
bool truce__field_table_set(struct field_table *table, const char *key, uint32_t key_length,
                            struct value value);
/* Appends all fields in order, without those whose value is missing. */
void truce__field_table_write(const struct field_table *table, struct builder *builder);

/*
 * Finds fields by name in documents that are searched many times. A large document gets a table of
 * its names after some searches, so that finding n names among n fields takes n steps, not n * n.
 *
 * A finder identifies documents by their addresses. While it is in use, no document that it has
 * searched may change or be freed. A finder is used by one thread at a time.
 */

/* Smaller documents never get a table. */
#define FIELD_FINDER_BYTES 2048

struct field_finder {
    /* The tables, or NULL before a large document is searched. */
    struct field_finder_tables *tables;
};

/* Finds a field in a large document. Adds the work to `steps`: about one step for each kB or
 * name. */
struct value truce__field_finder_find_large(struct field_finder *finder, struct value document,
                                            const char *name, uint32_t length, uint32_t *steps);
void truce__field_finder_release_tables(struct field_finder *finder);

/* Works as truce__value_field. `finder` may be NULL. */
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

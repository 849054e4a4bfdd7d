#ifndef TRUCE_BSON_FIELD_TABLE_H
#define TRUCE_BSON_FIELD_TABLE_H

/*
 * The fields of a document under construction, in order, found by name: what merging documents
 * needs. Setting a field that is there keeps its place. All memory is an arena's; keys and values
 * are borrowed. Linear while small, hashed above that, so that large documents stay linear in time.
 */
#include "bson/builder.h"

struct field_entry {
    const char *key;
    uint32_t key_length;
    uint32_t next; /* in the chain of its bucket, plus one; 0: the last */
    struct value value;
};

struct field_table {
    struct arena *arena;
    size_t bytes_max; /* of the arena */
    struct field_entry *entries;
    uint32_t count, room;
    uint32_t *buckets; /* the newest entry plus one; NULL while the table is small */
    uint32_t buckets_count;
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

#endif

#ifndef TRUCE_MERGE_PATCH_TREE_H
#define TRUCE_MERGE_PATCH_TREE_H

/* The tree that a JSON Patch is applied to: patch.c has the picture. */
#include "base/hash_table.h"
#include "merge/patch.h"

struct patch_node;

struct patch_child {
    const char *name; /* of a field; NULL in arrays */
    uint32_t length;
    struct patch_node *node; /* NULL: the field was removed */
};

struct patch_node {
    struct value raw; /* unless it was taken apart */
    bool apart;
    uint8_t type;
    struct patch_child *children;
    uint32_t count, room;
    /* The children of a wide document by the hashes of their names. */
    struct hash_table names;
};

struct patch_tree {
    struct arena *arena;
    struct patch_node *root;
    size_t bytes; /* that were put in */
    bson_error_t *error;
    uint32_t number; /* of the operation */
};

struct patch_node *truce__patch_node(struct patch_tree *tree, struct value raw);
/* Returns the number of the first child with that name that was not removed, or node->count. */
uint32_t truce__patch_find(const struct patch_node *node, const char *name, uint32_t length);
void truce__patch_insert(struct patch_tree *tree, struct patch_node *parent, uint32_t at,
                         struct patch_child child);
/* Fields keep their places, so that those behind are still found. */
void truce__patch_remove(struct patch_node *parent, uint32_t at);
void truce__patch_take_apart(struct patch_tree *tree, struct patch_node *node);
struct value truce__patch_value(struct patch_tree *tree, const struct patch_node *node);

#endif

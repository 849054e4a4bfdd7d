#ifndef TRUCE_MERGE_JSON_PATCH_TREE_H
#define TRUCE_MERGE_JSON_PATCH_TREE_H

/* The tree to which a JSON Patch is applied. json_patch.c has a picture. */
#include "base/hash_table.h"
#include "merge/json_patch.h"

struct patch_node;

/* A field of a document, or an element of an array. */
struct patch_child {
    /* The name of the field, or NULL in an array. */
    const char *name;
    uint32_t length;
    /* The node, or NULL if the field was removed. */
    struct patch_node *node;
};

/* A value that operations may change. */
struct patch_node {
    /* The bytes of the value. Valid until the node is expanded. */
    struct value raw;
    /* The value is a container and was expanded into `children`. */
    bool apart;
    uint8_t type;
    struct patch_child *children;
    uint32_t count, room;
    /* The index of a wide document: the children by the hashes of their names. */
    struct hash_table names;
};

/* A document to which a patch is applied. */
struct patch_tree {
    struct arena *arena;
    struct patch_node *root;
    /* The number of bytes that operations have added or copied so far. */
    size_t bytes;
    bson_error_t *error;
    /* The number of the current operation, from 0, for messages. */
    uint32_t number;
};

struct patch_node *truce__patch_node(struct patch_tree *tree, struct value raw);
/* Returns the number of the first child with that name that was not removed, or node->count. */
uint32_t truce__patch_find(const struct patch_node *node, const char *name, uint32_t length);
void truce__patch_insert(struct patch_tree *tree, struct patch_node *parent, uint32_t at,
                         struct patch_child child);
/* Removes a child. The other fields of a document keep their positions. */
void truce__patch_remove(struct patch_node *parent, uint32_t at);
/* Expands a container into a node for each child. Does nothing to other values. */
void truce__patch_take_apart(struct patch_tree *tree, struct patch_node *node);
/* Returns the value of a node with all changes below it, in the arena. */
struct value truce__patch_value(struct patch_tree *tree, const struct patch_node *node);

#endif

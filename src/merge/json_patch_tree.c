#include "merge/json_patch_tree.h"

/* A document with room for at least this many fields has an index of their names. */
#define WIDE 32

struct patch_node *truce__patch_node(struct patch_tree *tree, struct value raw)
{
    struct patch_node *node = truce__arena_take(tree->arena, sizeof *node);

    *node = (struct patch_node){.raw = raw, .type = raw.type};
    return node;
}

static bool patch_is_named(const struct patch_child *child, const char *name, uint32_t length)
{
    return child->length == length && !memcmp(child->name, name, length);
}

uint32_t truce__patch_find(const struct patch_node *node, const char *name, uint32_t length)
{
    if (!node->names.room) {
        for (uint32_t i = 0; i < node->count; i++) {
            if (node->children[i].node && patch_is_named(&node->children[i], name, length))
                return i;
        }
        return node->count;
    }
    for (struct hash_probe probe = truce__hash_probe(&node->names, truce__hash_bytes(name, length));
         truce__hash_next(&probe);) {
        const struct patch_child *child = &node->children[probe.number];

        if (child->node && patch_is_named(child, name, length))
            return probe.number;
    }
    return node->count;
}

/* Adds a child to the index. If two fields have one name, the first is found. A new field
 * replaces a removed one. */
static void index_child(struct patch_node *node, uint32_t at)
{
    const struct patch_child *child = &node->children[at];
    uint64_t hash = truce__hash_bytes(child->name, child->length);

    for (struct hash_probe probe = truce__hash_probe(&node->names, hash);
         truce__hash_next(&probe);) {
        const struct patch_child *known = &node->children[probe.number];

        if (!patch_is_named(known, child->name, child->length))
            continue;
        if (!known->node)
            truce__hash_replace(&node->names, &probe, at);
        return;
    }
    truce__hash_add(&node->names, hash, at);
}

/* Makes room for more children. Builds the index of names when a document becomes wide. */
static void tree_grow(struct patch_tree *tree, struct patch_node *node)
{
    uint32_t room = node->room ? 2 * node->room : 8;
    struct patch_child *children = truce__arena_take(tree->arena, room * sizeof *children);

    if (node->count)
        memcpy(children, node->children, node->count * sizeof *children);
    node->children = children;
    node->room = room;
    if (node->type != BSON_TYPE_DOCUMENT || room < WIDE)
        return;
    if (node->names.room)
        return;
    node->names.arena = tree->arena;
    truce__hash_reserve(&node->names, room);
    for (uint32_t i = 0; i < node->count; i++)
        index_child(node, i);
}

void truce__patch_insert(struct patch_tree *tree, struct patch_node *parent, uint32_t at,
                         struct patch_child child)
{
    if (parent->count == parent->room)
        tree_grow(tree, parent);
    memmove(parent->children + at + 1, parent->children + at,
            (parent->count - at) * sizeof *parent->children);
    parent->children[at] = child;
    parent->count++;
    if (parent->names.room)
        index_child(parent, at);
}

/* Removes a child. In a document, the other fields keep their positions, because the index refers
 * to them. */
void truce__patch_remove(struct patch_node *parent, uint32_t at)
{
    if (parent->type == BSON_TYPE_DOCUMENT) {
        parent->children[at].node = NULL;
        return;
    }
    parent->count--;
    memmove(parent->children + at, parent->children + at + 1,
            (parent->count - at) * sizeof *parent->children);
}

void truce__patch_take_apart(struct patch_tree *tree, struct patch_node *node)
{
    struct fields fields;

    if (node->apart || !truce__value_is_container(node->raw))
        return;
    node->apart = true;
    fields = truce__fields(node->raw);
    while (truce__fields_next(&fields)) {
        struct patch_child child = {fields.key, fields.key_length,
                                    truce__patch_node(tree, fields.value)};

        truce__patch_insert(tree, node, node->count, child);
    }
}

/* Appends a node and its children to a document. */
static void write_node(const struct patch_node *node, const char *name, uint32_t length, bson_t *to)
{
    char text[16];
    const char *key;
    bson_t inner;

    if (!node->apart) {
        truce__value_append(to, name, length, node->raw);
        return;
    }
    if (node->type == BSON_TYPE_DOCUMENT)
        bson_append_document_begin(to, name, (int)length, &inner);
    else
        bson_append_array_begin(to, name, (int)length, &inner);
    for (uint32_t i = 0; i < node->count; i++) {
        const struct patch_child *child = &node->children[i];

        if (!child->node)
            continue;
        bson_uint32_to_string(i, &key, text, sizeof text);
        if (node->type == BSON_TYPE_DOCUMENT)
            write_node(child->node, child->name, child->length, &inner);
        else
            write_node(child->node, key, (uint32_t)strlen(key), &inner);
    }
    if (node->type == BSON_TYPE_DOCUMENT)
        bson_append_document_end(to, &inner);
    else
        bson_append_array_end(to, &inner);
}

struct value truce__patch_value(struct patch_tree *tree, const struct patch_node *node)
{
    bson_t holder = BSON_INITIALIZER;
    struct value value = node->raw;

    if (node->apart) {
        write_node(node, "v", 1, &holder);
        value = truce__value_copy(tree->arena,
                                  truce__value_field(truce__value_document(&holder), "v", 1));
    }
    bson_destroy(&holder);
    return value;
}

#include "merge/patch_tree.h"

#define WIDE 32 /* fields from which on their names are hashed */

struct patch_node *truce__patch_node(struct patch_tree *tree, struct value raw)
{
    struct patch_node *node = truce__arena_take(tree->arena, sizeof *node);

    *node = (struct patch_node){.raw = raw, .type = raw.type};
    return node;
}

static uint32_t tree_hash_name(const char *name, uint32_t length)
{
    uint32_t sum = 2166136261u; /* FNV-1a */

    for (uint32_t i = 0; i < length; i++)
        sum = (sum ^ (uint8_t)name[i]) * 16777619u;
    return sum ^ sum >> 15;
}

bool truce__patch_is_named(const struct patch_child *child, const char *name, uint32_t length)
{
    return child->length == length && !memcmp(child->name, name, length);
}

/* The slot of that name, or the free one where it belongs. */
uint32_t *truce__patch_slot(const struct patch_node *node, const char *name, uint32_t length)
{
    uint32_t at = tree_hash_name(name, length) & node->mask;

    while (node->slots[at] &&
           !truce__patch_is_named(&node->children[node->slots[at] - 1], name, length))
        at = (at + 1) & node->mask;
    return &node->slots[at];
}

/* The first of a name is the one that is found. */
static void index_child(struct patch_node *node, uint32_t at)
{
    uint32_t *slot = truce__patch_slot(node, node->children[at].name, node->children[at].length);

    if (!*slot || !node->children[*slot - 1].node)
        *slot = at + 1;
}

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
    node->mask = 2 * room - 1;
    node->slots = truce__arena_take(tree->arena, 2 * room * sizeof *node->slots);
    memset(node->slots, 0, 2 * room * sizeof *node->slots);
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
    if (parent->slots)
        index_child(parent, at);
}

/* Fields keep their places, so that those behind are still found. */
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

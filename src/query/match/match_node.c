/* The nodes of a filter's tree: made, joined, freed. */
#include "query/expression/expression.h"
#include "query/match/match_tree.h"
#include "query/schema/schema.h"

struct match_node *truce__match_node_new(enum match_kind kind)
{
    struct match_node *node = bson_malloc0(sizeof *node);

    node->kind = kind;
    return node;
}

static void free_extra(struct match_node *node)
{
    switch (node->kind) {
    case MATCH_AND:
    case MATCH_OR:
    case MATCH_NOR:
        truce__match_table_free(node->extra);
        return;
    case MATCH_REGEX:
        truce__regex_free(node->extra);
        return;
    case MATCH_EXPR:
        truce__expression_free(node->extra);
        return;
    case MATCH_SCHEMA:
        truce__schema_free(node->extra);
        return;
    default:
        bson_free(node->extra);
        return;
    }
}

void truce__match_node_free(struct match_node *node)
{
    if (!node)
        return;
    for (uint32_t i = 0; i < node->children_count; i++)
        truce__match_node_free(node->children[i]);
    free_extra(node);
    truce__path_release(&node->path);
    bson_free(node->children);
    bson_free(node->operands);
    bson_free(node);
}

static void append_child(struct match_node *parent, struct match_node *child)
{
    uint32_t count = parent->children_count;

    /* room grows in powers of two */
    if (!(count & (count - 1)))
        parent->children =
            bson_realloc(parent->children, (count ? 2 * count : 1) * sizeof *parent->children);
    parent->children[parent->children_count++] = child;
}

void truce__match_node_add(struct match_node *parent, struct match_node *child)
{
    if (parent->kind != MATCH_AND || child->kind != MATCH_AND) {
        append_child(parent, child);
        return;
    }
    for (uint32_t i = 0; i < child->children_count; i++)
        append_child(parent, child->children[i]);
    child->children_count = 0;
    truce__match_node_free(child);
}

struct match_node *truce__match_node_flatten(struct match_node *node)
{
    struct match_node *only;

    if (node->kind != MATCH_AND && node->kind != MATCH_OR)
        return node;
    if (!node->children_count) {
        node->kind = node->kind == MATCH_AND ? MATCH_TRUE : MATCH_FALSE;
        return node;
    }
    if (node->children_count > 1)
        return node;
    only = node->children[0];
    node->children_count = 0;
    truce__match_node_free(node);
    return only;
}

struct match_node *truce__match_node_negate(struct match_node *node)
{
    struct match_node *negated = truce__match_node_new(MATCH_NOT);

    truce__match_node_add(negated, node);
    return negated;
}

/*
 * The shape of a tree that an edit would leave: every parent is there, nobody is his own ancestor.
 *
 * Looked at is what the edit wrote, over its base: whoever is put, and his ancestors; and the children of whoever is removed. The
 * base is the version that is current when it is published (T1), so what is found here holds.
 */
#include <string.h>

#include "base/arena.h"
#include "base/field.h"
#include "bson/value_set.h"
#include "patterns/tree/tree.h"

struct shape {
    truce_tree_edit *edit;
    truce_tree_snapshot base;
    struct arena arena;
    struct value_set own;  /* of what the edit wrote: the number of the node */
    struct value_set seen; /* whose way up was looked at: the number of the climb */
    struct node {
        struct value id, parent; /* parent missing: a root */
        bool removed;
    } * nodes;
    size_t count, room;
    struct value removed; /* whose children are looked for */
    bson_error_t *error;
    truce_status status;
};

static struct value parent_of(const struct shape *shape, const bson_t *item)
{
    const char *field = shape->edit->tree->parent;
    struct value parent =
        truce__value_field(truce__value_document(item), field, (uint32_t)strlen(field));

    return parent.type == BSON_TYPE_NULL ? truce__value_missing() : parent;
}

/* A tree_own_function. */
static truce_status shape_take_own(const bson_t *document, void *arg, bson_error_t *error)
{
    struct shape *shape = arg;
    struct value parent = parent_of(shape, document);

    (void)error;
    if (shape->count == shape->room) {
        shape->room = shape->room ? 2 * shape->room : 256;
        shape->nodes = bson_realloc(shape->nodes, shape->room * sizeof *shape->nodes);
    }
    shape->nodes[shape->count++] =
        (struct node){truce__value_copy(&shape->arena, truce__tree_item_id(document)),
                      parent.type ? truce__value_copy(&shape->arena, parent) : parent,
                      truce__tree_absent(document)};
    return TRUCE_OK;
}

static const struct node *shape_own(const struct shape *shape, struct value id)
{
    uint32_t number;

    return truce__value_set_number(&shape->own, id, &number) ? &shape->nodes[number - 1] : NULL;
}

/* The parent of an item as it will be; NOT_FOUND: there is no such item. */
static truce_status shape_look_up(struct shape *shape, struct value id, struct value *parent)
{
    const struct node *node = shape_own(shape, id);
    bson_t holder = BSON_INITIALIZER, item;
    bson_error_t nobody;
    bson_iter_t iter;
    truce_status status;

    *parent = node ? node->parent : truce__value_missing();
    if (node)
        return node->removed ? TRUCE_NOT_FOUND : TRUCE_OK;
    truce__value_append(&holder, "itemId", 6, id);
    bson_iter_init_find(&iter, &holder, "itemId");
    status = truce_tree_get(&shape->base, bson_iter_value(&iter), &item, &nobody);
    if (!status && parent_of(shape, &item).type)
        *parent = truce__value_copy(&shape->arena, parent_of(shape, &item));
    if (status && status != TRUCE_NOT_FOUND && shape->error)
        *shape->error = nobody;
    bson_destroy(&item);
    bson_destroy(&holder);
    return status;
}

static truce_status shape_refuse(const struct shape *shape, struct value child, struct value parent,
                                 const char *why)
{
    char one[150], other[150];

    return truce__fail(TRUCE_INVALID, shape->error, "item %s hangs under %s, %s",
                       truce__value_show(child, one, sizeof one),
                       truce__value_show(parent, other, sizeof other), why);
}

/* From a node that was put, up to a root, or to whoever was found to hang under one. */
static truce_status climb(struct shape *shape, const struct node *node, uint32_t number)
{
    struct value child = node->id, parent = node->parent;
    truce_status status = TRUCE_OK;
    struct value above;
    uint32_t seen;

    for (int depth = 0; !status && !truce__value_set_number(&shape->seen, child, &seen); depth++) {
        (void)truce__value_set_add_number(&shape->seen, child, number);
        if (!parent.type)
            return TRUCE_OK;
        if (depth == TREE_DEPTH_MAX)
            return truce__fail(TRUCE_LIMIT, shape->error, "the tree is deeper than %d",
                               TREE_DEPTH_MAX);
        if (truce__value_set_number(&shape->seen, parent, &seen) && seen == number)
            return shape_refuse(shape, child, parent, "which hangs under it: a circle");
        status = shape_look_up(shape, parent, &above);
        if (status == TRUCE_NOT_FOUND)
            return shape_refuse(shape, child, parent, "which is not there");
        child = parent;
        parent = above;
    }
    return status;
}

/* A truce_tree_function: a child of one that is removed, as the base has it. */
static bool orphan(const bson_t *item, void *arg)
{
    struct shape *shape = arg;

    if (shape_own(shape, truce__tree_item_id(item)))
        return true; /* it was put elsewhere, and has climbed; or is removed, too */
    shape->status =
        shape_refuse(shape, truce__tree_item_id(item), shape->removed, "which would be removed");
    return false;
}

static truce_status look_for_orphans(struct shape *shape, const struct node *node)
{
    bson_t filter = BSON_INITIALIZER;
    truce_status status;

    shape->removed = node->id;
    truce__tree_append_id(&filter, shape->edit->tree->parent, node->id);
    status = truce_tree_find(&shape->base, &filter, NULL, orphan, shape, shape->error);
    bson_destroy(&filter);
    return status ? status : shape->status;
}

static truce_status shape_look(struct shape *shape, bson_error_t *error)
{
    const truce_tree_edit *edit = shape->edit;
    truce_status status =
        truce__tree_own(edit->tree, edit->base + 1, &edit->token, shape_take_own, shape, error);

    if (status)
        return status;
    truce__value_set_begin(&shape->own, &shape->arena, (uint32_t)shape->count);
    truce__value_set_begin(&shape->seen, &shape->arena, (uint32_t)shape->count);
    for (size_t i = 0; i < shape->count; i++)
        (void)truce__value_set_add_number(&shape->own, shape->nodes[i].id, (uint32_t)i + 1);
    for (size_t i = 0; !status && i < shape->count; i++)
        status = shape->nodes[i].removed ? look_for_orphans(shape, &shape->nodes[i])
                                         : climb(shape, &shape->nodes[i], (uint32_t)i + 1);
    return status;
}

truce_status truce__tree_check_shape(truce_tree_edit *edit, bson_error_t *error)
{
    struct shape shape = {.edit = edit, .error = error};
    truce_status status = truce__tree_open(edit->tree, edit->base, &shape.base, error);

    if (!status)
        status = shape_look(&shape, error);
    truce__tree_leave(&shape.base);
    bson_free(shape.nodes);
    truce__arena_release(&shape.arena);
    return status;
}

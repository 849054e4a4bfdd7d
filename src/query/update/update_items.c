/*
 * $update: changing those items of an array that a query finds, in place.
 *
 *     {$update: {badges: {$query: {type: "X"}, $set: {date: null}, $inc: {times: 1}}}}
 *
 *     badges: [ {type: "A"}, {type: "X", date: 7}, {type: "X"} ]
 *                            ^ both of these, and nobody ever sees the array without them
 *
 * The operator that "MongoDB arrays and atomicity" wished for: $set with the way of $pull to choose
 * items, so that nothing is pulled and pushed back. $query is a condition as $pull has it: on the
 * fields of documents, or ({$gte: 5}) on the items themselves. Around it stand any update
 * operators, $update too; their paths start at the item. A path may lead through arrays of
 * documents
 * ("orders.lines": the lines of every order).
 *
 * To the rest of the update the path of $update is a leaf like any other: another operator on it,
 * above it or below it is a conflict (40). An array that does not exist has no items; a value that
 * is no array is an error (2), as with $pull.
 */
#include "query/update/update_tree.h"

#include "base/assert.h"
#include "base/limits.h"

truce_status truce__update_parse_items(struct update_parser *parser, struct update_leaf *leaf,
                                       bson_error_t *error)
{
    struct value query;
    truce_status status;

    memset(&leaf->as, 0, sizeof leaf->as);
    if (leaf->operand.type != BSON_TYPE_DOCUMENT)
        return truce__refuse(CODE_FAILED_TO_PARSE, error,
                             "$update of '%s' wants a document with $query and operators, not %s",
                             leaf->path, truce__type_name(leaf->operand.type));
    query = truce__value_field(leaf->operand, "$query", 6);
    if (query.type != BSON_TYPE_DOCUMENT)
        return truce__refuse(CODE_FAILED_TO_PARSE, error,
                             "$update of '%s' wants a document as $query ({} for every document)",
                             leaf->path);
    status = truce__update_condition(parser, query, &leaf->as.items.match,
                                     &leaf->as.items.documents_only, error);
    if (status)
        return status;
    leaf->as.items.root = truce__update_node_new(parser->update, UPDATE_OBJECT);
    parser->depth++;
    status = truce__update_parse(parser, leaf->as.items.root, leaf->operand, error);
    parser->depth--;
    if (status)
        return status;
    truce__update_tree_seal(leaf->as.items.root);
    return TRUCE_OK;
}

/* one item that matched */
static truce_status items_change_item(struct update_run *run, const struct update_leaf *leaf,
                                      const struct update_place *item, int64_t *delta,
                                      bson_error_t *error)
{
    const struct update_node *root = leaf->as.items.root;
    uint64_t changes = run->changes;
    struct value outer = run->root;
    truce_status status;

    run->root = item->value;
    status = truce__update_visit(run, item, &root, 1, delta, error);
    run->root = outer;
    run->items_matched++;
    run->items_modified += run->changes > changes;
    return status;
}

truce_status truce__update_items(struct update_run *run, const struct update_leaf *leaf,
                                 const struct update_place *place, int64_t *delta,
                                 bson_error_t *error)
{
    const uint8_t *element;
    struct fields fields;
    int64_t grown = 0;
    char path[256];

    if (place->value.type != BSON_TYPE_ARRAY)
        return truce__refuse(CODE_BAD_VALUE, error, "$update of '%s': the field is %s, no array",
                             truce__update_place_show(place, path, sizeof path),
                             truce__type_name(place->value.type));
    fields = truce__fields(place->value);
    for (element = fields.at; truce__fields_next(&fields); element = fields.at) {
        struct update_place item = {.up = place,
                                    .root = true,
                                    .name = fields.key,
                                    .length = fields.key_length,
                                    .level = place->level + 1,
                                    .element = element,
                                    .value = fields.value};
        truce_status status;
        bool matches;

        status =
            truce__update_item_matches(run, leaf->as.items.match, leaf->as.items.documents_only,
                                       fields.value, &matches, error);
        if (!status && matches)
            status = items_change_item(run, leaf, &item, &grown, error);
        if (status)
            return status;
    }
    truce__update_edit_length(run, place->value, grown);
    *delta += grown;
    return TRUCE_OK;
}

/*
 * Compiles an update document into its tree: operators, paths, and array filters.
 * update_operators.c has the table of operators.
 *
 *     {$set: {"a.$[x]": 1}, $inc: {n: 1}}   with arrayFilters [{"x.b": 2}]
 *       |       |        |
 *       |       |        operand: checked by the operator's parse function, stored in the leaf
 *       |       path: no empty part; "$" at most once and not first; "$[x]" names an array filter
 *       operator: a row of the table
 *
 * $rename adds two leaves to the tree: itself at the target, and one that removes the field at the
 * source, so that both ends conflict with other operators.
 *
 * The model is MongoDB 5.0 and later: an operator without fields ({$set: {}}) changes nothing.
 */
#include "query/update/update_parse.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/hash_table.h"
#include "base/limits.h"
#include "query/match/match_tree.h"

/* ---- the tree -------------------------------------------------------------------------------- */

/*
 * Growing and combining the tree of an update (update_parse.h has its picture).
 *
 * Most conflicts are found while the tree grows: a path ends where another continues, or continues
 * where another ends. Some depend on the document. "a.$.x" and "a.0.x" are one path if the query
 * matched element 0, and "a.$[].x" and "a.$[f].x" collide at each element that f matches. The walk
 * may therefore be at one target with several nodes at once. truce__update_choices unites their
 * branches. Before anything is applied there, truce__update_conflict refuses nodes that cannot be
 * united, at all levels.
 *
 * Order of branches: by name, byte by byte, but numbers among themselves by value (MongoDB 5.0 and
 * later: "a.9" before "a.10"). To make this a total order, all numbers sort where "0" would.
 */

struct update_node *truce__update_node_new(struct update *update, enum update_node_kind kind)
{
    struct update_node *node = truce__arena_take(&update->memory, sizeof *node);

    memset(node, 0, sizeof *node);
    node->kind = kind;
    return node;
}

int64_t truce__update_index(const char *name, uint32_t length)
{
    int64_t index = 0;

    if (length == 0)
        return -1;
    for (uint32_t i = 0; i < length; i++) {
        if (name[i] < '0' || name[i] > '9')
            return -1;
        index = index * 10 + (name[i] - '0');
        if (index > UINT32_MAX)
            return -1;
    }
    return index;
}

static int tree_compare_bytes(const char *a, uint32_t a_length, const char *b, uint32_t b_length)
{
    uint32_t shorter = a_length < b_length ? a_length : b_length;
    int order = shorter ? memcmp(a, b, shorter) : 0;

    if (order)
        return order;
    return (a_length > b_length) - (a_length < b_length);
}

int truce__update_name_compare(const char *a, uint32_t a_length, const char *b, uint32_t b_length)
{
    int64_t a_index = truce__update_index(a, a_length), b_index = truce__update_index(b, b_length);

    if (a_index >= 0 && b_index >= 0 && a_index != b_index)
        return a_index < b_index ? -1 : 1;
    if (a_index >= 0 && b_index < 0)
        return b_length && (uint8_t)b[0] >= '0' ? -1 : 1;
    if (a_index < 0 && b_index >= 0)
        return a_length && (uint8_t)a[0] >= '0' ? 1 : -1;
    return tree_compare_bytes(a, a_length, b, b_length);
}

static bool has_name(const struct update_branch *branch, const char *name, uint32_t length)
{
    return branch->length == length && !memcmp(branch->name, name, length);
}

/* Returns the branch of that name, or NULL. */
static struct update_branch *tree_find_branch(const struct update_node *node, const char *name,
                                              uint32_t length)
{
    if (!node->table) {
        for (uint32_t i = 0; i < node->count; i++) {
            if (has_name(&node->branches[i], name, length))
                return &node->branches[i];
        }
        return NULL;
    }
    for (struct hash_probe probe = truce__hash_probe(node->table, truce__hash_bytes(name, length));
         truce__hash_next(&probe);) {
        if (has_name(&node->branches[probe.number], name, length))
            return &node->branches[probe.number];
    }
    return NULL;
}

static void enter_into_table(struct update_node *node, uint32_t number)
{
    const struct update_branch *branch = &node->branches[number];

    truce__hash_add(node->table, truce__hash_bytes(branch->name, branch->length), number);
}

/* A node with at least this number of branches gets a hash table. */
#define TABLE_FROM 16

static void grow_branches(struct update *update, struct update_node *node)
{
    uint32_t room = node->room ? node->room * 2 : 2;
    struct update_branch *branches = truce__arena_take(&update->memory, room * sizeof *branches);

    if (node->count)
        memcpy(branches, node->branches, node->count * sizeof *branches);
    node->branches = branches;
    node->room = room;
}

static void tree_add_branch(struct update *update, struct update_node *node,
                            struct update_branch branch)
{
    if (node->count == node->room)
        grow_branches(update, node);
    node->branches[node->count++] = branch;
    if (node->count < TABLE_FROM)
        return;
    if (!node->table) {
        node->table = truce__arena_take(&update->memory, sizeof *node->table);
        *node->table = (struct hash_table){.arena = &update->memory};
    }
    for (uint32_t i = node->table->count; i < node->count; i++)
        enter_into_table(node, i);
}

static bool is_filter_part(const struct path_part *part)
{
    return part->length >= 3 && part->name[0] == '$' && part->name[1] == '[' &&
           part->name[part->length - 1] == ']';
}

/* Returns the branch of a part of a path. For "$[x]" the filter is found and marked as used. */
static truce_status branch_of_part(struct update *update, const struct path *path, uint32_t number,
                                   struct update_branch *branch, bson_error_t *error)
{
    const struct path_part *part = &path->parts[number];

    *branch = (struct update_branch){.name = part->name, .length = part->length};
    if (!is_filter_part(part)) {
        branch->index = truce__update_index(part->name, part->length);
        return TRUCE_OK;
    }
    if (number == 0)
        return truce__refuse(CODE_BAD_VALUE, error,
                             "'%s' starts with an array filter: there must be a field before it",
                             path->text);
    branch->name += 2;
    branch->length -= 3;
    branch->index = -1;
    if (branch->length == 0)
        return TRUCE_OK;
    for (uint32_t i = 0; i < update->filters_count; i++) {
        struct update_filter *filter = &update->filters[i];

        if (strlen(filter->name) == branch->length &&
            !memcmp(filter->name, branch->name, branch->length)) {
            filter->used = true;
            branch->filter = filter;
            return TRUCE_OK;
        }
    }
    return truce__refuse(CODE_BAD_VALUE, error, "no array filter for '%.*s' in path '%s'",
                         (int)part->length, part->name, path->text);
}

/* Returns the number of bytes of the path's text up to the end of that part. */
static int length_through(const struct path *path, uint32_t number)
{
    return (int)(path->parts[number].name + path->parts[number].length - path->text);
}

static truce_status conflict_at(const struct path *path, uint32_t number, bson_error_t *error)
{
    return truce__refuse(CODE_CONFLICTING_UPDATE_OPERATORS, error,
                         "updating '%s' would conflict with another operator at '%.*s'", path->text,
                         length_through(path, number), path->text);
}

truce_status truce__update_tree_add(struct update_parser *parser, struct update_node *root,
                                    const struct path *path, struct update_leaf **leaf,
                                    bson_error_t *error)
{
    struct update_node *node = root;
    struct update_branch branch, *found;
    truce_status status;

    truce_assert(path->count > 0);
    for (uint32_t i = 0; i < path->count; i++) {
        enum update_node_kind kind = UPDATE_LEAF;

        if (i + 1 < path->count)
            kind = is_filter_part(&path->parts[i + 1]) ? UPDATE_ARRAY : UPDATE_OBJECT;
        status = branch_of_part(parser->update, path, i, &branch, error);
        if (status)
            return status;
        found = tree_find_branch(node, branch.name, branch.length);
        if (found && (kind == UPDATE_LEAF || found->node->kind != kind))
            return conflict_at(path, i, error);
        if (!found) {
            branch.node = truce__update_node_new(parser->update, kind);
            if (node->kind == UPDATE_OBJECT && branch.length == 1 && branch.name[0] == '$')
                node->positional = true;
            tree_add_branch(parser->update, node, branch);
        }
        node = found ? found->node : branch.node;
    }
    *leaf = &node->leaf;
    return TRUCE_OK;
}

static int tree_compare_branches(const void *a, const void *b)
{
    const struct update_branch *left = a, *right = b;

    return truce__update_name_compare(left->name, left->length, right->name, right->length);
}

void truce__update_tree_seal(struct update_node *node)
{
    node->items_only = node->kind != UPDATE_LEAF || (node->leaf.operator->flags & UPDATE_ITEMS);
    for (uint32_t i = 0; i < node->count; i++) {
        truce__update_tree_seal(node->branches[i].node);
        node->items_only = node->items_only && node->branches[i].node->items_only;
    }
    if (node->count)
        qsort(node->branches, node->count, sizeof *node->branches, tree_compare_branches);
}

/* Returns the sorted branches of several nodes; a positional name is replaced by its number. */
static uint32_t tree_gather(struct update_run *run, const struct update_node *const *nodes,
                            uint32_t count, bool resolve, struct update_branch **gathered)
{
    uint32_t total = 0, filled = 0;
    struct update_branch *branches;

    for (uint32_t i = 0; i < count; i++)
        total += nodes[i]->count;
    branches = truce__arena_take(run->context->arena, (total + 1) * sizeof *branches);
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < nodes[i]->count; j++) {
            struct update_branch branch = nodes[i]->branches[j];

            if (resolve && branch.length == 1 && branch.name[0] == '$') {
                branch.name = run->matched;
                branch.length = (uint32_t)strlen(run->matched);
                branch.index = truce__update_index(branch.name, branch.length);
            }
            branches[filled++] = branch;
        }
    }
    qsort(branches, filled, sizeof *branches, tree_compare_branches);
    *gathered = branches;
    return filled;
}

static bool tree_same_name(const struct update_branch *a, const struct update_branch *b)
{
    return a->length == b->length && !memcmp(a->name, b->name, a->length);
}

/* Returns the number of branches from `first` on with one name; their nodes are copied to the
 * arena. */
static uint32_t tree_same_names(struct update_run *run, const struct update_branch *branches,
                                uint32_t first, uint32_t count,
                                const struct update_node *const **nodes)
{
    uint32_t same = 1;
    const struct update_node **list;

    while (first + same < count && tree_same_name(&branches[first], &branches[first + same]))
        same++;
    list = truce__arena_take(run->context->arena, same * sizeof(struct update_node *));
    for (uint32_t i = 0; i < same; i++)
        list[i] = branches[first + i].node;
    *nodes = list;
    return same;
}

truce_status truce__update_conflict(struct update_run *run, const struct update_target *target,
                                    const struct update_node *const *nodes, uint32_t count,
                                    bson_error_t *error)
{
    struct update_branch *branches;
    const struct update_node *const *below;
    uint32_t branches_count, same;
    char shown[256];

    if (count < 2)
        return TRUCE_OK;
    for (uint32_t i = 0; i < count; i++) {
        if (nodes[i]->kind == UPDATE_LEAF || nodes[i]->kind != nodes[0]->kind)
            return truce__refuse(CODE_CONFLICTING_UPDATE_OPERATORS, error,
                                 "two operators of the update conflict at '%s'",
                                 truce__update_target_show(target, shown, sizeof shown));
    }
    branches_count = tree_gather(run, nodes, count, false, &branches);
    for (uint32_t i = 0; i < branches_count; i += same) {
        struct update_target inner = {
            .up = target, .name = branches[i].name, .length = branches[i].length};
        truce_status status;

        same = tree_same_names(run, branches, i, branches_count, &below);
        status = truce__update_conflict(run, &inner, below, same, error);
        if (status)
            return status;
    }
    return TRUCE_OK;
}

/* Makes the choices in the common case: one node without "$", with nothing to unite or to look
 * up. */
static void plain_choices(struct update_run *run, const struct update_node *node,
                          struct update_choice **choices, uint32_t *choices_count)
{
    struct update_choice *list =
        truce__arena_take(run->context->arena, (node->count + 1) * sizeof *list);

    for (uint32_t i = 0; i < node->count; i++) {
        const struct update_branch *branch = &node->branches[i];

        list[i] = (struct update_choice){
            .name = branch->name,
            .length = branch->length,
            .index = branch->index,
            .count = 1,
            .nodes = (const struct update_node *const *)&branch->node,
        };
    }
    *choices = list;
    *choices_count = node->count;
}

truce_status truce__update_choices(struct update_run *run, const struct update_target *target,
                                   const struct update_node *const *nodes, uint32_t count,
                                   struct update_choice **choices, uint32_t *choices_count,
                                   bson_error_t *error)
{
    struct update_branch *branches;
    struct update_choice *list;
    uint32_t branches_count, same, filled = 0;
    bool positional = false;

    for (uint32_t i = 0; i < count; i++)
        positional = positional || nodes[i]->positional;
    if (positional && !run->matched[0])
        return truce__refuse(CODE_BAD_VALUE, error,
                             "the positional operator finds no array element that the query "
                             "matched: the query must have a condition on the array");
    if (count == 1 && !positional) {
        plain_choices(run, nodes[0], choices, choices_count);
        return TRUCE_OK;
    }
    branches_count = tree_gather(run, nodes, count, true, &branches);
    list = truce__arena_take(run->context->arena, (branches_count + 1) * sizeof *list);
    for (uint32_t i = 0; i < branches_count; i += same) {
        struct update_choice *choice = &list[filled++];
        struct update_target inner = {
            .up = target, .name = branches[i].name, .length = branches[i].length};
        truce_status status;

        *choice = (struct update_choice){
            .name = branches[i].name, .length = branches[i].length, .index = branches[i].index};
        same = tree_same_names(run, branches, i, branches_count, &choice->nodes);
        choice->count = same;
        status = truce__update_conflict(run, &inner, choice->nodes, same, error);
        if (status)
            return status;
    }
    *choices = list;
    *choices_count = filled;
    return TRUCE_OK;
}

/* ---- the parser ------------------------------------------------------------------------------ */

uint32_t truce__update_depth(struct value value)
{
    uint32_t deepest = 0;
    struct fields fields;

    if (!truce__value_is_container(value))
        return 0;
    fields = truce__fields(value);
    while (truce__fields_next(&fields)) {
        uint32_t depth = truce__update_depth(fields.value);

        deepest = depth > deepest ? depth : deepest;
    }
    return deepest + 1;
}

/* Returns the place for a new item of a list in the update's arena, which doubles. */
static void **new_item(struct update *update, void ***list, uint32_t *count, uint32_t *room)
{
    if (*count == *room) {
        uint32_t more = *room ? *room * 2 : 8;
        void **bigger = truce__arena_take(&update->memory, more * sizeof(void *));

        if (*count)
            memcpy(bigger, *list, *count * sizeof(void *));
        *list = bigger;
        *room = more;
    }
    return &(*list)[(*count)++];
}

static void update_own_match(struct update *update, struct match *match)
{
    *new_item(update, &update->matches, &update->matches_count, &update->matches_room) = match;
}

struct path *truce__update_path(struct update *update, const char *text, size_t length,
                                bson_error_t *error)
{
    struct path *path = truce__arena_take(&update->memory, sizeof *path);

    return truce__path_parse_into(&update->memory, text, length, path, error) ? NULL : path;
}

static bool is_positional(const struct path_part *part)
{
    return part->length == 1 && part->name[0] == '$';
}

/* Checks a path: no empty names, and at most one `$`, which is neither the first part nor inside
 * $update. */
static truce_status check_path(const struct update_parser *parser, const struct path *path,
                               bson_error_t *error)
{
    uint32_t positional = 0;

    for (uint32_t i = 0; i < path->count; i++) {
        if (path->parts[i].length == 0)
            return truce__refuse(CODE_EMPTY_FIELD_NAME, error,
                                 "the path '%s' has an empty field name", path->text);
        positional += is_positional(&path->parts[i]);
    }
    if (path->count == 0)
        return truce__refuse(CODE_EMPTY_FIELD_NAME, error,
                             "an update path is empty: expected the name of a field");
    if (positional > 1)
        return truce__refuse(CODE_BAD_VALUE, error, "the path '%s' has more than one '$'",
                             path->text);
    if (positional && is_positional(&path->parts[0]))
        return truce__refuse(CODE_BAD_VALUE, error,
                             "the path '%s' starts with '$': there must be a field before it",
                             path->text);
    if (positional && parser->depth)
        return truce__refuse(CODE_BAD_VALUE, error,
                             "the path '%s' has a '$', which is not allowed inside $update",
                             path->text);
    return TRUCE_OK;
}

/* Adds the second leaf of a $rename. */
static truce_status add_rename_source(struct update_parser *parser, struct update_node *root,
                                      const struct path *from, bson_error_t *error)
{
    struct update_leaf *put_leaf;
    truce_status status = truce__update_tree_add(parser, root, from, &put_leaf, error);

    if (!status)
        *put_leaf =
            (struct update_leaf){.operator= & truce__update_rename_source, .path = from->text};
    return status;
}

/* Adds $rename's source to the tree; `target` becomes the path that its operand names. */
static truce_status begin_rename(struct update_parser *parser, struct update_node *root,
                                 const struct path *from, struct value operand,
                                 struct path **target, bson_error_t *error)
{
    truce_status status;
    uint32_t length;
    const char *text;

    if (operand.type != BSON_TYPE_UTF8)
        return truce__refuse(CODE_BAD_VALUE, error,
                             "the target of $rename of '%s' is %s, not a string", from->text,
                             truce__type_name(operand.type));
    text = truce__value_text(operand, &length);
    if (memchr(text, 0, length))
        return truce__refuse(CODE_BAD_VALUE, error, "the target of $rename of '%s' has a zero byte",
                             from->text);
    status = check_path(parser, from, error);
    if (!status)
        status = add_rename_source(parser, root, from, error);
    if (status)
        return status;
    *target = truce__update_path(parser->update, text, length, error);
    return *target ? TRUCE_OK : TRUCE_INVALID;
}

/* Adds {operator: {field: operand}} to the tree. */
static truce_status add_operation(struct update_parser *parser, struct update_node *root,
                                  const struct update_operator *operator,
                                  const struct fields * field, bson_error_t *error)
{
    struct update_leaf leaf = {.operator= operator, .operand = field->value }, *put_leaf;
    struct path *path = truce__update_path(parser->update, field->key, field->key_length, error);
    struct path *target = path;
    truce_status status = TRUCE_OK;

    if (!path)
        return TRUCE_INVALID;
    leaf.as.rename.from = path;
    if (operator->apply == truce__update_rename)
        status = begin_rename(parser, root, path, field->value, &target, error);
    if (!status)
        status = check_path(parser, target, error);
    if (status)
        return status;
    leaf.path = target->text;
    status = operator->parse(parser, &leaf, error);
    if (!status)
        status = truce__update_tree_add(parser, root, target, &put_leaf, error);
    if (!status)
        *put_leaf = leaf;
    return status;
}

static truce_status parse_refuse_operator(const char *name, bson_error_t *error)
{
    struct nearest_word nearest = {.word = name};
    char hint[NEAREST_WORD_HINT_MAX];

    if (*name != '$')
        return truce__refuse(CODE_FAILED_TO_PARSE, error,
                             "unknown update operator \"%s\": an update has either operators or "
                             "fields, not both",
                             name);
    truce__update_operator_offer(&nearest);
    return truce__refuse(CODE_FAILED_TO_PARSE, error, "unknown update operator \"%s\"%s", name,
                         nearest.best ? truce__nearest_word_hint(&nearest, hint)
                                      : ": expected an operator such as $set, $inc, $push, or "
                                        "$unset");
}

truce_status truce__update_parse(struct update_parser *parser, struct update_node *root,
                                 struct value update, bson_error_t *error)
{
    struct fields each = truce__fields(update);

    while (truce__fields_next(&each)) {
        const struct update_operator *operator= truce__update_operator_find(each.key);
        struct fields fields;

        if (parser->depth && strcmp(each.key, "$query") == 0)
            continue;
        if (!operator)
            return parse_refuse_operator(each.key, error);
        if (each.value.type != BSON_TYPE_DOCUMENT)
            return truce__refuse(CODE_FAILED_TO_PARSE, error,
                                 "%s takes a document of fields, not %s", each.key,
                                 truce__type_name(each.value.type));
        fields = truce__fields(each.value);
        while (truce__fields_next(&fields)) {
            truce_status status = add_operation(parser, root, operator, & fields, error);

            if (status)
                return status;
        }
    }
    return TRUCE_OK;
}

/* Refuses $expr in a condition on one value: its variables would mean the document. */
static truce_status refuse_expressions(const struct match_node *node, bson_error_t *error)
{
    if (node->kind == MATCH_EXPR)
        return truce__refuse(CODE_QUERY_FEATURE_NOT_ALLOWED, error,
                             "$expr is not allowed in a condition on array items");
    for (uint32_t i = 0; i < node->children_count; i++) {
        truce_status status = refuse_expressions(node->children[i], error);

        if (status)
            return status;
    }
    return TRUCE_OK;
}

static bool parse_is_identifier(const char *name)
{
    if (name[0] < 'a' || name[0] > 'z')
        return false;
    for (; *name; name++) {
        if (!((*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z') ||
              (*name >= '0' && *name <= '9')))
            return false;
    }
    return true;
}

/* Compiles one array filter. Its identifier must not have another one. */
static truce_status parse_filter(struct update *update, struct value condition, bson_error_t *error)
{
    struct update_filter *filter = &update->filters[update->filters_count];
    truce_status status;
    bson_t document;

    if (condition.type != BSON_TYPE_DOCUMENT)
        return truce__refuse(CODE_TYPE_MISMATCH, error, "an array filter is a document, not %s",
                             truce__type_name(condition.type));
    truce__value_bson(condition, &document);
    status = truce__match_elements_new(&document, &filter->match, &filter->name, error);
    if (status)
        return status;
    update_own_match(update, filter->match);
    status = refuse_expressions(truce__match_root(filter->match), error);
    if (status)
        return status;
    if (!parse_is_identifier(filter->name))
        return truce__refuse(CODE_BAD_VALUE, error,
                             "invalid identifier '%s' of an array filter: expected letters and "
                             "digits that begin with a lowercase letter",
                             filter->name);
    for (uint32_t i = 0; i < update->filters_count; i++) {
        if (strcmp(update->filters[i].name, filter->name) == 0)
            return truce__refuse(CODE_FAILED_TO_PARSE, error,
                                 "the identifier '%s' has two array filters: combine them with "
                                 "$and",
                                 filter->name);
    }
    update->filters_count++;
    return TRUCE_OK;
}

truce_status truce__update_parse_filters(struct update *update, const bson_t *filters,
                                         bson_error_t *error)
{
    struct fields fields = truce__fields(truce__value_document(filters));
    uint32_t count = bson_count_keys(filters);

    update->filters = truce__arena_take(&update->memory, (count + 1) * sizeof *update->filters);
    memset(update->filters, 0, (count + 1) * sizeof *update->filters);
    while (truce__fields_next(&fields)) {
        truce_status status = parse_filter(update, fields.value, error);

        if (status)
            return status;
    }
    return TRUCE_OK;
}

/* Returns whether a condition tests the fields of the value, as {x: 1} and {$or: ...} do, not the
 * value itself, as {$gte: 5} does. */
static bool parse_is_about_fields(struct value condition)
{
    struct fields fields;

    if (condition.type != BSON_TYPE_DOCUMENT)
        return false;
    fields = truce__fields(condition);
    return !truce__fields_next(&fields) || !truce__match_is_operator(fields.key);
}

truce_status truce__update_condition(struct update_parser *parser, struct value condition,
                                     struct match **match, bool *documents_only,
                                     bson_error_t *error)
{
    truce_status status;
    bson_t document;

    *match = NULL;
    *documents_only = parse_is_about_fields(condition);
    if (*documents_only) {
        truce__value_bson(condition, &document);
        status = truce__match_new(&document, match, error);
    } else {
        status = truce__match_value_new(condition, match, error);
    }
    if (status)
        return status;
    update_own_match(parser->update, *match);
    return refuse_expressions(truce__match_root(*match), error);
}

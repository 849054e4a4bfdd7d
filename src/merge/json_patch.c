/*
 * Applies JSON Patch (RFC 6902). The document is a tree. Nodes are expanded only on the path of an
 * operation, so the cost of a patch does not depend on the rest of the document:
 *
 *     {a: {b: 1}, c: [...]}   -- replace /a/b -->   node {a: node {b: 2}, c: (bytes as they were)}
 *
 * The bytes that operations add or copy are counted, so that copies of copies cannot grow without
 * limit.
 */
#include "merge/json_patch_tree.h"

#include "base/limits.h"

/* The maximum number of bytes that the operations of a patch may add or copy. */
#define TREE_BYTES_MAX ((size_t)2 * TRUCE_DOCUMENT_BYTES_MAX)

/* ---- pointers (RFC 6901) --------------------------------------------------------------------- */

/* A name of a pointer, without its escapes. */
struct token {
    const char *text;
    uint32_t length;
};

/* A parsed JSON pointer. */
struct pointer {
    struct token tokens[TRUCE_DOCUMENT_DEPTH_MAX + 1];
    uint32_t count;
    const char *shown;
};

static truce_status patch_refuse(const struct patch_tree *tree, const char *what, const char *path)
{
    return truce__fail(TRUCE_INVALID, tree->error, "operation %u: %s \"%.200s\"", tree->number,
                       what, path);
}

static truce_status patch_refuse_parts(const struct patch_tree *tree, const char *path)
{
    return truce__fail(TRUCE_INVALID, tree->error,
                       "operation %u: a JSON pointer has at most %d parts, and this one has more: "
                       "\"%.200s\"",
                       tree->number, TRUCE_DOCUMENT_DEPTH_MAX + 1, path);
}

/* Unescapes a token: "~01" is "~1". */
static bool patch_unescape(struct patch_tree *tree, const char *from, uint32_t length,
                           struct token *token)
{
    char *to = truce__arena_take(tree->arena, length + 1);

    token->text = to;
    for (uint32_t i = 0; i < length; i++) {
        if (!from[i])
            return false;
        if (from[i] != '~') {
            *to++ = from[i];
            continue;
        }
        i++;
        if (i == length || (from[i] != '0' && from[i] != '1'))
            return false;
        *to++ = from[i] == '0' ? '~' : '/';
    }
    *to = '\0';
    token->length = (uint32_t)(to - token->text);
    return true;
}

/* Splits a JSON pointer into its unescaped parts. */
static truce_status read_pointer(struct patch_tree *tree, struct value value, const char *member,
                                 struct pointer *pointer)
{
    const char *text, *at;
    uint32_t length;

    if (value.type != BSON_TYPE_UTF8)
        return patch_refuse(tree, "a string is missing:", member);
    text = truce__value_text(value, &length);
    pointer->shown = text;
    pointer->count = 0;
    for (at = text; at < text + length;) {
        const char *end;

        if (*at != '/')
            return patch_refuse(tree, "invalid JSON pointer:", text);
        if (pointer->count > TRUCE_DOCUMENT_DEPTH_MAX)
            return patch_refuse_parts(tree, text);
        at++;
        end = memchr(at, '/', (size_t)(text + length - at));
        if (!end)
            end = text + length;
        if (!patch_unescape(tree, at, (uint32_t)(end - at), &pointer->tokens[pointer->count++]))
            return patch_refuse(tree, "invalid JSON pointer:", text);
        at = end;
    }
    return TRUCE_OK;
}

/* Reads an array index: a number without leading zeros, at most `most`. */
static bool patch_read_index(const struct token *token, uint32_t most, uint32_t *index)
{
    uint64_t number = 0;

    if (!token->length || token->length > 9 || (token->text[0] == '0' && token->length > 1))
        return false;
    for (uint32_t i = 0; i < token->length; i++) {
        if (token->text[i] < '0' || token->text[i] > '9')
            return false;
        number = number * 10 + (uint64_t)(token->text[i] - '0');
    }
    *index = (uint32_t)number;
    return number <= most;
}

static bool patch_find_child(const struct patch_node *node, const struct token *token, uint32_t *at)
{
    if (node->type == BSON_TYPE_ARRAY)
        return node->count && patch_read_index(token, node->count - 1, at);
    if (node->type != BSON_TYPE_DOCUMENT)
        return false;
    *at = truce__patch_find(node, token->text, token->length);
    return *at < node->count;
}

/* Finds the container in which the last token of a pointer is looked up. */
static truce_status find_parent(struct patch_tree *tree, const struct pointer *pointer,
                                struct patch_node **parent)
{
    struct patch_node *node = tree->root;

    for (uint32_t i = 0;; i++) {
        uint32_t at;

        truce__patch_take_apart(tree, node);
        if (node->type != BSON_TYPE_DOCUMENT && node->type != BSON_TYPE_ARRAY)
            return patch_refuse(tree, "no object or array contains the place", pointer->shown);
        if (i + 1 == pointer->count)
            break;
        if (!patch_find_child(node, &pointer->tokens[i], &at))
            return patch_refuse(tree, "the document has no value at", pointer->shown);
        node = node->children[at].node;
    }
    *parent = node;
    return TRUCE_OK;
}

/* Finds the node at a pointer, and expands the nodes above it. Fails with INVALID if there is
 * none. */
static truce_status find_node(struct patch_tree *tree, const struct pointer *pointer,
                              struct patch_node **found)
{
    struct patch_node *parent;
    truce_status status;
    uint32_t at;

    *found = tree->root;
    if (!pointer->count)
        return TRUCE_OK;
    status = find_parent(tree, pointer, &parent);
    if (status)
        return status;
    if (!patch_find_child(parent, &pointer->tokens[pointer->count - 1], &at))
        return patch_refuse(tree, "the document has no value at", pointer->shown);
    *found = parent->children[at].node;
    return TRUCE_OK;
}

/* Returns the depth of nested containers, including the value itself. */
static uint32_t depth_of(struct value value, uint32_t most)
{
    uint32_t depth = 0;
    struct fields fields;

    if (!truce__value_is_container(value) || !most)
        return truce__value_is_container(value);
    fields = truce__fields(value);
    while (truce__fields_next(&fields)) {
        uint32_t below = depth_of(fields.value, most - 1);

        depth = below > depth ? below : depth;
    }
    return depth + 1;
}

static uint32_t node_depth(const struct patch_node *node, uint32_t most)
{
    uint32_t depth = 0;

    if (!node->apart || !most)
        return depth_of(node->raw, most);
    for (uint32_t i = 0; i < node->count; i++) {
        const struct patch_node *child = node->children[i].node;
        uint32_t below = child ? node_depth(child, most - 1) : 0;

        depth = below > depth ? below : depth;
    }
    return depth + 1;
}

/* Checks that the tree does not become deeper than a document may be. */
static truce_status check_depth(struct patch_tree *tree, const struct pointer *pointer,
                                const struct patch_node *node)
{
    if (pointer->count + node_depth(node, TRUCE_DOCUMENT_DEPTH_MAX + 1) <= TRUCE_DOCUMENT_DEPTH_MAX)
        return TRUCE_OK;
    return truce__fail(TRUCE_LIMIT, tree->error, "operation %u: more than %d levels of values",
                       tree->number, TRUCE_DOCUMENT_DEPTH_MAX);
}

/* ---- operations ------------------------------------------------------------------------------ */

/* Adds a node at a pointer: replaces a field or the root, or inserts an element of an array. */
static truce_status patch_put(struct patch_tree *tree, const struct pointer *pointer,
                              struct patch_node *node)
{
    const struct token *last = &pointer->tokens[pointer->count ? pointer->count - 1 : 0];
    struct patch_node *parent;
    truce_status status = check_depth(tree, pointer, node);
    uint32_t at;

    if (status)
        return status;
    if (!pointer->count) {
        tree->root = node;
        return TRUCE_OK;
    }
    status = find_parent(tree, pointer, &parent);
    if (status)
        return status;
    if (parent->type == BSON_TYPE_DOCUMENT) {
        if (patch_find_child(parent, last, &at))
            parent->children[at].node = node;
        else
            truce__patch_insert(tree, parent, parent->count,
                                (struct patch_child){last->text, last->length, node});
        return TRUCE_OK;
    }
    at = parent->count;
    if (!(last->length == 1 && last->text[0] == '-') && !patch_read_index(last, parent->count, &at))
        return patch_refuse(tree, "invalid index of an array:", pointer->shown);
    truce__patch_insert(tree, parent, at, (struct patch_child){NULL, 0, node});
    return TRUCE_OK;
}

/* Removes the node at a pointer from its parent, and returns it. */
static truce_status patch_cut(struct patch_tree *tree, const struct pointer *pointer,
                              struct patch_node **taken)
{
    struct patch_node *parent;
    truce_status status;
    uint32_t at;

    if (!pointer->count)
        return patch_refuse(tree, "the whole document cannot be removed:", pointer->shown);
    status = find_parent(tree, pointer, &parent);
    if (status)
        return status;
    if (!patch_find_child(parent, &pointer->tokens[pointer->count - 1], &at))
        return patch_refuse(tree, "the document has no value at", pointer->shown);
    *taken = parent->children[at].node;
    truce__patch_remove(parent, at);
    return TRUCE_OK;
}

/* One operation of a patch. */
struct operation {
    struct pointer path, from;
    struct value value;
};

static truce_status count_bytes(struct patch_tree *tree, struct value value)
{
    tree->bytes += value.size;
    if (tree->bytes <= TREE_BYTES_MAX)
        return TRUCE_OK;
    return truce__fail(TRUCE_LIMIT, tree->error,
                       "operation %u: the values that the patch adds have more than %zu bytes",
                       tree->number, TREE_BYTES_MAX);
}

static truce_status patch_run_add(struct patch_tree *tree, const struct operation *operation)
{
    truce_status status = count_bytes(tree, operation->value);

    return status ? status
                  : patch_put(tree, &operation->path, truce__patch_node(tree, operation->value));
}

static truce_status patch_run_remove(struct patch_tree *tree, const struct operation *operation)
{
    struct patch_node *taken;

    return patch_cut(tree, &operation->path, &taken);
}

static truce_status patch_run_replace(struct patch_tree *tree, const struct operation *operation)
{
    struct patch_node *node;
    truce_status status = find_node(tree, &operation->path, &node);

    if (!status)
        status = count_bytes(tree, operation->value);
    if (!status)
        status = check_depth(tree, &operation->path, truce__patch_node(tree, operation->value));
    if (!status)
        *node = (struct patch_node){.raw = operation->value, .type = operation->value.type};
    return status;
}

/* Returns whether `from` is above `path`. */
static bool patch_is_inside(const struct pointer *path, const struct pointer *from)
{
    if (path->count <= from->count)
        return false;
    for (uint32_t i = 0; i < from->count; i++) {
        if (path->tokens[i].length != from->tokens[i].length ||
            memcmp(path->tokens[i].text, from->tokens[i].text, from->tokens[i].length) != 0)
            return false;
    }
    return true;
}

static bool patch_is_same(const struct pointer *a, const struct pointer *b)
{
    return a->count == b->count && !strcmp(a->shown, b->shown);
}

static truce_status run_move(struct patch_tree *tree, const struct operation *operation)
{
    struct patch_node *node;
    truce_status status;

    if (patch_is_inside(&operation->path, &operation->from))
        return patch_refuse(tree, "a value cannot be moved into itself:", operation->path.shown);
    status = find_node(tree, &operation->from, &node);
    if (status || patch_is_same(&operation->path, &operation->from))
        return status;
    status = patch_cut(tree, &operation->from, &node);
    return status ? status : patch_put(tree, &operation->path, node);
}

static truce_status run_copy(struct patch_tree *tree, const struct operation *operation)
{
    struct patch_node *node;
    struct value value;
    truce_status status = find_node(tree, &operation->from, &node);

    if (status)
        return status;
    value = truce__patch_value(tree, node);
    status = count_bytes(tree, value);
    return status ? status : patch_put(tree, &operation->path, truce__patch_node(tree, value));
}

/* Compares the value at the path. Fails with CONFLICT if it differs, which no other operation
 * does. */
static truce_status run_test(struct patch_tree *tree, const struct operation *operation)
{
    struct patch_node *node;
    truce_status status = find_node(tree, &operation->path, &node);
    char a[100], b[100];
    struct value found;

    if (status)
        return status;
    found = truce__patch_value(tree, node);
    if (truce__patch_equal(found, operation->value))
        return TRUCE_OK;
    return truce__fail(TRUCE_CONFLICT, tree->error, "operation %u: \"%.100s\" is %s, not %s",
                       tree->number, operation->path.shown, truce__value_show(found, a, sizeof a),
                       truce__value_show(operation->value, b, sizeof b));
}

static const struct kind {
    const char *name;
    /* The operation requires the member "from", or "value". */
    bool from, value;
    truce_status (*run)(struct patch_tree *tree, const struct operation *operation);
} kinds[] = {
    {"add", false, true, patch_run_add},
    {"remove", false, false, patch_run_remove},
    {"replace", false, true, patch_run_replace},
    {"move", true, false, run_move},
    {"copy", true, false, run_copy},
    {"test", false, true, run_test},
};

static const struct kind *patch_find_kind(struct value op)
{
    uint32_t length;

    for (size_t i = 0; op.type == BSON_TYPE_UTF8 && i < sizeof kinds / sizeof *kinds; i++) {
        if (!strcmp(kinds[i].name, truce__value_text(op, &length)))
            return &kinds[i];
    }
    return NULL;
}

/* Checks the members of an operation, and runs it. The error names the number of the operation. */
static truce_status patch_run_one(struct patch_tree *tree, struct value given)
{
    struct operation operation;
    const struct kind *kind;
    truce_status status;

    if (given.type != BSON_TYPE_DOCUMENT)
        return truce__fail(TRUCE_INVALID, tree->error,
                           "operation %u must be an object {op, path, ...}", tree->number);
    kind = patch_find_kind(truce__value_field(given, "op", 2));
    if (!kind)
        return truce__fail(TRUCE_INVALID, tree->error,
                           "operation %u: \"op\" must be add, remove, replace, move, copy, or test",
                           tree->number);
    status = read_pointer(tree, truce__value_field(given, "path", 4), "path", &operation.path);
    if (!status && kind->from)
        status = read_pointer(tree, truce__value_field(given, "from", 4), "from", &operation.from);
    operation.value = truce__value_field(given, "value", 5);
    if (!status && kind->value && !operation.value.type)
        status = truce__fail(TRUCE_INVALID, tree->error, "operation %u: \"%s\" needs a \"value\"",
                             tree->number, kind->name);
    return status ? status : kind->run(tree, &operation);
}

truce_status truce__patch_apply(struct value before, const bson_t *operations, struct arena *arena,
                                struct value *after, bson_error_t *error)
{
    struct patch_tree tree = {.arena = arena, .error = error};
    struct fields fields = truce__fields(truce__value_document(operations));
    truce_status status = TRUCE_OK;

    *after = truce__value_missing();
    tree.root = truce__patch_node(&tree, before);
    for (; !status && truce__fields_next(&fields); tree.number++) {
        if (tree.number == PATCH_OPERATIONS_MAX)
            return truce__fail(TRUCE_LIMIT, error, "a patch has at most %d operations",
                               PATCH_OPERATIONS_MAX);
        status = patch_run_one(&tree, fields.value);
    }
    if (status)
        return status;
    *after = truce__patch_value(&tree, tree.root);
    if (after->size > TRUCE_DOCUMENT_BYTES_MAX)
        return truce__fail(TRUCE_LIMIT, error,
                           "the patched document would have %u bytes, more than the maximum of %d",
                           after->size, TRUCE_DOCUMENT_BYTES_MAX);
    return TRUCE_OK;
}

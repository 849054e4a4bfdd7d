/* Templates: a tree of nodes that is compiled once, and walked for each message. */
#include "broker/message_template.h"

#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/nearest_word.h"
#include "bson/value.h"
#include "query/expression/expression.h"

enum template_kind { TEMPLATE_VALUE, TEMPLATE_EXPRESSION, TEMPLATE_DOCUMENT, TEMPLATE_ARRAY };

struct template
{
    enum template_kind kind;
    /* The key of this node in its parent. Owned. */
    char *key;
    /* For TEMPLATE_VALUE. It borrows its bytes from the root's copy. */
    struct value value;
    /* For TEMPLATE_EXPRESSION. */
    struct expression *expression;
    /* The path that the message must have, or NULL if the node has no path. */
    char *path;
    /* The node is within a guard ("if"). */
    bool in_guard;
    struct template *children;
    size_t count;
    /* The copy of the source, in the root only. */
    bson_t source;
};

/* ---- compiling ------------------------------------------------------------------------------- */

static truce_status template_compile(struct template *node, struct value value,
                                     const char *const *names, bson_error_t *error);

/* Checks the name that begins a path, "$NAME.x", against the fields of a message. */
static truce_status template_check_path(const char *path, const char *const *names,
                                        bson_error_t *error)
{
    char *name = bson_strndup(path + 1, strcspn(path + 1, "."));
    struct nearest_word nearest = {.word = name};
    bson_string_t *known = bson_string_new(NULL);
    char hint[NEAREST_WORD_HINT_MAX];
    truce_status status = TRUCE_OK;
    bool found = false;

    for (size_t i = 0; names[i] && !found; i++) {
        found = !strcmp(names[i], name);
        truce__nearest_word_offer(&nearest, names[i]);
        bson_string_append_printf(known, "%s%s", i ? ", " : "", names[i]);
    }
    if (!found)
        status = truce__fail(
            TRUCE_INVALID, error,
            "the path \"%.200s\" fits no message: a message has no field \"%.80s\", only %s%s",
            path, name, known->str,
            nearest.best ? truce__nearest_word_hint(&nearest, hint)
                         : "; {\"$literal\": ...} is a string that begins with $");
    bson_string_free(known, true);
    bson_free(name);
    return status;
}

/* Checks the paths of an expression that begin at the message, and not at a variable of $let, $map,
 * or another operator. */
static truce_status template_check_expression(const struct expression *expression,
                                              const char *const *names, bson_error_t *error)
{
    const char *field = truce__expression_other_field(expression, names);
    char *path = field ? bson_strdup_printf("$%s", field) : NULL;
    truce_status status = field ? template_check_path(path, names, error) : TRUCE_OK;

    bson_free(path);
    return status;
}

/* Compiles an expression, and checks its paths. */
static truce_status template_compile_expression(struct template *node, struct value value,
                                                const char *const *names, bson_error_t *error)
{
    uint32_t length;
    const char *text = value.type == BSON_TYPE_UTF8 ? truce__value_text(value, &length) : "";
    bson_error_t why = {0};
    truce_status status;

    node->kind = TEMPLATE_EXPRESSION;
    status = truce__expression_new(value, NULL, &node->expression, &why);
    if (!status && names && text[0] == '$' && text[1] != '$')
        status = template_check_path(text, names, &why);
    else if (!status && names)
        status = template_check_expression(node->expression, names, &why);
    return status ? truce__fail(TRUCE_INVALID, error, "field '%.80s' of the mapping: %.300s",
                                node->key ? node->key : "", why.message)
                  : TRUCE_OK;
}

/* Compiles the fields of a document or the elements of an array. After a failure, `node` owns the
 * children so far. */
static truce_status template_compile_children(struct template *node, struct value value,
                                              const char *const *names, bson_error_t *error)
{
    struct fields fields = truce__fields(value);
    truce_status status = TRUCE_OK;
    size_t room = 0;

    node->kind = value.type == BSON_TYPE_ARRAY ? TEMPLATE_ARRAY : TEMPLATE_DOCUMENT;
    while (!status && truce__fields_next(&fields)) {
        struct template *child;

        if (node->count == room) {
            room = room ? 2 * room : 8;
            node->children = bson_realloc(node->children, room * sizeof *node->children);
        }
        child = &node->children[node->count++];
        memset(child, 0, sizeof *child);
        child->key = bson_strdup(fields.key);
        child->in_guard = node->in_guard || !strcmp(fields.key, "if");
        status = template_compile(child, fields.value, names, error);
    }
    return status;
}

/* Returns the value of the only field of a document if it has that name. */
static bool template_only(struct value value, const char *name, struct value *only)
{
    struct fields fields;

    if (value.type != BSON_TYPE_DOCUMENT)
        return false;
    fields = truce__fields(value);
    if (!truce__fields_next(&fields) || strcmp(fields.key, name) != 0)
        return false;
    *only = fields.value;
    return !truce__fields_next(&fields);
}

/* Refuses "$expr" next to other fields: it would be stored, and not evaluated. Guards are queries,
 * where $expr is an operator. */
static truce_status template_check_alone(const struct template *node, struct value value,
                                         bson_error_t *error)
{
    if (node->in_guard || value.type != BSON_TYPE_DOCUMENT ||
        truce__value_field(value, "$expr", strlen("$expr")).type == VALUE_MISSING)
        return TRUCE_OK;
    return truce__fail(
        TRUCE_INVALID, error,
        "field '%.80s' of the mapping has \"$expr\" next to other fields: it must be "
        "the only field of its document; {\"$literal\": {...}} is a document that has "
        "the field",
        node->key);
}

/* Compiles a value: {$expr}, {$literal}, a container, "$PATH", or a constant. */
static truce_status template_compile(struct template *node, struct value value,
                                     const char *const *names, bson_error_t *error)
{
    struct value only = value;
    uint32_t length;
    const char *text;

    if (template_only(value, "$expr", &only))
        return template_compile_expression(node, only, names, error);
    if (!template_only(value, "$literal", &only) && truce__value_is_container(value)) {
        truce_status status = template_check_alone(node, value, error);

        return status ? status : template_compile_children(node, value, names, error);
    }
    text = value.type == BSON_TYPE_UTF8 ? truce__value_text(value, &length) : "";
    if (*text == '$') {
        node->path = bson_strdup(text);
        return template_compile_expression(node, value, names, error);
    }
    node->kind = TEMPLATE_VALUE;
    node->value = only;
    return TRUCE_OK;
}

truce_status truce__template_new(const bson_t *source, bool is_array, const char *const *names,
                                 struct template **made, bson_error_t *error)
{
    struct template *root = bson_malloc0(sizeof *root);
    truce_status status;

    *made = root;
    bson_copy_to(source, &root->source);
    status = truce__document_check(&root->source, "mapping", error);
    truce__expression_fold_again();
    if (!status)
        status = template_compile_children(root,
                                           is_array ? truce__value_array(&root->source)
                                                    : truce__value_document(&root->source),
                                           names, error);
    if (status) {
        truce__template_free(root);
        *made = NULL;
    }
    return status;
}

static void template_release(struct template *node)
{
    for (size_t i = 0; i < node->count; i++)
        template_release(&node->children[i]);
    bson_free(node->children);
    bson_free(node->key);
    bson_free(node->path);
    truce__expression_free(node->expression);
}

void truce__template_free(struct template *template)
{
    if (!template)
        return;
    template_release(template);
    bson_destroy(&template->source);
    bson_free(template);
}

/* ---- applying -------------------------------------------------------------------------------- */

struct template_run {
    struct value message;
    struct query_context context;
};

static truce_status template_append(const struct template *node, struct template_run *run,
                                    const char *key, bson_t *to, bson_error_t *error);

static truce_status template_append_children(const struct template *node, struct template_run *run,
                                             bson_t *to, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < node->count && !status; i++) {
        char buffer[16];
        const char *key = node->children[i].key;

        if (node->kind == TEMPLATE_ARRAY)
            bson_uint32_to_string(bson_count_keys(to), &key, buffer, sizeof buffer);
        status = template_append(&node->children[i], run, key, to, error);
    }
    return status;
}

static truce_status template_append_expression(const struct template *node,
                                               struct template_run *run, const char *key,
                                               bson_t *to, bson_error_t *error)
{
    struct value result = truce__value_missing();
    bson_error_t why = {0};
    truce_status status = truce__expression_evaluate(node->expression, run->message, NULL,
                                                     &run->context, &result, &why);

    if (status)
        return truce__fail(TRUCE_INVALID, error, "field '%.80s' of the mapping: %.300s", key,
                           why.message);
    if (result.type == VALUE_MISSING && node->path)
        return truce__fail(TRUCE_INVALID, error, "the message has no \"%.200s\"", node->path + 1);
    if (result.type != VALUE_MISSING)
        truce__value_append(to, key, strlen(key), result);
    return TRUCE_OK;
}

static truce_status template_append(const struct template *node, struct template_run *run,
                                    const char *key, bson_t *to, bson_error_t *error)
{
    bson_t child;
    truce_status status;

    if (node->kind == TEMPLATE_EXPRESSION)
        return template_append_expression(node, run, key, to, error);
    if (node->kind == TEMPLATE_VALUE) {
        truce__value_append(to, key, strlen(key), node->value);
        return TRUCE_OK;
    }
    if (node->kind == TEMPLATE_ARRAY)
        BSON_APPEND_ARRAY_BEGIN(to, key, &child);
    else
        BSON_APPEND_DOCUMENT_BEGIN(to, key, &child);
    status = template_append_children(node, run, &child, error);
    if (node->kind == TEMPLATE_ARRAY)
        bson_append_array_end(to, &child);
    else
        bson_append_document_end(to, &child);
    return status;
}

truce_status truce__template_apply(const struct template *template, const bson_t *message,
                                   struct arena *arena, bson_t *result, bson_error_t *error)
{
    struct template_run run = {.message = truce__value_document(message),
                               .context = {.now_ms = truce__clock_wall_ms(), .arena = arena}};
    truce_status status;

    bson_init(result);
    status = template_append_children(template, &run, result, error);
    return status ? status : truce__document_check(result, "mapped message", error);
}

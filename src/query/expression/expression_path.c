#include "base/assert.h"
#include "base/limits.h"
#include "query/expression/expression_tree.h"

/*
 * Variables and field paths: "$$name", "$$name.a.b", and "$a.b", which is "$$CURRENT.a.b".
 *
 * A path is walked through documents by name. If it reaches an array, the values that it finds in
 * the array's documents form an array ("$a.b" of {a: [{b: 1}, 5, {b: 2}]} is [1, 2]). A number in a
 * path is a name like any other.
 */

/* -- evaluating ------------------------------------------------------------------------------- */

struct field_path {
    uint32_t count;
    struct expression_key parts[];
};

/* Evaluates the rest of a path for a value. If the value is an array, the results of its documents
 * form an array (elements that are not documents are skipped); an array within it forms an array
 * within the result. `outer` collects the results; it is NULL until the path has led to an
 * array. */
struct walk {
    const struct field_path *path;
    struct evaluation *run;
    uint32_t slot;
    truce_status status;
};

static struct value walk_array(struct walk *walk, uint32_t part, struct value array,
                               struct builder *outer);

/* Follows the path from part `part` on, and appends the result to `outer` if it is not NULL. */
static struct value walk_value(struct walk *walk, uint32_t part, struct value value,
                               struct builder *outer)
{
    const struct field_path *path = walk->path;

    for (; part < path->count; part++) {
        if (value.type == BSON_TYPE_ARRAY)
            return walk_array(walk, part, value, outer);
        if (value.type != BSON_TYPE_DOCUMENT)
            return truce__value_missing();
        if (!walk->status)
            walk->status =
                truce__evaluation_field(walk->run, walk->slot, value, &path->parts[part], &value);
        if (walk->status)
            return truce__value_missing();
    }
    if (outer && value.type != VALUE_MISSING)
        truce__builder_element(outer, value);
    return value;
}

static void walk_items(struct walk *walk, uint32_t part, struct value array,
                       struct builder *builder)
{
    struct fields fields = truce__fields(array);

    while (truce__fields_next(&fields)) {
        if (fields.value.type == BSON_TYPE_DOCUMENT)
            /* The result is appended to the builder. */
            (void)walk_value(walk, part, fields.value, builder);
    }
}

/* Follows the rest of the path in the documents of an array. Without `outer`, returns a new
 * array. */
static struct value walk_array(struct walk *walk, uint32_t part, struct value array,
                               struct builder *outer)
{
    struct value result = truce__value_missing();
    struct builder own;
    struct builder_mark mark;

    if (!outer) {
        truce__evaluation_build(walk->run, &own, BSON_TYPE_ARRAY);
        walk_items(walk, part, array, &own);
        if (!walk->status)
            walk->status = truce__builder_finish(&own, &result, walk->run->error);
        return result;
    }
    mark = truce__builder_open_element(outer, BSON_TYPE_ARRAY);
    walk_items(walk, part, array, outer);
    truce__builder_close(outer, mark);
    return result;
}

static truce_status evaluate_path(const struct expression_node *node, struct evaluation *run,
                                  struct value *result)
{
    struct walk walk = {.path = node->extra, .run = run, .slot = node->slot};

    *result = walk_value(&walk, 0, run->slots[node->slot], NULL);
    return walk.status;
}

/* Evaluates the usual path: one field of a document. */
static truce_status evaluate_field(const struct expression_node *node, struct evaluation *run,
                                   struct value *result)
{
    const struct field_path *path = node->extra;
    struct value document = run->slots[node->slot];

    if (document.type != BSON_TYPE_DOCUMENT)
        return evaluate_path(node, run, result);
    return truce__evaluation_field(run, node->slot, document, &path->parts[0], result);
}

const struct expression_key *truce__expression_single_field(const struct expression_node *node)
{
    return node->evaluate == evaluate_field ? ((const struct field_path *)node->extra)->parts
                                            : NULL;
}

const struct expression_key *truce__expression_first_field(const struct expression_node *node)
{
    return node->evaluate == evaluate_field || node->evaluate == evaluate_path
               ? ((const struct field_path *)node->extra)->parts
               : NULL;
}

static truce_status evaluate_variable(const struct expression_node *node, struct evaluation *run,
                                      struct value *result)
{
    *result = run->slots[node->slot];
    return TRUCE_OK;
}

bool truce__expression_is_variable(const struct expression_node *node, uint32_t slot)
{
    return node->evaluate == evaluate_variable && node->slot == slot;
}

/* Evaluates "$$name.a" for a variable of the command. */
static truce_status evaluate_path_of_constant(const struct expression_node *node,
                                              struct evaluation *run, struct value *result)
{
    struct walk walk = {.path = node->extra, .run = run, .slot = UINT32_MAX};

    *result = walk_value(&walk, 0, node->value, NULL);
    return walk.status;
}

static truce_status evaluate_now(const struct expression_node *node, struct evaluation *run,
                                 struct value *result)
{
    *result = truce__value_from_date(run->arena, run->context->now_ms);
    return TRUCE_OK;
}

/* -- names of variables ----------------------------------------------------------------------- */

static bool path_is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c & 0x80);
}

static bool path_is_word(char c)
{
    return path_is_letter(c) || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool is_words(const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (!path_is_word(name[i]))
            return false;
    }
    return true;
}

truce_status truce__expression_variable_check(const char *name, size_t length, bson_error_t *error)
{
    if (length == 0)
        return truce__refuse(16866, error, "a variable's name is empty");
    if (length == 7 && !memcmp(name, "CURRENT", 7))
        return TRUCE_OK;
    if (!path_is_letter(name[0]))
        return truce__refuse(16867, error,
                             "a variable's name must start with a lower-case letter: \"%.*s\"",
                             (int)length, name);
    if (!is_words(name, length))
        return truce__refuse(16868, error,
                             "a variable's name takes letters, digits and '_' only: \"%.*s\"",
                             (int)length, name);
    return TRUCE_OK;
}

void truce__expression_scope_enter(struct expression_compiler *compiler,
                                   struct expression_scope *scope, const char *name, size_t length)
{
    *scope = (struct expression_scope){compiler->scope, name, length, compiler->slots++};
    compiler->scope = scope;
}

static const struct expression_scope *find_variable(const struct expression_compiler *compiler,
                                                    const char *name, size_t length)
{
    const struct expression_scope *scope = compiler->scope;

    while (scope && (scope->name_length != length || memcmp(scope->name, name, length)))
        scope = scope->outer;
    return scope;
}

/* -- variables of the command ------------------------------------------------------------------ */

/* The value of $$CLUSTER_TIME in this thread, or 0 if it is not available. */
static _Thread_local uint64_t cluster_time;
static _Thread_local const bson_t *let_values;
static _Thread_local bool let_alone;

void truce__cluster_time_begin(uint64_t time)
{
    cluster_time = time;
}

void truce__let_begin(const bson_t *values, bool alone)
{
    let_values = values;
    let_alone = alone;
}

bool truce__let_alone(bool alone)
{
    bool before = let_alone;

    let_alone = alone;
    return before;
}

static struct value find_let(const char *name, size_t length)
{
    return let_values ? truce__value_field(truce__value_document(let_values), name, length)
                      : truce__value_missing();
}

static truce_status check_alone(const struct expression_scope *scope, bson_error_t *error)
{
    return let_alone && (!strcmp(scope->name, "ROOT") || !strcmp(scope->name, "CURRENT"))
               ? truce__refuse(4890500, error, "the expression has no document to read a field of")
               : TRUCE_OK;
}

static truce_status check_read_name(const char *name, size_t length, bson_error_t *error)
{
    if (length == 0)
        return truce__refuse(16869, error, "a variable's name is empty: \"$$\"");
    if (!path_is_letter(name[0]) && !(name[0] >= 'A' && name[0] <= 'Z'))
        return truce__refuse(16870, error, "a variable's name must start with a letter: \"%.*s\"",
                             (int)length, name);
    if (!is_words(name, length))
        return truce__refuse(16871, error,
                             "a variable's name takes letters, digits and '_' only: \"%.*s\"",
                             (int)length, name);
    return TRUCE_OK;
}

/* -- compiling -------------------------------------------------------------------------------- */

truce_status truce__expression_field_check(const char *part, size_t length, bson_error_t *error)
{
    if (length == 0)
        return truce__refuse(15998, error, "a field path has an empty field name");
    if (part[0] == '$')
        return truce__refuse(16410, error, "a field name in a path starts with '$': \"%.*s\"",
                             (int)length, part);
    if (memchr(part, '\0', length))
        return truce__refuse(16411, error, "a field name in a path contains a zero byte");
    return TRUCE_OK;
}

/* Compiles "a.b" after a variable, which the node reads from `slot`. */
static truce_status compile_path(struct expression_compiler *compiler, uint32_t slot,
                                 const char *text, size_t length, struct expression_node **result)
{
    struct expression_node *node = truce__expression_node(compiler, NULL, 0);
    struct field_path *path;
    uint32_t count = 1;
    const char *at = text, *end = text + length;

    if (length > 0 && end[-1] == '.')
        return truce__refuse(40353, compiler->error, "a field path ends with '.': \"%.*s\"",
                             (int)BSON_MIN(length, 200), text);
    for (const char *c = text; c < end; c++)
        count += *c == '.';
    if (count > TRUCE_DOCUMENT_DEPTH_MAX)
        return truce__refuse(CODE_OVERFLOW, compiler->error, "a field path has more than %d parts",
                             TRUCE_DOCUMENT_DEPTH_MAX);
    path = truce__arena_take(compiler->arena, sizeof *path + count * sizeof *path->parts);
    path->count = count;
    for (uint32_t i = 0; i < count; i++) {
        const char *dot = memchr(at, '.', (size_t)(end - at));
        size_t part = (size_t)((dot ? dot : end) - at);
        truce_status status = truce__expression_field_check(at, part, compiler->error);
        if (status)
            return status;
        /* A copy of the part, NUL-terminated. */
        char *name = truce__arena_take(compiler->arena, part + 1);
        memcpy(name, at, part);
        name[part] = '\0';
        path->parts[i] = (struct expression_key){name, (uint32_t)part};
        at += part + 1;
    }
    node->evaluate = count == 1 ? evaluate_field : evaluate_path;
    node->slot = slot;
    node->extra = path;
    *result = node;
    return TRUCE_OK;
}

/* Compiles $$NOW, $$REMOVE, or $$CLUSTER_TIME. Fails with 17276 for an unknown variable. */
static truce_status compile_system_variable(struct expression_compiler *compiler, const char *name,
                                            size_t length, struct expression_node **node)
{
    if (length == 3 && !memcmp(name, "NOW", 3)) {
        *node = truce__expression_node(compiler, NULL, 0);
        (*node)->evaluate = evaluate_now;
        return TRUCE_OK;
    }
    if (length == 6 && !memcmp(name, "REMOVE", 6)) {
        *node = truce__expression_constant(compiler, truce__value_missing());
        return TRUCE_OK;
    }
    if (length == 12 && !memcmp(name, "CLUSTER_TIME", 12)) {
        struct value time = truce__value_from_int64(compiler->arena, (int64_t)cluster_time);

        if (!cluster_time)
            return truce__refuse(
                10071200, compiler->error,
                "$$CLUSTER_TIME is available only on a replica set (truce serve --replica-set "
                "NAME)");
        time.type = BSON_TYPE_TIMESTAMP;
        *node = truce__expression_constant(compiler, time);
        return TRUCE_OK;
    }
    return truce__refuse(17276, compiler->error, "unknown variable $$%.*s",
                         (int)BSON_MIN(length, 200), name);
}

/* Compiles the rest of "$$name" or "$$name.path" of a variable of the command. */
static truce_status path_compile_let(struct expression_compiler *compiler, struct value value,
                                     const char *path, size_t length, struct expression_node **node)
{
    truce_status status;

    value = truce__value_copy(compiler->arena, value);
    if (!path) {
        *node = truce__expression_constant(compiler, value);
        return TRUCE_OK;
    }
    status = compile_path(compiler, UINT32_MAX, path, length, node);
    if (status)
        return status;
    (*node)->evaluate = evaluate_path_of_constant;
    (*node)->value = value;
    return TRUCE_OK;
}

/* Compiles $$name or $$name.path. */
static truce_status compile_variable(struct expression_compiler *compiler, const char *text,
                                     size_t length, struct expression_node **node)
{
    const char *dot = memchr(text, '.', length);
    size_t name_length = dot ? (size_t)(dot - text) : length;
    const struct expression_scope *scope = find_variable(compiler, text, name_length);
    truce_status status = check_read_name(text, name_length, compiler->error);
    struct value of_command = truce__value_missing();

    if (!status && scope)
        status = check_alone(scope, compiler->error);
    if (status)
        return status;
    if (text[length - 1] == '.')
        return truce__refuse(40353, compiler->error, "a field path ends with '.': \"$$%.*s\"",
                             (int)BSON_MIN(length, 200), text);
    if (!scope)
        of_command = find_let(text, name_length);
    if (of_command.type != VALUE_MISSING)
        return path_compile_let(compiler, of_command, dot ? dot + 1 : NULL,
                                dot ? length - name_length - 1 : 0, node);
    if (!scope && !dot)
        return compile_system_variable(compiler, text, name_length, node);
    if (!scope) {
        /* $$NOW and $$REMOVE have no fields, so the value of a path is missing. The path is still
         * checked. */
        status = compile_system_variable(compiler, text, name_length, node);
        if (!status)
            status = compile_path(compiler, 0, dot + 1, length - name_length - 1, node);
        *node = truce__expression_constant(compiler, truce__value_missing());
        return status;
    }
    if (dot)
        return compile_path(compiler, scope->slot, dot + 1, length - name_length - 1, node);
    *node = truce__expression_node(compiler, NULL, 0);
    (*node)->evaluate = evaluate_variable;
    (*node)->slot = scope->slot;
    return TRUCE_OK;
}

truce_status truce__expression_compile_text(struct expression_compiler *compiler,
                                            struct value source, struct expression_node **node)
{
    uint32_t length;
    const char *text = truce__value_text(source, &length);
    const struct expression_scope *current;

    if (length == 0 || text[0] != '$') {
        *node = truce__expression_constant(compiler, source);
        return TRUCE_OK;
    }
    if (length == 1)
        return truce__refuse(16872, compiler->error, "\"$\" by itself is not a field path");
    if (text[1] == '$')
        return compile_variable(compiler, text + 2, length - 2, node);
    current = find_variable(compiler, "CURRENT", 7);
    truce_assert(current);
    if (check_alone(current, compiler->error))
        return TRUCE_INVALID;
    return compile_path(compiler, current->slot, text + 1, length - 1, node);
}

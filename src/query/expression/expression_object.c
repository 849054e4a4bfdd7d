#include "bson/field_path.h"
#include "bson/refuse_value.h"
#include "query/expression/expression_tree.h"

/* Documents: merging, conversion to and from lists of fields, fields with a computed name. */

static truce_status object_out_of_memory(struct evaluation *run)
{
    return truce__refuse(CODE_EXCEEDED_MEMORY_LIMIT, run->error,
                         "a document made by an expression takes more than %zu bytes of memory",
                         run->bytes_max);
}

static truce_status write_table(struct evaluation *run, const struct field_table *table,
                                struct value *result)
{
    struct builder builder;

    truce__evaluation_build(run, &builder, BSON_TYPE_DOCUMENT);
    truce__field_table_write(table, &builder);
    return truce__builder_finish(&builder, result, run->error);
}

/* -- $mergeObjects ---------------------------------------------------------------------------- */

/* Sets the fields of a document in the table. Null and missing values change nothing. */
static truce_status object_merge(struct evaluation *run, struct field_table *table,
                                 struct value document)
{
    struct fields fields;

    if (truce__value_is_nullish(document))
        return TRUCE_OK;
    if (document.type != BSON_TYPE_DOCUMENT)
        return truce__refuse(40400, run->error, "$mergeObjects takes documents, not %s",
                             truce__type_name(document.type));
    fields = truce__fields(document);
    while (truce__fields_next(&fields)) {
        if (!truce__field_table_set(table, fields.key, fields.key_length, fields.value))
            return object_out_of_memory(run);
    }
    return TRUCE_OK;
}

static truce_status object_merge_items(struct evaluation *run, struct field_table *table,
                                       struct value array)
{
    struct fields fields = truce__fields(array);
    truce_status status = TRUCE_OK;

    while (!status && truce__fields_next(&fields))
        status = object_merge(run, table, fields.value);
    return status;
}

/* Evaluates $mergeObjects. A single operand that is an array has the documents. */
static truce_status evaluate_merge(const struct expression_node *node, struct evaluation *run,
                                   struct value *result)
{
    struct field_table table;

    truce__field_table_begin(&table, run->arena, run->bytes_max);
    for (uint32_t i = 0; i < node->count; i++) {
        struct value operand;
        truce_status status = truce__expression_run(node->operands[i], run, &operand);
        if (status)
            return status;
        if (node->count == 1 && operand.type == BSON_TYPE_ARRAY)
            status = object_merge_items(run, &table, operand);
        else
            status = object_merge(run, &table, operand);
        if (status)
            return status;
    }
    return write_table(run, &table, result);
}

/* -- $objectToArray, $arrayToObject ----------------------------------------------------------- */

/* Applies $objectToArray: [{k, v}, ...]. */
static truce_status apply_to_array(const struct expression_node *node, struct evaluation *run,
                                   const struct value *operands, struct value *result)
{
    struct fields fields;
    struct builder builder;

    if (truce__value_is_nullish(operands[0]))
        return truce__evaluation_null(result);
    if (operands[0].type != BSON_TYPE_DOCUMENT)
        return truce__refuse(40390, run->error, "$objectToArray takes a document, not %s",
                             truce__type_name(operands[0].type));
    truce__evaluation_build(run, &builder, BSON_TYPE_ARRAY);
    fields = truce__fields(operands[0]);
    while (!builder.full && truce__fields_next(&fields)) {
        struct builder_mark mark = truce__builder_open_element(&builder, BSON_TYPE_DOCUMENT);
        truce__builder_append_text(&builder, "k", 1, fields.key, fields.key_length);
        truce__builder_append(&builder, "v", 1, fields.value);
        truce__builder_close(&builder, mark);
    }
    return truce__builder_finish(&builder, result, run->error);
}

struct pair_codes {
    uint32_t type, count, names, key, zero;
};

static const struct pair_codes list_codes = {40396, 40397, 0, 40395, 4940400};
static const struct pair_codes document_codes = {40391, 40392, 40393, 40394, 4940401};

/* Reads a pair [key, value]. */
static truce_status object_read_list(struct evaluation *run, struct value item,
                                     struct value pair[2])
{
    struct fields fields = truce__fields(item);

    for (int i = 0; i < 2; i++)
        pair[i] = truce__fields_next(&fields) ? fields.value : truce__value_missing();
    if (pair[1].type == VALUE_MISSING || truce__fields_next(&fields))
        return truce__refuse_value(list_codes.count, item, run->error,
                                   "$arrayToObject takes arrays of two elements, name and value");
    return TRUCE_OK;
}

/* Reads a pair {k: key, v: value}. */
static truce_status object_read_document(struct evaluation *run, struct value item,
                                         struct value pair[2])
{
    if (truce__array_count(item) != 2)
        return truce__refuse_value(document_codes.count, item, run->error,
                                   "$arrayToObject takes documents of two fields, \"k\" and \"v\"");
    pair[0] = truce__value_field(item, "k", 1);
    pair[1] = truce__value_field(item, "v", 1);
    if (pair[0].type == VALUE_MISSING || pair[1].type == VALUE_MISSING)
        return truce__refuse_value(
            document_codes.names, item, run->error,
            "$arrayToObject takes documents with the fields \"k\" and \"v\"");
    return TRUCE_OK;
}

/* Sets the field that a pair describes. The name must be a string without a zero byte. */
static truce_status set_pair(struct evaluation *run, struct field_table *table,
                             const struct pair_codes *codes, const struct value pair[2])
{
    uint32_t length;
    const char *key;

    if (pair[0].type != BSON_TYPE_UTF8)
        return truce__refuse(codes->key, run->error,
                             "$arrayToObject takes strings as names, not %s",
                             truce__type_name(pair[0].type));
    key = truce__value_text(pair[0], &length);
    if (memchr(key, '\0', length))
        return truce__refuse(codes->zero, run->error,
                             "a name in $arrayToObject contains a zero byte");
    return truce__field_table_set(table, key, length, pair[1]) ? TRUCE_OK
                                                               : object_out_of_memory(run);
}

/* Sets the fields that the items of $arrayToObject describe. All items must have the form of the
 * first one. */
static truce_status add_pairs(struct evaluation *run, struct field_table *table, struct value array)
{
    struct fields fields = truce__fields(array);
    /* The type of the first item. All items must have it. */
    uint8_t type = 0;

    while (truce__fields_next(&fields)) {
        struct value item = fields.value, pair[2];
        const struct pair_codes *codes = type == BSON_TYPE_ARRAY ? &list_codes : &document_codes;
        truce_status status;
        if (!type && !truce__value_is_container(item))
            return truce__refuse(40398, run->error,
                                 "$arrayToObject takes arrays or documents inside, not %s",
                                 truce__type_name(item.type));
        if (type && item.type != type)
            return truce__refuse(codes->type, run->error,
                                 "$arrayToObject takes items of one form only, and has %s and %s",
                                 truce__type_name(type), truce__type_name(item.type));
        type = item.type;
        codes = type == BSON_TYPE_ARRAY ? &list_codes : &document_codes;
        status = type == BSON_TYPE_ARRAY ? object_read_list(run, item, pair)
                                         : object_read_document(run, item, pair);
        if (!status)
            status = set_pair(run, table, codes, pair);
        if (status)
            return status;
    }
    return TRUCE_OK;
}

static truce_status apply_to_object(const struct expression_node *node, struct evaluation *run,
                                    const struct value *operands, struct value *result)
{
    struct field_table table;
    truce_status status;

    if (truce__value_is_nullish(operands[0]))
        return truce__evaluation_null(result);
    if (operands[0].type != BSON_TYPE_ARRAY)
        return truce__refuse(40386, run->error, "$arrayToObject takes an array, not %s",
                             truce__type_name(operands[0].type));
    truce__field_table_begin(&table, run->arena, run->bytes_max);
    status = add_pairs(run, &table, operands[0]);
    return status ? status : write_table(run, &table, result);
}

/* -- $getField, $setField, $unsetField --------------------------------------------------------- */

enum { FIELD_NAME, FIELD_INPUT, FIELD_VALUE };

/* Applies $getField. The name may contain dots and begin with `$`. */
static truce_status apply_get(const struct expression_node *node, struct evaluation *run,
                              const struct value *operands, struct value *result)
{
    uint32_t length;
    const char *name;

    if (operands[FIELD_NAME].type != BSON_TYPE_UTF8)
        return truce__refuse(3041704, run->error, "\"field\" of $getField must be a string, not %s",
                             truce__type_name(operands[FIELD_NAME].type));
    *result = truce__value_missing();
    if (operands[FIELD_INPUT].type == BSON_TYPE_DOCUMENT) {
        name = truce__value_text(operands[FIELD_NAME], &length);
        *result = truce__value_field(operands[FIELD_INPUT], name, length);
    } else if (operands[FIELD_INPUT].type != VALUE_MISSING &&
               truce__value_is_nullish(operands[FIELD_INPUT])) {
        return truce__evaluation_null(result);
    }
    return TRUCE_OK;
}

static const struct expression_arguments get_arguments = {
    0, 3041701, {{"field", 3041702}, {"input", 3041703}}};

/* Compiles {field, input}, or the name of a field of the current document. */
static truce_status compile_get(struct expression_compiler *compiler,
                                const struct expression_operator *operator, struct value argument,
                                struct expression_node **node)
{
    static const char current[] = "\x0a\0\0\0$$CURRENT";
    struct value input = {(const uint8_t *)current, sizeof current, BSON_TYPE_UTF8};
    struct fields fields;
    truce_status status;

    if (argument.type == BSON_TYPE_DOCUMENT) {
        fields = truce__fields(argument);
        if (!truce__fields_next(&fields) || fields.key[0] != '$') {
            status = truce__expression_compile_named(compiler, operator, argument, node);
            return status ? status : truce__expression_fold(compiler, node);
        }
    }
    *node = truce__expression_node(compiler, operator, 2);
    status = truce__expression_compile(compiler, argument, &(*node)->operands[FIELD_NAME]);
    if (!status)
        status = truce__expression_compile(compiler, input, &(*node)->operands[FIELD_INPUT]);
    return status;
}

/* Applies $setField or $unsetField. A missing value removes the field. */
static truce_status apply_set(const struct expression_node *node, struct evaluation *run,
                              const struct value *operands, struct value *result)
{
    bool unset = node->count <= FIELD_VALUE;
    struct value value = unset ? truce__value_missing() : operands[FIELD_VALUE];
    struct field_table table;
    uint32_t length;
    const char *name = truce__value_text(operands[FIELD_NAME], &length);
    truce_status status;

    if (truce__value_is_nullish(operands[FIELD_INPUT]))
        return truce__evaluation_null(result);
    if (operands[FIELD_INPUT].type != BSON_TYPE_DOCUMENT)
        return truce__refuse(4161105, run->error, "\"input\" of %s must be a document, not %s",
                             truce__expression_name(node),
                             truce__type_name(operands[FIELD_INPUT].type));
    truce__field_table_begin(&table, run->arena, run->bytes_max);
    status = object_merge(run, &table, operands[FIELD_INPUT]);
    if (!status && !truce__field_table_set(&table, name, length, value))
        status = object_out_of_memory(run);
    return status ? status : write_table(run, &table, result);
}

/* Checks the operand "field" of an operator that sets or removes a field: a constant name. */
static truce_status prepare_set(struct expression_compiler *compiler, struct expression_node *node)
{
    const struct expression_node *name = node->operands[FIELD_NAME];
    uint32_t length;
    const char *text;

    if (!truce__expression_is_constant_node(name) && !name->operator)
        return truce__refuse(
            4161108, compiler->error,
            "\"field\" of %s must be a name; $literal takes one that starts with $",
            truce__expression_name(node));
    if (!truce__expression_is_constant_node(name))
        return truce__refuse(4161106, compiler->error, "\"field\" of %s must be a constant",
                             truce__expression_name(node));
    if (name->value.type != BSON_TYPE_UTF8)
        return truce__refuse(4161107, compiler->error, "\"field\" of %s must be a string, not %s",
                             truce__expression_name(node), truce__type_name(name->value.type));
    text = truce__value_text(name->value, &length);
    if (memchr(text, '\0', length))
        return truce__refuse(16411, compiler->error, "\"field\" of %s contains a zero byte",
                             truce__expression_name(node));
    return TRUCE_OK;
}

static const struct expression_arguments set_arguments = {
    4161100, 4161101, {{"field", 4161102}, {"input", 4161109}, {"value", 4161103}}};
static const struct expression_arguments unset_arguments = {
    4161100, 4161101, {{"field", 4161102}, {"input", 4161109}}};

/* -- sizes ------------------------------------------------------------------------------------ */

static truce_status apply_document_size(const struct expression_node *node, struct evaluation *run,
                                        const struct value *operands, struct value *result)
{
    if (truce__value_is_nullish(operands[0]))
        return truce__evaluation_null(result);
    if (operands[0].type != BSON_TYPE_DOCUMENT)
        return truce__refuse(31393, run->error, "$bsonSize takes a document, not %s",
                             truce__type_name(operands[0].type));
    *result = truce__value_from_int32(run->arena, (int32_t)operands[0].size);
    return TRUCE_OK;
}

static truce_status apply_binary_size(const struct expression_node *node, struct evaluation *run,
                                      const struct value *operands, struct value *result)
{
    if (truce__value_is_nullish(operands[0]))
        return truce__evaluation_null(result);
    if (operands[0].type != BSON_TYPE_BINARY && operands[0].type != BSON_TYPE_UTF8)
        return truce__refuse(51276, run->error, "$binarySize takes a string or a binary, not %s",
                             truce__type_name(operands[0].type));
    /* BSON's size counts 5 bytes besides the content: for binary, length and subtype; for a string,
     * length and NUL. */
    *result = truce__value_from_int32(run->arena, (int32_t)operands[0].size - 5);
    return TRUCE_OK;
}

const struct expression_operator truce__expressions_object[] = {
    {"$mergeObjects", 0, EXPRESSION_ANY, .evaluate = evaluate_merge},
    {"$objectToArray", 1, 1, .apply = apply_to_array},
    {"$arrayToObject", 1, 1, .apply = apply_to_object},
    {"$getField", .apply = apply_get, .compile = compile_get, .arguments = &get_arguments},
    {"$setField", .apply = apply_set, .arguments = &set_arguments, .prepare = prepare_set},
    {"$unsetField", .apply = apply_set, .arguments = &unset_arguments, .prepare = prepare_set},
    {"$bsonSize", 1, 1, .apply = apply_document_size},
    {"$binarySize", 1, 1, .apply = apply_binary_size},
    {NULL},
};

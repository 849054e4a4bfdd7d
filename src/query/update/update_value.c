/*
 * Operators on one value: $set, $setOnInsert, $unset, $inc, $mul, $min, $max, $bit, $currentDate,
 * $rename.
 *
 * Numbers keep the narrowest type that holds the result: int32 grows into int64, double and decimal
 * win over integers, and an int64 that would overflow is an error, never a rounded double. $inc and
 * $mul keep the old bytes where type and value stay the same (1.0 for 1.00, 0.0 for -0.0); NaN
 * differs from itself, so it counts as a change.
 */
#include "query/update/update_tree.h"

#include "base/assert.h"
#include "bson/number.h"

truce_status truce__update_parse_set(struct update_parser *parser, struct update_leaf *leaf,
                                     bson_error_t *error)
{
    (void)parser, (void)error;
    leaf->depth = truce__update_depth(leaf->operand);
    return TRUCE_OK;
}

truce_status truce__update_set(struct update_run *run, const struct update_leaf *leaf,
                               const struct update_place *place, struct value old,
                               struct value *new, bson_error_t *error)
{
    (void)run, (void)place, (void)old, (void)error;
    *new = leaf->operand;
    return TRUCE_OK;
}

truce_status truce__update_unset(struct update_run *run, const struct update_leaf *leaf,
                                 const struct update_place *place, struct value old,
                                 struct value *new, bson_error_t *error)
{
    (void)run, (void)leaf, (void)place, (void)old, (void)error;
    *new = truce__value_missing();
    return TRUCE_OK;
}

truce_status truce__update_parse_number(struct update_parser *parser, struct update_leaf *leaf,
                                        bson_error_t *error)
{
    (void)parser;
    if (truce__value_is_number(leaf->operand))
        return TRUCE_OK;
    return truce__refuse(CODE_TYPE_MISMATCH, error, "%s of '%s' wants a number, not %s",
                         leaf->operator->name, leaf->path, truce__type_name(leaf->operand.type));
}

static truce_status value_combine(struct update_run *run, const struct update_leaf *leaf,
                                  const struct update_place *place, enum number_operation operation,
                                  struct value old, struct value *new, bson_error_t *error)
{
    struct value before = old;
    bool overflow = false;
    char path[256];

    if (old.type == VALUE_MISSING)
        old = truce__value_from_int32(run->context->arena, 0);
    if (!truce__value_is_number(old))
        return truce__refuse(CODE_TYPE_MISMATCH, error, "%s of '%s': the field is %s, no number",
                             leaf->operator->name,
                             truce__update_place_show(place, path, sizeof path),
                             truce__type_name(old.type));
    *new = truce__number_combine(operation, old, leaf->operand, run->context->arena, &overflow);
    if (overflow)
        return truce__refuse(CODE_BAD_VALUE, error, "%s of '%s' exceeds 64 bits",
                             leaf->operator->name,
                             truce__update_place_show(place, path, sizeof path));
    if (truce__number_is_nan(*new))
        run->changes++;
    else if (new->type == before.type && truce__number_compare(*new, before) == 0)
        *new = before;
    return TRUCE_OK;
}

truce_status truce__update_inc(struct update_run *run, const struct update_leaf *leaf,
                               const struct update_place *place, struct value old,
                               struct value *new, bson_error_t *error)
{
    if (old.type == VALUE_MISSING) {
        *new = leaf->operand;
        return TRUCE_OK;
    }
    return value_combine(run, leaf, place, NUMBER_ADD, old, new, error);
}

truce_status truce__update_mul(struct update_run *run, const struct update_leaf *leaf,
                               const struct update_place *place, struct value old,
                               struct value *new, bson_error_t *error)
{
    return value_combine(run, leaf, place, NUMBER_MULTIPLY, old, new, error);
}

truce_status truce__update_min(struct update_run *run, const struct update_leaf *leaf,
                               const struct update_place *place, struct value old,
                               struct value *new, bson_error_t *error)
{
    bool replace = old.type == VALUE_MISSING || truce__value_compare(leaf->operand, old) < 0;

    (void)run, (void)place, (void)error;
    *new = replace ? leaf->operand : old;
    return TRUCE_OK;
}

truce_status truce__update_max(struct update_run *run, const struct update_leaf *leaf,
                               const struct update_place *place, struct value old,
                               struct value *new, bson_error_t *error)
{
    bool replace = old.type == VALUE_MISSING || truce__value_compare(leaf->operand, old) > 0;

    (void)run, (void)place, (void)error;
    *new = replace ? leaf->operand : old;
    return TRUCE_OK;
}

static bool is_bit_name(const char *name)
{
    return strcmp(name, "and") == 0 || strcmp(name, "or") == 0 || strcmp(name, "xor") == 0;
}

truce_status truce__update_parse_bit(struct update_parser *parser, struct update_leaf *leaf,
                                     bson_error_t *error)
{
    struct fields fields;
    uint32_t count = 0;

    (void)parser;
    if (leaf->operand.type != BSON_TYPE_DOCUMENT)
        return truce__refuse(CODE_BAD_VALUE, error, "$bit of '%s' wants a document, not %s",
                             leaf->path, truce__type_name(leaf->operand.type));
    fields = truce__fields(leaf->operand);
    for (; truce__fields_next(&fields); count++) {
        if (!is_bit_name(fields.key))
            return truce__refuse(CODE_BAD_VALUE, error,
                                 "$bit of '%s' knows 'and', 'or' and 'xor', not '%s'", leaf->path,
                                 fields.key);
        if (!truce__value_is_integer(fields.value))
            return truce__refuse(CODE_BAD_VALUE, error, "$bit of '%s' wants an integer, not %s",
                                 leaf->path, truce__type_name(fields.value.type));
    }
    if (!count)
        return truce__refuse(CODE_BAD_VALUE, error, "$bit of '%s' has no 'and', 'or' or 'xor'",
                             leaf->path);
    return TRUCE_OK;
}

static int64_t bits(const char *name, int64_t a, int64_t b)
{
    if (name[0] == 'a')
        return a & b;
    return name[0] == 'o' ? a | b : a ^ b;
}

truce_status truce__update_bit(struct update_run *run, const struct update_leaf *leaf,
                               const struct update_place *place, struct value old,
                               struct value *new, bson_error_t *error)
{
    struct fields fields = truce__fields(leaf->operand);
    bool wide = old.type == BSON_TYPE_INT64;
    int64_t result = 0;
    char path[256];

    if (old.type != VALUE_MISSING && !truce__value_is_integer(old))
        return truce__refuse(CODE_BAD_VALUE, error, "$bit of '%s': the field is %s, no integer",
                             truce__update_place_show(place, path, sizeof path),
                             truce__type_name(old.type));
    if (old.type != VALUE_MISSING)
        result = truce__value_integer(old);
    while (truce__fields_next(&fields)) {
        result = bits(fields.key, result, truce__value_integer(fields.value));
        wide = wide || fields.value.type == BSON_TYPE_INT64;
    }
    *new = wide ? truce__value_from_int64(run->context->arena, result)
                : truce__value_from_int32(run->context->arena, (int32_t)result);
    return TRUCE_OK;
}

static truce_status parse_date_type(struct update_leaf *leaf, bson_error_t *error)
{
    struct fields fields = truce__fields(leaf->operand);
    bool known = false;

    while (truce__fields_next(&fields)) {
        uint32_t length;
        const char *text;

        if (strcmp(fields.key, "$type") != 0)
            return truce__refuse(CODE_BAD_VALUE, error, "$currentDate of '%s' has no option '%s'",
                                 leaf->path, fields.key);
        if (fields.value.type != BSON_TYPE_UTF8)
            continue;
        text = truce__value_text(fields.value, &length);
        if (strcmp(text, "date") == 0 || strcmp(text, "timestamp") == 0) {
            leaf->as.timestamp = text[0] == 't';
            known = true;
        }
    }
    if (!known)
        return truce__refuse(CODE_BAD_VALUE, error,
                             "$currentDate of '%s': $type is 'date' or 'timestamp'", leaf->path);
    return TRUCE_OK;
}

truce_status truce__update_parse_date(struct update_parser *parser, struct update_leaf *leaf,
                                      bson_error_t *error)
{
    (void)parser;
    leaf->as.timestamp = false;
    if (leaf->operand.type == BSON_TYPE_BOOL)
        return TRUCE_OK;
    if (leaf->operand.type == BSON_TYPE_DOCUMENT)
        return parse_date_type(leaf, error);
    return truce__refuse(CODE_BAD_VALUE, error,
                         "$currentDate of '%s' wants true or {$type: ...}, not %s", leaf->path,
                         truce__type_name(leaf->operand.type));
}

uint64_t truce__update_timestamp(const struct query_context *context)
{
    uint64_t seconds = (uint64_t)context->now_ms / 1000;
    uint64_t within = (uint64_t)context->now_ms % 1000;

    return seconds << 32 | ((within << 20 | (context->now_ordinal & 0xfffff)) + 1);
}

truce_status truce__update_date(struct update_run *run, const struct update_leaf *leaf,
                                const struct update_place *place, struct value old,
                                struct value *new, bson_error_t *error)
{
    const struct query_context *context = run->context;

    (void)place, (void)old, (void)error;
    run->changes++;
    if (leaf->as.timestamp) {
        *new = truce__value_from_int64(context->arena, (int64_t)truce__update_timestamp(context));
        new->type = BSON_TYPE_TIMESTAMP;
    } else {
        *new = truce__value_from_date(context->arena, context->now_ms);
    }
    return TRUCE_OK;
}

static bool is_dynamic(const struct path *path)
{
    for (uint32_t i = 0; i < path->count; i++) {
        const struct path_part *part = &path->parts[i];

        if (part->length == 1 && part->name[0] == '$')
            return true;
        if (part->length >= 3 && part->name[0] == '$' && part->name[1] == '[' &&
            part->name[part->length - 1] == ']')
            return true;
    }
    return false;
}

/* leaf->path is the target, leaf->as.rename.from the source; both are well formed */
truce_status truce__update_parse_rename(struct update_parser *parser, struct update_leaf *leaf,
                                        bson_error_t *error)
{
    const struct path *from = leaf->as.rename.from;
    struct path *to = truce__update_path(parser->update, leaf->path, strlen(leaf->path), error);

    if (!to)
        return TRUCE_INVALID;
    if (truce__path_is_prefix(from, to) || truce__path_is_prefix(to, from))
        return truce__refuse(CODE_BAD_VALUE, error,
                             "$rename of '%s' to '%s': one contains the other", from->text,
                             to->text);
    if (is_dynamic(from) || is_dynamic(to))
        return truce__refuse(CODE_BAD_VALUE, error,
                             "$rename of '%s' to '%s': paths with '$' cannot be renamed",
                             from->text, to->text);
    return TRUCE_OK;
}

/* The value at $rename's source; MISSING is no error, but a path through a scalar or an array is.
 */
static truce_status find_source(struct update_run *run, const struct path *from,
                                struct value *found, bson_error_t *error)
{
    struct value value = run->root;
    bool through_array = false;
    uint32_t steps = 1;

    for (uint32_t i = 0; i < from->count; i++) {
        const struct path_part *part = &from->parts[i];
        bool array = value.type == BSON_TYPE_ARRAY;

        if (!truce__value_is_container(value) ||
            (array && truce__update_index(part->name, part->length) < 0))
            return truce__refuse(CODE_PATH_NOT_VIABLE, error,
                                 "$rename cannot take '%s': there is %s on the way", from->text,
                                 truce__type_name(value.type));
        through_array = through_array || array;
        value = truce__field_finder_find(&run->finder, value, part->name, part->length, &steps);
        if (value.type == VALUE_MISSING)
            break;
    }
    *found = value;
    if (truce__budget_spend(run->context->budget, steps, error))
        return TRUCE_TIMEOUT;
    if (value.type != VALUE_MISSING && through_array)
        return truce__refuse(CODE_BAD_VALUE, error,
                             "$rename cannot take '%s', an element of an array", from->text);
    return TRUCE_OK;
}

truce_status truce__update_rename(struct update_run *run, const struct update_leaf *leaf,
                                  const struct update_place *place, struct value old,
                                  struct value *new, bson_error_t *error)
{
    struct value source;
    truce_status status = find_source(run, leaf->as.rename.from, &source, error);

    if (status)
        return status;
    if (source.type == VALUE_MISSING) {
        *new = old;
        return TRUCE_OK;
    }
    for (const struct update_place *at = place; !at->root; at = at->up) {
        if (at->up->value.type == BSON_TYPE_ARRAY)
            return truce__refuse(CODE_BAD_VALUE, error,
                                 "$rename cannot put '%s' into an array, at '%s'",
                                 leaf->as.rename.from->text, leaf->path);
    }
    run->changes++;
    *new = source;
    return TRUCE_OK;
}

/*
 * The operators: first those on one value ($set, $setOnInsert, $unset, $inc, $mul, $min, $max,
 * $bit, $currentDate, $rename), then those on arrays.
 *
 * A number has the narrowest type that holds the result: an int32 grows into an int64, and double
 * and decimal take precedence over integers. An int64 that would overflow is an error, never a
 * rounded double. $inc and $mul leave the old bytes if type and value stay the same (1.0 for 1.00,
 * 0.0 for -0.0). NaN differs from itself, so it counts as a change.
 */
#include "base/assert.h"
#include "base/limits.h"
#include "bson/number.h"
#include "bson/refuse_value.h"
#include "bson/value_set.h"
#include "query/update/update_parse.h"

static truce_status operator_parse_set(struct update_parser *parser, struct update_leaf *leaf,
                                       bson_error_t *error)
{
    (void)parser, (void)error;
    leaf->depth = truce__update_depth(leaf->operand);
    return TRUCE_OK;
}

truce_status truce__update_set(struct update_run *run, const struct update_leaf *leaf,
                               const struct update_target *target, struct value old,
                               struct value *new, bson_error_t *error)
{
    (void)run, (void)target, (void)old, (void)error;
    *new = leaf->operand;
    return TRUCE_OK;
}

static truce_status operator_unset(struct update_run *run, const struct update_leaf *leaf,
                                   const struct update_target *target, struct value old,
                                   struct value *new, bson_error_t *error)
{
    (void)run, (void)leaf, (void)target, (void)old, (void)error;
    *new = truce__value_missing();
    return TRUCE_OK;
}

static truce_status operator_parse_number(struct update_parser *parser, struct update_leaf *leaf,
                                          bson_error_t *error)
{
    (void)parser;
    if (truce__value_is_number(leaf->operand))
        return TRUCE_OK;
    return truce__refuse(CODE_TYPE_MISMATCH, error, "%s of '%s' takes a number, not %s",
                         leaf->operator->name, leaf->path, truce__type_name(leaf->operand.type));
}

/* Adds to a number, or multiplies it. A missing field counts as 0. Fails if integers exceed 64
 * bits. */
static truce_status value_combine(struct update_run *run, const struct update_leaf *leaf,
                                  const struct update_target *target,
                                  enum number_operation operation, struct value old,
                                  struct value *new, bson_error_t *error)
{
    struct value before = old;
    bool overflow = false;
    char path[256];

    if (old.type == VALUE_MISSING)
        old = truce__value_from_int32(run->context->arena, 0);
    if (!truce__value_is_number(old))
        return truce__refuse(CODE_TYPE_MISMATCH, error, "%s of '%s': the field is %s, not a number",
                             leaf->operator->name,
                             truce__update_target_show(target, path, sizeof path),
                             truce__type_name(old.type));
    *new = truce__number_combine(operation, old, leaf->operand, run->context->arena, &overflow);
    if (overflow)
        return truce__refuse(CODE_BAD_VALUE, error, "%s of '%s' exceeds 64 bits",
                             leaf->operator->name,
                             truce__update_target_show(target, path, sizeof path));
    if (truce__number_is_nan(*new))
        run->changes++;
    else if (new->type == before.type && truce__number_compare(*new, before) == 0)
        *new = before;
    return TRUCE_OK;
}

static truce_status operator_inc(struct update_run *run, const struct update_leaf *leaf,
                                 const struct update_target *target, struct value old,
                                 struct value *new, bson_error_t *error)
{
    if (old.type == VALUE_MISSING) {
        *new = leaf->operand;
        return TRUCE_OK;
    }
    return value_combine(run, leaf, target, NUMBER_ADD, old, new, error);
}

static truce_status operator_mul(struct update_run *run, const struct update_leaf *leaf,
                                 const struct update_target *target, struct value old,
                                 struct value *new, bson_error_t *error)
{
    return value_combine(run, leaf, target, NUMBER_MULTIPLY, old, new, error);
}

static truce_status operator_min(struct update_run *run, const struct update_leaf *leaf,
                                 const struct update_target *target, struct value old,
                                 struct value *new, bson_error_t *error)
{
    bool replace = old.type == VALUE_MISSING || truce__value_compare(leaf->operand, old) < 0;

    (void)run, (void)target, (void)error;
    *new = replace ? leaf->operand : old;
    return TRUCE_OK;
}

static truce_status operator_max(struct update_run *run, const struct update_leaf *leaf,
                                 const struct update_target *target, struct value old,
                                 struct value *new, bson_error_t *error)
{
    bool replace = old.type == VALUE_MISSING || truce__value_compare(leaf->operand, old) > 0;

    (void)run, (void)target, (void)error;
    *new = replace ? leaf->operand : old;
    return TRUCE_OK;
}

static bool is_bit_name(const char *name)
{
    return strcmp(name, "and") == 0 || strcmp(name, "or") == 0 || strcmp(name, "xor") == 0;
}

/* Checks the operand of $bit: integers for `and`, `or`, and `xor`. */
static truce_status operator_parse_bit(struct update_parser *parser, struct update_leaf *leaf,
                                       bson_error_t *error)
{
    struct fields fields;
    uint32_t count = 0;

    (void)parser;
    if (leaf->operand.type != BSON_TYPE_DOCUMENT)
        return truce__refuse(CODE_BAD_VALUE, error, "$bit of '%s' takes a document, not %s",
                             leaf->path, truce__type_name(leaf->operand.type));
    fields = truce__fields(leaf->operand);
    for (; truce__fields_next(&fields); count++) {
        if (!is_bit_name(fields.key))
            return truce__refuse(CODE_BAD_VALUE, error,
                                 "$bit of '%s' takes 'and', 'or', or 'xor', not '%s'", leaf->path,
                                 fields.key);
        if (!truce__value_is_integer(fields.value))
            return truce__refuse(CODE_BAD_VALUE, error, "$bit of '%s' takes an integer, not %s",
                                 leaf->path, truce__type_name(fields.value.type));
    }
    if (!count)
        return truce__refuse(CODE_BAD_VALUE, error, "$bit of '%s' needs 'and', 'or', or 'xor'",
                             leaf->path);
    return TRUCE_OK;
}

static int64_t update_combine_bits(const char *name, int64_t a, int64_t b)
{
    if (name[0] == 'a')
        return a & b;
    return name[0] == 'o' ? a | b : a ^ b;
}

/* Applies the operations of $bit in their order. A missing field counts as 0. */
static truce_status operator_bit(struct update_run *run, const struct update_leaf *leaf,
                                 const struct update_target *target, struct value old,
                                 struct value *new, bson_error_t *error)
{
    struct fields fields = truce__fields(leaf->operand);
    bool wide = old.type == BSON_TYPE_INT64;
    int64_t result = 0;
    char path[256];

    if (old.type != VALUE_MISSING && !truce__value_is_integer(old))
        return truce__refuse(CODE_BAD_VALUE, error, "$bit of '%s': the field is %s, not an integer",
                             truce__update_target_show(target, path, sizeof path),
                             truce__type_name(old.type));
    if (old.type != VALUE_MISSING)
        result = truce__value_integer(old);
    while (truce__fields_next(&fields)) {
        result = update_combine_bits(fields.key, result, truce__value_integer(fields.value));
        wide = wide || fields.value.type == BSON_TYPE_INT64;
    }
    *new = wide ? truce__value_from_int64(run->context->arena, result)
                : truce__value_from_int32(run->context->arena, (int32_t)result);
    return TRUCE_OK;
}

/* Reads {$type: "date"} or {$type: "timestamp"} of $currentDate. */
static truce_status parse_date_type(struct update_leaf *leaf, bson_error_t *error)
{
    struct fields fields = truce__fields(leaf->operand);
    bool known = false;

    while (truce__fields_next(&fields)) {
        uint32_t length;
        const char *text;

        if (strcmp(fields.key, "$type") != 0)
            return truce__refuse(CODE_BAD_VALUE, error,
                                 "$currentDate of '%s' has no option '%s': expected $type",
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
        return truce__refuse_value(
            CODE_BAD_VALUE, leaf->operand, error,
            "$currentDate of '%s' must be {$type: 'date'} or {$type: 'timestamp'}", leaf->path);
    return TRUCE_OK;
}

static truce_status operator_parse_date(struct update_parser *parser, struct update_leaf *leaf,
                                        bson_error_t *error)
{
    (void)parser;
    leaf->as.timestamp = false;
    if (leaf->operand.type == BSON_TYPE_BOOL)
        return TRUCE_OK;
    if (leaf->operand.type == BSON_TYPE_DOCUMENT)
        return parse_date_type(leaf, error);
    return truce__refuse(CODE_BAD_VALUE, error,
                         "$currentDate of '%s' takes true or {$type: ...}, not %s", leaf->path,
                         truce__type_name(leaf->operand.type));
}

uint64_t truce__update_timestamp(const struct query_context *context)
{
    uint64_t seconds = (uint64_t)context->now_ms / 1000;
    uint64_t within = (uint64_t)context->now_ms % 1000;

    return seconds << 32 | ((within << 20 | (context->now_ordinal & 0xfffff)) + 1);
}

/* Sets the field to the time of the call. */
static truce_status operator_date(struct update_run *run, const struct update_leaf *leaf,
                                  const struct update_target *target, struct value old,
                                  struct value *new, bson_error_t *error)
{
    const struct query_context *context = run->context;

    (void)target, (void)old, (void)error;
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

/* Parses a $rename: leaf->path is the target, leaf->as.rename.from the source; both are well
 * formed. */
static truce_status operator_parse_rename(struct update_parser *parser, struct update_leaf *leaf,
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

/* Returns the value at $rename's source. MISSING is not an error, but a path through a scalar or an
 * array is. */
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
                                  const struct update_target *target, struct value old,
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
    for (const struct update_target *at = target; !at->root; at = at->up) {
        if (at->up->value.type == BSON_TYPE_ARRAY)
            return truce__refuse(CODE_BAD_VALUE, error,
                                 "$rename cannot put '%s' into an array, at '%s'",
                                 leaf->as.rename.from->text, leaf->path);
    }
    run->changes++;
    *new = source;
    return TRUCE_OK;
}

/* ---- operators on arrays --------------------------------------------------------------------- */

/*
 * Operators on arrays: $push, $addToSet, $pull, $pullAll, $pop.
 *
 * Each operator splits the old array into a list of borrowed items, changes the list, and writes a
 * new array from it with new keys. If the bytes stay the same, the caller notices that there is no
 * change. However, a $push of items or with $sort always counts as a change.
 */

struct list {
    struct value *items;
    uint32_t count;
};

static uint32_t count_items(struct value array)
{
    struct fields fields = truce__fields(array);
    uint32_t count = 0;

    while (truce__fields_next(&fields))
        count++;
    return count;
}

/* Returns the items of an array, or no items if it is MISSING, with room for `more` items. */
static struct list update_array_list_of(struct arena *arena, struct value array, uint32_t more)
{
    struct list list = {0};
    struct fields fields;
    uint32_t count = array.type == VALUE_MISSING ? 0 : count_items(array);

    list.items = truce__arena_take(arena, ((size_t)count + more + 1) * sizeof *list.items);
    if (array.type == VALUE_MISSING)
        return list;
    fields = truce__fields(array);
    while (truce__fields_next(&fields))
        list.items[list.count++] = fields.value;
    return list;
}

uint32_t truce__update_digits(uint32_t number)
{
    uint32_t digits = 1;

    for (; number >= 10; number /= 10)
        digits++;
    return digits;
}

uint8_t *truce__update_put_number(uint8_t *to, uint32_t number)
{
    uint32_t digits = truce__update_digits(number);

    for (uint32_t i = digits; i-- > 0; number /= 10)
        to[i] = (uint8_t)('0' + number % 10);
    return to + digits;
}

/* Writes the items as an array. Fails if it is larger than a document may be. */
static truce_status array_write_list(struct arena *arena, const struct list *list,
                                     const struct update_leaf *leaf, struct value *array,
                                     bson_error_t *error)
{
    uint64_t size = 5;
    uint8_t *bytes, *to;
    int32_t length;

    for (uint32_t i = 0; i < list->count; i++)
        size += 2 + truce__update_digits(i) + (uint64_t)list->items[i].size;
    if (size > TRUCE_DOCUMENT_BYTES_MAX)
        return truce__refuse(CODE_BSON_OBJECT_TOO_LARGE, error,
                             "%s makes '%s' larger than the %d bytes of a document",
                             leaf->operator->name, leaf->path, TRUCE_DOCUMENT_BYTES_MAX);
    bytes = truce__arena_take(arena, size);
    length = (int32_t)size;
    memcpy(bytes, &length, 4);
    to = bytes + 4;
    for (uint32_t i = 0; i < list->count; i++) {
        struct value item = list->items[i];

        *to++ = item.type;
        to = truce__update_put_number(to, i);
        *to++ = 0;
        if (item.size)
            memcpy(to, item.data, item.size);
        to += item.size;
    }
    *to++ = 0;
    truce_assert(to == bytes + size);
    *array = (struct value){bytes, (uint32_t)size, BSON_TYPE_ARRAY};
    return TRUCE_OK;
}

static truce_status no_array(uint32_t code, const struct update_leaf *leaf,
                             const struct update_target *target, struct value old,
                             bson_error_t *error)
{
    char path[256];

    return truce__refuse(code, error, "%s of '%s': the field is %s, not an array",
                         leaf->operator->name, truce__update_target_show(target, path, sizeof path),
                         truce__type_name(old.type));
}

static bool is_direction(struct value value, bool *descending)
{
    double number = truce__value_is_number(value) ? truce__number_to_double(value) : 0;

    *descending = number == -1;
    return number == 1 || number == -1;
}

/* Reads the $sort of a $push that sorts by fields of the items. */
static truce_status parse_sort_fields(struct update_parser *parser, struct update_leaf *leaf,
                                      struct value pattern, bson_error_t *error)
{
    struct fields fields = truce__fields(pattern);
    uint32_t count = count_items(pattern);
    struct update_sort_field *sort;

    if (!count)
        return truce__refuse(CODE_BAD_VALUE, error,
                             "$sort in $push of '%s' is empty: expected fields, each 1 or -1",
                             leaf->path);
    sort = truce__arena_take(&parser->update->memory, count * sizeof *sort);
    for (uint32_t i = 0; truce__fields_next(&fields); i++) {
        if (!is_direction(fields.value, &sort[i].descending))
            return truce__refuse_value(CODE_BAD_VALUE, fields.value, error,
                                       "$sort in $push of '%s': the value of '%s' must be 1 or -1",
                                       leaf->path, fields.key);
        sort[i].path = truce__update_path(parser->update, fields.key, fields.key_length, error);
        if (!sort[i].path)
            return TRUCE_INVALID;
        for (uint32_t j = 0; j < sort[i].path->count; j++) {
            if (sort[i].path->parts[j].length == 0)
                return truce__refuse(CODE_BAD_VALUE, error,
                                     "$sort in $push of '%s': '%s' has an empty field name",
                                     leaf->path, fields.key);
        }
    }
    leaf->as.push.sort = sort;
    leaf->as.push.sort_count = count;
    return TRUCE_OK;
}

/* Reads the $sort of a $push: fields, or a direction for whole items. */
static truce_status parse_sort(struct update_parser *parser, struct update_leaf *leaf,
                               struct value pattern, bson_error_t *error)
{
    struct update_sort_field *sort;

    if (pattern.type == BSON_TYPE_DOCUMENT)
        return parse_sort_fields(parser, leaf, pattern, error);
    sort = truce__arena_take(&parser->update->memory, sizeof *sort);
    sort->path = NULL;
    if (!is_direction(pattern, &sort->descending))
        return truce__refuse_value(CODE_BAD_VALUE, pattern, error,
                                   "$sort in $push of '%s' must be 1, -1, or a document of fields",
                                   leaf->path);
    leaf->as.push.sort = sort;
    leaf->as.push.sort_count = 1;
    return TRUCE_OK;
}

static truce_status parse_integer(const struct update_leaf *leaf, const char *name,
                                  struct value value, int64_t *number, bson_error_t *error)
{
    if (truce__value_is_number(value) && truce__number_to_int64(value, number))
        return TRUCE_OK;
    return truce__refuse_value(CODE_BAD_VALUE, value, error,
                               "%s in $push of '%s' must be an integer", name, leaf->path);
}

/* Reads one clause of a $push. */
static truce_status parse_push_clause(struct update_parser *parser, struct update_leaf *leaf,
                                      const struct fields *clause, bson_error_t *error)
{
    if (strcmp(clause->key, "$each") == 0) {
        if (clause->value.type != BSON_TYPE_ARRAY)
            return truce__refuse(CODE_BAD_VALUE, error,
                                 "$each in $push of '%s' is %s, not an array", leaf->path,
                                 truce__type_name(clause->value.type));
        leaf->as.push.items = clause->value;
        return TRUCE_OK;
    }
    if (strcmp(clause->key, "$slice") == 0)
        return parse_integer(leaf, "$slice", clause->value, &leaf->as.push.slice, error);
    if (strcmp(clause->key, "$position") == 0)
        return parse_integer(leaf, "$position", clause->value, &leaf->as.push.position, error);
    if (strcmp(clause->key, "$sort") == 0)
        return parse_sort(parser, leaf, clause->value, error);
    return truce__refuse(
        CODE_BAD_VALUE, error,
        "$push of '%s' has no clause '%s': expected $each, $position, $slice, or $sort", leaf->path,
        clause->key);
}

static bool clause_repeats(struct value clauses, const struct fields *clause)
{
    struct fields fields = truce__fields(clauses);

    while (truce__fields_next(&fields) && fields.key != clause->key) {
        if (strcmp(fields.key, clause->key) == 0)
            return true;
    }
    return false;
}

/* Reads the operand of $push: an item, or a document with $each and other clauses. */
static truce_status operator_parse_push(struct update_parser *parser, struct update_leaf *leaf,
                                        bson_error_t *error)
{
    struct value operand = leaf->operand;
    struct fields fields;

    leaf->depth = truce__update_depth(operand) + 1;
    memset(&leaf->as, 0, sizeof leaf->as);
    leaf->as.push.position = INT64_MAX;
    leaf->as.push.slice = INT64_MAX;
    leaf->as.push.single = operand.type != BSON_TYPE_DOCUMENT ||
                           truce__value_field(operand, "$each", 5).type == VALUE_MISSING;
    if (leaf->as.push.single)
        return TRUCE_OK;
    leaf->depth -= 2;
    fields = truce__fields(operand);
    while (truce__fields_next(&fields)) {
        truce_status status;

        if (clause_repeats(operand, &fields))
            return truce__refuse(CODE_BAD_VALUE, error, "$push of '%s' has two clauses '%s'",
                                 leaf->path, fields.key);
        status = parse_push_clause(parser, leaf, &fields, error);
        if (status)
            return status;
    }
    return TRUCE_OK;
}

/* Returns the values that $push or $addToSet adds. */
static struct list new_items(struct arena *arena, const struct update_leaf *leaf)
{
    struct list list;

    if (!leaf->as.push.single)
        return update_array_list_of(arena, leaf->as.push.items, 0);
    list = update_array_list_of(arena, truce__value_missing(), 1);
    list.items[list.count++] = leaf->operand;
    return list;
}

/* Inserts the items at a position; a negative one counts from the end. */
static void insert_items(struct list *list, const struct list *items, int64_t position)
{
    uint32_t at;

    if (position > (int64_t)list->count)
        at = list->count;
    else if (position >= 0)
        at = (uint32_t)position;
    else
        at = position > -(int64_t)list->count ? (uint32_t)(list->count + position) : 0;
    memmove(list->items + at + items->count, list->items + at,
            (list->count - at) * sizeof *list->items);
    if (items->count)
        memcpy(list->items + at, items->items, items->count * sizeof *items->items);
    list->count += items->count;
}

/* Returns the field by which $sort compares: by name through documents, by number through arrays;
 * null if it is missing. */
static struct value sort_value(struct value item, const struct path *path)
{
    for (uint32_t i = 0; i < path->count; i++) {
        if (item.type != BSON_TYPE_DOCUMENT && !(i && item.type == BSON_TYPE_ARRAY))
            return truce__value_null();
        item = truce__value_field(item, path->parts[i].name, path->parts[i].length);
    }
    return item.type == VALUE_MISSING ? truce__value_null() : item;
}

static int array_compare_items(const struct update_leaf *leaf, struct value a, struct value b)
{
    for (uint32_t i = 0; i < leaf->as.push.sort_count; i++) {
        const struct update_sort_field *field = &leaf->as.push.sort[i];
        struct value left = field->path ? sort_value(a, field->path) : a;
        struct value right = field->path ? sort_value(b, field->path) : b;
        int order = truce__value_compare(left, right);

        if (order)
            return field->descending ? -order : order;
    }
    return 0;
}

/* Sorts stably by merging; `spare` has room for half of the items. */
static void sort_items(const struct update_leaf *leaf, struct value *items, uint32_t count,
                       struct value *spare)
{
    uint32_t half = count / 2, left = 0, right = half, to = 0;

    if (count < 2)
        return;
    sort_items(leaf, items, half, spare);
    sort_items(leaf, items + half, count - half, spare);
    memcpy(spare, items, half * sizeof *items);
    while (left < half && right < count)
        items[to++] = array_compare_items(leaf, items[right], spare[left]) < 0 ? items[right++]
                                                                               : spare[left++];
    while (left < half)
        items[to++] = spare[left++];
}

static void slice_items(struct list *list, int64_t slice)
{
    uint64_t kept = slice < 0 ? -(uint64_t)slice : (uint64_t)slice;

    if (list->count <= kept)
        return;
    if (slice < 0)
        list->items += list->count - kept;
    list->count = (uint32_t)kept;
}

/* Inserts the items of a $push, and then sorts and slices the array. */
static truce_status operator_push(struct update_run *run, const struct update_leaf *leaf,
                                  const struct update_target *target, struct value old,
                                  struct value *new, bson_error_t *error)
{
    struct arena *arena = run->context->arena;
    struct list items, list;
    bool sorted;

    if (old.type != VALUE_MISSING && old.type != BSON_TYPE_ARRAY)
        return no_array(CODE_BAD_VALUE, leaf, target, old, error);
    items = new_items(arena, leaf);
    list = update_array_list_of(arena, old, items.count);
    insert_items(&list, &items, leaf->as.push.position);
    sorted = leaf->as.push.sort_count && list.count;
    if (sorted)
        sort_items(leaf, list.items, list.count,
                   truce__arena_take(arena, ((size_t)list.count / 2 + 1) * sizeof *list.items));
    slice_items(&list, leaf->as.push.slice);
    run->changes += items.count || sorted;
    return array_write_list(arena, &list, leaf, new, error);
}

/* Reads the operand of $addToSet: an item, or a document whose only field is $each. */
static truce_status operator_parse_add(struct update_parser *parser, struct update_leaf *leaf,
                                       bson_error_t *error)
{
    struct fields fields;

    (void)parser;
    leaf->depth = truce__update_depth(leaf->operand) + 1;
    memset(&leaf->as, 0, sizeof leaf->as);
    leaf->as.push.single = true;
    if (leaf->operand.type != BSON_TYPE_DOCUMENT)
        return TRUCE_OK;
    fields = truce__fields(leaf->operand);
    if (!truce__fields_next(&fields) || strcmp(fields.key, "$each") != 0)
        return TRUCE_OK;
    leaf->depth -= 2;
    leaf->as.push.single = false;
    leaf->as.push.items = fields.value;
    if (fields.value.type != BSON_TYPE_ARRAY)
        return truce__refuse(CODE_TYPE_MISMATCH, error,
                             "$each in $addToSet of '%s' is %s, not an array", leaf->path,
                             truce__type_name(fields.value.type));
    if (truce__fields_next(&fields))
        return truce__refuse(CODE_BAD_VALUE, error,
                             "$addToSet of '%s' has no clause '%s': expected $each", leaf->path,
                             fields.key);
    return TRUCE_OK;
}

static bool array_contains(const struct list *list, struct value value)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (truce__value_equal(list->items[i], value))
            return true;
    }
    return false;
}

/* Up to this number of comparisons, comparing costs less than a set. */
#define FEW 64

/* Returns whether a set costs less than comparing all items of one list with all of another. */
static bool is_many(uint32_t a, uint32_t b)
{
    return (uint64_t)a * b > FEW * (1 + (uint64_t)(a > b ? b : a));
}

/* Appends the items that the list does not have. */
static truce_status add_missing(struct update_run *run, struct list *list, const struct list *items,
                                bson_error_t *error)
{
    struct budget *budget = run->context->budget;
    bool many = is_many(items->count, list->count + items->count);
    truce_status status = TRUCE_OK;
    struct value_set set;

    if (many) {
        truce__value_set_begin(&set, run->context->arena, list->count + items->count);
        for (uint32_t i = 0; i < list->count && !status; i++) {
            status = truce__budget_spend(budget, 1, error);
            (void)truce__value_set_add(&set, list->items[i]);
        }
    }
    for (uint32_t i = 0; i < items->count && !status; i++) {
        bool is_new = many ? truce__value_set_add(&set, items->items[i])
                           : !array_contains(list, items->items[i]);

        status = truce__budget_spend(budget, many ? 1 : list->count, error);
        if (is_new)
            list->items[list->count++] = items->items[i];
    }
    return status;
}

/* Appends the items of an $addToSet that the array does not have. */
static truce_status operator_add(struct update_run *run, const struct update_leaf *leaf,
                                 const struct update_target *target, struct value old,
                                 struct value *new, bson_error_t *error)
{
    struct arena *arena = run->context->arena;
    struct list items, list;
    truce_status status;
    uint32_t before;

    if (old.type != VALUE_MISSING && old.type != BSON_TYPE_ARRAY)
        return no_array(CODE_BAD_VALUE, leaf, target, old, error);
    items = new_items(arena, leaf);
    list = update_array_list_of(arena, old, items.count);
    before = list.count;
    status = add_missing(run, &list, &items, error);
    if (status)
        return status;
    *new = old;
    if (list.count == before && old.type != VALUE_MISSING)
        return TRUCE_OK;
    return array_write_list(arena, &list, leaf, new, error);
}

static truce_status operator_parse_pull(struct update_parser *parser, struct update_leaf *leaf,
                                        bson_error_t *error)
{
    memset(&leaf->as, 0, sizeof leaf->as);
    if (leaf->operand.type != BSON_TYPE_DOCUMENT && leaf->operand.type != BSON_TYPE_REGEX)
        return TRUCE_OK;
    return truce__update_condition(parser, leaf->operand, &leaf->as.pull.match,
                                   &leaf->as.pull.documents_only, error);
}

truce_status truce__update_item_matches(struct update_run *run, const struct match *match,
                                        bool documents_only, struct value item, bool *matches,
                                        bson_error_t *error)
{
    struct match_result result;
    truce_status status;

    *matches = false;
    if (documents_only && item.type != BSON_TYPE_DOCUMENT)
        return TRUCE_OK;
    status = truce__match_test(match, item, run->context, &result, error);
    *matches = !status && result.matched;
    return status;
}

/* Writes the array without the removed items. If no item was removed, nothing changes. */
static truce_status write_rest(struct update_run *run, const struct update_leaf *leaf,
                               const struct list *kept, uint32_t before, struct value old,
                               struct value *new, bson_error_t *error)
{
    *new = old;
    if (kept->count == before)
        return TRUCE_OK;
    return array_write_list(run->context->arena, kept, leaf, new, error);
}

/* Removes the items that match a condition or equal a value. */
static truce_status operator_pull(struct update_run *run, const struct update_leaf *leaf,
                                  const struct update_target *target, struct value old,
                                  struct value *new, bson_error_t *error)
{
    struct list list;
    uint32_t before;

    if (old.type != BSON_TYPE_ARRAY)
        return no_array(CODE_BAD_VALUE, leaf, target, old, error);
    list = update_array_list_of(run->context->arena, old, 0);
    before = list.count;
    list.count = 0;
    for (uint32_t i = 0; i < before; i++) {
        bool matches;

        if (leaf->as.pull.match) {
            truce_status status =
                truce__update_item_matches(run, leaf->as.pull.match, leaf->as.pull.documents_only,
                                           list.items[i], &matches, error);
            if (status)
                return status;
        } else {
            matches = truce__value_equal(list.items[i], leaf->operand);
        }
        if (!matches)
            list.items[list.count++] = list.items[i];
    }
    return write_rest(run, leaf, &list, before, old, new, error);
}

static truce_status operator_parse_pull_all(struct update_parser *parser, struct update_leaf *leaf,
                                            bson_error_t *error)
{
    (void)parser;
    if (leaf->operand.type == BSON_TYPE_ARRAY)
        return TRUCE_OK;
    return truce__refuse(CODE_BAD_VALUE, error, "$pullAll of '%s' takes an array, not %s",
                         leaf->path, truce__type_name(leaf->operand.type));
}

/* Removes the items that are among `pulled`. */
static truce_status keep_others(struct update_run *run, struct list *list,
                                const struct list *pulled, bson_error_t *error)
{
    struct budget *budget = run->context->budget;
    bool many = is_many(list->count, pulled->count);
    uint32_t before = list->count;
    truce_status status = TRUCE_OK;
    struct value_set set;

    if (many) {
        truce__value_set_begin(&set, run->context->arena, pulled->count);
        for (uint32_t i = 0; i < pulled->count; i++)
            (void)truce__value_set_add(&set, pulled->items[i]);
    }
    list->count = 0;
    for (uint32_t i = 0; i < before && !status; i++) {
        status = truce__budget_spend(budget, many ? 1 : 1 + pulled->count, error);
        if (many ? !truce__value_set_has(&set, list->items[i])
                 : !array_contains(pulled, list->items[i]))
            list->items[list->count++] = list->items[i];
    }
    return status;
}

/* Removes the items that equal one of a list. */
static truce_status operator_pull_all(struct update_run *run, const struct update_leaf *leaf,
                                      const struct update_target *target, struct value old,
                                      struct value *new, bson_error_t *error)
{
    struct list list, pulled;
    truce_status status;
    uint32_t before;

    if (old.type != BSON_TYPE_ARRAY)
        return no_array(CODE_BAD_VALUE, leaf, target, old, error);
    pulled = update_array_list_of(run->context->arena, leaf->operand, 0);
    list = update_array_list_of(run->context->arena, old, 0);
    before = list.count;
    status = keep_others(run, &list, &pulled, error);
    return status ? status : write_rest(run, leaf, &list, before, old, new, error);
}

static truce_status operator_parse_pop(struct update_parser *parser, struct update_leaf *leaf,
                                       bson_error_t *error)
{
    int64_t side;

    (void)parser;
    if (!truce__value_is_number(leaf->operand) || !truce__number_to_int64(leaf->operand, &side) ||
        (side != 1 && side != -1))
        return truce__refuse_value(CODE_FAILED_TO_PARSE, leaf->operand, error,
                                   "$pop of '%s' must be 1 or -1", leaf->path);
    leaf->as.from_end = side == 1;
    return TRUCE_OK;
}

/* Removes the first or the last item. */
static truce_status operator_pop(struct update_run *run, const struct update_leaf *leaf,
                                 const struct update_target *target, struct value old,
                                 struct value *new, bson_error_t *error)
{
    struct list list;

    if (old.type != BSON_TYPE_ARRAY)
        return no_array(CODE_TYPE_MISMATCH, leaf, target, old, error);
    list = update_array_list_of(run->context->arena, old, 0);
    *new = old;
    if (!list.count)
        return TRUCE_OK;
    if (!leaf->as.from_end)
        list.items++;
    list.count--;
    return array_write_list(run->context->arena, &list, leaf, new, error);
}

/* ---- the table ------------------------------------------------------------------------------- */

const struct update_operator truce__update_rename_source = {
    "$rename", UPDATE_LENIENT | UPDATE_DOLLAR_NAMES, NULL, operator_unset};

static truce_status parse_nothing(struct update_parser *parser, struct update_leaf *leaf,
                                  bson_error_t *error)
{
    (void)parser, (void)leaf, (void)error;
    return TRUCE_OK;
}

static const struct update_operator operators[] = {
    {"$set", UPDATE_CREATES, operator_parse_set, truce__update_set},
    {"$inc", UPDATE_CREATES, operator_parse_number, operator_inc},
    {"$unset", UPDATE_LENIENT | UPDATE_DOLLAR_NAMES, parse_nothing, operator_unset},
    {"$push", UPDATE_CREATES, operator_parse_push, operator_push},
    {"$pull", 0, operator_parse_pull, operator_pull},
    {"$addToSet", UPDATE_CREATES, operator_parse_add, operator_add},
    {"$min", UPDATE_CREATES, operator_parse_set, operator_min},
    {"$max", UPDATE_CREATES, operator_parse_set, operator_max},
    {"$mul", UPDATE_CREATES, operator_parse_number, operator_mul},
    {"$rename", UPDATE_CREATES, operator_parse_rename, truce__update_rename},
    {"$setOnInsert", UPDATE_CREATES | UPDATE_INSERT_ONLY, operator_parse_set, truce__update_set},
    {"$currentDate", UPDATE_CREATES, operator_parse_date, operator_date},
    {"$pullAll", 0, operator_parse_pull_all, operator_pull_all},
    {"$pop", 0, operator_parse_pop, operator_pop},
    {"$bit", UPDATE_CREATES, operator_parse_bit, operator_bit},
    {"$update", UPDATE_ITEMS, truce__update_parse_items, NULL},
};

void truce__update_operator_offer(struct nearest_word *nearest)
{
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        truce__nearest_word_offer(nearest, operators[i].name);
}

const struct update_operator *truce__update_operator_find(const char *name)
{
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (strcmp(operators[i].name, name) == 0)
            return &operators[i];
    }
    return NULL;
}

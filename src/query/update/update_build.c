/* Values for places that do not exist yet, from the tree of an update. */
#include "base/assert.h"
#include "base/limits.h"
#include "query/update/update_tree.h"

static truce_status not_viable(const struct update_place *place, bson_error_t *error)
{
    const struct update_place *holder = place->up;
    char path[256], value[128];

    while (holder->value.type == VALUE_MISSING)
        holder = holder->up;
    return truce__refuse(CODE_PATH_NOT_VIABLE, error,
                         "cannot create '%s': there is %s, a value without such a field",
                         truce__update_place_show(place, path, sizeof path),
                         truce__value_show(holder->value, value, sizeof value));
}

/* rule 4 */
truce_status truce__update_check_stored(const struct update_run *run,
                                        const struct update_leaf *leaf,
                                        const struct update_place *place, struct value new,
                                        bson_error_t *error)
{
    uint32_t depth = leaf->depth;
    char path[256];

    if (leaf->operator->apply == truce__update_rename)
        depth = truce__update_depth(new);
    if (place->level + depth > TRUCE_DOCUMENT_DEPTH_MAX)
        return truce__refuse(CODE_OVERFLOW, error, "'%s' would nest deeper than %d",
                             truce__update_place_show(place, path, sizeof path),
                             TRUCE_DOCUMENT_DEPTH_MAX);
    if (run->inserted > 2 * (uint64_t)TRUCE_DOCUMENT_BYTES_MAX)
        return truce__refuse(CODE_BSON_OBJECT_TOO_LARGE, error,
                             "the update makes the document larger than %d bytes",
                             TRUCE_DOCUMENT_BYTES_MAX);
    return TRUCE_OK;
}

truce_status truce__update_check_name(const struct update_run *run,
                                      const struct update_place *place, bson_error_t *error)
{
    if (run->insert || place->level != 1 || place->length == 0 || place->name[0] != '$')
        return TRUCE_OK;
    return truce__refuse(CODE_DOLLAR_PREFIXED_FIELD_NAME, error,
                         "the field '%.*s' begins with '$', which an update cannot store at the "
                         "top level",
                         (int)place->length, place->name);
}

bool truce__update_is_idle(const struct update_run *run, const struct update_leaf *leaf)
{
    return (leaf->operator->flags & UPDATE_INSERT_ONLY) && !run->insert;
}

static truce_status build_leaf(struct update_run *run, const struct update_leaf *leaf,
                               const struct update_place *place, bool viable, struct value *built,
                               bson_error_t *error)
{
    unsigned flags = leaf->operator->flags;
    truce_status status;

    if (truce__update_is_idle(run, leaf))
        return TRUCE_OK;
    if (!(flags & UPDATE_CREATES))
        return viable || (flags & UPDATE_LENIENT) ? TRUCE_OK : not_viable(place, error);
    status = leaf->operator->apply(run, leaf, place, place->value, built, error);
    if (status || built->type == VALUE_MISSING)
        return status;
    return viable ? truce__update_check_stored(run, leaf, place, *built, error)
                  : not_viable(place, error);
}

/* one element as it stands in BSON */
uint8_t *truce__update_put_element(uint8_t *to, uint8_t type, const char *name, uint32_t length,
                                   struct value value)
{
    *to++ = type;
    memcpy(to, name, length);
    to += length;
    *to++ = 0;
    if (value.size)
        memcpy(to, value.data, value.size);
    return to + value.size;
}

uint64_t truce__update_element_size(uint32_t name_length, struct value value)
{
    return 2 + (uint64_t)name_length + value.size;
}

static truce_status put_document(struct update_run *run, const struct update_choice *choices,
                                 const struct value *values, uint32_t count, struct value *built,
                                 bson_error_t *error)
{
    uint64_t size = 5;
    uint8_t *bytes, *to;
    int32_t length;

    for (uint32_t i = 0; i < count; i++) {
        if (values[i].type != VALUE_MISSING)
            size += truce__update_element_size(choices[i].length, values[i]);
    }
    if (size == 5)
        return TRUCE_OK;
    if (size > TRUCE_DOCUMENT_BYTES_MAX)
        return truce__refuse(CODE_BSON_OBJECT_TOO_LARGE, error,
                             "the update makes a document larger than %d bytes",
                             TRUCE_DOCUMENT_BYTES_MAX);
    bytes = truce__arena_take(run->context->arena, size);
    length = (int32_t)size;
    memcpy(bytes, &length, 4);
    to = bytes + 4;
    for (uint32_t i = 0; i < count; i++) {
        if (values[i].type != VALUE_MISSING)
            to = truce__update_put_element(to, values[i].type, choices[i].name, choices[i].length,
                                           values[i]);
    }
    *to = 0;
    *built = (struct value){bytes, (uint32_t)size, BSON_TYPE_DOCUMENT};
    return TRUCE_OK;
}

struct update_place truce__update_place_below(const struct update_place *up, const char *name,
                                              uint32_t length)
{
    return (struct update_place){.up = up, .name = name, .length = length, .level = up->level + 1};
}

static truce_status build_object(struct update_run *run, const struct update_place *place,
                                 const struct update_node *const *nodes, uint32_t count,
                                 bool viable, struct value *built, bson_error_t *error)
{
    struct update_choice *choices;
    struct value *values;
    uint32_t choices_count;
    truce_status status =
        truce__update_choices(run, place, nodes, count, &choices, &choices_count, error);

    if (status)
        return status;
    values = truce__arena_take(run->context->arena, (choices_count + 1) * sizeof *values);
    for (uint32_t i = 0; i < choices_count; i++) {
        struct update_place inner =
            truce__update_place_below(place, choices[i].name, choices[i].length);

        values[i] = truce__value_missing();
        status = truce__update_build(run, &inner, choices[i].nodes, choices[i].count, viable,
                                     &values[i], error);
        if (status)
            return status;
    }
    return put_document(run, choices, values, choices_count, built, error);
}

/* The value for a place that does not exist: *built stays MISSING where nothing is to be made. */
truce_status truce__update_build(struct update_run *run, const struct update_place *place,
                                 const struct update_node *const *nodes, uint32_t count,
                                 bool viable, struct value *built, bson_error_t *error)
{
    char path[256];

    switch (nodes[0]->kind) {
    case UPDATE_LEAF:
        truce_assert(count == 1);
        return build_leaf(run, &nodes[0]->leaf, place, viable, built, error);
    case UPDATE_OBJECT:
        return build_object(run, place, nodes, count, viable, built, error);
    case UPDATE_ARRAY:
        break;
    }
    return truce__refuse(CODE_BAD_VALUE, error,
                         "'%s' does not exist: there is no array to update the elements of",
                         truce__update_place_show(place, path, sizeof path));
}

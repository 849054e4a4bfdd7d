#include "bson/builder.h"

#include "base/assert.h"

#define FIRST_ROOM 128

/* Makes room for `more` bytes, by doubling. Returns false, and sets `full`, if the arena would
 * exceed bytes_max. */
static bool builder_make_room(struct builder *builder, size_t more)
{
    size_t wanted, room = builder->room;
    uint8_t *bytes;

    if (builder->full)
        return false;
    wanted = builder->size + more;
    if (wanted <= builder->room)
        return true;
    while (room < wanted)
        room *= 2;
    if (builder->arena->bytes + room > builder->bytes_max) {
        builder->full = true;
        return false;
    }
    bytes = truce__arena_take(builder->arena, room);
    memcpy(bytes, builder->bytes, builder->size);
    builder->bytes = bytes;
    builder->room = room;
    return true;
}

void truce__builder_begin(struct builder *builder, struct arena *arena, size_t bytes_max,
                          uint8_t type)
{
    truce_assert(type == BSON_TYPE_DOCUMENT || type == BSON_TYPE_ARRAY);
    *builder = (struct builder){.arena = arena, .bytes_max = bytes_max, .type = type};
    builder->bytes = truce__arena_take(arena, FIRST_ROOM);
    builder->room = FIRST_ROOM;
    builder->size = 4; /* Leaves room for the length, which finish writes. */
}

/* Writes the type, the key, and its NUL. Returns false unless there is room for them and for `size`
 * more bytes. */
static bool builder_put_header(struct builder *builder, uint8_t type, const char *key,
                               size_t key_length, size_t size)
{
    uint8_t *at;

    if (!builder_make_room(builder, 2 + key_length + size))
        return false;
    at = builder->bytes + builder->size;
    *at++ = type;
    memcpy(at, key, key_length);
    at[key_length] = 0;
    builder->size += 2 + key_length;
    return true;
}

void truce__builder_append(struct builder *builder, const char *key, size_t key_length,
                           struct value value)
{
    if (value.type == VALUE_MISSING)
        return;
    if (!builder_put_header(builder, value.type, key, key_length, value.size))
        return;
    if (value.size)
        memcpy(builder->bytes + builder->size, value.data, value.size);
    builder->size += value.size;
}

void truce__builder_append_text(struct builder *builder, const char *key, size_t key_length,
                                const char *text, size_t length)
{
    uint32_t prefix = BSON_UINT32_TO_LE((uint32_t)length + 1);
    uint8_t *at;

    if (!builder_put_header(builder, BSON_TYPE_UTF8, key, key_length, length + 5))
        return;
    at = builder->bytes + builder->size;
    memcpy(at, &prefix, 4);
    memcpy(at + 4, text, length);
    at[4 + length] = '\0';
    builder->size += length + 5;
}

static const char *index_key(uint32_t index, char digits[11], size_t *length)
{
    char *at = digits + 10;

    *at = '\0';
    do {
        *--at = (char)('0' + index % 10);
        index /= 10;
    } while (index);
    *length = (size_t)(digits + 10 - at);
    return at;
}

void truce__builder_element(struct builder *builder, struct value value)
{
    char digits[11];
    size_t length;
    const char *key = index_key(builder->index++, digits, &length);

    if (value.type == VALUE_MISSING)
        value = (struct value){NULL, 0, BSON_TYPE_NULL};
    truce__builder_append(builder, key, length, value);
}

void truce__builder_element_text(struct builder *builder, const char *text, size_t length)
{
    char digits[11];
    size_t key_length;
    const char *key = index_key(builder->index++, digits, &key_length);

    truce__builder_append_text(builder, key, key_length, text, length);
}

struct builder_mark truce__builder_open(struct builder *builder, const char *key, size_t key_length,
                                        uint8_t type)
{
    struct builder_mark mark = {0, builder->index};

    builder->index = 0;
    if (!builder_put_header(builder, type, key, key_length, 4))
        return mark;
    mark.at = builder->size;
    builder->size += 4;
    return mark;
}

struct builder_mark truce__builder_open_element(struct builder *builder, uint8_t type)
{
    char digits[11];
    size_t length;
    const char *key = index_key(builder->index++, digits, &length);

    return truce__builder_open(builder, key, length, type);
}

static void end_container(struct builder *builder, size_t at)
{
    uint32_t length;

    if (!builder_make_room(builder, 1))
        return;
    builder->bytes[builder->size++] = 0;
    length = BSON_UINT32_TO_LE((uint32_t)(builder->size - at));
    memcpy(builder->bytes + at, &length, 4);
}

void truce__builder_close(struct builder *builder, struct builder_mark mark)
{
    builder->index = mark.index;
    if (!builder->full) {
        truce_assert(mark.at >= 4);
        end_container(builder, mark.at);
    }
}

truce_status truce__builder_finish(struct builder *builder, struct value *result,
                                   bson_error_t *error)
{
    end_container(builder, 0);
    if (builder->full) {
        *result = (struct value){NULL, 0, VALUE_MISSING};
        return truce__refuse(CODE_EXCEEDED_MEMORY_LIMIT, error,
                             "an expression's result takes more than %zu bytes of memory",
                             builder->bytes_max);
    }
    *result = (struct value){builder->bytes, (uint32_t)builder->size, builder->type};
    return TRUCE_OK;
}

#include "bson/dotted_path.h"

#include "base/assert.h"

/* Every number of 18 digits fits into an int64. */
#define INDEX_DIGITS_MAX 18

static int64_t path_index_of(const char *name, uint32_t length)
{
    int64_t index = 0;

    if (!length || length > INDEX_DIGITS_MAX || (name[0] == '0' && length > 1))
        return -1;
    for (uint32_t i = 0; i < length; i++) {
        if (name[i] < '0' || name[i] > '9')
            return -1;
        index = index * 10 + (name[i] - '0');
    }
    return index;
}

static uint32_t count_parts(const char *text, size_t length)
{
    uint32_t count = 1;

    for (size_t i = 0; i < length; i++)
        count += text[i] == '.';
    return count;
}

/* Allocates one block for the parts and, after them, the text. */
static void *take_room(struct arena *arena, uint32_t count, size_t length)
{
    size_t size = count * sizeof(struct path_part) + length + 1;

    return arena ? truce__arena_take(arena, size) : bson_malloc(size);
}

truce_status truce__path_parse_into(struct arena *arena, const char *text, size_t length,
                                    struct path *path, bson_error_t *error)
{
    uint32_t count = count_parts(text, length);
    const char *start;

    *path = (struct path){0};
    if (count > PATH_PARTS_MAX)
        return truce__refuse(CODE_OVERFLOW, error, "a path has %u parts, more than %d: '%.60s...'",
                             count, PATH_PARTS_MAX, text);
    truce_assert(length < UINT32_MAX);
    path->parts = take_room(arena, count, length);
    path->text = (char *)(path->parts + count);
    if (length)
        memcpy(path->text, text, length);
    path->text[length] = 0;
    path->length = (uint32_t)length;
    path->count = count;
    start = path->text;
    for (uint32_t i = 0; i < count; i++) {
        size_t left = (size_t)(path->text + length - start);
        const char *dot = memchr(start, '.', left);
        struct path_part *part = path->parts + i;

        part->name = start;
        part->length = (uint32_t)(dot ? (size_t)(dot - start) : left);
        part->index = path_index_of(start, part->length);
        start += part->length + 1;
    }
    return TRUCE_OK;
}

truce_status truce__path_parse(const char *text, size_t length, struct path *path,
                               bson_error_t *error)
{
    return truce__path_parse_into(NULL, text, length, path, error);
}

void truce__path_release(struct path *path)
{
    bson_free(path->parts);
    *path = (struct path){0};
}

bool truce__path_is_prefix(const struct path *a, const struct path *b)
{
    if (a->length > b->length || memcmp(a->text, b->text, a->length) != 0)
        return false;
    return a->length == b->length || b->text[a->length] == '.';
}

bool truce__path_begins(const struct path *path, const char *name, size_t length)
{
    return path->count && path->parts[0].length == length &&
           memcmp(path->parts[0].name, name, length) == 0;
}

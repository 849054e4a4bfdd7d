#include "base/arena.h"

#include <stdalign.h>
#include <string.h>

#include <bson/bson.h>

#include "base/assert.h"

#define BLOCK_BYTES ((size_t)16 * 1024)

struct arena_block {
    struct arena_block *next;
    size_t size;
    alignas(max_align_t) uint8_t bytes[];
};

static void add_block(struct arena *arena, size_t size)
{
    size_t room = size > BLOCK_BYTES ? size : BLOCK_BYTES;
    struct arena_block *block = bson_malloc(sizeof *block + room);

    block->next = arena->first;
    block->size = room;
    arena->first = block;
    arena->at = block->bytes;
    arena->end = block->bytes + room;
}

void *truce__arena_take(struct arena *arena, size_t size)
{
    size_t rounded = (size + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
    void *taken;

    truce_assert(rounded >= size);
    if (!arena->at || (size_t)(arena->end - arena->at) < rounded)
        add_block(arena, rounded);
    taken = arena->at;
    arena->at += rounded;
    arena->bytes += rounded;
    return taken;
}

void *truce__arena_copy(struct arena *arena, const void *bytes, size_t size)
{
    void *copy = truce__arena_take(arena, size);

    if (size)
        memcpy(copy, bytes, size);
    return copy;
}

void truce__arena_reset(struct arena *arena)
{
    struct arena_block *kept = arena->first;

    if (!kept)
        return;
    while (kept->next) {
        struct arena_block *next = kept->next;
        bson_free(kept);
        kept = next;
    }
    arena->first = kept;
    arena->at = kept->bytes;
    arena->end = kept->bytes + kept->size;
    arena->bytes = 0;
}

void truce__arena_release(struct arena *arena)
{
    while (arena->first) {
        struct arena_block *next = arena->first->next;
        bson_free(arena->first);
        arena->first = next;
    }
    *arena = (struct arena)ARENA_INIT;
}

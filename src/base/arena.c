#include "base/arena.h"

#include <stdalign.h>
#include <string.h>

#include <bson/bson.h>

#include "base/assert.h"

/* The bytes of the first block and of further blocks. Most arenas are short-lived and small. The
 * first block is therefore small enough for the cache of malloc, which each thread has. */
#define FIRST_BYTES ((size_t)1000)
#define BLOCK_BYTES ((size_t)16 * 1024)
/* A block is this many times as large as the previous one, up to BLOCK_BYTES. */
#define BLOCK_GROWTH 4

struct arena_block {
    struct arena_block *next;
    size_t size;
    alignas(max_align_t) uint8_t bytes[];
};

/* Adds a block with room for at least `size` bytes. The rest of the previous block stays unused
 * until the next reset. */
static void add_block(struct arena *arena, size_t size)
{
    size_t usual = arena->first ? arena->first->size * BLOCK_GROWTH : FIRST_BYTES;
    size_t room = usual < BLOCK_BYTES ? usual : BLOCK_BYTES;
    struct arena_block *block;

    room = size > room ? size : room;
    block = bson_malloc(sizeof *block + room);

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

/* Frees all blocks but the largest one of at most BLOCK_BYTES. A block for one large allocation is
 * freed. */
void truce__arena_empty(struct arena *arena)
{
    struct arena_block *kept = NULL, *next;

    for (struct arena_block *block = arena->first; block; block = next) {
        next = block->next;
        if (block->size <= BLOCK_BYTES && (!kept || block->size > kept->size)) {
            bson_free(kept);
            kept = block;
        } else {
            bson_free(block);
        }
    }
    *arena = (struct arena)ARENA_INIT;
    if (!kept)
        return;
    kept->next = NULL;
    arena->first = kept;
    arena->at = kept->bytes;
    arena->end = kept->bytes + kept->size;
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

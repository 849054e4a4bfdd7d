#ifndef TRUCE_BASE_ARENA_H
#define TRUCE_BASE_ARENA_H

/*
 * An arena: memory that is given back all at once. Values that live as long as one evaluation (one
 * document through a pipeline stage, one update) are taken from it.
 *
 * Not safe for several threads. Zero-initialise, or use ARENA_INIT; release frees everything.
 */
#include <stddef.h>
#include <stdint.h>

struct arena_block;

struct arena {
    struct arena_block *first; /* the blocks in use, newest first */
    uint8_t *at, *end;         /* free part of the newest block */
    size_t bytes;              /* taken since the last reset, all blocks together */
};

#define ARENA_INIT                                                                                 \
    {                                                                                              \
        0                                                                                          \
    }

/* `size` bytes, aligned for any type, not initialised; never NULL (out of memory aborts) */
void *truce__arena_take(struct arena *arena, size_t size);
void *truce__arena_copy(struct arena *arena, const void *bytes, size_t size);

/* Everything taken is gone; one block is kept, so that a loop allocates nothing once it is warm. */
void truce__arena_empty(struct arena *arena);
static inline void truce__arena_reset(struct arena *arena)
{
    if (arena->bytes)
        truce__arena_empty(arena);
}
void truce__arena_release(struct arena *arena);

#endif

#ifndef TRUCE_BASE_ARENA_H
#define TRUCE_BASE_ARENA_H

/*
 * An arena allocates memory that is freed all at once. It serves values that live as long as one
 * evaluation: one document in a pipeline stage, or one update.
 *
 * Not safe for several threads. Zero-initialize, or use ARENA_INIT; release frees everything.
 */
#include <stddef.h>
#include <stdint.h>

struct arena_block;

struct arena {
    /* The blocks in use, from the newest to the oldest. */
    struct arena_block *first;
    /* The free part of the newest block: its first byte, and the byte after it. */
    uint8_t *at, *end;
    /* The number of bytes allocated since the last reset, in all blocks. */
    size_t bytes;
};

#define ARENA_INIT                                                                                 \
    {                                                                                              \
        0                                                                                          \
    }

/* Allocates `size` bytes, aligned for any type and not initialized. Never returns NULL: if memory
 * runs out, the process aborts. */
void *truce__arena_take(struct arena *arena, size_t size);
void *truce__arena_copy(struct arena *arena, const void *bytes, size_t size);

/* Frees everything but one block, so that a loop that resets the arena needs no malloc. */
void truce__arena_empty(struct arena *arena);
static inline void truce__arena_reset(struct arena *arena)
{
    if (arena->bytes)
        truce__arena_empty(arena);
}
void truce__arena_release(struct arena *arena);

#endif

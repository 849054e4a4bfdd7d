#ifndef TRUCE_BASE_HASH_TABLE_H
#define TRUCE_BASE_HASH_TABLE_H

/*
 * A growing hash table from 64-bit hashes to numbers: the index of a user's array of items. The
 * table never sees the items. The user compares them, inline, so a lookup takes as long as in a
 * table that is written for the type of the items:
 *
 *     static uint32_t find_or_add(struct names *names, const char *name)
 *     {
 *         uint64_t hash = truce__hash_text(name);
 *
 *         for (struct hash_probe probe = truce__hash_probe(&names->table, hash);
 *              truce__hash_next(&probe);)
 *             if (!strcmp(names->items[probe.number], name))
 *                 return probe.number;
 *         truce__hash_add(&names->table, hash, names->count);
 *         ...                                             append the name to names->items
 *     }
 *
 * It uses open addressing with linear probing and is at most half full. A slot stores 32 bits of
 * the hash next to the number. A lookup therefore compares few items with another hash, and growing
 * needs neither the items nor their hashes.
 *
 * Numbers with the same hash are found in any order. Items cannot be removed one by one.
 *
 * A table of zeroes is empty and takes its memory from the heap; truce__hash_release frees it. A
 * table that begins as {.arena = arena} takes its memory from the arena and needs no release. Not
 * safe for several threads.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct arena;

struct hash_slot {
    /* The low 32 bits of the hash. */
    uint32_t hash;
    /* The number plus one, or 0 if the slot is free. */
    uint32_t number;
};

struct hash_table {
    struct arena *arena;
    struct hash_slot *slots;
    /* The count of numbers in the table. */
    uint32_t count;
    /* The count of slots, which is a power of two, or 0 before the first number is added. */
    uint32_t room;
};

/* The numbers that were added with one hash, one after the other. */
struct hash_probe {
    const struct hash_slot *slots;
    /* The state of the search. */
    uint32_t hash, mask, at;
    /* The number that truce__hash_next has found, if it returned true. */
    uint32_t number;
};

static inline struct hash_probe truce__hash_probe(const struct hash_table *table, uint64_t hash)
{
    return (struct hash_probe){.slots = table->room ? table->slots : NULL,
                               .hash = (uint32_t)hash,
                               .mask = table->room - 1,
                               .at = (uint32_t)hash & (table->room - 1)};
}

/* Finds the next number with the hash. Returns false after the last one. */
static inline bool truce__hash_next(struct hash_probe *probe)
{
    const struct hash_slot *slot;

    if (!probe->slots)
        return false;
    while ((slot = &probe->slots[probe->at])->number) {
        probe->at = (probe->at + 1) & probe->mask;
        if (slot->hash == probe->hash) {
            probe->number = slot->number - 1;
            return true;
        }
    }
    return false;
}

/* Replaces the number that truce__hash_next found last by another number with the same hash. */
static inline void truce__hash_replace(struct hash_table *table, const struct hash_probe *probe,
                                       uint32_t number)
{
    table->slots[(probe->at - 1) & probe->mask].number = number + 1;
}

/* Makes room for `count` numbers in all, so that adding them does not grow the table. */
void truce__hash_reserve(struct hash_table *table, uint32_t count);

/* Adds a number without checking whether the table contains it. The number must be less than
 * UINT32_MAX. */
static inline void truce__hash_add(struct hash_table *table, uint64_t hash, uint32_t number)
{
    uint32_t at;

    if (table->count >= table->room / 2)
        truce__hash_reserve(table, table->count + 1);
    at = (uint32_t)hash & (table->room - 1);
    while (table->slots[at].number)
        at = (at + 1) & (table->room - 1);
    table->slots[at] = (struct hash_slot){(uint32_t)hash, number + 1};
    table->count++;
}

/* Returns the number of bytes that a table with room for `count` numbers takes. */
size_t truce__hash_bytes_needed(uint32_t count);

/* Frees a table that is not in an arena. The table is empty afterwards. */
void truce__hash_release(struct hash_table *table);

/* ---- hashes --------------------------------------------------------------------------------- */

/* These hashes are for tables in memory. They may differ between versions, and they do not resist
 * an attacker who searches for collisions. */

/* Combines two numbers by their 128-bit product (after wyhash, Wang Yi 2019). */
static inline uint64_t truce__hash_mix(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;

    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t truce__hash_word(uint64_t word)
{
    return truce__hash_mix(word ^ UINT64_C(0x9e3779b97f4a7c15), UINT64_C(0xe7037ed1a0b428db));
}

static inline uint64_t truce__hash_bytes(const void *bytes, size_t size)
{
    uint64_t hash = size ^ UINT64_C(0x9e3779b97f4a7c15), word;
    const uint8_t *at = bytes;

    for (; size >= 8; at += 8, size -= 8) {
        memcpy(&word, at, 8);
        hash = truce__hash_mix(hash ^ word, UINT64_C(0xe7037ed1a0b428db));
    }
    word = 0;
    if (size)
        memcpy(&word, at, size);
    return truce__hash_mix(hash ^ word, UINT64_C(0x8ebc6af09c88c6e3));
}

static inline uint64_t truce__hash_text(const char *text)
{
    return truce__hash_bytes(text, strlen(text));
}

#endif

#include "base/hash_table.h"

#include "base/arena.h"
#include "tests/support/test.h"

/* The numbers 0 to count - 1, each with the hash `number % hashes`. */
static void add_numbers(struct hash_table *table, uint32_t count, uint32_t hashes)
{
    for (uint32_t i = 0; i < count; i++)
        truce__hash_add(table, i % hashes, i);
}

/* Checks that each hash has exactly the numbers that were added with it. */
static void check_numbers(const struct hash_table *table, uint32_t count, uint32_t hashes)
{
    for (uint32_t hash = 0; hash < hashes; hash++) {
        uint32_t found = 0;
        uint64_t sum = 0, expected = 0;

        for (struct hash_probe probe = truce__hash_probe(table, hash); truce__hash_next(&probe);) {
            found++;
            sum += probe.number;
        }
        for (uint32_t i = hash; i < count; i += hashes) {
            found--;
            expected += i;
        }
        CHECK_INT(found, ==, 0);
        CHECK(sum == expected);
    }
}

TEST(an_empty_table_has_no_number)
{
    struct hash_table table = {0};
    struct hash_probe probe = truce__hash_probe(&table, 7);

    CHECK(!truce__hash_next(&probe));
    truce__hash_release(&table);
}

TEST(finds_every_number_of_a_hash_while_it_grows)
{
    static const uint32_t counts[] = {1, 7, 8, 9, 100, 5000};

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct hash_table table = {0};

        add_numbers(&table, counts[i], 1 + counts[i] / 3);
        CHECK_INT(table.count, ==, counts[i]);
        CHECK_INT(table.room, >=, 2 * counts[i]);
        check_numbers(&table, counts[i], 1 + counts[i] / 3);
        truce__hash_release(&table);
    }
}

TEST(finds_numbers_whose_slots_wrap_around_the_end)
{
    struct hash_table table = {0};
    uint32_t found = 0;

    for (uint32_t i = 0; i < 7; i++)
        truce__hash_add(&table, 15, i);
    CHECK_INT(table.room, ==, 16);
    for (struct hash_probe probe = truce__hash_probe(&table, 15); truce__hash_next(&probe);)
        found |= 1u << probe.number;
    CHECK_INT(found, ==, 0x7f);
    truce__hash_release(&table);
}

TEST(distinguishes_hashes_with_one_slot)
{
    struct hash_table table = {0};
    struct hash_probe probe;

    truce__hash_add(&table, 3, 0);
    truce__hash_add(&table, 3 + (1u << 20), 1);
    probe = truce__hash_probe(&table, 3 + (1u << 20));
    CHECK(truce__hash_next(&probe));
    CHECK_INT(probe.number, ==, 1);
    CHECK(!truce__hash_next(&probe));
    truce__hash_release(&table);
}

TEST(does_not_grow_within_the_room_that_was_reserved)
{
    struct arena arena = ARENA_INIT;
    struct hash_table table = {.arena = &arena};
    size_t bytes;

    truce__hash_reserve(&table, 1000);
    bytes = arena.bytes;
    CHECK(truce__hash_bytes_needed(1000) == table.room * sizeof(struct hash_slot));
    add_numbers(&table, 1000, 1000);
    CHECK(arena.bytes == bytes);
    check_numbers(&table, 1000, 1000);
    truce__arena_release(&arena);
}

TEST(replaces_the_number_that_was_found_last)
{
    struct hash_table table = {0};
    struct hash_probe probe;

    for (uint32_t i = 0; i < 3; i++)
        truce__hash_add(&table, 15, i);
    probe = truce__hash_probe(&table, 15);
    while (truce__hash_next(&probe) && probe.number != 1)
        continue;
    truce__hash_replace(&table, &probe, 9);
    for (probe = truce__hash_probe(&table, 15); truce__hash_next(&probe);)
        CHECK(probe.number == 0 || probe.number == 2 || probe.number == 9);
    CHECK_INT(table.count, ==, 3);
    truce__hash_release(&table);
}

TEST(hashes_spread_similar_keys)
{
    enum { KEYS = 4096 };
    struct hash_table table = {0};
    uint32_t longest = 0;
    char key[16];

    for (uint32_t i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "field%u", i);
        truce__hash_add(&table, truce__hash_text(key), i);
    }
    for (uint32_t at = 0, run = 0; at < table.room; at++) {
        run = table.slots[at].number ? run + 1 : 0;
        longest = run > longest ? run : longest;
    }
    CHECK_INT(longest, <, 64);
    CHECK(truce__hash_bytes("a\0", 2) != truce__hash_bytes("a", 1));
    CHECK(truce__hash_bytes("", 0) != truce__hash_bytes("\0", 1));
    CHECK(truce__hash_bytes("12345678a", 9) != truce__hash_bytes("12345678b", 9));
    CHECK(truce__hash_word(1) != truce__hash_word(2));
    truce__hash_release(&table);
}

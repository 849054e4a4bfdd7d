/* Segments of an archive: versions of pages as changes, and data that is damaged. */
#include "archive/archive_segment.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/random.h"
#include "tests/support/test.h"

#define PAGES   5
#define ENTRIES 300

static const struct segment_name name = {1, 1, SEGMENT_LOG};

/* The segment, how it is made and read, its bytes, and what each entry must have. */
static struct {
    struct segment made, read;
    struct segment_pages pages;
    struct buffer bytes;
    uint8_t versions[ENTRIES][SEGMENT_PAGE_BYTES];
} segment;

static void segment_begin(enum segment_kind kind)
{
    memset(&segment.made.head, 0, sizeof segment.made.head);
    segment.made.head.kind = kind;
    segment.made.head.generation = 1;
    segment.made.head.sequence = 1;
    truce__segment_pages_begin(&segment.pages);
}

static void segment_end(void)
{
    truce__segment_pages_release(&segment.pages);
    truce__buffer_release(&segment.bytes);
}

static truce_status segment_read(bson_error_t *error)
{
    return truce__segment_decode(&name, segment.bytes.bytes, segment.bytes.size, &segment.pages,
                                 &segment.read, error);
}

/* Changes a page as writes of any kind do: a few bytes, a part that moves, all of it, or
 * nothing. */
static void change_page(struct random *random, uint8_t page[SEGMENT_PAGE_BYTES])
{
    size_t at = truce__random_below(random, SEGMENT_PAGE_BYTES);
    size_t size = truce__random_below(random, SEGMENT_PAGE_BYTES - at + 1);

    switch (truce__random_below(random, 6)) {
    case 0:
        for (size_t i = 0; i < SEGMENT_PAGE_BYTES; i++)
            page[i] = (uint8_t)truce__random_below(random, 256);
        break;
    case 1:
        memmove(page + at, page, size);
        break;
    case 2:
        memset(page + at, 0, size);
        break;
    case 3:
        memset(page, 0, SEGMENT_PAGE_BYTES);
        break;
    case 4:
        break;
    default:
        for (int i = 0; i < 20; i++)
            page[truce__random_below(random, SEGMENT_PAGE_BYTES)]++;
    }
}

TEST(returns_every_version_of_a_page)
{
    static uint8_t now[PAGES][SEGMENT_PAGE_BYTES];
    struct random random;
    bson_error_t error;
    bool last[SEGMENT_ENTRIES_MAX];
    uint64_t whole = 0;

    truce__random_seed(&random, test_seed());
    memset(now, 0, sizeof now);
    segment_begin(SEGMENT_LOG);
    for (int i = 0; i < ENTRIES; i++) {
        uint32_t number = (uint32_t)truce__random_below(&random, PAGES);

        change_page(&random, now[number]);
        memcpy(segment.versions[i], now[number], SEGMENT_PAGE_BYTES);
        /* The checksum is the end of the page. */
        truce__segment_add(&segment.made, &segment.pages, number + 1, segment.versions[i], 9);
        whole += segment.made.entries[i].size == SEGMENT_PAGE_BYTES;
    }
    truce__segment_encode(&segment.made, &segment.pages, &segment.bytes);
    CHECK_INT(whole, <, ENTRIES);
    REQUIRE(CHECK_OK(segment_read(&error), error));
    CHECK_INT(segment.read.head.entries, ==, ENTRIES);
    truce__segment_find_last(&segment.pages, &segment.read, ENTRIES, last);
    for (uint32_t i = 0; i < ENTRIES; i++) {
        const uint8_t *page = truce__segment_page(&segment.pages, &segment.read, i);
        bool later = false;

        REQUIRE(page != NULL);
        CHECK(!memcmp(page, segment.versions[i], SEGMENT_PAGE_BYTES));
        for (uint32_t k = i + 1; k < ENTRIES; k++)
            later = later || segment.read.entries[k].page == segment.read.entries[i].page;
        CHECK(last[i] == !later);
    }
    segment_end();
}

/* A full segment has its maximum of bytes, or of entries. */
TEST(fills_a_segment_to_its_maximum_of_bytes_or_entries)
{
    static uint8_t page[SEGMENT_PAGE_BYTES];
    uint32_t number = 0;
    bson_error_t error;

    segment_begin(SEGMENT_LOG);
    memset(page, 1, sizeof page);
    while (!truce__segment_is_full(&segment.made, &segment.pages))
        truce__segment_add(&segment.made, &segment.pages, ++number * 4096, page, 0);
    CHECK_INT(number, ==, SEGMENT_PAGES_MAX);
    truce__segment_encode(&segment.made, &segment.pages, &segment.bytes);
    CHECK_INT(segment.bytes.size, <=, SEGMENT_BYTES_MAX);
    CHECK_OK(segment_read(&error), error);
    segment_begin(SEGMENT_LOG);
    while (!truce__segment_is_full(&segment.made, &segment.pages)) {
        page[7]++;
        truce__segment_add(&segment.made, &segment.pages, 1, page, 0);
    }
    CHECK_INT(segment.made.head.entries, ==, SEGMENT_ENTRIES_MAX);
    truce__segment_encode(&segment.made, &segment.pages, &segment.bytes);
    CHECK_OK(segment_read(&error), error);
    segment_end();
}

/* The hash does not cover the data, so the changes themselves can have any value. */
TEST(refuses_any_changed_bit)
{
    static uint8_t page[SEGMENT_PAGE_BYTES];
    bson_error_t error;

    segment_begin(SEGMENT_LOG);
    for (uint32_t i = 0; i < 6; i++) {
        page[i * 300]++;
        page[SEGMENT_PAGE_BYTES - 9]++;
        truce__segment_add(&segment.made, &segment.pages, 1 + i % 2, page, i % 3);
    }
    truce__segment_encode(&segment.made, &segment.pages, &segment.bytes);
    REQUIRE(CHECK_OK(segment_read(&error), error));
    for (size_t at = 0; at < segment.bytes.size; at++) {
        uint8_t right = segment.bytes.bytes[at];

        segment.bytes.bytes[at] ^= (uint8_t)(1 << at % 8);
        CHECK_STATUS(TRUCE_CORRUPT, segment_read(&error), error);
        segment.bytes.bytes[at] = 0xff;
        if (right != 0xff)
            CHECK_STATUS(TRUCE_CORRUPT, segment_read(&error), error);
        segment.bytes.bytes[at] = right;
    }
    while (segment.bytes.size--)
        CHECK_STATUS(TRUCE_CORRUPT, segment_read(&error), error);
    segment.bytes.size = 0;
    segment_end();
}

/* Changes that no archiver makes, although the page that they make is right. */
TEST(refuses_changes_that_are_not_possible)
{
    static uint8_t page[SEGMENT_PAGE_BYTES];
    static const uint8_t more[2][20] = {
        {0},                  /* A part without a length. */
        {0xf0, 0x0f, 16, 0}}; /* A part that ends after the checksum of the page. */
    static const size_t sizes[] = {4, 20};
    bson_error_t error;

    for (int kind = 0; kind < 2; kind++) {
        segment_begin(SEGMENT_LOG);
        memset(page, 0, sizeof page);
        page[7] = 7;
        truce__segment_add(&segment.made, &segment.pages, 1, page, 1);
        REQUIRE(CHECK_INT(segment.made.entries[0].size, <, 100));
        truce__segment_encode(&segment.made, &segment.pages, &segment.bytes);
        CHECK_OK(segment_read(&error), error);
        segment_begin(SEGMENT_LOG);
        truce__segment_add(&segment.made, &segment.pages, 1, page, 1);
        truce__buffer_append(&segment.pages.data, more[kind], sizes[kind]);
        segment.made.entries[0].size += (uint32_t)sizes[kind];
        truce__segment_encode(&segment.made, &segment.pages, &segment.bytes);
        CHECK_STATUS(TRUCE_CORRUPT, segment_read(&error), error);
    }
    segment_end();
}

/* The bytes after the segment cannot be read here. */
TEST(reads_no_change_after_the_segment)
{
    static uint8_t page[SEGMENT_PAGE_BYTES];
    const size_t room = SEGMENT_PAGE_BYTES;
    uint8_t *bytes =
        mmap(NULL, 2 * room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bson_error_t error;
    uint8_t *start;

    REQUIRE(bytes != MAP_FAILED && !mprotect(bytes + room, room, PROT_NONE));
    segment_begin(SEGMENT_LOG);
    page[7] = 7;
    truce__segment_add(&segment.made, &segment.pages, 1, page, 1);
    REQUIRE(CHECK_INT(segment.made.entries[0].size, ==, 12));
    truce__segment_encode(&segment.made, &segment.pages, &segment.bytes);
    start = bytes + room - segment.bytes.size;
    memcpy(start, segment.bytes.bytes, segment.bytes.size);
    /* The length of the only change. */
    start[segment.bytes.size - 9] = 0x0f;
    CHECK_STATUS(TRUCE_CORRUPT,
                 truce__segment_decode(&name, start, segment.bytes.size, &segment.pages,
                                       &segment.read, &error),
                 error);
    munmap(bytes, 2 * room);
    segment_end();
}

/* An entry whose hash is right can still be one that no archiver makes. */
TEST(refuses_entries_that_are_not_possible)
{
    static uint8_t page[SEGMENT_PAGE_BYTES];
    bson_error_t error;

    for (int kind = 0; kind < 4; kind++) {
        segment_begin(SEGMENT_LOG);
        page[0] = (uint8_t)(kind + 1);
        truce__segment_add(&segment.made, &segment.pages, 1, page, 1);
        page[100]++;
        truce__segment_add(&segment.made, &segment.pages, 1, page, 1);
        if (kind == 0)
            segment.made.entries[1].page = 0;
        else if (kind == 1)
            segment.made.entries[1].page = 2; /* A change of a page that has no version. */
        else if (kind == 2)
            segment.made.entries[0].size = SEGMENT_PAGE_BYTES + 1;
        else
            segment.made.head.age_ms = -1;
        truce__segment_encode(&segment.made, &segment.pages, &segment.bytes);
        CHECK_STATUS(TRUCE_CORRUPT, segment_read(&error), error);
    }
    segment_end();
}

/*
 * Pages with checksums. Whatever happens to the bytes of a file, no call returns data that was not
 * written. The error names the damaged page, and everything else stays readable.
 */
#include "engine/storage/checksum_vfs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "engine/documents/open_documents.h"
#include "engine/storage/wal_vfs.h"
#include "tests/support/damage.h"
#include "tests/support/test.h"
#include "truce/sweep.h"

enum { DOCUMENTS = 120 };

static const char *const collections[] = {"north", "east", "south"};

static char path[400];
static struct image valid;

static void fill(truce_store *store, const char *name)
{
    bson_t *index = test_bson("{'key': {'n': 1}, 'name': 'by_n'}");
    truce_write_options relaxed = {.relaxed = true};
    char text[1500];
    bson_error_t error;

    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    CHECK_OK(truce_index_create(store, name, index, &error), error);
    for (int i = 0; i < DOCUMENTS; i++) {
        bson_t *document = BCON_NEW("_id", BCON_INT32(i), "n", BCON_INT32(i * 7), "text", text);

        /* some longer than a page */
        for (int more = 0; i % 20 == 0 && more < 5; more++)
            BSON_APPEND_UTF8(document, "more", text);
        CHECK_OK(truce_insert(store, name, document, &relaxed, &error), error);
        bson_destroy(document);
    }
    bson_destroy(index);
}

static bool make(void)
{
    truce_store *store;
    bson_error_t error;

    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    if (valid.size)
        return true;
    if (!CHECK_OK(truce_store_open(path, NULL, &store, &error), error))
        return false;
    for (size_t i = 0; i < 3; i++)
        fill(store, collections[i]);
    truce_store_close(store);
    return image_read(&valid, path);
}

/* Reads every document, by the index too. Returns how many reads succeeded before a failure. */
static truce_status read_all(truce_store *store, const char *name, bool by_index,
                             bson_error_t *error)
{
    bson_t *filter = test_bson(by_index ? "{'n': {'$gte': 0}}" : "{}");
    bson_t *hint = test_bson("{'n': 1}");
    truce_find_options options = {.hint = by_index ? hint : NULL};
    truce_cursor *cursor;
    const bson_t *document;
    int64_t sum = 0, count = 0;
    truce_status status = truce_find(store, name, filter, &options, &cursor, error);

    while (!status) {
        bson_iter_t iter;

        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        count++;
        sum += bson_iter_init_find(&iter, document, "n") ? bson_iter_int32(&iter) : -1;
    }
    if (!status) {
        CHECK_INT(count, ==, DOCUMENTS);
        CHECK_INT(sum, ==, 7 * DOCUMENTS * (DOCUMENTS - 1) / 2);
    }
    truce_cursor_close(cursor);
    bson_destroy(filter);
    bson_destroy(hint);
    return status;
}

/* How many collections cannot be read whole; -1: the store cannot be opened. */
static int damaged_collections(uint32_t page)
{
    const truce_store_options options = {.read_only = true};
    truce_store *store;
    bson_error_t error = {0};
    int damaged = 0;
    truce_status status = truce_store_open(path, &options, &store, &error);
    char expected[60];

    snprintf(expected, sizeof expected, "page %u of the file is damaged", page);
    if (status) {
        CHECK_STATUS(TRUCE_CORRUPT, status, error);
        CHECK(strstr(error.message, expected));
        return -1;
    }
    for (size_t i = 0; i < 3; i++) {
        truce_status by_row = read_all(store, collections[i], false, &error);

        if (!by_row)
            by_row = read_all(store, collections[i], true, &error);
        if (!by_row)
            continue;
        CHECK_STATUS(TRUCE_CORRUPT, by_row, error);
        CHECK(strstr(error.message, expected));
        CHECK(page < 4 || strstr(error.message, collections[i]));
        damaged++;
    }
    truce_store_close(store);
    return damaged;
}

TEST(a_byte_that_changed_is_named_and_everything_else_can_be_read)
{
    struct random random;
    struct image image;
    uint32_t pages;
    int unused = 0;

    REQUIRE(make());
    truce__random_seed(&random, test_seed());
    pages = (uint32_t)(valid.size / KV_PAGE_BYTES);
    image = (struct image){bson_malloc(valid.size), valid.size};
    CHECK_INT(pages, >, 60);
    for (uint32_t page = 1; page <= pages; page++) {
        size_t at =
            (size_t)(page - 1) * KV_PAGE_BYTES + truce__random_below(&random, KV_PAGE_BYTES);
        int damaged;

        memcpy(image.bytes, valid.bytes, valid.size);
        if (page == 1) /* the page without the header of the file */
            at = 200 + at % 3000;
        image.bytes[at] ^= (uint8_t)(1 << truce__random_below(&random, 8));
        REQUIRE(image_write(&image, path));
        damaged = damaged_collections(page);
        if (page == 1)
            CHECK_INT(damaged, ==, -1);
        else if (page == 2) /* a map */
            CHECK_INT(damaged, ==, 0);
        else if (page == 3) /* the catalog */
            CHECK_INT(damaged, ==, 3);
        else
            CHECK_INT(damaged, <=, 1);
        unused += !damaged;
    }
    CHECK_INT(unused, <, 5); /* the indexes of _id are not read here */
    image_release(&image);
}

/* Flips each bit of the header alone: the store is refused, or all its answers are correct. */
TEST(no_bit_of_the_header_disables_the_checksums)
{
    const truce_store_options options = {.read_only = true};
    struct image image;
    int refused = 0;

    REQUIRE(make());
    image = (struct image){bson_malloc(valid.size), valid.size};
    for (int bit = 0; bit < 100 * 8; bit++) {
        truce_store *store;
        bson_error_t error = {0};
        truce_status status;

        memcpy(image.bytes, valid.bytes, valid.size);
        image.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        REQUIRE(image_write(&image, path));
        status = truce_store_open(path, &options, &store, &error);
        if (!status) {
            status = read_all(store, "north", false, &error);
            truce_store_close(store);
        }
        CHECK_STATUS(TRUCE_CORRUPT, status, error);
        refused += status == TRUCE_CORRUPT;
    }
    CHECK_INT(refused, ==, 800);
    image_release(&image);
}

/* Checks the error of a store whose header was changed, with or without a valid checksum. */
static void check_header(size_t place, uint8_t byte, bool sealed, const char *words)
{
    struct image image;
    truce_store *store;
    bson_error_t error = {0};

    REQUIRE(make());
    image = (struct image){bson_malloc(valid.size), valid.size};
    memcpy(image.bytes, valid.bytes, valid.size);
    CHECK(image.bytes[place] != byte);
    image.bytes[place] = byte;
    if (sealed)
        image_seal(&image, 1);
    REQUIRE(image_write(&image, path));
    image_release(&image);
    CHECK_STATUS(TRUCE_CORRUPT, truce_store_open(path, NULL, &store, &error), error);
    if (!CHECK(strstr(error.message, words)))
        fprintf(stderr, "  %s\n", error.message);
}

/* Byte 20 is the number of reserved bytes of each page. */
TEST(reports_a_header_without_space_for_checksums_as_damage)
{
    check_header(20, 0, false, "page 1 of the file is damaged");
    check_header(20, 0, true, "its pages are not those");
    check_header(20, 12, true, "its pages are not those");
}

/* ---- pages that were cut --------------------------------------------------------------------- */

/* A document of several pages is the last that is written, and has the last page of the file. */
static bson_t *last_document(void)
{
    bson_t *document = BCON_NEW("_id", BCON_INT32(1));
    char *pad = memset(bson_malloc(30001), 'z', 30000);

    pad[30000] = 0;
    BSON_APPEND_UTF8(document, "pad", pad);
    bson_free(pad);
    return document;
}

static bool make_with_last(struct image *image)
{
    bson_t *last = last_document(), *empty = test_bson("{'_id': 0}");
    truce_store *store;
    bson_error_t error;

    if (!make() || !image_write(&valid, path) ||
        !CHECK_OK(truce_store_open(path, NULL, &store, &error), error))
        return false;
    CHECK_OK(truce_insert(store, "last", empty, NULL, &error), error);
    CHECK_OK(truce_insert(store, "last", last, NULL, &error), error);
    truce_store_close(store);
    bson_destroy(last);
    bson_destroy(empty);
    return image_read(image, path);
}

static truce_status read_last(uint32_t page)
{
    bson_t *filter = test_bson("{'_id': 1}"), found, *expected = last_document();
    const truce_store_options options = {.read_only = true};
    truce_store *store;
    bson_error_t error = {0};
    truce_status status;
    char words[60];

    snprintf(words, sizeof words, "page %u of the file is damaged", page);
    if (!CHECK_OK(truce_store_open(path, &options, &store, &error), error))
        return TRUCE_OK;
    status = truce_find_one(store, "last", filter, NULL, &found, &error);
    if (!status)
        CHECK_BSON(expected, &found);
    else
        CHECK(strstr(error.message, words));
    bson_destroy(&found);
    CHECK_OK(read_all(store, "south", false, &error), error);
    truce_store_close(store);
    bson_destroy(filter);
    bson_destroy(expected);
    return status;
}

static void count_damaged_pages(const bson_t *finding, void *arg)
{
    bson_iter_t rule;

    if (bson_iter_init_find(&rule, finding, "rule") &&
        !strcmp(bson_iter_utf8(&rule, NULL), "damaged-page"))
        (*(int *)arg)++;
}

static int damaged_pages(void)
{
    truce_check_report report;
    truce_store *store;
    bson_error_t error;
    int count = 0;

    if (!CHECK_OK(truce_store_open(path, NULL, &store, &error), error))
        return -1;
    if (truce_check(store, NULL, count_damaged_pages, &count, &report, &error))
        CHECK(count); /* other parts of the check cannot read their data */
    truce_store_close(store);
    return count;
}

/* SQLite reads missing bytes as zeros, and so as the end of a string. */
TEST(a_last_page_that_was_cut_is_damage)
{
    static const size_t cuts[] = {1, KV_SUM_BYTES, 9, 500, 2000, KV_PAGE_BYTES - 1};
    struct image image;
    uint32_t pages;

    REQUIRE(make_with_last(&image));
    pages = (uint32_t)(image.size / KV_PAGE_BYTES);
    CHECK_INT(read_last(pages), ==, TRUCE_OK);
    CHECK_INT(damaged_pages(), ==, 0);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        struct image cut = {image.bytes, image.size - cuts[i]};

        REQUIRE(image_write(&cut, path));
        CHECK_INT(read_last(pages), ==, TRUCE_CORRUPT);
        CHECK_INT(damaged_pages(), ==, 1);
    }
    image_release(&image);
}

/* Direct reads of parts of pages by SQLite, if it was built with them. */
TEST(a_part_of_a_page_that_was_cut_is_damage)
{
    struct image image;
    uint8_t bytes[200];
    sqlite3_file *file;
    sqlite3_int64 start;
    sqlite3 *db;

    REQUIRE(make_with_last(&image));
    start = (sqlite3_int64)image.size - KV_PAGE_BYTES;
    image.size -= 100;
    REQUIRE(image_write(&image, path));
    CHECK(!sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, truce__kv_wal_vfs()));
    CHECK(!sqlite3_exec(db, "SELECT count(*) FROM sqlite_schema", NULL, NULL, NULL));
    CHECK(!sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file));
    CHECK_INT(file->pMethods->xRead(file, bytes, sizeof bytes, start - KV_PAGE_BYTES + 4), ==, 0);
    CHECK_INT(file->pMethods->xRead(file, bytes, sizeof bytes, start + 4), ==, SQLITE_IOERR_DATA);
    CHECK_INT(file->pMethods->xRead(file, bytes, sizeof bytes, start + KV_PAGE_BYTES + 4), ==,
              SQLITE_IOERR_SHORT_READ);
    sqlite3_close(db);
    image_release(&image);
}

TEST(refuses_pages_that_were_swapped)
{
    struct image image;
    uint8_t page[KV_PAGE_BYTES];
    uint32_t last;

    REQUIRE(make());
    image = (struct image){bson_malloc(valid.size), valid.size};
    memcpy(image.bytes, valid.bytes, valid.size);
    last = (uint32_t)(image.size / KV_PAGE_BYTES);
    memcpy(page, image.bytes + (size_t)(last - 1) * KV_PAGE_BYTES, KV_PAGE_BYTES);
    memmove(image.bytes + (size_t)(last - 1) * KV_PAGE_BYTES,
            image.bytes + (size_t)(last - 4) * KV_PAGE_BYTES, KV_PAGE_BYTES);
    memcpy(image.bytes + (size_t)(last - 4) * KV_PAGE_BYTES, page, KV_PAGE_BYTES);
    REQUIRE(image_write(&image, path));
    CHECK(truce__kv_page_sum(page, last) != truce__kv_page_sum(page, last - 3));
    {
        const truce_store_options options = {.read_only = true};
        truce_store *store;
        bson_error_t error = {0};

        CHECK_OK(truce_store_open(path, &options, &store, &error), error);
        CHECK_OK(read_all(store, "north", false, &error), error);
        CHECK_STATUS(TRUCE_CORRUPT, read_all(store, "south", false, &error), error);
        truce_store_close(store);
    }
    image_release(&image);
}

/* One bit of any word, in any page. */
TEST(every_change_of_a_word_changes_the_sum)
{
    struct random random;
    uint8_t page[KV_PAGE_BYTES];
    uint64_t sum;

    truce__random_seed(&random, test_seed());
    for (size_t i = 0; i < sizeof page; i++)
        page[i] = (uint8_t)truce__random_next(&random);
    sum = truce__kv_page_sum(page, 7);
    for (size_t bit = 0; bit < (KV_PAGE_BYTES - KV_SUM_BYTES) * 8; bit++) {
        page[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CHECK(truce__kv_page_sum(page, 7) != sum);
        page[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    CHECK(truce__kv_page_sum(page, 7) == sum);
    CHECK(truce__kv_page_sum(page, 8) != sum);
}

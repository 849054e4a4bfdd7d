/* The structures that lead to documents and name them are damaged: no document is reported as
 * valid in a collection that is not its own. */
#include <string.h>

#include "engine/storage/checksum_vfs.h"
#include "engine/storage/file_format.h"
#include "tests/support/damage.h"
#include "tests/support/test.h"
#include "truce/salvage.h"

enum { COLLECTIONS = 120 };

static char path[400];
static struct image valid;
static truce_salvage_report report;

/* Collections of one page each, so many that the schema and the catalog have several. */
static bool make(void)
{
    truce_store *store;
    bson_error_t error;

    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    if (!CHECK_OK(truce_store_open(path, NULL, &store, &error), error))
        return false;
    for (int i = 0; i < COLLECTIONS; i++) {
        bson_t document = BSON_INITIALIZER;
        char name[20];

        snprintf(name, sizeof name, "all%03d", i);
        BCON_APPEND(&document, "_id", BCON_INT32(1), "of", BCON_UTF8(name));
        CHECK_OK(truce_insert(store, name, &document, NULL, &error), error);
        bson_destroy(&document);
    }
    truce_store_close(store);
    return image_read(&valid, path);
}

static void check_document(const bson_t *document, const char *name)
{
    bson_iter_t iter;

    if (CHECK(bson_iter_init_find(&iter, document, "of") && BSON_ITER_HOLDS_UTF8(&iter)))
        CHECK_TEXT(bson_iter_utf8(&iter, NULL), name);
}

/* Checks every collection that has a name of ours. Returns how many documents are in their own. */
static int check_saved(truce_store *saved)
{
    int number = 0;

    for (int i = 0; i < COLLECTIONS; i++) {
        const bson_t all = BSON_INITIALIZER, *document;
        truce_cursor *cursor;
        bson_error_t error;
        char name[20];

        snprintf(name, sizeof name, "all%03d", i);
        if (!CHECK_OK(truce_find(saved, name, &all, NULL, &cursor, &error), error))
            return number;
        while (truce_cursor_next(cursor, &document, &error) == TRUCE_OK && document) {
            check_document(document, name);
            number++;
        }
        truce_cursor_close(cursor);
    }
    return number;
}

static int salvage(const struct image *image)
{
    truce_store *saved = NULL;
    bson_error_t error;
    int number;

    CHECK(image_write(image, path));
    if (!CHECK_OK(truce_store_open("memory:", NULL, &saved, &error), error))
        return 0;
    CHECK_OK(truce_salvage(path, saved, NULL, &report, &error), error);
    number = check_saved(saved);
    truce_store_close(saved);
    return number;
}

/* Returns the n-th place of the text; NULL: there are not as many. Pages keep bytes of deleted
 * rows. */
static uint8_t *find_text(const struct image *image, const void *text, size_t size, int n)
{
    uint8_t *at = image->bytes;

    for (;; at++) {
        at = memmem(at, image->size - (size_t)(at - image->bytes), text, size);
        if (!at || !n--)
            return at;
    }
}

static void definition_of(int collection, char *definition)
{
    truce__kv_definition(false, 2 * collection + 2, definition, KV_DEFINITION_BYTES);
}

/* Exchanges byte `at` of each place of one text with that of the other text; no page is sealed
 * again. */
static void exchange(struct image *image, const void *one, const void *other, size_t size, int at)
{
    const uint8_t of_one = find_text(&valid, one, size, 0)[at],
                  of_other = find_text(&valid, other, size, 0)[at];
    uint8_t *place;

    for (int n = 0; (place = find_text(&valid, one, size, n)) != NULL; n++)
        image->bytes[place + at - valid.bytes] = of_other;
    for (int n = 0; (place = find_text(&valid, other, size, n)) != NULL; n++)
        image->bytes[place + at - valid.bytes] = of_one;
}

static void check_in_doubt(const struct image *image)
{
    CHECK_INT(salvage(image), <, COLLECTIONS - 1);
    CHECK(!report.complete && report.doubtful >= 2);
    CHECK_INT(report.documents + report.doubtful, ==, COLLECTIONS);
}

TEST(marks_documents_of_a_doubtful_name_as_doubtful)
{
    static const char one[] = "name\0\007\0\0\0all003", other[] = "name\0\007\0\0\0all004";
    struct image image;

    REQUIRE(make());
    image = image_copy(&valid);
    exchange(&image, one, other, sizeof one, sizeof one - 2);
    check_in_doubt(&image);
    image_release(&image);
    image_release(&valid);
}

TEST(marks_documents_of_a_doubtful_root_as_doubtful)
{
    char one[KV_DEFINITION_BYTES], other[KV_DEFINITION_BYTES];
    struct image image;

    REQUIRE(make());
    image = image_copy(&valid);
    definition_of(3, one);
    definition_of(2, other);
    exchange(&image, one, other, strlen(one), -1); /* the root is stored before it */
    check_in_doubt(&image);
    image_release(&image);
    image_release(&valid);
}

static bool has_document(const uint8_t *page)
{
    return memmem(page, KV_PAGE_BYTES, "of\0\007\0\0\0all", 10) != NULL;
}

/* Wipes every page that has the text, except the first of the file and the pages of documents,
 * which may keep it from deleted rows. */
static int wipe(struct image *image, const void *text, size_t size)
{
    int wiped = 0;

    for (size_t at = KV_PAGE_BYTES; at < image->size; at += KV_PAGE_BYTES) {
        const uint8_t *page = valid.bytes + at;

        if (memmem(page, KV_PAGE_BYTES, text, size) && !has_document(page)) {
            memset(image->bytes + at, 0, KV_PAGE_BYTES);
            wiped++;
        }
    }
    return wiped;
}

static void wipe_document(struct image *image, const char *name)
{
    char text[] = "of\0\007\0\0\0all000";
    const uint8_t *at;

    memcpy(text + 7, name, 6);
    at = find_text(&valid, text, sizeof text, 0);
    if (CHECK(at != NULL))
        memset(image->bytes + (size_t)(at - valid.bytes) / KV_PAGE_BYTES * KV_PAGE_BYTES, 0,
               KV_PAGE_BYTES);
}

/* The catalog's pages, except the last ones. */
static void wipe_names(struct image *image)
{
    for (int i = 0; i < COLLECTIONS - 40; i++) {
        char name[] = "name\0\007\0\0\0all000";

        snprintf(name + 9, sizeof name - 9, "all%03u", (unsigned)i % 1000);
        CHECK(wipe(image, name, sizeof name) > 0);
    }
}

/* The page of one collection is gone, and so is every sign that there are others: theirs fit its
 * gap. */
TEST(a_page_of_an_unknown_collection_is_assigned_to_no_other)
{
    REQUIRE(make());
    for (int i = 0; i < COLLECTIONS - 40; i += 10) {
        struct image image = image_copy(&valid);
        char definition[KV_DEFINITION_BYTES];

        definition_of(i, definition);
        wipe_document(&image, "all119");
        CHECK(wipe(&image, definition, strlen(definition)) > 0);
        wipe_names(&image);
        (void)salvage(&image);
        CHECK(!report.complete);
        image_release(&image);
    }
    image_release(&valid);
}

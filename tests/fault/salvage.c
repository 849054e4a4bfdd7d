/*
 * Damaged files, and what is saved of them. A document in its collection is right, whatever
 * happened to the file. One lost page costs no document on other pages. Nothing crashes or hangs.
 *
 * TRUCE_SALVAGE_IMAGES: how many damaged images of each kind (20; thousands under a sanitizer for a
 * long run).
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/random.h"
#include "engine/storage/checksum_vfs.h"
#include "engine/storage/page_recovery.h"
#include "tests/support/command.h"
#include "tests/support/damage.h"
#include "tests/support/test.h"
#include "truce/salvage.h"

enum { IMAGES = 20, HANGS_S = 200, COLLECTIONS = 3 };

static const struct {
    const char *name;
    int documents;
} collections[COLLECTIONS] = {{"one", 1200}, {"two", 500}, {"few", 3}};

static char directory[300], path[400], log_path[420];
static struct image valid;
static struct random generator;
static truce_store *saved;
static truce_salvage_report report;

static uint64_t below(uint64_t bound)
{
    return truce__random_below(&generator, bound);
}

/* ---- the valid file -------------------------------------------------------------------------- */

/* Each tenth of "two" has further pages. */
static bson_t *make_document(int collection, int id)
{
    bool large = collection == 1 && id % 10 == 0;
    size_t size = large ? 9000 + (size_t)id : 100 + (size_t)(id % 90);
    bson_t *document = BCON_NEW("_id", BCON_INT32(id), "n", BCON_INT32(id * 7), "of",
                                BCON_UTF8(collections[collection].name));
    char *pad = bson_malloc(size + 1);

    memset(pad, 'a' + id % 26, size);
    pad[size] = 0;
    BSON_APPEND_UTF8(document, "pad", pad);
    bson_free(pad);
    return document;
}

static void insert_all(truce_store *store, int collection, int from, int to)
{
    const truce_write_options relaxed = {.relaxed = true};
    bson_error_t error;

    for (int id = from; id < to; id++) {
        bson_t *document = make_document(collection, id);

        CHECK_OK(truce_insert(store, collections[collection].name, document, &relaxed, &error),
                 error);
        bson_destroy(document);
    }
}

static void make_index(truce_store *store, const char *collection, const char *json)
{
    bson_t *index = test_bson(json);
    bson_error_t error;

    CHECK_OK(truce_index_create(store, collection, index, &error), error);
    bson_destroy(index);
}

static void new_path(void)
{
    truce__random_seed(&generator, test_seed());
    snprintf(directory, sizeof directory, "%s", test_directory());
    snprintf(path, sizeof path, "%s/s.truce", directory);
    snprintf(log_path, sizeof log_path, "%s-wal", path);
}

static bool make(void)
{
    truce_store *store;
    bson_error_t error;

    new_path();
    if (!CHECK_OK(truce_store_open(path, NULL, &store, &error), error))
        return false;
    make_index(store, "one", "{'key': {'n': 1}, 'name': 'by_n', 'unique': true}");
    make_index(store, "two", "{'key': {'of': 1, 'n': -1}, 'name': 'by_of'}");
    for (int i = 0; i < COLLECTIONS; i++)
        insert_all(store, i, 0, collections[i].documents);
    truce_store_close(store);
    return image_read(&valid, path);
}

/* ---- saved documents ------------------------------------------------------------------------- */

static void salvage(void)
{
    bson_error_t error;

    alarm(HANGS_S);
    saved = NULL;
    if (CHECK_OK(truce_store_open("memory:", NULL, &saved, &error), error))
        CHECK_OK(truce_salvage(path, saved, NULL, &report, &error), error);
    alarm(0);
}

static int64_t count_in(const char *name)
{
    const bson_t all = BSON_INITIALIZER;
    bson_error_t error;
    int64_t number = 0;

    CHECK_OK(truce_count(saved, name, &all, NULL, &number, &error), error);
    return number;
}

/* Checks that every valid document equals the inserted one. Returns how many there are. */
static int64_t check_right(int collection)
{
    const bson_t all = BSON_INITIALIZER, *document;
    truce_cursor *cursor;
    bson_error_t error;
    int64_t number = 0;

    if (!CHECK_OK(truce_find(saved, collections[collection].name, &all, NULL, &cursor, &error),
                  error))
        return 0;
    while (truce_cursor_next(cursor, &document, &error) == TRUCE_OK && document) {
        bson_iter_t iter;
        int id = bson_iter_init_find(&iter, document, "_id") ? bson_iter_int32(&iter) : -1;
        bson_t *expected = make_document(collection, id);

        if (!CHECK(bson_equal(expected, document)))
            fprintf(stderr, "  %s %d\n", collections[collection].name, id);
        bson_destroy(expected);
        number++;
    }
    truce_cursor_close(cursor);
    return number;
}

static int64_t check_all_right(void)
{
    int64_t number = 0;

    for (int i = 0; i < COLLECTIONS; i++)
        number += check_right(i);
    return number;
}

static void check_everything_is_saved(void)
{
    for (int i = 0; i < COLLECTIONS; i++)
        CHECK_INT(check_right(i), ==, collections[i].documents);
}

static void check_complete(void)
{
    check_everything_is_saved();
    CHECK(report.complete);
    CHECK_INT(report.collections, ==, COLLECTIONS);
    CHECK_INT(report.documents, ==, 1703);
    CHECK_INT(report.indexes, ==, 2);
    CHECK_INT(report.doubtful + report.strays + report.lost + report.lost_pages + report.lost_log,
              ==, 0);
}

/* ---- files that are valid -------------------------------------------------------------------- */

TEST(salvages_an_undamaged_file_completely_and_does_not_change_it)
{
    struct image after;
    bson_error_t error;
    bson_t list;

    REQUIRE(make());
    salvage();
    check_complete();
    CHECK_OK(truce_index_list(saved, "one", &list, &error), error);
    CHECK_INT(bson_count_keys(&list), ==, 2);
    bson_destroy(&list);
    truce_store_close(saved);
    REQUIRE(image_read(&after, path));
    CHECK(after.size == valid.size && !memcmp(after.bytes, valid.bytes, valid.size));
    image_release(&after);
    image_release(&valid);
}

/* Documents that are older than their validator stay, and new ones are checked against it. */
TEST(salvages_validators)
{
    truce_store *store;
    bson_t *validator = test_bson("{'n': {'$gt': 3}}"), *low = test_bson("{'_id': 1, 'n': 1}");
    bson_error_t error;

    new_path();
    REQUIRE(CHECK_OK(truce_store_open(path, NULL, &store, &error), error));
    CHECK_OK(truce_insert(store, "one", low, NULL, &error), error);
    CHECK_OK(truce_collection_validate(store, "one", validator, &error), error);
    truce_store_close(store);
    salvage();
    CHECK(report.complete);
    CHECK_INT(report.documents, ==, 1);
    CHECK_INT(report.validators, ==, 1);
    bson_destroy(low);
    low = test_bson("{'_id': 2, 'n': 1}");
    CHECK_STATUS(TRUCE_INVALID, truce_insert(saved, "one", low, NULL, &error), error);
    truce_store_close(saved);
    bson_destroy(low);
    bson_destroy(validator);
}

/* A process dies while everything but the beginning is in the log. */
static bool make_with_log(void)
{
    int state;
    pid_t child;

    new_path();
    fflush(NULL);
    child = fork();
    if (!child) {
        truce_store *store;
        bson_error_t error;

        if (truce_store_open(path, NULL, &store, &error))
            _exit(1);
        make_index(store, "one", "{'key': {'n': 1}, 'name': 'by_n', 'unique': true}");
        make_index(store, "two", "{'key': {'of': 1, 'n': -1}, 'name': 'by_of'}");
        for (int i = 0; i < COLLECTIONS; i++)
            insert_all(store, i, 0, collections[i].documents);
        kill(getpid(), SIGKILL);
    }
    return CHECK(waitpid(child, &state, 0) == child && WIFSIGNALED(state));
}

TEST(saves_documents_in_the_log)
{
    REQUIRE(make_with_log());
    salvage();
    check_complete();
    truce_store_close(saved);
}

/* SQLite's recovery would end at the damaged frame: the commits after it are saved. */
TEST(loses_only_the_damaged_frame_of_the_log)
{
    enum { FRAME = 24 + 4096 };
    struct image log;
    FILE *file;
    long frames;

    REQUIRE(make_with_log());
    REQUIRE(image_read(&log, log_path));
    frames = (long)((log.size - 32) / FRAME);
    log.bytes[32 + frames / 2 * FRAME + 24 + 300] ^= 4;
    file = fopen(log_path, "r+");
    REQUIRE(file && fwrite(log.bytes, 1, log.size, file) == log.size);
    fclose(file);
    image_release(&log);
    salvage();
    CHECK_INT(report.lost_log, ==, 1);
    CHECK(!report.complete);
    CHECK_INT(check_all_right(), >=, 1500);
    CHECK_INT(check_right(2), ==, 3); /* inserted last of all */
    truce_store_close(saved);
}

/* Where the frames of this log end. */
static size_t end_of_log(const struct image *log)
{
    enum { FRAME = 24 + 4096 };
    size_t at = 32;

    while (at + FRAME <= log->size && !memcmp(log->bytes + at + 8, log->bytes + 16, 8))
        at += FRAME;
    return at;
}

/* No frame of the last commit can be read: the earlier contents of its pages are in doubt. */
TEST(an_older_version_of_a_page_is_in_doubt)
{
    enum { FRAME = 24 + 4096 };
    static const uint8_t zeros[4];
    struct image log;
    FILE *file;
    size_t at;

    REQUIRE(make_with_log());
    REQUIRE(image_read(&log, log_path));
    at = end_of_log(&log);
    do {
        at -= FRAME;
        log.bytes[at + 24 + 2000] ^= 1;
    } while (!memcmp(log.bytes + at - FRAME + 4, zeros, sizeof zeros));
    file = fopen(log_path, "r+");
    REQUIRE(file && fwrite(log.bytes, 1, log.size, file) == log.size);
    fclose(file);
    image_release(&log);
    salvage();
    CHECK_INT(report.lost_log, >, 0);
    CHECK_INT(count_in("few"), ==, 0); /* it contains the last insert */
    CHECK_INT(count_in("few.doubtful"), ==, 2);
    CHECK_INT(check_right(0), ==, 1200);
    CHECK(!report.complete);
    truce_store_close(saved);
}

/* The last commit without its last frame, which makes it one: it never happened. */
TEST(does_not_save_uncommitted_documents)
{
    enum { FRAME = 24 + 4096 };
    struct image log;

    REQUIRE(make_with_log());
    REQUIRE(image_read(&log, log_path));
    for (size_t at = 32; at + FRAME <= log.size; at += FRAME) {
        static const uint8_t other[4] = {0};

        /* the first frame that belongs to no commit of this log, or its end */
        if (memcmp(log.bytes + at + 8, log.bytes + 16, 8) != 0 ||
            !memcmp(log.bytes + at, other, 4)) {
            log.size = at;
            break;
        }
    }
    REQUIRE(!truncate(log_path, (off_t)(log.size - FRAME)));
    image_release(&log);
    salvage();
    CHECK_INT(check_right(2), ==, 2);
    CHECK_INT(check_right(0), ==, 1200);
    CHECK(report.complete);
    truce_store_close(saved);
}

TEST(a_store_that_is_open_is_not_salvaged)
{
    truce_store *store, *to;
    bson_error_t error;

    REQUIRE(make());
    CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
    CHECK_OK(truce_store_open("memory:", NULL, &to, &error), error);
    CHECK_STATUS(TRUCE_LOCKED, truce_salvage(path, to, NULL, &report, &error), error);
    CHECK_INT(command_run(TRUCE_CLI, NULL, NULL, "salvage", path, "memory:", NULL)->code, ==, 3);
    insert_all(store, 2, 100, 101);
    truce_store_close(store);
    CHECK_OK(truce_salvage(path, to, NULL, &report, &error), error);
    CHECK_STATUS(TRUCE_CONFLICT, truce_salvage(path, to, NULL, &report, &error), error);
    truce_store_close(to);
    CHECK_OK(truce_store_open("memory:", NULL, &to, &error), error);
    strcat(path, ".none");
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_salvage(path, to, NULL, &report, &error), error);
    truce_store_close(to);
    image_release(&valid);
}

/* ---- pages that are gone --------------------------------------------------------------------- */

static uint8_t kind_of(const struct image *image, uint32_t page)
{
    return image->bytes[(size_t)(page - 1) * KV_PAGE_BYTES + (page == 1 ? 100 : 0)];
}

static void without_page(uint32_t page)
{
    struct image image = image_copy(&valid);

    memset(image.bytes + (size_t)(page - 1) * KV_PAGE_BYTES, 0, KV_PAGE_BYTES);
    CHECK(image_write(&image, path));
    image_release(&image);
    salvage();
}

TEST(saves_all_documents_without_inner_pages)
{
    enum { INNER = 5 };
    int tried = 0;

    REQUIRE(make());
    for (uint32_t page = 2; page <= valid.size / KV_PAGE_BYTES; page++) {
        if (kind_of(&valid, page) != INNER)
            continue;
        without_page(page);
        check_everything_is_saved();
        CHECK(!report.complete && report.lost_pages == 1 && report.lost == 0);
        CHECK_INT(report.indexes, ==, 2);
        truce_store_close(saved);
        tried++;
    }
    CHECK_INT(tried, >=, 2);
    image_release(&valid);
}

TEST(removed_documents_stay_removed)
{
    bson_t *filter = test_bson("{'_id': {'$gte': 100}}");
    const truce_write_options many = {.multi = true};
    truce_store *store;
    bson_error_t error;

    REQUIRE(make());
    CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
    CHECK_OK(truce_remove(store, "one", filter, &many, NULL, &error), error);
    CHECK_OK(truce_remove(store, "two", filter, &many, NULL, &error), error);
    truce_store_close(store);
    salvage();
    CHECK(report.complete);
    CHECK_INT(report.documents, ==, 203);
    truce_store_close(saved);
    image_release(&valid);
    REQUIRE(image_read(&valid, path));
    for (uint32_t page = 3; page < 9;
         page++) { /* inner pages of tables among them, and nothing comes back */
        without_page(page);
        CHECK_INT(check_all_right() + report.strays, <=, 203);
        CHECK_INT(report.strays, ==, 0);
        truce_store_close(saved);
    }
    image_release(&valid);
    bson_destroy(filter);
}

/* Without the first page nothing says which pages are in use: documents are in doubt, or belong
 * to no collection. */
TEST(saves_all_documents_without_the_first_page)
{
    REQUIRE(make());
    without_page(1);
    CHECK_INT(report.documents, ==, 0);
    CHECK_INT(report.doubtful + report.strays, ==, 1703);
    CHECK(!report.complete);
    truce_store_close(saved);
    image_release(&valid);
}

/* The map says which table each page belongs to; salvage finds this out by itself. */
TEST(loses_nothing_without_the_page_map)
{
    REQUIRE(make());
    without_page(2);
    check_complete();
    truce_store_close(saved);
    image_release(&valid);
}

static void check_kind(uint32_t number, const uint8_t *bytes, enum page_recovery_kind expected)
{
    struct image image = {bson_malloc0(830 * KV_PAGE_BYTES), 830 * KV_PAGE_BYTES};
    struct page_recovery_page page;
    struct page_recovery recovery;
    bson_error_t error;

    memcpy(image.bytes, valid.bytes, KV_PAGE_BYTES);
    memcpy(image.bytes + (size_t)(number - 1) * KV_PAGE_BYTES, bytes, KV_PAGE_BYTES);
    image_seal(&image, number);
    CHECK(image_write(&image, path));
    image_release(&image);
    if (!CHECK_OK(truce__page_recovery_open(path, &recovery, &error), error))
        return;
    truce__page_recovery_page(&recovery, number, &page);
    CHECK(page.state == PAGE_RECOVERY_VALID && page.kind == expected);
    truce__page_recovery_close(&recovery);
}

/* Bytes that are a map and an inner page with one entry: their meaning depends on their place. */
TEST(a_map_is_not_a_page_of_a_tree)
{
    uint8_t bytes[KV_PAGE_BYTES] = {5, 0, 0, 0, 1, 5, 0, 0, 0, 9, 5, 0, 1, 0, 5};

    REQUIRE(make());
    check_kind(820, bytes, PAGE_RECOVERY_OTHER);
    check_kind(2, bytes, PAGE_RECOVERY_OTHER);
    check_kind(821, bytes, PAGE_RECOVERY_INNER);
    check_kind(819, bytes, PAGE_RECOVERY_INNER);
    bytes[20] = 1; /* a map has no entry after an empty one ... */
    check_kind(820, bytes, PAGE_RECOVERY_INNER);
    bytes[20] = 0;
    bytes[5] = 6; /* ... and none of another kind */
    check_kind(820, bytes, PAGE_RECOVERY_INNER);
    image_release(&valid);
}

/* The page of the catalog: the names of the tables of these rows are lost. */
TEST(saves_all_documents_without_the_catalog)
{
    REQUIRE(make());
    without_page(3);
    CHECK_INT(report.documents, ==, 1703);
    CHECK_INT(report.indexes, ==, 0);
    CHECK(!report.complete && report.lost_pages == 1);
    CHECK_INT(count_in("one"), ==, 0);
    truce_store_close(saved);
    image_release(&valid);
}

/* The first inner page whose first leaf has a document of the collection. */
static uint32_t inner_of(const struct image *image, int collection)
{
    char of[20];

    snprintf(of, sizeof of, "%s", collections[collection].name);
    for (uint32_t page = 2; page <= image->size / KV_PAGE_BYTES; page++) {
        const uint8_t *last = image->bytes + (size_t)(page - 1) * KV_PAGE_BYTES + 8;
        uint32_t leaf = (uint32_t)last[2] << 8 | last[3];

        if (kind_of(image, page) == 5 && memmem(image->bytes + (size_t)(leaf - 1) * KV_PAGE_BYTES,
                                                KV_PAGE_BYTES, of, strlen(of) + 1))
            return page;
    }
    return 0;
}

/* The place of the child of an inner page that has the smallest rows. */
static uint8_t *first_child(struct image *image, uint32_t page)
{
    uint8_t *bytes = image->bytes + (size_t)(page - 1) * KV_PAGE_BYTES;

    return bytes + ((size_t)bytes[12] << 8 | bytes[13]);
}

/* Puts the first page of "two" where "one" has its own. */
static void mislead(bool sealed)
{
    struct image image = image_copy(&valid);
    uint32_t one = inner_of(&image, 0), two = inner_of(&image, 1);

    if (CHECK(one && two && one != two)) {
        memcpy(first_child(&image, one), first_child(&image, two), 4);
        if (sealed)
            image_seal(&image, one);
        CHECK(image_write(&image, path));
        salvage();
    }
    image_release(&image);
}

TEST(a_wrong_number_does_not_lead_into_another_collection)
{
    REQUIRE(make());
    mislead(false);
    check_everything_is_saved();
    truce_store_close(saved);
    image_release(&valid);
}

TEST(no_document_is_of_two_collections)
{
    REQUIRE(make());
    mislead(true);
    CHECK_INT(report.documents + report.doubtful + report.strays + report.lost, <=, 1703);
    truce_store_close(saved);
    image_release(&valid);
}

/* Any page, lost or with a wrong byte: documents on other pages are saved as valid. */
TEST(one_lost_page_costs_only_its_own_documents)
{
    enum { ON_A_PAGE = 40 };
    uint32_t pages, step;

    REQUIRE(make());
    pages = (uint32_t)(valid.size / KV_PAGE_BYTES);
    step = pages / (uint32_t)test_scale("TRUCE_SALVAGE_IMAGES", IMAGES) + 1;
    for (uint32_t page = 4; page <= pages; page += step) {
        struct image image = image_copy(&valid);

        without_page(page);
        CHECK_INT(check_all_right(), >=, 1703 - ON_A_PAGE);
        truce_store_close(saved);
        image.bytes[(size_t)(page - 1) * KV_PAGE_BYTES + 2000] ^= 1;
        CHECK(image_write(&image, path));
        image_release(&image);
        salvage();
        CHECK_INT(check_all_right(), >=, 1703 - ON_A_PAGE);
        CHECK_INT(report.documents + report.doubtful + report.lost, >=, 1702);
        CHECK(!report.complete || !(report.doubtful + report.lost));
        truce_store_close(saved);
    }
    image_release(&valid);
}

/* Makes a file in which each collection has pages among those of the others: the pages of a
 * collection that was dropped are used again. */
static bool make_mixed(void)
{
    enum { STEP = 10 };
    truce_store *store;
    bson_error_t error;

    new_path();
    if (!CHECK_OK(truce_store_open(path, NULL, &store, &error), error))
        return false;
    insert_all(store, 1, 0, 150);
    for (int id = 0; id < 1000; id += STEP) {
        if (id == 600)
            CHECK_OK(truce_collection_drop(store, "two", &error), error);
        insert_all(store, 0, id, id + STEP);
        insert_all(store, 2, id, id + STEP);
    }
    truce_store_close(store);
    return image_read(&valid, path);
}

/* The pages after the end of a file that was cut are lost as any other page is. Pages that follow
 * them in the order of the rows keep their collection. */
TEST(a_cut_costs_only_the_documents_of_its_pages)
{
    enum { ON_A_PAGE = 40, CUT_PAGES = 10 };

    REQUIRE(make_mixed());
    for (size_t part = 0; part < KV_PAGE_BYTES; part += KV_PAGE_BYTES / 2) {
        struct image image = image_copy(&valid);

        image.size -= CUT_PAGES * KV_PAGE_BYTES - part;
        CHECK(image_write(&image, path));
        image_release(&image);
        salvage();
        CHECK_INT(check_right(0) + check_right(2), >=, 2000 - CUT_PAGES * ON_A_PAGE);
        CHECK_INT(report.strays + report.doubtful, ==, 0);
        CHECK_INT(report.lost_pages, ==, CUT_PAGES);
        CHECK(!report.complete);
        truce_store_close(saved);
    }
    image_release(&valid);
}

/* A process dies after an update of 100 documents, whose pages are in the log only. */
static bool update_in_log(void)
{
    int state;
    pid_t child;

    fflush(NULL);
    child = fork();
    if (!child) {
        truce_store *store;
        bson_t *some = test_bson("{'_id': {'$gte': 500, '$lt': 600}}"),
               *update = test_bson("{'$set': {'late': true}}");
        truce_write_options options = {.multi = true};
        bson_error_t error;

        if (truce_store_open(path, NULL, &store, &error) ||
            truce_update(store, "few", some, update, &options, NULL, &error))
            _exit(1);
        kill(getpid(), SIGKILL);
    }
    return CHECK(waitpid(child, &state, 0) == child && WIFSIGNALED(state));
}

/* The numbers of these pages are greater than the number of pages of the file and its log. */
TEST(pages_of_the_log_after_the_end_of_a_cut_file_are_saved)
{
    bson_t *late = test_bson("{'late': true}");
    bson_error_t error;
    int64_t count = 0;

    REQUIRE(make_mixed());
    REQUIRE(update_in_log());
    REQUIRE(!truncate(path, 12 * KV_PAGE_BYTES));
    salvage();
    CHECK_OK(truce_count(saved, "few", late, NULL, &count, &error), error);
    CHECK_INT(count, ==, 100);
    CHECK(!report.complete);
    truce_store_close(saved);
    image_release(&valid);
    bson_destroy(late);
}

/* ---- any bytes ------------------------------------------------------------------------------- */

static void damage_pages(bool sealed)
{
    long images = test_scale("TRUCE_SALVAGE_IMAGES", IMAGES);

    for (long i = 0; i < images; i++) {
        struct image image = image_copy(&valid);

        image_harm(&image, &generator, 1 + (int)below(30), sealed);
        if (below(10) == 0)
            image.size = (size_t)below(image.size);
        CHECK(image_write(&image, path));
        image_release(&image);
        salvage();
        if (!sealed)
            check_all_right();
        truce_store_close(saved);
    }
}

TEST(never_reports_wrong_documents_of_changed_bytes_as_valid)
{
    REQUIRE(make());
    damage_pages(false);
    image_release(&valid);
}

TEST(salvages_changed_bytes_with_right_checksums_without_a_crash)
{
    REQUIRE(make());
    damage_pages(true);
    image_release(&valid);
}

TEST(a_log_of_any_bytes_crashes_nothing)
{
    long images = test_scale("TRUCE_SALVAGE_IMAGES", IMAGES);
    struct image log;

    REQUIRE(make_with_log());
    REQUIRE(image_read(&log, log_path));
    for (long i = 0; i < images; i++) {
        uint64_t changes = 1 + below(10);
        FILE *file;

        for (uint64_t change = 0; change < changes; change++) {
            uint8_t *at = log.bytes + (below(2) ? below(32 + 60) : below(log.size));

            *at = harmed(&generator, *at);
        }
        file = fopen(log_path, "w");
        REQUIRE(file && fwrite(log.bytes, 1, log.size - below(2) * below(5000), file));
        fclose(file);
        salvage();
        check_all_right();
        truce_store_close(saved);
    }
    image_release(&log);
}

/* ---- the program ----------------------------------------------------------------------------- */

TEST(the_program_reports_documents_that_were_not_saved)
{
    enum { LEAF = 13 };
    const struct command *command;
    struct image image;
    bool damaged = false;
    char to[420];

    REQUIRE(make());
    snprintf(to, sizeof to, "%s/to.truce", directory);
    command = command_run(TRUCE_CLI, NULL, NULL, "salvage", path, to, NULL);
    CHECK_INT(command->code, ==, 0);
    CHECK(strstr(command->out, "one: 1200 documents") && strstr(command->out, "complete: 1703"));
    image = image_copy(&valid);
    for (uint32_t page = 10; kind_of(&image, page) == LEAF || !damaged; page++) {
        damaged = kind_of(&image, page) == LEAF;
        image.bytes[(size_t)(page - 1) * KV_PAGE_BYTES + 3000] ^= damaged;
    }
    REQUIRE(image_write(&image, path));
    image_release(&image);
    command = command_run(TRUCE_CLI, NULL, NULL, "salvage", path, to, NULL);
    CHECK(command->code == 1 && strstr(command->err, "give an empty one"));
    strcat(to, ".2");
    command = command_run(TRUCE_CLI, NULL, NULL, "salvage", path, to, "--json", NULL);
    CHECK_INT(command->code, ==, 1);
    CHECK(strstr(command->out, "\"complete\": false") ||
          strstr(command->out, "\"complete\":false"));
    command = command_run(TRUCE_CLI, NULL, NULL, "salvage", path, path, NULL);
    CHECK_INT(command->code, ==, 2);
    strcat(path, ".none");
    command = command_run(TRUCE_CLI, NULL, NULL, "salvage", path, to, NULL);
    CHECK_INT(command->code, ==, 3);
    image_release(&valid);
}

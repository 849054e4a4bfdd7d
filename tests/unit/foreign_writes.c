/* Other programs that write into the file of an open store are noticed, and the store is
 * refused. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/damage.h"
#include "tests/support/open_lock.h"
#include "tests/support/test.h"
#include "truce/store.h"

static char directory[300], path[400], other[420];
static truce_store *store;

static void new_path(void)
{
    snprintf(directory, sizeof directory, "%s", test_directory());
    snprintf(path, sizeof path, "%s/s.truce", directory);
    snprintf(other, sizeof other, "%s/o.truce", directory);
    fflush(NULL);
}

static bool open_it(void)
{
    bson_error_t error;

    return CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
}

static truce_status put(int id, int n, bson_error_t *error)
{
    static char pad[2000];
    const truce_write_options options = {.relaxed = true, .upsert = true};
    bson_t *filter = BCON_NEW("_id", BCON_INT32(id)), *update;
    truce_status status;

    memset(pad, 'a' + n % 26, sizeof pad - 1);
    update = BCON_NEW("$set", "{", "n", BCON_INT32(n), "pad", BCON_UTF8(pad), "}");
    status = truce_update(store, "c", filter, update, &options, NULL, error);
    bson_destroy(update);
    bson_destroy(filter);
    return status;
}

static void put_many(int documents, int n)
{
    bson_error_t error;

    for (int id = 0; id < documents; id++) {
        if (!CHECK_OK(put(id, n, &error), error))
            return;
    }
}

/* Returns -1 if the document does not exist. */
static truce_status get(int id, int *n, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_INT32(id)), document;
    truce_status status = truce_find_one(store, "c", filter, NULL, &document, error);
    bson_iter_t iter;

    *n = -1;
    if (!status && CHECK(bson_iter_init_find(&iter, &document, "n")))
        *n = bson_iter_int32(&iter);
    bson_destroy(&document);
    bson_destroy(filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static void check_n(int id, int expected)
{
    bson_error_t error;
    int n;

    if (CHECK_OK(get(id, &n, &error), error))
        CHECK_INT(n, ==, expected);
}

/* ---- the file -------------------------------------------------------------------------------- */

/* As cp does it: the file stays, its content is another. */
static void copy_over(const char *from, const char *to)
{
    struct image image;
    FILE *file;

    if (!image_read(&image, from))
        return;
    truce__clock_sleep_ms(20); /* more than a tick of the kernel's clock */
    file = fopen(to, "r+");
    CHECK(file && fwrite(image.bytes, 1, image.size, file) == image.size);
    CHECK(file && !fflush(file) && !ftruncate(fileno(file), (off_t)image.size));
    if (file)
        fclose(file);
    image_release(&image);
}

static void make_closed(const char *name, int documents, int n)
{
    char kept[400];

    strcpy(kept, path);
    if (name != path)
        strcpy(path, name);
    if (open_it()) {
        put_many(documents, n);
        truce_store_close(store);
    }
    strcpy(path, kept);
}

TEST(refuses_a_file_that_is_overwritten_while_it_is_open)
{
    truce_store *second = NULL;
    bson_error_t error;
    int n;

    new_path();
    make_closed(other, 20, 7);
    make_closed(path, 20, 1);
    REQUIRE(open_it());
    check_n(0, 1);
    copy_over(other, path);
    CHECK_STATUS(TRUCE_CORRUPT, put(0, 2, &error), error);
    CHECK(strstr(error.message, "another program overwrote") && strstr(error.message, path));
    CHECK_STATUS(TRUCE_CORRUPT, get(0, &n, &error), error);
    CHECK_STATUS(TRUCE_CORRUPT, truce_store_open(path, NULL, &second, &error), error);
    CHECK(strstr(error.message, "another program overwrote"));
    truce_store_close(store);
    REQUIRE(open_it()); /* no page of the old log was written into it */
    for (int id = 0; id < 20; id++)
        check_n(id, 7);
    truce_store_close(store);
}

/* Without a writer, a reader checks the file, too, after a short time. */
TEST(a_reader_detects_that_the_file_was_overwritten)
{
    int64_t deadline_ns;
    truce_status status = TRUCE_OK;
    bson_error_t error;
    const bson_t all = BSON_INITIALIZER;
    int64_t number;

    new_path();
    make_closed(other, 200, 7);
    make_closed(path, 20, 1);
    REQUIRE(open_it());
    CHECK_OK(truce_count(store, "c", &all, NULL, &number, &error), error);
    copy_over(other, path);
    deadline_ns = truce__clock_monotonic_ns() + INT64_C(60000000000);
    while (!status && truce__clock_monotonic_ns() < deadline_ns) {
        status = truce_count(store, "c", &all, NULL, &number, &error);
        truce__clock_sleep_ms(5);
    }
    CHECK_STATUS(TRUCE_CORRUPT, status, error);
    CHECK(strstr(error.message, "another program overwrote"));
    truce_store_close(store);
}

/* The log contains the commits; a checkpoint must not write them into other contents. */
TEST(does_not_checkpoint_the_log_into_an_overwritten_file)
{
    char log[440];
    bson_error_t error;

    new_path();
    make_closed(other, 20, 7);
    make_closed(path, 20, 1);
    REQUIRE(open_it());
    put_many(20, 2);
    copy_over(other, path);
    truce_store_close(store);
    snprintf(log, sizeof log, "%s-wal", path);
    CHECK(!access(log, F_OK));
    CHECK_STATUS(TRUCE_CORRUPT, truce_store_open(path, NULL, &store, &error), error);
    CHECK(strstr(error.message, "-wal"));
    REQUIRE(!unlink(log));
    REQUIRE(open_it());
    check_n(3, 7);
    truce_store_close(store);
}

static void die_with_log(int documents, int n)
{
    int state;
    pid_t child = fork();

    if (!child) {
        if (!open_it())
            _exit(1);
        put_many(documents, n);
        kill(getpid(), SIGKILL);
    }
    CHECK(waitpid(child, &state, 0) == child && WIFSIGNALED(state));
}

TEST(does_not_apply_the_log_to_a_file_overwritten_while_closed)
{
    char kept[440];
    bson_error_t error;

    new_path();
    snprintf(kept, sizeof kept, "%s/kept", directory);
    make_closed(other, 20, 7);
    make_closed(path, 20, 1);
    copy_over(path, (fclose(fopen(kept, "w")), kept));
    die_with_log(20, 2);
    REQUIRE(open_it()); /* it is whole */
    check_n(3, 2);
    truce_store_close(store);
    die_with_log(20, 3);
    copy_over(other, path);
    CHECK_STATUS(TRUCE_CORRUPT, truce_store_open(path, NULL, &store, &error), error);
    CHECK(strstr(error.message, "-wal"));
}

/* After a power cut the page and the file may be from different times. */
TEST(does_not_compare_stamps_from_before_the_last_boot)
{
    bson_error_t error;
    struct lock lock;
    bool denied;

    new_path();
    make_closed(path, 20, 1);
    die_with_log(20, 2);
    CHECK_OK(truce__lock_enter(path, INT64_MAX, &lock, &denied, &error), error);
    CHECK(lock.alone && lock.known);
    atomic_store(&lock.page->file_size, 5);
    atomic_fetch_add(&lock.page->file_boot, 1);
    truce__lock_close(&lock);
    REQUIRE(open_it());
    check_n(3, 2);
    truce_store_close(store);
}

static int64_t size_of(const char *name)
{
    struct stat found;

    return stat(name, &found) ? 0 : found.st_size;
}

/* Writes so much that checkpoints run, with concurrent readers and from two handles. */
TEST(does_not_report_checkpoints_of_its_own_as_foreign_writes)
{
    truce_store *first;
    bson_error_t error;

    new_path();
    REQUIRE(open_it());
    first = store;
    REQUIRE(open_it());
    for (int round = 0; round < 30; round++) {
        truce_store *kept = store;

        put_many(400, round);
        store = round % 2 ? first : kept;
        first = round % 2 ? kept : first;
        check_n(round, round);
    }
    CHECK_OK(put(0, 5, &error), error);
    truce_store_close(store);
    truce_store_close(first);
    REQUIRE(open_it());
    check_n(399, 29);
    truce_store_close(store);
}

/* Until the one that runs has ended: then its claim can be had. */
static void wait_for_checkpoints(void)
{
    int64_t deadline_ns = truce__clock_monotonic_ns() + INT64_C(100000000000);
    bson_error_t error;
    struct lock lock;
    int claim = -1;

    if (!CHECK_OK(open_lock(path, &lock, &error), error))
        return;
    while (claim < 0 && truce__clock_monotonic_ns() < deadline_ns) {
        truce__clock_sleep_ms(10);
        claim = truce__lock_claim(&lock, LOCK_CHECKPOINT);
    }
    CHECK(claim >= 0);
    truce__lock_disclaim(claim);
    truce__lock_close(&lock);
}

/* The check also runs after a checkpoint. */
TEST(a_file_that_is_written_over_after_a_checkpoint_is_refused)
{
    bson_error_t error;

    new_path();
    make_closed(other, 20, 7);
    REQUIRE(open_it());
    for (int round = 0; round < 300 && size_of(path) < INT64_C(4096) * 50; round++)
        put_many(400, round);
    CHECK_INT(size_of(path), >=, 4096 * 50); /* pages were moved */
    wait_for_checkpoints();
    copy_over(other, path);
    CHECK_STATUS(TRUCE_CORRUPT, put(0, 1, &error), error);
    truce_store_close(store);
}

/* ---- the log --------------------------------------------------------------------------------- */

enum { LOG_HEADER = 32, FRAME = 24 + 4096 };

/* Flips one bit of each page in the log, outside of all rows, as a faulty disk or memory does: only
 * the checksums detect it. */
static void damage_log(void)
{
    char log[440];
    struct timespec times[2];
    struct image image;
    struct stat found;
    FILE *file;

    snprintf(log, sizeof log, "%s-wal", path);
    if (!image_read(&image, log) || !CHECK(!stat(log, &found)))
        return;
    for (size_t at = LOG_HEADER; at + FRAME <= image.size; at += FRAME)
        image.bytes[at + 24 + 2000] ^= 16;
    file = fopen(log, "r+");
    CHECK(file && fwrite(image.bytes, 1, image.size, file) == image.size);
    times[0] = times[1] = found.st_mtim; /* a disk does not change it */
    CHECK(file && !fflush(file) && !futimens(fileno(file), times));
    if (file)
        fclose(file);
    image_release(&image);
}

TEST(a_damaged_log_is_not_moved_into_the_file_at_the_close)
{
    bson_error_t error;

    new_path();
    REQUIRE(open_it());
    put_many(20, 2);
    damage_log();
    truce_store_close(store);
    CHECK_STATUS(TRUCE_CORRUPT, truce_store_open(path, NULL, &store, &error), error);
    CHECK(strstr(error.message, "-wal\" is damaged"));
    damage_log(); /* flips the bits back: the log is readable again */
    REQUIRE(open_it());
    check_n(3, 2);
    truce_store_close(store);
}

/* As much is written as makes a checkpoint begin. */
TEST(stops_writes_after_a_checkpoint_finds_a_damaged_frame)
{
    truce_status status = TRUCE_OK;
    bson_error_t error;

    new_path();
    REQUIRE(open_it());
    put_many(20, 1);
    damage_log();
    for (int n = 0; n < 60000 && !status; n++)
        status = put(20 + n % 500, n, &error);
    CHECK_STATUS(TRUCE_CORRUPT, status, error);
    CHECK(strstr(error.message, "-wal\" is damaged"));
    check_n(19, 1);
    truce_store_close(store);
}

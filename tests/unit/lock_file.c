/* The lock file: invalid files, the consequences of its removal, and files that are never
 * written. */
#include "engine/storage/write_lock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/storage/fork_guard.h"
#include "engine/storage/lock_bytes.h"
#include "tests/support/damage.h"
#include "tests/support/open_lock.h"
#include "tests/support/own_faults.h"
#include "tests/support/test.h"
#include "truce/store.h"

#define NOBODY 65534

static char path[400], lock_path[420], other[420];
static truce_store *store;

static void new_path(void)
{
    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    snprintf(lock_path, sizeof lock_path, "%s-lock", path);
    snprintf(other, sizeof other, "%s.other", path);
    fflush(NULL);
}

static truce_status open_store(truce_store **opened, bson_error_t *error)
{
    const truce_store_options options = {.deadline_ms = 300};

    return truce_store_open(path, &options, opened, error);
}

static bool open_new(void)
{
    bson_error_t error;

    new_path();
    return CHECK_OK(open_store(&store, &error), error);
}

static truce_status insert(int id, bson_error_t *error)
{
    const truce_write_options options = {.relaxed = true};
    bson_t *document = BCON_NEW("_id", BCON_INT32(id));
    truce_status status = truce_insert(store, "c", document, &options, error);

    bson_destroy(document);
    return status;
}

static truce_status count(int64_t *number, bson_error_t *error)
{
    const bson_t all = BSON_INITIALIZER;

    *number = -1;
    return truce_count(store, "c", &all, NULL, number, error);
}

static void check_count(int64_t expected)
{
    bson_error_t error;
    int64_t number;

    if (CHECK_OK(count(&number, &error), error))
        CHECK_INT(number, ==, expected);
}

/* A closed store with one document. */
static bool make_closed(void)
{
    bson_error_t error;

    if (!open_new() || !CHECK_OK(insert(1, &error), error))
        return false;
    truce_store_close(store);
    return true;
}

static void check_opens_with(int64_t documents)
{
    bson_error_t error;

    if (!CHECK_OK(open_store(&store, &error), error))
        return;
    check_count(documents);
    CHECK_OK(insert(1000 + (int)documents, &error), error);
    truce_store_close(store);
}

static int count_descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int number = 0;

    while (directory && readdir(directory))
        number++;
    if (directory)
        closedir(directory);
    return number;
}

static void check_refused(truce_status expected, const char *why)
{
    int before = count_descriptors();
    truce_store *refused = NULL;
    bson_error_t error;

    if (CHECK_STATUS(expected, open_store(&refused, &error), error))
        CHECK(strstr(error.message, why) && strstr(error.message, lock_path));
    CHECK_INT(count_descriptors(), ==, before);
}

static void write_file(const char *name, const void *bytes, size_t size)
{
    FILE *file = fopen(name, "w");

    CHECK(file && fwrite(bytes, 1, size, file) == size);
    if (file)
        fclose(file);
}

static bool has_content(const char *name, const void *bytes, size_t size)
{
    struct image image;
    bool same = image_read(&image, name) && image.size == size && !memcmp(image.bytes, bytes, size);

    image_release(&image);
    return same;
}

/* ---- errors ---------------------------------------------------------------------------------- */

TEST(a_symbolic_link_is_not_followed)
{
    static const char victim[] = "somebody's letters";

    REQUIRE(make_closed());
    write_file(other, victim, sizeof victim);
    REQUIRE(!unlink(lock_path) && !symlink(other, lock_path));
    check_refused(TRUCE_CORRUPT, "symbolic link");
    CHECK(has_content(other, victim, sizeof victim));
    REQUIRE(!unlink(lock_path) && !unlink(other) && !symlink(other, lock_path));
    check_refused(TRUCE_CORRUPT, "symbolic link");
    CHECK(access(other, F_OK));
    unlink(lock_path);
    check_opens_with(1);
}

TEST(a_second_name_is_refused)
{
    REQUIRE(make_closed());
    REQUIRE(!link(lock_path, other));
    check_refused(TRUCE_CORRUPT, "second name");
    unlink(other);
    check_opens_with(1);
}

TEST(refuses_a_path_that_is_not_a_regular_file_at_once)
{
    REQUIRE(make_closed());
    REQUIRE(!unlink(lock_path) && !mkfifo(lock_path, 0600));
    check_refused(TRUCE_CORRUPT, "not a regular file");
    REQUIRE(!unlink(lock_path) && !mkdir(lock_path, 0700));
    check_refused(TRUCE_CORRUPT, "not a regular file");
    rmdir(lock_path);
    check_opens_with(1);
}

TEST(does_not_change_a_file_of_another_program)
{
    static const size_t sizes[] = {1, 7, 8, 2000, sizeof(struct lock_page), 50000, LOCK_FILE_BYTES};
    static char letters[LOCK_FILE_BYTES];

    memset(letters, 'x', sizeof letters);
    REQUIRE(make_closed());
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        write_file(lock_path, letters, sizes[i]);
        check_refused(TRUCE_CORRUPT, "not a lock file");
        CHECK(has_content(lock_path, letters, sizes[i]));
    }
    unlink(lock_path);
    check_opens_with(1);
}

TEST(an_empty_file_becomes_a_lock_file)
{
    REQUIRE(make_closed());
    write_file(lock_path, "", 0);
    check_opens_with(1);
}

/* ---- the page -------------------------------------------------------------------------------- */

static struct lock_page *page_at(struct image *image)
{
    return (struct lock_page *)(void *)image->bytes;
}

TEST(identifies_a_page_by_its_header)
{
    struct image image;

    REQUIRE(make_closed());
    REQUIRE(image_read(&image, lock_path));
    CHECK_INT(image.size, ==, sizeof(struct lock_page));
    CHECK(!memcmp(image.bytes, "truclock", 8));
    CHECK_INT(page_at(&image)->version, ==, LOCK_VERSION);
    CHECK_INT(page_at(&image)->size, ==, sizeof(struct lock_page));
    image_release(&image);
}

/* No other process is present, so the numbers in the page are not valid. */
TEST(recreates_a_page_of_another_version_if_no_process_has_it_open)
{
    struct image image;
    bson_error_t error;
    struct lock lock;

    REQUIRE(make_closed());
    REQUIRE(image_read(&image, lock_path));
    page_at(&image)->version = LOCK_VERSION + 1;
    atomic_store(&page_at(&image)->promised, 77);
    write_file(lock_path, image.bytes, image.size);
    image_release(&image);
    CHECK_OK(open_lock(path, &lock, &error), error);
    CHECK_INT(lock.page->version, ==, LOCK_VERSION);
    CHECK_INT(atomic_load(&lock.page->promised), ==, 0);
    truce__lock_close(&lock);
    check_opens_with(1);
}

TEST(a_page_of_another_version_in_use_is_refused)
{
    bson_error_t error;
    struct lock lock;

    REQUIRE(make_closed());
    CHECK_OK(open_lock(path, &lock, &error), error);
    lock.page->version = LOCK_VERSION + 1;
    check_refused(TRUCE_LOCKED, "another version of truce");
    check_refused(TRUCE_LOCKED, "end the other programs, or use their version");
    lock.page->version = LOCK_VERSION;
    check_opens_with(1);
    atomic_store(&lock.page->whole, 0);
    check_refused(TRUCE_CORRUPT, "was damaged while");
    atomic_store(&lock.page->whole, LOCK_MAGIC);
    truce__lock_close(&lock);
}

/* The numbers of a copied page are of another file; that the disk has failed is true of the copy,
 * too. */
TEST(adopts_a_copied_page_and_keeps_its_failure)
{
    struct image image;
    bson_error_t error;
    struct lock lock;

    REQUIRE(make_closed());
    REQUIRE(image_read(&image, lock_path));
    atomic_store(&page_at(&image)->promised, 77);
    atomic_store(&page_at(&image)->broken, true);
    REQUIRE(!unlink(lock_path));
    write_file(other, "", 0); /* takes the old one's number, as likely as not */
    write_file(lock_path, image.bytes, image.size);
    image_release(&image);
    CHECK_OK(open_lock(path, &lock, &error), error);
    CHECK_INT(atomic_load(&lock.page->promised), ==, 0);
    CHECK(atomic_load(&lock.page->broken));
    truce__lock_close(&lock);
    check_opens_with(1);
}

TEST(recreates_a_truncated_lock_file)
{
    static const off_t sizes[] = {0, 8, 9, 100, 2111, 2113, sizeof(struct lock_page) - 1};
    int64_t documents = 1;
    bson_error_t error;

    REQUIRE(make_closed());
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        REQUIRE(!truncate(lock_path, sizes[i]));
        if (!CHECK_OK(open_store(&store, &error), error))
            break;
        check_count(documents++);
        CHECK_OK(insert((int)documents, &error), error);
        truce_store_close(store);
    }
}

/* ---- while the store is open ----------------------------------------------------------------- */

TEST(refuses_every_call_after_the_lock_file_was_truncated)
{
    static const off_t sizes[] = {0, 8, 100, sizeof(struct lock_page) - 1};
    bson_error_t error;
    int64_t number;

    REQUIRE(open_new());
    for (int i = 0; i < 4; i++) {
        CHECK_OK(insert(i, &error), error);
        REQUIRE(!truncate(lock_path, sizes[i]));
        CHECK_STATUS(TRUCE_CORRUPT, insert(100 + i, &error), error);
        CHECK(strstr(error.message, "was truncated"));
        CHECK_STATUS(TRUCE_CORRUPT, count(&number, &error), error);
        check_refused(TRUCE_CORRUPT, "damaged while");
        truce_store_close(store);
        CHECK_OK(open_store(&store, &error), error);
        check_count(i + 1);
    }
    truce_store_close(store);
}

static void check_nothing_is_lost_without(void (*take_away)(void))
{
    truce_store *second = NULL;
    bson_error_t error;

    REQUIRE(open_new());
    CHECK_OK(insert(1, &error), error);
    take_away();
    CHECK_STATUS(TRUCE_CORRUPT, insert(2, &error), error);
    CHECK(strstr(error.message, "removed or replaced"));
    check_count(1);
    CHECK_STATUS(TRUCE_LOCKED, open_store(&second, &error), error);
    CHECK(strstr(error.message, "open in another program"));
    truce_store_close(store);
    check_opens_with(1);
}

static void remove_lock(void)
{
    CHECK(!unlink(lock_path));
}

static void replace_by_copy(void)
{
    struct image image;

    if (!image_read(&image, lock_path))
        return;
    write_file(other, image.bytes, image.size);
    image_release(&image);
    CHECK(!rename(other, lock_path));
}

TEST(loses_no_data_if_the_open_lock_file_is_removed)
{
    check_nothing_is_lost_without(remove_lock);
}

TEST(loses_no_data_if_the_open_lock_file_is_replaced)
{
    check_nothing_is_lost_without(replace_by_copy);
}

/* The child was forked before, so that it may open the store. */
static pid_t start_late_opener(int ready)
{
    pid_t child = fork();
    truce_store *late;
    bson_error_t error;
    char byte;

    if (child)
        return child;
    CHECK(read(ready, &byte, 1) == 1);
    CHECK_STATUS(TRUCE_LOCKED, open_store(&late, &error), error);
    CHECK(strstr(error.message, "open in another program"));
    test_child_exit();
}

TEST(a_later_process_does_not_remove_the_log)
{
    char log[420];
    bson_error_t error;
    int state, ready[2];
    pid_t child;

    new_path();
    REQUIRE(!pipe(ready));
    child = start_late_opener(ready[0]);
    CHECK_OK(open_store(&store, &error), error);
    CHECK_OK(insert(1, &error), error);
    remove_lock();
    CHECK(write(ready[1], "x", 1) == 1);
    CHECK(waitpid(child, &state, 0) == child && state == 0);
    snprintf(log, sizeof log, "%s-wal", path);
    CHECK(!access(log, F_OK));
    check_count(1);
    truce_store_close(store);
    check_opens_with(1);
    close(ready[0]);
    close(ready[1]);
}

/* ---- descriptors and permissions ------------------------------------------------------------- */

static bool is_of_the_store(int descriptor)
{
    static const char *const ends[] = {"", "-wal", "-shm", "-lock"};
    struct stat one, found;
    char name[420];

    if (fstat(descriptor, &one))
        return false;
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s%s", path, ends[i]);
        if (!stat(name, &found) && found.st_ino == one.st_ino && found.st_dev == one.st_dev)
            return true;
    }
    return false;
}

static _Noreturn void run_without_standard_descriptors(void)
{
    bson_error_t error;
    int claim, report;
    struct lock lock;
    bool good;

    report = fcntl(STDERR_FILENO, F_DUPFD, 200);
    for (int i = 0; i <= STDERR_FILENO; i++)
        close(i);
    good = !open_store(&store, &error) && !insert(1, &error);
    good = good && !open_lock(path, &lock, &error);
    claim = good ? truce__lock_claim(&lock, 5) : -1;
    good = claim > STDERR_FILENO && lock.file > STDERR_FILENO;
    for (int i = 0; i <= STDERR_FILENO; i++)
        good = good && !is_of_the_store(i);
    (void)report;
    _exit(!good);
}

TEST(uses_no_standard_descriptor)
{
    int state;
    pid_t child;

    new_path();
    child = fork();
    if (!child)
        run_without_standard_descriptors();
    CHECK(waitpid(child, &state, 0) == child && state == 0);
    check_opens_with(1);
}

static unsigned mode_of(const char *name)
{
    struct stat found;

    return stat(name, &found) ? 0 : found.st_mode & 0777;
}

TEST(gives_it_the_mode_of_the_store_but_never_world_access)
{
    mode_t usual = umask(0);
    bson_error_t error;

    REQUIRE(make_closed());
    CHECK_INT(mode_of(lock_path), ==, 0644);
    CHECK_INT(mode_of(path), ==, 0644);
    REQUIRE(!chmod(path, 0600));
    CHECK_OK(open_store(&store, &error), error);
    CHECK_INT(mode_of(lock_path), ==, 0600);
    truce_store_close(store);
    REQUIRE(!unlink(lock_path) && !chmod(path, 0660));
    check_opens_with(1);
    CHECK_INT(mode_of(lock_path), ==, 0660);
    umask(usual);
}

TEST(gives_the_lock_file_the_owner_of_the_store)
{
    struct stat found;

    if (geteuid()) {
        test_skip("only root can give files away");
        return;
    }
    REQUIRE(make_closed());
    REQUIRE(!chown(path, NOBODY, NOBODY));
    check_opens_with(1);
    CHECK(!stat(lock_path, &found) && found.st_uid == NOBODY && found.st_gid == NOBODY);
}

/* ---- being there ----------------------------------------------------------------------------- */

TEST(reports_alone_only_without_other_processes)
{
    int64_t now = truce__clock_monotonic_ns();
    bson_error_t error;
    struct lock a, b;

    new_path();
    CHECK_OK(open_lock(path, &a, &error), error);
    CHECK_OK(open_lock(path, &b, &error), error);
    CHECK(!a.alone && !b.alone);
    CHECK(!truce__lock_leave(&b, now + INT64_C(60000000000)));
    truce__lock_close(&b);
    CHECK(truce__lock_leave(&a, now + INT64_C(60000000000)));
    truce__lock_close(&a);
}

/* A closing process holds the door lock. A process that opens the store in the meantime waits for
 * it until its deadline. */
TEST(blocks_an_opening_process_during_a_close)
{
    int64_t now = truce__clock_monotonic_ns();
    bson_error_t error;
    struct lock a, b;
    bool denied;

    new_path();
    CHECK_OK(open_lock(path, &a, &error), error);
    CHECK(truce__lock_leave(&a, now + INT64_C(60000000000)));
    CHECK_STATUS(TRUCE_LOCKED, truce__lock_enter(path, now, &b, &denied, &error), error);
    CHECK(strstr(error.message, "opens or closes"));
    truce__lock_close(&a);
    CHECK_OK(open_lock(path, &b, &error), error);
    truce__lock_close(&b);
}

TEST(is_not_alone_in_a_replaced_lock_file)
{
    bson_error_t error;
    struct lock lock;

    new_path();
    CHECK_OK(open_lock(path, &lock, &error), error);
    remove_lock();
    CHECK(!truce__lock_leave(&lock, truce__clock_monotonic_ns() + INT64_C(60000000000)));
    truce__lock_close(&lock);
}

TEST(checks_for_read_only_readers_once_and_keeps_pages_in_place)
{
    bson_error_t error;
    struct lock lock;
    int guest;

    new_path();
    CHECK_OK(open_lock(path, &lock, &error), error);
    guest = truce__lock_file_open(lock_path, O_RDONLY);
    REQUIRE(guest >= 0 && lock_set_byte(guest, BYTE_READ_ONLY, F_RDLCK));
    CHECK(!truce__lock_no_read_only(&lock));
    CHECK(lock_set_byte(guest, BYTE_READ_ONLY, F_UNLCK));
    CHECK(truce__lock_no_read_only(&lock));
    CHECK(lock_set_byte(guest, BYTE_READ_ONLY,
                        F_RDLCK)); /* it sees that another process is present */
    CHECK(lock_has_byte(guest, BYTE_PRESENT));
    CHECK(truce__lock_no_read_only(&lock));
    truce__fork_guard_close(guest);
    truce__lock_close(&lock);
}

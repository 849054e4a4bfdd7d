/* Files that lose their names: the cases in which checking the descriptor suffices, and the errors
 * of a store. */
#include "engine/storage/file_identity.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/test.h"
#include "truce/store.h"

#define SETTLED_MS 30 /* a time of change is old enough then to be kept */
#define LOOK_MS    60 /* every name is looked up again after that */

static char directory[300], path[400], lock_path[420], other[420];

static void new_paths(void)
{
    snprintf(directory, sizeof directory, "%s/d", test_directory());
    snprintf(path, sizeof path, "%s/s.truce", directory);
    snprintf(lock_path, sizeof lock_path, "%s-lock", path);
    snprintf(other, sizeof other, "%s/o.truce", directory);
    CHECK_INT(mkdir(directory, 0755), ==, 0);
}

/* ---- the sight itself ------------------------------------------------------------------------ */

static int make_file(const char *name)
{
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);

    CHECK(file >= 0 && write(file, "x", 1) == 1);
    return file;
}

static bool same(const struct path_identity *path_identity, int file)
{
    struct stat found;

    return CHECK_INT(fstat(file, &found), ==, 0) &&
           truce__path_identity_same(path_identity, &found);
}

static void keep(struct path_identity *path_identity, int file)
{
    struct stat found;

    if (CHECK_INT(fstat(file, &found), ==, 0))
        truce__path_identity_record(path_identity, &found);
}

/* Opens a file whose time of change is recorded. */
static int open_kept(struct path_identity *path_identity)
{
    int file;

    new_paths();
    file = make_file(path);
    truce__clock_sleep_ms(SETTLED_MS);
    *path_identity = (struct path_identity){0};
    CHECK(!same(path_identity, file));
    keep(path_identity, file);
    CHECK(same(path_identity, file));
    return file;
}

TEST(does_not_look_up_an_untouched_file)
{
    struct path_identity path_identity;
    int file = open_kept(&path_identity);

    for (int i = 0; i < 1000; i++)
        CHECK(same(&path_identity, file));
    close(file);
}

static void removed(void)
{
    CHECK_INT(unlink(path), ==, 0);
}

static void moved(void)
{
    CHECK_INT(rename(path, other), ==, 0);
}

static void moved_and_back(void)
{
    moved();
    CHECK_INT(rename(other, path), ==, 0);
}

static void replaced(void)
{
    close(make_file(other));
    CHECK_INT(rename(other, path), ==, 0);
}

static void written(void)
{
    int file = open(path, O_WRONLY);

    CHECK_INT(pwrite(file, "y", 1, 0), ==, 1);
    close(file);
}

TEST(notices_any_change_of_a_file_or_its_name_by_its_time)
{
    static void (*const all[])(void) = {removed, moved, moved_and_back, replaced, written};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct path_identity path_identity;
        int file = open_kept(&path_identity);

        all[i]();
        CHECK(!same(&path_identity, file));
        close(file);
    }
}

TEST(a_time_that_is_young_is_not_kept)
{
    struct path_identity path_identity = {0};
    int file;

    new_paths();
    file = make_file(path);
    keep(&path_identity, file);
    CHECK(!same(&path_identity, file));
    close(file);
}

TEST(every_name_is_looked_up_after_a_while)
{
    struct path_identity path_identity;
    int file = open_kept(&path_identity);

    truce__clock_sleep_ms(LOOK_MS);
    CHECK(!same(&path_identity, file));
    keep(&path_identity, file);
    CHECK(same(&path_identity, file));
    close(file);
}

/* Closing any other descriptor of a file drops the locks that the process has on it, and SQLite's
 * are such locks. */
TEST(a_descriptor_of_the_name_alone_drops_no_lock)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    int file, status = -1;
    pid_t child;

    new_paths();
    file = make_file(path);
    CHECK_INT(fcntl(file, F_SETLK, &lock), ==, 0);
    close(open(path, O_PATH | O_CLOEXEC));
    fflush(NULL);
    child = fork();
    if (!child)
        _exit(fcntl(file, F_SETLK, &lock) == 0);
    CHECK_INT(waitpid(child, &status, 0), ==, child);
    CHECK_INT(status, ==, 0);
    close(file);
}

/* ---- a store that writes --------------------------------------------------------------------- */

static truce_store *store;

static truce_status insert(int id, bson_error_t *error)
{
    const truce_write_options relaxed = {.relaxed = true};
    bson_t *document = BCON_NEW("_id", BCON_INT32(id));
    truce_status status = truce_insert(store, "c", document, &relaxed, error);

    bson_destroy(document);
    return status;
}

static void check_insert(int id)
{
    bson_error_t error;

    CHECK_OK(insert(id, &error), error);
}

/* Opens a store and waits until the times of its files are recorded: their descriptors show later
 * changes. */
static bool open_settled(void)
{
    bson_error_t error;

    new_paths();
    if (!CHECK_OK(truce_store_open(path, NULL, &store, &error), error))
        return false;
    check_insert(1);
    truce__clock_sleep_ms(LOOK_MS);
    check_insert(2);
    check_insert(3);
    return true;
}

static void check_refused_without(const char *name)
{
    bson_error_t error;

    if (!open_settled())
        return;
    CHECK_INT(rename(name, other), ==, 0);
    if (CHECK_STATUS(TRUCE_CORRUPT, insert(4, &error), error))
        CHECK(strstr(error.message, "removed or replaced"));
    CHECK_INT(rename(other, name), ==, 0);
    check_insert(5);
    truce_store_close(store);
}

TEST(refuses_writes_while_the_file_is_moved_away)
{
    check_refused_without(path);
}

TEST(refuses_writes_while_the_lock_file_is_moved_away)
{
    check_refused_without(lock_path);
}

TEST(refuses_writes_soon_after_the_directory_was_moved_away)
{
    bson_error_t error;
    char away[320];

    if (!open_settled())
        return;
    snprintf(away, sizeof away, "%s.away", directory);
    CHECK_INT(rename(directory, away), ==, 0);
    truce__clock_sleep_ms(LOOK_MS);
    CHECK_STATUS(TRUCE_CORRUPT, insert(4, &error), error);
    CHECK_INT(rename(away, directory), ==, 0);
    check_insert(5);
    truce_store_close(store);
}

/* The open checks: files at the path of a store, and next to it. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/test.h"
#include "truce/store.h"

#define NOBODY 65534

static char directory[300], path[400], other[420], link_path[420];

static void new_path(void)
{
    snprintf(directory, sizeof directory, "%s", test_directory());
    snprintf(path, sizeof path, "%s/s.truce", directory);
    snprintf(other, sizeof other, "%s/o.truce", directory);
    snprintf(link_path, sizeof link_path, "%s/link.truce", directory);
    fflush(NULL);
}

static truce_status open_at(const char *name, truce_store **store, bson_error_t *error)
{
    const truce_store_options options = {.deadline_ms = 500};

    return truce_store_open(name, &options, store, error);
}

static truce_status insert(truce_store *store, int id, bson_error_t *error)
{
    bson_t *document = BCON_NEW("_id", BCON_INT32(id), "v", BCON_INT32(1));
    truce_status status = truce_insert(store, "c", document, NULL, error);

    bson_destroy(document);
    return status;
}

static void insert_many(truce_store *store, int from, int to)
{
    bson_error_t error;

    for (int id = from; id < to; id++) {
        if (!CHECK_OK(insert(store, id, &error), error))
            return;
    }
}

/* Counts by the document's fields, so that no index answers alone. */
static int64_t count(truce_store *store)
{
    bson_t *filter = BCON_NEW("v", BCON_INT32(1));
    bson_error_t error;
    int64_t number = -1;

    CHECK_OK(truce_count(store, "c", filter, NULL, &number, &error), error);
    bson_destroy(filter);
    return number;
}

static void make(const char *name, int documents)
{
    truce_store *store;
    bson_error_t error;

    if (!CHECK_OK(open_at(name, &store, &error), error))
        return;
    insert_many(store, 0, documents);
    truce_store_close(store);
}

static void check_has(const char *name, int64_t documents)
{
    truce_store *store;
    bson_error_t error;

    if (!CHECK_OK(open_at(name, &store, &error), error))
        return;
    CHECK_INT(count(store), ==, documents);
    truce_store_close(store);
}

static void check_refused(const char *name, truce_status expected, const char *why)
{
    truce_store *store = NULL;
    bson_error_t error;

    if (CHECK_STATUS(expected, open_at(name, &store, &error), error))
        CHECK(strstr(error.message, why));
    else if (store)
        truce_store_close(store);
}

/* A process inserts, and dies with the store open. */
static void make_with_log(const char *name, int from, int to)
{
    int state;
    pid_t child;

    fflush(NULL);
    child = fork();

    if (!child) {
        truce_store *store;
        bson_error_t error;

        if (open_at(name, &store, &error))
            _exit(1);
        insert_many(store, from, to);
        kill(getpid(), SIGKILL);
    }
    CHECK(waitpid(child, &state, 0) == child && WIFSIGNALED(state));
}

/* ---- names ----------------------------------------------------------------------------------- */

TEST(a_second_name_of_the_file_is_refused)
{
    new_path();
    make(path, 3);
    REQUIRE(!link(path, other));
    check_refused(path, TRUCE_INVALID, "2 names");
    check_refused(other, TRUCE_INVALID, "hard link");
    CHECK(!unlink(other));
    check_has(path, 3);
}

TEST(links_lead_to_one_store)
{
    char second[440], log[460];

    new_path();
    snprintf(second, sizeof second, "%s.second", link_path);
    REQUIRE(!symlink("o.truce", link_path) && !symlink(link_path, second));
    make(second, 2); /* made where the links lead to nothing */
    check_has(other, 2);
    snprintf(log, sizeof log, "%s-lock", other);
    CHECK(!access(log, F_OK));
    snprintf(log, sizeof log, "%s-lock", second);
    CHECK(access(log, F_OK));
    REQUIRE(!unlink(link_path) && !symlink(second, link_path));
    check_refused(second, TRUCE_IO, "");
}

TEST(refuses_a_path_that_is_not_a_regular_file)
{
    char below[440];

    new_path();
    REQUIRE(!mkdir(path, 0700) && !mkfifo(other, 0600));
    check_refused(path, TRUCE_INVALID, "is a directory");
    check_refused(other, TRUCE_CORRUPT, "not a regular file");
    snprintf(below, sizeof below, "%s/", path);
    check_refused(below, TRUCE_INVALID, "is a directory");
    snprintf(below, sizeof below, "%s/none/s.truce", path);
    check_refused(below, TRUCE_IO, "none");
    snprintf(below, sizeof below, "%s/none/", path);
    check_refused(below, TRUCE_IO, "");
}

/* ---- files that were put in the place of others ---------------------------------------------- */

TEST(a_store_renamed_over_another_does_not_get_its_log)
{
    new_path();
    make(other, 3);
    make_with_log(path, 0, 5);
    snprintf(link_path, sizeof link_path, "%s.away", path);
    REQUIRE(!link(path, link_path)); /* the first store stays there by another name */
    REQUIRE(!rename(other, path));
    check_refused(path, TRUCE_CORRUPT, "was replaced");
    check_refused(path, TRUCE_CORRUPT, "was replaced");
    REQUIRE(!rename(link_path, path));
    check_has(path, 5);
}

TEST(a_store_without_a_log_may_be_replaced)
{
    new_path();
    make(other, 3);
    make(path, 5);
    REQUIRE(!rename(other, path));
    check_has(path, 3);
}

TEST(a_store_that_is_open_is_not_replaced_unseen)
{
    truce_store *store;
    bson_error_t error;

    new_path();
    make(other, 3);
    REQUIRE(CHECK_OK(open_at(path, &store, &error), error));
    insert_many(store, 0, 5);
    REQUIRE(!rename(path, link_path));
    CHECK_STATUS(TRUCE_CORRUPT, insert(store, 5, &error), error);
    CHECK(strstr(error.message, "removed or replaced"));
    check_refused(path, TRUCE_CORRUPT, "was removed while");
    REQUIRE(!rename(other, path));
    CHECK_STATUS(TRUCE_CORRUPT, insert(store, 5, &error), error);
    check_refused(path, TRUCE_CORRUPT, "was replaced while");
    REQUIRE(!rename(link_path, path));
    CHECK_OK(insert(store, 5, &error), error);
    truce_store_close(store);
    check_has(path, 6);
}

/* ---- guests ---------------------------------------------------------------------------------- */

static int to_guest[2], from_guest[2];

static void tell(int descriptor)
{
    CHECK(write(descriptor, "x", 1) == 1);
}

static void hear(int descriptor)
{
    char byte;

    CHECK(read(descriptor, &byte, 1) == 1);
}

/* Counts after each byte on its pipe, and acknowledges each count. */
static _Noreturn void read_as_nobody(const int64_t *expected, int times)
{
    const truce_store_options options = {.read_only = true};
    truce_store *store;
    bson_error_t error;

    if (setgid(NOBODY) || setuid(NOBODY))
        _exit(1);
    if (CHECK_OK(truce_store_open(path, &options, &store, &error), error)) {
        for (int i = 0; i < times; i++) {
            CHECK_INT(count(store), ==, expected[i]);
            tell(from_guest[1]);
            hear(to_guest[0]);
        }
        truce_store_close(store);
    }
    test_child_exit();
}

static pid_t start_guest(const int64_t *expected, int times)
{
    pid_t child;

    CHECK(!pipe(to_guest) && !pipe(from_guest));
    fflush(NULL);
    child = fork();
    if (!child)
        read_as_nobody(expected, times);
    return child;
}

static void end_guest(pid_t child)
{
    int state;

    CHECK(waitpid(child, &state, 0) == child && state == 0);
    for (int i = 0; i < 2; i++) {
        close(to_guest[i]);
        close(from_guest[i]);
    }
}

static bool make_for_everybody(void)
{
    char lock[440];

    if (geteuid()) {
        test_skip("only root can change its user");
        return false;
    }
    new_path();
    make(path, 50);
    snprintf(lock, sizeof lock, "%s-lock", path);
    return CHECK(!chmod(directory, 0755) && !chmod(path, 0644) && !chmod(lock, 0644));
}

/* Without a writer, the reader uses the file alone. When a writer opens the store, the reader uses
 * the log, too, before the writer notifies any reader. */
TEST(shows_a_later_writers_commits_to_an_unprivileged_reader)
{
    static const int64_t expected[] = {50, 400, 600, 600, 700};
    struct stat found;
    char log[440];
    truce_store *store;
    bson_error_t error;
    pid_t child;

    if (!make_for_everybody())
        return;
    child = start_guest(expected, 5);
    hear(from_guest[0]);
    CHECK_OK(open_at(path, &store, &error), error);
    insert_many(store, 50, 400);
    tell(to_guest[1]);
    hear(from_guest[0]);
    insert_many(store, 400, 600);
    tell(to_guest[1]);
    hear(from_guest[0]);
    truce_store_close(store); /* the reader is present: the log stays */
    snprintf(log, sizeof log, "%s-wal", path);
    CHECK(!stat(log, &found) && found.st_size > 0);
    tell(to_guest[1]);
    hear(from_guest[0]);
    CHECK_OK(open_at(path, &store, &error), error);
    insert_many(store, 600, 700);
    tell(to_guest[1]);
    hear(from_guest[0]);
    tell(to_guest[1]);
    end_guest(child);
    CHECK_INT(count(store), ==, 700);
    truce_store_close(store);
}

/* A writer opens and closes the store between two reads: no writer is present at either read, but
 * the contents differ. */
TEST(verifies_the_reads_of_an_unprivileged_reader)
{
    static const int64_t expected[] = {50, 350};
    truce_store *store;
    bson_error_t error;
    pid_t child;

    if (!make_for_everybody())
        return;
    child = start_guest(expected, 2);
    hear(from_guest[0]);
    CHECK_OK(open_at(path, &store, &error), error);
    insert_many(store, 50, 350);
    truce_store_close(store);
    tell(to_guest[1]);
    hear(from_guest[0]);
    tell(to_guest[1]);
    end_guest(child);
}

TEST(a_reader_without_permission_opens_a_live_file)
{
    static const int64_t expected[] = {300, 301};
    truce_store *store;
    bson_error_t error;
    pid_t child;

    if (!make_for_everybody())
        return;
    make_with_log(path, 50, 300); /* the log exists, and no process */
    child = start_guest(expected, 2);
    hear(from_guest[0]);
    CHECK_OK(open_at(path, &store, &error), error);
    CHECK_OK(insert(store, 300, &error), error);
    tell(to_guest[1]);
    hear(from_guest[0]);
    tell(to_guest[1]);
    end_guest(child);
    truce_store_close(store);
}

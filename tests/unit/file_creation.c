/*
 * The creation of a store: the file has its first page when it gets its name, and a process that
 * fails or dies leaves nothing that has to be removed.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/storage/checksum_vfs.h"
#include "engine/storage/kv_connection.h"
#include "tests/support/damage.h"
#include "tests/support/test.h"
#include "truce/store.h"

enum { CREATORS = 4 };

static char directory[400], path[420];

static void new_path(void)
{
    snprintf(directory, sizeof directory, "%s", test_directory());
    snprintf(path, sizeof path, "%s/s.truce", directory);
}

static void insert_one(truce_store *store, int id)
{
    bson_t *document = BCON_NEW("_id", BCON_INT32(id));
    bson_error_t error;

    CHECK_OK(truce_insert(store, "c", document, NULL, &error), error);
    bson_destroy(document);
}

/* Opens the store and inserts a document. */
static void use_store(int id)
{
    truce_store *store;
    bson_error_t error;

    if (!CHECK_OK(truce_store_open(path, NULL, &store, &error), error))
        return;
    insert_one(store, id);
    truce_store_close(store);
}

static void check_has(int64_t documents)
{
    truce_store *store;
    bson_error_t error;
    int64_t count = 0;

    if (!CHECK_OK(truce_store_open(path, NULL, &store, &error), error))
        return;
    CHECK_OK(truce_count(store, "c", NULL, NULL, &count, &error), error);
    CHECK_INT(count, ==, documents);
    truce_store_close(store);
}

/* Checks that the directory has `names` files, all of which belong to the store. */
static void check_names(int names)
{
    DIR *opened = opendir(directory);
    const struct dirent *found;
    int count = 0;

    REQUIRE(opened);
    while ((found = readdir(opened))) {
        if (found->d_name[0] == '.')
            continue;
        CHECK(!strncmp(found->d_name, "s.truce", 7));
        count++;
    }
    closedir(opened);
    CHECK_INT(count, ==, names);
}

/* Waits for a child. Returns whether it exited with 0. */
static bool await_child(pid_t child)
{
    int state;

    return waitpid(child, &state, 0) == child && !state;
}

/* Returns whether the file system of the test has unnamed files. If not, skips the test. */
static bool has_unnamed_files(void)
{
    int file = open(directory, O_TMPFILE | O_RDWR, 0600);

    if (file < 0) {
        test_skip("the file system has no unnamed files");
        return false;
    }
    close(file);
    return true;
}

/* ---- the first page -------------------------------------------------------------------------- */

static size_t size_at_opening;

/* Opens a file for SQLite, as open(2) does, and notes the size of the new store. */
static int open_and_note(const char *name, int flags, int mode)
{
    int file = open(name, flags, mode);
    struct stat found;

    if (file >= 0 && flags & O_CREAT && !strcmp(name, path) && !fstat(file, &found))
        size_at_opening = (size_t)found.st_size;
    return file;
}

TEST(a_new_file_has_its_first_page_when_sqlite_opens_it)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find("unix");

    new_path();
    if (!has_unnamed_files())
        return;
    REQUIRE(vfs);
    vfs->xSetSystemCall(vfs, "open", (sqlite3_syscall_ptr)open_and_note);
    use_store(1);
    vfs->xSetSystemCall(vfs, "open", NULL);
    CHECK_INT(size_at_opening, ==, KV_PAGE_BYTES);
    check_has(1);
    check_names(2);
}

/* Sets the counters of changes in the header of SQLite, and the version of SQLite, to 0. */
static void drop_counters(struct image *image)
{
    memset(image->bytes + 24, 0, 4);
    memset(image->bytes + 40, 0, 4);
    memset(image->bytes + 92, 0, 8);
    image_seal(image, 1);
}

/* SQLite creates the first page of a store in an empty file itself. */
TEST(a_new_file_is_the_same_as_a_store_in_an_empty_file)
{
    struct image created, filled;

    new_path();
    use_store(1);
    REQUIRE(image_read(&created, path));
    new_path();
    REQUIRE(image_write(&(struct image){(uint8_t *)"", 0}, path));
    use_store(1);
    REQUIRE(image_read(&filled, path));
    REQUIRE(created.size > KV_PAGE_BYTES && filled.size > KV_PAGE_BYTES);
    drop_counters(&created);
    drop_counters(&filled);
    CHECK(!memcmp(created.bytes, filled.bytes, KV_PAGE_BYTES));
    image_release(&created);
    image_release(&filled);
}

TEST(sqlite_finds_no_fault_in_the_first_page)
{
    struct kv *kv;
    bson_error_t error;
    int64_t faults = -1, pages = -1;
    bool fresh = false;

    new_path();
    if (!has_unnamed_files())
        return;
    REQUIRE(CHECK_OK(truce__kv_open(path, KV_WRITER | KV_CREATE, 1000, &kv, &error), error));
    CHECK_OK(truce__kv_pragma(kv, "PRAGMA page_count", &pages, &error), error);
    CHECK_INT(pages, ==, 1);
    CHECK_OK(truce__kv_pragma(kv,
                              "SELECT count(*) FROM pragma_integrity_check "
                              "WHERE integrity_check <> 'ok'",
                              &faults, &error),
             error);
    CHECK_INT(faults, ==, 0);
    CHECK_OK(truce__kv_format_check(kv, &fresh, &error), error);
    CHECK(fresh);
    truce__kv_close(kv);
}

TEST(the_mode_of_a_new_file_respects_the_umask)
{
    static const mode_t masks[] = {0, 022, 027, 077};
    mode_t before = umask(0);

    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        struct stat found = {0};

        new_path();
        umask(masks[i]);
        use_store(1);
        CHECK(!stat(path, &found));
        CHECK_INT(found.st_mode & 07777, ==, 0644 & ~masks[i]);
    }
    umask(before);
}

/* ---- what exists already --------------------------------------------------------------------- */

TEST(no_existing_name_is_replaced)
{
    static const char text[] = "a text";
    bson_error_t error;
    struct image found;
    char target[420];

    new_path();
    snprintf(target, sizeof target, "%s/target", directory);
    REQUIRE(image_write(&(struct image){(uint8_t *)text, sizeof text}, path));
    CHECK_OK(truce__kv_file_create(path, &error), error);
    REQUIRE(image_read(&found, path));
    CHECK(found.size == sizeof text && !memcmp(found.bytes, text, sizeof text));
    image_release(&found);
    REQUIRE(!unlink(path) && !symlink(target, path));
    CHECK_OK(truce__kv_file_create(path, &error), error);
    CHECK(access(target, F_OK));
}

/* Dies in a transaction whose journal is on disk. */
static _Noreturn void leave_journal(void)
{
    sqlite3 *db;
    bool good = !sqlite3_open(path, &db) &&
                !sqlite3_exec(db,
                              "CREATE TABLE t(x); INSERT INTO t VALUES(zeroblob(100000)); "
                              "PRAGMA cache_size=1; BEGIN; UPDATE t SET x = randomblob(100000); "
                              "INSERT INTO t VALUES(randomblob(100000))",
                              NULL, NULL, NULL);

    _exit(!good);
}

TEST(a_journal_of_a_removed_database_is_not_rolled_back_into_a_new_store)
{
    char journal[440];
    struct stat found;
    pid_t child;

    new_path();
    snprintf(journal, sizeof journal, "%s-journal", path);
    fflush(NULL);
    child = fork();
    if (!child)
        leave_journal();
    REQUIRE(await_child(child));
    REQUIRE(!stat(journal, &found) && found.st_size > KV_PAGE_BYTES && !unlink(path));
    use_store(1);
    check_has(1);
    check_names(2);
}

/* ---- the directory --------------------------------------------------------------------------- */

/* The error of a sync of a directory, or 0. */
static int directory_error;

/* Replaces the C library's function. */
int fsync(int file)
{
    struct stat found;

    if (directory_error && !fstat(file, &found) && S_ISDIR(found.st_mode)) {
        errno = directory_error;
        return -1;
    }
    return (int)syscall(SYS_fsync, file);
}

TEST(a_store_is_created_on_a_file_system_that_syncs_no_directories)
{
    new_path();
    directory_error = EINVAL;
    use_store(1);
    directory_error = 0;
    check_has(1);
}

TEST(a_store_is_not_created_if_its_name_is_not_on_disk)
{
    truce_store *store;
    bson_error_t error;

    new_path();
    directory_error = EIO;
    CHECK_STATUS(TRUCE_IO, truce_store_open(path, NULL, &store, &error), error);
    CHECK(strstr(error.message, "cannot create"));
    directory_error = 0;
    use_store(1);
    check_has(1);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Creates the file while no file may grow. */
static _Noreturn void create_without_space(void)
{
    const struct rlimit none = {0, 0};
    bson_error_t error = {0};
    struct kv *kv = NULL;

    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &none))
        _exit(2);
    CHECK_STATUS(TRUCE_IO, truce__kv_open(path, KV_WRITER | KV_CREATE, 1000, &kv, &error), error);
    CHECK(strstr(error.message, "cannot create"));
    CHECK(!kv);
    test_child_exit();
}

TEST(a_failed_write_leaves_no_file)
{
    pid_t child;

    new_path();
    if (!has_unnamed_files())
        return;
    fflush(NULL);
    child = fork();
    if (!child)
        create_without_space();
    CHECK(await_child(child));
    check_names(0);
    use_store(1);
    check_has(1);
}

/* Dies when SQLite opens the file that is created. */
static int open_and_die(const char *name, int flags, int mode)
{
    if (flags & O_CREAT && !strcmp(name, path))
        _exit(0);
    return open(name, flags, mode);
}

TEST(a_file_of_a_creator_that_died_becomes_a_store)
{
    const truce_store_options reading = {.read_only = true};
    truce_store *store;
    bson_error_t error;
    struct stat found;
    pid_t child;

    new_path();
    if (!has_unnamed_files())
        return;
    fflush(NULL);
    child = fork();
    if (!child) {
        sqlite3_vfs *vfs = sqlite3_vfs_find("unix");

        vfs->xSetSystemCall(vfs, "open", (sqlite3_syscall_ptr)open_and_die);
        use_store(1);
        _exit(1);
    }
    REQUIRE(await_child(child));
    CHECK(!stat(path, &found) && found.st_size == KV_PAGE_BYTES);
    check_names(2);
    CHECK_STATUS(TRUCE_CORRUPT, truce_store_open(path, &reading, &store, &error), error);
    CHECK(strstr(error.message, "its creation has not ended"));
    use_store(1);
    check_has(1);
    check_names(2);
}

/* ---- several processes ----------------------------------------------------------------------- */

static void create_at_once(void)
{
    pid_t children[CREATORS];
    int start[2];
    char byte;

    new_path();
    REQUIRE(!pipe(start));
    fflush(NULL);
    for (int i = 0; i < CREATORS; i++) {
        children[i] = fork();
        if (!children[i]) {
            /* The pipe ends for all children at once. */
            close(start[1]);
            CHECK_INT(read(start[0], &byte, 1), ==, 0);
            use_store(i);
            test_child_exit();
        }
    }
    close(start[0]);
    close(start[1]);
    for (int i = 0; i < CREATORS; i++)
        CHECK(await_child(children[i]));
    check_has(CREATORS);
    check_names(2);
}

TEST(processes_that_create_a_store_at_once_share_it)
{
    long times = test_scale("TRUCE_CREATIONS", 20);

    for (long i = 0; i < times && !test_failures(); i++)
        create_at_once();
}

/* ---- without unnamed files ------------------------------------------------------------------- */

/* Makes a system call of this process fail, always or if its third argument has all bits of `bits`.
 * Returns false if the kernel has no filters. */
static bool refuse_call(unsigned call, unsigned bits, unsigned short why)
{
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, bits),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, bits, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | why),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof steps / sizeof *steps, steps};

    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
           !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

enum { NO_FILTERS = 77 };

/* Creates a store in a child for which the call fails. */
static void create_without(unsigned call, unsigned bits, unsigned short why)
{
    int state;
    pid_t child;

    new_path();
    fflush(NULL);
    child = fork();
    if (!child) {
        if (!refuse_call(call, bits, why))
            _exit(NO_FILTERS);
        use_store(1);
        test_child_exit();
    }
    REQUIRE(waitpid(child, &state, 0) == child);
    if (WIFEXITED(state) && WEXITSTATUS(state) == NO_FILTERS) {
        test_skip("the kernel has no filters of system calls");
        return;
    }
    CHECK(!state);
    check_has(1);
    check_names(2);
}

TEST(a_store_is_created_on_a_file_system_without_unnamed_files)
{
    create_without(SYS_openat, O_TMPFILE, EOPNOTSUPP);
}

TEST(a_store_is_created_without_proc)
{
    create_without(SYS_linkat, 0, ENOENT);
}

/* The rules of gathered writes (src/engine/storage/wal_vfs.c), one by one, without SQLite's
 * pager. */
#include "engine/storage/wal_vfs.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include "tests/support/disk_vfs.h"
#include "tests/support/test.h"

enum { HEADER = 24, PAGE = 4096 };

static sqlite3_file *file;
static char path[400];

__attribute__((constructor)) static void install(void)
{
    disk_install();
}

static bool open_wal(void)
{
    sqlite3_vfs *vfs;
    FILE *database;
    int flags = SQLITE_OPEN_WAL | SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;

    disk_reset();
    disk_honest(true);
    snprintf(path, sizeof path, "%s/s.db", test_directory());
    database = fopen(path, "w"); /* a WAL gets the permissions of its database */
    if (!CHECK(database))
        return false;
    fclose(database);
    strcat(path, "-wal");
    remove(path);
    vfs = sqlite3_vfs_find(truce__kv_wal_vfs());
    if (!CHECK(vfs))
        return false;
    file = bson_malloc0((size_t)vfs->szOsFile);
    return CHECK_INT(vfs->xOpen(vfs, path, file, flags, &flags), ==, SQLITE_OK) &&
           CHECK_INT(file->pMethods->xWrite(file, "0123456789abcdef0123456789abcdef", 32, 0), ==,
                     SQLITE_OK);
}

static void close_wal(void)
{
    CHECK_INT(file->pMethods->xClose(file), ==, SQLITE_OK);
    bson_free(file);
}

static int64_t place(int frame)
{
    return 32 + (int64_t)frame * (HEADER + PAGE);
}

static int write_header(int frame, bool last)
{
    uint8_t header[HEADER] = {0, 0, 0, 1, 0, 0, 0, last};

    return file->pMethods->xWrite(file, header, HEADER, place(frame));
}

static int write_page(int frame, char with)
{
    char page[PAGE];

    memset(page, with, sizeof page);
    return file->pMethods->xWrite(file, page, PAGE, place(frame) + HEADER);
}

static int write_frame(int frame, char with, bool last)
{
    int result = write_header(frame, last);

    return result ? result : write_page(frame, with);
}

/* A byte of the file itself; 0: the file is shorter. */
static char byte_in_file(int64_t offset)
{
    FILE *real = fopen(path, "rb");
    char found = 0;

    if (CHECK(real) && !fseek(real, offset, SEEK_SET) && fread(&found, 1, 1, real) != 1)
        found = 0;
    if (real)
        fclose(real);
    return found;
}

/* Returns the last byte of a frame. */
static char in_file(int frame)
{
    return byte_in_file(place(frame + 1) - 1);
}

TEST(frames_are_gathered_until_the_last_of_a_commit)
{
    REQUIRE(open_wal());
    CHECK_INT(write_frame(0, 'a', false), ==, SQLITE_OK);
    CHECK_INT(write_frame(1, 'b', false), ==, SQLITE_OK);
    CHECK_INT(in_file(1), ==, 0);
    CHECK_INT(write_frame(2, 'c', true), ==, SQLITE_OK);
    CHECK_INT(in_file(0), ==, 'a');
    CHECK_INT(in_file(1), ==, 'b');
    CHECK_INT(in_file(2), ==, 'c');
    close_wal();
}

TEST(a_large_commit_is_written_in_parts)
{
    REQUIRE(open_wal());
    for (int i = 0; i < 1000; i++)
        CHECK_INT(write_frame(i, (char)('a' + i % 26), i == 999), ==, SQLITE_OK);
    for (int i = 0; i < 1000; i++)
        CHECK_INT(in_file(i), ==, 'a' + i % 26);
    close_wal();
}

TEST(a_sync_brings_everything_to_the_disk)
{
    REQUIRE(open_wal());
    CHECK_INT(write_frame(0, 'a', false), ==, SQLITE_OK);
    CHECK_INT(file->pMethods->xSync(file, SQLITE_SYNC_NORMAL), ==, SQLITE_OK);
    CHECK_INT(in_file(0), ==, 'a');
    close_wal();
}

TEST(shows_written_frames_to_reads_and_sizes)
{
    sqlite3_int64 size = 0;
    char page[PAGE] = {0};

    REQUIRE(open_wal());
    CHECK_INT(write_frame(0, 'a', false), ==, SQLITE_OK);
    /* less than a whole page, because a whole page would be verified, and the test has no
     * database */
    CHECK_INT(file->pMethods->xRead(file, page, PAGE - 1, place(0) + HEADER), ==, SQLITE_OK);
    CHECK_INT(page[PAGE - 2], ==, 'a');
    CHECK_INT(write_frame(1, 'b', false), ==, SQLITE_OK);
    CHECK_INT(file->pMethods->xFileSize(file, &size), ==, SQLITE_OK);
    CHECK_INT(size, >=, place(2));
    CHECK_INT(write_frame(2, 'c', false), ==, SQLITE_OK);
    CHECK_INT(file->pMethods->xTruncate(file, place(1)), ==, SQLITE_OK);
    CHECK_INT(file->pMethods->xSync(file, SQLITE_SYNC_NORMAL), ==, SQLITE_OK);
    CHECK_INT(in_file(0), ==, 'a');
    CHECK_INT(in_file(1), ==, 0);
    close_wal();
}

TEST(keeps_the_order_of_writes_at_other_offsets)
{
    REQUIRE(open_wal());
    CHECK_INT(write_frame(0, 'a', false), ==, SQLITE_OK);
    CHECK_INT(write_frame(1, 'b', false), ==, SQLITE_OK);
    CHECK_INT(write_frame(0, 'c', false), ==, SQLITE_OK); /* the page once more, over the first */
    CHECK_INT(write_frame(2, 'd', true), ==, SQLITE_OK);
    CHECK_INT(in_file(0), ==, 'c');
    CHECK_INT(in_file(1), ==, 'b');
    CHECK_INT(in_file(2), ==, 'd');
    close_wal();
}

/* Rewrites checksums header by header. The commit's last header comes at the end, without a
 * page. */
TEST(writes_a_header_without_a_page_immediately)
{
    REQUIRE(open_wal());
    CHECK_INT(write_frame(0, 'a', false), ==, SQLITE_OK);
    CHECK_INT(write_frame(1, 'b', true), ==, SQLITE_OK);
    CHECK_INT(write_header(2, false), ==, SQLITE_OK); /* follows: may wait */
    CHECK_INT(byte_in_file(place(2) + 3), ==, 0);
    /* does not follow: writes it and the waiting header */
    CHECK_INT(write_header(4, true), ==, SQLITE_OK);
    CHECK_INT(byte_in_file(place(2) + 3), ==, 1);
    CHECK_INT(byte_in_file(place(4) + 7), ==, 1);
    close_wal();
}

TEST(leaves_nothing_after_a_commit_whose_write_failed)
{
    REQUIRE(open_wal());
    CHECK_INT(write_frame(0, 'a', true), ==, SQLITE_OK);
    CHECK_INT(write_frame(1, 'b', false), ==, SQLITE_OK);
    CHECK_INT(write_frame(2, 'c', false), ==, SQLITE_OK);
    disk_fail(DISK_FULL, 1, false);
    CHECK_INT(write_frame(3, 'd', true), ==, SQLITE_FULL);
    CHECK_INT(write_frame(1, 'e', true), ==, SQLITE_OK);
    CHECK_INT(in_file(0), ==, 'a');
    CHECK_INT(in_file(1), ==, 'e');
    CHECK_INT(in_file(2), ==, 0);
    close_wal();
}

TEST(fails_a_read_if_the_waiting_frames_cannot_be_written)
{
    char page[PAGE];

    REQUIRE(open_wal());
    CHECK_INT(write_frame(0, 'a', false), ==, SQLITE_OK);
    disk_fail(DISK_WRITE_FAILS, 1, false);
    CHECK_INT(file->pMethods->xRead(file, page, PAGE, place(0) + HEADER), !=, SQLITE_OK);
    CHECK_INT(write_frame(1, 'b', true), ==, SQLITE_OK);
    CHECK_INT(in_file(0), ==, 'a');
    CHECK_INT(in_file(1), ==, 'b');
    close_wal();
}

TEST(grows_the_file_ahead_of_the_writes)
{
    struct stat real;
    int64_t size = 0;
    int grown = 0;

    REQUIRE(open_wal());
    for (int i = 0; i < 1000; i++) {
        CHECK_INT(write_frame(i, 'a', true), ==, SQLITE_OK);
        CHECK(!stat(path, &real));
        CHECK_INT(real.st_size, >=, place(i + 1));
        CHECK_INT(real.st_size, <=, 2 * place(i + 1));
        CHECK_INT(real.st_size, <=, place(i + 1) + (1 << 20));
        grown += real.st_size > size;
        size = real.st_size;
    }
    CHECK_INT(grown, <, 30);
    CHECK_INT(byte_in_file(size - 1), ==, 0);
    close_wal();
}

TEST(writes_to_a_disk_without_space_ahead)
{
    REQUIRE(open_wal());
    disk_fail(DISK_FULL, 2, false);
    CHECK_INT(write_frame(0, 'a', true), ==, SQLITE_OK);
    CHECK_INT(disk_faults(), ==, 1);
    CHECK_INT(write_frame(1, 'b', true), ==, SQLITE_OK);
    CHECK_INT(in_file(0), ==, 'a');
    CHECK_INT(in_file(1), ==, 'b');
    close_wal();
}

/*
 * Creates the file with its first page.
 *
 * If an SQLite program opens an empty file, it assumes SQLite's default page size, 4,096 bytes,
 * which is also the page size of a store. The program does not notice when the file becomes a
 * store. It finds the frames of the log in the index of the log, which is SQLite's own, so it never
 * reads the header of the log (file_format.h). Its statements fail, because page 1 is not that of a
 * database. But its next checkpoint, or its close, moves frames into the file without checksums
 * (checksum_vfs.h) and can remove the log.
 *
 * Therefore the file gets its name only when its first page is on disk. A program that opens the
 * file after that reads a wrong page size, and SQLite refuses its checkpoints.
 *
 *     unnamed file --write, fsync--> page 1 on disk --linkat--> PATH --fsync of the directory-->
 *
 * The page is the one that SQLite would write into a new database with a log. The first commit adds
 * the rest of the format (truce__kv_format_create).
 *
 * Invariants:
 *  1. The file does not get its name before its first page is on disk.
 *  2. The name is on disk before the log has content. Otherwise a power cut could leave a log
 *     without its file, which is refused (open_checks.c).
 *  3. No existing file is replaced, and no journal is rolled back into the new file. SQLite would
 *     do so with a journal that a removed database left.
 *
 * A crash leaves no file, or a file with its first page. The next process that opens this file
 * completes the format.
 *
 * In three cases SQLite creates an empty file, which another program may open:
 *  - The file system has no unnamed files (O_TMPFILE).
 *  - /proc is missing, through which the file gets its name.
 *  - A journal exists. SQLite deletes a journal next to an empty file.
 *
 * An empty file that existed before is not protected either: a file that another program has open
 * cannot be replaced.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/directory_sync.h"
#include "base/status.h"
#include "engine/storage/checksum_vfs.h"
#include "engine/storage/file_format.h"
#include "engine/storage/fork_guard.h"

/* The mode that SQLite gives a new database, before the umask is applied. */
#define MODE 0644

static truce_status creation_fail(const char *path, bson_error_t *error)
{
    if (errno == ENOSPC || errno == EDQUOT)
        return truce__refuse(CODE_OUT_OF_DISK_SPACE, error,
                             "cannot create \"%s\": the disk is full", path);
    return truce__fail(TRUCE_IO, error, "cannot create \"%s\": %s", path, strerror(errno));
}

/* Opens the directory of the file, or an unnamed file in it. */
static int creation_open(const char *path, int flags)
{
    const char *slash = strrchr(path, '/');
    char *directory = slash ? bson_strndup(path, (size_t)(slash - path) + 1) : bson_strdup(".");
    int file = truce__fork_guard_open(directory, flags, MODE);
    int why = errno;

    bson_free(directory);
    errno = why;
    return file;
}

/* Makes page 1 of a database that has a log, reserved bytes, and map pages, but no tables. */
static void first_page_make(uint8_t *page)
{
    /* Bytes 0 to 23: the magic string, the page size, the versions for writing and reading (2: a
     * log), the reserved bytes, and three constants. */
    static const uint8_t header[24] = "SQLite format 3\0\x10\0\x02\x02\x08\x40\x20\x20";
    uint64_t sum;

    memset(page, 0, KV_PAGE_BYTES);
    memcpy(page, header, sizeof header);
    /* The number of pages. */
    page[31] = 1;
    /* The largest root page, which is not 0 if there are map pages; and that a vacuum is
     * incremental. */
    page[55] = 1;
    page[67] = 1;
    /* The header of the B-tree page: a leaf without cells, whose content begins at the end of the
     * usable bytes. */
    page[100] = 0x0d;
    page[105] = (KV_PAGE_BYTES - KV_SUM_BYTES) >> 8;
    page[106] = (KV_PAGE_BYTES - KV_SUM_BYTES) & 0xff;
    truce__kv_magic_hide(page);
    sum = BSON_UINT64_TO_LE(truce__kv_page_sum(page, 1));
    memcpy(page + KV_PAGE_BYTES - KV_SUM_BYTES, &sum, sizeof sum);
}

static bool first_page_write(int file)
{
    uint8_t page[KV_PAGE_BYTES];

    first_page_make(page);
    /* The cause of a write that is too short, which has no errno. */
    errno = ENOSPC;
    /* Invariant 1. */
    if (pwrite(file, page, sizeof page, 0) != (ssize_t)sizeof page)
        return false;
    return !fsync(file);
}

/* Gives the unnamed file its name, unless another file has it in the meantime. */
static void creation_link(int file, const char *path)
{
    char link[40];

    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    /* If this fails, SQLite opens the file that exists, or creates an empty one. */
    (void)linkat(AT_FDCWD, link, AT_FDCWD, path, AT_SYMLINK_FOLLOW);
}

/* Returns whether the file exists, or a journal next to it. */
static bool creation_exists(const char *path)
{
    char *journal = bson_strdup_printf("%s-journal", path);
    struct stat found;
    /* Invariant 3. linkat replaces no file. */
    bool journaled = !lstat(journal, &found);

    bson_free(journal);
    return journaled || !lstat(path, &found);
}

truce_status truce__kv_file_create(const char *path, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    int file;

    if (creation_exists(path))
        return TRUCE_OK;
    file = creation_open(path, O_TMPFILE | O_RDWR);
    /* SQLite creates the file, or reports why it cannot. */
    if (file < 0)
        return TRUCE_OK;
    if (first_page_write(file))
        creation_link(file, path);
    else
        status = creation_fail(path, error);
    /* Closing a descriptor drops the locks (POSIX) of this process on the file. It has none yet,
     * because the caller holds the entry lock, without which no handle opens the file. */
    truce__fork_guard_close(file);
    return status;
}

truce_status truce__kv_file_sync_name(const char *path, bson_error_t *error)
{
    int directory = creation_open(path, O_RDONLY | O_DIRECTORY);
    truce_status status = TRUCE_OK;

    /* SQLite, too, syncs only a directory that the process may read. */
    if (directory < 0)
        return TRUCE_OK;
    if (!truce__directory_sync(directory))
        status = creation_fail(path, error);
    truce__fork_guard_close(directory);
    return status;
}

#include "engine/storage/file_id.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

/* Reads the facts by statx(2). For an open descriptor, `directory` is the descriptor, `path` is "",
 * and the flags contain AT_EMPTY_PATH. */
static bool file_id_identify(int directory, const char *path, int flags, struct file_facts *facts)
{
    const unsigned mask = STATX_INO | STATX_BTIME | STATX_SIZE;
    struct statx found;

    if (statx(directory, path, flags, mask, &found))
        return false;
    *facts = (struct file_facts){.id = {.device = makedev(found.stx_dev_major, found.stx_dev_minor),
                                        .number = found.stx_ino},
                                 .size = (int64_t)found.stx_size};
    if (found.stx_mask & STATX_BTIME)
        facts->id.born = (uint64_t)found.stx_btime.tv_sec * 1000000000u + found.stx_btime.tv_nsec;
    return true;
}

bool truce__file_read_facts(const char *path, struct file_facts *facts)
{
    return file_id_identify(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, facts);
}

bool truce__file_modified_ns(const char *path, int64_t *ns)
{
    struct statx found;

    if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_MTIME, &found))
        return false;
    *ns = found.stx_mtime.tv_sec * INT64_C(1000000000) + found.stx_mtime.tv_nsec;
    return true;
}

bool truce__file_id(const char *path, struct file_id *id)
{
    struct file_facts facts;
    bool found = truce__file_read_facts(path, &facts);

    if (found)
        *id = facts.id;
    return found;
}

bool truce__file_id_of(int descriptor, struct file_id *id)
{
    struct file_facts facts;
    bool found = file_id_identify(descriptor, "", AT_EMPTY_PATH, &facts);

    if (found)
        *id = facts.id;
    return found;
}

bool truce__file_id_equal(const struct file_id *a, const struct file_id *b)
{
    return a->device == b->device && a->number == b->number && a->born == b->born;
}

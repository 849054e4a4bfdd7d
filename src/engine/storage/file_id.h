#ifndef TRUCE_ENGINE_STORAGE_FILE_ID_H
#define TRUCE_ENGINE_STORAGE_FILE_ID_H

/* The identity of a file, whatever its name is. file_identity.h checks with it that the files of a
 * store are still its own. Any thread. */
#include <stdbool.h>
#include <stdint.h>

/* Identifies a file under any name. `born` is its birth time in nanoseconds, which distinguishes it
 * from an older file with the same inode number. `born` is 0 if the file system does not record
 * birth times. If all fields are 0, there is no file. */
struct file_id {
    uint64_t device, number, born;
};

/* A file and its size. */
struct file_facts {
    struct file_id id;
    int64_t size;
};

/* Reads the facts or the identity of a file. Returns false, with errno, if the file is missing or
 * cannot be read. Does not follow symbolic links. */
bool truce__file_read_facts(const char *path, struct file_facts *facts);
/* Reads the time in nanoseconds at which the file was last modified. After this call, Linux 6.13
 * and later give the next write an exact time (multigrain timestamps). A query before each write
 * therefore makes each write slower. */
bool truce__file_modified_ns(const char *path, int64_t *ns);
bool truce__file_id(const char *path, struct file_id *id);
bool truce__file_id_of(int descriptor, struct file_id *id);
bool truce__file_id_equal(const struct file_id *a, const struct file_id *b);

#endif

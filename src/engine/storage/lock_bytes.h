#ifndef TRUCE_ENGINE_STORAGE_LOCK_BYTES_H
#define TRUCE_ENGINE_STORAGE_LOCK_BYTES_H

/*
 * What the bytes of the lock file stand for, locked by open file description: for lock.c and
 * lock_file.c.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>

#define BYTE_LOCK      0
#define BYTE_TURNSTILE 1
#define BYTE_DOOR      2  /* who is opening or closing the store */
#define BYTE_PRESENT   3  /* shared by all who have the store open */
#define BYTE_GUEST     4  /* shared by readings of the file alone (read_only_reader.c) */
#define BYTE_CLAIMS    16 /* and what follows: the claims' numbers */

/* The end of an error about a lock that no other process holds. */
#define LOCK_ADVICE "; keep the store on a file system with locks, such as one of a local disk"

static inline bool lock_set_byte(int file, int64_t byte, short type)
{
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

    return fcntl(file, F_OFD_SETLK, &range) == 0;
}

/* Held by another opening of the file? */
static inline bool lock_has_byte(int file, int64_t byte)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

    return fcntl(file, F_OFD_GETLK, &range) || range.l_type != F_UNLCK;
}

/* Opens the lock file, which is a regular file of one name; for truce__process_close. -1 with errno;
 * EMLINK: it has several names, EINVAL: it is no regular file. */
int truce__lock_file_open(const char *path, int flags);

#endif

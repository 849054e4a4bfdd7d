#ifndef TRUCE_ENGINE_STORAGE_LOCK_BYTES_H
#define TRUCE_ENGINE_STORAGE_LOCK_BYTES_H

/*
 * The bytes of the lock file and their meaning. Each is locked by an open-file-description lock
 * (F_OFD_SETLK), which belongs to one opening of the file and not to the process. write_lock.c,
 * lock_file.c, read_only_reader.c, and page_recovery.c use them.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>

/* The write lock, and the turnstile. A process holds the turnstile while it waits for the write
 * lock, so processes that arrive later get the lock after it. */
#define BYTE_LOCK      0
#define BYTE_TURNSTILE 1
/* The entry lock. A process holds it while it opens or closes the store. */
#define BYTE_ENTRY 2
/* The presence lock. Every process that has the store open holds it, shared. */
#define BYTE_PRESENT 3
/* Readers of the file alone hold this byte, shared (read_only_reader.c). */
#define BYTE_READ_ONLY 4
/* The first byte of the claims: claim n locks byte BYTE_CLAIMS + n. */
#define BYTE_CLAIMS 16

/* The end of an error about a lock that fails although no other process holds it. */
#define LOCK_ADVICE "; keep the store on a file system with locks, such as one of a local disk"

static inline bool lock_set_byte(int file, int64_t byte, short type)
{
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

    return fcntl(file, F_OFD_SETLK, &range) == 0;
}

/* Returns whether another open file description holds the byte. Returns true if this cannot be
 * determined. */
static inline bool lock_has_byte(int file, int64_t byte)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

    return fcntl(file, F_OFD_GETLK, &range) || range.l_type != F_UNLCK;
}

/* Opens the lock file, which must be a regular file with one name. Closed by
 * truce__fork_guard_close. Returns -1 with errno: EMLINK if it has several names, EINVAL if it is
 * not a regular file. */
int truce__lock_file_open(const char *path, int flags);

#endif

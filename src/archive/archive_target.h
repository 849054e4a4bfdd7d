#ifndef TRUCE_ARCHIVE_ARCHIVE_TARGET_H
#define TRUCE_ARCHIVE_ARCHIVE_TARGET_H

/*
 * A target: where an archive is stored, a directory or a bucket of S3. It stores small immutable
 * files by name ("00000001/0000000042.log").
 *
 * Status: TRUCE_IO if the target cannot be reached or refuses the call; a later call may succeed.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"

struct target;

/* Receives the name of one file of a list. */
typedef void target_name_function(void *arg, const char *name);

struct target_calls {
    /* Stores a file. On success it survives a power cut. Fails with DUPLICATE if the name exists;
     * the file is then unchanged. A service that does not know If-None-Match replaces it instead
     * (target_s3.c). After another failure the file is complete or missing. */
    truce_status (*put)(struct target *target, const char *name, const void *bytes, size_t size,
                        bson_error_t *error);
    /* Appends the first `most` bytes of a file to `out`. Fails with NOT_FOUND. */
    truce_status (*get)(struct target *target, const char *name, size_t most, struct buffer *out,
                        bson_error_t *error);
    /* Lists all files, in any order. */
    truce_status (*list)(struct target *target, target_name_function *function, void *arg,
                         bson_error_t *error);
    /* Returns whether the target has a file of a later generation than `name`, or a later number of
     * the same generation. A directory looks only for the next number. */
    truce_status (*has_after)(struct target *target, const char *name, bool *found,
                              bson_error_t *error);
    /* Deletes a file. Succeeds if the file is missing. */
    truce_status (*remove)(struct target *target, const char *name, bson_error_t *error);
    /* Removes what interrupted writes have left. Only the archiver of the store may call it,
     * because another archiver may be writing. NULL if interrupted writes leave nothing. */
    truce_status (*clean)(struct target *target, bson_error_t *error);
    void (*close)(struct target *target);
};

struct target {
    const struct target_calls *calls;
    /* The name of the target in messages. */
    char *name;
    /* The milliseconds between two calls of has_after, for which a service may charge. */
    int check_ms;
    /* A call found that the name leads to another directory now. The archiver checks that this one
     * has its last segment, and then sets the flag to false. */
    bool renewed;
};

/* Opens a directory. If the directory is missing, it is created if `create` is true; otherwise the
 * call fails with NOT_FOUND. If the path is a file, the call fails with INVALID. */
truce_status truce__target_directory(const char *path, bool create, struct target **target,
                                     bson_error_t *error);

/* The maximum seconds of a request to a service: with almost no progress, and as a whole. */
struct target_timeouts {
    long stall_s, whole_s;
};

/* Opens a bucket: "s3://BUCKET/PREFIX" (target_s3.c describes the environment). Does not call the
 * service. If `timeouts` is NULL, STALL_S and WHOLE_S of target_s3.c are used. Fails with INVALID
 * if the name or a setting is wrong, or libcurl is missing. */
truce_status truce__target_s3(const char *name, const struct target_timeouts *timeouts,
                              struct target **target, bson_error_t *error);

/* Closes the target. NULL is allowed. */
void truce__target_close(struct target *target);

#endif

#ifndef TRUCE_BSON_DOTTED_PATH_H
#define TRUCE_BSON_DOTTED_PATH_H

/* Parses dotted paths: "a.0.b" has three parts, the second of which may be an array index. */
#include "base/arena.h"
#include "bson/value.h"

#define PATH_PARTS_MAX 255

struct path_part {
    /* A part of the path's text, without a NUL. */
    const char *name;
    uint32_t length;
    /* The value as an array index ("0", "17", no leading zeros), or -1. */
    int64_t index;
};

struct path {
    /* The whole path, NUL-terminated. In the same block as the parts. */
    char *text;
    uint32_t length;
    uint32_t count;
    /* The parts. Owned by the path (truce__path_parse) or by an arena. */
    struct path_part *parts;
};

/* Parses and copies a path. Refuses more than PATH_PARTS_MAX parts. Names may be empty. */
truce_status truce__path_parse(const char *text, size_t length, struct path *path,
                               bson_error_t *error);
/* Does the same in the memory of an arena. Such a path must not be released. */
truce_status truce__path_parse_into(struct arena *arena, const char *text, size_t length,
                                    struct path *path, bson_error_t *error);
void truce__path_release(struct path *path);

/* Returns whether a equals b or is a prefix of it that ends at a dot: "a.b" is a prefix of "a.b.c",
 * but not of "a.bc". */
bool truce__path_is_prefix(const struct path *a, const struct path *b);
/* Returns whether the first part has that name. */
bool truce__path_begins(const struct path *path, const char *name, size_t length);

#endif

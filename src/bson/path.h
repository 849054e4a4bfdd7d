#ifndef TRUCE_BSON_PATH_H
#define TRUCE_BSON_PATH_H

/* Dotted paths, parsed once: "a.0.b" is three parts, the second of which may be an array index. */
#include "base/arena.h"
#include "bson/value.h"

#define PATH_PARTS_MAX 255

struct path_part {
    const char *name; /* not NUL-terminated: a piece of the path's text */
    uint32_t length;
    int64_t index; /* the number it is as an array index ("0", "17"; no leading zeros), else -1 */
};

struct path {
    char *text; /* the whole, NUL-terminated; behind the parts */
    uint32_t length;
    uint32_t count;
    struct path_part *parts; /* owned, or the arena's */
};

/* Parses and copies; refuses more than PATH_PARTS_MAX parts. Empty names are allowed here. */
truce_status truce__path_parse(const char *text, size_t length, struct path *path,
                               bson_error_t *error);
/* The same in an arena's memory, and not to be released. */
truce_status truce__path_parse_into(struct arena *arena, const char *text, size_t length,
                                    struct path *path, bson_error_t *error);
void truce__path_release(struct path *path);

/* a is b, or a proper prefix of it at a dot: "a.b" is a prefix of "a.b.c", not of "a.bc" */
bool truce__path_is_prefix(const struct path *a, const struct path *b);
/* Is that its first part? */
bool truce__path_begins(const struct path *path, const char *name, size_t length);

#endif

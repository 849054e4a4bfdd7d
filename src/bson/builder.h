#ifndef TRUCE_BSON_BUILDER_H
#define TRUCE_BSON_BUILDER_H

/*
 * Writes a document or an array into an arena, one element after the other. The bytes of the arena
 * are bounded: when an element does not fit, the builder is `full`, drops what follows, and finish
 * refuses. So callers append without looking and ask once, at the end.
 *
 *     truce__builder_begin(&builder, arena, bytes_max, BSON_TYPE_ARRAY);
 *     truce__builder_element(&builder, value);
 *     return truce__builder_finish(&builder, &array, error);
 */
#include "bson/value.h"

struct builder {
    struct arena *arena;
    size_t bytes_max; /* of the arena, everything in it together */
    uint8_t *bytes;
    size_t size, room;
    uint32_t index; /* of the next element, for arrays */
    uint8_t type;
    bool full;
};

void truce__builder_begin(struct builder *builder, struct arena *arena, size_t bytes_max,
                          uint8_t type);

/* A missing value appends nothing. */
void truce__builder_append(struct builder *builder, const char *key, size_t key_length,
                           struct value value);
/* a string, from bytes that are no value yet */
void truce__builder_append_text(struct builder *builder, const char *key, size_t key_length,
                                const char *text, size_t length);
/* the next element of an array; a missing value becomes null */
void truce__builder_element(struct builder *builder, struct value value);
void truce__builder_element_text(struct builder *builder, const char *text, size_t length);

/* A container inside; what is appended until close goes into it. Returns what close wants. The
 * builder's `index` starts again at 0 inside and goes on where it was after close. */
struct builder_mark {
    size_t at;
    uint32_t index;
};
struct builder_mark truce__builder_open(struct builder *builder, const char *key, size_t key_length,
                                        uint8_t type);
struct builder_mark truce__builder_open_element(struct builder *builder, uint8_t type);
void truce__builder_close(struct builder *builder, struct builder_mark mark);

/* EXCEEDED_MEMORY_LIMIT (TRUCE_LIMIT) when it did not fit. */
truce_status truce__builder_finish(struct builder *builder, struct value *result,
                                   bson_error_t *error);

#endif

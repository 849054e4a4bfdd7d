#ifndef TRUCE_BSON_BUILDER_H
#define TRUCE_BSON_BUILDER_H

/*
 * Writes a document or an array into an arena, one element after the other. The size of the arena
 * is limited. When an element does not fit, the builder becomes `full` and drops the element and
 * all further ones; finish then returns an error. Callers therefore append without checks and check
 * the status once, at the end.
 *
 *     truce__builder_begin(&builder, arena, bytes_max, BSON_TYPE_ARRAY);
 *     truce__builder_element(&builder, value);
 *     return truce__builder_finish(&builder, &array, error);
 */
#include "bson/value.h"

struct builder {
    struct arena *arena;
    /* The maximum size of the whole arena. */
    size_t bytes_max;
    uint8_t *bytes;
    size_t size, room;
    /* The index of the next element of an array. */
    uint32_t index;
    /* BSON_TYPE_DOCUMENT or BSON_TYPE_ARRAY. */
    uint8_t type;
    /* An element did not fit, so finish fails. */
    bool full;
};

void truce__builder_begin(struct builder *builder, struct arena *arena, size_t bytes_max,
                          uint8_t type);

/* Appends a field. A missing value appends nothing. */
void truce__builder_append(struct builder *builder, const char *key, size_t key_length,
                           struct value value);
/* Appends a string field. */
void truce__builder_append_text(struct builder *builder, const char *key, size_t key_length,
                                const char *text, size_t length);
/* Appends an element to an array. A missing value becomes null. */
void truce__builder_element(struct builder *builder, struct value value);
void truce__builder_element_text(struct builder *builder, const char *text, size_t length);

/* Opens a document or an array inside. Everything until truce__builder_close goes into it. Inside,
 * the builder's `index` begins at 0; close restores it. Returns the mark for close. */
struct builder_mark {
    size_t at;
    uint32_t index;
};
struct builder_mark truce__builder_open(struct builder *builder, const char *key, size_t key_length,
                                        uint8_t type);
struct builder_mark truce__builder_open_element(struct builder *builder, uint8_t type);
void truce__builder_close(struct builder *builder, struct builder_mark mark);

/* Completes the document. Returns LIMIT (EXCEEDED_MEMORY_LIMIT) if an element did not fit. */
truce_status truce__builder_finish(struct builder *builder, struct value *result,
                                   bson_error_t *error);

#endif

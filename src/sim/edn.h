#ifndef TRUCE_SIM_EDN_H
#define TRUCE_SIM_EDN_H

/*
 * Reads EDN (extensible data notation), the format in which Jepsen writes histories. A map becomes
 * a document; a vector, a list, and a set become arrays. Keywords, symbols, and characters become
 * strings without their colon. A tag, for example #jepsen.history.Op, is dropped, and its value is
 * read. Metadata and comments are skipped.
 *
 *     struct edn_reader reader = {.text = text, .size = size, .line = 1};
 *
 *     while (!(status = truce__edn_next(&reader, &operation, &error)) && reader.found)
 *         ...                                            `operation` is initialized; destroy it
 *
 * One thread at a time.
 */
#include "base/status.h"

/* The maximum length of an operation in bytes, and the maximum depth of its values. */
#define EDN_OPERATION_MAX (16 * 1024 * 1024)
#define EDN_DEPTH_MAX     100

/* A reader of a text in EDN. Set `text`, `size`, and `line` = 1; the rest is zero. */
struct edn_reader {
    const char *text;
    size_t size, at;
    /* The number of the line that contains `at`, from 1. */
    int64_t line;
    bool started;
    /* If the text is one vector or list of operations, the bracket that ends it; otherwise 0. */
    char closing;
    /* The last call has read an operation. False at the end of the text. */
    bool found;
};

/* Reads the next map of the text. The text is a sequence of maps, or a vector or list of maps.
 * `operation` is initialized only if `found` is true and the status is OK. Returns INVALID for any
 * other text, and LIMIT for an operation that is too long or too deep. The message names the
 * line. */
truce_status truce__edn_next(struct edn_reader *reader, bson_t *operation, bson_error_t *error);

#endif

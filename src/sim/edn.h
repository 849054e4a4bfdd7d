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

/* In bytes of text, for one operation. */
#define EDN_OPERATION_MAX (16 * 1024 * 1024)
#define EDN_DEPTH_MAX     100

struct edn_reader {
    const char *text;
    size_t size, at;
    /* The line of `at`, from 1. */
    int64_t line;
    bool started;
    /* The text is one vector or list of operations, which this bracket ends, or 0 if it is not. */
    char closing;
    /* False at the end of the text. */
    bool found;
};

/* Reads the next map of the text. The text is a sequence of maps, or a vector or list of maps.
 * `operation` is initialized only if `found` is true and the status is OK. Returns INVALID for any
 * other text, and LIMIT for an operation that is too long or too deep. The message names the
 * line. */
truce_status truce__edn_next(struct edn_reader *reader, bson_t *operation, bson_error_t *error);

#endif

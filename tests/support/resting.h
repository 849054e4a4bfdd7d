#ifndef TRUCE_TESTS_SUPPORT_RESTING_H
#define TRUCE_TESTS_SUPPORT_RESTING_H

/* Connections of an engine that keep their snapshot between two reads, or "rest"
 * (src/engine/reader_pool.c). */
#include <stdatomic.h>
#include <stdbool.h>

#include "engine/documents/open_documents.h"
#include "tests/support/test.h"

static inline bool any_rests(struct engine *engine)
{
    for (int i = 0; i < READERS_MAX; i++) {
        if (atomic_load(&engine->readers.all[i].rests))
            return true;
    }
    return false;
}

/* Reads until a connection rests. Returns false, and fails the test, if a read fails. */
static inline bool read_until_one_rests(struct engine *engine)
{
    do {
        struct reader *reader;
        bson_error_t error;

        if (!CHECK_OK(truce__engine_read_begin(engine, false, &reader, &error), error))
            return false;
        truce__engine_read_end(engine, reader);
    } while (!any_rests(engine));
    return true;
}

#endif

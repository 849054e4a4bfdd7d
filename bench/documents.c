#include "bench/documents.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"

void document_make(int64_t id, bson_t *document)
{
    char owner[40], text[200];

    snprintf(owner, sizeof owner, "person %" PRId64, id);
    memset(text, 'a' + (int)(id % 26), sizeof text);
    text[sizeof text - 1] = '\0';
    bson_init(document);
    BSON_APPEND_INT64(document, "_id", id);
    BSON_APPEND_INT64(document, "counter", 0);
    BSON_APPEND_INT32(document, "group", (int32_t)(id % 1000));
    BSON_APPEND_UTF8(document, "owner", owner);
    BSON_APPEND_UTF8(document, "text", text);
}

int64_t document_counter(const bson_t *document)
{
    bson_iter_t iter;

    BENCH_CHECK(bson_iter_init_find(&iter, document, "counter"));
    return bson_iter_as_int64(&iter);
}

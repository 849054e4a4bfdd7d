#include "bench/document.h"

#include <inttypes.h>
#include <string.h>

#include "bench/bench.h"

int64_t document_groups = 1000;

void document_texts(int64_t id, char owner[40], char text[200])
{
    snprintf(owner, 40, "person %" PRId64, id);
    memset(text, 'a' + (int)(id % 26), 199);
    text[199] = '\0';
}

void document_make(int64_t id, bson_t *document)
{
    char owner[40], text[200];

    document_texts(id, owner, text);
    bson_init(document);
    BSON_APPEND_INT64(document, "_id", id);
    BSON_APPEND_INT64(document, "counter", 0);
    BSON_APPEND_INT32(document, "group", (int32_t)(id % document_groups));
    BSON_APPEND_UTF8(document, "owner", owner);
    BSON_APPEND_UTF8(document, "text", text);
}

int64_t document_counter(const bson_t *document)
{
    bson_iter_t iter;

    BENCH_CHECK(bson_iter_init_find(&iter, document, "counter"));
    return bson_iter_as_int64(&iter);
}

void document_filter(int64_t id, bson_t *filter)
{
    bson_init(filter);
    BSON_APPEND_INT64(filter, "_id", id);
}

void document_increment(int64_t by, bson_t *update)
{
    bson_t inner;

    bson_init(update);
    BSON_APPEND_DOCUMENT_BEGIN(update, "$inc", &inner);
    BSON_APPEND_INT64(&inner, "counter", by);
    bson_append_document_end(update, &inner);
}

bson_value_t document_id(int64_t id)
{
    bson_value_t value = {.value_type = BSON_TYPE_INT64};

    value.value.v_int64 = id;
    return value;
}

/*
 * Change streams of the server, for other programs than truce: the events and tokens are the
 * server's own bytes. A stream is a cursor of the aggregation, with its connection and session. An
 * error ends it: the caller resumes from the last token by another stream.
 */
#include <string.h>

#include "store/mongodb/mongo.h"
#include "store/mongodb/mongo_session.h"

struct mongo_stream {
    struct mongo_store *store;
    truce_cursor *cursor;
};

/* If a failure has no code, gives it one after which drivers resume. */
static truce_status stream_failed(truce_status status, bson_error_t *error)
{
    char message[sizeof error->message];

    if (!status || error->domain == TRUCE_ERROR_SERVER || status == TRUCE_LIMIT)
        return status;
    memcpy(message, error->message, sizeof message);
    return truce__refuse(CODE_HOST_UNREACHABLE, error, "%s", message);
}

truce_status truce__mongo_stream_open(truce_store *base, const char *collection,
                                      const bson_t *pipeline, int64_t batch,
                                      struct mongo_stream **stream, bson_error_t *error)
{
    struct mongo_store *store = (struct mongo_store *)base;
    bson_t body = BSON_INITIALIZER, cursor;
    const struct mongo_command command = {.what = "open a change stream",
                                          .body = &body,
                                          .read_concern = true,
                                          .wait_ms = store->deadline_ms};
    struct mongo_stream *made = NULL;
    truce_status status = truce__mongo_occupy(store, error);

    *stream = NULL;
    if (status)
        return status;
    if (collection)
        BSON_APPEND_UTF8(&body, "aggregate", collection);
    else
        BSON_APPEND_INT32(&body, "aggregate", 1);
    BSON_APPEND_ARRAY(&body, "pipeline", pipeline);
    BSON_APPEND_DOCUMENT_BEGIN(&body, "cursor", &cursor);
    if (batch >= 0)
        BSON_APPEND_INT32(&cursor, "batchSize", batch < MONGO_BATCH ? (int32_t)batch : MONGO_BATCH);
    bson_append_document_end(&body, &cursor);
    made = bson_malloc0(sizeof *made);
    made->store = store;
    status = stream_failed(truce__mongo_cursor(store, &command, &made->cursor, error), error);
    bson_destroy(&body);
    if (status) {
        truce__mongo_leave(store);
        bson_free(made);
        return status;
    }
    *stream = made;
    return TRUCE_OK;
}

truce_status truce__mongo_stream_next(struct mongo_stream *stream, int64_t batch, uint32_t wait_ms,
                                      bson_error_t *error)
{
    return stream_failed(truce__mongo_cursor_more(stream->cursor, batch, wait_ms, error), error);
}

truce_status truce__mongo_stream_take(struct mongo_stream *stream, bson_t *events, uint32_t *count,
                                      bson_error_t *error)
{
    const bson_t *event = NULL;
    truce_status status;
    char buffer[16];
    const char *key;

    while (!(status = truce__mongo_cursor_taken(stream->cursor, &event, error)) && event) {
        bson_uint32_to_string((*count)++, &key, buffer, sizeof buffer);
        BSON_APPEND_DOCUMENT(events, key, event);
    }
    return status;
}

bool truce__mongo_stream_token(const struct mongo_stream *stream, bson_t *token)
{
    const bson_t *reply = truce__mongo_cursor_reply(stream->cursor);
    bson_iter_t iter, found;
    const uint8_t *bytes;
    uint32_t size;
    bson_t view;

    if (!bson_iter_init(&iter, reply) ||
        !bson_iter_find_descendant(&iter, "cursor.postBatchResumeToken", &found) ||
        !BSON_ITER_HOLDS_DOCUMENT(&found))
        return false;
    bson_iter_document(&found, &size, &bytes);
    return bson_init_static(&view, bytes, size) && bson_concat(token, &view);
}

bool truce__mongo_stream_is_over(const struct mongo_stream *stream)
{
    return !truce__mongo_cursor_is_open(stream->cursor);
}

void truce__mongo_stream_close(struct mongo_stream *stream)
{
    if (!stream)
        return;
    stream->cursor->ops->close(stream->cursor);
    truce__mongo_leave(stream->store);
    bson_free(stream);
}

#include "tests/support/streams.h"

#include <string.h>
#include <unistd.h>

#include "bson/value.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

void done(const char *json)
{
    expect_code(json, 0);
}

const char *text_of(const bson_t *document, const char *name)
{
    bson_iter_t iter, found;

    if (document && bson_iter_init(&iter, document) &&
        bson_iter_find_descendant(&iter, name, &found) && BSON_ITER_HOLDS_UTF8(&found))
        return bson_iter_utf8(&found, NULL);
    return "";
}

static void take_reply(struct stream_of *stream, bson_t *reply, const char *batch)
{
    if (stream->reply)
        bson_destroy(stream->reply);
    stream->reply = reply;
    stream->batch = batch;
    stream->at = 0;
    stream->id = reply_number(reply, "cursor.id");
    snprintf(stream->token, sizeof stream->token, "%s",
             text_of(reply, "cursor.postBatchResumeToken._data"));
}

struct stream_of open_stream_at(int port, const char *aggregate)
{
    struct stream_of stream = {.end = dial_port(port)};
    const char *dot;

    take_reply(&stream, ask_on(stream.end, aggregate, 0), "firstBatch");
    if (!stream.reply)
        return stream;
    if (!CHECK_INT(reply_number(stream.reply, "ok"), ==, 1))
        fprintf(stderr, "    %s\n", text_of(stream.reply, "errmsg"));
    dot = strchr(text_of(stream.reply, "cursor.ns"), '.');
    if (CHECK(dot))
        snprintf(stream.collection, sizeof stream.collection, "%s", dot + 1);
    if (dot)
        snprintf(stream.database, sizeof stream.database, "%.*s",
                 (int)(dot - text_of(stream.reply, "cursor.ns")),
                 text_of(stream.reply, "cursor.ns"));
    CHECK(stream.token[0]);
    return stream;
}

struct stream_of open_stream(const char *aggregate)
{
    struct stream_of stream = open_stream_at(server_port(server), aggregate);

    CHECK(stream.reply);
    return stream;
}

struct stream_of watch_c(const char *options, const char *stages)
{
    char text[2000];

    snprintf(text, sizeof text,
             "{'aggregate': 'c', 'pipeline': [{'$changeStream': {%s}}%s], 'cursor': {}, "
             "'$db': 'test'}",
             options, stages);
    return open_stream(text);
}

void close_stream(struct stream_of *stream)
{
    if (stream->reply)
        bson_destroy(stream->reply);
    close(stream->end);
}

void ask_more(struct stream_of *stream, int batch, int wait_ms)
{
    char text[400];

    snprintf(text, sizeof text,
             "{'getMore': {'$numberLong': '%lld'}, 'collection': '%s', 'batchSize': %d, "
             "'maxTimeMS': %d, '$db': '%s'}",
             (long long)stream->id, stream->collection, batch, wait_ms, stream->database);
    take_reply(stream, ask_on(stream->end, text, 0), "nextBatch");
}

void event_of(struct stream_of *stream, int batch, int wait_ms, bson_t *event)
{
    char name[60];
    bson_iter_t iter, found;

    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "cursor.%s.%d", stream->batch, stream->at);
        if (stream->reply && bson_iter_init(&iter, stream->reply) &&
            bson_iter_find_descendant(&iter, name, &found)) {
            stream->at++;
            truce__value_bson(truce__value_of_iter(&found), event);
            return;
        }
        if (i || !stream->id)
            break;
        ask_more(stream, batch, wait_ms);
    }
    bson_init(event);
}

void expect_event(struct stream_of *stream, const char *json)
{
    bson_t event, *wanted = test_bson(json), plain = BSON_INITIALIZER;
    bson_iter_t at;

    event_of(stream, 0, 60000, &event);
    (void)bson_iter_init(&at, &event);
    while (bson_iter_next(&at))
        if (strcmp(bson_iter_key(&at), "_id") != 0 &&
            strcmp(bson_iter_key(&at), "clusterTime") != 0 &&
            strcmp(bson_iter_key(&at), "wallTime") != 0)
            bson_append_iter(&plain, NULL, 0, &at);
    if (!CHECK_BSON(wanted, &plain) && bson_empty(&event))
        fprintf(stderr, "    %s\n", text_of(stream->reply, "errmsg"));
    bson_destroy(&plain);
    bson_destroy(wanted);
}

void expect_nothing(struct stream_of *stream)
{
    bson_t event;

    event_of(stream, 0, 1, &event);
    CHECK(bson_empty(&event));
}

#include "server/http/http_event_stream.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "operations/operation.h"
#include "server/net/wire_protocol.h"
#include "store/decorators/database_view.h"
#include "truce/json.h"

#define WAIT_MS       1000  /* The time that one getMore waits, in ms. */
#define KEEP_ALIVE_MS 15000 /* The idle time after which the server sends a comment. */
#define BLOCK_BYTES   (64 * 1024)
#define NOTICE_MS     200  /* The time between two checks for notices. */
#define NOTICE_GAP_MS 1000 /* The time between two notices of a stream. */
#define NOTICES_MAX   16

/* A collection whose changes are notified, with the token of truce_wait. */
struct notice {
    char *collection;
    uint64_t token;
};

struct watch_stream {
    struct http_connection *own;
    /* For a stream of notices, which has no cursor: a store handle for the database. */
    truce_store *view;
    struct notice notices[NOTICES_MAX];
    uint32_t notices_count;
    /* The time of the last notice (monotonic). */
    int64_t noticed_ns;
    char *database, *collection;
    /* The id of the change stream's cursor, or 0, and the time when bytes were last sent
     * (monotonic). */
    int64_t cursor, sent_ns;
    /* The stream ends after the text. */
    bool over;
    /* The events to send. The first `sent` bytes were sent. */
    struct buffer text;
    size_t sent;
};

static void watch_call(struct watch_stream *stream, const bson_t *command, bson_t *reply)
{
    struct wire_request request = {0};

    (void)bson_init_static(&request.body, bson_get_data(command), command->len);
    stream->own->connection.server->dispatch(&stream->own->connection, &request, reply);
}

static void watch_append_line(struct buffer *text, const char *name, const bson_t *document)
{
    char *json = truce_json_write(document, false, TRUCE_JSON_RELAXED);

    truce__buffer_append_text(text, name);
    truce__buffer_append_text(text, json);
    truce__buffer_append_text(text, "\n");
    bson_free(json);
}

static bool watch_subdocument(const bson_iter_t *at, bson_t *document)
{
    const uint8_t *bytes;
    uint32_t size;

    if (!BSON_ITER_HOLDS_DOCUMENT(at))
        return false;
    bson_iter_document(at, &size, &bytes);
    return bson_init_static(document, bytes, size);
}

/* Appends the events of a batch to the text. Returns false if the reply has no batch of this
 * name. */
static bool watch_take(struct watch_stream *stream, const bson_t *reply, const char *batch)
{
    bson_iter_t root, at, events;

    if (!bson_iter_init(&root, reply) || !bson_iter_find_descendant(&root, "cursor.id", &at))
        return false;
    stream->cursor = bson_iter_as_int64(&at);
    stream->over = !stream->cursor;
    (void)bson_iter_init(&root, reply);
    if (!bson_iter_find_descendant(&root, batch, &at) || !BSON_ITER_HOLDS_ARRAY(&at) ||
        !bson_iter_recurse(&at, &events))
        return false;
    while (bson_iter_next(&events)) {
        bson_t event, token;
        bson_iter_t id;

        if (!watch_subdocument(&events, &event))
            continue;
        if (bson_iter_init_find(&id, &event, "_id") && watch_subdocument(&id, &token))
            watch_append_line(&stream->text, "id: ", &token);
        watch_append_line(&stream->text, "data: ", &event);
        truce__buffer_append_text(&stream->text, "\n");
    }
    return true;
}

static void watch_append_error(struct watch_stream *stream, const bson_t *error)
{
    truce__buffer_append_text(&stream->text, "event: error\n");
    watch_append_line(&stream->text, "data: ", error);
    truce__buffer_append_text(&stream->text, "\n");
    stream->over = true;
}

/* Ends the stream because the user may no longer read. */
static void watch_refuse(struct watch_stream *stream)
{
    bson_t *error = BCON_NEW(
        "ok", BCON_DOUBLE(0), "errmsg",
        BCON_UTF8("the user was changed, or the token was revoked or has expired"), "code",
        BCON_INT32(CODE_AUTHENTICATION_FAILED), "codeName", BCON_UTF8("AuthenticationFailed"),
        "status", BCON_UTF8(truce__class_name(TRUCE_INVALID, CODE_UNAUTHORIZED)));

    watch_append_error(stream, error);
    bson_destroy(error);
}

/* Waits for events, and appends them. If the wait fails, the error is the last event of the
 * stream. */
static void watch_more(struct watch_stream *stream)
{
    bson_t *command = BCON_NEW("getMore", BCON_INT64(stream->cursor), "collection",
                               BCON_UTF8(stream->collection), "maxTimeMS", BCON_INT32(WAIT_MS),
                               "$db", BCON_UTF8(stream->database)),
           reply;
    bool taken;

    watch_call(stream, command, &reply);
    taken = watch_take(stream, &reply, "cursor.nextBatch");
    if (!taken) {
        watch_append_error(stream, &reply);
        stream->cursor = 0;
    }
    bson_destroy(command);
    bson_destroy(&reply);
}

/* Checks whether a process has written to one of the collections. */
static truce_status watch_check_writes(struct watch_stream *stream, bool *changed,
                                       bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    *changed = false;
    for (uint32_t i = 0; i < stream->notices_count && !status; i++) {
        struct notice *notice = &stream->notices[i];

        status = truce_wait(stream->view, notice->collection, &notice->token, 0, error);
        *changed |= !status;
        if (status == TRUCE_TIMEOUT)
            status = TRUCE_OK;
    }
    return status;
}

/* Waits for a notice. A notice that comes too early is combined with the next one. */
static void watch_notice(struct watch_stream *stream)
{
    bson_error_t error = {0};
    bool changed = false;
    truce_status status = TRUCE_OK;

    if (truce__clock_monotonic_ns() - stream->noticed_ns > NOTICE_GAP_MS * INT64_C(1000000))
        status = watch_check_writes(stream, &changed, &error);
    if (status) {
        bson_t *reply = BCON_NEW("ok", BCON_DOUBLE(0), "errmsg", BCON_UTF8(error.message), "code",
                                 BCON_INT32((int32_t)error.code), "status",
                                 BCON_UTF8(truce__class_name(status, error.code)));

        watch_append_error(stream, reply);
        bson_destroy(reply);
    } else if (changed) {
        truce__buffer_append_text(&stream->text, "event: notice\ndata: {}\n\n");
        stream->noticed_ns = truce__clock_monotonic_ns();
    } else {
        truce__clock_sleep_ms(NOTICE_MS);
    }
}

/* Returns whether the client has hung up or the server is stopping. */
static bool watch_must_end(const struct watch_stream *stream)
{
    struct pollfd polled = {.fd = stream->own->connection.socket, .events = POLLRDHUP};

    return server_is_stopping(stream->own->connection.server) ||
           (poll(&polled, 1, 0) > 0 && polled.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

/* Provides the next bytes of the stream for libmicrohttpd: an event, a notice, or a comment that
 * keeps the connection open. Ends the stream if the login is no longer valid. */
static ssize_t watch_read(void *arg, uint64_t position, char *out, size_t room)
{
    struct watch_stream *stream = arg;
    size_t size;

    (void)position;
    while (stream->sent == stream->text.size) {
        int64_t now_ns = truce__clock_monotonic_ns();

        stream->sent = stream->text.size = 0;
        if (stream->over || watch_must_end(stream))
            return MHD_CONTENT_READER_END_OF_STREAM;
        if (now_ns - stream->sent_ns > KEEP_ALIVE_MS * INT64_C(1000000))
            truce__buffer_append_text(&stream->text, ":\n\n");
        else if (!http_login_is_valid(stream->own))
            watch_refuse(stream);
        else if (stream->view)
            watch_notice(stream);
        else
            watch_more(stream);
    }
    size = stream->text.size - stream->sent < room ? stream->text.size - stream->sent : room;
    memcpy(out, stream->text.bytes + stream->sent, size);
    stream->sent += size;
    stream->sent_ns = truce__clock_monotonic_ns();
    return (ssize_t)size;
}

/* Closes the cursor of the stream and frees it. libmicrohttpd calls the function when the
 * connection ends. */
static void watch_free(void *arg)
{
    struct watch_stream *stream = arg;
    bson_t *command, reply;

    if (stream->cursor) {
        command = BCON_NEW("killCursors", BCON_UTF8(stream->collection), "cursors", "[",
                           BCON_INT64(stream->cursor), "]", "$db", BCON_UTF8(stream->database));
        watch_call(stream, command, &reply);
        bson_destroy(command);
        bson_destroy(&reply);
    }
    for (uint32_t i = 0; i < stream->notices_count; i++)
        bson_free(stream->notices[i].collection);
    truce_store_close(stream->view);
    truce__buffer_release(&stream->text);
    bson_free(stream->database);
    bson_free(stream->collection);
    bson_free(stream);
}

/* ---- the request ----------------------------------------------------------------------------- */

/* Reads JSON. If it is absent, the document stays empty. */
static truce_status watch_read_json(const char *text, bool *is_array, bson_t *document,
                                    bson_error_t *error)
{
    if (!text || !*text) {
        bson_init(document);
        return TRUCE_OK;
    }
    return truce_json_read(text, strlen(text), TRUCE_JSON_TYPED, document, is_array, error);
}

/* Returns the id of the last event that the client has, or NULL if it has none. An EventSource
 * reconnects with its first parameters, so the header Last-Event-ID is newer than the parameter. */
static const char *watch_last_event(struct MHD_Connection *c)
{
    const char *header = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Last-Event-ID");

    return header && *header ? header
                             : MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "resumeAfter");
}

/* Makes {aggregate: COLLECTION or 1, pipeline: [{$changeStream: {resumeAfter}}, ...], cursor: {},
 * $db}. */
static void watch_command(const char *database, const char *collection, const bson_t *after,
                          const bson_t *stages, bson_t *command)
{
    bson_t pipeline, first, options;
    char buffer[16];
    const char *key;
    uint32_t count = 1;
    bson_iter_t at;

    bson_init(command);
    if (collection)
        BSON_APPEND_UTF8(command, "aggregate", collection);
    else
        BSON_APPEND_INT32(command, "aggregate", 1);
    BSON_APPEND_ARRAY_BEGIN(command, "pipeline", &pipeline);
    BSON_APPEND_DOCUMENT_BEGIN(&pipeline, "0", &first);
    BSON_APPEND_DOCUMENT_BEGIN(&first, "$changeStream", &options);
    if (!bson_empty(after))
        BSON_APPEND_DOCUMENT(&options, "resumeAfter", after);
    bson_append_document_end(&first, &options);
    bson_append_document_end(&pipeline, &first);
    (void)bson_iter_init(&at, stages);
    while (bson_iter_next(&at)) {
        bson_uint32_to_string(count++, &key, buffer, sizeof buffer);
        bson_append_iter(&pipeline, key, -1, &at);
    }
    bson_append_array_end(command, &pipeline);
    BCON_APPEND(command, "cursor", "{", "}", "$db", BCON_UTF8(database));
}

/* Queues a response that reads from the stream, and takes over the stream also after a failure. */
static enum MHD_Result watch_send(struct MHD_Connection *c, struct watch_stream *stream)
{
    struct MHD_Response *response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, BLOCK_BYTES, watch_read, stream, watch_free);
    enum MHD_Result result;

    if (!response) {
        watch_free(stream);
        return MHD_NO;
    }
    (void)MHD_add_response_header(response, "Content-Type", "text/event-stream");
    (void)MHD_add_response_header(response, "Cache-Control", "no-store");
    (void)MHD_add_response_header(response, "X-Accel-Buffering", "no");
    result = MHD_queue_response(c, MHD_HTTP_OK, response);
    MHD_destroy_response(response);
    return result;
}

/* ---- notices --------------------------------------------------------------------------------- */

/* Adds a collection that a parameter `notify` names. Sets stream->over if it is empty, or one of
 * too many. */
static enum MHD_Result watch_add_notice(void *arg, enum MHD_ValueKind kind, const char *name,
                                        const char *value)
{
    struct watch_stream *stream = arg;

    (void)kind;
    if (strcmp(name, "notify") != 0)
        return MHD_YES;
    if (stream->notices_count == NOTICES_MAX || !value || !*value) {
        stream->over = true;
        return MHD_NO;
    }
    stream->notices[stream->notices_count++].collection = bson_strdup(value);
    return MHD_YES;
}

/* Begins a stream that reports changes of collections. The tokens are filled before the reply
 * begins, so that later writes are noticed. */
static enum MHD_Result watch_notices(struct MHD_Connection *c, struct http_connection *own,
                                     const char *database)
{
    struct server *server = own->connection.server;
    struct watch_stream *stream = bson_malloc0(sizeof *stream);
    bson_t *access = BCON_NEW("truceAccess", BCON_INT32(1), "$db", BCON_UTF8(database)), reply;
    bson_error_t error = {0};
    bool may, changed;
    enum MHD_Result result;

    stream->own = own;
    (void)MHD_get_connection_values(c, MHD_GET_ARGUMENT_KIND, watch_add_notice, stream);
    watch_call(stream, access, &reply);
    may = bson_has_field(&reply, "write");
    if (!may) {
        result = http_send_reply(c, &reply);
    } else if (stream->over) {
        result = http_bad(c, "'notify' must name 1 to 16 collections: notify=a&notify=b");
    } else if (MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "collection") ||
               MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "pipeline") ||
               MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "resumeAfter")) {
        result = http_bad(c, "'notify' excludes 'collection', 'pipeline', and 'resumeAfter'");
    } else {
        stream->view = truce__database_open(server->store, server->database, database);
        if (watch_check_writes(stream, &changed, &error)) {
            result = http_bad(c, error.message);
        } else {
            truce__buffer_append_text(&stream->text, ":\n\n");
            result = watch_send(c, stream);
            stream = NULL;
        }
    }
    if (stream)
        watch_free(stream);
    bson_destroy(&reply);
    bson_destroy(access);
    return result;
}

struct watch_parameters {
    /* Bit i is set if parameter i was given. */
    unsigned given;
    /* The error message, or "" if the parameters are valid. */
    char wrong[160];
};

/* Refuses unknown and repeated parameters of the URL, and values with a zero byte, which the string
 * functions would cut off. */
static enum MHD_Result watch_check_parameter(void *arg, enum MHD_ValueKind kind, const char *name,
                                             size_t name_size, const char *value, size_t value_size)
{
    static const char *const names[] = {"collection", "pipeline", "resumeAfter"};
    struct watch_parameters *parameters = arg;
    unsigned count = sizeof names / sizeof *names, i = 0;
    /* The error contains the name, and JSON must be valid UTF-8. */
    bool is_printed = strlen(name) <= 60 && bson_utf8_validate(name, strlen(name), false);

    (void)kind;
    if (strlen(name) != name_size || (value && strlen(value) != value_size)) {
        snprintf(parameters->wrong, sizeof parameters->wrong, "a parameter has a zero byte");
        return MHD_NO;
    }
    if (!strcmp(name, "notify"))
        return MHD_YES;
    while (i < count && strcmp(name, names[i]) != 0)
        i++;
    if (i == count)
        snprintf(parameters->wrong, sizeof parameters->wrong,
                 "unknown parameter%s%.60s: expected collection, pipeline, resumeAfter, or notify",
                 is_printed ? " " : "", is_printed ? name : "");
    else if (parameters->given & 1u << i)
        snprintf(parameters->wrong, sizeof parameters->wrong, "the parameter '%s' is given twice",
                 name);
    else
        parameters->given |= 1u << i;
    return parameters->wrong[0] ? MHD_NO : MHD_YES;
}

enum MHD_Result http_event_stream(struct MHD_Connection *c, struct http_connection *own,
                                  const char *database)
{
    struct watch_parameters parameters = {0};

    (void)MHD_get_connection_values_n(c, MHD_GET_ARGUMENT_KIND, watch_check_parameter, &parameters);
    if (parameters.wrong[0])
        return http_bad(c, parameters.wrong);
    if (MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "notify"))
        return watch_notices(c, own, database);

    const char *collection = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "collection");
    struct watch_stream *stream;
    bson_t stages, after, command, reply;
    bson_error_t error = {0};
    bool is_array = true;
    enum MHD_Result result;
    truce_status status =
        watch_read_json(MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "pipeline"),
                        &is_array, &stages, &error);

    if (!status && !is_array)
        status = truce__fail(TRUCE_INVALID, &error, "'pipeline' must be an array of stages");
    if (status) {
        bson_destroy(&stages);
        return http_bad(c, error.message);
    }
    status = watch_read_json(watch_last_event(c), NULL, &after, &error);
    if (status) {
        bson_destroy(&after);
        bson_destroy(&stages);
        return http_bad(c, error.message);
    }
    stream = bson_malloc0(sizeof *stream);
    *stream =
        (struct watch_stream){.own = own,
                              .database = bson_strdup(database),
                              .collection = bson_strdup(collection ? collection : "$cmd.aggregate"),
                              .sent_ns = truce__clock_monotonic_ns()};
    watch_command(database, collection, &after, &stages, &command);
    watch_call(stream, &command, &reply);
    if (watch_take(stream, &reply, "cursor.firstBatch")) {
        /* A comment, so that the headers are sent at once. */
        truce__buffer_append_text(&stream->text, ":\n\n");
        result = watch_send(c, stream);
    } else {
        result = http_send_reply(c, &reply);
        watch_free(stream);
    }
    bson_destroy(&command);
    bson_destroy(&reply);
    bson_destroy(&after);
    bson_destroy(&stages);
    return result;
}

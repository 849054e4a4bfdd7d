/* Change streams for clients: opens them (aggregate with $changeStream) and reads them (getMore).
 * session/change_stream.h has the stream itself; this file checks the stage, waits for events, and
 * writes replies. */
#include "server/command/handlers.h"

#include <limits.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "bson/value.h"
#include "query/input_check.h"
#include "server/session/change_stream.h"
#include "store/mongodb/mongo_session.h"

/* The default time that getMore waits for events, as in MongoDB. */
#define WAIT_MS                1000

#define CODE_CLIENT_DISCONNECT 279

/* The options of $changeStream. */
struct stage {
    const char *full, *before;
    const bson_t *resume_after, *start_after;
    const bson_value_t *start_at;
    bool all, expanded;
};

static const struct field stage_fields[] = {
    {"fullDocument", FIELD_TEXT, offsetof(struct stage, full)},
    {"fullDocumentBeforeChange", FIELD_TEXT, offsetof(struct stage, before)},
    {"resumeAfter", FIELD_DOCUMENT, offsetof(struct stage, resume_after)},
    {"startAfter", FIELD_DOCUMENT, offsetof(struct stage, start_after)},
    {"startAtOperationTime", FIELD_VALUE, offsetof(struct stage, start_at)},
    {"allChangesForCluster", FIELD_FLAG, offsetof(struct stage, all)},
    {"showExpandedEvents", FIELD_FLAG, offsetof(struct stage, expanded), true},
    {"showRawUpdateDescription", FIELD_PLAIN, 0, true},
    {"showSystemEvents", FIELD_PLAIN, 0, true},
    {NULL, FIELD_IGNORED, 0}};

/* ---- the first stage ------------------------------------------------------------------------- */

/* Returns the number of stages before $changeStream, or -1 if the pipeline has no such stage. */
static int position_of_change_stream(const bson_t *pipeline, bson_iter_t *stage)
{
    bson_iter_t at;

    (void)bson_iter_init(&at, pipeline);
    for (int i = 0; bson_iter_next(&at); i++)
        if (BSON_ITER_HOLDS_DOCUMENT(&at) && bson_iter_recurse(&at, stage) &&
            bson_iter_next(stage) && !strcmp(bson_iter_key(stage), "$changeStream"))
            return i;
    return -1;
}

bool serve_is_change_stream(const bson_t *pipeline)
{
    bson_iter_t stage;

    return position_of_change_stream(pipeline, &stage) >= 0;
}

/* Reads which document an event has. `none` is the value of an option that asks for no document,
 * and `looks_up` allows "updateLookup". */
static truce_status change_stream_read_kind(const char *text, const char *field, const char *none,
                                            bool looks_up, enum change_stream_document *kind,
                                            bson_error_t *error)
{
    if (!text || !strcmp(text, none))
        *kind = STREAM_NONE;
    else if (looks_up && !strcmp(text, "updateLookup"))
        *kind = STREAM_LOOKUP;
    else if (!strcmp(text, "whenAvailable"))
        *kind = STREAM_IF_ANY;
    else if (!strcmp(text, "required"))
        *kind = STREAM_REQUIRED;
    else
        return truce__refuse(CODE_BAD_VALUE, error,
                             "Enumeration value '%.80s' for field '$changeStream.%s' is not a "
                             "valid value.",
                             text, field);
    return TRUCE_OK;
}

/* Reads where the stream starts: after a token, at a time, or now. */
static truce_status change_stream_read_start(const struct stage *stage,
                                             struct change_stream_token *token,
                                             struct change_stream_options *options,
                                             bson_error_t *error)
{
    const bson_t *given = stage->resume_after ? stage->resume_after : stage->start_after;
    truce_status status;

    if (stage->resume_after && stage->start_after)
        return truce__refuse(50865, error, "Do not specify both 'resumeAfter' and 'startAfter'");
    if (given && stage->start_at)
        return truce__refuse(40674, error,
                             "Only one type of resume option is allowed, but multiple were found.");
    if (stage->start_at) {
        int64_t number = stage->start_at->value.v_timestamp.increment;

        if (stage->start_at->value_type != BSON_TYPE_TIMESTAMP)
            return truce__refuse(CODE_TYPE_MISMATCH, error,
                                 "startAtOperationTime must be a timestamp, not %s",
                                 truce__type_name((uint8_t)stage->start_at->value_type));
        if (number >> FEED_SECOND_SHIFT)
            number = ((int64_t)1 << FEED_SECOND_SHIFT) - 1;
        options->from = truce__feed_position(stage->start_at->value.v_timestamp.timestamp, number);
    }
    if (!given)
        return TRUCE_OK;
    status = change_stream_token_read(given, token, error);
    if (!status && stage->resume_after && token->point == STREAM_INVALIDATE)
        status = truce__refuse(CODE_INVALID_RESUME_TOKEN, error,
                               "Attempting to resume a change stream using 'resumeAfter' is not "
                               "allowed from an invalidate notification.");
    options->resume = token;
    return status;
}

/* ---- the scope ------------------------------------------------------------------------------- */

static truce_status refuse_internal(const char *what, bson_error_t *error)
{
    return truce__refuse(CODE_INVALID_NAMESPACE, error,
                         "$changeStream may not be opened on the internal %.80s", what);
}

/* Sets whether the stream covers a collection, a database, or all databases, and checks that it
 * may. All databases need ACTION_FIND in every database. */
static truce_status read_reach(struct call *call, const struct stage *stage, const char *name,
                               struct change_stream_options *options, bson_error_t *error)
{
    bool whole = truce__field_is_number(&call->value);
    bool is_admin = !strcmp(call->database, "admin");

    if (stage->all && !(whole && is_admin))
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "A $changeStream with 'allChangesForCluster:true' may only be opened "
                             "on the 'admin' database, and with no collection name");
    options->reach = stage->all ? STREAM_ALL : whole ? STREAM_DATABASE : STREAM_COLLECTION;
    if (!stage->all &&
        (is_admin || !strcmp(call->database, "config") || !strcmp(call->database, "local")))
        return refuse_internal(call->database, error);
    if (!whole && truce__name_is_system(name))
        return refuse_internal(name, error);
    /* A name that no collection can have is refused, because the stream would never have an
     * event. */
    if (!whole && truce__collection_name_check(options->stored_name, error))
        return TRUCE_INVALID;
    /* No role of a single database covers all databases. */
    return stage->all && !access_may(call, "", ACTION_FIND) ? access_refuse(call, "admin", error)
                                                            : TRUCE_OK;
}

/* Returns the stages after the first, as an array. */
static void rest_of(const bson_t *pipeline, bson_t *stages)
{
    uint32_t count = 0;
    bson_iter_t at;

    bson_init(stages);
    (void)(bson_iter_init(&at, pipeline) && bson_iter_next(&at));
    while (bson_iter_next(&at))
        truce__value_append_element(stages, &count, truce__value_of_iter(&at));
}

/* Refuses read concerns other than majority, because events are committed changes. */
static truce_status change_stream_check_concern(const struct call *call, bson_error_t *error)
{
    bson_iter_t at, level;

    if (!bson_iter_init(&at, &call->request->body) ||
        !bson_iter_find_descendant(&at, "readConcern.level", &level) ||
        !BSON_ITER_HOLDS_UTF8(&level) || !strcmp(bson_iter_utf8(&level, NULL), "majority"))
        return TRUCE_OK;
    return truce__refuse(CODE_INVALID_OPTIONS, error,
                         "Aggregation stage $changeStream cannot run with a readConcern other than "
                         "'majority'. Current readConcern: %.20s",
                         bson_iter_utf8(&level, NULL));
}

/* Reads the stage $changeStream. In a transaction, and after other stages, it is refused. */
static truce_status change_stream_read_options(struct call *call, const bson_t *pipeline,
                                               const char *name, struct change_stream_token *token,
                                               struct change_stream_options *options,
                                               bson_error_t *error)
{
    struct stage stage = {0};
    bson_iter_t at;
    truce_status status;

    if (position_of_change_stream(pipeline, &at) > 0 || serve_is_change_stream(options->stages))
        return truce__refuse(40602, error,
                             "$changeStream is only valid as the first stage in a pipeline");
    if (call->session.transaction)
        return truce__refuse(CODE_NOT_IN_TRANSACTION, error,
                             "Stage not supported inside of a multi-document transaction: "
                             "$changeStream");
    status = change_stream_check_concern(call, error);
    if (status)
        return status;
    if (!BSON_ITER_HOLDS_DOCUMENT(&at))
        return truce__refuse(50808, error, "$changeStream stage expects a document as argument");
    options->stage = call_view_of(call, &at);
    status = call_fields(call, options->stage, stage_fields, false, &stage, error);
    if (!status)
        status = change_stream_read_kind(stage.full, "fullDocument", "default", true,
                                         &options->full, error);
    if (!status)
        status = change_stream_read_kind(stage.before, "fullDocumentBeforeChange", "off", false,
                                         &options->before, error);
    options->expanded = stage.expanded;
    if (!status)
        status = read_reach(call, &stage, name, options, error);
    /* The token of a stream that is passed on belongs to the MongoDB server, which checks it. */
    return status || truce__mongo_is(call->server->store)
               ? status
               : change_stream_read_start(&stage, token, options, error);
}

/* ---- replies --------------------------------------------------------------------------------- */

/* Appends {cursor: {NAME: batch, postBatchResumeToken, id, ns}}. A stream that has ended or failed
 * is closed; any other one is registered again. */
static truce_status change_stream_answer(struct call *call, struct cursor_entry *entry,
                                         const char *name, const bson_t *batch, truce_status status,
                                         bson_t *reply, bson_error_t *error)
{
    bool over = status || change_stream_is_over(entry->stream);
    int64_t id = 0;
    bson_t cursor;

    BSON_APPEND_DOCUMENT_BEGIN(reply, "cursor", &cursor);
    BSON_APPEND_ARRAY(&cursor, name, batch);
    change_stream_append_token(entry->stream, "postBatchResumeToken", &cursor);
    BSON_APPEND_UTF8(&cursor, "ns", entry->ns);
    if (over) {
        cursor_entry_close(entry);
    } else {
        status = cursors_add(call->server->cursors, entry, error);
        id = status ? 0 : entry->id;
    }
    BSON_APPEND_INT64(&cursor, "id", id);
    bson_append_document_end(reply, &cursor);
    return status;
}

truce_status serve_change_stream(struct call *call, const bson_t *pipeline, const char *stored_name,
                                 const char *name, int64_t most, bson_t *reply, bson_error_t *error)
{
    struct change_stream_options options = {.own = call->server->database,
                                            .database = call->database,
                                            .stored_name = stored_name,
                                            .batch = most};
    bson_t stages, batch = BSON_INITIALIZER;
    struct change_stream_token token;
    struct cursor_entry *entry;
    struct change_stream *watch = NULL;
    uint32_t count;
    truce_status status;

    call->follows = true;
    rest_of(pipeline, &stages);
    options.stages = &stages;
    status = change_stream_read_options(call, pipeline, name, &token, &options, error);
    if (!status)
        status = change_stream_new(call->server->store, &options, &watch, error);
    bson_destroy(&stages);
    if (!status) {
        entry = bson_malloc0(sizeof *entry);
        entry->stream = watch;
        entry->user = bson_strdup(call->connection->login.tag);
        entry->ns = bson_strdup(call_namespace(call, name));
        status = change_stream_read(watch, most, &batch, &count, error);
        status = change_stream_answer(call, entry, "firstBatch", &batch, status, reply, error);
    }
    bson_destroy(&batch);
    return status;
}

/* ---- waiting --------------------------------------------------------------------------------- */

static bool has_hung_up(const struct connection *connection)
{
    struct pollfd polled = {.fd = connection->socket, .events = POLLRDHUP};

    return poll(&polled, 1, 0) > 0 && polled.revents & (POLLRDHUP | POLLHUP | POLLERR);
}

/* Checks whether the wait must end. A failure ends the stream. Sets *enough if the call must reply
 * with what it has. */
static truce_status change_stream_check_end(struct call *call, const struct cursor_entry *entry,
                                            bool *enough, bson_error_t *error)
{
    *enough = server_is_stopping(call->server);
    if (has_hung_up(call->connection)) /* No client is left that reads the stream. */
        return truce__refuse(CODE_CLIENT_DISCONNECT, error, "the client has disconnected");
    if (cursors_is_killed(call->server->cursors, entry))
        return truce__refuse(CODE_CURSOR_KILLED, error, "cursor id %lld was killed",
                             (long long)entry->id);
    if (__atomic_load_n(&call->connection->operation.killed, __ATOMIC_RELAXED))
        return truce__refuse(CODE_INTERRUPTED, error, "operation was interrupted");
    return TRUCE_OK;
}

/* Reads events. Without an event, waits until one arrives, the time has expired, or the wait must
 * end. */
static truce_status read_or_wait(struct call *call, struct cursor_entry *entry, int64_t most,
                                 bson_t *batch, bson_error_t *error)
{
    int64_t wait_ms = call->deadline_ms ? call->deadline_ms : WAIT_MS;
    int64_t until_ns = truce__clock_monotonic_ns() + wait_ms * 1000000;
    uint64_t seen = 0;
    truce_status status = TRUCE_OK;

    for (;;) {
        int64_t now_ns = truce__clock_monotonic_ns(), left_ms = (until_ns - now_ns) / 1000000;
        uint32_t count = 0;
        bool enough = false;

        status = change_stream_wait(entry->stream, &seen, most, left_ms, error);
        call->waited_ns += truce__clock_monotonic_ns() - now_ns;
        if (!status)
            status = change_stream_read(entry->stream, most, batch, &count, error);
        if (status || count || change_stream_is_over(entry->stream) || left_ms <= 0)
            return status;
        status = change_stream_check_end(call, entry, &enough, error);
        if (status || enough)
            return status;
    }
}

truce_status serve_change_stream_more(struct call *call, struct cursor_entry *entry, int64_t most,
                                      bson_t *reply, bson_error_t *error)
{
    bson_t batch = BSON_INITIALIZER;
    truce_status status = TRUCE_OK;

    call->follows = true;
    if (change_stream_reach(entry->stream) == STREAM_ALL && !access_may(call, "", ACTION_FIND))
        status = access_refuse(call, "admin", error);
    if (!status) {
        cursors_wait_begin(call->server->cursors, entry);
        status = read_or_wait(call, entry, most, &batch, error);
        cursors_wait_end(call->server->cursors, entry);
    }
    status = change_stream_answer(call, entry, "nextBatch", &batch, status, reply, error);
    bson_destroy(&batch);
    return status;
}

/*
 * The frame of a command: its name, its database, what every command may say; and the reply's last fields.
 *
 *     $clusterTime, $readPreference, readConcern, comment, apiVersion ...   pass: one node is the newest
 *     maxTimeMS                                                                   the call's deadline
 *     writeConcern: {w: 0} or {j: false}                                          does not wait for the disk
 *     autocommit: false, txnNumber, startTransaction                              a transaction's (sessions.h)
 *     txnNumber alone, stmtId, stmtIds                                            writes that are kept (retryable_writes.h)
 */
#include "server/command/groups.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/sha256.h"
#include "bson/value.h"
#include "query/expression/expression.h"
#include "server/admin/top.h"
#include "store/alias.h"

#define CONCERN_MEMBERS_MAX 50 /* members of a replica set, as MongoDB */

/* As a set of one member answers a client that wants more of them: it was done here, and nowhere else. */
static void keep_members(struct call *call, const bson_iter_t *w)
{
    int64_t members;
    bool many = truce__field_to_number(w, &members) && members > 1;
    bool other = BSON_ITER_HOLDS_UTF8(w) && strcmp(bson_iter_utf8(w, NULL), "majority") != 0;
    bson_t *concern;

    if (!call->server->set[0] || (!many && !other))
        return;
    concern =
        many ? BCON_NEW("code", BCON_INT32(100), "codeName", BCON_UTF8("UnsatisfiableWriteConcern"),
                        "errmsg", BCON_UTF8("Not enough data-bearing nodes"))
             : BCON_NEW("code", BCON_INT32(79), "codeName", BCON_UTF8("UnknownReplWriteConcern"),
                        "errmsg", BCON_UTF8("No write concern mode of that name is known"));
    call->concern = call_view(
        call, truce__arena_copy(&call->arena, bson_get_data(concern), concern->len), concern->len);
    bson_destroy(concern);
}

/* As MongoDB, which has FailedToParse (9) for the fields of a write concern but j. */
static truce_status call_check_concern(const bson_iter_t *field, bson_error_t *error)
{
    const char *name = bson_iter_key(field);
    bool document = BSON_ITER_HOLDS_DOCUMENT(field), text = BSON_ITER_HOLDS_UTF8(field);
    int64_t number;

    if (BSON_ITER_HOLDS_NULL(field))
        return TRUCE_OK;
    if (!strcmp(name, "w")) {
        if (!truce__field_to_number(field, &number) && !text && !document)
            return truce__refuse(CODE_FAILED_TO_PARSE, error,
                                 "w of writeConcern has to be a number, string, or object");
        if (truce__field_is_number(field) && (number < 0 || number > CONCERN_MEMBERS_MAX))
            return truce__refuse(CODE_FAILED_TO_PARSE, error,
                                 "w of writeConcern has to be a number from 0 to %d",
                                 CONCERN_MEMBERS_MAX);
    } else if (!strcmp(name, "j") || !strcmp(name, "fsync")) {
        if (!truce__field_is_number(field) && !BSON_ITER_HOLDS_BOOL(field))
            return truce__refuse(CODE_TYPE_MISMATCH, error,
                                 "%s of writeConcern must be numeric or a boolean value", name);
    } else if (!strcmp(name, "wtimeout") && !truce__field_is_number(field)) {
        return truce__refuse(CODE_FAILED_TO_PARSE, error,
                             "wtimeout of writeConcern must be a number");
    }
    return TRUCE_OK;
}

static truce_status read_concern(struct call *call, const bson_iter_t *value, bson_error_t *error)
{
    bson_iter_t field;
    truce_status status = TRUCE_OK;

    if (!BSON_ITER_HOLDS_DOCUMENT(value) || !bson_iter_recurse(value, &field))
        return truce__refuse(CODE_TYPE_MISMATCH, error, "writeConcern must be a document");
    while (!status && bson_iter_next(&field)) {
        int64_t number;
        bool no_wait = !strcmp(bson_iter_key(&field), "w") &&
                       truce__field_to_number(&field, &number) && !number;
        bool no_journal = !strcmp(bson_iter_key(&field), "j") && !BSON_ITER_HOLDS_NULL(&field) &&
                          !truce__field_truth(&field);

        status = call_check_concern(&field, error);
        call->relaxed = call->relaxed || no_wait || no_journal;
        if (!status && !strcmp(bson_iter_key(&field), "w"))
            keep_members(call, &field);
    }
    return status;
}

static truce_status read_deadline(struct call *call, const bson_iter_t *value, bson_error_t *error)
{
    int64_t number;

    if (!truce__field_to_number(value, &number))
        return truce__refuse(CODE_TYPE_MISMATCH, error, "maxTimeMS must be a number");
    if (number < 0 || number > INT32_MAX)
        return truce__refuse(CODE_BAD_VALUE, error,
                             "maxTimeMS must be a number from 0 to %d, and is %lld", INT32_MAX,
                             (long long)number);
    call->deadline_ms = (uint32_t)number;
    return TRUCE_OK;
}

truce_status call_read_lsid(struct call_session *session, const bson_iter_t *value,
                            bson_error_t *error)
{
    bson_subtype_t subtype = BSON_SUBTYPE_BINARY;
    const uint8_t *bytes;
    uint32_t size = 0;
    bson_iter_t field;

    if (!BSON_ITER_HOLDS_DOCUMENT(value) || !bson_iter_recurse(value, &field))
        return truce__refuse(CODE_TYPE_MISMATCH, error, "lsid must be a document");
    if (!bson_iter_find(&field, "id"))
        return truce__refuse(40414, error, "lsid must have the field 'id'");
    if (BSON_ITER_HOLDS_BINARY(&field))
        bson_iter_binary(&field, &subtype, &size, &bytes);
    if (subtype != BSON_SUBTYPE_UUID)
        return truce__refuse(CODE_TYPE_MISMATCH, error, "lsid.id must be a UUID");
    if (size != sizeof session->id)
        return truce__refuse(CODE_INVALID_UUID, error, "lsid.id must have 16 bytes, and has %u",
                             size);
    session->given = true;
    memcpy(session->id, bytes, sizeof session->id);
    return TRUCE_OK;
}

static truce_status read_session(struct call *call, const bson_iter_t *at, bson_error_t *error)
{
    struct call_session *session = &call->session;
    const char *name = bson_iter_key(at);

    if (!strcmp(name, "lsid"))
        return call_read_lsid(session, at, error);
    if (!strcmp(name, "txnNumber")) {
        if (!BSON_ITER_HOLDS_INT64(at))
            return truce__refuse(CODE_TYPE_MISMATCH, error,
                                 "txnNumber must be an integer of 64 bits (long)");
        if (bson_iter_int64(at) < 0)
            return truce__refuse(CODE_INVALID_OPTIONS, error, "txnNumber cannot be negative");
        session->number = bson_iter_as_int64(at);
    } else if (!strcmp(name, "stmtId")) {
        if (!BSON_ITER_HOLDS_INT(at) || bson_iter_as_int64(at) < -1 ||
            bson_iter_as_int64(at) > INT32_MAX)
            return truce__refuse(CODE_TYPE_MISMATCH, error,
                                 "stmtId must be a number of 32 bits that is not negative");
        session->statement = (int32_t)bson_iter_as_int64(at);
    } else if (!strcmp(name, "stmtIds")) {
        if (!BSON_ITER_HOLDS_ARRAY(at))
            return truce__refuse(CODE_TYPE_MISMATCH, error, "stmtIds must be an array");
        session->statements = call_view_of(call, at);
    } else if (!strcmp(name, "autocommit") || !strcmp(name, "startTransaction")) {
        bool *into = name[0] == 'a' ? &session->autocommit : &session->start;

        if (!BSON_ITER_HOLDS_BOOL(at))
            return truce__refuse(CODE_TYPE_MISMATCH, error, "%s must be true or false", name);
        *into = bson_iter_bool(at);
        session->transaction = session->transaction || name[0] == 'a';
    }
    return TRUCE_OK;
}

/* All but snapshot are the same: one node, whose reads are of the newest. */
static truce_status check_level(const bson_iter_t *level, bson_error_t *error)
{
    static const char *const levels[] = {"local", "available", "majority", "linearizable",
                                         "snapshot"};

    if (!BSON_ITER_HOLDS_UTF8(level))
        return truce__refuse(CODE_TYPE_MISMATCH, error, "the level of readConcern must be a text");
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (!strcmp(bson_iter_utf8(level, NULL), levels[i]))
            return TRUCE_OK;
    return truce__refuse(CODE_BAD_VALUE, error,
                         "Enumeration value '%.40s' for field 'readConcern.level' is not a valid "
                         "value.",
                         bson_iter_utf8(level, NULL));
}

static truce_status read_moment(struct call *call, const bson_iter_t *value, bson_error_t *error)
{
    bson_iter_t field;

    if (!BSON_ITER_HOLDS_DOCUMENT(value) || !bson_iter_recurse(value, &field))
        return truce__refuse(CODE_TYPE_MISMATCH, error, "readConcern must be a document");
    while (bson_iter_next(&field))
        if (!strcmp(bson_iter_key(&field), "level")) {
            truce_status status = check_level(&field, error);

            if (status)
                return status;
            call->snapshot = !strcmp(bson_iter_utf8(&field, NULL), "snapshot");
        } else if (!strcmp(bson_iter_key(&field), "atClusterTime")) {
            uint32_t seconds, number;

            if (!BSON_ITER_HOLDS_TIMESTAMP(&field))
                return truce__refuse(CODE_TYPE_MISMATCH, error,
                                     "atClusterTime must be a timestamp");
            bson_iter_timestamp(&field, &seconds, &number);
            call->time = (uint64_t)seconds << 32 | number;
            if (!call->time)
                return truce__refuse(CODE_INVALID_OPTIONS, error,
                                     "atClusterTime must not be a null timestamp");
        }
    return TRUCE_OK;
}

/* One moment for several commands: of reads, and outside of a transaction, which has its own. A cursor has the one of the
 * command that began it, whatever a driver sends along. */
static truce_status check_moment(struct call *call, bson_error_t *error)
{
    const char *name = call->command->name;

    if (!strcmp(name, "getMore") || !strcmp(name, "killCursors")) {
        call->snapshot = false;
        call->time = 0;
    }
    if (call->time && (!call->snapshot || call->session.transaction))
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "atClusterTime needs level snapshot, and is for reads outside of "
                             "transactions");
    if (!call->snapshot || call->session.transaction)
        return TRUCE_OK;
    if (!call->server->set[0])
        return truce__refuse(CODE_NOT_A_REPLICA_SET, error,
                             "readConcern level snapshot needs a server like a replica set "
                             "(--replica-set), or a transaction");
    if (strcmp(name, "find") != 0 && strcmp(name, "aggregate") != 0 &&
        strcmp(name, "distinct") != 0)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "readConcern level snapshot is for find, aggregate and distinct, not "
                             "for %s",
                             name);
    return TRUCE_OK;
}

static truce_status read_frame_field(struct call *call, const bson_iter_t *at, bson_error_t *error)
{
    const char *name = bson_iter_key(at);
    truce_status status;

    if (BSON_ITER_HOLDS_NULL(at) && strcmp(name, "$db") != 0)
        return TRUCE_OK; /* as if it were not there, as in call_fields */
    if (!strcmp(name, "$db")) {
        if (!BSON_ITER_HOLDS_UTF8(at))
            return truce__refuse(CODE_TYPE_MISMATCH, error, "$db must be a text");
        snprintf(call->database, sizeof call->database, "%s", bson_iter_utf8(at, NULL));
        status = truce__text_check(at, CODE_INVALID_NAMESPACE, error);
        return status ? status : truce__database_name_check(bson_iter_utf8(at, NULL), error);
    }
    if (!strcmp(name, "maxTimeMS"))
        return read_deadline(call, at, error);
    if (!strcmp(name, "writeConcern"))
        return read_concern(call, at, error);
    if (!strcmp(name, "readConcern"))
        return read_moment(call, at, error);
    return read_session(call, at, error);
}

/* MongoDB's stable API: who asks for another version than the first, or strictly for it, is not answered by what may change. */
bool call_is_stable(const struct command *command)
{
    static const char *const stable[] = {"abortTransaction",
                                         "aggregate",
                                         "bulkWrite",
                                         "collMod",
                                         "commitTransaction",
                                         "count",
                                         "create",
                                         "createIndexes",
                                         "delete",
                                         "drop",
                                         "dropDatabase",
                                         "dropIndexes",
                                         "endSessions",
                                         "explain",
                                         "find",
                                         "findAndModify",
                                         "getMore",
                                         "hello",
                                         "insert",
                                         "killCursors",
                                         "listCollections",
                                         "listDatabases",
                                         "listIndexes",
                                         "ping",
                                         "refreshSessions",
                                         "update"};

    for (size_t i = 0; i < sizeof stable / sizeof *stable; i++)
        if (!strcmp(command->name, stable[i]))
            return true;
    return false;
}

bool call_is_strict(const struct call *call)
{
    return truce__fields_strict(&call->request->body);
}

static truce_status check_api(const struct call *call, bson_error_t *error)
{
    const bson_t *body = &call->request->body;
    static const char *const flags[] = {"apiStrict", "apiDeprecationErrors"};
    bson_iter_t version, flag;

    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (bson_iter_init_find(&flag, body, flags[i]) && !BSON_ITER_HOLDS_BOOL(&flag) &&
            !BSON_ITER_HOLDS_NULL(&flag))
            return truce__refuse(CODE_TYPE_MISMATCH, error, "%s must be true or false", flags[i]);
    if (!bson_iter_init_find(&version, body, "apiVersion") || BSON_ITER_HOLDS_NULL(&version))
        return bson_has_field(body, "apiStrict") || bson_has_field(body, "apiDeprecationErrors")
                   ? truce__refuse(CODE_API_VERSION_ERROR, error,
                                   "Provided apiStrict and/or apiDeprecationErrors without passing "
                                   "apiVersion")
                   : TRUCE_OK;
    if (!BSON_ITER_HOLDS_UTF8(&version))
        return truce__refuse(CODE_TYPE_MISMATCH, error, "apiVersion must be a string");
    if (strcmp(bson_iter_utf8(&version, NULL), "1") != 0)
        return truce__refuse(CODE_API_VERSION_ERROR, error, "API version must be \"1\"");
    if (!call_is_strict(call) || call_is_stable(call->command))
        return TRUCE_OK;
    return truce__refuse(CODE_API_STRICT, error,
                         "Provided apiStrict:true, but the command %s is not in API Version 1",
                         call->command->name);
}

static truce_status read_frame(struct call *call, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_iter_t at;

    if (call->request->old) { /* "admin.$cmd" */
        const char *dot = strchr(call->request->namespace, '.');

        snprintf(call->database, sizeof call->database, "%.*s",
                 dot ? (int)(dot - call->request->namespace) : 0, call->request->namespace);
    }
    (void)bson_iter_init(&at, &call->request->body);
    while (!status && bson_iter_next(&at))
        status = read_frame_field(call, &at, error);
    if (!status && !call->database[0])
        status = truce__refuse(40571, error, "the command has no $db");
    if (!status)
        status = check_moment(call, error);
    if (!status)
        status = check_api(call, error);
    return status;
}

static truce_status server_call_find_command(struct call *call, bson_error_t *error)
{
    const char *name;

    if (!bson_iter_init(&call->value, &call->request->body) || !bson_iter_next(&call->value))
        return truce__refuse(CODE_COMMAND_NOT_FOUND, error, "the command is empty");
    name = bson_iter_key(&call->value);
    call->command = server_command(name);
    if (!call->command || (call->command->need.kind == NEED_TESTS && !call->server->fail_point))
        return truce__refuse(CODE_COMMAND_NOT_FOUND, error, "no such command: '%.80s'", name);
    return BSON_ITER_HOLDS_UTF8(&call->value)
               ? truce__text_check(&call->value, CODE_INVALID_NAMESPACE, error)
               : TRUCE_OK;
}

/* Old drivers send {$query: {isMaster: 1}, $readPreference: ...}. */
static void call_unwrap(struct wire_request *request)
{
    bson_iter_t iter;
    const uint8_t *bytes;
    uint32_t size;

    if (request->old && bson_iter_init_find(&iter, &request->body, "$query") &&
        BSON_ITER_HOLDS_DOCUMENT(&iter)) {
        bson_iter_document(&iter, &size, &bytes);
        (void)bson_init_static(&request->body, bytes, size);
    }
}

void call_session_id(const struct call *call, const uint8_t given[SESSION_ID_BYTES],
                     uint8_t id[SESSION_ID_BYTES])
{
    const char *tag = call->connection->login.tag;
    uint8_t digest[SHA256_BYTES];
    struct sha256 sha;

    if (!tag[0]) {
        memmove(id, given, SESSION_ID_BYTES);
        return;
    }
    truce__sha256_begin(&sha);
    truce__sha256_add(&sha, given, SESSION_ID_BYTES);
    truce__sha256_add(&sha, tag, strlen(tag));
    truce__sha256_end(&sha, digest);
    memcpy(id, digest, SESSION_ID_BYTES);
}

/* The time of a replica set, by which clients put in order what they have seen of several members. Of one alone: now. */
static void call_append_time(const struct call *call, bson_t *reply)
{
    static const uint8_t unsigned_[20];
    struct server *server = call->server;
    uint64_t now;

    if (!server->set[0] || (server->auth && !call->connection->login.user))
        return;
    now = server_time(server);
    BCON_APPEND(reply, "operationTime", BCON_TIMESTAMP((uint32_t)(now >> 32), (uint32_t)now),
                "$clusterTime", "{", "clusterTime",
                BCON_TIMESTAMP((uint32_t)(now >> 32), (uint32_t)now), "signature", "{", "hash",
                BCON_BIN(BSON_SUBTYPE_BINARY, unsigned_, sizeof unsigned_), "keyId", BCON_INT64(0),
                "}", "}");
}

/* The name that the program gave itself when it connected: {client: {application: {name}}} */
static void call_read_name(struct call *call)
{
    struct connection *connection = call->connection;
    bson_iter_t at, found;

    if (call->command->run == serve_hello && !connection->app[0] &&
        bson_iter_init(&at, &call->request->body) &&
        bson_iter_find_descendant(&at, "client.application.name", &found) &&
        BSON_ITER_HOLDS_UTF8(&found))
        snprintf(connection->app, sizeof connection->app, "%s", bson_iter_utf8(&found, NULL));
}

/* No more of the command than its name and its collection, as secrets may stand there. */
static void tell_command(const struct call *call, truce_log_level level, enum log_part part,
                         const char *message, const bson_t *more)
{
    const struct connection *connection = call->connection;
    const char *collection =
        BSON_ITER_HOLDS_UTF8(&call->value) ? bson_iter_utf8(&call->value, NULL) : "$cmd";
    bson_t *fields = BCON_NEW("command", BCON_UTF8(call->command->name), "db",
                              BCON_UTF8(call->database), "collection", BCON_UTF8(collection));

    bson_concat(fields, more);
    if (connection->login.user)
        BSON_APPEND_UTF8(fields, "user", connection->login.tag);
    if (connection->app[0])
        BSON_APPEND_UTF8(fields, "app", connection->app);
    log_tell(call->server->log, level, part, connection->number, message, fields);
    bson_destroy(fields);
}

static void tell_slow(const struct call *call, int64_t ms, const bson_t *reply)
{
    bson_t *more = BCON_NEW("ms", BCON_INT64(ms), "replyBytes", BCON_INT64(reply->len));
    bson_iter_t code;

    if (bson_iter_init_find(&code, reply, "code") && BSON_ITER_HOLDS_INT32(&code))
        BSON_APPEND_INT32(more, "code", bson_iter_int32(&code));
    tell_command(call, TRUCE_LOG_INFO, LOG_COMMAND, "slow command", more);
    bson_destroy(more);
}

/* The disk is full, the file is damaged: that is not for the client alone. Once in a second, as all calls may fail then. */
static void tell_trouble(const struct call *call, const bson_error_t *error)
{
    struct server *server = call->server;
    long long now = truce__clock_monotonic_ns(), last = atomic_load(&server->trouble_ns);
    bson_t *more;

    if ((last && now - last < 1000000000) ||
        !atomic_compare_exchange_strong(&server->trouble_ns, &last, now)) {
        atomic_fetch_add(&server->trouble_untold, 1);
        return;
    }
    more = BCON_NEW("text", BCON_UTF8(error->message));
    if (atomic_load(&server->trouble_untold))
        BSON_APPEND_INT64(more, "untold", atomic_exchange(&server->trouble_untold, 0));
    tell_command(call, TRUCE_LOG_ERROR, LOG_STORE, "the store failed", more);
    bson_destroy(more);
}

void call_run(struct connection *connection, const struct wire_request *request, bson_t *reply)
{
    struct wire_request own = *request;
    struct call call = {.server = connection->server,
                        .connection = connection,
                        .request = &own,
                        .store = connection->server->store,
                        .session.number = -1};
    bson_error_t error = {0};
    truce_status status = truce__message_check(&own.body, &error);
    int64_t ns = 0;

    bson_init(reply);
    if (!status) {
        call_unwrap(&own);
        status = server_call_find_command(&call, &error);
    }
    if (!status)
        status = read_frame(&call, &error);
    if (!status)
        status = access_check(&call, &error);
    if (!status) {
        call_session_id(&call, call.session.id, call.session.id);
        atomic_fetch_add_explicit(&call.server->counted[call.command->counted], 1,
                                  memory_order_relaxed);
        operation_begin(&call);
        call_read_name(&call);
        truce__cluster_time_begin(call.server->set[0] ? server_time(call.server) : 0);
        status = fail_point_enter(&call, &error);
        if (!status)
            status = call_in_session(&call, reply, &error);
        truce__cluster_time_begin(0);
        truce__let_begin(NULL, false);
        (void)truce__aliases_use(NULL);
        ns = operation_end(&call) - call.waited_ns;
        if (!status)
            top_ran(call.server->top, &call, ns);
    }
    if (call.command && (status == TRUCE_IO || status == TRUCE_CORRUPT))
        tell_trouble(&call, &error);
    if (status) {
        bson_reinit(reply);
        call_append_error(&call, reply, status, &error);
    } else {
        BSON_APPEND_DOUBLE(reply, "ok", 1);
        fail_point_leave(&call, reply);
    }
    call_append_time(&call, reply);
    if (call.command && ns / 1000000 >= atomic_load(&call.server->slow_ms))
        tell_slow(&call, ns / 1000000, reply);
    truce__aliases_release(call.aliases);
    truce__arena_release(&call.arena);
}

/*
 * The frame of a command: its name, its database, what every command may say; and the reply's last fields.
 *
 *     $clusterTime, $readPreference, readConcern, comment, apiVersion ...   pass: one node is the newest
 *     maxTimeMS                                                                   the call's deadline
 *     writeConcern: {w: 0} or {j: false}                                          does not wait for the disk
 *     autocommit: false, txnNumber, startTransaction                              a transaction's (sessions.h)
 *     txnNumber alone, stmtId, stmtIds                                            writes that are kept (kept.h)
 */
#include "server/pattern_command.h"

#include <stdio.h>
#include <string.h>

#include "base/sha256.h"
#include "bson/value.h"
#include "server/duplicate.h"

/* ---- errors --------------------------------------------------------------------------------- */

uint32_t call_code(truce_status status, const bson_error_t *error)
{
    static const uint32_t codes[] = {
        [TRUCE_NOT_FOUND] = CODE_NAMESPACE_NOT_FOUND,
        [TRUCE_CONFLICT] = CODE_WRITE_CONFLICT,
        [TRUCE_LOCKED] = CODE_LOCK_TIMEOUT,
        [TRUCE_UNKNOWN] = 8, /* UnknownError */
        [TRUCE_DUPLICATE] = CODE_DUPLICATE_KEY,
        [TRUCE_EXPIRED] = CODE_CURSOR_KILLED,
        [TRUCE_INVALID] = CODE_BAD_VALUE,
        [TRUCE_LIMIT] = CODE_EXCEEDED_MEMORY_LIMIT,
        [TRUCE_IO] = 8,
        [TRUCE_CORRUPT] = 8,
        [TRUCE_TIMEOUT] = CODE_MAX_TIME_MS_EXPIRED,
        [TRUCE_REFUSED] = CODE_ILLEGAL_OPERATION,
    };

    return error->domain == TRUCE_ERROR_SERVER ? error->code : codes[status];
}

const char *call_sentence(struct call *call, const char *message)
{
    char *text = truce__arena_copy(&call->arena, message, strlen(message) + 1), *at = text;
    size_t length = strlen(call->database);

    while ((at = strchr(at, '@')) != NULL) {
        if (!strncmp(at + 1, call->database, length) && at[1 + length] == '.')
            memmove(at, at + 1, strlen(at));
        at++;
    }
    return text;
}

void call_append_sentence(struct call *call, bson_t *reply, const bson_error_t *error)
{
    if (error->code != CODE_DUPLICATE_KEY ||
        !duplicate_append(error->message, call->server->database, reply))
        BSON_APPEND_UTF8(reply, "errmsg", call_sentence(call, error->message));
}

/* Of a transaction, or of writes that are kept, what a driver is to do about the error. */
static void append_labels(const struct call *call, bson_t *reply, uint32_t code)
{
    const char *label = NULL;

    if (!call->session.transaction && call->session.number >= 0) {
        if (call->unknown || code == CODE_INTERRUPTED_AT_SHUTDOWN)
            BCON_APPEND(reply, "errorLabels", "[", BCON_UTF8("RetryableWriteError"), "]");
        return;
    }
    if (code == CODE_WRITE_CONFLICT || code == CODE_SNAPSHOT_TOO_OLD ||
        code == CODE_NO_SUCH_TRANSACTION || code == CODE_LOCK_TIMEOUT)
        label = "TransientTransactionError";
    else if (call->unknown)
        label = "UnknownTransactionCommitResult";
    if (call->session.transaction && label)
        BCON_APPEND(reply, "errorLabels", "[", BCON_UTF8(label), "]");
}

/* {ok: 0, errmsg, code, codeName} */
static void append_error(struct call *call, bson_t *reply, truce_status status,
                         const bson_error_t *error)
{
    const struct pattern *pattern = pattern_of(call->command);
    uint32_t code = call_code(status, error);

    if (call->session.transaction && code == CODE_CURSOR_KILLED)
        code = CODE_SNAPSHOT_TOO_OLD;
    if (code == CODE_INTERRUPTED && server_is_stopping(call->server))
        code = CODE_INTERRUPTED_AT_SHUTDOWN;
    BSON_APPEND_DOUBLE(reply, "ok", 0);
    call_append_sentence(call, reply, error);
    BSON_APPEND_INT32(reply, "code", (int32_t)code);
    BSON_APPEND_UTF8(reply, "codeName", truce_error_name(code));
    append_labels(call, reply, code);
    if (pattern)
        pattern_append_error(pattern, status, call->session.transaction, reply);
}

/* ---- the frame ------------------------------------------------------------------------------ */

static truce_status read_concern(struct call *call, const bson_iter_t *value)
{
    bson_iter_t field;

    if (BSON_ITER_HOLDS_DOCUMENT(value) && bson_iter_recurse(value, &field))
        while (bson_iter_next(&field)) {
            bool no_wait = !strcmp(bson_iter_key(&field), "w") && BSON_ITER_HOLDS_NUMBER(&field) &&
                           !bson_iter_as_int64(&field);
            bool no_journal = !strcmp(bson_iter_key(&field), "j") && BSON_ITER_HOLDS_BOOL(&field) &&
                              !bson_iter_bool(&field);

            call->relaxed = call->relaxed || no_wait || no_journal;
        }
    return TRUCE_OK;
}

static truce_status read_deadline(struct call *call, const bson_iter_t *value, bson_error_t *error)
{
    int64_t number = BSON_ITER_HOLDS_NUMBER(value) ? bson_iter_as_int64(value) : -1;

    if (number < 0 || number > INT32_MAX)
        return truce__refuse(CODE_BAD_VALUE, error, "maxTimeMS must be a number from 0 to %d",
                             INT32_MAX);
    call->deadline_ms = (uint32_t)number;
    return TRUCE_OK;
}

/* {id: UUID}; of another form it is as if there were none. */
static void read_lsid(struct call_session *session, const bson_iter_t *value)
{
    const uint8_t *bytes;
    uint32_t size = 0;
    bson_iter_t field;

    if (!BSON_ITER_HOLDS_DOCUMENT(value) || !bson_iter_recurse(value, &field) ||
        !bson_iter_find(&field, "id") || !BSON_ITER_HOLDS_BINARY(&field))
        return;
    bson_iter_binary(&field, NULL, &size, &bytes);
    session->given = size == sizeof session->id;
    if (session->given)
        memcpy(session->id, bytes, sizeof session->id);
}

static truce_status read_session(struct call *call, const bson_iter_t *at, bson_error_t *error)
{
    struct call_session *session = &call->session;
    const char *name = bson_iter_key(at);

    if (!strcmp(name, "lsid")) {
        read_lsid(session, at);
    } else if (!strcmp(name, "txnNumber")) {
        if (!BSON_ITER_HOLDS_INT(at) || bson_iter_as_int64(at) < 0)
            return truce__refuse(CODE_TYPE_MISMATCH, error,
                                 "txnNumber must be a number of 64 bits that is not negative");
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

static truce_status read_frame_field(struct call *call, const bson_iter_t *at, bson_error_t *error)
{
    const char *name = bson_iter_key(at);

    if (!strcmp(name, "$db")) {
        if (!BSON_ITER_HOLDS_UTF8(at))
            return truce__refuse(CODE_TYPE_MISMATCH, error, "$db must be a text");
        snprintf(call->database, sizeof call->database, "%s", bson_iter_utf8(at, NULL));
        return database_check(bson_iter_utf8(at, NULL), error);
    }
    if (!strcmp(name, "maxTimeMS"))
        return read_deadline(call, at, error);
    if (!strcmp(name, "writeConcern"))
        return read_concern(call, at);
    return read_session(call, at, error);
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
    return status;
}

static truce_status find_command(struct call *call, bson_error_t *error)
{
    const char *name;

    if (!bson_iter_init(&call->value, &call->request->body) || !bson_iter_next(&call->value))
        return truce__refuse(CODE_COMMAND_NOT_FOUND, error, "the command is empty");
    name = bson_iter_key(&call->value);
    call->command = server_command(name);
    if (!call->command)
        return truce__refuse(CODE_COMMAND_NOT_FOUND, error, "no such command: '%.80s'", name);
    return TRUCE_OK;
}

/* Old drivers send {$query: {isMaster: 1}, $readPreference: ...}. */
static void unwrap(struct wire_request *request)
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

    bson_init(reply);
    if (!status) {
        unwrap(&own);
        status = find_command(&call, &error);
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
        status = call_in_session(&call, reply, &error);
        operation_end(&call);
    }
    if (status) {
        bson_reinit(reply);
        append_error(&call, reply, status, &error);
    } else {
        BSON_APPEND_DOUBLE(reply, "ok", 1);
    }
    truce__arena_release(&call.arena);
}

/* ---- fields --------------------------------------------------------------------------------- */

/* What any command may have, and what was read by read_frame or does not matter here. */
static bool is_common(const char *name)
{
    static const char *const common[] = {"$clusterTime",
                                         "$readPreference",
                                         "apiDeprecationErrors",
                                         "apiStrict",
                                         "apiVersion",
                                         "autocommit",
                                         "comment",
                                         "lsid",
                                         "maxTimeMS",
                                         "readConcern",
                                         "recoveryToken",
                                         "startTransaction",
                                         "stmtId",
                                         "stmtIds",
                                         "txnNumber",
                                         "writeConcern",
                                         "$db"};

    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        if (!strcmp(name, common[i]))
            return true;
    return false;
}

const bson_t *call_view(struct call *call, const uint8_t *bytes, uint32_t size)
{
    bson_t *view = truce__arena_take(&call->arena, sizeof *view);

    return bson_init_static(view, bytes, size) ? view : NULL;
}

const bson_t *call_view_of(struct call *call, const bson_iter_t *iter)
{
    struct value value = truce__value_of_iter(iter);

    return call_view(call, value.data, value.size);
}

static const bson_t *hint_of(struct call *call, const bson_iter_t *at)
{
    bson_t *hint;
    const bson_t *view;

    if (BSON_ITER_HOLDS_DOCUMENT(at))
        return call_view_of(call, at);
    hint = BCON_NEW("", BCON_UTF8(bson_iter_utf8(at, NULL)));
    view =
        call_view(call, truce__arena_copy(&call->arena, bson_get_data(hint), hint->len), hint->len);
    bson_destroy(hint);
    return view;
}

/* Absent in all but name: null, false, 0, {} or [], or the collation that is none. */
static bool is_plain(const bson_iter_t *at)
{
    bson_iter_t inner;

    if (BSON_ITER_HOLDS_DOCUMENT(at) || BSON_ITER_HOLDS_ARRAY(at)) {
        if (!bson_iter_recurse(at, &inner) || !bson_iter_next(&inner))
            return true;
        return !strcmp(bson_iter_key(&inner), "locale") && BSON_ITER_HOLDS_UTF8(&inner) &&
               !strcmp(bson_iter_utf8(&inner, NULL), "simple");
    }
    return BSON_ITER_HOLDS_NULL(at) ||
           ((BSON_ITER_HOLDS_NUMBER(at) || BSON_ITER_HOLDS_BOOL(at)) && !bson_iter_as_bool(at));
}

static truce_status wrong_type(const bson_iter_t *at, const char *wanted, bson_error_t *error)
{
    return truce__refuse(CODE_TYPE_MISMATCH, error, "the field '%.80s' must be %s, and is %s",
                         bson_iter_key(at), wanted, truce__type_name((uint8_t)bson_iter_type(at)));
}

static truce_status keep_number(const bson_iter_t *at, int64_t *number, bson_error_t *error)
{
    double given = BSON_ITER_HOLDS_DOUBLE(at) ? bson_iter_double(at) : 0;

    if (!BSON_ITER_HOLDS_NUMBER(at) || !(given > -9e18 && given < 9e18))
        return wrong_type(at, "a number", error);
    *number = bson_iter_as_int64(at);
    return TRUCE_OK;
}

static truce_status keep(struct call *call, const struct field *field, const bson_iter_t *at,
                         void *into, bson_error_t *error)
{
    bool is_document = BSON_ITER_HOLDS_DOCUMENT(at), is_array = BSON_ITER_HOLDS_ARRAY(at);

    switch (field->type) {
    case FIELD_TEXT:
        if (!BSON_ITER_HOLDS_UTF8(at))
            return wrong_type(at, "a text", error);
        *(const char **)into = bson_iter_utf8(at, NULL);
        break;
    case FIELD_DOCUMENT:
        if (!is_document)
            return wrong_type(at, "a document", error);
        *(const bson_t **)into = call_view_of(call, at);
        break;
    case FIELD_ARRAY:
        if (!is_array)
            return wrong_type(at, "an array", error);
        *(const bson_t **)into = call_view_of(call, at);
        break;
    case FIELD_EITHER:
        if (!is_document && !is_array)
            return wrong_type(at, "a document or an array", error);
        *(struct either *)into = (struct either){call_view_of(call, at), is_array};
        break;
    case FIELD_HINT:
        if (!is_document && !BSON_ITER_HOLDS_UTF8(at))
            return wrong_type(at, "a document or a text", error);
        *(const bson_t **)into = hint_of(call, at);
        break;
    case FIELD_NUMBER:
        return keep_number(at, into, error);
    case FIELD_FLAG:
        if (!BSON_ITER_HOLDS_BOOL(at) && !BSON_ITER_HOLDS_NUMBER(at))
            return wrong_type(at, "true or false", error);
        *(bool *)into = bson_iter_as_bool(at);
        break;
    case FIELD_VALUE:
        *(const bson_value_t **)into = truce__arena_copy(
            &call->arena, bson_iter_value((bson_iter_t *)at), sizeof(bson_value_t));
        break;
    case FIELD_OID:
        if (!BSON_ITER_HOLDS_OID(at))
            return wrong_type(at, "an ObjectId", error);
        *(const bson_oid_t **)into = bson_iter_oid(at);
        break;
    case FIELD_PLAIN:
        if (!is_plain(at))
            return truce__refuse(CODE_COMMAND_NOT_SUPPORTED, error,
                                 "truce does not support the field '%.80s' here", field->name);
        break;
    case FIELD_IGNORED:
        break;
    }
    return TRUCE_OK;
}

truce_status call_fields(struct call *call, const bson_t *document, const struct field *fields,
                         bool skip, void *into, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_iter_t at;

    (void)bson_iter_init(&at, document);
    if (skip)
        (void)bson_iter_next(&at);
    while (!status && bson_iter_next(&at)) {
        const struct field *field = fields;

        while (field->name && strcmp(field->name, bson_iter_key(&at)) != 0)
            field++;
        if (field->name && BSON_ITER_HOLDS_NULL(&at))
            continue; /* as if it were not there: several drivers send it so */
        if (field->name)
            status = keep(call, field, &at, into ? (uint8_t *)into + field->at : NULL, error);
        else if (!skip || !is_common(bson_iter_key(&at)))
            status = truce__refuse(40415, error, "the field '%.80s' of '%.80s' is not known",
                                   bson_iter_key(&at), call->command->name);
    }
    return status;
}

truce_status call_own_fields(struct call *call, const struct field *fields, void *into,
                             bson_error_t *error)
{
    return call_fields(call, &call->request->body, fields, true, into, error);
}

truce_status call_place_of(struct call *call, const char *collection, char place[PLACE_MAX],
                           bson_error_t *error)
{
    return place_of(call->server->database, call->database, collection, place, error);
}

truce_status call_place(struct call *call, char place[PLACE_MAX], bson_error_t *error)
{
    if (!BSON_ITER_HOLDS_UTF8(&call->value))
        return truce__refuse(
            CODE_INVALID_NAMESPACE, error, "'%s' must name a collection by a text, and got %s",
            call->command->name, truce__type_name((uint8_t)bson_iter_type(&call->value)));
    return call_place_of(call, bson_iter_utf8(&call->value, NULL), place, error);
}

const char *call_namespace(struct call *call, const char *collection)
{
    size_t size = strlen(call->database) + strlen(collection) + 2;
    char *text = truce__arena_take(&call->arena, size);

    snprintf(text, size, "%s.%s", call->database, collection);
    return text;
}

/* ---- documents ------------------------------------------------------------------------------ */

static truce_status add(struct call *call, const uint8_t *bytes, uint32_t size,
                        struct documents *documents, bson_error_t *error)
{
    if (documents->count == TRUCE_BULK_MAX)
        return truce__refuse(CODE_INVALID_LENGTH, error, "a command may have %d statements at most",
                             TRUCE_BULK_MAX);
    if (!(documents->count & (documents->count - 1))) { /* 0, 1, 2, 4 ...: room for as many more */
        size_t room = documents->count ? 2 * (size_t)documents->count : 1;
        const bson_t **wider = truce__arena_take(&call->arena, room * sizeof *wider);

        if (documents->count)
            memcpy(wider, documents->all, documents->count * sizeof *wider);
        documents->all = wider;
    }
    documents->all[documents->count] = call_view(call, bytes, size);
    if (!documents->all[documents->count])
        return truce__refuse(CODE_INVALID_BSON, error, "a document of the command is malformed");
    documents->count++;
    return TRUCE_OK;
}

static truce_status add_section(struct call *call, const struct wire_section *section,
                                struct documents *documents, bson_error_t *error)
{
    const uint8_t *at = section->bytes, *end = at + section->size;
    truce_status status = TRUCE_OK;

    while (!status && at < end) {
        uint32_t size = 0;

        if (end - at >= 4)
            memcpy(&size, at, sizeof size);
        size = BSON_UINT32_FROM_LE(size);
        if (size < 5 || size > (size_t)(end - at))
            return truce__refuse(CODE_INVALID_BSON, error, "the documents of '%.80s' are cut off",
                                 section->name);
        status = add(call, at, size, documents, error);
        at += size;
    }
    return status;
}

static truce_status add_array(struct call *call, const bson_iter_t *array,
                              struct documents *documents, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_iter_t at;

    if (!BSON_ITER_HOLDS_ARRAY(array))
        return wrong_type(array, "an array", error);
    (void)bson_iter_recurse(array, &at);
    while (!status && bson_iter_next(&at)) {
        struct value value = truce__value_of_iter(&at);

        status = value.type == BSON_TYPE_DOCUMENT
                     ? add(call, value.data, value.size, documents, error)
                     : wrong_type(&at, "a document", error);
    }
    return status;
}

truce_status call_documents(struct call *call, const char *name, struct documents *documents,
                            bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_iter_t iter;

    *documents = (struct documents){0};
    if (bson_iter_init_find(&iter, &call->request->body, name))
        status = add_array(call, &iter, documents, error);
    for (uint32_t i = 0; i < call->request->count && !status; i++)
        if (!strcmp(call->request->sections[i].name, name))
            status = add_section(call, &call->request->sections[i], documents, error);
    if (!status && !documents->count)
        status = truce__refuse(CODE_INVALID_LENGTH, error, "'%s' must have at least one of its %s",
                               call->command->name, name);
    return status;
}

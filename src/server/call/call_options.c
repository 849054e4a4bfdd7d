/*
 * The options that every command may have, besides its own fields:
 *
 *     $db                                        the database
 *     maxTimeMS                                  the deadline of the call
 *     writeConcern: {w: 0} or {j: false}         the call does not wait for the disk
 *     readConcern: {level: "snapshot"}           the call reads a snapshot (snapshot_registry.h)
 *     lsid, txnNumber, autocommit: false,
 *     startTransaction                           a statement of a transaction (sessions.h)
 *     lsid, txnNumber, stmtId, stmtIds           a retryable write (retryable_writes.h)
 *     apiVersion, apiStrict                      the client accepts MongoDB's stable API only
 *
 * Other options ($clusterTime, $readPreference, comment ...) are accepted and ignored: a single
 * node always has the newest data.
 */
#include <stdio.h>
#include <string.h>

#include "base/nearest_word.h"
#include "base/sha256.h"
#include "bson/refuse_value.h"
#include "bson/value.h"
#include "server/call/call.h"

#define CONCERN_MEMBERS_MAX 50 /* The maximum number of members of a replica set in MongoDB. */

/* Checks the number or the name of members in a write concern, as MongoDB does. If a server alone
 * cannot satisfy it, fails, and the command is not executed. If a set of one member cannot, sets the
 * writeConcernError of the reply, and the command is executed. */
static truce_status options_check_members(struct call *call, const bson_iter_t *w,
                                          bson_error_t *error)
{
    int64_t members;
    bool many = truce__field_to_number(w, &members) && members > 1;
    bool other = BSON_ITER_HOLDS_UTF8(w) && strcmp(bson_iter_utf8(w, NULL), "majority") != 0;
    bool alone = !call->server->set[0];
    bson_t *concern;

    if (!many && !other)
        return TRUCE_OK;
    if (alone && many)
        return truce__refuse(CODE_BAD_VALUE, error,
                             "cannot use 'w' > 1 when a host is not replicated: w is %lld",
                             (long long)members);
    if (alone)
        return truce__refuse(CODE_BAD_VALUE, error,
                             "cannot use non-majority 'w' mode \"%.80s\" when a host is not a "
                             "member of a replica set",
                             bson_iter_utf8(w, NULL));
    concern =
        many ? BCON_NEW("code", BCON_INT32(100), "codeName", BCON_UTF8("UnsatisfiableWriteConcern"),
                        "errmsg", BCON_UTF8("Not enough data-bearing nodes"))
             : BCON_NEW("code", BCON_INT32(79), "codeName", BCON_UTF8("UnknownReplWriteConcern"),
                        "errmsg", BCON_UTF8("No write concern mode of that name is known"));
    call->concern = call_view(
        call, truce__arena_copy(&call->arena, bson_get_data(concern), concern->len), concern->len);
    bson_destroy(concern);
    return TRUCE_OK;
}

truce_status call_check_name(uint32_t code, const char *option, const bson_iter_t *field,
                             const char *const *names, bson_error_t *error)
{
    struct nearest_word nearest = {.word = bson_iter_key(field)};
    char hint[NEAREST_WORD_HINT_MAX];

    for (const char *const *name = names; *name; name++) {
        if (!strcmp(bson_iter_key(field), *name))
            return TRUCE_OK;
    }
    while (*names)
        truce__nearest_word_offer(&nearest, *names++);
    return truce__refuse(code, error, "unknown field \"%.80s\" of \"%s\"%s", bson_iter_key(field),
                         option, truce__nearest_word_hint(&nearest, hint));
}

/* Checks a field of writeConcern. As in MongoDB, the error is FailedToParse (9), but TypeMismatch
 * (14) for j and fsync, and 40415 for an unknown field. */
static truce_status options_check_concern(const bson_iter_t *field, bson_error_t *error)
{
    /* The last ones are sent by MongoDB's own programs, and have no effect. */
    static const char *const names[] = {"w",       "j",           "fsync",      "wtimeout",
                                        "wOpTime", "wElectionId", "provenance", NULL};
    const char *name = bson_iter_key(field);
    bool document = BSON_ITER_HOLDS_DOCUMENT(field), text = BSON_ITER_HOLDS_UTF8(field);
    int64_t number;
    truce_status status = call_check_name(40415, "writeConcern", field, names, error);

    if (status || BSON_ITER_HOLDS_NULL(field))
        return status;
    if (!strcmp(name, "w")) {
        if (!truce__field_to_number(field, &number) && !text && !document)
            return truce__refuse(
                CODE_FAILED_TO_PARSE, error,
                "w of writeConcern must be a number, a string, or an object, not %s",
                truce__type_name((uint8_t)bson_iter_type(field)));
        if (truce__field_is_number(field) && (number < 0 || number > CONCERN_MEMBERS_MAX))
            return truce__refuse(CODE_FAILED_TO_PARSE, error,
                                 "w of writeConcern is %lld, but must be a number from 0 to %d",
                                 (long long)number, CONCERN_MEMBERS_MAX);
    } else if (!strcmp(name, "j") || !strcmp(name, "fsync")) {
        if (!truce__field_is_number(field) && !BSON_ITER_HOLDS_BOOL(field))
            return truce__refuse(CODE_TYPE_MISMATCH, error,
                                 "%s of writeConcern must be a number or a boolean, not %s", name,
                                 truce__type_name((uint8_t)bson_iter_type(field)));
    } else if (!strcmp(name, "wtimeout") && !truce__field_is_number(field)) {
        return truce__refuse(CODE_FAILED_TO_PARSE, error,
                             "wtimeout of writeConcern must be a number, not %s",
                             truce__type_name((uint8_t)bson_iter_type(field)));
    }
    return TRUCE_OK;
}

/* Reads the write concern of the command. */
static truce_status options_read_concern(struct call *call, const bson_iter_t *value,
                                         bson_error_t *error)
{
    bson_iter_t field;
    truce_status status = TRUCE_OK;

    if (!BSON_ITER_HOLDS_DOCUMENT(value) || !bson_iter_recurse(value, &field))
        return truce__field_wrong_type(value, "a document", error);
    while (!status && bson_iter_next(&field)) {
        int64_t number;
        bool no_wait = !strcmp(bson_iter_key(&field), "w") &&
                       truce__field_to_number(&field, &number) && !number;
        bool no_journal = !strcmp(bson_iter_key(&field), "j") && !BSON_ITER_HOLDS_NULL(&field) &&
                          !truce__field_truth(&field);

        status = options_check_concern(&field, error);
        call->relaxed = call->relaxed || no_wait || no_journal;
        if (!strcmp(bson_iter_key(&field), "wtimeout") && truce__field_to_number(&field, &number) &&
            number > 0)
            call->concern_ms = number;
        if (!status && !strcmp(bson_iter_key(&field), "w"))
            status = options_check_members(call, &field, error);
    }
    return status;
}

/* Reads maxTimeMS: a whole number from 0, which means no deadline, to INT32_MAX. */
static truce_status options_read_deadline(struct call *call, const bson_iter_t *value,
                                          bson_error_t *error)
{
    int64_t number, whole;
    char shown[60];

    if (!truce__field_to_number(value, &number))
        return truce__field_wrong_type(value, "a number", error);
    if (!truce__field_to_whole(value, &whole) && number >= 0 && number <= INT32_MAX)
        return truce__refuse(CODE_BAD_VALUE, error, "maxTimeMS must be a whole number, not %s",
                             truce__value_show(truce__value_of_iter(value), shown, sizeof shown));
    if (number < 0 || number > INT32_MAX)
        return truce__refuse(CODE_BAD_VALUE, error,
                             "maxTimeMS is %lld, but must be a number from 0 to %d",
                             (long long)number, INT32_MAX);
    call->deadline_ms = (uint32_t)number;
    return TRUCE_OK;
}

truce_status call_read_lsid(struct call_session *session, const bson_iter_t *value,
                            bson_error_t *error)
{
    static const char *const names[] = {"id", "uid", NULL};
    bson_subtype_t subtype = BSON_SUBTYPE_BINARY;
    truce_status status = TRUCE_OK;
    const uint8_t *bytes;
    uint32_t size = 0;
    bson_iter_t field, at;

    if (!BSON_ITER_HOLDS_DOCUMENT(value) || !bson_iter_recurse(value, &field))
        return truce__field_wrong_type(value, "a document", error);
    for (at = field; !status && bson_iter_next(&at);)
        status = call_check_name(40415, "lsid", &at, names, error);
    if (status)
        return status;
    if (!bson_iter_find(&field, "id"))
        return truce__refuse(40414, error, "lsid must have the field 'id'");
    if (BSON_ITER_HOLDS_BINARY(&field))
        bson_iter_binary(&field, &subtype, &size, &bytes);
    if (subtype != BSON_SUBTYPE_UUID)
        return truce__refuse_value(CODE_TYPE_MISMATCH, truce__value_of_iter(&field), error,
                                   "lsid.id must be a UUID");
    if (size != sizeof session->id)
        return truce__refuse(CODE_INVALID_UUID, error, "lsid.id has %u bytes, but a UUID has 16",
                             size);
    session->given = true;
    memcpy(session->id, bytes, sizeof session->id);
    return TRUCE_OK;
}

/* Reads a field of a session: its id, the number of its transaction or statements, or a flag of a
 * transaction. */
static truce_status options_read_session(struct call *call, const bson_iter_t *at,
                                         bson_error_t *error)
{
    struct call_session *session = &call->session;
    const char *name = bson_iter_key(at);

    if (!strcmp(name, "lsid"))
        return call_read_lsid(session, at, error);
    if (!strcmp(name, "txnNumber")) {
        if (!BSON_ITER_HOLDS_INT64(at))
            return truce__field_wrong_type(at, "an integer of 64 bits (long)", error);
        if (bson_iter_int64(at) < 0)
            return truce__refuse(CODE_INVALID_OPTIONS, error,
                                 "txnNumber is %lld, and cannot be negative",
                                 (long long)bson_iter_int64(at));
        session->number = bson_iter_as_int64(at);
    } else if (!strcmp(name, "stmtId")) {
        if (!BSON_ITER_HOLDS_INT(at) || bson_iter_as_int64(at) < -1 ||
            bson_iter_as_int64(at) > INT32_MAX)
            return truce__refuse_value(CODE_TYPE_MISMATCH, truce__value_of_iter(at), error,
                                       "stmtId must be a non-negative 32-bit integer");
        session->statement = (int32_t)bson_iter_as_int64(at);
    } else if (!strcmp(name, "stmtIds")) {
        if (!BSON_ITER_HOLDS_ARRAY(at))
            return truce__field_wrong_type(at, "an array", error);
        session->statements = call_view_of(call, at);
    } else if (!strcmp(name, "autocommit") || !strcmp(name, "startTransaction")) {
        bool *into = name[0] == 'a' ? &session->autocommit : &session->start;

        if (!BSON_ITER_HOLDS_BOOL(at))
            return truce__field_wrong_type(at, "true or false", error);
        *into = bson_iter_bool(at);
        session->transaction = session->transaction || name[0] == 'a';
    }
    return TRUCE_OK;
}

/* Checks the level of readConcern. A single node has the newest data. With a sync target, majority
 * and linearizable wait for it. */
static truce_status options_check_level(const bson_iter_t *level, bson_error_t *error)
{
    static const char *const levels[] = {"local", "available", "majority", "linearizable",
                                         "snapshot"};

    if (!BSON_ITER_HOLDS_UTF8(level))
        return truce__field_wrong_type(level, "a string", error);
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (!strcmp(bson_iter_utf8(level, NULL), levels[i]))
            return TRUCE_OK;
    return truce__refuse(CODE_BAD_VALUE, error,
                         "Enumeration value '%.40s' for field 'readConcern.level' is not a valid "
                         "value.",
                         bson_iter_utf8(level, NULL));
}

/* Reads the read concern of the command. */
static truce_status options_read_concern_of_reads(struct call *call, const bson_iter_t *value,
                                                  bson_error_t *error)
{
    /* Some of these fields have no effect, because a single node always has the latest data. */
    static const char *const names[] = {"level",       "atClusterTime", "afterClusterTime",
                                        "afterOpTime", "provenance",    NULL};
    bson_iter_t field;
    truce_status status;

    if (!BSON_ITER_HOLDS_DOCUMENT(value) || !bson_iter_recurse(value, &field))
        return truce__field_wrong_type(value, "a document", error);
    while (bson_iter_next(&field)) {
        status = call_check_name(40415, "readConcern", &field, names, error);
        if (!status && !strcmp(bson_iter_key(&field), "level"))
            status = options_check_level(&field, error);
        if (status)
            return status;
        if (!strcmp(bson_iter_key(&field), "level")) {
            call->snapshot = !strcmp(bson_iter_utf8(&field, NULL), "snapshot");
            call->majority = !strcmp(bson_iter_utf8(&field, NULL), "majority") ||
                             !strcmp(bson_iter_utf8(&field, NULL), "linearizable");
        } else if (!strcmp(bson_iter_key(&field), "atClusterTime")) {
            uint32_t seconds, number;

            if (!BSON_ITER_HOLDS_TIMESTAMP(&field))
                return truce__field_wrong_type(&field, "a timestamp", error);
            bson_iter_timestamp(&field, &seconds, &number);
            call->time = (uint64_t)seconds << 32 | number;
            if (!call->time)
                return truce__refuse(CODE_INVALID_OPTIONS, error,
                                     "atClusterTime must not be the timestamp (0, 0)");
        }
    }
    return TRUCE_OK;
}

/* Checks that a read at a snapshot is possible: only for reads outside of transactions, as a
 * transaction has its own snapshot. getMore reads the snapshot of its cursor and ignores the
 * options. */
static truce_status options_check_snapshot(struct call *call, bson_error_t *error)
{
    const char *name = call->command->name;

    if (!strcmp(name, "getMore") || !strcmp(name, "killCursors")) {
        call->snapshot = false;
        call->time = 0;
    }
    if (call->time && (!call->snapshot || call->session.transaction))
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "atClusterTime is only allowed with level snapshot, and outside of "
                             "transactions");
    if (!call->snapshot || call->session.transaction)
        return TRUCE_OK;
    if (!call->server->set[0])
        return truce__refuse(CODE_NOT_A_REPLICA_SET, error,
                             "readConcern level snapshot needs a server that was started with "
                             "--replica-set, or a transaction");
    if (strcmp(name, "find") != 0 && strcmp(name, "aggregate") != 0 &&
        strcmp(name, "distinct") != 0)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "readConcern level snapshot is not supported by %s, only by find, "
                             "aggregate, and distinct",
                             name);
    return TRUCE_OK;
}

/* Returns whether the command has the option, and it is a document with fields. */
static bool options_have(const struct call *call, const char *name)
{
    bson_iter_t at, field;

    return bson_iter_init_find(&at, &call->request->body, name) && BSON_ITER_HOLDS_DOCUMENT(&at) &&
           bson_iter_recurse(&at, &field) && bson_iter_next(&field);
}

/* Refuses the concerns that have no effect in a transaction, as MongoDB does. The read concern is
 * that of the first statement, and the write concern that of the commit. */
static truce_status options_check_transaction(const struct call *call, bson_error_t *error)
{
    const char *name = call->command->name;

    if (!call->session.transaction)
        return TRUCE_OK;
    if (options_have(call, "writeConcern") && strcmp(name, "commitTransaction") != 0 &&
        strcmp(name, "abortTransaction") != 0)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "writeConcern is not allowed within a multi-statement transaction: "
                             "give it to commitTransaction");
    if (options_have(call, "readConcern") && !call->session.start)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "Only the first command in a transaction may specify a readConcern");
    return TRUCE_OK;
}

/* Reads one field of the command if it is a common option. Any other field is left to the
 * command. */
static truce_status options_read_field(struct call *call, const bson_iter_t *at,
                                       bson_error_t *error)
{
    const char *name = bson_iter_key(at);
    truce_status status;

    if (BSON_ITER_HOLDS_NULL(at) && strcmp(name, "$db") != 0)
        return TRUCE_OK; /* null means an absent field, as in call_fields. */
    if (!strcmp(name, "$db")) {
        if (!BSON_ITER_HOLDS_UTF8(at))
            return truce__field_wrong_type(at, "a string", error);
        bson_strncpy(call->database, bson_iter_utf8(at, NULL), sizeof call->database);
        status = truce__text_check(at, CODE_INVALID_NAMESPACE, error);
        return status ? status : truce__database_name_check(bson_iter_utf8(at, NULL), error);
    }
    if (!strcmp(name, "maxTimeMS"))
        return options_read_deadline(call, at, error);
    if (!strcmp(name, "writeConcern"))
        return options_read_concern(call, at, error);
    if (!strcmp(name, "readConcern"))
        return options_read_concern_of_reads(call, at, error);
    return options_read_session(call, at, error);
}

bool call_is_strict(const struct call *call)
{
    bson_iter_t strict;

    return bson_iter_init_find(&strict, &call->request->body, "apiStrict") &&
           truce__field_truth(&strict);
}

/* Checks the options of the Stable API. */
static truce_status options_check_api(const struct call *call, bson_error_t *error)
{
    const bson_t *body = &call->request->body;
    static const char *const flags[] = {"apiStrict", "apiDeprecationErrors"};
    bson_iter_t version, flag;

    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (bson_iter_init_find(&flag, body, flags[i]) && !BSON_ITER_HOLDS_BOOL(&flag) &&
            !BSON_ITER_HOLDS_NULL(&flag))
            return truce__field_wrong_type(&flag, "true or false", error);
    if (!bson_iter_init_find(&version, body, "apiVersion") || BSON_ITER_HOLDS_NULL(&version))
        return bson_has_field(body, "apiStrict") || bson_has_field(body, "apiDeprecationErrors")
                   ? truce__refuse(CODE_API_VERSION_ERROR, error,
                                   "Provided apiStrict and/or apiDeprecationErrors without passing "
                                   "apiVersion")
                   : TRUCE_OK;
    if (!BSON_ITER_HOLDS_UTF8(&version))
        return truce__field_wrong_type(&version, "a string", error);
    if (strcmp(bson_iter_utf8(&version, NULL), "1") != 0)
        return truce__refuse(CODE_API_VERSION_ERROR, error,
                             "API version must be \"1\", not \"%.40s\"",
                             bson_iter_utf8(&version, NULL));
    if (!call_is_strict(call) || call->command->traits & COMMAND_STABLE)
        return TRUCE_OK;
    return truce__refuse(CODE_API_STRICT, error,
                         "Provided apiStrict:true, but the command %s is not in API Version 1",
                         call->command->name);
}

/* Reads the database of an old message, "admin.$cmd". Without a dot, it stays empty. */
static truce_status options_read_namespace(struct call *call, bson_error_t *error)
{
    const char *namespace = call->request->namespace, *dot = strchr(namespace, '.');
    int size = dot ? (int)(dot - namespace) : 0;

    if (size > DATABASE_NAME_MAX)
        return truce__refuse(CODE_INVALID_NAMESPACE, error,
                             "the database name of the message has more than %d bytes",
                             DATABASE_NAME_MAX);
    snprintf(call->database, sizeof call->database, "%.*s", size, namespace);
    return size ? truce__database_name_check(call->database, error) : TRUCE_OK;
}

truce_status call_read_options(struct call *call, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bool names_api = false;
    bson_iter_t at;

    if (call->request->old)
        status = options_read_namespace(call, error);
    (void)bson_iter_init(&at, &call->request->body);
    while (!status && bson_iter_next(&at)) {
        names_api = names_api || !strncmp(bson_iter_key(&at), "api", 3);
        status = options_read_field(call, &at, error);
    }
    if (!status && !call->database[0])
        status =
            truce__refuse(40571, error, "the command has no field $db, which names the database");
    if (!status)
        status = options_check_transaction(call, error);
    if (!status)
        status = options_check_snapshot(call, error);
    if (!status && names_api)
        status = options_check_api(call, error);
    return status;
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

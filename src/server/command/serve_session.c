/* Sessions, and commands within transactions. */
#include "bson/refuse_value.h"
#include "server/command/collection_uuid.h"
#include "server/command/handlers.h"

#include <string.h>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/random.h"
#include "base/sha256.h"
#include "bson/value.h"
#include "store/mongodb/mongo_session.h"

#define RECORD_TRIES 10

truce_status serve_start_session(struct call *call, bson_t *reply, bson_error_t *error)
{
    uint64_t chance[2] = {truce__random_entropy(), truce__random_entropy()};
    uint8_t id[16];
    bson_t inner;

    truce_status status = call_no_fields(call, error);

    if (status)
        return status;
    memcpy(id, chance, sizeof id);
    id[6] = (uint8_t)((id[6] & 0x0f) | 0x40); /* Sets the bits of a UUID of version 4. */
    id[8] = (uint8_t)((id[8] & 0x3f) | 0x80);
    BSON_APPEND_DOCUMENT_BEGIN(reply, "id", &inner);
    BSON_APPEND_BINARY(&inner, "id", BSON_SUBTYPE_UUID, id, sizeof id);
    bson_append_document_end(reply, &inner);
    BSON_APPEND_INT32(reply, "timeoutMinutes", TRUCE_SERVER_SESSION_MS / 60000);
    return TRUCE_OK;
}

/* Reads the array of sessions that a command names: [{id: UUID}, ...]. With `end`, ends them;
 * otherwise only checks the array. */
static truce_status session_each_named(struct call *call, bool end, bson_error_t *error)
{
    truce_status status = call_no_fields(call, error);
    bson_iter_t at;

    if (!status && (!BSON_ITER_HOLDS_ARRAY(&call->value) || !bson_iter_recurse(&call->value, &at)))
        status = truce__refuse(
            CODE_TYPE_MISMATCH, error, "'%s' must be an array of sessions, [{id: UUID}], not %s",
            call->command->name, truce__type_name((uint8_t)bson_iter_type(&call->value)));
    while (!status && bson_iter_next(&at)) {
        struct call_session named = {0};

        status = call_read_lsid(&named, &at, error);
        if (status || !end)
            continue;
        call_session_id(call, named.id, named.id);
        sessions_end(call->server->sessions, named.id);
    }
    return status;
}

/* Serves {endSessions: [{id: UUID}, ...]}, and killSessions, which has the same form. A wrong
 * element ends no session. */
truce_status serve_end_sessions(struct call *call, bson_t *reply, bson_error_t *error)
{
    truce_status status = session_each_named(call, false, error);

    (void)reply;
    return status ? status : session_each_named(call, true, error);
}

/* Checks the names of the sessions, and does nothing else: an idle session has no state that a
 * refresh would keep. */
truce_status serve_refresh_sessions(struct call *call, bson_t *reply, bson_error_t *error)
{
    (void)reply;
    return session_each_named(call, false, error);
}

/* Ends the sessions of one user, {user, db}. Without `end`, only checks the user's document. */
static truce_status session_end_user(struct call *call, const bson_iter_t *at, bool end,
                                     bson_error_t *error)
{
    struct named {
        const char *user, *database;
    } named = {0};
    static const struct field fields[] = {{"user", FIELD_TEXT, offsetof(struct named, user)},
                                          {"db", FIELD_TEXT, offsetof(struct named, database)},
                                          {NULL, FIELD_IGNORED, 0}};
    char *tag;
    truce_status status;

    if (!BSON_ITER_HOLDS_DOCUMENT(at))
        return truce__field_wrong_type(at, "a document {user, db}", error);
    status = call_fields(call, call_view_of(call, at), fields, false, &named, error);
    if (!status && (!named.user || !named.database))
        status = truce__refuse(40414, error,
                               "a user of killAllSessions needs 'user' and 'db', and has no '%s'",
                               named.user ? "db" : "user");
    if (status || !end)
        return status;
    tag = bson_strdup_printf("%s.%s", named.database, named.user);
    sessions_end_user(call->server->sessions, tag);
    bson_free(tag);
    return TRUCE_OK;
}

/* Serves {killAllSessions: [{user, db}, ...]}; an empty array means the sessions of all users. */
truce_status serve_end_all_sessions(struct call *call, bson_t *reply, bson_error_t *error)
{
    truce_status status = call_no_fields(call, error);
    bson_iter_t at;

    (void)reply;
    if (!status && !BSON_ITER_HOLDS_ARRAY(&call->value))
        status = truce__field_wrong_type(&call->value, "an array of users", error);
    for (int end = 0; end < 2 && !status; end++) {
        (void)bson_iter_recurse(&call->value, &at);
        while (!status && bson_iter_next(&at))
            status = session_end_user(call, &at, end, error);
    }
    if (!status && bson_iter_recurse(&call->value, &at) && !bson_iter_next(&at))
        sessions_end_all(call->server->sessions);
    return status;
}

truce_status serve_outside(struct call *call, bson_t *reply, bson_error_t *error)
{
    (void)reply;
    return truce__refuse(CODE_COMMAND_FAILED, error,
                         "%s must be run within a transaction: it needs lsid, txnNumber, and "
                         "autocommit: false",
                         call->command->name);
}

/* ---- the list of sessions -------------------------------------------------------------------- */

struct listing {
    const struct call *call;
    bson_t all;
    uint32_t count;
};

/* Appends {_id: {id, uid}, lastUse} of a session. */
static void list_one(struct listing *listing, const uint8_t id[SESSION_ID_BYTES], int64_t used_ns)
{
    const char *tag = listing->call->connection->login.tag;
    int64_t ago_ms = (truce__clock_monotonic_ns() - used_ns) / 1000000;
    uint8_t user[SHA256_BYTES];
    char buffer[16];
    const char *key;
    bson_t one;

    truce__sha256(tag, strlen(tag), user);
    bson_uint32_to_string(listing->count++, &key, buffer, sizeof buffer);
    BSON_APPEND_DOCUMENT_BEGIN(&listing->all, key, &one);
    BCON_APPEND(&one, "_id", "{", "id", BCON_BIN(BSON_SUBTYPE_UUID, id, SESSION_ID_BYTES), "uid",
                BCON_BIN(BSON_SUBTYPE_BINARY, user, sizeof user), "}", "lastUse",
                BCON_DATE_TIME(truce__clock_wall_ms() - ago_ms));
    bson_append_document_end(&listing->all, &one);
}

static void list_other(void *arg, const uint8_t id[SESSION_ID_BYTES], int64_t used_ns)
{
    struct listing *listing = arg;

    if (!listing->call->session.given || memcmp(id, listing->call->session.id, SESSION_ID_BYTES))
        list_one(listing, id, used_ns);
}

/* Lists the session of the call, and the sessions with a transaction or recorded writes. With a
 * login it lists only the first, because the server does not know the ids of the others
 * (call_session_id). */
static void list_sessions(struct call *call, struct listing *listing)
{
    struct call_session own = {0};
    bson_iter_t lsid;

    *listing = (struct listing){.call = call};
    bson_init(&listing->all);
    if (bson_iter_init_find(&lsid, &call->request->body, "lsid"))
        /* Cannot fail, because the options of the command were checked. */
        (void)call_read_lsid(&own, &lsid, NULL);
    if (own.given)
        list_one(listing, own.id, truce__clock_monotonic_ns());
    if (!call->connection->login.tag[0])
        sessions_each(call->server->sessions, list_other, listing);
}

/* Checks the options of $listLocalSessions. With a login, `users` and `allUsers` are refused. */
static truce_status check_listing(struct call *call, const bson_iter_t *stage, bson_error_t *error)
{
    struct given {
        const bson_t *users;
        bool all;
    } given = {0};
    static const struct field fields[] = {{"users", FIELD_ARRAY, offsetof(struct given, users)},
                                          {"allUsers", FIELD_FLAG, offsetof(struct given, all)},
                                          {0}};
    truce_status status;

    if (!BSON_ITER_HOLDS_DOCUMENT(stage))
        return truce__refuse_value(CODE_TYPE_MISMATCH, truce__value_of_iter(stage), error,
                                   "$listLocalSessions must be a document");
    status = call_fields(call, call_view_of(call, stage), fields, false, &given, error);
    if (!status && call->connection->login.tag[0] && (given.users || given.all))
        status = truce__refuse(
            CODE_COMMAND_NOT_SUPPORTED, error,
            "the sessions of other users are not listed: omit 'users' and 'allUsers'");
    return status;
}

truce_status serve_sessions_stage(struct call *call, const bson_t **pipeline, bson_error_t *error)
{
    bson_t made = BSON_INITIALIZER, first, literal;
    struct listing listing;
    uint32_t count = 0;
    bson_iter_t at, stage;
    truce_status status;

    if (!bson_iter_init(&at, *pipeline) || !bson_iter_next(&at) || !BSON_ITER_HOLDS_DOCUMENT(&at) ||
        !bson_iter_recurse(&at, &stage) || !bson_iter_next(&stage) ||
        strcmp(bson_iter_key(&stage), "$listLocalSessions") != 0)
        return TRUCE_OK;
    status = check_listing(call, &stage, error);
    if (!status && call_is_strict(call))
        status = truce__refuse(CODE_API_STRICT, error,
                               "stage $listLocalSessions is not allowed with 'apiStrict: true' in "
                               "API Version 1");
    if (status)
        return status;
    list_sessions(call, &listing);
    BSON_APPEND_DOCUMENT_BEGIN(&made, "0", &first);
    BSON_APPEND_DOCUMENT_BEGIN(&first, "$documents", &literal);
    BSON_APPEND_ARRAY(&literal, "$literal", &listing.all);
    bson_append_document_end(&first, &literal);
    bson_append_document_end(&made, &first);
    for (count = 1; bson_iter_next(&at);)
        truce__value_append_element(&made, &count, truce__value_of_iter(&at));
    *pipeline =
        call_view(call, truce__arena_copy(&call->arena, bson_get_data(&made), made.len), made.len);
    bson_destroy(&listing.all);
    bson_destroy(&made);
    return TRUCE_OK;
}

/* ---- within a transaction -------------------------------------------------------------------- */

static truce_status session_take(struct call *call, struct session **session, bson_error_t *error)
{
    return sessions_take(call->server->sessions, call->session.id, call->connection->login.tag,
                         session, error);
}

/* Checks that the fields of a statement of a transaction are complete, and that the command may run
 * in one. */
static truce_status check_form(const struct call *call, bson_error_t *error)
{
    const struct command *command = call->command;
    const struct call_session *session = &call->session;

    if (session->start && !session->transaction)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "startTransaction needs autocommit: false");
    if (!session->given || session->number < 0)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "a transaction needs lsid and txnNumber, and has no %s",
                             session->given ? "txnNumber" : "lsid");
    if (session->autocommit)
        return truce__refuse(
            CODE_INVALID_OPTIONS, error,
            "autocommit must be false, not true: leave it out for a command without a "
            "transaction");
    if (!(command->traits & COMMAND_TRANSACTS))
        return truce__refuse(CODE_NOT_IN_TRANSACTION, error, "'%s' cannot be run in a transaction",
                             call->command->name);
    return TRUCE_OK;
}

/* Commits or aborts. Sets call->unknown if the outcome of the commit is unknown. */
static truce_status session_end_transaction(struct call *call, struct session *session,
                                            bool commits, bson_error_t *error)
{
    int64_t number = call->session.number;
    truce_status status;

    if (call->session.start)
        return truce__refuse(CODE_NOT_IN_TRANSACTION, error, "%s cannot start a transaction",
                             call->command->name);
    if (commits) {
        status = session_commit(call->server->sessions, session, number, call->relaxed,
                                call->deadline_ms, error);
        call->unknown = truce__unanswered(status) || status == TRUCE_TIMEOUT;
        return status;
    }
    status = session_continue(session, number, error);
    if (!status)
        session_abort(call->server->sessions, session);
    return status;
}

/* Runs the handler of the command after the checks of collectionUUID and of views, with the
 * deadline of the call. */
static truce_status run_command(struct call *call, bson_t *reply, bson_error_t *error)
{
    /* For getMore, maxTimeMS is a time to wait for documents, not a deadline. */
    bool waits = !strcmp(call->command->name, "getMore");
    DEADLINE_SCOPE(waits ? 0 : call->deadline_ms);
    truce_status status;

    same_collection_begin(call);
    status = same_collection_check(call, error);
    if (!status)
        status = view_guard(call, error);
    if (!status)
        status = call->command->run(call, reply, error);
    same_collection_end(call);
    return status;
}

/* If MongoDB could not be reached before the transaction began, sets a code after which drivers
 * start the transaction again. */
static truce_status session_unreached(const struct call *call, truce_status status,
                                      bson_error_t *error)
{
    char message[sizeof error->message];

    if (status != TRUCE_IO || !truce__mongo_is(call->server->store))
        return status;
    memcpy(message, error->message, sizeof message);
    return truce__refuse(CODE_HOST_UNREACHABLE, error, "%s", message);
}

/* Returns the message of the first refused statement in the reply, or NULL. */
static const char *session_refusal(const bson_t *reply)
{
    bson_iter_t at, found;

    return bson_iter_init(&at, reply) &&
                   bson_iter_find_descendant(&at, "writeErrors.0.errmsg", &found) &&
                   BSON_ITER_HOLDS_UTF8(&found)
               ? bson_iter_utf8(&found, NULL)
               : NULL;
}

/* Runs a statement of a transaction. As in MongoDB, a refused statement ends the transaction. */
static truce_status session_run_statement(struct call *call, struct session *session, bson_t *reply,
                                          bson_error_t *error)
{
    int64_t number = call->session.number;
    truce_status status = call->session.start
                              ? session_begin(call->server->sessions, session, number, error)
                              : session_continue(session, number, error);

    if (status)
        return session_unreached(call, status, error);
    call->store = session->transaction;
    call->owner = session->owner;
    call->relaxed = false;
    status = run_command(call, reply, error);
    if (status)
        session_abort_by(call->server->sessions, session, error->message);
    else if (call->refused)
        session_abort_by(call->server->sessions, session, session_refusal(reply));
    return status;
}

/* Runs a command of a transaction: a statement, the commit, or the abort. Takes the session for the
 * duration of the command. */
static truce_status run_in_transaction(struct call *call, bson_t *reply, bson_error_t *error)
{
    bool commits = !strcmp(call->command->name, "commitTransaction");
    bool ends = commits || !strcmp(call->command->name, "abortTransaction");
    struct session *session;
    truce_status status = check_form(call, error);

    if (!status && ends)
        status = call_no_fields(call, error);
    if (status)
        return status;
    status = session_take(call, &session, error);
    if (status) {
        call->unknown = commits && truce__unanswered(status);
        return commits ? status : session_unreached(call, status, error);
    }
    if (ends)
        status = session_end_transaction(call, session, commits, error);
    else
        status = session_run_statement(call, session, reply, error);
    sessions_return(call->server->sessions, session);
    return status;
}

/* ---- retryable writes ------------------------------------------------------------------------ */

/* Checks that a command with txnNumber and without a transaction is a retryable write, and that the
 * store can record it. */
static truce_status check_retryable(const struct call *call, bson_error_t *error)
{
    if (!(call->store->capabilities & TRUCE_CAN_RECEIPT))
        return truce__refuse(CODE_ILLEGAL_OPERATION, error,
                             "Transaction numbers are only allowed on a replica set member or "
                             "mongos");
    if (!call->session.given)
        return truce__refuse(CODE_INVALID_OPTIONS, error, "txnNumber needs a session (lsid)");
    if (!(call->command->traits & COMMAND_RETRIES))
        return truce__refuse(CODE_NOT_RETRYABLE, error,
                             "'%s' does not accept txnNumber: it is not a retryable write. In a "
                             "transaction, send autocommit: false",
                             call->command->name);
    return TRUCE_OK;
}

static truce_status run_retryable(struct call *call, struct session *session, bson_t *reply,
                                  bool *stale, bson_error_t *error)
{
    truce_status status = retryable_begin(call, session, call->session.statement,
                                          call->session.statements, &call->retryable, error);

    if (!status)
        status = run_command(call, reply, error);
    call->unknown = status == TRUCE_UNKNOWN;
    retryable_end(call->retryable, status, stale);
    call->retryable = NULL;
    return status;
}

/* Runs the command, and runs it again while another server of the same store has written for the
 * session in the meantime, at most RECORD_TRIES times in all. */
static truce_status run_retryable_again(struct call *call, struct session *session, bson_t *reply,
                                        bson_error_t *error)
{
    bool stale = true;
    truce_status status = TRUCE_OK;

    for (int i = 0; i < RECORD_TRIES && stale; i++) {
        bson_reinit(reply);
        status = run_retryable(call, session, reply, &stale, error);
    }
    return status;
}

/* ---- snapshots ------------------------------------------------------------------------------- */

static truce_status run_in_snapshot(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct snapshot_registry *registry = call->server->snapshots;
    truce_status status = snapshot_registry_take(registry, call->time, &call->read_snapshot, error);

    if (status)
        return status;
    call->store = call->read_snapshot->view;
    status = snapshot_registry_status(run_command(call, reply, error), error);
    snapshot_registry_release(registry, call->read_snapshot);
    return status;
}

truce_status serve_in_session(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct session *session;
    truce_status status;

    if (call->session.transaction || call->session.start)
        return run_in_transaction(call, reply, error);
    if (call->session.number < 0)
        return call->snapshot ? run_in_snapshot(call, reply, error)
                              : run_command(call, reply, error);
    status = check_retryable(call, error);
    if (!status)
        status = session_take(call, &session, error);
    if (status)
        return status;
    status = session_write(call->server->sessions, session, call->session.number, error);
    if (!status)
        status = run_retryable_again(call, session, reply, error);
    sessions_return(call->server->sessions, session);
    return status;
}

truce_status serve_nothing(struct call *call, bson_t *reply, bson_error_t *error)
{
    (void)call;
    (void)reply;
    (void)error;
    return TRUCE_OK;
}

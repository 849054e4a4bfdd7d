#include "server/auth/login.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "server/auth/tokens.h"
#include "server/call/call.h"

/* ---- failures -------------------------------------------------------------------------------- */

/* Waits until the delay has ended or the client has hung up. */
static void wait_a_while(struct connection *connection)
{
    int64_t until_ns =
        truce__clock_monotonic_ns() + connection->server->login_delay_ms * INT64_C(1000000);
    struct pollfd polled = {.fd = connection->socket, .events = POLLRDHUP};
    int64_t left_ms;

    while ((left_ms = (until_ns - truce__clock_monotonic_ns()) / 1000000) > 0)
        if (poll(&polled, 1, (int)left_ms) > 0)
            return;
}

/* Logs the outcome of a login. `reason` is NULL for a success. */
static void login_report(struct call *call, truce_log_level level, const char *message,
                         const char *name, const char *database, const char *mechanism,
                         const char *reason)
{
    const struct connection *connection = call->connection;
    bson_t *fields = BCON_NEW("user", BCON_UTF8(name), "db", BCON_UTF8(database), "mechanism",
                              BCON_UTF8(mechanism), "from", BCON_UTF8(connection->peer));

    if (connection->app[0])
        BSON_APPEND_UTF8(fields, "app", connection->app);
    if (reason)
        BSON_APPEND_UTF8(fields, "reason", reason);
    log_write(call->server->log, level, LOG_ACCESS, connection->number, message, fields);
    bson_destroy(fields);
}

static void login_forget(struct login *login)
{
    if (login->scram)
        scram_wipe(login->scram, sizeof *login->scram);
    bson_free(login->scram);
    bson_free(login->asking);
    login->scram = NULL;
    login->asking = NULL;
    login->proved = false;
}

static truce_status login_refuse(bson_error_t *error)
{
    return truce__refuse(CODE_AUTHENTICATION_FAILED, error, "Authentication failed.");
}

/* Fails the login after a delay. The client does not get the reason; the log does. If too many
 * replies are being delayed, ends the connection instead, and logs nothing. */
static truce_status login_fail(struct call *call, const char *database, const char *reason,
                               bson_error_t *error)
{
    struct login *login = &call->connection->login;
    const char *name = login->scram ? login->scram->name : "";
    const char *mechanism = login->scram ? scram_name(login->scram->credential.mechanism) : "";
    bool waits = atomic_fetch_add(&call->server->delayed, 1) < TRUCE_LOGIN_DELAYED_MAX;

    atomic_fetch_add(&call->server->logins_failed, 1);
    if (waits) {
        login_report(call, TRUCE_LOG_WARNING, "login failed", name,
                     login->asking ? login->asking->database : database, mechanism,
                     login->asking || !login->scram
                         ? reason
                         : "the user does not exist, or has no credentials for this mechanism");
        wait_a_while(call->connection);
    }
    atomic_fetch_sub(&call->server->delayed, 1);
    call->connection->ends = call->connection->ends || !waits;
    login_forget(login);
    return login_refuse(error);
}

/* ---- the conversation ------------------------------------------------------------------------ */

static void login_append_answer(const char *text, bool done, bson_t *reply)
{
    BSON_APPEND_INT32(reply, "conversationId", 1);
    BSON_APPEND_BOOL(reply, "done", done);
    BSON_APPEND_BINARY(reply, "payload", BSON_SUBTYPE_BINARY, (const uint8_t *)text,
                       (uint32_t)strlen(text));
}

void login_digest(const bson_t *document, uint8_t digest[SHA256_BYTES])
{
    truce__sha256(bson_get_data(document), document->len, digest);
}

/* Reads the user and its keys for the mechanism. For an unknown user, or one without such keys,
 * returns keys that no password matches. Sets `lacks` if the user exists and has other mechanisms
 * only. */
static truce_status login_look_up(struct call *call, const char *database, bool *lacks,
                                  bson_error_t *error)
{
    struct login *login = &call->connection->login;
    struct scram *scram = login->scram;
    struct user *user = bson_malloc0(sizeof *user);
    bson_t document;
    truce_status status = users_read(call->server->store, database, scram->name, &document, error);

    *lacks =
        !status && users_load(&document, user) && !users_credential(&document, &scram->credential);
    login_digest(&document, login->document);
    if (!status && !*lacks && user->name[0]) {
        login->asking = user;
    } else {
        bson_free(user);
        scram_unknown_user(scram->credential.mechanism, call->server->secret, database, scram->name,
                           &scram->credential);
    }
    bson_destroy(&document);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

struct start {
    const char *mechanism;
    const uint8_t *payload;
    uint32_t size;
    /* The option skipEmptyExchange: the exchange ends without an empty message of the client. */
    bool brief;
};

/* Ignores unknown fields, because drivers send some. */
static void login_read_start(const bson_t *document, struct start *start)
{
    bson_iter_t at, option;

    *start = (struct start){.mechanism = ""};
    if (!bson_iter_init(&at, document))
        return;
    while (bson_iter_next(&at)) {
        const char *key = bson_iter_key(&at);

        if (!strcmp(key, "mechanism") && BSON_ITER_HOLDS_UTF8(&at))
            start->mechanism = bson_iter_utf8(&at, NULL);
        else if (!strcmp(key, "payload") && BSON_ITER_HOLDS_BINARY(&at))
            bson_iter_binary(&at, NULL, &start->size, &start->payload);
        else if (!strcmp(key, "options") && BSON_ITER_HOLDS_DOCUMENT(&at) &&
                 bson_iter_recurse(&at, &option) && bson_iter_find(&option, "skipEmptyExchange"))
            start->brief = truce__field_truth(&option);
    }
}

static truce_status login_check_free(const struct login *login, bson_error_t *error)
{
    return login->user ? truce__refuse(CODE_PROTOCOL_ERROR, error,
                                       "Each client connection may only be authenticated once. "
                                       "Previously authenticated as: %s@%s",
                                       login->user->name, login->user->database)
                       : TRUCE_OK;
}

truce_status login_start(struct call *call, const bson_t *document, const char *database,
                         bool early, bson_t *reply, bson_error_t *error)
{
    struct login *login = &call->connection->login;
    enum scram_mechanism mechanism;
    struct start start;
    const char *wrong;
    bool lacks;
    truce_status status = login_check_free(login, error);

    login_forget(login);
    login_read_start(document, &start);
    if (!status)
        status = truce__database_name_check(database, error);
    if (!status && !scram_mechanism_of(start.mechanism, &mechanism))
        status = truce__refuse(CODE_MECHANISM_UNAVAILABLE, error,
                               "Received authentication for mechanism %.40s which is not enabled",
                               start.mechanism);
    if (status)
        return status;
    login->scram = bson_malloc0(sizeof *login->scram);
    login->scram->credential.mechanism = mechanism;
    login->brief = start.brief;
    atomic_fetch_add(&call->server->logins, 1);
    wrong = scram_first(login->scram, start.payload, start.size);
    if (wrong)
        return login_fail(call, database, wrong, error);
    status = login_look_up(call, database, &lacks, error);
    if (!status && early && lacks)
        /* The driver then chooses another mechanism from the reply to hello. */
        status = login_refuse(error);
    if (status) {
        login_forget(login);
        return status;
    }
    scram_challenge(login->scram, NULL);
    login_append_answer(login->scram->challenge, false, reply);
    return TRUCE_OK;
}

static void login_accept(struct call *call, const char *mechanism)
{
    struct login *login = &call->connection->login;

    login->user = login->asking;
    login->asking = NULL;
    login->changes = 0;
    snprintf(login->tag, sizeof login->tag, "%s.%s", login->user->database, login->user->name);
    login_report(call, TRUCE_LOG_INFO, "login succeeded", login->user->name, login->user->database,
                 mechanism, NULL);
    login_forget(login);
}

truce_status login_continue(struct call *call, const uint8_t *payload, size_t size, bson_t *reply,
                            bson_error_t *error)
{
    struct login *login = &call->connection->login;
    const char *wrong = NULL;
    char signature[64] = "";

    if (!login->scram)
        return truce__refuse(CODE_PROTOCOL_ERROR, error, "No SASL session state found");
    if (login->proved)
        wrong = size ? "the last message is not empty" : NULL;
    else
        wrong = scram_final(login->scram, payload, size, signature);
    if (!wrong && !login->asking)
        wrong = "the user does not exist";
    if (wrong)
        return login_fail(call, call->database, wrong, error);
    login_append_answer(signature, login->proved || login->brief, reply);
    if (login->proved || login->brief)
        login_accept(call, scram_name(login->scram->credential.mechanism));
    else
        login->proved = true;
    return TRUCE_OK;
}

/* ---- by a password --------------------------------------------------------------------------- */

/* Reads the user's keys for one mechanism, and compares. For an unknown user, it compares with keys
 * that no password matches, so the duration does not reveal whether the user exists. */
static bool login_matches(struct call *call, const char *database, enum scram_mechanism mechanism,
                          const char *password, truce_status *status, bson_error_t *error)
{
    struct login *login = &call->connection->login;
    bool lacks = false, same;

    bson_free(login->asking);
    login->asking = NULL;
    login->scram->credential = (struct scram_credential){.mechanism = mechanism};
    *status = login_look_up(call, database, &lacks, error);
    same = !*status && scram_matches(&login->scram->credential, login->scram->name, password);
    return same && login->asking && !lacks;
}

truce_status login_by_password(struct connection *connection, const char *database,
                               const char *name, const char *password, bson_error_t *error)
{
    struct call call = {.server = connection->server, .connection = connection};
    struct login *login = &connection->login;
    const char *databases[] = {database, "admin"};
    size_t count = strcmp(database, "admin") ? 2 : 1;
    truce_status status = TRUCE_OK;

    login_forget(login);
    login->scram = bson_malloc0(sizeof *login->scram);
    snprintf(login->scram->name, sizeof login->scram->name, "%s", name);
    atomic_fetch_add(&connection->server->logins, 1);
    for (size_t i = 0; i < count && !users_check_name(name, NULL); i++)
        for (int mechanism = 0; mechanism < SCRAM_MECHANISMS; mechanism++) {
            if (login_matches(&call, databases[i], (enum scram_mechanism)mechanism, password,
                              &status, error)) {
                login_accept(&call, "basic");
                return TRUCE_OK;
            }
            if (status) {
                login_forget(login);
                return status;
            }
        }
    return login_fail(&call, database, "there is no such user, or the password is wrong", error);
}

/* ---- by a token ------------------------------------------------------------------------------ */

truce_status login_by_token(struct connection *connection, const char *token, int64_t *expires_ms,
                            bson_error_t *error)
{
    struct call call = {.server = connection->server, .connection = connection};
    struct login *login = &connection->login;
    struct user *user = bson_malloc0(sizeof *user);
    bson_t document;
    truce_status status;

    login_forget(login);
    atomic_fetch_add(&connection->server->logins, 1);
    status = tokens_user(connection->server->store, token, &document, expires_ms, error);
    if (!status && users_load(&document, user)) {
        login->asking = user;
        login_digest(&document, login->document);
        login_accept(&call, "token");
    } else {
        bson_free(user);
        if (!status || status == TRUCE_NOT_FOUND)
            status = login_fail(&call, "admin", "no user has the token, or it has expired", error);
    }
    bson_destroy(&document);
    return status;
}

/* ---- the user ------------------------------------------------------------------------------- */

void login_out(struct login *login)
{
    login_forget(login);
    bson_free(login->user);
    login->user = NULL;
    login->tag[0] = '\0';
}

void login_release(struct login *login)
{
    login_out(login);
}

truce_status login_refresh(struct call *call, bson_error_t *error)
{
    struct login *login = &call->connection->login;
    int64_t now_ns = truce__clock_monotonic_ns(), changes = atomic_load(&call->server->changes);
    uint8_t id[USER_ID_BYTES];
    truce_status status;
    bson_t document;

    if (!login->user || (login->changes == changes &&
                         now_ns - login->read_ns < TRUCE_LOGIN_FRESH_MS * INT64_C(1000000)))
        return TRUCE_OK;
    memcpy(id, login->user->id, sizeof id);
    status =
        users_read(call->server->store, login->user->database, login->user->name, &document, error);
    if (!status && users_load(&document, login->user) &&
        !memcmp(id, login->user->id, USER_ID_BYTES)) {
        login->read_ns = now_ns;
        login->changes = changes;
    } else if (!status || status == TRUCE_NOT_FOUND) {
        login_out(login);
        status = TRUCE_OK;
    }
    bson_destroy(&document);
    return status;
}

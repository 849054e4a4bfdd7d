#include "server/http/http_login.h"

#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/limits.h"
#include "bson/binary_text.h"
#include "server/auth/login.h"

#define BEARER "Bearer "
#define BASIC  "Basic "

/* Returns the digest of a header with the database that its user is looked up in. A token
 * belongs to one user, whatever the database. */
static void http_login_digest(const char *header, const char *database,
                              uint8_t digest[SHA256_BYTES])
{
    struct sha256 sha;

    truce__sha256_begin(&sha);
    truce__sha256_add(&sha, header, strlen(header) + 1);
    truce__sha256_add(&sha, database, strlen(database));
    truce__sha256_end(&sha, digest);
}

/* Returns whether the user's document is still what it was at the login. */
static bool http_login_is_unchanged(const struct connection *connection)
{
    const struct login *login = &connection->login;
    uint8_t digest[SHA256_BYTES];
    bson_error_t error; /* The caller verifies the header again, and reports the error of that. */
    bson_t document;
    truce_status status = users_read(connection->server->store, login->user->database,
                                     login->user->name, &document, &error);

    login_digest(&document, digest);
    bson_destroy(&document);
    return !status && !memcmp(digest, login->document, sizeof digest);
}

bool http_login_is_valid(struct http_connection *own)
{
    int64_t now_ns = truce__clock_monotonic_ns();
    int64_t changes = atomic_load(&own->connection.server->changes);

    if (!own->connection.server->auth)
        return true;
    if (!own->verified || !own->connection.login.user ||
        (own->expires_ms && own->expires_ms <= truce__clock_wall_ms()))
        return false;
    if (own->changes == changes &&
        now_ns - own->compared_ns < TRUCE_LOGIN_FRESH_MS * INT64_C(1000000))
        return true;
    if (!http_login_is_unchanged(&own->connection))
        return false;
    own->compared_ns = now_ns;
    own->changes = changes;
    return true;
}

/* Logs in by the base64 of "NAME:PASSWORD". libmicrohttpd's function for this cuts off both at a
 * zero byte, and knows the scheme in one spelling only. */
static truce_status http_login_basic(struct http_connection *own, const char *text,
                                     const char *database, bson_error_t *error)
{
    size_t length, size = 0;
    char *name, *colon = NULL;
    truce_status status;

    text += strspn(text, " ");
    length = strlen(text);
    name = bson_malloc0(length + 1);
    if (truce__base64_read(text, length, false, (uint8_t *)name, &size) && !memchr(name, 0, size))
        colon = memchr(name, ':', size);
    if (colon)
        *colon = '\0';
    status = login_by_password(&own->connection, database, colon ? name : "",
                               colon ? colon + 1 : "", error);
    scram_wipe(name, length + 1);
    bson_free(name);
    return status;
}

truce_status http_login(struct http_connection *own, struct MHD_Connection *c, const char *database,
                        bson_error_t *error)
{
    const char *header = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Authorization");
    bool bearer = header && !strncasecmp(header, BEARER, strlen(BEARER));
    bool basic = header && !strncasecmp(header, BASIC, strlen(BASIC));
    uint8_t digest[SHA256_BYTES];
    truce_status status;

    if (!header)
        return truce__refuse(CODE_UNAUTHORIZED, error,
                             "the request needs an Authorization header: Basic with the name and "
                             "password of a user, or Bearer with a token of truce user token");
    http_login_digest(header, bearer ? "" : database, digest);
    if (own->verified && !memcmp(digest, own->header, sizeof digest) && http_login_is_valid(own))
        return TRUCE_OK;
    login_out(&own->connection.login);
    own->verified = false;
    own->expires_ms = 0;
    own->changes = atomic_load(&own->connection.server->changes);
    own->compared_ns = truce__clock_monotonic_ns();
    status =
        bearer ? login_by_token(&own->connection, header + strlen(BEARER), &own->expires_ms, error)
               : http_login_basic(own, basic ? header + strlen(BASIC) : "", database, error);
    if (status)
        return status;
    memcpy(own->header, digest, sizeof digest);
    own->verified = true;
    atomic_store(&own->connection.unauthenticated, false);
    return TRUCE_OK;
}

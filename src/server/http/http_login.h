#ifndef TRUCE_SERVER_HTTP_HTTP_LOGIN_H
#define TRUCE_SERVER_HTTP_HTTP_LOGIN_H

/*
 * The login of an HTTP connection by the Authorization header of each request.
 *
 *     Authorization: Basic BASE64(NAME:PASSWORD)      a user of the request's database, or of admin
 *     Authorization: Bearer truce_...                 a token (auth/tokens.h)
 *
 * Verifying a password takes some milliseconds on purpose. So a connection remembers which header
 * it has verified, for which database, and what the user's document was.
 *
 * Invariants:
 *  1. A request runs as the user of its own header: another header, or another database with a
 *     password, is verified again.
 *  2. At most TRUCE_LOGIN_FRESH_MS after the user's document was changed or removed, also by
 *     another process, the header is verified again. A token that has expired is refused at once.
 */
#include <microhttpd.h>

#include "server/call/shared_state.h"

/* A connection, which is the server's, and what it has verified. */
struct http_connection {
    /* Must be the first field: the server knows the connection by a pointer to it. */
    struct connection connection;
    /* The client's certificate was verified. Unused if clients need none. */
    bool certified;
    /* A fault in the encoding of the current request's URL: a literal, or NULL. */
    const char *url_fault;
    /* The headers of the current request have more than one meaning, so the connection closes. */
    bool ambiguous;
    /* The digest of the header that was verified last, with its database. */
    bool verified;
    uint8_t header[SHA256_BYTES];
    /* The time when the user's document was last compared (monotonic), and the number of changes of
     * users before that. */
    int64_t compared_ns, changes;
    /* The time when the token expires, in ms since 1970. 0 means never. */
    int64_t expires_ms;
};

/* Logs the connection in as the user of the request. Fails with Unauthorized (13) without a header.
 * Otherwise fails with AuthenticationFailed (18), after the same delay as a login by SCRAM. */
truce_status http_login(struct http_connection *own, struct MHD_Connection *c, const char *database,
                        bson_error_t *error);
/* Returns whether the user, the password, and the token of the last request are still valid, for a
 * reply that takes long. */
bool http_login_is_valid(struct http_connection *own);

#endif

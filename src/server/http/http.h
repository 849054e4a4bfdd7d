#ifndef TRUCE_SERVER_HTTP_HTTP_H
#define TRUCE_SERVER_HTTP_HTTP_H

/*
 * The commands of the server over HTTP.
 *
 *     POST /v1/DATABASE/OPERATION         a JSON object; the reply is relaxed Extended JSON
 *     GET  /v1/DATABASE/watch?collection  a change stream as server-sent events
 *     GET  /v1/openapi.json               the description of all operations
 *     GET  /ui/                           the screen (http_screen.h)
 *
 * libmicrohttpd serves each connection in a thread of its own. A connection of HTTP is a
 * connection of the server: it counts for the limit, is listed, and can be ended.
 *
 * Invariants:
 *  1. A request runs as a command of the same user with the same checks as over the wire protocol.
 *  2. With --auth, no body is read before the user is known. Without it, only this machine's
 *     loopback is served.
 *  3. A request is refused if its Host is not one of the server's names, or if a page of another
 *     origin sent it. Such a page may only link to the screen. A browser that visits a foreign page
 *     must not be able to use the server.
 *  4. The size of a body and of the headers, and the number of connections, have maxima.
 *  5. A connection ends if the head of its request does not arrive in time, also if single bytes
 *     arrive.
 *  6. After a request whose headers have more than one meaning, no further request of the connection
 *     is read: its bytes may be the body of this one.
 */
#include "base/status.h"
#include "server/net/tls_stream.h"

struct http;
struct server;

struct http_options {
    /* "PORT", "ADDRESS:PORT", or "[ADDRESS]:PORT". Port 0 means any free port. */
    const char *where;
    /* The files of TLS. If `certificate` is NULL, the port is plain. */
    struct tls_files tls;
    /* Further names that a Host header may have, separated by commas, or NULL. */
    const char *hosts;
};

truce_status http_listen(struct server *server, const struct http_options *options,
                         struct http **made, bson_error_t *error);
/* Returns the URL of the port, such as "http://127.0.0.1:8080". */
const char *http_where(const struct http *http);
/* Accepts no further connections. */
void http_quiesce(struct http *http);
/* Waits for the end of all connections. NULL is allowed. */
void http_close(struct http *http);

#endif

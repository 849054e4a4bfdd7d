#include "server/admin/metrics.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include <microhttpd.h>

#include "server/call/shared_state.h"
#include "server/net/listen.h"

#define CONNECTIONS_MAX 16
#define IDLE_S          3 /* The maximum idle time of a connection, in seconds. */
/* The maximum size of the first line and the headers of a request. */
#define MEMORY_BYTES (16 * 1024)

struct metrics_port {
    struct MHD_Daemon *daemon;
    struct server *server;
    char where[64];
};

/* Queues a reply with a copy of the text. */
static enum MHD_Result port_answer(struct MHD_Connection *connection, unsigned code,
                                   const void *text, size_t size)
{
    /* The function only reads the bytes, although its type says otherwise. */
    struct MHD_Response *response =
        MHD_create_response_from_buffer(size, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
    enum MHD_Result result;

    if (!response)
        return MHD_NO;
    (void)MHD_add_response_header(response, "Content-Type",
                                  code == MHD_HTTP_OK ? "text/plain; version=0.0.4; charset=utf-8"
                                                      : "text/plain; charset=utf-8");
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED)
        (void)MHD_add_response_header(response, "Allow", "GET, HEAD");
    /* The connection closes after an error, because the rest of the request is not read. */
    if (code != MHD_HTTP_OK)
        (void)MHD_add_response_header(response, "Connection", "close");
    result = MHD_queue_response(connection, code, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result port_refuse(struct MHD_Connection *connection, unsigned code,
                                   const char *sentence)
{
    return port_answer(connection, code, sentence, strlen(sentence));
}

/* Serves one request of the port. Called after the headers, before a body. */
static enum MHD_Result port_serve(void *arg, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *body,
                                  size_t *body_size, void **state)
{
    struct metrics_port *port = arg;
    struct metrics_gauges gauges = {.cursors = (uint64_t)cursors_count(port->server->cursors),
                                    .transactions =
                                        (uint64_t)sessions_running(port->server->sessions)};
    struct buffer out = {0};
    enum MHD_Result result;

    (void)version;
    (void)body;
    (void)body_size;
    (void)state;
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return port_refuse(connection, MHD_HTTP_METHOD_NOT_ALLOWED,
                           "expected the method GET or HEAD\n");
    if (strcmp(url, "/metrics") != 0)
        return port_refuse(connection, MHD_HTTP_NOT_FOUND, "unknown path: expected /metrics\n");
    metrics_write(port->server, &gauges, &out);
    result = port_answer(connection, MHD_HTTP_OK, out.bytes, out.size);
    truce__buffer_release(&out);
    return result;
}

static truce_status port_read_where(const char *where, union listen_address *at, char *host,
                                    size_t size, bson_error_t *error)
{
    truce_status status = listen_read_where(where, at, host, size, error);

    if (!status && !listen_is_loopback(at))
        status = truce__fail(
            TRUCE_INVALID, error,
            "metrics need no login, so they are served on loopback addresses only, not on %s: for "
            "other machines, use a proxy with a login",
            host);
    return status;
}

truce_status metrics_listen(struct server *server, const char *where, struct metrics_port **made,
                            bson_error_t *error)
{
    struct metrics_port *port;
    union listen_address at = {0};
    char host[INET6_ADDRSTRLEN];
    truce_status status = port_read_where(where, &at, host, sizeof host, error);
    bool six = !status && at.any.sa_family == AF_INET6;

    *made = NULL;
    if (status)
        return status;
    port = bson_malloc0(sizeof *port);
    port->server = server;
    port->daemon = MHD_start_daemon(
        MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD | (six ? MHD_USE_IPv6 : 0), 0, NULL, NULL,
        port_serve, port, MHD_OPTION_SOCK_ADDR, &at, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MEMORY_BYTES, MHD_OPTION_END);
    if (!port->daemon) {
        status = truce__fail(TRUCE_IO, error, "cannot serve the metrics at %.80s: %s", where,
                             strerror(errno));
        bson_free(port);
        return status;
    }
    snprintf(port->where, sizeof port->where,
             six ? "http://[%s]:%d/metrics" : "http://%s:%d/metrics", host,
             MHD_get_daemon_info(port->daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
    *made = port;
    return TRUCE_OK;
}

const char *metrics_where(const struct metrics_port *port)
{
    return port->where;
}

void metrics_close(struct metrics_port *port)
{
    if (port)
        MHD_stop_daemon(port->daemon);
    bson_free(port);
}

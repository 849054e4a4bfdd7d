#include "server/admin/metrics.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include <microhttpd.h>

#include "server/call/state.h"

#define CONNECTIONS_MAX 16
#define IDLE_S          3           /* that a connection may be */
#define MEMORY_BYTES    (16 * 1024) /* of one: its lines and headers, longer ones are refused */

struct metrics_port {
    struct MHD_Daemon *daemon;
    struct server *server;
    char where[64];
};

static enum MHD_Result port_answer(struct MHD_Connection *connection, unsigned code,
                                   const void *text, size_t size)
{
    /* it takes what it only reads as if it wrote */
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
    if (code != MHD_HTTP_OK) /* whatever else it sends is not read */
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

/* Called when the headers are there, before a body. */
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
        return port_refuse(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n");
    if (strcmp(url, "/metrics") != 0)
        return port_refuse(connection, MHD_HTTP_NOT_FOUND, "there is /metrics, and nothing else\n");
    metrics_write(port->server, &gauges, &out);
    result = port_answer(connection, MHD_HTTP_OK, out.bytes, out.size);
    truce__buffer_release(&out);
    return result;
}

/* "9216", "127.0.0.1:9216" */
static truce_status read_where(const char *where, struct sockaddr_in *at, bson_error_t *error)
{
    const char *colon = strchr(where, ':'), *digits = colon ? colon + 1 : where;
    char address[80] = "127.0.0.1";
    long port = 0;

    if (colon) /* what is cut is no address either */
        snprintf(address, sizeof address, "%.*s", (int)(colon - where), where);
    for (const char *c = digits; *c >= '0' && *c <= '9' && port <= UINT16_MAX; c++)
        port = port * 10 + (*c - '0');
    if (!*digits || strspn(digits, "0123456789") != strlen(digits) || port > UINT16_MAX)
        return truce__fail(
            TRUCE_INVALID, error,
            "invalid address of the metrics \"%.80s\": expected PORT or ADDRESS:PORT", where);
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, address, &at->sin_addr) != 1)
        return truce__fail(TRUCE_INVALID, error, "\"%.80s\" is not an IPv4 address", address);
    if (ntohl(at->sin_addr.s_addr) >> 24 != 127)
        return truce__fail(
            TRUCE_INVALID, error,
            "metrics are served on loopback addresses only, as they need no login, not on "
            "%s: for other machines, put a proxy with a login before them",
            address);
    return TRUCE_OK;
}

truce_status metrics_listen(struct server *server, const char *where, struct metrics_port **made,
                            bson_error_t *error)
{
    struct metrics_port *port;
    char address[INET_ADDRSTRLEN] = "";
    struct sockaddr_in at;
    truce_status status = read_where(where, &at, error);

    *made = NULL;
    if (status)
        return status;
    port = bson_malloc0(sizeof *port);
    port->server = server;
    port->daemon =
        MHD_start_daemon(MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, port_serve,
                         port, MHD_OPTION_SOCK_ADDR, &at, MHD_OPTION_CONNECTION_LIMIT,
                         (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S,
                         MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MEMORY_BYTES, MHD_OPTION_END);
    if (!port->daemon) {
        status = truce__fail(TRUCE_IO, error, "cannot serve the metrics at %.80s: %s", where,
                             strerror(errno));
        bson_free(port);
        return status;
    }
    inet_ntop(AF_INET, &at.sin_addr, address, sizeof address);
    snprintf(port->where, sizeof port->where, "http://%s:%d/metrics", address,
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

#include "server/http/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <microhttpd.h>

#include "base/limits.h"
#include "base/sha256.h"
#include "operations/named_request.h"
#include "server/auth/login.h"
#include "server/call/state.h"
#include "server/http/http_watch.h"
#include "server/net/connections.h"
#include "server/net/wire.h"
#include "truce/json.h"

#define IDLE_S       120         /* of a connection between two requests */
#define MEMORY_BYTES (32 * 1024) /* of one connection: its lines and headers */
#define NAME_MAX_    300         /* bytes of a Host */

struct http {
    struct MHD_Daemon *daemon;
    struct server *server;
    bool tls;
    char where[NAME_MAX_ + 32];
    /* The names that a Host may have, lower case, without ports: between commas, also at
     * both ends. */
    char *hosts;
    /* The description of the operations. */
    char *openapi;
    /* PEM files, which the daemon borrows. */
    char *certificate, *key, *client_ca;
};

/* A connection, which is the server's, and the digest of the credentials that it has logged
 * in with. */
struct http_connection {
    struct connection connection; /* first */
    bool has_credentials;
    uint8_t credentials[SHA256_BYTES];
};

/* One request. */
struct exchange {
    struct buffer body;
    bool too_large;
    const struct operation_row *row;
    char database[DATABASE_NAME_MAX + 1];
    bool watches;
};

/* ---- answers ------------------------------------------------------------------------------------ */

static enum MHD_Result http_send(struct MHD_Connection *c, unsigned code, const char *type,
                                 const void *text, size_t size)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(size, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
    enum MHD_Result result;

    if (!response)
        return MHD_NO;
    (void)MHD_add_response_header(response, "Content-Type", type);
    (void)MHD_add_response_header(response, "Cache-Control", "no-store");
    (void)MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (code == MHD_HTTP_UNAUTHORIZED)
        (void)MHD_add_response_header(response, "WWW-Authenticate",
                                      "Basic realm=\"truce\", charset=\"UTF-8\"");
    if (code == MHD_HTTP_SERVICE_UNAVAILABLE)
        (void)MHD_add_response_header(response, "Retry-After", "1");
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED)
        (void)MHD_add_response_header(response, "Allow", "GET, HEAD, POST");
    result = MHD_queue_response(c, code, response);
    MHD_destroy_response(response);
    return result;
}

enum MHD_Result http_send_document(struct MHD_Connection *c, unsigned code, const bson_t *document)
{
    char *json = truce_json_write(document, false, TRUCE_JSON_RELAXED);
    size_t size = strlen(json);
    enum MHD_Result result;

    json = bson_realloc(json, size + 2);
    memcpy(json + size, "\n", 2);
    result = http_send(c, code, "application/json", json, size + 1);
    bson_free(json);
    return result;
}

/* An error of HTTP itself, in the form of the errors of commands. */
static enum MHD_Result http_refuse(struct MHD_Connection *c, unsigned code, uint32_t number,
                                   const char *name, const char *message)
{
    bson_t *document = BCON_NEW("ok", BCON_DOUBLE(0), "errmsg", BCON_UTF8(message), "code",
                                BCON_INT32((int32_t)number), "codeName", BCON_UTF8(name), "status",
                                BCON_UTF8(code == MHD_HTTP_NOT_FOUND ? "not found" : "invalid"));
    enum MHD_Result result = http_send_document(c, code, document);

    bson_destroy(document);
    return result;
}

enum MHD_Result http_bad(struct MHD_Connection *c, const char *message)
{
    return http_refuse(c, MHD_HTTP_BAD_REQUEST, CODE_BAD_VALUE, "BadValue", message);
}

/* The status of HTTP for the reply of a command. */
unsigned http_code(const bson_t *reply)
{
    static const struct {
        const char *status;
        unsigned code;
    } classes[] = {{"not found", MHD_HTTP_NOT_FOUND},
                   {"duplicate", MHD_HTTP_CONFLICT},
                   {"conflict", MHD_HTTP_CONFLICT},
                   {"expired", MHD_HTTP_CONFLICT},
                   {"refused", MHD_HTTP_UNPROCESSABLE_CONTENT},
                   {"limit reached", MHD_HTTP_UNPROCESSABLE_CONTENT},
                   {"locked", MHD_HTTP_SERVICE_UNAVAILABLE},
                   {"timeout", MHD_HTTP_SERVICE_UNAVAILABLE},
                   {"outcome unknown", MHD_HTTP_GATEWAY_TIMEOUT},
                   {"I/O error", MHD_HTTP_INTERNAL_SERVER_ERROR},
                   {"corrupt", MHD_HTTP_INTERNAL_SERVER_ERROR}};
    bson_iter_t at;
    int32_t code = 0;

    if (bson_iter_init_find(&at, reply, "ok") && bson_iter_as_double(&at) == 1)
        return MHD_HTTP_OK;
    if (bson_iter_init_find(&at, reply, "code"))
        code = (int32_t)bson_iter_as_int64(&at);
    switch (code) {
    case CODE_UNAUTHORIZED:
        return MHD_HTTP_FORBIDDEN;
    case CODE_AUTHENTICATION_FAILED:
        return MHD_HTTP_UNAUTHORIZED;
    case CODE_COMMAND_NOT_FOUND:
    case CODE_NAMESPACE_NOT_FOUND:
        return MHD_HTTP_NOT_FOUND;
    case CODE_DUPLICATE_KEY:
        return MHD_HTTP_CONFLICT;
    default:
        break;
    }
    if (bson_iter_init_find(&at, reply, "status") && BSON_ITER_HOLDS_UTF8(&at))
        for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
            if (!strcmp(bson_iter_utf8(&at, NULL), classes[i].status))
                return classes[i].code;
    return MHD_HTTP_BAD_REQUEST;
}

/* ---- who may ask -------------------------------------------------------------------------------- */

/* Returns the length of the host in "HOST:PORT", "[ADDRESS]:PORT", or "HOST". */
static size_t http_host_size(const char *authority)
{
    const char *end = authority[0] == '[' ? strchr(authority, ']') : NULL;

    return end ? (size_t)(end - authority) + 1 : strcspn(authority, ":");
}

/* I3 */
static bool http_knows_host(const struct http *http, const char *authority)
{
    size_t size = http_host_size(authority);
    char name[NAME_MAX_ + 2];

    if (!size || size >= NAME_MAX_ || memchr(authority, ',', size))
        return false;
    name[0] = ',';
    for (size_t i = 0; i < size; i++) {
        char byte = authority[i];

        name[i + 1] = byte >= 'A' && byte <= 'Z' ? (char)(byte - 'A' + 'a') : byte;
    }
    name[size + 1] = ',';
    name[size + 2 < sizeof name ? size + 2 : sizeof name - 1] = '\0';
    return strstr(http->hosts, name) != NULL;
}

/* A page of this origin, or no page. */
static bool http_is_own_origin(struct MHD_Connection *c, const char *host)
{
    const char *origin = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Origin"),
               *site = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Sec-Fetch-Site");
    const char *authority = origin ? strstr(origin, "://") : NULL;

    if (site && strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0)
        return false;
    return !origin || (authority && !strcasecmp(authority + 3, host));
}

/* Returns whether the request may go on; if not, it was answered. */
static bool http_check_source(const struct http *http, struct MHD_Connection *c,
                              enum MHD_Result *result)
{
    const char *host = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Host");

    if (!host || !http_knows_host(http, host)) {
        *result = http_refuse(c, MHD_HTTP_MISDIRECTED_REQUEST, CODE_UNAUTHORIZED, "Unauthorized",
                              "the Host of the request is not a name of this server: --http-host "
                              "NAME adds one");
        return false;
    }
    if (!http_is_own_origin(c, host)) {
        *result = http_refuse(c, MHD_HTTP_FORBIDDEN, CODE_UNAUTHORIZED, "Unauthorized",
                              "a page of another origin sent the request");
        return false;
    }
    return true;
}

static void http_digest(const char *text, uint8_t digest[SHA256_BYTES])
{
    struct sha256 sha;

    truce__sha256_begin(&sha);
    truce__sha256_add(&sha, text, strlen(text));
    truce__sha256_end(&sha, digest);
}

/* Logs in by the Authorization header, unless the connection has logged in by the same one. */
static bool http_log_in(struct http_connection *own, struct MHD_Connection *c, const char *database,
                        bson_error_t *error)
{
    const char *header = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Authorization");
    uint8_t digest[SHA256_BYTES];
    char *name, *password = NULL;
    truce_status status;

    if (!header)
        return !truce__refuse(CODE_UNAUTHORIZED, error,
                              "the request needs basic authentication by a user of the server");
    http_digest(header, digest);
    if (own->connection.login.user && own->has_credentials &&
        !memcmp(digest, own->credentials, sizeof digest))
        return true;
    login_out(&own->connection.login);
    own->has_credentials = false;
    name = MHD_basic_auth_get_username_password(c, &password);
    status = login_by_password(&own->connection, database, name ? name : "",
                               password ? password : "", error);
    if (password)
        scram_wipe(password, strlen(password));
    MHD_free(name);
    MHD_free(password);
    if (status)
        return false;
    memcpy(own->credentials, digest, sizeof digest);
    own->has_credentials = true;
    atomic_store(&own->connection.stranger, false);
    return true;
}

/* ---- requests ----------------------------------------------------------------------------------- */

/* Reads /v1/DATABASE/NAME. */
static bool http_read_path(const char *url, struct exchange *exchange, const char **name)
{
    const char *database = url + 4, *slash;

    if (strncmp(url, "/v1/", 4) != 0 || !(slash = strchr(database, '/')) || slash == database ||
        slash - database > DATABASE_NAME_MAX || strchr(slash + 1, '/'))
        return false;
    memcpy(exchange->database, database, (size_t)(slash - database));
    exchange->database[slash - database] = '\0';
    *name = slash + 1;
    return true;
}

static struct http_connection *http_own(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info ? info->socket_context : NULL;
}

/* Decides about a request by its headers; *answered: it needs no body. */
static enum MHD_Result http_begin(struct http *http, struct http_connection *own,
                                  struct MHD_Connection *c, const char *url, const char *method,
                                  struct exchange *exchange, bool *answered)
{
    bool reads = !strcmp(method, "GET") || !strcmp(method, "HEAD");
    enum MHD_Result result = MHD_YES;
    bson_error_t error = {0};
    const char *name;

    *answered = true;
    if (!http_check_source(http, c, &result))
        return result;
    if (!reads && strcmp(method, "POST") != 0)
        return http_refuse(c, MHD_HTTP_METHOD_NOT_ALLOWED, CODE_BAD_VALUE, "BadValue",
                           "the methods are POST and GET");
    if (reads && !strcmp(url, "/v1/openapi.json"))
        return http_send(c, MHD_HTTP_OK, "application/json", http->openapi, strlen(http->openapi));
    if (!http_read_path(url, exchange, &name))
        return http_refuse(c, MHD_HTTP_NOT_FOUND, CODE_COMMAND_NOT_FOUND, "CommandNotFound",
                           "the paths are /v1/DATABASE/OPERATION and /v1/openapi.json");
    exchange->watches = reads && !strcmp(name, "watch");
    exchange->row = truce__named_request_row(name);
    if (!exchange->watches && !exchange->row)
        return http_refuse(c, MHD_HTTP_NOT_FOUND, CODE_COMMAND_NOT_FOUND, "CommandNotFound",
                           "no operation has this name: /v1/openapi.json describes them");
    if (reads && !exchange->watches)
        return http_refuse(c, MHD_HTTP_METHOD_NOT_ALLOWED, CODE_BAD_VALUE, "BadValue",
                           "an operation is sent by POST");
    if (http->server->auth && !http_log_in(own, c, exchange->database, &error))
        return http_refuse(c, MHD_HTTP_UNAUTHORIZED, CODE_AUTHENTICATION_FAILED,
                           "AuthenticationFailed", error.message);
    *answered = false;
    return MHD_YES;
}

static enum MHD_Result http_run(struct http_connection *own, struct MHD_Connection *c,
                                const struct exchange *exchange)
{
    static const char none[] = "{}";
    bool empty = !exchange->body.size;
    struct wire_request request = {0};
    bson_error_t error = {0};
    bson_t body, reply;
    enum MHD_Result result;
    truce_status status =
        truce_json_read(empty ? none : (const char *)exchange->body.bytes,
                        empty ? 2 : exchange->body.size, TRUCE_JSON_STRICT, &body, NULL, &error);

    if (!status)
        status = truce__named_request_command(exchange->row, exchange->database, &body,
                                              &request.body, &error);
    else
        bson_init(&request.body);
    bson_destroy(&body);
    if (status) {
        bson_destroy(&request.body);
        return http_bad(c, error.message);
    }
    own->connection.server->dispatch(&own->connection, &request, &reply);
    bson_destroy(&request.body);
    result = http_send_document(c, http_code(&reply), &reply);
    bson_destroy(&reply);
    return result;
}

static enum MHD_Result http_handle(void *arg, struct MHD_Connection *c, const char *url,
                                   const char *method, const char *version, const char *data,
                                   size_t *size, void **state)
{
    struct http *http = arg;
    struct http_connection *own = http_own(c);
    struct exchange *exchange = *state;
    bool answered;
    enum MHD_Result result;

    (void)version;
    if (!own)
        return http_refuse(c, MHD_HTTP_SERVICE_UNAVAILABLE, CODE_BAD_VALUE, "BadValue",
                           "the server has too many connections, or is stopping");
    if (!exchange) {
        *state = exchange = bson_malloc0(sizeof *exchange);
        result = http_begin(http, own, c, url, method, exchange, &answered);
        return answered ? result : MHD_YES;
    }
    if (*size) { /* I4 */
        exchange->too_large =
            exchange->too_large || exchange->body.size + *size > TRUCE_MESSAGE_BYTES_MAX;
        if (!exchange->too_large)
            truce__buffer_append(&exchange->body, data, *size);
        *size = 0;
        return MHD_YES;
    }
    if (exchange->too_large)
        return http_refuse(c, MHD_HTTP_CONTENT_TOO_LARGE, CODE_BAD_VALUE, "BadValue",
                           "the body is larger than a message may be");
    return exchange->watches ? http_watch(c, &own->connection, exchange->database)
                             : http_run(own, c, exchange);
}

static void http_completed(void *arg, struct MHD_Connection *c, void **state,
                           enum MHD_RequestTerminationCode why)
{
    struct exchange *exchange = *state;

    (void)arg;
    (void)c;
    (void)why;
    if (exchange)
        truce__buffer_release(&exchange->body);
    bson_free(exchange);
    *state = NULL;
}

/* ---- connections -------------------------------------------------------------------------------- */

static void http_connected(void *arg, struct MHD_Connection *c, void **context,
                           enum MHD_ConnectionNotificationCode code)
{
    struct http *http = arg;
    struct http_connection *own = *context;
    const union MHD_ConnectionInfo *info;

    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        *context = NULL;
        if (own)
            connection_leave(&own->connection);
        return;
    }
    own = bson_malloc0(sizeof *own);
    info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    own->connection.socket = info ? info->connect_fd : -1;
    own->connection.borrowed = true;
    info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (!connection_join(http->server, &own->connection, info ? info->client_addr : NULL)) {
        bson_free(own);
        own = NULL;
    }
    *context = own;
}

/* ---- the address -------------------------------------------------------------------------------- */

/* Reads "8080", "127.0.0.1:8080", or "[::1]:8080". */
static truce_status http_read_where(const char *where, struct sockaddr_storage *at, char *host,
                                    size_t host_size, bson_error_t *error)
{
    const char *colon = strrchr(where, ':'), *port = colon ? colon + 1 : where;
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
                             .ai_socktype = SOCK_STREAM},
                    *found;
    size_t size = colon ? (size_t)(colon - where) : 0;
    bool brackets = size > 2 && where[0] == '[' && where[size - 1] == ']';

    snprintf(host, host_size, "%.*s", (int)(brackets ? size - 2 : size), where + brackets);
    if (!size)
        snprintf(host, host_size, "127.0.0.1");
    if (!*port || strspn(port, "0123456789") != strlen(port) || strlen(port) > 5 ||
        strtol(port, NULL, 10) > UINT16_MAX || getaddrinfo(host, port, &hints, &found))
        return truce__fail(TRUCE_INVALID, error,
                           "invalid address \"%.80s\": expected PORT, ADDRESS:PORT, or "
                           "[ADDRESS]:PORT",
                           where);
    memcpy(at, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return TRUCE_OK;
}

static bool http_is_loopback(const struct sockaddr_storage *at)
{
    const struct sockaddr_in *four = (const struct sockaddr_in *)at;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)at;

    return at->ss_family == AF_INET ? ntohl(four->sin_addr.s_addr) >> 24 == 127
                                    : IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
}

static truce_status http_read_file(const char *path, char **text, bson_error_t *error)
{
    struct buffer bytes = {0};
    FILE *file = fopen(path, "re");
    char part[4096];
    size_t size;

    if (!file)
        return truce__fail(TRUCE_INVALID, error, "cannot read %s: %s", path, strerror(errno));
    while ((size = fread(part, 1, sizeof part, file)) > 0)
        truce__buffer_append(&bytes, part, size);
    (void)fclose(file);
    truce__buffer_append_byte(&bytes, 0);
    *text = (char *)bytes.bytes;
    return TRUCE_OK;
}

static truce_status http_read_tls(struct http *http, const struct tls_files *files,
                                  bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    http->tls = files->certificate != NULL;
    if (http->tls)
        status = http_read_file(files->certificate, &http->certificate, error);
    if (!status && http->tls)
        status = http_read_file(files->key ? files->key : files->certificate, &http->key, error);
    if (!status && files->client_ca)
        status = http_read_file(files->client_ca, &http->client_ca, error);
    return status;
}

static void http_free(struct http *http)
{
    if (http->key)
        scram_wipe(http->key, strlen(http->key));
    bson_free(http->certificate);
    bson_free(http->key);
    bson_free(http->client_ca);
    bson_free(http->hosts);
    bson_free(http->openapi);
    bson_free(http);
}

static void http_describe(struct http *http)
{
    bson_t document;

    truce__openapi(&document);
    http->openapi = truce_json_write(&document, false, TRUCE_JSON_RELAXED);
    bson_destroy(&document);
}

static struct MHD_Daemon *http_start(struct http *http, const struct sockaddr_storage *at)
{
    unsigned flags = MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD |
                     MHD_USE_POLL | (at->ss_family == AF_INET6 ? MHD_USE_IPv6 : 0) |
                     (http->tls ? MHD_USE_TLS : 0);
    struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, http->certificate},
                                   {MHD_OPTION_HTTPS_MEM_KEY, 0, http->key},
                                   {MHD_OPTION_END, 0, NULL},
                                   {MHD_OPTION_END, 0, NULL}};
    struct MHD_OptionItem plain[] = {{MHD_OPTION_END, 0, NULL}};

    if (http->client_ca)
        tls[2] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_TRUST, 0, http->client_ca};
    return MHD_start_daemon(flags, 0, NULL, NULL, http_handle, http, MHD_OPTION_SOCK_ADDR, at,
                            MHD_OPTION_CONNECTION_LIMIT, (unsigned)http->server->connections_max,
                            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S,
                            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MEMORY_BYTES,
                            MHD_OPTION_NOTIFY_COMPLETED, http_completed, http,
                            MHD_OPTION_NOTIFY_CONNECTION, http_connected, http, MHD_OPTION_ARRAY,
                            http->tls ? tls : plain, MHD_OPTION_END);
}

truce_status http_listen(struct server *server, const struct http_options *options,
                         struct http **made, bson_error_t *error)
{
    struct sockaddr_storage at = {0};
    char host[NAME_MAX_];
    struct http *http;
    truce_status status = http_read_where(options->where, &at, host, sizeof host, error);

    *made = NULL;
    if (!status && !server->auth && !http_is_loopback(&at)) /* I2 */
        status = truce__fail(TRUCE_INVALID, error,
                             "on %s the server listens with --auth only, as other machines can "
                             "connect there",
                             host);
    if (status)
        return status;
    http = bson_malloc0(sizeof *http);
    http->server = server;
    http->hosts = bson_strdup_printf(
        ",localhost,127.0.0.1,[::1],%s%s%s,%s,", strchr(host, ':') ? "[" : "", host,
        strchr(host, ':') ? "]" : "", options->hosts ? options->hosts : "");
    http_describe(http);
    status = http_read_tls(http, &options->tls, error);
    if (!status) {
        errno = 0;
        http->daemon = http_start(http, &at);
        if (!http->daemon)
            status =
                truce__fail(TRUCE_IO, error, "cannot serve HTTP at %.80s: %s", options->where,
                            errno ? strerror(errno) : "the certificate or the key is not valid");
    }
    if (status) {
        http_free(http);
        return status;
    }
    snprintf(http->where, sizeof http->where, "%s://%s%s%s:%d", http->tls ? "https" : "http",
             strchr(host, ':') ? "[" : "", host, strchr(host, ':') ? "]" : "",
             MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
    *made = http;
    return TRUCE_OK;
}

const char *http_where(const struct http *http)
{
    return http->where;
}

void http_quiesce(struct http *http)
{
    MHD_socket listener = http ? MHD_quiesce_daemon(http->daemon) : MHD_INVALID_SOCKET;

    if (listener != MHD_INVALID_SOCKET)
        (void)close(listener);
}

void http_close(struct http *http)
{
    if (!http)
        return;
    MHD_stop_daemon(http->daemon);
    http_free(http);
}

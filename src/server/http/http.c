#include "server/http/http.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <microhttpd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/thread.h"
#include "bson/binary_text.h"
#include "operations/named_request.h"
#include "server/call/shared_state.h"
#include "server/http/http_event_stream.h"
#include "server/http/http_login.h"
#include "server/http/http_screen.h"
#include "server/net/connections.h"
#include "server/net/listen.h"
#include "server/net/wire_protocol.h"
#include "truce/json.h"

#define IDLE_S 120 /* The maximum idle time between two requests, in seconds. */
/* The maximum size of the first line and the headers of a request. */
#define MEMORY_BYTES (32 * 1024)
#define NAME_MAX_    300 /* The maximum size of a Host. */
#define WATCH_MS     500 /* The interval between two checks for late requests. */
/* A connection beyond the maximum number has this time, in seconds, to send a request and get its
 * refusal. */
#define REFUSED_S 3
/* The maximum number of such connections at a time. */
#define REFUSED_MAX       100
#define FILE_MAX          (1 << 20) /* The maximum size of a PEM file. */

#define ALLOW_DESCRIPTION "GET, HEAD"
#define ALLOW_OPERATION   "POST"
#define ALLOW_WATCH       "GET"

struct http {
    struct MHD_Daemon *daemon;
    struct server *server;
    /* The listening socket after http_quiesce, or MHD_INVALID_SOCKET before. */
    MHD_socket listener;
    bool tls;
    /* The URL of the port, for the log and for users. */
    char where[NAME_MAX_ + 32];
    /* The names that a Host may have, in lower case and without ports: ",NAME,NAME,". */
    char *hosts;
    /* The reply to GET /v1/openapi.json. */
    char *openapi;
    /* The contents of PEM files, which the daemon borrows. */
    char *certificate, *key, *client_ca;
    /* The thread that ends connections whose request is late. */
    pthread_t watch;
    /* Guards `closes`. The threads of requests read only fields that are set before the daemon
     * starts. */
    pthread_mutex_t mutex;
    /* Signaled when `closes` becomes true. */
    pthread_cond_t closing;
    /* `watches`: the thread `watch` exists. `closes`: it must end. */
    bool watches, closes;
};

/* One request. */
struct exchange {
    /* The body so far, and the number of bytes that have arrived, also those over the maximum. */
    struct buffer body;
    uint64_t received;
    /* The operation of the path, or NULL for a stream or a file. */
    const struct operation_row *row;
    char database[DATABASE_NAME_MAX + 1];
    /* The request is for a stream of events. */
    bool watches;
    /* The request is for a file of the screen. */
    bool screen;
};

/* ---- replies --------------------------------------------------------------------------------- */

static struct http_connection *http_own(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info ? info->socket_context : NULL;
}

/* Returns whether a script of a page sent the request. A page has its own form for logins, so the
 * browser is not asked to show one. */
static bool http_is_script(struct MHD_Connection *c)
{
    const char *mode = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Sec-Fetch-Mode");

    return mode && strcmp(mode, "navigate") != 0;
}

/* Sends JSON. `allowed` has the methods of the path if the method was refused; otherwise it is
 * NULL, and the header is omitted. */
static enum MHD_Result http_send(struct MHD_Connection *c, unsigned code, const char *allowed,
                                 const void *text, size_t size)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(size, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
    const struct http_connection *own = http_own(c);
    enum MHD_Result result;

    if (!response)
        return MHD_NO;
    (void)MHD_add_response_header(response, "Content-Type", "application/json");
    (void)MHD_add_response_header(response, "Cache-Control", "no-store");
    (void)MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (code == MHD_HTTP_UNAUTHORIZED && !http_is_script(c)) {
        (void)MHD_add_response_header(response, "WWW-Authenticate",
                                      "Basic realm=\"truce\", charset=\"UTF-8\"");
        (void)MHD_add_response_header(response, "WWW-Authenticate", "Bearer realm=\"truce\"");
    }
    if (code == MHD_HTTP_SERVICE_UNAVAILABLE)
        (void)MHD_add_response_header(response, "Retry-After", "1");
    /* A connection that is one too many must close to make room. */
    if (!own || own->ambiguous)
        (void)MHD_add_response_header(response, "Connection", "close");
    if (allowed)
        (void)MHD_add_response_header(response, "Allow", allowed);
    result = MHD_queue_response(c, code, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result http_send_json(struct MHD_Connection *c, unsigned code, const char *allowed,
                                      const bson_t *document)
{
    char *json = truce_json_write(document, false, TRUCE_JSON_RELAXED);
    size_t size = strlen(json);
    enum MHD_Result result;

    json = bson_realloc(json, size + 2);
    memcpy(json + size, "\n", 2);
    result = http_send(c, code, allowed, json, size + 1);
    bson_free(json);
    return result;
}

/* Returns the class of an error of HTTP itself. */
static const char *http_class(unsigned code)
{
    switch (code) {
    case MHD_HTTP_NOT_FOUND:
        return truce_status_name(TRUCE_NOT_FOUND);
    case MHD_HTTP_UNAUTHORIZED:
    case MHD_HTTP_FORBIDDEN:
    case MHD_HTTP_MISDIRECTED_REQUEST:
        return truce__class_name(TRUCE_INVALID, CODE_UNAUTHORIZED);
    case MHD_HTTP_SERVICE_UNAVAILABLE:
        return truce_status_name(TRUCE_LOCKED);
    default:
        return truce_status_name(TRUCE_INVALID);
    }
}

/* Sends an error of HTTP itself, in the form of the errors of commands. */
static enum MHD_Result http_refuse_with(struct MHD_Connection *c, unsigned code,
                                        const char *allowed, uint32_t number, const char *name,
                                        const char *message)
{
    bson_t *document = BCON_NEW("ok", BCON_DOUBLE(0), "errmsg", BCON_UTF8(message), "code",
                                BCON_INT32((int32_t)number), "codeName", BCON_UTF8(name), "status",
                                BCON_UTF8(http_class(code)));
    enum MHD_Result result = http_send_json(c, code, allowed, document);

    bson_destroy(document);
    return result;
}

static enum MHD_Result http_refuse(struct MHD_Connection *c, unsigned code, uint32_t number,
                                   const char *name, const char *message)
{
    return http_refuse_with(c, code, NULL, number, name, message);
}

enum MHD_Result http_bad(struct MHD_Connection *c, const char *message)
{
    return http_refuse(c, MHD_HTTP_BAD_REQUEST, CODE_BAD_VALUE, "BadValue", message);
}

/* Returns the status of HTTP for the reply of a command. */
static unsigned http_code(const bson_t *reply)
{
    static const struct {
        truce_status status;
        unsigned code;
    } classes[] = {{TRUCE_NOT_FOUND, MHD_HTTP_NOT_FOUND},
                   {TRUCE_DUPLICATE, MHD_HTTP_CONFLICT},
                   {TRUCE_CONFLICT, MHD_HTTP_CONFLICT},
                   {TRUCE_EXPIRED, MHD_HTTP_CONFLICT},
                   {TRUCE_REFUSED, MHD_HTTP_UNPROCESSABLE_CONTENT},
                   {TRUCE_LIMIT, MHD_HTTP_UNPROCESSABLE_CONTENT},
                   {TRUCE_LOCKED, MHD_HTTP_SERVICE_UNAVAILABLE},
                   {TRUCE_TIMEOUT, MHD_HTTP_SERVICE_UNAVAILABLE},
                   {TRUCE_UNKNOWN, MHD_HTTP_GATEWAY_TIMEOUT},
                   {TRUCE_IO, MHD_HTTP_INTERNAL_SERVER_ERROR},
                   {TRUCE_CORRUPT, MHD_HTTP_INTERNAL_SERVER_ERROR}};
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
            if (!strcmp(bson_iter_utf8(&at, NULL), truce_status_name(classes[i].status)))
                return classes[i].code;
    return MHD_HTTP_BAD_REQUEST;
}

/* Appends the class of the error if it is missing: errors of MongoDB's commands have none. */
static void http_append_class(bson_t *reply)
{
    bson_iter_t at;
    uint32_t code;

    if (bson_has_field(reply, "status") || !bson_iter_init_find(&at, reply, "code"))
        return;
    code = (uint32_t)bson_iter_as_int64(&at);
    BSON_APPEND_UTF8(reply, "status", truce__class_name(truce__class_of_code(code), code));
}

enum MHD_Result http_send_reply(struct MHD_Connection *c, bson_t *reply)
{
    if (http_code(reply) != MHD_HTTP_OK)
        http_append_class(reply); /* The status may depend on the class. */
    return http_send_json(c, http_code(reply), NULL, reply);
}

/* ---- late requests --------------------------------------------------------------------------- */

/*
 * libmicrohttpd ends a connection that is silent. A client that sends one byte now and then is
 * never silent, so it would keep its connection without ever logging in. The head of the first
 * request must arrive within the time of a message; with TLS, also that of a handshake is allowed.
 * The head of a later request must arrive within the sum of the time of a message and the maximum
 * idle time.
 */

static void http_expect_head(struct http_connection *own, int64_t more_ms)
{
    const struct server *server = own->connection.server;
    int64_t until_ns =
        truce__clock_monotonic_ns() + (server->message_ms + more_ms) * INT64_C(1000000);

    __atomic_store_n(&own->connection.head_by_ns, until_ns, __ATOMIC_RELAXED);
}

static void http_end_late(struct server *server)
{
    int64_t now_ns = truce__clock_monotonic_ns();

    pthread_mutex_lock(&server->mutex);
    for (struct connection *at = server->connections; at; at = at->next) {
        int64_t by_ns = __atomic_load_n(&at->head_by_ns, __ATOMIC_RELAXED);

        if (at->borrowed && by_ns && now_ns > by_ns)
            (void)shutdown(at->socket, SHUT_RDWR);
    }
    pthread_mutex_unlock(&server->mutex);
}

/* Ends late connections every WATCH_MS until http_stop_watch: the function of a thread. */
static void *http_watch_late(void *arg)
{
    struct http *http = arg;

    pthread_mutex_lock(&http->mutex);
    while (!http->closes) {
        struct timespec until;

        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += WATCH_MS * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        (void)pthread_cond_timedwait(&http->closing, &http->mutex, &until);
        pthread_mutex_unlock(&http->mutex);
        http_end_late(http->server);
        pthread_mutex_lock(&http->mutex);
    }
    pthread_mutex_unlock(&http->mutex);
    return NULL;
}

static void http_stop_watch(struct http *http)
{
    if (!http->watches)
        return;
    pthread_mutex_lock(&http->mutex);
    http->closes = true;
    pthread_cond_signal(&http->closing);
    pthread_mutex_unlock(&http->mutex);
    pthread_join(http->watch, NULL);
}

/* ---- the source of a request ----------------------------------------------------------------- */

/* Returns the length of the host in "HOST:PORT", "[ADDRESS]:PORT", or "HOST". */
static size_t http_host_size(const char *authority)
{
    const char *end = authority[0] == '[' ? strchr(authority, ']') : NULL;

    return end ? (size_t)(end - authority) + 1 : strcspn(authority, ":");
}

static char http_lower(char byte)
{
    return byte >= 'A' && byte <= 'Z' ? (char)(byte - 'A' + 'a') : byte;
}

/* Returns whether the Host of the request is a name of this server (invariant 3). */
static bool http_knows_host(const struct http *http, const char *authority)
{
    size_t size = http_host_size(authority);
    char name[NAME_MAX_ + 2];

    if (!size || size >= NAME_MAX_ || memchr(authority, ',', size))
        return false;
    name[0] = ',';
    for (size_t i = 0; i < size; i++)
        name[i + 1] = http_lower(authority[i]);
    name[size + 1] = ',';
    name[size + 2] = '\0';
    return strstr(http->hosts, name) != NULL;
}

/* Returns whether the request comes from a page of this origin, or from no page. */
static bool http_is_own_origin(struct MHD_Connection *c, const char *host)
{
    const char *origin = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Origin"),
               *site = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Sec-Fetch-Site");
    const char *authority = origin ? strstr(origin, "://") : NULL;

    if (site && strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0)
        return false;
    return !origin || (authority && !strcasecmp(authority + 3, host));
}

/* Returns whether the request opens the screen as a page. A link of any page may open it: the page
 * that contains the link cannot read it. */
static bool http_opens_screen(struct MHD_Connection *c, const char *url)
{
    const char *mode = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Sec-Fetch-Mode"),
               *target = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Sec-Fetch-Dest");

    return http_screen_has(url) && mode && target && !strcmp(mode, "navigate") &&
           !strcmp(target, "document") &&
           !MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Origin");
}

/*
 * A proxy may read the same headers in another way. If it and this server disagreed about who sent a
 * request, or where its body ends, a client could hide a second request in the body of the first.
 * So headers with more than one meaning are refused, and the connection closes: the bytes after them
 * may be a body. libmicrohttpd accepts any name of a header, also one that ends with a space, and
 * any Transfer-Encoding. Its option for strictness checks neither, or names only in some versions.
 * Before 1.0, it appends a line that continues a header to the name, and overwrites the value:
 *
 *     Transfer-Encoding:
 *      chunked                becomes the header Transfer-Encodingchunked
 */

/* Headers that a request has once at most. */
static const char *const http_single[] = {
    "Host", "Origin", "Sec-Fetch-Site", "Content-Length", "Transfer-Encoding", "Authorization"};

#define SINGLE_COUNT (sizeof http_single / sizeof *http_single)

/* Facts about the headers of a request. */
struct header_facts {
    /* How often the headers of http_single are given. */
    unsigned counts[SINGLE_COUNT];
    /* The first name that is not a token, and the name of the first header whose value has a control
     * character, or NULL. */
    const char *bad_name, *bad_value;
    /* The first header about the size of the body that continues on the next line, or NULL. */
    const char *continued;
};

/* Returns the header about the size of the body with which the name begins, if more follows;
 * otherwise NULL. */
static const char *http_find_continued(const char *name)
{
    static const char *const sizes[] = {"Content-Length", "Transfer-Encoding"};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!strncasecmp(name, sizes[i], strlen(sizes[i])) && name[strlen(sizes[i])])
            return sizes[i];
    return NULL;
}

/* Returns whether the name of a header is a token (RFC 9110, 5.6.2). A space before the colon is a
 * part of the name. */
static bool http_is_token(const char *name)
{
    static const char allowed[] = "0123456789abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ!#$%&'*+-.^_`|~";

    return *name && !name[strspn(name, allowed)];
}

/* Returns whether the value of a header has a control character other than a tab, such as a single
 * CR, which ends a line for some proxies. */
static bool http_has_control(const char *value)
{
    for (; *value; value++)
        if (((unsigned char)*value < ' ' && *value != '\t') || *value == 0x7f)
            return true;
    return false;
}

static enum MHD_Result http_note_header(void *arg, enum MHD_ValueKind kind, const char *name,
                                        const char *value)
{
    struct header_facts *facts = arg;

    (void)kind;
    if (!facts->bad_name && !http_is_token(name))
        facts->bad_name = name;
    if (!facts->bad_value && value && http_has_control(value))
        facts->bad_value = name;
    if (!facts->continued)
        facts->continued = http_find_continued(name);
    for (size_t i = 0; i < SINGLE_COUNT; i++)
        facts->counts[i] += !strcasecmp(name, http_single[i]);
    return MHD_YES;
}

#define SHOWN_MAX 41

/* Copies the start of a part of a header for a message. Bytes that are not printable ASCII become
 * '?'. */
static const char *http_show(const char *text, char shown[SHOWN_MAX])
{
    size_t size = 0;

    for (; *text && size < SHOWN_MAX - 1; text++)
        shown[size++] = (char)(*text >= ' ' && *text <= '~' ? *text : '?');
    shown[size] = '\0';
    return shown;
}

/* Returns the status of the refusal if the headers have more than one meaning, or 0. */
static unsigned http_find_ambiguity(struct MHD_Connection *c, char *message, size_t size)
{
    const char *coding = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Transfer-Encoding");
    struct header_facts facts = {0};
    char shown[SHOWN_MAX];

    (void)MHD_get_connection_values(c, MHD_HEADER_KIND, http_note_header, &facts);
    if (facts.bad_name) {
        snprintf(message, size,
                 "invalid header name \"%s\": expected only letters, digits, and hyphens before "
                 "the colon",
                 http_show(facts.bad_name, shown));
        return MHD_HTTP_BAD_REQUEST;
    }
    if (facts.bad_value) {
        snprintf(message, size, "the value of the header %s has a control character",
                 http_show(facts.bad_value, shown));
        return MHD_HTTP_BAD_REQUEST;
    }
    if (facts.continued) {
        snprintf(message, size,
                 "the header %s continues on the next line, or its name has more characters",
                 facts.continued);
        return MHD_HTTP_BAD_REQUEST;
    }
    for (size_t i = 0; i < SINGLE_COUNT; i++)
        if (facts.counts[i] > 1) {
            snprintf(message, size, "the header %s is given twice", http_single[i]);
            return MHD_HTTP_BAD_REQUEST;
        }
    if (!coding)
        return 0;
    if (MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Content-Length")) {
        snprintf(message, size, "Content-Length and Transfer-Encoding exclude each other");
        return MHD_HTTP_BAD_REQUEST;
    }
    if (!strcasecmp(coding, "chunked"))
        return 0;
    /* libmicrohttpd would read such a body until the client closes the connection. */
    snprintf(message, size, "unknown Transfer-Encoding \"%s\": expected chunked",
             http_show(coding, shown));
    return MHD_HTTP_NOT_IMPLEMENTED;
}

/* Returns whether the headers have one meaning. If not, a reply was sent that closes the connection
 * (invariant 6). */
static bool http_check_headers(struct http_connection *own, struct MHD_Connection *c,
                               enum MHD_Result *result)
{
    char message[160];
    unsigned code = http_find_ambiguity(c, message, sizeof message);

    if (!code)
        return true;
    own->ambiguous = true;
    *result = http_refuse(c, code, CODE_BAD_VALUE, "BadValue", message);
    return false;
}

/* Returns whether the request may continue. If not, a reply was sent. */
static bool http_check_source(const struct http *http, struct MHD_Connection *c, const char *url,
                              enum MHD_Result *result)
{
    const char *host = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Host");

    if (!host || !http_knows_host(http, host)) {
        *result = http_refuse(c, MHD_HTTP_MISDIRECTED_REQUEST, CODE_UNAUTHORIZED, "Unauthorized",
                              "the Host header does not name this server: start it with "
                              "--http-host NAME to accept another name");
        return false;
    }
    if (!http_is_own_origin(c, host) && !http_opens_screen(c, url)) {
        *result = http_refuse(c, MHD_HTTP_FORBIDDEN, CODE_UNAUTHORIZED, "Unauthorized",
                              "the request comes from a page of another origin, which may not use "
                              "this server");
        return false;
    }
    return true;
}

/* Checks the certificate of the client. libmicrohttpd requests a client certificate, but does not
 * check it. */
static bool http_check_client(const struct http *http, struct http_connection *own,
                              struct MHD_Connection *c, enum MHD_Result *result)
{
    gnutls_typed_vdata_st purpose = {GNUTLS_DT_KEY_PURPOSE_OID,
                                     (unsigned char *)(uintptr_t)GNUTLS_KP_TLS_WWW_CLIENT, 0};
    const union MHD_ConnectionInfo *info;
    unsigned faults = 1;

    if (!http->client_ca || own->certified)
        return true;
    info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    own->certified = info &&
                     !gnutls_certificate_verify_peers(info->tls_session, &purpose, 1, &faults) &&
                     !faults;
    if (own->certified)
        return true;
    *result = http_refuse(c, MHD_HTTP_FORBIDDEN, CODE_UNAUTHORIZED, "Unauthorized",
                          "the client has no valid certificate: it needs one from the CA of "
                          "--tls-client-ca");
    return false;
}

/* Notes faults of the path before http_decode: libmicrohttpd calls this first. An encoded slash would
 * become a separator in the decoded path, so an access rule of a proxy for /v1/shop/ would not apply
 * to /v1/shop%2Ffind. No name in a path has a slash. */
static void *http_note_target(void *arg, const char *target, struct MHD_Connection *c)
{
    struct http_connection *own = http_own(c);

    (void)arg;
    if (!own)
        return NULL;
    own->url_fault = NULL;
    for (const char *at = target; at && *at && *at != '?'; at++) {
        if (!strncasecmp(at, "%2f", 3))
            own->url_fault = "the path has %2F, an encoded slash: no database and no operation has "
                             "one in its name";
        else if (!strncmp(at, "%00", 3))
            own->url_fault = "the path has %00, an encoded zero byte";
    }
    return NULL; /* the initial state in http_handle */
}

/* Decodes %XX in place: the path, or a name or a value of the query. libmicrohttpd calls this before
 * http_handle. If an encoding is not valid, the request is refused later. */
static size_t http_decode(void *arg, struct MHD_Connection *c, char *text)
{
    struct http_connection *own = http_own(c);
    char *to = text;

    (void)arg;
    for (const char *at = text; *at; at++) {
        int high = *at == '%' ? truce__hex_digit(at[1]) : -1,
            low = high < 0 ? -1 : truce__hex_digit(at[2]);

        if (*at != '%') {
            *to++ = *at;
        } else if (low < 0) {
            if (own)
                own->url_fault = "the URL has an invalid percent-encoding: expected % and two "
                                 "hexadecimal digits";
            break;
        } else {
            *to++ = (char)(high << 4 | low);
            at += 2;
        }
    }
    *to = '\0';
    return (size_t)(to - text);
}

static bool http_check_encoding(struct http_connection *own, struct MHD_Connection *c,
                                enum MHD_Result *result)
{
    const char *fault = own->url_fault;

    own->url_fault = NULL;
    if (fault)
        *result = http_bad(c, fault);
    return !fault;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Splits /v1/DATABASE/NAME. `*size` is the length of the database's name. */
static bool http_split_path(const char *url, const char **database, size_t *size, const char **name)
{
    const char *slash;

    if (strncmp(url, "/v1/", 4) != 0 || !(slash = strchr(url + 4, '/')) || slash == url + 4 ||
        strchr(slash + 1, '/'))
        return false;
    *database = url + 4;
    *size = (size_t)(slash - *database);
    *name = slash + 1;
    return true;
}

/* Returns whether the name of the database is valid. If not, a reply was sent. */
static bool http_read_database(struct MHD_Connection *c, const char *name, size_t size,
                               struct exchange *exchange, enum MHD_Result *result)
{
    char *copy = bson_strndup(name, size);
    bson_error_t error;
    truce_status status = truce__database_name_check(copy, &error);

    if (status)
        *result = http_refuse(c, MHD_HTTP_BAD_REQUEST, CODE_INVALID_NAMESPACE, "InvalidNamespace",
                              error.message);
    else
        memcpy(exchange->database, copy, size + 1);
    bson_free(copy);
    return !status;
}

/* Refuses a method that the path does not have. */
static enum MHD_Result http_refuse_method(struct MHD_Connection *c, const char *allowed)
{
    char message[80];

    snprintf(message, sizeof message, "the path does not have this method: expected %s", allowed);
    return http_refuse_with(c, MHD_HTTP_METHOD_NOT_ALLOWED, allowed, CODE_BAD_VALUE, "BadValue",
                            message);
}

/* Finds the target of the path. Returns false if a reply was sent. */
static bool http_route(const struct http *http, struct MHD_Connection *c, const char *url,
                       const char *method, struct exchange *exchange, enum MHD_Result *result)
{
    bool reads = !strcmp(method, "GET") || !strcmp(method, "HEAD");
    const char *database = NULL, *name = "";
    size_t size = 0;

    if (!strcmp(url, "/v1/openapi.json")) {
        *result = reads ? http_send(c, MHD_HTTP_OK, NULL, http->openapi, strlen(http->openapi))
                        : http_refuse_method(c, ALLOW_DESCRIPTION);
        return false;
    }
    if (!http_split_path(url, &database, &size, &name)) {
        *result = http_refuse(c, MHD_HTTP_NOT_FOUND, CODE_COMMAND_NOT_FOUND, "CommandNotFound",
                              "unknown path: expected /v1/DATABASE/OPERATION, /v1/openapi.json, or "
                              "/ui/");
        return false;
    }
    exchange->watches = !strcmp(name, "watch");
    exchange->row = truce__named_request_row(name);
    if (exchange->watches ? strcmp(method, "GET") != 0
                          : exchange->row && strcmp(method, "POST") != 0) {
        *result = http_refuse_method(c, exchange->watches ? ALLOW_WATCH : ALLOW_OPERATION);
        return false;
    }
    /* Parameters in the URL are refused, because the operation would ignore them: the key of a
     * commit, for example. */
    if (exchange->row && MHD_get_connection_values(c, MHD_GET_ARGUMENT_KIND, NULL, NULL) > 0) {
        *result = http_bad(c, "an operation has its fields in the body, not in the query");
        return false;
    }
    if (exchange->watches || exchange->row)
        return http_read_database(c, database, size, exchange, result);
    *result = http_refuse(c, MHD_HTTP_NOT_FOUND, CODE_COMMAND_NOT_FOUND, "CommandNotFound",
                          "unknown operation: /v1/openapi.json describes the operations");
    return false;
}

/* Logs the user in, if the server has logins. Returns false if a reply was sent, or with *result =
 * MHD_NO if the connection must end without one. */
static bool http_check_user(struct http_connection *own, struct MHD_Connection *c,
                            const char *database, enum MHD_Result *result)
{
    bson_error_t error = {0};
    truce_status status =
        own->connection.server->auth ? http_login(own, c, database, &error) : TRUCE_OK;

    if (!status)
        return true;
    if (own->connection.ends) /* Too many logins have failed at the same time. */
        *result = MHD_NO;
    else if (error.code == CODE_UNAUTHORIZED || error.code == CODE_AUTHENTICATION_FAILED)
        *result = http_refuse(c, MHD_HTTP_UNAUTHORIZED, CODE_AUTHENTICATION_FAILED,
                              "AuthenticationFailed", error.message);
    else
        *result = http_refuse(c, MHD_HTTP_SERVICE_UNAVAILABLE, CODE_COMMAND_FAILED, "CommandFailed",
                              error.message);
    return false;
}

/* Returns whether the body that the headers announce is larger than the maximum. */
static bool http_announces_too_much(struct MHD_Connection *c)
{
    const char *size = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Content-Length");

    return size && strtoull(size, NULL, 10) > TRUCE_MESSAGE_BYTES_MAX;
}

static enum MHD_Result http_refuse_size(struct MHD_Connection *c)
{
    char message[80];

    snprintf(message, sizeof message, "the body has more than %d bytes, which is the maximum",
             TRUCE_MESSAGE_BYTES_MAX);
    return http_refuse(c, MHD_HTTP_CONTENT_TOO_LARGE, CODE_BAD_VALUE, "BadValue", message);
}

/* Notes the first Content-Encoding other than "identity" in `*arg`. */
static enum MHD_Result http_note_encoding(void *arg, enum MHD_ValueKind kind, const char *name,
                                          const char *value)
{
    static const char none[] = "identity";
    size_t size = sizeof none - 1;
    const char **encoding = arg;

    (void)kind;
    if (*encoding || strcasecmp(name, "Content-Encoding") != 0)
        return MHD_YES;
    /* libmicrohttpd keeps the spaces after a value. */
    if (!value || strncasecmp(value, none, size) != 0 || value[size + strspn(value + size, " \t")])
        *encoding = value ? value : "";
    return MHD_YES;
}

/* Refuses a body that is compressed: no operation would read it. */
static bool http_check_body(struct MHD_Connection *c, enum MHD_Result *result)
{
    const char *encoding = NULL;
    char message[160], shown[SHOWN_MAX];

    if (http_announces_too_much(c)) {
        *result = http_refuse_size(c);
        return false;
    }
    (void)MHD_get_connection_values(c, MHD_HEADER_KIND, http_note_encoding, &encoding);
    if (!encoding)
        return true;
    snprintf(message, sizeof message,
             "the body has the Content-Encoding \"%s\": expected a body without an encoding",
             http_show(encoding, shown));
    *result = http_refuse(c, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, CODE_BAD_VALUE, "BadValue", message);
    return false;
}

/* Begins a request for a file of the screen. Such a request has no database, and needs no user. */
static bool http_begin_screen(struct MHD_Connection *c, const char *method,
                              struct exchange *exchange, enum MHD_Result *result)
{
    exchange->screen = !strcmp(method, "GET") || !strcmp(method, "HEAD");
    if (!exchange->screen)
        *result = http_refuse_method(c, SCREEN_METHODS);
    return exchange->screen;
}

/* Checks a request by its headers. Returns false if a reply was sent, or with *result = MHD_NO if
 * the connection must end without one. The body is then not read. */
static bool http_begin(struct http *http, struct http_connection *own, struct MHD_Connection *c,
                       const char *url, const char *method, struct exchange *exchange,
                       enum MHD_Result *result)
{
    bool screen = http_screen_has(url);

    if (!http_check_headers(own, c, result) || !http_check_client(http, own, c, result) ||
        !http_check_source(http, c, url, result) || !http_check_encoding(own, c, result))
        return false;
    if (screen ? !http_begin_screen(c, method, exchange, result)
               : !http_route(http, c, url, method, exchange, result) ||
                     !http_check_user(own, c, exchange->database, result))
        return false;
    return http_check_body(c, result);
}

/* Logs an action of a user of the screen: a request with the header X-Truce-Action. */
static void http_log_action(const struct http_connection *own, struct MHD_Connection *c,
                            const struct exchange *exchange, const bson_t *command,
                            const bson_t *reply)
{
    bson_t *fields;
    bson_iter_t at;

    if (!MHD_lookup_connection_value(c, MHD_HEADER_KIND, "X-Truce-Action"))
        return;
    fields =
        BCON_NEW("command", BCON_UTF8(exchange->row->name), "db", BCON_UTF8(exchange->database));
    if (bson_iter_init_find(&at, command, exchange->row->name) && BSON_ITER_HOLDS_UTF8(&at))
        BSON_APPEND_UTF8(fields, exchange->row->target ? exchange->row->target : "value",
                         bson_iter_utf8(&at, NULL));
    if (bson_iter_init_find(&at, command, "action") && BSON_ITER_HOLDS_UTF8(&at))
        BSON_APPEND_UTF8(fields, "action", bson_iter_utf8(&at, NULL));
    if (own->connection.login.user)
        BSON_APPEND_UTF8(fields, "user", own->connection.login.tag);
    BSON_APPEND_INT32(fields, "http", (int32_t)http_code(reply));
    log_write(own->connection.server->log, TRUCE_LOG_INFO, LOG_COMMAND, own->connection.number,
              "web action", fields);
    bson_destroy(fields);
}

/* Runs a command. The connection does not count as idle in the meantime. */
static enum MHD_Result http_dispatch(struct http_connection *own, struct MHD_Connection *c,
                                     const struct exchange *exchange,
                                     const struct wire_request *request)
{
    enum MHD_Result result = MHD_NO;
    bson_t reply;

    (void)MHD_set_connection_option(c, MHD_CONNECTION_OPTION_TIMEOUT, 0U);
    own->connection.server->dispatch(&own->connection, request, &reply);
    http_log_action(own, c, exchange, &request->body, &reply);
    (void)MHD_set_connection_option(c, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)IDLE_S);
    if (!own->connection.ends)
        result = http_send_reply(c, &reply);
    bson_destroy(&reply);
    return result;
}

/* Converts the JSON body to a command, runs it, and sends the reply. */
static enum MHD_Result http_run(struct http_connection *own, struct MHD_Connection *c,
                                const struct exchange *exchange)
{
    static const char none[] = "{}";
    bool empty = !exchange->body.size;
    struct wire_request request = {0};
    bson_error_t error = {0};
    enum MHD_Result result;
    bool is_array;
    bson_t body;
    truce_status status = truce_json_read(empty ? none : (const char *)exchange->body.bytes,
                                          empty ? 2 : exchange->body.size, TRUCE_JSON_STRICT, &body,
                                          &is_array, &error);

    if (!status && is_array)
        status = truce__fail(TRUCE_INVALID, &error, "the body is an array: expected a JSON object");
    metrics_received(own->connection.server->metrics, exchange->body.size);
    if (!status)
        status = truce__named_request_command(exchange->row, exchange->database, &body,
                                              &request.body, &error);
    else
        bson_init(&request.body);
    result = status ? http_bad(c, error.message) : http_dispatch(own, c, exchange, &request);
    bson_destroy(&body);
    bson_destroy(&request.body);
    return result;
}

/* Appends a part of the body. */
static enum MHD_Result http_take(struct exchange *exchange, const char *data, size_t *size)
{
    /* The part is dropped if the body has become too large (invariant 4). */
    exchange->received += *size;
    if (exchange->received <= TRUCE_MESSAGE_BYTES_MAX)
        truce__buffer_append(&exchange->body, data, *size);
    else
        truce__buffer_release(&exchange->body);
    *size = 0;
    /* The refusal is sent after the body, whose size has a maximum. */
    return exchange->received <= 2 * (uint64_t)TRUCE_MESSAGE_BYTES_MAX ? MHD_YES : MHD_NO;
}

/* Handles a request in the calls of libmicrohttpd: first the head, then parts of the body, and then
 * the end. */
static enum MHD_Result http_handle(void *arg, struct MHD_Connection *c, const char *url,
                                   const char *method, const char *version, const char *data,
                                   size_t *size, void **state)
{
    struct http *http = arg;
    struct http_connection *own = http_own(c);
    struct exchange *exchange = *state;
    enum MHD_Result result = MHD_YES;

    (void)version;
    /* The reply has Retry-After and closes the connection: the client is to open a new one. */
    if (!own)
        return http_refuse(c, MHD_HTTP_SERVICE_UNAVAILABLE, CODE_BAD_VALUE, "BadValue",
                           "the server has too many connections, or is stopping: try again later");
    if (!exchange) {
        *state = exchange = bson_malloc0(sizeof *exchange);
        __atomic_store_n(&own->connection.head_by_ns, 0, __ATOMIC_RELAXED);
        (void)http_begin(http, own, c, url, method, exchange, &result);
        return result;
    }
    if (*size)
        return http_take(exchange, data, size);
    if (exchange->received > TRUCE_MESSAGE_BYTES_MAX)
        return http_refuse_size(c);
    if (exchange->screen)
        return http_screen_send(c, url);
    return exchange->watches ? http_event_stream(c, own, exchange->database)
                             : http_run(own, c, exchange);
}

/* Frees a request that has ended, and begins the time limit for the next one of the connection. */
static void http_completed(void *arg, struct MHD_Connection *c, void **state,
                           enum MHD_RequestTerminationCode why)
{
    struct exchange *exchange = *state;
    struct http_connection *own = http_own(c);

    (void)arg;
    (void)why;
    if (own)
        http_expect_head(own, IDLE_S * 1000);
    if (exchange)
        truce__buffer_release(&exchange->body);
    bson_free(exchange);
    *state = NULL;
}

/* ---- connections ----------------------------------------------------------------------------- */

/* Adds a new connection to the list of the server, or removes a closed one. A connection that
 * cannot join gets a reply with 503. */
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
        (void)MHD_set_connection_option(c, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)REFUSED_S);
    } else {
        http_expect_head(own, http->tls ? http->server->handshake_ms : 0);
    }
    *context = own;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Reads a PEM file as a string, which the caller frees. Fails with INVALID if it is larger than
 * FILE_MAX. */
static truce_status http_read_file(const char *path, char **text, bson_error_t *error)
{
    struct buffer bytes = {0};
    FILE *file = fopen(path, "re");
    char part[4096];
    size_t size;

    if (!file)
        return truce__fail(TRUCE_INVALID, error, "cannot read %s: %s", path, strerror(errno));
    while (bytes.size <= FILE_MAX && (size = fread(part, 1, sizeof part, file)) > 0)
        truce__buffer_append(&bytes, part, size);
    (void)fclose(file);
    if (bytes.size > FILE_MAX) {
        truce__buffer_release(&bytes);
        return truce__fail(TRUCE_INVALID, error, "%s is not a PEM file: it has more than 1 MB",
                           path);
    }
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
    pthread_cond_destroy(&http->closing);
    pthread_mutex_destroy(&http->mutex);
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

/* Starts the daemon of libmicrohttpd. */
static struct MHD_Daemon *http_start(struct http *http, const union listen_address *at)
{
    static char priorities[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";
    unsigned flags = MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD |
                     MHD_USE_POLL | MHD_USE_ITC |
                     (at->any.sa_family == AF_INET6 ? MHD_USE_IPv6 : 0) |
                     (http->tls ? MHD_USE_TLS : 0);
    struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_PRIORITIES, 0, priorities},
                                   {MHD_OPTION_HTTPS_MEM_CERT, 0, http->certificate},
                                   {MHD_OPTION_HTTPS_MEM_KEY, 0, http->key},
                                   {MHD_OPTION_END, 0, NULL},
                                   {MHD_OPTION_END, 0, NULL}};
    struct MHD_OptionItem plain[] = {{MHD_OPTION_END, 0, NULL}};

    if (http->client_ca)
        tls[3] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_TRUST, 0, http->client_ca};
    return MHD_start_daemon(
        flags, 0, NULL, NULL, http_handle, http, MHD_OPTION_SOCK_ADDR, &at->any,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)http->server->connections_max + REFUSED_MAX,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)MEMORY_BYTES, MHD_OPTION_URI_LOG_CALLBACK, http_note_target, NULL,
        MHD_OPTION_UNESCAPE_CALLBACK, http_decode, NULL, MHD_OPTION_NOTIFY_COMPLETED,
        http_completed, http, MHD_OPTION_NOTIFY_CONNECTION, http_connected, http, MHD_OPTION_ARRAY,
        http->tls ? tls : plain, MHD_OPTION_END);
}

truce_status http_listen(struct server *server, const struct http_options *options,
                         struct http **made, bson_error_t *error)
{
    union listen_address at = {0};
    char host[NAME_MAX_], authority[NAME_MAX_ + 2];
    struct http *http;
    truce_status status = listen_read_where(options->where, &at, host, sizeof host, error);

    *made = NULL;
    /* Without logins, only the loopback is served (invariant 2). */
    if (!status && !server->auth && !listen_is_loopback(&at))
        status = truce__fail(TRUCE_INVALID, error,
                             "other machines can connect to %s, so HTTP there needs --auth: create "
                             "a user (truce user add NAME --role root), and start the server with "
                             "--auth",
                             host);
    if (status)
        return status;
    http = bson_malloc0(sizeof *http);
    http->server = server;
    pthread_mutex_init(&http->mutex, NULL);
    pthread_cond_init(&http->closing, NULL);
    http->listener = MHD_INVALID_SOCKET;
    snprintf(authority, sizeof authority, strchr(host, ':') ? "[%s]" : "%s", host);
    http->hosts = bson_strdup_printf(",localhost,127.0.0.1,[::1],%s,%s,", authority,
                                     options->hosts ? options->hosts : "");
    /* http_knows_host compares names in lower case. */
    for (char *at_byte = http->hosts; *at_byte; at_byte++)
        *at_byte = http_lower(*at_byte);
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
    http->watches = truce__thread_start(&http->watch, http_watch_late, http);
    if (!http->watches) {
        http_close(http);
        return truce__fail(
            TRUCE_IO, error,
            "cannot start a thread for HTTP: the system has no memory or no threads left");
    }
    snprintf(http->where, sizeof http->where, "%s://%s:%d", http->tls ? "https" : "http", authority,
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
    if (http)
        http->listener = MHD_quiesce_daemon(http->daemon);
    if (http && http->listener != MHD_INVALID_SOCKET)
        (void)shutdown(http->listener, SHUT_RDWR); /* The daemon's thread may still poll it. */
}

void http_close(struct http *http)
{
    if (!http)
        return;
    http_stop_watch(http);
    MHD_stop_daemon(http->daemon);
    if (http->listener != MHD_INVALID_SOCKET)
        (void)close(http->listener);
    http_free(http);
}

#include "server/net/tls_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/clock.h"

#define AHEAD_BYTES ((size_t)4096)

/* ---- shared state of all connections --------------------------------------------------------- */

struct tls {
    SSL_CTX *context;
};

/* Refuses keys with a password instead of asking for it on the terminal. */
static int no_password(char *text, int size, int writes, void *arg)
{
    (void)text;
    (void)size;
    (void)writes;
    (void)arg;
    return -1;
}

static const char *stream_reason(void)
{
    unsigned long code = ERR_peek_error();
    const char *text = code ? ERR_reason_error_string(code) : NULL;

    if (code && ERR_SYSTEM_ERROR(code))
        return strerror((int)ERR_GET_REASON(code));
    return text ? text : "OpenSSL reports no reason";
}

static truce_status load_own(SSL_CTX *context, const struct tls_files *files, bson_error_t *error)
{
    const char *key = files->key ? files->key : files->certificate;

    if (SSL_CTX_use_certificate_chain_file(context, files->certificate) != 1)
        return truce__fail(TRUCE_INVALID, error, "cannot read a certificate from \"%.200s\": %s",
                           files->certificate, stream_reason());
    if (SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1)
        return truce__fail(TRUCE_INVALID, error,
                           "cannot read the key of the certificate from \"%.200s\" (it must have "
                           "no password): %s",
                           key, stream_reason());
    return TRUCE_OK;
}

static truce_status load_clients(SSL_CTX *context, const char *file, bson_error_t *error)
{
    STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(file);

    if (!names || SSL_CTX_load_verify_locations(context, file, NULL) != 1) {
        sk_X509_NAME_pop_free(names, X509_NAME_free);
        return truce__fail(TRUCE_INVALID, error,
                           "cannot read the certificates of a CA from \"%.200s\": %s", file,
                           stream_reason());
    }
    SSL_CTX_set_client_CA_list(context, names);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    return TRUCE_OK;
}

truce_status tls_new(const struct tls_files *files, struct tls **tls, bson_error_t *error)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    truce_status status;

    *tls = NULL;
    if (!context)
        return truce__fail(TRUCE_IO, error, "cannot create a context for TLS: %s", stream_reason());
    ERR_clear_error();
    (void)SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    (void)SSL_CTX_set_options(context,
                              SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET);
    /* Sessions are not resumed, so each connection verifies its client certificate. */
    (void)SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_num_tickets(context, 0);
    SSL_CTX_set_default_passwd_cb(context, no_password);
    /* Most connections are idle, and need no buffers then. */
    (void)SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    status = load_own(context, files, error);
    if (!status && files->client_ca)
        status = load_clients(context, files->client_ca, error);
    ERR_clear_error();
    if (status) {
        SSL_CTX_free(context);
        return status;
    }
    *tls = bson_malloc0(sizeof **tls);
    (*tls)->context = context;
    return TRUCE_OK;
}

void tls_free(struct tls *tls)
{
    if (tls)
        SSL_CTX_free(tls->context);
    bson_free(tls);
}

/* ---- one connection -------------------------------------------------------------------------- */

/* Waits until the socket is ready. If `until_ns` is 0, there is no limit. Returns false at the time
 * limit. */
static bool stream_ready(int socket, short events, int64_t until_ns)
{
    struct pollfd polled = {.fd = socket, .events = events};
    int ready;

    do {
        int64_t left_ms =
            until_ns ? (until_ns - truce__clock_monotonic_ns() + 999999) / 1000000 : -1;

        if (until_ns && left_ms <= 0)
            return false;
        ready = poll(&polled, 1, left_ms > INT_MAX ? INT_MAX : (int)left_ms);
    } while (ready < 0 && errno == EINTR);
    return ready > 0;
}

/* Waits for the event that OpenSSL needs. Returns false if OpenSSL waits for no event, or at the
 * time limit. */
static bool stream_ready_for(struct stream *stream, int wants, int64_t until_ns)
{
    if (wants != SSL_ERROR_WANT_READ && wants != SSL_ERROR_WANT_WRITE)
        return false;
    return stream_ready(stream->socket, wants == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, until_ns);
}

static bool stream_handshake(struct stream *stream, int64_t until_ns)
{
    int result;

    do {
        ERR_clear_error();
        result = SSL_accept(stream->ssl);
    } while (result != 1 && stream_ready_for(stream, SSL_get_error(stream->ssl, result), until_ns));
    return result == 1;
}

bool stream_begin(struct stream *stream, int socket, const struct tls *tls, int64_t handshake_ms)
{
    int64_t until_ns = truce__clock_monotonic_ns() + handshake_ms * 1000000;
    bool good;

    *stream = (struct stream){.socket = socket};
    if (!tls) {
        stream->ahead = bson_malloc(AHEAD_BYTES);
        return true;
    }
    stream->ssl = SSL_new(tls->context);
    good = stream->ssl && SSL_set_fd(stream->ssl, socket) == 1 &&
           !fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK) &&
           stream_handshake(stream, until_ns);
    ERR_clear_error();
    return good;
}

/* Runs a read of OpenSSL, and repeats it after each wait. Returns 0 or less if the connection has
 * ended, or at the time limit. */
static ssize_t tls_receive(struct stream *stream, uint8_t *bytes, size_t size, int64_t until_ns)
{
    int result, wants;

    do {
        ERR_clear_error();
        result = SSL_read(stream->ssl, bytes, size > INT_MAX ? INT_MAX : (int)size);
        wants = result > 0 ? SSL_ERROR_NONE : SSL_get_error(stream->ssl, result);
    } while (result <= 0 && stream_ready_for(stream, wants, until_ns));
    return result;
}

static ssize_t tls_send(struct stream *stream, const uint8_t *bytes, size_t size, int64_t until_ns)
{
    int result, wants;

    do {
        ERR_clear_error();
        result = SSL_write(stream->ssl, bytes, size > INT_MAX ? INT_MAX : (int)size);
        wants = result > 0 ? SSL_ERROR_NONE : SSL_get_error(stream->ssl, result);
    } while (result <= 0 && stream_ready_for(stream, wants, until_ns));
    return result;
}

/* Receives bytes from a socket without TLS. The socket blocks. A call with a time limit does not:
 * it polls if no bytes are there yet. */
static ssize_t plain_receive_now(struct stream *stream, uint8_t *bytes, size_t size,
                                 int64_t until_ns)
{
    ssize_t got;

    do
        got = recv(stream->socket, bytes, size, until_ns ? MSG_DONTWAIT : 0);
    while (got < 0 &&
           (errno == EINTR || (errno == EAGAIN && stream_ready(stream->socket, POLLIN, until_ns))));
    return got;
}

/* Receives small parts through the buffer, and large ones directly. */
static ssize_t plain_receive(struct stream *stream, uint8_t *bytes, size_t size, int64_t until_ns)
{
    if (stream->at == stream->end) {
        ssize_t got;

        if (size >= AHEAD_BYTES)
            return plain_receive_now(stream, bytes, size, until_ns);
        got = plain_receive_now(stream, stream->ahead, AHEAD_BYTES, until_ns);
        if (got <= 0)
            return got;
        stream->at = 0;
        stream->end = (size_t)got;
    }
    if (size > stream->end - stream->at)
        size = stream->end - stream->at;
    memcpy(bytes, stream->ahead + stream->at, size);
    stream->at += size;
    return (ssize_t)size;
}

static ssize_t plain_send(struct stream *stream, const uint8_t *bytes, size_t size,
                          int64_t until_ns)
{
    ssize_t sent;

    do
        sent = send(stream->socket, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && (errno == EINTR ||
                        (errno == EAGAIN && stream_ready(stream->socket, POLLOUT, until_ns))));
    return sent;
}

size_t stream_receive_first(struct stream *stream, uint8_t *bytes, size_t size, int64_t until_ns,
                            int64_t record_ms)
{
    ssize_t got;

    if (!stream->ssl) {
        got = plain_receive(stream, bytes, size, until_ns);
    } else {
        if (!SSL_has_pending(stream->ssl) && !stream_ready(stream->socket, POLLIN, until_ns))
            return 0;
        got = tls_receive(stream, bytes, size, truce__clock_monotonic_ns() + record_ms * 1000000);
    }
    return got > 0 ? (size_t)got : 0;
}

bool stream_receive(struct stream *stream, uint8_t *bytes, size_t size, int64_t until_ns)
{
    while (size) {
        ssize_t got = stream->ssl ? tls_receive(stream, bytes, size, until_ns)
                                  : plain_receive(stream, bytes, size, until_ns);

        if (got <= 0)
            return false;
        bytes += got;
        size -= (size_t)got;
    }
    return true;
}

bool stream_send(struct stream *stream, const uint8_t *bytes, size_t size, int64_t stall_ms)
{
    while (size) {
        int64_t until_ns = truce__clock_monotonic_ns() + stall_ms * 1000000;
        ssize_t sent = stream->ssl ? tls_send(stream, bytes, size, until_ns)
                                   : plain_send(stream, bytes, size, until_ns);

        if (sent <= 0)
            return false;
        bytes += sent;
        size -= (size_t)sent;
    }
    return true;
}

void stream_wipe(struct stream *stream)
{
    size_t left = stream->end - stream->at;

    if (!stream->ahead)
        return;
    memmove(stream->ahead, stream->ahead + stream->at, left);
    OPENSSL_cleanse(stream->ahead + left, AHEAD_BYTES - left);
    stream->at = 0;
    stream->end = left;
}

/* Ends TLS, if the stream has it. Never waits for a client that does not read. */
void stream_end(struct stream *stream)
{
    if (stream->ssl) {
        if (SSL_is_init_finished(stream->ssl))
            (void)SSL_shutdown(stream->ssl);
        SSL_free(stream->ssl);
        ERR_clear_error();
    }
    stream->ssl = NULL;
    bson_free(stream->ahead);
    stream->ahead = NULL;
}

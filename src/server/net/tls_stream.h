#ifndef TRUCE_SERVER_NET_TLS_STREAM_H
#define TRUCE_SERVER_NET_TLS_STREAM_H

/*
 * The bytes of a connection, plain or by TLS (OpenSSL, version 1.2 or later).
 *
 * Invariants:
 *  1. A handshake ends within its time limit, however slowly its bytes arrive, and so does each
 *     call below that has a limit. A plain socket blocks; one with TLS does not.
 *  2. With a CA for clients, no client passes the handshake without a certificate signed by it.
 *  3. One thread uses a stream. Another thread may shut down its socket, which ends all waits.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct tls;

struct tls_files {           /* The files are in PEM format. */
    const char *certificate; /* The server's certificate, followed by those of its issuers. */
    /* The private key, or NULL if it is in the same file. */
    const char *key;
    /* The CA of clients' certificates, or NULL if clients need no certificate. */
    const char *client_ca;
};

/* Fails with INVALID if a file is missing or invalid. */
truce_status tls_new(const struct tls_files *files, struct tls **tls, bson_error_t *error);
void tls_free(struct tls *tls); /* NULL is allowed. */

struct stream {
    int socket;
    /* OpenSSL's connection, or NULL for a plain one. */
    void *ssl;
    /* A plain connection receives what has arrived into this buffer, so a small message needs one
     * call of the system. The bytes from `at` to `end` are not used yet. */
    uint8_t *ahead;
    size_t at, end;
};

/* Begins the stream, with a handshake unless `tls` is NULL. Returns false if the handshake fails or
 * takes too long. */
bool stream_begin(struct stream *stream, int socket, const struct tls *tls, int64_t handshake_ms);
/* Waits for the first bytes of a message until `until_ns` (0 means without a limit), and returns
 * the number of bytes received, at most `size`. Returns 0 if the connection has ended, or at the
 * time limit. A TLS record that has begun must be complete `record_ms` later. */
size_t stream_receive_first(struct stream *stream, uint8_t *bytes, size_t size, int64_t until_ns,
                            int64_t record_ms);
/* Receives exactly `size` bytes. Returns false if the connection has ended, or at the time
 * limit. */
bool stream_receive(struct stream *stream, uint8_t *bytes, size_t size, int64_t until_ns);
/* Sends all bytes. Returns false if the connection has ended, or its client has read nothing for
 * `stall_ms`. */
bool stream_send(struct stream *stream, const uint8_t *bytes, size_t size, int64_t stall_ms);
/* Overwrites the bytes in the buffer of a plain stream, except those that no call has returned
 * yet. */
void stream_wipe(struct stream *stream);
/* Ends TLS, and frees the memory of the stream. The socket stays open. */
void stream_end(struct stream *stream);

#endif

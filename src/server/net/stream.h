#ifndef TRUCE_SERVER_NET_STREAM_H
#define TRUCE_SERVER_NET_STREAM_H

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

struct tls_files {           /* PEM */
    const char *certificate; /* and those of who signed it */
    const char *key;         /* NULL: in the same file */
    const char *client_ca;   /* NULL: clients need no certificate */
};

/* INVALID: a file is not there, or not what it should be. */
truce_status tls_new(const struct tls_files *files, struct tls **tls, bson_error_t *error);
void tls_free(struct tls *tls); /* NULL: nothing */

struct stream {
    int socket;
    void *ssl; /* NULL: plain */
};

/* A handshake, if there is `tls` (NULL: none); false: it failed, or took longer. */
bool stream_begin(struct stream *stream, int socket, const struct tls *tls, int64_t handshake_ms);
/* Waits for the first bytes of a message until then (0: without a limit), and returns how many of
 * `size` it got; 0: the connection has ended, or the time is over. A record of TLS that has begun
 * must be complete `record_ms` later. */
size_t stream_receive_first(struct stream *stream, uint8_t *bytes, size_t size, int64_t until_ns,
                            int64_t record_ms);
/* Receives so many bytes until then; false: the connection has ended, or the time is over. */
bool stream_receive(struct stream *stream, uint8_t *bytes, size_t size, int64_t until_ns);
/* Sends all bytes; false: the connection has ended, or its client has read nothing for
 * `stall_ms`. */
bool stream_send(struct stream *stream, const uint8_t *bytes, size_t size, int64_t stall_ms);
/* Says that nothing comes any more; the socket stays open. */
void stream_end(struct stream *stream);

#endif

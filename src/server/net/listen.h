#ifndef TRUCE_SERVER_NET_LISTEN_H
#define TRUCE_SERVER_NET_LISTEN_H

/* The sockets on which a server accepts connections of the wire protocol. */
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "base/status.h"

struct local_socket;

union listen_address {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
};

/* Reads a numeric IPv4 or IPv6 address, and returns its size. */
truce_status listen_read_address(const char *address, int port, union listen_address *at,
                                 socklen_t *size, bson_error_t *error);
/* Reads "8080", "127.0.0.1:8080", or "[::1]:8080", and returns the host without brackets. Without
 * an address, the host is 127.0.0.1. */
truce_status listen_read_where(const char *where, union listen_address *at, char *host,
                               size_t host_size, bson_error_t *error);
/* Returns whether only this machine can connect to the address. */
bool listen_is_loopback(const union listen_address *at);

/* Listens on a numeric IPv4 or IPv6 address. With `loopback_only`, other addresses are refused,
 * because clients do not log in. Returns the socket and the port, which is chosen if `*port` is 0.
 * After a failure, the caller closes `*listener` if the call has set it. */
truce_status listen_at_address(const char *address, int *port, bool loopback_only, int *listener,
                               bson_error_t *error);

/* Checks that a server could listen on "8080", "127.0.0.1:8080", or "[::1]:8080". */
truce_status listen_check_where(const char *where, bson_error_t *error);

/* Listens on a Unix socket whose file has the mode. A socket file that no process listens on is
 * replaced. Any other file, and the socket of a process that listens, is refused. */
truce_status listen_at_path(const char *path, unsigned mode, struct local_socket **local,
                            bson_error_t *error);
/* Returns the listening socket, or -1 if `local` is NULL. */
int local_socket_file(const struct local_socket *local);
/* Closes the socket, and removes its file unless another process has replaced it. NULL is
 * allowed. */
void local_socket_close(struct local_socket *local);

#endif

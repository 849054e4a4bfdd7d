#include "server/net/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- addresses ------------------------------------------------------------------------------- */

bool listen_is_loopback(const union listen_address *at)
{
    return at->any.sa_family == AF_INET ? ntohl(at->four.sin_addr.s_addr) >> 24 == 127
                                        : IN6_IS_ADDR_LOOPBACK(&at->six.sin6_addr);
}

truce_status listen_read_address(const char *address, int port, union listen_address *at,
                                 socklen_t *size, bson_error_t *error)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
                             .ai_socktype = SOCK_STREAM},
                    *found = NULL;
    char digits[16];

    snprintf(digits, sizeof digits, "%d", port);
    if (!*address || getaddrinfo(address, digits, &hints, &found))
        return truce__fail(TRUCE_INVALID, error,
                           "invalid address \"%.80s\": expected an IPv4 or IPv6 address, for "
                           "example 127.0.0.1 or ::1",
                           address);
    memcpy(at, found->ai_addr, found->ai_addrlen);
    *size = found->ai_addrlen;
    freeaddrinfo(found);
    return TRUCE_OK;
}

truce_status listen_read_where(const char *where, union listen_address *at, char *host,
                               size_t host_size, bson_error_t *error)
{
    const char *colon = strrchr(where, ':'), *port = colon ? colon + 1 : where;
    size_t size = colon ? (size_t)(colon - where) : 0;
    bool brackets = size > 2 && where[0] == '[' && where[size - 1] == ']';
    bson_error_t ignored; /* The error is replaced by one that names all valid forms. */
    socklen_t address_size;

    snprintf(host, host_size, "%.*s", (int)(brackets ? size - 2 : size), where + brackets);
    if (!size)
        snprintf(host, host_size, "127.0.0.1");
    if ((!brackets && strchr(host, ':')) || !*port || strspn(port, "0123456789") != strlen(port) ||
        strlen(port) > 5 || strtol(port, NULL, 10) > UINT16_MAX ||
        listen_read_address(host, (int)strtol(port, NULL, 10), at, &address_size, &ignored))
        return truce__fail(TRUCE_INVALID, error,
                           "invalid address \"%.80s\": expected PORT, ADDRESS:PORT, or "
                           "[ADDRESS]:PORT",
                           where);
    return TRUCE_OK;
}

truce_status listen_at_address(const char *address, int *port, bool loopback_only, int *listener,
                               bson_error_t *error)
{
    union listen_address at = {0};
    socklen_t size;
    int on = 1;
    truce_status status = listen_read_address(address, *port, &at, &size, error);

    if (!status && loopback_only && !listen_is_loopback(&at))
        status = truce__fail(TRUCE_INVALID, error,
                             "other machines can connect to %s, so it needs --auth: create a user "
                             "(truce user add NAME --role root), and start the server with --auth",
                             address);
    if (status)
        return status;
    *listener = socket(at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*listener < 0 || setsockopt(*listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
        bind(*listener, &at.any, size) || listen(*listener, SOMAXCONN) ||
        getsockname(*listener, &at.any, &size))
        return truce__fail(TRUCE_IO, error, "cannot listen on %s%s%s:%d: %s",
                           at.any.sa_family == AF_INET6 ? "[" : "", address,
                           at.any.sa_family == AF_INET6 ? "]" : "", *port, strerror(errno));
    *port = ntohs(at.any.sa_family == AF_INET6 ? at.six.sin6_port : at.four.sin_port);
    return TRUCE_OK;
}

truce_status listen_check_where(const char *where, bson_error_t *error)
{
    union listen_address at = {0};
    char host[INET6_ADDRSTRLEN];
    int listener = -1, port;
    truce_status status = listen_read_where(where, &at, host, sizeof host, error);

    if (status)
        return status;
    port = ntohs(at.any.sa_family == AF_INET6 ? at.six.sin6_port : at.four.sin_port);
    status = listen_at_address(host, &port, false, &listener, error);
    if (listener >= 0)
        close(listener);
    return status;
}

/* ---- Unix sockets ---------------------------------------------------------------------------- */

struct local_socket {
    int listener;
    char path[sizeof((struct sockaddr_un *)NULL)->sun_path];
    /* The identity of the socket's file, so that only this file is removed. */
    dev_t device;
    ino_t inode;
};

/* Removes the socket file of a process that has ended. */
static truce_status local_remove_stale(const struct sockaddr_un *at, bson_error_t *error)
{
    struct stat found;
    int probe, failure;

    if (lstat(at->sun_path, &found))
        return errno == ENOENT ? TRUCE_OK
                               : truce__fail(TRUCE_IO, error, "cannot read %s: %s", at->sun_path,
                                             strerror(errno));
    if (!S_ISSOCK(found.st_mode))
        return truce__fail(TRUCE_INVALID, error,
                           "%s exists and is not a socket: give --socket another path",
                           at->sun_path);
    probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    failure = connect(probe, (const struct sockaddr *)at, sizeof *at) ? errno : 0;
    close(probe);
    if (failure != ECONNREFUSED)
        return truce__fail(TRUCE_IO, error, "cannot listen on %s: another process listens there",
                           at->sun_path);
    return unlink(at->sun_path) && errno != ENOENT
               ? truce__fail(TRUCE_IO, error, "cannot remove the unused socket %s: %s",
                             at->sun_path, strerror(errno))
               : TRUCE_OK;
}

truce_status listen_at_path(const char *path, unsigned mode, struct local_socket **local,
                            bson_error_t *error)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct local_socket *made;
    struct stat found;
    truce_status status;

    *local = NULL;
    if (!*path || strlen(path) >= sizeof at.sun_path)
        return truce__fail(TRUCE_INVALID, error,
                           "invalid socket path \"%.120s\": expected 1 to %zu bytes", path,
                           sizeof at.sun_path - 1);
    memcpy(at.sun_path, path, strlen(path) + 1);
    status = local_remove_stale(&at, error);
    if (status)
        return status;
    made = bson_malloc0(sizeof *made);
    memcpy(made->path, at.sun_path, sizeof made->path);
    made->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    /* The mode is set before listen(), so no client can connect with another mode. */
    if (made->listener < 0 || bind(made->listener, (const struct sockaddr *)&at, sizeof at) ||
        lstat(path, &found)) {
        status = truce__fail(TRUCE_IO, error, "cannot listen on %s: %s", path, strerror(errno));
    } else {
        made->device = found.st_dev;
        made->inode = found.st_ino;
        if (chmod(path, mode) || listen(made->listener, SOMAXCONN))
            status = truce__fail(TRUCE_IO, error, "cannot listen on %s: %s", path, strerror(errno));
    }
    if (status) {
        local_socket_close(made);
        return status;
    }
    *local = made;
    return TRUCE_OK;
}

int local_socket_file(const struct local_socket *local)
{
    return local ? local->listener : -1;
}

void local_socket_close(struct local_socket *local)
{
    struct stat found;

    if (!local)
        return;
    if (local->inode && !lstat(local->path, &found) && found.st_dev == local->device &&
        found.st_ino == local->inode)
        (void)unlink(local->path);
    if (local->listener >= 0)
        close(local->listener);
    bson_free(local);
}

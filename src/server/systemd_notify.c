#include "server/systemd_notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void server_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    socklen_t size;
    int end;

    if (!path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof at.sun_path)
        return;
    memcpy(at.sun_path, path, strlen(path));
    if (path[0] == '@')
        /* A leading "@" denotes an abstract socket, whose name begins with a zero byte. */
        at.sun_path[0] = 0;
    size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    end = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (end < 0)
        return;
    /* A failure is ignored: the service manager may no longer listen. */
    (void)sendto(end, state, strlen(state), MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&at,
                 size);
    close(end);
}

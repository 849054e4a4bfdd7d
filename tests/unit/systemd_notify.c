/* Notifications of the service manager. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/systemd_notify.h"
#include "tests/support/test.h"

/* A socket of that name, as systemd makes one; '@' begins a name that is no file. */
static int listen_as(const char *name)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int end = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    memcpy(at.sun_path, name, strlen(name));
    if (name[0] == '@')
        at.sun_path[0] = 0;
    CHECK(!bind(end, (struct sockaddr *)&at,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))));
    return end;
}

static void check_reported(const char *name)
{
    char text[100] = "";
    int end = listen_as(name);

    setenv("NOTIFY_SOCKET", name, 1);
    server_notify("READY=1");
    CHECK(recv(end, text, sizeof text - 1, MSG_DONTWAIT) == 7);
    CHECK_TEXT("READY=1", text);
    close(end);
    server_notify("STOPPING=1"); /* the socket is closed */
}

TEST(notifies_the_service_manager)
{
    char name[100];

    snprintf(name, sizeof name, "@truce-notify-%ld", (long)getpid());
    check_reported(name);
    snprintf(name, sizeof name, "/tmp/truce-notify-%ld", (long)getpid());
    check_reported(name);
    unlink(name);
}

TEST(notifies_nothing_without_a_valid_socket)
{
    char name[200];

    memset(name, 'a', sizeof name);
    name[0] = '/';
    name[sizeof name - 1] = 0;
    setenv("NOTIFY_SOCKET", name, 1);
    server_notify("READY=1");
    setenv("NOTIFY_SOCKET", "relative", 1);
    server_notify("READY=1");
    setenv("NOTIFY_SOCKET", "", 1);
    server_notify("READY=1");
    unsetenv("NOTIFY_SOCKET");
    server_notify("READY=1");
}

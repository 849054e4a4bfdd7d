#ifndef TRUCE_SERVER_NOTIFY_H
#define TRUCE_SERVER_NOTIFY_H

/* Tells who has started this process how it is ("READY=1", "STOPPING=1"), where NOTIFY_SOCKET names a socket for it, as
 * systemd does for Type=notify (sd_notify(3) has the words). Nothing is told otherwise, and nothing waits. */
void server_notify(const char *state);

#endif

#ifndef TRUCE_SERVER_SYSTEMD_NOTIFY_H
#define TRUCE_SERVER_SYSTEMD_NOTIFY_H

/* Reports a state of the process ("READY=1", "STOPPING=1") to the service manager, on the
 * socket that NOTIFY_SOCKET names (sd_notify(3)). Without NOTIFY_SOCKET it does nothing. It
 * never waits. */
void server_notify(const char *state);

#endif

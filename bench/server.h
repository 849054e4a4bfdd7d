#ifndef TRUCE_BENCH_SERVER_H
#define TRUCE_BENCH_SERVER_H

/*
 * Servers of peers: started from their packages, as an unprivileged user, in a directory of their
 * own. They end with the harness, however it ends.
 */
#include <sys/types.h>

#include "bench/harness.h"

struct server {
    char directory[200]; /* its data, below bench_directory() */
    char sockets[100];   /* a short path: names of sockets have 107 bytes at most */
};

/* Creates both directories, owned by `user` if this process runs as root. Returns false and the
 * reason in `why` on failure. */
bool server_directories(const char *name, const char *user, struct server *server, char *why,
                        size_t size);
/* Removes the directory of the sockets (the other goes with bench_directory()). */
void server_forget(struct server *server);

/* Starts a program as `user` (if this is root), its output into `log`. */
pid_t server_spawn(const char *user, const char *log, const char *const argv[]);
/* Runs a program to its end. On failure it returns false, and the last line of its output in
 * `why`. */
bool server_do(const char *user, const char *log, const char *const argv[], char *why, size_t size);
/* Waits up to `seconds` until the target's server replies at its address. Returns false
 * otherwise: `target->reason` is the last line of the log, and `target->server` is 0 if the
 * server has ended. */
bool server_wait(struct bench_target *target, int seconds, bool (*answers)(const char *address),
                 const char *log);
/* Signals, and waits for its end. */
void server_stop(pid_t pid, int signal);

/* The last line of a file, or the empty text. */
void server_last_line(const char *log, char *line, size_t size);

#endif

#ifndef TRUCE_BENCH_SERVER_H
#define TRUCE_BENCH_SERVER_H

/*
 * Servers of peers: started from their packages, as an unprivileged user, in a directory of their
 * own. They end with the harness, however it ends.
 */
#include <sys/types.h>

#include "bench/harness.h"

struct server {
    char directory[200]; /* The directory of the data, below bench_directory(). */
    /* The directory of the sockets, a short path: names of sockets have at most 107 bytes. */
    char sockets[100];
};

/* Creates both directories, owned by `user` if this process runs as root. Returns false and the
 * reason in `why` on failure. */
bool server_directories(const char *name, const char *user, struct server *server, char *why,
                        size_t size);
/* Removes the directory of the sockets. bench_directory() removes the other one. */
void server_forget(struct server *server);

/* Starts a program, as `user` if this process is root. The output goes to `log`. */
pid_t server_spawn(const char *user, const char *log, const char *const argv[]);
/* Runs a program to its end. On failure it returns false, and the last line of its output in
 * `why`. */
bool server_do(const char *user, const char *log, const char *const argv[], char *why, size_t size);
/* Waits up to `seconds` until the target's server replies at its address. Returns false
 * otherwise: `target->reason` is the last line of the log, and `target->server` is 0 if the
 * server has ended. */
bool server_wait(struct bench_target *target, int seconds, bool (*answers)(const char *address),
                 const char *log);
/* Sends the signal, and waits for the end of the process. */
void server_stop(pid_t pid, int signal);

/* Reads the last line of a file, or "". */
void server_last_line(const char *log, char *line, size_t size);

#endif

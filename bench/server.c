#include "bench/server.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Returns the user of the server's process: for root the user `name`, or `nobody` if that does not
 * exist. Returns NULL if another user starts the server, which then runs as this user. */
static const struct passwd *find_user(const char *name)
{
    const struct passwd *user;

    if (geteuid() != 0)
        return NULL;
    user = getpwnam(name);
    return user ? user : getpwnam("nobody");
}

static bool server_give(const char *path, const struct passwd *user)
{
    return !user || chown(path, user->pw_uid, user->pw_gid) == 0;
}

bool server_directories(const char *name, const char *user, struct server *server, char *why,
                        size_t size)
{
    const struct passwd *owner = find_user(user);

    snprintf(server->directory, sizeof server->directory, "%s/%s", bench_directory(), name);
    snprintf(server->sockets, sizeof server->sockets, "/tmp/truce-bench-XXXXXX");
    if (mkdir(server->directory, 0700) == 0 && mkdtemp(server->sockets) &&
        server_give(server->directory, owner) && server_give(server->sockets, owner))
        return true;
    snprintf(why, size, "its directory cannot be made: %s", strerror(errno));
    return false;
}

void server_forget(struct server *server)
{
    if (server->sockets[0])
        rmdir(server->sockets);
}

static _Noreturn void be_program(const struct passwd *user, const char *log,
                                 const char *const argv[])
{
    int out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);

    if (out < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
        _exit(126);
    if (user && (initgroups(user->pw_name, user->pw_gid) != 0 || setgid(user->pw_gid) != 0 ||
                 setuid(user->pw_uid) != 0)) {
        fprintf(stderr, "cannot become %s: %s\n", user->pw_name, strerror(errno));
        _exit(126);
    }
    prctl(PR_SET_PDEATHSIG, SIGQUIT);
    execv(argv[0], (char *const *)argv);
    fprintf(stderr, "cannot run %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

pid_t server_spawn(const char *user, const char *log, const char *const argv[])
{
    const struct passwd *as = find_user(user);
    pid_t pid;

    fflush(NULL);
    pid = fork();
    BENCH_CHECK(pid >= 0);
    if (pid == 0)
        be_program(as, log, argv);
    return pid;
}

bool server_do(const char *user, const char *log, const char *const argv[], char *why, size_t size)
{
    pid_t pid = server_spawn(user, log, argv);
    int status;

    BENCH_CHECK(waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    server_last_line(log, why, size);
    return false;
}

bool server_wait(struct bench_target *target, int seconds, bool (*answers)(const char *address),
                 const char *log)
{
    for (int tries = 0; tries < 20 * seconds; tries++) {
        if (answers(target->address))
            return true;
        if (waitpid(target->server, NULL, WNOHANG) == target->server) {
            target->server = 0;
            break;
        }
        usleep(50 * 1000);
    }
    server_last_line(log, target->reason, sizeof target->reason);
    return false;
}

void server_stop(pid_t pid, int signal)
{
    int status;

    if (pid > 0 && kill(pid, signal) == 0)
        waitpid(pid, &status, 0);
}

void server_last_line(const char *log, char *line, size_t size)
{
    char read[500];
    FILE *f = fopen(log, "r");

    snprintf(line, size, "it said nothing");
    if (!f)
        return;
    while (fgets(read, sizeof read, f)) {
        read[strcspn(read, "\n")] = '\0';
        if (read[0])
            snprintf(line, size, "%s", read);
    }
    fclose(f);
}

/*
 * Servers of MongoDB's protocol: `truce serve`, those that the tests run against
 * (tests/servers/serve starts all of them), and a real one that TRUCE_BENCH_MONGODB names. Each is
 * a target twice: through libmongoc alone, and ("truce+NAME") as the store of truce. Both share the
 * server, in databases of their own. Sides run in turn, so the server's costs during a round belong
 * to the running side.
 *
 * `serve` runs a command and then ends the server. Here the command writes the address into a file
 * and waits for the end of its input, which is a pipe from this process. So the server ends with
 * this process, however it ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/harness.h"
#include "bench/mongo.h"
#include "bench/server.h"

#define WAIT_SECONDS 300 /* The time for the server's installation and start. */

static struct known {
    const char *name; /* The name of the target. */
    /* The name in tests/servers/serve, or NULL if TRUCE_BENCH_MONGODB has the address. */
    const char *serve;
    /* The argument of its process that makes acknowledged writes durable. */
    const char *flushes;
    bool in_memory;
    bool ours; /* The server is `truce serve` of this build. */
    pid_t pid; /* The process, or 0 before the start. */
    int hold;  /* A pipe. The server ends when this end is closed. */
    char address[200], reason[300];
} servers[] = {
    {.name = "secantusdb", .serve = "secantus", .flushes = "--sync-on-commit"},
    {.name = "mongo-java-server", .serve = "java", .in_memory = true},
    {.name = "truce-serve", .serve = "truce", .ours = true},
    {.name = "mongodb"},
};

static struct known *target_mongo_find(const char *name)
{
    for (size_t i = 0; i < sizeof servers / sizeof *servers; i++) {
        if (!strcmp(servers[i].name, name))
            return &servers[i];
    }
    return NULL;
}

bool mongo_is_server(const char *name)
{
    return target_mongo_find(name) != NULL;
}

const char *mongo_under_truce(const char *name)
{
    static const char prefix[] = "truce+";

    return strncmp(name, prefix, strlen(prefix)) == 0 ? name + strlen(prefix) : "";
}

/* ---- starting -------------------------------------------------------------------------------- */

static _Noreturn void be_serve(const struct known *server, int input, const char *log,
                               const char *file)
{
    int out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);

    /* Other servers must not run in real time, because threads that wait by spinning would never
     * end. */
    if (!server->ours)
        BENCH_CHECK(sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){0}) == 0);
    if (out < 0 || dup2(input, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
        _exit(126);
    setenv("TMPDIR", bench_directory(), 1);
    setenv("TRUCE_TEST_PROGRAM", TRUCE_PROGRAM, 1);
    setenv("TRUCE_TEST_SERVER_SYNC", "1", 1);
    setenv("TRUCE_TEST_SERVER_LONG", "1", 1);
    execl(TRUCE_SERVE, TRUCE_SERVE, server->serve, "sh", "-c",
          "echo \"$TRUCE_TEST_MONGODB\" >\"$1\"; exec cat >/dev/null", "sh", file, (char *)NULL);
    _exit(127);
}

static bool read_address(const char *file, struct known *server)
{
    FILE *f = fopen(file, "r");
    bool whole;

    if (!f)
        return false;
    whole = fgets(server->address, sizeof server->address, f) && strchr(server->address, '\n');
    server->address[strcspn(server->address, "\n")] = '\0';
    fclose(f);
    return whole;
}

static void await_address(struct known *server, const char *log, const char *file)
{
    char line[300];

    for (int tries = 0; tries < 20 * WAIT_SECONDS; tries++) {
        if (read_address(file, server))
            return;
        if (waitpid(server->pid, NULL, WNOHANG) == server->pid) {
            server->pid = 0;
            break;
        }
        usleep(50 * 1000);
    }
    server_last_line(log, line, sizeof line);
    snprintf(server->reason, sizeof server->reason, "%.290s",
             strncmp(line, "skipped: ", 9) ? line : line + 9);
}

static void start_known(struct known *server)
{
    char log[300], file[300];
    int hold[2];

    snprintf(log, sizeof log, "%s/%s.log", bench_directory(), server->name);
    snprintf(file, sizeof file, "%s/%s.address", bench_directory(), server->name);
    BENCH_CHECK(pipe2(hold, O_CLOEXEC) == 0);
    fflush(NULL);
    server->pid = fork();
    BENCH_CHECK(server->pid >= 0);
    if (server->pid == 0)
        be_serve(server, hold[0], log, file);
    close(hold[0]);
    server->hold = hold[1];
    await_address(server, log, file);
}

static void name_known(struct known *server)
{
    const char *given = getenv("TRUCE_BENCH_MONGODB");

    if (given && *given)
        snprintf(server->address, sizeof server->address, "%s", given);
    else
        snprintf(server->reason, sizeof server->reason, "TRUCE_BENCH_MONGODB names no server");
}

void mongo_server_start(struct bench_target *target, const char *name)
{
    struct known *server = target_mongo_find(name);

    if (!server->address[0] && !server->reason[0]) {
        if (server->serve)
            start_known(server);
        else
            name_known(server);
    }
    target->server = server->pid;
    target->server_is_slow = server->serve && !server->ours;
    snprintf(target->reason, sizeof target->reason, "%s", server->reason);
    snprintf(target->address, sizeof target->address, "%s", server->address);
}

void mongo_server_stop(struct bench_target *target)
{
    for (size_t i = 0; i < sizeof servers / sizeof *servers; i++) {
        if (servers[i].pid == 0 || servers[i].pid != target->server)
            continue;
        close(servers[i].hold);
        while (waitpid(servers[i].pid, NULL, 0) < 0 && errno == EINTR)
            ;
        servers[i].pid = 0;
    }
    target->server = 0;
}

/* ---- guarantees ------------------------------------------------------------------------------ */

/* Returns whether a child of `serve` has this argument. */
static bool runs_with(pid_t head, const char *argument)
{
    char command[300];

    snprintf(command, sizeof command,
             "cat $(pgrep -P %d | sed 's|.*|/proc/&/cmdline|') 2>/dev/null | tr '\\0' '\\n' | "
             "grep -qxe %s",
             (int)head, argument);
    return system(command) == 0;
}

static void mongo_ask(struct mongo *mongo, const char *command, bson_t *reply)
{
    bson_t *asked = BCON_NEW(command, BCON_INT32(1));

    mongo_command(mongo, asked, reply);
    bson_destroy(asked);
}

static const char *text_at(const bson_t *document, const char *path)
{
    bson_iter_t iter, found;

    return bson_iter_init(&iter, document) && bson_iter_find_descendant(&iter, path, &found) &&
                   BSON_ITER_HOLDS_UTF8(&found)
               ? bson_iter_utf8(&found, NULL)
               : "";
}

static bool is_false_at(const bson_t *document, const char *path)
{
    bson_iter_t iter, found;

    return bson_iter_init(&iter, document) && bson_iter_find_descendant(&iter, path, &found) &&
           !bson_iter_as_bool(&found);
}

/* Servers in memory acknowledge j: true, too, so this checks the engine and the process. */
void mongo_server_describe(struct mongo *mongo, struct bench_target *target, const char *name)
{
    const struct known *server = target_mongo_find(name);
    bson_t build, status;

    mongo_ask(mongo, "buildInfo", &build);
    mongo_ask(mongo, "serverStatus", &status);
    snprintf(target->version, sizeof target->version, "%s (says MongoDB %s)", server->name,
             text_at(&build, "version"));
    target->not_durable = server->in_memory || is_false_at(&status, "storageEngine.persistent");
    if (server->flushes && !runs_with(target->server, server->flushes))
        bench_fail(__FILE__, __LINE__, server->flushes, "is no argument of the server's process");
    snprintf(target->settings, sizeof target->settings, "w=majority j=true%s%s%s%s",
             server->flushes ? " " : "", server->flushes ? server->flushes : "",
             text_at(&status, "storageEngine.name")[0] ? ", storage engine " : "",
             server->in_memory ? ", keeps everything in memory"
                               : text_at(&status, "storageEngine.name"));
    bson_destroy(&build);
    bson_destroy(&status);
}

/* ---- the target ------------------------------------------------------------------------------ */

static void mongo_start(struct bench_target *target)
{
    mongo_server_start(target, target->name);
}

static void mongo_open_target(struct bench_side *side)
{
    char database[40];

    snprintf(database, sizeof database, "side%d", side->number);
    for (int i = 0; i < side->callers_max; i++)
        side->connections[i] = mongo_connect(side->target->address, database);
    if (!side->joined)
        mongo_server_describe(side->connections[0], side->target, side->target->name);
}

static void mongo_close_target(struct bench_side *side)
{
    if (!side->joined)
        mongo_drop(side->connections[0]);
    for (int i = 0; i < side->callers_max; i++)
        mongo_close(side->connections[i]);
}

static void mongo_spoil(struct bench_side *side)
{
    mongo_remove_any(side->connections[0]);
}

const struct target_kind target_mongo = {.name = "mongodb",
                                         .rounds_max = 3,
                                         .start = mongo_start,
                                         .stop = mongo_server_stop,
                                         .open = mongo_open_target,
                                         .close = mongo_close_target,
                                         .spoil = mongo_spoil};

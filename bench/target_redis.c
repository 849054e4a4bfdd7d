/*
 * Redis with appendfsync always: a server of its own, reached by its Unix socket. Redis takes part
 * in a workload if its commands, or a script, can do the work.
 */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "bench/harness.h"
#include "bench/redis.h"
#include "bench/server.h"

#define USER    "redis"
#define PROGRAM "/usr/bin/redis-server"

static struct server server;

static void redis_stop(struct bench_target *target)
{
    server_stop(target->server, SIGTERM);
    unlink(target->address);
    server_forget(&server);
    target->server = 0;
}

static void redis_start(struct bench_target *target)
{
    char log[300];
    const char *const run[] = {PROGRAM,
                               "--port",
                               "0",
                               "--unixsocket",
                               target->address,
                               "--unixsocketperm",
                               "777",
                               "--dir",
                               server.directory,
                               "--appendonly",
                               "yes",
                               "--appendfsync",
                               "always",
                               "--save",
                               "",
                               "--auto-aof-rewrite-percentage",
                               "0",
                               NULL};

    if (access(PROGRAM, X_OK) != 0) {
        snprintf(target->reason, sizeof target->reason, "it is not installed");
        return;
    }
    if (!server_directories("redis", USER, &server, target->reason, sizeof target->reason))
        return;
    snprintf(log, sizeof log, "%s/redis.log", bench_directory());
    snprintf(target->address, sizeof target->address, "%s/socket", server.sockets);
    target->server = server_spawn(USER, log, run);
    if (!server_wait(target, 10, redis_try, log))
        redis_stop(target);
}

static void redis_must_be(struct redis *redis, const char *name, const char *value)
{
    const struct redis_item *items = redis_run(redis, "CONFIG|GET|%s", name);

    if (items[0].number != 2 || strcmp(items[2].text, value) != 0)
        bench_fail(__FILE__, __LINE__, name, "is not as it must be");
}

static void redis_open_target(struct bench_side *side)
{
    const char *version;

    for (int i = 0; i < side->callers_max; i++)
        side->connections[i] = redis_connect(side->target->address);
    if (side->joined)
        return;
    redis_must_be(side->connections[0], "appendonly", "yes");
    redis_must_be(side->connections[0], "appendfsync", "always");
    version = strstr(redis_run(side->connections[0], "INFO|server")->text, "redis_version:");
    snprintf(side->target->version, sizeof side->target->version, "Redis %.*s",
             version ? (int)strcspn(version + 14, "\r\n") : 0, version ? version + 14 : "");
    snprintf(side->target->settings, sizeof side->target->settings,
             "appendonly=yes appendfsync=always");
    redis_run(side->connections[0], "FLUSHALL");
}

static void redis_close_target(struct bench_side *side)
{
    for (int i = 0; i < side->callers_max; i++)
        redis_close(side->connections[i]);
}

static void redis_spoil(struct bench_side *side)
{
    char key[100];

    snprintf(key, sizeof key, "%s", redis_run(side->connections[0], "RANDOMKEY")->text);
    redis_run(side->connections[0], "DEL|%s", key);
}

const struct target_kind target_redis = {.name = "redis",
                                         .start = redis_start,
                                         .stop = redis_stop,
                                         .open = redis_open_target,
                                         .close = redis_close_target,
                                         .spoil = redis_spoil};

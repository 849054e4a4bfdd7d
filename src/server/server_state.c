#include "server/server_state.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/limits.h"
#include "server/admin/top.h"
#include "server/dispatch.h"

void server_state_begin(struct server *server, truce_store *store, const char *database,
                        const struct server_state_options *options)
{
    server->store = store;
    server->commands = options->commands;
    server->dispatch = server_dispatch;
    snprintf(server->database, sizeof server->database, "%s", database);
    server->started_ms = truce__clock_wall_ms();
    server->started_ns = truce__clock_monotonic_ns();
    server->cursors = cursors_new(TRUCE_SERVER_CURSORS_MAX);
    server->handles = handles_new();
    server->snapshots = snapshot_registry_new(server, options->snapshot_ms);
    server->views = views_new(store, server->database);
    server->metrics = metrics_new(options->commands);
    server->top = top_new();
    server->sweeper = sweeper_new(options->sweep_every_ms);
    server->sessions = sessions_new(store, server->cursors, &options->sessions);
    atomic_init(&server->slow_ms, TRUCE_SERVER_SLOW_MS);
    pthread_mutex_init(&server->mutex, NULL);
    pthread_rwlock_init(&server->names, NULL);
    pthread_cond_init(&server->gone, NULL);
}

void server_state_end(struct server *server)
{
    sweeper_free(server->sweeper);
    metrics_free(server->metrics);
    top_free(server->top);
    fail_point_free(server->fail_point);
    handles_free(server->handles);
    sessions_free(server->sessions);
    cursors_free(server->cursors);
    snapshot_registry_free(server->snapshots);
    views_free(server->views);
    pthread_cond_destroy(&server->gone);
    pthread_mutex_destroy(&server->mutex);
    pthread_rwlock_destroy(&server->names);
}

/*
 * truce: a store by its URI. "truce" by itself is a fresh file for each workload. All callers are
 * threads that share one store, as a program's threads would.
 */
#include <string.h>
#include <unistd.h>

#include "bench/harness.h"
#include "truce/sys/store.h"

static void open_target(struct bench_side *side)
{
    char *file = bson_strdup_printf("file:%s/%s-%d.truce", bench_directory(), side->workload->name,
                                    (int)getpid());
    bool own = !strcmp(side->target->name, "truce");
    truce_store *store = NULL;
    bson_error_t error;

    BENCH_MUST(truce_store_open(own ? file : side->target->name, NULL, &store, &error), error);
    BENCH_CHECK(!own || store->capabilities & TRUCE_CAN_DURABLE);
    for (int i = 0; i < side->callers_max; i++)
        side->connections[i] = store;
    snprintf(side->target->version, sizeof side->target->version, "truce, %s:", store->ops->scheme);
    snprintf(side->target->settings, sizeof side->target->settings, "%s",
             store->capabilities & TRUCE_CAN_DURABLE ? "durable" : "not durable");
    bson_free(file);
}

static void close_target(struct bench_side *side)
{
    truce_store_close(side->connections[0]);
}

const struct target_kind target_truce = {
    .name = "truce", .open = open_target, .close = close_target};

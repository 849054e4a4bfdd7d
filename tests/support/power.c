#include "tests/support/power.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>

#include "tests/support/disk_vfs.h"
#include "tests/support/test.h"

enum { LUCK = 3, WORKERS_MAX = 8, CALLS_MAX = 1500 };

struct working {
    const struct power_life *life;
    truce_store *store;
    int number;
};

static void *work(void *arg)
{
    const struct working *working = arg;

    working->life->work(working->store, working->number);
    return NULL;
}

static void work_until_cut(const struct power_life *life, truce_store *store)
{
    struct working working[WORKERS_MAX];
    pthread_t threads[WORKERS_MAX];

    for (int i = 0; i < life->workers; i++) {
        working[i] = (struct working){life, store, i};
        pthread_create(&threads[i], NULL, work, &working[i]);
    }
    for (int i = 0; i < life->workers; i++)
        pthread_join(threads[i], NULL);
    disk_cut();
}

static truce_store *open_store(const char *path)
{
    truce_store *store = NULL;
    bson_error_t error = {0};

    CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
    return store;
}

void power_cut(const struct power_life *life, struct random *random)
{
    const char *directory = test_directory();
    truce_store *store;
    char path[400];

    disk_reset();
    snprintf(path, sizeof path, "%s/s.truce", directory);
    store = open_store(path);
    if (!store || !life->begin(store))
        return;
    disk_cut_after(1 + (int64_t)truce__random_below(random, CALLS_MAX));
    work_until_cut(life, store);
    for (int i = 0; i < LUCK; i++) {
        snprintf(path, sizeof path, "%s/%d", directory, i);
        mkdir(path, 0700);
        disk_restore(path, random);
    }
    truce_store_close(store);
    disk_reset();
    for (int i = 0; i < LUCK; i++) {
        snprintf(path, sizeof path, "%s/%d/s.truce", directory, i);
        store = open_store(path);
        if (store)
            life->judge(store);
        truce_store_close(store);
    }
}

/*
 * truce: a store by its URI. "truce" by itself is a fresh file for each workload, "truce+NAME" a
 * fresh database of a server of MongoDB's protocol. Callers that are threads share one store, as a
 * program's threads would.
 */
#include <string.h>
#include <unistd.h>

#include "bench/document.h"
#include "bench/harness.h"
#include "bench/mongo.h"
#include "store/store.h"
#include "truce/sys/store.h"

#define LOG_DOCUMENTS 5000
#define LOG_BYTES     INT64_C(150000000) /* Twice the size of the log in continuous use. */

static const char *server_of(const struct bench_side *side)
{
    return mongo_under_truce(side->target->name);
}

static void truce_database_of(const struct bench_side *side, char database[40])
{
    snprintf(database, 40, "side%d", side->number);
}

static char *address_of(const struct bench_side *side)
{
    char database[40];

    truce_database_of(side, database);
    if (server_of(side)[0])
        return mongo_address(side->target->address, database);
    if (strcmp(side->target->name, "truce") != 0)
        return bson_strdup(side->target->name);
    return bson_strdup_printf("file:%s/%d.truce", bench_directory(), side->number);
}

static void truce_start(struct bench_target *target)
{
    if (mongo_under_truce(target->name)[0])
        mongo_server_start(target, mongo_under_truce(target->name));
}

/* Reads the server's description of itself. */
static void describe_server(struct bench_side *side)
{
    struct mongo *mongo = mongo_connect(side->target->address, "admin");

    mongo_server_describe(mongo, side->target, server_of(side));
    mongo_close(mongo);
}

/* Rewrites some documents, without waiting for the disk, until the log has its lasting size, as in
 * a store that has been in use. (PostgreSQL's log is created before the run, too; the workload
 * first_inserts shows the cost without this.) */
static void fill_log(truce_store *store)
{
    const truce_write_options relaxed = {.relaxed = true, .multi = true};
    bson_t filter = BSON_INITIALIZER, update, document;
    bson_error_t error;

    for (int64_t id = 0; id < LOG_DOCUMENTS; id++) {
        document_make(id, &document);
        BENCH_MUST(truce_insert(store, "log", &document, &relaxed, &error), error);
        bson_destroy(&document);
    }
    document_increment(1, &update);
    for (int64_t written = 0; written < LOG_BYTES; written += LOG_DOCUMENTS * 300)
        BENCH_MUST(truce_update(store, "log", &filter, &update, &relaxed, NULL, &error), error);
    BENCH_MUST(truce_collection_drop(store, "log", &error), error);
    bson_destroy(&filter);
    bson_destroy(&update);
}

static void truce_open_target(struct bench_side *side)
{
    struct bench_target *target = side->target;
    char *address = address_of(side);
    truce_store *store = NULL;
    bson_error_t error;

    BENCH_MUST(truce_store_open(address, NULL, &store, &error), error);
    BENCH_CHECK(strcmp(target->name, "truce") != 0 || store->capabilities & TRUCE_CAN_DURABLE);
    for (int i = 0; i < side->callers_max; i++)
        side->connections[i] = store;
    target->not_durable = !(store->capabilities & TRUCE_CAN_DURABLE);
    snprintf(target->settings, sizeof target->settings, "%s",
             target->not_durable ? "not durable" : "durable");
    if (server_of(side)[0] && !side->joined)
        describe_server(side);
    else if (!side->joined && !side->workload->fresh && !side->workload->reads && !bench_small)
        fill_log(store);
    snprintf(target->version, sizeof target->version, "truce, %s:", store->ops->scheme);
    bson_free(address);
}

static void truce_close_target(struct bench_side *side)
{
    truce_store_close(side->connections[0]);
    if (server_of(side)[0] && !side->joined) {
        char database[40];
        struct mongo *mongo;

        truce_database_of(side, database);
        mongo = mongo_connect(side->target->address, database);
        mongo_drop(mongo);
        mongo_close(mongo);
    }
}

/* Removes a document. The job that is removed is done, because the check counts only done jobs. */
static void lose_one(truce_store *store, const char *collection)
{
    bson_t *done = BCON_NEW("state", "done"), all = BSON_INITIALIZER;
    truce_write_result result = {0};
    bson_error_t error;

    BENCH_MUST(truce_remove(store, collection, done, NULL, &result, &error), error);
    if (!result.removed)
        BENCH_MUST(truce_remove(store, collection, &all, NULL, NULL, &error), error);
    truce_write_result_release(&result);
    bson_destroy(done);
}

static void truce_spoil(struct bench_side *side)
{
    truce_store *store = side->connections[0];
    bson_t collections;
    bson_error_t error;
    bson_iter_t list, entry, name;

    BENCH_MUST(truce_collection_list(store, NULL, &collections, &error), error);
    BENCH_CHECK(bson_iter_init(&list, &collections));
    while (bson_iter_next(&list)) {
        BENCH_CHECK(bson_iter_recurse(&list, &entry) &&
                    bson_iter_find_descendant(&entry, "name", &name));
        lose_one(store, bson_iter_utf8(&name, NULL));
    }
    bson_destroy(&collections);
}

static int64_t truce_number_of(const bson_t *facts, const char *path)
{
    bson_iter_t iter, found;

    return bson_iter_init(&iter, facts) && bson_iter_find_descendant(&iter, path, &found)
               ? bson_iter_as_int64(&found)
               : 0;
}

static void truce_count_writes(struct bench_side *side, struct bench_writes *writes)
{
    bson_t facts;
    bson_error_t error;

    if (server_of(side)[0])
        return;
    BENCH_MUST(truce__store_facts(side->connections[0], &facts, &error), error);
    *writes = (struct bench_writes){.operations = truce_number_of(&facts, "writes.operations"),
                                    .groups = truce_number_of(&facts, "writes.groups"),
                                    .syncs = truce_number_of(&facts, "writes.syncs"),
                                    .held_us = truce_number_of(&facts, "writes.held_us")};
    bson_destroy(&facts);
}

static void truce_size(struct bench_side *side, int64_t *data, int64_t *log)
{
    char *address = address_of(side);
    const char *path = strncmp(address, "file:", 5) ? "" : address + 5;

    *data = bench_file_size(path, "");
    *log = bench_file_size(path, "-wal");
    bson_free(address);
}

const struct target_kind target_truce = {.name = "truce",
                                         .start = truce_start,
                                         .stop = mongo_server_stop,
                                         .open = truce_open_target,
                                         .close = truce_close_target,
                                         .spoil = truce_spoil,
                                         .count = truce_count_writes,
                                         .size = truce_size};

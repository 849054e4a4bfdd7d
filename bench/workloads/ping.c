/* A message and its reply: the minimum cost of an operation over a connection. */
#include "bench/documents.h"
#include "bench/mongo.h"

static int64_t ping_mongo(struct bench_call *call)
{
    bson_t reply, *command = BCON_NEW("ping", BCON_INT32(1));

    mongo_command(call->connection, command, &reply);
    bson_destroy(&reply);
    bson_destroy(command);
    return 1;
}

const struct bench_workload workload_ping = {
    .name = "ping",
    .title = "a message without work",
    .unit = "messages",
    .reads = true,
    .aim_serve = 67000,
    .forms = {{"mongodb", NULL, documents_setup, ping_mongo, documents_check}}};

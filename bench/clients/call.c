/*
 * The cost of a call in C, which the packages of the languages are compared with. The call finds a
 * document by its _id, by a request document (truce_command). The file must have the collection
 * "x".
 *
 * `bench_call FILE CALLS` prints nanoseconds for each call: of the clock, and of the processor.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <truce/truce.h>

static double bench_call_now(clockid_t clock)
{
    struct timespec now;

    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Finds one document. Returns false if it does not exist. */
static bool bench_call_find(truce_store *store, int32_t id)
{
    bson_t *request = BCON_NEW("find", "x", "filter", "{", "_id", BCON_INT32(id), "}", "limit",
                               BCON_INT32(1), "singleBatch", BCON_BOOL(true));
    bson_t reply;
    bson_iter_t at, found;
    bool is = !truce_command(store, NULL, request, &reply, NULL) && bson_iter_init(&at, &reply) &&
              bson_iter_find_descendant(&at, "cursor.firstBatch.0.n", &found);

    bson_destroy(request);
    bson_destroy(&reply);
    return is;
}

int main(int argc, char **argv)
{
    int calls = argc == 3 ? atoi(argv[2]) : 0;
    truce_store *store;
    bson_error_t error;
    double began, used;

    if (calls < 1) {
        fprintf(stderr, "usage: bench_call FILE CALLS\n");
        return 2;
    }
    if (truce_store_open(argv[1], NULL, &store, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    for (int i = 0; i < 1000; i++)
        if (!bench_call_find(store, i)) {
            fprintf(stderr, "document %d of \"x\" does not exist\n", i);
            truce_store_close(store);
            return 1;
        }
    began = bench_call_now(CLOCK_MONOTONIC);
    used = bench_call_now(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < calls; i++)
        (void)bench_call_find(store, i % 1000);
    printf("%.0f %.0f\n", (bench_call_now(CLOCK_MONOTONIC) - began) / calls,
           (bench_call_now(CLOCK_PROCESS_CPUTIME_ID) - used) / calls);
    truce_store_close(store);
    return 0;
}

/*
 * The contract, kept by the embedded store while another store holds the lock nearly all the time.
 * That store executes most writes (engine/cross_process_commit.c), and no caller notices a difference.
 */
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "engine/documents/open_documents.h"
#include "store/file/file.h"
#include "tests/support/contract.h"

#define HOLD_NS INT64_C(2000000)

static truce_store *busy;
static pthread_t holder;
static atomic_bool stops;
static int64_t delegated;

/* Holds the lock until another process has published a write, for a while. */
static truce_status hold(struct write_op *op, struct writer *writer, bson_error_t *error)
{
    const struct timespec nap = {.tv_nsec = 20000};
    int64_t until_ns = truce__clock_monotonic_ns() + HOLD_NS;

    (void)op;
    (void)error;
    while (!atomic_load(&writer->lock->page->published) && truce__clock_monotonic_ns() < until_ns)
        nanosleep(&nap, NULL);
    return TRUCE_OK;
}

static void *hold_on(void *arg)
{
    struct engine *engine = truce__file_engine(arg);

    while (!atomic_load(&stops)) {
        struct write_op op = {.run = hold,
                              .relaxed = true,
                              .deadline_ns = truce__clock_monotonic_ns() + INT64_C(30000000000)};

        (void)truce__writer_run(&engine->writer, &op, NULL);
    }
    return NULL;
}

static void end_busy(void)
{
    if (!busy)
        return;
    atomic_store(&stops, true);
    pthread_join(holder, NULL);
    delegated = (int64_t)atomic_load(&truce__file_engine(busy)->writer.combine.delegated);
    truce_store_close(busy);
    busy = NULL;
}

static truce_store *open_delegated(void)
{
    truce_store *store = NULL;
    bson_error_t error;
    char uri[600];

    end_busy();
    snprintf(uri, sizeof uri, "file:%s/carried.truce", test_directory());
    if (truce_store_open(uri, NULL, &store, &error) || truce_store_open(uri, NULL, &busy, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return store;
    }
    atomic_store(&stops, false);
    pthread_create(&holder, NULL, hold_on, busy);
    return store;
}

CONTRACT_SUITE(open_delegated)

TEST(the_other_store_executes_most_writes)
{
    bson_t *document = test_bson("{'a': 1}");
    truce_store *store = open_delegated();
    bson_error_t error;

    REQUIRE(store && busy);
    for (int i = 0; i < 200; i++)
        CHECK_OK(truce_insert(store, "c", document, NULL, &error), error);
    CHECK_INT(atomic_load(&truce__file_engine(store)->writer.combine.sent), >, 100);
    truce_store_close(store);
    end_busy();
    CHECK_INT(delegated, >, 100);
    bson_destroy(document);
}

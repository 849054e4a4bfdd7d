/*
 * Reads never go back in time. Once any thread of any process has read a value, or has the
 * acknowledgement of its write, every read that begins later returns it or a newer one. Reads by
 * _id come from the cache of documents or from the file; reads by a filter always come from the
 * file. In two processes, writers update, replace in a bulk that is rolled back half of the time,
 * and remove and insert again.
 *
 * TRUCE_MONOTONIC_MS: how long (1500).
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/test.h"
#include "truce/store.h"

enum { DOCUMENTS = 3, READERS = 3 };

/* Shared by all processes: the highest value of each document that any thread has seen. */
static struct shared {
    atomic_llong floor[DOCUMENTS];
    atomic_llong reads;
    atomic_bool stop;
} * shared;

static char path[400];
static truce_store *store;
static atomic_bool alone; /* this process is the only one */

static void raise_floor(int document, int64_t value)
{
    long long seen = atomic_load(&shared->floor[document]);

    while (seen < value &&
           !atomic_compare_exchange_weak(&shared->floor[document], &seen, (long long)value))
        ;
}

static int64_t number_of(const bson_t *document)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, "n") ? bson_iter_as_int64(&iter) : -1;
}

/* ---- readers --------------------------------------------------------------------------------- */

static void look(int document, bool by_id)
{
    bson_t *filter = by_id ? BCON_NEW("_id", BCON_INT32(document))
                           : BCON_NEW("_id", "{", "$gte", BCON_INT32(document), "$lte",
                                      BCON_INT32(document), "}");
    int64_t floor = atomic_load(&shared->floor[document]);
    bson_t found;
    bson_error_t error;

    CHECK_OK(truce_find_one(store, "c", filter, NULL, &found, &error), error);
    CHECK_INT(number_of(&found), >=, floor);
    raise_floor(document, number_of(&found));
    atomic_fetch_add(&shared->reads, 1);
    bson_destroy(&found);
    bson_destroy(filter);
}

static void *read_on(void *arg)
{
    unsigned turn = (unsigned)(uintptr_t)arg;

    while (!atomic_load(&shared->stop) && test_failures() < 10) {
        look((int)(turn % DOCUMENTS), turn % 4 != 3);
        turn = turn * 1664525u + 1013904223u;
        turn ^= turn >> 15;
    }
    return NULL;
}

/* ---- writers --------------------------------------------------------------------------------- */

static void increment(int document)
{
    bson_t *filter = BCON_NEW("_id", BCON_INT32(document));
    bson_t *update = BCON_NEW("$inc", "{", "n", BCON_INT64(1), "}");
    const truce_modify_options options = {.return_new = true};
    truce_write_result result;
    bson_error_t error;
    bson_t after;

    CHECK_OK(truce_find_and_modify(store, "c", filter, update, &options, &after, &result, &error),
             error);
    raise_floor(document, number_of(&after));
    truce_write_result_release(&result);
    bson_destroy(&after);
    bson_destroy(update);
    bson_destroy(filter);
}

/* Removes and inserts the document with a greater number in one step, or fails in the end: then no
 * read may see the number. The guard prevents processes from storing a lower number than another
 * one. */
static void replace(int document, bool refused)
{
    int64_t floor = atomic_load(&shared->floor[document]);
    bson_t *filter = BCON_NEW("_id", BCON_INT32(document), "n", BCON_INT64(floor));
    bson_t *fresh = BCON_NEW("_id", BCON_INT32(document), "n",
                             BCON_INT64(refused ? INT64_C(1) << 40 : floor + 1));
    bson_t *none = BCON_NEW("_id", BCON_INT32(-1));
    const truce_write writes[] = {
        {.kind = TRUCE_WRITE_REMOVE, .collection = "c", .filter = filter},
        {.kind = TRUCE_WRITE_INSERT, .collection = "c", .document = fresh},
        {.kind = TRUCE_WRITE_REQUIRE, .collection = "c", .filter = none},
    };
    const truce_bulk_options options = {.atomic = true};
    truce_write_outcome outcomes[3];
    bson_error_t error;
    truce_status status = truce_bulk(store, writes, refused ? 3 : 2, &options, outcomes, &error);

    CHECK(status == TRUCE_CONFLICT || (!status && !refused));
    if (!status)
        raise_floor(document, floor + 1);
    for (int i = 0; i < (refused ? 3 : 2); i++)
        truce_write_result_release(&outcomes[i].result);
    bson_destroy(none);
    bson_destroy(fresh);
    bson_destroy(filter);
}

static void *write_on(void *arg)
{
    unsigned turn = (unsigned)(uintptr_t)arg;

    while (!atomic_load(&shared->stop) && test_failures() < 10) {
        int document = (int)(turn % DOCUMENTS);

        if (turn % 5 == 0)
            replace(document, turn % 2);
        else
            increment(document);
        turn = turn * 1664525u + 1013904223u;
        turn ^= turn >> 15;
        if (!atomic_load(&alone))
            truce__clock_sleep_ms(turn % 4); /* so that each process has its cache for a while */
    }
    return NULL;
}

/* ---- the crowd ------------------------------------------------------------------------------- */

static void work(unsigned number)
{
    pthread_t threads[READERS + 1];

    for (unsigned i = 0; i < READERS; i++)
        pthread_create(&threads[i], NULL, read_on, (void *)(uintptr_t)(number * 100 + i));
    pthread_create(&threads[READERS], NULL, write_on, (void *)(uintptr_t)(number * 100 + 50));
    truce__clock_sleep_ms((uint32_t)test_scale("TRUCE_MONOTONIC_MS", 1500));
    for (int i = 0; i < 60000 && atomic_load(&shared->reads) <= 100; i++)
        truce__clock_sleep_ms(1); /* a slow machine */
    atomic_store(&shared->stop, true);
    for (int i = 0; i < READERS + 1; i++)
        pthread_join(threads[i], NULL);
}

static void open_store(void)
{
    bson_error_t error;

    CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
}

static void prepare(void)
{
    bson_error_t error;

    if (!shared)
        shared =
            mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(shared != MAP_FAILED);
    memset((void *)shared, 0, sizeof *shared);
    snprintf(path, sizeof path, "%s/reads.truce", test_directory());
    remove(path);
    open_store();
    for (int i = 0; i < DOCUMENTS; i++) {
        bson_t *document = BCON_NEW("_id", BCON_INT32(i), "n", BCON_INT64(0));

        CHECK_OK(truce_insert(store, "c", document, NULL, &error), error);
        bson_destroy(document);
    }
}

TEST(reads_of_one_process_never_go_back)
{
    prepare();
    REQUIRE(!test_failures());
    atomic_store(&alone, true);
    work(1);
    truce_store_close(store);
    CHECK_INT(atomic_load(&shared->reads), >, 100);
}

TEST(reads_of_two_processes_never_go_back)
{
    int status = 0;
    pid_t child;

    prepare();
    REQUIRE(!test_failures());
    truce_store_close(store); /* a child must open its own */
    atomic_store(&alone, false);
    child = fork();
    if (!child) {
        open_store();
        work(2);
        truce_store_close(store);
        test_child_exit();
    }
    open_store();
    work(1);
    truce_store_close(store);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
    CHECK_INT(atomic_load(&shared->reads), >, 100);
}

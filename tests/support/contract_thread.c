/* The contract: many threads at once. Each case has an invariant that a lost, doubled or torn write
 * breaks. */
#include "tests/support/contract.h"

#include <pthread.h>

#include "base/random.h"
#include "base/status.h"

const int contract_thread_cases = 1;

#define THREADS 8

struct job {
    struct contract *c;
    /* The number of the thread, and of its rounds. */
    int number, rounds;
    /* The number of calls that had the effect which the case counts, such as an insert. */
    long done;
};

static void run_threads(struct contract *c, void *(*function)(void *), struct job *jobs, int rounds)
{
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (struct job){.c = c, .number = i, .rounds = rounds};
        CHECK(pthread_create(&threads[i], NULL, function, &jobs[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static const truce_write_options relaxed = {.relaxed = true};

static void *increment(void *arg)
{
    struct job *job = arg;
    bson_t *filter = test_bson("{'_id': 1}"), *update = test_bson("{'$inc': {'n': 1}}");
    bson_error_t error;

    for (int i = 0; i < job->rounds; i++)
        CHECK_OK(truce_update(job->c->store, "counters", filter, update, &relaxed, NULL, &error),
                 error);
    bson_destroy(filter);
    bson_destroy(update);
    return NULL;
}

CONTRACT(increments_of_many_threads_all_count)
{
    struct job jobs[THREADS];
    char expected[60];

    contract_fill(c, "counters", "[{'_id': 1, 'n': 0}]");
    run_threads(c, increment, jobs, 100);
    snprintf(expected, sizeof(expected), "[{'_id': 1, 'n': %d}]", THREADS * 100);
    CHECK_HOLDS("counters", expected);
}

/* Upserts ten names again and again, and counts the inserts. A DUPLICATE means that another thread
 * inserted first. The function of a thread. */
static void *upsert_names(void *arg)
{
    struct job *job = arg;
    truce_write_options upsert = {.upsert = true, .relaxed = true};
    bson_t *update = test_bson("{'$inc': {'n': 1}}");

    for (int i = 0; i < job->rounds; i++) {
        bson_t filter = BSON_INITIALIZER;
        truce_write_result result;
        truce_status status;
        bson_error_t error;

        BSON_APPEND_INT32(&filter, "k", i % 10);
        do {
            status =
                truce_update(job->c->store, "names", &filter, update, &upsert, &result, &error);
            job->done += result.upserted;
            truce_write_result_release(&result);
        } while (status == TRUCE_DUPLICATE);
        CHECK_OK(status, error);
        bson_destroy(&filter);
    }
    bson_destroy(update);
    return NULL;
}

CONTRACT(a_unique_key_is_upserted_once_whichever_thread_comes_first)
{
    struct job jobs[THREADS];
    int64_t count = 0;
    long upserted = 0;

    CHECK_DONE(
        truce_index_create(c->store, "names", J("{'key': {'k': 1}, 'unique': true}"), &c->error));
    run_threads(c, upsert_names, jobs, 60);
    for (int i = 0; i < THREADS; i++)
        upserted += jobs[i].done;
    CHECK_INT(upserted, ==, 10);
    CHECK_DONE(truce_count(c->store, "names", J("{'n': 48}"), NULL, &count, &c->error));
    CHECK_INT(count, ==, 10);
}

/* Takes documents until all are taken, and counts those that it got. The function of a thread. */
static void *claim(void *arg)
{
    struct job *job = arg;
    truce_modify_options options = {.relaxed = true};
    bson_t *filter = test_bson("{'s': 'new'}"), *update = test_bson("{'$set': {'s': 'taken'}}");
    bson_t *sort = test_bson("{'_id': 1}");
    truce_status status;
    bson_error_t error;

    options.sort = sort;
    do {
        bson_t document;

        status = truce_find_and_modify(job->c->store, "jobs", filter, update, &options, &document,
                                       NULL, &error);
        job->done += !status;
        bson_destroy(&document);
    } while (!status);
    CHECK_STATUS(TRUCE_NOT_FOUND, status, error);
    bson_destroy(filter);
    bson_destroy(update);
    bson_destroy(sort);
    return NULL;
}

CONTRACT(a_find_and_modify_hands_each_document_to_one_thread)
{
    enum { JOBS = 300 };
    struct job jobs[THREADS];
    long claimed = 0;

    for (int i = 0; i < JOBS; i++)
        CHECK_DONE(truce_insert(c->store, "jobs", J("{'s': 'new'}"), &relaxed, &c->error));
    run_threads(c, claim, jobs, 0);
    for (int i = 0; i < THREADS; i++)
        claimed += jobs[i].done;
    CHECK_INT(claimed, ==, JOBS);
}

/* Moves one from a to b in an atomic bulk, with a guard. */
static void *transfer(void *arg)
{
    struct job *job = arg;
    struct random random;

    truce__random_seed(&random, (uint64_t)job->number + 1);
    for (int i = 0; i < job->rounds; i++) {
        int from = (int)truce__random_below(&random, 4), to = (from + 1) % 4;
        bson_t source = BSON_INITIALIZER, target = BSON_INITIALIZER, at_least;
        bson_t *take = test_bson("{'$inc': {'n': -1}}"), *give = test_bson("{'$inc': {'n': 1}}");
        truce_write writes[2] = {
            {.kind = TRUCE_WRITE_UPDATE, .collection = "one", .filter = &source, .document = take},
            {.kind = TRUCE_WRITE_UPDATE, .collection = "two", .filter = &target, .document = give}};
        truce_write_outcome outcomes[2];
        bson_error_t error;
        truce_status status;

        writes[0].collection = from % 2 ? "one" : "two";
        writes[1].collection = to % 2 ? "one" : "two";
        BSON_APPEND_INT32(&source, "_id", from);
        BSON_APPEND_DOCUMENT_BEGIN(&source, "n", &at_least);
        BSON_APPEND_INT32(&at_least, "$gt", 0);
        bson_append_document_end(&source, &at_least);
        BSON_APPEND_INT32(&target, "_id", to);
        status =
            truce_bulk(job->c->store, writes, 2,
                       &(truce_bulk_options){.atomic = true, .relaxed = true}, outcomes, &error);
        CHECK(status == TRUCE_OK || status == TRUCE_CONFLICT);
        job->done += !status;
        bson_destroy(&source);
        bson_destroy(&target);
        bson_destroy(take);
        bson_destroy(give);
    }
    return NULL;
}

/* Returns the sum of `n` of four documents. Fails the test if one of them is negative. */
static int64_t total(struct contract *c, const char *collection)
{
    bson_t document;
    bson_iter_t iter;
    int64_t sum = 0;

    for (int i = 0; i < 4; i++) {
        char filter[30];

        snprintf(filter, sizeof(filter), "{'_id': %d}", i);
        if (truce_find_one(c->store, collection, J(filter), NULL, &document, &c->error) ==
                TRUCE_OK &&
            bson_iter_init_find(&iter, &document, "n")) {
            CHECK_INT(bson_iter_as_int64(&iter), >=, 0);
            sum += bson_iter_as_int64(&iter);
        }
        bson_destroy(&document);
    }
    return sum;
}

CONTRACT(atomic_bulks_of_many_threads_keep_the_sum)
{
    struct job jobs[THREADS];
    long done = 0;

    if (!contract_needs(c, TRUCE_CAN_ATOMIC_BULK))
        return;
    contract_fill(c, "two", "[{'_id': 0, 'n': 20}, {'_id': 2, 'n': 20}]");
    contract_fill(c, "one", "[{'_id': 1, 'n': 20}, {'_id': 3, 'n': 20}]");
    run_threads(c, transfer, jobs, 60);
    for (int i = 0; i < THREADS; i++)
        done += jobs[i].done;
    CHECK_INT(done, >, 0);
    CHECK_INT(total(c, "one") + total(c, "two"), ==, 80);
}

/* Even threads write pairs of equal fields, odd ones search for a document whose fields differ. */
static void *write_or_look(void *arg)
{
    struct job *job = arg;
    bson_t *torn = test_bson("{'$expr': {'$ne': ['$a', '$b']}}");
    bson_error_t error;

    for (int i = 0; i < job->rounds; i++) {
        bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER, set;
        int64_t count = 0;

        BSON_APPEND_INT32(&filter, "_id", i % 5);
        BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
        BSON_APPEND_INT32(&set, "a", job->number * 1000 + i);
        BSON_APPEND_INT32(&set, "b", job->number * 1000 + i);
        bson_append_document_end(&update, &set);
        if (job->number % 2 == 0) {
            CHECK_OK(truce_update(job->c->store, "pairs", &filter, &update, &relaxed, NULL, &error),
                     error);
        } else {
            CHECK_OK(truce_count(job->c->store, "pairs", torn, NULL, &count, &error), error);
            CHECK_INT(count, ==, 0);
        }
        bson_destroy(&filter);
        bson_destroy(&update);
    }
    bson_destroy(torn);
    return NULL;
}

CONTRACT(readers_never_see_half_a_write)
{
    struct job jobs[THREADS];

    contract_fill(c, "pairs",
                  "[{'_id': 0, 'a': 0, 'b': 0}, {'_id': 1, 'a': 0, 'b': 0},"
                  " {'_id': 2, 'a': 0, 'b': 0}, {'_id': 3, 'a': 0, 'b': 0},"
                  " {'_id': 4, 'a': 0, 'b': 0}]");
    CHECK_DONE(truce_index_create(c->store, "pairs", J("{'key': {'a': 1}}"), &c->error));
    run_threads(c, write_or_look, jobs, 80);
}

/* All calls at once on two collections, also calls that change them as a whole. */
static void *anything(void *arg)
{
    struct job *job = arg;
    bson_t *document = test_bson("{'a': 1, 'b': [1, 2]}"), *index = test_bson("{'key': {'a': 1}}");
    bson_t *filter = test_bson("{'a': {'$gte': 1}}"), *update = test_bson("{'$inc': {'a': 1}}");
    truce_store *store = job->c->store;
    struct random random;

    truce__random_seed(&random, (uint64_t)job->number + 100);
    for (int i = 0; i < job->rounds; i++) {
        const char *name = truce__random_below(&random, 2) ? "x" : "y";
        truce_status status = TRUCE_OK;
        truce_cursor *cursor = NULL;
        const bson_t *found;
        bson_t list;

        switch (truce__random_below(&random, 12)) {
        case 0:
            status = truce_collection_drop(store, name, NULL);
            break;
        case 1:
            status = truce_index_create(store, name, index, NULL);
            break;
        case 2:
            status = truce_index_drop(store, name, "a_1", NULL);
            break;
        case 3:
            status = truce_collection_rename(store, "x", "y", true, NULL);
            break;
        case 4:
            status = truce_collection_list(store, NULL, &list, NULL);
            bson_destroy(&list);
            break;
        case 5:
        case 6:
            status = truce_find(store, name, filter, NULL, &cursor, NULL);
            while (!status && !(status = truce_cursor_next(cursor, &found, NULL)) && found)
                CHECK_INT(found->len, >, 5);
            truce_cursor_close(cursor);
            break;
        case 7:
            status =
                truce_update(store, name, filter, update,
                             &(truce_write_options){.multi = true, .relaxed = true}, NULL, NULL);
            break;
        default:
            status = truce_insert(store, name, document, &relaxed, NULL);
        }
        CHECK(status == TRUCE_OK || status == TRUCE_NOT_FOUND || status == TRUCE_CONFLICT);
    }
    bson_destroy(document);
    bson_destroy(index);
    bson_destroy(filter);
    bson_destroy(update);
    return NULL;
}

CONTRACT(collections_and_indexes_come_and_go_under_traffic)
{
    struct job jobs[THREADS];
    int64_t by_scan = 0, by_index = 0;

    run_threads(c, anything, jobs, 100);
    CHECK_DONE(truce_insert(c->store, "x", J("{'a': 1}"), NULL, &c->error));
    CHECK_DONE(truce_index_create(c->store, "x", J("{'key': {'a': 1}}"), &c->error));
    CHECK_DONE(truce_count(c->store, "x", J("{'a': {'$gte': 0}}"),
                           COUNT_OPTIONS(.hint = J("{'$natural': 1}")), &by_scan, &c->error));
    CHECK_DONE(truce_count(c->store, "x", J("{'a': {'$gte': 0}}"),
                           COUNT_OPTIONS(.hint = J("{'a': 1}")), &by_index, &c->error));
    CHECK_INT(by_scan, ==, by_index);
}

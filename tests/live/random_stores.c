/*
 * The file: store compared with the memory: store, operation by operation, over collections and
 * indexes that are created and dropped. The memory store reads every document for every query, so
 * this test finds a plan that changes an answer.
 *
 * An epoch is EPOCH operations on empty stores. The seed and i alone determine operation number i
 * (tests/support/random_operations.h). After a difference, the test removes groups of operations as
 * long as the stores still differ, and prints the remaining operations.
 *
 *     TRUCE_TEST_SEED=N             runs the same operations again
 *     TRUCE_RANDOM_SECONDS=N        for how long (10; the CI says 60)
 *     TRUCE_RANDOM_OPERATIONS=N     how many, instead
 */
#include "tests/support/random_operations.h"

#include <stdlib.h>

#include "base/clock.h"
#include "tests/support/test.h"

#define EPOCH          400
#define SHRINK_SECONDS 30

static struct pair {
    truce_store *memory, *file;
    char uri[600];
    uint64_t seed;
    long operations, failures;
} pair;

static truce_store *open_store(const char *uri)
{
    truce_store *store = NULL;
    bson_error_t error;

    if (truce_store_open(uri, &(truce_store_options){.relaxed = true}, &store, &error))
        test_fail(__FILE__, __LINE__, "%s: %s", uri, error.message);
    return store;
}

static void empty_store(truce_store *store)
{
    bson_iter_t iter, name;
    bson_t collections;
    bson_error_t error;

    CHECK_OK(truce_collection_list(store, NULL, &collections, &error), error);
    for (bson_iter_init(&iter, &collections); bson_iter_next(&iter);)
        if (bson_iter_recurse(&iter, &name) && bson_iter_find(&name, "name"))
            CHECK_OK(truce_collection_drop(store, bson_iter_utf8(&name, NULL), &error), error);
    bson_destroy(&collections);
}

static void begin_epoch(void)
{
    truce_store_close(pair.memory);
    pair.memory = open_store("memory:");
    empty_store(pair.file);
}

static bool same(const bson_t *a, const bson_t *b)
{
    return a->len == b->len && !memcmp(bson_get_data(a), bson_get_data(b), a->len);
}

/* Runs one operation on both; `expected` and `actual` are initialised by the caller. */
static bool agrees(const bson_t *operation, bson_t *expected, bson_t *actual)
{
    operation_run(pair.memory, operation, expected);
    operation_run(pair.file, operation, actual);
    return same(expected, actual);
}

enum answer { AGREED, DIFFERED, AMBIGUOUS };

static void show(const char *title, const bson_t *document)
{
    char *json = bson_as_canonical_extended_json(document, NULL);

    printf("%s %.6000s\n", title, json ? json : "(not BSON)");
    bson_free(json);
}

/* Runs one operation of an epoch; `print` prints it and the differences. */
static enum answer step(const bson_t *operation, bool print)
{
    bson_t expected = BSON_INITIALIZER, actual = BSON_INITIALIZER;
    enum answer answer = agrees(operation, &expected, &actual) ? AGREED : DIFFERED;

    if (operation_is_ambiguous(operation, &expected) || operation_is_ambiguous(operation, &actual))
        answer = AMBIGUOUS;
    if (print)
        show(" ", operation);
    if (print && answer == DIFFERED) {
        show("memory:", &expected);
        show("file:  ", &actual);
    }
    bson_destroy(&expected);
    bson_destroy(&actual);
    return answer;
}

static enum answer compare_all(bool print)
{
    bson_t expected = BSON_INITIALIZER, actual = BSON_INITIALIZER;
    enum answer answer;

    store_snapshot(pair.memory, &expected);
    store_snapshot(pair.file, &actual);
    answer = same(&expected, &actual) ? AGREED : DIFFERED;
    if (print && answer == DIFFERED) {
        printf("what the stores hold differs\n");
        show("memory:", &expected);
        show("file:  ", &actual);
    }
    bson_destroy(&expected);
    bson_destroy(&actual);
    return answer;
}

/* ---- making a difference small -------------------------------------------------------------- */

/* Returns whether the remaining operations of `numbers` still give a difference. */
static bool still_differs(const uint64_t *numbers, const bool *kept, int count, bool print)
{
    enum answer answer = AGREED;

    begin_epoch();
    for (int i = 0; i < count && answer == AGREED; i++) {
        bson_t *operation;

        if (!kept[i])
            continue;
        operation = random_operation(pair.seed, numbers[i]);
        answer = step(operation, print);
        bson_destroy(operation);
    }
    if (answer == AGREED)
        answer = compare_all(print);
    return answer == DIFFERED;
}

static void shrink(const uint64_t *numbers, int count)
{
    int64_t until = truce__clock_monotonic_ns() + SHRINK_SECONDS * INT64_C(1000000000);
    bool *kept = malloc((size_t)count), *tried = malloc((size_t)count);
    int left = 0;

    memset(kept, true, (size_t)count);
    for (int size = count / 2; size > 0; size /= 2)
        for (int from = 0; from < count && truce__clock_monotonic_ns() < until; from += size) {
            memcpy(tried, kept, (size_t)count);
            memset(tried + from, false, (size_t)(from + size > count ? count - from : size));
            if (memcmp(tried, kept, (size_t)count) && still_differs(numbers, tried, count, false))
                memcpy(kept, tried, (size_t)count);
        }
    for (int i = 0; i < count; i++)
        left += kept[i];
    printf("the stores differ after these %d operations (of %d):\n", left, count);
    CHECK(!still_differs(numbers, kept, count, true));
    free(kept);
    free(tried);
}

/* ---- epochs --------------------------------------------------------------------------------- */

static bool run_epoch(uint64_t first, long count)
{
    uint64_t numbers[EPOCH];
    enum answer answer = AGREED;
    int done = 0;

    begin_epoch();
    for (; done < count && answer == AGREED; done++) {
        bson_t *operation = random_operation(pair.seed, first + (uint64_t)done);

        numbers[done] = first + (uint64_t)done;
        answer = step(operation, false);
        bson_destroy(operation);
    }
    pair.operations += done;
    if (answer == AGREED)
        answer = compare_all(false);
    if (answer == DIFFERED) {
        test_fail(__FILE__, __LINE__, "the stores differ at operation %llu",
                  (unsigned long long)numbers[done - 1]);
        shrink(numbers, done);
    }
    return answer != DIFFERED;
}

TEST(a_file_returns_the_results_of_a_list_of_documents)
{
    long seconds = test_scale("TRUCE_RANDOM_SECONDS", 10);
    long operations = test_scale("TRUCE_RANDOM_OPERATIONS", 0);
    int64_t until = truce__clock_monotonic_ns() + seconds * INT64_C(1000000000);
    uint64_t number = 0;
    bool agree = true;

    pair.seed = test_seed();
    snprintf(pair.uri, sizeof(pair.uri), "file:%s/random.truce", test_directory());
    pair.file = open_store(pair.uri);
    REQUIRE(pair.file != NULL);
    for (long epoch = 0; agree; epoch++) {
        if (operations ? pair.operations >= operations
                       : epoch > 1 && truce__clock_monotonic_ns() > until)
            break;
        if (epoch % 40 == 39) {
            truce_store_close(pair.file);
            pair.file = open_store(pair.uri);
            REQUIRE(pair.file != NULL);
        }
        agree = run_epoch(number, EPOCH);
        number += EPOCH;
    }
    printf("%ld operations\n", pair.operations);
    CHECK_INT(pair.operations, >, EPOCH);
    truce_store_close(pair.memory);
    truce_store_close(pair.file);
}

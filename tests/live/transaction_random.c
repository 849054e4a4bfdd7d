/*
 * A transaction compared with a memory: store, operation by operation. Its reads, over its snapshot
 * and its own writes, equal the reads of a store with the same writes. After the commit the file
 * has the same contents.
 *
 *     TRUCE_TEST_SEED=N                runs the same operations again
 *     TRUCE_TRANSACTION_EPOCHS=N       how many transactions (40)
 */
#include "store/overlay/transaction_overlay.h"
#include "tests/support/random_operations.h"
#include "tests/support/test.h"

#define BEFORE 60 /* operations before the transaction, indexes among them */
#define WITHIN 40
#define LATE   4 /* of them, the last, which may be refused */

static const char *text(const bson_t *operation, const char *name)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, operation, name) ? bson_iter_utf8(&iter, NULL) : "";
}

static bool is_one_of(const char *name, const char *const *names)
{
    while (*names && strcmp(*names, name) != 0)
        names++;
    return *names != NULL;
}

/* Returns whether the operation can run in a transaction, and its answer does not depend on the
 * order of documents. */
static bool fits(const bson_t *operation)
{
    static const char *const fitting[] = {"insert",   "update", "remove",    "find", "count",
                                          "distinct", "modify", "aggregate", NULL};
    bool cut = bson_has_field(operation, "limit") || bson_has_field(operation, "skip");

    if (bson_has_field(operation, "foreign")) /* $lookup returns documents in the natural order */
        return false;
    if (!strcmp(text(operation, "op"), "find") && cut && !bson_has_field(operation, "sort"))
        return false;
    return is_one_of(text(operation, "op"), fitting);
}

/* Reads the documents in the order of their _ids, because a file may have another natural order. */
static void contents(truce_store *store, bson_t *all)
{
    static const char *const names[] = {"x", "y", "s"};
    bson_t *sort = test_bson("{'_id': 1}"), part;
    const truce_find_options options = {.sort = sort};
    const bson_t *document;
    truce_cursor *cursor;
    bson_error_t error;

    bson_init(all);
    for (int i = 0; i < 3; i++) {
        BSON_APPEND_ARRAY_BEGIN(all, names[i], &part);
        if (CHECK_OK(truce_find(store, names[i], NULL, &options, &cursor, &error), error)) {
            while (!truce_cursor_next(cursor, &document, &error) && document)
                BSON_APPEND_DOCUMENT(&part, "", document);
            truce_cursor_close(cursor);
        }
        bson_append_array_end(all, &part);
    }
    bson_destroy(sort);
}

static bool check_same(truce_store *a, truce_store *b)
{
    bson_t of_a, of_b;
    bool same;

    contents(a, &of_a);
    contents(b, &of_b);
    same = CHECK_BSON(&of_a, &of_b);
    bson_destroy(&of_a);
    bson_destroy(&of_b);
    return same;
}

static bool failed(const bson_t *answer)
{
    return bson_has_field(answer, "code") || bson_has_field(answer, "status");
}

/* Runs one step. Returns false if the transaction must be aborted, for example after an error. With
 * `early`, it skips operations that fail. */
static bool step(truce_store *memory, truce_store *overlay, const bson_t *operation, bool early)
{
    bson_t expected = BSON_INITIALIZER, actual = BSON_INITIALIZER;
    bool goes_on = true;

    operation_run(memory, operation, &expected);
    if (!failed(&expected) || !early) {
        operation_run(overlay, operation, &actual);
        goes_on = !failed(&expected) && !failed(&actual);
        if (!operation_is_ambiguous(operation, &expected) &&
            !operation_is_ambiguous(operation, &actual) && !CHECK_BSON(&expected, &actual)) {
            char *json = bson_as_canonical_extended_json(operation, NULL);

            printf("    %s\n", json);
            bson_free(json);
        }
    } else if (operation_is_ambiguous(operation, &expected)) {
        goes_on = false;
    }
    bson_destroy(&expected);
    bson_destroy(&actual);
    return goes_on;
}

static truce_store *open_store(const char *uri)
{
    truce_store *store = NULL;
    bson_error_t error;

    CHECK_OK(truce_store_open(uri, &(truce_store_options){.relaxed = true}, &store, &error), error);
    return store;
}

/* Runs the operation in both stores. Returns false if one may have refused it: a sort by two arrays
 * is refused only if documents have to be sorted. */
static bool run_in_both(truce_store *memory, truce_store *file, const bson_t *operation)
{
    bson_t of_memory = BSON_INITIALIZER, of_file = BSON_INITIALIZER;
    bool same;

    operation_run(memory, operation, &of_memory);
    operation_run(file, operation, &of_file);
    same =
        failed(&of_memory) == failed(&of_file) || (!operation_is_ambiguous(operation, &of_memory) &&
                                                   !operation_is_ambiguous(operation, &of_file));
    bson_destroy(&of_memory);
    bson_destroy(&of_file);
    return same;
}

/* Fills both stores before the transaction. Returns false if they may differ already. */
static bool begin(truce_store *memory, truce_store *file, uint64_t seed)
{
    bool same = true;

    for (uint64_t i = 0; i < BEFORE && same; i++) {
        bson_t *operation = random_operation(seed, i);

        /* an update may show the order of documents */
        if (strcmp(text(operation, "op"), "update") != 0)
            same = run_in_both(memory, file, operation);
        bson_destroy(operation);
    }
    return same;
}

static bool run_epoch(uint64_t seed, long epoch, long *committed)
{
    const struct overlay_options options = {0};
    truce_store *memory = open_store("memory:"), *file, *overlay = NULL;
    bson_error_t error;
    bool goes_on;
    char path[600];

    snprintf(path, sizeof path, "%s/%ld.truce", test_directory(), epoch);
    file = open_store(path);
    goes_on = begin(memory, file, seed);
    CHECK_OK(truce__overlay_open(file, &options, &overlay, &error), error);
    for (uint64_t i = 0; i < WITHIN && goes_on && overlay; i++) {
        bson_t *operation = random_operation(seed, BEFORE + i);

        if (fits(operation))
            goes_on = step(memory, overlay, operation, i < WITHIN - LATE);
        bson_destroy(operation);
    }
    if (goes_on && overlay &&
        CHECK_OK(truce__overlay_commit(overlay, NULL, 0, NULL, &error), error)) {
        ++*committed;
        check_same(memory, file);
    }
    truce_store_close(overlay);
    truce_store_close(file);
    truce_store_close(memory);
    return test_failures() == 0;
}

TEST(reads_and_commits_as_the_store_does)
{
    uint64_t seed = test_seed(), refused_by_one = 2615101871693832638u;
    long epochs = test_scale("TRUCE_TRANSACTION_EPOCHS", 40), committed = 0;

    if (!run_epoch(refused_by_one, epochs, &committed))
        return;
    for (long i = 0; i < epochs; i++)
        if (!run_epoch(seed + (uint64_t)i, i, &committed)) {
            printf("    TRUCE_TEST_SEED=%llu TRUCE_TRANSACTION_EPOCHS=1 runs it again\n",
                   (unsigned long long)(seed + (uint64_t)i));
            return;
        }
    CHECK(committed > 0 || epochs < 10);
}

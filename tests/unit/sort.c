#include "query/sort/sort.h"

#include "base/random.h"
#include "tests/support/memory_spill.h"
#include "tests/support/random_bson.h"
#include "tests/support/test.h"

#define DOCUMENTS 3000

static void parse(const char *json, struct sort *sort)
{
    bson_t *specification = test_bson(json);
    bson_error_t error;

    CHECK_OK(truce__sort_parse(specification, sort, &error), error);
    bson_destroy(specification);
}

static void check_refused(const char *json, uint32_t code)
{
    bson_t *specification = test_bson(json);
    struct sort sort;
    bson_error_t error = {0};

    CHECK(truce__sort_parse(specification, &sort, &error) != TRUCE_OK);
    if (error.code != code)
        test_fail(__FILE__, __LINE__, "%s: code %u instead of %u", json, error.code, code);
    bson_destroy(specification);
}

TEST(a_sort_is_by_1_or_minus_1_of_valid_paths)
{
    check_refused("{'a': 0}", 15975);
    check_refused("{'a': 1.5}", 15975);
    check_refused("{'a': 'x'}", 15974);
    check_refused("{'a': true}", 15974);
    check_refused("{'a': {'$meta': 'textScore'}}", 15974);
    check_refused("{'': 1}", 40352);
    check_refused("{'a.': 1}", 40353);
    check_refused("{'a..b': 1}", 15998);
    check_refused("{'$a': 1}", 16410);
}

TEST(a_sort_has_at_most_32_fields)
{
    bson_t specification = BSON_INITIALIZER;
    struct sort sort;
    bson_error_t error = {0};

    for (int i = 0; i < 32; i++) {
        char name[20];
        snprintf(name, sizeof name, "f%d", i);
        BSON_APPEND_INT32(&specification, name, 1);
    }
    CHECK_OK(truce__sort_parse(&specification, &sort, &error), error);
    truce__sort_release(&sort);
    BSON_APPEND_INT32(&specification, "one_more", 1);
    CHECK(truce__sort_parse(&specification, &sort, &error) == TRUCE_INVALID);
    CHECK_INT(error.code, ==, 13103);
    bson_destroy(&specification);
}

/* The positions of the documents in sorted order; the number of them. */
static size_t run_sorter(bson_t *const *documents, const struct sort *sort, uint64_t limit,
                         const struct spill_options *options, uint32_t *order)
{
    struct sorter *sorter;
    bson_error_t error;
    size_t count = 0;
    const void *payload;
    uint32_t size;

    truce__sorter_new(sort, limit, options, &sorter);
    for (uint32_t i = 0; i < DOCUMENTS; i++)
        CHECK_OK(
            truce__sorter_add(sorter, truce__value_document(documents[i]), &i, sizeof i, &error),
            error);
    CHECK_OK(truce__sorter_sort(sorter, &error), error);
    for (;;) {
        CHECK_OK(truce__sorter_next(sorter, &payload, &size, &error), error);
        if (!payload || count == DOCUMENTS)
            break;
        CHECK_INT(size, ==, sizeof *order);
        memcpy(&order[count++], payload, sizeof *order);
    }
    CHECK(!payload);
    truce__sorter_free(sorter);
    return count;
}

static void make_documents(struct random *random, bson_t **documents)
{
    for (int i = 0; i < DOCUMENTS; i++) {
        do {
            bson_destroy(documents[i]);
            documents[i] = bson_new();
            random_append(random, documents[i], "a", 1);
            BSON_APPEND_INT32(documents[i], "b", (int32_t)truce__random_below(random, 10));
        } while (documents[i]->len > 200);
    }
}

static void free_documents(bson_t **documents)
{
    for (int i = 0; i < DOCUMENTS; i++)
        bson_destroy(documents[i]);
}

static void check_same_as_unlimited(bson_t *const *documents, const struct sort *sort,
                                    uint64_t limit, size_t memory_max, bool spills)
{
    static uint32_t expected[DOCUMENTS], actual[DOCUMENTS];
    struct memory_spills all = {0};
    struct spill_options none = {0};
    struct spill_options options = {memory_max, memory_spill_open, &all};
    size_t count = run_sorter(documents, sort, 0, &none, expected);

    CHECK_INT(count, ==, DOCUMENTS);
    if (limit && count > limit)
        count = limit;
    CHECK_INT(run_sorter(documents, sort, limit, &options, actual), ==, count);
    CHECK(!memcmp(expected, actual, count * sizeof *actual));
    CHECK((all.opened > 0) == spills);
    CHECK_INT(all.opened, ==, all.freed);
    CHECK_INT(all.open_most, <=, 100);
}

TEST(a_sort_that_spills_gives_the_same_order_as_one_in_memory)
{
    static bson_t *documents[DOCUMENTS];
    struct random random;
    struct sort sort;

    truce__random_seed(&random, test_seed());
    make_documents(&random, documents);
    parse("{'b': -1, 'a': 1}", &sort);
    check_same_as_unlimited(documents, &sort, 0, 1, true);
    check_same_as_unlimited(documents, &sort, 0, 10000, true);
    check_same_as_unlimited(documents, &sort, 0, 100000, true);
    check_same_as_unlimited(documents, &sort, 700, 10000, true);
    truce__sort_release(&sort);
    free_documents(documents);
}

TEST(keeps_only_the_first_documents_of_a_limited_sort_in_memory)
{
    static bson_t *documents[DOCUMENTS];
    struct random random;
    struct sort sort;

    truce__random_seed(&random, test_seed());
    make_documents(&random, documents);
    parse("{'a': 1, 'b': 1}", &sort);
    check_same_as_unlimited(documents, &sort, 1, 40000, false);
    check_same_as_unlimited(documents, &sort, 2, 40000, false);
    check_same_as_unlimited(documents, &sort, 100, 60000, false);
    check_same_as_unlimited(documents, &sort, DOCUMENTS, 0, false);
    check_same_as_unlimited(documents, &sort, 10 * DOCUMENTS, 0, false);
    truce__sort_release(&sort);
    free_documents(documents);
}

TEST(equal_keys_keep_the_order_of_arrival)
{
    static bson_t *documents[DOCUMENTS];
    static uint32_t order[DOCUMENTS];
    struct memory_spills all = {0};
    struct spill_options options = {5000, memory_spill_open, &all};
    struct sort sort;
    int32_t before = -1;

    for (int i = 0; i < DOCUMENTS; i++)
        documents[i] = BCON_NEW("a", BCON_INT32(i % 3));
    parse("{'a': 1}", &sort);
    CHECK_INT(run_sorter(documents, &sort, 0, &options, order), ==, DOCUMENTS);
    for (int i = 0; i < DOCUMENTS; i++) {
        CHECK_INT(order[i] % 3, ==, i / (DOCUMENTS / 3));
        CHECK(i % (DOCUMENTS / 3) == 0 || (int32_t)order[i] > before);
        before = (int32_t)order[i];
    }
    truce__sort_release(&sort);
    free_documents(documents);
}

TEST(without_disk_the_memory_limit_is_final)
{
    struct spill_options options = {10000, NULL, NULL};
    struct sorter *sorter;
    struct sort sort;
    bson_error_t error = {0};
    bson_t *document = test_bson("{'a': 'some text that takes a little room'}");
    truce_status status = TRUCE_OK;
    int added = 0;

    parse("{'a': 1}", &sort);
    truce__sorter_new(&sort, 0, &options, &sorter);
    for (; !status && added < 10000; added++)
        status = truce__sorter_add(sorter, truce__value_document(document), bson_get_data(document),
                                   document->len, &error);
    CHECK_STATUS(TRUCE_LIMIT, status, error);
    CHECK_INT(error.code, ==, 292);
    CHECK_INT(added, >, 20);
    CHECK_INT(added, <, 200);
    truce__sorter_free(sorter);
    truce__sort_release(&sort);
    bson_destroy(document);
}

TEST(every_failure_of_the_disk_ends_the_sort_and_frees_everything)
{
    struct memory_spills all = {0};
    bool failed = true;
    struct sort sort;

    parse("{'a': 1}", &sort);
    for (int fail_at = 1; failed; fail_at++) {
        struct spill_options options = {2000, memory_spill_open, &all};
        struct sorter *sorter;
        bson_error_t error = {0};
        truce_status status = TRUCE_OK;
        const void *payload = "";
        uint32_t size;

        all = (struct memory_spills){.fail_at = fail_at};
        truce__sorter_new(&sort, 0, &options, &sorter);
        for (int i = 0; i < 700 && !status; i++) {
            bson_t *document = BCON_NEW("a", BCON_INT32(i * 7919 % 700));
            status =
                truce__sorter_add(sorter, truce__value_document(document), &i, sizeof i, &error);
            bson_destroy(document);
        }
        if (!status)
            status = truce__sorter_sort(sorter, &error);
        while (!status && payload)
            status = truce__sorter_next(sorter, &payload, &size, &error);
        failed = status != TRUCE_OK;
        CHECK(!failed || status == TRUCE_IO);
        truce__sorter_free(sorter);
        CHECK_INT(all.opened, ==, all.freed);
    }
    CHECK_INT(all.calls, >, 50);
    truce__sort_release(&sort);
}

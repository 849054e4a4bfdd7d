/* The model of bench/scale: its properties, and that docs/scale.md contains its tables. */
#include "bench/scale_model.h"

#include <stdlib.h>
#include <string.h>

#include "bench/operations.h"
#include "tests/support/test.h"

#define MS INT64_C(1000000)

static const struct scale_operation *named(const char *name)
{
    for (const struct scale_operation *one = scale_operations; one->name; one++)
        if (!strcmp(one->name, name))
            return one;
    test_fail(__FILE__, __LINE__, "there is no operation \"%s\"", name);
    return &scale_operations[0];
}

static struct scale_figure simulate(const char *name, int shards, int callers, int hot_permille)
{
    struct scale_world world = scale_world_of(shards, hot_permille);

    world.callers = callers;
    return scale_simulate(named(name), &world);
}

static char *read_all(FILE *file)
{
    char *text = calloc(1, 1 << 20);

    rewind(file);
    CHECK(fread(text, 1, (1 << 20) - 1, file) > 0);
    return text;
}

TEST(the_page_has_the_tables_of_the_model)
{
    FILE *page = fopen(TRUCE_TEST_DATA "/../../docs/scale.md", "rb"), *made = tmpfile();
    char *text, *tables, *begin, *end;

    REQUIRE(page && made);
    scale_write_tables(made);
    text = read_all(page);
    tables = read_all(made);
    begin = strstr(text, "<!-- begin scale -->\n\n");
    end = strstr(text, "\n<!-- end scale -->");
    if (CHECK(begin && end)) {
        begin += strlen("<!-- begin scale -->\n\n");
        if (!CHECK((size_t)(end - begin) == strlen(tables) &&
                   !memcmp(begin, tables, strlen(tables))))
            fprintf(stderr, "    bench_scale tables docs/scale.md writes them\n");
    }
    free(text);
    free(tables);
    fclose(page);
    fclose(made);
}

TEST(an_operation_has_no_more_messages_than_documented)
{
    for (const struct scale_operation *one = scale_operations; one->name; one++) {
        const struct bench_operation *counted = bench_operations;

        CHECK(strspn(one->steps, "rwlhgtfRWLHGTF") == strlen(one->steps));
        while (one->counted && counted->name && strcmp(counted->name, one->counted) != 0)
            counted++;
        if (one->counted && CHECK(counted->name) && counted->most)
            CHECK_INT((int)strlen(one->steps), <=, counted->most);
    }
}

TEST(repeats_a_run_from_its_seed)
{
    struct scale_world world = scale_world_of(2, 500);
    const struct scale_operation *one = named("commit of 2 documents, transaction");
    struct scale_figure first = scale_simulate(one, &world), again = scale_simulate(one, &world);

    CHECK(!memcmp(&first, &again, sizeof first));
    world.seed = 2;
    again = scale_simulate(one, &world);
    CHECK(memcmp(&first, &again, sizeof first) != 0);
}

TEST(a_single_caller_waits_for_each_message)
{
    struct scale_world world = scale_world_of(1, 0);
    struct scale_figure figure;

    world.callers = 1;
    for (const struct scale_operation *one = scale_operations; one->name; one++) {
        int messages = (int)strlen(one->steps);

        world.copy_ns = 0;
        world.read_ns = world.write_ns = 1;
        figure = scale_simulate(one, &world);
        CHECK(figure.messages > messages - 0.1 && figure.messages < messages + 0.1);
        CHECK_INT(figure.p50_ns, >=, messages * MS);
        CHECK_INT(figure.p99_ns, <, messages * MS + 100);
    }
}

TEST(acknowledges_a_write_after_a_majority_has_it)
{
    struct scale_world world = scale_world_of(1, 0);
    const struct scale_operation *one = named("item: update");
    int64_t with, without;

    world.callers = 1;
    with = scale_simulate(one, &world).p50_ns;
    world.copy_ns = 0;
    without = scale_simulate(one, &world).p50_ns;
    CHECK_INT(with - without, ==, MS);
}

TEST(a_server_in_front_adds_its_time_to_each_operation)
{
    struct scale_world world = scale_world_of(1, 0);
    const struct scale_operation *one = named("item: update");
    int64_t with, without;

    world.callers = 1;
    without = scale_simulate(one, &world).p50_ns;
    world.front_ns = MS;
    with = scale_simulate(one, &world).p50_ns;
    CHECK_INT(with - without, ==, MS);
}

TEST(shards_are_of_use_until_a_collection_on_one_of_them_is_full)
{
    struct scale_world world = scale_world_of(1, 0);
    double one_shard = 1e9 * world.workers / (double)world.write_ns;

    CHECK(simulate("item: update", 100, 4000, 0).rate > 2 * one_shard);
    CHECK(simulate("job: add", 100, 4000, 0).rate < 1.05 * one_shard);
    CHECK(simulate("job: add", 100, 4000, 0).rate > 0.9 * one_shard);
    CHECK(simulate("job: add", 100, 4000, 0).busiest > 0.95);
    CHECK(simulate("commit of 2 documents, journal", 100, 1600, 0).rate < 1.05 * one_shard / 3);
}

TEST(executes_writes_of_one_document_in_sequence)
{
    struct scale_world world = scale_world_of(10, 0);
    double one_document = 1e9 / (double)world.write_ns, rate;

    rate = simulate("item: update", 10, 64, 1000).rate;
    CHECK(rate < 1.05 * one_document && rate > 0.9 * one_document);
}

TEST(operations_that_fold_are_ahead_of_one_document)
{
    struct scale_world world = scale_world_of(1, 1000);
    const struct scale_operation *one = named("ordered set: add");

    CHECK(simulate("ordered set: add", 1, 16, 1000).rate >
          2 * simulate("revision: save", 1, 16, 1000).rate);
    world.callers = 16;
    world.in_process = 16; /* two messages for all that wait */
    CHECK(scale_simulate(one, &world).messages < 0.5);
    world.in_process = 1; /* each for itself */
    CHECK(scale_simulate(one, &world).messages > 0.99);
}

TEST(counts_messages_of_failed_guards_and_taken_documents)
{
    CHECK(simulate("revision: save", 1, 16, 1000).messages > 2);
    CHECK(simulate("commit of 2 documents, journal", 1, 16, 1000).messages > 7.5);
    CHECK(simulate("commit of 2 documents, transaction", 1, 16, 1000).messages > 4);
}

TEST(shares_one_sync_among_the_writers_of_a_file)
{
    struct scale_figure one = simulate("item: update", 0, 1, 0),
                        many = simulate("item: update", 0, 32, 0);

    CHECK(many.rate > 5 * one.rate);
    CHECK(many.rate < 1.05 * 1e6 / named("item: update")->file_us);
}

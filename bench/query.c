/*
 * Measures the query functions on one core and in memory. A filter, an update, and a sort are
 * compiled once and run over a million documents of 300 bytes. It also measures the reader of
 * Extended JSON.
 */
#include <inttypes.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/document.h"
#include "bson/json.h"
#include "query/match/match.h"
#include "query/sort/sort.h"
#include "query/update/update.h"

struct documents {
    int64_t count;
    struct buffer bytes; /* The documents, one after the other. */
    size_t *starts;
};

static void query_fill(struct documents *all, int64_t count)
{
    all->count = count;
    all->starts = bson_malloc((size_t)count * sizeof *all->starts);
    for (int64_t id = 0; id < count; id++) {
        bson_t document;

        document_make(id, &document);
        all->starts[id] = all->bytes.size;
        truce__buffer_append(&all->bytes, bson_get_data(&document), document.len);
        bson_destroy(&document);
    }
}

static struct value query_value_at(const struct documents *all, int64_t i)
{
    const uint8_t *data = all->bytes.bytes + all->starts[i];
    uint32_t size;

    memcpy(&size, data, 4);
    return (struct value){data, BSON_UINT32_FROM_LE(size), BSON_TYPE_DOCUMENT};
}

static bson_t *query_json(const char *text)
{
    bson_error_t error;
    bson_t *document = bson_new_from_json((const uint8_t *)text, -1, &error);

    BENCH_CHECK(document != NULL);
    return document;
}

static void query_row(const char *name, int64_t count, double began)
{
    double took = bench_now() - began;

    printf("%-44s %8.2f million/s %8.3f s\n", name, (double)count / took / 1e6, took);
    fflush(stdout);
}

/* ---- filters --------------------------------------------------------------------------------- */

static void query_match(const struct documents *all, const char *filter_text, int64_t expected)
{
    bson_t *filter = query_json(filter_text);
    struct match *compiled = NULL;
    struct arena arena = ARENA_INIT;
    struct query_context context = {.arena = &arena};
    bson_error_t error;
    int64_t found = 0;
    double began;
    char name[100];

    BENCH_MUST(truce__match_new(filter, &compiled, &error), error);
    began = bench_now();
    for (int64_t i = 0; i < all->count; i++) {
        struct match_result result;

        BENCH_MUST(truce__match_test(compiled, query_value_at(all, i), &context, &result, &error),
                   error);
        found += result.matched;
    }
    snprintf(name, sizeof name, "match  %s", filter_text);
    query_row(name, all->count, began);
    BENCH_CHECK(found == expected);
    truce__match_free(compiled);
    truce__arena_release(&arena);
    bson_destroy(filter);
}

/* ---- updates --------------------------------------------------------------------------------- */

static void query_update(const struct documents *all, const char *update_text)
{
    bson_t *document = query_json(update_text);
    struct update *compiled = NULL;
    struct update_options options = {0};
    struct arena arena = ARENA_INIT;
    struct query_context context = {.arena = &arena};
    bson_error_t error;
    int64_t modified = 0;
    double began;
    char name[100];

    BENCH_MUST(truce__update_new(document, &options, &compiled, &error), error);
    began = bench_now();
    for (int64_t i = 0; i < all->count; i++) {
        struct update_result result = {0};
        bson_t before, after;

        truce__value_bson(query_value_at(all, i), &before);
        BENCH_MUST(truce__update_apply(compiled, &before, NULL, &context, &after, &result, &error),
                   error);
        modified += result.modified;
        bson_destroy(&after);
        truce__arena_reset(&arena);
    }
    snprintf(name, sizeof name, "update %s", update_text);
    query_row(name, all->count, began);
    BENCH_CHECK(modified == all->count);
    truce__update_free(compiled);
    truce__arena_release(&arena);
    bson_destroy(document);
}

/* ---- sorts ----------------------------------------------------------------------------------- */

static void query_sort(const struct documents *all, const char *sort_text, uint64_t limit)
{
    bson_t *specification = query_json(sort_text);
    const struct spill_options options = {.memory_max = SIZE_MAX / 4};
    struct sort parsed = {0};
    struct sorter *sorter = NULL;
    bson_error_t error;
    const void *payload = NULL;
    uint32_t size;
    int64_t came = 0;
    uint64_t expected = limit && limit < (uint64_t)all->count ? limit : (uint64_t)all->count;
    double began;
    char name[100];

    BENCH_MUST(truce__sort_parse(specification, &parsed, &error), error);
    began = bench_now();
    truce__sorter_new(&parsed, limit, &options, &sorter);
    for (int64_t i = 0; i < all->count; i++)
        BENCH_MUST(truce__sorter_add(sorter, query_value_at(all, i), &i, sizeof i, &error), error);
    BENCH_MUST(truce__sorter_sort(sorter, &error), error);
    for (;;) {
        BENCH_MUST(truce__sorter_next(sorter, &payload, &size, &error), error);
        if (!payload)
            break;
        came++;
    }
    snprintf(name, sizeof name, "sort   %s%s", sort_text, limit ? ", the first 100" : "");
    query_row(name, all->count, began);
    BENCH_CHECK((uint64_t)came == expected);
    truce__sorter_free(sorter);
    truce__sort_release(&parsed);
    bson_destroy(specification);
}

/* ---- Extended JSON --------------------------------------------------------------------------- */

static void read_json(int64_t count)
{
    static const char text[] = "{\"operation\": \"insert\", \"student_id\": 17, \"class\": "
                               "\"CS 101\", \"sequence_number\": 1000}";
    struct json_reader reader = {0};
    bson_error_t error;
    bson_t document;
    double began = bench_now();

    for (int64_t i = 0; i < count; i++)
        BENCH_MUST(truce__json_read(&reader, text, sizeof text - 1, &document, NULL, &error),
                   error);
    query_row("read   a message of Extended JSON", count, began);
    BENCH_CHECK(bson_count_keys(&document) == 4);
    truce__json_reader_release(&reader);
}

int main(void)
{
    struct documents all = {0};
    int64_t count = bench_scale("TRUCE_BENCH_DOCUMENTS", 1000000);

    query_fill(&all, count);
    printf("\nin memory, one core, compiled once, %" PRId64 " documents of %zu bytes\n", count,
           all.bytes.size / (size_t)count);
    query_match(&all, "{\"owner\": \"person 7\"}", 1);
    query_match(&all, "{\"group\": 7}", (count + 992) / 1000);
    query_match(&all, "{\"group\": {\"$gte\": 500}}", count / 2);
    query_match(&all, "{\"$or\": [{\"group\": 1}, {\"group\": 2}]}",
                (count + 998) / 1000 + (count + 997) / 1000);
    query_update(&all, "{\"$inc\": {\"counter\": 1}}");
    query_update(&all, "{\"$set\": {\"group\": -1}}");
    query_update(&all, "{\"$push\": {\"list\": 1}}");
    query_sort(&all, "{\"owner\": 1}", 0);
    query_sort(&all, "{\"group\": 1, \"_id\": -1}", 0);
    query_sort(&all, "{\"owner\": 1}", 100);
    read_json(count);
    truce__buffer_release(&all.bytes);
    bson_free(all.starts);
    return 0;
}

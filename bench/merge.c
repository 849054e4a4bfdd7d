/*
 * Measures merges and differences of documents on one core: the time of one, and whether a document
 * of twice the size takes twice as long. Both sides change and insert one element (field, line) in
 * a hundred each, at different positions.
 */
#include <inttypes.h>
#include <string.h>

#include "bench/bench.h"
#include "merge/json_patch.h"
#include "merge/merge.h"

#define BYTES_MAX 1048576

enum version { BASE, MINE, THEIRS };

struct shape {
    const char *name;
    void (*fill)(bson_t *document, int64_t count, enum version version);
    int64_t bytes_each; /* The approximate size of an element. */
    const char *rules;
};

static bool bench_merge_changed(int64_t i, enum version version)
{
    return version != BASE && i % 100 == 10 * (int64_t)version;
}

/* ---- documents ------------------------------------------------------------------------------- */

static void merge_append_line(bson_t *lines, int64_t place, int64_t id, int64_t price)
{
    char key[24], sku[40];
    bson_t line;

    snprintf(key, sizeof key, "%" PRId64, place);
    snprintf(sku, sizeof sku, "article %08" PRId64, id);
    bson_append_document_begin(lines, key, -1, &line);
    BSON_APPEND_INT64(&line, "id", id);
    BSON_APPEND_UTF8(&line, "sku", sku);
    BSON_APPEND_INT64(&line, "price", price);
    BSON_APPEND_INT32(&line, "count", (int32_t)(id % 7));
    bson_append_document_end(lines, &line);
}

static void fill_lines(bson_t *document, int64_t count, enum version version)
{
    bson_t lines;
    int64_t place = 0;

    bson_append_array_begin(document, "lines", -1, &lines);
    for (int64_t i = 0; i < count; i++) {
        merge_append_line(&lines, place++, i, bench_merge_changed(i, version) ? i + version : i);
        if (bench_merge_changed(i + 5, version))
            merge_append_line(&lines, place++, count * version + i, i);
    }
    bson_append_array_end(document, &lines);
}

/* In `mine`, one line in a hundred is moved to the end. */
static void fill_moved(bson_t *document, int64_t count, enum version version)
{
    bson_t lines;
    int64_t place = 0;

    bson_append_array_begin(document, "lines", -1, &lines);
    for (int64_t i = 0; i < count; i++) {
        if (version != MINE || i % 100 != 50)
            merge_append_line(&lines, place++, i * 7919 % 1000003,
                              version == THEIRS && i % 100 == 20);
    }
    for (int64_t i = 50; version == MINE && i < count; i += 100)
        merge_append_line(&lines, place++, i * 7919 % 1000003, 0);
    bson_append_array_end(document, &lines);
}

static void merge_append_field(bson_t *document, int64_t number, int64_t value)
{
    char key[40];

    snprintf(key, sizeof key, "field%07" PRId64, number);
    BSON_APPEND_INT64(document, key, value);
}

static void fill_fields(bson_t *document, int64_t count, enum version version)
{
    for (int64_t i = 0; i < count; i++) {
        merge_append_field(document, i, bench_merge_changed(i, version) ? i + version : i);
        if (bench_merge_changed(i + 5, version))
            merge_append_field(document, count * version + i, i);
    }
}

/* In `mine`, the fields are in reverse order. */
static void fill_reversed(bson_t *document, int64_t count, enum version version)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t number = version == MINE ? count - 1 - i : i;

        merge_append_field(document, number,
                           bench_merge_changed(number, version) ? number + version : number);
    }
}

static void fill_numbers(bson_t *document, int64_t count, enum version version)
{
    bson_t list;
    char key[24];
    int64_t place = 0;

    bson_append_array_begin(document, "numbers", -1, &list);
    for (int64_t i = 0; i < count; i++) {
        snprintf(key, sizeof key, "%" PRId64, place++);
        BSON_APPEND_INT64(&list, key,
                          bench_merge_changed(i, version) ? -i - version : i * 31 % 10007);
    }
    bson_append_array_end(document, &list);
}

static void fill_text(bson_t *document, int64_t count, enum version version)
{
    bson_string_t *text = bson_string_new(NULL);

    for (int64_t i = 0; i < count; i++)
        bson_string_append_printf(text, "line %d of a text that two people edit%s\n", (int)i,
                                  bench_merge_changed(i, version) ? ", changed" : "");
    BSON_APPEND_UTF8(document, "text", text->str);
    bson_string_free(text, true);
}

static const struct shape shapes[] = {
    {"an array of documents", fill_lines, 75, NULL},
    {"the same, some moved", fill_moved, 75, NULL},
    {"fields", fill_fields, 22, NULL},
    {"fields, turned round", fill_reversed, 22, NULL},
    {"an array of numbers", fill_numbers, 14, "{\"numbers\": \"union\"}"},
    {"a text", fill_text, 45, "{\"text\": \"text\"}"},
};

static void merge_make(const struct shape *shape, int64_t bytes, enum version version,
                       bson_t *document)
{
    bson_init(document);
    BSON_APPEND_INT32(document, "_id", 1);
    shape->fill(document, bytes / shape->bytes_each, version);
}

/* ---- measurements ---------------------------------------------------------------------------- */

struct work {
    bson_t versions[3];
    struct merge_rules *rules;
};

static void merge_begin(const struct shape *shape, int64_t bytes, struct work *work)
{
    bson_t *rules =
        shape->rules ? bson_new_from_json((const uint8_t *)shape->rules, -1, NULL) : bson_new();
    bson_error_t error;

    for (int version = 0; version < 3; version++)
        merge_make(shape, bytes, (enum version)version, &work->versions[version]);
    BENCH_CHECK(rules != NULL);
    BENCH_MUST(truce__merge_rules_new(rules, &work->rules, &error), error);
    bson_destroy(rules);
}

static void merge_end(struct work *work)
{
    for (int version = 0; version < 3; version++)
        bson_destroy(&work->versions[version]);
    truce__merge_rules_free(work->rules);
}

static void merge_merge(const struct work *work)
{
    struct merge_options options = {.rules = work->rules};
    bson_t merged, conflicts;
    bson_error_t error;

    BENCH_MUST(truce__merge(truce__value_document(&work->versions[BASE]),
                            truce__value_document(&work->versions[MINE]),
                            truce__value_document(&work->versions[THEIRS]), &options, &merged,
                            &conflicts, &error),
               error);
    BENCH_CHECK(bson_empty(&conflicts));
    bson_destroy(&merged);
    bson_destroy(&conflicts);
}

static void bench_merge_patch(const struct work *work)
{
    bson_t operations;

    truce__patch_diff(truce__value_document(&work->versions[BASE]),
                      truce__value_document(&work->versions[MINE]), &operations);
    bson_destroy(&operations);
}

static void merge_patch(const struct work *work)
{
    bson_t made;

    BENCH_CHECK(truce__merge_patch_diff(truce__value_document(&work->versions[BASE]),
                                        truce__value_document(&work->versions[MINE]), &made));
    bson_destroy(&made);
}

static void operators(const struct work *work)
{
    bson_t made;

    truce__operators_diff(truce__value_document(&work->versions[BASE]),
                          truce__value_document(&work->versions[MINE]), &made);
    bson_destroy(&made);
}

static void merge_apply(const struct work *work)
{
    struct arena arena = ARENA_INIT;
    struct value after;
    bson_error_t error;
    bson_t operations;

    truce__patch_diff(truce__value_document(&work->versions[BASE]),
                      truce__value_document(&work->versions[MINE]), &operations);
    BENCH_MUST(truce__patch_apply(truce__value_document(&work->versions[BASE]), &operations, &arena,
                                  &after, &error),
               error);
    bson_destroy(&operations);
    truce__arena_release(&arena);
}

static const struct job {
    const char *name;
    void (*run)(const struct work *work);
} jobs[] = {
    {"merge", merge_merge},
    {"diff, JSON Patch", bench_merge_patch},
    {"diff and apply it", merge_apply},
    {"diff, merge patch", merge_patch},
    {"diff, operators", operators},
};

/* Returns the microseconds of one call: the fastest of many, to exclude other load on the
 * machine. */
static double merge_measure(const struct job *job, const struct shape *shape, int64_t bytes)
{
    double until = bench_now() + bench_seconds() / 20, fastest = 1e9;
    struct work work;

    merge_begin(shape, bytes, &work);
    do {
        double began = bench_now(), took;

        job->run(&work);
        took = (bench_now() - began) * 1e6;
        fastest = took < fastest ? took : fastest;
    } while (bench_now() < until);
    merge_end(&work);
    return fastest;
}

int main(void)
{
    printf("%-20s %-24s %12s %12s %12s\n", "microseconds", "documents of", "16 KB", "512 KB",
           "1 MB");
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
            printf("%-20s %-24s %12.1f %12.0f %12.0f\n", jobs[i].name, shapes[k].name,
                   merge_measure(&jobs[i], &shapes[k], 16384),
                   merge_measure(&jobs[i], &shapes[k], BYTES_MAX / 2),
                   merge_measure(&jobs[i], &shapes[k], BYTES_MAX));
            fflush(stdout);
        }
    }
    return 0;
}

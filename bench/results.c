#include "bench/results.h"

#include <string.h>

#include "base/field.h"

static double results_number_in(const bson_t *document, const char *path)
{
    bson_iter_t iter, found;

    return bson_iter_init(&iter, document) && bson_iter_find_descendant(&iter, path, &found)
               ? bson_iter_as_double(&found)
               : 0;
}

static void read_rates(const bson_t *document, struct result *result)
{
    bson_iter_t iter, rates;

    if (!bson_iter_init_find(&iter, document, "rates") || !bson_iter_recurse(&iter, &rates))
        return;
    while (bson_iter_next(&rates)) {
        double rate = bson_iter_as_double(&rates);

        if (result->most == 0 || rate < result->least)
            result->least = rate;
        if (rate > result->most)
            result->most = rate;
    }
}

static void read_figure(bson_iter_t *iter, struct result *result)
{
    const uint8_t *bytes;
    uint32_t size;
    bson_t document;

    bson_iter_document(iter, &size, &bytes);
    BENCH_CHECK(bson_init_static(&document, bytes, size));
    *result = (struct result){.workload = truce__field_text(&document, "workload"),
                              .target = truce__field_text(&document, "target"),
                              .form = truce__field_text(&document, "form"),
                              .callers = (int)results_number_in(&document, "callers"),
                              .valid = results_number_in(&document, "valid") != 0,
                              .cannot = truce__field_text(&document, "cannot")[0] != '\0',
                              .p50_us = results_number_in(&document, "p50_us"),
                              .p99_us = results_number_in(&document, "p99_us"),
                              .p999_us = results_number_in(&document, "p999_us"),
                              .fdatasync_us = results_number_in(&document, "fdatasync.p50_us"),
                              .cpu_us = results_number_in(&document, "cpu_us_each"),
                              .bytes = results_number_in(&document, "bytes_written_each"),
                              .memory = results_number_in(&document, "memory_bytes"),
                              .aim_serve = results_number_in(&document, "aim_serve"),
                              .per_second = results_number_in(&document, "per_second"),
                              .truce_is = results_number_in(&document, "truce_is")};
    read_rates(&document, result);
}

/* Reads the document of a file, and finds its array `key`. On failure it prints the reason and
 * returns false. */
static bool read_array(const char *path, const char *key, bson_t *document, bson_iter_t *array)
{
    bson_error_t error = {0};
    bson_json_reader_t *reader = bson_json_reader_new_from_file(path, &error);
    bson_iter_t iter;
    bool found = reader && bson_json_reader_read(reader, document, &error) == 1 &&
                 bson_iter_init_find(&iter, document, key) && bson_iter_recurse(&iter, array);

    if (!found)
        fprintf(stderr, "%s: %s\n", path,
                error.message[0] ? error.message : "these are not the figures of such a run");
    if (reader)
        bson_json_reader_destroy(reader);
    return found;
}

double results_number(const struct results *results, const char *path)
{
    return results_number_in(results->document, path);
}

bool results_durable(const struct results *results, const char *target)
{
    bson_iter_t iter, targets, one;

    if (!bson_iter_init_find(&iter, results->document, "targets") ||
        !bson_iter_recurse(&iter, &targets))
        return true;
    while (bson_iter_next(&targets)) {
        if (bson_iter_recurse(&targets, &one) && bson_iter_find(&one, "name") &&
            !strcmp(bson_iter_utf8(&one, NULL), target) && bson_iter_find(&one, "durable"))
            return bson_iter_as_bool(&one);
    }
    return true;
}

bool results_read(const char *path, struct results *results)
{
    bson_iter_t figures;

    *results = (struct results){.document = bson_new()};
    if (!read_array(path, "figures", results->document, &figures)) {
        results_release(results);
        return false;
    }
    while (bson_iter_next(&figures) && BSON_ITER_HOLDS_DOCUMENT(&figures)) {
        results->all =
            bson_realloc(results->all, (size_t)(results->count + 1) * sizeof *results->all);
        read_figure(&figures, &results->all[results->count++]);
    }
    return true;
}

void results_release(struct results *results)
{
    bson_free(results->all);
    bson_destroy(results->document);
}

const struct result *results_find(const struct results *results, const struct result *like)
{
    for (int i = 0; i < results->count; i++) {
        const struct result *result = &results->all[i];

        if (result->callers == like->callers && !strcmp(result->workload, like->workload) &&
            !strcmp(result->target, like->target) && !strcmp(result->form, like->form))
            return result;
    }
    return NULL;
}

/* ---- growth ---------------------------------------------------------------------------------- */

/* Reads a row of growth: the fields that identify it, and the first four numbers. */
static void read_grown(const bson_iter_t *iter, struct grown *grown)
{
    int count = 0;
    bson_iter_t at;

    *grown = (struct grown){.target = "", .what = ""};
    BENCH_CHECK(bson_iter_recurse(iter, &at));
    while (bson_iter_next(&at)) {
        const char *key = bson_iter_key(&at);

        if (!strcmp(key, "documents"))
            grown->documents = bson_iter_as_int64(&at);
        else if (!strcmp(key, "target"))
            grown->target = bson_iter_utf8(&at, NULL);
        else if (!strcmp(key, "what"))
            grown->what = bson_iter_utf8(&at, NULL);
        else if (count < 4)
            grown->numbers[count++] = bson_iter_as_double(&at);
        grown->is_size |= !strcmp(key, "data_mb");
    }
}

static void note_size(struct growths *growths, int64_t documents)
{
    for (int i = 0; i < growths->sizes_count; i++) {
        if (growths->sizes[i] == documents)
            return;
    }
    if (growths->sizes_count < 8)
        growths->sizes[growths->sizes_count++] = documents;
}

bool growths_read(const char *path, struct growths *growths)
{
    bson_iter_t all;

    *growths = (struct growths){.document = bson_new()};
    if (!read_array(path, "growth", growths->document, &all)) {
        growths_release(growths);
        return false;
    }
    while (bson_iter_next(&all)) {
        growths->all =
            bson_realloc(growths->all, (size_t)(growths->count + 1) * sizeof *growths->all);
        read_grown(&all, &growths->all[growths->count]);
        note_size(growths, growths->all[growths->count++].documents);
    }
    return true;
}

void growths_release(struct growths *growths)
{
    bson_free(growths->all);
    bson_destroy(growths->document);
}

const struct grown *growths_find(const struct growths *growths, const struct grown *like,
                                 int64_t documents)
{
    for (int i = 0; i < growths->count; i++) {
        const struct grown *grown = &growths->all[i];

        if (grown->documents == documents && grown->is_size == like->is_size &&
            !strcmp(grown->target, like->target) && !strcmp(grown->what, like->what))
            return grown;
    }
    return NULL;
}

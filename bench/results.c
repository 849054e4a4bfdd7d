#include "bench/results.h"

#include <string.h>

static double number_in(const bson_t *document, const char *path)
{
    bson_iter_t iter, found;

    return bson_iter_init(&iter, document) && bson_iter_find_descendant(&iter, path, &found)
               ? bson_iter_as_double(&found)
               : 0;
}

static const char *text_in(const bson_t *document, const char *key)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, key) && BSON_ITER_HOLDS_UTF8(&iter)
               ? bson_iter_utf8(&iter, NULL)
               : "";
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
    *result = (struct result){.workload = text_in(&document, "workload"),
                              .target = text_in(&document, "target"),
                              .form = text_in(&document, "form"),
                              .callers = (int)number_in(&document, "callers"),
                              .valid = number_in(&document, "valid") != 0,
                              .per_second = number_in(&document, "per_second"),
                              .truce_is = number_in(&document, "truce_is")};
    read_rates(&document, result);
}

bool results_read(const char *path, struct results *results)
{
    bson_error_t error = {0};
    bson_json_reader_t *reader = bson_json_reader_new_from_file(path, &error);
    bson_iter_t iter, figures;

    *results = (struct results){.document = bson_new()};
    if (!reader || bson_json_reader_read(reader, results->document, &error) != 1 ||
        !bson_iter_init_find(&iter, results->document, "figures") ||
        !bson_iter_recurse(&iter, &figures)) {
        fprintf(stderr, "%s: %s\n", path,
                error.message[0] ? error.message : "these are not the figures of a run");
        if (reader)
            bson_json_reader_destroy(reader);
        results_release(results);
        return false;
    }
    bson_json_reader_destroy(reader);
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

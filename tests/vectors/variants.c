/*
 * The same cases with indexes on the fields concerned: no plan may change an answer, except for the
 * order of documents that no sort decides.
 *
 * The fields concerned are the paths that the filter names, also inside of $and, $not and
 * $elemMatch. An index that cannot be made for the documents (parallel arrays) is left out.
 */
#include "tests/vectors/vectors.h"

#include <stdio.h>
#include <string.h>

#define PATHS_MAX 6

struct paths {
    char names[PATHS_MAX][200];
    int count;
};

static void add_path(struct paths *paths, const char *prefix, const char *name)
{
    char path[200];

    if (paths->count == PATHS_MAX)
        return;
    snprintf(path, sizeof(path), "%s%s%s", prefix, *prefix && *name ? "." : "", name);
    for (int i = 0; i < paths->count; i++)
        if (!strcmp(paths->names[i], path))
            return;
    memcpy(paths->names[paths->count++], path, sizeof(path));
}

/* Collects the paths of a filter (or of $elemMatch) below `prefix`. */
static void collect(const bson_t *filter, const char *prefix, struct paths *paths, int depth)
{
    bson_iter_t iter;

    if (depth > 8 || !bson_iter_init(&iter, filter))
        return;
    while (bson_iter_next(&iter)) {
        const char *key = bson_iter_key(&iter);
        char below[200];
        bson_t inner;

        if (key[0] != '$' && strlen(prefix) + strlen(key) < sizeof(below) - 2) {
            bool number = bson_iter_key_len(&iter) > 0 && strspn(key, "0123456789") == strlen(key);

            if (!number || depth == 0)
                add_path(paths, prefix, key);
            snprintf(below, sizeof(below), "%s%s%s", prefix, *prefix && !number ? "." : "",
                     number ? "" : key);
        } else {
            snprintf(below, sizeof(below), "%s", prefix);
        }
        if (strcmp(key, "$eq") && strcmp(key, "$in") && vector_sub(filter, key, &inner) &&
            (BSON_ITER_HOLDS_DOCUMENT(&iter) || BSON_ITER_HOLDS_ARRAY(&iter)))
            collect(&inner, below, paths, depth + 1);
    }
}

static void collect_of_case(const struct vector_case *vector, struct paths *paths)
{
    bson_t document, inner, filter;
    bson_iter_t iter;

    if (vector_document(vector, "filter", &document) || vector_document(vector, "query", &document))
        collect(&document, "", paths, 0);
    if (vector_document(vector, "command", &document) && vector_sub(&document, "query", &inner))
        collect(&inner, "", paths, 0);
    if (!vector_document(vector, "ops", &document))
        return;
    for (bson_iter_init(&iter, &document); bson_iter_next(&iter);) {
        bson_init_static(&inner, bson_iter_value(&iter)->value.v_doc.data,
                         bson_iter_value(&iter)->value.v_doc.data_len);
        if (vector_sub(&inner, "filter", &filter) || vector_sub(&inner, "q", &filter))
            collect(&filter, "", paths, 0);
    }
}

static int create(truce_store *store, const char *collection, const bson_t *key, const char *name)
{
    bson_t index = BSON_INITIALIZER;
    truce_status status;

    BSON_APPEND_DOCUMENT(&index, "key", key);
    BSON_APPEND_UTF8(&index, "name", name);
    status = truce_index_create(store, collection, &index, NULL);
    bson_destroy(&index);
    return status == TRUCE_OK;
}

/* One index a path, ascending and descending in turn. */
static int prepare_single(truce_store *store, const char *collection,
                          const struct vector_case *vector)
{
    struct paths paths = {.count = 0};
    int made = 0;

    collect_of_case(vector, &paths);
    for (int i = 0; i < paths.count; i++) {
        bson_t key = BSON_INITIALIZER;
        char name[20];

        snprintf(name, sizeof(name), "single%d", i);
        BSON_APPEND_INT32(&key, paths.names[i], i % 2 ? -1 : 1);
        made += create(store, collection, &key, name);
        bson_destroy(&key);
    }
    return made;
}

/* A findAndModify without a sort takes the first document of the index. */
static int prepare_sorted(truce_store *store, const char *collection,
                          const struct vector_case *vector)
{
    bson_t command, sort;

    if (!vector_document(vector, "command", &command) || !vector_sub(&command, "sort", &sort))
        return 0;
    return prepare_single(store, collection, vector);
}

static void append_paths(bson_t *key, const struct paths *paths, bool backward)
{
    for (int i = 0; i < paths->count; i++)
        BSON_APPEND_INT32(key, paths->names[backward ? paths->count - 1 - i : i], i % 2 ? -1 : 1);
}

/* All paths in one index, both ways round, and everything in a wildcard index. */
static int prepare_compound(truce_store *store, const char *collection,
                            const struct vector_case *vector)
{
    bson_t forward = BSON_INITIALIZER, backward = BSON_INITIALIZER, all = BSON_INITIALIZER;
    struct paths paths = {.count = 0};
    int made = 0;

    collect_of_case(vector, &paths);
    if (paths.count > 1) {
        append_paths(&forward, &paths, false);
        append_paths(&backward, &paths, true);
        made += create(store, collection, &forward, "forward");
        made += create(store, collection, &backward, "backward");
    }
    BSON_APPEND_INT32(&all, "$**", 1);
    made += create(store, collection, &all, "wildcard");
    bson_destroy(&forward);
    bson_destroy(&backward);
    bson_destroy(&all);
    return made;
}

/* For sequences of operations: indexes that none of the case's own can be in conflict with. */
static int prepare_beside(truce_store *store, const char *collection,
                          const struct vector_case *vector)
{
    struct paths paths = {.count = 0};
    int made = 0;

    collect_of_case(vector, &paths);
    for (int i = 0; i < paths.count; i++) {
        bson_t key = BSON_INITIALIZER;
        char name[20];

        snprintf(name, sizeof(name), "beside%d", i);
        BSON_APPEND_INT32(&key, paths.names[i], 1);
        BSON_APPEND_INT32(&key, "in_no_document", -1);
        made += create(store, collection, &key, name);
        bson_destroy(&key);
    }
    return made;
}

static int prepare_sort(truce_store *store, const char *collection,
                        const struct vector_case *vector, int direction)
{
    bson_t sort, key = BSON_INITIALIZER;
    bson_iter_t iter;
    int made;

    if (!vector_document(vector, "sort", &sort))
        return 0;
    for (bson_iter_init(&iter, &sort); bson_iter_next(&iter);)
        BSON_APPEND_INT32(&key, bson_iter_key(&iter),
                          bson_iter_as_int64(&iter) < 0 ? -direction : direction);
    made = create(store, collection, &key, "sort");
    bson_destroy(&key);
    return made;
}

static int prepare_sort_forward(truce_store *store, const char *collection,
                                const struct vector_case *vector)
{
    return prepare_sort(store, collection, vector, 1);
}

static int prepare_sort_backward(truce_store *store, const char *collection,
                                 const struct vector_case *vector)
{
    return prepare_sort(store, collection, vector, -1);
}

/* For pipelines that begin with $match and $sort: the fields of the one, then those of the
 * other. */
static int prepare_pipeline(truce_store *store, const char *collection,
                            const struct vector_case *vector)
{
    bson_t pipeline, stage, filter, sort, key = BSON_INITIALIZER;
    struct paths paths = {.count = 0};
    bson_iter_t iter, field;
    int made = 0;

    if (!vector_document(vector, "pipeline", &pipeline))
        return 0;
    for (bson_iter_init(&iter, &pipeline); bson_iter_next(&iter) && bson_empty(&key);) {
        bson_init_static(&stage, bson_iter_value(&iter)->value.v_doc.data,
                         bson_iter_value(&iter)->value.v_doc.data_len);
        if (vector_sub(&stage, "$match", &filter))
            collect(&filter, "", &paths, 0);
        else if (!vector_sub(&stage, "$sort", &sort))
            break;
        else
            for (bson_iter_init(&field, &sort); bson_iter_next(&field);)
                BSON_APPEND_INT32(&key, bson_iter_key(&field),
                                  bson_iter_as_int64(&field) < 0 ? -1 : 1);
    }
    if (!bson_empty(&key)) {
        bson_t both = BSON_INITIALIZER;

        made += create(store, collection, &key, "sort");
        append_paths(&both, &paths, false);
        for (bson_iter_init(&field, &key); bson_iter_next(&field);)
            if (!bson_has_field(&both, bson_iter_key(&field)))
                BSON_APPEND_INT32(&both, bson_iter_key(&field), (int)bson_iter_as_int64(&field));
        if (paths.count > 0)
            made += create(store, collection, &both, "both");
        bson_destroy(&both);
    } else if (paths.count > 0) {
        append_paths(&key, &paths, false);
        made += create(store, collection, &key, "match");
    }
    bson_destroy(&key);
    return made;
}

/* True if the case can run without the indexes that are not unique. It cannot if they refuse
 * something, or are themselves the subject. */
static int prepare_without(truce_store *store, const char *collection,
                           const struct vector_case *vector)
{
    bson_t indexes, results, ops;
    char *json;
    int fit;

    if (!vector_document(vector, "indexes", &indexes) || bson_empty(&indexes) ||
        !vector_document(vector, "results", &results) || !vector_document(vector, "ops", &ops))
        return 0;
    json = bson_as_canonical_extended_json(&results, NULL);
    fit = strstr(json, "\"171\"") == NULL;
    bson_free(json);
    json = bson_as_canonical_extended_json(&ops, NULL);
    fit = fit && strstr(json, "createIndex") == NULL;
    bson_free(json);
    return fit;
}

const struct variant vector_variants[] = {
    {"single", " match ", .hinted = true, .prepare = prepare_single},
    {"single", " update count distinct ", .prepare = prepare_single},
    {"single", " fam ", .prepare = prepare_sorted},
    {"compound", " match ", .hinted = true, .prepare = prepare_compound},
    {"beside", " index ", .prepare = prepare_beside},
    {"without", " index ", .without = true, .prepare = prepare_without},
    {"forward", " sort ", .prepare = prepare_sort_forward},
    {"backward", " sort ", .prepare = prepare_sort_backward},
    {"pipeline", " aggregate ", .prepare = prepare_pipeline},
};

const size_t vector_variants_count = sizeof(vector_variants) / sizeof(vector_variants[0]);

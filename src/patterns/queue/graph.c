/* The jobs that hang together: found from one of them along `then` and `told`, in both directions. */
#include <string.h>

#include "base/field.h"
#include "base/limits.h"
#include "patterns/queue/queue.h"
#include "store/maintenance.h"

struct edge {
    int earlier, later;
};

struct graph {
    truce_store *store;
    bson_t *jobs[GRAPH_JOBS_MAX];
    bson_oid_t ids[GRAPH_JOBS_MAX];
    int64_t levels[GRAPH_JOBS_MAX];
    size_t count, edge_count;
    struct edge *edges;
};

static const char *const fields[] = {"then", "told"};

/* Where it stands; -1: nowhere. */
static int graph_place_of(const struct graph *graph, const bson_oid_t *id)
{
    for (size_t i = 0; i < graph->count; i++) {
        if (bson_oid_equal(id, &graph->ids[i]))
            return (int)i;
    }
    return -1;
}

static truce_status graph_add_found(struct graph *graph, const bson_t *filter, bson_error_t *error)
{
    bson_t *projection =
        BCON_NEW("name", BCON_INT32(1), "queue", BCON_INT32(1), "state", BCON_INT32(1), "then",
                 BCON_INT32(1), "told", BCON_INT32(1), "after", BCON_INT32(1));
    truce_find_options options = {.projection = projection, .limit = GRAPH_JOBS_MAX};
    truce_cursor *cursor = NULL;
    const bson_t *job = NULL;
    truce_status status = truce_find(graph->store, QUEUE, filter, &options, &cursor, error);

    while (!status && !(status = truce_cursor_next(cursor, &job, error)) && job) {
        bson_value_t id = truce__document_id(job);

        if (graph->count == GRAPH_JOBS_MAX || id.value_type != BSON_TYPE_OID ||
            graph_place_of(graph, &id.value.v_oid) >= 0)
            continue;
        bson_oid_copy(&id.value.v_oid, &graph->ids[graph->count]);
        graph->jobs[graph->count++] = bson_copy(job);
    }
    truce_cursor_close(cursor);
    bson_destroy(projection);
    return status;
}

static truce_status add_earlier(struct graph *graph, const bson_oid_t *id, bson_error_t *error)
{
    bson_t *filter =
        BCON_NEW("$or", "[", "{", "then", BCON_OID(id), "}", "{", "told", BCON_OID(id), "}", "]");
    truce_status status = graph_add_found(graph, filter, error);

    bson_destroy(filter);
    return status;
}

static truce_status add_later(struct graph *graph, const bson_t *job, const char *field,
                              bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, in;
    bson_iter_t iter;
    truce_status status = TRUCE_OK;

    if (bson_iter_init_find(&iter, job, field) && BSON_ITER_HOLDS_ARRAY(&iter)) {
        BSON_APPEND_DOCUMENT_BEGIN(&filter, "_id", &in);
        BSON_APPEND_VALUE(&in, "$in", bson_iter_value(&iter));
        bson_append_document_end(&filter, &in);
        status = graph_add_found(graph, &filter, error);
    }
    bson_destroy(&filter);
    return status;
}

static truce_status add_neighbours(struct graph *graph, size_t i, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (bson_has_field(graph->jobs[i], "after"))
        status = add_earlier(graph, &graph->ids[i], error);
    for (int k = 0; k < 2 && !status; k++)
        status = add_later(graph, graph->jobs[i], fields[k], error);
    return status;
}

static void add_edges(struct graph *graph, size_t i, const char *field)
{
    bson_iter_t iter, one;

    if (!bson_iter_init_find(&iter, graph->jobs[i], field) || !BSON_ITER_HOLDS_ARRAY(&iter) ||
        !bson_iter_recurse(&iter, &one))
        return;
    while (bson_iter_next(&one)) {
        int later = BSON_ITER_HOLDS_OID(&one) ? graph_place_of(graph, bson_iter_oid(&one)) : -1;

        if (later < 0)
            continue;
        if (!(graph->edge_count & (graph->edge_count - 1)))
            graph->edges =
                bson_realloc(graph->edges, (2 * graph->edge_count + 1) * sizeof *graph->edges);
        graph->edges[graph->edge_count++] = (struct edge){(int)i, later};
    }
}

/* A level is one more than the highest of those that it waits for. Documents that somebody wrote in a circle end it, too. */
static void find_levels(struct graph *graph)
{
    bool changed = true;

    for (size_t round = 0; changed && round < graph->count; round++) {
        changed = false;
        for (size_t i = 0; i < graph->edge_count; i++) {
            int64_t *later = &graph->levels[graph->edges[i].later],
                    earlier = graph->levels[graph->edges[i].earlier];

            changed |= *later <= earlier;
            *later = *later <= earlier ? earlier + 1 : *later;
        }
    }
}

static void append_job(const struct graph *graph, size_t i, bson_t *result)
{
    bson_t one, after;
    char key[16];
    uint32_t count = 0;

    bson_snprintf(key, sizeof key, "%u", bson_count_keys(result));
    BSON_APPEND_DOCUMENT_BEGIN(result, key, &one);
    bson_copy_to_excluding_noinit(graph->jobs[i], &one, "then", "told", "after", NULL);
    BSON_APPEND_INT64(&one, "level", graph->levels[i]);
    BSON_APPEND_ARRAY_BEGIN(&one, "after", &after);
    for (size_t k = 0; k < graph->edge_count; k++) {
        bson_snprintf(key, sizeof key, "%u", count);
        if ((size_t)graph->edges[k].later == i && ++count)
            BSON_APPEND_OID(&after, key, &graph->ids[graph->edges[k].earlier]);
    }
    bson_append_array_end(&one, &after);
    bson_append_document_end(result, &one);
}

static void graph_append_all(struct graph *graph, bson_t *result)
{
    size_t left = graph->count;

    for (size_t i = 0; i < graph->count; i++)
        for (int k = 0; k < 2; k++)
            add_edges(graph, i, fields[k]);
    find_levels(graph);
    for (int64_t level = 0; left > 0; level++) {
        for (size_t i = 0; i < graph->count; i++) {
            if (graph->levels[i] == level) {
                append_job(graph, i, result);
                left--;
            }
        }
    }
}

truce_status truce_queue_graph(truce_store *store, const bson_oid_t *id, bson_t *result,
                               bson_error_t *error)
{
    struct graph *graph = bson_malloc0(sizeof *graph);
    bson_t *filter = BCON_NEW("_id", BCON_OID(id));
    char text[25];
    truce_status status;

    graph->store = store;
    bson_init(result);
    bson_oid_to_string(id, text);
    status = graph_add_found(graph, filter, error);
    if (!status && !graph->count)
        status = truce__fail(TRUCE_NOT_FOUND, error, "there is no job %s", text);
    for (size_t i = 0; i < graph->count && !status; i++)
        status = add_neighbours(graph, i, error);
    if (!status)
        graph_append_all(graph, result);
    for (size_t i = 0; i < graph->count; i++)
        bson_destroy(graph->jobs[i]);
    bson_free(graph->edges);
    bson_free(graph);
    bson_destroy(filter);
    return status;
}

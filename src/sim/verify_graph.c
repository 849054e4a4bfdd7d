#include <string.h>

#include "base/assert.h"
#include "sim/verify_parts.h"

/*
 * The dependency graph. Tarjan's algorithm finds the components; it has its own stack, because
 * histories are long. In a component, a breadth-first search finds the shortest cycle through a
 * node.
 */

struct edge {
    uint32_t from, to, key;
    /* The kinds of the edge, as bits of verify_edge. */
    unsigned kinds;
};

struct verify_graph {
    uint32_t nodes;
    struct edge *edges;
    uint32_t count, room;
};

struct verify_graph *truce__graph_new(uint32_t nodes)
{
    struct verify_graph *graph = bson_malloc0(sizeof *graph);

    graph->nodes = nodes;
    return graph;
}

void truce__graph_free(struct verify_graph *graph)
{
    bson_free(graph->edges);
    bson_free(graph);
}

void truce__graph_add(struct verify_graph *graph, uint32_t from, uint32_t to, enum verify_edge kind,
                      uint32_t key)
{
    truce_assert(from < graph->nodes && to < graph->nodes);
    if (from == to)
        return;
    if (graph->count == graph->room) {
        graph->room = graph->room ? 2 * graph->room : 1024;
        graph->edges = bson_realloc(graph->edges, graph->room * sizeof *graph->edges);
    }
    graph->edges[graph->count++] = (struct edge){from, to, key, kind};
}

/* The edges of the allowed kinds, grouped by the node that they leave. */
struct adjacency {
    /* starts[n]: the index in `targets` of the first edge that leaves node n. The last element is
     * the end. */
    uint32_t *starts;
    uint32_t *targets;
    /* edges[i]: the number of the edge to targets[i]. */
    uint32_t *edges;
};

/* Groups the edges of the allowed kinds by the node that they leave, by counting. The caller
 * releases the arrays. */
static void make_adjacency(const struct verify_graph *graph, unsigned allowed,
                           struct adjacency *adjacency)
{
    uint32_t *fill;

    adjacency->starts = bson_malloc0((graph->nodes + 2) * sizeof *adjacency->starts);
    adjacency->targets = bson_malloc0((graph->count + 1) * sizeof *adjacency->targets);
    adjacency->edges = bson_malloc0((graph->count + 1) * sizeof *adjacency->edges);
    for (uint32_t i = 0; i < graph->count; i++) {
        if (graph->edges[i].kinds & allowed)
            adjacency->starts[graph->edges[i].from + 1]++;
    }
    for (uint32_t i = 0; i < graph->nodes; i++)
        adjacency->starts[i + 1] += adjacency->starts[i];
    fill = bson_malloc((graph->nodes + 1) * sizeof *fill);
    memcpy(fill, adjacency->starts, (graph->nodes + 1) * sizeof *fill);
    for (uint32_t i = 0; i < graph->count; i++) {
        const struct edge *edge = &graph->edges[i];

        if (!(edge->kinds & allowed))
            continue;
        adjacency->targets[fill[edge->from]] = edge->to;
        adjacency->edges[fill[edge->from]++] = i;
    }
    bson_free(fill);
}

static void release_adjacency(struct adjacency *adjacency)
{
    bson_free(adjacency->starts);
    bson_free(adjacency->targets);
    bson_free(adjacency->edges);
}

/* ---- components ----------------------------------------------------------------------------- */

/* The state of the search for components (R. Tarjan, 1972). */
struct tarjan {
    const struct adjacency *adjacency;
    /* For each node: its number in the order of visits, or 0 before the visit; the lowest reachable
     * number; its component; its next edge. */
    uint32_t *index, *low, *component, *at;
    /* The stack of the recursion, and the stack of nodes that have no component yet. */
    uint32_t *path, *open;
    uint32_t path_count, open_count, next, components;
};

static void graph_enter(struct tarjan *tarjan, uint32_t node)
{
    tarjan->index[node] = tarjan->low[node] = ++tarjan->next;
    tarjan->at[node] = tarjan->adjacency->starts[node];
    tarjan->path[tarjan->path_count++] = node;
    tarjan->open[tarjan->open_count++] = node;
}

/* Ends the visit of a node. If no earlier node is reachable from it, the open nodes from it on are
 * one component. */
static void graph_leave(struct tarjan *tarjan, uint32_t node)
{
    tarjan->path_count--;
    if (tarjan->low[node] == tarjan->index[node]) {
        uint32_t member;

        tarjan->components++;
        do {
            member = tarjan->open[--tarjan->open_count];
            tarjan->component[member] = tarjan->components;
        } while (member != node);
    }
    if (tarjan->path_count) {
        uint32_t parent = tarjan->path[tarjan->path_count - 1];

        if (tarjan->low[node] < tarjan->low[parent])
            tarjan->low[parent] = tarjan->low[node];
    }
}

static void graph_visit(struct tarjan *tarjan, uint32_t root)
{
    graph_enter(tarjan, root);
    while (tarjan->path_count) {
        uint32_t node = tarjan->path[tarjan->path_count - 1], target;

        if (tarjan->at[node] == tarjan->adjacency->starts[node + 1]) {
            graph_leave(tarjan, node);
            continue;
        }
        target = tarjan->adjacency->targets[tarjan->at[node]++];
        if (!tarjan->index[target])
            graph_enter(tarjan, target);
        else if (!tarjan->component[target] && tarjan->index[target] < tarjan->low[node])
            tarjan->low[node] = tarjan->index[target];
    }
}

/* Returns the component of each node. The caller frees the array. */
static uint32_t *components_of(const struct verify_graph *graph, const struct adjacency *adjacency)
{
    size_t bytes = (graph->nodes + 1) * sizeof(uint32_t);
    struct tarjan tarjan = {adjacency,
                            bson_malloc0(bytes),
                            bson_malloc0(bytes),
                            bson_malloc0(bytes),
                            bson_malloc0(bytes),
                            bson_malloc0(bytes),
                            bson_malloc0(bytes),
                            0,
                            0,
                            0,
                            0};

    for (uint32_t node = 0; node < graph->nodes; node++) {
        if (!tarjan.index[node])
            graph_visit(&tarjan, node);
    }
    bson_free(tarjan.index);
    bson_free(tarjan.low);
    bson_free(tarjan.at);
    bson_free(tarjan.path);
    bson_free(tarjan.open);
    return tarjan.component;
}

/* ---- cycles --------------------------------------------------------------------------------- */

/* In a graph with more nodes, only the first node on a cycle is tried as its start. */
#define STARTS_MAX 2000

/* The work areas of a breadth-first search, one entry for each node. */
struct breadth {
    /* The number of the edge that led to a node, plus 1, or 0 if the node was not visited. */
    uint32_t *from;
    uint32_t *source, *queue;
};

/* Finds the shortest cycle through `start` inside its component. If it has less than `length`
 * steps, replaces `*steps` and returns its length; otherwise returns `length`. */
static uint32_t graph_shortest_cycle(const struct verify_graph *graph,
                                     const struct adjacency *adjacency, const uint32_t *component,
                                     uint32_t start, struct breadth *breadth,
                                     struct verify_step **steps, uint32_t length)
{
    uint32_t head = 0, tail = 0, count = 1, last = 0;
    bool found = false;

    breadth->queue[tail++] = start;
    while (head < tail && !found) {
        uint32_t node = breadth->queue[head++];

        for (uint32_t e = adjacency->starts[node]; e < adjacency->starts[node + 1]; e++) {
            uint32_t target = adjacency->targets[e];

            if (target == start) {
                found = true;
                last = e;
                breadth->source[start] = node;
                break;
            }
            if (component[target] != component[start] || breadth->from[target])
                continue;
            breadth->from[target] = e + 1;
            breadth->source[target] = node;
            breadth->queue[tail++] = target;
        }
    }
    for (uint32_t n = breadth->source[start]; found && n != start; n = breadth->source[n])
        count++;
    if (found && count < length) { /* The path is followed from its end back to `start`. */
        uint32_t node = breadth->source[start], e = last;

        length = count;
        *steps = bson_realloc(*steps, length * sizeof **steps);
        for (uint32_t i = length; i-- > 0;) {
            const struct edge *edge = &graph->edges[adjacency->edges[e]];

            (*steps)[i] = (struct verify_step){node, edge->kinds, edge->key};
            e = breadth->from[node] - 1;
            node = breadth->source[node];
        }
    }
    for (uint32_t i = 0; i < tail; i++)
        breadth->from[breadth->queue[i]] = 0;
    return length;
}

static bool on_cycle(const struct adjacency *adjacency, const uint32_t *component, uint32_t node)
{
    for (uint32_t e = adjacency->starts[node]; e < adjacency->starts[node + 1]; e++) {
        if (component[adjacency->targets[e]] == component[node])
            return true;
    }
    return false;
}

uint32_t truce__graph_cycle(const struct verify_graph *graph, unsigned allowed,
                            struct verify_step **steps)
{
    size_t bytes = (graph->nodes + 1) * sizeof(uint32_t);
    struct breadth breadth = {bson_malloc0(bytes), bson_malloc0(bytes), bson_malloc0(bytes)};
    struct adjacency adjacency;
    uint32_t *component, length = UINT32_MAX, starts = 0;

    *steps = NULL;
    make_adjacency(graph, allowed, &adjacency);
    component = components_of(graph, &adjacency);
    for (uint32_t node = 0; node < graph->nodes && starts < STARTS_MAX; node++) {
        if (!on_cycle(&adjacency, component, node))
            continue;
        starts++;
        length = graph_shortest_cycle(graph, &adjacency, component, node, &breadth, steps, length);
        if (graph->nodes > STARTS_MAX)
            break;
    }
    bson_free(component);
    bson_free(breadth.from);
    bson_free(breadth.source);
    bson_free(breadth.queue);
    release_adjacency(&adjacency);
    return *steps ? length : 0;
}

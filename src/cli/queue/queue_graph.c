/* truce queue graph: the jobs that hang together, as lines, for Graphviz, or as a picture. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/control.h"
#include "base/field.h"
#include "base/limits.h"
#include "bson/value.h"
#include "cli/commands.h"
#include "cli/queue/queue_options.h"
#include "store/maintenance.h"

/* ---- a job ---------------------------------------------------------------------------------------- */

struct node {
    bson_t job;     /* borrowed */
    char label[64]; /* its name, or its id */
    int x, y;       /* of the picture */
};

struct picture {
    struct node *nodes;
    size_t count;
    bson_string_t *text;
};

static void read_node(struct node *node, const bson_t *job)
{
    const char *name = truce__field_text(job, "name");
    bson_value_t id = truce__document_id(job);
    char text[25];
    size_t length = strlen(name);

    bson_oid_to_string(&id.value.v_oid, text);
    if (length >= sizeof node->label) /* whole characters */
        for (length = sizeof node->label - 1; ((unsigned char)name[length] & 0xc0) == 0x80;)
            length--;
    bson_snprintf(node->label, sizeof node->label, "%.*s", *name ? (int)length : 24,
                  *name ? name : text);
}

static bool read_nodes(struct picture *picture, const bson_t *graph)
{
    bson_iter_t iter;

    picture->nodes = bson_malloc0((bson_count_keys(graph) + 1) * sizeof *picture->nodes);
    for (bson_iter_init(&iter, graph); bson_iter_next(&iter);) {
        struct node *node = &picture->nodes[picture->count++];
        const uint8_t *bytes;
        uint32_t size;

        bson_iter_document(&iter, &size, &bytes);
        if (!bson_init_static(&node->job, bytes, size))
            return false;
        read_node(node, &node->job);
    }
    return true;
}

static const struct node *node_of(const struct picture *picture, const bson_oid_t *oid)
{
    for (size_t i = 0; i < picture->count; i++) {
        bson_value_t id = truce__document_id(&picture->nodes[i].job);

        if (bson_oid_equal(&id.value.v_oid, oid))
            return &picture->nodes[i];
    }
    return NULL;
}

typedef void edge_function(struct picture *picture, const struct node *from, const struct node *to);

static void each_before(struct picture *picture, const struct node *node, edge_function *function)
{
    bson_iter_t iter, one;

    if (!bson_iter_init_find(&iter, &node->job, "after") || !bson_iter_recurse(&iter, &one))
        return;
    while (bson_iter_next(&one)) {
        const struct node *from = node_of(picture, bson_iter_oid(&one));

        if (from)
            function(picture, from, node);
    }
}

/* What ends a quoted text, or a line, in either form. */
static void graph_append_escaped(bson_string_t *text, const char *label, bool xml)
{
    for (const char *end = label + strlen(label); label < end; label++) {
        size_t control = truce__text_control(label, (size_t)(end - label));

        label += control; /* a terminal would obey it */
        if (label >= end)
            break;
        if (xml && strchr("<>&\"'", *label))
            bson_string_append_printf(text, "&#%d;", *label);
        else if (!xml && strchr("\"\\", *label))
            bson_string_append_printf(text, "\\%c", *label);
        else
            bson_string_append_printf(text, "%c", *label);
    }
}

/* ---- lines ---------------------------------------------------------------------------------------- */

static void line_edge(struct picture *picture, const struct node *from, const struct node *to)
{
    (void)to;
    bson_string_append(picture->text, picture->text->len ? ", " : "after ");
    bson_string_append(picture->text, from->label);
}

static void print_lines(struct picture *picture)
{
    int widest = 0;

    for (size_t i = 0; i < picture->count; i++) {
        const struct node *node = &picture->nodes[i];
        int width = 2 * (int)truce__field_number(&node->job, "level") + (int)strlen(node->label);

        widest = width > widest ? width : widest;
    }
    for (size_t i = 0; i < picture->count; i++) {
        const struct node *node = &picture->nodes[i];
        int indent = 2 * (int)truce__field_number(&node->job, "level");

        bson_string_truncate(picture->text, 0);
        each_before(picture, node, line_edge);
        if (!cli_put("%*s%-*s  %-9s  %s%s%s\n", indent, "", widest - indent, node->label,
                     truce__field_text(&node->job, "state"), truce__field_text(&node->job, "queue"),
                     picture->text->len ? "  " : "", picture->text->str))
            return;
    }
}

/* ---- Graphviz ------------------------------------------------------------------------------------- */

static const char *graph_colour_of(const struct node *node)
{
    static const char *const colours[][2] = {{"done", "#cfe8cf"},      {"running", "#cfe0f5"},
                                             {"ready", "#f5f0c8"},     {"dead", "#f2c4c4"},
                                             {"cancelled", "#e0e0e0"}, {"discarded", "#e0e0e0"}};

    for (size_t i = 0; i < sizeof colours / sizeof *colours; i++) {
        if (!strcmp(truce__field_text(&node->job, "state"), colours[i][0]))
            return colours[i][1];
    }
    return "#ffffff";
}

static void dot_edge(struct picture *picture, const struct node *from, const struct node *to)
{
    bson_string_append_printf(picture->text, "  n%d -> n%d;\n", (int)(from - picture->nodes),
                              (int)(to - picture->nodes));
}

static void print_dot(struct picture *picture)
{
    bson_string_append(picture->text, "digraph jobs {\n  rankdir=LR;\n  node [shape=box, "
                                      "style=filled];\n");
    for (size_t i = 0; i < picture->count; i++) {
        const struct node *node = &picture->nodes[i];

        bson_string_append_printf(picture->text, "  n%zu [label=\"", i);
        graph_append_escaped(picture->text, node->label, false);
        bson_string_append_printf(picture->text, "\\n%s\", fillcolor=\"%s\"];\n",
                                  truce__field_text(&node->job, "state"), graph_colour_of(node));
        each_before(picture, node, dot_edge);
    }
    bson_string_append(picture->text, "}\n");
    cli_write(picture->text->str, picture->text->len);
}

/* ---- a picture ------------------------------------------------------------------------------------ */

#define BOX_WIDTH  200
#define BOX_HEIGHT 44
#define STEP_X     280
#define STEP_Y     64
#define MARGIN     20

static void svg_edge(struct picture *picture, const struct node *from, const struct node *to)
{
    int x1 = from->x + BOX_WIDTH, y1 = from->y + BOX_HEIGHT / 2, x2 = to->x - 4,
        y2 = to->y + BOX_HEIGHT / 2, middle = (x1 + x2) / 2;

    bson_string_append_printf(picture->text,
                              "<path d=\"M%d %d C%d %d %d %d %d %d\" fill=\"none\" "
                              "stroke=\"#555\" marker-end=\"url(#end)\"/>\n",
                              x1, y1, middle, y1, middle, y2, x2, y2);
}

static void svg_box(struct picture *picture, const struct node *node)
{
    bson_string_append_printf(picture->text,
                              "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\" "
                              "fill=\"%s\" stroke=\"#555\"/>\n<text x=\"%d\" y=\"%d\">",
                              node->x, node->y, BOX_WIDTH, BOX_HEIGHT, graph_colour_of(node),
                              node->x + 10, node->y + 19);
    graph_append_escaped(picture->text, node->label, true);
    bson_string_append_printf(picture->text, "</text>\n<text x=\"%d\" y=\"%d\" fill=\"#555\">",
                              node->x + 10, node->y + 36);
    graph_append_escaped(picture->text, truce__field_text(&node->job, "state"), true);
    bson_string_append(picture->text, "</text>\n");
}

/* Levels from the left to the right; jobs of one level below each other, as they come. */
static void graph_place(struct picture *picture, int *width, int *height)
{
    int64_t level = -1;
    int row = 0;

    *width = *height = 0;
    for (size_t i = 0; i < picture->count; i++) {
        struct node *node = &picture->nodes[i];
        int64_t own = truce__field_number(&node->job, "level");

        row = own == level ? row + 1 : 0;
        level = own;
        node->x = MARGIN + (int)level * STEP_X;
        node->y = MARGIN + row * STEP_Y;
        *width = node->x + BOX_WIDTH + MARGIN > *width ? node->x + BOX_WIDTH + MARGIN : *width;
        *height = node->y + BOX_HEIGHT + MARGIN > *height ? node->y + BOX_HEIGHT + MARGIN : *height;
    }
}

static void print_svg(struct picture *picture)
{
    int width, height;

    graph_place(picture, &width, &height);
    bson_string_append_printf(
        picture->text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
        "font-family=\"sans-serif\" font-size=\"13\">\n<defs><marker id=\"end\" "
        "viewBox=\"0 0 8 8\" refX=\"6\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" "
        "orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#555\"/></marker></defs>\n",
        width, height);
    for (size_t i = 0; i < picture->count; i++)
        each_before(picture, &picture->nodes[i], svg_edge);
    for (size_t i = 0; i < picture->count; i++)
        svg_box(picture, &picture->nodes[i]);
    bson_string_append(picture->text, "</svg>\n");
    cli_write(picture->text->str, picture->text->len);
}

/* ---- the command ---------------------------------------------------------------------------------- */

static void graph_print(const struct cli *cli, struct picture *picture)
{
    picture->text = bson_string_new(NULL);
    if (cli_flag(cli, "dot"))
        print_dot(picture);
    else if (cli_flag(cli, "svg"))
        print_svg(picture);
    else
        print_lines(picture);
    bson_string_free(picture->text, true);
}

static int run_graph(struct cli *cli)
{
    struct picture picture = {0};
    bson_error_t error;
    bson_oid_t id;
    bson_t job, graph;
    truce_status status;
    int code;

    if (cli_flag(cli, "dot") + cli_flag(cli, "svg") + cli->json > 1)
        return cli_usage(cli, "--dot, --svg and --json exclude each other");
    code = cli_find_job(cli, cli->arguments[0], &id, &job);
    bson_destroy(&job);
    if (code)
        return code;
    status = truce_queue_graph(cli->store, &id, &graph, &error);
    if (cli->json || status)
        return cli_print_array(cli, status, &graph, NULL, &error);
    if (read_nodes(&picture, &graph))
        graph_print(cli, &picture);
    bson_free(picture.nodes);
    bson_destroy(&graph);
    return cli_output_end(CLI_DONE);
}

const struct cli_command cli_queue_graph = {
    .noun = "queue",
    .verb = "graph",
    .arguments = "ID",
    .summary = "draw the jobs that wait for each other",
    .help =
        "All that hang together with the job, up to 1,000: as lines, for Graphviz (--dot), or as a\n"
        "picture (--svg).",
    .example = "id=$(truce queue add web '{url: 1}' --name get | cut -d' ' -f2)\n"
               "truce queue add web '{}' --name sum --after $id\n"
               "truce queue graph $id",
    .options = (const struct cli_option[]){{"dot", 0, NULL, "for Graphviz", false},
                                           {"svg", 0, NULL, "a picture", false},
                                           {0}},
    .store = CLI_STORE_CHANGE,
    .run = run_graph,
};

/* truce queue flow, results, signal, graph: jobs that wait for other jobs or for an
 * event. */
#include <stdio.h>
#include <string.h>

#include "base/field.h"
#include "base/terminal_escape.h"
#include "base/utf8.h"
#include "bson/value.h"
#include "cli/commands.h"
#include "cli/core/ndjson.h"
#include "cli/core/operation_row.h"
#include "store/maintenance.h"

/* ---- the graph: a job ------------------------------------------------------------------------ */

struct node {
    /* The job, borrowed from the reply. */
    bson_t job;
    /* The name of the job or its id, and its queue: on one line, and cut to the size of the field. */
    char label[64], queue[64];
    /* The position in the picture. */
    int x, y;
};

struct picture {
    struct node *nodes;
    size_t count;
    bson_string_t *text;
};

/* Copies the characters that fit. Characters that a terminal obeys, also the newline, become
 * escapes. */
static void node_copy_text(const char *text, char *copy, size_t room)
{
    size_t used = 0, size;

    for (const char *end = text + strlen(text); text < end; text += size) {
        char escape[16];
        size_t control = truce__text_control(text, (size_t)(end - text)), length;

        (void)truce__text_code(text, (size_t)(end - text), &size);
        size = size ? size : 1;
        length = size;
        if (control)
            length = (size_t)snprintf(escape, sizeof escape, "\\u%04x",
                                      truce__text_control_code(text, control));
        if (used + length >= room)
            break;
        memcpy(copy + used, control ? escape : text, length);
        used += length;
    }
    copy[used] = '\0';
}

static void read_node(struct node *node, const bson_t *job)
{
    const char *name = truce__field_text(job, "name");
    bson_value_t id = truce__document_id(job);
    char text[25];

    bson_oid_to_string(&id.value.v_oid, text);
    node_copy_text(*name ? name : text, node->label, sizeof node->label);
    node_copy_text(truce__field_text(job, "queue"), node->queue, sizeof node->queue);
}

/* Reads the jobs of the graph, which borrow from the reply. Returns false if the reply is not
 * valid. */
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

/* Appends a label and escapes the characters that would end it. */
static void graph_append_escaped(bson_string_t *text, const char *label, bool xml)
{
    for (; *label; label++) {
        if (xml && strchr("<>&\"'", *label))
            bson_string_append_printf(text, "&#%d;", *label);
        else if (!xml && strchr("\"\\", *label))
            bson_string_append_printf(text, "\\%c", *label);
        else
            bson_string_append_printf(text, "%c", *label);
    }
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void line_edge(struct picture *picture, const struct node *from, const struct node *to)
{
    (void)to;
    bson_string_append(picture->text, picture->text->len ? ", " : "after ");
    bson_string_append(picture->text, from->label);
}

/* Prints a line for each job, indented by its level, with the jobs for which it waits. */
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
                     truce__field_text(&node->job, "state"), node->queue,
                     picture->text->len ? "  " : "", picture->text->str))
            return;
    }
}

/* ---- Graphviz -------------------------------------------------------------------------------- */

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

/* Prints the graph in Graphviz's language. */
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

/* ---- a picture ------------------------------------------------------------------------------- */

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

/* Places the levels from left to right, and the jobs of a level below each other. */
static void graph_position(struct picture *picture, int *width, int *height)
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

/* Prints the graph as a picture in SVG: first the lines between the jobs, then the jobs over
 * them. */
static void print_svg(struct picture *picture)
{
    int width, height;

    graph_position(picture, &width, &height);
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

/* ---- the command ----------------------------------------------------------------------------- */

static void graph_jobs(const bson_t *reply, bson_t *jobs, bool *there)
{
    bson_iter_t iter;
    const uint8_t *bytes;
    uint32_t size;

    *there = bson_iter_init_find(&iter, reply, "jobs") && BSON_ITER_HOLDS_ARRAY(&iter);
    if (*there) {
        bson_iter_array(&iter, &size, &bytes);
        *there = bson_init_static(jobs, bytes, size);
    }
}

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

static bool graph_draw(struct cli *cli, const bson_t *reply)
{
    struct picture picture = {0};
    bson_t jobs;
    bool there;

    graph_jobs(reply, &jobs, &there);
    if (there && read_nodes(&picture, &jobs))
        graph_print(cli, &picture);
    bson_free(picture.nodes);
    return true;
}

static int run_graph(struct cli *cli)
{
    struct cli_row row = *cli->command->row;

    if (cli_flag(cli, "dot") + cli_flag(cli, "svg") + cli->json > 1)
        return cli_usage(cli, "--dot, --svg and --json exclude each other");
    if (cli->json)
        row.list = "jobs";
    return cli_row_run_with(cli, &row, NULL);
}

static const struct cli_command cli_queue_graph = {
    .noun = "queue",
    .verb = "graph",
    .arguments = "JOB",
    .summary = "draw the jobs that wait for each other",
    .help =
        "Draws all jobs connected with the job, up to 1,000: as lines, for Graphviz (--dot), or\n"
        "as a picture (--svg).",
    .example = "id=$(truce queue add web '{url: 1}' --name get | cut -d' ' -f2)\n"
               "truce queue add web '{}' --name sum --after $id\n"
               "truce queue graph $id",
    .options = (const struct cli_option[]){{"dot", 0, NULL, "for Graphviz", false},
                                           {"svg", 0, NULL, "a picture", false},
                                           {0}},
    .store = CLI_STORE_CHANGE,
    .row = &(const struct cli_row){.name = "truceJobGraph",
                                   .none = "the job {job} does not exist",
                                   .print = graph_draw},
    .run = run_graph,
};

/* ---- workflows ------------------------------------------------------------------------------- */

/* Reads the array of the file. */
static int flow_read_file(struct cli *cli, bson_t *jobs)
{
    const char *path = cli->arguments[0];
    char *text = NULL;
    bson_error_t error;
    bool is_array = false, good;

    bson_init(jobs);
    if (cli_text_file(path, &text, &error))
        return cli_usage(cli, "%s", error.message);
    good = cli_document_or_array(cli, text, strcmp(path, "-") ? path : "standard input", jobs,
                                 &is_array);
    bson_free(text);
    if (good && !is_array)
        return cli_usage(cli, "a workflow must be an array of jobs");
    return good ? CLI_DONE : CLI_USAGE;
}

static int run_flow(struct cli *cli)
{
    bson_t jobs, fields = BSON_INITIALIZER;
    int code = flow_read_file(cli, &jobs);

    if (cli_text(cli, "queue"))
        BSON_APPEND_UTF8(&fields, "queue", cli_text(cli, "queue"));
    BSON_APPEND_ARRAY(&fields, "jobs", &jobs);
    if (!code)
        code = cli_store_open(cli, CLI_STORE_WRITE, &cli->store);
    if (!code)
        code = cli_row_run_with(cli, cli->command->row, &fields);
    bson_destroy(&fields);
    bson_destroy(&jobs);
    return code;
}

static const struct cli_command cli_queue_flow = {
    .noun = "queue",
    .verb = "flow",
    .arguments = "FILE",
    .summary = "add a workflow of jobs that wait for each other",
    .help =
        "FILE (- is standard input) has an array of jobs, which one commit adds:\n"
        "  {\"name\": NAME, \"queue\": QUEUE, \"payload\": DOCUMENT, \"after\": [NAME, ...],\n"
        "   \"failure\": \"cancel\"}\n"
        "Further fields are those of truceEnqueue (docs/commands.md): priority, delayMS,\n"
        "attempts, timeoutMS, lane, tags, and others. A job runs when the jobs in `after` are\n"
        "done. If one of them ends otherwise, `failure` decides: cancel (until that one is\n"
        "retried), goOn, or wait (while that one is dead). A cycle or an unknown name is refused.\n"
        "Prints names and ids.",
    .example = "echo '[{name: \"get\", payload: {url: 1}}, {name: \"sum\", after: [\"get\"]}]' |\n"
               "    truce queue flow - --queue web",
    .options =
        (const struct cli_option[]){{"queue", 0, "QUEUE", "the queue of jobs without one", false},
                                    {0}},
    .store = CLI_STORE_NONE,
    .row =
        &(const struct cli_row){
            .name = "truceFlow", .fields = "", .list = "jobs", .format = "{name} {id}"},
    .run = run_flow,
};

/* ---- results, signal ------------------------------------------------------------------------- */

static const struct cli_command cli_queue_results = {
    .noun = "queue",
    .verb = "results",
    .arguments = "JOB",
    .summary = "show the results of the jobs that a job waited for",
    .help = "A program of truce work reads them with truce queue results $TRUCE_JOB.",
    .example = "truce queue results $(truce queue add mail '{}' | cut -d' ' -f2)",
    .store = CLI_STORE_CHANGE,
    .row = &(const struct cli_row){.name = "truceJobResults",
                                   .list = "jobs",
                                   .none = "the job {job} does not exist"},
    .run = cli_row_run,
};

static const struct cli_command cli_queue_signal = {
    .noun = "queue",
    .verb = "signal",
    .arguments = "ID NAME [EVENT]",
    .summary = "send an event to a job",
    .help =
        "The first event of a name counts. EVENT is a document. A job waits by truceJobWait, or "
        "by\n"
        "truce_job_wait (truce/queue.h).",
    .example = "id=$(truce queue add orders '{order: 7}' | cut -d' ' -f2)\n"
               "truce queue signal $id paid '{sum: 12}'",
    .store = CLI_STORE_CHANGE,
    .row = &(const struct cli_row){.name = "truceSignal", .format = "signalled {name}"},
    .run = cli_row_run,
};

cli_command_list cli_queue_flow_commands = {&cli_queue_flow, &cli_queue_results, &cli_queue_graph,
                                            &cli_queue_signal, NULL};

/* truce queue flow, close, results, signal, graph: jobs that wait for other jobs or for an
 * event. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/control.h"
#include "base/field.h"
#include "base/limits.h"
#include "bson/value.h"
#include "cli/commands.h"
#include "cli/core/ndjson.h"
#include "cli/queue/queue_options.h"
#include "store/maintenance.h"

/* ---- the graph ------------------------------------------------------------------------------- */

/* truce queue graph: prints connected jobs as lines, for Graphviz, or as a picture. */

/* ---- a job ----------------------------------------------------------------------------------- */

struct node {
    bson_t job;     /* borrowed */
    char label[64]; /* its name, or its id */
    int x, y;       /* position in the picture */
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
    if (length >= sizeof node->label) /* only whole characters */
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

/* Appends a label and escapes the characters that would end it. */
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

/* ---- lines ----------------------------------------------------------------------------------- */

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

/* ---- the command ----------------------------------------------------------------------------- */

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
        "Draws all jobs connected with the job, up to 1,000: as lines, for Graphviz (--dot), or\n"
        "as a picture (--svg).",
    .example = "id=$(truce queue add web '{url: 1}' --name get | cut -d' ' -f2)\n"
               "truce queue add web '{}' --name sum --after $id\n"
               "truce queue graph $id",
    .options = (const struct cli_option[]){{"dot", 0, NULL, "for Graphviz", false},
                                           {"svg", 0, NULL, "a picture", false},
                                           {0}},
    .store = CLI_STORE_CHANGE,
    .run = run_graph,
};

/* ---- the file -------------------------------------------------------------------------------- */

/* A job of the file, and the values that its options borrow. */
struct entry {
    truce_job_options options;
    bson_t payload, metadata, tags;
    const char **after;
};

struct flow_call {
    struct cli *cli;
    bson_t content;
    struct entry *entries;
    truce_flow_job *jobs;
    bson_oid_t *ids;
    size_t count;
};

static bool flow_is_field(const char *key)
{
    static const char *const fields[] = {
        "name",  "queue",    "payload",        "after",          "failure",   "priority",
        "delay", "attempts", "timeout",        "keep",           "lane",      "width",
        "tags",  "metadata", "keep_cancelled", "keep_discarded", "keep_dead", "rate"};

    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (!strcmp(key, fields[i]))
            return true;
    }
    return false;
}

/* Returns the first unknown field, or field with a wrong type, or NULL. */
static const char *bad_field(const bson_t *job)
{
    static const char *const texts[] = {"name", "queue", "failure", "lane", "rate"};
    bson_iter_t iter;

    for (bson_iter_init(&iter, job); bson_iter_next(&iter);) {
        const char *key = bson_iter_key(&iter);
        bson_type_t wanted = !strcmp(key, "payload") || !strcmp(key, "metadata")
                                 ? BSON_TYPE_DOCUMENT
                             : !strcmp(key, "after") || !strcmp(key, "tags") ? BSON_TYPE_ARRAY
                                                                             : BSON_TYPE_EOD;

        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
            wanted = strcmp(key, texts[i]) ? wanted : BSON_TYPE_UTF8;
        if (!flow_is_field(key) || (wanted && bson_iter_type(&iter) != wanted) ||
            (!wanted && !BSON_ITER_HOLDS_NUMBER(&iter)))
            return key;
    }
    return NULL;
}

static void borrow(const bson_t *job, const char *name, bson_t *part, bool *there)
{
    bson_iter_t iter;
    const uint8_t *bytes;
    uint32_t size;

    *there = bson_iter_init_find(&iter, job, name);
    bson_init(part);
    if (!*there)
        return;
    if (BSON_ITER_HOLDS_ARRAY(&iter))
        bson_iter_array(&iter, &size, &bytes);
    else
        bson_iter_document(&iter, &size, &bytes);
    *there = bson_init_static(part, bytes, size);
}

/* Returns the names, or NULL if an element is not a name. */
static const char **flow_parse_after(const bson_t *after)
{
    const char **names = bson_malloc0((bson_count_keys(after) + 1) * sizeof *names);
    bson_iter_t iter;
    size_t count = 0;

    for (bson_iter_init(&iter, after); bson_iter_next(&iter);) {
        if (!BSON_ITER_HOLDS_UTF8(&iter)) {
            bson_free(names);
            return NULL;
        }
        names[count++] = bson_iter_utf8(&iter, NULL);
    }
    return names;
}

static int64_t flow_number(const bson_t *job, const char *name, int64_t most, bool *good)
{
    int64_t value = truce__field_number(job, name);

    *good &= value <= most;
    return value;
}

static int read_numbers(const struct flow_call *call, const bson_t *job, struct entry *entry)
{
    truce_job_options *options = &entry->options;
    bool good = true;
    int64_t priority = flow_number(job, "priority", JOB_PRIORITY_MAX, &good),
            attempts = flow_number(job, "attempts", INT32_MAX, &good),
            timeout = flow_number(job, "timeout", INT32_MAX, &good),
            width = flow_number(job, "width", INT32_MAX, &good);

    options->delay_ms = truce__field_number(job, "delay");
    options->keep_ms = truce__field_number(job, "keep");
    options->keep_cancelled_ms = truce__field_number(job, "keep_cancelled");
    options->keep_discarded_ms = truce__field_number(job, "keep_discarded");
    options->keep_dead_ms = truce__field_number(job, "keep_dead");
    options->priority = (int32_t)priority;
    options->attempts_max = (uint32_t)attempts;
    options->timeout_ms = (uint32_t)timeout;
    options->lane_width = (uint32_t)width;
    good &= priority >= -JOB_PRIORITY_MAX && attempts >= 0 && timeout >= 0 && width >= 0;
    return good ? CLI_DONE
                : cli_usage(call->cli, "job \"%s\" of the workflow has a number out of range",
                            truce__field_text(job, "name"));
}

static int flow_parse_job(struct flow_call *call, size_t i, const bson_t *job)
{
    const char *field = bad_field(job), *queue = truce__field_text(job, "queue");
    struct entry *entry = &call->entries[i];
    bson_t after;
    bool there;

    if (field)
        return cli_usage(call->cli,
                         "job %zu of the workflow: the field \"%s\" is unknown, or not "
                         "of its type",
                         i + 1, field);
    if (!*queue)
        queue = cli_text(call->cli, "queue");
    if (!queue)
        return cli_usage(call->cli, "job %zu of the workflow has no queue, and there is no --queue",
                         i + 1);
    if (!cli_job_failure(call->cli, truce__field_text(job, "failure"), &entry->options.failure) ||
        !cli_rate(call->cli, bson_has_field(job, "rate") ? truce__field_text(job, "rate") : NULL,
                  &entry->options.lane_rate, &entry->options.lane_per_ms))
        return CLI_USAGE;
    borrow(job, "payload", &entry->payload, &there);
    borrow(job, "metadata", &entry->metadata, &there);
    entry->options.metadata = there ? &entry->metadata : NULL;
    borrow(job, "tags", &entry->tags, &there);
    entry->options.tags = there ? &entry->tags : NULL;
    borrow(job, "after", &after, &there);
    entry->after = flow_parse_after(&after);
    if (!entry->after)
        return cli_usage(call->cli, "job %zu of the workflow: \"after\" must be an array of names",
                         i + 1);
    entry->options.lane = bson_has_field(job, "lane") ? truce__field_text(job, "lane") : NULL;
    call->jobs[i] = (truce_flow_job){
        .name = bson_has_field(job, "name") ? truce__field_text(job, "name") : NULL,
        .queue = truce_queue_new(
            call->cli->store,
            &(truce_queue_options){.queue = queue, .deadline_ms = call->cli->deadline_ms}),
        .payload = &entry->payload,
        .options = &entry->options,
        .after = entry->after};
    return read_numbers(call, job, entry);
}

static int read_jobs(struct flow_call *call)
{
    bson_iter_t iter;
    int code = CLI_DONE;

    for (bson_iter_init(&iter, &call->content); !code && bson_iter_next(&iter); call->count++) {
        const uint8_t *bytes;
        uint32_t size;
        bson_t job;

        if (!BSON_ITER_HOLDS_DOCUMENT(&iter))
            return cli_usage(call->cli, "job %zu of the workflow is not a document",
                             call->count + 1);
        bson_iter_document(&iter, &size, &bytes);
        if (bson_init_static(&job, bytes, size))
            code = flow_parse_job(call, call->count, &job);
    }
    return code;
}

/* ---- workflows ------------------------------------------------------------------------------- */

static int flow_add(struct flow_call *call)
{
    bson_error_t error;
    truce_status status = truce_queue_add_flow(call->jobs, call->count, NULL, call->ids, &error);

    for (size_t i = 0; i < call->count && !status; i++) {
        bson_t answer = BSON_INITIALIZER;
        char id[25];

        bson_oid_to_string(&call->ids[i], id);
        BSON_APPEND_UTF8(&answer, "name", call->jobs[i].name);
        BSON_APPEND_OID(&answer, "job", &call->ids[i]);
        cli_answer(call->cli, &answer, "%s %s", call->jobs[i].name, id);
        bson_destroy(&answer);
    }
    return status ? cli_error(call->cli, NULL, status, &error) : cli_output_end(CLI_DONE);
}

static int flow_read_file(struct flow_call *call)
{
    const char *path = call->cli->arguments[0];
    char *text = NULL;
    bson_error_t error;
    bool is_array = false, good;

    if (cli_text_file(path, &text, &error))
        return cli_usage(call->cli, "%s", error.message);
    bson_destroy(&call->content);
    good = cli_document_or_array(call->cli, text, strcmp(path, "-") ? path : "standard input",
                                 &call->content, &is_array);
    bson_free(text);
    if (good && !is_array)
        return cli_usage(call->cli, "a workflow must be an array of jobs");
    return good ? CLI_DONE : CLI_USAGE;
}

static int run_flow(struct cli *cli)
{
    struct flow_call call = {.cli = cli, .content = BSON_INITIALIZER};
    int code = flow_read_file(&call);
    size_t most = code ? 0 : bson_count_keys(&call.content);

    if (!code)
        code = cli_store_open(cli, CLI_STORE_WRITE, &cli->store);
    call.entries = bson_malloc0((most + 1) * sizeof *call.entries);
    call.jobs = bson_malloc0((most + 1) * sizeof *call.jobs);
    call.ids = bson_malloc0((most + 1) * sizeof *call.ids);
    if (!code)
        code = read_jobs(&call);
    if (!code)
        code = flow_add(&call);
    for (size_t i = 0; i < most; i++) {
        truce_queue_free(call.jobs[i].queue);
        bson_free((void *)call.entries[i].after);
    }
    bson_free(call.entries);
    bson_free(call.jobs);
    bson_free(call.ids);
    bson_destroy(&call.content);
    return code;
}

const struct cli_command cli_queue_flow = {
    .noun = "queue",
    .verb = "flow",
    .arguments = "FILE",
    .summary = "add a workflow of jobs that wait for each other",
    .help =
        "FILE (- is standard input) has an array of jobs, which one commit adds:\n"
        "  {\"name\": NAME, \"queue\": QUEUE, \"payload\": DOCUMENT, \"after\": [NAME, ...],\n"
        "   \"failure\": \"cancel\"}\n"
        "Further fields are priority, delay, attempts, timeout, keep, keep_cancelled,\n"
        "keep_discarded, keep_dead, lane, width, rate, tags, and metadata. They are the options\n"
        "of truce queue add. A job runs when the jobs in `after` are done. If one of them ends\n"
        "otherwise, `failure` decides: cancel (until that one is retried), go-on, or wait (while\n"
        "that one is dead). A cycle or an unknown name is refused. Prints names and ids.",
    .example = "echo '[{name: \"get\", payload: {url: 1}}, {name: \"sum\", after: [\"get\"]}]' |\n"
               "    truce queue flow - --queue web",
    .options =
        (const struct cli_option[]){{"queue", 0, "QUEUE", "the queue of jobs without one", false},
                                    {0}},
    .store = CLI_STORE_NONE,
    .run = run_flow,
};

/* ---- close, results -------------------------------------------------------------------------- */

static int run_close(struct cli *cli)
{
    return cli_each_job(cli, truce_queue_close, "closed");
}

const struct cli_command cli_queue_close = {
    .noun = "queue",
    .verb = "close",
    .arguments = "ID...",
    .summary = "close a batch so that its last job can run",
    .help =
        "ID is that of a job that was added with --open. It runs after the jobs that were added\n"
        "with --batch ID.",
    .example = "id=$(truce queue add mail '{report: 1}' --open | cut -d' ' -f2)\n"
               "truce queue add mail '{to: \"ada@x.org\"}' --batch $id\n"
               "truce queue close $id",
    .store = CLI_STORE_CHANGE,
    .run = run_close,
};

static int run_results(struct cli *cli)
{
    truce_cursor *cursor = NULL;
    bson_error_t error;
    bson_oid_t id;
    bson_t job;
    truce_status status;
    int code = cli_find_job(cli, cli->arguments[0], &id, &job);

    bson_destroy(&job);
    if (code)
        return code;
    status = truce_queue_results(cli->store, &id, &cursor, &error);
    return cli_print_documents(cli, status, cursor, &error);
}

const struct cli_command cli_queue_results = {
    .noun = "queue",
    .verb = "results",
    .arguments = "ID",
    .summary = "show the results of the jobs that a job waited for",
    .help = "A program of truce work reads them with truce queue results $TRUCE_JOB.",
    .example = "truce queue results $(truce queue add mail '{}' | cut -d' ' -f2)",
    .store = CLI_STORE_CHANGE,
    .run = run_results,
};

/* ---- signal ---------------------------------------------------------------------------------- */

static int run_signal(struct cli *cli)
{
    const char *name = cli->arguments[1];
    bson_t job, event, answer = BSON_INITIALIZER;
    bson_error_t error;
    bson_oid_t id;
    int code = cli_document(cli, cli->count > 2 ? cli->arguments[2] : NULL, "EVENT", &event)
                   ? cli_find_job(cli, cli->arguments[0], &id, &job)
                   : CLI_USAGE;

    if (!code) {
        truce_queue *queue = cli_queue_open(cli, truce__field_text(&job, "queue"));
        truce_status status = truce_queue_signal(queue, NULL, &id, name, &event, &error);

        BSON_APPEND_UTF8(&answer, "signalled", name);
        if (status)
            code = cli_error(cli, NULL, status, &error);
        else
            cli_answer(cli, &answer, "signalled %s", name);
        truce_queue_free(queue);
        bson_destroy(&job);
    }
    bson_destroy(&answer);
    bson_destroy(&event);
    return code;
}

const struct cli_command cli_queue_signal = {
    .noun = "queue",
    .verb = "signal",
    .arguments = "ID NAME [EVENT]",
    .summary = "send an event to a job",
    .help = "The first event of a name counts. EVENT is a document. A job waits by truce_job_wait\n"
            "(truce/queue.h).",
    .example = "id=$(truce queue add orders '{order: 7}' | cut -d' ' -f2)\n"
               "truce queue signal $id paid '{sum: 12}'",
    .store = CLI_STORE_CHANGE,
    .run = run_signal,
};

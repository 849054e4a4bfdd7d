/* truce queue flow, close, results, signal: jobs that wait for others, or to be told. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/field.h"
#include "base/limits.h"
#include "cli/commands.h"
#include "cli/core/ndjson.h"
#include "cli/queue/queue_options.h"

/* ---- the file ------------------------------------------------------------------------------------- */

/* A job of the file, and what its options borrow from. */
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

/* NULL if all of its fields are known, and are what they must be. */
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

/* The names; NULL: one of them is none. */
static const char **flow_read_after(const bson_t *after)
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
                : cli_usage(call->cli, "job \"%s\" of the workflow has a number that cannot be",
                            truce__field_text(job, "name"));
}

static int flow_read_job(struct flow_call *call, size_t i, const bson_t *job)
{
    const char *field = bad_field(job), *queue = truce__field_text(job, "queue");
    struct entry *entry = &call->entries[i];
    bson_t after;
    bool there;

    if (field)
        return cli_usage(call->cli,
                         "job %zu of the workflow: the field \"%s\" is not known, or not "
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
    entry->after = flow_read_after(&after);
    if (!entry->after)
        return cli_usage(call->cli, "job %zu of the workflow: \"after\" is an array of names",
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
            return cli_usage(call->cli, "job %zu of the workflow is no document", call->count + 1);
        bson_iter_document(&iter, &size, &bytes);
        if (bson_init_static(&job, bytes, size))
            code = flow_read_job(call, call->count, &job);
    }
    return code;
}

/* ---- flow ----------------------------------------------------------------------------------------- */

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
        return cli_usage(call->cli, "a workflow is an array of jobs");
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
    .summary = "add a workflow: jobs that wait for each other",
    .help =
        "FILE (- is standard input) has an array of jobs, which are added in one commit:\n"
        "  {\"name\": NAME, \"queue\": QUEUE, \"payload\": DOCUMENT, \"after\": [NAME, ...],\n"
        "   \"failure\": \"cancel\"}\n"
        "and besides priority, delay, attempts, timeout, keep, keep_cancelled, keep_discarded,\n"
        "keep_dead, lane, width, rate, tags, metadata, as the options of truce queue add. A job\n"
        "runs when those in `after` are done; `failure` says what becomes of it if one ends\n"
        "otherwise: cancel (until that one is retried), go-on, wait (while that one is dead). A\n"
        "circle, or a name that is not there, is refused. Prints names and ids.",
    .example = "echo '[{name: \"get\", payload: {url: 1}}, {name: \"sum\", after: [\"get\"]}]' |\n"
               "    truce queue flow - --queue web",
    .options =
        (const struct cli_option[]){{"queue", 0, "QUEUE", "of jobs that name none", false}, {0}},
    .store = CLI_STORE_NONE,
    .run = run_flow,
};

/* ---- close, results --------------------------------------------------------------------------------- */

static int run_close(struct cli *cli)
{
    return cli_each_job(cli, truce_queue_close, "closed");
}

const struct cli_command cli_queue_close = {
    .noun = "queue",
    .verb = "close",
    .arguments = "ID...",
    .summary = "let a batch have no more jobs: its closing job runs after the last of them",
    .help = "ID is that of a job that was added with --open; those of its batch with --batch ID.",
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
    .summary = "print the results of the jobs that a job waited for",
    .help = "A program of truce work finds them with truce queue results $TRUCE_JOB.",
    .example = "truce queue results $(truce queue add mail '{}' | cut -d' ' -f2)",
    .store = CLI_STORE_CHANGE,
    .run = run_results,
};

/* ---- signal ----------------------------------------------------------------------------------------- */

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
    .summary = "tell a job of an event, for which it waits or will wait",
    .help = "The first event of a name counts. EVENT is a document. A job waits by truce_job_wait\n"
            "(truce/queue.h).",
    .example = "id=$(truce queue add orders '{order: 7}' | cut -d' ' -f2)\n"
               "truce queue signal $id paid '{sum: 12}'",
    .store = CLI_STORE_CHANGE,
    .run = run_signal,
};

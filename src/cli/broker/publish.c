/* truce publish: publishes the jobs of a queue, or the changes of a collection, to a broker
 * (src/broker/publisher.c). */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/core/interrupt.h"
#include "cli/core/progress.h"
#include "truce/broker.h"

struct publish {
    struct cli *cli;
    struct cli_progress progress;
    /* Set by SIGTERM and Ctrl-C. The command ends after the current batch. */
    const atomic_int *stop;
};

static bool publish_stop(const truce_publish_counts *counts, void *arg)
{
    struct publish *publish = arg;

    cli_progress(&publish->progress, counts->published, 0);
    return atomic_load(publish->stop);
}

static void publish_note(const char *text, void *arg)
{
    struct publish *publish = arg;

    cli_note(publish->cli, "%s", text);
}

static void publish_print(const struct cli *cli, const truce_publish_counts *counts, double seconds)
{
    bson_t answer = BSON_INITIALIZER;

    bson_append_int64(&answer, "published", -1, counts->published);
    bson_append_int64(&answer, "reconnects", -1, counts->reconnects);
    bson_append_double(&answer, "seconds", -1, seconds);
    cli_answer(cli, &answer, "%" PRId64 " published; %.1f s, %.0f/s", counts->published, seconds,
               seconds > 0 ? (double)counts->published / seconds : 0.0);
    bson_destroy(&answer);
}

static bool publish_read_from(struct cli *cli, truce_publish_options *options)
{
    static const char *const names[] = {NULL, "stored", "oldest", "latest"};
    const char *from = cli_text(cli, "from");

    for (int i = TRUCE_PUBLISH_FROM_STORED; from && i <= TRUCE_PUBLISH_FROM_LATEST; i++)
        if (!strcmp(from, names[i]))
            options->from = (truce_publish_from)i;
    if (!from || options->from)
        return true;
    cli_usage(cli, "invalid --from \"%s\": expected stored, oldest, or latest", from);
    return false;
}

/* Reads queue:QUEUE or changes:COLLECTION, and the options of changes. */
static bool publish_read_source(struct cli *cli, const char *source, truce_publish_options *options)
{
    const char *name = strchr(source, ':');

    if (name && name[1] && !strncmp(source, "queue:", strlen("queue:")))
        options->queue = name + 1;
    else if (name && name[1] && !strncmp(source, "changes:", strlen("changes:")))
        options->changes = name + 1;
    else {
        cli_usage(cli, "invalid source \"%s\": expected queue:QUEUE or changes:COLLECTION", source);
        return false;
    }
    options->publisher = cli_text(cli, "publisher");
    if (!publish_read_from(cli, options) ||
        !cli_duration(cli, "feed-keep", 60000, INT64_C(366) * 86400000, 0, &options->feed_ms))
        return false;
    if (options->changes || !(options->publisher || options->from || options->feed_ms))
        return true;
    cli_usage(cli, "--publisher, --from, and --feed-keep are for changes:COLLECTION");
    return false;
}

static int publish_run(struct cli *cli)
{
    struct publish publish = {.cli = cli};
    truce_publish_options options = {.url = cli_text(cli, "to"),
                                     .key = cli_text(cli, "key"),
                                     .until_empty = cli_flag(cli, "until-empty"),
                                     .stop = publish_stop,
                                     .note = publish_note,
                                     .arg = &publish};
    const char *source = cli->count ? cli->arguments[0] : cli_text(cli, "source");
    truce_publish_counts counts;
    bson_error_t error = {0};
    truce_status status;
    int64_t batch, started_ns;

    if (!cli->count == !cli_text(cli, "source"))
        return cli_usage(cli,
                         "give the source, queue:QUEUE or changes:COLLECTION, as an argument or "
                         "as --source");
    if (!publish_read_source(cli, source, &options))
        return CLI_USAGE;
    if (!options.url)
        return cli_usage(cli, "--to URL is missing: amqp://HOST/EXCHANGE or kafka://HOST/TOPIC");
    if (!cli_number(cli, "batch", 1, 1000, 100, &batch))
        return CLI_USAGE;
    options.batch = (uint32_t)batch;
    publish.stop = cli_interrupt_stop();
    started_ns = truce__clock_monotonic_ns();
    cli_progress_begin(cli, &publish.progress, "published");
    status = truce_publish(cli->store, &options, &counts, &error);
    cli_progress_end(&publish.progress);
    if (!status || counts.published)
        publish_print(cli, &counts, (double)(truce__clock_monotonic_ns() - started_ns) / 1e9);
    return cli_output_end(status ? cli_error(cli, NULL, status, &error) : CLI_DONE);
}

static const struct cli_command cli_publish = {
    .noun = "publish",
    .arguments = "[SOURCE]",
    .summary = "publish the jobs of a queue, or changes, to a broker",
    .help =
        "SOURCE is queue:QUEUE or changes:COLLECTION. URL is\n"
        "amqp://USER:PASSWORD@HOST/EXCHANGE?routing_key=KEY, where amqp://HOST/?routing_key=QUEUE\n"
        "is the default exchange, or kafka://HOST:PORT/TOPIC.\n"
        "\n"
        "A queue is a transactional outbox: a job that a commit adds is published after it, and a\n"
        "job of a commit without effect is never published.\n"
        "The body is the payload as JSON, and the message's id is QUEUE/JOB. The job ends as done\n"
        "after the broker has confirmed the message. If the command is killed in between, the\n"
        "message is published again with the same id. One publisher keeps the order of the\n"
        "queue; several keep that of each lane.\n"
        "\n"
        "Changes are published as CloudEvents 1.0 in JSON: inserts, updates with their\n"
        "differences, replacements, and deletes, in order for each document. The position is\n"
        "stored after the broker has confirmed them. The store must have a feed of changes,\n"
        "which --feed-keep switches on, as truce serve does.\n"
        "\n"
        "If no queue of the broker receives a message, or the exchange or topic does not exist,\n"
        "the command exits; jobs and changes stay in the store. Other failures are retried with\n"
        "growing delays.",
    .options =
        (const struct cli_option[]){
            {"to", 0, "URL", "the broker", false},
            {"source", 0, "SOURCE", "the source, in the file of --config", false},
            {"config", 0, "FILE", "read these options from a file", false},
            {"key", 0, "PATH", "the routing key or record key, for example $payload.customer",
             false},
            {"batch", 0, "N", "messages that are confirmed together, up to 1000 (default: 100)",
             false},
            {"until-empty", 0, NULL, "end when no job is ready, or no change is left", false},
            {"publisher", 0, "NAME", "changes: name of the position (default: the collection)",
             false},
            {"from", 0, "PLACE", "changes: begin at stored, oldest, or latest", false},
            {"feed-keep", 0, "DURATION", "changes: enable the feed, and keep changes for this time",
             false},
            {0}},
    .example = "truce queue add mail '{to: \"ada@example.org\"}' --store school.truce\n"
               "truce publish queue:mail --to 'amqp://localhost/?routing_key=mail' & publisher=$!\n"
               "sleep 1; kill $publisher; wait $publisher",
    .store = CLI_STORE_CHANGE,
    .run = publish_run,
};

cli_command_list cli_publish_commands = {&cli_publish, NULL};

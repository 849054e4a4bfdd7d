/* truce publish: publishes the jobs of a queue to a broker (src/broker/publisher.c). */
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
    /* Set by SIGTERM and Ctrl-C: the current batch ends, then the command. */
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

    cli_remark(publish->cli, "%s; trying again", text);
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

static int publish_run(struct cli *cli)
{
    struct publish publish = {.cli = cli};
    truce_publish_options options = {.url = cli_text(cli, "to"),
                                     .key = cli_text(cli, "key"),
                                     .until_empty = cli_flag(cli, "until-empty"),
                                     .stop = publish_stop,
                                     .note = publish_note,
                                     .arg = &publish};
    const char *source = cli->arguments[0];
    truce_publish_counts counts;
    bson_error_t error = {0};
    truce_status status;
    int64_t batch, started_ns;

    if (strncmp(source, "queue:", strlen("queue:")) != 0 || !source[strlen("queue:")])
        return cli_usage(cli, "invalid source \"%s\": expected queue:QUEUE", source);
    if (!options.url)
        return cli_usage(cli, "--to URL is missing: amqp://HOST/EXCHANGE or kafka://HOST/TOPIC");
    if (!cli_number(cli, "batch", 1, 1000, 100, &batch))
        return CLI_USAGE;
    options.queue = source + strlen("queue:");
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

const struct cli_command cli_publish = {
    .noun = "publish",
    .arguments = "SOURCE",
    .summary = "publish the jobs of a queue to a broker",
    .help =
        "The queue is a transactional outbox: a job that a commit adds is published after it, and\n"
        "a job of a commit without effect is never published. SOURCE is queue:QUEUE. URL is\n"
        "amqp://USER:PASSWORD@HOST/EXCHANGE?routing_key=KEY, where amqp://HOST/?routing_key=QUEUE\n"
        "is the default exchange, or kafka://HOST:PORT/TOPIC.\n"
        "\n"
        "The body is the payload as JSON, and the message's id is QUEUE/JOB. The job ends as done\n"
        "after the broker has confirmed the message. If the command is killed in between, the\n"
        "message is published again with the same id. One publisher keeps the order of the\n"
        "queue; several keep that of each lane.\n"
        "\n"
        "If no queue of the broker receives a message, or the exchange or topic does not exist,\n"
        "the command ends and the jobs stay. Other failures are retried with growing delays.",
    .options =
        (const struct cli_option[]){
            {"to", 0, "URL", "the broker", false},
            {"key", 0, "PATH", "the routing key or record key, for example $payload.customer",
             false},
            {"batch", 0, "N", "jobs that are confirmed together, up to 1000 (default: 100)", false},
            {"until-empty", 0, NULL, "end when no job is ready", false},
            {0}},
    .example = "truce queue add mail '{to: \"ada@example.org\"}' --store school.truce\n"
               "truce publish queue:mail --to 'amqp://localhost/?routing_key=mail' & publisher=$!\n"
               "sleep 1; kill $publisher; wait $publisher",
    .store = CLI_STORE_CHANGE,
    .run = publish_run,
};

#include "cli/broker/consume_options.h"

#include <string.h>

#define CONSUME_DRY_LIMIT 10

static bool consume_options_read_map(const struct cli *cli, struct consume_call *call)
{
    const char *text = cli_text(cli, "map");

    if (!text)
        return true;
    call->options.map = &call->map;
    return cli_document_or_array(cli, text, "--map", &call->map, &call->options.map_is_array);
}

/* Reads the numbers and durations. A dry run has a limit even if none is given. */
static bool consume_options_read_numbers(const struct cli *cli, struct consume_call *call, bool dry)
{
    truce_consume_options *options = &call->options;
    int64_t workers, batch, linger_ms;

    if (!cli_number(cli, "workers", 1, CONSUME_WORKERS_MAX, 1, &workers) ||
        !cli_number(cli, "batch", 1, 5000, 0, &batch) ||
        !cli_duration(cli, "linger", 1, 60000, 0, &linger_ms) ||
        !cli_number(cli, "limit", 1, INT64_MAX, dry ? CONSUME_DRY_LIMIT : 0, &options->limit) ||
        !cli_duration(cli, "inbox-keep", CONSUME_DAY_MS, 36500 * CONSUME_DAY_MS, 0,
                      &options->inbox_ms))
        return false;
    call->workers = (int)workers;
    options->batch = (uint32_t)batch;
    options->linger_ms = (uint32_t)linger_ms;
    return true;
}

bool consume_options_read(struct cli *cli, struct consume_call *call)
{
    truce_consume_options *options = &call->options;
    bool dry = cli_flag(cli, "dry-run");

    memset(call, 0, sizeof *call);
    bson_init(&call->map);
    if (!consume_options_read_map(cli, call) || !consume_options_read_numbers(cli, call, dry))
        return false;
    if (!cli->count == !cli_text(cli, "url")) {
        cli_usage(cli, "give the URL of the broker, as an argument or as --url");
        return false;
    }
    if (!cli_text(cli, "into")) {
        cli_usage(cli, "--into TARGET is missing: set:COLLECTION.LIST, queue:QUEUE, "
                       "upsert:COLLECTION, merge:COLLECTION, post:BOOK, or commit");
        return false;
    }
    if (call->workers > 1 && options->limit) {
        cli_usage(cli, "--limit and --dry-run work with one worker");
        return false;
    }
    options->url = cli->count ? cli->arguments[0] : cli_text(cli, "url");
    options->into = cli_text(cli, "into");
    options->id = cli_text(cli, "id");
    options->consumer = cli_text(cli, "consumer");
    options->until_empty = cli_flag(cli, "until-empty") || dry;
    options->dead_letter = cli_text(cli, "dead-letter");
    options->dry_run = dry;
    options->replay = cli_flag(cli, "replay");
    return true;
}

void consume_options_release(struct consume_call *call)
{
    bson_destroy(&call->map);
}

bool consume_options_divided(const struct consume_call *call)
{
    return !strncmp(call->options.url, "kafka:", strlen("kafka:"));
}

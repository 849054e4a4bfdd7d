/* --slow: prints slow calls to the store to standard error. */
#include <stdlib.h>

#include "cli/core/cli.h"
#include "cli/core/slow_option.h"

static void slow_report(const truce_slow_call *call, void *arg)
{
    bson_t document = BSON_INITIALIZER;
    double ms = (double)call->duration_us / 1000;

    BSON_APPEND_UTF8(&document, "slow", call->verb);
    if (call->collection)
        BSON_APPEND_UTF8(&document, "collection", call->collection);
    BSON_APPEND_DOUBLE(&document, "ms", ms);
    BSON_APPEND_UTF8(&document, "status", truce_status_name(call->status));
    cli_report(arg, &document, "slow: %s%s%s took %.1f ms%s%s", call->verb,
               call->collection ? " of " : "", call->collection ? call->collection : "", ms,
               call->message ? ": " : "", call->message ? call->message : "");
    bson_destroy(&document);
}

int cli_slow_read(struct cli *cli)
{
    const char *set = getenv("TRUCE_SLOW");
    int64_t slow_ms, otherwise = 0;

    if (set && *set && !cli_text(cli, "slow") &&
        (!cli_duration_read(set, &otherwise) || otherwise < 1 || otherwise > UINT32_MAX))
        return cli_usage(cli, "TRUCE_SLOW needs a duration, for example 100ms or 1s, not \"%s\"",
                         set);
    if (!cli_duration(cli, "slow", 1, CLI_WAIT_MAX_MS, otherwise, &slow_ms))
        return CLI_USAGE;
    cli->slow_ms = (uint32_t)slow_ms;
    return CLI_DONE;
}

truce_store_hooks cli_slow_hooks(const struct cli *cli)
{
    return (truce_store_hooks){
        .slow = cli->slow_ms ? slow_report : NULL, .slow_ms = cli->slow_ms, .arg = (void *)cli};
}

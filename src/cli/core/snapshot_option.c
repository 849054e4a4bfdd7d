/* Reads a snapshot of the store, and reports how much of the log it pinned. */
#include "cli/core/snapshot_option.h"

#define MEGABYTE INT64_C(1048576)
/* The log that a snapshot pinned is reported only if it is at least this large. */
#define NOTED_BYTES (64 * MEGABYTE)

int cli_snapshot_take(const struct cli *cli, truce_store *store, truce_store **view)
{
    bool limited = cli_text(cli, "max-age") || cli_text(cli, "max-log");
    truce_snapshot_options options = {.unlimited = !limited};
    int64_t age = 0, log = 0;
    bson_error_t error;
    truce_status status;

    *view = NULL;
    if (!cli_duration(cli, "max-age", 1, 4000000000, 0, &age) ||
        !cli_number(cli, "max-log", 1, INT64_C(1) << 40, 0, &log))
        return CLI_USAGE;
    /* If only one of the two limits is given, the other one does not apply. */
    options.age_ms = limited && !age ? UINT32_MAX : (uint32_t)age;
    options.log_bytes = limited && !log ? UINT64_MAX / 4 : (uint64_t)(log * MEGABYTE);
    status = truce_snapshot(store, &options, view, &error);
    if (status == TRUCE_INVALID)
        return CLI_DONE;
    return status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
}

int64_t cli_snapshot_pinned(truce_store *view)
{
    truce_snapshot_state state = {0};

    if (!view || truce_snapshot_inspect(view, &state, NULL))
        return 0;
    return (int64_t)state.log_bytes;
}

void cli_snapshot_report(const struct cli *cli, int64_t pinned)
{
    if (pinned >= NOTED_BYTES)
        cli_note(cli, "%lld MB were written to the store in the meantime and kept in its log",
                 (long long)(pinned / MEGABYTE));
}

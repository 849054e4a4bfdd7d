/* truce queue top: the figures of all queues, again and again. */
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/field.h"
#include "cli/commands.h"
#include "cli/core/interrupt.h"

#define SLICE_MS 50

static const char *const columns[] = {"ready", "delayed", "waiting", "blocked", "running", "dead"};
#define COLUMNS (sizeof columns / sizeof *columns)

/* "12s", "3m", "5h", "2d" */
static void say_time(int64_t ms, char *text, size_t size)
{
    int64_t s = ms / 1000;

    if (s < 100)
        bson_snprintf(text, size, "%ds", (int)(s < 0 ? 0 : s));
    else if (s < 6000)
        bson_snprintf(text, size, "%dm", (int)(s / 60));
    else if (s < 360000)
        bson_snprintf(text, size, "%dh", (int)(s / 3600));
    else
        bson_snprintf(text, size, "%lldd", (long long)(s / 86400));
}

static bool put_line(const bson_t *one)
{
    char oldest[24];
    bool good;
    bson_iter_t iter;
    bool paused = bson_iter_init_find(&iter, one, "paused") && bson_iter_as_bool(&iter);

    good = cli_put("%-24.24s", truce__field_text(one, "queue"));
    for (size_t i = 0; good && i < COLUMNS; i++)
        good = cli_put("%9lld", (long long)truce__field_number(one, columns[i]));
    say_time(truce__field_number(one, "oldest_ms"), oldest, sizeof oldest);
    return good && cli_put("%8s%s\n", oldest, paused ? "  paused" : "");
}

static bool put_head(void)
{
    bool good = cli_put("%-24s", "queue");

    for (size_t i = 0; good && i < COLUMNS; i++)
        good = cli_put("%9s", columns[i]);
    return good && cli_put("%8s\n", "oldest");
}

static int show_once(struct cli *cli)
{
    bson_t stats;
    bson_error_t error;
    bson_iter_t iter;
    truce_status status = truce_queue_stats(cli->store, &stats, &error);
    bool good = !status && (cli->json || put_head());

    for (bson_iter_init(&iter, &stats); good && bson_iter_next(&iter);) {
        const uint8_t *bytes;
        uint32_t size;
        bson_t one;

        bson_iter_document(&iter, &size, &bytes);
        good = bson_init_static(&one, bytes, size) &&
               (cli->json ? cli_print(&one, JSON_RELAXED) : put_line(&one));
    }
    bson_destroy(&stats);
    return status ? cli_error(cli, NULL, status, &error) : cli_output_end(CLI_DONE);
}

static int run_top(struct cli *cli)
{
    int64_t every_ms;
    bool live = !cli->json && isatty(STDOUT_FILENO) && !cli->rehearsal;
    int code;

    if (!cli_number(cli, "every", 100, 3600000, 1000, &every_ms))
        return CLI_USAGE;
    if (live)
        cli_interrupt_forget(); /* Ctrl-C ends it at once: nothing is written */
    do {
        if (live)
            cli_paint("\033[H\033[2J");
        code = show_once(cli);
        for (int64_t left = every_ms; live && !code && left > 0; left -= SLICE_MS)
            truce__clock_sleep_ms(left < SLICE_MS ? left : SLICE_MS);
    } while (live && !code);
    return code;
}

const struct cli_command cli_queue_top = {
    .noun = "queue",
    .verb = "top",
    .summary = "watch the figures of all queues; Ctrl-C ends it",
    .help =
        "On a terminal they are shown anew every second; else, and with --json, once. oldest: for\n"
        "how long the oldest ready job has been ready.",
    .example = "truce queue add mail '{to: \"ada@x.org\"}'\n"
               "truce queue top --json",
    .options = (const struct cli_option[]){{"every", 0, "MS", "how often (1000)", false}, {0}},
    .store = CLI_STORE_READ,
    .run = run_top,
};

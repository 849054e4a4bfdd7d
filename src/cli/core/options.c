/* Reads the options and documents of a call for its command. */
#include "cli/core/cli.h"
#include "cli/core/operation_row.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "bson/date.h"

const struct cli_option cli_common_options[] = {
    {"store", 's', "URI", "a file, mongodb://..., or memory: (default: TRUCE_STORE)", false},
    {"database", 0, "NAME", "the database of a file, as served by truce serve", false},
    {"json", 'j', NULL, "print results as JSON documents, one per line", false},
    {"pretty", 0, NULL, "print documents over several lines", false},
    {"table", 0, NULL, "print documents as a table", false},
    {"deadline", 0, "DURATION", "fail after this time: 500ms, 90s, 5m", false},
    {"slow", 0, "DURATION", "print calls to the store that take at least this long", false},
    {"quiet", 'q', NULL, "print no progress and no notes", false},
    {"help", 'h', NULL, "show this help", false},
    {0},
};

bool cli_is_common(const struct cli_option *option)
{
    const struct cli_option *at = cli_common_options;

    while (at->name && at != option)
        at++;
    return at == option;
}

static bool option_is_declared(const struct cli *cli, const char *name)
{
    for (const struct cli_option *o = cli_command_options(cli->command); o && o->name; o++) {
        if (!strcmp(o->name, name))
            return true;
    }
    for (const struct cli_option *o = cli_common_options; o->name; o++) {
        if (!strcmp(o->name, name))
            return true;
    }
    return false;
}

/* Returns the index of the i-th occurrence of the option, or of the last one if i is -1. Returns -1
 * if no such occurrence exists. */
static int given_at(const struct cli *cli, const char *name, int i)
{
    int found = -1;

    truce_assert(option_is_declared(cli, name));
    for (int k = 0; k < cli->given_count; k++) {
        if (strcmp(cli->given[k].option->name, name) != 0)
            continue;
        found = k;
        if (i-- == 0)
            return k;
    }
    return i >= -1 ? -1 : found;
}

bool cli_flag(const struct cli *cli, const char *name)
{
    return given_at(cli, name, -1) >= 0;
}

const char *cli_text(const struct cli *cli, const char *name)
{
    int at = given_at(cli, name, -1);

    return at < 0 ? NULL : cli->given[at].value;
}

const char *cli_texts(const struct cli *cli, const char *name, int i)
{
    int at;

    truce_assert(i >= 0);
    at = given_at(cli, name, i);
    return at < 0 ? NULL : cli->given[at].value;
}

static bool options_read_number(const struct cli *cli, const char *text, const char *what,
                                int64_t least, int64_t most, int64_t *number)
{
    char *end;

    errno = 0;
    *number = strtoll(text, &end, 10);
    if (!errno && end != text && !*end && *number >= least && *number <= most)
        return true;
    cli_usage(cli, "%s needs a number from %lld to %lld, not \"%s\"", what, (long long)least,
              (long long)most, text);
    return false;
}

void cli_option_label(const struct cli *cli, const char *name, char *label, size_t size)
{
    int at = given_at(cli, name, -1);

    if (at >= 0 && cli->given[at].line)
        snprintf(label, size, "%s line %d: %s", cli->config_path, cli->given[at].line, name);
    else
        snprintf(label, size, "--%s", name);
}

bool cli_number(const struct cli *cli, const char *name, int64_t least, int64_t most,
                int64_t otherwise, int64_t *number)
{
    const char *text = cli_text(cli, name);
    char what[CLI_LABEL_MAX];

    *number = otherwise;
    cli_option_label(cli, name, what, sizeof what);
    return !text || options_read_number(cli, text, what, least, most, number);
}

bool cli_duration_read(const char *text, int64_t *ms)
{
    static const struct {
        const char *unit;
        int64_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};
    char *unit;
    long long count;

    errno = 0;
    count = strtoll(text, &unit, 10);
    if (errno || unit == text)
        return false;
    *ms = count;
    if (!*unit)
        return !count || count == -1;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (!strcmp(unit, units[i].unit) && count >= 0 && count <= INT64_MAX / units[i].ms) {
            *ms = count * units[i].ms;
            return true;
        }
    return false;
}

const char *cli_duration_show(int64_t ms, char text[CLI_DURATION_MAX])
{
    static const struct {
        const char *unit;
        int64_t ms;
    } units[] = {{"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};
    size_t i = 0;

    while (ms % units[i].ms)
        i++;
    if (ms > 0)
        snprintf(text, CLI_DURATION_MAX, "%lld%s", (long long)(ms / units[i].ms), units[i].unit);
    else
        snprintf(text, CLI_DURATION_MAX, "%lld", (long long)ms);
    return text;
}

bool cli_duration(const struct cli *cli, const char *name, int64_t least_ms, int64_t most_ms,
                  int64_t otherwise_ms, int64_t *ms)
{
    const char *text = cli_text(cli, name);
    char label[CLI_LABEL_MAX], least[CLI_DURATION_MAX], most[CLI_DURATION_MAX];

    *ms = otherwise_ms;
    if (!text || (cli_duration_read(text, ms) && *ms >= least_ms && *ms <= most_ms))
        return true;
    cli_option_label(cli, name, label, sizeof label);
    cli_usage(cli,
              "%s needs a duration from %s to %s, for example 500ms, 90s, 5m, 24h, or 7d, not "
              "\"%s\"",
              label, cli_duration_show(least_ms, least), cli_duration_show(most_ms, most), text);
    return false;
}

bool cli_date(const struct cli *cli, const char *name, int64_t *date_ms)
{
    const char *text = cli_text(cli, name);
    bson_error_t error;

    *date_ms = 0;
    if (!text || !truce__date_parse_typed(text, strlen(text), date_ms, &error))
        return true;
    cli_usage(cli, "--%s: invalid date \"%s\": expected 2024-01-31 or 2024-01-31T12:00:00Z", name,
              text);
    return false;
}

int cli_refuse_database(const struct cli *cli)
{
    if (!cli->database)
        return CLI_DONE;
    return cli_usage(cli, "truce %s works on a whole file: --database cannot select a part of it",
                     cli->command->noun);
}

int cli_refuse_database_of_file(const struct cli *cli)
{
    return cli->uri && cli_store_path(cli->uri) ? cli_refuse_database(cli) : CLI_DONE;
}

bool cli_document_or_array(const struct cli *cli, const char *text, const char *what,
                           bson_t *document, bool *is_array)
{
    struct json_reader reader = {.typed = true};
    bson_error_t error;
    bson_t borrowed;
    bool good = true;

    bson_init(document);
    if (is_array)
        *is_array = false;
    if (!text)
        return true;
    if (truce__json_read(&reader, text, strlen(text), &borrowed, is_array, &error)) {
        cli_usage(cli, "%s is not Extended JSON: %s", what, error.message);
        good = false;
    } else {
        bson_destroy(document);
        bson_copy_to(&borrowed, document);
    }
    truce__json_reader_release(&reader);
    return good;
}

bool cli_document(const struct cli *cli, const char *text, const char *what, bson_t *document)
{
    return cli_document_or_array(cli, text, what, document, NULL);
}

bool cli_option_document(const struct cli *cli, const char *name, bson_t *document, bool *given)
{
    const char *text = cli_text(cli, name);
    char what[64];

    snprintf(what, sizeof what, "--%s", name);
    *given = text != NULL;
    return cli_document(cli, text, what, document);
}

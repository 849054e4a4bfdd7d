#include "cli/broker/consume_metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

/* Writes the value of a label. Escapes backslashes, quotes, and newlines. */
static void consume_metrics_put_label(FILE *file, const char *text)
{
    for (; *text; text++) {
        if (*text == '\\' || *text == '"')
            fputc('\\', file);
        if (*text == '\n')
            fputs("\\n", file);
        else
            fputc(*text, file);
    }
}

static void consume_metrics_put(FILE *file, const char *name, const char *type, const char *help,
                                const char *into, int64_t value)
{
    fprintf(file,
            "# HELP truce_consume_%s %s\n# TYPE truce_consume_%s %s\ntruce_consume_%s{into=\"",
            name, help, name, type, name);
    consume_metrics_put_label(file, into);
    fprintf(file, "\"} %" PRId64 "\n", value);
}

/* Writes all metrics in Prometheus's text format. The last one is the time of the values, by which
 * an alert can detect a consumer that has stopped. */
static void consume_metrics_put_all(FILE *file, const char *into,
                                    const truce_consume_counts *counts)
{
    const struct {
        const char *name, *help;
        int64_t value;
    } counters[] = {
        {"messages_total", "Messages that were received.", counts->received},
        {"redelivered_total", "Messages that the broker sent again.", counts->redelivered},
        {"applied_total", "Messages that took effect.", counts->applied},
        {"duplicate_total", "Messages that had taken effect before.", counts->duplicate},
        {"stale_total", "Operations of sets that were too old for an effect.", counts->stale},
        {"rejected_total", "Messages in truce_rejects.", counts->rejected},
        {"quarantined_total", "Operations in truce_quarantine.", counts->quarantined},
        {"batches_total", "Commits.", counts->batches},
        {"reconnects_total", "Connections that failed.", counts->reconnects},
    };

    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        consume_metrics_put(file, counters[i].name, "counter", counters[i].help, into,
                            counters[i].value);
    if (counts->waiting >= 0)
        consume_metrics_put(file, "waiting", "gauge", "Messages that wait in the broker: the lag.",
                            into, counts->waiting);
    consume_metrics_put(file, "updated_timestamp_seconds", "gauge",
                        "Time of these values, since 1970.", into, truce__clock_wall_ms() / 1000);
}

truce_status consume_metrics_write(const char *path, const char *into,
                                   const truce_consume_counts *counts, bson_error_t *error)
{
    char *next = bson_strdup_printf("%s.%ld.tmp", path, (long)getpid());
    FILE *file = fopen(next, "we");
    bool good = file != NULL;
    truce_status status = TRUCE_OK;

    if (file) {
        consume_metrics_put_all(file, into, counts);
        good = !ferror(file);
        good = !fclose(file) && good && !rename(next, path);
    }
    if (!good) {
        status = truce__fail(TRUCE_IO, error, "cannot write the metrics to \"%.300s\": %s", path,
                             strerror(errno));
        if (file)
            (void)unlink(next);
    }
    bson_free(next);
    return status;
}

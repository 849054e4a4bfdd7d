#include "server/admin/metrics_consumers.h"

#include <inttypes.h>

#include "base/field.h"
#include "bson/value.h"
#include "server/admin/metrics_text.h"
#include "store/decorators/database_view.h"
#include "truce/broker.h"

static const struct consumer_metric {
    const char *name, *type, *help;
    /* The field of truce_consumers with the value. NULL means the number of workers. */
    const char *field;
} consumer_metrics[] = {
    {"truce_consume_messages_total", "counter", "Messages that were received.", "received"},
    {"truce_consume_redelivered_total", "counter", "Messages that the broker sent again.",
     "redelivered"},
    {"truce_consume_applied_total", "counter", "Messages that took effect.", "applied"},
    {"truce_consume_duplicate_total", "counter", "Messages that had taken effect before.",
     "duplicate"},
    {"truce_consume_stale_total", "counter", "Operations of sets that were too old for an effect.",
     "stale"},
    {"truce_consume_rejected_total", "counter", "Messages in truce_rejects.", "rejected"},
    {"truce_consume_quarantined_total", "counter", "Operations in truce_quarantine.",
     "quarantined"},
    {"truce_consume_reconnects_total", "counter", "Connections that failed.", "reconnects"},
    {"truce_consume_waiting", "gauge", "Messages that wait in the broker: the lag.", "waiting"},
    {"truce_consume_workers", "gauge", "Running workers.", NULL},
};
#define CONSUMER_METRICS (sizeof consumer_metrics / sizeof *consumer_metrics)

struct consumer_figures {
    /* Names from clients, escaped for a label. */
    char database[METRICS_LABEL_BYTES], consumer[METRICS_LABEL_BYTES], into[METRICS_LABEL_BYTES];
    /* A value of -1 is unknown. */
    int64_t values[CONSUMER_METRICS];
};

struct consumer_list {
    struct consumer_figures all[METRICS_CONSUMERS_MAX];
    size_t count;
};

static int64_t consumer_figure(const bson_t *one, const char *field)
{
    bson_iter_t at;
    bson_t workers;

    if (!bson_iter_init_find(&at, one, field ? field : "workers"))
        return -1;
    if (field)
        return bson_iter_as_int64(&at);
    truce__value_bson(truce__value_of_iter(&at), &workers);
    return bson_count_keys(&workers);
}

/* Reads the consumers of a database (a database_function). */
static truce_status consumer_read(void *arg, truce_store *view, const char *database,
                                  bson_error_t *error)
{
    struct consumer_list *list = arg;
    bson_t consumers, one;
    bson_iter_t at;
    truce_status status = truce_consumers(view, &consumers, error);

    if (!status && bson_iter_init(&at, &consumers))
        while (list->count < METRICS_CONSUMERS_MAX && bson_iter_next(&at)) {
            struct consumer_figures *figures = &list->all[list->count++];

            truce__value_bson(truce__value_of_iter(&at), &one);
            metrics_label(database, figures->database);
            metrics_label(truce__field_text(&one, "consumer"), figures->consumer);
            metrics_label(truce__field_text(&one, "into"), figures->into);
            for (size_t i = 0; i < CONSUMER_METRICS; i++)
                figures->values[i] = consumer_figure(&one, consumer_metrics[i].field);
        }
    bson_destroy(&consumers);
    return status;
}

void metrics_put_consumers(truce_store *store, struct buffer *out)
{
    struct consumer_list *list = bson_malloc0(sizeof *list);
    /* If the store fails, the scrape still succeeds, without these lines. */
    bson_error_t ignored;

    if (truce__each_database(store, consumer_read, list, &ignored))
        list->count = 0;
    for (size_t i = 0; list->count && i < CONSUMER_METRICS; i++) {
        const struct consumer_metric *metric = &consumer_metrics[i];

        metrics_put_head(out, metric->name, metric->type, metric->help);
        for (size_t k = 0; k < list->count; k++)
            if (list->all[k].values[i] >= 0)
                metrics_put(out, "%s{database=\"%s\",consumer=\"%s\",into=\"%s\"} %" PRId64 "\n",
                            metric->name, list->all[k].database, list->all[k].consumer,
                            list->all[k].into, list->all[k].values[i]);
    }
    bson_free(list);
}

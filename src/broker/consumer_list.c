#include "broker/consumer_list.h"

#include <string.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/null.h"
#include "base/status.h"
#include "bson/value.h"
#include "store/reserved_names.h"
#include "truce/commit.h"

#define CONSUMERS_KEEP_MS     (INT64_C(30) * 86400000)
#define CONSUMERS_MAX         1000
#define CONSUMERS_WORKERS_MAX 256
#define CONSUMERS_COUNTS      8
#define CONSUMERS_DEADLINE_MS 2000

static const struct consumers_count {
    const char *name;
    size_t offset;
} consumers_counts[CONSUMERS_COUNTS] = {
    {"received", offsetof(truce_consume_counts, received)},
    {"redelivered", offsetof(truce_consume_counts, redelivered)},
    {"applied", offsetof(truce_consume_counts, applied)},
    {"duplicate", offsetof(truce_consume_counts, duplicate)},
    {"stale", offsetof(truce_consume_counts, stale)},
    {"rejected", offsetof(truce_consume_counts, rejected)},
    {"quarantined", offsetof(truce_consume_counts, quarantined)},
    {"reconnects", offsetof(truce_consume_counts, reconnects)},
};

static int64_t consumers_count_of(const truce_consume_counts *counts, size_t i)
{
    return *(const int64_t *)((const char *)counts + consumers_counts[i].offset);
}

/* Finds the workers of a document. Returns false if it has none. */
static bool consumers_workers(const bson_t *document, bson_iter_t *workers)
{
    bson_iter_t at;

    return bson_iter_init_find(&at, document, "workers") && BSON_ITER_HOLDS_ARRAY(&at) &&
           bson_iter_recurse(&at, workers);
}

/* Reads the next worker that is alive at `now_ms`. */
static bool consumers_next_worker(bson_iter_t *workers, int64_t now_ms, bson_t *worker)
{
    while (bson_iter_next(workers)) {
        if (!BSON_ITER_HOLDS_DOCUMENT(workers))
            continue;
        truce__value_bson(truce__value_of_iter(workers), worker);
        if (truce__field_date(worker, "updated") > now_ms - CONSUMERS_LIVE_MS)
            return true;
    }
    return false;
}

/* ---- reports --------------------------------------------------------------------------------- */

static void consumers_append_worker(bson_t *list, uint32_t *count,
                                    const struct consumers_report *report, int64_t now_ms)
{
    bson_t worker = BSON_INITIALIZER;

    BSON_APPEND_UTF8(&worker, "worker", report->worker);
    BSON_APPEND_DATE_TIME(&worker, "started", report->started_ms);
    BSON_APPEND_DATE_TIME(&worker, "updated", now_ms);
    BSON_APPEND_DOUBLE(&worker, "rate", report->rate);
    if (report->now.waiting >= 0)
        BSON_APPEND_INT64(&worker, "waiting", report->now.waiting);
    truce__value_append_element(list, count, truce__value_document(&worker));
    bson_destroy(&worker);
}

/* Appends the workers: this one, and the others of the stored document that are alive. */
static void consumers_append_workers(bson_t *document, const bson_t *found,
                                     const struct consumers_report *report, int64_t now_ms)
{
    bson_t list, worker;
    bson_iter_t workers;
    uint32_t count = 0;

    BSON_APPEND_ARRAY_BEGIN(document, "workers", &list);
    if (!report->ends)
        consumers_append_worker(&list, &count, report, now_ms);
    if (consumers_workers(found, &workers))
        while (count < CONSUMERS_WORKERS_MAX && consumers_next_worker(&workers, now_ms, &worker))
            if (strcmp(truce__field_text(&worker, "worker"), report->worker) != 0)
                truce__value_append_element(&list, &count, truce__value_document(&worker));
    bson_append_array_end(document, &list);
}

/* Makes the new document from the stored one, which is empty if none exists, and a report: adds the
 * differences of the counts, and replaces the entry of this worker. */
static void consumers_make(const bson_t *found, const struct consumers_report *report,
                           bson_t *document)
{
    int64_t now_ms = truce__clock_wall_ms();
    int64_t last_ms = truce__field_date(found, "lastMessage");

    if (report->last_message_ms > last_ms)
        last_ms = report->last_message_ms;
    bson_init(document);
    BSON_APPEND_UTF8(document, "_id", report->consumer);
    BSON_APPEND_UTF8(document, "source", report->source);
    BSON_APPEND_UTF8(document, "into", report->into);
    for (size_t i = 0; i < CONSUMERS_COUNTS; i++)
        bson_append_int64(document, consumers_counts[i].name, -1,
                          truce__field_count(found, consumers_counts[i].name) +
                              consumers_count_of(&report->now, i) -
                              consumers_count_of(&report->before, i));
    if (last_ms)
        BSON_APPEND_DATE_TIME(document, "lastMessage", last_ms);
    BSON_APPEND_DATE_TIME(document, "updated", now_ms);
    consumers_append_workers(document, found, report, now_ms);
}

/* Writes the record of a consumer in a commit (a truce_commit_function). */
static truce_status consumers_add(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct consumers_report *report = arg;
    bson_value_t id = {.value_type = BSON_TYPE_UTF8};
    bson_t found, document;
    truce_status status;

    id.value.v_utf8.str = (char *)report->consumer;
    id.value.v_utf8.len = (uint32_t)strlen(report->consumer);
    status = truce_commit_read(commit, BROKER_CONSUMERS, &id, &found, error);
    if (!status || status == TRUCE_NOT_FOUND) {
        consumers_make(&found, report, &document);
        status = status
                     ? truce_commit_insert(commit, BROKER_CONSUMERS, &document, error)
                     : truce_commit_replace(commit, BROKER_CONSUMERS, &id, NULL, &document, error);
        bson_destroy(&document);
    }
    bson_destroy(&found);
    return status;
}

truce_status truce__consumers_report(truce_store *store, const struct consumers_report *report,
                                     bson_error_t *error)
{
    const truce_commit_options options = {.deadline_ms = CONSUMERS_DEADLINE_MS, .relaxed = true};
    struct consumers_report copy = *report;

    return truce_transact(store, consumers_add, &copy, &options, error);
}

truce_status truce__consumers_forget(truce_store *store, bson_error_t *error)
{
    const truce_write_options options = {.multi = true};
    bson_t *filter =
        BCON_NEW("updated", "{", "$lt", BCON_DATE_TIME(truce__clock_wall_ms() - CONSUMERS_KEEP_MS),
                 "}", "_intent", BCON_NULL);
    truce_status status = truce_remove(store, BROKER_CONSUMERS, filter, &options, NULL, error);

    bson_destroy(filter);
    return status;
}

/* ---- the list -------------------------------------------------------------------------------- */

/* Appends `workers` with their sums. The workers of Kafka have different partitions; those of
 * RabbitMQ share one queue. */
static void consumers_append_live(bson_t *one, const bson_t *found, int64_t now_ms)
{
    bool divided = !strncmp(truce__field_text(found, "source"), "kafka", 5);
    int64_t waiting = -1;
    double rate = 0;
    bson_t list, worker;
    bson_iter_t workers, at;
    uint32_t count = 0;

    BSON_APPEND_ARRAY_BEGIN(one, "workers", &list);
    if (consumers_workers(found, &workers))
        while (consumers_next_worker(&workers, now_ms, &worker)) {
            truce__value_append_element(&list, &count, truce__value_document(&worker));
            if (bson_iter_init_find(&at, &worker, "rate"))
                rate += bson_iter_as_double(&at);
            if (bson_iter_init_find(&at, &worker, "waiting")) {
                int64_t own = bson_iter_as_int64(&at);

                if (divided && waiting >= 0)
                    waiting += own;
                else if (own > waiting)
                    waiting = own;
            }
        }
    bson_append_array_end(one, &list);
    BSON_APPEND_DOUBLE(one, "rate", rate);
    if (waiting >= 0)
        BSON_APPEND_INT64(one, "waiting", waiting);
}

static void consumers_append(bson_t *list, uint32_t *count, const bson_t *found, int64_t now_ms)
{
    bson_t one = BSON_INITIALIZER;
    bson_iter_t at;

    BSON_APPEND_UTF8(&one, "consumer", truce__field_text(found, "_id"));
    BSON_APPEND_UTF8(&one, "source", truce__field_text(found, "source"));
    BSON_APPEND_UTF8(&one, "into", truce__field_text(found, "into"));
    for (size_t i = 0; i < CONSUMERS_COUNTS; i++)
        bson_append_int64(&one, consumers_counts[i].name, -1,
                          truce__field_count(found, consumers_counts[i].name));
    if (bson_iter_init_find(&at, found, "lastMessage"))
        BSON_APPEND_DATE_TIME(&one, "lastMessage", truce__field_date(found, "lastMessage"));
    BSON_APPEND_DATE_TIME(&one, "updated", truce__field_date(found, "updated"));
    consumers_append_live(&one, found, now_ms);
    truce__value_append_element(list, count, truce__value_document(&one));
    bson_destroy(&one);
}

truce_status truce_consumers(truce_store *store, bson_t *consumers, bson_error_t *error)
{
    RETURN_IF_NULL(consumers, error);

    bson_t *sort;
    truce_find_options options = {.limit = CONSUMERS_MAX};
    truce_cursor *cursor = NULL;
    const bson_t *found = NULL;
    int64_t now_ms = truce__clock_wall_ms();
    uint32_t count = 0;
    truce_status status;

    bson_init(consumers);
    RETURN_IF_NULL(store, error);
    sort = BCON_NEW("_id", BCON_INT32(1));
    options.sort = sort;
    status = truce_find(store, BROKER_CONSUMERS, NULL, &options, &cursor, error);
    while (!status && !(status = truce_cursor_next(cursor, &found, error)) && found)
        consumers_append(consumers, &count, found, now_ms);
    truce_cursor_close(cursor);
    bson_destroy(sort);
    return status;
}

/*
 * The publisher: jobs of a queue become messages of a broker (a transactional outbox), or the
 * changes of a collection do.
 *
 *     store ---- claim ----> batch ---- publish ----> broker
 *     store <--- done ------ batch <--- confirm ----- broker
 *
 * Invariants for jobs (BF1 to BF4, for changes, are in feed_events.h):
 *  BP1  A job ends as done only after the broker has confirmed its message. A job whose publisher
 *       died is claimed again when its lease has expired.
 *  BP2  The id of a message depends on its job only, so a repetition has the same id.
 *  BP3  After a failure, the jobs of the batch are released, and the connection is closed.
 */
#include "broker/publisher.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/field.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/reserved_fields.h"
#include "base/status.h"
#include "broker/feed_events.h"
#include "broker/message_template.h"
#include "broker/reconnect.h"
#include "bson/json.h"
#include "truce/queue.h"

#define PUBLISHER_BATCH      100
#define PUBLISHER_CONFIRM_MS 10000
#define PUBLISHER_KEY_BYTES  255 /* A routing key is a short string of AMQP. */

struct publisher {
    truce_store *store;
    /* The engine that has the feed; NULL means that of the store. */
    struct engine *engine;
    const truce_publish_options *options;
    const struct broker_ops *ops;
    struct broker_address address;
    /* The connection, or NULL if it is not open. */
    void *broker;
    /* The source: a queue, or changes. The other one is NULL, and `changes` is NULL until the feed
     * was opened. */
    truce_queue *queue;
    struct feed_events *changes;
    struct template *key;
    struct arena arena;
    truce_job **jobs;
    size_t count, batch;
    truce_publish_counts counts;
};

/* ---- jobs ------------------------------------------------------------------------------------ */

static void publisher_free_jobs(struct publisher *publisher)
{
    for (size_t i = 0; i < publisher->count; i++)
        truce_job_free(publisher->jobs[i]);
    publisher->count = 0;
}

/* Claims a batch. If no job is ready, waits up to BROKER_WAIT_MS for one, unless `until_empty` is
 * set. The batch may stay empty. */
static truce_status publisher_claim(struct publisher *publisher, bson_error_t *error)
{
    truce_status status = truce_queue_claim_many(publisher->queue, publisher->batch,
                                                 publisher->jobs, &publisher->count, error);

    if (status == TRUCE_NOT_FOUND && !publisher->options->until_empty) {
        status = truce_queue_claim_wait(publisher->queue, BROKER_WAIT_MS, publisher->jobs, error);
        publisher->count = !status;
    }
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Releases the jobs of the batch (BP3). If that fails, other publishers claim them when their
 * leases have expired. */
static void publisher_release_jobs(struct publisher *publisher)
{
    for (size_t i = 0; i < publisher->count; i++) {
        truce_status status = truce_job_snooze(publisher->jobs[i], NULL, 0, NULL);

        (void)status;
    }
    publisher_free_jobs(publisher);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Finds the key of a message in the document of its job or event. Sets *key to NULL if the key is
 * that of the URL. *key borrows from `made`, which the caller destroys in any case. */
static truce_status publisher_find_key(struct publisher *publisher, const bson_t *document,
                                       bson_t *made, const char **key, bson_error_t *error)
{
    truce_status status;

    *key = NULL;
    if (!publisher->key) {
        bson_init(made);
        return TRUCE_OK;
    }
    status = truce__template_apply(publisher->key, document, &publisher->arena, made, error);
    truce__arena_reset(&publisher->arena);
    if (status)
        return status;
    *key = truce__field_text(made, "key");
    if (!**key || strlen(*key) > PUBLISHER_KEY_BYTES)
        return truce__fail(TRUCE_INVALID, error,
                           "the key %s of a message is not a string of 1 to %d bytes",
                           publisher->options->key, PUBLISHER_KEY_BYTES);
    return TRUCE_OK;
}

/* Sends a message with the body; `document` is that of its job or event, which --key sees. */
static truce_status publisher_send(struct publisher *publisher, const bson_t *document,
                                   const bson_t *body, struct broker_post *post,
                                   bson_error_t *error)
{
    struct buffer text = {0};
    bson_t made;
    truce_status status = publisher_find_key(publisher, document, &made, &post->key, error);

    if (!status) {
        truce__json_write(&text, body, false, JSON_RELAXED);
        post->body = text.bytes;
        post->size = text.size;
        status = publisher->ops->publish(publisher->broker, post, error);
    }
    truce__buffer_release(&text);
    bson_destroy(&made);
    return status;
}

static truce_status publisher_confirm(struct publisher *publisher, bson_error_t *error)
{
    return publisher->ops->confirm(publisher->broker, PUBLISHER_CONFIRM_MS, error);
}

static truce_status publisher_send_job(struct publisher *publisher, truce_job *job,
                                       bson_error_t *error)
{
    struct broker_post post = {.content_type = "application/json"};
    truce_status status;
    char hex[25];
    char *id;

    bson_oid_to_string(truce_job_id(job), hex);
    /* Invariant BP2: a repetition has the same id. */
    id = bson_strdup_printf("%s/%s", publisher->options->queue, hex);
    post.id = id;
    status =
        publisher_send(publisher, truce_job_document(job), truce_job_payload(job), &post, error);
    bson_free(id);
    return status;
}

static truce_status publisher_send_jobs(struct publisher *publisher, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < publisher->count && !status; i++)
        status = publisher_send_job(publisher, publisher->jobs[i], error);
    return status ? status : publisher_confirm(publisher, error);
}

/* ---- changes --------------------------------------------------------------------------------- */

/* Returns whether the event must wait for the confirms of earlier events, from number `first`
 * on. */
static bool publisher_must_wait(const struct publisher *publisher, size_t first, size_t i)
{
    const char *key = truce__feed_events_event(publisher->changes, i)->key;

    for (size_t k = first; k < i; k++) {
        const char *other = truce__feed_events_event(publisher->changes, k)->key;

        /* Invariant BF3 of feed_events.h: events of one key are in order. A change of the whole
         * collection has no key and is in order with all events. */
        if (!key || !other || !strcmp(key, other))
            return true;
    }
    return false;
}

/* Publishes the events of the batch in order. Waits for confirms before an event whose key has an
 * unconfirmed event (BF3). */
static truce_status publisher_send_events(struct publisher *publisher, bson_error_t *error)
{
    size_t count = truce__feed_events_count(publisher->changes), first = 0;
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < count && !status; i++) {
        const struct feed_event *event = truce__feed_events_event(publisher->changes, i);
        struct broker_post post = {.content_type = "application/cloudevents+json; charset=UTF-8",
                                   .id = event->id,
                                   .order_key = event->key};

        if (publisher_must_wait(publisher, first, i)) {
            status = publisher_confirm(publisher, error);
            first = i;
        }
        if (!status)
            status = publisher_send(publisher, &event->document, &event->document, &post, error);
    }
    return status ? status : publisher_confirm(publisher, error);
}

/* Publishes a batch of changes. Sets *empty if none are left and `until_empty` is set. */
static truce_status publisher_publish_changes(struct publisher *publisher, bool *empty,
                                              bson_error_t *error)
{
    truce_status status = truce__feed_events_fill(publisher->changes, publisher->batch, error);
    size_t count = status ? 0 : truce__feed_events_count(publisher->changes);

    *empty = !status && !count && publisher->options->until_empty;
    if (!status && count)
        status = publisher_send_events(publisher, error);
    if (!status)
        status = truce__feed_events_done(publisher->changes, *empty, error);
    if (status)
        truce__feed_events_drop(publisher->changes);
    else if (!count && !*empty)
        truce__feed_events_wait(publisher->changes, BROKER_WAIT_MS);
    publisher->counts.published += status ? 0 : (int64_t)count;
    return status;
}

/* ---- the loop -------------------------------------------------------------------------------- */

static bool publisher_stops(void *arg)
{
    const struct publisher *publisher = arg;

    return publisher->options->stop &&
           publisher->options->stop(&publisher->counts, publisher->options->arg);
}

static truce_status publisher_connect(struct publisher *publisher, bson_error_t *error)
{
    const truce_publish_options *options = publisher->options;
    const struct broker_open_options open_options = {.publishes = true,
                                                     .consumer = options->queue ? options->queue
                                                                                : options->changes,
                                                     .stop = publisher_stops,
                                                     .arg = publisher};
    truce_status status = TRUCE_OK;

    if (options->changes && !publisher->changes)
        status = truce__feed_events_new(publisher->store, publisher->engine, options,
                                        &publisher->address, &publisher->changes, error);
    if (!status)
        status =
            publisher->ops->open(&publisher->address, &open_options, &publisher->broker, error);
    if (status)
        publisher->broker = NULL;
    return status;
}

static void publisher_disconnect(struct publisher *publisher)
{
    if (publisher->broker)
        publisher->ops->close(publisher->broker);
    publisher->broker = NULL;
}

/* Ends the jobs of the batch as done, in one write. */
static truce_status publisher_end_jobs(struct publisher *publisher, bson_error_t *error)
{
    truce_status statuses[JOB_CLAIMS_MAX], status;

    status = truce_queue_done_many(publisher->queue, publisher->jobs, publisher->count, NULL,
                                   statuses, error);
    if (status == TRUCE_INVALID)
        return status;
    status = TRUCE_OK;
    for (size_t i = 0; i < publisher->count; i++) {
        /* Another publisher has claimed the job and sends its message again. */
        if (statuses[i] == TRUCE_EXPIRED)
            statuses[i] = TRUCE_OK;
        publisher->counts.published += !statuses[i];
        if (!status)
            status = statuses[i];
    }
    return status;
}

/* Publishes a batch of jobs. Sets *empty if no job is ready and `until_empty` is set. */
static truce_status publisher_publish_jobs(struct publisher *publisher, bool *empty,
                                           bson_error_t *error)
{
    truce_status status = publisher_claim(publisher, error);

    *empty = !status && !publisher->count && publisher->options->until_empty;
    if (status || !publisher->count)
        return status;
    status = publisher_send_jobs(publisher, error);
    /* Invariant BP1: the broker has confirmed the messages. */
    if (!status)
        status = publisher_end_jobs(publisher, error);
    if (status)
        publisher_release_jobs(publisher);
    publisher_free_jobs(publisher);
    return status;
}

static void publisher_note_retry(const struct publisher *publisher, const char *reason)
{
    char text[800];

    if (!publisher->options->note)
        return;
    snprintf(text, sizeof text, "%s; retrying", reason);
    publisher->options->note(text, publisher->options->arg);
}

/* Publishes batches until `stop`, or until nothing is left with `until_empty`. After a failure that
 * a new connection may repair, connects again after growing delays; returns any other failure. */
static truce_status publisher_run(struct publisher *publisher, bson_error_t *error)
{
    uint32_t retry = 0;
    bool empty = false;

    while (!empty && !publisher_stops(publisher)) {
        bson_error_t why = {0};
        truce_status status = publisher->broker ? TRUCE_OK : publisher_connect(publisher, &why);

        if (!status)
            status = publisher->changes ? publisher_publish_changes(publisher, &empty, &why)
                                        : publisher_publish_jobs(publisher, &empty, &why);
        if (!status) {
            retry = 0;
            continue;
        }
        publisher_disconnect(publisher);
        if (!truce__broker_may_retry(status)) {
            if (error)
                *error = why;
            return status;
        }
        publisher_note_retry(publisher, why.message);
        publisher->counts.reconnects++;
        truce__broker_back_off(retry++, publisher_stops, publisher);
    }
    return TRUCE_OK;
}

/* ---- the call -------------------------------------------------------------------------------- */

/* Checks the options without connecting. */
static truce_status publisher_check(const truce_publish_options *options, bson_error_t *error)
{
    truce_status status = ROOM_CHECK(options, "truce_publish_options", error);

    if (status)
        return status;
    if (!options->url || !options->queue == !options->changes)
        return truce__fail(TRUCE_INVALID, error,
                           "truce_publish_options needs `url`, and `queue` or `changes`");
    if (options->queue && (options->publisher || options->from || options->feed_ms))
        return truce__fail(
            TRUCE_INVALID, error,
            "`publisher`, `from`, and `feed_ms` are for changes, but the source is queue \"%s\"",
            options->queue);
    if (options->from < TRUCE_PUBLISH_FROM_DEFAULT || options->from > TRUCE_PUBLISH_FROM_LATEST ||
        options->feed_ms < 0)
        return truce__fail(TRUCE_INVALID, error,
                           "invalid `from` %d or `feed_ms` %" PRId64
                           ": expected a truce_publish_from, and 0 ms or more",
                           (int)options->from, (int64_t)options->feed_ms);
    if (options->publisher && (!*options->publisher || strlen(options->publisher) > 100))
        return truce__fail(TRUCE_INVALID, error,
                           "invalid publisher \"%.40s\": expected 1 to 100 bytes",
                           options->publisher);
    if (options->batch > JOB_CLAIMS_MAX)
        return truce__fail(TRUCE_INVALID, error, "invalid batch %u: expected 1 to %d messages",
                           options->batch, JOB_CLAIMS_MAX);
    if (options->key && options->key[0] != '$')
        return truce__fail(TRUCE_INVALID, error,
                           "invalid key \"%.80s\": expected a path such as $payload.customer, or "
                           "$type for changes",
                           options->key);
    return TRUCE_OK;
}

static truce_status publisher_compile_key(struct publisher *publisher, bson_error_t *error)
{
    bson_t source = BSON_INITIALIZER;
    truce_status status;

    if (!publisher->options->key)
        return TRUCE_OK;
    BSON_APPEND_UTF8(&source, "key", publisher->options->key);
    status = truce__template_new(&source, false, NULL, &publisher->key, error);
    bson_destroy(&source);
    return status;
}

truce_status truce__publish(truce_store *store, struct engine *engine,
                            const truce_publish_options *options, const struct broker_ops *ops,
                            truce_publish_counts *counts, bson_error_t *error)
{
    struct publisher publisher = {.store = store, .engine = engine, .options = options, .ops = ops};
    truce_status status = publisher_check(options, error);
    bson_t query;
    char *url;

    if (status)
        return status;
    url = bson_strdup(options->url);
    publisher.batch = options->batch ? options->batch : PUBLISHER_BATCH;
    publisher.jobs = bson_malloc0(publisher.batch * sizeof *publisher.jobs);
    if (options->queue)
        publisher.queue = truce_queue_new(store, &(truce_queue_options){.queue = options->queue});
    status = truce__broker_address_read(url, &query, &publisher.address, error);
    if (!status && !ops)
        status = truce__broker_find(publisher.address.scheme, &publisher.ops, error);
    if (!status)
        status = publisher_compile_key(&publisher, error);
    if (!status)
        status = publisher_run(&publisher, error);
    if (counts)
        *counts = publisher.counts;
    publisher_disconnect(&publisher);
    truce__template_free(publisher.key);
    truce__arena_release(&publisher.arena);
    truce__feed_events_free(publisher.changes);
    truce_queue_free(publisher.queue);
    bson_free(publisher.jobs);
    bson_destroy(&query);
    bson_free(url);
    return status;
}

truce_status truce_publish(truce_store *store, const truce_publish_options *options,
                           truce_publish_counts *counts, bson_error_t *error)
{
    if (counts)
        memset(counts, 0, sizeof *counts);
    RETURN_IF_NULL(store, error);
    RETURN_IF_NULL(options, error);
    return truce__publish(store, NULL, options, NULL, counts, error);
}

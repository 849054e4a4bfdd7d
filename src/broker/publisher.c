/*
 * The publisher: jobs of a queue become messages of a broker (a transactional outbox).
 *
 *     store ---- claim ----> batch ---- publish ----> broker
 *     store <--- done ------ batch <--- confirm ----- broker
 *
 * Invariants:
 *   P1  A job ends as done only after the broker has confirmed its message. A job whose publisher
 *       died is claimed again when its lease is over.
 *   P2  The id of a message depends on its job only, so a repetition has the same id.
 *   P3  After a failure, the jobs of the batch are released, and the connection is closed.
 */
#include "broker/publisher.h"

#include <stdio.h>
#include <string.h>

#include "base/field.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/reserved_fields.h"
#include "base/status.h"
#include "broker/retry.h"
#include "broker/template.h"
#include "bson/json.h"
#include "truce/queue.h"

#define PUBLISHER_BATCH      100
#define PUBLISHER_CONFIRM_MS 10000
#define PUBLISHER_KEY_BYTES  255 /* a short string of AMQP */

struct publisher {
    const truce_publish_options *options;
    const struct broker_ops *ops;
    struct broker_address address;
    /* The connection; NULL: not open. */
    void *broker;
    truce_queue *queue;
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

/* Claims a batch; none if no job is ready in BROKER_WAIT_MS. */
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

/* Releases the jobs of the batch (invariant P3). If that fails, their leases end. */
static void publisher_release_jobs(struct publisher *publisher)
{
    for (size_t i = 0; i < publisher->count; i++) {
        truce_status status = truce_job_snooze(publisher->jobs[i], NULL, 0, NULL);

        (void)status;
    }
    publisher_free_jobs(publisher);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Finds the key of a job's message. NULL: that of the URL. */
static truce_status publisher_find_key(struct publisher *publisher, const bson_t *job, bson_t *made,
                                       const char **key, bson_error_t *error)
{
    truce_status status;

    *key = NULL;
    if (!publisher->key) {
        bson_init(made);
        return TRUCE_OK;
    }
    status = truce__template_apply(publisher->key, job, &publisher->arena, made, error);
    truce__arena_reset(&publisher->arena);
    if (status)
        return status;
    *key = truce__field_text(made, "key");
    if (!**key || strlen(*key) > PUBLISHER_KEY_BYTES)
        return truce__fail(TRUCE_INVALID, error,
                           "the key %s of a job is not a string of 1 to %d bytes",
                           publisher->options->key, PUBLISHER_KEY_BYTES);
    return TRUCE_OK;
}

static truce_status publisher_send(struct publisher *publisher, truce_job *job, bson_error_t *error)
{
    struct buffer body = {0};
    char hex[25];
    char *id;
    struct broker_post post = {.content_type = "application/json"};
    bson_t made;
    truce_status status =
        publisher_find_key(publisher, truce_job_document(job), &made, &post.key, error);

    if (!status) {
        truce__json_write(&body, truce_job_payload(job), false, JSON_RELAXED);
        bson_oid_to_string(truce_job_id(job), hex);
        id = bson_strdup_printf("%s/%s", publisher->options->queue, hex); /* invariant P2 */
        post.id = id;
        post.body = body.bytes;
        post.size = body.size;
        status = publisher->ops->publish(publisher->broker, &post, error);
        bson_free(id);
    }
    truce__buffer_release(&body);
    bson_destroy(&made);
    return status;
}

static truce_status publisher_send_all(struct publisher *publisher, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < publisher->count && !status; i++)
        status = publisher_send(publisher, publisher->jobs[i], error);
    if (!status)
        status = publisher->ops->confirm(publisher->broker, PUBLISHER_CONFIRM_MS, error);
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
    const struct broker_wishes wishes = {.publishes = true, .consumer = publisher->options->queue};
    truce_status status =
        publisher->ops->open(&publisher->address, &wishes, &publisher->broker, error);

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

/* Publishes one batch. Sets *empty if no job is ready. */
static truce_status publisher_turn(struct publisher *publisher, bool *empty, bson_error_t *error)
{
    truce_status status = publisher_claim(publisher, error);

    *empty = !status && !publisher->count && publisher->options->until_empty;
    if (status || !publisher->count)
        return status;
    status = publisher_send_all(publisher, error);
    /* invariant P1 */
    for (size_t i = 0; i < publisher->count && !status; i++) {
        status = truce_job_done(publisher->jobs[i], NULL, NULL, error);
        if (status == TRUCE_EXPIRED) /* another publisher has the job, and repeats the message */
            status = TRUCE_OK;
        publisher->counts.published += !status;
    }
    if (status)
        publisher_release_jobs(publisher);
    publisher_free_jobs(publisher);
    return status;
}

static truce_status publisher_run(struct publisher *publisher, bson_error_t *error)
{
    uint32_t retry = 0;
    bool empty = false;

    while (!empty && !publisher_stops(publisher)) {
        bson_error_t why = {0};
        truce_status status = publisher->broker ? TRUCE_OK : publisher_connect(publisher, &why);

        if (!status)
            status = publisher_turn(publisher, &empty, &why);
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
        if (publisher->options->note)
            publisher->options->note(why.message, publisher->options->arg);
        publisher->counts.reconnects++;
        truce__broker_back_off(retry++, publisher_stops, publisher);
    }
    return TRUCE_OK;
}

/* ---- the call -------------------------------------------------------------------------------- */

static truce_status publisher_check(const truce_publish_options *options, bson_error_t *error)
{
    truce_status status = ROOM_CHECK(options, "truce_publish_options", error);

    if (status)
        return status;
    if (!options->url || !options->queue)
        return truce__fail(TRUCE_INVALID, error, "truce_publish_options needs `queue` and `url`");
    if (options->batch > JOB_CLAIMS_MAX)
        return truce__fail(TRUCE_INVALID, error, "invalid batch %u: 1 to %d jobs", options->batch,
                           JOB_CLAIMS_MAX);
    if (options->key && options->key[0] != '$')
        return truce__fail(TRUCE_INVALID, error,
                           "invalid key \"%.80s\": expected a path such as $payload.customer",
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
    status = truce__template_new(&source, false, &publisher->key, error);
    bson_destroy(&source);
    return status;
}

truce_status truce__publish(truce_store *store, const truce_publish_options *options,
                            const struct broker_ops *ops, truce_publish_counts *counts,
                            bson_error_t *error)
{
    struct publisher publisher = {.options = options, .ops = ops};
    truce_status status = publisher_check(options, error);
    bson_t query;
    char *url;

    if (status)
        return status;
    url = bson_strdup(options->url);
    publisher.batch = options->batch ? options->batch : PUBLISHER_BATCH;
    publisher.jobs = bson_malloc0(publisher.batch * sizeof *publisher.jobs);
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
    return truce__publish(store, options, NULL, counts, error);
}

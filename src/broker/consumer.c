/*
 * The consumer: receives a batch of messages, commits it, acknowledges it, and repeats.
 *
 *     broker ---- receive ----> batch ---- map ----> effects and rejects
 *                                                       | one commit: effects, rejects, records
 *                                                       v
 *     broker <-- acknowledge -------------------------- store
 *
 * A batch begins with the first message. It receives the messages that the broker sends until it is
 * full, or linger_ms have passed. By default, linger_ms is the duration of the last commit, from 5
 * ms to 50 ms, so slow commits get more messages. While a commit runs, the broker sends the next
 * messages, up to the prefetch, so batches grow with the load. If the store is slow, the other
 * messages stay in the broker (back-pressure).
 *
 * Invariants (BI1 to BI3 are in inbox.h):
 *  BC1  A message is acknowledged only after the commit with its effect or its reject is durable.
 *  BC2  Each message of a batch takes part in exactly one commit that succeeded, except the
 *       operations of a set (BC4). If a commit fails because of its content, its batch is halved,
 *       down to the one message, which is rejected.
 *  BC3  After any other failure, of the store or of the connection, the whole batch is dropped, the
 *       connection is closed, and the broker sends the messages again. There is no other recovery.
 *  BC4  Operations of a set need no record: repeating and reordering them changes nothing. They are
 *       applied before the rejects and the positions of their batch are stored.
 *
 * A crash leaves messages without an acknowledgement. Messages that were committed have a record,
 * are below the stored position of their partition, or are operations of a set. So they have no
 * effect when they come again.
 */
#include "broker/consumer.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/process_name.h"
#include "base/reserved_fields.h"
#include "base/status.h"
#include "broker/consumer_list.h"
#include "broker/dead_letters.h"
#include "broker/inbox.h"
#include "broker/message_effect.h"
#include "broker/message_template.h"
#include "broker/reconnect.h"
#include "bson/json.h"
#include "bson/value.h"

#define CONSUMER_BATCH       250
#define CONSUMER_BATCH_SET   4000 /* A commit of a set writes one record for all of its messages. */
#define CONSUMER_BATCH_MAX   5000
#define CONSUMER_BATCH_BYTES (32 * 1024 * 1024)
#define CONSUMER_LINGER_NS   INT64_C(5000000)
#define CONSUMER_LINGER_MAX  INT64_C(50000000)
/* With `until_empty` or `replay`: after this time without a message, the consumer asks the broker
 * whether messages wait, and ends if none do. */
#define CONSUMER_EMPTY_MS 1000
/* The time without a message after which a stream of RabbitMQ counts as empty. RabbitMQ does not
 * report how many of its messages wait. */
#define CONSUMER_QUIET_MS 5000
/* The number of questions about all messages after which a consumer that waits for other members of
 * its group says so. */
#define CONSUMER_OTHERS_TRIES 10
#define CONSUMER_COLLECT_NS   INT64_C(60000000000)
#define CONSUMER_COUNT_NS     INT64_C(5000000000)

struct item {
    struct broker_message *message;
    struct inbox_key key;
    bool has_key;
    struct effect effect;
    bool has_effect;
    /* The reason for which the message is rejected, or NULL if it is not rejected. Owned. */
    char *reason;
    /* The result of a message that is not rejected, also if the target is not a set. */
    truce_set_outcome outcome;
};

struct consumer_partition {
    /* The last message of the partition in this commit. */
    struct broker_position at;
    /* The offset after the last message of the earlier commits. */
    int64_t stored;
};

struct consumer {
    truce_store *store;
    const truce_consume_options *options;
    const struct broker_ops *ops;
    struct broker_address address;
    /* The connections that receive messages and that publish dead letters, or NULL while they are
     * closed. */
    void *broker, *publisher;
    struct effect_target *target;
    struct template *id;
    /* The name of the consumer, and "NAME.SLOT", the name of this worker for truce_set_consume.
     * Owned. */
    char *name, *set_consumer;
    struct json_reader reader;
    struct arena arena;
    struct item *items;
    struct broker_message **messages;
    truce_set_operation *operations;
    truce_set_result *results;
    /* sources[i]: the index of the item that operations[i] comes from. */
    size_t *sources;
    struct consumer_partition *partitions;
    /* The number of elements of `partitions`, which has one element for each partition in the
     * commit. */
    size_t partitions_count;
    /* The number of messages of the current batch, and its maximum. */
    size_t count, batch;
    /* The totals that the call returns. */
    truce_consume_counts counts;
    /* When old records were last collected, and when waiting messages were last counted
     * (monotonic). */
    int64_t collected_ns, counted_ns;
    /* The duration of the last batch from its mapping to its acknowledgement. */
    int64_t commit_ns;
    /* The last report to truce_consumers. Owns `source` and `worker`; `consumer` is `name`, and `into`
     * belongs to the options. */
    struct consumers_report report;
    /* When `report` was last sent (monotonic). */
    int64_t reported_ns;
    /* The number of questions in a row after which only other members of the group had messages. */
    int others_tries;
};

/* ---- messages -------------------------------------------------------------------------------- */

static void item_release(struct item *item)
{
    if (item->has_effect)
        truce__effect_release(&item->effect);
    if (item->has_key)
        truce__inbox_key_release(&item->key);
    bson_free(item->reason);
    truce__broker_message_free(item->message);
    memset(item, 0, sizeof *item);
}

static void consumer_drop_batch(struct consumer *consumer)
{
    for (size_t i = 0; i < consumer->count; i++)
        item_release(&consumer->items[i]);
    consumer->count = 0;
}

static void item_refuse(struct item *item, const bson_error_t *why)
{
    bson_free(item->reason);
    item->reason = bson_strdup(why->message[0] ? why->message : "refused");
    if (item->has_effect)
        truce__effect_release(&item->effect);
    item->has_effect = false;
}

/* Makes the document that mappings see: {body, ...facts}. */
static truce_status consumer_read_message(struct consumer *consumer,
                                          const struct broker_message *message, bson_t *document,
                                          bson_error_t *error)
{
    bson_error_t why = {0};
    bool is_array = false;
    bson_t body;
    truce_status status;

    bson_init(document);
    if (message->size > BROKER_BODY_MAX)
        return truce__fail(TRUCE_INVALID, error,
                           "the message has %zu bytes, more than the maximum of %d", message->size,
                           BROKER_BODY_MAX);
    status = truce__json_read(&consumer->reader, (const char *)message->body, message->size, &body,
                              &is_array, &why);
    if (status)
        return truce__fail(TRUCE_INVALID, error, "cannot read the body as JSON: %.400s",
                           why.message);
    if (is_array)
        BSON_APPEND_ARRAY(document, "body", &body);
    else
        BSON_APPEND_DOCUMENT(document, "body", &body);
    bson_concat(document, &message->facts);
    return truce__document_check(document, "message", error);
}

/* Finds the id by which the message is recorded. The id borrows its bytes from `made` or from the
 * message. Its type is 0 if the message has none and needs none: it has a position, the target is a
 * set, or rejects are replayed. Any other message without an id is INVALID. */
static truce_status consumer_find_id(struct consumer *consumer, const struct item *item,
                                     const bson_t *document, bson_t *made, bson_value_t *id,
                                     bson_error_t *error)
{
    bson_iter_t at;
    truce_status status;

    memset(id, 0, sizeof *id);
    bson_init(made);
    if (consumer->id) {
        bson_destroy(made);
        status = truce__template_apply(consumer->id, document, &consumer->arena, made, error);
        if (status)
            return status;
        if (bson_iter_init_find(&at, made, "id"))
            *id = *bson_iter_value(&at);
    } else if (!item->message->position.stream &&
               bson_iter_init_find(&at, &item->message->facts, "id")) {
        *id = *bson_iter_value(&at);
    }
    if (id->value_type || item->message->position.stream || consumer->options->replay ||
        truce__effect_target_is_set(consumer->target))
        return TRUCE_OK;
    return truce__fail(TRUCE_INVALID, error,
                       "the message has no id, so a repetition of it cannot be recognized: the "
                       "publisher sets the property message_id, or --id names a field");
}

/* Maps a message to its effect. If the message does not fit the mapping, sets item->reason. */
static void consumer_map(struct consumer *consumer, struct item *item)
{
    bson_error_t error = {0}, why = {0};
    bson_t document, made = BSON_INITIALIZER;
    bson_value_t id = {0};
    truce_status status = consumer_read_message(consumer, item->message, &document, &error);

    if (!status)
        status = consumer_find_id(consumer, item, &document, &made, &id, &error);
    if (truce__inbox_key_make(item->message, &id, &item->key, &why) && !status) {
        status = TRUCE_INVALID;
        error = why;
    }
    item->has_key = true;
    if (!status) {
        status = truce__effect_make(consumer->target, &document, &consumer->arena, &item->effect,
                                    &error);
        item->has_effect = !status;
    }
    if (status)
        item_refuse(item, &error);
    truce__arena_reset(&consumer->arena);
    bson_destroy(&made);
    bson_destroy(&document);
}

/* ---- receiving ------------------------------------------------------------------------------- */

static bool consumer_stops(void *arg)
{
    const struct consumer *consumer = arg;
    const truce_consume_options *options = consumer->options;

    return (options->limit && consumer->counts.received >= options->limit) ||
           (options->stop && options->stop(&consumer->counts, options->arg));
}

static truce_status consumer_receive(struct consumer *consumer, int timeout_ms, bool *came,
                                     bson_error_t *error)
{
    struct broker_message *message = NULL;
    truce_status status = consumer->ops->receive(consumer->broker, timeout_ms, &message, error);

    *came = !status && message;
    if (!*came) {
        truce__broker_message_free(message);
        return status;
    }
    consumer->items[consumer->count].message = message;
    consumer->messages[consumer->count++] = message;
    consumer->counts.received++;
    consumer->counts.redelivered += message->redelivered;
    return TRUCE_OK;
}

/* Returns the time to wait for further messages of a batch. */
static int64_t consumer_linger_ns(const struct consumer *consumer)
{
    if (consumer->options->linger_ms)
        return (int64_t)consumer->options->linger_ms * 1000000;
    if (consumer->commit_ns > CONSUMER_LINGER_MAX)
        return CONSUMER_LINGER_MAX;
    return consumer->commit_ns > CONSUMER_LINGER_NS ? consumer->commit_ns : CONSUMER_LINGER_NS;
}

/* Fills the batch. It stays empty if no message came in BROKER_WAIT_MS. */
static truce_status consumer_gather(struct consumer *consumer, bson_error_t *error)
{
    const truce_consume_options *options = consumer->options;
    int64_t linger_ns = consumer_linger_ns(consumer);
    size_t bytes = 0, most = consumer->batch;
    int64_t began_ns = 0;
    bool came = true;
    truce_status status = TRUCE_OK;

    if (options->limit && (int64_t)most > options->limit - consumer->counts.received)
        most = (size_t)(options->limit - consumer->counts.received);
    while (!status && came && consumer->count < most && bytes < CONSUMER_BATCH_BYTES) {
        int64_t left_ms = BROKER_WAIT_MS;

        if (began_ns)
            left_ms = (began_ns + linger_ns - truce__clock_monotonic_ns()) / 1000000;
        status = consumer_receive(consumer, left_ms > 0 ? (int)left_ms : 0, &came, error);
        if (!began_ns)
            began_ns = truce__clock_monotonic_ns();
        if (came)
            bytes += consumer->messages[consumer->count - 1]->size;
    }
    return status;
}

/* ---- committing ------------------------------------------------------------------------------ */

struct consumer_part {
    struct consumer *consumer;
    struct item *items;
    size_t count;
};

/* Adds a replayed message. Its reject stays if it is refused again. */
static truce_status consumer_add_replay(struct consumer *consumer, truce_commit *commit,
                                        struct item *item, bson_error_t *error)
{
    bool gone = false, seen = false, is_set = truce__effect_target_is_set(consumer->target);
    truce_status status = TRUCE_OK;
    bson_iter_t id;

    if (item->reason || !bson_iter_init_find(&id, &item->message->facts, REPLAY_FIELD))
        return TRUCE_OK;
    status = truce__dead_letter_remove(commit, bson_iter_value(&id), &gone, error);
    if (!status && !gone && !is_set && item->key.id.value_type)
        status = truce__inbox_record(commit, consumer->name, &item->key, &seen, error);
    item->outcome = gone || seen ? TRUCE_SET_DUPLICATE : TRUCE_SET_APPLIED;
    if (status || gone || seen || is_set)
        return status;
    return truce__effect_add(consumer->target, &item->effect, commit, error);
}

/* Adds one message to the commit. */
static truce_status consumer_add(struct consumer *consumer, truce_commit *commit, struct item *item,
                                 bson_error_t *error)
{
    bool records = item->key.id.value_type && !truce__effect_target_is_set(consumer->target);
    bool seen = false;
    truce_status status;

    if (consumer->options->replay)
        return consumer_add_replay(consumer, commit, item, error);
    if (item->reason)
        return truce__dead_letter_add(commit, consumer->name, &item->key, item->message,
                                      item->reason, error);
    status =
        records ? truce__inbox_record(commit, consumer->name, &item->key, &seen, error) : TRUCE_OK;
    if (status)
        return status;
    item->outcome = seen ? TRUCE_SET_DUPLICATE : TRUCE_SET_APPLIED;
    return seen ? TRUCE_OK : truce__effect_add(consumer->target, &item->effect, commit, error);
}

/* Finds the position of a message's partition in this commit. The result is NULL if the broker has
 * no positions. */
static truce_status consumer_partition(struct consumer *consumer, truce_commit *commit,
                                       const struct broker_position *position,
                                       struct consumer_partition **found, bson_error_t *error)
{
    struct consumer_partition *partition = consumer->partitions;
    truce_status status;

    *found = NULL;
    if (!position->stream)
        return TRUCE_OK;
    while (partition < consumer->partitions + consumer->partitions_count &&
           (partition->at.partition != position->partition ||
            strcmp(partition->at.stream, position->stream) != 0))
        partition++;
    *found = partition;
    if (partition < consumer->partitions + consumer->partitions_count)
        return TRUCE_OK;
    consumer->partitions_count++;
    status =
        truce__inbox_position(NULL, commit, consumer->name, position, &partition->stored, error);
    partition->at = *position;
    partition->at.offset = partition->stored - 1;
    return status;
}

/* Adds the effects, rejects, records, and positions of some messages to the commit
 * (truce_commit_function). The positions move message by message, so a message that occurs twice in
 * a batch has one effect. */
static truce_status consumer_commit(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct consumer_part *part = arg;
    struct consumer *consumer = part->consumer;
    truce_status status = TRUCE_OK;

    consumer->partitions_count = 0;
    for (size_t i = 0; i < part->count && !status; i++) {
        struct item *item = &part->items[i];
        const struct broker_position *at = &item->message->position;
        struct consumer_partition *partition;

        status = consumer_partition(consumer, commit, at, &partition, error);
        if (status)
            return status;
        /* Invariant BI1 of inbox.h: the message took effect before: a repetition has no effect. */
        if (partition && at->offset <= partition->at.offset) {
            item->outcome = TRUCE_SET_DUPLICATE;
            continue;
        }
        if (!truce__effect_target_is_set(consumer->target) || item->reason ||
            consumer->options->replay)
            status = consumer_add(consumer, commit, item, error);
        if (partition)
            partition->at.offset = at->offset;
    }
    for (size_t i = 0; i < consumer->partitions_count && !status; i++)
        if (consumer->partitions[i].at.offset >= consumer->partitions[i].stored)
            status = truce__inbox_move(commit, consumer->name, &consumer->partitions[i].at,
                                       consumer->partitions[i].stored, error);
    return status;
}

/* Returns whether the commit failed because of its content. */
static bool consumer_is_definite(truce_status status)
{
    return status == TRUCE_INVALID || status == TRUCE_LIMIT || status == TRUCE_DUPLICATE ||
           status == TRUCE_NOT_FOUND || status == TRUCE_REFUSED || status == TRUCE_EXPIRED;
}

/* Commits `count` items from number `first` on. If the commit fails because of its content, commits
 * its halves, and a single item again as a reject. Returns any other failure. */
static truce_status consumer_commit_part(struct consumer *consumer, size_t first, size_t count,
                                         bson_error_t *error)
{
    struct consumer_part part = {consumer, consumer->items + first, count};
    bson_error_t why = {0};
    truce_status status = truce_transact(consumer->store, consumer_commit, &part, NULL, &why);

    /* Invariant BC2: halves the batch until the message that makes the commit fail is alone. */
    if (consumer_is_definite(status) && count > 1) {
        status = consumer_commit_part(consumer, first, count / 2, error);
        return status ? status
                      : consumer_commit_part(consumer, first + count / 2, count - count / 2, error);
    }
    if (consumer_is_definite(status) && !part.items->reason) {
        item_refuse(part.items, &why);
        return consumer_commit_part(consumer, first, 1, error);
    }
    consumer->counts.batches += !status;
    if (status && error)
        *error = why;
    return status;
}

/* ---- sets ------------------------------------------------------------------------------------ */

/* Applies the operations of the batch. An operation that fails alone becomes a reject. */
static truce_status consumer_apply_set(struct consumer *consumer, bson_error_t *error)
{
    bson_error_t why = {0};
    truce_status status;
    size_t count = 0;

    for (size_t i = 0; i < consumer->count; i++)
        if (consumer->items[i].has_effect) {
            consumer->sources[count] = i;
            consumer->operations[count++] = consumer->items[i].effect.operation;
        }
    if (!count)
        return TRUCE_OK;
    memset(consumer->results, 0, count * sizeof *consumer->results);
    status = truce_set_consume(truce__effect_target_set(consumer->target), consumer->set_consumer,
                               consumer->operations, count, consumer->results, &why);
    if (status && !consumer_is_definite(status)) {
        if (error)
            *error = why;
        return status;
    }
    for (size_t i = 0; i < count; i++) {
        struct item *item = &consumer->items[consumer->sources[i]];
        bson_error_t reason = {0};

        /* The error of a batch is that of its first failure; an operation alone has its own. */
        if (consumer->results[i].status)
            status = truce_set_consume(truce__effect_target_set(consumer->target),
                                       consumer->set_consumer, &consumer->operations[i], 1,
                                       &consumer->results[i], &reason);
        else
            status = TRUCE_OK;
        if (status && !consumer_is_definite(status)) {
            if (error)
                *error = reason;
            return status;
        }
        if (status)
            item_refuse(item, &reason);
        item->outcome = consumer->results[i].outcome;
    }
    return TRUCE_OK;
}

/* Applies a batch of operations, then stores rejects and positions (invariant BC4). */
static truce_status consumer_apply_set_batch(struct consumer *consumer, bson_error_t *error)
{
    truce_status status = consumer_apply_set(consumer, error);
    bool commits = consumer->options->replay;

    for (size_t i = 0; i < consumer->count; i++)
        commits |= consumer->items[i].reason || consumer->messages[i]->position.stream;
    consumer->counts.batches += !status && !commits;
    return status || !commits ? status : consumer_commit_part(consumer, 0, consumer->count, error);
}

/* ---- acknowledgements ------------------------------------------------------------------------ */

static void consumer_note(const struct consumer *consumer, const char *format, ...)
    TRUCE_PRINTF(2, 3);

static void consumer_note(const struct consumer *consumer, const char *format, ...)
{
    char text[800];
    va_list arguments;

    if (!consumer->options->note)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    consumer->options->note(text, consumer->options->arg);
}

static truce_status consumer_connect_publisher(struct consumer *consumer, bson_error_t *error)
{
    const struct broker_open_options open_options = {.publishes = true, .consumer = consumer->name};
    truce_status status =
        consumer->ops->open(&consumer->address, &open_options, &consumer->publisher, error);

    if (status)
        consumer->publisher = NULL;
    return status;
}

/* Publishes the rejects of the batch to the dead letter exchange or topic. */
static truce_status consumer_publish_rejects(struct consumer *consumer, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bool any = false;

    for (size_t i = 0; i < consumer->count && !status; i++) {
        const struct item *item = &consumer->items[i];
        struct broker_post post = {.to = consumer->options->dead_letter,
                                   .body = item->message->body,
                                   .size = item->message->size};
        const char *id = truce__field_text(&item->message->facts, "id");
        bson_t headers;

        if (!item->reason)
            continue;
        bson_init(&headers);
        BSON_APPEND_UTF8(&headers, "x-truce-reason", item->reason);
        BSON_APPEND_UTF8(&headers, "x-truce-consumer", consumer->name);
        post.id = *id ? id : NULL;
        post.headers = &headers;
        if (!consumer->publisher)
            status = consumer_connect_publisher(consumer, error);
        if (!status)
            status = consumer->ops->publish(consumer->publisher, &post, error);
        any = true;
        bson_destroy(&headers);
    }
    return status || !any ? status : consumer->ops->confirm(consumer->publisher, 30000, error);
}

/* Adds the outcomes of the batch to the counts, and notes each reject. Called after the
 * acknowledgement. */
static void consumer_count(struct consumer *consumer)
{
    truce_consume_counts *counts = &consumer->counts;

    for (size_t i = 0; i < consumer->count; i++) {
        struct item *item = &consumer->items[i];

        if (item->reason) {
            counts->rejected++;
            consumer_note(consumer, "rejected a message (stored in truce_rejects): %s",
                          item->reason);
            continue;
        }
        counts->applied += item->outcome == TRUCE_SET_APPLIED;
        counts->duplicate += item->outcome == TRUCE_SET_DUPLICATE;
        counts->stale += item->outcome == TRUCE_SET_STALE;
        counts->quarantined += item->outcome == TRUCE_SET_QUARANTINED;
    }
}

/* ---- a batch --------------------------------------------------------------------------------- */

/* Fails with LIMIT if a message of the batch is too large for a document, unless rejects are
 * published as dead letters: such a message can only be published again. */
static truce_status consumer_check_sizes(struct consumer *consumer, bson_error_t *error)
{
    for (size_t i = 0; i < consumer->count && !consumer->options->dead_letter; i++) {
        struct broker_message *message = consumer->messages[i];

        if (message->size > BROKER_BODY_MAX)
            return truce__fail(TRUCE_LIMIT, error,
                               "a message has %zu bytes, and a reject can store %d; it stays in "
                               "the broker: use --dead-letter, or remove it there",
                               message->size, BROKER_BODY_MAX);
    }
    return TRUCE_OK;
}

/* Maps, commits, and acknowledges the batch. After a failure, the caller drops the batch and the
 * connection (BC3). */
static truce_status consumer_apply_batch(struct consumer *consumer, bson_error_t *error)
{
    int64_t began_ns = truce__clock_monotonic_ns();
    truce_status status = consumer_check_sizes(consumer, error);

    for (size_t i = 0; i < consumer->count && !status; i++)
        consumer_map(consumer, &consumer->items[i]);
    if (!status)
        status = truce__effect_target_is_set(consumer->target)
                     ? consumer_apply_set_batch(consumer, error)
                     : consumer_commit_part(consumer, 0, consumer->count, error);
    if (!status && consumer->options->dead_letter)
        status = consumer_publish_rejects(consumer, error);
    /* Invariant BC1: the effects and the rejects are durable. */
    if (!status)
        status = consumer->ops->acknowledge(consumer->broker, consumer->messages, consumer->count,
                                            error);
    if (!status)
        consumer_count(consumer);
    consumer->commit_ns = truce__clock_monotonic_ns() - began_ns;
    return status;
}

/* Passes the effect of each message, or the reason of its rejection, to `on_message` (a dry run).
 * Commits and acknowledges nothing. */
static void consumer_show_batch(struct consumer *consumer)
{
    for (size_t i = 0; i < consumer->count; i++) {
        struct item *item = &consumer->items[i];
        bson_t shown = BSON_INITIALIZER;

        consumer_map(consumer, item);
        BSON_APPEND_DOCUMENT(&shown, "message", &item->key.reject);
        if (item->reason)
            BSON_APPEND_UTF8(&shown, "reason", item->reason);
        else
            BSON_APPEND_ARRAY(&shown, "changes", &item->effect.changes);
        if (consumer->options->on_message)
            consumer->options->on_message(&shown, consumer->options->arg);
        consumer->counts.rejected += item->reason != NULL;
        bson_destroy(&shown);
    }
}

/* ---- the connection -------------------------------------------------------------------------- */

static truce_status consumer_find_position(void *arg, const char *stream, int32_t partition,
                                           int64_t *next, bson_error_t *error)
{
    struct consumer *consumer = arg;
    const struct broker_position position = {stream, partition, 0};

    return truce__inbox_position(consumer->store, NULL, consumer->name, &position, next, error);
}

static truce_status consumer_connect(struct consumer *consumer, bson_error_t *error)
{
    struct broker_open_options open_options = {.publishes = false,
                                               .consumer = consumer->name,
                                               .dry_run = consumer->options->dry_run,
                                               .store = consumer->store,
                                               .prefetch = (uint32_t)consumer->batch * 2,
                                               .find_position = consumer_find_position,
                                               .stop = consumer_stops,
                                               .arg = consumer};
    truce_status status =
        consumer->ops->open(&consumer->address, &open_options, &consumer->broker, error);

    if (status)
        consumer->broker = NULL;
    return status;
}

static void consumer_disconnect(struct consumer *consumer)
{
    consumer_drop_batch(consumer);
    if (consumer->broker)
        consumer->ops->close(consumer->broker);
    if (consumer->publisher)
        consumer->ops->close(consumer->publisher);
    consumer->broker = consumer->publisher = NULL;
}

/* ---- reports --------------------------------------------------------------------------------- */

static bool consumer_reports(const struct consumer *consumer)
{
    return !consumer->options->dry_run && !consumer->options->replay;
}

static void consumer_begin_report(struct consumer *consumer)
{
    char *process = truce__process_name();

    consumer->report = (struct consumers_report){
        .consumer = consumer->name,
        .source = truce__broker_address_show(&consumer->address),
        .into = consumer->options->into,
        .worker = bson_strdup_printf("%s:%u", process, consumer->options->slot),
        .started_ms = truce__clock_wall_ms(),
    };
    bson_free(process);
}

/* Reports the counts to truce_consumers. A failure has no consequence: if the store fails, so do
 * the commits. */
static void consumer_report(struct consumer *consumer)
{
    struct consumers_report *report = &consumer->report;
    int64_t now_ns = truce__clock_monotonic_ns(), waited_ns = now_ns - consumer->reported_ns;
    bool is_busy = consumer->counts.received > report->before.received;
    int64_t each_ms = is_busy ? CONSUMERS_BUSY_MS : CONSUMERS_IDLE_MS;
    bson_error_t ignored;

    if (!report->ends && consumer->reported_ns && waited_ns < each_ms * 1000000)
        return;
    report->now = consumer->counts;
    report->rate =
        consumer->reported_ns
            ? (double)(report->now.received - report->before.received) * 1e9 / (double)waited_ns
            : 0;
    if (is_busy)
        report->last_message_ms = truce__clock_wall_ms();
    if (!consumer->reported_ns)
        (void)truce__consumers_forget(consumer->store, &ignored);
    if (!truce__consumers_report(consumer->store, report, &ignored))
        report->before = report->now;
    consumer->reported_ns = now_ns;
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* Collects old records, asks for the number of waiting messages, and reports, from time to time. */
static truce_status consumer_housekeep(struct consumer *consumer, bson_error_t *error)
{
    int64_t now_ns = truce__clock_monotonic_ns();
    truce_status status = TRUCE_OK;

    if (now_ns - consumer->counted_ns >= CONSUMER_COUNT_NS) {
        consumer->counted_ns = now_ns;
        status = consumer->ops->waiting(consumer->broker, &consumer->counts.waiting, NULL, error);
    }
    if (!status && consumer_reports(consumer))
        consumer_report(consumer);
    if (status || !consumer->options->inbox_ms ||
        now_ns - consumer->collected_ns < CONSUMER_COLLECT_NS)
        return status;
    consumer->collected_ns = now_ns;
    return truce__inbox_collect(consumer->store, consumer->name,
                                truce__clock_wall_ms() - consumer->options->inbox_ms, error);
}

/* Sets *empty if no message waits. The messages that the broker has for other members of a group
 * count, too: a member may have been killed. Then this consumer gets them when the broker notices
 * it. In a dry run, they do not count, because no stored position would show that another member
 * has read them. */
static truce_status consumer_is_empty(struct consumer *consumer, int *idle_ms, bool *empty,
                                      bson_error_t *error)
{
    int64_t *own = &consumer->counts.waiting, others = 0;
    truce_status status = consumer->ops->waiting(
        consumer->broker, own, consumer->options->dry_run ? NULL : &others, error);

    if (!status && *own < 0) {
        *empty = *idle_ms >= CONSUMER_QUIET_MS;
        return TRUCE_OK;
    }
    *idle_ms = 0;
    consumer->others_tries = others ? consumer->others_tries + 1 : 0;
    if (consumer->others_tries == CONSUMER_OTHERS_TRIES)
        consumer_note(consumer,
                      "waiting for other consumers of \"%s\", which have %" PRId64
                      " messages to apply",
                      consumer->name, others);
    *empty = !status && !*own && !others;
    return status;
}

/* Runs one iteration of the loop: receives a batch, applies and acknowledges it (a dry run only
 * shows it), and does the housekeeping. Sets *empty if the consumer was asked to end at an empty
 * queue and no message waits. *idle_ms is the time since the last message, or
 * since the last question whether one waits. */
static truce_status consumer_receive_batch(struct consumer *consumer, int *idle_ms, bool *empty,
                                           bson_error_t *error)
{
    truce_status status = consumer_gather(consumer, error);

    *empty = false;
    if (!status && consumer->count) {
        *idle_ms = 0;
        if (consumer->options->dry_run)
            consumer_show_batch(consumer);
        else
            status = consumer_apply_batch(consumer, error);
    } else if (!status) {
        *idle_ms += BROKER_WAIT_MS;
    }
    consumer_drop_batch(consumer);
    if (!status && (consumer->options->until_empty || consumer->options->replay) &&
        *idle_ms >= CONSUMER_EMPTY_MS)
        status = consumer_is_empty(consumer, idle_ms, empty, error);
    return status || consumer->options->dry_run ? status : consumer_housekeep(consumer, error);
}

/* Runs the loop until `stop`, `limit`, or an empty queue ends it. After a failure that a new
 * connection may repair, connects again after growing delays; returns any other failure. */
static truce_status consumer_run(struct consumer *consumer, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    uint32_t retry = 0;
    int idle_ms = 0;
    bool empty = false;

    while (!empty && !consumer_stops(consumer)) {
        bson_error_t why = {0};

        status = consumer->broker ? TRUCE_OK : consumer_connect(consumer, &why);
        if (!status)
            status = consumer_receive_batch(consumer, &idle_ms, &empty, &why);
        if (!status) {
            retry = 0;
            continue;
        }
        /* Invariant BC3: the broker then sends the messages of the batch again. */
        consumer_disconnect(consumer);
        if (!truce__broker_may_retry(status)) {
            if (error)
                *error = why;
            return status;
        }
        consumer_note(consumer, "%s; retrying", why.message);
        consumer->counts.reconnects++;
        truce__broker_back_off(retry++, consumer_stops, consumer);
        status = TRUCE_OK;
    }
    return status;
}

/* ---- the call -------------------------------------------------------------------------------- */

/* Checks the options without connecting. */
static truce_status consumer_check(const truce_consume_options *options, bson_error_t *error)
{
    truce_status status = ROOM_CHECK(options, "truce_consume_options", error);

    if (status)
        return status;
    if (!options->url || !options->into)
        return truce__fail(TRUCE_INVALID, error, "truce_consume_options needs `url` and `into`");
    if (options->batch > CONSUMER_BATCH_MAX)
        return truce__fail(TRUCE_INVALID, error, "invalid batch %u: expected 1 to %d messages",
                           options->batch, CONSUMER_BATCH_MAX);
    if (options->replay && options->dead_letter)
        return truce__fail(
            TRUCE_INVALID, error,
            "`replay` and `dead_letter` exclude each other: a replayed message that fails again "
            "stays a reject");
    if (options->limit < 0 || options->inbox_ms < 0)
        return truce__fail(TRUCE_INVALID, error,
                           "`limit` is %" PRId64 " and `inbox_ms` %" PRId64
                           ", but none may be negative",
                           (int64_t)options->limit, (int64_t)options->inbox_ms);
    return TRUCE_OK;
}

/* Returns the fields that mappings see in messages of the broker, or NULL if they are unknown. A
 * message has those that its publisher has set. */
static const char *const *consumer_field_names(const struct consumer *consumer)
{
    static const char *const amqp[] = {"body",     "id",         "time",        "headers",
                                       "exchange", "routingKey", "redelivered", "type",
                                       "app",      "user",       "contentType", "correlationId",
                                       "replyTo",  "priority",   NULL};
    static const char *const kafka[] = {"body",      "id",     "time", "headers", "topic",
                                        "partition", "offset", "key",  NULL};
    const char *scheme = consumer->address.scheme;

    if (!strcmp(scheme, "kafka"))
        return kafka;
    return !strncmp(scheme, "amqp", strlen("amqp")) ? amqp : NULL;
}

static truce_status consumer_compile_id(struct consumer *consumer, bson_error_t *error)
{
    bson_t source = BSON_INITIALIZER;
    truce_status status;

    if (!consumer->options->id)
        return TRUCE_OK;
    if (consumer->options->id[0] != '$')
        return truce__fail(TRUCE_INVALID, error,
                           "invalid id \"%.80s\": expected a path such as $body.id or $headers.id",
                           consumer->options->id);
    BSON_APPEND_UTF8(&source, "id", consumer->options->id);
    status =
        truce__template_new(&source, false, consumer_field_names(consumer), &consumer->id, error);
    bson_destroy(&source);
    return status;
}

static truce_status consumer_name(struct consumer *consumer, bson_error_t *error)
{
    const struct broker_address *address = &consumer->address;
    const char *name = consumer->options->consumer;

    if (!name && address->path_count)
        name = address->path[address->path_count - 1];
    if (!name || !*name || strlen(name) > 100)
        return truce__fail(
            TRUCE_INVALID, error,
            "invalid name of the consumer \"%.40s\": expected 1 to 100 bytes, or a URL with a "
            "queue or topic, whose name is the default",
            name ? name : "");
    consumer->name = bson_strdup(name);
    consumer->set_consumer = bson_strdup_printf("%s.%u", name, consumer->options->slot);
    return TRUCE_OK;
}

/* Allocates the arrays of a batch, compiles the id and the mapping, and opens the target.
 * consumer_end frees all of them, also after a failure. */
static truce_status consumer_begin(struct consumer *consumer, bson_error_t *error)
{
    const truce_consume_options *options = consumer->options;
    truce_status status = consumer_name(consumer, error);

    consumer->batch = options->batch                                    ? options->batch
                      : !strncmp(options->into, "set:", strlen("set:")) ? CONSUMER_BATCH_SET
                                                                        : CONSUMER_BATCH;
    consumer->items = bson_malloc0(consumer->batch * sizeof *consumer->items);
    consumer->messages = bson_malloc0(consumer->batch * sizeof *consumer->messages);
    consumer->operations = bson_malloc0(consumer->batch * sizeof *consumer->operations);
    consumer->results = bson_malloc0(consumer->batch * sizeof *consumer->results);
    consumer->sources = bson_malloc0(consumer->batch * sizeof *consumer->sources);
    consumer->partitions = bson_malloc0(consumer->batch * sizeof *consumer->partitions);
    consumer->counts.waiting = -1;
    consumer->counted_ns = truce__clock_monotonic_ns();
    if (!status)
        status = consumer_compile_id(consumer, error);
    if (!status)
        status = truce__effect_target_new(consumer->store, options->into, options->map,
                                          options->map_is_array, consumer_field_names(consumer),
                                          &consumer->target, error);
    if (!status && options->inbox_ms && !options->dry_run)
        status = truce__inbox_prepare(consumer->store, error);
    if (!status)
        consumer_begin_report(consumer);
    return status;
}

static void consumer_end(struct consumer *consumer)
{
    consumer_disconnect(consumer);
    truce__effect_target_free(consumer->target);
    truce__template_free(consumer->id);
    truce__json_reader_release(&consumer->reader);
    truce__arena_release(&consumer->arena);
    bson_free(consumer->items);
    bson_free(consumer->messages);
    bson_free(consumer->operations);
    bson_free(consumer->results);
    bson_free(consumer->sources);
    bson_free(consumer->partitions);
    bson_free(consumer->name);
    bson_free(consumer->set_consumer);
    bson_free((char *)consumer->report.source);
    bson_free((char *)consumer->report.worker);
}

truce_status truce__consume(truce_store *store, const truce_consume_options *options,
                            const struct broker_ops *ops, truce_consume_counts *counts,
                            bson_error_t *error)
{
    /* `exact`: as doubles, two ids of more than 64 bits could be equal. */
    struct consumer consumer = {
        .store = store, .options = options, .ops = ops, .reader = {.exact = true}};
    truce_status status = consumer_check(options, error);
    bson_t query;
    char *url;

    if (status)
        return status;
    url = bson_strdup(options->url);
    status = truce__broker_address_read(url, &query, &consumer.address, error);
    if (!status && options->replay)
        consumer.ops = &truce__dead_letter_ops;
    else if (!status && !ops)
        status = truce__broker_find(consumer.address.scheme, &consumer.ops, error);
    if (!status)
        status = consumer_begin(&consumer, error);
    if (!status)
        status = consumer_run(&consumer, error);
    if (consumer.reported_ns) {
        consumer.report.ends = true;
        consumer_report(&consumer);
    }
    if (counts)
        *counts = consumer.counts;
    consumer_end(&consumer);
    bson_destroy(&query);
    bson_free(url);
    return status;
}

truce_status truce_consume(truce_store *store, const truce_consume_options *options,
                           truce_consume_counts *counts, bson_error_t *error)
{
    if (counts)
        memset(counts, 0, sizeof *counts);
    RETURN_IF_NULL(store, error);
    RETURN_IF_NULL(options, error);
    return truce__consume(store, options, NULL, counts, error);
}

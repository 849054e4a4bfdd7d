#include "tests/support/fake_broker.h"

#include <stdio.h>
#include <string.h>

struct fake_broker fake_broker;

void fake_broker_begin(bool log)
{
    fake_broker_end();
    fake_broker.log = log;
}

void fake_broker_end(void)
{
    for (size_t i = 0; i < fake_broker.count; i++) {
        bson_free(fake_broker.messages[i].body);
        bson_free(fake_broker.messages[i].id);
        bson_destroy(fake_broker.messages[i].headers);
    }
    for (size_t i = 0; i < fake_broker.published_count; i++) {
        bson_free(fake_broker.published[i]);
        bson_free(fake_broker.published_to[i]);
        bson_free(fake_broker.published_id[i]);
        bson_free(fake_broker.published_key[i]);
    }
    memset(&fake_broker, 0, sizeof fake_broker);
}

struct fake_message *fake_broker_put(const char *body, const char *id, int32_t partition)
{
    struct fake_message *message = &fake_broker.messages[fake_broker.count++];

    *message = (struct fake_message){.body = bson_strdup(body),
                                     .id = bson_strdup(id),
                                     .partition = partition,
                                     .offset = fake_broker.offsets[partition]++};
    for (char *at = message->body; *at; at++)
        *at = *at == '\'' ? '"' : *at;
    return message;
}

size_t fake_broker_left(void)
{
    size_t left = 0;

    for (size_t i = 0; i < fake_broker.count; i++)
        left += fake_broker.log ? fake_broker.messages[i].offset >=
                                      fake_broker.acknowledged[fake_broker.messages[i].partition]
                                : !fake_broker.messages[i].done;
    return left;
}

static truce_status fake_call(bson_error_t *error)
{
    if (++fake_broker.calls != fake_broker.fails_at)
        return TRUCE_OK;
    if (error)
        snprintf(error->message, sizeof error->message, "the fake broker fails");
    return fake_broker.status;
}

/* Opens a connection. For a log, the caller names the position of each partition; an unknown one is
 * the beginning. */
static truce_status fake_open(const struct broker_address *address,
                              const struct broker_open_options *open_options, void **broker,
                              bson_error_t *error)
{
    truce_status status = fake_call(error);

    (void)address;
    *broker = NULL;
    for (int i = 0;
         i < FAKE_PARTITIONS_MAX && !status && !open_options->publishes && fake_broker.log; i++) {
        status =
            open_options->find_position(open_options->arg, "topic", i, &fake_broker.next[i], error);
        if (!status && fake_broker.next[i] < 0)
            fake_broker.next[i] = 0;
        fake_broker.acknowledged[i] = fake_broker.next[i];
    }
    if (status)
        return status;
    *broker = open_options->publishes ? (void *)&fake_broker.published : (void *)&fake_broker;
    return TRUCE_OK;
}

static void fake_close(void *broker)
{
    if (broker != &fake_broker)
        return;
    for (size_t i = 0; i < fake_broker.count; i++) {
        fake_broker.messages[i].again |= fake_broker.messages[i].out;
        fake_broker.messages[i].out = false;
    }
}

static struct fake_message *fake_next(void)
{
    for (size_t i = 0; i < fake_broker.count; i++) {
        struct fake_message *message = &fake_broker.messages[i];

        if (fake_broker.log ? message->offset == fake_broker.next[message->partition]
                            : !message->out && !message->done)
            return message;
    }
    return NULL;
}

/* Returns the next message without waiting. Sets *message to NULL if all were delivered. */
static truce_status fake_receive(void *broker, int timeout_ms, struct broker_message **message,
                                 bson_error_t *error)
{
    truce_status status = fake_call(error);
    struct fake_message *next = status ? NULL : fake_next();

    (void)broker, (void)timeout_ms;
    *message = NULL;
    if (!next)
        return status;
    *message = bson_malloc0(sizeof **message);
    bson_init(&(*message)->facts);
    (*message)->size = strlen(next->body);
    (*message)->body = (uint8_t *)bson_strdup(next->body);
    (*message)->redelivered = next->again;
    (*message)->tag = (uint64_t)(next - fake_broker.messages);
    if (next->id)
        BSON_APPEND_UTF8(&(*message)->facts, "id", next->id);
    if (next->time_ms)
        BSON_APPEND_DATE_TIME(&(*message)->facts, "time", next->time_ms);
    if (next->headers)
        BSON_APPEND_DOCUMENT(&(*message)->facts, "headers", next->headers);
    if (fake_broker.log) {
        (*message)->position =
            (struct broker_position){bson_strdup("topic"), next->partition, next->offset};
        BSON_APPEND_INT32(&(*message)->facts, "partition", next->partition);
        BSON_APPEND_INT64(&(*message)->facts, "offset", next->offset);
        fake_broker.next[next->partition]++;
    }
    next->out = true;
    return TRUCE_OK;
}

static truce_status fake_acknowledge(void *broker, struct broker_message *const *messages,
                                     size_t count, bson_error_t *error)
{
    truce_status status = fake_call(error);

    (void)broker;
    for (size_t i = 0; i < count && !status; i++) {
        struct fake_message *message = &fake_broker.messages[messages[i]->tag];

        message->done = true;
        message->out = false;
        if (fake_broker.acknowledged[message->partition] <= message->offset)
            fake_broker.acknowledged[message->partition] = message->offset + 1;
    }
    return status;
}

static truce_status fake_waiting(void *broker, int64_t *count, int64_t *others, bson_error_t *error)
{
    (void)broker;
    *count = fake_broker.uncounted ? -1 : fake_next() ? 1 : 0;
    if (!*count && others && ++fake_broker.questions && fake_broker.others)
        *others = fake_broker.others--;
    return fake_call(error);
}

static truce_status fake_publish(void *broker, const struct broker_post *post, bson_error_t *error)
{
    truce_status status = fake_call(error);

    (void)broker;
    if (status)
        return status;
    fake_broker.published[fake_broker.published_count] =
        bson_strndup((const char *)post->body, post->size);
    fake_broker.published_key[fake_broker.published_count] = bson_strdup(post->order_key);
    fake_broker.published_after[fake_broker.published_count] = fake_broker.confirmed;
    fake_broker.published_to[fake_broker.published_count] = bson_strdup(post->to);
    fake_broker.published_id[fake_broker.published_count++] = bson_strdup(post->id);
    return TRUCE_OK;
}

static truce_status fake_confirm(void *broker, int timeout_ms, bson_error_t *error)
{
    truce_status status = fake_call(error);

    (void)broker, (void)timeout_ms;
    if (!status)
        fake_broker.confirmed = fake_broker.published_count;
    return status;
}

const struct broker_ops fake_broker_ops = {
    .open = fake_open,
    .close = fake_close,
    .receive = fake_receive,
    .acknowledge = fake_acknowledge,
    .waiting = fake_waiting,
    .publish = fake_publish,
    .confirm = fake_confirm,
};

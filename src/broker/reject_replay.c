/*
 * Replays: the rejects of a consumer, as if they were the messages of a broker. The commit of an
 * effect removes the reject (truce__inbox_replay), so there is nothing to acknowledge. A message
 * that is refused again stays.
 */
#include "broker/reject_replay.h"

#include <string.h>

#include "base/status.h"
#include "bson/value.h"
#include "store/reserved_names.h"
#include "truce/store.h"

struct replay {
    truce_cursor *cursor;
    bool ended;
};

static truce_status replay_open(const struct broker_address *address,
                                const struct broker_wishes *wishes, void **broker,
                                bson_error_t *error)
{
    struct replay *replay = bson_malloc0(sizeof *replay);
    bson_t *filter = BCON_NEW("_id.consumer", BCON_UTF8(wishes->consumer));
    truce_status status =
        truce_find(wishes->store, BROKER_REJECTS, filter, NULL, &replay->cursor, error);

    (void)address;
    bson_destroy(filter);
    *broker = replay;
    if (status) {
        bson_free(replay);
        *broker = NULL;
    }
    return status;
}

static void replay_close(void *arg)
{
    struct replay *replay = arg;

    truce_cursor_close(replay->cursor);
    bson_free(replay);
}

static void replay_copy_body(const bson_t *reject, struct broker_message *message)
{
    const uint8_t *bytes = NULL;
    uint32_t size = 0;
    bson_iter_t at;

    if (bson_iter_init_find(&at, reject, "body") && BSON_ITER_HOLDS_BINARY(&at))
        bson_iter_binary(&at, NULL, &size, &bytes);
    message->size = size;
    message->body = bson_malloc(message->size + 1);
    if (size)
        memcpy(message->body, bytes, size);
}

static truce_status replay_receive(void *arg, int timeout_ms, struct broker_message **message,
                                   bson_error_t *error)
{
    struct replay *replay = arg;
    const bson_t *reject = NULL;
    bson_t facts;
    bson_iter_t id;
    truce_status status =
        replay->ended ? TRUCE_OK : truce_cursor_next(replay->cursor, &reject, error);

    (void)timeout_ms;
    *message = NULL;
    replay->ended |= !status && !reject;
    if (status || !reject)
        return status;
    *message = bson_malloc0(sizeof **message);
    if (truce__value_subdocument(reject, "facts", &facts))
        bson_copy_to(&facts, &(*message)->facts);
    else
        bson_init(&(*message)->facts);
    if (bson_iter_init_find(&id, reject, "_id"))
        BSON_APPEND_VALUE(&(*message)->facts, REPLAY_FIELD, bson_iter_value(&id));
    replay_copy_body(reject, *message);
    return TRUCE_OK;
}

static truce_status replay_acknowledge(void *arg, struct broker_message *const *messages,
                                       size_t count, bson_error_t *error)
{
    (void)arg, (void)messages, (void)count, (void)error;
    return TRUCE_OK;
}

static truce_status replay_waiting(void *arg, int64_t *count, bson_error_t *error)
{
    const struct replay *replay = arg;

    (void)error;
    *count = replay->ended ? 0 : 1;
    return TRUCE_OK;
}

const struct broker_ops truce__replay_ops = {
    .open = replay_open,
    .close = replay_close,
    .receive = replay_receive,
    .acknowledge = replay_acknowledge,
    .waiting = replay_waiting,
};

/*
 * Dead letters: the rejects of a consumer, and their replay as if they were the messages of a
 * broker. The commit of an effect removes the reject (truce__dead_letter_remove), so there is
 * nothing to acknowledge. A message that is refused again stays.
 */
#include "broker/dead_letters.h"

#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "bson/value.h"
#include "store/reserved_names.h"
#include "truce/store.h"

/* ---- the collection -------------------------------------------------------------------------- */

truce_status truce__dead_letter_add(truce_commit *commit, const char *consumer,
                                    const struct inbox_key *key,
                                    const struct broker_message *message, const char *reason,
                                    bson_error_t *error)
{
    bson_t document, found, record = BSON_INITIALIZER;
    bson_value_t id = truce__inbox_id(consumer, &key->reject, &document);
    truce_status status = truce_commit_read(commit, BROKER_REJECTS, &id, &found, error);

    if (status == TRUCE_NOT_FOUND) {
        BSON_APPEND_DOCUMENT(&record, "_id", &document);
        BSON_APPEND_UTF8(&record, "reason", reason);
        BSON_APPEND_DATE_TIME(&record, "time", truce__clock_wall_ms());
        BSON_APPEND_DOCUMENT(&record, "facts", &message->facts);
        BSON_APPEND_INT64(&record, "size", (int64_t)message->size);
        /* The body of a larger message is not stored, because the reject would exceed a
         * document. */
        if (message->size <= BROKER_BODY_MAX)
            BSON_APPEND_BINARY(&record, "body", BSON_SUBTYPE_BINARY, message->body,
                               (uint32_t)message->size);
        status = truce_commit_insert(commit, BROKER_REJECTS, &record, error);
    }
    bson_destroy(&record);
    bson_destroy(&found);
    bson_destroy(&document);
    return status;
}

truce_status truce__dead_letter_remove(truce_commit *commit, const bson_value_t *id, bool *gone,
                                       bson_error_t *error)
{
    bson_t found;
    truce_status status = truce_commit_read(commit, BROKER_REJECTS, id, &found, error);

    *gone = status == TRUCE_NOT_FOUND;
    bson_destroy(&found);
    if (*gone)
        return TRUCE_OK;
    return status ? status : truce_commit_remove(commit, BROKER_REJECTS, id, NULL, error);
}

/* ---- the replay ------------------------------------------------------------------------------ */

struct replay {
    truce_cursor *cursor;
    bool ended;
};

static truce_status replay_open(const struct broker_address *address,
                                const struct broker_open_options *open_options, void **broker,
                                bson_error_t *error)
{
    struct replay *replay = bson_malloc0(sizeof *replay);
    bson_t *filter = BCON_NEW("_id.consumer", BCON_UTF8(open_options->consumer));
    truce_status status =
        truce_find(open_options->store, BROKER_REJECTS, filter, NULL, &replay->cursor, error);

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

/* Returns the next reject as a message whose facts have its _id (REPLAY_FIELD). Never waits. */
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

static truce_status replay_waiting(void *arg, int64_t *count, int64_t *others, bson_error_t *error)
{
    const struct replay *replay = arg;

    (void)others, (void)error;
    *count = replay->ended ? 0 : 1;
    return TRUCE_OK;
}

const struct broker_ops truce__dead_letter_ops = {
    .open = replay_open,
    .close = replay_close,
    .receive = replay_receive,
    .acknowledge = replay_acknowledge,
    .waiting = replay_waiting,
};

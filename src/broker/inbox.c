#include "broker/inbox.h"

#include <inttypes.h>
#include <string.h>

#include "base/field.h"
#include "base/sha256.h"
#include "base/status.h"
#include "bson/binary_text.h"
#include "bson/value.h"
#include "store/reserved_names.h"
#include "store/store.h"
#include "truce/store.h"

#define INBOX_ID_BYTES_MAX 1024

/* ---- keys ------------------------------------------------------------------------------------ */

/* Appends the digest of a message's content. A message without an id and a position is recognized
 * in the rejects by its content. */
static void inbox_append_digest(bson_t *key, const struct broker_message *message)
{
    uint8_t digest[SHA256_BYTES];
    char text[2 * SHA256_BYTES + 1];

    truce__sha256(message->body, message->size, digest);
    truce__hex_show(digest, SHA256_BYTES, text);
    BSON_APPEND_UTF8(key, "sha256", text);
}

/* Checks the type of an id, and that a string or binary id has 1 to INBOX_ID_BYTES_MAX bytes. */
static truce_status inbox_check_id(const bson_value_t *id, bson_error_t *error)
{
    uint32_t size = 0;

    switch (id->value_type) {
    case BSON_TYPE_UTF8:
        size = id->value.v_utf8.len;
        break;
    case BSON_TYPE_BINARY:
        size = id->value.v_binary.data_len;
        break;
    case BSON_TYPE_INT32:
    case BSON_TYPE_INT64:
    case BSON_TYPE_OID:
    case BSON_TYPE_DATE_TIME:
    case BSON_TYPE_DECIMAL128:
        size = 1;
        break;
    default:
        return truce__fail(
            TRUCE_INVALID, error,
            "the id of the message has the type %s: expected a string, a whole number, an "
            "ObjectId, or "
            "binary data",
            truce__type_name((uint8_t)id->value_type));
    }
    return size >= 1 && size <= INBOX_ID_BYTES_MAX
               ? TRUCE_OK
               : truce__fail(TRUCE_INVALID, error,
                             "the id of the message has %u bytes: expected 1 to %d", size,
                             INBOX_ID_BYTES_MAX);
}

truce_status truce__inbox_key_make(const struct broker_message *message, const bson_value_t *id,
                                   struct inbox_key *key, bson_error_t *error)
{
    truce_status status = id->value_type ? inbox_check_id(id, error) : TRUCE_OK;

    memset(key, 0, sizeof *key);
    bson_init(&key->reject);
    key->time_ms = truce__field_date(&message->facts, "time");
    if (id->value_type && !status) {
        bson_value_copy(id, &key->id);
        BSON_APPEND_VALUE(&key->reject, "message", id);
        return TRUCE_OK;
    }
    if (message->position.stream)
        BCON_APPEND(&key->reject, "topic", BCON_UTF8(message->position.stream), "partition",
                    BCON_INT32(message->position.partition), "offset",
                    BCON_INT64(message->position.offset));
    else
        inbox_append_digest(&key->reject, message);
    return status;
}

void truce__inbox_key_release(struct inbox_key *key)
{
    if (key->id.value_type)
        bson_value_destroy(&key->id);
    bson_destroy(&key->reject);
}

static bson_value_t inbox_position_id(const char *consumer, const struct broker_position *position,
                                      bson_t *document)
{
    bson_t rest = BSON_INITIALIZER;
    bson_value_t id;

    BCON_APPEND(&rest, "topic", BCON_UTF8(position->stream), "partition",
                BCON_INT32(position->partition));
    id = truce__inbox_id(consumer, &rest, document);
    bson_destroy(&rest);
    return id;
}

/* ---- records --------------------------------------------------------------------------------- */

truce_status truce__inbox_prepare(truce_store *store, bson_error_t *error)
{
    bson_t *index = BCON_NEW("key", "{", "time", BCON_INT32(1), "}", "sparse", BCON_BOOL(true));
    truce_status status = truce__index_ensure(store, BROKER_INBOX, index, error);

    bson_destroy(index);
    return status;
}

/* Fails with EXPIRED if the time is below the stored horizon of the consumer (BI3). */
static truce_status inbox_check_horizon(truce_commit *commit, const char *consumer, int64_t time_ms,
                                        bson_error_t *error)
{
    bson_t document, found;
    bson_value_t id = truce__inbox_id(consumer, NULL, &document);
    truce_status status = truce_commit_read(commit, BROKER_INBOX, &id, &found, error);
    int64_t horizon_ms = status ? INT64_MIN : truce__field_date(&found, "horizon");

    bson_destroy(&found);
    bson_destroy(&document);
    if (status && status != TRUCE_NOT_FOUND)
        return status;
    /* Invariant BI3: the message has no record and is below the horizon: its record may have been
     * removed. */
    if (time_ms >= horizon_ms)
        return TRUCE_OK;
    return truce__fail(TRUCE_EXPIRED, error,
                       "the message has the time %" PRId64
                       " (ms since 1970), and consumer \"%s\" keeps records only since %" PRId64
                       ", so the message may have been applied before",
                       time_ms, consumer, horizon_ms);
}

truce_status truce__inbox_record(truce_commit *commit, const char *consumer,
                                 const struct inbox_key *key, bool *seen, bson_error_t *error)
{
    bson_t rest = BSON_INITIALIZER, document, found, record;
    bson_value_t id;
    truce_status status;

    BSON_APPEND_VALUE(&rest, "message", &key->id);
    id = truce__inbox_id(consumer, &rest, &document);
    status = truce_commit_read(commit, BROKER_INBOX, &id, &found, error);
    *seen = !status;
    if (status == TRUCE_NOT_FOUND)
        status =
            key->time_ms ? inbox_check_horizon(commit, consumer, key->time_ms, error) : TRUCE_OK;
    /* Invariant BI1: the record is part of the commit of the effect. */
    if (!status && !*seen) {
        bson_init(&record);
        BSON_APPEND_DOCUMENT(&record, "_id", &document);
        if (key->time_ms)
            BSON_APPEND_DATE_TIME(&record, "time", key->time_ms);
        status = truce_commit_insert(commit, BROKER_INBOX, &record, error);
        bson_destroy(&record);
    }
    bson_destroy(&found);
    bson_destroy(&document);
    bson_destroy(&rest);
    return status;
}

/* ---- positions ------------------------------------------------------------------------------- */

truce_status truce__inbox_position(truce_store *store, truce_commit *commit, const char *consumer,
                                   const struct broker_position *position, int64_t *next,
                                   bson_error_t *error)
{
    bson_t document, found, filter = BSON_INITIALIZER;
    bson_value_t id = inbox_position_id(consumer, position, &document);
    truce_status status;

    BSON_APPEND_DOCUMENT(&filter, "_id", &document);
    status = commit ? truce_commit_read(commit, BROKER_INBOX, &id, &found, error)
                    : truce_find_one(store, BROKER_INBOX, &filter, NULL, &found, error);
    *next = status ? -1 : truce__field_number(&found, "next");
    bson_destroy(&found);
    bson_destroy(&filter);
    bson_destroy(&document);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

truce_status truce__inbox_move(truce_commit *commit, const char *consumer,
                               const struct broker_position *position, int64_t stored,
                               bson_error_t *error)
{
    bson_t document, record = BSON_INITIALIZER;
    bson_value_t id = inbox_position_id(consumer, position, &document);
    truce_status status = TRUCE_OK;

    BSON_APPEND_DOCUMENT(&record, "_id", &document);
    BSON_APPEND_INT64(&record, "next", position->offset + 1);
    if (stored < 0) {
        status = truce_commit_insert(commit, BROKER_INBOX, &record, error);
    } else {
        /* Invariant BI2: another consumer may have moved the position further: never moves it
         * back. */
        if (position->offset >= stored)
            status = truce_commit_replace(commit, BROKER_INBOX, &id, NULL, &record, error);
    }
    bson_destroy(&record);
    bson_destroy(&document);
    return status;
}

/* ---- collecting ------------------------------------------------------------------------------ */

struct inbox_horizon {
    const char *consumer;
    int64_t ms;
};

/* Raises the horizon of a consumer; never lowers it (truce_commit_function). */
static truce_status inbox_raise(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct inbox_horizon *horizon = arg;
    bson_t document, found, record = BSON_INITIALIZER;
    bson_value_t id = truce__inbox_id(horizon->consumer, NULL, &document);
    truce_status status = truce_commit_read(commit, BROKER_INBOX, &id, &found, error);

    BSON_APPEND_DOCUMENT(&record, "_id", &document);
    BSON_APPEND_DATE_TIME(&record, "horizon", horizon->ms);
    if (status == TRUCE_NOT_FOUND)
        status = truce_commit_insert(commit, BROKER_INBOX, &record, error);
    else if (!status && truce__field_date(&found, "horizon") < horizon->ms)
        status = truce_commit_replace(commit, BROKER_INBOX, &id, NULL, &record, error);
    bson_destroy(&record);
    bson_destroy(&found);
    bson_destroy(&document);
    return status;
}

truce_status truce__inbox_collect(truce_store *store, const char *consumer, int64_t horizon_ms,
                                  bson_error_t *error)
{
    struct inbox_horizon horizon = {consumer, horizon_ms};
    truce_write_options options = {.multi = true};
    bson_t *filter = BCON_NEW("time", "{", "$lt", BCON_DATE_TIME(horizon_ms), "}", "_id.consumer",
                              BCON_UTF8(consumer), "_intent", BCON_NULL);
    truce_status status = TRUCE_OK;

    /* Invariant BI3: stores the horizon before it removes the records below it. */
    status = truce_transact(store, inbox_raise, &horizon, NULL, error);
    if (!status)
        status = truce_remove(store, BROKER_INBOX, filter, &options, NULL, error);
    bson_destroy(filter);
    return status;
}

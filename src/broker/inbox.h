#ifndef TRUCE_BROKER_INBOX_H
#define TRUCE_BROKER_INBOX_H

/*
 * The inbox: records of the messages that took effect. It is the collection truce_inbox.
 *
 *     {_id: {consumer: "shop", message: <id>}, time}       a message; `time` is the message's
 *     {_id: {consumer: "shop", topic, partition}, next}    the first offset that was not applied
 *     {_id: {consumer: "shop"}, horizon}                   messages before this time have no record
 *
 *  BI1  A record and the effect of its message are one commit. A message with a record has no
 *       effect.
 *  BI2  `next` never decreases, and moves over a message only in the commit of its effect or of its
 *       reject.
 *  BI3  The horizon is stored before the first record below it is removed. A commit reads the
 *       horizon, and a message below it is rejected. So a message whose record was removed never
 *       takes effect again, however late it comes.
 *
 * The model is models/broker.cpp. dead_letters.h has the rejected messages.
 */
#include <string.h>

#include "broker/broker.h"
#include "truce/commit.h"

/* The parts of a message by which it is recorded. */
struct inbox_key {
    /* The id of the message. If the type is 0, the message is recorded by its position, or not at
     * all. */
    bson_value_t id;
    /* Owned: {message: ID} of rejects, also for a message without an id. */
    bson_t reject;
    /* The time of the message in ms since 1970, or 0 if it is unknown. */
    int64_t time_ms;
};

/* Creates the index that finds old records. */
truce_status truce__inbox_prepare(truce_store *store, bson_error_t *error);

/* Makes the key. `id` may have type 0. Fails with INVALID if an id has a wrong type or size. `key`
 * is initialized in any case. */
truce_status truce__inbox_key_make(const struct broker_message *message, const bson_value_t *id,
                                   struct inbox_key *key, bson_error_t *error);
void truce__inbox_key_release(struct inbox_key *key);

/* Makes the _id {consumer, ...rest}, whose bytes are in `document`. `rest` may be NULL. */
static inline bson_value_t truce__inbox_id(const char *consumer, const bson_t *rest,
                                           bson_t *document)
{
    bson_value_t id;

    bson_init(document);
    BSON_APPEND_UTF8(document, "consumer", consumer);
    if (rest)
        bson_concat(document, rest);
    memset(&id, 0, sizeof id);
    id.value_type = BSON_TYPE_DOCUMENT;
    id.value.v_doc.data = (uint8_t *)bson_get_data(document);
    id.value.v_doc.data_len = document->len;
    return id;
}

/* Sets *seen if the message was recorded; otherwise adds its record to the commit. A message below
 * the horizon is EXPIRED. */
truce_status truce__inbox_record(truce_commit *commit, const char *consumer,
                                 const struct inbox_key *key, bool *seen, bson_error_t *error);

/* Returns the first offset of a partition that was not applied, or -1 if none is stored. `commit`
 * may be NULL. */
truce_status truce__inbox_position(truce_store *store, truce_commit *commit, const char *consumer,
                                   const struct broker_position *position, int64_t *next,
                                   bson_error_t *error);
/* Moves the position after this message. `stored` is the current one, which the commit has read. */
truce_status truce__inbox_move(truce_commit *commit, const char *consumer,
                               const struct broker_position *position, int64_t stored,
                               bson_error_t *error);

/* Removes the records of messages before `horizon_ms`, and makes later ones with such a time
 * rejects. */
truce_status truce__inbox_collect(truce_store *store, const char *consumer, int64_t horizon_ms,
                                  bson_error_t *error);

#endif

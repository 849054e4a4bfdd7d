#ifndef TRUCE_BROKER_DEAD_LETTERS_H
#define TRUCE_BROKER_DEAD_LETTERS_H

/*
 * Dead letters: messages that a consumer cannot apply (poison messages), with the reason. The
 * collection is truce_rejects, so a dead letter is called a reject:
 *
 *     {_id: {consumer, message}, reason, time, facts: {...}, size, body: <binary>}
 *
 * A body of more than BROKER_BODY_MAX bytes is not stored.
 */
#include "base/limits.h"
#include "broker/broker.h"
#include "broker/inbox.h"
#include "truce/commit.h"

/* A reject has the body and the facts in one document. */
#define BROKER_BODY_MAX (TRUCE_DOCUMENT_BYTES_MAX - 1024 * 1024)

/* The field of a replayed message with the `_id` of its reject. */
#define REPLAY_FIELD "reject"

/* Adds the message to the rejects, unless it is there. */
truce_status truce__dead_letter_add(truce_commit *commit, const char *consumer,
                                    const struct inbox_key *key,
                                    const struct broker_message *message, const char *reason,
                                    bson_error_t *error);

/* Removes the reject with this _id in the commit of its effect. Sets *gone to whether it was
 * removed before. */
truce_status truce__dead_letter_remove(truce_commit *commit, const bson_value_t *id, bool *gone,
                                       bson_error_t *error);

/* The rejects of open_options->consumer in open_options->store, as messages. It does not
 * publish. */
extern const struct broker_ops truce__dead_letter_ops;

#endif

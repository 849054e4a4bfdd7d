#ifndef TRUCE_BROKER_REJECT_REPLAY_H
#define TRUCE_BROKER_REJECT_REPLAY_H

#include "broker/broker.h"

/* The field of a replayed message with the `_id` of its reject. */
#define REPLAY_FIELD "reject"

/* The rejects of wishes->consumer in wishes->store. It does not publish. */
extern const struct broker_ops truce__replay_ops;

#endif

#ifndef TRUCE_BROKER_PLUGINS_AMQP_MESSAGE_H
#define TRUCE_BROKER_PLUGINS_AMQP_MESSAGE_H

/* Messages of RabbitMQ as documents: their properties, and headers of any type. */
#include <stdbool.h>
#include <stdint.h>

#include <amqp.h>

#include "broker/broker.h"

/* Makes a message from a delivery, which it copies. */
struct broker_message *amqp_message_make(const amqp_envelope_t *envelope);

/* Returns whether the message has the header of a stream. Sets `*offset` to its position there, or
 * to -1. */
bool amqp_message_offset(const struct broker_message *message, int64_t *offset);

#endif

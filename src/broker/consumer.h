#ifndef TRUCE_BROKER_CONSUMER_H
#define TRUCE_BROKER_CONSUMER_H

#include "broker/broker.h"
#include "truce/broker.h"

/* Does what truce_consume does. `ops` implements the broker; NULL means the implementation of the
 * URL's scheme. */
truce_status truce__consume(truce_store *store, const truce_consume_options *options,
                            const struct broker_ops *ops, truce_consume_counts *counts,
                            bson_error_t *error);

#endif

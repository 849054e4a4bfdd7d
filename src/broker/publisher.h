#ifndef TRUCE_BROKER_PUBLISHER_H
#define TRUCE_BROKER_PUBLISHER_H

#include "broker/broker.h"
#include "truce/broker.h"

/* As truce_publish, with an implementation of the broker; NULL: that of the URL's scheme. */
truce_status truce__publish(truce_store *store, const truce_publish_options *options,
                            const struct broker_ops *ops, truce_publish_counts *counts,
                            bson_error_t *error);

#endif

#ifndef TRUCE_BROKER_PUBLISHER_H
#define TRUCE_BROKER_PUBLISHER_H

#include "broker/broker.h"
#include "truce/broker.h"

struct engine;

/* Does what truce_publish does, with the engine whose feed is read, and with an implementation of
 * the broker. If they are NULL, those of the store and of the URL's scheme are used. */
truce_status truce__publish(truce_store *store, struct engine *engine,
                            const truce_publish_options *options, const struct broker_ops *ops,
                            truce_publish_counts *counts, bson_error_t *error);

#endif

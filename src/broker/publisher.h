#ifndef TRUCE_BROKER_PUBLISHER_H
#define TRUCE_BROKER_PUBLISHER_H

#include "broker/broker.h"
#include "truce/broker.h"

struct engine;

/* Does what truce_publish does. `engine` is the one whose feed is read, and `ops` implements the
 * broker. NULL means the engine of the store, and the implementation of the URL's scheme. */
truce_status truce__publish(truce_store *store, struct engine *engine,
                            const truce_publish_options *options, const struct broker_ops *ops,
                            truce_publish_counts *counts, bson_error_t *error);

#endif

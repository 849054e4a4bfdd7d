#ifndef TRUCE_TESTS_SUPPORT_HOOKED_H
#define TRUCE_TESTS_SUPPORT_HOOKED_H

/* Runs a function of the test before each call of a store that reads or changes documents. */
#include "truce/sys/store.h"

static const truce_store_ops *plain_ops;
static truce_store_ops hooked_ops;
static void (*hooked_before)(truce_store *store);

static truce_status hooked_find(truce_store *store, const char *collection, const bson_t *filter,
                                const truce_find_options *options, truce_cursor **cursor,
                                bson_error_t *error)
{
    hooked_before(store);
    return plain_ops->find(store, collection, filter, options, cursor, error);
}

static truce_status hooked_bulk(truce_store *store, const truce_write *writes, size_t count,
                                const truce_bulk_options *options, truce_write_outcome *outcomes,
                                bson_error_t *error)
{
    hooked_before(store);
    return plain_ops->bulk(store, writes, count, options, outcomes, error);
}

static truce_status hooked_modify(truce_store *store, const char *collection, const bson_t *filter,
                                  const bson_t *update, const truce_modify_options *options,
                                  bson_t *document, truce_write_result *result, bson_error_t *error)
{
    hooked_before(store);
    return plain_ops->find_and_modify(store, collection, filter, update, options, document, result,
                                      error);
}

/* Makes hooked_ops of the store's own, plain_ops, and changes nothing of the store. */
static inline void hooked_make(const truce_store *store, void (*before)(truce_store *store))
{
    plain_ops = store->ops;
    hooked_ops = *plain_ops;
    hooked_ops.find = hooked_find;
    hooked_ops.bulk = hooked_bulk;
    hooked_ops.find_and_modify = hooked_modify;
    hooked_before = before;
}

#endif

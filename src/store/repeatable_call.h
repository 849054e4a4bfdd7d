#ifndef TRUCE_STORE_REPEATABLE_CALL_H
#define TRUCE_STORE_REPEATABLE_CALL_H

#include "base/status.h"
#include "truce/sys/store.h"

/* Returns whether repeating an idempotent call of the store now may succeed. Within a transaction,
 * no repeat can: it would read the same snapshot, and lose to the same write of another client. The
 * caller must run the whole transaction again (store/overlay/transaction_overlay.h). */
static inline bool truce__store_repeatable(const truce_store *store, truce_status status)
{
    return truce__repeatable(status) && !(store->capabilities & TRUCE_IS_TRANSACTION);
}

#endif

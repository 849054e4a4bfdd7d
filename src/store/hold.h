#ifndef TRUCE_STORE_HOLD_H
#define TRUCE_STORE_HOLD_H

/* Who closes last, a store or one of its cursors, closes the store itself. */
#include "truce/sys/store.h"

/* A cursor was opened: the store stays until truce__store_let_go with its `hold`. */
void truce__store_hold(truce_store *store, truce_cursor *cursor);
void truce__store_let_go(truce_store *store, uint32_t place);
/* Of a store that a cursor holds: was it closed? */
bool truce__store_is_closed(const truce_store *store);

#endif

#ifndef TRUCE_STORE_SETTLE_WAIT_H
#define TRUCE_STORE_SETTLE_WAIT_H

/* The wait after a change that other processes notice by themselves, within a known time: a new
 * rule of copies, or a new index of keys. Without the wait, a call could return before every
 * process follows the rule. */
#include "truce/store.h"

/* Checks before the change that the deadline of the thread leaves time for the wait. Fails with
 * TIMEOUT if it does not; then nothing was changed. */
truce_status truce__settle_check(uint32_t settle_ms, bson_error_t *error);

/* Waits for that time. Fails with UNKNOWN if the store is interrupted, for example because the
 * server stops: the change is stored, but some processes may not have noticed it. */
truce_status truce__settle_wait(const truce_store *store, uint32_t settle_ms, bson_error_t *error);

#endif

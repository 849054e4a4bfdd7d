#ifndef TRUCE_BROKER_RECONNECT_H
#define TRUCE_BROKER_RECONNECT_H

/* The retries of consumers and publishers. */
#include <stdbool.h>
#include <stdint.h>

#include "truce/status.h"

#define BROKER_WAIT_MS 250 /* The longest wait before `stop` is called again. */

/* Returns whether a new connection may help. */
bool truce__broker_may_retry(truce_status status);

/* Sleeps before the next connection, until `stops` returns true. Retries count from 0. */
void truce__broker_back_off(uint32_t retry, bool (*stops)(void *arg), void *arg);

#endif

#include "broker/reconnect.h"

#include "base/backoff.h"
#include "base/clock.h"
#include "base/status.h"

#define BACKOFF_MS     100
#define BACKOFF_MAX_MS 10000

bool truce__broker_may_retry(truce_status status)
{
    return truce__unanswered(status) || truce__repeatable(status) || status == TRUCE_LOCKED ||
           status == TRUCE_TIMEOUT;
}

void truce__broker_back_off(uint32_t retry, bool (*stops)(void *arg), void *arg)
{
    int64_t left_ms = BACKOFF_MS + truce__backoff_ms(retry, BACKOFF_MS, BACKOFF_MAX_MS);

    while (left_ms > 0 && !stops(arg)) {
        truce__clock_sleep_ms(left_ms < BROKER_WAIT_MS ? left_ms : BROKER_WAIT_MS);
        left_ms -= BROKER_WAIT_MS;
    }
}

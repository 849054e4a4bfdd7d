/*
 * Waiting for a change. The store cannot tell whether there was one (it has no TRUCE_CAN_WAIT), so a
 * wait ends INTERVAL after its token was filled, and the caller looks: that may wake without a
 * change, and never misses one. A token is the monotonic time at which it was filled.
 */
#include "store/mongo.h"

#include "base/clock.h"

#define INTERVAL_MS 250

truce_status truce__mongo_wait(truce_store *base, const char *collection, uint64_t *token,
                               uint32_t timeout_ms, bson_error_t *error)
{
    int64_t now_ns = truce__clock_monotonic_ns();
    int64_t left_ms = INTERVAL_MS - (now_ns - (int64_t)*token) / 1000000;

    (void)base;
    if (*token && left_ms > (int64_t)timeout_ms) {
        truce__clock_sleep_ms(timeout_ms);
        return truce__fail(TRUCE_TIMEOUT, error, "nothing is known of %s after %u ms", collection,
                           timeout_ms);
    }
    if (*token && left_ms > 0)
        truce__clock_sleep_ms(left_ms);
    *token = (uint64_t)truce__clock_monotonic_ns();
    return TRUCE_OK;
}

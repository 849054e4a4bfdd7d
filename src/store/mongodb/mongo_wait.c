/*
 * Waiting for a change, where the server has change streams (mongo_listen.c) and where it has not.
 *
 * Without them the store cannot tell whether there was a change (it has no TRUCE_CAN_WAIT), so a wait
 * ends some time after its token was filled, and the caller looks: that may wake without a change, and
 * never misses one. The time doubles from wait to wait, from SHORTEST_MS to LONGEST_MS. A caller that
 * stays away for longer than its last wait had found something to do: it begins with the shortest again.
 *
 *     token: the monotonic time at which it was filled, in microseconds << 4 | how often it was doubled
 */
#include "store/mongodb/mongo.h"

#include "base/clock.h"

#define SHORTEST_MS 10
#define LONGEST_MS  500
#define STEPS       6 /* 10 << 6 is past LONGEST_MS */

static int64_t interval_us(uint64_t steps)
{
    int64_t interval_ms = (int64_t)SHORTEST_MS << steps;

    return (interval_ms < LONGEST_MS ? interval_ms : LONGEST_MS) * 1000;
}

static uint64_t make_token(int64_t now_us, uint64_t steps)
{
    return (uint64_t)now_us << 4 | steps;
}

static truce_status sleep_for(const truce_store *store, int64_t duration_ms, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    while (duration_ms > 0 && !status) {
        truce__clock_sleep_ms(duration_ms < INTERRUPT_MS ? duration_ms : INTERRUPT_MS);
        duration_ms -= INTERRUPT_MS;
        status = truce__store_interrupted(store, error);
    }
    return status;
}

static truce_status poll_for(const truce_store *store, const char *collection, uint64_t *token,
                             uint32_t timeout_ms, bson_error_t *error)
{
    uint64_t steps = *token & 15;
    int64_t filled_us = (int64_t)(*token >> 4), now_us = truce__clock_monotonic_ns() / 1000;
    int64_t left_us = filled_us + interval_us(steps) - now_us;
    truce_status status = TRUCE_OK;

    if (!*token) {
        *token = make_token(now_us, 0);
        return TRUCE_OK;
    }
    if (left_us > (int64_t)timeout_ms * 1000) {
        status = sleep_for(store, timeout_ms, error);
        return status ? status
                      : truce__fail(TRUCE_TIMEOUT, error, "nothing is known of %s after %u ms",
                                    collection, timeout_ms);
    }
    if (left_us > 0)
        status = sleep_for(store, (left_us + 999) / 1000, error);
    if (status)
        return status;
    steps = left_us <= 0 ? 0 : steps < STEPS ? steps + 1 : STEPS;
    *token = make_token(truce__clock_monotonic_ns() / 1000, steps);
    return TRUCE_OK;
}

truce_status truce__mongo_wait(truce_store *base, const char *collection, uint64_t *token,
                               uint32_t timeout_ms, bson_error_t *error)
{
    struct mongo_store *store = (struct mongo_store *)base;

    return store->listener ? truce__mongo_listener_wait(store->listener, base, collection, token,
                                                        timeout_ms, error)
                           : poll_for(base, collection, token, timeout_ms, error);
}

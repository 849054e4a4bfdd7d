#include "store/settle_wait.h"

#include "base/clock.h"
#include "base/deadline.h"
#include "base/status.h"
#include "store/store.h"

truce_status truce__settle_check(uint32_t settle_ms, bson_error_t *error)
{
    int64_t until_ns = truce__deadline();

    if (!until_ns || truce__clock_monotonic_ns() + settle_ms * INT64_C(1000000) <= until_ns)
        return TRUCE_OK;
    return truce__fail(
        TRUCE_TIMEOUT, error,
        "the call waits %u ms until other processes have noticed the change, and its "
        "deadline is earlier: nothing was changed",
        (unsigned)settle_ms);
}

truce_status truce__settle_wait(const truce_store *store, uint32_t settle_ms, bson_error_t *error)
{
    int64_t until_ns = truce__clock_monotonic_ns() + settle_ms * INT64_C(1000000);
    int64_t left_ms = settle_ms;

    while (left_ms > 0) {
        bson_error_t ignored;

        if (truce__store_interrupted(store, &ignored))
            return truce__fail(
                TRUCE_UNKNOWN, error,
                "the change is stored, but the wait for other processes to notice it "
                "was interrupted");
        truce__clock_sleep_ms(left_ms < INTERRUPT_MS ? left_ms : INTERRUPT_MS);
        left_ms = (until_ns - truce__clock_monotonic_ns()) / 1000000;
    }
    return TRUCE_OK;
}

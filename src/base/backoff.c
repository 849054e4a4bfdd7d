#include "base/backoff.h"

#include "base/clock.h"
#include "base/random.h"

int64_t truce__backoff_ms(uint32_t retry, uint32_t first_ms, uint32_t max_ms)
{
    uint64_t limit_ms = (uint64_t)first_ms << (retry < 32 ? retry : 32);

    if (limit_ms > max_ms)
        limit_ms = max_ms;
    return limit_ms ? (int64_t)(truce__random_entropy() % limit_ms) : 0;
}

void truce__backoff_sleep(uint32_t retry, uint32_t first_ms, uint32_t max_ms)
{
    truce__clock_sleep_ms(truce__backoff_ms(retry, first_ms, max_ms));
}

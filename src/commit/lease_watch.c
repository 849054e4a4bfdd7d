#include "commit/lease_watch.h"

#include "base/clock.h"
#include "base/field.h"
#include "base/fingerprint.h"
#include "bson/value.h"

/* The number of slots of a new table, and the maximum (CW3). */
#define SIZE_FIRST ((size_t)64)
#define SIZE_MOST  ((size_t)1 << 20)
/* A rebuild drops the watches that were not used for this time (CW1). */
#define STALE_NS (INT64_C(3600) * 1000000000)
#define REBUILD_NS                                                                                 \
    (INT64_C(60) * 1000000000) /* The minimum time between two rebuilds of a full table. */

/* A slot of the table. A search starts at the slot that the thing's hash gives. A free slot has the
 * thing 0. */
struct watch {
    /* The hash of the lease's kind and id, and the state in which it was seen last. */
    uint64_t thing, state;
    /* When the thing was first seen in this state, and when it was last seen, by the monotonic
     * clock. */
    int64_t since_ns, last_ns;
};

uint64_t truce__watch_hash(uint64_t hash, const void *bytes, size_t size)
{
    struct fingerprint print = {0};
    uint64_t both[2] = {hash, 0};

    truce__fingerprint_add(&print, bytes, size);
    both[1] = print.low;
    print = (struct fingerprint){0};
    truce__fingerprint_add(&print, both, sizeof both);
    return print.low;
}

/* Returns the slot of the thing, or the free slot for it. There is always a free slot. */
static struct watch *watch_find(const struct watches *watches, uint64_t thing)
{
    size_t i = (size_t)thing & (watches->size - 1);

    while (watches->slots[i].thing && watches->slots[i].thing != thing)
        i = (i + 1) & (watches->size - 1);
    return &watches->slots[i];
}

static bool watch_is_full(const struct watches *watches)
{
    return (watches->count + 1) * 4 > watches->size * 3;
}

static bool watch_is_current(const struct watch *watch, int64_t now_ns)
{
    return watch->thing && now_ns - watch->last_ns < STALE_NS; /* CW1 */
}

/* Copies the watches that are not stale into a table with room for as many again. */
static void watches_rebuild(struct watches *watches, int64_t now_ns)
{
    struct watches old = *watches;
    size_t kept = 0;

    for (size_t i = 0; i < old.size; i++)
        kept += watch_is_current(&old.slots[i], now_ns);
    *watches = (struct watches){.size = SIZE_FIRST, .rebuilt_ns = now_ns};
    while (watches->size < SIZE_MOST && kept * 2 > watches->size)
        watches->size *= 2;
    watches->slots = bson_malloc0(watches->size * sizeof *watches->slots);
    for (size_t i = 0; i < old.size; i++) {
        if (watch_is_current(&old.slots[i], now_ns)) {
            *watch_find(watches, old.slots[i].thing) = old.slots[i];
            watches->count++;
        }
    }
    bson_free(old.slots);
}

int64_t truce__watches_see(struct watches *watches, uint64_t thing, uint64_t state, int64_t now_ns)
{
    struct watch *watch;

    thing += !thing;
    if (!watches->size)
        watches_rebuild(watches, now_ns);
    watch = watch_find(watches, thing);
    if (!watch->thing) {
        if (watch_is_full(watches) &&
            (watches->size < SIZE_MOST || now_ns - watches->rebuilt_ns >= REBUILD_NS))
            watches_rebuild(watches, now_ns);
        if (watch_is_full(watches))
            return now_ns; /* CW3 */
        watch = watch_find(watches, thing);
        watches->count++;
    }
    if (!watch->thing || watch->state != state)
        *watch = (struct watch){.thing = thing, .state = state, .since_ns = now_ns};
    watch->last_ns = now_ns;
    return watch->since_ns;
}

bool truce__lease_seen(const bson_t *lease, int64_t end, int64_t *seen_ns)
{
    const char *clock = truce__clock_name();
    bson_t seen, one;

    if (!clock || !truce__value_subdocument(lease, "seen", &seen) ||
        !truce__value_subdocument(&seen, clock, &one) || !bson_has_field(&one, "end"))
        return false;
    *seen_ns = truce__field_number(&one, "ns");
    return truce__field_number(&one, "end") == end && *seen_ns > 0 &&
           *seen_ns <= truce__clock_monotonic_ns();
}

void truce__lease_append_seen(int64_t end, bson_t *set)
{
    char *path = bson_strdup_printf("lease.seen.%s", truce__clock_name());
    bson_t seen;

    BSON_APPEND_DOCUMENT_BEGIN(set, path, &seen);
    BSON_APPEND_INT64(&seen, "end", end);
    BSON_APPEND_INT64(&seen, "ns", truce__clock_monotonic_ns());
    bson_append_document_end(set, &seen);
    bson_free(path);
}

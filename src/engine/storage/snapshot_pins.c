/*
 * The slots of snapshot pins in the shared page.
 *
 *     slot 0    | process | count | unlimited | since | log_at |      claimed: the store is open
 *     slot 1    | ...                                                 not claimed: ignored
 *
 * A store claims a slot with its first long read and keeps it until it is closed. The claim is the
 * kernel's and ends with the process, so the slot of a dead process is ignored. If all slots are
 * taken, long reads still work, but are not shown.
 *
 * Invariants:
 *  1. A slot counts only while it is claimed.
 *  2. Only the claim's owner writes to a slot.
 *  3. The slots do not affect what is in the file. A wrong number (after a power cut any is
 *     possible) makes a checkpoint try without success, or ends a read early or late.
 */
#include "engine/storage/snapshot_pins.h"

#include <unistd.h>

#include "base/clock.h"

static int64_t pins_number_of(size_t slot)
{
    return LOCK_PINS + (int64_t)slot;
}

static void pin_clear(struct lock_pin *slot)
{
    atomic_store(&slot->count, 0);
    atomic_store(&slot->unlimited, 0);
}

void truce__pins_release(struct pins *pins)
{
    if (pins->slot)
        pin_clear(pins->slot);
    truce__lock_disclaim(pins->claim);
    pins->slot = NULL;
    pins->claim = -1;
}

static void pins_claim_slot(struct pins *pins)
{
    pins->tried = true;
    for (size_t i = 0; i < PIN_SLOTS && pins->claim < 0; i++) {
        pins->claim = truce__lock_claim(pins->lock, pins_number_of(i));
        if (pins->claim >= 0)
            pins->slot = &pins->lock->page->pins[i];
    }
    if (!pins->slot)
        return;
    pin_clear(pins->slot);
    atomic_store(&pins->slot->process, getpid());
}

void truce__pins_describe(struct pins *pins, const struct pin_facts *facts)
{
    if (!pins->lock->page)
        return;
    if (!pins->tried)
        pins_claim_slot(pins);
    if (!pins->slot)
        return;
    atomic_store(&pins->slot->since_ms, facts->since_ms);
    atomic_store(&pins->slot->log_at, facts->log_at);
    atomic_store(&pins->slot->unlimited, facts->unlimited);
    atomic_store(&pins->slot->count, facts->count);
}

static bool pins_read_slot(const struct lock *lock, size_t number, struct pin_facts *facts)
{
    struct lock_pin *slot = &lock->page->pins[number];

    *facts = (struct pin_facts){.process = atomic_load(&slot->process),
                                .count = atomic_load(&slot->count),
                                .unlimited = atomic_load(&slot->unlimited),
                                .since_ms = atomic_load(&slot->since_ms),
                                .log_at = atomic_load(&slot->log_at)};
    facts->log_behind = truce__pins_log(lock) - facts->log_at;
    return facts->count && truce__lock_is_claimed(lock, pins_number_of(number));
}

size_t truce__pins_list(const struct lock *lock, struct pin_facts *facts, size_t room)
{
    size_t count = 0;

    for (size_t i = 0; lock->page && i < PIN_SLOTS && count < room; i++) {
        if (pins_read_slot(lock, i, &facts[count]))
            count++;
    }
    return count;
}

bool truce__pins_unlimited(const struct lock *lock)
{
    struct pin_facts facts;
    bool found = false;

    for (size_t i = 0; lock->page && i < PIN_SLOTS && !found; i++)
        found = atomic_load(&lock->page->pins[i].unlimited) && pins_read_slot(lock, i, &facts);
    return found;
}

bool truce__pins_blocking(const struct lock *lock)
{
    struct pin_facts facts;
    bool found = false;

    for (size_t i = 0; lock->page && i < PIN_SLOTS && !found; i++)
        found = atomic_load(&lock->page->pins[i].count) && pins_read_slot(lock, i, &facts) &&
                facts.log_behind;
    return found;
}

uint64_t truce__pins_log(const struct lock *lock)
{
    return lock->page ? atomic_load(&lock->page->log_written) * PIN_PAGE_BYTES : 0;
}

uint64_t truce__pins_log_length(const struct lock *lock)
{
    return lock->page ? (uint64_t)atomic_load(&lock->page->log_pages) * PIN_PAGE_BYTES : 0;
}

/* Adds the pages that were written to the log since the last call. If the length is not greater
 * than before, the log has begun again. */
void truce__pins_note_log(struct lock *lock, int pages)
{
    unsigned before = atomic_load(&lock->page->log_pages), now = pages < 0 ? 0 : (unsigned)pages;

    atomic_fetch_add(&lock->page->log_written, now > before ? now - before : now);
    atomic_store(&lock->page->log_pages, now);
}

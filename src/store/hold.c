/*
 * Short reads open and close cursors millions of times a second, so threads count them in places of their
 * own: one place for all would go to and fro between the processors.
 *
 * Once the store was closed each place ends once: by the store if it counts nothing, else by the last of its
 * cursors. Who ends the last place closes the store itself.
 */
#include "store/hold.h"

#include "base/assert.h"

#define HOLD_PLACES 16
enum { HOLD_CLOSED = 1, HOLD_CURSOR = 2 };

struct truce_holds {
    struct {
        uint32_t count; /* twice the cursors, and 1: the store was closed */
        uint8_t apart[60];
    } places[HOLD_PLACES];
    uint32_t ended; /* places */
    bool closed;
};

static void close_now(truce_store *store)
{
    if (store->memo)
        store->memo->free(store->memo);
    store->memo = NULL;
    bson_free(store->holds);
    store->holds = NULL;
    store->ops->close(store);
}

static void end_places(truce_store *store, uint32_t count)
{
    struct truce_holds *holds = __atomic_load_n(&store->holds, __ATOMIC_ACQUIRE);

    if (__atomic_add_fetch(&holds->ended, count, __ATOMIC_ACQ_REL) == HOLD_PLACES)
        close_now(store);
}

void truce_store_close(truce_store *store)
{
    struct truce_holds *holds;
    uint32_t ended = 0;

    if (!store)
        return;
    holds = __atomic_load_n(&store->holds, __ATOMIC_ACQUIRE);
    if (!holds) {
        close_now(store);
        return;
    }
    truce_assert(!__atomic_exchange_n(&holds->closed, true, __ATOMIC_ACQ_REL));
    for (int i = 0; i < HOLD_PLACES; i++)
        ended += !__atomic_fetch_or(&holds->places[i].count, HOLD_CLOSED, __ATOMIC_ACQ_REL);
    if (ended)
        end_places(store, ended);
}

static struct truce_holds *holds_of(truce_store *store)
{
    struct truce_holds *holds = __atomic_load_n(&store->holds, __ATOMIC_ACQUIRE), *made;

    if (holds)
        return holds;
    made = bson_malloc0(sizeof *made);
    if (__atomic_compare_exchange_n(&store->holds, &holds, made, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
        return made;
    bson_free(made); /* another thread was first */
    return holds;
}

void truce__store_hold(truce_store *store, truce_cursor *cursor)
{
    static uint32_t threads;
    static __thread uint32_t own; /* the thread's place, plus one */

    if (!own)
        own = 1 + __atomic_fetch_add(&threads, 1, __ATOMIC_RELAXED) % HOLD_PLACES;
    cursor->store = store;
    cursor->hold = own - 1;
    (void)__atomic_add_fetch(&holds_of(store)->places[own - 1].count, HOLD_CURSOR,
                             __ATOMIC_ACQ_REL);
}

void truce__store_let_go(truce_store *store, uint32_t place)
{
    if (__atomic_sub_fetch(&holds_of(store)->places[place].count, HOLD_CURSOR, __ATOMIC_ACQ_REL) ==
        HOLD_CLOSED)
        end_places(store, 1);
}

bool truce__store_is_closed(const truce_store *store)
{
    const struct truce_holds *holds = __atomic_load_n(&store->holds, __ATOMIC_ACQUIRE);

    return __atomic_load_n(&holds->closed, __ATOMIC_ACQUIRE);
}

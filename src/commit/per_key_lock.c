#include "commit/per_key_lock.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "base/clock.h"
#include "base/environment.h"
#include "base/limits.h"
#include "commit/entry.h"

/*
 * Turns. Of many threads that read, think and write one document, one is first and all others have worked for
 * nothing. So who has lost on a document waits until those who lost on it before have ended their try, and who
 * comes new to a document that is waited for, waits behind them before it reads.
 *
 *   Q1  Nothing is right because of a turn: every write compares what was read, as without. Other processes, and other
 *       handles of the store, know nothing of it.
 *   Q2  It is bounded: a place in the line is left after COMMIT_TURN_MS, and the try is made without the turn. A
 *       function that thinks for longer than that keeps others up for so long once a try.
 *   Q3  A commit has one turn at most, and waits for none while it has one; nor does its thread, whose function
 *       may run another commit. So nobody waits for ever for one who waits for him.
 *   Q4  Which document it is, is a hash: two may share a turn, and wait for each other a little.
 *   Q5  Turns belong to the open store, so a child process, which opens its own, has its own.
 *   Q6  The turn ends when the write is done, before it is on the disk: the next one reads it all the same (an early
 *       look), and the log keeps their order. Nobody is told anything before he has waited for the disk:
 *       OK is answered behind a write that has waited for all that was read, and everything else, and the
 *       OK of a write in a turn, behind truce_settle (transact.c).
 *   Q7  In memory a try that was for nothing costs less than to be called: there are no turns there.
 *   Q8  In a world that is simulated one thread is everybody: there are no turns.
 */

#define PLACES 64 /* a power of two */

struct waiter {
    struct waiter *next;
    pthread_cond_t called;
    bool granted;
};

struct place {
    pthread_mutex_t mutex;
    struct waiter *first, **end;
    bool taken; /* read without the mutex, too */
};

struct turns {
    struct place places[PLACES];
};

static _Thread_local uint32_t held_here; /* Q3 */

struct turns *truce__turns_new(void)
{
    struct turns *turns = bson_malloc0(sizeof *turns);

    for (uint32_t i = 0; i < PLACES; i++) {
        pthread_mutex_init(&turns->places[i].mutex, NULL);
        turns->places[i].end = &turns->places[i].first;
    }
    return turns;
}

void truce__turns_free(struct turns *turns)
{
    for (uint32_t i = 0; turns && i < PLACES; i++)
        pthread_mutex_destroy(&turns->places[i].mutex);
    bson_free(turns);
}

uint32_t truce__turn_place(const struct entry *entry)
{
    return (uint32_t)truce__entry_hash(entry) & (PLACES - 1);
}

bool truce__turn_busy(const struct turns *turns, uint32_t place)
{
    return __atomic_load_n(&turns->places[place].taken, __ATOMIC_RELAXED);
}

static void set_taken(struct place *place, bool taken)
{
    __atomic_store_n(&place->taken, taken, __ATOMIC_RELAXED);
}

static void leave_line(struct place *place, const struct waiter *waiter)
{
    struct waiter **at = &place->first;

    while (*at != waiter)
        at = &(*at)->next;
    *at = waiter->next;
    if (place->end == &waiter->next)
        place->end = at;
}

/* With the mutex held. False: the time was over (Q2). */
static bool stand_in_line(struct place *place, const struct timespec *until)
{
    struct waiter waiter = {.next = NULL};
    pthread_condattr_t attributes;
    int status = 0;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&waiter.called, &attributes);
    pthread_condattr_destroy(&attributes);
    *place->end = &waiter;
    place->end = &waiter.next;
    while (!waiter.granted && status != ETIMEDOUT)
        status = pthread_cond_timedwait(&waiter.called, &place->mutex, until);
    if (!waiter.granted)
        leave_line(place, &waiter);
    pthread_cond_destroy(&waiter.called);
    return waiter.granted;
}

void truce__turn_take(struct commit_turn *turn, struct turns *turns, uint32_t place,
                      int64_t until_ns)
{
    struct place *at = &turns->places[place];
    int64_t most_ns = truce__clock_monotonic_ns() + COMMIT_TURN_MS * INT64_C(1000000);
    struct timespec until;

    if (turn->held && turn->place == place)
        return;
    truce__turn_give(turn);
    if (held_here || truce__world())
        return;
    until_ns = until_ns < most_ns ? until_ns : most_ns;
    until = (struct timespec){until_ns / 1000000000, until_ns % 1000000000};
    pthread_mutex_lock(&at->mutex);
    *turn = (struct commit_turn){turns, place, !at->taken || stand_in_line(at, &until)};
    set_taken(at, true);
    pthread_mutex_unlock(&at->mutex);
    held_here += turn->held;
}

void truce__turn_give(struct commit_turn *turn)
{
    struct place *at;
    struct waiter *next;

    if (!turn->held)
        return;
    at = &turn->turns->places[turn->place];
    turn->held = false;
    held_here--;
    pthread_mutex_lock(&at->mutex);
    next = at->first;
    if (next) {
        at->first = next->next;
        if (!at->first)
            at->end = &at->first;
        next->granted = true;
        pthread_cond_signal(&next->called);
    }
    set_taken(at, next != NULL);
    pthread_mutex_unlock(&at->mutex);
}

#ifndef TRUCE_TESTS_SUPPORT_LIFE_H
#define TRUCE_TESTS_SUPPORT_LIFE_H

/*
 * The life of a file that ends badly: workers do step after step, their acknowledgements are noted,
 * and then
 *
 *     the power goes     at a random write or sync; a possible state of the disk is opened again,
 *                        several times
 *     they are killed    processes, with -9 and all the time; the file is opened again after so
 *                        many answers
 *
 * Then the file is checked.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/random.h"
#include "truce/store.h"

struct life {
    int workers;
    bool (*begin)(truce_store *store); /* false: it failed, and reported why */
    /* Returns the acknowledged number, above zero; 0: nothing was acknowledged; below: this
     * worker does no more. A process that follows a killed one repeats the step that had no
     * answer. */
    int64_t (*step)(truce_store *store, int worker, int number);
    /* receives an acknowledged number of a step; called from several threads */
    void (*reported)(int worker, int64_t answer);
    void (*judge)(truce_store *store);
};

/* The disk that can be cut, once for a program, before any store is opened. */
void life_install(void);

void life_power_cut(const struct life *life, struct random *random);

void life_kill(const struct life *life, long answers);

#endif

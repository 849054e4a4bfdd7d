#ifndef TRUCE_TESTS_SUPPORT_LIFE_H
#define TRUCE_TESTS_SUPPORT_LIFE_H

/*
 * The crash tests of a file: workers run steps, their acknowledgements are recorded, and then
 *
 *     the power is cut   at a random write or sync; several possible states of the disk are opened
 *                        again
 *     they are killed    the workers are processes that are killed with -9 all the time; the file
 *                        is opened again after `answers` acknowledgements
 *
 * Then the file is checked.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/random.h"
#include "truce/store.h"

struct life {
    /* The number of workers, at most 8: threads of a power cut, or processes that are killed. */
    int workers;
    /* Prepares the store. Returns false if it fails; it has then failed the test. */
    bool (*begin)(truce_store *store);
    /* Returns the acknowledged number, which is above zero; 0 if nothing was acknowledged; a
     * negative number if the worker ends. A process that replaces a killed one repeats the step
     * that had no reply. */
    int64_t (*step)(truce_store *store, int worker, int number);
    /* Receives the acknowledged number of a step. Several threads may call it. */
    void (*reported)(int worker, int64_t answer);
    /* Checks a store that was opened again after the interruption. A fault fails the test. */
    void (*judge)(truce_store *store);
};

/* Installs the simulated disk. Called once for a program, before any store is opened. */
void life_install(void);

void life_power_cut(const struct life *life, struct random *random);

void life_kill(const struct life *life, long answers);

#endif

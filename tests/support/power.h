#ifndef TRUCE_TESTS_SUPPORT_POWER_H
#define TRUCE_TESTS_SUPPORT_POWER_H

/*
 * The life of a file that ends in a power cut: threads work on it until the disk is cut at a random write or sync; what the disk could
 * hold then is opened again, several times with different luck, and judged. Needs disk_install before any store is opened.
 */
#include <stdbool.h>

#include "base/random.h"
#include "truce/store.h"

struct power_life {
    bool (*begin)(truce_store *store);            /* false: it failed, and said so */
    void (*work)(truce_store *store, int worker); /* in a thread of its own, until disk_is_cut() */
    void (*judge)(truce_store *store);
    int workers;
};

void power_cut(const struct power_life *life, struct random *random);

#endif

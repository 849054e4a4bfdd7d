#ifndef TRUCE_TESTS_SUPPORT_WIRE_COMMITS_H
#define TRUCE_TESTS_SUPPORT_WIRE_COMMITS_H

/* Commits of several documents, and of one, as operations whose messages are corrupted. */
#include "tests/support/wire.h"

enum { WIRE_JOURNAL, WIRE_NATIVE, WIRE_KEY, WIRE_ONE, WIRE_COMMITS };
extern const struct wire_operation wire_commits[WIRE_COMMITS];

/* Sweeps the store until no commit is unfinished. */
void wire_sweep(truce_store *store);

#endif

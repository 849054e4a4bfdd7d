#ifndef TRUCE_BENCH_SCALE_SIDECAR_H
#define TRUCE_BENCH_SCALE_SIDECAR_H

/* Compares the model with `truce serve mongodb://` in front of a server. */
#include "bench/scale_delay.h"

/* Compares the operations whose names contain one of `only`, or all operations if it is empty. */
int scale_sidecar_compare(struct scale_delay *network, const char *program, int count, char **only);

#endif

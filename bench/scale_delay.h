#ifndef TRUCE_BENCH_SCALE_DELAY_H
#define TRUCE_BENCH_SCALE_DELAY_H

/* A network before a server: what goes through it comes later, and is counted. */
#include <stdint.h>

struct scale_delay;

/* Listens on a port of its own, for a server on this machine. */
struct scale_delay *scale_delay_start(int server_port);
int scale_delay_port(const struct scale_delay *delay);
/* There and back, from now on. */
void scale_delay_set(struct scale_delay *delay, int64_t trip_ns);
/* Both ways, since it was started. */
int64_t scale_delay_bytes(struct scale_delay *delay);

#endif

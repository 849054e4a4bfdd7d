#ifndef TRUCE_BENCH_SCALE_DELAY_H
#define TRUCE_BENCH_SCALE_DELAY_H

/* A simulated network in front of a server: it delays and counts the bytes. */
#include <stdint.h>

struct scale_delay;

/* Listens on a port of its own, and forwards to a server on this machine. */
struct scale_delay *scale_delay_start(int server_port);
int scale_delay_port(const struct scale_delay *delay);
/* Sets the delay of a round trip, for all bytes that follow. */
void scale_delay_set(struct scale_delay *delay, int64_t trip_ns);
/* Returns the bytes of both directions since the start. */
int64_t scale_delay_bytes(struct scale_delay *delay);
/* Returns the number of requests since the start. A request is received as a whole. */
int64_t scale_delay_messages(struct scale_delay *delay);

#endif

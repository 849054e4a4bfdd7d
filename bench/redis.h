#ifndef TRUCE_BENCH_REDIS_H
#define TRUCE_BENCH_REDIS_H

/*
 * One connection to Redis, over its Unix socket. The words of a command are separated by '|', so
 * that a word may have spaces. A failure calls bench_fail.
 */
#include "bench/bench.h"

struct redis;

struct redis_item {
    char type; /* '+' status, ':' number, '$' text, '*' array (number: how many follow), '0' nil */
    int64_t number;
    const char *text; /* ends with a zero byte; until the next command */
};

struct redis *redis_connect(const char *path);
bool redis_try(const char *path); /* Returns whether the server replies. */
void redis_close(struct redis *redis);

/* One command and its answer: an array's items follow it, flat. */
const struct redis_item *redis_run(struct redis *redis, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The number in a field of a hash, from the answer of HGETALL, which has fields in any order. */
int64_t redis_field(const struct redis_item *items, const char *name);
/* Several in one round trip: queue each, then receive each. */
void redis_queue(struct redis *redis, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
const struct redis_item *redis_receive(struct redis *redis);

#endif

#ifndef TRUCE_BENCH_REDIS_H
#define TRUCE_BENCH_REDIS_H

/*
 * One connection to Redis, over its Unix socket. The words of a command are separated by '|', so
 * that a word may have spaces. A failure calls bench_fail.
 */
#include "bench/bench.h"

struct redis;

struct redis_item {
    /* The type: '+' status, ':' number, '$' text, '*' array of `number` items that follow, '0'
     * nil. */
    char type;
    int64_t number;
    /* NUL-terminated, and valid until the next command. */
    const char *text;
};

struct redis *redis_connect(const char *path);
bool redis_try(const char *path); /* Returns whether the server replies. */
void redis_close(struct redis *redis);

/* Runs a command, and returns its reply. The items of an array follow the array. */
const struct redis_item *redis_run(struct redis *redis, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Returns the number in a field of a hash, from the reply to HGETALL, which has the fields in any
 * order. */
int64_t redis_field(const struct redis_item *items, const char *name);
/* These functions run several commands in one round trip: queue each command, and then receive each
 * reply. */
void redis_queue(struct redis *redis, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
const struct redis_item *redis_receive(struct redis *redis);

#endif

#ifndef TRUCE_CLI_CORE_POOL_H
#define TRUCE_CLI_CORE_POOL_H

/*
 * Worker processes. Each is this program again, started with fork and exec, with a pipe to it and a
 * pipe from it. Work is a frame of bytes, and so is its answer; a worker does its frames in order
 * and answers each.
 *
 * A worker that is killed is replaced, and its unanswered frames are given to the new process: so a
 * frame may be done twice, and whoever reads it must be able to bear that. A worker that ends by
 * itself has failed (it said why on standard error), and so has the pool.
 *
 * One thread; nothing here is shared.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "base/status.h"

struct pool;

/* The answer to a frame; `tag` is that of pool_give. An error ends the pool. */
typedef truce_status pool_answer_function(void *arg, void *tag, const uint8_t *bytes, size_t size,
                                          bson_error_t *error);

/* `argv`: the program's arguments after its name, NULL at the end, borrowed; worker number i gets
 * "--slot=i" behind them. */
truce_status pool_new(const char *const *argv, int workers, pool_answer_function *answer, void *arg,
                      struct pool **pool, bson_error_t *error);
/* Waits for the workers to end; those that do not within a second are killed. */
void pool_free(struct pool *pool);

/* Gives a frame to a worker, whose queue must not be full; takes the bytes, `frame` is empty
 * afterwards. */
void pool_give(struct pool *pool, int worker, struct buffer *frame, void *tag);
bool pool_full(const struct pool *pool, int worker);

/* Moves bytes, takes answers and replaces the dead, for at most `timeout_ms`; returns as soon as
 * something was done. */
truce_status pool_step(struct pool *pool, int timeout_ms, bson_error_t *error);

/* kill -9 of one worker, for demonstrations; it is replaced like any that died. */
void pool_kill(struct pool *pool, int worker);
/* workers that were killed and replaced so far */
int64_t pool_deaths(const struct pool *pool);

/* ---- a child without pipes ---- */

/* As fork, with the output flushed before; the child is killed as soon as its parent is gone, however that
 * ended. */
pid_t pool_fork(void);
/* kill -9, and waits for it; `*child` is 0 afterwards, and may be before. */
void pool_end(pid_t *child);

/* ---- the worker's side ---- */

/* Reads the next frame from `file` into `frame`. False: the end, or (with `error` filled) a broken
 * pipe. */
bool pool_read_frame(int file, struct buffer *frame, bson_error_t *error);
bool pool_write_frame(int file, const void *bytes, size_t size);

#endif

#ifndef TRUCE_CLI_CORE_WORKER_POOL_H
#define TRUCE_CLI_CORE_WORKER_POOL_H

/*
 * Worker processes. Each runs this program again, started with fork and exec, with a pipe to it and
 * a pipe from it. A unit of work is a frame of bytes, and so is its answer. A worker processes its
 * frames in order and answers each.
 *
 * A killed worker is replaced, and its unanswered frames go to the new process. A frame may
 * therefore be processed twice, and its reader must allow for that. A worker that exits by itself
 * has failed and has printed the reason; the pool then fails, too.
 *
 * One thread uses a pool; nothing is shared.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "base/status.h"

struct pool;

/* Receives the answer to a frame; `tag` is that of pool_give. An error ends the pool. */
typedef truce_status pool_answer_function(void *arg, void *tag, const uint8_t *bytes, size_t size,
                                          bson_error_t *error);

/* Starts the workers. `argv` has the program's arguments after its name, followed by NULL, and is
 * borrowed. Worker number i gets "--slot=i" after them. */
truce_status pool_new(const char *const *argv, int workers, pool_answer_function *answer, void *arg,
                      struct pool **pool, bson_error_t *error);
/* Waits for the workers to end. After a second, kills those that have not. */
void pool_free(struct pool *pool);

/* Gives a frame to a worker whose queue is not full. Takes the bytes and leaves `frame` empty. */
void pool_give(struct pool *pool, int worker, struct buffer *frame, void *tag);
bool pool_full(const struct pool *pool, int worker);

/* Moves bytes, takes answers, and replaces dead workers for at most `timeout_ms`. Returns as soon
 * as something was done. */
truce_status pool_step(struct pool *pool, int timeout_ms, bson_error_t *error);

/* Kills a worker with SIGKILL, for demonstrations. The pool replaces it as any worker that died. */
void pool_kill(struct pool *pool, int worker);
/* Returns the number of workers that were killed and replaced so far. */
int64_t pool_deaths(const struct pool *pool);

/* ---- a child without pipes ---- */

/* Forks after flushing the output. The child is killed when its parent ends, for whatever
 * reason. */
pid_t pool_fork(void);
/* Kills the child with SIGKILL and waits for it. `*child` may be 0 before and is 0 afterwards. */
void pool_end(pid_t *child);

/* ---- the worker's side ---- */

/* Reads the next frame from `file`. Returns false at the end, or (with `error` filled) if the pipe
 * is broken. */
bool pool_read_frame(int file, struct buffer *frame, bson_error_t *error);
bool pool_write_frame(int file, const void *bytes, size_t size);

#endif

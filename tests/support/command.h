#ifndef TRUCE_TESTS_SUPPORT_COMMAND_H
#define TRUCE_TESTS_SUPPORT_COMMAND_H

/* Runs the command line in a process of its own, and returns its output and exit code. */
#include <sys/types.h>

struct command {
    int code;  /* the exit code; -1: it did not exit by itself */
    char *out; /* standard output, NUL-terminated */
    char *err; /* standard error */
};

/* Runs `program` with the words, NULL after the last; `input` (NULL: none) is its standard input.
 * TRUCE_STORE is set to `store`, or unset if that is NULL. The result is good until the next call.
 */
const struct command *command_run(const char *program, const char *store, const char *input, ...)
    __attribute__((sentinel));

/* Checks the exit code, and that standard output holds `out` (NULL: anything), and standard
 * error `err` (NULL: it is empty). */
const struct command *command_check(const struct command *command, int code, const char *out,
                                    const char *err, const char *file, int line);

/* Starts the same and does not wait; its output is discarded. */
pid_t command_start(const char *program, const char *store, ...) __attribute__((sentinel));

#endif

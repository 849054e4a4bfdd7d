#ifndef TRUCE_TESTS_SUPPORT_COMMAND_H
#define TRUCE_TESTS_SUPPORT_COMMAND_H

/* Runs the command line in a process of its own, and returns its output and exit code. */
#include <sys/types.h>

struct command {
    /* The exit code, or -1 if a signal ended the process. */
    int code;
    /* Standard output, NUL-terminated. */
    char *out;
    /* Standard error, NUL-terminated. */
    char *err;
};

/* Runs `program` with the given arguments; NULL ends the list. `input` is its standard input, and
 * may be NULL. TRUCE_STORE is set to `store`, or unset if that is NULL. The result is valid until
 * the next call. */
const struct command *command_run(const char *program, const char *store, const char *input, ...)
    __attribute__((sentinel));

/* Checks the exit code, and that standard output contains `out` (NULL accepts any output), and
 * standard error `err` (NULL means that it is empty). */
const struct command *command_check(const struct command *command, int code, const char *out,
                                    const char *err, const char *file, int line);

/* Starts the program and does not wait for its end. Its output is discarded. */
pid_t command_start(const char *program, const char *store, ...) __attribute__((sentinel));

#endif

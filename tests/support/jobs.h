#ifndef TRUCE_TESTS_SUPPORT_JOBS_H
#define TRUCE_TESTS_SUPPORT_JOBS_H

/* The common part of the tests of `truce queue` and `truce work`: the store, and the job that
 * was reported last. */
#include <string.h>

#include "tests/support/command.h"
#include "tests/support/test.h"

/* The URI of the store of the running test. */
static char store[300];
/* The id of the job that was printed last. */
static char job[64];

static inline void jobs_check(int line, const char *file, const struct command *c, int code,
                              const char *out, const char *err)
{
    const char *space = strchr(c->out, ' ');

    command_check(c, code, out, err, file, line);
    if (space && strlen(space) == 26)
        snprintf(job, sizeof job, "%.24s", space + 1);
}
#define ANSWERS(code, out, err, ...)                                                               \
    jobs_check(__LINE__, __FILE__, command_run(TRUCE_CLI, store, NULL, __VA_ARGS__, NULL), code,   \
               out, err)

static inline void begin(void)
{
    snprintf(store, sizeof store, "%s/jobs.truce", test_directory());
}

#endif

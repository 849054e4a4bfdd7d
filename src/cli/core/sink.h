#ifndef TRUCE_CLI_CORE_SINK_H
#define TRUCE_CLI_CORE_SINK_H

/*
 * A file that appears under its name when it is whole: until then it has no name, where the file system
 * can (O_TMPFILE), so that nothing is left of it whatever is killed when. An older file of the name
 * stays until then. What is no regular file (a pipe, /dev/stdout) is written as it comes.
 */
#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"

struct sink {
    FILE *file;
    char *path;      /* where it will stand; NULL: it is written as it comes */
    char *temporary; /* its name until then; NULL: it has none */
    int why;         /* errno of the first write that failed */
};

/* `path` NULL or "-": standard output. INVALID: it cannot be written; the sentence says why. */
truce_status cli_sink_open(struct sink *sink, const char *path, bson_error_t *error);
/* False: it could not be written; cli_sink_close, or cli_output_end, tells it. */
bool cli_sink_write(struct sink *sink, const void *bytes, size_t size);
/* `good`: the file is to appear; else nothing is left of it. IO: it could not be written. */
truce_status cli_sink_close(struct sink *sink, bool good, bson_error_t *error);

#endif

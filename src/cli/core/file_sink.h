#ifndef TRUCE_CLI_CORE_FILE_SINK_H
#define TRUCE_CLI_CORE_FILE_SINK_H

/* An output file that appears under its name only when it is complete. Until then it has no name,
 * if the file system can do that (O_TMPFILE), so a killed process leaves nothing. An older file of
 * the name stays until then. A pipe or a device (/dev/stdout) is written directly. */
#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"

struct sink {
    FILE *file;
    /* The final name, or NULL if the file is written directly. */
    char *path;
    /* The temporary name, or NULL if the file has none. */
    char *temporary;
    /* The errno of the first write that failed, or 0. */
    int why;
};

/* Opens the file; NULL or "-" is standard output. Fails with IO if it cannot be written; the
 * message says why. */
truce_status cli_sink_open(struct sink *sink, const char *path, bson_error_t *error);
/* Returns false if the bytes could not be written; cli_sink_close, or cli_output_end, reports the
 * error. */
bool cli_sink_write(struct sink *sink, const void *bytes, size_t size);
/* Gives the file its name if `good`; otherwise discards it. Fails with IO if it could not be
 * written. */
truce_status cli_sink_close(struct sink *sink, bool good, bson_error_t *error);

#endif

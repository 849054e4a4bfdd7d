#ifndef TRUCE_SERVER_NET_LOG_FILE_H
#define TRUCE_SERVER_NET_LOG_FILE_H

/*
 * The file that a log is in, and how it is begun anew, as mongod does it:
 *
 *     rename   what was written becomes FILE.2026-03-01T09-00-00 (UTC), and FILE is made anew
 *     reopen   FILE is opened again: somebody else has moved it (logrotate(8))
 *
 * A line is written at the end of whatever is there, whole or not at all.
 */
#include "base/status.h"

/* Opens it for appending, and makes it for its owner alone if it is not there; a file, no pipe and no device. INVALID, IO (38). */
truce_status log_file_open(const char *path, int *file, bson_error_t *error);

/* Gives what stands there the name of this moment; what has that name already is left alone, and refused (37). Nothing there: OK. */
truce_status log_file_move(const char *path, int64_t now_ms, bson_error_t *error);

#endif

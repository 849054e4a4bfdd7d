#ifndef TRUCE_TESTS_SUPPORT_KEPT_LOG_H
#define TRUCE_TESTS_SUPPORT_KEPT_LOG_H

/* A JSON log in an unnamed file, from which a test reads the lines. A program has at most one such
 * log at a time. */
#include "server/admin/server_log.h"

struct log *kept_log_new(void);
void kept_log_free(void);

/* Returns all lines so far. The caller frees it. */
char *kept_log_text(void);
/* Returns the number of lines with that message. */
int kept_log_count(const char *message);
/* Returns the last line with that message, or NULL if no line has it. The caller destroys it. */
bson_t *kept_log_last(const char *message);
/* Waits until `count` lines have that message. */
void kept_log_wait(const char *message, int count);

#endif

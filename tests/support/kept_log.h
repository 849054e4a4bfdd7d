#ifndef TRUCE_TESTS_SUPPORT_KEPT_LOG_H
#define TRUCE_TESTS_SUPPORT_KEPT_LOG_H

/* A log of JSON in a file without a name, from which a test reads the logged lines. One at a
 * time. */
#include "server/admin/server_log.h"

struct log *kept_log_new(void);
void kept_log_free(void);

/* Returns all lines so far. The caller frees it. */
char *kept_log_text(void);
/* Returns how many lines have that message. */
int kept_log_count(const char *message);
/* Returns the last line with that message; NULL: no line has it. The caller destroys it. */
bson_t *kept_log_last(const char *message);
/* Waits until so many lines have it. */
void kept_log_wait(const char *message, int count);

#endif

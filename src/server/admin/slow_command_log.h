#ifndef TRUCE_SERVER_ADMIN_SLOW_COMMAND_LOG_H
#define TRUCE_SERVER_ADMIN_SLOW_COMMAND_LOG_H

/* The lines of the log about commands: slow ones, and failures of the store. */
#include "server/call/call.h"

/* Logs a command that took at least slow_ms. */
void command_log_slow(const struct call *call, int64_t ms, const bson_t *reply);

/* Logs a failure of the store, such as a full disk or a damaged file, because it concerns more than
 * one client. Further failures within a second are only counted, as all calls may fail then. */
void command_log_failure(const struct call *call, const bson_error_t *error);

#endif

#ifndef TRUCE_BASE_LOG_HOOK_H
#define TRUCE_BASE_LOG_HOOK_H

/* Sends messages that belong to no call to the `log` function of a store's hooks
 * (truce/hooks.h). */
#include "truce/hooks.h"

/* The receiver of the messages. If all fields are 0, messages are dropped. */
struct log_hook {
    void (*log)(truce_log_level level, const char *message, void *arg);
    void *arg;
};

/* Returns the receiver of the log messages of a store. If `hooks` is NULL, messages are dropped. */
struct log_hook truce__log_hook_of(const truce_store_hooks *hooks);

/* Logs one message, which is cut after 1,023 bytes. The caller writes it in lower case, without a
 * full stop. `hook` may be NULL. */
void truce__log_emit(const struct log_hook *hook, truce_log_level level, const char *format, ...)
    TRUCE_PRINTF(3, 4);

#endif

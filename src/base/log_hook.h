#ifndef TRUCE_BASE_LOG_HOOK_H
#define TRUCE_BASE_LOG_HOOK_H

/* Messages that no call answers, to the `log` of a store's hooks (truce/hooks.h). */
#include "truce/hooks.h"

/* Who is told; all zeros: nobody. */
struct notices {
    void (*tell)(truce_log_level level, const char *message, void *arg);
    void *arg;
};

/* `hooks` NULL: nobody */
struct notices truce__notices_of(const truce_store_hooks *hooks);

/* One sentence, lower case, no full stop; up to 1,023 bytes of it. `notices` NULL: nobody is told. */
void truce__notice(const struct notices *notices, truce_log_level level, const char *format, ...)
    TRUCE_PRINTF(3, 4);

#endif

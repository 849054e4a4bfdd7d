#include "base/log_hook.h"

#include <stdarg.h>
#include <stdio.h>

struct notices truce__notices_of(const truce_store_hooks *hooks)
{
    return hooks ? (struct notices){hooks->log, hooks->arg} : (struct notices){0};
}

void truce__log_emit(const struct notices *notices, truce_log_level level, const char *format, ...)
{
    char message[1024];
    va_list arguments;

    if (!notices || !notices->tell)
        return;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    notices->tell(level, message, notices->arg);
}

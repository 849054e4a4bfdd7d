#include "base/log_hook.h"

#include <stdarg.h>
#include <stdio.h>

struct log_hook truce__log_hook_of(const truce_store_hooks *hooks)
{
    return hooks ? (struct log_hook){hooks->log, hooks->arg} : (struct log_hook){0};
}

void truce__log_emit(const struct log_hook *hook, truce_log_level level, const char *format, ...)
{
    char message[1024];
    va_list arguments;

    if (!hook || !hook->log)
        return;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    hook->log(level, message, hook->arg);
}

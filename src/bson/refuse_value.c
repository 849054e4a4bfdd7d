/* The error for a refused value, which every command and expression words alike. */
#include "bson/refuse_value.h"

#include <stdarg.h>
#include <stdio.h>

truce_status truce__refuse_value(uint32_t code, struct value value, bson_error_t *error,
                                 const char *rule, ...)
{
    char text[300], shown[80];
    va_list arguments;

    va_start(arguments, rule);
    (void)vsnprintf(text, sizeof text, rule, arguments);
    va_end(arguments);
    return truce__refuse(code, error, "%s, not %s", text,
                         truce__value_show(value, shown, sizeof shown));
}

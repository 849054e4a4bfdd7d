#include "server/admin/metrics_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"

void metrics_put(struct buffer *out, const char *format, ...)
{
    char line[METRICS_LINE_BYTES];
    va_list arguments;
    int size;

    va_start(arguments, format);
    size = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    truce_assert(size >= 0 && (size_t)size < sizeof line);
    truce__buffer_append(out, line, (size_t)size);
}

void metrics_put_head(struct buffer *out, const char *name, const char *type, const char *help)
{
    metrics_put(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void metrics_label(const char *name, char label[METRICS_LABEL_BYTES])
{
    size_t size = truce__text_whole(name, strnlen(name, METRICS_LABEL_CUT)), at = 0;

    for (size_t i = 0; i < size; i++) {
        if (name[i] == '"' || name[i] == '\\' || name[i] == '\n')
            label[at++] = '\\';
        label[at++] = name[i] == '\n' ? 'n' : name[i];
    }
    label[at] = '\0';
}

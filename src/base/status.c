#include "base/status.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/terminal_escape.h"

static const char *const status_names[] = {
    [TRUCE_OK] = "ok",
    [TRUCE_NOT_FOUND] = "not found",
    [TRUCE_CONFLICT] = "conflict",
    [TRUCE_LOCKED] = "locked",
    [TRUCE_UNKNOWN] = "outcome unknown",
    [TRUCE_DUPLICATE] = "duplicate",
    [TRUCE_EXPIRED] = "expired",
    [TRUCE_INVALID] = "invalid",
    [TRUCE_LIMIT] = "limit reached",
    [TRUCE_IO] = "input or output failed",
    [TRUCE_CORRUPT] = "corrupt",
    [TRUCE_TIMEOUT] = "timed out",
    [TRUCE_REFUSED] = "refused",
};

const char *truce_version(void)
{
    return TRUCE_VERSION;
}

const char *truce_status_name(truce_status status)
{
    size_t count = sizeof status_names / sizeof *status_names;

    return (size_t)status < count ? status_names[status] : "unknown status";
}

static const struct {
    uint32_t code;
    const char *name;
} code_names[] = {
#define CODE_NAME(identifier, number, name) {number, name},
    TRUCE_CODES(CODE_NAME)
#undef CODE_NAME
};

const char *truce_error_name(uint32_t code)
{
    static _Thread_local char location[20];

    for (size_t i = 0; i < sizeof code_names / sizeof *code_names; i++) {
        if (code_names[i].code == code)
            return code_names[i].name;
    }
    snprintf(location, sizeof location, "Location%" PRIu32, code);
    return location;
}

truce_status truce__status_of_code(uint32_t code)
{
    switch (code) {
    case CODE_OK:
        return TRUCE_OK;
    case CODE_DUPLICATE_KEY:
    case CODE_NAMESPACE_EXISTS:
    case CODE_USER_EXISTS:
        return TRUCE_DUPLICATE;
    case CODE_WRITE_CONFLICT:
        return TRUCE_CONFLICT;
    case CODE_NAMESPACE_NOT_FOUND:
    case CODE_INDEX_NOT_FOUND:
    case CODE_CURSOR_NOT_FOUND:
    case CODE_USER_NOT_FOUND:
        return TRUCE_NOT_FOUND;
    case CODE_MAX_TIME_MS_EXPIRED:
    case CODE_INTERRUPTED:
        return TRUCE_TIMEOUT;
    case CODE_OUT_OF_DISK_SPACE:
        return TRUCE_IO;
    case CODE_EXCEEDED_MEMORY_LIMIT:
    case CODE_NO_DISK_USE_ALLOWED:
    case CODE_BSON_OBJECT_TOO_LARGE:
        return TRUCE_LIMIT;
    default:
        return TRUCE_INVALID;
    }
}

size_t truce__message_escape(const char *text, size_t length, char escape[MESSAGE_ESCAPE_MAX])
{
    size_t size;
    uint32_t code = truce__text_code(text, length, &size);

    escape[0] = '\0';
    if (!size) {
        snprintf(escape, MESSAGE_ESCAPE_MAX, "\\x%02x", (unsigned)(uint8_t)*text);
        return 1;
    }
    if (truce__code_controls(code) || truce__code_hides(code))
        snprintf(escape, MESSAGE_ESCAPE_MAX, code > 0xffff ? "\\U%08x" : "\\u%04x", (unsigned)code);
    return size;
}

void truce__message_clean(char *message, size_t room)
{
    size_t length = strlen(message), used = 0;
    char *clean = NULL, escape[MESSAGE_ESCAPE_MAX];

    for (size_t at = 0, size; at < length; at += size) {
        size_t added;

        size = truce__message_escape(message + at, length - at, escape);
        if (message[at] == '\n')
            escape[0] = '\0';
        if (*escape && !clean) {
            clean = bson_malloc(room);
            memcpy(clean, message, at);
            used = at;
        }
        if (!clean)
            continue;
        added = *escape ? strlen(escape) : size;
        if (used + added >= room)
            break;
        memcpy(clean + used, *escape ? escape : message + at, added);
        used += added;
    }
    if (clean) {
        clean[used] = '\0';
        memcpy(message, clean, used + 1);
    }
    bson_free(clean);
}

static void status_fill(bson_error_t *error, uint32_t domain, uint32_t code, const char *format,
                        va_list arguments)
{
    if (!error)
        return;
    error->domain = domain;
    error->code = code;
    vsnprintf(error->message, sizeof error->message, format, arguments);
    truce__message_clean(error->message, sizeof error->message);
}

truce_status truce__fail(truce_status status, bson_error_t *error, const char *format, ...)
{
    va_list arguments;

    truce_assert(status != TRUCE_OK);
    va_start(arguments, format);
    status_fill(error, TRUCE_ERROR, status, format, arguments);
    va_end(arguments);
    return status;
}

truce_status truce__refuse(uint32_t code, bson_error_t *error, const char *format, ...)
{
    va_list arguments;

    truce_assert(code != CODE_OK);
    va_start(arguments, format);
    status_fill(error, TRUCE_ERROR_SERVER, code, format, arguments);
    va_end(arguments);
    return truce__status_of_code(code);
}

/* What a command that failed is answered: MongoDB's code, its sentence, and what a driver is to do about it. */
#include "server/pattern_command.h"

#include <string.h>

#include "server/duplicate.h"

uint32_t call_code(truce_status status, const bson_error_t *error)
{
    static const uint32_t codes[] = {
        [TRUCE_NOT_FOUND] = CODE_NAMESPACE_NOT_FOUND,
        [TRUCE_CONFLICT] = CODE_WRITE_CONFLICT,
        [TRUCE_LOCKED] = CODE_LOCK_TIMEOUT,
        [TRUCE_UNKNOWN] = 8, /* UnknownError */
        [TRUCE_DUPLICATE] = CODE_DUPLICATE_KEY,
        [TRUCE_EXPIRED] = CODE_CURSOR_KILLED,
        [TRUCE_INVALID] = CODE_BAD_VALUE,
        [TRUCE_LIMIT] = CODE_EXCEEDED_MEMORY_LIMIT,
        [TRUCE_IO] = 8,
        [TRUCE_CORRUPT] = 8,
        [TRUCE_TIMEOUT] = CODE_MAX_TIME_MS_EXPIRED,
        [TRUCE_REFUSED] = CODE_ILLEGAL_OPERATION,
    };

    return error->domain == TRUCE_ERROR_SERVER ? error->code : codes[status];
}

const char *call_sentence(struct call *call, const char *message)
{
    char *text = truce__arena_copy(&call->arena, message, strlen(message) + 1), *at = text;
    size_t length = strlen(call->database);

    while ((at = strchr(at, '@')) != NULL) {
        if (!strncmp(at + 1, call->database, length) && at[1 + length] == '.')
            memmove(at, at + 1, strlen(at));
        at++;
    }
    return text;
}

void call_append_sentence(struct call *call, bson_t *reply, const bson_error_t *error)
{
    if (error->code != CODE_DUPLICATE_KEY ||
        !duplicate_append(error->message, call->server->database, reply))
        BSON_APPEND_UTF8(reply, "errmsg", call_sentence(call, error->message));
}

/* Of a transaction, or of writes that are kept, what a driver is to do about the error. */
static void append_labels(const struct call *call, bson_t *reply, uint32_t code)
{
    const char *label = NULL;

    if (!call->session.transaction && call->session.number >= 0) {
        if (call->unknown || code == CODE_INTERRUPTED_AT_SHUTDOWN)
            BCON_APPEND(reply, "errorLabels", "[", BCON_UTF8("RetryableWriteError"), "]");
        return;
    }
    if (code == CODE_WRITE_CONFLICT || code == CODE_SNAPSHOT_TOO_OLD ||
        code == CODE_NO_SUCH_TRANSACTION || code == CODE_LOCK_TIMEOUT)
        label = "TransientTransactionError";
    else if (call->unknown)
        label = "UnknownTransactionCommitResult";
    if (call->session.transaction && label)
        BCON_APPEND(reply, "errorLabels", "[", BCON_UTF8(label), "]");
}

void call_append_error(struct call *call, bson_t *reply, truce_status status,
                       const bson_error_t *error)
{
    const struct pattern *pattern = pattern_of(call->command);
    uint32_t code = call_code(status, error);

    if (call->session.transaction && code == CODE_CURSOR_KILLED)
        code = CODE_SNAPSHOT_TOO_OLD;
    if (code == CODE_INTERRUPTED && server_is_stopping(call->server))
        code = CODE_INTERRUPTED_AT_SHUTDOWN;
    BSON_APPEND_DOUBLE(reply, "ok", 0);
    call_append_sentence(call, reply, error);
    BSON_APPEND_INT32(reply, "code", (int32_t)code);
    BSON_APPEND_UTF8(reply, "codeName", truce_error_name(code));
    append_labels(call, reply, code);
    if (pattern)
        pattern_append_error(pattern, status, call->session.transaction, reply);
}

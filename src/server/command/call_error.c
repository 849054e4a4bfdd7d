/* What a command that failed is answered: MongoDB's code, its sentence, and what a driver is to do about it. */
#include "server/command/serve_operations.h"

#include <string.h>

#include "server/command/duplicate.h"
#include "server/command/refused.h"
#include "server/command/same_collection.h"

uint32_t call_code(truce_status status, const bson_error_t *error)
{
    static const uint32_t codes[] = {
        [TRUCE_NOT_FOUND] = CODE_NAMESPACE_NOT_FOUND,
        [TRUCE_CONFLICT] = CODE_WRITE_CONFLICT,
        [TRUCE_LOCKED] = CODE_LOCK_TIMEOUT,
        [TRUCE_UNKNOWN] = CODE_UNKNOWN_ERROR,
        [TRUCE_DUPLICATE] = CODE_DUPLICATE_KEY,
        [TRUCE_EXPIRED] = CODE_CURSOR_KILLED,
        [TRUCE_INVALID] = CODE_BAD_VALUE,
        [TRUCE_LIMIT] = CODE_EXCEEDED_MEMORY_LIMIT,
        [TRUCE_IO] = CODE_UNKNOWN_ERROR,
        [TRUCE_CORRUPT] = CODE_UNKNOWN_ERROR,
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
    if (error->code == CODE_DOCUMENT_VALIDATION_FAILURE)
        refused_append(call_sentence(call, error->message), reply);
    else if (error->code != CODE_DUPLICATE_KEY ||
             !duplicate_append(error->message,
                               command_row(call->command) ? call->database : call->server->database,
                               reply))
        BSON_APPEND_UTF8(reply, "errmsg", call_sentence(call, error->message));
}

/* Another server, or the same a little later, could do it: what MongoDB takes for that. */
static bool is_retryable(uint32_t code)
{
    static const uint32_t codes[] = {6,    7,     89,    91,    189,   262,
                                     9001, 10107, 11600, 11602, 13435, 13436};

    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i] == code)
            return true;
    return false;
}

/* The transaction was undone, and may be run again from its beginning. */
static bool is_transient(uint32_t code, bool ends)
{
    if (code == CODE_NO_SUCH_TRANSACTION || code == CODE_WRITE_CONFLICT ||
        code == CODE_SNAPSHOT_TOO_OLD || code == CODE_LOCK_TIMEOUT || code == 246 || code == 267)
        return true;
    return !ends && is_retryable(code);
}

static bool ends_transaction(const struct call *call)
{
    return call->command && (!strcmp(call->command->name, "commitTransaction") ||
                             !strcmp(call->command->name, "abortTransaction"));
}

/* May a driver open the stream again, from where it was? NULL: it is not said. */
static const char *follower_label(uint32_t code)
{
    if (code == CODE_CHANGE_STREAM_FATAL || code == CODE_CHANGE_STREAM_HISTORY_LOST ||
        code == CODE_BSON_OBJECT_TOO_LARGE)
        return "NonResumableChangeStreamError";
    /* FailedToSatisfyReadPreference, StaleEpoch, RetryChangeStream */
    return is_retryable(code) || code == 133 || code == 150 || code == 234
               ? "ResumableChangeStreamError"
               : NULL;
}

void call_append_labels(const struct call *call, bson_t *reply, uint32_t code, bool concern)
{
    const struct call_session *session = &call->session;
    bool ends = ends_transaction(call);
    const char *label = NULL;

    if (call->labels) {
        if (bson_count_keys(call->labels))
            BSON_APPEND_ARRAY(reply, "errorLabels", call->labels);
        return;
    }
    if (call->follows)
        label = follower_label(code);
    else if (session->number < 0)
        return;
    else if (session->transaction && !concern && is_transient(code, ends))
        label = "TransientTransactionError";
    else if (!session->transaction && call->unknown)
        label = "RetryableWriteError";
    else if ((!session->transaction || ends) && is_retryable(code))
        label = "RetryableWriteError";
    else if (session->transaction && call->unknown)
        label = "UnknownTransactionCommitResult";
    if (label)
        BCON_APPEND(reply, "errorLabels", "[", BCON_UTF8(label), "]");
}

void call_append_error(struct call *call, bson_t *reply, truce_status status,
                       const bson_error_t *error)
{
    const struct operation_row *row = command_row(call->command);
    uint32_t code = call_code(status, error);

    if (call->session.transaction && code == CODE_CURSOR_KILLED)
        code = CODE_SNAPSHOT_TOO_OLD;
    if (code == CODE_INTERRUPTED && server_is_stopping(call->server))
        code = CODE_INTERRUPTED_AT_SHUTDOWN;
    metrics_failed(call->server->metrics, code);
    BSON_APPEND_DOUBLE(reply, "ok", 0);
    call_append_sentence(call, reply, error);
    BSON_APPEND_INT32(reply, "code", (int32_t)code);
    BSON_APPEND_UTF8(reply, "codeName", truce_error_name(code));
    if (code == CODE_COLLECTION_UUID_MISMATCH && call->mismatch)
        same_collection_append(call->mismatch, reply);
    call_append_labels(call, reply, code, false);
    if (call->concern) /* as MongoDB tells both */
        BSON_APPEND_DOCUMENT(reply, "writeConcernError", call->concern);
    if (row)
        truce__operation_append_error(row, status, call->session.transaction, reply);
}

#ifndef TRUCE_BASE_STATUS_H
#define TRUCE_BASE_STATUS_H

/* How errors are made inside truce. The contract is in truce/status.h. */
#include "truce/status.h"

/* MongoDB's public error codes that we answer with; the names are MongoDB's own. Codes of its
 * "Location" kind (>= 10000, but for 11000 and a few) are written as numbers where they are used.
 */
enum {
    CODE_OK = 0,
    CODE_INTERNAL_ERROR = 1,
    CODE_BAD_VALUE = 2,
    CODE_GRAPH_CONTAINS_CYCLE = 5,
    CODE_UNKNOWN_ERROR = 8,
    CODE_FAILED_TO_PARSE = 9,
    CODE_USER_NOT_FOUND = 11,
    CODE_UNAUTHORIZED = 13,
    CODE_TYPE_MISMATCH = 14,
    CODE_OVERFLOW = 15,
    CODE_INVALID_LENGTH = 16,
    CODE_PROTOCOL_ERROR = 17,
    CODE_AUTHENTICATION_FAILED = 18,
    CODE_ILLEGAL_OPERATION = 20,
    CODE_EMPTY_ARRAY_OPERATION = 21,
    CODE_INVALID_BSON = 22,
    CODE_NAMESPACE_NOT_FOUND = 26,
    CODE_LOCK_TIMEOUT = 24,
    CODE_INDEX_NOT_FOUND = 27,
    CODE_PATH_NOT_VIABLE = 28,
    CODE_ROLE_NOT_FOUND = 31,
    CODE_CANNOT_BACKFILL_ARRAY = 34,
    CODE_FILE_RENAME_FAILED = 37,
    CODE_FILE_NOT_OPEN = 38,
    CODE_CONFLICTING_UPDATE_OPERATORS = 40,
    CODE_CURSOR_NOT_FOUND = 43,
    CODE_NO_MATCHING_DOCUMENT = 47,
    CODE_NAMESPACE_EXISTS = 48,
    CODE_MAX_TIME_MS_EXPIRED = 50,
    CODE_DOLLAR_PREFIXED_FIELD_NAME = 52,
    CODE_INVALID_ID_FIELD = 53,
    CODE_NOT_SINGLE_VALUE_FIELD = 54,
    CODE_EMPTY_FIELD_NAME = 56,
    CODE_DOTTED_FIELD_NAME = 57,
    CODE_COMMAND_NOT_FOUND = 59,
    CODE_IMMUTABLE_FIELD = 66,
    CODE_CANNOT_CREATE_INDEX = 67,
    CODE_INVALID_OPTIONS = 72,
    CODE_INVALID_NAMESPACE = 73,
    CODE_INDEX_OPTIONS_CONFLICT = 85,
    CODE_INDEX_KEY_SPECS_CONFLICT = 86,
    CODE_NOT_EXACT_VALUE_FIELD = 111,
    CODE_WRITE_CONFLICT = 112,
    CODE_COMMAND_NOT_SUPPORTED = 115,
    CODE_CONFLICTING_OPERATION = 117,
    CODE_DOCUMENT_VALIDATION_FAILURE = 121,
    CODE_NOT_A_REPLICA_SET = 123,
    CODE_COMMAND_FAILED = 125,
    CODE_EXCEEDED_MEMORY_LIMIT = 146,
    CODE_VIEW_DEPTH_LIMIT_EXCEEDED = 165,
    CODE_COMMAND_NOT_SUPPORTED_ON_VIEW = 166,
    CODE_OPTION_NOT_SUPPORTED_ON_VIEW = 167,
    CODE_INVALID_PIPELINE_OPERATOR = 168,
    CODE_CANNOT_INDEX_PARALLEL_ARRAYS = 171,
    CODE_INVALID_VIEW_DEFINITION = 182,
    CODE_VIEW_PIPELINE_MAX_SIZE_EXCEEDED = 195,
    CODE_INCOMPLETE_HISTORY = 217,
    CODE_QUERY_FEATURE_NOT_ALLOWED = 224,
    CODE_TRANSACTION_TOO_OLD = 225,
    CODE_CURSOR_KILLED = 237,
    CODE_SNAPSHOT_TOO_OLD = 239,
    CODE_SNAPSHOT_UNAVAILABLE = 246,
    CODE_NO_SUCH_TRANSACTION = 251,
    CODE_TRANSACTION_COMMITTED = 256,
    CODE_TRANSACTION_TOO_LARGE = 257,
    CODE_NOT_IN_TRANSACTION = 263,
    CODE_API_STRICT = 323,
    CODE_COLLECTION_UUID_MISMATCH = 361,
    CODE_FAIL_POINT_SET_FAILED = 266,
    CODE_INVALID_RESUME_TOKEN = 260,
    CODE_CHANGE_STREAM_FATAL = 280,
    CODE_CHANGE_STREAM_HISTORY_LOST = 286,
    CODE_NO_DISK_USE_ALLOWED = 292,
    CODE_MECHANISM_UNAVAILABLE = 334,
    CODE_CONVERSION_FAILURE = 241,
    CODE_NO_QUERY_EXECUTION_PLANS = 291,
    CODE_BSON_OBJECT_TOO_LARGE = 10334,
    CODE_OUT_OF_DISK_SPACE = 14031,
    CODE_DUPLICATE_KEY = 11000,
    CODE_INTERRUPTED_AT_SHUTDOWN = 11600,
    CODE_INTERRUPTED = 11601,
    CODE_NOT_RETRYABLE = 50768,
    CODE_USER_EXISTS = 51003,
};

/* Fills `error` (when not NULL) with domain TRUCE_ERROR and returns `status`, which is not OK. */
truce_status truce__fail(truce_status status, bson_error_t *error, const char *format, ...)
    TRUCE_PRINTF(3, 4);

/* The same for an answer that MongoDB would give too: domain TRUCE_ERROR_SERVER and its `code`.
 * Returns the status that belongs to the code (truce__status_of_code). */
truce_status truce__refuse(uint32_t code, bson_error_t *error, const char *format, ...)
    TRUCE_PRINTF(3, 4);

/* Two questions about a call that failed, which must not be taken for each other.
 *
 * Unanswered: may it have landed, or land at some later time? Whoever must know looks before going on.
 * IO is among them: that nothing was acknowledged does not say that nothing was done. */
static inline bool truce__unanswered(truce_status status)
{
    return status == TRUCE_UNKNOWN || status == TRUCE_IO;
}

/* Repeatable: may a call that does no harm if it lands twice fare better if it is made again now? IO is
 * not among them: the store has waited for its server as long as it may, or its disk is full, and the
 * caller, who may make the call again at any time, is to hear of it. */
static inline bool truce__repeatable(truce_status status)
{
    return status == TRUCE_UNKNOWN || status == TRUCE_CONFLICT;
}

/* DUPLICATE for 11000 and 48, CONFLICT for 112, LIMIT for sizes, TIMEOUT for 50 and 11601, NOT_FOUND for 26
 * and 27, IO for 14031, INVALID otherwise. */
truce_status truce__status_of_code(uint32_t code);

#endif

#include "base/status.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/assert.h"

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
    {CODE_OK, "OK"},
    {CODE_INTERNAL_ERROR, "InternalError"},
    {CODE_BAD_VALUE, "BadValue"},
    {CODE_GRAPH_CONTAINS_CYCLE, "GraphContainsCycle"},
    {CODE_UNKNOWN_ERROR, "UnknownError"},
    {CODE_FAILED_TO_PARSE, "FailedToParse"},
    {CODE_USER_NOT_FOUND, "UserNotFound"},
    {CODE_UNAUTHORIZED, "Unauthorized"},
    {CODE_TYPE_MISMATCH, "TypeMismatch"},
    {CODE_OVERFLOW, "Overflow"},
    {CODE_INVALID_LENGTH, "InvalidLength"},
    {CODE_PROTOCOL_ERROR, "ProtocolError"},
    {CODE_AUTHENTICATION_FAILED, "AuthenticationFailed"},
    {CODE_ILLEGAL_OPERATION, "IllegalOperation"},
    {CODE_EMPTY_ARRAY_OPERATION, "EmptyArrayOperation"},
    {CODE_INVALID_BSON, "InvalidBSON"},
    {CODE_NAMESPACE_NOT_FOUND, "NamespaceNotFound"},
    {CODE_LOCK_TIMEOUT, "LockTimeout"},
    {CODE_INDEX_NOT_FOUND, "IndexNotFound"},
    {CODE_PATH_NOT_VIABLE, "PathNotViable"},
    {CODE_ROLE_NOT_FOUND, "RoleNotFound"},
    {CODE_CANNOT_BACKFILL_ARRAY, "CannotBackfillArray"},
    {CODE_CONFLICTING_UPDATE_OPERATORS, "ConflictingUpdateOperators"},
    {CODE_CURSOR_NOT_FOUND, "CursorNotFound"},
    {CODE_NO_MATCHING_DOCUMENT, "NoMatchingDocument"},
    {CODE_NAMESPACE_EXISTS, "NamespaceExists"},
    {CODE_MAX_TIME_MS_EXPIRED, "MaxTimeMSExpired"},
    {CODE_DOLLAR_PREFIXED_FIELD_NAME, "DollarPrefixedFieldName"},
    {CODE_INVALID_ID_FIELD, "InvalidIdField"},
    {CODE_NOT_SINGLE_VALUE_FIELD, "NotSingleValueField"},
    {CODE_EMPTY_FIELD_NAME, "EmptyFieldName"},
    {CODE_DOTTED_FIELD_NAME, "DottedFieldName"},
    {CODE_COMMAND_NOT_FOUND, "CommandNotFound"},
    {CODE_IMMUTABLE_FIELD, "ImmutableField"},
    {CODE_CANNOT_CREATE_INDEX, "CannotCreateIndex"},
    {CODE_INVALID_OPTIONS, "InvalidOptions"},
    {CODE_INVALID_NAMESPACE, "InvalidNamespace"},
    {CODE_INDEX_OPTIONS_CONFLICT, "IndexOptionsConflict"},
    {CODE_INDEX_KEY_SPECS_CONFLICT, "IndexKeySpecsConflict"},
    {CODE_NOT_EXACT_VALUE_FIELD, "NotExactValueField"},
    {CODE_WRITE_CONFLICT, "WriteConflict"},
    {CODE_COMMAND_NOT_SUPPORTED, "CommandNotSupported"},
    {CODE_DOCUMENT_VALIDATION_FAILURE, "DocumentValidationFailure"},
    {CODE_COMMAND_FAILED, "CommandFailed"},
    {CODE_EXCEEDED_MEMORY_LIMIT, "ExceededMemoryLimit"},
    {CODE_CONFLICTING_OPERATION, "ConflictingOperationInProgress"},
    {CODE_VIEW_DEPTH_LIMIT_EXCEEDED, "ViewDepthLimitExceeded"},
    {CODE_COMMAND_NOT_SUPPORTED_ON_VIEW, "CommandNotSupportedOnView"},
    {CODE_OPTION_NOT_SUPPORTED_ON_VIEW, "OptionNotSupportedOnView"},
    {CODE_INVALID_PIPELINE_OPERATOR, "InvalidPipelineOperator"},
    {CODE_CANNOT_INDEX_PARALLEL_ARRAYS, "CannotIndexParallelArrays"},
    {CODE_INVALID_VIEW_DEFINITION, "InvalidViewDefinition"},
    {CODE_VIEW_PIPELINE_MAX_SIZE_EXCEEDED, "ViewPipelineMaxSizeExceeded"},
    {197, "InvalidIndexSpecificationOption"},
    {CODE_INCOMPLETE_HISTORY, "IncompleteTransactionHistory"},
    {CODE_QUERY_FEATURE_NOT_ALLOWED, "QueryFeatureNotAllowed"},
    {CODE_TRANSACTION_TOO_OLD, "TransactionTooOld"},
    {CODE_SNAPSHOT_TOO_OLD, "SnapshotTooOld"},
    {CODE_NO_SUCH_TRANSACTION, "NoSuchTransaction"},
    {CODE_TRANSACTION_COMMITTED, "TransactionCommitted"},
    {CODE_TRANSACTION_TOO_LARGE, "TransactionTooLarge"},
    {CODE_NOT_IN_TRANSACTION, "OperationNotSupportedInTransaction"},
    {CODE_FAIL_POINT_SET_FAILED, "FailPointSetFailed"},
    {322, "APIVersionError"},
    {CODE_API_STRICT, "APIStrictError"},
    {CODE_COLLECTION_UUID_MISMATCH, "CollectionUUIDMismatch"},
    {267, "PreparedTransactionInProgress"},
    {6, "HostUnreachable"},
    {7, "HostNotFound"},
    {64, "WriteConcernFailed"},
    {79, "UnknownReplWriteConcern"},
    {89, "NetworkTimeout"},
    {91, "ShutdownInProgress"},
    {100, "UnsatisfiableWriteConcern"},
    {134, "ReadConcernMajorityNotAvailableYet"},
    {189, "PrimarySteppedDown"},
    {246, "SnapshotUnavailable"},
    {262, "ExceededTimeLimit"},
    {391, "ReauthenticationRequired"},
    {9001, "SocketException"},
    {10107, "NotWritablePrimary"},
    {11602, "InterruptedDueToReplStateChange"},
    {13435, "NotPrimaryNoSecondaryOk"},
    {13436, "NotPrimaryOrSecondary"},
    {CODE_INVALID_RESUME_TOKEN, "InvalidResumeToken"},
    {CODE_CHANGE_STREAM_FATAL, "ChangeStreamFatalError"},
    {CODE_CHANGE_STREAM_HISTORY_LOST, "ChangeStreamHistoryLost"},
    {CODE_NO_DISK_USE_ALLOWED, "QueryExceededMemoryLimitNoDiskUseAllowed"},
    {232, "MaxSubPipelineDepthExceeded"},
    {CODE_CONVERSION_FAILURE, "ConversionFailure"},
    {CODE_MECHANISM_UNAVAILABLE, "MechanismUnavailable"},
    {CODE_NO_QUERY_EXECUTION_PLANS, "NoQueryExecutionPlans"},
    {CODE_BSON_OBJECT_TOO_LARGE, "BSONObjectTooLarge"},
    {CODE_OUT_OF_DISK_SPACE, "OutOfDiskSpace"},
    {CODE_DUPLICATE_KEY, "DuplicateKey"},
    {CODE_INTERRUPTED_AT_SHUTDOWN, "InterruptedAtShutdown"},
    {CODE_INTERRUPTED, "Interrupted"},
    {CODE_NOT_RETRYABLE, "NotARetryableWriteCommand"},
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

static void fill(bson_error_t *error, uint32_t domain, uint32_t code, const char *format,
                 va_list arguments)
{
    if (!error)
        return;
    error->domain = domain;
    error->code = code;
    vsnprintf(error->message, sizeof error->message, format, arguments);
}

truce_status truce__fail(truce_status status, bson_error_t *error, const char *format, ...)
{
    va_list arguments;

    truce_assert(status != TRUCE_OK);
    va_start(arguments, format);
    fill(error, TRUCE_ERROR, status, format, arguments);
    va_end(arguments);
    return status;
}

truce_status truce__refuse(uint32_t code, bson_error_t *error, const char *format, ...)
{
    va_list arguments;

    truce_assert(code != CODE_OK);
    va_start(arguments, format);
    fill(error, TRUCE_ERROR_SERVER, code, format, arguments);
    va_end(arguments);
    return truce__status_of_code(code);
}

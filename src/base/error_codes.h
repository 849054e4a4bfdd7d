#ifndef TRUCE_BASE_ERROR_CODES_H
#define TRUCE_BASE_ERROR_CODES_H

/* MongoDB's public error codes that truce returns or passes on, sorted by number. The names are
 * MongoDB's own. MongoDB's "Location" codes (>= 10000, except 11000 and a few others) are written
 * as numbers where they are used.
 *
 *     X(the identifier after CODE_, number, MongoDB's name) */
#define TRUCE_CODES(X)                                                                             \
    X(OK, 0, "OK")                                                                                 \
    X(INTERNAL_ERROR, 1, "InternalError")                                                          \
    X(BAD_VALUE, 2, "BadValue")                                                                    \
    X(GRAPH_CONTAINS_CYCLE, 5, "GraphContainsCycle")                                               \
    X(HOST_UNREACHABLE, 6, "HostUnreachable")                                                      \
    X(HOST_NOT_FOUND, 7, "HostNotFound")                                                           \
    X(UNKNOWN_ERROR, 8, "UnknownError")                                                            \
    X(FAILED_TO_PARSE, 9, "FailedToParse")                                                         \
    X(USER_NOT_FOUND, 11, "UserNotFound")                                                          \
    X(UNAUTHORIZED, 13, "Unauthorized")                                                            \
    X(TYPE_MISMATCH, 14, "TypeMismatch")                                                           \
    X(OVERFLOW, 15, "Overflow")                                                                    \
    X(INVALID_LENGTH, 16, "InvalidLength")                                                         \
    X(PROTOCOL_ERROR, 17, "ProtocolError")                                                         \
    X(AUTHENTICATION_FAILED, 18, "AuthenticationFailed")                                           \
    X(ILLEGAL_OPERATION, 20, "IllegalOperation")                                                   \
    X(EMPTY_ARRAY_OPERATION, 21, "EmptyArrayOperation")                                            \
    X(INVALID_BSON, 22, "InvalidBSON")                                                             \
    X(LOCK_TIMEOUT, 24, "LockTimeout")                                                             \
    X(NAMESPACE_NOT_FOUND, 26, "NamespaceNotFound")                                                \
    X(INDEX_NOT_FOUND, 27, "IndexNotFound")                                                        \
    X(PATH_NOT_VIABLE, 28, "PathNotViable")                                                        \
    X(ROLE_NOT_FOUND, 31, "RoleNotFound")                                                          \
    X(CANNOT_BACKFILL_ARRAY, 34, "CannotBackfillArray")                                            \
    X(FILE_RENAME_FAILED, 37, "FileRenameFailed")                                                  \
    X(FILE_NOT_OPEN, 38, "FileNotOpen")                                                            \
    X(CONFLICTING_UPDATE_OPERATORS, 40, "ConflictingUpdateOperators")                              \
    X(CURSOR_NOT_FOUND, 43, "CursorNotFound")                                                      \
    X(NO_MATCHING_DOCUMENT, 47, "NoMatchingDocument")                                              \
    X(NAMESPACE_EXISTS, 48, "NamespaceExists")                                                     \
    X(MAX_TIME_MS_EXPIRED, 50, "MaxTimeMSExpired")                                                 \
    X(DOLLAR_PREFIXED_FIELD_NAME, 52, "DollarPrefixedFieldName")                                   \
    X(INVALID_ID_FIELD, 53, "InvalidIdField")                                                      \
    X(NOT_SINGLE_VALUE_FIELD, 54, "NotSingleValueField")                                           \
    X(EMPTY_FIELD_NAME, 56, "EmptyFieldName")                                                      \
    X(DOTTED_FIELD_NAME, 57, "DottedFieldName")                                                    \
    X(COMMAND_NOT_FOUND, 59, "CommandNotFound")                                                    \
    X(WRITE_CONCERN_FAILED, 64, "WriteConcernFailed")                                              \
    X(IMMUTABLE_FIELD, 66, "ImmutableField")                                                       \
    X(CANNOT_CREATE_INDEX, 67, "CannotCreateIndex")                                                \
    X(INVALID_OPTIONS, 72, "InvalidOptions")                                                       \
    X(INVALID_NAMESPACE, 73, "InvalidNamespace")                                                   \
    X(NO_REPLICATION_ENABLED, 76, "NoReplicationEnabled")                                          \
    X(UNKNOWN_REPL_WRITE_CONCERN, 79, "UnknownReplWriteConcern")                                   \
    X(INDEX_OPTIONS_CONFLICT, 85, "IndexOptionsConflict")                                          \
    X(INDEX_KEY_SPECS_CONFLICT, 86, "IndexKeySpecsConflict")                                       \
    X(NETWORK_TIMEOUT, 89, "NetworkTimeout")                                                       \
    X(SHUTDOWN_IN_PROGRESS, 91, "ShutdownInProgress")                                              \
    X(OPERATION_FAILED, 96, "OperationFailed")                                                     \
    X(UNSATISFIABLE_WRITE_CONCERN, 100, "UnsatisfiableWriteConcern")                               \
    X(NOT_EXACT_VALUE_FIELD, 111, "NotExactValueField")                                            \
    X(WRITE_CONFLICT, 112, "WriteConflict")                                                        \
    X(COMMAND_NOT_SUPPORTED, 115, "CommandNotSupported")                                           \
    X(CONFLICTING_OPERATION, 117, "ConflictingOperationInProgress")                                \
    X(DOCUMENT_VALIDATION_FAILURE, 121, "DocumentValidationFailure")                               \
    X(NOT_A_REPLICA_SET, 123, "NotAReplicaSet")                                                    \
    X(COMMAND_FAILED, 125, "CommandFailed")                                                        \
    X(READ_CONCERN_MAJORITY_NOT_AVAILABLE_YET, 134, "ReadConcernMajorityNotAvailableYet")          \
    X(EXCEEDED_MEMORY_LIMIT, 146, "ExceededMemoryLimit")                                           \
    X(VIEW_DEPTH_LIMIT_EXCEEDED, 165, "ViewDepthLimitExceeded")                                    \
    X(COMMAND_NOT_SUPPORTED_ON_VIEW, 166, "CommandNotSupportedOnView")                             \
    X(OPTION_NOT_SUPPORTED_ON_VIEW, 167, "OptionNotSupportedOnView")                               \
    X(INVALID_PIPELINE_OPERATOR, 168, "InvalidPipelineOperator")                                   \
    X(CANNOT_INDEX_PARALLEL_ARRAYS, 171, "CannotIndexParallelArrays")                              \
    X(AMBIGUOUS_INDEX_KEY_PATTERN, 181, "AmbiguousIndexKeyPattern")                                \
    X(INVALID_VIEW_DEFINITION, 182, "InvalidViewDefinition")                                       \
    X(PRIMARY_STEPPED_DOWN, 189, "PrimarySteppedDown")                                             \
    X(VIEW_PIPELINE_MAX_SIZE_EXCEEDED, 195, "ViewPipelineMaxSizeExceeded")                         \
    X(INVALID_INDEX_SPECIFICATION_OPTION, 197, "InvalidIndexSpecificationOption")                  \
    X(INVALID_UUID, 207, "InvalidUUID")                                                            \
    X(INCOMPLETE_HISTORY, 217, "IncompleteTransactionHistory")                                     \
    X(QUERY_FEATURE_NOT_ALLOWED, 224, "QueryFeatureNotAllowed")                                    \
    X(TRANSACTION_TOO_OLD, 225, "TransactionTooOld")                                               \
    X(MAX_SUB_PIPELINE_DEPTH_EXCEEDED, 232, "MaxSubPipelineDepthExceeded")                         \
    X(CURSOR_KILLED, 237, "CursorKilled")                                                          \
    X(SNAPSHOT_TOO_OLD, 239, "SnapshotTooOld")                                                     \
    X(CONVERSION_FAILURE, 241, "ConversionFailure")                                                \
    X(SNAPSHOT_UNAVAILABLE, 246, "SnapshotUnavailable")                                            \
    X(NO_SUCH_TRANSACTION, 251, "NoSuchTransaction")                                               \
    X(TRANSACTION_COMMITTED, 256, "TransactionCommitted")                                          \
    X(TRANSACTION_TOO_LARGE, 257, "TransactionTooLarge")                                           \
    X(INVALID_RESUME_TOKEN, 260, "InvalidResumeToken")                                             \
    X(EXCEEDED_TIME_LIMIT, 262, "ExceededTimeLimit")                                               \
    X(NOT_IN_TRANSACTION, 263, "OperationNotSupportedInTransaction")                               \
    X(FAIL_POINT_SET_FAILED, 266, "FailPointSetFailed")                                            \
    X(PREPARED_TRANSACTION_IN_PROGRESS, 267, "PreparedTransactionInProgress")                      \
    X(CHANGE_STREAM_FATAL, 280, "ChangeStreamFatalError")                                          \
    X(CHANGE_STREAM_HISTORY_LOST, 286, "ChangeStreamHistoryLost")                                  \
    X(NO_QUERY_EXECUTION_PLANS, 291, "NoQueryExecutionPlans")                                      \
    X(NO_DISK_USE_ALLOWED, 292, "QueryExceededMemoryLimitNoDiskUseAllowed")                        \
    X(API_VERSION_ERROR, 322, "APIVersionError")                                                   \
    X(API_STRICT, 323, "APIStrictError")                                                           \
    X(MECHANISM_UNAVAILABLE, 334, "MechanismUnavailable")                                          \
    X(COLLECTION_UUID_MISMATCH, 361, "CollectionUUIDMismatch")                                     \
    X(REAUTHENTICATION_REQUIRED, 391, "ReauthenticationRequired")                                  \
    X(SOCKET_EXCEPTION, 9001, "SocketException")                                                   \
    X(NOT_WRITABLE_PRIMARY, 10107, "NotWritablePrimary")                                           \
    X(BSON_OBJECT_TOO_LARGE, 10334, "BSONObjectTooLarge")                                          \
    X(DUPLICATE_KEY, 11000, "DuplicateKey")                                                        \
    X(INTERRUPTED_AT_SHUTDOWN, 11600, "InterruptedAtShutdown")                                     \
    X(INTERRUPTED, 11601, "Interrupted")                                                           \
    X(INTERRUPTED_DUE_TO_REPL_STATE_CHANGE, 11602, "InterruptedDueToReplStateChange")              \
    X(NOT_PRIMARY_NO_SECONDARY_OK, 13435, "NotPrimaryNoSecondaryOk")                               \
    X(NOT_PRIMARY_OR_SECONDARY, 13436, "NotPrimaryOrSecondary")                                    \
    X(OUT_OF_DISK_SPACE, 14031, "OutOfDiskSpace")                                                  \
    X(NOT_RETRYABLE, 50768, "NotARetryableWriteCommand")                                           \
    X(USER_EXISTS, 51003, "Location51003")

#endif

/*
 * The meaning of the server's and libmongoc's errors for a caller of truce, in two tables.
 *
 * The question is what may have happened:
 *
 *     the server refused it                     nothing was changed: the status of its code
 *     it was never sent                         TRUCE_IO
 *     a read had no reply                       TRUCE_IO
 *     a write had no reply, or one that only
 *     says that it is not durable yet           TRUCE_UNKNOWN: it may take effect, now or later
 *     a statement of a transaction had none     TRUCE_CONFLICT: without its commit, which was
 *                                               not sent, nothing of it will ever take effect
 *     a write was sent twice (by libmongoc)
 *     and the first had no reply                TRUCE_UNKNOWN, unless the second was executed: the
 *                                               first may still take effect (mongo_command.c)
 *     an unknown code below 10000               for a write: TRUCE_UNKNOWN; numbers from 10000 on
 *                                               are assertions, which refuse a statement
 *     the commit of a transaction               after an attempt without a reply, only success
 *                                               and TransientTransactionError are certain
 *
 * Codes are MongoDB's (its error_codes.yml). Most codes that leave a write's outcome open are those
 * of the specification of retryable writes, which all drivers follow.
 */
#include "store/mongodb/mongo.h"

#include <string.h>

#include "base/assert.h"

#define CODE_WRITE_CONCERN_FAILED 64
/* Codes from this number on are assertions. */
#define CODE_ASSERTIONS 10000

enum meaning {
    /* The statement was refused, with the status of truce__status_of_code. */
    REFUSED,
    /* The same for a read or a statement. A write may have an effect. */
    STRANGE,
    /* The server did not begin, so a write has no effect. */
    UNSENT,
    /* The same as a missing reply: a write may have an effect. */
    OPEN,
    /* Another client was faster, and the call may be repeated. */
    TRANSIENT,
    /* Another operation excludes the call for now, and the call may be repeated. */
    BUSY,
    /* The call fails with TRUCE_LIMIT. */
    TOO_LARGE,
    /* The call fails with TRUCE_IO, because the disk is full. */
    NO_ROOM,
    /* The call fails with TRUCE_DUPLICATE and code 11000. */
    DUPLICATE,
    /* The call fails with TRUCE_TIMEOUT. */
    OUT_OF_TIME,
};

static const struct {
    uint32_t code;
    enum meaning meaning;
} codes[] = {
    {6, OPEN},                         /* HostUnreachable: mongos lost a shard */
    {7, OPEN},                         /* HostNotFound */
    {8, OPEN},                         /* UnknownError */
    {1, OPEN},                         /* InternalError */
    {50940, OPEN},                     /* A commit without its recoveryToken. */
    {82, OPEN},                        /* NoProgressMade: mongos found no shard for it */
    {217, OPEN},                       /* IncompleteTransactionHistory */
    {279, OPEN},                       /* ClientDisconnect */
    {63, TRANSIENT},                   /* StaleShardVersion */
    {150, TRANSIENT},                  /* StaleEpoch */
    {249, TRANSIENT},                  /* StaleDbVersion */
    {46, BUSY},                        /* LockBusy */
    {134, UNSENT},                     /* ReadConcernMajorityNotAvailableYet */
    {CODE_WRITE_CONCERN_FAILED, OPEN}, /* Executed, but not known to be durable. */
    {89, OPEN},                        /* NetworkTimeout */
    {91, OPEN},                        /* ShutdownInProgress */
    {189, OPEN},                       /* PrimarySteppedDown */
    {262, OPEN},                       /* ExceededTimeLimit */
    {9001, OPEN},                      /* SocketException */
    {11600, OPEN},                     /* InterruptedAtShutdown */
    {11601, OPEN},                     /* Interrupted */
    {11602, OPEN},                     /* InterruptedDueToReplStateChange */
    {10107, UNSENT},                   /* NotWritablePrimary */
    {13435, UNSENT},                   /* NotPrimaryNoSecondaryOk */
    {13436, UNSENT},                   /* NotPrimaryOrSecondary */
    {10058, UNSENT},                   /* LegacyNotPrimary */
    {133, UNSENT},                     /* FailedToSatisfyReadPreference: no primary of a shard */
    {202, OPEN},        /* NetworkInterfaceExceededTimeLimit: between mongos and a shard */
    {317, UNSENT},      /* ConnectionPoolExpired */
    {384, UNSENT},      /* ConnectionError */
    {407, UNSENT},      /* PooledConnectionAcquisitionExceededTimeLimit */
    {272, TRANSIENT},   /* MigrationConflict */
    {365, TRANSIENT},   /* TemporarilyUnavailable */
    {338, BUSY},        /* ReshardCollectionInProgress */
    {257, TOO_LARGE},   /* TransactionTooLarge */
    {24, TRANSIENT},    /* LockTimeout */
    {112, TRANSIENT},   /* WriteConflict */
    {225, TRANSIENT},   /* TransactionTooOld */
    {239, TRANSIENT},   /* SnapshotTooOld */
    {244, TRANSIENT},   /* TransactionAborted */
    {246, TRANSIENT},   /* SnapshotUnavailable */
    {251, TRANSIENT},   /* NoSuchTransaction */
    {267, TRANSIENT},   /* PreparedTransactionInProgress */
    {290, TRANSIENT},   /* TransactionExceededLifetimeLimitSeconds */
    {13388, TRANSIENT}, /* StaleConfig */
    {117, BUSY},        /* ConflictingOperationInProgress */
    {175, BUSY},        /* QueryPlanKilled: the collection was dropped under it */
    {237, BUSY},        /* CursorKilled */
    {276, BUSY},        /* IndexBuildAborted */
    {285, BUSY},        /* IndexBuildAlreadyInProgress */
    {277, BUSY},        /* The same in old servers. */
    {12586, BUSY},      /* BackgroundOperationInProgressForDatabase */
    {12587, BUSY},      /* BackgroundOperationInProgressForNamespace */
    {10334, TOO_LARGE}, /* BSONObjectTooLarge */
    {17280, TOO_LARGE}, /* KeyTooLong */
    {17419, TOO_LARGE}, /* The document would be too large after the update. */
    {17420, TOO_LARGE}, /* The same, another way to update. */
    {14031, NO_ROOM},   /* OutOfDiskSpace */
    {11001, DUPLICATE}, /* DuplicateKey of old servers */
    {12582, DUPLICATE}, /* The same, of mongos. */
    {50, OUT_OF_TIME},  /* MaxTimeMSExpired */
    {0, REFUSED},
};

/* The codes below CODE_ASSERTIONS that refuse a statement before it changes anything. */
static const uint16_t refusals[] = {
    2,   4,   5,   9,   10,  12,  13,  14,  15,  16,  17,  18,  19,  20,  21,  22,  26,
    27,  28,  29,  30,  34,  40,  47,  48,  52,  53,  54,  55,  56,  57,  58,  59,  61,
    66,  67,  68,  72,  73,  79,  81,  85,  86,  96,  97,  100, 111, 115, 116, 118, 121,
    123, 139, 146, 148, 159, 160, 161, 162, 165, 166, 167, 168, 169, 170, 171, 181, 182,
    195, 197, 201, 207, 223, 224, 227, 232, 233, 235, 238, 241, 242, 263, 271, 288, 291,
    292, 322, 323, 324, 347, 349, 352, 357, 359, 361, 370, 371, 376, 378, 388, 396, 411,
};

static bool error_is_refusal(uint32_t code)
{
    bool found = code >= CODE_ASSERTIONS;

    for (size_t i = 0; i < sizeof refusals / sizeof *refusals && !found; i++)
        found = refusals[i] == code;
    return found;
}

static enum meaning meaning_of(uint32_t code)
{
    size_t i = 0;

    while (codes[i].code && codes[i].code != code)
        i++;
    return codes[i].code || error_is_refusal(code) ? codes[i].meaning : STRANGE;
}

static truce_status error_unanswered(enum mongo_kind kind)
{
    switch (kind) {
    case MONGO_READ:
        return TRUCE_IO;
    case MONGO_WRITE:
        return TRUCE_UNKNOWN;
    case MONGO_STATEMENT:
        break;
    }
    return TRUCE_CONFLICT;
}

/* Converts a code of the server to a status. The same code can mean a known outcome for a read and
 * an unknown one for a write. */
static truce_status mongo_error_status_of(enum mongo_kind kind, uint32_t code)
{
    switch (meaning_of(code)) {
    case REFUSED:
        return truce__status_of_code(code);
    case STRANGE:
        return kind == MONGO_WRITE ? TRUCE_UNKNOWN : truce__status_of_code(code);
    case UNSENT:
        return kind == MONGO_STATEMENT ? TRUCE_CONFLICT : TRUCE_IO;
    case OPEN:
        return error_unanswered(kind);
    case TRANSIENT:
    case BUSY:
        return TRUCE_CONFLICT;
    case TOO_LARGE:
        return TRUCE_LIMIT;
    case NO_ROOM:
        return TRUCE_IO;
    case DUPLICATE:
        return TRUCE_DUPLICATE;
    case OUT_OF_TIME:
        return TRUCE_TIMEOUT;
    }
    return TRUCE_INVALID;
}

/* Returns whether drivers conclude from the code that the transaction may run again. */
static bool error_names_transient(uint32_t code)
{
    return code == CODE_WRITE_CONFLICT || code == CODE_NO_SUCH_TRANSACTION ||
           code == CODE_SNAPSHOT_TOO_OLD || code == CODE_LOCK_TIMEOUT ||
           code == CODE_SNAPSHOT_UNAVAILABLE || code == CODE_PREPARED_TRANSACTION_IN_PROGRESS;
}

/* Returns the code for the error. Returns 0 for a statement that failed with CONFLICT, if drivers
 * would not repeat a transaction because of the code: the caller then sees the status alone. */
static uint32_t error_statement_code(enum mongo_kind kind, truce_status status, uint32_t code)
{
    return kind == MONGO_STATEMENT && status == TRUCE_CONFLICT && !error_names_transient(code)
               ? 0
               : code;
}

/* Builds the message "find in things: MESSAGE" without a full stop. With `code` 0, the error gets
 * no code of the server. */
static truce_status error_report(truce_status status, const char *what, uint32_t code,
                                 const char *message, bson_error_t *error)
{
    size_t length;

    truce__fail(status, error, "%s: %s", what, message && *message ? message : "no reason given");
    if (!error)
        return status;
    if (code) {
        error->domain = TRUCE_ERROR_SERVER;
        error->code = meaning_of(code) == DUPLICATE   ? CODE_DUPLICATE_KEY
                      : meaning_of(code) == TOO_LARGE ? CODE_BSON_OBJECT_TOO_LARGE
                                                      : code;
    }
    length = strlen(error->message);
    while (length > 1 && error->message[length - 1] == '.')
        error->message[--length] = '\0';
    return status;
}

/* The messages of libmongoc about unreachable servers, and what truce writes instead. The address
 * follows. */
static const struct {
    const char *theirs, *ours;
    bool addressed;
} unreached[] = {
    {"Failed to connect to target host: ", "no reply from ", true},
    {"Failed to connect to: ", "no reply from ", true},
    {"connection refused calling hello on ", "no reply from ", true},
    {"connection timeout calling hello on ", "no reply from ", true},
    {"Failed to resolve ", "unknown host ", true},
    {"Failed to read ", "the peer is not a MongoDB server, or stopped replying", false},
    {"", "", true},
};

static void error_append_reason(const char *reason, size_t length, char *text, size_t size)
{
    size_t at = strlen(text), row = 0, skipped;

    while (strncmp(reason, unreached[row].theirs, strlen(unreached[row].theirs)) != 0)
        row++;
    skipped = strlen(unreached[row].theirs);
    snprintf(text + at, size - at, "%s%s%.*s", at ? ", " : "", unreached[row].ours,
             unreached[row].addressed && length > skipped ? (int)(length - skipped) : 0,
             reason + skipped);
}

/* Rewrites "No suitable servers found: ...: [REASON] [REASON]". */
static void error_rewrite_unreached(const char *message, char *text, size_t size)
{
    const char *at = strchr(message, '['), *end;

    text[0] = '\0';
    for (; at; at = *end ? strchr(end, '[') : NULL) {
        end = strstr(at, "] [");
        end = end ? end : strrchr(at, ']');
        end = end ? end : at + strlen(at);
        error_append_reason(at + 1, (size_t)(end - at) - 1, text, size);
        end += *end != '\0';
    }
    if (!text[0])
        snprintf(text, size, "no server accepts writes");
}

/* Returns the status of a refusal after a lost message, which the server may have executed or may
 * still execute. */
static truce_status after_lost(enum mongo_kind kind, truce_status status)
{
    return kind == MONGO_WRITE && truce__mongo_lost() ? TRUCE_UNKNOWN : status;
}

truce_status truce__mongo_refused(enum mongo_kind kind, const char *what, uint32_t code,
                                  const char *message, bson_error_t *error)
{
    /* A server that returns no code has refused the command, too. */
    truce_status status =
        after_lost(kind, code ? mongo_error_status_of(kind, code) : TRUCE_INVALID);

    return error_report(status, what, error_statement_code(kind, status, code), message, error);
}

truce_status truce__mongo_found_none(enum mongo_kind kind, const char *what, bson_error_t *error)
{
    return after_lost(kind, TRUCE_OK)
               ? error_report(TRUCE_UNKNOWN, what, 0,
                              "the write was sent twice, because the first message got no reply, "
                              "and the second one matched nothing: the outcome is unknown",
                              error)
               : TRUCE_OK;
}

bool truce__mongo_is_open(const bson_error_t *caught)
{
    return caught->domain != MONGOC_ERROR_SERVER || meaning_of(caught->code) == OPEN;
}

bool truce__mongo_is_certain(const bson_error_t *caught)
{
    enum meaning meaning = meaning_of(caught->code);

    return caught->domain == MONGOC_ERROR_SERVER &&
           (meaning == REFUSED || meaning == TOO_LARGE || meaning == DUPLICATE ||
            (meaning == TRANSIENT && caught->code == CODE_WRITE_CONFLICT));
}

bool truce__mongo_has_label(const bson_t *reply, const char *label)
{
    bson_iter_t iter, labels;

    if (!bson_iter_init_find(&iter, reply, "errorLabels") || !BSON_ITER_HOLDS_ARRAY(&iter) ||
        !bson_iter_recurse(&iter, &labels))
        return false;
    while (bson_iter_next(&labels))
        if (BSON_ITER_HOLDS_UTF8(&labels) && !strcmp(bson_iter_utf8(&labels, NULL), label))
            return true;
    return false;
}

/* Returns the status of an error that libmongoc made without a reply of the server. */
static truce_status local_status(enum mongo_kind kind, const bson_error_t *caught)
{
    switch (caught->domain) {
    /* The command was never sent. */
    case MONGOC_ERROR_SERVER_SELECTION:
        return kind == MONGO_STATEMENT ? TRUCE_CONFLICT : TRUCE_IO;
    case MONGOC_ERROR_STREAM:
        if (caught->code == MONGOC_ERROR_STREAM_CONNECT ||
            caught->code == MONGOC_ERROR_STREAM_NAME_RESOLUTION)
            return kind == MONGO_STATEMENT ? TRUCE_CONFLICT : TRUCE_IO;
        return error_unanswered(kind);
    case MONGOC_ERROR_CLIENT:
    case MONGOC_ERROR_SASL:
    case MONGOC_ERROR_SCRAM:
        return caught->code == MONGOC_ERROR_CLIENT_AUTHENTICATE ? TRUCE_INVALID : TRUCE_IO;
    case MONGOC_ERROR_COMMAND:
        /* The server was lost between its selection and the command. libmongoc has no code for
         * that. */
        if (strstr(caught->message, "invalidated server"))
            return kind == MONGO_STATEMENT ? TRUCE_CONFLICT : TRUCE_IO;
        return caught->code == MONGOC_ERROR_PROTOCOL_INVALID_REPLY ? error_unanswered(kind)
                                                                   : TRUCE_INVALID;
    case MONGOC_ERROR_BSON:
    case MONGOC_ERROR_NAMESPACE:
        return caught->code == MONGOC_ERROR_PROTOCOL_INVALID_REPLY ? error_unanswered(kind)
                                                                   : TRUCE_INVALID;
    default:
        return error_unanswered(kind);
    }
}

truce_status truce__mongo_failed(enum mongo_kind kind, const char *what, const bson_t *reply,
                                 const bson_error_t *caught, bson_error_t *error)
{
    bool answered = caught->domain == MONGOC_ERROR_SERVER;
    bool durable = caught->domain == MONGOC_ERROR_WRITE_CONCERN;
    const char *message = caught->message;
    char ours[sizeof caught->message];
    truce_status status;

    if (!answered)
        truce__mongo_limit_answered(false);
    /* The write was executed, but it is not known to be durable. */
    if (durable)
        return error_report(
            error_unanswered(kind), what, caught->code,
            caught->code == CODE_WRITE_CONCERN_FAILED
                ? "the write was executed, but did not reach the majority before the deadline: it "
                  "may survive or be rolled back"
                : caught->message,
            error);
    if (kind != MONGO_WRITE && truce__mongo_has_label(reply, "TransientTransactionError"))
        return error_report(
            TRUCE_CONFLICT, what,
            answered ? error_statement_code(MONGO_STATEMENT, TRUCE_CONFLICT, caught->code) : 0,
            caught->message, error);
    status = answered ? mongo_error_status_of(kind, caught->code) : local_status(kind, caught);
    if (caught->domain == MONGOC_ERROR_SERVER_SELECTION) {
        error_rewrite_unreached(caught->message, ours, sizeof ours);
        message = ours;
    }
    return error_report(after_lost(kind, status), what,
                        answered ? error_statement_code(kind, status, caught->code) : 0, message,
                        error);
}

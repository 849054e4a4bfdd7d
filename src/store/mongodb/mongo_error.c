/*
 * What the server's and libmongoc's errors mean to a caller of truce, once, in two tables.
 *
 * The question that matters is what may have happened:
 *
 *     the server refused it                     nothing was changed: the status of its code
 *     it was never sent                         TRUCE_IO
 *     a read had no answer                      TRUCE_IO
 *     a write had no answer, or one that only
 *     says that it is not durable yet           TRUCE_UNKNOWN: it may take effect, now or later
 *     a statement of a transaction had none     TRUCE_CONFLICT: without its commit, which was
 *                                               not sent, nothing of it will ever take effect
 *
 * Codes are MongoDB's (its error_codes.yml); the list of those that leave a write's outcome open is
 * that of the specification of retryable writes, which drivers share.
 */
#include "store/mongodb/mongo.h"

#include <string.h>

#include "base/assert.h"

#define CODE_WRITE_CONCERN_FAILED 64

enum meaning {
    REFUSED,     /* what truce__status_of_code says */
    UNSENT,      /* the server did not begin: a write has no effect */
    OPEN,        /* a write may have an effect; a read has none to speak of */
    TRANSIENT,   /* somebody else was faster; again */
    BUSY,        /* something excludes it for now; again */
    TOO_LARGE,   /* TRUCE_LIMIT */
    NO_ROOM,     /* TRUCE_IO */
    DUPLICATE,   /* TRUCE_DUPLICATE with the code 11000 */
    OUT_OF_TIME, /* TRUCE_TIMEOUT */
};

static const struct {
    uint32_t code;
    enum meaning meaning;
} codes[] = {
    {6, OPEN},                         /* HostUnreachable: mongos lost a shard */
    {7, OPEN},                         /* HostNotFound */
    {8, OPEN},                         /* UnknownError */
    {1, OPEN},                         /* InternalError */
    {CODE_WRITE_CONCERN_FAILED, OPEN}, /* done, not known to be durable */
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
    {202, UNSENT},                     /* NetworkInterfaceExceededTimeLimit */
    {317, UNSENT},                     /* ConnectionPoolExpired */
    {384, UNSENT},                     /* ConnectionError */
    {24, TRANSIENT},                   /* LockTimeout */
    {112, TRANSIENT},                  /* WriteConflict */
    {225, TRANSIENT},                  /* TransactionTooOld */
    {239, TRANSIENT},                  /* SnapshotTooOld */
    {244, TRANSIENT},                  /* TransactionAborted */
    {246, TRANSIENT},                  /* SnapshotUnavailable */
    {251, TRANSIENT},                  /* NoSuchTransaction */
    {267, TRANSIENT},                  /* PreparedTransactionInProgress */
    {290, TRANSIENT},                  /* TransactionExceededLifetimeLimitSeconds */
    {13388, TRANSIENT},                /* StaleConfig */
    {117, BUSY},                       /* ConflictingOperationInProgress */
    {175, BUSY},                       /* QueryPlanKilled: the collection was dropped under it */
    {237, BUSY},                       /* CursorKilled */
    {276, BUSY},                       /* IndexBuildAborted */
    {277, BUSY},                       /* IndexBuildAlreadyInProgress */
    {12586, BUSY},                     /* BackgroundOperationInProgressForDatabase */
    {12587, BUSY},                     /* BackgroundOperationInProgressForNamespace */
    {10334, TOO_LARGE},                /* BSONObjectTooLarge */
    {17280, TOO_LARGE},                /* KeyTooLong */
    {17419, TOO_LARGE},                /* the document would be too large after the update */
    {17420, TOO_LARGE},                /* the same, another way to update */
    {14031, NO_ROOM},                  /* OutOfDiskSpace */
    {11001, DUPLICATE},                /* DuplicateKey of old servers */
    {12582, DUPLICATE},                /* the same, of mongos */
    {50, OUT_OF_TIME},                 /* MaxTimeMSExpired */
    {0, REFUSED},
};

static enum meaning meaning_of(uint32_t code)
{
    size_t i = 0;

    while (codes[i].code && codes[i].code != code)
        i++;
    return codes[i].meaning;
}

static truce_status unanswered(enum mongo_kind kind)
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

static truce_status status_of(enum mongo_kind kind, uint32_t code)
{
    switch (meaning_of(code)) {
    case REFUSED:
        return truce__status_of_code(code);
    case UNSENT:
        return kind == MONGO_STATEMENT ? TRUCE_CONFLICT : TRUCE_IO;
    case OPEN:
        return unanswered(kind);
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

/* "find in things: MESSAGE", without a full stop at its end. A code of the server's keeps its domain
 * only where its status does not say more. */
static truce_status tell(truce_status status, const char *what, uint32_t code, const char *message,
                         bson_error_t *error)
{
    size_t length;

    truce__fail(status, error, "%s: %s", what,
                message && *message ? message : "no reason was given");
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

truce_status truce__mongo_refused(enum mongo_kind kind, const char *what, uint32_t code,
                                  const char *message, bson_error_t *error)
{
    /* a server that gives no code has refused all the same */
    return tell(code ? status_of(kind, code) : TRUCE_INVALID, what, code, message, error);
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

/* What libmongoc says by itself, without an answer of the server. */
static truce_status local_status(enum mongo_kind kind, const bson_error_t *caught)
{
    switch (caught->domain) {
    case MONGOC_ERROR_SERVER_SELECTION: /* never sent */
        return kind == MONGO_STATEMENT ? TRUCE_CONFLICT : TRUCE_IO;
    case MONGOC_ERROR_STREAM:
        if (caught->code == MONGOC_ERROR_STREAM_CONNECT ||
            caught->code == MONGOC_ERROR_STREAM_NAME_RESOLUTION)
            return kind == MONGO_STATEMENT ? TRUCE_CONFLICT : TRUCE_IO;
        return unanswered(kind);
    case MONGOC_ERROR_CLIENT:
    case MONGOC_ERROR_SASL:
    case MONGOC_ERROR_SCRAM:
        return caught->code == MONGOC_ERROR_CLIENT_AUTHENTICATE ? TRUCE_INVALID : TRUCE_IO;
    case MONGOC_ERROR_COMMAND:
        /* the server was lost between its choice and the command; there is no code for that */
        if (strstr(caught->message, "invalidated server"))
            return kind == MONGO_STATEMENT ? TRUCE_CONFLICT : TRUCE_IO;
        return caught->code == MONGOC_ERROR_PROTOCOL_INVALID_REPLY ? unanswered(kind)
                                                                   : TRUCE_INVALID;
    case MONGOC_ERROR_BSON:
    case MONGOC_ERROR_NAMESPACE:
        return caught->code == MONGOC_ERROR_PROTOCOL_INVALID_REPLY ? unanswered(kind)
                                                                   : TRUCE_INVALID;
    default:
        return unanswered(kind);
    }
}

truce_status truce__mongo_failed(enum mongo_kind kind, const char *what, const bson_t *reply,
                                 const bson_error_t *caught, bson_error_t *error)
{
    bool answered = caught->domain == MONGOC_ERROR_SERVER;
    bool durable = caught->domain == MONGOC_ERROR_WRITE_CONCERN;
    truce_status status;

    if (durable) /* done, but not known to be durable */
        return tell(
            unanswered(kind), what, caught->code,
            caught->code == CODE_WRITE_CONCERN_FAILED
                ? "it is done, but the majority did not have it before the deadline: it may "
                  "stay or be rolled back"
                : caught->message,
            error);
    if (kind != MONGO_WRITE && truce__mongo_has_label(reply, "TransientTransactionError"))
        return tell(TRUCE_CONFLICT, what, answered ? caught->code : 0, caught->message, error);
    status = answered ? status_of(kind, caught->code) : local_status(kind, caught);
    return tell(status, what, answered ? caught->code : 0, caught->message, error);
}

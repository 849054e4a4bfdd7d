#ifndef TRUCE_STATUS_H
#define TRUCE_STATUS_H

/*
 * Status values and error messages.
 *
 * Every call returns a truce_status: the part of an error that a program can act on. The error
 * message goes into the optional last parameter, `bson_error_t *error`. It may be NULL, and it is
 * unchanged on TRUCE_OK:
 *
 *     error->message  one sentence, lower case, no full stop: what failed, on what
 *     error->domain   the meaning of error->code:
 *
 *     TRUCE_ERROR          error->code is the truce_status itself
 *     TRUCE_ERROR_SERVER   error->code is a MongoDB error code (11000, 2, 66 ...), from a server or
 *                          from the embedded store; truce_error_name() returns its name
 */
#include <bson/bson.h>

#include "truce/export.h"
#include "truce/version.h"

TRUCE_BEGIN_DECLS

typedef enum truce_status {
    TRUCE_OK = 0,
    /* The document, job, version, or other object does not exist, or no document matched a filter.
     * This is a result, not a failure. */
    TRUCE_NOT_FOUND,
    /* Another write changed a document that this call depends on. Run the call again. */
    TRUCE_CONFLICT,
    /* Another process, thread, or commit holds the resource and did not release it before the
     * deadline. Try later. */
    TRUCE_LOCKED,
    /* The outcome is unknown. Query the result by its id or key before you send the call again. */
    TRUCE_UNKNOWN,
    /* A unique key exists, or an id was used before with different content. */
    TRUCE_DUPLICATE,
    /* Three cases:
     *  - an idempotency key is too old for the store to know whether it was used: do not retry it
     *  - a cursor or snapshot was open for too long (truce/snapshot.h): read again
     *  - this worker no longer holds the job (truce/queue.h): end the work on it */
    TRUCE_EXPIRED,
    /* The call or its input is wrong. Sending it again fails again. */
    TRUCE_INVALID,
    /* A maximum was reached: size, depth, memory, or number. See the limits in the docs. */
    TRUCE_LIMIT,
    /* The disk or the network failed. Nothing was acknowledged. */
    TRUCE_IO,
    /* The file, or a document that a pattern owns, is damaged. */
    TRUCE_CORRUPT,
    /* The deadline of the call passed, or truce_interrupt ended the call. A write or a
     * commit has no effect, and will have none later. */
    TRUCE_TIMEOUT,
    /* A condition of the caller does not hold, so repeating the call succeeds only after other
     * writes. Four cases:
     *  - a guard of a commit does not match its document
     *  - the caller's function refused (truce_transact)
     *  - a transfer was canceled
     *  - an edit of a tree cannot be published */
    TRUCE_REFUSED,
} truce_status;

/* A bson_error_t.domain: error.code is a truce_status. */
#define TRUCE_ERROR 0x7472u
/* A bson_error_t.domain: error.code is a MongoDB error code. */
#define TRUCE_ERROR_SERVER 0x7473u

/* Returns the name of a status, for example "conflict" or "not found". The string is constant and
 * never NULL, for any value. */
TRUCE_EXPORT const char *truce_status_name(truce_status status);

/* Returns MongoDB's name of an error code, for example "DuplicateKey", or "Location15974" for a
 * code without a name. The result is never NULL and is valid until the thread's next call. */
TRUCE_EXPORT const char *truce_error_name(uint32_t code);

TRUCE_END_DECLS

#endif

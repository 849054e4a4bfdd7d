#ifndef TRUCE_STATUS_H
#define TRUCE_STATUS_H

/*
 * What every call of truce answers.
 *
 * A call returns a truce_status: what the caller can ACT on. The sentence for people goes into the
 * optional last parameter, `bson_error_t *error` (may be NULL; untouched on TRUCE_OK):
 *
 *   error->message  one sentence, lower case, no full stop: what failed, on which document or path
 *   error->domain   says what error->code is:
 *
 *     TRUCE_ERROR          the truce_status itself
 *     TRUCE_ERROR_SERVER   one of MongoDB's error codes (11000, 2, 66 ...), also where the embedded store
 *                          gave it; truce_error_name() has its name
 */
#include <bson/bson.h>

#include "truce/export.h"
#include "truce/version.h"

TRUCE_BEGIN_DECLS

typedef enum truce_status {
    TRUCE_OK = 0,
    TRUCE_NOT_FOUND, /* nothing matched; an answer, not a fault */
    TRUCE_CONFLICT,  /* somebody else changed what this depends on; run it again */
    TRUCE_LOCKED,    /* somebody else holds it, and did not let go before the deadline; try later */
    TRUCE_UNKNOWN,   /* it may have happened or not; ask by its id before sending it again */
    TRUCE_DUPLICATE, /* a unique key is taken, or an id was used before with other content */
    TRUCE_EXPIRED, /* the key is too old for the store to tell whether it was used, never retried; or a cursor
                      or snapshot was open for too long (truce/snapshot.h): read it again; or the job is not
                      this worker's any more (truce/queue.h) */
    TRUCE_INVALID, /* the call or its input is wrong; sending it again will not help */
    TRUCE_LIMIT,   /* a maximum was reached (size, depth, memory, number); see limits in the docs */
    TRUCE_IO,      /* the disk or the network failed; nothing was acknowledged */
    TRUCE_CORRUPT, /* the file, or a document that a pattern owns, is not what it must be */
    TRUCE_TIMEOUT, /* the deadline of the call passed; nothing was changed */
    TRUCE_REFUSED, /* a function of the caller's own said no (truce_transact); truce itself never does */
} truce_status;

#define TRUCE_ERROR        0x7472u /* bson_error_t.domain: error.code is a truce_status */
#define TRUCE_ERROR_SERVER 0x7473u /* bson_error_t.domain: error.code is a MongoDB error code */

/* "conflict", "not found" ...: a constant string, never NULL, for any value */
TRUCE_EXPORT const char *truce_status_name(truce_status status);

/* MongoDB's name for one of its error codes: "DuplicateKey"; "Location15974" for those without a name
 * of their own. Never NULL; valid until the thread's next call. */
TRUCE_EXPORT const char *truce_error_name(uint32_t code);

TRUCE_END_DECLS

#endif

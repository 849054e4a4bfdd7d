#ifndef TRUCE_BASE_STATUS_H
#define TRUCE_BASE_STATUS_H

/* Functions that create errors inside truce. truce/status.h has the contract. */
#include "base/error_codes.h"
#include "truce/status.h"

#define TRUCE_CODE(identifier, number, name) CODE_##identifier = (number),
enum { TRUCE_CODES(TRUCE_CODE) };
#undef TRUCE_CODE

#define MESSAGE_ESCAPE_MAX 12

/* Writes the escape of the first character to `escape`, or "" if it needs none. A character that a
 * terminal obeys or a reader cannot see is shown as \u00a0, a byte that is not UTF-8 as \xff. Returns
 * the number of bytes of the character. */
size_t truce__message_escape(const char *text, size_t length, char escape[MESSAGE_ESCAPE_MAX]);

/* Cleans a message of `room` bytes. Replaces characters and bytes by their escapes, except new lines.
 * truce__fail and truce__refuse call it, so every message that quotes input is clean. */
void truce__message_clean(char *message, size_t room);

/* Fills `error`, unless it is NULL, with the domain TRUCE_ERROR. Returns `status`, which is not
 * OK. */
truce_status truce__fail(truce_status status, bson_error_t *error, const char *format, ...)
    TRUCE_PRINTF(3, 4);

/* Does the same for an error that MongoDB has, too: the domain is TRUCE_ERROR_SERVER, and the code
 * is MongoDB's. Returns the status of the code (truce__status_of_code). */
truce_status truce__refuse(uint32_t code, bson_error_t *error, const char *format, ...)
    TRUCE_PRINTF(3, 4);

/* The next two functions classify a failed call. They must not be confused.
 *
 * Returns whether the call may have taken effect, or may do so later. A caller that depends on the
 * outcome must read it before it continues. IO is included: a write that was not acknowledged may
 * still be stored. */
static inline bool truce__unanswered(truce_status status)
{
    return status == TRUCE_UNKNOWN || status == TRUCE_IO;
}

/* Returns whether repeating an idempotent call now may succeed. IO is not included: the store has
 * waited for its server until the deadline, or its disk is full. The caller gets that error and can
 * repeat the call later. */
static inline bool truce__repeatable(truce_status status)
{
    return status == TRUCE_UNKNOWN || status == TRUCE_CONFLICT;
}

/* Returns the status of a code of MongoDB. It is DUPLICATE for 11000, 48, and 51003; CONFLICT for
 * 112; NOT_FOUND for 11, 26, 27, and 43. It is TIMEOUT for 50 and 11601; LIMIT for 146, 292, and
 * 10334; IO for 14031. It is INVALID for any other code. */
truce_status truce__status_of_code(uint32_t code);

#endif

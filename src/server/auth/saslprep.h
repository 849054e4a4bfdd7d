#ifndef TRUCE_SERVER_AUTH_SASLPREP_H
#define TRUCE_SERVER_AUTH_SASLPREP_H

/*
 * SASLprep (RFC 4013) normalizes a password, so that it has the same bytes from every keyboard:
 *
 *  - Invisible characters are removed.
 *  - Spaces of other widths become a space, and letters of other forms become the letter (NFKC).
 *  - Control characters, private characters, characters that Unicode 3.2 did not have (emoji), and
 *    mixtures of left-to-right and right-to-left text are refused.
 *
 * As in MongoDB, ICU does this; drivers do the same on their side. User names are not normalized.
 */
#include "base/status.h"

/* Prepares a password (RFC 4013). The caller frees `*prepared`. Fails with BadValue if the password
 * cannot be prepared, is empty afterwards, or has more than TRUCE_PASSWORD_MAX bytes. */
truce_status saslprep(const char *password, char **prepared, bson_error_t *error);

#endif

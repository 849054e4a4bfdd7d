#ifndef TRUCE_SERVER_AUTH_SASLPREP_H
#define TRUCE_SERVER_AUTH_SASLPREP_H

/*
 * SASLprep (RFC 4013) of a password, so that the same password, typed on another keyboard, is the same bytes: what is
 * invisible is removed, spaces of other widths become a space, letters of other forms the letter (NFKC). Control
 * characters, private ones, those that Unicode 3.2 did not have (emoji), and a mixture of writing from left to right and
 * from right to left are refused. By ICU, as MongoDB does it; its drivers do the same on their side.
 *
 * User names are as they are: "IX" and the one character of the Roman number nine are two users, as in MongoDB.
 */
#include "base/status.h"

/* `*prepared` is the caller's; BadValue, if the password is empty afterwards, cannot be prepared, or has more than
 * TRUCE_PASSWORD_MAX bytes. */
truce_status saslprep(const char *password, char **prepared, bson_error_t *error);

#endif

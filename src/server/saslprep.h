#ifndef TRUCE_SERVER_SASLPREP_H
#define TRUCE_SERVER_SASLPREP_H

/*
 * SASLprep (RFC 4013) of a password, so that the same password, typed on another keyboard, is the same bytes.
 *
 * What it does to ASCII: nothing; control characters are refused. Beyond: spaces of other widths become a space, what
 * is invisible is removed (RFC 3454, tables B.1 and C.1.2), and letters, ideographs and signs that stand for themselves
 * in the normal form NFKC are kept: the letters of Latin, Greek, Cyrillic, Armenian and Georgian, Hangul, Kana, Han, and
 * some signs. Anything else, whose form would have to be looked up in tables of thousands (combining marks, ligatures, wide
 * letters, writing from right to left, emoji), is refused, so that no password is kept in a form that another client
 * would not make of it. MongoDB's drivers do the same on their side, with whole tables.
 */
#include "base/status.h"

/* `*prepared` is the caller's; a password that is empty afterwards, or cannot be prepared, is BadValue. */
truce_status saslprep(const char *password, char **prepared, bson_error_t *error);

#endif

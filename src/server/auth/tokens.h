#ifndef TRUCE_SERVER_AUTH_TOKENS_H
#define TRUCE_SERVER_AUTH_TOKENS_H

/*
 * Bearer tokens of users, for HTTP. A token is "truce_" and 32 random bytes. The user's document
 * has what is needed to recognize it, and not the token itself:
 *
 *     tokens: [{id: "9f86d081", hash: <SHA-256>, created: <date>, expires: <date>}, ...]
 *
 * The hash needs no salt and no iterations, because 32 random bytes cannot be guessed.
 *
 * Invariants:
 *  1. A token acts as its user, with the user's present roles, until it expires or is revoked. A
 *     user whose password changes, and a removed user, have no tokens.
 *  2. A user has at most TRUCE_USER_TOKENS_MAX tokens.
 */
#include "base/status.h"
#include "truce/store.h"

#define TOKEN_PREFIX "truce_"
#define TOKEN_MAX    80 /* The size of a token with its terminator. */
#define TOKEN_ID_MAX 9  /* The size of an id with its terminator. */

/* Adds a token to the user and removes those that have expired. `expires_ms` counts from 1970; with
 * 0, the token never expires. The token is returned here and never again. Fails with UserNotFound
 * (11), and with LIMIT if the user has TRUCE_USER_TOKENS_MAX tokens. */
truce_status tokens_add(truce_store *store, const char *database, const char *name,
                        int64_t expires_ms, char token[TOKEN_MAX], char id[TOKEN_ID_MAX],
                        bson_error_t *error);
/* Revokes a token. Fails with NOT_FOUND if the user has no token with the id. */
truce_status tokens_revoke(truce_store *store, const char *database, const char *name,
                           const char *id, bson_error_t *error);
/* Returns the user's tokens as an array of {id, created, expires}, which is always initialized. */
truce_status tokens_list(truce_store *store, const char *database, const char *name, bson_t *array,
                         bson_error_t *error);
/* Reads the document of the token's user, which is always initialized, and the time at which the
 * token expires (0 means never). Fails with NOT_FOUND if no user has the token or it has
 * expired. */
truce_status tokens_user(truce_store *store, const char *token, bson_t *document,
                         int64_t *expires_ms, bson_error_t *error);

#endif

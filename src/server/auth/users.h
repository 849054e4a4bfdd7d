#ifndef TRUCE_SERVER_AUTH_USERS_H
#define TRUCE_SERVER_AUTH_USERS_H

/*
 * Users, in the collection system.users of the database admin, laid out as MongoDB does:
 *
 *     {_id: "school.ada", userId: UUID, user: "ada", db: "school",
 *      credentials: {"SCRAM-SHA-1": {iterationCount, salt, storedKey, serverKey},
 *                    "SCRAM-SHA-256": {...}},
 *      roles: [{role: "readWrite", db: "school"}], customData: {...}, tokens: [...]}
 *
 * The collection has the name USER_RECORDS in the store, whichever database the server serves. A
 * change of a user writes one document. A user that is removed and created again gets a new userId,
 * so an existing login does not apply to the new user.
 */
#include "server/auth/roles.h"
#include "server/auth/scram.h"
#include "truce/store.h"

#define USER_ID_BYTES   16
#define USER_MECHANISMS ((1u << SCRAM_MECHANISMS) - 1)

struct user {
    char name[SCRAM_NAME_MAX + 1], database[DATABASE_NAME_MAX + 1];
    uint8_t id[USER_ID_BYTES];
    struct grants grants;
};

/* The facts of a user to set. A field that is NULL or 0 stays unchanged. */
struct user_facts {
    const char *name, *database;
    const char *password;
    uint32_t mechanisms; /* Bits of enum scram_mechanism. */
    const struct grants *grants;
    const bson_t *custom;
};

/* Fails with BadValue for a name that users cannot have. */
truce_status users_check_name(const char *name, bson_error_t *error);

/* Creates a user. Fails with 51003 if the user exists. */
truce_status users_add(truce_store *store, const struct user_facts *facts, bson_error_t *error);
/* Changes a user. Fails with UserNotFound (11) if it does not exist. A new password removes the
 * user's tokens (tokens.h). */
truce_status users_change(truce_store *store, const struct user_facts *facts, bson_error_t *error);
truce_status users_grant(truce_store *store, const char *database, const char *name,
                         const struct grants *grants, bool revoke, bson_error_t *error);
truce_status users_remove(truce_store *store, const char *database, const char *name,
                          bson_error_t *error);
truce_status users_remove_all(truce_store *store, const char *database, int64_t *removed,
                              bson_error_t *error);

/* Reads the user's document, which is always initialized. Fails with UserNotFound (11). */
truce_status users_read(truce_store *store, const char *database, const char *name,
                        bson_t *document, bson_error_t *error);
truce_status users_count(truce_store *store, int64_t *count, bson_error_t *error);
/* Fills `user` from a user's document. Returns false if the document is not a valid user. */
bool users_load(const bson_t *document, struct user *user);
/* Reads the keys for the mechanism in `credential`. Returns false if the user has none. */
bool users_credential(const bson_t *document, struct scram_credential *credential);
uint32_t users_mechanisms(const bson_t *document);
/* Appends the names of the mechanisms as an array. */
void users_append_mechanisms(uint32_t mechanisms, const char *key, bson_t *document);

#endif

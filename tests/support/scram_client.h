#ifndef TRUCE_TESTS_SUPPORT_SCRAM_CLIENT_H
#define TRUCE_TESTS_SUPPORT_SCRAM_CLIENT_H

/* The client's side of SCRAM, on a connection to a server of talk.h; and the mistakes of a
 * client. */
#include "server/auth/scram.h"

enum login_mistake {
    LOGIN_RIGHT,
    /* The final message has another nonce. */
    LOGIN_OTHER_NONCE,
    /* The final message has only the client's half of the nonce. */
    LOGIN_CLIENT_NONCE,
    /* The channel binding of the final message differs from the header of the first one. */
    LOGIN_OTHER_BINDING,
    /* One bit of the proof is wrong. */
    LOGIN_WRONG_PROOF,
    LOGIN_SHORT_PROOF,
    LOGIN_NO_PROOF,
    LOGIN_MISTAKES,
};

struct login_try {
    enum scram_mechanism mechanism;
    /* If `database` is NULL, it is admin. */
    const char *database, *name, *password;
    enum login_mistake mistake;
    /* Skips the empty exchange after the final message. */
    bool brief;
};

/* Returns the final message to a challenge. `first` is the first one without its header. The
 * caller frees it. */
char *scram_client_final(const struct login_try *try, const char *first, const char *challenge);

/* Logs in by saslStart and saslContinue. Returns 0, the code of the reply that refuses the login,
 * or -1 if the server ended the connection. */
int64_t scram_login(int end, const struct login_try *try);
/* Opens a connection that is logged in by SCRAM-SHA-256 as a user of admin. */
int dial_as(const char *name, const char *password);

/* Sends {saslStart ...} or {saslContinue ...} on `end`. Returns the reply, which the caller
 * destroys, or NULL if the server ended the connection. */
bson_t *sasl_ask(int end, const char *command, const struct login_try *try, const char *payload);

#endif

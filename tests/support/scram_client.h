#ifndef TRUCE_TESTS_SUPPORT_SCRAM_CLIENT_H
#define TRUCE_TESTS_SUPPORT_SCRAM_CLIENT_H

/* The client's side of SCRAM, on a connection to a server of talk.h; and the mistakes of a
 * client. */
#include "server/auth/scram.h"

enum login_mistake {
    LOGIN_RIGHT,
    LOGIN_OTHER_NONCE,   /* the final message has another nonce */
    LOGIN_CLIENT_NONCE,  /* ... the client's half alone */
    LOGIN_OTHER_BINDING, /* ... another beginning than the first message had */
    LOGIN_WRONG_PROOF,   /* one bit of it */
    LOGIN_SHORT_PROOF,
    LOGIN_NO_PROOF,
    LOGIN_MISTAKES,
};

struct login_try {
    enum scram_mechanism mechanism;
    const char *database, *name, *password; /* database NULL: admin */
    enum login_mistake mistake;
    bool brief; /* without the empty exchange */
};

/* Returns the final message to a challenge. `first` is the first one without its header. The
 * caller frees it. */
char *scram_client_final(const struct login_try *try, const char *first, const char *challenge);

/* Logs in by saslStart and saslContinue. Returns the code of the answer that refuses it, 0: it
 * is in, -1: the connection was ended. */
int64_t scram_login(int end, const struct login_try *try);
/* Opens a connection that is logged in by SCRAM-SHA-256 as a user of admin. */
int dial_as(const char *name, const char *password);

/* Sends {saslStart ...} or {saslContinue ...} on `end`; NULL: the connection was ended. The
 * caller destroys the reply. */
bson_t *sasl_ask(int end, const char *command, const struct login_try *try, const char *payload);

#endif

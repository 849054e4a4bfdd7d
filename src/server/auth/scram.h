#ifndef TRUCE_SERVER_AUTH_SCRAM_H
#define TRUCE_SERVER_AUTH_SCRAM_H

/*
 * SCRAM-SHA-256 (RFC 7677) and SCRAM-SHA-1 (RFC 5802), the server's side: bytes to bytes, no socket, no store.
 *
 *     client   n,,n=ada,r=C                               scram_first
 *     server   r=CS,s=SALT,i=15000                        scram_challenge
 *     client   c=biws,r=CS,p=PROOF                        scram_final
 *     server   v=SIGNATURE
 *
 * The server keeps no password, and nothing from which one can log in: of
 *
 *     salted     = PBKDF2(password, salt, iterations)
 *     client key = HMAC(salted, "Client Key")             stored key = H(client key)
 *     server key = HMAC(salted, "Server Key")
 *
 * it keeps the stored key, by which it knows a client key when it sees one, and the server key, by which the client
 * knows the server. What the mechanisms call a password is of MongoDB's making:
 *
 *     SCRAM-SHA-256   the password after SASLprep (saslprep.h)
 *     SCRAM-SHA-1     hex(MD5("NAME:mongo:PASSWORD"))
 *
 * Invariants:
 *  1. A final message is taken only if it has the nonce of this conversation, whose second half nobody could know
 *     before, and a proof that the stored key confirms.
 *  2. What is compared with a secret is compared in a time that does not tell where it differs.
 *  3. Keys and passwords are wiped from what memory they were in.
 *
 * Not done: channel binding (the mechanisms with -PLUS), and names to act as (authzid), which MongoDB has not either.
 */
#include <stdbool.h>
#include <stdint.h>

#include <bson/bson.h>

#include "base/status.h"

enum scram_mechanism { SCRAM_SHA_256, SCRAM_SHA_1, SCRAM_MECHANISMS };

#define SCRAM_KEY_MAX     32
#define SCRAM_SALT_MAX    28
#define SCRAM_NONCE_BYTES 24  /* of the server, before they are Base64 */
#define SCRAM_TEXT_MAX    512 /* of a message of the client */
#define SCRAM_NAME_MAX    128 /* bytes of a user's name */

/* What a user's document has for one mechanism. */
struct scram_credential {
    enum scram_mechanism mechanism;
    int iterations;
    size_t salt_size;
    uint8_t salt[SCRAM_SALT_MAX], stored_key[SCRAM_KEY_MAX], server_key[SCRAM_KEY_MAX];
};

/* One conversation. */
struct scram {
    struct scram_credential credential;
    char name[SCRAM_NAME_MAX + 1];
    char header[8];                     /* "n,," */
    char first[SCRAM_TEXT_MAX + 1];     /* the client's first message without its header */
    char challenge[2 * SCRAM_TEXT_MAX]; /* the server's first message */
    char nonce[SCRAM_TEXT_MAX + 64];    /* the client's half, then both */
};

const char *scram_name(enum scram_mechanism mechanism);
/* False: there is no such mechanism. */
bool scram_mechanism_of(const char *name, enum scram_mechanism *mechanism);
int scram_key_size(enum scram_mechanism mechanism);

/* Returns whether the password is that of the credential, in a time that does not depend on where it differs. */
bool scram_matches(const struct scram_credential *credential, const char *name,
                   const char *password);
/* The same of the password as the mechanism sees it. */
void scram_derive_prepared(const char *prepared, struct scram_credential *credential);
/* The same with a salt of chance and MongoDB's number of iterations. */
truce_status scram_make(enum scram_mechanism mechanism, const char *name, const char *password,
                        struct scram_credential *credential, bson_error_t *error);

/* Reads the client's first message: name and nonce. NULL, or what is wrong with it. */
const char *scram_first(struct scram *scram, const uint8_t *message, size_t size);
/* Makes the challenge, for the credential that stands in `scram`. `half`: the server's half of the nonce; NULL: one of chance. */
void scram_challenge(struct scram *scram, const char *half);
/* Reads the client's final message, and makes the server's. NULL, or what is wrong with it. */
const char *scram_final(const struct scram *scram, const uint8_t *message, size_t size,
                        char signature[64]);

/* A credential that nobody has the password of, always the same for a name: so the challenge does not tell who is a user. */
void scram_nobody(enum scram_mechanism mechanism, const uint8_t secret[SCRAM_KEY_MAX],
                  const char *database, const char *name, struct scram_credential *credential);

/* Bytes that cannot be guessed; aborts if there are none. */
void scram_chance(uint8_t *bytes, size_t size);
void scram_wipe(void *bytes, size_t size);
/* `text` has room for 4 bytes for each 3, and a zero. */
void scram_base64(const uint8_t *bytes, size_t size, char *text);
/* False: the text is not the Base64 of exactly so many bytes. */
bool scram_unbase64(const char *text, uint8_t *bytes, size_t size);
/* The same of a salt, which has its own length. */
bool scram_unbase64_salt(const char *text, struct scram_credential *credential);

#endif

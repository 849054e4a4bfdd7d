#ifndef TRUCE_SERVER_AUTH_SCRAM_H
#define TRUCE_SERVER_AUTH_SCRAM_H

/*
 * The server's side of SCRAM-SHA-256 (RFC 7677) and SCRAM-SHA-1 (RFC 5802). It converts bytes to
 * bytes, without socket and store.
 *
 *     client   n,,n=ada,r=C                               scram_first
 *     server   r=CS,s=SALT,i=15000                        scram_challenge
 *     client   c=biws,r=CS,p=PROOF                        scram_final
 *     server   v=SIGNATURE
 *
 * The server stores no password, and nothing that suffices to log in. From
 *
 *     salted     = PBKDF2(password, salt, iterations)
 *     client key = HMAC(salted, "Client Key")             stored key = H(client key)
 *     server key = HMAC(salted, "Server Key")
 *
 * it stores the stored key, which verifies a client key, and the server key, which proves the
 * server to the client. The input of PBKDF2 is defined by MongoDB:
 *
 *     SCRAM-SHA-256   the password after SASLprep (saslprep.h)
 *     SCRAM-SHA-1     hex(MD5("NAME:mongo:PASSWORD"))
 *
 * Invariants:
 *  1. A final message is accepted only with the nonce of this conversation, whose second half is
 *     random, and with a proof that matches the stored key.
 *  2. Comparisons with secrets take the same time wherever the values differ.
 *  3. Keys and passwords are wiped from memory after use.
 *
 * Not done: channel binding (the mechanisms with -PLUS) and other authorization identities
 * (authzid). MongoDB has neither.
 */
#include <stdbool.h>
#include <stdint.h>

#include <bson/bson.h>

#include "base/status.h"

enum scram_mechanism { SCRAM_SHA_256, SCRAM_SHA_1, SCRAM_MECHANISMS };

#define SCRAM_KEY_MAX     32
#define SCRAM_SALT_MAX    28
#define SCRAM_NONCE_BYTES 24  /* The server's nonce before Base64. */
#define SCRAM_TEXT_MAX    512 /* The maximum size of a message of the client. */
#define SCRAM_NAME_MAX    128 /* The maximum size of a user's name. */

/* The keys of a user for one mechanism. */
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
    /* For example "n,,". */
    char header[8];
    /* The client's first message without its header. */
    char first[SCRAM_TEXT_MAX + 1];
    /* The server's first message. */
    char challenge[2 * SCRAM_TEXT_MAX];
    /* The client's half of the nonce, and after scram_challenge both halves. */
    char nonce[SCRAM_TEXT_MAX + 64];
};

const char *scram_name(enum scram_mechanism mechanism);
/* Sets *mechanism to the one with this name. Returns false if the name is unknown. */
bool scram_mechanism_of(const char *name, enum scram_mechanism *mechanism);
int scram_key_size(enum scram_mechanism mechanism);

/* Returns whether the password is that of the credential. The time does not depend on where it
 * differs. */
bool scram_matches(const struct scram_credential *credential, const char *name,
                   const char *password);
/* Derives the keys from the password in the form that the mechanism uses. */
void scram_derive_prepared(const char *prepared, struct scram_credential *credential);
/* Derives the keys with a random salt and MongoDB's number of iterations. */
truce_status scram_make(enum scram_mechanism mechanism, const char *name, const char *password,
                        struct scram_credential *credential, bson_error_t *error);

/* Reads the client's first message: name and nonce. Returns NULL, or the reason why it is
 * invalid. */
const char *scram_first(struct scram *scram, const uint8_t *message, size_t size);
/* Makes the challenge for the credential in `scram`. `half` is the server's half of the nonce; if
 * it is NULL, the half is random. */
void scram_challenge(struct scram *scram, const char *half);
/* Reads the client's final message and makes the server's. Returns NULL, or the reason why it is
 * invalid. */
const char *scram_final(const struct scram *scram, const uint8_t *message, size_t size,
                        char signature[64]);

/* Makes a credential that no password matches: its keys are random. Its salt is always the same for
 * a name, so the challenge does not reveal whether the user exists. */
void scram_unknown_user(enum scram_mechanism mechanism, const uint8_t secret[SCRAM_KEY_MAX],
                        const char *database, const char *name,
                        struct scram_credential *credential);

/* Fills bytes from the secure random generator; aborts if it fails. */
void scram_random(uint8_t *bytes, size_t size);
void scram_wipe(void *bytes, size_t size);
/* Encodes bytes as Base64. `text` has room for 4 bytes for each 3, and a zero byte. */
void scram_base64(const uint8_t *bytes, size_t size, char *text);
/* Decodes Base64. Returns false unless the result has exactly `size` bytes. */
bool scram_unbase64(const char *text, uint8_t *bytes, size_t size);
/* Decodes a salt, which may have any length up to the maximum. */
bool scram_unbase64_salt(const char *text, struct scram_credential *credential);

#endif

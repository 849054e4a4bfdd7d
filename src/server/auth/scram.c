#include "server/auth/scram.h"

#include <stdio.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "base/assert.h"
#include "bson/binary_text.h"
#include "server/auth/saslprep.h"

static const struct {
    const char *name;
    /* `key` and `salt` are sizes in bytes. As in MongoDB, a salt and a 4-byte number fill a block
     * of the hash. */
    int iterations, key, salt;
} mechanisms[SCRAM_MECHANISMS] = {
    [SCRAM_SHA_256] = {"SCRAM-SHA-256", 15000, 32, 28},
    [SCRAM_SHA_1] = {"SCRAM-SHA-1", 10000, 20, 16},
};

const char *scram_name(enum scram_mechanism mechanism)
{
    return mechanisms[mechanism].name;
}

bool scram_mechanism_of(const char *name, enum scram_mechanism *mechanism)
{
    for (int i = 0; i < SCRAM_MECHANISMS; i++)
        if (!strcmp(name, mechanisms[i].name)) {
            *mechanism = (enum scram_mechanism)i;
            return true;
        }
    return false;
}

int scram_key_size(enum scram_mechanism mechanism)
{
    return mechanisms[mechanism].key;
}

/* ---- primitives ------------------------------------------------------------------------------ */

static const EVP_MD *scram_hash_of(enum scram_mechanism mechanism)
{
    return mechanism == SCRAM_SHA_256 ? EVP_sha256() : EVP_sha1();
}

void scram_random(uint8_t *bytes, size_t size)
{
    truce_assert(RAND_bytes(bytes, (int)size) == 1);
}

void scram_wipe(void *bytes, size_t size)
{
    OPENSSL_cleanse(bytes, size);
}

void scram_base64(const uint8_t *bytes, size_t size, char *text)
{
    (void)EVP_EncodeBlock((unsigned char *)text, bytes, (int)size);
}

bool scram_unbase64(const char *text, uint8_t *bytes, size_t size)
{
    uint8_t decoded[3 * SCRAM_KEY_MAX];
    size_t length = strlen(text), padding = (3 - size % 3) % 3;
    bool good = length == (size + 2) / 3 * 4 && length / 4 * 3 <= sizeof decoded &&
                strcspn(text, "=") == length - padding;

    good = good && EVP_DecodeBlock(decoded, (const uint8_t *)text, (int)length) >= 0;
    if (good)
        memcpy(bytes, decoded, size);
    scram_wipe(decoded, sizeof decoded);
    return good;
}

bool scram_unbase64_salt(const char *text, struct scram_credential *credential)
{
    size_t length = strlen(text), size = length / 4 * 3;

    if (length >= 4)
        size -= (size_t)(text[length - 1] == '=') + (size_t)(text[length - 2] == '=');
    credential->salt_size = size;
    return size && size <= SCRAM_SALT_MAX && scram_unbase64(text, credential->salt, size);
}

static void scram_hmac(enum scram_mechanism mechanism, const uint8_t *key, const char *text,
                       uint8_t result[SCRAM_KEY_MAX])
{
    unsigned size = 0;

    truce_assert(HMAC(scram_hash_of(mechanism), key, mechanisms[mechanism].key,
                      (const uint8_t *)text, strlen(text), result, &size));
}

static void scram_hash(enum scram_mechanism mechanism, const uint8_t *bytes,
                       uint8_t result[SCRAM_KEY_MAX])
{
    unsigned size = 0;

    truce_assert(EVP_Digest(bytes, (size_t)mechanisms[mechanism].key, result, &size,
                            scram_hash_of(mechanism), NULL));
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* Returns hex(MD5("NAME:mongo:PASSWORD")). */
static char *digest_of(const char *name, const char *password)
{
    char *text = bson_strdup_printf("%s:mongo:%s", name, password), *hex = bson_malloc0(33);
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned size = 0;

    truce_assert(EVP_Digest(text, strlen(text), digest, &size, EVP_md5(), NULL));
    truce__hex_show(digest, size, hex);
    scram_wipe(text, strlen(text));
    bson_free(text);
    return hex;
}

void scram_derive_prepared(const char *prepared, struct scram_credential *credential)
{
    enum scram_mechanism mechanism = credential->mechanism;
    uint8_t salted[SCRAM_KEY_MAX], key[SCRAM_KEY_MAX];

    truce_assert(PKCS5_PBKDF2_HMAC(prepared, (int)strlen(prepared), credential->salt,
                                   (int)credential->salt_size, credential->iterations,
                                   scram_hash_of(mechanism), mechanisms[mechanism].key,
                                   salted) == 1);
    scram_hmac(mechanism, salted, "Client Key", key);
    scram_hash(mechanism, key, credential->stored_key);
    scram_hmac(mechanism, salted, "Server Key", credential->server_key);
    scram_wipe(salted, sizeof salted);
    scram_wipe(key, sizeof key);
}

/* Derives the stored keys of a password, with the salt and the iterations of `credential`. */
static truce_status scram_derive(const char *name, const char *password,
                                 struct scram_credential *credential, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    char *prepared = NULL;

    if (credential->mechanism == SCRAM_SHA_256)
        status = saslprep(password, &prepared, error);
    else
        prepared = digest_of(name, password);
    if (status)
        return status;
    scram_derive_prepared(prepared, credential);
    scram_wipe(prepared, strlen(prepared));
    bson_free(prepared);
    return TRUCE_OK;
}

bool scram_matches(const struct scram_credential *credential, const char *name,
                   const char *password)
{
    struct scram_credential own = *credential;
    bson_error_t error;
    bool good = !scram_derive(name, password, &own, &error) &&
                !CRYPTO_memcmp(own.stored_key, credential->stored_key,
                               (size_t)scram_key_size(credential->mechanism));

    scram_wipe(&own, sizeof own);
    return good;
}

static struct scram_credential scram_new_credential(enum scram_mechanism mechanism)
{
    return (struct scram_credential){.mechanism = mechanism,
                                     .iterations = mechanisms[mechanism].iterations,
                                     .salt_size = (size_t)mechanisms[mechanism].salt};
}

truce_status scram_make(enum scram_mechanism mechanism, const char *name, const char *password,
                        struct scram_credential *credential, bson_error_t *error)
{
    *credential = scram_new_credential(mechanism);
    scram_random(credential->salt, credential->salt_size);
    return scram_derive(name, password, credential, error);
}

void scram_unknown_user(enum scram_mechanism mechanism, const uint8_t secret[SCRAM_KEY_MAX],
                        const char *database, const char *name, struct scram_credential *credential)
{
    uint8_t salt[SCRAM_KEY_MAX];
    char *text = bson_strdup_printf("%s.%s.%d", database, name, mechanism);

    *credential = scram_new_credential(mechanism);
    scram_hmac(SCRAM_SHA_256, secret, text, salt);
    memcpy(credential->salt, salt, credential->salt_size);
    scram_random(credential->stored_key, sizeof credential->stored_key);
    bson_free(text);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Copies the message as a string. Returns false if it is empty, is too long, or contains a zero
 * byte. */
static bool scram_text_of(const uint8_t *message, size_t size, char text[SCRAM_TEXT_MAX + 1])
{
    if (!size || size > SCRAM_TEXT_MAX || memchr(message, 0, size))
        return false;
    memcpy(text, message, size);
    text[size] = '\0';
    return true;
}

/* Copies the value of the attribute at `*at`, up to a comma or the end, and moves `*at` after it.
 * Returns false if another attribute is there, or the value does not fit. */
static bool scram_take(const char **at, char attribute, char *value, size_t room)
{
    size_t length;

    if ((*at)[0] != attribute || (*at)[1] != '=')
        return false;
    length = strcspn(*at + 2, ",");
    if (length >= room)
        return false;
    memcpy(value, *at + 2, length);
    value[length] = '\0';
    *at += 2 + length;
    if (**at == ',')
        ++*at;
    return true;
}

/* Decodes a user name: "=2C" is a comma, and "=3D" is "=". */
static bool scram_unescape(char *name)
{
    char *to = name;

    for (const char *at = name; *at; at++) {
        if (*at != '=') {
            *to++ = *at;
            continue;
        }
        if (strncmp(at, "=2C", 3) != 0 && strncmp(at, "=3D", 3) != 0)
            return false;
        *to++ = at[1] == '2' ? ',' : '=';
        at += 2;
    }
    *to = '\0';
    return true;
}

static bool is_nonce(const char *nonce)
{
    for (const char *at = nonce; *at; at++)
        if (*at < 0x21 || *at > 0x7e)
            return false;
    return nonce[0] != '\0';
}

const char *scram_first(struct scram *scram, const uint8_t *message, size_t size)
{
    char text[SCRAM_TEXT_MAX + 1], name[3 * SCRAM_NAME_MAX + 1];
    const char *at;

    if (!scram_text_of(message, size, text))
        return "the first message is empty, or too long";
    if (strncmp(text, "n,,", 3) != 0 && strncmp(text, "y,,", 3) != 0)
        return "channel binding and an authorization identity are not supported";
    snprintf(scram->header, sizeof scram->header, "%.3s", text);
    snprintf(scram->first, sizeof scram->first, "%s", text + 3);
    at = scram->first;
    if (!scram_take(&at, 'n', name, sizeof name) || !scram_unescape(name) || !name[0] ||
        strlen(name) > SCRAM_NAME_MAX || !bson_utf8_validate(name, strlen(name), false))
        return "the first message has no name";
    memcpy(scram->name, name, strlen(name) + 1);
    if (!scram_take(&at, 'r', scram->nonce, SCRAM_TEXT_MAX + 1) || !is_nonce(scram->nonce))
        return "the first message has no nonce";
    return NULL;
}

void scram_challenge(struct scram *scram, const char *half)
{
    const struct scram_credential *credential = &scram->credential;
    uint8_t random[SCRAM_NONCE_BYTES];
    char mine[2 * SCRAM_NONCE_BYTES], salt[2 * SCRAM_SALT_MAX];
    size_t length = strlen(scram->nonce);

    scram_random(random, sizeof random);
    scram_base64(random, sizeof random, mine);
    snprintf(scram->nonce + length, sizeof scram->nonce - length, "%s", half ? half : mine);
    scram_base64(credential->salt, credential->salt_size, salt);
    snprintf(scram->challenge, sizeof scram->challenge, "r=%s,s=%s,i=%d", scram->nonce, salt,
             credential->iterations);
}

/* Returns whether the proof is right: removing the conversation's signature from it gives the
 * client key, whose hash is the stored key. */
static bool scram_check_proof(const struct scram_credential *credential, const char *conversation,
                              const uint8_t proof[SCRAM_KEY_MAX])
{
    uint8_t key[SCRAM_KEY_MAX], stored[SCRAM_KEY_MAX];
    size_t size = (size_t)mechanisms[credential->mechanism].key;
    bool good;

    scram_hmac(credential->mechanism, credential->stored_key, conversation, key);
    for (size_t i = 0; i < size; i++)
        key[i] ^= proof[i];
    scram_hash(credential->mechanism, key, stored);
    good = CRYPTO_memcmp(stored, credential->stored_key, size) == 0;
    scram_wipe(key, sizeof key);
    return good;
}

static void scram_sign(const struct scram_credential *credential, const char *conversation,
                       char signature[64])
{
    uint8_t bytes[SCRAM_KEY_MAX];
    char text[48];

    scram_hmac(credential->mechanism, credential->server_key, conversation, bytes);
    scram_base64(bytes, (size_t)mechanisms[credential->mechanism].key, text);
    snprintf(signature, 64, "v=%s", text);
}

const char *scram_final(const struct scram *scram, const uint8_t *message, size_t size,
                        char signature[64])
{
    char text[SCRAM_TEXT_MAX + 1], binding[16], header[16], proof[64];
    char nonce[sizeof scram->nonce], *conversation;
    uint8_t bytes[SCRAM_KEY_MAX];
    const char *at = text, *last;
    bool good;

    if (!scram_text_of(message, size, text))
        return "the final message is empty, or too long";
    scram_base64((const uint8_t *)scram->header, 3, header);
    if (!scram_take(&at, 'c', binding, sizeof binding) || strcmp(binding, header) != 0)
        return "the channel binding of the final message is wrong";
    if (!scram_take(&at, 'r', nonce, sizeof nonce) || strlen(nonce) != strlen(scram->nonce) ||
        CRYPTO_memcmp(nonce, scram->nonce, strlen(nonce)) != 0)
        return "the nonce of the final message is wrong";
    last = at;
    if (!scram_take(&at, 'p', proof, sizeof proof) || *at ||
        !scram_unbase64(proof, bytes, (size_t)mechanisms[scram->credential.mechanism].key))
        return "the final message has no proof";
    conversation = bson_strdup_printf("%s,%s,%.*s", scram->first, scram->challenge,
                                      (int)(last - text - 1), text);
    good = scram_check_proof(&scram->credential, conversation, bytes);
    if (good)
        scram_sign(&scram->credential, conversation, signature);
    bson_free(conversation);
    return good ? NULL : "wrong password";
}

#include "tests/support/scram_client.h"

#include <stdio.h>
#include <string.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/assert.h"
#include "tests/support/talk.h"

#define FIRST_NONCE "fyko+d2lbbFgONRv9qkxdawL"

static const EVP_MD *hash_of(enum scram_mechanism mechanism)
{
    return mechanism == SCRAM_SHA_256 ? EVP_sha256() : EVP_sha1();
}

static char *prepare(const struct login_try *try)
{
    uint8_t digest[EVP_MAX_MD_SIZE];
    char *text, *prepared;
    unsigned size = 0;

    if (try->mechanism == SCRAM_SHA_256)
        /* The passwords of the tests are ASCII, so SASLprep does not change them. */
        return bson_strdup(try->password);
    text = bson_strdup_printf("%s:mongo:%s", try->name, try->password);
    prepared = bson_malloc0(33);
    EVP_Digest(text, strlen(text), digest, &size, EVP_md5(), NULL);
    for (unsigned i = 0; i < size; i++)
        snprintf(prepared + 2 * i, 3, "%02x", digest[i]);
    bson_free(text);
    return prepared;
}

/* Computes the proof of the client (RFC 5802): the client key XOR the signature of the
 * conversation. */
static void prove(const struct login_try *try, const char *conversation, const char *salt_text,
                  int iterations, uint8_t proof[SCRAM_KEY_MAX])
{
    struct scram_credential credential = {.mechanism = try->mechanism};
    int key_size = scram_key_size(try->mechanism);
    uint8_t salted[SCRAM_KEY_MAX], key[SCRAM_KEY_MAX], stored[SCRAM_KEY_MAX];
    const EVP_MD *hash = hash_of(try->mechanism);
    char *prepared = prepare(try);
    unsigned size;

    truce_assert(scram_unbase64_salt(salt_text, &credential));
    PKCS5_PBKDF2_HMAC(prepared, (int)strlen(prepared), credential.salt, (int)credential.salt_size,
                      iterations, hash, key_size, salted);
    HMAC(hash, salted, key_size, (const uint8_t *)"Client Key", 10, key, &size);
    EVP_Digest(key, (size_t)key_size, stored, &size, hash, NULL);
    HMAC(hash, stored, key_size, (const uint8_t *)conversation, strlen(conversation), proof, &size);
    for (int i = 0; i < key_size; i++)
        proof[i] ^= key[i];
    bson_free(prepared);
}

char *scram_client_final(const struct login_try *try, const char *first, const char *challenge)
{
    const char *binding = try->mistake == LOGIN_OTHER_BINDING ? "eSws" : "biws";
    char nonce[200], salt[100], text[64], *without, *conversation, *final;
    uint8_t proof[SCRAM_KEY_MAX];
    int iterations, size = scram_key_size(try->mechanism);

    truce_assert(sscanf(challenge, "r=%199[^,],s=%99[^,],i=%d", nonce, salt, &iterations) == 3);
    if (try->mistake == LOGIN_OTHER_NONCE)
        nonce[strlen(nonce) - 1] ^= 1;
    if (try->mistake == LOGIN_CLIENT_NONCE)
        nonce[strlen(FIRST_NONCE)] = '\0';
    without = bson_strdup_printf("c=%s,r=%s", binding, nonce);
    conversation = bson_strdup_printf("%s,%s,%s", first, challenge, without);
    prove(try, conversation, salt, iterations, proof);
    if (try->mistake == LOGIN_WRONG_PROOF)
        proof[size - 1] ^= 1;
    scram_base64(proof, (size_t)(try->mistake == LOGIN_SHORT_PROOF ? size - 1 : size), text);
    final = try->mistake == LOGIN_NO_PROOF ? bson_strdup(without)
                                           : bson_strdup_printf("%s,p=%s", without, text);
    bson_free(without);
    bson_free(conversation);
    return final;
}

bson_t *sasl_ask(int end, const char *command, const struct login_try *try, const char *payload)
{
    const char *database = try->database ? try->database : "admin";
    bson_t document = BSON_INITIALIZER;
    struct buffer message;
    bson_t *reply = NULL;

    BCON_APPEND(&document, command, BCON_INT32(1), "conversationId", BCON_INT32(1), "mechanism",
                BCON_UTF8(scram_name(try->mechanism)), "options", "{", "skipEmptyExchange",
                BCON_BOOL(try->brief), "}", "$db", BCON_UTF8(database));
    BSON_APPEND_BINARY(&document, "payload", BSON_SUBTYPE_BINARY, (const uint8_t *)payload,
                       (uint32_t)strlen(payload));
    message = message_of(&document, 0);
    if (send_all(end, message.bytes, message.size))
        reply = receive_reply(end);
    truce__buffer_release(&message);
    bson_destroy(&document);
    return reply;
}

/* Reads the payload of a reply into `text` and returns 0. Returns -1 if there is no reply, and
 * otherwise the code of the error. */
static int64_t read_payload(bson_t *reply, char text[1000], bool *done)
{
    int64_t code = -1;
    const uint8_t *bytes = NULL;
    uint32_t size = 0;
    bson_iter_t at;

    if (!reply)
        return -1;
    code = reply_number(reply, "ok") == 1 ? 0 : reply_number(reply, "code");
    if (bson_iter_init_find(&at, reply, "payload"))
        bson_iter_binary(&at, NULL, &size, &bytes);
    snprintf(text, 1000, "%.*s", (int)size, (const char *)bytes);
    *done = bson_iter_init_find(&at, reply, "done") && bson_iter_as_bool(&at);
    bson_destroy(reply);
    return code;
}

int64_t scram_login(int end, const struct login_try *try)
{
    char *first = bson_strdup_printf("n=%s,r=%s", try->name, FIRST_NONCE);
    char *whole = bson_strdup_printf("n,,%s", first), *final, text[1000];
    bool done = false;
    int64_t code = read_payload(sasl_ask(end, "saslStart", try, whole), text, &done);

    if (!code) {
        final = scram_client_final(try, first, text);
        code = read_payload(sasl_ask(end, "saslContinue", try, final), text, &done);
        bson_free(final);
    }
    if (!code)
        truce_assert(done == try->brief);
    if (!code && !done) {
        code = read_payload(sasl_ask(end, "saslContinue", try, ""), text, &done);
        truce_assert(code || done);
    }
    bson_free(first);
    bson_free(whole);
    return code;
}

int dial_as(const char *name, const char *password)
{
    const struct login_try try = {.name = name, .password = password, .brief = true};
    int end = dial();

    truce_assert(scram_login(end, &try) == 0);
    return end;
}

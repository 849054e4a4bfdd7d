#include "server/auth/tokens.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/sha256.h"
#include "server/auth/users.h"
#include "store/reserved_names.h"

#define TOKEN_BYTES 32

static void token_hash(const char *token, uint8_t hash[SHA256_BYTES])
{
    truce__sha256(token, strlen(token), hash);
}

/* Makes a random token and its id. Its bytes are in Base64 with the alphabet of URLs, without
 * padding. */
static void token_make(char token[TOKEN_MAX], char id[TOKEN_ID_MAX])
{
    uint8_t bytes[TOKEN_BYTES + 4];
    char text[2 * TOKEN_BYTES];

    scram_random(bytes, sizeof bytes);
    scram_base64(bytes, TOKEN_BYTES, text);
    text[strcspn(text, "=")] = '\0';
    for (char *at = text; *at; at++)
        *at = *at == '+' ? '-' : *at == '/' ? '_' : *at;
    snprintf(token, TOKEN_MAX, TOKEN_PREFIX "%s", text);
    snprintf(id, TOKEN_ID_MAX, "%02x%02x%02x%02x", bytes[TOKEN_BYTES], bytes[TOKEN_BYTES + 1],
             bytes[TOKEN_BYTES + 2], bytes[TOKEN_BYTES + 3]);
    scram_wipe(bytes, sizeof bytes);
    scram_wipe(text, sizeof text);
}

/* Updates the user if it matches the filter's further fields. The filter is destroyed. */
static truce_status tokens_update(truce_store *store, const char *database, const char *name,
                                  bson_t *filter, const bson_t *update, bool *matched,
                                  bson_error_t *error)
{
    char *id = bson_strdup_printf("%s.%s", database, name);
    truce_write_result result;
    truce_status status;

    BSON_APPEND_UTF8(filter, "_id", id);
    status = truce_update(store, USER_RECORDS, filter, update, NULL, &result, error);
    *matched = !status && result.matched;
    truce_write_result_release(&result);
    bson_destroy(filter);
    bson_free(id);
    return status;
}

static truce_status tokens_remove_expired(truce_store *store, const char *database,
                                          const char *name, bson_error_t *error)
{
    bson_t *update = BCON_NEW("$pull", "{", "tokens", "{", "expires", "{", "$lte",
                              BCON_DATE_TIME(truce__clock_wall_ms()), "}", "}", "}");
    bool matched;
    truce_status status = tokens_update(store, database, name, bson_new(), update, &matched, error);

    bson_destroy(update);
    if (!status && !matched)
        status =
            truce__refuse(CODE_USER_NOT_FOUND, error, "User '%s@%s' not found", name, database);
    return status;
}

truce_status tokens_add(truce_store *store, const char *database, const char *name,
                        int64_t expires_ms, char token[TOKEN_MAX], char id[TOKEN_ID_MAX],
                        bson_error_t *error)
{
    bson_t update = BSON_INITIALIZER, push, one;
    uint8_t hash[SHA256_BYTES];
    char *last = bson_strdup_printf("tokens.%d", TRUCE_USER_TOKENS_MAX - 1);
    bool matched = true;
    truce_status status = tokens_remove_expired(store, database, name, error);

    token_make(token, id);
    token_hash(token, hash);
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$push", &push);
    BSON_APPEND_DOCUMENT_BEGIN(&push, "tokens", &one);
    BSON_APPEND_UTF8(&one, "id", id);
    BSON_APPEND_BINARY(&one, "hash", BSON_SUBTYPE_BINARY, hash, sizeof hash);
    BSON_APPEND_DATE_TIME(&one, "created", truce__clock_wall_ms());
    if (expires_ms)
        BSON_APPEND_DATE_TIME(&one, "expires", expires_ms);
    bson_append_document_end(&push, &one);
    bson_append_document_end(&update, &push);
    if (!status)
        status = tokens_update(store, database, name,
                               BCON_NEW(last, "{", "$exists", BCON_BOOL(false), "}"), &update,
                               &matched, error);
    if (!status && !matched)
        status = truce__fail(TRUCE_LIMIT, error,
                             "%s@%s has %d tokens already: revoke one (truce user token %s --list)",
                             name, database, TRUCE_USER_TOKENS_MAX, name);
    bson_destroy(&update);
    bson_free(last);
    return status;
}

truce_status tokens_revoke(truce_store *store, const char *database, const char *name,
                           const char *id, bson_error_t *error)
{
    bson_t *update = BCON_NEW("$pull", "{", "tokens", "{", "id", BCON_UTF8(id), "}", "}");
    bool matched;
    truce_status status = tokens_update(store, database, name, BCON_NEW("tokens.id", BCON_UTF8(id)),
                                        update, &matched, error);

    bson_destroy(update);
    return status || matched ? status
                             : truce__fail(TRUCE_NOT_FOUND, error,
                                           "%s@%s has no token %.40s: --list shows the tokens",
                                           name, database, id);
}

truce_status tokens_list(truce_store *store, const char *database, const char *name, bson_t *array,
                         bson_error_t *error)
{
    uint32_t count = 0;
    bson_iter_t at, token, field;
    char buffer[16];
    const char *key;
    bson_t document, one;
    truce_status status = users_read(store, database, name, &document, error);

    bson_init(array);
    if (!status && bson_iter_init_find(&at, &document, "tokens") && BSON_ITER_HOLDS_ARRAY(&at) &&
        bson_iter_recurse(&at, &token))
        while (bson_iter_next(&token)) {
            if (!BSON_ITER_HOLDS_DOCUMENT(&token) || !bson_iter_recurse(&token, &field))
                continue;
            bson_uint32_to_string(count++, &key, buffer, sizeof buffer);
            BSON_APPEND_DOCUMENT_BEGIN(array, key, &one);
            while (bson_iter_next(&field))
                if (strcmp(bson_iter_key(&field), "hash") != 0)
                    bson_append_iter(&one, NULL, -1, &field);
            bson_append_document_end(array, &one);
        }
    bson_destroy(&document);
    return status;
}

/* Finds the token with the hash in the user's document, and reads the time when it expires. */
static bool tokens_read(const bson_t *document, const uint8_t hash[SHA256_BYTES],
                        int64_t *expires_ms)
{
    bson_iter_t at, array, field;

    if (!bson_iter_init_find(&at, document, "tokens") || !BSON_ITER_HOLDS_ARRAY(&at) ||
        !bson_iter_recurse(&at, &array))
        return false;
    while (bson_iter_next(&array)) {
        const uint8_t *bytes = NULL;
        uint32_t size = 0;

        if (!BSON_ITER_HOLDS_DOCUMENT(&array) || !bson_iter_recurse(&array, &field) ||
            !bson_iter_find(&field, "hash") || !BSON_ITER_HOLDS_BINARY(&field))
            continue;
        bson_iter_binary(&field, NULL, &size, &bytes);
        if (size != SHA256_BYTES || memcmp(bytes, hash, size) != 0)
            continue;
        *expires_ms = 0;
        if (bson_iter_recurse(&array, &field) && bson_iter_find(&field, "expires")) {
            if (!BSON_ITER_HOLDS_DATE_TIME(&field))
                return false;
            *expires_ms = bson_iter_date_time(&field);
        }
        return !*expires_ms || *expires_ms > truce__clock_wall_ms();
    }
    return false;
}

truce_status tokens_user(truce_store *store, const char *token, bson_t *document,
                         int64_t *expires_ms, bson_error_t *error)
{
    uint8_t hash[SHA256_BYTES];
    truce_status status;
    bson_t *filter;

    token_hash(token, hash);
    filter = BCON_NEW("tokens.hash", BCON_BIN(BSON_SUBTYPE_BINARY, hash, sizeof hash));
    status = truce_find_one(store, USER_RECORDS, filter, NULL, document, error);
    bson_destroy(filter);
    return status || tokens_read(document, hash, expires_ms)
               ? status
               : truce__fail(TRUCE_NOT_FOUND, error, "the token has expired");
}

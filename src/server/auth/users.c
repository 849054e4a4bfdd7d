#include "server/auth/users.h"

#include <string.h>

#include "base/field.h"
#include "bson/value.h"
#include "store/reserved_names.h"

/* ---- a document ------------------------------------------------------------------------------ */

truce_status users_check_name(const char *name, bson_error_t *error)
{
    size_t length = strlen(name);

    if (length && length <= SCRAM_NAME_MAX && bson_utf8_validate(name, length, false))
        return TRUCE_OK;
    return truce__refuse(
        CODE_BAD_VALUE, error,
        "a user's name must have 1 to %d bytes of UTF-8, and \"%.80s\" has %zu bytes",
        SCRAM_NAME_MAX, name, length);
}

static void users_append_key(bson_t *document, const char *field, const uint8_t *bytes, int size)
{
    char text[2 * SCRAM_KEY_MAX];

    scram_base64(bytes, (size_t)size, text);
    BSON_APPEND_UTF8(document, field, text);
}

/* Appends the credentials for each of the mechanisms, with new salts. */
static truce_status append_credentials(const struct user_facts *facts, bson_t *document,
                                       bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_t credentials, one;

    BSON_APPEND_DOCUMENT_BEGIN(document, "credentials", &credentials);
    for (int i = 0; i < SCRAM_MECHANISMS && !status; i++) {
        enum scram_mechanism mechanism = (enum scram_mechanism)i;
        struct scram_credential credential;

        if (!(facts->mechanisms & 1u << i))
            continue;
        status = scram_make(mechanism, facts->name, facts->password, &credential, error);
        if (status)
            break;
        BSON_APPEND_DOCUMENT_BEGIN(&credentials, scram_name(mechanism), &one);
        BSON_APPEND_INT32(&one, "iterationCount", credential.iterations);
        users_append_key(&one, "salt", credential.salt, (int)credential.salt_size);
        users_append_key(&one, "storedKey", credential.stored_key, scram_key_size(mechanism));
        users_append_key(&one, "serverKey", credential.server_key, scram_key_size(mechanism));
        bson_append_document_end(&credentials, &one);
    }
    bson_append_document_end(document, &credentials);
    return status;
}

static void users_id_of(const char *database, const char *name, bson_t *filter)
{
    char *id = bson_strdup_printf("%s.%s", database, name);

    bson_init(filter);
    BSON_APPEND_UTF8(filter, "_id", id);
    bson_free(id);
}

static truce_status not_found(const char *database, const char *name, bson_error_t *error)
{
    return truce__refuse(CODE_USER_NOT_FOUND, error, "User '%s@%s' not found", name, database);
}

uint32_t users_mechanisms(const bson_t *document)
{
    uint32_t mechanisms = 0;

    for (int i = 0; i < SCRAM_MECHANISMS; i++) {
        struct scram_credential credential = {.mechanism = (enum scram_mechanism)i};

        if (users_credential(document, &credential))
            mechanisms |= 1u << i;
        scram_wipe(&credential, sizeof credential);
    }
    return mechanisms;
}

void users_append_mechanisms(uint32_t mechanisms, const char *key, bson_t *document)
{
    uint32_t count = 0;
    char buffer[16];
    const char *index;
    bson_t array;

    BSON_APPEND_ARRAY_BEGIN(document, key, &array);
    for (int i = 0; i < SCRAM_MECHANISMS; i++)
        if (mechanisms & 1u << i) {
            bson_uint32_to_string(count++, &index, buffer, sizeof buffer);
            BSON_APPEND_UTF8(&array, index, scram_name((enum scram_mechanism)i));
        }
    bson_append_array_end(document, &array);
}

bool users_credential(const bson_t *document, struct scram_credential *credential)
{
    enum scram_mechanism mechanism = credential->mechanism;
    size_t key = (size_t)scram_key_size(mechanism);
    bson_t credentials, one;

    if (!truce__value_subdocument(document, "credentials", &credentials) ||
        !truce__value_subdocument(&credentials, scram_name(mechanism), &one))
        return false;
    credential->iterations = (int)truce__field_number(&one, "iterationCount");
    return credential->iterations > 0 &&
           scram_unbase64_salt(truce__field_text(&one, "salt"), credential) &&
           scram_unbase64(truce__field_text(&one, "storedKey"), credential->stored_key, key) &&
           scram_unbase64(truce__field_text(&one, "serverKey"), credential->server_key, key);
}

static bool roles_of(const bson_t *document, bson_t *roles)
{
    const uint8_t *bytes;
    uint32_t size;
    bson_iter_t at;

    if (!bson_iter_init_find(&at, document, "roles") || !BSON_ITER_HOLDS_ARRAY(&at))
        return false;
    bson_iter_array(&at, &size, &bytes);
    return bson_init_static(roles, bytes, size);
}

bool users_load(const bson_t *document, struct user *user)
{
    const char *name = truce__field_text(document, "user");
    const char *database = truce__field_text(document, "db");
    const uint8_t *id = NULL;
    uint32_t size = 0;
    bson_iter_t at;
    bson_t roles;

    if (bson_iter_init_find(&at, document, "userId") && BSON_ITER_HOLDS_BINARY(&at))
        bson_iter_binary(&at, NULL, &size, &id);
    if (size != USER_ID_BYTES || users_check_name(name, NULL) ||
        truce__database_name_check(database, NULL))
        return false;
    memcpy(user->id, id, USER_ID_BYTES);
    memcpy(user->name, name, strlen(name) + 1);
    memcpy(user->database, database, strlen(database) + 1);
    user->grants.count = 0;
    return !roles_of(document, &roles) || !grants_read(&roles, "", true, &user->grants, NULL);
}

/* ---- in the store ---------------------------------------------------------------------------- */

truce_status users_add(truce_store *store, const struct user_facts *facts, bson_error_t *error)
{
    uint8_t id[USER_ID_BYTES];
    bson_t document;
    truce_status status = users_check_name(facts->name, error);

    if (status)
        return status;
    scram_random(id, sizeof id);
    id[6] = (uint8_t)((id[6] & 0x0f) | 0x40); /* Sets the bits of a UUID of version 4. */
    id[8] = (uint8_t)((id[8] & 0x3f) | 0x80);
    users_id_of(facts->database, facts->name, &document);
    BSON_APPEND_BINARY(&document, "userId", BSON_SUBTYPE_UUID, id, sizeof id);
    BSON_APPEND_UTF8(&document, "user", facts->name);
    BSON_APPEND_UTF8(&document, "db", facts->database);
    status = append_credentials(facts, &document, error);
    grants_append(facts->grants, "roles", &document);
    if (facts->custom)
        BSON_APPEND_DOCUMENT(&document, "customData", facts->custom);
    if (!status)
        status = truce_insert(store, USER_RECORDS, &document, NULL, error);
    bson_destroy(&document);
    return status == TRUCE_DUPLICATE
               ? truce__refuse(CODE_USER_EXISTS, error, "User \"%s@%s\" already exists",
                               facts->name, facts->database)
               : status;
}

/* Updates the user's document. Fails with UserNotFound if it does not exist. */
static truce_status server_users_change(truce_store *store, const char *database, const char *name,
                                        const bson_t *update, bson_error_t *error)
{
    truce_write_result result;
    truce_status status;
    bson_t filter;

    users_id_of(database, name, &filter);
    status = truce_update(store, USER_RECORDS, &filter, update, NULL, &result, error);
    bson_destroy(&filter);
    if (!status && !result.matched)
        status = not_found(database, name, error);
    truce_write_result_release(&result);
    return status;
}

truce_status users_change(truce_store *store, const struct user_facts *facts, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_t update = BSON_INITIALIZER, set;

    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    if (facts->password)
        status = append_credentials(facts, &set, error);
    if (facts->grants)
        grants_append(facts->grants, "roles", &set);
    if (facts->custom)
        BSON_APPEND_DOCUMENT(&set, "customData", facts->custom);
    bson_append_document_end(&update, &set);
    /* An attacker who knew the old password may have created tokens, so a new password removes
     * them. */
    if (facts->password)
        BCON_APPEND(&update, "$unset", "{", "tokens", BCON_UTF8(""), "}");
    if (!status)
        status = server_users_change(store, facts->database, facts->name, &update, error);
    bson_destroy(&update);
    return status;
}

truce_status users_grant(truce_store *store, const char *database, const char *name,
                         const struct grants *grants, bool revoke, bson_error_t *error)
{
    bson_t update = BSON_INITIALIZER, operator, field;
    truce_status status;

    BSON_APPEND_DOCUMENT_BEGIN(&update, revoke ? "$pullAll" : "$addToSet", &operator);
    if (revoke) {
        grants_append(grants, "roles", &operator);
    } else {
        BSON_APPEND_DOCUMENT_BEGIN(&operator, "roles", &field);
        grants_append(grants, "$each", &field);
        bson_append_document_end(&operator, & field);
    }
    bson_append_document_end(&update, &operator);
    status = server_users_change(store, database, name, &update, error);
    bson_destroy(&update);
    return status;
}

truce_status users_remove(truce_store *store, const char *database, const char *name,
                          bson_error_t *error)
{
    truce_write_result result;
    truce_status status;
    bson_t filter;

    users_id_of(database, name, &filter);
    status = truce_remove(store, USER_RECORDS, &filter, NULL, &result, error);
    bson_destroy(&filter);
    if (!status && !result.removed)
        status = not_found(database, name, error);
    truce_write_result_release(&result);
    return status;
}

truce_status users_remove_all(truce_store *store, const char *database, int64_t *removed,
                              bson_error_t *error)
{
    const truce_write_options all = {.multi = true};
    truce_write_result result;
    truce_status status;
    bson_t *filter = BCON_NEW("db", BCON_UTF8(database));

    status = truce_remove(store, USER_RECORDS, filter, &all, &result, error);
    *removed = status ? 0 : result.removed;
    truce_write_result_release(&result);
    bson_destroy(filter);
    return status;
}

truce_status users_read(truce_store *store, const char *database, const char *name,
                        bson_t *document, bson_error_t *error)
{
    truce_status status;
    bson_t filter;

    users_id_of(database, name, &filter);
    status = truce_find_one(store, USER_RECORDS, &filter, NULL, document, error);
    bson_destroy(&filter);
    return status == TRUCE_NOT_FOUND ? not_found(database, name, error) : status;
}

truce_status users_count(truce_store *store, int64_t *count, bson_error_t *error)
{
    return truce_count(store, USER_RECORDS, NULL, NULL, count, error);
}

#include "base/null.h"
#include "base/reserved_fields.h"
#include "bson/field_name_escape.h"
#include "commit/commit.h"
#include "commit/metadata_cache.h"
#include "store/decoded_cursor.h"

/*
 * Reads stored commits, for users and for requests that repeat a key: one by its key, its result,
 * and a list.
 *
 *     {_id, key?, key_time?, state, input?, result?, inserted?, created, ...}     truce_commits
 *
 * The horizon of keys is a document of the same collection, without a state.
 */

/* ---- one ------------------------------------------------------------------------------------ */

truce_status truce_commit_record(truce_store *store, const char *key, bson_t *document,
                                 bson_error_t *error)
{
    RETURN_IF_NULL(document, error);

    bson_t filter = BSON_INITIALIZER;
    truce_status status;

    if (!key || !key[0]) {
        bson_init(document);
        bson_destroy(&filter);
        return truce__fail(TRUCE_INVALID, error,
                           "the idempotency key is empty: expected the key of a commit");
    }
    BSON_APPEND_UTF8(&filter, "key", key);
    status = truce_find_one(store, COMMITS, &filter, NULL, document, error);
    truce__names_restore_own(document);
    bson_destroy(&filter);
    return status != TRUCE_NOT_FOUND
               ? status
               : truce__fail(status, error,
                             "no commit has the key \"%.200s\": none took effect, or it was purged",
                             key);
}

truce_status truce_commit_result(truce_store *store, const char *key, bson_t *result,
                                 bson_error_t *error)
{
    RETURN_IF_NULL(result, error);

    bson_t document;
    truce_status status = truce_commit_record(store, key, &document, error);
    const char *state = status ? NULL : truce__commit_state(&document);
    struct value left;

    bson_init(result);
    if (state && !strcmp(state, "pending")) {
        status = truce__fail(TRUCE_LOCKED, error,
                             "the commit with the key \"%.200s\" is pending: try again later", key);
    } else if (!status) {
        left = truce__value_field(truce__value_document(&document), "result", 6);
        if (left.type == BSON_TYPE_DOCUMENT) {
            bson_t view;

            truce__value_bson(left, &view);
            bson_concat(result, &view);
        }
    }
    bson_destroy(&document);
    return status;
}

/* ---- all ------------------------------------------------------------------------------------ */

/* Appends {$regex: "^pay\\-17"}. Every ASCII character except letters and digits gets a
 * backslash. */
static void append_prefix(const char *prefix, bson_t *filter)
{
    char *pattern = bson_malloc(2 * strlen(prefix) + 2), *to = pattern;

    *to++ = '^';
    for (const char *from = prefix; *from; *to++ = *from++) {
        bool plain = (unsigned char)*from >= 0x80 || (*from >= '0' && *from <= '9') ||
                     (*from >= 'a' && *from <= 'z') || (*from >= 'A' && *from <= 'Z');

        if (!plain)
            *to++ = '\\';
    }
    *to = 0;
    BCON_APPEND(filter, "key", "{", "$regex", BCON_UTF8(pattern), "}");
    bson_free(pattern);
}

truce_status truce_commit_list(truce_store *store, const truce_commit_list_options *options,
                               truce_cursor **cursor, bson_error_t *error)
{
    RETURN_IF_NULL(cursor, error);

    static const truce_commit_list_options none;
    bson_t filter = BSON_INITIALIZER, *sort = BCON_NEW("_id", BCON_INT32(-1));
    truce_find_options find = {.sort = sort, .allow_disk_use = true};
    truce_status status = ROOM_CHECK(options, "truce_commit_list_options", error);

    *cursor = NULL;
    options = options ? options : &none;
    find.limit = options->limit;
    if (options->state)
        BSON_APPEND_UTF8(&filter, "state", options->state);
    else
        BCON_APPEND(&filter, "state", "{", "$exists", BCON_BOOL(true), "}");
    if (options->key_prefix)
        append_prefix(options->key_prefix, &filter);
    if (!status)
        status = truce_find(store, COMMITS, &filter, &find, cursor, error);
    if (!status)
        *cursor = truce__restored_cursor(*cursor);
    bson_destroy(&filter);
    bson_destroy(sort);
    return status;
}

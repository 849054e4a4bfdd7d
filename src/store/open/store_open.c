/*
 * Opens a store by its URI. The table of kinds maps each scheme to a backend's open function. The
 * options then wrap the new store into decorators: one database of a store, reports of slow
 * calls.
 *
 * This file has a folder of its own because it depends on all backends, which depend on
 * src/store.
 */
#include <ctype.h>
#include <string.h>

#include "base/assert.h"
#include "base/forks.h"
#include "base/limits.h"
#include "base/nearest_word.h"
#include "base/null.h"
#include "base/reserved_fields.h"
#include "store/decorators/database_view.h"
#include "store/decorators/slow_calls.h"
#include "store/store.h"
#include "store/store_kinds.h"

#if !TRUCE_MONGODB
static truce_status not_built(const char *path, const truce_store_options *options,
                              truce_store **store, bson_error_t *error)
{
    return truce__fail(TRUCE_INVALID, error,
                       "this truce was built without mongodb:// (-DTRUCE_MONGODB=OFF)");
}
#endif

static const struct store_kind {
    const char *scheme;
    open_function *open;
} kinds[] = {
    {"memory", truce__memory_open},
    {"file", truce__file_open},
#if TRUCE_MONGODB
    {"mongodb", truce__mongo_open},
    {"mongodb+srv", truce__mongo_srv_open},
#else
    {"mongodb", not_built},
    {"mongodb+srv", not_built},
#endif
};

/* Returns the length of the URI's scheme, or 0 for a path without a scheme (also "C:..." and
 * "./a:b"). */
static size_t scheme_length(const char *uri)
{
    size_t length = 0;

    while (isalnum((unsigned char)uri[length]) || (length > 0 && uri[length] == '+'))
        length++;
    return length > 1 && uri[length] == ':' ? length : 0;
}

/* Returns whether the path is user:password@host without mongodb://. No message may then show it as
 * the path of a file. */
static bool has_password(const char *path)
{
    size_t length = strcspn(path, "/:@");

    return path[length] == ':' && strchr(path + length, '@');
}

static const struct store_kind *find_kind(const char *scheme, size_t length)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strlen(kinds[i].scheme) == length && !memcmp(kinds[i].scheme, scheme, length))
            return &kinds[i];
    return NULL;
}

/* Returns an example of a URI with this scheme. */
static const char *scheme_example(const char *scheme)
{
    if (!strcmp(scheme, "memory"))
        return "memory:";
    return !strcmp(scheme, "file") ? "file:PATH" : "mongodb://HOST/NAME";
}

/* Returns whether the store is on a server, so that its URI names the database. */
static bool store_is_server(const truce_store *store)
{
    return !strcmp(store->ops->scheme, "mongodb");
}

/* Replaces the store by the view of its database. */
static truce_status take_database(truce_store **store, const char *database, bson_error_t *error)
{
    char own[DATABASE_NAME_MAX + 1];
    truce_status status = truce__database_name_check(database, error);

    if (!status)
        status = truce__own_database(*store, own, error);
    if (status) {
        truce_store_close(*store);
        *store = NULL;
        return status;
    }
    *store = truce__database_wrap(*store, own, database);
    return TRUCE_OK;
}

/* Fails because no kind of store has the scheme of the URI. */
static truce_status refuse_kind(const char *uri, size_t length, bson_error_t *error)
{
    char *scheme = bson_strndup(uri, length), hint[NEAREST_WORD_HINT_MAX];
    struct nearest_word nearest = {.word = scheme};

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        truce__nearest_word_offer(&nearest, kinds[i].scheme);
    (void)truce__fail(TRUCE_INVALID, error, "unknown kind of store \"%.100s\"%s", scheme,
                      nearest.best ? truce__nearest_word_hint(&nearest, hint)
                                   : ": expected file:PATH, a path, mongodb://, or memory:");
    bson_free(scheme);
    return TRUCE_INVALID;
}

truce_status truce_store_open(const char *uri, const truce_store_options *options,
                              truce_store **store, bson_error_t *error)
{
    RETURN_IF_NULL(store, error);

    static const truce_store_options defaults;
    size_t length = uri ? scheme_length(uri) : 0;
    const struct store_kind *kind = NULL;
    bson_error_t caught = {0};
    truce_status status;

    *store = NULL;
    if (!uri || !*uri)
        return truce__fail(TRUCE_INVALID, error, "the store's URI is empty");
    status = ROOM_CHECK(options, "truce_store_options", error);
    if (!status)
        status = ROOM_CHECK(options ? options->hooks : NULL, "truce_store_hooks", error);
    if (status)
        return status;
    if (!length && has_password(uri))
        return truce__fail(TRUCE_INVALID, error,
                           "the store's URI has a name and a password, but does not begin with "
                           "mongodb:// (for a file of this name, use file:PATH)");
    if (!length && find_kind(uri, strlen(uri)))
        return truce__fail(
            TRUCE_INVALID, error,
            "the store's URI \"%s\" is a scheme without a colon: did you mean \"%s\"? "
            "(for a file of this name, use \"file:%s\")",
            uri, scheme_example(uri), uri);
    if (!strncmp(uri, "file://", 7) && uri[7] != '/')
        return truce__fail(TRUCE_INVALID, error,
                           "the store's URI \"%s\" has a host, or its path begins with //: did you "
                           "mean \"file:%s\"?",
                           uri, uri + 7);
    kind = length ? find_kind(uri, length) : find_kind("file", 4);
    if (!kind)
        return refuse_kind(uri, length, error);
    status =
        kind->open(uri + (length ? length + 1 : 0), options ? options : &defaults, store, &caught);
    truce_assert(!status == (*store != NULL));
    truce_assert(status ||
                 !strncmp((*store)->ops->scheme, kind->scheme, strlen((*store)->ops->scheme)));
    if (!status)
        (*store)->opened_after = truce__forks() + 1;
    if (!status && options && options->read_only)
        (*store)->capabilities |= TRUCE_IS_READ_ONLY;
    if (!status && options && options->database && !store_is_server(*store))
        status = take_database(store, options->database, &caught);
    if (!status && options)
        (*store)->deadline_ms = options->deadline_ms;
    if (!status && options && options->hooks && options->hooks->slow)
        *store = truce__slow_wrap(*store, options->hooks);
    return truce__pass_error(status, &caught, error);
}

/*
 * What a URI may say.
 *
 * Everything that libmongoc understands goes through: hosts, replicaSet, TLS, authentication,
 * compressors, sizes and times. What would make an acknowledged write one that can be lost, or a
 * read one that does not see it, is refused by name: a URI is copied from one program to the next,
 * and nobody looks at its options again. A store that is to be faster than safe is asked for by
 * truce_store_options.relaxed.
 */
#include "store/mongodb/mongo.h"

#include <string.h>
#include <strings.h>

#define DEADLINE_MS    30000
#define CONNECT_MS_MAX 10000
#define SECRET_LEAST   8 /* bytes of an option's value; what is shorter is a word or a number */

static truce_status weak(const char *option, const char *value, bson_error_t *error)
{
    return truce__fail(
        TRUCE_INVALID, error,
        "the URI's option %s=%s would let acknowledged writes be lost or not be seen; "
        "leave it out (the relaxed option of truce_store_open is for speed)",
        option, value);
}

/* w, journal: a write is acknowledged by the majority, from disk. */
static truce_status check_writes(const mongoc_uri_t *uri, bson_error_t *error)
{
    const mongoc_write_concern_t *concern = mongoc_uri_get_write_concern(uri);
    int32_t w = mongoc_write_concern_get_w(concern);
    char number[16];

    if (mongoc_uri_has_option(uri, MONGOC_URI_JOURNAL) &&
        !mongoc_uri_get_option_as_bool(uri, MONGOC_URI_JOURNAL, true))
        return weak("journal", "false", error);
    if (w == MONGOC_WRITE_CONCERN_W_DEFAULT || mongoc_write_concern_get_wmajority(concern))
        return TRUCE_OK;
    if (w == MONGOC_WRITE_CONCERN_W_TAG)
        return weak("w", mongoc_write_concern_get_wtag(concern), error);
    bson_snprintf(number, sizeof number, "%d", w == MONGOC_WRITE_CONCERN_W_ERRORS_IGNORED ? -1 : w);
    return weak("w", number, error);
}

static const char *mode_name(mongoc_read_mode_t mode)
{
    switch (mode) {
    case MONGOC_READ_SECONDARY:
        return "secondary";
    case MONGOC_READ_PRIMARY_PREFERRED:
        return "primaryPreferred";
    case MONGOC_READ_SECONDARY_PREFERRED:
        return "secondaryPreferred";
    case MONGOC_READ_NEAREST:
        return "nearest";
    case MONGOC_READ_PRIMARY:
        break;
    }
    return "primary";
}

/* readPreference, readConcernLevel: a read sees what was acknowledged. */
static truce_status mongo_uri_check_reads(const mongoc_uri_t *uri, bson_error_t *error)
{
    mongoc_read_mode_t mode = mongoc_read_prefs_get_mode(mongoc_uri_get_read_prefs_t(uri));
    const char *level = mongoc_read_concern_get_level(mongoc_uri_get_read_concern(uri));

    if (mode != MONGOC_READ_PRIMARY)
        return weak("readPreference", mode_name(mode), error);
    if (level && strcmp(level, MONGOC_READ_CONCERN_LEVEL_MAJORITY) != 0 &&
        strcmp(level, MONGOC_READ_CONCERN_LEVEL_LINEARIZABLE) != 0)
        return weak("readConcernLevel", level, error);
    return TRUCE_OK;
}

static void set_default(mongoc_uri_t *uri, const char *option, uint32_t value)
{
    if (!mongoc_uri_has_option(uri, option))
        mongoc_uri_set_option_as_int32(uri, option, value > INT32_MAX ? INT32_MAX : (int32_t)value);
}

/* No call waits for ever: for a connection of the pool, for a server, for a socket. */
static void set_deadlines(mongoc_uri_t *uri, uint32_t deadline_ms)
{
    uint32_t wait_ms = deadline_ms ? deadline_ms : DEADLINE_MS;

    set_default(uri, MONGOC_URI_WAITQUEUETIMEOUTMS, wait_ms);
    set_default(uri, MONGOC_URI_SERVERSELECTIONTIMEOUTMS, wait_ms);
    set_default(uri, MONGOC_URI_CONNECTTIMEOUTMS,
                wait_ms < CONNECT_MS_MAX ? wait_ms : CONNECT_MS_MAX);
    if (!mongoc_uri_get_appname(uri))
        mongoc_uri_set_appname(uri, "truce");
}

/* ---- passwords ------------------------------------------------------------------------------ */

static const char *behind_scheme(const char *text)
{
    const char *scheme = strstr(text, "://");

    return scheme ? scheme + 3 : text;
}

/* What is not written in percents would be read as host, database or option, and told as that. */
static truce_status check_credentials(const char *text, bson_error_t *error)
{
    const char *from = behind_scheme(text), *last = NULL;
    size_t end = strcspn(from, "?");

    for (size_t i = 0; i < end; i++) {
        if (from[i] == '@')
            last = from + i;
    }
    if (last && strcspn(from, "@/") < (size_t)(last - from))
        return truce__fail(TRUCE_INVALID, error,
                           "the store's URI is wrong: '@' and '/' in the name or the password are "
                           "written %%40 and %%2F");
    return TRUCE_OK;
}

static bool has_piece(const char *message, const char *piece, size_t length)
{
    char *copy = bson_strndup(piece, length);
    bool has = length > 0 && strstr(message, copy);

    bson_free(copy);
    return has;
}

/* Does the sentence have the password in it, or the value of an option? */
static bool tells_secret(const char *message, const char *text)
{
    const char *from = behind_scheme(text), *at = strchr(from, '@');
    const char *colon = at ? memchr(from, ':', (size_t)(at - from)) : NULL;
    const char *option = strchr(from, '?');

    if (colon && has_piece(message, colon + 1, (size_t)(at - colon - 1)))
        return true;
    while (option) {
        const char *value = option + 1 + strcspn(option + 1, "=&");
        size_t length = *value == '=' ? strcspn(value + 1, "&") : 0;

        if (length >= SECRET_LEAST && has_piece(message, value + 1, length))
            return true;
        /* not a value's name, but the end of a password with a '?' in it */
        if (*value != '=' && has_piece(message, option + 1, (size_t)(value - option - 1)))
            return true;
        option = strchr(option + 1, '&');
    }
    return false;
}

static truce_status mongo_uri_refuse(const char *reason, const char *text, bson_error_t *error)
{
    return truce__fail(TRUCE_INVALID, error, "the store's URI is wrong: %s",
                       tells_secret(reason, text) ? "the reason repeats a part of it that may be "
                                                    "secret, and is left out"
                                                  : reason);
}

truce_status truce__mongo_uri_parse(const char *text, const truce_store_options *options,
                                    mongoc_uri_t **uri, bson_error_t *error)
{
    bson_error_t caught = {0};
    const char *database;
    truce_status status;

    *uri = NULL;
    status = check_credentials(text, error);
    if (status)
        return status;
    *uri = mongoc_uri_new_with_error(text, &caught);
    if (!*uri)
        return mongo_uri_refuse(caught.message, text, error);
    database = mongoc_uri_get_database(*uri);
    if (database && *database && options->database && strcmp(database, options->database) != 0)
        status = truce__fail(TRUCE_INVALID, error,
                             "the URI names the database %s, and the option names %s", database,
                             options->database);
    else if ((!database || !*database) && !options->database)
        status =
            truce__fail(TRUCE_INVALID, error,
                        "the URI names no database (mongodb://HOST:PORT/DATABASE), and no option "
                        "does");
    else
        status = check_writes(*uri, error);
    if (!status)
        status = mongo_uri_check_reads(*uri, error);
    if (status) {
        mongoc_uri_destroy(*uri);
        *uri = NULL;
        return status;
    }
    set_deadlines(*uri, options->deadline_ms);
    return TRUCE_OK;
}

/*
 * URLs of brokers, and the modules that implement them.
 *
 * A module lies in the folder of the library, or in its folder "truce". The library is the file
 * that contains this code: libtruce.so, or the program truce. For a program in .../bin, the module
 * may also lie in .../lib/truce. The last candidate is the folder that TRUCE_BROKER_FOLDER names at
 * compile time.
 */
#include "broker/broker.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/field.h"
#include "base/status.h"
#include "bson/binary_text.h"

#define ADDRESS_BYTES_MAX 4096
#define PORT_MAX          65535

/* ---- URLs ------------------------------------------------------------------------------------ */

/* Decodes %XX in place. Returns false if an escape is malformed or encodes a zero byte. */
static bool address_decode(char *text)
{
    char *to = text;

    for (const char *at = text; *at; at++) {
        int high = 0, low = 0;

        if (*at != '%') {
            *to++ = *at;
            continue;
        }
        high = truce__hex_digit(at[1]);
        low = high < 0 ? -1 : truce__hex_digit(at[2]);
        if (low < 0 || !(high || low))
            return false;
        *to++ = (char)(high << 4 | low);
        at += 2;
    }
    *to = 0;
    return true;
}

/* Splits the text at the first `c`. Returns the second part, or NULL. */
static char *address_split(char *text, char c)
{
    char *at = strchr(text, c);

    if (at)
        *at++ = 0;
    return at;
}

static truce_status address_read_query(char *text, bson_t *query, bson_error_t *error)
{
    while (text && *text) {
        char *next = address_split(text, '&');
        char *value = address_split(text, '=');

        if (!value || !*text || !address_decode(text) || !address_decode(value) ||
            !bson_utf8_validate(text, strlen(text), false) ||
            !bson_utf8_validate(value, strlen(value), false))
            return truce__fail(TRUCE_INVALID, error,
                               "invalid option \"%.80s\" of the URL: expected NAME=VALUE", text);
        BSON_APPEND_UTF8(query, text, value);
        text = next;
    }
    return TRUCE_OK;
}

/* Splits the path at "/" and decodes its segments in place. Fails with INVALID if it has too many,
 * or one is not UTF-8. */
static truce_status address_read_path(char *text, struct broker_address *address,
                                      bson_error_t *error)
{
    while (text && *text) {
        char *next = address_split(text, '/');

        if (address->path_count == (int)(sizeof address->path / sizeof *address->path) ||
            !address_decode(text))
            return truce__fail(
                TRUCE_INVALID, error,
                "invalid path of the URL at \"%.80s\": write special characters as %%XX", text);
        if (!bson_utf8_validate(text, strlen(text), false))
            return truce__fail(TRUCE_INVALID, error,
                               "invalid path of the URL: its characters must be those of UTF-8");
        address->path[address->path_count++] = text;
        text = next;
    }
    return TRUCE_OK;
}

/* Reads [USER[:PASSWORD]@]HOST[:PORT] in place. A host with a comma is a list whose elements have
 * their own ports, so `port` stays 0. */
static truce_status address_read_host(char *text, struct broker_address *address,
                                      bson_error_t *error)
{
    char *at = strrchr(text, '@');
    char *password, *port, *end;
    long number;

    if (at) {
        *at++ = 0;
        password = address_split(text, ':');
        if (!address_decode(text) || (password && !address_decode(password)))
            return truce__fail(TRUCE_INVALID, error,
                               "invalid user or password in the URL: write special characters as "
                               "%%XX");
        address->user = text;
        address->password = password;
        text = at;
    }
    address->host = text;
    if (!*text)
        return truce__fail(TRUCE_INVALID, error,
                           "the URL has no host: expected amqp://HOST/QUEUE or kafka://HOST/TOPIC");
    if (strchr(text, ',')) /* The host is a list whose elements have their own ports. */
        return TRUCE_OK;
    if (*text == '[') { /* An IPv6 address has colons, so it is in brackets. */
        address->host = text + 1;
        text = address_split(text, ']');
        if (!text || (*text && *text != ':'))
            return truce__fail(TRUCE_INVALID, error, "invalid host in the URL: \"]\" is missing");
    }
    port = address_split(text, ':');
    if (!*address->host)
        return truce__fail(TRUCE_INVALID, error,
                           "the URL has no host: expected amqp://HOST/QUEUE or kafka://HOST/TOPIC");
    if (!port)
        return TRUCE_OK;
    number = strtol(port, &end, 10);
    if (*end || end == port || number < 1 || number > PORT_MAX)
        return truce__fail(TRUCE_INVALID, error,
                           "invalid port \"%.40s\" in the URL: expected 1 to 65535", port);
    address->port = (int)number;
    return TRUCE_OK;
}

truce_status truce__broker_address_read(char *text, bson_t *query, struct broker_address *address,
                                        bson_error_t *error)
{
    char *rest = strstr(text, "://"), *options, *path;
    truce_status status;

    memset(address, 0, sizeof *address);
    bson_init(query);
    address->query = query;
    if (!rest || rest == text || strlen(text) > ADDRESS_BYTES_MAX ||
        !bson_utf8_validate(text, strlen(text), false))
        return truce__fail(TRUCE_INVALID, error,
                           "invalid broker URL: expected amqp://HOST/QUEUE or kafka://HOST/TOPIC");
    *rest = 0;
    rest += strlen("://");
    address->scheme = text;
    options = address_split(rest, '?');
    path = address_split(rest, '/');
    status = address_read_host(rest, address, error);
    if (!status)
        status = address_read_path(path, address, error);
    return status ? status : address_read_query(options, query, error);
}

char *truce__broker_address_show(const struct broker_address *address)
{
    bson_string_t *text = bson_string_new(address->scheme);
    const char *key = truce__field_text(address->query, "routing_key");

    bson_string_append_printf(text, "://%s", address->host);
    if (address->port)
        bson_string_append_printf(text, ":%d", address->port);
    for (int i = 0; i < address->path_count; i++)
        bson_string_append_printf(text, "/%s", address->path[i]);
    if (*key)
        bson_string_append_printf(text, "?routing_key=%s", key);
    return bson_string_free(text, false);
}

/* ---- modules --------------------------------------------------------------------------------- */

static const struct broker_kind {
    const char *scheme, *module, *function, *package;
} kinds[] = {
    {"amqp", "truce-amqp.so", "truce_broker_amqp", "librabbitmq4"},
    {"amqps", "truce-amqp.so", "truce_broker_amqp", "librabbitmq4"},
    {"kafka", "truce-kafka.so", "truce_broker_kafka", "librdkafka1"},
    {NULL, NULL, NULL, NULL},
};

/* Returns the path of the library or program that contains this code, or NULL if it is unknown. A
 * program that was found by PATH is known to the loader only by its name, without a folder. */
static const char *broker_own_path(char *buffer, size_t size)
{
    Dl_info info;
    ssize_t length;

    if (dladdr(kinds, &info) && info.dli_fname && strchr(info.dli_fname, '/'))
        return info.dli_fname;
    length = readlink("/proc/self/exe", buffer, size);
    if (length <= 0 || (size_t)length >= size)
        return NULL;
    buffer[length] = 0;
    return buffer;
}

/* Loads FOLDER/BETWEEN/MODULE, where FOLDER contains this code. Returns NULL if no such module
 * exists. */
static void *broker_load_from(const char *between, const char *module)
{
    char buffer[4096], path[4096];
    const char *own = broker_own_path(buffer, sizeof buffer);
    const char *slash = own ? strrchr(own, '/') : NULL;
    int length;

    if (!slash)
        return NULL;
    length = snprintf(path, sizeof path, "%.*s%s%s", (int)(slash - own + 1), own, between, module);
    return length > 0 && (size_t)length < sizeof path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

static void *broker_load(const char *module)
{
    static const char *const folders[] = {"", "truce/", "../lib/truce/", TRUCE_BROKER_FOLDER "/"};
    void *handle = NULL;
    char path[4096];
    int length;

    for (size_t i = 0; i < 3 && !handle; i++)
        handle = broker_load_from(folders[i], module);
    if (handle)
        return handle;
    length = snprintf(path, sizeof path, "%s%s", folders[3], module);
    return length > 0 && (size_t)length < sizeof path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

truce_status truce__broker_find(const char *scheme, const struct broker_ops **ops,
                                bson_error_t *error)
{
    const struct broker_kind *kind = kinds;
    truce_broker_function *function = NULL;
    const char *reason;
    void *handle, *symbol;

    while (kind->scheme && strcmp(kind->scheme, scheme) != 0)
        kind++;
    if (!kind->scheme)
        return truce__fail(TRUCE_INVALID, error,
                           "unknown broker \"%.40s\": expected amqp, amqps, or kafka", scheme);
    handle = broker_load(kind->module);
    if (!handle) {
        reason = dlerror();
        return truce__fail(TRUCE_INVALID, error,
                           "cannot load %s for %s://: %.200s; install the package %s, and a truce "
                           "that was built with its development package",
                           kind->module, scheme, reason ? reason : "not found", kind->package);
    }
    symbol = dlsym(handle, kind->function);
    if (symbol)
        memcpy(&function, &symbol, sizeof function);
    *ops = function ? function(BROKER_VERSION) : NULL;
    return *ops ? TRUCE_OK
                : truce__fail(
                      TRUCE_INVALID, error,
                      "%s belongs to another version of truce: install the module of this version",
                      kind->module);
}

void truce__broker_message_free(struct broker_message *message)
{
    if (!message)
        return;
    bson_free(message->body);
    bson_free((char *)message->position.stream);
    bson_destroy(&message->facts);
    bson_free(message);
}

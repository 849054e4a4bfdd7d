/*
 * An archive in a bucket of S3, or of a service with the same interface.
 *
 *     s3://BUCKET/PREFIX/00000001/0000000042.log
 *
 * Requests are signed with AWS signature version 4 and sent by libcurl, which is loaded when the
 * first target of this kind is opened. The environment has the settings under the names of the AWS
 * tools:
 *
 *     AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN
 *     AWS_REGION, AWS_DEFAULT_REGION        default: us-east-1
 *     AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL default: https://BUCKET.s3.REGION.amazonaws.com
 *
 * Invariants:
 *  1. put returns OK only after the service has replied 200 to the whole file. S3 stores an object
 *     completely or not at all.
 *  2. put never replaces an object on a service that knows If-None-Match, as AWS does.
 *  3. No body of a reply has more than ANSWER_MAX bytes. Its buffer may have twice as many.
 *  4. A request ends if the service sends and takes less than SLOW_BYTES per second for STALL_S
 *     seconds, and after WHOLE_S seconds in any case, or after the caller's timeouts. A call that
 *     reads may send several requests.
 *  5. A list is complete, and comes from a service with S3's interface.
 *
 * A call that fails for any reason of the network or the service returns IO. The archiver repeats
 * its puts. Calls that only read are repeated here, so one failure does not end a long restore.
 * has_after is not repeated, because the archiver calls it again later.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "archive/archive_segment.h"
#include "archive/archive_target.h"
#include "base/clock.h"
#include "base/sha256.h"
#include "bson/binary_text.h"

/* The maximum number of bytes of a reply (invariant 3). */
#define ANSWER_MAX (8 * 1024 * 1024)
/* A request with less than SLOW_BYTES per second for STALL_S seconds has failed, and so has one
 * that takes WHOLE_S seconds (invariant 4). */
#define SLOW_BYTES 1000L
#define STALL_S    20L
#define WHOLE_S    300L
/* The milliseconds for connecting to the service. */
#define CONNECT_MS 10000L
/* The number of attempts of a request that only reads, and the milliseconds before the second
 * attempt. The pause doubles. */
#define READ_TRIES    3
#define READ_PAUSE_MS 300
/* The milliseconds between two calls of has_after (archive_target.h). */
#define CHECK_MS 10000
/* The maximum bytes of an element of a reply, with its begin tag and the zero byte. A longer
 * element counts as empty. */
#define TEXT_MAX 4096

/* ---- libcurl -------------------------------------------------------------------------------- */

/* The numbers of options, which are a part of libcurl's binary interface and never change. */
enum {
    CURL_NOSIGNAL = 99,
    CURL_LOW_SPEED_LIMIT = 19,
    CURL_LOW_SPEED_TIME = 20,
    CURL_TIMEOUT_MS = 155,
    CURL_CONNECTTIMEOUT_MS = 156,
    CURL_WRITEDATA = 10001,
    CURL_URL = 10002,
    CURL_ERRORBUFFER = 10010,
    CURL_POSTFIELDS = 10015,
    CURL_HTTPHEADER = 10023,
    CURL_CUSTOMREQUEST = 10036,
    CURL_WRITEFUNCTION = 20011,
    CURL_POSTFIELDSIZE_LARGE = 30120,
    CURL_RESPONSE_CODE = 0x200002,
};
/* The size of the buffer that CURL_ERRORBUFFER requires. */
#define CURL_ERROR_BYTES 256
/* The flag of curl_global_init that initializes everything. */
#define CURL_ALL 3L

struct s3_header;

static struct {
    int (*global_init)(long flags);
    void *(*init)(void);
    void (*reset)(void *handle);
    void (*cleanup)(void *handle);
    int (*setopt)(void *handle, int option, ...);
    int (*getinfo)(void *handle, int info, ...);
    int (*perform)(void *handle);
    const char *(*text)(int code);
    struct s3_header *(*append)(struct s3_header *list, const char *line);
    void (*free_all)(struct s3_header *list);
    bool loaded;
} s3_curl;

static bool s3_find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);

    memcpy(function, &found, sizeof found);
    return found != NULL;
}

/* Loads libcurl. Sets `loaded` if all functions were found. */
static void s3_load(void)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    void *library = NULL;

    for (size_t i = 0; i < 2 && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    s3_curl.loaded = library && s3_find(library, "curl_global_init", &s3_curl.global_init) &&
                     s3_find(library, "curl_easy_init", &s3_curl.init) &&
                     s3_find(library, "curl_easy_reset", &s3_curl.reset) &&
                     s3_find(library, "curl_easy_cleanup", &s3_curl.cleanup) &&
                     s3_find(library, "curl_easy_setopt", &s3_curl.setopt) &&
                     s3_find(library, "curl_easy_getinfo", &s3_curl.getinfo) &&
                     s3_find(library, "curl_easy_perform", &s3_curl.perform) &&
                     s3_find(library, "curl_easy_strerror", &s3_curl.text) &&
                     s3_find(library, "curl_slist_append", &s3_curl.append) &&
                     s3_find(library, "curl_slist_free_all", &s3_curl.free_all) &&
                     !s3_curl.global_init(CURL_ALL);
}

/* ---- signatures ----------------------------------------------------------------------------- */

struct target_s3 {
    /* Must be the first field. */
    struct target base;
    void *handle;
    char *bucket, *prefix, *region, *key, *secret, *token;
    /* The parts of a URL: "SCHEME://HOST" (https, unless the endpoint has another scheme), with the
     * bucket in the host unless there is an endpoint; the host; and "/BUCKET" with an endpoint,
     * otherwise "". */
    char *origin, *host, *root;
    struct target_timeouts timeouts;
};

static struct target_s3 *s3_of(struct target *target)
{
    return (struct target_s3 *)target;
}

/* Computes HMAC (RFC 2104) with SHA-256. */
static void s3_hmac(const void *key, size_t key_size, const char *text,
                    uint8_t digest[SHA256_BYTES])
{
    uint8_t block[64] = {0}, inner[64], outer[64];
    struct sha256 sha;

    if (key_size > sizeof block)
        truce__sha256(key, key_size, block);
    else
        memcpy(block, key, key_size);
    for (size_t i = 0; i < sizeof block; i++) {
        inner[i] = block[i] ^ 0x36;
        outer[i] = block[i] ^ 0x5c;
    }
    truce__sha256_begin(&sha);
    truce__sha256_add(&sha, inner, sizeof inner);
    truce__sha256_add(&sha, text, strlen(text));
    truce__sha256_end(&sha, digest);
    truce__sha256_begin(&sha);
    truce__sha256_add(&sha, outer, sizeof outer);
    truce__sha256_add(&sha, digest, SHA256_BYTES);
    truce__sha256_end(&sha, digest);
}

/* Appends the text in AWS's percent-encoding. With `slashes`, does not encode '/'. */
static void s3_escape(bson_string_t *out, const char *text, bool slashes)
{
    for (; *text; text++) {
        bool plain = (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') ||
                     (*text >= '0' && *text <= '9') || strchr("-._~", *text) != NULL;

        if (plain || (slashes && *text == '/'))
            bson_string_append_printf(out, "%c", *text);
        else
            bson_string_append_printf(out, "%%%02X", (unsigned char)*text);
    }
}

/* A request. `path` and `query` are encoded, and the parts of the query are sorted. */
struct s3_request {
    const char *method;
    char *path, *query;
    const void *bytes;
    size_t size;
    /* An additional header that is not signed, or NULL. */
    const char *header;
};

/* Returns the headers of a request with its signature (AWS signature version 4). The signature
 * covers the digest of a canonical form of the request. Its key is derived from the secret, the
 * day, and the region. The caller frees the list. */
static struct s3_header *s3_sign(const struct target_s3 *target, const struct s3_request *request)
{
    char stamp[20], day[9], hash[65], line[TEXT_MAX], signature[65];
    uint8_t digest[SHA256_BYTES];
    time_t now = time(NULL);
    struct tm utc;
    char *canonical, *scope, *text, *first;
    struct s3_header *headers = NULL;

    gmtime_r(&now, &utc);
    strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &utc);
    snprintf(day, sizeof day, "%.8s", stamp);
    truce__sha256(request->bytes, request->size, digest);
    truce__hex_show(digest, SHA256_BYTES, hash);
    canonical = bson_strdup_printf(
        "%s\n%s\n%s\nhost:%s\nx-amz-content-sha256:%s\nx-amz-date:%s\n%s%s%s\n"
        "host;x-amz-content-sha256;x-amz-date%s\n%s",
        request->method, request->path, request->query, target->host, hash, stamp,
        target->token ? "x-amz-security-token:" : "", target->token ? target->token : "",
        target->token ? "\n" : "", target->token ? ";x-amz-security-token" : "", hash);
    truce__sha256(canonical, strlen(canonical), digest);
    truce__hex_show(digest, SHA256_BYTES, signature);
    scope = bson_strdup_printf("%s/%s/s3/aws4_request", day, target->region);
    text = bson_strdup_printf("AWS4-HMAC-SHA256\n%s\n%s\n%s", stamp, scope, signature);
    first = bson_strdup_printf("AWS4%s", target->secret);
    s3_hmac(first, strlen(first), day, digest);
    s3_hmac(digest, sizeof digest, target->region, digest);
    s3_hmac(digest, sizeof digest, "s3", digest);
    s3_hmac(digest, sizeof digest, "aws4_request", digest);
    s3_hmac(digest, sizeof digest, text, digest);
    truce__hex_show(digest, SHA256_BYTES, signature);
    snprintf(line, sizeof line,
             "Authorization: AWS4-HMAC-SHA256 Credential=%s/%s, "
             "SignedHeaders=host;x-amz-content-sha256;x-amz-date%s, Signature=%s",
             target->key, scope, target->token ? ";x-amz-security-token" : "", signature);
    headers = s3_curl.append(headers, line);
    snprintf(line, sizeof line, "x-amz-content-sha256: %s", hash);
    headers = s3_curl.append(headers, line);
    snprintf(line, sizeof line, "x-amz-date: %s", stamp);
    headers = s3_curl.append(headers, line);
    if (target->token) {
        char *token = bson_strdup_printf("x-amz-security-token: %s", target->token);

        headers = s3_curl.append(headers, token);
        bson_free(token);
    }
    headers = s3_curl.append(headers, "Expect:");
    headers = s3_curl.append(headers, "Content-Type: application/octet-stream");
    if (request->header)
        headers = s3_curl.append(headers, request->header);
    bson_free(canonical);
    bson_free(scope);
    bson_free(text);
    bson_free(first);
    return headers;
}

/* ---- requests ------------------------------------------------------------------------------- */

static size_t s3_receive(char *bytes, size_t one, size_t size, void *arg)
{
    struct buffer *answer = arg;

    if (answer->size + size > ANSWER_MAX)
        return 0;
    truce__buffer_append(answer, bytes, one * size);
    return size;
}

/* Copies the content of the first XML element with this name to `text`, or "" if the reply has no
 * such element. */
static void s3_element(const struct buffer *answer, const char *name, char text[TEXT_MAX])
{
    char open[64], *at, *end;

    text[0] = 0;
    snprintf(open, sizeof open, "<%s>", name);
    at = answer->size ? strstr((const char *)answer->bytes, open) : NULL;
    end = at ? strchr(at + strlen(open), '<') : NULL;
    if (end && end - at < TEXT_MAX)
        snprintf(text, TEXT_MAX, "%.*s", (int)(end - at - (long)strlen(open)), at + strlen(open));
}

/* Sends a request. `answer` gets the body of the reply, with a zero byte after it. */
static truce_status s3_send(struct target_s3 *target, const struct s3_request *request, long *code,
                            struct buffer *answer, bson_error_t *error)
{
    char reason[CURL_ERROR_BYTES] = "";
    char *url = bson_strdup_printf("%s%s%s%s", target->origin, request->path,
                                   *request->query ? "?" : "", request->query);
    struct s3_header *headers = s3_sign(target, request);
    int result;

    s3_curl.reset(target->handle);
    s3_curl.setopt(target->handle, CURL_NOSIGNAL, 1L);
    s3_curl.setopt(target->handle, CURL_URL, url);
    s3_curl.setopt(target->handle, CURL_ERRORBUFFER, reason);
    s3_curl.setopt(target->handle, CURL_CONNECTTIMEOUT_MS, CONNECT_MS);
    s3_curl.setopt(target->handle, CURL_LOW_SPEED_LIMIT, SLOW_BYTES);
    s3_curl.setopt(target->handle, CURL_LOW_SPEED_TIME, target->timeouts.stall_s);
    s3_curl.setopt(target->handle, CURL_TIMEOUT_MS, target->timeouts.whole_s * 1000);
    s3_curl.setopt(target->handle, CURL_HTTPHEADER, headers);
    s3_curl.setopt(target->handle, CURL_WRITEFUNCTION, s3_receive);
    s3_curl.setopt(target->handle, CURL_WRITEDATA, answer);
    if (request->bytes) {
        s3_curl.setopt(target->handle, CURL_POSTFIELDSIZE_LARGE, (int64_t)request->size);
        s3_curl.setopt(target->handle, CURL_POSTFIELDS, request->bytes);
    }
    s3_curl.setopt(target->handle, CURL_CUSTOMREQUEST, request->method);
    result = s3_curl.perform(target->handle);
    *code = 0;
    if (!result)
        s3_curl.getinfo(target->handle, CURL_RESPONSE_CODE, code);
    s3_curl.free_all(headers);
    bson_free(url);
    truce__buffer_append_byte(answer, 0);
    answer->size--;
    if (!result)
        return TRUCE_OK;
    return truce__fail(TRUCE_IO, error, "cannot reach \"%s\": %s", target->base.name,
                       *reason ? reason : s3_curl.text(result));
}

/* Sends a request that only reads, up to `tries` times if the service is not available. */
static truce_status s3_read(struct target_s3 *target, const struct s3_request *request, int tries,
                            long *code, struct buffer *answer, bson_error_t *error)
{
    truce_status status = TRUCE_IO;

    for (int i = 0; i < tries; i++) {
        if (i)
            truce__clock_sleep_ms(READ_PAUSE_MS << (i - 1));
        answer->size = 0;
        status = s3_send(target, request, code, answer, error);
        if (!status && *code < 500 && *code != 429)
            break;
    }
    return status;
}

static truce_status s3_refused(struct target_s3 *target, const char *what, const char *name,
                               long code, const struct buffer *answer, bson_error_t *error)
{
    char kind[TEXT_MAX], text[TEXT_MAX];

    s3_element(answer, "Code", kind);
    s3_element(answer, "Message", text);
    return truce__fail(
        TRUCE_IO, error, "cannot %s \"%s/%s\": the service answered %ld%s%.200s%s%.300s", what,
        target->base.name, name, code, *kind ? " " : "", kind, *text ? ": " : "", text);
}

static void s3_request_init(const struct target_s3 *target, const char *method, const char *name,
                            struct s3_request *request)
{
    bson_string_t *path = bson_string_new(target->root);

    *request = (struct s3_request){.method = method, .query = bson_strdup("")};
    bson_string_append(path, "/");
    if (name) {
        s3_escape(path, target->prefix, true);
        s3_escape(path, name, true);
    }
    request->path = bson_string_free(path, false);
}

static void s3_request_release(struct s3_request *request)
{
    bson_free(request->path);
    bson_free(request->query);
}

/* Stores a file (target_calls.put). Is not repeated here: after a failure, the archiver puts the
 * same bytes again. */
static truce_status s3_put(struct target *base, const char *name, const void *bytes, size_t size,
                           bson_error_t *error)
{
    struct target_s3 *target = s3_of(base);
    struct buffer answer = {0};
    struct s3_request request;
    truce_status status;
    long code;

    s3_request_init(target, "PUT", name, &request);
    request.bytes = bytes;
    request.size = size;
    request.header = "If-None-Match: *";
    status = s3_send(target, &request, &code, &answer, error);
    if (!status && code == 412)
        status = truce__fail(TRUCE_DUPLICATE, error, "\"%s/%s\" already exists", base->name, name);
    else if (!status && code != 200)
        status = s3_refused(target, "write", name, code, &answer, error);
    s3_request_release(&request);
    truce__buffer_release(&answer);
    return status;
}

/* Reads the first `most` bytes of a file (target_calls.get). A service that ignores the range sends
 * the whole file, which is cut. */
static truce_status s3_get(struct target *base, const char *name, size_t most, struct buffer *out,
                           bson_error_t *error)
{
    struct target_s3 *target = s3_of(base);
    struct buffer answer = {0};
    struct s3_request request;
    char range[64];
    truce_status status;
    long code;

    s3_request_init(target, "GET", name, &request);
    snprintf(range, sizeof range, "Range: bytes=0-%zu", most - 1);
    request.header = range;
    status = s3_read(target, &request, READ_TRIES, &code, &answer, error);
    if (!status && code == 404)
        status = truce__fail(TRUCE_NOT_FOUND, error, "\"%s/%s\" is missing", base->name, name);
    else if (!status && code != 200 && code != 206)
        status = s3_refused(target, "read", name, code, &answer, error);
    if (!status)
        truce__buffer_append(out, answer.bytes, answer.size < most ? answer.size : most);
    s3_request_release(&request);
    truce__buffer_release(&answer);
    return status;
}

/* Passes the names on one page of the list to the function. */
static void s3_list_names(const struct buffer *answer, target_name_function *function, void *arg)
{
    const char *at = (const char *)answer->bytes;

    while ((at = strstr(at, "<Key>"))) {
        const char *end = strchr(at + 5, '<'), *name = end;
        char text[SEGMENT_NAME_BYTES];

        if (!end)
            return;
        /* A name has one slash. The prefix before it may be escaped for XML. */
        for (int slashes = 0; name > at + 5; name--) {
            if (name[-1] == '/' && ++slashes == 2)
                break;
        }
        snprintf(text, sizeof text, "%.*s", (int)(end - name), name);
        if (end - name < SEGMENT_NAME_BYTES)
            function(arg, text);
        at = end;
    }
}

/* Checks that a list is a reply of S3. A server that replies 200 to every request would look like
 * an empty bucket. */
static truce_status s3_check_list(const struct target_s3 *target, const struct buffer *answer,
                                  bool cut, bson_error_t *error)
{
    /* Invariant 5. */
    if (!cut && strstr((const char *)answer->bytes, "<ListBucketResult"))
        return TRUCE_OK;
    return truce__fail(
        TRUCE_IO, error,
        "cannot list \"%s\": \"%s\" did not reply like an S3 service: check AWS_ENDPOINT_URL",
        target->base.name, target->origin);
}

/* Requests a page of the list. Frees `query`. */
static truce_status s3_read_list(struct target_s3 *target, bson_string_t *query, int tries,
                                 struct buffer *answer, bson_error_t *error)
{
    struct s3_request request;
    truce_status status;
    long code;

    s3_request_init(target, "GET", NULL, &request);
    bson_free(request.query);
    request.query = bson_string_free(query, false);
    status = s3_read(target, &request, tries, &code, answer, error);
    if (!status && code != 200)
        status = s3_refused(target, "list", "", code, answer, error);
    s3_request_release(&request);
    return status;
}

/* Lists all files (target_calls.list). S3 returns the list in pages, each with a token for the
 * next. */
static truce_status s3_list(struct target *base, target_name_function *function, void *arg,
                            bson_error_t *error)
{
    struct target_s3 *target = s3_of(base);
    char next[TEXT_MAX] = "", truncated[TEXT_MAX];
    truce_status status;

    do {
        bson_string_t *query = bson_string_new("");
        struct buffer answer = {0};

        if (*next) {
            bson_string_append(query, "continuation-token=");
            s3_escape(query, next, false);
            bson_string_append(query, "&");
        }
        bson_string_append(query, "list-type=2&prefix=");
        s3_escape(query, target->prefix, false);
        status = s3_read_list(target, query, READ_TRIES, &answer, error);
        s3_element(&answer, "NextContinuationToken", next);
        s3_element(&answer, "IsTruncated", truncated);
        if (!status)
            status = s3_check_list(target, &answer, !strcmp(truncated, "true") && !*next, error);
        if (!status)
            s3_list_names(&answer, function, arg);
        truce__buffer_release(&answer);
    } while (!status && !strcmp(truncated, "true"));
    return status;
}

/* Requests only one name after `name`, because services list names in their order. */
static truce_status s3_has_after(struct target *base, const char *name, bool *found,
                                 bson_error_t *error)
{
    struct target_s3 *target = s3_of(base);
    bson_string_t *query = bson_string_new("list-type=2&max-keys=1&prefix=");
    struct buffer answer = {0};
    truce_status status;

    s3_escape(query, target->prefix, false);
    bson_string_append(query, "&start-after=");
    s3_escape(query, target->prefix, false);
    s3_escape(query, name, false);
    status = s3_read_list(target, query, 1, &answer, error);
    if (!status)
        status = s3_check_list(target, &answer, false, error);
    *found = !status && strstr((const char *)answer.bytes, "<Key>");
    truce__buffer_release(&answer);
    return status;
}

/* Deletes a file (target_calls.remove). A reply that the file is missing counts as success. */
static truce_status s3_remove(struct target *base, const char *name, bson_error_t *error)
{
    struct target_s3 *target = s3_of(base);
    struct buffer answer = {0};
    struct s3_request request;
    truce_status status;
    long code;

    s3_request_init(target, "DELETE", name, &request);
    status = s3_send(target, &request, &code, &answer, error);
    if (!status && code != 204 && code != 200 && code != 404)
        status = s3_refused(target, "remove", name, code, &answer, error);
    s3_request_release(&request);
    truce__buffer_release(&answer);
    return status;
}

/* ---- opening -------------------------------------------------------------------------------- */

/* Closes the target (target_calls.close). */
static void s3_close(struct target *base)
{
    struct target_s3 *target = s3_of(base);

    if (target->handle)
        s3_curl.cleanup(target->handle);
    bson_free(target->bucket);
    bson_free(target->prefix);
    bson_free(target->region);
    bson_free(target->key);
    bson_free(target->secret);
    bson_free(target->token);
    bson_free(target->origin);
    bson_free(target->host);
    bson_free(target->root);
    bson_free(base->name);
    bson_free(target);
}

static const struct target_calls s3_calls = {.put = s3_put,
                                             .get = s3_get,
                                             .list = s3_list,
                                             .has_after = s3_has_after,
                                             .remove = s3_remove,
                                             .close = s3_close};

static const char *s3_setting(const char *name, const char *other)
{
    const char *value = getenv(name);

    if (!value || !*value)
        value = other ? getenv(other) : NULL;
    return value && *value ? value : NULL;
}

/* Sets the origin of requests. With an endpoint, the bucket is the first part of the path. */
static void s3_set_origin(struct target_s3 *target, const char *endpoint)
{
    const char *host;

    if (!endpoint) {
        target->host = bson_strdup_printf("%s.s3.%s.amazonaws.com", target->bucket, target->region);
        target->origin = bson_strdup_printf("https://%s", target->host);
        target->root = bson_strdup("");
        return;
    }
    host = strstr(endpoint, "://");
    target->host = bson_strdup(host ? host + 3 : endpoint);
    target->host[strcspn(target->host, "/")] = 0;
    target->origin =
        host ? bson_strdup_printf("%.*s://%s", (int)(host - endpoint), endpoint, target->host)
             : bson_strdup_printf("https://%s", target->host);
    target->root = bson_strdup_printf("/%s", target->bucket);
}

truce_status truce__target_s3(const char *name, const struct target_timeouts *timeouts,
                              struct target **target, bson_error_t *error)
{
    static const struct target_timeouts usual = {STALL_S, WHOLE_S};
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const char *key = s3_setting("AWS_ACCESS_KEY_ID", NULL);
    const char *secret = s3_setting("AWS_SECRET_ACCESS_KEY", NULL);
    const char *region = s3_setting("AWS_REGION", "AWS_DEFAULT_REGION");
    const char *rest = name + 5, *slash = strchr(rest, '/');
    size_t size = slash ? (size_t)(slash - rest) : strlen(rest);
    struct target_s3 *made;

    *target = NULL;
    if (!size || size > 63 || strspn(rest, "abcdefghijklmnopqrstuvwxyz0123456789.-") < size)
        return truce__fail(TRUCE_INVALID, error,
                           "\"%s\" has no valid bucket name: expected s3://BUCKET/PREFIX", name);
    if (strlen(name) > 700)
        return truce__fail(
            TRUCE_INVALID, error,
            "the target \"%.40s...\" has %zu bytes, more than the maximum of 700: use a shorter "
            "prefix",
            name, strlen(name));
    if (!key || !secret)
        return truce__fail(TRUCE_INVALID, error,
                           "\"%s\" needs a login: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
                           name);
    if (strlen(key) > 256 || (region && strlen(region) > 64))
        return truce__fail(TRUCE_INVALID, error,
                           "AWS_ACCESS_KEY_ID has more than 256 bytes, or AWS_REGION more than 64");
    pthread_once(&once, s3_load);
    if (!s3_curl.loaded)
        return truce__fail(TRUCE_INVALID, error,
                           "\"%s\" needs libcurl, which cannot be loaded: install libcurl4", name);
    made = bson_malloc0(sizeof *made);
    made->base =
        (struct target){.calls = &s3_calls, .name = bson_strdup(name), .check_ms = CHECK_MS};
    made->timeouts = timeouts ? *timeouts : usual;
    made->bucket = bson_strndup(rest, size);
    made->prefix = slash && slash[1] ? bson_strdup_printf("%s/", slash + 1) : bson_strdup("");
    while (strlen(made->prefix) > 1 && made->prefix[strlen(made->prefix) - 2] == '/')
        made->prefix[strlen(made->prefix) - 1] = 0;
    made->region = bson_strdup(region ? region : "us-east-1");
    made->key = bson_strdup(key);
    made->secret = bson_strdup(secret);
    made->token = bson_strdup(s3_setting("AWS_SESSION_TOKEN", NULL));
    s3_set_origin(made, s3_setting("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"));
    made->handle = s3_curl.init();
    *target = &made->base;
    return TRUCE_OK;
}

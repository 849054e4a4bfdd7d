/*
 * Archives in S3 while the service fails: a server of this program answers as S3 does, or with
 * errors. tests/clients/run archive-s3 uses a real server, which also verifies the signatures.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "archive/archive.h"
#include "base/clock.h"
#include "tests/support/test.h"

/* ---- the service ---------------------------------------------------------------------------- */

#define OBJECTS_MAX 2000
/* The number of names in one answer to a list. */
#define PAGE 3

static struct {
    int socket, port;
    pthread_t thread;
    atomic_bool stop;
    /* The status of every answer, or 0. Negative numbers are other faults.
     * -1: the connection is closed without an answer.
     * -2: the request is executed, and the connection is closed without an answer.
     * -3: there is no answer. -4: it comes a byte at a time. -5: it is a page of HTML.
     * -6: it is a list that ends too early. */
    atomic_int fault;
    atomic_int requests;
    struct {
        char name[1000];
        struct buffer bytes;
    } objects[OBJECTS_MAX];
    int count;
} s3;
/* Protects the objects. */
static pthread_mutex_t s3_lock = PTHREAD_MUTEX_INITIALIZER;

static int s3_find_object(const char *name)
{
    for (int i = 0; i < s3.count; i++) {
        if (!strcmp(s3.objects[i].name, name))
            return i;
    }
    return -1;
}

static void s3_answer(int client, int status, const void *bytes, size_t size)
{
    char head[200];
    int length = snprintf(head, sizeof head,
                          "HTTP/1.1 %d Answer\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                          status, size);

    (void)!write(client, head, (size_t)length);
    while (size) {
        ssize_t wrote = write(client, bytes, size);

        if (wrote <= 0)
            return;
        bytes = (const char *)bytes + wrote;
        size -= (size_t)wrote;
    }
}

/* Sends a byte from time to time, or nothing, until the fault ends. */
static void s3_answer_slowly(int client, int fault)
{
    static const char text[] = "HTTP/1.1 200 OK\r\nX-Slow: ";

    for (size_t sent = 0; atomic_load(&s3.fault) == fault && !atomic_load(&s3.stop); sent++) {
        const char *byte = sent < sizeof text - 1 ? text + sent : "x";

        if (fault == -4 && send(client, byte, 1, MSG_NOSIGNAL) != 1)
            return;
        truce__clock_sleep_ms(10);
    }
}

/* Answers with one name after this one. */
static void s3_answer_after(int client, const char *after)
{
    bson_string_t *xml = bson_string_new("<?xml version=\"1.0\"?><ListBucketResult>");
    char name[1000];
    size_t size = 0;

    for (; *after && *after != '&' && size < sizeof name - 1; after++) {
        bool slash = !strncmp(after, "%2F", 3);

        name[size++] = slash ? '/' : *after;
        after += slash ? 2 : 0;
    }
    name[size] = 0;
    for (int i = 0; i < s3.count; i++) {
        if (strcmp(s3.objects[i].name, name) > 0) {
            bson_string_append_printf(xml, "<Contents><Key>%s</Key></Contents>",
                                      s3.objects[i].name);
            break;
        }
    }
    bson_string_append(xml, "<IsTruncated>false</IsTruncated></ListBucketResult>");
    s3_answer(client, 200, xml->str, (size_t)xml->len);
    bson_string_free(xml, true);
}

/* Lists the names after the token, which is a number. */
static void s3_answer_list(int client, const char *path)
{
    const char *token = strstr(path, "continuation-token=");
    const char *after = strstr(path, "start-after=");
    int from = token ? atoi(token + 19) : 0, to = from + PAGE;
    bson_string_t *xml;

    if (after) {
        s3_answer_after(client, after + 12);
        return;
    }
    xml = bson_string_new("<?xml version=\"1.0\"?><ListBucketResult>");
    for (int i = from; i < to && i < s3.count; i++)
        bson_string_append_printf(xml, "<Contents><Key>%s</Key></Contents>", s3.objects[i].name);
    bson_string_append_printf(xml, "<IsTruncated>%s</IsTruncated>",
                              to < s3.count ? "true" : "false");
    if (to < s3.count)
        bson_string_append_printf(xml, "<NextContinuationToken>%d</NextContinuationToken>", to);
    bson_string_append(xml, "</ListBucketResult>");
    s3_answer(client, 200, xml->str, (size_t)xml->len);
    bson_string_free(xml, true);
}

static int s3_store(const char *name, const uint8_t *bytes, size_t size)
{
    if (s3_find_object(name) >= 0)
        return 412;
    snprintf(s3.objects[s3.count].name, sizeof s3.objects[s3.count].name, "%s", name);
    truce__buffer_append(&s3.objects[s3.count].bytes, bytes, size);
    s3.count++;
    return 200;
}

static void s3_execute(int client, const char *method, const char *path, const char *head,
                       const uint8_t *body, size_t size)
{
    int fault = atomic_load(&s3.fault), at, status = 0;
    const char *range = strstr(head, "Range: bytes=0-");

    if (fault > 0) {
        static const char text[] = "<Error><Code>Fault</Code><Message>as asked</Message></Error>";

        s3_answer(client, fault, text, sizeof text - 1);
        return;
    }
    if (fault == -3 || fault == -4) {
        s3_answer_slowly(client, fault);
        return;
    }
    if (fault == -5 || fault == -6) {
        static const char *const pages[] = {
            "<html>Hello</html>",
            "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"};
        const char *page = pages[fault == -6];

        s3_answer(client, 200, page, strlen(page));
        return;
    }
    if (fault == -1 || strncmp(path, "/bucket/", 8) != 0)
        return;
    at = s3_find_object(path + 8);
    if (!strcmp(method, "PUT"))
        status = s3_store(path + 8, body, size);
    if (fault == -2)
        return;
    if (status)
        s3_answer(client, status, "", 0);
    else if (!strncmp(path, "/bucket/?", 9))
        s3_answer_list(client, path);
    else if (at < 0)
        s3_answer(client, 404, "", 0);
    else {
        size_t most = range ? strtoull(range + 15, NULL, 10) + 1 : SIZE_MAX;

        s3_answer(client, 206, s3.objects[at].bytes.bytes,
                  s3.objects[at].bytes.size < most ? s3.objects[at].bytes.size : most);
    }
}

static void s3_serve_client(int client)
{
    struct buffer request = {0};
    char method[16] = "", path[1000] = "", *end = NULL, *length;
    size_t size = 0;
    ssize_t got = 1;

    while (got > 0 && (!end || request.size < (size_t)(end - (char *)request.bytes) + 4 + size)) {
        truce__buffer_reserve(&request, 65537);
        got = read(client, request.bytes + request.size, 65536);
        if (got <= 0)
            break;
        request.size += (size_t)got;
        request.bytes[request.size] = 0;
        end = strstr((char *)request.bytes, "\r\n\r\n");
        length = end ? strstr((char *)request.bytes, "Content-Length: ") : NULL;
        size = length ? strtoull(length + 16, NULL, 10) : 0;
    }
    if (end && sscanf((char *)request.bytes, "%15s %999s", method, path) == 2) {
        atomic_fetch_add(&s3.requests, 1);
        pthread_mutex_lock(&s3_lock);
        s3_execute(client, method, path, (char *)request.bytes, (uint8_t *)end + 4, size);
        pthread_mutex_unlock(&s3_lock);
    }
    truce__buffer_release(&request);
}

static void *s3_serve(void *arg)
{
    while (!atomic_load(&s3.stop)) {
        int client = accept(s3.socket, NULL, NULL);

        if (client < 0)
            break;
        s3_serve_client(client);
        close(client);
    }
    return arg;
}

static int s3_count(void)
{
    int count;

    pthread_mutex_lock(&s3_lock);
    count = s3.count;
    pthread_mutex_unlock(&s3_lock);
    return count;
}

static bool s3_begin(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    char endpoint[64];

    memset(&s3, 0, sizeof s3);
    s3.socket = socket(AF_INET, SOCK_STREAM, 0);
    if (!CHECK(!bind(s3.socket, (struct sockaddr *)&address, sizeof address)) ||
        !CHECK(!listen(s3.socket, 16)) ||
        !CHECK(!getsockname(s3.socket, (struct sockaddr *)&address, &size)))
        return false;
    s3.port = ntohs(address.sin_port);
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", s3.port);
    setenv("AWS_ENDPOINT_URL", endpoint, 1);
    setenv("AWS_ACCESS_KEY_ID", "key", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    unsetenv("AWS_ENDPOINT_URL_S3");
    setenv("no_proxy", "127.0.0.1", 1);
    return !pthread_create(&s3.thread, NULL, s3_serve, NULL);
}

static void s3_end(void)
{
    atomic_store(&s3.stop, true);
    shutdown(s3.socket, SHUT_RDWR);
    pthread_join(s3.thread, NULL);
    close(s3.socket);
    for (int i = 0; i < s3.count; i++)
        truce__buffer_release(&s3.objects[i].bytes);
}

/* ---- the store ------------------------------------------------------------------------------ */

static struct {
    char path[300], restored[300];
    uint8_t id[SEGMENT_STORE_BYTES];
    truce_store *store;
    struct target *target;
    atomic_int stop, fails, works, bases;
    pthread_t thread;
    truce_status status;
    bson_error_t error;
} own;

static void own_event(enum archive_event event, const struct segment_head *head, const char *text,
                      void *arg)
{
    atomic_fetch_add(&own.fails, event == ARCHIVE_FAILS);
    atomic_fetch_add(&own.works, event == ARCHIVE_WORKS);
    atomic_fetch_add(&own.bases, event == ARCHIVE_BASE);
    (void)head;
    (void)text;
    (void)arg;
}

static struct target_timeouts own_timeouts = {20, 60};

static bool own_open(void)
{
    const char *directory = test_directory();
    bson_error_t error;
    truce_status status;

    memset(&own, 0, sizeof own);
    snprintf(own.path, sizeof own.path, "%s/s.truce", directory);
    snprintf(own.restored, sizeof own.restored, "%s/restored.truce", directory);
    if (!s3_begin())
        return false;
    status = truce__target_s3("s3://bucket/a/prefix", &own_timeouts, &own.target, &error);
    if (status && strstr(error.message, "libcurl")) {
        test_skip("%s", error.message);
        s3_end();
        return false;
    }
    return CHECK_OK(status, error) &&
           CHECK_OK(truce_store_open(own.path, NULL, &own.store, &error), error) &&
           CHECK_OK(truce__archive_store_id(own.store, own.id, &error), error);
}

static void own_close(void)
{
    truce_store_close(own.store);
    truce__target_close(own.target);
    s3_end();
}

static bool own_insert(int first, int last)
{
    bson_error_t error;

    for (int i = first; i <= last; i++) {
        bson_t document = BSON_INITIALIZER;
        bool fine;

        BSON_APPEND_INT32(&document, "_id", i);
        fine = CHECK_OK(truce_insert(own.store, "things", &document, NULL, &error), error);
        bson_destroy(&document);
        if (!fine)
            return false;
    }
    return true;
}

static int64_t own_restored(void)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-lock"};
    const struct restore_options options = {.at_ms = INT64_MAX};
    struct restore_report report;
    truce_store *store;
    bson_error_t error;
    bson_t all = BSON_INITIALIZER;
    int64_t count = -1;

    for (int i = 0; i < 4; i++) {
        char name[310];

        snprintf(name, sizeof name, "%s%s", own.restored, suffixes[i]);
        unlink(name);
    }
    if (CHECK_OK(truce__archive_restore(own.target, own.restored, &options, &report, &error),
                 error) &&
        CHECK_OK(truce_store_open(own.restored, NULL, &store, &error), error)) {
        CHECK_OK(truce_count(store, "things", &all, NULL, &count, &error), error);
        truce_store_close(store);
    }
    return count;
}

static truce_status own_archive(bson_error_t *error)
{
    const struct archive_options options = {.interval_ms = 5, .log_limit = 1 << 30, .once = true};

    return truce__archive_run(own.path, own.id, own.target, &options, error);
}

static void *own_run(void *arg)
{
    const struct archive_options options = {
        .interval_ms = 5, .log_limit = 1 << 30, .stop = &own.stop, .event = own_event};

    own.status = truce__archive_run(own.path, own.id, own.target, &options, &own.error);
    return arg;
}

static void own_wait(atomic_int *events, int count)
{
    for (int i = 0; i < 10000 && atomic_load(events) < count; i++)
        truce__clock_sleep_ms(1);
    CHECK_INT(atomic_load(events), >=, count);
}

/* ---- tests ---------------------------------------------------------------------------------- */

TEST(archives_to_a_bucket_and_restores)
{
    struct verify_report report;
    bson_error_t error;

    if (!own_open())
        return;
    REQUIRE(own_insert(1, 10));
    for (int i = 0; i < 4; i++) {
        CHECK_OK(own_archive(&error), error);
        REQUIRE(own_insert(11 + i, 11 + i));
    }
    CHECK_OK(own_archive(&error), error);
    CHECK_INT(s3_count(), >, PAGE);
    CHECK(!strncmp(s3.objects[0].name, "a/prefix/00000001/0000000001.", 29));
    CHECK_INT(own_restored(), ==, 14);
    CHECK_OK(truce__archive_verify(own.target, NULL, NULL, &report, &error), error);
    CHECK_INT(report.faults, ==, 0);
    CHECK_INT((int)report.segments, ==, s3_count());
    own_close();
}

/* The archiver repeats a call that fails in any way, also if the service has executed it. */
TEST(repeats_calls_that_the_service_fails)
{
    static const int faults[] = {500, 403, 503, -1, -2};

    if (!own_open())
        return;
    REQUIRE(own_insert(1, 10));
    pthread_create(&own.thread, NULL, own_run, NULL);
    own_wait(&own.bases, 1);
    for (int i = 0; i < 5 && !test_failures(); i++) {
        atomic_store(&s3.fault, faults[i]);
        REQUIRE(own_insert(11 + i, 11 + i));
        own_wait(&own.fails, i + 1);
        atomic_store(&s3.fault, 0);
        own_wait(&own.works, i + 1);
    }
    atomic_store(&own.stop, 1);
    pthread_join(own.thread, NULL);
    CHECK_OK(own.status, own.error);
    CHECK_INT(own_restored(), ==, 15);
    own_close();
}

/* A call ends, and is repeated, if the service does not answer, or answers too slowly. */
TEST(ends_calls_to_a_service_that_stalls)
{
    static const struct target_timeouts timeouts[] = {{1, 60}, {1, 60}, {60, 1}};
    static const int faults[] = {-3, -4, -4};

    for (int i = 0; i < 3 && !test_failures(); i++) {
        own_timeouts = timeouts[i];
        if (!own_open())
            break;
        REQUIRE(own_insert(1, 10));
        pthread_create(&own.thread, NULL, own_run, NULL);
        own_wait(&own.bases, 1);
        atomic_store(&s3.fault, faults[i]);
        REQUIRE(own_insert(11, 11));
        own_wait(&own.fails, 1);
        atomic_store(&s3.fault, 0);
        own_wait(&own.works, 1);
        atomic_store(&own.stop, 1);
        pthread_join(own.thread, NULL);
        CHECK_OK(own.status, own.error);
        CHECK_INT(own_restored(), ==, 11);
        own_close();
    }
    own_timeouts = (struct target_timeouts){20, 60};
}

/* Another archiver, of a copy of the store, begins a generation in the same place. */
TEST(ends_if_another_archiver_uses_the_bucket)
{
    if (!own_open())
        return;
    REQUIRE(own_insert(1, 10));
    own.target->check_ms = 20;
    pthread_create(&own.thread, NULL, own_run, NULL);
    own_wait(&own.bases, 1);
    truce__clock_sleep_ms(50);
    CHECK_OK(own.status, own.error);
    pthread_mutex_lock(&s3_lock);
    CHECK_INT(s3_store("a/prefix/00000002/0000000001.log", (const uint8_t *)"x", 1), ==, 200);
    pthread_mutex_unlock(&s3_lock);
    pthread_join(own.thread, NULL);
    CHECK_STATUS(TRUCE_CONFLICT, own.status, own.error);
    CHECK(strstr(own.error.message, "another archiver") != NULL);
    own_close();
}

/* A server that knows nothing of S3 must not look like an empty bucket. */
TEST(refuses_a_server_that_is_not_s3)
{
    bson_error_t error;

    if (!own_open())
        return;
    for (int fault = -5; fault >= -6; fault--) {
        atomic_store(&s3.fault, fault);
        CHECK_STATUS(TRUCE_IO, own_archive(&error), error);
        CHECK(strstr(error.message, "AWS_ENDPOINT_URL") != NULL);
    }
    own_close();
}

/* The fault ends after one request. */
static void *end_fault(void *arg)
{
    int before = atomic_load(&s3.requests);

    while (atomic_load(&s3.requests) < before + 1)
        truce__clock_sleep_ms(1);
    atomic_store(&s3.fault, 0);
    return arg;
}

/* A restore repeats a call that fails for a moment. */
TEST(restores_from_a_service_that_fails_briefly)
{
    static const int faults[] = {500, 503, 429, -1};
    bson_error_t error;

    if (!own_open())
        return;
    REQUIRE(own_insert(1, 10));
    CHECK_OK(own_archive(&error), error);
    for (int i = 0; i < 4 && !test_failures(); i++) {
        atomic_store(&s3.fault, faults[i]);
        pthread_create(&own.thread, NULL, end_fault, NULL);
        CHECK_INT(own_restored(), ==, 10);
        pthread_join(own.thread, NULL);
    }
    own_close();
}

TEST(shows_the_reply_of_the_service)
{
    bson_error_t error;

    if (!own_open())
        return;
    atomic_store(&s3.fault, 403);
    CHECK_STATUS(TRUCE_IO, own_archive(&error), error);
    CHECK(strstr(error.message, "403 Fault: as asked") != NULL);
    own_close();
}

TEST(refuses_wrong_names_and_settings)
{
    static const char *const names[] = {"s3://", "s3:///x", "s3://Bucket/x", "s3://a_b"};
    struct target *target;
    bson_error_t error;

    setenv("AWS_ACCESS_KEY_ID", "key", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    for (int i = 0; i < 4; i++)
        CHECK_STATUS(TRUCE_INVALID, truce__target_s3(names[i], NULL, &target, &error), error);
    unsetenv("AWS_SECRET_ACCESS_KEY");
    CHECK_STATUS(TRUCE_INVALID, truce__target_s3("s3://bucket", NULL, &target, &error), error);
    CHECK(strstr(error.message, "AWS_SECRET_ACCESS_KEY") != NULL);
}

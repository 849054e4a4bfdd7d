/*
 * The commands over HTTP: the statuses, the refusals of foreign pages, logins, the maxima, long
 * polls, server-sent events, and clients that end early or send random bytes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <openssl/evp.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/random.h"
#include "server/auth/tokens.h"
#include "server/auth/users.h"
#include "server/call/shared_state.h"
#include "tests/support/certificate.h"
#include "tests/support/command.h"
#include "tests/support/http_client.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"
#include "truce/json.h"

#define CURL "/usr/bin/curl"

static void serve(const struct server_options *given)
{
    struct server_options options = *given;
    bson_error_t error = {0};

    options.http = "0";
    options.login_delay_ms = 1;
    if (server_start(store, &options, &server, &error)) {
        test_fail(__FILE__, __LINE__, "%s", error.message);
        REQUIRE(false);
    }
}

static void open_store(const char *uri)
{
    bson_error_t error = {0};

    REQUIRE(!truce_store_open(uri, NULL, &store, &error));
}

static void begin(void)
{
    open_store("memory:");
    serve(&(struct server_options){0});
}

static void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
}

static void add_user(const char *name, const char *database, const char *role, const char *where)
{
    struct grants *grants = bson_malloc0(sizeof *grants);
    struct user_facts facts = {.name = name,
                               .database = database,
                               .password = name,
                               .mechanisms = USER_MECHANISMS,
                               .grants = grants};
    bson_error_t error;

    grants->count = 1;
    grants->all[0].role = role_of(role, where);
    snprintf(grants->all[0].database, sizeof grants->all[0].database, "%s", where);
    REQUIRE(!users_add(store, &facts, &error));
    bson_free(grants);
}

/* Returns the Authorization header of a user; the caller frees it. */
static char *basic(const char *name, const char *password)
{
    char *plain = bson_strdup_printf("%s:%s", name, password), text[400], *header;

    EVP_EncodeBlock((unsigned char *)text, (unsigned char *)plain, (int)strlen(plain));
    header = bson_strdup_printf("Authorization: Basic %s\r\n", text);
    bson_free(plain);
    return header;
}

static void begin_auth(void)
{
    open_store("memory:");
    add_user("root", "admin", "root", "admin");
    add_user("ada", "school", "readWrite", "school");
    add_user("bob", "admin", "read", "school");
    serve(&(struct server_options){.auth = true, .connections_max = 50});
}

static int64_t elapsed_ms(int64_t begun_ns)
{
    return (truce__clock_monotonic_ns() - begun_ns) / 1000000;
}

/* ---- operations ------------------------------------------------------------------------------ */

TEST(operations_and_data_commands_reply_in_json)
{
    begin();
    POST_HAS("/v1/shop/ping", "{}", 200, "\"ok\": 1");
    POST_HAS("/v1/shop/ping", NULL, 200, "\"ok\": 1");
    POST_HAS("/v1/shop/insert", "{\"collection\": \"c\", \"documents\": [{\"_id\": 1, \"n\": 7}]}",
             200, "\"n\": 1");
    POST_HAS("/v1/shop/find", "{\"collection\": \"c\", \"filter\": {\"n\": {\"$gt\": 5}}}", 200,
             "\"n\": 7");
    POST_HAS("/v1/shop/count", "{\"collection\": \"c\"}", 200, "\"n\": 1");
    POST_HAS("/v1/shop/truceEnqueue", "{\"queue\": \"mail\", \"payload\": {\"a\": 1}}", 200,
             "\"status\": \"ok\"");
    POST_HAS("/v1/shop/truceClaim", "{\"queue\": \"mail\"}", 200, "\"payload\": {\"a\": 1}");
    POST_HAS("/v1/shop/truceSequence", "{\"sequence\": \"s\"}", 200, "\"ok\": 1");
    /* another database contains none of it */
    POST_HAS("/v1/other/count", "{\"collection\": \"c\"}", 200, "\"n\": 0");
    POST_HAS("/v1/shop/insert",
             "{\"collection\": \"c\", \"documents\": [{\"_id\": {\"$oid\": "
             "\"0123456789abcdef01234567\"}, \"at\": {\"$date\": \"2026-03-01T09:00:00Z\"}}]}",
             200, "\"n\": 1");
    POST_HAS("/v1/shop/find",
             "{\"collection\": \"c\", \"filter\": {\"_id\": {\"$oid\": "
             "\"0123456789abcdef01234567\"}}}",
             200, "{\"$date\": \"2026-03-01T09:00:00Z\"}");
    end();
}

TEST(cursors_are_read_on_with_other_connections)
{
    struct http_reply reply;
    bson_error_t error;
    bson_t document;
    char body[200];

    begin();
    POST("/v1/shop/insert", "{\"collection\": \"c\", \"documents\": [{}, {}, {}]}", 200);
    reply = http_post(-1, "/v1/shop/find", NULL, "{\"collection\": \"c\", \"batchSize\": 2}");
    REQUIRE(
        !truce_json_read(reply.body, reply.body_size, TRUCE_JSON_TYPED, &document, NULL, &error));
    snprintf(body, sizeof body, "{\"cursor\": %lld, \"collection\": \"c\"}",
             (long long)reply_number(&document, "cursor.id"));
    POST_HAS("/v1/shop/getMore", body, 200, "\"nextBatch\": [{");
    bson_destroy(&document);
    http_release(&reply);
    end();
}

TEST(errors_have_a_status_and_the_form_of_errors_of_commands)
{
    char longest[100] = "/v1/";

    begin();
    POST_HAS("/v1/shop/truceSet", "{\"collectio\": \"students\"}", 400,
             "has no field 'collectio', and needs the field 'collection'");
    POST("/v1/shop/insert", "{\"collection\": \"c\", \"documents\": [{\"_id\": 1}]}", 200);
    /* the request */
    POST_HAS("/v1/shop/ping", "{", 400, "\"status\": \"invalid\"");
    POST_HAS("/v1/shop/find", "{\"collection\": \"c\", \"collection\": \"d\"}", 400,
             "the field 'collection' is given twice");
    POST("/v1/shop/ping", "[]", 400);
    POST("/v1/shop/ping", "7", 400);
    POST("/v1/shop/ping", "\"text\"", 400);
    POST("/v1/shop/ping", "{} {}", 400);
    POST("/v1/shop/ping", "\xff\xfe", 400);
    POST("/v1/shop/find", "{}", 400);
    POST("/v1/shop/find", "{\"collection\": \"c\", \"find\": \"c\"}", 400);
    POST("/v1/shop/find", "{\"collection\": \"c\", \"$db\": \"other\"}", 400);
    POST("/v1/shop/find", "{\"collection\": \"c\", \"lsid\": {}}", 400);
    POST("/v1/shop/find", "{\"collection\": 7}", 400);
    POST_HAS("/v1/shop/getMore", "{\"collection\": \"c\", \"cursor\": 7}", 404, "not found");
    POST("/v1/shop/truceEnqueue", "{\"queue\": \"mail\", \"nothing\": 1}", 400);
    POST("/v1/shop/truceSequence", "{\"sequence\": \"s\", \"take\": 0}", 400);
    /* the path */
    POST("/v1/shop/truceNothing", "{}", 404);
    POST("/v1/shop/createUser", "{}", 404);
    POST("/v1/shop/shutdown", "{}", 404);
    POST("/", "{}", 405);
    POST("/v1/", "{}", 404);
    POST("/v1/shop", "{}", 404);
    POST("/v1/shop/", "{}", 404);
    POST("/v1//ping", "{}", 404);
    POST("/v1/shop/ping/", "{}", 404);
    POST("/v2/shop/ping", "{}", 404);
    memset(longest + 4, 'a', 63);
    memcpy(longest + 4 + 63, "/ping", 6);
    POST(longest, "{}", 200);
    memcpy(longest + 4 + 63, "a/ping", 7);
    POST_HAS(longest, "{}", 400, "1 to 63 bytes");
    memcpy(longest + 4 + 64, "/watch", 7);
    HTTP_CHECK("GET", longest, NULL, NULL, 400, "1 to 63 bytes");
    POST("/v1/a.b/count", "{\"collection\": \"c\"}", 400);
    POST("/v1/%ff%fe/count", "{\"collection\": \"c\"}", 400);
    POST("/v1/%24external/count", "{\"collection\": \"c\"}", 400);
    /* the method */
    HTTP_CHECK("GET", "/v1/shop/ping", NULL, NULL, 405, "Allow: POST");
    HTTP_CHECK("PUT", "/v1/shop/ping", NULL, "{}", 405, "Allow: POST");
    HTTP_CHECK("DELETE", "/v1/shop/ping", NULL, NULL, 405, "Allow: POST");
    HTTP_CHECK("POST", "/v1/openapi.json", NULL, "{}", 405, "Allow: GET, HEAD");
    HTTP_CHECK("POST", "/v1/shop/watch", NULL, "{}", 405, "Allow: GET");
    HTTP_CHECK("HEAD", "/v1/shop/watch", NULL, NULL, 405, NULL);
    HTTP_CHECK("OPTIONS", "/v1/shop/ping", NULL, NULL, 405, NULL);
    HTTP_CHECK("BREW", "/v1/shop/ping", NULL, NULL, 405, NULL);
    HTTP_CHECK("GET", "/", NULL, NULL, 302, NULL);
    /* the operation */
    POST_HAS("/v1/shop/insert", "{\"collection\": \"c\", \"documents\": [{\"_id\": 1}]}", 200,
             "\"code\": 11000");
    POST_HAS("/v1/shop/truceNothing", "{\"nothing\": \"c\"}", 404, NULL);
    POST_HAS("/v1/shop/truceCommit", "{\"changes\": [{\"insert\": \"c\", \"with\": {\"_id\": 1}}]}",
             409, "\"status\": \"duplicate\"");
    POST_HAS("/v1/shop/truceDone",
             "{\"queue\": \"mail\", \"id\": \"0123456789abcdef01234567\", \"token\": "
             "\"0123456789abcdef01234567\"}",
             409, "\"status\": \"expired\"");
    POST("/v1/shop/truceDone", "{\"job\": {\"$oid\": \"0123456789abcdef01234567\"}}", 400);
    end();
}

TEST(the_description_is_plain_json_with_all_paths)
{
    struct http_reply reply;
    int own;

    begin();
    own = http_dial();
    REQUIRE(http_send_request(own, "GET", "/v1/openapi.json", NULL, NULL));
    reply = http_receive(own, false);
    CHECK(strstr(reply.body, "\"^[$]oid$\"") && !strstr(reply.body, "$document"));
    http_release(&reply);
    close(own);
    HTTP_CHECK("GET", "/v1/openapi.json", NULL, NULL, 200, "\"openapi\": \"3.1.0\"");
    HTTP_CHECK("HEAD", "/v1/openapi.json", NULL, NULL, 200, "Content-Length: ");
    HTTP_CHECK("GET", "/v1/openapi.json", NULL, NULL, 200, "/v1/{database}/truceEnqueue");
    HTTP_CHECK("GET", "/v1/openapi.json", NULL, NULL, 200, "/v1/{database}/watch");
    end();
}

/* ---- the origin of a request ----------------------------------------------------------------- */

TEST(foreign_hosts_and_pages_are_refused)
{
    static const char *const own[] = {"Host: localhost\r\n",
                                      "Host: LocalHost:8080\r\n",
                                      "Host: 127.0.0.1:1\r\n",
                                      "Host: [::1]:80\r\n",
                                      "Host: shop.example:443\r\n",
                                      "Host: localhost:80\r\nOrigin: http://localhost:80\r\n",
                                      "Sec-Fetch-Site: same-origin\r\n",
                                      "Sec-Fetch-Site: none\r\n"};
    static const char *const hosts[] = {"Host: evil.example\r\n",
                                        "Host: localhost.evil.example\r\n",
                                        "Host: \r\n",
                                        "Host: ,\r\n",
                                        "Host: 10.0.0.1\r\n",
                                        "Host: localhost,evil\r\n",
                                        "Host: [::2]\r\n",
                                        "Host: [::1\r\n"};
    static const char *const pages[] = {"Origin: http://evil.example\r\n",
                                        "Origin: null\r\n",
                                        "Origin: localhost\r\n",
                                        "Origin: http://localhost:81\r\n",
                                        "Origin: http://localhost.evil.example\r\n",
                                        "Sec-Fetch-Site: cross-site\r\n",
                                        "Sec-Fetch-Site: same-site\r\n",
                                        "Sec-Fetch-Site: \r\n"};
    /* A proxy may use the other one. */
    static const char *const twice[] = {
        "Host: localhost\r\nHost: evil.example\r\n",
        "Host: localhost:80\r\nOrigin: http://localhost:80\r\nOrigin: http://evil.example\r\n",
        "Sec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site\r\n", "Content-Length: 2\r\n",
        "Authorization: Bearer a\r\nauthorization: Bearer b\r\n"};
    char *longest = bson_malloc0(1000);

    open_store("memory:");
    serve(&(struct server_options){.http_hosts = "other.example,Shop.Example"});
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        HTTP_CHECK("POST", "/v1/shop/ping", own[i], "{}", 200, NULL);
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        HTTP_CHECK("POST", "/v1/shop/ping", hosts[i], "{}", 421, "--http-host");
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
        HTTP_CHECK("POST", "/v1/shop/ping", pages[i], "{}", 403, "origin");
    memset(longest, 'a', 900);
    memcpy(longest, "Host: ", 6);
    memcpy(longest + 900, "\r\n", 2);
    HTTP_CHECK("POST", "/v1/shop/ping", longest, "{}", 421, NULL);
    for (size_t i = 0; i < sizeof twice / sizeof *twice; i++)
        HTTP_CHECK("POST", "/v1/shop/ping", twice[i], "{}", 400, "is given twice");
    HTTP_CHECK("POST", "/v1/shop/ping", "Transfer-Encoding: chunked\r\n", "{}", 400,
               "exclude each other");
    HTTP_CHECK("GET", "/v1/openapi.json", hosts[0], NULL, 421, NULL);
    HTTP_CHECK("GET", "/v1/shop/watch", pages[0], NULL, 403, NULL);
    bson_free(longest);
    end();
}

/* Sends a request whose body may be a second request. The only reply has the code, and the server
 * closes the connection after it. libmicrohttpd 1.0 refuses some of the requests itself, with 400 and
 * HTML. */
static void check_closes(const char *first, const char *headers, int code, const char *contains)
{
    static const char hidden[] = "POST /v1/shop/ping HTTP/1.1\r\nHost: localhost\r\n\r\n";
    struct timeval patience = {.tv_sec = 60};
    char *text =
        bson_strdup_printf("%s HTTP/1.1\r\n%sHost: localhost\r\n\r\n%s", first, headers, hidden);
    int own = http_dial();
    struct http_reply reply;
    bool own_reply;
    char byte;

    REQUIRE(!setsockopt(own, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
    REQUIRE(http_send_text(own, text));
    reply = http_receive(own, false);
    errno = 0;
    own_reply = reply.body[0] != '<';
    if (!CHECK_INT(reply.code, ==, own_reply ? code : 400) ||
        !CHECK(!own_reply || strstr(reply.body, contains) != NULL) ||
        !CHECK(recv(own, &byte, 1, 0) <= 0 && errno != EAGAIN))
        test_fail(__FILE__, __LINE__, "%s with %s", first, headers);
    http_release(&reply);
    close(own);
    bson_free(text);
}

/* The body would be a second request for this server, but not for a proxy. */
TEST(headers_with_two_meanings_close_the_connection)
{
    static const char *const names[] = {"Content-Length : 50\r\n",
                                        "Content-Length\t: 50\r\n",
                                        " Content-Length: 50\r\n",
                                        "Content Length: 50\r\n",
                                        "Transfer-Encoding : chunked\r\n",
                                        "X-\xc3\xa9: 1\r\n",
                                        "X(a): 1\r\n",
                                        ": 1\r\n"};
    static const char *const continued[] = {
        "Content-Length: 5\r\n 0\r\n", "content-length: 0\r\n\t0\r\n",
        "Transfer-Encoding:\r\n chunked\r\n", "Transfer-Encoding:           \r\n\tchunked\r\n",
        "Transfer-Encoding: chun\r\n ked\r\n"};
    static const char *const methods[] = {"POST /v1/shop/ping", "GET /v1/openapi.json",
                                          "DELETE /v1/shop/ping"};

    begin();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t j = 0; j < sizeof methods / sizeof *methods; j++)
            check_closes(methods[j], names[i], 400, "invalid header name");
    for (size_t i = 0; i < sizeof continued / sizeof *continued; i++)
        for (size_t j = 0; j < sizeof methods / sizeof *methods; j++)
            check_closes(methods[j], continued[i], 400, "continues on the next line");
    for (size_t j = 0; j < sizeof methods / sizeof *methods; j++) {
        check_closes(methods[j], "X: a\rContent-Length: 50\r\n", 400, "control character");
        check_closes(methods[j], "Content-Length: 0\r\nContent-Length: 50\r\n", 400,
                     "Content-Length is given twice");
        check_closes(methods[j], "Content-Length: 50\r\nTransfer-Encoding: chunked\r\n", 400,
                     "exclude each other");
    }
    HTTP_CHECK("POST", "/v1/shop/ping", "X_!#$%&'*+-.^`|~9: a\tb\xc3\xa9\r\n", "{}", 200, NULL);
    end();
}

TEST(only_the_transfer_encoding_chunked_is_served)
{
    static const char *const wrong[] = {"gzip, chunked", "identity", "chunked, chunked",
                                        "xchunked",      "",         "chunked,"};
    char header[80];

    begin();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(header, sizeof header, "Transfer-Encoding: %s\r\n", wrong[i]);
        check_closes("POST /v1/shop/ping", header, 501, "unknown Transfer-Encoding");
    }
    end();
}

TEST(without_logins_only_the_loopback_is_served)
{
    static const char *const wrong[] = {"0.0.0.0:0", "[::]:0", "8.8.8.8:0"};
    static const char *const invalid[] = {"x",           "",      ":",     "70000",
                                          "localhost:0", "::1:0", "[::1]", "1:2:3"};
    struct server_options options = {0};
    bson_error_t error;

    open_store("memory:");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        options.http = wrong[i];
        CHECK_INT(server_start(store, &options, &server, &error), ==, TRUCE_INVALID);
        CHECK(strstr(error.message, "--auth") != NULL);
    }
    for (size_t i = 0; i < sizeof invalid / sizeof *invalid; i++) {
        options.http = invalid[i];
        if (!CHECK_INT(server_start(store, &options, &server, &error), ==, TRUCE_INVALID))
            test_fail(__FILE__, __LINE__, "\"%s\" is accepted", invalid[i]);
    }
    options.http = "[::1]:0";
    if (server_start(store, &options, &server, &error)) {
        truce_store_close(store);
        test_skip("this machine has no IPv6: %s", error.message);
        return;
    }
    CHECK(!strncmp(server_http(server), "http://[::1]:", 13));
    end();
}

/* ---- logins ---------------------------------------------------------------------------------- */

#define FIND  "/v1/school/find", "{\"collection\": \"c\"}"
#define WRITE "{\"collection\": \"c\", \"documents\": [{}]}"

static void check_as(const char *header, const char *path, const char *body, int code)
{
    HTTP_CHECK("POST", path, header, body, code, NULL);
}

TEST(each_request_runs_as_the_user_of_its_own_header)
{
    char *root, *ada, *bob, *wrong, *nobody;
    struct http_reply reply;
    int own;

    begin_auth();
    root = basic("root", "root");
    ada = basic("ada", "ada");
    bob = basic("bob", "bob");
    wrong = basic("ada", "wrong");
    nobody = basic("nobody", "");
    check_as(NULL, FIND, 401);
    check_as(wrong, FIND, 401);
    check_as(nobody, FIND, 401);
    check_as("Authorization: Basic\r\n", FIND, 401);
    check_as("Authorization: Basic !!!\r\n", FIND, 401);
    check_as("Authorization: Basic YWRh\r\n", FIND, 401);
    check_as("Authorization: Basic /zr/\r\n", FIND, 401); /* not UTF-8 */
    check_as("Authorization: Basic YWRhOv8=\r\n", FIND, 401);
    check_as("Authorization: Basic Ong=\r\n", FIND, 401);
    check_as("Authorization: Basic YWRhOmFkYQ==\r\n", FIND, 200);  /* ada:ada */
    check_as("Authorization: bASIC  YWRhOmFkYQ==\r\n", FIND, 200); /* the same */
    check_as("Authorization: Basic YWRhOmFkYQB4\r\n", FIND, 401);  /* ada:ada, a zero byte, x */
    check_as("Authorization: Basic YWRhAHg6YWRh\r\n", FIND, 401);  /* ada, a zero byte, x:ada */
    check_as("Authorization: Digest username=\"ada\"\r\n", FIND, 401);
    HTTP_CHECK("POST", "/v1/school/find", NULL, "{}", 401, "WWW-Authenticate: Basic");
    HTTP_CHECK("POST", "/v1/school/find", NULL, "{}", 401, "WWW-Authenticate: Bearer");
    HTTP_CHECK("GET", "/v1/school/watch", NULL, NULL, 401, NULL);
    HTTP_CHECK("GET", "/v1/school/watch?notify=a", NULL, NULL, 401, NULL);
    HTTP_CHECK("GET", "/v1/openapi.json", NULL, NULL, 200, NULL);
    check_as(ada, "/v1/school/insert", WRITE, 200);
    check_as(root, "/v1/school/insert", WRITE, 200);
    check_as(bob, FIND, 200);
    check_as(bob, "/v1/school/insert", WRITE, 403);
    HTTP_CHECK("POST", "/v1/school/insert", bob, WRITE, 403, "\"status\": \"not authorized\"");
    check_as(bob, "/v1/other/find", "{\"collection\": \"c\"}", 403);
    HTTP_CHECK("GET", "/v1/other/watch?notify=c", bob, NULL, 403, NULL);
    check_as(ada, "/v1/other/find", "{\"collection\": \"c\"}", 401); /* ada is a user of school */
    /* one connection, one user after the other */
    own = http_dial();
    for (int i = 0; i < 3; i++) {
        reply = http_post(own, "/v1/school/insert", i == 1 ? bob : ada, WRITE);
        CHECK_INT(reply.code, ==, i == 1 ? 403 : 200);
        http_release(&reply);
    }
    reply = http_post(own, "/v1/other/find", ada, "{\"collection\": \"c\"}");
    CHECK_INT(reply.code, ==, 401);
    http_release(&reply);
    close(own);
    own = http_dial();
    reply = http_post(own, "/v1/school/find", ada, "{\"collection\": \"c\"}");
    CHECK_INT(reply.code, ==, 200);
    http_release(&reply);
    reply = http_post(own, "/v1/school/find", NULL, "{\"collection\": \"c\"}");
    CHECK_INT(reply.code, ==, 401);
    http_release(&reply);
    close(own);
    end();
    bson_free(root);
    bson_free(ada);
    bson_free(bob);
    bson_free(wrong);
    bson_free(nobody);
}

/* Sends the request on the connection until it is answered by the code: another process may have
 * changed a user, which a server sees within a second. */
static bool becomes(int own, const char *header, int code)
{
    int got = 0;

    for (int i = 0; i < 600 && got != code; i++) {
        struct http_reply reply =
            http_post(own, "/v1/school/find", header, "{\"collection\": \"c\"}");

        got = reply.code;
        http_release(&reply);
        if (got != code)
            truce__clock_sleep_ms(10);
    }
    return got == code;
}

TEST(a_changed_password_ends_the_logins_of_open_connections)
{
    struct user_facts facts = {
        .name = "ada", .database = "school", .password = "another", .mechanisms = USER_MECHANISMS};
    char *old, *new;
    bson_error_t error;
    int own;

    begin_auth();
    old = basic("ada", "ada");
    new = basic("ada", "another");
    own = http_dial();
    CHECK(becomes(own, old, 200));
    REQUIRE(!users_change(store, &facts, &error));
    CHECK(becomes(own, old, 401));
    close(own);
    check_as(new, FIND, 200);
    end();
    bson_free(old);
    bson_free(new);
}

static char *token_header(const char *name, const char *database, int64_t expires_ms, char *id)
{
    char token[TOKEN_MAX];
    bson_error_t error;

    if (tokens_add(store, database, name, expires_ms, token, id, &error)) {
        test_fail(__FILE__, __LINE__, "%s", error.message);
        return NULL;
    }
    return bson_strdup_printf("Authorization: Bearer %s\r\n", token);
}

TEST(a_token_acts_as_its_user_until_it_is_revoked_or_expires)
{
    char id[TOKEN_ID_MAX], other_id[TOKEN_ID_MAX];
    char *ada, *other, *brief;
    int64_t soon_ms;
    bson_error_t error;
    int own, second;

    begin_auth();
    ada = token_header("ada", "school", 0, id);
    other = token_header("ada", "school", 0, other_id);
    CHECK(strcmp(ada, other) != 0 && strcmp(id, other_id) != 0);
    check_as(ada, "/v1/school/insert", WRITE, 200);
    check_as(ada, "/v1/other/find", "{\"collection\": \"c\"}", 403);
    check_as("Authorization: Bearer truce_x\r\n", FIND, 401);
    check_as("Authorization: Bearer \r\n", FIND, 401);
    own = http_dial();
    second = http_dial();
    CHECK(becomes(own, ada, 200));
    CHECK(becomes(second, other, 200));
    CHECK_INT(tokens_revoke(store, "school", "ada", "none", &error), ==, TRUCE_NOT_FOUND);
    REQUIRE(!tokens_revoke(store, "school", "ada", id, &error));
    CHECK(becomes(own, ada, 401));
    CHECK(becomes(second, other, 200));
    check_as(ada, FIND, 401);
    check_as(other, FIND, 200);
    soon_ms = truce__clock_wall_ms() + 300;
    brief = token_header("ada", "school", soon_ms, id);
    if (truce__clock_wall_ms() < soon_ms - 100)
        CHECK(becomes(second, brief, 200));
    CHECK(becomes(second, brief, 401));
    check_as(brief, FIND, 401);
    close(own);
    close(second);
    end();
    bson_free(ada);
    bson_free(other);
    bson_free(brief);
}

/* `code`: that of the error; -1: the command succeeds. */
static void check_token_command(const char *request, int code)
{
    bson_t *reply = ask(request);

    CHECK_INT(reply_number(reply, "code"), ==, code);
    bson_destroy(reply);
}

TEST(tokens_are_created_listed_and_revoked_by_commands)
{
    bson_t *made, *listed;
    bson_iter_t at, id;
    char *revoke;

    open_store("memory:");
    serve(&(struct server_options){0});
    check_token_command("{'createUser': 'ada', 'pwd': 'x', 'roles': [], '$db': 'school'}", -1);
    made = ask("{'createToken': 'ada', '$db': 'school'}");
    REQUIRE(bson_iter_init_find(&at, made, "token") && BSON_ITER_HOLDS_UTF8(&at));
    REQUIRE(bson_iter_init_find(&at, made, "id") && BSON_ITER_HOLDS_UTF8(&at));
    listed = ask("{'tokensInfo': 'ada', '$db': 'school'}");
    REQUIRE(bson_iter_init(&id, listed) && bson_iter_find_descendant(&id, "tokens.0.id", &id));
    CHECK_TEXT(bson_iter_utf8(&at, NULL), bson_iter_utf8(&id, NULL));
    revoke = bson_strdup_printf("{'revokeToken': 'ada', 'id': '%s', '$db': 'school'}",
                                bson_iter_utf8(&at, NULL));
    check_token_command(revoke, -1);
    check_token_command(revoke, 2);
    check_token_command("{'revokeToken': 'ada', '$db': 'school'}", 2);
    check_token_command("{'createToken': 'bob', '$db': 'school'}", 11);
    check_token_command("{'createToken': 'ada', 'expiresMS': 1, '$db': 'school'}", 2);
    check_token_command("{'createToken': 7, '$db': 'school'}", 14);
    check_token_command("{'tokensInfo': 'ada', 'all': true, '$db': 'school'}", 40415);
    bson_free(revoke);
    bson_destroy(listed);
    bson_destroy(made);
    end();
}

TEST(a_changed_password_and_a_removed_user_end_the_tokens)
{
    struct user_facts facts = {
        .name = "ada", .database = "school", .password = "another", .mechanisms = USER_MECHANISMS};
    char id[TOKEN_ID_MAX], *ada, *bob;
    bson_error_t error;

    begin_auth();
    ada = token_header("ada", "school", 0, id);
    bob = token_header("bob", "admin", 0, id);
    check_as(ada, FIND, 200);
    check_as(bob, FIND, 200);
    REQUIRE(!users_change(store, &facts, &error));
    REQUIRE(!users_remove(store, "admin", "bob", &error));
    check_as(ada, FIND, 401);
    check_as(bob, FIND, 401);
    add_user("bob", "admin", "read", "school");
    check_as(bob, FIND, 401);
    end();
    bson_free(ada);
    bson_free(bob);
}

TEST(tokens_are_bounded_and_not_shown)
{
    char id[TOKEN_ID_MAX], token[TOKEN_MAX], *root, *expired;
    bson_error_t error;

    begin_auth();
    root = basic("root", "root");
    CHECK_INT(tokens_add(store, "admin", "nobody", 0, token, id, &error), ==,
              truce__status_of_code(CODE_USER_NOT_FOUND));
    for (int i = 0; i < TRUCE_USER_TOKENS_MAX - 1; i++)
        REQUIRE(!tokens_add(store, "admin", "bob", 0, token, id, &error));
    expired = token_header("bob", "admin", 1, id);
    REQUIRE(!tokens_add(store, "admin", "bob", 0, token, id, &error)); /* makes room */
    CHECK_INT(tokens_add(store, "admin", "bob", 0, token, id, &error), ==, TRUCE_LIMIT);
    check_as(expired, FIND, 401);
    end();
    bson_free(root);
    bson_free(expired);
}

/* ---- maxima ---------------------------------------------------------------------------------- */

TEST(bodies_and_headers_have_maxima)
{
    size_t size = 40 * 1024;
    char *headers = bson_malloc0(size + 100), *text;
    struct http_reply reply;
    int own;

    begin();
    snprintf(headers, 100, "X-Long: ");
    memset(headers + 8, 'a', size);
    memcpy(headers + 8 + size, "\r\n", 3);
    own = http_dial();
    (void)http_send_request(own, "POST", "/v1/shop/ping", headers, "{}");
    reply = http_receive(own, false);
    CHECK(reply.code == 431 || reply.code == 413 || reply.code == 0);
    http_release(&reply);
    close(own);
    /* refused by the announced size, before it is sent */
    own = http_dial();
    REQUIRE(http_send_text(own, "POST /v1/shop/ping HTTP/1.1\r\nHost: localhost\r\n"
                                "Content-Length: 50000000000\r\n\r\n"));
    reply = http_receive(own, false);
    CHECK_INT(reply.code, ==, 413);
    http_release(&reply);
    close(own);
    /* chunks announce nothing */
    text = bson_malloc(1 << 20);
    memset(text, ' ', 1 << 20);
    own = http_dial();
    REQUIRE(http_send_text(own, "POST /v1/shop/ping HTTP/1.1\r\nHost: localhost\r\n"
                                "Transfer-Encoding: chunked\r\n\r\n"));
    for (int i = 0; i < 50; i++)
        REQUIRE(http_send_text(own, "100000\r\n") &&
                send_all(own, (const uint8_t *)text, 1 << 20) && http_send_text(own, "\r\n"));
    REQUIRE(http_send_text(own, "0\r\n\r\n"));
    reply = http_receive(own, false);
    CHECK_INT(reply.code, ==, 413);
    http_release(&reply);
    close(own);
    bson_free(text);
    bson_free(headers);
    POST("/v1/shop/ping", "{}", 200);
    end();
}

/* A request with an encoding that is taken literally would use a database of that name. */
TEST(refuses_an_invalid_percent_encoding)
{
    static const char *const wrong[] = {"/v1/%zz/ping",  "/v1/shop/ping%",  "/v1/shop/ping%4",
                                        "/v1/shop/%4gx", "/v1/shop/ping?%", "/v1/shop/watch?a=%x1"};
    static const char *const slashes[] = {"/v1/shop%2fping",  "/v1/shop%2Fping", "/v1%2fshop/ping",
                                          "/v1/shop/ping%2f", "/v1/a%2fb/ping",  "%2fv1/shop/ping"};
    struct http_reply reply;
    int socket;

    begin();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        POST_HAS(wrong[i], "{}", 400, "invalid percent-encoding");
    POST_HAS("/v1/s%68op/%70ing", "{}", 200, "\"ok\": 1");
    POST_HAS("/v1/shop/ping%00", "{}", 400, "%00");
    POST_HAS("/v1/shop%00/ping", "{}", 400, "%00");
    /* A proxy could have a rule for /v1/shop/. */
    for (size_t i = 0; i < sizeof slashes / sizeof *slashes; i++)
        POST_HAS(slashes[i], "{}", 400, "an encoded slash");
    HTTP_CHECK("GET", "/ui%2f", NULL, NULL, 400, "an encoded slash");
    POST_HAS("/v1/shop%252Fping/ping", "{}", 200, "\"ok\": 1");
    HTTP_CHECK("GET", "/v1/shop/watch?collection=%zz", NULL, NULL, 400, "percent-encoding");
    HTTP_CHECK("GET", "/ui/%", NULL, NULL, 400, "percent-encoding");
    /* A refusal closes its connection; a request before it is answered. */
    socket = http_dial();
    reply = http_post(socket, "/v1/shop/ping", NULL, "{}");
    CHECK_INT(reply.code, ==, 200);
    http_release(&reply);
    reply = http_post(socket, "/v1/shop/p%ing", NULL, "{}");
    CHECK_INT(reply.code, ==, 400);
    http_release(&reply);
    close(socket);
    end();
}

TEST(refuses_a_compressed_body)
{
    begin();
    HTTP_CHECK("POST", "/v1/shop/ping", "Content-Encoding: gzip\r\n", "\x1f\x8b", 415,
               "the body has the Content-Encoding \\\"gzip\\\"");
    HTTP_CHECK("POST", "/v1/shop/ping", "Content-Encoding: identity\r\nContent-Encoding: gzip\r\n",
               "\x1f\x8b", 415, "the Content-Encoding \\\"gzip\\\"");
    HTTP_CHECK("POST", "/v1/shop/ping", "Content-Encoding: br\r\nContent-Encoding: identity\r\n",
               "\x1f\x8b", 415, "the Content-Encoding \\\"br\\\"");
    HTTP_CHECK("POST", "/v1/shop/ping", "Content-Encoding: identity, gzip\r\n", "{}", 415, NULL);
    HTTP_CHECK("POST", "/v1/shop/ping", "Content-Encoding: \xff\r\n", "{}", 415, "\\\"?\\\"");
    HTTP_CHECK("POST", "/v1/shop/ping", "Content-Encoding: Identity\r\n", "{}", 200, "\"ok\": 1");
    HTTP_CHECK("POST", "/v1/shop/ping", "Content-Encoding: identity \t\r\n", "{}", 200,
               "\"ok\": 1");
    end();
}

TEST(bodies_may_come_in_chunks_and_requests_in_a_pipeline)
{
    struct http_reply reply;
    int own;

    begin();
    own = http_dial();
    REQUIRE(http_send_text(own, "POST /v1/shop/insert HTTP/1.1\r\nHost: localhost\r\n"
                                "Transfer-Encoding: chunked\r\n\r\n"
                                "10\r\n{\"collection\":\"c\r\n"));
    REQUIRE(http_send_text(own, "1b\r\n\",\"documents\":[{\"_id\":42}]\r\n1\r\n}\r\n0\r\n\r\n"));
    reply = http_receive(own, false);
    CHECK_INT(reply.code, ==, 200);
    CHECK(strstr(reply.body, "\"n\": 1") != NULL);
    http_release(&reply);
    REQUIRE(http_send_request(own, "POST", "/v1/shop/count", NULL, "{\"collection\": \"c\"}"));
    REQUIRE(http_send_request(own, "POST", "/v1/shop/ping", NULL, "{}"));
    reply = http_receive(own, false);
    CHECK(strstr(reply.body, "\"n\": 1") != NULL);
    http_release(&reply);
    reply = http_receive(own, false);
    CHECK_INT(reply.code, ==, 200);
    http_release(&reply);
    close(own);
    end();
}

TEST(connections_beyond_the_maximum_are_refused_and_make_room)
{
    enum { MOST = 8, MORE = 40 };
    int all[MORE], refused = 0, served = 0;
    struct http_reply reply;

    open_store("memory:");
    serve(&(struct server_options){.connections_max = MOST});
    for (int i = 0; i < MORE; i++) {
        all[i] = http_dial();
        (void)http_send_request(all[i], "POST", "/v1/shop/ping", NULL, "{}");
        reply = http_receive(all[i], false);
        served += reply.code == 200;
        refused += reply.code == 503 && strstr(reply.head, "Retry-After") != NULL;
        http_release(&reply);
    }
    CHECK_INT(served, ==, MOST);
    CHECK_INT(refused, ==, MORE - MOST);
    for (int i = 0; i < MORE; i++)
        close(all[i]);
    for (int i = 0; i < 1000 && served > MOST - 1; i++) {
        reply = http_post(-1, "/v1/shop/ping", NULL, "{}");
        served = reply.code == 200 ? 0 : served;
        http_release(&reply);
        truce__clock_sleep_ms(5);
    }
    CHECK_INT(served, ==, 0);
    end();
}

/* Sends a byte of a head now and then. Returns true if the server ends the connection in time. */
static bool drips_in_vain(int own)
{
    for (int i = 0; i < 400; i++) {
        char byte;

        if (send(own, "a", 1, MSG_NOSIGNAL) != 1 || !recv(own, &byte, 1, MSG_DONTWAIT))
            return true;
        truce__clock_sleep_ms(50);
    }
    return false;
}

/* libmicrohttpd itself ends silent connections only. */
TEST(a_client_that_drips_a_head_loses_its_connection)
{
    static const char *const begins[] = {"", "POST /v1/shop/ping HTTP/1.1\r\nX-Slow: "};
    char *root = basic("root", "root");
    struct http_reply reply;
    int own;

    open_store("memory:");
    add_user("root", "admin", "root", "admin");
    serve(&(struct server_options){.auth = true, .message_ms = 500});
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        own = http_dial();
        (void)!send(own, begins[i], strlen(begins[i]), MSG_NOSIGNAL);
        CHECK(drips_in_vain(own));
        close(own);
    }
    /* between two requests there is more time */
    own = http_dial();
    for (int i = 0; i < 3; i++) {
        reply = http_post(own, "/v1/shop/ping", root, "{}");
        CHECK_INT(reply.code, ==, 200);
        http_release(&reply);
        truce__clock_sleep_ms(700);
    }
    close(own);
    bson_free(root);
    end();
}

/* ---- ends ------------------------------------------------------------------------------------ */

TEST(ends_idle_connections_and_waits_when_the_server_stops)
{
    int64_t begun_ns;
    struct http_reply reply;
    char path[600], byte;
    int idle, poll_, watch;

    snprintf(path, sizeof path, "%s/http.truce", test_directory());
    unlink(path);
    open_store(path);
    serve(&(struct server_options){.feed = &(struct server_feed){3600000, 0}});
    POST("/v1/shop/truceEnqueue", "{\"queue\": \"other\", \"payload\": {}}", 200);
    idle = http_dial();
    reply = http_post(idle, "/v1/shop/ping", NULL, "{}");
    CHECK_INT(reply.code, ==, 200);
    http_release(&reply);
    poll_ = http_dial();
    REQUIRE(http_send_request(poll_, "POST", "/v1/shop/truceClaim", NULL,
                              "{\"queue\": \"mail\", \"waitMS\": 60000}"));
    watch = http_dial();
    REQUIRE(http_send_request(watch, "GET", "/v1/shop/watch", NULL, NULL));
    CHECK(recv(watch, &byte, 1, 0) == 1);
    begun_ns = truce__clock_monotonic_ns();
    server_stop(server, 20000);
    CHECK_INT(elapsed_ms(begun_ns), <, 10000);
    truce_store_close(store);
    close(idle);
    close(poll_);
    close(watch);
}

TEST(a_client_that_ends_during_a_long_poll_takes_no_job)
{
    int own;

    begin();
    POST("/v1/shop/truceEnqueue", "{\"queue\": \"other\", \"payload\": {}}", 200);
    own = http_dial();
    REQUIRE(http_send_request(own, "POST", "/v1/shop/truceClaim", NULL,
                              "{\"queue\": \"mail\", \"waitMS\": 60000}"));
    while (!atomic_load(&server->counted[COUNTED_COMMAND]))
        truce__clock_sleep_ms(1);
    truce__clock_sleep_ms(50); /* so that it waits already, usually */
    close(own);
    for (int connected = 1; connected;) {
        pthread_mutex_lock(&server->mutex);
        connected = server->connected;
        pthread_mutex_unlock(&server->mutex);
        truce__clock_sleep_ms(1);
    }
    POST("/v1/shop/truceEnqueue", "{\"queue\": \"mail\", \"payload\": {\"n\": 5}}", 200);
    POST_HAS("/v1/shop/truceClaim", "{\"queue\": \"mail\"}", 200, "\"n\": 5");
    end();
}

/* No check of the connection comes between its end and the job. */
TEST(a_job_that_comes_just_after_its_client_ended_is_requeued)
{
    int own;

    begin();
    POST("/v1/shop/truceEnqueue", "{\"queue\": \"other\", \"payload\": {}}", 200);
    own = http_dial();
    REQUIRE(http_send_request(own, "POST", "/v1/shop/truceClaim", NULL,
                              "{\"queue\": \"mail\", \"waitMS\": 60000}"));
    while (!atomic_load(&server->counted[COUNTED_COMMAND]))
        truce__clock_sleep_ms(1);
    truce__clock_sleep_ms(50); /* so that it waits already, usually */
    close(own);
    POST("/v1/shop/truceEnqueue", "{\"queue\": \"mail\", \"payload\": {\"n\": 5}}", 200);
    POST_HAS("/v1/shop/truceClaim", "{\"queue\": \"mail\", \"waitMS\": 20000}", 200, "\"n\": 5");
    end();
}

/* ---- watching -------------------------------------------------------------------------------- */

/* Receives text until it contains `wanted`; returns all of it. */
static char *read_until(int own, const char *wanted)
{
    struct buffer text = {0};
    char byte;

    truce__buffer_append_byte(&text, 0);
    while (!strstr((char *)text.bytes, wanted) && recv(own, &byte, 1, 0) == 1) {
        text.bytes[text.size - 1] = (uint8_t)byte;
        truce__buffer_append_byte(&text, 0);
    }
    CHECK(strstr((char *)text.bytes, wanted) != NULL);
    return (char *)text.bytes;
}

/* JSON as a parameter of a URL. */
static char *escaped_json(const char *json, size_t size)
{
    struct buffer text = {0};

    for (size_t i = 0; i < size; i++) {
        char byte[4];

        snprintf(byte, sizeof byte, "%%%02x", (unsigned char)json[i]);
        truce__buffer_append_text(&text, byte);
    }
    truce__buffer_append_byte(&text, 0);
    return (char *)text.bytes;
}

TEST(a_watch_sends_events_and_is_resumed_after_the_last_one)
{
    char path[600], *text, *id, *header, *escaped, *path_of;
    int own;

    snprintf(path, sizeof path, "%s/watched.truce", test_directory());
    unlink(path);
    open_store(path);
    serve(&(struct server_options){.feed = &(struct server_feed){3600000, 0}});
    own = http_dial();
    REQUIRE(http_send_request(own, "GET", "/v1/shop/watch?collection=c", NULL, NULL));
    text = read_until(own, ":\n\n");
    CHECK(strstr(text, "HTTP/1.1 200") && strstr(text, "Content-Type: text/event-stream"));
    bson_free(text);
    POST("/v1/shop/insert", "{\"collection\": \"other\", \"documents\": [{\"n\": 1}]}", 200);
    POST("/v1/shop/insert", "{\"collection\": \"c\", \"documents\": [{\"n\": 2}]}", 200);
    text = read_until(own, "\"n\": 2");
    CHECK(!strstr(text, "\"n\": 1"));
    id = strstr(text, "id: ");
    REQUIRE(id != NULL);
    header = bson_strdup_printf("Last-Event-ID: %.*s\r\n", (int)strcspn(id + 4, "\n"), id + 4);
    escaped = escaped_json(id + 4, strcspn(id + 4, "\n"));
    bson_free(text);
    close(own);
    POST("/v1/shop/insert", "{\"collection\": \"c\", \"documents\": [{\"n\": 3}]}", 200);
    own = http_dial();
    REQUIRE(http_send_request(own, "GET", "/v1/shop/watch?collection=c", header, NULL));
    text = read_until(own, "\"n\": 3");
    CHECK(!strstr(text, "\"n\": 2"));
    bson_free(text);
    bson_free(header);
    close(own);
    own = http_dial();
    REQUIRE(http_send_request(own, "GET",
                              "/v1/shop/watch?pipeline=[{%22$match%22:{%22fullDocument.n%22:5}}]",
                              NULL, NULL));
    bson_free(read_until(own, ":\n\n"));
    POST("/v1/shop/insert", "{\"collection\": \"c\", \"documents\": [{\"n\": 4}, {\"n\": 5}]}",
         200);
    text = read_until(own, "\"n\": 5");
    CHECK(!strstr(text, "\"n\": 4"));
    bson_free(text);
    close(own);
    path_of = bson_strdup_printf("/v1/shop/watch?collection=c&resumeAfter=%s", escaped);
    own = http_dial();
    REQUIRE(http_send_request(own, "GET", path_of, NULL, NULL));
    text = read_until(own, "\"n\": 3"); /* the parameter is the event before */
    id = strstr(text, "id: ");
    REQUIRE(id != NULL);
    header = bson_strdup_printf("Last-Event-ID: %.*s\r\n", (int)strcspn(id + 4, "\n"), id + 4);
    bson_free(text);
    close(own);
    own = http_dial();
    REQUIRE(http_send_request(own, "GET", path_of, header, NULL));
    text = read_until(own, "\"n\": 4");
    CHECK(!strstr(text, "\"n\": 3"));
    bson_free(text);
    bson_free(header);
    bson_free(path_of);
    bson_free(escaped);
    close(own);
    HTTP_CHECK("GET", "/v1/shop/watch", "Last-Event-ID: nothing\r\n", NULL, 400, NULL);
    HTTP_CHECK("GET", "/v1/shop/watch", "Last-Event-ID: {\"a\": 1}\r\n", NULL, 400, NULL);
    HTTP_CHECK("GET", "/v1/shop/watch", "Last-Event-ID: [1]\r\n", NULL, 400, NULL);
    HTTP_CHECK("GET", "/v1/shop/watch?pipeline=7", NULL, NULL, 400, NULL);
    HTTP_CHECK("GET", "/v1/shop/watch?pipeline={}", NULL, NULL, 400, NULL);
    HTTP_CHECK("GET", "/v1/shop/watch?pipeline=[{%22$nothing%22:1}]", NULL, NULL, 400, NULL);
    end();
}

TEST(a_watch_without_changes_to_watch_is_an_error)
{
    begin();
    HTTP_CHECK("GET", "/v1/shop/watch", NULL, NULL, 400, NULL);
    end();
}

static void check_notices(const char *path)
{
    char *text;
    int own;

    open_store(path);
    serve(&(struct server_options){0});
    POST("/v1/shop/truceEnqueue", "{\"queue\": \"mail\", \"payload\": {}}", 200);
    own = http_dial();
    REQUIRE(
        http_send_request(own, "GET", "/v1/shop/watch?notify=c&notify=truce_queue", NULL, NULL));
    text = read_until(own, ":\n\n");
    CHECK(strstr(text, "HTTP/1.1 200") && !strstr(text, "notice"));
    bson_free(text);
    for (int i = 0; i < 2; i++) {
        POST("/v1/shop/truceEnqueue", "{\"queue\": \"mail\", \"payload\": {}}", 200);
        bson_free(read_until(own, "event: notice\ndata: {}\n\n"));
        POST("/v1/shop/insert", "{\"collection\": \"c\", \"documents\": [{\"n\": 1}]}", 200);
        bson_free(read_until(own, "event: notice\ndata: {}\n\n"));
    }
    close(own);
    end();
}

TEST(a_watch_notifies_of_writes_to_collections_without_a_feed)
{
    char path[600];

    snprintf(path, sizeof path, "%s/noticed.truce", test_directory());
    unlink(path);
    check_notices(path);
    check_notices("memory:");
}

TEST(refuses_parameters_that_a_watch_or_an_operation_does_not_have)
{
    begin();
    HTTP_CHECK("GET", "/v1/shop/watch?colection=c", NULL, NULL, 400, "unknown parameter colection");
    HTTP_CHECK("GET", "/v1/shop/watch?%ff=c", NULL, NULL, 400, "unknown parameter:");
    HTTP_CHECK("GET", "/v1/shop/watch?notify=c&x", NULL, NULL, 400, "unknown parameter x");
    HTTP_CHECK("GET", "/v1/shop/watch?collection=c&collection=d", NULL, NULL, 400, "twice");
    HTTP_CHECK("GET", "/v1/shop/watch?notify=c%00d", NULL, NULL, 400, "zero byte");
    HTTP_CHECK("GET", "/v1/shop/watch?collection=c%00d", NULL, NULL, 400, "zero byte");
    HTTP_CHECK("POST", "/v1/shop/truceSequence?take=3", NULL, "{\"sequence\": \"n\"}", 400,
               "in the body");
    HTTP_CHECK("POST", "/v1/shop/ping?", NULL, "{}", 200, NULL);
    end();
}

TEST(refuses_notify_without_collections_and_with_too_many)
{
    char many[400] = "/v1/shop/watch?notify=a";

    begin();
    for (int i = 0; i < 16; i++)
        strcat(many, "&notify=a");
    HTTP_CHECK("GET", many, NULL, NULL, 400, "1 to 16");
    HTTP_CHECK("GET", "/v1/shop/watch?notify=", NULL, NULL, 400, "1 to 16");
    HTTP_CHECK("GET", "/v1/shop/watch?notify=a&notify=", NULL, NULL, 400, "1 to 16");
    HTTP_CHECK("GET", "/v1/shop/watch?notify=a&collection=a", NULL, NULL, 400, "excludes");
    HTTP_CHECK("GET", "/v1/shop/watch?notify=%24a", NULL, NULL, 400, NULL);
    end();
}

TEST(a_watch_ends_with_the_token_of_its_user)
{
    char path[600], id[TOKEN_ID_MAX], *header;
    bson_error_t error;
    int own;

    snprintf(path, sizeof path, "%s/ended.truce", test_directory());
    unlink(path);
    open_store(path);
    add_user("root", "admin", "root", "admin");
    serve(&(struct server_options){.auth = true, .feed = &(struct server_feed){3600000, 0}});
    header = token_header("root", "admin", 0, id);
    own = http_dial();
    REQUIRE(http_send_request(own, "GET", "/v1/shop/watch", header, NULL));
    bson_free(read_until(own, ":\n\n"));
    REQUIRE(!tokens_revoke(store, "admin", "root", id, &error));
    bson_free(read_until(own, "\r\n0\r\n\r\n"));
    close(own);
    bson_free(header);
    end();
}

/* ---- TLS ------------------------------------------------------------------------------------- */

/* Runs curl, which prints the code of HTTP; 0: it got none. */
static int curl(const char *ca, const char *certificate)
{
    char *url = bson_strdup_printf("%s/v1/shop/ping", server_http(server));
    const struct command *command =
        certificate ? command_run(CURL, NULL, NULL, "-s", "-o", "/dev/null", "-w", "%{http_code}",
                                  "--cacert", ca, "--cert", certificate, "-d", "{}", url, NULL)
                    : command_run(CURL, NULL, NULL, "-s", "-o", "/dev/null", "-w", "%{http_code}",
                                  "--cacert", ca, "-d", "{}", url, NULL);
    int code = atoi(command->out);

    bson_free(url);
    return code;
}

TEST(serves_tls_and_requires_client_certificates_on_request)
{
    const char *folder = test_directory();
    char *own = bson_strdup_printf("%s/own", folder),
         *pem = bson_strdup_printf("%s/own.pem", folder),
         *ca = bson_strdup_printf("%s/own.ca", folder),
         *other = bson_strdup_printf("%s/other", folder),
         *other_pem = bson_strdup_printf("%s/other.pem", folder);
    int plain;

    if (access(CURL, X_OK)) {
        test_skip("curl is not installed");
        return;
    }
    certificate_make(own);
    certificate_make(other);
    open_store("memory:");
    serve(&(struct server_options){.tls = {.certificate = pem}});
    CHECK(!strncmp(server_http(server), "https://", 8));
    CHECK_INT(curl(ca, NULL), ==, 200);
    plain = http_dial();
    (void)http_send_request(plain, "POST", "/v1/shop/ping", NULL, "{}");
    {
        struct http_reply reply = http_receive(plain, false);

        CHECK_INT(reply.code, ==, 0);
        http_release(&reply);
    }
    close(plain);
    end();
    open_store("memory:");
    serve(&(struct server_options){.tls = {.certificate = pem, .client_ca = ca}});
    CHECK_INT(curl(ca, NULL), ==, 403);
    CHECK_INT(curl(ca, other_pem), !=, 200);
    CHECK_INT(curl(ca, pem), ==, 200);
    end();
    bson_free(own);
    bson_free(pem);
    bson_free(ca);
    bson_free(other);
    bson_free(other_pem);
}

/* ---- hostile bytes --------------------------------------------------------------------------- */

static const char *const samples[] = {
    "POST /v1/shop/insert HTTP/1.1\r\nHost: localhost\r\nContent-Length: 54\r\n\r\n"
    "{\"collection\": \"c\", \"documents\": [{\"_id\": 1, \"n\": 7}]}",
    "GET /v1/shop/watch?collection=c&pipeline=[] HTTP/1.1\r\nHost: localhost\r\n"
    "Last-Event-ID: {\"_data\": \"00\"}\r\n\r\n",
    "POST /v1/shop/ping HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
    "Authorization: Basic cm9vdDpyb290\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "GET /v1/openapi.json HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n",
    "POST /v1/%73hop/truceClaim HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
    "Content-Length: 17\r\n\r\n{\"queue\": \"mail\"}",
};

static void send_changed(struct random *random)
{
    const char *sample = samples[truce__random_below(random, sizeof samples / sizeof *samples)];
    size_t size = strlen(sample);
    uint8_t *bytes = bson_malloc(size + 1);
    int own = http_dial();
    char answer[512];

    memcpy(bytes, sample, size + 1);
    for (uint64_t i = truce__random_below(random, 6); i; i--)
        bytes[truce__random_below(random, size)] = (uint8_t)truce__random_below(random, 256);
    if (truce__random_below(random, 4) == 0)
        size = truce__random_below(random, size);
    (void)send_all(own, bytes, size);
    (void)shutdown(own, SHUT_WR);
    if (truce__random_below(random, 3)) /* otherwise, the client ends at once */
        while (recv(own, answer, sizeof answer, 0) > 0)
            continue;
    close(own);
    bson_free(bytes);
}

TEST(ends_random_requests_and_serves_the_next_one)
{
    struct random random;

    begin();
    truce__random_seed(&random, test_seed());
    for (int i = 0; i < 3000; i++)
        send_changed(&random);
    POST("/v1/shop/ping", "{}", 200);
    end();
}

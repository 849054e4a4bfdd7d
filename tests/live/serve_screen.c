/*
 * The files of the screen over HTTP: their types and policies, caches, foreign pages, logins, and
 * the log of actions. tests/clients/screen drives the screen in a browser.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/auth/users.h"
#include "server/call/shared_state.h"
#include "server/http/screen_files.h"
#include "tests/support/http_client.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

#define ALL_BYTES_MAX (200 * 1000)

static void begin(struct server_options *options)
{
    bson_error_t error = {0};

    REQUIRE(!truce_store_open("memory:", NULL, &store, &error));
    if (options->auth) {
        struct grants *grants = bson_malloc0(sizeof *grants);
        struct user_facts facts = {.name = "bob",
                                   .database = "admin",
                                   .password = "bob",
                                   .mechanisms = USER_MECHANISMS,
                                   .grants = grants};

        grants->count = 1;
        grants->all[0].role = role_of("read", "shop");
        snprintf(grants->all[0].database, sizeof grants->all[0].database, "shop");
        REQUIRE(!users_add(store, &facts, &error));
        bson_free(grants);
    }
    options->http = "0";
    options->login_delay_ms = 1;
    REQUIRE(!server_start(store, options, &server, &error));
}

static void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
}

static struct http_reply get(const char *path, const char *headers)
{
    struct http_reply reply;
    int socket = http_dial();

    CHECK(http_send_request(socket, "GET", path, headers, NULL));
    reply = http_receive(socket, false);
    close(socket);
    return reply;
}

TEST(serves_each_file_with_its_type_and_the_policy)
{
    static const char *const types[][2] = {{".html", "text/html; charset=utf-8"},
                                           {".css", "text/css; charset=utf-8"},
                                           {".js", "text/javascript; charset=utf-8"},
                                           {".svg", "image/svg+xml"}};
    size_t sum = 0, files = 0;

    begin(&(struct server_options){0});
    for (const struct screen_file *at = truce__screen_files; at->name; at++, files++) {
        char path[100], type[100] = "";
        struct http_reply reply;

        snprintf(path, sizeof path, "/ui/%s", at->name);
        for (size_t i = 0; i < sizeof types / sizeof *types; i++)
            if (!strcmp(strrchr(at->name, '.'), types[i][0]))
                snprintf(type, sizeof type, "Content-Type: %s\r\n", types[i][1]);
        reply = get(path, NULL);
        CHECK_INT(reply.code, ==, 200);
        CHECK(*type && strstr(reply.head, type));
        CHECK(strstr(reply.head, "Content-Security-Policy: default-src 'self'; "));
        CHECK(!strstr(reply.head, "unsafe"));
        CHECK(strstr(reply.head, "X-Content-Type-Options: nosniff"));
        CHECK(reply.body_size == at->size && !memcmp(reply.body, at->bytes, at->size));
        sum += reply.body_size;
        http_release(&reply);
    }
    CHECK(files > 5);
    CHECK_INT(sum, <, ALL_BYTES_MAX);
    end();
}

TEST(serves_a_page_without_inline_scripts_or_foreign_addresses)
{
    struct http_reply reply;
    char script[100];

    begin(&(struct server_options){0});
    reply = get("/ui/", NULL);
    snprintf(script, sizeof script, "<script src=\"%s/start.js\"></script>", truce__screen_version);
    CHECK(strstr(reply.body, script));
    CHECK(!strstr(reply.body, "style=") && !strstr(reply.body, "<style") &&
          !strstr(reply.body, "http") && !strstr(reply.body, "=\"/"));
    http_release(&reply);
    end();
}

TEST(does_not_send_again_what_the_browser_has)
{
    char known[200], *tag;
    struct http_reply reply;

    begin(&(struct server_options){0});
    reply = get("/ui/app.js", NULL);
    tag = strstr(reply.head, "ETag: ");
    REQUIRE(tag != NULL);
    snprintf(known, sizeof known, "If-None-Match: %.*s\r\n", (int)strcspn(tag + 6, "\r"), tag + 6);
    http_release(&reply);
    HTTP_CHECK("GET", "/ui/app.js", known, NULL, 304, "ETag: ");
    HTTP_CHECK("GET", "/ui/style.css", known, NULL, 200, NULL);
    HTTP_CHECK("HEAD", "/ui/app.js", NULL, NULL, 200, "Content-Length: ");
    end();
}

TEST(lets_a_browser_keep_the_files_of_its_version_and_compare_the_page)
{
    char path[100];

    begin(&(struct server_options){0});
    CHECK_INT(strlen(truce__screen_version), ==, 12);
    snprintf(path, sizeof path, "/ui/%s/app.js", truce__screen_version);
    HTTP_CHECK("GET", path, NULL, NULL, 200, "Cache-Control: max-age=31536000, immutable\r\n");
    HTTP_CHECK("GET", path, NULL, NULL, 200, "Content-Security-Policy: default-src 'self'; ");
    HTTP_CHECK("GET", "/ui/app.js", NULL, NULL, 200, "Cache-Control: no-cache\r\n");
    HTTP_CHECK("GET", "/ui/", NULL, NULL, 200, "Cache-Control: no-cache\r\n");
    snprintf(path, sizeof path, "/ui/%s/", truce__screen_version);
    HTTP_CHECK("GET", path, NULL, NULL, 404, NULL);
    snprintf(path, sizeof path, "/ui/%sapp.js", truce__screen_version);
    HTTP_CHECK("GET", path, NULL, NULL, 404, NULL);
    HTTP_CHECK("GET", "/ui/000000000000/app.js", NULL, NULL, 404, NULL);
    end();
}

TEST(refuses_other_paths_and_methods)
{
    begin(&(struct server_options){0});
    HTTP_CHECK("GET", "/", NULL, NULL, 302, "Location: ui/");
    HTTP_CHECK("GET", "/ui", NULL, NULL, 302, "Location: ui/");
    HTTP_CHECK("GET", "/ui/nothing.js", NULL, NULL, 404, NULL);
    HTTP_CHECK("GET", "/ui/../ui/app.js", NULL, NULL, 404, NULL);
    HTTP_CHECK("GET", "/ui/app.js/", NULL, NULL, 404, NULL);
    HTTP_CHECK("GET", "/ui/%2e%2e/app.js", NULL, NULL, 404, NULL);
    HTTP_CHECK("POST", "/ui/app.js", NULL, "{}", 405, "Allow: GET, HEAD");
    HTTP_CHECK("DELETE", "/ui/", NULL, NULL, 405, NULL);
    end();
}

TEST(is_opened_by_links_and_not_by_scripts_of_other_pages)
{
#define LINK                                                                                       \
    "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n"
#define FRAME "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n"
    begin(&(struct server_options){0});
    HTTP_CHECK("GET", "/ui/", LINK, NULL, 200, NULL);
    HTTP_CHECK("GET", "/", LINK, NULL, 302, NULL);
    HTTP_CHECK("GET", "/ui/", LINK "Origin: http://evil.example\r\n", NULL, 403, "origin");
    HTTP_CHECK("GET", "/ui/", FRAME, NULL, 403, "origin");
    HTTP_CHECK("GET", "/ui/app.js", "Sec-Fetch-Site: cross-site\r\n", NULL, 403, "origin");
    HTTP_CHECK("GET", "/ui/app.js", "Origin: http://evil.example\r\n", NULL, 403, "origin");
    HTTP_CHECK("GET", "/ui/", "Host: evil.example\r\n", NULL, 421, NULL);
    HTTP_CHECK("GET", "/v1/openapi.json", LINK, NULL, 403, "origin");
    HTTP_CHECK("POST", "/v1/shop/ping", LINK, "{}", 403, "origin");
    HTTP_CHECK("POST", "/v1/shop/truceAccess",
               "Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: cors\r\n", "{}", 200,
               "\"maintain\": true");
    end();
}

TEST(needs_no_login_for_its_files_and_one_for_operations)
{
    struct http_reply reply;
    int socket;

    begin(&(struct server_options){.auth = true});
    HTTP_CHECK("GET", "/ui/", NULL, NULL, 200, NULL);
    HTTP_CHECK("POST", "/v1/shop/truceAccess", NULL, "{}", 401, "WWW-Authenticate: Basic");
    /* the page shows a form of its own: the browser must not show one */
    socket = http_dial();
    reply = http_post(socket, "/v1/shop/truceAccess",
                      "Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: cors\r\n", "{}");
    CHECK_INT(reply.code, ==, 401);
    CHECK(!strstr(reply.head, "WWW-Authenticate"));
    http_release(&reply);
    close(socket);
    HTTP_CHECK("POST", "/v1/shop/truceAccess", "Authorization: Basic Ym9iOmJvYg==\r\n", "{}", 200,
               "\"write\": false, \"monitor\": false, \"maintain\": false");
    HTTP_CHECK("POST", "/v1/other/truceAccess", "Authorization: Basic Ym9iOmJvYg==\r\n", "{}", 403,
               NULL);
    HTTP_CHECK("POST", "/v1/shop/truceQueue", "Authorization: Basic Ym9iOmJvYg==\r\n",
               "{\"queue\": \"mail\", \"action\": \"pause\"}", 403, NULL);
    end();
}

TEST(logs_actions_with_their_user)
{
    char path[] = "/tmp/truce-screen-XXXXXX", text[4000];
    int file = mkstemp(path);
    struct log *log;
    ssize_t size;

    REQUIRE(file >= 0);
    unlink(path);
    log = log_new(&(struct log_options){.file = file, .quiet = true});
    begin(&(struct server_options){.auth = true, .log = log});
    HTTP_CHECK("POST", "/v1/shop/truceQueues", "Authorization: Basic Ym9iOmJvYg==\r\n", "{}", 200,
               NULL);
    HTTP_CHECK("POST", "/v1/shop/truceQueue",
               "X-Truce-Action: 1\r\nAuthorization: Basic Ym9iOmJvYg==\r\n",
               "{\"queue\": \"ma\\nil\", \"action\": \"pause\"}", 403, NULL);
    end();
    size = pread(file, text, sizeof text - 1, 0);
    REQUIRE(size > 0);
    text[size] = '\0';
    CHECK(strstr(text, "action command=truceQueue db=shop queue=\"ma\\nil\" action=pause "
                       "user=admin.bob http=403"));
    CHECK(!strstr(text, "truceQueues"));
    log_free(log);
    close(file);
}

#include "tests/support/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/talk.h"
#include "tests/support/test.h"
#include "truce/json.h"

int http_dial(void)
{
    return dial_port(atoi(strrchr(server_http(server), ':') + 1));
}

bool http_send_text(int socket_, const char *text)
{
    return send_all(socket_, (const uint8_t *)text, strlen(text));
}

bool http_send_request(int socket_, const char *method, const char *path, const char *headers,
                       const char *body)
{
    char *text, length[64] = "";
    bool sent;

    if (body)
        snprintf(length, sizeof length, "Content-Length: %zu\r\n", strlen(body));
    text = bson_strdup_printf("%s %s HTTP/1.1\r\n%s%s%s\r\n%s", method, path,
                              headers && strstr(headers, "Host:") ? "" : "Host: localhost\r\n",
                              headers ? headers : "", length, body ? body : "");
    sent = http_send_text(socket_, text);
    bson_free(text);
    return sent;
}

static bool receive_exactly(int socket_, struct buffer *out, size_t size)
{
    char byte;

    for (; size; size--) {
        if (recv(socket_, &byte, 1, 0) != 1)
            return false;
        truce__buffer_append_byte(out, (uint8_t)byte);
    }
    return true;
}

/* Receives until the bytes end with `ending`. */
static bool receive_until(int socket_, struct buffer *out, const char *ending)
{
    size_t size = strlen(ending), begin = out->size;

    do
        if (!receive_exactly(socket_, out, 1))
            return false;
    while (out->size - begin < size || memcmp(out->bytes + out->size - size, ending, size) != 0);
    return true;
}

/* Receives a chunked body, up to and including the empty chunk. Returns false if the connection
 * ends before. */
static bool receive_chunks(int socket_, struct buffer *body)
{
    size_t size;

    do {
        struct buffer line = {0};
        bool received = receive_until(socket_, &line, "\r\n");

        truce__buffer_append_byte(&line, 0);
        size = strtoul((char *)line.bytes, NULL, 16);
        truce__buffer_release(&line);
        line = (struct buffer){0};
        if (!received || !receive_exactly(socket_, body, size) ||
            !receive_exactly(socket_, &line, 2)) {
            truce__buffer_release(&line);
            return false;
        }
        truce__buffer_release(&line);
    } while (size);
    return true;
}

struct http_reply http_receive(int socket_, bool is_head)
{
    struct buffer head = {0}, body = {0};
    struct http_reply reply = {0};
    const char *at;
    bool whole = receive_until(socket_, &head, "\r\n\r\n") && head.size > 12;

    truce__buffer_append_byte(&head, 0);
    reply.head = (char *)head.bytes;
    if (whole)
        reply.code = atoi(reply.head + 9);
    if (reply.code && !is_head) {
        if ((at = strcasestr(reply.head, "\r\nContent-Length:")) != NULL)
            CHECK(receive_exactly(socket_, &body, strtoul(at + 17, NULL, 10)));
        else if (strcasestr(reply.head, "\r\nTransfer-Encoding: chunked"))
            (void)receive_chunks(socket_, &body);
    }
    reply.body_size = body.size;
    truce__buffer_append_byte(&body, 0);
    reply.body = (char *)body.bytes;
    return reply;
}

void http_release(struct http_reply *reply)
{
    bson_free(reply->head);
    bson_free(reply->body);
}

struct http_reply http_post(int socket_, const char *path, const char *headers, const char *body)
{
    int own = socket_ < 0 ? http_dial() : socket_;
    struct http_reply reply;

    CHECK(http_send_request(own, "POST", path, headers, body));
    reply = http_receive(own, false);
    if (socket_ < 0)
        close(own);
    return reply;
}

/* Checks that the body of an error has the form of a failed command. */
static void check_error(const char *file, int line, const struct http_reply *reply)
{
    static const char *const fields[] = {"errmsg", "code", "status"};
    bson_error_t error;
    bson_t document;

    if (truce_json_read(reply->body, reply->body_size, TRUCE_JSON_TYPED, &document, NULL, &error)) {
        test_fail(file, line, "the error is not JSON: %s", reply->body);
    } else {
        if (reply_number(&document, "ok") != 0)
            test_fail(file, line, "ok is not 0: %s", reply->body);
        for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
            if (!bson_has_field(&document, fields[i]))
                test_fail(file, line, "%s is missing: %s", fields[i], reply->body);
    }
    bson_destroy(&document);
}

void http_check(const char *file, int line, const char *method, const char *path,
                const char *headers, const char *body, int code, const char *contains)
{
    bool is_head = !strcmp(method, "HEAD");
    int own = http_dial();
    struct http_reply reply;

    if (!http_send_request(own, method, path, headers, body))
        test_fail(file, line, "%s: the request cannot be sent", path);
    reply = http_receive(own, is_head);
    if (reply.code != code)
        test_fail(file, line, "%s %s: %d, not %d: %s", method, path, reply.code, code, reply.body);
    if (contains && !strstr(reply.body, contains) && !strstr(reply.head, contains))
        test_fail(file, line, "%s %s: \"%s\" is missing: %s%s", method, path, contains, reply.head,
                  reply.body);
    if (reply.code >= 400 && !is_head)
        check_error(file, line, &reply);
    http_release(&reply);
    close(own);
}

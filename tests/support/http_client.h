#ifndef TRUCE_TESTS_SUPPORT_HTTP_CLIENT_H
#define TRUCE_TESTS_SUPPORT_HTTP_CLIENT_H

/* A small HTTP client for a server in this process. */
#include <bson/bson.h>

#include "base/buffer.h"

/* A response. */
struct http_reply {
    /* The status code; 0 means that the connection ended without a response. */
    int code;
    /* The lines of the headers, and the body, each with a NUL at its end. */
    char *head, *body;
    size_t body_size;
};

/* Returns a socket that is connected to server_http(server). */
int http_dial(void);
/* Sends the string as it is. */
bool http_send_text(int socket, const char *text);
/* Sends a request with the Host of the server. `headers` has more header lines, each with its line
 * end, or is NULL. `body` may be NULL. */
bool http_send_request(int socket, const char *method, const char *path, const char *headers,
                       const char *body);
/* Receives one response. If `is_head` is true, it has no body. The caller releases it. */
struct http_reply http_receive(int socket, bool is_head);
void http_release(struct http_reply *reply);

/* Sends a POST with the body on `socket`, or on a new connection if `socket` is -1. */
struct http_reply http_post(int socket, const char *path, const char *headers, const char *body);
/* Sends the request on a new connection and checks the HTTP status code. The body of an error must
 * be a document with `ok`, `errmsg`, `code`, and `status`. */
void http_check(const char *file, int line, const char *method, const char *path,
                const char *headers, const char *body, int code, const char *contains);

#define HTTP_CHECK(...)                      http_check(__FILE__, __LINE__, __VA_ARGS__)
#define POST(path, body, code)               HTTP_CHECK("POST", path, NULL, body, code, NULL)
#define POST_HAS(path, body, code, contains) HTTP_CHECK("POST", path, NULL, body, code, contains)

#endif

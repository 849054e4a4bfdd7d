#ifndef TRUCE_SERVER_HTTP_HTTP_EVENT_STREAM_H
#define TRUCE_SERVER_HTTP_HTTP_EVENT_STREAM_H

/*
 * Change streams as server-sent events (HTML Living Standard, 9.2).
 *
 *     GET /v1/DATABASE/watch?collection=students&pipeline=[...]
 *
 *     id: {"_data": "..."}
 *     data: {"operationType": "insert", "fullDocument": {...}, ...}
 *
 * `collection` may be absent: all collections of the database. `pipeline` is an array of stages
 * after $changeStream. The id is the resume token: a client that connects again sends it as
 * Last-Event-ID, or as the parameter `resumeAfter`.
 *
 *     GET /v1/DATABASE/watch?notify=truce_queue&notify=students
 *
 *     event: notice
 *     data: {}
 *
 * After any process has written to one of these collections, at most once a second. It needs no
 * feed, and works for the collections of the patterns, which the feed omits. There may be a notice
 * without a change, but each change is followed by one.
 */
#include <microhttpd.h>

#include "server/http/http_login.h"

/* Begins the stream that the request asks for. The stream ends with its connection. */
enum MHD_Result http_event_stream(struct MHD_Connection *c, struct http_connection *own,
                                  const char *database);

/* http.c */
/* Sends the reply of a command with the status of HTTP for it. The class of an error is added if
 * it is missing. */
enum MHD_Result http_send_reply(struct MHD_Connection *c, bson_t *reply);
/* Sends an error of the class "invalid". */
enum MHD_Result http_bad(struct MHD_Connection *c, const char *message);

#endif

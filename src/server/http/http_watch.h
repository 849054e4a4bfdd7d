#ifndef TRUCE_SERVER_HTTP_HTTP_WATCH_H
#define TRUCE_SERVER_HTTP_HTTP_WATCH_H

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
 */
#include <microhttpd.h>

#include "server/call/state.h"

/* Answers the request; the stream ends with its connection. */
enum MHD_Result http_watch(struct MHD_Connection *c, struct connection *connection,
                           const char *database);

/* http.c */
enum MHD_Result http_send_document(struct MHD_Connection *c, unsigned code, const bson_t *document);
/* Returns the status of HTTP for the reply of a command. */
unsigned http_code(const bson_t *reply);
/* Answers with an error of the class "invalid". */
enum MHD_Result http_bad(struct MHD_Connection *c, const char *message);

#endif

#ifndef TRUCE_SERVER_HTTP_HTTP_SCREEN_H
#define TRUCE_SERVER_HTTP_HTTP_SCREEN_H

/*
 * The files of the screen.
 *
 *     GET /               to ui/
 *     GET /ui/            index.html
 *     GET /ui/NAME        a file of src/screen
 *
 * The files contain nothing of the store and need no login. The screen reads the store by the
 * operations, as any other client does.
 *
 * Invariants:
 *  1. A page of the screen runs only scripts of the server, is in no frame of another page, and
 *     sends its requests only to the server (Content-Security-Policy).
 */
#include <stdbool.h>

#include <microhttpd.h>

#define SCREEN_METHODS "GET, HEAD"

/* Returns whether the path is a file of the screen, or leads to it. */
bool http_screen_has(const char *url);
/* Answers GET and HEAD of such a path. */
enum MHD_Result http_screen_send(struct MHD_Connection *c, const char *url);

#endif

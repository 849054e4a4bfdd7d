#ifndef TRUCE_SERVER_HTTP_HTTP_SCREEN_H
#define TRUCE_SERVER_HTTP_HTTP_SCREEN_H

/*
 * The files of the screen.
 *
 *     GET /                    to ui/
 *     GET /ui/                 index.html
 *     GET /ui/VERSION/NAME     a file of src/screen, which a browser may keep
 *     GET /ui/NAME             the same file, which a browser must compare each time
 *
 * The version is a hash of the files, and index.html names it. A browser that has the screen reads
 * only index.html again. A page of another version finds none of its files, and loads itself again
 * (app.js).
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
/* Sends the reply to a GET or HEAD of such a path. */
enum MHD_Result http_screen_send(struct MHD_Connection *c, const char *url);

#endif

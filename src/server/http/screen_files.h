#ifndef TRUCE_SERVER_HTTP_SCREEN_FILES_H
#define TRUCE_SERVER_HTTP_SCREEN_FILES_H

/* The files of src/screen, which the build embeds (cmake/embed.cmake). */
#include <stddef.h>

struct screen_file {
    /* The name, such as "index.html". NULL ends the list. */
    const char *name;
    /* The value of Content-Type. */
    const char *type;
    /* The value of ETag: a hash of the contents, in quotes. */
    const char *tag;
    const unsigned char *bytes;
    size_t size;
};

extern const struct screen_file truce__screen_files[];
/* A hash of all files but index.html, which names them below it: "0123456789ab/app.js". */
extern const char truce__screen_version[];

#endif

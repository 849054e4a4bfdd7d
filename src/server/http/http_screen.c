#include "server/http/http_screen.h"

#include <string.h>

#include "server/http/screen_files.h"

#define FOLDER "/ui/"

static bool screen_is_moved(const char *url)
{
    return !strcmp(url, "/") || !strcmp(url, "/ui");
}

/* Returns the rest of a path after this version of the screen, or NULL. */
static const char *screen_after_version(const char *name)
{
    size_t length = strlen(truce__screen_version);

    return !strncmp(name, truce__screen_version, length) && name[length] == '/' ? name + length + 1
                                                                                : NULL;
}

/* Returns the file of a path, or NULL. Sets `*immutable` if the path names the version, so that its
 * file never changes. */
static const struct screen_file *screen_file_of(const char *url, bool *immutable)
{
    const char *name = url + sizeof FOLDER - 1, *versioned;

    *immutable = false;
    if (strncmp(url, FOLDER, sizeof FOLDER - 1) != 0)
        return NULL;
    versioned = screen_after_version(name);
    if (versioned) {
        *immutable = true;
        name = versioned;
    } else if (!*name) {
        name = "index.html";
    }
    for (const struct screen_file *at = truce__screen_files; at->name; at++)
        if (!strcmp(at->name, name))
            return at;
    return NULL;
}

bool http_screen_has(const char *url)
{
    bool immutable;

    return screen_is_moved(url) || screen_file_of(url, &immutable);
}

/* Returns whether the browser has the current contents (If-None-Match). */
static bool screen_is_known(struct MHD_Connection *c, const char *tag)
{
    const char *known = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "If-None-Match");

    return known && strstr(known, tag) != NULL;
}

/* Appends the security headers (invariant 1). Trusted types: no script of the screen can make
 * elements of a string. */
static void screen_append_policy(struct MHD_Response *response)
{
    static const char *const headers[][2] = {
        {"Content-Security-Policy",
         "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
         "object-src 'none'; require-trusted-types-for 'script'; trusted-types 'none'"},
        {"X-Frame-Options", "DENY"},
        {"X-Content-Type-Options", "nosniff"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
    };

    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        (void)MHD_add_response_header(response, headers[i][0], headers[i][1]);
}

enum MHD_Result http_screen_send(struct MHD_Connection *c, const char *url)
{
    bool immutable;
    const struct screen_file *file = screen_file_of(url, &immutable);
    bool known = file && screen_is_known(c, file->tag);
    unsigned code = !file ? MHD_HTTP_FOUND : known ? MHD_HTTP_NOT_MODIFIED : MHD_HTTP_OK;
    struct MHD_Response *response = MHD_create_response_from_buffer(
        code == MHD_HTTP_OK ? file->size : 0,
        file ? (void *)(uintptr_t)file->bytes : (void *)(uintptr_t) "", MHD_RESPMEM_PERSISTENT);
    enum MHD_Result result;

    if (!response)
        return MHD_NO;
    screen_append_policy(response);
    (void)MHD_add_response_header(response, "Cache-Control",
                                  immutable ? "max-age=31536000, immutable" : "no-cache");
    if (file) {
        (void)MHD_add_response_header(response, "Content-Type", file->type);
        (void)MHD_add_response_header(response, "ETag", file->tag);
    } else { /* The redirect is relative, because a proxy may add a prefix. */
        (void)MHD_add_response_header(response, "Location", "ui/");
    }
    result = MHD_queue_response(c, code, response);
    MHD_destroy_response(response);
    return result;
}

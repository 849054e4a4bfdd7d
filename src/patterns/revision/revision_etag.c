/* The conditions of HTTP as a function: RFC 9110, sections 8.8.3 (entity tags), 13.1.1, 13.1.2, and
 * 13.2.2 (the order), and RFC 6585 (428). Conditions by date are ignored, because a document with a
 * number has a better one. */
#include <stdio.h>

#include "patterns/revision/revision.h"

#include "base/reserved_fields.h"

void truce_revision_etag(int64_t version, char etag[TRUCE_ETAG_SIZE])
{
    if (etag)
        snprintf(etag, TRUCE_ETAG_SIZE, "\"%lld\"", (long long)version);
}

enum tag_match { TAG_UNMATCHED, TAG_MATCHED, TAG_MALFORMED };

/* Returns whether an entity tag may contain the byte (RFC 9110, etagc: %x21, %x23-7E, obs-text). */
static bool is_tag_byte(unsigned char byte)
{
    return byte == 0x21 || (byte >= 0x23 && byte != 0x7f);
}

static const char *http_skip_space(const char *at)
{
    while (*at == ' ' || *at == '\t')
        at++;
    return at;
}

/* Reads one tag at `at`. Returns its end, or NULL. */
static const char *read_tag(const char *at, bool *weak, const char **tag, size_t *length)
{
    const char *end;

    *weak = at[0] == 'W' && at[1] == '/';
    if (*weak)
        at += 2;
    if (*at != '"')
        return NULL;
    for (end = at + 1; is_tag_byte((unsigned char)*end); end++)
        continue;
    if (*end != '"')
        return NULL;
    *tag = at;
    *length = (size_t)(end + 1 - at);
    return end + 1;
}

/* Returns whether the document is among the tags of a field. Empty list elements are allowed. */
static enum tag_match http_names(const char *field, int64_t version, bool strongly)
{
    bool there = version != TRUCE_REVISION_NEW, found = false, any = false;
    char own[TRUCE_ETAG_SIZE];
    const char *at = http_skip_space(field);

    if (*at == '*')
        return *http_skip_space(at + 1) ? TAG_MALFORMED : there ? TAG_MATCHED : TAG_UNMATCHED;
    truce_revision_etag(version, own);
    while (*at) {
        const char *tag;
        size_t length;
        bool weak;

        if (*at == ',') {
            at = http_skip_space(at + 1);
            continue;
        }
        at = read_tag(at, &weak, &tag, &length);
        if (!at)
            return TAG_MALFORMED;
        any = true;
        found |= there && length == strlen(own) && !memcmp(tag, own, length) && !(weak && strongly);
        at = http_skip_space(at);
        if (*at && *at != ',')
            return TAG_MALFORMED;
    }
    return !any ? TAG_MALFORMED : found ? TAG_MATCHED : TAG_UNMATCHED;
}

int truce_revision_http(const truce_http_request *request, int64_t version)
{
    bool reads = !strcmp(request->method, "GET") || !strcmp(request->method, "HEAD");
    bool harmless =
        reads || !strcmp(request->method, "OPTIONS") || !strcmp(request->method, "TRACE");
    enum tag_match match =
        request->if_match ? http_names(request->if_match, version, true) : TAG_MATCHED;
    enum tag_match none =
        request->if_none_match ? http_names(request->if_none_match, version, false) : TAG_UNMATCHED;

    if (match == TAG_MALFORMED || none == TAG_MALFORMED ||
        ROOM_CHECK(request, "truce_http_request", NULL) != TRUCE_OK)
        return 400;
    if (match == TAG_UNMATCHED)
        return 412;
    if (none == TAG_MATCHED)
        return reads ? 304 : 412;
    if (request->demand && !harmless && !request->if_match && !request->if_none_match)
        return 428;
    return 0;
}

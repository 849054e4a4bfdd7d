#ifndef TRUCE_ENGINE_KV_FORMAT_H
#define TRUCE_ENGINE_KV_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What makes an SQLite file a truce store.
 *
 *     format 1    pages without checksums; can be read, and copied into a file of format 2
 *     format 2    pages with checksums (kv_page.h), in new files also maps of what names each page
 *                 (kv_compact.c); without them it is used as well, but does not become smaller
 *     format 3    the same with a feed of changes (documents/feed.h), which every writer has to tell
 *     format 4    the same, with a feed that every writer has to tell of collections and indexes, too, or with collections of
 *                 which it has to tell documents as they were before and after a change
 */
#define KV_APPLICATION_ID   0x74727563 /* "truc" */
#define KV_FORMAT           2          /* of a new file */
#define KV_FORMAT_FEED      3          /* while there is a feed that an older truce began */
#define KV_FORMAT_FULL      4 /* while there is a feed that is full, or a collection keeps images */
#define KV_FORMAT_NEWEST    4 /* the last one that is known; from KV_FORMAT on they are written */
#define KV_FORMAT_OLDEST    1 /* that can be read */
#define KV_FORMAT_SUMS      2 /* from which on pages have checksums */

#define KV_DEFINITION_BYTES 160

/* The definition of a table of rows or of keys (kv_schema.c). */
void truce__kv_definition(bool keys, int64_t table, char *sql, size_t size);

#endif

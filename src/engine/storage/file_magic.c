/* The first bytes of the file, and the kind of a file by these bytes (file_format.h). */
#include <string.h>

#include "engine/storage/checksum_vfs.h"
#include "engine/storage/file_format.h"

/* Offsets in the header of a database: the number of reserved bytes at the end of each page, and
 * the application id. */
#define OFFSET_RESERVED 20
#define OFFSET_ID       68

/* Pages of 4,096 bytes. */
static const uint8_t magic_of_sqlite[KV_MAGIC_BYTES] = "SQLite format 3\0\x10";
/* Pages of 512 bytes. */
static const uint8_t magic_of_truce[KV_MAGIC_BYTES] = "truce store\r\n\x1a\n\0\x02";

void truce__kv_magic_hide(uint8_t *page)
{
    if (!memcmp(page, magic_of_sqlite, KV_MAGIC_BYTES))
        memcpy(page, magic_of_truce, KV_MAGIC_BYTES);
}

bool truce__kv_magic_show(uint8_t *page)
{
    if (memcmp(page, magic_of_truce, KV_MAGIC_BYTES) != 0)
        return false;
    memcpy(page, magic_of_sqlite, KV_MAGIC_BYTES);
    return true;
}

/* Before the first checkpoint only the log has the application id; then the reserved bytes identify
 * a store. */
enum kv_kind truce__kv_kind(const uint8_t *bytes)
{
    static const uint8_t id[4] = {0x74, 0x72, 0x75, 0x63}, none[4] = {0};

    if (!memcmp(bytes, magic_of_truce, KV_MAGIC_BYTES))
        return KV_STORE;
    if (memcmp(bytes, magic_of_sqlite, 16) != 0)
        return KV_UNKNOWN;
    if (!memcmp(bytes + OFFSET_ID, id, sizeof id) ||
        (bytes[OFFSET_RESERVED] == KV_SUM_BYTES && !memcmp(bytes + OFFSET_ID, none, sizeof none)))
        return KV_EARLIER;
    return KV_SQLITE;
}

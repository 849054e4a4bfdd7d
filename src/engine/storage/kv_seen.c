#include "engine/storage/kv_seen.h"

#include <bson/bson.h>
#include <string.h>

void truce__seen_add(struct seen *seen, int64_t table, int64_t row)
{
    int64_t number = row / SEEN_ROWS;
    struct seen_block **block = &seen->blocks[truce__seen_slot(table, number)];

    if (row < 0)
        return;
    if (!*block)
        *block = bson_malloc0(sizeof **block);
    else if ((*block)->table != table || (*block)->number != number)
        memset(*block, 0, sizeof **block);
    (*block)->table = table;
    (*block)->number = number;
    (*block)->bits[row % SEEN_ROWS / 64] |= (uint64_t)1 << row % 64;
}

void truce__seen_forget(struct seen *seen)
{
    for (int i = 0; i < SEEN_BLOCKS; i++)
        bson_free(seen->blocks[i]);
    memset(seen, 0, sizeof *seen);
}

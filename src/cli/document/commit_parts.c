#include "cli/document/commit_parts.h"

#include "patterns/change_list/change_list.h"

bool cli_take_document(const bson_iter_t *iter, bson_t *document)
{
    const uint8_t *bytes;
    uint32_t length;

    if (!BSON_ITER_HOLDS_DOCUMENT(iter))
        return false;
    bson_iter_document(iter, &length, &bytes);
    return bson_init_static(document, bytes, length);
}

int cli_parts_check(const struct cli *cli, const bson_t *changes)
{
    bson_error_t error;

    return truce__written_check(changes, &error) ? cli_usage(cli, "%s", error.message) : CLI_DONE;
}

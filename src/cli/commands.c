/* The table of commands, in the order of the help. A new command is declared and listed here. */
#include "cli/commands.h"

#include <stddef.h>

const struct cli_command *const cli_commands[] = {
    &cli_help_command,
    &cli_set_add,
    &cli_set_remove,
    &cli_set_apply,
    &cli_set_show,
    &cli_set_watermark,
    &cli_set_collect,
    &cli_set_void,
    &cli_set_idle,
    &cli_set_start,
    &cli_set_quarantine,
    &cli_set_worker,
    &cli_demo,
    &cli_find,
    &cli_count,
    &cli_distinct,
    &cli_aggregate,
    &cli_explain,
    &cli_insert,
    &cli_update,
    &cli_delete,
    &cli_import,
    &cli_export,
    &cli_index_create,
    &cli_index_list,
    &cli_index_drop,
    &cli_collections_list,
    &cli_collections_create,
    &cli_collections_drop,
    &cli_collections_rename,
    &cli_manual,
    NULL,
};

#ifndef TRUCE_CLI_COMMANDS_H
#define TRUCE_CLI_COMMANDS_H

/* All commands. Each file of commands ends with the list of its commands, and commands.c joins
 * these lists. */
#include "cli/core/cli.h"

/* Returns all commands, followed by NULL, in the order of the help. The commands of a noun are
 * adjacent. */
const struct cli_command *const *cli_command_table(void);

extern cli_command_list cli_help_commands, cli_set_commands, cli_set_apply_commands,
    cli_set_worker_commands, cli_item_commands, cli_doc_commands, cli_ledger_commands,
    cli_ledger_show_commands, cli_ledger_report_commands, cli_ledger_import_commands,
    cli_ledger_export_commands, cli_transfer_commands, cli_sync_commands, cli_tree_commands,
    cli_sequence_commands, cli_queue_commands, cli_queue_flow_commands, cli_cron_commands,
    cli_work_commands, cli_consume_commands, cli_publish_commands, cli_request_commands,
    cli_demo_commands, cli_find_commands, cli_count_commands, cli_distinct_commands,
    cli_aggregate_commands, cli_command_commands, cli_explain_commands, cli_insert_commands,
    cli_update_commands, cli_delete_commands, cli_modify_commands, cli_wait_commands,
    cli_serve_commands, cli_ui_commands, cli_user_commands, cli_import_commands,
    cli_export_commands, cli_copy_commands, cli_archive_commands, cli_restore_commands,
    cli_compact_commands, cli_salvage_commands, cli_index_commands, cli_collections_commands,
    cli_commit_commands, cli_sweep_commands, cli_check_commands, cli_doctor_commands,
    cli_simulate_commands, cli_verify_commands, cli_manual_commands, cli_complete_commands;

#endif

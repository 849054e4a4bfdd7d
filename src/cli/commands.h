#ifndef TRUCE_CLI_COMMANDS_H
#define TRUCE_CLI_COMMANDS_H

/* Every command: defined in the file that is named after it, listed in commands.c. */
#include "cli/cli.h"

/* --priority, --attempts, --timeout, --keep, --metadata, --tag of a command that adds jobs; the documents are always
 * initialised, and the options borrow them. false: one is wrong, and told. */
bool cli_job_options(const struct cli *cli, truce_job_options *options, bson_t *metadata,
                     bson_t *tags);

extern const struct cli_command cli_help_command;
extern const struct cli_command cli_find;
extern const struct cli_command cli_count;
extern const struct cli_command cli_distinct;
extern const struct cli_command cli_aggregate;
extern const struct cli_command cli_explain;
extern const struct cli_command cli_insert;
extern const struct cli_command cli_update;
extern const struct cli_command cli_delete;
extern const struct cli_command cli_import;
extern const struct cli_command cli_export;
extern const struct cli_command cli_copy, cli_backup;
extern const struct cli_command cli_index_create;
extern const struct cli_command cli_index_list;
extern const struct cli_command cli_index_drop;
extern const struct cli_command cli_collections_list;
extern const struct cli_command cli_collections_create;
extern const struct cli_command cli_collections_drop;
extern const struct cli_command cli_collections_rename;
extern const struct cli_command cli_commit_apply;
extern const struct cli_command cli_commit_list;
extern const struct cli_command cli_commit_show;
extern const struct cli_command cli_commit_resolve;
extern const struct cli_command cli_commit_unique;
extern const struct cli_command cli_salvage;
extern const struct cli_command cli_compact;
extern const struct cli_command cli_sweep;
extern const struct cli_command cli_check;
extern const struct cli_command cli_doctor;
extern const struct cli_command cli_simulate;
extern const struct cli_command cli_verify;
extern const struct cli_command cli_manual;
extern const struct cli_command cli_complete;
extern const struct cli_command cli_set_define;
extern const struct cli_command cli_set_forget;
extern const struct cli_command cli_set_convert;
extern const struct cli_command cli_set_add;
extern const struct cli_command cli_set_remove;
extern const struct cli_command cli_set_show;
extern const struct cli_command cli_set_watermark;
extern const struct cli_command cli_set_collect;
extern const struct cli_command cli_set_void;
extern const struct cli_command cli_set_idle;
extern const struct cli_command cli_set_start;
extern const struct cli_command cli_set_quarantine;
extern const struct cli_command cli_set_apply;
extern const struct cli_command cli_set_worker;
extern const struct cli_command cli_item_update;
extern const struct cli_command cli_item_add;
extern const struct cli_command cli_item_replace;
extern const struct cli_command cli_item_upsert;
extern const struct cli_command cli_item_remove;
extern const struct cli_command cli_item_to_map;
extern const struct cli_command cli_item_to_array;
extern const struct cli_command cli_item_index;
extern const struct cli_command cli_doc_get;
extern const struct cli_command cli_doc_save;
extern const struct cli_command cli_doc_merge;
extern const struct cli_command cli_doc_patch;
extern const struct cli_command cli_doc_log;
extern const struct cli_command cli_doc_conflicts;
extern const struct cli_command cli_doc_remove;
extern const struct cli_command cli_doc_resolve;
extern const struct cli_command cli_ledger_currency;
extern const struct cli_command cli_ledger_open;
extern const struct cli_command cli_ledger_rules;
extern const struct cli_command cli_ledger_post;
extern const struct cli_command cli_ledger_settle;
extern const struct cli_command cli_ledger_void;
extern const struct cli_command cli_ledger_reverse;
extern const struct cli_command cli_ledger_balance;
extern const struct cli_command cli_ledger_statement;
extern const struct cli_command cli_ledger_accounts;
extern const struct cli_command cli_ledger_pending;
extern const struct cli_command cli_ledger_verify;
extern const struct cli_command cli_ledger_report;
extern const struct cli_command cli_ledger_seal;
extern const struct cli_command cli_ledger_import;
extern const struct cli_command cli_ledger_export;
extern const struct cli_command cli_transfer_start;
extern const struct cli_command cli_transfer_resume;
extern const struct cli_command cli_transfer_cancel;
extern const struct cli_command cli_transfer_show;
extern const struct cli_command cli_transfer_list;
extern const struct cli_command cli_sequence_next;
extern const struct cli_command cli_sequence_last;
extern const struct cli_command cli_sequence_raise;
extern const struct cli_command cli_sequence_list;
extern const struct cli_command cli_queue_add;
extern const struct cli_command cli_queue_list;
extern const struct cli_command cli_queue_show;
extern const struct cli_command cli_queue_stats;
extern const struct cli_command cli_queue_cancel;
extern const struct cli_command cli_queue_retry;
extern const struct cli_command cli_queue_discard;
extern const struct cli_command cli_queue_redrive;
extern const struct cli_command cli_queue_pause;
extern const struct cli_command cli_queue_resume;
extern const struct cli_command cli_queue_limit;
extern const struct cli_command cli_cron_set;
extern const struct cli_command cli_cron_list;
extern const struct cli_command cli_cron_next;
extern const struct cli_command cli_cron_pause;
extern const struct cli_command cli_cron_resume;
extern const struct cli_command cli_cron_remove;
extern const struct cli_command cli_work;
extern const struct cli_command cli_request_add;
extern const struct cli_command cli_request_show;
extern const struct cli_command cli_request_list;
extern const struct cli_command cli_request_run;
extern const struct cli_command cli_modify;
extern const struct cli_command cli_wait;
extern const struct cli_command cli_serve;
extern const struct cli_command cli_demo;

#endif

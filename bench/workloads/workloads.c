/* The workloads of the scoreboard, in the order in which they are printed. */
#include "bench/harness.h"

extern const struct bench_workload workload_ping, workload_two_increments, workload_two_in_one,
    workload_point_read, workload_insert, workload_compare_and_set, workload_increment,
    workload_hot_document, workload_set_apply, workload_set_batch, workload_update_item,
    workload_two_documents, workload_two_one_hot, workload_five_documents, workload_read_many,
    workload_find_by_index, workload_group_report, workload_first_inserts, workload_save,
    workload_save_hot, workload_ledger_transfer, workload_ledger_hot, workload_ledger_bulk,
    workload_ledger_balance, workload_transfer, workload_transfer_hot, workload_job_add,
    workload_job_done, workload_job_commit;

const struct bench_workload *const bench_workloads[] = {
    &workload_ping,          &workload_point_read,      &workload_insert,
    &workload_first_inserts, &workload_compare_and_set, &workload_save,
    &workload_save_hot,      &workload_increment,       &workload_hot_document,
    &workload_set_apply,     &workload_set_batch,       &workload_update_item,
    &workload_two_documents, &workload_two_increments,  &workload_two_in_one,
    &workload_two_one_hot,   &workload_five_documents,  &workload_read_many,
    &workload_find_by_index, &workload_group_report,    &workload_ledger_transfer,
    &workload_ledger_hot,    &workload_ledger_bulk,     &workload_ledger_balance,
    &workload_transfer,      &workload_transfer_hot,    &workload_job_add,
    &workload_job_done,      &workload_job_commit,      NULL};

/* The table of all operations, in the order of the help. */
#include <string.h>

#include "operations/operation.h"

#define PREFIX_BYTES 5 /* "truce" */

const struct operation_group truce__operation_groups[] = {
    {"Help", "help", help_operations},
    {"Commits, requests, and sequences", "commit", commit_operations},
    {"Ordered sets", "set", set_operations},
    {"Revisions and items of documents", "document", document_operations},
    {"Queues", "queue", queue_operations},
    {"Queues: the commands of workers", "job", job_operations},
    {"Queues: workflows, batches, and events", "flow", flow_operations},
    {"Queues: cron", "cron", cron_operations},
    {"Ledgers", "ledger", ledger_operations},
    {"Transfers in two phases", "transfer", transfer_operations},
    {"Denormalized copies", "sync", sync_operations},
    {"Trees of versions", "tree", tree_operations},
    {"Message brokers", "broker", broker_operations},
    {"The whole store", "store", maintenance_operations},
    {0}};

const struct operation_row *truce__operation_named(const char *name)
{
    if (strncmp(name, "truce", PREFIX_BYTES) != 0)
        return NULL;
    for (const struct operation_group *group = truce__operation_groups; group->title; group++)
        for (const struct operation_row *const *at = group->rows; *at; at++)
            if (!strcmp((*at)->name, name))
                return *at;
    return NULL;
}

void truce__operation_nearest(struct nearest_word *nearest)
{
    bool has_prefix = !strncmp(nearest->word, "truce", PREFIX_BYTES);

    for (const struct operation_group *group = truce__operation_groups; group->title; group++)
        for (const struct operation_row *const *at = group->rows; *at; at++) {
            const char *candidate = (*at)->name + (has_prefix ? 0 : PREFIX_BYTES);

            truce__nearest_word_offer(nearest, candidate);
            if (nearest->best == candidate)
                nearest->best = (*at)->name;
        }
}

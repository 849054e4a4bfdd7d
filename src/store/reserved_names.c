#include "store/reserved_names.h"

#include <string.h>

static const struct reserved table[] = {
    {COMMITS, SHARD_NEVER, .remembers = true, .outside_commits = true},
    {REQUESTS, SHARD_BY_ID, .remembers = true},
    {DISPLACED, SHARD_BY_ID, .remembers = true, .outside_commits = true},
    {SEQUENCES, SHARD_BY_ID, .remembers = true, .outside_commits = true},
    {SET_DEFINITIONS, SHARD_NEVER, .remembers = true, .outside_commits = true},
    {SET_SOURCES, SHARD_BY_ID, .remembers = true, .outside_commits = true},
    {SET_PROGRESS, SHARD_BY_ID, .remembers = true, .outside_commits = true},
    {SET_QUARANTINE, SHARD_BY_ID, .remembers = true},
    {CONFLICTS, SHARD_BY_ID, .remembers = true},
    {COPY_RECORDS, SHARD_FREE, .outside_commits = true},
    {IMPORTS, SHARD_FREE, .outside_commits = true},
    {SET_JOBS, SHARD_FREE, .outside_commits = true},
    {QUEUE, SHARD_NEVER, .remembers = true},
    {QUEUE_KEYS, SHARD_BY_ID, .remembers = true},
    {QUEUE_SETTINGS, SHARD_BY_ID, .remembers = true, .outside_commits = true},
    {QUEUE_CRONS, SHARD_BY_ID, .remembers = true},
    {QUEUE_LIMITERS, SHARD_BY_ID, .remembers = true},
    {QUEUE_LANES, SHARD_BY_ID, .remembers = true},
    {LEDGERS, SHARD_BY_ID, .remembers = true, .outside_commits = true},
    {LEDGER_SUMS, SHARD_FREE, .outside_commits = true},
    {TRANSFERS, SHARD_BY_ID, .remembers = true, .outside_commits = true},
    {SYNC_RULES, SHARD_BY_ID, .remembers = true, .outside_commits = true},
    {TREES, SHARD_BY_ID, .remembers = true},
    {TREE_EDITS, SHARD_BY_ID, .remembers = true, .outside_commits = true},
    {TREE_HOLDS, SHARD_BY_ID, .remembers = true},
    {BROKER_INBOX, SHARD_BY_ID, .remembers = true},
    {BROKER_REJECTS, SHARD_BY_ID, .remembers = true},
    {BROKER_OUTBOX, SHARD_BY_ID, .remembers = true},
    {BROKER_CONSUMERS, SHARD_BY_ID},
    {PASSED_RECORDS, SHARD_BY_ID, .remembers = true, .outside_commits = true},
    {PROBE, SHARD_FREE, .outside_commits = true},
    {ARCHIVE_RECORDS, SHARD_BY_ID, .remembers = true, .outside_commits = true},
};

/* Returns the name without its database: "truce_queue" for "@school.truce_queue". */
static const char *reserved_name_of(const char *stored_name)
{
    const char *dot = stored_name[0] == '@' ? strchr(stored_name, '.') : NULL;

    return dot ? dot + 1 : stored_name;
}

const struct reserved *truce__reserved(const char *collection)
{
    const char *name = reserved_name_of(collection);

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (!strcmp(name, table[i].name))
            return &table[i];
    }
    return NULL;
}

bool truce__reserved_stored_name(const char *stored_name)
{
    return !strcmp(stored_name, SESSION_RECORDS) || !strcmp(stored_name, CLUSTER_TIME) ||
           !strcmp(stored_name, USER_RECORDS) || !strcmp(stored_name, OWN_RECORDS) ||
           truce__reserved(stored_name);
}

static bool ends_in(const char *collection, const char *suffix)
{
    size_t length = strlen(collection), size = strlen(suffix);

    return length > size && !strcmp(collection + length - size, suffix);
}

enum shard_need truce__reserved_shards(const char *collection)
{
    const struct reserved *reserved = truce__reserved(collection);

    if (reserved)
        return reserved->shards;
    return ends_in(collection, REVISIONS_SUFFIX) || ends_in(collection, GUARDS_SUFFIX) ? SHARD_BY_ID
                                                                                       : SHARD_FREE;
}

bool truce__is_operation(const bson_t *command)
{
    bson_iter_t first;

    return bson_iter_init(&first, command) && bson_iter_next(&first) &&
           !strncmp(bson_iter_key(&first), "truce", 5);
}

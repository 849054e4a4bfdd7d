/* The handle of revisions, and what its options may be. */
#include "patterns/revision/revision.h"

#include "base/assert.h"
#include "base/reserved_fields.h"
#include "query/incoming.h"

static void revision_handle_refuse(truce_revision *revision, const char *why, const char *name)
{
    if (!revision->refused)
        (void)truce__fail(TRUCE_INVALID, &revision->refusal, why, name);
    revision->refused = true;
}

truce_revision *truce_revision_new(truce_store *store, const truce_revision_options *options)
{
    static const truce_revision_options defaults;
    truce_revision *revision = bson_malloc0(sizeof *revision);

    truce_assert(store);
    options = options ? options : &defaults;
    revision->store = store;
    revision->refused =
        ROOM_CHECK(options, "truce_revision_options", &revision->refusal) != TRUCE_OK;
    revision->collection = bson_strdup(options->collection ? options->collection : "?");
    if (!options->collection)
        revision_handle_refuse(revision, "the revisions' option \"%s\" is missing", "collection");
    revision->version = bson_strdup(options->version ? options->version : "version");
    revision->kept = bson_strdup_printf("%s" REVISIONS_SUFFIX, revision->collection);
    revision->strict = options->strict;
    revision->inbox = options->inbox;
    revision->keep = options->keep;
    revision->keep_ms = options->keep_ms;
    revision->tries_max = options->tries_max;
    revision->deadline_ms = options->deadline_ms;
    revision->relaxed = options->relaxed;
    if (!revision->version[0] || revision->version[0] == '$' || revision->version[0] == '_' ||
        strchr(revision->version, '.'))
        revision_handle_refuse(revision, "the field of the number cannot be \"%s\"",
                               revision->version);
    if (options->keep_ms < 0)
        revision_handle_refuse(revision, "versions cannot be kept for a time below 0%s", "");
    if (truce__check_optional(options->rules, "document of rules", &revision->refusal) ||
        truce__merge_rules_new(options->rules, &revision->rules, &revision->refusal))
        revision->refused = true;
    else if (options->rules && !bson_empty(options->rules))
        revision->rules_text = bson_as_canonical_extended_json(options->rules, NULL);
    return revision;
}

void truce_revision_free(truce_revision *revision)
{
    if (!revision)
        return;
    truce__merge_rules_free(revision->rules);
    bson_free(revision->rules_text);
    bson_free(revision->collection);
    bson_free(revision->version);
    bson_free(revision->kept);
    bson_free(revision);
}

const char *truce_revision_outcome_name(truce_revision_outcome outcome)
{
    switch (outcome) {
    case TRUCE_REVISION_SAVED:
        return "saved";
    case TRUCE_REVISION_MERGED:
        return "merged";
    case TRUCE_REVISION_UNCHANGED:
        return "unchanged";
    case TRUCE_REVISION_CONFLICT:
        return "conflict";
    }
    return "unknown";
}

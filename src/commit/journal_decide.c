#include "commit/journal_owner.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/limits.h"
#include "commit/journal_change.h"

/*
 * Steps 3 and 4 of the journal: the look at what is only required, the changes resolved to values, and the
 * decision.
 */

void truce__owner_target(bson_t *array, uint32_t index, const struct entry *entry, bson_t *element)
{
    char key[16];

    bson_append_document_begin(array, key, snprintf(key, sizeof key, "%u", index), element);
    BSON_APPEND_UTF8(element, "ns", entry->collection);
    BSON_APPEND_VALUE(element, "id", &entry->id);
}

/* ---- step 3 --------------------------------------------------------------------------------- */

static truce_status decide_look(struct owner *owner, const struct entry *entry, bson_error_t *error)
{
    bson_t document;
    truce_status status = truce__owner_peek(owner, entry, &document, error);

    if (!status && !truce__intent_absent(&document))
        status = truce__commit_conflict(entry, "is held by another commit", error);
    else if (!status || status == TRUCE_NOT_FOUND)
        status = truce__commit_same(entry, status ? NULL : &document, error);
    bson_destroy(&document);
    return status;
}

/* J6 */
truce_status truce__owner_requires(struct owner *owner, bson_error_t *error)
{
    truce_commit *commit = owner->commit;
    truce_status status = TRUCE_OK;

    for (int found = 0; found <= 1; found++) {
        for (uint32_t i = 0; !status && i < commit->count; i++) {
            const struct entry *entry = commit->entries[i];

            if (!truce__commit_takes(entry) && entry->token.found == (found == 1))
                status = decide_look(owner, entry, error);
        }
    }
    return status;
}

/* J6: all missing requires but one are held. */
void truce__owner_hold_missing(truce_commit *commit)
{
    bool looked_at = false;

    for (uint32_t i = 0; i < commit->count; i++) {
        struct entry *entry = commit->entries[i];

        if (truce__commit_takes(entry) || entry->token.found)
            continue;
        if (looked_at)
            entry->hold = true;
        looked_at = true;
    }
}

/* ---- step 4 --------------------------------------------------------------------------------- */

static void decide_append_document(bson_t *element, const struct entry *entry)
{
    bson_t document = BSON_INITIALIZER;

    bson_copy_to_excluding_noinit(&entry->after, &document, "_rev", NULL);
    BSON_APPEND_DOCUMENT(element, "document", &document);
    bson_destroy(&document);
}

static void append_update(bson_t *element, const struct entry *entry)
{
    struct diff diff;
    bool paths = truce__diff(truce__value_document(&entry->base),
                             truce__value_document(&entry->after), &diff);

    BSON_APPEND_UTF8(element, "op", paths ? "set" : "whole");
    if (paths)
        truce__changes_append(element, entry, &diff);
    else
        decide_append_document(element, entry);
    truce__diff_release(&diff);
}

static void append_post(bson_t *post, uint32_t index, const struct entry *entry)
{
    enum net net = truce__entry_net(entry);
    bson_t element;

    truce__owner_target(post, index, entry, &element);
    if (net == NET_INSERT) {
        BSON_APPEND_UTF8(&element, "op", "insert");
        decide_append_document(&element, entry);
    } else if (net == NET_REMOVE) {
        BSON_APPEND_UTF8(&element, "op", "remove");
    } else if (net == NET_UPDATE) {
        append_update(&element, entry);
    } else {
        BSON_APPEND_UTF8(&element, "op", entry->stub ? "free" : "hold");
    }
    if (entry->token.has_rev)
        BSON_APPEND_OID(&element, "pre", &entry->token.rev);
    if (!entry->stub)
        BSON_APPEND_INT64(&element, "was", truce__journal_hash(&entry->base, entry->reserved));
    bson_append_document_end(post, &element);
}

truce_status truce__owner_post(struct owner *owner, bson_error_t *error)
{
    truce_commit *commit = owner->commit;
    uint32_t index = 0;

    bson_reinit(&owner->post);
    for (uint32_t i = 0; i < commit->count; i++) {
        if (truce__commit_takes(commit->entries[i]))
            append_post(&owner->post, index++, commit->entries[i]);
    }
    if (owner->post.len > TRUCE_DOCUMENT_BYTES_MAX / 2)
        return truce__fail(TRUCE_LIMIT, error,
                           "the changes of one journal commit come to more than %d bytes",
                           TRUCE_DOCUMENT_BYTES_MAX / 2);
    return TRUCE_OK;
}

static truce_status send_decide(struct owner *owner, bool *decided, bson_error_t *error)
{
    truce_write_options options = {.relaxed = owner->commit->options.relaxed};
    bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER, set;
    truce_write_result result = {0};
    truce_status status;

    BSON_APPEND_OID(&filter, "_id", &owner->commit->id);
    BSON_APPEND_UTF8(&filter, "state", "pending");
    bson_append_document_begin(&update, "$set", 4, &set);
    BSON_APPEND_UTF8(&set, "state", "committed");
    BSON_APPEND_ARRAY(&set, "post", &owner->post);
    truce__commit_append_left(owner->commit, &set);
    bson_append_document_end(&update, &set);
    status =
        truce_update(owner->commit->store, COMMITS, &filter, &update, &options, &result, error);
    *decided = !status && result.matched > 0;
    truce_write_result_release(&result);
    bson_destroy(&update);
    bson_destroy(&filter);
    return status;
}

static truce_status undecided(truce_status status, const struct owner *owner, bson_error_t *error)
{
    char hex[25];

    bson_oid_to_string(&owner->commit->id, hex);
    if (status == TRUCE_UNKNOWN)
        return truce__fail(status, error,
                           "the store did not answer the decision of commit %s, and it cannot be "
                           "found out now",
                           hex);
    return truce__fail(status, error, "commit %s was undone by somebody else: its lease was over",
                       hex);
}

/* OK: decided. CONFLICT: somebody aborted it. UNKNOWN: J8. */
truce_status truce__owner_decide(struct owner *owner, bson_error_t *error)
{
    bool unanswered = false;

    for (;;) {
        bool decided;
        truce_status status = send_decide(owner, &decided, error);
        const char *state;
        bson_t document;

        if (decided)
            return TRUCE_OK;
        if (status && !truce__unanswered(status))
            return unanswered ? undecided(TRUCE_UNKNOWN, owner, error) : status;
        unanswered = unanswered || status;
        status = truce__owner_find(owner, &document, error);
        state = status ? NULL : truce__commit_state(&document);
        decided = state && (!strcmp(state, "committed") || !strcmp(state, "done"));
        bool pending = state && !strcmp(state, "pending");
        bool aborted = state && !strcmp(state, "aborted");
        bson_destroy(&document);
        if (decided)
            return TRUCE_OK;
        if (aborted || (status == TRUCE_NOT_FOUND && !unanswered))
            return undecided(TRUCE_CONFLICT, owner, error);
        if (!pending || truce__worker_wait(owner->worker, "the store", NULL))
            return undecided(TRUCE_UNKNOWN, owner, error);
    }
}

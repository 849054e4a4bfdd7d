/*
 * Operations as part of a commit: all or nothing, together with the rest of the commit.
 *
 *     add "CS 101" 1001     read the document of the key through the commit     its guard
 *                           merge the operation into the document               the outcome
 *                           write the lists through the commit                  if it is APPLIED
 *
 * SC1. The outcome is returned at once and stays valid, because the commit guards the document that
 *     it depends on. If another writer changes the document in the meantime, the commit fails with
 *     CONFLICT. Its function then runs again and sees the new document. A STALE or DUPLICATE
 *     operation writes nothing, and the commit still requires that it is so.
 * SC2. Operations of one commit see each other, and other changes of the commit to the document. A
 *     batch is folded as usual. The winner of each name comes first, and the others lose to it.
 * SC3. A missing document is inserted; the unique index on the key ensures that there is only one
 *     (commit.c).
 * SC4. The commit itself puts an operation below the watermark into the quarantine.
 *
 * An operation is not stored as a blind change to be applied when the commit takes the document,
 * because then its outcome would be unknown until the end. The price is a conflict if two commits,
 * or a commit and a single operation, change one document.
 *
 * A consumer that applies operations in a commit records their numbers after it, as always: apply,
 * THEN record.
 */
#include "base/assert.h"
#include "base/field.h"
#include "patterns/set/set.h"

static truce_status commit_check_store(const truce_set *set, const truce_commit *commit,
                                       bson_error_t *error)
{
    if (commit->store == set->store)
        return TRUCE_OK;
    return truce__fail(TRUCE_INVALID, error, "set \"%s\" and the commit belong to different stores",
                       set->id);
}

/* Puts an operation at or below the watermark into the quarantine, unless its number is recorded:
 * then it is a duplicate (SC4). */
static truce_status commit_quarantine_old(truce_set *set, truce_commit *commit,
                                          const struct set_operation *operation,
                                          truce_set_outcome *outcome, bson_error_t *error)
{
    bson_t key = BSON_INITIALIZER, document = BSON_INITIALIZER, found;
    struct number_outcome stored_outcome;
    bson_iter_t iter;
    truce_status status = truce__number_outcome(set, operation->rank.source, operation->rank.seq,
                                                &stored_outcome, error);

    *outcome = stored_outcome.recorded ? TRUCE_SET_DUPLICATE : TRUCE_SET_QUARANTINED;
    if (!status && !stored_outcome.recorded) {
        truce__set_quarantine_id(set, operation, &key);
        truce_assert(bson_iter_init_find(&iter, &key, "_id"));
        status = truce_commit_read(commit, SET_QUARANTINE, bson_iter_value(&iter), &found, error);
        bson_destroy(&found);
        if (status == TRUCE_NOT_FOUND) {
            truce__set_quarantine_document(set, operation, &stored_outcome, &document);
            status = truce_commit_insert(commit, SET_QUARANTINE, &document, error);
        }
    }
    bson_destroy(&document);
    bson_destroy(&key);
    return status;
}

static truce_set_outcome commit_outcome_of(enum set_decision decision)
{
    truce_assert(decision != SET_BELOW);
    return decision == SET_OPEN    ? TRUCE_SET_APPLIED
           : decision == SET_STALE ? TRUCE_SET_STALE
                                   : TRUCE_SET_DUPLICATE;
}

/* Writes {_id, key's fields, content} as an insert, or `content` as a change of the document
 * `id`. */
static truce_status write_lists(const truce_set *set, truce_commit *commit, const bson_t *key,
                                const bson_value_t *id, bool exists, const bson_t *content,
                                bson_error_t *error)
{
    bson_t document = BSON_INITIALIZER;
    truce_status status;

    if (exists) {
        BSON_APPEND_DOCUMENT(&document, "$set", content);
        status = truce_commit_update(commit, set->collection, id, NULL, &document, error);
    } else {
        BSON_APPEND_VALUE(&document, "_id", id);
        bson_copy_to_excluding_noinit(key, &document, "_id", NULL);
        bson_concat(&document, content);
        status = truce__commit_insert_keyed(commit, set->collection, key, &document, error);
    }
    bson_destroy(&document);
    return status;
}

/* Applies an operation to its document in a commit. */
static truce_status apply_in_document(truce_set *set, truce_commit *commit,
                                      const struct set_operation *operation,
                                      enum set_decision *decision, bson_error_t *error)
{
    struct set_scratch scratch = {0};
    struct set_merge merge = {.scratch = &scratch,
                              .winners = &operation,
                              .count = 1,
                              .decisions = decision,
                              .change = BSON_INITIALIZER};
    bson_t key = BSON_INITIALIZER, document;
    bson_value_t id;
    truce_status status;
    bool exists;

    truce__set_key_append(set, operation->given->key, &key);
    status = truce__commit_read_keyed(commit, set->collection, &key, &id, &document, error);
    exists = !status;
    if (!status || status == TRUCE_NOT_FOUND)
        status = truce__set_merge(set, &document, &merge, error);
    if (!status && merge.changed)
        status = write_lists(set, commit, &key, &id, exists, &merge.change, error);
    bson_destroy(&merge.change);
    truce__set_scratch_release(&scratch);
    bson_destroy(&document);
    bson_value_destroy(&id);
    bson_destroy(&key);
    return status;
}

static truce_status write_element(const truce_set *set, truce_commit *commit,
                                  const struct set_operation *operation, const bson_t *key,
                                  const bson_value_t *id, bool exists, bson_error_t *error)
{
    bson_t document = BSON_INITIALIZER;
    truce_status status;

    BSON_APPEND_VALUE(&document, "_id", id);
    truce__set_element_document(set, operation, &document);
    status = exists ? truce_commit_replace(commit, set->elements, id, NULL, &document, error)
                    : truce__commit_insert_keyed(commit, set->elements, key, &document, error);
    bson_destroy(&document);
    return status;
}

/* Reads the guard of the key through the commit, which then depends on it. */
static truce_status read_guard(truce_set *set, truce_commit *commit, const bson_t *key,
                               int64_t *watermark, bson_error_t *error)
{
    bson_t holder = BSON_INITIALIZER, found;
    bson_iter_t iter;
    truce_status status;

    truce__set_guard_id(set, key, "_id", &holder);
    truce_assert(bson_iter_init_find(&iter, &holder, "_id"));
    status = truce_commit_read(commit, set->guards, bson_iter_value(&iter), &found, error);
    *watermark = status ? 0 : truce__field_number(&found, set->watermark);
    bson_destroy(&found);
    bson_destroy(&holder);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Applies an operation in a commit, in the layout by element. If the stored entry does not decide
 * alone, reads the guard of the key as well. */
static truce_status apply_element(truce_set *set, truce_commit *commit,
                                  const struct set_operation *operation,
                                  enum set_decision *decision, bson_error_t *error)
{
    bson_t key = BSON_INITIALIZER, document;
    struct set_state state = {{0, "", false}, 0};
    bson_value_t id;
    truce_status status;
    bool exists;

    truce__set_element_identity(set, operation, &key);
    status = truce__commit_read_keyed(commit, set->elements, &key, &id, &document, error);
    exists = !status;
    if (exists)
        truce__set_element_read(set, &document, &state);
    else if (status == TRUCE_NOT_FOUND)
        status = TRUCE_OK;
    *decision = truce__set_decide(&state, &operation->rank);
    if (!status && (!exists || (*decision != SET_OPEN && !truce__set_element_is_proved(&document))))
        status = read_guard(set, commit, operation->given->key, &state.watermark, error);
    /* A stored entry at or below the watermark that the guard does not confirm counts as absent. */
    if (exists && *decision != SET_OPEN && state.stored.seq <= state.watermark)
        state.stored.seq = 0;
    *decision = truce__set_decide(&state, &operation->rank);
    if (!status && *decision == SET_OPEN)
        status = write_element(set, commit, operation, &key, &id, exists, error);
    bson_destroy(&document);
    bson_value_destroy(&id);
    bson_destroy(&key);
    return status;
}

/* Applies the operation in the commit and returns its decision. Writes nothing unless the decision
 * is SET_OPEN. */
static truce_status commit_check(truce_set *set, truce_commit *commit,
                                 const struct set_operation *operation, enum set_decision *decision,
                                 bson_error_t *error)
{
    *decision = SET_OPEN;
    return set->layout == TRUCE_SET_BY_ELEMENT
               ? apply_element(set, commit, operation, decision, error)
               : apply_in_document(set, commit, operation, decision, error);
}

static truce_status set_commit_apply(truce_set *set, truce_commit *commit,
                                     const struct set_operation *operation,
                                     truce_set_outcome *outcome, bson_error_t *error)
{
    enum set_decision decision;
    truce_status status = commit_check(set, commit, operation, &decision, error);

    if (status)
        return status;
    if (decision == SET_BELOW)
        return commit_quarantine_old(set, commit, operation, outcome, error);
    *outcome = commit_outcome_of(decision);
    return TRUCE_OK;
}

truce_status truce__set_replay_committed(truce_set *set, truce_commit *commit,
                                         const struct set_operation *own,
                                         const struct set_operation *renewed,
                                         truce_set_outcome *outcome, bson_error_t *error)
{
    enum set_decision decision;
    truce_status status = commit_check(set, commit, own, &decision, error);

    if (!status && decision == SET_BELOW) {
        status = commit_check(set, commit, renewed, &decision, error);
        if (!status && decision == SET_BELOW)
            status = truce__fail(
                TRUCE_INVALID, error,
                "number %lld is not above the watermark; use a new number of the source",
                (long long)renewed->rank.seq);
    }
    if (!status)
        *outcome = commit_outcome_of(decision);
    return status;
}

truce_status truce__set_apply_committed(truce_set *set, truce_commit *commit,
                                        struct set_operation *operations, size_t count,
                                        truce_set_result *results, bson_error_t *error)
{
    truce_status status = commit_check_store(set, commit, error);

    truce__set_fold(set, operations, count); /* The winner of each name comes first (SC2). */
    for (size_t i = 0; !status && i < count; i++)
        status = set_commit_apply(set, commit, &operations[i],
                                  &results[operations[i].number].outcome, error);
    /* The commit can no longer take effect, so all operations fail. */
    for (size_t i = 0; status && i < count; i++)
        results[i] = (truce_set_result){status, 0};
    return status;
}

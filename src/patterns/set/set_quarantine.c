/*
 * The quarantine for late operations, and their replay.
 *
 * An operation at or below `_wm` that no stored entry decides has two possible causes. It is a
 * repeat of a collected operation, and then its number was recorded. Or it violates a declaration
 * of its source or of an operator. Such a late operation is not applied, but it is not dropped
 * silently either:
 *
 *     truce_quarantine: {_id: {set, source, seq, verb, key, name}, element, reason, time}
 *
 * A repeat has the same `_id`, and therefore the same document.
 *
 * A replay is a commit that applies the operation and removes it from the quarantine. It first
 * tries the operation's own number: if a newer entry of the name is stored, nothing must be done.
 * Otherwise it uses a new number, which the source gives out now. So if an operation is replayed
 * twice, or while a newer one is on its way, the result is as if it had come in time.
 */
#include "base/clock.h"
#include "base/field.h"
#include "base/null.h"
#include "bson/field_name_escape.h"
#include "patterns/set/set.h"
#include "store/decoded_cursor.h"
#include "store/store.h"

static void quarantine_append_reason(const struct number_outcome *stored_outcome,
                                     const struct set_rank *rank, bson_t *document)
{
    char *reason;

    if (stored_outcome->voided)
        reason = bson_strdup_printf("number %lld was declared void", (long long)rank->seq);
    else if (stored_outcome->known && rank->seq <= stored_outcome->floor)
        reason = bson_strdup_printf("its source declared that no number below %lld would come",
                                    (long long)truce__number_after(stored_outcome->floor));
    else if (!stored_outcome->known)
        reason = bson_strdup("its source was not announced before the watermark passed its number");
    else
        reason = bson_strdup("the watermark passed its number, which no consumer recorded");
    bson_append_utf8(document, "reason", -1, reason, -1);
    bson_free(reason);
}

void truce__set_quarantine_id(const truce_set *set, const struct set_operation *operation,
                              bson_t *document)
{
    bson_t id, key;

    bson_append_document_begin(document, "_id", -1, &id);
    bson_append_utf8(&id, "set", -1, set->id, -1);
    bson_append_utf8(&id, "source", -1, operation->rank.source, -1);
    bson_append_int64(&id, "seq", -1, operation->rank.seq);
    bson_append_utf8(&id, "verb", -1, operation->rank.add ? "add" : "remove", -1);
    bson_append_document_begin(&id, "key", -1, &key);
    truce__set_key_append(set, operation->given->key, &key);
    bson_append_document_end(&id, &key);
    truce__value_append(&id, "name", 4, operation->name);
    bson_append_document_end(document, &id);
}

void truce__set_quarantine_document(const truce_set *set, const struct set_operation *operation,
                                    const struct number_outcome *stored_outcome, bson_t *document)
{
    truce__set_quarantine_id(set, operation, document);
    truce__names_append(document, "element", operation->given->element);
    quarantine_append_reason(stored_outcome, &operation->rank, document);
    bson_append_date_time(document, "time", -1, truce__clock_wall_ms());
}

/* Settles a document that the insert found in the quarantine: it is there permanently, or is the
 * stub of an undecided commit. Returns TRUCE_NOT_FOUND if that commit was undone. */
static truce_status quarantine_is_there(truce_set *set, const bson_t *document, bson_error_t *error)
{
    struct worker worker;
    bson_iter_t iter;
    truce_status status;
    bson_t found;

    if (!bson_iter_init_find(&iter, document, "_id"))
        return TRUCE_NOT_FOUND;
    truce__worker_init(&worker, set->store, 0);
    status = truce__journal_read(&worker, SET_QUARANTINE, bson_iter_value(&iter), &found, error);
    bson_destroy(&found);
    return status;
}

static truce_status set_quarantine_write(truce_set *set, const struct set_operation *operation,
                                         const struct number_outcome *stored_outcome,
                                         bson_error_t *error)
{
    bson_t document = BSON_INITIALIZER;
    truce_status status = TRUCE_UNKNOWN;

    truce__set_quarantine_document(set, operation, stored_outcome, &document);
    for (int attempt = 0; attempt < SET_TRIES_MAX; attempt++) {
        truce__set_pause(attempt);
        status = truce_insert(set->store, SET_QUARANTINE, &document, NULL, error);
        if (status == TRUCE_DUPLICATE)
            status = quarantine_is_there(set, &document, error);
        if (status != TRUCE_NOT_FOUND && !truce__store_repeatable(set->store, status))
            break;
    }
    bson_destroy(&document);
    return status;
}

truce_status truce__set_below(truce_set *set, const struct set_operation *operation,
                              truce_set_outcome *outcome, bson_error_t *error)
{
    struct number_outcome stored_outcome;
    truce_status status = truce__number_outcome(set, operation->rank.source, operation->rank.seq,
                                                &stored_outcome, error);

    if (status)
        return status;
    *outcome = stored_outcome.recorded ? TRUCE_SET_DUPLICATE : TRUCE_SET_QUARANTINED;
    return stored_outcome.recorded ? TRUCE_OK
                                   : set_quarantine_write(set, operation, &stored_outcome, error);
}

truce_status truce_set_quarantine(truce_set *set, truce_cursor **cursor, bson_error_t *error)
{
    RETURN_IF_NULL(cursor, error);

    bson_t filter = BSON_INITIALIZER;
    truce_status status = truce__handle_usable(set->store, set->refused, &set->refusal, error);

    *cursor = NULL;
    if (status)
        return status;
    truce__set_own(set, &filter);
    status = truce_find(set->store, SET_QUARANTINE, &filter, NULL, cursor, error);
    if (!status)
        *cursor = truce__restored_cursor(*cursor);
    bson_destroy(&filter);
    return status;
}

/* ---- replaying ---- */

/* The argument of a replay of a quarantined operation. */
struct replay {
    truce_set *set;
    const bson_value_t *id;
    int64_t seq;
    truce_set_outcome outcome;
    /* The source of the operation. Owned. */
    char *source;
};

/* Reads the operation of a quarantined document; the result borrows from the parts. */
static truce_status quarantine_read_operation(const truce_set *set, const bson_t *kept, bson_t *key,
                                              bson_t *element, truce_set_operation *given,
                                              bson_error_t *error)
{
    bson_t id;

    if (!truce__value_subdocument(kept, "_id", &id) ||
        strcmp(truce__field_text(&id, "set"), set->id) != 0 ||
        !truce__value_subdocument(&id, "key", key) ||
        !truce__value_subdocument(kept, "element", element))
        return truce__fail(TRUCE_INVALID, error,
                           "the document is not a quarantined operation of set \"%s\"", set->id);
    *given = (truce_set_operation){
        .verb = strcmp(truce__field_text(&id, "verb"), "add") ? TRUCE_SET_REMOVE : TRUCE_SET_ADD,
        .key = key,
        .element = element,
        .seq = truce__field_number(&id, "seq"),
        .source = truce__field_text(&id, "source")};
    if (!given->source[0])
        given->source = NULL;
    return TRUCE_OK;
}

/* Replays a quarantined operation with a new number, and removes it from the quarantine (a
 * truce_commit_function). */
static truce_status replay_committed(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct replay *replay = arg;
    bson_t kept, key, element;
    truce_set_operation given;
    struct set_operation own, renewed;
    truce_status status = truce_commit_read(commit, SET_QUARANTINE, replay->id, &kept, error);

    truce__names_restore_own(&kept);
    if (!status)
        status = quarantine_read_operation(replay->set, &kept, &key, &element, &given, error);
    if (!status)
        status = truce__set_operation_check(replay->set, &given, &own, error);
    if (!status) {
        truce_set_operation again = given;

        again.seq = replay->seq;
        bson_free(replay->source);
        replay->source = bson_strdup(given.source ? given.source : "");
        status = truce__set_operation_check(replay->set, &again, &renewed, error);
        if (!status)
            status = truce__set_replay_committed(replay->set, commit, &own, &renewed,
                                                 &replay->outcome, error);
    }
    if (!status)
        status = truce_commit_remove(commit, SET_QUARANTINE, replay->id, NULL, error);
    bson_destroy(&kept);
    return status;
}

/* Records the new number as used, whatever the outcome. */
static truce_status record_replay(const struct replay *replay, const char *consumer,
                                  bson_error_t *error)
{
    const truce_set_operation used = {.seq = replay->seq, .source = replay->source};

    return truce_set_record(replay->set, consumer, &used, 1, error);
}

truce_status truce_set_replay(truce_set *set, const bson_t *quarantined, int64_t seq,
                              const char *consumer, truce_set_outcome *outcome, bson_error_t *error)
{
    RETURN_IF_NULL(quarantined, error);

    DEADLINE_SCOPE(set->deadline_ms);
    struct replay replay = {.set = set, .seq = seq};
    bson_iter_t iter;
    truce_status status = truce__document_check(quarantined, "quarantined document", error);

    if (!status)
        status = truce__set_ready(set, error);
    if (!status && !bson_iter_init_find(&iter, quarantined, "_id"))
        status = truce__fail(TRUCE_INVALID, error, "the quarantined document has no _id");
    if (status)
        return status;
    replay.id = bson_iter_value(&iter);
    status = truce_transact(set->store, replay_committed, &replay, NULL, error);
    if (!status && consumer)
        status = record_replay(&replay, consumer, error);
    if (!status && outcome)
        *outcome = replay.outcome;
    bson_free(replay.source);
    return status;
}

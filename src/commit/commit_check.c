#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/limits.h"
#include "bson/array.h"
#include "bson/value.h"
#include "commit/commit_maintenance.h"
#include "commit/metadata_cache.h"
#include "commit/unique_keys.h"

/*
 * The check of commits finds faults that no sweep may repair silently, and traces of writers that
 * broke the rules. Rules, each with its repair:
 *
 *   orphan-intent      a document is held by a commit that is gone or aborted      strip
 *   foreign-intent     a field `_intent` that truce did not write                  by hand
 *   expired-lease      a commit is pending, and its lease was watched to its end   abort, strip
 *   half-applied       a commit was decided but not completed                      release, done
 *   unreleased         a commit is done but a document still carries its intent    release
 *   overwritten        a commit may have overwritten a plain write                 by hand
 *   forked             two commits changed the same version of one document: a     by hand
 *                      plain writer restored an old copy
 *   missing-document   a decided commit owes a change to a document that is gone   by hand
 *   blocked            a decided commit reserved a unique value, and a plain       by hand
 *                      writer took it anyway, so the release is refused; or a
 *                      new validator refuses the release to this user
 *   displaced          a plain write changed a field of a decided commit, or        by hand
 *                      blocked its path; the value that was discarded is in
 *                      `truce_displaced`
 *   stale-keys         `_keys` differs from the document's unique values, because  write it
 *                      a plain write changed one of the two
 *   corrupted-entry    the entry of a decided commit for a document was changed    by hand
 *   unchecked          the lease of a commit could not be watched to its end       none
 *
 * `forked` follows the chain of `pre`: every journal commit stores the revision that it found.
 */

/* The maximum wait of repairs in ms: of all in the first pass, and of each watched commit. */
#define REPAIR_MS 1000

/* The state of a check of the commits. */
struct inspector {
    struct check *check;
    /* The worker that completes or undoes commits if the check repairs. */
    struct worker worker;
    /* The _ids of commits that have not ended and whose owners are probably dead. The check waits
     * for their leases. Owned; the size doubles when it is full. */
    bson_oid_t *watched;
    uint32_t watched_count;
    /* All batches were checked; the check now waits for the leases of `watched`. */
    bool watching;
    /* A finding `blocked` was reported for the current commit. */
    bool blocked;
    /* The _ids of decided commits of the current batch whose documents must be read one by one. */
    bson_oid_t closer[MAINTENANCE_BATCH];
    uint32_t closer_count;
};

/* ---- documents ------------------------------------------------------------------------------ */

/* Reports a document whose intent truce did not write, or whose commit is done, undone, or gone.
 * Repairs the latter cases by resolving the intent. */
static truce_status held_document(struct check *check, const char *collection,
                                  const bson_t *document, void *arg, bson_error_t *error)
{
    struct inspector *by = arg;
    bson_value_t target = truce__document_id(document);
    struct finding finding = {.collection = collection, .id = &target};
    bson_oid_t id;
    bson_t commit;
    const char *state;
    bool repaired;
    truce_status status;

    if (!truce__intent_commit(document, &id)) {
        finding.rule = "foreign-intent";
        finding.text = "the field \"_intent\" belongs to truce, but truce did not write this one";
        finding.repair = "none: rename the field by hand";
        truce__check_report(by->check, &finding, false);
        return TRUCE_OK;
    }
    status = truce__commit_find(by->check->store, &id, &commit, error);
    state = status ? "missing" : truce__commit_state(&commit);
    finding.commit = &id;
    finding.rule = NULL;
    if (status && status != TRUCE_NOT_FOUND) {
        bson_destroy(&commit);
        return status;
    }
    if (state && !strcmp(state, "done")) {
        finding.rule = "unreleased";
        finding.text = "its commit is done, but the document still carries the intent";
        finding.repair = "release the document";
    } else if (!state || (strcmp(state, "pending") != 0 && strcmp(state, "committed") != 0)) {
        finding.rule = "orphan-intent";
        finding.text = "the commit that holds the document was undone or is gone";
        finding.repair = "remove the intent from the document";
    }
    status = TRUCE_OK;
    repaired = false;
    if (finding.rule && truce__check_repairs(by->check, &finding)) {
        status = truce__intent_complete_other(&by->worker, collection, document, error);
        repaired = !status;
        /* The commit document is corrupted, which is a finding of its own. */
        status = status == TRUCE_CORRUPT ? TRUCE_OK : status;
    }
    if (finding.rule)
        truce__check_report(by->check, &finding, repaired);
    bson_destroy(&commit);
    return status;
}

/* Suspects documents whose commit is neither pending nor decided. */
static truce_status suspect_held(struct check *check, bson_t *const *documents, uint32_t count,
                                 bool *suspect, void *arg, bson_error_t *error)
{
    struct maintenance_links links = {.count = 0};
    bson_t *open =
        BCON_NEW("state", "{", "$in", "[", BCON_UTF8("pending"), BCON_UTF8("committed"), "]", "}");
    bson_value_t value = {.value_type = BSON_TYPE_OID};
    truce_status status;

    (void)arg;
    for (uint32_t i = 0; i < count; i++) {
        if (truce__intent_commit(documents[i], &value.value.v_oid))
            truce__maintenance_link(&links, &value, i);
        else
            suspect[i] = true;
    }
    status = truce__maintenance_follow(check, COMMITS, open, &links, suspect, error);
    bson_destroy(open);
    return status;
}

/* Checks a document that no commit holds. A document that a plain writer inserted has no `_keys`,
 * and is safe. */
static truce_status keyed_document(struct check *check, const char *collection,
                                   const bson_t *document, void *arg, bson_error_t *error)
{
    struct inspector *by = arg;
    bson_value_t target = truce__document_id(document);
    struct finding finding = {
        .rule = "stale-keys",
        .collection = collection,
        .id = &target,
        .text = "the field \"_keys\" differs from the unique values of the document: a plain write "
                "changed one of the two",
        .repair = "write \"_keys\" from the document's values"};
    bool changed = false, repairs;
    truce_status status;
    bson_t keys;

    if (!truce__intent_absent(document) ||
        !truce__value_field(truce__value_document(document), "_keys", 5).type)
        return TRUCE_OK;
    status = truce__shadow_make(by->check->store, collection, truce__value_document(document),
                                &keys, error);
    if (!status && !truce__shadow_right(document, &keys)) {
        repairs = truce__check_repairs(by->check, &finding);
        if (repairs)
            status = truce__shadow_repair(by->check->store, collection, &target, &changed, error);
        truce__check_report(by->check, &finding, repairs && !status);
    }
    bson_destroy(&keys);
    return status;
}

/* Checks the documents of a collection that have an intent and, if it has declared keys, the
 * `_keys` of all documents. */
static truce_status commit_check_collection(void *arg, const char *collection, bson_error_t *error)
{
    struct inspector *by = arg;
    bson_t *filter;
    int64_t count = 0;
    bool keyed = false;
    truce_status status;

    if (!strcmp(collection, COMMITS))
        return TRUCE_OK;
    filter = BCON_NEW("_intent", "{", "$exists", BCON_BOOL(true), "}");
    status = truce__check_suspects(by->check, collection, filter, suspect_held, held_document, by,
                                   error);
    if (!status)
        status = truce__metadata_keyed(by->check->store, collection, &keyed, error);
    if (!status && keyed)
        status = truce__check_each(by->check, collection, NULL, keyed_document, by, error);
    if (!status)
        status = truce_count(by->check->store, collection, NULL, NULL, &count, error);
    by->check->report->documents += count;
    by->check->report->collections++;
    bson_destroy(filter);
    return status;
}

/* ---- commits -------------------------------------------------------------------------------- */

static truce_status check_repair(struct inspector *by, const bson_t *commit, const bson_oid_t *id,
                                 bool pending, bson_error_t *error)
{
    bool changed;
    truce_status status;

    if (!pending)
        return truce__journal_finish(&by->worker, commit, error);
    status = truce__journal_abort(&by->worker, id, commit, "repaired: its lease had expired",
                                  &changed, error);
    return status || !changed ? status : truce__journal_clean(&by->worker, commit, error);
}

typedef truce_status post_function(struct inspector *by, const bson_t *post, const bson_oid_t *id,
                                   bson_error_t *error);

/* Calls the function for each element of `post` until one fails. */
static truce_status each_post(struct inspector *by, const bson_t *commit, const bson_oid_t *id,
                              post_function *function, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_iter_t iter, element;

    if (!bson_iter_init_find(&iter, commit, "post") || !bson_iter_recurse(&iter, &element))
        return TRUCE_OK;
    while (!status && bson_iter_next(&element)) {
        const uint8_t *bytes;
        uint32_t length;
        bson_t post;

        if (!BSON_ITER_HOLDS_DOCUMENT(&element))
            continue;
        bson_iter_document(&element, &length, &bytes);
        if (bson_init_static(&post, bytes, length))
            status = function(by, &post, id, error);
    }
    return status;
}

/* Reports an entry that truce did not write. It must not be applied. */
static bool report_corrupted(struct inspector *by, const bson_t *post, const bson_oid_t *id)
{
    bson_error_t why;
    bson_value_t target = {.value_type = BSON_TYPE_OID, .value.v_oid = *id};
    struct finding finding = {.rule = "corrupted-entry",
                              .collection = COMMITS,
                              .commit = id,
                              .id = &target,
                              .text = why.message,
                              .repair = "none: correct the entry by hand"};

    if (!truce__journal_post_check(id, post, &why))
        return false;
    by->blocked = true;
    truce__check_report(by->check, &finding, false);
    return true;
}

/* Checks for a document that a decided commit still has to change, but that is gone. */
static truce_status check_missing(struct inspector *by, const bson_t *post, const bson_oid_t *id,
                                  bson_error_t *error)
{
    struct finding finding = {
        .rule = "missing-document",
        .commit = id,
        .text = "a decided commit changes the document, which is missing: a plain write removed it",
        .repair = "none: there is no document to change"};
    const char *op = truce__field_text(post, "op");
    bson_t filter, document;
    bson_value_t target;
    truce_status status;

    if (report_corrupted(by, post, id))
        return TRUCE_OK;
    if ((strcmp(op, "set") != 0 && strcmp(op, "whole") != 0) ||
        !truce__journal_target(post, &finding.collection, &target))
        return TRUCE_OK;
    finding.id = &target;
    truce__filter_id(&target, &filter);
    status = truce_find_one(by->check->store, finding.collection, &filter, NULL, &document, error);
    bson_destroy(&document);
    bson_destroy(&filter);
    if (status == TRUCE_NOT_FOUND)
        truce__check_report(by->check, &finding, false);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Checks whether a unique index would refuse the release of a held document. */
static truce_status commit_check_blocked(struct inspector *by, const bson_t *post,
                                         const bson_oid_t *id, bson_error_t *error)
{
    struct truce_commit commit = {.store = by->check->store, .worker = by->worker};
    struct finding finding = {
        .rule = "blocked",
        .commit = id,
        .repair = "none: give the other document another value; a sweep then completes the commit"};
    bson_t filter, document, held = BSON_INITIALIZER;
    bson_error_t taken;
    struct entry *entry;
    bson_value_t target;
    truce_status status;

    if (truce__journal_post_check(id, post, NULL) ||
        !truce__journal_target(post, &finding.collection, &target))
        return TRUCE_OK;
    finding.id = &target;
    finding.text = taken.message;
    entry = truce__entry_new(finding.collection, &target);
    truce__filter_id(&target, &filter);
    BSON_APPEND_OID(&filter, "_intent.c", id);
    status = truce_find_one(by->check->store, finding.collection, &filter, NULL, &document, error);
    if (!status) {
        bson_destroy(&entry->after);
        truce__journal_after(id, post, &document, &entry->after);
        entry->after_found = !bson_empty(&entry->after);
    }
    if (!status && truce__unique_holder(&commit, entry, &held, &taken) == TRUCE_DUPLICATE) {
        by->blocked = true;
        truce__check_report(by->check, &finding, false);
    }
    bson_destroy(&held);
    bson_destroy(&document);
    bson_destroy(&filter);
    truce__entry_free(entry);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Reports a repair that was refused for another reason than a unique value. */
static void report_refused(struct inspector *by, const bson_oid_t *id, const bson_value_t *target,
                           const bson_error_t *why)
{
    struct finding finding = {
        .rule = "blocked",
        .collection = COMMITS,
        .commit = id,
        .id = target,
        .text = why->message,
        .repair = "none: sweep as a user who may bypass validators, or change the validator"};

    truce__check_report(by->check, &finding, false);
}

/* Returns whether any process may complete the commit: its lease has expired, or it is decided and
 * has no lease, so truce did not write it. */
static bool check_lease_over(struct inspector *by, const bson_oid_t *id, const bson_t *commit)
{
    return (!strcmp(truce__commit_state(commit), "committed") &&
            !bson_has_field(commit, "lease")) ||
           truce__journal_lease_over(&by->worker, id, commit);
}

static void check_watch(struct inspector *by, const bson_oid_t *id)
{
    if (!(by->watched_count & (by->watched_count - 1)))
        by->watched = bson_realloc(by->watched, (2 * by->watched_count + 1) * sizeof *by->watched);
    bson_oid_copy(id, &by->watched[by->watched_count++]);
}

static bool inspector_must_read(const struct inspector *by, const bson_oid_t *id)
{
    if (by->watching)
        return true;
    for (uint32_t i = 0; i < by->closer_count; i++)
        if (bson_oid_equal(&by->closer[i], id))
            return true;
    return false;
}

/* Reports a commit that no process completes, and completes or undoes it if the check repairs. A
 * commit whose lease may be active is watched instead. */
static truce_status commit_check_state(struct inspector *by, const bson_t *commit,
                                       const bson_oid_t *id, bson_error_t *error)
{
    const char *state = truce__commit_state(commit);
    bool pending = state && !strcmp(state, "pending");
    bson_value_t target = truce__document_id(commit);
    struct finding finding = {.collection = COMMITS, .commit = id, .id = &target};
    bson_error_t why = {0};
    truce_status status = TRUCE_OK;
    bool closer, repairs;

    if (!state || (!pending && strcmp(state, "committed") != 0))
        return TRUCE_OK;
    if (!check_lease_over(by, id, commit)) {
        if (truce__journal_lease_doubtful(commit))
            check_watch(by, id);
        return TRUCE_OK;
    }
    finding.rule = pending ? "expired-lease" : "half-applied";
    finding.text =
        pending ? "the commit is pending, but its lease has expired: its process ended or stalled"
                : "the commit was decided but not completed";
    finding.repair = pending ? "undo the commit" : "release its documents and mark it done";
    by->blocked = false;
    closer = !pending && inspector_must_read(by, id);
    if (closer)
        status = each_post(by, commit, id, check_missing, &why);
    if (!status && closer)
        status = each_post(by, commit, id, commit_check_blocked, &why);
    repairs = truce__check_repairs(by->check, &finding);
    if (!status && repairs)
        status = check_repair(by, commit, id, pending, &why);
    if (status == TRUCE_LOCKED && !by->blocked)
        report_refused(by, id, &target, &why);
    else if (status && error)
        *error = why;
    truce__check_report(by->check, &finding, repairs && !status);
    if (status == TRUCE_LOCKED || (status == TRUCE_CORRUPT && by->blocked))
        return TRUCE_OK; /* This failure was reported as a finding. */
    return status;
}

/* Reports the plain writes that the commit may have overwritten. */
static void check_overwritten(struct inspector *by, const bson_t *commit, const bson_oid_t *id)
{
    struct finding finding = {
        .rule = "overwritten",
        .commit = id,
        .text = "the commit may have overwritten a plain write that changed the document while the "
                "commit held it",
        .repair = "none: a lost write must be made again by its writer"};
    bson_iter_t iter, element, field;

    if (!bson_iter_init_find(&iter, commit, "overwritten") || !bson_iter_recurse(&iter, &element))
        return;
    while (bson_iter_next(&element)) {
        bson_value_t target;

        finding.collection = COMMITS;
        finding.id = NULL;
        if (bson_iter_recurse(&element, &field) && bson_iter_find(&field, "ns"))
            finding.collection = bson_iter_utf8(&field, NULL);
        if (bson_iter_recurse(&element, &field) && bson_iter_find(&field, "id")) {
            target = *bson_iter_value(&field);
            finding.id = &target;
        }
        truce__check_report(by->check, &finding, false);
    }
}

/* ---- leases ---------------------------------------------------------------------------------- */

/*
 * A commit is reported only if its lease was watched for its whole length (complete_commit.c, CH3),
 * so a wrong clock causes no false finding. After all other rules, the check therefore waits for
 * the leases of the commits whose owners are probably dead. It watches them together.
 */

#define WATCH_MS_MAX 1000 /* The longest sleep between two checks of the watched leases. */

static void check_unwatched(struct inspector *by, const bson_oid_t *id)
{
    bson_value_t target = {.value_type = BSON_TYPE_OID, .value.v_oid = *id};
    struct finding finding = {
        .rule = "unchecked",
        .collection = COMMITS,
        .commit = id,
        .id = &target,
        .text = "the commit has not ended, and its lease could not be watched for its whole length "
                "before the deadline",
        .repair = "none: check again with a longer deadline, or run truce sweep --loop"};

    truce__check_report(by->check, &finding, false);
}

/* Waits until the watched commits are completed or their leases have expired, and checks them
 * again. Reports those that remain at the deadline. */
static truce_status check_watched(struct inspector *by, bson_error_t *error)
{
    int64_t now_ns = truce__clock_monotonic_ns(), wait_ms = 50;
    int64_t until_ns = truce__deadline_least(now_ns + COMMIT_DEADLINE_MS * INT64_C(1000000));
    truce_status status = TRUCE_OK;

    by->watching = true;
    while (!status && by->watched_count && now_ns < until_ns) {
        uint32_t count = by->watched_count;

        if (wait_ms > (until_ns - now_ns) / 1000000 + 1)
            wait_ms = (until_ns - now_ns) / 1000000 + 1;
        truce__clock_sleep_ms(wait_ms);
        wait_ms = wait_ms * 2 < WATCH_MS_MAX ? wait_ms * 2 : WATCH_MS_MAX;
        by->watched_count = 0;
        for (uint32_t i = 0; !status && i < count; i++) {
            bson_oid_t id = by->watched[i];
            bson_t commit;

            status = truce__commit_find(by->check->store, &id, &commit, error);
            truce__worker_init(&by->worker, by->check->store, REPAIR_MS);
            if (!status)
                status = commit_check_state(by, &commit, &id, error);
            if (status == TRUCE_NOT_FOUND)
                status = TRUCE_OK; /* The commit was undone and purged in the meantime. */
            bson_destroy(&commit);
        }
        now_ns = truce__clock_monotonic_ns();
    }
    for (uint32_t i = 0; !status && i < by->watched_count; i++)
        check_unwatched(by, &by->watched[i]);
    return status;
}

/* ---- a commit -------------------------------------------------------------------------------- */

/* Checks the state of one commit document, and the plain writes that it notes. */
static truce_status commit_check_commit_document(struct check *check, const char *collection,
                                                 const bson_t *commit, void *arg,
                                                 bson_error_t *error)
{
    struct inspector *by = arg;
    truce_status status;
    bson_iter_t iter;
    bson_oid_t id;

    if (!bson_iter_init_find(&iter, commit, "_id") || !BSON_ITER_HOLDS_OID(&iter))
        return TRUCE_OK;
    bson_oid_copy(bson_iter_oid(&iter), &id);
    status = commit_check_state(by, commit, &id, error);
    check_overwritten(by, commit, &id);
    return status;
}

/* ---- batches of commits ---------------------------------------------------------------------- */

/*
 * The documents that the decided commits of a batch change are read together, collection by
 * collection. A closer check of a commit reads its documents one by one. It runs if a
 * document is missing, and if another document may have a unique value that the commit reserved.
 */

/* The documents of one collection: those that must exist, and those that may be held. */
struct decided_part {
    const char *collection;
    struct maintenance_links changed, held;
    struct decided_part *next;
};

/* A batch of commits whose documents are read together. */
struct decided {
    struct inspector *by;
    bson_t *const *commits;
    uint32_t count;
    /* For commit i of the batch: its state is committed; its documents must be read one by one. */
    bool decided[MAINTENANCE_BATCH], closer[MAINTENANCE_BATCH];
    struct decided_part *parts;
    /* The filters of documents that may have a reserved value. `reserves[i]` is true if commit i of
     * the batch reserved one of the values. */
    bson_t filters;
    struct array list;
    bool reserves[MAINTENANCE_BATCH];
};

/* If the filters are larger than this, they are sent before more are added. */
#define FILTERS_BYTES 100000

static struct decided_part *decided_part_of(struct decided *batch, const char *collection)
{
    struct decided_part *part = batch->parts;

    while (part && strcmp(part->collection, collection) != 0)
        part = part->next;
    if (part)
        return part;
    part = bson_malloc0(sizeof *part);
    part->collection = collection;
    part->next = batch->parts;
    batch->parts = part;
    return part;
}

/* Is called for each document that decided commit `number` changes. Returns false to end the
 * walk. */
typedef bool decided_function(struct decided *batch, uint32_t number, const bson_t *post,
                              void *arg);

/* Calls the function for each document that decided commit `number` changes, until a call returns
 * false. */
static void each_decided_post(struct decided *batch, uint32_t number, decided_function *function,
                              void *arg)
{
    struct fields posts =
        truce__fields(truce__value_field(truce__value_document(batch->commits[number]), "post", 4));
    bson_t post;

    while (truce__fields_next(&posts)) {
        if (posts.value.type != BSON_TYPE_DOCUMENT)
            continue;
        truce__value_bson(posts.value, &post);
        if (!function(batch, number, &post, arg))
            return;
    }
}

/* Links a document of a decided commit to the commit. Returns false if an element is invalid, so
 * that the commit needs a closer check. */
static bool decided_link(struct decided *batch, uint32_t number, const bson_t *post, void *arg)
{
    bson_value_t id = truce__document_id(batch->commits[number]), target;
    const char *op = truce__field_text(post, "op"), *collection;
    struct decided_part *part;

    (void)arg;
    if (truce__journal_post_check(&id.value.v_oid, post, NULL) ||
        !truce__journal_target(post, &collection, &target)) {
        batch->closer[number] = true;
        return false;
    }
    part = decided_part_of(batch, collection);
    truce__maintenance_link(&part->held, &target, number);
    if (!strcmp(op, "set") || !strcmp(op, "whole"))
        truce__maintenance_link(&part->changed, &target, number);
    return true;
}

/* Looks for documents that have a value of the filters. Any commit of the filters may be blocked
 * by them. */
static truce_status decided_send_filters(struct decided *batch, const char *collection,
                                         bson_error_t *error)
{
    bson_t *filter, *id_only, found;
    truce_find_options options = {0};
    truce_status status;

    if (bson_empty(&batch->filters))
        return TRUCE_OK;
    filter = BCON_NEW("$or", BCON_ARRAY(&batch->filters));
    options.projection = id_only = BCON_NEW("_id", BCON_INT32(1));
    status = truce_find_one(batch->by->check->store, collection, filter, &options, &found, error);
    for (uint32_t i = 0; i < batch->count; i++) {
        batch->closer[i] |= !status && batch->reserves[i];
        batch->reserves[i] = false;
    }
    bson_reinit(&batch->filters);
    batch->list = (struct array){.to = &batch->filters};
    bson_destroy(&found);
    bson_destroy(id_only);
    bson_destroy(filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* The argument of decided_reserve: a document that a decided commit still holds. */
struct held_target {
    const char *collection;
    const bson_t *document;
    truce_status status;
    bson_error_t *error;
};

/* Adds the unique values that the held document gets from its commit to the filters. */
static bool decided_reserve(struct decided *batch, uint32_t number, const bson_t *post, void *arg)
{
    struct held_target *held = arg;
    bson_value_t commit = truce__document_id(batch->commits[number]), target;
    const char *collection;
    bson_t after;

    if (!truce__journal_target(post, &collection, &target) ||
        strcmp(collection, held->collection) != 0 ||
        !truce__value_equal(truce__value_field(truce__value_document(post), "id", 2),
                            truce__value_field(truce__value_document(held->document), "_id", 3)))
        return true;
    truce__journal_after(&commit.value.v_oid, post, held->document, &after);
    if (!bson_empty(&after)) {
        batch->reserves[number] = true;
        held->status = truce__unique_filters(batch->by->check->store, collection, &target, &after,
                                             &batch->list, held->error);
    }
    bson_destroy(&after);
    return false;
}

/* Reads the documents of a collection with unique indexes that are still held. */
static truce_status decided_check_held(struct decided *batch, struct decided_part *part,
                                       bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", "{", "$in", BCON_ARRAY(&part->held.ids), "}", "_intent.c", "{",
                              "$exists", BCON_BOOL(true), "}");
    truce_cursor *cursor = NULL;
    const bson_t *found;
    truce_status status =
        truce_find(batch->by->check->store, part->collection, filter, NULL, &cursor, error);

    while (!status) {
        struct held_target held = {part->collection, NULL, TRUCE_OK, error};
        bson_oid_t id;

        status = truce_cursor_next(cursor, &found, error);
        if (status || !found)
            break;
        held.document = found;
        if (!truce__intent_commit(found, &id))
            continue;
        for (uint32_t i = 0; i < batch->count; i++) {
            bson_value_t commit = truce__document_id(batch->commits[i]);

            if (batch->decided[i] && bson_oid_equal(&commit.value.v_oid, &id))
                each_decided_post(batch, i, decided_reserve, &held);
        }
        status = held.status;
        if (!status && batch->filters.len > FILTERS_BYTES)
            status = decided_send_filters(batch, part->collection, error);
    }
    truce_cursor_close(cursor);
    bson_destroy(filter);
    return status ? status : decided_send_filters(batch, part->collection, error);
}

static truce_status decided_check_part(struct decided *batch, struct decided_part *part,
                                       bson_error_t *error)
{
    truce_store *store = batch->by->check->store;
    uint32_t unique = 0;
    truce_status status = truce__maintenance_follow(batch->by->check, part->collection, NULL,
                                                    &part->changed, batch->closer, error);

    /* An index may be newer than the cached list. */
    truce__metadata_forget(store, part->collection);
    if (!status)
        status = truce__unique_count(store, part->collection, &unique, error);
    return status || !unique ? status : decided_check_held(batch, part, error);
}

static void oid_of(const bson_t *commit, bson_oid_t *id)
{
    bson_value_t value = truce__document_id(commit);

    bson_oid_copy(&value.value.v_oid, id);
}

/* Marks commits whose state is not final, and those that note an overwritten document, as
 * suspects. */
static truce_status suspect_commits(struct check *check, bson_t *const *documents, uint32_t count,
                                    bool *suspect, void *arg, bson_error_t *error)
{
    struct inspector *by = arg;
    struct decided *batch = bson_malloc0(sizeof *batch);
    truce_status status = TRUCE_OK;

    batch->by = by;
    batch->commits = documents;
    batch->count = count;
    bson_init(&batch->filters);
    batch->list = (struct array){.to = &batch->filters};
    by->closer_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        bson_value_t id = truce__document_id(documents[i]);
        const char *state = truce__commit_state(documents[i]);

        if (id.value_type != BSON_TYPE_OID)
            continue;
        check->report->commits++;
        suspect[i] = state && (!strcmp(state, "pending") || !strcmp(state, "committed"));
        suspect[i] = suspect[i] || bson_has_field(documents[i], "overwritten");
        batch->decided[i] = state && !strcmp(state, "committed") &&
                            check_lease_over(by, &id.value.v_oid, documents[i]);
        if (batch->decided[i])
            each_decided_post(batch, i, decided_link, NULL);
    }
    for (struct decided_part *part = batch->parts; part && !status; part = part->next)
        status = decided_check_part(batch, part, error);
    for (uint32_t i = 0; i < count; i++)
        if (batch->closer[i] || (status && batch->decided[i]))
            oid_of(documents[i], &by->closer[by->closer_count++]);
    while (batch->parts) {
        struct decided_part *part = batch->parts;

        batch->parts = part->next;
        truce__maintenance_links_release(&part->changed);
        truce__maintenance_links_release(&part->held);
        bson_free(part);
    }
    bson_destroy(&batch->filters);
    bson_free(batch);
    return status;
}

/* ---- discarded values ------------------------------------------------------------------------ */

/* Reports a value or a change in truce_displaced. */
static truce_status displaced_document(struct check *check, const char *collection,
                                       const bson_t *document, void *arg, bson_error_t *error)
{
    struct finding finding = {.rule = "displaced", .collection = collection};
    bool no_room = !strcmp(truce__field_text(document, "reason"), "no room");
    bson_iter_t iter, id;

    (void)arg;
    (void)error;
    finding.text =
        no_room
            ? "a plain write made the document too large for the change of a decided commit: the "
              "change is in truce_displaced"
            : "a plain write changed a field of a decided commit, or blocked its path: the plain "
              "value is in truce_displaced";
    finding.repair =
        "none: restore the values by hand, then remove the document from truce_displaced";
    if (truce__field_text(document, "ns")[0])
        finding.collection = truce__field_text(document, "ns");
    if (bson_iter_init_find(&id, document, "id"))
        finding.id = bson_iter_value(&id);
    if (bson_iter_init_find(&iter, document, "commit") && BSON_ITER_HOLDS_OID(&iter))
        finding.commit = bson_iter_oid(&iter);
    truce__check_report(check, &finding, false);
    return TRUCE_OK;
}

/* ---- pairs of commits ------------------------------------------------------------------------ */

/* Reports each group {_id: {ns, id, pre}, commits: [...]} of two or more commits, all but the
 * first. */
static void report_forks(struct inspector *by, const bson_t *group)
{
    struct finding finding = {
        .rule = "forked",
        .text =
            "two commits changed the same version of the document: a plain write restored an old "
            "copy",
        .repair = "none: compare the two commits and repair the document by hand"};
    bson_iter_t iter, target, commits;
    const bson_oid_t *first = NULL;
    bson_value_t id;

    if (!bson_iter_init(&iter, group) || !bson_iter_find_descendant(&iter, "_id.ns", &target) ||
        !BSON_ITER_HOLDS_UTF8(&target))
        return;
    finding.collection = bson_iter_utf8(&target, NULL);
    if (!bson_iter_init(&iter, group) || !bson_iter_find_descendant(&iter, "_id.id", &target))
        return;
    id = *bson_iter_value(&target);
    finding.id = &id;
    for (int pass = 0; pass < 2; pass++) {
        if (!bson_iter_init_find(&iter, group, "commits") || !bson_iter_recurse(&iter, &commits))
            return;
        while (bson_iter_next(&commits)) {
            if (!BSON_ITER_HOLDS_OID(&commits))
                continue;
            finding.commit = bson_iter_oid(&commits);
            if (pass == 0 && (!first || bson_oid_compare(finding.commit, first) < 0))
                first = finding.commit;
            else if (pass == 1 && !bson_oid_equal(finding.commit, first))
                truce__check_report(by->check, &finding, false);
        }
    }
}

/* Finds commits that changed the same version of the same document, in one pass over all
 * commits. */
static truce_status check_forks(struct inspector *by, bson_error_t *error)
{
    const truce_aggregate_options options = {.allow_disk_use = true};
    bson_t *pipeline = BCON_NEW(
        "0", "{", "$match", "{", "post.pre", "{", "$exists", BCON_BOOL(true), "}", "}", "}", /**/
        "1", "{", "$project", "{", "post.ns", BCON_INT32(1), "post.id", BCON_INT32(1), "post.pre",
        BCON_INT32(1), "post.op", BCON_INT32(1), "}", "}", /**/
        "2", "{", "$unwind", BCON_UTF8("$post"), "}",      /**/
        "3", "{", "$match", "{", "post.pre", "{", "$exists", BCON_BOOL(true), "}", "post.op", "{",
        "$ne", BCON_UTF8("hold"), "}", "}", "}", /**/
        "4", "{", "$group", "{", "_id", "{", "ns", BCON_UTF8("$post.ns"), "id",
        BCON_UTF8("$post.id"), "pre", BCON_UTF8("$post.pre"), "}", "commits", "{", "$push",
        BCON_UTF8("$_id"), "}", "}", "}", /**/
        "5", "{", "$match", "{", "commits.1", "{", "$exists", BCON_BOOL(true), "}", "}", "}");
    truce_cursor *cursor = NULL;
    const bson_t *group = NULL;
    truce_status status =
        truce_aggregate(by->check->store, COMMITS, pipeline, &options, &cursor, error);

    while (!status) {
        status = truce_cursor_next(cursor, &group, error);
        if (status || !group)
            break;
        report_forks(by, group);
    }
    truce_cursor_close(cursor);
    bson_destroy(pipeline);
    return status;
}

truce_status truce__commit_check(struct check *check, bson_error_t *error)
{
    struct inspector by = {.check = check};
    truce_status first, status;

    truce__worker_init(&by.worker, check->store, REPAIR_MS);
    first = truce__check_suspects(check, COMMITS, NULL, suspect_commits,
                                  commit_check_commit_document, &by, error);
    status =
        truce__check_each(check, DISPLACED, NULL, displaced_document, &by, first ? NULL : error);
    first = first ? first : status;
    status = check_forks(&by, first ? NULL : error);
    first = first ? first : status;
    status =
        truce__each_collection(check->store, commit_check_collection, &by, first ? NULL : error);
    first = first ? first : status;
    status = check_watched(&by, first ? NULL : error);
    bson_free(by.watched);
    return first ? first : status;
}

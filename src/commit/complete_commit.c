/*
 * Intents of other commits: what an owner, a reader, or the sweeper does when it finds a document
 * held by a commit. It has read the document first, and reads its commit after that:
 *
 *     commit missing or aborted     strip: the intent is removed, a stub as a whole
 *     pending, its lease expired    abort the commit, THEN read the document again
 *     pending, its owner alive      wait briefly, read again; LOCKED after the deadline
 *     committed or done             release: the decided change is applied to the document
 *
 * Invariants:
 *
 *  CH1  An intent of a pending commit is never stripped. The commit is aborted first, by a write
 *       that compares the state. So a commit that was decided in between keeps its intents.
 *  CH2  Every strip and release compares the commit's id in the intent, so a late one matches
 *       nothing.
 *  CH3  No wall clocks of two processes are compared. A lease has expired if this process has seen
 *       no renewal for the length of the lease, by its monotonic clock (metadata_cache.c stores the
 *       watch). A process that gives up earlier stores in the commit when it saw the lease, and a
 *       later process of the same computer continues from there (lease_watch.h). Each renewal
 *       changes the end of the lease, and the abort compares this end. So an owner that is alive is
 *       not aborted, and a dead owner blocks others for one lease, whatever their clocks say. The
 *       wall clock only decides whether a lease is worth a watch.
 *  CH4  The document in which a reader encounters an intent may be a projection of the stored one.
 *       The release therefore does not compare with it. It reads the stored document itself.
 *
 * A crash at any step leaves a state that the next process finds and continues from.
 */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/limits.h"
#include "base/random.h"
#include "commit/commit_counters.h"
#include "commit/journal.h"
#include "commit/lease_watch.h"
#include "commit/metadata_cache.h"
#include "commit/unique_keys.h"
#include "query/update/update.h"
#include "store/maintenance.h"
#include "store/repeatable_call.h"
#include "store/snapshot_view.h"
#include "store/store.h"
#include "truce/sys/store.h"

/* The maximum length of one wait for a commit, after which the document is read again. */
#define WAIT_MS_MAX 32

void truce__worker_init(struct worker *worker, truce_store *store, uint32_t deadline_ms)
{
    uint32_t otherwise = store->deadline_ms ? store->deadline_ms : COMMIT_DEADLINE_MS;
    int64_t until_ns =
        truce__clock_monotonic_ns() + (int64_t)(deadline_ms ? deadline_ms : otherwise) * 1000000;

    *worker = (struct worker){.store = store, .deadline_ns = truce__deadline_least(until_ns)};
}

bool truce__worker_relaxed_step(const struct worker *worker)
{
    return worker->relaxed || worker->store->capabilities & TRUCE_CAN_KEEP_ORDER;
}

truce_status truce__worker_wait(struct worker *worker, const char *what, bson_error_t *error)
{
    uint32_t span = 1u << (worker->waits < 5 ? worker->waits : 5);

    if (truce__clock_monotonic_ns() >= worker->deadline_ns)
        return truce__fail(TRUCE_LOCKED, error, "the deadline passed while the call waited for %s",
                           what);
    COUNT(waits);
    worker->waits++;
    if (span > WAIT_MS_MAX)
        span = WAIT_MS_MAX;
    truce__clock_sleep_ms(1 + (int64_t)(truce__random_entropy() % span));
    return TRUCE_OK;
}

bool truce__worker_repeats(struct worker *worker, truce_status status, const char *what)
{
    return truce__store_repeatable(worker->store, status) &&
           !truce__worker_wait(worker, what, NULL);
}

/* ---- reading journal documents -------------------------------------------------------------- */

static bool complete_find_in(const bson_t *document, const char *path, bson_iter_t *found)
{
    bson_iter_t iter;

    return bson_iter_init(&iter, document) && bson_iter_find_descendant(&iter, path, found);
}

bool truce__intent_absent(const bson_t *document)
{
    return !truce__value_field(truce__value_document(document), "_intent", 7).type;
}

bool truce__intent_commit(const bson_t *document, bson_oid_t *commit)
{
    bson_iter_t iter;

    if (!complete_find_in(document, "_intent.c", &iter) || !BSON_ITER_HOLDS_OID(&iter))
        return false;
    bson_oid_copy(bson_iter_oid(&iter), commit);
    return true;
}

static bool is_stub(const bson_t *document)
{
    bson_iter_t iter;

    return complete_find_in(document, "_intent.new", &iter);
}

const char *truce__commit_state(const bson_t *commit)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, commit, "state") && BSON_ITER_HOLDS_UTF8(&iter)
               ? bson_iter_utf8(&iter, NULL)
               : NULL;
}

bool truce__journal_target(const bson_t *element, const char **collection, bson_value_t *id)
{
    bson_iter_t iter;

    if (!bson_iter_init_find(&iter, element, "ns") || !BSON_ITER_HOLDS_UTF8(&iter))
        return false;
    *collection = bson_iter_utf8(&iter, NULL);
    if (!bson_iter_init_find(&iter, element, "id"))
        return false;
    *id = *bson_iter_value(&iter);
    return true;
}

/* Checks [{p: path, v?: value}]. */
static bool are_changes(struct value changes)
{
    struct fields each;

    if (changes.type != BSON_TYPE_ARRAY)
        return false;
    each = truce__fields(changes);
    while (truce__fields_next(&each))
        if (each.value.type != BSON_TYPE_DOCUMENT ||
            truce__value_field(each.value, "p", 1).type != BSON_TYPE_UTF8)
            return false;
    return true;
}

/* Returns whether an element of `post` has all that its release needs. */
static bool complete_is_valid(const bson_t *post)
{
    static const char *const others[] = {"hold", "remove", "free"};
    const char *op = truce__field_text(post, "op"), *collection;
    bson_value_t id;

    if (!truce__journal_target(post, &collection, &id))
        return false;
    if (!strcmp(op, "set"))
        return are_changes(truce__value_field(truce__value_document(post), "changes", 7));
    if (!strcmp(op, "whole") || !strcmp(op, "insert"))
        return truce__value_field(truce__value_document(post), "document", 8).type ==
               BSON_TYPE_DOCUMENT;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(op, others[i]))
            return true;
    return false;
}

truce_status truce__journal_post_check(const bson_oid_t *commit, const bson_t *post,
                                       bson_error_t *error)
{
    char hex[25];

    if (complete_is_valid(post))
        return TRUCE_OK;
    bson_oid_to_string(commit, hex);
    return truce__fail(
        TRUCE_CORRUPT, error,
        "commit %s is decided, but its entry for \"%.60s\" was changed: correct the entry of "
        "`post` in " COMMITS ", or write the document yourself and remove its \"_intent\"",
        hex, truce__field_text(post, "ns"));
}

/* ---- intents of other commits ---------------------------------------------------------------- */

static int64_t complete_number_at(const bson_t *document, const char *path)
{
    bson_iter_t iter;

    return complete_find_in(document, path, &iter) ? bson_iter_as_int64(&iter) : 0;
}

static int64_t complete_lease_ms(const bson_t *commit)
{
    int64_t lease_ms = complete_number_at(commit, "lease.ms");

    return lease_ms <= 0 || lease_ms > COMMIT_LEASE_MS_MAX ? COMMIT_LEASE_MS_MAX : lease_ms;
}

bool truce__journal_lease_over(struct worker *worker, const bson_oid_t *id, const bson_t *commit)
{
    int64_t until_ms = complete_number_at(commit, "lease.until");
    struct watched_lease watched = {
        "commit", id, sizeof *id, (uint64_t)until_ms, until_ms, complete_lease_ms(commit), NULL};
    bson_t lease;

    if (!worker->watching || !bson_oid_equal(&worker->watched, id)) {
        bson_oid_copy(id, &worker->watched);
        worker->watching = true;
        worker->waits = 0;
    }
    if (truce__value_subdocument(commit, "lease", &lease))
        watched.fields = &lease;
    return truce__metadata_lease_over(worker->store, &watched); /* CH3 */
}

bool truce__journal_lease_doubtful(const bson_t *commit)
{
    int64_t until_ms = complete_number_at(commit, "lease.until"), now_ms = truce__clock_wall_ms();

    return until_ms <= now_ms || until_ms > now_ms + complete_lease_ms(commit);
}

void truce__journal_lease_observe(struct worker *worker, const bson_oid_t *id, const bson_t *commit)
{
    int64_t until_ms = complete_number_at(commit, "lease.until"), seen_ns;
    bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER, set, lease;
    truce_write_options options = {.relaxed = true};

    if (truce__clock_name() && truce__journal_lease_doubtful(commit) &&
        truce__value_subdocument(commit, "lease", &lease) &&
        !truce__lease_seen(&lease, until_ms, &seen_ns)) {
        BSON_APPEND_OID(&filter, "_id", id);
        BSON_APPEND_UTF8(&filter, "state", "pending");
        BSON_APPEND_INT64(&filter, "lease.until", until_ms);
        BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
        truce__lease_append_seen(until_ms, &set);
        bson_append_document_end(&update, &set);
        (void)!truce_update(worker->store, COMMITS, &filter, &update, &options, NULL, NULL);
    }
    bson_destroy(&update);
    bson_destroy(&filter);
}

/* Finds the element of the commit's post for this document. Returns false if the commit does not
 * write it. */
static bool find_post(const bson_t *commit, const char *collection, struct value id, bson_t *post)
{
    bson_iter_t iter, element;

    if (!bson_iter_init_find(&iter, commit, "post") || !bson_iter_recurse(&iter, &element))
        return false;
    while (bson_iter_next(&element)) {
        const uint8_t *bytes;
        uint32_t length;

        if (!BSON_ITER_HOLDS_DOCUMENT(&element))
            continue;
        bson_iter_document(&element, &length, &bytes);
        truce_assert(bson_init_static(post, bytes, length));
        if (!strcmp(truce__field_text(post, "ns"), collection) &&
            truce__value_equal(truce__value_field(truce__value_document(post), "id", 2), id))
            return true;
    }
    return false;
}

/* Finds the element of the commit's post for a document; borrowed. Returns false if the commit does
 * not write it. */
static bool journal_post(const bson_t *commit, const char *collection, const bson_t *document,
                         bson_t *post)
{
    return find_post(commit, collection,
                     truce__value_field(truce__value_document(document), "_id", 3), post);
}

/* Releases one document of a decided commit. If the commit does not change the document, strips its
 * intent. */
static truce_status complete_release_one(struct worker *worker, const char *collection,
                                         const bson_t *document, const bson_oid_t *id,
                                         const bson_t *commit, bson_error_t *error)
{
    bson_t post;

    if (!journal_post(commit, collection, document, &post)) {
        bson_iter_t iter;
        truce_status status = truce__document_need_id(collection, document, &iter, error);

        if (status)
            return status;
        return truce__journal_strip(worker, collection, bson_iter_value(&iter), id,
                                    truce__shadow_reserved(document), error);
    }
    return truce__journal_release(worker, id, &post, NULL, error); /* CH4 */
}

truce_status truce__commit_suspect(struct worker *worker, const bson_oid_t *id,
                                   const bson_t *commit, bson_error_t *error)
{
    char what[40], hex[25];
    bool changed;

    bson_oid_to_string(id, hex);
    snprintf(what, sizeof what, "commit %s", hex);
    /* If its lease has expired, aborts the commit. The caller then reads the document again
     * (CH1). */
    if (truce__journal_lease_over(worker, id, commit))
        return truce__journal_abort(worker, id, commit, "its lease had expired", &changed, error);
    truce__journal_lease_observe(worker, id, commit);
    if (truce__journal_work_owns(id)) /* journal.c, CT8 */
        return truce__fail(
            TRUCE_LOCKED, error,
            "%s has locked the document, and its function writes the document without the commit: "
            "pass the commit to the call",
            what);
    if (worker->holding)
        return truce__fail(TRUCE_CONFLICT, error, "%s has locked a document that this call needs",
                           what);
    if (truce__journal_work_yields()) /* journal.c, CT2 */
        return truce__fail(
            TRUCE_LOCKED, error,
            "%s has locked a document that this call needs, and the commit around this call has "
            "locked documents, too: the call fails to prevent a deadlock",
            what);
    /* The snapshot of a transaction shows the commit as pending until the transaction ends. */
    if (worker->store->capabilities & TRUCE_IS_TRANSACTION)
        return truce__refuse(CODE_WRITE_CONFLICT, error,
                             "%s has locked a document that the transaction needs", what);
    return truce__worker_wait(worker, what, error);
}

truce_status truce__commit_find(truce_store *store, const bson_oid_t *id, bson_t *commit,
                                bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER;
    truce_status status;

    BSON_APPEND_OID(&filter, "_id", id);
    /* Reads the latest state, because a missing commit counts as aborted and purged (journal.c,
     * CJ2, CJ8), and its intents are stripped. */
    status = truce_find_one(store, COMMITS, &filter, &truce__find_latest, commit, error);
    bson_destroy(&filter);
    return status;
}

/* Reads the commit of an encountered intent. Waits for a pending commit or undoes it, releases the
 * document of a decided one, and strips the intent if the commit was undone or is gone. */
static truce_status complete_encountered(struct worker *worker, const char *collection,
                                         const bson_t *document, const bson_oid_t *id,
                                         bson_error_t *error)
{
    bson_t commit;
    truce_status status;
    const char *state;
    bson_iter_t iter;

    status = truce__commit_find(worker->store, id, &commit, error);
    if (status && status != TRUCE_NOT_FOUND) {
        bson_destroy(&commit);
        return status;
    }
    state = status ? "missing" : truce__commit_state(&commit);
    if (state && !strcmp(state, "pending")) {
        status = truce__commit_suspect(worker, id, &commit, error);
    } else if (state && (!strcmp(state, "committed") || !strcmp(state, "done"))) {
        COUNT(completions);
        status = complete_release_one(worker, collection, document, id, &commit, error);
    } else {
        COUNT(completions);
        status = truce__document_need_id(collection, document, &iter, error);
        if (!status)
            status = is_stub(document)
                         ? truce__journal_strip_stub(worker, collection, bson_iter_value(&iter), id,
                                                     error)
                         : truce__journal_strip(worker, collection, bson_iter_value(&iter), id,
                                                truce__shadow_reserved(document), error);
    }
    bson_destroy(&commit);
    return status;
}

/* Fails with INVALID: the field exists but was not written by truce. */
static truce_status intent_foreign(const char *collection, bson_error_t *error)
{
    return truce__fail(
        TRUCE_INVALID, error,
        "the field \"_intent\" of a document of \"%s\" is not {c: ObjectId}: the name is reserved "
        "for truce, so remove or rename the field",
        collection);
}

truce_status truce__intent_complete_other(struct worker *worker, const char *collection,
                                          const bson_t *document, bson_error_t *error)
{
    truce_status status;
    bson_oid_t id;

    if (!truce__intent_commit(document, &id))
        return intent_foreign(collection, error);
    status = complete_encountered(worker, collection, document, &id, error);
    /* No reply arrived. Every step may be repeated, so the document is read again. */
    if (truce__unanswered(status))
        status = truce__worker_wait(worker, "the store", error);
    return status;
}

/* Reads a document until it has no intent, and resolves the intents of other commits. On a store
 * that is only read, and for the own commit if `unguarded`, it returns the state that the reader
 * may see instead. */
static truce_status read_free(struct worker *worker, const char *collection, const bson_value_t *id,
                              bool unguarded, bson_t *document, bson_error_t *error)
{
    const truce_find_options options = {.early = worker->early, .latest = worker->latest};
    truce_status status;
    bson_t filter;

    truce__filter_id(id, &filter);
    worker->waits = 0;
    for (;;) {
        status = truce_find_one(worker->store, collection, &filter, &options, document, error);
        if (status == TRUCE_UNKNOWN)
            status = truce__worker_wait(worker, "the store", error);
        else if (status || truce__intent_absent(document))
            break;
        else if (truce__is_only_read(worker->store) ||
                 (unguarded && truce__journal_at_work(document)))
            break;
        else
            status = truce__intent_complete_other(worker, collection, document, error);
        if (status)
            break;
        bson_destroy(document);
    }
    if (!status && !truce__intent_absent(document))
        status = truce__intent_see(worker->store, collection, document, error);
    if (status)
        bson_reinit(document);
    bson_destroy(&filter);
    return status;
}

truce_status truce__journal_read(struct worker *worker, const char *collection,
                                 const bson_value_t *id, bson_t *document, bson_error_t *error)
{
    return read_free(worker, collection, id, false, document, error);
}

truce_status truce__journal_read_unguarded(struct worker *worker, const char *collection,
                                           const bson_value_t *id, bson_t *document,
                                           bson_error_t *error)
{
    return read_free(worker, collection, id, true, document, error);
}

/* ---- reads that resolve nothing -------------------------------------------------------------- */

/*
 * A read may show a document that is held without completing its commit or waiting. A document that
 * the commit of this thread's function took is shown as it was before (journal.c, CT8). A view
 * (truce/snapshot.h) has the document and its commit as of one snapshot, which determines the
 * document's state in it:
 *
 *     committed or done                   the document as the release leaves it
 *     pending, aborted, or missing        the document before the commit; a stub does not exist
 *
 * A commit that is pending in the snapshot may be decided later. In the snapshot, it had not taken
 * effect anywhere.
 */

static bool is_decided(const bson_t *commit)
{
    const char *state = truce__commit_state(commit);

    return state && (!strcmp(state, "committed") || !strcmp(state, "done"));
}

/* Makes the document as the decided commit leaves it. Returns NOT_FOUND if the commit removes
 * it. */
static truce_status see_after(const bson_oid_t *id, const bson_t *post, const bson_t *document,
                              bson_t *seen)
{
    const char *op = truce__field_text(post, "op");

    if (!strcmp(op, "hold")) {
        bson_destroy(seen);
        truce__shadow_restore(document, seen);
        return TRUCE_OK;
    }
    if (!strcmp(op, "remove") || !strcmp(op, "free"))
        return TRUCE_NOT_FOUND;
    bson_destroy(seen);
    truce__journal_after(id, post, document, seen);
    return bson_empty(seen) ? TRUCE_NOT_FOUND : TRUCE_OK;
}

static truce_status see_before(const bson_t *document, bson_t *seen)
{
    bson_iter_t iter, found;

    if (bson_iter_init(&iter, document) && bson_iter_find_descendant(&iter, "_intent.new", &found))
        return TRUCE_NOT_FOUND;
    bson_destroy(seen);
    truce__shadow_restore(document, seen);
    return TRUCE_OK;
}

/* Makes the state of a held document that a reader sees: the one after the commit if that is
 * decided, and the one before it otherwise. */
static truce_status seen_read_committed(truce_store *store, const char *collection,
                                        const bson_t *document, bson_t *seen, bson_error_t *error)
{
    bson_t commit, post;
    truce_status status;
    bson_oid_t id;

    if (!truce__intent_commit(document, &id))
        return intent_foreign(collection, error);
    if (truce__journal_at_work(document))
        return see_before(document, seen);
    status = truce__commit_find(store, &id, &commit, error);
    if (!status && is_decided(&commit) && journal_post(&commit, collection, document, &post)) {
        status = truce__journal_post_check(&id, &post, error);
        if (!status)
            status = see_after(&id, &post, document, seen);
    } else if (!status || status == TRUCE_NOT_FOUND) {
        status = see_before(document, seen);
    }
    bson_destroy(&commit);
    return status;
}

truce_status truce__intent_see(truce_store *store, const char *collection, bson_t *document,
                               bson_error_t *error)
{
    bson_t seen = BSON_INITIALIZER;
    truce_status status = seen_read_committed(store, collection, document, &seen, error);

    bson_destroy(document);
    if (status)
        bson_init(document);
    else
        bson_copy_to(&seen, document);
    bson_destroy(&seen);
    return status;
}

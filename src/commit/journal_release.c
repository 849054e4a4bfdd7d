#include "commit/journal_step.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/field.h"
#include "commit/journal_change.h"
#include "commit/shadow.h"
#include "commit/validated.h"
#include "store/store.h"
#include "truce/sys/store.h"

/*
 * The release of one document of a decided commit: its changes go in, the intent goes out. Anybody may do it,
 * at any time and again; models/release.cpp is its model. A plain writer may have written under the intent:
 *
 *   L1  A release goes over what it has seen, and over nothing else: its write compares the whole document.
 *       What a plain writer changed there is merged with the change, or kept beside it first (journal_force.c).
 *       So whoever dies where, nothing of a plain writer is lost without a word. A hold changes nothing, and
 *       compares nothing.
 *   L2  The owner knows the document as it took it: most releases are one write. Any other worker, and an owner that
 *       lost the comparison, reads the stored document first.
 *   L3  A release ends: after some lost comparisons it is noted in the commit, as `overwritten`, whatever was seen,
 *       and written.
 *   L4  A document that is too large for a comparison (entry.h) is written as it is; what that found tells
 *       whether there is something to note, and to keep.
 */

#define TRIES 32 /* lost comparisons */

static void set_changes(const bson_t *post, const bson_oid_t *commit, bson_t *update)
{
    bson_t set, unset;
    bson_iter_t iter, change;

    bson_init(update);
    bson_init(&set);
    bson_init(&unset);
    truce_assert(bson_iter_init_find(&iter, post, "changes") && bson_iter_recurse(&iter, &change));
    while (bson_iter_next(&change)) {
        bson_iter_t path, value;

        truce_assert(bson_iter_recurse(&change, &path) && bson_iter_find(&path, "p"));
        if (bson_iter_recurse(&change, &value) && bson_iter_find(&value, "v"))
            bson_append_iter(&set, bson_iter_utf8(&path, NULL), -1, &value);
        else
            BSON_APPEND_UTF8(&unset, bson_iter_utf8(&path, NULL), "");
    }
    BSON_APPEND_OID(&set, "_rev", commit);
    BSON_APPEND_UTF8(&unset, "_intent", "");
    BSON_APPEND_DOCUMENT(update, "$set", &set);
    BSON_APPEND_DOCUMENT(update, "$unset", &unset);
    bson_destroy(&set);
    bson_destroy(&unset);
}

void truce__journal_whole(const bson_t *post, const bson_oid_t *commit, bson_t *document)
{
    const uint8_t *bytes;
    uint32_t length;
    bson_iter_t iter;
    bson_t content;

    truce_assert(bson_iter_init_find(&iter, post, "document"));
    bson_iter_document(&iter, &length, &bytes);
    truce_assert(bson_init_static(&content, bytes, length));
    bson_copy_to(&content, document);
    BSON_APPEND_OID(document, "_rev", commit);
}

int64_t truce__journal_hash(const bson_t *document, bool reserved)
{
    struct fields fields = truce__fields(truce__value_document(document));
    bson_t plain = BSON_INITIALIZER;
    int64_t hash;

    while (truce__fields_next(&fields)) {
        if (strcmp(fields.key, "_intent") != 0 && (!reserved || strcmp(fields.key, "_keys") != 0))
            truce__value_append(&plain, fields.key, fields.key_length, fields.value);
    }
    hash = (int64_t)truce__value_hash(truce__value_document(&plain));
    bson_destroy(&plain);
    return hash;
}

bool truce__journal_was_changed(const bson_t *post, const bson_t *document)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, post, "was") && BSON_ITER_HOLDS_INT64(&iter) &&
           bson_iter_int64(&iter) !=
               truce__journal_hash(document, truce__shadow_reserved(document) >= 0);
}

/* Of an entry `set`. */
static void release_set_after(const bson_oid_t *commit, const bson_t *post, const bson_t *document,
                              bson_t *after)
{
    struct merged merged;
    bson_error_t ignored;
    bson_t changes;
    bool changed = truce__journal_was_changed(post, document);

    set_changes(post, commit, &changes);
    bson_copy_to(document, after);
    if (changed || truce__change_apply(&changes, after, &ignored)) {
        truce__journal_merge(commit, post, document, true, &merged);
        bson_destroy(after);
        bson_copy_to(&merged.after, after);
        truce__merged_release(&merged);
    }
    bson_destroy(&changes);
}

void truce__journal_after(const bson_oid_t *commit, const bson_t *post, const bson_t *document,
                          bson_t *after)
{
    const char *op = truce__field_text(post, "op");

    if (!strcmp(op, "whole") || !strcmp(op, "insert"))
        truce__journal_whole(post, commit, after);
    else if (!strcmp(op, "set"))
        release_set_after(commit, post, document, after);
    else
        bson_init(after);
}

static truce_status blocked(const bson_oid_t *commit, const char *collection, bson_error_t *error)
{
    char hex[25];

    bson_oid_to_string(commit, hex);
    return truce__fail(TRUCE_LOCKED, error,
                       "commit %s is decided, but a plain write took a unique value that it had "
                       "reserved in \"%s\": `truce check` tells which",
                       hex, collection);
}

static truce_status denied(const bson_oid_t *commit, const char *collection,
                           const bson_error_t *reason, bson_error_t *error)
{
    char hex[25];

    bson_oid_to_string(commit, hex);
    return truce__fail(TRUCE_LOCKED, error,
                       "commit %s is decided, but a validator that came later refuses its change "
                       "in \"%.60s\", and the server does not let this user pass by it "
                       "(bypassDocumentValidation): %.160s",
                       hex, collection, reason->message);
}

/* ---- telling -------------------------------------------------------------------------------- */

/* At once and by whoever releases, because anybody may mark the commit done. */
truce_status truce__journal_note(struct worker *worker, const bson_oid_t *commit,
                                 const char *collection, const bson_value_t *id,
                                 bson_error_t *error)
{
    truce_write_options options = {.relaxed = worker->relaxed};
    bson_t filter = BSON_INITIALIZER, note = BSON_INITIALIZER, push, one;
    truce_status status;

    BSON_APPEND_OID(&filter, "_id", commit);
    bson_append_document_begin(&note, "$addToSet", 9, &push);
    bson_append_document_begin(&push, "overwritten", 11, &one);
    BSON_APPEND_UTF8(&one, "ns", collection);
    BSON_APPEND_VALUE(&one, "id", id);
    bson_append_document_end(&push, &one);
    bson_append_document_end(&note, &push);
    status = truce_update(worker->store, COMMITS, &filter, &note, &options, NULL, error);
    bson_destroy(&note);
    bson_destroy(&filter);
    return status;
}

/* ---- the write ------------------------------------------------------------------------------ */

truce_status truce__journal_write_same(struct worker *worker, const bson_oid_t *commit,
                                       const char *collection, const bson_t *seen,
                                       const bson_t *update, bool *done, bson_error_t *error)
{
    bson_value_t id = truce__document_id(seen);
    truce_bulk_options options = {.relaxed = truce__worker_relaxed_step(worker)};
    bson_t filter;
    truce_write write = {.kind = update ? TRUCE_WRITE_UPDATE : TRUCE_WRITE_REMOVE,
                         .collection = collection,
                         .filter = &filter,
                         .document = update};
    truce_write_outcome outcome;
    truce_status status;

    write.exact = truce__filter_held(worker->store, &id, seen, commit, &filter);
    status = truce__validator_pass(worker->store, &write, &options, &outcome, error);
    *done = !status && outcome.result.matched + outcome.result.removed > 0;
    truce_write_result_release(&outcome.result);
    bson_destroy(&filter);
    return status;
}

struct release {
    struct worker *worker;
    const bson_oid_t *commit;
    const bson_t *post;
    const char *op, *collection;
    bson_value_t id;
    bson_t filter, write; /* by the intent; operators or the document */
    bool remove, noted;
    bson_error_t reason; /* why the store refused */
};

/* Of an entry that is sound (truce__journal_post_check). */
static void release_begin(struct release *release, struct worker *worker, const bson_oid_t *commit,
                          const bson_t *post)
{
    *release = (struct release){.worker = worker,
                                .commit = commit,
                                .post = post,
                                .op = truce__field_text(post, "op"),
                                .write = BSON_INITIALIZER};
    truce_assert(truce__journal_target(post, &release->collection, &release->id));
    truce__filter_intent(&release->id, commit, &release->filter);
    if (!strcmp(release->op, "set"))
        set_changes(post, commit, &release->write);
    else if (!strcmp(release->op, "whole") || !strcmp(release->op, "insert"))
        truce__journal_whole(post, commit, &release->write);
    else if (!strcmp(release->op, "hold"))
        BCON_APPEND(&release->write, "$unset", "{", "_intent", BCON_UTF8(""), "}");
    else
        release->remove = true;
}

static void release_end(struct release *release)
{
    bson_destroy(&release->write);
    bson_destroy(&release->filter);
}

static truce_status release_note(struct release *release, bson_error_t *error)
{
    release->noted = true;
    return truce__journal_note(release->worker, release->commit, release->collection, &release->id,
                               error);
}

static bool release_is(const struct release *release, const char *op)
{
    return !strcmp(release->op, op);
}

/* L4: what a write that compared nothing went over. */
static truce_status release_tell(struct release *release, const bson_t *before, bson_error_t *error)
{
    truce_status status = release->noted ? TRUCE_OK : release_note(release, error);
    struct merged merged;

    truce__journal_merge(release->commit, release->post, before, false, &merged);
    if (!status)
        status =
            truce__journal_keep(release->worker, release->commit, release->post, &merged, error);
    truce__merged_release(&merged);
    return status;
}

/* Whatever stands under the intent. */
static truce_status write_over(struct release *release, bson_error_t *error)
{
    truce_modify_options options = {.relaxed = truce__worker_relaxed_step(release->worker),
                                    .remove = release->remove};
    bson_t before;
    truce_status status = truce__validator_pass_modify(
        release->worker->store, release->collection, &release->filter,
        release->remove ? NULL : &release->write, &options, &before, &release->reason);

    release->worker->did += !status;
    if (!status && !release_is(release, "hold") &&
        truce__journal_was_changed(release->post, &before))
        status = release_tell(release, &before, error);
    else if (status && error)
        *error = release->reason;
    bson_destroy(&before);
    return status;
}

/* What `to` was is gone. */
static void release_move(bson_t *to, bson_t *from)
{
    bool moved;

    bson_destroy(to);
    moved = bson_steal(to, from);
    truce_assert(moved);
}

void truce__journal_release_write(const truce_store *store, const bson_oid_t *commit,
                                  const bson_t *post, bson_t *seen, struct step_write *made)
{
    struct release release;

    release_begin(&release, NULL, commit, post);
    truce__step_write_init(made, release.remove ? TRUCE_WRITE_REMOVE : TRUCE_WRITE_UPDATE,
                           release.collection);
    release_move(&made->document, &release.write);
    if (seen)
        release_move(&made->exact, seen);
    if (!seen || release_is(&release, "hold")) {
        release_move(&made->filter, &release.filter);
        return;
    }
    bson_destroy(&release.filter);
    bson_destroy(&made->filter);
    made->write.exact = truce__filter_held(store, &release.id, &made->exact, commit, &made->filter);
}

static bool release_comparable(const struct release *release, const bson_t *seen)
{
    return (release->worker->store->capabilities & TRUCE_CAN_COMPARE) ||
           seen->len <= VALUE_GUARD_BYTES_MAX;
}

/* L1, L2: one write, if it is still so. */
static truce_status write_seen(struct release *release, const bson_t *seen, bool *done,
                               bson_error_t *error)
{
    truce_status status;

    if (truce__journal_was_changed(release->post, seen))
        status = truce__journal_release_merged(release->worker, release->commit, release->post,
                                               seen, done, &release->reason);
    else
        status = truce__journal_write_same(release->worker, release->commit, release->collection,
                                           seen, release->remove ? NULL : &release->write, done,
                                           &release->reason);
    release->worker->did += *done;
    if (status && error)
        *error = release->reason;
    return status;
}

/* `seen`: the document, with the intent. *done: it is released. */
static truce_status release_seen(struct release *release, const bson_t *seen, bool last, bool *done,
                                 bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (release_comparable(release, seen) && !last && !release_is(release, "hold"))
        return write_seen(release, seen, done, error);
    *done = true;
    if (release_comparable(release, seen) && !release_is(release, "hold")) /* L3 */
        status = release_note(release, error);
    return status ? status : write_over(release, error);
}

static truce_status look_and_release(struct release *release, bool last, bool *done,
                                     bson_error_t *error)
{
    bson_t document;
    /* latest: a document without the intent counts as released, and then the commit is done and purged (J5) */
    truce_status status = truce_find_one(release->worker->store, release->collection,
                                         &release->filter, &truce__find_latest, &document, error);

    if (!status)
        status = release_seen(release, &document, last, done, error);
    bson_destroy(&document);
    return status;
}

truce_status truce__journal_release(struct worker *worker, const bson_oid_t *commit,
                                    const bson_t *post, const bson_t *seen, bson_error_t *error)
{
    struct release release;
    bool done = false;
    truce_status status = truce__journal_post_check(commit, post, error);

    if (status)
        return status;
    release_begin(&release, worker, commit, post);
    if (!bson_has_field(post, "was")) { /* a stub: nobody writes there */
        done = true;
        status = write_over(&release, error);
    } else if (seen) {
        status = release_seen(&release, seen, false, &done, error);
    }
    for (int i = 1; !status && !done; i++)
        status = look_and_release(&release, i == TRIES, &done, error);
    if (status == TRUCE_NOT_FOUND) /* somebody released it */
        status = TRUCE_OK;
    if (status == TRUCE_DUPLICATE)
        status = blocked(commit, release.collection, error);
    if (truce__validator_refused(status, &release.reason)) /* V3 */
        status = denied(commit, release.collection, &release.reason, error);
    else if (!strcmp(release.op, "set") && (status == TRUCE_INVALID || status == TRUCE_LIMIT))
        status = truce__journal_force(worker, commit, post, &release.reason, error);
    release_end(&release);
    return status;
}

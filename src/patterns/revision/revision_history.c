/*
 * Replaced versions, in "<collection>.revisions":
 *
 *     {_id: {id, version: 3}, at, until?, document}    version 3, written by the save of 4
 *     {_id: {id, version: -1}, last: 4}                the document was removed at version 4
 *     {_id: {id, version: -1}, last: 4294967296,       the document has numbers from 1 to that one;
 *      reserved: true}                                 a plain writer may have removed it since
 *
 * All of them are written in the commit that replaces, removes, or first numbers the document. A
 * document that is created again continues after the last number, so a caller with a number of the
 * former document cannot save over the new one. A plain writer removes a document without a trace.
 * Therefore the first number of a document reserves a range that its saves cannot exhaust.
 *
 * A plain writer may also insert a document with a number, or replace a document and keep its
 * number. Such a document has no `_rev`. Its number identifies it only if it is above the last
 * reserved one:
 *
 *     number above `last`, or no record     the next save continues after it, and reserves
 *     number up to `last`                   it was given before. The document is renumbered (RN2).
 *
 * The save that finds such a document gives it a number of a new range. A caller that sent no base
 * gets a conflict, and a caller that reads the document again can save it.
 *
 * Invariants (model: models/revision_number.cpp):
 *
 * RN1. Each number that a save gives is above all numbers that saves gave to other documents of
 *     this _id.
 * RN2. A number that was given before is not valid for a document that another program wrote since.
 *
 * Some cases leave no trace. No save has numbered the document, or its number is 0. Or a dump
 * restores a document with its old `_rev`.
 *
 * With keep_ms a version expires at `until`, which has an index with expireAfterSeconds: `truce
 * sweep` (or the server) removes expired versions.
 */
#include "patterns/revision/revision.h"

#include "base/clock.h"
#include "base/field.h"
#include "base/null.h"
#include "commit/commit.h"
#include "commit/metadata_cache.h"
#include "query/input_check.h"
#include "store/store.h"

/* The count of numbers that are reserved for a document when it gets its first number. */
#define NUMBERS_RESERVED (INT64_C(1) << 32)

static bson_value_t revision_history_id_of(const bson_t *holder)
{
    bson_iter_t iter;
    bson_value_t none = {0};

    return bson_iter_init_find(&iter, holder, "_id") ? *bson_iter_value(&iter) : none;
}

/* Begins the document of a version: {_id: {id, version}}. */
static void revision_history_begin_document(const bson_value_t *id, int64_t number,
                                            bson_t *document)
{
    bson_t inner;

    bson_init(document);
    bson_append_document_begin(document, "_id", 3, &inner);
    bson_append_value(&inner, "id", 2, id);
    bson_append_int64(&inner, "version", 7, number);
    bson_append_document_end(document, &inner);
}

/* Inserts the document, or replaces the one of its _id. */
static truce_status revision_history_put(truce_revision *revision, truce_commit *commit,
                                         const bson_t *document, bson_error_t *error)
{
    bson_value_t id = revision_history_id_of(document);
    bson_t there;
    truce_status status = truce_commit_read(commit, revision->kept, &id, &there, error);

    if (status == TRUCE_NOT_FOUND)
        status = truce_commit_insert(commit, revision->kept, document, error);
    else if (!status)
        status = truce_commit_replace(commit, revision->kept, &id, NULL, document, error);
    bson_destroy(&there);
    return status;
}

/* Removes the kept version of that number, if it exists, in the commit. */
static truce_status revision_history_drop(truce_revision *revision, truce_commit *commit,
                                          const bson_value_t *id, int64_t number,
                                          bson_error_t *error)
{
    bson_t key, there;
    bson_value_t of;
    truce_status status;

    revision_history_begin_document(id, number, &key);
    of = revision_history_id_of(&key);
    status = truce_commit_read(commit, revision->kept, &of, &there, error);
    if (status == TRUCE_NOT_FOUND)
        status = TRUCE_OK;
    else if (!status)
        status = truce_commit_remove(commit, revision->kept, &of, NULL, error);
    bson_destroy(&there);
    bson_destroy(&key);
    return status;
}

truce_status truce__revision_index(truce_revision *revision, bson_error_t *error)
{
    uint64_t structure = truce__metadata_structure(revision->store) + 1;
    bson_t *index;
    truce_status status;

    if (!revision->keep || !revision->keep_ms || atomic_load(&revision->structure) == structure)
        return TRUCE_OK;
    index = BCON_NEW("key", "{", "until", BCON_INT32(1), "}", "expireAfterSeconds", BCON_INT32(0));
    status = truce__index_ensure(revision->store, revision->kept, index, error);
    if (!status)
        atomic_store(&revision->structure, structure);
    bson_destroy(index);
    return status;
}

truce_status truce__revision_keep(truce_revision *revision, truce_commit *commit,
                                  const bson_t *document, int64_t number, bson_error_t *error)
{
    int64_t now_ms = truce__clock_wall_ms();
    bson_value_t id = revision_history_id_of(document);
    bson_t kept, inner;
    truce_status status;

    if (!revision->keep)
        return TRUCE_OK;
    revision_history_begin_document(&id, number, &kept);
    bson_append_date_time(&kept, "at", 2, now_ms);
    if (revision->keep_ms)
        bson_append_date_time(&kept, "until", 5, truce__date_after(now_ms, revision->keep_ms));
    bson_append_document_begin(&kept, "document", 8, &inner);
    bson_copy_to_excluding_noinit(document, &inner, "_rev", "_intent", NULL);
    bson_append_document_end(&kept, &inner);
    status = revision_history_put(revision, commit, &kept, error);
    if (!status)
        status = revision_history_drop(revision, commit, &id, number - revision->keep, error);
    bson_destroy(&kept);
    return status;
}

static truce_status put_last(truce_revision *revision, truce_commit *commit, const bson_value_t *id,
                             int64_t last, bool reserved, bson_error_t *error)
{
    bson_t grave;
    truce_status status;

    revision_history_begin_document(id, TRUCE_REVISION_NEW, &grave);
    bson_append_int64(&grave, "last", 4, last);
    if (reserved)
        bson_append_bool(&grave, "reserved", 8, true);
    status = revision_history_put(revision, commit, &grave, error);
    bson_destroy(&grave);
    return status;
}

/* Reads the last number that was given for an _id, or -1 if no number is recorded. */
static truce_status read_last(truce_revision *revision, truce_commit *commit,
                              const bson_value_t *id, int64_t *last, bool *reserved,
                              bson_error_t *error)
{
    bson_t key, grave;
    bson_value_t of;
    bson_iter_t iter;
    truce_status status;

    *last = -1;
    revision_history_begin_document(id, TRUCE_REVISION_NEW, &key);
    of = revision_history_id_of(&key);
    status = truce_commit_read(commit, revision->kept, &of, &grave, error);
    if (!status && bson_iter_init_find(&iter, &grave, "last") && BSON_ITER_HOLDS_INT64(&iter))
        *last = bson_iter_int64(&iter);
    *reserved = !status && bson_has_field(&grave, "reserved");
    bson_destroy(&grave);
    bson_destroy(&key);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Records the last number of a removed document. A document without a number, or with a number of a
 * plain writer, does not release the numbers of another document. */
truce_status truce__revision_bury(truce_revision *revision, truce_commit *commit,
                                  const bson_value_t *id, int64_t number, bson_error_t *error)
{
    int64_t last;
    bool reserved;
    truce_status status = read_last(revision, commit, id, &last, &reserved, error);

    if (status || (number <= last && !(reserved && number > last - NUMBERS_RESERVED)))
        return status;
    return put_last(revision, commit, id, number, false, error);
}

/* Counts after the kept versions: their successor may have been removed without a record. Versions
 * below `least` are the document's own. The kept versions only grow at the end, so this needs no
 * guard. */
static truce_status count_versions(truce_revision *revision, const bson_value_t *id, int64_t least,
                                   int64_t *last, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, bounds, *sort = BCON_NEW("_id", BCON_INT32(-1));
    const truce_find_options options = {.sort = sort};
    bson_t lowest, highest, newest;
    bson_iter_t iter, version;
    bson_value_t from, to;
    truce_status status;

    revision_history_begin_document(id, least, &lowest);
    revision_history_begin_document(id, INT64_MAX, &highest);
    from = revision_history_id_of(&lowest);
    to = revision_history_id_of(&highest);
    bson_append_document_begin(&filter, "_id", 3, &bounds);
    BSON_APPEND_VALUE(&bounds, "$gte", &from);
    BSON_APPEND_VALUE(&bounds, "$lt", &to);
    bson_append_document_end(&filter, &bounds);
    status = truce_find_one(revision->store, revision->kept, &filter, &options, &newest, error);
    if (!status && bson_iter_init(&iter, &newest) &&
        bson_iter_find_descendant(&iter, "_id.version", &version) &&
        bson_iter_as_int64(&version) > *last)
        *last = bson_iter_as_int64(&version) + 1;
    bson_destroy(&newest);
    bson_destroy(&lowest);
    bson_destroy(&highest);
    bson_destroy(&filter);
    bson_destroy(sort);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

truce_status truce__revision_first(truce_revision *revision, truce_commit *commit,
                                   const bson_value_t *id, int64_t least, int64_t *number,
                                   bson_error_t *error)
{
    int64_t last;
    bool reserved;
    truce_status status = read_last(revision, commit, id, &last, &reserved, error);

    if (!status && revision->keep)
        status = count_versions(revision, id, least, &last, error);
    if (status)
        return status;
    *number = last + 1 > least ? last + 1 : least;
    /* Invariant RN1: the numbers of other documents of this _id are lower. */
    status = put_last(revision, commit, id, *number + NUMBERS_RESERVED - 1, true, error);
    return status;
}

truce_status truce__revision_renumber(truce_revision *revision, truce_commit *commit,
                                      const bson_value_t *id, bson_t *document, int64_t *number,
                                      bool *renumbered, bson_error_t *error)
{
    bson_t update = BSON_INITIALIZER, set;
    int64_t last;
    bool reserved;
    truce_status status;

    *renumbered = false;
    if (!*number || truce__commit_marks(commit, revision->collection, id))
        return TRUCE_OK;
    status = read_last(revision, commit, id, &last, &reserved, error);
    /* Invariant RN2: a number up to the last reserved one was given before. */
    if (status || *number > last)
        return status;
    *renumbered = true;
    status = truce__revision_first(revision, commit, id, 1, number, error);
    if (status)
        return status;
    bson_append_document_begin(&update, "$set", 4, &set);
    bson_append_int64(&set, revision->version, -1, *number);
    bson_append_document_end(&update, &set);
    status = truce_commit_update(commit, revision->collection, id, NULL, &update, error);
    bson_destroy(&update);
    if (status)
        return status;
    bson_destroy(document);
    return truce_commit_read(commit, revision->collection, id, document, error);
}

/* Finds a replaced version. A decided commit may not have reached it yet, so that it is still a
 * stub; a read through the journal then completes the commit. */
static truce_status find_stored_version(truce_revision *revision, const bson_t *key, bson_t *found,
                                        bson_error_t *error)
{
    truce_status status = truce_find_one(revision->store, revision->kept, key, NULL, found, error);
    bson_value_t of = revision_history_id_of(key);
    truce_read_request request = {.collection = revision->kept, .id = &of};

    if (status || !bson_has_field(found, "_intent") || bson_has_field(found, "document"))
        return status;
    status =
        truce_read_many(revision->store, &request, 1,
                        &(truce_read_many_options){.deadline_ms = revision->deadline_ms}, error);
    bson_destroy(found);
    bson_steal(found, &request.document);
    return status || request.found
               ? status
               : truce__fail(TRUCE_NOT_FOUND, error, "the version was pruned while it was read");
}

truce_status truce__revision_stored_version(truce_revision *revision, truce_commit *commit,
                                            const bson_value_t *id, int64_t number,
                                            bson_t *document, bson_error_t *error)
{
    bson_t filter, found;
    bson_iter_t iter;
    truce_status status;

    /* The kept version of a number never changes, so the commit need not guard it. */
    (void)commit;
    bson_init(document);
    revision_history_begin_document(id, number, &filter);
    status = find_stored_version(revision, &filter, &found, error);
    if (!status &&
        (!bson_iter_init_find(&iter, &found, "document") || !BSON_ITER_HOLDS_DOCUMENT(&iter))) {
        status = truce__fail(
            TRUCE_NOT_FOUND, error,
            "version %lld of the document is not stored: its log (truce doc log) lists the stored "
            "versions",
            (long long)number);
    } else if (!status) {
        bson_t borrowed;

        truce__value_bson(truce__value_of_iter(&iter), &borrowed);
        bson_concat(document, &borrowed);
    }
    bson_destroy(&found);
    bson_destroy(&filter);
    return status;
}

/* ---- the public calls ------------------------------------------------------------------------ */

static truce_status revision_history_refused(const truce_revision *revision, bson_error_t *error)
{
    return truce__fail(TRUCE_INVALID, error, "%s", revision->refusal.message);
}

truce_status truce_revision_at(truce_revision *revision, const bson_value_t *id, int64_t version,
                               bson_t *document, bson_error_t *error)
{
    RETURN_IF_NULL(document, error);

    bson_t current, plain;
    int64_t now;
    truce_status status;

    bson_init(document);
    if (revision->refused)
        return revision_history_refused(revision, error);
    status = truce_revision_get(revision, NULL, id, &current, &now, error);
    if (!status && now == version) {
        bson_concat(document, &current);
    } else if (!status || status == TRUCE_NOT_FOUND) {
        status = truce__revision_stored_version(revision, NULL, id, version, &plain, error);
        bson_concat(document, &plain);
        bson_destroy(&plain);
    }
    bson_destroy(&current);
    return status;
}

truce_status truce_revision_log(truce_revision *revision, const bson_value_t *id,
                                truce_cursor **cursor, bson_error_t *error)
{
    RETURN_IF_NULL(cursor, error);

    bson_t filter = BSON_INITIALIZER, equal, *sort = BCON_NEW("_id.version", BCON_INT32(-1));
    truce_find_options options = {.sort = sort};
    truce_status status = truce__check_value(id, "_id", error);

    *cursor = NULL;
    if (status) {
        bson_destroy(&filter);
        bson_destroy(sort);
        return status;
    }
    bson_append_document_begin(&filter, "_id.id", 6, &equal);
    bson_append_value(&equal, "$eq", 3, id);
    bson_append_document_end(&filter, &equal);
    /* Skips the stubs of undecided commits: they have no `document`. */
    BCON_APPEND(&filter, "_id.version", "{", "$gte", BCON_INT64(0), "}", "document", "{", "$exists",
                BCON_BOOL(true), "}");
    status = revision->refused
                 ? revision_history_refused(revision, error)
                 : truce_find(revision->store, revision->kept, &filter, &options, cursor, error);
    bson_destroy(&filter);
    bson_destroy(sort);
    return status;
}

truce_status truce_revision_prune(truce_revision *revision, int64_t *pruned, bson_error_t *error)
{
    truce_write_options options = {.multi = true, .relaxed = revision->relaxed};
    truce_write_result result = {0};
    truce_status status = TRUCE_OK;

    if (revision->refused)
        return revision_history_refused(revision, error);
    if (revision->keep_ms) {
        bson_t *filter =
            BCON_NEW("at", "{", "$lt", BCON_DATE_TIME(truce__clock_wall_ms() - revision->keep_ms),
                     "}", "_intent", "{", "$exists", BCON_BOOL(false), "}");

        status = truce_remove(revision->store, revision->kept, filter, &options, &result, error);
        bson_destroy(filter);
    }
    if (pruned)
        *pruned = result.removed;
    truce_write_result_release(&result);
    return status;
}
